package measure

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/format"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/report"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/measure/stats"
	"btrlab/internal/policy"
	"btrlab/internal/sched/vtime"
)

// compareFlags is the command line of compare.
type compareFlags struct {
	device, jobPath, out, linux string
	policies, models, set       []string
	size, dirty                 app.ByteSize
	seconds                     float64
	rounds, jobs                int
	asJSON, ablation, nocow     bool
	benchstat                   bool

	prof app.Profiles
	rt   runtimeFlags
	dio  deviceIO
	pic  pictures
}

func (a verbs) compare() *cobra.Command {
	var c compareFlags
	cmd := &cobra.Command{
		Use:   "compare [SEED]",
		Short: "run one job under every locking policy and say what each costs and keeps",
		Long: "Compare runs a published experiment: seed " + seeds.Default + " unless another is named.\n\n" +
			seeds.Paragraphs(func(s *seeds.Seed) string { return s.Compare.About }),
		Example: `  btrlab compare
  btrlab compare --policy locked,unlocked,range-lock --device disk.img --device-model ssd-raid5 --out report.html
  btrlab compare --policy locked,unlocked --linux /mnt/btrfs
  btrlab compare 000 --ablation
  btrlab compare 001 --rounds 5 --linux /mnt/btrfs
  btrlab compare 003 --ablation
  btrlab compare 003 --linux /mnt/btrfs
  btrlab compare 004`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: seeds.Names(),
	}
	c.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		seed, err := seedOf(cmd, args)
		if err != nil {
			return err
		}
		results, err := a.comparison(cmd, seed, &c)
		if err != nil {
			return err
		}
		results = slices.DeleteFunc(results, func(r *experiment.Result) bool { return len(r.Rows) == 0 })
		if len(results) == 0 {
			return app.ErrNothing
		}
		if err := a.printCompare(report.Meta{Title: seed.Title, Machine: c.rt.machine()}, results, &c); err != nil {
			return err
		}
		if err := c.prof.Print(cmd, a.Run); err != nil {
			return err
		}
		for _, r := range results {
			if !r.OK() {
				return app.ErrFound
			}
		}
		return a.InterruptedIn(c.device, app.ErrRounds)
	}
	return cmd
}

func (c *compareFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&c.policies, "policy", policy.Names(), "policies to compare")
	f.IntVar(&c.rounds, "rounds", experiment.DefaultRounds, "rounds; each runs every policy once")
	f.StringVar(&c.device, "device", "", "image or block device that holds a btrfs; what the job writes stays in it, and files of that name are replaced (default: a fresh one in memory)")
	f.StringArrayVar(&c.models, "device-model", []string{"none"}, "latency model over the device (default for "+seeds.With(func(s *seeds.Seed) bool { return s.Compare.Model == "delay" })+": delay); may be repeated: "+strings.Join(rig.Models(), ", "))
	f.StringVar(&c.jobPath, "job", "", "fio job file to run instead of seed 002's, as it is written; - is standard input")
	f.BoolVar(&c.nocow, "nocow", false, "with --job: the files are NOCOW, as seed 002's is")
	f.Var(&c.size, "size", fmt.Sprintf("size of all test files (default %dM)", experiment.DefaultFileSize>>20))
	f.Var(&c.dirty, "dirty-limit", "dirty bytes at which writers are throttled; writeback starts at half of it (default: an eighth of the file)")
	f.Float64Var(&c.seconds, "runtime-seconds", experiment.DefaultRuntime/1000.0, "seconds of each run")
	f.IntVar(&c.jobs, "jobs", 0, "number of writers (default: the job's)")
	f.StringArrayVar(&c.set, "set", nil, "change another option of the job, as key=value; may be repeated")
	f.BoolVar(&c.ablation, "ablation", false, seeds.With(hasAblation)+": also a row without each of the patches")
	linuxFlag(cmd, &c.linux)
	f.StringVar(&c.out, "out", "", "write a report, one HTML page, to this file, or its numbers if it ends in .json")
	app.OutputFlag(cmd, "out")
	app.JSONFlag(cmd, &c.asJSON)
	benchstatFlag(cmd, &c.benchstat)
	c.dio.flags(cmd)
	c.prof.Flags(cmd)
	c.rt.flags(cmd)
	c.pic.flags(cmd)
	for _, name := range []string{"gantt", "trace-json"} {
		f.Lookup(name).Usage += "; a file for each row, with its name, of its first round"
	}
	f.Lookup("policy").DefValue = "every preset"
	app.CompletePolicies(cmd, "policy")
	app.CompleteFixed(cmd, "device-model", rig.Models())
}

// check refuses what does not go together, and takes what a seed says itself.
func (c *compareFlags) check(cmd *cobra.Command, seed *seeds.Seed) error {
	f := cmd.Flags()
	// A number is seconds, what --runtime was before there were two runtimes.
	n, err := strconv.ParseFloat(c.rt.name, 64)
	numeric := err == nil
	if numeric {
		c.seconds, c.rt.name = n, "real"
	}
	if err := app.ParsePolicies(cmd, c.policies); err != nil {
		return err
	}
	for _, m := range c.models {
		if err := app.ParseModel(cmd, m); err != nil {
			return err
		}
	}
	rows := seed.Compare.Baseline != "" // which the seed makes itself
	err = app.Check(cmd,
		app.AtLeast(c.rounds, 1, "rounds %d, want at least 1"),
		app.Not(!(c.seconds > 0 && c.seconds <= app.MaxSeconds), // nor NaN
			"runtime-seconds %g, want more than 0 seconds and at most %d", c.seconds, app.MaxSeconds),
		app.Not(rows && f.Changed("policy"), "--policy is for seed 002: the rows of seed %s have policies of their own", seed.Name),
		app.Not(c.ablation && !hasAblation(seed), "--ablation is for %s", seeds.With(hasAblation)),
		app.Not(rows && c.jobPath != "", "--job is for the policies of seed 002: the rows of seed %s change the options of its job", seed.Name),
		app.Excludes("benchstat", "json", "--%s and --json exclude each other"),
		app.Needs("nocow", "job", "--nocow is for --job: the seeds say what their files are"),
		app.Not(len(c.policies) == 0 || len(c.models) == 0, "nothing to compare, want at least one policy and one device model"))
	if err != nil {
		return err
	}
	if seed.Compare.Model != "" && !f.Changed("device-model") {
		c.models = []string{seed.Compare.Model}
	}
	if c.jobPath != "" && !f.Changed("runtime-seconds") && !numeric {
		c.seconds = 0
	}
	if err := c.rt.check(cmd, c.device); err != nil {
		return err
	}
	return errors.Join(c.pic.check(cmd, &c.rt), app.Check(cmd, app.Needs("gantt trace-json", "", "--%s shows one machine, want one --device-model").If(len(c.models) > 1)))
}

// files is how many files the tasks of the job use, 0 if they share one, and what kind of files.
func (c *compareFlags) files(cmd *cobra.Command, seed *seeds.Seed, jf *fio.JobFile) (n int, kind rig.Kind, err error) {
	if c.jobPath == "" {
		if seed.Files > 0 {
			n = jf.Tasks()
		}
		return n, rig.Usual, nil
	}
	kind = rig.Cow
	if c.nocow {
		kind = rig.Nocow
	}
	if n, err = jobFiles(jf); err == nil && c.linux != "" && (n == 0) != c.nocow {
		err = app.Usagef(cmd, "with --linux one file that all tasks write is NOCOW, and files of their own are not: want --nocow if filename= is set, and only then")
	}
	return n, kind, err
}

// comparison runs the seed on each device model, until it is interrupted.
func (a verbs) comparison(cmd *cobra.Command, seed *seeds.Seed, c *compareFlags) (results []*experiment.Result, ret error) {
	if err := c.check(cmd, seed); err != nil {
		return nil, err
	}
	jf, err := a.compareJob(cmd, seed, c)
	if err == nil {
		err = c.rt.seedJob(cmd, jf)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.rt.checkLinux(cmd, c.linux), c.dio.check(cmd, c.device)); err != nil {
		return nil, err
	}
	files, kind, err := c.files(cmd, seed, jf)
	if err != nil {
		return nil, err
	}
	others, done, err := a.linuxRows(c.linux, seed.Compare.Linux, files)
	if err != nil {
		return nil, err
	}
	defer func() { ret = errors.Join(ret, done()) }()
	opt := experiment.Options{Job: jf, Policies: c.policies, Others: others, Rounds: c.rounds, Files: files, NoPayload: c.rt.noPayload, Stop: &a.Stop}
	if seed.Compare.Baseline != "" {
		opt.Variants, opt.Baseline, opt.Pairs = seed.Variants(), seed.Compare.Baseline, seed.Compare.Pairs
	}
	if c.ablation {
		opt.Variants = slices.Concat(opt.Variants, seed.Compare.Ablation)
	}
	pics := c.pic.ofRows(&c.rt)
	pics.frame(&opt)
	if seed.Compare.Cached && !c.dirty.Given {
		c.dirty.N = 4 * c.size.N
	}
	err = c.prof.Around(a.Run, func() error {
		for _, m := range c.models {
			var r *experiment.Result
			cfg := c.rt.config(rig.Config{Device: c.device, DeviceFlags: c.dio.open(a.Note), Model: m, DirtyBackground: c.dirty.N / 2, DirtyLimit: c.dirty.N,
				Files: files, Kind: kind}, largestFile(jf)*int64(max(files, 1)))
			err := a.on(&c.rt, func() (err error) {
				r, err = a.runCompare(cfg, opt)
				return err
			})
			if err != nil {
				return app.Named(c.device, err)
			}
			results = append(results, r)
			if a.Stop.Load() {
				break
			}
		}
		names, err := pics.save(filepath.Base(jf.Name))
		for _, name := range names {
			a.Note("picture: " + name)
		}
		return err
	})
	return results, err
}

// Compared runs the default seed with flags of compare, for another verb.
func Compared(a *app.Run, flags []string) ([]*experiment.Result, error) {
	var c compareFlags
	cmd := &cobra.Command{Use: "compare"}
	c.flags(cmd)
	if err := cmd.ParseFlags(flags); err != nil {
		return nil, err
	}
	return verbs{a}.comparison(cmd, seeds.Get(seeds.Default), &c)
}

// Simulated is what a page calls the machine of a measurement in virtual time without other flags.
func Simulated() [][2]string {
	return (&runtimeFlags{name: "vtime", cpus: vtime.DefaultCPUs, locks: "linux"}).machine()
}

func hasAblation(s *seeds.Seed) bool { return len(s.Compare.Ablation) > 0 }

// seedOf is the published experiment that the argument names.
func seedOf(cmd *cobra.Command, args []string) (*seeds.Seed, error) {
	name := seeds.Default
	if len(args) > 0 {
		name = args[0]
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && len(name) < 3 {
		name = fmt.Sprintf("%03d", n) // as labs are: 2 is 002
	}
	if s := seeds.Get(name); s != nil {
		return s, nil
	}
	return nil, app.Usagef(cmd, "seed %q, want %s", name, strings.Join(seeds.Names(), ", "))
}

// jobFiles is how many files the tasks of a job use: 0 is one that all share. The comparison judges
// the blocks of all files as one, so it has no other way.
func jobFiles(jf *fio.JobFile) (int, error) {
	first := jf.Jobs[0]
	for _, j := range jf.Jobs {
		if n := j.Files(); n > 1 || j.FileSizeMin != j.FileSizeMax {
			return 0, fmt.Errorf("job %s: compare runs each task on one file of a known size, have %d files and filesize=%d-%d; bench runs such a job", j.Name, n, j.FileSizeMin, j.FileSizeMax)
		}
		if j.Filename() != first.Filename() {
			return 0, fmt.Errorf("job %s: compare runs all tasks on one file or each on its own, have filename=%s here and filename=%s in job %s", j.Name, j.Filename(), first.Filename(), first.Name)
		}
		if a, b := max(j.FileSizeMax, j.Offset+j.Size), max(first.FileSizeMax, first.Offset+first.Size); j.Filenames == nil && a != b {
			return 0, fmt.Errorf("job %s: compare needs files of one size, have %d here and %d in job %s", j.Name, a, b, first.Name)
		}
	}
	if jf.Tasks() == 1 || first.Filenames != nil {
		return 0, nil
	}
	return jf.Tasks(), nil
}

// compareJob reads the job. Seed 002's is scaled by the command line; another one is changed only
// by what the command line has.
func (a verbs) compareJob(cmd *cobra.Command, seed *seeds.Seed, c *compareFlags) (*fio.JobFile, error) {
	jf, err := fio.Parse("seed-"+seed.Name, strings.NewReader(seed.Job))
	if c.jobPath != "" {
		jf, err = a.ReadJob(fio.Syntax{}, c.jobPath)
	}
	if err != nil {
		return nil, err
	}
	if !c.size.Given && c.jobPath == "" {
		c.size.N = cmp.Or(seed.Compare.Size, experiment.DefaultFileSize)
	}
	var all []string
	if c.seconds > 0 {
		all = append(all, fmt.Sprintf("runtime=%dms", int64(c.seconds*1000)))
	}
	if c.jobPath == "" {
		// Without it a short run measures how fast an empty page cache takes what it will write
		// back later.
		all = append(all, fmt.Sprintf("ramp_time=%dms", int64(c.seconds*experiment.DefaultRamp*1000)))
	}
	if c.jobs > 0 {
		all = append(all, fmt.Sprintf("numjobs=%d", c.jobs))
	}
	if err := setOptions(cmd, jf, all); err != nil {
		return jf, err
	}
	files, _, err := c.files(cmd, seed, jf)
	if err != nil {
		return jf, err
	}
	var size []string // --size is that of all files
	if each := uint64(c.size.N) / uint64(max(files, 1)); each > 0 {
		each = max(format.AlignDown(each, format.SectorSize), format.SectorSize)
		size = append(size, fmt.Sprintf("size=%d", each))
		if jf.Jobs[0].FileSizeMax > 0 {
			size = append(size, fmt.Sprintf("filesize=%d", each))
		}
	}
	err = setOptions(cmd, jf, append(size, c.set...))
	if err != nil && slices.ContainsFunc(c.set, func(kv string) bool { return strings.HasPrefix(kv, "runtime=") }) {
		err = app.Usagef(cmd, "%w; --runtime-seconds takes seconds and parts of them", err)
	}
	return jf, err
}

func (a verbs) runCompare(cfg rig.Config, o experiment.Options) (r *experiment.Result, err error) {
	l, err := rig.Open(a.Task, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	o.Device, o.Model = l.DeviceName(), l.ModelName()
	bar := a.NewBar("compare", true)
	defer bar.Done()
	o.Progress = func(p experiment.Progress) {
		bar.Set(fmt.Sprintf("%s round %d/%d %s: %s, %d ios", o.Model, p.Round, p.Rounds, p.Policy, p.Step, p.IOs),
			uint64(p.Fraction*1000), 1000)
	}
	return experiment.Compare(a.Task, l, o)
}

// writeBenchstat writes the lines of all results for benchstat.
func (a verbs) writeBenchstat(results []*experiment.Result, rt *runtimeFlags) error {
	err := stats.BenchHead(a.Out)
	for _, r := range results {
		err = errors.Join(err, r.WriteBenchstat(a.Out, rt.processors()))
	}
	return err
}

func (a verbs) printCompare(meta report.Meta, results []*experiment.Result, c *compareFlags) error {
	asJSON, out := c.asJSON, c.out
	var err error
	switch {
	case c.benchstat:
		err = a.writeBenchstat(results, &c.rt)
	case asJSON && len(results) == 1:
		err = results[0].WriteJSON(a.Out)
	case asJSON:
		err = a.PrintJSON(results)
	default:
		for i, r := range results {
			if i > 0 {
				fmt.Fprintln(a.Out)
			}
			if err = r.WriteText(a.Out); err != nil {
				break
			}
		}
	}
	if err != nil || out == "" {
		return err
	}
	write := report.Write
	if strings.HasSuffix(out, ".json") {
		write = report.Save
	}
	meta.Command = strings.Join(os.Args, " ")
	err = app.ReplaceFile(out, func(w io.Writer) error { return write(w, meta, results...) })
	if err != nil {
		return fmt.Errorf("report %s: %w", out, err)
	}
	if !asJSON && !c.benchstat {
		fmt.Fprintf(a.Out, "\nreport: %s\n", out)
	}
	return nil
}

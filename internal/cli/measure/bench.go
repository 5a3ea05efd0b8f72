package measure

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"btrlab/internal/cli/app"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/stats"
)

// benchFlags is the command line of bench.
type benchFlags struct {
	image, pol, model, linux string
	set                      []string
	asJSON, nocow, benchstat bool
	format, output           string
	syntax                   fio.Syntax
	dirty                    app.ByteSize
	prof                     app.Profiles
	rt                       runtimeFlags
	dio                      deviceIO
	pic                      pictures
}

func (a verbs) bench() *cobra.Command {
	var c benchFlags
	cmd := &cobra.Command{
		Use:   "bench {JOB.fio | -- --name=JOB ...}",
		Short: "run fio jobs against files in an image",
		Long: `Bench runs the jobs of a fio job file (- is standard input), or those of fio's own words after --: each --name= begins
a job, and the words before the first one are for all. A filename= is a path in the image. It prints what fio prints: text, or with
--output-format its terse line (version 3) or JSON. Without --image it works on a fresh image in memory.

Logs that a job asks for (write_lat_log=, write_bw_log=, write_iops_log=) become files of the working directory, with fio's names and columns.`,
		Example: `  btrlab bench internal/measure/seeds/seed-002.fio --set size=256M --set runtime=10 --nocow --policy unlocked
  btrlab bench job.fio --image disk.img --device-model ssd-raid5 --lockprofile lock.pprof
  btrlab bench --policy unlocked --nocow -- --name=w --rw=randwrite --bs=4k --size=64m --numjobs=4 --filename=f
  btrlab bench job.fio --nocow --linux /mnt/btrfs
  btrlab bench job.fio --runtime vtime --cpus 16 --seed 1 --device-model nvme --no-payload
  btrlab bench internal/measure/seeds/seed-002.fio --set runtime=1 --set size=256M --nocow --runtime vtime --device-model ssd-raid5 --gantt locks.html`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() == 0 && len(args) > 0 {
				return nil // fio's words
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.image, "image", "", "image or block device that holds a btrfs (default: a fresh one in memory)")
	f.StringVar(&c.pol, "policy", "locked", app.PolicyUsage())
	app.ModelFlag(cmd, &c.model)
	f.StringArrayVar(&c.set, "set", nil, "change an option of every job, as key=value; may be repeated")
	f.BoolVar(&c.syntax.IgnoreUnknown, "ignore-unknown", false, "ignore job-file options that btrlab does not know")
	f.BoolVar(&c.nocow, "nocow", false, "make new files NOCOW")
	f.Var(&c.dirty, "dirty-limit", "dirty bytes at which writers are throttled; writeback starts at half of it (default 128M)")
	linuxFlag(cmd, &c.linux)
	app.JSONFlag(cmd, &c.asJSON)
	f.Lookup("json").Usage = "print the result as JSON, as --output-format=json+ does"
	f.StringVar(&c.format, "output-format", "normal", "print the result as "+strings.Join(fio.Formats, ", "))
	benchstatFlag(cmd, &c.benchstat)
	f.Lookup("benchstat").Usage = "print a line for each job as go test prints benchmarks, for benchstat -col /policy"
	app.CompleteFixed(cmd, "output-format", fio.Formats)
	c.dio.flags(cmd)
	c.prof.Flags(cmd)
	c.rt.flags(cmd)
	c.pic.flags(cmd)
	app.CompletePolicies(cmd, "policy")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(app.Check(cmd, app.OneOf(c.format, fio.Formats, "output-format %q, want one of %s"), app.Excludes("json", "output-format", "--json is --output-format=json, want one of the two"), app.Excludes("benchstat", "json output-format", "--%s is a form of its own, want neither --json nor --output-format")), app.ParsePolicies(cmd, []string{c.pol}), app.ParseModel(cmd, c.model), c.rt.check(cmd, c.image), c.rt.checkLinux(cmd, c.linux), c.dio.check(cmd, c.image), c.pic.check(cmd, &c.rt)); err != nil {
			return err
		}
		return a.benchJob(cmd, &c, args)
	}
	a.CacheFlag(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) && slices.Contains(fio.OptionNames(), unknown.GetSpecifiedName()) {
			return app.Usagef(cmd, "--%s is fio's, want fio's words after --, as btrlab bench -- --name=JOB --rw=write --size=1m", unknown.GetSpecifiedName())
		}
		return &app.UsageError{Err: app.FlagError(err), Path: cmd.CommandPath()}
	})
	return cmd
}

// jobs are those of a file, or of fio's words after --.
func (a verbs) jobs(cmd *cobra.Command, c *benchFlags, args []string) (*fio.JobFile, error) {
	if cmd.ArgsLenAtDash() < 0 {
		return a.ReadJob(c.syntax, args[0])
	}
	jf, prog, err := c.syntax.ParseArgs(args)
	if err != nil {
		return nil, app.Usagef(cmd, "%v", err)
	}
	c.format, c.output = cmp.Or(prog.Format, c.format), prog.Output
	return jf, nil
}

// benchJob runs jobs, and prints the result.
func (a verbs) benchJob(cmd *cobra.Command, c *benchFlags, args []string) error {
	jf, err := a.jobs(cmd, c, args)
	if err != nil {
		return err
	}
	if err := errors.Join(setOptions(cmd, jf, c.set), c.rt.seedJob(cmd, jf)); err != nil {
		return err
	}
	c.pic.record(&c.rt)
	var run *stats.Run
	bar := a.NewBar("bench", true)
	err = c.prof.Around(a.Run, func() (err error) {
		cfg := c.rt.config(rig.Config{Device: c.image, DeviceFlags: c.dio.open(a.Note), Model: c.model, Faults: a.Faults, DirtyBackground: c.dirty.N / 2, DirtyLimit: c.dirty.N, Memory: a.Cache.N}, allFiles(jf))
		if c.image != "" { // an image in memory would count in the heap
			defer a.LimitHeap()()
		}
		return a.on(&c.rt, func() (err error) {
			run, err = a.runBench(jf, cfg, c.pol, c.nocow, bar, &c.pic)
			if err == nil && c.linux != "" && !a.Stop.Load() {
				err = a.benchLinux(jf, c.linux, c.nocow, bar, run)
			}
			return err
		})
	})
	bar.Done()
	if words := cmd.ArgsLenAtDash() >= 0 || len(c.set) > 0; words && errors.As(err, new(fio.NoWork)) {
		return app.Usagef(cmd, "%v", err)
	}
	if err != nil {
		return app.Named(c.image, err)
	}
	if err := c.pic.save(filepath.Base(jf.Name), c.pol); err != nil {
		return err
	}
	if err := errors.Join(a.printRun(run, c), c.prof.Print(cmd, a.Run)); err != nil {
		return err
	}
	if job, text, errno := run.FirstError(); errno != 0 {
		return fmt.Errorf("job %s: %s", job, text)
	}
	return a.InterruptedIn(c.image, app.ErrMeasured)
}

// printRun prints the result in the format that the flags or fio's words ask for.
func (a verbs) printRun(run *stats.Run, c *benchFlags) error {
	write := func(w io.Writer) error {
		switch {
		case c.benchstat:
			return run.WriteBenchstat(w, c.pol, c.rt.processors())
		case c.asJSON:
			// json+: fio's own fio_jsonplus_clat2csv wants the bins, other readers pass over them.
			return run.WriteJSON(w, true)
		case strings.HasPrefix(c.format, "json"):
			return run.WriteJSON(w, c.format == "json+")
		case c.format == "terse":
			return run.WriteTerse(w)
		}
		return run.WriteText(w)
	}
	if c.output != "" {
		return app.ReplaceFile(c.output, write)
	}
	return write(a.Out)
}

// setOptions applies key=value words to every job.
func setOptions(cmd *cobra.Command, jf *fio.JobFile, set []string) error {
	for _, kv := range set {
		key, val, _ := strings.Cut(kv, "=")
		if err := jf.Set(key, val); err != nil {
			return app.Usagef(cmd, "--set %s: %v", kv, err)
		}
	}
	return nil
}

func (a verbs) runBench(jf *fio.JobFile, cfg rig.Config, pol string, nocow bool, bar *app.Bar, pic *pictures) (run *stats.Run, err error) {
	l, err := rig.Open(a.Task, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	was := a.Task.Policy
	a.Task.Policy = pol // of the tasks that begin from here on
	defer func() { a.Task.Policy = was }()
	x, err := l.OpenFS(a.Task, pol)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.Close(a.Task)) }()
	files := rig.NewFiles(x, nocow)
	defer func() { err = errors.Join(err, files.Close(a.Task)) }()
	o := a.benchOptions("", bar)
	o.Open = files.Open
	o.Log = func(name string) (io.WriteCloser, error) { return os.Create(name) }
	pic.frame(&o)
	return fio.Run(a.Task, jf, o)
}

// benchOptions are a run's options without its files; row, if any, stands before the name of the
// job in the progress.
func (a verbs) benchOptions(row string, bar *app.Bar) fio.Options {
	return fio.Options{
		Stop: &a.Stop,
		Progress: func(p fio.Progress) {
			bar.Set(fmt.Sprintf("%s%s %d ios", row, p.Job, p.IOs), uint64(p.Fraction*1000), 1000)
		},
		Notice: a.Note,
	}
}

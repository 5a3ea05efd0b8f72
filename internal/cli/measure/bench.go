package measure

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/measure/stats"
)

// benchFlags is the command line of bench.
type benchFlags struct {
	image, pol, model, linux string
	set                      []string
	asJSON, nocow            bool
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
		Use:   "bench JOB.fio",
		Short: "run a fio job file against files in an image",
		Long: `Bench runs the jobs of a fio job file (- is standard input); a filename= is a path in the image. It prints what fio
prints, or with --json the JSON of fio 3.x. Without --image it works on a fresh image in memory.`,
		Example: `  btrlab bench internal/measure/seeds/seed-002.fio --set size=256M --set runtime=10 --nocow --policy unlocked
  btrlab bench job.fio --image disk.img --device-model ssd-raid5 --lockprofile lock.pprof
  btrlab bench job.fio --nocow --linux /mnt/btrfs
  btrlab bench job.fio --runtime vtime --cpus 16 --seed 1 --device-model nvme --no-payload
  btrlab bench internal/measure/seeds/seed-002.fio --set runtime=1 --set size=256M --nocow --runtime vtime --device-model ssd-raid5 --gantt locks.html`,
		Args: cobra.ExactArgs(1),
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
	c.dio.flags(cmd)
	c.prof.Flags(cmd)
	c.rt.flags(cmd)
	c.pic.flags(cmd)
	app.CompletePolicies(cmd, "policy")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(app.ParsePolicies(cmd, []string{c.pol}), app.ParseModel(cmd, c.model), c.rt.check(cmd, c.image), c.rt.checkLinux(cmd, c.linux), c.dio.check(cmd, c.image), c.pic.check(cmd, &c.rt)); err != nil {
			return err
		}
		return a.benchJob(cmd, &c, args[0])
	}
	a.CacheFlag(cmd)
	return cmd
}

// benchJob runs the job of a file, and prints the result.
func (a verbs) benchJob(cmd *cobra.Command, c *benchFlags, file string) error {
	jf, err := a.ReadJob(c.syntax, file)
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
	if err != nil {
		return app.Named(c.image, err)
	}
	if err := c.pic.save(filepath.Base(file), c.pol); err != nil {
		return err
	}
	if c.asJSON {
		// json+: fio's own fio_jsonplus_clat2csv wants the bins, other readers pass over them.
		err = run.WriteJSON(a.Out, true)
	} else {
		err = run.WriteText(a.Out)
	}
	if err != nil {
		return err
	}
	if job, text, errno := run.FirstError(); errno != 0 {
		return fmt.Errorf("job %s: %s", job, text)
	}
	return a.Interrupted()
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

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

func (a verbs) bench() *cobra.Command {
	var image, pol, model, linux string
	var set []string
	var asJSON, nocow bool
	var syntax fio.Syntax
	var dirty app.ByteSize
	var prof app.Profiles
	var rt runtimeFlags
	var dio deviceIO
	var pic pictures
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
	f.StringVar(&image, "image", "", "image or block device that holds a btrfs (default: a fresh one in memory)")
	f.StringVar(&pol, "policy", "locked", app.PolicyUsage())
	app.ModelFlag(cmd, &model)
	f.StringArrayVar(&set, "set", nil, "change an option of every job, as key=value; may be repeated")
	f.BoolVar(&syntax.IgnoreUnknown, "ignore-unknown", false, "ignore job-file options that btrlab does not know")
	f.BoolVar(&nocow, "nocow", false, "make new files NOCOW")
	f.Var(&dirty, "dirty-limit", "dirty bytes at which writers are throttled; writeback starts at half of it (default 128M)")
	linuxFlag(cmd, &linux)
	app.JSONFlag(cmd, &asJSON)
	dio.flags(cmd)
	prof.Flags(cmd)
	rt.flags(cmd)
	pic.flags(cmd)
	app.CompletePolicies(cmd, "policy")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(app.ParsePolicies(cmd, []string{pol}), app.ParseModel(cmd, model), rt.check(cmd, image), rt.checkLinux(cmd, linux), dio.check(cmd, image), pic.check(cmd, &rt)); err != nil {
			return err
		}
		jf, err := a.ReadJob(syntax, args[0])
		if err != nil {
			return err
		}
		if err := errors.Join(setOptions(cmd, jf, set), rt.seedJob(cmd, jf)); err != nil {
			return err
		}
		pic.record(&rt)
		var run *stats.Run
		bar := a.NewBar("bench", true)
		err = prof.Around(a.Run, func() (err error) {
			cfg := rt.config(rig.Config{Device: image, DeviceFlags: dio.open(a.Note), Model: model, Faults: a.Faults, DirtyBackground: dirty.N / 2, DirtyLimit: dirty.N, Memory: a.Cache.N}, allFiles(jf))
			if image != "" { // an image in memory would count in the heap
				defer a.LimitHeap()()
			}
			return a.on(&rt, func() (err error) {
				run, err = a.runBench(jf, cfg, pol, nocow, bar, &pic)
				if err == nil && linux != "" && !a.Stop.Load() {
					err = a.benchLinux(jf, linux, nocow, bar, run)
				}
				return err
			})
		})
		bar.Done()
		if err != nil {
			return app.Named(image, err)
		}
		if err := pic.save(filepath.Base(args[0]), pol); err != nil {
			return err
		}
		if asJSON {
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
	a.CacheFlag(cmd)
	return cmd
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

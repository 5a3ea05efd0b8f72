package study

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/fs"
	"btrlab/internal/judge/crash"
	"btrlab/internal/measure/fio"
	"btrlab/internal/measure/rig"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/prose"
	"btrlab/internal/sched"
	"btrlab/internal/script"
)

// crashFlags are the flags of crash.
type crashFlags struct {
	script, job, policy, wrong, state, save string
	part                                    string // what --shard was called
	shard                                   app.ShardFlags
	choice                                  crash.Choice
	bounded, sample, jobs                   int
	json, promises                          bool
}

// crashResult is the output of crash --json.
type crashResult struct {
	Operations int        `json:"operations,omitempty"`
	Writes     int        `json:"writes,omitempty"`
	Flushes    int        `json:"flushes,omitempty"`
	Sequences  int        `json:"sequences,omitempty"`
	States     int        `json:"states"`
	Seconds    float64    `json:"seconds"`
	Found      *crashLoss `json:"found"`
}

type crashLoss struct {
	Rule     string   `json:"rule"`
	Text     string   `json:"text"`
	State    string   `json:"state"`
	Timeline []string `json:"timeline"`
	Image    string   `json:"image,omitempty"`
	Script   string   `json:"script,omitempty"`
	Replay   string   `json:"replay,omitempty"`
}

func (a verbs) crash() *cobra.Command {
	var o crashFlags
	cmd := &cobra.Command{
		Use:   "crash IMAGE [-- COMMAND...]",
		Short: "cut the power anywhere in a workload, and say what is lost",
		Long: `Crash runs a workload on an image, which is not changed, and records every write and flush. Then it cuts the power:
at every flush, with any part of the writes since the flush before lost or torn. Each such state is checked, opened as after a power cut,
with the log replayed, checked again, and held against what was promised: what sync and fsync made durable is there, nothing is there that
nobody wrote, a renamed file has its old name or its new one. Then the power goes once more, in the first commit after the crash.
Btrlab crash --promises lists the promises.
The workload is a script in the language of btrlab sh, a fio job, or one verb after --, which is followed by a sync. With --bounded it is every sequence of
one or two operations on a few files, with every choice of sync, fsync and fdatasync after each, as in CrashMonkey; without IMAGE on a
fresh one in memory; of three operations as many as --sample says are taken by --seed. --shard divides them among machines, each with
a file: all 165,925,040 of three operations as well. Btrlab merge joins the files.
What is lost is shown with the fewest lost writes that show it, and saved as an image and a script. --wrong gives the device the writes in a wrong
order, in which the loss is found: ` + strings.Join(crash.Wrongs(), ", ") + `.
Exit code 1 means that something was lost.`,
		Example: `  btrlab crash --script ops.txt disk.img
  btrlab crash --script ops.txt --wrong super-first disk.img
  btrlab crash --job job.fio disk.img
  btrlab crash disk.img -- put -r src /src
  btrlab crash --bounded 1
  btrlab crash --bounded 2 --shard 3/64 --out part-3.json
  btrlab crash --promises`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	f := cmd.Flags()
	f.StringVar(&o.script, "script", "", "file with the operations, a line each, as btrlab sh takes them")
	f.StringVar(&o.job, "job", "", "fio job file to run, with a synchronous engine; every write is kept in memory")
	f.IntVar(&o.bounded, "bounded", 0, "run every sequence of this many operations: 1, 2 or, sampled or in shards, 3")
	f.IntVar(&o.sample, "sample", 1000, "so many of the sequences of three operations; with --shard all of them, unless this flag is there")
	o.shard.Flags(cmd, "the sequences of --bounded")
	f.StringVar(&o.part, "part", "", "")
	_ = f.MarkHidden("part") // it is there
	f.StringVar(&o.policy, "policy", "locked", app.PolicyUsage())
	f.StringVar(&o.wrong, "wrong", "", "a wrong order of writes: "+strings.Join(crash.Wrongs(), ", "))
	f.IntVar(&o.choice.PerFlush, "states", crash.DefaultPerFlush, "crash states at each flush; all of them where there are no more")
	f.Uint64Var(&o.choice.Seed, "seed", 1, "seed of the states and sequences that are taken by chance")
	f.StringVar(&o.state, "state", "", "look at one crash state only, as it was printed")
	f.StringVar(&o.save, "save", "crash", "prefix of the files saved when something is lost: NAME.img and NAME.ops; '' saves nothing")
	f.BoolVar(&o.promises, "promises", false, "list what crash states are held against, and run nothing")
	f.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "crash states at a time")
	app.JSONFlag(cmd, &o.json)
	app.CompletePolicies(cmd, "policy")
	app.CompleteFixed(cmd, "wrong", crash.Wrongs())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var command []string
		if n := cmd.ArgsLenAtDash(); n >= 0 {
			args, command = args[:n], args[n:]
		}
		if o.promises {
			a.printPromises()
			return nil
		}
		if err := o.check(cmd, args, command); err != nil {
			return err
		}
		return a.withBase(args, func(dev blockdev.Device) error {
			if o.shard.On() {
				return a.shardOfCrash(cmd, &o, dev)
			}
			if o.bounded > 0 {
				return a.crashBounded(&o, dev)
			}
			return a.crashScript(&o, args[0], dev, command)
		})
	}
	app.ProfileFlags(a.Run, cmd, false)
	return cmd
}

// printPromises lists what crash states are held against.
func (a verbs) printPromises() {
	for _, p := range crash.Promises {
		for _, l := range prose.Hang(fmt.Sprintf("%-11s", p.Rule), strings.Repeat(" ", 11), p.Text+" ("+p.Source+")", prose.Width) {
			fmt.Fprintln(a.Out, l)
		}
	}
}

// check rejects flags that make no sense together.
func (o *crashFlags) check(cmd *cobra.Command, args, command []string) error {
	ways := 0
	for _, on := range []bool{o.script != "", o.job != "", len(command) > 0, cmd.Flags().Changed("bounded")} {
		if on {
			ways++
		}
	}
	err := app.Check(cmd,
		app.Not(ways != 1, "have %d workloads, want one of --script, --job, --bounded and -- COMMAND", ways),
		app.Within(o.bounded, 1, 3, "bad --bounded, have %d want 1, 2 or 3").If(cmd.Flags().Changed("bounded")),
		app.Not(len(args) > 1 || len(args) == 0 && o.bounded == 0, "have %d images, want one", len(args)),
		app.OneOf(o.wrong, crash.Wrongs(), "bad --wrong, have %q want one of %s").If(o.wrong != ""),
		app.Needs("shard", "bounded", "--shard is for --bounded"),
		app.Not(o.part != "", "--part is --shard I/N now, with I from 0, and --out FILE"),
		app.Excludes("state", "bounded", "--state is for a script"),
		app.Not(o.jobs < 1 || o.choice.PerFlush < 1 || o.sample < 1, "--jobs, --states and --sample must be at least 1"))
	if err == nil {
		err = app.Check(cmd, o.shard.Rules()...)
	}
	if err != nil {
		return err
	}
	return app.ParsePolicies(cmd, []string{o.policy})
}

// withBase runs f on the device of the image, or on a fresh one in memory.
func (a verbs) withBase(args []string, f func(dev blockdev.Device) error) error {
	if len(args) == 1 {
		return a.WithDevices(args[0], blockdev.ReadOnly, func(devs []blockdev.Device) error { return f(devs[0]) })
	}
	dev := blockdev.NewMemory(256 << 20)
	if err := mkfs.Make(a.Task, dev, mkfs.Options{}); err != nil {
		return err
	}
	return f(dev)
}

func (o *crashFlags) options() crash.Options {
	p := policy.MustParse(o.policy)
	return crash.Options{FS: fs.Options{Policy: p}, Wrong: o.wrong}
}

func (a verbs) crashScript(o *crashFlags, image string, dev blockdev.Device, command []string) error {
	r, err := crash.NewRecorder(a.Task, []blockdev.Device{dev}, o.options())
	if err != nil {
		return err
	}
	if err := a.record(r, o, image, command); err != nil {
		r.Close(a.Task)
		return err
	}
	rec, err := r.End(a.Task)
	if err != nil {
		return err
	}
	res := crashResult{Operations: len(rec.Ops)}
	res.Writes, res.Flushes = rec.Writes()
	states := rec.States(o.choice)
	if o.state != "" {
		s, err := crash.ParseState(o.state)
		if err == nil {
			err = rec.Has(s)
		}
		if err != nil {
			return err
		}
		states = []crash.State{s}
	}
	bar := a.NewBar("crash", !o.json)
	began := time.Now()
	c, n, err := rec.Search(a.Task, states, o.jobs, a.Stop.Load, func(done int) { bar.Set("crash", uint64(done), uint64(len(states))) })
	bar.Done()
	if err != nil {
		return err
	}
	res.States, res.Seconds = n, time.Since(began).Seconds()
	if !o.json {
		fmt.Fprintf(a.Out, "%s: %s, %s, %s; %s in %.1f s\n", image, prose.Count(res.Operations, "operation"), prose.Count(res.Writes, "write"),
			prose.Count(res.Flushes, "flush"), prose.Count(n, "crash state"), res.Seconds)
	}
	return a.crashFound(o, &res, rec, c, image)
}

// onRecorder makes the verbs work on the image of r, silently, until its result is called.
func (a verbs) onRecorder(r *crash.Recorder, image string) (end func()) {
	a.Open = &app.OpenImage{Name: image, Devs: r.FS.Devices(), FS: r.FS}
	out := a.Out
	a.Out = io.Discard // what the verbs print is no result of crash
	return func() { a.Open, a.Out = nil, out }
}

// record runs the script or the command line by line.
func (a verbs) record(r *crash.Recorder, o *crashFlags, image string, command []string) error {
	defer a.onRecorder(r, image)()
	if o.job != "" {
		return a.recordJob(r, o.job)
	}
	if len(command) > 0 {
		if err := a.recordLine(r, strings.Join(quoted(command), " "), command); err != nil {
			return err
		}
		return a.recordLine(r, "sync", []string{"sync"})
	}
	file, err := os.Open(o.script)
	if err != nil {
		return err
	}
	defer file.Close()
	return a.recordScript(r, o.script, file)
}

// recordScript runs the lines of a script, which messages call name.
func (a verbs) recordScript(r *crash.Recorder, name string, lines io.Reader) error {
	sc := bufio.NewScanner(lines)
	sc.Buffer(nil, script.LineMax)
	for n := 1; sc.Scan(); n++ {
		if err := a.Interrupted(); err != nil {
			return app.ErrNothing
		}
		words, err := script.Words(sc.Text())
		if err == nil && len(words) > 0 {
			err = a.recordLine(r, strings.TrimSpace(sc.Text()), words)
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", name, n, err)
		}
	}
	return sc.Err()
}

// recordJob runs a fio job. Its files are held against their own writes and fsyncs.
func (a verbs) recordJob(r *crash.Recorder, name string) error {
	jf, err := a.ReadJob(fio.Syntax{}, name)
	if err != nil {
		return err
	}
	return r.Do(a.Task, crash.Op{Text: "job " + name, Loose: true}, func() (err error) {
		files := rig.NewFiles(r.FS, false)
		defer func() { err = errors.Join(err, files.Close(a.Task)) }()
		o := fio.Options{Stop: &a.Stop, Notice: a.Note, Open: func(t *sched.Task, job *fio.Job, name string) (fio.Target, error) {
			x, err := files.Open(t, job, name)
			if err != nil {
				return nil, err
			}
			return r.File(t, x.(*fs.File)), nil
		}}
		run, err := fio.Run(a.Task, jf, o)
		if err != nil {
			return err
		}
		if job, text, errno := run.FirstError(); errno != 0 {
			return fmt.Errorf("job %s: %s", job, text)
		}
		return nil
	})
}

// recordLine runs one line, which promises what its verb does.
func (a verbs) recordLine(r *crash.Recorder, text string, words []string) error {
	op := crash.Op{Text: text, Steps: words[0] == "put"}
	switch promise := crash.PromiseOf(words[0]); promise {
	case crash.All:
		op.Promise = promise
	case crash.Inode, crash.Data:
		if len(words) > 2 { // one promise after the other
			for _, w := range words[1:] {
				if err := a.recordLine(r, words[0]+" "+w, []string{words[0], w}); err != nil {
					return err
				}
			}
			return nil
		}
		if len(words) == 2 {
			op.Promise, op.Path = promise, words[1]
		}
	}
	return r.Do(a.Task, op, func() error { return a.doors.Line(a.Run, words) })
}

// quoted are words as script.Words reads them.
func quoted(words []string) []string {
	l := make([]string, len(words))
	for i, w := range words {
		if l[i] = w; w == "" || strings.ContainsAny(w, " \t\"\\#") {
			l[i] = "'" + w + "'"
		}
	}
	return l
}

func (a verbs) crashBounded(o *crashFlags, dev blockdev.Device) error {
	bar := a.NewBar("crash", !o.json)
	began := time.Now()
	b := crash.Bounds{Length: o.bounded, Sample: o.sample, Seed: o.choice.Seed, Jobs: o.jobs, Stop: a.Stop.Load, Progress: func(done int) {
		bar.Set(fmt.Sprintf("crash %d", done), uint64(done), 0)
	}}
	sum, err := crash.RunBounded(a.Task, dev, o.options(), b)
	bar.Done()
	if err != nil {
		return err
	}
	res := crashResult{Sequences: sum.Sequences, States: sum.States, Seconds: time.Since(began).Seconds()}
	if !o.json {
		fmt.Fprintf(a.Out, "%d sequences of length %d; %d crash states in %.1f s\n", sum.Sequences, o.bounded, sum.States, res.Seconds)
	}
	return a.crashFound(o, &res, sum.Recording, sum.Found, "IMAGE")
}

// crashFound ends crash: with what was lost, if anything was.
func (a verbs) crashFound(o *crashFlags, res *crashResult, rec *crash.Recording, c *crash.Counterexample, image string) error {
	if c != nil {
		var err error
		if c, err = rec.Shrink(a.Task, c); err != nil {
			return err
		}
		res.Found = lossOf(rec, c)
		if o.save != "" {
			if err := a.saveCrash(o, res.Found, rec, c.State, image); err != nil {
				return err
			}
		}
	}
	if o.json {
		if err := a.PrintJSON(res); err != nil {
			return err
		}
	} else {
		a.printCrash(res)
	}
	switch {
	case c != nil:
		return app.ErrFound
	case a.Stop.Load():
		return app.ErrStopped
	}
	return nil
}

func lossOf(rec *crash.Recording, c *crash.Counterexample) *crashLoss {
	return &crashLoss{Rule: c.Loss.Rule, Text: c.Loss.Text, State: c.State.String(), Timeline: rec.Timeline(c.State)}
}

func (a verbs) printCrash(res *crashResult) {
	f := res.Found
	if f == nil {
		fmt.Fprintln(a.Out, "nothing that was promised is lost")
		return
	}
	for _, l := range prose.Hang("LOST "+f.Rule+": ", "  ", f.Text, prose.Width) {
		fmt.Fprintln(a.Out, l)
	}
	for _, l := range f.Timeline {
		fmt.Fprintln(a.Out, l)
	}
	if f.Image != "" {
		fmt.Fprintf(a.Out, "saved: %s\nagain: %s\n", strings.TrimSuffix(f.Image+", "+f.Script, ", "), f.Replay)
	}
}

// saveCrash writes the image after the crash, with holes, and the script.
func (a verbs) saveCrash(o *crashFlags, f *crashLoss, rec *crash.Recording, s crash.State, image string) (err error) {
	f.Image, f.Script = o.save+".img", o.save+".ops"
	var b strings.Builder
	for _, op := range rec.Ops {
		fmt.Fprintln(&b, op.Text)
	}
	if o.job != "" { // its tasks meet in another order each time: the image has the state
		f.Script, f.Replay = "", "btrlab check "+f.Image
	}
	if f.Script != "" {
		if err := os.WriteFile(f.Script, []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	words := []string{"btrlab", "crash", "--script", f.Script, "--state", f.State}
	if o.policy != "locked" {
		words = append(words, "--policy", o.policy)
	}
	if o.wrong != "" {
		words = append(words, "--wrong", o.wrong)
	}
	if o.job == "" {
		f.Replay = strings.Join(append(words, image), " ")
	}
	dev, err := rec.Device(a.Task, s)
	if err != nil {
		return err
	}
	out, err := os.Create(f.Image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return writeImage(a.Task, out, dev)
}

// writeImage writes what is not zero on dev to a file.
func writeImage(t *sched.Task, out *os.File, dev blockdev.Device) error {
	if err := out.Truncate(dev.Size()); err != nil {
		return err
	}
	buf, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < dev.Size(); off += int64(len(buf)) {
		p := buf[:min(int64(len(buf)), dev.Size()-off)]
		if err := blockdev.Read(t, dev, p, off); err != nil {
			return err
		}
		if string(p) == string(zero[:len(p)]) {
			continue
		}
		if _, err := out.WriteAt(p, off); err != nil {
			return err
		}
	}
	return nil
}

package study

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/cli/app"
	"btrlab/internal/draw"
	"btrlab/internal/fs"
	"btrlab/internal/judge/crash"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/report"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/own"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// policyTestFlags is the command line of policy test.
type policyTestFlags struct {
	sf      searchFlags
	out     string
	seconds float64
	models  []string
	bounded int
	more    moreScenarios
}

// tested is what policy test finds, as it prints it with --json.
type tested struct {
	Policy   string               `json:"policy"`
	About    string               `json:"about"`
	Explored []scenario.Result    `json:"explored"`
	Crash    crashResult          `json:"crash"`
	Compared []*experiment.Result `json:"compared"`
	Page     string               `json:"page,omitempty"`
	Profile  string               `json:"profile,omitempty"`

	// LeftOut says what could not be tried because the policy does not get that far.
	LeftOut []string `json:"left_out,omitempty"`

	// Baseline is the scenarios of what is broken that policy locked breaks as well.
	Baseline []string `json:"baseline_breaks"`

	traces []*scenario.Trace // of what is broken, in the order of Explored
	limit  string            // of each search, in words
	which  string            // scenarios, in words
}

func (a verbs) policyTest() *cobra.Command {
	var o policyTestFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "explore, crash, measure and profile a policy of your own, and write a page about it",
		Long: fmt.Sprintf(`Test explores the policy in DIR in every scenario, with at most %d schedules of each unless you say otherwise; cuts the power in every
sequence of --bounded operations; and, in virtual time, runs seed 002's job under it and under every preset. It prints what the policy keeps,
what breaks it by which schedule, what it gains, and what its tasks wait for, and writes the same as a page with the steps of each schedule,
and a profile of the waits for go tool pprof.
The catalogue has the scenarios that somebody has thought of. --scenario adds one of your own, in a file as explore --print writes it, and
--random draws more by --seed: what needs other tasks than these is not tried, and the verdict says how much was.
Exit code 1 means that something is lost, or broken that locked keeps.`, scenario.CellSchedules),
		Example: `  btrlab policy new mine --from unlocked; btrlab policy test mine
  btrlab policy test mine --schedules 2000 --bounded 0
  btrlab policy test mine --scenario mine.scenario --random 100 --seed 7`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
	}
	f := cmd.Flags()
	o.sf.flags(cmd)
	o.more.flags(cmd)
	f.StringArrayVar(&o.more.files, "scenario", nil, "try the scenario in this file as well; may be repeated")
	f.StringVar(&o.out, "out", "", "the page (default: the policy's name with .html)")
	f.Float64Var(&o.seconds, "runtime-seconds", 0.5, "simulated seconds of each run of the comparison; 0 compares nothing")
	f.StringArrayVar(&o.models, "device-model", []string{"ssd-raid5"}, "latency model of the device; may be repeated")
	f.IntVar(&o.bounded, "bounded", 1, "cut the power in every sequence of so many operations, 1 or 2; 0 cuts nowhere")
	app.OutputFlag(cmd, "out")
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		x, err := own.Read(args[0])
		if err != nil {
			return app.Usagef(cmd, "%v", err)
		}
		if err := o.more.check(cmd); err != nil {
			return err
		}
		if o.out == "" {
			o.out = x.Name + ".html"
		}
		err = app.Check(cmd,
			app.Within(o.seconds, 0, app.MaxSeconds, "runtime-seconds %g, want 0 to %.0f"),
			app.Within(o.bounded, 0, 2, "bad --bounded, have %d want 0, 1 or 2"))
		if err != nil {
			return err
		}
		for _, m := range o.models {
			if err := app.ParseModel(cmd, m); err != nil {
				return err
			}
		}
		p, err := policy.Parse(x.Name)
		if err != nil {
			return err
		}
		r := &tested{Policy: p.Name, About: p.About}
		if err := a.testPolicy(cmd, &o, &p, r); err != nil {
			return err
		}
		if asJSON {
			err = a.PrintJSON(r)
		} else {
			err = a.printTested(r)
		}
		if err == nil && (r.broken() > len(r.Baseline) || r.Crash.Found != nil) {
			err = app.ErrFound
		}
		return err
	}
	return cmd
}

// broken is how many scenarios the policy breaks.
func (r *tested) broken() int { return len(r.traces) }

// testPolicy fills r.
func (a verbs) testPolicy(cmd *cobra.Command, o *policyTestFlags, p *policy.Policy, r *tested) error {
	if err := a.exploreOwnPolicy(cmd, o, p, r); err != nil {
		return err
	}
	if stuck := r.stuck(); o.bounded > 0 && stuck != "" { // a panic of a real task ends the program
		r.LeftOut = append(r.LeftOut, "no power was cut: a single task does not get through "+stuck)
	} else if o.bounded > 0 {
		if err := a.crashOwnPolicy(o, p, r); err != nil {
			return err
		}
	}
	if o.seconds > 0 {
		r.Profile = strings.TrimSuffix(o.out, ".html") + ".pprof"
		if err := a.measureOwnPolicy(o, r); err != nil && r.broken() == len(r.Baseline) {
			return err
		} else if err != nil { // of a policy that is broken anyhow
			r.Profile, r.Compared = "", nil
			r.LeftOut = append(r.LeftOut, "nothing was measured: "+app.OneLine(err))
		}
	}
	if err := a.Interrupted(); err != nil {
		return app.ErrNothing
	}
	r.Page = o.out
	page := report.Meta{Machine: a.doors.Machine, Title: "Policy " + r.Policy, Command: strings.Join(os.Args, " "), Before: r.html()}
	err := app.ReplaceFile(o.out, func(w io.Writer) error { return report.Write(w, page, r.Compared...) })
	if err != nil {
		return fmt.Errorf("%s: %w", o.out, err)
	}
	return nil
}

// exploreOwnPolicy explores every scenario that is about the policy.
func (a verbs) exploreOwnPolicy(cmd *cobra.Command, o *policyTestFlags, p *policy.Policy, r *tested) error {
	st := a.NewStatus()
	defer st.Done()
	s, err := a.searchOptions(cmd, &o.sf, false, st)
	if err != nil {
		return err
	}
	r.limit = o.sf.limitCells(&s)
	jobs := o.sf.cells(&s)
	progress := func(done, all int) { st.Search(fmt.Sprintf("%d/%d", min(done+1, all), all)) }
	if jobs > 1 {
		progress = st.Parallel(&s)
	}
	all, err := o.more.addTo(cmd, scenario.All(), o.sf.seed)
	if err != nil {
		return err
	}
	r.Explored, err = scenario.Matrix(all, []string{p.Name}, s, jobs, progress, nil)
	st.Done()
	if err != nil {
		return err
	}
	r.which = o.more.which(len(r.Explored)-len(all)+len(scenario.All()), o.sf.seed)
	for i := range r.Explored {
		x := &r.Explored[i]
		switch {
		case x.Stopped:
			return app.ErrNothing
		case x.Verdict != explore.Violated:
			continue
		}
		sc := all[slices.IndexFunc(all, func(sc *scenario.Scenario) bool { return sc.Name == x.Scenario })]
		tr, err := scenario.Replay(sc, p, x.Schedule, o.sf.own)
		if err != nil {
			return err
		}
		r.traces = append(r.traces, tr)
		base, err := scenario.Run(sc, policy.MustParse(baseline), s)
		if err != nil {
			return err
		}
		if base.Verdict == explore.Violated {
			r.Baseline = append(r.Baseline, x.Scenario)
		}
	}
	return nil
}

// baseline is the policy that others are held against.
const baseline = "locked"

// crashOwnPolicy cuts the power in every sequence of a bounded number of operations.
func (a verbs) crashOwnPolicy(o *policyTestFlags, p *policy.Policy, r *tested) error {
	dev := blockdev.NewMemory(256 << 20)
	if err := mkfs.Make(a.Task, dev, mkfs.Options{}); err != nil {
		return err
	}
	bar := a.NewBar("crash", true)
	sum, err := crash.RunBounded(a.Task, dev, crash.Options{FS: fs.Options{Policy: p}}, crash.Bounds{Length: o.bounded, Jobs: runtime.NumCPU(), Stop: a.Stop.Load,
		Progress: func(done int) { bar.Set(fmt.Sprintf("crash %d", done), uint64(done), 0) }})
	bar.Done()
	if err != nil {
		return err
	}
	r.Crash.Sequences, r.Crash.States = sum.Sequences, sum.States
	if sum.Found != nil {
		c, err := sum.Recording.Shrink(a.Task, sum.Found)
		if err != nil {
			return err
		}
		r.Crash.Found = lossOf(sum.Recording, c)
	}
	return nil
}

// stuck is the first scenario that ends in a panic, or with a task that waits for ever, without a
// preemption, and that the baseline keeps; empty if there is none.
func (r *tested) stuck() string {
	kinds := []explore.Kind{explore.KindPanic, explore.KindDeadlock, explore.KindGone, explore.KindLivelock}
	for _, tr := range r.traces {
		if tr.Schedule == "" && slices.Contains(kinds, tr.Kind) && !slices.Contains(r.Baseline, tr.Scenario) {
			return tr.Scenario
		}
	}
	return ""
}

// measureOwnPolicy is compareOwnPolicy for a policy that may panic: in virtual time a task's panic
// comes out of the run.
func (a verbs) measureOwnPolicy(o *policyTestFlags, r *tested) (err error) {
	defer func() {
		if p := recover(); p != nil {
			text, _, _ := strings.Cut(fmt.Sprint(p), "\n")
			err = errors.New(text)
		}
	}()
	return a.compareOwnPolicy(o, r)
}

// compareOwnPolicy runs seed 002's job under the policy and every preset in virtual time.
func (a verbs) compareOwnPolicy(o *policyTestFlags, r *tested) (err error) {
	flags := []string{"--runtime", "vtime", "--policy", strings.Join(append(own.Presets(), r.Policy), ","),
		"--runtime-seconds", fmt.Sprint(o.seconds), "--lockprofile", r.Profile}
	for _, m := range o.models {
		flags = append(flags, "--device-model", m)
	}
	r.Compared, err = a.doors.Compare(a.Run, flags)
	return err
}

// printTested prints what was found.
func (a verbs) printTested(r *tested) error {
	a.Say("", r.Policy+": "+r.About)
	fmt.Fprintln(a.Out)
	a.Say("explored: ", r.explored())
	for i, tr := range r.traces {
		fmt.Fprintln(a.Out)
		a.Say("broken: ", fmt.Sprintf("%s, by %s%s. %s", tr.Scenario, schedule(tr.Schedule), r.asBaseline(tr), brokenAt(tr)))
		fmt.Fprintln(a.Out, prose.Command("  ", r.brokenResult(i).Replay, a.Width()))
	}
	if r.Crash.States > 0 {
		fmt.Fprintln(a.Out)
		a.Say("power cut: ", r.cut())
	}
	for _, text := range r.LeftOut {
		fmt.Fprintln(a.Out)
		a.Say("left out: ", text)
	}
	for _, c := range r.Compared {
		fmt.Fprintln(a.Out)
		if err := c.WriteText(a.Out); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.Out)
	fmt.Fprintln(a.Out, "page: "+r.Page)
	if r.Profile != "" {
		fmt.Fprintln(a.Out, prose.Command("waits: ", "go tool pprof -top -tagfocus=policy="+prose.ShellWord(r.Policy)+" "+prose.ShellWord(r.Profile), a.Width()))
	}
	return nil
}

// brokenResult is the search of the i-th broken scenario.
func (r *tested) brokenResult(i int) *scenario.Result {
	for k := range r.Explored {
		if x := &r.Explored[k]; x.Verdict == explore.Violated {
			if i == 0 {
				return x
			}
			i--
		}
	}
	return nil
}

// asBaseline says that the baseline breaks the scenario as well.
func (r *tested) asBaseline(tr *scenario.Trace) string {
	if slices.Contains(r.Baseline, tr.Scenario) {
		return ", which " + baseline + " breaks, too"
	}
	return ""
}

func schedule(s string) string {
	if s == "" {
		return "the schedule without preemptions"
	}
	return "schedule " + s
}

// brokenAt says what a schedule breaks, and in which line of the policy.
func brokenAt(tr *scenario.Trace) string {
	text, _, _ := strings.Cut(tr.Violation.String(), "\n")
	if i := timeline.Culprit(tr); i >= 0 && i < len(tr.Steps) && strings.Contains(tr.Steps[i].Where, ":") {
		return text + "; at " + tr.Steps[i].Where + " of policy.go"
	}
	return text
}

// explored says in how many scenarios what was found.
func (r *tested) explored() string {
	return fmt.Sprintf("%s; %s.", tried(r.which, r.Explored, r.limit), r.brokenCount())
}

func (r *tested) brokenCount() string {
	s := brokenOf(r.Explored)
	if n := len(r.Baseline); n > 0 {
		s += fmt.Sprintf(", of which %s breaks %d as well", baseline, n)
	}
	return s
}

// cut says what the power cuts found.
func (r *tested) cut() string {
	s := fmt.Sprintf("%s, %s: ", prose.Count(r.Crash.Sequences, "sequence"), prose.Count(r.Crash.States, "crash state"))
	if f := r.Crash.Found; f != nil {
		return s + "LOST " + f.Rule + ": " + f.Text
	}
	return s + "nothing that was promised is lost."
}

// html is what the page says before the comparison.
func (r *tested) html() draw.HTML {
	var b draw.Writer
	b.Add("<section><p>%s</p>", r.About)
	b.Add("<h2>What it keeps</h2><p>%s</p>", r.explored())
	if r.Crash.States > 0 {
		b.Add("<p>Power cut: %s</p>", r.cut())
	}
	if f := r.Crash.Found; f != nil {
		b.Add("<pre>%s</pre>", strings.Join(f.Timeline, "\n"))
	}
	if r.broken() > 0 {
		b.Add("<h2>What breaks it</h2>")
	}
	for i, tr := range r.traces {
		var text strings.Builder
		if err := timeline.WriteText(&text, tr, timeline.Layout{Width: 110}); err != nil {
			text.WriteString(err.Error())
		}
		b.Add("<h3>%s</h3><p>%s</p><p>By %s%s: <code>%s</code></p>", tr.Scenario+": "+tr.About, brokenAt(tr), schedule(tr.Schedule), r.asBaseline(tr), r.brokenResult(i).Replay)
		b.Add(`<div class="wide"><pre>%s</pre></div>`, text.String())
	}
	b.Add("<details><summary>Every scenario</summary>")
	b.BeginTable("kept: every schedule; kept&lt;=B: every schedule with at most B preemptions; kept?N: N schedules", "scenario", "verdict", "schedules", "by")
	for i := range r.Explored {
		x := &r.Explored[i]
		b.Row(x.Scenario, x.Cell(), fmt.Sprint(x.Schedules), draw.Words(x.Method))
	}
	b.EndTable()
	b.Add("</details></section>")
	return b.HTML()
}

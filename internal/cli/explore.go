package cli

import (
	"encoding/json"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/prose"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// layoutFlags say how timelines are printed.
type layoutFlags struct {
	all   bool
	width int
}

func (l *layoutFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&l.all, "all-steps", false, "a line for every step, also for those that change nothing")
	cmd.Flags().IntVar(&l.width, "width", 0, "width of the timeline in characters (default: the terminal's, and 80 without one)")
}

func (a *app) layout(l *layoutFlags) timeline.Layout {
	w := l.width
	if w == 0 {
		w = a.width()
	}
	return timeline.Layout{Width: w, All: l.all}
}

// searchFlags bound and steer a search.
type searchFlags struct {
	method      string
	preemptions int
	schedules   int
	limit       time.Duration
	seed        uint64
	jobs        int
	shard       string
	own         bool

	part, parts int
	changed     func(name string) bool
}

// viewFlags change what of a scenario is a scheduling point and how deep it is judged; explore and replay must agree on them.
type viewFlags struct {
	classes []string
	deep    bool
}

func (v *viewFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&v.classes, "switch", nil, "lock classes that are switch points, or all (default: the scenario's)")
	cmd.Flags().BoolVar(&v.deep, "deep", false, "end every schedule with a sync, a look at the reservations and a reading from disk")
}

func (v *viewFlags) of(s *scenario.Scenario) *scenario.Scenario { return s.With(v.classes, v.deep) }

func (s *searchFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.method, "method", string(explore.Bound), "how to search: bound, dpor, state, naive, random, pct, pos or portfolio")
	f.IntVar(&s.preemptions, "preemptions", 0, "search schedules with at most so many preemptions (default: the scenario's bound; -1 is none at all)")
	f.IntVar(&s.schedules, "schedules", 0, "stop after so many schedules (default: no limit)")
	f.DurationVar(&s.limit, "time", 0, "stop after this time (default: no limit)")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the sampling methods")
	f.IntVar(&s.jobs, "jobs", 1, "executions at a time; 0 is one for every core")
	f.StringVar(&s.shard, "shard", "", "do part I of N of the search, as I/N with I from 0")
	f.BoolVar(&s.own, "own", false, "judge by what the policy promises, not by the scenario's rule")
	completeFixed(cmd, "method", []string{"bound", "dpor", "state", "naive", "random", "pct", "pos", "portfolio"})
	s.changed = f.Changed
}

func (s *searchFlags) options(cmd *cobra.Command) (scenario.Options, error) {
	o := scenario.Options{Own: s.own}
	switch explore.Method(s.method) {
	case explore.Bound, explore.DPOR, explore.State, explore.Naive, explore.Random, explore.PCT, explore.POS, explore.Portfolio:
	default:
		return o, usagef(cmd, "method %q, want bound, dpor, state, naive, random, pct, pos or portfolio", s.method)
	}
	if s.preemptions < -1 || s.schedules < 0 || s.limit < 0 || s.jobs < 0 {
		return o, usagef(cmd, "a limit below zero")
	}
	s.part, s.parts = 0, 1
	if s.shard != "" {
		var end string
		if n, _ := fmt.Sscanf(s.shard+" .", "%d/%d %s", &s.part, &s.parts, &end); n != 3 || end != "." || s.part < 0 || s.parts < 1 || s.part >= s.parts {
			return o, usagef(cmd, "--shard %q, want I/N with 0 <= I < N", s.shard)
		}
	}
	if s.jobs == 0 {
		s.jobs = goruntime.GOMAXPROCS(0)
	}
	o.Config = func(c *explore.Config) {
		c.Method, c.Seed, c.Jobs, c.Shard, c.Shards = explore.Method(s.method), s.seed, s.jobs, s.part, s.parts
		if s.changed("preemptions") {
			c.Preemptions = s.preemptions
		}
		if s.schedules > 0 {
			c.Schedules = s.schedules
		}
		if s.limit > 0 {
			c.Time = s.limit
		}
	}
	return o, nil
}

func (a *app) explore() *cobra.Command {
	var pols []string
	var all, list, asJSON bool
	var sf searchFlags
	var view viewFlags
	var lf layoutFlags
	cmd := &cobra.Command{
		Use:   "explore SCENARIO",
		Short: "run a scenario in every order of its steps and judge each",
		Long: `Explore runs the tasks of a scenario on the real write path, one step at a time, in every order that the bound
allows: first those without preemptions, then with one, and so on, so that the schedule of a violation has the fewest. It
says what was searched: "exhausted" means that no schedule is left, anything else names its limit. With --all it
prints the matrix of policies and scenarios. Memory is sequentially consistent.
Exit code 1 means that a contract was violated.`,
		Example: `  btrlab explore truncate-race --policy unlocked
  btrlab explore truncate-race --policy unlocked-drain
  btrlab explore two-writers-overlap --policy unlocked --own
  btrlab explore --all
  btrlab explore three-tasks --shard 3/16 --json > part-3.json; btrlab explore merge part-*.json`,
		Args: cobra.MaximumNArgs(1),
	}
	f := cmd.Flags()
	f.StringSliceVar(&pols, "policy", []string{"locked"}, "locking policy: "+strings.Join(policy.Names(), ", ")+", with +TOGGLE and !TOGGLE")
	f.BoolVar(&all, "all", false, "every scenario under every policy: the matrix")
	f.BoolVar(&list, "list", false, "list the scenarios")
	sf.flags(cmd)
	view.flags(cmd)
	lf.flags(cmd)
	jsonFlag(cmd, &asJSON)
	completeFixed(cmd, "policy", policy.Names())
	cmd.ValidArgsFunction = completeScenarios
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if list {
			return a.listScenarios()
		}
		if all != (len(args) == 0) {
			return usagef(cmd, "want a scenario, or --all")
		}
		if err := parsePolicies(cmd, pols); err != nil {
			return err
		}
		o, err := sf.options(cmd)
		if err != nil {
			return err
		}
		if all {
			if !f.Changed("policy") {
				pols = policy.Names()
			}
			return a.matrix(pols, o, &sf, &view, asJSON)
		}
		s, err := scenario.Lookup(args[0])
		if err != nil {
			return usagef(cmd, "%v", err)
		}
		s = view.of(s)
		found := false
		for i, name := range pols {
			p := policy.MustParse(name)
			r, err := scenario.Run(s, p, o)
			if err != nil {
				return err
			}
			found = found || r.Verdict == explore.Violated
			if asJSON {
				if err := a.printJSON(r); err != nil {
					return err
				}
				continue
			}
			if i > 0 {
				fmt.Fprintln(a.out)
			}
			if err := a.printExplored(s, p, &r, sf.own, a.layout(&lf)); err != nil {
				return err
			}
		}
		if found {
			return errFound
		}
		return nil
	}
	cmd.AddCommand(a.exploreMerge())
	return cmd
}

func (a *app) listScenarios() error {
	name := 0
	for _, s := range scenario.All() {
		name = max(name, len(s.Name))
	}
	for _, s := range scenario.All() {
		a.say(fmt.Sprintf("%-*s  ", name, s.Name), s.About)
	}
	return nil
}

// say prints text in lines of the output's width, the first behind a heading, the others indented as far.
func (a *app) say(heading, text string) {
	for _, l := range prose.Hang(heading, strings.Repeat(" ", utf8.RuneCountInString(heading)), text, a.width()) {
		fmt.Fprintln(a.out, l)
	}
}

func (a *app) printExplored(s *scenario.Scenario, p *policy.Policy, r *scenario.Result, own bool, lay timeline.Layout) error {
	if r.Verdict == explore.Violated {
		tr, err := scenario.Replay(s, p, r.Schedule, own)
		if err != nil {
			return err
		}
		if err := timeline.WriteText(a.out, tr, lay); err != nil {
			return err
		}
		fmt.Fprintln(a.out)
	}
	a.say("", fmt.Sprintf("%s, policy %s: %s", s.Name, p.Name, r.Bound))
	a.say("  judged: ", r.Rule)
	if r.Switch == "" {
		r.Switch = "every lock, wait, atomic and device transfer"
	}
	a.say("  switch points: ", r.Switch)
	a.say("  ", fmt.Sprintf("%s, %d of them cut off as repetitions, %s, %.3f s", prose.Count(r.Schedules, "schedule"), r.Cut, prose.Count(r.Steps, "step"), r.Seconds))
	if r.Replay != "" {
		fmt.Fprintln(a.out, prose.Command("  replay: ", r.Replay, a.width()))
	}
	return nil
}

// Default limits of a cell of the matrix.
const (
	matrixSchedules = 20_000
	matrixTime      = 5 * time.Second
)

func (a *app) matrix(pols []string, o scenario.Options, sf *searchFlags, view *viewFlags, asJSON bool) error {
	config := o.Config
	o.Config = func(c *explore.Config) {
		config(c)
		if sf.schedules == 0 {
			c.Schedules = matrixSchedules
		}
		if sf.limit == 0 {
			c.Time = matrixTime
		}
	}
	var all []*scenario.Scenario
	for _, s := range scenario.All() {
		all = append(all, view.of(s))
	}
	bar := a.newBar("explore", true)
	cells := uint64(len(all) * len(pols))
	n := uint64(0)
	results, err := scenario.Matrix(all, pols, o, func(r scenario.Result) {
		n++
		bar.set(r.Scenario+" "+r.Policy, n, cells)
	})
	bar.done()
	if err != nil {
		return err
	}
	if asJSON {
		err = a.printJSON(results)
	} else {
		err = scenario.WriteMatrix(a.out, results, pols)
	}
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Verdict == explore.Violated {
			return errFound
		}
	}
	return nil
}

func (a *app) exploreMerge() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "merge PART.json...",
		Short:   "join the results of the shards of one search",
		Long:    "Merge reads what explore --shard I/N --json wrote for each I and prints the result of the whole, as JSON. Exit code 1 means that a shard found a violation.",
		Example: "  btrlab explore merge part-*.json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var parts []scenario.Result
			for _, name := range args {
				b, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				var r scenario.Result
				if err := json.Unmarshal(b, &r); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				parts = append(parts, r)
			}
			r, err := scenario.Merge(parts)
			if err != nil {
				return err
			}
			if err := a.printJSON(r); err != nil {
				return err
			}
			if r.Verdict == explore.Violated {
				return errFound
			}
			return nil
		},
	}
	return cmd
}

func (a *app) replay() *cobra.Command {
	var pol, page string
	var asJSON, own bool
	var view viewFlags
	var lf layoutFlags
	cmd := &cobra.Command{
		Use:   "replay SCENARIO SCHEDULE",
		Short: "run one schedule of a scenario and show every step",
		Long: `Replay runs a schedule as explore prints it, step:task for each step that does not go on as by default, and prints a
table: a column for each task, the state of the file at the left. The empty schedule '' has no preemptions. With --out it
also writes the timeline as one HTML page: lanes, locks, waits, and the arrow keys go through the steps.
Exit code 1 means that the schedule violates the contract.`,
		Example: `  btrlab replay truncate-race 10:1 --policy unlocked
  btrlab replay truncate-race 10:1 --policy unlocked --out race.html
  btrlab replay truncate-race '' --policy modern`,
		Args: cobra.ExactArgs(2),
	}
	f := cmd.Flags()
	f.StringVar(&pol, "policy", "locked", "locking policy: "+strings.Join(policy.Names(), ", ")+", with +TOGGLE and !TOGGLE")
	f.BoolVar(&own, "own", false, "judge by what the policy promises, not by the scenario's rule")
	view.flags(cmd)
	lf.flags(cmd)
	f.StringVar(&page, "out", "", "also write the timeline to this file, as one HTML page")
	jsonFlag(cmd, &asJSON)
	completeFixed(cmd, "policy", policy.Names())
	cmd.ValidArgsFunction = completeScenarios
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := parsePolicies(cmd, []string{pol}); err != nil {
			return err
		}
		s, err := scenario.Lookup(args[0])
		if err != nil {
			return usagef(cmd, "%v", err)
		}
		tr, err := scenario.Replay(view.of(s), policy.MustParse(pol), args[1], own)
		if err != nil {
			return err
		}
		if tr.Kind == explore.KindMisfit {
			return fmt.Errorf("replay %s %s: %s", s.Name, args[1], tr.Message)
		}
		if asJSON {
			err = a.printJSON(tr)
		} else {
			err = timeline.WriteText(a.out, tr, a.layout(&lf))
		}
		if err == nil && page != "" {
			err = writeTimeline(page, tr)
		}
		if err == nil && tr.Kind != explore.OK {
			err = errFound
		}
		return err
	}
	return cmd
}

// writeTimeline writes the HTML page of tr to a file.
func writeTimeline(name string, tr *scenario.Trace) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := timeline.WriteHTML(f, tr); err != nil {
		f.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}

func (a *app) museum() *cobra.Command {
	var asJSON bool
	var sf searchFlags
	var lf layoutFlags
	cmd := &cobra.Command{
		Use:   "museum [NUMBER]",
		Short: "show bugs that the kernel had: the story, the schedule, and that the right order passes",
		Long: `Museum runs historic bugs of btrfs (numbers of kernel-semantics 9.2) on the real write path, each as its wrong order of
steps behind a named toggle, and then the right order. Without a number it lists what the explorer found for each.
Exit code 1 means that an exhibit did not prove itself.`,
		Example: "  btrlab museum\n  btrlab museum 23",
		Args:    cobra.MaximumNArgs(1),
	}
	sf.flags(cmd)
	lf.flags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := sf.options(cmd)
		if err != nil {
			return err
		}
		o.Own = false
		config := o.Config
		o.Config = func(c *explore.Config) {
			config(c)
			if sf.schedules == 0 {
				c.Schedules = matrixSchedules
			}
			if sf.limit == 0 {
				c.Time = matrixTime
			}
		}
		var shown []*scenario.Shown
		ok := true
		for i := range scenario.Museum {
			e := &scenario.Museum[i]
			if len(args) == 1 && args[0] != fmt.Sprint(e.Number) {
				continue
			}
			x, err := e.Show(o)
			if err != nil {
				return err
			}
			ok = ok && x.OK
			shown = append(shown, x)
		}
		switch {
		case len(shown) == 0:
			return usagef(cmd, "no exhibit %s, see btrlab museum", args[0])
		case asJSON:
			err = a.printJSON(shown)
		case len(args) == 1:
			err = timeline.WriteExhibit(a.out, shown[0], a.layout(&lf))
		default:
			for _, x := range shown {
				a.say(fmt.Sprintf("%3d  ", x.Number), fmt.Sprintf("%s (%s)", x.Title, x.Source))
				a.say("     wrong: ", fmt.Sprintf("%s, %s", x.Found.Bound, x.Found.Kind))
				a.say("     right: ", x.Proof.Bound)
				fmt.Fprintln(a.out, prose.Command("     ", x.Found.Replay, a.width()))
			}
		}
		if err == nil && !ok {
			err = errFound
		}
		return err
	}
	return cmd
}

func completeScenarios(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return scenario.Names(), cobra.ShellCompDirectiveNoFileComp
}

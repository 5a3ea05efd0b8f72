package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
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
	set         func(name string) bool // says that the user has given a flag
}

// sampled is how many schedules the sampling methods try where nobody gives a limit: they never end by themselves.
const sampled = 10_000

// viewFlags change what of a scenario is a scheduling point and how deep it is judged; explore and replay must agree on them.
type viewFlags struct {
	classes []string
	deep    bool
}

func (v *viewFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&v.classes, "switch", nil, "lock classes that are switch points, or all (default: the scenario's, which explore prints)")
	cmd.Flags().BoolVar(&v.deep, "deep", false, "end every schedule with a sync, a look at the reservations and a reading from disk")
}

func (v *viewFlags) of(cmd *cobra.Command, s *scenario.Scenario) (*scenario.Scenario, error) {
	s = s.With(v.classes, v.deep)
	if _, err := s.Config(); err != nil {
		return nil, usagef(cmd, "%v", err)
	}
	return s, nil
}

func (s *searchFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.method, "method", string(explore.Bound), "how to search: bound, dpor, state, naive, random, pct, pos or portfolio (default: bound, or what the scenario names)")
	f.IntVar(&s.preemptions, "preemptions", 0, "search schedules with at most so many preemptions, by method bound; -1 is no bound (default: the scenario's bound, if it has one)")
	f.IntVar(&s.schedules, "schedules", 0, fmt.Sprintf("stop after so many schedules (default: %d for random, pct, pos and portfolio, else no limit)", sampled))
	f.DurationVar(&s.limit, "time", 0, "stop after this time, as 30s or 5m (default: no limit)")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the sampling methods")
	f.IntVar(&s.jobs, "jobs", 1, "executions at a time; 0 is one for every core")
	f.BoolVar(&s.own, "own", false, "judge by what the policy promises, not by the scenario's rule")
	f.Lookup("method").DefValue = ""
	completeFixed(cmd, "method", []string{"bound", "dpor", "state", "naive", "random", "pct", "pos", "portfolio"})
	s.set = f.Changed
}

func (s *searchFlags) shardFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.shard, "shard", "", "do part I of N of the search, as I/N with I from 0; by method dpor if no other is named")
}

func (a *app) searchOptions(cmd *cobra.Command, s *searchFlags) (scenario.Options, error) {
	o := scenario.Options{Own: s.own}
	if s.shard != "" && !s.set("method") {
		s.method = string(explore.DPOR)
	}
	samples := false
	switch explore.Method(s.method) {
	case explore.Bound, explore.DPOR, explore.State, explore.Naive:
	case explore.Random, explore.PCT, explore.POS, explore.Portfolio:
		samples = true
	default:
		return o, usagef(cmd, "method %q, want bound, dpor, state, naive, random, pct, pos or portfolio", s.method)
	}
	if s.preemptions < -1 || s.schedules < 0 || s.limit < 0 || s.jobs < 0 {
		return o, usagef(cmd, "a limit below zero")
	}
	if s.set("preemptions") && s.method != string(explore.Bound) {
		return o, usagef(cmd, "--preemptions bounds method bound, not %s", s.method)
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
		if s.set("method") || s.set("preemptions") || s.shard != "" || c.Method == "" {
			c.Method = explore.Method(s.method)
		}
		c.Seed, c.Jobs, c.Shard, c.Shards = s.seed, s.jobs, s.part, s.parts
		c.Stop = a.stop.Load
		if s.set("preemptions") {
			switch c.Preemptions = s.preemptions; s.preemptions { // the explorer's zero value is no bound
			case 0:
				c.Preemptions = -1
			case -1:
				c.Preemptions = 0
			}
		}
		if c.Schedules = s.schedules; samples && s.schedules == 0 && s.limit == 0 {
			c.Schedules = sampled
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
says what was searched: "exhausted" means that no schedule is left, anything else names its limit. A task is switched at the
switch points of the scenario only, and memory is sequentially consistent. With --all it prints the matrix of policies and
scenarios.

The methods: bound goes by preemptions; dpor tries one of the schedules that differ in the order of independent steps only, and needs
the fewest; state tries equal states once; naive tries everything; random, pct, pos and portfolio sample, with --seed.

--shard divides the search among machines, and explore merge joins the parts. dpor divides the work. The other methods but the
sampling ones remember what they have seen, each part for itself, and repeat each other's work.

SIGINT or SIGTERM ends the search and prints what it has come to, exit code 130.
Exit code 1 means that a contract was violated.`,
		Example: `  btrlab explore truncate-race --policy unlocked
  btrlab explore truncate-race --policy unlocked-drain
  btrlab explore two-writers-overlap --policy unlocked --own
  btrlab explore --all
  btrlab explore two-writers-truncate --policy unlocked-drain --shard 3/16 --json > part-3.json; btrlab explore merge part-*.json`,
		Args: cobra.MaximumNArgs(1),
	}
	f := cmd.Flags()
	f.StringSliceVar(&pols, "policy", []string{"locked"}, "locking policy: "+strings.Join(policy.Names(), ", ")+", with +TOGGLE and !TOGGLE")
	f.BoolVar(&all, "all", false, fmt.Sprintf("every scenario under every policy: the matrix, with at most %d schedules a cell", matrixSchedules))
	f.BoolVar(&list, "list", false, "list the scenarios")
	sf.flags(cmd)
	sf.shardFlag(cmd)
	view.flags(cmd)
	lf.flags(cmd)
	jsonFlag(cmd, &asJSON)
	completeFixed(cmd, "policy", policy.Names())
	cmd.ValidArgsFunction = completeScenarios
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if list {
			return a.listScenarios(asJSON)
		}
		if all != (len(args) == 0) {
			return usagef(cmd, "want a scenario, or --all")
		}
		if err := parsePolicies(cmd, pols); err != nil {
			return err
		}
		o, err := a.searchOptions(cmd, &sf)
		if err != nil {
			return err
		}
		if all {
			if sf.shard != "" {
				return usagef(cmd, "--shard divides the search of one scenario, not --all")
			}
			if !f.Changed("policy") {
				pols = policy.Names()
			}
			return a.matrix(cmd, pols, o, &sf, &view, asJSON)
		}
		s, err := scenario.Lookup(args[0])
		if err != nil {
			return usagef(cmd, "%v", err)
		}
		if s, err = view.of(cmd, s); err != nil {
			return err
		}
		found := false
		for i, name := range pols {
			p := policy.MustParse(name)
			r, err := scenario.Run(s, p, o)
			if err != nil {
				return err
			}
			found = found || r.Verdict == explore.Violated
			if i > 0 && !asJSON {
				fmt.Fprintln(a.out)
			}
			if asJSON {
				err = a.printJSON(r)
			} else {
				err = a.printExplored(s, p, &r, &sf, a.layout(&lf))
			}
			if err != nil {
				return err
			}
			if r.Stopped {
				return errStopped
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

func (a *app) listScenarios(asJSON bool) error {
	if asJSON {
		type listed struct {
			Name        string   `json:"name"`
			About       string   `json:"about"`
			Tasks       []string `json:"tasks"`
			Switch      []string `json:"switch"`
			Preemptions int      `json:"preemptions"` // 0: no bound
		}
		var l []listed
		for _, s := range scenario.All() {
			x := listed{Name: s.Name, About: s.About, Switch: s.Switch, Preemptions: s.Preemptions}
			for _, t := range s.Tasks {
				x.Tasks = append(x.Tasks, t.Name)
			}
			l = append(l, x)
		}
		return a.printJSON(l)
	}
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

// hint says what ended a search that the user gave no end.
func (s *searchFlags) hint(sc *scenario.Scenario, r *scenario.Result) string {
	switch {
	case r.Verdict != explore.Bounded || r.Stopped || s.schedules > 0 || s.limit > 0:
	case r.Preemptions < 0 && r.Schedules == sampled:
		return fmt.Sprintf("the sampling methods', %d schedules; --schedules N is another", sampled)
	case sc.Preemptions > 0 && !s.set("preemptions"):
		return fmt.Sprintf("the scenario's, %s; --preemptions N is another, -1 none, which may take minutes", prose.Count(sc.Preemptions, "preemption"))
	}
	return ""
}

func (a *app) printExplored(s *scenario.Scenario, p *policy.Policy, r *scenario.Result, sf *searchFlags, lay timeline.Layout) error {
	if r.Verdict == explore.Violated {
		tr, err := scenario.Replay(s, p, r.Schedule, sf.own)
		if err != nil {
			return err
		}
		if err := timeline.WriteText(a.out, tr, lay); err != nil {
			return err
		}
		fmt.Fprintln(a.out)
	}
	a.say("", fmt.Sprintf("%s, policy %s: %s", s.Name, p.Name, r.Bound))
	if hint := sf.hint(s, r); hint != "" {
		a.say("  limit: ", hint)
	}
	rule := r.Rule
	if r.Own {
		rule += ", as the policy promises"
	}
	a.say("  judged: ", rule)
	at := r.Switch.String()
	if at == "" {
		at = "every lock, wait, atomic and device transfer"
	}
	a.say("  switch points: ", at)
	a.say("  ", fmt.Sprintf("%s by %s, %d cut off as repetitions, %s, %.3f s", prose.Count(r.Schedules, "schedule"), r.Method, r.Cut, prose.Count(r.Steps, "step"), r.Seconds))
	if r.Replay != "" {
		fmt.Fprintln(a.out, prose.Command("  replay: ", r.Replay, a.width()))
	}
	return nil
}

// matrixSchedules ends the search of a cell of the matrix, and of an exhibit. It is a count, so that the matrix is the same on every machine.
const matrixSchedules = 100_000

// limitCells gives the searches of many a limit where the user gives none, and says what it is.
func (s *searchFlags) limitCells(o *scenario.Options) string {
	config := o.Config
	o.Config = func(c *explore.Config) {
		if config(c); c.Schedules == 0 && c.Time == 0 {
			c.Schedules = matrixSchedules
		}
	}
	var c explore.Config
	o.Config(&c)
	var l []string
	if c.Schedules > 0 {
		l = append(l, prose.Count(c.Schedules, "schedule"))
	}
	if c.Time > 0 {
		l = append(l, fmt.Sprintf("%v of this machine", c.Time))
	}
	return strings.Join(l, " and ")
}

func (a *app) matrix(cmd *cobra.Command, pols []string, o scenario.Options, sf *searchFlags, view *viewFlags, asJSON bool) error {
	limit := sf.limitCells(&o)
	var all []*scenario.Scenario
	for _, s := range scenario.All() {
		s, err := view.of(cmd, s)
		if err != nil {
			return err
		}
		all = append(all, s)
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
		err = scenario.WriteMatrix(a.out, results, pols, limit)
	}
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Stopped {
			return errStopped
		}
		if r.Verdict == explore.Violated {
			err = errFound
		}
	}
	return err
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
				err = json.Unmarshal(b, &r)
				if err == nil && r.Scenario == "" {
					err = errors.New("no scenario in it")
				}
				if err != nil {
					return usagef(cmd, "%s is no result of explore --shard I/N --json: %v", name, err)
				}
				parts = append(parts, r)
			}
			r, err := scenario.Merge(parts)
			if err != nil {
				return usagef(cmd, "%v", err)
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
also writes the timeline as one HTML page: lanes, locks, waits, and the arrow keys go through the steps. A schedule is of one
policy: under another the steps are others.
Exit code 1 means that the schedule violates the contract.`,
		Example: `  btrlab replay truncate-race 11:1 --policy unlocked
  btrlab replay truncate-race 11:1 --policy unlocked --out race.html
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
		if s, err = view.of(cmd, s); err != nil {
			return err
		}
		tr, err := scenario.Replay(s, policy.MustParse(pol), args[1], own)
		if err != nil {
			return err
		}
		if tr.Kind == explore.KindMisfit {
			return usagef(cmd, "%s under %s: %s", s.Name, pol, tr.Violation)
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
		Long: fmt.Sprintf(`Museum runs historic bugs of btrfs (numbers of kernel-semantics 9.2; from 31 on, data races that are ours) on the real write
path, each as its wrong order of steps behind a named toggle, and then the right order. Without a number it lists what the explorer found for each. It tries at most
%d schedules of each order unless you say otherwise.
Exit code 1 means that an exhibit did not prove itself.`, matrixSchedules),
		Example: "  btrlab museum\n  btrlab museum 23",
		Args:    cobra.MaximumNArgs(1),
	}
	sf.flags(cmd)
	lf.flags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := a.searchOptions(cmd, &sf)
		if err != nil {
			return err
		}
		o.Own = false
		limit := sf.limitCells(&o)
		var shown []*scenario.Shown
		ok, stopped := true, false
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
			if stopped = x.Found.Stopped || x.Proof.Stopped; stopped {
				break
			}
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
				a.say("     right: ", x.Proof.Bound.String())
				if x.Found.Replay != "" {
					fmt.Fprintln(a.out, prose.Command("     ", x.Found.Replay, a.width()))
				}
			}
			a.say("", "searched: at most "+limit+" for each order")
		}
		switch {
		case err != nil:
		case stopped:
			err = errStopped
		case !ok:
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

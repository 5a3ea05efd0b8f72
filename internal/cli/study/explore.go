package study

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/judge/park"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// exploring is the verb explore, with its flags.
type exploring struct {
	verbs
	cmd                      *cobra.Command
	policies                 []string
	all, list, print, asJSON bool
	file, confirm            string
	more                     moreScenarios
	sf                       searchFlags
	view                     viewFlags
	lf                       app.LayoutFlags
}

func (a verbs) explore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explore SCENARIO",
		Short: "run a scenario in every order of its steps and judge each",
		Long: `Explore runs the tasks of a scenario on the real write path, one step at a time, in every order that the bound allows. It
begins with the orders without preemptions, goes on with one preemption, and so on; therefore the schedule of a violation
has as few as possible. It says what it has searched: "exhausted" means that no schedule is left, and everything else names
the limit. Tasks are switched at the switch points of the scenario only, and memory is sequentially consistent. With --all it
prints the matrix of policies and scenarios.

Many scenarios bound the preemptions. If nothing is violated up to the bound, dpor tries the orders that are left, in the
scenarios that it is known to exhaust.

The methods: bound counts preemptions. dpor tries one of all schedules that differ only in the order of independent steps,
and needs the fewest. state tries equal states once; it takes two states for equal when dependent steps led there in the same
order, because it does not see all data that the write path keeps under locks. naive tries every schedule. random, pct, pos and
portfolio sample, with --seed.

--shard divides the search, or with --all the matrix, among machines. Each writes a file; btrlab merge joins them, and its exit code
tells what was found. The same command goes on where a shard was stopped. dpor, which divides a search if no other method is named,
divides the work. The other methods that do not sample remember what they have seen; each part remembers for itself, so the parts
repeat some of each other's work.

A search of more than two seconds prints on standard error how far it is, with an estimate of what remains. The estimate is
mostly within a factor of two; at a tenth of the work it may be ten times too high or too low.

--scenario reads a scenario of your own from a file. A scenario is data: a file, tasks with operations, the lock classes at
which tasks are switched, and the rule. --print prints one of the catalogue as such a file, to begin with. --random draws
scenarios by --seed, explores each and says how much was tried; random-SEED-NUMBER is the name of one.

--confirm VERSION boots a kernel that make fetch has fetched and leads it through the schedule of the violation: does Linux do the
same?

SIGINT or SIGTERM ends the search; it prints what it has found so far and exits with code 130.
Exit code 1 means that a contract was violated.`,
		Example: `  btrlab explore truncate-race --policy unlocked
  btrlab explore truncate-race --policy unlocked-drain
  btrlab explore two-writers-overlap --policy unlocked --own
  btrlab explore --all
  btrlab explore three-truncate --print > mine.scenario; btrlab explore --scenario mine.scenario
  btrlab explore --random 20 --seed 7 --schedules 500
  btrlab explore two-writers-truncate --policy unlocked-drain --shard 3/16 --out part-3.json
  btrlab explore --all --preemptions 3 --shard 3/64 --out matrix-3.json`,
		Args: cobra.MaximumNArgs(1),
	}
	v := &exploring{verbs: a, cmd: cmd}
	v.flags()
	cmd.ValidArgsFunction = completeScenarios
	cmd.RunE = func(_ *cobra.Command, args []string) error { return v.run(args) }
	app.ProfileFlags(a.Run, cmd, false)
	return cmd
}

func (v *exploring) flags() {
	f := v.cmd.Flags()
	f.StringSliceVar(&v.policies, "policy", []string{"locked"}, app.PolicyUsage())
	f.BoolVar(&v.all, "all", false, fmt.Sprintf("every scenario under every policy: the matrix, with at most %d schedules a cell, and --jobs cells at a time (default: one for every core)", scenario.CellSchedules))
	f.BoolVar(&v.list, "list", false, "list the scenarios")
	f.StringVar(&v.file, "scenario", "", "explore the scenario in this file")
	f.StringVar(&v.confirm, "confirm", "", "lead this kernel through the schedule that is found, as replay --kernel does: a version or a folder")
	f.BoolVar(&v.print, "print", false, "print the scenario as a file for --scenario, and explore nothing")
	v.more.flags(v.cmd)
	v.sf.flags(v.cmd)
	v.sf.shard.Flags(v.cmd, "the search, or with --all of the matrix")
	v.view.flags(v.cmd)
	v.lf.Flags(v.cmd)
	app.JSONFlag(v.cmd, &v.asJSON)
	app.CompletePolicies(v.cmd, "policy")
}

// check says what is wrong with the flags.
func (v *exploring) check(args []string) error {
	if err := v.more.check(v.cmd); err != nil {
		return err
	}
	ways := len(args)
	for _, on := range []bool{v.all, v.file != "", v.more.random > 0} {
		if on {
			ways++
		}
	}
	err := app.Check(v.cmd,
		app.Not(ways != 1, "want one of: a scenario, --scenario FILE, --random N, --all"),
		app.Excludes("print", "all random", "--print prints one scenario, want its name or its file"),
		app.Excludes("confirm", "all random shard print", "--confirm leads a kernel through the schedule that one search finds"),
		app.Not(v.confirm != "" && len(v.policies) > 1, "--confirm leads a kernel through one schedule, want one policy"),
		app.Excludes("shard", "random print", "--shard divides the search of a scenario, or --all"),
		app.Excludes("shard", "time", "--time does not go with --shard: a signal stops a shard, and the same command goes on"))
	if err == nil {
		err = app.Check(v.cmd, v.sf.shard.Rules()...)
	}
	if err != nil {
		return err
	}
	return app.ParsePolicies(v.cmd, v.policies)
}

func (v *exploring) run(args []string) error {
	if v.list {
		return v.listScenarios(v.asJSON)
	}
	if err := v.check(args); err != nil {
		return err
	}
	st := v.NewStatus()
	defer st.Done()
	o, err := v.searchOptions(v.cmd, &v.sf, v.sf.shard.On() && !v.all, st)
	switch {
	case err != nil:
		return err
	case v.more.random > 0:
		return v.exploreRandom(v.cmd, &v.more, v.policies, o, &v.sf, &v.view, st, v.asJSON)
	case v.all:
		if !v.cmd.Flags().Changed("policy") {
			v.policies = policy.Names()
		}
		return v.matrix(v.cmd, v.policies, o, &v.sf, &v.view, st, v.asJSON)
	}
	s, err := oneScenario(v.cmd, v.file, args)
	if err != nil {
		return err
	}
	if v.print {
		_, err := io.WriteString(v.Out, s.Text())
		return err
	}
	if s, err = v.view.of(v.cmd, s); err != nil {
		return err
	}
	if v.sf.shard.On() {
		return v.shardOfSearch(s, o)
	}
	return v.search(s, o, st)
}

// search explores s under each policy, and ends where a search was stopped.
func (v *exploring) search(s *scenario.Scenario, o scenario.Options, st *app.Status) error {
	found := false
	for i, name := range v.policies {
		p := policy.MustParse(name)
		if len(v.policies) > 1 {
			st.Search(name)
		}
		r, err := scenario.Run(s, p, o)
		st.Done()
		if err != nil {
			return err
		}
		found = found || r.Verdict == explore.Violated
		if i > 0 && !v.asJSON {
			fmt.Fprintln(v.Out)
		}
		switch confirms := v.confirm != "" && r.Verdict == explore.Violated && !r.Stopped; {
		case v.asJSON && confirms:
			err = v.printConfirmed(s, p, r)
		case v.asJSON:
			err = v.PrintJSON(r)
		default:
			err = v.printExplored(s, p, &r, &v.sf, v.Layout(&v.lf))
		}
		if err != nil {
			return err
		}
		if r.Stopped {
			return app.ErrStopped
		}
		if v.confirm != "" && r.Verdict == explore.Violated && !v.asJSON {
			if _, err := v.replayLed(v.confirm, false, s, p, r.Schedule, v.asJSON); err != nil {
				return err
			}
		}
	}
	if found {
		return app.ErrFound
	}
	return nil
}

// printConfirmed prints a result with what the kernel of --confirm does in its schedule, as one
// document.
func (v *exploring) printConfirmed(s *scenario.Scenario, p *policy.Policy, r scenario.Result) error {
	x, err := v.verbs.confirm(v.confirm, s, p, r.Schedule)
	return errors.Join(err, v.PrintJSON(struct {
		scenario.Result
		Confirmed *park.Replayed `json:"confirmed"`
	}{r, x}))
}

func (a verbs) listScenarios(asJSON bool) error {
	if asJSON {
		type listed struct {
			Name        string   `json:"name"`
			About       string   `json:"about"`
			Group       string   `json:"group"`
			Tasks       []string `json:"tasks"`
			Switch      []string `json:"switch"`
			Preemptions int      `json:"preemptions"` // 0: no bound
		}
		var l []listed
		for _, s := range scenario.All() {
			g, _ := s.Group()
			x := listed{Name: s.Name, About: s.About, Group: g.Name, Switch: s.Switch, Preemptions: s.Preemptions}
			for _, t := range s.Tasks {
				x.Tasks = append(x.Tasks, t.Name)
			}
			l = append(l, x)
		}
		return a.PrintJSON(l)
	}
	name := 0
	for _, s := range scenario.All() {
		name = max(name, len(s.Name))
	}
	by := scenario.Grouped()
	for i, g := range scenario.Groups {
		if i > 0 {
			fmt.Fprintln(a.Out)
		}
		a.Say("", g.Name+": "+g.About)
		for _, s := range by[g.Name] {
			a.Say(fmt.Sprintf("  %-*s  ", name, s.Name), s.About)
		}
	}
	return nil
}

func (a verbs) printExplored(s *scenario.Scenario, p *policy.Policy, r *scenario.Result, sf *searchFlags, lay timeline.Layout) error {
	if r.Verdict == explore.Violated {
		tr, err := scenario.Replay(s, p, r.Schedule, sf.own)
		if err != nil {
			return err
		}
		if err := timeline.WriteText(a.Out, tr, lay); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
	}
	a.printResult(r, sf.hint(s, r))
	return nil
}

// printResult prints the lines of a search, with a hint after the first, and how to replay what it
// has found.
func (a verbs) printResult(r *scenario.Result, hint string) {
	for i, l := range r.Lines() {
		head := l.Head
		if head != "" {
			head += ": "
		}
		if i > 0 {
			head = "  " + head
		}
		a.Say(head, l.Text)
		if i == 0 && hint != "" {
			a.Say("  limit: ", hint)
		}
	}
	if r.Replay != "" {
		fmt.Fprintln(a.Out, prose.Command("  replay: ", r.Replay, a.Width()))
	}
}

func (a verbs) matrix(cmd *cobra.Command, pols []string, o scenario.Options, sf *searchFlags, view *viewFlags, st *app.Status, asJSON bool) error {
	limit := sf.limitCells(&o)
	var all []*scenario.Scenario
	var names []string
	for _, s := range scenario.All() {
		s, err := view.of(cmd, s)
		if err != nil {
			return err
		}
		all, names = append(all, s), append(names, s.Name)
	}
	jobs := sf.cells(&o)
	if sf.shard.On() {
		return a.shardOfMatrix(cmd, sf, view, all, pols, o, limit, jobs)
	}
	progress := func(done, all int) { st.Search(fmt.Sprintf("%d/%d", min(done+1, all), all)) }
	if jobs > 1 {
		progress = st.Parallel(&o)
	}
	var row func(string, []scenario.Result)
	var table *scenario.Table
	if !asJSON { // a row is printed once it has ended: all of them take hours
		var err error
		if table, err = scenario.NewTable(a.Out, names, pols, nil); err != nil {
			return err
		}
		row = func(s string, results []scenario.Result) {
			st.Done()
			if err := table.Row(s, results); err != nil {
				a.End() // nobody reads any more; the end of the table says why
			}
		}
	}
	results, err := scenario.Matrix(all, pols, o, jobs, progress, row)
	st.Done()
	if err != nil {
		return err
	}
	if asJSON {
		err = a.PrintJSON(results)
	} else {
		err = table.End(results, limit)
	}
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Stopped {
			return app.ErrStopped
		}
		if r.Verdict == explore.Violated {
			err = app.ErrFound
		}
	}
	return err
}

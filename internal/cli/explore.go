package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

func (a *app) explore() *cobra.Command {
	var pols []string
	var all, list, print, asJSON bool
	var file string
	var more moreScenarios
	var sf searchFlags
	var view viewFlags
	var lf layoutFlags
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

--shard divides the search among machines, and explore merge joins the parts. dpor divides the work. The other methods that
do not sample remember what they have seen; each part remembers for itself, so the parts repeat some of each other's work.

A search of more than two seconds prints on standard error how far it is, with an estimate of what remains. The estimate is
mostly within a factor of two; at a tenth of the work it may be ten times too high or too low.

--scenario reads a scenario of your own from a file. A scenario is data: a file, tasks with operations, the lock classes at
which tasks are switched, and the rule. --print prints one of the catalogue as such a file, to begin with. --random draws
scenarios by --seed, explores each and says how much was tried; random-SEED-NUMBER is the name of one.

SIGINT or SIGTERM ends the search; it prints what it has found so far and exits with code 130.
Exit code 1 means that a contract was violated.`,
		Example: `  btrlab explore truncate-race --policy unlocked
  btrlab explore truncate-race --policy unlocked-drain
  btrlab explore two-writers-overlap --policy unlocked --own
  btrlab explore --all
  btrlab explore three-truncate --print > mine.scenario; btrlab explore --scenario mine.scenario
  btrlab explore --random 20 --seed 7 --schedules 500
  btrlab explore two-writers-truncate --policy unlocked-drain --shard 3/16 --json > part-3.json; btrlab explore merge part-*.json`,
		Args: cobra.MaximumNArgs(1),
	}
	f := cmd.Flags()
	f.StringSliceVar(&pols, "policy", []string{"locked"}, policyUsage())
	f.BoolVar(&all, "all", false, fmt.Sprintf("every scenario under every policy: the matrix, with at most %d schedules a cell, and --jobs cells at a time (default: one for every core)", scenario.CellSchedules))
	f.BoolVar(&list, "list", false, "list the scenarios")
	f.StringVar(&file, "scenario", "", "explore the scenario in this file")
	f.BoolVar(&print, "print", false, "print the scenario as a file for --scenario, and explore nothing")
	more.flags(cmd)
	sf.flags(cmd)
	sf.shardFlag(cmd)
	view.flags(cmd)
	lf.flags(cmd)
	jsonFlag(cmd, &asJSON)
	completePolicies(cmd, "policy")
	cmd.ValidArgsFunction = completeScenarios
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if list {
			return a.listScenarios(asJSON)
		}
		if err := more.check(cmd); err != nil {
			return err
		}
		ways := len(args)
		for _, on := range []bool{all, file != "", more.random > 0} {
			if on {
				ways++
			}
		}
		switch {
		case ways != 1:
			return usagef(cmd, "want one of: a scenario, --scenario FILE, --random N, --all")
		case print && (all || more.random > 0):
			return usagef(cmd, "--print prints one scenario, want its name or its file")
		}
		if err := parsePolicies(cmd, pols); err != nil {
			return err
		}
		st := a.newStatus()
		defer st.done()
		o, err := a.searchOptions(cmd, &sf, st)
		if err != nil {
			return err
		}
		if (all || more.random > 0) && sf.shard != "" {
			return usagef(cmd, "--shard divides the search of one scenario, not --all nor --random")
		}
		if more.random > 0 {
			return a.exploreRandom(cmd, &more, pols, o, &sf, &view, st, asJSON)
		}
		if all {
			if !f.Changed("policy") {
				pols = policy.Names()
			}
			return a.matrix(cmd, pols, o, &sf, &view, st, asJSON)
		}
		s, err := oneScenario(cmd, file, args)
		if err != nil {
			return err
		}
		if print {
			_, err := io.WriteString(a.out, s.Text())
			return err
		}
		if s, err = view.of(cmd, s); err != nil {
			return err
		}
		found := false
		for i, name := range pols {
			p := policy.MustParse(name)
			if len(pols) > 1 {
				st.search(name)
			}
			r, err := scenario.Run(s, p, o)
			st.done()
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
	cmd.AddCommand(a.merge())
	return cmd
}

func (a *app) listScenarios(asJSON bool) error {
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
		return a.printJSON(l)
	}
	name := 0
	for _, s := range scenario.All() {
		name = max(name, len(s.Name))
	}
	by := scenario.Grouped()
	for i, g := range scenario.Groups {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		a.say("", g.Name+": "+g.About)
		for _, s := range by[g.Name] {
			a.say(fmt.Sprintf("  %-*s  ", name, s.Name), s.About)
		}
	}
	return nil
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
	for i, l := range r.Lines() {
		head := l.Head
		if head != "" {
			head += ": "
		}
		if i > 0 {
			head = "  " + head
		}
		a.say(head, l.Text)
		if hint := sf.hint(s, r); i == 0 && hint != "" {
			a.say("  limit: ", hint)
		}
	}
	if r.Replay != "" {
		fmt.Fprintln(a.out, prose.Command("  replay: ", r.Replay, a.width()))
	}
	return nil
}

func (a *app) matrix(cmd *cobra.Command, pols []string, o scenario.Options, sf *searchFlags, view *viewFlags, st *status, asJSON bool) error {
	limit := sf.limitCells(&o)
	var all []*scenario.Scenario
	for _, s := range scenario.All() {
		s, err := view.of(cmd, s)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	jobs := sf.cells(&o)
	progress := func(done, all int) { st.search(fmt.Sprintf("%d/%d", min(done+1, all), all)) }
	if jobs > 1 {
		progress = st.several(&o)
	}
	results, err := scenario.Matrix(all, pols, o, jobs, progress)
	st.done()
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

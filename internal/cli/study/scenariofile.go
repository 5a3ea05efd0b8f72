package study

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// maxRandom is the most scenarios that are drawn at a time.
const maxRandom = 100_000

// oneScenario is the scenario of the command line: that of a file, or the one that args names.
func oneScenario(cmd *cobra.Command, file string, args []string) (*scenario.Scenario, error) {
	if file != "" {
		return readScenario(cmd, file)
	}
	s, err := scenario.Lookup(args[0])
	if err != nil {
		return nil, app.Usagef(cmd, "%v", err)
	}
	return s, nil
}

// readScenario reads a scenario from a file.
func readScenario(cmd *cobra.Command, file string) (*scenario.Scenario, error) {
	s, err := scenario.ReadFile(file)
	var bad *scenario.TextError
	if errors.As(err, &bad) {
		return nil, app.Usagef(cmd, "%v", err)
	}
	return s, err
}

// moreScenarios are scenarios of one's own, beside those of the table.
type moreScenarios struct {
	files  []string
	random int
}

func (m *moreScenarios) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&m.random, "random", 0, "try so many scenarios that are drawn by --seed, of three tasks and three or four operations")
}

// check says what is wrong with the flags.
func (m *moreScenarios) check(cmd *cobra.Command) error {
	return app.Check(cmd, app.Within(m.random, 1, maxRandom, "bad --random, have %d want 1 to %d").If(cmd.Flags().Changed("random")))
}

// addTo adds the scenarios to l, whose names are others.
func (m *moreScenarios) addTo(cmd *cobra.Command, l []*scenario.Scenario, seed uint64) ([]*scenario.Scenario, error) {
	all := append([]*scenario.Scenario{}, l...)
	have := map[string]string{}
	for _, s := range all {
		have[s.Name] = "of the catalogue"
	}
	for _, file := range m.files {
		s, err := readScenario(cmd, file)
		if err != nil {
			return nil, err
		}
		if of := have[s.Name]; of != "" {
			return nil, app.Usagef(cmd, "%s: have the name %s, which is that of a scenario %s, want another one (name NAME)", file, s.Name, of)
		}
		have[s.Name] = "in " + file
		all = append(all, s)
	}
	return append(all, scenario.Random(seed, m.random)...), nil
}

// which says what scenarios those are, where the table has so many.
func (m *moreScenarios) which(table int, seed uint64) string {
	var l []string
	if table > 0 {
		l = append(l, prose.Count(table, "scenario")+" of the catalogue")
	}
	if n := len(m.files); n > 0 {
		l = append(l, prose.Count(n, "scenario")+" of your own")
	}
	if m.random > 0 {
		l = append(l, fmt.Sprintf("%s drawn by seed %d", prose.Count(m.random, "scenario"), seed))
	}
	return prose.List(l)
}

// exploreRandom explores drawn scenarios under policies, and prints what was tried and what is
// broken.
func (a verbs) exploreRandom(cmd *cobra.Command, more *moreScenarios, pols []string, o scenario.Options, sf *searchFlags, view *viewFlags, st *app.Status, asJSON bool) error {
	limit := sf.limitCells(&o)
	drawn, err := more.addTo(cmd, nil, sf.seed)
	if err != nil {
		return err
	}
	for i := range drawn {
		if drawn[i], err = view.of(cmd, drawn[i]); err != nil {
			return err
		}
	}
	jobs := sf.cells(&o)
	progress := func(done, all int) { st.Search(fmt.Sprintf("%d/%d", min(done+1, all), all)) }
	if jobs > 1 {
		progress = st.Parallel(&o)
	}
	results, err := scenario.Matrix(drawn, pols, o, jobs, progress, nil)
	st.Done()
	if err != nil {
		return err
	}
	if asJSON {
		if err := a.PrintJSON(results); err != nil {
			return err
		}
	}
	for k, name := range pols {
		var l []scenario.Result
		for i := range results {
			if results[i].Policy == name {
				l = append(l, results[i])
			}
		}
		if asJSON {
			continue
		}
		if k > 0 {
			fmt.Fprintln(a.Out)
		}
		a.Say("", fmt.Sprintf("policy %s: %s; %s.", name, tried(more.which(0, sf.seed), l, limit), brokenOf(l)))
		for i := range l {
			if r := &l[i]; r.Verdict == explore.Violated {
				s, err := scenario.Lookup(r.Scenario)
				if err != nil {
					return err
				}
				a.Say("broken: ", s.Name+", "+s.About)
				fmt.Fprintln(a.Out, prose.Command("  ", r.Replay, a.Width()))
			}
		}
	}
	found := false
	for i := range results {
		if results[i].Stopped {
			return app.ErrStopped
		}
		found = found || results[i].Verdict == explore.Violated
	}
	if found {
		return app.ErrFound
	}
	return nil
}

// tried says how much was tried: which scenarios, by how many schedules, within which bounds.
func tried(which string, results []scenario.Result, limit string) string {
	var exhausted, bounded, limited, schedules, spurious, most int
	for i := range results {
		r := &results[i]
		schedules += r.Schedules
		spurious += r.Spurious
		switch {
		case r.Verdict == explore.Exhausted:
			exhausted++
		case r.Verdict == explore.Violated:
		case r.Preemptions >= 0:
			bounded++
			most = max(most, r.Preemptions)
		default:
			limited++
		}
	}
	upTo := "a number of preemptions"
	if bounded > 0 {
		upTo = fmt.Sprintf("a number of preemptions (%d at most)", most)
	}
	more := ""
	if spurious > 0 {
		more = fmt.Sprintf(" and %d with spurious wake-ups", spurious)
	}
	return fmt.Sprintf("%s, %s%s, at most %s of each; nothing was tried beyond these scenarios. %d are kept in every schedule, %d up to %s, %d up to a number of schedules",
		which, prose.Count(schedules, "schedule"), more, limit, exhausted, bounded, upTo, limited)
}

// brokenOf says how many are broken.
func brokenOf(results []scenario.Result) string {
	n := 0
	for i := range results {
		if results[i].Verdict == explore.Violated {
			n++
		}
	}
	switch n {
	case 0:
		return "none is broken"
	case 1:
		return "1 is broken"
	}
	return fmt.Sprintf("%d are broken", n)
}

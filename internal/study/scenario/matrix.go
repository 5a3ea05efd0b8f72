package scenario

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
)

// CellSchedules ends the search of a cell of the matrix, and of an exhibit. It is a count, so that
// the matrix is the same on every machine.
const CellSchedules = 100_000

// Cell is a result in a few characters: "kept" when exhausted, "kept<=2" when all schedules with
// two preemptions were searched, "kept?n" when n schedules were, or "broken".
func (r *Result) Cell() string {
	switch {
	case r.Verdict == explore.Exhausted:
		return "kept"
	case r.Verdict == explore.Violated && r.Kind != explore.KindOracle:
		return "broken: " + string(r.Kind)
	case r.Verdict == explore.Violated:
		return "broken"
	case r.Preemptions >= 0:
		return fmt.Sprintf("kept<=%d", r.Preemptions)
	}
	return fmt.Sprintf("kept?%d", r.Schedules)
}

// Table prints results as a table of scenarios and policies, row by row.
type Table struct {
	w        io.Writer
	policies []string
	name     int // width of the first column
	width    []int
	printed  map[string]bool // by scenario
}

// cellWidth is that of a column whose cells are not known yet: a wider cell moves the others of its
// row.
const cellWidth = len("kept<=2")

// NewTable prints the head of a table. A policy's name goes over several lines, cut after a hyphen
// or before a toggle, so that the table stays narrow. The columns have room for known.
func NewTable(w io.Writer, scenarios, policies []string, known []Result) (*Table, error) {
	t := &Table{w: w, policies: policies, name: len("scenario"), printed: map[string]bool{}}
	for _, s := range scenarios {
		t.name = max(t.name, len(s))
	}
	heads := make([][]string, len(policies))
	high := 0
	for i, p := range policies {
		heads[i] = strings.Split(strings.NewReplacer("-", "-\n", "+", "\n+", "!", "\n!").Replace(p), "\n")
		high = max(high, len(heads[i]))
		width := 0
		for _, h := range heads[i] {
			width = max(width, len(h))
		}
		for k := range known {
			if known[k].Policy == p {
				width = max(width, len(known[k].Cell()))
			}
		}
		if known == nil {
			width = max(width, cellWidth)
		}
		t.width = append(t.width, width)
	}
	var err error
	for k := range high {
		first := ""
		if k == high-1 {
			first = "scenario"
		}
		err = errors.Join(err, t.line(first, func(i int) string {
			if at := k - (high - len(heads[i])); at >= 0 {
				return heads[i][at]
			}
			return ""
		}))
	}
	return t, err
}

func (t *Table) line(first string, cells func(i int) string) error {
	l := fmt.Sprintf("%-*s", t.name, first)
	for i := range t.policies {
		l += fmt.Sprintf("  %-*s", t.width[i], cells(i))
	}
	_, err := fmt.Fprintln(t.w, strings.TrimRight(l, " "))
	return err
}

// Row prints the results of a scenario.
func (t *Table) Row(scenario string, results []Result) error {
	t.printed[scenario] = true
	return t.line(scenario, func(i int) string {
		for k := range results {
			if r := &results[k]; r.Scenario == scenario && r.Policy == t.policies[i] {
				return r.Cell()
			}
		}
		return "-"
	})
}

// End prints the rows that are not whole, where the searches were stopped, what the cells mean, how
// many there are of each kind, and the schedules of what is broken. limit is that of each search.
func (t *Table) End(results []Result, limit string) error {
	for i := range results {
		if s := results[i].Scenario; !t.printed[s] {
			if err := t.Row(s, results); err != nil {
				return err
			}
		}
	}
	var b strings.Builder
	b.WriteString("\n" + prose.Wrap("kept: every schedule; kept<=B: every schedule with at most B preemptions; kept?N: N schedules, none level complete; "+
		"broken: the contract is violated, by the schedule below.\n"+
		"Schedules switch at the scenario's switch points only. Judged is "+judged(results)+".\n"+
		"Searched: at most "+limit+" in a cell, and what the scenario bounds the preemptions to.", prose.Width) + "\n")
	b.WriteString(counts(results) + "\n")
	for i := range results {
		if r := &results[i]; r.Verdict == explore.Violated {
			b.WriteString(prose.Command("  ", r.Replay, prose.Width) + "\n")
		}
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

// WriteMatrix prints results that are there as a table, with its end.
func WriteMatrix(w io.Writer, results []Result, policies []string, limit string) error {
	var rows []string
	for i := range results {
		if r := &results[i]; !slices.Contains(rows, r.Scenario) {
			rows = append(rows, r.Scenario)
		}
	}
	t, err := NewTable(w, rows, policies, results)
	for _, s := range rows {
		err = errors.Join(err, t.Row(s, results))
	}
	return errors.Join(err, t.End(results, limit))
}

// counts says how many of the cells are what.
func counts(results []Result) string {
	var n struct{ exhausted, bounded, limit, broken int }
	for i := range results {
		switch r := &results[i]; {
		case r.Verdict == explore.Exhausted:
			n.exhausted++
		case r.Verdict == explore.Violated:
			n.broken++
		case r.Preemptions >= 0:
			n.bounded++
		default:
			n.limit++
		}
	}
	return prose.Wrap(fmt.Sprintf("Of %d cells %d are exhausted, %d are searched up to a number of preemptions, %d up to a number of schedules, and %d are broken.",
		len(results), n.exhausted, n.bounded, n.limit, n.broken), prose.Width)
}

// judged says by what the results were judged.
func judged(results []Result) string {
	for i := range results {
		if results[i].Own {
			return "what each policy promises, which is less for some"
		}
	}
	return "the scenario's rule, the same for all, not what a policy promises (--own)"
}

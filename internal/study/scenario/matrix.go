package scenario

import (
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

// WriteMatrix prints results as a table of scenarios and policies, and under it the schedules of
// what is broken. limit is that of each search, in words.
func WriteMatrix(w io.Writer, results []Result, policies []string, limit string) error {
	var rows []string
	cell := map[[2]string]*Result{}
	name := len("scenario")
	for i := range results {
		r := &results[i]
		if !slices.Contains(rows, r.Scenario) {
			rows = append(rows, r.Scenario)
			name = max(name, len(r.Scenario))
		}
		cell[[2]string{r.Scenario, r.Policy}] = r
	}
	text := func(s, p string) string {
		if r := cell[[2]string{s, p}]; r != nil {
			return r.Cell()
		}
		return "-"
	}
	// A policy's name goes over several lines, cut after a hyphen or before a toggle, so that the
	// table stays narrow.
	heads := make([][]string, len(policies))
	width := make([]int, len(policies))
	high := 0
	for i, p := range policies {
		heads[i] = strings.Split(strings.NewReplacer("-", "-\n", "+", "\n+", "!", "\n!").Replace(p), "\n")
		high = max(high, len(heads[i]))
		for _, h := range heads[i] {
			width[i] = max(width[i], len(h))
		}
		for _, s := range rows {
			width[i] = max(width[i], len(text(s, p)))
		}
	}
	var b strings.Builder
	line := func(first string, cells func(i int) string) {
		l := fmt.Sprintf("%-*s", name, first)
		for i := range policies {
			l += fmt.Sprintf("  %-*s", width[i], cells(i))
		}
		b.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	for k := range high {
		first := ""
		if k == high-1 {
			first = "scenario"
		}
		line(first, func(i int) string {
			if at := k - (high - len(heads[i])); at >= 0 {
				return heads[i][at]
			}
			return ""
		})
	}
	for _, s := range rows {
		line(s, func(i int) string { return text(s, policies[i]) })
	}
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
	_, err := io.WriteString(w, b.String())
	return err
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

package scenario

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"btrlab/internal/sched/explore"
)

// Cell is a result in a few characters: "kept" when exhausted, "kept<=2" when all schedules with two preemptions were
// searched, "kept?n" when n schedules were, or "broken".
func (r *Result) Cell() string {
	switch {
	case r.Verdict == explore.Exhausted:
		return "kept"
	case r.Verdict == explore.Violated && r.Kind != explore.KindOracle:
		return "broken: " + string(r.Kind)
	case r.Verdict == explore.Violated:
		return "broken"
	case r.Preemptions >= 0:
		return fmt.Sprintf("kept <=%d", r.Preemptions)
	}
	return fmt.Sprintf("kept ?%d", r.Schedules)
}

// WriteMatrix prints results as a table of scenarios and policies, and under it the schedules of what is broken.
func WriteMatrix(w io.Writer, results []Result, policies []string) error {
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
	width := make([]int, len(policies))
	text := func(s, p string) string {
		if r := cell[[2]string{s, p}]; r != nil {
			return r.Cell()
		}
		return "-"
	}
	for i, p := range policies {
		width[i] = len(p)
		for _, s := range rows {
			width[i] = max(width[i], len(text(s, p)))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s", name, "scenario")
	for i, p := range policies {
		fmt.Fprintf(&b, "  %-*s", width[i], p)
	}
	b.WriteByte('\n')
	for _, s := range rows {
		fmt.Fprintf(&b, "%-*s", name, s)
		for i, p := range policies {
			fmt.Fprintf(&b, "  %-*s", width[i], text(s, p))
		}
		b.WriteByte('\n')
	}
	b.WriteString("\nkept: every schedule; kept <=B: every schedule with at most B preemptions; kept ?N: N schedules, none level complete;\nbroken: the contract is violated, by the schedule below\n")
	for i := range results {
		if r := &results[i]; r.Verdict == explore.Violated {
			fmt.Fprintf(&b, "  %s\n", r.Replay)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

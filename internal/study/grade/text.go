package grade

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteText prints the report as a table; under it what is wrong, each with its schedule, and the first one's steps.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "lab %02d, %s: %s\n\n", r.Lab, r.Title, r.Dir)
	name := len("workload")
	for _, x := range r.Rows {
		name = max(name, len(x.Name))
	}
	fmt.Fprintf(&b, "%-*s  %-6s %7s  %s\n%s\n", name, "workload", "", "points", "result", strings.Repeat("-", 100))
	for _, x := range r.Rows {
		verdict := "FAILED"
		if x.Pass {
			verdict = "ok"
		}
		first, rest, _ := strings.Cut(x.Result, "\n")
		fmt.Fprintf(&b, "%-*s  %-6s %3g/%3g  %s\n", name, x.Name, verdict, x.Score, x.Max, first)
		for _, l := range strings.Split(rest, "\n") {
			if l != "" {
				fmt.Fprintf(&b, "%*s  %s\n", name+17, "", l)
			}
		}
	}
	fmt.Fprintf(&b, "%-*s  %-6s %3g/%3g\n", name, "sum", "", r.Score, r.Max)
	for _, x := range r.Rows {
		if x.Pass {
			continue
		}
		fmt.Fprintf(&b, "\n%s: %s\n  %s\n", x.Name, x.Asks, strings.ReplaceAll(x.Result, "\n", "\n  "))
		if x.Replay != "" {
			if x.Violated {
				fmt.Fprintf(&b, "  shortest schedule: %q\n", x.Schedule)
			}
			fmt.Fprintf(&b, "  replay: %s\n", x.Replay)
		}
		if x.Trace != "" {
			fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(x.Trace, "\n"))
		}
	}
	if len(r.Prediction) > 0 {
		fmt.Fprintf(&b, "\nyour predictions\n")
		for i, p := range r.Prediction {
			verdict := "as it is"
			if p.Said != p.Right {
				verdict = "it is " + p.Right
			}
			fmt.Fprintf(&b, "  %d. %s\n     you said %s: %s. %s\n", i+1, p.Ask, p.Said, verdict, p.Why)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// gradescope is results.json of a Gradescope autograder.
type gradescope struct {
	Score  float64          `json:"score"`
	Output string           `json:"output"`
	Format string           `json:"output_format"`
	Tests  []gradescopeTest `json:"tests"`
}

type gradescopeTest struct {
	Name     string  `json:"name"`
	Score    float64 `json:"score"`
	MaxScore float64 `json:"max_score"`
	Status   string  `json:"status"`
	Output   string  `json:"output"`
	Format   string  `json:"output_format"`
}

// WriteGradescope writes the report as Gradescope's results.json.
func (r *Report) WriteGradescope(w io.Writer) error {
	g := gradescope{Score: r.Score, Output: fmt.Sprintf("lab %02d, %s", r.Lab, r.Title), Format: "text"}
	for _, x := range r.Rows {
		t := gradescopeTest{Name: x.Name + ": " + x.Asks, Score: x.Score, MaxScore: x.Max, Status: "failed", Output: x.Result, Format: "text"}
		if x.Pass {
			t.Status = "passed"
		}
		if x.Replay != "" {
			t.Output += "\nreplay: " + x.Replay
		}
		if x.Trace != "" {
			t.Output += "\n\n" + x.Trace
		}
		g.Tests = append(g.Tests, t)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(g)
}

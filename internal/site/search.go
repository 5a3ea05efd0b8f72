package site

import (
	"fmt"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// Search describes a search to explore.
type Search struct {
	Scenario string `json:"scenario"`
	Policy   string `json:"policy"`
	// Preemptions bounds the search; 0 is the scenario's bound, -1 none.
	Preemptions int `json:"preemptions"`
	// Method is one of Catalog.Methods; empty is the scenario's. A bound of preemptions is for
	// method bound alone.
	Method explore.Method `json:"method"`
}

// Found is the outcome of a search.
type Found struct {
	Policy    string          `json:"policy"`
	Verdict   explore.Verdict `json:"verdict"`
	Schedules int             `json:"schedules"`
	Cut       int             `json:"cut"`
	Stopped   bool            `json:"stopped"`
	Seconds   float64         `json:"seconds"`
	Lines     []scenario.Line `json:"lines"`
	// Schedule violates the rule, with as few preemptions as possible; Replay is the command that
	// shows it.
	Schedule string `json:"schedule"`
	Replay   string `json:"replay"`
	Violated string `json:"violated"`
}

func foundOf(r *scenario.Result) Found {
	f := Found{Policy: r.Policy, Verdict: r.Verdict, Schedules: r.Schedules, Cut: r.Cut, Stopped: r.Stopped, Seconds: r.Seconds, Lines: r.Lines(), Schedule: r.Schedule, Replay: r.Replay}
	if r.Verdict == explore.Violated {
		f.Violated = r.Violation.Violated()
	}
	return f
}

// explore searches a scenario under a policy.
func (d *Desk) explore(a Search) (*Found, error) {
	p := Place{Scenario: a.Scenario, Policy: a.Policy}
	s, pol, err := p.find()
	if err != nil {
		return nil, err
	}
	var o scenario.Options
	d.search(&o, func(c *explore.Config) {
		switch {
		case a.Preemptions != 0:
			// the explorer's zero value is no bound
			c.Method, c.Preemptions = explore.Bound, max(a.Preemptions, 0)
		case a.Method != "":
			c.Method = a.Method
		}
	})
	r, err := scenario.Run(s, pol, o)
	if err != nil {
		return nil, err
	}
	f := foundOf(&r)
	return &f, nil
}

// Exhibited is an exhibit of the museum after both of its searches.
type Exhibited struct {
	Number int `json:"number"`
	// the wrong order breaks, in the way that the story says, and the right one does not
	OK    bool  `json:"ok"`
	Wrong Found `json:"wrong"`
	Right Found `json:"right"`
	// Timeline is the page of the schedule that shows the bug.
	Timeline string `json:"timeline"`
}

// exhibit runs an exhibit: first the wrong order, then the right one.
func (d *Desk) exhibit(a struct{ Number int }) (*Exhibited, error) {
	for i := range scenario.Museum {
		e := &scenario.Museum[i]
		if e.Number != a.Number {
			continue
		}
		var o scenario.Options
		d.search(&o, func(c *explore.Config) { c.Schedules = scenario.CellSchedules })
		x, err := e.Show(o)
		if err != nil {
			return nil, err
		}
		r := &Exhibited{Number: e.Number, OK: x.OK, Wrong: foundOf(&x.Found), Right: foundOf(&x.Proof)}
		if x.Trace != nil {
			r.Timeline, err = drawn(x.Trace)
		}
		return r, err
	}
	return nil, fmt.Errorf("bad exhibit, have %d want a number of the museum", a.Number)
}

package site

import (
	"fmt"
	"time"

	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/levels"
)

// Proved is the outcome of a search of a program that the visitor has written.
type Proved struct {
	Rule    string          `json:"rule"`
	Verdict explore.Verdict `json:"verdict"`
	Says    string          `json:"says"`
	Stopped bool            `json:"stopped"`
	Seconds float64         `json:"seconds"`
	// Schedule violates the rule, with as few preemptions as possible, and Violated says how.
	Schedule string `json:"schedule"`
	Violated string `json:"violated"`
}

// program searches a program in the language of levels.Parse.
func (d *Desk) program(a struct{ Program string }) (*Proved, error) {
	l, err := levels.Parse(a.Program)
	if err != nil {
		return nil, err
	}
	d.stop.Store(false)
	d.yielded = time.Now()
	c := l.Config()
	d.watch(&c)
	r := explore.Run(c, l.Program())
	p := &Proved{Rule: l.Rule(), Verdict: r.Verdict, Says: fmt.Sprintf("%s; %s tried", r.Bound, prose.Count(r.Schedules, "schedule")), Stopped: r.Stopped, Seconds: r.Seconds, Schedule: r.Schedule}
	if r.Verdict == explore.Violated {
		p.Violated = r.Violation.Violated()
	}
	return p, nil
}

package judges

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
)

// Schedules is lab 1: schedules that break a policy, and policies that no schedule breaks.
type Schedules struct{}

// About says what the lab is.
func (Schedules) About() *About {
	return &About{N: 1, Folder: "01-be-the-scheduler", Title: "Be the scheduler", Minutes: 60, Blind: "answers are schedules and policies", File: "schedules.txt", Try: "replay"}
}

// Workloads are its tasks.
func (Schedules) Workloads() (rows []Workload) {
	for i := range lab1 {
		k := &lab1[i]
		rows = append(rows, Workload{name: k.name, asks: k.asks, points: k.points,
			answer: func(ctx context.Context, answer string, tell func(sandbox.Progress), r *grade.Row) error {
				return k.judge(ctx, answer, r, tell)
			}})
	}
	return rows
}

// task1 is one task of lab 1.
type task1 struct {
	name     string
	asks     string
	points   float64
	scenario string
	policy   string
	// most preemptions that the schedule may have; -1 is any number.
	most int
	// also, if it is set, is asked of the execution besides; but says what is missing where it is
	// not so. The shortest schedules, which explore prints, and with it README and museum, do not
	// have it.
	also func(tr *scenario.Trace) bool
	but  string
	// late: no later preemption alone may violate the rule.
	late bool
	// keeps: the answer is a policy under which the explorer exhausts the scenario, not a schedule.
	keeps bool
}

var lab1 = []task1{
	{name: "lose-the-truncate", asks: "two writes and a truncate that returns before both of them, and gets lost", points: 20, scenario: "two-writers-truncate", policy: "unlocked", most: -1,
		also: truncateFirst, but: "a write has returned before the truncate"},
	{name: "lose-it-late", asks: "a truncate that gets lost with one preemption, at the last step at which that is possible", points: 15, scenario: "truncate-race", policy: "unlocked", most: 1, late: true},
	{name: "beyond-the-end", asks: "a truncate that begins, as late as it can, when a part of the write is in the page cache, and bytes beyond the new end", points: 15, scenario: "long-write-truncate", policy: "unlocked", most: 1, late: true,
		also: dirtyAtTruncate, but: "nothing of the write is in the page cache when the truncate begins"},
	{name: "mix-two-writes", asks: "two writes to one range of which writer B's begins first, and some bytes of each at the end", points: 20, scenario: "two-writers-same", policy: "unlocked", most: -1,
		also: secondFirst, but: "writer A's write begins first"},
	{name: "mix-them-drained", asks: "the same under unlocked-drain, with one preemption: the fix of the truncate does not help here", points: 10, scenario: "two-writers-same", policy: "unlocked-drain", most: 1,
		also: secondFirst, but: "writer A's write begins first"},
	{name: "keep-the-truncate", asks: "a policy without i_rwsem around the copy loop that keeps every truncate", points: 10, scenario: "truncate-race", keeps: true},
	{name: "keep-the-writes", asks: "a policy without i_rwsem around the copy loop that does not mix writes", points: 10, scenario: "two-writers-same", keeps: true},
}

func (k *task1) judge(ctx context.Context, answer string, r *grade.Row, progress func(sandbox.Progress)) error {
	s := must(k.scenario)
	if k.keeps {
		return k.judgePolicy(ctx, s, answer, r, progress)
	}
	tr, err := scenario.Replay(s, policy.MustParse(k.policy), answer, false)
	if err != nil {
		r.Result = err.Error()
		return nil
	}
	if tr.Kind != explore.KindMisfit {
		r.Schedule, r.Replay = answer, tr.Replay
	}
	switch {
	case tr.Kind == explore.KindMisfit:
		r.Result = misfit(tr.Violation)
	case tr.Kind == explore.OK:
		r.Result = "nothing is violated by this schedule"
	case tr.Kind != explore.KindOracle:
		r.Result = fmt.Sprintf("not what is asked for (%s): %s", tr.Kind, line(tr.Violation))
	case k.most >= 0 && tr.Preemptions > k.most:
		r.Result = fmt.Sprintf("found, with %s, want at most %d", prose.Count(tr.Preemptions, "preemption"), k.most)
	case k.also != nil && !k.also(tr):
		r.Result = "found, but " + k.but
	case k.late && k.later(s, tr):
		r.Result = fmt.Sprintf("found, with %s; a later one alone does it, too", prose.Count(tr.Preemptions, "preemption"))
	default:
		r.Pass, r.Result = true, "found, with "+prose.Count(tr.Preemptions, "preemption")
	}
	return nil
}

// later reports whether one preemption alone, later than the last one of tr, violates the rule as
// well.
func (k *task1) later(s *scenario.Scenario, tr *scenario.Trace) bool {
	last := 0
	for i, st := range tr.Steps {
		if st.Preempts {
			last = i
		}
	}
	// An execution with one preemption at a step is as long as the default one up to that step.
	plain, err := scenario.Replay(s, policy.MustParse(k.policy), "", false)
	if err != nil {
		return false
	}
	for step := last + 1; step < len(plain.Steps); step++ {
		for task := range plain.Own {
			x, err := scenario.Replay(s, policy.MustParse(k.policy), fmt.Sprintf("%d:%d", step, task), false)
			if err == nil && x.Kind == explore.KindOracle && x.Preemptions == 1 {
				return true
			}
		}
	}
	return false
}

// noted is the step of tr at which operation id begins or returns, and the number of steps if it
// does not.
func noted(tr *scenario.Trace, e scenario.Event, id oracle.ID) int {
	at := slices.IndexFunc(tr.Steps, func(s scenario.TraceStep) bool {
		return slices.ContainsFunc(s.Notes, func(n scenario.Note) bool { return n.Event == e && n.Op == id })
	})
	if at < 0 {
		return len(tr.Steps)
	}
	return at
}

// truncateFirst: operation 3, the truncate, returns before the two writes.
func truncateFirst(tr *scenario.Trace) bool {
	at := noted(tr, scenario.Returns, 3)
	return at < noted(tr, scenario.Returns, 1) && at < noted(tr, scenario.Returns, 2)
}

// dirtyAtTruncate: when operation 2, the truncate, begins, a page is dirty, and only the write
// makes pages dirty.
func dirtyAtTruncate(tr *scenario.Trace) bool {
	at, pages := noted(tr, scenario.Begins, 2), slices.Index(tr.Columns, "pages")
	return at < len(tr.Steps) && pages >= 0 && strings.Contains(tr.Steps[at].State[pages], "D")
}

// secondFirst: operation 2 begins before operation 1.
func secondFirst(tr *scenario.Trace) bool {
	return noted(tr, scenario.Begins, 2) < noted(tr, scenario.Begins, 1)
}

// line is the report of a violation, without what explains it.
func line(v explore.Violation) string {
	v.More, v.At, v.Sides = "", nil, nil
	return v.String()
}

// misfit says why a schedule cannot be followed. A step whose task cannot run is no sentence about
// the schedule yet.
func misfit(v explore.Violation) string {
	if v.Lead != "" {
		return "does not fit: " + v.Line()
	}
	return v.Line()
}

func (k *task1) judgePolicy(ctx context.Context, s *scenario.Scenario, answer string, r *grade.Row, progress func(sandbox.Progress)) error {
	p, err := policy.Parse(answer)
	if err != nil {
		r.Result = err.Error()
		return nil
	}
	// A write inside the file: the lock for everything is no answer, whatever else the policy has.
	if l := policy.ForWrite(policy.Facts{End: 1, ISize: 1}, &p).Lock; l == policy.LockInode || l == policy.LockBoth {
		r.Result = fmt.Sprintf("%s keeps i_rwsem for the whole write, as locked does", answer)
		return nil
	}
	x, err := scenario.Run(s, &p, scenario.Options{Config: func(c *explore.Config) {
		c.Schedules, c.Progress, c.Stop = maxSchedules, sandbox.Of(k.name, progress), func() bool { return ctx.Err() != nil }
	}})
	if err != nil {
		return err
	}
	r.Schedules, r.Switch = x.Schedules, x.Switch
	switch x.Verdict {
	case explore.Exhausted:
		r.Pass, r.Result = true, fmt.Sprintf("%s under %s: %s", s.Name, answer, bound(x.Bound))
	case explore.Bounded:
		r.Result = fmt.Sprintf("%s under %s: %s: that is no proof", s.Name, answer, bound(x.Bound))
	default:
		r.Violated = true
		r.Result, r.Schedule, r.Replay = fmt.Sprintf("%s is violated under %s: %s", s.Name, answer, strings.TrimSuffix(line(x.Violation), ":")), x.Schedule, x.Replay
	}
	return nil
}

package judges

import (
	"cmp"
	"strings"
	"sync/atomic"

	"btrlab/internal/iopath"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
)

// The bounds of the search of one workload. They are numbers, not times, so that a grade is the
// same everywhere.
const (
	maxPreemptions = 2      // of the first pass, which finds the shortest schedule
	maxSchedules   = 40_000 // of each pass
)

// search is explore and, for a violation, the words and the steps of one execution more: a search
// keeps neither.
func (w *Workload) search(j *judging, r *grade.Row) error {
	if err := w.explore(j, r); err != nil {
		return err
	}
	at, where := w, ""
	if !r.Violated {
		f, err := w.searchFar(j, r)
		if err != nil || f == nil {
			return err
		}
		at, where = &f.Workload, ", "+f.place.String()
	}
	x := *r
	if err := at.runOne(r.Schedule, &x); err != nil {
		return err
	}
	if !x.Pass && !x.Misfit { // else the code does not do the same again
		r.Kind, r.Result, r.Trace = x.Kind, x.Result, x.Trace
	}
	r.Result += where
	return nil
}

// task is a task of a scenario.
func task(name string, ops ...scenario.Op) scenario.Task { return scenario.Task{Name: name, Ops: ops} }

// searched is the workload of a scenario of its own.
func searched(name, asks string, points float64, pol string, limit int, s scenario.Scenario) Workload {
	s.Name, s.About, s.Deep = name, asks, true
	return Workload{name: name, asks: asks, points: points, policy: pol, limit: limit, scenario: &s}
}

// with puts a student's functions into the workloads.
func with(lab iopath.Lab, l []Workload) []Workload {
	for i := range l {
		l[i].lab = lab
	}
	return l
}

// pol is the policy that the workload runs under.
func (w *Workload) pol() *policy.Policy {
	p := policy.MustParse(w.policy)
	if w.order != nil {
		w.order(p)
	}
	return p
}

// prog is the program that is explored, and how far.
func (w *Workload) prog() (c explore.Config, prog func(w *explore.World), err error) {
	c, p := explore.Config{MaxSteps: 5_000}, w.program
	if w.scenario != nil {
		if c, err = w.scenario.Config(); err != nil {
			return c, nil, err
		}
		if p, err = w.scenario.WithLab(w.lab).Program(w.pol(), false); err != nil {
			return c, nil, err
		}
	}
	c.Schedules = cmp.Or(w.limit, maxSchedules)
	return c, func(x *explore.World) { sandbox.Again(); p(x) }, nil
}

// explore searches the workload and fills the row: first by number of preemptions, so that a
// violation comes with its shortest schedule, then with partial-order reduction, which comes to an
// end where the first cannot.
func (w *Workload) explore(j *judging, r *grade.Row) error {
	cfg, prog, err := w.prog()
	if err != nil {
		return err
	}
	if j.Schedules > 0 {
		cfg.Schedules = min(cfg.Schedules, j.Schedules)
	}
	var asleep atomic.Bool
	cfg.Asleep = &asleep
	cfg.Preemptions, cfg.Progress = maxPreemptions, sandbox.Of(w.name, j.Progress)
	first := explore.Run(cfg, prog)
	r.Schedules, r.Result, r.Switch = first.Schedules, bound(first.Bound), first.Switch
	x := first
	if x.Verdict == explore.Bounded && !w.quick {
		cfg.Method, cfg.Preemptions = explore.DPOR, 0
		x = explore.Run(cfg, prog)
		r.Schedules, r.Result = x.Schedules, bound(x.Bound)
		if x.Verdict == explore.Bounded {
			r.Schedules, r.Result = first.Schedules+x.Schedules, bound(first.Bound)+"; "+bound(x.Bound)
		}
	}
	if w.spurious && asleep.Load() && x.Verdict != explore.Violated && !x.Stopped {
		cfg.Method, cfg.Preemptions, cfg.Spurious = explore.Bound, 0, 1
		before := x.Verdict == explore.Exhausted
		x = explore.Run(cfg, prog)
		r.Schedules += x.Schedules
		r.Result += "; with a spurious wake-up of each task that waits in a Cond: " + bound(x.Bound)
		if x.Verdict == explore.Exhausted && !before {
			x.Verdict = explore.Bounded // what has none was not
		}
	}
	r.Pass, r.Exhausted = x.Verdict != explore.Violated, x.Verdict == explore.Exhausted
	if !r.Pass {
		r.Schedule = x.Schedule
		enterViolation(r, w.words(x.Violation))
	}
	return nil
}

// runOne runs one schedule and leaves the steps in the row.
func (w *Workload) runOne(schedule string, r *grade.Row) error {
	r.Schedule = schedule
	cfg, prog, err := w.prog()
	if err != nil {
		return err
	}
	x := explore.Replay(cfg, schedule, prog)
	if x.Verdict == explore.KindMisfit {
		r.Misfit, r.Result = true, misfit(x.Violation)
		return nil
	}
	tr := w.traceOf(&x)
	if tr.Kind == explore.OK {
		r.Pass, r.Result = true, "this schedule keeps the contract"
	} else {
		at := ""
		if w.at != nil {
			at = w.at(tr)
		}
		tr.Violation = w.words(tr.Violation)
		tr.Kind = tr.Violation.Kind
		enterViolation(r, tr.Violation)
		if at != "" {
			r.Result += "; " + at
		}
	}
	var b strings.Builder
	if err := timeline.WriteText(&b, tr, timeline.Layout{}); err != nil {
		return err
	}
	r.Trace = b.String()
	return nil
}

// traceOf is the trace of an execution of the workload; steps in the student's code say where.
func (w *Workload) traceOf(x *explore.Execution) *scenario.Trace {
	own := len(x.Tasks)
	if w.scenario != nil {
		own = len(w.scenario.Tasks)
	}
	tr := scenario.TraceOf(x, own)
	tr.Scenario, tr.About = w.name, w.asks
	if w.scenario != nil {
		tr.About, tr.Policy = w.scenario.About, w.pol().Name
	}
	return tr
}

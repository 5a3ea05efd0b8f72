package grade

import (
	"fmt"
	"strings"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched/explore"
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
func (w *workload) search(s *Student, r *Row) error {
	if err := w.explore(s, r); err != nil || !r.Violated {
		return err
	}
	x := *r
	if err := w.replay(s, r.Schedule, &x); err != nil {
		return err
	}
	if !x.Pass {
		r.Kind, r.Result, r.Trace = x.Kind, x.Result, x.Trace
	}
	return nil
}

// pol is the policy that the workload runs under.
func (w *workload) pol(s *Student) *policy.Policy {
	p := policy.MustParse(w.policy)
	if s.Steps != nil {
		copy(p.SetsizeSteps[:], s.Steps())
		p.Name += " with your order"
	}
	if w.order != nil {
		p.WriteSteps = policy.WriteOrder(w.order(s))
		p.Name += " with your order"
		if w.question {
			p.Name = w.policy + ", " + w.asks
		}
	}
	return p
}

func (w *workload) config() (explore.Config, error) {
	c := explore.Config{MaxSteps: 5_000}
	if w.scenario != nil {
		var err error
		if c, err = w.scenario.Config(); err != nil {
			return c, err
		}
	}
	c.Schedules = maxSchedules
	if w.limit > 0 {
		c.Schedules = w.limit
	}
	return c, nil
}

func (w *workload) prog(s *Student) (func(w *explore.World), error) {
	if w.scenario == nil {
		p := w.program(s)
		return func(x *explore.World) { dog.again(); p(x) }, nil
	}
	p, err := w.scenario.WithRangeLocker(s.NewRangeLock).WithNowaitExtent(s.extent()).WithSectors(s.sectors()).WithLogItem(s.logItem()).WithFilePolicy(s.filePolicy()).Program(w.pol(s), false)
	return func(x *explore.World) { dog.again(); p(x) }, err
}

// explore searches the workload and fills the row: first by number of preemptions, so that a
// violation comes with its shortest schedule, then with partial-order reduction, which comes to an
// end where the first cannot.
func (w *workload) explore(s *Student, r *Row) error {
	cfg, err := w.config()
	if err != nil {
		return err
	}
	prog, err := w.prog(s)
	if err != nil {
		return err
	}
	if s.schedules > 0 {
		cfg.Schedules = min(cfg.Schedules, s.schedules)
	}
	cfg.Preemptions, cfg.Progress = maxPreemptions, of(w.name, s.progress)
	first := explore.Run(cfg, prog)
	r.Schedules, r.Result, r.Switch = first.Schedules, bound(first.Bound), first.Switch
	x := first
	if x.Verdict == explore.Bounded {
		cfg.Method, cfg.Preemptions = explore.DPOR, 0
		x = explore.Run(cfg, prog)
		r.Schedules, r.Result = x.Schedules, bound(x.Bound)
		if x.Verdict == explore.Bounded {
			r.Schedules, r.Result = first.Schedules+x.Schedules, bound(first.Bound)+"; "+bound(x.Bound)
		}
	}
	r.Pass = x.Verdict != explore.Violated
	if !r.Pass {
		r.Schedule = x.Schedule
		r.violated(w.words(x.Violation))
	}
	return nil
}

// replay runs one schedule and leaves the steps in the row.
func (w *workload) replay(s *Student, schedule string, r *Row) error {
	r.Schedule = schedule
	cfg, err := w.config()
	if err != nil {
		return err
	}
	prog, err := w.prog(s)
	if err != nil {
		return err
	}
	x := explore.Replay(cfg, schedule, prog)
	if x.Verdict == explore.KindMisfit {
		r.Misfit, r.Result = true, misfit(x.Violation)
		return nil
	}
	tr := w.traceOf(s, &x)
	if tr.Kind == explore.OK {
		r.Pass, r.Result = true, "this schedule keeps the contract"
	} else {
		at := ""
		if w.order != nil {
			at = atStep(tr)
		}
		tr.Violation = w.words(tr.Violation)
		tr.Kind = tr.Violation.Kind
		r.violated(tr.Violation)
		if at != "" {
			r.Result += "; the batch is at " + at
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
func (w *workload) traceOf(s *Student, x *explore.Execution) *scenario.Trace {
	own := len(x.Tasks)
	if w.scenario != nil {
		own = len(w.scenario.Tasks)
	}
	tr := scenario.TraceOf(x, own)
	tr.Scenario, tr.About = w.name, w.asks
	if w.scenario != nil {
		tr.About, tr.Policy = w.scenario.About, w.pol(s).Name
	}
	for i := range tr.Steps {
		if at, ok := studentFrame(tr.Steps[i].Stack); ok {
			tr.Steps[i].Where = fmt.Sprintf("%s:%d", function(at), at.Line)
		}
	}
	return tr
}

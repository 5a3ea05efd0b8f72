package explore

import (
	"fmt"

	"btrlab/internal/sched"
)

// follow is a driver that follows a schedule, and then Strategy or the default order.
type follow struct {
	devs     schedule
	pos      int
	lenient  bool // ignore what does not fit
	until    int  // cut off at this step, 0 is never
	strategy Strategy
	expect   []Step
	enabled  []int
	next     []Step
	given    int16
}

func (f *follow) pick(w *world, d *decision) int {
	if f.until > 0 && d.step >= f.until {
		return -1
	}
	pick := d.def
	f.given = -1
	for f.pos < len(f.devs) && int(f.devs[f.pos].step) < d.step {
		if !f.lenient {
			w.mismatch("the schedule names step %d, which is a task's start and no decision", f.devs[f.pos].step)
			return -1
		}
		f.pos++
	}
	if f.pos < len(f.devs) && int(f.devs[f.pos].step) == d.step {
		v := f.devs[f.pos]
		f.pos++
		f.given = v.val
		if v.task >= 0 && (!f.lenient || d.mask&(1<<v.task) != 0) {
			pick = int(v.task)
		}
		if v.val >= 0 && !f.lenient && d.mask&(1<<pick) != 0 {
			switch n := w.tasks[pick].nval; {
			case n == 0:
				w.mismatch("the schedule gives step %d a value, and it is no choice", d.step)
				return -1
			case int(v.val) >= n:
				w.mismatch("the schedule gives step %d the value %d, and its choice is 0 to %d", d.step, v.val, n-1)
				return -1
			}
		}
	} else if f.strategy != nil {
		f.enabled, f.next = f.enabled[:0], f.next[:0]
		for m := d.mask; m != 0; m &= m - 1 {
			n := lowest(m)
			f.enabled, f.next = append(f.enabled, n), append(f.next, w.pending(n))
		}
		pick = f.strategy.Pick(Decision{d.step, d.last, d.def, f.enabled, f.next})
	}
	if f.expect != nil && pick >= 0 && pick < len(w.tasks) && d.mask&(1<<pick) != 0 {
		if k := w.tasks[pick]; k.op.Obj != nil {
			w.numberOf(k.op.Obj, k.op.ID, k.op.Class)
		}
		p := w.pending(pick)
		p.Enabled = d.mask
		if d.step >= len(f.expect) {
			w.mismatch("nondeterminism at step %d: task %d %s, enabled %b; recorded was the end", d.step, pick, describe(p), p.Enabled)
			return -1
		}
		if e := f.expect[d.step]; !e.same(p) {
			w.mismatch("nondeterminism at step %d: task %d %s, enabled %b; recorded was task %d %s, enabled %b",
				d.step, pick, describe(p), p.Enabled, e.Task, describe(e), e.Enabled)
			return -1
		}
	}
	return pick
}

func (f *follow) value(w *world, step, n int) int {
	if f.given >= 0 && int(f.given) < n {
		return int(f.given)
	}
	return 0
}

func (f *follow) end(w *world) {}

// pending is the step that a task would do next.
func (w *world) pending(n int) Step {
	k := w.tasks[n]
	p := Step{Task: n, Kind: k.opKind, Class: k.op.Class, NVal: k.nval}
	if k.op.Obj != nil && k.op.Obj.Run == w.run {
		p.Obj = int(k.op.Obj.Num) + 1
	}
	return p
}

// Replay runs prog once by a schedule and records every step for a reader. A schedule that begins
// with SpuriousPrefix has spurious wake-ups among its choices.
func Replay(cfg Config, schedule string, prog func(w *World)) Execution {
	rest, spurious := cutSpurious(schedule)
	devs, err := parseSchedule(rest)
	if err != nil {
		return Execution{Verdict: KindMisfit, Violation: Violation{Kind: KindMisfit, What: err.Error()}, Schedule: schedule}
	}
	if cfg.Spurious = 0; spurious {
		cfg.Spurious = 1
	}
	x := record(cfg, devs, prog, nil)
	if d := Attached; d != nil && x.Verdict != KindMisfit {
		record(cfg, devs, prog, func(step int) { d.AtStep(&x, step) })
	}
	if spurious {
		x.Schedule = SpuriousPrefix + x.Schedule
	}
	return x
}

// Debugger is told of the steps of a replay.
type Debugger interface {
	// AtStep is called on the stack of each task that begins a step, with the execution that has
	// it, which is whole: Replay has run it before. It is not called for a machine, which has no
	// stack, nor for the step with which a task starts.
	AtStep(x *Execution, step int)
}

// Attached, if set, is told of the steps of each replay of this process, which runs twice then.
var Attached Debugger

// record is the execution by a schedule; at, if set, is told of each step on the stack of its task.
func record(cfg Config, devs schedule, prog func(w *World), at func(step int)) Execution {
	w := newWorld(cfg.filled())
	defer w.close()
	w.tracing, w.clocks, w.atStep = true, true, at
	f := &follow{devs: devs}
	w.execute(prog, f)
	w.complete(f)
	if w.viol != nil && w.viol.Kind == KindMismatch { // one execution tells nothing of another
		w.viol.Kind = KindMisfit
	}
	return w.execution()
}

// complete checks that the whole schedule was used.
func (w *world) complete(f *follow) {
	if w.viol == nil && f.pos < len(f.devs) {
		w.mismatch("the schedule names step %d, the execution has %d", f.devs[f.pos].step, len(w.ev))
	}
}

// OnceConfig says how Once runs. The zero value runs without preemptions.
type OnceConfig struct {
	// Schedule names deviations, "step:task,step:task", steps ascending.
	Schedule string
	// Strategy picks where Schedule does not; nil is the default order.
	Strategy Strategy
	// Expect is an earlier execution's steps: the first difference is a mismatch.
	Expect []Step
	// MaxSteps ends an execution that does not; 0 is 1,000,000.
	MaxSteps int
	// Off are checks not made.
	Off Checks
}

// Strategy decides which task goes on in Once. It must be deterministic.
type Strategy interface {
	// Pick returns one of d.Enabled.
	Pick(d Decision) int
}

// Decision is the state in which a strategy picks. It is valid during Pick only.
type Decision struct {
	Step    int
	Last    int    // the task that ran last, -1 before the first step
	Default int    // the task that the default order would pick
	Enabled []int  // ascending task numbers
	Next    []Step // for each of Enabled, the step it would do
}

// Once runs prog as task 0, by cfg, and returns when every task has ended or the execution is
// stuck.
func Once(cfg OnceConfig, prog func(t *sched.Task)) Execution {
	devs, err := parseSchedule(cfg.Schedule)
	if err != nil {
		return Execution{Verdict: KindMismatch, Violation: Violation{Kind: KindMismatch, What: err.Error()}, Schedule: cfg.Schedule}
	}
	if cfg.MaxSteps == 0 {
		cfg.MaxSteps = 1_000_000
	}
	w := newWorld(Config{MaxSteps: cfg.MaxSteps, Off: cfg.Off | CheckNowait}.filled())
	defer w.close()
	w.verbose, w.clocks = true, true
	f := &follow{devs: devs, strategy: cfg.Strategy, expect: cfg.Expect}
	w.execute(func(w *World) { w.Go("main", prog) }, f)
	w.complete(f)
	if w.viol == nil && len(cfg.Expect) > len(w.ev) {
		w.fail(Violation{Kind: KindMismatch, Named: true, What: fmt.Sprintf("the execution ended after %d steps, the recorded one has %d", len(w.ev), len(cfg.Expect))})
	}
	return w.execution()
}

// diagnose runs a schedule that did not fit until two executions differ, and names both operations.
func (s *search) diagnose(devs schedule, found *Violation) *Violation {
	record := func() []Step {
		w := newWorld(s.cfg)
		defer w.close()
		w.execute(s.prog, &follow{devs: devs, lenient: true})
		return w.execution().Steps
	}
	first := record()
	for range 10 {
		again := record()
		for i := range min(len(first), len(again)) {
			a, b := first[i], again[i]
			if !a.same(b) {
				return &Violation{Kind: KindMismatch, What: fmt.Sprintf("nondeterminism at step %d: task %d %s, enabled %b; another time task %d %s, enabled %b",
					i, a.Task, describe(a), a.Enabled, b.Task, describe(b), b.Enabled)}
			}
		}
		if len(first) != len(again) {
			return &Violation{Kind: KindMismatch, Named: true, What: fmt.Sprintf("%d steps, another time %d", len(first), len(again))}
		}
	}
	return found
}

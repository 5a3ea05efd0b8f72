package explore

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"btrlab/internal/sched"
)

// search is one Run.
type search struct {
	cfg   *Config
	prog  func(w *World)
	start time.Time
	until time.Time
	order *orderGraph // shared by all worlds of the search

	stop   atomic.Bool
	clocks atomic.Bool // the program has a Var

	mu         sync.Mutex // protects the fields below
	runs       int
	cut        int
	violations int
	steps      int64
	viol       *Violation
	sched      schedule
	pre        int // violated: preemptions of sched; else all with so many have been tried
	found      int
	left       bool // something was not tried
	stopped    bool // Config.Stop said so
	spare      []*world
	firstTrail uint64 // of the execution without preemptions, if that was the first
	firstSteps int
	gcOld      int
	gcChanged  bool
}

// world gives a worker a world; retire takes it back.
func (s *search) world() *world {
	s.mu.Lock()
	if n := len(s.spare); n > 0 {
		w := s.spare[n-1]
		s.spare = s.spare[:n-1]
		s.mu.Unlock()
		return w
	}
	s.mu.Unlock()
	w := newWorld(s.cfg)
	s.mu.Lock()
	if s.order == nil {
		s.order = w.order
	}
	w.order = s.order
	s.mu.Unlock()
	return w
}

func (s *search) retire(w *world) {
	s.mu.Lock()
	s.spare = append(s.spare, w)
	s.mu.Unlock()
}

// jobs runs Config.Jobs workers, each with a world of its own, and waits for them. The last one, mostly the only one, is the
// caller.
func (s *search) jobs(work func(job int, w *world)) {
	one := func(job int) {
		w := s.world()
		defer s.retire(w)
		work(job, w)
	}
	var wg sync.WaitGroup
	last := s.cfg.Jobs - 1
	for j := range last {
		wg.Go(func() { one(j) })
	}
	one(last)
	wg.Wait()
}

// leave notes that something is not tried.
func (s *search) leave() {
	s.mu.Lock()
	s.left = true
	s.mu.Unlock()
}

// close ends what the search keeps.
func (s *search) close() {
	for _, w := range s.spare {
		w.close()
	}
	s.spare = nil
	if s.gcChanged {
		debug.SetGCPercent(s.gcOld)
	}
}

// execute makes one execution, without what most do not need, and makes it again with it where it turns out to be needed.
// Most programs have no Var: the first execution that meets one gets the clocks that check it, and so do all that come
// later. Most executions by chance violate nothing: one that does is told by what its repetition knows.
func (s *search) execute(w *world, drv driver) {
	w.clocks = w.clocks || s.clocks.Load()
	w.execute(s.prog, drv)
	switch {
	case w.missed && (w.viol == nil || w.viol.Kind != KindMismatch):
		s.clocks.Store(true)
		w.clocks = true
	case w.lean && w.viol != nil:
	default:
		return
	}
	again, viol, pruned := &follow{devs: w.schedule()}, w.viol, w.pruned
	if pruned || viol != nil {
		again.until = len(w.ev)
	}
	w.execute(s.prog, again)
	if w.viol == nil {
		w.viol, w.pruned = viol, pruned
	}
}

// account counts an execution and reports whether the search goes on.
func (s *search) account(w *world) bool {
	if s.cfg.Jobs > 1 { // alone, the lock is a hundredth of a short execution
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	s.runs++
	if s.runs == gcRuns {
		s.gcOld, s.gcChanged = debug.SetGCPercent(gcPercent), true
	}
	s.steps += int64(len(w.ev))
	if s.runs == 1 && !w.pruned && w.trails && w.byDefault() {
		s.firstTrail, s.firstSteps = w.trail, len(w.ev)
	}
	if w.pruned {
		s.cut++
	} else if s.cfg.Done != nil {
		s.cfg.Done(s.runs, &End{Order: w.orderHash(), Steps: len(w.ev), Violation: w.viol, w: w})
	}
	if w.viol != nil {
		s.violations++
		if s.viol == nil {
			s.viol, s.sched, s.pre, s.found = w.viol, w.schedule(), w.preemptions(), s.runs
		}
		if !s.cfg.All || w.viol.Kind == KindMismatch {
			s.stop.Store(true)
		}
	}
	if s.cfg.Schedules > 0 && s.runs >= s.cfg.Schedules {
		s.stop.Store(true)
	}
	if s.runs&63 == 0 && !s.until.IsZero() && time.Now().After(s.until) {
		s.stop.Store(true)
	}
	if s.cfg.Stop != nil && s.cfg.Stop() {
		s.stopped = true
		s.stop.Store(true)
	}
	return !s.stop.Load()
}

func (s *search) result() Result {
	c := s.cfg
	if s.viol == nil && !s.sameTwice() {
		s.viol, s.pre = &Violation{Kind: KindMismatch, Named: true, What: "another execution by the same schedule"}, 0
	}
	r := Result{Method: c.Method, Schedules: s.runs, Cut: s.cut, Violations: s.violations, Preemptions: s.pre, Steps: s.steps, Shard: c.Shard, Shards: c.Shards,
		Switch: c.switchNames()}
	switch {
	case s.viol != nil:
		r.Verdict, r.Found = Violated, s.found
		if s.viol.Kind == KindMismatch {
			s.viol = s.diagnose(s.sched, s.viol)
		} else if !c.NoShrink {
			s.shrink()
			if s.viol.Kind == KindRace { // a search keeps neither locks nor stacks; one execution more has them
				if x := Replay(*c, s.sched.String(), s.prog); x.Verdict == KindRace {
					s.viol = &x.Violation
				}
			}
		}
		r.Kind, r.Violation, r.Schedule, r.Preemptions = s.viol.Kind, *s.viol, s.sched.String(), s.pre
	case s.left:
		r.Verdict, r.Stopped = Bounded, s.stopped
	default:
		r.Verdict = Exhausted
	}
	r.Seconds = time.Since(s.start).Seconds()
	r.Bound = Coverage{Verdict: r.Verdict, Method: c.Method, Seed: c.Seed, Schedules: r.Schedules, Preemptions: r.Preemptions, Found: r.Found,
		Stopped: r.Stopped, At: r.Switch, Shard: r.Shard, Shards: r.Shards}
	return r
}

// sameTwice makes the execution without preemptions once more and compares: a program that differs behind what a search
// repeats would not be noticed otherwise.
func (s *search) sameTwice() bool {
	w := s.world()
	defer s.retire(w)
	if s.firstTrail == 0 {
		w.execute(s.prog, &follow{})
		s.firstTrail, s.firstSteps = w.trail, len(w.ev)
	}
	w.execute(s.prog, &follow{})
	return w.trail == s.firstTrail && len(w.ev) == s.firstSteps
}

// prove runs DPOR and State side by side and returns what ended first; neither is always the better one.
func (s *search) prove() Result {
	part := func(m Method) *search {
		c := *s.cfg
		c.Method = m
		return &search{cfg: &c, prog: s.prog, start: s.start, until: s.until, pre: -1}
	}
	a, b := part(DPOR), part(State)
	defer a.close()
	defer b.close()
	first := make(chan *search, 2)
	go func() { a.byDPOR(); first <- a }()
	go func() { b.byQueue(); first <- b }()
	r := <-first
	a.stop.Store(true)
	b.stop.Store(true)
	if o := <-first; r.viol == nil && (o.viol != nil || r.left && !o.left) {
		r = o
	}
	return r.result()
}

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
			w.number1(k.op.Obj, k.op.ID, k.op.Class)
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

// Replay runs prog once by a schedule and records every step for a reader.
func Replay(cfg Config, schedule string, prog func(w *World)) Execution {
	devs, err := parseSchedule(schedule)
	if err != nil {
		return Execution{Verdict: KindMisfit, Violation: Violation{Kind: KindMisfit, What: err.Error()}, Schedule: schedule}
	}
	w := newWorld(cfg.filled())
	defer w.close()
	w.tracing, w.clocks = true, true
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

// Strategy decides who goes on in Once. It must be deterministic.
type Strategy interface {
	// Pick returns one of d.Enabled.
	Pick(d Decision) int
}

// Decision is the state in which a strategy picks. It is valid during Pick only.
type Decision struct {
	Step    int
	Last    int    // the task that ran last, -1 before the first step
	Default int    // whom the default order would pick
	Enabled []int  // ascending task numbers
	Next    []Step // for each of Enabled, the step it would do
}

// Once runs prog as task 0, by cfg, and returns when every task has ended or the execution is stuck.
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
	record := func() (Execution, []Step) {
		w := newWorld(s.cfg)
		defer w.close()
		w.execute(s.prog, &follow{devs: devs, lenient: true})
		x := w.execution()
		return x, x.Steps
	}
	_, first := record()
	for range 10 {
		_, again := record()
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

// shrink makes the violating schedule shorter: first a search with fewer preemptions, then deviations are left out one by one.
// What it keeps is the kind of violation.
func (s *search) shrink() {
	if s.cfg.Method != Bound && len(s.sched) > 0 {
		c := *s.cfg
		c.Method, c.All, c.NoShrink, c.Done, c.Jobs, c.Shards, c.Shard = Bound, false, true, nil, 1, 1, 0
		c.Preemptions = s.pre
		if s.pre == 0 {
			c.Preemptions = -1
		}
		c.Schedules, c.Time = 20_000, 2*time.Second
		b := &search{cfg: &c, prog: s.prog, start: time.Now(), pre: -1, until: time.Now().Add(c.Time)}
		defer b.close()
		b.byQueue()
		if b.viol != nil && b.viol.Kind == s.viol.Kind && (b.pre < s.pre || b.pre == s.pre && len(b.sched) < len(s.sched)) {
			s.viol, s.sched, s.pre = b.viol, b.sched, b.pre
		}
	}
	w := s.world()
	defer s.retire(w)
	try := func(devs schedule) bool {
		w.order = &orderGraph{}
		s.execute(w, &follow{devs: devs, lenient: true})
		if w.viol == nil || w.viol.Kind != s.viol.Kind {
			return false
		}
		got, pre := w.schedule(), w.preemptions()
		if pre > s.pre || pre == s.pre && len(got) >= len(s.sched) {
			return false
		}
		s.viol, s.sched, s.pre = w.viol, got, pre
		return true
	}
	for tries := 0; tries < 500; {
		progress := false
		for size := max(1, len(s.sched)/2); size >= 1 && tries < 500; size /= 2 {
			for i := 0; i+size <= len(s.sched) && tries < 500; i++ {
				tries++
				without := append(append(schedule{}, s.sched[:i]...), s.sched[i+size:]...)
				if try(without) {
					progress = true
					i--
				}
			}
		}
		if !progress {
			break
		}
	}
}

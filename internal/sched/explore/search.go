package explore

import (
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// search is one Run.
type search struct {
	cfg   *Config
	prog  func(w *World)
	start time.Time
	until time.Time
	order *orderGraph // shared by all worlds of the search

	stop   atomic.Bool
	clocks atomic.Bool  // the program has a Var
	budget atomic.Int64 // of executions, once the other search of prove has ended

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
	refused    bool // the method cannot judge the program
	stopped    bool // Config.Stop said so
	spare      []*world
	firstTrail uint64 // of the execution without preemptions, if that was the first
	firstSteps int
	told       time.Time // when Config.Progress was called last
	wholes     []float64 // estimates, by job
	level      int       // that Bound is at, and the share of it that is done
	share      float64
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

// jobs runs Config.Jobs workers, each with a world of its own, and waits for them. The last one,
// mostly the only one, is the caller.
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

// refuse ends a search by a method that cannot judge the program.
func (s *search) refuse() {
	s.mu.Lock()
	s.left, s.refused = true, true
	s.mu.Unlock()
	s.stop.Store(true)
}

// part is a search of the same program by another method.
func (s *search) part(m Method) *search {
	c := *s.cfg
	c.Method = m
	return &search{cfg: &c, prog: s.prog, start: s.start, until: s.until, pre: -1}
}

// close ends what the search keeps.
func (s *search) close() {
	for _, w := range s.spare {
		w.close()
	}
	s.spare = nil
	if s.gcChanged {
		theCollector.atRest()
	}
}

// collector is the process's garbage collector, whose target the long searches that run share.
type collector struct {
	mu   sync.Mutex
	busy int // long searches
	rest int // the target without one
	now  int // the target
}

var theCollector collector

func (c *collector) forSearch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy++; c.busy == 1 {
		c.now, c.rest = gcPercent, debug.SetGCPercent(gcPercent)
	}
}

// keep adapts the target to what is alive.
func (c *collector) keep() {
	live := [1]metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	// it costs a stop of all tasks
	if want := gcTarget(live[0].Value.Uint64()); c.busy > 0 && (want > c.now*5/4 || want < c.now*4/5) {
		c.now = want
		debug.SetGCPercent(want)
	}
}

// gcTarget is the target when so many bytes are alive: as much garbage as there is room for.
func gcTarget(live uint64) int {
	if live >= gcRoom {
		return gcLeast
	}
	return int(min(gcPercent, max(gcLeast, 100*(gcRoom-live)/max(live, 1))))
}

func (c *collector) atRest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy--; c.busy == 0 {
		debug.SetGCPercent(c.rest)
	}
}

// execute makes one execution, without what most do not need, and makes it again with it where it
// turns out to be needed. Most programs have no Var: the first execution that meets one gets the
// clocks that check it, and so do all that come later. Most executions by chance violate nothing:
// one that does is told by what its repetition knows.
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
	// the order of locks is known now, and violates nothing new
	if w.viol == nil || viol != nil && viol.Kind == KindOrder {
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
	s.steps += int64(len(w.ev))
	if s.steps > gcSteps && !s.gcChanged {
		s.gcChanged = true
		theCollector.forSearch()
	}
	if s.runs%gcEvery == 0 && s.gcChanged {
		theCollector.keep()
	}
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
	if n := s.budget.Load(); n > 0 && int64(s.runs) >= n {
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
			// a search keeps neither locks nor stacks; one execution more has them
			if s.viol.Kind == KindRace {
				if x := Replay(*c, c.mark()+s.sched.String(), s.prog); x.Verdict == KindRace {
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
		Stopped: r.Stopped, At: r.Switch, Refused: s.refused, Shard: r.Shard, Shards: r.Shards}
	return r
}

// sameTwice makes the execution without preemptions once more and compares: a program that differs
// after what a search repeats would not be noticed otherwise.
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

// proveMore is how many executions more than the first search of prove the second may make, at
// least.
const proveMore = 1000

// prove runs DPOR and State side by side, since neither is always the faster one. When one has
// ended the other goes on until it ends, too, or has made twice as many executions. So two searches
// that come to different verdicts on a small program do so every time, and not when one happens to
// be first; then one of them is wrong, and the result says it.
func (s *search) prove() Result {
	a, b := s.part(DPOR), s.part(State)
	defer a.close()
	defer b.close()
	first := make(chan *search, 2)
	go func() { a.byDPOR(); first <- a }()
	go func() { b.byQueue(); first <- b }()
	if r := <-first; !r.refused {
		o := a
		if r == a {
			o = b
		}
		o.budget.Store(int64(2*r.runs + proveMore))
	}
	<-first
	return judge(a, b)
}

// judge makes one result of two searches that have ended. It prefers the first one's.
func judge(a, b *search) Result {
	ends := func(s *search) bool { return s.viol == nil && !s.left }
	switch {
	case a.viol != nil && ends(b):
		return a.disagree(b)
	case b.viol != nil && ends(a):
		return b.disagree(a)
	case a.viol != nil || ends(a) && b.viol == nil:
		return a.result()
	case b.viol != nil || ends(b):
		return b.result()
	}
	return a.result()
}

// disagree is the result of a search that has found a violation where other has tried everything
// and found none.
func (s *search) disagree(other *search) Result {
	r := s.result()
	r.Kind = KindDisagree
	r.Violation = Violation{Kind: KindDisagree, Named: true, More: r.Violation.String(),
		What: fmt.Sprintf("%s says that nothing is violated after %s, and %s finds schedule %q; this is an error of the explorer, and no verdict of its searches on this program can be trusted",
			other.cfg.Method, count(other.runs, "schedule"), s.cfg.Method, r.Schedule)}
	return r
}

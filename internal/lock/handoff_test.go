package lock

import (
	"runtime"
	"sync/atomic"
	"testing"

	"btrlab/internal/sched"
)

// each runs f with and without lockdep on each kind of RWSem: sync's, and the queue of Linux with
// and without handoff, which is then at once.
func each(t *testing.T, f func(t *testing.T, s *RWSem)) {
	for _, c := range []struct {
		name string
		s    func(s *RWSem)
	}{
		{"sync", func(s *RWSem) { s.Init(testClass) }},
		{"handoff", func(s *RWSem) { s.InitHandoff(testClass) }},
		{"handoff at once", func(s *RWSem) { s.InitHandoff(testClass); s.queued.after.Store(0) }},
		{"no handoff", func(s *RWSem) { s.InitHandoff(testClass); s.SetHandoff(false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T) {
				var s RWSem
				c.s(&s)
				f(t, &s)
				if q := s.queued; q != nil && (q.state.Load() != 0 || len(q.list) != 0 || q.waiting.Load() != 0) {
					t.Errorf("state %d, %d in the queue, counted as %d, want none", q.state.Load(), len(q.list), q.waiting.Load())
				}
			})
		})
	}
}

// asleep returns once n tasks sleep in the queue of s.
func asleep(s *RWSem, n int) {
	for {
		s.queued.mu.Lock()
		asleep := len(s.queued.list)
		for _, w := range s.queued.list {
			if w.woken {
				asleep--
			}
		}
		s.queued.mu.Unlock()
		if asleep == n {
			return
		}
		runtime.Gosched()
	}
}

// TestHandoff: the lock that a writer lets go belongs to the first sleeper once that has waited
// long enough, so the writer that comes back at once has to wait. Before that time, and before
// Linux 5.3 at all times, the lock is free and the writer may have it again.
func TestHandoff(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(s *RWSem)
		handed bool
	}{
		{"time is up", func(s *RWSem) { s.queued.after.Store(0) }, true},
		{"time is not up", func(s *RWSem) { s.queued.after.Store(never - 1) }, false},
		{"without handoff", func(s *RWSem) { s.SetHandoff(false) }, false},
		{"with it again", func(s *RWSem) { s.SetHandoff(false); s.SetHandoff(true); s.queued.after.Add(-int64(HandoffAfter)) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := sched.NewTask("a")
			var s RWSem
			s.InitHandoff(testClass)
			c.set(&s)
			s.Lock(a)
			other := a.Go("other", func(b *sched.Task) { s.Lock(b); s.Unlock(b) })
			asleep(&s, 1)
			s.queued.mu.Lock()
			w := s.queued.list[0]
			s.queued.mu.Unlock()
			handed := s.queued.pass(a.Now(), false)
			a.Join(other)
			if w.granted != handed || handed != c.handed {
				t.Errorf("handed %v, to the sleeper %v, want %v", handed, w.granted, c.handed)
			}
		})
	}
}

// TestHandoffLetsReadersIn: all readers at the head of the queue get the lock together, and the
// writer after them gets it when the last of them has gone.
func TestHandoffLetsReadersIn(t *testing.T) {
	a := sched.NewTask("a")
	var s RWSem
	s.InitHandoff(testClass)
	s.SetHandoff(false)
	s.Lock(a)
	var in atomic.Int32
	var all []*sched.Task
	for i := range 3 {
		all = append(all, a.Go("reader", func(b *sched.Task) {
			s.RLock(b)
			for in.Add(1); in.Load() < 3; {
				runtime.Gosched() // with all three inside only
			}
			s.RUnlock(b)
		}))
		asleep(&s, i+1)
	}
	all = append(all, a.Go("writer", func(b *sched.Task) {
		s.Lock(b)
		if in.Load() != 3 {
			t.Errorf("a writer after %d readers, want 3", in.Load())
		}
		s.Unlock(b)
	}))
	asleep(&s, 4)
	s.queued.state.Store(0) // all sleep, as if the owner had let go and woken nobody yet
	if s.queued.try(true) || s.queued.try(false) {
		t.Error("a try passed a queue")
	}
	s.queued.state.Store(-1)
	s.Unlock(a)
	for _, k := range all {
		a.Join(k)
	}
}

// TestThiefPassesOn: a lock that is free and stolen before the task that let it go has looked at
// the queue is passed on by the thief.
func TestThiefPassesOn(t *testing.T) {
	a := sched.NewTask("a")
	var s RWSem
	s.InitHandoff(testClass)
	s.queued.after.Store(0)
	s.Lock(a)
	other := a.Go("other", func(b *sched.Task) { s.Lock(b); s.Unlock(b) })
	asleep(&s, 1)
	// The lock is a's, who is the thief: the one before it passes on what is not free any more.
	if s.queued.pass(a.Now(), true) {
		t.Error("a lock that has an owner was handed over")
	}
	s.Unlock(a)
	a.Join(other)
}

// TestHandoffWaitAllocates: a task that has to wait allocates nothing, but for the first ones.
func TestHandoffWaitAllocates(t *testing.T) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	a := sched.NewTask("a")
	var s RWSem
	s.InitHandoff(testClass)
	s.queued.after.Store(0) // each sleeper gets it
	turns, passed := make(chan struct{}), make(chan struct{})
	b := a.Go("b", func(b *sched.Task) {
		for range turns {
			s.Lock(b)
			s.Unlock(b)
			passed <- struct{}{}
		}
	})
	round := func() {
		s.Lock(a)
		turns <- struct{}{}
		asleep(&s, 1)
		s.Unlock(a)
		<-passed
	}
	round()
	if n := testing.AllocsPerRun(1000, round); n != 0 {
		t.Errorf("%v allocations for each wait, want none", n)
	}
	close(turns)
	a.Join(b)
}

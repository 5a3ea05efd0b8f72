package lock

import (
	"errors"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// everyOrder explores prog, whose tasks must all end in every order.
func everyOrder(t *testing.T, prog func(w *explore.World)) {
	t.Helper()
	r := explore.Run(explore.Config{Method: explore.DPOR}, prog)
	if r.Verdict != explore.Exhausted {
		t.Errorf("%s, schedule %q: %s", r.Bound, r.Schedule, r.Violation)
	}
}

// A wake-up is for every waiter, and is no promise: the condition is looked at again, and a waker
// that comes while a task gets ready to sleep is not missed.
func TestQueueInEveryOrder(t *testing.T) {
	everyOrder(t, func(w *explore.World) {
		var q WaitQueue
		q.Init(waitClass)
		var flag explore.Atomic[bool]
		for range 2 {
			w.Go("waiter", func(t *sched.Task) {
				q.Wait(t, func() bool { return flag.Load(t) })
				if !flag.Peek() {
					panic("the wait ended too early")
				}
			})
		}
		w.Go("waker", func(t *sched.Task) {
			q.Wake(t)
			flag.Store(t, true)
			q.Wake(t)
		})
	})
}

// A task joins the queue between two looks at its condition, and each look may be a step of its
// own: a wake-up that falls between the joining and the second look is tried by every search,
// though no step of the condition has to do with the queue.
func TestQueueJoinsInSight(t *testing.T) {
	var all map[string]bool
	for _, m := range []explore.Method{explore.Naive, explore.DPOR, explore.Bound, explore.State} {
		seen := map[string]bool{}
		var looks string
		r := explore.Run(explore.Config{Method: m, Done: func(int, *explore.End) { seen[looks] = true }}, func(w *explore.World) {
			var q WaitQueue
			q.Init(waitClass)
			var flag explore.Atomic[bool]
			looks = ""
			w.HashData(func() uint64 { return sched.HashOf(looks) })
			w.Go("waiter", func(t *sched.Task) {
				q.Wait(t, func() bool {
					ok := flag.Load(t)
					looks += map[bool]string{false: "f", true: "t"}[ok]
					return ok
				})
			})
			w.Go("passer-by", func(t *sched.Task) { q.Wake(t) })
			w.Go("waker", func(t *sched.Task) {
				flag.Store(t, true)
				q.Wake(t)
			})
		})
		if r.Verdict != explore.Exhausted {
			t.Errorf("%s: %s: %s", m, r.Bound, r.Violation)
		}
		if m == explore.Naive {
			all = seen
			// the second look finds the task on the queue, and taken off it
			if !all["ft"] || !all["ftt"] {
				t.Errorf("what the looks find: %v", all)
			}
		}
		for s := range all {
			if !seen[s] {
				t.Errorf("%s never sees %q, of %v", m, s, all)
			}
		}
	}
}

// No signal is lost between the look at the condition and the sleep, and a broadcast is for all.
func TestCondInEveryOrder(t *testing.T) {
	for _, broadcast := range []bool{false, true} {
		everyOrder(t, func(w *explore.World) {
			var m Mutex
			var k Cond
			m.Init(testClass)
			k.Init(&m, waitClass)
			have := 0
			waits := false // the task that runs is about to let m go for a wait
			w.Invariant(func() error {
				if waits && len(k.list) == 0 {
					return errors.New("a waiter lets the mutex go before it is on the list")
				}
				return nil
			})
			for range 2 {
				w.Go("consumer", func(t *sched.Task) {
					m.Lock(t)
					for have == 0 {
						waits = true
						k.Wait(t)
					}
					have--
					m.Unlock(t)
				})
			}
			w.Go("producer", func(t *sched.Task) {
				m.Lock(t)
				have, waits = 2, false
				if broadcast {
					k.Broadcast(t)
				} else {
					k.Signal(t)
					k.Signal(t)
				}
				m.Unlock(t)
			})
		})
	}
}

// Readers share, a writer is alone.
func TestRWSemInEveryOrder(t *testing.T) {
	everyOrder(t, func(w *explore.World) {
		var s RWSem
		s.Init(testClass)
		readers, writers := 0, 0
		look := func(t *sched.Task) {
			if writers > 1 || writers > 0 && readers > 0 {
				panic("a writer is not alone")
			}
		}
		for range 2 {
			w.Go("reader", func(t *sched.Task) {
				s.RLock(t)
				readers++
				look(t)
				t.Enter(sched.PointAtomic, 0, &s) // others may run here
				look(t)
				readers--
				s.RUnlock(t)
			})
			w.Go("writer", func(t *sched.Task) {
				if !s.TryLock(t) {
					s.Lock(t)
				}
				writers++
				look(t)
				t.Enter(sched.PointAtomic, 0, &s)
				look(t)
				writers--
				s.Unlock(t)
			})
		}
	})
}

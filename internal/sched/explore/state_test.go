package explore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// end is when an execution of a program must end for its violation to be seen.
type end int

const (
	anyEnd  end = iota
	settled     // when daemons have nothing to do either
	early       // in the midst of what they do
)

// unsoundOnce are small programs whose violation a search once missed and said "exhausted", each
// with the reason.
var unsoundOnce = []struct {
	name string
	end  end
	prog func(w *explore.World)
}{
	// Two tasks wait for a condition and a third wakes one. The hash of the state had that both
	// wait, not who came first, so the two orders of waiting were one state, and only the first
	// that came was ever woken.
	{"the order of waiters", settled, func(w *explore.World) {
		var mu lock.Mutex
		var cond lock.Cond
		mu.Init(aClass)
		cond.Init(&mu, bClass)
		var waits, woken [2]bool
		both := false
		for i := range 2 {
			w.Task().Go("waiter", func(t *sched.Task) { // need not end
				mu.Lock(t)
				waits[i] = true
				cond.Wait(t)
				woken[i] = true
				mu.Unlock(t)
			})
		}
		w.Go("waker", func(t *sched.Task) {
			mu.Lock(t)
			both = waits[0] && waits[1]
			cond.Signal(t)
			mu.Unlock(t)
		})
		w.HashData(func() uint64 { return sched.HashOf(both) })
		w.Check(func() error {
			if both && woken[1] && !woken[0] {
				return errors.New("the second waiter is woken and the first waits")
			}
			return nil
		})
	}},
	// A task that got a range and one that found it busy had done the same, as far as the hash of
	// the state went, and so had the tree.
	{"a range that is busy", anyEnd, func(w *explore.World) {
		var tree extentio.Tree
		var mu lock.Mutex
		tree.InitClass(aClass)
		mu.Init(bClass)
		var got [2]bool
		w.Go("tries twice", func(t *sched.Task) {
			for i := range got {
				if got[i] = tree.TryLock(t, 0, 4096); got[i] {
					tree.Unlock(t, 0, 4096)
				}
			}
		})
		w.Go("holds", func(t *sched.Task) {
			held := tree.TryLock(t, 0, 4096)
			mu.Lock(t)
			mu.Unlock(t)
			if held {
				tree.Unlock(t, 0, 4096)
			}
		})
		w.Check(func() error {
			if got[0] && !got[1] {
				return errors.New("the second try finds the range locked")
			}
			return nil
		})
	}},
	// Blind stores to two words that have no name. The hash of the state had the values in the
	// order in which the words were used first, so that x=2, y=1 after x was used first was the
	// same as x=1, y=2 after y was.
	{"which word has which value", anyEnd, func(w *explore.World) {
		var x, y explore.Atomic[int]
		var bad bool
		done := 0
		w.Go("x first", func(t *sched.Task) { x.Store(t, 1); y.Store(t, 2); done++ })
		w.Go("y first", func(t *sched.Task) { y.Store(t, 1); x.Store(t, 2); done++ })
		w.Go("reader", func(t *sched.Task) { v := x.Load(t); bad = v == 1 && done == 2 })
		w.Check(func() error {
			if bad && y.Peek() == 2 {
				return errors.New("x is 1 and y is 2")
			}
			return nil
		})
	}},
	// Two tasks sleep until the same time. The one with the lower number always went on first.
	{"two sleepers that are due together", anyEnd, func(w *explore.World) {
		var x explore.Atomic[int]
		for i := range 2 {
			w.Go("sleeper", func(t *sched.Task) {
				t.Sleep(time.Second)
				x.Store(t, i)
			})
		}
		w.Check(func() error {
			if x.Peek() == 0 {
				return errors.New("the first sleeper stores last")
			}
			return nil
		})
	}},
	// Two waits end by a timeout at the same time, which a task each brings about.
	{"two timeouts that are due together", anyEnd, func(w *explore.World) {
		var q [2]lock.WaitQueue
		var late [2]explore.Atomic[bool]
		var first explore.Atomic[int]
		for i := range 2 {
			q[i].Init(aClass)
			w.Go("waiter", func(t *sched.Task) {
				t.Go("timer", func(t *sched.Task) {
					t.Sleep(time.Second)
					late[i].Store(t, true)
					q[i].Wake(t)
				})
				q[i].Wait(t, func() bool { return late[i].Look(t) })
				first.CompareAndSwap(t, 0, 1+i)
			})
		}
		w.Check(func() error {
			if first.Peek() == 2 {
				return errors.New("the second wait ends first")
			}
			return nil
		})
	}},
	// A task that yields lets others go first. That it has done so was in no order and no object,
	// so DPOR did not know that the step before a yield cannot change places with a step of the
	// other task.
	{"a yield", anyEnd, func(w *explore.World) {
		var x explore.Atomic[int]
		var other, own explore.Atomic[int]
		seen := 0
		w.Go("adds", func(t *sched.Task) {
			other.Store(t, 1)
			other.Store(t, 2)
			x.Store(t, 1)
		})
		w.Go("yields", func(t *sched.Task) {
			own.Store(t, 1)
			t.Enter(sched.PointYield, 0, nil)
			seen = 1 + x.Load(t)
		})
		w.Check(func() error {
			if seen == 1 {
				return errors.New("the load comes first")
			}
			return nil
		})
	}},
	// A daemon need not end, and an execution ends in the midst of what it does. DPOR raced its
	// next operation and none after that.
	{"the second step of a daemon", early, func(w *explore.World) {
		var x, y explore.Atomic[int]
		seen := 0
		w.Task().Go("daemon", func(t *sched.Task) { y.Store(t, 1); x.Store(t, 1) })
		w.Go("user", func(t *sched.Task) { seen = x.Load(t) })
		w.Check(func() error {
			if seen == 1 {
				return errors.New("the daemon comes first")
			}
			return nil
		})
	}},
	// What a worker does has nothing to do with the last step of the task that queued the work, but
	// for the oracles.
	{"a work that ends before the tasks do", early, func(w *explore.World) {
		var x, y explore.Atomic[int]
		q := workqueue.New(w.Task(), "wq", workqueue.Config{Workers: 1}, func(t *sched.Task, _ int) { y.Store(t, 1); y.Store(t, 2) })
		work := &workqueue.Work[int]{}
		w.Go("user", func(t *sched.Task) { q.Queue(t, work); x.Load(t) })
		w.Check(func() error {
			if y.Peek() == 1 {
				return errors.New("the work is half done")
			}
			return nil
		})
	}},
	// A daemon's step takes no part in what the other tasks do.
	{"a daemon by itself", early, func(w *explore.World) {
		var x, y explore.Atomic[int]
		w.Task().Go("daemon", func(t *sched.Task) { y.Store(t, 1); y.Store(t, 2); y.Store(t, 3) })
		w.Go("user", func(t *sched.Task) { x.Store(t, 1) })
		w.Check(func() error {
			if y.Peek() == 2 {
				return errors.New("the daemon has done two steps")
			}
			return nil
		})
	}},
	// The last step of a task starts another one, which ends at once or serves. The start belongs
	// to that step, which can come last.
	{"an end that starts a task", early, func(w *explore.World) {
		var x, y explore.Atomic[int]
		w.Task().Go("daemon", func(t *sched.Task) { y.Store(t, 1) })
		w.Go("user", func(t *sched.Task) { x.Load(t); t.Go("child", func(*sched.Task) {}) })
		w.Check(func() error {
			if y.Peek() == 1 {
				return errors.New("the daemon comes first")
			}
			return nil
		})
	}},
	{"an end that starts a server", early, func(w *explore.World) {
		var x, y explore.Atomic[int]
		w.Task().Go("daemon", func(t *sched.Task) { y.Store(t, 1); y.Store(t, 2) })
		w.Go("user", func(t *sched.Task) { x.Load(t); t.Go("server", func(t *sched.Task) { t.Serve(&x); x.Load(t) }) })
		w.Check(func() error {
			if y.Peek() == 1 {
				return errors.New("the daemon has done one step")
			}
			return nil
		})
	}},
	// Bits of a tree that no task locks. State did not know the tree, and Set, Clear left what
	// Clear, Set does.
	{"bits without a range lock", anyEnd, func(w *explore.World) {
		var tree extentio.Tree
		tree.InitClass(aClass)
		found := true
		w.Go("clears", func(t *sched.Task) { tree.Clear(t, 4096, 12288, extentio.Delalloc) })
		w.Go("sets", func(t *sched.Task) {
			tree.Set(t, 4096, 12288, extentio.Delalloc)
			found = tree.Any(t, 4096, 12288, extentio.Delalloc)
		})
		w.Check(func() error {
			if !found {
				return errors.New("the bits are gone")
			}
			return nil
		})
	}},
	// Inc and Dec commute, but not below zero.
	{"a counter below zero", anyEnd, func(w *explore.World) {
		var c lock.Counter
		c.Init(aClass)
		w.Go("inc", func(t *sched.Task) { c.Inc(t) })
		w.Go("dec", func(t *sched.Task) { c.Dec(t) })
	}},
	// Two tasks take away what was there, and a third puts one there in time only if it comes
	// before the second.
	{"a counter below zero by two", anyEnd, func(w *explore.World) {
		var c lock.Counter
		c.Init(aClass)
		c.Inc(w.Task())
		w.Go("inc", func(t *sched.Task) { c.Inc(t) })
		w.Go("dec", func(t *sched.Task) { c.Dec(t) })
		w.Go("dec too", func(t *sched.Task) { c.Dec(t) })
	}},
	// A lock that was taken in another order makes a later access a race, though all values are the
	// same: State takes values for a state.
	{"a race after locks in another order", anyEnd, func(w *explore.World) {
		var mu lock.Mutex
		mu.Init(aClass)
		var v sched.Var[int]
		w.Go("first", func(t *sched.Task) { v.Store(t, 1); mu.Lock(t); mu.Unlock(t) })
		w.Go("second", func(t *sched.Task) {
			mu.Lock(t)
			mu.Unlock(t)
			t.Sleep(time.Second) // until the other has ended
			v.Load(t)
		})
	}},
	// The same by way of a third task, which took one lock before it knew of the store or after,
	// and knows of it by now in any case: what the lock hands on is in no task.
	{"a race after locks by way of another task", anyEnd, func(w *explore.World) {
		var a, b lock.Mutex
		a.Init(aClass)
		b.Init(bClass)
		var v sched.Var[int]
		w.Go("first", func(t *sched.Task) { v.Store(t, 1); a.Lock(t); a.Unlock(t) })
		w.Go("another", func(t *sched.Task) {
			for _, m := range []*lock.Mutex{&a, &b, nil, &a} {
				if m == nil {
					t.Sleep(time.Second) // until the first has ended
					continue
				}
				m.Lock(t)
				m.Unlock(t)
			}
		})
		w.Go("last", func(t *sched.Task) {
			t.Sleep(2 * time.Second) // until the others have ended
			b.Lock(t)
			b.Unlock(t)
			v.Load(t)
		})
	}},
	// DPOR takes two orders of steps that do not depend on each other for one, and so never sees
	// what is between them.
	{"an invariant between two steps", anyEnd, func(w *explore.World) {
		var x, y explore.Atomic[int]
		w.Go("x", func(t *sched.Task) { x.Store(t, 1); x.Store(t, 0) })
		w.Go("y", func(t *sched.Task) { y.Store(t, 1); y.Store(t, 0) })
		w.Invariant(func() error {
			if x.Peek()+y.Peek() == 2 {
				return errors.New("both are set")
			}
			return nil
		})
	}},
}

// plainField keeps who came last in a field under a lock that no search sees.
func plainField(w *explore.World) {
	var mu lock.Mutex
	mu.Init(aClass)
	var last, done int
	var bad bool
	for i := range 3 {
		w.Go("task", func(t *sched.Task) {
			mu.Lock(t)
			if i < 2 {
				last = i
			} else {
				bad = done == 2 && last == 0
			}
			mu.Unlock(t)
			done++
		})
	}
	w.Check(func() error {
		if bad {
			return errors.New("the first writer came last")
		}
		return nil
	})
}

// A field that no search sees, and State takes two states that differ in it for one. Prove says
// that its searches disagree, every time.
func TestProveDisagrees(t *testing.T) {
	for range 20 {
		r := explore.Run(explore.Config{Method: explore.Prove}, plainField)
		if r.Verdict != explore.Violated || r.Kind != explore.KindDisagree || !strings.Contains(r.Violation.String(), "dpor finds schedule") || !strings.Contains(r.Violation.String(), "the first writer came last") {
			t.Fatalf("%s: %s", r.Bound, r.Violation)
		}
	}
}

// With Config.Plain State sees what is in the program's plain fields by the order of what happened
// to them.
func TestPlain(t *testing.T) {
	if r := explore.Run(explore.Config{Method: explore.State, Plain: true}, plainField); r.Kind != explore.KindOracle {
		t.Errorf("%s, %s", r.Bound, r.Violation)
	}
	if r := explore.Run(explore.Config{Method: explore.Prove, Plain: true}, plainField); r.Kind != explore.KindOracle {
		t.Errorf("%s, %s", r.Bound, r.Violation)
	}
}

// A search by DPOR of a program that yields is one by Bound, and says so; a shard of it has
// searched nothing.
func TestYieldRefusesDPOR(t *testing.T) {
	prog := func(w *explore.World) {
		var x explore.Atomic[int]
		for range 2 {
			w.Go("task", func(t *sched.Task) { x.Store(t, 1); t.Enter(sched.PointYield, 0, nil); x.Store(t, 2) })
		}
	}
	r := explore.Run(explore.Config{Method: explore.DPOR}, prog)
	if r.Verdict != explore.Exhausted || r.Method != explore.Bound || !strings.Contains(r.Bound.String(), "not by dpor, which cannot judge yields, NOWAIT and invariants") {
		t.Errorf("%s by %s", r.Bound, r.Method)
	}
	if r := explore.Run(explore.Config{Method: explore.DPOR, Shards: 2}, prog); r.Verdict != explore.Bounded || !strings.Contains(r.Bound.String(), "cannot judge yields") {
		t.Errorf("%s by %s", r.Bound, r.Method)
	}
	if r := explore.Run(explore.Config{Method: explore.Prove}, prog); r.Verdict != explore.Exhausted || r.Method != explore.State {
		t.Errorf("%s by %s", r.Bound, r.Method)
	}
}

// Every search finds what a search once missed.
func TestUnsoundOnce(t *testing.T) {
	for _, tc := range unsoundOnce {
		for _, m := range searches {
			for _, settle := range []bool{false, true} {
				if tc.end == settled && !settle || tc.end == early && settle {
					continue
				}
				r := explore.Run(explore.Config{Method: m, Settle: settle}, tc.prog)
				if r.Verdict != explore.Violated || r.Kind == explore.KindDisagree {
					t.Errorf("%s by %s, settle %v: %s, %s", tc.name, m, settle, r.Bound, r.Violation)
				}
				if x := explore.Replay(explore.Config{Settle: settle}, r.Schedule, tc.prog); x.Verdict != r.Kind {
					t.Errorf("%s by %s: schedule %q is replayed as %s", tc.name, m, r.Schedule, x.Verdict)
				}
			}
		}
	}
}

// A try that failed and one that succeeded are the same steps of the same tasks, and leave the same
// once the holder has gone; only the task that tried knows the difference.
func TestTryIsInTheState(t *testing.T) {
	for _, want := range []bool{true, false} {
		r := explore.Run(explore.Config{Method: explore.State}, func(w *explore.World) {
			var mu lock.Mutex
			mu.Init(aClass)
			var own explore.Atomic[int]
			ended, bad := false, false
			w.Go("holder", func(t *sched.Task) {
				mu.Lock(t)
				mu.Unlock(t)
				ended = true
			})
			w.Go("tries", func(t *sched.Task) {
				got := mu.TryLock(t)
				own.Store(t, 1)
				bad = got == want && ended
				if got {
					mu.Unlock(t)
				}
			})
			w.Check(func() error {
				if bad {
					return errors.New("the holder has gone")
				}
				return nil
			})
		})
		if r.Kind != explore.KindOracle {
			t.Errorf("a try that comes to %v: %s", want, r.Bound)
		}
	}
}

// A right program in which one task can take one unit only and another can take either: the one
// that may choose must give way. DPOR must not call it wrong, or say that it has not tried
// everything.
func TestCounterMatching(t *testing.T) {
	set := func(ok bool) bool { return ok }
	for _, m := range searches {
		for takes := range 2 {
			r := explore.Run(explore.Config{Method: m}, func(w *explore.World) {
				var c lock.Counter
				var added [2]explore.Atomic[bool]
				c.Init(aClass)
				for i := range 2 {
					w.Go("adds", func(t *sched.Task) { c.Inc(t); added[i].Store(t, true) })
				}
				w.Go("takes one", func(t *sched.Task) { added[takes].Await(t, set); c.Dec(t) })
				w.Go("takes either", func(t *sched.Task) { added[0].Await(t, set); added[1].Await(t, set); c.Dec(t) })
			})
			if r.Verdict != explore.Exhausted {
				t.Errorf("%s: %s: %s", m, r.Bound, r.Violation)
			}
		}
	}
}

// A value that the program has told by a sched.Shared is a part of the state whether races are
// checked or not: with the same locks free and the same tasks ended, the last writer is another
// one.
func TestStateSeesShared(t *testing.T) {
	prog := func(w *explore.World) {
		var mu lock.Mutex
		mu.Init(aClass)
		data, name := new(sched.Shared), sharedName("v")
		v, n, seen := 0, 0, 0
		w.Go("reader", func(t *sched.Task) {
			mu.Lock(t)
			if data.Read(t, name); n == 2 {
				seen = v
			}
			mu.Unlock(t)
		})
		for i := range 2 {
			w.Go("writer", func(t *sched.Task) {
				mu.Lock(t)
				data.Write(t, name)
				v, n = i+1, n+1
				mu.Unlock(t)
			})
		}
		w.Check(func() error {
			if seen == 1 {
				return errors.New("the first writer was the last")
			}
			return nil
		})
	}
	for _, off := range []explore.Checks{0, explore.CheckRaces, ^explore.Checks(0)} {
		if r := explore.Run(explore.Config{Method: explore.State, Off: off}, prog); r.Verdict != explore.Violated {
			t.Errorf("without checks %#x: %s", off, r.Bound)
		}
	}
}

type sharedName string

func (s sharedName) String() string { return string(s) }

// A decrement that the clock keeps after its increment: the clock moves when no task can run. DPOR
// said that it had not tried everything.
func TestCounterAfterSleep(t *testing.T) {
	for _, m := range searches {
		r := explore.Run(explore.Config{Method: m}, func(w *explore.World) {
			var c lock.Counter
			c.Init(aClass)
			w.Go("sleeps", func(t *sched.Task) { t.Sleep(time.Second); c.Dec(t) })
			w.Go("adds", func(t *sched.Task) { c.Inc(t) })
		})
		if r.Verdict != explore.Exhausted {
			t.Errorf("%s: %s: %s", m, r.Bound, r.Violation)
		}
	}
}

package explore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// unsoundOnce are small programs whose violation a search once missed and said "exhausted", each with the reason.
var unsoundOnce = []struct {
	name string
	prog func(w *explore.World)
}{
	// Two tasks wait for a condition and a third wakes one. The hash of the state had that both wait, not who came first, so the two
	// orders of waiting were one state, and only the first that came was ever woken.
	{"the order of waiters", func(w *explore.World) {
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
	// A task that got a range and one that found it busy had done the same, as far as the hash of the state went, and so had the tree.
	{"a range that is busy", func(w *explore.World) {
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
	// Blind stores to two words that have no name. The hash of the state had the values in the order in which the words were used first, so
	// that x=2, y=1 after x was used first was the same as x=1, y=2 after y was.
	{"which word has which value", func(w *explore.World) {
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
	{"two sleepers that are due together", func(w *explore.World) {
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
	{"two timeouts that are due together", func(w *explore.World) {
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
	// A task that yields lets others go first. That it has done so was in no order and no object, so DPOR did not know that the step before
	// a yield cannot change places with a step of the other task.
	{"a yield", func(w *explore.World) {
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

// A field that no search sees, and State takes two states that differ in it for one. Prove says that its searches disagree, every time.
func TestProveDisagrees(t *testing.T) {
	for range 20 {
		r := explore.Run(explore.Config{Method: explore.Prove}, plainField)
		if r.Verdict != explore.Violated || r.Kind != explore.KindDisagree || !strings.Contains(r.Violation.String(), "dpor finds schedule") || !strings.Contains(r.Violation.String(), "the first writer came last") {
			t.Fatalf("%s: %s", r.Bound, r.Violation)
		}
	}
}

// With Config.Plain State sees what is in the program's plain fields by the order of what happened to them.
func TestPlain(t *testing.T) {
	if r := explore.Run(explore.Config{Method: explore.State, Plain: true}, plainField); r.Kind != explore.KindOracle {
		t.Errorf("%s, %s", r.Bound, r.Violation)
	}
	if r := explore.Run(explore.Config{Method: explore.Prove, Plain: true}, plainField); r.Kind != explore.KindOracle {
		t.Errorf("%s, %s", r.Bound, r.Violation)
	}
}

// A search by DPOR of a program that yields is one by Bound, and says so; a shard of it has searched nothing.
func TestYieldRefusesDPOR(t *testing.T) {
	prog := func(w *explore.World) {
		var x explore.Atomic[int]
		for range 2 {
			w.Go("task", func(t *sched.Task) { x.Store(t, 1); t.Enter(sched.PointYield, 0, nil); x.Store(t, 2) })
		}
	}
	r := explore.Run(explore.Config{Method: explore.DPOR}, prog)
	if r.Verdict != explore.Exhausted || r.Method != explore.Bound || !strings.Contains(r.Bound.String(), "not by dpor, which cannot judge yields and NOWAIT") {
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
			if r := explore.Run(explore.Config{Method: m, Settle: true}, tc.prog); r.Kind != explore.KindOracle {
				t.Errorf("%s by %s: %s, %s", tc.name, m, r.Bound, r.Violation)
			}
		}
	}
}

// A try that failed and one that succeeded are the same steps of the same tasks, and leave the same once the holder has gone; only the
// task that tried knows the difference.
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

package explore_test

import (
	"fmt"
	"testing"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

var (
	aClass = lockdep.NewClass("a", lockdep.RankNone)
	bClass = lockdep.NewClass("b", lockdep.RankNone)
)

// p1 is the lost update: two tasks read and write a word without a lock.
func p1(w *explore.World) {
	x := new(sched.Atomic[int])
	w.Name(x, "x")
	for i := range 2 {
		w.Go(fmt.Sprint("task", i), func(t *sched.Task) {
			v := x.Load(t)
			x.Store(t, v+1)
		})
	}
	w.Check(func() error {
		if x.Peek() != 2 {
			return fmt.Errorf("lost update: x is %d, want 2", x.Peek())
		}
		return nil
	})
}

// p2 is n tasks with m sections each over one mutex.
func p2(n, m int) func(w *explore.World) {
	return func(w *explore.World) {
		mu := new(lock.Mutex)
		mu.Init(aClass)
		w.Name(mu, "mu")
		body := func(t *sched.Task) {
			for range m {
				mu.Lock(t)
				mu.Unlock(t)
			}
		}
		for range n {
			w.Go("task", body)
		}
	}
}

// p3 is three tasks with two sections each that take two mutexes; inverted, the last task takes them in the other order.
func p3(inverted bool) func(w *explore.World) {
	return func(w *explore.World) {
		a, b := new(lock.Mutex), new(lock.Mutex)
		a.Init(aClass)
		b.Init(bClass)
		w.Name(a, "a")
		w.Name(b, "b")
		for i := range 3 {
			x, y := a, b
			if inverted && i == 2 {
				x, y = b, a
			}
			w.Go(fmt.Sprint("task", i), func(t *sched.Task) {
				for range 2 {
					x.Lock(t)
					y.Lock(t)
					y.Unlock(t)
					x.Unlock(t)
				}
			})
		}
	}
}

func TestScratch(t *testing.T) {
	for _, m := range []explore.Method{explore.DPOR, explore.Random} {
		show := func(name string, c explore.Config, f func(*explore.World)) {
			c.Method = m
			c.Schedules = 200000
			r := explore.Run(c, f)
			t.Logf("%s %s: %s %s %q found %d cut %d pre %d %.4fs %.0f/s\n%s", name, m, r.Verdict, r.Bound, r.Schedule, r.Found, r.Cut, r.Preemptions, r.Seconds, float64(r.Schedules)/r.Seconds, r.Violation)
		}
		show("p1", explore.Config{}, p1)
		show("p2 2x3", explore.Config{}, p2(2, 3))
		show("p2 3x3", explore.Config{}, p2(3, 3))
		show("p3 inv", explore.Config{}, p3(true))
		show("p3 inv, no order", explore.Config{Off: explore.CheckLockOrder}, p3(true))
		show("p3", explore.Config{}, p3(false))
	}
}

package vtime_test

import (
	"testing"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// TestGoLocks: a writer under Machine.GoLocks waits as sync.Mutex lets it, step by step. Each
// program has an answer by hand; the locks of Linux give another one. A pause between two looks is
// 1.5 us, and there are four.
func TestGoLocks(t *testing.T) {
	const us = int64(time.Microsecond)
	charge := func(k *sched.Task, d int64) { k.Charge(time.Duration(d)) }
	var at [3]int64
	for _, c := range []struct {
		name string
		cpus int
		prog func(k *sched.Task, s *lock.RWSem)
		want [3]int64
		spun int64
	}{
		// It comes at 1 and looks at 2.5 and at 4, when the lock has been free since 3: nobody
		// tells a spinner.
		{"a spinner looks", 3, func(k *sched.Task, s *lock.RWSem) {
			owner := k.Go("owner", func(k *sched.Task) { s.Lock(k); charge(k, 3*us); s.Unlock(k); at[0] = k.Now() })
			other := k.Go("other", func(k *sched.Task) { charge(k, 1*us); s.Lock(k); at[1] = k.Now(); s.Unlock(k) })
			k.Join(owner)
			k.Join(other)
		}, [3]int64{3 * us, 4 * us}, 3 * us},
		// A spinlock of the real runtime is a mutex of Go.
		{"a spinlock's spinner looks", 3, func(k *sched.Task, _ *lock.RWSem) {
			var m lock.Mutex
			m.Init(classLeaf)
			owner := k.Go("owner", func(k *sched.Task) { m.Lock(k); charge(k, 3*us); m.Unlock(k); at[0] = k.Now() })
			other := k.Go("other", func(k *sched.Task) { charge(k, 1*us); m.Lock(k); at[1] = k.Now(); m.Unlock(k) })
			k.Join(owner)
			k.Join(other)
		}, [3]int64{3 * us, 4 * us}, 3 * us},
		// After four looks it sleeps, at 7, and is woken.
		{"four looks and to bed", 3, func(k *sched.Task, s *lock.RWSem) {
			owner := k.Go("owner", func(k *sched.Task) { s.Lock(k); charge(k, 20*us); s.Unlock(k); at[0] = k.Now() })
			other := k.Go("other", func(k *sched.Task) { charge(k, 1*us); s.Lock(k); at[1] = k.Now(); s.Unlock(k) })
			k.Join(owner)
			k.Join(other)
		}, [3]int64{20 * us, 20 * us}, 6 * us},
		// The owner comes back before the other is up, which costs 50 us; awake, it looks in vain
		// and sleeps again. It has waited for more than a millisecond when that happens for the
		// eleventh time or so, and the lock is handed to it.
		{"a waiter starves for a millisecond", 3, func(k *sched.Task, s *lock.RWSem) {
			other := k.Go("other", func(k *sched.Task) { charge(k, 51*us); s.Lock(k); at[1] = k.Now(); s.Unlock(k) })
			owner := k.Go("owner", func(k *sched.Task) {
				for at[1] == 0 && k.Now() < 5000*us {
					s.Lock(k)
					charge(k, 90*us)
					s.Unlock(k)
					charge(k, 100)
				}
				at[0] = k.Now()
			})
			k.Join(owner)
			k.Join(other)
			at[0], at[2] = 0, at[1]/(1000*us) // how many milliseconds
			at[1] = 0
		}, [3]int64{0, 0, 1}, -1},
		// Readers wait for a writer, and a writer for readers.
		{"readers", 4, func(k *sched.Task, s *lock.RWSem) {
			writer := k.Go("writer", func(k *sched.Task) { s.Lock(k); charge(k, 10*us); s.Unlock(k) })
			reader := k.Go("reader", func(k *sched.Task) { charge(k, 1*us); s.RLock(k); at[0] = k.Now(); charge(k, 20*us); s.RUnlock(k) })
			second := k.Go("second", func(k *sched.Task) { charge(k, 15*us); s.Lock(k); at[1] = k.Now(); charge(k, 5*us); s.Unlock(k) })
			late := k.Go("late", func(k *sched.Task) { charge(k, 16*us); s.RLock(k); at[2] = k.Now(); s.RUnlock(k) })
			for _, x := range []*sched.Task{writer, reader, second, late} {
				k.Join(x)
			}
		}, [3]int64{10 * us, 30 * us, 35 * us}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			at = [3]int64{}
			table := cost.Table{CPU: 1}
			if c.spun < 0 {
				table.Entries[cost.IdleExit].Nano = 50_000
			}
			st := simulate(t, vtime.Machine{CPUs: c.cpus, Costs: &table, GoLocks: true, Checked: true}, func(k *sched.Task) {
				var s lock.RWSem
				s.Init(classSem)
				c.prog(k, &s)
			})
			if at != c.want || c.spun >= 0 && st.Spun != c.spun {
				t.Errorf("have %v, %d ns spun, want %v, %d\n%+v", at, st.Spun, c.want, c.spun, st)
			}
		})
	}
}

// TestGoLockLines: a lock that another CPU had last costs its line and one of what it protects. The
// second moves while the lock is held: who comes then pauses.
func TestGoLockLines(t *testing.T) {
	const us = int64(time.Microsecond)
	table := cost.Table{CPU: 1}
	table.Entries[cost.Line].Nano = 100
	var at [4]int64
	st := simulate(t, vtime.Machine{CPUs: 3, Costs: &table, GoLocks: true, Checked: true}, func(k *sched.Task) {
		var m lock.Mutex
		m.Init(classLeaf)
		take := func(k *sched.Task, i int, comes int64) {
			k.Charge(time.Duration(comes - k.Now()))
			m.Lock(k)
			at[i] = k.Now()
			m.Unlock(k)
		}
		b := k.Go("b", func(k *sched.Task) { take(k, 1, 10*us) })
		c := k.Go("c", func(k *sched.Task) { take(k, 2, 10*us+50) })
		take(k, 0, 5*us)
		k.Join(b)
		k.Join(c)
		take(k, 3, 50*us)
	})
	// c has paid the lock's line when it finds it held, at 10.15, and pays it again after the
	// pause.
	want := [4]int64{5 * us, 10*us + 200, 11*us + 650 + 200, 50*us + 200}
	if at != want || st.Spun != 1500 {
		t.Errorf("have %v, %d ns spun, want %v", at, st.Spun, want)
	}
}

package vtime_test

import (
	"testing"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

// TestCostsAreSeen: what a wait, a switch or a cache line costs is on the clock, to the nanosecond.
// In each program one thing costs something and the rest is free, so that the answer is a sum that
// one can do by hand. If a cost is not charged, the whole file system still runs and every figure
// is wrong.
func TestCostsAreSeen(t *testing.T) {
	const us = int64(time.Microsecond)
	charge := func(k *sched.Task, d int64) { k.Charge(time.Duration(d)) }
	join := func(k *sched.Task, all ...*sched.Task) {
		for _, x := range all {
			k.Join(x)
		}
	}
	var at [4]int64 // what the program notes
	for _, c := range []struct {
		name string
		cpus int
		cost map[sched.Cost]float64 // nanoseconds
		prog func(k *sched.Task)
		want [4]int64
		spun int64
	}{
		// The waker pays before the sleeper is up.
		{"wake-up", 3, map[sched.Cost]float64{cost.Wakeup: 1000}, func(k *sched.Task) {
			sleeper := k.Go("sleeper", func(k *sched.Task) {
				k.Park(classSem.ID)
				at[0] = k.Now()
			})
			waker := k.Go("waker", func(k *sched.Task) {
				charge(k, 10*us)
				sleeper.Unpark()
				charge(k, 5*us)
				at[1] = k.Now()
			})
			join(k, sleeper, waker)
		}, [4]int64{11 * us, 16 * us}, 0},
		{"wake-up of a queued writer", 3, map[sched.Cost]float64{cost.Wakeup: 1000}, func(k *sched.Task) {
			var s lock.RWSem
			s.Init(classSem)
			owner := k.Go("owner", func(k *sched.Task) {
				s.Lock(k)
				k.Sleep(10 * time.Microsecond) // nobody spins on a sleeper
				s.Unlock(k)
				at[0] = k.Now()
			})
			waiter := k.Go("waiter", func(k *sched.Task) {
				charge(k, 1*us)
				s.Lock(k)
				at[1] = k.Now()
				s.Unlock(k)
			})
			join(k, owner, waiter)
		}, [4]int64{11 * us, 11 * us}, 0},
		{"idle exit", 2, map[sched.Cost]float64{cost.IdleExit: 2000}, func(k *sched.Task) {
			at[0] = k.Now() // the start of a run is a wake-up as well
			k.Sleep(10 * time.Microsecond)
			at[1] = k.Now()
		}, [4]int64{2 * us, 14 * us}, 0},
		// An idle CPU switches as well: main pays once, a and b once each, and main again.
		{"switch", 1, map[sched.Cost]float64{cost.Switch: 3000}, func(k *sched.Task) {
			a := k.Go("a", func(k *sched.Task) { at[0] = k.Now(); charge(k, 10*us) })
			b := k.Go("b", func(k *sched.Task) { at[1] = k.Now(); charge(k, 10*us) })
			join(k, a, b)
			at[2] = k.Now()
		}, [4]int64{6 * us, 19 * us, 32 * us}, 0},
		// A lock costs its line when another CPU wrote it last, and only then.
		{"line of a spinlock", 2, map[sched.Cost]float64{cost.Lock: 10, cost.Line: 100}, func(k *sched.Task) {
			var m lock.Mutex
			m.Init(classLeaf)
			take := func(k *sched.Task, i int) {
				from := k.Now()
				m.Lock(k)
				at[i] = k.Now() - from
				m.Unlock(k)
			}
			take(k, 0)
			take(k, 1)
			b := k.Go("b", func(k *sched.Task) { take(k, 2) })
			charge(k, 10*us)
			k.Join(b)
			take(k, 3)
		}, [4]int64{10, 10, 110, 110}, 0},
		// Its line moves once it is free, so the second comer pays it after the wait, and has the
		// lock meanwhile.
		{"line of a spinlock that is held", 3, map[sched.Cost]float64{cost.Line: 100}, func(k *sched.Task) {
			var m lock.Mutex
			m.Init(classLeaf)
			take := func(i int, comes int64) *sched.Task {
				return k.Go("task", func(k *sched.Task) {
					charge(k, comes)
					m.Lock(k)
					at[i] = k.Now()
					charge(k, 500)
					m.Unlock(k)
				})
			}
			join(k, take(0, 100), take(1, 200), take(2, 300))
		}, [4]int64{100, 700, 1300}, 400 + 900},
		{"line of a semaphore", 2, map[sched.Cost]float64{cost.Lock: 10, cost.Line: 100}, func(k *sched.Task) {
			var s lock.RWSem
			s.Init(classSem)
			take := func(k *sched.Task, i int) {
				from := k.Now()
				s.Lock(k)
				at[i] = k.Now() - from
				s.Unlock(k)
			}
			take(k, 0)
			b := k.Go("b", func(k *sched.Task) { take(k, 1); take(k, 2) })
			charge(k, 10*us)
			k.Join(b)
			take(k, 3)
		}, [4]int64{10, 110, 10, 110}, 0},
		// A spinner has the lock one line after it was let go.
		{"line of a lock that is handed to a spinner", 3, map[sched.Cost]float64{cost.Line: 1000}, func(k *sched.Task) {
			var s lock.RWSem
			s.Init(classSem)
			owner := k.Go("owner", func(k *sched.Task) {
				s.Lock(k)
				charge(k, 20*us)
				s.Unlock(k)
				at[0] = k.Now()
			})
			spinner := k.Go("spinner", func(k *sched.Task) {
				charge(k, 5*us)
				s.Lock(k)
				at[1] = k.Now()
				s.Unlock(k)
			})
			join(k, owner, spinner)
			// it comes at 5, and has paid a line when it begins to spin at 6
		}, [4]int64{20 * us, 21 * us}, 14 * us},
		// A spinner goes to bed with the owner, and who comes later does not spin at all.
		{"the owner sleeps", 4, nil, func(k *sched.Task) {
			var s lock.RWSem
			s.Init(classSem)
			owner := k.Go("owner", func(k *sched.Task) {
				s.Lock(k)
				charge(k, 10*us)
				k.Sleep(100 * time.Microsecond)
				s.Unlock(k)
			})
			writer := func(i int, after int64) *sched.Task {
				return k.Go("writer", func(k *sched.Task) {
					charge(k, after)
					s.Lock(k)
					at[i] = k.Now()
					s.Unlock(k)
				})
			}
			join(k, owner, writer(0, 5*us), writer(1, 20*us))
		}, [4]int64{110 * us, 110 * us}, 5 * us},
	} {
		t.Run(c.name, func(t *testing.T) {
			at = [4]int64{}
			table := cost.Table{CPU: 1}
			for id, ns := range c.cost {
				table.Entries[id].Nano = ns
			}
			st := simulate(t, vtime.Machine{CPUs: c.cpus, Costs: &table, Checked: true}, c.prog)
			if at != c.want || st.Spun != c.spun {
				t.Errorf("have %v, %d ns spun, want %v, %d\n%+v", at, st.Spun, c.want, c.spun, st)
			}
		})
	}
}

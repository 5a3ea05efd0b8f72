package vtime_test

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
)

var (
	classSem  = lockdep.NewTestClass("vtime_test_sem", "i_rwsem")
	classLeaf = lockdep.NewTestClass("vtime_test_leaf", "space_info")
	classPage = lockdep.NewTestClass("vtime_test_page", "page")
)

// free is a machine on which nothing costs time but what a test charges.
func free(cpus int) vtime.Machine {
	return vtime.Machine{CPUs: cpus, Costs: &cost.Table{}, Checked: true}
}

func simulate(t *testing.T, m vtime.Machine, prog func(k *sched.Task)) vtime.Stats {
	t.Helper()
	st, err := vtime.Run(m, prog)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Work of W on N CPUs takes W/N when it divides, and a slice at a time is fair.
func TestCPUs(t *testing.T) {
	for _, c := range []struct {
		cpus, tasks int
		want        time.Duration
	}{{1, 4, 40 * time.Millisecond}, {2, 4, 20 * time.Millisecond}, {4, 4, 10 * time.Millisecond}, {8, 4, 10 * time.Millisecond}} {
		for _, per := range []bool{false, true} {
			m := free(c.cpus)
			m.PerCPU = per
			var ends []int64
			st := simulate(t, m, func(k *sched.Task) {
				var all []*sched.Task
				for i := range c.tasks {
					all = append(all, k.Go(fmt.Sprint("w", i), func(k *sched.Task) {
						for range 1000 {
							k.Charge(10 * time.Microsecond)
						}
						ends = append(ends, k.Now())
					}))
				}
				for _, w := range all {
					k.Join(w)
				}
			})
			if time.Duration(st.Now) != c.want || st.CPUBusy != int64(c.tasks)*1e7 {
				t.Errorf("%d tasks on %d cpus, per cpu %v: %v, busy %v", c.tasks, c.cpus, per, time.Duration(st.Now), time.Duration(st.CPUBusy))
			}
			if c.cpus == 1 && !per && ends[0] < int64(30*time.Millisecond) {
				t.Errorf("first end at %v: no time slices", time.Duration(ends[0]))
			}
		}
	}
}

// Sleepers wake in order of their time, then of their call, and use no CPU.
func TestSleep(t *testing.T) {
	var log []string
	st := simulate(t, free(2), func(k *sched.Task) {
		var all []*sched.Task
		for i, d := range []int{3, 1, 2, 1} {
			all = append(all, k.Go(fmt.Sprint(i), func(k *sched.Task) {
				k.Sleep(time.Duration(d) * time.Second)
				log = append(log, fmt.Sprint(k.Name, "@", k.Now()/1e9))
			}))
		}
		for _, w := range all {
			k.Join(w)
		}
	})
	if got := strings.Join(log, " "); got != "1@1 3@1 2@2 0@3" || st.CPUBusy != 0 {
		t.Errorf("%s, busy %d", got, st.CPUBusy)
	}
}

// A task that nobody wakes is an error that names it.
func TestStuck(t *testing.T) {
	_, err := vtime.Run(free(1), func(k *sched.Task) {
		var m lock.Mutex
		m.Init(classSem)
		c := k.Go("loser", func(k *sched.Task) { k.Park(classSem.ID) })
		k.Join(c)
	})
	if err == nil || !strings.Contains(err.Error(), "loser#1 waits for vtime_test_sem") {
		t.Errorf("%v", err)
	}
}

// critical lets tasks take one lock for hold, n times each, sleeping in sleep of them with it, and
// gives the order of entry.
func critical(k *sched.Task, tasks, n int, hold, pause time.Duration, inside func(k *sched.Task)) string {
	var s lock.RWSem
	s.Init(classSem)
	return criticalBy(k, &s, tasks, n, hold, pause, inside)
}

// criticalBy is critical with a lock.
func criticalBy(k *sched.Task, s *lock.RWSem, tasks, n int, hold, pause time.Duration, inside func(k *sched.Task)) string {
	var order []string
	var all []*sched.Task
	for i := range tasks {
		all = append(all, k.Go(fmt.Sprint(i), func(k *sched.Task) {
			for range n {
				s.Lock(k)
				order = append(order, k.Name)
				if inside != nil {
					inside(k)
				}
				k.Charge(hold)
				s.Unlock(k)
				k.Charge(pause)
			}
		}))
	}
	for _, w := range all {
		k.Join(w)
	}
	return strings.Join(order, "")
}

// While the owner runs the others spin, first come first served: strict rotation, and nobody
// sleeps.
func TestSpin(t *testing.T) {
	var order string
	st := simulate(t, free(4), func(k *sched.Task) {
		order = critical(k, 3, 4, 10*time.Microsecond, time.Microsecond, nil)
	})
	if order != "012012012012" || st.Spun == 0 || st.Handoffs != 0 {
		t.Errorf("%s %+v", order, st)
	}
	m := free(4)
	m.NoSpin = true
	if st := simulate(t, m, func(k *sched.Task) { order = critical(k, 3, 4, 10*time.Microsecond, time.Microsecond, nil) }); st.Spun != 0 {
		t.Errorf("without spinning: %s %+v", order, st)
	}
}

// An owner that sleeps sends the spinners to bed. From then on it steals the lock back before the
// first sleeper is up, until, with handoff, the sleeper has waited 4 ms; before Linux 5.3 it goes
// on as long as it likes. A lock may be of that time on a machine that hands over.
func TestStealAndHandoff(t *testing.T) {
	table := cost.Table{CPU: 1}
	table.Entries[cost.IdleExit].Nano = 20000
	run := func(handoff time.Duration, on bool) (string, vtime.Stats) {
		m := free(4)
		m.Costs, m.Handoff = &table, handoff
		var order string
		st := simulate(t, m, func(k *sched.Task) {
			first := true
			var s lock.RWSem
			s.InitHandoff(classSem)
			s.SetHandoff(on)
			order = criticalBy(k, &s, 2, 1000, 10*time.Microsecond, time.Microsecond, func(k *sched.Task) {
				if first {
					first = false
					k.Sleep(100 * time.Microsecond)
				}
			})
		})
		return order, st
	}
	old, was := run(-1, true)
	if i := strings.IndexByte(old, '1'); i < 1000 && was.Stolen < 500 || was.Handoffs != 0 {
		t.Errorf("without handoff the other got in after %d, %+v", i, was)
	}
	if order, st := run(4*time.Millisecond, false); order != old || st != was {
		t.Errorf("a lock that does not hand over on a machine that does: %+v, want %+v", st, was)
	}
	fair, st := run(4*time.Millisecond, true)
	i := strings.IndexByte(fair, '1')
	if i < 300 || i > 500 || st.Handoffs == 0 {
		t.Errorf("with handoff the other got in after %d entries of 11 us, want about 4 ms; %+v", i, st)
	}
}

// A queued writer that has waited for 4 ms insists, and spins while the owner runs: the lock
// changes hands without a wake-up, so it is never idle however long a CPU takes to wake. Once all
// queued for good, each is the heir of the one before, as its own 4 ms are long over: without the
// spinning every change of hands would cost a wake-up, and the lock would be idle most of the time.
func TestHeirSpins(t *testing.T) {
	table := cost.Table{CPU: 1}
	table.Entries[cost.IdleExit].Nano = 50000
	m := free(8)
	m.Costs = &table
	var idle, entries, last int64
	st := simulate(t, m, func(k *sched.Task) {
		var s lock.RWSem
		s.Init(classSem)
		var all []*sched.Task
		for i := range 6 {
			all = append(all, k.Go(fmt.Sprint(i), func(k *sched.Task) {
				for k.Now() < 100e6 {
					s.Lock(k)
					if last > 0 {
						idle = max(idle, k.Now()-last)
					}
					entries++
					if entries%1000 == 1 {
						k.Sleep(100 * time.Microsecond) // sends the others to the queue
					}
					k.Charge(10 * time.Microsecond)
					last = k.Now()
					s.Unlock(k)
					k.Charge(time.Microsecond)
				}
			}))
		}
		for _, w := range all {
			k.Join(w)
		}
	})
	// When all others sleep the owner itself comes back first, after its microsecond.
	if st.Handoffs < 20 || idle != 1000 {
		t.Errorf("idle for %v at a time between %d entries, want 1us; %+v", time.Duration(idle), entries, st)
	}
}

// Noise takes a share of a task's time and sends spinners to sleep. The seed says when.
func TestNoise(t *testing.T) {
	run := func(seed uint64, tasks int) (vtime.Stats, string) {
		m := free(4)
		m.Noise = vtime.Noise{PerSec: 1000, Mean: 100 * time.Microsecond, Seed: seed}
		var order string
		st := simulate(t, m, func(k *sched.Task) {
			order = critical(k, tasks, 20_000, 10*time.Microsecond, 0, nil)
		})
		return st, order
	}
	// 200 ms of work, hit 200 times for 100 us: 20 ms more. The bounds are four sigmas of each.
	st, _ := run(1, 1)
	if more := st.Now - 200e6; st.Hits < 143 || st.Hits > 257 || more < 12e6 || more > 28e6 || st.CPUBusy != st.Now {
		t.Errorf("%d hits, %v more, %+v", st.Hits, time.Duration(more), st)
	}
	// Three who spin take turns for ever, until noise comes.
	a, order := run(1, 3)
	if turns := strings.Repeat("012", 20_000); order == turns || !strings.HasPrefix(order, turns[:9]) || a.Switches < 50 {
		t.Errorf("%.90s, %+v", order, a)
	}
	if b, again := run(1, 3); b != a || again != order {
		t.Errorf("the same seed: %+v, %+v", a, b)
	}
	if b, other := run(2, 3); b == a || other == order {
		t.Errorf("another seed: %+v", b)
	}
}

// An idle CPU comes after cost.IdleExit times a factor of its own each time.
func TestWakeNoise(t *testing.T) {
	table := cost.Table{CPU: 1}
	table.Entries[cost.IdleExit].Nano = 1000
	m := vtime.Machine{CPUs: 2, Costs: &table, Noise: vtime.Noise{Wake: 0.5}}
	var late []int64
	simulate(t, m, func(k *sched.Task) {
		for range 1000 {
			at := k.Now()
			k.Sleep(time.Millisecond)
			late = append(late, k.Now()-at-1e6)
		}
	})
	slices.Sort(late)
	// The median of exp(N(0, 0.5)) is 1, the quartiles are 0.71 and 1.4.
	if q1, q2, q3 := late[250], late[500], late[750]; q1 < 650 || q1 > 780 || q2 < 920 || q2 > 1080 || q3 < 1290 || q3 > 1530 {
		t.Errorf("quartiles %d %d %d", q1, q2, q3)
	}
}

// Readers share. A writer watches two readers for (10 + 2/2) us before it queues; a reader that
// comes meanwhile still gets in, later ones queue after the writer and enter together.
func TestReaders(t *testing.T) {
	var log []string
	simulate(t, free(8), func(k *sched.Task) {
		var s lock.RWSem
		s.Init(classSem)
		go1 := func(name string, at int, read bool) *sched.Task {
			return k.Go(name, func(k *sched.Task) {
				k.Sleep(time.Duration(at) * time.Microsecond)
				if read {
					s.RLock(k)
				} else {
					s.Lock(k)
				}
				log = append(log, fmt.Sprint(name, "@", k.Now()/1000))
				k.Sleep(100 * time.Microsecond)
				if read {
					s.RUnlock(k)
				} else {
					s.Unlock(k)
				}
			})
		}
		all := []*sched.Task{go1("r", 0, true), go1("s", 10, true), go1("w", 20, false), go1("t", 30, true), go1("u", 32, true), go1("v", 40, true)}
		for _, w := range all {
			k.Join(w)
		}
		if !s.TryRLock(k) || s.TryLock(k) {
			t.Error("try of a free lock, or of one that is read")
		}
		s.RUnlock(k)
	})
	if got := strings.Join(log, " "); got != "r@0 s@10 t@30 w@130 u@230 v@230" {
		t.Error(got)
	}
}

// A writer that has watched readers in vain stops all writers from spinning, and only until those
// readers have gone: a writer that meets the next ones spins again, and has the lock without a
// wake-up. Linux forgets RWSEM_NONSPINNABLE when the last reader leaves (rwsem_wake); a lock that
// never did would send every writer to sleep at readers for good, once one of them had been slow.
func TestSpinsAgain(t *testing.T) {
	table := cost.Table{CPU: 1}
	table.Entries[cost.IdleExit].Nano = 50000 // what a sleep costs
	m := free(4)
	m.Costs = &table
	var at []int64 // how long after the readers' end a writer has the lock
	st := simulate(t, m, func(k *sched.Task) {
		var s lock.RWSem
		s.Init(classSem)
		// met has a writer come to a reader that stays for hold.
		met := func(hold time.Duration) {
			var left int64
			r := k.Go("r", func(k *sched.Task) {
				s.RLock(k)
				k.Sleep(hold)
				left = k.Now()
				s.RUnlock(k)
			})
			w := k.Go("w", func(k *sched.Task) {
				k.Sleep(time.Microsecond)
				s.Lock(k)
				at = append(at, k.Now()-left)
				s.Unlock(k)
			})
			k.Join(r)
			k.Join(w)
		}
		met(5 * time.Microsecond)   // it spins until the reader leaves
		met(500 * time.Microsecond) // in vain: it goes to sleep
		met(5 * time.Microsecond)   // and the next one spins again
	})
	if len(at) != 3 || at[0] >= 50000 || at[1] < 50000 || at[2] != at[0] || st.Spun == 0 {
		t.Errorf("after the reader's end the writers have the lock in %d ns, want a wake-up of 50000 for the second only; %+v", at, st)
	}
}

// A task's own time may be ahead of the clock, so tasks come to a spinlock out of order. Each waits
// for the hold that it meets, and for no other: one that comes before a hold has the lock first,
// and the hold that is noted later is not forgotten for it. One that has no room between two holds
// waits for both, whichever was noted first.
func TestSpinlockOutOfOrder(t *testing.T) {
	got := map[string]int64{}
	st := simulate(t, free(4), func(k *sched.Task) {
		var m lock.Mutex
		m.Init(classLeaf)
		task := func(name string, comes, holds int64) *sched.Task {
			return k.Go(name, func(k *sched.Task) {
				k.Charge(time.Duration(comes))
				m.Lock(k)
				got[name] = k.Now()
				k.Charge(time.Duration(holds))
				m.Unlock(k)
			})
		}
		for _, x := range []*sched.Task{task("late", 900, 500), task("early", 350, 500), task("amid", 400, 100), task("last", 920, 100)} {
			k.Join(x)
		}
	})
	if want := map[string]int64{"late": 900, "early": 350, "amid": 1400, "last": 1500}; !maps.Equal(got, want) || st.Spun != 1000+580 {
		t.Errorf("the lock is had at %v, want %v; %d ns spun", got, want, st.Spun)
	}
}

// A spinlock costs the second comer the rest of the first one's time, and no switch.
func TestSpinlock(t *testing.T) {
	var ends []int64
	st := simulate(t, free(2), func(k *sched.Task) {
		var m lock.Mutex
		m.Init(classLeaf)
		f := func(k *sched.Task) {
			m.Lock(k)
			k.Charge(700 * time.Nanosecond)
			m.Unlock(k)
			ends = append(ends, k.Now())
		}
		a, b := k.Go("a", f), k.Go("b", f)
		k.Join(a)
		k.Join(b)
	})
	if !slices.Equal(ends, []int64{700, 1400}) || st.Spun != 700 {
		t.Errorf("%v %+v", ends, st)
	}
	// Longer than a task may be ahead of the clock: it is not interrupted all the same.
	ends = nil
	st = simulate(t, free(2), func(k *sched.Task) {
		var m lock.Mutex
		m.Init(classLeaf)
		f := func(k *sched.Task) {
			m.Lock(k)
			k.Charge(3 * time.Microsecond)
			m.Unlock(k)
			ends = append(ends, k.Now())
		}
		a, b := k.Go("a", f), k.Go("b", f)
		k.Join(a)
		k.Join(b)
	})
	if !slices.Equal(ends, []int64{3000, 6000}) || st.Spun != 3000 {
		t.Errorf("%v %+v", ends, st)
	}
}

// The whole file system, many times, on one and on two processors: the same counts to the last
// event.
func TestSameEveryTime(t *testing.T) {
	n := 40
	if testing.Short() {
		n = 10
	}
	var want vtime.Stats
	for i := range n {
		old := runtime.GOMAXPROCS(1 + i%2)
		st, err := overwrite(vtime.Machine{CPUs: 4}, "unlocked", 4, 50, "ssd-raid5")
		runtime.GOMAXPROCS(old)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = st
		} else if st != want {
			t.Fatalf("run %d: %+v, want %+v", i, st, want)
		}
	}
}

// cpuSeconds is the processor time of this process: what else runs here is no concern.
func cpuSeconds() float64 {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkSem is the most that 64 tasks on 64 CPUs can do to one rwsem: operations that are hardly
// longer than the lock's own work, 200,000 of them in a virtual second. It counts operations.
func BenchmarkSem(b *testing.B) {
	benchmarkSem(b, 64*2000, func(k *sched.Task) {
		critical(k, 64, 2000, 5*time.Microsecond, 3*time.Microsecond, nil)
	})
}

// BenchmarkRWSem is a rwsem as the writers of one file use it, on the same machine; it counts what
// a virtual second costs.
//
//	buffered   64 KiB writes, 50 us each with the lock exclusive (the reference machine takes 4.3 us for 4 KiB), 5 us without; one operation in
//	           eight only reads under it. Writers spin, readers queue and sleep, the lock is handed over after 4 ms.
//	direct     unaligned 2 KiB writes of seed 004 before its change: the lock is exclusive for as long as the device takes, 230 us
//	           (4,328 a second), so nobody spins and everybody sleeps.
func BenchmarkRWSem(b *testing.B) {
	for _, c := range []struct {
		name    string
		readers int
		cpu     time.Duration
		io      time.Duration
	}{{"buffered", 8, 50 * time.Microsecond, 0}, {"direct", 0, 5 * time.Microsecond, 225 * time.Microsecond}} {
		b.Run(c.name, func(b *testing.B) {
			const tasks, n = 64, 1000
			benchmarkSem(b, tasks*n, func(k *sched.Task) {
				var s lock.RWSem
				s.Init(classSem)
				var all []*sched.Task
				for i := range tasks {
					all = append(all, k.Go(fmt.Sprint(i), func(k *sched.Task) {
						for op := range n {
							read := c.readers > 0 && (op+i)%c.readers == 0
							if read {
								s.RLock(k)
							} else {
								s.Lock(k)
							}
							k.Charge(c.cpu)
							if c.io > 0 {
								k.Sleep(c.io)
							}
							if read {
								s.RUnlock(k)
							} else {
								s.Unlock(k)
							}
							k.Charge(5 * time.Microsecond)
						}
					}))
				}
				for _, w := range all {
					k.Join(w)
				}
			})
		})
	}
}

func benchmarkSem(b *testing.B, ops int, prog func(k *sched.Task)) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	virtual := int64(0)
	before := cpuSeconds()
	for b.Loop() {
		st, err := vtime.Run(vtime.Machine{CPUs: 64}, prog)
		if err != nil {
			b.Fatal(err)
		}
		virtual += st.Now
	}
	cpu := cpuSeconds() - before
	b.ReportMetric(float64(ops)*float64(b.N)/cpu, "ops/cpu-s")
	b.ReportMetric(cpu*1000/(float64(virtual)/1e9), "cpu-ms/virtual-s")
	b.ReportMetric(float64(ops)*float64(b.N)/(float64(virtual)/1e9), "ops/virtual-s")
}

// A device model ends requests to the nanosecond of its queue, also one that comes while the timer
// waits for a later one.
func TestDeviceModel(t *testing.T) {
	var log []string
	simulate(t, free(4), func(k *sched.Task) {
		p, err := dm.Parse("delay:read=100us,write=1ms")
		if err != nil {
			t.Fatal(err)
		}
		d := dm.New(k, blockdev.NewMemory(1<<20), p)
		var all []*sched.Task
		for i, at := range []int{0, 300, 350} {
			all = append(all, k.Go(fmt.Sprint(i), func(k *sched.Task) {
				k.Sleep(time.Duration(at) * time.Microsecond)
				if i == 0 {
					err = errors.Join(err, blockdev.Write(k, d, make([]byte, 4096), 0))
				} else {
					err = errors.Join(err, blockdev.Read(k, d, make([]byte, 4096), 0))
				}
				log = append(log, fmt.Sprint(k.Name, "@", k.Now()/1000))
			}))
		}
		for _, w := range all {
			k.Join(w)
		}
		if err = errors.Join(err, d.Close()); err != nil {
			t.Error(err)
		}
	})
	if got := strings.Join(log, " "); got != "1@400 2@450 0@1000" {
		t.Error(got)
	}
}

// A waiter for a page lock sleeps at once and is promised nothing: a task that takes the lock again
// and again keeps it from the waiter for as long as it likes. A rwsem is promised to the waiter
// that comes too late after 4 ms, here at 5 ms, and is its own when the owner of that moment lets
// it go.
func TestBit(t *testing.T) {
	for _, c := range []struct {
		class *lockdep.Class
		want  string
	}{{classPage, "aaaaaaaaaab"}, {classSem, "aaaaaabaaaa"}} {
		var order []string
		st := simulate(t, free(4), func(k *sched.Task) {
			var m lock.Mutex
			m.Init(c.class)
			f := func(n int, hold time.Duration) func(k *sched.Task) {
				return func(k *sched.Task) {
					for range n {
						m.Lock(k)
						order = append(order, k.Name)
						k.Charge(hold / 2)
						k.Sleep(hold / 2)
						m.Unlock(k)
					}
				}
			}
			a := k.Go("a", f(10, time.Millisecond))
			k.Sleep(time.Microsecond)
			b := k.Go("b", f(1, time.Microsecond))
			k.Join(a)
			k.Join(b)
		})
		if got := strings.Join(order, ""); got != c.want || (st.Spun == 0) != (c.class == classPage) || (st.Handoffs == 0) != (c.class == classPage) {
			t.Errorf("%s: %s, want %s, %+v", c.class.Name, got, c.want, st)
		}
	}
}

// A waiter that comes while tasks wait for a CPU leaves them its own.
func TestNoSpinWhileOthersWait(t *testing.T) {
	var end int64
	st := simulate(t, free(2), func(k *sched.Task) {
		var m lock.Mutex
		m.Init(classSem)
		all := []*sched.Task{
			k.Go("owner", func(k *sched.Task) { m.Lock(k); k.Charge(time.Millisecond); m.Unlock(k) }),
			k.Go("waiter", func(k *sched.Task) { k.Charge(100 * time.Microsecond); m.Lock(k); m.Unlock(k) }),
			k.Go("other", func(k *sched.Task) { k.Charge(time.Millisecond); end = k.Now() }),
		}
		for _, c := range all {
			k.Join(c)
		}
	})
	if end != 1_100_000 || st.Spun != 0 {
		t.Errorf("the task without a lock ends at %v, %+v", time.Duration(end), st)
	}
}

// Tasks get a CPU in the order in which they became ready, also when the queue grows while it is in
// use.
func TestRunQueue(t *testing.T) {
	var order, want []string
	simulate(t, free(1), func(k *sched.Task) {
		for i := range 12 {
			k.Go(fmt.Sprint(i), func(k *sched.Task) {
				order = append(order, k.Name)
				for j := range 5 {
					k.Go(fmt.Sprint(k.Name, ".", j), func(k *sched.Task) { order = append(order, k.Name) })
				}
			})
		}
	})
	for i := range 12 {
		want = append(want, fmt.Sprint(i))
	}
	for i := range 60 {
		want = append(want, fmt.Sprint(i/5, ".", i%5))
	}
	if !slices.Equal(order, want) {
		t.Errorf("have %v\nwant %v", order, want)
	}
}

// A wake-up ends the timer of the wait that it ends: the next wait is not woken by it.
func TestParkFor(t *testing.T) {
	var ends []time.Duration
	simulate(t, free(2), func(k *sched.Task) {
		p := k.Go("p", func(k *sched.Task) {
			k.Simulator().ParkFor(k, classSem.ID, 10*time.Millisecond)
			ends = append(ends, time.Duration(k.Now()))
			k.Park(classSem.ID)
			ends = append(ends, time.Duration(k.Now()))
			k.Simulator().ParkFor(k, classSem.ID, 10*time.Millisecond)
			ends = append(ends, time.Duration(k.Now()))
		})
		k.Sleep(time.Millisecond)
		p.Unpark()
		k.Sleep(19 * time.Millisecond)
		p.Unpark()
		k.Join(p)
	})
	if want := []time.Duration{time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond}; !slices.Equal(ends, want) {
		t.Errorf("the waits end at %v, want %v", ends, want)
	}
}

// A wait with a limit ends when it is woken, or at its limit; a wake-up that comes with the limit,
// or while its condition does not hold, does not end a later wait.
func TestWaitAtMost(t *testing.T) {
	const ms = time.Millisecond
	var q lock.WaitQueue
	q.Init(classSem)
	var ends []time.Duration
	go1 := false
	simulate(t, free(2), func(k *sched.Task) {
		w := k.Go("w", func(k *sched.Task) {
			for range 4 {
				q.WaitAtMost(k, 10*ms, func() bool { return go1 })
				ends = append(ends, time.Duration(k.Now()))
			}
		})
		k.Sleep(3 * ms)
		q.Wake(k) // for nothing: the limit stays at 10 ms
		k.Sleep(7 * ms)
		q.Wake(k) // with the limit
		k.Sleep(15 * ms)
		go1 = true
		q.Wake(k)
		k.Join(w)
	})
	if want := []time.Duration{10 * ms, 20 * ms, 25 * ms, 25 * ms}; !slices.Equal(ends, want) {
		t.Errorf("the waits end at %v, want %v", ends, want)
	}
}

// Two tasks on one core are slower by Machine.SMT each; a task that has a core to itself is not,
// whatever the others do.
func TestSMT(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, c := range []struct {
		tasks int
		want  []int64 // when they end, in order
	}{{2, []int64{10 * ms, 10 * ms}}, {3, []int64{10 * ms, 15 * ms, 15 * ms}}, {4, []int64{15 * ms, 15 * ms, 15 * ms, 15 * ms}}} {
		m := free(4)
		m.Cores, m.SMT = 2, 1.5
		var ends []int64
		simulate(t, m, func(k *sched.Task) {
			var all []*sched.Task
			for range c.tasks {
				all = append(all, k.Go("w", func(k *sched.Task) {
					for range 10000 {
						k.Charge(time.Microsecond)
					}
					ends = append(ends, k.Now())
				}))
			}
			for _, w := range all {
				k.Join(w)
			}
		})
		if !slices.Equal(ends, c.want) {
			t.Errorf("%d tasks on two cores end at %v, want %v", c.tasks, ends, c.want)
		}
	}
	// A task that is woken stays on its CPU, although the sibling is busy and another core is idle;
	// if its CPU is taken, it goes to the idle core, and not to the first idle CPU.
	for _, c := range []struct {
		taken bool
		want  int64
	}{{false, 15000}, {true, 10000}} {
		m := free(6)
		m.Cores, m.SMT = 3, 1.5
		work := func(k *sched.Task, us int) {
			for range us {
				k.Charge(time.Microsecond)
			}
		}
		took := int64(0)
		simulate(t, m, func(k *sched.Task) { // on CPU 0, and 3 is its sibling
			a := k.Go("a", func(k *sched.Task) { // on CPU 1
				k.Sleep(10 * time.Microsecond)
				from := k.Now()
				work(k, 10)
				took = k.Now() - from
			})
			k.Go("b", func(k *sched.Task) { work(k, 6) })    // on CPU 2
			k.Go("c", func(k *sched.Task) { work(k, 1000) }) // on CPU 3
			k.Go("e", func(k *sched.Task) { work(k, 1000) }) // on CPU 4, the sibling of 1
			work(k, 2)
			if c.taken {
				k.Go("d", func(k *sched.Task) { work(k, 1000) }) // on CPU 1
			}
			k.Join(a)
		})
		if took != c.want {
			t.Errorf("CPU taken %v: the task that was woken works for %d ns, want %d", c.taken, took, c.want)
		}
	}
}

// Tasks that spin for a lock sleep while noise has the CPU of its owner: of the time that the owner
// loses they spin for next to nothing.
func TestNoiseOfTheOwner(t *testing.T) {
	m := free(2)
	m.Noise = vtime.Noise{PerSec: 100_000, Mean: time.Millisecond, Seed: 1}
	st := simulate(t, m, func(k *sched.Task) {
		var s lock.RWSem
		s.Init(classSem)
		owner := k.Go("owner", func(k *sched.Task) {
			s.Lock(k)
			for range 1000 {
				k.Charge(time.Microsecond)
			}
			s.Unlock(k)
		})
		waiter := k.Go("waiter", func(k *sched.Task) { s.Lock(k); s.Unlock(k) })
		k.Join(owner)
		k.Join(waiter)
	})
	if st.Hits < 50 || st.Now < 50e6 || st.Spun > st.Now/20 {
		t.Errorf("of %v the waiter spins for %v; %+v", time.Duration(st.Now), time.Duration(st.Spun), st)
	}
}

// TestNoiseBeforeReaders: a writer has the lock, a reader sleeps for it, and a second writer spins
// for it, whose CPU noise takes before the lock becomes free. The reader got nothing then, because
// somebody spun, nor did the spinner: both slept with the lock free, for ever.
func TestNoiseBeforeReaders(t *testing.T) {
	hits := 0
	for seed := range uint64(20) {
		m := free(4)
		m.Noise = vtime.Noise{PerSec: 2000, Mean: 50 * time.Microsecond, Seed: seed}
		st := simulate(t, m, func(k *sched.Task) {
			var s lock.RWSem
			s.Init(classSem)
			var tasks []*sched.Task
			for i, read := range []bool{false, true, false} {
				tasks = append(tasks, k.Go("task", func(k *sched.Task) {
					k.Sleep(time.Duration(i) * time.Microsecond)
					if read {
						s.RLock(k)
						s.RUnlock(k)
						return
					}
					s.Lock(k)
					k.Charge(time.Millisecond)
					s.Unlock(k)
				}))
			}
			for _, x := range tasks {
				k.Join(x)
			}
		})
		hits += int(st.Hits)
	}
	if hits < 10 {
		t.Errorf("%d hits in all, want some for each seed or two", hits)
	}
}

// TestEndedTaskLetsGo: what a task had is free once it has ended, while the run goes on. A
// comparison of thirty runs, each with 2 GiB of buffers, had held those of all.
func TestEndedTaskLetsGo(t *testing.T) {
	var freed atomic.Int32
	const tasks = 10
	_, err := vtime.Run(vtime.Machine{CPUs: 2}, func(root *sched.Task) {
		for range tasks {
			p := new([1 << 16]byte)
			runtime.SetFinalizer(p, func(*[1 << 16]byte) { freed.Add(1) })
			k := root.Go("holds memory", func(k *sched.Task) {
				k.Sleep(time.Microsecond)
				p[0]++
			})
			root.Join(k)
		}
		for range 100 {
			if runtime.GC(); freed.Load() >= tasks-1 { // the last one may be in a register
				return
			}
			runtime.Gosched()
		}
		t.Errorf("the memory of %d of %d tasks that have ended is free", freed.Load(), tasks)
	})
	if err != nil {
		t.Error(err)
	}
}

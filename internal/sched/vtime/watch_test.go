package vtime_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// seen is a Watcher that keeps everything.
type seen struct {
	ran, spun map[int][]span // by CPU
	held      map[vtime.LockID][]span
	waited    map[vtime.LockID][]span
}

type span struct {
	who      string
	from, to int64
}

func newSeen() *seen {
	return &seen{map[int][]span{}, map[int][]span{}, map[vtime.LockID][]span{}, map[vtime.LockID][]span{}}
}

func who(t *sched.Task) string {
	if t == nil {
		return "readers"
	}
	return t.Name
}

func (s *seen) Ran(t *sched.Task, cpu int, from, to int64) {
	s.ran[cpu] = append(s.ran[cpu], span{who(t), from, to})
}
func (s *seen) Spun(t *sched.Task, cpu int, from, to int64) {
	s.spun[cpu] = append(s.spun[cpu], span{who(t), from, to})
}
func (s *seen) Held(t *sched.Task, l vtime.LockID, from, to int64) {
	s.held[l] = append(s.held[l], span{who(t), from, to})
}
func (s *seen) Waited(t *sched.Task, l vtime.LockID, from, to int64) {
	s.waited[l] = append(s.waited[l], span{who(t), from, to})
}

func sum[K comparable](m map[K][]span) (ns int64) {
	for _, list := range m {
		for _, s := range list {
			ns += s.to - s.from
		}
	}
	return ns
}

// locking is tasks that take locks of every kind, alone and as readers, try them, wait and lose
// their CPUs.
func locking(seed uint64) func(k *sched.Task) {
	return func(k *sched.Task) {
		var sem lock.RWSem
		var leaf, page lock.Mutex
		var event lock.Counter
		sem.Init(classSem)
		leaf.Init(classLeaf)
		page.Init(classPage)
		event.Init(classSem)
		var all []*sched.Task
		for i := range 6 {
			all = append(all, k.Go(fmt.Sprint("w", i), func(k *sched.Task) {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				work := func() { k.Charge(time.Duration(rnd.IntN(40_000))) }
				for range 60 {
					work()
					switch rnd.IntN(5) {
					case 0:
						sem.Lock(k)
						work()
						sem.Unlock(k)
					case 1:
						sem.RLock(k)
						work()
						sem.RUnlock(k)
					case 2:
						if sem.TryLock(k) {
							work()
							sem.Unlock(k)
						}
					case 3:
						leaf.Lock(k)
						k.Charge(200)
						leaf.Unlock(k)
					default:
						page.Lock(k)
						if rnd.IntN(3) == 0 {
							k.Sleep(20 * time.Microsecond)
						}
						page.Unlock(k)
					}
				}
			}))
		}
		for _, w := range all {
			k.Join(w)
		}
	}
}

// TestWatcher: a Watcher changes nothing of a run, hears of all CPU time and all spinning, and of
// no moment in which two tasks have one CPU or one lock. A task that waited for a lock had it next,
// or readers had.
func TestWatcher(t *testing.T) {
	for _, golocks := range []bool{false, true} {
		for seed := range uint64(6) {
			// Go's waiters spin only while no task waits for a CPU: with three there is always one,
			// with six there is none.
			m := vtime.Machine{CPUs: 3 + int(seed/2)%2*3, GoLocks: golocks, PerCPU: seed%2 == 1, Noise: vtime.Noise{PerSec: 3000, Mean: 10 * time.Microsecond, Seed: seed}}
			want := simulate(t, m, locking(seed))
			s := newSeen()
			m.Watch = s
			have := simulate(t, m, locking(seed))
			name := fmt.Sprintf("Go's locks %v, seed %d", golocks, seed)
			if have != want {
				t.Fatalf("%s: %+v with a Watcher, %+v without", name, have, want)
			}
			if ran, spun := sum(s.ran), sum(s.spun); ran != want.CPUBusy || spun != want.Spun || spun == 0 {
				t.Errorf("%s: CPUs ran for %d and spun for %d, the machine says %d and %d", name, ran, spun, want.CPUBusy, want.Spun)
			}
			for cpu, list := range s.ran {
				if over(list) {
					t.Errorf("%s: two tasks have CPU %d", name, cpu)
				}
			}
			kinds := 0
			for l, list := range s.held {
				if over(list) {
					t.Errorf("%s: two tasks have lock %v: %v", name, l, list)
				}
				for _, x := range list {
					if x.to < x.from {
						t.Errorf("%s: lock %v is held from %d to %d", name, l, x.from, x.to)
					}
				}
				if len(s.waited[l]) > 0 {
					kinds++
				}
				for _, w := range s.waited[l] {
					got := false
					for _, h := range list {
						got = got || (h.who == w.who || h.who == "readers") && h.from <= w.to && w.to <= h.to && h.from >= w.from-2000
					}
					if !got {
						t.Errorf("%s: %s waits for lock %v from %d to %d, and does not get it", name, w.who, l, w.from, w.to)
					}
				}
			}
			if len(s.held) != 3 || kinds < 2 {
				t.Errorf("%s: %d locks are held and for %d of them tasks wait", name, len(s.held), kinds)
			}
			// The class's own waits are those that the tasks' profiles have: spinning at a spinlock
			// is none.
			for l, list := range s.waited {
				if l.N == 0 && l.Class == classPage.ID && len(list) != len(s.waited[idOf(s, classPage.ID)]) {
					t.Errorf("%s: %d waits of class page, %d of its lock", name, len(list), len(s.waited[idOf(s, classPage.ID)]))
				}
			}
		}
	}
}

func idOf(s *seen, class sched.ClassID) vtime.LockID {
	for l := range s.held {
		if l.Class == class && l.N > 0 {
			return l
		}
	}
	return vtime.LockID{}
}

// over reports whether two intervals, which come in the order of their ends, have a moment in
// common.
func over(list []span) bool {
	for i := range list {
		for j := range i {
			if list[i].from < list[j].to && list[j].from < list[i].to {
				return true
			}
		}
	}
	return false
}

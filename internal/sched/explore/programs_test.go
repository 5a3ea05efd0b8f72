package explore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

var (
	aClass = lockdep.NewTestClass("a", "")
	bClass = lockdep.NewTestClass("b", "")
	cClass = lockdep.NewTestClass("c", "")
)

// lostUpdate is P1: tasks read and write a word without a lock.
func lostUpdate(tasks int) func(w *explore.World) {
	return func(w *explore.World) {
		x := new(explore.Atomic[int])
		w.Name(x, "x")
		for i := range tasks {
			w.Go(fmt.Sprint("task", i), func(t *sched.Task) { x.Store(t, x.Load(t)+1) })
		}
		w.Check(func() error {
			if x.Peek() != tasks {
				return fmt.Errorf("lost update: x is %d, want %d", x.Peek(), tasks)
			}
			return nil
		})
	}
}

// sections is P2: n tasks with m sections each over one mutex.
func sections(n, m int) func(w *explore.World) {
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

// twoLocks is P3: three tasks with two sections each that take two mutexes; inverted, the last task
// takes them in the other order.
func twoLocks(inverted bool) func(w *explore.World) {
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

// truncateRace is TRn: n unlocked writes inside i_size and a truncate. A write looks at i_size,
// counts itself, and later marks its page; truncate sets i_size and drops the pages beyond it. The
// fix waits for the writes in flight before it changes i_size, and a write counts itself before it
// looks. (labs/reference 1.3 and 2.2.)
func truncateRace(n int, fixed bool) func(w *explore.World) {
	return func(w *explore.World) {
		var s struct {
			rwsem   lock.RWSem
			dio     lock.Counter
			size    explore.Atomic[int]
			page    [8]explore.Atomic[bool]
			written [8]bool
		}
		s.rwsem.Init(aClass)
		s.dio.Init(bClass)
		s.size.Init(n)
		w.Name(&s.rwsem, "i_rwsem")
		w.Name(&s.dio, "dio_count")
		w.Name(&s.size, "i_size")
		for i := range n {
			w.Name(&s.page[i], fmt.Sprint("page", i))
			w.Go(fmt.Sprint("write", i), func(t *sched.Task) {
				s.rwsem.RLock(t)
				if s.size.Load(t) <= i {
					s.rwsem.RUnlock(t)
					return
				}
				if fixed {
					s.dio.Inc(t)
				}
				s.rwsem.RUnlock(t)
				s.page[i].Store(t, true)
				if fixed {
					s.dio.Dec(t)
				}
			})
		}
		w.Go("truncate", func(t *sched.Task) {
			s.rwsem.Lock(t)
			if fixed {
				s.dio.WaitZero(t)
			}
			s.size.Store(t, 0)
			for i := range n {
				s.page[i].Store(t, false)
			}
			s.rwsem.Unlock(t)
		})
		w.Check(func() error {
			for i := range n {
				if s.page[i].Peek() && i >= s.size.Peek() {
					return fmt.Errorf("page %d is there beyond i_size %d: the truncate is lost", i, s.size.Peek())
				}
			}
			return nil
		})
	}
}

// philosophers dine with n forks, each first the left one; polite, the last one takes the right one
// first.
func philosophers(n int, polite bool) func(w *explore.World) {
	return func(w *explore.World) {
		forks := make([]lock.Mutex, n)
		for i := range forks {
			forks[i].Init(cClass)
			w.Name(&forks[i], fmt.Sprint("fork", i))
		}
		for i := range n {
			l, r := &forks[i], &forks[(i+1)%n]
			if polite && i == n-1 {
				l, r = r, l
			}
			w.Go(fmt.Sprint("philosopher", i), func(t *sched.Task) {
				l.Lock(t)
				r.Lock(t)
				r.Unlock(t)
				l.Unlock(t)
			})
		}
	}
}

// peterson is the lock for two tasks; broken, a task gives way before it says that it wants.
func peterson(broken bool) func(w *explore.World) {
	return func(w *explore.World) {
		var s struct {
			want   [2]explore.Atomic[bool]
			turn   explore.Atomic[int]
			inside int
		}
		for i := range 2 {
			w.Name(&s.want[i], fmt.Sprint("want", i))
		}
		w.Name(&s.turn, "turn")
		for i := range 2 {
			w.Go(fmt.Sprint("task", i), func(t *sched.Task) {
				if broken {
					s.turn.Store(t, 1-i)
					s.want[i].Store(t, true)
				} else {
					s.want[i].Store(t, true)
					s.turn.Store(t, 1-i)
				}
				for s.want[1-i].Load(t) && s.turn.Load(t) == 1-i {
					t.Enter(sched.PointYield, 0, nil)
				}
				s.inside++
				t.Enter(sched.PointYield, 0, nil)
				if s.inside != 1 {
					panic("two tasks in the section")
				}
				s.inside--
				s.want[i].Store(t, false)
			})
		}
	}
}

// missedSignal waits for a flag; broken, it looks at the flag before it queues itself.
func missedSignal(broken bool) func(w *explore.World) {
	return func(w *explore.World) {
		var s struct {
			q    lock.WaitQueue
			flag explore.Atomic[bool]
		}
		s.q.Init(aClass)
		w.Name(&s.q, "queue")
		w.Name(&s.flag, "flag")
		w.Go("waiter", func(t *sched.Task) {
			if broken {
				set, looks := s.flag.Load(t), 0
				s.q.Wait(t, func() bool { looks++; return set || looks > 2 })
				return
			}
			s.q.Wait(t, func() bool { return s.flag.Look(t) })
		})
		w.Go("waker", func(t *sched.Task) {
			s.flag.Store(t, true)
			s.q.Wake(t)
		})
	}
}

// starvation is a reader-writer lock that lets readers in as long as there are readers: two that
// overlap keep the writer out for ever.
func starvation(w *explore.World) {
	var s struct {
		readers explore.Atomic[int]
		done    explore.Atomic[bool]
	}
	w.Name(&s.readers, "readers")
	w.Name(&s.done, "done")
	for i := range 2 {
		w.Go(fmt.Sprint("reader", i), func(t *sched.Task) {
			for !s.done.Load(t) {
				s.readers.Update(t, func(n int) int { return n + 1 })
				t.Enter(sched.PointYield, 0, nil)
				s.readers.Update(t, func(n int) int { return n - 1 })
			}
		})
	}
	w.Go("writer", func(t *sched.Task) {
		s.readers.Await(t, func(n int) bool { return n == 0 })
		s.done.Store(t, true)
	})
}

var searches = []explore.Method{explore.Bound, explore.DPOR, explore.State, explore.Naive}

// Known programs: each search says of the broken one what is wrong with it, with a schedule that
// shows it again, and of the right one that there is nothing.
func TestKnownPrograms(t *testing.T) {
	off := explore.CheckLockOrder
	for _, tc := range []struct {
		name   string
		prog   func(w *explore.World)
		kind   explore.Kind
		text   string
		off    explore.Checks
		most   int // characters of the schedule
		except string
	}{
		{"lost update", lostUpdate(2), explore.KindOracle, "x is 1, want 2", 0, 5, ""},
		{"sections", sections(3, 2), explore.OK, "", 0, 0, ""},
		{"lock order", twoLocks(true), explore.KindOrder, "b is taken under a by task", 0, 0, ""},
		{"lock order deadlock", twoLocks(true), explore.KindDeadlock, "waits for b, which task 2 task2 holds", off, 5, ""},
		{"one lock order", twoLocks(false), explore.OK, "", 0, 0, ""},
		{"philosophers", philosophers(3, false), explore.KindDeadlock, "waits for fork", 0, 9, ""},
		{"polite philosophers", philosophers(3, true), explore.OK, "", 0, 0, ""},
		{"peterson, broken", peterson(true), explore.KindPanic, "two tasks in the section", 0, 16, ""},
		// spins: endless histories, few states
		{"peterson", peterson(false), explore.OK, "", 0, 0, "dpor naive bound"},
		{"missed signal", missedSignal(true), explore.KindLost, "waits in queue since step", 0, 5, ""},
		{"signal", missedSignal(false), explore.OK, "", 0, 0, ""},
		{"truncate race", truncateRace(2, false), explore.KindOracle, "the truncate is lost", 0, 5, ""},
		{"truncate race, fixed", truncateRace(2, true), explore.OK, "", 0, 0, "naive"},
	} {
		for _, m := range searches {
			if strings.Contains(tc.except, string(m)) {
				continue
			}
			t.Run(tc.name+"/"+string(m), func(t *testing.T) {
				cfg := explore.Config{Method: m, Off: tc.off, MaxSteps: 200, Schedules: 200_000}
				r := explore.Run(cfg, tc.prog)
				t.Logf("%s; schedule %q", r.Bound, r.Schedule)
				if tc.kind == explore.OK {
					if r.Verdict != explore.Exhausted {
						t.Fatalf("%s: %s, schedule %s: %s", r.Verdict, r.Kind, r.Schedule, r.Violation)
					}
					return
				}
				if r.Verdict != explore.Violated || r.Kind != tc.kind || !strings.Contains(r.Violation.String(), tc.text) || len(r.Schedule) > tc.most {
					t.Fatalf("%s: %s, schedule %q: %s", r.Verdict, r.Kind, r.Schedule, r.Violation)
				}
				if tc.kind == explore.KindOrder {
					return // one more execution may need another one's edges
				}
				for range 3 {
					if x := explore.Replay(cfg, r.Schedule, tc.prog); x.Verdict != r.Kind || x.Violation.String() == "" || x.Schedule != r.Schedule {
						t.Fatalf("replay of %s: %s %s, schedule %s\n%s", r.Schedule, x.Verdict, x.Violation, x.Schedule, x.Trace())
					}
				}
			})
		}
	}
}

func TestProve(t *testing.T) {
	if r := explore.Run(explore.Config{Method: explore.Prove}, truncateRace(4, true)); r.Verdict != explore.Exhausted {
		t.Errorf("%s by %s", r.Bound, r.Method)
	}
	if r := explore.Run(explore.Config{Method: explore.Prove}, truncateRace(4, false)); r.Verdict != explore.Violated || r.Preemptions != 1 {
		t.Errorf("%s by %s", r.Bound, r.Method)
	}
}

// Samplers find what is wrong, and what they find is shrunk to one preemption.
func TestSamplers(t *testing.T) {
	for _, m := range []explore.Method{explore.Random, explore.PCT, explore.POS, explore.Portfolio} {
		for seed := range uint64(20) {
			r := explore.Run(explore.Config{Method: m, Seed: seed, Schedules: 2000}, truncateRace(3, false))
			if r.Verdict != explore.Violated || r.Preemptions != 1 || len(r.Schedule) > 5 {
				t.Errorf("%s, seed %d: %s, %q", m, seed, r.Bound, r.Schedule)
			}
		}
	}
}

// What a sampler reports, whose executions keep nothing for reports, is what a replay of the same
// schedule says: names, who holds and owes what, and a lost wake-up as one. Without the checks that
// lockdep makes its executions know of no locks held.
func TestSamplersReport(t *testing.T) {
	for _, tc := range []struct {
		name string
		prog func(w *explore.World)
		kind explore.Kind
		text string
	}{
		{"two locks", twoLocks(true), explore.KindDeadlock, "waits for b, which task 2 task2 holds"},
		{"philosophers", philosophers(3, false), explore.KindDeadlock, "holds fork"},
		{"missed signal", missedSignal(true), explore.KindLost, "waits in queue since step"},
	} {
		for _, off := range []explore.Checks{explore.CheckLockOrder, explore.CheckLockOrder | explore.CheckLeftovers} {
			for _, m := range []explore.Method{explore.Random, explore.PCT, explore.POS} {
				cfg := explore.Config{Method: m, Off: off, NoShrink: true, Schedules: 2000}
				r := explore.Run(cfg, tc.prog)
				x := explore.Replay(cfg, r.Schedule, tc.prog)
				if r.Kind != tc.kind || !strings.Contains(r.Violation.String(), tc.text) || x.Verdict != r.Kind || x.Violation.String() != r.Violation.String() {
					t.Errorf("%s, %s, off %b: %s: %s\nreplay of %q: %s: %s", tc.name, m, off, r.Kind, r.Violation, r.Schedule, x.Verdict, x.Violation)
				}
			}
		}
	}
}

// Readers that overlap starve a writer: a livelock, found by the bound on steps.
func TestStarvation(t *testing.T) {
	for _, m := range []explore.Method{explore.Naive, explore.DPOR} {
		r := explore.Run(explore.Config{Method: m, MaxSteps: 60, NoShrink: true, Schedules: 100_000}, starvation)
		if r.Kind != explore.KindLivelock || !strings.Contains(r.Violation.String(), "task 2 writer waits for readers") && !strings.Contains(r.Violation.String(), "task 2 writer") {
			t.Errorf("%s: %s %s %s", m, r.Bound, r.Kind, r.Violation)
		}
	}
}

// The number of distinct schedules has a closed form where every step is a section over one mutex:
// the multinomial (nm)!/(m!)^n; with independent steps it is 1; and readers do not count.
func TestCounts(t *testing.T) {
	fact := func(n int) int {
		f := 1
		for i := 2; i <= n; i++ {
			f *= i
		}
		return f
	}
	for _, c := range []struct{ n, m int }{{2, 1}, {2, 2}, {2, 3}, {2, 5}, {3, 1}, {3, 2}, {3, 3}, {4, 1}, {4, 2}, {6, 1}} {
		want := fact(c.n * c.m)
		for range c.n {
			want /= fact(c.m)
		}
		for _, m := range []explore.Method{explore.DPOR, explore.Bound, explore.Naive} {
			if r := explore.Run(explore.Config{Method: m}, sections(c.n, c.m)); r.Verdict != explore.Exhausted || r.Schedules != want || r.Cut != 0 {
				t.Errorf("%d tasks with %d sections by %s: %s, want %d", c.n, c.m, m, r.Bound, want)
			}
		}
	}
	if r := explore.Run(explore.Config{Method: explore.DPOR}, twoLocks(false)); r.Schedules != 90 {
		t.Errorf("P3: %s, want 90", r.Bound)
	}
	readers := func(w *explore.World) {
		s := new(lock.RWSem)
		s.Init(aClass)
		w.Name(s, "sem")
		for i := range 4 {
			w.Go("task", func(t *sched.Task) {
				if i == 0 {
					s.Lock(t)
					s.Unlock(t)
					return
				}
				s.RLock(t)
				s.RUnlock(t)
			})
		}
	}
	// A writer comes before or after each of three readers: while one of them holds it, it may have
	// arrived, which is the same order.
	if r := explore.Run(explore.Config{Method: explore.DPOR}, readers); r.Verdict != explore.Exhausted || r.Schedules-r.Cut != 8 {
		t.Errorf("readers: %s, %d cut, want 8", r.Bound, r.Cut)
	}
}

// A plain field without a lock is a race in the first execution, though the tasks never overlap in
// it.
func TestDataRace(t *testing.T) {
	prog := func(locked bool) func(w *explore.World) {
		return func(w *explore.World) {
			var s struct {
				mu lock.Mutex
				v  sched.Var[int]
			}
			s.mu.Init(aClass)
			for i := range 2 {
				w.Go(fmt.Sprint("task", i), func(t *sched.Task) {
					if locked || i == 0 {
						s.mu.Lock(t)
						defer s.mu.Unlock(t)
					}
					s.v.Store(t, s.v.Load(t)+1)
				})
			}
		}
	}
	r := explore.Run(explore.Config{}, prog(false))
	if r.Kind != explore.KindRace || r.Found != 1 || !strings.Contains(r.Violation.String(), "task 1 task1 reads a field") && !strings.Contains(r.Violation.String(), "task 0 task0 reads a field") || !strings.Contains(r.Violation.String(), "holding a") {
		t.Errorf("%s %s", r.Bound, r.Violation)
	}
	if r := explore.Run(explore.Config{}, prog(true)); r.Verdict != explore.Exhausted {
		t.Errorf("%s %s", r.Bound, r.Violation)
	}
}

// What a task does after an unlock, in the same step, the lock does not order, nor does a wake-up
// what follows it; what it does before them they do. The report has both accesses with the locks
// and the stack of each.
func TestDataRaceAfterUnlock(t *testing.T) {
	progs := map[string]func(after bool) func(w *explore.World){
		"unlock": func(after bool) func(w *explore.World) {
			return func(w *explore.World) {
				var mu lock.Mutex
				mu.Init(aClass)
				v := sched.Var[int]{Name: "the field"}
				for i := range 2 {
					w.Go(fmt.Sprint("task", i), func(t *sched.Task) {
						mu.Lock(t)
						if !after || i == 1 {
							v.Store(t, i)
						}
						mu.Unlock(t)
						if after && i == 0 {
							v.Store(t, i)
						}
					})
				}
			}
		},
		"wake": func(after bool) func(w *explore.World) {
			return func(w *explore.World) {
				v := sched.Var[int]{Name: "the field"}
				w.Go("parent", func(t *sched.Task) {
					if !after {
						v.Store(t, 1)
					}
					c := t.Go("child", func(t *sched.Task) { v.Store(t, 2) })
					if after {
						v.Store(t, 1)
					}
					t.Join(c)
					v.Store(t, 3)
				})
			}
		},
	}
	for name, prog := range progs {
		r := explore.Run(explore.Config{}, prog(true))
		if r.Kind != explore.KindRace || r.Found != 1 {
			t.Errorf("%s: %s %s", name, r.Bound, r.Violation)
		}
		for _, want := range []string{"writes the field in step", "task 0", "task 1", "(holding nothing)"} {
			if !strings.Contains(r.Violation.String(), want) {
				t.Errorf("%s: the report lacks %q: %s", name, want, r.Violation)
			}
		}
		if strings.Count(r.Violation.String(), "programs_test.go:") != 2 {
			t.Errorf("%s: the report lacks a stack: %s", name, r.Violation)
		}
		if r := explore.Run(explore.Config{}, prog(false)); r.Verdict != explore.Exhausted {
			t.Errorf("%s: %s %s", name, r.Bound, r.Violation)
		}
	}
}

// State matching knows what a Var holds by who wrote it: the last of two writers decides what a
// reader after both finds, though neither writer has seen a difference.
func TestStateOfVar(t *testing.T) {
	prog := func(w *explore.World) {
		var mu lock.Mutex
		mu.Init(aClass)
		var v sched.Var[int]
		var done int
		var bad bool
		for i := range 3 {
			w.Go(fmt.Sprint("task", i), func(t *sched.Task) {
				mu.Lock(t)
				if i < 2 {
					v.Store(t, i)
				} else {
					bad = done == 2 && v.Load(t) == 0
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
	for _, m := range []explore.Method{explore.Naive, explore.State} {
		if r := explore.Run(explore.Config{Method: m}, prog); r.Kind != explore.KindOracle {
			t.Errorf("%s: %s", m, r.Bound)
		}
	}
}

// A request that is NOWAIT may not stand at a lock that somebody holds, whoever comes first; a try
// may fail.
func TestNowaitSleep(t *testing.T) {
	prog := func(try bool) func(w *explore.World) {
		return func(w *explore.World) {
			s := new(lock.RWSem)
			s.Init(aClass)
			w.Go("writer", func(t *sched.Task) { s.Lock(t); s.Unlock(t) })
			w.Go("nowait", func(t *sched.Task) {
				t.BeginNowait()
				defer t.EndNowait()
				if try {
					if !s.TryRLock(t) {
						return
					}
				} else {
					s.RLock(t)
				}
				s.RUnlock(t)
			})
		}
	}
	if r := explore.Run(explore.Config{}, prog(false)); r.Kind != explore.KindNowait || !strings.Contains(r.Violation.String(), "task 1 nowait may sleep in a") {
		t.Errorf("%s %s", r.Bound, r.Violation)
	}
	if r := explore.Run(explore.Config{}, prog(true)); r.Verdict != explore.Exhausted {
		t.Errorf("%s %s", r.Bound, r.Violation)
	}
}

func TestLeftoverAndOrphan(t *testing.T) {
	m := func(second bool) func(w *explore.World) {
		return func(w *explore.World) {
			mu := new(lock.Mutex)
			mu.Init(aClass)
			w.Go("forgetful", func(t *sched.Task) { mu.Lock(t) })
			if second {
				w.Go("next", func(t *sched.Task) { mu.Lock(t); mu.Unlock(t) })
			}
		}
	}
	if r := explore.Run(explore.Config{}, m(false)); r.Kind != explore.KindLeftover || !strings.Contains(r.Violation.String(), "task 0 forgetful has ended and holds a") {
		t.Errorf("%s %s", r.Bound, r.Violation)
	}
	if r := explore.Run(explore.Config{}, m(true)); r.Kind != explore.KindGone || !strings.Contains(r.Violation.String(), "task 1 next waits for what task 0 forgetful held when it ended") {
		t.Errorf("%s %s %s", r.Bound, r.Kind, r.Violation)
	}
}

// Choices are explored like schedules, and replayed.
func TestChoose(t *testing.T) {
	prog := func(w *explore.World) {
		mu := new(lock.Mutex)
		mu.Init(aClass)
		sum := 0
		for i := range 2 {
			w.Go("task", func(t *sched.Task) {
				c := w.Choose(3, "short copy")
				mu.Lock(t)
				sum += c * (i + 1)
				mu.Unlock(t)
			})
		}
		w.Check(func() error {
			if sum == 6 {
				return errors.New("both short")
			}
			return nil
		})
	}
	for _, m := range searches {
		r := explore.Run(explore.Config{Method: m, All: true}, prog)
		x := explore.Replay(explore.Config{}, r.Schedule, prog)
		if r.Kind != explore.KindOracle || x.Violation.String() != "both short" || !strings.Contains(x.Trace(), "short copy = 2 of 0 to 2") {
			t.Errorf("%s: %s %q %s\n%s", m, r.Bound, r.Schedule, r.Violation, x.Trace())
		}
		if m == explore.DPOR && (r.Schedules != 18 || r.Violations != 2) {
			t.Errorf("%d schedules, %d violated, want 9 pairs of values in 2 orders", r.Schedules, r.Violations)
		}
	}
}

// A program that is not the same twice is found out, and both operations are named.
func TestSearchNondeterminism(t *testing.T) {
	for _, m := range []explore.Method{explore.Bound, explore.DPOR} {
		run := 0
		r := explore.Run(explore.Config{Method: m}, func(w *explore.World) {
			run++
			odd := run%2 == 1
			var mu [2]lock.Mutex
			mu[0].Init(aClass)
			mu[1].Init(bClass)
			for i := range 2 {
				w.Go("task", func(t *sched.Task) {
					k := &mu[0]
					if odd && i == 1 {
						k = &mu[1]
					}
					mu[0].Lock(t)
					mu[0].Unlock(t)
					k.Lock(t)
					k.Unlock(t)
				})
			}
		})
		if r.Kind != explore.KindMismatch || !strings.Contains(r.Violation.String(), "task 1 lock b") || !strings.Contains(r.Violation.String(), "task 1 lock a") {
			t.Errorf("%s: %s %s %s", m, r.Bound, r.Kind, r.Violation)
		}
	}
}

// Parts of a search add up to it.
func TestShardsAndJobs(t *testing.T) {
	for _, m := range []explore.Method{explore.DPOR, explore.Bound, explore.Naive} {
		whole := explore.Run(explore.Config{Method: m}, sections(3, 2))
		sum := 0
		for i := range 3 {
			r := explore.Run(explore.Config{Method: m, Shard: i, Shards: 3}, sections(3, 2))
			if r.Verdict != explore.Exhausted || !strings.Contains(r.Bound.String(), fmt.Sprintf(", shard %d of 3", i)) {
				t.Errorf("%s, shard %d: %s", m, i, r.Bound)
			}
			sum += r.Schedules
		}
		if m != explore.Bound && sum != whole.Schedules {
			t.Errorf("%s: %d schedules in all shards and %s", m, sum, whole.Bound)
		}
		if r := explore.Run(explore.Config{Method: m, Jobs: 2}, sections(3, 2)); r.Verdict != explore.Exhausted || m != explore.Bound && r.Schedules != whole.Schedules {
			t.Errorf("%s with two jobs: %s, want %s", m, r.Bound, whole.Bound)
		}
		bad := explore.Run(explore.Config{Method: m, Jobs: 2}, truncateRace(2, false))
		if bad.Verdict != explore.Violated || bad.Preemptions != 1 {
			t.Errorf("%s with two jobs: %s", m, bad.Bound)
		}
	}
}

// What one job gives to the other is tried, too: all that one job tries alone. The first executions
// wait for the second job, which would not get any of so short a search otherwise.
func TestJobsShare(t *testing.T) {
	whole := explore.Run(explore.Config{Method: explore.Naive}, sections(3, 2))
	var mu sync.Mutex
	worlds := map[*explore.World]bool{}
	r := explore.Run(explore.Config{Method: explore.Naive, Jobs: 2}, func(w *explore.World) {
		mu.Lock()
		worlds[w] = true
		alone := len(worlds) == 1
		mu.Unlock()
		// the system may keep the other's thread from running for many milliseconds
		for i := 0; alone && i < 100_000; i++ {
			runtime.Gosched()
		}
		sections(3, 2)(w)
	})
	if len(worlds) != 2 {
		t.Errorf("%d jobs had work, want 2", len(worlds))
	}
	if r.Verdict != explore.Exhausted || r.Schedules != whole.Schedules {
		t.Errorf("with two jobs: %s, want %s", r.Bound, whole.Bound)
	}
}

// Only the chosen classes are scheduling points; the result says so.
func TestSwitch(t *testing.T) {
	prog := func(w *explore.World) {
		a, b := new(lock.Mutex), new(lock.Mutex)
		a.Init(aClass)
		b.Init(bClass)
		w.Name(a, "a")
		w.Name(b, "b")
		for range 2 {
			w.Go("task", func(t *sched.Task) {
				for range 3 {
					a.Lock(t)
					a.Unlock(t)
					b.Lock(t)
					b.Unlock(t)
				}
			})
		}
	}
	all := explore.Run(explore.Config{Method: explore.Naive}, prog)
	some := explore.Run(explore.Config{Method: explore.Naive, Switch: []sched.ClassID{aClass.ID}}, prog)
	if some.Verdict != explore.Exhausted || some.Schedules >= all.Schedules || !strings.Contains(some.Bound.String(), "switching at a only") || !strings.HasPrefix(some.Switch.String(), "a; other classes run on") {
		t.Errorf("%s; all: %s", some.Bound, all.Bound)
	}
}

// Three classes that are taken in a circle are an inversion, though no two of them are taken in
// both orders and nothing deadlocks.
func TestLockOrderOfThree(t *testing.T) {
	prog := func(circle bool) func(w *explore.World) {
		return func(w *explore.World) {
			var l [3]lock.Mutex
			for i, c := range []*lockdep.Class{aClass, bClass, cClass} {
				l[i].Init(c)
			}
			w.Go("task", func(t *sched.Task) {
				for i := range 3 {
					first, second := &l[i], &l[(i+1)%3]
					if i == 2 && !circle {
						first, second = second, first
					}
					first.Lock(t)
					second.Lock(t)
					second.Unlock(t)
					first.Unlock(t)
				}
			})
		}
	}
	r := explore.Run(explore.Config{}, prog(true))
	if r.Kind != explore.KindOrder || !strings.Contains(r.Violation.String(), "a is taken under c") || !strings.Contains(r.Violation.String(), "b is taken under a") || !strings.Contains(r.Violation.String(), "c is taken under b") {
		t.Errorf("%s: %s", r.Bound, r.Violation)
	}
	if r := explore.Run(explore.Config{}, prog(false)); r.Verdict != explore.Exhausted {
		t.Errorf("without a circle: %s: %s", r.Bound, r.Violation)
	}
}

// A bound counts preemptions only: a switch away from a task that has ended or waits is free. A
// search that leaves schedules to a higher bound says so.
func TestBoundCountsPreemptions(t *testing.T) {
	orders := func(pre int, prog func(w *explore.World)) (map[uint64]bool, explore.Result) {
		seen := map[uint64]bool{}
		r := explore.Run(explore.Config{Preemptions: pre, NoCache: true, Done: func(_ int, x *explore.End) { seen[x.Order] = true }}, prog)
		return seen, r
	}
	if seen, r := orders(-1, sections(3, 1)); len(seen) != 6 || r.Verdict != explore.Exhausted && r.Verdict != explore.Bounded {
		t.Errorf("three tasks that are not interrupted: %d orders, %s, want 6", len(seen), r.Bound)
	}
	for pre, want := range map[int]int{-1: 2, 1: 4, 2: 6, 3: 6} {
		seen, r := orders(pre, sections(2, 2))
		if len(seen) != want || (r.Verdict == explore.Exhausted) != (pre > 1) || r.Verdict == explore.Violated {
			t.Errorf("two tasks with two sections, bound %d: %d orders, %s; want %d", pre, len(seen), r.Bound, want)
		}
	}
}

// Two states are one for a bound only if as much can follow from both: the same final states as
// without the cache, at each bound.
func TestBoundCacheLosesNothing(t *testing.T) {
	for seed := range uint64(150) {
		p := randomProgram(rand.New(rand.NewPCG(seed, 11)), classic)
		for _, pre := range []int{-1, 1} {
			var last *rworld
			var found [2]map[string]bool
			for i, nocache := range []bool{true, false} {
				found[i] = map[string]bool{}
				r := explore.Run(explore.Config{Preemptions: pre, NoCache: nocache, All: true, NoShrink: true, Schedules: 4000, MaxSteps: 500,
					Off: explore.CheckLockOrder | explore.CheckLeftovers, Done: func(_ int, x *explore.End) { found[i][last.state(x)] = true }}, p.run(&last, true))
				if r.Schedules >= 4000 {
					found[0] = nil
					break
				}
			}
			for s := range found[0] {
				if !found[1][s] {
					t.Fatalf("seed %d, bound %d: final state %s is missing with the cache\n%s", seed, pre, s, p)
				}
			}
		}
	}
}

// A race is reported in the first execution in which the two accesses are not ordered, whatever
// other accesses lie between.
func TestDataRaceAtOnce(t *testing.T) {
	for name, prog := range map[string]func(w *explore.World){
		"a read after an ordered write, then a write": func(w *explore.World) {
			v := sched.Var[int]{Name: "the field"}
			w.Go("parent", func(t *sched.Task) {
				v.Store(t, 1)
				r := t.Go("reader", func(t *sched.Task) { v.Load(t) })
				x := t.Go("writer", func(t *sched.Task) { v.Store(t, 2) })
				t.Join(r)
				t.Join(x)
			})
		},
		"a read, an ordered read, then a write": func(w *explore.World) {
			var mu lock.Mutex
			mu.Init(aClass)
			v := sched.Var[int]{Name: "the field"}
			w.Go("reader", func(t *sched.Task) { v.Load(t) })
			w.Go("locked reader", func(t *sched.Task) { mu.Lock(t); v.Load(t); mu.Unlock(t) })
			w.Go("locked writer", func(t *sched.Task) { mu.Lock(t); v.Store(t, 1); mu.Unlock(t) })
		},
	} {
		r := explore.Run(explore.Config{}, prog)
		if r.Kind != explore.KindRace || r.Found != 1 || !strings.Contains(r.Violation.String(), "the field") {
			t.Errorf("%s: %s: %s", name, r.Bound, r.Violation)
		}
	}
}

// Locks at which the search does not switch are part of a longer step: what the task touches after
// the unlock is not ordered by it, though it touched plain data before it in the same step.
func TestDataRaceInOneStep(t *testing.T) {
	prog := func(after bool) func(w *explore.World) {
		return func(w *explore.World) {
			var mu lock.Mutex
			mu.Init(aClass)
			v := sched.Var[int]{Name: "the field"}
			var own [2]sched.Var[int]
			for i := range 2 {
				w.Go(fmt.Sprint("task", i), func(t *sched.Task) {
					mu.Lock(t)
					own[i].Store(t, 1)
					if !after {
						v.Store(t, i)
					}
					mu.Unlock(t)
					if after {
						v.Store(t, i)
					}
				})
			}
		}
	}
	cfg := explore.Config{Switch: []sched.ClassID{bClass.ID}}
	if r := explore.Run(cfg, prog(true)); r.Kind != explore.KindRace {
		t.Errorf("after the unlock: %s: %s", r.Bound, r.Violation)
	}
	if r := explore.Run(cfg, prog(false)); r.Verdict != explore.Exhausted {
		t.Errorf("before the unlock: %s: %s", r.Bound, r.Violation)
	}
}

// A worker that has nothing to do waits until another one has alternatives to share, and is woken
// for them: else a search by two would be one by one of them, and nobody would see more than that
// it takes long.
func TestWorkersShare(t *testing.T) {
	for _, m := range []explore.Method{explore.Bound, explore.Naive} {
		var now, most atomic.Int32
		r := explore.Run(explore.Config{Method: m, Jobs: 2, Schedules: 20_000}, func(w *explore.World) {
			n := now.Add(1)
			for i := 0; i < 2000 && n == 1 && most.Load() < 2; i++ {
				runtime.Gosched() // the other one may come
				n = now.Load()
			}
			if n > 1 {
				most.Store(n)
			}
			sections(3, 2)(w)
			w.Check(func() error { now.Add(-1); return nil })
		})
		if most.Load() != 2 {
			t.Errorf("%v: %d schedules, and never two at a time", m, r.Schedules)
		}
	}
}

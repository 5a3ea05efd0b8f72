package explore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/need"
)

// Small programs, each for one mistake that a search could make, and random ones with classes at
// which the search does not switch. What they come to is compared with what enumeration finds, or
// with what must come out.

// finals returns the results of the executions of a search of prog, in order; prog returns a
// function that says it.
func finals(t *testing.T, c explore.Config, prog func(w *explore.World) (end func() string)) string {
	t.Helper()
	var end func() string
	seen := map[string]bool{}
	c.All, c.NoShrink, c.Done = true, true, func(_ int, x *explore.End) {
		s := end()
		if x.Violation != nil {
			s += " " + string(x.Violation.Kind)
		}
		seen[s] = true
	}
	if r := explore.Run(c, func(w *explore.World) { end = prog(w) }); r.Verdict == explore.Bounded && r.Method != explore.Random {
		t.Errorf("%s: %s, want all of it", c.Method, r.Bound)
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), "; ")
}

// A lock of a class at which the search does not switch uses two objects, the lock and the arrivals
// of its writers, in a step that begins with something else. A try for reading depends on the
// writer that has come and waits, and on nothing that the writer did to the lock.
func TestHiddenLockHasTwoObjects(t *testing.T) {
	prog := func(w *explore.World) func() string {
		var sem lock.RWSem
		sem.Init(rsClass)
		w.Name(&sem, "sem")
		var own [3]explore.Atomic[int]
		got := false
		w.Go("reader", func(t *sched.Task) {
			own[0].Store(t, 1)
			sem.RLock(t)
			own[0].Store(t, 2)
			sem.RUnlock(t)
		})
		w.Go("writer", func(t *sched.Task) {
			own[1].Store(t, 1)
			sem.Lock(t)
			sem.Unlock(t)
		})
		w.Go("tries", func(t *sched.Task) {
			own[2].Store(t, 1)
			if got = sem.TryRLock(t); got {
				sem.RUnlock(t)
			}
		})
		return func() string { return fmt.Sprint(got) }
	}
	for _, m := range searches {
		if have := finals(t, explore.Config{Method: m, Switch: []sched.ClassID{0}}, prog); have != "false; true" {
			t.Errorf("%s: a try comes to %s, want false; true", m, have)
		}
	}
}

// The same of a lock that is held for reading until the try has come: the writer only arrives
// before the try or after it.
func TestHiddenArrival(t *testing.T) {
	prog := func(w *explore.World) func() string {
		var sem lock.RWSem
		sem.Init(rsClass)
		w.Name(&sem, "sem")
		var own [2]explore.Atomic[int]
		var tried explore.Atomic[int]
		tried.Class = rqClass.ID
		got := false
		w.Go("reader", func(t *sched.Task) {
			sem.RLock(t)
			tried.Await(t, func(v int) bool { return v > 0 })
			sem.RUnlock(t)
		})
		w.Go("writer", func(t *sched.Task) {
			own[0].Store(t, 1)
			sem.Lock(t)
			sem.Unlock(t)
		})
		w.Go("tries", func(t *sched.Task) {
			own[1].Store(t, 1)
			if got = sem.TryRLock(t); got {
				sem.RUnlock(t)
			}
			tried.Store(t, 1)
		})
		return func() string { return fmt.Sprint(got) }
	}
	for _, m := range searches {
		if have := finals(t, explore.Config{Method: m, Switch: []sched.ClassID{0, rqClass.ID}}, prog); have != "false; true" {
			t.Errorf("%s: a try comes to %s, want false; true", m, have)
		}
	}
}

// Random programs in which the search switches at some classes only: a step then has many
// operations and objects. Every search comes to the final states of enumeration.
func TestHiddenClasses(t *testing.T) {
	need.Long(t)
	n := 1500
	if testing.Short() {
		n = 250
	}
	points := [][]sched.ClassID{{0}, {0, rsClass.ID}, {0, rmClass.ID}, {rqClass.ID, rsClass.ID}, {rmClass.ID, reClass.ID}}
	tried := 0
	for seed := range uint64(n) {
		p := randomProgram(rand.New(rand.NewPCG(seed, 13)), "mmrrwwMRWlsuuciezfq")
		some := points[seed%uint64(len(points))]
		states := map[explore.Method]map[string]bool{}
		for _, m := range []explore.Method{explore.Naive, explore.DPOR, explore.Bound, explore.State} {
			var last *rworld
			seen := map[string]bool{}
			r := explore.Run(explore.Config{Method: m, All: true, NoShrink: true, Schedules: 4000, MaxSteps: 500, Switch: some,
				Off: explore.CheckLockOrder | explore.CheckLeftovers, Done: func(_ int, x *explore.End) { seen[last.state(x)] = true }}, p.run(&last, true))
			if r.Schedules >= 4000 {
				break
			}
			states[m] = seen
		}
		if len(states) < 4 {
			continue
		}
		tried++
		for m, have := range states {
			if !maps.Equal(have, states[explore.Naive]) {
				t.Fatalf("%s, program %d, switching at classes %v:\n%sfinal states\n%s\nwant\n%s", m, seed, some, p,
					strings.Join(slices.Sorted(maps.Keys(have)), "\n"), strings.Join(slices.Sorted(maps.Keys(states[explore.Naive])), "\n"))
			}
		}
	}
	t.Logf("%d of %d programs tried", tried, n)
}

// Time is part of the state: until when a task sleeps, and what the clock says. Tasks that have
// done the same came to it early or late.
func TestTimeIsInTheState(t *testing.T) {
	due := func(w *explore.World) func() string {
		var mu lock.Mutex
		mu.Init(aClass)
		var x, y explore.Atomic[int]
		note := 0
		w.Go("holds", func(t *sched.Task) { mu.Lock(t); t.Sleep(1); mu.Unlock(t) })
		// until 10, or 11 if it comes second
		w.Go("sleeps on", func(t *sched.Task) { mu.Lock(t); mu.Unlock(t); t.Sleep(10); x.Store(t, 1) })
		w.Go("looks", func(t *sched.Task) { t.Sleep(10); note = x.Load(t) })
		w.Go("steps", func(t *sched.Task) { t.Sleep(2); y.Store(t, 1) }) // between the two
		return func() string { return fmt.Sprint(note) }
	}
	clock := func(w *explore.World) func() string {
		var mu lock.Mutex
		mu.Init(aClass)
		var done explore.Atomic[int]
		note := time.Duration(0)
		w.Go("holds", func(t *sched.Task) { mu.Lock(t); t.Sleep(1); mu.Unlock(t); done.Store(t, 1) })
		w.Go("asks", func(t *sched.Task) {
			mu.Lock(t)
			mu.Unlock(t)
			t.Sleep(1)
			done.Await(t, func(v int) bool { return v > 0 })
			note = time.Duration(t.Now())
		})
		return func() string { return fmt.Sprint(int(note)) }
	}
	for _, m := range searches {
		if have := finals(t, explore.Config{Method: m}, due); have != "0; 1" {
			t.Errorf("%s: a task that sleeps until 10 finds %s, want 0; 1", m, have)
		}
		if have := finals(t, explore.Config{Method: m}, clock); have != "1; 2" {
			t.Errorf("%s: the clock says %s, want 1; 2", m, have)
		}
	}
}

// A ninth task makes the clocks wider in mid-run. What came before it is still ordered: what a
// third task wrote before it let the parent go on the child may read. And a write that nothing
// orders after a read of before is a race; the writer sleeps, so that it never comes first, and is
// found by the read alone.
func TestNinthTask(t *testing.T) {
	prog := func(race bool) func(w *explore.World) {
		return func(w *explore.World) {
			var v, r sched.Var[int]
			var x explore.Atomic[int]
			w.Go("first", func(t *sched.Task) {
				v.Store(t, 1)
				x.Store(t, 1)
			})
			w.Go("parent", func(t *sched.Task) {
				x.Await(t, func(v int) bool { return v > 0 })
				_ = r.Load(t)
				t.Go("ninth", func(t *sched.Task) { v.Store(t, v.Load(t)+1) })
			})
			w.Go("late", func(t *sched.Task) {
				t.Sleep(1)
				if race {
					r.Store(t, 1)
				}
			})
			for i := range 5 {
				w.Go(fmt.Sprint("idle", i), func(*sched.Task) {})
			}
		}
	}
	for _, m := range []explore.Method{explore.DPOR, explore.Bound, explore.State} {
		if r := explore.Run(explore.Config{Method: m}, prog(false)); r.Verdict != explore.Exhausted {
			t.Errorf("%s: %s, %s", m, r.Bound, r.Violation)
		}
		if r := explore.Run(explore.Config{Method: m}, prog(true)); r.Kind != explore.KindRace {
			t.Errorf("%s: %s, %s; want a race", m, r.Bound, r.Violation)
		}
	}
}

// The shards of a search by chance divide its executions: together they make those that one search
// makes, each once. (PCT with a depth of more than one also looks at the longest execution so far,
// which a shard knows of its own part.)
func TestSamplerShards(t *testing.T) {
	for _, m := range []explore.Method{explore.Random, explore.PCT, explore.POS} {
		run := func(shard, shards, n int) (list []string) {
			explore.Run(explore.Config{Method: m, Seed: 5, Shard: shard, Shards: shards, Schedules: n, Depth: 1,
				Done: func(_ int, x *explore.End) { list = append(list, x.Schedule()) }}, sections(3, 3))
			return list
		}
		have, want := append(run(0, 2, 20), run(1, 2, 20)...), run(0, 1, 40)
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s: two shards make\n%q\nwant\n%q", m, have, want)
		}
	}
}

// POS draws the priorities of all operations that race with the one just done anew: an operation
// that competes with six others in turn comes last in one of 64 executions, and not in one of
// seven, as it would with one priority for all its life.
func TestPOSDrawsAnew(t *testing.T) {
	const n = 4000
	last := 0
	explore.Run(explore.Config{Method: explore.POS, Schedules: n, All: true, NoShrink: true, Done: func(_ int, x *explore.End) {
		if x.Violation != nil {
			last++
		}
	}}, func(w *explore.World) {
		var x explore.Atomic[int]
		late := false
		w.Go("six", func(t *sched.Task) {
			for range 6 {
				x.Update(t, func(v int) int { return v + 1 })
			}
		})
		w.Go("one", func(t *sched.Task) { late = x.Update(t, func(v int) int { return v }) == 6 })
		w.Check(func() error {
			if late {
				return fmt.Errorf("it came last")
			}
			return nil
		})
	})
	if share := float64(last) / n; share < 0.005 || share > 0.05 {
		t.Errorf("it came last in %.1f %% of the executions, want 1.6 %%", 100*share)
	}
}

// A task that sleeps with a choice uses what any value of the choice uses: the load comes after the
// store, too, whichever value loads.
func TestSleeperWithAChoice(t *testing.T) {
	for looks := range 2 {
		prog := func(w *explore.World) func() string {
			var x explore.Atomic[int]
			w.Name(&x, "x")
			saw := -1
			w.Go("chooses", func(t *sched.Task) {
				if w.Choose(2, "coin") == looks {
					saw = x.Look(t)
				}
			})
			w.Go("stores", func(t *sched.Task) { x.Store(t, 1) })
			return func() string { return fmt.Sprint(saw) }
		}
		for _, m := range searches {
			if have := finals(t, explore.Config{Method: m}, prog); have != "-1; 0; 1" {
				t.Errorf("%s: the look of value %d comes to %s, want -1; 0; 1", m, looks, have)
			}
		}
	}
}

// A yield lets one step come first. A task that could not let another one go on, because all of
// them waited for its lock, has yielded all the same: it need not let them go first when it
// unlocks.
func TestYieldIsForOneStep(t *testing.T) {
	prog := func(w *explore.World) func() string {
		var mu lock.Mutex
		mu.Init(aClass)
		var x explore.Atomic[int]
		saw := 0
		w.Go("yields", func(t *sched.Task) {
			mu.Lock(t)
			t.Enter(sched.PointYield, 0, nil)
			mu.Unlock(t)
			x.Store(t, 1)
		})
		w.Go("waits", func(t *sched.Task) {
			mu.Lock(t)
			saw = x.Look(t)
			mu.Unlock(t)
		})
		return func() string { return fmt.Sprint(saw) }
	}
	for _, m := range searches {
		if have := finals(t, explore.Config{Method: m}, prog); have != "0; 1" {
			t.Errorf("%s: the look comes to %s, want 0; 1", m, have)
		}
	}
}

// Two tasks take one step each, and one of them then yields. In one order the other one's step has
// let it go on; in the other order it must still let a third task go first. The steps have nothing
// in common, so the orders are equal as far as they tell.
func TestYieldIsInTheState(t *testing.T) {
	prog := func(w *explore.World) func() string {
		var own [2]explore.Atomic[int]
		var x explore.Atomic[int]
		saw := 0
		w.Go("steps", func(t *sched.Task) { own[0].Store(t, 1) })
		w.Go("yields", func(t *sched.Task) {
			own[1].Store(t, 1)
			t.Enter(sched.PointYield, 0, nil)
			saw = x.Load(t)
		})
		w.Go("stores", func(t *sched.Task) { x.Store(t, 1) })
		return func() string { return fmt.Sprint(saw) }
	}
	for _, m := range searches {
		if have := finals(t, explore.Config{Method: m}, prog); have != "0; 1" {
			t.Errorf("%s: the load comes to %s, want 0; 1", m, have)
		}
	}
}

// A waiter that a wake-up has found, before it sleeps, looks once more than one that queued itself
// after the wake-up. Neither the waiter nor the waker has seen the difference yet, and the waker
// has used nothing else: it waits for the second look to begin. The first execution has the wake-up
// after the waiter has queued itself.
func TestEarlyWakeIsInTheState(t *testing.T) {
	prog := func(w *explore.World) func() string {
		var q lock.WaitQueue
		q.Init(aClass)
		var flag explore.Atomic[bool]
		var second, turn explore.Atomic[int]
		looks := 0
		w.Go("waiter", func(t *sched.Task) {
			q.Wait(t, func() bool {
				if looks++; looks == 2 {
					second.Store(t, 1)
					turn.Await(t, func(v int) bool { return v > 0 })
				}
				return flag.Load(t)
			})
		})
		w.Go("waker", func(t *sched.Task) {
			q.Wake(t)
			second.Await(t, func(v int) bool { return v > 0 })
			turn.Store(t, 1)
			flag.Store(t, true)
			q.Wake(t)
		})
		return func() string { return fmt.Sprint(looks) }
	}
	for _, m := range searches {
		if have := finals(t, explore.Config{Method: m}, prog); have != "2; 3; 4; 5" {
			t.Errorf("%s: the waiter looks %s times, want 2; 3; 4; 5", m, have)
		}
	}
}

// A sampler's schedule that the search with fewer preemptions does not reach is shrunk by leaving
// steps out. The result has the number of preemptions of the schedule that it gives.
func TestShrinkCountsPreemptions(t *testing.T) {
	prog := func(w *explore.World) {
		var x explore.Atomic[int]
		steps := 0
		w.Go("looks", func(t *sched.Task) {
			for last := -1; x.Load(t) != last; last = x.Peek() {
				steps++
			}
		})
		for range 7 { // 40,320 orders without a preemption
			w.Go("adds", func(t *sched.Task) {
				for range 2 {
					x.Update(t, func(v int) int { return v + 1 })
				}
			})
		}
		w.Check(func() error {
			if steps > 3 {
				return fmt.Errorf("%d steps", steps)
			}
			return nil
		})
	}
	cfg := explore.Config{Method: explore.Random, NoShrink: true}
	before := explore.Run(cfg, prog)
	cfg.NoShrink = false
	r := explore.Run(cfg, prog)
	t.Logf("%d preemptions in %s, before %d in %s", r.Preemptions, r.Schedule, before.Preemptions, before.Schedule)
	if x := explore.Replay(cfg, r.Schedule, prog); x.Verdict != explore.KindOracle || x.Preemptions != r.Preemptions {
		t.Errorf("%d preemptions in the result, %d in a replay of %s: %s", r.Preemptions, x.Preemptions, r.Schedule, x.Verdict)
	}
	if r.Preemptions >= before.Preemptions {
		t.Errorf("%d preemptions, before %d", r.Preemptions, before.Preemptions)
	}
}

// Programs in which DPOR lost an order, or tried one twice, under a small mistake in the races of
// what waits; each task is a string of operations (ropNames). The orders are those that Bound
// finds, and each is tried once.
func TestRacesOfWhatWaits(t *testing.T) {
	for _, tc := range []struct{ what, prog string }{
		{"a wait that uses two objects, in an event", "R0 w0 | u0 r0{c1} | W0{i0}"},
		{"a wait that uses two objects, at the end", "r0 | w0 | w0 w0{r0}"},
		{"a wait after events that are apart from each other", "W0 R0 | w0 | r0"},
		{"a plan that leads a task that sleeps", "w0 u0 m0 | i1 w0 f0 | r0"},
		{"a task that sleeps and whose try fails, and then ends, where it succeeds later", "g0{u0 M0} | m0{s0}"},
	} {
		p := parseProgram(tc.prog)
		all := p.explore(explore.Bound, 0, true)
		e := p.explore(explore.DPOR, 0, true)
		for s, sch := range all.states {
			if e.states[s] == "" {
				t.Errorf("%s: final state %s is missing, schedule %s", tc.what, s, sch)
			}
		}
		if len(all.orders) < 2 || len(e.orders) != len(all.orders) {
			t.Errorf("%s: %d orders, want %d", tc.what, len(e.orders), len(all.orders))
		}
		for o, n := range e.orders {
			if n != 1 && !p.has("g") { // what tasks of mid-run use first has no name
				t.Errorf("%s: an order %x is tried %d times", tc.what, o, n)
			}
		}
	}
}

// parseProgram reads the tasks of a program: operations by letter and object, what is done under a
// lock in braces.
func parseProgram(text string) *rprog {
	p := &rprog{}
	for f := range strings.SplitSeq(text, "|") {
		f = strings.ReplaceAll(f, " ", "")
		var ops func() []rop
		ops = func() (l []rop) {
			for len(f) > 1 && f[0] != '}' {
				o := rop{kind: f[0], obj: int(f[1] - '0')}
				if o.kind == 'g' {
					p.children++
					o.child = p.children
				}
				if f = f[2:]; strings.HasPrefix(f, "{") {
					f = f[1:]
					o.in = ops()
					f = f[1:]
				}
				l = append(l, o)
			}
			return l
		}
		p.tasks = append(p.tasks, ops())
	}
	return p
}

// A random walk that keeps nothing for reports makes the executions that one does of which the
// orders are kept: the same number of steps, and the same first schedule that violates something.
// Some programs yield, choose, start tasks, spin without end or may not sleep.
func TestWalkIsTheSameWalk(t *testing.T) {
	nowait := func(w *explore.World) {
		mu := new(lock.Mutex)
		mu.Init(aClass)
		w.Go("holds", func(t *sched.Task) { mu.Lock(t); mu.Unlock(t) })
		w.Go("nowait", func(t *sched.Task) {
			t.BeginNowait()
			if mu.TryLock(t) {
				mu.Unlock(t)
			}
			mu.Lock(t)
			mu.Unlock(t)
			t.EndNowait()
		})
	}
	chooses := func(w *explore.World) {
		sum := 0
		for range 3 {
			w.Go("chooses", func(*sched.Task) { sum += w.Choose(3, "coin") })
		}
		w.Check(func() error {
			if sum == 5 {
				return fmt.Errorf("the sum is %d", sum)
			}
			return nil
		})
	}
	progs := map[string]func(w *explore.World){"chooses": chooses, "truncate": truncateRace(3, false), "locks": twoLocks(true), "sections": sections(3, 2),
		"peterson": peterson(true), "signal": missedSignal(true), "starvation": starvation, "nowait": nowait}
	for i, letters := range themes {
		for j := range uint64(2) {
			var last *rworld
			progs[fmt.Sprintf("random %s %d", letters, j)] = randomProgram(rand.New(rand.NewPCG(uint64(i), j)), letters).run(&last, true)
		}
	}
	kinds := map[explore.Kind]bool{}
	for name, prog := range progs {
		for seed := range uint64(3) {
			for _, off := range []explore.Checks{0, ^explore.Checks(0)} {
				cfg := explore.Config{Method: explore.Random, Seed: seed, Schedules: 40, MaxSteps: 60, NoShrink: true, Off: off}
				have := explore.Run(cfg, prog)
				cfg.Done = func(int, *explore.End) {}
				want := explore.Run(cfg, prog)
				if have.Found != want.Found || have.Steps != want.Steps || have.Kind != want.Kind || have.Schedule != want.Schedule {
					t.Errorf("%s, seed %d, off %b: %s %q, found in %d, %d steps; want %s %q, found in %d, %d steps", name, seed, off,
						have.Kind, have.Schedule, have.Found, have.Steps, want.Kind, want.Schedule, want.Found, want.Steps)
				}
				kinds[have.Kind] = true
			}
		}
	}
	for _, k := range []explore.Kind{explore.OK, explore.KindOracle, explore.KindOrder, explore.KindDeadlock, explore.KindLivelock,
		explore.KindNowait, explore.KindPanic} {
		if !kinds[k] {
			t.Errorf("no program comes to %q", k)
		}
	}
}

// A step stops at a mutex that another task holds, which is no switch point. Had the other task let
// it go before, the step would have gone on: two orders, of which DPOR tried the first.
func TestStoppedStepGoesOn(t *testing.T) {
	for _, m := range searches {
		orders := map[uint64]bool{}
		r := explore.Run(explore.Config{Method: m, Switch: []sched.ClassID{0}, Done: func(_ int, x *explore.End) { orders[x.Order] = true }}, func(w *explore.World) {
			var mu lock.Mutex
			var x, y explore.Atomic[int]
			mu.Init(aClass)
			w.Go("stops", func(t *sched.Task) { y.Load(t); mu.Lock(t); mu.Unlock(t) })
			w.Go("holds", func(t *sched.Task) { mu.Lock(t); x.Store(t, 1); mu.Unlock(t) })
		})
		if len(orders) != 2 && m != explore.State {
			t.Errorf("%s: %d orders, want 2: %s", m, len(orders), r.Bound)
		}
	}
}

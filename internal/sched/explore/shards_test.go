package explore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// reads is a random program of tasks that load and store two words, every value once. The outcome
// of an execution is what each load saw: equivalent schedules have the same one, so every search
// that is exhausted has seen all outcomes. seen gets them.
func reads(seed uint64, tasks, ops int, seen map[string]bool, bad string) func(w *explore.World) {
	return func(w *explore.World) {
		rng := rand.New(rand.NewPCG(seed, 3))
		words := make([]explore.Atomic[int], 2)
		saw := make([][]int, tasks)
		for i := range tasks {
			type op struct{ word, store int }
			var l []op
			for n := range ops {
				l = append(l, op{rng.IntN(2), rng.IntN(2) * (10*i + n + 1)})
			}
			w.Go(fmt.Sprint("task", i), func(t *sched.Task) {
				for _, o := range l {
					if o.store > 0 {
						words[o.word].Store(t, o.store)
					} else {
						saw[i] = append(saw[i], words[o.word].Load(t))
					}
				}
			})
		}
		w.Finally(func(*sched.Task) error {
			s := fmt.Sprint(saw, words[0].Peek(), words[1].Peek())
			seen[s] = true
			if s == bad {
				return fmt.Errorf("the outcome is %s", s)
			}
			return nil
		})
	}
}

// TestShardsLoseNothing: the shards of a search have seen together what the whole has seen, and
// nothing that there is not. A shard that drops alternatives, of which no other shard takes care,
// is "exhausted" as the others are, and so is what they merge to. So each outcome in turn is made
// the violation: one shard at least must find it.
func TestShardsLoseNothing(t *testing.T) {
	programs := uint64(12)
	if testing.Short() {
		programs = 4
	}
	outcomes := 0
	for seed := range programs {
		all := map[string]bool{}
		if r := explore.Run(explore.Config{Method: explore.Naive}, reads(seed, 3, 2, all, "")); r.Verdict != explore.Exhausted {
			t.Fatal(r.Bound)
		}
		outcomes += len(all)
		for _, m := range []explore.Method{explore.Bound, explore.DPOR, explore.State, explore.Naive} {
			for _, shards := range []int{1, 2, 3, 5, 8} {
				together := map[string]bool{}
				for i := range shards {
					r := explore.Run(explore.Config{Method: m, Shard: i, Shards: shards}, reads(seed, 3, 2, together, ""))
					if r.Verdict != explore.Exhausted {
						t.Fatalf("program %d, %s, shard %d of %d: %s", seed, m, i, shards, r.Bound)
					}
				}
				if !maps.Equal(together, all) {
					t.Errorf("program %d, %s: %d shards have seen %d outcomes, want %d", seed, m, shards, len(together), len(all))
				}
			}
			for _, bad := range slices.Sorted(maps.Keys(all)) {
				found := 0
				for i := range 3 {
					r := explore.Run(explore.Config{Method: m, Shard: i, Shards: 3, NoShrink: true}, reads(seed, 3, 2, map[string]bool{}, bad))
					if r.Verdict == explore.Violated {
						found++
					}
				}
				if found == 0 {
					t.Errorf("program %d, %s: none of 3 shards finds %s", seed, m, bad)
				}
			}
		}
	}
	if outcomes < 10*int(programs) {
		t.Errorf("%d outcomes of %d programs: hardly anything to lose", outcomes, programs)
	}
}

// turns is a program with two violations: the second task sees 1 and then 2, which takes three
// preemptions, or it sees 1 twice, which takes one and is a part of the other.
func turns(w *explore.World) {
	var v explore.Atomic[int]
	var saw []int
	w.Go("writer", func(t *sched.Task) {
		for n := range 3 {
			v.Store(t, n+1)
		}
	})
	w.Go("reader", func(t *sched.Task) {
		for range 2 {
			saw = append(saw, v.Load(t))
		}
		if slices.Equal(saw, []int{1, 1}) {
			panic("1 twice")
		}
	})
	w.Finally(func(*sched.Task) error {
		if slices.Equal(saw, []int{1, 2}) {
			return fmt.Errorf("1 and then 2")
		}
		return nil
	})
}

// TestShrinkKeepsTheKind: a schedule is made shorter as long as it shows the same kind of
// violation. Half of it may show another one, which is a bug as well, but not the one that was
// found: its report would be about something else. Whatever the method, the schedule that is
// reported shows what the report says, and it is the shortest of its kind.
func TestShrinkKeepsTheKind(t *testing.T) {
	least := map[explore.Kind]int{explore.KindPanic: 1, explore.KindOracle: 3}
	kinds := map[explore.Kind]int{}
	for _, m := range []explore.Method{explore.Random, explore.PCT, explore.POS, explore.DPOR, explore.Naive} {
		for seed := range uint64(20) {
			cfg := explore.Config{Method: m, Seed: seed, Schedules: 500}
			raw := cfg
			raw.NoShrink = true
			found, r := explore.Run(raw, turns), explore.Run(cfg, turns)
			if found.Verdict != explore.Violated {
				t.Fatalf("%s, seed %d: %s", m, seed, found.Bound)
			}
			kinds[found.Kind]++
			if r.Kind != found.Kind || r.Violation.Kind != found.Kind || r.Preemptions != least[r.Kind] {
				t.Errorf("%s, seed %d: found %s (%s), reported %s with %d preemptions (%s), want %d", m, seed, found.Kind, found.Schedule, r.Kind, r.Preemptions, r.Schedule, least[found.Kind])
			}
			if x := explore.Replay(cfg, r.Schedule, turns); x.Verdict != found.Kind {
				t.Errorf("%s, seed %d: the schedule %s shows %s, want %s", m, seed, r.Schedule, x.Verdict, found.Kind)
			}
		}
	}
	if kinds[explore.KindPanic] < 5 || kinds[explore.KindOracle] < 5 {
		t.Errorf("found %v: hardly anything that could be mistaken", kinds)
	}
}

// To divide a search costs little: what two parts try together is not much more than what the whole
// search tries.
func TestDivisionIsCheap(t *testing.T) {
	whole := explore.Run(explore.Config{Method: explore.DPOR}, truncateRace(3, true))
	sum, most := 0, 0
	for i := range 2 {
		r := explore.Run(explore.Config{Method: explore.DPOR, Shard: i, Shards: 2}, truncateRace(3, true))
		sum += r.Schedules
		most = max(most, r.Schedules)
	}
	t.Logf("%d schedules, %d in two parts, %d in the greater one", whole.Schedules, sum, most)
	if sum > whole.Schedules*5/4 || most > whole.Schedules*3/4 {
		t.Errorf("%d schedules, %d in two parts, %d in the greater one", whole.Schedules, sum, most)
	}
}

package explore_test

import (
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"btrlab/internal/sched/explore"
)

// Whoever waits for a search, or pays for it, can end it: what it has seen until then is its
// result, and says so. A search that was ended has not exhausted anything, by whatever method, and
// with several workers neither.
func TestStop(t *testing.T) {
	for _, m := range []explore.Method{explore.Bound, explore.DPOR, explore.State, explore.Naive, explore.Prove, explore.Random, explore.PCT, explore.POS, explore.Portfolio} {
		prog := sections(3, 2)
		var asked atomic.Int64 // Prove has two workers
		r := explore.Run(explore.Config{Method: m, Stop: func() bool { asked.Add(1); return true }}, prog)
		if r.Verdict != explore.Bounded || !r.Stopped || asked.Load() == 0 || !strings.Contains(r.Bound.String(), "stopped") {
			t.Errorf("%s: %+v", m, r)
		}
		if r := explore.Run(explore.Config{Method: m, Schedules: 3}, prog); r.Verdict != explore.Bounded || r.Stopped || !strings.Contains(r.Bound.String(), "limit reached") {
			t.Errorf("%s with a limit: %+v", m, r)
		}
	}
}

// With two workers it is the other one that may have something left to try.
func TestStopOfTwo(t *testing.T) {
	for _, m := range []explore.Method{explore.Bound, explore.DPOR, explore.State} {
		whole := explore.Run(explore.Config{Method: m, Jobs: 2}, sections(3, 2))
		if whole.Verdict != explore.Exhausted {
			t.Fatalf("%s: %+v", m, whole)
		}
		for n := 1; n < whole.Schedules/2; n++ {
			r := explore.Run(explore.Config{Method: m, Jobs: 2, Schedules: n}, sections(3, 2))
			if r.Verdict != explore.Bounded {
				t.Errorf("%s: %s after %d schedules; all are %d", m, r.Verdict, r.Schedules, whole.Schedules)
			}
		}
	}
}

// Long searches raise the target of the garbage collector, which is the process's, and leave it as
// it was when the last of them has ended, in whatever order they end.
func TestCollectorAtRest(t *testing.T) {
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			explore.Run(explore.Config{Method: explore.Random, Schedules: 500 * (i + 1)}, sections(2, 3))
		})
	}
	wg.Wait()
	if have := debug.SetGCPercent(100); have != 100 {
		t.Errorf("the target is %d, want 100", have)
	}
}

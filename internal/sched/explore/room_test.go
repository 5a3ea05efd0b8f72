package explore_test

import (
	"fmt"
	"runtime"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// stores is a program with 369,600 orders that all differ.
func stores(w *explore.World) {
	v := new(explore.Atomic[int])
	for i := range 4 {
		w.Go(fmt.Sprint("task", i), func(t *sched.Task) {
			for n := range 3 {
				v.Store(t, 3*i+n)
			}
		})
	}
}

// A search by DPOR, of every schedule or by chance keeps nothing of what it has tried: fifty
// thousand schedules leave as much alive as a thousand. (By bound and by state it must know what
// it has seen, and what it has not.)
func TestNothingKept(t *testing.T) {
	for _, m := range []explore.Method{explore.DPOR, explore.Naive, explore.Random, explore.PCT, explore.POS, explore.Portfolio} {
		alive := map[int]uint64{}
		cfg := explore.Config{Method: m, Schedules: 50_000, Seed: 1, Done: func(n int, _ *explore.End) {
			if n == 1_000 || n == 50_000 {
				runtime.GC()
				var s runtime.MemStats
				runtime.ReadMemStats(&s)
				alive[n] = s.HeapAlloc
			}
		}}
		r := explore.Run(cfg, stores)
		if len(alive) != 2 || r.Schedules != 50_000 {
			t.Errorf("%s: %s", m, r.Bound)
		} else if alive[50_000] > alive[1_000]+256<<10 {
			t.Errorf("%s: %d bytes are alive after 1,000 schedules, %d after 50,000", m, alive[1_000], alive[50_000])
		}
	}
}

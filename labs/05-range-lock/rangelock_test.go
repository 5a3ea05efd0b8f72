package rangelock

import (
	"fmt"
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/labs/kit"
)

// TestTwoHolders explores two tasks that lock a range each, in every order. More is in btrlab lab
// grade 5.
func TestTwoHolders(t *testing.T) {
	for _, tt := range [][2]kit.Range{
		{{Start: 0, End: 8}, {Start: 0, End: 8}},
		{{Start: 0, End: 16}, {Start: 4, End: 8}},
		{{Start: 0, End: 8}, {Start: 4, End: 12}},
		{{Start: 0, End: 8}, {Start: 8, End: 16}},
	} {
		x := explore.Run(explore.Config{}, func(w *explore.World) {
			l := New()
			var held [2]kit.Range
			var at explore.Atomic[int] // coming and going are steps
			for i, r := range tt {
				w.Go(fmt.Sprint("holder ", i), func(t *sched.Task) {
					l.Lock(kit.On(t), r.Start, r.End)
					at.Store(t, i)
					if held[1-i].Overlaps(r) {
						panic(fmt.Sprintf("both hold %v and %v", r, held[1-i]))
					}
					held[i] = r
					at.Store(t, -1)
					held[i] = kit.Range{}
					l.Unlock(kit.On(t), r.Start, r.End)
				})
			}
		})
		if x.Verdict != explore.Exhausted {
			t.Errorf("%v: %s: %s, schedule %q", tt, x.Bound, x.Violation, x.Schedule)
		}
	}
}

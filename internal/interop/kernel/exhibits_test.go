package kernel

import (
	"flag"
	"slices"
	"testing"
	"time"

	"btrlab/internal/interop"
	"btrlab/internal/judge/park"
)

var exhibitTimes = flag.Int("exhibits.times", 1, "how often to lead each kernel through each exhibit")

// Each kernel does what an exhibit of the museum says, or does not: the kernels with the bug break,
// the others are led through the same schedule and keep what they promise, or refuse it.
func TestKernelExhibits(t *testing.T) {
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			g := newGuide(t, k, 2, 20*time.Second)
			for i := range park.Exhibits {
				e := &park.Exhibits[i]
				s, p, err := e.Asks()
				interop.Must(t, err)
				want, broken := slices.Contains(e.Broken, k.Version), 0
				var took time.Duration
				g.hung = 0
				for range *exhibitTimes {
					x := g.lead(&ask{s, p, e.Schedule})
					took += g.Took
					if x.Breaks() {
						broken++
					}
					if x.Breaks() != want {
						t.Errorf("exhibit %d on Linux %s: breaks is %v: %+v", e.Number, k.Release, !want, x)
					}
					if !x.Stuck() {
						interop.Judged(t, g.Options.Image)
					}
				}
				t.Logf("exhibit %d, Linux %s: breaks in %d of %d, %.1f s each; %d more hung", e.Number, k.Release, broken, *exhibitTimes, took.Seconds()/float64(*exhibitTimes), g.hung)
			}
		})
	}
}

package kernel

import (
	"context"
	"errors"
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
			image := ""
			whole, end := context.WithCancel(context.Background())
			defer end()
			var m *park.Machine
			defer func() {
				if m != nil {
					interop.Must(t, m.Close())
				}
			}()
			for i := range park.Exhibits {
				e := &park.Exhibits[i]
				want, broken, hung := slices.Contains(e.Broken, k.Version), 0, 0
				var took time.Duration
				for n := 0; n < *exhibitTimes; n++ {
					if m == nil {
						m, image = machine(whole, t, k)
					}
					ctx, cancel := context.WithTimeout(whole, 20*time.Second)
					begin := time.Now()
					x, err := e.Show(ctx, m, image)
					cancel()
					if errors.Is(err, context.DeadlineExceeded) && hung < *exhibitTimes {
						t.Logf("exhibit %d: %v", e.Number, err)
						interop.Must(t, m.Close())
						m, hung, n = nil, hung+1, n-1 // see 13.10: it is begun again
						continue
					}
					took += time.Since(begin)
					if err != nil {
						t.Fatalf("exhibit %d: %v", e.Number, err)
					}
					if x.Breaks() {
						broken++
					}
					if x.Breaks() != want {
						t.Errorf("exhibit %d on Linux %s: breaks is %v: %+v", e.Number, m.Release, !want, x)
					}
					if x.Stuck() {
						interop.Must(t, m.Close())
						m = nil
					} else {
						interop.Judged(t, image)
					}
				}
				t.Logf("exhibit %d, Linux %s: breaks in %d of %d, %.1f s each; %d more hung", e.Number, k.Release, broken, *exhibitTimes, took.Seconds()/float64(*exhibitTimes), hung)
			}
		})
	}
}

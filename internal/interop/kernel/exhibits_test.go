package kernel

import (
	"context"
	"flag"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"btrlab/internal/interop"
	"btrlab/internal/judge/kernels/jobs"
	"btrlab/internal/judge/park"
)

var exhibitTimes = flag.Int("exhibits.times", 1, "how often to lead each kernel through each exhibit")

// Each kernel does what an exhibit of the museum says, or does not: the kernels with the bug break,
// the others are led through the same schedule and keep what they promise, or refuse it.
func TestKernelExhibits(t *testing.T) {
	for _, k := range booted(t) {
		t.Run(k.Version, func(t *testing.T) {
			program, err := guestProgram()
			interop.Must(t, err)
			image := filepath.Join(t.TempDir(), "image")
			interop.Sh(t, "truncate", "-s", "128M", image)
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
				want, broken := slices.Contains(e.Broken, k.Version), 0
				var took time.Duration
				for range *exhibitTimes {
					if m == nil {
						m, err = park.Boot(whole, park.Options{Kernel: k, Program: program, Args: jobs.Args("tasks"), Image: image})
						interop.Must(t, err)
					}
					ctx, cancel := context.WithTimeout(whole, time.Minute)
					begin := time.Now()
					x, err := e.Show(ctx, m, image)
					took += time.Since(begin)
					cancel()
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
				t.Logf("exhibit %d, Linux %s: breaks in %d of %d, %.1f s each", e.Number, k.Release, broken, *exhibitTimes, took.Seconds()/float64(*exhibitTimes))
			}
		})
	}
}

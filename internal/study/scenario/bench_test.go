package scenario

import (
	"testing"

	"golang.org/x/sys/unix"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
)

// The explorer through the real write path, on an image in memory that is put back between
// schedules. Each benchmark reports the goal of the issue beside its figure.

// BenchmarkFound goes from nothing to the shortest schedule of the lost truncate, the proof that
// none is shorter included.
func BenchmarkFound(b *testing.B) {
	r := benchmark(b, "truncate-race", "unlocked", nil)
	b.ReportMetric(float64(r.Schedules), "schedules")
	b.ReportMetric(200, "goal-schedules")
	b.ReportMetric(float64(r.Preemptions), "preemptions")
	b.ReportMetric(0.3, "goal-s/op")
}

// BenchmarkExhausted proves that the wait before the size keeps it.
func BenchmarkExhausted(b *testing.B) {
	for _, c := range []struct {
		scenario string
		method   explore.Method
		goal     float64
	}{{"truncate-race", explore.Bound, 10}, {"two-writers-truncate", explore.Bound, 60}, {"two-writers-truncate", explore.DPOR, 60}} {
		b.Run(c.scenario+"/"+string(c.method), func(b *testing.B) {
			r := benchmark(b, c.scenario, "unlocked-drain", func(x *explore.Config) { x.Method = c.method })
			if r.Verdict != explore.Exhausted {
				b.Fatalf("%+v", r)
			}
			b.ReportMetric(float64(r.Schedules), "schedules")
			b.ReportMetric(c.goal, "goal-s/op")
		})
	}
}

// BenchmarkSchedules runs whole schedules, chosen at random: none is cut off.
func BenchmarkSchedules(b *testing.B) {
	for _, name := range []string{"truncate-race", "two-writers-truncate"} {
		b.Run(name, func(b *testing.B) {
			const n = 20_000
			before := cpuSeconds(b)
			benchmark(b, name, "unlocked-drain", func(x *explore.Config) { x.Method, x.Schedules = explore.Random, n })
			b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "schedules/s")
			b.ReportMetric(float64(b.N)*n/(cpuSeconds(b)-before), "schedules/cpu-s")
			b.ReportMetric(20_000, "goal-schedules/s")
		})
	}
}

// benchmark explores b.N times and returns the last result.
func benchmark(b *testing.B, name, pol string, change func(*explore.Config)) (r Result) {
	s, err := Lookup(name)
	if err != nil {
		b.Fatal(err)
	}
	p := policy.MustParse(pol)
	for b.Loop() {
		if r, err = Run(s, p, Options{Config: change}); err != nil {
			b.Fatal(err)
		}
	}
	return r
}

// cpuSeconds is the processor time of the process: what counts on a machine that is shared.
func cpuSeconds(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

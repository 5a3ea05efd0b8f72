package vtime_test

import (
	"testing"

	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// BenchmarkWrites is the whole write path in virtual time: 8 tasks on 8 CPUs, one NOCOW file, 4 KiB
// at random.
func BenchmarkWrites(b *testing.B) {
	for _, pol := range []string{"locked", "unlocked", "range-lock"} {
		for _, model := range []string{"none", "ssd-raid5"} {
			b.Run(pol+"/"+model, func(b *testing.B) {
				sched.SetChecked(false)
				defer sched.SetChecked(true)
				m := model
				if m == "none" {
					m = ""
				}
				before := cpuSeconds()
				for b.Loop() {
					if _, err := overwrite(vtime.Machine{CPUs: 8}, pol, 8, 25000, m); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(200000*float64(b.N)/(cpuSeconds()-before), "writes/cpu-s")
			})
		}
	}
}

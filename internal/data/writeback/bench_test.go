package writeback_test

import (
	"math/rand/v2"
	"testing"

	"btrlab/internal/data/pagecache"
	"btrlab/internal/sched"
)

// BenchmarkOverwrite is a buffered 4 KiB random overwrite of a cached NOCOW file, without writeback.
func BenchmarkOverwrite(b *testing.B) {
	for _, c := range []struct {
		name  string
		flags uint64
	}{{"nocow", nocow}, {"cow", 0}} {
		b.Run(c.name, func(b *testing.B) {
			sched.SetChecked(false)
			defer sched.SetChecked(true)
			w := newWorld(b, 4<<30)
			w.fs.Cache.BDI.SetLimits(1<<40, 1<<41)
			const size = 64 << 20
			ip := w.create(c.flags)
			must(b, w.write(w.t, ip, make([]byte, size), 0))
			w.sync()
			// Once around, so that the extent map knows what is in place.
			must(b, w.write(w.t, ip, make([]byte, pageSize), 0))
			w.sync()
			data := make([]byte, pageSize)
			rng := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			b.SetBytes(pageSize)
			for b.Loop() {
				off := uint64(rng.IntN(size/pageSize)) * pageSize
				if err := w.write(w.t, ip, data, off); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			w.sync()
			w.closeTasks()
		})
	}
}

// BenchmarkWriteback is what the writeback of one random dirty 4 KiB page costs, from WritePages until its ordered
// extent is finished.
func BenchmarkWriteback(b *testing.B) {
	for _, c := range []struct {
		name  string
		flags uint64
	}{{"nocow", nocow}, {"cow", 0}} {
		b.Run(c.name, func(b *testing.B) {
			sched.SetChecked(false)
			defer sched.SetChecked(true)
			w := newWorld(b, 8<<30)
			w.fs.Cache.BDI.SetLimits(1<<40, 1<<41)
			const size = 64 << 20
			ip := w.create(c.flags)
			must(b, w.write(w.t, ip, make([]byte, size), 0))
			w.sync()
			must(b, w.write(w.t, ip, make([]byte, pageSize), 0))
			w.sync()
			data := make([]byte, pageSize)
			rng := rand.New(rand.NewPCG(1, 2))
			const batch = 2000
			pages := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for range batch {
					must(b, w.write(w.t, ip, data, uint64(rng.IntN(size/pageSize/2))*2*pageSize))
				}
				pages += int(ip.Pages.DirtyPages(w.t))
				b.StartTimer()
				must(b, w.e.WaitOrderedRange(w.t, ip, 0, pagecache.MaxFileEnd))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(pages), "ns/page")
			b.ReportMetric(0, "ns/op")
			w.sync()
			w.closeTasks()
		})
	}
}

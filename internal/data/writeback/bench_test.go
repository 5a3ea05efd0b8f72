package writeback_test

import (
	"math/rand/v2"
	"testing"

	"btrlab/internal/data/pagecache"
	"btrlab/internal/sched"
	"btrlab/internal/testing/datatest"
)

// BenchmarkOverwrite is a buffered 4 KiB random overwrite of a cached NOCOW file, without
// writeback.
func BenchmarkOverwrite(b *testing.B) {
	for _, c := range []struct {
		name  string
		flags uint64
	}{{"nocow", datatest.Nocow}, {"cow", 0}} {
		b.Run(c.name, func(b *testing.B) {
			sched.SetChecked(false)
			defer sched.SetChecked(true)
			w := datatest.New(b, 4<<30)
			w.FS.Cache.BDI.SetLimits(1<<40, 1<<41)
			const size = 64 << 20
			ip := w.Create(c.flags)
			datatest.Must(b, w.Write(w.T, ip, make([]byte, size), 0))
			w.Sync()
			// Once around, so that the extent map knows what is in place.
			datatest.Must(b, w.Write(w.T, ip, make([]byte, pageSize), 0))
			w.Sync()
			data := make([]byte, pageSize)
			rng := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			b.SetBytes(pageSize)
			for b.Loop() {
				off := uint64(rng.IntN(size/pageSize)) * pageSize
				if err := w.Write(w.T, ip, data, off); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			w.Sync()
			w.CloseTasks()
		})
	}
}

// BenchmarkWriteback measures the writeback of one random dirty 4 KiB page, from WritePages
// until its ordered extent is finished.
func BenchmarkWriteback(b *testing.B) {
	for _, c := range []struct {
		name  string
		flags uint64
	}{{"nocow", datatest.Nocow}, {"cow", 0}} {
		b.Run(c.name, func(b *testing.B) {
			sched.SetChecked(false)
			defer sched.SetChecked(true)
			w := datatest.New(b, 8<<30)
			w.FS.Cache.BDI.SetLimits(1<<40, 1<<41)
			const size = 64 << 20
			ip := w.Create(c.flags)
			datatest.Must(b, w.Write(w.T, ip, make([]byte, size), 0))
			w.Sync()
			datatest.Must(b, w.Write(w.T, ip, make([]byte, pageSize), 0))
			w.Sync()
			data := make([]byte, pageSize)
			rng := rand.New(rand.NewPCG(1, 2))
			const batch = 2000
			pages := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for range batch {
					datatest.Must(b, w.Write(w.T, ip, data, uint64(rng.IntN(size/pageSize/2))*2*pageSize))
				}
				pages += int(ip.Pages.DirtyPages(w.T))
				b.StartTimer()
				datatest.Must(b, w.Engine.WaitOrderedRange(w.T, ip, 0, pagecache.MaxFileEnd))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(pages), "ns/page")
			b.ReportMetric(0, "ns/op")
			w.Sync()
			w.CloseTasks()
		})
	}
}

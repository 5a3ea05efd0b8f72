package writeback_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/datatest"
)

// BenchmarkFile is 4 KiB random overwrites of one cached 256 MiB NOCOW file through package fs,
// with the flusher at work: what a user sees.
func BenchmarkFile(b *testing.B) {
	for _, pol := range []string{"locked", "unlocked-drain", "range-lock", "modern"} {
		for _, writers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/%d", pol, writers), func(b *testing.B) { benchFile(b, pol, writers, "", false) })
		}
	}
}

// BenchmarkModel is the same on the device of seed 002.
func BenchmarkModel(b *testing.B) {
	for _, pol := range []string{"locked", "unlocked-drain", "prewait", "range-lock"} {
		b.Run(pol, func(b *testing.B) { benchFile(b, pol, 8, "ssd-raid5", false) })
	}
}

// BenchmarkPrealloc begins with a file that fallocate made: every first write of a page converts
// it.
func BenchmarkPrealloc(b *testing.B) {
	for _, pol := range []string{"locked", "range-lock"} {
		b.Run(pol, func(b *testing.B) { benchFile(b, pol, 8, "", true) })
	}
}

func benchFile(b *testing.B, pol string, writers int, model string, prealloc bool) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	t := sched.NewTask("bench")
	var dev blockdev.Device = blockdev.NewMemory(1 << 30)
	datatest.Must(b, mkfs.Make(t, dev, mkfs.Options{Now: time.Unix(1e9, 0)}))
	if model != "" {
		p, err := dm.Parse(model)
		datatest.Must(b, err)
		m := dm.New(t, dev, p)
		defer m.Close()
		dev = m
	}
	f, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{Policy: policy.MustParse(pol)})
	datatest.Must(b, err)
	file, err := f.Create(t, "/f", 0o644)
	datatest.Must(b, err)
	datatest.Must(b, file.SetFlags(t, format.InodeNoDataCow))
	const size = 256 << 20
	if prealloc {
		datatest.Must(b, file.Fallocate(t, 0, 0, size))
	}
	buf := make([]byte, 1<<20)
	for off := int64(0); off < size && !prealloc; off += int64(len(buf)) {
		_, err := file.WriteAt(t, buf, off)
		datatest.Must(b, err)
	}
	datatest.Must(b, f.Sync(t))
	var left atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	left.Store(int64(b.N))
	var tasks []*sched.Task
	for i := range writers {
		tasks = append(tasks, t.Go("writer", func(t *sched.Task) {
			rng := rand.New(rand.NewPCG(uint64(i), 2))
			p := make([]byte, 4096)
			for left.Add(-1) >= 0 {
				if _, err := file.WriteAt(t, p, rng.Int64N(size/4096)*4096); err != nil {
					panic(err)
				}
			}
		}))
	}
	for _, c := range tasks {
		t.Join(c)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "iops")
	if testing.Verbose() {
		report(b, waitsOf(tasks...), writers)
	}
	datatest.Must(b, file.Close(t))
	datatest.Must(b, f.Close(t))
}

// BenchmarkSmallFiles puts files of 4 KiB into a new image and commits; one operation is one file.
func BenchmarkSmallFiles(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	t := sched.NewTask("bench")
	dev := blockdev.NewMemory(4 << 30)
	datatest.Must(b, mkfs.Make(t, dev, mkfs.Options{Now: time.Unix(1e9, 0)}))
	f, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{})
	datatest.Must(b, err)
	p := make([]byte, 4096)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		file, err := f.Create(t, fmt.Sprintf("/f%d", i), 0o644)
		datatest.Must(b, err)
		_, err = file.WriteAt(t, p, 0)
		datatest.Must(b, err)
		datatest.Must(b, file.Close(t))
	}
	datatest.Must(b, f.Sync(t))
	b.StopTimer()
	datatest.Must(b, f.Close(t))
}

// BenchmarkSequential writes a COW file from front to back, 1 MiB at a time, and syncs.
func BenchmarkSequential(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	t := sched.NewTask("bench")
	dev := blockdev.NewMemory(4 << 30)
	datatest.Must(b, mkfs.Make(t, dev, mkfs.Options{Now: time.Unix(1e9, 0)}))
	f, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{})
	datatest.Must(b, err)
	file, err := f.Create(t, "/f", 0o644)
	datatest.Must(b, err)
	p := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		_, err = file.WriteAt(t, p, int64(i)%1024<<20)
		datatest.Must(b, err)
	}
	datatest.Must(b, f.Sync(t))
	b.StopTimer()
	if testing.Verbose() {
		report(b, waitsOf(t), 1)
	}
	datatest.Must(b, file.Close(t))
	datatest.Must(b, f.Close(t))
}

func waitsOf(tasks ...*sched.Task) sched.Waits {
	var waits sched.Waits
	for _, c := range tasks {
		for _, w := range c.Waits {
			waits.Add(w.Class, w.WaitStat)
		}
	}
	return waits
}

// report prints the share of task time that was waited for each class.
func report(b *testing.B, waits sched.Waits, tasks int) {
	total := float64(b.Elapsed().Nanoseconds()) * float64(tasks)
	for _, c := range lockdep.Classes() {
		if w := waits.Of(c.ID); w.Count > 0 {
			b.Logf("%-16s %9d waits %6.2f %% of task time", c.Name, w.Count, 100*float64(w.Nanos)/total)
		}
	}
}

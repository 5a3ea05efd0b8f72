package fs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// fast switches lockdep off for a benchmark.
func fast(b *testing.B) *sched.Task {
	sched.SetChecked(false)
	b.Cleanup(func() { sched.SetChecked(true) })
	return sched.NewTask(b.Name())
}

func benchFS(b *testing.B, t *sched.Task, size int64, o fs.Options) *fs.FS {
	dev := blockdev.NewMemory(size)
	if err := mkfs.Make(t, dev, mkfs.Options{}); err != nil {
		b.Fatal(err)
	}
	x, err := fs.Open(t, []blockdev.Device{dev}, o)
	if err != nil {
		b.Fatal(err)
	}
	return x
}

// cpuNanos is the processor time of this process in user mode and in the kernel: on a machine that
// is shared it says more than the clock.
func cpuNanos() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkOverwrite is the inner loop of seed 002: 4 KiB at random places of a cached NOCOW file
// of 256 MiB, by one task and by eight. Writeback does not run.
func BenchmarkOverwrite(b *testing.B) {
	for _, name := range policy.Names() {
		for _, tasks := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/tasks=%d", name, tasks), func(b *testing.B) { overwrite(b, name, tasks) })
		}
	}
}

func overwrite(b *testing.B, name string, tasks int) {
	t := fast(b)
	const size = 256 << 20
	x := benchFS(b, t, 1<<30, fs.Options{Policy: policy.MustParse(name), DirtyBackground: 1 << 30, DirtyLimit: 2 << 30})
	f, err := x.Create(t, "/f", 0o644)
	if err == nil {
		err = f.SetFlags(t, format.InodeNoDataCow)
	}
	if err == nil {
		err = f.Fallocate(t, 0, 0, size)
	}
	big := make([]byte, 1<<20)
	for off := int64(0); off < size && err == nil; off += int64(len(big)) {
		_, err = f.WriteAt(t, big, off)
	}
	if err == nil {
		err = f.Fsync(t)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(4096)
	b.ReportAllocs()
	b.ResetTimer()
	fstest.Parallel(t, tasks, func(t *sched.Task, i int) {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		p := make([]byte, 4096)
		for range (b.N + i) / tasks {
			if _, err := f.WriteAt(t, p, int64(r.IntN(size/4096))*4096); err != nil {
				b.Error(err)
			}
		}
	})
	b.StopTimer()
	if err := x.Close(t); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFiles makes 10,000 files of 4 KiB and commits.
func BenchmarkFiles(b *testing.B) {
	t := fast(b)
	p := make([]byte, 4096)
	for b.Loop() {
		b.StopTimer()
		x := benchFS(b, t, 1<<30, fs.Options{})
		b.StartTimer()
		for i := range 10000 {
			f, err := x.Create(t, fmt.Sprintf("/file%05d", i), 0o644)
			if err == nil {
				_, err = f.WriteAt(t, p, 0)
			}
			if err == nil {
				err = f.Close(t)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if err := x.Sync(t); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		for i := range 10000 {
			if err := x.Unlink(t, fmt.Sprintf("/file%05d", i)); err != nil {
				b.Fatal(err)
			}
		}
		if err := x.Close(t); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// benchFile makes a file system with a NOCOW file of size bytes, written in one extent, none of
// them cached.
func benchFile(b *testing.B, t *sched.Task, policyName string, size int) (*fs.FS, *fs.File) {
	x := benchFS(b, t, 1<<30, fs.Options{Policy: policy.MustParse(policyName)})
	f, err := x.Create(t, "/f", 0o644)
	if err == nil {
		err = f.SetFlags(t, fstest.Nocow)
	}
	if err == nil {
		_, err = f.WriteAt(t, make([]byte, size), 0)
	}
	if err == nil {
		err = x.Sync(t)
	}
	if err != nil {
		b.Fatal(err)
	}
	x.DropCaches(t)
	return x, f
}

// BenchmarkDirectOverwrite overwrites 4 KiB at random places of a NOCOW file in place, past the
// page cache, on a device in memory: each write waited for, and told of to Done.
func BenchmarkDirectOverwrite(b *testing.B) {
	for _, name := range []string{"locked", "modern"} {
		for _, queued := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/queued=%v", name, queued), func(b *testing.B) {
				t := fast(b)
				const size = 64 << 20
				x, f := benchFile(b, t, name, size)
				r := rand.New(rand.NewPCG(1, 1))
				p := make([]byte, 4096)
				rq := kiocb.Request{Flags: kiocb.Direct}
				if queued {
					rq.Done = new(fstest.Result)
				}
				b.SetBytes(4096)
				b.ReportAllocs()
				for b.Loop() {
					rq.Pos = uint64(r.IntN(size/4096)) * 4096
					if n, err := f.WriteIter(t, rq, iopath.Source{Buf: p}); n != len(p) || err != nil {
						b.Fatal(n, err)
					}
				}
				b.StopTimer()
				if err := x.Close(t); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkNowaitDirectOverwrite is BenchmarkDirectOverwrite with NOWAIT in one extent, queued:
// without the answer kept (nowait-5.8, nowait-5.19, nowait-6.1) and with it (nowait-strict,
// modern). With copied=false the device in memory takes no bytes (blockdev.NoPayload), so that what
// is left is the path above it.
func BenchmarkNowaitDirectOverwrite(b *testing.B) {
	for _, name := range []string{"nowait-5.8", "nowait-5.19", "nowait-6.1", "nowait-strict", "modern"} {
		for _, copied := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/copied=%v", name, copied), func(b *testing.B) { nowaitOverwrite(b, name, copied) })
		}
	}
}

func nowaitOverwrite(b *testing.B, name string, copied bool) {
	t := fast(b)
	const size = 64 << 20
	x, f := benchFile(b, t, name, size)
	r := rand.New(rand.NewPCG(1, 1))
	p := blockdev.NoPayload[:]
	if copied {
		p = make([]byte, 4096)
	}
	rq := kiocb.Request{Flags: kiocb.Direct | kiocb.Nowait, Done: new(fstest.Result)}
	again, cpu := 0, int64(0)
	b.SetBytes(4096)
	b.ReportAllocs()
	for b.Loop() {
		if cpu == 0 {
			cpu = cpuNanos()
		}
		rq.Pos = uint64(r.IntN(size/4096)) * 4096
		if _, err := f.WriteIter(t, rq, iopath.Source{Buf: p}); errors.Is(err, errno.EAGAIN) {
			again++ // the ordered extent of the last write there, or a worker in the tree
		} else if err != nil && err != errno.EIOCBQUEUED {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(cpuNanos()-cpu)/float64(b.N), "cpu-ns/op") // the workers' too
	b.ReportMetric(float64(again)/float64(b.N), "again/op")
	if !copied {
		b.ReportMetric(1500, "goal-ns/op")
	}
	if err := x.Close(t); err != nil {
		b.Fatal(err)
	}
}

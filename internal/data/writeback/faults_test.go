package writeback_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/writeback"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/datatest"
)

// Data that the device refuses is not entered into the trees: the file keeps what it had, fsync
// hears of it once, the space comes back and the image stays clean.
func TestWriteError(t *testing.T) {
	for _, flags := range []uint64{0, datatest.Nocow} {
		w, f := datatest.Flaky(t, 256<<20)
		ip := w.Create(flags)
		old := datatest.Pattern(256<<10, 1)
		datatest.Must(t, w.Write(w.T, ip, old, 0))
		w.Sync()
		used := w.Manager.Space.Data().Usage(w.T).Used
		var since atomic.Uint64
		since.Store(ip.Pages.ErrorSeq())

		// All data writes fail; the metadata that a commit writes does not lie in data chunks.
		for _, c := range w.Manager.Volumes.Chunks() {
			if c.Chunk.Type&format.BlockGroupData != 0 {
				f.Set(dm.Fault{Op: blockdev.OpWrite, Start: int64(c.Chunk.Stripes[0].Offset), End: int64(c.Chunk.Stripes[0].Offset + c.Chunk.Length)})
			}
		}
		datatest.Must(t, w.Write(w.T, ip, datatest.Pattern(128<<10, 2), 64<<10))
		err := w.Engine.WaitOrderedRange(w.T, ip, 0, pagecache.MaxFileEnd)
		if f.Failed() == 0 {
			t.Fatal("no write failed")
		}
		if !errors.Is(err, errno.EIO) {
			t.Fatalf("the wait: have %v want EIO", err)
		}
		if err := ip.Pages.CheckError(w.T, &since); !errors.Is(err, errno.EIO) {
			t.Fatalf("fsync: have %v want EIO", err)
		}
		if err := ip.Pages.CheckError(w.T, &since); err != nil {
			t.Fatalf("reported twice: %v", err)
		}
		f.Set()
		w.FS.Cache.DropClean(w.T)
		w.Expect(ip, old)
		datatest.Must(t, w.Manager.Commit(w.T))
		w.Quiescent()
		if u := w.Manager.Space.Data().Usage(w.T).Used; u != used {
			t.Fatalf("data used %d, was %d", u, used)
		}
		// And it works again.
		next := datatest.Pattern(256<<10, 3)
		datatest.Must(t, w.Write(w.T, ip, next, 0))
		w.Sync()
		w.Expect(ip, next)
		w.Close()
	}
}

// The wait hears of data that the device refuses, also when the ordered extent was finished before
// the wait looks for it: a truncate that takes the wait for success drops what is on disk. The real
// runtime lost the error in one of some hundred runs.
func TestWriteErrorFinished(t *testing.T) {
	mem := blockdev.NewMemory(128 << 20)
	datatest.Must(t, mkfs.Make(sched.NewTask("mkfs"), mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	classes := lockdep.IDs("extent", "ordered_extent", "page_state", "workqueue_idle")
	for _, c := range []struct {
		name string
		wait func(e *writeback.Engine, t *sched.Task, ip *inode.Inode) error
	}{
		{"pages", func(e *writeback.Engine, t *sched.Task, ip *inode.Inode) error {
			return e.FlushPages(t, ip, 0, pageSize)
		}},
		{"ordered", func(e *writeback.Engine, t *sched.Task, ip *inode.Inode) error {
			return e.WaitOrderedRange(t, ip, 0, pageSize)
		}},
	} {
		r := explore.Run(explore.Config{Preemptions: 1, MaxSteps: 20_000, Schedules: 400, Switch: classes}, func(x *explore.World) {
			dev := dm.NewFlakey(mem.Snapshot())
			w := datatest.Mount(panicTB{t}, x.Task(), dev, dev)
			ip := w.Create(datatest.Nocow)
			datatest.Must(panicTB{t}, w.Write(x.Task(), ip, make([]byte, pageSize), 0))
			dev.Set(dm.Fault{Op: blockdev.OpWrite})
			var err error
			x.Go("wait", func(t *sched.Task) {
				x.Call(t)
				err = c.wait(w.Engine, t, ip)
			})
			x.Check(func() error {
				if !errors.Is(err, errno.EIO) {
					return fmt.Errorf("have %v want EIO", err)
				}
				return nil
			})
		})
		if r.Verdict == explore.Violated || r.Schedules < 2 {
			t.Errorf("%s: %v after %d schedules: %s; schedule %q", c.name, r.Verdict, r.Schedules, r.Violation, r.Schedule)
		}
	}
}

// A full file system says so to the writer; what was written before is there, and nothing stays
// reserved. Overwriting a NOCOW file still works.
func TestNoSpace(t *testing.T) {
	w := datatest.New(t, 128<<20)
	inPlace := w.Create(datatest.Nocow)
	datatest.Must(t, w.Write(w.T, inPlace, datatest.Pattern(1<<20, 9), 0))
	w.Sync()
	ip := w.Create(0)
	var model []byte
	var err error
	const step = 256 << 10
	for i := uint64(0); i < 2000; i++ {
		d := datatest.Pattern(step, i)
		if err = w.Write(w.T, ip, d, uint64(len(model))); err != nil {
			break
		}
		model = append(model, d...)
	}
	if !errors.Is(err, errno.ENOSPC) {
		t.Fatalf("after %d bytes have %v want ENOSPC", len(model), err)
	}
	if len(model) < 16<<20 {
		t.Fatalf("no space after %d bytes", len(model))
	}
	w.Sync()
	w.Expect(ip, model)
	w.Quiescent()
	fresh := datatest.Pattern(1<<20, 10)
	datatest.Must(t, w.Write(w.T, inPlace, fresh, 0))
	w.Sync()
	w.Expect(inPlace, fresh)
	// Overwriting COW data needs space that there is not; the old data stays.
	err = w.Write(w.T, ip, datatest.Pattern(8<<20, 77), 0)
	if !errors.Is(err, errno.ENOSPC) && err != nil {
		t.Fatalf("overwrite: %v", err)
	}
	w.Sync()
	w.Close()
}

// Dirty pages that are truncated away take their reservations along; an ordered extent that is
// finished later is dropped with the items.
func TestTruncateDirty(t *testing.T) {
	w := datatest.New(t, 256<<20)
	for _, flags := range []uint64{0, datatest.Nocow} {
		ip := w.Create(flags)
		datatest.Must(t, w.Write(w.T, ip, datatest.Pattern(1<<20, 1), 0))
		if ip.DelallocBytes() != 1<<20 || ip.Outstanding() == 0 {
			t.Fatalf("delalloc %d outstanding %d", ip.DelallocBytes(), ip.Outstanding())
		}
		ip.Lock(w.T)
		ip.SetSize(w.T, 5000)
		ip.Pages.Truncate(w.T, 8192, pagecache.MaxFileEnd)
		ip.Unlock(w.T)
		if ip.DelallocBytes() != 8192 {
			t.Fatalf("delalloc %d after truncate", ip.DelallocBytes())
		}
		w.Sync()
		w.Expect(ip, datatest.Pattern(1<<20, 1)[:5000])
		w.Quiescent()
	}
	w.Close()
}

// A dirty page beyond the end of the file, as a lost race with truncate leaves it, is dropped by
// writeback.
func TestDirtyBeyondEnd(t *testing.T) {
	w := datatest.New(t, 256<<20)
	ip := w.Create(0)
	datatest.Must(t, w.Write(w.T, ip, datatest.Pattern(100<<10, 1), 0))
	ip.SetSize(w.T, 4096)
	w.Sync()
	w.Quiescent()
	w.Expect(ip, datatest.Pattern(100<<10, 1)[:4096])
	w.Close()
}

// With a slow device the bios end on other tasks, writers wait for stable pages and are throttled,
// and nothing is lost.
func TestSlowDevice(t *testing.T) {
	task := sched.NewTask("test")
	mem := blockdev.NewMemory(256 << 20)
	datatest.Must(t, mkfs.Make(task, mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	p, err := dm.Parse("nvme")
	datatest.Must(t, err)
	slow := dm.New(task, mem, p)
	w := datatest.Mount(t, task, slow, mem)
	w.FS.Cache.BDI.SetLimits(256<<10, 512<<10)
	ip := w.Create(datatest.Nocow)
	model := make([]byte, 2<<20)
	datatest.Must(t, w.Write(w.T, ip, model, 0))
	var tasks []*sched.Task
	for i := range 4 {
		tasks = append(tasks, w.T.Go("writer", func(t *sched.Task) {
			for n := range 200 {
				page := (n*37%128)*4 + i
				d := datatest.Pattern(pageSize, uint64(page*1000+n))
				if err := w.Write(t, ip, d, uint64(page)*pageSize); err != nil {
					panic(err)
				}
				copy(model[page*pageSize:], d)
			}
		}))
	}
	for _, c := range tasks {
		w.T.Join(c)
	}
	w.Sync()
	w.Expect(ip, model)
	w.Close()
	datatest.Must(t, slow.Close())
}

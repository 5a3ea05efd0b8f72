package writeback_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// physical is where the file's byte off lies on the device.
func (w *world) physical(ino uint64, off uint64) int64 {
	w.tb.Helper()
	start, fe, ok, err := w.items.LookupFileExtent(w.t, w.m.Root(format.FS_TREE_OBJECTID), ino, off)
	if err != nil || !ok || fe.DiskBytenr == 0 {
		w.tb.Fatalf("no extent of ino=%d at %d: %v", ino, off, err)
	}
	return w.logical(fe.DiskBytenr + fe.Offset + off - start)
}

func (w *world) logical(bytenr uint64) int64 {
	c, ok := w.m.Volumes.Lookup(bytenr)
	if !ok {
		w.tb.Fatalf("logical %d has no chunk", bytenr)
	}
	return int64(bytenr - c.Logical + c.Chunk.Stripes[0].Offset)
}

func flakyWorld(tb testing.TB, size int64) (*world, *dm.Flakey) {
	t := sched.NewTask("test")
	mem := blockdev.NewMemory(size)
	must(tb, mkfs.Make(t, mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	f := dm.NewFlakey(mem)
	return mount(tb, t, f, mem), f
}

// Data that the device refuses is not entered into the trees: the file keeps what it had, fsync hears of it once, the space
// comes back and the image stays clean.
func TestWriteError(t *testing.T) {
	for _, flags := range []uint64{0, nocow} {
		w, f := flakyWorld(t, 256<<20)
		ip := w.create(flags)
		old := pattern(256<<10, 1)
		must(t, w.write(w.t, ip, old, 0))
		w.sync()
		used := w.m.Space.Data().Usage(w.t).Used
		var since atomic.Uint64
		since.Store(ip.Pages.ErrorSeq())

		// All data writes fail; the metadata that a commit writes does not lie in data chunks.
		for _, c := range w.m.Volumes.Chunks() {
			if c.Chunk.Type&format.BlockGroupData != 0 {
				f.Set(dm.Fault{Op: blockdev.OpWrite, Start: int64(c.Chunk.Stripes[0].Offset), End: int64(c.Chunk.Stripes[0].Offset + c.Chunk.Length)})
			}
		}
		must(t, w.write(w.t, ip, pattern(128<<10, 2), 64<<10))
		err := w.e.WaitOrderedRange(w.t, ip, 0, pagecache.MaxFileEnd)
		if f.Failed() == 0 {
			t.Fatal("no write failed")
		}
		if err == nil {
			err = ip.Pages.CheckError(w.t, &since)
		} else {
			_ = ip.Pages.CheckError(w.t, &since)
		}
		if !errors.Is(err, errno.EIO) {
			t.Fatalf("have %v want EIO", err)
		}
		if err := ip.Pages.CheckError(w.t, &since); err != nil {
			t.Fatalf("reported twice: %v", err)
		}
		f.Set()
		w.fs.Cache.DropClean(w.t)
		w.expect(ip, old)
		must(t, w.m.Commit(w.t))
		w.quiescent()
		if u := w.m.Space.Data().Usage(w.t).Used; u != used {
			t.Fatalf("data used %d, was %d", u, used)
		}
		// And it works again.
		next := pattern(256<<10, 3)
		must(t, w.write(w.t, ip, next, 0))
		w.sync()
		w.expect(ip, next)
		w.close()
	}
}

// A full file system says so to the writer; what was written before is there, and nothing stays reserved. Overwriting a NOCOW file
// still works.
func TestNoSpace(t *testing.T) {
	w := newWorld(t, 128<<20)
	inPlace := w.create(nocow)
	must(t, w.write(w.t, inPlace, pattern(1<<20, 9), 0))
	w.sync()
	ip := w.create(0)
	var model []byte
	var err error
	const step = 256 << 10
	for i := uint64(0); i < 2000; i++ {
		d := pattern(step, i)
		if err = w.write(w.t, ip, d, uint64(len(model))); err != nil {
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
	w.sync()
	w.expect(ip, model)
	w.quiescent()
	fresh := pattern(1<<20, 10)
	must(t, w.write(w.t, inPlace, fresh, 0))
	w.sync()
	w.expect(inPlace, fresh)
	// Overwriting COW data needs space that there is not; the old data stays.
	err = w.write(w.t, ip, pattern(8<<20, 77), 0)
	if !errors.Is(err, errno.ENOSPC) && err != nil {
		t.Fatalf("overwrite: %v", err)
	}
	w.sync()
	w.close()
}

// Dirty pages that are truncated away take their reservations along; an ordered extent that is finished later is dropped with
// the items.
func TestTruncateDirty(t *testing.T) {
	w := newWorld(t, 256<<20)
	for _, flags := range []uint64{0, nocow} {
		ip := w.create(flags)
		must(t, w.write(w.t, ip, pattern(1<<20, 1), 0))
		if ip.DelallocBytes() != 1<<20 || ip.Outstanding() == 0 {
			t.Fatalf("delalloc %d outstanding %d", ip.DelallocBytes(), ip.Outstanding())
		}
		ip.Lock(w.t)
		ip.SetSize(w.t, 5000)
		ip.Pages.Truncate(w.t, 8192, pagecache.MaxFileEnd)
		ip.Unlock(w.t)
		if ip.DelallocBytes() != 8192 {
			t.Fatalf("delalloc %d after truncate", ip.DelallocBytes())
		}
		w.sync()
		w.expect(ip, pattern(1<<20, 1)[:5000])
		w.quiescent()
	}
	w.close()
}

// A dirty page beyond the end of the file, as a lost race with truncate leaves it, is dropped by writeback.
func TestDirtyBeyondEnd(t *testing.T) {
	w := newWorld(t, 256<<20)
	ip := w.create(0)
	must(t, w.write(w.t, ip, pattern(100<<10, 1), 0))
	ip.SetSize(w.t, 4096)
	w.sync()
	w.quiescent()
	w.expect(ip, pattern(100<<10, 1)[:4096])
	w.close()
}

// Data that does not match its checksum is never handed out.
func TestBadChecksum(t *testing.T) {
	w, f := flakyWorld(t, 256<<20)
	ip := w.create(0)
	data := pattern(64<<10, 1)
	must(t, w.write(w.t, ip, data, 0))
	w.sync()
	at := w.physical(ip.Ino, 8192)
	good := make([]byte, pageSize)
	must(t, blockdev.Read(w.t, f, good, at))
	bad := append([]byte(nil), good...)
	bad[100] ^= 1
	must(t, blockdev.Write(w.t, f, bad, at))
	w.fs.Cache.DropClean(w.t)
	if _, err := w.rd.ReadPage(w.t, ip, 2, 1, nil); !errors.Is(err, errno.EIO) {
		t.Fatalf("have %v want EIO", err)
	}
	if got := w.read(w.t, ip, 0, 8192); string(got) != string(data[:8192]) {
		t.Fatal("the pages before do not read")
	}
	must(t, blockdev.Write(w.t, f, good, at))
	w.fs.Cache.DropClean(w.t)
	w.expect(ip, data)
	w.close()
}

// With a slow device the bios end on other tasks, writers wait for stable pages and are throttled, and nothing is lost.
func TestSlowDevice(t *testing.T) {
	task := sched.NewTask("test")
	mem := blockdev.NewMemory(256 << 20)
	must(t, mkfs.Make(task, mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	p, err := dm.Parse("nvme")
	must(t, err)
	slow := dm.New(task, mem, p)
	w := mount(t, task, slow, mem)
	w.fs.Cache.BDI.SetLimits(256<<10, 512<<10)
	ip := w.create(nocow)
	model := make([]byte, 2<<20)
	must(t, w.write(w.t, ip, model, 0))
	var tasks []*sched.Task
	for i := range 4 {
		tasks = append(tasks, w.t.Go("writer", func(t *sched.Task) {
			for n := range 200 {
				page := (n*37%128)*4 + i
				d := pattern(pageSize, uint64(page*1000+n))
				if err := w.write(t, ip, d, uint64(page)*pageSize); err != nil {
					panic(err)
				}
				copy(model[page*pageSize:], d)
			}
		}))
	}
	for _, c := range tasks {
		w.t.Join(c)
	}
	w.sync()
	w.expect(ip, model)
	w.close()
	must(t, slow.Close())
}

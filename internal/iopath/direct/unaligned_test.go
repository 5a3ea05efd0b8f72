package direct_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

var unalignedDesigns = []string{"unaligned-exclusive", "unaligned-check-first", "unaligned-zeroing", "unaligned-retry", "locked+UNALIGNED_ZEROING", "locked+UNALIGNED_CHECK_FIRST", "modern"}

// TestUnalignedModel writes sectors and blocks at random places of a NOCOW file, in written and
// preallocated blocks, in holes and beyond EOF, past the cache and through it, and compares each
// read with a slice of bytes.
func TestUnalignedModel(t *testing.T) {
	const most = 64 * 4096
	for _, p := range unalignedDesigns {
		t.Run(p, func(t *testing.T) {
			x := fstest.New(t, fstest.Policy(p))
			f := x.Create("/f")
			x.Must(f.SetFlags(x.T, fstest.Nocow))
			x.Must(f.Fallocate(x.T, 0, 0, most/2))
			model := make([]byte, most/2)
			r := rand.New(rand.NewPCG(4, 2))
			for i := range 400 {
				off, n := r.IntN(most/512-16)*512, (1+r.IntN(16))*512
				q := make([]byte, n)
				switch r.IntN(8) {
				case 0:
					x.Must(f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, int64(off), int64(n)))
					if off < len(model) {
						clear(model[off:min(off+n, len(model))])
					}
				case 1:
					x.Must(f.Fsync(x.T))
				case 2, 3:
					want := model[min(off, len(model)):min(off+n, len(model))]
					if got := fstest.ReadFull(t, x.T, f.ReadAt, q, int64(off)); !bytes.Equal(got, want) {
						t.Fatalf("operation %d: a read of %d bytes at %d differs from byte %d on", i, n, off, fstest.Differs(got, want))
					}
				default:
					for j := range q {
						q[j] = byte(r.Uint32() | 1)
					}
					if m, err := f.WriteDirect(x.T, q, int64(off)); m != n || err != nil {
						t.Fatalf("operation %d: write of %d bytes at %d: %d, %v", i, n, off, m, err)
					}
					if off+n > len(model) {
						model = append(model, make([]byte, off+n-len(model))...)
					}
					copy(model[off:], q)
				}
			}
			for range 2 {
				if got := fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, most+4096), 0); !bytes.Equal(got, model) {
					t.Errorf("at the end: differs from byte %d on, %d bytes, want %d", fstest.Differs(got, model), len(got), len(model))
				}
				x.Must(f.Close(x.T))
				x.Reopen()
				f = fstest.Must(x.FS.OpenFile(x.T, "/f", fs.O_RDWR, 0))
			}
			x.Must(f.Close(x.T))
		})
	}
}

// TestUnalignedGoesToTheDevice: two sectors of a written block are one write of the device, of that
// size; the page cache writes a block. The first sector of a preallocated block comes with zeros.
func TestUnalignedGoesToTheDevice(t *testing.T) {
	for _, p := range unalignedDesigns {
		var dev *dm.Flakey
		x := fstest.New(t, fstest.Policy(p), fstest.Faults(&dev))
		f := x.Create("/f")
		x.Must(f.SetFlags(x.T, fstest.Nocow))
		x.Must(f.Fallocate(x.T, 0, 0, 24576))
		fstest.Must(f.WriteDirect(x.T, make([]byte, 4096), 0))
		x.Must(x.FS.Sync(x.T))
		for _, c := range []struct {
			off  int64
			want int64
		}{{1024, 1}, {4096 + 1024, 3}, {4096, 1}, {8192, 2}} {
			want := c.want
			if p == "modern" {
				want = 1
			}
			n := dev.Count(blockdev.OpWrite)
			fstest.Must(f.WriteDirect(x.T, make([]byte, 1024), c.off))
			if n = dev.Count(blockdev.OpWrite) - n; int64(n) != want {
				t.Errorf("%s: a write of two sectors at %d is %d writes of the device, want %d", p, c.off, n, want)
			}
		}
		// Parts of sectors no device can write: the page cache makes a block of them.
		for off, n := range map[int64]int{12288 + 100: 1024, 16384 + 1024: 700, 20480 + 1: 511} {
			before := dev.Count(blockdev.OpWrite)
			fstest.Must(f.WriteDirect(x.T, bytes.Repeat([]byte{7}, n), off))
			if have := dev.Count(blockdev.OpWrite) - before; have != 1 {
				t.Errorf("%s: a write of %d bytes at %d is %d writes of the device, want 1 of a block", p, n, off, have)
			}
		}
		x.Must(f.Truncate(x.T, 1024)) // in a block that is written
		fstest.Must(f.WriteDirect(x.T, make([]byte, 512), 1024))
		if size := f.Size(x.T); size != 1536 {
			t.Errorf("%s: size %d after a write of the sector at EOF, want 1536", p, size)
		}
		x.Must(f.Close(x.T))
	}
}

// TestUnalignedConcurrent: tasks write sectors of their own in the same blocks, none of which was
// written before; no task's bytes are covered by the zeros of another.
func TestUnalignedConcurrent(t *testing.T) {
	const tasks, blocks = 8, 32
	for _, p := range unalignedDesigns {
		x := fstest.New(t, fstest.Policy(p))
		f := x.Create("/f")
		x.Must(f.SetFlags(x.T, fstest.Nocow))
		x.Must(f.Fallocate(x.T, 0, 0, blocks*4096))
		fstest.Parallel(x.T, tasks, func(tk *sched.Task, i int) {
			for b := range blocks {
				fstest.Must(f.WriteDirect(tk, bytes.Repeat([]byte{byte(i + 1)}, 512), int64(b*4096+i*512)))
			}
		})
		got := fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, blocks*4096), 0)
		for at := range got {
			if got[at] != byte(at/512%tasks+1) {
				t.Errorf("%s: byte %d is %d, want %d", p, at, got[at], at/512%tasks+1)
				break
			}
		}
		x.Must(f.Close(x.T))
	}
}

// TestUnalignedQueued: direct writes of sectors of one written block are in flight together, and
// hold no lock of the file but their count. What reads the block to write it back waits for them,
// and so does a snapshot.
func TestUnalignedQueued(t *testing.T) {
	for _, p := range []string{"unaligned-check-first", "unaligned-zeroing", "unaligned-retry"} {
		for _, c := range []struct {
			name string
			size int64
			do   func(t *sched.Task, x *fstest.Fixture, f *fs.File) error
			end  func(want []byte) // what it does to the bytes
		}{
			{"grow", 3072, func(t *sched.Task, _ *fstest.Fixture, f *fs.File) error { return f.Truncate(t, 4096) }, func(want []byte) { clear(want[3072:]) }},
			{"write", 4096, func(t *sched.Task, _ *fstest.Fixture, f *fs.File) error {
				_, err := f.WriteAt(t, bytes.Repeat([]byte{9}, 100), 2048)
				return err
			}, func(want []byte) { copy(want[2048:], bytes.Repeat([]byte{9}, 100)) }},
			{"punch", 4096, func(t *sched.Task, _ *fstest.Fixture, f *fs.File) error {
				return f.Fallocate(t, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, 2048, 512)
			}, func(want []byte) { clear(want[2048:2560]) }},
			{"snapshot", 4096, func(t *sched.Task, x *fstest.Fixture, f *fs.File) error {
				return x.FS.Snapshot(t, "/", "/s", true)
			}, func([]byte) {}},
		} {
			t.Run(p+"/"+c.name, func(t *testing.T) {
				var dev *holding
				x := fstest.New(t, fstest.Policy(p), withHolding(&dev))
				f := x.Create("/f")
				ip := f.Inode()
				x.Must(f.SetFlags(x.T, fstest.Nocow))
				want := bytes.Repeat([]byte{1}, 4096)
				fstest.Must(f.WriteDirect(x.T, want, 0))
				x.Must(f.Truncate(x.T, c.size))
				x.Must(x.FS.Sync(x.T))
				fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, 4096), 0)
				dev.hold(blockdev.OpWrite)
				a := queue(t, x, f, blockdev.OpWrite, bytes.Repeat([]byte{2}, 512), 512)
				b := queue(t, x, f, blockdev.OpWrite, bytes.Repeat([]byte{3}, 1024), 1024)
				copy(want[512:], bytes.Repeat([]byte{2}, 512))
				copy(want[1024:], bytes.Repeat([]byte{3}, 1024))
				if n := ip.DIO.Load(); n != 2 || !ip.TryLock(x.T) {
					t.Fatalf("i_dio_count is %d, want 2, and i_rwsem free", n)
				}
				ip.Unlock(x.T)
				if n := ip.Root.SnapshotLock.Writers(); n != 2 {
					t.Errorf("before the end: %d writers keep snapshots out, want 2", n)
				}
				var over atomic.Bool
				other := x.T.Go(c.name, func(tk *sched.Task) {
					x.Must(c.do(tk, x, f))
					over.Store(true)
				})
				if c.name != "snapshot" {
					fstest.Until(func() bool { // it has i_rwsem
						free := ip.TryLock(x.T)
						if free {
							ip.Unlock(x.T)
						}
						return !free || over.Load()
					})
				}
				if over.Load() {
					t.Error("done while sectors of the block were in flight")
				}
				dev.letGo(x.T, nil)
				a.Want(t, "first write", 512, nil)
				b.Want(t, "second write", 1024, nil)
				x.T.Join(other)
				c.end(want)
				if got := fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, 4096), 0); !bytes.Equal(got, want) {
					d := fstest.Differs(got, want)
					t.Errorf("differs from byte %d on: have %x want %x", d, got[d:d+16], want[d:d+16])
				}
				x.Must(f.Fsync(x.T))
				x.FS.DropCaches(x.T)
				if got := fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, 4096), 0); !bytes.Equal(got, want) {
					t.Errorf("on the device: differs from byte %d on", fstest.Differs(got, want))
				}
				x.Must(f.Close(x.T))
			})
		}
	}
}

// TestUnalignedParts: under the rule of ext4 of 7.3 a write shares i_rwsem if the blocks that it
// writes in part are written, over several extents and over whole blocks that are not written: one
// transfer for each extent, and the whole blocks are marked written.
func TestUnalignedParts(t *testing.T) {
	const size = 5 * 4096
	for _, c := range []struct {
		off, n    int
		transfers []int // bytes
	}{
		{512, 8192, []int{3584, 4096, 512}},
		{0, 8704, []int{4096, 4096, 512}},
		{512, 7680, []int{3584, 4096}},
		{12288 + 512, 4096, []int{3584, 512}},
		{1024, 512, []int{512}},
	} {
		var dev *holding
		x := fstest.New(t, fstest.Policy("unaligned-zeroing"), withHolding(&dev))
		f := x.Create("/f")
		x.Must(f.SetFlags(x.T, fstest.Nocow))
		want := make([]byte, size)
		for _, b := range []int64{3, 1, 0, 4, 2} { // extents that are no neighbours on the device
			x.Must(f.Fallocate(x.T, 0, b*4096, 4096))
		}
		for _, b := range []int{0, 2, 4, 3} { // the second block is not written
			p := want[b*4096 : (b+1)*4096]
			copy(p, bytes.Repeat([]byte{byte(b + 1)}, 4096))
			fstest.Must(f.WriteDirect(x.T, p, int64(b*4096)))
			x.Must(x.FS.Sync(x.T))
		}
		dev.hold(blockdev.OpWrite)
		p := bytes.Repeat([]byte{9}, c.n)
		a := queue(t, x, f, blockdev.OpWrite, p, int64(c.off))
		copy(want[c.off:], p)
		b := queue(t, x, f, blockdev.OpWrite, bytes.Repeat([]byte{8}, 512), 16384+1024)
		copy(want[16384+1024:], bytes.Repeat([]byte{8}, 512))
		if n := f.Inode().DIO.Load(); n != 2 || !f.Inode().TryLock(x.T) {
			t.Fatalf("%d at %d: i_dio_count is %d, want 2, and i_rwsem free", c.n, c.off, n)
		}
		f.Inode().Unlock(x.T)
		var sizes []int
		for _, bio := range dev.kept[:len(dev.kept)-1] {
			sizes = append(sizes, len(bytes.Join(bio.Vecs, nil)))
		}
		if !slices.Equal(sizes, c.transfers) {
			t.Errorf("%d at %d: transfers of %v bytes, want %v", c.n, c.off, sizes, c.transfers)
		}
		dev.letGo(x.T, nil)
		a.Want(t, "parts", c.n, nil)
		b.Want(t, "sector", 512, nil)
		x.Must(f.Fsync(x.T))
		x.FS.DropCaches(x.T)
		if got := fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, size), 0); !bytes.Equal(got, want) {
			t.Errorf("%d at %d: on the device it differs from byte %d on", c.n, c.off, fstest.Differs(got, want))
		}
		x.Must(f.Close(x.T))
	}
}

// TestUnalignedFsync: an fsync while sectors are in flight does not wait for them and promises
// nothing about them; one after their end finds a reason for a flush of the device. Under policies
// without logs a clean inode is the one that has none.
func TestUnalignedFsync(t *testing.T) {
	for _, p := range []string{"unaligned-check-first", "unaligned-zeroing", "unaligned-retry"} {
		var dev *holding
		x := fstest.New(t, fstest.Policy(p+"!FSYNC_LOG"), withHolding(&dev))
		f := x.Create("/f")
		x.Must(f.SetFlags(x.T, fstest.Nocow))
		fstest.Must(f.WriteDirect(x.T, make([]byte, 4096), 0))
		x.Must(x.FS.Sync(x.T))
		dev.hold(blockdev.OpWrite)
		w := queue(t, x, f, blockdev.OpWrite, make([]byte, 512), 512)
		dev.mu.Lock()
		dev.on = false // what comes now is not kept
		dev.mu.Unlock()
		x.Must(f.Fsync(x.T))
		if f.Inode().Dirty() {
			t.Errorf("%s: the inode is dirty after fsync", p)
		}
		dev.letGo(x.T, nil)
		w.Want(t, p, 512, nil)
		if !f.Inode().Dirty() {
			t.Errorf("%s: the inode is clean after the end of the write: fsync would not flush the device", p)
		}
		x.Must(f.Close(x.T))
	}
}

// TestUnalignedAlone: a write of sectors that has i_rwsem alone is not queued: under
// unaligned-exclusive all of them, and those of a block that is not written. When it returns its
// block is written.
func TestUnalignedAlone(t *testing.T) {
	for _, c := range []struct {
		policy string
		off    int64
	}{{"unaligned-exclusive", 512}, {"unaligned-check-first", 8704}, {"unaligned-retry", 8704}} {
		var dev *holding
		x := fstest.New(t, fstest.Policy(c.policy), withHolding(&dev))
		f := x.Create("/f")
		x.Must(f.SetFlags(x.T, fstest.Nocow))
		x.Must(f.Fallocate(x.T, 0, 0, 16384))
		fstest.Must(f.WriteDirect(x.T, make([]byte, 4096), 0))
		x.Must(x.FS.Sync(x.T))
		dev.hold(blockdev.OpWrite)
		res := new(fstest.Result)
		var n int
		var err error
		w := x.T.Go("writer", func(tk *sched.Task) {
			n, err = f.WriteIter(tk, kiocb.Request{Pos: uint64(c.off), Flags: kiocb.Direct, Done: res}, iopath.Source{Buf: bytes.Repeat([]byte{7}, 512)})
		})
		fstest.Until(func() bool { return dev.count() > 0 })
		if f.Inode().TryLock(x.T) {
			t.Errorf("%s: i_rwsem is free while a write that is alone is in flight", c.policy)
			f.Inode().Unlock(x.T)
		}
		// zeros before and after it
		fstest.Until(func() bool { return dev.count() == 1 || dev.count() == 3 })
		if c.off > 4096 {
			fstest.Until(func() bool { return dev.count() == 3 })
		}
		dev.letGo(x.T, nil)
		x.T.Join(w)
		if n != 512 || err != nil || res.Calls.Load() != 0 {
			t.Errorf("%s: %d, %v, Done called %d times; want 512 at once", c.policy, n, err, res.Calls.Load())
		}
		x.FS.DropCaches(x.T)
		if got := fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, 512), c.off); !bytes.Equal(got, bytes.Repeat([]byte{7}, 512)) {
			t.Errorf("%s: reads %d, want 7", c.policy, got[0])
		}
		x.Must(f.Close(x.T))
	}
}

// TestUnalignedErrors: the error of a queued write of sectors is told to Done and to fsync, and
// nothing is left of the write: neither its count nor its hold on snapshots.
func TestUnalignedErrors(t *testing.T) {
	for _, p := range []string{"unaligned-check-first", "unaligned-zeroing", "unaligned-retry"} {
		var dev *holding
		x := fstest.New(t, fstest.Policy(p), withHolding(&dev))
		f := x.Create("/f")
		x.Must(f.SetFlags(x.T, fstest.Nocow))
		fstest.Must(f.WriteDirect(x.T, make([]byte, 8192), 0))
		x.Must(x.FS.Sync(x.T))
		dev.hold(blockdev.OpWrite)
		w := queue(t, x, f, blockdev.OpWrite, make([]byte, 1024), 512)
		dev.letGo(x.T, errno.EIO)
		w.Want(t, p, 0, errno.EIO)
		if err := f.Fsync(x.T); !errors.Is(err, errno.EIO) {
			t.Errorf("%s: the first fsync after it: have %v want EIO", p, err)
		}
		if n, s := f.Inode().DIO.Load(), f.Inode().Root.SnapshotLock.Writers(); n != 0 || s != 0 {
			t.Errorf("%s: %d in flight, %d keep snapshots out; want none", p, n, s)
		}
		x.Must(x.FS.Snapshot(x.T, "/", "/s", false))
		x.Must(f.Close(x.T))
	}
}

// TestUnalignedNewExtent: while a snapshot is made nothing is overwritten in place. A direct write
// of a whole block then needs a new extent, and goes through the page cache, because sectors could
// be on their way to the old one, which the next commit frees: it is not queued.
func TestUnalignedNewExtent(t *testing.T) {
	var dev *holding
	x := fstest.New(t, fstest.Policy("unaligned-check-first"), withHolding(&dev))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, fstest.Nocow))
	fstest.Must(f.WriteDirect(x.T, make([]byte, 8192), 0))
	x.Must(x.FS.Sync(x.T))
	lock := &f.Inode().Root.SnapshotLock
	lock.ReadLock(x.T)
	dev.hold(blockdev.OpWrite)
	res := new(fstest.Result)
	var n int
	var err error
	w := x.T.Go("writer", func(tk *sched.Task) {
		n, err = f.WriteIter(tk, kiocb.Request{Flags: kiocb.Direct, Done: res}, iopath.Source{Buf: make([]byte, 4096)})
	})
	fstest.Until(func() bool { return dev.count() > 0 })
	dev.letGo(x.T, nil)
	x.T.Join(w)
	lock.ReadUnlock(x.T)
	if n != 4096 || err != nil || res.Calls.Load() != 0 {
		t.Errorf("%d, %v, Done called %d times; want 4096 at once", n, err, res.Calls.Load())
	}
	x.Must(f.Close(x.T))
}

// TestUnalignedNowait: a NOWAIT write through the page cache does not wait for sectors in flight,
// and a NOWAIT write of sectors is EAGAIN.
func TestUnalignedNowait(t *testing.T) {
	var dev *holding
	x := fstest.New(t, fstest.Policy("unaligned-check-first"), withHolding(&dev))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, fstest.Nocow))
	fstest.Must(f.WriteDirect(x.T, make([]byte, 8192), 0))
	x.Must(x.FS.Sync(x.T))
	fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, 8192), 0)
	dev.hold(blockdev.OpWrite)
	w := queue(t, x, f, blockdev.OpWrite, make([]byte, 512), 512)
	for _, c := range []struct {
		flags kiocb.Flags
		off   uint64
		n     int
		want  kiocb.Again
	}{{kiocb.Nowait, 4096, 4096, kiocb.AgainDirect}, {kiocb.Nowait | kiocb.Direct, 512, 512, kiocb.AgainBuffered}, {kiocb.Nowait | kiocb.Direct, 12288, 4096, kiocb.AgainDirect}} {
		if _, err := f.WriteIter(x.T, kiocb.Request{Pos: c.off, Flags: c.flags, Done: new(fstest.Result)}, iopath.Source{Buf: make([]byte, c.n)}); err != error(c.want) {
			t.Errorf("flags %v at %d: have %v want %v", c.flags, c.off, err, c.want)
		}
	}
	dev.letGo(x.T, nil)
	w.Want(t, "write", 512, nil)
	x.Must(f.Close(x.T))
}

// TestUnalignedQueuedModel: tasks keep writes of sectors of their own in flight, in blocks that all
// of them write and that were written or preallocated before, on a device with a latency, beside a
// task that reads and one that writes through the page cache. Each sector holds in the end what its
// task wrote last.
func TestUnalignedQueuedModel(t *testing.T) {
	rounds := 40
	if testing.Short() || sched.UnderRace {
		rounds = 10
	}
	const tasks, depth, blocks = 3, 8, 32
	for _, p := range policy.UnalignedNames() {
		t.Run(p, func(t *testing.T) {
			var model *dm.Model
			x := fstest.New(t, fstest.Policy(p), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
				model = dm.New(sched.NewTask("dm"), d, dm.Params{Name: "test", Disks: 1, Channels: 16, Depth: 64, Read: 20 * time.Microsecond, Write: 20 * time.Microsecond})
				return model
			}))
			defer model.Close()
			f := x.Create("/f")
			x.Must(f.SetFlags(x.T, fstest.Nocow))
			x.Must(f.Fallocate(x.T, 0, 0, blocks*4096))
			fstest.Must(f.WriteDirect(x.T, make([]byte, blocks/2*4096), 0))
			want := make([]byte, blocks*4096) // of each sector its task's
			fstest.Parallel(x.T, tasks+2, func(tk *sched.Task, i int) {
				r := rand.New(rand.NewPCG(uint64(i), 4))
				for n := range rounds {
					switch i {
					case tasks: // sector 6 of each block, through the page cache
						off := r.IntN(blocks)*4096 + 3072
						fstest.Stamp(want[off:off+512], uint64(n+1))
						fstest.Must(f.WriteAt(tk, want[off:off+512], int64(off)))
						if n%8 == 0 {
							x.Must(f.Fsync(tk))
						}
						continue
					case tasks + 1:
						fstest.Must(0, ignoreEOF(f.ReadAt(tk, make([]byte, 16384), int64(r.IntN(blocks-4))*4096)))
						continue
					}
					var res [depth]fstest.Result
					for j, b := range r.Perm(blocks)[:depth] {
						off, size := b*4096+i*1024, 512+512*r.IntN(2)
						q := want[off : off+size]
						fstest.Stamp(q, uint64(i+1)<<32|uint64(n*depth+j))
						got, err := f.WriteIter(tk, kiocb.Request{Pos: uint64(off), Flags: kiocb.Direct, Done: &res[j]}, iopath.Source{Buf: q})
						if err != errno.EIOCBQUEUED {
							res[j].Complete(tk, got, err)
						}
					}
					for j := range depth {
						if res[j].Wait(); res[j].Err != nil || res[j].N == 0 {
							t.Errorf("task %d, round %d, request %d: %d, %v", i, n, j, res[j].N, res[j].Err)
							return
						}
					}
				}
			})
			for range 2 {
				if got := fstest.ReadFull(t, x.T, f.ReadAt, make([]byte, len(want)), 0); !bytes.Equal(got, want) {
					d := fstest.Differs(got, want)
					t.Errorf("differs from byte %d on: have %x want %x", d, got[d:d+16], want[d:d+16])
				}
				x.Must(f.Fsync(x.T))
				x.FS.DropCaches(x.T)
			}
			x.Must(f.Close(x.T))
			x.Close()
		})
	}
}

// TestSectorSteps: before a lab's write of a sector has its lock the file becomes shorter, so that
// it ends beyond EOF. The write is told so, and through the page cache it makes the file longer
// again.
func TestSectorSteps(t *testing.T) {
	var f *fs.File
	x := fstest.New(t, fstest.Policy("unaligned-check-first"), fstest.FSOptions(func(o *fs.Options) {
		o.Lab.Sectors = func(tk *sched.Task, w iopath.SectorSteps) {
			if err := f.Truncate(tk, 256); err != nil {
				t.Error(err)
			}
			w.Alone(tk)
			if w.Inside() {
				t.Error("a write of [512, 1024) is told that it is inside a file of 256 bytes")
			}
			w.Unlock(tk)
			w.Cache()
		}
	}))
	f = x.Create("/f")
	x.Must(f.SetFlags(x.T, fstest.Nocow))
	x.WriteAt(f, bytes.Repeat([]byte{1}, 4096), 0)
	x.Must(x.FS.Sync(x.T))
	if n, err := f.WriteDirect(x.T, bytes.Repeat([]byte{2}, 512), 512); n != 512 || err != nil {
		t.Errorf("have %d, %v want 512", n, err)
	}
	want := slices.Concat(bytes.Repeat([]byte{1}, 256), make([]byte, 256), bytes.Repeat([]byte{2}, 512))
	if have := x.ReadFile("/f"); !bytes.Equal(have, want) {
		t.Errorf("the file has %d bytes, want %d%s", len(have), len(want), fstest.DiffAt(have, want))
	}
	x.Must(f.Close(x.T))
}

// TestSectorsReleased: when the wait for a preallocated block ends, which is marked written by an
// ordered extent, the promise of metadata and what keeps snapshots out have gone with that: a full
// image or a snapshot would wait, or be refused, for what nobody needs. The end of the write gives
// the rest back, and there is none.
func TestSectorsReleased(t *testing.T) {
	var f *fs.File
	ran := false
	x := fstest.New(t, fstest.Policy("unaligned-check-first"), fstest.FSOptions(func(o *fs.Options) {
		o.Lab.Sectors = func(tk *sched.Task, w iopath.SectorSteps) {
			ip := f.Inode()
			w.Alone(tk)
			w.Drain(tk)
			if !w.Submit(tk) {
				t.Error("not submitted")
			}
			if ip.Outstanding() != 1 {
				t.Errorf("%d extents are promised while the sectors are under way, want 1", ip.Outstanding())
			}
			w.Wait(tk)
			if n, s := ip.Outstanding(), ip.Root.SnapshotLock.Writers(); n != 0 || s != 0 {
				t.Errorf("marked written: %d extents are promised, %d keep snapshots out; want none", n, s)
			}
			w.Unlock(tk)
			ran = true
		}
	}))
	f = x.Create("/f")
	x.Must(f.SetFlags(x.T, fstest.Nocow))
	x.Must(f.Fallocate(x.T, 0, 0, 8192))
	x.Must(x.FS.Sync(x.T))
	if n, err := f.WriteDirect(x.T, bytes.Repeat([]byte{2}, 512), 512); n != 512 || err != nil || !ran {
		t.Errorf("have %d, %v, by the steps %v; want 512", n, err, ran)
	}
	want := make([]byte, 8192)
	copy(want[512:], bytes.Repeat([]byte{2}, 512))
	if have := x.ReadFile("/f"); !bytes.Equal(have, want) {
		t.Errorf("the file differs%s", fstest.DiffAt(have, want))
	}
	x.Must(f.Close(x.T))
}

// TestUnalignedCrash: tasks keep direct writes of sectors in flight, in blocks that were written
// and in preallocated ones, and the file is synced after each round. After a crash the image is
// clean, and each sector holds what the last fsync has promised or what was written since.
func TestUnalignedCrash(t *testing.T) {
	const tasks, depth, blocks = 4, 4, 16
	for _, p := range policy.UnalignedNames() {
		t.Run(p, func(t *testing.T) {
			fstest.CrashRounds(t, p, blocks, 512, func(x *fstest.Fixture, f *fs.File, n int, wrote func(unit int)) {
				var mu sync.Mutex
				// task i has two sectors of each block
				fstest.Parallel(x.T, tasks, func(tk *sched.Task, i int) {
					r := rand.New(rand.NewPCG(uint64(i), uint64(n)))
					var res [depth]fstest.Result
					for j, b := range r.Perm(blocks)[:depth] {
						first, sectors := b*8+i*2, 1+r.IntN(2)
						mu.Lock()
						for s := first; s < first+sectors; s++ {
							wrote(s)
						}
						mu.Unlock()
						res[j].Submit(tk, f, kiocb.Request{Pos: uint64(first) * 512, Flags: kiocb.Direct}, bytes.Repeat([]byte{byte(n + 1)}, sectors*512))
					}
					for j := range depth {
						if res[j].Wait(); res[j].Err != nil {
							t.Error(res[j].Err)
						}
					}
				})
			})
		})
	}
}

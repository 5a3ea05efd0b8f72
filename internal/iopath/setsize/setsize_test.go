package setsize_test

import (
	"bytes"
	"errors"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/datatest"
	"btrlab/internal/testing/fstest"
)

// A shrink into the middle of a page zeroes the rest of the page in memory: a mapping of it would
// show the old bytes, and i_size alone hides them from reads only. The pages after it go, or the
// bytes would be there again as soon as the file grows. That holds for each order of the steps.
func TestTailIsZeroed(t *testing.T) {
	apart := policy.SetsizeOrder{policy.DIOWait, policy.WaitOrdered, policy.SetISize, policy.TruncatePages, policy.TruncateItems}
	for _, order := range []policy.SetsizeOrder{{}, apart} {
		x := fstest.New(t)
		f := x.Create("/f")
		p := *policy.MustParse("modern")
		p.SetsizeSteps = order
		x.FS.SetPolicy(x.T, &p)
		x.WriteAt(f, bytes.Repeat([]byte{0xff}, 3*pagecache.PageSize), 0)
		x.Must(f.Fsync(x.T)) // a dirty page would be zeroed beyond EOF by its writeback
		x.Must(f.Truncate(x.T, pagecache.PageSize+100))
		page := f.Inode().Pages.Get(x.T, 1)
		if page == nil {
			t.Fatal("the last page is not in memory")
		}
		d := make([]byte, pagecache.PageSize)
		page.Read(x.T, d, 0)
		page.Put(x.T)
		if d[99] != 0xff || d[100] != 0 || d[4095] != 0 {
			t.Errorf("%v: have bytes 99, 100 and 4095 %#x %#x %#x want 0xff 0 0", order, d[99], d[100], d[4095])
		}
		if p := f.Inode().Pages.Get(x.T, 2); p != nil {
			t.Errorf("%v: the page beyond the new size is still in memory", order)
			p.Put(x.T)
		}
		x.Must(f.Close(x.T))
		x.Close()
	}
}

// A truncate cuts a compressed inline extent: what is left of it is written again.
func TestCompressedInline(t *testing.T) {
	x := fstest.New(t, fstest.Image("../../fs/testdata/compressed.blocks.gz"))
	for _, name := range []string{"/zlib/inline", "/lzo/inline", "/zstd/inline"} {
		want := x.ReadFile(name)[:100]
		f := x.Open(name)
		x.Must(f.Truncate(x.T, 100))
		x.Must(f.Close(x.T))
		if have := x.ReadFile(name); !bytes.Equal(have, want) {
			t.Errorf("%s, before a commit: have %q want %q", name, have, want)
		}
		x.Reopen()
		f = x.Open(name)
		x.Must(f.Truncate(x.T, 200))
		x.Must(f.Close(x.T))
		if have := x.ReadFile(name); !bytes.Equal(have, append(bytes.Clone(want), make([]byte, 100)...)) {
			t.Errorf("%s, cut and grown: have %q want %q and zeros", name, have, want)
		}
	}
}

// A compressed inline extent that cannot be read cannot be cut. The truncate says so and changes
// nothing, and the file system goes on.
func TestBrokenInline(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	data := bytes.Repeat([]byte("inline"), 200)
	x.WriteAt(f, data, 0)
	x.Must(f.Close(x.T))
	x.Close()
	compressInline(t, x, data)
	x.Reopen()
	f = x.Open("/f")
	if err := f.Truncate(x.T, 100); !errors.Is(err, errno.EIO) {
		t.Errorf("have %v, want EIO", err)
	}
	if size := f.Inode().Size(x.T); size != uint64(len(data)) {
		t.Errorf("the file has %d bytes, want %d", size, len(data))
	}
	g := x.Create("/g")
	x.WriteAt(g, data, 0)
	x.Must(g.Close(x.T))
	x.Must(f.Truncate(x.T, 0))
	x.Must(f.Close(x.T))
}

// compressInline says in the device's leaves that the inline extent which holds p is compressed.
func compressInline(t *testing.T, x *fstest.Fixture, p []byte) {
	const nodeSize, compression = 16384, 16 // in the item
	image := make([]byte, x.Dev.Size())
	datatest.Must(t, blockdev.Read(x.T, x.Dev, image, 0))
	leaves := 0
	for at := 0; ; leaves++ {
		i := bytes.Index(image[at:], p)
		if i < 0 {
			break
		}
		at += i
		image[at-format.FileExtentInline+compression] = format.CompressZlib
		leaf := image[at/nodeSize*nodeSize:][:nodeSize]
		sum := format.CsumCRC32C.Sum(leaf[format.CsumField:])
		copy(leaf, sum[:])
		datatest.Must(t, blockdev.Write(x.T, x.Dev, leaf, int64(at/nodeSize*nodeSize)))
		at += len(p)
	}
	if leaves == 0 {
		t.Fatal("no inline extent found")
	}
}

// Direct reads that need no i_rwsem go on without it after a truncate, also after one that fails
// before it has set i_size.
func TestReadsGoOn(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Faults(&dev))
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, f.Flags()|format.InodeNoDataCow))
	x.WriteAt(f, make([]byte, 9000), 0)
	x.Must(x.FS.Sync(x.T))
	reader := sched.NewTask("reader")
	truncate := func(order policy.SetsizeOrder, size int64) error {
		t.Helper()
		p := *policy.MustParse("unlocked-drain")
		p.SetsizeSteps = order
		x.FS.SetPolicy(x.T, &p)
		err := f.Truncate(x.T, size)
		f.Inode().Lock(x.T)
		defer f.Inode().Unlock(x.T)
		// NOWAIT, which says so where another read would wait for this task.
		if n, again := f.ReadIter(reader, kiocb.Request{Flags: kiocb.Direct | kiocb.Nowait}, make([]byte, 4096)); n != 4096 || again != nil {
			t.Errorf("%v: a read has %d, %v", order, n, again)
		}
		return err
	}
	late := policy.SetsizeOrder{policy.DIOWait, policy.WaitOrdered, policy.SetISize, policy.TruncatePages, policy.TruncateItems}
	x.Must(truncate(late, 8500))
	x.Must(truncate(policy.SetsizeOrder{}, 8400))
	x.WriteAt(f, []byte("new"), 8200)
	dev.Set(dm.Fault{Op: blockdev.OpWrite})
	if err := truncate(late, 4096); !errors.Is(err, errno.EIO) {
		t.Errorf("on a dead device: have %v want EIO", err)
	}
	dev.Set()
	if err := f.Fsync(x.T); !errors.Is(err, errno.EIO) {
		t.Errorf("fsync: have %v want EIO", err)
	}
	x.Must(f.Close(x.T))
}

// A direct read that needs no i_rwsem is held from before a truncate waits for i_dio_count until it
// has set i_size. If reads were let go first, one could begin with the old i_size after the wait,
// and its blocks would be freed while it reads them.
func TestReadsAreHeldUntilTheSizeIsSet(t *testing.T) {
	image := blockdev.NewMemory(128 << 20)
	datatest.Must(t, mkfs.Make(sched.NewTask("mkfs"), image, mkfs.Options{Now: fstest.Epoch}))
	const old, size = 3 * pagecache.PageSize, pagecache.PageSize
	for _, order := range []policy.SetsizeOrder{
		{policy.DIOWait, policy.TruncateSetsize, policy.WaitOrdered, policy.TruncateItems},
		{policy.DIOWait, policy.WaitOrdered, policy.SetISize, policy.TruncatePages, policy.TruncateItems},
	} {
		held := 0
		cfg := explore.Config{Preemptions: 3, Schedules: 20_000, Switch: []sched.ClassID{extentio.DIOClass.ID, inode.Class.ID}}
		r := explore.Run(cfg, func(w *explore.World) {
			o := fstest.Explored("unlocked-drain")
			p := *o.Policy
			p.SetsizeSteps = order
			o.Policy = &p
			x, err := fs.Open(w.Task(), []blockdev.Device{image.Snapshot()}, o)
			must(err)
			f, err := x.Create(w.Task(), "/f", 0o644)
			must(err)
			_, err = f.WriteAt(w.Task(), make([]byte, old), 0)
			must(err)
			must(f.Fsync(w.Task()))
			var bad error
			w.Go("truncate", func(t *sched.Task) { must(f.Truncate(t, size)) })
			w.Go("reader", func(t *sched.Task) {
				ip := f.Inode()
				if !ip.ReadsHeld(t) {
					return
				}
				held++
				if !ip.ReadsHeld(t) && ip.DebugSize() == old {
					bad = errors.New("a read that was held is let go, and i_size is the old one")
				}
			})
			w.Check(func() error { return bad })
		})
		if r.Verdict == explore.Violated || held == 0 {
			t.Errorf("%v: %s, held %d times: %s; schedule %q", order, r.Bound, held, r.Violation, r.Schedule)
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

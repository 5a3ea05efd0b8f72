package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/datatest"
	"btrlab/internal/testing/fstest"
)

// TestFsyncCommits: whatever was done to a file, fsync of it, or a sync of all, makes that durable:
// a commit whose flush comes after the data is on the device, also where nothing of the file is
// dirty in memory. The image as it is then, opened, has the file with its contents, size and time.
func TestFsyncCommits(t *testing.T) {
	const size = 64 << 10
	var mem *blockdev.Memory
	var dev *dm.Flakey
	setup := func(o ...fstest.Option) *fstest.Fixture {
		return fstest.New(t, append(o, fstest.Size(128<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
			mem = d.(*blockdev.Memory)
			dev = dm.NewFlakey(d)
			return dev
		}))...)
	}
	old := func(x *fstest.Fixture, flags uint64) *fs.File { // a file that is durable as it is
		f := x.Create("/f")
		if flags != 0 {
			x.Must(f.SetFlags(x.T, flags))
		}
		x.WriteAt(f, bytes.Repeat([]byte{1}, size), 0)
		x.Must(x.FS.Sync(x.T))
		return f
	}
	for _, c := range []struct {
		name string
		opts []fstest.Option
		do   func(x *fstest.Fixture) *fs.File
	}{
		{"create", nil, func(x *fstest.Fixture) *fs.File { return x.Create("/f") }},
		{"create, and the inode leaves memory", []fstest.Option{fstest.FSOptions(func(o *fs.Options) { o.CacheInodes = 1 })}, func(x *fstest.Fixture) *fs.File {
			f := x.Create("/f")
			was := f.Inode()
			x.Must(f.Close(x.T))
			for i := range 10 {
				x.Must(x.Create(fmt.Sprintf("/g%d", i)).Close(x.T))
			}
			if f = x.Open("/f"); f.Inode() == was {
				t.Error("the inode did not leave memory")
			}
			return f
		}},
		{"write", nil, func(x *fstest.Fixture) *fs.File {
			f := old(x, 0)
			x.WriteAt(f, bytes.Repeat([]byte{2}, 5000), 1000)
			return f
		}},
		{"write in place", nil, func(x *fstest.Fixture) *fs.File {
			f := old(x, format.InodeNoDataCow)
			x.WriteAt(f, bytes.Repeat([]byte{2}, 5000), 1000)
			return f
		}},
		{"write in place, written back before", nil, func(x *fstest.Fixture) *fs.File {
			f := old(x, format.InodeNoDataCow)
			x.Must(x.FS.Sync(x.T))
			x.WriteAt(f, bytes.Repeat([]byte{2}, 5000), 1000)
			x.Must(x.FS.Flush(x.T, f))
			return f
		}},
		{"truncate", nil, func(x *fstest.Fixture) *fs.File {
			f := old(x, 0)
			x.Must(f.Truncate(x.T, 5000))
			return f
		}},
		{"grow", nil, func(x *fstest.Fixture) *fs.File {
			f := old(x, 0)
			x.Must(f.Truncate(x.T, 2*size))
			return f
		}},
		{"fallocate", nil, func(x *fstest.Fixture) *fs.File {
			f := old(x, 0)
			x.Must(f.Fallocate(x.T, 0, size, size))
			return f
		}},
		{"punch", nil, func(x *fstest.Fixture) *fs.File {
			f := old(x, 0)
			x.Must(f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, 4096, 8192))
			return f
		}},
	} {
		for _, sync := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/sync=%v", c.name, sync), func(t *testing.T) {
				x := setup(append(c.opts, fstest.Policy("fsync-commit"))...)
				f := c.do(x)
				flushes := dev.Count(blockdev.OpFlush)
				if sync {
					x.Must(x.FS.Sync(x.T))
				} else {
					x.Must(f.Fsync(x.T))
				}
				if dev.Count(blockdev.OpFlush) == flushes {
					t.Error("the device was not flushed")
				}
				want := f.Stat(x.T)
				content := x.ReadFile("/f")

				crash := mem.Snapshot()
				x.Check(crash)
				after, err := fs.Open(x.T, []blockdev.Device{crash}, fs.Options{ReadOnly: true})
				x.Must(err)
				g, err := after.OpenFile(x.T, "/f", fs.O_RDONLY, 0)
				x.Must(err)
				have := g.Stat(x.T)
				if have.Size != want.Size || have.Nbytes != want.Nbytes || !have.Mtime.Equal(want.Mtime) {
					t.Errorf("after a crash: size %d, %d bytes, mtime %v; want %d, %d, %v", have.Size, have.Nbytes, have.Mtime, want.Size, want.Nbytes, want.Mtime)
				}
				p := make([]byte, len(content))
				if n, err := g.ReadAt(x.T, p, 0); n != len(p) || !bytes.Equal(p, content) {
					t.Errorf("after a crash: %d bytes, %v%s", n, err, fstest.DiffAt(p, content))
				}
				x.Must(g.Close(x.T))
				x.Must(after.Close(x.T))
				x.Must(f.Close(x.T))
			})
		}
	}
}

// TestSyncKeepsTheRest: one file's data cannot be written. The sync says so, and has committed what
// could be.
func TestSyncKeepsTheRest(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Faults(&dev))
	x.Must(x.Create("/bad").Close(x.T))
	x.Must(x.FS.Sync(x.T))
	f := x.Open("/bad")
	x.WriteAt(f, make([]byte, 100000), 0)
	dev.Set(dm.Fault{Op: blockdev.OpWrite, Nth: dev.Count(blockdev.OpWrite) + 1})
	x.Must(x.FS.Flush(x.T, f))
	g := x.Create("/good")
	x.WriteAt(g, []byte("kept"), 0)
	generation := x.FS.Super(x.T).Generation
	wantErr(t, "sync", x.FS.Sync(x.T), errno.EIO)
	if dev.Failed() != 1 || x.FS.Super(x.T).Generation == generation {
		t.Errorf("%d writes failed, generation %d, was %d", dev.Failed(), x.FS.Super(x.T).Generation, generation)
	}
	x.Must(f.Close(x.T))
	x.Must(g.Close(x.T))
	x.Reopen()
	if have := x.ReadFile("/good"); string(have) != "kept" {
		t.Errorf("the other file has %q", have)
	}
}

// TestPrunedKeepsData: inodes leave memory when there are too many of them; one with data that is
// not on disk yet stays, also when its item has been committed.
func TestPrunedKeepsData(t *testing.T) {
	// With a bound on memory the data would be written when the file is closed.
	x := fstest.New(t, fstest.Policy("fsync-commit"), fstest.FSOptions(func(o *fs.Options) { o.CacheInodes, o.Memory = 2, fs.NoLimit }))
	other := x.Create("/other")
	f := x.Create("/f")
	x.WriteAt(f, []byte("dirty data"), 0)
	x.Must(f.Close(x.T))
	x.Must(other.Fsync(x.T)) // commits the item of f
	for i := range 20 {
		x.Must(x.Create(fmt.Sprintf("/g%d", i)).Close(x.T))
	}
	if have := x.ReadFile("/f"); string(have) != "dirty data" {
		t.Errorf("have %q", have)
	}
	x.Must(other.Close(x.T))
	x.Reopen()
	if have := x.ReadFile("/f"); string(have) != "dirty data" {
		t.Errorf("after a mount: have %q", have)
	}
}

// TestLiveOrphan: an old kernel left an orphan item for a file that it was truncating when it
// crashed. The file has a name: it stays, and the item goes.
func TestLiveOrphan(tt *testing.T) {
	t := sched.NewTask("test")
	dev := blockdev.NewMemory(128 << 20)
	datatest.Must(tt, mkfs.Make(t, dev, mkfs.Options{Now: time.Unix(1e9, 0)}))
	w := datatest.Mount(tt, t, dev, dev)
	live, gone := w.Create(0), format.Ino(9999)
	data := datatest.Pattern(10000, 1)
	datatest.Must(tt, w.Write(t, live, data, 0))
	h, err := w.Manager.Start(t, 4)
	datatest.Must(tt, err)
	datatest.Must(tt, w.Items.InsertOrphan(t, h.Trans(), live.Root, live.Ino))
	// of an inode that is not there any more
	datatest.Must(tt, w.Items.InsertOrphan(t, h.Trans(), live.Root, gone))
	datatest.Must(tt, h.End(t))
	w.Stop()

	f, err := fs.Open(t, []blockdev.Device{dev}, fs.Options{CheckQuiescence: true})
	datatest.Must(tt, err)
	g, err := f.OpenFile(t, fmt.Sprintf("/f%d", live.Ino), fs.O_RDONLY, 0)
	datatest.Must(tt, err)
	p := make([]byte, len(data))
	if n, err := g.ReadAt(t, p, 0); n != len(p) || !bytes.Equal(p, data) {
		tt.Errorf("read %d bytes, %v", n, err)
	}
	datatest.Must(tt, g.Close(t))
	datatest.Must(tt, f.Close(t))
	w = datatest.Mount(tt, t, dev, dev)
	if list, err := w.Items.Orphans(t, w.Manager.Root(format.FS_TREE_OBJECTID)); err != nil || len(list) != 0 {
		tt.Errorf("orphan items %v, %v; want none", list, err)
	}
	w.Close()
}

// TestCloseSaysSo: the last close of a file without a name deletes it. When that fails, the close
// says so, and the file goes with the next mount.
func TestCloseSaysSo(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.NoCheck(), fstest.Faults(&dev))
	f := x.Create("/f")
	x.WriteAt(f, make([]byte, 100000), 0)
	x.Must(x.FS.Unlink(x.T, "/f"))
	x.Must(x.FS.Sync(x.T))
	x.Must(x.Create("/late").Close(x.T))
	dev.Set(dm.Fault{Op: blockdev.OpWrite})
	wantErr(t, "sync on a dead device", x.FS.Sync(x.T), errno.EIO)
	dev.Set()
	wantErr(t, "close of a file without a name", f.Close(x.T), errno.EROFS)
	x.Close()
	again, err := fs.Open(x.T, []blockdev.Device{dev}, fs.Options{CheckQuiescence: true})
	x.Must(err)
	x.Must(again.Close(x.T))
	x.Check(dev)
}

// TestManyExtents: a file with more extents than one transaction drops. Punch, truncate and delete
// go on until all are gone.
func TestManyExtents(t *testing.T) {
	fstest.OneTask(t)
	const extents = 4200 // of one block, every second block; see setsize.itemsPerTransaction
	x := fstest.New(t)
	x.Must(x.FS.Sync(x.T))
	before := x.FS.Statfs(x.T).DataUsed
	f := x.Create("/f")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
	fill := func() {
		for i := range int64(extents) {
			x.Must(f.Fallocate(x.T, 0, i*8192, 4096))
		}
		if n := f.Stat(x.T).Nbytes; n != extents*4096 {
			t.Fatalf("%d bytes allocated, want %d", n, extents*4096)
		}
	}
	empty := func(what string) {
		x.Must(x.FS.Sync(x.T))
		if used := x.FS.Statfs(x.T).DataUsed; used != before {
			t.Errorf("%s: %d bytes of data are in use, want %d", what, used, before)
		}
	}
	fill()
	x.Must(f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, 0, 2*8192*extents))
	empty("punch")
	fill()
	x.Must(f.Truncate(x.T, 0))
	empty("truncate")
	fill()
	x.Must(x.FS.Unlink(x.T, "/f"))
	x.Must(f.Close(x.T))
	empty("delete")
}

// TestFullPrealloc: what fallocate has reserved can be written on a full image, in a COW file too,
// once.
func TestFullPrealloc(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(64<<20))
	f := x.Create("/f")
	const size = 256 << 10
	x.Must(f.Fallocate(x.T, 0, 0, size))
	fill := full(x)
	want := bytes.Repeat([]byte("promised"), size/8)
	x.WriteAt(f, want[:size/2], 0)
	x.Must(f.Fsync(x.T))
	if n, err := f.WriteAt(x.T, want[:4096], 0); !errors.Is(err, errno.ENOSPC) || n != 0 {
		t.Errorf("a second write, which is a copy: have %d, %v want ENOSPC", n, err)
	}
	x.WriteAt(f, want[size/2:], size/2)
	x.Must(f.Close(x.T))
	x.Must(fill.Close(x.T))
	x.Reopen()
	if have := x.ReadFile("/f"); !bytes.Equal(have, want) {
		t.Errorf("have %d bytes%s", len(have), fstest.DiffAt(have, want))
	}
}

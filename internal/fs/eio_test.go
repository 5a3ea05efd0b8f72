package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestDataEIO: the device fails while data is written back. fsync says so, once; what was on disk
// before is still there, nothing stays reserved, and the file can be written again.
func TestDataEIO(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Faults(&dev))
	f := x.Create("/f")
	old := bytes.Repeat([]byte("old "), 25000)
	x.WriteAt(f, old, 0)
	x.Must(f.Fsync(x.T))
	x.WriteAt(f, bytes.Repeat([]byte("new "), 25000), 0)
	dev.Set(dm.Fault{Op: blockdev.OpWrite})
	wantErr(t, "fsync on a dead device", f.Fsync(x.T), errno.EIO)
	dev.Set()
	if err := f.Fsync(x.T); err != nil {
		t.Errorf("fsync afterwards: %v", err)
	}
	x.FS.DropCaches(x.T)
	if have := x.ReadFile("/f"); !bytes.Equal(have, old) {
		t.Errorf("content after the error: %d bytes, want %d%s", len(have), len(old), fstest.DiffAt(have, old))
	}
	next := bytes.Repeat([]byte("next"), 30000)
	x.WriteAt(f, next, 0)
	x.Must(f.Close(x.T))
	x.Reopen()
	if have := x.ReadFile("/f"); !bytes.Equal(have, next) {
		t.Errorf("content written after the error: %d bytes, want %d%s", len(have), len(next), fstest.DiffAt(have, next))
	}
}

// TestSyncEIO: data that could not be written is lost, so somebody has to be told: the fsync of its
// file, or else the next sync or close of the file system, also when the file has been closed and
// its inode has left memory meanwhile. An error that comes with the end of a bio is easily
// forgotten, as the writer has long gone on: then a copy into an image succeeds, and the file is
// empty.
func TestSyncEIO(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(x *fstest.Fixture, f *fs.File) // with a device that fails data writes
		want error                               // of the next sync
	}{
		{"nobody asked", func(x *fstest.Fixture, f *fs.File) {}, errno.EIO},
		{"written back before", func(x *fstest.Fixture, f *fs.File) { x.Must(x.FS.Flush(x.T, f)) }, errno.EIO},
		{"written back before, fsync was told", func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Flush(x.T, f))
			for f.Inode().Pages.WritebackPages(x.T) > 0 || f.Inode().Ordered.Len() > 0 {
				runtime.Gosched()
			}
			wantErr(t, "fsync", f.Fsync(x.T), errno.EIO)
			x.Must(f.Fsync(x.T))
		}, nil},
		{"fsync was told", func(x *fstest.Fixture, f *fs.File) { wantErr(t, "fsync", f.Fsync(x.T), errno.EIO) }, nil},
	} {
		for i := range 4 {
			closed, pol := i&1 != 0, []string{"locked", "locked!FSYNC_LOG"}[i>>1]
			t.Run(fmt.Sprintf("%s/closed=%v/%s", c.name, closed, pol), func(t *testing.T) {
				var dev *dm.Flakey
				x := fstest.New(t, fstest.Policy(pol), fstest.FSOptions(func(o *fs.Options) { o.CacheInodes = 1 }), fstest.Faults(&dev))
				f := x.Create("/f")
				x.WriteAt(f, make([]byte, 100000), 0)
				x.Must(x.FS.Sync(x.T))
				x.WriteAt(f, bytes.Repeat([]byte("new "), 25000), 0)
				// the data; a commit's writes succeed
				dev.Set(dm.Fault{Op: blockdev.OpWrite, Nth: dev.Count(blockdev.OpWrite) + 1})
				c.do(x, f)
				if closed {
					x.Must(f.Close(x.T))
					for i := range 100 { // other inodes take its place in memory
						x.Must(x.Create(fmt.Sprintf("/other%d", i)).Close(x.T))
					}
				}
				if err := x.FS.Sync(x.T); !errors.Is(err, c.want) {
					t.Errorf("sync: have %v want %v", err, c.want)
				}
				if dev.Failed() != 1 {
					t.Errorf("%d writes failed, want 1", dev.Failed())
				}
				x.Must(x.FS.Sync(x.T)) // told once
				if !closed {
					x.Must(f.Close(x.T))
				}
			})
		}
	}
}

// TestReadEIO: a read error is the reader's; the next read works again.
func TestReadEIO(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Faults(&dev))
	f := x.Create("/f")
	x.WriteAt(f, make([]byte, 100000), 0)
	x.Must(f.Fsync(x.T))
	x.FS.DropCaches(x.T)
	dev.Set(dm.Fault{Op: blockdev.OpRead})
	p := make([]byte, 100)
	_, err := f.ReadAt(x.T, p, 50000)
	wantErr(t, "read", err, errno.EIO)
	_, err = f.WriteAt(x.T, p, 50000) // a part of a page: must read it first
	wantErr(t, "write", err, errno.EIO)
	wantErr(t, "truncate to the middle of a block, then up", func() error {
		if err := f.Truncate(x.T, 50000); err != nil {
			return err
		}
		return f.Truncate(x.T, 60000)
	}(), errno.EIO)
	dev.Set()
	if _, err := f.ReadAt(x.T, p, 40000); err != nil {
		t.Errorf("read afterwards: %v", err)
	}
	x.Must(f.Close(x.T))
}

// TestTruncateEIO: the block at the new end of a file cannot be written, so the truncate fails
// before it has dropped an extent. The file is as long as it was and has what is on disk.
func TestTruncateEIO(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Faults(&dev))
	f := x.Create("/f")
	old := bytes.Repeat([]byte("old "), 25000)
	x.WriteAt(f, old, 0)
	x.Must(x.FS.Sync(x.T))
	x.WriteAt(f, []byte("new"), 50000)
	dev.Set(dm.Fault{Op: blockdev.OpWrite})
	wantErr(t, "truncate on a dead device", f.Truncate(x.T, 50000), errno.EIO)
	dev.Set()
	if n := f.Size(x.T); n != int64(len(old)) {
		t.Errorf("size %d, want %d", n, len(old))
	}
	x.FS.DropCaches(x.T)
	if have := x.ReadFile("/f"); !bytes.Equal(have, old) {
		t.Errorf("%d bytes, want %d%s", len(have), len(old), fstest.DiffAt(have, old))
	}
	wantErr(t, "fsync", f.Fsync(x.T), errno.EIO) // of the block, once
	x.Must(f.Truncate(x.T, 50000))
	x.Must(f.Close(x.T))
	x.Reopen()
	if have := x.ReadFile("/f"); !bytes.Equal(have, old[:50000]) {
		t.Errorf("after a truncate that went well: %d bytes%s", len(have), fstest.DiffAt(have, old))
	}
}

// TestFsyncLogFlushEIO: a flush of a logged fsync fails, the one before the superblock or the one
// after it. A device may have lost what it had not kept by then, and the next flush goes well: so
// nobody may commit in the log's place. The fsync says that the device failed, also on a file,
// whose superblock is compared with the last one that was written.
func TestFsyncLogFlushEIO(t *testing.T) {
	for _, where := range []string{"memory", "file"} {
		for nth := range int64(2) {
			t.Run(fmt.Sprint(where, " ", nth), func(t *testing.T) {
				var dev *dm.Flakey
				x := fstest.New(t, fstest.Logging(fstest.NoCheck(), fstest.Size(64<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
					if where == "file" {
						d = onFile(t, d)
					}
					dev = dm.NewFlakey(d)
					return dev
				}))...)
				f := x.Create("/f")
				x.Must(x.FS.Sync(x.T))
				x.WriteAt(f, make([]byte, 8192), 0)
				dev.Set(dm.Fault{Op: blockdev.OpFlush, Nth: dev.Count(blockdev.OpFlush) + 1 + nth})
				wantErr(t, "fsync", f.Fsync(x.T), errno.EIO)
				wantErr(t, "fsync after it", f.Fsync(x.T), errno.EROFS)
				wantErr(t, "mkdir after it", x.FS.Mkdir(x.T, "/d", 0o755), errno.EROFS)
				_ = f.Close(x.T)
			})
		}
	}
}

// onFile is a copy of the device in a file.
func onFile(t *testing.T, d blockdev.Device) blockdev.Device {
	t.Helper()
	tk := sched.NewTask("copy")
	path := filepath.Join(t.TempDir(), "img")
	fstest.NoError(os.WriteFile(path, nil, 0o644))
	fstest.NoError(os.Truncate(path, d.Size()))
	file, err := blockdev.Open(path, 0)
	fstest.NoError(err)
	p := make([]byte, d.Size())
	fstest.NoError(errors.Join(blockdev.Read(tk, d, p, 0), blockdev.Write(tk, file, p, 0)))
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// TestFsyncLogEIO: one write or flush of the device fails, each in turn, in the middle of fsyncs
// that log, and of those that follow. An fsync that returns without an error has made its file
// durable, by the log or by the commit in its place: the power goes after each.
func TestFsyncLogEIO(t *testing.T) {
	fstest.OneTask(t)
	for _, f := range []dm.Fault{{Op: blockdev.OpWrite}, {Op: blockdev.OpFlush}, {Op: blockdev.OpWrite, On: true}} {
		t.Run(fmt.Sprint(f.Op, " ", f.On), func(t *testing.T) {
			told, kept, nth := 0, 0, int64(1)
			step := int64(1)
			if testing.Short() {
				step = 5
			}
			for ; fsyncsWithFault(t, f, nth, &told, &kept); nth += step {
				if nth > 300 {
					t.Fatal("no end")
				}
			}
			t.Logf("%d faults, %d fsyncs failed, %d promised", nth-1, told, kept)
			if told == 0 || kept == 0 {
				t.Errorf("%d fsyncs failed, %d promised", told, kept)
			}
		})
	}
}

// fsyncsWithFault makes the fault the nth bio's, and reports whether there are so many.
func fsyncsWithFault(t *testing.T, fault dm.Fault, nth int64, told, kept *int) bool {
	var dev *dm.Flakey
	var mem *blockdev.Memory
	x := fstest.New(t, fstest.Logging(fstest.NoCheck(), fstest.Size(64<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
		mem = d.(*blockdev.Memory)
		dev = dm.NewFlakey(d)
		return dev
	}))...)
	f := x.Create("/f")
	x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 0, 32<<10))
	x.Must(x.FS.Sync(x.T))
	op := fault.Op
	fault.Nth = dev.Count(op) + nth
	dev.Set(fault)
	for i := range 6 {
		want := bytes.Repeat([]byte{byte('a' + i)}, 12<<10+100*i)
		_, err := f.WriteAt(x.T, want, 0)
		name := "f"
		if err == nil && i == 3 {
			err = x.FS.Rename(x.T, "/f", "/g")
		}
		if i >= 3 {
			name = "g"
		}
		if err == nil {
			err = f.Fsync(x.T)
		}
		if err != nil {
			*told++
			if errors.Is(err, errno.EROFS) || x.FS.Chmod(x.T, "/", 0o755) != nil {
				break
			}
			continue
		}
		*kept++
		if have := fstest.Recovered(t, x.T, mem.Snapshot()); !bytes.Equal(have[name], want) {
			t.Errorf("%v %d fails, and after fsync %d, which does not: %s", op, nth, i, fstest.Diff(fstest.Tree{name: have[name]}, fstest.Tree{name: want}, false))
		}
	}
	failed := dev.Failed() > 0
	dev.Set()
	_ = f.Close(x.T)
	x.Close()
	if r, err := check.Check(x.T, mem, check.Options{}); err != nil || !r.Clean {
		t.Errorf("%v %d fails: check: %v, %v", op, nth, r.Findings, err)
	}
	return failed
}

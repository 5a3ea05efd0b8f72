package fs_test

import (
	"bytes"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/fs/fstest"
)

// TestDataEIO: the device fails while data is written back. fsync says so, once; what was on disk before is still there,
// nothing stays reserved, and the file can be written again.
func TestDataEIO(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Wrap(func(d blockdev.Device) blockdev.Device {
		dev = dm.NewFlakey(d)
		return dev
	}))
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
		t.Errorf("content after the error: %d bytes, want %d%s", len(have), len(old), diffAt(have, old))
	}
	next := bytes.Repeat([]byte("next"), 30000)
	x.WriteAt(f, next, 0)
	x.Must(f.Close(x.T))
	x.Reopen()
	if have := x.ReadFile("/f"); !bytes.Equal(have, next) {
		t.Errorf("content written after the error: %d bytes, want %d%s", len(have), len(next), diffAt(have, next))
	}
}

// TestReadEIO: a read error is the reader's; the next read works again.
func TestReadEIO(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Wrap(func(d blockdev.Device) blockdev.Device {
		dev = dm.NewFlakey(d)
		return dev
	}))
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

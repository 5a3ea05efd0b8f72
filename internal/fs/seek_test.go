package fs_test

import (
	"errors"
	"io"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// TestSeekData: the runs of data of a file with holes, while it is dirty and after it was written.
func TestSeekData(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	x.Must(f.Truncate(x.T, 20<<30))
	x.WriteAt(f, make([]byte, 5000), 10<<30)
	x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 1<<30, 1<<20))
	if start, end, err := f.SeekData(x.T, 0); err != nil || start > 10<<30 || end < 10<<30+5000 {
		t.Errorf("dirty: have [%d, %d), %v, want it to hold [10G, 10G+5000)", start, end, err)
	}
	x.Must(x.FS.Sync(x.T))
	start, end, err := f.SeekData(x.T, 0)
	if err != nil || start != 10<<30 || end != 10<<30+8192 {
		t.Errorf("written: have [%d, %d), %v, want [10G, 10G+8192)", start, end, err)
	}
	if start, _, err := f.SeekData(x.T, 10<<30+4097); err != nil || start != 10<<30+4097 {
		t.Errorf("inside data: have %d, %v, want the offset itself", start, err)
	}
	if _, _, err := f.SeekData(x.T, end); err != io.EOF {
		t.Errorf("after the data: have %v want EOF", err)
	}
	if _, _, err := f.SeekData(x.T, 20<<30); err != io.EOF {
		t.Errorf("at the end: have %v want EOF", err)
	}
	x.Must(f.Close(x.T))
}

// TestBadSize: a size that no file can have, and on an image without NO_HOLES one beyond the
// extents, is an error.
func TestBadSize(t *testing.T) {
	x := fstest.New(t, fstest.NoCheck())
	for _, name := range []string{"/long", "/absurd"} {
		f := x.Create(name)
		x.WriteAt(f, make([]byte, 100000), 0)
		x.Must(x.FS.Sync(x.T))
		size := uint64(1 << 50)
		if name == "/absurd" {
			size = 1<<63 + 5
		}
		f.Inode().SetDiskSize(x.T, size)
		f.Inode().MarkDirty(x.T)
		x.Must(f.Close(x.T))
	}
	x.Close()
	damage(x, x.Dev, func(sb *format.Super) { sb.IncompatFlags &^= format.IncompatNoHoles })
	ro, err := fs.Open(x.T, []blockdev.Device{x.Dev}, fs.Options{ReadOnly: true})
	x.Must(err)
	if _, err := ro.OpenFile(x.T, "/absurd", fs.O_RDONLY, 0); !errors.Is(err, errno.EIO) {
		t.Errorf("open a file of 2^63+5 bytes: have %v want EIO", err)
	}
	f, err := ro.OpenFile(x.T, "/long", fs.O_RDONLY, 0)
	x.Must(err)
	if _, _, err := f.SeekData(x.T, 0); err != nil {
		t.Errorf("data before the damage: %v", err)
	}
	if _, _, err := f.SeekData(x.T, 102400); !errors.Is(err, errno.EIO) {
		t.Errorf("seek beyond the extents: have %v want EIO", err)
	}
	x.Must(f.Close(x.T))
	x.Must(ro.Close(x.T))
}

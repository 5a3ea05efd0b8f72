package fs_test

import (
	"bytes"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// TestDropCache: a file that was written and synced is read from the device again after DropCache,
// only inside the range, and another file is not; what is dirty is written, not lost.
func TestDropCache(t *testing.T) {
	var dev *dm.Flakey
	x := fstest.New(t, fstest.Faults(&dev))
	data := bytes.Repeat([]byte("12345678"), 64<<10/8)
	f, g := x.Create("/f"), x.Create("/g")
	for _, file := range []*fs.File{f, g} {
		x.WriteAt(file, data, 0)
		x.Must(file.Fsync(x.T))
	}
	reads := func(what string, file *fs.File, off, n int64, want bool) {
		t.Helper()
		before := dev.Count(blockdev.OpRead)
		p := make([]byte, n)
		if _, err := file.ReadAt(x.T, p, off); err != nil || !bytes.Equal(p, data[off:off+n]) {
			t.Errorf("%s: the file has changed, %v", what, err)
		}
		if have := dev.Count(blockdev.OpRead) > before; have != want {
			t.Errorf("%s: from the device %v, want %v", what, have, want)
		}
	}
	reads("before", f, 0, 64<<10, false)
	f.DropCache(x.T, 100, 40<<10)
	reads("the first page, of which a part was dropped", f, 0, 4096, false)
	reads("beyond the range", f, 48<<10, 16<<10, false)
	reads("the other file", g, 0, 64<<10, false)
	reads("in the range", f, 4096, 8192, true)

	x.WriteAt(f, data[8:16], 0) // the same bytes again, and a dirty page: it is written first
	f.DropCache(x.T, 0, 8192)
	reads("what was dirty", f, 0, 8192, true)
	f.DropCache(x.T, -1, 8192)
	f.DropCache(x.T, 0, 0)
	x.Must(f.Close(x.T))
	x.Must(g.Close(x.T))
}

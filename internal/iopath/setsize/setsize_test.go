package setsize_test

import (
	"bytes"
	"testing"

	"btrlab/internal/data/pagecache"
	"btrlab/internal/fs"
	"btrlab/internal/fs/fstest"
)

// A shrink into the middle of a page zeroes the rest of the page in memory: a mapping of it would show the old bytes, and
// i_size alone hides them from reads only.
func TestTailIsZeroed(t *testing.T) {
	x := fstest.New(t)
	f, err := x.FS.OpenFile(x.T, "/f", fs.O_RDWR|fs.O_CREAT, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close(x.T)
	if _, err := f.WriteAt(x.T, bytes.Repeat([]byte{0xff}, 3*pagecache.PageSize), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Fsync(x.T); err != nil { // a dirty page would be zeroed beyond EOF by its writeback
		t.Fatal(err)
	}
	if err := f.Truncate(x.T, pagecache.PageSize+100); err != nil {
		t.Fatal(err)
	}
	p := f.Inode().Pages.Get(x.T, 1)
	if p == nil {
		t.Fatal("the last page is not in memory")
	}
	defer p.Put(x.T)
	d := make([]byte, pagecache.PageSize)
	p.Read(x.T, d, 0)
	if d[99] != 0xff || d[100] != 0 || d[4095] != 0 {
		t.Errorf("have bytes 99, 100 and 4095 %#x %#x %#x want 0xff 0 0", d[99], d[100], d[4095])
	}
	if f.Inode().Pages.Get(x.T, 2) != nil {
		t.Error("the page beyond the new size is still in memory")
	}
}

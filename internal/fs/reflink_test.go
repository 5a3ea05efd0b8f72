package fs_test

import (
	"bytes"
	"errors"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// What may not be cloned, as FICLONERANGE has it.
func TestReflinkErrors(t *testing.T) {
	x := fstest.New(t)
	src, dst, nocow := x.Create("/src"), x.Create("/dst"), x.Create("/nocow")
	x.Must(nocow.SetFlags(x.T, format.InodeNoDataCow))
	x.WriteAt(src, bytes.Repeat([]byte{1}, 10000), 0)
	x.WriteAt(dst, bytes.Repeat([]byte{2}, 20000), 0)
	x.WriteAt(nocow, bytes.Repeat([]byte{3}, 8192), 0)
	ro, err := x.FS.OpenFile(x.T, "/dst", fs.O_RDONLY, 0)
	x.Must(err)
	for _, c := range []struct {
		what       string
		from, to   *fs.File
		off, n, at int64
		want       error
	}{
		{"from the middle of a block", src, dst, 100, 4096, 0, errno.EINVAL},
		{"to the middle of a block", src, dst, 0, 4096, 100, errno.EINVAL},
		{"a part of a block", src, dst, 0, 100, 0, errno.EINVAL},
		{"the source's last block before the destination's end", src, dst, 8192, 1808, 8192, errno.EINVAL},
		{"beyond the source", src, dst, 8192, 8192, 0, errno.EINVAL},
		{"over itself", src, src, 0, 8192, 4096, errno.EINVAL},
		{"from no checksums to checksums", nocow, dst, 0, 4096, 0, errno.EINVAL},
		{"from checksums to none", src, nocow, 0, 4096, 0, errno.EINVAL},
		{"into a file open for reading", src, ro, 0, 4096, 0, errno.EBADF},
	} {
		wantErr(t, c.what, c.to.Reflink(x.T, c.from, c.off, c.n, c.at), c.want)
	}
	x.Must(dst.Reflink(x.T, src, 8192, 1808, 20480))
	if b := x.ReadFile("/dst"); len(b) != 20480+1808 || b[0] != 2 || b[20000] != 0 || b[20480] != 1 {
		t.Errorf("the clone of a last block beyond the end: %d bytes", len(b))
	}
	x.Must(dst.Reflink(x.T, dst, 0, 4096, 4096)) // ranges that touch do not overlap
	for _, f := range []*fs.File{src, dst, nocow, ro} {
		x.Must(f.Close(x.T))
	}
}

// TestReflinkAll: a whole file takes the place of another, longer or shorter. A file that can share
// nothing with it, or may not be changed, stays.
func TestReflinkAll(t *testing.T) {
	x := fstest.New(t)
	src, nocow := x.Create("/src"), x.Create("/nocow")
	x.Must(nocow.SetFlags(x.T, nocow.Flags()|format.InodeNoDataCow))
	want, old := bytes.Repeat([]byte{1}, 10000), bytes.Repeat([]byte{2}, 20000)
	x.WriteAt(src, want, 0)
	x.WriteAt(nocow, old, 0)
	for _, n := range []int{0, 100, 20000} {
		dst := x.Create("/dst")
		x.WriteAt(dst, old[:n], 0)
		x.Must(dst.ReflinkAll(x.T, src))
		x.Must(dst.Close(x.T))
		if have := x.ReadFile("/dst"); !bytes.Equal(have, want) {
			t.Errorf("over %d bytes: %d bytes, want %d%s", n, len(have), len(want), fstest.DiffAt(have, want))
		}
		x.Must(x.FS.Unlink(x.T, "/dst"))
	}
	fixed := x.Create("/fixed")
	x.WriteAt(fixed, old, 0)
	x.Must(fixed.SetFlags(x.T, format.InodeImmutable))
	ro, err := x.FS.OpenFile(x.T, "/src", fs.O_RDONLY, 0)
	x.Must(err)
	for _, c := range []struct {
		what     string
		path     string
		from, to *fs.File
		left     []byte
		want     error
	}{
		{"from checksums to none", "/nocow", src, nocow, old, errno.EINVAL},
		{"from no checksums to checksums", "/src", nocow, src, want, errno.EINVAL},
		{"into an immutable file", "/fixed", src, fixed, old, errno.EPERM},
		{"into a file open for reading", "/src", fixed, ro, want, errno.EBADF},
		{"into itself", "/src", src, src, want, errno.EINVAL},
	} {
		wantErr(t, c.what, c.to.ReflinkAll(x.T, c.from), c.want)
		if have := x.ReadFile(c.path); !bytes.Equal(have, c.left) {
			t.Errorf("%s: the file has %d bytes, want the %d that it had", c.what, len(have), len(c.left))
		}
	}
	x.Must(fixed.SetFlags(x.T, 0))
	for _, f := range []*fs.File{src, nocow, fixed, ro} {
		x.Must(f.Close(x.T))
	}
}

// A small file's data lies in the tree. Its clone at the start of a file that has no more is an
// item as well; elsewhere it is a block.
func TestReflinkInline(t *testing.T) {
	x := fstest.New(t)
	src := x.Create("/src")
	small := bytes.Repeat([]byte("ab"), 500)
	x.WriteAt(src, small, 0)
	x.Must(src.Fsync(x.T))
	for _, c := range []struct {
		name   string
		have   int // bytes of the destination before
		at     int64
		want   []byte
		blocks bool
	}{
		{"/empty", 0, 0, small, false},
		{"/shorter", 700, 0, small, false},
		{"/beyond", 5000, 8192, append(append(bytes.Repeat([]byte{7}, 5000), make([]byte, 3192)...), small...), true},
	} {
		f := x.Create(c.name)
		x.WriteAt(f, bytes.Repeat([]byte{7}, c.have), 0)
		x.Must(f.Reflink(x.T, src, 0, 1000, c.at))
		x.Must(f.Close(x.T))
		x.Must(x.FS.Sync(x.T))
		x.FS.DropCaches(x.T)
		if b := x.ReadFile(c.name); !bytes.Equal(b, c.want) {
			t.Errorf("%s has %d bytes, want %d%s", c.name, len(b), len(c.want), fstest.DiffAt(b, c.want))
		}
		st, err := x.FS.Stat(x.T, c.name)
		x.Must(err)
		if blocks := st.Nbytes >= 4096; blocks != c.blocks {
			t.Errorf("%s has %d bytes allocated, in blocks: %v want %v", c.name, st.Nbytes, blocks, c.blocks)
		}
	}
	x.Must(src.Close(x.T))
}

// A NOCOW file knows that it may overwrite its extents. After a clone it may not: the clone keeps
// the old bytes, and both files the ones that are written to them later.
func TestReflinkNocow(t *testing.T) {
	x := fstest.New(t)
	write := func(f *fs.File, b byte, off int64) {
		x.WriteAt(f, bytes.Repeat([]byte{b}, 16<<10), off)
		x.Must(f.Fsync(x.T))
	}
	src, dst := x.Create("/src"), x.Create("/dst")
	for _, f := range []*fs.File{src, dst} {
		x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
	}
	write(src, 1, 0)
	write(src, 2, 16<<10)
	write(src, 3, 0) // in place
	x.Must(dst.Reflink(x.T, src, 0, 0, 0))
	write(src, 4, 0)
	write(dst, 5, 16<<10)
	write(dst, 6, 16<<10) // in place again: the copy is the clone's alone
	x.FS.DropCaches(x.T)
	for _, c := range []struct {
		path string
		want [2]byte
	}{{"/src", [2]byte{4, 2}}, {"/dst", [2]byte{3, 6}}} {
		b := x.ReadFile(c.path)
		want := append(bytes.Repeat(c.want[:1], 16<<10), bytes.Repeat(c.want[1:], 16<<10)...)
		if !bytes.Equal(b, want) {
			t.Errorf("%s has %d bytes%s", c.path, len(b), fstest.DiffAt(b, want))
		}
	}
	x.Must(src.Close(x.T))
	x.Must(dst.Close(x.T))
}

// A write in place to a full file system has no data space. When another part of the extent that it
// goes to is cloned before it is written back, it must go in place all the same: afterwards the
// whole extent counts as shared, and there is no room for a copy.
func TestReflinkNocowFull(t *testing.T) {
	for name, begin := range map[string]func(x *fstest.Fixture, f *fs.File, n int){
		"nocow": func(x *fstest.Fixture, f *fs.File, n int) {
			x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
			x.WriteAt(f, make([]byte, n), 0)
		},
		"prealloc": func(x *fstest.Fixture, f *fs.File, n int) { x.Must(f.Fallocate(x.T, 0, 0, int64(n))) },
	} {
		t.Run(name, func(t *testing.T) {
			x := fstest.New(t, fstest.Size(64<<20))
			src, dst, fill := x.Create("/src"), x.Create("/dst"), x.Create("/fill")
			want := make([]byte, 1<<20)
			begin(x, src, len(want))
			x.Must(dst.SetFlags(x.T, src.Flags()&format.InodeNoDataCow))
			x.Must(x.FS.Sync(x.T))
			for n := 1 << 20; n >= format.SectorSize; {
				if _, err := fill.WriteAt(x.T, bytes.Repeat([]byte("fill"), n/4), fill.Size(x.T)); errors.Is(err, errno.ENOSPC) {
					n /= 2
				} else {
					x.Must(err)
				}
			}
			x.Must(fill.Fsync(x.T))
			const off = 512 << 10
			x.WriteAt(src, bytes.Repeat([]byte("kept"), 16<<10), off)
			copy(want[off:], bytes.Repeat([]byte("kept"), 16<<10))
			x.Must(dst.Reflink(x.T, src, 0, 64<<10, 0))
			if err := src.Fsync(x.T); err != nil {
				t.Error(err)
			}
			x.FS.DropCaches(x.T)
			if have := x.ReadFile("/src"); !bytes.Equal(have, want) {
				t.Errorf("the source has lost what was written%s", fstest.DiffAt(have, want))
			}
			for _, f := range []*fs.File{src, dst, fill} {
				x.Must(f.Close(x.T))
			}
		})
	}
}

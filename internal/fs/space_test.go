package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// TestFull fills the image until ENOSPC and holds that nothing that a write accepted is lost, that
// the image is clean, and that a removed file makes room again.
func TestFull(t *testing.T) {
	need.LongRaced(t)
	for _, name := range []string{"locked", "range-lock", "modern"} {
		t.Run(name, func(t *testing.T) {
			x := fstest.New(t, fstest.Policy(name), fstest.Size(64<<20))
			p := make([]byte, 100<<10)
			var names []string
			var err error
			for i := 0; err == nil && i < 5000; i++ {
				var f *fs.File
				path := fmt.Sprintf("/f%d", i)
				if f, err = x.FS.Create(x.T, path, 0o644); err != nil {
					break
				}
				names = append(names, path)
				fstest.Stamp(p[:len(p)&^7], uint64(i+1))
				_, err = f.WriteAt(x.T, p, 0)
				x.Must(f.Close(x.T))
			}
			if !errors.Is(err, errno.ENOSPC) {
				t.Fatalf("filling: have %v want ENOSPC", err)
			}
			if len(names) < 100 {
				t.Errorf("only %d files of 100 KiB fit 64 MiB", len(names))
			}
			x.Must(x.FS.Sync(x.T))
			verify := func(skip int) {
				for i, path := range names[:len(names)-1] {
					if i == skip {
						continue
					}
					fstest.Stamp(p[:len(p)&^7], uint64(i+1))
					if have := x.ReadFile(path); !bytes.Equal(have, p) {
						t.Fatalf("%s has %d bytes, want %d%s", path, len(have), len(p), fstest.DiffAt(have, p))
					}
				}
			}
			verify(-1)
			x.Reopen()
			verify(-1)
			x.Must(x.FS.Unlink(x.T, names[3]))
			x.Must(x.FS.Sync(x.T))
			f := x.Create("/again")
			if _, err := f.WriteAt(x.T, p[:50<<10], 0); err != nil {
				t.Errorf("write after a file was removed: %v", err)
			}
			x.Must(f.Close(x.T))
			verify(3)
		})
	}
}

// TestFullNocow: a NOCOW file can be overwritten on an image without any free data space
// (labs/reference 1.1 c).
func TestFullNocow(t *testing.T) {
	need.LongRaced(t)
	x := fstest.New(t, fstest.Size(64<<20))
	f := x.Create("/nocow")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
	x.WriteAt(f, make([]byte, 1<<20), 0)
	x.Must(x.FS.Sync(x.T))
	fill := x.Create("/fill")
	p := make([]byte, 1<<20)
	var err error
	for off := int64(0); err == nil; off += int64(len(p)) {
		_, err = fill.WriteAt(x.T, p, off)
	}
	for off := fill.Size(x.T); ; off += 4096 {
		if _, err = fill.WriteAt(x.T, p[:4096], off); err != nil {
			break
		}
	}
	if !errors.Is(err, errno.ENOSPC) {
		t.Fatalf("filling: have %v want ENOSPC", err)
	}
	want := bytes.Repeat([]byte("in place"), 1<<17)
	x.WriteAt(f, want, 0)
	x.Must(f.Fsync(x.T))
	x.Must(fill.Close(x.T))
	x.Must(f.Close(x.T))
	x.Reopen()
	if !bytes.Equal(x.ReadFile("/nocow"), want) {
		t.Error("content of the overwritten file differs")
	}
}

// TestFullConcurrent: tasks race for the last bytes; each write is all there or failed with ENOSPC.
func TestFullConcurrent(t *testing.T) {
	x := fstest.New(t, fstest.Size(64<<20))
	var files [4]*fs.File
	var sizes [4]int64
	for i := range files {
		files[i] = x.Create(fmt.Sprintf("/f%d", i))
	}
	fstest.Parallel(x.T, 4, func(t *sched.Task, i int) {
		p := make([]byte, 64<<10)
		fstest.Stamp(p, uint64(i+1))
		for sizes[i] < 96<<20 {
			n, err := files[i].WriteAt(t, p, sizes[i])
			sizes[i] += int64(n)
			if err != nil {
				if !errors.Is(err, errno.ENOSPC) {
					x.Error(err)
				}
				return
			}
		}
	})
	for i, f := range files {
		x.Must(f.Close(x.T))
		p := make([]byte, sizes[i])
		fstest.Stamp(p[:len(p)&^7], uint64(i+1))
		if have := x.ReadFile(fmt.Sprintf("/f%d", i)); !bytes.Equal(have, p) {
			t.Errorf("f%d has %d bytes, want %d%s", i, len(have), len(p), fstest.DiffAt(have, p))
		}
	}
}

// full fills /fill until not even a block fits.
func full(x *fstest.Fixture) *fs.File {
	x.Helper()
	f := x.Create("/fill")
	p := make([]byte, 1<<20)
	for n := len(p); n >= 4096; {
		if _, err := f.WriteAt(x.T, p[:n], f.Size(x.T)); err == nil {
			continue
		} else if !errors.Is(err, errno.ENOSPC) {
			x.Fatalf("filling: have %v want ENOSPC", err)
		}
		n /= 2
	}
	x.Must(x.FS.Sync(x.T))
	return f
}

// TestFullNocowHole: what can be overwritten in place are extents that the file has, written or
// preallocated, not its holes. Without any free data space a write ends where the first hole
// begins, with a short count or ENOSPC. If a hole counts as overwritable, the write is accepted,
// and writeback, which has to allocate after all, drops it: the caller hears of it at fsync, if at
// all.
func TestFullNocowHole(t *testing.T) {
	need.LongRaced(t)
	const blk = 64 << 10
	x := fstest.New(t, fstest.Size(64<<20))
	f := x.Create("/nocow")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
	want := make([]byte, 5*blk) // data, hole, data, preallocated, hole
	fill := func(mark byte, from, to int) {
		p := bytes.Repeat([]byte{mark}, to-from)
		x.WriteAt(f, p, int64(from))
		copy(want[from:], p)
	}
	x.Must(f.Truncate(x.T, 5*blk))
	fill(1, 0, blk)
	fill(2, 2*blk, 3*blk)
	x.Must(f.Fallocate(x.T, 0, 3*blk, blk))
	x.Must(x.FS.Sync(x.T))
	free := full(x)

	for _, c := range []struct{ off, n, got int }{
		{blk, 4096, 0},                           // into a hole
		{2*blk - 4096, 8192, 0},                  // from a hole into an extent
		{0, 2 * blk, blk},                        // from an extent into a hole
		{blk - 100, 200, 100},                    // the same, inside a block
		{2 * blk, 3 * blk, 2 * blk},              // data, preallocated, hole
		{3*blk + 4096, blk, blk - 4096},          // preallocated, hole
		{4*blk + 10, 100, 0}, {5 * blk, 4096, 0}, // the last hole, and beyond EOF
	} {
		p := bytes.Repeat([]byte{byte(0x40 + c.off>>14)}, c.n)
		n, err := f.WriteAt(x.T, p, int64(c.off))
		if n != c.got || !errors.Is(err, errno.ENOSPC) {
			t.Errorf("write [%d, %d): have %d bytes, %v want %d, ENOSPC", c.off, c.off+c.n, n, err, c.got)
		}
		copy(want[c.off:], p[:n])
		if err := f.Fsync(x.T); err != nil {
			t.Errorf("fsync after write [%d, %d): %v", c.off, c.off+c.n, err)
		}
	}
	x.Must(free.Close(x.T))
	x.Must(f.Close(x.T))
	x.Reopen()
	if have := x.ReadFile("/nocow"); !bytes.Equal(have, want) {
		t.Errorf("the file has %d bytes, want %d%s", len(have), len(want), fstest.DiffAt(have, want))
	}
}

// TestFullMetadata: a write that is promised data space and no metadata gives the data space back,
// and so do the steps around it that make a block dirty. The data space is there, the metadata is
// not: data chunks take the whole device first. At the end nothing may be promised; the fixture's
// quiescence check asks the same of every inode.
func TestFullMetadata(t *testing.T) {
	need.LongRaced(t)
	x := fstest.New(t, fstest.Size(96<<20), fstest.MkfsOptions(func(o *mkfs.Options) { o.MetadataProfile = "single" }))
	fill := full(x)
	x.Must(fill.Truncate(x.T, 0))
	x.Must(x.FS.Sync(x.T))
	small := bytes.Repeat([]byte{7}, 2000) // an inline extent: metadata only
	var files []*fs.File
	for i := range 4000 {
		files = append(files, x.Create(fmt.Sprintf("/f%d", i)))
	}
	wrote := 0
	for ; wrote < len(files); wrote++ {
		if _, err := files[wrote].WriteAt(x.T, small, 0); errors.Is(err, errno.ENOSPC) {
			break
		} else {
			x.Must(err)
		}
	}
	if wrote == len(files) {
		t.Fatalf("%d inline files fit", wrote)
	}
	// From here on no metadata is left for an insert, whatever is flushed.
	failed := map[string]int{}
	for i := range 100 {
		n := len(files)
		for _, op := range []struct {
			name string
			err  error
		}{
			{"write", second(files[n-1-i].WriteAt(x.T, make([]byte, 64<<10), 0))},
			{"fallocate", files[n-200-i].Fallocate(x.T, 0, 0, 64<<10)},
			{"append", second(files[i].WriteAt(x.T, small, 2000))},
			{"grow", files[i+100].Truncate(x.T, 3000)},
		} {
			if errors.Is(op.err, errno.ENOSPC) {
				failed[op.name]++
			} else {
				x.Must(op.err)
			}
		}
		if u := x.FS.Statfs(x.T); failed["write"] > 0 && u.Free < 40<<20 {
			t.Fatalf("%d bytes of data space are free, want more than %d: promises were kept", u.Free, 40<<20)
		}
	}
	t.Logf("%d files written; ENOSPC: %v", wrote, failed)
	for _, name := range []string{"write", "fallocate", "append", "grow"} {
		if failed[name] == 0 {
			t.Errorf("no %s failed: the metadata was not full", name)
		}
	}
	for _, f := range append(files, fill) {
		x.Must(f.Close(x.T))
	}
	x.Must(x.FS.Sync(x.T))
	if u := x.FS.Statfs(x.T); u.DataMayUse != 0 {
		t.Errorf("at rest %d bytes of data are promised, want 0", u.DataMayUse)
	}
}

func second(_ int, err error) error { return err }

package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/fs/fstest"
	"btrlab/internal/sched"
)

// TestFull fills the image until ENOSPC and holds that nothing that a write accepted is lost, that the image is clean, and
// that a removed file makes room again.
func TestFull(t *testing.T) {
	for _, name := range []string{"locked", "range-lock", "modern"} {
		t.Run(name, func(t *testing.T) {
			x := fstest.New(t, fstest.Policy(name), fstest.Size(128<<20))
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
				stamp(p[:len(p)&^7], uint64(i+1))
				_, err = f.WriteAt(x.T, p, 0)
				x.Must(f.Close(x.T))
			}
			if !errors.Is(err, errno.ENOSPC) {
				t.Fatalf("filling: have %v want ENOSPC", err)
			}
			if len(names) < 300 {
				t.Errorf("only %d files of 100 KiB fit 128 MiB", len(names))
			}
			x.Must(x.FS.Sync(x.T))
			verify := func(skip int) {
				for i, path := range names[:len(names)-1] {
					if i == skip {
						continue
					}
					stamp(p[:len(p)&^7], uint64(i+1))
					if have := x.ReadFile(path); !bytes.Equal(have, p) {
						t.Fatalf("%s has %d bytes, want %d%s", path, len(have), len(p), diffAt(have, p))
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

// TestFullNocow: a NOCOW file can be overwritten on an image without any free data space (kernel-semantics 1.1 c).
func TestFullNocow(t *testing.T) {
	x := fstest.New(t, fstest.Size(128<<20))
	f := x.Create("/nocow")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow))
	x.WriteAt(f, make([]byte, 1<<20), 0)
	x.Must(f.Fsync(x.T))
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
	x := fstest.New(t, fstest.Size(96<<20))
	var files [4]*fs.File
	var sizes [4]int64
	for i := range files {
		files[i] = x.Create(fmt.Sprintf("/f%d", i))
	}
	parallel(x.T, 4, func(t *sched.Task, i int) {
		p := make([]byte, 64<<10)
		stamp(p, uint64(i+1))
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
		stamp(p[:len(p)&^7], uint64(i+1))
		if have := x.ReadFile(fmt.Sprintf("/f%d", i)); !bytes.Equal(have, p) {
			t.Errorf("f%d has %d bytes, want %d%s", i, len(have), len(p), diffAt(have, p))
		}
	}
}

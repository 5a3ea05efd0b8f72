package fs_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// scattered is a file system with holes between its chunks, which lie up to the end of the device,
// and what is in its file.
func scattered(x *fstest.Fixture, passes int) []byte {
	want := make([]byte, 20<<20)
	fstest.Random(rand.New(rand.NewPCG(1, 1)), want)
	f := x.Create("/f")
	x.WriteAt(f, want, 0)
	x.Must(f.Close(x.T))
	x.Must(x.FS.Snapshot(x.T, "/", "/snap", true))
	x.Must(x.FS.Sync(x.T))
	for range passes {
		for _, c := range x.FS.Chunks() {
			for i := range c.Chunk.Stripes {
				x.Must(x.FS.Scatter(x.T, c.Logical, i))
			}
		}
	}
	return want
}

// A file system whose chunks lie all over the device, one on the place of a superblock copy, is
// made as small as it can be, and everything is there; then larger, and it takes more.
func TestResize(t *testing.T) {
	fstest.OneTask(t)
	for _, profile := range []string{"dup", "single"} {
		x := fstest.New(t, fstest.Size(700<<20), fstest.MkfsOptions(func(o *mkfs.Options) { o.MetadataProfile, o.Size = profile, 400<<20 }))
		size, moved, err := x.FS.Resize(x.T, 1, 700<<20)
		if err != nil || size != 700<<20 || moved != 0 {
			t.Fatalf("grown to %d, %d moved, %v", size, moved, err)
		}
		want := scattered(x, 2)
		size, moved, err = x.FS.Resize(x.T, 1, 0)
		if err != nil || moved == 0 || size > 500<<20 {
			t.Fatalf("shrunk to %d, %d moved, %v", size, moved, err)
		}
		for _, c := range x.FS.Chunks() {
			for _, s := range c.Chunk.Stripes {
				if s.Offset+c.Chunk.StripeBytes() > size {
					t.Errorf("a stripe of chunk %d ends at %d, after %d", c.Logical, s.Offset+c.Chunk.StripeBytes(), size)
				}
			}
		}
		if sb := x.FS.Super(x.T); sb.TotalBytes != size || sb.DevItem.TotalBytes != size {
			t.Errorf("the superblock says %d and %d, want %d", sb.TotalBytes, sb.DevItem.TotalBytes, size)
		}
		x.Reopen()
		for _, path := range []string{"/f", "/snap/f"} {
			if have := x.ReadFile(path); !bytes.Equal(have, want) {
				t.Errorf("%s: %s", path, fstest.DiffAt(have, want))
			}
		}
		if _, _, err := x.FS.Resize(x.T, 1, size-1<<20); !errors.Is(err, errno.EINVAL) && !errors.Is(err, errno.ENOSPC) {
			t.Errorf("smaller than it can be: %v", err)
		}
		if _, _, err := x.FS.Resize(x.T, 1, 700<<20); err != nil {
			t.Error(err)
		}
		x.WriteAt(x.Create("/more"), make([]byte, 50<<20), 0)
	}
}

// The power fails after each write of a resize: the file system is there, with all that was in it.
func TestResizeCrash(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(400<<20))
	want := scattered(x, 1)
	x.Close()
	mem := x.Dev.(*blockdev.Memory)
	log := dm.NewLogWrites(mem, mem.Snapshot())
	f, err := fs.Open(x.T, []blockdev.Device{log}, fs.Options{})
	fstest.NoError(err)
	if _, moved, err := f.Resize(x.T, 1, 0); err != nil || moved == 0 {
		t.Fatal(moved, err)
	}
	fstest.NoError(f.Close(x.T))
	n := 0
	fstest.NoError(log.Images(x.T, dm.ImageOptions{SectorBytes: 4096, Subsets: 2, Seed: 1}, func(tk *sched.Task, m dm.Image) error {
		n++
		if found := fstest.Findings(tk, m.Dev); found != "" {
			t.Errorf("%s: %s", m.Name, found)
			return nil
		}
		f, err := fs.Open(tk, []blockdev.Device{m.Dev}, fs.Options{ReadOnly: true})
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			return nil
		}
		file := fstest.Must(f.OpenFile(tk, "/f", fs.O_RDONLY, 0))
		have := make([]byte, len(want))
		if _, err := file.ReadAt(tk, have, 0); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s: %v, %s", m.Name, err, fstest.DiffAt(have, want))
		}
		fstest.NoError(file.Close(tk))
		return f.Close(tk)
	}))
	if n < 20 {
		t.Errorf("%d crashes", n)
	}
}

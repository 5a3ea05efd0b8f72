package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
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
	need.Long(t)
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
	need.Long(t)
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

// sieve fills half of the device with files of many sizes and removes every other one.
func sieve(x *fstest.Fixture, n int) map[string][]byte {
	want := map[string][]byte{}
	rng := rand.New(rand.NewPCG(9, uint64(n)))
	for i := range n {
		name := fmt.Sprintf("/f%d", i)
		b := make([]byte, 1+rng.IntN(5<<20))
		fstest.Random(rng, b)
		f := x.Create(name)
		x.WriteAt(f, b, 0)
		x.Must(f.Close(x.T))
		want[name] = b
	}
	x.Must(x.FS.Sync(x.T))
	for i := range n {
		if name := fmt.Sprintf("/f%d", i); i%3 != 0 {
			x.Must(x.FS.Unlink(x.T, name))
			delete(want, name)
		}
	}
	x.Must(x.FS.Sync(x.T))
	return want
}

// Chunks of which parts are free are cut, and what is left is not much more than what is used, in
// every profile that copies whole stripes, with the free space as extents and without a tree of it;
// the file system goes on, and grows again.
func TestResizeCuts(t *testing.T) {
	need.Long(t)
	fstest.OneTask(t)
	for _, c := range []struct {
		name string
		opts []fstest.Option
		most uint64
	}{
		{"plain", nil, 100 << 20},
		{"block-group-tree", []fstest.Option{fstest.MkfsOptions(func(o *mkfs.Options) { o.BlockGroupTree = true })}, 100 << 20},
		{"mixed", []fstest.Option{fstest.MkfsOptions(func(o *mkfs.Options) { o.Mixed, o.NodeSize = true, 4096 })}, 70 << 20},
		{"dup", []fstest.Option{fstest.MkfsOptions(func(o *mkfs.Options) { o.DataProfile = "dup" })}, 140 << 20},
	} {
		x := fstest.New(t, append(c.opts, fstest.Size(768<<20))...)
		want := sieve(x, 45)
		var used uint64
		for _, b := range want {
			used += uint64(len(b))
		}
		size, _, err := x.FS.Resize(x.T, 1, 0)
		if err != nil || size > c.most || size < used {
			t.Errorf("%s: %d bytes of files, shrunk to %d, want at most %d; %v", c.name, used, size, c.most, err)
		}
		x.Reopen()
		for name, b := range want {
			if have := x.ReadFile(name); !bytes.Equal(have, b) {
				t.Errorf("%s: %s: %s", c.name, name, fstest.DiffAt(have, b))
			}
		}
		x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
		if _, _, err := x.FS.Resize(x.T, 1, 768<<20); err != nil {
			t.Error(err)
		}
		f := x.Create("/more")
		x.WriteAt(f, make([]byte, 60<<20), 0)
		x.Must(f.Close(x.T))
		x.Close()
	}
}

// A size that there are no holes for is reached by cutting; an empty file system keeps a chunk of
// each profile.
func TestResizeCutsIfNeeded(t *testing.T) {
	fstest.OneTask(t)
	x := fstest.New(t, fstest.Size(768<<20), fstest.MkfsOptions(func(o *mkfs.Options) { o.DataProfile = "dup" }))
	sieve(x, 60)
	before := len(x.FS.Chunks())
	if _, moved, err := x.FS.Resize(x.T, 1, 300<<20); err != nil || moved == 0 || len(x.FS.Chunks()) == before {
		t.Errorf("%d moved, %d chunks of %d, %v", moved, len(x.FS.Chunks()), before, err)
	}
	for i := range 60 {
		if i%3 == 0 {
			x.Must(x.FS.Unlink(x.T, fmt.Sprintf("/f%d", i)))
		}
	}
	if _, _, err := x.FS.Resize(x.T, 1, 0); err != nil {
		t.Error(err)
	}
	x.Reopen()
	profiles := map[uint64]bool{}
	for _, c := range x.FS.Chunks() {
		profiles[c.Chunk.Type] = true
	}
	if len(profiles) != 3 || !profiles[format.BlockGroupData|format.BlockGroupDup] {
		t.Errorf("profiles %v", profiles)
	}
}

// A file system that shrinks takes its copies of the superblock along: one beyond the new end would
// show a rescue, years later, a file system that is no more. The copies before the end stay, and
// say the new size; one in the part that is gained is written.
func TestResizeSupers(t *testing.T) {
	const far, small, large = 2, 200 << 30, 300 << 30 // the copy at 256 GiB
	x := fstest.New(t, fstest.Size(large))
	valid := func(mirror int) bool {
		t.Helper()
		b := make([]byte, format.SuperSize)
		x.Must(blockdev.Read(x.T, x.Dev, b, int64(format.SuperMirror(mirror))))
		var sb format.Super
		sb.Decode(b)
		if zero := len(bytes.Trim(b, "\x00")) == 0; zero || format.SuperMagic(b) != format.Magic {
			if !zero {
				t.Errorf("copy %d is neither zeros nor a superblock", mirror)
			}
			return false
		}
		if now := x.FS.Super(x.T); sb.TotalBytes != now.TotalBytes || sb.Generation != now.Generation {
			t.Errorf("copy %d: %d bytes of transaction %d, want %d of %d", mirror, sb.TotalBytes, sb.Generation, now.TotalBytes, now.Generation)
		}
		return true
	}
	for _, size := range []uint64{large, small, large} {
		if _, _, err := x.FS.Resize(x.T, 1, size); err != nil {
			t.Fatal(err)
		}
		for mirror := range format.SuperMirrorMax {
			if have, want := valid(mirror), mirror < far || size == large; have != want {
				t.Errorf("at %d GiB: copy %d is there %v, want %v", size>>30, mirror, have, want)
			}
		}
	}
}

package fs_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/fs"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// testdata/mkfs-6.19.blocks.gz is an image of mkfs.btrfs 6.19 with its defaults, among them
// block-group-tree:
//
//	mkdir -p tree/d; echo hello > tree/small; yes 0123456789abcdef | head -c 20000 > tree/d/large
//	truncate -s 300M i; mkfs.btrfs --rootdir tree i

// TestMkfsDefaults reads what the newest mkfs.btrfs makes by default, and writes into it until new
// block groups are needed; the fixture checks the image.
func TestMkfsDefaults(t *testing.T) {
	need.LongRaced(t)
	for _, readOnly := range []bool{true, false} {
		x := fstest.New(t, fstest.Image("testdata/mkfs-6.19.blocks.gz"), fstest.FSOptions(func(o *fs.Options) { o.ReadOnly = readOnly }))
		if have := x.ReadFile("/small"); string(have) != "hello\n" {
			t.Errorf("read-only %v: /small has %q", readOnly, have)
		}
		if have := x.ReadFile("/d/large"); len(have) != 20000 || !bytes.HasPrefix(have, []byte("0123456789abcdef\n0")) {
			t.Errorf("read-only %v: /d/large has %d bytes", readOnly, len(have))
		}
		if !readOnly {
			growGroups(x)
		}
	}
}

// TestBlockGroupTree does the same with an image of ours.
func TestBlockGroupTree(t *testing.T) {
	need.LongRaced(t)
	x := fstest.New(t, fstest.Size(300<<20), fstest.MkfsOptions(func(o *mkfs.Options) { o.BlockGroupTree = true }))
	growGroups(x)
}

// growGroups writes more than the first block group of data holds, removes half of it, and finds
// the rest again after another mount.
func growGroups(x *fstest.Fixture) {
	x.Helper()
	r := rand.New(rand.NewPCG(6, 19))
	p := make([]byte, 4<<20)
	sums := map[string][]byte{}
	for i := range 20 {
		fstest.Random(r, p)
		name := fmt.Sprintf("/f%d", i)
		f := x.Create(name)
		x.WriteAt(f, p, 0)
		x.Must(f.Fsync(x.T))
		f.Close(x.T)
		sums[name] = bytes.Clone(p[:64])
		if i%4 == 3 {
			x.Must(x.FS.Sync(x.T))
		}
	}
	for i := 0; i < 20; i += 2 {
		name := fmt.Sprintf("/f%d", i)
		x.Must(x.FS.Unlink(x.T, name))
		delete(sums, name)
	}
	x.Must(x.FS.Sync(x.T))
	x.Reopen()
	for name, want := range sums {
		if have := x.ReadFile(name); len(have) != len(p) || !bytes.Equal(have[:64], want) {
			x.Errorf("%s has %d bytes, want %d of another content", name, len(have), len(p))
		}
	}
}

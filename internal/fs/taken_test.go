package fs_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// TestAnotherWriter: another program writes its superblock while we have the image open, as a
// virtual machine does, or a loop device of another host. Our next commit would build on blocks
// that may be its own by now: it is refused, and not a byte changes, also when a model lies over
// the file. The superblock of a log is refused as well, but the blocks of the log are there by
// then. Our own commits before it are no reason.
func TestAnotherWriter(t *testing.T) {
	t.Run("sync", func(t *testing.T) {
		anotherWriter(t, func(tk *sched.Task, x *fs.FS, _ *fs.File) error { return x.Sync(tk) }, func(b []byte) []byte { return b })
	})
	t.Run("fsync", func(t *testing.T) {
		anotherWriter(t, func(tk *sched.Task, _ *fs.FS, f *fs.File) error { return f.Fsync(tk) },
			func(b []byte) []byte { return b[:format.SuperOffset+format.SuperSize] })
	})
}

// anotherWriter tests that op is refused; part is the bytes of the image that it must leave alone.
func anotherWriter(t *testing.T, op func(tk *sched.Task, x *fs.FS, f *fs.File) error, part func(b []byte) []byte) {
	tk := sched.NewTask(t.Name())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "img")
	dev, err := blockdev.Create(path, 64<<20)
	must(err)
	must(mkfs.Make(tk, dev, mkfs.Options{}))
	must(dev.Close())
	dev, err = blockdev.Open(path, 0)
	must(err)
	x, err := fs.Open(tk, []blockdev.Device{dm.NewFlakey(dev)}, fs.Options{Policy: policy.MustParse("fsync-5.18")})
	must(err)
	for _, name := range []string{"/a", "/b"} {
		must(x.Mkdir(tk, name, 0o755))
		must(x.Sync(tk))
	}
	f, err := x.Create(tk, "/f", 0o644)
	must(err)
	must(f.Fsync(tk)) // a log of ours

	other, err := os.OpenFile(path, os.O_RDWR, 0)
	must(err)
	b := make([]byte, format.SuperSize)
	_, err = other.ReadAt(b, format.SuperOffset)
	must(err)
	var sb format.Super
	sb.Decode(b)
	have := sb.Generation
	sb.Generation++
	sb.Encode(b)
	format.SetBytenr(b, format.SuperOffset)
	_, err = other.WriteAt(b, format.SuperOffset)
	must(err)
	must(other.Close())
	before, err := os.ReadFile(path)
	must(err)
	_, err = f.WriteAt(tk, make([]byte, 100), 0)
	must(err)

	if err := op(tk, x, f); !errors.Is(err, blockdev.ErrInUse) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("after generation %d became %d: have %v want %v", have, sb.Generation, err, blockdev.ErrInUse)
	}
	if err := x.Mkdir(tk, "/d", 0o755); !errors.Is(err, errno.EROFS) {
		t.Errorf("mkdir after that: have %v want %v", err, errno.EROFS)
	}
	if err := f.Close(tk); err != nil {
		t.Error(err)
	}
	if err := x.Close(tk); err == nil {
		t.Error("close after that: no error")
	}
	must(dev.Close())
	after, err := os.ReadFile(path)
	must(err)
	if !bytes.Equal(part(before), part(after)) {
		t.Error("the refused commit has changed the image")
	}
}

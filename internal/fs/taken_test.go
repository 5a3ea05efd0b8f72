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
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// TestAnotherWriter: another program writes its superblock while we have the image open, as a virtual machine does, or a loop device
// of another host. Our next commit would build on blocks that may be its own by now: it is refused, and not a byte changes, also
// when a model lies over the file. Our own commits before it are no reason.
func TestAnotherWriter(t *testing.T) {
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
	x, err := fs.Open(tk, dm.NewFlakey(dev), fs.Options{})
	must(err)
	for _, name := range []string{"/a", "/b"} {
		must(x.Mkdir(tk, name, 0o755))
		must(x.Sync(tk))
	}
	must(x.Mkdir(tk, "/c", 0o755))

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

	if err := x.Sync(tk); !errors.Is(err, blockdev.ErrInUse) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("sync after generation %d became %d: have %v want %v", have, sb.Generation, err, blockdev.ErrInUse)
	}
	if err := x.Mkdir(tk, "/d", 0o755); !errors.Is(err, errno.EROFS) {
		t.Errorf("mkdir after that: have %v want %v", err, errno.EROFS)
	}
	if err := x.Close(tk); err == nil {
		t.Error("close after that: no error")
	}
	must(dev.Close())
	after, err := os.ReadFile(path)
	must(err)
	if !bytes.Equal(before, after) {
		t.Error("the refused commit has changed the image")
	}
}

package transfer

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"btrlab/internal/testing/fstest"
)

// TestOmits: put and mkfs leave out the same of a tree of the host, and name it: a pipe if nothing
// special is kept, and what is excluded without a word.
func TestOmits(t *testing.T) {
	src := t.TempDir()
	for _, name := range []string{"kept", "gone"} {
		must(t, os.WriteFile(filepath.Join(src, name), []byte(name), 0o644))
	}
	must(t, syscall.Mkfifo(filepath.Join(src, "pipe"), 0o644))
	keep := All
	keep.Special = false
	exclude := Exclude{"gone"}

	x := fstest.New(t)
	put := &watch{t: t}
	in := NewIn(x.T, x.FS, put)
	in.Keep, in.Exclude = keep, exclude
	must(t, in.Fill(src, "/"))
	list, err := x.FS.ReadDir(x.T, "/")
	must(t, err)
	if len(list) != 1 || list[0].Name != "kept" {
		t.Errorf("put: have %v, want kept alone", list)
	}

	scanned := &watch{t: t}
	s := NewScan(scanned)
	s.Keep, s.Exclude = keep, exclude
	root, err := s.Tree(src)
	must(t, err)
	if root.Names() != 1 || root.Child("kept") == nil {
		t.Errorf("scan: have %d entries, want kept alone", root.Names())
	}
	for _, w := range []*watch{put, scanned} {
		if len(w.left) != 1 || w.left[0].Name != filepath.Join(src, "pipe") || w.left[0].Err != nil {
			t.Errorf("left out: have %v, want the pipe, as what is special", w.left)
		}
	}
}

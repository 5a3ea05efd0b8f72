package transfer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/rescue"
)

// TestLandingFollowsNoLink: links that lie in the directory lead nowhere. A file takes the place of
// one, a directory is left out.
func TestLandingFollowsNoLink(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	for _, name := range []string{"file", "dir"} {
		if err := os.Symlink(filepath.Join(out, name), filepath.Join(dir, name)); err != nil {
			t.Skip("no symbolic links here")
		}
	}
	if err := os.Mkdir(filepath.Join(out, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := NewLanding(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.Keep = Keep{}
	when := time.Unix(1e9, 5000)
	file := &rescue.Object{Path: "file", Attrs: image.Attrs{Mode: format.S_IFREG | 0o640, Mtime: when, Atime: when}, Size: 9000}
	file.Data = func(put func(off uint64, p []byte) error) error { return put(5000, []byte("text")) }
	if l.Has(file) {
		t.Error("a link passes for the file")
	}
	if err := l.Put(file); err != nil {
		t.Fatal(err)
	}
	if !l.Has(file) {
		t.Error("the file is not there")
	}
	if st, err := os.Lstat(filepath.Join(dir, "file")); err != nil || st.Size() != 9000 || !st.ModTime().Equal(when) || st.Mode() != 0o640 {
		t.Errorf("have %v, %v", st, err)
	}
	if p, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(p[4998:5006]) != "\x00\x00text\x00\x00" {
		t.Errorf("have %q, %v", p[4990:5010], err)
	}
	if _, err := os.Stat(filepath.Join(out, "file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file outside: %v", err)
	}
	var refused *rescue.RefusedError
	if err := l.Enter(&rescue.Object{Path: "dir", Attrs: image.Attrs{Mode: format.S_IFDIR | 0o755}}); !errors.As(err, &refused) {
		t.Errorf("a link in the place of a directory: %v", err)
	}
	if err := l.Put(&rescue.Object{Path: "none/f", Attrs: image.Attrs{Mode: format.S_IFREG}}); !errors.As(err, &refused) {
		t.Errorf("a file in a directory that is not there: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

package app

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestReplaceFile: an error in the middle leaves the old file and nothing else, a new one can be
// read by others as the umask has it, and what is no regular file is not replaced.
func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "page.html")
	text := func(s string, err error) func(w io.Writer) error {
		return func(w io.Writer) error {
			_, werr := io.WriteString(w, s)
			return errors.Join(werr, err)
		}
	}
	full := errors.New("disk full")
	if err := ReplaceFile(name, text("half", full)); !errors.Is(err, full) {
		t.Errorf("have %v want %v", err, full)
	}
	if l, err := os.ReadDir(dir); err != nil || len(l) != 0 {
		t.Errorf("the error has left %v, %v", l, err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(ReplaceFile(name, text("old", nil)))
	plain := filepath.Join(dir, "plain")
	must(os.WriteFile(plain, nil, 0o644))
	as, err := os.Stat(plain)
	must(err)
	if st, err := os.Stat(name); err != nil || st.Mode() != as.Mode() {
		t.Errorf("mode %v, %v, want %v as of any file", st.Mode(), err, as.Mode())
	}
	if err := ReplaceFile(name, text("half", full)); !errors.Is(err, full) {
		t.Errorf("have %v want %v", err, full)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "old" {
		t.Errorf("have %q, %v, want the old file", b, err)
	}
	must(os.Chmod(name, 0o600))
	must(ReplaceFile(name, text("new", nil)))
	if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want that of the old file", st.Mode(), err)
	}
	r, w, err := os.Pipe()
	must(err)
	defer r.Close()
	link := filepath.Join(dir, "pipe")
	must(os.Symlink("/dev/fd/"+strconv.Itoa(int(w.Fd())), link))
	must(ReplaceFile(link, text("through", nil)))
	w.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "through" {
		t.Errorf("the pipe has %q, %v", b, err)
	}
	if _, err := os.Readlink(link); err != nil {
		t.Errorf("the link has been replaced: %v", err)
	}
}

//go:build unix

package course

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"btrlab/internal/study/sandbox"
)

// TestHanded: a named pipe without a writer kept the grader waiting for ever, and a link to
// /dev/zero killed it for want of memory. Whatever is no regular file, or is too long, ends the
// grading of that submission with one line; and so does a link to a regular file, which may be
// another's.
func TestHanded(t *testing.T) {
	huge := func(t *testing.T, at string) {
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(at, 1<<40); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) func(*testing.T, string) {
		return func(t *testing.T, at string) {
			if err := os.Symlink(to, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	kinds := []struct {
		name, want string
		make       func(t *testing.T, at string)
	}{
		{"pipe", "is a named pipe, want a regular file", func(t *testing.T, at string) {
			if err := syscall.Mkfifo(at, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"device", "is a symbolic link, want a regular file", link("/dev/zero")},
		{"another's", "is a symbolic link, want a regular file", link("/etc/passwd")},
		{"nothing", "is a symbolic link, want a regular file", link("/no/such/file")},
		{"huge", "has more than 1024 KiB, want at most that", huge},
	}
	grade := func(t *testing.T, n int, dir string) *Report {
		r, err := Grade(t.Context(), root(t), lab(t, n), Options{Dir: dir, Student: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, k := range kinds {
		for _, n := range []int{0, 5} {
			dir := t.TempDir()
			l := lab(t, n)
			k.make(t, filepath.Join(dir, l.File))
			r := grade(t, n, dir)
			if want := l.File + ": " + k.want; r.Rows[0].Name != "check" || r.Rows[0].Result != want || r.Score != 0 {
				t.Errorf("lab %d, %s: have %+v want %q", n, k.name, r.Rows[0], want)
			}
			if a := (Autograder{Base: t.TempDir()}); n == 0 {
				if err := os.Rename(dir, filepath.Join(a.Base, "submission")); err != nil {
					t.Fatal(err)
				}
				if at, err := l.find(filepath.Join(a.Base, "submission")); err != nil || filepath.Base(at) != "submission" {
					t.Errorf("%s: found in %s %v", k.name, at, err)
				}
			}
		}
		dir := t.TempDir()
		k.make(t, filepath.Join(dir, "REPORT.md"))
		if r := lab(t, 12).Essay.Row(dir); r.Pass || r.Result != "REPORT.md: "+k.want {
			t.Errorf("%s: %+v", k.name, r)
		}
		k.make(t, filepath.Join(dir, personalFile))
		if _, err := readPersonal(filepath.Join(dir, personalFile), 1); err == nil || err.Error() != personalFile+": "+k.want {
			t.Errorf("%s: %v", k.name, err)
		}
		if lab(t, 5).digest(dir, "ada") == lab(t, 5).digest(t.TempDir(), "ada") {
			t.Errorf("%s: a submission with it has the digest of one without", k.name)
		}
	}
	dir := t.TempDir()
	for i := range sandbox.MaxFiles + 1 {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i%26))+strings.Repeat("x", i)+".go"), []byte("package p"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r := grade(t, 5, dir); !strings.HasSuffix(r.Rows[0].Result, "is one Go file of 65, want at most 64") {
		t.Errorf("%+v", r.Rows[0])
	}
	edited := t.TempDir()
	if err := os.Symlink("me@host.1", filepath.Join(edited, ".#rangelock.go")); err != nil {
		t.Fatal(err)
	}
	if l, err := sandbox.Sources(edited); err != nil || len(l) != 0 {
		t.Errorf("an editor's lock is a file of the submission: %v %v", l, err)
	}
}

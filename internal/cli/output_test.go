package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestOutputFirst: a path that cannot be written is an error before the verb has worked, whatever
// it would have written there at its end. The paths that can be are left as they were: a verb that
// fails for another reason makes no empty file.
func TestOutputFirst(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "no folder", "out")
	for _, args := range []string{
		"compare --out OUT", "reproduce 002 --out OUT", "reproduce 001 --save-calibration OUT", "calibrate --out OUT",
		"bench ../measure/seeds/seed-002.fio --runtime vtime --gantt OUT", "replay truncate-race 11:1 --policy unlocked --out OUT",
		"lab grade 4 --gradescope OUT", "lab grade 12 --report OUT", "lab grade 1 --all . --csv OUT",
	} {
		words := strings.Fields(args)
		words[len(words)-1] = bad
		var out bytes.Buffer
		// without a task nothing can run
		a := &app{in: strings.NewReader(""), out: &out, err: io.Discard, stopped: make(chan struct{})}
		if err := a.run(words); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), bad) || out.Len() > 0 {
			t.Errorf("%s: %v, want %s not to be there\n%s", args, err, bad, out.String())
		}
	}
	fresh := filepath.Join(t.TempDir(), "out.html")
	verb(t, exitUsage, "replay", "truncate-race", "99:1", "--out", fresh)
	if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a verb that failed has left %s: %v", fresh, err)
	}
}

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
	if err := replaceFile(name, text("half", full)); !errors.Is(err, full) {
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
	must(replaceFile(name, text("old", nil)))
	plain := filepath.Join(dir, "plain")
	must(os.WriteFile(plain, nil, 0o644))
	as, err := os.Stat(plain)
	must(err)
	if st, err := os.Stat(name); err != nil || st.Mode() != as.Mode() {
		t.Errorf("mode %v, %v, want %v as of any file", st.Mode(), err, as.Mode())
	}
	if err := replaceFile(name, text("half", full)); !errors.Is(err, full) {
		t.Errorf("have %v want %v", err, full)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "old" {
		t.Errorf("have %q, %v, want the old file", b, err)
	}
	must(os.Chmod(name, 0o600))
	must(replaceFile(name, text("new", nil)))
	if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want that of the old file", st.Mode(), err)
	}
	r, w, err := os.Pipe()
	must(err)
	defer r.Close()
	link := filepath.Join(dir, "pipe")
	must(os.Symlink("/dev/fd/"+strconv.Itoa(int(w.Fd())), link))
	must(replaceFile(link, text("through", nil)))
	w.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "through" {
		t.Errorf("the pipe has %q, %v", b, err)
	}
	if _, err := os.Readlink(link); err != nil {
		t.Errorf("the link has been replaced: %v", err)
	}
}

// TestOutputFull: a verb whose output was cut off says so and fails, however it prints.
func TestOutputFull(t *testing.T) {
	img := filepath.Join(t.TempDir(), "a.img")
	verb(t, 0, "mkfs", "-q", "--size", "64M", img)
	verb(t, 0, "mkdir", img+":/d")
	full := errors.New("disk full")
	for _, args := range [][]string{{"info", img}, {"df", img}, {"ls", "-lR", img}, {"check", img}, {"info", "--json", img}, {"policy", "list"}, {"dump", "super", img},
		{"explore", "truncate-race", "--policy", "modern"}, {"explore", "truncate-race", "--policy", "unlocked"}, {"explore", "--list"}} {
		room := 20
		out := writeFunc(func(p []byte) (int, error) {
			n := min(len(p), room)
			if room -= n; n < len(p) {
				return n, full
			}
			return n, nil
		})
		var errw bytes.Buffer
		if code := Main(args, strings.NewReader(""), out, &errw); code != exitFailed || errw.String() != "btrlab: disk full\n" {
			t.Errorf("%v: exit code %d, %q, want 1 and the reason", args, code, errw.String())
		}
	}
}

type writeFunc func(p []byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

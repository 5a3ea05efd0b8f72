//go:build unix

package transfer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/progs/mkfs"
)

// TestTable: devices with numbers as genext2fs 1.5 makes them, owners and modes of what is there,
// and of all names of a file; what is there keeps its time.
func TestTable(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	must(t, os.MkdirAll(filepath.Join(src, "etc"), 0o755))
	must(t, os.WriteFile(filepath.Join(src, "etc/passwd"), []byte("text"), 0o644))
	must(t, os.Link(filepath.Join(src, "etc/passwd"), filepath.Join(src, "etc/second")))
	must(t, os.Chtimes(filepath.Join(src, "etc/passwd"), when, when))
	s := NewScan(&watch{t: t})
	root, err := s.Tree(src)
	must(t, err)
	root, err = s.Table(strings.NewReader(`# a comment

/dev d 755 0 0 - - - - -
dev/x c 600 1 2 10 10 1 2 4
/dev/y b 640 0 0 10 10 2 1 4
/dev/z c 600 0 0 10 3
/dev/none c 600 0 0 10 3 4 1 4
/dev/log s 666 5 6 - - - - -
/etc/second f 4750 7 8 - - - - -
/etc/empty f 600 0 0 - - - - -
/dev/p p 600 0 0 - - - - 3
/ d 711 9 9
`), time.Unix(1500000000, 0), root)
	must(t, err)
	x := opened(t, s, root, mkfs.Options{})
	want := map[string]string{"/": "40711 9:9 0", "/dev": "40755 0:0 0", "/dev/x1": "20600 1:2 a0000b", "/dev/x2": "20600 1:2 a0000d", "/dev/x3": "20600 1:2 a0000f", "/dev/y2": "60640 0:0 a0000a",
		"/dev/y3": "60640 0:0 a0000b", "/dev/z": "20600 0:0 a00003", "/dev/log": "140666 5:6 0", "/etc/passwd": "104750 7:8 0", "/etc/second": "104750 7:8 0", "/etc/empty": "100600 0:0 0", "/dev/p": "10600 0:0 0"}
	for name, want := range want {
		a, err := x.FS.Lstat(x.T, name)
		must(t, err)
		if have := fmt.Sprintf("%o %d:%d %x", a.Mode, a.UID, a.GID, a.Rdev); have != want {
			t.Errorf("%s: have %s want %s", name, have, want)
		}
		if strings.HasPrefix(name, "/dev") && !a.Mtime.Equal(time.Unix(1500000000, 0)) || name == "/etc/second" && !a.Mtime.Equal(when) {
			t.Errorf("%s has the time %v", name, a.Mtime)
		}
	}
	if have := names(t, x, "/dev"); len(have) != 8 {
		t.Errorf("have %q", have)
	}
	if have := string(x.ReadFile("/etc/second")); have != "text" {
		t.Errorf("the file has %q", have)
	}
	root, err = NewScan(&watch{t: t}).Table(strings.NewReader("/d d 700 1 1\n"), when, nil)
	if err != nil || len(root.Entries) != 1 || root.Entries[0].UID != 1 {
		t.Errorf("a table alone: %+v, %v", root, err)
	}
}

// TestTableBad: what a table cannot mean is an error with its line, before it takes memory.
func TestTableBad(t *testing.T) {
	for line, want := range map[string]string{
		"/x d 755 0": "has 4 words", "/x d 755 0 0 - - - - - -": "has 11 words", "/x r 755 0 0": `type "r", want f, d, c, b, p or s`, "/x l 777 0 0": `type "l"`,
		"/x d 799 0 0": `"799", want a number of base 8`, "/x d 10000 0 0": "12 bits", "/x d 755 -1 0": `"-1", want a number of base 10`, "/x d 755 4294967296 0": "32 bits",
		"/no/x d 755 0 0": "its directory is not there", "/f/x d 755 0 0": "its directory is not there", "/f d 755 0 0": "of another type", "/f c 755 0 0 1 3": "of another type", "/ f 755 0 0": "of another type",
		"/x c 600 0 0 4096 0": "a major number to 4095", "/x c 600 0 0 1 1048575 0 1 2": "a minor to 1048575", "/x c 600 0 0 1 0 1 0 2": "a minor to 1048575", "/x c 600 0 0 1 0 0 1 16385": "more than 16384 devices",
		"/" + strings.Repeat("n", 256) + " d 755 0 0": "at most 255 bytes", strings.Repeat("x", 1<<17): "too long",
	} {
		s := NewScan(&watch{t: t})
		_, err := s.Table(strings.NewReader("/f f 644 0 0\n"+line+"\n"), when, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "line 2: ") && want != "too long" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: have %v want %s", line, err, want)
		}
	}
}

// FuzzTable: whatever a table says, each name has its directory, and no more is made than devices
// may be.
func FuzzTable(f *testing.F) {
	f.Add("/dev d 755 0 0\n/dev/x c 600 1 2 10 10 1 2 4\n/dev/x c 600 1 2 1 1 - - 9\n")
	f.Fuzz(func(t *testing.T, text string) {
		root, err := NewScan(&watch{t: t}).Table(strings.NewReader(text), when, nil)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("two lines: %v", err)
			}
			return
		}
		n := 0
		var walk func(e *mkfs.Entry)
		walk = func(e *mkfs.Entry) {
			if n++; len(e.Entries) > 0 && !e.IsDir() {
				t.Errorf("%s has files below it", e.Path())
			}
			for _, c := range e.Children() {
				walk(c)
			}
		}
		if walk(root); n > devicesMax+strings.Count(text, "\n")+2 {
			t.Errorf("%d files", n)
		}
	})
}

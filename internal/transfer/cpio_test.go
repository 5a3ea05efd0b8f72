//go:build unix

package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/testing/fstest"
)

// cpioEntry is an entry of an archive that a test makes.
type cpioEntry struct {
	name       string
	mode       uint32
	ino, nlink int
	data       string
}

// newc makes an archive, crc with checksums if the magic is of that.
func newc(magic string, entries ...cpioEntry) []byte {
	var b bytes.Buffer
	pad := func() { b.Write(make([]byte, -b.Len()&3)) }
	for i, e := range append(slices.Clone(entries), cpioEntry{name: "TRAILER!!!", nlink: 1}) {
		sum := 0
		for _, c := range []byte(e.data) {
			sum += int(c)
		}
		if magic == "070701" {
			sum = 0
		}
		fmt.Fprintf(&b, "%s%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", magic, e.ino, e.mode, 7, 8+i, e.nlink, 1500000000, len(e.data), 0, 1, 8, 300, len(e.name)+1, sum, e.name)
		pad()
		b.WriteString(e.data)
		pad()
	}
	return b.Bytes()
}

// odc makes an archive in the older format.
func odc(entries ...cpioEntry) []byte {
	var b bytes.Buffer
	for i, e := range append(slices.Clone(entries), cpioEntry{name: "TRAILER!!!", nlink: 1}) {
		fmt.Fprintf(&b, "070707%06o%06o%06o%06o%06o%06o%06o%011o%06o%011o%s\x00%s", 1, e.ino, e.mode, 7, 8+i, e.nlink, 8<<8|44, 1500000000, len(e.name)+1, len(e.data), e.name, e.data)
	}
	return b.Bytes()
}

// TestCpioReader: names of one inode are links to the one that brings the data, which in newc comes
// last; a file of several names without data is empty; archives may follow each other, and an inode
// of one is none of the other.
func TestCpioReader(t *testing.T) {
	list := []cpioEntry{{"d", 0o40755, 1, 2, ""}, {"d/a", 0o100644, 2, 3, ""}, {"b", 0o100644, 2, 3, ""}, {"e1", 0o100600, 3, 2, ""}, {"null", 0o60666, 4, 2, ""}, {"l", 0o120777, 5, 2, "to"},
		{"c", 0o100644, 2, 3, "text!"}, {"null2", 0o60666, 4, 2, ""}, {"l2", 0o120777, 5, 2, "to"}, {"e2", 0o100600, 3, 2, ""}, {"s", 0o140700, 6, 1, ""}, {"odd", 0o10, 7, 1, "x"}, {"more", 0o100644, 2, 3, ""}}
	const want = "d 5  ; null 4 8:300; l 2 to; c 0 5 text!; d/a 1 c; b 1 c; null2 1 null; l2 1 l; s \x80 ; odd \xff ; more 1 c; e1 0 0 ; e2 1 e1; "
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"newc": {newc("070701", list...), want}, "crc": {newc("070702", list...), want},
		"two":   {slices.Concat(newc("070701", list[1], list[6]), make([]byte, 508), newc("070702", list[1], list[6])), "c 0 5 text!; d/a 1 c; c 0 5 text!; d/a 1 c; "},
		"empty": {newc("070701"), ""}, "zeros": {append(newc("070701"), make([]byte, 1000)...), ""},
		"odc": {odc(list[6], list[1]), "c 0 5 text!; d/a 1 c; "},
	} {
		for _, seek := range []bool{false, true} {
			var r io.Reader = bytes.NewReader(c.b)
			if !seek {
				r = struct{ io.Reader }{r}
			}
			a, have := newCpioReader(r), ""
			h, err := a.Next()
			for ; err == nil; h, err = a.Next() {
				have += h.Name + " " + string(rune(h.Typeflag))
				switch h.Typeflag {
				case tar.TypeReg:
					data, err := io.ReadAll(a)
					have += fmt.Sprintf(" %d %s", h.Size, data)
					must(t, err)
				case tar.TypeBlock:
					have += fmt.Sprintf(" %d:%d", h.Devmajor, h.Devminor)
				default:
					have += " " + h.Linkname
				}
				have += "; "
			}
			want := strings.NewReplacer("d 5  ;", "d 5 ;", "\x80", string(rune(0x80)), "\xff", string(rune(0xff))).Replace(c.want)
			if err != io.EOF || have != want {
				t.Errorf("%s: have %q, %v\nwant %q", name, have, err, want)
			}
		}
	}
}

// TestCpioBad: what is no archive is refused in a line that says where, before it takes memory.
func TestCpioBad(t *testing.T) {
	file := cpioEntry{"f", 0o100644, 1, 1, "some text"}
	good := newc("070702", file)
	change := func(off int, s string) []byte { return slices.Concat(good[:off], []byte(s), good[off+len(s):]) }
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"nothing": {nil, "ends at 0 without a trailer"}, "cut header": {good[:50], "ends at 0 without a trailer"}, "cut name": {good[:111], "ends at 0 without a trailer"},
		"cut data": {good[:116], "f ends after 4 of 9 bytes"}, "no trailer": {good[:124], "ends at 124 without a trailer"}, "compressed": {[]byte("\x1f\x8b\b\b...."), `at 0, have "\x1f\x8b\b\b..`},
		"old": {[]byte("\xc7\x71....................."), "want 070701, 070702 or 070707"}, "no number": {change(6, "zzzzzzzz"), "bad header at 0, want numbers in base 16"},
		"long name": {change(94, "ffffffff"), "a name of at most 4096 bytes"}, "no name": {change(94, "00000000"), "bad header at 0"}, "checksum": {change(112, "S"), "bad checksum"},
		"large": {change(54, "ffffffff"), "f ends after"}, "after": {append(slices.Clone(good), "\x00\x00\x1f\x8b......"...), "want 070701"},
	} {
		s := NewScan(&watch{t: t})
		_, err := s.Cpio(io.LimitReader(bytes.NewReader(c.b), 1<<20))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: have %v want %s", name, err, c.want)
		}
		path := filepath.Join(t.TempDir(), "a.cpio")
		must(t, os.WriteFile(path, c.b, 0o600))
		f, ferr := os.Open(path)
		must(t, ferr)
		if _, inPlace := s.Cpio(f); fmt.Sprint(inPlace) != fmt.Sprint(err) {
			t.Errorf("%s: a pipe gives %v, a file %v", name, err, inPlace)
		}
		must(t, errors.Join(f.Close(), s.Close()))
	}
}

// TestCpioIn: an archive goes in as a tree is made of it, sockets and devices as well, from a file
// in place and from a pipe.
func TestCpioIn(t *testing.T) {
	b := newc("070701", cpioEntry{".", 0o40711, 1, 2, ""}, cpioEntry{"./d/f", 0o104755, 2, 2, ""}, cpioEntry{"/g", 0o104755, 2, 2, string(noise(9000))}, cpioEntry{"../s", 0o140600, 3, 1, ""},
		cpioEntry{"n", 0o20600, 4, 1, ""}, cpioEntry{"p", 0o10600, 5, 1, ""}, cpioEntry{"l", 0o120777, 6, 1, "target"}, cpioEntry{"long", 0o120777, 7, 1, strings.Repeat("x", 5000)})
	build := func(s *Scan, pipe bool) *fstest.Fixture {
		var r io.Reader = bytes.NewReader(b)
		if !pipe {
			name := filepath.Join(t.TempDir(), "a.cpio")
			must(t, os.WriteFile(name, b, 0o600))
			f, err := os.Open(name)
			must(t, err)
			defer f.Close()
			r = f
		}
		root, err := s.Cpio(r)
		must(t, err)
		return opened(t, s, root, mkfs.Options{})
	}
	x, w := fstest.New(t), &watch{t: t}
	x.Must(x.FS.Mkdir(x.T, "/to", 0o700))
	must(t, NewIn(x.T, x.FS, w).Cpio(bytes.NewReader(b), "/to"))
	if len(w.left) != 1 || w.left[0].Name != "long" {
		t.Errorf("left out %+v", w.left)
	}
	for _, pipe := range []bool{true, false} {
		y := build(NewScan(&watch{t: t}), pipe)
		for _, name := range []string{"", "/d/f", "/g", "/s", "/n", "/p", "/l"} {
			a, aerr := x.FS.Lstat(x.T, "/to"+name)
			c, cerr := y.FS.Lstat(y.T, "/"+name)
			must(t, errors.Join(aerr, cerr))
			have, want := fmt.Sprint(c.Mode, c.UID, c.GID, c.Nlink, c.Rdev, c.Size, c.Mtime), fmt.Sprint(a.Mode, a.UID, a.GID, a.Nlink, a.Rdev, a.Size, a.Mtime)
			if have != want {
				t.Errorf("%s: have %s want %s", name, have, want)
			}
		}
		if !bytes.Equal(y.ReadFile("/d/f"), noise(9000)) || !bytes.Equal(x.ReadFile("/to/d/f"), noise(9000)) {
			t.Error("the data that came with the last name is not there")
		}
		if at, err := y.FS.Lstat(y.T, "/s"); err != nil || at.Mode != format.S_IFSOCK|0o600 {
			t.Errorf("the socket has %+v, %v", at, err)
		}
	}
}

// FuzzCpio: whatever an archive says, what goes in leaves the image sound, and a new file system of
// it is sound.
func FuzzCpio(f *testing.F) {
	list := []cpioEntry{{"d", 0o40755, 1, 2, ""}, {"d/a", 0o100644, 2, 2, ""}, {"l", 0o120777, 3, 1, "../.."}, {"n", 0o20600, 4, 1, ""}, {"b", 0o100644, 2, 2, "data"}}
	f.Add(newc("070701", list...))
	f.Add(newc("070702", list...))
	f.Add(odc(list...))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := fstest.New(t, fstest.Size(64<<20)) // is checked at the end
		_ = NewIn(x.T, x.FS, &watch{t: t}).Cpio(io.LimitReader(bytes.NewReader(b), 1<<20), "/")
		x.Must(x.FS.Sync(x.T))
		s := NewScan(&watch{t: t})
		defer s.Close()
		root, err := s.Cpio(io.LimitReader(bytes.NewReader(b), 1<<20))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("two lines: %v", err)
			}
			return
		}
		dev := blockdev.NewMemory(64 << 20)
		if _, err := s.Build(x.T, dev, mkfs.Options{}, root); err != nil {
			t.Fatal(err)
		}
		x.Check(dev)
	})
}

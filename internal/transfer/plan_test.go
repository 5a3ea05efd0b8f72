//go:build unix

package transfer

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// FuzzPlan: whatever a plan says, it is refused, or makes a sound file system.
func FuzzPlan(f *testing.F) {
	f.Add("/set uid=5\n. type=dir\na type=dir mode=755\nb content=x\\040 xattr.user.a=b\n..\n./c/d hardlink=a/b\nl type=link link=x")
	f.Add("./a/b type=dir subvol=ro\nc device=1,3 type=char time=5.7\\\n chattr=+C")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "contents=") {
			return // files of the host
		}
		s := NewScan(&watch{t: t})
		s.Date = time.Unix(1e9, 0)
		root, err := s.Plan(strings.NewReader(text), t.TempDir(), nil)
		if err != nil {
			return
		}
		tk := sched.NewTask("build")
		dev := blockdev.NewMemory(64 << 20)
		if _, err := s.Build(tk, dev, mkfs.Options{}, root); err != nil {
			t.Fatal(err)
		}
		if r, err := check.Check(tk, dev, check.Options{}); err != nil || !r.Clean {
			t.Fatal(err, fstest.Findings(tk, dev))
		}
	})
}

// A plan says all of a tree, or changes one; each mistake is named with its line.
func TestPlan(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "hello"), []byte("hello"), 0o600))
	must(t, os.Symlink("hello", filepath.Join(dir, "to-hello")))
	const text = `#mtree v2.0
/set type=file uid=5 gid=6 mode=0640 time=1000000000.5
. type=dir mode=0751 uid=1
    bin type=dir mode=0755
        sh mode=04755 contents=to-hello \\
            xattr.security.capability=\\001\\s\\\\ xattr.user.x= chattr=+dA
        again hardlink=/bin/sh
        link type=link link=../etc/a\\040b
    ..
    null type=char device=1,3 nlink=1 sha256digest=0
/unset uid mode
    pipe type=fifo
    empty
    text content=inline\\n
    vm type=dir subvol=ro chattr=C
        disk content=
        ..
./etc/a\\040b content=spaced uid=9
deep/er/est type=dir mode=700
./new\\134line type=socket
`
	s := NewScan(&watch{t: t})
	root, err := s.Plan(strings.NewReader(strings.ReplaceAll(text, `\\`, `\`)), dir, nil)
	must(t, err)
	dev := blockdev.NewMemory(128 << 20)
	_, err = s.Build(sched.NewTask("build"), dev, mkfs.Options{}, root)
	must(t, err)
	x := fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return dev }))
	for _, w := range []struct {
		path     string
		mode     uint32
		uid, gid uint32
		nlink    uint32
	}{
		{"/", 0o40751, 1, 6, 1}, {"/bin", 0o40755, 5, 6, 1}, {"/bin/sh", 0o104755, 5, 6, 2}, {"/bin/again", 0o104755, 5, 6, 2}, {"/bin/link", 0o120640, 5, 6, 1},
		{"/null", 0o20640, 5, 6, 1}, {"/pipe", 0o10644, 0, 6, 1}, {"/empty", 0o100644, 0, 6, 1}, {"/text", 0o100644, 0, 6, 1}, {"/vm", 0o40755, 0, 6, 1},
		{"/etc", 0o40755, 0, 0, 1}, {"/etc/a b", 0o100644, 9, 6, 1}, {"/deep/er", 0o40755, 0, 0, 1}, {"/deep/er/est", 0o40700, 0, 6, 1}, {"/new\\line", 0o140644, 0, 6, 1},
	} {
		at, err := x.FS.Lstat(x.T, w.path)
		if err != nil || at.Mode != w.mode || at.UID != w.uid || at.GID != w.gid || at.Nlink != w.nlink {
			t.Errorf("%s: %o %d:%d %d, %v; want %o %d:%d %d", w.path, at.Mode, at.UID, at.GID, at.Nlink, err, w.mode, w.uid, w.gid, w.nlink)
		}
		if explicit := w.path != "/etc" && w.path != "/deep/er"; explicit && at.Mtime.UnixNano() != 1e18+5 {
			t.Errorf("%s: time %v", w.path, at.Mtime)
		}
	}
	_, attrs := inodeText(x, "/bin/sh")
	if at, _ := inodeOf(x, "/bin/sh"); at.Flags&fs.ChattrFlags != format.InodeNoDump|format.InodeNoAtime || attrs != "security.capability=\x01 \\ user.x= " {
		t.Errorf("sh has %q, flags %x", attrs, at.Flags)
	}
	for path, want := range map[string]string{"/bin/again": "hello", "/empty": "", "/text": "inline\n", "/vm/disk": "", "/etc/a b": "spaced"} {
		if have := string(x.ReadFile(path)); have != want {
			t.Errorf("%s has %q want %q", path, have, want)
		}
	}
	if target, err := x.FS.Readlink(x.T, "/bin/link"); target != "../etc/a b" || err != nil {
		t.Errorf("link leads to %q, %v", target, err)
	}
	if at, err := x.FS.Stat(x.T, "/null"); err != nil || at.Rdev != 1<<20|3 {
		t.Errorf("null is %x, %v", at.Rdev, err)
	}
	if err := x.FS.Mkdir(x.T, "/vm/d", 0o755); !errors.Is(err, errno.EROFS) {
		t.Errorf("mkdir in a read-only subvolume: %v", err)
	}

	for _, bad := range []struct{ text, want string }{
		{"f mode=9", "line 1: f: mode=9: want an octal"}, {"\n\nf what=1", "line 3: f: what=1: unknown word"}, {"..", "no directory is open"},
		{"f contents=none", "no such file"}, {"f contents=.", "is no file"}, {"l type=link", "want link=TARGET"}, {"f hardlink=/g", "no such path"},
		{"f hardlink=/f", "want a path"}, {"f\ng hardlink=/f\n./f type=dir", "line 3: ./f: has other names"}, {"f subvol", "want type=dir"}, {"f device=1", "MAJOR,MINOR"}, {"f uname=root", "uname without uid"}, {"f\\", "goes on after the end"},
		{"f\\q", "bad escape"}, {"f time=x", "want seconds"}, {"f chattr=+q", "no flag"}, {"f type=door", "want file, dir"}, {"f/g\n./f type=file", "is a directory"},
		{"f\n./f/g", "f is no directory"}, {"f size=5", "has a size"}, {"f uid=-1", "32 bits"}, {"f compression=best", "bad compression"}, {"d type=dir subvol=no", "want rw, ro"},
	} {
		if _, err := s.Plan(strings.NewReader(bad.text), dir, nil); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%q: %v, want %q", bad.text, err, bad.want)
		}
	}
}

// A plan comes back to directories that it has left, whose files have been made small: by path, and
// for another name of one of them.
func TestPlanComesBack(t *testing.T) {
	const text = `
/set type=file uid=5
a type=dir
    one
    two mode=0600
..
b type=dir
    one
..
./b/one gid=7 content=of_b
./a/three
./a/one mode=0604
./b/two
./a/two content=late
./c/again hardlink=/a/three
./a/three mode=0644
./c/again mode=0600
`
	s := NewScan(&watch{t: t})
	root, err := s.Plan(strings.NewReader(text), "", nil)
	must(t, err)
	dev := blockdev.NewMemory(128 << 20)
	_, err = s.Build(sched.NewTask("build"), dev, mkfs.Options{}, root)
	must(t, err)
	x := fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return dev }))
	for _, w := range []struct {
		path, content string
		mode, gid     uint32
		nlink         uint32
	}{
		{"/a/one", "", 0o604, 0, 1}, {"/a/two", "late", 0o600, 0, 1}, {"/a/three", "", 0o600, 0, 2}, {"/b/one", "of_b", 0o644, 7, 1},
		{"/b/two", "", 0o644, 0, 1}, {"/c/again", "", 0o600, 0, 2},
	} {
		at, err := x.FS.Lstat(x.T, w.path)
		if err != nil || at.Mode != format.S_IFREG|w.mode || at.UID != 5 || at.GID != w.gid || at.Nlink != w.nlink {
			t.Errorf("%s: %o %d:%d %d, %v; want %+v", w.path, at.Mode, at.UID, at.GID, at.Nlink, err, w)
		}
		if have := string(x.ReadFile(w.path)); have != w.content {
			t.Errorf("%s has %q want %q", w.path, have, w.content)
		}
	}
	if len(names(t, x, "/a")) != 3 || len(names(t, x, "/")) != 3 {
		t.Errorf("have %q and %q", names(t, x, "/a"), names(t, x, "/"))
	}
}

// A plan over a directory changes what it names, and leaves the rest.
func TestPlanOver(t *testing.T) {
	src := hostTree(t)
	s := NewScan(&watch{t: t})
	root, err := s.Tree(src)
	must(t, err)
	_, err = s.Plan(strings.NewReader("./a uid=77 mode=4711 xattr.user.plan=p\nd type=dir gid=78\nadded content=x hardlink\n../a\n"), src, root)
	if err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("hardlink without a path: %v", err)
	}
	root, err = s.Plan(strings.NewReader("/set uid=99\n./none mode=4711 xattr.user.plan=p uid=77\n./sparse gid=5\n./none uid=77 mode=4711 xattr.user.plan=p\nd type=dir gid=78\nadded content=x\n"), src, root)
	must(t, err)
	dev := blockdev.NewMemory(128 << 20)
	_, err = s.Build(sched.NewTask("build"), dev, mkfs.Options{}, root)
	must(t, err)
	x := fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return dev }))
	at, values := inodeOf(x, "/none")
	if at.UID != 77 || at.Mode != 0o104711 || values["user.plan"] != "p" {
		t.Errorf("none is %+v, %q", at, values)
	}
	if at, err := x.FS.Stat(x.T, "/d"); err != nil || at.GID != 78 {
		t.Errorf("d: %+v, %v", at, err)
	}
	if at, err := x.FS.Stat(x.T, "/sparse"); err != nil || at.GID != 5 || at.UID == 99 {
		t.Errorf("sparse: %+v, %v", at, err)
	}
	if string(x.ReadFile("/d/added")) != "x" {
		t.Error("added is not there")
	}
	want, err := os.ReadFile(filepath.Join(src, "d/second"))
	must(t, err)
	if !bytes.Equal(x.ReadFile("/d/second"), want) {
		t.Error("second is another file")
	}
}

// TestPlanLongLink: another name that no directory takes is left out of the directory that it is
// in, once, and the rest is made. It had the directory of the first name, in which nobody found it
// to drop it, and the build went on for ever.
func TestPlanLongLink(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "hi"), []byte("hi"), 0o644))
	long := strings.Repeat("x", 256)
	w := &watch{t: t, stopAt: 1000}
	s := NewScan(w)
	root, err := s.Plan(strings.NewReader("a type=dir\nb contents=hi\n..\nc type=dir\n"+long+" hardlink=a/b\nshort hardlink=a/b\n"), dir, nil)
	must(t, err)
	dev := blockdev.NewMemory(128 << 20)
	_, err = s.Build(sched.NewTask("build"), dev, mkfs.Options{}, root)
	must(t, err)
	if len(w.left) != 1 {
		t.Errorf("left out %+v", w.left)
	}
	x := fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return dev }))
	for _, path := range []string{"/a/b", "/c/short"} {
		if string(x.ReadFile(path)) != "hi" {
			t.Errorf("%s has other bytes", path)
		}
	}
	if list, err := x.FS.ReadDir(x.T, "/c"); err != nil || len(list) != 1 {
		t.Errorf("/c has %v, %v", list, err)
	}
}

// TestStops: an interrupt ends a plan between two of its lines, and a build inside a large file.
func TestStops(t *testing.T) {
	w := &watch{t: t, stopAt: 5}
	if _, err := NewScan(w).Plan(strings.NewReader(strings.Repeat("# a line\n", 100)), "", nil); err != errStop {
		t.Errorf("a plan of 100 lines: %v after %d questions", err, w.asked.Load())
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "large"), bytes.Repeat([]byte("large"), 2<<20), 0o644))
	w = &watch{t: t, stopAt: 40} // of eighty pieces
	s := NewScan(w)
	root, err := s.Tree(dir)
	must(t, err)
	if _, err := s.Build(sched.NewTask("build"), blockdev.NewMemory(128<<20), mkfs.Options{}, root); !errors.Is(err, errStop) {
		t.Errorf("a file of 10 MiB: %v after %d questions", err, w.asked.Load())
	}
}

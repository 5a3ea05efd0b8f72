//go:build unix

package transfer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// TestReadFakeroot: what fakeroot -s writes, and nothing else.
func TestReadFakeroot(t *testing.T) {
	for text, want := range map[string]string{
		"": "0", "\n": "0",
		"dev=fe00,ino=9,mode=104755,uid=12,gid=4294967295,nlink=1,rdev=0\ndev=fe00,ino=10,mode=60644,uid=0,gid=0,nlink=1,rdev=1050668\n": "2",
		"dev=fe00,ino=9,mode=104755,uid=12,gid=34,nlink=1":                                   "line 1: want dev=",
		"\ndev=xx,ino=9,mode=104755,uid=12,gid=34,nlink=1,rdev=0":                            "line 2: want dev=",
		"dev=1,ino=9,mode=104755,uid=4294967296,gid=34,nlink=1,rdev=0":                       "line 1: ",
		"dev=1,ino=9,mode=200000,uid=1,gid=34,nlink=1,rdev=0":                                "line 1: ",
		"dev=1,ino=9,mode=104755,gid=34,uid=1,nlink=1,rdev=0":                                "line 1: ",
		"dev=1,ino=9,mode=104755,uid=1,gid=34,nlink=1,rdev=0,x=1":                            "line 1: ",
		"dev=1,ino=9,mode=104755,uid=-1,gid=34,nlink=1,rdev=0":                               "line 1: ",
		"dev=1,ino=9,mode=104755,uid=1,gid=34,nlink=1,rdev=0\n" + strings.Repeat("x", 1<<17): "too long",
	} {
		f, err := ReadFakeroot(strings.NewReader(text))
		have := fmt.Sprint(err)
		if err == nil {
			have = fmt.Sprint(len(f.inodes))
		}
		if have != want && !(err != nil && strings.Contains(have, want)) {
			t.Errorf("%.80q: have %s want %s", text, have, want)
		}
	}
	f, err := ReadFakeroot(strings.NewReader("dev=fe00,ino=10,mode=60644,uid=1,gid=2,nlink=1,rdev=1050668\n"))
	must(t, err)
	if have := fmt.Sprint(f.inodes); have != fmt.Sprintf("map[{65024 10}:{%d 1 2 %d}]", 0o60644, 8<<20|300) {
		t.Errorf("have %s", have)
	}
}

// TestFakeroot: owners, modes and devices go in as fakeroot has them, in a new file system and in
// one that is there; a file that it does not name is of 0:0. What it says of another type of file
// is of one that is gone.
func TestFakeroot(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	must(t, os.MkdirAll(filepath.Join(src, "d"), 0o755))
	for _, name := range []string{"f", "null", "d/plain", "stale"} {
		must(t, os.WriteFile(filepath.Join(src, name), []byte("text"), 0o644))
	}
	must(t, os.Link(filepath.Join(src, "f"), filepath.Join(src, "d/f2")))
	must(t, os.Symlink("f", filepath.Join(src, "link")))
	if os.Geteuid() == 0 { // else it is somebody's
		must(t, os.Chown(filepath.Join(src, "d/plain"), 1000, 1000))
	}
	var save strings.Builder
	for name, said := range map[string]string{"": "mode=40711,uid=9,gid=8,nlink=3,rdev=0", "f": "mode=104755,uid=12,gid=34,nlink=2,rdev=0", "null": "mode=20666,uid=0,gid=5,nlink=1,rdev=259",
		"link": "mode=120777,uid=7,gid=7,nlink=1,rdev=0", "stale": "mode=40700,uid=7,gid=7,nlink=1,rdev=0"} {
		var st syscall.Stat_t
		must(t, syscall.Lstat(filepath.Join(src, name), &st))
		fmt.Fprintf(&save, "dev=%x,ino=%d,%s\n", st.Dev, st.Ino, said)
	}
	owners := func() *Fakeroot {
		f, err := ReadFakeroot(strings.NewReader(save.String()))
		must(t, err)
		return f
	}
	want := map[string]string{"": "40711 9:8 0", "/f": "104755 12:34 0", "/d/f2": "104755 12:34 0", "/null": "20666 0:5 100003", "/link": "120777 7:7 0",
		"/d": "40755 0:0 0", "/d/plain": "100644 0:0 0", "/stale": "100644 0:0 0"}
	judge := func(what string, x *fstest.Fixture, at string, w *watch, f *Fakeroot) {
		t.Helper()
		for name, want := range want {
			a, err := x.FS.Lstat(x.T, at+name+"/."[:map[bool]int{true: 2, false: 0}[at+name == ""]])
			must(t, err)
			if have := fmt.Sprintf("%o %d:%d %x", a.Mode, a.UID, a.GID, a.Rdev); have != want {
				t.Errorf("%s: %s: have %s want %s", what, name, have, want)
			}
		}
		if len(w.left) != 1 || !strings.Contains(fmt.Sprint(w.left[0].Err), "changed later") || f.Unused() {
			t.Errorf("%s: left out %+v", what, w.left)
		}
	}
	w, f := &watch{t: t}, owners()
	s := NewScan(w)
	s.Fakeroot(f)
	judge("a new file system", scanned(t, s, src, nil), "", w, f)
	x := fstest.New(t)
	w, f = &watch{t: t}, owners()
	in := NewIn(x.T, x.FS, w)
	in.Fakeroot(f)
	must(t, in.Tree(src, "/to"))
	judge("put", x, "/to", w, f)
	if f = owners(); !f.Unused() {
		t.Error("a file that nothing was asked of is in use")
	}
	w = &watch{t: t}
	in = NewIn(x.T, x.FS, w)
	in.Fakeroot(f)
	in.Keep.Special, in.Owner = false, &fs.Owner{UID: 1, GID: 1}
	must(t, in.Tree(src, "/plain"))
	if a, err := x.FS.Lstat(x.T, "/plain/f"); err != nil || a.UID != 1 {
		t.Errorf("have %+v, %v", a, err)
	}
	if _, err := x.FS.Lstat(x.T, "/plain/null"); err == nil {
		t.Error("a device of fakeroot goes in without Special")
	}
}

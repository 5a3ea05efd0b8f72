package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/testing/fstest"
)

// asNobody runs f in a thread that is an ordinary user for the host's files, also when the test
// runs as root: nobody lets it give files away.
func asNobody(t *testing.T, dir string, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	must(t, os.Chown(dir, nobody, nobody))
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // the test's own is its user's only
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if _, err := unix.SetfsgidRetGid(nobody); err != nil {
			t.Error(err)
		}
		if _, err := unix.SetfsuidRetUid(nobody); err != nil {
			t.Error(err)
		}
		f()
	}()
	<-done
}

// program is a setuid and setgid program of the user 1234, as every way out finds it.
func program(t *testing.T) *fstest.Fixture {
	x := fstest.New(t)
	f := x.Create("/program")
	x.WriteAt(f, []byte("#!"), 0)
	x.Must(f.Close(x.T))
	x.Must(x.FS.Chown(x.T, "/program", 1234, 1234))
	x.Must(x.FS.Chmod(x.T, "/program", 0o6755))
	x.Must(x.FS.Setxattr(x.T, "/program", capability, []byte{1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}))
	x.Must(x.FS.Setxattr(x.T, "/program", "user.kept", []byte("v")))
	return x
}

// damaged is the program as a rescue hands it out.
func damaged() *rescue.Object {
	return &rescue.Object{Path: "program", Attrs: image.Attrs{Mode: format.S_IFREG | 0o6755, UID: 1234, GID: 1234, Mtime: when, Atime: when,
		Xattrs: []image.Xattr{{Name: capability, Value: make([]byte, 20)}, {Name: "user.kept", Value: []byte("v")}}},
		Size: 2, Data: func(out func(off uint64, p []byte) error) error { return out(0, []byte("#!")) }}
}

// TestPrivileges: on no way into an image or out of it does a program run for somebody else than
// before: where its owner is not kept, because nobody wants it or the host refuses it, setuid,
// setgid and capabilities are not either; where it is kept they are.
func TestPrivileges(t *testing.T) {
	host := func(name string) (mode uint32, uid int) {
		t.Helper()
		var st unix.Stat_t
		must(t, unix.Lstat(name, &st))
		if _, err := unix.Lgetxattr(name, capability, make([]byte, 64)); err == nil && st.Uid != 1234 {
			t.Errorf("%s of user %d has capabilities", name, st.Uid)
		}
		return st.Mode & 0o7777, int(st.Uid)
	}
	refused := func(left []LeftOut) bool {
		for _, l := range left {
			if l.Err != nil && strings.Contains(l.Err.Error(), "owner 1234:1234") {
				return true
			}
		}
		return false
	}
	x := program(t)

	// Out, to a host that gives nothing away.
	dir := xattrDir(t)
	w := &watch{t: t}
	asNobody(t, dir, func() {
		out := NewOut(x.T, x.FS, w)
		out.Keep.Owners = true
		must(t, out.Into("/program", dir, "out"))
	})
	if mode, uid := host(filepath.Join(dir, "out")); mode != 0o755 || uid == 1234 || !refused(w.left) {
		t.Errorf("get, chown refused: mode %o of user %d, left out %+v", mode, uid, w.left)
	}
	// Out, with owners that nobody wants.
	out := NewOut(x.T, x.FS, &watch{t: t})
	out.Keep.Owners = false
	must(t, out.Into("/program", dir, "bare"))
	if mode, _ := host(filepath.Join(dir, "bare")); mode != 0o755 {
		t.Errorf("get --no-owner: mode %o", mode)
	}
	// A rescue.
	var why []string
	asNobody(t, dir, func() {
		l, err := NewLanding(dir)
		must(t, err)
		l.Keep.Owners = true
		l.Refused = func(path string, err error) { why = append(why, err.Error()) }
		must(t, l.Put(damaged()))
		must(t, l.Close())
	})
	if mode, uid := host(filepath.Join(dir, "program")); mode != 0o755 || uid == 1234 || !strings.Contains(strings.Join(why, " "), "owner 1234:1234") {
		t.Errorf("rescue copy, chown refused: mode %o of user %d, refused %q", mode, uid, why)
	}
	if os.Geteuid() == 0 {
		out := NewOut(x.T, x.FS, &watch{t: t})
		must(t, out.Into("/program", dir, "kept"))
		if mode, uid := host(filepath.Join(dir, "kept")); mode != 0o6755 || uid != 1234 {
			t.Errorf("get of root: mode %o of user %d", mode, uid)
		}
		// Into an image without the owner: the file would be root's.
		y := fstest.New(t)
		in := NewIn(y.T, y.FS, &watch{t: t})
		in.Keep.Owners = false
		must(t, in.Tree(filepath.Join(dir, "kept"), "/put"))
		if at, xattrs := inodeOf(y, "/put"); at.UID != 0 || at.Mode&0o7777 != 0o755 || xattrs[capability] != "" {
			t.Errorf("put --no-owner: mode %o of user %d, %q", at.Mode, at.UID, xattrs)
		}
		// By the loader of mkfs.
		s := NewScan(&watch{t: t})
		s.Keep.Owners = false
		root, err := s.Tree(dir)
		must(t, err)
		for _, e := range root.Entries {
			if e.Name == "kept" && (e.Mode&0o7777 != 0o755 || e.UID != 0) {
				t.Errorf("mkfs --rootdir --no-owner: mode %o of user %d", e.Mode, e.UID)
			}
		}
	}

	// Archives, out and in.
	for _, owners := range []bool{true, false} {
		want, uid := uint32(0o6755), uint32(1234)
		if !owners {
			want, uid = 0o755, 0
		}
		var b bytes.Buffer
		out := NewOut(x.T, x.FS, &watch{t: t})
		out.Keep.Owners = owners
		must(t, out.Tar("/", "", &b))
		var c bytes.Buffer
		a := NewArchive(&c)
		a.keep.Owners = owners
		must(t, a.Put(damaged()))
		must(t, a.Close())
		for what, archive := range map[string]*bytes.Buffer{"get --tar": &b, "rescue copy --tar": &c} {
			for r := tar.NewReader(bytes.NewReader(archive.Bytes())); ; {
				h, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				must(t, err)
				_, caps := h.PAXRecords[xattrRecord+capability]
				if strings.Contains(h.Name, "program") && (uint32(h.Mode) != want || uint32(h.Uid) != uid || caps != owners || h.PAXRecords[xattrRecord+"user.kept"] != "v") {
					t.Errorf("%s, owners %v: mode %o of user %d, %q", what, owners, h.Mode, h.Uid, h.PAXRecords)
				}
			}
		}
		full := NewOut(x.T, x.FS, &watch{t: t})
		b.Reset()
		must(t, full.Tar("/", "", &b))
		y := fstest.New(t)
		in := NewIn(y.T, y.FS, &watch{t: t})
		in.Keep.Owners = owners
		must(t, in.Tar(&b, "/"))
		if at, xattrs := inodeOf(y, "/program"); at.Mode&0o7777 != want || at.UID != uid || (xattrs[capability] != "") != owners {
			t.Errorf("put --from-tar, owners %v: mode %o of user %d, %q", owners, at.Mode, at.UID, xattrs)
		}
	}
	if mode := ModeOfNew(0o107755); mode != 0o755 {
		t.Errorf("a reflink has mode %o", mode)
	}
}

// TestTarTimes: an archive without times of access, as most are, gives a file that of its change.
func TestTarTimes(t *testing.T) {
	var b bytes.Buffer
	a := tar.NewWriter(&b)
	must(t, a.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o644, ModTime: when, Format: tar.FormatPAX}))
	must(t, a.Close())
	x := fstest.New(t)
	must(t, NewIn(x.T, x.FS, &watch{t: t}).Tar(&b, "/"))
	if at, _ := inodeOf(x, "/f"); !at.Atime.Equal(when) || !at.Mtime.Equal(when) {
		t.Errorf("times %v %v, want %v", at.Atime, at.Mtime, when)
	}
}

// TestPinnedLinks: a file that chattr +i or +a protects has all its names afterwards, and is
// protected: on the way in, out, and out of a rescue.
func TestPinnedLinks(t *testing.T) {
	for _, flag := range []uint64{format.InodeImmutable, format.InodeAppend} {
		x := fstest.New(t)
		x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
		f := x.Create("/d/a")
		x.WriteAt(f, []byte("data"), 0)
		x.Must(x.FS.Link(x.T, "/d/a", "/d/b"))
		x.Must(f.SetFlags(x.T, flag))
		x.Must(f.Close(x.T))
		in := NewIn(x.T, x.FS, &watch{t: t})
		must(t, in.link("/d/a", "/d/c"))
		if at, _ := inodeOf(x, "/d/c"); at.Flags&flag == 0 || at.Nlink != 3 {
			t.Errorf("link in the image: flags %x, %d names", at.Flags, at.Nlink)
		}

		dir := t.TempDir()
		probe := filepath.Join(dir, "probe")
		must(t, os.WriteFile(probe, nil, 0o600))
		p, err := os.Open(probe)
		must(t, err)
		defer p.Close()
		flags := func(f *os.File) int { n, _ := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); return n }
		if err := unix.IoctlSetPointerInt(int(p.Fd()), unix.FS_IOC_SETFLAGS, int(flagsOfHost(flag))|flags(p)); err != nil {
			t.Skipf("SKIPPED: the flags of chattr cannot be set in %s: %v", dir, err)
		}
		free := func(name string) {
			f, err := os.Open(name)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if flags(f)&int(flagsOfHost(flag)) == 0 && name != probe {
				t.Errorf("%s is not protected", name)
			}
			must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags(f)&^int(flagsOfHost(pinned))))
		}
		free(probe)
		w := &watch{t: t}
		must(t, NewOut(x.T, x.FS, w).Tree("/d", filepath.Join(dir, "out")))
		free(filepath.Join(dir, "out", "a"))
		for _, name := range []string{"a", "b", "c"} {
			if p, err := os.ReadFile(filepath.Join(dir, "out", name)); string(p) != "data" {
				t.Errorf("get: %s is %q, %v; left out %+v", name, p, err, w.left)
			}
		}
		l, err := NewLanding(filepath.Join(dir, "landing"))
		must(t, err)
		o := damaged()
		o.Flags = flag
		must(t, l.Put(o))
		must(t, l.Link("second", "program"))
		must(t, l.Close())
		free(filepath.Join(dir, "landing", "second"))
	}
}

// TestLandingHas: a file that an earlier run has cut, or of another time, is no file that is there:
// the next run copies it again.
func TestLandingHas(t *testing.T) {
	l, err := NewLanding(t.TempDir())
	must(t, err)
	o := damaged()
	o.Mode, o.Xattrs, o.UID, o.GID = format.S_IFREG|0o644, nil, uint32(os.Getuid()), uint32(os.Getgid())
	must(t, l.Put(o))
	if !l.Has(o) {
		t.Error("a whole file is not there")
	}
	path := filepath.Join(l.path, o.Path)
	must(t, os.Truncate(path, 1))
	must(t, os.Chtimes(path, when, when))
	if l.Has(o) {
		t.Error("a file that was cut is taken for whole")
	}
	must(t, os.Truncate(path, 2))
	must(t, os.Chtimes(path, when, when.Add(time.Nanosecond)))
	if l.Has(o) {
		t.Error("a file of another time is taken for whole")
	}
	must(t, l.Close())
}

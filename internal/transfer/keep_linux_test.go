package transfer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// xattrDir is a new directory whose file system has attributes of the user.
func xattrDir(t *testing.T) string {
	dir := t.TempDir()
	if err := unix.Lsetxattr(dir, "user.probe", []byte("x"), 0); err != nil {
		t.Skipf("SKIPPED: no extended attributes in %s: %v", dir, err)
	}
	return dir
}

// What an inode has beside its contents goes in and comes out: the owner, attributes, both times,
// those of a symbolic link, too, the kind of what is special, and the same of the directory itself
// that is filled. What Keep leaves out stays out.
func TestKeeps(t *testing.T) {
	src := filepath.Join(xattrDir(t), "src")
	path := func(name string) string { return filepath.Join(src, name) }
	must(t, os.MkdirAll(path("d"), 0o750))
	must(t, os.WriteFile(path("f"), []byte("f"), 0o640))
	must(t, os.Symlink("f", path("l")))
	must(t, unix.Mkfifo(path("p"), 0o622))
	must(t, unix.Mknod(path("s"), unix.S_IFSOCK|0o700, 0))
	for _, name := range []string{"", "d", "f"} {
		must(t, unix.Setxattr(path(name), "user.name", []byte("of "+name), 0))
	}
	must(t, unix.Setxattr(path("f"), "user.empty", nil, 0))
	ts := []unix.Timespec{unix.NsecToTimespec(when.UnixNano() + 1), unix.NsecToTimespec(when.UnixNano())}
	for _, name := range []string{"d", "f", "l", "p", "s", ""} {
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path(name), ts, unix.AT_SYMLINK_NOFOLLOW))
	}
	x := fstest.New(t, fstest.FSOptions(func(o *fs.Options) { o.UID, o.GID = 7, 8 }))
	w := &watch{t: t}
	must(t, NewIn(x.T, x.FS, w).Fill(src, "/"))
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	for name, mode := range map[string]uint32{"/": format.S_IFDIR | 0o755, "/d": format.S_IFDIR | 0o750, "/f": format.S_IFREG | 0o640, "/l": format.S_IFLNK | 0o777,
		"/p": format.S_IFIFO | 0o622, "/s": format.S_IFSOCK | 0o700} {
		at, xattrs := inodeOf(x, name)
		st, err := os.Lstat(path(name))
		must(t, err)
		if name == "/" || name == "/p" || name == "/s" {
			mode = imageMode(st.Mode()) // less the umask
		}
		if at.Mode != mode || at.UID != uid || at.GID != gid || !at.Mtime.Equal(when) || at.Atime.Sub(when) != 1 {
			t.Errorf("%s: mode %o owner %d:%d times %v %v", name, at.Mode, at.UID, at.GID, at.Atime, at.Mtime)
		}
		if strings.Contains("/d/f", name) && xattrs["user.name"] != "of "+name[1:] {
			t.Errorf("%s: attributes %q", name, xattrs)
		}
		if v, ok := xattrs["user.empty"]; name == "/f" && (!ok || v != "") {
			t.Errorf("%s: attributes %q, want an empty one", name, xattrs)
		}
	}
	if len(w.left) != 0 {
		t.Errorf("left out %+v", w.left)
	}

	dest := filepath.Join(t.TempDir(), "dest")
	w = &watch{t: t}
	must(t, NewOut(x.T, x.FS, w).Tree("/", dest))
	if len(w.left) != 0 {
		t.Errorf("left out %+v", w.left)
	}
	for _, name := range []string{"", "d", "f", "l", "p", "s"} {
		var a, b unix.Stat_t
		must(t, unix.Lstat(path(name), &a))
		must(t, unix.Lstat(filepath.Join(dest, name), &b))
		if a.Mode != b.Mode || a.Uid != b.Uid || a.Gid != b.Gid || a.Mtim != b.Mtim || name != "" && name != "d" && b.Atim != ts[0] {
			t.Errorf("%s: have %+v want %+v", name, b, a)
		}
	}
	buf := make([]byte, 100)
	for _, name := range []string{"", "d", "f"} {
		n, err := unix.Getxattr(filepath.Join(dest, name), "user.name", buf)
		if err != nil || string(buf[:n]) != "of "+name {
			t.Errorf("%s: user.name is %q, %v", name, buf[:max(n, 0)], err)
		}
	}

	y := fstest.New(t, fstest.FSOptions(func(o *fs.Options) { o.UID, o.GID = 7, 8 }))
	w = &watch{t: t}
	in := NewIn(y.T, y.FS, w)
	in.Keep = Keep{}
	must(t, in.Tree(src, "/t"))
	if at, xattrs := inodeOf(y, "/t/f"); at.UID != 7 || at.GID != 8 || len(xattrs) != 0 {
		t.Errorf("nothing kept: owner %d:%d, %q", at.UID, at.GID, xattrs)
	}
	if len(w.left) != 2 || w.left[0].Err != nil || w.left[0].Name != path("p") {
		t.Errorf("left out %+v, want the pipe and the socket", w.left)
	}
	in = NewIn(y.T, y.FS, &watch{t: t})
	in.Owner = &fs.Owner{UID: 33, GID: 44}
	must(t, os.Chmod(path("f"), 0o755|os.ModeSetuid))
	must(t, in.Tree(src, "/u"))
	if at, _ := inodeOf(y, "/u/f"); at.UID != 33 || at.GID != 44 || at.Mode&0o7777 != 0o4755 {
		t.Errorf("another owner: %d:%d mode %o", at.UID, at.GID, at.Mode)
	}
}

// What the host refuses is one line each, and the rest comes out: an ordinary user can make no
// device and give nothing away, and no attribute of the system is his.
func TestOutRefused(t *testing.T) {
	x := fstest.New(t, fstest.FSOptions(func(o *fs.Options) { o.UID, o.GID = uint32(os.Getuid()), uint32(os.Getgid()) }))
	must(t, x.FS.Mkdir(x.T, "/t", 0o755))
	f := x.Create("/t/f")
	x.WriteAt(f, []byte("f"), 0)
	x.Must(f.Close(x.T))
	x.Must(x.FS.Setxattr(x.T, "/t/f", "nonsense.name", []byte("v")))
	x.Must(x.FS.Setxattr(x.T, "/t/f", "user.kept", []byte("v")))
	dest := filepath.Join(xattrDir(t), "dest")
	w := &watch{t: t}
	must(t, NewOut(x.T, x.FS, w).Tree("/t", dest))
	if len(w.left) != 1 || w.left[0].Name != "/t/f" || !strings.Contains(w.left[0].Err.Error(), "nonsense.name") {
		t.Errorf("left out %+v, want the attribute that no host has", w.left)
	}
	buf := make([]byte, 10)
	if n, err := unix.Getxattr(filepath.Join(dest, "f"), "user.kept", buf); err != nil || string(buf[:n]) != "v" {
		t.Errorf("user.kept is %q, %v", buf[:max(n, 0)], err)
	}
	if os.Geteuid() == 0 {
		return
	}
	x.Must(x.FS.Mknod(x.T, "/t/null", format.S_IFCHR|0o666, 1<<20|3))
	x.Must(x.FS.Chown(x.T, "/t/f", 12345, 12345))
	w = &watch{t: t}
	out := NewOut(x.T, x.FS, w)
	out.Keep.Owners = true
	must(t, out.Tree("/t", filepath.Join(t.TempDir(), "d")))
	text := ""
	for _, l := range w.left {
		text += l.Name + ": " + l.Err.Error() + "\n"
	}
	if !strings.Contains(text, "owner 12345:12345") || !strings.Contains(text, "/t/null: mknod") {
		t.Errorf("left out:\n%s", text)
	}
}

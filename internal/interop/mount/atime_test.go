package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"btrlab/internal/interop"
)

// atimes does what reads and what changes in a directory, and lists after each step whose access
// time has changed.
type atimes struct {
	*testing.T
	dir  string
	last map[string]unix.Timespec
	list []string
}

// atimeNames are the names whose access times are looked at.
var atimeNames = []string{".", "f", "flagged", "sub", "link", "dangling"}

func (a *atimes) path(name string) string { return filepath.Join(a.dir, name) }

// step waits until the clocks of both file systems have ticked, does f and looks.
func (a *atimes) step(name string, f func() error) {
	a.Helper()
	for now := time.Now(); time.Since(now) < 10*time.Millisecond; {
		var coarse unix.Timespec
		interop.Must(a.T, unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &coarse))
	}
	interop.Must(a.T, f())
	var changed []string
	for _, n := range atimeNames {
		var st unix.Stat_t
		if unix.Lstat(a.path(n), &st) != nil {
			continue
		}
		if st.Atim != a.last[n] {
			changed = append(changed, n)
		}
		a.last[n] = st.Atim
	}
	a.list = append(a.list, name+": "+strings.Join(changed, " "))
}

// read reads a file that is opened with more flags.
func (a *atimes) read(name string, flags int) func() error {
	return func() error {
		fd, err := unix.Open(a.path(name), unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		p, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return err
		}
		defer unix.Munmap(p)
		_, err = unix.Pread(fd, p, 0)
		return err
	}
}

// entries reads a directory.
func (a *atimes) entries(name string) func() error {
	return func() error {
		_, err := os.ReadDir(a.path(name))
		return err
	}
}

// old sets the times of a file: read a minute after it was changed, two days ago, so that it is the
// age of the access time that counts, once ctime is not newer.
func (a *atimes) old(name string) func() error {
	return func() error {
		now := time.Now()
		return os.Chtimes(a.path(name), now.Add(-48*time.Hour), now.Add(-49*time.Hour))
	}
}

// all does the steps. Where nothing can be written the files are there.
func (a *atimes) all(write bool) {
	if write {
		interop.Must(a.T, os.Mkdir(a.path("sub"), 0o755))
		interop.Must(a.T, os.WriteFile(a.path("f"), make([]byte, 8192), 0o644))
		interop.Must(a.T, os.WriteFile(a.path("flagged"), make([]byte, 8192), 0o644))
		interop.Must(a.T, os.Symlink("f", a.path("link")))
		interop.Must(a.T, os.Symlink("nowhere", a.path("dangling")))
		interop.Sh(a.T, "chattr", "+A", a.path("flagged"))
	}
	a.step("begin", func() error { return nil })
	a.step("O_NOATIME", a.read("f", unix.O_NOATIME))
	a.step("direct", a.read("f", unix.O_DIRECT))
	a.step("read", a.read("f", 0))
	a.step("again", a.read("f", 0))
	a.step("chattr +A", a.read("flagged", 0))
	a.step("empty directory", a.entries("sub"))
	a.step("directory", a.entries("."))
	a.step("directory again", a.entries("."))
	a.step("by a link", a.read("link", 0))
	a.step("readlink", func() error { _, err := os.Readlink(a.path("dangling")); return err })
	a.step("readlink again", func() error { _, err := os.Readlink(a.path("dangling")); return err })
	a.step("stat", func() error { _, err := os.Stat(a.path("f")); return err })
	a.step("xattr", func() error { _, err := unix.Listxattr(a.path("f"), nil); return err })
	if !write {
		return
	}
	a.step("write", func() error { return os.WriteFile(a.path("f"), make([]byte, 8192), 0o644) })
	a.step("read after a write", a.read("f", 0))
	a.step("chmod", func() error { return os.Chmod(a.path("f"), 0o600) })
	a.step("read after chmod", a.read("f", 0))
	a.step("create", func() error { return os.WriteFile(a.path("sub/new"), nil, 0o600) })
	a.step("directory after create", a.entries("sub"))
	a.step("old", a.old("f"))
	a.step("read of an old one", a.read("f", 0))
	a.step("read of it again", a.read("f", 0))
}

// within reports whether each word of have is one of want.
func within(have, want string) bool {
	words := strings.Fields(want)
	for _, w := range strings.Fields(have) {
		if !slices.Contains(words, w) {
			return false
		}
	}
	return true
}

// TestMountAtime: the same steps change the same access times on a mount of ours and on Linux's
// own, under each mount option, in a subvolume that is read-only and after a remount; and they are
// on the image afterwards. With --cache kernel a read from Linux's cache may change none.
func TestMountAtime(t *testing.T) {
	fuse(t, "chattr")
	bin := interop.Binary(t)
	for _, mode := range modes(t) {
		for _, options := range []string{"", "relatime", "strictatime", "noatime", "nodiratime", "lazytime", "remount,ro", "remount,noatime", "snapshot"} {
			t.Run(fmt.Sprint(mode.name, " ", options), func(t *testing.T) { twinAtimes(t, bin, mode, options) })
		}
	}
}

// twinAtimes does the steps on an image under Linux and on one of ours.
func twinAtimes(t *testing.T, bin string, mode mode, options string) {
	ours, theirs := interop.Image(t, "ours.img"), interop.Image(t, "theirs.img")
	interop.Btrlab(t, "mkfs", "-q", "--size", "256M", ours)
	interop.Btrlab(t, "mkfs", "-q", "--size", "256M", theirs)
	with, again, _ := strings.Cut(options, "remount,")
	if options == "snapshot" {
		with, again = "", ""
	}
	steps := func(dir string, remount, snapshot func()) *atimes {
		a := &atimes{T: t, dir: dir, last: map[string]unix.Timespec{}}
		switch {
		case again != "":
			a.all(true)
			for _, name := range []string{"f", "sub/new"} { // to be read next
				interop.Must(t, os.Chmod(a.path(name), 0o640))
			}
			interop.Must(t, os.WriteFile(a.path("other"), nil, 0o600))
			remount()
			a.all(false)
		case options == "snapshot":
			a.all(true)
			interop.Must(t, os.WriteFile(a.path("f"), make([]byte, 8192), 0o600))
			snapshot()
			a.dir = a.path("snap")
			a.all(false)
		default:
			a.all(true)
		}
		return a
	}
	var want *atimes
	interop.Mounted(t, theirs, with, func(dir string) {
		want = steps(dir, func() { interop.Sh(t, "mount", "-o", "remount,"+again, dir) },
			func() { interop.Sh(t, "btrfs", "subvolume", "snapshot", "-r", dir, filepath.Join(dir, "snap")) })
	})
	flags := mode.flags
	if with != "" {
		flags = append(flags[:len(flags):len(flags)], "-o", with)
	}
	m := serve(t, bin, ours, flags...)
	if options == "" {
		mounts, err := os.ReadFile("/proc/self/mounts")
		if interop.Must(t, err); !strings.Contains(string(mounts), " "+m.dir+" fuse.btrlab rw,relatime,") {
			t.Errorf("the flags of %s in\n%s", m.dir, mounts)
		}
	}
	have := steps(m.dir, func() { interop.Sh(t, bin, "mount", ours, m.dir, "-o", "remount,"+again) },
		func() {
			if out, err := m.at(t, bin, nil, "snapshot -r / /snap"); err != nil {
				t.Fatalf("snapshot: %v %s", err, out)
			}
		})
	for i, line := range want.list {
		if have.list[i] != line && !(strings.Contains(mode.name, "cache=kernel") && within(have.list[i], line)) {
			t.Errorf("have %q, want %q", have.list[i], line)
		}
	}
	m.umount(t)
	interop.Judged(t, ours)
	interop.Mounted(t, ours, "ro", func(dir string) {
		if options == "snapshot" {
			dir = filepath.Join(dir, "snap")
		}
		for _, name := range atimeNames {
			var st unix.Stat_t
			interop.Must(t, unix.Lstat(filepath.Join(dir, name), &st))
			if st.Atim != have.last[name] {
				t.Errorf("%s: on the image %v, in the mount %v", name, st.Atim, have.last[name])
			}
		}
	})
}

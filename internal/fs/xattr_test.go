package fs_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/fs/fstest"
)

// TestSetxattr: attributes come, change and go, with the ctime; what cannot be leaves everything as it was.
func TestSetxattr(t *testing.T) {
	now := fstest.Epoch
	x := fstest.New(t, fstest.FSOptions(func(o *fs.Options) {
		o.Now = func() time.Time { now = now.Add(time.Second); return now }
	}))
	x.Must(x.Create("/f").Close(x.T))
	x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
	before, err := x.FS.Stat(x.T, "/f")
	x.Must(err)
	x.Must(x.FS.Setxattr(x.T, "/f", "user.a", []byte("one")))
	x.Must(x.FS.Setxattr(x.T, "/f", "user.b", nil))
	x.Must(x.FS.Setxattr(x.T, "/f", "user.a", []byte("two")))
	x.Must(x.FS.Setxattr(x.T, "/d", "user.c", []byte("three")))
	after, err := x.FS.Stat(x.T, "/f")
	x.Must(err)
	if !after.Ctime.After(before.Ctime) || !after.Mtime.Equal(before.Mtime) {
		t.Errorf("ctime %v after %v, mtime %v after %v", after.Ctime, before.Ctime, after.Mtime, before.Mtime)
	}
	x.Reopen()
	if l := xattrs(x, "/f"); !slices.Equal(l, []string{"user.a=two", "user.b="}) {
		t.Errorf("/f has %q", l)
	}
	x.Must(x.FS.Removexattr(x.T, "/f", "user.b"))
	if err := x.FS.Removexattr(x.T, "/f", "user.b"); !errors.Is(err, errno.ENOENT) {
		t.Errorf("a second removal: %v", err)
	}
	if err := x.FS.Setxattr(x.T, "/f", "user.a", bytes.Repeat([]byte("x"), 1<<20)); !errors.Is(err, errno.ENOSPC) {
		t.Errorf("a value that fits no item: %v", err)
	}
	x.Must(x.FS.SetFlags(x.T, "/d", format.InodeImmutable))
	if err := x.FS.Setxattr(x.T, "/d", "user.c", nil); !errors.Is(err, errno.EPERM) {
		t.Errorf("of an immutable directory: %v", err)
	}
	x.Must(x.FS.Fsync(x.T, "/d"))
	x.Must(x.FS.Fsync(x.T, "/f"))
	x.Reopen()
	if l := append(xattrs(x, "/f"), xattrs(x, "/d")...); !slices.Equal(l, []string{"user.a=two", "user.c=three"}) {
		t.Errorf("in the end: %q", l)
	}
}

// xattrs lists the attributes of path as name=value, sorted.
func xattrs(x *fstest.Fixture, path string) []string {
	at, err := x.FS.Stat(x.T, path)
	x.Must(err)
	n, err := x.FS.Node(x.T, at.Subvol, at.Ino)
	x.Must(err)
	defer n.Forget(x.T, 1)
	l, err := n.Listxattr(x.T)
	x.Must(err)
	for i, name := range l {
		v, err := n.Getxattr(x.T, name)
		x.Must(err)
		l[i] += "=" + string(v)
	}
	slices.Sort(l)
	return l
}

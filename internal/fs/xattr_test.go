package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// TestSetxattr: attributes come, change and go, with the ctime; what cannot be leaves everything as
// it was.
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
	x.Must(x.FS.Setxattr(x.T, "/d", strings.Repeat("n", 255), nil))
	x.Must(x.FS.Removexattr(x.T, "/d", strings.Repeat("n", 255)))
	for _, name := range []string{"", strings.Repeat("n", 256)} {
		if err := x.FS.Setxattr(x.T, "/d", name, nil); !errors.Is(err, errno.ERANGE) {
			t.Errorf("a name of %d bytes: %v", len(name), err)
		}
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

// TestSetxattrSchedules: an attribute gets another value, longer or shorter, while another task
// reads it, and a third syncs the directory that the file was renamed in, which logs the file's
// attributes with its new name. A reader, and an open of the image after a power cut, finds one of
// the two values.
func TestSetxattrSchedules(t *testing.T) {
	need.Long(t)
	o := fstest.Explored("fsync-5.18")
	image := blockdev.NewMemory(128 << 20)
	tk := sched.NewTask("image")
	fstest.NoError(mkfs.Make(tk, image, mkfs.Options{Now: fstest.Epoch}))
	x, err := fs.Open(tk, []blockdev.Device{image}, o)
	fstest.NoError(err)
	f, err := x.Create(tk, "/f", 0o644)
	fstest.NoError(errors.Join(err, f.Close(tk), x.Setxattr(tk, "/f", "user.a", []byte("old")), x.Close(tk)))
	for _, value := range []string{"longer", "s"} {
		t.Run(value, func(t *testing.T) {
			one := func(v []byte, err error) {
				if fstest.NoError(err); string(v) != "old" && string(v) != value {
					panic(fmt.Sprintf("the attribute is %q", v))
				}
			}
			r := explore.Run(explore.Config{Preemptions: 2, Schedules: fstest.Schedules(2000), NoShrink: true, Switch: lockdep.IDs("tree_fs")}, func(w *explore.World) {
				dev := image.Snapshot()
				x, err := fs.Open(w.Task(), []blockdev.Device{dev}, o)
				fstest.NoError(errors.Join(err, x.Rename(w.Task(), "/f", "/g")))
				ino, err := x.Lookup(w.Task(), "/g")
				fstest.NoError(err)
				n, err := x.Node(w.Task(), format.FS_TREE_OBJECTID, ino)
				fstest.NoError(err)
				var cut *blockdev.Memory
				w.Go("set", func(t *sched.Task) { fstest.NoError(n.Setxattr(t, "user.a", []byte(value))) })
				w.Go("get", func(t *sched.Task) { one(n.Getxattr(t, "user.a")) })
				w.Go("fsync", func(t *sched.Task) {
					fstest.NoError(x.Fsync(t, "/"))
					cut = dev.Snapshot()
				})
				w.Check(func() error {
					fstest.NoError(errors.Join(n.Forget(w.Task(), 1), x.Close(w.Task())))
					y, err := fs.Open(w.Task(), []blockdev.Device{cut}, o)
					fstest.NoError(err)
					n, err := y.Node(w.Task(), format.FS_TREE_OBJECTID, ino)
					fstest.NoError(err)
					one(n.Getxattr(w.Task(), "user.a"))
					fstest.NoError(n.Forget(w.Task(), 1))
					return closedClean(w.Task(), y, cut)
				})
			})
			notViolated(t, r)
		})
	}
}

package fs_test

import (
	"errors"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// Paths begin in the default subvolume, or in the one that the options name; its top directory is
// its own parent, and a link that begins with / stays in it. The default can be changed, not
// deleted, and the image says that it has one.
func TestDefaultSubvolume(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Subvolume(x.T, "/a", 0o755))
	x.Must(x.FS.Subvolume(x.T, "/a/b", 0o755))
	for _, name := range []string{"/f", "/a/f", "/a/b/f"} {
		f := x.Create(name)
		x.WriteAt(f, []byte(name), 0)
		x.Must(f.Close(x.T))
	}
	x.Must(x.FS.Symlink(x.T, "/f", "/a/b/link"))
	at, err := x.FS.Stat(x.T, "/a/b")
	x.Must(err)
	if id, err := x.FS.DefaultSubvolume(x.T); err != nil || id != format.FS_TREE_OBJECTID {
		t.Errorf("default of a new image: %d, %v", id, err)
	}
	wantErr(t, "a default that is not there", x.FS.SetDefaultSubvolume(x.T, 999), errno.ENOENT)
	x.Must(x.FS.SetDefaultSubvolume(x.T, at.Subvol))
	x.Must(x.FS.Commit(x.T))
	if sb := x.FS.Super(x.T); sb.IncompatFlags&format.IncompatDefaultSubvol == 0 {
		t.Error("the superblock does not tell of a default subvolume")
	}
	in := func(o fs.Options, want string) {
		t.Helper()
		x.Reopen(fstest.FSOptions(func(old *fs.Options) { old.Subvol, old.SubvolPath = o.Subvol, o.SubvolPath }))
		for _, path := range []string{"/f", "/../f", "../../f"} {
			if have := string(x.ReadFile(path)); have != want {
				t.Errorf("%+v: %s has %q, want %q", o, path, have, want)
			}
		}
	}
	in(fs.Options{}, "/a/b/f")
	if have := string(x.ReadFile("/link")); have != "/a/b/f" {
		t.Errorf("a link to /f leads to %q", have)
	}
	in(fs.Options{Subvol: format.FS_TREE_OBJECTID}, "/f")
	wantErr(t, "delete of the default", x.FS.DeleteSubvolume(x.T, "/a/b"), errno.EPERM)
	in(fs.Options{SubvolPath: "a"}, "/a/f")
	in(fs.Options{SubvolPath: "/a/b/"}, "/a/b/f")
}

// A subvolume that is none is refused when the image is opened.
func TestNoSubvolume(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Mkdir(x.T, "/dir", 0o755))
	x.Must(x.FS.Sync(x.T))
	for _, o := range []fs.Options{{Subvol: 777}, {SubvolPath: "/none"}, {SubvolPath: "/dir"}} {
		o.ReadOnly = true
		f, err := fs.Open(x.T, []blockdev.Device{x.Dev}, o)
		if err == nil {
			x.Must(f.Close(x.T))
			t.Errorf("%+v: opened", o)
		} else if !errors.Is(err, errno.ENOENT) && !errors.Is(err, errno.EINVAL) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

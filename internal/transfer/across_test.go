//go:build unix

package transfer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/testing/fstest"
)

// TestFrom: a tree that is copied into another image, or to another place of its own, is the same
// there: contents, holes, links, owners, modes, times, attributes, devices, sockets, flags.
func TestFrom(t *testing.T) {
	x, y := fstest.New(t), fstest.New(t)
	must(t, NewIn(x.T, x.FS, &watch{t: t}).Tree(hostTree(t), "/tree"))
	x.Must(x.FS.Mknod(x.T, "/tree/null", format.S_IFCHR|0o666, 1<<20|3))
	x.Must(x.FS.Mknod(x.T, "/tree/sock", format.S_IFSOCK|0o600, 0))
	x.Must(x.FS.Chown(x.T, "/tree/d", 1<<31, 99))
	x.Must(x.FS.Link(x.T, "/tree/null", "/tree/d/null"))
	x.Must(x.FS.Setxattr(x.T, "/tree/a", "user.a", []byte("\x00=\n\xff")))
	f := x.Create("/tree/nocow")
	x.Must(f.SetFlags(x.T, format.InodeNoDataCow|format.InodeNoDataSum))
	x.WriteAt(f, noise(5000), 100<<10)
	x.Must(f.Truncate(x.T, 1<<20))
	x.Must(f.Close(x.T))
	x.Must(x.FS.Subvolume(x.T, "/tree/sub", 0o755))
	x.Must(x.Create("/tree/sub/file").Close(x.T))
	x.Must(x.FS.Snapshot(x.T, "/tree/sub", "/tree/snap", false))
	for _, c := range []struct {
		where string
		into  *fstest.Fixture
		to    string
	}{{"another image", y, "/tree"}, {"its own", x, "/copy"}} {
		w := &watch{t: t}
		must(t, NewIn(c.into.T, c.into.FS, w).From(x.FS, "/tree", c.to, false))
		if len(w.left) != 1 || !w.left[0].Snapshot {
			t.Errorf("%s: left out %+v, want the snapshot", c.where, w.left)
		}
	}
	x.Must(x.FS.DeleteSubvolume(x.T, "/tree/snap"))
	sameTrees(t, "another image", x, y, "/tree")
	sums := func(z *fstest.Fixture, path string) (s string) {
		at, err := z.FS.Lstat(z.T, path)
		must(t, err)
		return fmt.Sprintf("%#x %d", at.Flags, at.Nbytes)
	}
	for _, p := range []string{"/nocow", "/sparse", "/a"} {
		x.Must(errors.Join(x.FS.Sync(x.T), y.FS.Sync(y.T)))
		if have, other, want := sums(y, "/tree"+p), sums(x, "/copy"+p), sums(x, "/tree"+p); have != want || other != want {
			t.Errorf("%s: flags and bytes %s and %s, want %s", p, have, other, want)
		}
	}
	x.Must(x.FS.Rename(x.T, "/copy", "/z"))
	left, right := map[string]string{}, map[string]string{}
	listing(x, "/tree", left)
	listing(x, "/z", right)
	for name, want := range left {
		if have := right["/z"+strings.TrimPrefix(name, "/tree")]; have != want {
			t.Errorf("a copy of its own: %s: have %.200q want %.200q", name, have, want)
		}
	}
}

// TestFromItself: no copy of a directory goes on in itself, also by a link or into one that was
// there, and no file is emptied by a copy onto another name of it.
func TestFromItself(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
	x.Must(x.FS.Mkdir(x.T, "/d/sub", 0o755))
	f := x.Create("/d/sub/f")
	x.WriteAt(f, []byte("text"), 0)
	x.Must(f.Close(x.T))
	x.Must(x.FS.Symlink(x.T, "/d/sub", "/link"))
	x.Must(x.FS.Link(x.T, "/d/sub/f", "/second"))
	for _, c := range [][2]string{{"/d", "/d/sub/new"}, {"/d", "/link/other"}, {"/", "/d/all"}} {
		w := &watch{t: t, stopAt: 200} // a copy without end
		if err := NewIn(x.T, x.FS, w).From(x.FS, c[0], c[1], false); err != nil {
			t.Errorf("%s: %v", c, err)
		}
		if len(w.left) != 1 || !errors.Is(w.left[0].Err, errno.EINVAL) {
			t.Errorf("%s: left out %+v", c, w.left)
		}
	}
	for _, c := range [][2]string{{"/d/sub/f", "/d/sub/f"}, {"/d/sub/f", "/second"}, {"/second", "/link/f"}} {
		if err := NewIn(x.T, x.FS, &watch{t: t}).From(x.FS, c[0], c[1], false); err == nil || !strings.Contains(err.Error(), "one file") {
			t.Errorf("%s: %v", c, err)
		}
	}
	if have := string(x.ReadFile("/second")); have != "text" {
		t.Errorf("the file has %q", have)
	}
}

// TestFromStops: what the source cannot give is left out, a full destination ends the copy and says
// so.
func TestFromStops(t *testing.T) {
	x := fstest.New(t)
	for i, name := range []string{"/small", "/x", "/z"} { // the order in which they are read
		f := x.Create(name)
		x.WriteAt(f, noise([]int{5000, 40 << 20, 1}[i]), 0)
		x.Must(f.Close(x.T))
	}
	y := fstest.New(t, fstest.Size(64<<20))
	w := &watch{t: t}
	err := NewIn(y.T, y.FS, w).From(x.FS, "/", "/to", false)
	if !errors.Is(err, errno.ENOSPC) {
		t.Errorf("have %v, want no space", err)
	}
	if have := names(t, y, "/to"); !slices.Equal(have, []string{"small"}) {
		t.Errorf("have %q, want the file before", have)
	}
	y.Must(y.FS.Chmod(y.T, "/to", 0o700))
	if err := NewIn(y.T, y.FS, w).From(x.FS, "/none", "/to/none", false); !errors.Is(err, errno.ENOENT) {
		t.Errorf("have %v", err)
	}
}

package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/rescue"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// wreck is a tree of everything that a rescue copies: links, holes, an attribute, nanoseconds, and
// for root owners, setuid and a device.
func wreck(t *testing.T) *fstest.Fixture {
	x := fstest.New(t)
	must(t, NewIn(x.T, x.FS, &watch{t: t}).Tree(hostTree(t), "/tree"))
	x.Must(x.FS.Setxattr(x.T, "/tree/a", "user.bytes", []byte("\x00=\n\xff")))
	x.Must(x.FS.Subvolume(x.T, "/tree/sub", 0o755))
	f := x.Create("/tree/sub/f")
	x.WriteAt(f, noise(300000), 4096)
	x.Must(f.Close(x.T))
	if holdsOwners() {
		x.Must(x.FS.Chown(x.T, "/tree/d", 1234, 99))
		x.Must(x.FS.Chown(x.T, "/tree/none", 1234, 99))
		x.Must(x.FS.Mknod(x.T, "/tree/null", format.S_IFCHR|0o666, 1<<20|3))
	}
	x.Must(x.FS.Sync(x.T))
	return x
}

// rescued copies all of x to a sink.
func rescued(t *testing.T, x *fstest.Fixture, to rescue.Sink) {
	t.Helper()
	im, err := rescue.Open(x.T, []blockdev.Device{x.Dev}, rescue.Options{})
	must(t, err)
	sum, err := im.Copy(to, rescue.CopyOptions{Report: func(r rescue.Report) { t.Errorf("%+v", r) }})
	must(t, err)
	if sum.Whole < 8 || sum.Partial+sum.Lost > 0 {
		t.Errorf("have %+v", sum)
	}
}

// bothWays rescues x into a directory and into an archive.
func bothWays(t *testing.T, x *fstest.Fixture) (dir string, archive []byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "saved")
	l, err := NewLanding(dir)
	must(t, err)
	l.Refused = func(path string, err error) {
		if none(err) {
			t.Skipf("%s takes no extended attributes: %v", dir, err)
		}
		t.Errorf("%s: %v", path, err)
	}
	var b bytes.Buffer
	a := NewArchive(&b)
	a.Refused = l.Refused
	if !holdsOwners() {
		l.Keep.Owners = false
	}
	rescued(t, x, l)
	rescued(t, x, a)
	must(t, errors.Join(l.Close(), a.Close()))
	return dir, b.Bytes()
}

// The archive of a rescue says what the directory of a rescue holds: put into an image, both are
// the same tree with the same holes.
func TestRescueIntoEither(t *testing.T) {
	x := wreck(t)
	dir, archive := bothWays(t, x)
	y, z := fstest.New(t), fstest.New(t)
	of, by := NewIn(y.T, y.FS, &watch{t: t}), NewIn(z.T, z.FS, &watch{t: t})
	of.Keep.Owners, by.Keep.Owners = holdsOwners(), holdsOwners()
	must(t, of.Fill(dir, "/"))
	must(t, by.Tar(bytes.NewReader(archive), "/"))
	sameTrees(t, "the archive", y, z, "/tree")
	if holdsOwners() {
		sameTrees(t, "the image", x, z, "/tree")
	}
	y.Must(y.FS.Sync(y.T))
	z.Must(z.FS.Sync(z.T))
	a, aerr := y.FS.Stat(y.T, "/tree/sparse")
	b, berr := z.FS.Stat(z.T, "/tree/sparse")
	if err := errors.Join(aerr, berr); err != nil || a.Nbytes != 8192 || b.Nbytes != 8192 {
		t.Errorf("sparse: have %d bytes by the archive, %d by the directory, %v", b.Nbytes, a.Nbytes, err)
	}
}

// What GNU tar makes of the archive is the directory of a rescue.
func TestRescueTarLinux(t *testing.T) {
	need.All(t, "tar")
	dir, archive := bothWays(t, wreck(t))
	to := t.TempDir()
	cmd := exec.Command("tar", "-x", "-p", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-C", to)
	cmd.Stdin = bytes.NewReader(archive)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	of := func(dir string) map[string]string {
		m := facts(t, dir)
		for name := range m {
			path := filepath.Join(dir, name)
			st, err := os.Lstat(path)
			must(t, err)
			h := statAttrs(st)
			must(t, readAttrs(&h, path, st, Keep{Xattrs: true}))
			m[name] = fmt.Sprintf("%d:%d %#x %q %v", h.UID, h.GID, h.Rdev, h.Xattrs, st.Mode()) + m[name]
		}
		return m
	}
	have, want := of(to), of(dir)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if have[name] != want[name] {
			t.Errorf("%s: have %.200q want %.200q", name, have[name], want[name])
		}
	}
	if len(have) != len(want) || len(want) < 12 {
		t.Errorf("%d objects, want %d", len(have), len(want))
	}
}

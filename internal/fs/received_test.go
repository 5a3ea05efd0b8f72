package fs_test

import (
	"bytes"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/dump"
	"btrlab/internal/testing/fstest"
)

// received lists the lines of the uuid tree about received subvolumes.
func received(x *fstest.Fixture) string {
	x.Must(x.FS.Sync(x.T))
	var b bytes.Buffer
	x.Must(dump.Tree(x.T, &b, x.Dev, "uuid"))
	var lines []string
	about := false
	for l := range strings.Lines(b.String()) {
		if strings.Contains(l, " key (") {
			about = strings.Contains(l, "RECEIVED")
		} else if about {
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	return strings.Join(lines, ", ")
}

// TestSetReceived: a subvolume that was received is read-only, its root item says where from, and
// the uuid tree leads to it and to its read-only snapshots; to a writable one it does not, and a
// deleted one is out of it.
func TestSetReceived(t *testing.T) {
	x := fstest.New(t)
	f, tk := x.FS, x.T
	x.Must(f.Subvolume(tk, "/s", 0o755))
	file := x.Create("/s/file")
	x.WriteAt(file, []byte("hello"), 0)
	x.Must(file.Close(tk))
	n, err := f.NodeAt(tk, "/s")
	x.Must(err)
	u := format.UUID{7, 15: 9}
	x.Must(n.SetReceived(tk, u, 42))
	wantErr(t, "a second time", n.SetReceived(tk, u, 42), errno.EROFS)
	id := n.Subvol()
	x.Must(n.Forget(tk, 1))
	wantErr(t, "a new file", f.Mkdir(tk, "/s/dir", 0o755), errno.EROFS)

	x.Must(f.Snapshot(tk, "/s", "/ro", true))
	x.Must(f.Snapshot(tk, "/s", "/rw", false))
	ids, items, err := f.SubvolItems(tk)
	x.Must(err)
	if len(ids) != 3 || ids[0] != id {
		t.Fatalf("subvolumes: have %v", ids)
	}
	for i, want := range []struct {
		uuid     format.UUID
		stransid uint64
		readOnly bool
	}{{u, 42, true}, {u, 42, true}, {format.UUID{}, 0, false}} {
		it := items[i]
		if it.ReceivedUUID != want.uuid || it.Stransid != want.stransid || (it.Flags&format.RootSubvolReadonly != 0) != want.readOnly ||
			(it.Rtransid == 0) != want.uuid.IsZero() || (it.Rtime.Sec == 0) != want.uuid.IsZero() || it.Stime.Sec != 0 {
			t.Errorf("subvolume %d: have %v stransid %d rtransid %d rtime %v flags %#x", ids[i], it.ReceivedUUID, it.Stransid, it.Rtransid, it.Rtime, it.Flags)
		}
	}
	if have := received(x); have != "subvol_id 256, subvol_id 257" {
		t.Errorf("uuid tree: have %q", have)
	}
	x.Must(f.DeleteSubvolume(tk, "/s"))
	if have := received(x); have != "subvol_id 257" {
		t.Errorf("uuid tree after one is deleted: have %q", have)
	}
	x.Must(f.DeleteSubvolume(tk, "/ro"))
	if have := received(x); have != "" {
		t.Errorf("uuid tree after both are deleted: have %q", have)
	}
	top, err := f.NodeAt(tk, "/rw/file")
	x.Must(err)
	wantErr(t, "a file", top.SetReceived(tk, u, 1), errno.EINVAL)
	x.Must(top.Forget(tk, 1))
	x.Reopen()
	if have := string(x.ReadFile("/rw/file")); have != "hello" {
		t.Errorf("file: have %q", have)
	}
}

// TestSetReadOnly: a subvolume is read-only from the call on, also after another mount and a power
// cut, and takes writes again; a directory cannot be, and a received subvolume stays as it is.
func TestSetReadOnly(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Subvolume(x.T, "/s", 0o755))
	x.Must(x.FS.Mkdir(x.T, "/s/d", 0o755))
	set := func(path string, yes bool) error {
		n, err := x.FS.NodeAt(x.T, path)
		x.Must(err)
		defer n.Forget(x.T, 1)
		err = n.SetReadOnly(x.T, yes)
		if err == nil && n.ReadOnly() != yes {
			t.Errorf("%s: read-only %v", path, !yes)
		}
		return err
	}
	f := x.Create("/s/f")
	x.WriteAt(f, []byte("dirty"), 0)
	x.Must(f.Close(x.T))
	x.Must(set("/s", true))
	x.Must(set("/s", true))
	crashed, err := fs.Open(x.T, []blockdev.Device{x.Dev.(*blockdev.Memory).Snapshot()}, fs.Options{})
	x.Must(err)
	wantErr(t, "mkdir after a power cut", crashed.Mkdir(x.T, "/s/e", 0o755), errno.EROFS)
	x.Must(crashed.Close(x.T))
	for range 2 {
		wantErr(t, "mkdir", x.FS.Mkdir(x.T, "/s/e", 0o755), errno.EROFS)
		if have := string(x.ReadFile("/s/f")); have != "dirty" {
			t.Errorf("the file has %q", have)
		}
		x.Reopen()
	}
	x.Must(set("/s", false))
	x.Must(x.FS.Mkdir(x.T, "/s/e", 0o755))
	x.Reopen()
	x.Must(x.FS.Mkdir(x.T, "/s/g", 0o755))
	wantErr(t, "a directory", set("/s/d", true), errno.EINVAL)
	n, err := x.FS.NodeAt(x.T, "/s")
	x.Must(err)
	x.Must(n.SetReceived(x.T, format.UUID{1}, 1))
	wantErr(t, "a received one", n.SetReadOnly(x.T, false), errno.EPERM)
	wantReceived(t, x, n, true)
	x.Must(n.Unreceive(x.T))
	wantReceived(t, x, n, false)
	x.Must(n.Forget(x.T, 1))
	x.Must(x.FS.Mkdir(x.T, "/s/h", 0o755))
	x.Reopen()
	x.Must(x.FS.Mkdir(x.T, "/s/i", 0o755))
	n, err = x.FS.NodeAt(x.T, "/s/i")
	x.Must(err)
	wantErr(t, "a directory", n.Unreceive(x.T), errno.EINVAL)
	wantReceived(t, x, n, false)
	x.Must(n.Forget(x.T, 1))
}

func wantReceived(t *testing.T, x *fstest.Fixture, n *fs.Node, want bool) {
	t.Helper()
	have, err := n.Received(x.T)
	if err != nil || have != want {
		t.Errorf("received %v, %v want %v", have, err, want)
	}
}

// TestSetLabel: the next commit has the label, in every superblock.
func TestSetLabel(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.SetLabel(x.T, "new"))
	x.Must(x.FS.Sync(x.T))
	if have := x.FS.Statfs(x.T).Label; have != "new" {
		t.Errorf("label %q", have)
	}
	x.Reopen()
	x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
	x.Reopen()
	if have := x.FS.Statfs(x.T).Label; have != "new" {
		t.Errorf("label %q after another mount", have)
	}
	for _, label := range []string{"a\nb", "a\x00", strings.Repeat("l", 256)} {
		wantErr(t, "a bad label", x.FS.SetLabel(x.T, label), errno.EINVAL)
	}
}

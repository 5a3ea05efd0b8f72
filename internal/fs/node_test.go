package fs_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// entries lists a directory by its handle, max names a call, as a FUSE server answers READDIR: each
// call goes on after the last index of the one before.
func entries(x *fstest.Fixture, dir *fs.Node, max int, between func()) string {
	x.Helper()
	var names []string
	for next, more := uint64(0), true; more; {
		n := 0
		x.Must(dir.ReadDir(x.T, next, func(e fs.DirEntry) bool {
			if n == max {
				return false
			}
			names = append(names, e.Name)
			n, next = n+1, e.Index+1
			return true
		}))
		more = n > 0
		if between != nil {
			between()
		}
	}
	return strings.Join(names, " ")
}

// TestNode does by node handles what TestNames does by path: it is what a FUSE server needs.
// Handles of one inode are one pointer, a handle outlives the inode's names, and the last Forget
// deletes what has none.
func TestNode(t *testing.T) {
	x := fstest.New(t)
	tk := x.T
	own := fs.Owner{UID: 1000, GID: 100}
	must := func(n *fs.Node, err error) *fs.Node {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	root := x.FS.Root(tk)
	a := must(root.Mkdir(tk, "a", 0o750, own))
	file := must(a.Create(tk, "file", fs.O_EXCL, 0o640, own))
	again := must(a.Create(tk, "file", 0, 0, own))
	found := must(a.Lookup(tk, "file"))
	byIno := must(x.FS.Node(tk, file.Subvol(), file.Ino()))
	if again != file || found != file || byIno != file {
		t.Errorf("handles of one file: %p by Create, %p by Lookup, %p by number, want %p", again, found, byIno, file)
	}
	x.Must(file.Forget(tk, 3))
	dev := must(a.Mknod(tk, "dev", format.S_IFCHR|0o600, 1<<20|3, own))
	link := must(a.Symlink(tk, "link", "file", own))
	if s, err := link.Readlink(tk); s != "file" || err != nil {
		t.Errorf("readlink: %q, %v", s, err)
	}
	if at := dev.Attr(tk); at.Mode != format.S_IFCHR|0o600 || at.Rdev != 1<<20|3 {
		t.Errorf("device: mode %o rdev %d", at.Mode, at.Rdev)
	}
	up := must(a.Lookup(tk, ".."))
	if self := must(a.Lookup(tk, ".")); up != root || self != a {
		t.Error(`".." and "." do not lead to the parent and to the directory`)
	}
	x.Must(up.Forget(tk, 1))
	x.Must(a.Forget(tk, 1))

	_, err := a.Create(tk, "file", fs.O_EXCL, 0o644, own)
	wantErr(t, "create what exists", err, errno.EEXIST)
	_, err = a.Mkdir(tk, "link", 0o755, own)
	wantErr(t, "mkdir over a link", err, errno.EEXIST)
	_, err = a.Mknod(tk, "dir", format.S_IFDIR, 0, own)
	wantErr(t, "mknod of a directory", err, errno.EINVAL)
	_, err = file.Lookup(tk, "x")
	wantErr(t, "lookup in a file", err, errno.ENOTDIR)
	_, err = file.Mkdir(tk, "x", 0, own)
	wantErr(t, "mkdir in a file", err, errno.ENOTDIR)
	_, err = file.Create(tk, "x", 0, 0, own)
	wantErr(t, "create in a file", err, errno.ENOTDIR)
	wantErr(t, "unlink in a file", file.Unlink(tk, "x"), errno.ENOTDIR)
	wantErr(t, "link in a file", file.Link(tk, "x", dev), errno.ENOTDIR)
	wantErr(t, "rename into a file", a.Rename(tk, "dev", file, "x"), errno.ENOTDIR)
	wantErr(t, "readdir of a file", file.ReadDir(tk, 0, nil), errno.ENOTDIR)
	wantErr(t, "unlink of .", a.Unlink(tk, "."), errno.EINVAL)
	wantErr(t, "rmdir of ..", a.Rmdir(tk, ".."), errno.ENOTEMPTY)
	wantErr(t, "rename of .", a.Rename(tk, ".", root, "b"), errno.EBUSY)
	wantErr(t, "link to a directory", root.Link(tk, "b", a), errno.EPERM)
	_, err = link.Open(tk, fs.O_RDONLY)
	wantErr(t, "open a link", err, errno.ELOOP)
	_, err = file.Readlink(tk)
	wantErr(t, "readlink of a file", err, errno.EINVAL)
	wantErr(t, "size of a directory", a.SetAttr(tk, fs.SetAttr{Set: fs.SetSize}), errno.EISDIR)

	f, err := file.Open(tk, fs.O_RDWR)
	x.Must(err)
	x.WriteAt(f, bytes.Repeat([]byte("btrlab! "), 1000), 0)
	if at := file.Attr(tk); at.Nbytes != 0 || at.Blocks != 16 {
		t.Errorf("before writeback: nbytes %d blocks %d, want 0 and 16: two pages are delayed", at.Nbytes, at.Blocks)
	}
	at := time.Unix(1e9, 5).UTC()
	x.Must(file.SetAttr(tk, fs.SetAttr{Set: fs.SetMode | fs.SetUID | fs.SetSize | fs.SetMtime, Mode: 0o4711, UID: 7, GID: 9, Size: 4096,
		Mtime: at, Atime: at}))
	if have := file.Attr(tk); have.Mode != format.S_IFREG|0o4711 || have.UID != 7 || have.GID != 100 || have.Size != 4096 ||
		!have.Mtime.Equal(at) || have.Atime.Equal(at) || have.Generation != file.Generation(tk) || have.Subvol != format.FS_TREE_OBJECTID {
		t.Errorf("after SetAttr: %+v", have)
	}

	// The reader of a directory goes on at its place when entries before and after it go.
	gone := false
	have := entries(x, a, 1, func() {
		if !gone {
			gone = true
			x.Must(a.Unlink(tk, "file"))
			x.Must(a.Unlink(tk, "dev"))
		}
	})
	if have != "file link" {
		t.Errorf("names in a: %q", have)
	}
	b := must(root.Mkdir(tk, "b", 0o755, own))
	wantErr(t, "link to what has no name", b.Link(tk, "x", file), errno.ENOENT)
	x.Must(a.Rename(tk, "link", b, "moved"))
	x.Must(b.Link(tk, "second", link))
	if n := link.Attr(tk).Nlink; n != 2 {
		t.Errorf("nlink: have %d want 2", n)
	}
	x.Must(root.Rmdir(tk, "a"))
	_, err = a.Create(tk, "late", 0, 0, own)
	wantErr(t, "create in a removed directory", err, errno.ENOENT)

	// Names are gone, handles are not: the file keeps its data until the last reference.
	p := make([]byte, 8)
	if _, err := f.ReadAt(tk, p, 0); err != nil || string(p) != "btrlab! " {
		t.Errorf("read of an unlinked file: %q, %v", p, err)
	}
	subvol, ino := file.Subvol(), file.Ino()
	x.Must(file.Forget(tk, 1))
	again = must(x.FS.Node(tk, subvol, ino)) // f has it open
	x.Must(f.Close(tk))
	x.Must(again.Forget(tk, 1))
	_, err = x.FS.Node(tk, subvol, ino)
	wantErr(t, "the handle of a deleted file", err, errno.ENOENT)
	_, err = x.FS.Node(tk, 9999, 256)
	wantErr(t, "a handle in a subvolume that is not there", err, errno.ENOENT)
	for _, n := range []*fs.Node{root, a, dev, link, b} {
		x.Must(n.Forget(tk, 1))
	}
	if have := names(x, "/b"); have != "moved second" {
		t.Errorf("names in /b: %q", have)
	}
}

package fs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/testing/fstest"
)

// What only a mounted image needs: files without a name, renames with flags, access control lists.

// must gives the node of a call that works.
func must(x *fstest.Fixture) func(n *fs.Node, err error) *fs.Node {
	return func(n *fs.Node, err error) *fs.Node {
		x.Helper()
		x.Must(err)
		return n
	}
}

// TestTmpfile: a file of O_TMPFILE has no name, is an orphan on disk, goes with its last reference,
// and stays if it was linked before. With O_EXCL it cannot be linked.
func TestTmpfile(t *testing.T) {
	x := fstest.New(t)
	tk, must := x.T, must(x)
	root := x.FS.Root(tk)
	gone := must(root.Tmpfile(tk, 0, 0o600, fs.Owner{}))
	kept := must(root.Tmpfile(tk, 0, 0o640, fs.Owner{UID: 5}))
	alone := must(root.Tmpfile(tk, fs.O_EXCL, 0o600, fs.Owner{}))
	for _, n := range []*fs.Node{gone, kept} {
		f, err := n.Open(tk, fs.O_RDWR)
		x.Must(err)
		x.WriteAt(f, bytes.Repeat([]byte{7}, 10000), 0)
		x.Must(f.Fsync(tk))
		x.Must(f.Close(tk))
	}
	if a := kept.Attr(tk); a.Nlink != 0 || a.Size != 10000 || a.UID != 5 {
		t.Errorf("before the link: %+v", a)
	}
	wantErr(t, "link of an exclusive one", root.Link(tk, "x", alone), errno.ENOENT)
	x.Must(root.Link(tk, "kept", kept))
	if a := kept.Attr(tk); a.Nlink != 1 {
		t.Errorf("after the link: nlink %d", a.Nlink)
	}
	x.Must(root.Unlink(tk, "kept"))
	wantErr(t, "a second link after an unlink", root.Link(tk, "kept", kept), errno.ENOENT)
	x.Must(kept.Forget(tk, 1))

	kept = must(root.Tmpfile(tk, 0, 0o640, fs.Owner{}))
	x.Must(x.FS.Sync(tk)) // its orphan item is on disk
	x.Must(root.Link(tk, "kept", kept))
	for _, n := range []*fs.Node{gone, kept, alone, root} {
		x.Must(n.Forget(tk, 1))
	}
	x.Reopen()
	if have := names(x, "/"); have != "kept" {
		t.Errorf("names: %s", have)
	}
}

// TestTmpfileCrash: a power cut leaves a file that has no name as an orphan, which the next open
// deletes; one that was linked and synced stays.
func TestTmpfileCrash(t *testing.T) {
	dev := blockdev.NewMemory(256 << 20)
	x := fstest.New(t, fstest.Wrap(func(d blockdev.Device) blockdev.Device { dev = d.(*blockdev.Memory); return d }))
	tk, must := x.T, must(x)
	root := x.FS.Root(tk)
	open := must(root.Tmpfile(tk, 0, 0o600, fs.Owner{}))
	linked := must(root.Tmpfile(tk, 0, 0o600, fs.Owner{}))
	x.Must(x.FS.Sync(tk))
	x.Must(root.Link(tk, "linked", linked))
	x.Must(linked.Fsync(tk))
	cut := dev.Snapshot()
	for _, n := range []*fs.Node{open, linked, root} {
		x.Must(n.Forget(tk, 1))
	}

	g, err := fs.Open(tk, []blockdev.Device{cut}, fs.Options{})
	x.Must(err)
	_, err = g.Node(tk, format.FS_TREE_OBJECTID, open.Ino())
	wantErr(t, "the file without a name after the crash", err, errno.ENOENT)
	if a, err := g.Stat(tk, "/linked"); err != nil || a.Nlink != 1 {
		t.Errorf("the linked file after the crash: nlink %d, %v", a.Nlink, err)
	}
	x.Must(g.Close(tk))
	r, err := check.Check(tk, cut, check.Options{})
	x.Must(err)
	if !r.Clean {
		t.Errorf("not clean: %v", r.Findings)
	}
}

// TestRenameFlags: RENAME_NOREPLACE, RENAME_EXCHANGE and RENAME_WHITEOUT.
func TestRenameFlags(t *testing.T) {
	x := fstest.New(t)
	tk, must := x.T, must(x)
	root := x.FS.Root(tk)
	a := must(root.Mkdir(tk, "a", 0o755, fs.Owner{}))
	below := must(a.Mkdir(tk, "below", 0o755, fs.Owner{}))
	file := must(root.Create(tk, "file", 0, 0o644, fs.Owner{}))
	in := must(below.Create(tk, "in", 0, 0o644, fs.Owner{}))
	sub := must(root.Subvolume(tk, "sub", 0o755, fs.Owner{}))
	rename := func(from string, d *fs.Node, to string, flags fs.RenameFlags) error {
		return root.RenameWith(tk, from, d, to, flags, fs.Owner{UID: 3})
	}
	wantErr(t, "two flags that exclude each other", rename("file", a, "below", fs.RenameExchange|fs.RenameNoReplace), errno.EINVAL)
	wantErr(t, "no replace over a name", rename("file", a, "below", fs.RenameNoReplace), errno.EEXIST)
	wantErr(t, "exchange with nothing", rename("file", a, "nothing", fs.RenameExchange), errno.ENOENT)
	wantErr(t, "exchange with what is below", rename("a", a, "below", fs.RenameExchange), errno.EINVAL)
	wantErr(t, "exchange with what is above", a.RenameWith(tk, "below", root, "a", fs.RenameExchange, fs.Owner{}), errno.EINVAL)
	wantErr(t, "exchange with a subvolume", rename("file", root, "sub", fs.RenameExchange), errno.EXDEV)
	wantErr(t, "whiteout of a subvolume", rename("sub", root, "other", fs.RenameWhiteout), errno.EXDEV)

	x.Must(rename("file", a, "below", fs.RenameExchange)) // a file and a full directory
	if n := must(a.Lookup(tk, "below")); n != file {
		t.Errorf("a/below is inode %d, want %d", n.Ino(), file.Ino())
	}
	if n := must(root.Lookup(tk, "file")); n != below {
		t.Errorf("/file is inode %d, want %d", n.Ino(), below.Ino())
	}
	if up := must(below.Lookup(tk, "..")); up.Ino() != root.Ino() {
		t.Errorf("its parent is inode %d", up.Ino())
	} else {
		x.Must(up.Forget(tk, 1))
	}
	x.Must(rename("a", root, "file", fs.RenameExchange)) // two directories, one parent
	if have := names(x, "/a"); have != "in" {
		t.Errorf("names in /a: %s", have)
	}
	x.Must(below.RenameWith(tk, "in", root, "moved", fs.RenameWhiteout|fs.RenameNoReplace, fs.Owner{UID: 3}))
	if at, err := x.FS.Lstat(tk, "/a/in"); err != nil || at.Mode != format.S_IFCHR || at.Rdev != 0 || at.UID != 3 {
		t.Errorf("whiteout: mode %o device %d owner %d, %v", at.Mode, at.Rdev, at.UID, err)
	}
	x.Must(file.Forget(tk, 2))
	x.Must(below.Forget(tk, 2))
	for _, n := range []*fs.Node{a, in, sub, root} {
		x.Must(n.Forget(tk, 1))
	}
	x.Reopen()
	if have := names(x, "/") + " " + names(x, "/file"); have != "sub file a moved below" {
		t.Errorf("names after reopen: %s", have)
	}
}

// list is an access control list of entries tag, permissions, id.
func list(entries ...[3]uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, uint16(e[0]))
		b = binary.LittleEndian.AppendUint16(b, uint16(e[1]))
		b = binary.LittleEndian.AppendUint32(b, e[2])
	}
	return b
}

const noID = ^uint32(0)

// TestACL: an access list sets the mode and chmod the list, a list without more than a mode is not
// stored, and what is made in a directory takes after its default list instead of the umask.
func TestACL(t *testing.T) {
	x := fstest.New(t)
	tk, must := x.T, must(x)
	root := x.FS.Root(tk)
	file := must(root.Create(tk, "file", 0, 0o2644, fs.Owner{}))
	acl := func(n *fs.Node, name string, want []byte) {
		t.Helper()
		have, err := n.Getxattr(tk, name)
		if want == nil && errors.Is(err, errno.ENOENT) {
			return
		}
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s: have %x, %v want %x", name, have, err, want)
		}
	}
	mode := func(n *fs.Node, want uint32) {
		t.Helper()
		if have := n.Attr(tk).Mode & 0o7777; have != want {
			t.Errorf("mode %o, want %o", have, want)
		}
	}
	user := func(perm, mask uint32) []byte {
		return list([3]uint32{1, 6, noID}, [3]uint32{2, perm, 1000}, [3]uint32{4, 5, noID}, [3]uint32{0x10, mask, noID}, [3]uint32{0x20, 1, noID})
	}
	plain := list([3]uint32{1, 7, noID}, [3]uint32{4, 4, noID}, [3]uint32{0x20, 0, noID})

	x.Must(file.SetACL(tk, fs.ACLAccess, user(7, 3), false))
	acl(file, fs.ACLAccess, user(7, 3))
	mode(file, 0o2631) // the mask in the place of the group
	x.Must(file.SetAttr(tk, fs.SetAttr{Set: fs.SetMode, Mode: 0o671}))
	acl(file, fs.ACLAccess, user(7, 7))
	x.Must(file.SetAttr(tk, fs.SetAttr{Set: fs.SetMode, Mode: 0o2671}))
	x.Must(file.SetACL(tk, fs.ACLAccess, plain, true)) // by an owner outside the group
	acl(file, fs.ACLAccess, nil)
	mode(file, 0o740)

	wantErr(t, "a default list of a file", file.SetACL(tk, fs.ACLDefault, plain, false), errno.EACCES)
	for what, bad := range map[string][]byte{
		"no header": {2, 0}, "half an entry": plain[:len(plain)-1], "no entry": list(),
		"no mask":      list([3]uint32{1, 6, noID}, [3]uint32{2, 6, 1000}, [3]uint32{4, 5, noID}, [3]uint32{0x20, 1, noID}),
		"out of order": list([3]uint32{4, 6, noID}, [3]uint32{1, 6, noID}, [3]uint32{0x20, 1, noID}),
		"twice":        list([3]uint32{1, 6, noID}, [3]uint32{1, 6, noID}, [3]uint32{4, 6, noID}, [3]uint32{0x20, 1, noID}),
		"a tag":        list([3]uint32{1, 6, noID}, [3]uint32{3, 6, noID}, [3]uint32{4, 6, noID}, [3]uint32{0x20, 1, noID}),
		"a permission": list([3]uint32{1, 8, noID}, [3]uint32{4, 6, noID}, [3]uint32{0x20, 1, noID}),
	} {
		wantErr(t, what, file.SetACL(tk, fs.ACLAccess, bad, false), errno.EINVAL)
	}
	wantErr(t, "version 1", file.SetACL(tk, fs.ACLAccess, append([]byte{1}, plain[1:]...), false), errno.EOPNOTSUPP)

	dir := must(root.Mkdir(tk, "dir", 0o2777, fs.Owner{GID: 50}))
	x.Must(dir.SetACL(tk, fs.ACLDefault, user(7, 7), false))
	own := fs.Owner{UID: 9, GID: 9, Umask: 0o077, Inherit: true}
	child := must(dir.Mkdir(tk, "child", 0o777, own))
	mode(child, 0o2671) // the list's bounds, not the umask's
	acl(child, fs.ACLDefault, user(7, 7))
	acl(child, fs.ACLAccess, user(7, 7))
	made := must(child.Create(tk, "made", 0, 0o640, own))
	mode(made, 0o640)
	acl(made, fs.ACLAccess, list([3]uint32{1, 6, noID}, [3]uint32{2, 7, 1000}, [3]uint32{4, 5, noID}, [3]uint32{0x10, 4, noID}, [3]uint32{0x20, 0, noID}))
	acl(made, fs.ACLDefault, nil)
	if a := made.Attr(tk); a.GID != 50 {
		t.Errorf("group %d, want that of the setgid directory", a.GID)
	}
	bare := must(root.Create(tk, "bare", 0, 0o666, own))
	mode(bare, 0o600) // the umask
	for _, n := range []*fs.Node{file, dir, child, made, bare, root} {
		x.Must(n.Forget(tk, 1))
	}
}

// TestDropSUID: a write of a process without CAP_FSETID takes setuid away, and setgid of what the
// group may execute.
func TestDropSUID(t *testing.T) {
	x := fstest.New(t)
	tk, must := x.T, must(x)
	root := x.FS.Root(tk)
	for _, c := range []struct{ mode, want uint32 }{{0o6755, 0o755}, {0o6745, 0o2745}, {0o2755, 0o755}, {0o1644, 0o1644}} {
		n := must(root.Create(tk, "file", 0, c.mode, fs.Owner{}))
		changed, err := n.DropSUID(tk)
		x.Must(err)
		if have := n.Attr(tk).Mode & 0o7777; have != c.want || changed != (c.mode != c.want) {
			t.Errorf("%o: have %o, changed %v, want %o", c.mode, have, changed, c.want)
		}
		x.Must(root.Unlink(tk, "file"))
		x.Must(n.Forget(tk, 1))
	}
	if changed, err := root.DropSUID(tk); changed || err != nil {
		t.Errorf("a directory: %v, %v", changed, err)
	}
	x.Must(root.Forget(tk, 1))
}

// TestXattrIf: XATTR_CREATE and XATTR_REPLACE.
func TestXattrIf(t *testing.T) {
	x := fstest.New(t)
	tk := x.T
	root := x.FS.Root(tk)
	wantErr(t, "replace of nothing", root.SetxattrIf(tk, "user.a", []byte("1"), fs.XattrReplace), errno.ENOENT)
	x.Must(root.SetxattrIf(tk, "user.a", []byte("2"), fs.XattrCreate))
	wantErr(t, "create of what is there", root.SetxattrIf(tk, "user.a", []byte("3"), fs.XattrCreate), errno.EEXIST)
	x.Must(root.SetxattrIf(tk, "user.a", []byte("4"), fs.XattrReplace))
	if v, err := root.Getxattr(tk, "user.a"); string(v) != "4" || err != nil {
		t.Errorf("value %q, %v", v, err)
	}
	x.Must(root.Forget(tk, 1))
}

// TestSeekHole: data, a hole, data not written back yet, and the end of the file, which is a hole.
func TestSeekHole(t *testing.T) {
	x := fstest.New(t)
	f := x.Create("/f")
	x.WriteAt(f, make([]byte, 8192), 0)
	x.Must(f.Fsync(x.T))
	x.WriteAt(f, make([]byte, 100), 65536)
	for _, c := range []struct{ off, want int64 }{{0, 8192}, {8191, 8192}, {8192, 8192}, {9000, 9000}, {65536, 65636}, {65600, 65636}} {
		if have, err := f.SeekHole(x.T, c.off); have != c.want || err != nil {
			t.Errorf("hole from %d: have %d, %v want %d", c.off, have, err, c.want)
		}
	}
	if _, err := f.SeekHole(x.T, 65636); !errors.Is(err, io.EOF) {
		t.Errorf("hole at the end: %v, want io.EOF", err)
	}
	x.Must(f.Close(x.T))
}

// TestDirEnd: a reader that stops at DirEnd comes to an end while names are added.
func TestDirEnd(t *testing.T) {
	x := fstest.New(t)
	root := x.FS.Root(x.T)
	x.Must(x.FS.Mkdir(x.T, "/a", 0o755))
	end, err := root.DirEnd(x.T)
	x.Must(err)
	x.Must(x.FS.Mkdir(x.T, "/b", 0o755))
	var seen []uint64
	x.Must(root.ReadDir(x.T, 0, func(e fs.DirEntry) bool { seen = append(seen, e.Index); return true }))
	if len(seen) != 2 || seen[0] >= end || seen[1] < end {
		t.Errorf("end %d, indices %v", end, seen)
	}
	x.Must(root.Forget(x.T, 1))
}

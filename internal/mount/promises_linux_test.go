package mount

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/testing/fstest"
)

// What each request promises to a program, asked from outside: by another request, by the engine
// without the server, or by the image after a loss of power.

func (c *client) attr(id uint64) fuse.Attr {
	c.Helper()
	var out fuse.AttrOut
	c.want("getattr", c.s.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(id)}, &out), 0)
	return out.Attr
}

// setattr changes what valid says, and is told the attributes afterwards.
func (c *client) setattr(id uint64, valid uint32, set func(in *fuse.SetAttrInCommon)) fuse.Attr {
	c.Helper()
	in := fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: head(id), Valid: valid}}
	if set != nil {
		set(&in.SetAttrInCommon)
	}
	var out fuse.AttrOut
	c.want("setattr", c.s.SetAttr(nil, &in, &out), 0)
	if have := c.attr(id); have != out.Attr {
		c.Errorf("setattr answers %+v, getattr %+v", out.Attr, have)
	}
	return out.Attr
}

func (c *client) write(id, fh uint64, flags uint32, off uint64, text string) {
	c.Helper()
	n, st := c.s.Write(nil, &fuse.WriteIn{InHeader: head(id), Fh: fh, Flags: flags, Offset: off}, []byte(text))
	if c.want("write", st, 0); int(n) != len(text) {
		c.Errorf("wrote %d of %d bytes", n, len(text))
	}
}

// TestSetAttr: each bit sets its own field and no other; a change of the size is one of the file,
// with mtime and ctime, also to the size that it has (ftruncate(2), and O_TRUNC of an empty file).
func TestSetAttr(t *testing.T) {
	var now atomic.Int64 // each time stamp is a second after the one before
	x := fstest.New(t, fstest.FSOptions(func(o *fs.Options) {
		o.Now = func() time.Time { return fstest.Epoch.Add(time.Duration(now.Add(1)) * time.Second) }
	}))
	c := &client{x, newServer(x.FS, Options{})}
	t.Cleanup(func() { x.Must((&Mount{s: c.s}).Release(x.T)) })
	id, _ := c.create(1, "f", unix.O_RDWR)
	all := func(in *fuse.SetAttrInCommon) {
		in.Mode, in.Uid, in.Gid, in.Size = syscall.S_IFREG|0o4751, 7, 8, 123
		in.Atime, in.Atimensec, in.Mtime, in.Mtimensec = 1000, 1, 2000, 2
	}
	for _, k := range []struct {
		name  string
		valid uint32
		want  func(a *fuse.Attr)
	}{
		{"mode", fuse.FATTR_MODE, func(a *fuse.Attr) { a.Mode = syscall.S_IFREG | 0o4751 }},
		{"user", fuse.FATTR_UID, func(a *fuse.Attr) { a.Uid = 7 }},
		{"group", fuse.FATTR_GID, func(a *fuse.Attr) { a.Gid = 8 }},
		{"atime", fuse.FATTR_ATIME, func(a *fuse.Attr) { a.Atime, a.Atimensec = 1000, 1 }},
		{"mtime", fuse.FATTR_MTIME, func(a *fuse.Attr) { a.Mtime, a.Mtimensec = 2000, 2 }},
		{"size with mtime", fuse.FATTR_SIZE | fuse.FATTR_MTIME, func(a *fuse.Attr) { a.Size, a.Mtime, a.Mtimensec = 123, 2000, 2 }},
	} {
		want := c.attr(id)
		k.want(&want)
		have := c.setattr(id, k.valid, all)
		if have.Ctime <= want.Ctime {
			t.Errorf("%s: ctime %d is not after %d", k.name, have.Ctime, want.Ctime)
		}
		want.Ctime, want.Ctimensec = have.Ctime, have.Ctimensec
		if have != want {
			t.Errorf("%s: have %+v want %+v", k.name, have, want)
		}
	}
	for _, size := range []uint64{123, 5, 0, 0} {
		before := c.setattr(id, fuse.FATTR_MTIME, all)
		after := c.setattr(id, fuse.FATTR_SIZE, func(in *fuse.SetAttrInCommon) { in.Size = size })
		if after.Size != size || after.Mtime <= before.Ctime || after.Ctime != after.Mtime || after.Atime != before.Atime {
			t.Errorf("truncate from %d to %d: have %+v", before.Size, size, after)
		}
	}
	before := c.attr(id)
	if a := c.setattr(id, fuse.FATTR_ATIME|fuse.FATTR_ATIME_NOW, nil); a.Atime <= before.Ctime || a.Mtime != before.Mtime {
		t.Errorf("access time of now: %+v, before %+v", a, before)
	}
	if a := c.setattr(id, fuse.FATTR_MTIME|fuse.FATTR_MTIME_NOW, nil); a.Mtime <= before.Ctime {
		t.Errorf("time of now: %+v, before %+v", a, before)
	}
	c.setattr(id, fuse.FATTR_MODE, all)
	if a := c.setattr(id, fuse.FATTR_SIZE|fuse.FATTR_KILL_SUIDGID, nil); a.Mode != syscall.S_IFREG|0o751 {
		t.Errorf("truncate by a user without privileges leaves mode %o", a.Mode)
	}
}

// TestDurable: what fsync, fsync of a directory and a write with O_DSYNC have returned from is
// there after a loss of power; what only was written is not, so the test can tell.
func TestDurable(t *testing.T) {
	for _, k := range []struct {
		name  string
		flags uint32
		then  func(c *client, id, fh uint64)
		want  string
	}{
		{"write", unix.O_RDWR, nil, ""},
		{"O_DSYNC", unix.O_RDWR | unix.O_DSYNC, nil, "new"},
		{"O_SYNC", unix.O_RDWR | unix.O_SYNC, nil, "new"},
		{"O_DSYNC and O_DIRECT", unix.O_RDWR | unix.O_DSYNC | unix.O_DIRECT, nil, "new"},
		{"fsync", unix.O_RDWR, func(c *client, id, fh uint64) {
			c.want("fsync", c.s.Fsync(nil, &fuse.FsyncIn{InHeader: head(id), Fh: fh}), 0)
		}, "new"},
		{"fsync of another file", unix.O_RDWR, func(c *client, _, _ uint64) {
			id, fh := c.create(1, "other", unix.O_RDWR)
			c.want("fsync", c.s.Fsync(nil, &fuse.FsyncIn{InHeader: head(id), Fh: fh}), 0)
		}, ""},
	} {
		t.Run(k.name, func(t *testing.T) {
			x := fstest.New(t, fstest.Logging()...)
			c := &client{x, newServer(x.FS, Options{})}
			t.Cleanup(func() { x.Must((&Mount{s: c.s}).Release(x.T)) })
			id, fh := c.create(1, "f", unix.O_RDWR)
			x.Must(x.FS.Sync(x.T))
			c.write(id, fh, k.flags, 0, "new")
			if k.then != nil {
				k.then(c, id, fh)
			}
			if have := string(fstest.Recovered(t, x.T, x.Dev.(*blockdev.Memory).Snapshot())["f"]); have != k.want {
				t.Errorf("after a loss of power: have %q want %q", have, k.want)
			}
		})
	}
	x := fstest.New(t, fstest.Logging()...)
	c := &client{x, newServer(x.FS, Options{})}
	t.Cleanup(func() { x.Must((&Mount{s: c.s}).Release(x.T)) })
	x.Must(x.FS.Sync(x.T))
	_, fh := c.create(1, "f", unix.O_RDWR)
	c.s.Release(nil, &fuse.ReleaseIn{Fh: fh})
	names := func() int { return len(fstest.Recovered(t, x.T, x.Dev.(*blockdev.Memory).Snapshot())) }
	before := names()
	c.want("fsyncdir", c.s.FsyncDir(nil, &fuse.FsyncIn{InHeader: head(1)}), 0)
	if after := names(); after != before+1 {
		t.Errorf("after a loss of power: %d files before fsync of the directory, %d afterwards", before, after)
	}
}

// TestPast: a large write of whole sectors in place goes past the page cache and takes what was
// there of its range with it; others stay in the cache. What is read is what was written last.
func TestPast(t *testing.T) {
	const page = 4096
	for _, k := range []struct {
		name   string
		cow    bool
		off, n int
		want   int64 // pages in the cache afterwards
	}{
		{"in place", false, 0, large, 0},
		{"small", false, 0, large - page, large/page - 1},
		{"in part of a sector", false, 512, large, large/page + 1},
		{"across the end", false, 3 * large, 2 * large, 2 * large / page},
		{"copy on write", true, 0, large, large / page},
	} {
		t.Run(k.name, func(t *testing.T) {
			x := fstest.New(t)
			c := &client{x, newServer(x.FS, Options{Past: true})}
			t.Cleanup(func() { x.Must((&Mount{s: c.s}).Release(x.T)) })
			id, fh := c.create(1, "f", unix.O_RDWR)
			f := c.s.handles.get(fh).file
			if !k.cow {
				x.Must(f.Node().SetFlags(x.T, format.InodeNoDataCow))
			}
			c.write(id, fh, unix.O_RDWR, 0, strings.Repeat("a", 4*large))
			c.want("fsync", c.s.Fsync(nil, &fuse.FsyncIn{InHeader: head(id), Fh: fh}), 0)
			f.Inode().Pages.Invalidate(x.T, 0, 4*large/page)
			// a page in the way
			c.write(id, fh, unix.O_RDWR, uint64(k.off), strings.Repeat("b", 100))
			c.write(id, fh, unix.O_RDWR, uint64(k.off), strings.Repeat("c", k.n))
			if have := f.Inode().Pages.Pages(); have != k.want {
				t.Errorf("%d pages in the cache, want %d", have, k.want)
			}
			want := []byte(strings.Repeat("a", 4*large) + strings.Repeat("c", max(0, k.off+k.n-4*large)))
			copy(want[k.off:], strings.Repeat("c", k.n))
			have := make([]byte, len(want)+1)
			if n, _ := f.ReadAt(x.T, have, 0); !bytes.Equal(have[:n], want) {
				t.Errorf("read %d bytes that are not those written", n)
			}
		})
	}
}

// TestLinkHolds: each answer with a node is one more that the kernel must forget, that of link as
// that of create: only the last leaves the inode to be deleted.
func TestLinkHolds(t *testing.T) {
	c := newClient(t)
	id, fh := c.create(1, "f", unix.O_RDWR)
	c.write(id, fh, 0, 0, "still there")
	var e fuse.EntryOut
	c.want("link", c.s.Link(nil, &fuse.LinkIn{InHeader: head(1), Oldnodeid: id}, "g", &e), 0)
	if e.NodeId != id || e.Nlink != 2 {
		t.Errorf("link: node %d with %d links, want node %d with 2", e.NodeId, e.Nlink, id)
	}
	h := head(1)
	c.want("unlink", c.s.Unlink(nil, &h, "f"), 0)
	c.want("unlink", c.s.Unlink(nil, &h, "g"), 0)
	c.s.Release(nil, &fuse.ReleaseIn{Fh: fh})
	ino := format.Ino(c.attr(id).Ino)
	c.s.Forget(id, 1) // that of create
	if a := c.attr(id); a.Nlink != 0 || a.Size != 11 {
		t.Errorf("an orphan that the kernel still knows: %+v", a)
	}
	n, err := c.FS.Node(c.T, format.FS_TREE_OBJECTID, ino)
	c.Must(err)
	c.Must(n.Forget(c.T, 1))
	if c.attr(id).Size != 11 {
		t.Error("the kernel's lookup of link is gone with another's")
	}
	c.s.Forget(id, 1) // that of link
	if _, err := c.FS.Node(c.T, format.FS_TREE_OBJECTID, ino); err == nil {
		t.Error("the inode is still there")
	}
}

// TestSubvolumeNumbers: an inode has one number, by whichever request it is asked for, and inodes
// of different subvolumes different ones: tar and rsync take files with one number for hard links.
func TestSubvolumeNumbers(t *testing.T) {
	x := fstest.New(t)
	x.Must(x.FS.Subvolume(x.T, "/s1", 0o755))
	x.Must(x.FS.Subvolume(x.T, "/s2", 0o755))
	for _, p := range []string{"/f", "/s1/f", "/s2/f"} {
		x.Must(x.Create(p).Close(x.T))
	}
	c := &client{x, newServer(x.FS, Options{})}
	t.Cleanup(func() { x.Must((&Mount{s: c.s}).Release(x.T)) })
	of := map[uint64]string{}
	for _, dir := range []string{"", "s1", "s2"} {
		id, up := uint64(1), c.attr(1).Ino
		if dir != "" {
			e := c.lookup(1, dir)
			id = e.NodeId
			if e.Ino != c.attr(id).Ino {
				t.Errorf("%s: lookup says %d, getattr %d", dir, e.Ino, c.attr(id).Ino)
			}
		}
		f := c.lookup(id, "f")
		for name, ino := range map[string]uint64{dir: c.attr(id).Ino, dir + "/f": f.Ino} {
			if had, ok := of[ino]; ok {
				t.Errorf("%q and %q have number %d", had, name, ino)
			}
			of[ino] = name
		}
		var st fuse.StatxOut
		c.want("statx", c.s.Statx(nil, &fuse.StatxIn{InHeader: head(f.NodeId)}, &st), 0)
		if st.Ino != f.Ino {
			t.Errorf("%s/f: statx says %d, lookup %d", dir, st.Ino, f.Ino)
		}
		list := c.list(id)
		for _, want := range []fuse.DirEntry{{Name: ".", Ino: c.attr(id).Ino, Mode: syscall.S_IFDIR}, {Name: "..", Ino: up, Mode: syscall.S_IFDIR}, {Name: "f", Ino: f.Ino, Mode: syscall.S_IFREG}} {
			if !slices.ContainsFunc(list, func(e fuse.DirEntry) bool { return e.Name == want.Name && e.Ino == want.Ino && e.Mode == want.Mode }) {
				t.Errorf("%q: have %v want %v", dir, list, want)
			}
		}
	}
}

func (c *client) list(dir uint64) []fuse.DirEntry {
	c.Helper()
	var open fuse.OpenOut
	c.want("opendir", c.s.OpenDir(nil, &fuse.OpenIn{InHeader: head(dir)}, &open), 0)
	defer c.s.ReleaseDir(&fuse.ReleaseIn{Fh: open.Fh})
	out := fuse.NewDirEntryList(make([]byte, 8192), 0)
	c.want("readdir", c.s.ReadDir(nil, &fuse.ReadIn{InHeader: head(dir), Fh: open.Fh, Size: 8192}, out), 0)
	list, err := fuse.ParseDirEntries(out.Bytes())
	c.Must(err)
	return list
}

// TestStatx: what statx shows is what getattr shows, and what that has no place for: the time of
// birth, and the flags with the list of those that are known.
func TestStatx(t *testing.T) {
	c := newClient(t)
	id, fh := c.create(1, "f", unix.O_RDWR)
	c.write(id, fh, 0, 0, "content")
	c.Must(c.FS.Sync(c.T))
	var dev fuse.EntryOut
	c.want("mknod", c.s.Mknod(nil, &fuse.MknodIn{InHeader: head(1), Mode: syscall.S_IFBLK | 0o640, Rdev: uint32(unix.Mkdev(259, 70000))}, "d", &dev), 0)
	if dev.Rdev != uint32(unix.Mkdev(259, 70000)) {
		t.Errorf("device %#x", dev.Rdev)
	}
	c.setattr(id, fuse.FATTR_ATIME|fuse.FATTR_MTIME, func(in *fuse.SetAttrInCommon) { in.Atime, in.Mtime, in.Mtimensec = 1000, 2000, 3 })
	const known = unix.STATX_ATTR_APPEND | unix.STATX_ATTR_COMPRESSED | unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_NODUMP
	for _, node := range []uint64{1, id, dev.NodeId} {
		var x fuse.StatxOut
		c.want("statx", c.s.Statx(nil, &fuse.StatxIn{InHeader: head(node)}, &x), 0)
		have := fuse.Attr{Ino: x.Ino, Size: x.Size, Blocks: x.Blocks, Mode: uint32(x.Mode), Nlink: x.Nlink, Owner: fuse.Owner{Uid: x.Uid, Gid: x.Gid}, Blksize: x.Blksize,
			Atime: x.Atime.Sec, Atimensec: x.Atime.Nsec, Mtime: x.Mtime.Sec, Mtimensec: x.Mtime.Nsec, Ctime: x.Ctime.Sec, Ctimensec: x.Ctime.Nsec}
		want := c.attr(node)
		if unix.Mkdev(x.RdevMajor, x.RdevMinor) != uint64(want.Rdev) {
			t.Errorf("device %d:%d, want %#x", x.RdevMajor, x.RdevMinor, want.Rdev)
		}
		if want.Rdev = 0; have != want {
			t.Errorf("statx %+v, getattr %+v", have, want)
		}
		if x.Btime.Sec == 0 || x.Btime.Sec > want.Ctime || x.Mask&unix.STATX_BTIME == 0 || x.Mask&unix.STATX_BASIC_STATS != unix.STATX_BASIC_STATS || x.AttributesMask != known || x.Attributes != 0 {
			t.Errorf("%+v", x.Statx)
		}
	}
	for i, f := range []byte{0x20, 0x4, 0x10, 0x40} { // chattr +a, +c, +i, +d
		c.want("flags", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: head(id), Cmd: ioctlSetFlags}, []byte{f, 0, 0, 0}, nil, nil), 0)
		var x fuse.StatxOut
		c.want("statx", c.s.Statx(nil, &fuse.StatxIn{InHeader: head(id)}, &x), 0)
		if want := []uint64{unix.STATX_ATTR_APPEND, unix.STATX_ATTR_COMPRESSED, unix.STATX_ATTR_IMMUTABLE, unix.STATX_ATTR_NODUMP}[i]; x.Attributes != want {
			t.Errorf("flag %#x: have %#x want %#x", f, x.Attributes, want)
		}
	}
	c.want("flags", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: head(id), Cmd: ioctlSetFlags}, make([]byte, 4), nil, nil), 0)
}

// TestKinds: each kind of file is made as what it is, and the directory says so.
func TestKinds(t *testing.T) {
	c := newClient(t)
	for _, mode := range []uint32{syscall.S_IFREG, syscall.S_IFCHR, syscall.S_IFBLK, syscall.S_IFIFO, syscall.S_IFSOCK} {
		var e fuse.EntryOut
		c.want("mknod", c.s.Mknod(nil, &fuse.MknodIn{InHeader: head(1), Mode: mode | 0o666, Umask: 0o027}, fmt.Sprintf("%o", mode), &e), 0)
		if e.Mode != mode|0o640 {
			t.Errorf("made %o want %o", e.Mode, mode|0o640)
		}
	}
	c.mkdir(1, fmt.Sprintf("%o", syscall.S_IFDIR))
	var e fuse.EntryOut
	h := head(1)
	c.want("symlink", c.s.Symlink(nil, &h, "to/where", fmt.Sprintf("%o", syscall.S_IFLNK), &e), 0)
	link := head(e.NodeId)
	if to, st := c.s.Readlink(nil, &link); st != fuse.OK || string(to) != "to/where" {
		t.Errorf("readlink: %q, %v", to, st)
	}
	list := c.list(1)
	if len(list) != 2+7 {
		t.Errorf("%d entries: %v", len(list), list)
	}
	for _, e := range list[2:] {
		if fmt.Sprintf("%o", e.Mode) != e.Name || c.lookup(1, e.Name).Mode&syscall.S_IFMT != e.Mode {
			t.Errorf("%s is listed as %o", e.Name, e.Mode)
		}
	}
}

// TestRenames: the flags of renameat2(2).
func TestRenames(t *testing.T) {
	c := newClient(t)
	a, _ := c.create(1, "a", unix.O_RDWR)
	b, _ := c.create(1, "b", unix.O_RDWR)
	d := c.mkdir(1, "d")
	rename := func(from, to string, dir uint64, flags uint32) fuse.Status {
		return c.s.Rename(nil, &fuse.RenameIn{InHeader: head(1), Newdir: dir, Flags: flags}, from, to)
	}
	is := func(what string, dir uint64, name string, want uint64) {
		t.Helper()
		if e := c.lookup(dir, name); e.NodeId != want {
			t.Errorf("%s: %s is node %d, want %d", what, name, e.NodeId, want)
		}
	}
	c.want("to a name that is there", rename("a", "b", 1, unix.RENAME_NOREPLACE), syscall.EEXIST)
	is("after a refusal", 1, "b", b)
	c.want("exchange", rename("a", "b", 1, unix.RENAME_EXCHANGE), 0)
	is("after an exchange", 1, "a", b)
	is("after an exchange", 1, "b", a)
	c.want("into a directory", rename("b", "c", d, 0), 0)
	is("after a move", d, "c", a)
	is("after a move", 1, "b", 0)
	c.want("whiteout", rename("a", "w", 1, unix.RENAME_WHITEOUT), 0)
	is("after a whiteout", 1, "w", b)
	if e := c.lookup(1, "a"); e.Mode != syscall.S_IFCHR || e.Rdev != 0 {
		t.Errorf("whiteout: mode %o, device %#x", e.Mode, e.Rdev)
	}
	c.want("to a directory that is forgotten", rename("w", "x", 999, 0), syscall.ESTALE)
}

// TestDropped: a change by a process that is not root takes setuid away, one of root does not.
func TestDropped(t *testing.T) {
	c := newClient(t)
	id, fh := c.create(1, "f", unix.O_RDWR)
	src, from := c.create(1, "src", unix.O_RDWR)
	c.write(src, from, 0, 0, string(bytes.Repeat([]byte{'x'}, 4096)))
	for _, k := range []struct {
		name string
		do   func(h fuse.InHeader) fuse.Status
	}{
		{"fallocate", func(h fuse.InHeader) fuse.Status {
			return c.s.Fallocate(nil, &fuse.FallocateIn{InHeader: h, Fh: fh, Length: 4096})
		}},
		{"copy_file_range", func(h fuse.InHeader) fuse.Status {
			h.NodeId = src
			_, st := c.s.CopyFileRange(nil, &fuse.CopyFileRangeIn{InHeader: h, FhIn: from, NodeIdOut: id, FhOut: fh, Len: 4096})
			return st
		}},
	} {
		for uid, want := range map[uint32]uint32{0: 0o4755, 1000: 0o755} {
			c.setattr(id, fuse.FATTR_MODE, func(in *fuse.SetAttrInCommon) { in.Mode = 0o4755 })
			h := head(id)
			h.Uid = uid
			c.want(k.name, k.do(h), 0)
			if have := c.attr(id).Mode & 0o7777; have != want {
				t.Errorf("%s by user %d: mode %o want %o", k.name, uid, have, want)
			}
		}
	}
	if have := c.ReadFile("/f"); !bytes.Equal(have, bytes.Repeat([]byte{'x'}, 4096)) {
		t.Errorf("copied %d bytes, or others", len(have))
	}
}

// TestSeek: data and holes, and where there is none.
func TestSeek(t *testing.T) {
	c := newClient(t)
	id, fh := c.create(1, "f", unix.O_RDWR)
	c.write(id, fh, 0, 8192, string(bytes.Repeat([]byte{'x'}, 4096)))
	c.setattr(id, fuse.FATTR_SIZE, func(in *fuse.SetAttrInCommon) { in.Size = 20000 })
	for _, k := range []struct {
		whence uint32
		off    uint64
		want   uint64
		err    syscall.Errno
	}{
		{unix.SEEK_DATA, 0, 8192, 0}, {unix.SEEK_DATA, 9000, 9000, 0}, {unix.SEEK_DATA, 12288, 0, syscall.ENXIO}, {unix.SEEK_DATA, 20000, 0, syscall.ENXIO},
		{unix.SEEK_HOLE, 0, 0, 0}, {unix.SEEK_HOLE, 8192, 12288, 0}, {unix.SEEK_HOLE, 20000, 0, syscall.ENXIO}, {unix.SEEK_HOLE, 1 << 63, 0, syscall.ENXIO},
		{unix.SEEK_SET, 5, 0, syscall.EINVAL},
	} {
		var out fuse.LseekOut
		st := c.s.Lseek(nil, &fuse.LseekIn{InHeader: head(id), Fh: fh, Whence: k.whence, Offset: k.off}, &out)
		if c.want(fmt.Sprintf("lseek %d from %d", k.whence, k.off), st, k.err); k.err == 0 && out.Offset != k.want {
			t.Errorf("lseek %d from %d: have %d want %d", k.whence, k.off, out.Offset, k.want)
		}
	}
}

// TestStatFs: the figures are those of the engine, in blocks, and no file makes them larger.
func TestStatFs(t *testing.T) {
	c := newClient(t)
	var a fuse.StatfsOut
	h := head(1)
	c.want("statfs", c.s.StatFs(nil, &h, &a), 0)
	st := c.FS.Statfs(c.T)
	if a.Blocks*uint64(a.Bsize) != st.Total || a.Bavail*uint64(a.Bsize) != st.Free || a.Bfree*uint64(a.Bsize) != st.Total-st.Used || a.Frsize != a.Bsize || a.NameLen != 255 {
		t.Errorf("have %+v, the engine says %+v", a, st)
	}
	if a.Bavail == 0 || a.Bfree > a.Blocks {
		t.Errorf("an empty file system: %+v", a)
	}
}

// TestXattrs: an attribute is set, read, listed and removed, an access control list as well, and
// the flags of chattr come back as they were set, by both ioctls.
func TestXattrs(t *testing.T) {
	c := newClient(t)
	id, _ := c.create(1, "f", unix.O_RDWR)
	h := head(id)
	acl := []byte{2, 0, 0, 0,
		1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 42, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 0x10, 0, 4, 0, 255, 255, 255, 255, 0x20, 0, 4, 0, 255, 255, 255, 255}
	for name, value := range map[string]string{"user.a": "value", "trusted.b": "", fs.ACLAccess: string(acl)} {
		c.want("set "+name, c.s.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h}, name, []byte(value)), 0)
		p := make([]byte, 100)
		n, st := c.s.GetXAttr(nil, &h, name, p)
		if c.want("get "+name, st, 0); string(p[:n]) != value {
			t.Errorf("%s: have %q want %q", name, p[:n], value)
		}
		c.want("remove "+name, c.s.RemoveXAttr(nil, &h, name), 0)
		_, st = c.s.GetXAttr(nil, &h, name, p)
		c.want("get what is removed", st, syscall.ENODATA)
		c.want("remove what is removed", c.s.RemoveXAttr(nil, &h, name), syscall.ENODATA)
	}
	c.want("remove of no namespace", c.s.RemoveXAttr(nil, &h, "other.a"), syscall.EOPNOTSUPP)
	for _, x := range format.HostFlags {
		if x.Inode&(format.InodeNoDataCow|format.InodeNoCompress) != 0 {
			continue // of an empty file, and together with others, only
		}
		for _, set := range []struct {
			cmd, get uint32
			flag     uint32
			size     int
		}{{ioctlSetFlags, ioctlGetFlags, x.Attr, sizeofFlags}, {ioctlSetXflags, ioctlGetXflags, x.X, sizeofFsxattr}} {
			if set.flag == 0 || x.Inode == format.InodeDirSync {
				continue
			}
			p := make([]byte, set.size)
			p[0] = byte(set.flag)
			c.want("set flags", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: h, Cmd: set.cmd}, p, nil, nil), 0)
			out := bytes.Repeat([]byte{0xee}, set.size)
			c.want("get flags", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: h, Cmd: set.get}, nil, nil, out), 0)
			if !bytes.Equal(out, p) {
				t.Errorf("flag %#x: have %x want %x", set.flag, out, p)
			}
			n, err := c.FS.NodeAt(c.T, "/f")
			c.Must(err)
			if n.Flags()&x.Inode == 0 {
				t.Errorf("flag %#x: the inode has %#x, want %#x", set.flag, n.Flags(), x.Inode)
			}
			c.Must(n.Forget(c.T, 1))
			p[0] = 0
			c.want("clear flags", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: h, Cmd: set.cmd}, p, nil, nil), 0)
		}
	}
}

// TestTimeouts: the kernel may remember names for long, since it is who changes them, and
// attributes for a short time only, since blocks change by themselves.
func TestTimeouts(t *testing.T) {
	c := newClient(t)
	c.create(1, "f", unix.O_RDWR)
	e := c.lookup(1, "f")
	if e.EntryTimeout() < time.Minute || e.AttrTimeout() <= 0 || e.AttrTimeout() > 10*time.Second {
		t.Errorf("names for %v, attributes for %v", e.EntryTimeout(), e.AttrTimeout())
	}
}

// TestExclusive: O_EXCL is of a name that is not there; a file without a name has no link and goes
// with its last lookup.
func TestExclusive(t *testing.T) {
	c := newClient(t)
	c.create(1, "f", unix.O_RDWR)
	var out fuse.CreateOut
	in := &fuse.CreateIn{InHeader: head(1), Flags: unix.O_RDWR | unix.O_EXCL, Mode: 0o644 | syscall.S_IFREG}
	c.want("create again", c.s.Create(nil, in, "f", &out), syscall.EEXIST)
	c.want("tmpfile", c.s.Tmpfile(nil, in, &out), 0)
	if out.Nlink != 0 {
		t.Errorf("a file without a name has %d links", out.Nlink)
	}
	var e fuse.EntryOut
	c.want("a name for a file with O_EXCL", c.s.Link(nil, &fuse.LinkIn{InHeader: head(1), Oldnodeid: out.NodeId}, "g", &e), syscall.ENOENT)
	in.Flags = unix.O_RDWR
	c.want("tmpfile", c.s.Tmpfile(nil, in, &out), 0)
	c.want("a name for a file without one", c.s.Link(nil, &fuse.LinkIn{InHeader: head(1), Oldnodeid: out.NodeId}, "g", &e), 0)
	if e.NodeId != out.NodeId || e.Nlink != 1 {
		t.Errorf("with its name: %+v", e)
	}
}

// TestBackUnread: what the kernel gives back is laid over what the file holds by now. If that
// cannot be read nothing is written, and the kernel is told: zeros would take another's bytes away.
func TestBackUnread(t *testing.T) {
	k := new(kernelPages)
	k.open()
	none := func() error { return nil }
	file := bytes.Repeat([]byte{'f'}, page)
	whole := func(p []byte, off uint64) error { copy(p, file[off:]); return nil }
	if err := errors.Join(k.give(0, page, none), k.change(0, 10, whole, func() error { copy(file, "0123456789"); return nil })); err != nil {
		t.Fatal(err)
	}
	kernel := append(bytes.Repeat([]byte{'f'}, page-5), "store"...)
	wrote := 0
	write := func(p []byte) error { wrote++; copy(file, p); return nil }
	if err := k.back(0, kernel, func([]byte, uint64) error { return syscall.EIO }, write); !errors.Is(err, syscall.EIO) || wrote > 0 {
		t.Errorf("have %v, %d writes; want EIO and none", err, wrote)
	}
	if err := k.back(0, kernel, whole, write); err != nil || wrote != 1 || !bytes.HasPrefix(file, []byte("0123456789f")) || !bytes.HasSuffix(file, []byte("fstore")) {
		t.Errorf("have %v, %d writes, %q", err, wrote, file)
	}
}

// TestHugePunch: a hole of exabytes in a file that is mapped takes no longer than the pages that
// the kernel has, and the bases of pages of zeros no memory.
func TestHugePunch(t *testing.T) {
	k := new(kernelPages)
	k.open()
	none := func() error { return nil }
	read := func(p []byte, off uint64) error {
		clear(p)
		if off == 0 {
			p[0] = 'f'
		}
		return nil
	}
	for _, off := range []uint64{0, 100 * page, 1 << 40} {
		if err := k.give(off, page, none); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []struct {
		off, n uint64
		want   []uint64
	}{
		{1, 0, nil},
		{0, 1, []uint64{0}},
		{page - 1, 2, []uint64{0}},
		{page, 99 * page, nil},
		{99*page + 1, page, []uint64{100}},
		{page, 1 << 62, []uint64{100, 1 << 40 / page}},
		{0, 1<<63 - 1, []uint64{0, 100, 1 << 40 / page}},
	} {
		have := k.given(r.off, r.n)
		slices.Sort(have)
		if !slices.Equal(have, r.want) {
			t.Errorf("%d bytes from %d on: have pages %v want %v", r.n, r.off, have, r.want)
		}
	}
	wrote := 0
	if err := k.change(0, 1<<62, read, func() error { wrote++; return nil }); err != nil || wrote != 1 || len(k.base) != 3 {
		t.Errorf("have %v, %d writes, %d bases", err, wrote, len(k.base))
	}
	if &k.base[100].bytes[0] != &k.base[1<<40/page].bytes[0] || k.base[0].bytes[0] != 'f' {
		t.Error("each page of zeros has a base of its own")
	}
	// What comes back into one of them is not in the other.
	if err := k.back(100*page, []byte("store"), read, func([]byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if string(k.base[100].bytes[:5]) != "store" || !bytes.Equal(k.base[1<<40/page].bytes, make([]byte, page)) {
		t.Errorf("bases %q and %q", k.base[100].bytes[:5], k.base[1<<40/page].bytes[:5])
	}
}

// TestZeroedEnds: of a page that a punch, a zeroing or a truncate leaves in part, the kernel keeps
// the rest and sets the part to zero. A store of what was there before is one then. What the kernel
// sent before it heard of the punch brings nothing back.
func TestZeroedEnds(t *testing.T) {
	for _, k := range []struct {
		name string
		zero func(k *kernelPages, read reader, write func() error) error
	}{
		{"punch", func(k *kernelPages, read reader, write func() error) error {
			return k.zero(1000, 2*page-1000, read, write)
		}},
		{"truncate after a write", func(k *kernelPages, read reader, write func() error) error {
			return errors.Join(k.change(0, 10, read, func() error { return nil }), k.truncate(1000, write))
		}},
	} {
		t.Run(k.name, func(t *testing.T) {
			file := bytes.Repeat([]byte{'f'}, 2*page)
			read := func(p []byte, off uint64) error { copy(p, file[off:]); return nil }
			write := func(p []byte) error { copy(file, p); return nil }
			p := new(kernelPages)
			p.open()
			if err := p.give(0, page, func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			kernel := slices.Clone(file[:page])
			if err := k.zero(p, read, func() error { clear(file[1000:]); return nil }); err != nil {
				t.Fatal(err)
			}
			clear(kernel[1000:])
			copy(kernel[2000:], "ff")
			if err := p.back(0, kernel, read, write); err != nil {
				t.Fatal(err)
			}
			want := append(bytes.Repeat([]byte{'f'}, 1000), make([]byte, 2*page-1000)...)
			copy(want[2000:], "ff")
			if !bytes.Equal(file, want) {
				t.Errorf("a store of what was there: have %q at 2000 and %q at 999", file[2000:2003], file[999:1002])
			}
		})
	}
	file := bytes.Repeat([]byte{'f'}, 2*page)
	read := func(b []byte, off uint64) error { copy(b, file[off:]); return nil }
	write := func(b []byte) error { copy(file, b); return nil }
	p := new(kernelPages)
	p.open()
	old := append([]byte("store"), file[5:page]...)
	sent := p.zeroed.Load()
	if err := errors.Join(
		p.give(0, page, func() error { return nil }),
		p.zero(1000, 100, read, func() error { clear(file[1000:1100]); return nil }),
		p.backSince(sent, 0, old, read, write),
	); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(file, []byte("storef")) || !bytes.Equal(file[999:1101], append(append([]byte{'f'}, make([]byte, 100)...), 'f')) {
		t.Errorf("sent before the punch: have %q and %q", file[:6], file[999:1101])
	}
	clear(old[1000:1100])
	old[1050] = 'f'
	if err := p.back(0, old, read, write); err != nil || file[1050] != 'f' || file[1049] != 0 || file[0] != 's' {
		t.Errorf("sent afterwards: have %v, %q and %q", err, file[:6], file[1049:1052])
	}
}

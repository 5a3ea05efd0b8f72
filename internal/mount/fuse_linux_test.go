package mount

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/format"
	"btrlab/internal/testing/fstest"
)

// Requests as the kernel makes them, without a mount.

// client makes requests of a server.
type client struct {
	*fstest.Fixture
	s *server
}

func newClient(t *testing.T) *client {
	x := fstest.New(t)
	c := &client{x, newServer(x.FS, Options{})}
	t.Cleanup(func() { x.Must((&Mount{s: c.s}).Release(x.T)) })
	return c
}

func head(id uint64) fuse.InHeader {
	return fuse.InHeader{NodeId: id, Caller: fuse.Caller{Owner: fuse.Owner{Uid: 1000, Gid: 100}}}
}

func (c *client) want(what string, have fuse.Status, want syscall.Errno) {
	c.Helper()
	if have != fuse.Status(want) {
		c.Errorf("%s: have %v want %v", what, have, fuse.Status(want))
	}
}

func (c *client) create(dir uint64, name string, flags uint32) (id, fh uint64) {
	c.Helper()
	var out fuse.CreateOut
	c.want("create "+name, c.s.Create(nil, &fuse.CreateIn{InHeader: head(dir), Flags: flags, Mode: 0o666 | syscall.S_IFREG, Umask: 0o022}, name, &out), 0)
	return out.NodeId, out.Fh
}

func (c *client) mkdir(dir uint64, name string) uint64 {
	c.Helper()
	var out fuse.EntryOut
	c.want("mkdir "+name, c.s.Mkdir(nil, &fuse.MkdirIn{InHeader: head(dir), Mode: 0o777, Umask: 0o022}, name, &out), 0)
	return out.NodeId
}

// lookup is the node with the name, 0 when the kernel is told to remember that there is none.
func (c *client) lookup(dir uint64, name string) fuse.EntryOut {
	c.Helper()
	var out fuse.EntryOut
	h := head(dir)
	c.want("lookup "+name, c.s.Lookup(nil, &h, name, &out), 0)
	return out
}

// TestNodes: an inode has one number while the kernel has lookups of it, and none afterwards.
func TestNodes(t *testing.T) {
	c := newClient(t)
	id, fh := c.create(fuse.FUSE_ROOT_ID, "f", unix.O_RDWR)
	if e := c.lookup(1, "f"); e.NodeId != id || e.Mode != syscall.S_IFREG|0o644 || e.Uid != 1000 || e.Gid != 100 || e.Generation == 0 {
		t.Errorf("lookup: %+v, want node %d", e, id)
	}
	if e := c.lookup(1, "nothing"); e.NodeId != 0 || e.EntryTimeout() == 0 {
		t.Errorf("lookup of nothing: %+v", e)
	}
	h := head(1)
	c.want("unlink", c.s.Unlink(nil, &h, "f"), 0)
	n, st := c.s.Write(nil, &fuse.WriteIn{InHeader: head(id), Fh: fh}, []byte("still there"))
	if c.want("write after unlink", st, 0); n != 11 {
		t.Errorf("wrote %d", n)
	}
	c.s.Forget(id, 1)
	c.s.Release(nil, &fuse.ReleaseIn{Fh: fh})
	var out fuse.AttrOut
	c.want("getattr of an orphan", c.s.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(id)}, &out), 0)
	if out.Nlink != 0 || out.Size != 11 {
		t.Errorf("orphan: %+v", out.Attr)
	}
	ino := format.Ino(out.Ino)
	c.s.Forget(id, 1)
	c.want("getattr of what is forgotten", c.s.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(id)}, &out), syscall.ESTALE)
	if _, err := c.FS.Node(c.T, format.FS_TREE_OBJECTID, ino); err == nil {
		t.Errorf("inode %d is still there", ino)
	}
	c.want("read of a closed file", func() fuse.Status { _, st := c.s.Read(nil, &fuse.ReadIn{Fh: fh}, make([]byte, 1)); return st }(), syscall.EBADF)
}

// TestAnswers: what the kernel is told where nothing was done.
func TestAnswers(t *testing.T) {
	c := newClient(t)
	id, fh := c.create(1, "f", unix.O_RDWR)
	h, file := head(1), head(id)
	var e fuse.EntryOut
	c.want("a long name", c.s.Lookup(nil, &h, strings.Repeat("n", 256), &e), syscall.ENAMETOOLONG)
	c.want("rmdir of a file", c.s.Rmdir(nil, &h, "f"), syscall.ENOTDIR)
	c.want("mknod over a name", c.s.Mknod(nil, &fuse.MknodIn{InHeader: h, Mode: syscall.S_IFIFO}, "f", &e), syscall.EEXIST)
	get := func(name string) fuse.Status { _, st := c.s.GetXAttr(nil, &file, name, nil); return st }
	c.want("no such attribute", get("user.x"), syscall.ENODATA)
	c.want("no such namespace", get("system.x"), syscall.EOPNOTSUPP)
	c.want("no namespace", get("user."), syscall.EOPNOTSUPP)
	set := func(flags uint32) fuse.Status {
		return c.s.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: file, Flags: flags}, "user.a", []byte("value"))
	}
	c.want("replace of nothing", set(unix.XATTR_REPLACE), syscall.ENODATA)
	c.want("create", set(unix.XATTR_CREATE), 0)
	c.want("create again", set(unix.XATTR_CREATE), syscall.EEXIST)
	size, st := c.s.GetXAttr(nil, &file, "user.a", nil)
	if c.want("size", st, 0); size != 5 {
		t.Errorf("size %d", size)
	}
	_, st = c.s.GetXAttr(nil, &file, "user.a", make([]byte, 4))
	c.want("short buffer", st, syscall.ERANGE)
	list := make([]byte, 64)
	size, st = c.s.ListXAttr(nil, &file, list)
	if c.want("list", st, 0); string(list[:size]) != "user.a\x00" {
		t.Errorf("list %q", list[:size])
	}
	c.want("ioctl", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: file, Cmd: 1}, nil, nil, nil), syscall.ENOTTY)
	c.want("a flag that is none", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: file, Cmd: ioctlSetFlags}, []byte{1, 0, 0, 0}, nil, nil), syscall.EOPNOTSUPP)
	c.want("immutable", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: file, Cmd: ioctlSetFlags}, []byte{0x10, 0, 0, 0}, nil, nil), 0)
	flags := make([]byte, 28)
	c.want("flags", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: file, Cmd: ioctlGetFlags}, nil, nil, flags[:4]), 0)
	c.want("xflags", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: file, Cmd: ioctlGetXflags}, nil, nil, flags[4:][:28-4]), syscall.ENOTTY)
	if flags[0] != 0x10 {
		t.Errorf("flags %x", flags)
	}
	c.want("xflags", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: file, Cmd: ioctlGetXflags}, nil, nil, flags), 0)
	if flags[0] != 0x8 {
		t.Errorf("xflags %x", flags)
	}
	c.want("unlink of an immutable file", c.s.Unlink(nil, &h, "f"), syscall.EPERM)
	c.want("xflags off", c.s.Ioctl(nil, &fuse.IoctlIn{InHeader: file, Cmd: ioctlSetXflags}, make([]byte, 28), nil, nil), 0)
	var off fuse.LseekOut
	c.want("data in an empty file", c.s.Lseek(nil, &fuse.LseekIn{Fh: fh, Whence: unix.SEEK_DATA}, &off), syscall.ENXIO)
}

// TestDevices: the numbers of user space and of an inode item.
func TestDevices(t *testing.T) {
	for _, d := range []struct{ major, minor uint32 }{{1, 3}, {8, 255}, {259, 70000}, {4095, 1<<20 - 1}} {
		rdev := uint64(d.major)<<20 | uint64(d.minor)
		// glibc's makedev has the same 32 bits for these
		if have, want := format.EncodeDev(rdev), unix.Mkdev(d.major, d.minor); have != want || format.DecodeDev(have) != rdev {
			t.Errorf("%d:%d: have %#x want %#x, back %#x", d.major, d.minor, have, want, format.DecodeDev(have))
		}
	}
}

// TestReadDir: the offset after an entry stays right while names before and after it go and come,
// and names that came after the first read are not in it.
func TestReadDir(t *testing.T) {
	for _, plus := range []bool{false, true} {
		t.Run(fmt.Sprintf("plus=%v", plus), func(t *testing.T) {
			c := newClient(t)
			d := c.mkdir(1, "d")
			for i := range 600 {
				_, fh := c.create(d, fmt.Sprintf("n%03d", i), unix.O_RDONLY)
				c.s.Release(nil, &fuse.ReleaseIn{Fh: fh})
			}
			var open fuse.OpenOut
			c.want("opendir", c.s.OpenDir(nil, &fuse.OpenIn{InHeader: head(d)}, &open), 0)
			h := head(d)
			var have []string
			for off, round := uint64(0), 0; ; round++ {
				buf := make([]byte, 2000)
				out := fuse.NewDirEntryList(buf, off)
				in := &fuse.ReadIn{InHeader: head(d), Fh: open.Fh, Offset: off, Size: 2000}
				var list []fuse.DirEntry
				var err error
				if plus {
					c.want("readdirplus", c.s.ReadDirPlus(nil, in, out), 0)
					var entries []fuse.EntryOut
					list, entries, err = fuse.ParseDirLookupEntries(out.Bytes())
					for i, e := range entries {
						if dot := strings.HasPrefix(list[i].Name, "."); dot != (e.NodeId == 0) || !dot && e.Attr.Ino != list[i].Ino {
							t.Errorf("entry %q: %+v", list[i].Name, e)
						}
					}
				} else {
					c.want("readdir", c.s.ReadDir(nil, in, out), 0)
					list, err = fuse.ParseDirEntries(out.Bytes())
				}
				c.Must(err)
				if len(list) == 0 {
					break
				}
				for _, e := range list {
					have, off = append(have, e.Name), e.Off
				}
				if round == 0 {
					c.want("unlink of one that was read", c.s.Unlink(nil, &h, "n000"), 0)
					c.want("unlink of one to come", c.s.Unlink(nil, &h, "n599"), 0)
				}
				c.mkdir(d, fmt.Sprintf("late%d", round))
			}
			want := []string{".", ".."}
			for i := range 599 {
				want = append(want, fmt.Sprintf("n%03d", i))
			}
			if !slices.Equal(have, want) {
				t.Errorf("have %d names, want %d: %v", len(have), len(want), have)
			}
		})
	}
}

// TestWriteKillsSUID: a write of a process without CAP_FSETID takes setuid away before its bytes
// are there.
func TestWriteKillsSUID(t *testing.T) {
	c := newClient(t)
	id, fh := c.create(1, "f", unix.O_RDWR)
	in := &fuse.SetAttrIn{SetAttrInCommon: fuse.SetAttrInCommon{InHeader: head(id), Valid: fuse.FATTR_MODE, Mode: 0o6755}}
	var out fuse.AttrOut
	c.want("chmod", c.s.SetAttr(nil, in, &out), 0)
	_, st := c.s.Write(nil, &fuse.WriteIn{InHeader: head(id), Fh: fh}, []byte("by root"))
	c.want("write", st, 0)
	c.want("getattr", c.s.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(id)}, &out), 0)
	if out.Mode&0o7777 != 0o6755 {
		t.Errorf("after a write of root: mode %o", out.Mode)
	}
	_, st = c.s.Write(nil, &fuse.WriteIn{InHeader: head(id), Fh: fh, WriteFlags: fuse.WRITE_KILL_SUIDGID}, []byte("by another"))
	c.want("write", st, 0)
	c.want("getattr", c.s.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(id)}, &out), 0)
	if out.Mode&0o7777 != 0o755 {
		t.Errorf("after a write of another user: mode %o", out.Mode)
	}
}

// TestMappedWrites: a write past the kernel's cache, and a store into the same page through a
// mapping, are both in the file, in whichever order the kernel gives the page back; without the
// base of a page the kernel's old bytes take the write back (xfstests generic/344).
func TestMappedWrites(t *testing.T) {
	c := newClient(t)
	id, fh := c.create(1, "f", unix.O_RDWR)
	const size = 2*4096 + 100
	write := func(flags uint32, off uint64, p []byte) {
		t.Helper()
		_, st := c.s.Write(nil, &fuse.WriteIn{InHeader: head(id), Fh: fh, Offset: off, WriteFlags: flags}, p)
		c.want("write", st, 0)
	}
	read := func(flags uint32, off uint64, n int) []byte {
		t.Helper()
		p := make([]byte, n)
		r, st := c.s.Read(nil, &fuse.ReadIn{InHeader: head(id), Fh: fh, Offset: off, Size: uint32(n), ReadFlags: flags}, p)
		c.want("read", st, 0)
		have, _ := r.Bytes(p)
		return have
	}
	want := func(what string, off int, text string) {
		t.Helper()
		if have := read(fuse.READ_LOCKOWNER, uint64(off), len(text)); string(have) != text {
			t.Errorf("%s: have %q want %q at %d", what, have, text, off)
		}
	}
	write(0, 0, bytes.Repeat([]byte{'.'}, size))
	// The kernel reads two pages and the tail for a fault, and a program stores into its mapping.
	mapping := make([]byte, 3*4096)
	copy(mapping, read(0, 0, 3*4096))
	copy(mapping[10:], "store")
	copy(mapping[8192+10:], "tail")
	write(0, 20, []byte("write")) // meanwhile, past the cache
	write(0, 4090, []byte("across pages"))
	write(fuse.WRITE_CACHE, 0, mapping[:size])
	want("store", 10, "store")
	want("write", 20, "write")
	want("write of two pages", 4090, "across pages")
	want("tail", 8192+10, "tail")
	// The kernel still has its old page, and gives it back once more with another store.
	copy(mapping[15:], "again")
	write(fuse.WRITE_CACHE, 0, mapping[:4096])
	want("second store", 10, "storeagainwrite")
	write(0, 15, []byte("w"))
	write(fuse.WRITE_CACHE, 0, mapping[:4096])
	want("write after a store", 10, "storewgainwrite")
	// It reads the page anew: from now on its bytes are the file's, also those of the write, and a
	// store of what was there before counts.
	copy(mapping, read(0, 0, 4096))
	copy(mapping[20:], ".....")
	write(fuse.WRITE_CACHE, 0, mapping[:4096])
	want("store after a read", 10, "storewgain.....")
	// What shares or punches goes past the cache as well.
	st := c.s.Fallocate(nil, &fuse.FallocateIn{InHeader: head(id), Fh: fh, Offset: 0, Length: 16, Mode: unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE})
	c.want("punch", st, 0)
	clear(mapping[:16]) // the kernel does the same to its page
	copy(mapping[5:], "f")
	write(fuse.WRITE_CACHE, 0, mapping[:4096])
	want("store after a punch", 4, "\x00f\x00")
	want("punch", 10, "\x00\x00\x00\x00\x00\x00gain.....")
	// The last close forgets the pages.
	pages := &c.s.nodes.get(id).pages
	if !pages.mapped || len(pages.have) == 0 || len(pages.base) == 0 {
		t.Errorf("before the close: %+v", pages)
	}
	c.s.Release(nil, &fuse.ReleaseIn{InHeader: head(id), Fh: fh})
	if pages.mapped || pages.have != nil || pages.base != nil {
		t.Errorf("after the close: %+v", pages)
	}
}

// TestCopyRange: whole blocks share the extent, the rest is copied, and nothing comes after the end
// of the source.
func TestCopyRange(t *testing.T) {
	c := newClient(t)
	id, from := c.create(1, "from", unix.O_RDWR)
	to, fh := c.create(1, "to", unix.O_RDWR)
	data := bytes.Repeat([]byte("0123456789"), 2000)
	_, st := c.s.Write(nil, &fuse.WriteIn{InHeader: head(id), Fh: from}, data)
	c.want("write", st, 0)
	var done uint64
	for {
		n, st := c.s.CopyFileRange(nil, &fuse.CopyFileRangeIn{InHeader: head(id), FhIn: from, OffIn: done, NodeIdOut: to, FhOut: fh, OffOut: done, Len: 1 << 40})
		if c.want("copy_file_range", st, 0); n == 0 {
			break
		}
		done += uint64(n)
	}
	if have := c.ReadFile("/to"); !bytes.Equal(have, data) {
		t.Errorf("copied %d bytes of %d, or others", len(have), len(data))
	}
	n, err := c.FS.NodeAt(c.T, "/to")
	c.Must(err)
	shared := false
	c.Must(c.FS.Sync(c.T))
	m, err := c.FS.NodeAt(c.T, "/from")
	c.Must(err)
	var first uint64
	c.Must(m.Extents(c.T, func(off uint64, x format.FileExtent) {
		if off == 0 {
			first = uint64(x.DiskBytenr)
		}
	}))
	c.Must(n.Extents(c.T, func(off uint64, x format.FileExtent) { shared = shared || uint64(x.DiskBytenr) == first && first != 0 }))
	if !shared {
		t.Error("the copy shares no extent")
	}
	c.Must(n.Forget(c.T, 1))
	c.Must(m.Forget(c.T, 1))
}

// TestConcurrent: requests for the same names at once leave no node and no handle behind but what
// the kernel still knows.
func TestConcurrent(t *testing.T) {
	c := newClient(t)
	d := c.mkdir(1, "d")
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			h := head(d)
			for i := range 150 {
				name := fmt.Sprintf("n%d", (i+g)%5)
				var out fuse.CreateOut
				if st := c.s.Create(nil, &fuse.CreateIn{InHeader: h, Flags: unix.O_RDWR, Mode: 0o644 | syscall.S_IFREG}, name, &out); st.Ok() {
					c.s.Write(nil, &fuse.WriteIn{InHeader: head(out.NodeId), Fh: out.Fh, Offset: uint64(g) * 4096}, []byte("data"))
					c.s.Release(nil, &fuse.ReleaseIn{Fh: out.Fh})
					c.s.Forget(out.NodeId, 1)
				}
				var e fuse.EntryOut
				if st := c.s.Lookup(nil, &h, name, &e); st.Ok() && e.NodeId != 0 {
					var a fuse.AttrOut
					c.want("getattr", c.s.GetAttr(nil, &fuse.GetAttrIn{InHeader: head(e.NodeId)}, &a), 0)
					c.s.Forget(e.NodeId, 1)
				}
				switch i % 3 {
				case 0:
					c.s.Unlink(nil, &h, name)
				case 1:
					c.s.Rename(nil, &fuse.RenameIn{InHeader: h, Newdir: d, Flags: uint32(i%2) * unix.RENAME_EXCHANGE}, name, fmt.Sprintf("n%d", i%5))
				}
			}
		})
	}
	wg.Wait()
	c.s.Forget(d, 1)
	c.s.nodes.each(func(id uint64, k *known) {
		if id != 1 {
			t.Errorf("node %d has %d lookups", id, k.count)
		}
	})
	c.s.handles.each(func(id uint64, _ *handle) { t.Errorf("handle %d is left", id) })
	if n := len(c.s.nodes.ids); n != 1 {
		t.Errorf("%d nodes have a number, want the root", n)
	}
}

// TestPrune: the kernel is asked to forget when it knows more nodes than the engine's cache holds.
func TestPrune(t *testing.T) {
	c := newClient(t)
	asked := make(chan []uint64, 100)
	c.s.maxed, c.s.prune = 10, func(ids []uint64) { asked <- ids }
	for i := range 9 {
		c.mkdir(1, fmt.Sprintf("d%d", i))
	}
	if len(asked) > 0 {
		t.Error("asked before there are too many")
	}
	c.mkdir(1, "one more")
	ids := <-asked
	if slices.Contains(ids, 1) || len(ids) != 10 {
		t.Errorf("asked to forget %v, want the ten directories", ids)
	}
}

// TestFrozen: nothing is frozen while a request is under way, and no request begins while something
// is. A lock that is free can be had at once, one that is taken cannot.
func TestFrozen(t *testing.T) {
	c := newClient(t)
	m := &Mount{s: c.s}
	task := c.s.begin("test")
	if c.s.gate.TryLock() {
		t.Error("frozen beside a request")
		c.s.gate.Unlock()
	}
	c.s.end(task)
	ran := false
	c.Must(m.Frozen(func() error {
		if ran = true; c.s.gate.TryRLock() {
			t.Error("a request begins while the mount is frozen")
			c.s.gate.RUnlock()
		}
		return nil
	}))
	if !ran || !c.s.gate.TryLock() {
		t.Errorf("ran %v, and the mount stays frozen", ran)
	}
}

// TestNumbers: what is known of a subvolume is told, and a node that nobody looked up has no
// number.
func TestNumbers(t *testing.T) {
	c := newClient(t)
	c.Must(c.FS.Subvolume(c.T, "/sub", 0o755))
	id := c.lookup(fuse.FUSE_ROOT_ID, "sub").NodeId
	n := c.s.nodes.of(id)
	if have := c.s.nodes.number(n); have != id || !c.s.nodes.knows(256) || c.s.nodes.knows(257) {
		t.Errorf("number %d, want %d; knows 256: %v", have, id, c.s.nodes.knows(256))
	}
	c.s.Forget(id, 1)
	if c.s.nodes.number(n) != 0 || c.s.nodes.knows(256) {
		t.Error("a node that was forgotten is known")
	}
}

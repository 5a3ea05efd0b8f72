package mount

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
)

// The times for which the kernel believes what it was told. Names change by the kernel's own calls
// only; of the attributes the blocks change behind its back, when delayed allocation ends.
const (
	entryTimeout = time.Hour
	attrTimeout  = time.Second
)

// server answers the kernel's requests. Its methods are those of fuse.RawFileSystem; each call is
// of a goroutine of its own.
type server struct {
	fuse.RawFileSystem // ENOSYS for the rest, which the kernel then does itself or without
	fs                 *fs.FS
	opt                Options
	top                uint64 // the mounted subvolume
	nodes              nodes
	handles            table[handle]
	tasks              sync.Pool // of *sched.Task
	kernel             atomic.Pointer[fuse.Server]
	gate               sync.RWMutex // a request reads; Frozen writes

	// prune, if set, asks the kernel to forget nodes that it only remembers.
	prune   func(ids []uint64)
	pruning atomic.Bool
	maxed   int // nodes above which it is asked
}

// handle is an open file, or an open directory.
type handle struct {
	file  *fs.File
	pages *kernelPages  // of a file, unless the kernel caches it
	end   atomic.Uint64 // of a directory: the index that a reader stops before
}

func newServer(x *fs.FS, o Options) *server {
	s := &server{RawFileSystem: fuse.NewDefaultRawFileSystem(), fs: x, opt: o}
	s.tasks.New = func() any { return sched.NewTask("fuse") }
	t := s.begin("mount")
	defer s.end(t)
	s.maxed = x.CacheInodes()
	root := x.Root(t)
	s.top = root.Subvol()
	s.nodes.remember(root) // FUSE_ROOT_ID is 1, the first number
	return s
}

// begin gives a request its task, unless the mount is frozen; end takes it back. Models
// sb_start_write() and sb_end_write().
func (s *server) begin(op string) *sched.Task {
	s.gate.RLock()
	t := s.tasks.Get().(*sched.Task)
	t.Policy = s.fs.Policy().Name
	t.Doing(op)
	return t
}

func (s *server) end(t *sched.Task) {
	s.tasks.Put(t)
	s.gate.RUnlock()
}

// status is the number of err.
func (s *server) status(err error) fuse.Status {
	var no errno.Errno
	switch {
	case err == nil:
		return fuse.OK
	case errors.As(err, &no):
		if no == errno.EUCLEAN {
			s.warn(err)
		}
		return fuse.Status(no)
	}
	s.warn(err)
	return fuse.EIO
}

func (s *server) warn(err error) {
	if s.opt.Warn != nil {
		s.opt.Warn(err)
	}
}

// on runs f on the node with the number.
func (s *server) on(op string, id uint64, f func(t *sched.Task, n *fs.Node) error) fuse.Status {
	n := s.nodes.of(id)
	if n == nil {
		return fuse.Status(syscall.ESTALE)
	}
	t := s.begin(op)
	defer s.end(t)
	return s.status(f(t, n))
}

func (s *server) String() string { return "btrlab" }

func (s *server) Init(k *fuse.Server) {
	s.kernel.Store(k)
	s.prune = func(ids []uint64) { k.PruneNotify(ids) } // a kernel that cannot keeps what it has
}

// pruneBatch is how many nodes the kernel is asked to forget at once.
const pruneBatch = 1024

// limitNodes keeps the nodes that the kernel knows within the engine's cache of inodes. The kernel
// remembers names until it is short of memory itself, and each has an inode in memory here. It is
// asked by a task of its own, because it may write back what it drops.
func (s *server) limitNodes() {
	if s.prune == nil || s.nodes.len() <= s.maxed || !s.pruning.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.pruning.Store(false)
		if ids := s.nodes.some(pruneBatch, s.maxed); len(ids) > 0 {
			s.prune(ids)
		}
	}()
}

// ino is the inode number that programs see. Numbers are unique in a subvolume and the mount is one
// device, so those of other subvolumes get the subvolume's number above bit 40.
func (s *server) ino(subvol uint64, ino format.Ino) uint64 {
	if subvol == s.top {
		return uint64(ino)
	}
	return subvol<<40 ^ uint64(ino)
}

// attr fills out what stat(2) shows.
func (s *server) attr(t *sched.Task, n *fs.Node, out *fuse.Attr) {
	a := n.Attr(t)
	*out = fuse.Attr{
		Ino: s.ino(a.Subvol, a.Ino), Size: a.Size, Blocks: a.Blocks, Mode: a.Mode, Nlink: a.Nlink,
		Owner: fuse.Owner{Uid: a.UID, Gid: a.GID}, Rdev: encodeDev(a.Rdev), Blksize: format.SectorSize,
	}
	out.SetTimes(&a.Atime, &a.Mtime, &a.Ctime)
}

// encodeDev is a device number as user space sees it: new_encode_dev().
func encodeDev(rdev uint64) uint32 {
	major, minor := uint32(rdev>>20), uint32(rdev)&0xfffff
	return minor&0xff | major<<8 | minor&^0xff<<12
}

// decodeDev is the kernel's device number, major<<20 | minor.
func decodeDev(dev uint32) uint64 {
	return uint64(dev>>8&0xfff)<<20 | uint64(dev&0xff|dev>>12&0xfff00)
}

// entry answers with the node of a name, whose reference the kernel takes over.
func (s *server) entry(t *sched.Task, n *fs.Node, out *fuse.EntryOut) {
	out.Generation = n.Generation(t)
	out.SetEntryTimeout(entryTimeout)
	out.SetAttrTimeout(attrTimeout)
	s.attr(t, n, &out.Attr)
	out.NodeId = s.nodes.remember(n)
	s.limitNodes()
}

// made is entry for a node that was made, or the error.
func (s *server) made(t *sched.Task, n *fs.Node, err error, out *fuse.EntryOut) error {
	if err == nil {
		s.entry(t, n, out)
	}
	return err
}

// owner is whom a process makes files for.
func owner(h *fuse.InHeader, umask uint32) fs.Owner {
	return fs.Owner{UID: h.Uid, GID: h.Gid, Umask: umask, Inherit: true}
}

func (s *server) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return s.on("lookup", h.NodeId, func(t *sched.Task, d *fs.Node) error {
		n, err := d.Lookup(t, name)
		if errors.Is(err, errno.ENOENT) { // the kernel remembers that there is none
			out.SetEntryTimeout(entryTimeout)
			return nil
		}
		return s.made(t, n, err, out)
	})
}

func (s *server) Forget(id, count uint64) {
	if n, refs := s.nodes.forget(id, count); n != nil {
		t := s.begin("forget")
		defer s.end(t)
		if err := n.Forget(t, refs); err != nil {
			s.warn(err)
		}
	}
}

func (s *server) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return s.on("getattr", in.NodeId, func(t *sched.Task, n *fs.Node) error {
		out.SetTimeout(attrTimeout)
		s.attr(t, n, &out.Attr)
		return nil
	})
}

func (s *server) Statx(_ <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	return s.on("statx", in.NodeId, func(t *sched.Task, n *fs.Node) error {
		out.SetTimeout(attrTimeout)
		a := n.Attr(t)
		at := func(x time.Time) fuse.SxTime {
			return fuse.SxTime{Sec: uint64(x.Unix()), Nsec: uint32(x.Nanosecond())}
		}
		out.Statx = fuse.Statx{
			Mask: unix.STATX_BASIC_STATS | unix.STATX_BTIME, Blksize: format.SectorSize, Nlink: a.Nlink, Uid: a.UID, Gid: a.GID,
			Mode: uint16(a.Mode), Ino: s.ino(a.Subvol, a.Ino), Size: a.Size, Blocks: a.Blocks,
			Atime: at(a.Atime), Btime: at(a.Otime), Ctime: at(a.Ctime), Mtime: at(a.Mtime),
			RdevMajor: uint32(a.Rdev >> 20), RdevMinor: uint32(a.Rdev) & 0xfffff,
		}
		for _, x := range statxFlags {
			out.AttributesMask |= x.statx
			if a.Flags&x.inode != 0 {
				out.Attributes |= x.statx
			}
		}
		return nil
	})
}

// statxFlags pairs the inode flags with what statx(2) shows of them, as btrfs_getattr().
var statxFlags = [...]struct{ inode, statx uint64 }{
	{format.InodeAppend, unix.STATX_ATTR_APPEND},
	{format.InodeCompress, unix.STATX_ATTR_COMPRESSED},
	{format.InodeImmutable, unix.STATX_ATTR_IMMUTABLE},
	{format.InodeNoDump, unix.STATX_ATTR_NODUMP},
}

func (s *server) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return s.on("setattr", in.NodeId, func(t *sched.Task, n *fs.Node) (err error) {
		c := fs.SetAttr{Mode: in.Mode, UID: in.Uid, GID: in.Gid, Size: in.Size,
			Atime: time.Unix(int64(in.Atime), int64(in.Atimensec)), Mtime: time.Unix(int64(in.Mtime), int64(in.Mtimensec))}
		for _, x := range []struct {
			valid uint32
			set   fs.SetMask
		}{{fuse.FATTR_MODE, fs.SetMode}, {fuse.FATTR_UID, fs.SetUID}, {fuse.FATTR_GID, fs.SetGID}, {fuse.FATTR_SIZE, fs.SetSize},
			{fuse.FATTR_ATIME, fs.SetAtime}, {fuse.FATTR_MTIME, fs.SetMtime}, {fuse.FATTR_ATIME_NOW, fs.SetAtimeNow},
			{fuse.FATTR_MTIME_NOW, fs.SetMtimeNow}, {fuse.FATTR_KILL_SUIDGID, fs.SetNoSUID}} {
			if in.Valid&x.valid != 0 {
				c.Set |= x.set
			}
		}
		if c.Set&fs.SetSize != 0 && c.Set&fs.SetMtime == 0 {
			// The kernel leaves the times of ftruncate and O_TRUNC to us (update_mtime() in fuse),
			// and they change also when the size does not.
			c.Set |= fs.SetMtimeNow
		}
		set := func() error { return n.SetAttr(t, c) }
		if c.Set&fs.SetSize != 0 && !s.opt.KernelCache {
			err = s.nodes.get(in.NodeId).pages.truncate(in.Size, set)
		} else {
			err = set()
		}
		if err != nil {
			return err
		}
		out.SetTimeout(attrTimeout)
		s.attr(t, n, &out.Attr)
		return nil
	})
}

func (s *server) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.on("mknod", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		n, err := d.Mknod(t, name, in.Mode, decodeDev(in.Rdev), owner(&in.InHeader, in.Umask))
		return s.made(t, n, err, out)
	})
}

func (s *server) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return s.on("mkdir", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		n, err := d.Mkdir(t, name, in.Mode, owner(&in.InHeader, in.Umask))
		return s.made(t, n, err, out)
	})
}

func (s *server) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	return s.on("symlink", h.NodeId, func(t *sched.Task, d *fs.Node) error {
		n, err := d.Symlink(t, name, target, owner(h, 0))
		return s.made(t, n, err, out)
	})
}

func (s *server) Readlink(_ <-chan struct{}, h *fuse.InHeader) (target []byte, st fuse.Status) {
	st = s.on("readlink", h.NodeId, func(t *sched.Task, n *fs.Node) error {
		to, err := n.Readlink(t)
		target = []byte(to)
		return err
	})
	return target, st
}

func (s *server) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	n := s.nodes.of(in.Oldnodeid)
	if n == nil {
		return fuse.Status(syscall.ESTALE)
	}
	return s.on("link", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		if err := d.Link(t, name, n); err != nil {
			return err
		}
		s.entry(t, n.Get(t), out)
		return nil
	})
}

func (s *server) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.on("unlink", h.NodeId, func(t *sched.Task, d *fs.Node) error { return d.Unlink(t, name) })
}

func (s *server) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.on("rmdir", h.NodeId, func(t *sched.Task, d *fs.Node) error { return d.Rmdir(t, name) })
}

func (s *server) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	dir := s.nodes.of(in.Newdir)
	if dir == nil {
		return fuse.Status(syscall.ESTALE)
	}
	var flags fs.RenameFlags
	for _, x := range []struct {
		linux uint32
		ours  fs.RenameFlags
	}{{unix.RENAME_NOREPLACE, fs.RenameNoReplace}, {unix.RENAME_EXCHANGE, fs.RenameExchange}, {unix.RENAME_WHITEOUT, fs.RenameWhiteout}} {
		if in.Flags&x.linux != 0 {
			flags |= x.ours
		}
	}
	return s.on("rename", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		return d.RenameWith(t, from, dir, to, flags, owner(&in.InHeader, 0))
	})
}

// openFlags are what package fs wants to know of the flags of open(2). A write says for itself
// whether it is direct or durable, and the kernel says where it goes, but an append-only file wants
// to hear O_APPEND.
func openFlags(n *fs.Node, linux uint32) (flags fs.OpenFlags) {
	if linux&unix.O_ACCMODE != unix.O_RDONLY {
		flags |= fs.O_RDWR
		if linux&unix.O_APPEND != 0 && n.Flags()&format.InodeAppend != 0 {
			flags |= fs.O_APPEND
		}
	}
	return flags
}

// open opens the file n, which the kernel knows by the number id.
func (s *server) open(t *sched.Task, id uint64, n *fs.Node, flags uint32, out *fuse.OpenOut) error {
	f, err := n.Open(t, openFlags(n, flags))
	if err != nil {
		return err
	}
	h := &handle{file: f}
	if s.opt.KernelCache {
		out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	} else {
		out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
		h.pages = &s.nodes.get(id).pages
		h.pages.open()
	}
	out.Fh = s.handles.add(h)
	return nil
}

func (s *server) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return s.on("create", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		var flags fs.OpenFlags
		if in.Flags&unix.O_EXCL != 0 {
			flags = fs.O_EXCL
		}
		n, err := d.Create(t, name, flags, in.Mode, owner(&in.InHeader, in.Umask))
		return s.created(t, n, err, in, out)
	})
}

// created answers Create and Tmpfile.
func (s *server) created(t *sched.Task, n *fs.Node, err error, in *fuse.CreateIn, out *fuse.CreateOut) error {
	if err != nil {
		return err
	}
	s.entry(t, n, &out.EntryOut)
	if err := s.open(t, out.NodeId, n, in.Flags, &out.OpenOut); err != nil {
		n, refs := s.nodes.forget(out.NodeId, 1) // the kernel takes none over
		return errors.Join(err, n.Forget(t, refs))
	}
	return nil
}

func (s *server) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	return s.on("tmpfile", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		var flags fs.OpenFlags
		if in.Flags&unix.O_EXCL != 0 {
			flags = fs.O_EXCL
		}
		n, err := d.Tmpfile(t, flags, in.Mode, owner(&in.InHeader, in.Umask))
		return s.created(t, n, err, in, out)
	})
}

func (s *server) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return s.on("open", in.NodeId, func(t *sched.Task, n *fs.Node) error { return s.open(t, in.NodeId, n, in.Flags, out) })
}

func (s *server) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	if h := s.handles.drop(in.Fh); h != nil && h.file != nil {
		t := s.begin("release")
		defer s.end(t)
		if h.pages != nil {
			h.pages.close()
		}
		if err := h.file.Close(t); err != nil {
			s.warn(err)
		}
	}
}

// onFile runs f on the open file.
func (s *server) onFile(op string, fh uint64, f func(t *sched.Task, x *fs.File) error) fuse.Status {
	return s.onHandle(op, fh, func(t *sched.Task, h *handle) error { return f(t, h.file) })
}

// onHandle runs f on the handle of an open file.
func (s *server) onHandle(op string, fh uint64, f func(t *sched.Task, h *handle) error) fuse.Status {
	h := s.handles.get(fh)
	if h == nil || h.file == nil {
		return fuse.EBADF
	}
	t := s.begin(op)
	defer s.end(t)
	return s.status(f(t, h))
}

// give runs read, which reads n bytes from off on for the kernel: for a program, or where the
// kernel says for which one it is not, for the kernel's cache.
func (h *handle) give(in *fuse.ReadIn, read func() error) error {
	if h.pages == nil || in.ReadFlags&fuse.READ_LOCKOWNER != 0 {
		return read()
	}
	return h.pages.give(in.Offset, uint64(in.Size), read)
}

// change runs write, which changes n bytes from off on.
func (h *handle) change(t *sched.Task, off, n uint64, write func() error) error {
	if h.pages == nil {
		return write()
	}
	return h.pages.change(off, n, h.reader(t), write)
}

// zero runs write, which sets n bytes from off on to zero, as the kernel then does in its pages.
func (h *handle) zero(t *sched.Task, off, n uint64, write func() error) error {
	if h.pages == nil {
		return write()
	}
	return h.pages.zero(off, n, h.reader(t), write)
}

// back runs write with the bytes p that the kernel writes back from off on, from its cache.
func (h *handle) back(t *sched.Task, off uint64, p []byte, write func(p []byte) error) error {
	if h.pages == nil {
		return write(p)
	}
	return h.pages.back(off, p, h.reader(t), write)
}

// reader reads the file, and zeros beyond its end.
func (h *handle) reader(t *sched.Task) reader {
	return func(p []byte, off uint64) error {
		n, err := h.file.ReadIter(t, kiocb.Request{Pos: off}, p)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		clear(p[n:])
		return err
	}
}

func (s *server) Read(_ <-chan struct{}, in *fuse.ReadIn, p []byte) (fuse.ReadResult, fuse.Status) {
	var n int
	st := s.onHandle("read", in.Fh, func(t *sched.Task, h *handle) error {
		rq := kiocb.Request{Pos: in.Offset}
		if in.Flags&unix.O_DIRECT != 0 {
			rq.Flags |= kiocb.Direct
		}
		return h.give(in, func() (err error) {
			if n, err = h.file.ReadIter(t, rq, p[:min(len(p), int(in.Size))]); n > 0 || errors.Is(err, io.EOF) {
				return nil
			}
			return err
		})
	})
	return fuse.ReadResultData(p[:n]), st
}

func (s *server) Write(_ <-chan struct{}, in *fuse.WriteIn, p []byte) (written uint32, st fuse.Status) {
	st = s.onHandle("write", in.Fh, func(t *sched.Task, h *handle) error {
		if in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
			if err := s.dropSUID(t, in.NodeId, h.file.Node()); err != nil {
				return err
			}
		}
		rq := kiocb.Request{Pos: in.Offset}
		write := func(p []byte) error {
			n, err := h.file.WriteIter(t, rq, iopath.Source{Buf: p})
			if written = uint32(n); n > 0 {
				return nil
			}
			return err
		}
		if in.WriteFlags&fuse.WRITE_CACHE != 0 { // the pages' writes have returned long ago
			if s.opt.KernelCache { // the kernel has the times of the writes, and tells us
				rq.Flags |= kiocb.NoTimes
			}
			return h.back(t, in.Offset, p, write)
		}
		if in.Flags&unix.O_DIRECT != 0 {
			rq.Flags |= kiocb.Direct
		}
		if in.Flags&unix.O_DSYNC != 0 {
			rq.Flags |= kiocb.DSync
		}
		return h.change(t, in.Offset, uint64(len(p)), func() error { return write(p) })
	})
	return written, st
}

// dropSUID does what the kernel leaves to us (FUSE_HANDLE_KILLPRIV_V2), and says so to the kernel.
func (s *server) dropSUID(t *sched.Task, id uint64, n *fs.Node) error {
	changed, err := n.DropSUID(t)
	s.stale(id, changed && err == nil)
	return err
}

// stale tells the kernel, if changed, that the attributes that it keeps of the node are old.
func (s *server) stale(id uint64, changed bool) {
	if k := s.kernel.Load(); changed && k != nil {
		k.InodeNotify(id, -1, 0)
	}
}

func (s *server) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	return s.onFile("lseek", in.Fh, func(t *sched.Task, x *fs.File) (err error) {
		var at int64
		if int64(in.Offset) < 0 {
			return syscall.ENXIO
		}
		switch in.Whence {
		case unix.SEEK_DATA:
			at, _, err = x.SeekData(t, int64(in.Offset))
		case unix.SEEK_HOLE:
			at, err = x.SeekHole(t, int64(in.Offset))
		default:
			return errno.EINVAL
		}
		if errors.Is(err, io.EOF) {
			return syscall.ENXIO
		}
		out.Offset = uint64(at)
		return err
	})
}

func (s *server) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	return s.onHandle("fallocate", in.Fh, func(t *sched.Task, h *handle) error {
		change := h.change
		if in.Mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) != 0 {
			change = h.zero
		}
		err := change(t, in.Offset, in.Length, func() error {
			return s.keepMtime(t, h.file, func() error { return h.file.Fallocate(t, in.Mode, int64(in.Offset), int64(in.Length)) })
		})
		if err != nil {
			return err
		}
		return s.modified(t, in.NodeId, &in.InHeader, h.file)
	})
}

// keepMtime runs change, and leaves the file the mtime that the kernel has for it and tells us when
// it changes: under a kernel that caches writes.
func (s *server) keepMtime(t *sched.Task, x *fs.File, change func() error) error {
	if !s.opt.KernelCache {
		return change()
	}
	c := fs.SetAttr{Set: fs.SetMtime, Mtime: x.Stat(t).Mtime}
	if err := change(); err != nil {
		return err
	}
	return x.Node().SetAttr(t, c)
}

// modified takes the privileges of a program away after a change other than a write. The kernel
// does not say whether the process has CAP_FSETID: root does.
func (s *server) modified(t *sched.Task, id uint64, h *fuse.InHeader, x *fs.File) error {
	if h.Uid == 0 {
		return nil
	}
	return s.dropSUID(t, id, x.Node())
}

// copyMax bounds the bytes that one copy_file_range copies, if the two files cannot share them.
const copyMax = 4 << 20

func (s *server) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (n uint32, st fuse.Status) {
	to := s.handles.get(in.FhOut)
	if to == nil || to.file == nil {
		return 0, fuse.EBADF
	}
	st = s.onFile("copyfilerange", in.FhIn, func(t *sched.Task, from *fs.File) (err error) {
		size := min(in.Len, 1<<30)
		err = to.change(t, in.OffOut, size, func() error {
			return s.keepMtime(t, to.file, func() (err error) {
				n, err = copyRange(t, to.file, from, int64(in.OffIn), int64(in.OffOut), int64(size))
				return err
			})
		})
		if err != nil {
			return err
		}
		return s.modified(t, in.NodeIdOut, &in.InHeader, to.file)
	})
	return n, st
}

// copyRange copies up to n bytes: whole blocks are shared, the rest is read and written. A short
// count is no end, the caller goes on; zero is the end of from. Models
// generic_copy_file_range_prep(), and btrfs_remap_file_range() for the shared part.
func copyRange(t *sched.Task, to, from *fs.File, off, at, n int64) (uint32, error) {
	n = min(n, from.Size(t)-off)
	if n <= 0 {
		return 0, nil
	}
	const block = format.SectorSize
	if off%block == 0 && at%block == 0 && n >= block {
		whole := n &^ (block - 1)
		if err := to.Reflink(t, from, off, whole, at); err == nil {
			return uint32(whole), nil
		}
	}
	p := make([]byte, min(n, copyMax))
	k, err := from.ReadAt(t, p, off)
	if k == 0 {
		return 0, err
	}
	k, err = to.WriteAt(t, p[:k], at)
	if k > 0 {
		err = nil
	}
	return uint32(k), err
}

func (s *server) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return s.onFile("fsync", in.Fh, func(t *sched.Task, x *fs.File) error { return x.Fsync(t) })
}

func (s *server) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return s.on("fsyncdir", in.NodeId, func(t *sched.Task, d *fs.Node) error { return d.Fsync(t) })
}

func (s *server) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	t := s.begin("statfs")
	defer s.end(t)
	st := s.fs.Statfs(t)
	const block = format.SectorSize
	*out = fuse.StatfsOut{Blocks: st.Total / block, Bfree: (st.Total - min(st.Used, st.Total)) / block, Bavail: st.Free / block, Bsize: block, Frsize: block, NameLen: format.MaxNameLen}
	return fuse.OK
}

func (s *server) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return s.on("opendir", in.NodeId, func(_ *sched.Task, d *fs.Node) error {
		if !d.IsDir() {
			return errno.ENOTDIR
		}
		out.Fh = s.handles.add(new(handle))
		return nil
	})
}

func (s *server) ReleaseDir(in *fuse.ReleaseIn) { s.handles.drop(in.Fh) }

func (s *server) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return s.readDir(in, func(_ *sched.Task, _ *fs.Node, _ fs.DirEntry, e fuse.DirEntry) bool { return out.AddDirEntry(e) })
}

func (s *server) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return s.readDir(in, func(t *sched.Task, d *fs.Node, at fs.DirEntry, e fuse.DirEntry) bool {
		o := out.AddDirLookupEntry(e)
		if o == nil || at.Name == "" {
			return o != nil
		}
		// The kernel has the directory locked: no name comes or goes. Without an answer it looks
		// the name up by itself.
		var n *fs.Node
		var err error
		if at.Subvol != 0 {
			n, err = d.Lookup(t, at.Name)
		} else {
			n, err = s.fs.Node(t, d.Subvol(), at.Ino)
		}
		if err == nil {
			s.entry(t, n, o)
		}
		return true
	})
}

// dirBatch is how many entries are read under one lock of the directory.
const dirBatch = 256

// readDir gives add the entries from in.Offset on until one does not fit. The offset after an entry
// is its index and one: it stays right while names come and go. Indices begin at 2, so 1 and 2 are
// the offsets after "." and "..".
func (s *server) readDir(in *fuse.ReadIn, add func(t *sched.Task, d *fs.Node, at fs.DirEntry, e fuse.DirEntry) bool) fuse.Status {
	h := s.handles.get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	return s.on("readdir", in.NodeId, func(t *sched.Task, d *fs.Node) error {
		off := in.Offset
		if off == 0 {
			end, err := d.DirEnd(t)
			if err != nil {
				return err
			}
			h.end.Store(end)
		}
		for ; off < 2; off++ {
			e := fuse.DirEntry{Name: "."[:1], Mode: format.S_IFDIR, Ino: s.ino(d.Subvol(), d.Ino()), Off: off + 1}
			if off == 1 {
				e.Name = ".."
				if up, err := d.Lookup(t, ".."); err == nil {
					e.Ino = s.ino(up.Subvol(), up.Ino())
					if err := up.Forget(t, 1); err != nil {
						return err
					}
				}
			}
			if !add(t, d, fs.DirEntry{}, e) {
				return nil
			}
		}
		batch := make([]fs.DirEntry, 0, dirBatch)
		for {
			batch = batch[:0]
			end := h.end.Load()
			err := d.ReadDir(t, off, func(e fs.DirEntry) bool {
				if e.Index < end {
					batch = append(batch, e)
				}
				return e.Index < end && len(batch) < cap(batch)
			})
			if err != nil {
				return err
			}
			for _, e := range batch {
				subvol := d.Subvol()
				if e.Subvol != 0 {
					subvol = e.Subvol
				}
				if !add(t, d, e, fuse.DirEntry{Name: e.Name, Mode: modeOf(e.Type), Ino: s.ino(subvol, e.Ino), Off: e.Index + 1}) {
					return nil
				}
				off = e.Index + 1
			}
			if len(batch) < cap(batch) {
				return nil
			}
		}
	})
}

// modeOf is the type of a directory entry as a mode has it.
func modeOf(ft uint8) uint32 {
	switch ft {
	case format.FtRegFile:
		return format.S_IFREG
	case format.FtDir:
		return format.S_IFDIR
	case format.FtChrdev:
		return format.S_IFCHR
	case format.FtBlkdev:
		return format.S_IFBLK
	case format.FtFifo:
		return format.S_IFIFO
	case format.FtSock:
		return format.S_IFSOCK
	case format.FtSymlink:
		return format.S_IFLNK
	}
	return 0
}

// isXattr is EOPNOTSUPP for a name of no namespace that btrfs has handlers for.
func isXattr(name string) error {
	for _, prefix := range []string{"user.", "trusted.", "security.", "btrfs."} {
		if strings.HasPrefix(name, prefix) && len(name) > len(prefix) {
			return nil
		}
	}
	if isACL(name) {
		return nil
	}
	return errno.EOPNOTSUPP
}

func isACL(name string) bool { return name == fs.ACLAccess || name == fs.ACLDefault }

// noData is err, in which ENOENT is ENODATA.
func noData(err error) error {
	if errors.Is(err, errno.ENOENT) {
		return syscall.ENODATA
	}
	return err
}

// fill copies value to dest if it has room. Without dest only the size is wanted.
func fill(dest, value []byte) (uint32, error) {
	if len(dest) > 0 && len(dest) < len(value) {
		return uint32(len(value)), errno.ERANGE
	}
	copy(dest, value)
	return uint32(len(value)), nil
}

func (s *server) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (size uint32, st fuse.Status) {
	st = s.on("getxattr", h.NodeId, func(t *sched.Task, n *fs.Node) error {
		if err := isXattr(name); err != nil {
			return err
		}
		value, err := n.Getxattr(t, name)
		if err != nil {
			return noData(err)
		}
		size, err = fill(dest, value)
		return err
	})
	return size, st
}

func (s *server) ListXAttr(_ <-chan struct{}, h *fuse.InHeader, dest []byte) (size uint32, st fuse.Status) {
	st = s.on("listxattr", h.NodeId, func(t *sched.Task, n *fs.Node) error {
		names, err := n.Listxattr(t)
		if err != nil {
			return err
		}
		var list []byte
		for _, name := range names {
			list = append(append(list, name...), 0)
		}
		size, err = fill(dest, list)
		return err
	})
	return size, st
}

func (s *server) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	return s.on("setxattr", in.NodeId, func(t *sched.Task, n *fs.Node) error {
		if err := isXattr(name); err != nil {
			return err
		}
		if isACL(name) {
			return n.SetACL(t, name, value, in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0)
		}
		want := fs.XattrSet
		switch in.Flags {
		case unix.XATTR_CREATE:
			want = fs.XattrCreate
		case unix.XATTR_REPLACE:
			want = fs.XattrReplace
		}
		return noData(n.SetxattrIf(t, name, value, want))
	})
}

func (s *server) RemoveXAttr(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.on("removexattr", h.NodeId, func(t *sched.Task, n *fs.Node) error {
		if err := isXattr(name); err != nil {
			return err
		}
		return noData(n.Removexattr(t, name))
	})
}

// attrFlags pairs the inode flags with those of chattr(1), and with those of FS_IOC_FSGETXATTR
// where there is one.
var attrFlags = [...]struct {
	inode       uint64
	flag, flag2 uint32
}{
	{format.InodeSync, 0x8, 0x20},
	{format.InodeImmutable, 0x10, 0x8},
	{format.InodeAppend, 0x20, 0x10},
	{format.InodeNoDump, 0x40, 0x80},
	{format.InodeNoAtime, 0x80, 0x40},
	{format.InodeCompress, 0x4, 0},
	{format.InodeNoCompress, 0x400, 0},
	{format.InodeDirSync, 0x10000, 0},
	{format.InodeNoDataCow, 0x800000, 0},
}

// The ioctls on the flags of an inode, of 64-bit systems.
const (
	ioctlGetFlags   = 0x80086601
	ioctlSetFlags   = 0x40086602
	ioctlGetXflags  = 0x801c581f
	ioctlSetXflags  = 0x401c5820
	sizeofFlags     = 4
	sizeofFsxattr   = 28
	xflagsNotStored = 0x80000000 // FS_XFLAG_HASATTR
)

func (s *server) Ioctl(_ <-chan struct{}, in *fuse.IoctlIn, p []byte, _ *fuse.IoctlOut, out []byte) fuse.Status {
	return s.on("ioctl", in.NodeId, func(t *sched.Task, n *fs.Node) error {
		flags := n.Flags()
		var want uint64
		switch {
		case in.Cmd == ioctlGetFlags && len(out) >= sizeofFlags:
			clear(out)
			for _, x := range attrFlags {
				if flags&x.inode != 0 {
					binary.NativeEndian.PutUint32(out, binary.NativeEndian.Uint32(out)|x.flag)
				}
			}
			return nil
		case in.Cmd == ioctlGetXflags && len(out) >= sizeofFsxattr:
			clear(out)
			for _, x := range attrFlags {
				if flags&x.inode != 0 {
					binary.NativeEndian.PutUint32(out, binary.NativeEndian.Uint32(out)|x.flag2)
				}
			}
			return nil
		case in.Cmd == ioctlSetFlags && len(p) >= sizeofFlags:
			given := binary.NativeEndian.Uint32(p)
			for _, x := range attrFlags {
				if given&x.flag != 0 {
					want |= x.inode
				}
				given &^= x.flag
			}
			if given != 0 {
				return errno.EOPNOTSUPP // models btrfs_fileattr_set()
			}
		case in.Cmd == ioctlSetXflags && len(p) >= sizeofFsxattr:
			given := binary.NativeEndian.Uint32(p) &^ xflagsNotStored
			want = flags
			for _, x := range attrFlags {
				if x.flag2 == 0 {
					continue
				}
				want &^= x.inode
				if given&x.flag2 != 0 {
					want |= x.inode
				}
				given &^= x.flag2
			}
			if given != 0 {
				return errno.EOPNOTSUPP
			}
		default:
			return syscall.ENOTTY
		}
		err := n.SetFlags(t, want)
		s.stale(in.NodeId, err == nil) // the kernel knows no ioctl that changes ctime
		return err
	})
}

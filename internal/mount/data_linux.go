package mount

import (
	"errors"
	"io"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
)

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
	if s.down.Load() {
		return fuse.EIO
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
		defer s.accessed(t, h.file.Node(), in.Flags)
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
		if in.Flags&unix.O_DIRECT != 0 || s.past(t, h.file, in.Offset, len(p)) {
			rq.Flags |= kiocb.Direct
		}
		if in.Flags&unix.O_DSYNC != 0 {
			rq.Flags |= kiocb.DSync
		}
		return h.change(t, in.Offset, uint64(len(p)), func() error { return write(p) })
	})
	return written, st
}

// large is how many bytes a write has at least that goes past the page cache.
const large = 256 << 10

// past reports whether a write goes past the page cache: its bytes are copied once, from the
// request to the image. It is for those that stay in place. A new extent would be one for each
// request, where writeback makes one of many.
func (s *server) past(t *sched.Task, x *fs.File, off uint64, n int) bool {
	return s.opt.Past && n >= large && (off|uint64(n))%format.SectorSize == 0 && x.Inode().Nocow() && off+uint64(n) <= uint64(x.Size(t))
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
		// Models generic_copy_file_checks(): the kernel's inode does not have the flag.
		if to.file.Node().Flags()&format.InodeImmutable != 0 {
			return errno.EPERM
		}
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

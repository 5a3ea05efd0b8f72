package fs

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"btrlab/internal/policy"

	"btrlab/internal/data/fileread"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/iopath/buffered"
	"btrlab/internal/iopath/fallocate"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
)

// File is an open regular file. Its methods may be called by many tasks at once.
type File struct {
	fs    *FS
	n     *Node
	write bool
	flags kiocb.Flags // of every request: O_APPEND, O_DIRECT, O_DSYNC or O_SYNC
	path  string
	ra    fileread.State
	errs  atomic.Uint64 // data write errors seen by Fsync

	inodeHeld atomic.Bool // HoldsInode
}

// Open opens a regular file; of the flags O_RDWR, O_TRUNC, O_APPEND, O_DIRECT, O_DSYNC and O_SYNC
// count. The File has a reference of its own. Models may_open() and do_dentry_open().
func (n *Node) Open(t *sched.Task, flags OpenFlags) (*File, error) { return n.open(t, flags, "") }

// open is Open of a file that was found by path.
func (n *Node) open(t *sched.Task, flags OpenFlags, path string) (*File, error) {
	write := flags&O_RDWR != 0
	switch {
	case n.IsDir():
		return nil, errno.EISDIR
	case n.IsSymlink():
		return nil, errno.ELOOP
	case !n.IsRegular():
		return nil, errno.EINVAL
	case write && n.fs.writable() != nil:
		return nil, n.fs.writable()
	case write && n.sealed():
		return nil, errno.EPERM
	case write && n.vol.frozen != nil:
		return nil, n.vol.frozen
	case write && n.appendOnly() && (flags&O_APPEND == 0 || flags&O_TRUNC != 0):
		return nil, errno.EPERM
	case !write && n.ip.DebugSize() > format.MaxFileSize:
		return nil, fmt.Errorf("corrupt inode: root=%d ino=%d, bad size, have %d want at most %d: %w",
			n.ip.Root.ID, n.ip.Ino, n.ip.DebugSize(), uint64(format.MaxFileSize), errno.EIO)
	}
	x := &File{fs: n.fs, n: n.fs.get(t, n), write: write, path: path}
	if flags&O_APPEND != 0 {
		x.flags |= kiocb.Append
	}
	if flags&O_DIRECT != 0 {
		x.flags |= kiocb.Direct
	}
	if flags&(O_DSYNC|O_SYNC) != 0 {
		x.flags |= kiocb.DSync
	}
	x.errs.Store(n.ip.Pages.ErrorSeq())
	if flags&O_TRUNC != 0 && write && n.ip.Size(t) > 0 {
		if err := x.Truncate(t, 0); err != nil {
			n.fs.put(t, n)
			return nil, err
		}
	}
	return x, nil
}

// Ino is the inode number.
func (f *File) Ino() format.Ino { return f.n.ip.Ino }

// SameInode reports whether f and g are one file: an inode number alone is another file's in
// another subvolume.
func (f *File) SameInode(g *File) bool { return f.n == g.n }

// Node is the inode that f has open. The reference is f's: it is valid until f is closed.
func (f *File) Node() *Node { return f.n }

// Inode is the inode in memory, for studies that look at its locks and states.
func (f *File) Inode() *inode.Inode { return f.n.ip }

// Size is i_size in bytes.
func (f *File) Size(t *sched.Task) int64 { return int64(f.n.ip.Size(t)) }

func (f *File) opError(op string, off int64, n int, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &errno.OpError{Op: op, Path: f.path, Ino: uint64(f.n.ip.Ino), Off: uint64(off), Len: uint64(n), Err: err}
}

// again is the answer to a NOWAIT request that would have slept: no failure, and not worth the
// words of opError. The caller asks again.
func again(t *sched.Task, a kiocb.Again) error {
	if t.Counts != nil {
		t.Counts.Again[a]++
	}
	return a
}

// mayWrite is EBADF for a file that is open for reading, EROFS for an aborted file system.
func (f *File) mayWrite() error {
	if !f.write {
		return errno.EBADF
	}
	return f.n.writable()
}

// ReadAt fills p from off on. It returns io.EOF when the file ends before p does, as io.ReaderAt.
func (f *File) ReadAt(t *sched.Task, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.opError("read", off, len(p), errno.EINVAL)
	}
	return f.ReadIter(t, kiocb.Request{Pos: uint64(off)}, p)
}

// ReadIter is ReadAt with the flags of a request. With kiocb.Direct and rq.Done set it may return
// EIOCBQUEUED: rq.Done is told the rest, and the file stays open until then. Done is told no
// io.EOF: the file ended where fewer bytes came than asked for.
func (f *File) ReadIter(t *sched.Task, rq kiocb.Request, p []byte) (int, error) {
	var n int
	var err error
	rq.Flags |= f.flags & kiocb.Direct
	if rq.Flags&kiocb.Nowait != 0 {
		t.CountTried()
		t.BeginNowait()
		defer t.EndNowait()
	}
	if rq.Flags&kiocb.Direct != 0 {
		n, err = f.readDirect(t, rq, p)
	} else {
		n, err = buffered.Read(t, &f.fs.env, f.n.ip, rq, p, &f.ra)
	}
	if errors.Is(err, errno.EIOCBQUEUED) {
		return 0, err
	}
	if a, ok := err.(kiocb.Again); ok {
		return n, again(t, a)
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, f.opError("read", int64(rq.Pos), len(p), err)
}

// WriteAt writes p at off by the policy in force, or under O_APPEND at the end of the file; a short
// count comes with the error that stopped it.
func (f *File) WriteAt(t *sched.Task, p []byte, off int64) (int, error) {
	if off < 0 && f.mayWrite() == nil {
		return 0, f.opError("write", off, len(p), errno.EINVAL)
	}
	return f.WriteIter(t, kiocb.Request{Pos: uint64(off)}, iopath.Source{Buf: p})
}

// WriteIter is WriteAt with the flags of a request, from memory whose pages may fault. With
// kiocb.Direct and rq.Done set it may return EIOCBQUEUED: rq.Done is told the rest, and the file
// stays open until then.
func (f *File) WriteIter(t *sched.Task, rq kiocb.Request, src iopath.Source) (n int, err error) {
	rq.Flags |= f.flags
	rq.File = f
	if rq.Flags&kiocb.Nowait != 0 {
		t.CountTried()
		t.BeginNowait()
		defer t.EndNowait()
	}
	switch err = f.mayWrite(); {
	case err != nil:
	case rq.Flags&kiocb.Direct != 0:
		began := rq.Flags&kiocb.Nowait == 0 && t.BeginTaskWork()
		n, err = f.writeDirect(t, rq, src)
		if began {
			t.EndTaskWork()
		}
	default:
		n, err = f.writeBuffered(t, rq, src)
	}
	if errors.Is(err, errno.EIOCBQUEUED) {
		return 0, err
	}
	if a, ok := err.(kiocb.Again); ok {
		return n, again(t, a)
	}
	if err != nil {
		return n, f.opError("write", int64(rq.Pos), len(src.Buf), err)
	}
	return n, nil
}

// Modes says which requests of the file may carry kiocb.Nowait, for a ring. Models FMODE_NOWAIT,
// which btrfs_file_open() sets, and fop_flags.
func (f *File) Modes() kiocb.Modes {
	if f.fs.env.Policy().Has(policy.NowaitBuffered) {
		return kiocb.ModeNowait | kiocb.ModeBufferWAsync
	}
	return kiocb.ModeNowait
}

// Truncate sets the size in bytes.
func (f *File) Truncate(t *sched.Task, size int64) error {
	err := f.mayWrite()
	if err == nil && size < 0 {
		err = errno.EINVAL
	}
	if err == nil && f.n.appendOnly() {
		err = errno.EPERM
	}
	if err == nil {
		err = f.n.truncate(t, uint64(size))
	}
	return f.opError("truncate", size, 0, err)
}

// Fallocate reserves, punches or zeroes [off, off+n) as mode (FALLOC_FL_...) says.
func (f *File) Fallocate(t *sched.Task, mode uint32, off, n int64) error {
	err := f.mayWrite()
	if err == nil && (off < 0 || n <= 0) {
		err = errno.EINVAL
	}
	if err == nil && (f.n.sealed() || f.n.appendOnly() && mode&^FALLOC_FL_KEEP_SIZE != 0) {
		err = errno.EPERM // models vfs_fallocate()
	}
	if err == nil {
		err = fallocate.Fallocate(t, &f.fs.env, f.n.ip, mode, uint64(off), uint64(n))
	}
	return f.opError("fallocate", off, int(n), err)
}

// Fsync makes the file durable: it writes its data back, and logs what has changed of the file or
// commits, as the policy says. An error of an earlier data write is reported once.
func (f *File) Fsync(t *sched.Task) error {
	if f.fs.opt.ReadOnly {
		return nil
	}
	return f.opError("fsync", 0, 0, f.SyncWrite(t))
}

// Fdatasync is Fsync: Linux's btrfs_sync_file() does not ask whether only the data and the size are
// wanted. Its times, names and attributes are durable as well.
func (f *File) Fdatasync(t *sched.Task) error { return f.Fsync(t) }

// DropCache drops the clean pages that lie in [off, off+n) whole; writeback of dirty ones begins,
// and they stay. Models posix_fadvise() with POSIX_FADV_DONTNEED.
func (f *File) DropCache(t *sched.Task, off, n int64) {
	if off < 0 || n <= 0 {
		return
	}
	// an error waits in the mapping for fsync
	_ = f.fs.engine.WritePages(t, f.n.ip, uint64(off), uint64(off+n), false)
	f.n.ip.Pages.DropClean(t, uint64(off+pagecache.PageSize-1)>>pagecache.PageShift, uint64(off+n)>>pagecache.PageShift)
}

// Stat gives the attributes.
func (f *File) Stat(t *sched.Task) Attr { return f.n.Attr(t) }

// Flags are the inode flags.
func (f *File) Flags() uint64 { return f.n.Flags() }

// SetFlags is FS.SetFlags of the open file.
func (f *File) SetFlags(t *sched.Task, flags uint64) error {
	return f.opError("setflags", 0, 0, f.n.SetFlags(t, flags))
}

// Close lets the file go; a file without a name is deleted then.
func (f *File) Close(t *sched.Task) error {
	n := f.n
	f.n = nil
	if n == nil {
		return &errno.OpError{Op: "close", Path: f.path, Err: errno.EBADF}
	}
	if err := n.Forget(t, 1); err != nil {
		return &errno.OpError{Op: "close", Path: f.path, Ino: uint64(n.ip.Ino), Err: err}
	}
	return nil
}

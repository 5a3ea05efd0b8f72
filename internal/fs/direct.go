package fs

import (
	"errors"

	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/iopath"
	"btrlab/internal/iopath/buffered"
	"btrlab/internal/iopath/direct"
	"btrlab/internal/iopath/fsync"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
)

// Direct I/O, and what of it must go through the page cache after all: the rest of a request that
// direct.Write or direct.Read ended with ENOTBLK.

// ReadDirect is ReadAt past the page cache. off and len(p) are best whole sectors of 4096 bytes:
// other reads go through the cache, as in Linux.
func (f *File) ReadDirect(t *sched.Task, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, f.opError("read", off, len(p), errno.EINVAL)
	}
	return f.ReadIter(t, kiocb.Request{Pos: uint64(off), Flags: kiocb.Direct}, p)
}

// WriteDirect is WriteAt past the page cache. It returns when the device has the bytes; they are
// durable after Fsync.
func (f *File) WriteDirect(t *sched.Task, p []byte, off int64) (int, error) {
	if off < 0 && f.mayWrite() == nil {
		return 0, f.opError("write", off, len(p), errno.EINVAL)
	}
	return f.WriteIter(t, kiocb.Request{Pos: uint64(off), Flags: kiocb.Direct}, iopath.Source{Buf: p})
}

// readDirect models the end of btrfs_file_read_iter().
func (f *File) readDirect(t *sched.Task, rq kiocb.Request, p []byte) (int, error) {
	n, err := direct.Read(t, &f.fs.env, f.n.ip, rq, p)
	if !errors.Is(err, errno.ENOTBLK) {
		return n, err
	}
	rq.Pos, rq.Flags = rq.Pos+uint64(n), rq.Flags&^kiocb.Direct
	m, err := buffered.Read(t, &f.fs.env, f.n.ip, rq, p[n:], &f.ra)
	return n + m, err
}

// writeDirect models the end of btrfs_direct_write(): what was written through the cache is written
// back and removed from it, so that the next direct read finds it on the device.
func (f *File) writeDirect(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error) {
	n, err := direct.Write(t, &f.fs.env, f.n.ip, rq, src)
	switch {
	case err == nil, errors.Is(err, errno.EIOCBQUEUED): // direct.Write syncs it
		return n, err
	case !errors.Is(err, errno.ENOTBLK):
		return f.syncWritten(t, rq, n, err)
	}
	// NOWAIT ends here: a kernel that falls back at all sleeps in the page cache.
	start, wrote := rq.Pos+uint64(n), rq.Wrote
	rq.Pos, rq.Flags, rq.Wrote = start, rq.Flags&^(kiocb.Direct|kiocb.Nowait), &start
	m, err := f.writeCache(t, rq, src.After(n))
	if m > 0 {
		if wrote != nil && n == 0 {
			*wrote = start
		}
		end := start + uint64(m)
		if ferr := f.fs.engine.FlushPages(t, f.n.ip, start, end); ferr != nil {
			m, err = 0, ferr
		}
		f.n.ip.Pages.Invalidate(t, start>>pagecache.PageShift, (end+pagecache.PageSize-1)>>pagecache.PageShift)
	}
	return f.syncWritten(t, rq, n+m, err)
}

// writeBuffered models btrfs_do_write_iter().
func (f *File) writeBuffered(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error) {
	n, err := f.writeCache(t, rq, src)
	return f.syncWritten(t, rq, n, err)
}

// writeCache writes to the page cache and syncs nothing.
func (f *File) writeCache(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error) {
	rq.Flags &^= kiocb.DSync
	return buffered.Write(t, &f.fs.env, f.n.ip, rq, src)
}

// syncWritten ends a write of n bytes that err stopped, or nothing.
func (f *File) syncWritten(t *sched.Task, rq kiocb.Request, n int, err error) (int, error) {
	if err != nil && n > 0 && rq.Flags&kiocb.DSync != 0 {
		// Extents that the write gave up with its source end with an error that is not the sync's.
		// An error of the device is recorded in the mapping.
		_ = f.n.ip.Ordered.WaitRange(t, 0, pagecache.MaxFileEnd)
	}
	return rq.Durable(t, n, err)
}

// SyncWrite is Fsync at the end of a durable write. Models generic_write_sync().
func (f *File) SyncWrite(t *sched.Task) error {
	if f.inodeHeld.Load() {
		t.Journal = iopath.DirectSync{}
	}
	return fsync.Sync(t, &f.fs.env, f.n.ip, &f.errs)
}

// HoldsInode marks the file, as kiocb.File says.
func (f *File) HoldsInode(yes bool) { f.inodeHeld.Store(yes) }

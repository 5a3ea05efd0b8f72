package fs

import (
	"btrlab/internal/errno"
	"btrlab/internal/iopath/reflink"
	"btrlab/internal/sched"
)

// Reflink makes [to, to+n) of f share the extents of [off, off+n) of src, which is of the same file system; n = 0 is up to the end of
// src. Offsets are multiples of the block size, n is one too unless the range ends at the end of src and not before the end of f. It
// returns once the trees have it; a Sync makes it durable. Errors: EBADF, EROFS, EPERM, EXDEV, EINVAL, EFBIG, ENOSPC, EIO.
//
// Models FICLONERANGE: vfs_clone_file_range().
func (f *File) Reflink(t *sched.Task, src *File, off, n, to int64) error {
	err := f.mayWrite()
	switch {
	case err != nil:
	case src.fs != f.fs:
		err = errno.EXDEV
	case off < 0 || n < 0 || to < 0:
		err = errno.EINVAL
	case f.n.sealed() || f.n.appendOnly():
		err = errno.EPERM
	default:
		err = reflink.Clone(t, &f.fs.env, src.n.ip, f.n.ip, uint64(off), uint64(n), uint64(to))
	}
	return f.opError("reflink", to, int(n), err)
}

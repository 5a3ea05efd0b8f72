package fs

import (
	"btrlab/internal/errno"
	"btrlab/internal/iopath/reflink"
	"btrlab/internal/sched"
)

// Reflink makes [to, to+n) of f share the extents of [off, off+n) of src, which is of the same file
// system; n = 0 is up to the end of src. Offsets are multiples of the block size, n is one too
// unless the range ends at the end of src and not before the end of f. It returns once the trees
// have it; a Sync makes it durable. Errors: EBADF, EROFS, EPERM, EXDEV, EINVAL, EFBIG, ENOSPC, EIO.
//
// Models FICLONERANGE: vfs_clone_file_range().
func (f *File) Reflink(t *sched.Task, src *File, off, n, to int64) error {
	err := f.mayReflink(src)
	switch {
	case err != nil:
	case off < 0 || n < 0 || to < 0:
		err = errno.EINVAL
	default:
		err = reflink.Clone(t, &f.fs.env, src.n.ip, f.n.ip, uint64(off), uint64(n), uint64(to))
	}
	return f.opError("reflink", to, int(n), err)
}

func (f *File) mayReflink(src *File) error {
	err := f.mayWrite()
	switch {
	case err != nil:
	case src.fs != f.fs:
		err = errno.EXDEV
	case f.n.sealed() || f.n.appendOnly():
		err = errno.EPERM
	}
	return err
}

// ReflinkAll makes f have the bytes of src and no others, and share its extents. If the two files
// can share nothing f stays as it is.
func (f *File) ReflinkAll(t *sched.Task, src *File) error {
	err := f.mayReflink(src)
	if err == nil {
		err = reflink.Check(src.n.ip, f.n.ip)
	}
	if err != nil {
		return f.opError("reflink", 0, 0, err)
	}
	if !f.SameInode(src) && f.Size(t) > 0 { // FICLONE of a whole file cuts nothing
		if err := f.Truncate(t, 0); err != nil {
			return err
		}
	}
	return f.Reflink(t, src, 0, 0, 0)
}

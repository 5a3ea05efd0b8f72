package errno

// names are the numbers of this package with their names.
var names = [...]struct {
	e    Errno
	name string
}{
	{EPERM, "EPERM"}, {ENOENT, "ENOENT"}, {EINTR, "EINTR"}, {EIO, "EIO"}, {EAGAIN, "EAGAIN"}, {EBUSY, "EBUSY"}, {EEXIST, "EEXIST"},
	{ENOTDIR, "ENOTDIR"}, {EISDIR, "EISDIR"}, {EINVAL, "EINVAL"}, {EFBIG, "EFBIG"}, {ENOSPC, "ENOSPC"}, {EROFS, "EROFS"},
	{EMLINK, "EMLINK"}, {ENAMETOOLONG, "ENAMETOOLONG"}, {ENOTEMPTY, "ENOTEMPTY"}, {EOVERFLOW, "EOVERFLOW"}, {EOPNOTSUPP, "EOPNOTSUPP"},
	{EDQUOT, "EDQUOT"}, {ELOOP, "ELOOP"}, {EXDEV, "EXDEV"}, {EBADF, "EBADF"}, {EFAULT, "EFAULT"}, {EILSEQ, "EILSEQ"},
	{EUCLEAN, "EUCLEAN"}, {ENOTBLK, "ENOTBLK"},
}

// Name is the kernel's name of a number, "EAGAIN"; of one that is not of this package its text.
func Name(e Errno) string {
	for _, n := range names {
		if n.e == e {
			return n.name
		}
	}
	return e.Error()
}

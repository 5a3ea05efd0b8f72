package errno

import "syscall"

// Errno is an error number. It is the operating system's own type, so errors.Is matches what a
// system call returned.
type Errno = syscall.Errno

// The numbers the write path returns.
const (
	EPERM        = syscall.EPERM
	ENOENT       = syscall.ENOENT
	EINTR        = syscall.EINTR
	EIO          = syscall.EIO
	EAGAIN       = syscall.EAGAIN
	EACCES       = syscall.EACCES
	EBUSY        = syscall.EBUSY
	EEXIST       = syscall.EEXIST
	ENOTDIR      = syscall.ENOTDIR
	EISDIR       = syscall.EISDIR
	EINVAL       = syscall.EINVAL
	EFBIG        = syscall.EFBIG
	ERANGE       = syscall.ERANGE
	ENOSPC       = syscall.ENOSPC
	EROFS        = syscall.EROFS
	EMLINK       = syscall.EMLINK
	ENAMETOOLONG = syscall.ENAMETOOLONG
	ENOTEMPTY    = syscall.ENOTEMPTY
	EOVERFLOW    = syscall.EOVERFLOW
	EOPNOTSUPP   = syscall.EOPNOTSUPP
	EDQUOT       = syscall.EDQUOT
	ELOOP        = syscall.ELOOP
	EXDEV        = syscall.EXDEV
	EBADF        = syscall.EBADF
	EFAULT       = syscall.EFAULT
	EILSEQ       = syscall.EILSEQ
	EUCLEAN      = syscall.EUCLEAN
	ENOTBLK      = syscall.ENOTBLK
	EALREADY     = syscall.EALREADY
	ECANCELED    = syscall.ECANCELED
)

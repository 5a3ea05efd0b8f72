//go:build !linux

package errno

import (
	"fmt"
	"io/fs"
)

// Errno is an error number of Linux. The numbers of other systems differ, and some have no EUCLEAN
// at all.
type Errno uint16

// The numbers the write path returns. A test on Linux holds them and their words against Linux's.
const (
	EPERM        Errno = 1
	ENOENT       Errno = 2
	EINTR        Errno = 4
	EIO          Errno = 5
	EAGAIN       Errno = 11
	EACCES       Errno = 13
	EBUSY        Errno = 16
	EEXIST       Errno = 17
	ENOTDIR      Errno = 20
	EISDIR       Errno = 21
	EINVAL       Errno = 22
	EFBIG        Errno = 27
	ERANGE       Errno = 34
	ENOSPC       Errno = 28
	EROFS        Errno = 30
	EMLINK       Errno = 31
	ENAMETOOLONG Errno = 36
	ENOTEMPTY    Errno = 39
	EOVERFLOW    Errno = 75
	EOPNOTSUPP   Errno = 95
	EDQUOT       Errno = 122
	ELOOP        Errno = 40
	EXDEV        Errno = 18
	EBADF        Errno = 9
	EFAULT       Errno = 14
	EILSEQ       Errno = 84
	EUCLEAN      Errno = 117
	ENOTBLK      Errno = 15
	EALREADY     Errno = 114
	ECANCELED    Errno = 125
)

var words = map[Errno]string{
	EPERM:        "operation not permitted",
	ENOENT:       "no such file or directory",
	EINTR:        "interrupted system call",
	EIO:          "input/output error",
	EAGAIN:       "resource temporarily unavailable",
	EACCES:       "permission denied",
	EBUSY:        "device or resource busy",
	EEXIST:       "file exists",
	ENOTDIR:      "not a directory",
	EISDIR:       "is a directory",
	EINVAL:       "invalid argument",
	EFBIG:        "file too large",
	ERANGE:       "numerical result out of range",
	ENOSPC:       "no space left on device",
	EROFS:        "read-only file system",
	EMLINK:       "too many links",
	ENAMETOOLONG: "file name too long",
	ENOTEMPTY:    "directory not empty",
	EOVERFLOW:    "value too large for defined data type",
	EOPNOTSUPP:   "operation not supported",
	EDQUOT:       "disk quota exceeded",
	ELOOP:        "too many levels of symbolic links",
	EXDEV:        "invalid cross-device link",
	EBADF:        "bad file descriptor",
	EFAULT:       "bad address",
	EILSEQ:       "invalid or incomplete multibyte or wide character",
	EUCLEAN:      "structure needs cleaning",
	ENOTBLK:      "block device required",
	EALREADY:     "operation already in progress",
	ECANCELED:    "operation canceled",
}

// Error gives Linux's words.
func (e Errno) Error() string {
	if s, ok := words[e]; ok {
		return s
	}
	return fmt.Sprintf("errno %d", uint16(e))
}

// Is matches the errors of package io/fs, as the numbers of an operating system do.
func (e Errno) Is(target error) bool {
	switch target {
	case fs.ErrPermission:
		return e == EPERM
	case fs.ErrExist:
		return e == EEXIST || e == ENOTEMPTY
	case fs.ErrNotExist:
		return e == ENOENT
	}
	return false
}

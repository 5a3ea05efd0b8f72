//go:build !portable

package hostio

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NoWait is RWF_NOWAIT: a request that would wait answers EAGAIN.
const NoWait = unix.RWF_NOWAIT

// File is a file of the host that is open twice: through the page cache, and past it with O_DIRECT
// where the file system has that.
type File struct {
	path     string
	buffered int
	direct   int   // -1: not to be had
	noDirect error // why
}

// Create makes the file, which must not be there.
func Create(path string) (*File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: path, Err: err}
	}
	f := &File{path: path, buffered: fd}
	if f.direct, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_DIRECT, 0); err != nil {
		f.direct, f.noDirect = -1, &os.PathError{Op: "open with O_DIRECT", Path: path, Err: err}
	}
	return f, nil
}

// FD is the descriptor to put into a Queue.
func (f *File) FD(direct bool) (int, error) {
	if direct {
		return f.direct, f.noDirect
	}
	return f.buffered, nil
}

// Transfer is one preadv2 or pwritev2 with flags, or pread or pwrite without: it gives the bytes
// moved, as the kernel said.
//
// What it costs more than the same call from C: the runtime notes that the goroutine enters and
// leaves the kernel, and when the call sleeps, gives its processor to another thread and takes one
// again. BenchmarkSystemCall measures the first part.
func (f *File) Transfer(op Op, direct bool, p []byte, off int64, flags uint32) (int, error) {
	fd, err := f.FD(direct)
	if err != nil {
		return 0, err
	}
	for {
		n, e := transfer(op, fd, p, off, flags)
		if e == 0 {
			return n, nil
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

func transfer(op Op, fd int, p []byte, off int64, flags uint32) (int, unix.Errno) {
	if flags == 0 {
		call := uintptr(unix.SYS_PREAD64)
		if op == Write {
			call = unix.SYS_PWRITE64
		}
		n, _, e := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(off), 0, 0)
		return int(n), e
	}
	call := uintptr(unix.SYS_PREADV2)
	if op == Write {
		call = unix.SYS_PWRITEV2
	}
	iov := unix.Iovec{Base: unsafe.SliceData(p), Len: uint64(len(p))}
	// The offset is two words, of which a 64-bit kernel reads the first.
	n, _, e := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1, uintptr(off), 0, uintptr(flags))
	return int(n), e
}

// Truncate sets the size.
func (f *File) Truncate(size int64) error { return unix.Ftruncate(f.buffered, size) }

// Fallocate is fallocate(2).
func (f *File) Fallocate(mode uint32, off, n int64) error {
	for {
		if err := unix.Fallocate(f.buffered, mode, off, n); err != unix.EINTR {
			return err
		}
	}
}

// Sync is fsync(2).
func (f *File) Sync() error {
	for {
		if err := unix.Fsync(f.buffered); err != unix.EINTR {
			return err
		}
	}
}

// Size is the size by fstat; 0 when that fails.
func (f *File) Size() int64 {
	var st unix.Stat_t
	if unix.Fstat(f.buffered, &st) != nil {
		return 0
	}
	return st.Size
}

// DropCache is posix_fadvise(POSIX_FADV_DONTNEED): clean pages of the range leave the page cache.
func (f *File) DropCache(off, n int64) error {
	return unix.Fadvise(f.buffered, off, n, unix.FADV_DONTNEED)
}

const noCow = 0x00800000 // FS_NOCOW_FL

// SetNoCow makes the file, which must be empty, NOCOW. The error is EOPNOTSUPP where the file
// system knows no such thing.
func (f *File) SetNoCow() error {
	flags, err := unix.IoctlGetInt(f.buffered, unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(f.buffered, unix.FS_IOC_SETFLAGS, flags|noCow)
	}
	if errors.Is(err, unix.ENOTTY) {
		err = unix.EOPNOTSUPP
	}
	return err
}

// Close closes the file and removes it.
func (f *File) Close() error {
	err := unix.Unlink(f.path)
	if err != nil {
		err = &os.PathError{Op: "remove", Path: f.path, Err: err}
	}
	if f.direct >= 0 {
		unix.Close(f.direct)
	}
	return errors.Join(err, unix.Close(f.buffered))
}

// FileSystem is the type of the file system that path is on: "btrfs", "xfs", or its magic number.
func FileSystem(path string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	switch st.Type {
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs", nil
	case unix.EXT4_SUPER_MAGIC:
		return "ext4", nil
	case unix.XFS_SUPER_MAGIC:
		return "xfs", nil
	case unix.TMPFS_MAGIC:
		return "tmpfs", nil
	}
	return fmt.Sprintf("0x%x", st.Type), nil
}

// InMemory reports, by mincore(2), whether a page of the file is in the page cache that has bytes
// of [off, off+n), with n at least 1.
func InMemory(fd int, off, n int64) (bool, error) {
	start := off &^ 4095
	p, err := unix.Mmap(fd, start, int(off+n-start), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return false, &os.SyscallError{Syscall: "mmap", Err: err}
	}
	pages := make([]byte, (len(p)+4095)/4096)
	_, _, no := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(unsafe.Pointer(&pages[0])))
	if err := unix.Munmap(p); err != nil {
		return false, err
	}
	if no != 0 {
		return false, &os.SyscallError{Syscall: "mincore", Err: no}
	}
	return slices.ContainsFunc(pages, func(b byte) bool { return b&1 != 0 }), nil
}

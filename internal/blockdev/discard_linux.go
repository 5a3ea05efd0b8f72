//go:build !portable

package blockdev

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// Discard makes File a Discarder: a hole in an image file, BLKDISCARD of a block device.
func (d *File) Discard(t *sched.Task, off, n int64) error {
	end := (off + n) &^ (directAlign - 1)
	off = (off + directAlign - 1) &^ (directAlign - 1)
	if off >= end {
		return nil
	}
	var err error
	if d.block {
		bytes := [2]uint64{uint64(off), uint64(end - off)}
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, d.f.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(&bytes))); e != 0 {
			err = e
		}
	} else {
		err = unix.Fallocate(int(d.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, end-off)
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) {
		return errno.EOPNOTSUPP
	}
	return err
}

//go:build !portable

package hostio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Scrub has the kernel read a mounted file system of one device whole and compare its checksums,
// and returns how many errors it found: BTRFS_IOC_SCRUB. It needs root.
func Scrub(dir string) (errors uint64, err error) {
	var args struct {
		device, start, end, flags uint64
		// data and tree extents, their bytes; then errors by kind
		progress [15]uint64
		unused   [(1024 - 32 - 15*8) / 8]uint64
	}
	args.device, args.end = 1, ^uint64(0)
	const scrub = 0xc400941b // _IOWR(0x94, 27, struct btrfs_ioctl_scrub_args)
	if err := ioctlDir(dir, scrub, unsafe.Pointer(&args)); err != nil {
		return 0, err
	}
	const read, csum, verify, super, malloc, uncorrectable = 4, 5, 6, 9, 10, 11
	for _, i := range []int{read, csum, verify, super, malloc, uncorrectable} {
		errors += args.progress[i]
	}
	return errors, nil
}

// EnableQuota turns quotas on, BTRFS_IOC_QUOTA_CTL, and waits until the kernel has counted.
func EnableQuota(dir string) error {
	args := [2]uint64{1}       // BTRFS_QUOTA_CTL_ENABLE
	const control = 0xc0109428 // _IOWR(0x94, 40, struct btrfs_ioctl_quota_ctl_args)
	const wait = 0x0000942e    // _IO(0x94, 46), BTRFS_IOC_QUOTA_RESCAN_WAIT
	if err := ioctlDir(dir, control, unsafe.Pointer(&args)); err != nil {
		return err
	}
	return ioctlDir(dir, wait, nil)
}

// LimitQuota lets the group of a subvolume refer to bytes at most: BTRFS_IOC_QGROUP_LIMIT.
func LimitQuota(dir string, group, bytes uint64) error {
	args := [6]uint64{group, 1, bytes} // BTRFS_QGROUP_LIMIT_MAX_RFER
	const limit = 0x8030942b           // _IOR(0x94, 43, struct btrfs_ioctl_qgroup_limit_args)
	return ioctlDir(dir, limit, unsafe.Pointer(&args))
}

func ioctlDir(dir string, request uintptr, args unsafe.Pointer) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(args)); e != 0 {
		return e
	}
	return nil
}

//go:build !portable

package hostio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mount is an image that the kernel has mounted through a loop device.
type Mount struct {
	Dir  string
	Dev  uint32 // of the loop device, as the kernel numbers it in tracepoints: major<<20 | minor
	fd   int    // of Dir, for syncfs
	loop int    // open, so that the device stays
}

// MountLoop mounts image, a file, on dir as fstype with the options of mount(8) that are the file
// system's. It needs root.
func MountLoop(image, dir, fstype, options string) (_ *Mount, err error) {
	m := &Mount{Dir: dir, fd: -1, loop: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	path, err := m.attach(image)
	if err != nil {
		return nil, fmt.Errorf("attach %s to a loop device: %w", image, err)
	}
	if err := unix.Mount(path, dir, fstype, unix.MS_NOATIME, options); err != nil {
		return nil, fmt.Errorf("mount %s as %s: %w", image, fstype, err)
	}
	if m.fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, errors.Join(&os.PathError{Op: "open", Path: dir, Err: err}, unix.Unmount(dir, 0))
	}
	return m, nil
}

// attach makes image the file of a free loop device, which detaches itself after its last close.
func (m *Mount) attach(image string) (path string, err error) {
	ctl, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(ctl)
	file, err := unix.Open(image, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(file)
	for {
		n, err := unix.IoctlRetInt(ctl, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", err
		}
		path = fmt.Sprintf("/dev/loop%d", n)
		if m.loop, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return "", err
		}
		err = unix.IoctlLoopConfigure(m.loop, &unix.LoopConfig{Fd: uint32(file), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}})
		if err == nil {
			break
		}
		unix.Close(m.loop)
		m.loop = -1
		if err != unix.EBUSY { // another process was faster
			return "", err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(m.loop, &st); err != nil {
		return "", err
	}
	m.Dev = unix.Major(st.Rdev)<<20 | unix.Minor(st.Rdev)
	return path, nil
}

// Sync is syncfs(2).
func (m *Mount) Sync() error { return unix.Syncfs(m.fd) }

// Close writes everything back, unmounts and gives the loop device back.
func (m *Mount) Close() (err error) {
	if m.fd >= 0 {
		// Linux 6.18 can crash in an umount that has data to write back, so it is written before.
		_ = m.Sync()
		_ = unix.Close(m.fd)
		m.fd = -1
		for try := 0; ; try++ {
			if err = unix.Unmount(m.Dir, 0); !errors.Is(err, unix.EBUSY) || try == 50 {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			err = errors.Join(&os.PathError{Op: "unmount", Path: m.Dir, Err: err}, unix.Unmount(m.Dir, unix.MNT_DETACH))
		}
	}
	if m.loop >= 0 {
		err = errors.Join(err, unix.Close(m.loop))
		m.loop = -1
	}
	return err
}

// snapArgs is struct btrfs_ioctl_vol_args_v2.
type snapArgs struct {
	fd      int64
	transid uint64
	flags   uint64
	unused  [4]uint64
	name    [4040]byte
}

// Snapshot makes path a snapshot of the subvolume at source, with BTRFS_IOC_SNAP_CREATE_V2.
func Snapshot(source, path string) error {
	src, err := unix.Open(source, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	dir, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	args := snapArgs{fd: int64(src)}
	copy(args.name[:len(args.name)-1], filepath.Base(path))
	const snapCreateV2 = 0x50009417 // _IOW(0x94, 23, struct btrfs_ioctl_vol_args_v2)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(dir), snapCreateV2, uintptr(unsafe.Pointer(&args))); e != 0 {
		return e
	}
	return nil
}

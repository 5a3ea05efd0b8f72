package transfer

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"btrlab/internal/progs/image"

	"golang.org/x/sys/unix"
)

// none reports whether the host says that there is no such thing here.
func none(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL)
}

// fromSys adds what only Linux has in st.
func (h *inodeAttrs) fromSys(st iofs.FileInfo) {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		h.Atime = time.Unix(int64(sys.Atim.Sec), int64(sys.Atim.Nsec))
		h.Rdev = uint64(unix.Major(uint64(sys.Rdev)))<<20 | uint64(unix.Minor(uint64(sys.Rdev)))
	}
}

// openFile opens a file for reading, without os.Open's questions whether its poller can watch it.
func openFile(path string) (*os.File, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, &iofs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// ofFile is readAttrs of an open file.
func (h *inodeAttrs) ofFile(f *os.File, keep Keep) (err error) {
	fd := int(f.Fd())
	if keep.Xattrs {
		if h.Xattrs, err = xattrsOf(fd); err != nil {
			return &iofs.PathError{Op: "read extended attributes", Path: f.Name(), Err: err}
		}
	}
	if keep.Flags {
		h.Flags, err = flagsOf(fd)
	}
	return err
}

// xattrsOf reads the extended attributes of an open file or directory.
func xattrsOf(fd int) ([]image.Xattr, error) {
	if n, _ := unix.Flistxattr(fd, nil); n == 0 {
		return nil, nil // an error comes again
	}
	return xattrsBy(func(b []byte) (int, error) { return unix.Flistxattr(fd, b) },
		func(name string, b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) })
}

// readAttrs reads what keep wants of path, which is not followed.
func readAttrs(h *inodeAttrs, path string, st iofs.FileInfo, keep Keep) (err error) {
	if keep.Xattrs {
		if h.Xattrs, err = readXattrs(path); err != nil {
			return &iofs.PathError{Op: "read extended attributes", Path: path, Err: err}
		}
	}
	if keep.Flags && (st.Mode().IsRegular() || st.IsDir()) {
		h.Flags, err = readFlags(path)
	}
	return err
}

// readable says whether this process may read the file.
func readable(path string) error {
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK, unix.AT_EACCESS); err != nil {
		return &iofs.PathError{Op: "open", Path: path, Err: err}
	}
	return nil
}

// readFlags reads the flags of a file or a directory; one that cannot be opened has none.
func readFlags(path string) (uint64, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, nil
	}
	defer unix.Close(fd)
	return flagsOf(fd)
}

// flagsOf reads the flags of an open file or directory.
func flagsOf(fd int) (uint64, error) {
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		if none(err) {
			err = nil
		}
		return 0, err
	}
	return imageFlags(uint32(flags)), nil
}

func readXattrs(path string) (list []image.Xattr, err error) {
	return xattrsBy(func(b []byte) (int, error) { return unix.Llistxattr(path, b) },
		func(name string, b []byte) (int, error) { return unix.Lgetxattr(path, name, b) })
}

// xattrsBy reads extended attributes by two calls of the host.
func xattrsBy(listing func(b []byte) (int, error), get func(name string, b []byte) (int, error)) (list []image.Xattr, err error) {
	names, err := sized(listing)
	if err != nil {
		if none(err) {
			err = nil
		}
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value, err := sized(func(b []byte) (int, error) { return get(name, b) })
		if errors.Is(err, unix.ENODATA) || none(err) {
			continue // it went meanwhile, or is only listed
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, image.Xattr{Name: name, Value: value})
	}
	return list, nil
}

// sized reads what may grow between the question for its size and the reading.
func sized(read func(b []byte) (int, error)) ([]byte, error) {
	for {
		n, err := read(nil)
		if err != nil || n == 0 {
			return nil, err
		}
		b := make([]byte, n)
		if n, err = read(b); !errors.Is(err, unix.ERANGE) {
			return b[:max(n, 0)], err
		}
	}
}

// at calls do with a path of the object that follows nothing that lies outside of its directory.
func (o *object) at(do func(path string) error) error {
	return do(fmt.Sprintf("/proc/self/fd/%d/%s", o.dir.self.Fd(), o.name))
}

func (o *object) setxattr(name string, value []byte) error {
	if o.f != nil {
		return unix.Fsetxattr(int(o.f.Fd()), name, value, 0)
	}
	return o.at(func(path string) error { return unix.Lsetxattr(path, name, value, 0) })
}

// setFlags adds flags to those that the file has. What its directory says about compression gives
// way to what they say.
func (o *object) setFlags(flags uint32) error {
	if o.f == nil {
		return unix.EOPNOTSUPP
	}
	have, err := unix.IoctlGetInt(int(o.f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	const compression = 0x4 | 0x400 // FS_COMPR_FL, FS_NOCOMP_FL
	kept := uint32(have)
	if flags&compression != 0 {
		kept &^= compression
	}
	if want := kept | flags; want != uint32(have) {
		return unix.IoctlSetPointerInt(int(o.f.Fd()), unix.FS_IOC_SETFLAGS, int(want))
	}
	return nil
}

// link gives the file first, a path from d, the name to as well. Flags of chattr that a file has
// already and that allow no further name are taken away meanwhile.
func (d *hostDir) link(first, to string) error {
	err := d.Link(first, to)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	f, ferr := d.OpenFile(first, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if ferr != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	have, ferr := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	held := uint32(have) & flagsOfHost(pinned)
	if ferr != nil || held == 0 || unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, have&^int(held)) != nil {
		return err
	}
	err = d.Link(first, to)
	return errors.Join(err, unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, have))
}

// setTimes sets the times of a name, which is not followed.
func (d *hostDir) setTimes(name string, atime, mtime time.Time) error {
	a, aerr := unix.TimeToTimespec(atime)
	m, merr := unix.TimeToTimespec(mtime)
	if err := errors.Join(aerr, merr); err != nil {
		return err
	}
	ts := []unix.Timespec{a, m}
	return unix.UtimesNanoAt(int(d.self.Fd()), name, ts, unix.AT_SYMLINK_NOFOLLOW)
}

// create makes a file that is not there yet. It is a call of the kernel, because os.Root looks at
// the name first, and os.OpenFile at the file for its poller.
func (d *hostDir) create(name string) (*os.File, error) {
	fd, err := unix.Openat(int(d.self.Fd()), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// mknod makes a device, a pipe or a socket.
func (p place) mknod(mode uint32, rdev uint64) error {
	dev := unix.Mkdev(uint32(rdev>>20), uint32(rdev&(1<<20-1)))
	if err := unix.Mknodat(int(p.dir.self.Fd()), p.name, mode&(unix.S_IFMT|0o777), int(dev)); err != nil {
		return &os.PathError{Op: "mknod", Path: p.path, Err: err}
	}
	return nil
}

// holdsOwners says whether this process may give files away.
func holdsOwners() bool { return os.Geteuid() == 0 }

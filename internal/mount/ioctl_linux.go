package mount

import (
	"encoding/binary"
	"math"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// The ioctls on the flags of an inode, of 64-bit systems.
const (
	ioctlGetFlags   = 0x80086601
	ioctlSetFlags   = 0x40086602
	ioctlGetXflags  = 0x801c581f
	ioctlSetXflags  = 0x401c5820
	ioctlTrim       = 0xc0185879 // FITRIM
	ioctlShutdown   = 0x8004587d // FS_IOC_SHUTDOWN, also XFS_IOC_GOINGDOWN
	ioctlSync       = 0x9408     // BTRFS_IOC_SYNC
	sizeofFlags     = 4
	sizeofFsxattr   = 28
	sizeofTrim      = 24         // struct fstrim_range: start, len, minlen
	xflagsNotStored = 0x80000000 // FS_XFLAG_HASATTR
)

func (s *server) Ioctl(_ <-chan struct{}, in *fuse.IoctlIn, p []byte, _ *fuse.IoctlOut, out []byte) fuse.Status {
	return s.on("ioctl", in.NodeId, func(t *sched.Task, n *fs.Node) error {
		if in.Cmd == ioctlTrim && len(p) >= sizeofTrim && len(out) >= sizeofTrim {
			return s.trim(t, in, p, out)
		}
		switch in.Cmd {
		case ioctlShutdown:
			return s.shutdown(t, in)
		case ioctlSync:
			return s.fs.Sync(t)
		}
		flags := n.Flags()
		var want uint64
		switch {
		case in.Cmd == ioctlGetFlags && len(out) >= sizeofFlags:
			clear(out)
			for _, x := range format.HostFlags {
				if flags&x.Inode != 0 {
					binary.NativeEndian.PutUint32(out, binary.NativeEndian.Uint32(out)|x.Attr)
				}
			}
			return nil
		case in.Cmd == ioctlGetXflags && len(out) >= sizeofFsxattr:
			clear(out)
			for _, x := range format.HostFlags {
				if flags&x.Inode != 0 {
					binary.NativeEndian.PutUint32(out, binary.NativeEndian.Uint32(out)|x.X)
				}
			}
			return nil
		case in.Cmd == ioctlSetFlags && len(p) >= sizeofFlags:
			given := binary.NativeEndian.Uint32(p)
			for _, x := range format.HostFlags {
				if given&x.Attr != 0 {
					want |= x.Inode
				}
				given &^= x.Attr
			}
			if given != 0 {
				return errno.EOPNOTSUPP // models btrfs_fileattr_set()
			}
		case in.Cmd == ioctlSetXflags && len(p) >= sizeofFsxattr:
			given := binary.NativeEndian.Uint32(p) &^ xflagsNotStored
			want = flags
			for _, x := range format.HostFlags {
				if x.X == 0 {
					continue
				}
				want &^= x.Inode
				if given&x.X != 0 {
					want |= x.Inode
				}
				given &^= x.X
			}
			if given != 0 {
				return errno.EOPNOTSUPP
			}
		default:
			return syscall.ENOTTY
		}
		err := n.SetFlags(t, want)
		s.stale(in.NodeId, err == nil) // the kernel knows no ioctl that changes ctime
		return err
	})
}

// shutdown is FS_IOC_SHUTDOWN: what is not durable is lost, and each request from now on is EIO.
// The kernel does not hand over the flags, and none of those that tests use asks for more of btrfs.
//
// Models btrfs_ioctl_shutdown() of Linux 6.19 with FS_SHUTDOWN_FLAGS_NOLOGFLUSH.
func (s *server) shutdown(t *sched.Task, in *fuse.IoctlIn) error {
	if in.Uid != 0 {
		return errno.EPERM
	}
	s.down.Store(true)
	s.fs.Shutdown(t)
	return nil
}

// trim is FITRIM: fstrim(8). A range of addresses is not looked at, all is trimmed, as fstrim asks
// for. Models btrfs_ioctl_fitrim() and btrfs_trim_fs(), with their refusals.
func (s *server) trim(t *sched.Task, in *fuse.IoctlIn, p, out []byte) error {
	if in.Uid != 0 {
		return errno.EPERM
	}
	start, length := binary.NativeEndian.Uint64(p), binary.NativeEndian.Uint64(p[8:])
	if length < format.SectorSize || start == math.MaxUint64 || length != math.MaxUint64 && start+length < start {
		return errno.EINVAL
	}
	n, err := s.fs.Trim(t, max(binary.NativeEndian.Uint64(p[16:]), format.SectorSize))
	copy(out, p[:sizeofTrim])
	binary.NativeEndian.PutUint64(out[8:], n)
	return err
}

package mount

import (
	"errors"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"btrlab/internal/errno"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
)

// isXattr is EOPNOTSUPP for a name of no namespace that btrfs has handlers for.
func isXattr(name string) error {
	for _, prefix := range []string{"user.", "trusted.", "security.", "btrfs."} {
		if strings.HasPrefix(name, prefix) && len(name) > len(prefix) {
			return nil
		}
	}
	if isACL(name) {
		return nil
	}
	return errno.EOPNOTSUPP
}

func isACL(name string) bool { return name == fs.ACLAccess || name == fs.ACLDefault }

// noData is err, in which ENOENT is ENODATA.
func noData(err error) error {
	if errors.Is(err, errno.ENOENT) {
		return syscall.ENODATA
	}
	return err
}

// fill copies value to dest if it has room. Without dest only the size is wanted.
func fill(dest, value []byte) (uint32, error) {
	if len(dest) > 0 && len(dest) < len(value) {
		return uint32(len(value)), errno.ERANGE
	}
	copy(dest, value)
	return uint32(len(value)), nil
}

func (s *server) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (size uint32, st fuse.Status) {
	st = s.on("getxattr", h.NodeId, func(t *sched.Task, n *fs.Node) error {
		if err := isXattr(name); err != nil {
			return err
		}
		value, err := n.Getxattr(t, name)
		if err != nil {
			return noData(err)
		}
		size, err = fill(dest, value)
		return err
	})
	return size, st
}

func (s *server) ListXAttr(_ <-chan struct{}, h *fuse.InHeader, dest []byte) (size uint32, st fuse.Status) {
	st = s.on("listxattr", h.NodeId, func(t *sched.Task, n *fs.Node) error {
		names, err := n.Listxattr(t)
		if err != nil {
			return err
		}
		var list []byte
		for _, name := range names {
			list = append(append(list, name...), 0)
		}
		size, err = fill(dest, list)
		return err
	})
	return size, st
}

func (s *server) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	return s.on("setxattr", in.NodeId, func(t *sched.Task, n *fs.Node) error {
		if err := isXattr(name); err != nil {
			return err
		}
		if isACL(name) {
			return n.SetACL(t, name, value, in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0)
		}
		want := fs.XattrSet
		switch in.Flags {
		case unix.XATTR_CREATE:
			want = fs.XattrCreate
		case unix.XATTR_REPLACE:
			want = fs.XattrReplace
		}
		return noData(n.SetxattrIf(t, name, value, want))
	})
}

func (s *server) RemoveXAttr(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return s.on("removexattr", h.NodeId, func(t *sched.Task, n *fs.Node) error {
		if err := isXattr(name); err != nil {
			return err
		}
		return noData(n.Removexattr(t, name))
	})
}

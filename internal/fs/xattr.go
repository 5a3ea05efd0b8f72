package fs

import (
	"errors"
	"strings"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Listxattr lists the names of the inode's extended attributes, in the order of its tree. Models
// btrfs_listxattr().
func (n *Node) Listxattr(t *sched.Task) ([]string, error) {
	return n.fs.store.Listxattr(t, n.vol.root, n.ip.Ino)
}

// Getxattr reads an extended attribute. ENOENT when the inode has none of the name: ENODATA to a
// system call. Models btrfs_getxattr().
func (n *Node) Getxattr(t *sched.Task, name string) ([]byte, error) {
	return n.fs.store.Getxattr(t, n.vol.root, n.ip.Ino, name)
}

// Setxattr makes the extended attribute have the value. ENOSPC when it is too large for an item,
// ERANGE for a name that is empty or longer than 255 bytes, EPERM for an immutable or append-only
// inode, and for a name user.* of what is no file and no directory. A name that begins with btrfs.
// is a property (props.go): EINVAL for one that there is not, or for a value that it has not.
// Models import_xattr_name(), xattr_permission() and btrfs_setxattr_trans(). Difference: names of
// any other namespace are taken.
func (n *Node) Setxattr(t *sched.Task, name string, value []byte) error {
	return n.SetxattrIf(t, name, value, XattrSet)
}

// XattrIf says whether SetxattrIf wants the attribute to be there.
type XattrIf uint8

// What SetxattrIf may want, as the flags of setxattr(2).
const (
	XattrSet     XattrIf = iota
	XattrCreate          // EEXIST when it is there
	XattrReplace         // ENOENT when it is not, which is ENODATA to a system call
)

// SetxattrIf is Setxattr on a condition, which no other change comes between.
func (n *Node) SetxattrIf(t *sched.Task, name string, value []byte, want XattrIf) error {
	if name == "" || len(name) > format.MaxNameLen {
		return errno.ERANGE
	}
	if isProperty(name) {
		return n.setProperty(t, name, string(value), false)
	}
	return n.changeXattr(t, name, want, func(h *transaction.Handle) error {
		return n.fs.store.Setxattr(t, h.Trans(), n.vol.root, n.ip.Ino, name, value)
	})
}

// Removexattr takes the extended attribute away. ENOENT when the inode has none of the name:
// ENODATA to a system call. EINVAL for a property that there is not.
func (n *Node) Removexattr(t *sched.Task, name string) error {
	if isProperty(name) {
		return n.setProperty(t, name, "", true)
	}
	return n.changeXattr(t, name, XattrSet, func(h *transaction.Handle) error {
		return n.fs.store.Removexattr(t, h.Trans(), n.vol.root, n.ip.Ino, name)
	})
}

// changeXattr lets do change the attribute of the name.
func (n *Node) changeXattr(t *sched.Task, name string, want XattrIf, do func(h *transaction.Handle) error) error {
	if err := n.writable(); err != nil {
		return err
	}
	if n.pinned() || strings.HasPrefix(name, "user.") && !n.IsRegular() && !n.IsDir() {
		return errno.EPERM
	}
	n.lock(t)
	defer n.ip.Unlock(t)
	if want != XattrSet {
		_, err := n.fs.store.Getxattr(t, n.vol.root, n.ip.Ino, name)
		switch {
		case err == nil && want == XattrCreate:
			return errno.EEXIST
		case err != nil && (want == XattrReplace || !errors.Is(err, errno.ENOENT)):
			return err
		}
	}
	return n.fs.env.ChangeXattr(t, n.ip, name, do)
}

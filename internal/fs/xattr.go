package fs

import (
	"errors"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Listxattr lists the names of the inode's extended attributes, in the order of its tree. Models btrfs_listxattr().
func (n *Node) Listxattr(t *sched.Task) ([]string, error) {
	return n.fs.store.Listxattr(t, n.vol.root, n.ip.Ino)
}

// Getxattr reads an extended attribute. ENOENT when the inode has none of the name: ENODATA to a system call. Models btrfs_getxattr().
func (n *Node) Getxattr(t *sched.Task, name string) ([]byte, error) {
	return n.fs.store.Getxattr(t, n.vol.root, n.ip.Ino, name)
}

// Setxattr makes the extended attribute have the value. ENOSPC when it is too large for an item, EPERM for an immutable or append-only inode.
// Models btrfs_setxattr_trans(). Difference: no flags, and any name is taken.
func (n *Node) Setxattr(t *sched.Task, name string, value []byte) error {
	return n.changeXattr(t, func(h *transaction.Handle) error {
		return n.fs.store.Setxattr(t, h.Trans(), n.vol.root, n.ip.Ino, name, value)
	})
}

// Removexattr takes the extended attribute away. ENOENT when the inode has none of the name: ENODATA to a system call.
func (n *Node) Removexattr(t *sched.Task, name string) error {
	return n.changeXattr(t, func(h *transaction.Handle) error {
		return n.fs.store.Removexattr(t, h.Trans(), n.vol.root, n.ip.Ino, name)
	})
}

// changeXattr lets do change an attribute, and the ctime with it.
func (n *Node) changeXattr(t *sched.Task, do func(h *transaction.Handle) error) error {
	if err := n.writable(); err != nil {
		return err
	}
	if n.pinned() {
		return errno.EPERM
	}
	now := n.fs.now()
	n.lock(t)
	defer n.ip.Unlock(t)
	h, err := n.fs.trans.StartIn(t, n.vol.root, 2) // the attribute, the inode item
	if err != nil {
		return err
	}
	switch err := do(h); {
	case errors.Is(err, errno.ENOSPC), errors.Is(err, errno.ENOENT): // nothing has changed
		return errors.Join(n.fs.end(t, h, nil), err)
	case err != nil:
		return n.fs.abort(t, h, err)
	}
	n.ip.Change(t, func(it *format.InodeItem) { it.Ctime = now })
	n.ip.LastTransid.Store(h.Transid())
	n.ip.ItemsChanged(h.Transid())
	return n.fs.end(t, h, nil)
}

package fs

import (
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// SubvolItems lists the root items of all subvolumes but the top-level one, by id, without those
// that are deleted; as the last commit left them.
func (f *FS) SubvolItems(t *sched.Task) (ids []uint64, items []format.RootItem, err error) {
	return f.trans.Subvols(t)
}

// SetReceived ends a receive: the subvolume whose top directory is n gets the uuid of the one that
// was sent and the number of its last change, stransid, is read-only from now on, and durable.
// Errors: EINVAL when n is no top directory, EROFS when the subvolume is read-only already.
//
// Models what btrfs receive does at the end: BTRFS_IOC_SET_RECEIVED_SUBVOL, which sets no stime,
// and BTRFS_IOC_SUBVOL_SETFLAGS.
//
// Preconditions: nobody changes the subvolume.
func (n *Node) SetReceived(t *sched.Task, uuid format.UUID, stransid uint64) error {
	f := n.fs
	if !n.isTop() {
		return fmt.Errorf("inode %d is no top directory of a subvolume: %w", n.ip.Ino, errno.EINVAL)
	}
	if err := n.writable(); err != nil {
		return err
	}
	return n.freeze(t, errno.EROFS, func() error {
		return f.trans.SetReceived(t, n.vol.root.ID, transaction.Received{UUID: uuid, Stransid: stransid, Rtime: f.now()})
	})
}

// freeze lets change turn the subvolume of n into one that can be changed, or with EROFS into one
// that cannot be. It commits before, so that all that is in memory is in the tree before nothing
// can be changed, and after.
func (n *Node) freeze(t *sched.Task, frozen error, change func() error) error {
	f := n.fs
	if err := f.engine.SyncRoot(t, n.vol.root.ID); err != nil {
		return err
	}
	if err := f.commit(t); err != nil {
		return err
	}
	f.subvolSem.Lock(t)
	err := change()
	if err == nil {
		n.vol.frozen = frozen
	}
	f.subvolSem.Unlock(t)
	if err != nil {
		return err
	}
	return f.trans.Commit(t)
}

// ReadOnly reports whether nothing of the inode's subvolume can be changed, whatever the image.
func (n *Node) ReadOnly() bool { return n.vol.frozen != nil }

// SetReadOnly says whether the subvolume whose top directory is n can be changed; it is durable.
// Errors: EINVAL when n is no top directory, EPERM for a received subvolume that is to be changed,
// on which its sender's next difference rests. Models btrfs_ioctl_subvol_setflags() and what
// btrfs property asks before.
//
// Preconditions: nobody changes the subvolume, or has a file of it open for writing.
func (n *Node) SetReadOnly(t *sched.Task, yes bool) error {
	f := n.fs
	if !n.isTop() {
		return fmt.Errorf("inode %d is no top directory of a subvolume: %w", n.ip.Ino, errno.EINVAL)
	}
	if err := f.writable(); err != nil || n.ReadOnly() == yes {
		return err
	}
	var frozen error
	if yes {
		frozen = errno.EROFS
	} else if it, err := f.trans.RootItem(t, n.vol.root.ID); err != nil {
		return err
	} else if !it.ReceivedUUID.IsZero() {
		return fmt.Errorf("it was received, and the next difference to it needs it as it is: %w", errno.EPERM)
	}
	return n.freeze(t, frozen, func() error { return f.trans.SetReadOnly(t, n.vol.root.ID, yes) })
}

// Unreceive makes the subvolume whose top directory is n one that can be changed and that was not
// received: no difference of its sender applies to it any more. It is durable. Errors: EINVAL when
// n is no top directory.
//
// Models btrfs property set -f of ro. Difference: one transaction for both changes.
//
// Preconditions: as SetReadOnly.
func (n *Node) Unreceive(t *sched.Task) error {
	f := n.fs
	if !n.isTop() {
		return fmt.Errorf("inode %d is no top directory of a subvolume: %w", n.ip.Ino, errno.EINVAL)
	}
	if err := f.writable(); err != nil {
		return err
	}
	return n.freeze(t, nil, func() error {
		return f.trans.SetReceived(t, n.vol.root.ID, transaction.Received{Rtime: f.now()})
	})
}

// Received reports whether the subvolume of the inode was received.
func (n *Node) Received(t *sched.Task) (bool, error) {
	it, err := n.fs.trans.RootItem(t, n.vol.root.ID)
	return err == nil && !it.ReceivedUUID.IsZero(), err
}

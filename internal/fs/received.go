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
	// All that was received is in the tree before nothing can be changed.
	if err := f.engine.SyncRoot(t, n.vol.root.ID); err != nil {
		return err
	}
	if err := f.commit(t); err != nil {
		return err
	}
	f.subvolSem.Lock(t)
	err := f.trans.SetReceived(t, n.vol.root.ID, transaction.Received{UUID: uuid, Stransid: stransid, Rtime: f.now()})
	if err == nil {
		n.vol.frozen = errno.EROFS
	}
	f.subvolSem.Unlock(t)
	if err != nil {
		return err
	}
	return f.trans.Commit(t)
}

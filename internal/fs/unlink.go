package fs

import (
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// removeLocked is remove under the directory's lock. The caller puts the node it gets, also with an error.
func (f *FS) removeLocked(t *sched.Task, dir *node, name string, wantDir bool) (*node, error) {
	d, err := f.store.Lookup(t, dir.vol.root, dir.Ino, name)
	if err != nil {
		return nil, err
	}
	n, err := f.iget(t, dir.vol, d)
	if err != nil {
		return nil, err
	}
	n.lockChild(t, false)
	defer n.Unlock(t)
	if err := f.mayRemove(t, n, wantDir); err != nil {
		return n, err
	}
	h, err := f.trans.Start(t, unitsUnlink)
	if err != nil {
		return n, err
	}
	if err := f.unlinkInode(t, h, dir, n, name); err != nil {
		return n, f.abort(t, h, err)
	}
	return n, f.end(t, h, nil)
}

// mayRemove says why n may not be unlinked, or rmdir'ed with wantDir. n is locked.
func (f *FS) mayRemove(t *sched.Task, n *node, wantDir bool) error {
	switch {
	case !wantDir && n.isDir():
		return errno.EISDIR
	case !wantDir:
		return nil
	case !n.isDir():
		return errno.ENOTDIR
	case n.isTop():
		return errno.EBUSY
	}
	empty := true
	err := f.store.ReadDir(t, n.vol.root, n.Ino, 0, func(uint64, format.DirItem) bool {
		empty = false
		return false
	})
	if err == nil && !empty {
		err = errno.ENOTEMPTY
	}
	return err
}

// unlinkInode takes the name from dir and one link from n; without links n becomes an orphan, which the last
// put deletes, or the next writable open after a crash. Models btrfs_unlink_inode() and btrfs_orphan_add().
func (f *FS) unlinkInode(t *sched.Task, h *transaction.Handle, dir, n *node, name string) error {
	if _, err := f.store.DelLink(t, h.Trans(), dir.vol.root, dir.Ino, n.Ino, name); err != nil {
		return err
	}
	now := f.now()
	f.dirSizeChanged(t, dir, h, -int64(2*len(name)), now)
	n.Change(t, func(i *format.InodeItem) {
		i.Nlink -= min(i.Nlink, 1) // a damaged image may have more names than links
		i.Ctime = now
	})
	n.LastTransid.Store(h.Transid())
	if n.nlink(t) > 0 {
		return nil
	}
	return f.store.InsertOrphan(t, h.Trans(), n.vol.root, n.Ino)
}

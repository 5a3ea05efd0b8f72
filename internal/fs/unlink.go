package fs

import (
	"errors"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Unlink takes a name from a file. Without names the file is deleted once its last reference is
// gone. Models vfs_unlink() with btrfs_unlink().
func (d *Node) Unlink(t *sched.Task, name string) error { return d.remove(t, name, false) }

// Rmdir deletes an empty directory. Models vfs_rmdir() with btrfs_rmdir().
func (d *Node) Rmdir(t *sched.Task, name string) error { return d.remove(t, name, true) }

// remove is Unlink, or Rmdir with wantDir.
func (d *Node) remove(t *sched.Task, name string, wantDir bool) error {
	if !d.IsDir() {
		return errno.ENOTDIR
	}
	if err := d.fs.writable(); err != nil {
		return err
	}
	switch name {
	case "":
		return errno.EBUSY
	case ".":
		return errno.EINVAL
	case "..":
		return errno.ENOTEMPTY
	}
	d.lockParent(t)
	n, err := d.fs.removeLocked(t, d, name, wantDir)
	d.ip.Unlock(t)
	if n != nil {
		d.fs.put(t, n) // may be the last reference: evicts
	}
	if errors.Is(err, errSubvolume) {
		return d.deleteSubvolume(t, name, true)
	}
	return err
}

// removeLocked is remove under the directory's lock. The caller puts the node it gets, also with an
// error.
func (f *FS) removeLocked(t *sched.Task, dir *Node, name string, wantDir bool) (*Node, error) {
	dir.ip.AssertLocked(t)
	it, n, err := f.look(t, dir, name)
	if err != nil {
		return nil, err
	}
	if n == nil {
		return nil, f.removePlace(t, dir, it, wantDir)
	}
	n.lockChild(t, subChild)
	defer n.ip.Unlock(t)
	if err := f.mayRemove(t, dir, n, wantDir); err != nil {
		return n, err
	}
	h, err := f.trans.StartDelete(t, unitsUnlink)
	if err != nil {
		return n, err
	}
	f.logs.Pin(t, dir.vol.root)
	err = f.unlinkInode(t, h, dir, n, name)
	f.logs.Unpin(t, dir.vol.root)
	if err != nil {
		return n, f.abort(t, h, err)
	}
	return n, f.end(t, h, nil)
}

// errSubvolume says that rmdir is of a subvolume, which has a way of its own.
var errSubvolume = errors.New("is a subvolume")

// removePlace removes the entry it of dir if it is the place of a subvolume of the original in a
// snapshot, which is an empty directory. errSubvolume for a subvolume itself. Models btrfs_rmdir().
func (f *FS) removePlace(t *sched.Task, dir *Node, it format.DirItem, wantDir bool) error {
	if err := dir.mayTake(nil); err != nil {
		return err
	}
	if !wantDir {
		return errno.EISDIR
	}
	f.subvolSem.RLock(t)
	defer f.subvolSem.RUnlock(t)
	_, err := f.linkOf(t, dir, it)
	if err == nil {
		err = errSubvolume
	}
	if !errors.Is(err, errno.ENOENT) {
		return err
	}
	h, err := f.trans.StartDelete(t, unitsUnlink)
	if err != nil {
		return err
	}
	f.logs.CommitNext(h.Transid())
	if err := f.delPlace(t, h, dir, it); err != nil {
		return f.abort(t, h, err)
	}
	f.dirSizeChanged(t, dir, h, -int64(2*len(it.Name)), f.now())
	return f.end(t, h, nil)
}

// mayRemove says why n may not be unlinked from dir, or rmdir'ed with wantDir. Both are locked.
func (f *FS) mayRemove(t *sched.Task, dir, n *Node, wantDir bool) error {
	n.ip.AssertLocked(t)
	if err := dir.mayTake(n); err != nil {
		return err
	}
	switch {
	case !wantDir && n.IsDir():
		return errno.EISDIR
	case !wantDir:
		return nil
	case !n.IsDir():
		return errno.ENOTDIR
	case n.isTop():
		return errno.EBUSY
	}
	return f.wantEmpty(t, n.vol, n.ip.Ino)
}

// wantEmpty is ENOTEMPTY when the directory has a name in it.
func (f *FS) wantEmpty(t *sched.Task, v *subvol, dir format.Ino) error {
	empty := true
	err := f.store.ReadDir(t, v.root, dir, 0, func(uint64, format.DirItem) bool {
		empty = false
		return false
	})
	if err == nil && !empty {
		err = errno.ENOTEMPTY
	}
	return err
}

// unlinkInode takes the name from dir and one link from n; without links n becomes an orphan, which
// the last put deletes, or the next writable open after a crash. Models btrfs_unlink_inode() and
// btrfs_orphan_add().
func (f *FS) unlinkInode(t *sched.Task, h *transaction.Handle, dir, n *Node, name string) error {
	if err := f.delLink(t, h, dir, n, name); err != nil {
		return err
	}
	now := f.now()
	f.dirSizeChanged(t, dir, h, -int64(2*len(name)), now)
	n.ip.Change(t, func(i *format.InodeItem) {
		i.Nlink -= min(i.Nlink, 1) // a damaged image may have more names than links
		i.Ctime = now
	})
	n.ip.LastTransid.Store(h.Transid())
	if n.nlink(t) > 0 {
		return nil
	}
	return f.store.InsertOrphan(t, h.Trans(), n.vol.root, n.ip.Ino)
}

// delLink takes the name from dir, and tells the log.
func (f *FS) delLink(t *sched.Task, h *transaction.Handle, dir, n *Node, name string) error {
	index, err := f.store.DelLink(t, h.Trans(), dir.vol.root, dir.ip.Ino, n.ip.Ino, name)
	if err == nil {
		f.logs.Removed(t, h.Transid(), dir.ip.Ino, n.ip, name, index)
	}
	return err
}

package fs

import (
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
	"errors"
)

// Rename moves oldName of d to newName of newDir and replaces what is there, as rename(2). EXDEV when newDir is in
// another subvolume. Models vfs_rename() with btrfs_rename().
func (d *Node) Rename(t *sched.Task, oldName string, newDir *Node, newName string) error {
	switch {
	case !d.IsDir() || !newDir.IsDir():
		return errno.ENOTDIR
	case d.vol != newDir.vol:
		return errElsewhere()
	}
	if err := d.writable(); err != nil {
		return err
	}
	switch oldName {
	case "", ".", "..":
		return errno.EBUSY
	}
	if err := checkName(newName); err != nil {
		if errors.Is(err, errno.EEXIST) {
			err = errno.EBUSY
		}
		return err
	}
	f := d.fs
	if err := f.lockParents(t, d, newDir); err != nil {
		return err
	}
	victim, err := f.renameLocked(t, d, oldName, newDir, newName)
	f.unlockParents(t, d, newDir)
	if victim != nil {
		f.put(t, victim)
	}
	return err
}

// lockParents locks the directories of a rename; unlockParents ends it. Of two directories the upper one is locked first. Only
// renames between directories change which of two is the upper one, so renameMu makes them take turns.
// Models lock_rename().
func (f *FS) lockParents(t *sched.Task, oldDir, newDir *Node) error {
	if oldDir == newDir {
		oldDir.lockParent(t)
		return nil
	}
	f.renameMu.Lock(t)
	first, second := oldDir, newDir
	below, err := f.isBelow(t, oldDir, newDir)
	if err != nil {
		f.renameMu.Unlock(t)
		return err
	}
	if below {
		first, second = newDir, oldDir
	}
	first.lockParent(t)
	second.ip.LockDir(t, subParent2)
	return nil
}

func (f *FS) unlockParents(t *sched.Task, oldDir, newDir *Node) {
	oldDir.ip.Unlock(t)
	if newDir != oldDir {
		newDir.ip.Unlock(t)
		f.renameMu.Unlock(t)
	}
}

// isBelow reports whether dir lies under top, or is it. Both are in one subvolume.
func (f *FS) isBelow(t *sched.Task, dir, top *Node) (bool, error) {
	n := f.get(t, dir)
	for n != top && !n.isTop() {
		up, err := f.parent(t, n)
		f.put(t, n)
		if err != nil {
			return false, err
		}
		n = up
	}
	below := n == top
	f.put(t, n)
	return below, nil
}

// lockMoved locks what a rename moves, n, and what it replaces, victim, if anything; unlockMoved ends it. A directory is
// locked before a file, and of two alike the lower inode number first. Models lock_two_nondirectories() and the locks of
// child directories in vfs_rename().
func lockMoved(t *sched.Task, n, victim *Node) {
	first, second := n, victim
	switch {
	case victim == nil:
		n.lockChild(t, subChild)
		return
	case n.IsDir() != victim.IsDir(): // the rename will fail, but only a lock makes the answer stay true
		if victim.IsDir() {
			first, second = victim, n
		}
	case victim.ip.Ino < n.ip.Ino:
		first, second = victim, n
	}
	first.lockChild(t, subChild)
	second.lockChild(t, subChild2)
}

func unlockMoved(t *sched.Task, n, victim *Node) {
	n.ip.Unlock(t)
	if victim != nil {
		victim.ip.Unlock(t)
	}
}

// renameLocked is Rename under the locks of both directories. The caller puts the victim, also with an error.
func (f *FS) renameLocked(t *sched.Task, oldDir *Node, oldName string, newDir *Node, newName string) (victim *Node, err error) {
	oldDir.ip.AssertLocked(t)
	newDir.ip.AssertLocked(t)
	it, err := f.store.Lookup(t, oldDir.vol.root, oldDir.ip.Ino, oldName)
	if err != nil {
		return nil, err
	}
	n, err := f.igetHere(t, oldDir, it)
	if err != nil {
		return nil, err
	}
	defer f.put(t, n)
	if n.IsDir() && oldDir != newDir {
		if below, err := f.isBelow(t, newDir, n); err != nil {
			return nil, err
		} else if below {
			return nil, errno.EINVAL
		}
	}
	it, err = f.store.Lookup(t, newDir.vol.root, newDir.ip.Ino, newName)
	switch {
	case err == nil:
		if victim, err = f.igetHere(t, newDir, it); err != nil {
			return nil, err
		}
	case !errors.Is(err, errno.ENOENT):
		return nil, err
	}
	switch {
	case victim == n:
		return victim, nil // two names of one file: nothing happens
	case n == newDir || n == oldDir:
		return victim, errno.EINVAL
	case victim == oldDir || victim == newDir:
		return victim, errno.ENOTEMPTY // a directory that has n below it
	}
	lockMoved(t, n, victim)
	defer unlockMoved(t, n, victim)
	if newDir.nlink(t) == 0 {
		return victim, errno.ENOENT
	}
	if err := oldDir.mayTake(n); err != nil {
		return victim, err
	}
	if newDir.sealed() {
		return victim, errno.EPERM
	}
	if victim != nil {
		switch {
		case n.IsDir() && !victim.IsDir():
			return victim, errno.ENOTDIR
		case !n.IsDir() && victim.IsDir():
			return victim, errno.EISDIR
		}
		if err := f.mayRemove(t, newDir, victim, victim.IsDir()); err != nil {
			return victim, err
		}
	}
	if err := f.roomFor(t, newDir, newName, n, victim); err != nil {
		return victim, err
	}
	index, err := f.takeDirIndex(t, newDir)
	if err != nil {
		return victim, err
	}
	h, err := f.trans.StartIn(t, newDir.vol.root, unitsRename)
	if err != nil {
		return victim, err
	}
	f.logs.Pin(t, newDir.vol.root)
	err = f.renameItems(t, h, oldDir, oldName, newDir, newName, n, victim, index)
	f.logs.Unpin(t, newDir.vol.root)
	if err != nil {
		return victim, f.abort(t, h, err)
	}
	return victim, f.end(t, h, nil)
}

// roomFor is EOVERFLOW or EMLINK when the tree has no room for the new name of n, which replaces victim's: later the old one would be gone, and
// the transaction with it. What the old name takes up counts. Models btrfs_check_dir_item_collision() in btrfs_rename(), and its
// order of btrfs_insert_inode_ref().
func (f *FS) roomFor(t *sched.Task, newDir *Node, newName string, n, victim *Node) error {
	if victim == nil {
		if err := f.absent(t, newDir, newName); err != nil {
			return err
		}
	}
	return f.store.RoomForRef(t, newDir.vol.root, newDir.ip.Ino, n.ip.Ino, newName)
}

// renameItems moves the name in the tree.
func (f *FS) renameItems(t *sched.Task, h *transaction.Handle, oldDir *Node, oldName string, newDir *Node, newName string,
	n, victim *Node, index uint64) error {
	tr, r := h.Trans(), oldDir.vol.root
	if err := f.delLink(t, h, oldDir, n, oldName); err != nil {
		return err
	}
	if victim != nil {
		if err := f.unlinkInode(t, h, newDir, victim, newName); err != nil {
			return err
		}
	}
	if err := f.store.AddLink(t, tr, r, newDir.ip.Ino, n.ip.Ino, newName, format.FtOf(n.typ), index); err != nil {
		return err
	}
	newDir.ip.NameAdded(h.Transid(), index)
	now := f.now()
	f.dirSizeChanged(t, oldDir, h, -int64(2*len(oldName)), now)
	f.dirSizeChanged(t, newDir, h, int64(2*len(newName)), now)
	n.ip.Change(t, func(i *format.InodeItem) { i.Ctime = now })
	n.ip.LastTransid.Store(h.Transid())
	n.ip.ItemsChanged(h.Transid())
	return nil
}

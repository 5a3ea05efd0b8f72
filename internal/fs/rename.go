package fs

import (
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// isBelow reports whether dir lies under top, or is it.
func (f *FS) isBelow(t *sched.Task, dir, top *node) (bool, error) {
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

// renameLocked is rename under the locks of both directories. The caller puts the victim.
func (f *FS) renameLocked(t *sched.Task, oldDir *node, oldName string, newDir *node, newName string) (victim *node, err error) {
	d, err := f.store.Lookup(t, oldDir.vol.root, oldDir.Ino, oldName)
	if err != nil {
		return nil, err
	}
	n, err := f.iget(t, oldDir.vol, d)
	if err != nil {
		return nil, err
	}
	defer f.put(t, n)
	if n.isDir() && oldDir != newDir {
		if below, err := f.isBelow(t, newDir, n); err != nil {
			return nil, err
		} else if below {
			return nil, errno.EINVAL
		}
	}
	v, err := f.store.Lookup(t, newDir.vol.root, newDir.Ino, newName)
	switch {
	case err == nil:
		if victim, err = f.iget(t, newDir.vol, v); err != nil {
			return nil, err
		}
	case err != errno.ENOENT:
		return nil, err
	}
	if victim == n {
		return victim, nil // two names of one file: nothing happens
	}
	if n == newDir || n == oldDir {
		return victim, errno.EINVAL
	}
	if victim == oldDir || victim == newDir {
		return victim, errno.ENOTEMPTY // a directory that has n below it
	}
	switch {
	case victim == nil:
		n.lockChild(t, false)
	case n.isDir() != victim.isDir(): // directories first; the answer will be an error
		if n.isDir() {
			n.lockChild(t, false)
			victim.lockChild(t, false)
		} else {
			victim.lockChild(t, false)
			n.lockChild(t, false)
		}
	case victim.Ino < n.Ino:
		victim.lockChild(t, false)
		n.lockChild(t, true)
	default:
		n.lockChild(t, false)
		victim.lockChild(t, true)
	}
	defer func() {
		n.Unlock(t)
		if victim != nil {
			victim.Unlock(t)
		}
	}()
	if newDir.nlink(t) == 0 {
		return victim, errno.ENOENT
	}
	if victim != nil {
		switch {
		case n.isDir() && !victim.isDir():
			return victim, errno.ENOTDIR
		case !n.isDir() && victim.isDir():
			return victim, errno.EISDIR
		}
		if err := f.mayRemove(t, victim, victim.isDir()); err != nil {
			return victim, err
		}
	}
	index, err := f.takeDirIndex(t, newDir)
	if err != nil {
		return victim, err
	}
	h, err := f.trans.Start(t, unitsRename)
	if err != nil {
		return victim, err
	}
	if err := f.renameItems(t, h, oldDir, oldName, newDir, newName, n, victim, index); err != nil {
		return victim, f.abort(t, h, err)
	}
	return victim, f.end(t, h, nil)
}

func (f *FS) renameItems(t *sched.Task, h *transaction.Handle, oldDir *node, oldName string, newDir *node, newName string,
	n, victim *node, index uint64) error {
	tr := h.Trans()
	if _, err := f.store.DelLink(t, tr, oldDir.vol.root, oldDir.Ino, n.Ino, oldName); err != nil {
		return err
	}
	if victim != nil {
		if err := f.unlinkInode(t, h, newDir, victim, newName); err != nil {
			return err
		}
	}
	if err := f.store.AddLink(t, tr, newDir.vol.root, newDir.Ino, n.Ino, newName, format.FtOf(n.typ), index); err != nil {
		return err
	}
	now := f.now()
	f.dirSizeChanged(t, oldDir, h, -int64(2*len(oldName)), now)
	f.dirSizeChanged(t, newDir, h, int64(2*len(newName)), now)
	n.Change(t, func(i *format.InodeItem) { i.Ctime = now })
	n.LastTransid.Store(h.Transid())
	return nil
}

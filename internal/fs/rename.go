package fs

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// RenameFlags say how RenameWith differs from Rename, as the flags of renameat2(2).
type RenameFlags uint32

// The flags. RenameExchange goes with no other.
const (
	// RenameNoReplace is EEXIST when there is something with the new name.
	RenameNoReplace RenameFlags = 1 << iota
	// RenameExchange makes the two names change places; ENOENT without the second one.
	RenameExchange
	// RenameWhiteout leaves a whiteout, which is character device 0, under the old name.
	RenameWhiteout
)

// Rename moves oldName of d to newName of newDir and replaces what is there, as rename(2). EXDEV
// when newDir is in another subvolume, unless oldName is a subvolume's name, which goes everywhere.
// Models do_renameat2() with vfs_rename() and btrfs_rename(), and the order of their errors.
func (d *Node) Rename(t *sched.Task, oldName string, newDir *Node, newName string) error {
	return d.RenameWith(t, oldName, newDir, newName, 0, Owner{})
}

// RenameWith is Rename with flags; own owns a whiteout. EINVAL for flags that do not go together.
// Models btrfs_rename2(), btrfs_rename_exchange() and new_whiteout_inode(). Difference: a subvolume
// does not change places and leaves no whiteout (EXDEV), and after an exchange or a whiteout the
// next fsync commits, where Linux logs.
func (d *Node) RenameWith(t *sched.Task, oldName string, newDir *Node, newName string, flags RenameFlags, own Owner) error {
	if flags&^(RenameNoReplace|RenameExchange|RenameWhiteout) != 0 || flags&RenameExchange != 0 && flags != RenameExchange {
		return errno.EINVAL
	}
	if !d.IsDir() || !newDir.IsDir() {
		return errno.ENOTDIR
	}
	for _, name := range []string{oldName, newName} {
		if name == "" || name == "." || name == ".." {
			if flags&RenameNoReplace != 0 {
				return errno.EEXIST
			}
			return errno.EBUSY
		}
	}
	f := d.fs
	if err := f.writable(); err != nil {
		return err
	}
	trap, err := f.lockParents(t, d, newDir)
	if err != nil {
		return err
	}
	r := rename{f: f, oldDir: d, newDir: newDir, oldName: oldName, newName: newName, flags: flags, own: own}
	err = r.locked(t, trap)
	f.unlockParents(t, d, newDir)
	for _, n := range []*Node{r.n, r.victim, r.whiteout} {
		if n != nil {
			f.put(t, n)
		}
	}
	return err
}

// lockParents locks the directories of a rename; unlockParents ends it. Of two directories the
// upper one is locked first, and trap is the directory in it that leads to the lower one, which can
// be neither moved nor replaced; without an upper one trap is zero. Only renames between
// directories change which of two is the upper one, so renameMu makes them take turns. Models
// lock_rename().
func (f *FS) lockParents(t *sched.Task, oldDir, newDir *Node) (trap nodeKey, err error) {
	if oldDir == newDir {
		oldDir.lockParent(t)
		return trap, nil
	}
	f.renameMu.Lock(t)
	first, second := oldDir, newDir
	below, trap, err := f.isBelow(t, oldDir, newDir)
	if err == nil && below {
		first, second = newDir, oldDir
	} else if err == nil {
		_, trap, err = f.isBelow(t, newDir, oldDir)
	}
	if err != nil {
		f.renameMu.Unlock(t)
		return trap, err
	}
	first.lockParent(t)
	second.ip.LockDir(t, subParent2)
	return trap, nil
}

func (f *FS) unlockParents(t *sched.Task, oldDir, newDir *Node) {
	oldDir.ip.Unlock(t)
	if newDir != oldDir {
		newDir.ip.Unlock(t)
		f.renameMu.Unlock(t)
	}
}

// isBelow reports whether dir lies under top, also by way of subvolumes; by is the directory in top
// that leads there. Models d_ancestor().
func (f *FS) isBelow(t *sched.Task, dir, top *Node) (below bool, by nodeKey, err error) {
	n := f.get(t, dir)
	for n != top && n != f.top {
		by = n.key()
		up, err := f.parent(t, n)
		f.put(t, n)
		if err != nil {
			return false, nodeKey{}, err
		}
		n = up
	}
	below = n == top
	f.put(t, n)
	if !below {
		by = nodeKey{}
	}
	return below, by, nil
}

// lockMoved locks what a rename moves, n, and what it replaces, victim, as far as these are inodes
// of the directories' subvolumes; unlockMoved ends it. A directory is locked before a file, and of
// two alike the lower inode number first; of two subvolumes the lower one's. Models
// lock_two_nondirectories() and the locks of child directories in vfs_rename().
func lockMoved(t *sched.Task, n, victim *Node) {
	first, second := n, victim
	switch {
	case n == nil && victim == nil:
		return
	case n == nil || victim == nil:
		if n == nil {
			first = victim
		}
		first.lockChild(t, subChild)
		return
	case n.IsDir() != victim.IsDir():
		// the rename will fail, but only a lock makes the answer stay true
		if victim.IsDir() {
			first, second = victim, n
		}
	case victim.ip.Ino < n.ip.Ino || victim.ip.Ino == n.ip.Ino && victim.Subvol() < n.Subvol():
		first, second = victim, n
	}
	first.lockChild(t, subChild)
	second.lockChild(t, subChild2)
}

func unlockMoved(t *sched.Task, n, victim *Node) {
	for _, x := range []*Node{n, victim} {
		if x != nil {
			x.ip.Unlock(t)
		}
	}
}

// rename is a rename under way.
type rename struct {
	f                *FS
	oldDir, newDir   *Node
	oldName, newName string
	flags            RenameFlags
	own              Owner // of a whiteout

	entry, over format.DirItem // of the two names; over is zero when there is none
	n, victim   *Node          // the inodes that they lead to; nil for a subvolume
	ref         format.RootRef // of the subvolume that moves: where it is linked
	whiteout    *Node          // what stays under the old name
}

// entryKey is the identity of what the entry it of dir leads to.
func entryKey(dir *Node, it format.DirItem) nodeKey {
	if it.Location.Type == format.ROOT_ITEM_KEY {
		return nodeKey{it.Location.Objectid, format.FIRST_FREE_OBJECTID}
	}
	return nodeKey{dir.vol.root.ID, format.Ino(it.Location.Objectid)}
}

// look finds what name of dir is: nothing, an inode, or a subvolume, for which n is nil.
func (f *FS) look(t *sched.Task, dir *Node, name string) (it format.DirItem, n *Node, err error) {
	if len(name) > format.MaxNameLen {
		return it, nil, errno.ENAMETOOLONG
	}
	it, err = f.store.Lookup(t, dir.vol.root, dir.ip.Ino, name)
	if err == nil && it.Location.Type == format.INODE_ITEM_KEY {
		n, err = f.igetHere(t, dir, it)
	}
	return it, n, err
}

// locked is Rename under the locks of both directories.
func (r *rename) locked(t *sched.Task, trap nodeKey) (err error) {
	f := r.f
	r.oldDir.ip.AssertLocked(t)
	r.newDir.ip.AssertLocked(t)
	if r.entry, r.n, err = f.look(t, r.oldDir, r.oldName); err != nil {
		return err
	}
	if r.over, r.victim, err = f.look(t, r.newDir, r.newName); errors.Is(err, errno.ENOENT) {
		r.over, err = format.DirItem{}, checkName(r.newName)
	}
	if err != nil {
		return err
	}
	replaces, exchange := r.over.Name != "", r.flags&RenameExchange != 0
	switch {
	case replaces && r.flags&RenameNoReplace != 0:
		return errno.EEXIST
	case exchange && !replaces:
		return errno.ENOENT
	}
	switch from := entryKey(r.oldDir, r.entry); {
	case from == trap:
		return errno.EINVAL // a directory does not move below itself
	case replaces && entryKey(r.newDir, r.over) == trap:
		if exchange {
			return errno.EINVAL
		}
		return errno.ENOTEMPTY
	case r.n != nil && r.n == r.victim, r.n == nil && r.oldDir == r.newDir && r.oldName == r.newName:
		return nil // two names of one file: nothing happens
	}
	if r.flags != 0 && (r.isSubvol() && r.flags != RenameNoReplace || exchange && r.victim == nil) {
		return fmt.Errorf("a subvolume changes no places and leaves no whiteout: %w", errno.EXDEV)
	}
	// What lists subvolumes, or goes up from one, finds one that moves under its old name or its
	// new one. None is replaced. The lock stands between those of directories and of files.
	switch {
	case !r.isSubvol():
		lockMoved(t, r.n, r.victim)
	case r.victim != nil && r.victim.IsDir():
		lockMoved(t, r.n, r.victim)
		f.subvolSem.Lock(t)
	default:
		f.subvolSem.Lock(t)
		lockMoved(t, r.n, r.victim)
	}
	defer func() {
		unlockMoved(t, r.n, r.victim)
		if r.isSubvol() {
			f.subvolSem.Unlock(t)
		}
	}()
	if err := r.allowed(t); err != nil {
		return err
	}
	if r.isSubvol() {
		err = r.mayMoveSubvol(t)
	} else if r.oldDir.vol != r.newDir.vol {
		err = errElsewhere()
	}
	if err != nil {
		return err
	}
	if exchange {
		return r.exchange(t)
	}
	if err := r.mayReplace(t); err != nil {
		return err
	}
	return r.change(t)
}

// isSubvol reports whether a subvolume moves.
func (r *rename) isSubvol() bool { return r.n == nil }

// isDir reports whether a directory moves.
func (r *rename) isDir() bool { return r.n == nil || r.n.IsDir() }

// allowed says what the virtual file system says. Models may_delete() and may_create() in
// vfs_rename().
func (r *rename) allowed(t *sched.Task) error {
	if err := r.oldDir.mayTake(r.n); err != nil {
		return err
	}
	if r.newDir.nlink(t) == 0 || r.newDir.vol.dead.Load() {
		return errno.ENOENT
	}
	if r.over.Name == "" {
		if err := r.newDir.mayChange(); err != nil {
			return err
		}
	} else {
		if err := r.newDir.mayTake(r.victim); err != nil {
			return err
		}
		switch isDir := r.victim == nil || r.victim.IsDir(); {
		case r.flags&RenameExchange != 0:
			if isDir && r.victim != nil && r.oldDir != r.newDir { // its ".." changes
				if err := r.victim.mayChange(); err != nil {
					return err
				}
			}
		case r.isDir() && !isDir:
			return errno.ENOTDIR
		case !r.isDir() && isDir:
			return errno.EISDIR
		}
	}
	if r.n != nil && r.n.IsDir() && r.oldDir != r.newDir { // its ".." changes
		return r.n.mayChange()
	}
	return nil
}

// mayMoveSubvol finds out where the subvolume is linked. ENOTEMPTY when it is not linked here: the
// name came with a snapshot of the directory. EROFS when it is read-only and would get another
// directory above it, as in Linux.
func (r *rename) mayMoveSubvol(t *sched.Task) (err error) {
	f, id := r.f, r.entry.Location.Objectid
	if r.ref, err = f.linkOf(t, r.oldDir, r.entry); errors.Is(err, errno.ENOENT) {
		return fmt.Errorf("%q is not the subvolume but its place in a snapshot: %w", r.oldName, errno.ENOTEMPTY)
	}
	if err != nil || r.oldDir == r.newDir {
		return err
	}
	it, err := f.trans.RootItem(t, id)
	if err == nil && it.Flags&format.RootSubvolReadonly != 0 {
		err = fmt.Errorf("a read-only subvolume stays in its directory: %w", errno.EROFS)
	}
	return err
}

// linkOf is where the root tree has the subvolume that the entry it of dir names. ENOENT when that
// is not here.
func (f *FS) linkOf(t *sched.Task, dir *Node, it format.DirItem) (ref format.RootRef, err error) {
	ref, err = f.trans.SubvolRef(t, dir.vol.root.ID, it.Location.Objectid)
	if errors.Is(err, transaction.ErrNoRoot) || err == nil && (ref.Dirid != uint64(dir.ip.Ino) || ref.Name != it.Name) {
		err = errno.ENOENT
	}
	return ref, err
}

// mayReplace says why what has the new name may not be replaced, or why there is no room for the
// name: later the old one would be gone, and the transaction with it. What the old name takes up
// counts. Models btrfs_check_dir_item_collision() in btrfs_rename(), and its order of
// btrfs_insert_inode_ref().
func (r *rename) mayReplace(t *sched.Task) error {
	f := r.f
	switch {
	case r.over.Name == "":
		if err := f.absent(t, r.newDir, r.newName); err != nil {
			return err
		}
	case r.victim == nil:
		if _, err := f.linkOf(t, r.newDir, r.over); !errors.Is(err, errno.ENOENT) {
			return errors.Join(err, errno.ENOTEMPTY)
		}
	default:
		if err := f.mayRemove(t, r.newDir, r.victim, r.victim.IsDir()); err != nil {
			return err
		}
	}
	if r.isSubvol() {
		return nil
	}
	return f.store.RoomForRef(t, r.newDir.vol.root, r.newDir.ip.Ino, r.n.ip.Ino, r.newName)
}

// change moves the name.
func (r *rename) change(t *sched.Task) error {
	f := r.f
	index, err := f.takeDirIndex(t, r.newDir)
	if err != nil {
		return err
	}
	units := unitsRename
	if r.newDir != r.oldDir {
		units += unitsNewDir
	}
	if r.over.Name != "" {
		units += unitsReplace
	}
	if r.isSubvol() {
		units += transaction.UnitsMoveSubvol
	}
	var left creation // the whiteout
	if r.flags&RenameWhiteout != 0 {
		left = creation{mode: format.S_IFCHR, own: r.own}
		more, err := left.prepare(t, r.oldDir)
		if err != nil {
			return err
		}
		units += more
	}
	h, err := f.trans.StartIn(t, r.newDir.vol.root, units)
	if err != nil {
		return err
	}
	if r.flags&RenameWhiteout != 0 {
		f.logs.CommitNext(h.Transid())
	}
	if r.isSubvol() || r.over.Name != "" && r.victim == nil {
		// no log can say it: BTRFS_FIRST_FREE_OBJECTID in btrfs_rename()
		f.logs.CommitNext(h.Transid())
	}
	f.logs.Pin(t, r.newDir.vol.root)
	err = r.items(t, h, index)
	f.logs.Unpin(t, r.newDir.vol.root)
	if err == nil && r.flags&RenameWhiteout != 0 {
		err = r.leave(t, h, &left)
	}
	if err != nil {
		return f.abort(t, h, err)
	}
	return f.end(t, h, nil)
}

// leave makes the whiteout c.
func (r *rename) leave(t *sched.Task, h *transaction.Handle, c *creation) error {
	index, err := r.f.takeDirIndex(t, r.oldDir)
	if err == nil {
		r.whiteout, err = r.f.createIn(t, h, r.oldDir, r.oldName, index, c)
	}
	return err
}

// exchange makes the two names change places. Models btrfs_rename_exchange().
func (r *rename) exchange(t *sched.Task) error {
	f, v := r.f, r.oldDir.vol
	err := f.store.RoomForRef(t, v.root, r.newDir.ip.Ino, r.n.ip.Ino, r.newName)
	if err == nil {
		err = f.store.RoomForRef(t, v.root, r.oldDir.ip.Ino, r.victim.ip.Ino, r.oldName)
	}
	if err != nil {
		return err
	}
	newIndex, err := f.takeDirIndex(t, r.newDir)
	if err != nil {
		return err
	}
	oldIndex, err := f.takeDirIndex(t, r.oldDir)
	if err != nil {
		return err
	}
	h, err := f.trans.StartIn(t, v.root, 2*(unitsRename+unitsNewDir))
	if err != nil {
		return err
	}
	f.logs.CommitNext(h.Transid())
	f.logs.Pin(t, v.root)
	if err = f.delLink(t, h, r.oldDir, r.n, r.oldName); err == nil {
		err = f.delLink(t, h, r.newDir, r.victim, r.newName)
	}
	if err == nil {
		err = f.store.AddLink(t, h.Trans(), v.root, r.newDir.ip.Ino, r.n.ip.Ino, r.newName, format.FtOf(r.n.typ), newIndex)
	}
	if err == nil {
		err = f.store.AddLink(t, h.Trans(), v.root, r.oldDir.ip.Ino, r.victim.ip.Ino, r.oldName, format.FtOf(r.victim.typ), oldIndex)
	}
	f.logs.Unpin(t, v.root)
	if err != nil {
		return f.abort(t, h, err)
	}
	now := f.now()
	r.newDir.ip.NameAdded(h.Transid(), newIndex)
	r.oldDir.ip.NameAdded(h.Transid(), oldIndex)
	f.dirSizeChanged(t, r.oldDir, h, 0, now)
	f.dirSizeChanged(t, r.newDir, h, 0, now)
	for _, n := range []*Node{r.n, r.victim} {
		n.ip.Change(t, func(i *format.InodeItem) { i.Ctime = now })
		n.ip.LastTransid.Store(h.Transid())
		n.ip.ItemsChanged(h.Transid())
	}
	return f.end(t, h, nil)
}

// items changes the trees.
func (r *rename) items(t *sched.Task, h *transaction.Handle, index uint64) error {
	f := r.f
	now := f.now()
	if err := r.unlinkOld(t, h); err != nil {
		return err
	}
	switch {
	case r.over.Name == "":
	case r.victim == nil:
		if err := f.delPlace(t, h, r.newDir, r.over); err != nil {
			return err
		}
		f.dirSizeChanged(t, r.newDir, h, -int64(2*len(r.newName)), now)
	default:
		if err := f.unlinkInode(t, h, r.newDir, r.victim, r.newName); err != nil {
			return err
		}
	}
	if err := r.linkNew(t, h, index); err != nil {
		return err
	}
	r.newDir.ip.NameAdded(h.Transid(), index)
	f.dirSizeChanged(t, r.oldDir, h, -int64(2*len(r.oldName)), now)
	f.dirSizeChanged(t, r.newDir, h, int64(2*len(r.newName)), now)
	if r.n != nil {
		r.n.ip.Change(t, func(i *format.InodeItem) { i.Ctime = now })
		r.n.ip.LastTransid.Store(h.Transid())
		r.n.ip.ItemsChanged(h.Transid())
	}
	return nil
}

func (r *rename) unlinkOld(t *sched.Task, h *transaction.Handle) error {
	f, d := r.f, r.oldDir
	if !r.isSubvol() {
		return f.delLink(t, h, d, r.n, r.oldName)
	}
	return f.store.DelSubvol(t, h.Trans(), d.vol.root, d.ip.Ino, r.entry.Location.Objectid, r.oldName, r.ref.Sequence)
}

func (r *rename) linkNew(t *sched.Task, h *transaction.Handle, index uint64) error {
	f, d := r.f, r.newDir
	if !r.isSubvol() {
		return f.store.AddLink(t, h.Trans(), d.vol.root, d.ip.Ino, r.n.ip.Ino, r.newName, format.FtOf(r.n.typ), index)
	}
	id := r.entry.Location.Objectid
	if err := f.store.AddSubvol(t, h.Trans(), d.vol.root, d.ip.Ino, id, r.newName, index); err != nil {
		return err
	}
	return f.trans.MoveSubvol(t, h, id, r.oldDir.vol.root.ID, d.vol.root.ID, format.RootRef{Dirid: uint64(d.ip.Ino), Sequence: index, Name: r.newName})
}

// delPlace takes the entry it out of dir, the place of a subvolume of the original in a snapshot.
// Nothing else knows of it. Models btrfs_unlink_subvol() of BTRFS_EMPTY_SUBVOL_DIR_OBJECTID, which
// looks for the index as well.
func (f *FS) delPlace(t *sched.Task, h *transaction.Handle, dir *Node, it format.DirItem) error {
	var at uint64
	err := f.store.ReadDir(t, dir.vol.root, dir.ip.Ino, 0, func(index uint64, e format.DirItem) bool {
		if e.Name == it.Name {
			at = index
		}
		return at == 0
	})
	if err != nil {
		return err
	}
	return f.store.DelSubvol(t, h.Trans(), dir.vol.root, dir.ip.Ino, it.Location.Objectid, it.Name, at)
}

package fs

import (
	"strings"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Units of metadata reservation of the namespace operations: items that they insert or change, as the
// kernel counts them in btrfs_create_new_inode(), btrfs_unlink() and btrfs_rename().
const (
	unitsCreate = 6 // inode item, inode ref, dir item, dir index, parent's inode item, symlink's extent
	unitsUnlink = 6 // dir item, dir index, inode ref, both inode items, orphan item
	unitsLink   = 5 // dir item, dir index, inode ref, both inode items
	unitsRename = 11
	unitsEvict  = 2
)

// maxLinks bounds the hard links of an inode, as BTRFS_LINK_MAX.
const maxLinks = 65535

// create makes a new inode with a name in dir. Models btrfs_create_new_inode() and btrfs_create_common().
//
// Preconditions:
//   - dir is locked for writing and is a directory.
func (f *FS) create(t *sched.Task, dir *node, name string, mode uint32, target string) (*node, error) {
	if err := f.writable(); err != nil {
		return nil, err
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if dir.nlink(t) == 0 {
		return nil, errno.ENOENT
	}
	if _, err := f.store.Lookup(t, f.root, dir.Ino, name); err != errno.ENOENT {
		if err == nil {
			err = errno.EEXIST
		}
		return nil, err
	}
	index, err := f.takeDirIndex(t, dir)
	if err != nil {
		return nil, err
	}
	h, err := f.trans.Start(t, unitsCreate)
	if err != nil {
		return nil, err
	}
	now := f.now()
	item := format.InodeItem{
		Generation: h.Transid(), Transid: h.Transid(), Nlink: 1, UID: f.opt.UID, GID: f.opt.GID,
		Mode: mode, Atime: now, Ctime: now, Mtime: now, Otime: now,
	}
	item.Flags = inheritFlags(dir.Flags(), mode)
	if mode&format.S_IFMT == format.S_IFLNK {
		item.Size = uint64(len(target))
		item.Nbytes = uint64(len(target))
	}
	ino := f.nextIno.Add(1) - 1
	if ino > format.LAST_FREE_OBJECTID {
		return nil, f.end(t, h, errno.ENOSPC)
	}
	tr := h.Trans()
	err = f.store.InsertInode(t, tr, f.root, ino, &item)
	if err == nil && target != "" {
		err = f.store.InsertFileExtent(t, tr, f.root, ino, 0, &format.FileExtent{
			Generation: h.Transid(), RAMBytes: uint64(len(target)), Type: format.FileExtentTypeInline, Inline: []byte(target),
		})
	}
	if err == nil {
		err = f.store.AddLink(t, tr, f.root, dir.Ino, ino, name, format.FtOf(mode), index)
	}
	if err != nil {
		return nil, f.abort(t, h, err)
	}
	f.dirSizeChanged(t, dir, h, int64(2*len(name)), now)
	n := f.insertNew(t, ino, &item)
	n.LastTransid.Store(h.Transid())
	if err := f.end(t, h, nil); err != nil {
		f.put(t, n)
		return nil, err
	}
	return n, nil
}

// inheritFlags gives a new inode the flags of its directory. Models btrfs_inherit_iflags(): NODATACOW on a
// regular file brings NODATASUM with it.
func inheritFlags(dir uint64, mode uint32) uint64 {
	var flags uint64
	if dir&format.InodeNoDataCow != 0 {
		flags |= format.InodeNoDataCow
		if mode&format.S_IFMT == format.S_IFREG {
			flags |= format.InodeNoDataSum
		}
	}
	if dir&format.InodeNoCompress != 0 {
		flags |= format.InodeNoCompress
	} else if dir&format.InodeCompress != 0 {
		flags |= format.InodeCompress
	}
	return flags
}

// takeDirIndex gives the next index of a directory, which it reads from the tree the first time.
// Models btrfs_set_inode_index(). dir is locked for writing.
func (f *FS) takeDirIndex(t *sched.Task, dir *node) (uint64, error) {
	if dir.nextIndex == 0 {
		next, err := f.store.NextDirIndex(t, f.root, dir.Ino)
		if err != nil {
			return 0, err
		}
		dir.nextIndex = next
	}
	dir.nextIndex++
	return dir.nextIndex - 1, nil
}

// dirSizeChanged accounts a name that came or went. A directory's size is twice the sum of its names' lengths.
func (f *FS) dirSizeChanged(t *sched.Task, dir *node, h *transaction.Handle, by int64, now format.Timespec) {
	dir.Change(t, func(i *format.InodeItem) {
		i.Size = uint64(int64(i.Size) + by)
		i.Mtime, i.Ctime = now, now
		i.Sequence++
	})
	dir.LastTransid.Store(h.Transid())
}

// OpenFile opens a regular file. Mode counts when the file is created.
func (f *FS) OpenFile(t *sched.Task, path string, flags OpenFlags, mode uint32) (*File, error) {
	n, err := f.openNode(t, path, flags, mode)
	if err != nil {
		return nil, opError("open", path, err)
	}
	fl := &File{fs: f, n: n, write: flags&O_RDWR != 0, path: path}
	fl.errs.Store(n.Pages.ErrorSeq())
	if flags&O_TRUNC != 0 && fl.write && n.Size(t) > 0 {
		if err := fl.Truncate(t, 0); err != nil {
			f.put(t, n)
			return nil, err
		}
	}
	return fl, nil
}

func (f *FS) openNode(t *sched.Task, path string, flags OpenFlags, mode uint32) (*node, error) {
	if flags&O_RDWR != 0 {
		if err := f.writable(); err != nil {
			return nil, err
		}
	}
	var n *node
	var err error
	if flags&O_CREAT == 0 {
		n, err = f.walk(t, path, flags&O_NOFOLLOW == 0)
	} else {
		n, err = f.openOrCreate(t, path, flags, mode, 0)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case n.isDir():
		err = errno.EISDIR
	case n.isSymlink():
		err = errno.ELOOP
	case !n.isRegular():
		err = errno.EINVAL
	case flags&O_RDWR != 0 && n.Flags()&(format.InodeReadonly|format.InodeImmutable) != 0:
		err = errno.EPERM
	}
	if err != nil {
		f.put(t, n)
		return nil, err
	}
	return n, nil
}

// openOrCreate looks the last name up and creates it under one lock of the directory. Models open_last_lookups().
func (f *FS) openOrCreate(t *sched.Task, path string, flags OpenFlags, mode uint32, links int) (*node, error) {
	dir, name, err := f.walkParent(t, path)
	if err != nil {
		return nil, err
	}
	defer f.put(t, dir)
	if name == "" || name == "." || name == ".." {
		return nil, errno.EISDIR
	}
	dir.lockParent(t)
	d, err := f.store.Lookup(t, f.root, dir.Ino, name)
	if err == errno.ENOENT {
		n, err := f.create(t, dir, name, format.S_IFREG|mode&0o7777, "")
		dir.Unlock(t)
		return n, err
	}
	dir.Unlock(t)
	if err != nil {
		return nil, err
	}
	if flags&O_EXCL != 0 {
		return nil, errno.EEXIST
	}
	n, err := f.iget(t, d)
	if err != nil || !n.isSymlink() || flags&O_NOFOLLOW != 0 {
		return n, err
	}
	target, err := f.readlink(t, n)
	f.put(t, n)
	if err == nil && links >= maxSymlinks {
		err = errno.ELOOP
	}
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(target, "/") {
		target = path[:strings.LastIndexByte(strings.TrimRight(path, "/"), '/')+1] + target
	}
	return f.openOrCreate(t, target, flags, mode, links+1)
}

// make is create by path, for what is not opened at once.
func (f *FS) make(t *sched.Task, op, path string, mode uint32, target string) error {
	dir, name, err := f.walkParent(t, path)
	if err != nil {
		return opError(op, path, err)
	}
	dir.lockParent(t)
	n, err := f.create(t, dir, name, mode, target)
	dir.Unlock(t)
	if err == nil {
		f.put(t, n)
	}
	f.put(t, dir)
	return opError(op, path, err)
}

// Mkdir makes an empty directory.
func (f *FS) Mkdir(t *sched.Task, path string, mode uint32) error {
	return f.make(t, "mkdir", path, format.S_IFDIR|mode&0o7777, "")
}

// Symlink makes path a symbolic link to target.
func (f *FS) Symlink(t *sched.Task, target, path string) error {
	switch {
	case target == "":
		return opError("symlink", path, errno.ENOENT)
	case len(target) > maxSymlinkTarget:
		return opError("symlink", path, errno.ENAMETOOLONG)
	}
	return f.make(t, "symlink", path, format.S_IFLNK|0o777, target)
}

// Readlink gives the target of a symbolic link.
func (f *FS) Readlink(t *sched.Task, path string) (string, error) {
	n, err := f.walk(t, path, false)
	if err != nil {
		return "", opError("readlink", path, err)
	}
	defer f.put(t, n)
	if !n.isSymlink() {
		return "", opError("readlink", path, errno.EINVAL)
	}
	target, err := f.readlink(t, n)
	return target, opError("readlink", path, err)
}

// Link gives the file old a second name. Models btrfs_link().
func (f *FS) Link(t *sched.Task, old, path string) error {
	return opError("link", path, f.link(t, old, path))
}

func (f *FS) link(t *sched.Task, old, path string) error {
	if err := f.writable(); err != nil {
		return err
	}
	n, err := f.walk(t, old, false)
	if err != nil {
		return err
	}
	defer f.put(t, n)
	if n.isDir() {
		return errno.EPERM
	}
	dir, name, err := f.walkParent(t, path)
	if err != nil {
		return err
	}
	defer f.put(t, dir)
	if err := checkName(name); err != nil {
		return err
	}
	dir.lockParent(t)
	defer dir.Unlock(t)
	n.lockChild(t, false)
	defer n.Unlock(t)
	switch nl := n.nlink(t); {
	case nl == 0 || dir.nlink(t) == 0:
		return errno.ENOENT
	case nl >= maxLinks:
		return errno.EMLINK
	}
	if _, err := f.store.Lookup(t, f.root, dir.Ino, name); err != errno.ENOENT {
		if err == nil {
			err = errno.EEXIST
		}
		return err
	}
	index, err := f.takeDirIndex(t, dir)
	if err != nil {
		return err
	}
	h, err := f.trans.Start(t, unitsLink)
	if err != nil {
		return err
	}
	if err := f.store.AddLink(t, h.Trans(), f.root, dir.Ino, n.Ino, name, format.FtOf(n.typ), index); err != nil {
		// Nothing has changed yet when the name's item has no room for one more.
		if err == errno.EOVERFLOW || err == errno.EMLINK {
			return f.end(t, h, err)
		}
		return f.abort(t, h, err)
	}
	now := f.now()
	f.dirSizeChanged(t, dir, h, int64(2*len(name)), now)
	n.Change(t, func(i *format.InodeItem) { i.Nlink++; i.Ctime = now })
	n.LastTransid.Store(h.Transid())
	return f.end(t, h, nil)
}

// Unlink takes a name from a file; the last one deletes it once no File has it open.
func (f *FS) Unlink(t *sched.Task, path string) error {
	return opError("unlink", path, f.remove(t, path, false))
}

// Rmdir deletes an empty directory.
func (f *FS) Rmdir(t *sched.Task, path string) error {
	return opError("rmdir", path, f.remove(t, path, true))
}

// remove models vfs_unlink() with btrfs_unlink(), and vfs_rmdir() with btrfs_rmdir().
func (f *FS) remove(t *sched.Task, path string, wantDir bool) error {
	if err := f.writable(); err != nil {
		return err
	}
	dir, name, err := f.walkParent(t, path)
	if err != nil {
		return err
	}
	defer f.put(t, dir)
	switch name {
	case "":
		return errno.EBUSY
	case ".":
		return errno.EINVAL
	case "..":
		return errno.ENOTEMPTY
	}
	dir.lockParent(t)
	n, err := f.removeLocked(t, dir, name, wantDir)
	dir.Unlock(t)
	if n != nil {
		f.put(t, n) // may be the last reference: evicts
	}
	return err
}

// removeLocked is remove under the directory's lock. The caller puts the node it gets, also with an error.
func (f *FS) removeLocked(t *sched.Task, dir *node, name string, wantDir bool) (*node, error) {
	d, err := f.store.Lookup(t, f.root, dir.Ino, name)
	if err != nil {
		return nil, err
	}
	n, err := f.iget(t, d)
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
	case n == f.top:
		return errno.EBUSY
	}
	empty := true
	err := f.store.ReadDir(t, f.root, n.Ino, 0, func(uint64, format.DirItem) bool {
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
	if _, err := f.store.DelLink(t, h.Trans(), f.root, dir.Ino, n.Ino, name); err != nil {
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
	return f.store.InsertOrphan(t, h.Trans(), f.root, n.Ino)
}

// Rename moves from to to and replaces what is there, as rename(2). Models vfs_rename() with btrfs_rename().
func (f *FS) Rename(t *sched.Task, from, to string) error {
	return opError("rename", from, f.rename(t, from, to))
}

func (f *FS) rename(t *sched.Task, from, to string) error {
	if err := f.writable(); err != nil {
		return err
	}
	oldDir, oldName, err := f.walkParent(t, from)
	if err != nil {
		return err
	}
	defer f.put(t, oldDir)
	newDir, newName, err := f.walkParent(t, to)
	if err != nil {
		return err
	}
	defer f.put(t, newDir)
	switch oldName {
	case "", ".", "..":
		return errno.EBUSY
	}
	if err := checkName(newName); err != nil {
		if err == errno.EEXIST {
			err = errno.EBUSY
		}
		return err
	}
	if oldDir == newDir {
		oldDir.lockParent(t)
	} else {
		// Only renames between directories change who lies under whom, and this mutex makes them take turns, as s_vfs_rename_mutex.
		f.renameMu.Lock(t)
		defer f.renameMu.Unlock(t)
		first, second := oldDir, newDir
		if below, err := f.isBelow(t, oldDir, newDir); err != nil {
			return err
		} else if below {
			first, second = newDir, oldDir
		}
		first.lockParent(t)
		second.LockDir(t, subParent2)
	}
	victim, err := f.renameLocked(t, oldDir, oldName, newDir, newName)
	oldDir.Unlock(t)
	if newDir != oldDir {
		newDir.Unlock(t)
	}
	if victim != nil {
		f.put(t, victim)
	}
	return err
}

// isBelow reports whether dir lies under top, or is it.
func (f *FS) isBelow(t *sched.Task, dir, top *node) (bool, error) {
	n := f.get(t, dir)
	for n != top && n != f.top {
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
	d, err := f.store.Lookup(t, f.root, oldDir.Ino, oldName)
	if err != nil {
		return nil, err
	}
	n, err := f.iget(t, d)
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
	v, err := f.store.Lookup(t, f.root, newDir.Ino, newName)
	switch {
	case err == nil:
		if victim, err = f.iget(t, v); err != nil {
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
	if _, err := f.store.DelLink(t, tr, f.root, oldDir.Ino, n.Ino, oldName); err != nil {
		return err
	}
	if victim != nil {
		if err := f.unlinkInode(t, h, newDir, victim, newName); err != nil {
			return err
		}
	}
	if err := f.store.AddLink(t, tr, f.root, newDir.Ino, n.Ino, newName, format.FtOf(n.typ), index); err != nil {
		return err
	}
	now := f.now()
	f.dirSizeChanged(t, oldDir, h, -int64(2*len(oldName)), now)
	f.dirSizeChanged(t, newDir, h, int64(2*len(newName)), now)
	n.Change(t, func(i *format.InodeItem) { i.Ctime = now })
	n.LastTransid.Store(h.Transid())
	return nil
}

// ReadDir lists a directory in the order of its index, without "." and "..".
func (f *FS) ReadDir(t *sched.Task, path string) ([]DirEntry, error) {
	dir, err := f.walk(t, path, true)
	if err != nil {
		return nil, opError("readdir", path, err)
	}
	defer f.put(t, dir)
	if !dir.isDir() {
		return nil, opError("readdir", path, errno.ENOTDIR)
	}
	var list []DirEntry
	dir.rlockParent(t)
	err = f.store.ReadDir(t, f.root, dir.Ino, 0, func(index uint64, d format.DirItem) bool {
		e := DirEntry{Name: d.Name, Ino: d.Location.Objectid, Type: d.Type, Index: index}
		if d.Location.Type == format.ROOT_ITEM_KEY {
			e.Subvol, e.Ino = d.Location.Objectid, format.FIRST_FREE_OBJECTID
		}
		list = append(list, e)
		return true
	})
	dir.RUnlock(t)
	return list, opError("readdir", path, err)
}

// Lookup gives the inode number of path, following symbolic links.
func (f *FS) Lookup(t *sched.Task, path string) (uint64, error) {
	n, err := f.walk(t, path, true)
	if err != nil {
		return 0, opError("lookup", path, err)
	}
	defer f.put(t, n)
	return n.Ino, nil
}

// Stat gives the attributes of path, following symbolic links.
func (f *FS) Stat(t *sched.Task, path string) (Attr, error) { return f.stat(t, path, true) }

// Lstat is Stat of the link itself when path is a symbolic link.
func (f *FS) Lstat(t *sched.Task, path string) (Attr, error) { return f.stat(t, path, false) }

func (f *FS) stat(t *sched.Task, path string, follow bool) (Attr, error) {
	n, err := f.walk(t, path, follow)
	if err != nil {
		return Attr{}, opError("stat", path, err)
	}
	defer f.put(t, n)
	return n.attr(t), nil
}

// SetFlags replaces the inode flags that chattr(1) may change; a directory passes format.InodeNoDataCow
// on to what is created in it, a file takes it only while it is empty (EINVAL).
func (f *FS) SetFlags(t *sched.Task, path string, flags uint64) error {
	n, err := f.walk(t, path, true)
	if err != nil {
		return opError("setflags", path, err)
	}
	defer f.put(t, n)
	return opError("setflags", path, f.setFlags(t, n, flags))
}

// setAttr changes the inode item of path in one transaction.
func (f *FS) setAttr(t *sched.Task, op, path string, change func(it *format.InodeItem)) error {
	if err := f.writable(); err != nil {
		return opError(op, path, err)
	}
	n, err := f.walk(t, path, true)
	if err != nil {
		return opError(op, path, err)
	}
	defer f.put(t, n)
	if n.isDir() {
		n.lockParent(t)
	} else {
		n.Lock(t)
	}
	defer n.Unlock(t)
	h, err := f.trans.Start(t, 1)
	if err != nil {
		return opError(op, path, err)
	}
	n.Change(t, change)
	n.LastTransid.Store(h.Transid())
	return opError(op, path, f.end(t, h, nil))
}

// Chmod changes the permissions.
func (f *FS) Chmod(t *sched.Task, path string, mode uint32) error {
	now := f.now()
	return f.setAttr(t, "chmod", path, func(it *format.InodeItem) {
		it.Mode = it.Mode&format.S_IFMT | mode&0o7777
		it.Ctime = now
	})
}

// Chown changes the owner.
func (f *FS) Chown(t *sched.Task, path string, uid, gid uint32) error {
	now := f.now()
	return f.setAttr(t, "chown", path, func(it *format.InodeItem) {
		it.UID, it.GID, it.Ctime = uid, gid, now
	})
}

// Utimes sets atime and mtime.
func (f *FS) Utimes(t *sched.Task, path string, atime, mtime time.Time) error {
	now := f.now()
	return f.setAttr(t, "utimes", path, func(it *format.InodeItem) {
		it.Atime, it.Mtime, it.Ctime = format.TimespecOf(atime), format.TimespecOf(mtime), now
	})
}

func opError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*errno.OpError); ok {
		return err
	}
	return &errno.OpError{Op: op, Path: path, Err: err}
}

// Create makes an empty regular file, or empties the one that is there, and opens it for writing.
func (f *FS) Create(t *sched.Task, path string, mode uint32) (*File, error) {
	return f.OpenFile(t, path, O_RDWR|O_CREAT|O_TRUNC, mode)
}

package fs

import (
	"strings"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

func opError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*errno.OpError); ok {
		return err
	}
	return &errno.OpError{Op: op, Path: path, Err: err}
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

// Create makes an empty regular file, or empties the one that is there, and opens it for writing.
func (f *FS) Create(t *sched.Task, path string, mode uint32) (*File, error) {
	return f.OpenFile(t, path, O_RDWR|O_CREAT|O_TRUNC, mode)
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
	d, err := f.store.Lookup(t, dir.vol.root, dir.Ino, name)
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
	n, err := f.iget(t, dir.vol, d)
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
	if _, err := f.store.Lookup(t, dir.vol.root, dir.Ino, name); err != errno.ENOENT {
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
	if err := f.store.AddLink(t, h.Trans(), dir.vol.root, dir.Ino, n.Ino, name, format.FtOf(n.typ), index); err != nil {
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
	err = f.store.ReadDir(t, dir.vol.root, dir.Ino, 0, func(index uint64, d format.DirItem) bool {
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

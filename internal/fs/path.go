package fs

import (
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// The operations by path: each walks to the node, or to the directory of the last name, and calls
// the node's method.

// opError names the operation and the path of an error; one that names its operation already stays
// as it is.
func opError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*errno.OpError); ok {
		return err
	}
	return &errno.OpError{Op: op, Path: path, Err: err}
}

// owner is the owner of what is created by path.
func (f *FS) owner() Owner { return Owner{UID: f.opt.UID, GID: f.opt.GID} }

// at does op on what path leads to.
func (f *FS) at(t *sched.Task, op, path string, follow bool, do func(n *Node) error) error {
	n, err := f.walk(t, path, follow)
	if err == nil {
		err = do(n)
		f.put(t, n)
	}
	return opError(op, path, err)
}

// in does op on the last name of path in its directory.
func (f *FS) in(t *sched.Task, op, path string, do func(dir *Node, name string) error) error {
	dir, name, err := f.walkParent(t, path)
	if err == nil {
		err = do(dir, name)
		f.put(t, dir)
	}
	return opError(op, path, err)
}

// Create makes an empty regular file, or empties the one that is there, and opens it for writing.
func (f *FS) Create(t *sched.Task, path string, mode uint32) (*File, error) {
	return f.OpenFile(t, path, O_RDWR|O_CREAT|O_TRUNC, mode)
}

// OpenFile opens a regular file. Mode counts when the file is created.
func (f *FS) OpenFile(t *sched.Task, path string, flags OpenFlags, mode uint32) (*File, error) {
	x, err := f.openPath(t, path, flags, mode)
	return x, opError("open", path, err)
}

func (f *FS) openPath(t *sched.Task, path string, flags OpenFlags, mode uint32) (*File, error) {
	var n *Node
	var err error
	if flags&O_CREAT == 0 {
		n, err = f.walk(t, path, flags&O_NOFOLLOW == 0)
	} else {
		n, err = f.openOrCreate(t, path, flags, mode, 0)
	}
	if err != nil {
		return nil, err
	}
	defer f.put(t, n)
	return n.open(t, flags, path)
}

// OpenInode opens a regular file by its number for reading; path is for errors.
func (f *FS) OpenInode(t *sched.Task, subvol uint64, ino format.Ino, path string) (*File, error) {
	n, err := f.Node(t, subvol, ino)
	if err != nil {
		return nil, opError("open", path, err)
	}
	defer f.put(t, n)
	x, err := n.open(t, O_RDONLY, path)
	return x, opError("open", path, err)
}

// LstatIn is Lstat of a name in a directory that is known by its number; path is for errors.
func (f *FS) LstatIn(t *sched.Task, subvol uint64, dir format.Ino, name, path string) (Attr, error) {
	d, err := f.Node(t, subvol, dir)
	if err != nil {
		return Attr{}, opError("stat", path, err)
	}
	defer f.put(t, d)
	n, err := d.Lookup(t, name)
	if err != nil {
		return Attr{}, opError("stat", path, err)
	}
	defer f.put(t, n)
	return n.Attr(t), nil
}

// Mkdir makes an empty directory.
func (f *FS) Mkdir(t *sched.Task, path string, mode uint32) error {
	return f.in(t, "mkdir", path, func(dir *Node, name string) error {
		n, err := dir.Mkdir(t, name, mode, f.owner())
		if err == nil {
			f.put(t, n)
		}
		return err
	})
}

// Symlink makes path a symbolic link to target.
func (f *FS) Symlink(t *sched.Task, target, path string) error {
	return f.in(t, "symlink", path, func(dir *Node, name string) error {
		n, err := dir.Symlink(t, name, target, f.owner())
		if err == nil {
			f.put(t, n)
		}
		return err
	})
}

// Readlink gives the target of a symbolic link.
func (f *FS) Readlink(t *sched.Task, path string) (target string, err error) {
	err = f.at(t, "readlink", path, false, func(n *Node) error {
		target, err = n.Readlink(t)
		return err
	})
	return target, err
}

// Link gives the file old a second name.
func (f *FS) Link(t *sched.Task, old, path string) error {
	err := f.at(t, "link", old, false, func(n *Node) error {
		return f.in(t, "link", path, func(dir *Node, name string) error { return dir.Link(t, name, n) })
	})
	return err
}

// Unlink takes a name from a file; the last one deletes it once no File has it open.
func (f *FS) Unlink(t *sched.Task, path string) error {
	return f.in(t, "unlink", path, func(dir *Node, name string) error { return dir.Unlink(t, name) })
}

// Rmdir deletes an empty directory.
func (f *FS) Rmdir(t *sched.Task, path string) error {
	return f.in(t, "rmdir", path, func(dir *Node, name string) error { return dir.Rmdir(t, name) })
}

// Rename moves from to to and replaces what is there, as rename(2).
func (f *FS) Rename(t *sched.Task, from, to string) error {
	return f.in(t, "rename", from, func(oldDir *Node, oldName string) error {
		newDir, newName, err := f.walkParent(t, to)
		if err != nil {
			return err
		}
		defer f.put(t, newDir)
		return oldDir.Rename(t, oldName, newDir, newName)
	})
}

// ReadDir lists a directory in the order of its index, without "." and "..".
func (f *FS) ReadDir(t *sched.Task, path string) (list []DirEntry, err error) {
	err = f.at(t, "readdir", path, true, func(n *Node) error {
		return n.ReadDir(t, 0, func(e DirEntry) bool {
			list = append(list, e)
			return true
		})
	})
	return list, err
}

// Lookup gives the inode number of path, following symbolic links.
func (f *FS) Lookup(t *sched.Task, path string) (ino format.Ino, err error) {
	err = f.at(t, "lookup", path, true, func(n *Node) error {
		ino = n.Ino()
		return nil
	})
	return ino, err
}

// Stat gives the attributes of path, following symbolic links.
func (f *FS) Stat(t *sched.Task, path string) (Attr, error) { return f.stat(t, path, true) }

// Lstat is Stat of the link itself when path is a symbolic link.
func (f *FS) Lstat(t *sched.Task, path string) (Attr, error) { return f.stat(t, path, false) }

func (f *FS) stat(t *sched.Task, path string, follow bool) (a Attr, err error) {
	err = f.at(t, "stat", path, follow, func(n *Node) error {
		a = n.Attr(t)
		return nil
	})
	return a, err
}

// SetFlags is Node.SetFlags of path.
func (f *FS) SetFlags(t *sched.Task, path string, flags uint64) error {
	return f.at(t, "setflags", path, true, func(n *Node) error { return n.SetFlags(t, flags) })
}

// Chmod changes the permissions.
func (f *FS) Chmod(t *sched.Task, path string, mode uint32) error {
	return f.at(t, "chmod", path, true, func(n *Node) error { return n.SetAttr(t, SetAttr{Set: SetMode, Mode: mode}) })
}

// Chown changes the owner.
func (f *FS) Chown(t *sched.Task, path string, uid, gid uint32) error {
	return f.at(t, "chown", path, true, func(n *Node) error {
		return n.SetAttr(t, SetAttr{Set: SetUID | SetGID, UID: uid, GID: gid})
	})
}

// Utimes sets atime and mtime.
func (f *FS) Utimes(t *sched.Task, path string, atime, mtime time.Time) error {
	return f.at(t, "utimes", path, true, func(n *Node) error {
		return n.SetAttr(t, SetAttr{Set: SetAtime | SetMtime, Atime: atime, Mtime: mtime})
	})
}

// NodeAt is what path names, with a reference for the caller; a symbolic link is not followed.
func (f *FS) NodeAt(t *sched.Task, path string) (*Node, error) {
	n, err := f.walk(t, path, false)
	return n, opError("open", path, err)
}

// Mknod makes a device file, a named pipe or a socket: Node.Mknod.
func (f *FS) Mknod(t *sched.Task, path string, mode uint32, rdev uint64) error {
	return f.in(t, "mknod", path, func(dir *Node, name string) error {
		n, err := dir.Mknod(t, name, mode, rdev, f.owner())
		if err == nil {
			f.put(t, n)
		}
		return err
	})
}

// Setxattr makes the extended attribute of path have the value.
func (f *FS) Setxattr(t *sched.Task, path, name string, value []byte) error {
	return f.at(t, "setxattr", path, true, func(n *Node) error { return n.Setxattr(t, name, value) })
}

// Removexattr takes the extended attribute of path away.
func (f *FS) Removexattr(t *sched.Task, path, name string) error {
	return f.at(t, "removexattr", path, true, func(n *Node) error { return n.Removexattr(t, name) })
}

// Fsync makes the file or the directory at path durable: a file with its bytes, a directory with
// its entries. An error of a write in the background is returned once.
func (f *FS) Fsync(t *sched.Task, path string) error {
	return f.at(t, "fsync", path, true, func(n *Node) error { return n.Fsync(t) })
}

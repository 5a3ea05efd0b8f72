package fs

import (
	"sync/atomic"

	"btrlab/internal/data/inode"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath/fsync"
	"btrlab/internal/sched"
)

// Node is a handle of a file, directory or symbolic link: what a FUSE server finds by node id, and
// an NFS server by file handle. The operations of the file system are its methods; those by path in
// FS walk to a node and call them.
//
// An inode is in memory once, so two handles of one inode are the same pointer, and (Subvol, Ino)
// is its identity; with Generation it stays one when the number is used again. A call that returns
// a Node gives its caller one reference, which Forget gives back. While a Node has references, its
// inode stays, also without a name.
//
// The methods take names, never paths, follow no symbolic link and check no permission; what chattr
// +i and +a forbid is EPERM, as for root in Linux. Their errors wrap errnos of package errno, to be
// asked by errors.As; any other error is a sentence about a damaged image.
//
// Models struct inode with the reference that a dentry or a file handle has.
type Node struct {
	fs    *FS
	ip    *inode.Inode
	vol   *subvol // its subvolume
	typ   uint32  // S_IFMT bits of the mode; they do not change
	state atomic.Uint32
	err   error // why the state is nodeFailed

	refs int // protected by the shard's mu

	linkable atomic.Bool // it was made without a name and may get one: I_LINKABLE

	// nextIndex is the directory's next DIR_INDEX; 0 is not known yet. Protected by i_rwsem.
	nextIndex uint64
}

// Owner says whom a new file belongs to. With Inherit it also takes after its directory, as a file
// that a process makes: the group and the setgid bit of a setgid directory, and the directory's
// default ACL, or without one Umask, which then bounds its permissions.
type Owner struct {
	UID, GID uint32
	Umask    uint32
	Inherit  bool
}

// Root is the directory at which paths begin, with one reference for the caller.
func (f *FS) Root(t *sched.Task) *Node { return f.get(t, f.base) }

// Node finds the inode with number ino of a subvolume, as a file handle names it. ENOENT when there
// is none. Models btrfs_get_dentry().
func (f *FS) Node(t *sched.Task, subvol uint64, ino format.Ino) (*Node, error) {
	v, err := f.subvol(t, subvol)
	if err != nil {
		return nil, err
	}
	return f.iget(t, v, ino)
}

// Get takes one more reference, beside one that the caller has, and returns n.
func (n *Node) Get(t *sched.Task) *Node { return n.fs.get(t, n) }

// Forget gives count references back. The last one deletes an inode without names; an error of that
// is returned, and the inode's orphan item stays for the next open.
func (n *Node) Forget(t *sched.Task, count int) error { return n.fs.putRefs(t, n, count) }

// Fsync makes the inode durable: a file with its bytes, a directory with its names, as File.Fsync.
// An error of a write in the background is returned once.
func (n *Node) Fsync(t *sched.Task) error {
	if n.fs.opt.ReadOnly {
		return nil
	}
	var seen atomic.Uint64
	return fsync.Sync(t, &n.fs.env, n.ip, &seen)
}

// Ino is the inode number.
func (n *Node) Ino() format.Ino { return n.ip.Ino }

// Subvol is the id of the tree with the inode's items: the subvolume.
func (n *Node) Subvol() uint64 { return n.vol.root.ID }

// Generation tells two inodes with one number apart: the transaction that made it.
func (n *Node) Generation(t *sched.Task) uint64 { it := n.ip.Item(t); return it.Generation }

// IsDir reports whether it is a directory.
func (n *Node) IsDir() bool { return n.typ == format.S_IFDIR }

// IsRegular reports whether it is a regular file.
func (n *Node) IsRegular() bool { return n.typ == format.S_IFREG }

// IsSymlink reports whether it is a symbolic link.
func (n *Node) IsSymlink() bool { return n.typ == format.S_IFLNK }

// isTop reports whether it is the top directory of its subvolume, which has no name in that.
func (n *Node) isTop() bool { return n.ip.Ino == format.FIRST_FREE_OBJECTID }

func (n *Node) nlink(t *sched.Task) uint32 { it := n.ip.Item(t); return it.Nlink }

// writable is EROFS when nothing of the inode's subvolume can be changed.
func (n *Node) writable() error {
	if err := n.fs.writable(); err != nil {
		return err
	}
	return n.vol.frozen
}

// sealed reports whether the inode's data, or the names in a directory, may not be changed: chattr
// +i, or a flag of btrfs's own. Models inode_permission() with MAY_WRITE. The answer to it is
// EPERM.
func (n *Node) sealed() bool { return n.ip.Flags()&(format.InodeImmutable|format.InodeReadonly) != 0 }

// appendOnly reports chattr +a: a file only grows at its end, and a directory loses no names.
func (n *Node) appendOnly() bool { return n.ip.Flags()&format.InodeAppend != 0 }

// pinned reports whether the inode's names and attributes stay as they are: chattr +i or +a.
func (n *Node) pinned() bool { return n.ip.Flags()&(format.InodeImmutable|format.InodeAppend) != 0 }

// mayChange is EPERM or EROFS when names of the directory d may not be changed. Models
// inode_permission() with MAY_WRITE, which comes after the lookup: a name that is there, or is not,
// is the answer before it.
func (d *Node) mayChange() error {
	if d.sealed() {
		return errno.EPERM
	}
	return d.vol.frozen
}

// mayTake is EPERM or EROFS when the name of n may not be taken from the directory d; n is nil for
// a subvolume. Models the first part of may_delete(). Both are locked.
func (d *Node) mayTake(n *Node) error {
	if err := d.mayChange(); err != nil {
		return err
	}
	if d.appendOnly() || n != nil && n.pinned() {
		return errno.EPERM
	}
	return nil
}

// The order of directories that one task has locked; see inode.LockDir.
const (
	subParent  = 1 + iota // a directory whose names change
	subParent2            // the second one, of a rename
	subChild              // a directory whose name changes
	subChild2             // the second one: what a rename replaces, or is replaced by
)

// lockParent locks a directory whose names change.
func (n *Node) lockParent(t *sched.Task) { n.ip.LockDir(t, subParent) }

// lockChild locks an inode whose name in a locked directory changes; sub, subChild or subChild2, is
// a directory's place among the locked ones.
func (n *Node) lockChild(t *sched.Task, sub uint64) {
	if n.IsDir() {
		n.ip.LockDir(t, sub)
	} else {
		n.ip.Lock(t)
	}
}

// lock locks the inode alone, for a change of its attributes.
func (n *Node) lock(t *sched.Task) {
	if n.IsDir() {
		n.lockParent(t)
	} else {
		n.ip.Lock(t)
	}
}

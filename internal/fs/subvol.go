package fs

import (
	"errors"
	"fmt"
	"sync/atomic"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// subvol is an open subvolume: the tree with the items of its inodes, and the numbers for new ones.
// Every node belongs to one, which says in which tree the inode's items are.
//
// Models struct btrfs_root of a subvolume.
type subvol struct {
	root    *ctree.Root
	nextIno atomic.Uint64
	frozen  error // why nothing in it can be changed; nil when it can
	// its tree is about to be dropped: iget finds nothing in it any more; set before busy is asked
	dead atomic.Bool
	// evicting counts its inodes without references that are being deleted, which takes changes of
	// the tree.
	evicting atomic.Int32
	// cleaning: the task that has opened it deletes its orphans. Nobody else is let in, or the two
	// delete the same inode.
	cleaning atomic.Bool
}

// subvol finds a subvolume by its tree and opens it the first time: an open one stays in the table
// of roots. ENOENT when there is none. Models btrfs_get_fs_root().
//
// Preconditions: the task has no lock; the orphans of a subvolume are deleted when it is opened.
func (f *FS) subvol(t *sched.Task, id uint64) (*subvol, error) {
	if id != format.FS_TREE_OBJECTID && (id < format.FIRST_FREE_OBJECTID || id > format.LAST_FREE_OBJECTID) {
		return nil, errno.ENOENT
	}
	f.subvolMu.Lock(t)
	v, cleans := f.subvols[id], false
	var err error
	if v == nil {
		if v, err = f.openSubvol(t, id); err == nil {
			cleans = v.frozen == nil && !f.opt.ReadOnly
			v.cleaning.Store(cleans)
			f.subvols[id] = v
		}
	}
	f.subvolMu.Unlock(t)
	switch {
	case cleans:
		err = f.cleanOrphans(t, v)
		v.cleaning.Store(false)
		f.inodes.wait.Wake(t)
	case err == nil && v.cleaning.Load():
		f.inodes.wait.Wait(t, func() bool { return !v.cleaning.Load() })
	}
	return v, err
}

// openSubvol reads the subvolume with tree id.
func (f *FS) openSubvol(t *sched.Task, id uint64) (*subvol, error) {
	r, it, err := f.trans.OpenSubvol(t, id)
	// gone, or being deleted
	if errors.Is(err, transaction.ErrNoRoot) || err == nil && it.Refs == 0 {
		return nil, errno.ENOENT
	}
	if err != nil {
		return nil, err
	}
	return f.newSubvol(t, r, &it)
}

// newSubvol makes the subvolume of an open tree.
func (f *FS) newSubvol(t *sched.Task, r *ctree.Root, it *format.RootItem) (*subvol, error) {
	next, err := f.store.NextObjectid(t, r)
	if err != nil {
		return nil, fmt.Errorf("find free inode number: %w", err)
	}
	v := &subvol{root: r}
	f.logs.Attach(t, r)
	v.nextIno.Store(next)
	if it.Flags&format.RootSubvolReadonly != 0 {
		v.frozen = errno.EROFS
	}
	return v, nil
}

// IsSnapshot reports whether the subvolume with tree id was made as a snapshot of another.
func (f *FS) IsSnapshot(t *sched.Task, id uint64) (bool, error) {
	it, err := f.trans.RootItem(t, id)
	return it.ParentUUID != format.UUID{}, err
}

// enter goes from the entry it of directory dir to the top directory of the subvolume that it
// names. Models fixup_tree_root_location(). Difference: in a snapshot the name of a subvolume that
// lies in the original leads nowhere (ENOENT); the kernel shows an empty directory.
func (f *FS) enter(t *sched.Task, dir *Node, it format.DirItem) (*Node, error) {
	id := it.Location.Objectid
	f.subvolSem.RLock(t)
	_, err := f.linkOf(t, dir, it)
	f.subvolSem.RUnlock(t)
	if errors.Is(err, errno.ENOENT) {
		return nil, fmt.Errorf("subvolume %d is not in this directory but in the one that this is a snapshot of: %w", id, errno.ENOENT)
	}
	if err != nil {
		return nil, err
	}
	v, err := f.subvol(t, id)
	if err != nil {
		return nil, err
	}
	return f.iget(t, v, format.FIRST_FREE_OBJECTID)
}

// findBase is the directory at which paths begin, by Options.Subvol and SubvolPath. It has a
// reference of its own unless it is top.
func (f *FS) findBase(t *sched.Task, sb *format.Super) (*Node, error) {
	if path := f.opt.SubvolPath; path != "" {
		f.base = f.top
		n, err := f.walk(t, path, true)
		if err == nil && n == f.top {
			f.put(t, n)
			return f.top, nil
		}
		if err == nil && n.ip.Ino != format.FIRST_FREE_OBJECTID {
			f.put(t, n)
			err = errno.EINVAL
		}
		if err != nil {
			return nil, fmt.Errorf("subvolume %s: %w", path, err)
		}
		return n, nil
	}
	id := f.opt.Subvol
	switch {
	case id != 0:
	case sb.IncompatFlags&format.IncompatDefaultSubvol == 0: // nobody has set one
		id = format.FS_TREE_OBJECTID
	default:
		var err error
		if id, err = f.DefaultSubvolume(t); err != nil {
			return nil, err
		}
	}
	if id == format.FS_TREE_OBJECTID {
		return f.top, nil
	}
	v, err := f.subvol(t, id)
	if err != nil {
		return nil, fmt.Errorf("subvolume %d: %w", id, err)
	}
	return f.iget(t, v, format.FIRST_FREE_OBJECTID)
}

// putBase lets findBase's reference go.
func (f *FS) putBase(t *sched.Task) {
	if f.base != f.top {
		f.put(t, f.base)
	}
}

// rootTreeDir is the directory in the root tree: BTRFS_ROOT_TREE_DIR_OBJECTID. Its one entry leads
// to the default subvolume.
const (
	rootTreeDir = 6
	defaultName = "default"
)

// DefaultSubvolume is the tree of the subvolume that a mount shows which names none. Models
// get_default_subvol_objectid().
func (f *FS) DefaultSubvolume(t *sched.Task) (uint64, error) {
	d, err := f.store.Lookup(t, f.trans.Root(format.ROOT_TREE_OBJECTID), rootTreeDir, defaultName)
	switch {
	case errors.Is(err, errno.ENOENT):
		return format.FS_TREE_OBJECTID, nil // nobody has set one
	case err != nil:
		return 0, fmt.Errorf("find the default subvolume: %w", err)
	}
	return d.Location.Objectid, nil
}

// SetDefaultSubvolume makes another subvolume the default one; the change is durable with the next
// commit. ENOENT when there is no such subvolume. Models btrfs_ioctl_default_subvol().
func (f *FS) SetDefaultSubvolume(t *sched.Task, id uint64) error {
	if err := f.writable(); err != nil {
		return err
	}
	if _, err := f.subvol(t, id); err != nil {
		return err
	}
	h, err := f.trans.Start(t, 1)
	if err != nil {
		return err
	}
	to := format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY, Offset: ^uint64(0)}
	if err := f.store.SetLocation(t, h.Trans(), f.trans.Root(format.ROOT_TREE_OBJECTID), rootTreeDir, defaultName, to); err != nil {
		return f.end(t, h, err)
	}
	f.trans.AddIncompat(format.IncompatDefaultSubvol)
	return f.end(t, h, nil)
}

// above is the directory that has the subvolume with top directory n; the top-level subvolume's is
// itself.
func (f *FS) above(t *sched.Task, n *Node) (*Node, error) {
	if n == f.top {
		return f.get(t, n), nil
	}
	parent, ref, err := f.subvolParent(t, n.vol.root.ID)
	if err != nil {
		return nil, err
	}
	v, err := f.subvol(t, parent)
	if err != nil {
		return nil, err
	}
	return f.iget(t, v, format.Ino(ref.Dirid))
}

// subvolParent is where subvolume id is linked. ENOENT when it is nowhere. A rename under way is
// waited for.
func (f *FS) subvolParent(t *sched.Task, id uint64) (parent uint64, ref format.RootRef, err error) {
	f.subvolSem.RLock(t)
	defer f.subvolSem.RUnlock(t)
	parent, ref, err = f.trans.SubvolParent(t, id)
	if errors.Is(err, transaction.ErrNoRoot) {
		err = errno.ENOENT
	}
	return parent, ref, err
}

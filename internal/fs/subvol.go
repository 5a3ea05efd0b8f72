package fs

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/errno"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// subvol is an open subvolume: the tree with the items of its inodes, and the numbers for new ones.
// Every node belongs to one, which says in which tree the inode's items are.
//
// Models struct btrfs_root of a subvolume.
type subvol struct {
	root    *ctree.Root
	nextIno atomic.Uint64
}

// openSubvol puts the subvolume with the tree r into the table of roots.
func (f *FS) openSubvol(t *sched.Task, r *ctree.Root) (*subvol, error) {
	next, err := f.store.NextObjectid(t, r)
	if err != nil {
		return nil, fmt.Errorf("find free inode number: %w", err)
	}
	v := &subvol{root: r}
	v.nextIno.Store(next)
	if f.subvols == nil {
		f.subvols = make(map[uint64]*subvol)
	}
	f.subvols[r.ID] = v
	return v, nil
}

// subvol finds an open subvolume by its tree. ENOENT when it is not open.
func (f *FS) subvol(t *sched.Task, id uint64) (*subvol, error) {
	v := f.subvols[id]
	if v == nil {
		return nil, errno.ENOENT
	}
	return v, nil
}

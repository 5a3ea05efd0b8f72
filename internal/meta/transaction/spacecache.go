package transaction

import (
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// An image without a free space tree may have the old cache of free space: of each block group an
// inode in the tree of roots, whose data lists what is free, and an item that leads to the inode.

func spaceCacheKey(logical uint64) format.Key {
	return format.Key{Objectid: format.FREE_SPACE_OBJECTID, Offset: logical}
}

// SpoilSpaceCache says that the old cache of the free space of the block group at logical, if an
// image without a free space tree has one, is of another generation than it is: nobody loads it,
// and Linux writes it again. Models a step of btrfs_setup_space_cache().
func (m *Manager) SpoilSpaceCache(t *sched.Task, h *Handle, logical uint64) error {
	var p ctree.Path
	defer p.Release(t)
	found, err := m.Forest.SearchSlot(t, &h.tr, m.Root(format.ROOT_TREE_OBJECTID), spaceCacheKey(logical), &p, 0, true)
	if err != nil || !found || len(p.Item()) < format.KeySize+8 {
		return err
	}
	clear(p.Item()[format.KeySize : format.KeySize+8])
	m.Forest.DirtyLeaf(t, &h.tr, &p)
	return nil
}

// DropSpaceCache takes the old cache of the free space of the block group at logical, if there is
// one, out of the trees. After an error the transaction must be aborted. Models
// btrfs_remove_free_space_inode().
func (m *Manager) DropSpaceCache(t *sched.Task, h *Handle, logical uint64) error {
	tree := m.Root(format.ROOT_TREE_OBJECTID)
	var p ctree.Path
	defer p.Release(t)
	found, err := m.Forest.SearchSlot(t, &h.tr, tree, spaceCacheKey(logical), &p, -1, true)
	if err != nil || !found {
		return err
	}
	ino := format.DecodeKey(p.Item()).Objectid
	if err := m.Forest.DelItems(t, &h.tr, tree, &p, p.Slot(), 1); err != nil {
		return err
	}
	for {
		p.Release(t)
		more, err := m.Forest.SearchForward(t, tree, format.Key{Objectid: ino}, &p)
		if err != nil || !more || p.Key().Objectid != ino {
			return err
		}
		key := p.Key()
		if fe := format.FileExtentView(p.Item()); key.Type == format.EXTENT_DATA_KEY && fe.Type() != format.FileExtentTypeInline && fe.DiskBytenr() != 0 {
			ref := format.DataRef{Root: format.ROOT_TREE_OBJECTID, Ino: format.Ino(ino), Offset: format.FileOff(key.Offset - fe.Offset())}
			if err := m.Extents.FreeExtent(t, &h.tr, ref, format.Logical(fe.DiskBytenr()), fe.DiskNumBytes()); err != nil {
				return err
			}
		}
		p.Release(t)
		if err := m.DeleteItem(t, h, tree, key); err != nil {
			return err
		}
	}
}

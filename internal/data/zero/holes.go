package zero

import (
	"btrlab/internal/data/inode"
	"btrlab/internal/format"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Holes makes the items of holes.
type Holes struct {
	Store *fstree.Store
	Trans *transaction.Manager
}

// unitsHole is the reservation of one hole, in inserted items: the item that is dropped, the one
// that is added, the inode.
const unitsHole = 3

// Fill makes what [start, end) of a file, sectors beyond i_size, has no preallocated space for a
// hole with an item. Models the loop of btrfs_cont_expand(). Difference: the extent lock is let go
// after each hole.
//
// Preconditions:
//   - ip is locked for writing.
func (h Holes) Fill(t *sched.Task, ip *inode.Inode, start, end uint64) error {
	for start < end {
		next, err := h.fillOne(t, ip, start, end)
		if err != nil {
			return err
		}
		start = next
	}
	return nil
}

// fillOne fills the front of [start, end) and says where to go on. Models maybe_insert_hole().
func (h Holes) fillOne(t *sched.Task, ip *inode.Inode, start, end uint64) (next uint64, err error) {
	space, quota := h.Trans.Space, h.Trans.Quota
	meta := space.CalcInsert(unitsHole)
	blocks, err := quota.ReserveMeta(t, ip.Root.ID, unitsHole*space.NodeSize(), true, false)
	if err != nil {
		return 0, err
	}
	if err := space.Metadata().Reserve(t, meta, spaceinfo.FlushAll); err != nil {
		quota.Free(t, ip.Root.ID, blocks, qgroup.MetaPrealloc)
		return 0, err
	}
	ip.LockAndFlushOrdered(t, start, end)
	defer ip.IOTree.Unlock(t, start, end)
	at, fe, ok, err := h.Store.LookupFileExtent(t, ip.Root, ip.Ino, start)
	next = min(at, end)
	if ok {
		next = min(format.AlignUp(at+fe.NumBytes, block), end)
	}
	if err != nil || ok && fe.Type == format.FileExtentTypePrealloc {
		ip.Extents.Drop(t, start, end)
		ip.Cover(t, start, next)
		space.Metadata().Release(t, meta)
		quota.Free(t, ip.Root.ID, blocks, qgroup.MetaPrealloc)
		return next, err
	}
	hd, err := h.Trans.JoinReserved(t, meta)
	if err != nil {
		quota.Free(t, ip.Root.ID, blocks, qgroup.MetaPrealloc)
		return 0, err
	}
	quota.Convert(t, ip.Root.ID, blocks)
	r, err := h.Store.DropExtents(t, hd.Trans(), ip.Root, ip.Ino, start, next, fstree.DropOptions{})
	if err == nil {
		err = h.Store.InsertHole(t, hd.Trans(), ip.Root, ip.Ino, start, next)
	}
	ip.ExtentsChanged(t, hd.Transid(), start, next)
	if err != nil {
		hd.Abort(t, err)
		_ = hd.End(t)
		return 0, err
	}
	ip.Cover(t, start, next)
	ip.AddBytes(t, -int64(r.BytesFound))
	ip.MarkDirty(t)
	return next, hd.End(t)
}

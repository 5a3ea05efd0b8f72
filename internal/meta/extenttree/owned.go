package extenttree

import (
	"maps"

	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// SetOwned begins the notes for TakeOwned, of extents of generation since and later, and makes a
// new data extent say whose it is (EXTENT_OWNER_REF); zero ends both.
func (e *ExtentTree) SetOwned(since uint64) { e.ownedSince.Store(since) }

// owns notes that root has n bytes more, or less, in an extent of the generation. An extent counts
// for the subvolume that allocated it as long as anything refers to it. The committer calls it.
// Models btrfs_record_squota_delta().
func (e *ExtentTree) owns(root uint64, n int64, generation uint64) {
	if since := e.ownedSince.Load(); since != 0 && generation >= since && format.IsFSTree(root) {
		e.owned[root] += n
	}
}

// ownerOf is the tree that allocated the extent of the head: what a tree block's header says, and
// of data what its references begin with; zero for an extent from before simple quotas. Models
// btrfs_get_extent_owner_root().
func (h *head) ownerOf(refs []format.InlineRef) uint64 {
	switch {
	case !h.data:
		return h.owner
	case len(refs) > 0 && refs[0].Type == format.EXTENT_OWNER_REF_KEY:
		return refs[0].Offset
	}
	return 0
}

// TakeOwned hands over by how many bytes the subvolumes have grown since the last call. The
// committer calls it when the references of subvolumes have been run.
func (e *ExtentTree) TakeOwned(t *sched.Task) map[uint64]int64 {
	e.enter(t)
	defer e.leave()
	got := maps.Clone(e.owned)
	clear(e.owned)
	return got
}

// Package delalloc is delayed allocation as a writer sees it: promise data and metadata space for a
// block range, make the range dirty without choosing its place on disk, or give the promise back.
//
// A writer's batch carries one Reservation:
//
//	ReserveData        data space, and of a quota   may flush and sleep: before pages and ranges are locked
//	  or NoSnapshot, then Nocow   ... or none, because the range is overwritten in place
//	ReserveMetadata    metadata space        may flush and sleep
//	Shrink             a short copy or a folio's end made the batch smaller
//	SetDelalloc        the pages are copied: DELALLOC on, the reservation now belongs to the range
//	Finish             the pages are dirty: range unlocked, the batch counts no extent of its own any more
//	Release            instead of SetDelalloc: nothing was dirtied
//
// Model: fs/btrfs/delalloc-space.c; labs/reference 1.1 c, d, h, i, 5.2 and 5.4.
package delalloc

import (
	"fmt"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/format"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

// Reservation is the space that one batch of a write has been promised. The zero value is none; it
// lives on the writer's stack. Models struct extent_changeset and the loose variables of
// btrfs_buffered_write().
type Reservation struct {
	// Start and End are the block-aligned byte range.
	Start, End uint64

	data  bool // data space is reserved for the range
	nocow bool // no data space: the range will be overwritten in place
	meta  bool // metadata is reserved
	given bool // the range owns it all: SetDelalloc
	held  bool // the subvolume's SnapshotLock, for the write in place
	quota fresh

	// QuotaFlush lets ReserveData flush for the quota although its mode is NoFlush, as Linux does
	// (labs/reference 4.1).
	QuotaFlush bool
	// Unlocked does without that lock: a wrong order of the museum.
	Unlocked bool
}

// Active reports whether anything is reserved.
func (r *Reservation) Active() bool { return r.data || r.nocow || r.meta }

func (r *Reservation) String() string {
	return fmt.Sprintf("reservation [%d, %d) data=%v nocow=%v meta=%v", r.Start, r.End, r.data, r.nocow, r.meta)
}

// ReserveData promises data space for the blocks that touch [start, end), and then that much of the
// subvolume's quota. ENOSPC and EDQUOT leave r as it was. Models btrfs_check_data_free_space(); the
// mode is spaceinfo.FlushData, or NoFlush for a NOWAIT write. With NoFlush the quota does not flush
// either, unless QuotaFlush is set.
func (r *Reservation) ReserveData(t *sched.Task, ip *inode.Inode, start, end uint64, mode spaceinfo.FlushMode) error {
	start, end = format.AlignDown(start, format.SectorSize), format.AlignUp(end, format.SectorSize)
	if r.Active() {
		panic(fmt.Sprintf("delalloc: ReserveData [%d, %d) over %s", start, end, r.String()))
	}
	if err := ip.FS.Space.Data().Reserve(t, end-start, mode); err != nil {
		return err
	}
	if ip.FS.Quota.On() {
		if err := r.quota.reserve(t, ip, start, end, mode == spaceinfo.NoFlush && !r.QuotaFlush); err != nil {
			ip.FS.Space.Data().Release(t, end-start)
			return err
		}
	}
	r.Start, r.End, r.data = start, end, true
	return nil
}

// NoSnapshot keeps snapshots of the file's subvolume out until the reservation ends, so that what
// may be overwritten now may be when it is. It never waits: false says that a snapshot is being
// made, and nothing may be overwritten. Models the btrfs_drew_try_write_lock() of
// btrfs_check_nocow_lock().
func (r *Reservation) NoSnapshot(t *sched.Task, ip *inode.Inode) bool {
	if r.Unlocked {
		return true
	}
	r.held = r.held || ip.Root.SnapshotLock.TryWrite(t)
	return r.held
}

// letSnapshot ends NoSnapshot. Models btrfs_check_nocow_unlock().
func (r *Reservation) letSnapshot(t *sched.Task, ip *inode.Inode) {
	if r.held {
		r.held = false
		ip.Root.SnapshotLock.WriteUnlock(t)
	}
}

// HandSnapshot gives what NoSnapshot holds to I/O that ends after the reservation. The end of the
// I/O calls WriteUnlockDisowned of the subvolume's SnapshotLock.
//
// Preconditions: NoSnapshot has succeeded.
func (r *Reservation) HandSnapshot(t *sched.Task, ip *inode.Inode) {
	if !r.held {
		panic(fmt.Sprintf("delalloc: HandSnapshot of %s, which holds no snapshot lock", r.String()))
	}
	r.held = false
	ip.Root.SnapshotLock.Disown(t)
}

// Nocow starts a batch in NOCOW mode: the caller has asked (place.Finder.CanNocow) whether the
// blocks can be overwritten in place, after ReserveData failed, and keeps snapshots out. Models the
// only_release_metadata mode.
func (r *Reservation) Nocow(start, end uint64) {
	start, end = format.AlignDown(start, format.SectorSize), format.AlignUp(end, format.SectorSize)
	if r.Active() || !r.held && !r.Unlocked {
		panic(fmt.Sprintf("delalloc: Nocow [%d, %d) over %s", start, end, r.String()))
	}
	r.Start, r.End, r.nocow = start, end, true
}

// ReserveMetadata promises the metadata that writing the range back will need, wherever it goes. On
// error only the data reservation is left, for Release. Models btrfs_delalloc_reserve_metadata();
// the mode is spaceinfo.FlushAll, or NoFlush for a NOWAIT write.
func (r *Reservation) ReserveMetadata(t *sched.Task, ip *inode.Inode, mode spaceinfo.FlushMode) error {
	err := ip.ReserveExtents(t, r.End-r.Start, mode)
	r.meta = err == nil
	return err
}

// Shrink gives back what lies beyond end, which is rounded up to a block; an end at or before Start
// releases all.
func (r *Reservation) Shrink(t *sched.Task, ip *inode.Inode, end uint64) {
	end = format.AlignUp(end, format.SectorSize)
	if end >= r.End {
		return
	}
	if end <= r.Start {
		r.Release(t, ip)
		return
	}
	n := r.End - end
	if r.meta {
		old := inode.Extents(r.End - r.Start)
		if now := inode.Extents(end - r.Start); now < old {
			ip.ReleaseExtents(t, uint64(old-now)*inode.MaxExtent, n)
		} else {
			ip.ReleaseExtents(t, 0, n)
		}
		ip.Settle(t)
	}
	r.quota.free(t, ip, end)
	if r.data {
		ip.FS.Space.Data().Release(t, n)
	}
	r.End = end
}

// Release gives everything back: the batch dirtied nothing. Models btrfs_delalloc_release_space().
// After SetDelalloc it is Finish.
func (r *Reservation) Release(t *sched.Task, ip *inode.Inode) {
	if r.given {
		r.Finish(t, ip, false)
		return
	}
	n := r.End - r.Start
	if r.meta {
		ip.ReleaseExtents(t, n, n)
		ip.Settle(t)
	}
	if r.data {
		ip.FS.Space.Data().Release(t, n)
		r.quota.free(t, ip, 0)
	}
	r.letSnapshot(t, ip)
	*r = Reservation{}
}

// Leak forgets what is reserved without giving it back: a wrong order of the museum. The lock goes
// all the same.
func (r *Reservation) Leak(t *sched.Task, ip *inode.Inode) {
	r.letSnapshot(t, ip)
	*r = Reservation{}
}

// Ordered hands the reservation of the first n bytes over to the ordered extent of type typ that
// the caller has made for them without delayed allocation: a direct write. Data space that was
// reserved for an overwrite in place is given back. Models btrfs_delalloc_release_extents() and the
// release of data space in btrfs_get_blocks_direct_write().
func (r *Reservation) Ordered(t *sched.Task, ip *inode.Inode, n uint64, typ ordered.Type) {
	if r.data && typ != ordered.Regular {
		ip.FS.Space.Data().Release(t, n)
	}
	old := inode.Extents(r.End - r.Start)
	if r.Start += n; r.Start == r.End {
		ip.ReleaseExtents(t, uint64(old)*inode.MaxExtent, 0)
		ip.Settle(t)
		r.letSnapshot(t, ip)
		*r = Reservation{}
		return
	}
	ip.ReleaseExtents(t, uint64(old-inode.Extents(r.End-r.Start))*inode.MaxExtent, 0)
	ip.Settle(t)
}

// HasData reports whether data space is reserved for the range.
func (r *Reservation) HasData() bool { return r.data }

// Given reports whether SetDelalloc has come, and Finish has not.
func (r *Reservation) Given() bool { return r.given }

// SetDelalloc makes the range DELALLOC, which owns the reservation from then on. What was reserved
// for blocks that were delalloc already is given back first. Models btrfs_set_extent_delalloc() as
// btrfs_dirty_folio() calls it, with the clearing of 1.1 f/h before it.
//
// NORESERVE may be left from a write in place whose pages are still in memory: a range that has
// data space loses it. Difference: Linux does not look, and then counts the bytes as not reserved.
//
// Preconditions:
//   - the pages of the range are locked, and copied;
//   - when locked is set, [r.Start, r.End) of ip.IOTree is locked by t.
func (r *Reservation) SetDelalloc(t *sched.Task, ip *inode.Inode, locked bool) {
	if !r.meta || r.given {
		panic(fmt.Sprintf("delalloc: SetDelalloc of %s", r.String()))
	}
	if locked {
		ip.IOTree.AssertLocked(t, r.Start, r.End)
	}
	set := extentio.Delalloc
	if r.nocow {
		set |= extentio.NoReserve
		ip.MarkNoReserve()
	}
	if r.data && ip.FS.Quota.On() {
		topUp(t, ip, r.Start, r.End)
	}
	ip.IOTree.Clear(t, r.Start, r.End, extentio.Delalloc|extentio.DoAccounting)
	ip.SettleCleared(t)
	if r.data && ip.MayNoReserve() {
		ip.IOTree.Clear(t, r.Start, r.End, extentio.NoReserve)
	}
	ip.IOTree.Set(t, r.Start, r.End, set)
	r.data, r.nocow, r.given = false, false, true
}

// Finish ends a reservation after SetDelalloc: it unlocks the range, when locked is set, and takes
// back the count that the batch had for itself; r is empty. Models the unlock of 1.1 h and
// btrfs_delalloc_release_extents() of 1.1 i.
//
// Preconditions:
//   - when locked is set, [r.Start, r.End) of ip.IOTree is locked by t.
func (r *Reservation) Finish(t *sched.Task, ip *inode.Inode, locked bool) {
	if !r.given {
		panic(fmt.Sprintf("delalloc: Finish of %s", r.String()))
	}
	if locked {
		ip.IOTree.Unlock(t, r.Start, r.End)
	}
	ip.ReleaseExtents(t, r.End-r.Start, 0)
	ip.Settle(t)
	r.letSnapshot(t, ip)
	*r = Reservation{}
}

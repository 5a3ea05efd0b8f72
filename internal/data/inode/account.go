package inode

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/data/ordered"
	"btrlab/internal/format"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

// The reservation accounting of delayed allocation. One small write into a fresh page goes:
//
//	ReserveExtents      outstanding 1   metadata for 1 reserved (may sleep)
//	SetDelalloc hook    outstanding 2
//	ReleaseExtents      outstanding 1
//	AddOrdered          outstanding 2   writeback made an ordered extent
//	ClearDelalloc hook  outstanding 1
//	TakeOrdered         outstanding 0   completion; metadata goes to its transaction
//
// Models labs/reference 5.2, fs/btrfs/delalloc-space.c. Difference: an extent over bytes that are
// known to be overwritten in place (extentio.InPlace) is counted apart and reserves no insert, only
// the inode's update: nothing but a commit with everything flushed can turn them into COW bytes.

// MaxExtent is the longest file extent that writeback makes, in bytes. Models
// BTRFS_MAX_EXTENT_SIZE.
const MaxExtent = 128 << 20

// DelallocBits are the bits of a dirty range; they go together.
const DelallocBits = extentio.Delalloc | extentio.NoReserve | extentio.InPlace

// Extents is the number of file extents that n bytes may become. Models count_max_extents().
func Extents(n uint64) int64 { return int64((n + MaxExtent - 1) / MaxExtent) }

type account struct {
	outstanding atomic.Int64 // extents that need an insert
	inPlace     atomic.Int64 // extents that do not
	csumBytes   atomic.Int64 // data bytes whose checksums will be inserted
	delalloc    atomic.Int64 // bytes with Delalloc
	dataSurplus atomic.Int64 // data bytes to release, collected by the hooks under the tree's mutex

	// reserved and pending are metadata bytes held, and on their way; under Inode.mu.
	reserved, pending uint64
	// bytes of tree blocks reserved in the subvolume's qgroup; under Inode.mu
	quota uint64
	rsv   sched.Shared // all three
}

// Outstanding is the number of extents counted now, of both kinds.
func (ip *Inode) Outstanding() int64 { return ip.acct.outstanding.Load() + ip.acct.inPlace.Load() }

// DelallocBytes is the bytes of the inode that are dirty and have no place on disk yet.
func (ip *Inode) DelallocBytes() uint64 { return uint64(max(ip.acct.delalloc.Load(), 0)) }

// count adds n extents of a kind. Models btrfs_mod_outstanding_extents().
func (a *account) count(t *sched.Task, inPlace bool, n int64) {
	if t.Tracing() && n != 0 {
		t.Trace(sched.TraceEvent{Name: "btrfs_inode_mod_outstanding_extents", Val: n})
	}
	if inPlace {
		a.inPlace.Add(n)
	} else {
		a.outstanding.Add(n)
	}
}

// traced tells a tracer of n bytes more in the inode's metadata reservation.
func (a *account) traced(t *sched.Task, n int64) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_space_reservation", What: "delalloc", Val: n})
	}
}

// rsvSize converts the counters to metadata bytes. Models
// btrfs_calculate_inode_block_rsv_size().
func (ip *Inode) rsvSize() uint64 {
	a := &ip.acct
	o, p, c := a.outstanding.Load(), a.inPlace.Load(), a.csumBytes.Load()
	if o <= 0 && p <= 0 && c <= 0 {
		return 0
	}
	s := ip.FS.Space
	n := s.CalcUpdate(1)
	if items := max(o, 0) + ip.csumLeaves(max(c, 0)); items > 0 {
		n += s.CalcInsert(int(items))
	}
	return n
}

// csumLeaves is how many leaves of checksums n bytes need at most. Models
// btrfs_csum_bytes_to_leaves().
func (ip *Inode) csumLeaves(n int64) int64 {
	// at the smallest node size; larger nodes need fewer
	perLeaf := int64(4000 / ip.FS.Csum.Size() * format.SectorSize)
	return (n + perLeaf - 1) / perLeaf
}

// ReserveExtents counts the extents of n bytes and reserves their metadata: first a tree block each
// in the subvolume's qgroup, then the space. On error, ENOSPC or EDQUOT, nothing has changed.
// inPlace says that the bytes are known to be overwritten in place. With a mode other than NoFlush
// it may sleep. Models btrfs_delalloc_reserve_metadata().
func (ip *Inode) ReserveExtents(t *sched.Task, n uint64, inPlace bool, mode spaceinfo.FlushMode) error {
	nr := Extents(n)
	a := &ip.acct
	// The qgroup comes before the counters: an ordered extent that its flush completes leaves its
	// tree block to the extents that are counted, and ours has none yet.
	quota, err := ip.FS.Quota.ReserveMeta(t, ip.Root.ID, uint64(nr)*ip.FS.Space.NodeSize(), true, mode == spaceinfo.NoFlush)
	if err != nil {
		return err
	}
	// The counters go up before the space: a completion that releases surplus meanwhile must leave
	// ours.
	ip.mu.Lock(t)
	a.count(t, inPlace, nr)
	if !inPlace && ip.Sums() {
		a.csumBytes.Add(int64(n))
	}
	a.rsv.Write(t, nameReserved)
	a.quota += quota
	need := uint64(0)
	if size, have := ip.rsvSize(), a.reserved+a.pending; size > have {
		need = size - have
		a.pending += need
	}
	ip.mu.Unlock(t)
	if need == 0 {
		return nil
	}
	err = ip.FS.Space.Metadata().Reserve(t, need, mode)
	ip.mu.Lock(t)
	a.rsv.Write(t, nameReserved)
	a.pending -= need
	if err == nil {
		a.reserved += need
	} else {
		a.count(t, inPlace, -nr)
		if !inPlace && ip.Sums() {
			a.csumBytes.Add(-int64(n))
		}
	}
	ip.mu.Unlock(t)
	if err != nil {
		ip.Settle(t) // of the qgroup, too
		return err
	}
	a.traced(t, int64(need))
	return nil
}

// ReleaseExtents takes the temporary count of n bytes back once SetDelalloc has counted the extent
// itself, or because the bytes will not be dirtied; in that case released says how many bytes'
// checksums are not needed either. Models btrfs_delalloc_release_extents() and
// btrfs_delalloc_release_metadata(). Call Settle afterwards.
func (ip *Inode) ReleaseExtents(t *sched.Task, n uint64, inPlace bool, released uint64) {
	a := &ip.acct
	a.count(t, inPlace, -Extents(n))
	if !inPlace && released > 0 && ip.Sums() {
		a.csumBytes.Add(-int64(released))
	}
}

// AddOrdered makes an ordered extent for [start, start+n), which will be written to diskBytenr, and
// counts it: unless it is in place it needs an insert. The caller owes its submission.
//
// Preconditions:
//   - the extent lock of the range is held, and nothing ordered is in it.
func (ip *Inode) AddOrdered(t *sched.Task, typ ordered.Type, start, n uint64, diskBytenr format.Logical) *ordered.Extent {
	ip.IOTree.AssertLocked(t, start, start+n)
	ip.acct.count(t, typ == ordered.Nocow, 1)
	oe := ip.Ordered.Add(t, ip, typ, start, n, diskBytenr)
	if ip.FS.Quota.On() {
		ip.orderQuota(t, oe)
	}
	return oe
}

// AddCompressed is AddOrdered for bytes that are compressed, as kind says, to diskLen bytes: of the
// data space reserved for them, the rest is given back.
//
// Preconditions: as AddOrdered; diskLen bytes at diskBytenr were reserved by place.Whole.
func (ip *Inode) AddCompressed(t *sched.Task, start, n uint64, diskBytenr format.Logical, diskLen uint64, kind uint8) *ordered.Extent {
	ip.IOTree.AssertLocked(t, start, start+n)
	ip.acct.count(t, false, 1)
	oe := ip.Ordered.AddCompressed(t, ip, start, n, diskBytenr, diskLen, kind)
	if ip.FS.Quota.On() {
		ip.orderQuota(t, oe)
	}
	ip.FS.Space.Data().Release(t, n-diskLen)
	return oe
}

// SplitOrdered cuts an ordered extent that AddOrdered has made after its first n bytes and returns
// the rest, which the caller owes as well. It needs metadata for one extent more, which it takes
// without flushing: the range is locked, or was lately.
//
// Models btrfs_split_ordered_extent(). Difference: that counts the extent and reserves nothing for
// it.
func (ip *Inode) SplitOrdered(t *sched.Task, oe *ordered.Extent, n uint64) (*ordered.Extent, error) {
	rest, inPlace := oe.Len-n, oe.Type == ordered.Nocow
	if err := ip.ReserveExtents(t, rest, inPlace, spaceinfo.NoFlush); err != nil {
		return nil, err
	}
	ip.acct.count(t, inPlace, 1)
	ip.ReleaseExtents(t, rest, inPlace, rest)
	return ip.Ordered.Split(t, oe, n), nil
}

// TakeOrdered ends the count of AddOrdered: the extent, and its checksums, are about to go into the
// trees. The metadata bytes that were reserved for it are the caller's now, who gives them to its
// transaction handle or releases them. Models trans->block_rsv = &inode->block_rsv in
// btrfs_finish_one_ordered().
func (ip *Inode) TakeOrdered(t *sched.Task, oe *ordered.Extent) uint64 {
	ip.acct.count(t, oe.Type == ordered.Nocow, -1)
	if ip.Sums() {
		ip.acct.csumBytes.Add(-int64(oe.Len))
	}
	oe.QuotaMeta = ip.TakeQuota(t)
	return ip.TakeSurplus(t)
}

// Settle gives back what the counters no longer ask for: data bytes that hooks collected, and
// surplus metadata. It never sleeps; no io-tree mutex is held. Models btrfs_inode_rsv_release().
func (ip *Inode) Settle(t *sched.Task) {
	ip.FS.Quota.Free(t, ip.Root.ID, ip.TakeQuota(t), qgroup.MetaPrealloc)
	if n := ip.TakeSurplus(t); n > 0 {
		ip.FS.Space.Metadata().Release(t, n)
	}
}

// TakeSurplus is Settle that leaves the surplus metadata bytes to the caller.
func (ip *Inode) TakeSurplus(t *sched.Task) (surplus uint64) {
	a := &ip.acct
	if a.dataSurplus.Load() > 0 {
		if n := a.dataSurplus.Swap(0); n > 0 {
			ip.FS.Space.Data().Release(t, uint64(n))
		}
	}
	ip.mu.Lock(t)
	a.rsv.Write(t, nameReserved)
	if size := ip.rsvSize(); a.reserved+a.pending > size {
		surplus = min(a.reserved, a.reserved+a.pending-size)
		a.reserved -= surplus
	}
	ip.mu.Unlock(t)
	if surplus > 0 {
		a.traced(t, -int64(surplus))
	}
	return surplus
}

// checkAccount panics unless every counter is zero.
func (ip *Inode) checkAccount(t *sched.Task) {
	a := &ip.acct
	ip.mu.Lock(t)
	a.rsv.Read(t, nameReserved)
	r, p := a.reserved+a.quota, a.pending
	ip.mu.Unlock(t)
	if a.outstanding.Load() != 0 || a.inPlace.Load() != 0 || a.csumBytes.Load() != 0 || a.delalloc.Load() != 0 || a.dataSurplus.Load() != 0 || r != 0 || p != 0 {
		panic(fmt.Sprintf("inode: ino=%d at rest has outstanding=%d in_place=%d csum_bytes=%d delalloc=%d data_surplus=%d reserved=%d pending=%d", ip.Ino,
			a.outstanding.Load(), a.inPlace.Load(), a.csumBytes.Load(), a.delalloc.Load(), a.dataSurplus.Load(), r, p))
	}
}

// hooks keeps the counters in step with the io tree. They run under its mutex and touch atomics
// only.
type hooks struct{ ip *Inode }

// SetDelalloc models btrfs_set_delalloc_extent().
func (h hooks) SetDelalloc(t *sched.Task, start, end uint64, set, old extentio.Bits) {
	if set&extentio.Delalloc == 0 || old&extentio.Delalloc != 0 {
		return
	}
	n := end - start
	a := &h.ip.acct
	a.count(t, (set|old)&extentio.InPlace != 0, Extents(n))
	a.delalloc.Add(int64(n))
	h.ip.FS.delalloc.Add(int64(n))
}

// ClearDelalloc models btrfs_clear_delalloc_extent().
func (h hooks) ClearDelalloc(t *sched.Task, start, end uint64, clear, old extentio.Bits) {
	if clear&old&extentio.Delalloc == 0 {
		return
	}
	n := end - start
	a := &h.ip.acct
	inPlace := old&extentio.InPlace != 0
	a.count(t, inPlace, -Extents(n))
	a.delalloc.Add(-int64(n))
	h.ip.FS.delalloc.Add(-int64(n))
	if clear&extentio.ClearMetaResv != 0 && !inPlace && h.ip.Sums() {
		a.csumBytes.Add(-int64(n))
	}
	if clear&extentio.ClearDataResv != 0 && old&extentio.NoReserve == 0 {
		a.dataSurplus.Add(int64(n))
	}
}

// SplitDelalloc models btrfs_split_delalloc_extent().
func (h hooks) SplitDelalloc(t *sched.Task, start, at, end uint64, bits extentio.Bits) {
	h.ip.acct.count(t, bits&extentio.InPlace != 0, Extents(at-start)+Extents(end-at)-Extents(end-start))
}

// MergeDelalloc models btrfs_merge_delalloc_extent().
func (h hooks) MergeDelalloc(t *sched.Task, start, at, end uint64, bits extentio.Bits) {
	h.ip.acct.count(t, bits&extentio.InPlace != 0, Extents(end-start)-Extents(at-start)-Extents(end-at))
}

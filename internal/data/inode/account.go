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
//	LendOrdered         outstanding 1   completion; metadata is lent to its transaction
//	ReturnOrdered       outstanding 0   the items are in the trees
//
// Each reservation is for its bytes alone; what the counters ask for together is less, and Settle
// gives the rest back.
//
// Models labs/reference 5.2, fs/btrfs/delalloc-space.c.

// MaxExtent is the longest file extent that writeback makes, in bytes. Models
// BTRFS_MAX_EXTENT_SIZE.
const MaxExtent = 128 << 20

// Extents is the number of file extents that n bytes may become. Models count_max_extents().
func Extents(n uint64) int64 { return int64((n + MaxExtent - 1) / MaxExtent) }

type account struct {
	outstanding atomic.Int64 // extents that need an insert, or are written in place
	csumBytes   atomic.Int64 // data bytes whose checksums will be inserted
	delalloc    atomic.Int64 // bytes with Delalloc
	dataSurplus atomic.Int64 // data bytes to release, collected by the hooks under the tree's mutex
	cleared     atomic.Bool  // a hook has seen metadata's reservation go: SettleCleared
	noReserve   atomic.Bool  // MayNoReserve

	// metadata bytes held; under Inode.mu
	reserved uint64
	// bytes of tree blocks reserved in the subvolume's qgroup; under Inode.mu
	quota uint64
	// ordered extents whose completion has what was reserved for them, and their bytes with
	// checksums; under Inode.mu
	lent, lentSums int64
	rsv            sched.Shared // all of these
}

// Outstanding is the number of extents counted now.
func (ip *Inode) Outstanding() int64 { return ip.acct.outstanding.Load() }

// DelallocBytes is the bytes of the inode that are dirty and have no place on disk yet.
func (ip *Inode) DelallocBytes() uint64 { return uint64(max(ip.acct.delalloc.Load(), 0)) }

// MayNoReserve reports whether a range of the inode may have the bit NORESERVE; MarkNoReserve says
// that one is about to.
func (ip *Inode) MayNoReserve() bool { return ip.acct.noReserve.Load() }

// MarkNoReserve: see MayNoReserve.
func (ip *Inode) MarkNoReserve() { ip.acct.noReserve.Store(true) }

// count adds n extents. Models btrfs_mod_outstanding_extents().
func (a *account) count(t *sched.Task, n int64) {
	if t.Tracing() && n != 0 {
		t.Trace(sched.TraceEvent{Name: "btrfs_inode_mod_outstanding_extents", Val: n})
	}
	a.outstanding.Add(n)
}

// traced tells a tracer of n bytes more in the inode's metadata reservation.
func (a *account) traced(t *sched.Task, n int64) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_space_reservation", What: "delalloc", Val: n})
	}
}

// rsvSize converts the counters to metadata bytes, without so many extents and bytes of checksums.
// Models btrfs_calculate_inode_block_rsv_size().
func (ip *Inode) rsvSize(extents, csumBytes int64) uint64 {
	a := &ip.acct
	o, c := a.outstanding.Load()-extents, a.csumBytes.Load()-csumBytes
	if o <= 0 && c <= 0 {
		return 0
	}
	return ip.rsvFor(max(o, 0), max(c, 0))
}

// rsvFor is the metadata bytes of so many extents and the checksums of so many bytes, with the
// inode's item. Models calc_inode_reservations().
func (ip *Inode) rsvFor(extents, csumBytes int64) uint64 {
	s := ip.FS.Space
	n := s.CalcUpdate(1)
	if items := extents + ip.csumLeaves(csumBytes); items > 0 {
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

// ReserveExtents reserves metadata for the extents of n bytes, and counts them: first a tree block
// each in the subvolume's qgroup, then the space, then the counters. On error, ENOSPC or EDQUOT,
// nothing has changed. With a mode other than NoFlush it may sleep. Models
// btrfs_delalloc_reserve_metadata().
func (ip *Inode) ReserveExtents(t *sched.Task, n uint64, mode spaceinfo.FlushMode) error {
	nr, sums := Extents(n), int64(0)
	if ip.Sums() {
		sums = int64(n)
	}
	quota, err := ip.FS.Quota.ReserveMeta(t, ip.Root.ID, uint64(nr)*ip.FS.Space.NodeSize(), true, mode == spaceinfo.NoFlush)
	if err != nil {
		return err
	}
	need := ip.rsvFor(nr, sums)
	if err := ip.FS.Space.Metadata().Reserve(t, need, mode); err != nil {
		ip.FS.Quota.Free(t, ip.Root.ID, quota, qgroup.MetaPrealloc)
		return err
	}
	// The counters go up together with what is held: a completion that gives surplus back meanwhile
	// leaves ours.
	a := &ip.acct
	ip.mu.Lock(t)
	a.count(t, nr)
	a.csumBytes.Add(sums)
	a.rsv.Write(t, nameReserved)
	a.quota += quota
	a.reserved += need
	ip.mu.Unlock(t)
	a.traced(t, int64(need))
	return nil
}

// ReleaseExtents takes the temporary count of n bytes back once SetDelalloc has counted the extent
// itself, or because the bytes will not be dirtied; in that case released says how many bytes'
// checksums are not needed either. Models btrfs_delalloc_release_extents() and
// btrfs_delalloc_release_metadata(). Call Settle afterwards.
func (ip *Inode) ReleaseExtents(t *sched.Task, n uint64, released uint64) {
	a := &ip.acct
	a.count(t, -Extents(n))
	if released > 0 && ip.Sums() {
		a.csumBytes.Add(-int64(released))
	}
}

// AddOrdered makes an ordered extent for [start, start+n), which will be written to diskBytenr, and
// counts it. The caller owes its submission.
//
// Preconditions:
//   - the extent lock of the range is held, and nothing ordered is in it.
func (ip *Inode) AddOrdered(t *sched.Task, typ ordered.Type, start, n uint64, diskBytenr format.Logical) *ordered.Extent {
	ip.IOTree.AssertLocked(t, start, start+n)
	ip.acct.count(t, 1)
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
	ip.acct.count(t, 1)
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
	rest := oe.Len - n
	if err := ip.ReserveExtents(t, rest, spaceinfo.NoFlush); err != nil {
		return nil, err
	}
	ip.acct.count(t, 1)
	ip.ReleaseExtents(t, rest, rest)
	return ip.Ordered.Split(t, oe, n), nil
}

// LendOrdered lends the completion of an ordered extent what the inode has reserved for it:
// metadata bytes for its transaction handle, and tree blocks of the quota. ReturnOrdered takes back
// what is left, and ends the count of AddOrdered. Until then the extent is counted. Models
// trans->block_rsv = &inode->block_rsv in btrfs_finish_one_ordered(). Difference: there the handle
// has the whole reserve of the inode.
func (ip *Inode) LendOrdered(t *sched.Task, oe *ordered.Extent) uint64 {
	a := &ip.acct
	ip.mu.Lock(t)
	a.lent++
	a.lentSums += ip.sumsOf(oe)
	a.rsv.Write(t, nameReserved)
	n := a.takeAbove(ip.rsvSize(a.lent, a.lentSums))
	ip.mu.Unlock(t)
	oe.QuotaMeta = ip.TakeQuota(t)
	return n
}

// ReturnOrdered takes rest of what LendOrdered lent back and ends the count of AddOrdered: the
// extent, and its checksums, are in the trees, or given up. What no extent asks for any more is
// released. Models the end of the count in btrfs_remove_ordered_extent().
func (ip *Inode) ReturnOrdered(t *sched.Task, oe *ordered.Extent, rest uint64) {
	a := &ip.acct
	ip.mu.Lock(t)
	a.count(t, -1)
	a.csumBytes.Add(-ip.sumsOf(oe))
	a.lent--
	a.lentSums -= ip.sumsOf(oe)
	a.rsv.Write(t, nameReserved)
	a.reserved += rest
	ip.mu.Unlock(t)
	ip.Settle(t)
}

// sumsOf is the bytes of oe that have checksums.
func (ip *Inode) sumsOf(oe *ordered.Extent) int64 {
	if ip.Sums() {
		return int64(oe.Len)
	}
	return 0
}

// takeAbove takes what is reserved above size. Inode.mu is held.
func (a *account) takeAbove(size uint64) (surplus uint64) {
	if a.reserved > size {
		surplus = a.reserved - size
		a.reserved = size
	}
	return surplus
}

// Settle gives back what the counters no longer ask for: surplus metadata, and data bytes that
// hooks collected. It never sleeps; no io-tree mutex is held. Models btrfs_inode_rsv_release().
func (ip *Inode) Settle(t *sched.Task) {
	ip.FS.Quota.Free(t, ip.Root.ID, ip.TakeQuota(t), qgroup.MetaPrealloc)
	if n := ip.takeMeta(t); n > 0 {
		ip.FS.Space.Metadata().Release(t, n)
		ip.acct.traced(t, -int64(n))
	}
	ip.SettleData(t)
}

// SettleCleared is Settle if delalloc was cleared, with its reservation, since the last one. Linux
// does that in the hook of the io tree, btrfs_clear_delalloc_extent().
func (ip *Inode) SettleCleared(t *sched.Task) {
	if a := &ip.acct; a.cleared.Load() && a.cleared.Swap(false) {
		ip.Settle(t)
	}
}

// SettleData gives back the data bytes that hooks collected: the part of Settle that Linux does
// when the bits are cleared.
func (ip *Inode) SettleData(t *sched.Task) {
	if a := &ip.acct; a.dataSurplus.Load() > 0 {
		if n := a.dataSurplus.Swap(0); n > 0 {
			ip.FS.Space.Data().Release(t, uint64(n))
		}
	}
}

// takeMeta leaves the surplus metadata bytes to the caller.
func (ip *Inode) takeMeta(t *sched.Task) (surplus uint64) {
	a := &ip.acct
	ip.mu.Lock(t)
	a.rsv.Write(t, nameReserved)
	surplus = a.takeAbove(ip.rsvSize(0, 0))
	ip.mu.Unlock(t)
	return surplus
}

// TakeSurplus is Settle that leaves the surplus metadata bytes to the caller.
func (ip *Inode) TakeSurplus(t *sched.Task) uint64 {
	ip.SettleData(t)
	n := ip.takeMeta(t)
	if n > 0 {
		ip.acct.traced(t, -int64(n))
	}
	return n
}

// checkAccount panics unless every counter is zero.
func (ip *Inode) checkAccount(t *sched.Task) {
	a := &ip.acct
	ip.mu.Lock(t)
	a.rsv.Read(t, nameReserved)
	r := a.reserved + a.quota + uint64(a.lent)
	ip.mu.Unlock(t)
	if a.outstanding.Load() != 0 || a.csumBytes.Load() != 0 || a.delalloc.Load() != 0 || a.dataSurplus.Load() != 0 || r != 0 {
		panic(fmt.Sprintf("inode: ino=%d at rest has outstanding=%d csum_bytes=%d delalloc=%d data_surplus=%d reserved=%d", ip.Ino,
			a.outstanding.Load(), a.csumBytes.Load(), a.delalloc.Load(), a.dataSurplus.Load(), r))
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
	a.count(t, Extents(n))
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
	a.count(t, -Extents(n))
	a.delalloc.Add(-int64(n))
	h.ip.FS.delalloc.Add(-int64(n))
	if clear&extentio.ClearMetaResv != 0 {
		if h.ip.Sums() {
			a.csumBytes.Add(-int64(n))
		}
		a.cleared.Store(true)
	}
	if clear&extentio.ClearDataResv != 0 && old&extentio.NoReserve == 0 {
		a.dataSurplus.Add(int64(n))
	}
}

// SplitDelalloc models btrfs_split_delalloc_extent().
func (h hooks) SplitDelalloc(t *sched.Task, start, at, end uint64, bits extentio.Bits) {
	h.ip.acct.count(t, Extents(at-start)+Extents(end-at)-Extents(end-start))
}

// MergeDelalloc models btrfs_merge_delalloc_extent().
func (h hooks) MergeDelalloc(t *sched.Task, start, at, end uint64, bits extentio.Bits) {
	h.ip.acct.count(t, Extents(end-start)-Extents(at-start)-Extents(end-at))
}

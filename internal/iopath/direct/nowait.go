package direct

import (
	"errors"

	"btrlab/internal/data/extentmap"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/place"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// The steps of a NOWAIT request, in the place of those that wait. What they try and where they
// sleep all the same is the plan's: each NOWAIT switch in its set is a change of a kernel between
// 4.13 and 6.1, eight of them those of seed 000.
//
//	tryFile          i_rwsem
//	checkNowait      4.13, 5.8: may the range be written in place? the trees are asked a first time
//	                 a page of the range in memory is EAGAIN
//	asyncExtents     D0
//	reserveNowait    D7
//	tryRange         D1
//	placeNowait      D2 to D5: the trees are asked, once more or for the first time
//
// Model: labs/reference 3.5, 3.6. Differences: metadata is reserved before the range is locked; a
// page of the range is EAGAIN in every era.

// mayBlock says that the step sleeps if what it wants is busy, although the request is NOWAIT.
func mayBlock(t *sched.Task, step string) {
	t.At(step)
	t.Count(sched.CountMayBlock)
}

// tryFile is lockFile of a NOWAIT write.
func (w *write) tryFile(t *sched.Task) error {
	if w.pl.Lock.Range() {
		return kiocb.AgainRangeLock
	}
	if w.pl.Lock == policy.LockShared {
		if !w.ip.TryRLock(t) {
			return kiocb.AgainInode
		}
		if f := w.facts(t, false); f.Inside() {
			return nil
		}
		w.ip.RUnlock(t)
	}
	if !w.ip.TryLock(t) {
		return kiocb.AgainInode
	}
	w.planLocked(t)
	return nil
}

// check is how the plan asks whether a write may go in place.
func (w *write) check() fstree.NocowCheck {
	pl := &w.pl
	return fstree.NocowCheck{
		Nowait: pl.Has(policy.NowaitTryTree), OwnPath: !pl.Has(policy.NocowPathReuse),
		KeepPath: !pl.Has(policy.NocowPathFree), KeepLeaf: !pl.Has(policy.NocowEarlyRelease),
		Spin: w.nowait && pl.Wrong(policy.WrongNowaitSpin), WaitCsums: w.nowait && pl.Wrong(policy.WrongNowaitCsumSearch),
	}
}

// checkNowait asks what a NOWAIT write of an era asks before it begins. Models the NOWAIT part of
// btrfs_file_write_iter(), later btrfs_write_check().
func (w *write) checkNowait(t *sched.Task) error {
	end := w.pos + uint64(len(w.src))
	switch {
	case w.pl.MustCOW:
		return kiocb.AgainMustCOW
	case !w.pl.Has(policy.NowaitPastEOF) && end > w.isize:
		return kiocb.AgainEOF
	case w.pl.Has(policy.NowaitCheckOnce) || misaligned(w.pos, len(w.src)):
		return nil
	}
	if !w.pl.Has(policy.NowaitCheckTry) {
		mayBlock(t, "nocow_check")
	}
	if !w.pl.Has(policy.NowaitTryTree) {
		mayBlock(t, "nocow_check")
	}
	got, err := w.env.Read.Place.CheckNocow(t, w.ip, w.pos, end, w.check(), w.pl.Has(policy.NowaitCheckTry))
	if err == nil && (got == w.pos || w.pl.Has(policy.NowaitCheckWhole) && got < end) {
		err = kiocb.AgainCOW
	}
	if err == nil && w.pl.Wrong(policy.WrongNowaitSnapshotKept) && w.ip.Root.SnapshotLock.TryWrite(t) {
		w.ip.Root.SnapshotLock.Disown(t)
	}
	return err
}

// inMemory answers EAGAIN when a page of the range is in memory. Models filemap_range_has_page() in
// generic_file_direct_write(), later kiocb_invalidate_pages().
func inMemory(ip *inode.Inode, start, end uint64) error {
	if _, cached := ip.Pages.NextPage(start>>pagecache.PageShift, end>>pagecache.PageShift); cached {
		return kiocb.AgainInMemory
	}
	return nil
}

// dirty reports whether a page of the range is dirty or under writeback. Models
// filemap_range_needs_writeback().
func dirty(t *sched.Task, ip *inode.Inode, start, end uint64) bool {
	from, to := start>>pagecache.PageShift, (end+pagecache.PageSize-1)>>pagecache.PageShift
	_, d := ip.Pages.NextDirty(t, from, to)
	if !d {
		_, d = ip.Pages.NextWriteback(t, from, to)
	}
	return d
}

// memory answers EAGAIN when the request needs memory that only a wait would free; before D6 it
// waits.
func (w *write) memory(t *sched.Task) error {
	if !w.pl.Has(policy.NowaitContext) {
		mayBlock(t, "allocate")
		t.Count(sched.CountMemoryWait)
	}
	if w.env.Reclaim == nil {
		return nil
	}
	if w.pl.Has(policy.NowaitContext) {
		return kiocb.AgainContext
	}
	w.env.Reclaim(t)
	return nil
}

// asyncExtents looks at the pages of the range once more, now that nothing but its lock is missing:
// a mapping, or a reader, may have brought some in. Only an inode that was compressed is asked: the
// first writeback of such a page may have only handed it to compression. Models the part of
// btrfs_dio_iomap_begin() about BTRFS_INODE_HAS_ASYNC_EXTENT.
func (w *write) asyncExtents(t *sched.Task, start, end uint64) error {
	if !w.ip.HasAsyncExtent() || inMemory(w.ip, start, end) == nil {
		return nil
	}
	if !w.pl.Has(policy.NowaitAsyncExt) {
		mayBlock(t, "async_extents")
		t.Count(sched.CountPageFlush)
		return flushCached(t, w.env, w.ip, start, end)
	}
	if dirty(t, w.ip, start, end) {
		return kiocb.AgainDirty
	}
	return nil
}

// reserveNowait promises the space of [start, end). A write that may only go in place needs no data
// space; that of 4.13, which has asked about its first extent only, reserves some all the same.
func (w *write) reserveNowait(t *sched.Task, start, end uint64) error {
	mode := spaceinfo.NoFlush
	if !w.pl.Has(policy.NowaitNoFlush) {
		mayBlock(t, "reserve")
		t.Count(sched.CountReserveFlush)
		mode = spaceinfo.FlushAll
	}
	data := false
	if !w.pl.Has(policy.NowaitCheckWhole) {
		mayBlock(t, "reserve")
		data = w.rsv.ReserveData(t, w.ip, start, end, spaceinfo.FlushData) == nil
	}
	if !w.rsv.NoSnapshot(t, w.ip) {
		w.rsv.Release(t, w.ip)
		return kiocb.AgainSnapshot
	}
	if !data {
		w.rsv.Nocow(start, end)
	}
	return w.metadataNowait(t, mode)
}

// metadataNowait reserves metadata and says what a shortage means: labs/reference 5.5.
func (w *write) metadataNowait(t *sched.Task, mode spaceinfo.FlushMode) error {
	err := w.rsv.ReserveMetadata(t, w.ip, mode)
	if err == nil {
		return nil
	}
	w.rsv.Release(t, w.ip)
	quota := errors.Is(err, errno.EDQUOT)
	switch {
	case w.env.Policy().OnShortage(policy.DirectMetadata, w.pl.Has(policy.NowaitNoFlush), quota) != policy.TryAgain:
		return err
	case quota:
		return kiocb.AgainQuota
	}
	return kiocb.AgainMetadata
}

// tryRange is lockRange that does not wait: with D1 a busy range is EAGAIN, and so is an ordered
// extent in it.
func tryRange(t *sched.Task, ip *inode.Inode, pl *policy.DirectPlan, start, end uint64) error {
	if !pl.Has(policy.NowaitTryRange) {
		mayBlock(t, "lock_extent")
		t.Count(sched.CountRangeWait)
		lockRange(t, ip, pl, start, end)
		return nil
	}
	if pl.Has(policy.DIOLocked) && !ip.IOTree.TryLockBits(t, start, end, extentio.DIOLocked) {
		return kiocb.AgainExtent
	}
	err := kiocb.AgainExtent
	if ip.IOTree.TryLock(t, start, end) {
		oe := ip.Ordered.First(t, start, end)
		if oe == nil {
			return nil
		}
		oe.Put(t)
		ip.IOTree.Unlock(t, start, end)
		err = kiocb.AgainOrdered
	}
	if pl.Has(policy.DIOLocked) {
		ip.IOTree.UnlockDIO(t, start, end)
	}
	return err
}

// placeNowait is place of a NOWAIT write, which may only go in place, and from 5.17 on only into
// one extent.
func (w *write) placeNowait(t *sched.Task, start, end uint64) (place.Extent, error) {
	t.At("place")
	if !w.pl.Has(policy.NowaitTryTree) {
		mayBlock(t, "place")
	}
	x, ok, err := w.env.Read.Place.OverwriteNowait(t, w.ip, start, end, w.check(), w.pl.Has(policy.NocowAskAlways))
	switch {
	case err != nil:
		return x, err
	case !ok && w.rsv.HasData(): // 4.13, beyond the extent that was checked
		mayBlock(t, "place")
		return w.placeBlocking(t, start, end)
	case !ok:
		return x, kiocb.AgainCOW
	case w.pl.Has(policy.NowaitOneExtent) && x.Start+x.Len < w.pos+uint64(len(w.src)-w.done):
		return x, kiocb.AgainExtents
	}
	return x, nil
}

// lock locks [start, end) for a read and finds what is at start.
func (r *read) lock(t *sched.Task, start, end uint64) (m extentmap.Map, err error) {
	if !r.nowait {
		lockRange(t, r.ip, &r.pl, start, end)
		m, err = r.env.Read.Place.At(t, r.ip, start)
		return m, err
	}
	if err := tryRange(t, r.ip, &r.pl, start, end); err != nil {
		return m, err
	}
	if r.pl.Has(policy.NowaitTryTree) {
		m, err = r.env.Read.Place.TryAt(t, r.ip, start)
	} else {
		mayBlock(t, "place")
		m, err = r.env.Read.Place.At(t, r.ip, start)
	}
	if err == nil && r.pl.Has(policy.NowaitOneExtent) && m.End < min(end, format.AlignUp(r.ip.Size(t), format.SectorSize)) {
		err = kiocb.AgainExtents
	}
	if err != nil {
		r.ip.IOTree.Unlock(t, start, end)
		if r.pl.Has(policy.DIOLocked) {
			r.ip.IOTree.UnlockDIO(t, start, end)
		}
	}
	return m, err
}

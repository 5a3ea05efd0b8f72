package direct

import (
	"errors"

	"btrlab/internal/data/delalloc"
	"btrlab/internal/data/extentmap"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/place"
	"btrlab/internal/data/zero"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// write is the state of one direct write between its steps.
type write struct {
	env    *iopath.Env
	ip     *inode.Inode
	src    []byte
	faults iopath.Faulter // nil: all of src is there
	pl     policy.DirectPlan

	pos    uint64      // where the next byte goes
	append bool        // pos is i_size under the lock
	nowait bool        // a step that would sleep is EAGAIN
	isize  uint64      // i_size before the write, under the lock
	done   int         // bytes of the source that are on their way
	held   iopath.Held // the byte range

	rsv delalloc.Reservation // the extent at hand
	io  *request
	rq  kiocb.Request
}

// Write writes src at rq.Pos, or at the end of the file, and returns when the device has it: how
// many bytes were written. ENOTBLK says that the rest must go through the page cache, EOPNOTSUPP
// that the flags are not known here, EIOCBQUEUED that rq.Done will be told the rest: the device has
// it all, and no lock of the file is held for it. With NOWAIT a step that would sleep is a
// kiocb.Again, and with no byte written nothing has changed. With any other error nothing is
// promised about the bytes of the range. A durable write (DSync) without an error is synced; after
// an error the caller syncs the bytes that were written, if there are any.
//
// Models fs/btrfs/direct-io.c:btrfs_direct_write(); labs/reference 3.2, 3.3, 3.5, 3.6.
func Write(t *sched.Task, env *iopath.Env, ip *inode.Inode, rq kiocb.Request, src iopath.Source) (int, error) {
	if rq.Flags&^(kiocb.Direct|kiocb.Append|kiocb.DSync|kiocb.Nowait) != 0 {
		return 0, errno.EOPNOTSUPP
	}
	if len(src.Buf) == 0 {
		return 0, nil
	}
	w := write{env: env, ip: ip, src: src.Buf, faults: src.Faults, pos: rq.Pos, append: rq.Flags&kiocb.Append != 0,
		nowait: rq.Flags&kiocb.Nowait != 0, rq: rq}
	if err := w.lockFile(t); err != nil {
		return 0, err
	}
	at := w.pos
	err := w.checkWrite(t)
	switch {
	case err != nil:
	case w.pl.Unaligned != policy.UnalignedBuffered:
		err = w.unaligned(t)
	default:
		err = w.transfer(t)
	}
	w.unlockFile(t)
	if rq.Wrote != nil && w.done > 0 {
		*rq.Wrote = at
	}
	if err == nil && !w.pl.SyncHeld {
		w.done, err = rq.Durable(t, w.done, nil)
	}
	if w.pl.Has(policy.NowaitBuffered) && errors.Is(err, errno.ENOTBLK) {
		err = kiocb.AgainBuffered
	}
	return w.done, err
}

// facts is the write as a plan sees it, with i_size as it is now.
func (w *write) facts(t *sched.Task, held bool) policy.Facts {
	w.isize = w.ip.Size(t)
	if w.append {
		w.pos = w.isize // models generic_write_checks()
	}
	return policy.Facts{Start: w.pos, End: w.pos + uint64(len(w.src)), ISize: w.isize, NoDataSum: !w.ip.Sums(), InodeHeld: held,
		Nowait: w.nowait, MayNocow: w.ip.MayNocow(), MayPrivs: !w.ip.NoSec(), SubBlock: w.subBlock()}
}

// lockFile takes the locks of the plan. A plan that does without the exclusive lock holds only
// while the write ends inside EOF; a write that finds the file shorter under its lock starts again
// with the exclusive one.
func (w *write) lockFile(t *sched.Task) error {
	t.Spend(cost.Syscall, 1)
	f, p := w.facts(t, false), w.env.Policy()
	if f.Start > format.MaxFileSize || uint64(len(w.src)) > format.MaxFileSize-f.Start {
		return errno.EFBIG
	}
	w.pl.ForWrite(&f, p)
	if w.nowait {
		return w.tryFile(t)
	}
	w.held.Lock(t, w.ip, &w.pl.Guard, f.Start, f.End, w.stillInside, w.planLocked)
	return nil
}

// stillInside reports whether the write ends inside EOF under the lock that it has now.
func (w *write) stillInside(t *sched.Task) bool {
	f := w.facts(t, false)
	return f.Inside()
}

// planLocked makes the plan of a write that has i_rwsem for itself.
func (w *write) planLocked(t *sched.Task) (end uint64) {
	w.ip.AssertLocked(t)
	f := w.facts(t, true)
	w.pl.ForWrite(&f, w.env.Policy())
	return f.End
}

func (w *write) unlockFile(t *sched.Task) { w.held.Unlock(t, w.ip, w.pl.Lock) }

// checkWrite does what comes before the first byte: capabilities, time stamps, zeros between the
// old end of file and the write, and the questions that send the whole request to the page cache.
// Models btrfs_write_check() and check_direct_IO().
func (w *write) checkWrite(t *sched.Task) error {
	if uint64(len(w.src)) > format.MaxFileSize-w.pos {
		return errno.EFBIG // an append to a file that has grown meanwhile
	}
	if w.nowait {
		if err := w.checkNowait(t); err != nil {
			return err
		}
	}
	if misaligned(w.pos, len(w.src)) && w.pl.Unaligned == policy.UnalignedBuffered || w.ip.Sums() && w.pl.Has(policy.DIOCsumBuffered) {
		return errno.ENOTBLK
	}
	if w.pl.Unaligned != policy.UnalignedBuffered && w.pos+uint64(len(w.src)) > w.isize {
		return errno.ENOTBLK
	}
	if err := w.env.RemovePrivs(t, w.ip, w.pl.Has(policy.NowaitTryPrivs)); err != nil {
		return err
	}
	w.ip.Touch(t, w.env.Now())
	if w.pos > w.isize {
		if w.pl.DrainDirect {
			if w.nowait && w.ip.DIO.Load() > 0 {
				return kiocb.AgainDirect
			}
			w.ip.DIOWait(t)
		}
		if w.pl.Has(policy.NowaitTryExpand) {
			return zero.TryExpand(t, w.ip, w.isize, w.pos+uint64(len(w.src)))
		}
		if w.nowait {
			mayBlock(t, "expand")
		}
		return zero.Expand(t, w.env.Read, w.ip, w.isize, w.pos+uint64(len(w.src)))
	}
	return nil
}

// misaligned reports whether a request is not made of whole sectors.
func misaligned(pos uint64, n int) bool { return (pos|uint64(n))&(format.SectorSize-1) != 0 }

// transfer moves the bytes, in passes. A pass ends where the source is not there; it is faulted in
// with no ordered extent in hand and, unless a plan says so, i_rwsem still held: a truncate or
// another append in between would move the place of the rest. The fault may bring pages of the
// range itself into memory, which the next pass removes: without progress the rest goes through the
// page cache. Models the loop of btrfs_direct_write(); labs/reference 3.3, step 5.
func (w *write) transfer(t *sched.Task) error {
	if w.nowait && w.ip.Sums() && w.pl.Has(policy.NowaitCsumCopy) {
		return kiocb.AgainCopy
	}
	for left := -1; ; {
		err := w.pass(t)
		if !errors.Is(err, errno.EFAULT) {
			return err
		}
		n := len(w.src) - w.done
		if n == left {
			return errno.ENOTBLK
		}
		left = n
		if w.pl.Has(policy.NowaitTryFault) {
			return kiocb.AgainFault
		}
		if w.nowait {
			mayBlock(t, "fault_in")
		}
		if w.pl.Wrong(policy.WrongChecksAgain) {
			if err := w.checkAgain(t); err != nil {
				return err
			}
		} else {
			w.faults.FaultIn(t, w.done, len(w.src))
		}
	}
}

// checkAgain faults the source in without i_rwsem and does what comes before the first byte again.
// An append takes the end of the file as it is now.
func (w *write) checkAgain(t *sched.Task) error {
	w.unlockFile(t)
	w.faults.FaultIn(t, w.done, len(w.src))
	pos, src := w.pos, w.src
	w.src = w.src[w.done:]
	err := w.lockFile(t)
	if err == nil {
		err = w.checkWrite(t)
	}
	w.src = src
	if !w.append {
		w.pos = pos
	}
	return err
}

// pass moves what it can of the rest, extent by extent, and waits for it. EFAULT says that the
// source ends there for now. Models __iomap_dio_rw().
func (w *write) pass(t *sched.Task) error {
	start, end := w.pos, w.pos+uint64(len(w.src)-w.done)
	if err := w.cleanCache(t, start, end); err != nil {
		return err
	}
	w.beginIO(t)
	var err error
	for err == nil && w.done < len(w.src) {
		err = w.extent(t)
	}
	return w.endIO(t, start, end, err)
}

// cleanCache takes the pages of [start, end) out of memory. Models kiocb_invalidate_pages().
func (w *write) cleanCache(t *sched.Task, start, end uint64) error {
	if w.nowait {
		if err := inMemory(w.ip, start, end); err != nil {
			return err
		}
		return w.memory(t)
	}
	if err := flushCached(t, w.env, w.ip, start, end); err != nil {
		return err
	}
	if !w.ip.Pages.Invalidate(t, start>>pagecache.PageShift, end>>pagecache.PageShift) {
		return errno.ENOTBLK
	}
	return nil
}

// flushCached writes back the dirty pages of [start, end) and waits for the device. Models
// kiocb_write_and_wait().
func flushCached(t *sched.Task, env *iopath.Env, ip *inode.Inode, start, end uint64) error {
	if ip.Pages.Pages() == 0 {
		return nil
	}
	return env.Writeback.FlushPages(t, ip, start, end)
}

// beginIO counts the write among the I/Os in flight and, with LockInodeDrop, lets i_rwsem go.
// Models inode_dio_begin().
func (w *write) beginIO(t *sched.Task) {
	rq := w.rq
	if w.pl.ForceWait {
		rq.Done = nil
	}
	w.io = newRequest(t, w.env, w.ip, true, rq)
	if w.pl.Lock == policy.LockInodeDrop {
		w.ip.Unlock(t)
	}
}

// endIO ends beginIO: it waits for the bios, unless the rest is their ends'. The count goes down
// before i_rwsem is taken again: a truncate that waits for it holds i_rwsem. A write that stopped
// on its way is waited for: its caller goes on from there.
func (w *write) endIO(t *sched.Task, start, end uint64, err error) error {
	// A sync write waits for the device also under NOWAIT; one that stopped on its way should not
	// have to.
	if w.nowait && err == nil {
		t.EndNowait()
		defer t.BeginNowait()
	}
	w.done, err = w.io.submitted(t, start, end, w.done, err)
	if w.pl.Lock == policy.LockInodeDrop {
		w.ip.Lock(t)
	}
	if err == nil {
		err = w.syncHeld(t)
	}
	return err
}

// syncHeld ends a durable write with i_rwsem held, if the plan says so, and leaves word of that.
// Models the call of iomap_dio_complete() in btrfs_direct_write().
func (w *write) syncHeld(t *sched.Task) (err error) {
	if !w.pl.SyncHeld || w.done == 0 || w.rq.Flags&kiocb.DSync == 0 {
		return nil
	}
	switch w.pl.SyncMark {
	case policy.MarkTask:
		t.Journal = iopath.DirectSync{}
	case policy.MarkFile:
		w.rq.File.HoldsInode(true)
		defer w.rq.File.HoldsInode(false)
	}
	w.done, err = w.rq.Durable(t, w.done, nil)
	return err
}

// extent starts the I/O of the next extent. Models btrfs_dio_iomap_begin() and
// btrfs_dio_submit_io() for a write.
func (w *write) extent(t *sched.Task) error {
	start := w.pos
	end := min(start+uint64(len(w.src)-w.done), start+inode.MaxExtent)
	if w.nowait && w.env.Lab.Nowait != nil {
		return w.startOther(t, start, end)
	}
	if !w.pl.Wrong(policy.WrongDirectReserveLate) {
		if err := w.reserve(t, start, end); err != nil {
			return err
		}
	}
	if err := w.lockExtent(t, start, end); err != nil {
		w.rsv.Release(t, w.ip)
		return err
	}
	var x place.Extent
	var err error
	if w.pl.Wrong(policy.WrongDirectReserveLate) {
		err = w.reserve(t, start, end)
	}
	if err == nil {
		x, err = w.place(t, start, end)
	}
	if err != nil {
		w.unlockExtent(t, start, end)
		w.rsv.Release(t, w.ip)
		return err
	}
	oe := w.order(t, x)
	w.unlockExtent(t, start, end)
	n, err := w.pin(t, oe)
	if n > 0 {
		w.io.submitWrite(t, oe, w.src[w.done:w.done+n])
		w.pos, w.done = w.pos+uint64(n), w.done+n
	}
	return err
}

// pin finds out how much of the source of oe is there: n bytes, whole sectors. EFAULT says that the
// rest is not, which has been given up: oe ends with its first n bytes, or with an error if n is 0.
// Without it a task that faults the rest in could wait for it.
//
// Models bio_iov_iter_get_pages() without faults and btrfs_extract_ordered_extent(); labs/reference
// 9.2, numbers 12 and 15.
func (w *write) pin(t *sched.Task, oe *ordered.Extent) (n int, err error) {
	all := int(oe.Len)
	if w.faults == nil {
		return all, nil
	}
	if !w.pl.Has(policy.DIONofault) {
		if err = w.fault(t, oe); err != nil {
			all = 0
		}
		return all, err
	}
	n = w.faults.Present(w.done, w.done+all) &^ (format.SectorSize - 1)
	if n == all {
		return n, nil
	}
	rest := oe
	if n > 0 && !w.pl.Wrong(policy.WrongOrderedWhole) {
		if rest, err = w.ip.SplitOrdered(t, oe, uint64(n)); err != nil {
			rest, n = oe, 0
		}
	}
	w.giveUp(t, rest, uint64(all-n))
	return n, errno.EFAULT
}

// fault touches the source of oe, which may sleep.
func (w *write) fault(t *sched.Task, oe *ordered.Extent) error {
	all := int(oe.Len)
	for n := 0; n < all; {
		k := w.faults.FaultIn(t, w.done+n, w.done+all)
		if k == 0 {
			w.giveUp(t, oe, oe.Len)
			return errno.ENOTBLK
		}
		n += k
	}
	return nil
}

// giveUp ends n bytes of oe that no bio will write.
func (w *write) giveUp(t *sched.Task, oe *ordered.Extent, n uint64) {
	if oe.Done(t, n, errno.EFAULT) {
		t.Discharge(oe)
		w.env.Finish.Complete(t, oe)
	}
}

// reserve promises the space of [start, end) before its range is locked. Without data space it may
// still be written in place: place decides. Models step b of btrfs_dio_iomap_begin(). Difference:
// the metadata too, which the kernel reserves under the range's lock.
func (w *write) reserve(t *sched.Task, start, end uint64) error {
	t.Spend(cost.Reserve, 1)
	if w.nowait {
		if err := w.asyncExtents(t, start, end); err != nil {
			return err
		}
		return w.reserveNowait(t, start, end)
	}
	if err := w.rsv.ReserveData(t, w.ip, start, end, spaceinfo.FlushData); err != nil {
		if !w.ip.MayNocow() || w.pl.Wrong(policy.WrongDirectNeedsSpace) || !w.rsv.NoSnapshot(t, w.ip) {
			return err
		}
		w.rsv.Nocow(start, end)
	}
	err := w.rsv.ReserveMetadata(t, w.ip, spaceinfo.FlushAll)
	if err != nil {
		w.rsv.Release(t, w.ip)
	}
	return err
}

// lockExtent locks [start, end) with no ordered extent in it. The answer is ENOTBLK, with nothing
// locked, when a page has come into the range: to remove it here could wait for a task that waits
// for this range. Models lock_extent_direct().
func (w *write) lockExtent(t *sched.Task, start, end uint64) error {
	if w.nowait {
		if err := tryRange(t, w.ip, &w.pl, start, end); err != nil {
			return err
		}
	} else {
		lockRange(t, w.ip, &w.pl, start, end)
	}
	if _, cached := w.ip.Pages.NextPage(start>>pagecache.PageShift, end>>pagecache.PageShift); !cached || w.pl.Wrong(policy.WrongDirectNoRecheck) {
		return nil
	}
	if w.pl.Wrong(policy.WrongDirectClearsDelalloc) { // as unlock_err of btrfs_get_blocks_direct()
		w.ip.IOTree.Change(t, start, end, extentio.Delalloc, 0)
	}
	w.unlockExtent(t, start, end)
	if w.pl.Has(policy.NowaitTryRange) {
		return kiocb.AgainCameIn
	}
	return errno.ENOTBLK
}

func (w *write) unlockExtent(t *sched.Task, start, end uint64) {
	bits := extentio.Locked
	if w.pl.Has(policy.DIOLocked) {
		bits |= extentio.DIOLocked
	}
	w.ip.IOTree.Clear(t, start, end, bits)
}

// lockRange takes the extent lock of [start, end) while nothing ordered is in it, and before it the
// bit of direct I/O where the plan has one, which is kept during waits for ordered extents: their
// completion does not take it.
func lockRange(t *sched.Task, ip *inode.Inode, pl *policy.DirectPlan, start, end uint64) {
	if pl.Has(policy.DIOLocked) {
		ip.IOTree.LockDIO(t, start, end)
	}
	ip.LockAndFlushOrdered(t, start, end)
}

// place finds where the first piece of [start, end) goes: at most the extent that is there now.
// Models btrfs_get_blocks_direct_write(); labs/reference 3.3.
func (w *write) place(t *sched.Task, start, end uint64) (place.Extent, error) {
	if w.nowait {
		return w.placeNowait(t, start, end)
	}
	return w.placeBlocking(t, start, end)
}

func (w *write) placeBlocking(t *sched.Task, start, end uint64) (place.Extent, error) {
	pl := w.env.Read.Place
	m, err := pl.At(t, w.ip, start)
	if err != nil {
		return place.Extent{}, err
	}
	if m.Kind == extentmap.Inline || m.Compression != format.CompressNone {
		return place.Extent{}, errno.ENOTBLK
	}
	end = min(end, m.End)
	var x place.Extent
	if w.ip.MayNocow() && w.rsv.NoSnapshot(t, w.ip) { // until x is ordered
		var ok bool
		if x, ok, err = pl.Overwrite(t, w.ip, start, end); ok || err != nil {
			return x, err
		}
	}
	if w.pl.DrainDirect && m.Kind != extentmap.Hole && w.ip.Nocow() {
		return x, errno.ENOTBLK // sectors may be on their way to what is there
	}
	if !w.rsv.HasData() {
		return x, errno.ENOSPC // as in Linux also where it was a quota
	}
	return pl.Allocate(t, w.ip, start, end)
}

// order makes the ordered extent of x, which owns the promised space from then on, and lets i_size
// follow: under the range's lock, so that a reader that waits for the range finds the new size. A
// write that was inside EOF leaves i_size alone: it may be without i_rwsem, and a truncate have
// moved it. The reservation beyond x is given back.
func (w *write) order(t *sched.Task, x place.Extent) *ordered.Extent {
	end := x.Start + x.Len
	w.rsv.Shrink(t, w.ip, end)
	oe := w.ip.AddOrdered(t, x.Type, x.Start, x.Len, x.DiskBytenr)
	w.rsv.Ordered(t, w.ip, x.Len, x.Type)
	if end > w.isize && end > w.ip.Size(t) {
		w.ip.SetSize(t, end)
	}
	return oe
}

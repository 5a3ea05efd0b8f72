package buffered

import (
	"errors"

	"btrlab/internal/data/delalloc"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/zero"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// FaultClass is the wait for a page fault on the source. It happens between batches: the writer
// holds only what its plan keeps for the whole write.
var FaultClass = lockdep.NewClass("fault_in")

// smallBatch is the number of pages that a write keeps on its stack.
const smallBatch = 16

// pages is the locked pages of a batch, ascending. It does not allocate up to smallBatch of them,
// and it does not point into itself, so that it can stay on the stack.
type pages struct {
	n     int
	first [smallBatch]*pagecache.Page
	more  []*pagecache.Page
}

func (l *pages) add(p *pagecache.Page) {
	if l.n < smallBatch {
		l.first[l.n] = p
	} else {
		l.more = append(l.more, p)
	}
	l.n++
}

func (l *pages) at(i int) *pagecache.Page {
	if i < smallBatch {
		return l.first[i]
	}
	return l.more[i-smallBatch]
}

// write is the state of one buffered write between its steps.
type write struct {
	env *iopath.Env
	ip  *inode.Inode
	src iopath.Source
	p   *policy.Policy
	pl  policy.WritePlan

	pos     uint64       // where the next byte goes
	append  bool         // pos is i_size under the lock
	nowait  bool         // a step that would sleep is EAGAIN
	done    int          // bytes of the source that are in the page cache
	cap     int          // pages of a batch; 1 after a short copy
	isize   uint64       // i_size before the write, under the lock if the plan says so
	dropped bool         // i_rwsem was let go for the copy loop
	bare    bool         // the file's capabilities are gone
	noTimes bool         // mtime and ctime are the caller's
	facts   policy.Facts // those of pl
	held    iopath.Held  // the byte range

	labWaits bool // a lab has the waits: preparePages leaves writeback alone

	// The batch at hand.
	n      int                  // bytes to copy
	rsv    delalloc.Reservation // its space
	pages  pages                // locked and referenced
	force  bool                 // read an aligned first page too: the last copy got nothing
	locked bool                 // the extent range of rsv is locked
	copied int
}

// Write copies src into the file at rq.Pos by the policy in force and returns how many bytes it
// copied; with a short count comes the error that stopped it. With NOWAIT that is a kiocb.Again
// where a step would have slept, EOPNOTSUPP under a policy without NOWAIT_BUFFERED; nothing of what
// was not copied stays reserved.
//
// Models fs/btrfs/file.c:btrfs_file_write_iter() and __btrfs_buffered_write(); labs/reference 1.1,
// 1.2, 1.6, 1.7, 4.1.
func Write(t *sched.Task, env *iopath.Env, ip *inode.Inode, rq kiocb.Request, src iopath.Source) (int, error) {
	pos, p := rq.Pos, env.Policy()
	if err := refuse(rq.Flags &^ (kiocb.Append | kiocb.Nowait | kiocb.NoTimes)); err != nil {
		return 0, err
	}
	if len(src.Buf) == 0 {
		return 0, nil
	}
	isize, app := ip.Size(t), rq.Flags&kiocb.Append != 0
	if app {
		pos = isize
	}
	if pos > format.MaxFileSize || uint64(len(src.Buf)) > format.MaxFileSize-pos {
		return 0, errno.EFBIG
	}
	t.Spend(cost.Syscall, 1)
	w := write{env: env, ip: ip, src: src, p: p, pos: pos, append: app, nowait: rq.Flags&kiocb.Nowait != 0, isize: isize,
		noTimes: rq.Flags&kiocb.NoTimes != 0}
	w.facts = policy.Facts{Start: pos, End: pos + uint64(len(src.Buf)), ISize: isize, NoDataSum: !ip.Sums(),
		Nowait: w.nowait, MayNocow: ip.MayNocow(), MayPrivs: !ip.NoSec()}
	w.pl.Make(&w.facts, p)
	if w.pl.Unsupported {
		return 0, errno.EOPNOTSUPP
	}
	if lab := env.LabWrite(ip); lab != nil && !w.nowait {
		err := w.byLab(t, lab)
		w.tell(rq)
		return w.done, err
	}
	if w.pl.Prewait {
		w.prewait(t, w.facts.End)
	}
	if err := w.lockFile(t); err != nil {
		return 0, err
	}
	err := w.drainDirect(t)
	if err == nil {
		err = w.checkWrite(t)
	}
	if err == nil {
		err = w.copyLoop(t)
	}
	w.unlockFile(t)
	if w.pl.BalanceLast && w.done > 0 {
		_ = w.balanceDirty(t) // an error is for those that do not sleep
	}
	w.tell(rq)
	return w.done, err
}

// tell says where the write has begun.
func (w *write) tell(rq kiocb.Request) {
	if rq.Wrote != nil && w.done > 0 {
		*rq.Wrote = w.pos - uint64(w.done)
	}
}

// refuse is the error for flags that reads and writes through the page cache do not have. EINVAL is
// what O_DIRECT gets from a file system without direct I/O, EOPNOTSUPP what preadv2(2) and
// pwritev2(2) say of the others.
func refuse(f kiocb.Flags) error {
	switch {
	case f&kiocb.Direct != 0:
		return errno.EINVAL
	case f != 0:
		return errno.EOPNOTSUPP
	}
	return nil
}

// prewait waits for writeback and ordered extents of the range before any lock, so that fewer such
// waits are left under the lock. It promises nothing: the pages may be dirtied and written again.
// Models the first proposal of labs/reference 1.6.
func (w *write) prewait(t *sched.Task, end uint64) {
	from, to := w.pos>>pagecache.PageShift, (end+pagecache.PageSize-1)>>pagecache.PageShift
	if w.ip.Pages.WritebackPages(t) > 0 {
		w.ip.Pages.WaitWriteback(t, from, to)
	}
	// An ordered extent's error is its owner's to report, at fsync.
	_ = w.ip.Ordered.WaitRange(t, from<<pagecache.PageShift, to<<pagecache.PageShift)
}

// lockFile takes the locks of the plan. The plan was made from an i_size that could change; under
// the lock it is made again. A range-locked write that finds the file shorter than it thought takes
// i_rwsem after all.
func (w *write) lockFile(t *sched.Task) error {
	if w.nowait {
		if w.pl.Lock.Range() {
			return kiocb.AgainRangeLock
		}
		if !w.ip.TryLock(t) {
			return kiocb.AgainInode
		}
		w.planLocked(t)
		return nil
	}
	w.held.Lock(t, w.ip, &w.pl.Guard, w.facts.Start, w.facts.End, w.stillInside, w.planLocked)
	return nil
}

// stillInside reports whether the write ends inside EOF now that its range is locked. A truncate
// takes the range from the new size on, so i_size cannot get below the end of the write while we
// hold this one.
func (w *write) stillInside(t *sched.Task) bool {
	f := &w.facts
	f.ISize, f.MayPrivs = w.ip.Size(t), !w.ip.NoSec()
	if f.Inside() {
		w.sampleISize(f.ISize)
	}
	return f.Inside()
}

// drainDirect waits for direct writes in flight where the plan says so: of sectors, which the pages
// of this write must not be older than.
func (w *write) drainDirect(t *sched.Task) error {
	if !w.pl.DrainDirect {
		return nil
	}
	if w.nowait && w.ip.DIO.Load() > 0 {
		return kiocb.AgainDirect
	}
	w.ip.DIOWait(t)
	return nil
}

// planLocked makes the plan again now that i_rwsem is held, from facts that stay true. Where they
// are what they were so is the plan: that i_rwsem is held changes those alone that lock ranges.
func (w *write) planLocked(t *sched.Task) (end uint64) {
	w.ip.AssertLocked(t)
	f, was := &w.facts, w.facts
	f.ISize = w.ip.Size(t)
	w.sampleISize(f.ISize)
	// the file may have grown or shrunk since the plan was made; models generic_write_checks()
	if w.append {
		w.pos, f.Start, f.End = f.ISize, f.ISize, f.ISize+uint64(len(w.src.Buf))
	}
	f.MayNocow = w.ip.MayNocow()
	if *f == was && !w.pl.Lock.Range() {
		return f.End
	}
	f.InodeHeld = true // also if the file has grown meanwhile and the range alone would do
	w.pl.Make(f, w.p)
	return f.End
}

// sampleISize takes the end of file as it is under the lock.
func (w *write) sampleISize(isize uint64) {
	if !w.pl.Wrong(policy.WrongStaleISize) {
		w.isize = isize
	}
}

func (w *write) unlockFile(t *sched.Task) { w.held.Unlock(t, w.ip, w.pl.Lock) }

// checkWrite does the steps before the first byte: capabilities, time stamps, and zeros between the
// old end of file and the write. A NOWAIT write of a COW inode ends here: it might have to wait for
// new space later. Models btrfs_write_check(); labs/reference 1.1 steps 3 and 4, 4.3.
func (w *write) checkWrite(t *sched.Task) error {
	if w.append && uint64(len(w.src.Buf)) > format.MaxFileSize-w.pos {
		return errno.EFBIG
	}
	if w.pl.MustCOW {
		return kiocb.AgainMustCOW
	}
	if !w.bare {
		if err := w.env.RemovePrivs(t, w.ip, w.pl.Has(policy.NowaitTryPrivs)); err != nil {
			return err
		}
	}
	if !w.noTimes {
		w.ip.Touch(t, w.env.Now())
	}
	if w.pos > w.isize {
		end := format.AlignUp(w.pos+uint64(len(w.src.Buf)), format.SectorSize)
		t.At("expand")
		if w.pl.Has(policy.NowaitTryExpand) {
			return zero.TryExpand(t, w.ip, w.isize, end)
		}
		return zero.Expand(t, w.env.Read, w.ip, w.isize, end)
	}
	return nil
}

// copyLoop is __btrfs_buffered_write(): batch by batch until the source is empty or a step fails.
func (w *write) copyLoop(t *sched.Task) error {
	if w.pl.DIOBegin {
		w.dropInode(t)
	}
	w.cap = w.batchPages(t)
	var err error
	for w.done < len(w.src.Buf) {
		if err = w.batch(t); err != nil {
			break
		}
	}
	if w.pl.DIOBegin {
		w.relockInode(t)
	}
	return err
}

// dropInode counts the write among the I/Os in flight and, inside EOF, lets i_rwsem go. Models seed
// 002.
func (w *write) dropInode(t *sched.Task) {
	w.ip.DIO.Inc(t)
	if w.pl.Lock == policy.LockInodeDrop {
		w.ip.Unlock(t)
		w.dropped = true
	}
}

// relockInode ends dropInode. The count goes down first: a truncate that waits for it holds
// i_rwsem.
func (w *write) relockInode(t *sched.Task) {
	w.ip.DIO.Dec(t)
	if w.dropped {
		w.ip.Lock(t)
		w.dropped = false
	}
}

// batchPages is the capacity of a batch, 8 to 512 pages by the state of dirty throttling, chosen
// once per write; one page where the plan says so. Models nrptrs of __btrfs_buffered_write();
// labs/reference 1.1 a.
func (w *write) batchPages(t *sched.Task) int {
	if w.pl.BatchPages == 1 {
		return 1
	}
	in := w.pos & (pagecache.PageSize - 1)
	need := int((in + uint64(len(w.src.Buf)) + pagecache.PageSize - 1) >> pagecache.PageShift)
	return w.ip.FS.Cache.BDI.BatchPages(t, min(need, w.pl.BatchPages))
}

// batch does one round of the copy loop: the plan's steps, b to j of labs/reference 1.1.
func (w *write) batch(t *sched.Task) error {
	w.n, w.copied = w.batchBytes(), 0
	for _, s := range w.pl.Steps {
		if err := w.step(t, s); err != nil {
			w.abandon(t)
			return err
		}
	}
	w.pos += uint64(w.copied)
	w.done += w.copied
	return nil
}

func (w *write) step(t *sched.Task, s policy.WriteStep) error {
	if w.nowait {
		t.At(s.String())
	}
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "plan_step", What: "write " + s.String()})
	}
	switch s {
	case policy.FaultIn:
		return w.faultIn(t)
	case policy.Reserve:
		return w.reserve(t)
	case policy.PreparePages:
		return w.preparePages(t)
	case policy.LockExtent:
		return w.lockExtent(t)
	case policy.CopyFromUser:
		w.copyFromUser(t)
	case policy.DirtyPages:
		w.dirtyPages(t)
	case policy.ISizeWrite:
		w.iSizeWrite(t)
	case policy.SetDelalloc:
		w.setDelalloc(t)
	case policy.DropPages:
		w.finishRange(t)
		w.dropPages(t)
	case policy.BalanceDirty:
		return w.balanceDirty(t)
	}
	return nil
}

// abandon lets go what the batch has, after a step that failed.
func (w *write) abandon(t *sched.Task) {
	w.finishRange(t)
	if w.locked {
		w.ip.IOTree.Unlock(t, w.rsv.Start, w.rsv.End)
		w.locked = false
	}
	w.dropPages(t)
	w.rsv.Release(t, w.ip)
}

// batchBytes is how much the next batch copies: every batch but the last ends on a page boundary.
func (w *write) batchBytes() int {
	in := int(w.pos & (pagecache.PageSize - 1))
	return min(len(w.src.Buf)-w.done, w.cap<<pagecache.PageShift-in)
}

// faultIn makes the source of the batch present. It comes before any lock: no page fault may happen
// with pages locked (914ee295af41).
func (w *write) faultIn(t *sched.Task) error {
	if t.Stepper() != nil {
		t.Enter(sched.PointLoad, FaultClass.ID, nil)
	}
	if w.src.Faults == nil {
		return nil
	}
	if w.pl.Has(policy.NowaitTryFault) {
		if w.src.Faults.Present(w.done, w.done+w.n) == 0 {
			return kiocb.AgainFault
		}
		return nil
	}
	if w.src.Faults.FaultIn(t, w.done, w.done+w.n) == 0 {
		return errno.EFAULT
	}
	return nil
}

// reserve promises the batch's data and metadata space. When data space is short the blocks may
// still be overwritten in place: only then the trees are asked (labs/reference 1.1 c).
func (w *write) reserve(t *sched.Task) error {
	t.Spend(cost.Reserve, 1)
	w.rsv.Unlocked, w.rsv.QuotaFlush = w.pl.Wrong(policy.WrongSnapshotUnlocked), w.nowait && !w.pl.Has(policy.NowaitTryQuota)
	data, metadata := spaceinfo.FlushData, spaceinfo.FlushAll
	if w.nowait {
		data, metadata = spaceinfo.NoFlush, spaceinfo.NoFlush
	}
	if err := w.rsv.ReserveData(t, w.ip, w.pos, w.pos+uint64(w.n), data); err != nil {
		quota := errors.Is(err, errno.EDQUOT)
		switch w.p.OnShortage(policy.BufferedData, w.nowait, quota) {
		case policy.TryAgain:
			return kiocb.AgainData
		case policy.TryNocow:
			err = w.checkCanNocow(t, err)
		}
		if quota && w.pl.Has(policy.NowaitTryQuota) && errors.Is(err, errno.EDQUOT) {
			return kiocb.AgainQuota // a flush might have helped
		}
		if err != nil {
			return err
		}
	}
	// on error abandon gives the data space back
	err := w.rsv.ReserveMetadata(t, w.ip, metadata)
	if err != nil && w.p.OnShortage(policy.BufferedMetadata, w.nowait, errors.Is(err, errno.EDQUOT)) == policy.TryAgain {
		if errors.Is(err, errno.EDQUOT) {
			return kiocb.AgainQuota
		}
		return kiocb.AgainMetadata
	}
	return err
}

// checkCanNocow turns the batch, or the front of it, into one without data space if it can; else it
// returns enospc. Models check_can_nocow() as __btrfs_buffered_write() calls it.
func (w *write) checkCanNocow(t *sched.Task, enospc error) error {
	if !w.ip.MayNocow() || !w.rsv.NoSnapshot(t, w.ip) {
		return enospc
	}
	start := format.AlignDown(w.pos, format.SectorSize)
	end := w.pos + uint64(w.n)
	got, err := w.env.Read.Place.CanNocow(t, w.ip, start, format.AlignUp(end, format.SectorSize), w.nowait)
	if err != nil {
		return err
	}
	if got <= w.pos {
		return enospc
	}
	if got < end {
		w.n = int(got - w.pos)
		end = got
	}
	w.rsv.Nocow(w.pos, end)
	return nil
}

// preparePages locks the batch's pages in ascending order, fills those that are only partly
// overwritten, and waits until the device reads none of them: the pages before stay locked during
// these waits. Models prepare_pages() and prepare_uptodate_page(). On error no page is locked.
func (w *write) preparePages(t *sched.Task) error {
	if w.pl.Has(policy.NowaitTryPages) {
		return w.tryPages(t)
	}
	first := w.pos >> pagecache.PageShift
	last := (w.pos + uint64(w.n) - 1) >> pagecache.PageShift
	for i := first; i <= last; {
		p := w.ip.Pages.Grab(t, i)
		if !p.Uptodate() && w.partial(i) {
			busy, err := w.env.Read.FillPage(t, w.ip, p)
			if busy != nil || err != nil {
				p.UnlockPut(t)
				w.dropPages(t)
			}
			if err != nil {
				return err
			}
			if busy != nil {
				busy.WaitPut(t)
				i = first
				continue
			}
		}
		if !w.labWaits && w.stable() {
			p.WaitWriteback(t)
		}
		w.pages.add(p)
		i++
	}
	return nil
}

// tryPages is preparePages that does not sleep. Models what prepare_one_folio() does with
// FGP_NOWAIT, if it were asked to.
func (w *write) tryPages(t *sched.Task) error {
	for i := w.pos >> pagecache.PageShift; i <= (w.pos+uint64(w.n)-1)>>pagecache.PageShift; i++ {
		p := w.ip.Pages.TryGrab(t, i)
		if p == nil {
			return kiocb.AgainPage // abandon lets the pages before go
		}
		w.pages.add(p)
		switch {
		case p.Uptodate() || !w.partial(i):
		case p.Offset() >= w.ip.Size(t):
			clear(p.Edit(t)) // nothing is on disk beyond EOF
			p.SetUptodate()
		default:
			return kiocb.AgainRead
		}
		if w.stable() && p.UnderWriteback(t) {
			return kiocb.AgainStable
		}
	}
	return nil
}

// stable reports whether a page under writeback may not change. The kernel lets one of a file
// without checksums change while the device reads it; the race detector would report that.
func (w *write) stable() bool { return w.pl.StableWait || sched.UnderRace }

// partial reports whether the batch leaves bytes of page i as they are, so that it must be read
// first. After a copy that got nothing an aligned first page counts too, or it would never become
// uptodate (2a0f7f576999).
func (w *write) partial(i uint64) bool {
	lo, hi := i<<pagecache.PageShift, (i+1)<<pagecache.PageShift
	return w.pos > lo || w.pos+uint64(w.n) < hi || w.force && w.pos == lo
}

// lockExtent locks the batch's extent range if it starts inside EOF; folio by folio, always. While
// an ordered extent is in the range it lets everything go but the reservation, waits for it and
// prepares the pages again.
// Models lock_and_cleanup_extent_if_need() and its callers' loop.
func (w *write) lockExtent(t *sched.Task) error {
	start, end := w.rsv.Start, w.rsv.End
	if start == end {
		return nil // an order that has not reserved yet
	}
	if w.nowait {
		return w.tryExtent(t, start, end)
	}
	for w.pl.Has(policy.CopyByFolio) || start < w.ip.Size(t) {
		if w.pl.Has(policy.WritebackBounce) {
			w.ip.IOTree.Lock(t, start, end)
			w.locked = true
			break
		}
		oe := w.ip.LockUnlessOrdered(t, start, end)
		if oe == nil {
			w.locked = true
			break
		}
		prepared := w.pages.n > 0
		w.dropPages(t)
		oe.WaitPut(t)
		if prepared {
			if err := w.preparePages(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// tryExtent is lockExtent of a NOWAIT write. Linux waits for an ordered extent all the same, with
// everything let go, before it says EAGAIN. Models lock_and_cleanup_extent_if_need().
func (w *write) tryExtent(t *sched.Task, start, end uint64) error {
	if !w.pl.Has(policy.CopyByFolio) && start >= w.ip.Size(t) {
		return nil
	}
	if !w.ip.IOTree.TryLock(t, start, end) {
		return kiocb.AgainExtent
	}
	oe := w.ip.Ordered.First(t, start, end)
	if oe == nil {
		w.locked = true
		return nil
	}
	w.ip.IOTree.Unlock(t, start, end)
	if w.pl.Has(policy.NowaitTryOrdered) {
		oe.Put(t)
		return kiocb.AgainOrdered
	}
	w.dropPages(t)
	oe.WaitPut(t)
	return kiocb.AgainOrdered
}

// copyFromUser copies with page faults disabled, so it may be short. Models btrfs_copy_from_user().
func (w *write) copyFromUser(t *sched.Task) {
	n := w.n
	if w.src.Faults != nil {
		n = min(n, w.src.Faults.Present(w.done, w.done+n))
	}
	in := int(w.pos & (pagecache.PageSize - 1))
	for i := range w.pages.n {
		p := w.pages.at(i)
		want := min(pagecache.PageSize-in, w.n-w.copied)
		have := min(want, n-w.copied)
		from := w.done + w.copied
		copy(p.Edit(t)[in:], w.src.Buf[from:from+have])
		if have < want {
			// Short. Bytes of a page that was not uptodate stay invisible: it would be partly
			// filled. In one that was, they can be seen from now on, before the rest of the page is
			// there.
			if p.Uptodate() {
				w.copied += have
			}
			break
		}
		w.copied += have
		in = 0
	}
	if w.copied < w.n {
		w.cap = 1
	}
	w.force = w.copied == 0 && !w.pl.Wrong(policy.WrongNoForcedRead)
	t.Spend(cost.Cold, 1)
	t.Spend(cost.Copy, w.copied)
}

// shrinkShort gives back what the batch reserved beyond a short copy.
func (w *write) shrinkShort(t *sched.Task) {
	end := w.pos + uint64(w.copied)
	if full := w.rsv.End; !w.rsv.Given() && format.AlignUp(end, format.SectorSize) < full {
		w.rsvShrink(t, end, full)
	}
}

// dirtyPages marks the pages that were copied uptodate and dirty. Models btrfs_dirty_folio() with
// setDelalloc and iSizeWrite.
func (w *write) dirtyPages(t *sched.Task) {
	w.shrinkShort(t)
	end := w.pos + uint64(w.copied)
	if w.copied == 0 {
		return
	}
	last := (end - 1) >> pagecache.PageShift
	for i := range w.pages.n {
		p := w.pages.at(i)
		if p.Index() > last {
			break
		}
		p.SetUptodate()
		w.ip.Pages.SetDirty(t, p)
	}
}

// iSizeWrite lets i_size follow a batch that ends beyond it.
//
// The i_size write here is the one of labs/reference 1.3 step 5: an unlocked writer gets to it
// without i_rwsem if a truncate has moved EOF before it meanwhile.
func (w *write) iSizeWrite(t *sched.Task) {
	if end := w.pos + uint64(w.copied); w.copied > 0 && end > w.ip.Size(t) {
		w.ip.SetSize(t, end)
	}
}

// setDelalloc makes the range delalloc. In an order that has it after the pages are unlocked,
// nothing is left to do for them.
func (w *write) setDelalloc(t *sched.Task) {
	w.shrinkShort(t)
	if w.copied == 0 {
		return
	}
	w.rsv.SetDelalloc(t, w.ip, w.locked)
	if w.pages.n == 0 {
		w.finishRange(t)
	}
}

// finishRange unlocks the range, if it is delalloc, and ends its reservation. Models steps h and i.
func (w *write) finishRange(t *sched.Task) {
	if w.rsv.Given() {
		w.rsv.Finish(t, w.ip, w.locked)
		w.locked = false
	}
}

// rsvShrink unlocks and gives back the blocks beyond a short copy, which ended at end.
func (w *write) rsvShrink(t *sched.Task, end, full uint64) {
	keep := format.AlignUp(end, format.SectorSize)
	if w.copied == 0 {
		keep = w.rsv.Start
	}
	if w.locked {
		w.ip.IOTree.Unlock(t, keep, full)
		w.locked = keep > w.rsv.Start
	}
	w.rsv.Shrink(t, w.ip, keep)
}

// dropPages unlocks the batch's pages. Models btrfs_drop_pages().
func (w *write) dropPages(t *sched.Task) {
	for i := range w.pages.n {
		w.pages.at(i).UnlockPut(t)
	}
	w.pages.n, w.pages.more = 0, w.pages.more[:0]
}

// balanceDirty pays for the pages that the task made dirty; it may sleep long, or with NOWAIT say
// EAGAIN, and writeback begins all the same. Models balance_dirty_pages_ratelimited_flags() with
// BDP_ASYNC.
func (w *write) balanceDirty(t *sched.Task) error {
	if !w.nowait {
		w.ip.FS.Cache.BDI.BalanceDirty(t)
		return nil
	}
	err := w.ip.FS.Cache.BDI.TryBalanceDirty(t)
	if err != nil && w.pl.Wrong(policy.WrongNowaitThrottleLeak) {
		w.rsv.Leak(t, w.ip)
	}
	return err
}

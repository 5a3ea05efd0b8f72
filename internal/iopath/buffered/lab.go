package buffered

import (
	"errors"

	"btrlab/internal/data/fileread"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// labWrite is a write whose steps a lab orders: its locks, its waits or both.
type labWrite struct {
	iopath.FileLocks
	*write
	placed bool // an append has its position
	sized  bool // cap is chosen
}

var _ iopath.WriteSteps = (*labWrite)(nil)

// byLab lets a lab carry out the write. The plan counts for what a Batch does, and in which order.
func (w *write) byLab(t *sched.Task, lab func(t *sched.Task, w iopath.WriteSteps) error) error {
	if err := w.env.Bare(t, w.ip); err != nil {
		return err
	}
	mine := *w // w stays on its task's stack: others allocate nothing
	mine.pl.Lock, mine.pl.DIOBegin, mine.pl.Prewait, mine.bare = policy.LockNone, false, false, true
	mine.cap, mine.n = policy.BatchMaxPages, len(w.src.Buf)
	o := &labWrite{FileLocks: iopath.LocksOf(w.ip), write: &mine}
	err := lab(t, o)
	if o.locked {
		o.UnlockExtent(t) // abandon unlocks what is reserved
	}
	o.abandon(t)
	w.pos, w.done = mine.pos, mine.done
	return err
}

func (o *labWrite) Len() uint64 { return uint64(len(o.src.Buf)) }

func (o *labWrite) Range(t *sched.Task) (start, end uint64) {
	start = o.pos - uint64(o.done)
	if o.append && !o.placed {
		start = o.ip.Size(t)
	}
	return start, start + o.Len()
}

func (o *labWrite) Appends() bool { return o.append }

func (o *labWrite) Place(t *sched.Task) uint64 {
	o.isize, o.placed = o.ip.Size(t), true
	if o.append {
		o.pos = o.isize
	}
	return o.pos
}

func (o *labWrite) Prewait(t *sched.Task) {
	_, end := o.Range(t)
	o.prewait(t, end)
}

func (o *labWrite) Begin(t *sched.Task) error { return o.checkWrite(t) }

func (o *labWrite) Batch(t *sched.Task, pages int) (more bool, err error) {
	if pages = max(1, min(pages, policy.BatchMaxPages)); !o.sized {
		o.pl.BatchPages, o.sized = pages, true
		o.cap = o.batchPages(t)
	}
	o.cap = min(o.cap, pages)
	err = o.batch(t)
	return err == nil && o.done < len(o.src.Buf), err
}

// an error is for those that do not sleep
func (o *labWrite) Balance(t *sched.Task) { _ = o.balanceDirty(t) }

func (o *labWrite) WaitWriteback(t *sched.Task, start, end uint64) {
	o.ip.Pages.WaitWriteback(t, start>>pagecache.PageShift, (end+pagecache.PageSize-1)>>pagecache.PageShift)
}

func (o *labWrite) WaitOrdered(t *sched.Task, start, end uint64) {
	// an extent's error is its owner's to report, at fsync
	_ = o.ip.Ordered.WaitRange(t, start, end)
}

// Reserve is all or nothing. Difference: a write for which there is no data space is not tried in
// place.
func (o *labWrite) Reserve(t *sched.Task) error {
	err := o.reserve(t)
	if err == nil && o.n < len(o.src.Buf) {
		o.n, err = len(o.src.Buf), errno.ENOSPC
	}
	if err != nil {
		o.rsv.Release(t, o.ip)
	}
	return err
}

func (o *labWrite) LockPages(t *sched.Task) error {
	o.labWaits = true
	return o.preparePages(t)
}

func (o *labWrite) UnlockPages(t *sched.Task) { o.dropPages(t) }

// blocks is the blocks of the write, in bytes.
func (o *labWrite) blocks() (start, end uint64) {
	start = o.pos - uint64(o.done)
	return format.AlignDown(start, format.SectorSize), format.AlignUp(start+o.Len(), format.SectorSize)
}

// LockExtent locks the extent range. Difference: beyond EOF as well.
func (o *labWrite) LockExtent(t *sched.Task) {
	start, end := o.blocks()
	o.ip.IOTree.Lock(t, start, end)
	o.locked = true
}

func (o *labWrite) UnlockExtent(t *sched.Task) {
	start, end := o.blocks()
	o.ip.IOTree.Unlock(t, start, end)
	o.locked = false
}

func (o *labWrite) Ordered(t *sched.Task) bool {
	start, end := o.blocks()
	oe := o.ip.Ordered.First(t, start, end)
	if oe != nil {
		oe.Put(t)
	}
	return oe != nil
}

func (o *labWrite) Copy(t *sched.Task) {
	o.copyFromUser(t)
	o.setDelalloc(t)
	o.dirtyPages(t)
	o.iSizeWrite(t)
	o.finishRange(t)
	o.pos += uint64(o.copied)
	o.done += o.copied
}

// labRead is a read whose steps a lab orders.
type labRead struct {
	iopath.FileLocks
	env *iopath.Env
	ip  *inode.Inode
	pos uint64
	p   []byte
	ra  *fileread.State
	n   int
	err error
}

func readByLab(t *sched.Task, env *iopath.Env, ip *inode.Inode, pos uint64, p []byte, ra *fileread.State, lab iopath.FilePolicy) (int, error) {
	o := &labRead{FileLocks: iopath.LocksOf(ip), env: env, ip: ip, pos: pos, p: p, ra: ra}
	lab.Read(t, o)
	return o.n, o.err
}

func (o *labRead) Range(*sched.Task) (start, end uint64) { return o.pos, o.pos + uint64(len(o.p)) }

func (o *labRead) Copy(t *sched.Task) {
	n, err := read(t, o.env, o.ip, o.pos, false, o.p, o.ra)
	o.n, o.err = n, errors.Join(o.err, err)
}

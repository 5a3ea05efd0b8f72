package buffered

import (
	"errors"

	"btrlab/internal/data/fileread"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched"
)

// ownWrite is a write between the steps of the file's own policy. A lab's order of its locks, its
// waits or both is such a policy.
type ownWrite struct {
	iopath.FileLocks
	*write
	placed bool // an append has its position
	sized  bool // cap is chosen
}

var _ iopath.WriteSteps = (*ownWrite)(nil)

// by lets the file's own policy carry out the write. The plan counts for what a Batch does, and in
// which order.
func (w *write) by(t *sched.Task, own iopath.WritePolicy) error {
	if err := w.env.Bare(t, w.ip); err != nil {
		return err
	}
	mine := *w // w stays on its task's stack: others allocate nothing
	mine.pl.Lock, mine.pl.DIOBegin, mine.pl.Prewait, mine.bare = policy.LockNone, false, false, true
	mine.cap, mine.n = policy.BatchMaxPages, len(w.src.Buf)
	o := &ownWrite{FileLocks: iopath.LocksOf(w.ip), write: &mine}
	err := own.Write(t, o)
	if o.locked {
		o.UnlockExtent(t) // abandon unlocks what is reserved
	}
	o.abandon(t)
	w.pos, w.done = mine.pos, mine.done
	return err
}

func (o *ownWrite) Len() uint64 { return uint64(len(o.src.Buf)) }

func (o *ownWrite) Range(t *sched.Task) (start, end uint64) {
	start = o.pos - uint64(o.done)
	if o.append && !o.placed {
		start = o.ip.Size(t)
	}
	return start, start + o.Len()
}

func (o *ownWrite) Appends() bool { return o.append }

func (o *ownWrite) Place(t *sched.Task) uint64 {
	o.isize, o.placed = o.ip.Size(t), true
	if o.append {
		o.pos = o.isize
	}
	return o.pos
}

func (o *ownWrite) Prewait(t *sched.Task) {
	_, end := o.Range(t)
	o.prewait(t, end)
}

func (o *ownWrite) Begin(t *sched.Task) error { return o.checkWrite(t) }

func (o *ownWrite) Batch(t *sched.Task, pages int) (more bool, err error) {
	if pages = max(1, min(pages, policy.BatchMaxPages)); !o.sized {
		o.pl.BatchPages, o.sized = pages, true
		o.cap = o.batchPages(t)
	}
	o.cap = min(o.cap, pages)
	err = o.batch(t)
	return err == nil && o.done < len(o.src.Buf), err
}

// an error is for those that do not sleep
func (o *ownWrite) Balance(t *sched.Task) { _ = o.balanceDirty(t) }

func (o *ownWrite) WaitWriteback(t *sched.Task, start, end uint64) {
	o.ip.Pages.WaitWriteback(t, start>>pagecache.PageShift, (end+pagecache.PageSize-1)>>pagecache.PageShift)
}

func (o *ownWrite) WaitOrdered(t *sched.Task, start, end uint64) {
	// an extent's error is its owner's to report, at fsync
	_ = o.ip.Ordered.WaitRange(t, start, end)
}

// Reserve is all or nothing. Difference: a write for which there is no data space is not tried in
// place.
func (o *ownWrite) Reserve(t *sched.Task) error {
	err := o.reserve(t)
	if err == nil && o.n < len(o.src.Buf) {
		o.n, err = len(o.src.Buf), errno.ENOSPC
	}
	if err != nil {
		o.rsv.Release(t, o.ip)
	}
	return err
}

func (o *ownWrite) LockPages(t *sched.Task) error {
	o.ownWaits = true
	return o.preparePages(t)
}

func (o *ownWrite) UnlockPages(t *sched.Task) { o.dropPages(t) }

// blocks is the blocks of the write, in bytes.
func (o *ownWrite) blocks() (start, end uint64) {
	start = o.pos - uint64(o.done)
	return format.AlignDown(start, format.SectorSize), format.AlignUp(start+o.Len(), format.SectorSize)
}

// LockExtent locks the extent range. Difference: beyond EOF as well.
func (o *ownWrite) LockExtent(t *sched.Task) {
	start, end := o.blocks()
	o.ip.IOTree.Lock(t, start, end)
	o.locked = true
}

func (o *ownWrite) UnlockExtent(t *sched.Task) {
	start, end := o.blocks()
	o.ip.IOTree.Unlock(t, start, end)
	o.locked = false
}

func (o *ownWrite) Ordered(t *sched.Task) bool {
	start, end := o.blocks()
	oe := o.ip.Ordered.First(t, start, end)
	if oe != nil {
		oe.Put(t)
	}
	return oe != nil
}

func (o *ownWrite) Copy(t *sched.Task) {
	o.copyFromUser(t)
	o.dirtyPages(t)
	o.iSizeWrite(t)
	o.setDelalloc(t)
	o.pos += uint64(o.copied)
	o.done += o.copied
}

// ownRead is a read between the steps of a policy for the file.
type ownRead struct {
	iopath.FileLocks
	env *iopath.Env
	ip  *inode.Inode
	pos uint64
	p   []byte
	ra  *fileread.State
	n   int
	err error
}

func readBy(t *sched.Task, env *iopath.Env, ip *inode.Inode, pos uint64, p []byte, ra *fileread.State, own iopath.FilePolicy) (int, error) {
	o := &ownRead{FileLocks: iopath.LocksOf(ip), env: env, ip: ip, pos: pos, p: p, ra: ra}
	own.Read(t, o)
	return o.n, o.err
}

func (o *ownRead) Range(*sched.Task) (start, end uint64) { return o.pos, o.pos + uint64(len(o.p)) }

func (o *ownRead) Copy(t *sched.Task) {
	n, err := read(t, o.env, o.ip, o.pos, false, o.p, o.ra)
	o.n, o.err = n, errors.Join(o.err, err)
}

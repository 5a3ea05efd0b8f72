package buffered

import (
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched"
)

// waitSteps is a buffered write of one batch whose waits are a lab's to place: iopath.WaitedWrite. What each step does is what the batch of
// the copy loop does, but for the waits: they are steps of their own.
type waitSteps struct {
	w          *write
	f          policy.Facts
	start, end uint64 // the blocks of the write
}

var _ iopath.WaitedWrite = (*waitSteps)(nil)

// takesWaits reports whether Env.Waits may have the write: it waits, it is one batch of a source that is in memory, and its position
// is known before i_rwsem is held.
func (w *write) takesWaits() bool {
	in := int(w.pos & (pagecache.PageSize - 1))
	return w.env.Waits != nil && !w.nowait && !w.append && w.src.Faults == nil && !w.pl.Lock.Range() &&
		in+len(w.src.Buf) <= policy.BatchMinPages<<pagecache.PageShift
}

// byWaits lets Env.Waits carry out the write. What is reserved and not used goes back.
func (w *write) byWaits(t *sched.Task, f policy.Facts) (int, error) {
	own := *w // w stays on its task's stack: others allocate nothing
	own.ownWaits, own.n = true, len(own.src.Buf)
	s := &waitSteps{w: &own, f: f, start: format.AlignDown(f.Start, format.SectorSize), end: format.AlignUp(f.End, format.SectorSize)}
	err := own.env.Waits(t, s)
	own.abandon(t)
	return own.done, err
}

// Range is the blocks of the write, in bytes.
func (s *waitSteps) Range() (start, end uint64) { return s.start, s.end }

// Inside reports whether the write ends inside EOF. It is a hint for a task that does not hold i_rwsem.
func (s *waitSteps) Inside(t *sched.Task) bool { return s.f.End <= s.w.ip.Size(t) }

// Lock takes i_rwsem exclusive, and does what comes before the first byte: checkWrite. An error has let i_rwsem go.
func (s *waitSteps) Lock(t *sched.Task) error {
	s.w.ip.Lock(t)
	s.f = s.w.planLocked(t, s.f)
	err := s.w.checkWrite(t)
	if err != nil {
		s.w.ip.Unlock(t)
	}
	return err
}

// Unlock lets i_rwsem go.
func (s *waitSteps) Unlock(t *sched.Task) { s.w.ip.Unlock(t) }

// WaitWriteback waits for the end of writeback of the pages of [start, end), one after the other. With the pages locked none of them can
// begin again.
func (s *waitSteps) WaitWriteback(t *sched.Task, start, end uint64) {
	s.w.ip.Pages.WaitWriteback(t, start>>pagecache.PageShift, (end+pagecache.PageSize-1)>>pagecache.PageShift)
}

// WaitOrdered waits for the ordered extents of [start, end). An extent's error is its owner's to report, at fsync.
func (s *waitSteps) WaitOrdered(t *sched.Task, start, end uint64) {
	_ = s.w.ip.Ordered.WaitRange(t, start, end)
}

// Drain waits until no direct write is in flight that does not hold i_rwsem.
func (s *waitSteps) Drain(t *sched.Task) { s.w.ip.DIO.WaitZero(t) }

// Reserve promises data and metadata space for the whole write, or nothing. Difference: a write for which there is no data space is not
// tried in place.
func (s *waitSteps) Reserve(t *sched.Task) error {
	w := s.w
	err := w.reserve(t)
	if err == nil && w.n < len(w.src.Buf) {
		w.n, err = len(w.src.Buf), errno.ENOSPC
	}
	if err != nil {
		w.rsv.Release(t, w.ip)
	}
	return err
}

// LockPages locks the pages in ascending order and reads those that are overwritten in part. It does not wait for writeback.
// On error no page is locked.
func (s *waitSteps) LockPages(t *sched.Task) error { return s.w.preparePages(t) }

// UnlockPages lets the pages go.
func (s *waitSteps) UnlockPages(t *sched.Task) { s.w.dropPages(t) }

// LockRange locks the extent range of the write. Difference: beyond EOF, too.
func (s *waitSteps) LockRange(t *sched.Task) {
	s.w.ip.IOTree.Lock(t, s.start, s.end)
	s.w.locked = true
}

// UnlockRange lets the extent range go.
func (s *waitSteps) UnlockRange(t *sched.Task) {
	s.w.ip.IOTree.Unlock(t, s.start, s.end)
	s.w.locked = false
}

// Ordered reports whether an ordered extent is in the range. The answer holds as long as the range is locked.
func (s *waitSteps) Ordered(t *sched.Task) bool {
	oe := s.w.ip.Ordered.First(t, s.start, s.end)
	if oe != nil {
		oe.Put(t)
	}
	return oe != nil
}

// Copy copies the source to the pages, makes them dirty, lets i_size follow and hands the reservation to the range, whose lock goes
// with it.
//
// Preconditions: space is reserved, the pages and the extent range are locked.
func (s *waitSteps) Copy(t *sched.Task) {
	w := s.w
	w.copyFromUser(t)
	w.dirtyPages(t)
	w.iSizeWrite(t)
	w.setDelalloc(t)
	w.done = w.copied
}

// Throttle pays for the dirty pages of the task: it may sleep long.
func (s *waitSteps) Throttle(t *sched.Task) { _ = s.w.balanceDirty(t) }

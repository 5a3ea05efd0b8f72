package direct

import (
	"errors"

	"btrlab/internal/data/ordered"
	"btrlab/internal/data/place"
	"btrlab/internal/errno"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// labExtent is an extent of a NOWAIT write whose steps a lab orders: iopath.Lab.Nowait.
type labExtent struct {
	w          *write
	start, end uint64
	x          place.Extent
	oe         *ordered.Extent // once it is started
	why        kiocb.Again     // the last step that could not go on
}

var _ iopath.NowaitSteps = (*labExtent)(nil)

// startOther is extent with the steps in another's hands. It submits what they have started.
func (w *write) startOther(t *sched.Task, start, end uint64) error {
	other := *w // which leaves the stack, as w does not
	e := labExtent{w: &other, start: start, end: end}
	err := w.env.Lab.Nowait(t, &e)
	*w = other
	switch {
	case errors.Is(err, errno.EAGAIN) && e.why != 0: // where it was, which the lab does not say
		return e.why
	case errors.Is(err, errno.EAGAIN):
		return kiocb.AgainExtent
	case err != nil:
		return err
	}
	n, err := w.pin(t, e.oe)
	if n > 0 {
		w.io.submitWrite(t, e.oe, w.src[w.done:w.done+n])
		w.pos, w.done = w.pos+uint64(n), w.done+n
	}
	return err
}

// note keeps err if it says where a wait would have been.
func (e *labExtent) note(err error) error {
	errors.As(err, &e.why)
	return err
}

func (e *labExtent) TryRange(t *sched.Task) bool {
	return e.note(e.w.lockExtent(t, e.start, e.end)) == nil
}

func (e *labExtent) LockRange(t *sched.Task) {
	mayBlock(t, "lock_extent")
	lockRange(t, e.w.ip, &e.w.pl, e.start, e.end)
}

func (e *labExtent) UnlockRange(t *sched.Task) { e.w.unlockExtent(t, e.start, e.end) }

func (e *labExtent) Reserve(t *sched.Task, flush bool) error {
	w, mode := e.w, spaceinfo.NoFlush
	if flush {
		mayBlock(t, "reserve")
		mode = spaceinfo.FlushAll
	}
	if !w.rsv.NoSnapshot(t, w.ip) {
		return e.note(kiocb.AgainSnapshot)
	}
	w.rsv.Nocow(e.start, e.end)
	err := w.rsv.ReserveMetadata(t, w.ip, mode)
	if err != nil {
		w.rsv.Release(t, w.ip)
		e.why = kiocb.AgainMetadata
		if errors.Is(err, errno.EDQUOT) {
			e.why = kiocb.AgainQuota
		}
	}
	return err
}

func (e *labExtent) Release(t *sched.Task) { e.w.rsv.Release(t, e.w.ip) }

func (e *labExtent) Place(t *sched.Task) (err error) {
	e.x, err = e.w.placeNowait(t, e.start, e.end)
	return e.note(err)
}

func (e *labExtent) Start(t *sched.Task) { e.oe = e.w.order(t, e.x) }

// labSectors is a write of sectors whose steps a lab orders: iopath.Lab.Sectors. What each does is
// what the designs do.
type labSectors struct {
	w   *write
	x   place.Extent
	err error
}

// byLab lets a lab carry out the write of sectors.
func (w *write) byLab(t *sched.Task) error {
	w.unlockFile(t)
	mine := *w // w stays on its task's stack: others allocate nothing
	s := &labSectors{w: &mine}
	mine.env.Lab.Sectors(t, s)
	mine.pl.Lock = policy.LockNone // it has let i_rwsem go
	mine.rsv.Release(t, mine.ip)
	*w = mine
	return s.err
}

func (s *labSectors) locked(t *sched.Task, l policy.Lock) {
	w := s.w
	f := w.facts(t, l == policy.LockInode)
	w.pl.ForWrite(&f, w.env.Policy())
	w.pl.Lock, w.pl.ForceWait, w.pl.CheckUnwritten, w.pl.SyncHeld = l, true, false, false
}

// Share takes i_rwsem shared.
func (s *labSectors) Share(t *sched.Task) {
	s.w.ip.RLock(t)
	s.locked(t, policy.LockShared)
}

// Alone takes i_rwsem exclusive.
func (s *labSectors) Alone(t *sched.Task) {
	s.w.ip.Lock(t)
	s.locked(t, policy.LockInode)
}

// Unlock lets i_rwsem go.
func (s *labSectors) Unlock(t *sched.Task) { s.w.unlockFile(t) }

// Inside reports whether the write ends inside EOF, as that was when i_rwsem was taken.
func (s *labSectors) Inside() bool { return s.w.pos+uint64(len(s.w.src)) <= s.w.isize }

// Look says what the blocks of the write are.
func (s *labSectors) Look(t *sched.Task) iopath.Blocks {
	w := s.w
	from, to := w.blocks()
	if !w.rsv.NoSnapshot(t, w.ip) {
		return iopath.BlocksElsewhere
	}
	w.ip.IOTree.Lock(t, from, to)
	x, ok, err := w.env.Read.Place.Overwrite(t, w.ip, from, to)
	w.ip.IOTree.Unlock(t, from, to)
	w.rsv.Release(t, w.ip)
	switch {
	case err != nil || !ok || x.Len < to-from:
		return iopath.BlocksElsewhere
	case x.Type == ordered.Prealloc:
		return iopath.BlocksUnwritten
	}
	return iopath.BlocksWritten
}

// Drain waits for the direct writes in flight. i_rwsem is held exclusive.
func (s *labSectors) Drain(t *sched.Task) { s.w.drain(t) }

// Submit gives the sectors to the device, with zeros around them where the blocks are not written.
// It reports whether it did: the blocks may be elsewhere by now.
func (s *labSectors) Submit(t *sched.Task) bool {
	w := s.w
	w.io = nil
	if s.err = w.ready(t, true); s.err == nil {
		s.x, s.err = w.submit(t)
	}
	if s.err != nil && w.io != nil {
		s.err = w.end(t, s.x, s.err)
	}
	return s.err == nil
}

// Wait waits for the end of what Submit began, and marks the blocks written.
func (s *labSectors) Wait(t *sched.Task) { s.err = s.w.end(t, s.x, nil) }

// Cache lets the write go through the page cache when the lab's function has returned.
func (s *labSectors) Cache() { s.err = iopath.ThroughCache }

package direct

import (
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/place"
	"btrlab/internal/iopath"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched"
)

// steps is a write of sectors whose steps are a lab's to order: iopath.SectorWrite. What each does
// is what the designs do.
type steps struct {
	w   *write
	x   place.Extent
	err error
}

// bySteps lets Env.Sectors carry out the write.
func (w *write) bySteps(t *sched.Task) error {
	w.unlockFile(t)
	own := *w // w stays on its task's stack: others allocate nothing
	s := &steps{w: &own}
	own.env.Sectors(t, s)
	own.pl.Lock = policy.LockNone // it has let i_rwsem go
	own.rsv.Release(t, own.ip)
	*w = own
	return s.err
}

func (s *steps) locked(t *sched.Task, l policy.Lock) {
	w := s.w
	f := w.facts(t, l == policy.LockInode)
	w.pl.ForWrite(&f, w.env.Policy())
	w.pl.Lock, w.pl.ForceWait, w.pl.CheckUnwritten, w.pl.SyncHeld = l, true, false, false
}

// Share takes i_rwsem shared.
func (s *steps) Share(t *sched.Task) {
	s.w.ip.RLock(t)
	s.locked(t, policy.LockShared)
}

// Alone takes i_rwsem exclusive.
func (s *steps) Alone(t *sched.Task) {
	s.w.ip.Lock(t)
	s.locked(t, policy.LockInode)
}

// Unlock lets i_rwsem go.
func (s *steps) Unlock(t *sched.Task) { s.w.unlockFile(t) }

// Inside reports whether the write ends inside EOF, as that was when i_rwsem was taken.
func (s *steps) Inside() bool { return s.w.pos+uint64(len(s.w.src)) <= s.w.isize }

// Look says what the blocks of the write are.
func (s *steps) Look(t *sched.Task) iopath.Blocks {
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
func (s *steps) Drain(t *sched.Task) { s.w.drain(t) }

// Submit gives the sectors to the device, with zeros around them where the blocks are not written.
// It reports whether it did: the blocks may be elsewhere by now.
func (s *steps) Submit(t *sched.Task) bool {
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
func (s *steps) Wait(t *sched.Task) { s.err = s.w.end(t, s.x, nil) }

// Cache lets the write go through the page cache when the lab's function has returned.
func (s *steps) Cache() { s.err = iopath.ThroughCache }

package buffered

import (
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched"
)

// steps is a write whose locking is a lab's to order: iopath.LockedWrite. What each step does is what Write does.
type steps struct {
	w   *write
	err error
}

// bySteps lets Env.Locking carry out the write. The plan of the policy counts for its batches only.
func (w *write) bySteps(t *sched.Task) error {
	own := *w // w stays on its task's stack: others allocate nothing
	own.pl.DIOBegin, own.pl.Prewait, own.pl.Lock = false, false, policy.LockInode
	s := &steps{w: &own}
	own.env.Locking(t, s)
	*w = own
	return s.err
}

// Share takes i_rwsem shared, Lock exclusive; Unshare and Unlock let it go.
func (s *steps) Share(t *sched.Task)   { s.w.ip.RLock(t) }
func (s *steps) Unshare(t *sched.Task) { s.w.ip.RUnlock(t) }
func (s *steps) Lock(t *sched.Task)    { s.w.ip.Lock(t) }
func (s *steps) Unlock(t *sched.Task)  { s.w.ip.Unlock(t) }

// Size is i_size, with or without i_rwsem.
func (s *steps) Size(t *sched.Task) uint64 { return s.w.ip.Size(t) }

// Place says where the write goes: an append to i_size as it is now. It notes i_size, from which Copy zeroes up to the write.
// Models generic_write_checks().
func (s *steps) Place(t *sched.Task) uint64 {
	w := s.w
	w.isize = w.ip.Size(t)
	if w.append {
		w.pos = w.isize
	}
	return w.pos
}

// Len is how many bytes are to be written.
func (s *steps) Len() uint64 { return uint64(len(s.w.src.Buf)) }

// Begin and End count the write in i_dio_count.
func (s *steps) Begin(t *sched.Task) { s.w.ip.DIO.Inc(t) }
func (s *steps) End(t *sched.Task)   { s.w.ip.DIO.Dec(t) }

// Copy writes all batches at the position that Place has said last.
func (s *steps) Copy(t *sched.Task) {
	w := s.w
	if s.Len() > format.MaxFileSize-w.pos {
		s.err = errno.EFBIG
		return
	}
	if s.err = w.checkWrite(t); s.err == nil {
		s.err = w.copyLoop(t)
	}
}

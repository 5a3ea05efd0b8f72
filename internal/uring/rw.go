package uring

import (
	"errors"
	"io"

	"btrlab/internal/errno"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
)

// issue begins q by the submitting task, which must not sleep for it. From here on q is the ring's:
// it may have been completed and used again when issue returns.
//
// Models io_issue_sqe() under IO_URING_F_NONBLOCK and io_queue_async().
//
// Preconditions:
//   - uring_lock is held.
func (r *Ring) issue(t *sched.Task, q *request) {
	r.mu.AssertHeld(t)
	switch {
	case q.Op == Nop:
		r.complete(t, q, 0, nil)
	case q.Op == Cancel:
		r.end(t, q, r.cancelTarget(t, q.Target))
	case q.Op > Cancel || q.File == nil:
		r.end(t, q, errno.EINVAL)
	case q.Async || q.Op == Fsync: // models REQ_F_FORCE_ASYNC; io_fsync_prep() sets it
		r.punt(t, q, reasonAsked)
	case q.Flags&kiocb.Nowait != 0 && q.File.Modes()&kiocb.ModeNowait == 0:
		r.end(t, q, errno.EOPNOTSUPP) // models kiocb_set_rw_flags()
	case r.path != nil:
		r.path.Submit(t, Handle{q})
	case !q.nowaitOffered():
		// The gate. Before seed 001 each buffered write of btrfs was sent away here, without an
		// attempt.
		r.again(t, q)
	default:
		r.attempt(t, q)
	}
}

// nowaitOffered says whether the file takes q with Nowait. Models io_file_supports_nowait() and the
// look at FOP_BUFFER_WASYNC in io_write().
func (q *request) nowaitOffered() bool {
	need := kiocb.ModeNowait
	if q.Op == Write && q.Flags&kiocb.Direct == 0 {
		need |= kiocb.ModeBufferWAsync
	}
	return q.File.Modes()&need == need
}

// attempt tries q with Nowait. Models io_read() and io_write() under IO_URING_F_NONBLOCK.
func (r *Ring) attempt(t *sched.Task, q *request) {
	n, err := q.transfer(t, q.Flags|kiocb.Nowait)
	switch {
	case errors.Is(err, errno.EIOCBQUEUED): // Complete has q, and may have ended it
	case n == 0 && (errors.Is(err, errno.EAGAIN) || errors.Is(err, errno.EOPNOTSUPP)):
		// EOPNOTSUPP is a kind of request for which the file has no Nowait; Linux tries it again
		// without, as well.
		r.again(t, q)
	case n > 0 && n < len(q.Buf) && !errors.Is(err, io.EOF):
		// What stopped it may be gone when a worker goes on, or else stops the worker. Models
		// need_complete_io().
		q.done = n
		if q.Flags&kiocb.Nowait != 0 {
			r.end(t, q, nil)
			return
		}
		r.punt(t, q, reasonShort)
	default:
		q.done = n
		r.end(t, q, err)
	}
}

// again is the end of an attempt that would have slept: the caller's answer, if it said Nowait
// itself, else a worker's work.
func (r *Ring) again(t *sched.Task, q *request) {
	if q.Flags&kiocb.Nowait != 0 {
		r.end(t, q, errno.EAGAIN)
		return
	}
	r.punt(t, q, reasonAgain)
}

// transfer reads or writes what is left of q.
func (q *request) transfer(t *sched.Task, flags kiocb.Flags) (n int, err error) {
	rq := kiocb.Request{Pos: q.Pos + uint64(q.done), Flags: flags}
	was := q.way
	if flags&kiocb.Direct != 0 {
		q.ring.mayOutlive(t, q)
		q.way, rq.Done = queued, q
	}
	p := q.Buf[q.done:]
	if q.Op == Read {
		n, err = q.File.ReadIter(t, rq, p)
	} else {
		n, err = q.File.WriteIter(t, rq, iopath.Source{Buf: p})
	}
	if flags&kiocb.Direct != 0 && !errors.Is(err, errno.EIOCBQUEUED) {
		q.way = was
	}
	return n, err
}

// work carries out q by a worker, which may sleep. Models io_wq_submit_work().
func (r *Ring) work(t *sched.Task, q *request, num int) {
	if q.Op == Fsync {
		r.end(t, q, q.File.Fsync(t))
		return
	}
	if r.path != nil {
		r.path.Work(t, Handle{q})
		return
	}
	for {
		n, err := q.transfer(t, q.Flags&^kiocb.Nowait)
		if errors.Is(err, errno.EIOCBQUEUED) {
			return
		}
		q.done += n
		if n == 0 || q.done >= len(q.Buf) || errors.Is(err, io.EOF) {
			r.end(t, q, err)
			return
		}
		if r.wq.cancelled(t, num) {
			r.end(t, q, errno.ECANCELED)
			return
		}
	}
}

// end completes q with what it has done, or with err if that is nothing. Models io_rw_fail() and
// io_fixup_rw_res().
func (r *Ring) end(t *sched.Task, q *request, err error) {
	if q.done > 0 || err == nil || errors.Is(err, io.EOF) {
		r.complete(t, q, q.done, nil)
		return
	}
	res := -int(errno.EIO)
	var no errno.Errno
	if errors.As(err, &no) {
		res = -int(no)
	} else if errors.Is(err, errno.EAGAIN) {
		res = -int(errno.EAGAIN)
	}
	r.complete(t, q, res, err)
}

// Complete ends a direct request that was queued; it is a kiocb.Completion. Models
// io_complete_rw().
func (q *request) Complete(t *sched.Task, n int, err error) {
	q.mem.Write(t, q)
	q.done += n
	q.ring.end(t, q, err)
}

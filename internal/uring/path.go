package uring

import (
	"errors"
	"io"

	"btrlab/internal/errno"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
)

// Path decides what becomes of reads and writes in the place of a ring's own submit path. The ring
// keeps what does not depend on it: the queues, the workers and their order, and the requests that
// ask for a worker themselves (Async, fsync).
//
// Difference from the ring's own path: Stats does not count Again, and a worker does not look
// whether it was cancelled between two parts.
type Path struct {
	// Submit is called by the submitting task, which must not sleep. It ends with one of Punt,
	// Complete, and a Try that was queued; afterwards the request is not the caller's.
	//
	// Preconditions:
	//   - uring_lock is held.
	Submit func(t *sched.Task, h Handle)
	// Work is called by a worker, which may sleep. It ends with Complete, or a Transfer that was
	// queued.
	Work func(t *sched.Task, h Handle)
}

// Handle is a request while it is its Path's.
type Handle struct{ q *request }

// Nowait says that the caller said RWF_NOWAIT.
func (h Handle) Nowait() bool { return h.q.Flags&kiocb.Nowait != 0 }

// Done is the bytes that Advance has counted.
func (h Handle) Done() int { return h.q.done }

// Left is the bytes that Advance has not counted.
func (h Handle) Left() int { return len(h.q.Buf) - h.q.done }

// Advance counts n bytes as moved: the next Try or Transfer begins after them.
func (h Handle) Advance(n int) { h.q.done += n }

// Try moves bytes with Nowait and returns how many. EAGAIN means that it would have slept, or that
// the file does not take such a request with Nowait; EIOCBQUEUED that the request is on its way:
// its own end completes it.
func (h Handle) Try(t *sched.Task) (int, error) {
	if !h.q.nowaitOffered() {
		return 0, errno.EAGAIN
	}
	n, err := h.q.transfer(t, h.q.Flags|kiocb.Nowait)
	if n == 0 && errors.Is(err, errno.EOPNOTSUPP) {
		return 0, errno.EAGAIN // a kind of request for which the file has no Nowait
	}
	return n, err
}

// Transfer moves bytes and may sleep.
func (h Handle) Transfer(t *sched.Task) (int, error) {
	return h.q.transfer(t, h.q.Flags&^kiocb.Nowait)
}

// Punt gives the request to a worker.
//
// Preconditions:
//   - uring_lock is held.
func (h Handle) Punt(t *sched.Task) {
	why := reasonAsked
	if h.q.done > 0 {
		why = reasonShort
	}
	h.q.ring.punt(t, h.q, why)
}

// Complete ends the request: with err, or with n bytes if there is none.
func (h Handle) Complete(t *sched.Task, n int, err error) {
	if h.q.done = n; err != nil && !errors.Is(err, io.EOF) {
		h.q.done = 0
	}
	h.q.ring.end(t, h.q, err)
}

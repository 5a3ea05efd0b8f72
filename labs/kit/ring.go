package kit

import (
	"errors"
	"io"

	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// What Try and Transfer answer beside a number of bytes; ask with errors.Is.
const (
	// EAGAIN is Try's: it would have slept.
	EAGAIN = errno.EAGAIN
	// EIOCBQUEUED says that a device has the request: its own end completes it.
	EIOCBQUEUED = errno.EIOCBQUEUED
)

// RingRequest is the ring's side of a Request; uring.Handle is one.
type RingRequest interface {
	Nowait() bool
	Done() int
	Left() int
	Advance(n int)
	Try(t *sched.Task) (int, error)
	Transfer(t *sched.Task) (int, error)
	Punt(t *sched.Task)
	Complete(t *sched.Task, n int, err error)
}

// Request is one read or write that a ring was given, while it is yours. It is so until one of
// these: Punt, Complete, or a Try or Transfer that answers EIOCBQUEUED. After that it may have
// ended and be another request already.
//
// Model: struct io_kiocb with its struct io_rw. Difference: a use after the end is a panic here, in
// Linux it is memory of somebody else.
type Request struct {
	ring   RingRequest
	worker bool
	gone   string // what ended it
}

// owned panics, in words for the student, if q is not the caller's any more.
func (q *Request) owned(call string) {
	if q.gone != "" {
		panic("kit.Request." + call + " after " + q.gone + ": the request is not yours any more")
	}
}

// mine is owned for calls with a task.
func (q *Request) mine(t *Task, call string) {
	t.need("Request", call, "Submit and Work were")
	q.owned(call)
}

// Nowait says that the caller said RWF_NOWAIT: nobody may sleep for this request, no worker either.
func (q *Request) Nowait() bool { q.owned("Nowait"); return q.ring.Nowait() }

// Done is the bytes that Advance has counted, by you or by the submitting task before you.
func (q *Request) Done() int { q.owned("Done"); return q.ring.Done() }

// Left is the bytes that Advance has not counted.
func (q *Request) Left() int { q.owned("Left"); return q.ring.Left() }

// Advance counts n bytes as moved: the next Try or Transfer begins after them.
func (q *Request) Advance(n int) {
	q.owned("Advance")
	if n < 0 || n > q.ring.Left() {
		panic("kit.Request.Advance by more than is left")
	}
	q.ring.Advance(n)
}

// Try moves what is left, or the beginning of it, if that needs no sleep, and returns how many
// bytes it moved.
func (q *Request) Try(t *Task) (int, error) {
	q.mine(t, "Try")
	n, err := q.ring.Try(t.t)
	return q.answer(n, err)
}

// Transfer moves what is left, or the beginning of it. It may sleep: only a worker calls it.
func (q *Request) Transfer(t *Task) (int, error) {
	q.mine(t, "Transfer")
	if !q.worker {
		panic("kit.Request.Transfer by the submitting task: it may sleep, and the other requests would wait with it")
	}
	n, err := q.ring.Transfer(t.t)
	return q.answer(n, err)
}

func (q *Request) answer(n int, err error) (int, error) {
	if errors.Is(err, EIOCBQUEUED) {
		q.gone = "EIOCBQUEUED"
	}
	if errors.Is(err, io.EOF) {
		err = nil // a read that ends with the file is short and has no error
	}
	return n, err
}

// Punt gives the request to a worker, with what Advance has counted.
func (q *Request) Punt(t *Task) {
	q.mine(t, "Punt")
	if q.worker {
		panic("kit.Request.Punt by a worker: it has the request already")
	}
	q.gone = "Punt"
	q.ring.Punt(t.t)
}

// Complete ends the request. The caller is told err, or n bytes if err is nil.
func (q *Request) Complete(t *Task, n int, err error) {
	q.mine(t, "Complete")
	q.gone = "Complete"
	q.ring.Complete(t.t, n, err)
}

// SubmitPath is what becomes of the requests of a ring: Submit is called by the task that submits,
// Work by a worker after a Punt.
type SubmitPath struct {
	Submit, Work func(t *Task, q *Request)
}

// Run calls Submit or Work and sees to it that neither forgets the request.
func (p SubmitPath) Run(t *sched.Task, r RingRequest, worker bool) {
	q := &Request{ring: r, worker: worker}
	if worker {
		p.Work(On(t), q)
	} else {
		p.Submit(On(t), q)
	}
	switch {
	case q.gone != "":
	case worker:
		panic("Work has returned, and the request has no completion: the caller waits for ever")
	default:
		panic("Submit has returned, and the request has neither a completion nor a worker: the caller waits for ever")
	}
}

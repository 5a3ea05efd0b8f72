// Package aio is Linux's older asynchronous interface, which fio's libaio uses. It carries out a
// request in the call that submits it, and only a direct request that the file queues ends later: a
// buffered one blocks io_submit.
//
// The life of a request:
//
//	Submit       slots: one for each request until its event is taken        none left: EAGAIN
//	  WriteIter    ended: its event stands in the ring before Submit returns
//	               queued: Complete ends it, by another task
//	GetEvents    sleeps until there are enough events, and takes them        the slot is free
//
// Nothing is held when Submit calls a File; aio_completion is a leaf.
//
// Model: fs/aio.c. Differences: no polling, no eventfd, and an event is never read past the kernel.
package aio

import (
	"errors"
	"io"

	"btrlab/internal/errno"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

var (
	completionClass = lockdep.NewClass("aio_completion")
	// eventsClass is the wait for events. Nothing is held then.
	eventsClass = lockdep.NewClass("aio_events")
)

// File is a file that requests read and write; fs.File is one.
type File interface {
	ReadIter(t *sched.Task, rq kiocb.Request, p []byte) (int, error)
	WriteIter(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error)
}

// IOCB is a request. It is the context's from Submit until its event is taken. Models struct iocb.
type IOCB struct {
	Write bool
	File  File
	Pos   uint64
	Flags kiocb.Flags
	Buf   []byte
	// Data is the caller's.
	Data uint64

	ctx  *Context
	n    int // how it ended
	err  error
	over bool
	next *IOCB
}

// Ended says how the request ended, once Submit or GetEvents has seen it; it is for the task that
// uses the context.
func (x *IOCB) Ended() (n int, err error, ok bool) {
	if !x.over {
		return 0, nil, false // Complete may be writing the rest
	}
	return x.n, x.err, true
}

// Event is the end of a request. Models struct io_event.
type Event struct {
	IOCB *IOCB
	// N is the bytes that were moved, and Err what ended the request early, if something did.
	N   int
	Err error
}

// Context is the requests of one task, which calls its methods. Models struct kioctx.
type Context struct {
	ring   []Event // ended requests, from head on
	head   int
	events int
	slots  int // requests that may be submitted
	queued int // requests that the file has queued and whose ends are not in the ring

	mu     lock.Mutex // aio_completion; protects the fields below
	mem    sched.Shared
	more   lock.Cond
	ended  *IOCB // queued requests that have ended, the oldest first
	last   *IOCB
	endedN int
	want   int // of endedN, by the task that waits; 0 is none
}

// Setup makes a context for up to n requests at a time. Models io_setup(2).
func Setup(n int) (*Context, error) {
	if n < 1 {
		return nil, errno.EINVAL
	}
	c := &Context{ring: make([]Event, n), slots: n}
	c.mu.Init(completionClass)
	c.more.Init(&c.mu, eventsClass)
	return c, nil
}

func (c *Context) String() string { return "the events of an aio context" }

// Submit carries out or begins the requests in their order, and returns how many; EAGAIN when there
// was no slot for the first.
//
// Models io_submit(2).
func (c *Context) Submit(t *sched.Task, list []*IOCB) (int, error) {
	if t.BeginTaskWork() {
		defer t.EndTaskWork()
	}
	for i, x := range list {
		if c.slots == 0 {
			if i == 0 {
				return 0, errno.EAGAIN
			}
			return i, nil
		}
		c.slots--
		t.Spend(cost.AIO, 1)
		x.ctx = c
		rq := kiocb.Request{Pos: x.Pos, Flags: x.Flags, Done: x}
		var n int
		var err error
		if x.Write {
			n, err = x.File.WriteIter(t, rq, iopath.Source{Buf: x.Buf})
		} else {
			n, err = x.File.ReadIter(t, rq, x.Buf)
		}
		if errors.Is(err, errno.EIOCBQUEUED) {
			c.queued++
		} else {
			c.add(x, n, err)
		}
	}
	return len(list), nil
}

// add puts the end of x into the ring.
func (c *Context) add(x *IOCB, n int, err error) {
	if n > 0 || errors.Is(err, io.EOF) {
		err = nil // what stopped a request in the middle is the next one's error
	}
	x.n, x.err, x.over = n, err, true
	c.ring[(c.head+c.events)%len(c.ring)] = Event{x, n, err}
	c.events++
}

// Complete ends a queued request; it is a kiocb.Completion and never sleeps. Models
// aio_complete_rw().
func (x *IOCB) Complete(t *sched.Task, n int, err error) {
	c := x.ctx
	c.mu.Lock(t)
	c.mem.Write(t, c)
	x.n, x.err, x.next = n, err, nil
	if c.last == nil {
		c.ended = x
	} else {
		c.last.next = x
	}
	c.last = x
	if c.endedN++; c.want > 0 && c.endedN >= c.want {
		c.want = 0
		c.more.Broadcast(t)
	}
	c.mu.Unlock(t)
}

// GetEvents waits until there are at least atLeast events, or as many as there still will be, and
// moves up to len(dst) of them to dst. Models io_getevents(2). Difference: there a task that waits
// for more than there are requests waits on.
func (c *Context) GetEvents(t *sched.Task, atLeast int, dst []Event) int {
	t.Spend(cost.Events, 1)
	if c.queued > 0 {
		began := t.BeginTaskWork()
		c.collect(t, atLeast-c.events)
		if began {
			t.EndTaskWork()
		}
	}
	n := 0
	for ; n < len(dst) && c.events > 0; n++ {
		dst[n], c.ring[c.head] = c.ring[c.head], Event{}
		c.head = (c.head + 1) % len(c.ring)
		c.events--
		c.slots++
	}
	return n
}

// collect waits until atLeast queued requests have ended, and moves the ends of all that have to
// the ring.
func (c *Context) collect(t *sched.Task, atLeast int) {
	c.mu.Lock(t)
	c.mem.Write(t, c)
	for atLeast = min(atLeast, c.queued); c.endedN < atLeast; c.mem.Write(t, c) {
		c.want = atLeast
		c.more.Wait(t)
	}
	for x := c.ended; x != nil; x = c.ended {
		c.ended, x.next = x.next, nil
		c.add(x, x.n, x.err)
	}
	c.last, c.queued, c.endedN = nil, c.queued-c.endedN, 0
	c.mu.Unlock(t)
}

// Destroy waits for the requests that the file has queued. Their events are lost. Models
// io_destroy(2).
func (c *Context) Destroy(t *sched.Task) {
	if c.queued > 0 {
		c.collect(t, c.queued)
	}
}

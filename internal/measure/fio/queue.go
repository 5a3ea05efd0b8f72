package fio

import (
	"errors"
	"fmt"

	"btrlab/internal/aio"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
	"btrlab/internal/uring"
)

// Queue is the requests that one task has in flight on its files: through the model of a ring or of
// aio, through the kernel's own, or another that completes in any order. Models fio's struct
// ioengine_ops.
type Queue interface {
	// Prep puts a request into the queue, for a file by its number among the task's. p is the
	// queue's until the request has ended. tag is below the queue's depth, and no two requests in
	// flight share it.
	Prep(t *sched.Task, file, dir int, p []byte, off int64, tag uint32) error
	// Submit starts what Prep put in.
	Submit(t *sched.Task) error
	// Wait sleeps until n requests have ended, which are in flight. looked is true when a look at
	// memory was enough: no time has passed.
	Wait(t *sched.Task, n int) (looked bool, err error)
	// Reap takes the end of a request: the bytes moved, or the error. ok is false when none has
	// ended.
	Reap(t *sched.Task) (tag uint32, n int, err error, ok bool)
	// Close gives the queue back. Nothing is in flight.
	Close(t *sched.Task) error
}

// QueueTarget is a Target with queues of its own, which libaio and io_uring use: each is for this
// file alone, so a task with such a target has one.
type QueueTarget interface {
	Target
	OpenQueue(t *sched.Task, e Engine, depth int, direct bool) (Queue, error)
}

// IterTarget is a Target whose requests have flags and may be queued. fs.File is one. On another
// one a request of io_uring goes to a worker, and one of libaio ends in io_submit.
type IterTarget interface {
	Target
	uring.File
}

// overer is a Queue that knows before Reap, once Submit has returned, which requests have ended
// whole.
type overer interface{ Over(tag uint32) bool }

// openQueue gives the worker the queue of its engine, if that has one.
func (k *worker) openQueue(t *sched.Task) (err error) {
	j := k.job
	own, hasOwn := k.parts[0].target.(QueueTarget)
	var files []uring.File
	for i := range k.parts {
		f := &k.parts[i]
		if j.Nowait && (f.iter == nil || hasOwn) {
			return errors.New("the target does not support nowait=1")
		}
		if j.Sync && j.Write && (f.iter == nil || hasOwn) {
			return errors.New("the target does not support sync=1")
		}
		if f.iter == nil {
			files = append(files, plain{f.target, f.direct})
		} else {
			files = append(files, f.iter)
		}
	}
	if !j.Engine.async() {
		return nil
	}
	switch {
	case hasOwn && len(k.parts) > 1:
		return fmt.Errorf("ioengine=%v: the target's queue is for one file of a task, have %d", j.Engine, len(k.parts))
	case hasOwn && j.ForceAsync > 0:
		return errors.New("the target does not support force_async")
	case hasOwn:
		k.queue, err = own.OpenQueue(t, j.Engine, j.IODepth, j.Direct)
	case j.Engine == IOUring:
		k.queue, err = newRingQueue(t, j, files)
	default:
		k.queue, err = newAIOQueue(j, files)
	}
	if err != nil {
		k.queue = nil
		return fmt.Errorf("ioengine=%v: %w", j.Engine, err)
	}
	k.overs, _ = k.queue.(overer)
	k.ring, _ = k.queue.(*ringQueue)
	return nil
}

// plain makes a uring.File of a Target: none of its requests can be tried without a wait, and none
// is queued.
type plain struct {
	Target
	direct DirectTarget
}

func (p plain) Modes() kiocb.Modes { return 0 }
func (p plain) Ino() format.Ino    { return 0 }

func (p plain) ReadIter(t *sched.Task, rq kiocb.Request, b []byte) (int, error) {
	if rq.Flags&kiocb.Direct != 0 {
		return p.direct.ReadDirect(t, b, int64(rq.Pos))
	}
	return p.ReadAt(t, b, int64(rq.Pos))
}

func (p plain) WriteIter(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error) {
	if rq.Flags&kiocb.Direct != 0 {
		return p.direct.WriteDirect(t, src.Buf, int64(rq.Pos))
	}
	return p.WriteAt(t, src.Buf, int64(rq.Pos))
}

// aioQueue submits by io_submit and waits by io_getevents. Models engines/libaio.c.
type aioQueue struct {
	c      *aio.Context
	files  []uring.File
	flags  kiocb.Flags
	iocbs  []aio.IOCB // by tag
	prep   []*aio.IOCB
	events []aio.Event
	first  int // events[first:got] were not reaped
	got    int
	most   int // to ask for at once, unless more are waited for
}

func newAIOQueue(j *Job, files []uring.File) (*aioQueue, error) {
	c, err := aio.Setup(j.IODepth)
	if err != nil {
		return nil, err
	}
	return &aioQueue{c: c, files: files, flags: j.flags(), iocbs: make([]aio.IOCB, j.IODepth), events: make([]aio.Event, j.IODepth), most: j.most()}, nil
}

func (q *aioQueue) Prep(_ *sched.Task, file, dir int, p []byte, off int64, tag uint32) error {
	x := &q.iocbs[tag]
	*x = aio.IOCB{Write: dir == DirWrite, File: q.files[file], Pos: uint64(off), Flags: q.flags, Buf: p, Data: uint64(tag)}
	q.prep = append(q.prep, x)
	return nil
}

func (q *aioQueue) Submit(t *sched.Task) error {
	n, err := q.c.Submit(t, q.prep)
	if err == nil && n < len(q.prep) {
		err = errno.EAGAIN
	}
	q.prep = q.prep[:0]
	return err
}

func (q *aioQueue) Over(tag uint32) bool {
	x := &q.iocbs[tag]
	n, err, ok := x.Ended()
	return ok && err == nil && n == len(x.Buf)
}

func (q *aioQueue) Wait(t *sched.Task, n int) (looked bool, err error) {
	q.got, q.first = copy(q.events, q.events[q.first:q.got]), 0
	if q.got >= n {
		return true, nil
	}
	q.got += q.c.GetEvents(t, n-q.got, q.events[q.got:max(n, q.most)])
	return false, nil
}

func (q *aioQueue) Reap(*sched.Task) (tag uint32, n int, err error, ok bool) {
	if q.first == q.got {
		return 0, 0, nil, false
	}
	e := &q.events[q.first]
	q.first++
	return uint32(e.IOCB.Data), e.N, e.Err, true
}

func (q *aioQueue) Close(t *sched.Task) error {
	q.c.Destroy(t)
	return nil
}

// ringQueue submits and waits by io_uring_enter. Models engines/io_uring.c.
type ringQueue struct {
	r     *uring.Ring
	files []uring.File
	flags kiocb.Flags
	async int // every so many requests one goes to a worker without an attempt; 0 is none
	count int
	cqes  []uring.CQE
	first int // cqes[first:got] were not reaped
	got   int
	most  int // to take at once, unless more are waited for
}

func newRingQueue(t *sched.Task, j *Job, files []uring.File) (*ringQueue, error) {
	r, err := uring.New(t, uring.Config{Entries: j.IODepth})
	if err != nil {
		return nil, err
	}
	return &ringQueue{r: r, files: files, flags: j.flags(), async: j.ForceAsync, cqes: make([]uring.CQE, j.IODepth), most: j.most()}, nil
}

func (q *ringQueue) Prep(_ *sched.Task, file, dir int, p []byte, off int64, tag uint32) error {
	s := q.r.GetSQE() // there is one: the queue has iodepth entries
	s.Op, s.File, s.Flags, s.Pos, s.Buf, s.UserData = uring.Read, q.files[file], q.flags, uint64(off), p, uint64(tag)
	if dir == DirWrite {
		s.Op = uring.Write
	}
	if q.async > 0 {
		if q.count++; q.count == q.async {
			q.count, s.Async = 0, true
		}
	}
	return nil
}

func (q *ringQueue) Submit(t *sched.Task) error {
	_, err := q.r.Submit(t)
	return err
}

// Wait looks at the completions first, as fio does, and enters the ring only when there are too
// few.
func (q *ringQueue) Wait(t *sched.Task, n int) (looked bool, err error) {
	q.got, q.first, looked = copy(q.cqes, q.cqes[q.first:q.got]), 0, true
	for end := max(n, q.most); q.got < n; {
		if q.got += q.r.Reap(t, q.cqes[q.got:end]); q.got < n {
			q.r.Wait(t, n-q.got)
			looked = false
		}
	}
	return looked, nil
}

func (q *ringQueue) Reap(*sched.Task) (tag uint32, n int, err error, ok bool) {
	if q.first == q.got {
		return 0, 0, nil, false
	}
	c := &q.cqes[q.first]
	q.first++
	return uint32(c.UserData), max(c.Res, 0), c.Err, true
}

// stats is which way the ring's requests went, so far.
func (q *ringQueue) stats(t *sched.Task) stats.Ring {
	return stats.Ring{Stats: q.r.Stats(t), Workers: int64(q.r.Workers(t))}
}

func (q *ringQueue) Close(t *sched.Task) error {
	q.r.Close(t)
	return nil
}

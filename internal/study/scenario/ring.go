package scenario

import (
	"errors"
	"fmt"
	"io"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/uring"
)

// The requests of a submission stand together in Task.Ops: the task submits them, then takes their
// completions one at a time, as they come. To the oracle all of them begin at the submission, and
// each ends when its completion is taken: they are concurrent. What else a ring promises is judged
// in completed: a write without NOWAIT is whole, and writes that only workers get end in their
// order.

// ringWorkers is the most workers of a task's ring: two works that must wait for each other could
// run side by side.
const ringWorkers = 2

// ringEntries is the size of a submission queue.
const ringEntries = 8

// byWorker reports whether only a worker carries the operation out, after those before it: a
// buffered write that is not tried.
func (o *Op) byWorker() bool { return o.Kind == OpWrite && o.Async && !o.Direct }

// ring makes a task's ring.
func (r *run) ring(t *sched.Task) *uring.Ring {
	cfg := uring.Config{Entries: ringEntries, Workers: ringWorkers}
	if r.policy.Wrong(policy.WrongRingRetryWhole) {
		cfg.Path = retryWhole
	}
	x, err := uring.New(t, cfg)
	if err != nil {
		panic(err)
	}
	return x
}

// submit carries out a submission whose first operation has the number first.
func (r *run) submit(t *sched.Task, ring *uring.Ring, ops []Op, first oracle.ID) {
	hist, bufs := make([]oracle.Op, len(ops)), make([][]byte, len(ops))
	next := 0 // the first whose turn with the workers it is
	skip := func() {
		for next < len(ops) && !ops[next].byWorker() {
			next++
		}
	}
	skip()
	r.w.Call(t)
	r.tick++
	for i, o := range ops {
		id := first + oracle.ID(i)
		r.note(Begins, id, o)
		hist[i] = oracle.Op{ID: id, Kind: oracle.Write, Lo: o.Off, Hi: o.Off + o.N, Start: r.tick}
		bufs[i] = r.bufs.of(id, o.N)
		e := ring.GetSQE()
		*e = uring.SQE{Async: o.Async, Flags: o.request(0).Flags, File: &ringFile{r, r.first.f.Ino()}, Pos: uint64(r.first.at + o.Off), Buf: bufs[i], UserData: uint64(i)}
		switch o.Kind {
		case OpWrite:
			e.Op = uring.Write
			oracle.Paint(bufs[i], id)
		case OpRead:
			e.Op, hist[i].Kind = uring.Read, oracle.Read
		case OpFsync:
			e.Op = uring.Fsync
		default:
			panic(fmt.Sprintf("scenario: a ring has no %v", o.Kind))
		}
		if r.policy.Wrong(policy.WrongRingUnhashed) {
			e.File = &ringFile{r, r.first.f.Ino() + format.Ino(i)}
		}
	}
	if n, err := ring.Submit(t); n != len(ops) || err != nil {
		panic(fmt.Sprintf("scenario: submitted %d of %d requests: %v", n, len(ops), err))
	}
	var cqe [1]uring.CQE
	for range ops {
		ring.Wait(t, 1)
		if ring.Reap(t, cqe[:]) == 0 {
			r.err = errors.Join(r.err, errors.New("a request has no completion"))
			return
		}
		i := int(cqe[0].UserData)
		if ops[i].byWorker() {
			if i != next {
				r.err = errors.Join(r.err, fmt.Errorf("operation %d ended before operation %d, which the workers had first", int(first)+i, int(first)+next))
			}
			next++
			skip()
		}
		r.completed(t, ops[i], hist[i], cqe[0], bufs[i])
	}
}

// completed enters a request with its completion into the history.
func (r *run) completed(t *sched.Task, o Op, h oracle.Op, c uring.CQE, p []byte) {
	n, err, enter := max(c.Res, 0), c.Err, true
	switch o.Kind {
	case OpWrite:
		h.Hi = o.Off + int64(n)
		h.Batches = r.batches(o, h.Hi)
		enter = n > 0
		if err == nil && n < len(p) && !o.Nowait && !o.Fails {
			err = fmt.Errorf("the completion says %d bytes, want %d", n, len(p))
		}
	case OpRead:
		h.Got = int64(n)
		h.See = unpaint(nil, p[:n], o.Off, r.lastID())
	case OpFsync:
		if enter = false; err == nil {
			r.promised(&r.first, h.Start)
		}
	}
	r.returned(t, o, h, enter, err)
}

// ringFile is the file as the requests of a ring have it: they write in small batches, whichever
// task carries them out.
type ringFile struct {
	r   *run
	ino format.Ino // by which workers tell files apart
}

func (f *ringFile) Ino() format.Ino           { return f.ino }
func (f *ringFile) Modes() kiocb.Modes        { return f.r.first.f.Modes() }
func (f *ringFile) Fsync(t *sched.Task) error { return f.r.first.f.Fsync(t) }
func (f *ringFile) ReadIter(t *sched.Task, rq kiocb.Request, p []byte) (int, error) {
	return f.r.first.f.ReadIter(t, rq, p)
}

func (f *ringFile) WriteIter(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error) {
	t.Dirty = sched.DirtyState{Pause: minBatch}
	return f.r.first.f.WriteIter(t, rq, src)
}

// retryWhole is the submit path of WRONG_RING_RETRY_WHOLE: what an attempt has written is not
// counted, so a worker writes it again.
var retryWhole = &uring.Path{
	Submit: func(t *sched.Task, h uring.Handle) {
		n, err := h.Try(t)
		switch {
		case errors.Is(err, errno.EIOCBQUEUED):
		case !h.Nowait() && n < h.Left() && (n > 0 || errors.Is(err, errno.EAGAIN)) && !errors.Is(err, io.EOF):
			h.Punt(t) // without h.Advance(n)
		default:
			h.Complete(t, n, err)
		}
	},
	Work: func(t *sched.Task, h uring.Handle) {
		for h.Left() > 0 {
			n, err := h.Transfer(t)
			if errors.Is(err, errno.EIOCBQUEUED) {
				return
			}
			if h.Advance(n); err != nil || n == 0 {
				h.Complete(t, h.Done(), err)
				return
			}
		}
		h.Complete(t, h.Done(), nil)
	},
}

package calibrate

import (
	"btrlab/internal/aio"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/uring"
)

// The probes of what lies between a job and a file: a ring, and aio. The file of their requests
// does nothing.

func (nothing) Modes() kiocb.Modes { return kiocb.ModeNowait | kiocb.ModeBufferWAsync }
func (nothing) Ino() format.Ino    { return 1 }

func (nothing) ReadIter(_ *sched.Task, _ kiocb.Request, p []byte) (int, error) { return len(p), nil }
func (nothing) WriteIter(_ *sched.Task, _ kiocb.Request, src iopath.Source) (int, error) {
	return len(src.Buf), nil
}

// ringBatch is the requests of one measurement.
const ringBatch = 64

// ringParts are the times of a batch of requests of one ring, each by itself: their submission, and
// the calls that take them.
func (b *bench) ringParts(async bool) (submit, reap float64) {
	r, err := uring.New(b.t, uring.Config{Entries: ringBatch, Workers: 1})
	if err != nil {
		panic(err) // the ring is ours
	}
	defer r.Close(b.t)
	buf, out := make([]byte, 8), make([]uring.CQE, 1)
	n := 0
	for end := b.t.Now() + b.loop.Nanoseconds(); n == 0 || b.t.Now() < end; n += ringBatch {
		start := b.t.Now()
		for range ringBatch {
			e := r.GetSQE()
			e.Op, e.File, e.Buf, e.Async = uring.Write, nothing{}, buf, async
			if _, err := r.Submit(b.t); err != nil {
				panic(err)
			}
		}
		submit += float64(b.t.Now() - start)
		r.Wait(b.t, ringBatch)
		start = b.t.Now()
		for range ringBatch {
			r.Reap(b.t, out)
		}
		reap += float64(b.t.Now() - start)
	}
	return submit / float64(n), reap / float64(n)
}

// The locks of a request: uring_lock, and uring_completion when it ends.
func (b *bench) ring() float64 {
	submit, _ := b.ringParts(false)
	return max(0, submit-2*b.ns[cost.Lock])
}

func (b *bench) ringReap() float64 {
	_, reap := b.ringParts(false)
	return max(0, reap-b.ns[cost.Lock])
}

// punt is what a submission costs more when a worker gets the request: one lock more, and now and
// then a wake-up.
func (b *bench) punt() float64 {
	submit, _ := b.ringParts(true)
	return max(0, submit-b.ns[cost.Ring]-3*b.ns[cost.Lock])
}

// aioParts are the times of a request's submission and of the call that takes its event.
func (b *bench) aioParts() (submit, take float64) {
	c, err := aio.Setup(ringBatch)
	if err != nil {
		panic(err) // the context is ours
	}
	x := &aio.IOCB{Write: true, File: nothing{}, Buf: make([]byte, 8)}
	list, out := []*aio.IOCB{x}, make([]aio.Event, 1)
	n := 0
	for end := b.t.Now() + b.loop.Nanoseconds(); n == 0 || b.t.Now() < end; n += ringBatch {
		start := b.t.Now()
		for range ringBatch {
			if _, err := c.Submit(b.t, list); err != nil {
				panic(err)
			}
		}
		submit += float64(b.t.Now() - start)
		start = b.t.Now()
		for range ringBatch {
			c.GetEvents(b.t, 1, out)
		}
		take += float64(b.t.Now() - start)
	}
	return submit / float64(n), take / float64(n)
}

func (b *bench) aio() float64 {
	submit, _ := b.aioParts()
	return submit
}

func (b *bench) events() float64 {
	_, take := b.aioParts()
	return take
}

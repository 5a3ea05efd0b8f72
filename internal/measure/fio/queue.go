package fio

import (
	"errors"
	"fmt"
	"io"
	"time"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/measure/stats"
	"btrlab/internal/sched"
)

// Queue is the requests that one task has in flight on one file: the kernel's own queue, or another that completes in any order.
type Queue interface {
	// Prep puts a request into the queue. p is the queue's until the request has ended. tag is below the queue's depth, and no two
	// requests in flight share it.
	Prep(t *sched.Task, dir int, p []byte, off int64, tag uint32) error
	// Submit starts what Prep put in.
	Submit(t *sched.Task) error
	// Wait sleeps until n requests have ended, which are in flight.
	Wait(t *sched.Task, n int) error
	// Reap takes the end of a request: the bytes moved, or the error. ok is false when none has ended.
	Reap(t *sched.Task) (tag uint32, n int, err error, ok bool)
	// Close gives the queue back. Nothing is in flight.
	Close(t *sched.Task) error
}

// QueueTarget is a Target with queues of its own, which libaio and io_uring use.
type QueueTarget interface {
	Target
	OpenQueue(t *sched.Task, e Engine, depth int, direct bool) (Queue, error)
}

// slot is a request in flight.
type slot struct {
	buf           [2][]byte
	p             []byte // of buf, what is not done
	off           int64  // of p
	dir           int
	n             int
	start, issued int64
	write         uint64 // the stamper's name of it
}

// useQueue prepares the worker for a queue of its target's, if the job's engine has one.
func (k *worker) useQueue() bool {
	q, ok := k.file.target.(QueueTarget)
	if !ok || !k.job.Engine.async() {
		return false
	}
	k.queues = q
	k.slots = make([]slot, k.job.IODepth)
	for i := range k.slots {
		for d, b := range k.buf {
			k.slots[i].buf[d] = hostio.Aligned(len(b))
			copy(k.slots[i].buf[d], b)
		}
	}
	return true
}

// queued is the life of a worker with a queue: it returns the time when it ended.
//
// Models fio backend.c:do_io() with iodepth_batch=1: each request is submitted by itself; once iodepth are in flight one at least is
// waited for, and all that have ended are reaped. slat is until the submission has returned, clat from there until the request is
// reaped. Difference: an fsync=N is a call of its own and not a request in the queue.
func (k *worker) queued(t *sched.Task) int64 {
	q, err := k.queues.OpenQueue(t, k.job.Engine, len(k.slots), k.job.Direct)
	if err != nil {
		k.failed = fmt.Errorf("ioengine=%v: %w", k.job.Engine, err)
		return t.Now()
	}
	idle := make([]uint32, len(k.slots))
	for i := range idle {
		idle[i] = uint32(len(idle) - 1 - i)
	}
	start := func(tag uint32) {
		s := &k.slots[tag]
		if err := q.Prep(t, s.dir, s.p, s.off, tag); err != nil && k.failed == nil {
			k.failed = err
		}
		if err := q.Submit(t); err != nil && k.failed == nil {
			k.failed = err
		}
	}
	// reap takes all that has ended, and at least least requests; it gives the time of the last.
	reap := func(least int) (now int64) {
		for got := 0; ; {
			if err := q.Wait(t, least-got); err != nil {
				if k.failed == nil {
					k.failed = err
				}
				return t.Now()
			}
			now = t.Now()
			was := got
			for tag, n, err, ok := q.Reap(t); ok; tag, n, err, ok = q.Reap(t) {
				if k.ended(tag, n, err, now) {
					idle = append(idle, tag)
					got++
				} else {
					start(tag) // the rest of a short one
				}
			}
			if got > was {
				k.res.Complete[stats.BatchLevel(got-was)]++
			}
			if got >= least {
				return now
			}
		}
	}
	now := k.start
	for k.failed == nil && k.due(now) {
		dir, off, n, ok := k.pick()
		if !ok {
			break
		}
		if step := k.rateStep[dir]; step > 0 {
			if wait := k.rateNext[dir] - now; wait > 0 {
				t.Sleep(time.Duration(min(wait, max(0, k.end-now))))
				if now = t.Now(); now >= k.end {
					break
				}
			}
			k.rateNext[dir] += step
		}
		tag := idle[len(idle)-1]
		idle = idle[:len(idle)-1]
		s := &k.slots[tag]
		s.dir, s.off, s.n, s.p = dir, off, n, s.buf[dir][:n]
		if dir == DirWrite {
			k.number++
			s.write = k.fill(s.p, off)
		}
		s.start = t.Now()
		start(tag)
		s.issued = t.Now()
		now = s.issued
		k.res.Depth[stats.DepthLevel(len(k.slots)-len(idle))]++
		k.res.Submit[1]++
		if len(idle) == 0 {
			now = reap(1)
		}
		k.observe(t, now)
		if dir == DirWrite && k.syncDue() {
			k.fsync(t)
			now = t.Now()
		}
	}
	if fly := len(k.slots) - len(idle); fly > 0 {
		now = reap(fly)
	}
	if err := q.Close(t); err != nil && k.failed == nil {
		k.failed = err
	}
	return now
}

// ended takes note of a request that has moved n bytes; false is a short one, of which the rest is to be done.
func (k *worker) ended(tag uint32, n int, err error, now int64) bool {
	s := &k.slots[tag]
	d := &k.res.Read
	if s.dir == DirWrite {
		d = &k.res.Write
	}
	s.p, s.off = s.p[n:], s.off+int64(n)
	if err == nil && len(s.p) > 0 && n > 0 {
		d.Short++
		return false
	}
	if err == nil && len(s.p) > 0 {
		if err = errno.EIO; s.dir == DirRead {
			err = fmt.Errorf("read at %d: %w", s.off, io.ErrUnexpectedEOF)
		}
	}
	if s.dir == DirWrite && k.stamp != nil {
		k.stamp.Done(s.write, s.start, now, err)
	}
	if err == nil && s.dir == DirRead && k.job.Verify && !k.job.Write {
		err = k.checkUnits(s.buf[DirRead][:s.n], s.off-int64(s.n))
	}
	if err != nil {
		k.failed = errors.Join(k.failed, err)
		return true
	}
	d.IOs++
	d.Bytes += uint64(s.n)
	d.Slat.Add(s.issued - s.start)
	d.Clat.Add(now - s.issued)
	d.Lat.Add(now - s.start)
	return true
}

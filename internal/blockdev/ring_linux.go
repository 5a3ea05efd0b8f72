//go:build !portable

package blockdev

import (
	"errors"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// ringDepth is how many bios of a device are with the kernel at a time; the next one waits in
// Submit.
const ringDepth = 256

var (
	ringClass = lockdep.NewClass("device_ring")
	slotClass = lockdep.NewClass("device_slot")
)

// ring is the bios of a File that are on their way through io_uring.
//
//	queue    the submitter: takes a slot, prepares the request, pushes it into the kernel
//	reap     the ring's task: waits for completions, frees the slot, ends the bio
//	redo     a short transfer or EAGAIN: a task of its own does the rest with system calls
//
// The reaping task is made by the first bio and ends with Close. It calls EndIO, which never
// sleeps, so one task is enough; no request has a task of its own.
type ring struct {
	d *File
	q *hostio.Ring

	mu     lock.Mutex // leaf; protects the submission side of q and the fields below
	room   lock.Cond
	free   []uint32
	flying [ringDepth]flight
	reaper *sched.Task
}

// flight is a bio with the kernel.
type flight struct {
	b      *Bio
	n      int
	bounce []byte // the memory that the kernel got, where the bio's is not aligned
}

const stopTag = ringDepth // the request that ends the reaper

func newRing(d *File) (*ring, error) {
	q, err := hostio.NewRing(ringDepth + 1)
	if err != nil {
		return nil, err
	}
	if err := q.Events(); err != nil {
		q.Close()
		return nil, err
	}
	r := &ring{d: d, q: q}
	r.mu.Init(ringClass)
	r.room.Init(&r.mu, slotClass)
	for i := range uint32(ringDepth) {
		r.free = append(r.free, ringDepth-1-i)
	}
	return r, nil
}

// queue gives b to the kernel. It reports false for what a ring does not take: then nothing was
// done.
func (d *File) queue(t *sched.Task, b *Bio) bool {
	r := d.ring
	if r == nil || t.Runtime() != nil || b.Op == OpFlush && d.flags&ReadOnly != 0 {
		return false
	}
	f := flight{b: b, n: b.Len()}
	if b.Op != OpFlush {
		if f.n == 0 || len(b.Vecs) > iovMax {
			return false
		}
		if d.flags&Direct != 0 && !d.aligned(b) {
			if b.Off%d.align != 0 || int64(f.n)%d.align != 0 || f.n > bounceMax {
				return false
			}
			f.bounce = d.getBounce(t)
			if b.Op == OpWrite {
				p := f.bounce
				for _, v := range b.Vecs {
					p = p[copy(p, v):]
				}
			}
		}
	}
	r.mu.Lock(t)
	if r.reaper == nil {
		r.reaper = t.Go("device completions", r.reap)
	}
	for len(r.free) == 0 {
		r.room.Wait(t)
	}
	tag := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	r.flying[tag] = f
	err := r.prepare(b, &f, tag)
	if err != nil {
		panic(err) // the queue has as many entries as there are slots
	}
	submit := r.q.Publish()
	r.mu.Unlock(t)
	if err := r.q.Push(submit, 0); err != nil {
		panic(err) // the ring is ours and open
	}
	return true
}

func (r *ring) prepare(b *Bio, f *flight, tag uint32) error {
	fd, op := r.d.fd, hostio.Read
	switch {
	case b.Op == OpFlush:
		return r.q.Prep(hostio.Sync, fd, nil, 0, 0, tag)
	case b.Op == OpWrite:
		op = hostio.Write
	}
	switch {
	case f.bounce != nil:
		return r.q.Prep(op, fd, f.bounce[:f.n], b.Off, 0, tag)
	case len(b.Vecs) == 1:
		return r.q.Prep(op, fd, b.Vecs[0], b.Off, 0, tag)
	}
	return r.q.PrepVec(op, fd, b.Vecs, b.Off, tag)
}

// reap is the life of the ring's task.
func (r *ring) reap(t *sched.Task) {
	for {
		if err := r.q.Wait(); err != nil {
			panic(err)
		}
		for tag, res, ok := r.q.Next(); ok; tag, res, ok = r.q.Next() {
			if tag == stopTag {
				return
			}
			r.mu.Lock(t)
			f := r.flying[tag]
			r.flying[tag] = flight{}
			r.free = append(r.free, tag)
			r.room.Signal(t)
			r.mu.Unlock(t)
			r.end(t, f, res)
		}
	}
}

// end ends a bio of which the kernel has moved res bytes, or for which it has the error -res.
func (r *ring) end(t *sched.Task, f flight, res int32) {
	b, d := f.b, r.d
	var err error
	if res < 0 {
		err = errno.Errno(-res)
	}
	again := errors.Is(err, errno.EAGAIN) || errors.Is(err, errno.EINTR)
	short := err == nil && b.Op != OpFlush && int(res) < f.n
	if f.bounce != nil {
		if b.Op == OpRead && err == nil && !short {
			p := f.bounce
			for _, v := range b.Vecs {
				p = p[copy(v, p):]
			}
		}
		d.putBounce(t, f.bounce)
	}
	if again || short {
		// whole: what was moved once may be moved twice
		t.Go("device transfer", func(t *sched.Task) { d.finish(t, b) })
		return
	}
	b.Err = d.wrap(b.Op.String(), b, err)
	b.EndIO(t, b)
}

// stop ends the ring's task and gives the ring back. No bio is on its way.
func (d *File) stop() {
	r := d.ring
	if r == nil {
		return
	}
	d.ring = nil
	t := sched.NewTask("device close")
	r.mu.Lock(t)
	reaper := r.reaper
	if reaper != nil {
		if err := r.q.Prep(hostio.Sync, -1, nil, 0, 0, stopTag); err != nil {
			panic(err)
		}
	}
	r.mu.Unlock(t)
	if reaper != nil {
		if err := r.q.Enter(0); err != nil {
			panic(err)
		}
		t.Join(reaper)
	}
	r.q.Close()
}

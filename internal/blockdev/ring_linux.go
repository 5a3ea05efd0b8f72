//go:build !portable

package blockdev

import (
	"errors"
	"sync"
	"sync/atomic"

	"btrlab/internal/errno"
	"btrlab/internal/hostio"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

const (
	// ringDepth is how many bios of a device are with the kernel at a time; the next one waits in
	// Submit.
	ringDepth = 256
	// kickTag is the tag of the request that ends a sleep in Poll; no bio has it.
	kickTag = ringDepth + 1
	// aloneAfter is how many bios in a row are one task's before that counts as alone. One bio is
	// no sign: of tasks that wait for one each, some task is always the first.
	aloneAfter = 8
)

var (
	ringClass = lockdep.NewClass("device_ring")
	slotClass = lockdep.NewClass("device_slot")
)

// ring is the bios of a File that are on their way through io_uring.
//
//	queue    the submitter: takes a slot, prepares the request, pushes it into the kernel
//	endAll   takes completions, frees their slots, ends their bios
//	redo     a short transfer or EAGAIN: a task of its own does the rest with system calls
//
// The bios are ended by a task that is there anyhow, if it is alone with its own:
//
//	queue    looks for completions after it has pushed a request
//	Poll     a task that waits for its bio sleeps in the kernel, where a completion wakes it
//
// Else by the ring's task, which waits for the signal that a completion sends (reap). It is made by
// the first bio and ends with Close; no request has a task of its own. Where many tasks have bios
// in flight it ends several at a time, and then wakes as few threads as there are processors; a
// task that took those of others would wake one thread for each.
//
// A completion is not lost, whichever task sees it:
//   - one that comes while signals are off (look) is seen by lookAway, which turns them on first
//     and looks second
//   - a task that finds another in endAll (taking) leaves it the completion: that one lets go first
//     and looks second
//   - the task in Poll sleeps with taking held, so nobody takes away the completion of a Kick,
//     which might otherwise be gone before the sleep has begun
//
// IORING_SETUP_COOP_TASKRUN, SINGLE_ISSUER and DEFER_TASKRUN do not hold here. They let a
// completion wait until the thread that submitted the request enters the kernel again; a goroutine
// may compute on that thread meanwhile, for another task. With COOP_TASKRUN a read whose submitter
// went on to compute ended after 3 ms in the middle, 0.2 ms without. A registered file changed
// nothing that can be measured. Registered buffers would have to be those of the callers, who
// bring memory of their own.
type ring struct {
	d *File
	q kernel

	mu     lock.Mutex // leaf; protects the fields below
	room   lock.Cond
	free   []uint32
	flying [ringDepth]flight
	reaper *sched.Task
	last   *atomic.Int32 // the count of the last submitter

	sq     sync.Mutex // leaf; protects the submission side of q, and closed
	closed bool
	inside sync.WaitGroup // tasks in submit and Poll: the end of the last bio may let others close

	busy    atomic.Int32 // bios in flight
	streak  atomic.Int64 // bios that the last submitter has submitted since any other; under mu
	looking atomic.Int32 // tasks between look and lookAway
	taking  sync.Mutex   // protects the completion side of q, and ender
	ender   *sched.Task  // the task of the ends of bios, on the goroutine that has taking
	self    sched.Poller
}

// kernel is the hostio.Ring of a ring.
type kernel interface {
	Prep(op hostio.Op, fd int, p []byte, off int64, flags uint32, tag uint32) error
	PrepVec(op hostio.Op, fd int, vecs [][]byte, off int64, tag uint32) error
	PrepNop(tag uint32) error
	Publish() (submit uint32)
	Push(submit uint32, wait int) error
	Ready() bool
	Next() (tag uint32, res int32, ok bool)
	Notify(on bool)
	Wait() error
	Wake() error
	Close() error
}

// flight is a bio with the kernel.
type flight struct {
	b      *Bio
	of     *atomic.Int32 // the count of the submitter's
	n      int
	bounce []byte // the memory that the kernel got, where the bio's is not aligned
}

// NoRing says why a File that is opened with Ring has none; nil when it has one.
func NoRing() error {
	q, err := hostio.NewRing(1)
	if err != nil {
		return err
	}
	return q.Close()
}

func newRing(d *File) (*ring, error) {
	q, err := hostio.NewRing(ringDepth + 1)
	if err != nil {
		return nil, err
	}
	if err := q.Events(); err != nil {
		q.Close()
		return nil, err
	}
	return ringOn(d, q), nil
}

func ringOn(d *File, q kernel) *ring {
	r := &ring{d: d, q: q, ender: sched.NewTask("device completions")}
	r.self = r
	r.mu.Init(ringClass)
	r.room.Init(&r.mu, slotClass)
	for i := range uint32(ringDepth) {
		r.free = append(r.free, ringDepth-1-i)
	}
	return r
}

// queue gives b to the kernel. It reports false for what a ring does not take: then nothing was
// done.
func (d *File) queue(t *sched.Task, b *Bio) bool {
	r := d.ring
	if r == nil || t.Runtime() != nil || b.Op == OpFlush && d.flags&ReadOnly != 0 {
		return false
	}
	f := flight{b: b, of: t.PollAt(&r.self), n: b.Len()}
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
	r.submit(t, f)
	return true
}

// submit gives f to the kernel. It sleeps while there is no slot.
func (r *ring) submit(t *sched.Task, f flight) {
	r.inside.Add(1)
	defer r.inside.Done()
	tag := r.slot(t, f)
	alone := r.alone(f.of)
	if alone {
		r.look()
	}
	r.sq.Lock()
	if err := r.prepare(&f, tag); err != nil {
		panic(err) // the queue has as many entries as there are slots
	}
	n := r.q.Publish()
	r.sq.Unlock()
	if err := r.q.Push(n, 0); err != nil {
		panic(err) // the ring is ours and open
	}
	if alone {
		r.take(t)
		r.lookAway(t)
	}
}

// slot waits for a free slot and gives it to f.
func (r *ring) slot(t *sched.Task, f flight) (tag uint32) {
	r.mu.Lock(t)
	if r.reaper == nil {
		r.reaper = t.Go("device completions", r.reap)
	}
	for len(r.free) == 0 {
		r.room.Wait(t)
	}
	tag = r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	r.flying[tag] = f
	r.busy.Add(1)
	f.of.Add(1)
	if r.last == f.of {
		r.streak.Add(1)
	} else {
		r.last = f.of
		r.streak.Store(1)
	}
	r.mu.Unlock(t)
	return tag
}

// alone reports whether the task with this count has submitted the last bios, aloneAfter at least,
// and all that are in flight. It is a guess where that task submits to other devices as well:
// enough to choose the task that ends the bios.
func (r *ring) alone(inFlight *atomic.Int32) bool {
	n := r.busy.Load()
	return n > 0 && inFlight.Load() == n && r.streak.Load() >= aloneAfter
}

func (r *ring) prepare(f *flight, tag uint32) error {
	b, fd, op := f.b, r.d.fd, hostio.Read
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

// look says that the caller is going to look for completions: they need no signal.
func (r *ring) look() {
	if r.looking.Add(1) == 1 {
		r.q.Notify(false)
	}
}

// lookAway ends look. A completion that came since the caller looked last sent no signal.
func (r *ring) lookAway(t *sched.Task) {
	if r.looking.Add(-1) == 0 {
		r.q.Notify(true)
		r.take(t)
	}
}

// take ends the bios that have completed, unless another task is at it.
func (r *ring) take(t *sched.Task) {
	for r.q.Ready() && r.taking.TryLock() {
		r.endAll(t)
		r.taking.Unlock()
	}
}

// endAll ends the bios that have completed, on the goroutine of task by, and returns how many.
// Under taking.
func (r *ring) endAll(by *sched.Task) (n int) {
	t := r.ender
	t.LendTaskWork(by)
	defer t.LendTaskWork(nil)
	for tag, res, ok := r.q.Next(); ok; tag, res, ok = r.q.Next() {
		if tag == kickTag {
			continue
		}
		r.mu.Lock(t)
		f := r.flying[tag]
		r.flying[tag] = flight{}
		r.free = append(r.free, tag)
		r.room.Signal(t)
		r.mu.Unlock(t)
		r.busy.Add(-1)
		f.of.Add(-1)
		r.end(t, f, res)
		n++
	}
	return n
}

// Poll is sched.Poller's.
func (r *ring) Poll(t *sched.Task, inFlight *atomic.Int32) {
	if !r.alone(inFlight) || !r.taking.TryLock() {
		return
	}
	r.inside.Add(1)
	defer r.inside.Done()
	r.look()
	for {
		n := r.endAll(t)
		if t.Woken() || !r.alone(inFlight) {
			break
		}
		if n > 0 {
			t.Yield() // the ends may have woken tasks, which would wait for this processor
			continue
		}
		t.WakeTaskWork()
		if !t.BeginPoll() {
			break
		}
		err := r.q.Push(0, 1)
		t.EndPoll()
		if err != nil {
			panic(err)
		}
	}
	r.taking.Unlock()
	r.lookAway(t)
}

// Kick is sched.Poller's.
func (r *ring) Kick() {
	r.sq.Lock()
	defer r.sq.Unlock()
	if r.closed {
		return
	}
	if err := r.q.PrepNop(kickTag); err != nil {
		panic(err)
	}
	if err := r.q.Push(r.q.Publish(), 0); err != nil {
		panic(err)
	}
}

// reap is the life of the ring's task.
func (r *ring) reap(t *sched.Task) {
	for {
		if err := r.q.Wait(); err != nil {
			panic(err)
		}
		r.sq.Lock()
		closed := r.closed
		r.sq.Unlock()
		if closed {
			return
		}
		r.take(t)
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
	r.Kick() // a task may still sleep in Poll: for something else than a bio
	r.sq.Lock()
	r.closed = true
	r.sq.Unlock()
	r.inside.Wait()
	if r.reaper != nil {
		if err := r.q.Wake(); err != nil {
			panic(err)
		}
		sched.NewTask("device close").Join(r.reaper)
	}
	r.q.Close()
}

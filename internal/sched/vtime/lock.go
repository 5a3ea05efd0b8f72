package vtime

import (
	"fmt"
	"slices"
	"time"

	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// How the kernel's locks wait (kernel/locking/rwsem.c, mutex.c):
//
//	free                     take it, although others are queued: stealing
//	owner runs on a CPU      spin, first come first served, until it lets go or stops running
//	else                     queue and sleep; who lets the lock go wakes the first
//	first, woken, too late   sleep again; after Machine.Handoff ask that the lock be handed over
//	readers                  queue behind anybody; the first of the queue is a reader: all readers get it, up to readerBatch
//
// Linux before 5.3 does not hand over, and does not wake the first of the queue while somebody spins. Machine.Handoff < 0 is that.
// A page lock (LockBit) does not spin. A spinlock (LockSpin) never changes tasks: its holder's time of acquire and
// release are known when the next one comes, who is charged what is left.

// readerBatch is how many readers get the lock at once. Models MAX_READERS_WAKEUP.
const readerBatch = 256

// NewLock makes a lock.
func (w *World) NewLock(kind sched.LockKind, class sched.ClassID) sched.SimLock {
	switch kind {
	case sched.LockSpin:
		return &spinlock{w: w, class: class, cpu: -1}
	default:
		return &sleeper{w: w, class: class, spins: kind == sched.LockSleep && !w.m.NoSpin, fair: kind == sched.LockSleep && w.handoff > 0, cpu: -1}
	}
}

// touch charges for the lock's cache line.
func (w *World) touch(k *task, cpu *int32) {
	k.debt += w.costs.Nanos(cost.Lock, 1)
	if *cpu != int32(k.cpu) {
		if *cpu >= 0 {
			k.debt += w.costs.Nanos(cost.Line, 1)
		}
		*cpu = int32(k.cpu)
	}
}

// sleeper is a lock that waiters may sleep on.
type sleeper struct {
	w       *World
	owner   *task
	readers int
	queue   []*task // their wait says how
	spin    fifo    // tasks that spin, in the order they came
	class   sched.ClassID
	cpu     int32
	spins   bool
	fair    bool
	handoff bool
}

// waiter is a task's place in a queue.
type waiter struct {
	since   int64
	read    bool
	granted bool
	woken   bool
}

func (l *sleeper) free(read bool) bool {
	if l.owner != nil || l.handoff {
		return false
	}
	if read {
		return len(l.queue) == 0
	}
	return l.readers == 0
}

func (l *sleeper) take(k *task, read bool) {
	if read {
		l.readers++
	} else {
		l.owner = k
	}
}

// Acquire gets the lock.
func (l *sleeper) Acquire(t *sched.Task, read bool) (since int64, waited bool) {
	w := l.w
	k := w.of(t)
	w.touch(k, &l.cpu)
	w.settle(k)
	if l.free(read) {
		if len(l.queue) > 0 {
			w.stats.Stolen++
		}
		l.take(k, read)
		return 0, false
	}
	since = w.now
	k.class = l.class
	k.wait = waiter{since: since, read: read}
	if l.spins && !read && l.owner != nil && l.owner.onCPU() && !l.handoff && w.waiting == 0 {
		k.state = spinning
		if l.spin.n == 0 {
			w.contended = append(w.contended, l)
		}
		l.spin.push(k)
		k.yield(struct{}{}) // until granted, or queued by stopSpin
		if l.owner == k {
			return since, true
		}
	} else {
		l.enqueue(k)
		w.leaveCPU(k)
		k.yield(struct{}{})
	}
	for {
		if k.wait.granted {
			return since, true
		}
		if l.owner == nil && l.readers == 0 && !l.handoff {
			l.dequeue(k)
			l.take(k, read)
			l.cpu = int32(k.cpu)
			return since, true
		}
		if l.fair && w.now-since >= w.handoff {
			l.handoff = true
		}
		k.state, k.wait.woken = queued, false
		w.leaveCPU(k)
		k.yield(struct{}{})
	}
}

func (l *sleeper) enqueue(k *task) {
	k.state = queued
	l.queue = append(l.queue, k)
}

func (l *sleeper) dequeue(k *task) {
	i := slices.Index(l.queue, k)
	l.queue = slices.Delete(l.queue, i, i+1)
}

func (k *task) onCPU() bool { return k.state == running || k.state == spinning }

// stopSpin lets the first spinner sleep.
func (l *sleeper) stopSpin() {
	k := l.endSpin()
	l.enqueue(k)
	l.w.leaveCPU(k)
}

// endSpin takes the first spinner off.
func (l *sleeper) endSpin() *task {
	w := l.w
	k := l.spin.pop()
	if l.spin.n == 0 {
		w.contended = slices.DeleteFunc(w.contended, func(o *sleeper) bool { return o == l })
	}
	spun := w.now - k.wait.since
	w.stats.Spun += spun
	k.quiet -= spun
	return k
}

// Try gets the lock if it is free.
func (l *sleeper) Try(t *sched.Task, read bool) bool {
	k := l.w.of(t)
	l.w.touch(k, &l.cpu)
	if !l.free(read) {
		return false
	}
	l.take(k, read)
	return true
}

// Release lets the lock go.
func (l *sleeper) Release(t *sched.Task, read bool) {
	w := l.w
	k := w.of(t)
	if len(l.queue) > 0 || l.spins {
		w.settle(k)
	}
	if read {
		if l.readers == 0 {
			panic("lock: RUnlock of an RWSem not locked for reading")
		}
		if l.readers--; l.readers > 0 {
			return
		}
	} else {
		if l.owner == nil {
			panic("lock: Unlock of a lock that is not locked")
		}
		l.owner = nil
	}
	if len(l.queue) > 0 && l.fair && l.queue[0].wait.read && w.now-l.queue[0].wait.since >= w.handoff {
		l.handoff = true
	}
	if len(l.queue) > 0 && (l.handoff || l.queue[0].wait.read && l.spin.n == 0) {
		l.grant()
		for l.spin.n > 0 && (l.owner == nil || !l.owner.onCPU()) {
			l.stopSpin()
		}
		return
	}
	for l.spin.n > 0 {
		// Noise has sent the first to sleep meanwhile; nothing depended on it until now.
		first := l.spin.first()
		if first.quiet > w.now-first.wait.since {
			break
		}
		w.stats.Hits++
		l.stopSpin()
		first.quiet = w.nextQuiet()
	}
	if l.spin.n > 0 {
		s := l.endSpin()
		s.state = running
		l.owner, l.cpu = s, int32(s.cpu)
		w.push(w.now+w.costs.Nanos(cost.Line, 1), s, false)
		if !l.fair {
			return
		}
	}
	if len(l.queue) > 0 && !l.queue[0].wait.woken && !l.queue[0].wait.read {
		l.queue[0].wait.woken = true
		w.wake(l.queue[0])
	}
}

// grant gives the free lock to the first of the queue; when that reads, to all readers.
func (l *sleeper) grant() {
	w := l.w
	l.handoff = false
	if k := l.queue[0]; !k.wait.read {
		w.stats.Handoffs++
		l.queue = slices.Delete(l.queue, 0, 1)
		l.owner = k
		l.grantTo(k)
		return
	}
	for i := 0; i < len(l.queue) && l.readers < readerBatch; {
		k := l.queue[i]
		if !k.wait.read {
			i++
			continue
		}
		l.queue = slices.Delete(l.queue, i, i+1)
		l.readers++
		l.grantTo(k)
	}
}

func (l *sleeper) grantTo(k *task) {
	k.wait.granted = true
	if k.state == queued && !k.wait.woken {
		k.wait.woken = true
		l.w.wake(k)
	}
}

// spinlock is held for so short a time that a holder never stops in the middle.
type spinlock struct {
	w        *World
	owner    *task
	from, to int64 // of the last holder
	queue    []*task
	readers  int
	class    sched.ClassID
	cpu      int32
}

// Acquire gets the lock; a wait for it is CPU time, not a wait.
func (l *spinlock) Acquire(t *sched.Task, read bool) (since int64, waited bool) {
	w := l.w
	k := w.of(t)
	w.touch(k, &l.cpu)
	if l.owner != nil || l.readers > 0 && !read {
		// The holder sleeps, or waits for one who does: an unclassed lock of a test.
		w.settle(k)
		since, waited = w.now, true
		k.class = l.class
		for l.owner != nil || l.readers > 0 && !read {
			l.queue = append(l.queue, k)
			k.state = queued
			w.leaveCPU(k)
			k.yield(struct{}{})
		}
	}
	k.leaf++
	if read {
		l.readers++
		return since, waited
	}
	if at := w.now + k.debt; at >= l.from && at < l.to {
		d := l.to - at
		k.debt += d
		w.stats.Spun += d
	}
	l.owner, l.from = k, w.now+k.debt
	return since, waited
}

// Try gets the lock if nobody has it.
func (l *spinlock) Try(t *sched.Task, read bool) bool {
	if l.owner != nil || l.readers > 0 && !read {
		return false
	}
	l.Acquire(t, read)
	return true
}

// Release lets the lock go.
func (l *spinlock) Release(t *sched.Task, read bool) {
	k := l.w.of(t)
	switch {
	case read && l.readers > 0:
		l.readers--
	case !read && l.owner != nil:
		l.owner, l.to = nil, l.w.now+k.debt
	default:
		panic(fmt.Sprintf("lock: Unlock of a %s that is not locked at %v", sched.ClassByID(l.class).Name, time.Duration(l.w.now)))
	}
	k.leaf--
	for len(l.queue) > 0 && l.owner == nil && l.readers == 0 {
		n := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		l.w.wake(n)
		break
	}
}

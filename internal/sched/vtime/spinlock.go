package vtime

import (
	"fmt"
	"slices"
	"time"

	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// spinlock is held for so short a time that a holder never stops in the middle. Tasks hold it at
// times of their own, which are up to debtMax ahead of the clock and not in order, so the lock
// knows all holds that the clock has not passed: a task gets it where there is room for a hold as
// long as the last one. Its cache line, and what lies there, moves once the lock is free: the next
// holder has the lock meanwhile.
type spinlock struct {
	w       *World
	owner   *task
	from    int64  // of the holder
	held    int64  // how long the last one had it
	holds   []hold // in order
	queue   []*task
	readers int
	class   sched.ClassID
	cpu     int32
}

// hold is a time at which a spinlock is not free.
type hold struct{ from, to int64 }

// turn is when a task that comes at time at gets the lock.
func (l *spinlock) turn(at int64) int64 {
	n := 0
	for n < len(l.holds) && l.holds[n].to <= l.w.now {
		n++
	}
	if n > 0 {
		l.holds = slices.Delete(l.holds, 0, n)
	}
	for _, h := range l.holds {
		if at < h.to && at+l.held > h.from {
			at = h.to
		}
	}
	return at
}

// free notes that the holder lets go at time to.
func (l *spinlock) free(to int64) {
	if to > l.from {
		l.held = to - l.from
		i := len(l.holds)
		for i > 0 && l.holds[i-1].from > l.from {
			i--
		}
		l.holds = slices.Insert(l.holds, i, hold{l.from, to})
	}
	l.owner = nil
}

// Acquire gets the lock; a wait for it is CPU time, not a wait.
func (l *spinlock) Acquire(t *sched.Task, read bool) (since int64, waited bool) {
	w := l.w
	k := w.of(t)
	k.debt += w.price(cost.Lock, 1)
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
	at := w.now + k.debt
	if !read {
		l.from = l.turn(at)
		k.debt += l.from - at
		w.stats.Spun += l.from - at
		l.owner = k
	}
	w.line(k, &l.cpu)
	if read {
		l.readers++
	}
	return since, waited
}

// SetHandoff does nothing: a spinlock's waiters get it in the order in which they came.
func (l *spinlock) SetHandoff(bool) {}

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
		l.free(l.w.now + k.debt)
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

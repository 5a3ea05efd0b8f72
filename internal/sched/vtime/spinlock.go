package vtime

import (
	"fmt"
	"slices"
	"time"

	"btrlab/internal/sched"
)

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

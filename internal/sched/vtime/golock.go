package vtime

import (
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// The steps of Go's sync.Mutex and sync.RWMutex, which are the locks of the real runtime, its
// spinlocks too. With Machine.GoLocks all locks wait like them, so that virtual time can say what
// the real runtime does on a machine whose costs are known.
//
//	a writer comes     the mutex is free and nobody starves: take it, although others are queued
//	                   its owner runs: look again after each of four pauses
//	                   else: sleep in the queue; one that was woken in vain goes back to the head of it
//	a writer has it    it waits until the readers that were there before have gone
//	a reader comes     no writer has the mutex: join; else sleep until that writer lets go
//	a writer lets go   all waiting readers get in; then the first of the queue is woken to try, unless another one is up already. Once
//	                   a waiter that was woken has waited for a millisecond the mutex is handed to the first of the queue, who gets it
//	                   without a try, until one of them has waited for less
//
// Model: internal/sync/mutex.go and sync/rwmutex.go of Go 1.26. Difference: a pause ends when the
// spinner looks, not earlier.

// goPause is how long, in nanoseconds, a spinner pauses between two looks: 30 PAUSE instructions.
// goSpins is how often it looks, goStarves is how long a waiter waits until it insists.
const (
	goPause   = 1500
	goSpins   = 4
	goStarves = 1e6
)

type golock struct {
	w        *World
	owner    *task // has the mutex
	draining bool  // and waits for the readers to go
	readers  int
	queue    []*task // writers that sleep
	readq    []*task // readers that sleep
	woken    bool    // a writer is up that will try
	starving bool
	class    sched.ClassID
	cpu      int32
}

// Acquire gets the lock. When another CPU had it last, a line of what it protects moves too, and
// the lock is held meanwhile.
func (l *golock) Acquire(t *sched.Task, read bool) (since int64, waited bool) {
	k := l.w.of(t)
	moved := l.cpu >= 0 && l.cpu != int32(k.cpu)
	since, waited = l.get(t, k, read)
	if moved {
		k.debt += l.w.price(cost.Line, 1)
	}
	return since, waited
}

func (l *golock) get(t *sched.Task, k *task, read bool) (since int64, waited bool) {
	w := l.w
	w.touch(k, &l.cpu)
	w.settle(k)
	if l.owner != nil || !read && (l.readers > 0 || l.starving) {
		t.Unplug() // as in rwsem.go
		w.settle(k)
	}
	if read {
		if l.owner == nil {
			l.readers++
			return 0, false
		}
		l.readq = append(l.readq, k)
		since = w.now
		return since, l.sleep(k)
	}
	since = w.now
	if l.owner != nil || l.starving {
		l.wait(k)
		waited = true
	} else {
		l.owner = k
	}
	if l.readers > 0 {
		l.draining = true
		l.sleep(k)
		waited = true
	}
	return since, waited
}

// wait returns with the mutex. Models lockSlow().
func (l *golock) wait(k *task) {
	w := l.w
	since, awoke, before := w.now, false, false
	for looks := 0; ; {
		if l.owner != nil && !l.starving && looks < goSpins && w.waiting == 0 && w.m.CPUs-w.idle > 1 {
			if !awoke && !l.woken && len(l.queue) > 0 {
				l.woken, awoke = true, true
			}
			looks++
			k.debt += goPause
			w.stats.Spun += goPause
			w.settle(k)
			if w.m.Watch != nil {
				w.m.Watch.Spun(k.t, k.cpu, w.now-goPause, w.now)
			}
			continue
		}
		if awoke {
			l.woken = false
		}
		if l.owner == nil && !l.starving {
			l.owner = k
			l.cpu = int32(k.cpu)
			k.debt += w.price(cost.Line, 1)
			return
		}
		if before && w.now-since > goStarves && l.owner != nil {
			l.starving = true
		}
		if before {
			l.queue = append([]*task{k}, l.queue...)
		} else {
			l.queue = append(l.queue, k)
		}
		k.wait = waiter{since: since}
		l.sleep(k)
		if k.wait.granted {
			if w.now-since <= goStarves || len(l.queue) == 0 {
				l.starving = false
			}
			return
		}
		awoke, before, looks = true, true, 0
	}
}

// sleep returns when the task has been woken.
func (l *golock) sleep(k *task) bool {
	k.state, k.class = queued, l.class
	l.w.leaveCPU(k)
	k.yield(struct{}{})
	return true
}

// SetHandoff does nothing: Go's locks hand over as they do.
func (l *golock) SetHandoff(bool) {}

// Try gets the lock if it is free.
func (l *golock) Try(t *sched.Task, read bool) bool {
	k := l.w.of(t)
	l.w.touch(k, &l.cpu)
	if l.owner != nil || !read && (l.readers > 0 || l.starving) {
		return false
	}
	if read {
		l.readers++
	} else {
		l.owner = k
	}
	return true
}

// Release lets the lock go.
func (l *golock) Release(t *sched.Task, read bool) {
	w := l.w
	w.settle(w.of(t))
	if read {
		if l.readers == 0 {
			panic("lock: RUnlock of an RWSem not locked for reading")
		}
		if l.readers--; l.readers == 0 && l.draining {
			l.draining = false
			w.wake(l.owner)
		}
		return
	}
	if l.owner == nil {
		panic("lock: Unlock of a lock that is not locked")
	}
	l.owner = nil
	for _, r := range l.readq {
		l.readers++
		r.wait = waiter{granted: true, at: w.Now()}
		w.wake(r)
	}
	l.readq = l.readq[:0]
	if len(l.queue) == 0 || !l.starving && l.woken {
		return
	}
	k := l.queue[0]
	l.queue = append(l.queue[:0], l.queue[1:]...)
	if l.starving {
		l.owner, k.wait.granted, k.wait.at = k, true, w.Now()
	} else {
		l.woken = true
	}
	w.wake(k)
}

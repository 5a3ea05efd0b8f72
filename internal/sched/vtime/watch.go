package vtime

import "btrlab/internal/sched"

// LockID names a lock of a run: its class, and its number among all locks of the run in the order
// in which they were first used. Number 0 is the class itself: a wait for an event.
type LockID struct {
	Class sched.ClassID
	N     int32
}

// Watcher is told what the tasks of a run do with CPUs and locks. An interval, in nanoseconds of
// the clock, is told when it ends, so they come in the order of their ends but for CPU time that a
// task has ahead of the clock. A Watcher takes no time, and must not call back.
type Watcher interface {
	// Ran says that t had a CPU.
	Ran(t *sched.Task, cpu int, from, to int64)
	// Spun says that t, with a CPU, waited for a lock without letting go of it.
	Spun(t *sched.Task, cpu int, from, to int64)
	// Held says that t had a lock for itself. With t nil readers had it, from the first of them to
	// the last.
	Held(t *sched.Task, l LockID, from, to int64)
	// Waited says that t waited for a lock, asleep or spinning, or for an event of a class (l.N is
	// 0), which may be a lock's, too.
	Waited(t *sched.Task, l LockID, from, to int64)
}

// Waited tells the Watcher of a wait that has just ended.
func (w *World) Waited(t *sched.Task, class sched.ClassID, since int64) {
	if w.m.Watch != nil {
		w.m.Watch.Waited(t, LockID{Class: class}, since, w.Now())
	}
}

// watched is a lock of a run with a Watcher. A run without one has the locks themselves.
type watched struct {
	sched.SimLock
	w       *World
	id      LockID
	spin    bool // a spinlock
	readers int
	from    int64 // since when it is held, by one writer or by readers
	until   int64 // when it was let go last
}

func (w *World) watch(l sched.SimLock, class sched.ClassID) sched.SimLock {
	if w.m.Watch == nil {
		return l
	}
	w.locks++
	_, spin := l.(*spinlock)
	return &watched{SimLock: l, w: w, id: LockID{class, w.locks}, spin: spin}
}

// Acquire gets the lock. A task to which the lock is handed while it sleeps has it from then on,
// not only when it is up.
func (l *watched) Acquire(t *sched.Task, read bool) (since int64, waited bool) {
	w := l.w
	k := w.of(t)
	spun := w.stats.Spun
	since, waited = l.SimLock.Acquire(t, read)
	now := w.Now()
	if waited {
		w.m.Watch.Waited(t, l.id, since, now)
		if k.wait.granted && k.wait.at >= since {
			now = k.wait.at
		}
	} else if d := w.stats.Spun - spun; l.spin && d > 0 {
		// the wait is CPU time of the task, ahead of the clock
		w.m.Watch.Waited(t, l.id, now-d, now)
		w.m.Watch.Spun(t, k.cpu, now-d, now)
	}
	l.taken(read, now)
	return since, waited
}

func (l *watched) taken(read bool, at int64) {
	if read {
		if l.readers++; l.readers > 1 {
			return
		}
	}
	l.from = max(at, l.until)
}

// Try gets the lock if that needs no wait.
func (l *watched) Try(t *sched.Task, read bool) bool {
	ok := l.SimLock.Try(t, read)
	if ok {
		l.taken(read, l.w.Now())
	}
	return ok
}

// Release lets the lock go, at the holder's own time or once the clock has caught up with it.
func (l *watched) Release(t *sched.Task, read bool) {
	at := l.w.Now()
	l.SimLock.Release(t, read)
	at = max(at, l.w.now)
	if read {
		if l.readers--; l.readers > 0 {
			return
		}
		t = nil
	}
	l.w.m.Watch.Held(t, l.id, l.from, at)
	l.until = at
}

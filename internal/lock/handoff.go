package lock

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// HandoffAfter is how long the first sleeper of a lock is passed over by tasks that come later,
// before the lock is handed to it. Models RWSEM_WAIT_TIMEOUT, which is 4 ms at HZ=250.
const HandoffAfter = 4 * time.Millisecond

// queued is an RWSem of the real runtime that waits as Linux's rwsem does, where sync.RWMutex hands
// a lock over after a millisecond whatever the kernel is.
//
//	a writer comes       the lock is free: take it, although others sleep (stealing)
//	                     else: queue, try once more, sleep
//	a reader comes       readers have it and nobody is queued, or it is free: take it
//	                     else: queue and sleep
//	the lock is let go   its first sleeper is a reader, or has slept for after: it owns the lock from now on
//	                     else: the lock is free, and the first sleeper is woken to try
//
// Model: kernel/locking/rwsem.c (rwsem_down_write_slowpath, rwsem_down_read_slowpath,
// rwsem_mark_wake, rwsem_wake). Differences: no task spins while the owner runs, and the one that
// lets go looks at the time, where in Linux the sleeper does when it was woken in vain.
type queued struct {
	// state is -1 with a writer, or the number of readers.
	state atomic.Int32
	// waiting is len(list), for tasks that do not have mu.
	waiting atomic.Int32
	// after is HandoffAfter in nanoseconds, or never.
	after atomic.Int64

	mu   sync.Mutex // leaf; protects the fields below and those of the sleepers
	list []*sleeper // in the order they came
	free []*sleeper // for later waits, which allocate nothing
}

// never is a time after which nothing is handed over.
const never = math.MaxInt64

// sleeper is a task in the queue.
type sleeper struct {
	t       *sched.Task
	since   int64 // nanoseconds of Task.Now
	read    bool
	woken   bool // there is an Unpark that it has not seen yet
	granted bool // it owns the lock, and is in no queue any more
}

// take takes the lock if that needs no wait. queued says that t is, so that others are not before
// it.
func (q *queued) take(read, queued bool) bool {
	if !read {
		return q.state.CompareAndSwap(0, -1)
	}
	for {
		n := q.state.Load()
		if n < 0 || n > 0 && !queued && q.waiting.Load() != 0 {
			return false
		}
		if q.state.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// try is take for a task that does not wait: it passes nobody by.
func (q *queued) try(read bool) bool { return q.waiting.Load() == 0 && q.take(read, false) }

// wait queues t and returns when it has the lock.
func (q *queued) wait(t *sched.Task, class sched.ClassID, read bool) {
	since := t.Now()
	q.mu.Lock()
	var w *sleeper
	if n := len(q.free); n > 0 {
		w, q.free = q.free[n-1], q.free[:n-1]
	} else {
		w = new(sleeper)
	}
	*w = sleeper{t: t, since: since, read: read}
	q.list = append(q.list, w)
	q.waiting.Store(int32(len(q.list)))
	// From here on whoever lets go sees the queue; who has let go before is seen by take.
	for !w.granted {
		if (!read || q.list[0] == w) && q.take(read, true) {
			q.remove(w)
			q.admit()
			break
		}
		q.mu.Unlock()
		t.Park(class)
		q.mu.Lock()
		w.woken = false
	}
	w.t = nil
	q.free = append(q.free, w)
	q.mu.Unlock()
}

func (q *queued) remove(w *sleeper) {
	i := slices.Index(q.list, w)
	q.list = slices.Delete(q.list, i, i+1)
	q.waiting.Store(int32(len(q.list)))
}

// admit lets the readers in that are first in the queue, if readers have the lock.
func (q *queued) admit() {
	for q.state.Load() > 0 && len(q.list) > 0 && q.list[0].read {
		q.state.Add(1)
		q.grant(q.list[0])
	}
}

// grant tells a sleeper that it owns the lock.
func (q *queued) grant(w *sleeper) {
	q.remove(w)
	w.granted = true
	q.wake(w)
}

func (q *queued) wake(w *sleeper) {
	if !w.woken {
		w.woken = true
		w.t.Unpark()
	}
}

// release lets go what t has.
func (q *queued) release(t *sched.Task, read bool) {
	switch {
	case read:
		n := q.state.Add(-1)
		if n < 0 {
			panic("lock: RUnlock of an RWSem not locked for reading")
		}
		if n > 0 || q.waiting.Load() == 0 {
			return
		}
	case q.state.Load() >= 0:
		panic("lock: Unlock of a lock that is not locked")
	case q.waiting.Load() == 0:
		q.state.Store(0)
		if q.waiting.Load() == 0 {
			return
		}
		read = true // it is free already
	}
	if q.pass(t.Now(), read) {
		runtime.Gosched() // the lock is idle until the new owner runs
	}
}

// pass finds the next owner of the lock, which is free, or is a writer's that lets it go. It
// reports whether the lock was handed to a writer.
func (q *queued) pass(now int64, free bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		if !free {
			q.state.Store(0)
		}
		return false
	}
	w := q.list[0]
	if due := now-w.since >= q.after.Load(); w.read || due {
		to := int32(-1)
		if w.read {
			to = 1
		}
		if free && !q.state.CompareAndSwap(0, to) {
			return false // stolen: the thief passes it on
		}
		if !free {
			q.state.Store(to)
		}
		q.grant(w)
		q.admit()
		return !w.read
	}
	if !free {
		q.state.Store(0)
	}
	q.wake(w)
	return false
}

// InitHandoff gives the lock its class and the queue of Linux's rwsem: without spinning, in the
// real runtime. SetHandoff(true) is what it begins with. The lock is not in use.
func (s *RWSem) InitHandoff(c *lockdep.Class) {
	s.class, s.queued = c, &queued{}
	s.SetHandoff(true)
}

// SetHandoff says whether the lock is handed to the first of its waiters when that has been passed
// over for HandoffAfter, or, under a Simulator, for as long as its machine says. Without it the
// lock is never promised, as in Linux before 5.3 (commit 4f23dbc1e657). It is for a lock made by
// InitHandoff. A Stepper has no time: under it a waiter may be handed the lock at any step or be
// passed over, with both. No task holds the lock or waits for it.
func (s *RWSem) SetHandoff(on bool) {
	s.queued.after.Store(never)
	if on {
		s.queued.after.Store(int64(HandoffAfter))
	}
	s.unfair = !on
	if s.det != nil && s.det.sim != nil {
		s.det.sim.SetHandoff(on)
	}
}

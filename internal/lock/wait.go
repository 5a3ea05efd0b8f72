package lock

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// Cond is a condition under a Mutex: waiters are woken in the order they came.
type Cond struct {
	L     *Mutex
	class *lockdep.Class
	list  []*sched.Task // protected by L
	kept  sched.Obj
}

// Init ties the condition to its mutex; c names the wait.
func (k *Cond) Init(l *Mutex, c *lockdep.Class) { k.L, k.class = l, c }

// Wait lets L go, sleeps until a wake-up and takes L again. Call it in a loop with L held.
func (k *Cond) Wait(t *sched.Task) { k.wait(t, k) }

// WaitFor is Wait for an event that some task owes (sched.WaitGraph).
func (k *Cond) WaitFor(t *sched.Task, ev any) { k.wait(t, ev) }

func (k *Cond) wait(t *sched.Task, ev any) {
	c := classOf(k.class)
	k.list = append(k.list, t)
	if st := t.Stepper(); st != nil {
		st.Keep(&k.kept, k)
	}
	k.L.Unlock(t)
	lockdep.MightWait(t, c)
	start := t.Now()
	t.BlockedOn(ev)
	t.Park(c.ID)
	t.Waited(c.ID, c.Name, start)
	k.L.Lock(t)
}

// Hash is the hash of the waiters in their order, for state matching: the next Signal wakes the
// first.
func (k *Cond) Hash() uint64 {
	h := uint64(len(k.list))
	for _, w := range k.list {
		h = sched.Mix(h, w.Mark)
	}
	return h
}

// Signal wakes the first waiter. L is held.
func (k *Cond) Signal(t *sched.Task) {
	if len(k.list) > 0 {
		w := k.list[0]
		k.list = slices.Delete(k.list, 0, 1)
		w.Unpark()
	}
}

// Broadcast wakes all waiters. L is held.
func (k *Cond) Broadcast(t *sched.Task) {
	for i, w := range k.list {
		k.list[i] = nil
		w.Unpark()
	}
	k.list = k.list[:0]
}

// WaitQueue is a queue of tasks that wait for a condition outside any lock; the condition must be
// readable at any time (an atomic). The waker changes the condition, then calls Wake.
type WaitQueue struct {
	class *lockdep.Class
	n     atomic.Int32
	mu    sync.Mutex // leaf
	list  []*sched.Task
	obj   sched.Obj
}

// Init names the wait.
func (q *WaitQueue) Init(c *lockdep.Class) { q.class = c }

// Objects calls f with what a Stepper knows the queue by.
func (q *WaitQueue) Objects(f func(*sched.Obj)) { f(&q.obj) }

// Wait sleeps until cond holds. It does not sleep when cond holds already.
func (q *WaitQueue) Wait(t *sched.Task, cond func() bool) { q.wait(t, q, cond) }

// WaitOrNot is Wait that may end although cond does not hold, as the conditions of POSIX and Java
// may: a Stepper chooses, and no other runtime does it. The caller looks at its condition again.
func (q *WaitQueue) WaitOrNot(t *sched.Task, cond func() bool) {
	if st := t.Stepper(); st == nil || !st.Spurious() {
		q.Wait(t, cond)
	}
}

// WaitFor is Wait for an event that some task owes (sched.WaitGraph), on a queue that many events
// share.
func (q *WaitQueue) WaitFor(t *sched.Task, ev any, cond func() bool) { q.wait(t, ev, cond) }

func (q *WaitQueue) wait(t *sched.Task, ev any, cond func() bool) {
	c := classOf(q.class)
	st := t.Stepper()
	if rt := t.Runtime(); rt != nil {
		t.Next = sched.Op{Kind: sched.PointWait, Class: c.ID, Use: sched.Writes, Obj: &q.obj, ID: q}
		rt.Enter(t)
	}
	lockdep.MightWait(t, c)
	if cond() {
		return
	}
	start := t.Now()
	slept := false
	for {
		q.add(t)
		// Look again now that a waker would see us: one that came before did not.
		if cond() && q.remove(t) {
			break
		}
		t.BlockedOn(ev)
		t.Park(c.ID)
		if st != nil {
			st.Touch(t, &q.obj, sched.Writes)
		}
		slept = true
		if cond() {
			break
		}
	}
	if slept {
		t.Waited(c.ID, c.Name, start)
	}
}

// WaitAtMost is Wait that ends after d of the runtime's time at the latest. A Stepper has no time:
// there it is Wait.
func (q *WaitQueue) WaitAtMost(t *sched.Task, d time.Duration, cond func() bool) {
	if t.Stepper() != nil {
		q.Wait(t, cond)
		return
	}
	c := classOf(q.class)
	lockdep.MightWait(t, c)
	start := t.Now()
	for left := d; left > 0 && !cond(); left = d - time.Duration(t.Now()-start) {
		q.add(t)
		if cond() && q.remove(t) {
			return
		}
		t.BlockedOn(q)
		if t.ParkFor(c.ID, left) {
			q.remove(t)
		} else if !q.remove(t) {
			t.Park(c.ID) // a waker has taken us off: its Unpark is on its way
		}
	}
	t.Waited(c.ID, c.Name, start)
}

// add puts t on the list.
func (q *WaitQueue) add(t *sched.Task) {
	q.mu.Lock()
	q.list = append(q.list, t)
	q.n.Store(int32(len(q.list)))
	q.mu.Unlock()
}

func (q *WaitQueue) remove(t *sched.Task) bool {
	// cond, if it has a scheduling point, has begun another step than the one that named the queue
	t.Touch(&q.obj, sched.Writes)
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.list, t)
	if i < 0 {
		return false // a waker has taken us off; its Unpark must be eaten by a Park
	}
	q.list = slices.Delete(q.list, i, i+1)
	q.n.Store(int32(len(q.list)))
	return true
}

// Wake wakes every waiter, so that each looks at its condition again. It never sleeps.
func (q *WaitQueue) Wake(t *sched.Task) {
	if t.Slow() {
		if st := t.Stepper(); st != nil {
			if st.Aborting() {
				return
			}
			t.Next = sched.Op{Kind: sched.PointWake, Class: classOf(q.class).ID, Obj: &q.obj, ID: q}
			st.Enter(t)
			if q.n.Load() != 0 {
				st.Touch(t, &q.obj, sched.Writes)
			}
		}
	}
	if q.n.Load() == 0 {
		return
	}
	q.mu.Lock()
	for i, w := range q.list {
		q.list[i] = nil
		w.Unpark()
	}
	q.list = q.list[:0]
	q.n.Store(0)
	q.mu.Unlock()
}

// Counter counts things in flight; WaitZero waits until there are none. Models i_dio_count.
type Counter struct {
	n    atomic.Int64
	q    WaitQueue
	gate sched.Gate // of a Stepper: shut unless n is zero
}

// add changes the count and returns it.
func (k *Counter) add(t *sched.Task, x int64) int64 {
	n := k.n.Add(x)
	if t.Stepper() != nil {
		k.gate.Shut = 0
		if n != 0 {
			k.gate.Shut = 1
		}
	}
	return n
}

// enter is the scheduling point. A Stepper sees the counter and its wait for zero as one object.
func (k *Counter) enter(t *sched.Task, kind sched.PointKind, mode uint8, use sched.Use, frees bool) {
	rt := t.Runtime()
	if rt == nil {
		return
	}
	if st := t.Stepper(); st != nil && st.Aborting() {
		return
	}
	op := &t.Next
	op.Kind, op.Class, op.Use, op.Frees, op.Mode = kind, classOf(k.q.class).ID, use, frees, mode
	op.Obj, op.Gate, op.Also, op.ID = &k.q.obj, &k.gate, nil, k
	rt.Enter(t)
}

// Init names the wait for zero.
func (k *Counter) Init(c *lockdep.Class) { k.q.Init(c) }

// Objects calls f with what a Stepper knows the counter by.
func (k *Counter) Objects(f func(*sched.Obj)) { f(&k.q.obj) }

// Inc adds one, which t then owes to take away (sched.WaitGraph).
func (k *Counter) Inc(t *sched.Task) {
	k.enter(t, sched.PointAtomic, 0, sched.Adds, false)
	k.add(t, 1)
	t.Owe(k)
}

// Dec takes one away and wakes the tasks that wait for zero.
func (k *Counter) Dec(t *sched.Task) {
	k.enter(t, sched.PointAtomic, 0, sched.Adds, true)
	n := k.add(t, -1)
	st := t.Stepper()
	if n < 0 && (st == nil || !st.Aborting()) {
		panic("lock: Counter below zero")
	}
	t.Discharge(k)
	if st == nil && n == 0 {
		k.q.Wake(t)
	}
}

// Disown says that t does not owe what it added any more: a device has it, which waits for no task,
// or another task after Adopt.
func (k *Counter) Disown(t *sched.Task) { t.Discharge(k) }

// Adopt makes t owe what another task added and disowned.
func (k *Counter) Adopt(t *sched.Task) { t.Owe(k) }

// Load reads the count.
func (k *Counter) Load() int64 { return k.n.Load() }

// WaitZero sleeps until the count is zero.
func (k *Counter) WaitZero(t *sched.Task) {
	if t.Stepper() != nil {
		lockdep.MightWait(t, classOf(k.q.class))
		k.enter(t, sched.PointWait, 1, sched.Reads, false)
		return
	}
	if t.Slow() || k.n.Load() != 0 {
		k.q.wait(t, k, func() bool { return k.n.Load() == 0 })
	}
}

// Package lock holds the locks and wait queues of the write path. In the real runtime they are
// sync's, plus one branch; under a runtime that runs tasks one at a time they are plain fields, a
// scheduling point in front and Park where sync would block.
//
// Every primitive has a lockdep class: it names the lock in profiles and gives its place in the
// order. Init before use; the zero value is an unclassed leaf.
package lock

import (
	"slices"
	"sync"
	"sync/atomic"

	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

func classOf(c *lockdep.Class) *lockdep.Class {
	if c == nil {
		return lockdep.Unclassed
	}
	return c
}

// Mutex is a sleeping exclusive lock.
type Mutex struct {
	mu    sync.Mutex
	class *lockdep.Class
	det   *detState
}

// detState is a lock's state under a runtime that runs one task at a time.
type detState struct {
	writer         *sched.Task
	readers        int
	waitingWriters int // keep new readers out, as they do in sync.RWMutex and in the kernel's rwsem

	sim sched.SimLock // all there is under a Simulator

	// What a Stepper orders by. A writer that arrives changes what readers see before it changes the lock, so the two
	// are objects of their own: writers that queue behind one another need no order among their arrivals.
	obj, arrivals sched.Obj
}

// The ways through a lock's gate.
const (
	gateWrite = 1 << iota
	gateRead
)

// Open is the gate of a Stepper.
func (d *detState) Open() uint8 {
	var m uint8
	if d.writer == nil {
		if d.readers == 0 {
			m = gateWrite
		}
		if d.waitingWriters == 0 {
			m |= gateRead
		}
	}
	return m
}

// see tells a Stepper what a try came to.
func see(t *sched.Task, ok bool) {
	if st := t.Stepper(); st != nil {
		h := uint64(5)
		if ok {
			h = 6
		}
		st.See(t, h)
	}
}

// next says what t does to lock id at the scheduling point that follows. It does not call Stepper.Enter: each method of a lock does
// that itself, since after a switch to another task the processor mispredicts the return from every call in between.
func (d *detState) next(t *sched.Task, kind sched.PointKind, c sched.ClassID, mode uint8, use sched.Use, id any) {
	op := &t.Next
	op.Kind, op.Class, op.Use, op.Frees, op.Mode = kind, c, use, kind == sched.PointUnlock, mode
	op.Obj, op.Gate, op.Also, op.ID = &d.obj, d, nil, id
}

// nextRead is next for readers, who look at the writers that have arrived, too.
func (d *detState) nextRead(t *sched.Task, kind sched.PointKind, c sched.ClassID, mode uint8, id any) {
	d.next(t, kind, c, mode, sched.Reads, id)
	t.Next.Also, t.Next.AlsoUse = &d.arrivals, sched.Reads
}

// Objects calls f with what a Stepper knows the lock by.
func (m *Mutex) Objects(f func(*sched.Obj)) { f(&m.state().obj) }

// Init gives the lock its class.
func (m *Mutex) Init(c *lockdep.Class) { m.class = c }

// Look tells a Stepper that t reads, without the lock, what is written under it.
func (m *Mutex) Look(t *sched.Task) {
	if st := t.Stepper(); st != nil {
		st.Touch(t, &m.state().obj, sched.Reads)
	}
}

// Lock takes the lock; it may sleep.
func (m *Mutex) Lock(t *sched.Task) { m.lock(t, 0) }

// LockNested is Lock with the order inside the class: sub must ascend.
func (m *Mutex) LockNested(t *sched.Task, sub uint64) { m.lock(t, sub) }

func (m *Mutex) lock(t *sched.Task, sub uint64) {
	if !t.Slow() {
		if !m.mu.TryLock() {
			m.lockSlow(t, sub)
		}
		return
	}
	st := t.Stepper()
	if st == nil {
		m.lockSlow(t, sub)
		return
	}
	c := classOf(m.class)
	lockdep.Acquire(t, c, sub, m, false, false, false)
	d := m.state()
	d.next(t, sched.PointLock, c.ID, gateWrite, sched.Writes, m)
	st.Enter(t)
	d.writer = t
}

func (m *Mutex) state() *detState {
	if m.det == nil {
		m.det = &detState{}
	}
	return m.det
}

func (m *Mutex) lockSlow(t *sched.Task, sub uint64) {
	if sim := t.Simulator(); sim != nil {
		m.lockSim(t, sim, sub)
		return
	}
	c := classOf(m.class)
	lockdep.Acquire(t, c, sub, m, false, false, false)
	if m.mu.TryLock() {
		return
	}
	start := t.Now()
	m.mu.Lock()
	t.Waited(c.ID, c.Name, start, 3)
}

// TryLock takes the lock if nobody has it.
func (m *Mutex) TryLock(t *sched.Task) bool { return m.TryLockNested(t, 0) }

// TryLockNested is TryLock that tells lockdep the order inside the class. A try is not checked itself;
// sub is for what is locked later.
func (m *Mutex) TryLockNested(t *sched.Task, sub uint64) bool {
	if !t.Slow() {
		return m.mu.TryLock()
	}
	if sim := t.Simulator(); sim != nil {
		return m.tryLockSim(t, sim, sub)
	}
	c := classOf(m.class)
	if st := t.Stepper(); st != nil {
		d := m.state()
		d.next(t, sched.PointTryLock, c.ID, 0, sched.Writes, m)
		st.Enter(t)
		free := d.writer == nil
		see(t, free)
		if !free {
			return false
		}
		d.writer = t
	} else if !m.mu.TryLock() {
		return false
	}
	lockdep.Acquire(t, c, sub, m, false, true, false)
	return true
}

// Unlock lets the lock go.
func (m *Mutex) Unlock(t *sched.Task) {
	if !t.Slow() {
		m.mu.Unlock()
		return
	}
	if t.Simulator() != nil {
		m.unlockSim(t)
		return
	}
	if st := t.Stepper(); st != nil {
		if st.Aborting() {
			return
		}
		if m.det != nil {
			m.det.next(t, sched.PointUnlock, classOf(m.class).ID, 0, sched.Writes, m)
			st.Enter(t)
		}
	}
	lockdep.Release(t, classOf(m.class), m)
	if t.Runtime() == nil {
		m.mu.Unlock()
		return
	}
	if m.det == nil || m.det.writer == nil {
		panic("lock: Unlock of an unlocked Mutex")
	}
	m.det.writer = nil
}

// AssertHeld panics when a checked task does not hold the lock.
func (m *Mutex) AssertHeld(t *sched.Task) {
	if !lockdep.Holds(t, m, true) {
		panic("lock: " + classOf(m.class).Name + " not held")
	}
}

// RWSem is a sleeping reader-writer lock. A waiting writer keeps new readers out.
type RWSem struct {
	mu    sync.RWMutex
	class *lockdep.Class
	det   *detState
}

// Init gives the lock its class.
func (s *RWSem) Init(c *lockdep.Class) { s.class = c }

// Objects calls f with what a Stepper knows the lock by.
func (s *RWSem) Objects(f func(*sched.Obj)) {
	d := s.state()
	f(&d.obj)
	f(&d.arrivals)
}

// SetClass changes the class of a lock that nobody holds: a tree block moves from one tree to another.
func (s *RWSem) SetClass(c *lockdep.Class) { s.class = c }

// Lock takes the lock for writing; it may sleep.
func (s *RWSem) Lock(t *sched.Task) { s.lock(t, 0) }

// LockNested is Lock with the order inside the class: sub must ascend.
func (s *RWSem) LockNested(t *sched.Task, sub uint64) { s.lock(t, sub) }

func (s *RWSem) lock(t *sched.Task, sub uint64) {
	if !t.Slow() {
		if !s.mu.TryLock() {
			s.lockSlow(t, sub)
		}
		return
	}
	st := t.Stepper()
	if st == nil {
		s.lockSlow(t, sub)
		return
	}
	c := classOf(s.class)
	lockdep.Acquire(t, c, sub, s, false, false, false)
	d := s.state()
	t.Next = sched.Op{Kind: sched.PointArrive, Class: c.ID, Use: sched.Adds, Obj: &d.arrivals, ID: s}
	st.Enter(t)
	d.waitingWriters++
	d.next(t, sched.PointLock, c.ID, gateWrite, sched.Writes, s)
	st.Enter(t)
	d.waitingWriters--
	d.writer = t
}

func (s *RWSem) lockSlow(t *sched.Task, sub uint64) {
	if sim := t.Simulator(); sim != nil {
		s.lockSim(t, sim, sub, false)
		return
	}
	c := classOf(s.class)
	lockdep.Acquire(t, c, sub, s, false, false, false)
	if s.mu.TryLock() {
		return
	}
	start := t.Now()
	s.mu.Lock()
	t.Waited(c.ID, c.Name, start, 3)
}

func (s *RWSem) state() *detState {
	if s.det == nil {
		s.det = &detState{}
	}
	return s.det
}

// TryLock takes the lock for writing if it is free.
func (s *RWSem) TryLock(t *sched.Task) bool { return s.TryLockNested(t, 0) }

// TryLockNested is TryLock that tells lockdep the order inside the class.
func (s *RWSem) TryLockNested(t *sched.Task, sub uint64) bool {
	if !t.Slow() {
		return s.mu.TryLock()
	}
	if sim := t.Simulator(); sim != nil {
		return s.tryLockSim(t, sim, sub, false)
	}
	c := classOf(s.class)
	if st := t.Stepper(); st != nil {
		d := s.state()
		d.next(t, sched.PointTryLock, c.ID, 0, sched.Writes, s)
		st.Enter(t)
		free := d.writer == nil && d.readers == 0
		see(t, free)
		if !free {
			return false
		}
		d.writer = t
	} else if !s.mu.TryLock() {
		return false
	}
	lockdep.Acquire(t, c, sub, s, false, true, false)
	return true
}

// Unlock ends Lock.
func (s *RWSem) Unlock(t *sched.Task) {
	if !t.Slow() {
		s.mu.Unlock()
		return
	}
	if t.Simulator() != nil {
		s.unlockSim(t, false)
		return
	}
	if st := t.Stepper(); st != nil {
		if st.Aborting() {
			return
		}
		s.state().next(t, sched.PointUnlock, classOf(s.class).ID, 0, sched.Writes, s)
		st.Enter(t)
	}
	lockdep.Release(t, classOf(s.class), s)
	if t.Runtime() == nil {
		s.mu.Unlock()
		return
	}
	d := s.state()
	if d.writer == nil {
		panic("lock: Unlock of an RWSem not locked for writing")
	}
	d.writer = nil
}

// RLock takes the lock for reading; it may sleep.
func (s *RWSem) RLock(t *sched.Task) { s.rlock(t, 0) }

// RLockNested is RLock with the order inside the class: sub must ascend.
func (s *RWSem) RLockNested(t *sched.Task, sub uint64) { s.rlock(t, sub) }

func (s *RWSem) rlock(t *sched.Task, sub uint64) {
	if !t.Slow() {
		if !s.mu.TryRLock() {
			s.rlockSlow(t, sub)
		}
		return
	}
	st := t.Stepper()
	if st == nil {
		s.rlockSlow(t, sub)
		return
	}
	c := classOf(s.class)
	lockdep.Acquire(t, c, sub, s, true, false, false)
	d := s.state()
	d.nextRead(t, sched.PointLock, c.ID, gateRead, s)
	st.Enter(t)
	d.readers++
}

func (s *RWSem) rlockSlow(t *sched.Task, sub uint64) {
	if sim := t.Simulator(); sim != nil {
		s.lockSim(t, sim, sub, true)
		return
	}
	c := classOf(s.class)
	lockdep.Acquire(t, c, sub, s, true, false, false)
	if s.mu.TryRLock() {
		return
	}
	start := t.Now()
	s.mu.RLock()
	t.Waited(c.ID, c.Name, start, 3)
}

// TryRLock takes the lock for reading if no writer has it or waits for it.
func (s *RWSem) TryRLock(t *sched.Task) bool { return s.TryRLockNested(t, 0) }

// TryRLockNested is TryRLock that tells lockdep the order inside the class.
func (s *RWSem) TryRLockNested(t *sched.Task, sub uint64) bool {
	if !t.Slow() {
		return s.mu.TryRLock()
	}
	if sim := t.Simulator(); sim != nil {
		return s.tryLockSim(t, sim, sub, true)
	}
	c := classOf(s.class)
	if st := t.Stepper(); st != nil {
		d := s.state()
		d.nextRead(t, sched.PointTryLock, c.ID, 0, s)
		st.Enter(t)
		free := d.writer == nil && d.waitingWriters == 0
		see(t, free)
		if !free {
			return false
		}
		d.readers++
	} else if !s.mu.TryRLock() {
		return false
	}
	lockdep.Acquire(t, c, sub, s, true, true, false)
	return true
}

// RUnlock ends RLock.
func (s *RWSem) RUnlock(t *sched.Task) {
	if !t.Slow() {
		s.mu.RUnlock()
		return
	}
	if t.Simulator() != nil {
		s.unlockSim(t, true)
		return
	}
	if st := t.Stepper(); st != nil {
		if st.Aborting() {
			return
		}
		s.state().next(t, sched.PointUnlock, classOf(s.class).ID, 0, sched.Reads, s)
		st.Enter(t)
	}
	lockdep.Release(t, classOf(s.class), s)
	if t.Runtime() == nil {
		s.mu.RUnlock()
		return
	}
	d := s.state()
	if d.readers == 0 {
		panic("lock: RUnlock of an RWSem not locked for reading")
	}
	d.readers--
}

// AssertHeld panics when a checked task does not hold the lock, for writing if write is set.
func (s *RWSem) AssertHeld(t *sched.Task, write bool) {
	if !lockdep.Holds(t, s, write) {
		panic("lock: " + classOf(s.class).Name + " not held")
	}
}

// Cond is a condition under a Mutex: waiters are woken in the order they came.
type Cond struct {
	L     *Mutex
	class *lockdep.Class
	list  []*sched.Task // protected by L
}

// Init ties the condition to its mutex; c names the wait.
func (k *Cond) Init(l *Mutex, c *lockdep.Class) { k.L, k.class = l, c }

// Wait lets L go, sleeps until a wake-up and takes L again. Call it in a loop with L held.
func (k *Cond) Wait(t *sched.Task) { k.wait(t, k) }

// WaitFor is Wait for an event that somebody owes (sched.WaitGraph).
func (k *Cond) WaitFor(t *sched.Task, ev any) { k.wait(t, ev) }

func (k *Cond) wait(t *sched.Task, ev any) {
	c := classOf(k.class)
	k.list = append(k.list, t)
	k.L.Unlock(t)
	lockdep.MightWait(t, c)
	start := t.Now()
	t.BlockedOn(ev)
	t.Park(c.ID)
	t.Waited(c.ID, c.Name, start, 2)
	k.L.Lock(t)
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
func (q *WaitQueue) Wait(t *sched.Task, cond func() bool) { q.wait(t, q.class, q, cond, 2) }

// WaitFor is Wait for an event that somebody owes (sched.WaitGraph), on a queue that many events share.
func (q *WaitQueue) WaitFor(t *sched.Task, ev any, cond func() bool) { q.wait(t, q.class, ev, cond, 2) }

func (q *WaitQueue) wait(t *sched.Task, class *lockdep.Class, ev any, cond func() bool, skip int) {
	c := classOf(class)
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
		q.mu.Lock()
		q.list = append(q.list, t)
		q.n.Store(int32(len(q.list)))
		q.mu.Unlock()
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
		t.Waited(c.ID, c.Name, start, skip)
	}
}

func (q *WaitQueue) remove(t *sched.Task) bool {
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
	n atomic.Int64
	q WaitQueue
}

// Open is the gate of a Stepper: zero is the way through.
func (k *Counter) Open() uint8 {
	if k.n.Load() == 0 {
		return 1
	}
	return 0
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
	op.Obj, op.Gate, op.Also, op.ID = &k.q.obj, k, nil, k
	rt.Enter(t)
}

// Init names the wait for zero.
func (k *Counter) Init(c *lockdep.Class) { k.q.Init(c) }

// Objects calls f with what a Stepper knows the counter by.
func (k *Counter) Objects(f func(*sched.Obj)) { f(&k.q.obj) }

// Inc adds one, which t then owes to take away (sched.WaitGraph).
func (k *Counter) Inc(t *sched.Task) {
	k.enter(t, sched.PointAtomic, 0, sched.Adds, false)
	k.n.Add(1)
	t.Owe(k)
}

// Dec takes one away and wakes those who wait for zero.
func (k *Counter) Dec(t *sched.Task) {
	k.enter(t, sched.PointAtomic, 0, sched.Adds, true)
	n := k.n.Add(-1)
	st := t.Stepper()
	if n < 0 && (st == nil || !st.Aborting()) {
		panic("lock: Counter below zero")
	}
	if st != nil {
		t.Discharge(k)
	} else if n == 0 {
		k.q.Wake(t)
	}
}

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
		k.q.wait(t, k.q.class, k, func() bool { return k.n.Load() == 0 }, 2)
	}
}

// Package lock holds the locks and wait queues of the write path. Each has a lockdep class, which
// names it in profiles and gives it its place in the one order; Init before use. The zero value is
// an unclassed leaf.
//
// The same lock behaves by the runtime of the task that uses it. No lock is shared by tasks of two
// runtimes.
//
//	               real                    explore (Stepper)            vtime (Simulator)
//	state          sync.Mutex, RWMutex     fields of detState           detState.sim
//	task switch    anywhere                at Enter, before the step    when the lock waits
//	free lock      sync's TryLock          Enter; the fields change     SimLock.Acquire
//	busy lock      looks a while, then     Enter returns once the       spins, sleeps, steals or is
//	               sync's Lock sleeps      gate (Open) is open          handed the lock, on its clock
//	try            sync's TryLock          Enter, then a look           SimLock.Try
//	unlock         sync's Unlock           Enter, unless the run        SimLock.Release
//	                                       is over
//	wait queue     Park, a channel         Enter and Park               Enter and Park
//	wait for zero  a wait queue            a gate (Counter.Open)        a wait queue
//	lockdep        tests (SetChecked)      unless the search turns      Machine.Checked
//	                                       the checks off
//	wait times     Task.Waited             none: it has no time         Task.Waited
//
// In the real runtime without lockdep (Task.Slow is false) a lock costs what sync's costs plus one
// branch. The files: lock.go has the locks and the real runtime, lock_step.go what a Stepper is
// told, sim.go what a Simulator is asked, wait.go the conditions, queues and counters. handoff.go
// has the lock of an RWSem that waits in the real runtime as Linux's does, not as sync's.
//
// Mutex and RWSem are one algorithm with a mode: lockdep.Write is exclusive, lockdep.Read is
// shared.
package lock

import (
	"runtime"
	"sync"

	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// core is the common part of a Mutex and an RWSem.
type core struct {
	class *lockdep.Class
	det   *detState // nil until a runtime other than the real one uses the lock
	// unfair says that the lock is never promised to a waiter (RWSem.SetHandoff).
	unfair bool
}

func classOf(c *lockdep.Class) *lockdep.Class {
	if c == nil {
		return lockdep.Unclassed
	}
	return c
}

func (k *core) state() *detState {
	if k.det == nil {
		k.det = &detState{}
	}
	return k.det
}

// blocks says that t, of the real runtime, begins to wait for lock id. The holder of a lock that
// sleeps may wait for works that t has put off.
func (k *core) blocks(t *sched.Task, id any) {
	c := classOf(k.class)
	if c.Kind != sched.LockSpin {
		t.WakeTaskWork()
	}
	t.BlockedOn(id)
	t.Blocks(c.ID)
}

// waited accounts a wait of the real runtime.
func (k *core) waited(t *sched.Task, start int64) {
	c := classOf(k.class)
	t.Waited(c.ID, c.Name, start)
}

// Mutex is a sleeping exclusive lock.
type Mutex struct {
	mu sync.Mutex
	core
}

// Init gives the lock its class.
func (m *Mutex) Init(c *lockdep.Class) { m.class = c }

// Lock takes the lock; it may sleep.
func (m *Mutex) Lock(t *sched.Task) { m.lock(t, 0) }

// LockNested is Lock with the order inside the class: sub must ascend.
func (m *Mutex) LockNested(t *sched.Task, sub uint64) { m.lock(t, sub) }

func (m *Mutex) lock(t *sched.Task, sub uint64) {
	if !t.Slow() {
		if !m.mu.TryLock() {
			m.block(t)
		}
		return
	}
	st := t.Stepper()
	if st == nil {
		m.lockSlow(t, sub)
		return
	}
	m.beginLock(t, sub)
	st.Enter(t)
	m.det.take(t, lockdep.Write)
}

func (m *Mutex) lockSlow(t *sched.Task, sub uint64) {
	if sim := t.Simulator(); sim != nil {
		m.lockSim(t, sim, sub, m, lockdep.Write)
		return
	}
	lockdep.Acquire(t, classOf(m.class), sub, m, lockdep.Write)
	if !m.mu.TryLock() {
		m.block(t)
	}
}

func (m *Mutex) block(t *sched.Task) {
	start := t.Now()
	for range looks() {
		if m.mu.TryLock() {
			m.waited(t, start)
			return
		}
	}
	m.blocks(t, m)
	m.mu.Lock()
	t.Unblocks()
	m.waited(t, start)
}

// looks is how often a task of the real runtime looks at a busy lock before it sleeps, some two
// microseconds: most locks are held for less, and sync's Lock looks for a tenth of that before it
// puts the task to sleep, which takes 50 to 100 us. On a machine with one CPU the holder does not
// run meanwhile.
//
// Models rwsem_optimistic_spin() and mutex_optimistic_spin(), and the spin locks of the kernel.
// Difference: those know whether the holder runs, and look as long as it does.
func looks() int {
	if runtime.NumCPU() == 1 {
		return 0
	}
	return 1000
}

// TryLock takes the lock if no task has it.
func (m *Mutex) TryLock(t *sched.Task) bool { return m.TryLockNested(t, 0) }

// TryLockNested is TryLock that tells lockdep the order inside the class. A try is not checked
// itself; sub is for what is locked later.
func (m *Mutex) TryLockNested(t *sched.Task, sub uint64) bool {
	if !t.Slow() {
		return m.mu.TryLock()
	}
	if sim := t.Simulator(); sim != nil {
		return m.tryLockSim(t, sim, sub, m, lockdep.Write)
	}
	c := classOf(m.class)
	if st := t.Stepper(); st != nil {
		d := m.state()
		d.next(t, sched.PointTryLock, c.ID, lockdep.Write, m)
		t.Next.Sub = sub
		st.Enter(t)
		if !d.try(t, st, lockdep.Write) {
			return false
		}
	} else if !m.mu.TryLock() {
		return false
	}
	lockdep.Acquire(t, c, sub, m, lockdep.Write|lockdep.Try)
	return true
}

// Unlock lets the lock go.
func (m *Mutex) Unlock(t *sched.Task) {
	if !t.Slow() {
		m.mu.Unlock()
		return
	}
	if t.Simulator() != nil {
		m.unlockSim(t, m, lockdep.Write)
		return
	}
	c := classOf(m.class)
	if st := t.Stepper(); st != nil {
		if st.Aborting() {
			return
		}
		m.BeginUnlock(t)
		st.Enter(t)
		m.EndUnlock(t)
		return
	}
	lockdep.Release(t, c, m)
	m.mu.Unlock()
}

// AssertHeld panics when a checked task does not hold the lock. Elsewhere it costs one load.
func (m *Mutex) AssertHeld(t *sched.Task) {
	if t.Checked() {
		lockdep.AssertHeld(t, classOf(m.class), m, lockdep.Write)
	}
}

// RWSem is a sleeping reader-writer lock. A waiting writer keeps new readers out.
type RWSem struct {
	mu sync.RWMutex
	core
	// queued, of a lock made by InitHandoff, is in the place of mu.
	queued *queued
}

// Init gives the lock its class.
func (s *RWSem) Init(c *lockdep.Class) { s.class = c }

// SetClass changes the class of a lock that no task holds: a tree block moves from one tree to
// another.
func (s *RWSem) SetClass(c *lockdep.Class) { s.class = c }

// Lock takes the lock for writing; it may sleep.
func (s *RWSem) Lock(t *sched.Task) { s.lock(t, 0, lockdep.Write) }

// LockNested is Lock with the order inside the class: sub must ascend.
func (s *RWSem) LockNested(t *sched.Task, sub uint64) { s.lock(t, sub, lockdep.Write) }

// RLock takes the lock for reading; it may sleep.
func (s *RWSem) RLock(t *sched.Task) { s.lock(t, 0, lockdep.Read) }

// RLockNested is RLock with the order inside the class: sub must ascend.
func (s *RWSem) RLockNested(t *sched.Task, sub uint64) { s.lock(t, sub, lockdep.Read) }

func (s *RWSem) lock(t *sched.Task, sub uint64, mode lockdep.Mode) {
	if !t.Slow() {
		if !s.takeReal(mode) {
			s.block(t, mode)
		}
		return
	}
	st := t.Stepper()
	if st == nil {
		s.lockSlow(t, sub, mode)
		return
	}
	c := classOf(s.class)
	lockdep.Acquire(t, c, sub, s, mode)
	d := s.state()
	if mode == lockdep.Write {
		d.arrive(t, c.ID, s)
		st.Enter(t)
		d.waitingWriters++
		d.settle()
	}
	d.next(t, sched.PointLock, c.ID, mode, s)
	st.Enter(t)
	if mode == lockdep.Write {
		d.waitingWriters--
	}
	d.take(t, mode)
}

func (s *RWSem) lockSlow(t *sched.Task, sub uint64, mode lockdep.Mode) {
	if sim := t.Simulator(); sim != nil {
		s.lockSim(t, sim, sub, s, mode)
		return
	}
	lockdep.Acquire(t, classOf(s.class), sub, s, mode)
	if !s.takeReal(mode) {
		s.block(t, mode)
	}
}

// takeReal takes the lock for a task that would wait for it, if it need not.
func (s *RWSem) takeReal(mode lockdep.Mode) bool {
	switch {
	case s.queued != nil:
		return s.queued.take(mode == lockdep.Read, false)
	case mode == lockdep.Read:
		return s.mu.TryRLock()
	}
	return s.mu.TryLock()
}

// tryReal takes the lock for a task that does not wait.
func (s *RWSem) tryReal(mode lockdep.Mode) bool {
	if s.queued != nil {
		return s.queued.try(mode == lockdep.Read)
	}
	return s.takeReal(mode)
}

func (s *RWSem) releaseReal(t *sched.Task, mode lockdep.Mode) {
	switch {
	case s.queued != nil:
		s.queued.release(t, mode == lockdep.Read)
	case mode == lockdep.Read:
		s.mu.RUnlock()
	default:
		s.mu.Unlock()
	}
}

func (s *RWSem) block(t *sched.Task, mode lockdep.Mode) {
	start := t.Now()
	if s.queued == nil {
		for range looks() {
			if s.takeReal(mode) {
				s.waited(t, start)
				return
			}
		}
	}
	s.blocks(t, s)
	switch {
	case s.queued != nil:
		s.queued.wait(t, classOf(s.class).ID, mode == lockdep.Read)
	case mode == lockdep.Read:
		s.mu.RLock()
	default:
		s.mu.Lock()
	}
	t.Unblocks()
	s.waited(t, start)
}

// TryLock takes the lock for writing if it is free.
func (s *RWSem) TryLock(t *sched.Task) bool { return s.TryLockNested(t, 0) }

// TryLockNested is TryLock that tells lockdep the order inside the class.
func (s *RWSem) TryLockNested(t *sched.Task, sub uint64) bool {
	if !t.Slow() {
		return s.tryReal(lockdep.Write)
	}
	return s.trySlow(t, sub, lockdep.Write)
}

// TryRLock takes the lock for reading if no writer has it or waits for it.
func (s *RWSem) TryRLock(t *sched.Task) bool { return s.TryRLockNested(t, 0) }

// TryRLockNested is TryRLock that tells lockdep the order inside the class.
func (s *RWSem) TryRLockNested(t *sched.Task, sub uint64) bool {
	if !t.Slow() {
		return s.tryReal(lockdep.Read)
	}
	return s.trySlow(t, sub, lockdep.Read)
}

func (s *RWSem) trySlow(t *sched.Task, sub uint64, mode lockdep.Mode) bool {
	if sim := t.Simulator(); sim != nil {
		return s.tryLockSim(t, sim, sub, s, mode)
	}
	c := classOf(s.class)
	if st := t.Stepper(); st != nil {
		d := s.state()
		d.next(t, sched.PointTryLock, c.ID, mode, s)
		t.Next.Sub = sub
		st.Enter(t)
		if !d.try(t, st, mode) {
			return false
		}
	} else if !s.tryReal(mode) {
		return false
	}
	lockdep.Acquire(t, c, sub, s, mode|lockdep.Try)
	return true
}

// Unlock ends Lock.
func (s *RWSem) Unlock(t *sched.Task) {
	if !t.Slow() {
		s.releaseReal(t, lockdep.Write)
		return
	}
	s.unlockSlow(t, lockdep.Write)
}

// RUnlock ends RLock.
func (s *RWSem) RUnlock(t *sched.Task) {
	if !t.Slow() {
		s.releaseReal(t, lockdep.Read)
		return
	}
	s.unlockSlow(t, lockdep.Read)
}

func (s *RWSem) unlockSlow(t *sched.Task, mode lockdep.Mode) {
	if t.Simulator() != nil {
		s.unlockSim(t, s, mode)
		return
	}
	c := classOf(s.class)
	if st := t.Stepper(); st != nil {
		if st.Aborting() {
			return
		}
		d := s.state()
		d.next(t, sched.PointUnlock, c.ID, mode, s)
		st.Enter(t)
		lockdep.Release(t, c, s)
		d.drop(c, mode)
		return
	}
	lockdep.Release(t, c, s)
	s.releaseReal(t, mode)
}

// AssertHeld panics when a checked task does not hold the lock for writing. Elsewhere it costs one
// load.
func (s *RWSem) AssertHeld(t *sched.Task) {
	if t.Checked() {
		lockdep.AssertHeld(t, classOf(s.class), s, lockdep.Write)
	}
}

// AssertRHeld is AssertHeld for a lock held for reading or writing.
func (s *RWSem) AssertRHeld(t *sched.Task) {
	if t.Checked() {
		lockdep.AssertHeld(t, classOf(s.class), s, lockdep.Read)
	}
}

package sched

import "time"

// Simulator is a Runtime with simulated CPUs and a clock (package vtime): it decides itself how a
// task waits for a lock, by sleeping, spinning, stealing or being handed it.
type Simulator interface {
	Runtime
	// NewLock makes the simulated lock of a lock.Mutex or lock.RWSem.
	NewLock(kind LockKind, class ClassID) SimLock
	// ParkFor is Park that ends after d at the latest.
	ParkFor(t *Task, class ClassID, d time.Duration)
	// Spend passes the CPU time of n units of cost c.
	Spend(t *Task, c Cost, n int)
	// CPUs is how many the machine has; at least 1.
	CPUs() int
	// Waited hears of a wait of t for class that began at since and has just ended.
	Waited(t *Task, class ClassID, since int64)
}

// SimLock is a lock under a Simulator.
type SimLock interface {
	// Acquire gets the lock and reports since when t waited, if it did.
	Acquire(t *Task, read bool) (since int64, waited bool)
	// Try gets the lock if that needs no wait.
	Try(t *Task, read bool) bool
	// SetHandoff says whether a waiter that has been passed over for long is handed the lock; that
	// is so until it is called.
	SetHandoff(on bool)
	// Release lets go what Acquire or Try got.
	Release(t *Task, read bool)
}

// LockKind is how the kernel waits for a lock of a class.
type LockKind uint8

// The kinds.
const (
	LockSpin LockKind = iota // a spinlock: no task sleeps while it holds one
	// a mutex or rw_semaphore: waiters spin while the owner runs, then sleep
	LockSleep
	LockBit // a bit with a wait queue (a page lock): waiters sleep
)

// Cost names an entry of the cost table (package cost).
type Cost uint8

// Spend accounts the CPU time of n units of c; only a Simulator knows what they cost.
func (t *Task) Spend(c Cost, n int) {
	if t.sim != nil {
		t.sim.Spend(t, c, n)
	}
}

// Simulator is the runtime when it is one that simulates CPUs, and nil otherwise.
func (t *Task) Simulator() Simulator { return t.sim }

// Checked reports whether lockdep watches the task.
func (t *Task) Checked() bool { return t.checked }

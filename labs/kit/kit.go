// Package kit is what student code of the labs may use instead of sync: a mutex, a condition and a checked field that work under
// the explorer, in virtual time and with real tasks alike.
//
// Model: a Mutex is a spinlock of the kernel: nobody sleeps with it held, Cond.Wait lets it go. A Cond wakes every waiter, and
// each looks again.
package kit

import (
	"sync/atomic"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// Task is the task that calls.
type Task = sched.Task

// The classes stand where the write path takes a range lock: behind i_rwsem, in front of everything else.
var (
	mutexClass = lockdep.NewClass("student_mutex", lockdep.RankLeaf)
	condClass  = lockdep.NewClass("student_wait", lockdep.RankInode+5)
)

// Classes are the names of the classes of Mutex and Cond, for those who choose scheduling points.
func Classes() []string { return []string{mutexClass.Name, condClass.Name} }

// Range is the bytes [Start, End).
type Range struct{ Start, End uint64 }

// Overlaps reports whether the two have a byte in common.
func (r Range) Overlaps(s Range) bool { return r.Start < s.End && s.Start < r.End }

// Mutex is held for a few instructions. The zero value is not ready: call Init.
type Mutex struct{ mu lock.Mutex }

// Init makes m ready.
func (m *Mutex) Init() { m.mu.Init(mutexClass) }

// Lock takes m.
func (m *Mutex) Lock(t *Task) { m.mu.Lock(t) }

// Unlock lets m go.
func (m *Mutex) Unlock(t *Task) { m.mu.Unlock(t) }

// Cond is a place to wait for a change of what a Mutex protects. The zero value is not ready: call Init.
type Cond struct {
	q   lock.WaitQueue
	seq atomic.Uint64 // broadcasts so far
}

// Init makes c ready.
func (c *Cond) Init() { c.q.Init(condClass) }

// Wait lets m go, sleeps until a Broadcast that comes after, and takes m again. Meanwhile anything may have changed.
//
// Preconditions:
//   - m is held by t.
func (c *Cond) Wait(t *Task, m *Mutex) {
	seq := c.seq.Load()
	m.Unlock(t)
	c.q.Wait(t, func() bool { return c.seq.Load() != seq })
	m.Lock(t)
}

// Broadcast wakes everybody who waits.
func (c *Cond) Broadcast(t *Task) {
	c.seq.Add(1)
	c.q.Wake(t)
}

// Var is a field that tasks share under a Mutex. The explorer reports two accesses that no lock orders, one of them a Store.
type Var[T any] struct{ v sched.Var[T] }

// Load reads the field.
func (v *Var[T]) Load(t *Task) T { return v.v.Load(t) }

// Store writes the field.
func (v *Var[T]) Store(t *Task, x T) { v.v.Store(t, x) }

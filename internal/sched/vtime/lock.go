package vtime

import (
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// NewLock makes a lock. Each kind waits as it does in Linux: rwsem.go for mutexes and
// rw_semaphores, bitlock as a rwsem that neither spins nor hands over, spinlock.go for spinlocks.
// With Machine.GoLocks golock.go is for all.
func (w *World) NewLock(kind sched.LockKind, class sched.ClassID) sched.SimLock {
	return w.watch(w.newLock(kind, class), class)
}

func (w *World) newLock(kind sched.LockKind, class sched.ClassID) sched.SimLock {
	switch {
	case w.m.GoLocks:
		return &golock{w: w, class: class, cpu: -1}
	case kind == sched.LockSpin:
		return &spinlock{w: w, class: class, cpu: -1}
	case kind == sched.LockBit:
		return &rwsem{w: w, class: class, bit: true, cpu: -1}
	default:
		return &rwsem{w: w, class: class, cpu: -1}
	}
}

// touch charges for an uncontended lock, and its cache line.
func (w *World) touch(k *task, cpu *int32) {
	k.debt += w.price(cost.Lock, 1)
	w.line(k, cpu)
}

// line charges for a cache line that another CPU wrote last.
func (w *World) line(k *task, cpu *int32) {
	if *cpu != int32(k.cpu) {
		if *cpu >= 0 {
			k.debt += w.price(cost.Line, 1)
		}
		*cpu = int32(k.cpu)
	}
}

func (k *task) onCPU() bool { return k.state == running || k.state == spinning }

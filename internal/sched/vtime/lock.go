package vtime

import (
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// NewLock makes a lock. Each kind waits as it does in Linux: rwsem.go for mutexes and rw_semaphores, bitlock as a
// rwsem that neither spins nor hands over, spinlock.go for spinlocks.
func (w *World) NewLock(kind sched.LockKind, class sched.ClassID) sched.SimLock {
	switch kind {
	case sched.LockSpin:
		return &spinlock{w: w, class: class, cpu: -1}
	case sched.LockBit:
		return &rwsem{w: w, class: class, bit: true, cpu: -1}
	default:
		return &rwsem{w: w, class: class, cpu: -1}
	}
}

// touch charges for the lock's cache line.
func (w *World) touch(k *task, cpu *int32) {
	k.debt += w.costs.Nanos(cost.Lock, 1)
	if *cpu != int32(k.cpu) {
		if *cpu >= 0 {
			k.debt += w.costs.Nanos(cost.Line, 1)
		}
		*cpu = int32(k.cpu)
	}
}

func (k *task) onCPU() bool { return k.state == running || k.state == spinning }

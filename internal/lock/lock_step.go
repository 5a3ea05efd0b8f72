package lock

import (
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// Under a Stepper one task runs at a time and a lock is plain fields. Before a task changes them it
// says what it is about to do (next, arrive) and calls Stepper.Enter, which returns when the
// schedule says so and, for a lock, when the gate is open.

// detState is a lock's state under a runtime that runs one task at a time.
type detState struct {
	writer  *sched.Task
	readers int32
	// keep new readers out, as they do in sync.RWMutex and in the kernel's rwsem
	waitingWriters int32

	gate sched.Gate // what the fields above shut (settle)

	// obj and arrivals are the two objects a Stepper sees. A waiting writer blocks new readers
	// (arrivals) before it owns the lock (obj); keeping them apart lets arrivals of two writers
	// commute.
	obj, arrivals sched.Obj

	sim sched.SimLock // all there is under a Simulator
}

// The ways through a lock's gate.
const (
	gateWrite = 1 << iota
	gateRead
)

// settle shuts and opens the gate as the state has it.
func (d *detState) settle() {
	var shut uint8
	if d.writer != nil || d.readers != 0 {
		shut = gateWrite
	}
	if d.writer != nil || d.waitingWriters != 0 {
		shut |= gateRead
	}
	d.gate.Shut = shut
}

// next says what t does to lock id at the scheduling point that follows. It does not call
// Stepper.Enter: each method of a lock does that itself, since after a switch to another task the
// processor mispredicts the return from every call in between.
func (d *detState) next(t *sched.Task, kind sched.PointKind, c sched.ClassID, mode lockdep.Mode, id any) {
	op := &t.Next
	op.Kind, op.Class, op.Use, op.Frees, op.Mode = kind, c, sched.Writes, kind == sched.PointUnlock, 0
	op.Obj, op.Gate, op.Also, op.ID, op.Sub = &d.obj, &d.gate, nil, id, 0
	if mode == lockdep.Read {
		op.Use = sched.Reads
		if kind != sched.PointUnlock { // a reader also looks at the writers that have arrived
			op.Also, op.AlsoUse = &d.arrivals, sched.Reads
		}
	}
	if kind == sched.PointLock {
		op.Mode = gateWrite
		if mode == lockdep.Read {
			op.Mode = gateRead
		}
	}
}

// arrive says that t, a writer of lock id, arrives: from the scheduling point that follows it keeps
// new readers out.
func (d *detState) arrive(t *sched.Task, c sched.ClassID, id any) {
	t.Next = sched.Op{Kind: sched.PointArrive, Class: c, Use: sched.Adds, Obj: &d.arrivals, ID: id}
}

// take gives t the lock.
func (d *detState) take(t *sched.Task, mode lockdep.Mode) {
	if mode == lockdep.Read {
		d.readers++
	} else {
		d.writer = t
	}
	d.settle()
}

// try is take if the gate is open, and tells the Stepper what came of it.
func (d *detState) try(t *sched.Task, st sched.Stepper, mode lockdep.Mode) bool {
	way := uint8(gateWrite)
	if mode == lockdep.Read {
		way = gateRead
	}
	if d.gate.Shuts(way) {
		st.See(t, 5)
		return false
	}
	st.See(t, 6)
	d.take(t, mode)
	return true
}

// drop takes the lock away.
func (d *detState) drop(c *lockdep.Class, mode lockdep.Mode) {
	switch {
	case mode == lockdep.Write && d.writer != nil:
		d.writer = nil
	case mode == lockdep.Read && d.readers > 0:
		d.readers--
	default:
		panic("lock: unlock of a " + c.Name + " that is not locked")
	}
	d.settle()
}

// Objects calls f with what a Stepper knows the lock by.
func (m *Mutex) Objects(f func(*sched.Obj)) { f(&m.state().obj) }

// Objects calls f with what a Stepper knows the lock by.
func (s *RWSem) Objects(f func(*sched.Obj)) {
	d := s.state()
	f(&d.obj)
	f(&d.arrivals)
}

// Look tells a Stepper that t reads, without the lock, what is written under it.
func (m *Mutex) Look(t *sched.Task) {
	if st := t.Stepper(); st != nil {
		st.Touch(t, &m.state().obj, sched.Reads)
	}
}

// Reset frees a lock that a program uses in one execution after the other, of which some end while
// a task holds it. It is for runtimes that run one task at a time.
func (m *Mutex) Reset() {
	if m.det != nil {
		*m.det = detState{}
	}
}

// BeginLock and EndLock are the two halves of Lock for a task that is an explore.Machine: BeginLock
// says in t.Next that t takes the lock next, and EndLock takes it once the schedule lets t go on.
func (m *Mutex) BeginLock(t *sched.Task) { m.beginLock(t, 0) }

// EndLock ends BeginLock.
func (m *Mutex) EndLock(t *sched.Task) { m.det.take(t, lockdep.Write) }

// BeginUnlock and EndUnlock are the two halves of Unlock; see BeginLock.
func (m *Mutex) BeginUnlock(t *sched.Task) {
	m.state().next(t, sched.PointUnlock, classOf(m.class).ID, lockdep.Write, m)
}

// EndUnlock ends BeginUnlock.
func (m *Mutex) EndUnlock(t *sched.Task) {
	c := classOf(m.class)
	lockdep.Release(t, c, m)
	m.det.drop(c, lockdep.Write)
}

func (m *Mutex) beginLock(t *sched.Task, sub uint64) {
	c := classOf(m.class)
	lockdep.Acquire(t, c, sub, m, lockdep.Write)
	m.state().next(t, sched.PointLock, c.ID, lockdep.Write, m)
}

package sched

import "fmt"

// Stepper is a Runtime that runs tasks by a schedule and wants to know what each step depends on
// (package explore). A task's step begins at Enter, with one operation on one object, and may Touch
// more objects until the next Enter. If the operation has a mode, the task can be run only while
// the gate is open for it.
type Stepper interface {
	Runtime
	WaitGraph
	// Touch says that the present step also uses o.
	Touch(t *Task, o *Obj, use Use)
	// Aborting says that the run is over and tasks only unwind: deferred unlocks must do nothing.
	Aborting() bool
	// Data checks an access to plain memory, which reports call what, for a race.
	Data(t *Task, o *Obj, write bool, what fmt.Stringer)
	// Keep says that x is state which neither the tasks' own histories nor an object of theirs
	// have, such as the order of a queue. Its Hash is equal in two executions when it is in the
	// same state. o tells that it has been said before.
	Keep(o *Obj, x interface{ Hash() uint64 })
	// See folds a value that t has just read into what t knows.
	See(t *Task, hash uint64)
}

// Use is how a step uses an object. Two steps depend on each other, and cannot change places, when
// they use one object in different ways or both write it.
type Use uint8

// How an operation uses an object. Two Adds commute, so a search need not try both orders.
const (
	Reads Use = iota
	Writes
	Adds
)

// Op is an operation that a task is about to do. A lock fills Task.Next in place, field by field:
// copying an Op costs as much as the step.
type Op struct {
	Kind  PointKind
	Class ClassID
	// Use is how the operation uses Obj. One whose result depends on its order with operations that
	// read writes.
	Use Use
	// Frees says that the operation only opens the gate, as an unlock does.
	Frees bool
	// Mode are the ways through Gate, one of which t needs; 0 is an operation that never waits.
	Mode uint8
	Obj  *Obj
	Gate Gate
	// Also is a second object on which Gate depends, used so.
	Also    *Obj
	AlsoUse Use
	// ID is the object's identity for reports: what HeldLocks names.
	// Without Obj the Stepper knows the object by it.
	ID any
}

// Touch tells a Stepper that the present step uses o, which stands for shared data that is in no
// lock: a table that is read without one. It costs one load elsewhere.
func (t *Task) Touch(o *Obj, use Use) {
	if t.st != nil {
		t.st.Touch(t, o, use)
	}
}

// Gate is a condition that a task may have to wait for.
type Gate interface {
	// Open returns the ways that are open now, as bits. It has no side effects.
	Open() uint8
}

// Obj is a Stepper's note on an object: its number in the run Run. The zero value is an object not
// seen yet.
type Obj struct {
	Run uint64
	Num int32
}

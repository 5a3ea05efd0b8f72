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
	// Spurious reports whether the task that runs is to be woken without a reason: see
	// lock.WaitQueue.WaitOrNot.
	Spurious() bool
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
	Gate *Gate
	// Also is a second object on which Gate depends, used so.
	Also    *Obj
	AlsoUse Use
	// ID is the object's identity for reports: what HeldLocks names.
	// Without Obj the Stepper knows the object by it.
	ID any
	// Sub is the order of a lock inside its class, where HeldLocks does not have it yet: of a try.
	Sub uint64
}

// Touch tells a Stepper that the present step uses o, which stands for shared data that is in no
// lock: a table that is read without one. It costs one load elsewhere.
func (t *Task) Touch(o *Obj, use Use) {
	if t.st != nil {
		t.st.Touch(t, o, use)
	}
}

// Gate is a condition that a task may have to wait for. Its owner, a lock or a counter, keeps it up
// to date, so that a decision, which looks at the gates of all tasks, only loads it. The zero value
// is open.
type Gate struct {
	// Shut are the ways that are shut now, as bits. There are at most 7.
	Shut uint8
	// Open, unless it is nil, is asked in place of Shut: for a condition on what has no owner. It
	// has no side effects.
	Open func() bool
}

// Shuts says that a task that needs one of the ways of mode cannot go on. A mode of 0 needs none.
func (g *Gate) Shuts(mode uint8) bool {
	if mode == 0 {
		return false
	}
	if g.Open != nil {
		return !g.Open()
	}
	return mode&^g.Shut == 0
}

// Ways are the ways that are open now, as bits.
func (g *Gate) Ways() uint8 {
	shut := g.Shut
	if g.Open != nil && !g.Open() {
		shut = 1<<7 - 1
	}
	return ^shut & (1<<7 - 1)
}

// Obj is a Stepper's note on an object: its number in the run Run. The zero value is an object not
// seen yet.
type Obj struct {
	Run uint64
	Num int32
}

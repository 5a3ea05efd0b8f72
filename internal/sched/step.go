package sched

import "sync/atomic"

// Stepper is a Runtime that runs tasks by a schedule and wants to know what each step depends on (package explore).
// A task's step begins at Enter, with one operation on one object, and may Touch more objects until the next Enter.
type Stepper interface {
	Runtime
	// Enter is a scheduling point: t does op next. With a mode, t can be run only while op.Gate is open for it.
	Enter(t *Task, op Op)
	// Touch says that the present step also uses o; two steps of which one writes o cannot change places.
	Touch(t *Task, o *Obj, write bool)
	// Aborting says that the run is over and tasks only unwind: deferred unlocks must do nothing.
	Aborting() bool
	// Data checks an access to a plain field for a race.
	Data(t *Task, o *Obj, write bool)
	// See folds a value that t has just read into what t knows.
	See(t *Task, hash uint64)
}

// Op is what a task is about to do.
type Op struct {
	Kind  PointKind
	Class ClassID
	// Write says that the operation changes Obj, or that its result depends on the order with others that only read.
	Write bool
	// Mode are the ways through Gate, one of which t needs; 0 is an operation that never waits.
	Mode uint8
	Obj  *Obj
	Gate Gate
	// ID is the object's identity for reports: what HeldLocks names.
	ID any
}

// Gate is what a task may have to wait for.
type Gate interface {
	// Open returns the ways that are open now, as bits. It has no side effects.
	Open() uint8
}

// Obj is a Stepper's note on an object: its number in the run Run. The zero value is an object not seen yet.
type Obj struct {
	Run uint64
	Num int32
}

// ClassInfo is what a class is called and where it stands in the lock order; rank 0 is nowhere.
type ClassInfo struct {
	Name string
	Rank int
}

var classInfo [MaxClasses]atomic.Pointer[ClassInfo]

// NameClass records a class; package lockdep calls it.
func NameClass(id ClassID, info ClassInfo) { classInfo[id].Store(&info) }

// ClassByID is what NameClass recorded.
func ClassByID(id ClassID) ClassInfo {
	if c := classInfo[id].Load(); c != nil {
		return *c
	}
	return ClassInfo{Name: "unclassed"}
}

// Package kit is what student code of the labs may use instead of sync: a mutex, a condition and a
// checked field that work under the explorer, in virtual time and with real tasks alike.
//
// It is also a library for programs of one's own: Explore runs ten lines of Go with its locks,
// fields and words by every schedule, shrinks what it finds, and Draw shows it. See the examples.
//
// A Policy is the locking of one file, written with the documented steps of the write path: what a
// write, a read, a truncate, a hole and an fsync lock, and in which order they go on. It is the
// extension point for policies of one's own: lab 12 explores one in every scenario of the matrix,
// and measures it against every preset.
//
// Model: a Mutex is a spinlock of the kernel: nobody sleeps with it held, Cond.Wait lets it go. A
// Cond wakes every waiter, and each looks again.
package kit

import (
	"reflect"
	"sync/atomic"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// Task is the task that calls. It has no methods and no fields that another package can use: what a
// task does, it does through the types of this package, where every runtime sees it.
type Task struct {
	t     *sched.Task
	judge *Judge // nil for none
}

// need panics, in words for the student, unless t is a task: the one that caller says.
func (t *Task) need(typ, call, caller string) {
	if t == nil || t.t == nil {
		panic("kit." + typ + "." + call + " without a task: hand on the t that " + caller + " called with")
	}
}

// On is task t for code of a lab.
func On(t *sched.Task) *Task { return &Task{t: t} }

// Watched is On for a judge that is told each time before the task sleeps in a Cond. The Mutex is
// held then.
func Watched(t *sched.Task, sleeps func()) *Task { return (&Judge{Sleeps: sleeps}).On(t) }

// Judge is told when a task sleeps, and may plant mistakes in what it calls. The zero value does
// neither, and so does nil.
type Judge struct {
	// Sleeps and Wakes, if set, are called before and after a wait in a Cond, with the Mutex held.
	Sleeps, Wakes func()
	// WakesOne has a Broadcast wake only the task that has waited the longest.
	WakesOne bool
	// WaitsLate has a Wait let the Mutex go first and begin to wait then: a Broadcast that comes
	// between the two does not wake it.
	WaitsLate bool
}

// On is task t with the judge.
func (j *Judge) On(t *sched.Task) *Task { return &Task{t, j} }

// of is the judge of a task; one that does nothing for none.
func (t *Task) of() *Judge {
	if t.judge == nil {
		return &Judge{}
	}
	return t.judge
}

// RangeLocker is a student's lock on byte ranges.
type RangeLocker interface {
	Lock(t *Task, start, end uint64)
	Unlock(t *Task, start, end uint64)
}

// Locker is a RangeLocker for the write path, under Judge if there is one.
type Locker struct {
	RangeLocker
	Judge *Judge
}

// Lock locks the bytes [start, end).
func (l Locker) Lock(t *sched.Task, start, end uint64) {
	l.RangeLocker.Lock(l.Judge.On(t), start, end)
}

// Unlock lets them go.
func (l Locker) Unlock(t *sched.Task, start, end uint64) {
	l.RangeLocker.Unlock(l.Judge.On(t), start, end)
}

// The classes stand where the write path takes a range lock: after i_rwsem, before everything else.
var (
	mutexClass = lockdep.NewClass("student_mutex")
	condClass  = lockdep.NewClass("student_wait")
)

// Classes are the names of the classes of Mutex and Cond, for those who choose scheduling points.
func Classes() []string { return []string{mutexClass.Name, condClass.Name} }

// CondClass is the class of a wait in a Cond.
func CondClass() sched.ClassID { return condClass.ID }

// Range is the bytes [Start, End).
type Range struct{ Start, End uint64 }

// Overlaps reports whether the two have a byte in common.
func (r Range) Overlaps(s Range) bool { return r.Start < s.End && s.Start < r.End }

// use panics, in words for the student, unless t is a task and Init was called: a Mutex without
// Init would seem to work.
func use(t *Task, ready bool, what string) {
	switch {
	case t == nil || t.t == nil:
		panic("kit." + what + " without a task: hand on the t that Lock and Unlock were called with")
	case !ready:
		panic("kit." + what + " before Init: the zero value is not ready")
	}
}

// Mutex is held for a few instructions. The zero value is not ready: call Init.
type Mutex struct {
	mu    lock.Mutex
	ready bool
	owner atomic.Pointer[sched.Task] // the task that holds it
}

// Init makes m ready.
func (m *Mutex) Init() {
	m.mu.Init(mutexClass)
	m.ready = true
}

// Lock takes m. A task holds one Mutex at a time.
func (m *Mutex) Lock(t *Task) {
	m.free(t, "Mutex.Lock", "it would wait for itself")
	m.mu.Lock(t.t)
	m.owner.Store(t.t)
}

// TryLock takes m if no task holds it, and reports whether it has. False has taken nothing: do not
// call Unlock.
func (m *Mutex) TryLock(t *Task) bool {
	m.free(t, "Mutex.TryLock", "it would never get it")
	ok := m.mu.TryLock(t.t)
	if ok {
		m.owner.Store(t.t)
	}
	return ok
}

// free panics, in words for the student, if t holds m or another Mutex.
func (m *Mutex) free(t *Task, what, why string) {
	use(t, m.ready, what)
	if m.owner.Load() == t.t {
		panic("kit." + what + " by the task that holds it: " + why)
	}
	for _, h := range t.t.HeldLocks { // empty with real tasks
		if h.Class == mutexClass.ID {
			panic("kit." + what + " by a task that holds another Mutex: it may wait with one held")
		}
	}
}

// Unlock lets m go.
//
// Preconditions:
//   - m is held by t.
func (m *Mutex) Unlock(t *Task) {
	use(t, m.ready, "Mutex.Unlock")
	m.mustHold(t, "Mutex.Unlock")
	m.owner.Store(nil)
	m.mu.Unlock(t.t)
}

func (m *Mutex) mustHold(t *Task, what string) {
	if m.owner.Load() != t.t {
		panic("kit." + what + " by a task that does not hold the mutex")
	}
}

// Cond is a place to wait for a change of what a Mutex protects. The zero value is not ready: call
// Init.
type Cond struct {
	q     lock.WaitQueue
	ready bool
	seq   atomic.Uint64 // broadcasts so far
	line  []*bool       // under Judge.WakesOne: who waits, and gets true
}

// Init makes c ready.
func (c *Cond) Init() {
	c.q.Init(condClass)
	c.ready = true
}

// Wait lets m go, sleeps until a Broadcast that comes after, and takes m again. Meanwhile anything
// may have changed. Call it in a loop: as with the conditions of POSIX, Java and most others, the
// wake-up may be spurious, without a Broadcast. Explore, practice --own and the searches of a
// policy try that, one for each task.
//
// Preconditions:
//   - m is held by t.
func (c *Cond) Wait(t *Task, m *Mutex) {
	use(t, c.ready && m.ready, "Cond.Wait")
	m.mustHold(t, "Cond.Wait")
	j := t.of()
	if j.Sleeps != nil {
		j.Sleeps()
	}
	woken := c.begin(j)
	m.Unlock(t)
	c.q.WaitOrNot(t.t, woken)
	m.Lock(t)
	if j.Wakes != nil {
		j.Wakes()
	}
}

// begin begins a wait; woken says whether a Broadcast has ended it.
func (c *Cond) begin(j *Judge) (woken func() bool) {
	switch {
	case j.WakesOne:
		is := new(bool)
		c.line = append(c.line, is)
		return func() bool { return *is }
	case j.WaitsLate:
		begun, seq := false, uint64(0)
		return func() bool {
			if !begun {
				begun, seq = true, c.seq.Load()
			}
			return c.seq.Load() != seq
		}
	}
	seq := c.seq.Load()
	return func() bool { return c.seq.Load() != seq }
}

// Broadcast wakes everybody who waits.
func (c *Cond) Broadcast(t *Task) {
	use(t, c.ready, "Cond.Broadcast")
	c.seq.Add(1)
	if len(c.line) > 0 {
		*c.line[0] = true
		c.line = c.line[1:]
	}
	c.q.Wake(t.t)
}

// Var is a field that tasks share under a Mutex. The explorer reports two accesses that no lock
// orders, one of them a Store. What a Load returns may refer to more, as a slice or a map does,
// which can be changed without a Store: such a Load counts as one.
type Var[T any] struct{ v sched.Var[T] }

// Load reads the field.
func (v *Var[T]) Load(t *Task) T {
	use(t, true, "Var.Load")
	x := v.v.Load(t.t)
	if refers(reflect.TypeFor[T]()) {
		v.v.Store(t.t, x)
	}
	return x
}

// Store writes the field.
func (v *Var[T]) Store(t *Task, x T) {
	use(t, true, "Var.Store")
	v.v.Store(t.t, x)
}

// refers says whether a value of type t leads to memory that is not part of it and can be changed.
func refers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface, reflect.Func:
		return true
	case reflect.Array:
		return refers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if refers(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}

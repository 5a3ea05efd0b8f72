package sched

import (
	"fmt"
	"hash/maphash"
)

// Label is a name for reports.
type Label string

func (l Label) String() string { return string(l) }

// Var is a plain field that tasks share. It is no scheduling point and costs what a field costs in the real runtime, where
// the Go race detector watches it; under a Stepper every access is checked for races by vector clocks.
type Var[T any] struct {
	v T
	o Obj
	// Name is what reports call the field; set it before tasks start.
	Name Label
}

// Load reads the field.
func (v *Var[T]) Load(t *Task) T {
	if t.st != nil {
		v.data(t, false)
	}
	return v.v
}

// Store writes the field.
func (v *Var[T]) Store(t *Task, x T) {
	if t.st != nil {
		v.data(t, true)
	}
	v.v = x
}

// Peek reads the field when nobody else runs: in an oracle, before tasks start.
func (v *Var[T]) Peek() T { return v.v }

// Init sets the field before tasks start.
func (v *Var[T]) Init(x T) { v.v = x }

//go:noinline
func (v *Var[T]) data(t *Task, write bool) {
	t.st.Data(t, &v.o, write, &v.Name)
	if !write {
		t.st.See(t, hashValue(v.v))
	}
}

// Shared stands for plain memory that tasks share and that is no Var: the bytes of a page, a list, a struct. Read and Write
// come before the access, under the lock that protects it; they are no scheduling points and cost one test in
// the real runtime. Their argument names the memory in reports.
type Shared struct{ o Obj }

// Read says that t reads the memory.
func (s *Shared) Read(t *Task, what fmt.Stringer) {
	if t.st != nil {
		s.data(t, false, what)
	}
}

// Write says that t changes the memory, or reads and changes it.
func (s *Shared) Write(t *Task, what fmt.Stringer) {
	if t.st != nil {
		s.data(t, true, what)
	}
}

//go:noinline
func (s *Shared) data(t *Task, write bool, what fmt.Stringer) { t.st.Data(t, &s.o, write, what) }

// Atomic is a word that tasks share without a lock: READ_ONCE, WRITE_ONCE, atomic_t. Each operation is a scheduling
// point and orders what comes before a store with what comes after a load of it. It is for programs under a
// Stepper and for tests of one; the write path uses sync/atomic with Task.Enter.
type Atomic[T comparable] struct {
	v     T
	o     Obj
	Class ClassID
}

// Load reads the word.
func (a *Atomic[T]) Load(t *Task) T {
	if t.st != nil {
		a.enter(t, PointLoad, Reads, nil)
		t.st.See(t, hashValue(a.v))
	}
	return a.v
}

// Store writes the word.
func (a *Atomic[T]) Store(t *Task, x T) {
	a.change(t)
	a.v = x
}

// Update changes the word in one step and returns the new value.
func (a *Atomic[T]) Update(t *Task, f func(T) T) T {
	a.change(t)
	a.v = f(a.v)
	a.see(t)
	return a.v
}

// CompareAndSwap stores x if the word is old.
func (a *Atomic[T]) CompareAndSwap(t *Task, old, x T) bool {
	a.change(t)
	a.see(t)
	if a.v != old {
		return false
	}
	a.v = x
	return true
}

// Await waits until ok says so of the word, as a spin loop does, in one step; it returns the word.
func (a *Atomic[T]) Await(t *Task, ok func(T) bool) T {
	if t.st != nil {
		a.enter(t, PointLoad, Reads, gateFunc(func() bool { return ok(a.v) }))
		t.st.See(t, hashValue(a.v))
		return a.v
	}
	for !ok(a.v) {
		t.Sleep(0)
	}
	return a.v
}

// Look reads the word within the present step: for the condition of a wait, which the wait's own step asks.
func (a *Atomic[T]) Look(t *Task) T {
	if t.st != nil {
		t.st.Touch(t, &a.o, Reads)
		t.st.See(t, hashValue(a.v))
	}
	return a.v
}

// Peek reads the word outside of any step.
func (a *Atomic[T]) Peek() T { return a.v }

// Init sets the word before tasks start.
func (a *Atomic[T]) Init(x T) { a.v = x }

func (a *Atomic[T]) change(t *Task) {
	if t.st != nil {
		a.enter(t, PointAtomic, Writes, nil)
	}
}

// enter is the scheduling point, behind gate if there is one. It fills Task.Next in place; see Op.
func (a *Atomic[T]) enter(t *Task, kind PointKind, use Use, gate Gate) {
	op := &t.Next
	op.Kind, op.Class, op.Use, op.Frees, op.Mode = kind, a.Class, use, false, 0
	if gate != nil {
		op.Mode = 1
	}
	op.Obj, op.Gate, op.Also, op.ID = &a.o, gate, nil, a
	t.st.Enter(t)
}

func (a *Atomic[T]) see(t *Task) {
	if t.st != nil {
		t.st.See(t, hashValue(a.v))
	}
}

type gateFunc func() bool

func (f gateFunc) Open() uint8 {
	if f() {
		return 1
	}
	return 0
}

var hashSeed = maphash.MakeSeed()

// Mix folds x into h.
func Mix(h, x uint64) uint64 {
	h = (h ^ x) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}

func hashValue[T any](v T) uint64 {
	switch x := any(v).(type) {
	case int:
		return Mix(1, uint64(x))
	case int64:
		return Mix(1, uint64(x))
	case uint64:
		return Mix(1, x)
	case uint32:
		return Mix(1, uint64(x))
	case bool:
		if x {
			return 3
		}
		return 2
	case string:
		return maphash.String(hashSeed, x)
	}
	return maphash.String(hashSeed, fmt.Sprint(v))
}

// Hash is the hash of the word, for state matching.
func (a *Atomic[T]) Hash() uint64 { return hashValue(a.v) }

// Hash is the hash of the field, for state matching.
func (v *Var[T]) Hash() uint64 { return hashValue(v.v) }

// Objects calls f with what a Stepper knows the word by.
func (a *Atomic[T]) Objects(f func(*Obj)) { f(&a.o) }

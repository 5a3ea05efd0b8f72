package sched

import (
	"fmt"
	"hash/maphash"
)

// Label is a name for reports.
type Label string

func (l Label) String() string { return string(l) }

// Var is a plain field that tasks share. It is no scheduling point and costs what a field costs in
// the real runtime, where the Go race detector watches it; under a Stepper every access is checked
// for races by vector clocks.
type Var[T any] struct {
	v T
	o Obj
	// Name is for reports; set it before tasks start.
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

// Peek reads the field while no task runs: in an oracle, before tasks start.
func (v *Var[T]) Peek() T { return v.v }

// Init sets the field before tasks start.
func (v *Var[T]) Init(x T) { v.v = x }

//go:noinline
func (v *Var[T]) data(t *Task, write bool) {
	t.st.Data(t, &v.o, write, &v.Name)
	if !write {
		t.st.See(t, HashOf(v.v))
	}
}

// Shared stands for plain memory that tasks share and that is no Var: the bytes of a page, a list,
// a struct. Read and Write come before the access, under the lock that protects it; they are no
// scheduling points and cost one test in the real runtime. Their argument names the memory in
// reports.
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

var hashSeed = maphash.MakeSeed()

// Mix folds x into h.
func Mix(h, x uint64) uint64 {
	h = (h ^ x) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}

// HashOf is a hash of v, for Stepper.See. It is the same for equal values within a process.
func HashOf[T any](v T) uint64 {
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

// Hash is the hash of the field, for state matching.
func (v *Var[T]) Hash() uint64 { return HashOf(v.v) }

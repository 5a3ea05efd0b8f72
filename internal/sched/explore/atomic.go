package explore

import "btrlab/internal/sched"

// Atomic is a word that tasks share without a lock: READ_ONCE, WRITE_ONCE, atomic_t. Each operation
// is a scheduling point and orders what comes before a store with what comes after a load of it. It
// is for programs that are explored; the write path uses sync/atomic with Task.Enter.
type Atomic[T comparable] struct {
	v     T
	o     sched.Obj
	Class sched.ClassID
}

// Load reads the word.
func (a *Atomic[T]) Load(t *sched.Task) T {
	if st := t.Stepper(); st != nil {
		a.BeginLoad(t)
		st.Enter(t)
	}
	return a.EndLoad(t)
}

// BeginLoad and EndLoad are the two halves of Load for a task that is a Machine: BeginLoad says in
// t.Next that t reads the word next, and EndLoad reads it.
func (a *Atomic[T]) BeginLoad(t *sched.Task) { a.next(t, sched.PointLoad, sched.Reads, nil) }

// EndLoad ends BeginLoad.
func (a *Atomic[T]) EndLoad(t *sched.Task) T {
	a.see(t)
	return a.v
}

// Store writes the word.
func (a *Atomic[T]) Store(t *sched.Task, x T) {
	a.change(t)
	a.v = x
}

// BeginChange says in t.Next that t changes the word next, for a task that is a Machine: EndStore
// or EndUpdate ends it.
func (a *Atomic[T]) BeginChange(t *sched.Task) { a.next(t, sched.PointAtomic, sched.Writes, nil) }

// EndStore ends BeginChange as Store does.
func (a *Atomic[T]) EndStore(t *sched.Task, x T) { a.v = x }

// EndUpdate ends BeginChange as Update does.
func (a *Atomic[T]) EndUpdate(t *sched.Task, f func(T) T) T {
	a.v = f(a.v)
	a.see(t)
	return a.v
}

// Update changes the word in one step and returns the new value.
func (a *Atomic[T]) Update(t *sched.Task, f func(T) T) T {
	a.change(t)
	return a.EndUpdate(t, f)
}

// CompareAndSwap stores x if the word is old.
func (a *Atomic[T]) CompareAndSwap(t *sched.Task, old, x T) bool {
	a.change(t)
	a.see(t)
	if a.v != old {
		return false
	}
	a.v = x
	return true
}

// Await waits until ok says so of the word, as a spin loop does, in one step; it returns the word.
func (a *Atomic[T]) Await(t *sched.Task, ok func(T) bool) T {
	if st := t.Stepper(); st != nil {
		a.next(t, sched.PointLoad, sched.Reads, &sched.Gate{Open: func() bool { return ok(a.v) }})
		st.Enter(t)
		st.See(t, sched.HashOf(a.v))
		return a.v
	}
	for !ok(a.v) {
		t.Sleep(0)
	}
	return a.v
}

// Look reads the word within the present step: for the condition of a wait, which the wait's own
// step asks.
func (a *Atomic[T]) Look(t *sched.Task) T {
	if st := t.Stepper(); st != nil {
		st.Touch(t, &a.o, sched.Reads)
		st.See(t, sched.HashOf(a.v))
	}
	return a.v
}

// Peek reads the word outside of any step.
func (a *Atomic[T]) Peek() T { return a.v }

// Init sets the word before tasks start.
func (a *Atomic[T]) Init(x T) { a.v = x }

func (a *Atomic[T]) change(t *sched.Task) {
	if st := t.Stepper(); st != nil {
		a.BeginChange(t)
		st.Enter(t)
	}
}

// next says what t does at the scheduling point that follows; gate, if there is one, says when it
// can go on. It fills Task.Next in place; see Op.
func (a *Atomic[T]) next(t *sched.Task, kind sched.PointKind, use sched.Use, gate *sched.Gate) {
	op := &t.Next
	op.Kind, op.Class, op.Use, op.Frees, op.Mode = kind, a.Class, use, false, 0
	if gate != nil {
		op.Mode = 1
	}
	op.Obj, op.Gate, op.Also, op.ID = &a.o, gate, nil, a
}

func (a *Atomic[T]) see(t *sched.Task) {
	if st := t.Stepper(); st != nil {
		st.See(t, sched.HashOf(a.v))
	}
}

// Hash is the hash of the word, for state matching.
func (a *Atomic[T]) Hash() uint64 { return sched.HashOf(a.v) }

// Objects calls f with what a Stepper knows the word by.
func (a *Atomic[T]) Objects(f func(*sched.Obj)) { f(&a.o) }

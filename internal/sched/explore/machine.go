package explore

import (
	"fmt"

	"btrlab/internal/sched"
)

// Tasks that are data. A task that is a list of operations needs no stack: it is a Machine, and the
// loop of the search does its steps. They are the steps that the same operations have in a task of
// World.Go, so the schedules and their numbers are the same. No coroutine is switched to, which is
// a third of a short execution.
//
//	drive ─► machines ─► advance      Step: the operation that the task stood at, then t.Next
//	                       stand      and it stands before the next one: the driver picks
//	         ◄─── cur is a task with a coroutine, or nil

// Machine is a task whose operations are data. Its locks and atomics are those with a Begin and an
// End (lock.Mutex.BeginLock, Atomic.BeginLoad): Step calls the End of the operation that the task
// stands at, and the Begin of the next one.
type Machine interface {
	// Step does the operation that t stands at, of which there is none when it is first called, and
	// says in t.Next what comes next; false ends the task. It must not wait.
	Step(t *sched.Task) bool
}

// GoMachine is Go for a task that is a machine.
func (w *World) GoMachine(name string, m Machine) *sched.Task {
	k := w.add(name)
	k.machine, k.co = m, w.w.root.co
	w.w.ready(k, name, true)
	w.w.hosts = false
	return k.t
}

// machines runs machines until another task is to go on, or none.
func (w *world) machines() {
	defer func() {
		if r := recover(); r != nil {
			k := w.stepping
			if k == nil {
				panic(r)
			}
			w.leave(k)
			w.panicked(k, r)
			w.cur = nil
		}
		w.stepping = nil
	}()
	for k := w.cur; k != nil && k.machine != nil; k = w.cur {
		w.advance(k)
	}
}

// advance does the step of k, and decides who goes on.
func (w *world) advance(k *task) {
	w.stepping, k.running = k, true
	k.op.Mode, k.opKind = 0, stepNone // the rest of op is old, and cheaper to leave
	for k.machine.Step(k.t) {
		if w.stand(k.t) != nil {
			return
		}
	}
	k.t.Finish()
	w.leave(k)
	w.next(k)
}

// hasStack panics if k is a machine, which has no stack that could wait: its Step has called a
// lock's Lock in place of BeginLock.
func (k *task) hasStack() {
	if k.machine != nil {
		panic(fmt.Sprintf("explore: task %v is a machine and waits in its step", k))
	}
}

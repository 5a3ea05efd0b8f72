package sched

import (
	"fmt"
	"sync"
)

// A pool of tasks for foreign goroutines. Go starts the goroutines of the write path and makes
// their tasks. A request from outside, of FUSE or NBD, comes in a goroutine that package sched has
// not started and that may serve one request only:
//
//	t := sched.Adopt("fuse")
//	defer t.Retire()
//	... fs.File.WriteAt(t, p, off) ...
//
// Ownership:
//   - From Adopt to Retire the task belongs to the calling goroutine, which alone uses it; no other
//     keeps a pointer to it.
//   - At Retire it holds no lock, has no open transaction, is in no NOWAIT request, and no wake-up
//     is on its way to it. The tasks that it started with Go are tasks of their own and may outlive
//     it; Join them before.
//   - After Retire the next Adopt may give it to another goroutine under a new ID. Read Waits and
//     NowaitSleeps before.
//
// What the task dirtied stays on its account (Dirty): a task of the pool is a thread of a server,
// and a writer of many small requests must not escape throttling. Models the server threads of
// knfsd, each of which has its nr_dirtied.
var pool = sync.Pool{New: func() any { return NewTask("") }}

// Adopt returns a task of the real runtime for the calling goroutine, which Go did not start. End
// it with Retire.
func Adopt(name string) *Task {
	t := pool.Get().(*Task)
	t.Name, t.ID = name, nextID.Add(1)
	t.setChecked(checked.Load())
	return t
}

// Retire ends a task that Adopt returned and keeps it for a later Adopt. It panics if the task is
// still in use.
func (t *Task) Retire() {
	switch {
	case t.rt != nil || t.done != nil || t.ID == 0:
		panic(fmt.Sprintf("sched: task %v retires, which no Adopt returned", t))
	case len(t.HeldLocks) > 0:
		panic(fmt.Sprintf("sched: task %v retires holding %s (%d locks)", t, ClassByID(t.HeldLocks[0].Class).Name, len(t.HeldLocks)))
	case t.Journal != nil:
		panic(fmt.Sprintf("sched: task %v retires with an open transaction", t))
	case t.nowait > 0:
		panic(fmt.Sprintf("sched: task %v retires in a NOWAIT request", t))
	case len(t.park) > 0:
		panic(fmt.Sprintf("sched: task %v retires before the Park of its last Unpark", t))
	}
	dirty := t.Dirty
	t.Reset("")
	t.Dirty, t.ID = dirty, 0
	pool.Put(t)
}

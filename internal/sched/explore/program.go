package explore

import (
	"fmt"

	"btrlab/internal/sched"
)

// World is a program's view of one execution. The program is called once for every schedule,
// outside of the explored part: it builds its objects, starts the tasks to be explored with Go,
// says with Check and Finally what must hold at the end, and returns. It must do the same each
// time.
//
// Tasks that the program starts itself with Task().Go, as a file system does when it is opened, are
// daemons: they take part in the schedules but need not end. A task started by an explored one must
// end as that one must, unless it is a worker (sched.Task.Serve).
type World struct{ w *world }

// Task is the task that runs the program: it may block, and daemons run meanwhile, in one fixed
// order.
func (w *World) Task() *sched.Task { return w.w.root.t }

// Go adds a task whose steps are explored, numbered from 0 as schedules name it. It starts when the
// program has returned, and must end.
func (w *World) Go(name string, f func(t *sched.Task)) *sched.Task {
	k := w.add(name)
	k.finish = true
	w.w.start(k, name, f, true)
	return k.t
}

// add makes the task of Go.
func (w *World) add(name string) *task {
	i := w.w
	if i.phase != setup {
		panic("explore: World.Go after the program has returned; use Task.Go")
	}
	k := i.slot()
	if k.t == nil {
		k.t = sched.NewTaskOn(i, name)
	} else {
		k.t.Reset(name)
	}
	return k
}

// Kept is where the program may keep memory for its next execution on w: each worker of a search
// has one, which is nil at first. What is in it must be as new when an execution begins.
func (w *World) Kept() *any { return &w.w.mine }

// Call marks the beginning of an operation whose history an oracle judges, and Return its end. Call
// is a scheduling point, so that an operation may begin after the end of another, and the two keep
// schedules apart that differ in that only: a call depends on every return, not on other calls.
func (w *World) Call(t *sched.Task) {
	i := w.w
	t.Next = sched.Op{Kind: sched.PointCall, Use: sched.Adds, Obj: &i.history}
	i.Enter(t)
}

// Return ends what Call began; see there.
func (w *World) Return(t *sched.Task) { w.w.Touch(t, &w.w.history, sched.Reads) }

// Choose is nondeterminism of the program: every value in [0, n) is explored. It is for explored
// tasks (a short copy, ENOSPC, a torn write); elsewhere it is 0.
func (w *World) Choose(n int, what string) int {
	if n < 1 || n > 255 {
		panic(fmt.Sprintf("explore: a choice of %d", n))
	}
	i := w.w
	k := i.cur
	if i.phase != exploring || i.aborting || k == nil || k == i.root || n == 1 {
		return 0
	}
	k.nval, k.val, k.choice = n, 0, what
	k.t.Next = sched.Op{Kind: sched.PointChoose}
	i.Enter(k.t)
	v := k.val
	k.nval, k.val = 0, 0
	if i.observes {
		k.obs = sched.Mix(k.obs, uint64(v))
	}
	return v
}

// Note adds a value to the present step of a traced run, which prints it as a line of its own.
// Other runs ignore it.
func (w *World) Note(says any) {
	if i := w.w; i.tracing && i.phase == exploring && len(i.ev) > 0 {
		i.notes = append(i.notes, note{len(i.ev) - 1, says})
	}
}

// Tracing reports whether this execution is recorded for a reader (Replay).
func (w *World) Tracing() bool { return w.w.tracing }

// Composite is an object that has others inside, as a lock has its wait queue.
type Composite interface {
	Objects(f func(*sched.Obj))
}

// Name gives an object, such as a *lock.Mutex, a name in reports and a number that does not depend
// on the schedule, which makes DPOR exact for it.
func (w *World) Name(id any, name string) {
	i := w.w
	if i.lean {
		return
	}
	i.names = append(i.names, objectName{id, name})
	if o, ok := id.(Composite); ok {
		i.naming = id
		o.Objects(i.number)
	}
}

// NameHeld says how reports name a lock that a task holds, by the order inside its class or by what
// it is; "" is as without it.
func (w *World) NameHeld(f func(h sched.Held) string) { w.w.nameHeld = f }

// Check adds an oracle that needs no task. It is asked when every task that must end has ended.
func (w *World) Check(f func() error) { w.w.check = append(w.w.check, f) }

// Finally adds an oracle that may block, as reading a file does. It is asked after the Checks, on
// Task().
func (w *World) Finally(f func(t *sched.Task) error) { w.w.finally = append(w.w.finally, f) }

// Invariant adds an oracle that is asked before every step. It must not block.
func (w *World) Invariant(f func() error) { w.w.invariant = append(w.w.invariant, f) }

// HashData adds a hash of the shared data that is in no Var, Atomic or lock. State matching takes
// two states for one only when these are equal too.
func (w *World) HashData(f func() uint64) { w.w.data = append(w.w.data, f) }

// Watch adds a column to the steps of a traced run: i_size, the pages' states.
func (w *World) Watch(name string, f func() string) {
	w.w.watches = append(w.w.watches, watch{name, f})
}

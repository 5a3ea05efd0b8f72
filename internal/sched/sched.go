// Package sched decides which task runs: it has the Task that every blocking function takes first,
// and the Runtime that a task runs under.
//
// A task is the kernel's `current`. Under the real runtime (Runtime() == nil) a task is a goroutine
// and waits are real. The other two run tasks one at a time: a Stepper (package explore) tries
// orders, a Simulator (package vtime) has CPUs and a clock. There every wait and device step calls
// Enter, where the runtime may run another task, and a task that cannot go on calls Park. The locks
// of package lock choose by Task.Slow, one load on the hot path.
//
// Nothing else in the write path uses sync, time, channels or go; internal/arch enforces it.
package sched

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"btrlab/internal/trace"
)

// PointKind says why a task is at a scheduling point.
type PointKind uint8

// The kinds of scheduling point.
const (
	PointLock PointKind = iota
	PointTryLock
	PointUnlock
	PointWait
	PointWake
	PointAtomic
	PointDevice
	PointYield
	PointLoad
	PointChoose
	PointArrive
	PointCall
)

var pointNames = [...]string{"lock", "trylock", "unlock", "wait", "wake", "atomic", "device", "yield", "load", "choose", "arrive", "call"}

func (k PointKind) String() string { return pointNames[k] }

// Runtime runs tasks one at a time. It is a Stepper or a Simulator; the real runtime is the nil
// Runtime. All methods but Go and Now are called by the running task only.
type Runtime interface {
	// Go starts f as a new task; child is already set up.
	Go(parent, child *Task, f func(t *Task))
	// Enter is a scheduling point: the runtime may run other tasks before t does t.Next.
	Enter(t *Task)
	// Park blocks t until some task calls Unpark(t). An Unpark that came first makes Park return at
	// once.
	Park(t *Task, class ClassID)
	// Unpark makes a parked t runnable; it does not switch.
	Unpark(t *Task)
	// Now is the runtime's clock in nanoseconds; it never goes back.
	Now() int64
	// Sleep passes d of the runtime's time.
	Sleep(t *Task, d time.Duration)
	// Charge passes d of CPU time that t used.
	Charge(t *Task, d time.Duration)
	// Checked says whether lockdep watches the tasks.
	Checked() bool
}

// Held is one lock on a task's held list; package lockdep keeps the list.
type Held struct {
	Class ClassID
	Sub   uint64 // order inside a class: page index, range start, node level
	Obj   any
	Read  bool
	// Novalidate says that lockdep does not check the order of what follows it.
	Novalidate bool
}

// DirtyState is a task's share in dirty throttling, in pages. Models current->nr_dirtied,
// nr_dirtied_pause and dirty_paused_when.
type DirtyState struct {
	Pages      int   // dirtied since the last look
	Pause      int   // look again after so many; 0 is the default
	PausedWhen int64 // since when Pages count, in nanoseconds of Now: earlier ones are paid for
}

// Task is a thread of control: the kernel's task_struct as far as a file system looks at it.
// A Task is used by one goroutine at a time.
type Task struct {
	Name string
	ID   uint64

	// Journal is the open transaction handle, as current->journal_info.
	Journal any
	// Op and Policy label what the task does in profiles; Doing changes Op.
	Op     string
	Policy string
	// Dirty is package pagecache's: what the task dirtied since it last looked at the dirty limits.
	Dirty DirtyState
	// HeldLocks is package lockdep's: others only look. Lockdep has functions that change it.
	HeldLocks []Held
	// HeldAt is package lockdep's, too: where in HeldLocks it found what it last looked for.
	HeldAt int32
	// Slot is the runtime's: where it keeps what it knows of the task.
	Slot int32
	// Waits are the task's waits by class. Read them when the task is not running. Waited alone
	// writes them.
	Waits Waits
	// Counts, if set, counts what the task's requests cost. Read it when the task is not running.
	Counts *Counts

	// Mark names the task alike in every execution of a program, whatever the schedule. The runtime
	// sets it, if it explores.
	Mark uint64
	// Next is the operation that the task does next. It is set before each Runtime.Enter.
	Next Op

	rt    Runtime
	st    Stepper // rt or nil; so is sim
	sim   Simulator
	graph WaitGraph // st, or of the real runtime the watch if lockdep is on, or nil
	slow  bool
	// checked: lockdep watches.
	checked bool
	ended   bool
	nowait  int32
	audit   *audit                      // nil until the first NOWAIT request
	plug    *plug                       // nil without one
	works   *taskWork                   // nil until the first BeginTaskWork
	poll    atomic.Pointer[poll]        // nil until the first request to a Poller
	tracer  func(t *Task, e TraceEvent) // nil: nobody looks
	park    chan struct{}
	done    chan struct{}
	joiner  *Task
	end     Obj // a Stepper orders Join after the end by it
}

var (
	nextID  atomic.Uint64
	checked atomic.Bool
	epoch   = time.Now()
)

// SetChecked turns lockdep, and the watch for stuck tests, on for tasks made from now on. Tests
// call it in TestMain.
func SetChecked(on bool) { checked.Store(on) }

// NewTask returns a task of the real runtime for the calling goroutine.
func NewTask(name string) *Task { return newTask(name, nil) }

// NewTaskOn returns a task of runtime rt, which numbers it. It is for runtimes; file-system code
// uses Task.Go.
func NewTaskOn(rt Runtime, name string) *Task { return newTask(name, rt) }

func newTask(name string, rt Runtime) *Task {
	t := &Task{Name: name, rt: rt}
	if rt == nil {
		t.ID, t.park = nextID.Add(1), make(chan struct{}, 1)
		t.setChecked(checked.Load())
		return t
	}
	t.slow = true
	if t.st, _ = rt.(Stepper); t.st != nil {
		t.graph = t.st
	}
	t.sim, _ = rt.(Simulator)
	if (t.st == nil) == (t.sim == nil) {
		panic(fmt.Sprintf("sched: runtime %T is not one of Stepper and Simulator", rt))
	}
	t.checked = rt.Checked()
	return t
}

// setChecked says whether lockdep, and the watch for stuck tests, watch t, which is of the real
// runtime.
func (t *Task) setChecked(on bool) {
	t.checked, t.slow = on, on
	if !on {
		t.graph = nil
	} else if t.graph == nil {
		theWatch.watched(t)
	}
}

// Reset makes a task that has ended a new one of the same runtime. It is for runtimes that use
// tasks again, thousands of times in a search: it clears what the last life used, field by field,
// and leaves alone what the runtime set.
func (t *Task) Reset(name string) {
	t.Name, t.Op, t.Policy = name, "", ""
	t.Journal, t.Dirty = nil, DirtyState{}
	t.HeldLocks, t.HeldAt, t.Waits = t.HeldLocks[:0], 0, t.Waits[:0]
	t.resetNowait()
	t.Next = Op{}
	t.Counts, t.ended, t.joiner, t.end = nil, false, nil, Obj{}
	t.plug, t.works, t.tracer = nil, nil, nil
	if t.poll.Load() != nil {
		t.poll.Store(nil)
	}
	if t.rt != nil {
		t.checked = t.rt.Checked()
	}
}

// Stepper is the runtime when it is one that explores interleavings, and nil otherwise.
func (t *Task) Stepper() Stepper { return t.st }

// Runtime returns the runtime of the task; nil is the real one.
func (t *Task) Runtime() Runtime { return t.rt }

// Slow reports whether locks must leave the fast path for this task: another runtime or lockdep.
func (t *Task) Slow() bool { return t.slow }

// Go starts f in a new task of the same runtime, which inherits Op and Policy.
func (t *Task) Go(name string, f func(t *Task)) *Task {
	c := newTask(name, t.rt)
	c.Op, c.Policy, c.tracer = t.Op, t.Policy, t.tracer
	if t.rt != nil {
		t.rt.Go(t, c, func(c *Task) {
			f(c)
			c.Touch(&c.end, Writes)
			c.Finish()
		})
		return c
	}
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		f(c)
	}()
	return c
}

// OwnThread makes t, of the real runtime, a thread of the host until it ends, so that waking it
// costs what waking a thread of the kernel costs: goroutines that wake each other may take turns on
// one thread for a tenth of that. Tasks of other runtimes are threads.
func (t *Task) OwnThread() {
	if t.rt == nil {
		runtime.LockOSThread()
	}
}

// Doing says what the task does from now on, for profiles.
func (t *Task) Doing(op string) {
	t.Op = op
	trace.Doing(op, t.Policy)
}

// Finish ends a task of another runtime than the real one and lets its joiner go on. It is for
// runtimes.
func (t *Task) Finish() {
	t.ended = true
	if t.joiner != nil {
		t.rt.Unpark(t.joiner)
	}
}

// Join waits until c, made by Go, has returned. One task at most joins c.
func (t *Task) Join(c *Task) {
	if t.rt == nil {
		t.BlockedOn(c)
		t.Blocks(0)
		<-c.done
		t.Unblocks()
		return
	}
	t.Touch(&c.end, Reads)
	for !c.ended {
		c.joiner = t
		t.BlockedOn(c)
		t.rt.Park(t, 0)
	}
}

// Now is the runtime's clock in nanoseconds since some fixed start.
func (t *Task) Now() int64 {
	if t.rt != nil {
		return t.rt.Now()
	}
	return int64(time.Since(epoch))
}

// Sleep passes d of the runtime's time.
func (t *Task) Sleep(d time.Duration) {
	if t.nowait > 0 {
		t.sleptNowait(0)
	}
	if t.rt != nil {
		t.rt.Sleep(t, d)
		return
	}
	sleepReal(d)
}

// Yield lets goroutines that are ready run before t goes on, in the real runtime. Elsewhere it is
// nothing: a simulated task has a CPU of its own, and an explorer tries every order.
func (t *Task) Yield() {
	if t.rt == nil {
		runtime.Gosched()
	}
}

// Charge accounts d of CPU time; the real runtime has spent it already.
func (t *Task) Charge(d time.Duration) {
	if t.rt != nil {
		t.rt.Charge(t, d)
	}
}

// Enter is a scheduling point for an operation on obj, which may be nil: a device, a yield. It does
// nothing in the real runtime. An object with an Obj of its own, such as a lock, fills Next itself
// and calls the runtime's Enter.
func (t *Task) Enter(kind PointKind, class ClassID, obj any) {
	if t.rt != nil {
		t.enter(kind, class, obj)
	}
}

func (t *Task) enter(kind PointKind, class ClassID, obj any) {
	use := Writes
	if kind == PointLoad {
		use = Reads
	}
	t.Next = Op{Kind: kind, Class: class, Use: use, ID: obj}
	t.rt.Enter(t)
}

// Park blocks until Unpark. It is for the primitives of package lock.
func (t *Task) Park(class ClassID) {
	if t.rt != nil {
		t.rt.Park(t, class)
		return
	}
	t.WakeTaskWork()
	t.Blocks(class)
	t.pollFor(class)
	if !t.Woken() {
		t.WakeTaskWork() // for what the poll has ended
	}
	<-t.park
	t.Unblocks()
}

// ParkFor parks for at most d and reports whether it was woken. After false, one late Unpark may
// still arrive (a Simulator drops it). Under a Stepper there is no clock: it is Park.
func (t *Task) ParkFor(class ClassID, d time.Duration) bool {
	switch {
	case t.sim != nil:
		t.sim.ParkFor(t, class, d)
		return true
	case t.rt != nil:
		t.rt.Park(t, class)
		return true
	}
	t.WakeTaskWork()
	up := time.NewTimer(d)
	defer up.Stop()
	t.Blocks(class)
	defer t.Unblocks()
	select {
	case <-t.park:
		return true
	case <-up.C:
		return false
	}
}

// Unpark lets a parked task, or its next Park, go on. At most one Unpark may be outstanding.
func (t *Task) Unpark() {
	if t.rt != nil {
		t.rt.Unpark(t)
		return
	}
	t.park <- struct{}{}
	t.kick()
}

// Waited accounts a wait for class that began at start (from Now) and has just ended.
func (t *Task) Waited(class ClassID, name string, start int64) {
	d := t.Now() - start
	t.Waits.Add(class, WaitStat{Nanos: d, Count: 1})
	if t.nowait > 0 {
		t.sleptNowait(class)
	}
	if t.sim != nil {
		t.sim.Waited(t, class, start)
	}
	if trace.On() {
		trace.Waited(trace.Wait{Class: name, Op: t.Op, Policy: t.Policy, Task: t.Name, Nanos: d})
	}
}

func (t *Task) String() string { return fmt.Sprintf("%s#%d", t.Name, t.ID) }

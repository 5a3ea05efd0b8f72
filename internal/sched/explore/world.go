package explore

// One execution of a program.
//
// The program builds its objects and starts its tasks (setup); the tasks run one at a time until
// those that must end have ended (exploring); the oracles judge (final). world.execute does the
// three in that order and then unwinds the tasks that are left. A world is used for one execution
// after the other: each part resets itself and keeps its memory.
//
//	              the program                        the search: bound, dpor, sample, replay
//	                  │ World.Go, Check ...              │ driver: pick, value       ▲ reads
//	  ┌─ world ───────▼──────────────────────────────────▼───────────────────────────┴──────┐
//	  │ oracles     what is asked before each step and at the end       finish, choose      │
//	  │ turns       the tasks by number, the clock, the decision        decide     step.go  │
//	  │ coroutines  what the tasks run on; cur is the one that runs     transfer   coro.go  │
//	  │ log         the steps, and what orders them ────────────────────begin, touch────────┼─► DPOR, Bound, State
//	  │ races       the last accesses of plain data                     Data       races.go │
//	  │ owes        events that a task must bring about                 deadlock   waitfor  │
//	  │ trace       names, stacks, states for a reader ─────────────────traceStep───────────┼─► Execution
//	  └───────▲──────────────────────────────────────────────────────────────────────────────┘
//	          │ sched.Stepper: Enter, Park, Unpark, Touch, Data ...   runtime.go
//	       the tasks: locks, queues, devices
//
// What a search depends on is in log and turns. Nothing that it does depends on trace, so an
// execution that is recorded for a reader is the same as one that is not.

import (
	"fmt"
	"runtime"
	"sync"

	"btrlab/internal/sched"
)

// maxTasks is the number of bits in a mask of tasks. Up to smallTasks a vector clock is one short
// row.
const (
	maxTasks   = 64
	smallTasks = 8
)

type taskState uint8

const (
	ready taskState = iota
	parked
	sleeping
	ended
)

// task is a sched.Task as the world knows it. Tasks are used again from execution to execution.
type task struct {
	t       *sched.Task
	op      *sched.Op // what it does next: t.Next
	name    string
	f       func(t *sched.Task)
	machine Machine // or nil; f is nil then, and co is root's
	co      *coro
	parkOn  any // what it waits for, where that is known
	callers []uintptr
	life
}

// life is a task's per-execution state. It holds no pointers, so one assignment resets it.
type life struct {
	num     int // by which schedules name it; -1 until the explored part begins
	state   taskState
	user    bool // must end; daemons need not
	running bool // has begun
	finish  bool // body calls Finish; the caller of Task.Go does it elsewhere
	token   bool // an Unpark came while it was not parked
	yielded bool // lets others go first
	fresh   bool // is on its way to its first operation
	due     int64
	opKind  StepKind
	nval    int    // of a choice
	choice  string // what it is about
	val     int
	// spurious are the wake-ups without a reason that it has had.
	spurious int32

	// epochs so far: one for each event, and one more whenever plain data follows an object in it
	n          int32
	dataEv     int32 // where the present epoch of plain data began: event and accesses
	dataAcc    int32 //
	last       int32 // its last event, -1 for none
	wake       int32 // the event that let it go on, -1 for none
	wakeEpoch  int32 // and the epoch of its task
	tokenEv    int32 // the event that gave it its token, -1 for none, and the epoch of that task
	tokenEpoch int32
	seed       uint64 // hash before the first event
	obs        uint64 // what it did and saw, for state matching
	uses       int32  // of objects
	kids       int32  // that it has started
	prio       uint64 // of samplers
	parkObj    int32
	parkClass  sched.ClassID
	waitObj    int32 // of the last wait, and its class
	waitClass  sched.ClassID
	parkStep   int
	ncallers   int
}

// idleMax is how often the clock may go on without a step of a task that must end, before that task
// is stuck.
const idleMax = 1000

type phase uint8

const (
	setup phase = iota
	exploring
	final
)

// world is one execution of a program, and the runtime of its tasks; World is what the program sees
// of it. It is used again from execution to execution.
type world struct {
	pub   World
	cfg   *Config
	drv   driver
	phase phase

	log
	races
	trace
	coroutines
	turns
	oracles
	owes  []obligation // events that a task must bring about
	keeps []kept       // state that is in no object, for State
	order *orderGraph
	dpor  *dpor // kept for its memory
	mine  any   // World.Kept

	// by chance, without clocks: nothing is kept that only reports want (search.execute)
	lean bool
	walk *sampler // of a lean random walk while it explores, nil otherwise (walkOn)

	pruned bool
	viol   *Violation
}

// turns is the state that a decision looks at.
type turns struct {
	tasks  []*task // explored, by number
	prior  *task   // the task that ran before the one that is fresh
	clock  int64
	moves  []int32  // for each time that the clock was moved, the events before it
	users  int      // tasks that must end and have not
	finals []int32  // the events by which others did
	idle   int      // times the clock was moved without a step of such a task
	yields bool     // a task lets others go first
	fair   bool     // a task has yielded in this execution
	dec    decision // the present one
}

func (t *turns) reset() {
	t.tasks, t.prior = t.tasks[:0], nil
	t.clock, t.users, t.idle, t.yields, t.fair = 0, 0, 0, false, false
	t.finals, t.moves = t.finals[:0], t.moves[:0]
}

// moved is the number of events before the clock was moved last.
func (t *turns) moved() int32 {
	if n := len(t.moves); n > 0 {
		return t.moves[n-1]
	}
	return 0
}

// oracles are the program's questions to the execution.
type oracles struct {
	check     []func() error
	finally   []func(t *sched.Task) error
	invariant []func() error
	data      []func() uint64
}

func (o *oracles) reset() {
	o.check, o.finally, o.invariant, o.data = o.check[:0], o.finally[:0], o.invariant[:0], o.data[:0]
}

// spareWorlds are worlds that no search uses. Most searches are short, and making a world with its
// coroutines takes as long as some of them; a few are kept.
var spareWorlds struct {
	mu   sync.Mutex
	list []*world
}

// The most that is kept: worlds, and of each the coroutines and the events, with what belongs to
// events.
const (
	sparesMax      = 2
	spareCorosMax  = 8
	spareEventsMax = 1 << 12
)

func newWorld(cfg *Config) *world {
	var w *world
	spareWorlds.mu.Lock()
	if n := len(spareWorlds.list); n > 0 {
		w = spareWorlds.list[n-1]
		spareWorlds.list = spareWorlds.list[:n-1]
	}
	spareWorlds.mu.Unlock()
	if w == nil {
		w = &world{dpor: &dpor{}}
		w.number = func(o *sched.Obj) { w.numberOf(o, w.naming, 0) }
		w.hosting = &coro{active: true, yield: func(struct{}) bool {
			w.aborting = true // no task goes on; the search gets its stack back by unwinding
			return false
		}}
		w.root = w.slot()
		w.root.co = &coro{active: true}
	}
	w.cfg, w.stride, w.order = cfg, smallTasks, &orderGraph{}
	w.hashes = cfg.Done != nil || cfg.Method == Bound || cfg.Method == State
	w.clocks = cfg.Method == DPOR || cfg.Method == State
	w.observes = cfg.Method == State
	w.pub.w = w
	return w
}

// close keeps the world for another search if it is small, and otherwise ends its coroutines.
func (w *world) close() {
	small := w.coroutines.small() && cap(w.ev) <= spareEventsMax && len(w.objs) <= spareEventsMax && len(w.vars) == 0
	if small {
		w.forget()
		spareWorlds.mu.Lock()
		small = len(spareWorlds.list) < sparesMax
		if small {
			spareWorlds.list = append(spareWorlds.list, w)
		}
		spareWorlds.mu.Unlock()
	}
	if !small {
		w.stopAll()
	}
}

// forget drops what belongs to a search, above all everything that leads to its program.
func (w *world) forget() {
	*w = world{log: w.log.kept(), coroutines: w.coroutines.kept(), turns: turns{tasks: w.tasks[:0]}, trace: trace{number: w.number}, dpor: w.dpor}
}

// execute runs prog once under drv. It leaves what happened in w.viol and w.pruned.
func (w *world) execute(prog func(w *World), drv driver) {
	by, chance := drv.(*sampler)
	w.drv, w.phase, w.pruned, w.viol, w.owes, w.keeps = drv, setup, false, nil, w.owes[:0], w.keeps[:0]
	w.log.reset(!chance)
	w.races.reset()
	w.trace.reset()
	w.coroutines.reset()
	w.turns.reset()
	w.oracles.reset()
	w.lean = chance && !w.chains
	r := w.root
	if r.t == nil {
		r.t = sched.NewTaskOn(w, "main")
	} else {
		r.t.Reset("main")
	}
	r.op = &r.t.Next
	r.name, r.state, r.token, r.running, r.num = "main", ready, false, true, -1
	w.cur = r

	if w.protect(func() { prog(&w.pub) }) && w.viol == nil {
		if w.lean && by.how == Random && len(w.invariant) == 0 && w.cfg.switches == sched.AllClasses {
			w.walk = by
		}
		w.explore()
		w.walk = nil
	}
	if w.viol == nil && !w.pruned {
		w.finish()
	}
	w.unwind()
}

// protect runs f on the root, which takes part as a task, and turns a panic into the verdict.
func (w *world) protect(f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, mine := r.(abort); !mine {
				w.panicked(w.root, r)
			}
		}
	}()
	f()
	return true
}

func (w *world) panicked(k *task, r any) {
	v := Violation{Kind: KindPanic, Task: k.String(), Panic: r}.saying(fmt.Sprint(r))
	v.Lead = "task " + v.Task
	if w.tracing || w.verbose {
		pc := make([]uintptr, 64)
		v.At = framesOf(pc[:runtime.Callers(3, pc)])
	}
	if _, ok := r.(sched.OrderViolation); ok {
		v.Kind = KindOrder
		w.fail(v)
		return
	}
	v.Lead += ": panic"
	w.fail(v)
}

// String is the task in reports: its number and its name.
func (k *task) String() string {
	if k.num < 0 {
		return k.name
	}
	return fmt.Sprintf("%d %s", k.num, k.name)
}

// left notes that the task that runs need not end any more.
func (w *world) left() {
	w.users--
	if w.phase == exploring && w.curEv >= 0 {
		w.finals = append(w.finals, w.curEv)
	}
}

// explore runs the tasks until those that must end have ended.
func (w *world) explore() {
	w.phase = exploring
	for _, k := range w.all[1:w.nAll] {
		if k.user {
			w.enlist(k)
		}
	}
	for _, k := range w.all[1:w.nAll] {
		if !k.user && k.state != ended {
			w.enlist(k)
		}
	}
	w.nSetup = len(w.objs)
	if w.users == 0 {
		return
	}
	w.root.state = parked
	w.cur = nil
	w.decide(nil)
	if k := w.cur; k != nil && k.user && !k.running && w.hosts && !w.tracing && !w.verbose {
		w.host(k)
	}
	w.drive()
	if w.tracing {
		w.traceState()
	}
	w.root.state = ready
}

// enlist gives k the number by which schedules name it.
func (w *world) enlist(k *task) {
	if len(w.tasks) >= w.stride {
		if w.stride == maxTasks {
			panic(fmt.Sprintf("explore: more than %d tasks, at %q", maxTasks, k.name))
		}
		w.log.widen()
		w.races.widen()
	}
	k.num = len(w.tasks)
	k.t.ID = uint64(k.num)
	if k.seed == 0 {
		k.seed = sched.Mix(0x65787031, uint64(k.num)+1)
	}
	k.t.Mark, k.obs = k.seed, k.seed
	w.tasks = append(w.tasks, k)
}

// finish asks the oracles.
func (w *world) finish() {
	w.phase, w.cur = final, w.root
	w.curEv = -1
	w.leftovers()
	if len(w.check) == 0 && len(w.finally) == 0 {
		return
	}
	w.protect(func() {
		for _, f := range w.check {
			if err := f(); err != nil {
				w.fail(Violation{Kind: KindOracle}.saying(err.Error()))
				return
			}
		}
		for _, f := range w.finally {
			if err := f(w.root.t); err != nil {
				w.fail(Violation{Kind: KindOracle}.saying(err.Error()))
				return
			}
		}
	})
}

// leftovers finds what a task that has ended still holds, and sleeps under NOWAIT.
func (w *world) leftovers() {
	for _, k := range w.tasks {
		if k.state == ended && len(k.t.HeldLocks) > 0 && w.cfg.checks(CheckLeftovers) {
			w.fail(Violation{Kind: KindLeftover, What: fmt.Sprintf("task %s has ended and holds %s", k, w.holds(k))})
		}
		if w.cfg.checks(CheckNowait) {
			for _, s := range k.t.NowaitSleeps() {
				w.nowait(k, s.Class, s.Step)
			}
		}
	}
}

// nowait reports a sleep under NOWAIT, unless the kernel would spin there. Class 0 is a sleep for a
// time or for a task.
func (w *world) nowait(k *task, c sched.ClassID, step string) {
	if c != 0 && sched.ClassByID(c).Leaf {
		return
	}
	s := sched.NowaitSleep{Step: step, Class: c}
	w.fail(Violation{Kind: KindNowait, What: fmt.Sprintf("task %s may sleep in %s while its request is NOWAIT", k, s.String())})
}

// fail ends the execution with a violation; the first one counts.
func (w *world) fail(v Violation) {
	if w.viol == nil {
		w.viol = &v
	}
	w.cur = nil
}

// mismatch ends an execution that does not fit its schedule, or what was recorded.
func (w *world) mismatch(format string, args ...any) {
	w.fail(Violation{Kind: KindMismatch, What: fmt.Sprintf(format, args...)})
}

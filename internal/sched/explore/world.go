package explore

import (
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"btrlab/internal/sched"
)

// maxTasks is the number of bits in a mask of tasks. Up to smallTasks a vector clock is one short row.
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

// task is what the world knows of a sched.Task. They are used again from execution to execution.
type task struct {
	t       *sched.Task
	op      *sched.Op // what it does next: t.Next
	name    string
	f       func(t *sched.Task)
	co      *coro
	parkOn  any // what it waits for, where that is known
	callers []uintptr
	life
}

// life is what a task's next life begins without: no pointers, so that an execution costs little to begin.
type life struct {
	num     int // by which schedules name it; -1 until the explored part begins
	state   taskState
	user    bool // must end; daemons need not
	running bool // has begun
	finish  bool // nobody else calls Finish
	token   bool // an Unpark came while it was not parked
	yielded bool // lets others go first
	fresh   bool // is on its way to its first operation
	due     int64
	opKind  StepKind
	nval    int    // of a choice
	choice  string // what it is about
	val     int

	n         int32  // epochs so far: one for each event, and one more whenever plain data follows an object in it
	dataEv    int32  // where the present epoch of plain data began: event and accesses
	dataAcc   int32  //
	last      int32  // its last event, -1 for none
	wake      int32  // the event that let it go on, -1 for none
	wakeEpoch int32  // and the epoch of its task
	seed      uint64 // hash before the first event
	obs       uint64 // what it did and saw, for state matching
	prio      uint64 // of samplers
	parkObj   int32
	parkClass sched.ClassID
	waitObj   int32 // of the last wait, and its class
	waitClass sched.ClassID
	parkStep  int
	ncallers  int
}

// coro is a pooled coroutine: it runs one task after the other.
type coro struct {
	k      *task
	active bool // it runs, or has resumed who runs
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
}

// event is one executed step. There is one for every step of millions of executions: it has the size of a cache line.
type event struct {
	task   int32
	obj    int32
	idx    int32 // among the task's events, from 1
	accLo  int32
	accHi  int32
	known  int32 // objects that had been used before
	before int32 // the task's event before, -1 for none
	wake   int32 // the event that let it go on, -1 for none
	mask   uint64
	closed uint64 // tasks that stood at a closed gate
	hash   uint64
	kind   StepKind
	class  sched.ClassID
	val    uint8
	nval   uint8
	def    int8 // whom the default order would have run
	last   int8 // who ran before, -1 for none
}

// preempts says that another task, which ran last, could have gone on.
func (e *event) preempts() bool {
	return e.last >= 0 && int32(e.last) != e.task && e.mask&(1<<e.last) != 0
}

// access is one object that an event used. Those of one object are chained, newest first.
type access struct {
	obj   int32
	ev    int32
	prev  int32
	epoch int32 // of the task: plain data of later ones is not ordered by this access
	open  uint8 // the gate just before
	mode  uint8 // what a waiting operation needed
	use   sched.Use
	frees bool
}

// idleMax is how often the clock may go on without a step of a task that must end, before that task is stuck.
const idleMax = 1000

// openUnknown is the gate before an access that knows no gate: a store, which a task may wait for with its own condition.
const openUnknown = 255

// depend says whether two uses of one object cannot change places.
func depend(a, b sched.Use) bool { return a != b || a == sched.Writes }

type object struct {
	last, lastW int32 // accesses, -1 for none
	adds        bool
	id          any
	class       sched.ClassID
	wakes       int32 // of a queue: how often it was woken
	lastWake    int32
}

// plain is a race-checked field.
type plain struct {
	wTask, wIdx, wEv int32   // the last write: task, epoch, event
	reads            []int32 // by task: epoch of its last read
	readEv           []int32
	version          uint64 // for state matching: hash of what its writers knew
}

// looked is an access to plain data as a traced run keeps it.
type looked struct {
	held string
	pc   []uintptr
}

type lookedKey struct {
	field int32
	task  int
	write bool
}

type phase uint8

const (
	setup phase = iota
	exploring
	final
)

// world is one execution of a program, and the runtime of its tasks; World is what the program sees of it. It is used
// again from execution to execution.
type world struct {
	pub   World
	cfg   *Config
	drv   driver
	run   uint64 // number of the execution, unique in the process
	phase phase

	// What an execution is to record beside its steps.
	hashes   bool // happens-before hashes, for Config.Done and for what takes equal orders for one
	clocks   bool // vector clocks, for DPOR and for programs with a Var
	chains   bool // which events used an object: the two above follow them
	observes bool // what tasks saw, for State
	missed   bool // a Var was used without clocks
	lean     bool // by chance, without clocks: nothing is kept that only reports want (search.execute)

	root    *task
	hosting *coro   // of the task that runs where the search does
	all     []*task // by Task.Slot; 0 is root
	nAll    int
	tasks   []*task // explored, by number
	free    []*coro
	coros   []*coro
	cur     *task
	prior   *task // who ran before the one that is fresh
	clock   int64
	users   int // that have not ended
	idle    int // times the clock was moved without a user's step

	ev      []event
	acc     []access
	objs    []object
	nSetup  int     // objects that were used before the explored part
	clk     []int32 // vector clocks of the events, a row of stride each
	stride  int
	vars    []plain
	history sched.Obj          // the order of calls and returns
	extra   map[any]*sched.Obj // objects that have no room for a number
	names   []objectName
	naming  any              // what World.Name is called for
	number  func(*sched.Obj) // gives one of its objects a number; made once
	dec     decision         // the present one
	yields  bool             // somebody lets others go first
	curEv   int32            // the present step, -1 for none
	curK    *task            // whose it is
	trails  bool             // somebody looks at the trail
	trail   uint64           // hash of the steps as they came

	aborting bool
	pruned   bool
	viol     *Violation

	owes []obligation // events that somebody must bring about

	dpor *dpor // kept for its memory

	check      []func() error
	finally    []func(t *sched.Task) error
	invariant  []func() error
	data       []func() uint64
	watches    []watch
	order      *orderGraph
	tracing    bool
	verbose    bool // stacks in panics
	notes      []note
	states     [][]string
	stacks     [][]uintptr
	heldAt     [][]Named
	stuckTasks []Stuck
	objectAt     []string
	looks      map[lookedKey]looked
	nameHeld      func(h sched.Held) string
}

// objectName is what a program calls an object. Only reports look for names, so a list does.
type objectName struct {
	id   any
	name string
}

// nameOf is what the program calls an object.
func (w *world) nameOf(id any) (string, bool) {
	for i := len(w.names) - 1; i >= 0 && id != nil; i-- {
		if w.names[i].id == id {
			return w.names[i].name, true
		}
	}
	return "", false
}

type watch struct {
	name string
	f    func() string
}

type note struct {
	step int
	says any
}

// runs is what numbers executions. A world takes many numbers at once.
var runs atomic.Uint64

const runsAtOnce = 1 << 20

// abort unwinds a task whose execution is over.
type abort struct{}

// spareWorlds are worlds that no search uses. Most searches are short, and making a world with its coroutines takes as long as
// some of them; a few are kept.
var spareWorlds struct {
	mu   sync.Mutex
	list []*world
}

// The most that is kept: worlds, and of each the coroutines and the events, with what belongs to events.
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
			w.aborting = true // nobody goes on; there is nothing to give back to but by unwinding
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
	small := len(w.free) == len(w.coros) && len(w.coros) <= spareCorosMax && cap(w.ev) <= spareEventsMax && len(w.objs) <= spareEventsMax && len(w.vars) == 0
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
		for _, c := range w.coros {
			c.stop()
		}
		w.coros, w.free = nil, nil
	}
}

// forget drops what belongs to a search, above all everything that leads to its program.
func (w *world) forget() {
	for _, k := range w.all {
		k.name, k.f, k.parkOn, k.callers = "", nil, nil, nil
		if k.t != nil {
			k.t.Reset("")
			clear(k.t.HeldLocks[:cap(k.t.HeldLocks)])
		}
	}
	clear(w.objs[:cap(w.objs)])
	*w = world{run: w.run, all: w.all, nAll: 1, root: w.root, hosting: w.hosting, coros: w.coros, free: w.free,
		tasks: w.tasks[:0], ev: w.ev[:0], acc: w.acc[:0], clk: w.clk[:0], objs: w.objs[:0], number: w.number, dpor: w.dpor}
}

// slot returns a task to use, its sched.Task numbered.
func (w *world) slot() *task {
	if w.nAll == len(w.all) {
		w.all = append(w.all, &task{})
	}
	k := w.all[w.nAll]
	k.life = life{num: -1, last: -1, wake: -1, dataEv: -1}
	if w.nAll != 0 {
		k.co = nil
	}
	k.parkOn = nil
	w.nAll++
	return k
}

// execute runs prog once under drv. It leaves what happened in w.viol and w.pruned.
func (w *world) execute(prog func(w *World), drv driver) {
	if w.run&(runsAtOnce-1) == 0 {
		w.run = runs.Add(runsAtOnce)
	}
	w.drv, w.run = drv, w.run+1
	_, chance := drv.(*sampler)
	w.chains, w.trails, w.missed = w.hashes || w.clocks, !chance, false
	w.lean = chance && !w.chains
	w.nAll = 1
	w.tasks = w.tasks[:0]
	w.phase, w.clock, w.users, w.idle = setup, 0, 0, 0
	w.ev, w.acc, w.objs, w.clk, w.vars = w.ev[:0], w.acc[:0], w.objs[:0], w.clk[:0], w.vars[:0]
	w.curEv, w.curK, w.prior, w.trail = -1, nil, nil, 0
	w.yields = false
	w.aborting, w.pruned, w.viol = false, false, nil
	w.check, w.finally, w.invariant, w.data, w.watches = w.check[:0], w.finally[:0], w.invariant[:0], w.data[:0], w.watches[:0]
	w.names, w.owes = w.names[:0], w.owes[:0]
	if w.nameHeld = nil; w.tracing {
		w.notes, w.states, w.stacks, w.heldAt, w.objectAt, w.looks, w.stuckTasks = nil, nil, nil, nil, nil, nil, nil
	}
	if len(w.extra) > 0 {
		clear(w.extra)
	}
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
		w.explore()
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
	if _, ok := r.(sched.OrderViolation); ok {
		v.Kind = KindOrder
		w.fail(v)
		return
	}
	v.Lead += ": panic"
	if w.tracing || w.verbose {
		if v.More != "" {
			v.More += "\n"
		}
		v.More += string(debug.Stack())
	}
	w.fail(v)
}

// String is the task in reports: its number and its name.
func (k *task) String() string {
	if k.num < 0 {
		return k.name
	}
	return fmt.Sprintf("%d %s", k.num, k.name)
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
	if k := w.cur; k != nil && k.user && !k.running && !w.tracing && !w.verbose {
		w.host(k)
	}
	w.drive()
	if w.tracing {
		w.traceState()
	}
	w.root.state = ready
}

// host runs k, which is the first to go, here and not in a coroutine, so that there is one less to switch to and from. What
// records stacks does not want it: they would go on with who searches.
func (w *world) host(k *task) {
	w.release(k)
	k.co = w.hosting
	w.body(k)
}

// enlist gives k the number by which schedules name it.
func (w *world) enlist(k *task) {
	if len(w.tasks) >= w.stride {
		if w.stride == maxTasks {
			panic(fmt.Sprintf("explore: more than %d tasks, at %q", maxTasks, k.name))
		}
		w.widen()
	}
	k.num = len(w.tasks)
	k.t.ID = uint64(k.num)
	if k.seed == 0 {
		k.seed = sched.Mix(0x65787031, uint64(k.num)+1)
	}
	k.obs = k.seed
	w.tasks = append(w.tasks, k)
}

// widen makes room for more tasks in the clocks.
func (w *world) widen() {
	old := w.stride
	w.stride = maxTasks
	clk := make([]int32, len(w.clk)/old*maxTasks)
	for i := range len(w.clk) / old {
		copy(clk[i*maxTasks:], w.clk[i*old:(i+1)*old])
	}
	w.clk = clk
	for i := range w.vars {
		v := &w.vars[i]
		v.reads, v.readEv = append(make([]int32, 0, maxTasks), v.reads...)[:maxTasks], append(make([]int32, 0, maxTasks), v.readEv...)[:maxTasks]
	}
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
			for _, c := range k.t.NowaitSleeps {
				w.nowait(k, c)
			}
		}
	}
}

// nowait reports a sleep under NOWAIT, unless the kernel would spin there. Class 0 is a sleep for a time or for a task.
func (w *world) nowait(k *task, c sched.ClassID) {
	info := sched.ClassByID(c)
	if c == 0 {
		info.Name = "a plain sleep"
	} else if info.Leaf {
		return
	}
	w.fail(Violation{Kind: KindNowait, What: fmt.Sprintf("task %s may sleep in %s while its request is NOWAIT", k, info.Name)})
}

// unwind ends the tasks that have not ended.
func (w *world) unwind() {
	w.aborting = true
	for i := 1; i < w.nAll; i++ {
		k := w.all[i]
		if k.co == nil {
			continue
		}
		if k.state == ended || !k.running {
			w.release(k)
			continue
		}
		w.cur = k
		k.co.resume()
	}
	w.cur = nil
}

func (w *world) release(k *task) {
	if k.co == w.hosting {
		k.co = nil
	}
	if k.co != nil {
		k.co.k = nil
		w.free = append(w.free, k.co)
		k.co = nil
	}
}

// start gives k a coroutine and makes it ready.
func (w *world) start(k *task, name string, f func(t *sched.Task), user bool) {
	k.name, k.f, k.user = name, f, user
	k.t.Slot = w.nAll - 1
	k.opKind, k.op = stepStart, &k.t.Next
	if user {
		w.users++
	}
	var c *coro
	if n := len(w.free); n > 0 {
		c = w.free[n-1]
		w.free = w.free[:n-1]
	} else {
		c = w.newCoro()
	}
	c.k, k.co = k, c
}

func (w *world) newCoro() *coro {
	c := &coro{}
	w.coros = append(w.coros, c)
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		for {
			w.body(c.k)
			if !w.transfer(c) {
				return
			}
		}
	})
	return c
}

// resume runs c until it yields. Its task may have ended by then, and c have another one.
func (c *coro) resume() {
	c.active = true
	c.next()
	c.active = false
}

// body runs one task to its end.
func (w *world) body(k *task) {
	defer w.ended(k)
	k.running = true
	if w.aborting {
		return
	}
	k.f(k.t)
	if k.finish {
		k.t.Finish()
	}
}

// ended is deferred by every task: it turns a panic into the verdict and hands over.
func (w *world) ended(k *task) {
	r := recover()
	k.state, *k.op = ended, sched.Op{}
	if k.user {
		w.users--
	}
	if w.aborting { // what deferred calls did while unwinding does not count
		w.release(k)
		w.cur = nil
		return
	}
	if r != nil {
		w.panicked(k, r)
		w.release(k)
		w.cur = nil
		return
	}
	w.decide(k)
	w.release(k)
}

// transfer lets others run until it is c's turn again; false ends the coroutine.
func (w *world) transfer(c *coro) bool {
	for {
		n := w.cur
		if n != nil && n.co == c {
			return true
		}
		if n == nil || n.co.active {
			if !c.yield(struct{}{}) {
				return false
			}
			continue
		}
		n.co.resume()
	}
}

// drive is transfer for the root.
func (w *world) drive() {
	for {
		n := w.cur
		if n == nil || n == w.root {
			return
		}
		n.co.resume()
	}
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

// wait gives up the processor until k is picked.
func (w *world) wait(k *task) {
	if w.cur == k {
		return
	}
	if k == w.root {
		w.drive()
		if w.cur != k {
			panic(abort{})
		}
		return
	}
	if !w.transfer(k.co) || w.aborting {
		panic(abort{})
	}
}

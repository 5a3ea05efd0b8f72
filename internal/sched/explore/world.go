package explore

import (
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

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
	name    string
	num     int // by which schedules name it; -1 until the explored part begins
	state   taskState
	user    bool // must end; daemons need not
	running bool // has begun
	finish  bool // nobody else calls Finish
	token   bool // an Unpark came while it was not parked
	yielded bool // lets others go first
	fresh   bool // is on its way to its first operation
	due     int64
	op      sched.Op // what it does next
	opKind  StepKind
	nval    int // of a choice
	val     int
	f       func(t *sched.Task)
	co      *coro

	n         int32  // events so far
	last      int32  // its last event, -1 for none
	wake      int32  // the event that let it go on, -1 for none
	seed      uint64 // hash before the first event
	obs       uint64 // what it did and saw, for state matching
	prio      uint64 // of samplers
	parkObj   int32
	parkClass sched.ClassID
	parkID    any
	parkStep  int
	callers   [24]uintptr
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

// event is one executed step.
type event struct {
	task   int32
	obj    int32
	idx    int32 // among the task's events, from 1
	accLo  int32
	accHi  int32
	kind   StepKind
	class  sched.ClassID
	mode   uint8
	val    uint8
	nval   uint8
	def    int8 // whom the default order would have run
	last   int8 // who ran before, -1 for none
	mask   uint64
	before int32 // the task's event before, -1 for none
	wake   int32 // the event that let it go on, -1 for none
	hash   uint64
	closed uint64 // tasks that stood at a closed gate
}

// access is one object that an event used. Those of one object are chained, newest first.
type access struct {
	obj   int32
	ev    int32
	prev  int32
	open  uint8 // the gate just before
	mode  uint8 // what a waiting operation needed
	use   sched.Use
	frees bool
}

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
	wTask, wIdx, wEv int32
	reads            []int32 // by task: index of its last read
	readEv           []int32
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

	root  *task
	all   []*task // by Task.Slot; 0 is root
	nAll  int
	tasks []*task // explored, by number
	free  []*coro
	coros []*coro
	cur   *task
	prior *task // who ran before the one that is fresh
	clock int64
	users int // that have not ended
	idle  int // times the clock was moved without a user's step

	ev      []event
	acc     []access
	objs    []object
	nSetup  int
	clk     []int32
	stride  int
	vars    []plain
	history sched.Obj          // the order of calls and returns
	extra   map[any]*sched.Obj // objects that have no room for a number
	named   map[any]string
	dec     decision // the present one
	yields  bool     // somebody lets others go first
	curEv   int32
	curK    *task

	aborting bool
	pruned   bool
	viol     *Violation
	steps    int

	check     []func() error
	finally   []func(t *sched.Task) error
	invariant []func() error
	data      []func() uint64
	watches   []watch
	order     *orderGraph
	tracing   bool
	verbose   bool // stacks in panics
	notes     []note
	states    [][]string
	stacks    [][]uintptr
	heldAt    []string
}

type watch struct {
	name string
	f    func() string
}

type note struct {
	step int
	text string
}

var runs atomic.Uint64

// abort unwinds a task whose execution is over.
type abort struct{}

func newWorld(cfg *Config) *world {
	w := &world{cfg: cfg, stride: smallTasks, order: newOrderGraph()}
	w.pub.w = w
	w.root = w.slot()
	w.root.co = &coro{active: true}
	return w
}

// slot returns a task to use, its sched.Task numbered.
func (w *world) slot() *task {
	if w.nAll == len(w.all) {
		w.all = append(w.all, &task{})
	}
	k := w.all[w.nAll]
	t, co := k.t, k.co
	if w.nAll != 0 {
		co = nil
	}
	*k = task{t: t, co: co, num: -1, last: -1, wake: -1}
	w.nAll++
	return k
}

// close ends the pooled coroutines.
func (w *world) close() {
	for _, c := range w.coros {
		c.stop()
	}
	w.coros, w.free = nil, nil
}

// execute runs prog once under drv. It leaves what happened in w.viol and w.pruned.
func (w *world) execute(prog func(w *World), drv driver) {
	w.drv, w.run = drv, runs.Add(1)
	w.nAll = 1
	w.tasks = w.tasks[:0]
	w.phase, w.clock, w.users, w.idle, w.steps = setup, 0, 0, 0, 0
	w.ev, w.acc, w.objs, w.clk, w.vars = w.ev[:0], w.acc[:0], w.objs[:0], w.clk[:0], w.vars[:0]
	w.curEv, w.curK, w.prior = -1, nil, nil
	w.yields = false
	w.aborting, w.pruned, w.viol = false, false, nil
	w.check, w.finally, w.invariant, w.data, w.watches = w.check[:0], w.finally[:0], w.invariant[:0], w.data[:0], w.watches[:0]
	w.notes, w.states, w.stacks, w.heldAt = nil, nil, nil, nil
	if len(w.extra) > 0 {
		clear(w.extra)
	}
	if len(w.named) > 0 {
		clear(w.named)
	}
	r := w.root
	if r.t == nil {
		r.t = sched.NewTaskOn(w, "main")
	} else {
		r.t.Reset("main")
	}
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
	text := fmt.Sprint(r)
	kind := KindPanic
	if strings.HasPrefix(text, "lockdep:") {
		kind = KindOrder
		w.fail(kind, fmt.Sprintf("task %s: %s", w.nameOf(k), text))
		return
	}
	text = "panic: " + text
	if w.tracing || w.verbose {
		text += "\n" + string(debug.Stack())
	}
	w.fail(kind, fmt.Sprintf("task %s: %s", w.nameOf(k), text))
}

func (w *world) nameOf(k *task) string {
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
			w.number(k)
		}
	}
	for _, k := range w.all[1:w.nAll] {
		if !k.user && k.state != ended {
			w.number(k)
		}
	}
	w.nSetup = len(w.objs)
	if w.users == 0 {
		return
	}
	w.root.state = parked
	w.cur = nil
	w.decide(nil)
	w.drive()
	if w.tracing {
		w.traceState()
	}
	w.root.state = ready
}

func (w *world) number(k *task) {
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
	clk := make([]int32, len(w.ev)*maxTasks)
	for i := range w.ev {
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
	w.protect(func() {
		for _, f := range w.check {
			if err := f(); err != nil {
				w.fail(KindOracle, err.Error())
				return
			}
		}
		for _, f := range w.finally {
			if err := f(w.root.t); err != nil {
				w.fail(KindOracle, err.Error())
				return
			}
		}
	})
}

// leftovers finds what a task that has ended still holds, and sleeps under NOWAIT.
func (w *world) leftovers() {
	for _, k := range w.tasks {
		if k.state == ended && len(k.t.HeldLocks) > 0 && w.cfg.checks(CheckLeftovers) {
			w.fail(KindLeftover, fmt.Sprintf("task %s has ended and holds %s", w.nameOf(k), w.holds(k)))
		}
		if w.cfg.checks(CheckNowait) {
			for _, c := range k.t.NowaitSleeps {
				w.nowait(k, c)
			}
		}
	}
}

// nowait reports a sleep under NOWAIT, unless the kernel would spin there.
func (w *world) nowait(k *task, c sched.ClassID) {
	info := sched.ClassByID(c)
	if info.Rank >= leafRank {
		return
	}
	w.fail(KindNowait, fmt.Sprintf("task %s may sleep in %s while its request is NOWAIT", w.nameOf(k), info.Name))
}

// leafRank is lockdep.RankLeaf: what is a spinlock in the kernel.
const leafRank = 150

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
	k.opKind, k.op = stepStart, sched.Op{}
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
	k.state = ended
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
func (w *world) fail(kind Kind, text string) {
	if w.viol == nil {
		w.viol = &Violation{Kind: kind, Text: text}
	}
	w.cur = nil
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

func (k *task) enabled() bool {
	return k.state == ready && (k.op.Mode == 0 || k.op.Gate.Open()&k.op.Mode != 0)
}

// decide picks who goes on after last. It leaves w.cur nil when the execution is over.
func (w *world) decide(last *task) {
	if w.viol != nil {
		w.cur = nil
		return
	}
	if w.phase != exploring {
		w.decideQuiet(last)
		return
	}
	if w.users == 0 && !w.cfg.Settle {
		w.drv.end(w)
		w.cur = nil
		return
	}
	if last != nil && last.fresh { // it only came to its first operation
		last.fresh = false
		last = w.prior
	}
again:
	var mask, closed, yields uint64
	for i, k := range w.tasks {
		if k.state != ready {
			continue
		}
		if k.opKind == stepStart {
			// A task runs to its first operation before anything is decided: what it does till then nobody sees.
			k.fresh, w.prior = true, last
			w.dec = decision{last: -1, def: i, mask: 1 << i}
			w.begin(k, &w.dec)
			k.opKind = stepNone
			w.cur = k
			return
		}
		if k.op.Mode != 0 && k.op.Gate.Open()&k.op.Mode == 0 {
			closed |= 1 << i
			continue
		}
		if k.yielded {
			yields |= 1 << i
			continue
		}
		mask |= 1 << i
	}
	if mask == 0 {
		mask = yields
	}
	if closed != 0 && w.cfg.checks(CheckNowait) {
		w.checkNowait(closed)
		if w.viol != nil {
			w.cur = nil
			return
		}
	}
	if mask == 0 {
		if w.idle < 1000 && w.wakeSleeper() {
			w.idle++
			goto again
		}
		w.cur = nil
		w.drv.end(w)
		if w.users > 0 && w.viol == nil {
			w.deadlock()
		}
		return
	}
	for _, f := range w.invariant {
		if err := f(); err != nil {
			w.fail(KindOracle, err.Error())
			return
		}
	}
	step := len(w.ev)
	if step >= w.cfg.MaxSteps {
		w.drv.end(w)
		w.fail(KindLivelock, fmt.Sprintf("livelock: %d steps, and %s", step, w.unfinished()))
		return
	}
	def, lastNum := -1, -1
	if last != nil {
		lastNum = last.num
		if mask&(1<<lastNum) != 0 {
			def = lastNum
		}
	}
	if def < 0 {
		def = lowest(mask)
	}
	w.dec = decision{step: step, last: lastNum, def: def, mask: mask, closed: closed}
	d := &w.dec
	pick := w.drv.pick(w, d)
	if pick < 0 {
		w.cur = nil
		if w.viol == nil {
			w.pruned = true
		}
		return
	}
	if pick >= len(w.tasks) || mask&(1<<pick) == 0 {
		w.fail(KindMismatch, fmt.Sprintf("step %d: task %d cannot run, enabled are %v%s", step, pick, bitList(mask), w.whereIs(pick)))
		return
	}
	k := w.tasks[pick]
	if k.nval > 0 {
		k.val = w.drv.value(w, step, k.nval)
	}
	w.begin(k, d)
	w.cur = k
}

func (w *world) checkNowait(closed uint64) {
	for m := closed; m != 0; m &= m - 1 {
		if k := w.tasks[lowest(m)]; k.t.Nowait() {
			w.nowait(k, k.op.Class)
		}
	}
}

// decideQuiet is the order outside of the explored part: go on while you can, then the program, then the oldest.
func (w *world) decideQuiet(last *task) {
	for {
		w.cur = nil
		if last != nil && last.enabled() && last != w.root {
			w.cur = last
			break
		}
		for i, k := range w.all[:w.nAll] {
			if k.enabled() && (i == 0 || !k.user || w.phase == final || k.running) {
				w.cur = k
				break
			}
		}
		if w.cur != nil {
			break
		}
		if !w.wakeSleeper() {
			w.fail(KindDeadlock, "outside of the explored part: "+w.stuck())
			return
		}
	}
	k := w.cur
	k.wake = -1
}

// begin records the step that k is about to do.
func (w *world) begin(k *task, d *decision) {
	i := int32(len(w.ev))
	if w.tracing {
		w.traceStep(k)
	}
	k.n++
	lo := len(w.clk)
	w.clk = slices.Grow(w.clk, w.stride)[:lo+w.stride]
	row := w.clk[lo : lo+w.stride]
	h := k.seed
	if k.last >= 0 {
		copy(row, w.row(k.last))
		h = w.ev[k.last].hash
	} else {
		clear(row)
	}
	kind, before, wake := k.opKind, k.last, k.wake
	h = sched.Mix(h, uint64(kind)<<16|uint64(k.op.Class)<<8|uint64(k.val))
	if k.wake >= 0 {
		join(row, w.row(k.wake))
		h = sched.Mix(h, w.ev[k.wake].hash)
		k.wake = -1
	}
	row[k.num] = k.n
	w.ev = append(w.ev, event{
		task: int32(k.num), idx: k.n, kind: kind, class: k.op.Class, mode: k.op.Mode, mask: d.mask, closed: d.closed,
		accLo: int32(len(w.acc)), accHi: int32(len(w.acc)), hash: h, before: before, wake: wake, val: uint8(k.val), nval: uint8(k.nval), def: int8(d.def), last: int8(d.last),
	})
	w.curEv, w.curK = i, k
	k.last = i
	k.obs = sched.Mix(k.obs, uint64(kind)<<8|uint64(k.op.Class))
	if k.user {
		w.idle = 0
	}
	if k.op.Obj != nil {
		open := uint8(openUnknown)
		if k.op.Gate != nil {
			open = k.op.Gate.Open()
		}
		n := w.number1(k.op.Obj, k.op.ID, k.op.Class)
		w.ev[i].obj = n + 1
		w.touch(n, k.op.Use, open, k.op.Mode, k.op.Frees)
		if k.op.Also != nil {
			w.touch(w.number1(k.op.Also, k.op.ID, k.op.Class), k.op.AlsoUse, open, k.op.Mode, false)
		}
		if kind == StepKind(sched.PointWake) {
			w.objs[n].wakes++
			w.objs[n].lastWake = i
		}
	}
	if w.yields { // a step by one lets those go on that yielded to it
		for _, o := range w.tasks {
			if o != k {
				o.yielded = false
			}
		}
		w.yields = k.yielded
	}
}

func (w *world) row(ev int32) []int32 {
	lo := int(ev) * w.stride
	return w.clk[lo : lo+w.stride]
}

func join(dst, src []int32) {
	if len(dst) == smallTasks && len(src) == smallTasks {
		d, s := (*[smallTasks]int32)(dst), (*[smallTasks]int32)(src)
		for i := range d {
			d[i] = max(d[i], s[i])
		}
		return
	}
	for i := range dst {
		dst[i] = max(dst[i], src[i])
	}
}

// before reports whether event a happens before, or is, the event whose clock is row.
func (w *world) before(a int32, row []int32) bool {
	e := &w.ev[a]
	return row[e.task] >= e.idx
}

// number1 is the number of an object in this execution.
func (w *world) number1(o *sched.Obj, id any, class sched.ClassID) int32 {
	if o.Run == w.run {
		if x := &w.objs[o.Num]; x.id == nil {
			x.id, x.class = id, class
		}
		return o.Num
	}
	o.Run, o.Num = w.run, int32(len(w.objs))
	w.objs = append(w.objs, object{last: -1, lastW: -1, id: id, class: class, lastWake: -1})
	return o.Num
}

// touch orders the present event behind those that used the object before in a way that does not commute, and chains it
// to them.
func (w *world) touch(n int32, use sched.Use, open, mode uint8, frees bool) {
	i := w.curEv
	o := &w.objs[n]
	e := &w.ev[i]
	if o.last >= 0 {
		if x := &w.acc[o.last]; x.ev == i && (x.use == sched.Writes || x.use == use) {
			return
		}
	}
	row := w.row(i)
	sum := uint64(use)
	if use == sched.Reads && !o.adds {
		if o.lastW >= 0 {
			if x := &w.acc[o.lastW]; x.ev != i {
				join(row, w.row(x.ev))
				sum += w.ev[x.ev].hash
			}
		}
	} else {
		for a := o.last; a >= 0; a = w.acc[a].prev {
			x := &w.acc[a]
			if x.ev != i && depend(x.use, use) {
				join(row, w.row(x.ev))
				sum += w.ev[x.ev].hash
			}
			if x.use == sched.Writes {
				break
			}
		}
	}
	e.hash = sched.Mix(e.hash, sum)
	a := int32(len(w.acc))
	w.acc = append(w.acc, access{obj: n, ev: i, prev: o.last, open: open, mode: mode, use: use, frees: frees})
	e.accHi = a + 1
	o.last = a
	switch use {
	case sched.Writes:
		o.lastW = a
	case sched.Adds:
		o.adds = true
	}
}

func (w *world) of(t *sched.Task) *task {
	if t.Slot >= w.nAll || w.all[t.Slot].t != t {
		panic(fmt.Sprintf("explore: task %v is not of this run", t))
	}
	return w.all[t.Slot]
}

// Enter is a scheduling point.
func (w *world) Enter(t *sched.Task, op sched.Op) {
	k := w.of(t)
	if w.aborting {
		panic(abort{})
	}
	if c := w.cur; c != nil && c != k {
		k, t = c, c.t // who runs acts in the name of another task, as a device's Close does
	}
	if op.Kind == sched.PointLock && len(t.HeldLocks) > 1 && w.cfg.checks(CheckLockOrder) {
		w.lockOrder(k, op)
	}
	if w.phase != exploring || k == w.root {
		w.enterQuiet(k, op)
		return
	}
	if w.cfg.switches&(1<<op.Class) == 0 && (op.Kind < sched.PointYield || op.Kind == sched.PointLoad || op.Kind == sched.PointArrive) {
		open := uint8(openUnknown)
		if op.Gate != nil {
			open = op.Gate.Open()
		}
		if op.Mode == 0 || open&op.Mode != 0 {
			if op.Obj != nil {
				n := w.number1(op.Obj, op.ID, op.Class)
				if op.Kind == sched.PointWake {
					w.objs[n].wakes++
					w.objs[n].lastWake = w.curEv
				}
				if w.cfg.commutes&(1<<op.Class) == 0 {
					w.touch(n, op.Use, open, op.Mode, op.Frees)
					if op.Also != nil {
						w.touch(w.number1(op.Also, op.ID, op.Class), op.AlsoUse, open, op.Mode, false)
					}
				}
			}
			return
		}
	}
	k.op, k.opKind = op, StepKind(op.Kind)
	if w.tracing {
		k.ncallers = runtime.Callers(2, k.callers[:])
	}
	w.decide(k)
	w.wait(k)
	k.op = sched.Op{}
}

func (w *world) enterQuiet(k *task, op sched.Op) {
	if op.Obj != nil {
		w.number1(op.Obj, op.ID, op.Class)
	}
	if op.Mode != 0 && op.Gate.Open()&op.Mode == 0 {
		k.op = op
		w.decide(k)
		w.wait(k)
		k.op = sched.Op{}
	}
}

// Touch adds an object to the present step.
func (w *world) Touch(t *sched.Task, o *sched.Obj, use sched.Use) {
	if w.aborting {
		return
	}
	n := w.number1(o, nil, 0)
	if w.phase == exploring && w.curEv >= 0 {
		w.touch(n, use, openUnknown, 0, false)
	}
}

// Aborting says that tasks only unwind.
func (w *world) Aborting() bool { return w.aborting }

// See folds what t read into its observation.
func (w *world) See(t *sched.Task, hash uint64) {
	if w.phase == exploring && !w.aborting {
		k := w.of(t)
		k.obs = sched.Mix(k.obs, hash)
	}
}

// Data checks an access to a plain field: one that is not ordered with the last one of another task, when one of them
// writes, is a race.
func (w *world) Data(t *sched.Task, o *sched.Obj, write bool) {
	if w.phase != exploring || w.aborting || w.curEv < 0 || !w.cfg.checks(CheckRaces) {
		return
	}
	if o.Run != w.run {
		o.Run, o.Num = w.run, int32(len(w.vars))
		w.vars = slices.Grow(w.vars, 1)[:len(w.vars)+1]
		v := &w.vars[o.Num]
		v.wTask = -1
		if cap(v.reads) < w.stride {
			v.reads, v.readEv = make([]int32, w.stride), make([]int32, w.stride)
		}
		v.reads, v.readEv = v.reads[:w.stride], v.readEv[:w.stride]
		clear(v.reads)
	}
	v := &w.vars[o.Num]
	k := w.of(t)
	row := w.row(w.curEv)
	if v.wTask >= 0 && row[v.wTask] < v.wIdx {
		w.race(k, write, int(v.wTask), v.wEv, true)
	}
	if !write {
		v.reads[k.num], v.readEv[k.num] = k.n, w.curEv
		return
	}
	for r, idx := range v.reads {
		if idx > row[r] && r != k.num {
			w.race(k, true, r, v.readEv[r], false)
		}
	}
	v.wTask, v.wIdx, v.wEv = int32(k.num), k.n, w.curEv
}

func verb(write bool) string {
	if write {
		return "writes"
	}
	return "reads"
}

func (w *world) race(k *task, write bool, other int, ev int32, otherWrote bool) {
	o := w.tasks[other]
	text := fmt.Sprintf("data race: task %s %s a field in step %d (holding %s) that task %s %s in step %d (now holding %s); no lock, atomic or wake-up orders them",
		w.nameOf(k), verb(write), w.curEv, w.holds(k), w.nameOf(o), verb(otherWrote), ev, w.holds(o))
	if w.tracing {
		var pc [16]uintptr
		n := runtime.Callers(4, pc[:])
		text += "\n" + frames(pc[:n])
	}
	if w.viol == nil {
		w.viol = &Violation{Kind: KindRace, Text: text}
	}
}

// Point is the scheduling point of code that does not know of objects.
func (w *world) Point(t *sched.Task, p sched.Point) {
	op := sched.Op{Kind: p.Kind, Class: p.Class, Use: sched.Writes}
	if p.Kind == sched.PointLoad {
		op.Use = sched.Reads
	}
	if p.Kind == sched.PointYield {
		if w.phase == exploring {
			w.of(t).yielded, w.yields = true, true
		}
	}
	if p.Obj != nil {
		op.Obj, op.ID = w.objOf(p.Obj), p.Obj
	}
	w.Enter(t, op)
}

func (w *world) objOf(id any) *sched.Obj {
	o := w.extra[id]
	if o == nil {
		if w.extra == nil {
			w.extra = map[any]*sched.Obj{}
		}
		o = &sched.Obj{}
		w.extra[id] = o
	}
	return o
}

// Go starts a task for another one. What the program itself or a daemon starts is a daemon.
func (w *world) Go(parent, child *sched.Task, f func(t *sched.Task)) {
	if w.aborting {
		return
	}
	p := w.of(parent)
	k := w.slot()
	k.t = child
	w.start(k, child.Name, f, p.user)
	if w.phase == exploring {
		if w.curEv >= 0 {
			e := &w.ev[w.curEv]
			e.hash = sched.Mix(e.hash, 0x676f)
			k.seed = sched.Mix(e.hash, 0x6368696c64)
			k.wake = w.curEv
		}
		w.number(k)
	}
}

// Park takes t out of the enabled tasks until Unpark.
func (w *world) Park(t *sched.Task, class sched.ClassID) {
	k := w.of(t)
	if w.aborting {
		panic(abort{})
	}
	if k.token {
		k.token = false
		if k.wake >= 0 && w.phase == exploring && w.curEv >= 0 && w.curK == k {
			join(w.row(w.curEv), w.row(k.wake))
			w.ev[w.curEv].hash = sched.Mix(w.ev[w.curEv].hash, w.ev[k.wake].hash)
		}
		k.wake = -1
		return
	}
	k.parkObj, k.parkClass, k.parkStep, k.parkID = 0, class, len(w.ev), nil
	if k.last >= 0 && k.last == w.curEv {
		k.parkObj = w.ev[k.last].obj
	}
	k.op, k.opKind = sched.Op{Class: class}, stepResume
	k.state = parked
	if w.tracing {
		k.ncallers = runtime.Callers(2, k.callers[:])
	}
	if k.t.Nowait() && w.cfg.checks(CheckNowait) {
		w.nowait(k, class)
	}
	w.decide(k)
	w.wait(k)
	k.op = sched.Op{}
}

// Unpark enables t, or lets its next Park go on.
func (w *world) Unpark(t *sched.Task) {
	if w.aborting {
		return
	}
	k := w.of(t)
	k.wake = w.curEv
	switch {
	case k.state == parked:
		k.state = ready
	case k.token:
		panic(fmt.Sprintf("explore: second Unpark of task %v", t))
	default:
		k.token = true
	}
}

// Now is the run's clock.
func (w *world) Now() int64 { return w.clock }

// Sleep passes d of the run's time: others go first.
func (w *world) Sleep(t *sched.Task, d time.Duration) {
	k := w.of(t)
	if w.aborting {
		panic(abort{})
	}
	k.op, k.opKind = sched.Op{}, stepAwake
	k.state, k.due = sleeping, w.clock+int64(d)
	w.decide(k)
	w.wait(k)
}

// Charge passes no time: this runtime has no CPUs.
func (w *world) Charge(*sched.Task, time.Duration) {}

// wakeSleeper moves the clock to the first sleeper and makes it ready.
func (w *world) wakeSleeper() bool {
	var first *task
	for _, k := range w.all[:w.nAll] {
		if k.state == sleeping && (first == nil || k.due < first.due) {
			first = k
		}
	}
	if first == nil {
		return false
	}
	w.clock = max(w.clock, first.due)
	first.state = ready
	return true
}

package explore

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"btrlab/internal/sched"
)

// The log of an execution: what happened, and what orders it.
//
//	ev    [0] task 0   [1] task 1   [2] task 0   [3] task 1      a step each, in the order of execution
//	        │ accLo..accHi             │            │
//	acc   [0]◄───────────prev────────[1]◄──prev───[2]            the uses of one object are a chain, newest first
//	                                                ▲
//	objs  [0] last ─────────────────────────────────┘            lastW: its newest write
//
//	clk   for each event a row, for each task how many epochs of it come before the event
//
// An event comes after the one of its task before it, after the one that woke its task, and after
// those that used one of its objects in a way that does not commute with its own use (depend). clk
// has this order as vector clocks, and event.hash as a hash: two executions with the same hashes
// are one order of dependent steps. An epoch is an event of a task, or the part of one after an
// object was used: the use orders what the task did up to its own epoch, not the plain data that it
// touches later in the same step.

// event is one executed step. There is one for every step of millions of executions: it has the
// size of a cache line.
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
	def    int8 // the task that the default order would have run
	last   int8 // the task that ran before, -1 for none
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
	// What it does to a counter (underflow): the change, and the lowest point on the way.
	net, low int16
}

// openUnknown is the gate before an access that knows no gate: a store, which a task may wait for
// with its own condition.
const openUnknown = 255

// depend says whether two uses of one object cannot change places.
func depend(a, b sched.Use) bool { return a != b || a == sched.Writes }

type object struct {
	last, lastW int32 // accesses, -1 for none
	stopped     int32 // the last access that stopped at its closed gate, -1 for none
	adds        bool
	downs       bool // a count that has been taken down
	id          any
	class       sched.ClassID
	wakes       int32 // of a queue: how often it was woken
	lastWake    int32
	sig         uint64 // names the object for state matching: the sum of its uses (log.uses)
}

// log is the steps of an execution and what orders them. It grows only, by begin and touch. DPOR
// and the search by preemptions read it; what people want to know besides is in trace.
type log struct {
	run uint64 // number of the execution, unique in the process

	// What is recorded beside the steps.
	observes bool // what tasks saw, for State
	hashes   bool // happens-before hashes, for Config.Done and for what takes equal orders for one
	clocks   bool // vector clocks, for DPOR and for programs with a Var
	chains   bool // which events used an object: the two above follow them
	trails   bool // the hash of the steps as they came

	ev      []event
	acc     []access
	objs    []object
	nSetup  int     // objects that were used before the explored part
	clk     []int32 // vector clocks of the events, a row of stride each
	stride  int
	history sched.Obj          // the order of calls and returns
	extra   map[any]*sched.Obj // objects that have no room for a number
	curEv   int32              // the present step, -1 for none
	curK    *task              // whose it is
	trail   uint64             // hash of the steps as they came
}

// runs numbers executions. A world takes many numbers at once.
var runs atomic.Uint64

const runsAtOnce = 1 << 20

// reset begins the log of another execution.
func (l *log) reset(trails bool) {
	if l.run&(runsAtOnce-1) == 0 {
		l.run = runs.Add(runsAtOnce)
	}
	l.run++
	l.chains, l.trails = l.hashes || l.clocks, trails
	l.ev, l.acc, l.objs, l.clk = l.ev[:0], l.acc[:0], l.objs[:0], l.clk[:0]
	l.curEv, l.curK, l.trail = -1, nil, 0
	if len(l.extra) > 0 {
		clear(l.extra)
	}
}

// kept is the part of the log that another search may use: its memory, without what leads to a
// program.
func (l *log) kept() log {
	clear(l.objs[:cap(l.objs)])
	return log{run: l.run, ev: l.ev[:0], acc: l.acc[:0], clk: l.clk[:0], objs: l.objs[:0]}
}

// widen makes room for maxTasks tasks in the clocks.
func (l *log) widen() {
	old := l.stride
	l.stride = maxTasks
	clk := make([]int32, len(l.clk)/old*maxTasks)
	for i := range len(l.clk) / old {
		copy(clk[i*maxTasks:], l.clk[i*old:(i+1)*old])
	}
	l.clk = clk
}

// numberOf is the number of an object in this execution.
func (l *log) numberOf(o *sched.Obj, id any, class sched.ClassID) int32 {
	if o.Run == l.run {
		if x := &l.objs[o.Num]; x.id == nil {
			x.id, x.class = id, class
		}
		return o.Num
	}
	o.Run, o.Num = l.run, int32(len(l.objs))
	l.objs = append(l.objs, object{last: -1, lastW: -1, stopped: -1, id: id, class: class, lastWake: -1})
	return o.Num
}

func (l *log) objOf(id any) *sched.Obj {
	o := l.extra[id]
	if o == nil {
		if l.extra == nil {
			l.extra = map[any]*sched.Obj{}
		}
		o = &sched.Obj{}
		l.extra[id] = o
	}
	return o
}

// use is the hash of one use of an object by k. It follows from what k did and saw. Another object
// is used by another task, at another time or as another one of the same step: so the sum over an
// object's uses names it in every state, whatever order led there.
func (k *task) use() uint64 {
	k.uses++
	return sched.Mix(k.obs, uint64(k.uses))
}

// follow folds x into trail, the hash of the steps in execution order. Replaying a schedule must
// give the same trail.
func (l *log) follow(x uint64) { l.trail = bits.RotateLeft64((l.trail^x)*0x9e3779b97f4a7c15, 29) }

// inherit gives an event, which is the last one, the clock and the hash of what led k to it.
func (l *log) inherit(e *event, k *task) {
	if l.clocks {
		lo, hi := len(l.clk), len(l.clk)+l.stride
		if hi > cap(l.clk) {
			l.clk = slices.Grow(l.clk, max(16*l.stride, hi))
		}
		l.clk = l.clk[:hi]
		row := l.clk[lo:hi]
		if e.before >= 0 {
			assign(row, l.row(e.before))
		} else {
			clear(row)
		}
		if e.wake >= 0 {
			l.joinUpTo(row, e.wake, k.wakeEpoch)
		}
		row[k.num] = k.n
	}
	if l.hashes {
		h := k.seed
		if e.before >= 0 {
			h = l.ev[e.before].hash
		}
		h = sched.Mix(h, uint64(e.kind)<<16|uint64(e.class)<<8|uint64(e.val))
		if e.wake >= 0 {
			h = sched.Mix(h, l.ev[e.wake].hash)
		}
		e.hash = h
	}
}

// touch orders the present event after those that used the object in a way that does not commute,
// and chains it to them.
func (l *log) touch(n int32, use sched.Use, open, mode uint8, frees bool) {
	if l.trails {
		l.follow(uint64(n)<<8 | uint64(use))
	}
	if l.observes {
		l.objs[n].sig += l.curK.use()
	}
	if !l.chains {
		return
	}
	i := l.curEv
	o := &l.objs[n]
	e := &l.ev[i]
	if o.last >= 0 {
		if x := &l.acc[o.last]; x.ev == i && (x.use == sched.Writes || x.use == use) {
			x.epoch, l.curK.dataAcc = l.curK.n, -1
			x.count(o, use, frees)
			return
		}
	}
	sum := uint64(use)
	if use == sched.Reads && !o.adds {
		if o.lastW >= 0 {
			if x := &l.acc[o.lastW]; x.ev != i {
				sum += l.after(i, x.ev, x.epoch)
			}
		}
	} else {
		for a := o.last; a >= 0; a = l.acc[a].prev {
			x := &l.acc[a]
			if x.ev != i && depend(x.use, use) {
				sum += l.after(i, x.ev, x.epoch)
			}
			if x.use == sched.Writes {
				break
			}
		}
	}
	if l.hashes {
		e.hash = sched.Mix(e.hash, sum)
	}
	a := int32(len(l.acc))
	if len(l.acc) == cap(l.acc) {
		l.acc = slices.Grow(l.acc, max(16, len(l.acc)))
	}
	l.acc = l.acc[:a+1]
	x := &l.acc[a]
	x.obj, x.ev, x.prev, x.epoch, x.open, x.mode, x.use, x.frees = n, i, o.last, l.curK.n, open, mode, use, frees
	x.net, x.low = 0, 0
	x.count(o, use, frees)
	e.accHi = a + 1
	o.last = a
	switch use {
	case sched.Writes:
		o.lastW = a
	case sched.Adds:
		o.adds = true
	}
}

// count adds one change of a counter to an access.
func (x *access) count(o *object, use sched.Use, frees bool) {
	switch {
	case use != sched.Adds || x.use != sched.Adds:
	case frees:
		o.downs = true
		x.net--
		x.low = min(x.low, x.net)
	default:
		x.net++
	}
}

// stops is the use of an object whose gate was closed, by a step that went no further for that. It
// orders nothing, and is in a chain of its own. DPOR takes it for one that depends on all other
// uses: what opens the gate makes another step of this one.
const stops sched.Use = 255

// stop adds such a use to the present event.
func (l *log) stop(n int32) {
	o := &l.objs[n]
	l.acc = append(l.acc, access{obj: n, ev: l.curEv, prev: o.stopped, epoch: l.curK.n, open: openUnknown, use: stops})
	o.stopped = int32(len(l.acc)) - 1
	l.ev[l.curEv].accHi = int32(len(l.acc))
}

// after orders event i after event j, and returns the hash of j.
func (l *log) after(i, j, epoch int32) uint64 {
	if l.clocks && l.ev[i].task != l.ev[j].task { // it comes after its own already
		l.joinUpTo(l.row(i), j, epoch)
	}
	if !l.hashes {
		return 0
	}
	return l.ev[j].hash
}

func (l *log) row(ev int32) []int32 {
	lo := int(ev) * l.stride
	return l.clk[lo : lo+l.stride]
}

// comesAfter says that event i comes after event j in every order, or is j.
func (l *log) comesAfter(i, j int32) bool { return l.row(i)[l.ev[j].task] >= l.ev[j].idx }

func assign(dst, src []int32) {
	if len(dst) == smallTasks && len(src) == smallTasks {
		d, s := (*[smallTasks]int32)(dst), (*[smallTasks]int32)(src)
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
		return
	}
	copy(dst, src)
}

// joinUpTo joins into row the clock of event ev, and of its own task what came up to epoch.
func (l *log) joinUpTo(row []int32, ev, epoch int32) {
	join(row, l.row(ev))
	t := l.ev[ev].task
	row[t] = max(row[t], epoch)
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

// schedule names this execution.
func (l *log) schedule() schedule {
	var s schedule
	for i := range l.ev {
		e := &l.ev[i]
		d := deviation{step: int32(i), task: -1, val: -1}
		if e.task != int32(e.def) {
			d.task = int8(e.task)
		}
		if e.val != 0 {
			d.val = int16(e.val)
		}
		if d.task >= 0 || d.val >= 0 {
			s = append(s, d)
		}
	}
	return s
}

// byDefault reports whether the empty schedule names this execution.
func (l *log) byDefault() bool {
	for i := range l.ev {
		if e := &l.ev[i]; e.task != int32(e.def) || e.val != 0 {
			return false
		}
	}
	return true
}

// preemptions counts the steps of others while the last one could have gone on.
func (l *log) preemptions() int {
	n := 0
	for i := range l.ev {
		if l.ev[i].preempts() {
			n++
		}
	}
	return n
}

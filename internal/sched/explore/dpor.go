package explore

import (
	"math/bits"

	"btrlab/internal/sched"
)

// Source-DPOR with sleep sets (Abdulla, Aronis, Jonsson, Sagonas: Optimal Dynamic Partial Order
// Reduction, POPL 2014, algorithm 1), depth first and without stored states: every execution starts
// from the beginning.
//
// Two events race when they depend on each other and nothing orders them in between. For each race
// the node before the first event gets a task to try from which the second one can come first,
// unless one is there already. An operation that waits races with an earlier event only if it could
// have gone on just before that event; one that still waits at the end of an execution is raced as
// if it were the next step, also in executions that were cut off.
//
// The task to try leads a plan: what stood between the two events and does not depend on the first,
// then the second. The execution follows it, so that the tasks that sleep are woken soon. A second
// plan with the same first task is not kept; an algorithm with wakeup trees keeps it and is never
// cut off, where this one is in a hundredth of the executions of small programs, and in a tenth
// with five tasks.
//
// A task that yields cannot go on until another one has done a step, unless no other can. Whether
// it can thus depends on every step of the others, also on those that use none of its objects, and
// the races above say nothing of it: DPOR gives up when it meets a yield without a violation
// (refuse). It gives up, too, when a task takes a lock while its request is NOWAIT: whether it
// waits there is judged, but a lock that was waited for and one that was free by then are one
// order.
//
// A task whose step has been explored at a node sleeps below it until another task does a step that
// depends on it, so that no order is explored twice.

// foot is one access of an explored step.
type foot struct {
	obj   int32
	use   sched.Use
	fresh bool // no step had used the object before
}

// sleeper is a task that need not be tried, because what it would do was.
type sleeper struct {
	task  int
	steps []foot
}

// node is a decision on the path to the present execution.
type node struct {
	trail     uint64 // hash of what leads here
	mask      uint64
	backtrack uint64 // to be tried
	done      uint64
	asleep    uint64 // tasks of sleep
	sleep     []sleeper
	task      int
	val, nval int
	foot      []foot // of task's step, all values together
	plans     []plan // how to go on after a task of backtrack
	seq       []int8 // the tasks of the plans
	fixed     bool   // a task's start: no decision
	ends      bool   // the execution ends here; that daemons go on is still to be tried (beyond.go)
	full      bool   // everything enabled is tried, so that its subtrees can be divided
	branches  int    // full nodes with a choice above
	open      open   // for the estimate
}

// plan is how to go on when a task of backtrack is tried, so that soon the step is done for which
// it is: the part [lo, hi) of the node's seq. Without it the default order might do first what
// sleeps, and be cut off.
type plan struct {
	task, lo, hi int32
}

// chained is a use of an object, and the last access before it.
type chained struct {
	last int32
	use  sched.Use
}

// dpor is the search of one part. Its world keeps it for the next search, for the memory.
type dpor struct {
	s     *search
	nodes []node // those beyond n are old
	way   []int8 // what is left of the plan that the present execution follows
	n     int
	keep  int             // nodes that the present execution repeats
	seen  int             // events that have been looked at
	pre   [maxTasks]int32 // clock before the step that is looked at
	row   [maxTasks]int32 // and as it would be without the group
	uses  []chained       // of that step
	first [maxTasks]int32 // by task: its first event after the one that is raced with
	group []int32         // events that what waits must come before
	opens []int32         // those of them that open the gate

	// Beyond the end of the present execution (beyond.go):
	over     int     // the number of its events, -1 before the end
	lasts    []int32 // the events of it that can come last
	lastSeen int32   // events that lasts knows
	under    []int32 // events that take a counter below zero

	full, part, parts int // levels of full nodes; this is part of parts
	prefix            int // number of the present one

	estimate bool // somebody wants to know how far the search is
	runs     int  // executions of this part
	shrinks  shrinks
}

// byDPOR divides the upper levels of the tree, where everything is tried, among the parts.
// Everything is more than DPOR would try: each such level makes the search up to twice as long. So
// there are no more of them than give each part a subtree.
func (s *search) byDPOR() {
	parts := s.cfg.Shards * s.cfg.Jobs
	full := 0
	if parts > 1 {
		full = bits.Len(uint(parts - 1))
	}
	s.jobs(func(j int, w *world) {
		d := w.dpor
		d.s, d.full, d.part, d.parts = s, full, s.cfg.Shard*s.cfg.Jobs+j, parts
		d.n, d.keep, d.prefix, d.way = 0, 0, 0, d.way[:0]
		d.estimate, d.runs, d.shrinks = s.cfg.Progress != nil, 0, shrinks{}
		d.search(w)
		s.estimates(j, float64(d.runs))
		d.s = nil
	})
}

func (d *dpor) search(w *world) {
	for {
		d.seen = max(0, d.keep-1)
		d.n = d.keep
		d.over, d.under = -1, nil
		w.execute(d.s.prog, d)
		if (w.fair || len(w.invariant) > 0) && (w.viol == nil || d.s.cfg.All) {
			d.s.refuse()
			return
		}
		mine := d.prefix%d.parts == d.part
		if mine {
			d.runs++
		}
		if mine && !d.account(w) {
			if d.next(w) {
				d.s.leave()
			}
			return
		}
		if !mine && d.s.stop.Load() {
			d.s.leave() // there may be a prefix that is mine
			return
		}
		edge := d.n
		for edge > 0 && !d.nodes[edge-1].full {
			edge--
		}
		if !mine {
			d.n = edge
		}
		if !d.next(w) {
			return
		}
		if d.keep <= edge {
			d.prefix++
		}
	}
}

// next finds the deepest node with something left to try.
func (d *dpor) next(w *world) bool {
	for d.n > 0 {
		i := d.n - 1
		nd := &d.nodes[i]
		if nd.ends {
			nd.ends = false
			if left := nd.backtrack &^ nd.asleep; left != 0 {
				if d.estimate {
					nd.open.next(&d.shrinks, d.runs)
				}
				nd.task = lowest(left)
				d.way, d.keep = d.way[:0], d.n
				return true
			}
		} else if !nd.fixed && i < len(w.ev) {
			left := nd.backtrack &^ nd.done &^ nd.asleep &^ (1 << nd.task)
			if nd.nval > 0 || left != 0 {
				d.addFoot(&w.log, nd, i)
			}
			if nd.val+1 < nd.nval {
				nd.val++
				if d.estimate {
					nd.open.next(&d.shrinks, d.runs)
				}
				d.way = d.way[:0]
				d.keep = d.n
				return true
			}
			nd.done |= 1 << nd.task
			if left != 0 {
				if d.estimate {
					nd.open.next(&d.shrinks, d.runs)
				}
				if nd.asleep&(1<<nd.task) == 0 {
					nd.asleep |= 1 << nd.task
					nd.sleep = append(nd.sleep, sleeper{nd.task, append([]foot(nil), nd.foot...)})
				}
				nd.task, nd.val, nd.nval, nd.foot = lowest(left), 0, 0, nd.foot[:0]
				d.way = d.way[:0]
				for _, p := range nd.plans {
					if int(p.task) == nd.task {
						d.way = append(d.way, nd.seq[p.lo:p.hi]...)
						break
					}
				}
				d.keep = d.n
				return true
			}
		}
		if d.estimate {
			nd.open.close(&d.shrinks, d.runs)
		}
		d.n--
	}
	return false
}

// whole estimates the executions of this part. The present one has ended.
func (d *dpor) whole() float64 {
	est := 1.0
	for i := d.n - 1; i >= 0; i-- {
		nd := &d.nodes[i]
		if nd.fixed {
			continue
		}
		todo := nd.backtrack &^ nd.done &^ nd.asleep
		if !nd.ends {
			todo &^= 1 << nd.task
		}
		left := bits.OnesCount64(todo)
		est = nd.open.whole(&d.shrinks, est, left+max(0, nd.nval-nd.val-1))
	}
	return est
}

func (d *dpor) addFoot(l *log, nd *node, i int) {
	e := &l.ev[i]
	for _, a := range l.acc[e.accLo:e.accHi] {
		nd.foot = append(nd.foot, foot{a.obj, a.use, a.obj >= e.known})
	}
}

func (d *dpor) pick(w *world, c *decision) int {
	d.look(&w.log)
	if c.step < d.keep {
		nd := &d.nodes[c.step]
		if nd.mask != c.mask || nd.trail != w.trail {
			w.fail(Violation{Kind: KindMismatch, Named: true, What: "another state in the same schedule"})
			return -1
		}
		return nd.task
	}
	nd := d.push(&w.log)
	nd.mask, nd.trail = c.mask, w.trail
	can := c.mask &^ nd.asleep
	if can == 0 {
		d.n--
		d.blocked(w, c.closed)
		return -1
	}
	nd.task = c.def
	if can&(1<<c.def) == 0 {
		nd.task = lowest(can)
	}
	if len(d.way) > 0 {
		if can&(1<<d.way[0]) != 0 {
			nd.task, d.way = int(d.way[0]), d.way[1:]
		} else {
			d.way = d.way[:0]
		}
	}
	nd.backtrack = 1 << nd.task
	if nd.full {
		nd.backtrack = c.mask
		if bits.OnesCount64(can) > 1 {
			nd.branches++
		}
	}
	return nd.task
}

// push adds the node before the event that comes next: those sleep that slept or were done in the
// node above and do not depend on the event between.
func (d *dpor) push(l *log) *node {
	if d.n == len(d.nodes) {
		d.nodes = append(d.nodes, node{})
	}
	nd := &d.nodes[d.n]
	nd.trail, nd.mask, nd.backtrack, nd.done, nd.asleep = 0, 0, 0, 0, 0
	nd.task, nd.val, nd.nval, nd.fixed, nd.ends, nd.branches = 0, 0, 0, false, false, 0
	nd.sleep, nd.foot, nd.plans, nd.seq = nd.sleep[:0], nd.foot[:0], nd.plans[:0], nd.seq[:0]
	if d.n > 0 {
		up := &d.nodes[d.n-1]
		e := &l.ev[d.n-1]
		nd.branches = up.branches
		for _, s := range up.sleep {
			if s.task != int(e.task) && independent(s.steps, l.acc[e.accLo:e.accHi]) {
				nd.sleep = append(nd.sleep, s)
				nd.asleep |= 1 << s.task
			}
		}
	}
	if d.estimate {
		nd.open = open{begun: d.runs, child: d.runs}
	}
	nd.full = nd.branches < d.full
	d.n++
	return nd
}

// independent compares objects by number. Those that are not in use yet get the next number when
// they are first used, on whatever path: a step that was to use a new object is woken by the first
// one that uses any, which is too early and never too late (race knows). Objects with a name
// (World.Name) or used before the explored part have the same number on all paths.
func independent(s []foot, e []access) bool {
	for i := range e {
		for _, f := range s {
			if f.obj == e[i].obj && (f.fresh || depend(f.use, e[i].use)) {
				return false
			}
		}
	}
	return true
}

// look races the events that have ended since it was last called. Those of starts have got no node
// yet.
func (d *dpor) look(l *log) {
	for ; d.seen < len(l.ev); d.seen++ {
		if d.seen >= d.n {
			nd := d.push(l)
			e := &l.ev[d.seen]
			nd.fixed, nd.task, nd.mask = true, int(e.task), e.mask
		}
		d.races(l, d.seen)
	}
}

// second is the later step of a race: an event, or the operation that a task stands at when an
// execution is cut off.
type second struct {
	ev   int   // its event; len(log.ev) when it has not happened
	proc int   // its task
	last int32 // the task's event before it
	// one object that it uses:
	use  sched.Use
	mode uint8 // of the gate that it must find open
	two  bool  // it uses another object as well
	pre  []int32
}

// races finds the events that event ev races with.
func (d *dpor) races(l *log, ev int) {
	e := &l.ev[ev]
	s := second{ev: ev, proc: int(e.task), last: e.before, two: e.accHi-e.accLo > 1}
	for a := e.accLo; a < e.accHi; a++ {
		x := &l.acc[a]
		stopped := l.objs[x.obj].stopped
		chained := x.prev >= 0 && !l.wroteLast(x.prev, e.task)
		if x.use == stops || !chained && stopped < 0 {
			continue
		}
		if s.pre == nil {
			s.pre = d.before(l, e.before, e.wake)
		}
		s.use, s.mode = x.use, x.mode
		if chained {
			d.chain(l, x.prev, &s)
		}
		for ; stopped >= 0; stopped = l.acc[stopped].prev {
			d.stopped(l, int(l.acc[stopped].ev), &s)
		}
	}
}

// stopped races s with event first, which has stopped at the gate of the object: before it s may
// have opened the gate, and first goes on.
func (d *dpor) stopped(l *log, first int, s *second) {
	e := &l.ev[first]
	if first >= s.ev || int(e.task) == s.proc || s.pre[e.task] >= e.idx {
		return
	}
	d.group = append(d.group[:0], int32(first))
	d.race(l, first, s)
}

// wroteLast says that access a is a write by the task itself, as a lock is before its unlock:
// nothing before it can race.
func (l *log) wroteLast(a, task int32) bool {
	x := &l.acc[a]
	return x.use == sched.Writes && l.ev[x.ev].task == task
}

// before is the clock of a task before a step: what its last one and the wake-up of this one knew.
func (d *dpor) before(l *log, last, wake int32) []int32 {
	pre := d.pre[:l.stride]
	if last >= 0 {
		assign(pre, l.row(last))
	} else {
		clear(pre)
	}
	if wake >= 0 {
		join(pre, l.row(wake))
	}
	return pre
}

// chain walks the accesses of one object from the given one back, for those that race with s. What
// waits may have to come before several events that commute with each other, as all that count up
// before it: then it races with the group of them, at the point where it last could have gone on:
// the gate was open there, or what comes before s in any case opens it. A store knows no gate; a
// task that stood at a closed one before it, having done nothing since its last event, could not
// have gone on.
func (d *dpor) chain(l *log, access int32, s *second) {
	d.group, d.opens = d.group[:0], d.opens[:0]
	opened := false // by an event that comes before s in any case
	for ; access >= 0; access = l.acc[access].prev {
		x := &l.acc[access]
		writes := x.use == sched.Writes
		if int(x.ev) == s.ev {
			continue
		}
		first := &l.ev[x.ev]
		if !depend(x.use, s.use) || int(first.task) == s.proc || s.pre[first.task] >= first.idx {
			if writes {
				return // what is older is ordered before the write
			}
			opened = opened || x.frees
			continue
		}
		if s.mode == 0 {
			d.group = append(d.group[:0], x.ev)
			d.race(l, int(x.ev), s)
			if writes {
				return
			}
			continue
		}
		d.group = append(d.group, x.ev)
		open := x.open&s.mode != 0
		if x.open == openUnknown && s.last < x.ev && first.closed&(1<<s.proc) != 0 {
			open = false
		}
		could := open || opened
		if could {
			d.race(l, int(x.ev), s)
		}
		if x.frees {
			d.opens = append(d.opens, x.ev)
		}
		if !writes && !x.frees && (could && len(d.group) > 1 || !could && (s.two || d.apart(l, first, d.opens))) {
			// Alone: the others of the group may have opened the gate again, or what happened to a
			// second object.
			all := d.group
			d.group = all[len(all)-1:]
			d.race(l, int(x.ev), s)
			d.group = all
		}
		if writes && open && x.open != openUnknown {
			return
		}
	}
}

// race makes the node before the event first try a task from which s comes before first and the
// rest of the group.
func (d *dpor) race(l *log, first int, s *second) {
	nd := &d.nodes[first]
	if nd.fixed {
		return
	}
	tried, group := nd.backtrack|nd.asleep, len(d.group)
	defer func() { d.group = d.group[:group] }()
	// tasks with events between that need not come after first; those that can begin
	var procs, initials uint64
	begins := func(row []int32) bool {
		for m := procs; m != 0; m &= m - 1 {
			if proc := lowest(m); row[proc] >= d.first[proc] {
				return false
			}
		}
		return true
	}
	for between := first + 1; between < s.ev; between++ {
		e := &l.ev[between]
		if procs&(1<<e.task) != 0 {
			continue
		}
		row := l.row(int32(between))
		if d.follows(l, row) {
			continue
		}
		if begins(row) {
			bit := uint64(1) << e.task
			if nd.backtrack&bit != 0 || nd.asleep&bit != 0 && s.pre[e.task] >= e.idx {
				return
			}
			if nd.asleep&bit != 0 {
				// The task sleeps at the node, and nothing since then depends on its step: it was
				// woken because independent is careful. So this is an execution that should have
				// been cut off, and s comes before it and what follows it.
				d.group = append(d.group, int32(between))
				continue
			}
			initials |= bit
		}
		procs |= 1 << e.task
		d.first[e.task] = e.idx
	}
	// what s knew before its step comes before it in any case, and is known already
	if procs&(1<<s.proc) == 0 && begins(s.pre) && (procs == 0 || begins(d.without(l, first, s))) && (tried&^nd.backtrack&(1<<s.proc) == 0 || d.begun(l, nd, first, s)) {
		initials |= 1 << s.proc
		if initials&tried != 0 {
			return
		}
	}
	switch can := initials & nd.mask; {
	case can&(1<<s.proc) != 0:
		d.plan(l, nd, s.proc, first, s.ev, s.proc)
	case can != 0:
		d.plan(l, nd, lowest(can), first, s.ev, s.proc)
	case initials == 1<<s.proc: // it would have to wait there
	default:
		nd.backtrack |= nd.mask
	}
}

// begun says that the step of s, whose task sleeps at the node before event first, comes before all
// that need not come after first. The step that was explored when the task fell asleep counts and
// not the one that s is here: without first it may be another, as a try that fails where this one
// succeeds, and use other objects. (A task that is tried at the node itself need not be asked: its
// own races tell.)
func (d *dpor) begun(l *log, nd *node, first int, s *second) bool {
	for _, x := range nd.sleep {
		if x.task != s.proc {
			continue
		}
		for between := first + 1; between < s.ev; between++ {
			e := &l.ev[between]
			if !d.follows(l, l.row(int32(between))) && !independent(x.steps, l.acc[e.accLo:e.accHi]) {
				return false
			}
		}
	}
	return true
}

// plan has the node before the event first try task lead, then what else comes before event end and
// does not follow the group, and then a step of task then; -1 is no task.
func (d *dpor) plan(l *log, nd *node, lead, first, end, then int) {
	nd.backtrack |= 1 << lead
	lo := int32(len(nd.seq))
	own := true // lead's first step is the node's own
	add := func(proc int) {
		if proc == lead && own {
			own = false
			return
		}
		nd.seq = append(nd.seq, int8(proc))
	}
	for ev := first + 1; ev < end; ev++ {
		if !d.nodes[ev].fixed && !d.follows(l, l.row(int32(ev))) {
			add(int(l.ev[ev].task))
		}
	}
	if then >= 0 {
		add(then)
	}
	nd.plans = append(nd.plans, plan{int32(lead), lo, int32(len(nd.seq))})
}

// without is the clock of s as it would be without the group, of which first is the first event,
// and what follows the group.
func (d *dpor) without(l *log, first int, s *second) []int32 {
	row := d.row[:l.stride]
	assign(row, d.pre[:l.stride])
	if s.ev < len(l.ev) {
		e := &l.ev[s.ev]
		d.uses = d.uses[:0]
		for _, x := range l.acc[e.accLo:e.accHi] {
			if x.use != stops {
				d.uses = append(d.uses, chained{x.prev, x.use})
			}
		}
	}
	for _, u := range d.uses {
		for access := u.last; access >= 0 && int(l.acc[access].ev) > first; access = l.acc[access].prev {
			x := &l.acc[access]
			if int(x.ev) == s.ev || !depend(x.use, u.use) {
				continue
			}
			if r := l.row(x.ev); !d.follows(l, r) {
				join(row, r)
				if x.use == sched.Writes {
					break
				}
			}
		}
	}
	return row
}

// apart reports whether one of the events does not follow e.
func (d *dpor) apart(l *log, e *event, events []int32) bool {
	for _, x := range events {
		if l.row(x)[e.task] < e.idx {
			return true
		}
	}
	return false
}

// follows reports whether the event with clock row is one of the group or comes after one.
func (d *dpor) follows(l *log, row []int32) bool {
	for _, g := range d.group {
		if e := &l.ev[g]; row[e.task] >= e.idx {
			return true
		}
	}
	return false
}

// blocked races the operations of the given tasks, which have not happened.
func (d *dpor) blocked(w *world, tasks uint64) {
	l := &w.log
	for ; tasks != 0; tasks &= tasks - 1 {
		k := w.tasks[lowest(tasks)]
		op := k.op
		if op.Obj == nil || op.Obj.Run != l.run && (op.Also == nil || op.Also.Run != l.run) {
			continue
		}
		s := second{ev: len(l.ev), proc: k.num, last: k.last, pre: d.before(l, k.last, k.wake)}
		d.uses = d.uses[:0]
		if o := op.Obj; o.Run == l.run {
			d.uses = append(d.uses, chained{l.objs[o.Num].last, op.Use})
		}
		if o := op.Also; o != nil && o.Run == l.run {
			d.uses = append(d.uses, chained{l.objs[o.Num].last, op.AlsoUse})
		}
		s.mode, s.two = op.Mode, op.Also != nil
		for _, u := range d.uses {
			s.use = u.use
			d.chain(l, u.last, &s)
		}
	}
}

func (d *dpor) value(w *world, step, n int) int {
	nd := &d.nodes[step]
	nd.nval = n
	return nd.val
}

func (d *dpor) end(w *world) {
	d.look(&w.log)
	var left uint64
	for i, k := range w.tasks {
		if k.state == ready {
			left |= 1 << i
		}
	}
	d.blocked(w, left)
	d.under = w.underflow()
}

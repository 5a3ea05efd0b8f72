package explore

import (
	"math/bits"

	"btrlab/internal/sched"
)

// Source-DPOR with sleep sets (Abdulla, Aronis, Jonsson, Sagonas: Optimal Dynamic Partial Order Reduction, POPL 2014,
// algorithm 1), depth first and without stored states: every execution starts from the beginning.
//
// Two events race when they depend on each other and nothing orders them in between. For each race the node in front of
// the first event gets a task to try from which the second one can come first, unless one is there already. An operation
// that waits races with an earlier event only if it could have gone on just before that event; one that still waits at
// the end of an execution is raced as if it were the next step, in executions that were cut off, too.
//
// The task to try leads a plan: what stood between the two events and does not depend on the first, then the second. The execution
// follows it, so that those who sleep are woken soon. A second plan with the same first task is not kept; an algorithm with wakeup trees
// keeps it and is never cut off, where this one is in a hundredth of the executions of small programs, and in a tenth with five tasks.
//
// A task whose step has been explored at a node sleeps below it until somebody does a step that depends on it, so
// that no order is explored twice.

// foot is one access of an explored step.
type foot struct {
	obj   int32
	use   sched.Use
	fresh bool // nobody had used the object before
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
	plans     []plan // how to go on behind a task of backtrack
	seq       []int8 // the tasks of the plans
	fixed     bool   // a task's start: no decision
	full      bool   // everything enabled is tried, so that its subtrees can be divided
	branches  int    // full nodes with a choice above
}

// plan is how to go on when a task of backtrack is tried, so that soon the step is done for which it is: the part
// [lo, hi) of the node's seq. Without it the default order might do first what sleeps, and be cut off.
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
	pre   [maxTasks]int32 // clock in front of the step that is looked at
	row   [maxTasks]int32 // and as it would be without the group
	uses  []chained       // of that step
	first [maxTasks]int32 // by task: its first event behind the one that is raced with
	group []int32         // events that what waits must come before
	opens []int32         // those of them that open the gate

	full, part, parts int // levels of full nodes; this is part of parts
	prefix            int // number of the present one
}

// byDPOR divides the upper levels of the tree, where everything is tried, among the parts.
func (s *search) byDPOR() {
	parts := s.cfg.Shards * s.cfg.Jobs
	full := 0
	if parts > 1 {
		full = bits.Len(uint(16 * parts))
	}
	s.jobs(func(j int, w *world) {
		d := w.dpor
		d.s, d.full, d.part, d.parts = s, full, s.cfg.Shard*s.cfg.Jobs+j, parts
		d.n, d.keep, d.prefix, d.way = 0, 0, 0, d.way[:0]
		d.search(w)
		d.s = nil
	})
}

func (d *dpor) search(w *world) {
	for {
		d.seen = max(0, d.keep-1)
		d.n = d.keep
		w.execute(d.s.prog, d)
		mine := d.prefix%d.parts == d.part
		if mine && !d.s.account(w) {
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
		if !nd.fixed && i < len(w.ev) {
			left := nd.backtrack &^ nd.done &^ nd.asleep &^ (1 << nd.task)
			if nd.nval > 0 || left != 0 {
				d.addFoot(w, nd, i)
			}
			if nd.val+1 < nd.nval {
				nd.val++
				d.way = d.way[:0]
				d.keep = d.n
				return true
			}
			nd.done |= 1 << nd.task
			if left != 0 {
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
		d.n--
	}
	return false
}

func (d *dpor) addFoot(w *world, nd *node, i int) {
	e := &w.ev[i]
	for _, a := range w.acc[e.accLo:e.accHi] {
		nd.foot = append(nd.foot, foot{a.obj, a.use, a.obj >= e.known})
	}
}

func (d *dpor) pick(w *world, c *decision) int {
	d.look(w)
	if c.step < d.keep {
		nd := &d.nodes[c.step]
		if nd.mask != c.mask || nd.trail != w.trail {
			w.fail(Violation{Kind: KindMismatch, Named: true, What: "another state in the same schedule"})
			return -1
		}
		return nd.task
	}
	nd := d.push(w)
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

// push adds the node in front of the event that comes next: those sleep that slept or were done in the node above and do
// not depend on the event between.
func (d *dpor) push(w *world) *node {
	if d.n == len(d.nodes) {
		d.nodes = append(d.nodes, node{})
	}
	nd := &d.nodes[d.n]
	nd.trail, nd.mask, nd.backtrack, nd.done, nd.asleep = 0, 0, 0, 0, 0
	nd.task, nd.val, nd.nval, nd.fixed, nd.branches = 0, 0, 0, false, 0
	nd.sleep, nd.foot, nd.plans, nd.seq = nd.sleep[:0], nd.foot[:0], nd.plans[:0], nd.seq[:0]
	if d.n > 0 {
		up := &d.nodes[d.n-1]
		e := &w.ev[d.n-1]
		nd.branches = up.branches
		for _, s := range up.sleep {
			if s.task != int(e.task) && independent(s.steps, w.acc[e.accLo:e.accHi]) {
				nd.sleep = append(nd.sleep, s)
				nd.asleep |= 1 << s.task
			}
		}
	}
	nd.full = nd.branches < d.full
	d.n++
	return nd
}

// independent compares objects by number. Those that are not in use yet get the next number when they are first used, on whatever
// path: a step that was to use a new object is woken by the first one that uses any, which is too early and never too
// late. Objects with a name (World.Name) or used before the explored part have the same number on all paths.
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

// look races the events that have ended since it was last called. Those of starts have got no node yet.
func (d *dpor) look(w *world) {
	for ; d.seen < len(w.ev); d.seen++ {
		if d.seen >= d.n {
			nd := d.push(w)
			e := &w.ev[d.seen]
			nd.fixed, nd.task, nd.mask = true, int(e.task), e.mask
		}
		d.races(w, d.seen)
	}
}

// races finds the events that i races with.
func (d *dpor) races(w *world, i int) {
	e := &w.ev[i]
	var pre []int32
	for a := e.accLo; a < e.accHi; a++ {
		x := &w.acc[a]
		if x.prev < 0 || w.wroteLast(x.prev, e.task) {
			continue
		}
		if pre == nil {
			pre = d.before(w, e.before, e.wake)
		}
		d.chain(w, x.prev, int(e.task), i, e.before, x.use, x.mode, e.accHi-e.accLo > 1, pre)
	}
}

// wroteLast says that access a is a write by the task itself, as a lock is in front of its unlock: nothing before it can race.
func (w *world) wroteLast(a, task int32) bool {
	x := &w.acc[a]
	return x.use == sched.Writes && w.ev[x.ev].task == task
}

// before is the clock of a task in front of a step: what its last one and the wake-up of this one knew.
func (d *dpor) before(w *world, last, wake int32) []int32 {
	pre := d.pre[:w.stride]
	if last >= 0 {
		assign(pre, w.row(last))
	} else {
		clear(pre)
	}
	if wake >= 0 {
		join(pre, w.row(wake))
	}
	return pre
}

// chain walks the accesses of one object, newest first, for those that race with an access of task p in event i. What waits
// may have to come before several events that commute with each other, as all that count up before it: then it races with
// the group of them, at the point where it last could have gone on. A store knows no gate; who stood at a closed one in front of
// it, having done nothing since event last, could not have gone on.
func (d *dpor) chain(w *world, a int32, p, i int, last int32, use sched.Use, mode uint8, two bool, pre []int32) {
	d.group = d.group[:0]
	d.opens = d.opens[:0]
	for ; a >= 0; a = w.acc[a].prev {
		x := &w.acc[a]
		writes := x.use == sched.Writes
		if int(x.ev) == i || !depend(x.use, use) {
			if writes && int(x.ev) != i {
				return
			}
			continue
		}
		o := &w.ev[x.ev]
		if int(o.task) == p || pre[o.task] >= o.idx {
			if writes {
				return
			}
			continue
		}
		if mode == 0 {
			d.group = append(d.group[:0], x.ev)
			d.race(w, int(x.ev), i, p)
			if writes {
				return
			}
			continue
		}
		d.group = append(d.group, x.ev)
		open := x.open&mode != 0
		if x.open == openUnknown && last < x.ev && o.closed&(1<<p) != 0 {
			open = false
		}
		if open {
			d.race(w, int(x.ev), i, p)
		}
		if x.frees {
			d.opens = append(d.opens, x.ev)
		}
		if !writes && !x.frees && (open && len(d.group) > 1 || !open && (two || d.apart(w, o, d.opens))) {
			// Alone: the others of the group may have opened the gate again, or what happened to a second object.
			all := d.group
			d.group = all[len(all)-1:]
			d.race(w, int(x.ev), i, p)
			d.group = all
		}
		if writes && open && x.open != openUnknown {
			return
		}
	}
}

// race makes the node in front of event j try a task from which the step of p, event i, comes before j and the rest of the
// group.
func (d *dpor) race(w *world, j, i, p int) {
	nd := &d.nodes[j]
	if nd.fixed {
		return
	}
	tried := nd.backtrack | nd.asleep
	var procs, initials uint64
	isFirst := func(row []int32) bool {
		for m := procs; m != 0; m &= m - 1 {
			if r := lowest(m); row[r] >= d.first[r] {
				return false
			}
		}
		return true
	}
	for x := j + 1; x < i; x++ {
		ex := &w.ev[x]
		if procs&(1<<ex.task) != 0 {
			continue
		}
		r := w.row(int32(x))
		if d.behind(w, r) {
			continue
		}
		if isFirst(r) {
			initials |= 1 << ex.task
			if initials&tried != 0 {
				return
			}
		}
		procs |= 1 << ex.task
		d.first[ex.task] = ex.idx
	}
	if procs&(1<<p) == 0 && isFirst(d.without(w, j, i)) {
		initials |= 1 << p
		if initials&tried != 0 {
			return
		}
	}
	switch can := initials & nd.mask; {
	case can&(1<<p) != 0:
		d.plan(w, nd, p, j, i, p)
	case can != 0:
		d.plan(w, nd, lowest(can), j, i, p)
	case initials == 1<<p: // it would have to wait there
	default:
		nd.backtrack |= nd.mask
	}
}

// plan has the node in front of event j try task q, and then what else is not behind the group, up to the step of p.
func (d *dpor) plan(w *world, nd *node, q, j, i, p int) {
	nd.backtrack |= 1 << q
	lo := int32(len(nd.seq))
	first := true // q's first step is the node's own
	for x := j + 1; x <= i; x++ {
		t := p
		if x < i {
			t = int(w.ev[x].task)
			if d.nodes[x].fixed || d.behind(w, w.row(int32(x))) {
				continue
			}
		}
		if t == q && first {
			first = false
			continue
		}
		nd.seq = append(nd.seq, int8(t))
	}
	nd.plans = append(nd.plans, plan{int32(q), lo, int32(len(nd.seq))})
}

// without is the clock of the step that is looked at, event i, as it would be without the group, of which j is the first, and what is
// behind the group.
func (d *dpor) without(w *world, j, i int) []int32 {
	row := d.row[:w.stride]
	assign(row, d.pre[:w.stride])
	if i < len(w.ev) {
		e := &w.ev[i]
		d.uses = d.uses[:0]
		for _, x := range w.acc[e.accLo:e.accHi] {
			d.uses = append(d.uses, chained{x.prev, x.use})
		}
	}
	for _, u := range d.uses {
		for a := u.last; a >= 0 && int(w.acc[a].ev) > j; a = w.acc[a].prev {
			x := &w.acc[a]
			if int(x.ev) == i || !depend(x.use, u.use) {
				continue
			}
			if r := w.row(x.ev); !d.behind(w, r) {
				join(row, r)
				if x.use == sched.Writes {
					break
				}
			}
		}
	}
	return row
}

// apart reports whether one of the events is not behind e.
func (d *dpor) apart(w *world, e *event, events []int32) bool {
	for _, x := range events {
		if w.row(x)[e.task] < e.idx {
			return true
		}
	}
	return false
}

// behind reports whether the event with clock row is one of the group or comes behind one.
func (d *dpor) behind(w *world, row []int32) bool {
	for _, g := range d.group {
		if e := &w.ev[g]; row[e.task] >= e.idx {
			return true
		}
	}
	return false
}

// blocked races the operations of the given tasks, which have not happened.
func (d *dpor) blocked(w *world, tasks uint64) {
	for ; tasks != 0; tasks &= tasks - 1 {
		k := w.tasks[lowest(tasks)]
		if k.op.Obj == nil || k.op.Obj.Run != w.run && (k.op.Also == nil || k.op.Also.Run != w.run) {
			continue
		}
		pre := d.before(w, k.last, k.wake)
		d.uses = d.uses[:0]
		if o := k.op.Obj; o.Run == w.run {
			d.uses = append(d.uses, chained{w.objs[o.Num].last, k.op.Use})
		}
		if o := k.op.Also; o != nil && o.Run == w.run {
			d.uses = append(d.uses, chained{w.objs[o.Num].last, k.op.AlsoUse})
		}
		if o := k.op.Obj; o.Run == w.run {
			d.chain(w, w.objs[o.Num].last, k.num, len(w.ev), k.last, k.op.Use, k.op.Mode, k.op.Also != nil, pre)
		}
		if o := k.op.Also; o != nil && o.Run == w.run {
			d.chain(w, w.objs[o.Num].last, k.num, len(w.ev), k.last, k.op.AlsoUse, k.op.Mode, true, pre)
		}
	}
}

func (d *dpor) value(w *world, step, n int) int {
	nd := &d.nodes[step]
	nd.nval = n
	return nd.val
}

func (d *dpor) end(w *world) {
	d.look(w)
	var left uint64
	for i, k := range w.tasks {
		if k.state == ready {
			left |= 1 << i
		}
	}
	d.blocked(w, left)
}

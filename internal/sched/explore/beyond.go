package explore

import (
	"slices"

	"btrlab/internal/sched"
)

// What DPOR looks at beyond the executions that it makes: what daemons would do after the end, and
// counters that another order of the same events takes below zero.
//
// An execution ends with the last task that must end, in the midst of what daemons do. How many of
// their steps come before the end is part of the order, because the oracles see what those did. So
// the end is an event that depends on every step of a daemon. It is no step: where it can happen it
// happens. Therefore DPOR goes on there for a while, to see what daemons would do next:
//
//	load  end             a complete execution
//	load  y=1  end        stands for y=1, load: made again in that order, and judged
//	load  y=1  x=1        the load comes before x=1, so no execution ends like this. But the two
//	                      race, and the node before the load gets the daemon to try:
//	y=1   x=1  load  end
//
// Steps after the end belong to a complete execution if an event that ended a task which must end
// can come last: no event comes after it. Moved to the end, it makes the legal order of the same
// events. When no such event is left, no execution has more of these steps, and nothing beyond
// needs to be seen.
//
// Backwards the end races as well: an execution in which a daemon's step comes before the end
// without need has one to go with it that ends without the step (endings).
//
// Two changes of a counter commute, but the one that takes it below zero panics. No order of the
// events of an execution does so if each decrement can be given an increment of its own that comes
// before it in every order. Otherwise some decrements together have too few increments before them
// (Hall's theorem): with what comes before them they can be done first, and this execution is made
// and judged as well.

// turn is one decision of an execution that is made again in another order.
type turn struct {
	seed uint64 // of the task that goes on; alike in every order
	val  uint8  // of its choice
}

// line is a driver that takes the given turns, one after the other.
type line struct {
	turns []turn
	pos   int
	lost  bool    // a turn was not possible, or not the last one
	under []int32 // see underflow
}

func (l *line) pick(w *world, d *decision) int {
	if l.pos < len(l.turns) {
		seed := l.turns[l.pos].seed
		l.pos++
		for m := d.mask; m != 0; m &= m - 1 {
			if w.tasks[lowest(m)].seed == seed {
				return lowest(m)
			}
		}
	}
	l.lost = true
	return -1
}

func (l *line) value(*world, int, int) int { return int(l.turns[l.pos-1].val) }

func (l *line) end(w *world) { l.under = w.underflow() }

// turnsOf returns the turns of the given events. The start of a task is no decision.
func (w *world) turnsOf(events []int32) []turn {
	var l []turn
	for _, i := range events {
		if e := &w.ev[i]; e.kind != stepStart {
			l = append(l, turn{w.tasks[e.task].seed, e.val})
		}
	}
	return l
}

// account counts the execution that has been made in w, and makes and counts those that follow
// from it. It reports whether the search goes on.
func (d *dpor) account(w *world) bool {
	if d.over < 0 || len(w.ev) == d.over || w.viol != nil && w.viol.Kind == KindMismatch {
		return d.judge(w, d.under)
	}
	var turns []turn
	if d.last(&w.log); len(d.lasts) > 0 {
		events := make([]int32, 0, len(w.ev))
		for i := range int32(len(w.ev)) {
			if i != d.lasts[0] {
				events = append(events, i)
			}
		}
		turns = w.turnsOf(append(events, d.lasts[0]))
	}
	w.viol = nil // the execution in the legal order has it as well
	return d.count(w) && (turns == nil || d.perform(turns, false))
}

// count counts an execution, and tells how far the search is.
func (d *dpor) count(w *world) bool {
	if !d.s.account(w) {
		return false
	}
	if d.s.due() {
		d.s.estimates(d.part%d.s.cfg.Jobs, d.whole())
		d.s.tell()
	}
	return true
}

// judge counts a complete execution, and makes one in which the events under come first.
func (d *dpor) judge(w *world, under []int32) bool {
	var turns []turn
	if under != nil && w.viol == nil && !w.pruned {
		turns = w.turnsOf(under)
	}
	return d.count(w) && (turns == nil || d.perform(turns, true))
}

// perform makes an execution with the given turns and counts it; panics says that it is to end by a
// violation. If it cannot be made, tasks share something that no object stands for, and the search
// does not say that it has tried everything.
func (d *dpor) perform(turns []turn, panics bool) bool {
	w := d.s.world()
	defer d.s.retire(w)
	l := &line{turns: turns}
	w.execute(d.s.prog, l)
	if l.lost || panics && w.viol == nil {
		d.s.leave()
		return !d.s.stop.Load()
	}
	d.runs++
	return d.judge(w, l.under)
}

// outlive ends an execution all of whose tasks that must end have ended, unless DPOR wants to see
// more of the daemons. last is the task that ran last.
func (w *world) outlive(last *task) {
	if d, ok := w.drv.(*dpor); ok && w.viol == nil {
		if last != nil {
			last.fresh = false
		}
		mask, closed, first := w.runnable()
		if first != nil {
			mask = 1 << first.num
		}
		if n := d.outlive(w, mask); n >= 0 {
			w.pruned = true
			if first != nil {
				w.arrive(first, nil)
				return
			}
			k := w.tasks[n]
			if k.nval > 0 {
				k.val = d.value(w, len(w.ev), k.nval)
			}
			w.dec = decision{step: len(w.ev), last: -1, def: n, mask: mask, closed: closed}
			w.begin(k, &w.dec)
			w.cur = k
			return
		}
	}
	w.drv.end(w)
	w.cur = nil
}

// outlive is asked where an execution can end. It returns which of mask goes on, or -1 to end.
func (d *dpor) outlive(w *world, mask uint64) int {
	l := &w.log
	d.look(l)
	step := len(l.ev)
	if d.over < 0 {
		d.over, d.lasts, d.lastSeen, d.way = step, d.lasts[:0], 0, d.way[:0]
		for _, f := range w.finals {
			// a start belongs to the step that made the task
			for f >= 0 && l.ev[f].kind == stepStart {
				f = l.ev[f].wake
			}
			if f >= 0 && f >= w.moved() { // the clock waited for it
				d.lasts = append(d.lasts, f)
			}
		}
	}
	d.last(l)
	if step < d.keep {
		nd := &d.nodes[step]
		if nd.mask != mask || nd.trail != w.trail {
			w.fail(Violation{Kind: KindMismatch, Named: true, What: "another state in the same schedule"})
			return -1
		}
		return nd.task
	}
	if step == d.over || len(d.lasts) > 0 {
		d.endings(w)
	}
	if mask == 0 || len(d.lasts) == 0 || step >= w.cfg.MaxSteps {
		return -1
	}
	nd := d.push(l)
	nd.mask, nd.trail, nd.backtrack, nd.full, nd.ends = mask, w.trail, mask, false, true
	return -1
}

// last drops from lasts the events that another one comes after, but for starts, as nothingAfter.
func (d *dpor) last(l *log) {
	keep := d.lasts[:0]
	for _, f := range d.lasts {
		free := true
		for i := max(f+1, d.lastSeen); free && i < int32(len(l.ev)); i++ {
			free = l.ev[i].kind == stepStart || !l.comesAfter(i, f)
		}
		if free {
			keep = append(keep, f)
		}
	}
	d.lasts, d.lastSeen = keep, int32(len(l.ev))
}

// endings races the end of an execution with the steps of daemons that nothing comes after.
func (d *dpor) endings(w *world) {
	l := &w.log
	for i := range d.over {
		if !d.nodes[i].fixed && !w.tasks[l.ev[i].task].user && d.nothingAfter(l, int32(i)) {
			d.ending(l, i)
		}
	}
}

// nothingAfter says that no event comes after event f but starts of tasks, which are no decisions.
func (d *dpor) nothingAfter(l *log, f int32) bool {
	for i := f + 1; i < int32(len(l.ev)); i++ {
		if l.ev[i].kind != stepStart && l.comesAfter(i, f) {
			return false
		}
	}
	return true
}

// ending makes the node before the event first, which nothing comes after, try a task from which
// the execution ends without that event. It does what race does for a second event that comes
// after all others.
func (d *dpor) ending(l *log, first int) {
	nd := &d.nodes[first]
	var procs, initials uint64
	for between := int32(first) + 1; between < int32(len(l.ev)); between++ {
		e := &l.ev[between]
		if procs&(1<<e.task) != 0 || l.comesAfter(between, int32(first)) {
			continue
		}
		begins, row := true, l.row(between)
		for m := procs; m != 0 && begins; m &= m - 1 {
			begins = row[lowest(m)] < d.first[lowest(m)]
		}
		if begins {
			initials |= 1 << e.task
		}
		procs |= 1 << e.task
		d.first[e.task] = e.idx
	}
	can := initials & nd.mask
	if initials&(nd.backtrack|nd.asleep) != 0 || can == 0 {
		return
	}
	d.group = append(d.group[:0], int32(first))
	d.plan(l, nd, lowest(can), first, len(l.ev), -1)
}

// underflow returns events that can come before all others and take a counter below zero, in an
// order in which they can be done; nil if there are none.
func (w *world) underflow() []int32 {
	for n := range w.objs {
		if w.objs[n].downs {
			if under := w.below(int32(n)); under != nil {
				return under
			}
		}
	}
	return nil
}

// Counter is an object whose increments and decrements commute, with its count now.
type Counter interface {
	Load() int64
}

// below is underflow for the counter that is object n. It matches every unit that is taken with one
// that was added before it, by augmenting paths.
func (w *world) below(n int32) []int32 {
	l := &w.log
	c, ok := l.objs[n].id.(Counter)
	if !ok {
		return nil
	}
	var takes, adds []int32 // the event of each unit; that of a unit which was there at first is -1
	atFirst := c.Load()
	for a := l.objs[n].last; a >= 0; a = l.acc[a].prev {
		x := &l.acc[a]
		if x.use != sched.Adds {
			continue
		}
		// Inside a step the units that it lacks come first.
		for range -x.low {
			takes = append(takes, x.ev)
		}
		for range x.net - x.low {
			adds = append(adds, x.ev)
		}
		atFirst -= int64(x.net)
	}
	for range atFirst {
		adds = append(adds, -1)
	}
	m := matching{takes: takes, adds: adds, taker: make([]int, len(adds)), tried: make([]bool, len(adds)),
		before: func(add, take int32) bool { return add < 0 || add != take && w.follows(take, add) }}
	for t := range takes {
		clear(m.tried)
		if m.give(t) {
			continue
		}
		few := []int32{takes[t]} // these have too few units before them
		for a, tried := range m.tried {
			if tried {
				few = append(few, takes[m.taker[a]-1])
			}
		}
		return w.upTo(few)
	}
	return nil
}

// matching gives units that are taken, by event, units that were added before.
type matching struct {
	takes, adds []int32
	taker       []int // of each unit added: one more than the place in takes, 0 for none
	tried       []bool
	before      func(add, take int32) bool
}

// give finds takes[t] a unit, and others for those that have to give theirs away.
func (m *matching) give(t int) bool {
	for a := range m.adds {
		if m.tried[a] || !m.before(m.adds[a], m.takes[t]) {
			continue
		}
		m.tried[a] = true
		if m.taker[a] == 0 || m.give(m.taker[a]-1) {
			m.taker[a] = t + 1
			return true
		}
	}
	return false
}

// follows is comesAfter, and knows that the clock moves only when no task can run: what comes after
// that comes after all that came before.
func (w *world) follows(i, j int32) bool {
	return w.comesAfter(i, j) || slices.ContainsFunc(w.moves, func(m int32) bool { return j < m && m <= i })
}

// upTo returns the given events and all that come before one of them.
func (w *world) upTo(events []int32) []int32 {
	var all []int32
	for i := range int32(len(w.ev)) {
		for _, f := range events {
			if w.follows(f, i) {
				all = append(all, i)
				break
			}
		}
	}
	return all
}

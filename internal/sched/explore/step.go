package explore

import (
	"fmt"
	"math/bits"
	"slices"

	"btrlab/internal/sched"
)

func (k *task) enabled() bool {
	return k.state == ready && (k.op.Mode == 0 || !k.op.Gate.Shuts(k.op.Mode))
}

// decide picks who goes on after last and begins its step. It leaves w.cur nil when the execution
// is over.
func (w *world) decide(last *task) {
	switch {
	case w.viol != nil:
		w.cur = nil
		return
	case w.phase != exploring:
		w.decideQuiet(last)
		return
	case w.users == 0 && !w.cfg.Settle:
		w.outlive(last)
		return
	}
	if last != nil && last.fresh { // it only came to its first operation
		last.fresh = false
		last = w.prior
	}
	for {
		mask, closed, first := w.runnable()
		if first != nil {
			w.arrive(first, last)
			return
		}
		if closed != 0 && w.cfg.checks(CheckNowait) {
			if w.checkNowait(closed); w.viol != nil {
				w.cur = nil
				return
			}
		}
		if mask != 0 {
			w.choose(last, mask, closed)
			return
		}
		if w.users == 0 || w.idle >= idleMax || !w.wakeSleepers() {
			w.stall()
			return
		}
		w.idle++
	}
}

// walkOn is decide for a random walk of which nothing is kept but the schedule: it picks the same
// task by the same number, in one function, because most of a search by chance is in here. Where
// there is more to do than to pick, it does nothing and returns false.
func (w *world) walkOn(last *task) bool {
	if w.viol != nil || w.users == 0 {
		return false
	}
	var mask uint64
	for i, k := range w.tasks {
		if k.state != ready {
			continue
		}
		op := k.op
		if op.Mode != 0 && op.Gate.Shuts(op.Mode) {
			if k.t.Nowait() {
				return false
			}
			continue
		}
		if k.opKind == stepStart || k.yielded {
			return false
		}
		mask |= 1 << i
	}
	step := len(w.ev)
	if mask == 0 || step >= w.cfg.MaxSteps || step == cap(w.ev) {
		return false
	}
	if last.fresh { // it only came to its first operation
		last.fresh = false
		last = w.prior
	}
	pick, was := lowest(mask), -1
	def := pick
	if last != nil {
		if was = last.num; mask&(1<<was) != 0 {
			def = was
		}
	}
	if rest := mask & (mask - 1); rest != 0 {
		for n := w.walk.intN(bits.OnesCount64(mask)); n > 0; n-- {
			pick = lowest(rest)
			rest &= rest - 1
		}
	}
	k := w.tasks[pick]
	k.n++
	w.ev = w.ev[:step+1]
	e := &w.ev[step]
	// a literal takes three times as long
	e.task, e.obj, e.idx, e.before, e.wake, e.mask, e.closed = int32(pick), 0, k.n, k.last, k.wake, mask, 0
	e.kind, e.class, e.val, e.nval, e.def, e.last = k.opKind, k.op.Class, 0, 0, int8(def), int8(was)
	if k.nval > 0 {
		k.val = w.walk.intN(k.nval)
		e.val, e.nval = uint8(k.val), uint8(k.nval)
	}
	k.last, k.wake = int32(step), -1
	w.curEv, w.curK, w.cur = int32(step), k, k
	if k.user {
		w.idle = 0
	}
	return true
}

// runnable finds the tasks that can go on, those that stand at a closed gate, and the first task
// that has not begun. Tasks that yield can go on when no other can.
func (w *world) runnable() (mask, closed uint64, first *task) {
	var yields uint64
	for i, k := range w.tasks {
		switch {
		case k.state != ready:
		case k.opKind == stepStart:
			return 0, 0, k
		case k.op.Mode != 0 && k.op.Gate.Shuts(k.op.Mode):
			closed |= 1 << i
		case k.yielded:
			yields |= 1 << i
		default:
			mask |= 1 << i
		}
	}
	if mask == 0 {
		mask = yields
	}
	return mask, closed, nil
}

// arrive lets a task run to its first operation before anything is decided: what it does till then
// no other task sees. The decision goes on with last afterwards.
func (w *world) arrive(k, last *task) {
	k.fresh, w.prior = true, last
	w.dec = decision{last: -1, def: k.num, mask: 1 << k.num}
	w.begin(k, &w.dec)
	k.opKind = stepNone
	w.cur = k
}

// stall ends an execution in which no task can go on.
func (w *world) stall() {
	w.cur = nil
	w.drv.end(w)
	if w.users > 0 && w.viol == nil {
		w.deadlock()
	}
}

// choose asks the invariants, and then the driver which task of mask goes on. closed are the tasks
// at a closed gate.
func (w *world) choose(last *task, mask, closed uint64) {
	for _, f := range w.invariant {
		if err := f(); err != nil {
			w.fail(Violation{Kind: KindOracle}.saying(err.Error()))
			return
		}
	}
	step := len(w.ev)
	if step >= w.cfg.MaxSteps {
		w.drv.end(w)
		w.fail(Violation{Kind: KindLivelock, Named: true, What: fmt.Sprintf("%d steps, and %s", step, w.unfinished())})
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
	d := &w.dec
	d.step, d.last, d.def, d.mask, d.closed = step, lastNum, def, mask, closed
	pick := w.drv.pick(w, d)
	switch {
	case pick < 0:
		w.cur = nil
		w.pruned = w.pruned || w.viol == nil
		return
	case pick >= len(w.tasks) || mask&(1<<pick) == 0:
		w.fail(Violation{Kind: KindMismatch, Lead: fmt.Sprintf("step %d", step), What: w.whyNot(pick, mask)})
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
			w.nowait(k, k.op.Class, k.t.Step())
		}
	}
}

// decideQuiet is the order outside of the explored part: go on while you can, then the program,
// then the oldest.
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
		if !w.wakeSleepers() {
			w.fail(Violation{Kind: KindDeadlock, Lead: "outside of the explored part"}.saying(w.stuck()))
			return
		}
	}
	k := w.cur
	k.wake = -1
}

// begin records the step that k is about to do.
func (w *world) begin(k *task, d *decision) {
	if w.tracing {
		w.traceStep(k)
	}
	i := int32(len(w.ev))
	if len(w.ev) == cap(w.ev) {
		w.ev = slices.Grow(w.ev, max(16, len(w.ev)))
	}
	w.ev = w.ev[:i+1]
	e := &w.ev[i]
	k.n++
	e.task, e.obj, e.idx = int32(k.num), 0, k.n
	e.accLo, e.accHi, e.known = int32(len(w.acc)), int32(len(w.acc)), int32(len(w.objs))
	e.before, e.wake = k.last, k.wake
	e.mask, e.closed = d.mask, d.closed
	kind, class := k.opKind, k.op.Class
	e.kind, e.class, e.val, e.nval, e.def, e.last = kind, class, uint8(k.val), uint8(k.nval), int8(d.def), int8(d.last)
	if w.trails {
		w.follow(d.mask ^ uint64(kind)<<48 ^ uint64(class)<<40 ^ uint64(k.val)<<32 ^ uint64(k.num)<<56)
	}
	if w.chains {
		w.inherit(e, k)
	}
	if w.observes {
		k.obs = sched.Mix(k.obs, uint64(kind)<<8|uint64(class))
		for _, f := range w.data { // the step may read what the program hashes
			k.obs = sched.Mix(k.obs, f())
		}
	}
	k.last, k.wake = i, -1
	w.curEv, w.curK = i, k
	if k.user {
		w.idle = 0
	}
	if op := k.op; op.Obj != nil && !w.lean {
		open := uint8(openUnknown)
		if op.Gate != nil && w.chains {
			open = op.Gate.Ways()
		}
		n := w.numberOf(op.Obj, op.ID, op.Class)
		e.obj = n + 1
		w.touch(n, op.Use, open, op.Mode, op.Frees)
		if op.Also != nil {
			w.touch(w.numberOf(op.Also, op.ID, op.Class), op.AlsoUse, open, op.Mode, false)
		}
		if op.Kind == sched.PointWait || op.Kind == sched.PointWake {
			w.noteWait(k, op, n)
		}
	}
	// a yield lets one step come first; where no other task can do one it has had its turn as well
	if w.yields {
		for _, o := range w.tasks {
			o.yielded = false
		}
		w.yields = false
	}
}

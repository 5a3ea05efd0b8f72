package explore

import (
	"fmt"
	"math/bits"
	"slices"

	"btrlab/internal/sched"
)

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
		if w.users > 0 && w.idle < idleMax && w.wakeSleeper() {
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
	if pick < 0 {
		w.cur = nil
		if w.viol == nil {
			w.pruned = true
		}
		return
	}
	if pick >= len(w.tasks) || mask&(1<<pick) == 0 {
		w.fail(Violation{Kind: KindMismatch, Lead: fmt.Sprintf("step %d", step), What: fmt.Sprintf("task %d cannot run, enabled are %v%s", pick, bitList(mask), w.whereIs(pick))})
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
			open = op.Gate.Open()
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
	if w.yields { // a step by one lets those go on that yielded to it
		for _, o := range w.tasks {
			if o != k {
				o.yielded = false
			}
		}
		w.yields = k.yielded
	}
}

// inherit gives an event, which is the last one, the clock and the hash of what led k to it.
func (w *world) inherit(e *event, k *task) {
	if w.clocks {
		lo, hi := len(w.clk), len(w.clk)+w.stride
		if hi > cap(w.clk) {
			w.clk = slices.Grow(w.clk, max(16*w.stride, hi))
		}
		w.clk = w.clk[:hi]
		row := w.clk[lo:hi]
		if e.before >= 0 {
			assign(row, w.row(e.before))
		} else {
			clear(row)
		}
		if e.wake >= 0 {
			w.joinUpTo(row, e.wake, k.wakeEpoch)
		}
		row[k.num] = k.n
	}
	if w.hashes {
		h := k.seed
		if e.before >= 0 {
			h = w.ev[e.before].hash
		}
		h = sched.Mix(h, uint64(e.kind)<<16|uint64(e.class)<<8|uint64(e.val))
		if e.wake >= 0 {
			h = sched.Mix(h, w.ev[e.wake].hash)
		}
		e.hash = h
	}
}

// follow keeps a hash of what happens in the order in which it does, for telling two executions by one schedule apart.
func (w *world) follow(x uint64) { w.trail = bits.RotateLeft64((w.trail^x)*0x9e3779b97f4a7c15, 29) }

func (w *world) row(ev int32) []int32 {
	lo := int(ev) * w.stride
	return w.clk[lo : lo+w.stride]
}

func assign(dst, src []int32) {
	if len(dst) == smallTasks && len(src) == smallTasks {
		d, s := (*[smallTasks]int32)(dst), (*[smallTasks]int32)(src)
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
		return
	}
	copy(dst, src)
}

// joinUpTo joins into row the clock of event ev, and of its own task what came up to epoch.
func (w *world) joinUpTo(row []int32, ev, epoch int32) {
	join(row, w.row(ev))
	t := w.ev[ev].task
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

// numberOf is the number of an object in this execution.
func (w *world) numberOf(o *sched.Obj, id any, class sched.ClassID) int32 {
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
	if w.trails {
		w.follow(uint64(n)<<8 | uint64(use))
	}
	if !w.chains {
		return
	}
	i := w.curEv
	o := &w.objs[n]
	e := &w.ev[i]
	if o.last >= 0 {
		if x := &w.acc[o.last]; x.ev == i && (x.use == sched.Writes || x.use == use) {
			x.epoch, w.curK.dataAcc = w.curK.n, -1
			return
		}
	}
	sum := uint64(use)
	if use == sched.Reads && !o.adds {
		if o.lastW >= 0 {
			if x := &w.acc[o.lastW]; x.ev != i {
				sum += w.behind(i, x.ev, x.epoch)
			}
		}
	} else {
		for a := o.last; a >= 0; a = w.acc[a].prev {
			x := &w.acc[a]
			if x.ev != i && depend(x.use, use) {
				sum += w.behind(i, x.ev, x.epoch)
			}
			if x.use == sched.Writes {
				break
			}
		}
	}
	if w.hashes {
		e.hash = sched.Mix(e.hash, sum)
	}
	a := int32(len(w.acc))
	if len(w.acc) == cap(w.acc) {
		w.acc = slices.Grow(w.acc, max(16, len(w.acc)))
	}
	w.acc = w.acc[:a+1]
	x := &w.acc[a]
	x.obj, x.ev, x.prev, x.epoch, x.open, x.mode, x.use, x.frees = n, i, o.last, w.curK.n, open, mode, use, frees
	e.accHi = a + 1
	o.last = a
	switch use {
	case sched.Writes:
		o.lastW = a
	case sched.Adds:
		o.adds = true
	}
}

// behind puts event i behind event j, and returns the hash of j.
func (w *world) behind(i, j, epoch int32) uint64 {
	if w.clocks && w.ev[i].task != w.ev[j].task { // behind its own it is already
		w.joinUpTo(w.row(i), j, epoch)
	}
	if !w.hashes {
		return 0
	}
	return w.ev[j].hash
}

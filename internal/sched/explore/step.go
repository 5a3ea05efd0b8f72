package explore

import (
	"fmt"
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
		accLo: int32(len(w.acc)), accHi: int32(len(w.acc)), hash: h, known: int32(len(w.objs)), before: before, wake: wake, val: uint8(k.val), nval: uint8(k.nval), def: int8(d.def), last: int8(d.last),
	})
	w.curEv, w.curK = i, k
	k.last = i
	k.obs = sched.Mix(k.obs, uint64(kind)<<8|uint64(k.op.Class))
	if w.cfg.Method == State {
		for _, f := range w.data { // the step may read what the program hashes
			k.obs = sched.Mix(k.obs, f())
		}
	}
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
		w.noteWait(k, k.op, n)
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

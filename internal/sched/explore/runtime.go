package explore

// The runtime that the tasks call into: world as a sched.Stepper.
//
// One step of a task, as it meets the functions of this package:
//
//	Enter      the task stands before an operation; it is in t.Next (stand)
//	  decide     which task goes on? the driver picks one of those whose gates are open   (step.go)
//	    begin      its event enters the log, with the object of its operation             (step.go)
//	      touch      and comes after the events that used the object before                (log.go)
//	  resume     that task goes on, here or up the chain of coroutines                     (coro.go)
//	-- the picked task returns from its own Enter --
//	Touch      further objects that the operation uses belong to the same step
//	Data       plain data that it reads or writes is checked for races                    (races.go)
//	Unpark     tasks that it wakes can be picked from the next decision on
//	Enter      the next operation
//
// Operations of classes at which the search does not switch (Config.Switch) are no steps: Enter
// adds their objects to the step of the task and returns, unless the task must wait. Park and Sleep
// end a step as Enter does; the step after them is the runtime's own, of kind resume or awake.

import (
	"fmt"
	"time"

	"btrlab/internal/sched"
)

var _ sched.Stepper = (*world)(nil)

func (w *world) of(t *sched.Task) *task {
	if int(t.Slot) >= w.nAll || w.all[t.Slot].t != t {
		panic(fmt.Sprintf("explore: task %v is not of this run", t))
	}
	return w.all[t.Slot]
}

// Enter is a scheduling point.
func (w *world) Enter(t *sched.Task) {
	k := w.stand(t)
	if k == nil {
		return
	}
	k.hasStack()
	for n := w.cur; n != k; n = w.cur { // in this frame
		if n != nil && !n.co.active {
			n.co.resume()
		} else if !k.co.yield(struct{}{}) {
			panic(abort{})
		}
	}
	if w.aborting {
		panic(abort{})
	}
	if w.atStep != nil {
		w.stopHere()
	}
	k.op.Mode, k.opKind = 0, stepNone // the rest of op is old, and cheaper to leave
}

// stand decides who goes on where t stands before its next operation, and returns the task that
// stands there. It returns nil where the present step goes on.
func (w *world) stand(t *sched.Task) *task {
	if w.aborting {
		panic(abort{})
	}
	k := w.cur
	if k == nil {
		k = w.of(t)
	} else if k.t != t {
		// the task that runs acts in the name of another one, as a device's Close does
		w.of(t)
		*k.op = t.Next
		t = k.t
	}
	op := k.op
	if op.Obj == nil {
		w.plain(k, op)
	}
	if op.Kind == sched.PointLock && len(t.HeldLocks) > 1 && w.cfg.checks(CheckLockOrder) {
		w.lockOrder(k, op)
	}
	if op.Kind == sched.PointLock && t.Nowait() && w.phase == exploring && !sched.ClassByID(op.Class).Leaf {
		// whether it waits is judged, and DPOR takes a lock that was waited for and one that was
		// free for the same order
		w.fair = true
	}
	if w.walk != nil && k != w.root {
		k.opKind = StepKind(op.Kind)
		if !w.walkOn(k) {
			w.decide(k)
		}
		return k
	}
	if w.phase != exploring || k == w.root {
		w.enterQuiet(k)
		return nil
	}
	if !w.cfg.switches.Has(op.Class) && (op.Kind < sched.PointYield || op.Kind == sched.PointLoad || op.Kind == sched.PointArrive) {
		open := uint8(openUnknown)
		if op.Gate != nil {
			open = op.Gate.Ways()
		}
		if op.Mode == 0 || open&op.Mode != 0 {
			// Objects get their numbers when they are used, never before: DPOR relies on it
			// (independent). The step needs no way through the gate: where that is closed the step
			// begins nevertheless, and stops here. So what opens the gate races with it.
			if op.Obj != nil && !w.cfg.commutes.Has(op.Class) && !w.lean {
				n := w.numberOf(op.Obj, op.ID, op.Class)
				w.noteWait(k, op, n)
				w.touch(n, op.Use, open, 0, op.Frees)
				if op.Also != nil {
					w.touch(w.numberOf(op.Also, op.ID, op.Class), op.AlsoUse, open, 0, false)
				}
			}
			op.Mode = 0
			return nil
		}
		w.stopsAt(op)
	}
	k.opKind = StepKind(op.Kind)
	if w.tracing && k.machine == nil {
		k.keepStack(4)
	}
	w.decide(k)
	return k
}

// stopsAt notes that the present step ends at the closed gate of an operation that is no scheduling
// point. Where the gate is open the step goes on.
func (w *world) stopsAt(op *sched.Op) {
	if w.curEv < 0 || op.Obj == nil || !w.chains || w.cfg.commutes.Has(op.Class) {
		return
	}
	w.stop(w.numberOf(op.Obj, op.ID, op.Class))
	if op.Also != nil {
		w.stop(w.numberOf(op.Also, op.ID, op.Class))
	}
}

// noteWait keeps what a report of a lost wake-up needs.
func (w *world) noteWait(k *task, op *sched.Op, n int32) {
	switch op.Kind {
	case sched.PointWait:
		k.waitObj, k.waitClass = n+1, op.Class
	case sched.PointWake:
		w.objs[n].wakes++
		w.objs[n].lastWake = w.curEv
	}
}

func (w *world) enterQuiet(k *task) {
	op := k.op
	if op.Obj != nil && !w.lean {
		w.numberOf(op.Obj, op.ID, op.Class)
	}
	if op.Mode != 0 && op.Gate.Shuts(op.Mode) {
		w.decide(k)
		w.wait(k)
	}
	op.Mode = 0
}

// Touch adds an object to the present step.
func (w *world) Touch(t *sched.Task, o *sched.Obj, use sched.Use) {
	if w.aborting || w.lean {
		return
	}
	n := w.numberOf(o, nil, 0)
	if w.phase == exploring && w.curEv >= 0 {
		w.touch(n, use, openUnknown, 0, false)
	}
}

// Checked says whether lockdep watches. Without the checks that it makes, its lists are for reports
// alone.
func (w *world) Checked() bool {
	return !w.lean || w.cfg.checks(CheckLockOrder) || w.cfg.checks(CheckLeftovers)
}

// Aborting says that tasks only unwind.
func (w *world) Aborting() bool { return w.aborting }

// kept is state that is in no object, and the name that it has in every execution.
type kept struct {
	of  interface{ Hash() uint64 }
	sig uint64
}

// Keep remembers x for the hash of the state.
func (w *world) Keep(o *sched.Obj, x interface{ Hash() uint64 }) {
	if !w.observes || w.aborting {
		return
	}
	if o.Run != w.run {
		o.Run, o.Num = w.run, int32(len(w.keeps))
		w.keeps = append(w.keeps, kept{of: x})
		if w.phase == setup { // its number is the same in every execution
			w.keeps[o.Num].sig = uint64(len(w.keeps))
		}
	}
	if w.phase == exploring && w.curEv >= 0 {
		w.keeps[o.Num].sig += w.curK.use()
	}
}

// See folds what t read into its observation.
func (w *world) See(t *sched.Task, hash uint64) {
	if w.observes && w.phase == exploring && !w.aborting {
		k := w.of(t)
		k.obs = sched.Mix(k.obs, hash)
	}
}

// plain is Enter for an operation that has no Obj of its own: a yield, a device's.
func (w *world) plain(k *task, op *sched.Op) {
	if op.Kind == sched.PointYield && w.phase == exploring {
		k.yielded, w.yields, w.fair = true, true, true
	}
	if op.ID != nil {
		op.Obj = w.objOf(op.ID)
	}
}

// Go starts a task for another one. What the program itself or a daemon starts is a daemon, and
// what says so (Serve).
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
			w.wakes(k)
		}
		// Tasks started in mid-run get their numbers in the order in which that happens. The seed
		// is the same in every schedule: the n-th child of its parent.
		p.kids++
		k.seed = sched.Mix(p.seed, uint64(p.kids))
		w.enlist(k)
	}
}

// Park takes t out of the enabled tasks until Unpark.
func (w *world) Park(t *sched.Task, class sched.ClassID) {
	k := w.of(t)
	if w.aborting {
		panic(abort{})
	}
	k.hasStack()
	if k.token {
		k.token, k.parkOn = false, nil
		if k.tokenEv >= 0 && w.phase == exploring && w.curEv >= 0 && w.curK == k {
			if h := w.after(w.curEv, k.tokenEv, k.tokenEpoch); w.hashes {
				w.ev[w.curEv].hash = sched.Mix(w.ev[w.curEv].hash, h)
			}
		}
		return
	}
	k.parkObj, k.parkClass, k.parkStep = 0, class, len(w.ev)
	if k.waitClass == class {
		k.parkObj = k.waitObj
	}
	*k.op, k.opKind = sched.Op{Class: class}, stepResume
	k.state = parked
	if w.tracing {
		k.keepStack(3)
	}
	if k.t.Nowait() && w.cfg.checks(CheckNowait) {
		w.nowait(k, class, k.t.Step())
	}
	w.decide(k)
	w.wait(k)
	if w.atStep != nil {
		w.stopHere()
	}
	*k.op, k.parkOn = sched.Op{}, nil
}

// Unpark enables t, or lets its next Park go on.
func (w *world) Unpark(t *sched.Task) {
	if w.aborting {
		return
	}
	switch k := w.of(t); {
	case k.state == parked:
		k.state = ready
		w.wakes(k)
	case k.token:
		panic(fmt.Sprintf("explore: second Unpark of task %v", t))
	default:
		// It orders the Park that it lets go on, and not what the task does before that.
		k.token, k.tokenEv = true, w.curEv
		if w.curEv >= 0 {
			k.tokenEpoch, w.curK.dataAcc = w.curK.n, -1
		}
	}
}

// wakes orders k's next step after what has been done of the present one.
func (w *world) wakes(k *task) {
	if k.wake = w.curEv; k.wake >= 0 {
		k.wakeEpoch, w.curK.dataAcc = w.curK.n, -1
	}
}

// Now is the run's clock, which a task that asks for it then knows.
func (w *world) Now() int64 {
	if w.observes && w.phase == exploring && w.cur != nil {
		w.cur.obs = sched.Mix(w.cur.obs, uint64(w.clock))
	}
	return w.clock
}

// Sleep passes d of the run's time: others go first.
func (w *world) Sleep(t *sched.Task, d time.Duration) {
	k := w.of(t)
	if w.aborting {
		panic(abort{})
	}
	k.hasStack()
	*k.op, k.opKind = sched.Op{}, stepAwake
	k.state, k.due = sleeping, w.clock+int64(d)
	w.decide(k)
	w.wait(k)
}

// Charge passes no time: this runtime has no CPUs.
func (w *world) Charge(*sched.Task, time.Duration) {}

// wakeSleepers moves the clock to the time at which the first sleeper is due, and makes all ready
// that are due by then: which of them goes on first is a decision.
func (w *world) wakeSleepers() bool {
	var first *task
	for _, k := range w.all[:w.nAll] {
		if k.state == sleeping && (first == nil || k.due < first.due) {
			first = k
		}
	}
	if first == nil {
		return false
	}
	w.clock, w.moves = max(w.clock, first.due), append(w.moves, int32(len(w.ev)))
	for _, k := range w.all[:w.nAll] {
		if k.state == sleeping && k.due <= w.clock {
			k.state = ready
		}
	}
	return true
}

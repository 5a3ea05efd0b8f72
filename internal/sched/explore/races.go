package explore

import (
	"fmt"
	"runtime"
	"slices"

	"btrlab/internal/sched"
)

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

// races finds data races: it knows the last accesses of each field of plain data. Only Data reads
// it.
type races struct {
	vars   []plain
	looks  map[lookedKey]looked // of a traced run
	missed bool                 // a Var was used without clocks
}

func (r *races) reset() { r.vars, r.looks, r.missed = r.vars[:0], nil, false }

// widen makes room for maxTasks tasks.
func (r *races) widen() {
	wide := func(row []int32) []int32 { return append(make([]int32, 0, maxTasks), row...)[:maxTasks] }
	for i := range r.vars {
		v := &r.vars[i]
		v.reads, v.readEv = wide(v.reads), wide(v.readEv)
	}
}

// Data checks an access to a plain field: one that is not ordered with the last one of another
// task, when one of them writes, is a race. What a step takes in counts from its begin: a lock that
// it takes later, without a scheduling point, may hide a race in this schedule.
func (w *world) Data(t *sched.Task, o *sched.Obj, write bool, what fmt.Stringer) {
	if w.phase != exploring || w.aborting || w.curEv < 0 || !w.cfg.checks(CheckRaces) && !w.observes {
		return
	}
	if !w.clocks {
		w.missed = true
		return
	}
	if o.Run != w.run {
		o.Run, o.Num = w.run, int32(len(w.vars))
		w.vars = slices.Grow(w.vars, 1)[:len(w.vars)+1]
		v := &w.vars[o.Num]
		v.wTask, v.version = -1, 0
		if cap(v.reads) < w.stride {
			v.reads, v.readEv = make([]int32, w.stride), make([]int32, w.stride)
		}
		v.reads, v.readEv = v.reads[:w.stride], v.readEv[:w.stride]
		clear(v.reads)
	}
	v := &w.vars[o.Num]
	k := w.curK
	// the field is what its writers knew, and a task that changes a struct may have read it
	if w.observes {
		k.obs = sched.Mix(k.obs, v.version)
		if write {
			v.version = sched.Mix(k.obs, v.version)
		}
	}
	if n := int32(len(w.acc)); k.dataEv != w.curEv || k.dataAcc != n {
		k.dataEv, k.dataAcc = w.curEv, n
		k.n++
	}
	if v.wTask == int32(k.num) && v.wIdx == k.n || !write && v.reads[k.num] == k.n {
		return // once more
	}
	row := w.row(w.curEv)
	if v.wTask >= 0 && v.wTask != int32(k.num) && row[v.wTask] < v.wIdx {
		w.race(k, write, o.Num, int(v.wTask), v.wEv, true, what)
	}
	if write {
		for r, epoch := range v.reads {
			if epoch > row[r] && r != k.num {
				w.race(k, true, o.Num, r, v.readEv[r], false, what)
			}
		}
		v.wTask, v.wIdx, v.wEv = int32(k.num), k.n, w.curEv
	} else {
		v.reads[k.num], v.readEv[k.num] = k.n, w.curEv
	}
	if w.tracing {
		w.look(k, o.Num, write)
	}
}

// racesHash is the hash of what Data goes by: for each access that a field remembers, the tasks
// that come after it already, and the objects whose next user will. Two histories that lead to the
// same values can differ in it, if tasks took the same locks in another order; then the next access
// is a race in one of them.
func (w *world) racesHash() (h uint64) {
	for i := range w.vars {
		v := &w.vars[i]
		x := sched.Mix(v.version, 5)
		if v.wTask >= 0 {
			h += sched.Mix(x, w.ordered(int(v.wTask), v.wIdx))
		}
		for r, epoch := range v.reads {
			if epoch > 0 {
				h += sched.Mix(x, sched.Mix(w.tasks[r].seed, w.ordered(r, epoch)))
			}
		}
	}
	return h
}

// ordered is the hash of what comes after the given epoch of a task, and of what will.
func (w *world) ordered(task int, epoch int32) (h uint64) {
	by := func(ev, upTo int32) bool {
		return ev >= 0 && (int(w.ev[ev].task) == task && upTo >= epoch || w.row(ev)[task] >= epoch)
	}
	for _, k := range w.tasks {
		if k.num == task || by(k.last, k.n) || by(k.wake, k.wakeEpoch) {
			h += sched.Mix(k.seed, 1)
		}
		if k.token && by(k.tokenEv, k.tokenEpoch) {
			h += sched.Mix(k.seed, 2)
		}
	}
	for i := range w.objs {
		o := &w.objs[i]
		var uses uint64 // that come after the epoch, and that what comes next may come after
		for a := o.last; a >= 0; a = w.acc[a].prev {
			x := &w.acc[a]
			if by(x.ev, x.epoch) {
				uses |= 1 << x.use
			}
			if x.use == sched.Writes {
				break
			}
		}
		if uses != 0 {
			h += sched.Mix(o.sig, 8|uses)
		}
	}
	return h
}

// look keeps what a report of a race will want to know of this access.
func (w *world) look(k *task, field int32, write bool) {
	if w.looks == nil {
		w.looks = map[lookedKey]looked{}
	}
	var pc [stackDepth]uintptr
	n := runtime.Callers(4, pc[:])
	w.looks[lookedKey{field, k.num, write}] = looked{w.holds(k), pc[:n:n]}
}

func verb(write bool) string {
	if write {
		return "writes"
	}
	return "reads"
}

// race reports that k's access to a field is not ordered with one that another task made in step
// ev. A traced run knows the locks and the stack of both.
func (w *world) race(k *task, write bool, num int32, other int, ev int32, otherWrote bool, what fmt.Stringer) {
	if w.viol != nil || !w.cfg.checks(CheckRaces) {
		return
	}
	o := w.tasks[other]
	field := what.String()
	if field == "" {
		field = "a field"
	}
	held := "now holding " + w.holds(o)
	was, traced := w.looks[lookedKey{num, other, otherWrote}]
	if traced {
		held = "holding " + was.held
	}
	v := &Violation{Kind: KindRace, Named: true, What: fmt.Sprintf("task %s %s %s in step %d (holding %s) that task %s %s in step %d (%s); no lock, atomic or wake-up orders them",
		k, verb(write), field, w.curEv, w.holds(k), o, verb(otherWrote), ev, held)}
	if traced {
		var pc [stackDepth]uintptr
		n := runtime.Callers(4, pc[:])
		v.Sides = []Side{{k.String(), int(w.curEv), framesOf(pc[:n])}, {o.String(), int(ev), framesOf(was.pc)}}
	}
	w.viol = v
}

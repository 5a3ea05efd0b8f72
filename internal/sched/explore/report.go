package explore

import (
	"fmt"
	"strings"

	"btrlab/internal/sched"
)

func (w *world) objName(id any, class sched.ClassID) string {
	if name, ok := w.nameOf(id); ok {
		return name
	}
	for i := range w.objs {
		if id != nil && w.objs[i].id == id {
			return fmt.Sprintf("%s #%d", className(class), w.shown(int32(i)+1))
		}
	}
	return className(class)
}

// shown is the number by which reports know the n-th object, from 1: they leave out the ends of
// tasks and others that nothing names. 0 stays 0.
func (w *world) shown(n int32) int {
	shown := 0
	for i := range w.objs[:n] {
		if w.objs[i].id != nil || i == int(n)-1 {
			shown++
		}
	}
	return shown
}

// heldName names a lock that is held.
func (w *world) heldName(h sched.Held) string {
	if s := w.lockName(h); s != "" {
		return s
	}
	return w.objName(h.Obj, h.Class)
}

// lockName names a lock by what the program says of it, or by its bytes; "" is one that is known by
// its object alone.
func (w *world) lockName(h sched.Held) string {
	if w.nameHeld != nil {
		if s := w.nameHeld(h); s != "" {
			return s
		}
	}
	if r := sched.RangeText(h.Obj); r != "" {
		return className(h.Class) + r
	}
	return ""
}

// opName names what k is about to lock or unlock by what the program says of held locks.
func (w *world) opName(k *task) string {
	if k.nval > 0 {
		return k.choice
	}
	if k.op.ID == nil {
		return ""
	}
	if k.opKind == StepKind(sched.PointTryLock) {
		return w.lockName(sched.Held{Class: k.op.Class, Sub: k.op.Sub, Obj: k.op.ID})
	}
	held := k.t.HeldLocks
	for i := len(held) - 1; i >= 0; i-- {
		h := held[i]
		if h.Obj == k.op.ID || h.Class == k.op.Class && k.opKind == StepKind(sched.PointLock) && i == len(held)-1 {
			return w.lockName(h)
		}
	}
	return ""
}

// holds lists what k holds; a lock that it stands at is not held yet.
func (w *world) holds(k *task) string {
	var l []string
	for _, h := range w.held(k) {
		l = append(l, h.Name)
	}
	if l == nil {
		return "nothing"
	}
	return strings.Join(l, ", ")
}

func (w *world) held(k *task) (l []Named) {
	for i, h := range k.t.HeldLocks {
		if !k.stands(i) && !empty(h.Obj) {
			l = append(l, Named{w.heldName(h), className(h.Class)})
		}
	}
	return l
}

// waits says what k is doing or waiting for.
func (w *world) waits(k *task) string {
	switch k.state {
	case ended:
		return "has ended"
	case sleeping:
		return "sleeps"
	case parked:
		if !w.nameable(k.parkOn) {
			return "waits in " + w.waitName(k)
		}
		return "waits for " + w.waitName(k)
	}
	if k.op.Mode != 0 && !k.enabled() {
		return "waits for " + w.waitName(k)
	}
	return "can run"
}

// waitName names the object that k waits for, or at least the class of the wait.
func (w *world) waitName(k *task) string {
	switch {
	case k.state != parked || w.nameable(k.parkOn):
		return w.targetName(k)
	case k.parkClass == 0:
		return "an unclassed wait"
	}
	return className(k.parkClass)
}

// whyNot says why task num, which is not enabled, cannot run.
func (w *world) whyNot(num int, enabled uint64) string {
	if num < 0 || num >= len(w.tasks) {
		return fmt.Sprintf("there is no task %d, enabled are %v", num, bitList(enabled))
	}
	return fmt.Sprintf("task %d cannot run, enabled are %v; it %s", num, bitList(enabled), w.waits(w.tasks[num]))
}

func (w *world) unfinished() string {
	var l []string
	for _, k := range w.tasks {
		if k.user && k.state != ended {
			l = append(l, fmt.Sprintf("task %s %s", k, w.waits(k)))
		}
	}
	return strings.Join(l, ", ")
}

// stuck lists the tasks that have not ended.
func (w *world) stuck() string {
	var b strings.Builder
	for _, k := range w.all[:w.nAll] {
		if k.state == ended || k == w.root && w.phase == exploring || !k.user && len(k.t.HeldLocks) == 0 && k != w.root {
			continue
		}
		fmt.Fprintf(&b, "task %s %s; holds %s\n", k, w.waits(k), w.holds(k))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

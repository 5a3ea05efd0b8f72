package explore

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/sched"
)

// obligation says that an event must be brought about: by a task, or by the tasks that serve what
// it was delegated to.
type obligation struct {
	ev   any
	by   *task
	to   any  // by is nil
	life bool // for as long as the task lives
}

// BlockedOn keeps what t waits for in its next Park.
func (w *world) BlockedOn(t *sched.Task, obj any) { w.of(t).parkOn = obj }

// Owe obliges t to bring ev about.
func (w *world) Owe(t *sched.Task, ev any) { w.owe(obligation{ev: ev, by: w.of(t)}) }

// Serve obliges t for life: it is a daemon, whatever task made it.
func (w *world) Serve(t *sched.Task, ev any) {
	if k := w.of(t); k.user && !w.aborting {
		k.user = false
		w.left()
	}
	w.owe(obligation{ev: ev, by: w.of(t), life: true})
}

// Delegate obliges the tasks that serve to.
func (w *world) Delegate(t *sched.Task, ev, to any) { w.owe(obligation{ev: ev, to: to}) }

func (w *world) owe(o obligation) {
	if !w.aborting && !w.lean {
		w.owes = append(w.owes, o)
	}
}

// Discharge ends one obligation for ev: t's own, or else the oldest.
func (w *world) Discharge(t *sched.Task, ev any) {
	if w.aborting || w.lean {
		return
	}
	at, k := -1, w.of(t)
	for i := range w.owes {
		if o := &w.owes[i]; o.ev != ev {
			continue
		} else if o.by == k {
			at = i
			break
		}
		if at < 0 {
			at = i
		}
	}
	if at < 0 {
		return
	}
	last := len(w.owes) - 1
	if last > 64 && at < last/2 { // pages of a large write: first in, first out
		copy(w.owes[1:at+1], w.owes[:at])
		w.owes = w.owes[1:]
		return
	}
	for ; at < last; at++ {
		w.owes[at] = w.owes[at+1]
	}
	w.owes = w.owes[:last]
}

// holds is the verb of an edge to the holder of a lock.
const holds = "holds"

// link is an edge of the wait-for graph: from waits for what to holds or owes.
type link struct {
	from, to *task
	what     string // "extent [0, 4K)"
	verb     string // "holds", "must finish"
}

// linkText prints an edge. One that got here by a lock that from holds also says what from is to
// do.
func (w *world) linkText(l, before *link) string {
	from := l.from.String()
	if before.verb == holds {
		if duty := w.duty(l.from); duty != "" {
			from += ", which " + duty + ","
		}
	}
	return fmt.Sprintf("task %s waits for %s", from, w.awaited(l))
}

// awaited names the object that the edge waits for, and its holder: "extent [0, 4K), which task 2
// endio holds".
func (w *world) awaited(l *link) string {
	to := l.to.String()
	switch {
	case l.what == "":
		return fmt.Sprintf("task %s to end", to)
	case l.from == l.to:
		return fmt.Sprintf("%s, which it %s itself", l.what, l.verb)
	}
	return fmt.Sprintf("%s, which task %s %s", l.what, to, l.verb)
}

// target is the object that k waits for, nil when it is not known.
func (k *task) target() (obj any, class sched.ClassID) {
	switch {
	case k.state == parked:
		return k.parkOn, k.parkClass
	case k.state == ready && k.op.Mode != 0:
		return k.op.ID, k.op.Class
	}
	return nil, 0
}

// waitsIn is the class of what k waits for.
func (k *task) waitsIn() sched.ClassID {
	_, class := k.target()
	return class
}

// links are k's edges: to the task that holds the lock that it waits for, or that owes the event.
func (w *world) links(k *task) []link {
	obj, class := k.target()
	if obj == nil {
		return nil
	}
	if t, ok := obj.(*sched.Task); ok {
		return []link{{from: k, to: w.of(t)}}
	}
	var l []link
	add := func(to *task, verb string) {
		if !slices.ContainsFunc(l, func(x link) bool { return x.to == to }) {
			l = append(l, link{k, to, w.targetName(k), verb})
		}
	}
	for _, o := range w.tasks {
		for i, h := range o.t.HeldLocks {
			if o.stands(i) {
				continue
			}
			if h.Obj == obj || h.Class == class && sched.Overlap(h.Obj, obj) {
				add(o, holds)
			}
		}
	}
	verb := "must complete"
	if e, ok := obj.(sched.Event); ok {
		_, v := e.Event()
		verb = "must " + v
	}
	for _, o := range w.owing(obj, 0) {
		// What a task counted itself may be another's to count off, as the end of a bio does.
		if o != k || k.state == parked {
			add(o, verb)
		}
	}
	return l
}

// owing lists the tasks that owe ev, themselves or by delegation.
func (w *world) owing(ev any, depth int) (l []*task) {
	if depth > len(w.owes) {
		return nil // a delegation in a circle
	}
	for _, o := range w.owes {
		if o.ev != ev {
			continue
		}
		if o.by != nil {
			l = append(l, o.by)
		} else {
			l = append(l, w.owing(o.to, depth+1)...)
		}
	}
	return l
}

// stands says that k only stands at the i-th lock of its held list.
func (k *task) stands(i int) bool {
	held := k.t.HeldLocks
	return i == len(held)-1 && k.state == ready && k.op.ID != nil && k.op.ID == held[i].Obj &&
		(k.opKind == StepKind(sched.PointLock) || k.opKind == StepKind(sched.PointArrive))
}

// duty names the last obligation of k that is open: "must flush for a ticket for data space".
func (w *world) duty(k *task) string {
	for i := len(w.owes) - 1; i >= 0; i-- {
		o := &w.owes[i]
		if e, ok := o.ev.(sched.Event); ok && o.by == k && !o.life {
			name, verb := e.Event()
			return "must " + verb + " " + name + sched.RangeText(o.ev)
		}
	}
	return ""
}

// targetName names what k waits for; "" is what has no name of its own.
func (w *world) targetName(k *task) string {
	obj, class := k.target()
	if obj == nil {
		return ""
	}
	if t, ok := obj.(*sched.Task); ok {
		return "task " + w.of(t).String() + " to end"
	}
	if e, ok := obj.(sched.Event); ok {
		name, _ := e.Event()
		return name + sched.RangeText(obj)
	}
	if k.state == ready {
		if name := w.opName(k); name != "" {
			return name
		}
	}
	return w.heldName(sched.Held{Class: class, Obj: obj})
}

// nameable says that reports can say more of obj than its class.
func (w *world) nameable(obj any) bool {
	switch obj.(type) {
	case nil:
		return false
	case *sched.Task, sched.Event:
		return true
	}
	_, ok := w.nameOf(obj)
	return ok || sched.RangeText(obj) != ""
}

// empty says that obj is a range lock of which its task, which waits, has nothing yet.
func empty(obj any) bool {
	r, ok := obj.(sched.Span)
	if !ok {
		return false
	}
	start, end := r.Range()
	return start == end
}

// cycle follows the graph from k and returns the first cycle it comes to. Path has led to k.
func (w *world) cycle(k *task, path []link, seen *uint64) []link {
	if i := slices.IndexFunc(path, func(l link) bool { return l.from == k }); i >= 0 {
		return path[i:]
	}
	if k.num < 0 || *seen&(1<<k.num) != 0 {
		return nil
	}
	*seen |= 1 << k.num
	for _, l := range w.links(k) {
		if c := w.cycle(l.to, append(path, l), seen); c != nil {
			return c
		}
	}
	return nil
}

// Stuck is a task that waits for ever.
type Stuck struct {
	Task int
	// For is the lock or event that it waits for: "extent [0, 4K)".
	For Named
	// By is the task that holds or owes that, -1 when none is known to; Whom is For with By's name.
	By   int
	Whom string
	// Held are the locks it holds.
	Held []Named
}

// recordStuck keeps for a reader what the tasks wait for that have not ended: those that must, and
// daemons that hold a lock.
func (w *world) recordStuck(must []*task) {
	for _, k := range w.tasks {
		if k.state == ended || k.state == sleeping || !slices.Contains(must, k) && len(k.t.HeldLocks) == 0 {
			continue
		}
		s := Stuck{Task: k.num, For: Named{w.waitName(k), ""}, By: -1, Held: w.held(k)}
		if class := k.waitsIn(); class != 0 {
			s.For.Class = className(class)
		}
		if l := w.links(k); len(l) > 0 {
			s.By, s.Whom = l[0].to.num, w.awaited(&l[0])
		}
		w.stuckTasks = append(w.stuckTasks, s)
	}
}

// deadlock reports that no task can run: a cycle of the wait-for graph, a wait for a task that has
// ended, or a wake-up that came before its wait.
func (w *world) deadlock() {
	var stuck []*task
	for _, k := range w.tasks {
		if k.user && k.state != ended {
			stuck = append(stuck, k)
		}
	}
	if w.tracing {
		w.recordStuck(stuck)
	}
	var seen uint64
	for _, k := range stuck {
		if c := w.cycle(k, nil, &seen); c != nil {
			v := Violation{Kind: KindDeadlock, Named: true, More: w.stuck()}
			var l []string
			for i := range c {
				l = append(l, w.linkText(&c[i], &c[(i+len(c)-1)%len(c)]))
				v.Waits = append(v.Waits, c[i].from.waitsIn())
			}
			v.What = strings.Join(l, "; ")
			w.fail(v)
			return
		}
	}
	for _, k := range stuck {
		for _, l := range w.links(k) {
			if l.to.state != ended {
				continue
			}
			text := fmt.Sprintf("task %s waits for %s, which task %s owed when it ended", k, l.what, l.to)
			if l.verb == holds {
				text = fmt.Sprintf("task %s waits for what task %s held when it ended", k, l.to)
			}
			w.fail(Violation{Kind: KindGone, What: text, Waits: []sched.ClassID{k.waitsIn()}, More: w.stuck()})
			return
		}
	}
	for _, k := range stuck {
		if k.state != parked {
			continue
		}
		if k.parkObj > 0 {
			if o := &w.objs[k.parkObj-1]; o.wakes > 0 {
				w.fail(Violation{Kind: KindLost, Named: true, Waits: []sched.ClassID{k.waitsIn()}, More: w.stuck(),
					What: fmt.Sprintf("task %s waits in %s since step %d; the last wake-up was in step %d, and nobody is left to give another",
						k, w.objName(o.id, o.class), k.parkStep-1, o.lastWake)})
				return
			}
		}
		w.fail(Violation{Kind: KindGone, What: fmt.Sprintf("task %s %s, and nobody is left to wake it", k, w.waits(k)),
			Waits: []sched.ClassID{k.waitsIn()}, More: w.stuck()})
		return
	}
	w.fail(Violation{Kind: KindGone, What: "nobody can run: " + w.unfinished(), More: w.stuck()})
}

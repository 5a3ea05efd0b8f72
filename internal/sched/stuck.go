package sched

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// Stuck tests. A deadlock of goroutines ends a test when go test's timeout comes, with stacks that
// name no lock. Where lockdep watches (SetChecked), tasks of the real runtime have a wait-for graph
// as tasks under a Stepper have one: the watch notes which task waits for what and which owes it.
// Once every goroutine of the process has been blocked for stuckAfter, the watch panics with who
// waits for whom.
//
//	task waits       Blocks, Unblocks            a task waits; its locks are in HeldLocks
//	task owes        Owe, Delegate, Discharge    as WaitGraph says
//	a tick           no change since the last?   after stuckAfter of that, one look at all goroutines
//	all are blocked  panic                       the cycle, then each task that waits
//
// A task without lockdep has no graph and pays one test for it, where it would wait anyway.

// stuckAfter is how long a process stands still before it counts as stuck, in nanoseconds.
var stuckAfter atomic.Int64

// watch is the WaitGraph of the real runtime.
type watch struct {
	mu    sync.Mutex
	tasks []weak.Pointer[Task] // the checked tasks that may still be there
	prune int                  // at this length of tasks those that are gone are dropped
	waits map[*Task]*waiting
	spare []*waiting
	owes  map[any][]duty
	moves uint64 // counts every change
}

// waiting describes the wait of a task.
type waiting struct {
	obj     any
	class   ClassID
	blocked bool // false: BlockedOn has named obj, and the wait has not begun
}

// duty is an obligation: of a task, or of the tasks that serve another event.
type duty struct {
	by   weak.Pointer[Task]
	to   any // by is nil
	life bool
}

var (
	theWatch  = &watch{waits: map[*Task]*waiting{}, owes: map[any][]duty{}, prune: 64}
	watchOnce sync.Once
)

// watched makes t, a checked task of the real runtime, known to the watch.
func (w *watch) watched(t *Task) {
	watchOnce.Do(func() {
		stuckAfter.CompareAndSwap(0, int64(10*time.Second))
		go w.run()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	t.graph = w
	if len(w.tasks) >= w.prune {
		w.tasks = slices.DeleteFunc(w.tasks, func(p weak.Pointer[Task]) bool { return p.Value() == nil })
		for ev, l := range w.owes {
			if l = slices.DeleteFunc(l, func(d duty) bool { return d.to == nil && d.by.Value() == nil }); len(l) == 0 {
				delete(w.owes, ev)
			} else {
				w.owes[ev] = l
			}
		}
		w.prune = 2*len(w.tasks) + 64
	}
	w.tasks = append(w.tasks, weak.Make(t))
}

// wait returns t's entry. mu is held.
func (w *watch) wait(t *Task) *waiting {
	w.moves++
	k := w.waits[t]
	if k == nil {
		if n := len(w.spare); n > 0 {
			k, w.spare = w.spare[n-1], w.spare[:n-1]
		} else {
			k = new(waiting)
		}
		w.waits[t] = k
	}
	return k
}

// BlockedOn is WaitGraph's.
func (w *watch) BlockedOn(t *Task, obj any) {
	w.mu.Lock()
	w.wait(t).obj = obj
	w.mu.Unlock()
}

func (w *watch) blocks(t *Task, class ClassID) {
	w.mu.Lock()
	k := w.wait(t)
	k.class, k.blocked = class, true
	w.mu.Unlock()
}

func (w *watch) unblocks(t *Task) {
	w.mu.Lock()
	k := w.wait(t)
	*k = waiting{}
	delete(w.waits, t)
	w.spare = append(w.spare, k)
	w.mu.Unlock()
}

// Owe is WaitGraph's.
func (w *watch) Owe(t *Task, ev any) { w.owe(ev, duty{by: weak.Make(t)}) }

// Serve is WaitGraph's.
func (w *watch) Serve(t *Task, ev any) { w.owe(ev, duty{by: weak.Make(t), life: true}) }

// Delegate is WaitGraph's.
func (w *watch) Delegate(t *Task, ev, to any) { w.owe(ev, duty{to: to}) }

func (w *watch) owe(ev any, d duty) {
	w.mu.Lock()
	w.moves++
	w.owes[ev] = append(w.owes[ev], d)
	w.mu.Unlock()
}

// Discharge is WaitGraph's.
func (w *watch) Discharge(t *Task, ev any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moves++
	l := w.owes[ev]
	if len(l) <= 1 {
		delete(w.owes, ev)
		return
	}
	own := weak.Make(t)
	i := max(slices.IndexFunc(l, func(d duty) bool { return d.by == own }), 0)
	w.owes[ev] = slices.Delete(l, i, i+1)
}

// Blocks says that t begins to wait in class, for what BlockedOn has named. It is for the
// primitives of package lock that wait in the real runtime by other means than Park.
func (t *Task) Blocks(class ClassID) {
	if w, ok := t.graph.(*watch); ok {
		w.blocks(t, class)
	}
}

// Unblocks ends what Blocks began.
func (t *Task) Unblocks() {
	if w, ok := t.graph.(*watch); ok {
		w.unblocks(t)
	}
}

// run looks ten times in stuckAfter whether anything has changed.
func (w *watch) run() {
	var last uint64
	for still := 0; ; still++ {
		time.Sleep(time.Duration(stuckAfter.Load()) / 10)
		w.mu.Lock()
		moves, waits := w.moves, len(w.waits)
		w.mu.Unlock()
		switch {
		case moves != last || waits == 0:
			last, still = moves, 0
		case still >= 10:
			if still = 0; allBlocked() {
				debug.SetTraceback("all")
				panic("stuck: " + w.report())
			}
		}
	}
}

// blockedStates are the states of a goroutine that only another one can end.
var blockedStates = [][]byte{[]byte("chan "), []byte("select"), []byte("semacquire"), []byte("sync."), []byte("coroutine")}

// allBlocked reports that every goroutine but the caller's waits for another one. A goroutine in a
// system call, in a sleep or waiting for I/O goes on by itself; the one that receives signals does
// not count.
func allBlocked() bool {
	buf := make([]byte, 1<<20)
	n := runtime.Stack(buf, true)
	for n == len(buf) {
		buf = make([]byte, 2*len(buf))
		n = runtime.Stack(buf, true)
	}
	all := bytes.Split(buf[:n], []byte("\n\n"))
	for _, g := range all[1:] {
		head, stack, _ := bytes.Cut(g, []byte("\n"))
		_, state, ok := bytes.Cut(head, []byte(" ["))
		if !ok || bytes.Contains(stack, []byte("os/signal.")) {
			continue
		}
		if !slices.ContainsFunc(blockedStates, func(s []byte) bool { return bytes.HasPrefix(state, s) }) {
			return false
		}
	}
	return true
}

// arc is an edge of the wait-for graph.
type arc struct {
	from, to *Task
	text     string
}

// report says who waits for whom: a cycle if there is one, then every task that waits.
func (w *watch) report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	tasks := make([]*Task, 0, len(w.waits))
	for t := range w.waits {
		tasks = append(tasks, t)
	}
	slices.SortFunc(tasks, func(a, b *Task) int { return cmp.Compare(a.ID, b.ID) })
	lines := []string{fmt.Sprintf("no task has gone on for %v, and every goroutine waits", time.Duration(stuckAfter.Load()))}
	for _, t := range tasks {
		if c := w.cycle(t, nil, map[*Task]bool{}); c != nil {
			l := make([]string, len(c))
			for i := range c {
				l[i] = c[i].text
			}
			lines = append(lines, "deadlock: "+strings.Join(l, "; "))
			break
		}
	}
	for _, t := range tasks {
		line := "task " + t.String() + " waits for " + w.target(t)
		if arcs := w.arcs(t); len(arcs) > 0 {
			line = arcs[0].text
		}
		for i, h := range t.HeldLocks {
			if !w.stands(t, i) {
				line += fmt.Sprintf("; holds %s%s", ClassByID(h.Class).Name, RangeText(h.Obj))
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// cycle follows the graph from t and returns the first cycle it comes to. Path has led to t.
func (w *watch) cycle(t *Task, path []arc, seen map[*Task]bool) []arc {
	if i := slices.IndexFunc(path, func(a arc) bool { return a.from == t }); i >= 0 {
		return path[i:]
	}
	if seen[t] {
		return nil
	}
	seen[t] = true
	for _, a := range w.arcs(t) {
		if c := w.cycle(a.to, append(path, a), seen); c != nil {
			return c
		}
	}
	return nil
}

// target names what t waits for.
func (w *watch) target(t *Task) string {
	k := w.waits[t]
	if c, ok := k.obj.(*Task); ok {
		return fmt.Sprintf("task %v to end", c)
	}
	if e, ok := k.obj.(Event); ok {
		name, _ := e.Event()
		return name + RangeText(k.obj)
	}
	return ClassByID(k.class).Name + RangeText(k.obj)
}

// arcs are t's edges: to the tasks that hold the lock that it waits for, or owe the event.
func (w *watch) arcs(t *Task) (l []arc) {
	k := w.waits[t]
	if k == nil || k.obj == nil {
		return nil
	}
	head := fmt.Sprintf("task %v waits for %s", t, w.target(t))
	if c, ok := k.obj.(*Task); ok {
		return []arc{{t, c, head}}
	}
	add := func(to *Task, verb string) {
		if slices.ContainsFunc(l, func(a arc) bool { return a.to == to }) {
			return
		}
		text := fmt.Sprintf("%s, which task %v %s", head, to, verb)
		if to == t {
			text = fmt.Sprintf("%s, which it %s itself", head, verb)
		}
		l = append(l, arc{t, to, text})
	}
	for _, p := range w.tasks {
		o := p.Value()
		if o == nil {
			continue
		}
		for i, h := range o.HeldLocks {
			if !w.stands(o, i) && (h.Obj == k.obj || h.Class == k.class && Overlap(h.Obj, k.obj)) {
				add(o, "holds")
			}
		}
	}
	verb := "must complete"
	if e, ok := k.obj.(Event); ok {
		_, v := e.Event()
		verb = "must " + v
	}
	for _, o := range w.owing(k.obj, 0) {
		add(o, verb)
	}
	return l
}

// owing lists the tasks that owe ev, themselves or by delegation.
func (w *watch) owing(ev any, depth int) (l []*Task) {
	if depth > 10 {
		return nil // a delegation in a circle
	}
	for _, d := range w.owes[ev] {
		if d.to != nil {
			l = append(l, w.owing(d.to, depth+1)...)
		} else if t := d.by.Value(); t != nil {
			l = append(l, t)
		}
	}
	return l
}

// stands says that t waits for the i-th lock of its held list, which lockdep was told before.
func (w *watch) stands(t *Task, i int) bool {
	k := w.waits[t]
	return k != nil && i == len(t.HeldLocks)-1 && k.obj == t.HeldLocks[i].Obj
}

package explore

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"btrlab/internal/sched"
)

// StepKind is the operation that a step begins with: a scheduling point, or one of the runtime's
// own.
type StepKind uint8

// The kinds after those of the scheduling points.
const (
	stepStart  StepKind = 32 + iota // a task's first step
	stepResume                      // after Park
	stepAwake                       // after Sleep
	stepNone
)

func (k StepKind) String() string {
	switch k {
	case stepStart:
		return "start"
	case stepResume:
		return "resume" // of a wait
	case stepAwake:
		return "awake"
	}
	return sched.PointKind(k).String()
}

// Step is one step of a recorded execution.
type Step struct {
	Task  int
	Kind  StepKind
	Class sched.ClassID
	// Obj numbers the object by first use in the execution, from 1; 0 is none.
	Obj int
	// Enabled are the tasks that could run, as bits; Blocked those that stood at a lock or wait
	// they could not pass.
	Enabled, Blocked uint64
	// Preempts says that another task could have gone on and was stopped for this step.
	Preempts bool
	// Val is the value that a choice among NVal values took; NVal is 0 for other steps.
	Val, NVal int
}

// same says that two steps do the same in the same place, as steps of one program by one schedule
// must.
func (s Step) same(o Step) bool {
	return s.Task == o.Task && s.Kind == o.Kind && s.Class == o.Class && s.Enabled == o.Enabled
}

// Named is a lock or an event as reports name it. Its text form is the name.
type Named struct {
	Name  string // "extent [0, 4K)", "mu #2"
	Class string // of locks, "extent"; "" for what has none
}

func (n Named) String() string { return n.Name }

// MarshalText makes the text form.
func (n Named) MarshalText() ([]byte, error) { return []byte(n.Name), nil }

// Detail is the record of a step for a reader.
type Detail struct {
	Object string // what the operation is about, "mu #1"; of a choice, what is chosen
	Value  string // of a choice: "= 2 of 0 to 2"
	Notes  []any
	State  []string // by Execution.Watches, after the step
	Held   []Named  // locks that the task held before the step
	Stack  Stack    // where the task stood
}

// what is the step's operation and object.
func (d *Detail) what(k StepKind) string {
	s := k.String()
	for _, part := range [...]string{d.Object, d.Value} {
		if part != "" {
			s += " " + part
		}
	}
	return s
}

// Execution is one recorded execution.
type Execution struct {
	// Verdict is OK or the kind of Violation.
	Verdict   Kind
	Violation Violation
	// Schedule replays the execution: the deviations from the default order.
	Schedule    string
	Preemptions int
	Steps       []Step
	Details     []Detail // of each step, when recorded by Replay
	// Tasks are the names by number.
	Tasks   []string
	Watches []string
	// Stuck are the tasks that wait for ever, when recorded by Replay.
	Stuck []Stuck
}

// Trace prints the execution, one step a line: number, task, operation, object.
func (x *Execution) Trace() string {
	var b strings.Builder
	for i, s := range x.Steps {
		what := describe(s)
		if i < len(x.Details) {
			what = x.Details[i].what(s.Kind)
		}
		mark := ' '
		if s.Preempts {
			mark = '>'
		}
		fmt.Fprintf(&b, "%4d %c%d %-12s %s\n", i, mark, s.Task, x.Tasks[s.Task], what)
		if i < len(x.Details) {
			for _, n := range x.Details[i].Notes {
				fmt.Fprintf(&b, "%24s%v\n", "", n)
			}
		}
	}
	return b.String()
}

// describe is a step in words, for an execution that was not recorded for a reader.
func describe(s Step) string {
	d := Detail{Object: s.object()}
	if s.NVal > 0 {
		d.Value = fmt.Sprintf("%d of %d", s.Val, s.NVal)
	}
	return d.what(s.Kind)
}

// object is the class and the number of the step's object.
func (s Step) object() string {
	switch s.Kind {
	case stepStart, stepAwake, StepKind(sched.PointYield), StepKind(sched.PointChoose), StepKind(sched.PointCall):
		return ""
	}
	if s.Obj != 0 {
		return fmt.Sprintf("%s #%d", className(s.Class), s.Obj)
	}
	return className(s.Class)
}

func (w *world) step(i int) Step {
	e := &w.ev[i]
	return Step{Task: int(e.task), Kind: e.kind, Class: e.class, Obj: w.shown(e.obj), Enabled: e.mask, Blocked: e.closed,
		Preempts: e.preempts(), Val: int(e.val), NVal: int(e.nval)}
}

func (w *world) execution() Execution {
	x := Execution{Schedule: w.schedule().String(), Preemptions: w.preemptions()}
	if w.viol != nil {
		x.Verdict, x.Violation = w.viol.Kind, *w.viol
	}
	x.Steps = make([]Step, len(w.ev))
	for i := range x.Steps {
		x.Steps[i] = w.step(i)
	}
	x.Tasks = make([]string, len(w.tasks))
	for i, k := range w.tasks {
		x.Tasks[i] = k.name
	}
	if !w.tracing {
		return x
	}
	x.Stuck = w.stuckTasks
	for _, c := range w.watches {
		x.Watches = append(x.Watches, c.name)
	}
	x.Details = make([]Detail, len(w.ev))
	for i := range w.ev {
		d := &x.Details[i]
		d.Object = x.Steps[i].object()
		if n := w.ev[i].obj; n > 0 {
			if name, ok := w.nameOf(w.objs[n-1].id); ok {
				d.Object = name
			}
		}
		if i < len(w.objectAt) && w.objectAt[i] != "" {
			d.Object = w.objectAt[i]
		}
		if s := &x.Steps[i]; s.NVal > 0 {
			d.Value = fmt.Sprintf("= %d of 0 to %d", s.Val, s.NVal-1)
		}
		if i < len(w.heldAt) {
			d.Held = w.heldAt[i]
		}
		if i < len(w.stacks) {
			d.Stack = framesOf(w.stacks[i])
		}
		if i < len(w.states) {
			d.State = w.states[i]
		}
	}
	for _, n := range w.notes {
		if n.step >= 0 && n.step < len(x.Details) {
			x.Details[n.step].Notes = append(x.Details[n.step].Notes, n.says)
		}
	}
	return x
}

// traceStep records what a reader wants to know before k's next step, and how the last one left the
// watched state.
func (w *world) traceStep(k *task) {
	w.traceState()
	w.heldAt = append(w.heldAt, w.held(k))
	w.objectAt = append(w.objectAt, w.opName(k))
	w.stacks = append(w.stacks, slices.Clone(k.callers[:k.ncallers]))
	k.ncallers = 0
}

// stopHere tells the Debugger of the step that the task on whose stack it is called begins.
func (w *world) stopHere() {
	if w.phase == exploring && w.curEv >= 0 {
		w.atStep(int(w.curEv))
	}
}

func (w *world) traceState() {
	if len(w.ev) == 0 || len(w.states) == len(w.ev) {
		return
	}
	row := make([]string, len(w.watches))
	for i, c := range w.watches {
		row[i] = c.f()
	}
	w.states = append(w.states, row)
}

// stackDepth is how many frames of a stack are recorded for a reader.
const stackDepth = 24

// keepStack keeps where k stands, for traceStep, without the skip innermost frames.
func (k *task) keepStack(skip int) {
	k.callers = slices.Grow(k.callers[:0], stackDepth)[:stackDepth]
	k.ncallers = runtime.Callers(skip, k.callers)
}

// trace is the record of an execution for a reader. Reports read it, and what a search does never
// depends on it.
type trace struct {
	tracing bool           // Replay
	atStep  func(step int) // Replay with a Debugger, the second time
	verbose bool           // stacks in panics

	names    []objectName
	naming   any                       // what World.Name is called for
	number   func(*sched.Obj)          // gives one of its objects a number; made once
	nameHeld func(h sched.Held) string // World.NameHeld

	watches    []watch
	notes      []note
	stuckTasks []Stuck

	// Of each step.
	states   [][]string
	stacks   [][]uintptr
	heldAt   [][]Named
	objectAt []string
}

func (x *trace) reset() {
	x.names, x.watches, x.nameHeld = x.names[:0], x.watches[:0], nil
	if x.tracing {
		x.notes, x.stuckTasks, x.states, x.stacks, x.heldAt, x.objectAt = nil, nil, nil, nil, nil, nil
	}
}

// objectName is the program's name for an object. Only reports look for names, so a list does.
type objectName struct {
	id   any
	name string
}

// nameOf returns the program's name for an object.
func (x *trace) nameOf(id any) (string, bool) {
	for i := len(x.names) - 1; i >= 0 && id != nil; i-- {
		if x.names[i].id == id {
			return x.names[i].name, true
		}
	}
	return "", false
}

type watch struct {
	name string
	f    func() string
}

type note struct {
	step int
	says any
}

package scenario

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/data/inode"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/module"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
)

// Trace is one execution of a scenario, step by step.
type Trace struct {
	Scenario string `json:"scenario"`
	About    string `json:"about"`
	Policy   string `json:"policy"`
	Schedule string `json:"schedule"`
	// Kind is the violation's; empty when all was kept.
	Kind      explore.Kind      `json:"kind,omitempty"`
	Violation explore.Violation `json:"message,omitzero"`
	// Preemptions of the schedule.
	Preemptions int      `json:"preemptions"`
	Tasks       []string `json:"tasks"`   // by number; those after the scenario's own are daemons
	Own         int      `json:"own"`     // how many of Tasks are the scenario's
	Columns     []string `json:"columns"` // names of TraceStep.State
	Steps       []TraceStep
	// Violating is the step at which the violation shows, -1 for none or only at the end.
	Violating int `json:"violating"`
	// Stuck are the tasks that wait for ever.
	Stuck  []TraceStuck `json:"stuck,omitempty"`
	Replay string       `json:"replay"`
	// Orders, of an execution that violates nothing, has for each file an order of its operations
	// that explains every byte and size seen.
	Orders []Order `json:"orders,omitempty"`
}

// Order is an order of the operations on a file, each in words: "write 1", "truncate 2".
type Order struct {
	File string   `json:"file"`
	Ops  []string `json:"operations"`
}

// Kept is the verdict on an execution that violates nothing, with the orders that explain it.
func (tr *Trace) Kept() string {
	text := "kept: nothing was violated in this schedule"
	for _, o := range tr.Orders {
		if len(o.Ops) == 0 {
			continue
		}
		of := ""
		if len(tr.Orders) > 1 {
			of = " of " + o.File
		}
		text += fmt.Sprintf("\nthis order of the operations explains every byte%s: %s", of, strings.Join(o.Ops, ", "))
	}
	return text
}

// TraceStuck is a task that waits for ever.
type TraceStuck struct {
	Task int           `json:"task"`
	For  explore.Named `json:"for"` // a lock or an event
	// the task that holds or owes it, -1 for none known
	By   int             `json:"by"`
	Whom string          `json:"whom,omitempty"` // For and By in words
	Held []explore.Named `json:"held,omitempty"` // locks
}

// What is the action of a step, in people's words. Its text form is String.
type What struct {
	Verb   string // "lock", "queue"
	Prep   string // between verb and object: "for"
	Object string // "page 3", "i_size"
	Value  string // of a choice: "= 2 of 0 to 2"
}

func (w What) String() string {
	if rest := w.Rest(); rest != "" {
		return w.Verb + " " + rest
	}
	return w.Verb
}

// Rest is the text after the verb.
func (w What) Rest() string {
	parts := slices.DeleteFunc([]string{w.Prep, w.Object, w.Value}, func(s string) bool { return s == "" })
	return strings.Join(parts, " ")
}

// MarshalText makes the text form.
func (w What) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// Event is the event of an operation that a note is about.
type Event uint8

// The events. A note that is about no operation is Remark.
const (
	Remark Event = iota
	Begins
	Returns
	Fails
)

// Note is a task's note in a step: mostly that an operation begins or ends. Its text form is
// String.
type Note struct {
	Event Event
	Op    oracle.ID // number of the operation
	Text  string    // the operation that begins, the error; empty when it returns
}

func (n Note) String() string {
	switch n.Event {
	case Remark:
		return n.Text
	case Returns:
		return fmt.Sprintf("%d: returns", n.Op)
	}
	return fmt.Sprintf("%d: %s", n.Op, n.Text)
}

// MarshalText makes the text form.
func (n Note) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// noteOf returns a program's note.
func noteOf(says any) Note {
	if n, ok := says.(Note); ok {
		return n
	}
	return Note{Text: fmt.Sprint(says)}
}

// TraceStep is one step of one task.
type TraceStep struct {
	Step int `json:"step"`
	Task int `json:"task"`
	// lock, unlock, trylock, arrive, wait, wake, atomic, load, device, start, resume
	Kind  string          `json:"kind"`
	Class string          `json:"class"` // lock class
	What  What            `json:"what"`  // operation and object
	Where string          `json:"where"` // the write path's function
	Notes []Note          `json:"notes,omitempty"`
	State []string        `json:"state"`          // by Trace.Columns, after the step
	Held  []explore.Named `json:"held,omitempty"` // locks, before the step
	Stack explore.Stack   `json:"stack,omitempty"`
	// Enabled and Blocked are tasks as bits: could run, stood at a closed lock or wait.
	Enabled, Blocked uint64
	Preempts         bool `json:"preempts"`
	Obj              int  `json:"obj"` // number of the object, 0 for none
	// Val is the value that a choice among NVal values took; NVal is 0 for other steps.
	Val  int `json:"val"`
	NVal int `json:"nval"`
}

// Replay runs the scenario under p by a schedule and records every step.
func Replay(s *Scenario, p *policy.Policy, schedule string, own bool) (*Trace, error) {
	s = s.under(p)
	cfg, err := s.Config()
	if err != nil {
		return nil, err
	}
	var orders []Order
	prog, err := s.program(p, own, func(file string, order []string) { orders = append(orders, Order{file, order}) })
	if err != nil {
		return nil, err
	}
	x := explore.Replay(cfg, schedule, prog)
	tr := s.trace(p, &x, own)
	if tr.Kind == explore.OK {
		tr.Orders = orders
	}
	return tr, nil
}

func (s *Scenario) trace(p *policy.Policy, x *explore.Execution, own bool) *Trace {
	tr := TraceOf(x, len(s.Tasks))
	tr.Scenario, tr.About, tr.Policy, tr.Replay = s.Name, s.About, p.Name, s.replayCommand(p.Name, x.Schedule, own)
	return tr
}

// TraceOf is the trace of an execution that explore.Replay has recorded. The first own of its tasks
// are no daemons.
func TraceOf(x *explore.Execution, own int) *Trace {
	tr := &Trace{Schedule: x.Schedule, Kind: x.Verdict, Violation: x.Violation, Preemptions: x.Preemptions, Tasks: x.Tasks, Own: own,
		Columns: x.Watches, Violating: -1}
	for i, st := range x.Steps {
		ts := TraceStep{Step: i, Task: st.Task, Kind: st.Kind.String(), Enabled: st.Enabled, Blocked: st.Blocked, Preempts: st.Preempts, Obj: st.Obj,
			Val: st.Val, NVal: st.NVal}
		if c := lockdep.ByID(st.Class); c != nil && c != lockdep.Unclassed {
			ts.Class = c.Name
		}
		if i < len(x.Details) {
			d := x.Details[i]
			ts.What, ts.State, ts.Held, ts.Stack, ts.Where = words(ts.Kind, &d), d.State, d.Held, d.Stack, where(d.Stack)
			for _, says := range d.Notes {
				ts.Notes = append(ts.Notes, noteOf(says))
			}
		}
		tr.Steps = append(tr.Steps, ts)
	}
	for _, k := range x.Stuck {
		tr.Stuck = append(tr.Stuck, TraceStuck(k))
	}
	nameTried(tr.Steps)
	nameUnlocked(tr.Steps)
	switch tr.Kind {
	case explore.OK, explore.KindLeftover:
	case explore.KindOracle:
		tr.Violating = tr.unlockedSize()
	default:
		tr.Violating = len(tr.Steps) - 1
	}
	return tr
}

// unlockedSize is the last step that changed i_size without i_rwsem and without a byte range: when
// the end of file is wrong at the end, it went wrong there. -1 is none.
func (tr *Trace) unlockedSize() int {
	orders := func(lock explore.Named) bool { return lock.Class == "i_rwsem" || lock.Class == "range_lock" }
	for i := len(tr.Steps) - 1; i >= 0; i-- {
		s := &tr.Steps[i]
		if s.Kind == "atomic" && s.What.Object == "i_size" && !slices.ContainsFunc(s.Held, orders) {
			return i
		}
	}
	return -1
}

// nameTried says of a try of i_rwsem that it was shared, where its task has it shared after it.
func nameTried(steps []TraceStep) {
	for i := range steps {
		s := &steps[i]
		if s.Kind != "trylock" || s.Class != inode.Class.Name {
			continue
		}
		for _, next := range steps[i+1:] {
			if next.Task != s.Task {
				continue
			}
			for _, l := range next.Held {
				if l.Class == s.Class && strings.HasSuffix(l.Name, Shared) && !slices.Contains(s.Held, l) {
					s.What.Object = l.Name
				}
			}
			break
		}
	}
}

// nameUnlocked gives what a step unlocks the name under which its task has locked it, where that is
// the only one of its kind that it can be: "unlock extent [0, 4K)" for a lock that has no name of
// its own.
func nameUnlocked(steps []TraceStep) {
	open := map[int][]explore.Named{} // by task
	for i := range steps {
		s := &steps[i]
		lock := explore.Named{Name: s.What.Object, Class: s.Class}
		if s.Kind == "lock" {
			open[s.Task] = append(open[s.Task], lock)
		}
		if s.Kind != "unlock" {
			continue
		}
		l := open[s.Task]
		at := slices.Index(l, lock)
		if at < 0 {
			held := s.Held // a range is taken off the list before its unlock
			of := func(n explore.Named) bool { return n.Class == lock.Class && !slices.Contains(held, n) }
			at = slices.IndexFunc(l, of)
			if at < 0 || slices.ContainsFunc(l[at+1:], of) {
				continue
			}
			s.What.Object = l[at].Name
		}
		open[s.Task] = slices.Delete(l, at, at+1)
	}
}

// words puts an operation of a kind as people say it.
func words(kind string, d *explore.Detail) What {
	w := What{Verb: kind, Object: d.Object, Value: d.Value}
	switch {
	case kind == "load" && d.Object == "fault_in":
		return What{Verb: "fault", Prep: "in", Object: "the source"}
	case kind == "load":
		w.Verb = "read"
	case kind == "atomic":
		w.Verb = "change"
	case kind == "arrive":
		w.Verb, w.Prep = "queue", "for"
	case kind == "device":
		w.Verb, w.Prep = "transfer", "to or from"
	}
	return w
}

// where is the function that a step is in: the innermost of somebody's own code with its line, or
// else that of the rooms of the write path that have a story.
func where(stack explore.Stack) string {
	for _, at := range stack {
		if own, ok := strings.CutPrefix(at.Func, module.Path+"/labs/"); ok && !strings.HasPrefix(own, "kit.") {
			return fmt.Sprintf("%s:%d", own[strings.LastIndexByte(own, '.')+1:], at.Line)
		}
	}
	for _, at := range stack {
		for _, room := range [...]string{"/iopath/buffered.", "/iopath/setsize.", "/iopath/fallocate.", "/iopath/fsync.", "/data/writeback.", "/data/fileread.", "/data/finish.", "/data/place.", "/data/zero."} {
			if _, f, ok := strings.Cut(at.Func, room); ok {
				if i := strings.LastIndexByte(f, '.'); i >= 0 && !strings.HasPrefix(f[i+1:], "func") && !strings.HasPrefix(f[i+1:], "deferwrap") {
					f = f[i+1:]
				} else if i >= 0 {
					f, _, _ = strings.Cut(f, ".")
				}
				return f
			}
		}
	}
	return ""
}

// Label is the step in words, with the function of the write path it is in.
func (s *TraceStep) Label() string {
	if s.Where != "" {
		return s.Where + ": " + s.What.String()
	}
	return s.What.String()
}

// Begins is the operation that begins in the step, and false for none.
func (s *TraceStep) Begins() (Note, bool) {
	i := slices.IndexFunc(s.Notes, func(n Note) bool { return n.Event == Begins })
	if i < 0 {
		return Note{}, false
	}
	return s.Notes[i], true
}

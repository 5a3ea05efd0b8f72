package scenario

import (
	"slices"
	"strings"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/lock/lockdep"
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
	Tasks       []string `json:"tasks"`   // by number; those behind the scenario's own are daemons
	Own         int      `json:"own"`     // how many of Tasks are the scenario's
	Columns     []string `json:"columns"` // names of TraceStep.State
	Steps       []TraceStep
	// Violating is the step at which the violation shows, -1 for none or only at the end.
	Violating int `json:"violating"`
	// Stuck are the tasks that wait for ever.
	Stuck  []TraceStuck `json:"stuck,omitempty"`
	Replay string       `json:"replay"`
}

// TraceStuck is a task that waits for ever.
type TraceStuck struct {
	Task int      `json:"task"`
	For  string   `json:"for"`            // a lock or an event
	By   int      `json:"by"`             // the task that holds or owes it, -1 for nobody known
	Whom string   `json:"whom,omitempty"` // For and By in words
	Held []string `json:"held,omitempty"` // locks
}

// TraceStep is one step of one task.
type TraceStep struct {
	Step  int           `json:"step"`
	Task  int           `json:"task"`
	Kind  string        `json:"kind"`  // lock, unlock, trylock, arrive, wait, wake, atomic, load, device, start, resume
	Class string        `json:"class"` // lock class
	What  string        `json:"what"`  // operation and object
	Where string        `json:"where"` // the write path's function
	Notes []string      `json:"notes,omitempty"`
	State []string      `json:"state"`          // by Trace.Columns, after the step
	Held  []string      `json:"held,omitempty"` // locks, before the step
	Stack explore.Stack `json:"stack,omitempty"`
	// Enabled and Blocked are tasks as bits: could run, stood at a closed lock or wait.
	Enabled, Blocked uint64
	Preempts         bool `json:"preempts"`
	Obj              int  `json:"obj"` // number of the object, 0 for none
	// Val is what a choice of NVal values took; NVal is 0 for other steps.
	Val  int `json:"val"`
	NVal int `json:"nval"`
}

// Replay runs the scenario under p by a schedule and records every step.
func Replay(s *Scenario, p *policy.Policy, schedule string, own bool) (*Trace, error) {
	cfg, err := s.Config()
	if err != nil {
		return nil, err
	}
	prog, err := s.Program(p, own)
	if err != nil {
		return nil, err
	}
	x := explore.Replay(cfg, schedule, prog)
	return s.trace(p, &x, own), nil
}

func (s *Scenario) trace(p *policy.Policy, x *explore.Execution, own bool) *Trace {
	tr := TraceOf(x, len(s.Tasks))
	tr.Scenario, tr.About, tr.Policy, tr.Replay = s.Name, s.About, p.Name, s.replayCommand(p.Name, x.Schedule, own)
	return tr
}

// TraceOf is the trace of an execution that explore.Replay has recorded. The first own of its tasks are no daemons.
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
			ts.What, ts.Notes, ts.State, ts.Held, ts.Stack = words(d.What), d.Notes, d.State, d.Held, d.Stack
			ts.Where = where(d.Stack)
		}
		tr.Steps = append(tr.Steps, ts)
	}
	for _, k := range x.Stuck {
		tr.Stuck = append(tr.Stuck, TraceStuck(k))
	}
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

// unlockedSize is the last step that changed i_size without i_rwsem and without a byte range: when the end of file is wrong at the end,
// it went wrong there. -1 is none.
func (tr *Trace) unlockedSize() int {
	orders := func(lock string) bool {
		return strings.HasPrefix(lock, "i_rwsem") || strings.HasPrefix(lock, "range_lock")
	}
	for i := len(tr.Steps) - 1; i >= 0; i-- {
		s := &tr.Steps[i]
		if s.What == "change i_size" && !slices.ContainsFunc(s.Held, orders) {
			return i
		}
	}
	return -1
}

// nameUnlocked gives what a step unlocks the name under which its task has locked it, where that is the only one of its kind that
// it can be: "unlock extent [0, 4K)" for a lock that has no name of its own.
func nameUnlocked(steps []TraceStep) {
	open := map[int][]string{} // by task
	for i := range steps {
		s := &steps[i]
		if name, ok := strings.CutPrefix(s.What, "lock "); ok {
			open[s.Task] = append(open[s.Task], name)
			continue
		}
		name, ok := strings.CutPrefix(s.What, "unlock ")
		if !ok {
			continue
		}
		l := open[s.Task]
		at := slices.Index(l, name)
		if at < 0 {
			kind, _, _ := strings.Cut(name, " ")
			held := s.Held // a range is taken off the list in front of its unlock
			of := func(n string) bool { return (n == kind || strings.HasPrefix(n, kind+" ")) && !slices.Contains(held, n) }
			at = slices.IndexFunc(l, of)
			if at < 0 || slices.ContainsFunc(l[at+1:], of) {
				continue
			}
			s.What = "unlock " + l[at]
		}
		open[s.Task] = slices.Delete(l, at, at+1)
	}
}

// words puts an operation as people say it.
func words(what string) string {
	kind, obj, _ := strings.Cut(what, " ")
	switch kind {
	case "load":
		if obj == "fault_in" {
			return "fault in the source"
		}
		return "read " + obj
	case "atomic":
		return "change " + obj
	case "arrive":
		return "queue for " + obj
	case "device":
		return "transfer to or from " + obj
	}
	return what
}

// where is the function of the write path that a step is in: the innermost of the rooms that have a story.
func where(stack explore.Stack) string {
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
		return s.Where + ": " + s.What
	}
	return s.What
}

// Begins is the operation that begins in the step, as "2: truncate to 4K"; empty for none.
func (s *TraceStep) Begins() string {
	for _, n := range s.Notes {
		num, op, ok := strings.Cut(n, ": ")
		if word, _, _ := strings.Cut(op, " "); ok && num != "" && strings.Trim(num, "0123456789") == "" && slices.Contains(opNames[:], word) {
			return n
		}
	}
	return ""
}

package park

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// Plan is what a kernel is led through: a schedule of a scenario, as calls of tasks and the places
// where they stop.
type Plan struct {
	Trace  *scenario.Trace // of the engine, which takes the schedule under a policy
	Engine Ending
	Setup  []Call   // before the tasks begin, one after the other
	Tasks  [][]Call // of each task
	Steps  []Step   // in the order in which the tasks take them
	// Victims are the tasks that go on after the last step, in this order: those that break where
	// the engine's do not end.
	Victims []Victim
}

// NewPlan runs a schedule of a scenario in the engine and makes its plan for a kernel that has the
// functions that has reports.
func NewPlan(s *scenario.Scenario, p *policy.Policy, schedule string, has func(function string) bool) (*Plan, error) {
	calls, err := Calls(s)
	if err != nil {
		return nil, err
	}
	l := &Plan{Setup: warm(s), Tasks: calls}
	l.Trace, err = scenario.Replay(s.WithEnd(func(h *oracle.History) error {
		l.Engine = Ending{Size: h.FinalSize, Bytes: slices.Clone(h.Final)}
		return nil
	}), p, schedule, false)
	if err != nil {
		return nil, err
	}
	switch l.Trace.Kind {
	case explore.OK, explore.KindOracle:
	case explore.KindNowait, explore.KindDeadlock:
		l.Victims = victims(l.Trace, s)
	default:
		return nil, fmt.Errorf("%s under %s: %w: %s", s.Name, p.Name, ErrNoEnd, l.Trace.Violation)
	}
	l.Engine.Errors = engineErrors(l.Trace, s)
	l.Steps = order(l.Trace, s, has)
	return l, nil
}

// ErrNoCall means that a scenario has something that no task of Linux is made to do, and ErrNoEnd
// that the engine breaks in a way that is seen in the engine only.
var (
	ErrNoCall = errors.New("no task of a kernel is asked for that")
	ErrNoEnd  = errors.New("the engine does not come to an end")
)

// Victim is a task that breaks, and the number of its operation that does, from 0.
type Victim struct{ Task, Op int }

// victims are the tasks that break: one whose NOWAIT request sleeps, or all that have not ended.
func victims(tr *scenario.Trace, s *scenario.Scenario) (list []Victim) {
	lines := linesOf(tr, s, func(string) bool { return false })
	for i := range lines {
		op := lines[i].op
		if !lines[i].ended && (tr.Kind == explore.KindDeadlock || op >= 0 && s.Tasks[i].Ops[op].Nowait) {
			list = append(list, Victim{i, op})
		}
	}
	return list
}

// engineErrors are the errors of the engine's operations.
func engineErrors(tr *scenario.Trace, s *scenario.Scenario) []string {
	n := 0
	for _, t := range s.Tasks {
		n += len(t.Ops)
	}
	list := make([]string, n)
	for i := range tr.Steps {
		for _, note := range tr.Steps[i].Notes {
			if note.Event == scenario.Fails && int(note.Op) <= n {
				list[note.Op-1] = note.Text
			}
		}
	}
	return list
}

// warm brings memory into the state that the scenario begins with.
func warm(s *scenario.Scenario) []Call {
	var list []Call
	for _, c := range s.File.Cached {
		list = append(list, Call{Verb: "read", File: scenario.FileName, Off: s.File.At + c.Lo, N: c.Hi - c.Lo})
	}
	for _, c := range s.File.Dirty {
		list = append(list, Call{Verb: "write", File: scenario.FileName, Off: s.File.At + c.Lo, N: c.Hi - c.Lo, Fill: oracle.PaintInitial})
	}
	if s.File.Privileged {
		list = append(list, Call{Verb: "privilege", File: scenario.FileName})
	}
	return list
}

// Calls are the calls of a scenario's tasks.
func Calls(s *scenario.Scenario) ([][]Call, error) {
	if s.DirtyLimit != 0 || s.Before != nil || s.File.Compressed || s.Profile != "" {
		return nil, fmt.Errorf("scenario %s: %w: limits of dirty pages, renames before it, compression, or several devices", s.Name, ErrNoCall)
	}
	id := byte(0)
	list := make([][]Call, len(s.Tasks))
	for i, t := range s.Tasks {
		for _, o := range t.Ops {
			id++
			c, err := call(s, &o, id)
			if err != nil {
				return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
			}
			list[i] = append(list[i], c)
		}
	}
	return list, nil
}

var verbs = map[scenario.OpKind]string{scenario.OpWrite: "write", scenario.OpRead: "read", scenario.OpTruncate: "truncate", scenario.OpPunch: "punch",
	scenario.OpFallocate: "falloc", scenario.OpFsync: "fsync", scenario.OpFlush: "start", scenario.OpDrop: "drop", scenario.OpMap: "map", scenario.OpSync: "sync"}

func call(s *scenario.Scenario, o *scenario.Op, id byte) (Call, error) {
	verb := verbs[o.Kind]
	if verb == "" || o.Queued || o.Ring != 0 || o.Async || o.Second {
		return Call{}, fmt.Errorf("%s: %w", o, ErrNoCall)
	}
	return Call{Verb: verb, File: scenario.FileName, Off: s.File.At + o.Off, N: o.N, Fill: id, Direct: o.Direct, Append: o.Append, DSync: o.DSync,
		Nowait: o.Nowait, Mapped: o.Mapped, MapOff: s.File.At + o.MapOff, Short: o.Short}, nil
}

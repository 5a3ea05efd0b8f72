package park

import (
	"fmt"
	"slices"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// Step is a part of a schedule as Linux is to do it: a task goes on until it stands before a step
// of the engine's.
type Step struct {
	Task int `json:"task"`
	// Before is the engine's step that the task stands before then; "" is after its last one.
	Before string `json:"before,omitempty"`
	// Places are where the task is parked on its way there, one after the other.
	Places []string `json:"places"`
	// Names are, for each place, the names of its function in Linux from 5.10 to 7.3.
	Names [][]string `json:"-"`
	// Waits says that the task waits for another one there, in the engine.
	Waits bool `json:"waits,omitempty"`
	// Merged are the engine's steps that come after the switch in the engine, and before it here,
	// since no function of Linux begins with them.
	Merged []string `json:"merged,omitempty"`
	// Said is what Linux did.
	Said string `json:"said,omitempty"`
}

// anchor is a step of a task that has a place in Linux.
type anchor struct {
	step  int // of the trace
	place string
	names []string
}

// gateNames are the names of the gate.
var gateNames = []string{Gate}

// line is what a task does in a trace.
type line struct {
	steps   []int
	anchors []anchor
	at      int // the anchor that it stands at; the first is the gate before its first operation
	op      int // the operation that it is in at the end of the trace; -1 before the first
	ended   bool
	// beyond has the place of the step after its last one, if the trace ends before that.
	beyond anchor
}

// order turns the engine's execution into steps for Linux. Workers are left out: those of Linux
// come when they come.
func order(tr *scenario.Trace, s *scenario.Scenario, has func(string) bool) []Step {
	lines := linesOf(tr, s, has)
	var list []Step
	for i := 0; i < len(tr.Steps); {
		task := tr.Steps[i].Task
		end := i // after the last step of this turn
		for k := i; k < len(tr.Steps) && (tr.Steps[k].Task == task || tr.Steps[k].Task >= tr.Own); k++ {
			if tr.Steps[k].Task == task {
				end = k + 1
			}
		}
		if task >= tr.Own {
			i++
			continue
		}
		if x := lines[task].turn(tr, task, end); x != nil {
			list = append(list, *x)
		}
		i = end
	}
	return list
}

// turn is the step in which a task does what it does in the trace before end; nil if that is
// nothing that can be told.
func (l *line) turn(tr *scenario.Trace, task, end int) *Step {
	x := Step{Task: task}
	next, before := -1, -1
	for _, k := range l.steps {
		if k >= end {
			next = k
			break
		}
		before = k
	}
	waits := next >= 0 && end < len(tr.Steps) && tr.Steps[end].Blocked>>task&1 == 1
	if next >= 0 && !waits && tr.Steps[next].Kind == "lock" && before >= 0 && tr.Steps[before].Kind == "arrive" {
		next = before // to queue for a lock and to take it is one call in Linux
	}
	if next < 0 {
		for l.at++; l.at < len(l.anchors); l.at++ {
			x.pass(l.anchors[l.at])
		}
		switch {
		case l.beyond.place != "":
			x.Before = "its next step"
			x.pass(l.beyond)
		case !l.ended:
			x.Before = "the step with which it breaks"
		}
		if len(x.Places) == 0 {
			return nil
		}
		return &x
	}
	x.Before = stepText(&tr.Steps[next])
	x.Waits = waits
	from := l.at
	for l.at+1 < len(l.anchors) && l.anchors[l.at].step < next {
		l.at++
		x.pass(l.anchors[l.at])
	}
	for _, k := range l.steps {
		if k >= next && k < l.anchors[l.at].step && !waits {
			x.Merged = append(x.Merged, stepText(&tr.Steps[k]))
		}
	}
	if l.at == from {
		return nil
	}
	if waits {
		l.at-- // on its way there it waits, and comes there with its next turn
	}
	return &x
}

// pass adds a place.
func (x *Step) pass(a anchor) {
	x.Places, x.Names = append(x.Places, a.place), append(x.Names, a.names)
}

// linesOf finds the places of each task's steps. The last anchor of each is the gate after its last
// operation, if it comes to it.
func linesOf(tr *scenario.Trace, s *scenario.Scenario, has func(string) bool) []line {
	lines := make([]line, tr.Own)
	seen := make([][]*point, tr.Own) // of the operation that a task is in
	for i := range lines {
		lines[i].op = -1
	}
	for i := range tr.Steps {
		x := &tr.Steps[i]
		if x.Task >= tr.Own {
			continue
		}
		l := &lines[x.Task]
		l.steps = append(l.steps, i)
		if x.Kind == "call" {
			l.op++
			seen[x.Task] = nil
			l.anchors = append(l.anchors, anchor{i, Gate, gateNames})
		}
		if l.op < 0 {
			continue
		}
		ops := s.Tasks[x.Task].Ops
		if slices.ContainsFunc(x.Notes, func(n scenario.Note) bool { return n.Event == scenario.Returns || n.Event == scenario.Fails }) {
			l.ended = l.op == len(ops)-1
		}
		if p, f := find(ops[l.op].Kind, stepText(x), has); f != "" && !(p.first && slices.Contains(seen[x.Task], p)) {
			seen[x.Task] = append(seen[x.Task], p)
			l.anchors = append(l.anchors, anchor{i, f, p.functions})
		}
	}
	for i := range lines {
		switch l := &lines[i]; {
		case l.ended:
			l.anchors = append(l.anchors, anchor{len(tr.Steps), Gate, gateNames})
		case tr.Kind != explore.KindDeadlock && l.op >= 0 && len(seen[i]) > 0:
			// It has taken its last step, and nothing says where the next one is.
			if o := &s.Tasks[i].Ops[l.op]; !o.Nowait {
				l.beyond = after(seen[i][len(seen[i])-1], has)
			}
		}
	}
	return lines
}

// stepText is a step as a timeline prints it.
func stepText(x *scenario.TraceStep) string {
	if x.Where == "" {
		return x.What.String()
	}
	return fmt.Sprintf("%s: %s", x.Where, x.What)
}

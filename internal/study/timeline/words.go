package timeline

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// The words of a Play, which the terminal and the browser both show.

// Name is a task with its number.
func (p *Play) Name(task int) string { return fmt.Sprintf("%d %s", task, p.tr.Tasks[task]) }

// Why is the reason why task cannot step now.
func (p *Play) Why(task int) string {
	if task < 0 || task >= len(p.tr.Tasks) {
		return fmt.Sprintf("there is no task %d", task)
	}
	if p.Over() {
		return "nothing is left to do: u takes a step back"
	}
	m := p.Now()
	switch a := m.Tasks[task]; a.Phase {
	case Ended, Idle:
		return p.Name(task) + " has nothing left to do"
	case Waiting:
		if h := m.Holder(task); h >= 0 {
			return fmt.Sprintf("%s waits for %s: %s must go on first", p.Name(task), a.For, p.Name(h))
		}
		return p.Name(task) + " waits for " + a.For.Name
	}
	return p.Name(task) + " cannot run in this step"
}

// Status describes the state of task now, in a few words; m is Now.
func (p *Play) Status(m *Moment, task int) string {
	switch a := &m.Tasks[task]; {
	case a.Phase == Waiting:
		s := "WAITS for " + a.For.Name
		if h := m.Holder(task); h >= 0 {
			s += fmt.Sprintf(": task %d", h)
		}
		return s
	case a.Phase != Ready:
		return a.Phase.String()
	case p.Can(task):
		return "can run"
	}
	return "not now"
}

// Coming is the task's next step with the function that it lies in, empty when there is none.
func (a *TaskAt) Coming() string {
	if a.Next == "" || a.Where == "" || a.Next == "begin" {
		return a.Next
	}
	return a.Next + " in " + a.Where
}

// Holding says what the task holds, an i_rwsem shared or exclusive. It is empty for a task that
// does nothing.
func (a *TaskAt) Holding() string {
	switch {
	case len(a.Held) > 0:
		l := slices.Clone(a.Held)
		for i := range l {
			if l[i].Class == "i_rwsem" && !strings.HasSuffix(l[i].Name, scenario.Shared) {
				l[i].Name += " exclusive"
			}
		}
		return "holds " + Names(l)
	case a.Phase == Ready || a.Phase == Waiting:
		return "holds nothing"
	}
	return ""
}

// Did describes step i, with the notes of its task.
func Did(s *scenario.TraceStep) string {
	text := s.Label()
	begins, ok := s.Begins()
	if ok {
		text = begins.String()
	}
	for _, n := range s.Notes {
		if n != begins {
			text += fmt.Sprintf(" [%v]", n)
		}
	}
	return text
}

// Tells reports whether step s is worth a line in the list of the steps done: the start of a task
// shows nothing unless it preempts.
func Tells(s *scenario.TraceStep) bool { return s.Kind != "start" || s.Preempts }

// Verdict is the judgement of a schedule that has ended.
func (p *Play) Verdict() string {
	if p.tr.Kind == explore.OK {
		return "KEPT" + strings.TrimPrefix(p.tr.Kept(), "kept") + ". u takes a step back, b begins again"
	}
	return fmt.Sprintf("VIOLATED (%s): %s", p.tr.Kind, strings.TrimSpace(p.tr.Violation.String()))
}

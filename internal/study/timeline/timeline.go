// Package timeline makes one recorded execution of a scenario something to look at: what each task
// does, which locks it holds, which task it waits for, and what the file looks like, step by step.
// At answers these questions for one moment, WriteText prints and WriteHTML draws all of them, and
// Play lets a person choose the next task and take the choice back.
//
// Model: a moment n is the one before step n. What a task does next is taken from the steps after
// n, since a task that stands before an operation does that one whichever task goes first. A task
// without steps after n has ended, or waits for ever, which the trace says.
package timeline

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// Phase is the state of a task at one moment.
type Phase uint8

// The phases.
const (
	Ready   Phase = iota // nothing it needs is missing for its next step
	Waiting              // at a closed lock, or in a wait that no task has ended yet
	Ended                // it has nothing left to do
	Idle                 // a daemon with nothing left to do
	Cut                  // the execution broke off before it could go on
)

func (p Phase) String() string { return [...]string{"can run", "waits", "ended", "idle", "cut off"}[p] }

// TaskAt is one task at one moment.
type TaskAt struct {
	Phase Phase
	// the operation it is in or begins next, as "2: truncate to 4K"; empty for daemons and after
	// the last
	Op    string
	Where string        // the function of the write path in which its next step lies
	Next  string        // its next step, empty when there is none
	For   explore.Named // while Waiting: the lock or the wait
	// while Waiting for ever: the task that would have to go on, -1 for nobody known
	By   int
	Whom string          // while Waiting for ever: For and By in words, empty without By
	Held []explore.Named // locks
}

// Moment is the state of an execution before a step.
type Moment struct {
	Step  int // the step that comes next; len(Trace.Steps) at the end
	Tasks []TaskAt
	State []string // by Trace.Columns; nil before the first step
}

// At returns the moment before step n of tr.
func At(tr *scenario.Trace, n int) Moment {
	m := Moment{Step: n, Tasks: make([]TaskAt, len(tr.Tasks))}
	for i := n - 1; i >= 0 && m.State == nil; i-- {
		if len(tr.Steps[i].State) > 0 {
			m.State = tr.Steps[i].State
		}
	}
	for t := range tr.Tasks {
		m.Tasks[t] = taskAt(tr, n, t)
	}
	return m
}

func taskAt(tr *scenario.Trace, n, task int) TaskAt {
	a := TaskAt{Phase: Ended}
	var in scenario.Note // the operation that it is in
	for _, s := range tr.Steps[:n] {
		if s.Task != task {
			continue
		}
		for _, note := range s.Notes {
			switch {
			case note.Event == scenario.Begins:
				in = note
			case note.Event == scenario.Returns && note.Op == in.Op:
				in = scenario.Note{}
			}
		}
	}
	a.Op = in.String()
	next := nextOf(tr, n, task)
	if next < 0 {
		if k := stuck(tr, task); k != nil && n < len(tr.Steps) && tr.Steps[n].Enabled>>task&1 != 0 {
			// The wait that never ends is not begun: another task takes the lock first.
			a.Phase, a.Held = Ready, k.Held
		} else if k != nil {
			a.Phase, a.For, a.By, a.Whom, a.Held = Waiting, k.For, k.By, k.Whom, k.Held
		} else if task >= tr.Own {
			a.Phase = Idle
		} else if a.Op != "" && breaksOff(tr.Kind) {
			a.Phase = Cut
		}
		return a
	}
	s := &tr.Steps[next]
	a.Next, a.Where, a.Held = s.What.String(), s.Where, heldBefore(s)
	switch {
	case s.Kind == "call":
		a.Next = "begin"
	case s.NVal > 0: // the value is not chosen yet
		a.Next = fmt.Sprintf("%s %s, 0 to %d", s.What.Verb, s.What.Object, s.NVal-1)
	}
	if begins, ok := s.Begins(); ok && a.Op == "" {
		a.Op = begins.String()
	}
	a.Phase, a.For = phase(&tr.Steps[n], s, task)
	return a
}

// phase returns the state of task, whose next step is next, before the step now.
func phase(now, next *scenario.TraceStep, task int) (Phase, explore.Named) {
	parked := next.Kind == "resume" || next.Kind == "awake"
	if now.Blocked>>task&1 == 0 && (!parked || now.Enabled>>task&1 != 0) {
		return Ready, explore.Named{}
	}
	if next.What.Object == "" {
		return Waiting, explore.Named{Name: "its time"}
	}
	return Waiting, explore.Named{Name: next.What.Object, Class: next.Class}
}

// breaksOff says whether a violation of this kind ends an execution in the middle.
func breaksOff(k explore.Kind) bool {
	return k != explore.OK && k != explore.KindOracle && k != explore.KindLeftover
}

// nextOf is the first step of task from n on, or -1.
func nextOf(tr *scenario.Trace, n, task int) int {
	for i := n; i < len(tr.Steps); i++ {
		if tr.Steps[i].Task == task {
			return i
		}
	}
	return -1
}

// heldBefore lists the locks that the task of s holds before it: a lock that s takes is not held
// yet, even where the task has noted it already, and one that it lets go is, even where it has not
// any more.
func heldBefore(s *scenario.TraceStep) []explore.Named {
	l := slices.Clone(s.Held)
	lock := explore.Named{Name: s.What.Object, Class: s.Class}
	if s.What.Verb == "lock" && len(l) > 0 && l[len(l)-1] == lock {
		l = l[:len(l)-1]
	}
	if s.What.Verb == "unlock" && !slices.Contains(l, lock) && lock.Name != lock.Class {
		l = append(l, lock)
	}
	return l
}

// stuck describes the wait of task when it waits for ever; nil when it does not.
func stuck(tr *scenario.Trace, task int) *scenario.TraceStuck {
	for i := range tr.Stuck {
		if k := &tr.Stuck[i]; k.Task == task && k.For.Name != "" {
			return k
		}
	}
	return nil
}

// Shown are the tasks worth a column: the scenario's own, and daemons that do more than start.
func Shown(tr *scenario.Trace) []int {
	var l []int
	for t := range tr.Tasks {
		n := 0
		for _, s := range tr.Steps {
			if s.Task == t {
				n++
			}
		}
		if t < tr.Own || n > 1 {
			l = append(l, t)
		}
	}
	return l
}

// Culprit is the step to point at: where the execution broke off, or, when an oracle judged the end
// of it, the last step of one of the scenario's tasks that changed the file as the state columns
// show it, i_size first. It is -1 when nothing was violated or nothing changed.
func Culprit(tr *scenario.Trace) int {
	if tr.Kind == explore.OK || tr.Violating >= 0 {
		return tr.Violating
	}
	for _, name := range [...]string{"i_size", "pages"} {
		col := slices.Index(tr.Columns, name)
		if col < 0 {
			continue
		}
		for i := len(tr.Steps) - 1; i > 0; i-- {
			s, before := &tr.Steps[i], &tr.Steps[i-1]
			if s.Task < tr.Own && col < len(s.State) && col < len(before.State) && s.State[col] != before.State[col] {
				return i
			}
		}
	}
	return -1
}

// culpritText says what the step is that Culprit finds.
func culpritText(tr *scenario.Trace) string {
	switch {
	case tr.Kind == explore.KindOracle && tr.Violating >= 0:
		return "which changes i_size without i_rwsem"
	case tr.Kind == explore.KindDeadlock || tr.Kind == explore.KindLost || tr.Kind == explore.KindGone:
		return "after which no task can go on"
	case tr.Kind == explore.KindLivelock:
		return "after which the search looked no further"
	case tr.Violating < 0:
		return "the last change of the file that the verdict is about"
	}
	return "where it breaks"
}

// pageLetters is the legend of the pages column in table and page: see pagecache.Mapping.Describe.
const pageLetters = "- not in memory, c clean, n new, D dirty, W under writeback, B both"

// inMemory is how many letters of the pages column, from the left, are ever other than "-": the
// pages after them are never in memory.
func inMemory(tr *scenario.Trace) int {
	c := slices.Index(tr.Columns, "pages")
	n := 1
	for i := range tr.Steps {
		if s := tr.Steps[i].State; c >= 0 && c < len(s) {
			n = max(n, len(strings.TrimRight(s[c], "-")))
		}
	}
	return n
}

// cell is the value of column c in state, of the pages the first ones.
func cell(tr *scenario.Trace, state []string, c, pages int) string {
	if c >= len(state) {
		return ""
	}
	v := state[c]
	if tr.Columns[c] == "pages" && len(v) > pages {
		v = v[:pages]
	}
	return v
}

// span is a stretch of steps [From, To) in a lane.
type span struct {
	From, To int
	What     string
}

// heldSpans are the locks that task holds over whole steps, by lock and in order.
func heldSpans(tr *scenario.Trace, task int) []span {
	var done []span
	open := map[explore.Named]int{}
	step := func(held []explore.Named, at int) {
		for _, l := range held {
			if _, ok := open[l]; !ok {
				open[l] = at
			}
		}
		for l, from := range open {
			if !slices.Contains(held, l) {
				done = append(done, span{from, at, l.Name})
				delete(open, l)
			}
		}
	}
	// A lock taken in step i is in Held of the task's next step, j: it is held from i on. One given
	// up in j is not in Held of the step after j.
	last := 0
	for i := range tr.Steps {
		if tr.Steps[i].Task == task {
			step(heldBefore(&tr.Steps[i]), last)
			last = i
		}
	}
	if k := stuck(tr, task); k != nil {
		step(k.Held, last)
	} else {
		step(nil, last)
	}
	step(nil, len(tr.Steps))
	slices.SortFunc(done, func(a, b span) int {
		if a.From != b.From {
			return a.From - b.From
		}
		return strings.Compare(a.What, b.What)
	})
	return done
}

// waitSpans are the stretches in which task cannot go on.
func waitSpans(tr *scenario.Trace, task int) []span {
	var l []span // backwards
	forever := ""
	if k := stuck(tr, task); k != nil {
		forever = k.For.Name
	}
	next := -1
	for n := len(tr.Steps) - 1; n >= 0; n-- {
		if tr.Steps[n].Task == task {
			next = n
			continue
		}
		what := forever
		if next < 0 && tr.Steps[n].Enabled>>task&1 != 0 {
			what = ""
		}
		if next >= 0 {
			_, on := phase(&tr.Steps[n], &tr.Steps[next], task)
			what = on.Name
		}
		if what == "" {
			continue
		}
		if k := len(l) - 1; k >= 0 && l[k].From == n+1 && l[k].What == what {
			l[k].From = n
		} else {
			l = append(l, span{n, n + 1, what})
		}
	}
	slices.Reverse(l)
	// It does not wait before it exists.
	if first := nextOf(tr, 0, task); first >= 0 {
		l = slices.DeleteFunc(l, func(s span) bool { return s.From < first })
	}
	return l
}

// plain is the name of a lock without the mode in which a task has it.
func plain(l explore.Named) explore.Named {
	l.Name = strings.TrimSuffix(l.Name, scenario.Shared)
	return l
}

// Holder finds the task that holds what task waits for, or -1. A lock has not the same name for its
// holder and for the task that waits for it when only one of them knows what it locks, so one of
// the same class will do when only one other task holds one.
func (m *Moment) Holder(task int) int {
	want := m.Tasks[task].For
	if m.Tasks[task].Phase != Waiting || want.Name == "" {
		return -1
	}
	if m.Tasks[task].Whom != "" {
		return m.Tasks[task].By
	}
	found, n := -1, 0
	for t, a := range m.Tasks {
		if t == task {
			continue
		}
		if slices.ContainsFunc(a.Held, func(l explore.Named) bool { return plain(l) == plain(want) }) {
			return t
		}
		if want.Class != "" && slices.ContainsFunc(a.Held, func(l explore.Named) bool { return l.Class == want.Class }) {
			found, n = t, n+1
		}
	}
	if n != 1 {
		return -1
	}
	return found
}

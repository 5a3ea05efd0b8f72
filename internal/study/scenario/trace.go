package scenario

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched/explore"
)

// Trace is one execution of a scenario, step by step.
type Trace struct {
	Scenario string       `json:"scenario"`
	About    string       `json:"about"`
	Policy   string       `json:"policy"`
	Schedule string       `json:"schedule"`
	Kind     explore.Kind `json:"kind,omitempty"` // of the violation; empty when all was kept
	Message  string       `json:"message,omitempty"`
	// Preemptions of the schedule.
	Preemptions int      `json:"preemptions"`
	Tasks       []string `json:"tasks"`   // by number; those behind the scenario's own are daemons
	Own         int      `json:"own"`     // how many of Tasks are the scenario's
	Columns     []string `json:"columns"` // names of TraceStep.State
	Steps       []TraceStep
	// Violating is the step at which the violation shows, -1 for none or only at the end.
	Violating int    `json:"violating"`
	Replay    string `json:"replay"`
}

// TraceStep is one step of one task.
type TraceStep struct {
	Step  int      `json:"step"`
	Task  int      `json:"task"`
	Kind  string   `json:"kind"`  // lock, unlock, trylock, arrive, wait, wake, atomic, load, device, start, resume
	Class string   `json:"class"` // lock class
	What  string   `json:"what"`  // operation and object
	Where string   `json:"where"` // the write path's function
	Notes []string `json:"notes,omitempty"`
	State []string `json:"state"` // by Trace.Columns, after the step
	Held  string   `json:"held"`  // before the step
	Stack string   `json:"stack,omitempty"`
	// Enabled and Blocked are tasks as bits: could run, stood at a closed lock or wait.
	Enabled, Blocked uint64
	Preempts         bool `json:"preempts"`
	Obj              int  `json:"obj"` // number of the object, 0 for none
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
	tr := &Trace{Scenario: s.Name, About: s.About, Policy: p.Name, Schedule: x.Schedule, Kind: x.Verdict, Message: x.Message,
		Preemptions: x.Preemptions, Tasks: x.Tasks, Own: len(s.Tasks), Columns: x.Watches, Violating: -1,
		Replay: s.replayCommand(p.Name, x.Schedule, own)}
	for i, st := range x.Steps {
		ts := TraceStep{Step: i, Task: st.Task, Kind: st.Kind.String(), Enabled: st.Enabled, Blocked: st.Blocked, Preempts: st.Preempts, Obj: st.Obj}
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
	for i := len(tr.Steps) - 1; i >= 0; i-- {
		s := &tr.Steps[i]
		if s.What == "change i_size" && !strings.Contains(s.Held, "i_rwsem") && !strings.Contains(s.Held, "range_lock") {
			return i
		}
	}
	return -1
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
	}
	return what
}

// where is the function of the write path that a step is in: the innermost of the rooms that have a story.
func where(stack string) string {
	for line := range strings.SplitSeq(stack, "\n") {
		fn, _, _ := strings.Cut(line, " ")
		for _, room := range [...]string{"/iopath/buffered.", "/iopath/setsize.", "/iopath/fallocate.", "/iopath/fsync.", "/data/writeback.", "/data/zero."} {
			if _, f, ok := strings.Cut(fn, room); ok {
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

// WriteText prints the trace as a table: state columns, then a column per task.
func (tr *Trace) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, policy %s, schedule %s (%s)\n", tr.Scenario, tr.Policy, quote(tr.Schedule), count(tr.Preemptions, "preemption"))
	fmt.Fprintf(&b, "%s\n\n", tr.About)
	used := make([]bool, len(tr.Tasks))
	for i := range used {
		used[i] = i < tr.Own
	}
	for _, s := range tr.Steps {
		used[s.Task] = used[s.Task] || s.Kind != "start" // a daemon that only starts is not shown
	}
	head := []string{"step"}
	head = append(head, tr.Columns...)
	head = append(head, "holds")
	nState := len(head)
	col := make([]int, len(tr.Tasks))
	for i, n := range tr.Tasks {
		if used[i] {
			col[i] = len(head)
			head = append(head, fmt.Sprintf("%d %s", i, n))
		}
	}
	rows := [][]string{head}
	add := func(at int, text string) []string {
		row := make([]string, len(head))
		row[at] = text
		return row
	}
	for i, s := range tr.Steps {
		if !used[s.Task] {
			continue
		}
		for _, n := range s.Notes {
			if !strings.HasSuffix(n, "returns") {
				rows = append(rows, add(col[s.Task], "["+n+"]"))
			}
		}
		row := add(col[s.Task], strings.TrimSpace(s.label()))
		row[0] = fmt.Sprint(i)
		if s.Preempts {
			row[0] = ">" + row[0]
		}
		if i == tr.Violating {
			row[0] = "!" + row[0]
		}
		for j, v := range s.State {
			row[1+j] = v
		}
		row[nState-1] = tr.owners(i)
		rows = append(rows, row)
		for _, n := range s.Notes {
			if strings.HasSuffix(n, "returns") {
				rows = append(rows, add(col[s.Task], "["+n+"]"))
			}
		}
	}
	widths := make([]int, len(head))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for n, r := range rows {
		var line strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			switch {
			case i == 0:
				line.WriteString(pad + c)
			case i < nState:
				line.WriteString("  " + c + pad)
			default:
				line.WriteString(" | " + c + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if n == 0 {
			b.WriteString(strings.Repeat("-", min(sum(widths)+3*len(widths), 160)) + "\n")
		}
	}
	b.WriteByte('\n')
	if tr.Preemptions > 0 {
		b.WriteString("> marks a preemption: the task before could have gone on.\n")
	}
	if tr.Violating >= 0 && tr.Kind == explore.KindOracle {
		fmt.Fprintf(&b, "! marks step %d, which changes i_size without i_rwsem.\n", tr.Violating)
	}
	if tr.Kind == explore.OK {
		b.WriteString("kept: nothing was violated in this schedule\n")
	} else {
		fmt.Fprintf(&b, "! violated (%s): %s\n", tr.Kind, tr.Message)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *TraceStep) label() string {
	l := s.What
	if s.Where != "" {
		l = s.Where + ": " + l
	}
	return l
}

// owners says who holds i_rwsem and other locks after step i: what each task holds before its next step.
func (tr *Trace) owners(i int) string {
	var l []string
	for task := range tr.Tasks {
		for j := i + 1; j < len(tr.Steps); j++ {
			if tr.Steps[j].Task == task {
				if h := tr.Steps[j].Held; h != "nothing" && h != "" {
					l = append(l, fmt.Sprintf("%d:%s", task, h))
				}
				break
			}
		}
	}
	return strings.Join(l, " ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func sum(l []int) (n int) {
	for _, x := range l {
		n += x
	}
	return n
}

package timeline

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"

	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
)

// ErrNoDebugger means that nothing is known to trace the process.
var ErrNoDebugger = fmt.Errorf("no debugger runs this program: want dlv exec, or, where the system does not say who traces it, %s=1", DebuggerEnv)

// DebuggerEnv is set for a program that a debugger runs. Linux says so itself.
const DebuggerEnv = "BTRLAB_DEBUGGER"

// Debug makes the schedules that this process replays from now on stop at each step: the moment
// is written to w, and the breakpoint is on the stack of the task that does the step. A breakpoint
// ends a process without a debugger, so Debug returns ErrNoDebugger then.
func Debug(w io.Writer) error {
	status, err := os.ReadFile("/proc/self/status")
	traced := err == nil && bytes.Contains(status, []byte("\nTracerPid:")) && !bytes.Contains(status, []byte("\nTracerPid:\t0\n"))
	if !traced && os.Getenv(DebuggerEnv) == "" {
		return ErrNoDebugger
	}
	explore.Attached = &debugger{w: w}
	return nil
}

// debugger is an explore.Debugger.
type debugger struct {
	w  io.Writer
	of *explore.Execution // the one of tr
	tr *scenario.Trace
}

// AtStep stops.
func (d *debugger) AtStep(x *explore.Execution, step int) {
	if d.of != x {
		d.of, d.tr = x, scenario.TraceOf(x, len(x.Tasks))
	}
	m := At(d.tr, step)
	m.stop(d.w, d.tr)
}

// stop writes the moment and stops in the debugger, which shows m, tr and the calls that led here.
//
//go:noinline
func (m *Moment) stop(w io.Writer, tr *scenario.Trace) {
	fmt.Fprintf(w, "\n%s", m.text(tr))
	runtime.Breakpoint()
}

// text has the step, the state, and a line for each task: what it does next and what it holds.
func (m *Moment) text(tr *scenario.Trace) string {
	var b strings.Builder
	fmt.Fprintf(&b, "step %d of %d", m.Step, len(tr.Steps))
	for i, v := range m.State {
		if v != "" {
			fmt.Fprintf(&b, "; %s %s", tr.Columns[i], v)
		}
	}
	b.WriteByte('\n')
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, t := range m.Tasks {
		mark, does := " ", t.Coming()
		switch {
		case i == tr.Steps[m.Step].Task:
			mark = ">"
		case t.Phase == Waiting:
			does = "waits for " + t.For.Name
			if h := m.Holder(i); h >= 0 {
				does += fmt.Sprintf(": task %d", h)
			}
		case t.Phase != Ready && t.Op == "": // a daemon, or a task that has returned
			continue
		case does == "":
			does = t.Phase.String()
		}
		fmt.Fprintf(table, "%s %d %s\t%s\t%s\t%s\n", mark, i, tr.Tasks[i], t.Op, does, t.Holding())
	}
	table.Flush() // into memory
	lines := strings.SplitAfter(b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " \n")
	}
	return strings.Join(lines, "\n")
}

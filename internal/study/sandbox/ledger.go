package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"btrlab/internal/study/grade"
)

// How a program with student code is run, so that code that hangs, eats memory or crashes costs the
// row that it does it in and no other:
//
//	attempt      starts the grading program, which writes its ledger before each row     (Main)
//	  the program ends itself (watch.go), crashes or is killed: the row in hand fails
//	attempt      starts it again: it takes the rows that are judged from the ledger
//	maxStops     times; then the rest is not run
//
// What happens before the first row has no row: then the report is one line, as it is when code is
// refused.

// ledger is what there is of a grading program, now and when it ends.
type ledger struct {
	Rows []grade.Row `json:"rows"`
	At   string      `json:"at,omitempty"` // the workload in hand; empty before the first
	// Wrong is why the program has ended itself.
	Wrong string `json:"wrong,omitempty"`
	// CPU is, for a program that begins, the processor time that it may take, 0 is no limit. Spent
	// says that it has taken it: Wrong is where.
	CPU   time.Duration `json:"cpu,omitempty"`
	Spent bool          `json:"spent,omitempty"`
	// Memory is, for a program that begins, the bytes that it may have; 0 is the default.
	Memory uint64 `json:"memory,omitempty"`
	// Done says that all is judged: Rows are those of the report.
	Done bool `json:"done,omitempty"`
}

// maxStops is how many rows may stop the program; after that the rows that are left are not run.
const maxStops = 3

// write replaces the file, so that a reader finds the old ledger or the new one.
func (g *ledger) write(path string) error {
	b, err := json.Marshal(g)
	if err != nil {
		return err
	}
	return Replace(path, b)
}

// Replace writes a file under another name first, so that nobody reads half of it.
func Replace(path string, b []byte) error {
	if err := os.WriteFile(path+"~", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}

// readLedger reads what write wrote. No file is an empty ledger.
func readLedger(path string) (*ledger, error) {
	g := &ledger{}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return g, nil
	case err != nil:
		return nil, err
	}
	return g, json.Unmarshal(b, g)
}

// stop fails the row in hand, and with rest all of those that are left, for which it says why.
func (g *ledger) stop(all []grade.Row, wrong string, rest bool) {
	for _, w := range all {
		why := wrong
		switch {
		case slices.ContainsFunc(g.Rows, func(r grade.Row) bool { return r.Name == w.Name }):
			continue
		case w.Name == g.At:
		case rest:
			why = "not run: the program was stopped before"
		default:
			continue
		}
		g.Rows = append(g.Rows, grade.Row{Name: w.Name, Asks: w.Asks, Max: w.Max, Result: why})
	}
	g.At, g.Wrong = "", ""
}

// attempts runs the program until every row is judged, maxStops rows have stopped it, or a
// limit of o is reached, which late says. begun is when the grading began.
func (j *Job) attempts(ctx context.Context, work, bin, report string, o Options, begun time.Time) (rows []grade.Row, late bool, err error) {
	args := []string{report}
	switch {
	case o.Workload != "":
		args = append(args, o.Workload, o.Schedule)
	case o.First || o.Schedules > 0:
		args = append(args, fmt.Sprint(o.Schedules), fmt.Sprint(o.First), "")
	}
	left := o.CPU
	if err := (&ledger{CPU: left, Memory: o.Memory}).write(report); err != nil {
		return nil, false, err
	}
	for stops := 1; ; stops++ {
		within, cancel := o.within(ctx, begun)
		var out ending
		c := command(within, work, bin, args...)
		c.Stdout, c.Stderr = &out, &out
		unwatch, unwatchRows := watchFile(report+progressSuffix, o.Progress), watchRows(report, o.Judged)
		err := c.Run()
		late = within.Err() != nil
		if p := c.ProcessState; p != nil && o.CPU > 0 {
			left = max(left-p.UserTime()-p.SystemTime(), 1)
		}
		cancel()
		unwatch()
		unwatchRows()
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		g, bad := readLedger(report)
		if bad != nil {
			return nil, false, bad
		}
		if g.Done {
			return g.Rows, false, nil
		}
		wrong := []string{g.Wrong}
		switch {
		case late:
			wrong = []string{o.late()}
		case g.Spent || o.CPU > 0 && left == 1: // it has said so, or the system has ended it
			wrong, late = []string{g.Wrong + o.spent()}, true
		case g.Wrong != "":
		case err != nil:
			wrong = crash(err, out.bytes())
		default:
			wrong = []string{"the grader left no report"}
		}
		if g.At == "" && len(g.Rows) == 0 || o.Workload != "" || j.Whole {
			return grade.Refused("run", j.Max, wrong), late, nil
		}
		last := late || stops == maxStops || g.At == ""
		if g.stop(j.Rows, strings.Join(wrong, "\n"), last && !o.First); last || o.First {
			return j.Finish(g.Rows), late, nil
		}
		g.CPU, g.Memory = left, o.Memory
		if err := g.write(report); err != nil {
			return nil, false, err
		}
	}
}

// ending keeps the beginning and the end of what a program prints: student code can print without
// end.
type ending struct{ first, last []byte }

// The bytes that are kept of the beginning, and of the end at least.
const (
	maxFirst = 64 << 10
	maxLast  = 1 << 20
)

// Write keeps p.
func (e *ending) Write(p []byte) (int, error) {
	n := len(p)
	k := min(n, maxFirst-len(e.first))
	e.first, p = append(e.first, p[:k]...), p[k:]
	if e.last = append(e.last, p[max(len(p)-2*maxLast, 0):]...); len(e.last) > 2*maxLast {
		e.last = append(e.last[:0], e.last[len(e.last)-maxLast:]...)
	}
	return n, nil
}

// bytes are what was kept.
func (e *ending) bytes() []byte { return append(e.first[:len(e.first):len(e.first)], e.last...) }

// within is ctx with o's limit of time, counted from begun.
func (o *Options) within(ctx context.Context, begun time.Time) (context.Context, context.CancelFunc) {
	if o.Limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, begun.Add(o.Limit))
}

// late says that the limit of time was reached.
func (o *Options) late() string {
	return fmt.Sprintf("stopped: the grading took longer than %v", o.Limit)
}

// spent says that the limit of processor time was reached.
func (o *Options) spent() string {
	return fmt.Sprintf("stopped: the submission took more than %v of processor time", o.CPU)
}

package course

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"btrlab/internal/prose"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/judges"
)

// WriteText prints the report as a table; under it what is wrong, each with its schedule, and the
// first one's steps.
func (r *Report) WriteText(w io.Writer) error {
	var b screen
	fmt.Fprintf(&b, "lab %02d, %s: %s\n\n", r.Lab, r.Title, r.Dir)
	r.table(&b)
	if notes := r.switchNotes(); len(notes) > 0 {
		b.WriteByte('\n')
		b.hang("", "Tasks are switched at these locks only; elsewhere they run on unless they must wait.")
		for _, n := range notes {
			b.hang("  ", n)
		}
	}
	r.failures(&b)
	r.predictions(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// screen is text for a terminal of prose.Width columns.
type screen struct{ strings.Builder }

// hang prints text, which may have lines, after first; lines that follow are indented as far.
func (b *screen) hang(first, text string) {
	rest := strings.Repeat(" ", utf8.RuneCountInString(first))
	for l := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(l) == "" {
			continue
		}
		for _, l := range prose.Hang(first, rest, l, prose.Width) {
			fmt.Fprintln(b, l)
		}
		first = rest
	}
}

// table prints a line for each row, and the sum.
func (r *Report) table(b *screen) {
	name := len("workload")
	for _, x := range r.Rows {
		name = max(name, len(x.Name))
	}
	fmt.Fprintf(b, "%-*s  %-6s %7s  %s\n%s\n", name, "workload", "", "points", "result", strings.Repeat("-", prose.Width))
	for _, x := range r.Rows {
		result := x.Result
		if x.Kind != explore.OK { // the rest is below
			result = fmt.Sprintf("violated (%s)", x.Kind)
		}
		b.hang(fmt.Sprintf("%-*s  %-6s %3g/%3g  ", name, x.Name, x.Verdict(), x.Score, x.Max), result)
	}
	fmt.Fprintf(b, "%-*s  %-6s %3g/%3g\n", name, "sum", "", r.Score, r.Max)
	if n := r.halvedNote(); n != "" {
		b.hang("", n)
	}
	if r.Teacher > 0 {
		b.hang("", fmt.Sprintf("beside these, up to %g points are the teacher's, who reads your text", r.Teacher))
	}
	if r.LeftOut > 0 {
		b.hang("", fmt.Sprintf("left out: %s; --student ID grades it", prose.Count(r.LeftOut, "personal question")))
	}
	if name, rows := r.shared(); name != "" {
		b.WriteByte('\n')
		b.hang("", sharedNote(name, rows))
	}
	if slices.ContainsFunc(r.Rows, uncounted) {
		b.WriteByte('\n')
		b.hang("", "What is ok with 0 points, the starter does as well. "+untilMore)
	}
}

// shared are the rows that were explored with another submission's code, which is the same, and the
// name of that.
func (r *Report) shared() (name string, rows []string) {
	for _, x := range r.Rows {
		if x.Shared != "" {
			name, rows = x.Shared, append(rows, x.Name)
		}
	}
	return name, rows
}

func sharedNote(name string, rows []string) string {
	return fmt.Sprintf("The code is that of %s but for comments, layout and local names, and was explored once; shared with it: %s.", name, strings.Join(rows, ", "))
}

// halvedNote says why every row has half of its points, empty if none has.
func (r *Report) halvedNote() string {
	for _, x := range r.Rows {
		if x.Halved != "" {
			return fmt.Sprintf("Every row has half of its points, since %s.", x.Halved)
		}
	}
	return ""
}

// untilMore says when a row counts that the starter passes.
const untilMore = "It counts once a row is ok that the starter fails."

// uncounted reports whether the row passes and does not count.
func uncounted(r grade.Row) bool { return r.Pass && r.Given && r.Score == 0 }

// failures prints the rows that failed in full. Tasks without an answer stand together.
func (r *Report) failures(b *screen) {
	for i, x := range r.Rows {
		if x.Pass {
			continue
		}
		if i == 0 || x.Result != judges.NoAnswer || r.Rows[i-1].Result != judges.NoAnswer {
			b.WriteByte('\n')
		}
		b.hang("", x.Name+": "+x.Asks)
		if x.Result != judges.NoAnswer { // the table says that
			b.hang("  ", x.Result)
		}
		if x.Replay != "" {
			if x.Violated {
				fmt.Fprintf(b, "  shortest schedule: %q\n", x.Schedule)
			}
			fmt.Fprintln(b, prose.Command("  replay: ", x.Replay, prose.Width))
		}
		if x.Trace != "" {
			fmt.Fprintf(b, "\n%s\n", strings.TrimRight(x.Trace, "\n"))
		}
	}
}

// predictions prints what was predicted beside what is right, or that there is no prediction yet.
func (r *Report) predictions(b *screen) {
	if len(r.Prediction) > 0 {
		fmt.Fprintf(b, "\nyour predictions\n")
		for i, p := range r.Prediction {
			b.hang(fmt.Sprintf("%3d. ", i+1), p.Ask)
			switch p.Right {
			case "":
				b.hang("     ", "you said "+p.Said)
			case p.Said:
				b.hang("     ", fmt.Sprintf("you said %s: as it is. %s", p.Said, p.Why))
			default:
				b.hang("     ", fmt.Sprintf("you said %s: it is %s. %s", p.Said, p.Right, p.Why))
			}
		}
	}
	if r.Unpredicted && !r.Pass {
		b.WriteByte('\n')
		b.hang("", "No prediction of yours is kept. Before you look any further:")
		fmt.Fprintf(b, "  btrlab lab predict %d\n", r.Lab)
	}
}

// switchNotes are the rows of searches that switch at some locks only, and the locks.
func (r *Report) switchNotes() []string {
	var at, rows []string // rows by the classes that they switch at
	for _, x := range r.Rows {
		if len(x.Switch) == 0 {
			continue
		}
		classes := x.Switch.Classes()
		i := slices.Index(at, classes)
		if i < 0 {
			i = len(at)
			at, rows = append(at, classes), append(rows, "")
		} else {
			rows[i] += ", "
		}
		rows[i] += x.Name
	}
	for i := range at {
		at[i] = rows[i] + ": " + at[i]
	}
	return at
}

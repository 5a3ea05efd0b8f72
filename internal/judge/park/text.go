package park

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"btrlab/internal/prose"
)

// WriteText prints what Linux did on its way through a schedule, after the tasks' names. The lines
// are at most width columns wide.
func (x *Replayed) WriteText(w io.Writer, tasks []string, width int) error {
	var b strings.Builder
	say := func(first, rest, format string, a ...any) {
		for _, line := range prose.Hang(first, rest, fmt.Sprintf(format, a...), width) {
			b.WriteString(line + "\n")
		}
	}
	say("", "", "Linux %s, led through schedule '%s' of %s: a task goes on until it stands where the engine's does", x.Release, x.Schedule, x.Scenario)
	for i := range x.Steps {
		s := &x.Steps[i]
		say("  ", "    ", "%d %s %s; in Linux it %s", s.Task, tasks[s.Task], s.Where(), cmp.Or(s.Said, "goes on by itself"))
		if len(s.Merged) > 0 {
			say("    ", "    ", "done as well, since no function of Linux begins with it: %s", strings.Join(s.Merged, ", "))
		}
	}
	for _, n := range x.Notes {
		say("", "  ", "otherwise than in the engine: %s", n)
	}
	switch {
	case x.Refused != "":
		say("", "  ", "refused by Linux: %s", x.Refused)
	case x.Violation != "" && x.Breaks():
		say("", "  ", "! the engine breaks: %s", x.Violation)
		for _, l := range x.Broken {
			say("", "  ", "! so does Linux: %s", l)
		}
	case x.Violation != "":
		say("", "  ", "! the engine breaks: %s", x.Violation)
		say("", "  ", "Linux does not")
	case len(x.Differences) > 0:
		for _, d := range x.Differences {
			say("", "  ", "DIFFERENT: %s", d)
		}
	default:
		say("", "  ", "the same end in Linux: size, bytes and errors")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Where says where the engine's task is after the step: "stands before lockExtent: lock extent".
func (s *Step) Where() string {
	switch {
	case s.Waits:
		return "waits before " + s.Before
	case s.Before != "":
		return "stands before " + s.Before
	}
	return "is done"
}

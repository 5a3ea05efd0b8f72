package park

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"btrlab/internal/errno"
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
	if x.As != "" {
		say("", "", "(it was recorded with this schedule under %s; %s leads the tasks to the same places)", x.Policy, x.As)
	}
	x.beside(&b, tasks, width)
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
		if x.NoRequest() {
			say("", "  ", "Linux has no such request: it returns %s", errno.EOPNOTSUPP.Error())
		} else {
			say("", "  ", "Linux does not")
		}
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

// NoRequest reports whether the kernel does not know a request of the scenario, so that it cannot
// have the bug.
func (x *Replayed) NoRequest() bool {
	return slices.Contains(x.Linux.Errors, errno.EOPNOTSUPP.Error())
}

// beside prints the steps in three columns: the task, where the engine has it stand, and where it
// stands in Linux.
func (x *Replayed) beside(b *strings.Builder, tasks []string, width int) {
	const apart, indent = 2, 2
	first := 0
	for i, name := range tasks {
		first = max(first, len(fmt.Sprintf("%d %s", i, name)))
	}
	room := max((width-indent-first-2*apart)/2, 20)
	row := func(task, engine, linux string) {
		left, right := prose.Hang("", "  ", engine, room), prose.Hang("", "  ", linux, room)
		for i := range max(len(left), len(right)) {
			cell := func(list []string) string {
				if i < len(list) {
					return list[i]
				}
				return ""
			}
			line := fmt.Sprintf("%*s%-*s%*s%-*s%*s%s", indent, "", first, task, apart, "", room, cell(left), apart, "", cell(right))
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			task = ""
		}
	}
	row("", "the engine", "Linux "+x.Release)
	for i := range x.Steps {
		s := &x.Steps[i]
		engine, linux := s.Texts()
		row(fmt.Sprintf("%d %s", s.Task, tasks[s.Task]), engine, linux)
	}
}

// Where says where the engine has the task stand after the step.
func (s *Step) Where() string {
	switch {
	case s.Waits:
		return "waits before " + s.Before
	case s.Before != "":
		return "stands before " + s.Before
	}
	return "is done"
}

// Texts are Where, and where the task stands in Linux; "" is that it was not led there.
func (s *Step) Texts() (engine, linux string) {
	linux = s.Said
	if len(s.Merged) > 0 {
		linux = cmp.Or(linux, "goes on by itself") + "; no function of it begins with " + strings.Join(s.Merged, ", ") + ": done as well"
	}
	return s.Where(), linux
}

package judges

import (
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/module"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/labs/kit"
)

// bound is what a search came to without the classes that it switches at: the report names them
// once.
func bound(c explore.Coverage) string {
	c.At = nil
	return c.String()
}

// inLab says that a call is in a lab's package and not in package kit.
func inLab(f explore.Frame) bool {
	return strings.HasPrefix(f.Func, module.Path+"/labs/") && !strings.HasPrefix(f.Func, sandbox.KitPath+".")
}

// function is the name of a call's function without its package and type.
func function(f explore.Frame) string { return f.Func[strings.LastIndexByte(f.Func, '.')+1:] }

// raceLines explain a race to the student: the lines of both sides that are in the student's code.
func raceLines(sides []explore.Side) string {
	var l []string
	for _, s := range sides {
		l = append(l, s.String())
		for _, f := range s.Stack {
			if inLab(f) {
				l = append(l, fmt.Sprintf("  %s:%d, in %s", f.File, f.Line, function(f)))
			}
		}
	}
	l = append(l, "a Load of a slice, map or pointer also counts as a write: what it leads to can be changed in place")
	return strings.Join(l, "\n")
}

// panicLine is studentLine of the stack of a panic.
func panicLine(at explore.Stack) string {
	var l []string
	for _, f := range at {
		if inLab(f) && len(l) < 2 {
			l = append(l, fmt.Sprintf("%s:%d", f.File, f.Line))
		}
	}
	return strings.Join(l, ", called in ")
}

// breach is the panic of a lab's program that has found a violation.
type breach struct {
	kind explore.Kind
	what string
}

func (b breach) String() string { return b.what }

// violation is what was violated in something that is measured, where no schedule shows it.
type violation struct {
	kind explore.Kind
	what string
}

func (v violation) Error() string { return fmt.Sprintf("violated (%v): %s", v.kind, v.what) }

// breaks panics with a violation.
func breaks(kind explore.Kind, format string, a ...any) {
	panic(breach{kind, fmt.Sprintf(format, a...)})
}

// words are a violation in words for the student. The kind, which the report names first, is not in
// them.
func (w *Workload) words(v explore.Violation) explore.Violation {
	s := explore.Violation{Kind: v.Kind, What: v.Line(), More: v.More}
	switch v.Kind {
	case explore.KindRace:
		s.More = raceLines(v.Sides)
	case explore.KindDeadlock, explore.KindLost, explore.KindGone:
		if w.stuck != "" && (w.anyWait || slices.Contains(v.Waits, kit.CondClass())) {
			s.What, s.More = w.stuck, s.What+"\n"+s.More
		}
	case explore.KindPanic:
		if b, ok := v.Panic.(breach); ok {
			return explore.Violation{Kind: b.kind, What: b.what}
		}
		s.What, s.More = fmt.Sprintf("%s (task %s)", v.What, v.Task), ""
		if at := panicLine(v.At); at != "" {
			s.What = at + ": " + s.What
		}
	}
	return s
}

// enterViolation enters what was violated into the row: the kind and one line.
func enterViolation(r *grade.Row, v explore.Violation) {
	r.Violated, r.Kind, r.Result = true, v.Kind, shortly(v)
}

// shortly is the kind and the first line of a violation. The colon before an explanation is dropped
// with it.
func shortly(v explore.Violation) string {
	return explore.Violation{Kind: v.Kind, What: strings.TrimSuffix(v.Line(), ":")}.Violated()
}

package judges

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/labs/kit"
)

// Program is a program of one's own, as a lab that is in no list: its code is checked, built, run
// and watched as a lab's is.
type Program struct{ Program func(w *kit.World) }

// About says what it may be.
func (Program) About() *About {
	return &About{N: 99, Title: "A program of your own",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath, "cmp", "errors", "fmt", "math", "slices", "sort", "strings"}, Entry: "Program", Free: true, May: map[string][]string{sandbox.KitPath: ownNames},
			Want: "func Program(w *kit.World)"}, "judges.Program{Program: student.Program}")}
}

// ownNames are what a program of one's own may use of package kit: Explore and Draw are the
// grader's there.
var ownNames = []string{"World", "Task", "Mutex", "Cond", "Var", "Word", "Range"}

// ownName is the name of its one row.
const ownName = "own"

// Workloads are one row.
func (l Program) Workloads() []Workload {
	return []Workload{{name: ownName, asks: "a program of your own keeps its rules in every schedule", points: 1, program: kit.Runs(l.Program), spurious: true}}
}

// RefusedError says why a program of one's own does not run: it is not allowed, not Go, or does not
// end.
type RefusedError struct {
	File  string
	Lines []string // each with its line of the file
}

func (e *RefusedError) Error() string {
	s := e.Lines[0]
	if !strings.HasPrefix(s, filepath.Base(e.File)) {
		s = filepath.Base(e.File) + ": " + s
	}
	if n := len(e.Lines) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// ExploreOwn explores the program in a Go file, which has func Program(w *kit.World), by every
// schedule; with o.Workload set it runs o.Schedule only. The row has the verdict and, for a
// violation, the shortest schedule and its steps. An error is a *RefusedError, about the file, or
// about the tools.
func ExploreOwn(ctx context.Context, root, file string, o sandbox.Options) (*grade.Row, error) {
	if x, err := os.Stat(file); err != nil {
		return nil, err
	} else if !x.Mode().IsRegular() || !strings.HasSuffix(file, ".go") {
		return nil, &RefusedError{file, []string{"want a Go file"}}
	}
	if o.Workload != "" {
		o.Workload = ownName
	}
	if at, err := filepath.EvalSymlinks(file); err == nil && filepath.Ext(at) == ".go" {
		file = at // one's own link leads where one wants
	}
	j := jobOf(Program{})
	j.Whole = true
	rows, err := j.Judge(ctx, root, []string{file}, o)
	if err != nil {
		return nil, err
	}
	if r := &rows[0]; r.Name == ownName {
		return r, nil
	}
	return nil, &RefusedError{file, strings.Split(rows[0].Result, "\n")}
}

// OwnReplay makes ExploreOwn run one schedule.
func OwnReplay(schedule string) sandbox.Options {
	return sandbox.Options{Workload: ownName, Schedule: schedule}
}

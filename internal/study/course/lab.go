// Package course is what a class has around the labs: their texts, hints, predictions and personal
// questions (lab.go, predict.go, personal.go), a submission's grade and its reports (grade.go,
// text.go, page.go, gradescope.go), and a class of submissions (class.go). What is right a judge of
// package judges says; nothing is graded by the host's clock.
//
// Invariants:
//   - correctness comes before any ratio: a ratio counts only when no workload is violated;
//   - the same files give the same report on every machine, but for the line in which code was that
//     did not end;
//   - a row that is not exhausted says so.
package course

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btrlab/internal/study/judges"
)

// Lab is a lab of the course: the pages, questions and grades around its judge.
type Lab struct {
	*judges.About
	judge judges.Lab
}

// Labs are the labs that can be taken, by number.
var Labs = all()

func all() (l []*Lab) {
	for _, j := range judges.All {
		l = append(l, &Lab{j.About(), j})
	}
	return l
}

// Capstone is the lab for which a student writes a text.
func Capstone() *Lab {
	return Labs[slices.IndexFunc(Labs, func(l *Lab) bool { return l.Essay != nil })]
}

// Levels is the lab whose rows are levels that can be played.
func Levels() *Lab {
	return Labs[slices.IndexFunc(Labs, func(l *Lab) bool { return l.Try == judges.Play })]
}

// Rows are what the grade asks, with its points, as a list in Markdown: one knows the names of the
// workloads before one grades.
func (l *Lab) Rows() string {
	var b strings.Builder
	for _, w := range judges.Rows(l.judge) {
		fmt.Fprintf(&b, "- `%s`, %s: %s\n", w.Name, points(w.Max), w.Asks)
	}
	return b.String()
}

// points is a number of points, in words.
func points(n float64) string {
	if n == 1 {
		return "1 point"
	}
	return fmt.Sprintf("%g points", n)
}

// Explored are the names of the lab's workloads that have schedules.
func (l *Lab) Explored() []string { return judges.Explored(l.judge) }

// Searched reports whether the lab has a workload of that name with schedules, which may be one of
// Explored at another place of a file.
func (l *Lab) Searched(name string) bool { return judges.Searched(l.judge, name) }

// Asks are a student's tasks, in a lab whose tasks are others for each.
func (l *Lab) Asks(student string) []judges.Asked { return judges.Asks(l.judge, student) }

// Lookup finds a lab by its number.
func Lookup(n int) (*Lab, error) {
	var have []string
	for _, l := range Labs {
		if l.N == n {
			return l, nil
		}
		have = append(have, fmt.Sprint(l.N))
	}
	return nil, fmt.Errorf("no lab %d, have %s", n, strings.Join(have, ", "))
}

// Needs are the packages that the program is built of that grades a student's package.
func (l *Lab) Needs() []string {
	if l.Code == nil {
		return []string{judges.Path}
	}
	return l.Code.Needs()
}

// Text is the lab's README.
func (l *Lab) Text(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(l.Dir(root), "README.md"))
	return string(b), err
}

// MaxHint is the last level of hints: a nudge, the idea, almost the answer.
const MaxHint = 3

// Hint returns the hint of level 1 to MaxHint. hints.md has a heading "## 1", "## 2" or "## 3"
// before each.
func (l *Lab) Hint(root string, level int) (string, error) {
	if level < 1 || level > MaxHint {
		return "", fmt.Errorf("hint level %d, want 1 to %d", level, MaxHint)
	}
	b, err := os.ReadFile(filepath.Join(l.Dir(root), "hints.md"))
	if err != nil {
		return "", err
	}
	_, text, ok := strings.Cut("\n"+string(b), fmt.Sprintf("\n## %d\n", level))
	if !ok {
		return "", fmt.Errorf("hints.md of lab %d has no level %d", l.N, level)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return strings.TrimSpace(text) + "\n", nil
}

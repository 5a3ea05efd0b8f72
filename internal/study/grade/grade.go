// Package grade grades the labs: it reads what a student wrote, puts it into the real write path, and lets the explorer and virtual
// time judge. Nothing is graded by the host's clock.
//
// Student code is Go. Grade checks its imports (check.go), copies it into a folder of the module that the go tool skips, writes a
// main for it, builds both and runs the program (build.go), which judges (judge.go) and leaves a Report.
//
// Invariants:
//   - correctness comes before any ratio: a ratio counts only when no workload is violated;
//   - the same files give the same report on every machine, but for Seconds;
//   - a row that is not exhausted says so.
package grade

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Row is one thing that is graded.
type Row struct {
	Name  string  `json:"name"`
	Asks  string  `json:"asks"` // what for, in one line
	Max   float64 `json:"max"`
	Score float64 `json:"score"`
	Pass  bool    `json:"pass"`
	// Result is the verdict in one line: the bound of a search, a ratio, what is wrong.
	Result string `json:"result"`
	// Violated says that Schedule, which may be empty, shows a violation; Replay is the command for it and Trace the execution step
	// by step, the latter for the first violation only.
	Violated bool   `json:"violated,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	Replay   string `json:"replay,omitempty"`
	Trace    string `json:"trace,omitempty"`
	// Schedules is how many were searched.
	Schedules int `json:"schedules,omitempty"`
}

// Report is what grading came to.
type Report struct {
	Lab   int     `json:"lab"`
	Title string  `json:"title"`
	Dir   string  `json:"dir"`
	Rows  []Row   `json:"rows"`
	Score float64 `json:"score"`
	Max   float64 `json:"max"`
	Pass  bool    `json:"pass"`
	// Prediction are the student's answers of before, if any.
	Prediction []Answer `json:"prediction,omitempty"`
}

// sum fills the totals.
func (r *Report) sum() {
	r.Score, r.Max, r.Pass = 0, 0, len(r.Rows) > 0
	for _, x := range r.Rows {
		r.Score += x.Score
		r.Max += x.Max
		r.Pass = r.Pass && x.Pass
	}
}

// Lab is a lab of the house.
type Lab struct {
	N       int
	Folder  string // under labs
	Title   string
	Minutes int
	// File is what the student changes.
	File string
	// allowed are the packages that it may import; nil is a lab without Go.
	allowed []string
	// main is the expression that makes a Student, with student for the package.
	main string
}

// Labs are the labs that can be taken, by number.
var Labs = []*Lab{
	{N: 1, Folder: "01-be-the-scheduler", Title: "Be the scheduler", Minutes: 60, File: "schedules.txt"},
	{N: 4, Folder: "04-truncate-race", Title: "The truncate race", Minutes: 75, File: "setsize.go",
		allowed: []string{"btrlab/internal/iopath/policy"}, main: "grade.Student{Steps: student.Steps}"},
	{N: 5, Folder: "05-range-lock", Title: "A range lock", Minutes: 120, File: "rangelock.go",
		allowed: []string{"btrlab/labs/kit", "cmp", "fmt", "math", "slices", "sort"},
		main:    "grade.Student{NewRangeLock: func() inode.RangeLocker { return student.New() }}"},
}

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

// Root finds the module's folder from dir upwards.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		b, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module btrlab\n") {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is in no clone of btrlab: labs need its source and the go tool", dir)
		}
	}
}

// Dir is the lab's folder below root.
func (l *Lab) Dir(root string) string { return filepath.Join(root, "labs", l.Folder) }

// Text is the lab's README.
func (l *Lab) Text(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(l.Dir(root), "README.md"))
	return string(b), err
}

// MaxHint is the last level of hints: a nudge, the idea, almost the answer.
const MaxHint = 3

// Hint returns the hint of level 1 to MaxHint. hints.md has a heading "## 1", "## 2" or "## 3" in front of each.
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

// Question is asked before the lab.
type Question struct {
	Ask     string   `json:"ask"`
	Choices []string `json:"choices"` // a, b, c ...
	Answer  string   `json:"answer"`
	Why     string   `json:"why"` // shown after grading, with the execution that shows it
}

// Answer is a student's prediction and what is right.
type Answer struct {
	Ask   string `json:"ask"`
	Said  string `json:"said"`
	Right string `json:"right"`
	Why   string `json:"why"`
}

// Questions are the lab's predictions, from predict.json.
func (l *Lab) Questions(root string) ([]Question, error) {
	b, err := os.ReadFile(filepath.Join(l.Dir(root), "predict.json"))
	if err != nil {
		return nil, err
	}
	var q []Question
	if err := json.Unmarshal(b, &q); err != nil {
		return nil, fmt.Errorf("predict.json of lab %d: %w", l.N, err)
	}
	return q, nil
}

func (l *Lab) predictionFile(root string) string {
	return filepath.Join(root, "labs", "_grade", fmt.Sprintf("prediction-%02d.json", l.N))
}

// Predict keeps the answers, a letter for each question.
func (l *Lab) Predict(root string, said []string) error {
	qs, err := l.Questions(root)
	if err != nil {
		return err
	}
	if len(said) != len(qs) {
		return fmt.Errorf("have %d answers, want %d", len(said), len(qs))
	}
	for i, s := range said {
		if len(s) != 1 || s[0] < 'a' || int(s[0]-'a') >= len(qs[i].Choices) {
			return fmt.Errorf("answer %d is %q, want a letter from a to %c", i+1, s, 'a'+len(qs[i].Choices)-1)
		}
	}
	b, err := json.Marshal(said)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.predictionFile(root)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(l.predictionFile(root), append(b, '\n'), 0o644)
}

// prediction is what was predicted, beside what is right. None is no error.
func (l *Lab) prediction(root string) []Answer {
	b, err := os.ReadFile(l.predictionFile(root))
	if err != nil {
		return nil
	}
	var said []string
	qs, err := l.Questions(root)
	if json.Unmarshal(b, &said) != nil || err != nil || len(said) != len(qs) {
		return nil
	}
	var out []Answer
	for i, q := range qs {
		out = append(out, Answer{q.Ask, said[i], q.Answer, q.Why})
	}
	return out
}

// Options say how to grade.
type Options struct {
	// Dir is the student's folder; empty is the lab's own.
	Dir string
	// Workload and Schedule, when Workload is set, run only one schedule of one workload.
	Workload, Schedule string
}

// Grade grades lab l. An error is about the tools; what is wrong with the student's files is in the report.
func Grade(root string, l *Lab, o Options) (*Report, error) {
	dir := o.Dir
	if dir == "" {
		dir = l.Dir(root)
	}
	r := &Report{Lab: l.N, Title: l.Title, Dir: dir}
	if rel, err := filepath.Rel(root, dir); err == nil && !strings.HasPrefix(rel, "..") {
		r.Dir = rel
	}
	var err error
	if l.allowed == nil {
		r.Rows, err = gradeSchedules(filepath.Join(dir, l.File))
	} else {
		r.Rows, err = l.gradeGo(root, dir, o)
	}
	if err != nil {
		return nil, err
	}
	for i := range r.Rows {
		x := &r.Rows[i]
		if x.Violated && x.Replay == "" {
			x.Replay = fmt.Sprintf("btrlab lab grade %d --dir %s --replay %s=%s", l.N, r.Dir, x.Name, x.Schedule)
		}
	}
	r.Prediction = l.prediction(root)
	r.sum()
	return r, nil
}

// refused is the report of files that are not run at all.
func refused(what string, max float64, lines []string) []Row {
	return []Row{{Name: what, Asks: "the files can be graded", Max: max, Result: strings.Join(lines, "\n")}}
}

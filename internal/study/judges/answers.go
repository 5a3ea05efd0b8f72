package judges

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
)

// maxSchedule bounds an answer in characters. No schedule that is asked for needs a quarter of it.
const maxSchedule = 64

// What stands for an answer.
const (
	Never    = "never"     // no schedule breaks it
	NoAnswer = "no answer" // the result of a task that was left out
)

// EachAnswer calls f for each line "name = answer" of a file; without = ok is false. # starts a
// comment.
func EachAnswer(path string, f func(line int, name, answer string, ok bool)) error {
	b, err := sandbox.Read(path)
	if err != nil {
		return err
	}
	for i, line := range strings.Split(string(b), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			name, answer, ok := strings.Cut(line, "=")
			f(i+1, strings.TrimSpace(name), strings.TrimSpace(answer), ok)
		}
	}
	return nil
}

// personal is a lab without Go whose tasks are others for each student.
type personal interface {
	Lab
	// of are the tasks of a student, under the names that Workloads has.
	of(student string) []Workload
}

// Asked is a task as a student reads it.
type Asked struct {
	Name   string  `json:"name"`
	Asks   string  `json:"asks"`
	Points float64 `json:"points"`
}

// Asks are a student's tasks of a lab whose tasks are others for each; nil of the other labs.
func Asks(l Lab, student string) (list []Asked) {
	own, is := l.(personal)
	if !is {
		return nil
	}
	for _, w := range own.of(student) {
		list = append(list, Asked{w.name, w.asks, w.points})
	}
	return list
}

// studentLine is the name of the line that says whose answers to a personal lab these are.
const studentLine = "student"

// whose is the student whose tasks the answers are to. Graded is the id that the grader was told,
// if any.
func whose(got map[string]string, graded string) (student, wrong string) {
	same := func(id string) string { return strings.ToLower(strings.TrimSpace(id)) }
	said := got[studentLine]
	switch {
	case said == "" || said == "?":
		if same(graded) == "" {
			return "", "no line student = ID, which says whose questions the answers are about"
		}
		return graded, ""
	case same(graded) != "" && same(said) != same(graded):
		return "", fmt.Sprintf("the answers are about the questions of %q, want those of %q", said, graded)
	}
	return said, ""
}

// readAnswers reads the answers to tasks, and what is wrong with the lines. Also are names of other
// lines.
func readAnswers(path string, tasks []Workload, also ...string) (got map[string]string, bad []string, err error) {
	known := map[string]bool{}
	for _, name := range also {
		known[name] = true
	}
	for _, k := range tasks {
		known[k.name] = true
	}
	got = map[string]string{}
	err = EachAnswer(path, func(line int, name, answer string, ok bool) {
		wrong := func(format string, a ...any) {
			bad = append(bad, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, a...))
		}
		switch _, twice := got[name]; {
		case !ok:
			wrong("want NAME = ANSWER")
		case !known[name]:
			wrong("unknown name %q", name)
		case twice:
			wrong("%s comes twice", name)
		case len(answer) > maxSchedule:
			wrong("an answer of %d characters, want at most %d", len(answer), maxSchedule)
		default:
			got[name] = answer
		}
	})
	return got, bad, err
}

// gradeAnswers grades a lab without Go: path has the answers. When ctx ends, so does the grading.
func gradeAnswers(ctx context.Context, l Lab, path string, o sandbox.Options) ([]grade.Row, error) {
	tasks := l.Workloads()
	var also []string
	own, isPersonal := l.(personal)
	if isPersonal {
		also = []string{studentLine}
	}
	got, bad, err := readAnswers(path, tasks, also...)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.NoFilesError{Dir: filepath.Dir(path), Want: filepath.Base(path)}
	}
	if err != nil {
		return sandbox.Unread(err, Points(l))
	}
	if isPersonal && len(bad) == 0 {
		student, wrong := whose(got, o.Student)
		if wrong != "" {
			bad = []string{wrong}
		}
		tasks = own.of(student)
	}
	if len(bad) > 0 {
		return grade.Refused("check", Points(l), bad), nil
	}
	var rows []grade.Row
	for _, k := range tasks {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r := grade.Row{Name: k.name, Asks: k.asks, Max: k.points}
		answer, ok := got[k.name]
		if !ok || answer == "" || answer == "?" {
			r.Result = NoAnswer
		} else if err := k.answer(ctx, answer, o.Progress, &r); err != nil {
			return nil, err
		}
		if r.Pass {
			r.Score = r.Max
		}
		if o.Judged != nil {
			o.Judged(r.Name, r.Verdict())
		}
		rows = append(rows, r)
	}
	guesses(rows, got)
	return rows, ctx.Err()
}

// written calls a student's Answers, once, and says what is wrong on sight.
func written(answers func() map[string]string, questions []Workload) (got map[string]string, bad []string) {
	sandbox.Call("Answers")
	got = map[string]string{}
	for name, answer := range answers() {
		got[name] = answer
		switch {
		case !slices.ContainsFunc(questions, func(w Workload) bool { return w.name == name }):
			bad = append(bad, fmt.Sprintf("Answers: unknown question %q", name))
		case len(answer) > maxSchedule:
			bad = append(bad, fmt.Sprintf("Answers: %s has %d characters, want at most %d", name, len(answer), maxSchedule))
		}
	}
	slices.Sort(bad)
	return got, bad
}

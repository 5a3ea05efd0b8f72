package judges

import (
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

// readAnswers reads lines "name = answer"; # starts a comment.
func readAnswers(path string, tasks []Workload) (map[string]string, []string, error) {
	b, err := sandbox.Read(path)
	if err != nil {
		return nil, nil, err
	}
	known := map[string]bool{}
	for _, k := range tasks {
		known[k.name] = true
	}
	got := map[string]string{}
	var bad []string
	for i, line := range strings.Split(string(b), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, answer, ok := strings.Cut(line, "=")
		name, answer = strings.TrimSpace(name), strings.TrimSpace(answer)
		switch _, twice := got[name]; {
		case !ok:
			bad = append(bad, fmt.Sprintf("line %d: want NAME = ANSWER", i+1))
		case !known[name]:
			bad = append(bad, fmt.Sprintf("line %d: unknown name %q", i+1, name))
		case twice:
			bad = append(bad, fmt.Sprintf("line %d: %s comes twice", i+1, name))
		case len(answer) > maxSchedule:
			bad = append(bad, fmt.Sprintf("line %d: an answer of %d characters, want at most %d", i+1, len(answer), maxSchedule))
		default:
			got[name] = answer
		}
	}
	return got, bad, nil
}

// gradeAnswers grades a lab without Go: path has the answers.
func gradeAnswers(l Lab, path string, o sandbox.Options) ([]grade.Row, error) {
	tasks := l.Workloads()
	got, bad, err := readAnswers(path, tasks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.NoFilesError{Dir: filepath.Dir(path), Want: filepath.Base(path)}
	}
	if err != nil {
		return sandbox.Unread(err, Points(l))
	}
	if len(bad) > 0 {
		return grade.Refused("check", Points(l), bad), nil
	}
	var rows []grade.Row
	for _, k := range tasks {
		r := grade.Row{Name: k.name, Asks: k.asks, Max: k.points}
		answer, ok := got[k.name]
		if !ok || answer == "" || answer == "?" {
			r.Result = NoAnswer
		} else if err := k.answer(answer, o.Progress, &r); err != nil {
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
	return rows, nil
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

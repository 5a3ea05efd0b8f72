package course

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/practice"
	"btrlab/internal/study/sandbox"
)

// Personal is a question of predict.json whose scenario, and so whose answer, is another one for
// each student: package practice makes it from the student's id, the number of the lab and the
// number of the question, and judges the answer by exploring it.
type Personal struct {
	Level int           `json:"level"`
	Kind  practice.Kind `json:"kind"`
}

// A student's answers to personal questions are lines "1 = ANSWER" in this file of the folder that
// is graded.
const personalFile = "personal.txt"

// Points of a personal question, beside the hundred of the lab; maxPersonal bounds an answer in
// characters.
const (
	personalPoints = 10
	maxPersonal    = 400
)

// personal are the lab's personal questions as they stand in predict.json. A lab without the file
// has none.
func (l *Lab) personal(root string) ([]Personal, error) {
	var all []Question
	if err := l.readPredict(filepath.Join(l.Dir(root), "predict.json"), &all); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	var p []Personal
	for _, q := range all {
		if q.Personal != nil {
			p = append(p, *q.Personal)
		}
	}
	return p, nil
}

// Personal makes the personal questions of a student, in the order of their numbers from 1.
func (l *Lab) Personal(root, student string) ([]*practice.Question, error) {
	if strings.TrimSpace(student) == "" {
		return nil, errors.New("a student's id without a letter")
	}
	all, err := l.personal(root)
	if err != nil {
		return nil, err
	}
	var qs []*practice.Question
	for i, p := range all {
		q, err := practice.New(practice.StudentSeed(student, l.N, i+1), p.Level, p.Kind)
		if err != nil {
			return nil, fmt.Errorf("lab %d, personal question %d: %w", l.N, i+1, err)
		}
		qs = append(qs, q)
	}
	return qs, nil
}

// PersonalFile is where the answers of the lab's own folder are.
func (l *Lab) PersonalFile(root string) string { return filepath.Join(l.Dir(root), personalFile) }

// readPersonal reads the answers, by number; what is wrong with a line is an error of its own.
func readPersonal(path string, n int) (map[string]string, error) {
	got := map[string]string{}
	var bad error
	err := judges.EachAnswer(path, func(line int, name, answer string, ok bool) {
		num, err := strconv.Atoi(name)
		wrong := ""
		switch _, twice := got[name]; {
		case !ok || err != nil || strconv.Itoa(num) != name || num < 1 || num > n:
			wrong = fmt.Sprintf("want NUMBER = ANSWER, with a number from 1 to %d", n)
		case twice:
			wrong = name + " comes twice"
		case len(answer) > maxPersonal:
			wrong = fmt.Sprintf("an answer of %d characters, want at most %d", len(answer), maxPersonal)
		}
		if got[name] = answer; wrong != "" && bad == nil {
			bad = fmt.Errorf("%s, line %d: %s", personalFile, line, wrong)
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return got, cmp.Or(err, bad)
}

// gradePersonal judges the answers of a student in dir, a row for each question. The rows do not
// give the right answers away.
func (l *Lab) gradePersonal(ctx context.Context, root, dir, student string, progress func(sandbox.Progress)) ([]grade.Row, error) {
	qs, err := l.Personal(root, student)
	if err != nil {
		return nil, err
	}
	got, bad := readPersonal(filepath.Join(dir, personalFile), len(qs))
	var rows []grade.Row
	for i, q := range qs {
		r := grade.Row{Name: fmt.Sprintf("personal-%d", i+1), Asks: fmt.Sprintf("your own question, which btrlab lab questions %d prints: %s", l.N, q.Title()),
			Max: personalPoints}
		answer := got[fmt.Sprint(i+1)]
		switch {
		case bad != nil:
			r.Result = bad.Error()
		case answer == "" || answer == "?":
			r.Result = judges.NoAnswer
		default:
			v, err := q.Judge(answer, practice.Options{Progress: sandbox.Of(r.Name, progress), Stop: func() bool { return ctx.Err() != nil }})
			var none *practice.BadAnswer
			switch {
			case errors.As(err, &none):
				r.Result = err.Error()
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case err != nil:
				return nil, err
			default:
				r.Pass, r.Result = v.Right, v.Says
			}
		}
		if r.Pass {
			r.Score = r.Max
		}
		rows = append(rows, r)
	}
	return rows, nil
}

package course

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"btrlab/internal/prose"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/sandbox"
)

// gradescope is results.json of a Gradescope autograder. Score is the total; times are in seconds.
type gradescope struct {
	Score      float64          `json:"score"`
	Time       float64          `json:"execution_time,omitempty"`
	Output     string           `json:"output"`
	Format     string           `json:"output_format"`
	Visibility string           `json:"visibility"`
	Tests      []gradescopeTest `json:"tests"`
}

type gradescopeTest struct {
	Name       string  `json:"name"`
	Score      float64 `json:"score"`
	MaxScore   float64 `json:"max_score"`
	Status     string  `json:"status"`
	Output     string  `json:"output"`
	Format     string  `json:"output_format"`
	Visibility string  `json:"visibility"`
}

// visible is seen by students at once.
const visible = "visible"

// WriteGradescope writes the report as Gradescope's results.json. took is how long grading has
// taken; 0 is not said.
func (r *Report) WriteGradescope(w io.Writer, took time.Duration) error {
	g := gradescope{Score: r.Score, Time: took.Seconds(), Output: fmt.Sprintf("lab %02d, %s", r.Lab, r.Title), Format: "text", Visibility: visible,
		Tests: []gradescopeTest{}}
	if n := r.halvedNote(); n != "" {
		g.Output += "\n" + n
	}
	if r.Teacher > 0 {
		g.Output += fmt.Sprintf("\nbeside these, up to %g points are the teacher's, who reads the text", r.Teacher)
	}
	if r.LeftOut > 0 {
		g.Output += fmt.Sprintf("\nleft out: %s", prose.Count(r.LeftOut, "personal question"))
	}
	for _, x := range r.Rows {
		t := gradescopeTest{Name: x.Name + ": " + x.Asks, Score: x.Score, MaxScore: x.Max, Status: "failed", Output: x.Result, Format: "text", Visibility: visible}
		if x.Pass {
			t.Status = "passed"
		}
		if uncounted(x) {
			t.Output += "\nThe starter does this as well. " + untilMore
		}
		if x.Replay != "" {
			t.Output += "\nreplay: " + x.Replay
		}
		if x.Trace != "" {
			t.Output += "\n\n" + x.Trace
		}
		g.Tests = append(g.Tests, t)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(g)
}

// Autograder is a folder laid out as Gradescope's /autograder: source has the module and submission
// what a student has handed in, beside them is submission_metadata.json, and results gets
// results.json.
type Autograder struct {
	Base string
	// Student says which field of a submission's first user is the id that personal questions are
	// made from: "email", "name" or "id". Empty leaves the questions out.
	Student string
	Limit   time.Duration // see Options
}

// StudentFields are the fields of a user that Autograder.Student may name.
var StudentFields = []string{"email", "name", "id"}

// Grade grades the submission and writes results.json, whatever comes: a submission that cannot be
// graded has a result that says why. The error is the grader's own trouble, of which results.json
// has a line as well, without points.
func (g Autograder) Grade(ctx context.Context, l *Lab) error {
	results := filepath.Join(g.Base, "results", "results.json")
	if err := os.MkdirAll(filepath.Dir(results), 0o755); err != nil {
		return err
	}
	began := time.Now()
	write := func(r *Report) error {
		var b bytes.Buffer
		if err := r.WriteGradescope(&b, time.Since(began)); err != nil {
			return err
		}
		return sandbox.Replace(results, b.Bytes())
	}
	// If this process is killed, this is what students see.
	if err := write(l.failed("the grading was stopped from outside before it had a result; hand in again, and if it happens twice ask your teacher")); err != nil {
		return err
	}
	r, err := g.report(ctx, l)
	if err != nil {
		r = l.failed("the grader has failed, and not your code; ask your teacher: " + err.Error())
	}
	return errors.Join(err, write(r))
}

// failed is a report without points on what is no student's doing.
func (l *Lab) failed(why string) *Report {
	r := l.report("", "")
	r.Rows = []grade.Row{{Name: "grader", Asks: "the submission is graded", Max: judges.Points(l.judge), Result: why}}
	r.Rows[0].Clean()
	r.sum()
	return r
}

func (g Autograder) report(ctx context.Context, l *Lab) (*Report, error) {
	root := filepath.Join(g.Base, "source")
	dir, err := l.find(filepath.Join(g.Base, "submission"))
	if err != nil {
		rows, err := sandbox.Unread(err, judges.Points(l.judge))
		if err != nil {
			return nil, err
		}
		r := l.report("", "")
		r.Rows = rows
		r.Rows[0].Clean()
		r.sum()
		return r, nil
	}
	o := Options{Dir: dir, Options: sandbox.Options{Limit: g.Limit, CPU: g.Limit}}
	if g.Student != "" {
		if o.Student, err = g.student(); err != nil {
			return nil, err
		}
	}
	r, err := Grade(ctx, root, l, o)
	var nothing *sandbox.NoFilesError
	switch {
	case errors.As(err, &nothing):
		nothing.Dir = "the submission"
		return l.Nothing(nothing), nil
	case err != nil:
		return nil, err
	}
	r.home(dir)
	return r, nil
}

// home makes the commands of a report on folder dir those of a student, who has the files in the
// lab's own folder.
func (r *Report) home(dir string) {
	for i := range r.Rows {
		r.Rows[i].Replay = strings.Replace(r.Rows[i].Replay, prose.Escape(dirFlag(dir)), "", 1)
	}
}

// find is the folder of a submission that has the lab's file: the submission itself, or one below
// it, as of somebody who hands in a whole tree. Without any it is the submission.
func (l *Lab) find(submission string) (string, error) {
	if _, err := os.Lstat(filepath.Join(submission, l.File)); err == nil {
		return submission, nil
	}
	whole, folders := "", []string{submission}
	for i := 0; i < len(folders); i++ { // those that are found are appended
		dir := folders[i]
		entries, err := sandbox.Entries(dir)
		if err != nil {
			if i == 0 && errors.Is(err, fs.ErrNotExist) {
				return submission, nil // Grade says that
			}
			return submission, err
		}
		for _, e := range entries {
			switch {
			case e.IsDir() && len(folders) == sandbox.MaxEntries:
				return submission, &sandbox.HandedError{File: "the submission", Why: fmt.Sprintf("has more than %d folders, want at most that", sandbox.MaxEntries)}
			case e.IsDir():
				folders = append(folders, filepath.Join(dir, e.Name()))
			case e.Type().IsRegular() && e.Name() == l.File && (whole == "" || filepath.Base(dir) == l.Folder):
				whole = dir
			}
		}
	}
	if whole == "" {
		return submission, nil
	}
	return whole, nil
}

// student is the id of who has handed in.
func (g Autograder) student() (string, error) {
	file := filepath.Join(g.Base, "submission_metadata.json")
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var m struct {
		Users []map[string]any `json:"users"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	if len(m.Users) > 0 {
		switch x := m.Users[0][g.Student].(type) {
		case string:
			if x = strings.TrimSpace(x); x != "" {
				return x, nil
			}
		case float64:
			return fmt.Sprintf("%.0f", x), nil
		}
	}
	return "", fmt.Errorf("%s: users[0] has no %q", file, g.Student)
}

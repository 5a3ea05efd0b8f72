package course

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"btrlab/internal/prose"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/judges"
	"btrlab/internal/study/sandbox"
)

// Report is what grading came to.
type Report struct {
	Lab   int         `json:"lab"`
	Title string      `json:"title"`
	Dir   string      `json:"dir"`
	Rows  []grade.Row `json:"rows"`
	Score float64     `json:"score"`
	Max   float64     `json:"max"`
	Pass  bool        `json:"pass"`
	// Teacher are the points that a teacher may give beside Max.
	Teacher float64 `json:"teacher,omitempty"`
	// Prediction are the student's answers of before, if any.
	Prediction []Answer `json:"prediction,omitempty"`
	// LeftOut is how many personal questions were not graded, because the student is not named.
	LeftOut int `json:"left_out,omitempty"`
	// Unpredicted says that there is no prediction though the lab asks for one.
	Unpredicted bool `json:"unpredicted,omitempty"`
}

// sum fills the totals.
func (r *Report) sum() {
	r.Score, r.Max, r.Teacher, r.Pass = 0, 0, 0, len(r.Rows) > 0
	for _, x := range r.Rows {
		r.Score += x.Score
		r.Max += x.Max
		r.Teacher += x.Teacher
		r.Pass = r.Pass && x.Pass
	}
}

// Options say how to grade.
type Options struct {
	// Dir is the student's folder; empty is the lab's own.
	Dir string
	// Student is the id that the personal questions are made from; without one they are left out.
	// It hides the field of the options below, which gets it.
	Student string
	sandbox.Options
}

// Debug builds a program for a debugger, at bin, that stops at each step of one schedule of one
// workload under the code in dir, or in the lab's own folder if it is empty. wrong says what is
// wrong with the code, a line each.
func Debug(ctx context.Context, root string, l *Lab, dir, workload, schedule, bin string) (wrong []string, err error) {
	if dir == "" {
		dir = l.Dir(root)
	}
	return judges.Debug(ctx, root, dir, l.judge, workload, schedule, bin)
}

// Grade grades lab l. An error is about the tools, or a *NoFilesError; what is wrong with the
// student's files is in the report. When ctx ends, so does the grading, with its error.
func Grade(ctx context.Context, root string, l *Lab, o Options) (*Report, error) {
	dir := o.Dir
	if dir == "" {
		dir = l.Dir(root)
	}
	r := l.report(root, dir)
	if x, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) || err == nil && !x.IsDir() {
		return nil, &sandbox.NoFilesError{Dir: dir, Want: "files: it is no folder"}
	}
	o.Judged = sandbox.OnceEach(o.Judged)
	o.Options.Student = o.Student
	var err error
	r.Rows, err = judges.Grade(ctx, root, dir, l.judge, o.Options)
	if err != nil {
		return nil, err
	}
	if o.Workload == "" {
		if err := r.addPersonal(ctx, l, root, dir, o); err != nil {
			return nil, err
		}
	}
	for i := range r.Rows {
		x := &r.Rows[i]
		o.Judged(x.Name, x.Verdict())
		if x.Violated && x.Replay == "" {
			x.Replay = l.replay(o.Dir, cmp.Or(x.Workload, x.Name), x.Schedule)
		}
		x.Clean()
	}
	r.Prediction = l.prediction(root)
	r.Unpredicted = r.Prediction == nil
	r.sum()
	return r, nil
}

// replay is the command that shows a schedule of a workload again. The folder is named as it was
// given, and not where it was not: it may be relative to another folder than the clone's.
func (l *Lab) replay(dir, workload, schedule string) string {
	in := ""
	if dir != "" {
		in = dirFlag(dir)
	}
	return fmt.Sprintf("btrlab lab grade %d%s --replay %s=%s", l.N, in, workload, schedule)
}

func dirFlag(dir string) string { return " --dir " + prose.ShellWord(dir) }

// addPersonal grades the personal questions, or says that they are left out.
func (r *Report) addPersonal(ctx context.Context, l *Lab, root, dir string, o Options) error {
	if o.Student == "" {
		all, err := l.personal(root)
		r.LeftOut = len(all)
		return err
	}
	rows, err := l.gradePersonal(ctx, root, dir, o.Student, o.Progress)
	r.Rows = append(r.Rows, rows...)
	return err
}

func (l *Lab) report(root, dir string) *Report {
	r := &Report{Lab: l.N, Title: l.Title, Dir: prose.Escape(dir)}
	if rel, err := filepath.Rel(root, dir); err == nil && !strings.HasPrefix(rel, "..") {
		r.Dir = prose.Escape(rel)
	}
	return r
}

// Nothing is the report on a folder that Grade found nothing in: no points, and why.
func (l *Lab) Nothing(err *sandbox.NoFilesError) *Report {
	r := l.report("", err.Dir)
	r.Rows = grade.Refused("check", judges.Points(l.judge), []string{err.Error()})
	r.Rows[0].Clean()
	r.sum()
	return r
}

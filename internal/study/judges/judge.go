package judges

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/timeline"
)

// judging is a Run on its way.
type judging struct {
	*sandbox.Run
	done  []grade.Row // so far
	clean bool        // no workload so far is violated; a ratio that is missed violates nothing
}

// Judge runs the workloads of a lab under the student's code, or one schedule of one of them.
func Judge(l Lab, run *sandbox.Run) []grade.Row {
	asks, _ := l.(reader)
	if asks != nil {
		if name, wrong := asks.read(); len(wrong) > 0 {
			return grade.Refused(name, Points(l), wrong)
		}
	}
	j := &judging{Run: run, clean: true}
	shown := false
	workloads := everywhere(l)
	if run.Only != "" {
		w := find(workloads, run.Only)
		if workloads = nil; w != nil {
			workloads = []Workload{*w}
		}
	}
	for _, w := range workloads {
		r, before := j.earlier(w.name)
		if !before {
			if run.Keep != nil {
				run.Keep(j.done, w.name)
			}
			r = w.row(j)
			if shown {
				r.Trace = "" // the first is enough to read
			}
		}
		shown = shown || r.Trace != ""
		j.clean = j.clean && (r.Pass || w.onlyMeasures())
		j.done = append(j.done, r)
		if run.First && !r.Pass && !before {
			break
		}
	}
	rows := j.done
	if len(rows) == 0 {
		return grade.Refused(run.Only, 0, []string{"no such workload"})
	}
	if run.Only != "" {
		count(l, rows)
		return rows
	}
	rows = finish(l, rows)
	if asks != nil {
		guesses(rows, asks.said())
	}
	return rows
}

// earlier is the row of an earlier process.
func (j *judging) earlier(name string) (r grade.Row, ok bool) {
	i := slices.IndexFunc(j.Before, func(r grade.Row) bool { return r.Name == name })
	if i < 0 {
		return r, false
	}
	return j.Before[i], true
}

// row judges the workload.
func (w *Workload) row(j *judging) grade.Row {
	r := grade.Row{Name: w.name, Asks: w.asks, Max: w.points}
	var err error
	sandbox.Execute(w.name)
	switch {
	case j.Only != "" && w.replay != nil:
		err = w.replay(j.Schedule, &r)
	case j.Only != "" && w.explored():
		err = w.runOne(j.Schedule, &r)
	case w.judge != nil:
		err = w.judge(j, &r)
	case w.measure != nil:
		err = w.measure(j.clean, &r)
	case w.ratio == nil:
		err = w.search(j, &r)
	case !j.clean && !w.judges:
		r.Result = "not measured: a workload is violated"
	default:
		r.Pass, r.Result, err = w.ratio()
	}
	if err != nil {
		r.Pass, r.Result = false, err.Error()
		var v violation
		if errors.As(err, &v) {
			r.Kind = v.kind
		}
	}
	if r.Pass {
		r.Score = r.Max
	}
	return r
}

// Grade judges the files of a lab in dir. The error is about the tools, or a *sandbox.NoFilesError;
// what is wrong with the files is in the rows.
func Grade(ctx context.Context, root, dir string, l Lab, o sandbox.Options) ([]grade.Row, error) {
	about := l.About()
	if about.Code == nil {
		return gradeAnswers(ctx, l, filepath.Join(dir, about.File), o)
	}
	files, err := sandbox.Sources(dir)
	if err != nil {
		return sandbox.Unread(err, Points(l))
	}
	if len(files) == 0 {
		return nil, &sandbox.NoFilesError{Dir: dir, Want: "Go file"}
	}
	rows, err := jobOf(l).Judge(ctx, root, files, o)
	// one row is what is said of code that was refused, or that First stops at
	whole := o.Workload == "" && len(rows) > 1
	if about.Essay != nil && whole && !(o.First && !rows[len(rows)-1].Pass) {
		rows = append(rows, about.Essay.Row(dir))
	}
	return rows, err
}

// jobOf is the code of a lab with its rows.
func jobOf(l Lab) *sandbox.Job {
	about := l.About()
	j := &sandbox.Job{Code: about.Code, Name: fmt.Sprintf("%02d", about.N), Max: Points(l),
		Finish: func(judged []grade.Row) []grade.Row { return finish(l, judged) }}
	j.Rows = Rows(l)
	return j
}

// Rows are what the grade of a lab asks, before anything is graded.
func Rows(l Lab) (rows []grade.Row) {
	for _, w := range l.Workloads() {
		rows = append(rows, grade.Row{Name: w.name, Asks: w.asks, Max: w.points})
	}
	return rows
}

// Debug builds a program for a debugger, at bin, that runs one schedule of one workload of lab l
// under the code in a folder, and stops at each step. wrong says what is wrong with the code.
func Debug(ctx context.Context, root, dir string, l Lab, workload, schedule, bin string) (wrong []string, err error) {
	files, err := sandbox.Sources(dir)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, &sandbox.NoFilesError{Dir: dir, Want: "Go file"}
	}
	j := jobOf(l)
	return j.BuildDebug(ctx, root, files, fmt.Sprintf("judges.DebugMain(%s, os.Stdout, %q, %q)", j.Value, workload, schedule), bin)
}

// DebugMain is the main function of the program that Debug has built; it prints to w.
func DebugMain(l Lab, w io.Writer, workload, schedule string) int {
	if err := timeline.Debug(w); err != nil {
		fmt.Fprintln(w, err)
		return 2
	}
	code := 0
	for _, r := range Judge(l, &sandbox.Run{Only: workload, Schedule: schedule}) {
		fmt.Fprintf(w, "\n%s: %s\n", r.Name, r.Result)
		if !r.Pass {
			code = 1
		}
	}
	return code
}

// profiled is a Lab that keeps a profile of what it has measured.
type profiled interface{ writeProfile(path string) error }

// Main is the main function of the program that judges a submission to the lab, whose functions l
// holds.
func Main(l Lab, args []string) int {
	return sandbox.Main(args, func(r *sandbox.Run) ([]grade.Row, error) {
		rows := Judge(l, r)
		if p, ok := l.(profiled); ok && r.Only == "" {
			return rows, p.writeProfile(r.Profile)
		}
		return rows, nil
	})
}

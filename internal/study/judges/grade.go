package judges

import (
	"context"
	"fmt"
	"path/filepath"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
)

// Grade judges the files of a lab in dir. The error is about the tools, or a *sandbox.NoFilesError;
// what is wrong with the files is in the rows.
func Grade(ctx context.Context, root, dir string, l Lab, o sandbox.Options) ([]grade.Row, error) {
	about := l.About()
	if about.Code == nil {
		return gradeAnswers(l, filepath.Join(dir, about.File), o)
	}
	files, err := sandbox.Sources(dir)
	if err != nil {
		return nil, err
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
	for _, w := range l.Workloads() {
		j.Rows = append(j.Rows, grade.Row{Name: w.name, Asks: w.asks, Max: w.points})
	}
	return j
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

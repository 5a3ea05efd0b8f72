package judges

import (
	"slices"

	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
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
	for _, w := range l.Workloads() {
		if run.Only != "" && w.name != run.Only {
			continue
		}
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
	}
	if r.Pass {
		r.Score = r.Max
	}
	return r
}

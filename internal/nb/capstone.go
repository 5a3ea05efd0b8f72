package nb

import (
	"context"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"btrlab/internal/draw/chart"
	"btrlab/internal/study/course"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
)

// Graded is a folder with a solution of lab 12, graded.
type Graded struct{ rep *course.Report }

// Capstone grades the policy in dir, a folder below a clone, with at most so many schedules in each
// pass of each search; 0 is as many as btrlab lab grade 12 takes, which is up to a minute. It needs
// the go tool.
func Capstone(dir string, schedules int) (*Graded, error) {
	if schedules < 0 || schedules > MaxSchedules {
		return nil, fmt.Errorf("%d schedules, want 0 to %d", schedules, MaxSchedules)
	}
	root, err := sandbox.Root(dir)
	if err != nil {
		return nil, err
	}
	r, err := course.Grade(context.Background(), root, course.Capstone(), course.Options{Dir: dir, Options: sandbox.Options{Schedules: schedules}})
	if err != nil {
		return nil, err
	}
	return &Graded{r}, nil
}

// Score is the points.
func (g *Graded) Score() float64 { return g.rep.Score }

// Kept reports whether no scenario is violated.
func (g *Graded) Kept() bool {
	return !slices.ContainsFunc(g.rep.Rows, func(r grade.Row) bool { return !r.Pass && len(r.Times) == 0 && r.Name != "text" })
}

// Table has the rows of the grade.
func (g *Graded) Table() Table {
	t := Table{Caption: fmt.Sprintf("%s: %g of %g points", g.rep.Dir, g.rep.Score, g.rep.Max), Head: []string{"row", "points", "result"}}
	for _, r := range g.rep.Rows {
		t.Rows = append(t.Rows, []string{r.Name, fmt.Sprintf("%g of %g", r.Score, r.Max), r.Result})
	}
	return t
}

// Scenarios has the searches of each row.
func (g *Graded) Scenarios() Table {
	t := Table{Caption: "every scenario of the grade", Head: []string{"row", "scenario", "kept", "search"}}
	for _, r := range g.rep.Rows {
		for _, p := range r.Parts {
			t.Rows = append(t.Rows, []string{r.Name, p.Name, map[bool]string{true: "yes", false: "no"}[p.Pass], p.Result})
		}
	}
	return t
}

// Measured has how many times as fast as policy locked each policy is in each job. Yours is missing
// while a scenario is violated.
func (g *Graded) Measured() Table {
	t := Table{Caption: "virtual time: times policy locked", Head: []string{"job"}}
	for _, r := range g.rep.Measured() {
		names, ratios := r.Ratios()
		if len(t.Rows) == 0 {
			t.Head = append(t.Head, names...)
		}
		row := []string{r.Name}
		for _, x := range ratios {
			row = append(row, fmt.Sprintf("%.2f", x))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Waits has what the tasks of each job waited for under the policy.
func (g *Graded) Waits() Table {
	t := Table{Caption: "what the tasks waited for under your policy", Head: []string{"job", "lock or event", "waits", "ms"}}
	for _, r := range g.rep.Measured() {
		for _, w := range r.Locks {
			t.Rows = append(t.Rows, []string{r.Name, w.Lock, fmt.Sprint(w.Count), fmt.Sprintf("%.3f", float64(w.Nanos)/1e6)})
		}
	}
	return t
}

// graded are the colours of the bars of Plot, the policies in the order of the report.
var graded = []color.RGBA{{213, 94, 0, 255}, {0, 0, 0, 255}, {86, 180, 233, 255}, {0, 114, 178, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}}

// Plot draws Measured: for each job a bar for each policy.
func (g *Graded) Plot() (Figure, error) {
	p := chart.New("virtual time: times as fast as policy locked")
	p.Y.Label.Text = "ratio to locked"
	rows := g.rep.Measured()
	if len(rows) == 0 {
		return Figure{}, fmt.Errorf("nothing was measured: %s", g.rep.Rows[0].Result)
	}
	names, _ := rows[0].Ratios()
	alt := "Times as fast as policy locked:"
	var jobs []string
	for i, name := range names {
		var values plotter.Values
		for _, r := range rows {
			_, ratios := r.Ratios()
			values = append(values, ratios[i])
			if i == 0 {
				jobs = append(jobs, r.Name)
			}
			alt += fmt.Sprintf(" %s %s %.2f;", name, r.Name, ratios[i])
		}
		bars, err := plotter.NewBarChart(values, vg.Points(8))
		if err != nil {
			return Figure{}, err
		}
		at := i + len(graded) - len(names) // the student's colour stays the student's
		bars.Color, bars.LineStyle.Width, bars.Offset = graded[at], 0, vg.Points(9*(float64(i)-float64(len(names)-1)/2))
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	p.NominalX(jobs...)
	p.X.Min, p.X.Max, p.Y.Min, p.Legend.Top, p.Legend.Padding = -0.6, float64(len(jobs))-0.4, 0, true, vg.Points(3)
	return render(p, 3.2, alt[:len(alt)-1]+".")
}

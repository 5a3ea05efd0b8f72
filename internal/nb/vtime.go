package nb

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"

	"btrlab/internal/draw"
	"btrlab/internal/draw/chart"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// MaxCPUs bounds Options.CPUs.
const MaxCPUs = 64

// simulate runs f as a task of a machine of so many CPUs.
func simulate(cpus int, f func(t *sched.Task) error) error {
	var err error
	_, verr := vtime.Run(vtime.Machine{CPUs: cpus, Handoff: vtime.DefaultHandoff}, func(t *sched.Task) { err = f(t) })
	if err == nil {
		err = verr
	}
	return err
}

// Scaling is one job in virtual time on machines with more and more CPUs.
type Scaling struct {
	cpus []int
	runs []*Comparison
}

// Scale compares the policies of o in virtual time, once for each number of CPUs.
func Scale(o Options, cpus []int) (*Scaling, error) {
	s := &Scaling{}
	for _, n := range cpus {
		if n < 1 {
			return nil, fmt.Errorf("%d cpus, want at least 1", n)
		}
		o.CPUs = n
		c, err := Compare(o)
		if err != nil {
			return nil, err
		}
		s.cpus, s.runs = append(s.cpus, n), append(s.runs, c)
	}
	if len(s.runs) == 0 {
		return nil, fmt.Errorf("no number of cpus")
	}
	return s, nil
}

// OK reports whether every block read back right and every image checked clean.
func (s *Scaling) OK() bool {
	for _, c := range s.runs {
		if !c.OK() {
			return false
		}
	}
	return true
}

// Ratio is the iops of a policy by the baseline's, on the last of the machines.
func (s *Scaling) Ratio(policy string) float64 {
	c := s.runs[len(s.runs)-1]
	for _, r := range c.res.Rows {
		if r.Policy == policy {
			return r.Ratio
		}
	}
	return 0
}

// Table has a row for each policy and a column for each number of CPUs.
func (s *Scaling) Table() Table {
	res := s.runs[0].res
	t := Table{Caption: fmt.Sprintf("iops in virtual time, and their ratio to %s", res.Baseline), Head: []string{"policy"}}
	for _, n := range s.cpus {
		t.Head = append(t.Head, fmt.Sprintf("CPUs: %d", n))
	}
	for i, r := range res.Rows {
		row := []string{r.Policy}
		for _, c := range s.runs {
			row = append(row, fmt.Sprintf("%s (%.2f)", draw.Count(c.res.Rows[i].IOPS), c.res.Rows[i].Ratio))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// verdicts are the colours of a step that breaks the rule and of one that does not.
var verdicts = [2]color.Color{color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}}

// Plot draws iops over the number of CPUs, a line for each policy.
func (s *Scaling) Plot() (Figure, error) {
	p := chart.New("virtual time")
	p.X.Label.Text, p.Y.Label.Text = "simulated CPUs", "thousand writes a second"
	p.Legend.Top, p.Legend.Left = true, true
	alt := "Thousand writes a second by CPUs:"
	styles := draw.Styles(policies(s.runs[0].res))
	for i, r := range s.runs[0].res.Rows {
		var xy plotter.XYs
		alt += " " + r.Policy
		for k, c := range s.runs {
			y := c.res.Rows[i].IOPS / 1000
			xy = append(xy, plotter.XY{X: float64(s.cpus[k]), Y: y})
			alt += fmt.Sprintf(" %d: %.0f,", s.cpus[k], y)
		}
		alt = alt[:len(alt)-1] + ";"
		line, points, err := plotter.NewLinePoints(xy)
		if err != nil {
			return Figure{}, err
		}
		line.Color, line.Dashes, line.Width = styles[i].Color, chart.Dashes(&styles[i]), vg.Points(1.5)
		points.Color, points.Shape, points.Radius = line.Color, chart.Glyph(&styles[i]), vg.Points(3.5)
		p.Add(line, points)
		p.Legend.Add(r.Policy, line, points)
	}
	p.Y.Min = 0
	return render(p, 3, alt[:len(alt)-1]+".")
}

// Plot draws the steps at which the preemption is harmless low and those at which it is not high.
func (w *Window) Plot() (Figure, error) {
	p := chart.New(fmt.Sprintf("%s under %s: one preemption", w.Scenario, w.Policy))
	p.X.Label.Text = "before step"
	var at [2]plotter.XYs
	alt := fmt.Sprintf("%s under %s: of %d steps for the preemption %d violate the rule", w.Scenario, w.Policy, len(w.steps), w.Broken())
	for _, s := range w.steps {
		y := 0
		if s.broken {
			y = 1
		}
		at[y] = append(at[y], plotter.XY{X: float64(s.step), Y: float64(y)})
	}
	for y, xy := range at {
		if len(xy) == 0 {
			continue
		}
		points, err := plotter.NewScatter(xy)
		if err != nil {
			return Figure{}, err
		}
		points.Color, points.Radius = verdicts[y], vg.Points(3.5)
		points.Shape = vgdraw.GlyphDrawer(vgdraw.CircleGlyph{})
		if y == 1 {
			points.Shape = vgdraw.BoxGlyph{}
		}
		p.Add(points)
	}
	p.Y.Min, p.Y.Max = -0.4, 1.4
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "kept"}, {Value: 1, Label: "violated"}}
	return render(p, 1.8, alt+".")
}

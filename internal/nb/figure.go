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
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/report"
)

// Figure is a picture that shows itself as PNG, with a sentence for those who cannot see it.
type Figure struct {
	PNG []byte
	Alt string
}

// data is the kernel's display.Data, which is an alias too.
type data = struct {
	Data      map[string]interface{}
	Metadata  map[string]interface{}
	Transient map[string]interface{}
}

// Render is what the notebook kernel asks for. The sentence is the picture's alternative text.
func (f Figure) Render() data {
	return data{
		Data:     map[string]interface{}{"image/png": f.PNG, "text/plain": f.Alt},
		Metadata: map[string]interface{}{"image/png": map[string]interface{}{"alt": f.Alt, "width": figureWidth}},
	}
}

const figureWidth = 691 // px: 7.2 inches at 96 dots an inch

// LatencyCDF draws the share of writes that completed within a time, by policy.
func (c *Comparison) LatencyCDF() (Figure, error) {
	png, err := report.LatencyPNG(c.res)
	alt := "Distribution of completion latency:"
	for _, r := range c.res.Rows {
		alt += fmt.Sprintf(" %s p50 %s, p99 %s;", r.Policy, ns(r.Clat.P50), ns(r.Clat.P99))
	}
	return Figure{png, alt[:len(alt)-1] + "."}, err
}

// WaitPlot draws the share of the writers' time spent waiting, by lock class.
func (c *Comparison) WaitPlot() (Figure, error) {
	png, err := report.WaitsPNG(c.res)
	alt := "Share of the writers' time spent waiting:"
	for _, r := range c.res.Rows {
		alt += fmt.Sprintf(" %s %.1f percent;", r.Policy, 100*r.AllWaits())
	}
	return Figure{png, alt[:len(alt)-1] + "."}, err
}

// Ratios draws each policy's iops by the baseline's in the same round: a bar at the median,
// whiskers to the extremes.
func (c *Comparison) Ratios() (Figure, error) {
	var list []ratio
	for _, r := range c.res.Rows {
		list = append(list, ratio{r.Policy, r.Ratio, r.RatioMin, r.RatioMax})
	}
	return ratioBars("iops, relative to "+c.res.Baseline, "Ratios of iops:", list, policies(c.res))
}

// ratio is a bar with its whiskers.
type ratio struct {
	policy       string
	mid, lo, max float64
}

// ratioBars draws a bar for each policy; styles has the policies in the order of their colours.
func ratioBars(title, alt string, list []ratio, styled []string) (Figure, error) {
	p := chart.New(title)
	p.Y.Label.Text = "ratio, median and range of the rounds"
	var names []string
	points := ratioPoints{}
	styles := draw.Styles(styled)
	for i, r := range list {
		names = append(names, r.policy)
		bar, err := plotter.NewBarChart(plotter.Values{r.mid}, vg.Points(28))
		if err != nil {
			return Figure{}, err
		}
		bar.XMin, bar.Color, bar.LineStyle.Width = float64(i), styles[i].Color, 0
		p.Add(bar)
		points.XYs = append(points.XYs, plotter.XY{X: float64(i), Y: r.mid})
		points.YErrors = append(points.YErrors, struct{ Low, High float64 }{r.mid - r.lo, r.max - r.mid})
		alt += fmt.Sprintf(" %s %.2f (%.2f to %.2f);", r.policy, r.mid, r.lo, r.max)
	}
	errs, err := plotter.NewYErrorBars(points)
	if err != nil {
		return Figure{}, err
	}
	errs.LineStyle = vgdraw.LineStyle{Color: color.Gray{110}, Width: vg.Points(1.5)}
	p.Add(errs)
	p.NominalX(names...)
	p.X.Min, p.X.Max, p.Y.Min = -0.6, float64(len(names))-0.4, 0
	p.Y.Max *= 1.05 // a whisker ends below the title
	return render(p, 3, alt[:len(alt)-1]+".")
}

// LogPlot draws how long an fsync had the write lock of each level of the log's tree, by policy.
func (c *Comparison) LogPlot() (Figure, error) {
	const levels = 3
	p := chart.New("write locks of an fsync in the log, by level from the leaves on")
	p.X.Label.Text, p.Y.Label.Text = "level of the log tree", "µs held in an fsync"
	styles := draw.Styles(policies(c.res))
	alt, n := "Time of an fsync with a block of the log locked:", 0
	for i, r := range c.res.Rows {
		if r.Log == nil {
			continue
		}
		var values plotter.Values
		for level := range levels {
			values = append(values, r.Log.HeldEach(level)/1000)
		}
		bars, err := plotter.NewBarChart(values, vg.Points(24))
		if err != nil {
			return Figure{}, err
		}
		bars.Color, bars.LineStyle.Width, bars.Offset = styles[i].Color, 0, vg.Points(28*float64(n))
		p.Add(bars)
		p.Legend.Add(r.Policy, bars)
		alt += fmt.Sprintf(" %s %.1f, %.1f and %.1f µs at levels 0, 1 and 2;", r.Policy, values[0], values[1], values[2])
		n++
	}
	p.NominalX("0", "1", "2")
	p.X.Max, p.Y.Min, p.Legend.Top, p.Legend.Padding = levels-0.2, 0, true, vg.Points(3)
	p.Y.Max *= 1.1 // the bars end below the legend
	return render(p, 3, alt[:len(alt)-1]+".")
}

// policies are those of the rows.
func policies(r *experiment.Result) (names []string) {
	for _, row := range r.Rows {
		names = append(names, row.Policy)
	}
	return names
}

// render draws p, which is so many inches high.
func render(p *plot.Plot, height vg.Length, alt string) (Figure, error) {
	png, err := chart.Render(p, chart.Width, height*vg.Inch)
	return Figure{png, alt}, err
}

type ratioPoints struct {
	plotter.XYs
	plotter.YErrors
}

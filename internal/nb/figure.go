package nb

import (
	"bytes"
	"fmt"
	"image/color"
	"sort"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Figure is a picture that shows itself as PNG, with a sentence for those who cannot see it.
type Figure struct {
	PNG []byte
	Alt string
}

// SimpleRender is what the notebook kernel asks for.
func (f Figure) SimpleRender() map[string]interface{} {
	return map[string]interface{}{"image/png": f.PNG, "text/plain": f.Alt}
}

// palette is Okabe and Ito's, which people of every colour vision can tell apart.
var palette = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255}, color.RGBA{204, 121, 167, 255},
	color.RGBA{230, 159, 0, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{0, 0, 0, 255}, color.RGBA{140, 140, 140, 255},
}

func draw(p *plot.Plot, alt string) (Figure, error) {
	w, err := p.WriterTo(7*vg.Inch, 4*vg.Inch, "png")
	if err != nil {
		return Figure{}, err
	}
	var b bytes.Buffer
	_, err = w.WriteTo(&b)
	return Figure{b.Bytes(), alt}, err
}

// LatencyCDF draws the share of writes that completed within a time, by policy.
func (c *Comparison) LatencyCDF() (Figure, error) {
	p := plot.New()
	p.Title.Text = "Completion latency"
	p.X.Label.Text, p.Y.Label.Text = "clat, microseconds", "share of writes"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max = 0, 1
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = false, false
	for i, r := range c.res.Rows {
		var xy plotter.XYs
		seen := uint64(0)
		for _, bin := range r.Hist.Bins() {
			seen += bin.Count
			xy = append(xy, plotter.XY{X: max(float64(bin.Value), 1) / 1000, Y: float64(seen) / float64(r.Hist.N())})
		}
		if len(xy) == 0 {
			continue
		}
		line, err := plotter.NewLine(xy)
		if err != nil {
			return Figure{}, err
		}
		line.Color, line.Width = palette[i%len(palette)], vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(r.Policy, line)
	}
	return draw(p, fmt.Sprintf("Cumulative distribution of completion latency for %d policies.", len(c.res.Rows)))
}

// Ratios draws each policy's iops by the baseline's in the same round: a bar at the median, whiskers to the extremes.
func (c *Comparison) Ratios() (Figure, error) {
	p := plot.New()
	p.Title.Text = "iops, relative to " + c.res.Baseline
	p.Y.Min = 0
	var names []string
	var values plotter.Values
	points := ratioPoints{}
	for i, r := range c.res.Rows {
		names = append(names, r.Policy)
		values = append(values, r.Ratio)
		points.XYs = append(points.XYs, plotter.XY{X: float64(i), Y: r.Ratio})
		points.YErrors = append(points.YErrors, struct{ Low, High float64 }{r.Ratio - r.RatioMin, r.RatioMax - r.Ratio})
	}
	bars, err := plotter.NewBarChart(values, vg.Points(28))
	if err != nil {
		return Figure{}, err
	}
	bars.Color, bars.LineStyle.Width = palette[5], 0
	errs, err := plotter.NewYErrorBars(points)
	if err != nil {
		return Figure{}, err
	}
	p.Add(bars, errs)
	p.NominalX(names...)
	alt := "Ratios of iops:"
	for _, r := range c.res.Rows {
		alt += fmt.Sprintf(" %s %.2f (%.2f to %.2f);", r.Policy, r.Ratio, r.RatioMin, r.RatioMax)
	}
	return draw(p, alt[:len(alt)-1]+".")
}

type ratioPoints struct {
	plotter.XYs
	plotter.YErrors
}

// WaitPlot draws the share of the writers' time spent waiting, by lock class.
func (c *Comparison) WaitPlot() (Figure, error) {
	classes := waitClasses(c.res)
	if len(classes) > len(palette) {
		classes = classes[:len(palette)]
	}
	p := plot.New()
	p.Title.Text = "Where the writers waited"
	p.Y.Label.Text = "share of time, percent"
	p.Y.Min = 0
	p.Legend.Top = true
	var below *plotter.BarChart
	top := 0.0
	for i, class := range classes {
		var v plotter.Values
		for _, r := range c.res.Rows {
			v = append(v, 100*r.Waits[class])
		}
		bars, err := plotter.NewBarChart(v, vg.Points(28))
		if err != nil {
			return Figure{}, err
		}
		bars.Color, bars.LineStyle.Width = palette[i], 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.Legend.Add(class, bars)
	}
	var names []string
	for _, r := range c.res.Rows {
		names = append(names, r.Policy)
		sum := 0.0
		for _, s := range r.Waits {
			sum += 100 * s
		}
		top = max(top, sum)
	}
	p.Y.Max = max(1.4*top, 1) // room for the legend
	p.NominalX(names...)
	sort.Strings(classes)
	return draw(p, fmt.Sprintf("Stacked bars: share of time waited by lock class (%v) for each policy.", classes))
}

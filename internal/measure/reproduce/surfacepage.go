package reproduce

import (
	"encoding/base64"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"btrlab/internal/draw"
	"btrlab/internal/draw/chart"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/prose"
)

// at is where on the axis X a line has the published ratio, between the two points around it; not
// ok when it does nowhere.
func (s *Surface) at(line []*Point) (x float64, ok bool) {
	for i, p := range line[1:] {
		q := line[i]
		if (q.Ratio-s.Want)*(p.Ratio-s.Want) <= 0 && q.Ratio != p.Ratio {
			return q.X + (p.X-q.X)*(s.Want-q.Ratio)/(p.Ratio-q.Ratio), true
		}
	}
	return 0, false
}

// Table is a panel as a table: a line for each Y, the gains in percent, and where the published one
// lies.
func (s *Surface) Table(p *Panel) [][]string {
	head := []string{""}
	for _, q := range p.Points[0] {
		head = append(head, fmt.Sprintf("%g", q.X))
	}
	table := [][]string{append(head, fmt.Sprintf("%.1f %% at", 100*(s.Want-1)))}
	for _, line := range p.Points {
		cells := []string{fmt.Sprintf("%g", line[0].Y)}
		for _, q := range line {
			cells = append(cells, fmt.Sprintf("%.1f", q.Gain()))
		}
		if x, ok := s.at(line); ok {
			cells = append(cells, fmt.Sprintf("%.3g", x))
		} else {
			cells = append(cells, "nowhere")
		}
		table = append(table, cells)
	}
	return table
}

// small is the table of the leaves that were small, for a panel of fsyncs; nil for another.
func (s *Surface) small(p *Panel) [][]string {
	var table [][]string
	some := false
	for _, line := range p.Points {
		cells := []string{fmt.Sprintf("%g", line[0].Y)}
		for _, q := range line {
			some = some || q.Small > 0
			cells = append(cells, fmt.Sprintf("%.3f", q.Small))
		}
		table = append(table, cells)
	}
	if !some {
		return nil
	}
	return append([][]string{s.Table(p)[0][:len(p.Points[0])+1]}, table...)
}

const smallAbout = "How many small leaves of its log an fsync met, in the row that is compared with:"

// fits says how well the points agree with the row that they are fitted to.
func (s *Surface) fits() string {
	worst, runs, n := 0.0, 0, 0
	for _, p := range s.Panels {
		for _, line := range p.Points {
			for _, q := range line {
				worst, runs, n = max(worst, math.Abs(q.Misfit)), runs+q.Runs+1, n+1
			}
		}
	}
	return fmt.Sprintf("At each of the %d points %s is fitted to row %s again, which the worst of them misses by %.1f %%; %d runs.", n, s.Knob, s.To, 100*worst, runs)
}

// conclusion is the first sentence: between which values of X the published gain lies.
func (s *Surface) conclusion() string {
	var some []string
	for _, p := range s.Panels {
		lo, hi, n := math.Inf(1), math.Inf(-1), 0
		for _, line := range p.Points {
			if x, ok := s.at(line); ok {
				lo, hi, n = min(lo, x), max(hi, x), n+1
			}
		}
		name := p.Name
		if name != "" {
			name += ": "
		}
		switch {
		case n == 0:
			some = append(some, fmt.Sprintf("%sno point has the published gain of %.1f %%", name, 100*(s.Want-1)))
		case n == 1 || lo == hi:
			some = append(some, fmt.Sprintf("%sthe published gain of %.1f %% lies at %.3g", name, 100*(s.Want-1), lo))
		default:
			some = append(some, fmt.Sprintf("%sthe published gain of %.1f %% lies between %.3g and %.3g", name, 100*(s.Want-1), lo, hi))
		}
	}
	text := strings.Join(some, "; ") + ", " + s.X + "."
	return strings.ToUpper(text[:1]) + text[1:]
}

// axes say what a table has.
func (s *Surface) axes() string {
	return fmt.Sprintf("Across: %s. Down: %s. Last: where, across, the gain is the published one.", s.X, s.Y)
}

// known are lines on the places of devices.
func (s *Surface) known() (list []string) {
	for _, k := range seeds.Get(s.Seed).Study.Surface.Known {
		list = append(list, fmt.Sprintf("%.3g: %s (%s)", k.X, k.Name, k.From))
	}
	return list
}

// WriteText writes the tables.
func (s *Surface) WriteText(out io.Writer) error {
	var b strings.Builder
	say := func(format string, args ...any) {
		b.WriteString(prose.Wrap(fmt.Sprintf(format, args...), prose.Width) + "\n")
	}
	say("seed %s: gain of %s over %s in percent, file of %.4g GiB, %g virtual seconds", s.Seed, s.Of, s.To, float64(s.Size)/(1<<30), s.Seconds)
	b.WriteByte('\n')
	say("%s", s.conclusion())
	b.WriteByte('\n')
	say("%s", s.axes())
	for _, p := range s.Panels {
		b.WriteByte('\n')
		if p.Name != "" {
			say("%s:", p.Name)
		}
		b.WriteString(prose.Table(1, s.Table(p)))
		if drains := s.drainTable(p); drains != nil {
			b.WriteByte('\n')
			say("%s", s.drainAbout(p))
			b.WriteString(prose.Table(1, drains))
		}
		if small := s.small(p); small != nil {
			b.WriteByte('\n')
			say("%s", smallAbout)
			b.WriteString(prose.Table(1, small))
		}
	}
	b.WriteByte('\n')
	say("%s", s.fits())
	b.WriteByte('\n')
	say("%s", s.About)
	if known := s.known(); len(known) > 0 {
		b.WriteByte('\n')
		say("Known places on that axis:")
		for _, k := range known {
			say("%s", k)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// WriteHTML writes the surface as one page.
func (s *Surface) WriteHTML(w io.Writer) error {
	title := "Seed " + s.Seed + ": what the gain hangs on"
	var b draw.Writer
	b.Add(`<h1>%s</h1>`, title)
	b.Add(`<p class="conclusion">%s</p>`, s.conclusion())
	b.Add(`<p class="meta">Gain of %s over %s in percent, file of %.4g GiB, %g virtual seconds. %s</p>`, s.Of, s.To, float64(s.Size)/(1<<30), s.Seconds, s.fits())
	png, err := s.PNG()
	if err != nil {
		return err
	}
	alt := fmt.Sprintf("contours of the gain over %s and %s", s.X, s.Y)
	var img draw.Writer
	img.Add(`<img alt="%s" src="data:image/png;base64,%s">`, alt, base64.StdEncoding.EncodeToString(png))
	b.Figure(img.HTML(), "",
		"Lines of equal gain between the points that were run, whose gains stand beside them. The thick line is the published gain.")
	b.Add("<p>%s</p>\n<p>%s</p>", s.About, s.axes())
	for _, p := range s.Panels {
		name := p.Name
		if name == "" {
			name = "The points"
		}
		b.Add("<h2>%s</h2>", name)
		b.Table(s.Table(p))
		if drains := s.drainTable(p); drains != nil {
			b.Add("<p>%s</p>", s.drainAbout(p))
			b.Table(drains)
		}
		if small := s.small(p); small != nil {
			b.Add("<p>%s</p>", smallAbout)
			b.Table(small)
		}
	}
	if known := s.known(); len(known) > 0 {
		b.Add("<h2>Known places on the axis</h2>")
		b.List(known)
	}
	page := draw.Page{Title: title, Style: draw.Report("")}
	return page.Write(w, b.HTML())
}

// grid is a panel for gonum.
type grid struct{ p *Panel }

func (g grid) Dims() (c, r int)   { return len(g.p.Points[0]), len(g.p.Points) }
func (g grid) Z(c, r int) float64 { return g.p.Points[r][c].Gain() }
func (g grid) X(c int) float64    { return g.p.Points[0][c].X }
func (g grid) Y(r int) float64    { return g.p.Points[r][0].Y }

// contours are the gains of the thin lines, in percent.
var contours = []float64{1, 2, 3, 5, 10, 15, 20, 30, 40, 50}

// Plot draws the first panel as contours, the published gain as a thick one.
func (s *Surface) Plot() *plot.Plot {
	p := chart.New(s.Panels[0].Name)
	p.X.Label.Text, p.Y.Label.Text = s.X, s.Y
	g := grid{s.Panels[0]}
	p.Add(chart.Grid())
	thin := plotter.NewContour(g, contours, nil)
	thin.LineStyles[0].Color, thin.LineStyles[0].Width = color.Gray{120}, 0.6
	thick := plotter.NewContour(g, []float64{100 * (s.Want - 1)}, nil)
	thick.LineStyles[0].Color, thick.LineStyles[0].Width = color.Black, 2
	p.Add(thin, thick)
	var at plotter.XYs
	var says []string
	for _, line := range s.Panels[0].Points {
		for _, q := range line {
			at = append(at, plotter.XY{X: q.X, Y: q.Y})
			says = append(says, fmt.Sprintf("%.1f %%", q.Gain()))
		}
	}
	marks, err := plotter.NewScatter(at)
	if err != nil {
		panic(err) // the points are numbers
	}
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: at, Labels: says})
	if err != nil {
		panic(err)
	}
	marks.Radius, marks.Color = 1.6, color.Gray{60}
	for i := range labels.TextStyle {
		labels.TextStyle[i] = p.X.Tick.Label
		labels.TextStyle[i].XAlign, labels.TextStyle[i].YAlign = text.XCenter, text.YBottom
	}
	labels.Offset.Y = 3
	p.Add(marks, labels)
	c, r := g.Dims()
	var across, up chart.Ticks
	for i := range c {
		across = append(across, draw.Tick{Value: g.X(i), Label: fmt.Sprintf("%g", g.X(i))})
	}
	for i := range r {
		up = append(up, draw.Tick{Value: g.Y(i), Label: fmt.Sprintf("%g", g.Y(i))})
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = across, up
	room := func(lo, hi float64) (float64, float64) { return lo - (hi-lo)/12, hi + (hi-lo)/10 }
	p.X.Min, p.X.Max = room(g.X(0), g.X(c-1))
	p.Y.Min, p.Y.Max = room(g.Y(0), g.Y(r-1))
	return p
}

// PNG is Plot as a picture.
func (s *Surface) PNG() ([]byte, error) { return chart.Render(s.Plot(), chart.Width, 4.1*vg.Inch) }

package report

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/stats"
)

// Figures are PNG: a browser sets an SVG's text in a font of its own, whose widths are not those
// the plot was laid out with, and clips labels.
const (
	figureDPI   = 192
	figureWidth = 7.2 * vg.Inch
	narrowWidth = 3.6 * vg.Inch // of the bars on a telephone, whose text stays as large
)

// stylesOf are the styles of the rows.
func stylesOf(rows []*experiment.Row) []Style {
	var names []string
	for _, row := range rows {
		names = append(names, row.Policy)
	}
	return Styles(names)
}

func newPlot() *plot.Plot {
	p := plot.New()
	for _, s := range []*text.Style{&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		s.Font.Variant = "Sans"
		s.Font.Size = 9
	}
	p.X.Label.Padding, p.Y.Label.Padding = 4, 4
	return p
}

// render draws p on white with a margin, so that nothing at its edge is cut off.
func render(p *plot.Plot, width, height vg.Length) ([]byte, error) {
	c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(figureDPI), vgimg.UseBackgroundColor(color.White))
	dc := draw.New(c)
	p.Draw(draw.Crop(dc, 6, -14, 6, -8))
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// nines is the vertical scale of the CDF: each step up is a tenth of the writes that are slower
// still.
func nines(share float64) float64 { return -math.Log10(1 - share) }

type fixedTicks []plot.Tick

func (f fixedTicks) Ticks(_, _ float64) []plot.Tick { return f }

func ninesTicks(top float64) fixedTicks {
	out := fixedTicks{{Value: 0, Label: "0"}, {Value: nines(0.5), Label: "50 %"}}
	for i, l := range []string{"90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"} {
		if v := float64(i + 1); v <= top+0.01 {
			out = append(out, plot.Tick{Value: v, Label: l})
		}
	}
	return out
}

// nsTicks are powers of ten of nanoseconds, named; 2 and 5 in between have small ticks.
func nsTicks(lo, hi float64) fixedTicks {
	var out fixedTicks
	for d := math.Floor(math.Log10(lo)); d <= math.Log10(hi)+1; d++ {
		for _, m := range []float64{1, 2, 3, 4, 5, 6, 7, 8, 9} {
			v := m * math.Pow(10, d)
			if v < lo || v > hi {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 {
				t.Label = duration(v)
			}
			out = append(out, t)
		}
	}
	return out
}

func duration(ns float64) string {
	switch {
	case ns >= 1e9:
		return fmt.Sprintf("%g s", ns/1e9)
	case ns >= 1e6:
		return fmt.Sprintf("%g ms", ns/1e6)
	case ns >= 1e3:
		return fmt.Sprintf("%g µs", ns/1e3)
	}
	return fmt.Sprintf("%g ns", ns)
}

// cdfPoints is the share of writes that are no slower than each latency, on the nines scale. The
// last point, where the share is one, is left out: it is at infinity. So are the first 0.1 percent:
// they would lie on the axis, and the events that fio reaps at the end of a job have no latency at
// all.
func cdfPoints(h *stats.Hist) plotter.XYs {
	var out plotter.XYs
	sum, n := uint64(0), float64(h.N())
	for _, b := range h.Bins() {
		sum += b.Count
		if share := float64(sum) / n; share >= 0.001 && share < 1 {
			out = append(out, plotter.XY{X: math.Max(1, float64(b.Value)), Y: nines(share)})
		}
	}
	return out
}

// dataURL puts a picture into the page; no picture is "".
func dataURL(png []byte) template.URL {
	if png == nil {
		return ""
	}
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(png))
}

// cdfFigure draws the latency distribution of every policy; nil when nothing was measured.
func cdfFigure(r *experiment.Result) ([]byte, error) {
	p := newPlot()
	p.X.Label.Text = "completion latency (clat)"
	p.Y.Label.Text = "share of writes at most that slow"
	p.X.Scale = plot.LogScale{}
	lo, hi, top := math.Inf(1), 0.0, 1.0
	styles := stylesOf(r.Rows)
	for i, row := range r.Rows {
		pts := cdfPoints(row.Hist)
		if len(pts) < 2 {
			continue
		}
		lo, hi = math.Min(lo, pts[0].X), math.Max(hi, float64(row.Hist.Max()))
		top = math.Max(top, pts[len(pts)-1].Y)
		s := styles[i]
		line, err := plotter.NewLine(pts)
		if err != nil {
			return nil, err
		}
		line.Color, line.Dashes, line.Width = s.Color, s.Dashes, 1.3
		// A mark at p50, p90, p99, ... of each line.
		var at plotter.XYs
		for _, q := range []float64{50, 90, 99, 99.9, 99.99} {
			if y := nines(q / 100); y <= pts[len(pts)-1].Y {
				at = append(at, plotter.XY{X: math.Max(1, float64(row.Hist.Percentile(q))), Y: y})
			}
		}
		p.Add(line)
		if len(at) == 0 {
			p.Legend.Add(row.Policy, line)
			continue
		}
		marks, err := plotter.NewScatter(at)
		if err != nil {
			return nil, err
		}
		marks.Shape, marks.Color, marks.Radius = s.Shape, s.Color, 3
		p.Add(marks)
		p.Legend.Add(row.Policy, line, marks)
	}
	if hi == 0 {
		return nil, nil
	}
	lo, hi = lo*0.9, hi*1.1
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = lo, hi, 0, top+0.1
	p.X.Tick.Marker, p.Y.Tick.Marker = nsTicks(lo, hi), ninesTicks(top)
	p.Add(grid())
	p.Legend.ThumbnailWidth = 34
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = 2
	p.Legend.XOffs, p.Legend.YOffs = 8, -4
	return render(p, figureWidth, 4.1*vg.Inch)
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = color.Gray{225}, color.Gray{225}
	return g
}

// iopsBars is one horizontal bar per row, with a line from the slowest round to the fastest, and
// what was published.
type iopsBars struct {
	rows   []*experiment.Row
	styles []Style
	label  text.Style
}

// spread is the slowest and the fastest round.
func spread(row *experiment.Row) (lo, hi float64) {
	if len(row.RoundIOPS) == 0 {
		return row.IOPS, row.IOPS
	}
	return slices.Min(row.RoundIOPS), slices.Max(row.RoundIOPS)
}

func (b iopsBars) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	half := (ty(1) - ty(0)) * 0.32
	ink := draw.LineStyle{Color: color.Gray{40}, Width: 1}
	for i, row := range b.rows {
		y := ty(float64(len(b.rows) - 1 - i))
		col := b.styles[i].Color
		c.FillPolygon(col, []vg.Point{{X: tx(0), Y: y - half}, {X: tx(row.IOPS), Y: y - half}, {X: tx(row.IOPS), Y: y + half}, {X: tx(0), Y: y + half}})
		lo, hi := spread(row)
		if lo < hi {
			c.StrokeLine2(draw.LineStyle{Color: color.White, Width: 3}, tx(lo), y, tx(hi), y)
			c.StrokeLine2(ink, tx(lo), y, tx(hi), y)
			for _, x := range []float64{lo, hi} {
				c.StrokeLine2(ink, tx(x), y-half/2, tx(x), y+half/2)
			}
		}
		end := math.Max(row.IOPS, hi)
		if x := tx(row.Published); row.Published > 0 {
			d := half * 0.8
			diamond := []vg.Point{{X: x - d, Y: y}, {X: x, Y: y + d}, {X: x + d, Y: y}, {X: x, Y: y - d}}
			c.FillPolygon(color.White, diamond)
			c.StrokeLines(ink, append(diamond, diamond[0]))
			end = math.Max(end, row.Published)
		}
		s := b.label
		s.XAlign, s.YAlign = text.XLeft, text.YCenter
		c.FillText(s, vg.Point{X: tx(end) + half, Y: y}, experiment.Count(row.IOPS))
	}
}

// iopsFigure draws the iops of every row; nil when nothing was measured.
func iopsFigure(r *experiment.Result, width vg.Length) ([]byte, error) {
	p := newPlot()
	p.X.Label.Text = "iops"
	p.Add(iopsBars{r.Rows, stylesOf(r.Rows), p.X.Tick.Label})
	var ticks fixedTicks
	most := 0.0
	for i, row := range r.Rows {
		_, hi := spread(row)
		most = max(most, row.IOPS, hi, row.Published)
		ticks = append(ticks, plot.Tick{Value: float64(len(r.Rows) - 1 - i), Label: row.Policy})
	}
	if most == 0 {
		return nil, nil
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	p.X.Tick.Marker = countTicks{}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, most*(1+0.13*float64(figureWidth/width)), -0.6, float64(len(r.Rows))-0.4
	return render(p, width, vg.Length(0.27*float64(len(r.Rows))+0.75)*vg.Inch)
}

// countTicks are gonum's, with thousands set apart.
type countTicks struct{}

func (countTicks) Ticks(lo, hi float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(lo, hi)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = experiment.Count(ticks[i].Value)
		}
	}
	return ticks
}

// Hatches tell the classes apart without colour.
type hatch uint8

const (
	plain hatch = iota
	rising
	falling
	vertical
	horizontal
	crossed
	dense
)

type fill struct {
	color color.Color
	hatch hatch
}

var fills = [8]fill{
	{color.RGBA{90, 90, 90, 255}, plain},
	{color.RGBA{230, 200, 120, 255}, rising},
	{color.RGBA{150, 200, 235, 255}, falling},
	{color.RGBA{225, 225, 225, 255}, plain},
	{color.RGBA{170, 215, 190, 255}, vertical},
	{color.RGBA{235, 190, 210, 255}, horizontal},
	{color.RGBA{205, 205, 160, 255}, crossed},
	{color.RGBA{200, 200, 200, 255}, dense},
}

// fillsFor gives every class a fill; the usual classes look alike in every figure.
func fillsFor(classes []string) []fill {
	usual := map[string]int{"i_rwsem": 0, "balance_dirty": 1, "ordered_extent": 2, "page": 3, "stable_page": 4, "io_tree": 5, "range_lock": 6, "extent": 7}
	out := make([]fill, len(classes))
	var taken [8]bool
	for i, c := range classes {
		if k, ok := usual[c]; ok {
			out[i], taken[k] = fills[k], true
		}
	}
	next := 0
	for i, c := range classes {
		if _, ok := usual[c]; ok {
			continue
		}
		for taken[next] {
			next++
		}
		out[i], taken[next] = fills[next], true
	}
	return out
}

// other is what has no fill of its own.
var other = fill{color.White, plain}

// paint fills the rectangle with colour, hatch and a border.
func (f fill) paint(c *draw.Canvas, r vg.Rectangle) {
	pts := []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}}
	c.FillPolygon(f.color, pts)
	ink := draw.LineStyle{Color: color.Gray{60}, Width: 0.5}
	w, h := r.Max.X-r.Min.X, r.Max.Y-r.Min.Y
	step := vg.Length(4.5)
	diagonal := func(up bool) {
		for d := -h + step/2; d < w; d += step {
			// From the lower edge at d to the upper edge at d+h, cut at the sides.
			x0, x1 := max(d, 0), min(d+h, w)
			if x0 >= x1 {
				continue
			}
			y0, y1 := x0-d, x1-d
			if !up {
				y0, y1 = h-y0, h-y1
			}
			c.StrokeLine2(ink, r.Min.X+x0, r.Min.Y+y0, r.Min.X+x1, r.Min.Y+y1)
		}
	}
	switch f.hatch {
	case rising:
		diagonal(true)
	case falling:
		diagonal(false)
	case crossed:
		diagonal(true)
		diagonal(false)
	case vertical, dense:
		if f.hatch == dense {
			step /= 2
		}
		for x := step / 2; x < w; x += step {
			c.StrokeLine2(ink, r.Min.X+x, r.Min.Y, r.Min.X+x, r.Max.Y)
		}
	case horizontal:
		for y := step / 2; y < h; y += step {
			c.StrokeLine2(ink, r.Min.X, r.Min.Y+y, r.Max.X, r.Min.Y+y)
		}
	}
	c.StrokeLines(draw.LineStyle{Color: color.Gray{40}, Width: 0.6}, append(pts, pts[0]))
}

// Thumbnail draws a legend entry.
func (f fill) Thumbnail(c *draw.Canvas) { f.paint(c, c.Rectangle) }

// bars is one stacked horizontal bar per policy, of the shares of its waits.
type bars struct {
	rows    []*experiment.Row
	classes []string
	fills   []fill // of the classes
	label   text.Style
}

func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	half := (ty(1) - ty(0)) * 0.34
	for i, row := range b.rows {
		y := ty(float64(len(b.rows) - 1 - i))
		at := 0.0
		for k := range len(b.classes) + 1 {
			v, f := 100*row.OtherWaits(b.classes), other
			if k < len(b.classes) {
				v, f = 100*row.Waits[b.classes[k]], b.fills[k]
			}
			if v <= 0 {
				continue
			}
			r := vg.Rectangle{Min: vg.Point{X: tx(at), Y: y - half}, Max: vg.Point{X: tx(at + v), Y: y + half}}
			f.paint(&c, r)
			at += v
		}
		s := b.label
		s.XAlign, s.YAlign = text.XLeft, text.YCenter
		says := fmt.Sprintf("%.1f %%", at)
		if row.Waits == nil {
			says = "not known"
		}
		c.FillText(s, vg.Point{X: tx(at) + 4, Y: y}, says)
	}
}

// DataRange lets the axes fit the bars and the sums beside them.
func (b bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	for _, row := range b.rows {
		xmax = math.Max(xmax, 100*row.AllWaits())
	}
	return 0, math.Max(xmax, 1), -0.5, float64(len(b.rows)) - 0.5
}

// waitFigure draws what each policy's writers waited for.
func waitFigure(r *experiment.Result, classes []string, width vg.Length) ([]byte, error) {
	if len(classes) == 0 {
		return nil, nil
	}
	p := newPlot()
	p.X.Label.Text = "share of the writers' time spent waiting, percent"
	b := bars{rows: r.Rows, classes: classes, fills: fillsFor(classes), label: p.X.Tick.Label}
	p.Add(b)
	var ticks fixedTicks
	for i, row := range r.Rows {
		ticks = append(ticks, plot.Tick{Value: float64(len(r.Rows) - 1 - i), Label: row.Policy})
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	_, hi, ymin, ymax := b.DataRange()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, hi*(1+0.09*float64(figureWidth/width)), ymin, ymax
	for i, c := range classes {
		p.Legend.Add(c, b.fills[i])
	}
	p.Legend.Add("other", other)
	// The legend stands in a column of its own, right of the bars, or below them where there is no
	// room.
	p.Legend.Top = true
	p.Legend.ThumbnailWidth = 22
	p.Legend.Padding = 3
	p.Legend.Left = true
	if width < figureWidth {
		p.X.Label.Text = "percent of the writers' time spent waiting"
	}
	return renderBeside(p, width, vg.Length(math.Max(1.3, 0.42*float64(len(r.Rows))+0.6))*vg.Inch)
}

// renderBeside draws the plot with its legend to the right of it, or below a narrow one.
func renderBeside(p *plot.Plot, width, height vg.Length) ([]byte, error) {
	legend := p.Legend
	p.Legend = plot.NewLegend()
	below := vg.Length(0)
	if width < figureWidth {
		r := legend.Rectangle(draw.New(vgimg.New(width, height)))
		below = r.Max.Y - r.Min.Y + 10
	}
	c := vgimg.NewWith(vgimg.UseWH(width, height+below), vgimg.UseDPI(figureDPI), vgimg.UseBackgroundColor(color.White))
	dc := draw.New(c)
	r := legend.Rectangle(dc)
	w := r.Max.X - r.Min.X
	if below > 0 {
		p.Draw(draw.Crop(dc, 6, -14, 6+below, -8))
		legend.Draw(draw.Crop(dc, 12, -6, 6, -height))
	} else {
		p.Draw(draw.Crop(dc, 6, -w-18, 6, -8))
		legend.Draw(draw.Crop(dc, width-w-12, -6, 6, -8))
	}
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

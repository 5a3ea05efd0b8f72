package report

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"btrlab/internal/draw"
	"btrlab/internal/draw/chart"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/stats"
)

const narrowWidth = chart.Width / 2 // of the bars on a telephone, whose text stays as large

// stylesOf are the styles of the rows.
func stylesOf(rows []*experiment.Row) []draw.Style {
	var names []string
	for _, row := range rows {
		names = append(names, row.Policy)
	}
	return draw.Styles(names)
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
			out = append(out, plotter.XY{X: math.Max(1, float64(b.Value)), Y: draw.Nines(share)})
		}
	}
	return out
}

// LatencyPNG draws the latency distribution of every policy, as on the page; nil when nothing was
// measured.
func LatencyPNG(r *experiment.Result) ([]byte, error) {
	p := chart.New("")
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
		s := &styles[i]
		line, err := plotter.NewLine(pts)
		if err != nil {
			return nil, err
		}
		line.Color, line.Dashes, line.Width = s.Color, chart.Dashes(s), 1.3
		// A mark at p50, p90, p99, ... of each line.
		var at plotter.XYs
		for _, q := range []float64{50, 90, 99, 99.9, 99.99} {
			if y := draw.Nines(q / 100); y <= pts[len(pts)-1].Y {
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
		marks.Shape, marks.Color, marks.Radius = chart.Glyph(s), s.Color, 3
		p.Add(marks)
		p.Legend.Add(row.Policy, line, marks)
	}
	if hi == 0 {
		return nil, nil
	}
	lo, hi = lo*0.9, hi*1.1
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = lo, hi, 0, top+0.1
	p.X.Tick.Marker, p.Y.Tick.Marker = chart.Ticks(draw.NanosTicks(lo, hi)), chart.Ticks(draw.NinesTicks(top))
	p.Add(chart.Grid())
	p.Legend.ThumbnailWidth = 34
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = 2
	p.Legend.XOffs, p.Legend.YOffs = 8, -4
	return chart.Render(p, chart.Width, 4.1*vg.Inch)
}

// iopsBars is one horizontal bar per row, with a line from the slowest round to the fastest, and
// what was published.
type iopsBars struct {
	rows   []*experiment.Row
	styles []draw.Style
	label  text.Style
}

// spread is the slowest and the fastest round.
func spread(row *experiment.Row) (lo, hi float64) {
	if len(row.RoundIOPS) == 0 {
		return row.IOPS, row.IOPS
	}
	_, lo, hi = stats.Spread(row.RoundIOPS)
	return lo, hi
}

func (b iopsBars) Plot(c vgdraw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	half := (ty(1) - ty(0)) * 0.32
	ink := vgdraw.LineStyle{Color: color.Gray{40}, Width: 1}
	for i, row := range b.rows {
		y := ty(float64(len(b.rows) - 1 - i))
		col := b.styles[i].Color
		c.FillPolygon(col, []vg.Point{{X: tx(0), Y: y - half}, {X: tx(row.IOPS), Y: y - half}, {X: tx(row.IOPS), Y: y + half}, {X: tx(0), Y: y + half}})
		lo, hi := spread(row)
		if lo < hi {
			c.StrokeLine2(vgdraw.LineStyle{Color: color.White, Width: 3}, tx(lo), y, tx(hi), y)
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
		c.FillText(s, vg.Point{X: tx(end) + half, Y: y}, draw.Count(row.IOPS))
	}
}

// iopsFigure draws the iops of every row; nil when nothing was measured.
func iopsFigure(r *experiment.Result, width vg.Length) ([]byte, error) {
	p := chart.New("")
	p.X.Label.Text = "iops"
	p.Add(iopsBars{r.Rows, stylesOf(r.Rows), p.X.Tick.Label})
	var ticks chart.Ticks
	most := 0.0
	for i, row := range r.Rows {
		_, hi := spread(row)
		most = max(most, row.IOPS, hi, row.Published)
		ticks = append(ticks, draw.Tick{Value: float64(len(r.Rows) - 1 - i), Label: row.Policy})
	}
	if most == 0 {
		return nil, nil
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	p.X.Tick.Marker = countTicks{}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, most*(1+0.13*float64(chart.Width/width)), -0.6, float64(len(r.Rows))-0.4
	return chart.Render(p, width, vg.Length(0.27*float64(len(r.Rows))+0.75)*vg.Inch)
}

// countTicks are gonum's, with thousands set apart.
type countTicks struct{}

func (countTicks) Ticks(lo, hi float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(lo, hi)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = draw.Count(ticks[i].Value)
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
func (f fill) paint(c *vgdraw.Canvas, r vg.Rectangle) {
	pts := []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}}
	c.FillPolygon(f.color, pts)
	ink := vgdraw.LineStyle{Color: color.Gray{60}, Width: 0.5}
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
	c.StrokeLines(vgdraw.LineStyle{Color: color.Gray{40}, Width: 0.6}, append(pts, pts[0]))
}

// Thumbnail draws a legend entry.
func (f fill) Thumbnail(c *vgdraw.Canvas) { f.paint(c, c.Rectangle) }

// bars is one stacked horizontal bar per policy, of the shares of its waits.
type bars struct {
	rows    []*experiment.Row
	classes []string
	fills   []fill // of the classes
	label   text.Style
}

func (b bars) Plot(c vgdraw.Canvas, p *plot.Plot) {
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
	p := chart.New("")
	p.X.Label.Text = "share of the writers' time spent waiting, percent"
	b := bars{rows: r.Rows, classes: classes, fills: fillsFor(classes), label: p.X.Tick.Label}
	p.Add(b)
	var ticks chart.Ticks
	for i, row := range r.Rows {
		ticks = append(ticks, draw.Tick{Value: float64(len(r.Rows) - 1 - i), Label: row.Policy})
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	_, hi, ymin, ymax := b.DataRange()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, hi*(1+0.09*float64(chart.Width/width)), ymin, ymax
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
	if width < chart.Width {
		p.X.Label.Text = "percent of the writers' time spent waiting"
	}
	return renderBeside(p, width, vg.Length(math.Max(1.3, 0.42*float64(len(r.Rows))+0.6))*vg.Inch)
}

// renderBeside draws the plot with its legend to the right of it, or below a narrow one.
func renderBeside(p *plot.Plot, width, height vg.Length) ([]byte, error) {
	legend := p.Legend
	p.Legend = plot.NewLegend()
	below := vg.Length(0)
	if width < chart.Width {
		r := legend.Rectangle(vgdraw.New(vgimg.New(width, height)))
		below = r.Max.Y - r.Min.Y + 10
	}
	return chart.PNG(width, height+below, func(c vgdraw.Canvas) {
		r := legend.Rectangle(c)
		w := r.Max.X - r.Min.X
		if below > 0 {
			p.Draw(vgdraw.Crop(c, 6, -14, 6+below, -8))
			legend.Draw(vgdraw.Crop(c, 12, -6, 6, -height))
			return
		}
		p.Draw(vgdraw.Crop(c, 6, -w-18, 6, -8))
		legend.Draw(vgdraw.Crop(c, width-w-12, -6, 6, -8))
	})
}

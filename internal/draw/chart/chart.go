// Package chart sets gonum's plots up as all figures of btrlab are: on white, in one type, with the
// palette of package vgdraw.
package chart

import (
	"bytes"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"btrlab/internal/draw"
)

// Figures are PNG: a browser sets an SVG's text in a font of its own, whose widths are not those
// the plot was laid out with, and clips labels.
const dpi = 192

// Width is that of a figure.
const Width = 7.2 * vg.Inch

// New is an empty plot.
func New(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	for _, s := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		s.Font.Variant = "Sans"
		s.Font.Size = 9
	}
	p.X.Label.Padding, p.Y.Label.Padding = 4, 4
	return p
}

// PNG draws on white what paint draws.
func PNG(width, height vg.Length, paint func(c vgdraw.Canvas)) ([]byte, error) {
	c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))
	paint(vgdraw.New(c))
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Render draws p with a margin, so that nothing at its edge is cut off.
func Render(p *plot.Plot, width, height vg.Length) ([]byte, error) {
	return PNG(width, height, func(c vgdraw.Canvas) { p.Draw(vgdraw.Crop(c, 6, -14, 6, -8)) })
}

// Ticks are fixed ones.
type Ticks []draw.Tick

// Ticks implements plot.Ticker.
func (f Ticks) Ticks(_, _ float64) (out []plot.Tick) {
	for _, t := range f {
		out = append(out, plot.Tick{Value: t.Value, Label: t.Label})
	}
	return out
}

// Grid is a faint one.
func Grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = color.Gray{225}, color.Gray{225}
	return g
}

// Dashes is the pattern of a style's line.
func Dashes(s *draw.Style) (out []vg.Length) {
	for _, d := range s.Dashes {
		out = append(out, vg.Length(d))
	}
	return out
}

// Glyph is the shape of a style's mark.
func Glyph(s *draw.Style) vgdraw.GlyphDrawer {
	return map[draw.Mark]vgdraw.GlyphDrawer{draw.Circle: vgdraw.CircleGlyph{}, draw.Square: vgdraw.SquareGlyph{}, draw.Triangle: vgdraw.TriangleGlyph{}, draw.Plus: vgdraw.PlusGlyph{},
		draw.Cross: vgdraw.CrossGlyph{}, draw.Ring: vgdraw.RingGlyph{}, draw.Pyramid: vgdraw.PyramidGlyph{}}[s.Mark]
}

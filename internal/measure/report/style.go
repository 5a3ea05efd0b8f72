package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"image/color"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

//go:embed style.css
var css string

// CSS is the look of a page: light and dark, narrow, and on paper.
var CSS = template.CSS(css)

// Style is how a row looks in every picture. Dashes and marks tell lines apart without colour; the
// colours differ in lightness, too (Okabe and Ito's set).
type Style struct {
	Color  color.RGBA
	Dashes []vg.Length
	Shape  draw.GlyphDrawer
}

var styles = []Style{
	{color.RGBA{0, 0, 0, 255}, nil, draw.CircleGlyph{}},
	{color.RGBA{213, 94, 0, 255}, []vg.Length{6, 2.5}, draw.SquareGlyph{}},
	{color.RGBA{0, 114, 178, 255}, []vg.Length{1.5, 2}, draw.TriangleGlyph{}},
	{color.RGBA{0, 158, 115, 255}, []vg.Length{8, 2, 1.5, 2}, draw.PlusGlyph{}},
	{color.RGBA{204, 121, 167, 255}, []vg.Length{3, 1.5}, draw.CrossGlyph{}},
	{color.RGBA{130, 100, 0, 255}, []vg.Length{10, 3, 1.5, 2, 1.5, 3}, draw.RingGlyph{}},
	{color.RGBA{86, 180, 233, 255}, []vg.Length{4, 4}, draw.PyramidGlyph{}},
}

// styleOf has the number of the style of each policy with a name, the same in every page, notebook
// and on the site. Those that are compared with each other differ: the eras of NOWAIT, of sectors
// and of fsync each begin with the first colour.
var styleOf = map[string]int{
	"locked": 0, "unlocked": 1, "unlocked-drain": 2, "prewait": 3, "range-lock": 4, "modern": 5,
	"nowait-4.13": 0, "nowait-5.8": 1, "nowait-5.19": 2, "nowait-6.1": 3, "nowait-strict": 4,
	"unaligned-exclusive": 0, "unaligned-check-first": 1, "unaligned-retry": 2,
	"fsync-commit": 0, "fsync-5.17": 1, "fsync-5.18": 2,
	"linux": 6,
}

// Styles are those of rows by their policies. One that has no style of its own, or whose style
// another row of these has, gets the first that is left; after the last one the colours come again,
// with other dashes and marks.
func Styles(policies []string) []Style {
	out := make([]Style, len(policies))
	var taken [64]bool
	var late []int
	for i, p := range policies {
		if k, ok := styleOf[p]; ok && !taken[k] {
			out[i], taken[k] = styles[k], true
			continue
		}
		late = append(late, i)
	}
	next := 0
	for _, i := range late {
		for next < len(taken) && taken[next] {
			next++
		}
		s := styles[next%len(styles)]
		if turn := next / len(styles); turn > 0 {
			o := styles[(next+2*turn)%len(styles)]
			s.Dashes, s.Shape = o.Dashes, o.Shape
		}
		out[i] = s
		next++
	}
	return out
}

// Ink is the colour in a page. Black is the text's colour there, which is light on a dark page.
func (s *Style) Ink() string {
	c := s.Color
	if c.R|c.G|c.B == 0 {
		return "currentColor"
	}
	return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B)
}

// DashArray is the pattern of a line in a page.
func (s *Style) DashArray() string {
	var l []string
	for _, d := range s.Dashes {
		l = append(l, fmt.Sprint(float64(d)))
	}
	return strings.Join(l, " ")
}

package draw

import (
	"fmt"
	"image/color"
	"strings"
)

// Style is how a row looks in every picture. Dashes and marks tell lines apart without colour; the
// colours differ in lightness, too (Okabe and Ito's set).
type Style struct {
	Color  color.RGBA
	Dashes []float64 // in points
	Mark   Mark
}

// Mark is the shape of a point.
type Mark uint8

// The marks.
const (
	Circle Mark = iota
	Square
	Triangle
	Plus
	Cross
	Ring
	Pyramid
)

var styles = []Style{
	{color.RGBA{0, 0, 0, 255}, nil, Circle},
	{color.RGBA{213, 94, 0, 255}, []float64{6, 2.5}, Square},
	{color.RGBA{0, 114, 178, 255}, []float64{1.5, 2}, Triangle},
	{color.RGBA{0, 158, 115, 255}, []float64{8, 2, 1.5, 2}, Plus},
	{color.RGBA{204, 121, 167, 255}, []float64{3, 1.5}, Cross},
	{color.RGBA{130, 100, 0, 255}, []float64{10, 3, 1.5, 2, 1.5, 3}, Ring},
	{color.RGBA{86, 180, 233, 255}, []float64{4, 4}, Pyramid},
}

// styleOf has the number of the style of each policy with a name, the same in every page, notebook
// and on the site. Those that are compared with each other differ: the eras of NOWAIT, of sectors
// and of fsync each begin with the first colour.
var styleOf = map[string]int{
	"locked": 0, "unlocked": 1, "unlocked-drain": 2, "prewait": 3, "range-lock": 4, "modern": 5, "bounce": 6,
	"nowait-4.13": 0, "nowait-5.8": 1, "nowait-5.19": 2, "nowait-6.1": 3, "nowait-strict": 4,
	"unaligned-exclusive": 0, "unaligned-check-first": 1, "unaligned-retry": 2, "unaligned-zeroing": 3,
	"fsync-commit": 0, "fsync-wait": 3, "fsync-5.17": 1, "fsync-5.18": 2,
	"linux-5.10": 0, "linux-6.1": 1, "linux-6.12": 2, "linux-6.18": 3, "linux-7.3": 4,
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
			s.Dashes, s.Mark = o.Dashes, o.Mark
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
		l = append(l, fmt.Sprint(d))
	}
	return strings.Join(l, " ")
}

// Fills are colours of areas, as many as can be told apart beside each other: Okabe and Ito's
// without black, then some of Tol's. The last one is for what has none of its own.
var Fills = [...]string{"#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#3d8fc9", "#d9cb3f", "#b06a8a", "#7fc8b8", "#b0a060", "#a98fd0", "#7fae4f", "#8f8f8f"}

package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Vector is a picture in SVG, without a script. Its words are the browser's, in the colours of the
// page around it. Classes: text is ink, or soft; grid and line are rules, halo a rule's edge; curve
// is a line of a row, mark a symbol.
type Vector struct{ strings.Builder }

// Add adds a line. Strings among the arguments are text.
func (v *Vector) Add(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = html.EscapeString(s)
		}
	}
	fmt.Fprintf(v, format+"\n", args...)
}

// Begin begins a picture of so many pixels; alt is read where it cannot be seen.
func (v *Vector) Begin(width, height int, alt string) { v.begin("plot", width, height, alt) }

// BeginWide begins one as wide as the page.
func (v *Vector) BeginWide(width, height int, alt string) { v.begin("plot full", width, height, alt) }

func (v *Vector) begin(class string, width, height int, alt string) {
	v.Add(`<svg class="%s" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`, class, width, height, alt)
}

const (
	VectorWidth = 640 // of a picture beside text
	Letter      = 7.2 // width of a character of 12 px, and a little more
)

// Curve is a latency distribution: a latency in ns, and the share of the requests that were no
// slower. Dashes is empty for a line without. With marks its points are drawn.
type Curve struct {
	Name, Ink, Dashes string
	Marks             bool
	Points            [][2]float64
}

// Latencies draws distributions, each step up a tenth of the requests that are slower still;
// without points it draws nothing.
func (v *Vector) Latencies(alt string, curves []Curve) {
	const height, bottom, left, right = 330, 40, 76, 12
	lo, hi, top := math.Inf(1), 0.0, 1.0
	for _, c := range curves {
		for _, p := range c.Points {
			lo, hi, top = min(lo, p[0]), max(hi, p[0]), max(top, nines(p[1]))
		}
	}
	if hi <= lo {
		return
	}
	lo, hi, top = max(1, lo)*0.9, hi*1.1, top+0.1
	x := func(ns float64) float64 {
		return left + math.Log(max(1, ns)/lo)/math.Log(hi/lo)*(VectorWidth-left-right)
	}
	y := func(n float64) float64 { return height - bottom - n/top*(height-bottom-8) }
	v.Begin(VectorWidth, height, alt)
	for _, t := range nsTicks(lo, hi) {
		if t.Label != "" {
			v.Add(`<path class="grid" d="M%.1f %.1fV%.1f"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(t.Value), y(0), y(top), x(t.Value), height-bottom+16, t.Label)
		}
	}
	for _, t := range ninesTicks(top) {
		v.Add(`<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, y(t.Value), VectorWidth-right, left-6, y(t.Value)+4, t.Label)
	}
	for _, c := range curves {
		var d strings.Builder
		pen := 'M'
		for _, p := range c.Points {
			fmt.Fprintf(&d, "%c%.1f %.1f", pen, x(p[0]), y(nines(p[1])))
			pen = 'L'
		}
		v.Add(`<path class="curve" style="stroke:%s;stroke-dasharray:%s" d="%s"><title>%s</title></path>`, c.Ink, c.Dashes, d.String(), c.Name)
		for _, p := range c.Points {
			if c.Marks {
				v.Add(`<circle cx="%.1f" cy="%.1f" r="3.2" style="fill:%s"/>`, x(p[0]), y(nines(p[1])), c.Ink)
			}
		}
	}
	v.Add(`<text x="%d" y="%d" text-anchor="middle">completion latency</text></svg>`, (VectorWidth+left)/2, height-6)
}

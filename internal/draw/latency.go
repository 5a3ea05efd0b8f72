package draw

import (
	"fmt"
	"math"
	"strings"
)

// Curve is a latency distribution: a latency in ns, and the share of the requests that were no
// slower. Dashes is empty for a line without. With marks its points are drawn.
type Curve struct {
	Name, Ink, Dashes string
	Marks             bool
	Points            [][2]float64
}

// Tick is a place on an axis; without a label it is a small one.
type Tick struct {
	Value float64
	Label string
}

// Nines is the vertical scale of a distribution: each step up is a tenth of the requests that are
// slower still.
func Nines(share float64) float64 { return -math.Log10(1 - share) }

// NinesTicks are those of that scale up to top.
func NinesTicks(top float64) []Tick {
	out := []Tick{{0, "0"}, {Nines(0.5), "50 %"}}
	for i, l := range []string{"90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"} {
		if v := float64(i + 1); v <= top+0.01 {
			out = append(out, Tick{v, l})
		}
	}
	return out
}

// NanosTicks are powers of ten of nanoseconds, named, and small ticks in between.
func NanosTicks(lo, hi float64) (out []Tick) {
	for d := math.Floor(math.Log10(lo)); d <= math.Log10(hi)+1; d++ {
		for m := 1.0; m < 10; m++ {
			v := m * math.Pow(10, d)
			if v < lo || v > hi {
				continue
			}
			t := Tick{Value: v}
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

// Latencies draws distributions, each step up a tenth of the requests that are slower still;
// without points it draws nothing.
func Latencies(alt string, curves []Curve) HTML {
	const height, bottom, left, right = 330, 40, 76, 12
	lo, hi, top := math.Inf(1), 0.0, 1.0
	for _, c := range curves {
		for _, p := range c.Points {
			lo, hi, top = min(lo, p[0]), max(hi, p[0]), max(top, Nines(p[1]))
		}
	}
	if hi <= lo {
		return ""
	}
	lo, hi, top = max(1, lo)*0.9, hi*1.1, top+0.1
	x := func(ns float64) float64 {
		return left + math.Log(max(1, ns)/lo)/math.Log(hi/lo)*(Width-left-right)
	}
	y := func(n float64) float64 { return height - bottom - n/top*(height-bottom-8) }
	var w Writer
	w.Picture(Width, height, alt)
	for _, t := range NanosTicks(lo, hi) {
		if t.Label != "" {
			w.Add(`<path class="grid" d="M%.1f %.1fV%.1f"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(t.Value), y(0), y(top), x(t.Value), height-bottom+16, t.Label)
		}
	}
	for _, t := range NinesTicks(top) {
		w.Add(`<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, y(t.Value), Width-right, left-6, y(t.Value)+4, t.Label)
	}
	for _, c := range curves {
		c.draw(&w, x, func(share float64) float64 { return y(Nines(share)) })
	}
	w.Add(`<text x="%d" y="%d" text-anchor="middle">completion latency</text>`, (Width+left)/2, height-6)
	return w.End()
}

func (c *Curve) draw(w *Writer, x, y func(float64) float64) {
	var d strings.Builder
	pen := 'M'
	for _, p := range c.Points {
		fmt.Fprintf(&d, "%c%.1f %.1f", pen, x(p[0]), y(p[1]))
		pen = 'L'
	}
	w.Add(`<path class="curve" style="stroke:%s;stroke-dasharray:%s" d="%s"><title>%s</title></path>`, c.Ink, c.Dashes, d.String(), c.Name)
	for _, p := range c.Points {
		if c.Marks {
			w.Add(`<circle cx="%.1f" cy="%.1f" r="3.2" style="fill:%s"/>`, x(p[0]), y(p[1]), c.Ink)
		}
	}
}

// Key names the lines of Latencies.
func Key(curves []Curve) HTML {
	var w Writer
	w.Add(`<ul class="key">`)
	for _, c := range curves {
		w.Add(`<li><svg width="34" height="10" aria-hidden="true"><path class="curve" style="stroke:%s;stroke-dasharray:%s" d="M0 5H34"/></svg> %s</li>`, c.Ink, c.Dashes, c.Name)
	}
	return w.HTML() + "</ul>"
}

package report

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"

	"btrlab/internal/measure/experiment"
)

// Record is a comparison as it was measured, kept to be drawn again elsewhere: the numbers of a page, when and on what they were measured.
type Record struct {
	Meta
	Date time.Time `json:"date"`
	// Note says what a reader should know about the measurement; it is written by hand.
	Note     string        `json:"note,omitempty"`
	Sections []*Comparison `json:"comparisons"`
}

// Comparison is one comparison of a Record.
type Comparison struct {
	Heading    string     `json:"heading"`
	Conclusion string     `json:"conclusion"`
	Job        string     `json:"job"`
	Baseline   string     `json:"baseline"`
	Rounds     int        `json:"rounds"`
	Runtime    float64    `json:"runtime"` // seconds of each run
	Rows       []*Measure `json:"rows"`
}

// Measure is a row of a Comparison.
type Measure struct {
	Policy    string    `json:"policy"`
	IOPS      float64   `json:"iops"`       // median of the rounds
	RoundIOPS []float64 `json:"round_iops"` // of each round
	// Ratio is the median over the rounds of iops by the baseline's iops in the same round, Min and Max the least and the greatest.
	Ratio float64         `json:"ratio"`
	Min   float64         `json:"ratio_min"`
	Max   float64         `json:"ratio_max"`
	Clat  experiment.Clat `json:"clat_ns"`
	// Curve is the latency distribution: a latency in ns, and the share of the requests that were no slower.
	Curve [][2]float64 `json:"curve"`
	// Waits is, by lock class, the share of the writers' time spent waiting for it.
	Waits   map[string]float64 `json:"waits"`
	Content string             `json:"content"`
	Check   string             `json:"check"`
}

// curvePoints is how many points of a distribution a Record keeps at most, evenly spread over the scale of the nines.
const curvePoints = 90

// Save writes what Write would draw.
func Save(w io.Writer, meta Meta, results ...*experiment.Result) error {
	if meta.Machine == nil {
		meta.Machine = Machine()
	}
	r := Record{Meta: meta, Date: time.Now().UTC().Truncate(time.Minute)}
	for _, x := range results {
		c := &Comparison{Heading: heading(x), Conclusion: conclusion(x), Job: x.Job, Baseline: x.Baseline, Rounds: x.Rounds, Runtime: x.Runtime}
		for _, row := range x.Rows {
			m := &Measure{Policy: row.Policy, IOPS: round(row.IOPS), Ratio: row.Ratio, Min: row.RatioMin, Max: row.RatioMax, Clat: row.Clat, Waits: row.Waits, Content: row.Content, Check: row.Check}
			for _, n := range row.RoundIOPS {
				m.RoundIOPS = append(m.RoundIOPS, round(n))
			}
			last := math.Inf(-1)
			for _, p := range cdfPoints(row.Hist) {
				if p.Y-last >= 5.0/curvePoints {
					m.Curve = append(m.Curve, [2]float64{p.X, math.Round((1-math.Pow(10, -p.Y))*1e6) / 1e6})
					last = p.Y
				}
			}
			c.Rows = append(c.Rows, m)
		}
		r.Sections = append(r.Sections, c)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

func round(x float64) float64 { return math.Round(x*10) / 10 }

// Load reads what Save wrote.
func Load(b []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("bad record of a comparison: %w", err)
	}
	return &r, nil
}

// vector is a picture in SVG. Its words are the browser's, in the colours of the page around it: class ink is text, line a rule.
type vector struct{ strings.Builder }

func (v *vector) add(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = html.EscapeString(s)
		}
	}
	fmt.Fprintf(v, format+"\n", args...)
}

// begin begins a picture of the page; alt is read where it cannot be seen.
func (v *vector) begin(height int, alt string) {
	v.add(`<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`, vectorWidth, height, alt)
}

const (
	vectorWidth = 640
	letter      = 7.2 // width of a character of 12 px, and a little more
)

// ink is the colour of row i, as on the page of a comparison; black is the text's colour there, which is light on a dark page.
func ink(i int) string {
	r, g, b, _ := styleOf(i).color.RGBA()
	if r+g+b == 0 {
		return "currentColor"
	}
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}

// dashes are those of row i.
func dashes(i int) string {
	var l []string
	for _, d := range styleOf(i).dashes {
		l = append(l, fmt.Sprint(float64(d)))
	}
	return strings.Join(l, " ")
}

// IOPSVector draws a bar for each row, with a line from the slowest round to the fastest, as SVG without a script.
func (c *Comparison) IOPSVector() string {
	const bar, gap, top = 20, 10, 4
	name, most := 0, 0.0
	var alt []string
	for _, m := range c.Rows {
		name, most = max(name, len(m.Policy)), max(most, m.IOPS)
		for _, n := range m.RoundIOPS {
			most = max(most, n)
		}
		alt = append(alt, fmt.Sprintf("%s %s", m.Policy, experiment.Count(m.IOPS)))
	}
	var v vector
	v.begin(top+len(c.Rows)*(bar+gap), "iops: "+strings.Join(alt, "; "))
	left := float64(name)*letter + 10
	x := func(n float64) float64 { return left + n/max(most, 1)*(vectorWidth-left-9*letter) }
	for i, m := range c.Rows {
		y := top + i*(bar+gap)
		v.add(`<text x="%.0f" y="%d" text-anchor="end">%s</text><rect x="%.1f" y="%d" width="%.1f" height="%d" style="fill:%s"/>`, left-8, y+15, m.Policy, left, y, x(m.IOPS)-left, bar, ink(i))
		lo, hi := m.IOPS, m.IOPS
		for _, n := range m.RoundIOPS {
			lo, hi = min(lo, n), max(hi, n)
		}
		mid := y + bar/2
		for _, class := range []string{"halo", "line"} {
			v.add(`<path class="%s" d="M%.1f %dH%.1fM%.1f %dv10M%.1f %dv10"/>`, class, x(lo), mid, x(hi), x(lo), mid-5, x(hi), mid-5)
		}
		v.add(`<text x="%.1f" y="%d">%s</text>`, x(max(m.IOPS, hi))+8, y+15, experiment.Count(m.IOPS))
	}
	return v.String() + "</svg>"
}

// ClatVector draws the latency distributions, each step up a tenth of the requests that are slower still, as SVG without a script.
func (c *Comparison) ClatVector() string {
	const height, bottom, left, right = 330, 40, 76, 12
	lo, hi, top := math.Inf(1), 0.0, 1.0
	var alt []string
	for _, m := range c.Rows {
		for _, p := range m.Curve {
			lo, hi, top = min(lo, p[0]), max(hi, p[0]), max(top, nines(p[1]))
		}
		alt = append(alt, fmt.Sprintf("%s p50 %s, p99 %s", m.Policy, nanos(float64(m.Clat.P50)), nanos(float64(m.Clat.P99))))
	}
	if hi <= lo {
		return ""
	}
	lo, hi, top = lo*0.9, hi*1.1, top+0.1
	x := func(ns float64) float64 {
		return left + math.Log(ns/lo)/math.Log(hi/lo)*(vectorWidth-left-right)
	}
	y := func(n float64) float64 { return height - bottom - n/top*(height-bottom-8) }
	var v vector
	v.begin(height, "Latency distributions: "+strings.Join(alt, "; "))
	for _, t := range nsTicks(lo, hi) {
		if t.Label != "" {
			v.add(`<path class="grid" d="M%.1f %.1fV%.1f"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(t.Value), y(0), y(top), x(t.Value), height-bottom+16, t.Label)
		}
	}
	for _, t := range ninesTicks(top) {
		v.add(`<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, y(t.Value), vectorWidth-right, left-6, y(t.Value)+4, t.Label)
	}
	for i, m := range c.Rows {
		var d strings.Builder
		pen := 'M'
		for _, p := range m.Curve {
			fmt.Fprintf(&d, "%c%.1f %.1f", pen, x(p[0]), y(nines(p[1])))
			pen = 'L'
		}
		v.add(`<path class="curve" style="stroke:%s;stroke-dasharray:%s" d="%s"><title>%s</title></path>`, ink(i), dashes(i), d.String(), m.Policy)
	}
	v.add(`<text x="%d" y="%d" text-anchor="middle">completion latency</text>`, (vectorWidth+left)/2, height-6)
	return v.String() + "</svg>"
}

// Legend names the lines of ClatVector.
func (c *Comparison) Legend() string {
	var v vector
	for i, m := range c.Rows {
		v.add(`<li><svg width="34" height="10" aria-hidden="true"><path class="curve" style="stroke:%s;stroke-dasharray:%s" d="M0 5H34"/></svg> %s</li>`, ink(i), dashes(i), m.Policy)
	}
	return "<ul class=\"key\">\n" + v.String() + "</ul>"
}

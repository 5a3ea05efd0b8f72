package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"btrlab/internal/draw"
	"btrlab/internal/measure/experiment"
)

// Record is a comparison as it was measured, kept to be drawn again elsewhere: the numbers of a
// page, when and on what they were measured.
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
	// Ratio is the median over the rounds of iops by the baseline's iops in the same round, Min and
	// Max the least and the greatest.
	Ratio float64         `json:"ratio"`
	Min   float64         `json:"ratio_min"`
	Max   float64         `json:"ratio_max"`
	Clat  experiment.Clat `json:"clat_ns"`
	// Curve is the latency distribution: a latency in ns, and the share of the requests that were
	// no slower.
	Curve [][2]float64 `json:"curve"`
	// Waits is, by lock class, the share of the writers' time spent waiting for it.
	Waits   map[string]float64 `json:"waits"`
	Content string             `json:"content"`
	Check   string             `json:"check"`
}

// curvePoints is how many points of a distribution a Record keeps at most, evenly spread over the
// scale of the nines.
const curvePoints = 90

// Save writes what Write would draw.
func Save(w io.Writer, meta Meta, results ...*experiment.Result) error {
	if meta.Machine == nil {
		meta.Machine = Machine()
	}
	r := Record{Meta: meta, Date: time.Now().UTC().Truncate(time.Minute)}
	for _, x := range results {
		c := &Comparison{Heading: heading(x), Conclusion: x.Conclusion(), Job: x.Job, Baseline: x.Baseline, Rounds: x.Rounds, Runtime: x.Runtime}
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

// styles are those of the rows.
func (c *Comparison) styles() []draw.Style {
	var names []string
	for _, m := range c.Rows {
		names = append(names, m.Policy)
	}
	return draw.Styles(names)
}

// IOPSVector draws a bar for each row, with a line from the slowest round to the fastest, as SVG
// without a script. The figures are before the bars: a narrow window cuts the ends off.
func (c *Comparison) IOPSVector() draw.HTML {
	const bar, gap, top = 20, 10, 4
	name, most := 0, 0.0
	var alt []string
	for _, m := range c.Rows {
		name, most = max(name, len(m.Policy)), max(most, m.IOPS)
		for _, n := range m.RoundIOPS {
			most = max(most, n)
		}
		alt = append(alt, fmt.Sprintf("%s %s", m.Policy, draw.Count(m.IOPS)))
	}
	var v draw.Writer
	v.Picture(draw.Width, top+len(c.Rows)*(bar+gap), "iops: "+strings.Join(alt, "; "))
	figure := float64(name)*draw.Letter + 8*draw.Letter // where the figures end
	left, styles := figure+8, c.styles()
	x := func(n float64) float64 { return left + n/max(most, 1)*(draw.Width-left-4) }
	for i, m := range c.Rows {
		y := top + i*(bar+gap)
		v.Add(`<text x="%.0f" y="%d" text-anchor="end">%s</text><rect x="%.1f" y="%d" width="%.1f" height="%d" style="fill:%s"/>`, float64(name)*draw.Letter+2, y+15, m.Policy, left, y, x(m.IOPS)-left, bar, styles[i].Ink())
		lo, hi := m.IOPS, m.IOPS
		for _, n := range m.RoundIOPS {
			lo, hi = min(lo, n), max(hi, n)
		}
		mid := y + bar/2
		for _, class := range []string{"halo", "line"} {
			v.Add(`<path class="%s" d="M%.1f %dH%.1fM%.1f %dv10M%.1f %dv10"/>`, class, x(lo), mid, x(hi), x(lo), mid-5, x(hi), mid-5)
		}
		v.Add(`<text x="%.1f" y="%d" text-anchor="end">%s</text>`, figure, y+15, draw.Count(m.IOPS))
	}
	return v.End()
}

// ClatVector draws the latency distributions, each step up a tenth of the requests that are slower
// still, as SVG without a script.
func (c *Comparison) ClatVector() draw.HTML {
	var alt []string
	for _, m := range c.Rows {
		alt = append(alt, fmt.Sprintf("%s p50 %s, p99 %s", m.Policy, draw.Time(float64(m.Clat.P50)), draw.Time(float64(m.Clat.P99))))
	}
	return draw.Latencies("Latency distributions: "+strings.Join(alt, "; "), c.curves())
}

// Legend names the lines of ClatVector.
func (c *Comparison) Legend() draw.HTML { return draw.Key(c.curves()) }

func (c *Comparison) curves() (list []draw.Curve) {
	styles := c.styles()
	for i, m := range c.Rows {
		list = append(list, draw.Curve{Name: m.Policy, Ink: styles[i].Ink(), Dashes: styles[i].DashArray(), Points: m.Curve})
	}
	return list
}

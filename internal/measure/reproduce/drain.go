package reproduce

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// A job of fio stops to submit at the end of its time and then waits for what is in flight, so its
// run time says how long the last request took to come back. Where that was published it is a
// figure of the device that the throughput does not have: how long the longest of the requests take
// that are in flight at one moment. The end of a run is one such moment and owes all to chance, so
// every moment of the run is looked at as if it were the end.

// Drains are how long the last of the requests in flight took to come back, over the moments of a
// run, in milliseconds.
type Drains struct {
	Moments int     `json:"moments"`
	Low     float64 `json:"p5"`
	Median  float64 `json:"p50"`
	High    float64 `json:"p95"`
}

// May reports whether ms lies between the fifth and the ninety-fifth of a hundred moments.
func (d *Drains) May(ms float64) bool { return d != nil && ms >= d.Low && ms <= d.High }

func (d *Drains) String() string {
	return fmt.Sprintf("%.0f ms (%.0f to %.0f at 90 %% of %d moments)", d.Median, d.Low, d.High, d.Moments)
}

// moment is the time between two moments that are looked at: longer than most requests, so that
// few are in flight at two of them.
const moment = 50 * time.Millisecond

// inFlight adds up the requests of a run.
type inFlight struct {
	last []int64 // for each moment, when the last of the requests in flight then came back
	end  int64   // when the last request came back
}

// add is told of a request that was in flight from from to to, in nanoseconds. Those that sleep on
// their way to the device are.
func (f *inFlight) add(from, to int64) {
	f.end = max(f.end, to)
	for i := (from + int64(moment) - 1) / int64(moment); i*int64(moment) < to; i++ {
		for int64(len(f.last)) <= i {
			f.last = append(f.last, 0)
		}
		f.last[i] = max(f.last[i], to)
	}
}

// drains is what add was told, of a job that stopped to submit at end. Moments at which nothing was
// in flight do not count, and those after the end are of a job that runs no more.
func (f *inFlight) drains(end int64) *Drains {
	var all []float64
	for i, last := range f.last {
		if at := int64(i) * int64(moment); last > 0 && at <= end {
			all = append(all, float64(last-at)/1e6)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	q := func(p float64) float64 { return math.Round(100*all[int(p*float64(len(all)-1))]) / 100 }
	return &Drains{Moments: len(all), Low: q(0.05), Median: q(0.5), High: q(0.95)}
}

// drainText says what the drains were.
func (r *Result) drainText() string {
	var some []string
	for _, x := range r.published() {
		if d := x.Drains; d != nil {
			some = append(some, fmt.Sprintf("%s published %g ms, simulated %v", x.Name, x.Published.DrainMs, d))
		}
	}
	if len(some) == 0 {
		return ""
	}
	return "How long after its end the job's last request came back, which nothing was fitted to or chosen by, if the job ended at some moment of the run: " +
		strings.Join(some, "; ") + "."
}

// drainTable is the table of the drains of a panel, those that the published one lies among with a
// star; nil where none was published.
func (s *Surface) drainTable(p *Panel) [][]string {
	if s.Drain == 0 {
		return nil
	}
	table := [][]string{s.Table(p)[0][:len(p.Points[0])+1]}
	for _, line := range p.Points {
		cells := []string{fmt.Sprintf("%g", line[0].Y)}
		for _, q := range line {
			if q.Drains == nil {
				cells = append(cells, "")
				continue
			}
			star := ""
			if q.Drains.May(s.Drain) {
				star = "*"
			}
			cells = append(cells, fmt.Sprintf("%s%.0f (%.0f-%.0f)", star, q.Drains.Median, q.Drains.Low, q.Drains.High))
		}
		table = append(table, cells)
	}
	return table
}

// drainAbout says what drainTable has, and what it leaves of the surface.
func (s *Surface) drainAbout(p *Panel) string {
	lo, hi, n, all := math.Inf(1), math.Inf(-1), 0, 0
	for _, line := range p.Points {
		for _, q := range line {
			all++
			if q.Drains.May(s.Drain) {
				lo, hi, n = min(lo, q.Gain()), max(hi, q.Gain()), n+1
			}
		}
	}
	text := fmt.Sprintf("How long after its end the last request of row %s came back, in ms, if the job ended at some moment of the run: at the median one, and at 90 %% of "+
		"them; with a star where the published %g ms lie among these.", s.Of, s.Drain)
	if n == 0 {
		return text + " They do nowhere."
	}
	return text + fmt.Sprintf(" That is at %d of %d points, with a gain between %.1f and %.1f %%.", n, all, lo, hi)
}

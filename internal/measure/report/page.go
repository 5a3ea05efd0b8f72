package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/measure/stats"
	"btrlab/internal/prose"
)

type section struct {
	*experiment.Result
	Heading                 string
	Conclusion              string
	Rowname                 string // what a row is: a policy, or a row of a study
	RoundsOf                string
	IOPS                    template.URL
	NarrowIOPS, NarrowWaits template.Srcset // the bars for a telephone
	Heads                   []template.HTML // Classes, which may be broken after an underscore
	CDF                     template.URL
	Waits                   template.URL
	IOPSAlt                 string
	CDFAlt                  string
	WaitsAlt                string
	About                   []string // what the rows are
	Table                   []tableRow
	Classes                 []string
	WaitRows                []waitRow
	Seed                    []seedRow
	Costs                   []experiment.NowaitCosts
	Logs                    [][]string
	Places                  []placeRow
	Rings                   []ringRow
	Wrong                   []string
	Params                  string
}

type tableRow struct {
	Policy, IOPS, Ratio, Range   string
	Mean, P50, P99, P999, Max    string
	Content, Check, Rounds       string
	ContentOK, CheckOK, Baseline bool
}

type waitRow struct {
	Policy string
	Cells  []string
	Other  string
	Sum    string
}

// placeRow says how many requests of a row answered EAGAIN or slept at a place.
type placeRow struct {
	Policy, What, Place string
	Times               int64
}

// ringRow is which way the requests of a ring went, or the share of EAGAIN on the running kernel.
type ringRow struct {
	Policy string
	Ring   []string // its counts, as the heads of the columns have them; nil without a ring
	Share  string
}

// newRingRow is nil for a row of another engine.
func newRingRow(row *experiment.Row) *ringRow {
	if row.Ring == nil && row.Again == nil {
		return nil
	}
	n := &ringRow{Policy: row.Policy}
	if r := row.Ring; r != nil {
		for _, v := range []int64{r.Submitted, r.Inline, r.Queued, r.Punted, r.Again, r.Short, r.Workers} {
			n.Ring = append(n.Ring, experiment.Count(float64(v)))
		}
	}
	if row.Again != nil {
		n.Share = fmt.Sprintf("%.1f %%", 100**row.Again)
	}
	return n
}

// seedRow puts a ratio of unlocked to locked beside the published one.
type seedRow struct{ What, Published, Here string }

func write(w io.Writer, meta Meta, results []*experiment.Result) error {
	if meta.Machine == nil {
		meta.Machine = Machine()
	}
	if meta.Title == "" {
		meta.Title = "Locking policies compared"
	}
	var sections []*section
	for _, r := range results {
		s, err := newSection(r)
		if err != nil {
			return err
		}
		sections = append(sections, s)
	}
	return page.Execute(w, struct {
		Meta
		CSS      template.CSS
		Date     string
		Sections []*section
	}{meta, CSS, time.Now().Format("2 January 2006, 15:04 MST"), sections})
}

func newSection(r *experiment.Result) (*section, error) {
	s := &section{Result: r, Heading: heading(r), Classes: r.TopWaits(len(fills)), Conclusion: conclusion(r), Rowname: "policy", RoundsOf: prose.Count(r.Rounds, "round"),
		Costs: r.NowaitCosts(), Logs: r.LogCosts()}
	var opts []string
	seen := map[string]bool{}
	for i := len(r.Parameters) - 1; i >= 0; i-- { // what a job says last holds
		o := r.Parameters[i]
		if seen[o.Key] {
			continue
		}
		seen[o.Key] = true
		v := o.Key
		if o.Value != "" {
			v += "=" + o.Value
		}
		opts = append([]string{v}, opts...)
	}
	s.Params = strings.Join(opts, " ")

	iops, err := iopsFigure(r, figureWidth)
	if err != nil {
		return nil, fmt.Errorf("iops figure: %w", err)
	}
	cdf, err := cdfFigure(r)
	if err != nil {
		return nil, fmt.Errorf("latency figure: %w", err)
	}
	waits, err := waitFigure(r, s.Classes, figureWidth)
	if err != nil {
		return nil, fmt.Errorf("wait figure: %w", err)
	}
	narrowIOPS, err := iopsFigure(r, narrowWidth)
	if err != nil {
		return nil, fmt.Errorf("narrow iops figure: %w", err)
	}
	narrowWaits, err := waitFigure(r, s.Classes, narrowWidth)
	if err != nil {
		return nil, fmt.Errorf("narrow wait figure: %w", err)
	}
	s.IOPS, s.CDF, s.Waits = dataURL(iops), dataURL(cdf), dataURL(waits)
	s.NarrowIOPS, s.NarrowWaits = template.Srcset(dataURL(narrowIOPS)), template.Srcset(dataURL(narrowWaits))
	for _, c := range s.Classes {
		s.Heads = append(s.Heads, template.HTML(strings.ReplaceAll(template.HTMLEscapeString(c), "_", "_<wbr>")))
	}
	by := map[string]*experiment.Row{}
	var iopsAlt, cdfAlt, waitAlt []string
	for _, row := range r.Rows {
		by[row.Policy] = row
		c := row.Clat
		s.Table = append(s.Table, tableRow{
			Policy: row.Policy, IOPS: experiment.Count(row.IOPS), Ratio: fmt.Sprintf("%.2f", row.Ratio),
			Range: fmt.Sprintf("%.2f–%.2f", row.RatioMin, row.RatioMax), Rounds: joinCounts(row.RoundIOPS),
			Mean: nanos(c.Mean), P50: nanos(float64(c.P50)), P99: nanos(float64(c.P99)), P999: nanos(float64(c.P999)), Max: nanos(float64(c.Max)),
			Content: row.Content, Check: row.Check, ContentOK: row.Content == "ok" || row.Content == experiment.Unverified, CheckOK: row.Check == "clean" || row.Check == experiment.Unchecked, Baseline: row.Policy == r.Baseline,
		})
		if row.Content != "ok" && row.Content != experiment.Unverified {
			s.Wrong = append(s.Wrong, fmt.Sprintf("%s: content: %s", row.Policy, row.Content))
		}
		if row.Check != "clean" && row.Check != experiment.Unchecked {
			s.Wrong = append(s.Wrong, fmt.Sprintf("%s: check: %s", row.Policy, row.Check))
		}
		if n := row.Nowait; n != nil {
			for _, k := range stats.Most(n.Again) {
				s.Places = append(s.Places, placeRow{row.Policy, "EAGAIN", k, n.Again[k]})
			}
			for _, k := range stats.Most(n.Slept) {
				s.Places = append(s.Places, placeRow{row.Policy, "slept", k, n.Slept[k]})
			}
		}
		wr := waitRow{Policy: row.Policy}
		if n := newRingRow(row); n != nil {
			s.Rings = append(s.Rings, *n)
		}
		sum, worst, most := row.AllWaits(), "", 0.0
		for _, k := range s.Classes {
			v := row.Waits[k]
			wr.Cells = append(wr.Cells, row.Percent(v))
			if v > most {
				worst, most = k, v
			}
		}
		wr.Other = row.Percent(row.OtherWaits(s.Classes))
		wr.Sum = row.Percent(sum)
		s.WaitRows = append(s.WaitRows, wr)
		if row.About != "" {
			s.Rowname = "row"
			s.About = append(s.About, row.Policy+": "+row.About)
		}
		iopsAlt = append(iopsAlt, fmt.Sprintf("%s %s", row.Policy, experiment.Count(row.IOPS)))
		cdfAlt = append(cdfAlt, fmt.Sprintf("%s p50 %s, p99 %s", row.Policy, nanos(float64(c.P50)), nanos(float64(c.P99))))
		if worst != "" {
			waitAlt = append(waitAlt, fmt.Sprintf("%s waits %.1f percent, most for %s", row.Policy, 100*sum, worst))
		}
	}
	s.IOPSAlt = "iops: " + strings.Join(iopsAlt, "; ")
	s.CDFAlt = "Latency distribution by policy: " + strings.Join(cdfAlt, "; ")
	s.WaitsAlt = "Waits by policy: " + strings.Join(waitAlt, "; ")

	l, u := by["locked"], by["unlocked"]
	if l != nil && u != nil && l.IOPS > 0 && l.Hist.N() > 0 && u.Hist.N() > 0 {
		pair := func(what string, seed [2]float64, a, b float64, f func(float64) string) {
			if a > 0 {
				s.Seed = append(s.Seed, seedRow{what, fmt.Sprintf("%s → %s (%.2f)", f(seed[0]), f(seed[1]), seed[1]/seed[0]), fmt.Sprintf("%s → %s (%.2f)", f(a), f(b), b/a)})
			}
		}
		lock, unlocked := &seeds.Get("002").Row("lock").Published, &seeds.Get("002").Row("unlocked").Published
		clat := func(q float64) [2]float64 {
			return [2]float64{1000 * lock.Percentile(q), 1000 * unlocked.Percentile(q)}
		}
		pair("iops", [2]float64{lock.IOPS, unlocked.IOPS}, l.IOPS, u.IOPS, experiment.Count)
		pair("clat p50", clat(50), float64(l.Clat.P50), float64(u.Clat.P50), nanos)
		pair("clat p99", clat(99), float64(l.Clat.P99), float64(u.Clat.P99), nanos)
		pair("clat p99.9", clat(99.9), float64(l.Clat.P999), float64(u.Clat.P999), nanos)
	}
	return s, nil
}

// heading names the device.
func heading(r *experiment.Result) string {
	if r.Model == "" || r.Model == "none" {
		return "The device as it is: " + r.Device
	}
	return fmt.Sprintf("%s, modelled as %s", r.Device, r.Model)
}

// HasPublished reports whether iops were published for a row.
func (s *section) HasPublished() bool {
	return slices.ContainsFunc(s.Rows, func(row *experiment.Row) bool { return row.Published > 0 })
}

// conclusion is what the comparison shows, in a sentence: the first ratio that was asked for, or
// the fastest row beside the baseline. A ratio whose rounds lie on both sides of 1 shows nothing,
// and the sentence says so.
func conclusion(r *experiment.Result) string {
	if len(r.Pairs) > 0 {
		p := r.Pairs[0]
		if p.Ratio == 0 {
			return ""
		}
		s := fmt.Sprintf("%s does %.2f times the iops of %s (%.2f to %.2f over the rounds)", p.Row, p.Ratio, p.To, p.RatioMin, p.RatioMax)
		if p.Published > 0 {
			s += fmt.Sprintf("; %.2f was published", p.Published)
		}
		return s + "."
	}
	var base, best *experiment.Row
	for _, row := range r.Rows {
		switch {
		case row.Policy == r.Baseline:
			base = row
		case best == nil || row.Ratio > best.Ratio:
			best = row
		}
	}
	switch {
	case base == nil || best == nil || base.IOPS == 0 || best.IOPS == 0:
		return ""
	case best.RatioMin <= 1:
		return fmt.Sprintf("Nothing is faster than %s by more than the spread of the rounds.", base.Policy)
	}
	times := fmt.Sprintf("%.2f times the iops of %s (%.2f to %.2f over the rounds)", best.Ratio, base.Policy, best.RatioMin, best.RatioMax)
	if len(best.RoundIOPS) == 1 {
		return fmt.Sprintf("%s did the most: %.2f times the iops of %s. One round says nothing of the spread.", best.Policy, best.Ratio, base.Policy)
	}
	var tied []string // rows whose rounds lie among the best row's
	for _, row := range r.Rows {
		if row != best && row != base && row.RatioMax >= best.RatioMin {
			tied = append(tied, row.Policy)
		}
	}
	switch len(tied) {
	case 0:
		return fmt.Sprintf("%s is fastest: %s. One write in a hundred takes %s or longer; with %s it is %s.",
			best.Policy, times, nanos(float64(best.Clat.P99)), base.Policy, nanos(float64(base.Clat.P99)))
	case 1:
		return fmt.Sprintf("%s does %s. %s is not separable from it: their rounds overlap.", best.Policy, times, tied[0])
	}
	return fmt.Sprintf("%s does %s. %s are not separable from it: their rounds overlap.", best.Policy, times, prose.List(tied))
}

func joinCounts(v []float64) string {
	var out []string
	for _, x := range v {
		out = append(out, experiment.Count(x))
	}
	return strings.Join(out, "  ")
}

// nanos is experiment.Nanos in print: a space before the unit, and a Greek letter.
func nanos(ns float64) string {
	v := experiment.Nanos(ns)
	i := strings.IndexFunc(v, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	return v[:i] + "\u202f" + strings.Replace(v[i:], "us", "µs", 1)
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

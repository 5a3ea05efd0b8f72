package pages

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/draw"
	"btrlab/internal/measure/report"
	"btrlab/internal/measure/seeds"
)

//go:embed recorded/compare.json
var recorded []byte

// measured is the page of the recorded comparison.
func measured() (draw.HTML, error) {
	r, err := report.Load(recorded)
	if err != nil {
		return "", err
	}
	var b draw.Writer
	seed := seeds.Get(seeds.Overwrite)
	before, after := seed.Row("lock").Published.IOPS, seed.Row("unlocked").Published.IOPS
	b.Add(`<p class="lead">A browser cannot measure this: these numbers are recorded; below is where and when. In 2018 the patch of seed 002 was published with %s iops before it and %s after it, a ratio of %s.</p>`,
		draw.Count(before), draw.Count(after), ratio(after/before))
	if r.Note != "" {
		b.Add(`<p>%s</p>`, r.Note)
	}
	for _, c := range r.Sections {
		comparison(&b, c)
	}
	b.Add(`<h3>Where and when</h3><dl class="facts"><div><dt>recorded</dt><dd>%s</dd></div>`, r.Date.Format("2 January 2006, 15:04 MST"))
	for _, m := range r.Machine {
		b.Add(`<div><dt>%s</dt><dd>%s</dd></div>`, m[0], m[1])
	}
	b.Add(`<div><dt>command</dt><dd><code>%s</code></dd></div></dl>`, r.Command)
	return b.HTML(), nil
}

// comparison is a comparison with its pictures and tables.
func comparison(b *draw.Writer, c *report.Comparison) {
	b.Add(`<h3>Job %s, device: %s</h3><p class="goal">%s</p>`, c.Job, c.Heading, c.Conclusion)
	b.Figure(c.IOPSVector(), "", fmt.Sprintf("iops: the median of %d rounds of %g s; the line goes from the slowest round to the fastest.", c.Rounds, c.Runtime))
	b.Figure(c.ClatVector(), c.Legend(), "How long a write took. Each step up is a tenth of the writes that are slower still; further to the left is faster.")
	b.BeginTable("The numbers; the ratio is of iops to "+c.Baseline+" in the same round", "policy", "iops", "ratio", "least", "greatest", "p50", "p99", "p99.9", "longest", "data", "check")
	for _, m := range c.Rows {
		b.Row(m.Policy, draw.Count(m.IOPS), ratio(m.Ratio), ratio(m.Min), ratio(m.Max), draw.Time(float64(m.Clat.P50)), draw.Time(float64(m.Clat.P99)), draw.Time(float64(m.Clat.P999)), draw.Time(float64(m.Clat.Max)), m.Content, m.Check)
	}
	b.EndTable()
	waits(b, c)
}

// waits shows for what the writers waited: the classes of at least a hundredth of some row's time.
func waits(b *draw.Writer, c *report.Comparison) {
	most := map[string]float64{}
	for _, m := range c.Rows {
		for class, share := range m.Waits {
			most[class] = max(most[class], share)
		}
	}
	var classes []string
	for class, share := range most {
		if share >= 0.01 {
			classes = append(classes, class)
		}
	}
	slices.SortFunc(classes, func(x, y string) int {
		if most[x] != most[y] {
			return int(1e6 * (most[y] - most[x]))
		}
		return strings.Compare(x, y)
	})
	b.BeginTable("Share of the writers' time spent waiting, in percent", slices.Concat([]any{"policy"}, draw.Heads(classes))...)
	for _, m := range c.Rows {
		cells := []any{m.Policy}
		for _, class := range classes {
			cells = append(cells, fmt.Sprintf("%.1f", 100*m.Waits[class]))
		}
		b.Row(cells...)
	}
	b.EndTable()
}

func ratio(x float64) string { return fmt.Sprintf("%.2f", x) }

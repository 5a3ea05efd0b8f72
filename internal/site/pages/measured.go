package pages

import (
	_ "embed"
	"fmt"
	"html"
	"slices"
	"strings"

	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/report"
	"btrlab/internal/measure/seeds"
)

//go:embed recorded/compare.json
var recorded []byte

// measured is the page of the recorded comparison.
func measured() (string, error) {
	r, err := report.Load(recorded)
	if err != nil {
		return "", err
	}
	var b page
	seed := seeds.Get("002")
	before, after := seed.Row("lock").Published.IOPS, seed.Row("unlocked").Published.IOPS
	b.add(`<p class="lead">A browser cannot measure this: these numbers are recorded; below is where and when. In 2018 the patch of seed 002 was published with %s iops before it and %s after it, a ratio of %s.</p>`,
		experiment.Count(before), experiment.Count(after), ratio(after/before))
	if r.Note != "" {
		b.add(`<p>%s</p>`, r.Note)
	}
	for _, c := range r.Sections {
		b.comparison(c)
	}
	b.add(`<h3>Where and when</h3><dl class="facts"><div><dt>recorded</dt><dd>%s</dd></div>`, r.Date.Format("2 January 2006, 15:04 MST"))
	for _, m := range r.Machine {
		b.add(`<div><dt>%s</dt><dd>%s</dd></div>`, m[0], m[1])
	}
	b.add(`<div><dt>command</dt><dd><code>%s</code></dd></div></dl>`, r.Command)
	return b.String(), nil
}

// page is HTML. The strings that are added are text.
type page struct{ strings.Builder }

func (b *page) add(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = html.EscapeString(s)
		}
	}
	fmt.Fprintf(b, format+"\n", args...)
}

func (b *page) comparison(c *report.Comparison) {
	b.add(`<h3>Job %s, device: %s</h3><p class="goal">%s</p>`, c.Job, c.Heading, c.Conclusion)
	b.add(`<figure><div class="scroll">`)
	b.WriteString(c.IOPSVector())
	b.add(`</div><figcaption>iops: the median of %d rounds of %g s; the line goes from the slowest round to the fastest.</figcaption></figure>`, c.Rounds, c.Runtime)
	b.add(`<figure><div class="scroll">`)
	b.WriteString(c.ClatVector())
	b.add(`</div>`)
	b.WriteString(c.Legend())
	b.add(`<figcaption>How long a write took. Each step up is a tenth of the writes that are slower still; further to the left is faster.</figcaption></figure>`)
	b.add(`<div class="scroll"><table><caption>The numbers; the ratio is of iops to %s in the same round</caption><thead><tr><th scope="col">policy</th>`, c.Baseline)
	for _, h := range []string{"iops", "ratio", "least", "greatest", "p50", "p99", "p99.9", "longest"} {
		b.add(`<th scope="col" class="num">%s</th>`, h)
	}
	b.add(`<th scope="col">data</th><th scope="col">check</th></tr></thead><tbody>`)
	for _, m := range c.Rows {
		b.add(`<tr><th scope="row">%s</th>`, m.Policy)
		for _, v := range []string{experiment.Count(m.IOPS), ratio(m.Ratio), ratio(m.Min), ratio(m.Max), ns(m.Clat.P50), ns(m.Clat.P99), ns(m.Clat.P999), ns(m.Clat.Max)} {
			b.add(`<td class="num">%s</td>`, v)
		}
		b.add(`<td>%s</td><td>%s</td></tr>`, m.Content, m.Check)
	}
	b.add(`</tbody></table></div>`)
	b.waits(c)
}

// waits shows for what the writers waited: the classes of at least a hundredth of some row's time.
func (b *page) waits(c *report.Comparison) {
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
	b.add(`<div class="scroll"><table><caption>Share of the writers' time spent waiting, in percent</caption><thead><tr><th scope="col">policy</th>`)
	for _, class := range classes {
		b.add(`<th scope="col" class="num">%s</th>`, class)
	}
	b.add(`</tr></thead><tbody>`)
	for _, m := range c.Rows {
		b.add(`<tr><th scope="row">%s</th>`, m.Policy)
		for _, class := range classes {
			b.add(`<td class="num">%.1f</td>`, 100*m.Waits[class])
		}
		b.add(`</tr>`)
	}
	b.add(`</tbody></table></div>`)
}

func ratio(x float64) string { return fmt.Sprintf("%.2f", x) }

func ns(n int64) string { return experiment.Nanos(float64(n)) }

package reproduce

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"btrlab/internal/draw"
	"btrlab/internal/measure/seeds"
)

// WriteHTML writes the report as one page.
func (r *Result) WriteHTML(w io.Writer) error {
	cal, err := json.MarshalIndent(r.Calibration, "", "  ")
	if err != nil {
		return err
	}
	seed := seeds.Get(r.Seed)
	title := "Seed " + r.Seed + " in virtual time"
	var b draw.Writer
	b.Add(`<h1>%s</h1>`, title)
	b.Add(`<p class="conclusion">%s</p>`, r.conclusion(seed))
	b.Add(`<p class="meta">%s, file of %.4g GiB, %s. Content %s.</p>`, r.Job, float64(r.Size)/(1<<30), r.long(), r.Content)
	r.throughput(&b, seed)
	if text := r.drainText(); text != "" {
		b.Add("<p>%s</p>", text)
	}
	if r.distributions() {
		for _, row := range r.published() {
			row.percentiles(&b)
		}
	}
	b.Add("<h2>What it rests on</h2>\n<p>%s</p>", r.Rests)
	r.tables(&b)
	b.Add(`<h2>Calibration</h2>`)
	if seed.Study.Fitted != "" {
		b.Add(`<p>%s</p>`, seed.Study.Fitted)
	}
	b.Add(`<details><summary>every value</summary><pre>%s</pre></details>`, string(cal))
	b.Add("<h2>Costs</h2>\n<details><summary>what each step of the simulated processor costs</summary>")
	b.BeginTable("", "name", "unit", "ns", "source")
	for _, c := range r.Costs {
		b.Row(c.Name, c.Unit, fmt.Sprintf("%.3g", c.Nanos), draw.Words(c.Source))
	}
	b.EndTable()
	b.Add(`</details>`)
	page := draw.Page{Title: title, Style: draw.Report("")}
	return page.Write(w, b.HTML())
}

// conclusion is the page's first sentences.
func (r *Result) conclusion(seed *seeds.Seed) string {
	s := concludes(r.Ratio.Of, r.Ratio.To, seed.Unit(), r.Ratio.Published, r.Ratio.Simulated)
	if r.distributions() {
		rows := r.published()
		last := rows[len(rows)-1]
		within, of := near(last)
		s += fmt.Sprintf(" Of the %d published latency percentiles of %s, %d are predicted within a quarter.", of, last.Name, within)
	}
	return s + smaller(r.Seconds < seed.Study.Seconds, r.Size < seed.Study.Size)
}

// throughput draws the figures by which rows are compared.
func (r *Result) throughput(b *draw.Writer, seed *seeds.Seed) {
	var bars []bar
	for _, x := range r.Rows {
		bars = append(bars, bar{x.Name, x.Policy, x.Role, seed.Figure(&x.Published), seed.Figure(&x.Simulated)})
	}
	b.Add(`<h2>Throughput in %s</h2>`, seed.Unit())
	drawBars(b, seed.Unit(), bars)
}

// tables writes the rows in numbers, and what ablations say.
func (r *Result) tables(b *draw.Writer) {
	if r.distributions() {
		for i, row := range r.published() {
			b.Add(`<h2>%s, %s</h2>`, row.Name, row.Role)
			if i == 0 {
				b.Add(`<p class="meta">%s</p>`, ranksAbout)
			}
			b.Table(row.distribution())
		}
	} else {
		b.Add(`<h2>The rows</h2>`)
		b.Table(r.publishedTable())
	}
	about, table := r.ablation()
	if len(table) == 0 {
		return
	}
	b.Add("<h2>Without one change</h2>\n<p class=\"meta\">%s</p>", about)
	b.Table(table)
	b.List(r.abouts())
}

// abouts say what the rows are.
func (r *Result) abouts() (list []string) {
	for _, x := range r.Rows {
		if x.About != "" {
			list = append(list, x.Name+": "+x.About)
		}
	}
	return list
}

// publishedTable is the table of the rows of which something was published.
func (r *Result) publishedTable() [][]string {
	table := r.oneByOne()
	for i := 2; i < len(table[0]); i += 3 {
		table[0][i] += " published"
	}
	return table
}

// distribution is the table of the figures of a row, with its ranks.
func (row *Row) distribution() [][]string {
	table := [][]string{{"figure", "published", "simulated", "error", "published is our"}}
	lines := row.lines()
	for i, l := range lines {
		rank := ""
		if k := i - (len(lines) - len(row.Ranks)); k >= 0 { // the percentiles are the last lines
			rank = fmt.Sprintf("p%.1f", row.Ranks[k])
		}
		table = append(table, []string{l.name, l.show(l.pub), l.show(l.sim), l.percent(), rank})
	}
	return table
}

// smaller says that a run is not the published one.
func smaller(shorter, less bool) string {
	switch {
	case shorter && less:
		return " This run is shorter than the published one, on a smaller file."
	case shorter:
		return " This run is shorter than the published one."
	case less:
		return " The file of this run is smaller than the published one."
	}
	return ""
}

// near counts the clat percentiles of a row that are within a quarter of what was published, and
// all.
func near(row *Row) (within, of int) {
	for i := range seeds.Percentiles {
		if math.Abs(relative(row.Simulated.Clat[i], row.Published.Clat[i])) <= 0.25 {
			within++
		}
	}
	return within, len(seeds.Percentiles)
}

// concludes says in a sentence what came of a ratio. Where a gain was published and less than a
// quarter of it is simulated, it says so. A published ratio of 0 is one that is not known.
func concludes(of, to, what string, published, simulated float64) string {
	if published == 0 {
		return fmt.Sprintf("Predicted: %s does %.4g times the %s of %s. What was published is not known here.", of, simulated, what, to)
	}
	s := fmt.Sprintf("Published: %s does %.4g times the %s of %s. Simulated: %.4g times, %+.1f %%.", of, published, what, to, simulated, 100*(simulated/published-1))
	if published > 1 && simulated-1 < (published-1)/4 {
		s += " The simulation does not show the published gain."
	}
	return s
}

// bar is a figure of a row; published is 0 where there is none.
type bar struct {
	name, policy, role   string
	published, simulated float64
}

// drawBars draws a bar for each row, with a diamond at what was published. The figures stand over
// the bar. A narrow window has a narrow picture, so that no diamond lies outside it.
func drawBars(b *draw.Writer, unit string, bars []bar) {
	const thick, words, gap = 16, 18, 8
	most, some := 1.0, false
	alt := unit + ":"
	var policies []string
	for _, x := range bars {
		most = max(most, x.published, x.simulated)
		policies = append(policies, x.policy)
		alt += fmt.Sprintf(" %s simulated %s", x.name, shown(x.simulated))
		if x.published > 0 {
			some = true
			alt += fmt.Sprintf(", published %s", shown(x.published))
		}
		alt += ";"
	}
	styles := draw.Styles(policies)
	high := len(bars) * (words + thick + gap)
	picture := func(v *draw.Writer, width float64) {
		// half a diamond has room at the end
		at := func(n float64) float64 { return n / most * (width - draw.Letter) }
		for i, x := range bars {
			y := i*(words+thick+gap) + words
			says := x.name + " " + shown(x.simulated)
			if x.published > 0 {
				says += ", published " + shown(x.published)
			}
			v.Add(`<text x="0" y="%d">%s</text><rect x="0" y="%d" width="%.1f" height="%d" style="fill:%s"><title>%s</title></rect>`,
				y-5, says, y, at(x.simulated), thick, styles[i].Ink(), x.role)
			if x.published > 0 {
				v.Add(`<path class="mark" d="M%.1f %dl7 7l-7 7l-7 -7z"/>`, at(x.published), y+thick/2-7)
			}
		}
	}
	var broad, narrow draw.Writer
	broad.BroadPicture(draw.Width, high, alt[:len(alt)-1])
	picture(&broad, draw.Width)
	narrow.NarrowPicture(draw.Narrow, high, alt[:len(alt)-1])
	picture(&narrow, draw.Narrow)
	caption := "Bars: simulated, " + unit + "."
	if some {
		caption += " Diamonds: published."
	}
	b.Figure(broad.End()+narrow.End(), "", caption)
}

// shown is a figure of a row in words: with thousands set apart, and one place after the point
// below a hundred.
func shown(n float64) string {
	if n < 100 {
		return fmt.Sprintf("%.1f", n)
	}
	l := line{}
	return l.show(n)
}

// percentiles draws the published percentiles beside the simulated ones.
func (row *Row) percentiles(b *draw.Writer) {
	ink := draw.Styles([]string{row.Policy})[0].Ink()
	curve := func(us []float64) (pts [][2]float64) {
		for i, q := range seeds.Percentiles {
			pts = append(pts, [2]float64{us[i] * 1000, q / 100})
		}
		return pts
	}
	alt := row.Name + ", " + row.Role + ":"
	for _, q := range []float64{50, 90, 99, 99.9} {
		l := line{microSecs: true}
		alt += fmt.Sprintf(" p%g published %s, simulated %s;", q, l.show(row.Published.Percentile(q)), l.show(row.Simulated.Percentile(q)))
	}
	curves := []draw.Curve{{Name: "published", Ink: ink, Dashes: "7 4", Marks: true, Points: curve(row.Published.Clat)},
		{Name: "simulated", Ink: ink, Marks: true, Points: curve(row.Simulated.Clat)}}
	b.Add(`<h2>Latency, %s: %s</h2>`, row.Name, row.Role)
	b.Figure(draw.Latencies(alt[:len(alt)-1], curves), draw.Key(curves),
		"Completion latency by share of writes. Further left is faster; each step up is a tenth of the writes that are slower still. Points are the percentiles that fio prints.")
}

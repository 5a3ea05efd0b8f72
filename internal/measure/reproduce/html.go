package reproduce

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"

	"btrlab/internal/measure/report"
	"btrlab/internal/measure/seeds"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// view is a reproduction as its page shows it.
type view struct {
	CSS         template.CSS
	Seed        string
	About       string // the job
	Conclusion  string
	Figures     []figure
	Tables      []htmlTable
	Notes       []string // what the rows of the last table are
	Rests       string
	Fitted      string
	Calibration string
	Costs       []CostLine
}

type figure struct {
	Title   string
	Picture template.HTML
	Key     template.HTML
	Caption string
}

// htmlTable is a table with its head.
type htmlTable struct {
	Title, About string
	Head         []string
	Rows         [][]string
}

// WriteHTML writes the report as one page.
func (r *Result) WriteHTML(w io.Writer) error {
	cal, err := json.MarshalIndent(r.Calibration, "", "  ")
	if err != nil {
		return err
	}
	seed := seeds.Get(r.Seed)
	v := &view{CSS: report.CSS, Calibration: string(cal), Seed: r.Seed, Rests: r.Rests, Costs: r.Costs, Fitted: seed.Study.Fitted,
		About:      fmt.Sprintf("%s, file of %.4g GiB, %g virtual seconds. Content %s.", r.Job, float64(r.Size)/(1<<30), r.Seconds, r.Content),
		Conclusion: concludes(r.Ratio.Of, r.Ratio.To, seed.Unit(), r.Ratio.Published, r.Ratio.Simulated)}
	if r.distributions() {
		last := r.Rows[len(r.Rows)-1]
		within, of := near(last)
		v.Conclusion += fmt.Sprintf(" Of the %d published latency percentiles of %s, %d are predicted within a quarter.", of, last.Name, within)
	}
	v.Conclusion += smaller(r.Seconds < seed.Study.Seconds, r.Size < seed.Study.Size)
	var bars []bar
	for _, x := range r.Rows {
		bars = append(bars, bar{x.Name, x.Policy, x.Role, seed.Figure(&x.Published), seed.Figure(&x.Simulated)})
	}
	v.Figures = []figure{barFigure("Throughput in "+seed.Unit(), seed.Unit(), bars)}
	if r.distributions() {
		for _, row := range r.Rows {
			v.Figures = append(v.Figures, row.percentileFigure())
			v.Tables = append(v.Tables, row.distribution())
		}
		v.Tables[0].About = ranksAbout
	} else {
		v.Tables = []htmlTable{r.published()}
	}
	if about, table := r.ablation(); len(table) > 0 {
		v.Tables = append(v.Tables, htmlTable{Title: "Without one change", About: about, Head: table[0], Rows: table[1:]})
		for _, x := range r.Rows {
			if x.About != "" {
				v.Notes = append(v.Notes, x.Name+": "+x.About)
			}
		}
	}
	return page.Execute(w, v)
}

// published is the table of the rows of which something was published.
func (r *Result) published() htmlTable {
	t := htmlTable{Title: "The rows", Head: []string{"row", "role"}}
	for _, l := range r.Rows[0].lines() {
		t.Head = append(t.Head, l.name+" published", "simulated", "error")
	}
	for _, x := range r.Rows {
		list := x.lines()
		if len(list) == 0 {
			continue
		}
		cells := []string{x.Name, x.Role}
		for _, l := range list {
			cells = append(cells, l.show(l.pub), l.show(l.sim), l.percent())
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// distribution is the table of the figures of a row, with its ranks.
func (row *Row) distribution() htmlTable {
	t := htmlTable{Title: row.Name + ", " + row.Role, Head: []string{"figure", "published", "simulated", "error", "published is our"}}
	lines := row.lines()
	for i, l := range lines {
		rank := ""
		if k := i - (len(lines) - len(row.Ranks)); k >= 0 { // the percentiles are the last lines
			rank = fmt.Sprintf("p%.1f", row.Ranks[k])
		}
		t.Rows = append(t.Rows, []string{l.name, l.show(l.pub), l.show(l.sim), l.percent(), rank})
	}
	return t
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
// quarter of it is simulated, it says so.
func concludes(of, to, what string, published, simulated float64) string {
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

// barFigure draws a bar for each row, with a diamond at what was published. The figures stand over
// the bar, from the left on: a narrow window cuts the right end off.
func barFigure(title, unit string, bars []bar) figure {
	const thick, words, gap = 16, 18, 8
	const end = report.VectorWidth - report.Letter // room for half a diamond
	most, some := 1.0, false
	alt := unit + ":"
	var policies []string
	for _, b := range bars {
		most = max(most, b.published, b.simulated)
		policies = append(policies, b.policy)
		alt += fmt.Sprintf(" %s simulated %s", b.name, shown(b.simulated))
		if b.published > 0 {
			some = true
			alt += fmt.Sprintf(", published %s", shown(b.published))
		}
		alt += ";"
	}
	styles := report.Styles(policies)
	var v report.Vector
	v.Begin(report.VectorWidth, len(bars)*(words+thick+gap), alt[:len(alt)-1])
	x := func(n float64) float64 { return n / most * end }
	for i, b := range bars {
		y := i*(words+thick+gap) + words
		says := b.name + " " + shown(b.simulated)
		if b.published > 0 {
			says += ", published " + shown(b.published)
		}
		v.Add(`<text x="0" y="%d">%s</text><rect x="0" y="%d" width="%.1f" height="%d" style="fill:%s"><title>%s</title></rect>`,
			y-5, says, y, x(b.simulated), thick, styles[i].Ink(), b.role)
		if b.published > 0 {
			v.Add(`<path class="mark" d="M%.1f %dl7 7l-7 7l-7 -7z"/>`, x(b.published), y+thick/2-7)
		}
	}
	v.WriteString("</svg>")
	f := figure{Title: title, Picture: template.HTML(v.String()), Caption: "Bars: simulated, " + unit + "."}
	if some {
		f.Caption += " Diamonds: published."
	}
	return f
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

// percentileFigure draws the published percentiles beside the simulated ones.
func (row *Row) percentileFigure() figure {
	style := report.Styles([]string{row.Policy})[0]
	curve := func(us []float64) (pts [][2]float64) {
		for i, q := range seeds.Percentiles {
			pts = append(pts, [2]float64{us[i] * 1000, q / 100})
		}
		return pts
	}
	alt := row.Name + ", " + row.Role + ":"
	for i, q := range seeds.Percentiles {
		if q == 50 || q == 90 || q == 99 || q == 99.9 {
			p, s := line{microSecs: true}, line{microSecs: true}
			alt += fmt.Sprintf(" p%g published %s, simulated %s;", q, p.show(row.Published.Clat[i]), s.show(row.Simulated.Clat[i]))
		}
	}
	var v report.Vector
	v.Latencies(alt[:len(alt)-1], []report.Curve{{Name: "published", Ink: style.Ink(), Dashes: "7 4", Marks: true, Points: curve(row.Published.Clat)},
		{Name: "simulated", Ink: style.Ink(), Marks: true, Points: curve(row.Simulated.Clat)}})
	return figure{Title: "Latency, " + row.Name + ": " + row.Role, Picture: template.HTML(v.String()),
		Key: template.HTML(fmt.Sprintf(`<ul class="key"><li><svg width="34" height="10" aria-hidden="true"><path class="curve" style="stroke:%[1]s;stroke-dasharray:7 4" d="M0 5H34"/></svg> published</li>
<li><svg width="34" height="10" aria-hidden="true"><path class="curve" style="stroke:%[1]s" d="M0 5H34"/></svg> simulated</li></ul>`, style.Ink())),
		Caption: "Completion latency by share of writes. Further left is faster; each step up is a tenth of the writes that are slower still. Points are the percentiles that fio prints."}
}

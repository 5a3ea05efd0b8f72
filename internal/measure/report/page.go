package report

import (
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"btrlab/internal/measure/experiment"
)

// published is what seed 002 reported for its two kernels; every value is as posted.
var published = struct {
	iops, p50, p99, p999 [2]float64
}{[2]float64{68470, 94242}, [2]float64{406e3, 652e3}, [2]float64{84480e3, 29568e3}, [2]float64{226304e3, 54016e3}}

type section struct {
	*experiment.Result
	Heading  string
	Summary  []string
	CDF      template.URL
	Waits    template.URL
	CDFAlt   string
	WaitsAlt string
	Table    []tableRow
	Classes  []string
	WaitRows []waitRow
	Seed     []seedRow
	Wrong    []string
	Params   string
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
		Date     string
		Sections []*section
	}{meta, time.Now().Format("2 January 2006, 15:04 MST"), sections})
}

func newSection(r *experiment.Result) (*section, error) {
	s := &section{Result: r, Classes: r.TopWaits(len(fills))}
	model := r.Model
	if model == "" || model == "none" {
		s.Heading = "The device as it is: " + r.Device
	} else {
		s.Heading = fmt.Sprintf("%s, modelled as %s", r.Device, model)
	}
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

	cdf, err := cdfFigure(r)
	if err != nil {
		return nil, fmt.Errorf("latency figure: %w", err)
	}
	waits, err := waitFigure(r, s.Classes)
	if err != nil {
		return nil, fmt.Errorf("wait figure: %w", err)
	}
	s.CDF, s.Waits = dataURL(cdf), dataURL(waits)
	by := map[string]*experiment.Row{}
	var cdfAlt, waitAlt []string
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
		wr := waitRow{Policy: row.Policy}
		sum, worst, most := row.AllWaits(), "", 0.0
		for _, k := range s.Classes {
			v := row.Waits[k]
			wr.Cells = append(wr.Cells, fmt.Sprintf("%.1f", 100*v))
			if v > most {
				worst, most = k, v
			}
		}
		wr.Other = fmt.Sprintf("%.1f", 100*row.OtherWaits(s.Classes))
		wr.Sum = fmt.Sprintf("%.1f", 100*sum)
		s.WaitRows = append(s.WaitRows, wr)
		cdfAlt = append(cdfAlt, fmt.Sprintf("%s p50 %s, p99 %s", row.Policy, nanos(float64(c.P50)), nanos(float64(c.P99))))
		if worst != "" {
			waitAlt = append(waitAlt, fmt.Sprintf("%s waits %.1f percent, most for %s", row.Policy, 100*sum, worst))
		}
	}
	s.CDFAlt = "Latency distribution by policy: " + strings.Join(cdfAlt, "; ")
	s.WaitsAlt = "Waits by policy: " + strings.Join(waitAlt, "; ")

	l, u := by["locked"], by["unlocked"]
	if l != nil && u != nil && l.IOPS > 0 && l.Hist.N() > 0 && u.Hist.N() > 0 {
		pair := func(what string, seed [2]float64, a, b float64, f func(float64) string) {
			if a > 0 {
				s.Seed = append(s.Seed, seedRow{what, fmt.Sprintf("%s → %s (%.2f)", f(seed[0]), f(seed[1]), seed[1]/seed[0]), fmt.Sprintf("%s → %s (%.2f)", f(a), f(b), b/a)})
			}
		}
		pair("iops", published.iops, l.IOPS, u.IOPS, experiment.Count)
		pair("clat p50", published.p50, float64(l.Clat.P50), float64(u.Clat.P50), nanos)
		pair("clat p99", published.p99, float64(l.Clat.P99), float64(u.Clat.P99), nanos)
		pair("clat p99.9", published.p999, float64(l.Clat.P999), float64(u.Clat.P999), nanos)
	}
	for _, row := range r.Rows {
		if row.Policy == r.Baseline || row.IOPS == 0 {
			continue
		}
		base := by[r.Baseline]
		if base == nil || base.Clat.P99 == 0 {
			continue
		}
		s.Summary = append(s.Summary, fmt.Sprintf("%s: %.2f times the iops of %s (%.2f to %.2f over the rounds), p99 %.2f times.",
			row.Policy, row.Ratio, r.Baseline, row.RatioMin, row.RatioMax, float64(row.Clat.P99)/float64(base.Clat.P99)))
	}
	return s, nil
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

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>
:root { color-scheme: light; }
body { font: 15px/1.5 "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; color: #1a1a1a; background: #fff; max-width: 62rem; margin: 2.5rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .4rem; border-top: 2px solid #1a1a1a; padding-top: .6rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; }
p, ul { margin: .4rem 0; max-width: 46rem; }
.meta { color: #555; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0 .8rem; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
thead th { border-bottom: 1.5px solid #1a1a1a; font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr.base td { background: #f4f4f4; }
td.text { text-align: left; white-space: normal; }
.wrong { font-weight: 700; text-decoration: underline; }
.alert { border: 2px solid #1a1a1a; padding: .5rem .8rem; margin: .8rem 0; overflow-wrap: anywhere; }
figure { margin: .6rem 0 1rem; }
figure img { width: 100%; max-width: 46rem; height: auto; display: block; }
figcaption { color: #444; font-size: .88rem; max-width: 46rem; }
code { font: .88em "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; font-size: .92rem; max-width: 60rem; }
dt { color: #555; } dd { margin: 0; min-width: 0; }
@media print {
  @page { size: A4; margin: 14mm; }
  body { font-size: 10pt; margin: 0; padding: 0; max-width: none; }
  table { font-size: 8.5pt; } th, td { padding: .15rem .35rem; }
  figure, table, .alert, dl { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  section.result + section.result { break-before: page; }
  figure img { max-width: 140mm; }
  h2 { margin-top: 1rem; } h3 { margin-top: .8rem; }
  tr.base td { background: none; }
  .wide { overflow: visible; }
}
</style>
</head>
<body>
<h1>{{.Title}}</h1>
<p class="meta">{{.Date}}{{if .Command}} · <code>{{.Command}}</code>{{end}}</p>
{{range .Sections}}
<section class="result">
<h2>{{.Heading}}</h2>
<p class="meta">Job {{.Job}}: {{.Rounds}} rounds of {{.Runtime}} s for each policy, in alternating order, on one image.
Device {{.Device}}, model {{.Model}}.<br><code>{{.Params}}</code></p>
{{if .Wrong}}<div class="alert" role="alert"><strong>Not right:</strong>{{range .Wrong}}<br>{{.}}{{end}}</div>{{end}}
{{if .Summary}}<ul>{{range .Summary}}<li>{{.}}</li>{{end}}</ul>{{end}}
<div class="wide"><table>
<thead><tr><th>policy</th><th>iops</th><th>ratio to {{.Baseline}}</th><th>min–max</th><th>clat mean</th><th>p50</th><th>p99</th><th>p99.9</th><th>max</th><th>content</th><th>check</th></tr></thead>
<tbody>
{{range .Table}}<tr{{if .Baseline}} class="base"{{end}}><td>{{.Policy}}</td><td>{{.IOPS}}</td><td>{{.Ratio}}</td><td>{{.Range}}</td><td>{{.Mean}}</td><td>{{.P50}}</td><td>{{.P99}}</td><td>{{.P999}}</td><td>{{.Max}}</td><td>{{if .ContentOK}}{{.Content}}{{else}}<span class="wrong">wrong</span>{{end}}</td><td>{{if .CheckOK}}clean{{else}}<span class="wrong">findings</span>{{end}}</td></tr>
{{end}}</tbody></table></div>
{{if .CDF}}<h3>Latency</h3>
<figure><img src="{{.CDF}}" alt="{{.CDFAlt}}">
<figcaption>All rounds together. Further left is faster; each step up is a tenth of the writes that are slower still. Marks stand at 50, 90, 99, 99.9 and 99.99 percent.</figcaption></figure>{{end}}
{{if .Waits}}<h3>What the writers waited for</h3>
<figure><img src="{{.Waits}}" alt="{{.WaitsAlt}}">
<figcaption>Time that the job's tasks slept, by the lock or wait they slept on, as a share of their run time. What is left of 100 percent was spent running, or ready to run.</figcaption></figure>
<div class="wide"><table>
<thead><tr><th>policy</th>{{range .Classes}}<th>{{.}}</th>{{end}}<th>other</th><th>all waits</th></tr></thead>
<tbody>{{range .WaitRows}}<tr><td>{{.Policy}}</td>{{range .Cells}}<td>{{.}}</td>{{end}}<td>{{.Other}}</td><td>{{.Sum}}</td></tr>
{{end}}</tbody></table></div>
<p class="meta">Percent of the writers' time.</p>{{end}}
{{if .Seed}}<h3>Beside the published result</h3>
<div class="wide"><table>
<thead><tr><th>locked → unlocked (ratio)</th><th>seed 002, 2018</th><th>here</th></tr></thead>
<tbody>{{range .Seed}}<tr><td>{{.What}}</td><td>{{.Published}}</td><td>{{.Here}}</td></tr>
{{end}}</tbody></table></div>
<p class="meta">The seed ran for 180 s on a 16 GiB file on six SSDs in RAID 5. The machines differ; the ratios are what can be compared.</p>{{end}}
<h3>Every round</h3>
<div class="wide"><table><thead><tr><th>policy</th><th>iops, round by round</th></tr></thead>
<tbody>{{range .Table}}<tr><td>{{.Policy}}</td><td>{{.Rounds}}</td></tr>
{{end}}</tbody></table></div>
</section>
{{end}}
<section>
<h2>How to read it</h2>
<ul>
<li><b>iops</b> is the median over the rounds; <b>ratio</b> is the median of the ratios within each round, with the smallest and largest beside it.</li>
<li><b>clat</b> is what fio reports. With ioengine=libaio and buffered writes that is the time of the iodepth−1 calls that follow a write, because Linux
does the write inside io_submit and fio collects events when the queue is full; with psync it is the time of the call.</li>
<li><b>content</b> is ok when every 4 KiB block of the file holds one whole write, at its place, which no other write of the block followed. Blocks carry writer, sequence and checksum.</li>
<li><b>check</b> is clean when btrlab check finds nothing wrong with the image after the round.</li>
</ul>
<h3>Machine</h3>
<dl>{{range .Machine}}<dt>{{index . 0}}</dt><dd>{{index . 1}}</dd>{{end}}</dl>
</section>
</body>
</html>
`))

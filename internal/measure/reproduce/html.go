package reproduce

import (
	"encoding/json"
	"fmt"
	"html/template"
	"io"
)

// page needs nothing else: no network, no script, and no colour to be read.
var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Seed {{.R.Seed}} in virtual time</title>
<style>body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}
th,td{padding:.15em .8em;text-align:right;border-bottom:1px solid #ccc}th:first-child,td:first-child{text-align:left}pre{background:#f4f4f4;padding:1em}</style>
<h1>Seed {{.R.Seed}} in virtual time</h1>
<p>{{.R.Jobs}} jobs, iodepth {{.R.IODepth}}, 4 KiB random writes into one NOCOW file, {{.R.Seconds}} virtual seconds. Content {{.R.Content}}.</p>
{{range .Tables}}<h2>{{.Name}}: {{.Role}}</h2>
<table><tr><th>figure<th>published<th>simulated<th>error<th>published is our</tr>
{{range .Lines}}<tr><td>{{.Name}}<td>{{.Published}}<td>{{.Simulated}}<td>{{.Error}}<td>{{.Rank}}</tr>
{{end}}</table>
{{end}}<h2>Ratio</h2><p>unlocked / lock: published {{.R.Ratio.Published}}, simulated {{.R.Ratio.Simulated}}.</p>
<p>{{.R.Rests}}</p>
<h2>Calibration</h2><p>Fitted to the lock row, but for dirty_limit_bytes and device_handle_ns.</p><pre>{{.Calibration}}</pre>
<h2>Costs</h2><table><tr><th>name<th>unit<th>ns<th>source</tr>
{{range .R.Costs}}<tr><td>{{.Name}}<td>{{.Unit}}<td>{{printf "%.3g" .Nanos}}<td style="text-align:left">{{.Source}}</tr>
{{end}}</table></html>
`))

type htmlLine struct{ Name, Published, Simulated, Error, Rank string }

type htmlTable struct {
	Name, Role string
	Lines      []htmlLine
}

// WriteHTML writes the report as one page.
func (r *Result) WriteHTML(w io.Writer) error {
	cal, err := json.MarshalIndent(r.Calibration, "", "  ")
	if err != nil {
		return err
	}
	var tables []htmlTable
	for _, row := range r.Rows {
		t := htmlTable{Name: row.Name, Role: row.Role}
		lines := row.lines()
		for i, l := range lines {
			rank := ""
			if k := i - (len(lines) - len(row.Ranks)); k >= 0 { // the percentiles are the last lines
				rank = fmt.Sprintf("p%.1f", row.Ranks[k])
			}
			t.Lines = append(t.Lines, htmlLine{l.name, l.show(l.pub), l.show(l.sim), l.percent(), rank})
		}
		tables = append(tables, t)
	}
	return page.Execute(w, struct {
		R           *Result
		Tables      []htmlTable
		Calibration string
	}{r, tables, string(cal)})
}

package report

import (
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/vg"

	"btrlab/internal/draw"
	"btrlab/internal/draw/chart"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/measure/stats"
	"btrlab/internal/prose"
)

// Write writes the page for one or more comparisons (one per device setting).
func Write(w io.Writer, meta Meta, results ...*experiment.Result) error {
	if meta.Machine == nil {
		meta.Machine = Machine()
	}
	if meta.Title == "" {
		meta.Title = "Locking policies compared"
	}
	var b draw.Writer
	b.Add(`<h1>%s</h1>`, meta.Title)
	command := draw.HTML("")
	if meta.Command != "" {
		command = " · <code>" + draw.Escape(meta.Command) + "</code>"
	}
	b.Add(`<p class="meta">%s%s</p>`, time.Now().Format("2 January 2006, 15:04 MST"), command)
	b.WriteString(string(meta.Before))
	for _, r := range results {
		s := &section{Writer: &b, Result: r, classes: r.TopWaits(len(fills)), what: "policy"}
		if slices.ContainsFunc(r.Rows, func(row *experiment.Row) bool { return row.About != "" }) {
			s.what = "row"
		}
		if err := s.write(); err != nil {
			return err
		}
	}
	howToRead(&b, meta.Machine)
	page := draw.Page{Title: meta.Title, Style: draw.Report("")}
	return page.Write(w, b.HTML())
}

func howToRead(b *draw.Writer, machine [][2]string) {
	b.Add(`<section>
<h2>How to read it</h2>
<ul>
<li><b>iops</b> is the median over the rounds; <b>ratio</b> is the median of the ratios within each round, with the smallest and largest beside it.</li>
<li><b>clat</b> is what fio reports. With ioengine=libaio and buffered writes that is the time of the iodepth−1 calls that follow a write, because Linux
does the write inside io_submit and fio collects events when the queue is full; with psync it is the time of the call.</li>
<li><b>content</b> is ok when every 4 KiB block of the file holds one whole write, at its place, which no other write of the block followed. Blocks carry writer, sequence and checksum.</li>
<li><b>check</b> is clean when btrlab check finds nothing wrong with the image after the round.</li>
</ul>
<h3>Machine</h3>
<dl>`)
	for _, m := range machine {
		b.Add(`<dt>%s</dt><dd>%s</dd>`, m[0], m[1])
	}
	b.Add("</dl>\n</section>")
}

// section is a comparison on its page.
type section struct {
	*draw.Writer
	*experiment.Result
	classes []string // of locks that have a column
	what    string   // a row is: a policy, or a row of a study
}

func (s *section) write() error {
	s.Add("<section class=\"result\">\n<h2>%s</h2>", heading(s.Result))
	if c := s.Conclusion(); c != "" {
		s.Add(`<p class="conclusion">%s</p>`, c)
	}
	s.wrong()
	if err := s.iops(); err != nil {
		return err
	}
	if err := s.latencies(); err != nil {
		return err
	}
	s.numbers()
	s.pairs()
	if err := s.waits(); err != nil {
		return err
	}
	s.costs()
	s.places()
	s.rings()
	s.published()
	s.Add(`<h3>Every round</h3>`)
	var rounds [][]string
	for _, row := range s.Rows {
		rounds = append(rounds, []string{row.Policy, joinCounts(row.RoundIOPS)})
	}
	s.table([]string{"iops, round by round"}, rounds)
	s.Add(`</section>`)
	return nil
}

// table is a table of rows by their names.
func (s *section) table(heads []string, rows [][]string) {
	s.Table(append([][]string{append([]string{s.what}, heads...)}, rows...))
}

func contentOK(row *experiment.Row) bool {
	return row.Content == "ok" || row.Content == experiment.Unverified
}

func checkOK(row *experiment.Row) bool {
	return row.Check == "clean" || row.Check == experiment.Unchecked
}

// wrong says which rows are not right.
func (s *section) wrong() {
	var list draw.HTML
	for _, row := range s.Rows {
		if !contentOK(row) {
			list += "<br>" + draw.Escape(row.Policy+": content: "+row.Content)
		}
		if !checkOK(row) {
			list += "<br>" + draw.Escape(row.Policy+": check: "+row.Check)
		}
	}
	if list != "" {
		s.Add(`<div class="alert" role="alert"><strong>Not right:</strong>%s</div>`, list)
	}
}

// bars shows a picture, and the one for a telephone.
func (s *section) bars(figure func(width vg.Length) ([]byte, error), alt, caption string) error {
	wide, err := figure(chart.Width)
	if err != nil || wide == nil {
		return err
	}
	narrow, err := figure(narrowWidth)
	if err != nil {
		return err
	}
	s.Add(`<figure><picture class="bars"><source media="screen and (max-width: 40rem)" srcset="%s"><img src="%s" alt="%s"></picture>
<figcaption>%s</figcaption></figure>`, dataURL(narrow), dataURL(wide), alt, caption)
	return nil
}

// dataURL puts a picture into the page.
func dataURL(png []byte) draw.HTML {
	return draw.HTML("data:image/png;base64," + base64.StdEncoding.EncodeToString(png))
}

// says is a sentence about each row, for those who cannot see a picture.
func (s *section) says(of func(row *experiment.Row) string) string {
	var list []string
	for _, row := range s.Rows {
		if text := of(row); text != "" {
			list = append(list, row.Policy+" "+text)
		}
	}
	return strings.Join(list, "; ")
}

func (s *section) iops() error {
	caption := "Writes or reads per second, more is better: the median of the rounds; the line goes from the slowest round to the fastest."
	if slices.ContainsFunc(s.Rows, func(row *experiment.Row) bool { return row.Published > 0 }) {
		caption += " A diamond is what was published, on another machine."
	}
	alt := s.says(func(row *experiment.Row) string { return draw.Count(row.IOPS) })
	return s.bars(func(width vg.Length) ([]byte, error) { return iopsFigure(s.Result, width) }, "iops: "+alt, caption)
}

func (s *section) latencies() error {
	png, err := LatencyPNG(s.Result)
	if err != nil || png == nil {
		return err
	}
	alt := s.says(func(row *experiment.Row) string {
		return fmt.Sprintf("p50 %s, p99 %s", draw.Time(float64(row.Clat.P50)), draw.Time(float64(row.Clat.P99)))
	})
	s.Add(`<h3>Latency</h3>`)
	s.Figure(`<img src="`+dataURL(png)+`" alt="`+draw.Escape("Latency distribution by policy: "+alt)+`">`, "",
		"All rounds together. Further left is faster; each step up is a tenth of the writes that are slower still. Marks stand at 50, 90, 99, 99.9 and 99.99 percent.")
	return nil
}

// numbers is the table of the rows.
func (s *section) numbers() {
	s.Add("<h3>In numbers</h3>\n<p class=\"meta\">Job %s: %s%s for each %s, in alternating order, on one image. Device %s, model %s.<br><code>%s</code></p>",
		s.Job, prose.Count(s.Rounds, "round"), s.RunTime(" s"), s.what, s.Device, s.Model, s.parameters())
	mark := func(ok bool, text, wrong string) any {
		if ok {
			return text
		}
		return draw.HTML(`<span class="wrong">` + wrong + `</span>`)
	}
	s.BeginTable("", s.what, "iops", "ratio to "+s.Baseline, "min–max", "clat mean", "p50", "p99", "p99.9", "max", "content", "check")
	var about []string
	for _, row := range s.Rows {
		c := &row.Clat
		add := s.Row
		if row.Policy == s.Baseline {
			add = s.BaseRow
		}
		add(row.Policy, draw.Count(row.IOPS), fmt.Sprintf("%.2f", row.Ratio), fmt.Sprintf("%.2f–%.2f", row.RatioMin, row.RatioMax),
			draw.Time(c.Mean), draw.Time(float64(c.P50)), draw.Time(float64(c.P99)), draw.Time(float64(c.P999)), draw.Time(float64(c.Max)),
			mark(contentOK(row), row.Content, "wrong"), mark(checkOK(row), "clean", "findings"))
		if row.About != "" {
			about = append(about, row.Policy+": "+row.About)
		}
	}
	s.EndTable()
	s.List(about)
}

// parameters are the options of the job. What it says last of an option holds.
func (s *section) parameters() string {
	var list []string
	seen := map[string]bool{}
	for _, o := range slices.Backward(s.Parameters) {
		if seen[o.Key] {
			continue
		}
		seen[o.Key] = true
		v := o.Key
		if o.Value != "" {
			v += "=" + o.Value
		}
		list = append(list, v)
	}
	slices.Reverse(list)
	return strings.Join(list, " ")
}

func (s *section) pairs() {
	if len(s.Pairs) == 0 {
		return
	}
	s.BeginTable("", "ratio of iops", "here", "min–max", "published")
	for _, p := range s.Pairs {
		published := ""
		if p.Published > 0 {
			published = fmt.Sprintf("%.2f", p.Published)
		}
		s.Row(p.Row+" / "+p.To, fmt.Sprintf("%.2f", p.Ratio), fmt.Sprintf("%.2f–%.2f", p.RatioMin, p.RatioMax), published)
	}
	s.EndTable()
}

func (s *section) waits() error {
	if len(s.classes) == 0 {
		return nil
	}
	s.Add(`<h3>What the writers waited for</h3>`)
	alt := s.says(func(row *experiment.Row) string {
		worst, most := "", 0.0
		for _, k := range s.classes {
			if v := row.Waits[k]; v > most {
				worst, most = k, v
			}
		}
		if worst == "" {
			return ""
		}
		return fmt.Sprintf("waits %.1f percent, most for %s", 100*row.AllWaits(), worst)
	})
	err := s.bars(func(width vg.Length) ([]byte, error) { return waitFigure(s.Result, s.classes, width) }, "Waits by policy: "+alt,
		"Time that the job's tasks slept, by the lock or wait they slept on, as a share of their run time. What is left of 100 percent was spent running, or ready to run.")
	if err != nil {
		return err
	}
	s.BeginTable("", slices.Concat([]any{s.what}, draw.Heads(s.classes), []any{"other", "all waits"})...)
	for _, row := range s.Rows {
		cells := []any{row.Policy}
		for _, k := range s.classes {
			cells = append(cells, row.Percent(row.Waits[k]))
		}
		s.Row(append(cells, row.Percent(row.OtherWaits(s.classes)), row.Percent(row.AllWaits()))...)
	}
	s.EndTable()
	s.Add(`<p class="meta">Percent of the writers' time.</p>`)
	return nil
}

// costs are those of requests that were tried without waiting, and of fsyncs in logs.
func (s *section) costs() {
	if list := s.NowaitCosts(); len(list) > 0 {
		s.Add(`<h3>Requests that were tried without waiting</h3>`)
		s.table(experiment.NowaitHead[1:], list)
		s.Add(`<p class="meta">Averages of a request, all rounds together. A request that answers EAGAIN goes to a worker, whose costs are not among these.</p>`)
	}
	if list := s.LogCosts(); len(list) > 0 {
		s.Add(`<h3>Fsyncs that went to a log</h3>`)
		s.table([]string{"searches", "leaves copied", "bytes moved in leaves", "blocks", "superblocks", "bytes of log", "steps with a leaf locked", "level 1", "level 2",
			"time of the leaf's lock", "level 1", "level 2"}, list)
		s.Add(`<p class="meta">Averages of an fsync, all rounds together: locks for writing of blocks of the log's tree.</p>`)
	}
}

// places says how many requests of a row answered EAGAIN or slept at a place.
func (s *section) places() {
	if !slices.ContainsFunc(s.Rows, func(row *experiment.Row) bool {
		return row.Nowait != nil && len(row.Nowait.Again)+len(row.Nowait.Slept) > 0
	}) {
		return
	}
	s.BeginTable("", s.what, "what", "times", "place")
	for _, row := range s.Rows {
		if n := row.Nowait; n != nil {
			for _, k := range stats.Most(n.Again) {
				s.Row(row.Policy, "EAGAIN", n.Again[k], draw.Words(k))
			}
			for _, k := range stats.Most(n.Slept) {
				s.Row(row.Policy, "slept", n.Slept[k], draw.Words(k))
			}
		}
	}
	s.EndTable()
}

// rings says which way the requests of rings went, or the share of EAGAIN on the running kernel.
func (s *section) rings() {
	has := func(row *experiment.Row) bool { return row.Ring != nil || row.Again != nil }
	if !slices.ContainsFunc(s.Rows, has) {
		return
	}
	s.Add(`<h3>Which way the requests of rings went</h3>`)
	s.BeginTable("", s.what, "requests", "inline", "by the device", "by workers", "after EAGAIN", "after a part", "workers", "EAGAIN")
	for _, row := range s.Rows {
		if !has(row) {
			continue
		}
		cells := []any{row.Policy, "", "", "", "", "", "", "", ""}
		if r := row.Ring; r != nil {
			for i, v := range []int64{r.Submitted, r.Inline, r.Queued, r.Punted, r.Again, r.Short, r.Workers} {
				cells[1+i] = draw.Count(float64(v))
			}
		}
		if row.Again != nil {
			cells[8] = fmt.Sprintf("%.1f %%", 100**row.Again)
		}
		s.Row(cells...)
	}
	s.EndTable()
	s.Add(`<p class="meta">Counts of all rounds. EAGAIN is the share of requests that the running kernel answered so under RWF_NOWAIT.</p>`)
}

// published puts the ratios of unlocked to locked beside those of seed 002.
func (s *section) published() {
	row := func(policy string) *experiment.Row {
		for _, row := range s.Rows {
			if row.Policy == policy && row.Hist.N() > 0 {
				return row
			}
		}
		return nil
	}
	l, u := row("locked"), row("unlocked")
	if l == nil || u == nil || l.IOPS == 0 {
		return
	}
	seed := seeds.Get(seeds.Overwrite)
	lock, unlocked := &seed.Row("lock").Published, &seed.Row("unlocked").Published
	s.Add(`<h3>Beside the published result</h3>`)
	s.BeginTable("", "locked → unlocked (ratio)", "seed 002, 2018", "here")
	pair := func(what string, f func(float64) string, was, is [2]float64) {
		text := func(v [2]float64) string { return fmt.Sprintf("%s → %s (%.2f)", f(v[0]), f(v[1]), v[1]/v[0]) }
		if is[0] > 0 {
			s.Row(what, text(was), text(is))
		}
	}
	pair("iops", draw.Count, [2]float64{lock.IOPS, unlocked.IOPS}, [2]float64{l.IOPS, u.IOPS})
	clat := func(q float64, l, u int64) {
		pair(fmt.Sprintf("clat p%g", q), draw.Time, [2]float64{1000 * lock.Percentile(q), 1000 * unlocked.Percentile(q)}, [2]float64{float64(l), float64(u)})
	}
	clat(50, l.Clat.P50, u.Clat.P50)
	clat(99, l.Clat.P99, u.Clat.P99)
	clat(99.9, l.Clat.P999, u.Clat.P999)
	s.EndTable()
	s.Add(`<p class="meta">The seed ran for 180 s on a 16 GiB file on six SSDs in RAID 5. The machines differ; the ratios are what can be compared.</p>`)
}

// heading names the device.
func heading(r *experiment.Result) string {
	if r.Model == "" || r.Model == "none" {
		return "The device as it is: " + r.Device
	}
	return fmt.Sprintf("%s, modelled as %s", r.Device, r.Model)
}

func joinCounts(v []float64) string {
	var out []string
	for _, x := range v {
		out = append(out, draw.Count(x))
	}
	return strings.Join(out, "  ")
}

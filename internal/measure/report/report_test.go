package report

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"btrlab/internal/draw"
	"btrlab/internal/measure/experiment"
	"btrlab/internal/measure/stats"
	"btrlab/internal/testing/pagetest"
	"btrlab/internal/uring"
)

var keep = flag.String("keep", "", "write the page of the test here, to be looked at")

func sample(model string, policies ...string) *experiment.Result {
	r := &experiment.Result{Job: "seed-002.fio", Device: "memory", Model: model, Runtime: 1, Rounds: 3, Baseline: "locked",
		Parameters: []stats.Option{{Key: "rw", Value: "randwrite"}, {Key: "time_based"}, {Key: "size", Value: "128m"}, {Key: "numjobs", Value: "8"}}}
	for i, p := range policies {
		rnd := rand.New(rand.NewPCG(uint64(i), 7))
		h := new(stats.Hist)
		for range 60_000 {
			v := math.Exp(12.8 + float64(i%3)*0.3 + rnd.NormFloat64()*0.35)
			if rnd.Float64() < 0.05 {
				v *= 20 / float64(i+1) * math.Exp(rnd.NormFloat64())
			}
			h.Add(int64(v))
		}
		f := 1 + 0.12*float64(i)
		row := &experiment.Row{Policy: p, IOPS: 61234 * f, Versus: stats.Versus{Ratio: f, RatioMin: f - 0.05, RatioMax: f + 0.06, Sure: &stats.Interval{Low: f - 0.05, High: f + 0.06}}, RoundIOPS: []float64{61234 * f, 60100 * f, 63000 * f},
			Hist: h, Content: "ok", Check: "clean",
			Clat:  experiment.Clat{Mean: h.Mean(), P50: h.Percentile(50), P99: h.Percentile(99), P999: h.Percentile(99.9), Max: h.Max()},
			Waits: map[string]float64{"balance_dirty": 0.12 + 0.03*float64(i), "stable_page": 0.08, "page": 0.02 * float64(i), "ordered_extent": 0.05, "extent": 0.011, "space_ticket": 0.0005}}
		if p == "locked" || p == "modern" {
			row.Waits["i_rwsem"] = 0.61
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

var six = []string{"locked", "unlocked", "unlocked-drain", "prewait", "range-lock", "modern"}

func write2(t *testing.T, results ...*experiment.Result) string {
	t.Helper()
	var b bytes.Buffer
	meta := Meta{Title: "Locked versus unlocked writes", Command: "btrlab compare --out <report>.html"}
	if err := Write(&b, meta, results...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRings: what rings did has a table, with the share of EAGAIN on the running kernel; a page
// without either has none.
func TestRings(t *testing.T) {
	r := sample("none", six...)
	if strings.Contains(write2(t, r), "requests of rings") {
		t.Error("a table of rings that nobody had")
	}
	share := 0.125
	r.Rows[1].Again = &share
	r.Rows[2].Ring = &stats.Ring{Stats: uring.Stats{Submitted: 12345, Inline: 12000, Queued: 11, Punted: 334, Again: 333, Short: 1}, Workers: 2}
	page := write2(t, r)
	for _, want := range []string{
		"<th scope=\"row\">unlocked-drain</th><td>12,345</td><td>12,000</td><td>11</td><td>334</td><td>333</td><td>1</td><td>2</td><td></td>",
		"<th scope=\"row\">unlocked</th><td></td><td></td><td></td><td></td><td></td><td></td><td></td><td>12.5 %</td>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func images(t *testing.T, page string) []image.Image {
	t.Helper()
	var out []image.Image
	for _, m := range regexp.MustCompile(`src(?:set)?="data:image/png;base64,([^"]+)"`).FindAllStringSubmatch(page, -1) {
		b, err := base64.StdEncoding.DecodeString(strings.NewReplacer("&#43;", "+", "%2b", "+").Replace(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, img)
	}
	return out
}

// The page needs nothing from outside, holds every number as text, and its figures touch no edge: a
// label that is cut off would.
func TestPage(t *testing.T) {
	a, b := sample("none", six...), sample("ssd-raid5", six...)
	n := stats.NewNowait()
	n.Tried, n.Costs["tree_searches"], n.Again["place: several <x>"], n.Slept["extent in lock_extent"] = 200, 1234, 77, 31
	b.Rows[1].Nowait = n
	b.Rows[2].Log = &stats.Log{Fsyncs: 4, Costs: map[string]int64{"tree_searches": 10, "log_bytes": 8192}, Steps: [8]int64{6, 2}, HeldNs: [8]int64{4400, 8}}
	b.Rows[2].Content = "round 2: 1 torn block, first at 4096: line 3 has <x>"
	page := write2(t, a, b)
	if *keep != "" {
		if err := os.WriteFile(*keep, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"modern does 1.60 times the iops of locked (95 % confidence 1.55 to 1.66), more than any other.", "3 rounds of 1 s for each policy"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	text := regexp.MustCompile(`base64,[^"]+"`).ReplaceAllString(page, `"`)
	for _, bad := range []string{"http://", "https://", "<script", "<link", "url(", "@import", "NaN", "ZgotmplZ", "<x>", "<report>"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, r := range []*experiment.Result{a, b} {
		for _, row := range r.Rows {
			for _, want := range []string{row.Policy, draw.Count(row.IOPS), draw.Time(row.Clat.Mean), draw.Time(float64(row.Clat.P99)), draw.Time(float64(row.Clat.Max)), fmt.Sprintf("%.1f", 100*row.Waits["balance_dirty"])} {
				if !strings.Contains(page, want) {
					t.Errorf("%s: %q is not on the page", row.Policy, want)
				}
			}
		}
	}
	for _, want := range []string{"Not right:", "unlocked-drain: content: round 2: 1 torn block", "68,470 → 94,242 (1.38)", "time_based", "machine", "balance_dirty",
		"<tr><th scope=\"row\">unlocked</th><td>0.00</td><td>0.00</td><td>6.17</td><td>0.00</td><td>0.00</td><td>0.00</td><td>0.00</td><td>0.00</td><td>0.1550</td><td>38.50</td></tr>", "<td>77</td><td class=\"text\">place: several", "<td>slept</td><td>31</td>"} {
		if !strings.Contains(strings.ToLower(page), strings.ToLower(want)) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if want := "<td>2.50</td><td>0.00</td><td>0.0K</td><td>0.00</td><td>0.00</td><td>2.0K</td><td>1.5</td><td>0.5</td><td>0.0</td><td>1.10us</td><td>2ns</td><td>0ns</td>"; !strings.Contains(page, want) {
		t.Errorf("the costs of logs are not on the page: %s", want)
	}
	if have := strings.Count(page, "tried without waiting</h3>"); have != 1 {
		t.Errorf("%d tables of costs, want that of the second comparison", have)
	}
	if want := `<th scope="col">balance_<wbr>dirty</th>`; !strings.Contains(page, want) {
		t.Errorf("the head of the wait table cannot be broken, which no paper is wide enough for: want %s", want)
	}
	if have := strings.Count(page, `<source media="screen and (max-width: 40rem)" srcset="data:image/png;base64,`); have != 4 {
		t.Errorf("%d bars for a telephone, want 2 of each comparison", have)
	}
	imgs := images(t, page)
	if len(imgs) != 10 {
		t.Fatalf("%d figures, want 6 and 4 for a telephone", len(imgs))
	}
	for i, img := range imgs {
		r := img.Bounds()
		ink := 0
		for x := r.Min.X; x < r.Max.X; x++ {
			for y := r.Min.Y; y < r.Max.Y; y++ {
				if edge := x < 4 || y < 4 || x >= r.Max.X-4 || y >= r.Max.Y-4; !edge && (x%4 != 0 || y%4 != 0) {
					continue
				}
				cr, cg, cb, _ := img.At(x, y).RGBA()
				if cr == 0xffff && cg == 0xffff && cb == 0xffff {
					continue
				}
				ink++
				if x < 4 || y < 4 || x >= r.Max.X-4 || y >= r.Max.Y-4 {
					t.Fatalf("figure %d has ink at %d,%d, at its edge (%v)", i, x, y, r)
				}
			}
		}
		if ink < 400 {
			t.Errorf("figure %d is empty: %d of the sampled pixels", i, ink)
		}
	}
}

// The page is well formed. HTML is not XML, but this page is written so that a strict reader takes
// it.
func TestPageWellFormed(t *testing.T) {
	page := write2(t, sample("none", six...))
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict = false
	d.AutoClose = []string{"meta", "img", "br", "source", "wbr"}
	d.Entity = xml.HTMLEntity
	depth := 0
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch tok.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	if depth != 0 {
		t.Errorf("%d elements are not closed", depth)
	}
}

// One policy, no waits, or nothing measured at all (a run stopped at once) still make a page.
func TestPageOfLittle(t *testing.T) {
	one := sample("none", "locked")
	one.Rows[0].Waits = map[string]float64{}
	empty := sample("none", "locked", "unlocked")
	for _, row := range empty.Rows {
		*row = experiment.Row{Policy: row.Policy, Hist: new(stats.Hist), Content: "ok", Check: "clean", Waits: map[string]float64{}}
	}
	empty.Rounds = 0
	one.Rows[0].Content = experiment.Unverified
	page := write2(t, one, empty)
	if !strings.Contains(page, "<td>not verified</td>") || strings.Contains(page, "Not right:") {
		t.Error("content that was not verified is shown as something else")
	}
	if text := regexp.MustCompile(`base64,[^"]+"`).ReplaceAllString(page, `"`); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error("NaN or Inf on the page")
	}
	if n := len(images(t, page)); n != 3 {
		t.Errorf("%d figures, want 3: the iops, twice, and the latencies of one row", n)
	}
}

// A study's page says what its rows are and what was published of them; the styles of twelve rows
// differ.
func TestPageOfStudy(t *testing.T) {
	r := sample("none", "psync", "before", "after")
	r.Baseline = "before"
	r.Rows[0].About, r.Rows[2].About, r.Rows[2].Published = "pwrite", "with the patch", 134_000
	r.Pairs = []experiment.PairRatio{{Row: "after", To: "before", Versus: stats.Versus{Ratio: 2.5, RatioMin: 2.4, RatioMax: 2.75, Sure: &stats.Interval{Low: 2.4, High: 2.75}}, Published: 2.44}}
	page := write2(t, r)
	for _, want := range []string{
		"after does 2.50 times the iops of before (95 % confidence 2.40 to 2.75); 2.44 was published.", "<li>psync: pwrite</li>",
		"<th scope=\"row\">after / before</th><td>2.50</td><td>2.40–2.75</td><td>2.44</td>", "A diamond is what was published", "for each row",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if strings.Contains(write2(t, sample("none", six...)), "A diamond") {
		t.Error("a diamond is explained, and nothing was published")
	}
}

// TestRecord: what was measured is kept with when and where, comes back the same, and is drawn: a
// bar for each row, as long as its iops, and a line for each distribution, which only rises.
func TestRecord(t *testing.T) {
	r := sample("ssd-raid5", six...)
	var b bytes.Buffer
	if err := Save(&b, Meta{Title: "a <b>", Command: "btrlab compare", Machine: [][2]string{{"processor", "two"}}}, r); err != nil {
		t.Fatal(err)
	}
	rec, err := Load(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if rec.Title != "a <b>" || rec.Command != "btrlab compare" || rec.Machine[0][1] != "two" || rec.Date.IsZero() || len(rec.Sections) != 1 {
		t.Fatalf("%+v", rec)
	}
	c := rec.Sections[0]
	if c.Heading != heading(r) || c.Conclusion != r.Conclusion() || c.Baseline != "locked" || len(c.Rows) != len(six) {
		t.Fatalf("%+v", c)
	}
	for i, m := range c.Rows {
		row := r.Rows[i]
		if m.Policy != row.Policy || math.Abs(m.IOPS-row.IOPS) > 0.1 || m.Ratio != row.Ratio || m.Clat != row.Clat || len(m.RoundIOPS) != 3 {
			t.Errorf("%+v of %+v", m, row)
		}
		for k, p := range m.Curve {
			if have := row.Hist.Rank(int64(p[0])) / 100; math.Abs(have-p[1]) > 1e-5 {
				t.Errorf("%s: %v of the latencies are within %v ns, and %v in the histogram", m.Policy, p[1], p[0], have)
			}
			if k > 0 && (p[0] <= m.Curve[k-1][0] || p[1] <= m.Curve[k-1][1]) {
				t.Errorf("%s: the distribution goes from %v to %v", m.Policy, m.Curve[k-1], p)
			}
		}
		if len(m.Curve) < 20 || len(m.Curve) > curvePoints+10 {
			t.Errorf("%s: %d points", m.Policy, len(m.Curve))
		}
	}
	var bars []float64
	for _, m := range regexp.MustCompile(`<rect x="[0-9.]+" y="\d+" width="([0-9.]+)"`).FindAllStringSubmatch(string(c.IOPSVector()), -1) {
		var w float64
		fmt.Sscan(m[1], &w)
		bars = append(bars, w/r.Rows[len(bars)].IOPS)
	}
	for _, w := range bars {
		if math.Abs(w/bars[0]-1) > 0.01 {
			t.Errorf("the bars are not as long as their iops: %v", bars)
		}
	}
	curves := c.ClatVector()
	if len(bars) != len(six) || strings.Count(string(curves), `class="curve"`) != len(six) || strings.Count(string(c.Legend()), "<li>") != len(six) {
		t.Errorf("%d bars of %d rows:\n%s", len(bars), len(six), curves)
	}
	for _, text := range []draw.HTML{c.IOPSVector(), curves, c.Legend()} {
		pagetest.WellFormedXML(t, string(text))
	}
	if _, err := Load([]byte("{")); err == nil {
		t.Error("half a record is no error")
	}
}

package reproduce

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"btrlab/internal/measure/seeds"
	"btrlab/internal/testing/pagetest"
)

var keep = flag.String("keep", "", "write the page of the test here, to be looked at")

// TestConcludes: the sentence has both ratios, and says when a published gain is not there.
func TestConcludes(t *testing.T) {
	for _, c := range []struct {
		published, simulated float64
		want                 string
	}{
		{1.376, 1.234, "Published: after does 1.376 times the iops of before. Simulated: 1.234 times, -10.3 %."},
		{1.078, 1.001, "Published: after does 1.078 times the iops of before. Simulated: 1.001 times, -7.1 %. The simulation does not show the published gain."},
		{185.07, 176.6, "Published: after does 185.1 times the iops of before. Simulated: 176.6 times, -4.6 %."},
		{0, 1.04, "Predicted: after does 1.04 times the iops of before. What was published is not known here."},
	} {
		if have := concludes("after", "before", "iops", c.published, c.simulated); have != c.want {
			t.Errorf("have %q, want %q", have, c.want)
		}
	}
}

// made is a reproduction with the published figures a fifth higher.
func made() *Result {
	r := &Result{Seed: "002", Jobs: 8, IODepth: 32, Size: 1 << 30, Seconds: 8, Content: "not verified", Rests: "What follows from <what>.", Costs: []CostLine{{"copy", "byte", 0.25, "a <source>"}}}
	for _, x := range [][3]string{{"lock", "locked", "calibrated on"}, {"unlocked", "unlocked", "predicted"}} {
		row := &Row{Name: x[0], Policy: x[1], Role: x[2], Published: seeds.Get("002").Row(x[0]).Published}
		p := &row.Published
		row.Simulated = seeds.Figures{IOPS: 1.2 * p.IOPS, Latency: &seeds.Latency{Min: p.Min, Mean: p.Mean, Stdev: p.Stdev, Max: p.Max}}
		for i, us := range p.Clat {
			f := 1.2
			if i%4 == 0 {
				f = 1.5
			}
			row.Simulated.Clat = append(row.Simulated.Clat, f*us)
			row.Ranks = append(row.Ranks, seeds.Percentiles[i])
		}
		r.Rows = append(r.Rows, row)
	}
	r.Ratio.Of, r.Ratio.To = "unlocked", "lock"
	r.Ratio.Published, r.Ratio.Simulated = 1.376, 1.376
	return r
}

// TestPage: the page begins with a sentence, draws the iops as bars with what was published, and
// for each row the published percentiles beside the simulated ones, says what they rest on, is well
// formed and needs nothing else.
func TestPage(t *testing.T) {
	var b bytes.Buffer
	r := made()
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if *keep != "" {
		if err := os.WriteFile(*keep, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"http://", "https://", "<script", "<link", "url(", "NaN", "Inf", "<what>", "<source>", "ZgotmplZ"} {
		if strings.Contains(strings.ReplaceAll(page, `xmlns="http://www.w3.org/2000/svg"`, ""), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	at := 0
	for _, want := range []string{"Published: unlocked does 1.376 times the iops of lock.", "Of the 17 published latency percentiles of unlocked, 12 are predicted within a quarter. This run is shorter than the published one, on a smaller file.",
		"lock simulated 82,164, published 68,470", `class="mark"`, "Diamonds: published", "Latency, lock: calibrated on", "<title>published</title>", "<title>simulated</title>",
		"Latency, unlocked: predicted", "unlocked, predicted: p50 published 652us, simulated 782us", "What it rests on", "What follows from", "<th scope=\"col\">published is our</th>", "prefers-color-scheme"} {
		i := strings.Index(page[at:], want)
		if want == "prefers-color-scheme" {
			i = strings.Index(page, want)
			at = 0
		}
		if i < 0 {
			t.Errorf("the page lacks %q, or has it too early", want)
			continue
		}
		at += i
	}
	if n := strings.Count(page, "<circle"); n != 2*2*len(seeds.Percentiles) {
		t.Errorf("%d points, want two for each percentile of both rows", n)
	}
	pagetest.WellFormedHTML(t, page)
}

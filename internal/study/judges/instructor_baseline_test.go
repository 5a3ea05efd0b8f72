package judges

import (
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/study/sandbox"
	"btrlab/labs/kit"
)

// TestBaselineStarter: lab 2's starter has a mistake in every function, and no points.
func TestBaselineStarter(t *testing.T) {
	for _, r := range Judge(starters[2], &sandbox.Run{}) {
		if r.Pass || r.Score != 0 || strings.Contains(r.Result, "not measured") {
			t.Errorf("%s: %v, %s", r.Name, r.Pass, r.Result)
		}
		t.Logf("%s: %s", r.Name, r.Result)
	}
}

// openly is a right Measure.
func openly(t *kit.Task, c *kit.Client) (l []int64) {
	for i := range c.Requests() {
		c.SleepUntil(t, c.Due(i))
		if c.Write(t, i); i >= c.Warmup() {
			l = append(l, c.Now(t)-c.Due(i))
		}
	}
	return l
}

// TestOpenLoop: right latencies pass, and each way to be spared the long write does not.
func TestOpenLoop(t *testing.T) {
	for _, tt := range []struct {
		name    string
		measure func(t *kit.Task, c *kit.Client) []int64
		want    string
	}{
		{"right", openly, "300 latencies; 83 requests began late"},
		{"one longer", func(t *kit.Task, c *kit.Client) []int64 { l := openly(t, c); l[299]++; return l }, "request 399 was due"},
		{"one too few", func(t *kit.Task, c *kit.Client) []int64 { return openly(t, c)[1:] }, "299 latencies"},
		{"slowly", func(t *kit.Task, c *kit.Client) []int64 {
			c.SleepUntil(t, c.Due(c.Requests()))
			return openly(t, c)
		}, "request 0 begins"},
		{"early", func(t *kit.Task, c *kit.Client) []int64 { c.Write(t, 0); return nil }, "request 0 before it is due"},
		{"twice", func(t *kit.Task, c *kit.Client) []int64 {
			c.SleepUntil(t, c.Due(0))
			c.Write(t, 0)
			c.Write(t, 0)
			return nil
		}, "of request 0, want 1"},
		{"in part", func(t *kit.Task, c *kit.Client) []int64 { return nil }, "after 0 of 400 requests"},
	} {
		ok, text, err := Baseline{Measure: tt.measure}.openLoop()
		if err != nil || ok != (tt.name == "right") || !strings.Contains(text, tt.want) {
			t.Errorf("%s: have %v %q %v want %q", tt.name, ok, text, err, tt.want)
		}
	}
}

// TestPredictions: the closed queue is within the bound of the engine, and each figure is asked
// for.
func TestPredictions(t *testing.T) {
	queue := func(alone, crowd kit.Profile, n int) kit.Prediction {
		cycle, hold := float64(alone.Elapsed)/float64(alone.Ops), float64(crowd.Elapsed)/float64(crowd.Ops)
		each := max(cycle, float64(n)*hold)
		return kit.Prediction{PerSecond: float64(n) * 1e9 / each, Wait: each - cycle, Waiting: float64(n) * (each - cycle) / each}
	}
	for want, wrong := range map[string]func(p *kit.Prediction){
		"":                      func(p *kit.Prediction) {},
		"writes a second":       func(p *kit.Prediction) { p.PerSecond *= 1.15 },
		"nanoseconds of a wait": func(p *kit.Prediction) { p.Wait += 7000 },
		"writers that wait":     func(p *kit.Prediction) { p.Waiting++ },
		"NaN":                   func(p *kit.Prediction) { p.Wait = math.NaN() },
	} {
		s := Baseline{Predict: func(a, c kit.Profile, n int) kit.Prediction { p := queue(a, c, n); wrong(&p); return p }}
		if ok, text, err := s.predictions(); err != nil || ok != (want == "") || !strings.Contains(text, want) {
			t.Errorf("have %v %q %v want %q", ok, text, err, want)
		}
	}
	for n := 7; n <= 9; n++ {
		s := Baseline{Enough: func(kit.Profile, kit.Profile) int { return n }}
		if ok, text, err := s.enough(); err != nil || ok != (n == 8) {
			t.Errorf("%d writers: %v %q %v", n, ok, text, err)
		}
	}
	s := Baseline{Enough: func(kit.Profile, kit.Profile) int { panic("so") }}
	if ok, text, err := calmly(s.enough)(); ok || text != "so" || err != nil {
		t.Errorf("a panic: %v %q %v", ok, text, err)
	}
}

// TestBins: a histogram as fio's is fine enough, one of half as many bins is not; bins are few, and
// in order.
func TestBins(t *testing.T) {
	fine := func(keep int) Baseline {
		return Baseline{
			Bin: func(ns int64) int {
				shift := max(0, bits.Len64(uint64(ns))-1-keep)
				return shift<<keep + int(ns>>shift)
			},
			Value: func(b int) int64 {
				shift := max(0, b>>keep-1)
				return int64(b-shift<<keep)<<shift + 1<<shift/2
			},
		}
	}
	back, many := fine(6), fine(7)
	back.Bin = func(ns int64) int { return 2000 - fine(6).Bin(ns) }
	back.Value = func(b int) int64 { return fine(6).Value(2000 - b) }
	for _, tt := range []struct {
		b    Baseline
		want string
	}{{fine(6), ""}, {fine(5), "want 1/128"}, {many, "want 0 to 2047"}, {back, "of a smaller latency"}} {
		if have := tt.b.histogram(); have == "" != (tt.want == "") || !strings.Contains(have, tt.want) {
			t.Errorf("have %q want %q", have, tt.want)
		}
	}
}

// TestSummaries: what is right is the nearest rank of all latencies together; each figure is asked
// for.
func TestSummaries(t *testing.T) {
	right := func(writers [][]int64, elapsed int64) kit.Summary {
		l := slices.Concat(writers...)
		slices.Sort(l)
		sum := 0.0
		for _, ns := range l {
			sum += float64(ns)
		}
		n := len(l)
		return kit.Summary{Ops: n, PerSecond: float64(n) * 1e9 / float64(elapsed), Mean: sum / float64(n),
			P50: l[int(math.Ceil(0.5*float64(n)))-1], P99: l[int(math.Ceil(0.99*float64(n)))-1]}
	}
	for want, wrong := range map[string]func(s *kit.Summary){
		"":          func(s *kit.Summary) {},
		"Ops":       func(s *kit.Summary) { s.Ops++ },
		"PerSecond": func(s *kit.Summary) { s.PerSecond *= 1.01 },
		"Mean is":   func(s *kit.Summary) { s.Mean = math.NaN() },
		"P50":       func(s *kit.Summary) { s.P50 = s.P99 + 1 },
		"P99":       func(s *kit.Summary) { s.P99++ },
	} {
		b := Baseline{Summarize: func(w [][]int64, elapsed int64) kit.Summary { s := right(w, elapsed); wrong(&s); return s }}
		if have := b.summaries(); have == "" != (want == "") || !strings.Contains(have, want) {
			t.Errorf("have %q want %q", have, want)
		}
	}
}

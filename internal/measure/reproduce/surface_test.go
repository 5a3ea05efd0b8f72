package reproduce_test

import (
	"bytes"
	"encoding/json"
	"image/png"
	"math"
	"strings"
	"testing"

	"btrlab/internal/measure/reproduce"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/testing/need"
)

// small is seed 000 with a surface of few points on a small file.
func small() *seeds.Seed {
	s := *seeds.Get("000")
	x := *s.Study.Surface
	x.X.Values, x.Y.Values, x.Seconds, x.Size = []float64{0, 30}, []float64{0}, 0.3, 1<<30
	x.Panels = []seeds.Panel{x.Panels[0], x.Panels[2]}
	s.Study.Surface = &x
	return &s
}

// A surface fits the row that is compared with at each point, so that only the gain differs; it is
// the same bytes each time, and the place of the published gain lies between the two points around
// it. The dials get to the device: a share of the time that grows with the size changes the gain,
// and a rate that all share takes it away.
func TestSurface(t *testing.T) {
	need.Long(t)
	seed := small()
	o := reproduce.Options{Calibration: seed.Study.Calibration}
	s, err := reproduce.Map(seed, o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := reproduce.Map(seed, o)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(s)
	if b, _ := json.Marshal(again); !bytes.Equal(a, b) {
		t.Errorf("two runs differ:\n%s\n%s", a, b)
	}
	if len(s.Panels) != 2 || len(s.Panels[0].Points) != 1 || len(s.Panels[0].Points[0]) != 2 || s.Want != 1.07 || s.Knob != "device_slower" {
		t.Fatalf("%s", a)
	}
	for _, p := range s.Panels {
		for _, line := range p.Points {
			for _, q := range line {
				if math.Abs(q.Misfit) > 0.05 || q.Runs < 1 || q.Ratio <= 0 {
					t.Errorf("%s: %+v, want a row that is met within 5 %%", p.Name, q)
				}
			}
		}
	}
	any, shared := s.Panels[0].Points[0], s.Panels[1].Points[0]
	if any[1].Ratio < any[0].Ratio+0.05 || shared[1].Ratio > 1+(any[1].Ratio-1)/2 {
		t.Errorf("gains %.3f at 0 %% and %.3f at 30 %%, with a shared rate %.3f; want more, and less than half of that", any[0].Ratio, any[1].Ratio, shared[1].Ratio)
	}
	text, page := written(t, s, "published gain", "device_slower is fitted to row before")
	if !strings.Contains(text, "Across: share of") || strings.Count(page, "<table>") != 4 {
		t.Errorf("not said what lies where:\n%s", text)
	}
	p, err := s.PNG()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := png.DecodeConfig(bytes.NewReader(p)); err != nil || c.Width < 500 {
		t.Errorf("no picture: %+v, %v", c, err)
	}
}

// The published gain is where a straight line between two points has it, and nowhere if no two
// points lie around it.
func TestSurfaceAt(t *testing.T) {
	point := func(x, ratio float64) *reproduce.Point { return &reproduce.Point{X: x, Ratio: ratio} }
	s := &reproduce.Surface{Seed: "000", X: "x", Y: "y", Want: 1.07, Panels: []*reproduce.Panel{{Points: [][]*reproduce.Point{
		{point(0, 1.01), point(10, 1.05), point(20, 1.09)}, {point(0, 1.01), point(10, 1.02), point(20, 1.03)}}}}}
	table := s.Table(s.Panels[0])
	if have := table[1][4]; have != "15" {
		t.Errorf("have %s want 15", have)
	}
	if have := table[2][4]; have != "nowhere" {
		t.Errorf("have %s want nowhere", have)
	}
	if have := strings.Join(table[1], " "); have != "0 1.0 5.0 9.0 15" {
		t.Errorf("have %q", have)
	}
}

// The place on the axis of what is known is told with where it is known from.
func TestSurfaceKnown(t *testing.T) {
	for _, s := range seeds.All() {
		if x := s.Study.Surface; x != nil {
			for _, k := range x.Known {
				if k.Name == "" || k.From == "" || k.X < x.X.Values[0] || k.X > 100 {
					t.Errorf("seed %s: %+v", s.Name, k)
				}
			}
		}
	}
}

// A leaf that is small sooner is met more often in the log: the dial of seed 003 gets to the trees.
func TestSurfaceSmallLeaf(t *testing.T) {
	need.Long(t)
	s := *seeds.Get("003")
	x := *s.Study.Surface
	x.X.Values, x.Y.Values, x.Seconds, x.Size = []float64{33, 100}, []float64{1, 38}, 0.6, 64<<20
	s.Study.Surface = &x
	r, err := reproduce.Map(&s, reproduce.Options{Calibration: s.Study.Calibration})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range r.Panels[0].Points {
		if line[1].Small <= line[0].Small || line[1].Small == 0 {
			t.Errorf("small leaves met by an fsync: %.4f below a third, %.4f at any deletion, want more", line[0].Small, line[1].Small)
		}
	}
	if a, b := r.Panels[0].Points[0][0], r.Panels[0].Points[1][0]; a.Knob <= b.Knob {
		t.Errorf("device_slower %.3g with blocks of 1 us, %.3g with 38 us, want a slower device for cheaper blocks", a.Knob, b.Knob)
	}
	written(t, r, "How many small leaves of its log an fsync met")
}

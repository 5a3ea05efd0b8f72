package nb

import (
	"bytes"
	"image/png"
	"strings"
	"testing"

	"btrlab/internal/testing/need"
)

func TestExploreAndReplay(t *testing.T) {
	e, err := Explore("truncate-race", "unlocked")
	if err != nil {
		t.Fatal(err)
	}
	if e.Kept() || e.Schedule == "" || e.Preemptions != 1 {
		t.Fatalf("truncate-race under unlocked: %+v, want a violation with one preemption", e)
	}
	l, err := Replay("truncate-race", e.Schedule, "unlocked")
	if err != nil {
		t.Fatal(err)
	}
	if l.Kept() || l.Violation() == "" || l.Steps() < 20 {
		t.Errorf("replay of %s: kept %v, %d steps, %q", e.Schedule, l.Kept(), l.Steps(), l.Violation())
	}
	if text := l.Text(); !strings.Contains(text, "change i_size") || !strings.Contains(text, "1 truncate") {
		t.Errorf("timeline lacks its columns:\n%s", text)
	}
	if h := l.HTML(); !strings.HasPrefix(h, "<iframe ") || strings.Count(h, "<") != 2 || !strings.Contains(h, "&lt;svg") {
		t.Error("the page is not escaped inside its frame")
	}
	if r := l.SimpleRender(); r["text/html"] == "" || r["text/plain"] != l.Text() {
		t.Errorf("shows %v", r["text/plain"])
	}
	if e, err = Explore("truncate-race", "unlocked-drain"); err != nil || e.Verdict != "exhausted" || !strings.Contains(e.Table().String(), e.Bound) {
		t.Errorf("truncate-race under unlocked-drain: %+v, %v, want exhausted", e, err)
	}
	if _, err := Explore("no such", "locked"); err == nil {
		t.Error("an unknown scenario was explored")
	}
	if _, err := Replay("truncate-race", "200:1", "locked"); err == nil {
		t.Error("a schedule that does not fit was replayed")
	}
}

func TestMatrix(t *testing.T) {
	m, err := Matrix([]string{"truncate-race"}, []string{"locked", "unlocked"})
	if err != nil || len(m.Rows) != 1 || m.Rows[0][1] != "kept" || m.Rows[0][2] != "broken" {
		t.Errorf("matrix %v, %v", m.Rows, err)
	}
	all, err := Scenarios()
	two, err2 := Scenarios("stable-pages", "truncate-race")
	if _, bad := Scenarios("none"); err != nil || err2 != nil || bad == nil || len(all.Rows) < 10 || len(two.Rows) != 2 || two.Rows[0][0] != "stable-pages" {
		t.Errorf("%d scenarios, %v; of two names %v, %v; of none %v", len(all.Rows), err, two.Rows, err2, bad)
	}
	all, err = Policies()
	two, err2 = Policies("bounce", "nowait-4.13")
	if _, bad := Policies("none"); err != nil || err2 != nil || bad == nil || len(all.Rows) < 6 || len(two.Rows) != 2 || two.Rows[0][0] != "bounce" {
		t.Errorf("%d policies, %v; of two names %v, %v; of none %v", len(all.Rows), err, two.Rows, err2, bad)
	}
}

func TestPreempt(t *testing.T) {
	w, err := Preempt("truncate-race", "unlocked", 1)
	if err != nil {
		t.Fatal(err)
	}
	if n := w.Broken(); n == 0 || n == len(w.Table().Rows) {
		t.Errorf("%d of %d preemptions violate, want some", n, len(w.Table().Rows))
	}
	picture(t, w.Plot)
	for i, s := range w.Schedules() {
		if l, err := Replay("truncate-race", s, "unlocked"); err != nil || l.Kept() == w.steps[i].broken {
			t.Errorf("schedule %s: %v, not as the window says", s, err)
		}
	}
	if w, err = Preempt("truncate-race", "unlocked-drain", 1); err != nil || w.Broken() != 0 {
		t.Errorf("unlocked-drain: %v, %d violations", err, w.Broken())
	}
	picture(t, w.Plot)
	if _, err := Preempt("truncate-race", "locked", 2); err == nil {
		t.Error("a task that is not there was preferred")
	}
}

// TestScale: virtual time says the same twice, and disjoint writes scale with a range lock only.
func TestScale(t *testing.T) {
	o := Options{Policies: []string{"locked", "range-lock"}, Rounds: 1, Seconds: 0.005, FileMiB: 16, DirtyMiB: 512, Set: []string{"bs=64k"}}
	var tables [2]string
	for i := range tables {
		s, err := Scale(o, []int{1, 8})
		if err != nil {
			t.Fatal(err)
		}
		if !s.OK() || s.Ratio("range-lock") < 3 || s.Ratio("locked") != 1 {
			t.Errorf("ok %v, ratios %.2f and %.2f", s.OK(), s.Ratio("range-lock"), s.Ratio("locked"))
		}
		tables[i] = s.Table().String()
		if i == 0 {
			picture(t, s.Plot)
		}
	}
	if tables[0] != tables[1] {
		t.Errorf("not the same twice:\n%s\n%s", tables[0], tables[1])
	}
	for _, cpus := range [][]int{nil, {0}, {MaxCPUs + 1}} {
		if _, err := Scale(o, cpus); err == nil {
			t.Errorf("Scale on %v CPUs ran, want an error", cpus)
		}
	}
}

func TestReproduce(t *testing.T) {
	for _, s := range []float64{0, MaxVirtual + 1} {
		if _, err := Reproduce(s); err == nil {
			t.Errorf("Reproduce(%g) ran, want an error", s)
		}
	}
	r, err := Reproduce(0.01)
	if err != nil || len(r.Rows) != 7 || r.Rows[0][1] != "68,470" {
		t.Errorf("%v, %v", r.Rows, err)
	}
}

func picture(t *testing.T, draw func() (Figure, error)) {
	t.Helper()
	f, err := draw()
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(f.PNG))
	if err != nil || img.Bounds().Dx() < 400 || f.Alt == "" {
		t.Errorf("picture %v, %q", err, f.Alt)
	}
}

// A surface has the gain at each point, more where more of a request's time grows with its size,
// and a picture; what it is not for is refused.
func TestSurface(t *testing.T) {
	need.Long(t)
	for _, bad := range [][2][]float64{{{0}, {0, 1}}, {{0, 91}, {0, 1}}, {{0, 10}, {0, 3}}, {make([]float64, 16), {0, 1}}} {
		if _, err := Surface(bad[0], bad[1]); err == nil {
			t.Errorf("Surface(%v, %v) ran, want an error", bad[0], bad[1])
		}
	}
	s, err := Surface([]float64{0, 30}, []float64{0, 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if s.Gain(1, 0) < s.Gain(0, 0)+5 || len(s.Table().Rows) != 2 || len(s.Table().Head) != 4 {
		t.Errorf("gains %.1f and %.1f, table %v", s.Gain(0, 0), s.Gain(1, 0), s.Table())
	}
	picture(t, s.Plot)
}

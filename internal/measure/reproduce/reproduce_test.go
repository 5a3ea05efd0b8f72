package reproduce_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/measure/reproduce"
	"btrlab/internal/measure/seeds"
	"btrlab/internal/testing/need"
)

var seed002 = seeds.Get("002")

// published is seed 002 with other published figures, of the locked row and of the unlocked.
func published(lock, unlocked seeds.Figures) *seeds.Seed {
	s := *seed002
	s.Rows = slices.Clone(s.Rows)
	s.Rows[0].Published, s.Rows[1].Published = lock, unlocked
	return &s
}

// A reproduction is a function of its options: a hundred runs, on one and on two processors, give
// the same JSON to the last byte. Noise and garbage collection are random numbers of a seed;
// another seed gives other bytes.
func TestSameBytes(t *testing.T) {
	need.Long(t)
	n := 100
	if testing.Short() {
		n = 20
	}
	run := func(procs int, seed uint64) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		o := reproduce.Options{Calibration: seed002.Study.Calibration, Seconds: 0.004, Size: 1 << 20}
		o.Calibration.Seed = seed
		r, err := reproduce.Run(seed002, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			if row.Writes == 0 || row.Stats.Hits == 0 {
				t.Fatalf("%s: %d writes, %d hits of noise: nothing that could differ", row.Name, row.Writes, row.Stats.Hits)
			}
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	want := run(1, 1)
	for i := 1; i < n; i++ {
		if have := run(1+i%2, 1); !bytes.Equal(have, want) {
			t.Fatalf("run %d:\n%s\nthe first:\n%s", i, have, want)
		}
	}
	if bytes.Equal(run(1, 2), want) {
		t.Error("another seed, the same bytes")
	}
}

// The calibration looks at the lock row alone: what is fitted to the row that it is to predict
// predicts nothing. So it simulates policy locked, compares with the published lock row, and is
// content when that row is what was simulated, whatever the other one says. The misfit that a
// reproduction reports is the same figure.
func TestCalibratedOnLockAlone(t *testing.T) {
	o := reproduce.Options{Calibration: seed002.Study.Calibration, Seconds: 0.004, Size: 1 << 20}
	run := func(seed *seeds.Seed) *reproduce.Result {
		r, err := reproduce.Run(seed, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	// first returns the fit's first line: on the parameters that it begins with.
	first := func(seed *seeds.Seed) (text string) {
		_, err := reproduce.Fit(seed, o, 0, func(s string) {
			if text == "" {
				text = s
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	r := run(seed002)
	lock, unlocked := r.Rows[0], r.Rows[1]
	if lock.Policy != "locked" || unlocked.Policy != "unlocked" || lock.Simulated.IOPS == unlocked.Simulated.IOPS {
		t.Fatalf("rows %s and %s with %v and %v iops: nothing to tell apart", lock.Policy, unlocked.Policy, lock.Simulated.IOPS, unlocked.Simulated.IOPS)
	}
	want := fmt.Sprintf("iops %.0f, mean %.0fus, ", lock.Simulated.IOPS, lock.Simulated.Mean)
	if text := first(seed002); !strings.Contains(text, want) || !strings.HasPrefix(text, fmt.Sprintf("misfit %.3f:", *r.Misfit)) {
		t.Errorf("the fit simulated %q, want the lock row, %q, and the misfit that is reported, %.3f", text, want, *r.Misfit)
	}
	exact := lock.Simulated
	exact.Latency = new(seeds.Latency)
	*exact.Latency = *lock.Simulated.Latency
	exact.Clat = slices.Clone(exact.Clat)
	for i := range exact.Clat {
		exact.Clat[i] = max(exact.Clat[i], 1e-3) // a percentile of no time at all has no ratio
	}
	seed := published(exact, unlocked.Published)
	if text, again := first(seed), run(seed); !strings.HasPrefix(text, "misfit 0.000:") || *again.Misfit != 0 {
		t.Errorf("the published lock row is what was simulated: the fit says %q, the report %v, want 0", text, *again.Misfit)
	}
	seed = published(lock.Published, lock.Simulated)
	if text, again := first(seed), run(seed); !strings.HasPrefix(text, fmt.Sprintf("misfit %.3f:", *r.Misfit)) || *again.Misfit != *r.Misfit {
		t.Errorf("another unlocked row is published: the fit says %q, the report %v, want %.3f as before", text, *again.Misfit, *r.Misfit)
	}
}

// A latency's rank is the share of the simulated requests that took no longer: of a row's own
// percentiles it is what they are named, and of a latency between two of them it is between theirs.
func TestRanks(t *testing.T) {
	o := reproduce.Options{Calibration: seed002.Study.Calibration, Seconds: 0.02, Size: 1 << 20}
	run := func(seed *seeds.Seed) *reproduce.Result {
		r, err := reproduce.Run(seed, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	own := run(seed002).Rows
	r := run(published(own[0].Simulated, own[1].Simulated))
	for _, row := range r.Rows[:2] {
		for i, q := range seeds.Percentiles {
			next := 100.0 // the bin of a percentile may be another one's, too
			for k, v := range row.Simulated.Clat[i:] {
				if v > row.Simulated.Clat[i]*65/64 {
					next = seeds.Percentiles[i+k]
					break
				}
			}
			if have := row.Ranks[i]; have < q-0.05 || have > next {
				t.Errorf("%s: p%g has rank %v, want that or a little more, at most %v", row.Name, q, have, next)
			}
		}
	}
	text, page := written(t, r)
	p70 := fmt.Sprintf("%.1f", r.Rows[1].Ranks[8])
	_, table, _ := strings.Cut(text, "Which percentile of ours")
	if !strings.Contains(table, "  "+p70+"  ") || !strings.Contains(page, "<td>p"+p70) {
		t.Errorf("no rank %s of p70 in\n%s\n%s", p70, text, page)
	}
}

// Every knob of the fit and every other choice is in the table, moved both ways or to its
// alternative; the runs are made in parallel and the table is the same every time. A change that
// moves nothing anywhere does not get to the machine.
func TestSensitivity(t *testing.T) {
	need.Long(t)
	o := reproduce.Options{Calibration: seed002.Study.Calibration, Seconds: 0.02, Warm: 0.01, Size: 4 << 20}
	run := func() (*reproduce.Sensitivity, string) {
		s, err := reproduce.Sense(o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return s, string(b)
	}
	s, a := run()
	if _, b := run(); a != b {
		t.Errorf("not the same twice:\n%s\n%s", a, b)
	}
	seen := map[string]int{}
	moved, tails := 0, 0
	for _, e := range s.Effects {
		seen[e.Name]++
		if e.Error != "" {
			t.Errorf("%s %s: %s", e.Name, e.Change, e.Error)
		}
		if e.Lock != 0 || e.Unlocked != 0 {
			moved++
		}
		if e.P99.Lock != 0 || e.P99.Unlocked != 0 {
			tails++
		}
	}
	for name, n := range map[string]int{"cpu_factor": 2, "idle_exit_ns": 2, "noise_wake_sigma": 2, "noise_per_sec": 2, "device_depth": 2, "gc_bytes": 2,
		"gc_max_ms": 2, "interrupt_ns": 2, "device write time": 2, "dirty limits": 2, "thread of the array": 2, "calls of the io tree": 2, "cached calls": 2, "SMT slowdown": 2, "lock handoff": 1, "completions": 2, "lock spinning": 1, "garbage collection": 1, "RAID": 1} {
		if seen[name] != n {
			t.Errorf("%s: have %d lines want %d", name, seen[name], n)
		}
	}
	for name, lines := range map[string]int{"calls of the io tree": 2, "cached calls": 2, "submission": 2, "plug, stripe cache": 1} {
		o.Choice = name
		one, _ := run()
		if len(one.Effects) != lines || one.Lock != s.Lock || one.Unlocked != s.Unlocked {
			t.Errorf("%s: %d lines, the rows as calibrated at %v and %v; want %d, %v, %v", name, len(one.Effects), one.Lock, one.Unlocked, lines, s.Lock, s.Unlocked)
			continue
		}
		for _, e := range one.Effects {
			if e.Name != name || !slices.Contains(s.Effects, e) {
				t.Errorf("%s: %+v, which is not in the whole table", name, e)
			}
			if e.Lock == 0 && e.Unlocked == 0 {
				t.Errorf("%+v moves neither row: the choice does not get to the machine", e)
			}
		}
	}
	if tails < len(s.Effects)/4 || s.P99.Lock <= 0 || s.P99.Unlocked <= 0 {
		t.Errorf("%d of %d changes moved a p99, of %+v", tails, len(s.Effects), s.P99)
	}
	if moved < len(s.Effects)/3 {
		t.Errorf("%d of %d changes moved a row: the changes do not get to the machine", moved, len(s.Effects))
	}
	var out strings.Builder
	if err := s.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), "three things were chosen for the published unlocked row") {
		t.Errorf("nothing of what the prediction rests on in\n%s", out.String())
	}
	columns(t, out.String())
}

// The fit of several knobs finds its way back: the published lock row is what the calibration
// simulates, and a fit that begins with three knobs elsewhere comes closer to it.
// Of a smaller file too few pages may be dirty for the knobs to show.
func TestFitSeveral(t *testing.T) {
	o := reproduce.Options{Calibration: seed002.Study.Calibration, Seconds: 0.05, Size: 64 << 20}
	r, err := reproduce.Run(seed002, o)
	if err != nil {
		t.Fatal(err)
	}
	seed := published(r.Rows[0].Simulated, r.Rows[1].Simulated)
	o.Calibration.CPU *= 1.6
	o.Calibration.IdleExitNs *= 2
	o.Calibration.NoiseWake *= 2
	var told []string
	if _, err := reproduce.Fit(seed, o, 60, func(s string) { told = append(told, s) }); err != nil {
		t.Fatal(err)
	}
	misfit := func(line string) (m float64) {
		if _, err := fmt.Sscanf(line, "misfit %f:", &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	from, to := misfit(told[0]), misfit(told[len(told)-1])
	t.Logf("misfit %.3f to %.3f in %d improvements", from, to, len(told)-1)
	if to > from/3 {
		t.Errorf("misfit %.3f after the fit, %.3f before, want a third at most", to, from)
	}
}

// Rows are run alone, each with the one that it is compared with, and have the figures that they
// have among all.
func TestOnly(t *testing.T) {
	for _, c := range []struct {
		seed  string
		only  []string
		rows  string
		ratio [2]string
	}{
		{"005", []string{"random 2 after"}, "random 2 before, random 2 after", [2]string{"random 2 after", "random 2 before"}},
		{"005", []string{"random 2 before", "sequential 4 after"}, "sequential 4 before, sequential 4 after, random 2 before, random 2 after", [2]string{"random 2 after", "random 2 before"}},
		{"002", []string{"lock"}, "lock, unlocked", [2]string{"unlocked", "lock"}},
		{"002", []string{"drain first"}, "lock, unlocked, drain first", [2]string{"unlocked", "lock"}},
		{"002", nil, strings.Join(seeds.Get("002").RowNames(), ", "), [2]string{"unlocked", "lock"}},
	} {
		seed := reproduce.Only(seeds.Get(c.seed), c.only)
		if got := strings.Join(seed.RowNames(), ", "); got != c.rows || seed.Ratio != c.ratio {
			t.Errorf("seed %s, only %q: rows %s, ratio %q, want %s, %q", c.seed, c.only, got, seed.Ratio, c.rows, c.ratio)
		}
		if names := seeds.Get(c.seed).RowNames(); slices.Contains(names, "") {
			t.Fatalf("seed %s, only %q: the seed itself has lost rows: %q", c.seed, c.only, names)
		}
	}
	seed := seeds.Get("005")
	all, err := reproduce.Run(seed, reproduce.Options{Calibration: seed.Study.Calibration, Size: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	alone, err := reproduce.Run(reproduce.Only(seed, []string{"random 2 after"}), reproduce.Options{Calibration: seed.Study.Calibration, Size: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range alone.Rows {
		i := slices.IndexFunc(all.Rows, func(r *reproduce.Row) bool { return r.Name == x.Name })
		if x.Simulated.Write != all.Rows[i].Simulated.Write || x.Simulated.Write == 0 {
			t.Errorf("%s alone: %g MiB/s, among all %g", x.Name, x.Simulated.Write, all.Rows[i].Simulated.Write)
		}
	}
	text, _ := written(t, alone, "random 2 after")
	if strings.Contains(text, "NaN") || strings.Contains(text, "row role") {
		t.Errorf("rows without published figures:\n%s", text)
	}
}

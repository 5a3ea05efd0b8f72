package experiment

import (
	"strings"
	"testing"

	"btrlab/internal/measure/stats"
)

// rounds makes a row of which each round did so much.
func rounds(name string, iops ...float64) *Row {
	return &Row{Policy: name, IOPS: stats.Median(iops), RoundIOPS: iops}
}

// result compares rows with the first.
func result(rows ...*Row) *Result {
	base := rows[0]
	for _, row := range rows {
		row.Versus = stats.Compare(row.RoundIOPS, base.RoundIOPS)
	}
	return &Result{Baseline: base.Policy, Rows: rows, Runtime: 10}
}

// A sentence says no more than the rounds do.
func TestConclusion(t *testing.T) {
	locked := func() *Row { return rounds("locked", 100, 102, 98, 100) }
	for _, c := range []struct {
		rows []*Row
		want string
	}{
		{[]*Row{locked()}, ""},
		{[]*Row{locked(), rounds("unlocked", 150, 153, 147, 151)}, "unlocked does 1.50 times the iops of locked (95 % confidence 1.49 to 1.51). One request in a hundred takes "},
		{[]*Row{locked(), rounds("unlocked", 150, 153, 147, 151), rounds("prewait", 152, 150, 149, 148)},
			"unlocked does 1.50 times the iops of locked (95 % confidence 1.49 to 1.51). Beside it prewait cannot be told from it"},
		{[]*Row{locked(), rounds("prewait", 90, 120, 105, 95)}, "Nothing is faster than locked beyond the spread of the rounds: prewait has 1.01 (95 % confidence 0.84 to 1.23). " +
			"If that is so, some "},
		{[]*Row{locked(), rounds("same", 100, 102, 98, 100.001)}, "Nothing is faster than locked beyond the spread of the rounds: same has 1.00 (95 % confidence 1.00 to 1.00). " +
			"If that is so, some "},
		{[]*Row{rounds("locked", 100), rounds("unlocked", 150)}, "unlocked did the most: 1.50 times the iops of locked. One round says nothing of the spread."},
	} {
		if have := result(c.rows...).Conclusion(); !strings.HasPrefix(have, c.want) || c.want == "" && have != "" {
			t.Errorf("have %q\nwant %q", have, c.want)
		}
	}
	for _, c := range []struct {
		a, b []float64
		want string
	}{
		{[]float64{107, 108, 107}, []float64{100, 100, 100}, "after does 1.07 times the iops of before (95 % confidence 1.06 to 1.09); 1.07 was published."},
		{[]float64{87, 119, 101}, []float64{100, 100, 100}, "after does 1.01 times the iops of before (95 % confidence 0.69 to 1.50), which may be no difference at all; " +
			"1.07 was published. If that is so, some "},
		{[]float64{87}, []float64{100}, "after does 0.87 times the iops of before; one round says nothing of the spread; 1.07 was published."},
	} {
		p := PairRatio{Row: "after", To: "before", Published: 1.07, Versus: stats.Compare(c.a, c.b)}
		if have := (&Result{Pairs: []PairRatio{p}}).Conclusion(); !strings.HasPrefix(have, c.want) {
			t.Errorf("have %q\nwant %q", have, c.want)
		}
	}
}

// What makes figures worth less is said, once each, of the row where it is worst; and nothing of a
// comparison that is sound.
func TestNotes(t *testing.T) {
	sound := result(rounds("locked", 100, 101), rounds("unlocked", 150, 151))
	if n := sound.Notes(); len(n) > 0 {
		t.Errorf("of a sound comparison: %q", n)
	}
	r := result(rounds("locked", 100, 170), rounds("unlocked", 150, 310))
	r.Runtime, r.Pass = 0.1, 0.25
	r.Rows[0].Clat.Max, r.Rows[1].Clat.Max = 50e6, 200e6
	n := r.Notes()
	for i, want := range []string{"A request of unlocked took 200", "The fastest round of unlocked did 2.1 times its slowest", "moves 25 % of its files"} {
		if len(n) != 3 || !strings.Contains(n[i], want) {
			t.Errorf("note %d of %q, want %q", i, n, want)
		}
	}
	r.Runtime = 0 // runs that end with the work
	if n := r.Notes(); len(n) != 2 {
		t.Errorf("without a time: %q", n)
	}
}

// An image that is too small for a job is named: its writers wait for room, not for each other.
func TestNotesOfRoom(t *testing.T) {
	r := result(rounds("locked", 100, 101), rounds("unlocked", 100, 101))
	r.Rows[1].Waits = map[string]float64{roomWait: 0.09}
	if n := r.Notes(); len(n) > 0 {
		t.Errorf("of a short wait: %q", n)
	}
	r.Rows[1].Waits[roomWait] = 0.8
	if n := r.Notes(); len(n) != 1 || !strings.Contains(n[0], "of unlocked waited for room for 80 %") {
		t.Errorf("of a long wait: %q", n)
	}
}

// A run in virtual time is not told that its machine is busy.
func TestNotesOfVirtualTime(t *testing.T) {
	r := &Result{Rows: []*Row{rounds("locked", 100, 300)}, Runtime: 10}
	for virtual, want := range map[bool]string{false: "this machine is busy", true: "a run is too short"} {
		if r.Virtual = virtual; len(r.Notes()) != 1 || !strings.Contains(r.Notes()[0], want) {
			t.Errorf("virtual %v: have %q want %q", virtual, r.Notes(), want)
		}
	}
}

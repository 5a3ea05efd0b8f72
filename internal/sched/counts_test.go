package sched

import "testing"

// TestCounts: a task counts for whoever asks, and for nobody else; the counters have names, for
// results.
func TestCounts(t *testing.T) {
	k := NewTask("k")
	k.Count(CountSearches)
	var a, b Counts
	k.Counts = &a
	k.Count(CountPaths)
	k.Count(CountPaths)
	k.Counts = &b
	k.Count(CountMayBlock)
	k.Counts = nil
	k.Count(CountPaths)
	a.Again[3], b.Again[3], b.Again[31] = 1, 2, 4
	a.Add(&b)
	if want := [Counters]int64{CountPaths: 2, CountMayBlock: 1}; a.N != want || a.Again[3] != 3 || a.Again[31] != 4 || a.Punts() != 7 {
		t.Errorf("have %v, %v", a.N, a.Again)
	}
	seen := map[string]bool{}
	for c := range Counters {
		if seen[c.String()] || c.String() == "" {
			t.Errorf("counter %d is called %q", c, c)
		}
		seen[c.String()] = true
	}
}

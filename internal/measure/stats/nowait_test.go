package stats

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// TestNowait: the costs of two tasks add up, a job without such requests has none, and the report
// has them as fio's JSON has the rest.
func TestNowait(t *testing.T) {
	a, b := NewNowait(), NewNowait()
	a.Costs["tree_searches"], b.Costs["tree_searches"] = 3, 4
	a.Again["lock_extent: busy"], b.Again["place: several"], b.Again["lock_extent: busy"] = 1, 5, 1
	b.Slept["stable_page in prepare_pages"] = 2
	a.Tried, b.Tried = 8, 20
	j, k := &Job{Tasks: 1, Nowait: a}, &Job{Tasks: 1, Nowait: b}
	j.Merge(k)
	j.Merge(&Job{})
	if n := j.Nowait; n.Costs["tree_searches"] != 7 || n.Again["lock_extent: busy"] != 2 || n.Slept["stable_page in prepare_pages"] != 2 {
		t.Errorf("have %v", *n)
	}
	if n := j.Nowait; n.Tried != 28 || n.Each("tree_searches") != 0.25 || n.Each("none") != 0 || n.Punted() != 0.25 || n.SleepsEach() != 2./28 {
		t.Errorf("of %d requests each: %g searches, %g EAGAIN, %g sleeps; want 28, 0.25, 0.25, 0.0714", n.Tried, n.Each("tree_searches"), n.Punted(), n.SleepsEach())
	}
	if n := NewNowait(); n.Each("tree_searches") != 0 {
		t.Error("no request has a cost")
	}
	if have, want := Most(j.Nowait.Again), []string{"place: several", "lock_extent: busy"}; !slices.Equal(have, want) {
		t.Errorf("have %v want %v", have, want)
	}
	if MergeNowait(nil, nil) != nil {
		t.Error("two jobs without NOWAIT requests have some together")
	}
	var out bytes.Buffer
	if err := (&Run{Jobs: []*Job{j}}).WriteJSON(&out, false); err != nil {
		t.Fatal(err)
	}
	var report struct {
		Jobs []struct {
			Nowait Nowait `json:"nowait"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || len(report.Jobs) != 1 || report.Jobs[0].Nowait.Costs["tree_searches"] != 7 || report.Jobs[0].Nowait.Tried != 28 {
		t.Errorf("%v: %s", err, out.String())
	}
}

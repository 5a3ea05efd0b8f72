package stats

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// TestNowait: the costs of two tasks add up, a job without such requests has none, and the report has them as fio's JSON has the rest.
func TestNowait(t *testing.T) {
	a, b := NewNowait(), NewNowait()
	a.Costs["tree_searches"], b.Costs["tree_searches"] = 3, 4
	a.Again["lock_extent: busy"], b.Again["place: several"], b.Again["lock_extent: busy"] = 1, 5, 1
	b.Slept["stable_page in prepare_pages"] = 2
	j, k := &Job{Tasks: 1, Nowait: a}, &Job{Tasks: 1, Nowait: b}
	j.Merge(k)
	j.Merge(&Job{})
	if n := j.Nowait; n.Costs["tree_searches"] != 7 || n.Again["lock_extent: busy"] != 2 || n.Slept["stable_page in prepare_pages"] != 2 {
		t.Errorf("have %v", *n)
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
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || len(report.Jobs) != 1 || report.Jobs[0].Nowait.Costs["tree_searches"] != 7 {
		t.Errorf("%v: %s", err, out.String())
	}
}

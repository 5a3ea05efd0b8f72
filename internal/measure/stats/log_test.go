package stats

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestLog: the costs of the fsyncs of two tasks add up, by counter and by level, and the report has
// them as it has those of NOWAIT.
func TestLog(t *testing.T) {
	one := func() *Log {
		return &Log{Fsyncs: 2, Costs: map[string]int64{"log_bytes": 100}, Steps: [8]int64{6, 4}, HeldNs: [8]int64{50, 30}}
	}
	j := &Job{Tasks: 1, Log: one()}
	j.Merge(&Job{Tasks: 1, Log: one()})
	j.Merge(&Job{Tasks: 1})
	if l := j.Log; l.Fsyncs != 4 || l.Each("log_bytes") != 50 || l.StepsEach(0) != 3 || l.StepsEach(1) != 2 || l.HeldEach(1) != 15 {
		t.Errorf("have %+v", *l)
	}
	if MergeLog(nil, nil) != nil {
		t.Error("nothing and nothing is something")
	}
	var out bytes.Buffer
	r := &Run{Jobs: []*Job{j}}
	if err := r.WriteJSON(&out, false); err != nil {
		t.Fatal(err)
	}
	var report struct {
		Jobs []struct {
			Log struct {
				Fsyncs int64            `json:"fsyncs"`
				Costs  map[string]int64 `json:"costs"`
				Steps  map[string]int64 `json:"steps_held"`
				Held   map[string]int64 `json:"held_ns"`
			} `json:"log"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || len(report.Jobs) != 1 {
		t.Fatalf("%v, %d jobs", err, len(report.Jobs))
	}
	l := report.Jobs[0].Log
	if l.Fsyncs != 4 || l.Costs["log_bytes"] != 200 || l.Steps["level_1"] != 8 || l.Held["level_0"] != 100 || len(l.Steps) != 2 {
		t.Errorf("have %+v", l)
	}
}

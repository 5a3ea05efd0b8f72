package stats

import (
	"bytes"
	"encoding/json"
	"testing"

	"btrlab/internal/uring"
)

// TestRing: what a ring did before measuring began is taken off, but its workers stay; the rings of
// two tasks add up; a job of another engine has none; the report has them under their names.
func TestRing(t *testing.T) {
	ramp := Ring{uring.Stats{Submitted: 5, Inline: 4, Punted: 1, Again: 1}, 1}
	now := Ring{uring.Stats{Submitted: 105, Inline: 90, Queued: 3, Punted: 12, Again: 7, Short: 5, Cancelled: 1, Overflows: 2}, 2}
	want := Ring{uring.Stats{Submitted: 100, Inline: 86, Queued: 3, Punted: 11, Again: 6, Short: 5, Cancelled: 1, Overflows: 2}, 2}
	a := now.Since(ramp)
	if a != want {
		t.Errorf("since the ramp: have %+v want %+v", a, want)
	}
	if now.Submitted != 105 {
		t.Error("Since has changed what it was asked of")
	}
	j, k := &Job{Tasks: 1, Ring: &a}, &Job{Tasks: 1, Ring: &Ring{uring.Stats{Submitted: 1, Inline: 1}, 0}}
	j.Merge(k)
	j.Merge(&Job{Tasks: 1})
	if want.Submitted, want.Inline = 101, 87; *j.Ring != want {
		t.Errorf("two tasks: have %+v want %+v", *j.Ring, want)
	}
	if s, want := j.Ring.String(), "101 requests: 87 inline, 3 by the device, 11 by workers (6 EAGAIN, 5 short), 2 workers"; s != want {
		t.Errorf("have %q want %q", s, want)
	}
	if MergeRing(nil, nil) != nil {
		t.Error("rings of nobody")
	}
	var out bytes.Buffer
	run := Run{Jobs: []*Job{j}}
	if err := run.WriteJSON(&out, false); err != nil {
		t.Fatal(err)
	}
	var report struct{ Jobs []struct{ Ring Ring } }
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || len(report.Jobs) != 1 || report.Jobs[0].Ring != want {
		t.Errorf("%v: %+v of %s", err, report, out.String())
	}
}

package served

import (
	"testing"
	"time"

	"btrlab/internal/sched"
)

// TestRun: every policy has a figure for each round, the first is compared with itself, and
// requests of a server that goes too early end with an error.
func TestRun(t *testing.T) {
	var runs int
	rows, err := Run(sched.NewTask("test"), Options{Policies: []string{"locked", "unlocked"}, Model: "none", Size: 8 << 20, Depth: 4, Reads: 20,
		Flush: 20 * time.Millisecond, Time: 100 * time.Millisecond, Rounds: 2, Progress: func(int, string) { runs++ }})
	if err != nil || len(rows) != 2 || runs != 4 {
		t.Fatal(rows, runs, err)
	}
	for _, r := range rows {
		for i := range 2 {
			if r.Rate[i] < 1 || r.P50[i] <= 0 || r.P99[i] < r.P50[i] || r.Stable[i] < 0 || r.Stable[i] > 1 || r.Lock[i] < 0 || r.Lock[i] > 1 {
				t.Errorf("%s: %+v", r.Policy, r)
			}
		}
		if r.Policy == "locked" && (r.Ratio[0] != 1 || r.Ratio[1] != 1) {
			t.Errorf("locked beside itself: %v", r.Ratio)
		}
	}
	if _, err := Run(sched.NewTask("test"), Options{Policies: []string{"nothing"}}); err == nil {
		t.Error("a policy that is not there")
	}
}

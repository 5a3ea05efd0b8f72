package explore_test

import (
	"sync"
	"testing"
	"time"

	"btrlab/internal/sched/explore"
)

// Progress counts what the search does. When the last execution has been made nothing is left, and
// every search that is estimated knows it.
func TestProgress(t *testing.T) {
	for _, m := range []explore.Method{explore.Bound, explore.DPOR, explore.State, explore.Naive} {
		last := explore.Progress{Preemptions: -1}
		calls := 0
		r := explore.Run(explore.Config{Method: m, ProgressEvery: 1, Progress: func(p explore.Progress) {
			if calls++; p.Schedules != calls || p.Cut < last.Cut || p.Steps <= last.Steps || p.Method != m {
				t.Fatalf("%s, call %d: %+v after %+v", m, calls, p, last)
			}
			if p.Total < float64(p.Schedules) && (m != explore.State || p.Total != 0) {
				t.Fatalf("%s: %+v", m, p)
			}
			if level := p.Preemptions; level < last.Preemptions || (m == explore.Bound) != (level >= 0) || p.Level < 0 || p.Level > 1 {
				t.Fatalf("%s: %+v after %+v", m, p, last)
			}
			last = p
		}}, sections(3, 2))
		if calls != r.Schedules || last.Total != float64(r.Schedules) || last.Left != 0 {
			t.Errorf("%s: %d calls, the last %+v; %s", m, calls, last, r.Bound)
		}
	}
}

// Limits bound the estimate.
func TestProgressOfLimits(t *testing.T) {
	var last explore.Progress
	keep := func(p explore.Progress) { last = p }
	explore.Run(explore.Config{Method: explore.Random, Schedules: 100, ProgressEvery: 50, Progress: keep}, sections(2, 3))
	if last.Schedules != 100 || last.Total != 100 || last.Left != 0 {
		t.Errorf("by schedules: %+v", last)
	}
	explore.Run(explore.Config{Schedules: 100, ProgressEvery: 1, Progress: keep}, sections(5, 5))
	if last.Schedules != 100 || last.Total != 100 {
		t.Errorf("bound by schedules: %+v", last)
	}
	n := 0
	explore.Run(explore.Config{Method: explore.Random, Time: time.Hour, Schedules: 0, ProgressEvery: 10, Progress: keep, Stop: func() bool { n++; return n == 10 }}, sections(2, 3))
	if last.Total != 0 || last.Left < 50*time.Minute || last.Left > time.Hour {
		t.Errorf("by time: %+v", last)
	}
}

// Several jobs tell of one search.
func TestProgressOfJobs(t *testing.T) {
	for _, m := range []explore.Method{explore.Bound, explore.DPOR, explore.State} {
		var mu sync.Mutex
		most := 0
		r := explore.Run(explore.Config{Method: m, Jobs: 2, ProgressEvery: 1, Progress: func(p explore.Progress) {
			mu.Lock()
			defer mu.Unlock()
			most = max(most, p.Schedules)
		}}, sections(3, 2))
		if most != r.Schedules || r.Verdict != explore.Exhausted {
			t.Errorf("%s: told of %d schedules, %s", m, most, r.Bound)
		}
	}
}

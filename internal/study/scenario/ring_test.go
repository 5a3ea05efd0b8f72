package scenario

import (
	"slices"
	"strings"
	"testing"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
)

// A ring in a scenario is the ring on the real write path. A worker that begins again writes over
// another task's bytes; workers side by side end in the wrong order; each is said in words. Under
// the right order a worker takes part, and nothing is broken.
func TestRing(t *testing.T) {
	for _, c := range []struct{ scenario, wrong, want string }{
		{"ring-short", "WRONG_RING_RETRY_WHOLE", "read 3 [0, 4K) saw that bytes [0, 4K) are those of write 1, but at the end bytes [0, 36K) are those of write 1"},
		{"ring-order", "WRONG_RING_UNHASHED", "operation 2 ended before operation 1, which the workers had first"},
	} {
		s, err := Lookup(c.scenario)
		must(t, err)
		small := Options{Config: func(x *explore.Config) { x.Schedules = 300 }}
		r, err := Run(s, policy.MustParse("nowait-6.1+"+c.wrong), small)
		must(t, err)
		if r.Kind != explore.KindOracle || !strings.Contains(r.Violation.String(), c.want) {
			t.Errorf("%s: have %s %s\nwant %s", c.wrong, r.Kind, r.Violation, c.want)
		}
		r, err = Run(s, policy.MustParse("nowait-6.1"), small)
		must(t, err)
		if r.Verdict == explore.Violated {
			t.Errorf("%s: %s\n%s", c.scenario, r.Violation, r.Replay)
		}
		tr, err := Replay(s, policy.MustParse("nowait-6.1"), "", false)
		must(t, err)
		// ring-short: only once the range is locked
		if worker := slices.Contains(tr.Tasks, "iou-wrk-0"); worker != (c.scenario == "ring-order") || tr.Kind != "" {
			t.Errorf("%s: tasks %v, %s", c.scenario, tr.Tasks, tr.Violation)
		}
	}
}

package scenario

import (
	"strings"
	"testing"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/sched/explore"
)

// TestLogScenarios: the scenarios of an fsync that writes a log break by wrong orders of that log, each with the sentence about what is lost, and
// keep their rule without, in few schedules: TestMatrix searches more.
func TestLogScenarios(t *testing.T) {
	for _, c := range []struct{ scenario, wrong, want string }{
		{"log-writer", "WRONG_LOG_BEFORE_DATA", "what an fsync promised is not on the device"},
		{"log-writer", "WRONG_LOG_NO_SUMS", "not clean: [csum.missing"},
		{"log-truncate", "WRONG_LOG_BEFORE_DATA", "what an fsync promised is not on the device"},
		{"log-punch", "WRONG_LOG_NO_HOLES", "what an fsync promised is not on the device"},
		{"log-punch-block", "WRONG_LOG_PUNCH_UNMARKED", "what an fsync promised is not on the device"},
		{"log-commit", "WRONG_LOG_BEFORE_DATA", "what an fsync promised is not on the device"},
	} {
		s, err := Lookup(c.scenario)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range []string{"fsync-5.18", "fsync-5.18+" + c.wrong} {
			p, err := policy.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Run(s, &p, Options{Config: func(cfg *explore.Config) { cfg.Schedules = 40 }})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s under %s: %s, %d schedules", c.scenario, spec, r.Verdict, r.Schedules)
			if broken := r.Verdict == explore.Violated; broken != strings.Contains(spec, "WRONG") || broken && !strings.Contains(r.Violation.String(), c.want) {
				t.Errorf("%s under %s: have %s %s, want %q", c.scenario, spec, r.Verdict, r.Violation, c.want)
			}
		}
	}
}

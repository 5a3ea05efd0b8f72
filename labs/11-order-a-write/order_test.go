package orderawrite

import (
	"strings"
	"testing"

	"btrlab/internal/policy"
)

// TestSteps: the lists are well-formed. Whether they are right, the explorer says: btrlab lab grade
// 11.
func TestSteps(t *testing.T) {
	for name, steps := range map[string][]policy.WriteStep{"Locked": Locked(), "Unlocked": Unlocked()} {
		if err := policy.CheckWriteOrder(steps); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnswers: each is a schedule, as "11:1" or "3:0,7:2", never, or not given yet.
func TestAnswers(t *testing.T) {
	for name, a := range Answers() {
		if a != "" && a != "?" && a != "never" && strings.Trim(a, "0123456789:,!*$") != "" {
			t.Errorf("%s: bad answer %q, want a schedule, as 11:1, or never", name, a)
		}
	}
}

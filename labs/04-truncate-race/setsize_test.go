package truncaterace

import (
	"regexp"
	"testing"

	"btrlab/internal/policy"
)

// TestSteps: the list is well-formed. Whether it is right, the explorer says: btrlab lab grade 4.
func TestSteps(t *testing.T) {
	seen := map[policy.SetsizeStep]int{}
	for _, s := range Steps() {
		seen[s]++
	}
	for _, s := range []policy.SetsizeStep{policy.SetISize, policy.TruncatePages, policy.DIOWait, policy.WaitOrdered, policy.TruncateItems} {
		if seen[s] != 1 {
			t.Errorf("%v comes %d times, want once", s, seen[s])
		}
		delete(seen, s)
	}
	for s := range seen {
		t.Errorf("step %d is none of the five", s)
	}
}

// answer is what a question may be answered with: a workload with or without a schedule, never, or
// nothing yet.
var answer = regexp.MustCompile(`^(\?|never|[a-z][a-z-]*(=[0-9:,!*$]*)?)?$`)

// TestAnswers: there are four questions, and each answer is well-formed.
func TestAnswers(t *testing.T) {
	answers := Answers()
	for _, name := range []string{"swap-1-2", "swap-2-3", "swap-3-4", "swap-4-5"} {
		if a := answers[name]; !answer.MatchString(a) {
			t.Errorf("%s: bad answer %q, want WORKLOAD=SCHEDULE, as truncate-race=5:2, or never", name, a)
		}
		delete(answers, name)
	}
	for name := range answers {
		t.Errorf("unknown question %q, want swap-1-2 to swap-4-5", name)
	}
}

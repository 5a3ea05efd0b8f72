package truncaterace

import (
	"testing"

	"btrlab/internal/iopath/policy"
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

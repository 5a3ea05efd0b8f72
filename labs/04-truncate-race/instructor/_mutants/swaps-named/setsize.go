// Package truncaterace has the right order, and names what tells a swap without a schedule.
package truncaterace

import "btrlab/internal/policy"

// Steps is the order of the steps.
func Steps() []policy.SetsizeStep {
	return []policy.SetsizeStep{
		policy.DIOWait,
		policy.SetISize,
		policy.TruncatePages,
		policy.WaitOrdered,
		policy.TruncateItems,
	}
}

// Answers says what becomes of the truncate when two neighbours are swapped.
func Answers() map[string]string {
	return map[string]string{
		"swap-1-2": "truncate-race",
		"swap-2-3": "shrink-grow-reader",
		"swap-4-5": "shrink-writeback",
	}
}

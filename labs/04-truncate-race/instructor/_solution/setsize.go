// Package truncaterace drains the writers first: none is left that could put i_size back.
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
		"swap-1-2": "truncate-race=15:2",
		"swap-2-3": "shrink-grow-reader=19:1,34:2",
		"swap-3-4": "never",
		"swap-4-5": "shrink-writeback=5:2",
	}
}

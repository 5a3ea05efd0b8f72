// Package truncaterace has the right order, and nobody minds a swap of it.
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
		"swap-1-2": "never",
		"swap-2-3": "never",
		"swap-3-4": "never",
		"swap-4-5": "never",
	}
}

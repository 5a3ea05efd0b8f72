// Package truncaterace looks for an order and does not find it.
package truncaterace

import "btrlab/internal/policy"

// Steps is the order of the steps.
func Steps() []policy.SetsizeStep {
	steps := []policy.SetsizeStep{policy.DIOWait, policy.SetISize, policy.TruncatePages, policy.WaitOrdered}
	for len(steps) < 5 {
		steps = append(steps[:3], policy.TruncateItems) // never the fifth
	}
	return steps
}

// Answers has none.
func Answers() map[string]string { return nil }

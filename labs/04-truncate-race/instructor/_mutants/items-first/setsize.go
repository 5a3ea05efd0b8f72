// Package truncaterace drops the items while i_size is the old one: none is dropped.
package truncaterace

import "btrlab/internal/policy"

// Steps is the order of the steps.
func Steps() []policy.SetsizeStep {
	return []policy.SetsizeStep{
		policy.DIOWait,
		policy.WaitOrdered,
		policy.TruncateItems,
		policy.SetISize,
		policy.TruncatePages,
	}
}

// Answers has none.
func Answers() map[string]string { return nil }

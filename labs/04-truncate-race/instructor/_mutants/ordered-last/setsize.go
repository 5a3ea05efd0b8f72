// Package truncaterace waits for ordered extents when the items are gone: a late one puts its item
// back.
package truncaterace

import "btrlab/internal/policy"

// Steps is the order of the steps.
func Steps() []policy.SetsizeStep {
	return []policy.SetsizeStep{
		policy.DIOWait,
		policy.SetISize,
		policy.TruncatePages,
		policy.TruncateItems,
		policy.WaitOrdered,
	}
}

// Answers has none.
func Answers() map[string]string { return nil }

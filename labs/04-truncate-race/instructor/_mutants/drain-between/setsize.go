// Package truncaterace drains between the size and the pages: too late for the size.
package truncaterace

import "btrlab/internal/policy"

// Steps is the order of the steps.
func Steps() []policy.SetsizeStep {
	return []policy.SetsizeStep{
		policy.SetISize,
		policy.DIOWait,
		policy.TruncatePages,
		policy.WaitOrdered,
		policy.TruncateItems,
	}
}

// Answers has none.
func Answers() map[string]string { return nil }

// Package truncaterace drops the pages before the size says that they are gone: a reader brings
// them back.
package truncaterace

import "btrlab/internal/policy"

// Steps is the order of the steps.
func Steps() []policy.SetsizeStep {
	return []policy.SetsizeStep{
		policy.DIOWait,
		policy.TruncatePages,
		policy.SetISize,
		policy.WaitOrdered,
		policy.TruncateItems,
	}
}

// Answers has none.
func Answers() map[string]string { return nil }

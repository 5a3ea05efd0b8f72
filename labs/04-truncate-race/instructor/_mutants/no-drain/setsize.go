// Package truncaterace trusts i_rwsem and leaves the drain out.
package truncaterace

import "btrlab/internal/policy"

// Steps is the order of the steps.
func Steps() []policy.SetsizeStep {
	return []policy.SetsizeStep{
		policy.SetISize,
		policy.TruncatePages,
		policy.WaitOrdered,
		policy.TruncateItems,
	}
}

// Answers has none.
func Answers() map[string]string { return nil }

// Package truncaterace drains the writers first: none is left that could put i_size back.
package truncaterace

import "btrlab/internal/iopath/policy"

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

// Package truncaterace is lab 4: the order of the steps of a truncate. See README.md.
package truncaterace

import "btrlab/internal/policy"

// Steps is the order in which a truncate that makes a file shorter takes its steps. Each comes
// once. The caller holds i_rwsem for writing; writers inside the file do not hold it while they
// copy, but count themselves in i_dio_count.
//
// This is the order of 2018. Change it.
func Steps() []policy.SetsizeStep {
	return []policy.SetsizeStep{
		policy.SetISize,      // the new size becomes visible
		policy.TruncatePages, // the pages beyond the new size leave the page cache
		policy.DIOWait,       // no writer is in flight
		policy.WaitOrdered,   // what was being written beyond the new size has its file extents
		policy.TruncateItems, // file extents beyond the new size are dropped
	}
}

// Answers says of each two neighbours of your Steps what becomes of the truncate when these two are
// swapped: WORKLOAD=SCHEDULE, which breaks it, or "never". README.md has the rules.
func Answers() map[string]string {
	return map[string]string{
		"swap-1-2": "?", // your first step and your second one
		"swap-2-3": "?",
		"swap-3-4": "?",
		"swap-4-5": "?",
	}
}

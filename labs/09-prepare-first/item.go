// Package preparefirst is lab 9: a file extent on its way into the log tree of an fsync. See
// README.md.
package preparefirst

import "btrlab/labs/kit"

// Put puts the file extent x and its checksums into the log: nil. With an error the fsync commits
// the transaction instead.
//
// This one does everything with the path held, and not everything can be done so. Change it.
func Put(t *kit.Task, x *kit.LogItem) error {
	if _, err := x.Drop(t); err != nil {
		return err
	}
	x.Fill(t)
	if err := x.Sums(t); err != nil {
		return err
	}
	x.Release(t)
	return nil
}

// Answers says of each fault what it breaks: WORKLOAD=SCHEDULE, or "never"; searches-always is a
// number. See README.md.
func Answers() map[string]string {
	return map[string]string{
		"again-no":        "?",
		"again-yes":       "?",
		"searches-always": "?",
	}
}

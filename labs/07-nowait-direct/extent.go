// Package nowaitdirect is lab 7: the steps of a NOWAIT direct write. See README.md.
package nowaitdirect

import "btrlab/labs/kit"

// Extent starts the extent x of a direct write whose caller said NOWAIT: nil. With EAGAIN a worker
// does the write again, and may sleep.
//
// These are the steps of a write that may wait, as the kernel before the patches took them. Change
// them.
func Extent(t *kit.Task, x *kit.NowaitExtent) error {
	if err := x.Reserve(t, kit.FlushAll); err != nil {
		return err
	}
	x.LockRange(t)
	if err := x.Place(t); err != nil {
		return err
	}
	x.Start(t)
	x.UnlockRange(t)
	return nil
}

// Answers says of each fault what it breaks: WORKLOAD=SCHEDULE, or "never"; shared is a
// number. See README.md.
func Answers() map[string]string {
	return map[string]string{
		"try-waits":       "?",
		"keeps-range":     "?",
		"reserve-flushes": "?",
		"shared":          "?",
	}
}

// Package disk is lab 16: the flushes of a disk that several connections share. See README.md.
package disk

import "btrlab/labs/kit"

// Flushes answers the flushes of all connections. Make one with New.
//
// This one has a Sync for each flush, and tells its error to whoever asked.
type Flushes struct {
	mu      kit.Mutex
	changed kit.Cond
}

// New makes one that has answered nothing.
func New() *Flushes {
	f := &Flushes{}
	f.mu.Init()
	f.changed.Init()
	return f
}

// Flush returns nil when all writes are durable that were answered before it was called.
func (f *Flushes) Flush(t *kit.Task, d *kit.Disk) error {
	return d.Sync(t)
}

// Predict says what so many connections get that share the Syncs and do what p was measured of, one
// connection by itself.
func Predict(p kit.SyncProfile, connections int) kit.FlushRates {
	return kit.FlushRates{}
}

// Answers says of each fault what it breaks: WORKLOAD=SCHEDULE, or "never". See README.md.
func Answers() map[string]string {
	return map[string]string{
		"wakes-one":      "?",
		"sync-as-called": "?",
		"sync-any-order": "?",
		"sleeps-twice":   "?",
	}
}

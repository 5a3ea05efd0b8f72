package sched

import "time"

// SetStuckAfter makes the watch for stuck tests less patient.
func SetStuckAfter(d time.Duration) { stuckAfter.Store(int64(d)) }

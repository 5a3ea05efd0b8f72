//go:build race

package sched

// Under the race detector sync.Pool drops what it is given now and then, on purpose.
const raceEnabled = true

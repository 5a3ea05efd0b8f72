//go:build !race

package sched

// UnderRace is true under the race detector.
const UnderRace = false

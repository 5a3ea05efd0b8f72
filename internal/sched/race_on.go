//go:build race

package sched

// UnderRace is true under the race detector, which makes a test ten times as slow. A test with one
// task of its own races with the flusher, the workers of completion and the commits all the same: it does less then, but it runs.
const UnderRace = true

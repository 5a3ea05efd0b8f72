//go:build race

package sched

// UnderRace is true under the race detector, which makes a program ten times as slow, needs memory
// of its own, and lets sync.Pool drop things on purpose. A race that a device or the kernel allows
// is kept out of its sight where this is set, so that it reports only ours.
const UnderRace = true

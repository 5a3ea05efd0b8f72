//go:build !race

package fstest

// UnderRace is true under the race detector.
const UnderRace = false

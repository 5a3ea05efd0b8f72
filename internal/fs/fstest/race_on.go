//go:build race

package fstest

// UnderRace is true under the race detector, which makes a test ten times as slow. What one task does alone, and what an explorer runs one
// task at a time, has nothing for the detector to see: such tests do less then, or are skipped.
const UnderRace = true

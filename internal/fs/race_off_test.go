//go:build !race

package fs_test

// underRace is true under the race detector.
const underRace = false

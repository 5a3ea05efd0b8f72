//go:build race

package fs_test

// underRace is true under the race detector, which makes a test ten times as slow: those that fill an image with one task do less then.
const underRace = true

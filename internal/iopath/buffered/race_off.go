//go:build !race

package buffered

const raceEnabled = false

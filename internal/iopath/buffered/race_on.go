//go:build race

package buffered

// Under -race, raceEnabled removes a race that the kernel allows on purpose, so that the detector reports only ours: a page of a file
// without checksums changes while the device reads it. With it set every write waits for writeback of its pages.
const raceEnabled = true

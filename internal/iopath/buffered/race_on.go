//go:build race

package buffered

// raceEnabled makes the two races that the kernel has on purpose visible to nobody under the race detector: a read copies from
// a page that is being written, and a page of a file without checksums changes while the device reads it. With it
// set both take the page lock, or wait for writeback.
const raceEnabled = true

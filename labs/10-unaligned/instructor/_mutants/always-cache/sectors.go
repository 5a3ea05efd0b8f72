// Package unaligned is lab 10: a direct write of less than a block. See README.md.
package unaligned

import "btrlab/labs/kit"

// Write does as btrfs does.
func Write(t *kit.Task, w *kit.SectorWrite) { w.Cache(t) }

func Answers() map[string]string { return nil }

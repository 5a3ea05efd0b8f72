// Package mkfs makes an empty btrfs on one device by writing its blocks directly.
package mkfs

import (
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Options say what to make; the zero value is mkfs.btrfs's default with random UUIDs.
type Options struct {
	Label           string // at most 255 bytes, no newline
	MetadataProfile string // "dup" (default) or "single"; SYSTEM chunks follow it
	Size            int64  // bytes to use; 0 is the whole device
	Force           bool   // overwrite a file system that is there

	// Identifiers; a zero one is made up. With all of them and Now given, the image is the same every time.
	FSID          format.UUID
	DevUUID       format.UUID
	ChunkTreeUUID format.UUID
	SubvolUUID    format.UUID // of the top-level subvolume

	Now time.Time // of the root directory and the trees; zero is the time of the call
}

// Make makes the file system.
func Make(t *sched.Task, dev blockdev.Device, o Options) error { panic("mkfs: not yet") }

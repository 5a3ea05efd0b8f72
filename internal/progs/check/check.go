// Package check judges a btrfs image with a walker of its own.
package check

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

// Options of a check.
type Options struct {
	// NoData leaves the data checksums unread.
	NoData bool
	// Progress, if any, is called now and then with the phase and how much of it is done, in bytes or items.
	Progress func(phase string, done, total uint64)
}

// Finding is one broken rule at one place.
type Finding struct {
	Rule  string `json:"rule"`
	Where string `json:"where"`
	Have  string `json:"have"`
	Want  string `json:"want"`
}

// Stats counts what was looked at.
type Stats struct {
	TreeBlocks, DataExtents, Inodes, Files, Dirs uint64
	DataBytes                                    uint64 // verified against checksums
}

// Result of a check: Clean is len(Findings) == 0. Notes do not make an image bad.
type Result struct {
	Clean    bool      `json:"clean"`
	Findings []Finding `json:"findings"`
	Notes    []string  `json:"notes,omitempty"`
	Stats    Stats     `json:"-"`
}

// Check judges the image on dev. The error is for a device that cannot be read at all.
func Check(t *sched.Task, dev blockdev.Device, o Options) (Result, error) { panic("check: not yet") }

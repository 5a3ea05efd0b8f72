// Package dump prints what is on a btrfs image, in the shape of btrfs inspect-internal.
package dump

import (
	"io"

	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

// Super prints the primary superblock.
func Super(t *sched.Task, w io.Writer, dev blockdev.Device) error { panic("dump: not yet") }

// Chunks prints the chunk map, one chunk a line.
func Chunks(t *sched.Task, w io.Writer, dev blockdev.Device) error { panic("dump: not yet") }

// Tree prints a tree, by name ("root", "fs", "extent", ...) or number, item by item.
func Tree(t *sched.Task, w io.Writer, dev blockdev.Device, name string) error {
	panic("dump: not yet")
}

// Usage is the space of one block group type.
type Usage struct {
	Type    string `json:"type"`    // "data", "metadata", "system"
	Profile string `json:"profile"` // "single", "dup"
	Total   uint64 `json:"total"`   // logical bytes
	Used    uint64 `json:"used"`
}

// Info is what `btrlab info` and `df` show.
type Info struct {
	Label      string   `json:"label"`
	FSID       string   `json:"uuid"`
	Generation uint64   `json:"generation"`
	TotalBytes uint64   `json:"total_bytes"`
	BytesUsed  uint64   `json:"bytes_used"`
	Allocated  uint64   `json:"allocated"` // device bytes in chunks
	SectorSize uint32   `json:"sectorsize"`
	NodeSize   uint32   `json:"nodesize"`
	Csum       string   `json:"csum_type"`
	Features   []string `json:"features"`
	Usage      []Usage  `json:"usage"`
}

// ReadInfo reads the superblock, the chunk tree and the block groups.
func ReadInfo(t *sched.Task, dev blockdev.Device) (Info, error) { panic("dump: not yet") }

// PrintInfo writes i as text.
func PrintInfo(w io.Writer, i Info) { panic("dump: not yet") }

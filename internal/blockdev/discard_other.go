//go:build !linux || portable

package blockdev

import (
	"btrlab/internal/errno"
	"btrlab/internal/sched"
)

// Discard is not known of other systems.
func (d *File) Discard(*sched.Task, int64, int64) error { return errno.EOPNOTSUPP }

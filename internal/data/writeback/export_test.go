package writeback

import (
	"btrlab/internal/data/inode"
	"btrlab/internal/sched"
)

// FlushSome is a round of the flusher over one file: up to n dirty pages.
func (e *Engine) FlushSome(t *sched.Task, ip *inode.Inode, n int) int {
	return e.flushSome(t, &ip.Pages, n, false)
}

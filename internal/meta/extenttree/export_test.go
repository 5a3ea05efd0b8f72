package extenttree

import (
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Free lists what the allocator would hand out of the block group that starts at start.
func (e *ExtentTree) Free(t *sched.Task, start format.Logical) (free []format.Range[format.Logical]) {
	g := e.group(start)
	g.mu.Lock(t)
	defer g.mu.Unlock(t)
	g.free.Scan(func(s span) bool { free = append(free, s); return true })
	return free
}

// Pinned lists what the running transaction has freed so far, in order of time.
func (e *ExtentTree) Pinned() []format.Range[format.Logical] { return e.pinned }

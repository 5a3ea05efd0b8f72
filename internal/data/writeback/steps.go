package writeback

import (
	"btrlab/internal/data/inode"
	"btrlab/internal/sched"
)

// RunSteps are the steps of a run of dirty pages that has its ordered extents, for a lab that
// orders them; *writeback.labRun is one. The pages are locked and under writeback. Each step but
// Copy is done once.
type RunSteps interface {
	// Copy copies the pages: checksums and bios that come after it are of the copies. Compressed
	// data is a copy already.
	Copy(t *sched.Task)
	// Unlock lets the pages go. They stay under writeback.
	Unlock(t *sched.Task)
	// Sum makes the checksums, where the file has any.
	Sum(t *sched.Task)
	// Submit starts the bios. What is summed afterwards comes too late: the extent may be finished.
	Submit(t *sched.Task)
}

// labRun is a run whose steps a lab orders.
type labRun struct {
	e  *Engine
	ip *inode.Inode
	w  *run
}

func (r *labRun) Copy(t *sched.Task) { r.e.bouncePages(t, r.w) }

func (r *labRun) Unlock(t *sched.Task) {
	for _, p := range r.w.pages {
		p.UnlockPut(t)
	}
}

func (r *labRun) Sum(t *sched.Task) {
	for i := range r.w.parts {
		r.e.sum(t, r.ip, &r.w.parts[i])
	}
}

func (r *labRun) Submit(t *sched.Task) {
	for i := range r.w.parts {
		r.e.submit(t, r.ip, &r.w.parts[i])
	}
}

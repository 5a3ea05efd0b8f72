package extenttree

import (
	"btrlab/internal/sched"
)

// Pinned is space that the running transaction freed.
type Pinned []span

// TakePinned hands over what was pinned so far. The commit calls it when nothing of its transaction
// is left to run.
func (e *ExtentTree) TakePinned() Pinned {
	p := e.pinned
	e.pinned = nil
	return p
}

// Unpin makes the space allocatable: the commit that freed it is durable. Models
// btrfs_finish_extent_commit().
func (e *ExtentTree) Unpin(t *sched.Task, p Pinned) {
	e.DiscardPinned(t, p)
	for _, s := range p {
		e.giveBack(t, s)
		e.space.Of(e.group(s.Start).Flags).Unpinned(t, s.Len())
	}
}

// giveBack returns bytes to their group's free spans. In a group that is read-only nobody may have
// them: they are accounted so.
func (e *ExtentTree) giveBack(t *sched.Task, s span) {
	g := e.group(s.Start)
	g.mu.Lock(t)
	g.addFreeLocked(t, s)
	g.mu.Unlock(t)
	if g.readonly.Load() {
		e.space.Of(g.Flags).AddTotal(t, 0, 0, s.Len())
	}
}

package extenttree

import (
	"errors"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// SetDiscard makes each commit give the place of what it has freed back to the devices, once it is
// durable. Call it before other tasks use the allocator. Models the mount option discard=sync.
func (e *ExtentTree) SetDiscard(on bool) { e.discard.Store(on) }

// DiscardPinned gives back what a commit has freed. Devices that cannot are not asked again; other
// errors lose nothing. Models the discard of btrfs_finish_extent_commit().
func (e *ExtentTree) DiscardPinned(t *sched.Task, p Pinned) {
	if !e.discard.Load() {
		return
	}
	for _, s := range format.Merge(append(Pinned(nil), p...)) {
		for s.Start < s.End {
			g := e.group(s.Start)
			part := s.Intersect(g.span())
			s.Start = part.End
			if g.parity() {
				continue
			}
			if err := e.vols.Discard(t, uint64(part.Start), part.Len()); errors.Is(err, errno.EOPNOTSUPP) {
				e.discard.Store(false)
				return
			}
		}
	}
}

// DiscardFree discards what is free: in block groups, in ranges of at least least bytes, and what
// of the devices is in no chunk. What is being discarded is not allocated meanwhile. It returns how
// many bytes that was. EOPNOTSUPP when a device cannot.
//
// Models fs/btrfs/extent-tree.c:btrfs_trim_fs().
func (e *ExtentTree) DiscardFree(t *sched.Task, least uint64) (bytes uint64, err error) {
	for _, g := range e.list(t) {
		if g.parity() {
			continue
		}
		n, err := e.discardGroup(t, g, least)
		if bytes += n; err != nil {
			return bytes, err
		}
	}
	e.chunkMu.Lock(t)
	defer e.chunkMu.Unlock(t)
	n, err := e.vols.DiscardUnused(t, least)
	return bytes + n, err
}

// parity reports whether the group has RAID5 or RAID6: a row is discarded whole or not at all, so
// nothing of it is here.
func (g *BlockGroup) parity() bool { return format.ProfileOf(g.Flags).Parity > 0 }

// discardGroup discards what is free in a group, span by span.
func (e *ExtentTree) discardGroup(t *sched.Task, g *BlockGroup, least uint64) (bytes uint64, err error) {
	for at := g.Start; err == nil; {
		var s span
		g.mu.Lock(t)
		g.free.Ascend(span{Start: at}, func(x span) bool {
			if x.Len() >= max(least, 1) {
				s = x
			}
			return s.Empty()
		})
		if !s.Empty() {
			g.removeFreeLocked(t, s, s)
		}
		g.mu.Unlock(t)
		if s.Empty() {
			break
		}
		if err = e.vols.Discard(t, uint64(s.Start), s.Len()); err == nil {
			bytes += s.Len()
		}
		g.mu.Lock(t)
		g.addFreeLocked(t, s)
		g.mu.Unlock(t)
		at = s.End
	}
	return bytes, err
}

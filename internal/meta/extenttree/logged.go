package extenttree

import (
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

// What a log tree uses has no extent items: after a crash its blocks, and the data extents that it
// names, look free. Before a log is replayed its blocks are pinned, and each data extent is taken
// out of the free space when its file extent item is replayed.
//
// Models btrfs_pin_extent_for_log_replay() and btrfs_alloc_logged_file_extent().

// exclude takes s out of the free space. EUCLEAN when it is not all free, or in no group of the
// type: the log that names it is wrong.
func (e *ExtentTree) exclude(t *sched.Task, s span, typ uint64) error {
	g := e.groups.Load().find(s.Start)
	if g == nil || g.Flags&typ == 0 || s.End > g.end() || s.End < s.Start {
		return fmt.Errorf("bad logged extent at %d of %d bytes, want it in a block group of its type: %w", s.Start, s.Len(), errno.EUCLEAN)
	}
	g.mu.Lock(t)
	defer g.mu.Unlock(t)
	var whole span
	g.free.Descend(span{Start: s.Start}, func(f span) bool { whole = f; return false })
	if whole.Empty() || whole.End < s.End {
		return fmt.Errorf("bad logged extent at %d of %d bytes, have it in use want it free: %w", s.Start, s.Len(), errno.EUCLEAN)
	}
	g.removeFreeLocked(t, whole, s)
	return nil
}

// PinLogBlock keeps a block of a log tree from being allocated until the commit that ends its
// replay is durable.
//
// Preconditions: no transaction has changed anything since Load; only the task that replays is at
// work.
func (e *ExtentTree) PinLogBlock(t *sched.Task, bytenr format.Logical) error {
	e.enter(t)
	defer e.leave()
	s := spanOf(bytenr, e.nodeSize)
	if err := e.exclude(t, s, format.BlockGroupMetadata); err != nil {
		return err
	}
	info := e.space.Metadata()
	if err := info.Reserve(t, e.nodeSize, spaceinfo.NoFlush); err != nil {
		e.giveBack(t, s)
		return err
	}
	// Allocated, recorded and freed at once: what remains is pinned.
	info.Allocated(t, e.nodeSize)
	info.Recorded(t, e.nodeSize)
	info.Freed(t, e.nodeSize)
	e.pinned = append(e.pinned, s)
	return nil
}

// ExcludeLogged keeps the place of a data extent that a log names, if it is free, from being
// allocated: in block groups of both data and metadata the replay's own tree blocks would take it.
// AddLoggedExtent takes it up, and FreeLogged ends it.
//
// Models btrfs_exclude_logged_extents().
//
// Preconditions: as PinLogBlock.
func (e *ExtentTree) ExcludeLogged(t *sched.Task, bytenr format.Logical, numBytes uint64) {
	g := e.groups.Load().find(bytenr)
	s := spanOf(bytenr, numBytes)
	if g == nil || g.Flags&format.BlockGroupMetadata == 0 || e.exclude(t, s, format.BlockGroupData) != nil {
		return // not all of it is free: it is known already, or its item will say what is wrong
	}
	if e.logged == nil {
		e.logged = make(map[format.Logical]uint64)
	}
	e.logged[bytenr] = numBytes
}

// FreeLogged gives back what was excluded and has not become an extent. The replay is at its end.
func (e *ExtentTree) FreeLogged(t *sched.Task) {
	for bytenr, n := range e.logged {
		e.giveBack(t, spanOf(bytenr, n))
	}
	e.logged = nil
}

// AddLoggedExtent adds the reference ref to the data extent of a replayed file extent item. The
// extent is one of the last commit, or one that an item before has brought, or else new.
func (e *ExtentTree) AddLoggedExtent(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error {
	if err := e.checkExtent(ref, bytenr, numBytes); err != nil {
		return err
	}
	known, err := e.knowsExtent(t, bytenr, numBytes)
	if err != nil {
		return err
	}
	if known {
		return e.IncExtentRef(t, tr, ref, bytenr, numBytes)
	}
	s := spanOf(bytenr, numBytes)
	if e.logged[bytenr] == numBytes {
		delete(e.logged, bytenr)
	} else if err := e.exclude(t, s, format.BlockGroupData); err != nil {
		return err
	}
	data := e.space.Data()
	if err := data.Reserve(t, numBytes, spaceinfo.NoFlush); err != nil {
		e.giveBack(t, s)
		return err
	}
	data.Allocated(t, numBytes)
	return e.AllocReservedFileExtent(t, tr, ref, bytenr, numBytes)
}

// knowsExtent reports whether there is such a data extent: its item, or a first reference that is
// queued.
func (e *ExtentTree) knowsExtent(t *sched.Task, bytenr format.Logical, numBytes uint64) (bool, error) {
	e.refsMu.Lock(t)
	h := e.heads[bytenr]
	queued := h != nil && h.mustInsert && h.num == numBytes
	e.refsMu.Unlock(t)
	if queued {
		return true, nil
	}
	var p ctree.Path
	defer p.Release(t)
	key := format.Key{Objectid: uint64(bytenr), Type: format.EXTENT_ITEM_KEY, Offset: numBytes}
	return e.forest.SearchSlot(t, nil, e.root, key, &p, 0, false)
}

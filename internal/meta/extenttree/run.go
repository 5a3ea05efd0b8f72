package extenttree

// The life of a delayed reference.
//
// Handles queue, with tree nodes locked. A head collects all that a transaction did to one extent,
// so a reference that comes and goes inside a transaction costs no item. The committer runs:
//
//	RefTreeBlock             +1, mustInsert \
//	AllocReservedFileExtent  +1, mustInsert  \
//	IncExtentRef             +1               > addRef -> heads, by address
//	FreeTreeBlock            -1              /               |
//	FreeExtent               -1             /                v
//	                        RunDelayedRefs   createPendingGroups   items of new chunks
//	                                         takeHeads             empties the queue, ascending
//	                                         runHead
//	                                           new, some left      insertExtent: an item; not free any more
//	                                           new, none left      extentGone: pinned
//	                                           old                 updateExtent: additions, then drops;
//	                                                               the last drop: item deleted, extentGone
//	                                         flushFST              the last change of the free space tree
//
// Additions go before drops, or an extent that is moved from one file to another would be gone in
// between.
//
// A run is never the last by itself: it changes the extent tree, the free space tree and block
// group items, and each block of them that this transaction has not made yet is copied, which
// queues the new block's reference and the drop of the old one's. But a block is copied once in a
// transaction. So every round copies fewer blocks, and the rounds of RunDelayedRefs with all set,
// and around them those of transaction.settle, which writes group and root items, reach a fixpoint:
// a round that queues nothing. It is one only while no other handle is open to queue more.
//
// An extent whose last reference is dropped is pinned, not free: the trees of the last commit,
// which a crash would bring back, still use it. Unpin comes after the superblock (pinned.go).

import (
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// RunDelayedRefs turns the queue into extent items, and first enters the items of new chunks. It
// runs the queue once, or with all set until it is empty, which it becomes only when no other
// handle is open. Only the committer calls it. Models btrfs_run_delayed_refs().
func (e *ExtentTree) RunDelayedRefs(t *sched.Task, tr *ctree.Trans, all bool) error {
	e.enter(t)
	defer e.leave()
	for first := true; first || all; first = false {
		if err := e.createPendingGroups(t, tr); err != nil {
			return err
		}
		list := e.takeHeads(t)
		if len(list) == 0 {
			break
		}
		tracing := e.tracing.Load()
		for _, h := range list {
			if tracing {
				e.trace(t, h)
			}
			if err := e.runHead(t, tr, h); err != nil {
				return err
			}
		}
		if err := e.flushFST(t, tr); err != nil {
			return err
		}
		e.recycleHeads(t, list)
	}
	return nil
}

// Quiet reports whether nothing is queued: the trees agree with the allocator.
func (e *ExtentTree) Quiet(t *sched.Task) bool {
	e.refsMu.Lock(t)
	defer e.refsMu.Unlock(t)
	return len(e.heads) == 0 && len(e.pendingGroups) == 0 && len(e.dirtyGroups) == 0
}

func (e *ExtentTree) runHead(t *sched.Task, tr *ctree.Trans, h *head) error {
	if g := e.group(h.bytenr); g.pending {
		if err := e.createPendingGroups(t, tr); err != nil {
			return err
		}
	}
	var err error
	switch {
	case h.mustInsert && h.total() > 0:
		err = e.insertExtent(t, tr, h)
	case h.mustInsert:
		// Allocated and freed in one transaction. A data extent may have been written and has
		// checksums.
		e.space.Of(e.group(h.bytenr).Flags).Recorded(t, h.num)
		err = e.extentGone(t, tr, h, false)
	case len(h.mods) > 0 || h.full:
		err = e.updateExtent(t, tr, h)
	}
	if err != nil {
		return fmt.Errorf("references of extent %d, %d bytes: %w", h.bytenr, h.num, err)
	}
	if t.Tracing() {
		for _, m := range h.mods {
			h.tracedRef(t, "run", m.backRef, m.mod)
		}
		h.tracedHead(t, "run", "RUN")
	}
	return nil
}

// insertExtent records a new extent with its first reference and then the others.
// Models alloc_reserved_tree_block() and alloc_reserved_file_extent().
func (e *ExtentTree) insertExtent(t *sched.Task, tr *ctree.Trans, h *head) error {
	first := -1
	for i, m := range h.mods {
		if m.mod > 0 {
			first = i
			break
		}
	}
	m := h.mods[first]
	r := h.inlineRef(m.backRef, m.mod)
	p := &e.path
	it := format.ExtentItem{Refs: uint64(m.mod), Generation: tr.ID, Flags: format.ExtentFlagTreeBlock}
	switch {
	case h.data:
		it.Flags = format.ExtentFlagData
	case h.full:
		it.Flags |= format.BlockFlagFullBackref
	}
	key := e.extentKey(h)
	refs := it.RefsStart(key.Type)
	owner := format.InlineRef{Type: format.EXTENT_OWNER_REF_KEY, Offset: h.owner}
	if h.data && e.ownedSince.Load() != 0 {
		owner.Size = format.InlineRefSize(owner.Type)
	}
	if err := e.forest.InsertEmptyItem(t, tr, e.root, p, key, refs+owner.Size+r.Size); err != nil {
		p.Release(t)
		return err
	}
	b := p.Item()
	it.Encode(b)
	if refs > format.ExtentItemSize {
		info := format.TreeBlockInfo{First: h.first, Level: h.level}
		info.Encode(b[format.ExtentItemSize:])
	}
	if owner.Size > 0 {
		owner.Encode(b[refs:])
	}
	r.Encode(b[refs+owner.Size:])
	e.forest.DirtyLeaf(t, tr, p)
	e.counted(t, h, first)
	p.Release(t)

	e.owns(h.owner, int64(h.num), tr.ID)
	e.account(h, true)
	e.space.Of(e.group(h.bytenr).Flags).Recorded(t, h.num)
	if err := e.fstRemove(t, tr, h.span()); err != nil {
		return err
	}
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_reserved_extent_alloc", Len: h.num})
	}
	if !h.data {
		e.countTreeBlock(m.Root, 1)
	}
	return e.updateRefs(t, tr, h)
}

// updateExtent changes the flags and references of an extent that has an item.
func (e *ExtentTree) updateExtent(t *sched.Task, tr *ctree.Trans, h *head) error {
	if h.full {
		if err := e.setFullBackref(t, tr, h); err != nil {
			return err
		}
	}
	return e.updateRefs(t, tr, h)
}

// updateRefs adds and then drops the references that the item does not count yet.
func (e *ExtentTree) updateRefs(t *sched.Task, tr *ctree.Trans, h *head) error {
	for i, m := range h.mods {
		if m.mod > 0 && !m.done {
			if err := e.addExtentRef(t, tr, h, i); err != nil {
				return err
			}
		}
	}
	for i, m := range h.mods {
		if m.mod < 0 {
			if err := e.dropExtentRef(t, tr, h, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// setFullBackref models run_delayed_extent_op().
func (e *ExtentTree) setFullBackref(t *sched.Task, tr *ctree.Trans, h *head) error {
	p := &e.path
	defer p.Release(t)
	if err := e.findExtent(t, tr, p, h, 0); err != nil {
		return err
	}
	var it format.ExtentItem
	it.Decode(p.Item())
	it.Flags |= format.BlockFlagFullBackref
	it.Encode(p.Item())
	e.forest.DirtyLeaf(t, tr, p)
	return nil
}

// counted says that the item counts reference i now. The item's leaf is write-locked, so that a
// task that holds the leaf and then asks what is queued (lookupBlock) counts the reference once.
// Nobody asks this of data.
func (e *ExtentTree) counted(t *sched.Task, h *head, i int) {
	if h.data {
		h.mods[i].done = true
		return
	}
	e.refsMu.Lock(t)
	h.mods[i].done = true
	e.refsMu.Unlock(t)
}

// extentGone books the end of an extent: checksums, free space tree, pinned until the commit is
// durable. Models do_free_extent_accounting().
func (e *ExtentTree) extentGone(t *sched.Task, tr *ctree.Trans, h *head, recorded bool) error {
	if h.data && e.csums != nil {
		if err := e.csums.DelCsums(t, tr, uint64(h.bytenr), h.num); err != nil {
			return err
		}
	}
	if recorded {
		e.account(h, false)
		if err := e.fstAdd(t, tr, h.span()); err != nil {
			return err
		}
	}
	e.space.Of(e.group(h.bytenr).Flags).Freed(t, h.num)
	e.pinned = append(e.pinned, h.span())
	return nil
}

// account books an extent in its group and in bytes_used.
func (e *ExtentTree) account(h *head, alloc bool) {
	g := e.group(h.bytenr)
	if alloc {
		g.used += h.num
		e.bytesUsed += h.num
	} else {
		if g.used < h.num {
			panic(fmt.Sprintf("extenttree: group %d uses %d bytes, cannot free %d at %d", g.Start, g.used, h.num, h.bytenr))
		}
		g.used -= h.num
		e.bytesUsed -= h.num
	}
	if !g.dirty && !g.pending {
		g.dirty = true
		e.dirtyGroups = append(e.dirtyGroups, g)
	}
}

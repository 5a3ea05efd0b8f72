package extenttree

// Shared blocks. A snapshot copies the root node of a tree; everything below belongs to both trees
// from then on, and the extent tree learns of it block by block, when one of the two is about to
// change its path to a block (UpdateRefForCow):
//
//	                references of what b points at       FULL_BACKREF of b
//	b shared by S (its owner: the header names it) and T
//	  S copies b    + by parent b, for b itself          set: S's own are the copy's now
//	  T copies b    + by tree T, for the copy
//	b is T's alone, S has gone
//	  T copies b    + by tree T, - by parent b           (b goes)
//	b is S's alone
//	  S copies b    none: S's own are the copy's now     (b goes)
//
// So a reference by tree S stands for any path in S, and is counted once for a block, however many
// blocks of S share it.
//
// How many references a block has is known from its item together with what is queued. The
// committer may be turning the queue into items at the same time, so it marks each change
// (refMod.done) with the item's leaf locked, and lookupBlock asks the queue before it lets the leaf
// go.

import (
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// lookupBlock counts the references of a tree block, and says whether it has FULL_BACKREF, with all
// that is queued. Models btrfs_lookup_extent_info(). Difference: it does not wait for a head that
// is being run.
func (e *ExtentTree) lookupBlock(t *sched.Task, bytenr format.Logical, level int) (refs int64, full bool, err error) {
	var p ctree.Path
	defer p.Release(t)
	key := e.extentKey(&head{bytenr: bytenr, num: e.nodeSize, level: uint8(level)})
	found, err := e.forest.SearchSlot(t, nil, e.root, key, &p, 0, false)
	if err != nil {
		return 0, false, err
	}
	if long := e.longKey(bytenr); !found && key != long && p.Slot() > 0 && p.Leaf().Key(p.Slot()-1) == long {
		p.Slots[0]-- // an image that got its skinny metadata later
		found = true
	}
	if found {
		var it format.ExtentItem
		it.Decode(p.Item())
		refs, full = int64(it.Refs), it.Flags&format.BlockFlagFullBackref != 0
	}
	e.refsMu.Lock(t)
	for _, h := range [2]*head{e.running[bytenr], e.heads[bytenr]} {
		if h == nil {
			continue
		}
		full = full || h.full
		for _, m := range h.mods {
			if !m.done {
				refs += int64(m.mod)
			}
		}
	}
	e.refsMu.Unlock(t)
	return refs, full, nil
}

// UpdateRefForCow accounts the references of what b points at, which c, its copy in tree r, points
// at as well. b may be shared; last says that it is not, and that r's reference, which the caller
// drops, is its last. After an error the transaction must be aborted.
//
// Models fs/btrfs/ctree.c:update_ref_for_cow(). Difference: there are no relocation trees; a block
// that was relocated is told by its flag.
//
// Preconditions: both blocks are write-locked, so nobody else copies b; nobody adds references to b
// alone.
func (e *ExtentTree) UpdateRefForCow(t *sched.Task, tr *ctree.Trans, r *ctree.Root, b, c *ctree.Buffer) (last bool, err error) {
	refs, full, err := e.lookupBlock(t, format.Logical(b.Bytenr), b.Level())
	switch {
	case err != nil:
		return false, err
	case refs < 1:
		return false, fmt.Errorf("corrupt extent tree: tree block %d of tree %d, bad refs, have %d want at least 1: %w",
			b.Bytenr, int64(r.ID), refs, errno.EUCLEAN)
	case refs > 1 && b.Owner() == r.ID && !full:
		if err := e.modRefs(t, b, byParent(b), 1); err != nil {
			return false, err
		}
		e.setFull(t, b)
		return false, nil
	case refs > 1:
		return false, e.IncRefs(t, tr, r, c)
	case full:
		if err := e.IncRefs(t, tr, r, c); err != nil {
			return false, err
		}
		return true, e.modRefs(t, b, byParent(b), -1)
	}
	return true, nil
}

// setFull queues FULL_BACKREF for b. Models btrfs_set_disk_extent_flags().
func (e *ExtentTree) setFull(t *sched.Task, b *ctree.Buffer) {
	e.refsMu.Lock(t)
	e.headLocked(t, head{bytenr: format.Logical(b.Bytenr), num: e.nodeSize, level: uint8(b.Level())}).full = true
	e.refsMu.Unlock(t)
}

// byParent is the reference of what b, which has FULL_BACKREF, points at.
func byParent(b *ctree.Buffer) backRef { return backRef{parent: format.Logical(b.Bytenr)} }

// IncRefs adds a reference of tree r to everything that b points at. Models btrfs_inc_ref() without
// full_backref.
func (e *ExtentTree) IncRefs(t *sched.Task, tr *ctree.Trans, r *ctree.Root, b *ctree.Buffer) error {
	return e.modRefs(t, b, byTree(r.ID), 1)
}

// modRefs queues a reference more, or less, for everything that b points at: by parent, or by tree.
// b is locked. Models __btrfs_mod_ref().
func (e *ExtentTree) modRefs(t *sched.Task, b *ctree.Buffer, ref backRef, mod int) error {
	n := b.Node
	level := n.Level()
	for i := range n.Nritems() {
		if level > 0 {
			child := format.Logical(n.Blockptr(i))
			if g := e.groups.Load().find(child); g == nil || g.Flags&format.BlockGroupMetadata == 0 {
				return fmt.Errorf("corrupt node: block=%d slot=%d, block pointer %d lies in no metadata block group: %w",
					b.Bytenr, i, child, errno.EUCLEAN)
			}
			e.addRef(t, head{bytenr: child, num: e.nodeSize, level: uint8(level - 1)}, ref, mod)
			continue
		}
		k := n.Key(i)
		if k.Type != format.EXTENT_DATA_KEY {
			continue
		}
		fe := format.FileExtentView(n.Item(i))
		if fe.Type() == format.FileExtentTypeInline || fe.DiskBytenr() == 0 {
			continue
		}
		data := ref
		if ref.parent == 0 {
			data.Ino, data.Offset = format.Ino(k.Objectid), format.FileOff(k.Offset-fe.Offset())
		}
		if err := e.checkExtent(data.DataRef, format.Logical(fe.DiskBytenr()), fe.DiskNumBytes()); err != nil {
			return err
		}
		e.addRef(t, head{bytenr: format.Logical(fe.DiskBytenr()), num: fe.DiskNumBytes(), data: true}, data, mod)
	}
	return nil
}

package extenttree

import (
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// RunDelayedRefs turns the queue into extent items, and enters the items of new chunks on the way: once over what is
// queued, or with all set until the queue is empty, which it gets only when no other handle is open.
// Only the committer calls it. Models btrfs_run_delayed_refs().
func (e *ExtentTree) RunDelayedRefs(t *sched.Task, tr *ctree.Trans, all bool) error {
	for first := true; first || all; first = false {
		if err := e.createPendingGroups(t, tr); err != nil {
			return err
		}
		list := e.takeHeads(t)
		if len(list) == 0 {
			break
		}
		for _, h := range list {
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
		// Allocated and freed in one transaction. A data extent may have been written and has checksums.
		e.space.Of(e.group(h.bytenr).Flags).Recorded(t, h.num)
		err = e.extentGone(t, tr, h, false)
	case len(h.mods) > 0:
		err = e.updateExtent(t, tr, h)
	}
	if err != nil {
		return fmt.Errorf("references of extent %d, %d bytes: %w", h.bytenr, h.num, err)
	}
	return nil
}

func (e *ExtentTree) extentKey(h *head) format.Key {
	if h.data {
		return format.Key{Objectid: uint64(h.bytenr), Type: format.EXTENT_ITEM_KEY, Offset: h.num}
	}
	return format.Key{Objectid: uint64(h.bytenr), Type: format.METADATA_ITEM_KEY, Offset: uint64(h.level)}
}

func (h *head) inlineRef(r format.DataRef, count int) format.InlineRef {
	if !h.data {
		return format.InlineRef{Type: format.TREE_BLOCK_REF_KEY, Offset: r.Root, Size: format.InlineRefSize(format.TREE_BLOCK_REF_KEY)}
	}
	return format.InlineRef{Type: format.EXTENT_DATA_REF_KEY, Size: format.InlineRefSize(format.EXTENT_DATA_REF_KEY),
		Data: format.ExtentDataRef{DataRef: r, Count: uint32(count)}}
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
	r := h.inlineRef(m.DataRef, m.mod)
	p := &e.path
	if err := e.forest.InsertEmptyItem(t, tr, e.root, p, e.extentKey(h), format.ExtentItemSize+r.Size); err != nil {
		p.Release(t)
		return err
	}
	it := format.ExtentItem{Refs: uint64(m.mod), Generation: tr.ID, Flags: format.ExtentFlagTreeBlock}
	if h.data {
		it.Flags = format.ExtentFlagData
	}
	b := p.Item()
	it.Encode(b)
	r.Encode(b[format.ExtentItemSize:])
	e.forest.DirtyLeaf(t, tr, p)
	p.Release(t)

	e.account(t, h, true)
	e.space.Of(e.group(h.bytenr).Flags).Recorded(t, h.num)
	if err := e.fstRemove(t, tr, h.span()); err != nil {
		return err
	}
	if !h.data {
		e.countTreeBlock(m.Root, 1)
	}
	h.mods = append(h.mods[:first], h.mods[first+1:]...)
	if len(h.mods) == 0 {
		return nil
	}
	return e.updateExtent(t, tr, h)
}

// account books an extent in its group and in bytes_used.
func (e *ExtentTree) account(t *sched.Task, h *head, alloc bool) {
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

// extentGone books the end of an extent: checksums, free space tree, pinned until the commit is durable.
// Models do_free_extent_accounting().
func (e *ExtentTree) extentGone(t *sched.Task, tr *ctree.Trans, h *head, recorded bool) error {
	if h.data && e.csums != nil {
		if err := e.csums.DelCsums(t, tr, uint64(h.bytenr), h.num); err != nil {
			return err
		}
	}
	if recorded {
		e.account(t, h, false)
		if err := e.fstAdd(t, tr, h.span()); err != nil {
			return err
		}
	}
	e.space.Of(e.group(h.bytenr).Flags).Freed(t, h.num)
	e.pinned = append(e.pinned, h.span())
	return nil
}

// updateExtent adds and then drops the references of an extent that has an item.
func (e *ExtentTree) updateExtent(t *sched.Task, tr *ctree.Trans, h *head) error {
	for _, m := range h.mods {
		if m.mod > 0 {
			if err := e.addExtentRef(t, tr, h, m); err != nil {
				return err
			}
		}
	}
	for _, m := range h.mods {
		if m.mod < 0 {
			if err := e.dropExtentRef(t, tr, h, m.DataRef, -m.mod); err != nil {
				return err
			}
		}
	}
	return nil
}

// findExtent puts the path on the extent's item, ready to grow by grow bytes, or to shrink or go if grow < 0.
func (e *ExtentTree) findExtent(t *sched.Task, tr *ctree.Trans, p *ctree.Path, h *head, grow int) error {
	key := e.extentKey(h)
	found, err := e.forest.SearchSlot(t, tr, e.root, key, p, grow, true)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("corrupt extent tree: no item %v", key)
	}
	return nil
}

// findInline looks a reference up among the inline ones; pos is where it is or would go.
func (h *head) findInline(item []byte, want format.InlineRef) (refs []format.InlineRef, at int, pos int, err error) {
	refs, err = format.InlineRefs(item, format.ExtentItemSize)
	if err != nil {
		return nil, -1, 0, err
	}
	pos = len(item)
	for i, r := range refs {
		if r.Type == want.Type {
			if r.Type == format.TREE_BLOCK_REF_KEY && r.Offset == want.Offset ||
				r.Type == format.EXTENT_DATA_REF_KEY && r.Data.DataRef == want.Data.DataRef {
				return refs, i, r.Pos, nil
			}
			// Data references descend by hash, tree references by root.
			if r.Type == format.EXTENT_DATA_REF_KEY && r.Data.Hash() < want.Data.Hash() ||
				r.Type == format.TREE_BLOCK_REF_KEY && r.Offset < want.Offset {
				return refs, -1, r.Pos, nil
			}
		} else if r.Type > want.Type {
			return refs, -1, r.Pos, nil
		}
	}
	return refs, -1, pos, nil
}

// maxExtentItem is the largest extent item that takes another inline reference; beyond it references get
// items of their own. Models BTRFS_MAX_EXTENT_ITEM_SIZE().
func (e *ExtentTree) maxExtentItem() int { return int(e.nodeSize)/16 - format.ItemHeaderSize }

// addExtentRef models __btrfs_inc_extent_ref().
func (e *ExtentTree) addExtentRef(t *sched.Task, tr *ctree.Trans, h *head, m refMod) error {
	want := h.inlineRef(m.DataRef, m.mod)
	p := &e.path
	defer p.Release(t)
	// Once a reference has an item of its own none becomes inline: the same one could be there already.
	hasKeyed, err := e.hasKeyedRefs(t, h.bytenr)
	if err != nil {
		return err
	}
	p.ForExtension = true
	err = e.findExtent(t, tr, p, h, want.Size)
	p.ForExtension = false
	if err != nil {
		return err
	}
	item := p.Item()
	refs, at, pos, err := h.findInline(item, want)
	if err != nil {
		return err
	}
	keyed := at < 0 && (hasKeyed || len(item)+want.Size > e.maxExtentItem())
	switch {
	case at >= 0 && h.data:
		d := refs[at].Data
		d.Count += uint32(m.mod)
		d.Encode(item[refs[at].Pos+1:])
	case at >= 0:
		return fmt.Errorf("corrupt extent tree: tree %d refers to block twice", m.Root)
	case !keyed:
		old := len(item)
		e.forest.ExtendItem(t, p, want.Size)
		item = p.Item()
		copy(item[pos+want.Size:], item[pos:old])
		want.Encode(item[pos:])
	}
	var it format.ExtentItem
	it.Decode(item)
	it.Refs += uint64(m.mod)
	it.Encode(item)
	e.forest.DirtyLeaf(t, tr, p)
	p.Release(t)
	if keyed {
		return e.addKeyedRef(t, tr, h, m)
	}
	return nil
}

// hasKeyedRefs reports whether some reference to the extent has an item of its own.
func (e *ExtentTree) hasKeyedRefs(t *sched.Task, bytenr format.Logical) (bool, error) {
	p := &e.path2
	defer p.Release(t)
	more, err := e.forest.SearchForward(t, e.root, format.Key{Objectid: uint64(bytenr), Type: format.TREE_BLOCK_REF_KEY}, p)
	if err != nil || !more {
		return false, err
	}
	k := p.Key()
	return k.Objectid == uint64(bytenr) && k.Type < format.BLOCK_GROUP_ITEM_KEY, nil
}

// addKeyedRef gives a reference an item of its own. Colliding hashes take the next offset.
// Models insert_extent_data_ref() and insert_tree_block_ref().
func (e *ExtentTree) addKeyedRef(t *sched.Task, tr *ctree.Trans, h *head, m refMod) error {
	if !h.data {
		return e.forest.InsertItem(t, tr, e.root, format.Key{Objectid: uint64(h.bytenr), Type: format.TREE_BLOCK_REF_KEY, Offset: m.Root}, nil)
	}
	p := &e.path
	defer p.Release(t)
	want := h.inlineRef(m.DataRef, m.mod).Data
	for key := (format.Key{Objectid: uint64(h.bytenr), Type: format.EXTENT_DATA_REF_KEY, Offset: want.Hash()}); ; key.Offset++ {
		found, err := e.forest.SearchSlot(t, tr, e.root, key, p, format.ExtentDataRefSize+format.ItemHeaderSize, true)
		if err != nil {
			return err
		}
		if !found {
			p.Release(t)
			var b [format.ExtentDataRefSize]byte
			want.Encode(b[:])
			return e.forest.InsertItem(t, tr, e.root, key, b[:])
		}
		var have format.ExtentDataRef
		have.Decode(p.Item())
		if have.DataRef == want.DataRef {
			have.Count += want.Count
			have.Encode(p.Item())
			e.forest.DirtyLeaf(t, tr, p)
			return nil
		}
		p.Release(t)
	}
}

// dropExtentRef takes count references away, and the extent with the last. Models __btrfs_free_extent().
func (e *ExtentTree) dropExtentRef(t *sched.Task, tr *ctree.Trans, h *head, r format.DataRef, count int) error {
	want := h.inlineRef(r, count)
	p := &e.path
	defer p.Release(t)
	if err := e.findExtent(t, tr, p, h, -1); err != nil {
		return err
	}
	item := p.Item()
	refs, at, _, err := h.findInline(item, want)
	if err != nil {
		return err
	}
	if at < 0 {
		// The reference has an item of its own.
		p.Release(t)
		if err := e.dropKeyedRef(t, tr, h, r, count); err != nil {
			return err
		}
		if err := e.findExtent(t, tr, p, h, -1); err != nil {
			return err
		}
		item = p.Item()
	} else if have := refs[at]; h.data && int(have.Data.Count) < count {
		return fmt.Errorf("corrupt extent tree: inode %d of tree %d has %d references, cannot drop %d",
			r.Ino, r.Root, have.Data.Count, count)
	}
	var it format.ExtentItem
	it.Decode(item)
	if it.Refs < uint64(count) {
		return fmt.Errorf("corrupt extent tree: refs %d, cannot drop %d", it.Refs, count)
	}
	it.Refs -= uint64(count)
	if it.Refs == 0 {
		if err := e.forest.DelItems(t, tr, e.root, p, p.Slot(), 1); err != nil {
			return err
		}
		p.Release(t)
		if !h.data {
			e.countTreeBlock(r.Root, -1)
		}
		return e.extentGone(t, tr, h, true)
	}
	it.Encode(item)
	if at >= 0 {
		have := refs[at]
		if h.data && int(have.Data.Count) > count {
			have.Data.Count -= uint32(count)
			have.Data.Encode(item[have.Pos+1:])
		} else {
			copy(item[have.Pos:], item[have.Pos+have.Size:])
			e.forest.TruncateItem(t, p, len(item)-have.Size, true)
		}
	}
	e.forest.DirtyLeaf(t, tr, p)
	return nil
}

// dropKeyedRef models remove_extent_data_ref() and lookup_tree_block_ref().
func (e *ExtentTree) dropKeyedRef(t *sched.Task, tr *ctree.Trans, h *head, r format.DataRef, count int) error {
	p := &e.path
	defer p.Release(t)
	want := h.inlineRef(r, count)
	key := format.Key{Objectid: uint64(h.bytenr), Type: format.TREE_BLOCK_REF_KEY, Offset: r.Root}
	if h.data {
		key = format.Key{Objectid: uint64(h.bytenr), Type: format.EXTENT_DATA_REF_KEY, Offset: want.Data.Hash()}
	}
	for ; ; key.Offset++ {
		found, err := e.forest.SearchSlot(t, tr, e.root, key, p, -1, true)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("corrupt extent tree: no reference of inode %d in tree %d at offset %d", r.Ino, r.Root, r.Offset)
		}
		if !h.data {
			return e.forest.DelItems(t, tr, e.root, p, p.Slot(), 1)
		}
		var have format.ExtentDataRef
		have.Decode(p.Item())
		if have.DataRef == r {
			if int(have.Count) < count {
				return fmt.Errorf("corrupt extent tree: inode %d of tree %d has %d references, cannot drop %d",
					r.Ino, r.Root, have.Count, count)
			}
			if int(have.Count) == count {
				return e.forest.DelItems(t, tr, e.root, p, p.Slot(), 1)
			}
			have.Count -= uint32(count)
			have.Encode(p.Item())
			e.forest.DirtyLeaf(t, tr, p)
			return nil
		}
		p.Release(t)
	}
}

// WriteDirtyGroups writes the used bytes of the groups that changed into their items.
// Models btrfs_write_dirty_block_groups().
func (e *ExtentTree) WriteDirtyGroups(t *sched.Task, tr *ctree.Trans) error {
	for len(e.dirtyGroups) > 0 {
		g := e.dirtyGroups[len(e.dirtyGroups)-1]
		e.dirtyGroups = e.dirtyGroups[:len(e.dirtyGroups)-1]
		g.dirty = false
		if err := e.writeGroup(t, tr, g); err != nil {
			return fmt.Errorf("block group %d: %w", g.Start, err)
		}
	}
	return nil
}

func (e *ExtentTree) writeGroup(t *sched.Task, tr *ctree.Trans, g *BlockGroup) error {
	p := &e.path
	defer p.Release(t)
	key := format.Key{Objectid: uint64(g.Start), Type: format.BLOCK_GROUP_ITEM_KEY, Offset: g.Length}
	found, err := e.forest.SearchSlot(t, tr, e.root, key, p, 0, true)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("corrupt extent tree: no item %v", key)
	}
	it := format.BlockGroupItem{Used: g.used, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: g.Flags}
	it.Encode(p.Item())
	e.forest.DirtyLeaf(t, tr, p)
	return nil
}

// createPendingGroups enters what a new chunk needs: CHUNK_ITEM, DEV_EXTENTs, the device's used bytes, BLOCK_GROUP_ITEM
// and its free space. Models btrfs_create_pending_block_groups().
func (e *ExtentTree) createPendingGroups(t *sched.Task, tr *ctree.Trans) error {
	for {
		e.refsMu.Lock(t)
		var g *BlockGroup
		if n := len(e.pendingGroups); n > 0 {
			g, e.pendingGroups = e.pendingGroups[0], e.pendingGroups[1:]
		}
		e.refsMu.Unlock(t)
		if g == nil {
			return nil
		}
		if err := e.createGroup(t, tr, g); err != nil {
			return fmt.Errorf("new block group %d: %w", g.Start, err)
		}
	}
}

func (e *ExtentTree) createGroup(t *sched.Task, tr *ctree.Trans, g *BlockGroup) error {
	c, ok := e.vols.Lookup(uint64(g.Start))
	if !ok || c.Logical != uint64(g.Start) {
		panic(fmt.Sprintf("extenttree: no chunk for block group %d", g.Start))
	}
	g.pending = false
	b := make([]byte, c.Chunk.Size())
	c.Chunk.Encode(b)
	key := format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: uint64(g.Start)}
	if err := e.forest.InsertItem(t, tr, e.chunk, key, b); err != nil {
		return err
	}
	for _, s := range c.Chunk.Stripes {
		d := format.DevExtent{ChunkTree: format.CHUNK_TREE_OBJECTID, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID,
			ChunkOffset: uint64(g.Start), Length: g.Length}
		d.ChunkTreeUUID = e.uuid
		var b [format.DevExtentSize]byte
		d.Encode(b[:])
		key := format.Key{Objectid: s.Devid, Type: format.DEV_EXTENT_KEY, Offset: s.Offset}
		if err := e.forest.InsertItem(t, tr, e.dev, key, b[:]); err != nil {
			return err
		}
	}
	if err := e.updateDevItem(t, tr); err != nil {
		return err
	}
	var bg [format.BlockGroupItemSize]byte
	it := format.BlockGroupItem{Used: g.used, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: g.Flags}
	it.Encode(bg[:])
	key = format.Key{Objectid: uint64(g.Start), Type: format.BLOCK_GROUP_ITEM_KEY, Offset: g.Length}
	if err := e.forest.InsertItem(t, tr, e.root, key, bg[:]); err != nil {
		return err
	}
	return e.fstNewGroup(t, tr, g)
}

// updateDevItem writes the device's used bytes into the chunk tree; the superblock's copy is made from the same.
func (e *ExtentTree) updateDevItem(t *sched.Task, tr *ctree.Trans) error {
	p := &e.path
	defer p.Release(t)
	key := format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: e.devid}
	found, err := e.forest.SearchSlot(t, tr, e.chunk, key, p, 0, true)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("corrupt chunk tree: no item %v", key)
	}
	var d format.DevItem
	d.Decode(p.Item())
	d.BytesUsed = e.vols.BytesUsed()
	d.Encode(p.Item())
	e.forest.DirtyLeaf(t, tr, p)
	return nil
}

// Pinned is space that the running transaction freed.
type Pinned []span

// TakePinned hands over what was pinned so far. The commit calls it when nothing of its transaction is left to run.
func (e *ExtentTree) TakePinned() Pinned {
	p := e.pinned
	e.pinned = nil
	return p
}

// Unpin makes the space allocatable: the commit that freed it is durable. Models btrfs_finish_extent_commit().
func (e *ExtentTree) Unpin(t *sched.Task, p Pinned) {
	for _, s := range p {
		e.giveBack(t, s)
		e.space.Of(e.group(s.Start).Flags).Unpinned(t, s.Len())
	}
}

// delayedCrossRef looks at what is queued for the extent: other says that somebody else refers to it, fresh that it has no item
// yet and want is its only reference. Models check_delayed_ref().
func (e *ExtentTree) delayedCrossRef(t *sched.Task, want format.DataRef, bytenr format.Logical) (other, fresh bool) {
	e.refsMu.Lock(t)
	defer e.refsMu.Unlock(t)
	if r, ok := e.inserting[bytenr]; ok {
		other, fresh = r != want, true
	}
	if h := e.heads[bytenr]; h != nil {
		fresh = fresh || h.mustInsert
		for _, m := range h.mods {
			other = other || m.DataRef != want
		}
	}
	return other, fresh
}

// CrossRefExist reports whether anything but own refers to the data extent at bytenr: then it may not be overwritten in
// place. With nowait it answers EAGAIN rather than wait or read.
// Models btrfs_cross_ref_exist(): check_delayed_ref(), then check_committed_ref().
func (e *ExtentTree) CrossRefExist(t *sched.Task, own format.DataRef, bytenr format.Logical, nowait bool) (bool, error) {
	if other, fresh := e.delayedCrossRef(t, own, bytenr); other || fresh {
		return other, nil
	}
	var p ctree.Path
	p.Nowait = nowait
	defer p.Release(t)
	// Only the length is missing from the key; an extent's items are contiguous from (bytenr, EXTENT_ITEM) on.
	key := format.Key{Objectid: uint64(bytenr), Type: format.EXTENT_ITEM_KEY}
	if _, err := e.forest.SearchSlot(t, nil, e.root, key, &p, 0, false); err != nil {
		return true, err
	}
	if p.Slot() >= p.Leaf().Nritems() {
		if more, err := e.forest.NextLeaf(t, e.root, &p); err != nil || !more {
			return true, err
		}
	}
	if k := p.Key(); k.Objectid != key.Objectid || k.Type != format.EXTENT_ITEM_KEY {
		return true, nil
	}
	item := p.Item()
	var it format.ExtentItem
	it.Decode(item)
	refs, err := format.InlineRefs(item, format.ExtentItemSize)
	if err != nil {
		return true, err
	}
	if len(refs) != 1 || refs[0].Type != format.EXTENT_DATA_REF_KEY || uint64(refs[0].Count) != it.Refs {
		return true, nil
	}
	return refs[0].Data.DataRef != own, nil
}

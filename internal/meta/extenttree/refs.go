package extenttree

// The references of one extent, as they lie in the extent tree:
//
//	key (bytenr EXTENT_ITEM length)      data; a tree block has (bytenr METADATA_ITEM level)
//	+------+------------+-------+-----+------+-----+--------+-------+-----+--- - -
//	| refs | generation | flags | 178 | root | ino | offset | count | 178 | ...
//	+------+------------+-------+-----+------+-----+--------+-------+-----+--- - -
//	 ExtentItem                  inline references, ascending by type, then descending by hash;
//	                             a tree block's is only 176 and the root
//
//	key (bytenr EXTENT_DATA_REF hash)
//	+------+-----+--------+-------+
//	| root | ino | offset | count |      a keyed reference; when the hash is taken, at hash+1, +2, ...
//	+------+-----+--------+-------+
//
// refs is the sum of all counts, inline and keyed. A reference becomes keyed when the item would grow over
// maxExtentItem, and once there is a keyed one, every new reference is keyed: the same one could be keyed
// already, and a reference must not be in both places. A drop looks at the inline ones first.

import (
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

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

package extenttree

// The references of one extent, as they lie in the extent tree:
//
//	key (bytenr EXTENT_ITEM length)      data; a tree block has (bytenr METADATA_ITEM level), or the
//	                                     same as data and a TreeBlockInfo before its references
//	+------+------------+-------+-----+------+-----+--------+-------+-----+--- - -
//	| refs | generation | flags | 178 | root | ino | offset | count | 178 | ...
//	+------+------------+-------+-----+------+-----+--------+-------+-----+--- - -
//	 ExtentItem                  inline references, ascending by type, then descending by hash, root or parent;
//	                             a tree block's is only 176 and the root; with simple quotas data has first
//	                             172 and the root that allocated it, which counts for nothing in refs
//
//	key (bytenr EXTENT_DATA_REF hash)
//	+------+-----+--------+-------+
//	| root | ino | offset | count |      a keyed reference; when the hash is taken, at hash+1, +2, ...
//	+------+-----+--------+-------+
//
// What a block with FULL_BACKREF points at has a reference by that block instead, its parent: 182
// and the parent of a tree block, 184, the parent and a count of data; keyed, the parent is the
// key's offset (shared.go).
//
// refs is the sum of all counts, inline and keyed. A reference becomes keyed when the item would
// grow over maxExtentItem, and once there is a keyed one, every new reference is keyed: the same
// one could be keyed already, and a reference must not be in both places. A drop looks at the
// inline ones first.

import (
	"encoding/binary"
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// extentKey is the key that the item of a new extent gets.
func (e *ExtentTree) extentKey(h *head) format.Key {
	if h.data || !e.skinny {
		return format.Key{Objectid: uint64(h.bytenr), Type: format.EXTENT_ITEM_KEY, Offset: h.num}
	}
	return format.Key{Objectid: uint64(h.bytenr), Type: format.METADATA_ITEM_KEY, Offset: uint64(h.level)}
}

func (h *head) inlineRef(r backRef, count int) format.InlineRef {
	ref := format.InlineRef{Count: uint32(count)}
	switch {
	case h.data && r.parent != 0:
		ref.Type, ref.Offset = format.SHARED_DATA_REF_KEY, uint64(r.parent)
	case h.data:
		ref.Type, ref.Data = format.EXTENT_DATA_REF_KEY, format.ExtentDataRef{DataRef: r.DataRef, Count: uint32(count)}
	case r.parent != 0:
		ref.Type, ref.Offset = format.SHARED_BLOCK_REF_KEY, uint64(r.parent)
	default:
		ref.Type, ref.Offset = format.TREE_BLOCK_REF_KEY, r.Root
	}
	ref.Size = format.InlineRefSize(ref.Type)
	return ref
}

// keyOf is the key that the reference has in an item of its own; of an EXTENT_DATA_REF the first
// that it may have.
func (h *head) keyOf(r *format.InlineRef) format.Key {
	k := format.Key{Objectid: uint64(h.bytenr), Type: r.Type, Offset: r.Offset}
	if r.Type == format.EXTENT_DATA_REF_KEY {
		k.Offset = r.Data.Hash()
	}
	return k
}

// findExtent puts the path on the extent's item, ready to grow by grow bytes, or to shrink or go if
// grow < 0. In an image that got its skinny metadata later older blocks have the longer item.
func (e *ExtentTree) findExtent(t *sched.Task, tr *ctree.Trans, p *ctree.Path, h *head, grow int) error {
	key := e.extentKey(h)
	found, err := e.forest.SearchSlot(t, tr, e.root, key, p, grow, true)
	if err == nil && !found && key.Type == format.METADATA_ITEM_KEY {
		p.Release(t)
		found, err = e.forest.SearchSlot(t, tr, e.root, e.longKey(h.bytenr), p, grow, true)
	}
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("corrupt extent tree: no item %v", key)
	}
	return nil
}

// longKey is the key of a tree block's item in an image without skinny metadata.
func (e *ExtentTree) longKey(bytenr format.Logical) format.Key {
	return format.Key{Objectid: uint64(bytenr), Type: format.EXTENT_ITEM_KEY, Offset: e.nodeSize}
}

// findInline looks a reference up among the inline ones of the path's item; pos is where it is or
// would go.
func findInline(p *ctree.Path, want format.InlineRef) (refs []format.InlineRef, at int, pos int, err error) {
	item := p.Item()
	refs, err = inlineRefs(p.Key(), item)
	if err != nil {
		return nil, -1, 0, err
	}
	pos = len(item)
	for i, r := range refs {
		if r.Type == want.Type {
			byFile := r.Type == format.EXTENT_DATA_REF_KEY
			if byFile && r.Data.DataRef == want.Data.DataRef || !byFile && r.Offset == want.Offset {
				return refs, i, r.Pos, nil
			}
			// References by file descend by hash, the others by root or parent.
			if byFile && r.Data.Hash() < want.Data.Hash() || !byFile && r.Offset < want.Offset {
				return refs, -1, r.Pos, nil
			}
		} else if r.Type > want.Type {
			return refs, -1, r.Pos, nil
		}
	}
	return refs, -1, pos, nil
}

// inlineRefs reads the inline references of an extent item.
func inlineRefs(k format.Key, item []byte) ([]format.InlineRef, error) {
	var it format.ExtentItem
	it.Decode(item)
	return format.InlineRefs(item, it.RefsStart(k.Type))
}

// maxExtentItem is the largest extent item that takes another inline reference; beyond it
// references get items of their own. Models BTRFS_MAX_EXTENT_ITEM_SIZE().
func (e *ExtentTree) maxExtentItem() int { return int(e.nodeSize)/16 - format.ItemHeaderSize }

// setCount changes the count of a data reference.
func setCount(r *format.InlineRef, n uint32) { r.Count, r.Data.Count = n, n }

// keyedItem is the item of a data reference of its own, in buf.
func keyedItem(r *format.InlineRef, buf *[format.ExtentDataRefSize]byte) []byte {
	if r.Type == format.SHARED_DATA_REF_KEY {
		binary.LittleEndian.PutUint32(buf[:], r.Count)
		return buf[:4]
	}
	r.Data.Encode(buf[:])
	return buf[:]
}

// addExtentRef adds reference i of the head. Models __btrfs_inc_extent_ref().
func (e *ExtentTree) addExtentRef(t *sched.Task, tr *ctree.Trans, h *head, i int) error {
	m := h.mods[i]
	want := h.inlineRef(m.backRef, m.mod)
	p := &e.path
	defer p.Release(t)
	// Once a reference has an item of its own none becomes inline: the same one could be there
	// already.
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
	refs, at, pos, err := findInline(p, want)
	if err != nil {
		return err
	}
	keyed := at < 0 && (hasKeyed || len(item)+want.Size > e.maxExtentItem())
	switch {
	case at >= 0 && h.data:
		setCount(&refs[at], refs[at].Count+want.Count)
		refs[at].Encode(item[refs[at].Pos:])
	case at >= 0:
		return fmt.Errorf("corrupt extent tree: %v refers to block twice", m.backRef)
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
	e.counted(t, h, i)
	p.Release(t)
	if keyed {
		return e.addKeyedRef(t, tr, h, &want)
	}
	return nil
}

// dropExtentRef drops reference i of the head, and the extent with the last. Models
// __btrfs_free_extent().
func (e *ExtentTree) dropExtentRef(t *sched.Task, tr *ctree.Trans, h *head, i int) error {
	r, count := h.mods[i].backRef, -h.mods[i].mod
	want := h.inlineRef(r, count)
	p := &e.path
	defer p.Release(t)
	if err := e.findExtent(t, tr, p, h, -1); err != nil {
		return err
	}
	item := p.Item()
	refs, at, _, err := findInline(p, want)
	if err != nil {
		return err
	}
	if at < 0 {
		// The reference has an item of its own.
		p.Release(t)
		if err := e.dropKeyedRef(t, tr, h, &want); err != nil {
			return err
		}
		if err := e.findExtent(t, tr, p, h, -1); err != nil {
			return err
		}
		item = p.Item()
	} else if have := refs[at]; h.data && int(have.Count) < count {
		return fmt.Errorf("corrupt extent tree: %v has %d references, cannot drop %d", r, have.Count, count)
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
		e.counted(t, h, i)
		p.Release(t)
		e.owns(h.ownerOf(refs), -int64(h.num), it.Generation)
		if !h.data {
			e.countTreeBlock(r.Root, -1)
		}
		return e.extentGone(t, tr, h, true)
	}
	it.Encode(item)
	if at >= 0 {
		have := refs[at]
		if h.data && int(have.Count) > count {
			setCount(&have, have.Count-want.Count)
			have.Encode(item[have.Pos:])
		} else {
			copy(item[have.Pos:], item[have.Pos+have.Size:])
			e.forest.TruncateItem(t, p, len(item)-have.Size, true)
		}
	}
	e.forest.DirtyLeaf(t, tr, p)
	e.counted(t, h, i)
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
func (e *ExtentTree) addKeyedRef(t *sched.Task, tr *ctree.Trans, h *head, want *format.InlineRef) error {
	if !h.data {
		return e.forest.InsertItem(t, tr, e.root, h.keyOf(want), nil)
	}
	p := &e.path
	defer p.Release(t)
	var buf [format.ExtentDataRefSize]byte
	b := keyedItem(want, &buf)
	for key := h.keyOf(want); ; key.Offset++ {
		found, err := e.forest.SearchSlot(t, tr, e.root, key, p, len(b)+format.ItemHeaderSize, true)
		if err != nil {
			return err
		}
		if !found {
			p.Release(t)
			return e.forest.InsertItem(t, tr, e.root, key, b)
		}
		if have, same := keyedRef(want, p.Item()); same {
			setCount(&have, have.Count+want.Count)
			copy(p.Item(), keyedItem(&have, &buf))
			e.forest.DirtyLeaf(t, tr, p)
			return nil
		}
		p.Release(t)
	}
}

// keyedRef reads the item of a data reference and says whether it is want's.
func keyedRef(want *format.InlineRef, item []byte) (have format.InlineRef, same bool) {
	have.Type = want.Type
	if want.Type == format.SHARED_DATA_REF_KEY {
		have.Count = format.SharedDataRefCount(item)
		return have, true
	}
	have.Data.Decode(item)
	have.Count = have.Data.Count
	return have, have.Data.DataRef == want.Data.DataRef
}

// dropKeyedRef models remove_extent_data_ref() and lookup_tree_block_ref().
func (e *ExtentTree) dropKeyedRef(t *sched.Task, tr *ctree.Trans, h *head, want *format.InlineRef) error {
	p := &e.path
	defer p.Release(t)
	for key := h.keyOf(want); ; key.Offset++ {
		found, err := e.forest.SearchSlot(t, tr, e.root, key, p, -1, true)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("corrupt extent tree: no reference %v of extent %d", key, h.bytenr)
		}
		if !h.data {
			return e.forest.DelItems(t, tr, e.root, p, p.Slot(), 1)
		}
		if have, same := keyedRef(want, p.Item()); same {
			switch {
			case have.Count < want.Count:
				return fmt.Errorf("corrupt extent tree: reference %v of extent %d, have %d cannot drop %d", key, h.bytenr, have.Count, want.Count)
			case have.Count == want.Count:
				return e.forest.DelItems(t, tr, e.root, p, p.Slot(), 1)
			}
			setCount(&have, have.Count-want.Count)
			var buf [format.ExtentDataRefSize]byte
			copy(p.Item(), keyedItem(&have, &buf))
			e.forest.DirtyLeaf(t, tr, p)
			return nil
		}
		p.Release(t)
	}
}

package extenttree

import (
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// The free space tree says, for every block group, what no extent item covers: as (start,
// FREE_SPACE_EXTENT, length) keys or, in a group that Linux found fragmented, as bitmaps of
// sectors. Superblock copies count as free in it.
//
// Extents are allocated and freed in runs, so changes are collected while they touch: fstOp.

// fstOp is a change that is not in the tree yet.
type fstOp struct {
	group *BlockGroup
	span  span
	add   bool
}

// fstRemove says that s is no longer free. Models remove_from_free_space_tree().
func (e *ExtentTree) fstRemove(t *sched.Task, tr *ctree.Trans, s span) error {
	return e.fstChange(t, tr, s, false)
}

// fstAdd says that s is free. Models add_to_free_space_tree().
func (e *ExtentTree) fstAdd(t *sched.Task, tr *ctree.Trans, s span) error {
	return e.fstChange(t, tr, s, true)
}

func (e *ExtentTree) fstChange(t *sched.Task, tr *ctree.Trans, s span, add bool) error {
	if e.fst == nil {
		return nil
	}
	o := &e.fstOp
	if o.group != nil && o.add == add && o.span.End == s.Start && s.Start < o.group.end() {
		o.span.End = s.End
		return nil
	}
	if err := e.flushFST(t, tr); err != nil {
		return err
	}
	*o = fstOp{e.group(s.Start), s, add}
	return nil
}

// flushFST enters the collected change.
func (e *ExtentTree) flushFST(t *sched.Task, tr *ctree.Trans) error {
	o := e.fstOp
	if o.group == nil {
		return nil
	}
	e.fstOp = fstOp{}
	info, err := e.fstInfo(t, o.group)
	if err != nil {
		return err
	}
	var delta int
	switch {
	case info.Flags&format.FreeSpaceUsingBitmaps != 0:
		delta, err = e.fstBitmap(t, tr, o)
	case o.add:
		delta, err = e.fstAddExtent(t, tr, o)
	default:
		delta, err = e.fstRemoveExtent(t, tr, o)
	}
	if err == nil && delta != 0 {
		err = e.fstCount(t, tr, o.group, delta)
	}
	if err != nil {
		return fmt.Errorf("free space tree, block group %d: %w", o.group.Start, err)
	}
	return nil
}

func fstInfoKey(g *BlockGroup) format.Key {
	return format.Key{Objectid: uint64(g.Start), Type: format.FREE_SPACE_INFO_KEY, Offset: g.Length}
}

func (e *ExtentTree) fstInfo(t *sched.Task, g *BlockGroup) (info format.FreeSpaceInfo, err error) {
	p := &e.path2
	defer p.Release(t)
	found, err := e.forest.SearchSlot(t, nil, e.fst, fstInfoKey(g), p, 0, false)
	if err == nil && !found {
		err = fmt.Errorf("corrupt free space tree: no item %v", fstInfoKey(g))
	}
	if err == nil {
		info.Decode(p.Item())
	}
	return info, err
}

// fstCount changes a group's extent count.
func (e *ExtentTree) fstCount(t *sched.Task, tr *ctree.Trans, g *BlockGroup, delta int) error {
	p := &e.path2
	defer p.Release(t)
	found, err := e.forest.SearchSlot(t, tr, e.fst, fstInfoKey(g), p, 0, true)
	if err == nil && !found {
		err = fmt.Errorf("corrupt free space tree: no item %v", fstInfoKey(g))
	}
	if err != nil {
		return err
	}
	var info format.FreeSpaceInfo
	info.Decode(p.Item())
	info.ExtentCount += uint32(delta)
	info.Encode(p.Item())
	e.forest.DirtyLeaf(t, tr, p)
	return nil
}

func fstExtentKey(s span) format.Key {
	return format.Key{Objectid: uint64(s.Start), Type: format.FREE_SPACE_EXTENT_KEY, Offset: s.Len()}
}

// fstNewGroup enters a group with what is free in it.
func (e *ExtentTree) fstNewGroup(t *sched.Task, tr *ctree.Trans, g *BlockGroup, free []span) error {
	if e.fst == nil {
		return nil
	}
	var b [format.FreeSpaceInfoSize]byte
	info := format.FreeSpaceInfo{ExtentCount: uint32(len(free))}
	info.Encode(b[:])
	if err := e.forest.InsertItem(t, tr, e.fst, fstInfoKey(g), b[:]); err != nil {
		return err
	}
	for _, s := range free {
		if err := e.forest.InsertItem(t, tr, e.fst, fstExtentKey(s), nil); err != nil {
			return err
		}
	}
	return nil
}

// fstCovering finds the free extent that holds the byte at off, in extent form.
func (e *ExtentTree) fstCovering(t *sched.Task, off format.Logical) (span, bool, error) {
	p := &e.path2
	defer p.Release(t)
	// The last key that starts at or before off.
	key := format.Key{Objectid: uint64(off), Type: format.FREE_SPACE_EXTENT_KEY, Offset: ^uint64(0)}
	if more, err := e.forest.SearchBackward(t, e.fst, key, p); err != nil || !more {
		return span{}, false, err
	}
	k := p.Key()
	s := spanOf(format.Logical(k.Objectid), k.Offset)
	return s, k.Type == format.FREE_SPACE_EXTENT_KEY && s.Contains(off), nil
}

func (e *ExtentTree) fstDelete(t *sched.Task, tr *ctree.Trans, s span) error {
	p := &e.path2
	defer p.Release(t)
	found, err := e.forest.SearchSlot(t, tr, e.fst, fstExtentKey(s), p, -1, true)
	if err == nil && !found {
		err = fmt.Errorf("corrupt free space tree: no item %v", fstExtentKey(s))
	}
	if err != nil {
		return err
	}
	return e.forest.DelItems(t, tr, e.fst, p, p.Slot(), 1)
}

// fstReplace changes a free extent's key. The order in the tree stays, because old and new overlap
// or touch and lie between the same neighbours.
func (e *ExtentTree) fstReplace(t *sched.Task, tr *ctree.Trans, old, now span) error {
	p := &e.path2
	defer p.Release(t)
	found, err := e.forest.SearchSlot(t, tr, e.fst, fstExtentKey(old), p, -1, true)
	if err == nil && !found {
		err = fmt.Errorf("corrupt free space tree: no item %v", fstExtentKey(old))
	}
	if err != nil {
		return err
	}
	e.forest.SetItemKeySafe(t, p, fstExtentKey(now))
	e.forest.DirtyLeaf(t, tr, p)
	return nil
}

func (e *ExtentTree) fstRemoveExtent(t *sched.Task, tr *ctree.Trans, o fstOp) (delta int, err error) {
	s, ok, err := e.fstCovering(t, o.span.Start)
	if err != nil {
		return 0, err
	}
	if !ok || s.End < o.span.End {
		return 0, fmt.Errorf("corrupt free space tree: [%d,%d) is not free, have [%d,%d)", o.span.Start, o.span.End, s.Start, s.End)
	}
	left := span{Start: s.Start, End: o.span.Start}
	right := span{Start: o.span.End, End: s.End}
	switch {
	case left.Empty() && right.Empty():
		return -1, e.fstDelete(t, tr, s)
	case left.Empty():
		return 0, e.fstReplace(t, tr, s, right)
	}
	if err := e.fstReplace(t, tr, s, left); err != nil || right.Empty() {
		return 0, err
	}
	return 1, e.forest.InsertItem(t, tr, e.fst, fstExtentKey(right), nil)
}

func (e *ExtentTree) fstAddExtent(t *sched.Task, tr *ctree.Trans, o fstOp) (delta int, err error) {
	now := o.span
	var left, right span
	var hasLeft, hasRight bool
	if now.Start > o.group.Start {
		if left, hasLeft, err = e.fstCovering(t, now.Start-1); err != nil {
			return 0, err
		}
		if hasLeft && left.End > now.Start {
			return 0, fmt.Errorf("corrupt free space tree: [%d,%d) is free already in [%d,%d)", now.Start, now.End, left.Start, left.End)
		}
	}
	if now.End < o.group.end() {
		if right, hasRight, err = e.fstCovering(t, now.End); err != nil {
			return 0, err
		}
	}
	switch {
	case hasLeft && hasRight:
		if err := e.fstDelete(t, tr, right); err != nil {
			return 0, err
		}
		return -1, e.fstReplace(t, tr, left, span{Start: left.Start, End: right.End})
	case hasLeft:
		return 0, e.fstReplace(t, tr, left, span{Start: left.Start, End: now.End})
	case hasRight:
		return 0, e.fstReplace(t, tr, right, span{Start: now.Start, End: right.End})
	}
	return 1, e.forest.InsertItem(t, tr, e.fst, fstExtentKey(now), nil)
}

// fstBitmap sets or clears the bits of a range in a group kept as bitmaps, and counts how the
// number of free runs changes: by looking at the bits beside the range. Models
// modify_free_space_bitmap().
func (e *ExtentTree) fstBitmap(t *sched.Task, tr *ctree.Trans, o fstOp) (delta int, err error) {
	prev, next := false, false
	if o.span.Start > o.group.Start {
		if prev, err = e.fstBit(t, o.span.Start-format.SectorSize); err != nil {
			return 0, err
		}
	}
	if o.span.End < o.group.end() {
		if next, err = e.fstBit(t, o.span.End); err != nil {
			return 0, err
		}
	}
	for off := o.span.Start; off < o.span.End; {
		p := &e.path2
		s, err := e.fstFindBitmap(t, tr, p, off)
		if err != nil {
			return 0, err
		}
		end := min(o.span.End, s.End)
		bits := p.Item()
		for ; off < end; off += format.SectorSize {
			n := (off - s.Start) / format.SectorSize
			if bits[n/8]>>(n%8)&1 == 1 == o.add {
				p.Release(t)
				return 0, fmt.Errorf("corrupt free space tree: bit for %d is %v already", off, o.add)
			}
			bits[n/8] ^= 1 << (n % 8)
		}
		e.forest.DirtyLeaf(t, tr, p)
		p.Release(t)
	}
	// A free run between two free neighbours joins them; between two used ones it is new.
	delta = 1
	if prev {
		delta--
	}
	if next {
		delta--
	}
	if !o.add {
		delta = -delta
	}
	return delta, nil
}

// fstFindBitmap puts the path on the bitmap item that covers off, for change if tr is given.
func (e *ExtentTree) fstFindBitmap(t *sched.Task, tr *ctree.Trans, p *ctree.Path, off format.Logical) (span, error) {
	found, err := e.forest.SearchSlot(t, tr, e.fst, format.Key{Objectid: uint64(off), Type: format.FREE_SPACE_BITMAP_KEY, Offset: ^uint64(0)}, p, 0, tr != nil)
	if err != nil {
		return span{}, err
	}
	if !found {
		// Every item before the slot is before the key; slot 0 is the start of the tree.
		if p.Slot() == 0 {
			p.Release(t)
			return span{}, fmt.Errorf("corrupt free space tree: no bitmap for %d", off)
		}
		p.Slots[0]--
	}
	k := p.Key()
	s := spanOf(format.Logical(k.Objectid), k.Offset)
	if k.Type != format.FREE_SPACE_BITMAP_KEY || !s.Contains(off) {
		p.Release(t)
		return span{}, fmt.Errorf("corrupt free space tree: no bitmap for %d, have %v", off, k)
	}
	return s, nil
}

func (e *ExtentTree) fstBit(t *sched.Task, off format.Logical) (bool, error) {
	p := &e.path2
	s, err := e.fstFindBitmap(t, nil, p, off)
	if err != nil {
		return false, err
	}
	defer p.Release(t)
	n := (off - s.Start) / format.SectorSize
	return p.Item()[n/8]>>(n%8)&1 == 1, nil
}

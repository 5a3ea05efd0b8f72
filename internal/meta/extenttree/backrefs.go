package extenttree

import (
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// Extent is what the extent tree says of an extent: its item, and the back references in it and in
// items of their own.
type Extent struct {
	Bytenr     format.Logical
	Length     uint64 // bytes
	Data       bool
	Level      int // of a tree block
	Generation uint64
	Full       bool // a tree block with FULL_BACKREF
	// Owner is the tree that allocated the extent: of data 0, but in an image with simple quotas.
	// Of a tree block its header says it, and whoever reads that fills it in.
	Owner uint64
	Refs  []format.InlineRef
}

// Span is the bytes of the extent.
func (x *Extent) Span() format.Range[format.Logical] { return spanOf(x.Bytenr, x.Length) }

// head is the extent as a delayed reference describes it.
func (x *Extent) head() head {
	return head{bytenr: x.Bytenr, num: x.Length, data: x.Data, level: uint8(x.Level)}
}

// ReadExtent reads what the extent tree extent of f says of the extent at bytenr, with p, which is
// empty before and after. found is false when there is no item of it.
func ReadExtent(t *sched.Task, f *ctree.Forest, extent *ctree.Root, bytenr uint64, p *ctree.Path) (x Extent, found bool, err error) {
	defer p.Release(t)
	more, err := f.SearchForward(t, extent, format.Key{Objectid: bytenr, Type: format.EXTENT_ITEM_KEY}, p)
	if err != nil || !more || p.Key().Objectid != bytenr {
		return x, false, err
	}
	for ; more && err == nil && p.Key().Objectid == bytenr; more, err = f.NextItem(t, extent, p) {
		isItem, err := x.add(p.Key(), p.Item(), uint64(f.NodeSize()))
		if err != nil {
			return x, false, err
		}
		found = found || isItem
	}
	return x, found, err
}

// add takes an item of the extent tree that belongs to the extent, and says whether it is the
// extent's own.
func (x *Extent) add(k format.Key, item []byte, nodeSize uint64) (isItem bool, err error) {
	r := format.InlineRef{Type: k.Type, Offset: k.Offset}
	switch k.Type {
	case format.EXTENT_ITEM_KEY, format.METADATA_ITEM_KEY:
		return true, x.item(k, item, nodeSize)
	case format.EXTENT_DATA_REF_KEY:
		r.Data.Decode(item)
		r.Count = r.Data.Count
	case format.SHARED_DATA_REF_KEY:
		r.Count = format.SharedDataRefCount(item)
	case format.TREE_BLOCK_REF_KEY, format.SHARED_BLOCK_REF_KEY:
		r.Count = 1
	default:
		return false, nil // a block group that begins here
	}
	x.Refs = append(x.Refs, r)
	return false, nil
}

// item takes the extent's own item.
func (x *Extent) item(k format.Key, item []byte, nodeSize uint64) error {
	var it format.ExtentItem
	it.Decode(item)
	x.Bytenr, x.Data, x.Generation, x.Length = format.Logical(k.Objectid), it.Flags&format.ExtentFlagData != 0, it.Generation, k.Offset
	x.Full = it.Flags&format.BlockFlagFullBackref != 0
	if !x.Data {
		x.Level, x.Length = int(k.Offset), nodeSize
		if k.Type == format.EXTENT_ITEM_KEY {
			var info format.TreeBlockInfo
			info.Decode(item[format.ExtentItemSize:])
			x.Level = int(info.Level)
		}
	}
	refs, err := inlineRefs(k, item)
	if err == nil && len(refs) > 0 && refs[0].Type == format.EXTENT_OWNER_REF_KEY {
		x.Owner, refs = refs[0].Offset, refs[1:]
	}
	for i := range refs {
		if !x.Data {
			refs[i].Count = 1
		}
	}
	x.Refs = refs
	return err
}

// ExtentsIn gives the extents that begin in s to f, ascending, until it says no.
//
// Preconditions: nothing is queued.
func (e *ExtentTree) ExtentsIn(t *sched.Task, s format.Range[format.Logical], f func(x Extent) bool) error {
	var p ctree.Path
	defer p.Release(t)
	var x Extent
	have := false
	give := func() bool {
		ok := !have || f(x)
		x, have = Extent{}, false
		return ok
	}
	more, err := e.forest.SearchForward(t, e.root, format.Key{Objectid: uint64(s.Start)}, &p)
	for ; more && err == nil; more, err = e.forest.NextItem(t, e.root, &p) {
		k := p.Key()
		if !s.Contains(format.Logical(k.Objectid)) {
			break
		}
		if have && k.Objectid != uint64(x.Bytenr) && !give() {
			return nil
		}
		isItem, err := x.add(k, p.Item(), e.nodeSize)
		if err != nil {
			return err
		}
		have = have || isItem
	}
	if err == nil {
		give()
	}
	return err
}

// Extent reads what the extent tree says of the extent at bytenr: EUCLEAN when it has no item.
//
// Preconditions: nothing is queued for it.
func (e *ExtentTree) Extent(t *sched.Task, bytenr format.Logical) (Extent, error) {
	var p ctree.Path
	x, found, err := ReadExtent(t, e.forest, e.root, uint64(bytenr), &p)
	if err == nil && !found {
		err = fmt.Errorf("corrupt extent tree: no item of the extent at %d: %w", bytenr, errno.EUCLEAN)
	}
	return x, err
}

// refOf is a reference as a delayed one names it.
func refOf(r *format.InlineRef) backRef {
	switch r.Type {
	case format.TREE_BLOCK_REF_KEY:
		return byTree(r.Offset)
	case format.EXTENT_DATA_REF_KEY:
		return byFile(r.Data.DataRef)
	}
	return backRef{parent: format.Logical(r.Offset)}
}

// AddRef queues all that r counts for extent x, which has an item, or a first reference that is
// queued.
func (e *ExtentTree) AddRef(t *sched.Task, x *Extent, r *format.InlineRef) {
	e.addRef(t, x.head(), refOf(r), int(r.Count))
}

// DropRef queues the end of all that r counts for extent x.
func (e *ExtentTree) DropRef(t *sched.Task, x *Extent, r *format.InlineRef) {
	h := x.head()
	h.owner = x.Owner
	e.addRef(t, h, refOf(r), -int(r.Count))
}

// SetFullBackref queues FULL_BACKREF for tree block x.
func (e *ExtentTree) SetFullBackref(t *sched.Task, x *Extent) {
	e.refsMu.Lock(t)
	e.headLocked(t, x.head()).full = true
	e.refsMu.Unlock(t)
}

// MovedExtent says that data extent x, which is at a place from ReserveExtent, gets references: a
// copy of one that has those of x and that x.Owner allocated.
func (e *ExtentTree) MovedExtent(t *sched.Task, x *Extent) {
	h := x.head()
	h.owner, h.mustInsert = x.Owner, true
	for i := range x.Refs {
		if h.owner == 0 && x.Refs[i].Type == format.EXTENT_DATA_REF_KEY {
			h.owner = x.Refs[i].Data.Root // of no simple quota
		}
	}
	e.refsMu.Lock(t)
	e.headLocked(t, h)
	e.refsMu.Unlock(t)
}

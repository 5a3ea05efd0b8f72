package extenttree

import (
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// MoveStripe enters a stripe that has moved into the chunk tree and the device tree.
func (e *ExtentTree) MoveStripe(t *sched.Task, tr *ctree.Trans, m volumes.Move) error {
	c, ok := e.vols.Lookup(m.Logical)
	if !ok {
		panic(fmt.Sprintf("extenttree: no chunk at %d", m.Logical))
	}
	key := format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: m.Logical}
	if err := e.change(t, tr, e.chunk, key, c.Chunk.Encode); err != nil {
		return err
	}
	var p ctree.Path
	defer p.Release(t)
	old := format.Key{Objectid: m.From.Devid, Type: format.DEV_EXTENT_KEY, Offset: m.From.Offset}
	found, err := e.forest.SearchSlot(t, tr, e.dev, old, &p, -1, true)
	if err == nil && !found {
		err = fmt.Errorf("corrupt device tree: no item %v", old)
	}
	if err != nil {
		return err
	}
	item := append([]byte(nil), p.Item()...)
	if err := e.forest.DelItems(t, tr, e.dev, &p, p.Slot(), 1); err != nil {
		return err
	}
	p.Release(t)
	old.Offset = m.To.Offset
	return e.forest.InsertItem(t, tr, e.dev, old, item)
}

// ResizeDevice enters the size of device i into the chunk tree.
func (e *ExtentTree) ResizeDevice(t *sched.Task, tr *ctree.Trans, i int, size uint64) error {
	key := format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: e.vols.Devices()[i].Devid()}
	return e.change(t, tr, e.chunk, key, func(b []byte) {
		var d format.DevItem
		d.Decode(b)
		d.TotalBytes = size
		d.Encode(b)
	})
}

// change changes an item in place.
func (e *ExtentTree) change(t *sched.Task, tr *ctree.Trans, r *ctree.Root, key format.Key, do func(item []byte)) error {
	var p ctree.Path
	defer p.Release(t)
	found, err := e.forest.SearchSlot(t, tr, r, key, &p, 0, true)
	if err == nil && !found {
		err = fmt.Errorf("corrupt tree %d: no item %v", r.ID, key)
	}
	if err != nil {
		return err
	}
	do(p.Item())
	e.forest.DirtyLeaf(t, tr, &p)
	return nil
}

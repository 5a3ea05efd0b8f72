package extenttree

import (
	"fmt"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// MoveStripe enters a stripe that has moved into the chunk tree and the device tree. Where a copy
// of the superblock was in the old place there is none in the new one.
func (e *ExtentTree) MoveStripe(t *sched.Task, tr *ctree.Trans, m volumes.Move) error {
	c, ok := e.vols.Lookup(m.Logical)
	if !ok {
		panic(fmt.Sprintf("extenttree: no chunk at %d", m.Logical))
	}
	e.freeSupers(t, c, m)
	key := format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: m.Logical}
	if err := e.change(t, tr, e.chunk, key, c.Chunk.Encode); err != nil {
		return err
	}
	old := format.Key{Objectid: m.From.Devid, Type: format.DEV_EXTENT_KEY, Offset: m.From.Offset}
	item, err := e.remove(t, tr, e.dev, old)
	if err != nil {
		return err
	}
	old.Offset = m.To.Offset
	return e.forest.InsertItem(t, tr, e.dev, old, item)
}

// freeSupers gives back what was kept from allocation for the copies of the superblock in the old
// place of a stripe of chunk c.
func (e *ExtentTree) freeSupers(t *sched.Task, c volumes.ChunkInfo, m volumes.Move) {
	before := c
	before.Chunk.Stripes = slices.Clone(c.Chunk.Stripes)
	before.Chunk.Stripes[m.Stripe] = m.From
	g := e.group(format.Logical(m.Logical))
	for _, s := range e.vols.SuperLogical(before) {
		left, _ := e.excludeSupers(c, []span{s})
		for _, s := range left {
			g.mu.Lock(t)
			g.addFreeLocked(t, s)
			g.mu.Unlock(t)
			g.superBytes -= s.Len()
			e.space.Of(g.Flags).RemoveTotal(t, 0, s.Len())
		}
	}
}

// remove deletes an item, which must be there, and returns it.
func (e *ExtentTree) remove(t *sched.Task, tr *ctree.Trans, r *ctree.Root, key format.Key) (item []byte, err error) {
	var p ctree.Path
	defer p.Release(t)
	found, err := e.forest.SearchSlot(t, tr, r, key, &p, -1, true)
	if err == nil && !found {
		err = fmt.Errorf("corrupt tree %d: no item %v", int64(r.ID), key)
	}
	if err != nil {
		return nil, err
	}
	item = append(item, p.Item()...)
	return item, e.forest.DelItems(t, tr, r, &p, p.Slot(), 1)
}

// ResizeDevice enters the size of device i into the chunk tree.
func (e *ExtentTree) ResizeDevice(t *sched.Task, tr *ctree.Trans, i int, size uint64) error {
	return e.change(t, tr, e.chunk, deviceKey(e.vols.Devices()[i].Devid()), func(b []byte) {
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

// AddDevice enters the item of a device that is the last one of the volumes.
func (e *ExtentTree) AddDevice(t *sched.Task, tr *ctree.Trans, it format.DevItem) error {
	var b [format.DevItemSize]byte
	it.Encode(b[:])
	if err := e.forest.InsertItem(t, tr, e.chunk, deviceKey(it.Devid), b[:]); err != nil {
		return err
	}
	e.deviceUsed = append(e.deviceUsed, 0)
	e.devSize = e.vols.Size()
	return nil
}

// RemoveDevice deletes the item of a device on which no chunk lies, and which the caller takes out
// of the volumes then.
func (e *ExtentTree) RemoveDevice(t *sched.Task, tr *ctree.Trans, d *volumes.Device) error {
	i := slices.Index(e.vols.Devices(), d)
	if e.deviceUsed[i] != 0 {
		panic(fmt.Sprintf("extenttree: device %d leaves with %d bytes", d.Devid(), e.deviceUsed[i]))
	}
	if _, err := e.remove(t, tr, e.chunk, deviceKey(d.Devid())); err != nil {
		return err
	}
	e.deviceUsed = slices.Delete(e.deviceUsed, i, i+1)
	e.devSize = e.vols.Size() - uint64(d.Size())
	return nil
}

func deviceKey(devid uint64) format.Key {
	return format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: devid}
}

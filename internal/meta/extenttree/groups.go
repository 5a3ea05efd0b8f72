package extenttree

import (
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// WriteDirtyGroups writes the used bytes of the groups that changed into their items.
// Models btrfs_write_dirty_block_groups().
func (e *ExtentTree) WriteDirtyGroups(t *sched.Task, tr *ctree.Trans) error {
	e.enter(t)
	defer e.leave()
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
	found, err := e.forest.SearchSlot(t, tr, e.groupsIn, key, p, 0, true)
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

// createPendingGroups enters what a new chunk needs: CHUNK_ITEM, DEV_EXTENTs, the device's used
// bytes, BLOCK_GROUP_ITEM and its free space. Models btrfs_create_pending_block_groups().
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
		if err := e.createGroup(t, tr, g, []span{g.span()}); err != nil {
			return fmt.Errorf("new block group %d: %w", g.Start, err)
		}
	}
}

// createGroup enters a group of which free is free.
func (e *ExtentTree) createGroup(t *sched.Task, tr *ctree.Trans, g *BlockGroup, free []span) error {
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
			ChunkOffset: uint64(g.Start), Length: c.Chunk.StripeBytes()}
		d.ChunkTreeUUID = e.uuid
		var b [format.DevExtentSize]byte
		d.Encode(b[:])
		key := format.Key{Objectid: s.Devid, Type: format.DEV_EXTENT_KEY, Offset: s.Offset}
		if err := e.forest.InsertItem(t, tr, e.dev, key, b[:]); err != nil {
			return err
		}
	}
	// Not what the chunk map has: a task may have made another chunk meanwhile, which this
	// transaction does not record.
	for i, n := range c.DeviceBytes(len(e.deviceUsed)) {
		if n == 0 {
			continue
		}
		e.deviceUsed[i] += n
		if err := e.updateDevItem(t, tr, i); err != nil {
			return err
		}
	}
	var bg [format.BlockGroupItemSize]byte
	it := format.BlockGroupItem{Used: g.used, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: g.Flags}
	it.Encode(bg[:])
	key = format.Key{Objectid: uint64(g.Start), Type: format.BLOCK_GROUP_ITEM_KEY, Offset: g.Length}
	if err := e.forest.InsertItem(t, tr, e.groupsIn, key, bg[:]); err != nil {
		return err
	}
	return e.fstNewGroup(t, tr, g, free)
}

// updateDevItem writes the used bytes of device i into the chunk tree; the superblock's copy is
// made from the same.
func (e *ExtentTree) updateDevItem(t *sched.Task, tr *ctree.Trans, i int) error {
	p := &e.path
	defer p.Release(t)
	key := deviceKey(e.vols.Devices()[i].Devid())
	found, err := e.forest.SearchSlot(t, tr, e.chunk, key, p, 0, true)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("corrupt chunk tree: no item %v", key)
	}
	var d format.DevItem
	d.Decode(p.Item())
	d.BytesUsed = e.deviceUsed[i]
	d.Encode(p.Item())
	e.forest.DirtyLeaf(t, tr, p)
	return nil
}

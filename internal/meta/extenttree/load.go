package extenttree

import (
	"fmt"
	"slices"
	"sort"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// Load builds the block groups and their free spans from the chunk map and the extent tree, and
// fills the space accounts. Precondition: no other task uses the allocator yet. Models
// btrfs_read_block_groups() and the caching of free space by load_extent_tree_free().
func (e *ExtentTree) Load(t *sched.Task) error {
	chunks := e.vols.Chunks()
	list := make(groupList, 0, len(chunks))
	for _, c := range chunks {
		list = append(list, newGroup(format.Logical(c.Logical), c.Chunk.Length, c.Chunk.Type))
	}
	used := make([][]span, len(list))
	seen := make([]bool, len(list))
	if err := e.scan(t, e.root, list, used, seen); err != nil {
		return err
	}
	if e.groupsIn != e.root {
		if err := e.scan(t, e.groupsIn, list, used, seen); err != nil {
			return err
		}
	}
	for i, g := range list {
		if !seen[i] {
			return fmt.Errorf("corrupt extent tree: chunk %d has no BLOCK_GROUP_ITEM", g.Start)
		}
		var total uint64
		var free []span
		pos := g.Start
		for _, u := range used[i] {
			if u.Start < pos {
				return fmt.Errorf("corrupt extent tree: extent at %d overlaps one that ends at %d", u.Start, pos)
			}
			if u.Start > pos {
				free = append(free, span{Start: pos, End: u.Start})
			}
			pos = u.End
			total += u.Len()
		}
		if pos > g.end() {
			return fmt.Errorf("corrupt extent tree: extent ends at %d, block group at %d", pos, g.end())
		}
		if pos < g.end() {
			free = append(free, span{Start: pos, End: g.end()})
		}
		if total != g.used {
			return fmt.Errorf("corrupt extent tree: block group %d, bad used, have %d want %d", g.Start, g.used, total)
		}
		free, g.superBytes = e.excludeSupers(chunks[i], free)
		g.mu.Lock(t)
		for _, s := range free {
			g.addFreeLocked(t, s)
		}
		g.mu.Unlock(t)
		e.bytesUsed += g.used
		e.space.Of(g.Flags).AddTotal(t, g.Length, g.used, g.superBytes)
	}
	e.deviceUsed = slices.Clone(e.vols.BytesUsed())
	e.groups.Store(&list)
	e.FillGlobalReserve(t)
	return nil
}

// countLoaded counts the tree block of an extent item.
func (e *ExtentTree) countLoaded(k format.Key, item []byte) {
	var it format.ExtentItem
	if it.Decode(item); it.Flags&format.ExtentFlagTreeBlock == 0 {
		return
	}
	if refs, err := inlineRefs(k, item); err == nil && len(refs) > 0 {
		e.countTreeBlock(refs[0].Offset, 1)
	}
}

// scan walks the extent tree, or the tree of block groups, and sorts what it finds to the groups.
func (e *ExtentTree) scan(t *sched.Task, root *ctree.Root, list groupList, used [][]span, seen []bool) error {
	var p ctree.Path
	defer p.Release(t)
	if _, err := e.forest.SearchSlot(t, nil, root, format.Key{}, &p, 0, false); err != nil {
		return err
	}
	for {
		n := p.Leaf()
		if p.Slot() >= n.Nritems() {
			more, err := e.forest.NextLeaf(t, root, &p)
			if err != nil {
				return err
			}
			if !more {
				return nil
			}
			continue
		}
		k := p.Key()
		switch k.Type {
		case format.EXTENT_ITEM_KEY, format.METADATA_ITEM_KEY, format.BLOCK_GROUP_ITEM_KEY:
			if (k.Type == format.BLOCK_GROUP_ITEM_KEY) != (root == e.groupsIn) && (k.Type == format.BLOCK_GROUP_ITEM_KEY || root != e.root) {
				return fmt.Errorf("corrupt tree %d: item %v belongs to another tree", root.ID, k)
			}
			start := format.Logical(k.Objectid)
			i := sort.Search(len(list), func(i int) bool { return list[i].end() > start })
			if i == len(list) || list[i].Start > start {
				return fmt.Errorf("corrupt extent tree: item %v lies in no chunk", k)
			}
			switch k.Type {
			case format.EXTENT_ITEM_KEY:
				used[i] = append(used[i], spanOf(start, k.Offset))
				e.countLoaded(k, p.Item())
			case format.METADATA_ITEM_KEY:
				used[i] = append(used[i], spanOf(start, e.nodeSize))
				e.countLoaded(k, p.Item())
			default:
				if start != list[i].Start || k.Offset != list[i].Length {
					return fmt.Errorf("corrupt extent tree: block group %v, chunk is [%d,%d)", k, list[i].Start, list[i].end())
				}
				var it format.BlockGroupItem
				it.Decode(p.Item())
				if it.Flags != list[i].Flags {
					return fmt.Errorf("corrupt extent tree: block group %d, bad flags, have %#x want %#x", k.Objectid, it.Flags, list[i].Flags)
				}
				list[i].used = it.Used
				seen[i] = true
			}
		}
		p.Slots[0]++
	}
}

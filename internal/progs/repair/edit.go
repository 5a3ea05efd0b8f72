package repair

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
)

// Changes of trees, item by item, for a repair.
//
// An item is put where its key belongs. A leaf without room is split, an empty one goes, and the
// keys above follow. What other trees reach as well is copied first, from the root of the tree
// down, so that a change in a subvolume is none in its snapshots. The extent tree is not touched:
// the next check misses the new blocks in it, and a rebuild makes it anew. New blocks therefore
// need a place that is free for certain: all trees were walked, and there is no log.
//
// A change that fails half way is taken back, so that a repair keeps what is whole only.
//
// A block that gets a pointer to a new block must be as new, and so must all blocks above it. Other
// blocks are changed in place and keep their generation.

// hop is a block on the way from a root to a leaf, and the slot that leads on.
type hop struct {
	n    format.Node
	slot int
}

// childPtr is a pointer of an inner node.
type childPtr struct {
	k                  format.Key
	bytenr, generation uint64
}

// pathTo reads the blocks from the root of a tree to the leaf where the key is, or would be. Last
// may name a block that is refused: the path then ends above it.
func (c *changes) pathTo(tree uint64, key format.Key, last uint64) (path []hop, err error) {
	r, err := c.RootOf(tree)
	if err != nil {
		return nil, err
	}
	bytenr, generation, level := r.Bytenr, r.Generation, int(r.Level)
	for bytenr != last {
		n := c.Peek(bytenr, generation, level)
		if n == nil {
			return nil, fmt.Errorf("block %d cannot be read", bytenr)
		}
		if level == 0 {
			return append(path, hop{n: n}), nil
		}
		slot, found := n.Search(key)
		if !found {
			slot = max(slot-1, 0)
		}
		path = append(path, hop{n, slot})
		bytenr, generation, level = n.Blockptr(slot), n.PtrGeneration(slot), level-1
	}
	return path, nil
}

// leafFor reads the leaf where the key is, or would be.
func (c *changes) leafFor(tree uint64, key format.Key) (format.Node, error) {
	path, err := c.pathTo(tree, key, 0)
	if err != nil {
		return nil, err
	}
	return path[len(path)-1].n, nil
}

// refsOf is the number of pointers to a block.
func (c *changes) refsOf(bytenr uint64) int {
	if c.nrefs == nil {
		c.nrefs = map[uint64]int{}
		for _, p := range c.Pointers {
			c.nrefs[p.Child]++
		}
	}
	return c.nrefs[bytenr]
}

// ownPath is pathTo, with the blocks copied that another tree reaches as well.
func (c *changes) ownPath(tree uint64, key format.Key) ([]hop, error) {
	path, err := c.pathTo(tree, key, 0)
	if err != nil {
		return nil, err
	}
	for i := range path {
		n := path[i].n
		if c.refsOf(n.Bytenr()) <= 1 {
			continue
		}
		old := n.Bytenr()
		bytenr, err := c.allocate(tree)
		if err != nil {
			return nil, fmt.Errorf("block %d is shared: %w", old, err)
		}
		c.addRefs(old, -1)
		c.addRefs(bytenr, 1)
		if n.Level() > 0 {
			for s := range n.Nritems() {
				c.addRefs(n.Blockptr(s), 1)
			}
		}
		n.SetBytenr(bytenr)
		n.SetOwner(tree)
		n.SetGeneration(c.Super.Generation)
		if err := c.writeBlock(n); err != nil {
			return nil, err
		}
		if err := c.setPtr(tree, path[:i+1], firstKey(n), nil); err != nil {
			return nil, err
		}
	}
	return path, nil
}

// addRefs notes that a block has more pointers to it, or fewer.
func (c *changes) addRefs(bytenr uint64, n int) {
	c.refsOf(bytenr)
	c.nrefs[bytenr] += n
	c.saved.refs = append(c.saved.refs, refChange{bytenr, n})
}

// saved is what takes the changes back that were made since a repair last was in a state to keep.
type saved struct {
	blocks []savedBlock
	refs   []refChange
	sb     format.Super
	roots  map[uint64]check.Root
	ids    []uint64
}

// savedBlock is what a place of a device held.
type savedBlock struct {
	d   *check.Device
	off int64
	old []byte
}

type refChange struct {
	bytenr uint64
	n      int
}

// keep makes the changes so far stay.
func (c *changes) keep() {
	c.saved = saved{sb: c.Super, roots: maps.Clone(c.Roots), ids: slices.Clone(c.RootIDs)}
}

// rollback takes the changes since keep back.
func (c *changes) rollback() error {
	var err error
	for _, b := range slices.Backward(c.saved.blocks) {
		err = errors.Join(err, blockdev.Write(c.Task, b.d, b.old, b.off))
	}
	for _, r := range c.saved.refs {
		c.nrefs[r.bytenr] -= r.n
	}
	c.Super, c.Roots, c.RootIDs = c.saved.sb, c.saved.roots, c.saved.ids
	c.keep()
	return err
}

// write writes to a device, in a way that rollback takes back.
func (c *changes) write(d *check.Device, p []byte, off int64) error {
	old := make([]byte, len(p))
	if err := blockdev.Read(c.Task, d, old, off); err != nil {
		clear(old) // a bad sector, of which nothing is to be won
	}
	if err := blockdev.Write(c.Task, d, p, off); err != nil {
		return err
	}
	c.saved.blocks = append(c.saved.blocks, savedBlock{d, off, old})
	return nil
}

func firstKey(n format.Node) format.Key {
	if n.Nritems() == 0 {
		return format.Key{}
	}
	return n.Key(0)
}

// allocate finds a free place for a block of a tree.
func (c *changes) allocate(tree uint64) (uint64, error) {
	switch {
	case c.Super.LogRoot != 0:
		return 0, errors.New("a log is there: replay it, or drop it with rescue zero-log")
	case c.Super.IncompatFlags&format.IncompatSimpleQuota != 0:
		return 0, errors.New("a new block needs a new extent tree, which is not made with simple quotas")
	case c.Cut && !c.ExtentsWhole:
		return 0, errors.New("a tree cannot be read whole, and what it uses is not known")
	}
	size := uint64(c.Super.NodeSize)
	typ := uint64(format.BlockGroupMetadata)
	if tree == format.CHUNK_TREE_OBJECTID {
		typ = format.BlockGroupSystem
	}
	if c.inUse == nil {
		for _, p := range c.Data {
			c.inUse = append(c.inUse, check.Span{Start: p.Bytenr, End: p.Bytenr + p.Length})
		}
		for i := range c.Extents {
			c.inUse = append(c.inUse, check.Span{Start: c.Extents[i].Start, End: c.Extents[i].Start + c.Extents[i].Length})
		}
		for at := range c.Visited {
			c.inUse = append(c.inUse, check.Span{Start: at, End: at + size})
		}
		c.inUse = check.Merged(c.inUse)
	}
	for i := range c.Chunks {
		ch := &c.Chunks[i]
		if ch.Type&typ == 0 || ch.Parity() > 0 {
			continue
		}
		for at := format.AlignUp(ch.Start, size); at+size <= ch.Start+ch.Length; at += size {
			if j, _ := slices.BinarySearchFunc(c.inUse, at, func(s check.Span, at uint64) int {
				if s.End <= at {
					return -1
				}
				return 1
			}); j < len(c.inUse) && c.inUse[j].Start < at+size || c.overSuper(ch, at, size) {
				continue
			}
			if _, taken := c.Visited[at]; taken {
				continue
			}
			c.Visited[at] = 0
			return at, nil
		}
	}
	return 0, errors.New("no metadata block is free")
}

// newNode is a new block of a tree, still empty.
func (c *changes) newNode(tree uint64, level int) (format.Node, error) {
	bytenr, err := c.allocate(tree)
	if err != nil {
		return nil, err
	}
	root := c.Peek(c.Super.Root, c.Super.Generation, int(c.Super.RootLevel))
	if root == nil {
		return nil, errors.New("the root tree cannot be read")
	}
	c.addRefs(bytenr, 1)
	n := format.Node(make([]byte, c.Super.NodeSize))
	n.InitHeader(c.Super.TreeFSID(), root.ChunkTreeUUID(), bytenr, c.Super.Generation, tree, level)
	return n, nil
}

// setPtr tells the block above the last one of the path what that is now, and which new ones follow
// it. Above a root that is the root item, or a new root.
func (c *changes) setPtr(tree uint64, path []hop, first format.Key, more []childPtr) error {
	n := path[len(path)-1].n
	this := childPtr{first, n.Bytenr(), n.Generation()}
	if len(path) == 1 {
		if len(more) > 0 {
			root, err := c.newNode(tree, n.Level()+1)
			if err != nil {
				return err
			}
			fillNode(root, append([]childPtr{this}, more...))
			if err := c.writeBlock(root); err != nil {
				return err
			}
			n = root
		}
		return c.setRoot(tree, n)
	}
	up := path[len(path)-2]
	ptrs := ptrsOf(up.n)
	if len(more) == 0 && ptrs[up.slot] == this {
		return nil
	}
	ptrs[up.slot] = this
	return c.storeNode(tree, path[:len(path)-1], slices.Insert(ptrs, up.slot+1, more...))
}

// setRoot makes a block the root of a tree.
func (c *changes) setRoot(tree uint64, n format.Node) error {
	r, err := c.RootOf(tree)
	if err != nil || r.Bytenr == n.Bytenr() && r.Generation == n.Generation() && int(r.Level) == n.Level() {
		return err
	}
	switch tree {
	case format.CHUNK_TREE_OBJECTID:
		c.Super.ChunkRoot, c.Super.ChunkRootGeneration, c.Super.ChunkRootLevel = n.Bytenr(), n.Generation(), uint8(n.Level())
		return c.editSupers(c.Devs, func(s *format.Super) {
			s.ChunkRoot, s.ChunkRootGeneration, s.ChunkRootLevel = c.Super.ChunkRoot, c.Super.ChunkRootGeneration, c.Super.ChunkRootLevel
		})
	case format.ROOT_TREE_OBJECTID:
		c.Super.Root, c.Super.RootLevel = n.Bytenr(), uint8(n.Level())
		return c.editSupers(c.Devs, func(s *format.Super) { s.Root, s.RootLevel = c.Super.Root, c.Super.RootLevel })
	}
	info := c.Roots[tree]
	err = c.editItem(format.ROOT_TREE_OBJECTID, info.Key, func(b []byte) error {
		var r format.RootItem
		r.Decode(b)
		r.Bytenr, r.Level, r.Generation, r.GenerationV2 = n.Bytenr(), uint8(n.Level()), n.Generation(), n.Generation()
		if len(b) < format.RootItemSize { // of the first version
			wide := encoded(format.RootItemSize, &r)
			copy(b, wide)
		} else {
			r.Encode(b)
		}
		info.Item = r
		return nil
	})
	c.Roots[tree] = info
	return err
}

func ptrsOf(n format.Node) (list []childPtr) {
	for i := range n.Nritems() {
		list = append(list, childPtr{n.Key(i), n.Blockptr(i), n.PtrGeneration(i)})
	}
	return list
}

func fillNode(n format.Node, ptrs []childPtr) {
	clear(n[format.HeaderSize:])
	n.SetNritems(len(ptrs))
	for i, p := range ptrs {
		n.SetKey(i, p.k)
		n.SetBlockptr(i, p.bytenr)
		n.SetPtrGeneration(i, p.generation)
		if p.generation > n.Generation() {
			n.SetGeneration(p.generation)
		}
	}
}

// storeNode gives the last block of the path, an inner node, these pointers.
func (c *changes) storeNode(tree uint64, path []hop, ptrs []childPtr) error {
	n := path[len(path)-1].n
	if len(ptrs) == 0 {
		return c.storeNone(tree, path)
	}
	per := format.PtrsPerNode(int(c.Super.NodeSize))
	rest := []childPtr(nil)
	if len(ptrs) > per {
		ptrs, rest = ptrs[:(len(ptrs)+1)/2], ptrs[(len(ptrs)+1)/2:]
	}
	fillNode(n, ptrs)
	if err := c.writeBlock(n); err != nil {
		return err
	}
	var more []childPtr
	if len(rest) > 0 {
		right, err := c.newNode(tree, n.Level())
		if err != nil {
			return err
		}
		fillNode(right, rest)
		if err := c.writeBlock(right); err != nil {
			return err
		}
		more = []childPtr{{rest[0].k, right.Bytenr(), right.Generation()}}
	}
	return c.setPtr(tree, path, ptrs[0].k, more)
}

// storeNone takes the last block of the path out of its tree: an empty root becomes a leaf.
func (c *changes) storeNone(tree uint64, path []hop) error {
	if len(path) > 1 {
		up := path[len(path)-2]
		ptrs := ptrsOf(up.n)
		return c.storeNode(tree, path[:len(path)-1], slices.Delete(ptrs, up.slot, up.slot+1))
	}
	n := path[0].n
	clear(n[format.HeaderSize:])
	n.SetNritems(0)
	n.SetLevel(0)
	if err := c.writeBlock(n); err != nil {
		return err
	}
	return c.setRoot(tree, n)
}

// storeLeaf gives the last block of the path, a leaf, these items, and splits it if need be.
func (c *changes) storeLeaf(tree uint64, path []hop, list []newItem) error {
	if len(list) == 0 {
		return c.storeNone(tree, path)
	}
	n := path[len(path)-1].n
	parts := c.leaves(list)
	fillLeaf(n, parts[0])
	if err := c.writeBlock(n); err != nil {
		return err
	}
	var more []childPtr
	for _, p := range parts[1:] {
		right, err := c.newNode(tree, 0)
		if err != nil {
			return err
		}
		fillLeaf(right, p)
		if err := c.writeBlock(right); err != nil {
			return err
		}
		more = append(more, childPtr{p[0].k, right.Bytenr(), right.Generation()})
	}
	return c.setPtr(tree, path, list[0].k, more)
}

// leaves cuts items into leaves: one if they have room, two of about the same size, or as many as
// it takes. A file extent that a checker compares with the one before is in order over the cut.
func (c *changes) leaves(list []newItem) (parts [][]newItem) {
	if c.leafRoom(list) == len(list) {
		return [][]newItem{list}
	}
	total, half := 0, 0
	for _, it := range list {
		total += format.ItemHeaderSize + len(it.b)
	}
	at := 0
	for at < len(list)-1 && half+format.ItemHeaderSize+len(list[at].b) <= total/2 {
		half += format.ItemHeaderSize + len(list[at].b)
		at++
	}
	if at > 0 && c.leafRoom(list[:at]) == at && c.leafRoom(list[at:]) == len(list)-at {
		return [][]newItem{list[:at], list[at:]}
	}
	for len(list) > 0 {
		n := c.leafRoom(list)
		parts = append(parts, list[:n])
		list = list[n:]
	}
	return parts
}

func leafItems(n format.Node) (list []newItem) {
	for i := range n.Nritems() {
		list = append(list, newItem{n.Key(i), slices.Clone(n.Item(i))})
	}
	return list
}

// editItem changes an item in place, for all trees that have it.
func (c *changes) editItem(tree uint64, key format.Key, change func(b []byte) error) error {
	n, err := c.leafFor(tree, key)
	if err != nil {
		return err
	}
	slot, found := n.Search(key)
	if !found {
		return fmt.Errorf("tree %d has no item %v", int64(tree), key)
	}
	if err := change(n.Item(slot)); err != nil {
		return err
	}
	return c.writeBlock(n)
}

// insertItem adds an item to a tree that has none of the key.
func (c *changes) insertItem(tree uint64, key format.Key, item []byte) error {
	return c.changeItem(tree, key, func(old []byte, found bool) ([]byte, bool, error) {
		if found {
			return nil, false, fmt.Errorf("tree %d has the item %v", int64(tree), key)
		}
		return item, true, nil
	})
}

// deleteItem takes an item out of a tree.
func (c *changes) deleteItem(tree uint64, key format.Key) error {
	return c.changeItem(tree, key, func(_ []byte, found bool) ([]byte, bool, error) {
		if !found {
			return nil, false, fmt.Errorf("tree %d has no item %v", int64(tree), key)
		}
		return nil, false, nil
	})
}

// changeItem makes what the item of the key is into what change returns: the bytes, and whether
// there is an item at all.
func (c *changes) changeItem(tree uint64, key format.Key, change func(old []byte, found bool) (b []byte, keep bool, err error)) error {
	path, err := c.pathTo(tree, key, 0)
	if err != nil {
		return err
	}
	n := path[len(path)-1].n
	slot, found := n.Search(key)
	var old []byte
	if found {
		old = slices.Clone(n.Item(slot))
	}
	b, keep, err := change(old, found)
	if err != nil || !keep && !found {
		return err
	}
	if len(b) > format.MaxItemSize(len(n)) {
		return fmt.Errorf("item %v would have %d bytes, have room for %d", key, len(b), format.MaxItemSize(len(n)))
	}
	if path, err = c.ownPath(tree, key); err != nil {
		return err
	}
	list := leafItems(path[len(path)-1].n)
	switch {
	case !keep:
		list = slices.Delete(list, slot, slot+1)
	case found:
		list[slot].b = b
	default:
		list = slices.Insert(list, slot, newItem{key, b})
	}
	return c.storeLeaf(tree, path, list)
}

// fillLeaf gives a leaf these items, which have room in it.
func fillLeaf(n format.Node, list []newItem) {
	clear(n[format.HeaderSize:])
	end := format.LeafDataSize(len(n))
	n.SetNritems(len(list))
	for i, it := range list {
		end -= len(it.b)
		n.SetKey(i, it.k)
		n.SetItemOffset(i, end)
		n.SetItemSize(i, len(it.b))
		copy(n[format.HeaderSize+end:], it.b)
	}
}

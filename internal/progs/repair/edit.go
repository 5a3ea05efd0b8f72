package repair

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
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

// pathTo reads the blocks from the root of a tree to the leaf where the key is, or would be. Last
// may name a block that is refused: the path then ends above it.
func (c *changes) pathTo(tree uint64, key format.Key, last uint64) (path []image.Step, err error) {
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
			return append(path, image.Step{N: n}), nil
		}
		slot, found := n.Search(key)
		if !found {
			slot = max(slot-1, 0)
		}
		path = append(path, image.Step{N: n, Slot: slot})
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
	return path[len(path)-1].N, nil
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

// edits changes the trees of a repair.
func (c *changes) edits() image.Edits { return image.Edits{Store: store{c}} }

// store is where they are.
type store struct{ *changes }

func (s store) RootOf(tree uint64) (image.Ref, error) {
	r, err := s.changes.RootOf(tree)
	return image.Ref{Tree: tree, Bytenr: r.Bytenr, Generation: r.Generation, Level: int(r.Level)}, err
}

func (s store) SetRoot(tree uint64, n format.Node) error { return s.setRoot(tree, n) }

func (s store) WriteBlock(n format.Node) error { return s.writeBlock(n) }

func (s store) NewNode(tree uint64, level int) (format.Node, error) { return s.newNode(tree, level) }

func (s store) Node(r image.Ref) (format.Node, error) {
	if n := s.Peek(r.Bytenr, r.Generation, r.Level); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("block %d cannot be read", r.Bytenr)
}

// Own copies the blocks of a path that another tree reaches as well.
func (s store) Own(tree uint64, path []image.Step) error {
	c := s.changes
	for i := range path {
		n := path[i].N
		if c.refsOf(n.Bytenr()) <= 1 {
			continue
		}
		old := n.Bytenr()
		bytenr, err := c.allocate(tree)
		if err != nil {
			return fmt.Errorf("block %d is shared: %w", old, err)
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
			return err
		}
		if err := c.edits().SetPtrs(tree, path[:i+1], []image.Ptr{{Key: firstKey(n), Bytenr: bytenr, Generation: n.Generation()}}); err != nil {
			return err
		}
	}
	return nil
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
		if ch.Type&typ == 0 {
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

// editItem changes an item in place, for all trees that have it.
func (c *changes) editItem(tree uint64, key format.Key, change func(b []byte) error) error {
	return c.edits().Change(tree, key, change)
}

// insertItem adds an item to a tree that has none of the key.
func (c *changes) insertItem(tree uint64, key format.Key, item []byte) error {
	return c.edits().Insert(tree, key, item)
}

// deleteItem takes an item out of a tree.
func (c *changes) deleteItem(tree uint64, key format.Key) error { return c.edits().Delete(tree, key) }

// changeItem makes what the item of the key is into what change returns: the bytes, and whether
// there is an item at all.
func (c *changes) changeItem(tree uint64, key format.Key, change func(old []byte, found bool) (b []byte, keep bool, err error)) error {
	return c.edits().Put(tree, key, change)
}

package image

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

// Editor changes the trees of an image, item by item.
//
// An item is put where its key belongs. A leaf without room is split, an empty one goes, and the
// keys above follow. A block that gets a pointer to a new block becomes as new, and so do all
// blocks above it; other blocks are changed in place and keep their generation. What the extent
// tree says of the blocks is left to the caller, as is a block that two trees reach: it changes in
// both.
//
// Each write keeps what was there before: Rollback takes back all changes since Keep.
type Editor struct {
	*Image
	// Place finds a free place for a new block of a tree. Nil: there is none.
	Place func(tree uint64) (uint64, error)

	roots map[uint64]Root
	saved saved
}

// saved is what takes back the changes since the last Keep.
type saved struct {
	writes []written
	sb     format.Super
	roots  map[uint64]Root
}

// written is what a place held.
type written struct {
	at  Stripe
	old []byte
}

// NewEditor makes an editor of an image, whose root tree it reads.
func NewEditor(im *Image) (*Editor, error) {
	list, err := im.Roots()
	if err != nil {
		return nil, err
	}
	e := &Editor{Image: im, roots: map[uint64]Root{}}
	for _, r := range list {
		e.roots[r.Key.Objectid] = r
	}
	e.Keep()
	return e, nil
}

// RootOf is where a tree begins.
func (e *Editor) RootOf(tree uint64) (Ref, error) {
	switch tree {
	case format.ROOT_TREE_OBJECTID:
		return e.RootTree(), nil
	case format.CHUNK_TREE_OBJECTID:
		return e.ChunkTree(), nil
	}
	r, ok := e.roots[tree]
	if !ok {
		return Ref{}, fmt.Errorf("no tree %d", int64(tree))
	}
	return r.Ref(), nil
}

// Each calls f with the items of a tree, in key order.
func (e *Editor) Each(tree uint64, f func(k format.Key, b []byte)) error {
	r, err := e.RootOf(tree)
	if err != nil {
		return err
	}
	return Items(r, e.Node, f)
}

// Path reads the blocks from the root of a tree to the leaf where the key is, or would be.
func (e *Editor) Path(tree uint64, key format.Key) (path []Step, found bool, err error) {
	r, err := e.RootOf(tree)
	if err != nil {
		return nil, false, err
	}
	return Search(r, key, e.Node)
}

// Change changes the bytes of an item, which keeps its size.
func (e *Editor) Change(tree uint64, key format.Key, f func(b []byte)) error {
	path, found, err := e.Path(tree, key)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("tree %d has no item %v", int64(tree), key)
	}
	leaf := path[len(path)-1]
	f(leaf.N.Item(leaf.Slot))
	return e.WriteBlock(leaf.N)
}

// Insert adds an item to a tree that has none of the key.
func (e *Editor) Insert(tree uint64, key format.Key, item []byte) error {
	return e.edit(tree, key, func(list []Item, slot int, found bool) ([]Item, error) {
		if found {
			return nil, fmt.Errorf("tree %d has the item %v", int64(tree), key)
		}
		return slices.Insert(list, slot, Item{key, item}), nil
	})
}

// Replace gives an item other bytes, of any number.
func (e *Editor) Replace(tree uint64, key format.Key, item []byte) error {
	return e.edit(tree, key, func(list []Item, slot int, found bool) ([]Item, error) {
		if !found {
			return nil, fmt.Errorf("tree %d has no item %v", int64(tree), key)
		}
		list[slot].Data = item
		return list, nil
	})
}

// Delete takes an item out of a tree.
func (e *Editor) Delete(tree uint64, key format.Key) error {
	return e.edit(tree, key, func(list []Item, slot int, found bool) ([]Item, error) {
		if !found {
			return nil, fmt.Errorf("tree %d has no item %v", int64(tree), key)
		}
		return slices.Delete(list, slot, slot+1), nil
	})
}

// edit gives the leaf of a key the items that change makes of those that it has.
func (e *Editor) edit(tree uint64, key format.Key, change func(list []Item, slot int, found bool) ([]Item, error)) error {
	path, found, err := e.Path(tree, key)
	if err != nil {
		return err
	}
	leaf := path[len(path)-1]
	list, err := change(LeafItems(leaf.N), leaf.Slot, found)
	if err != nil {
		return err
	}
	for _, it := range list {
		if most := format.MaxItemSize(len(leaf.N)); len(it.Data) > most {
			return fmt.Errorf("item %v would have %d bytes, have room for %d", it.Key, len(it.Data), most)
		}
	}
	return e.storeLeaf(tree, path, list)
}

// storeLeaf gives the last block of the path, a leaf, these items, and splits it if need be.
func (e *Editor) storeLeaf(tree uint64, path []Step, list []Item) error {
	if len(list) == 0 {
		return e.storeNone(tree, path)
	}
	parts := halves(int(e.SB.NodeSize), list)
	return e.store(tree, path, len(parts), func(n format.Node, i int) format.Key {
		FillLeaf(n, parts[i])
		return parts[i][0].Key
	})
}

// storeNode gives the last block of the path, an inner node, these pointers, and splits it if need
// be.
func (e *Editor) storeNode(tree uint64, path []Step, ptrs []Ptr) error {
	if len(ptrs) == 0 {
		return e.storeNone(tree, path)
	}
	parts := [][]Ptr{ptrs}
	if half := (len(ptrs) + 1) / 2; len(ptrs) > format.PtrsPerNode(int(e.SB.NodeSize)) {
		parts = [][]Ptr{ptrs[:half], ptrs[half:]}
	}
	return e.store(tree, path, len(parts), func(n format.Node, i int) format.Key {
		FillNode(n, parts[i])
		return parts[i][0].Key
	})
}

// store lets fill have the last block of the path and so many new ones after it as make parts, and
// tells the block above.
func (e *Editor) store(tree uint64, path []Step, parts int, fill func(n format.Node, part int) (first format.Key)) error {
	n := path[len(path)-1].N
	var ptrs []Ptr
	for i := range parts {
		if i > 0 {
			var err error
			if n, err = e.newNode(tree, n.Level()); err != nil {
				return err
			}
		}
		first := fill(n, i)
		if err := e.WriteBlock(n); err != nil {
			return err
		}
		ptrs = append(ptrs, Ptr{first, n.Bytenr(), n.Generation()})
	}
	return e.setPtrs(tree, path, ptrs)
}

// storeNone takes the last block of the path out of its tree: an empty root becomes a leaf.
func (e *Editor) storeNone(tree uint64, path []Step) error {
	if len(path) > 1 {
		up := path[len(path)-2]
		return e.storeNode(tree, path[:len(path)-1], slices.Delete(NodePtrs(up.N), up.Slot, up.Slot+1))
	}
	n := path[0].N
	clear(n[format.HeaderSize:])
	n.SetNritems(0)
	n.SetLevel(0)
	if err := e.WriteBlock(n); err != nil {
		return err
	}
	return e.setRoot(tree, n)
}

// setPtrs puts pointers in the place of the one to the last block of the path, which is the first
// of them. Above a root that is the root item, or a new root.
func (e *Editor) setPtrs(tree uint64, path []Step, ptrs []Ptr) error {
	if len(path) > 1 {
		up := path[len(path)-2]
		list := NodePtrs(up.N)
		if len(ptrs) == 1 && list[up.Slot] == ptrs[0] {
			return nil
		}
		return e.storeNode(tree, path[:len(path)-1], slices.Replace(list, up.Slot, up.Slot+1, ptrs...))
	}
	n := path[0].N
	if len(ptrs) > 1 {
		root, err := e.newNode(tree, n.Level()+1)
		if err != nil {
			return err
		}
		FillNode(root, ptrs)
		if err := e.WriteBlock(root); err != nil {
			return err
		}
		n = root
	}
	return e.setRoot(tree, n)
}

// setRoot makes a block the root of a tree.
func (e *Editor) setRoot(tree uint64, n format.Node) error {
	now := Ref{tree, n.Bytenr(), n.Generation(), n.Level()}
	if was, err := e.RootOf(tree); err != nil || was == now {
		return err
	}
	switch tree {
	case format.CHUNK_TREE_OBJECTID:
		return e.EditSupers(func(s *format.Super) {
			s.ChunkRoot, s.ChunkRootGeneration, s.ChunkRootLevel = now.Bytenr, now.Generation, uint8(now.Level)
		})
	case format.ROOT_TREE_OBJECTID:
		return e.EditSupers(func(s *format.Super) { s.Root, s.RootLevel = now.Bytenr, uint8(now.Level) })
	}
	root := e.roots[tree]
	err := e.Change(format.ROOT_TREE_OBJECTID, root.Key, func(b []byte) {
		r := &root.Item
		r.Decode(b)
		r.Bytenr, r.Level, r.Generation, r.GenerationV2 = now.Bytenr, uint8(now.Level), now.Generation, now.Generation
		wide := make([]byte, format.RootItemSize) // one of the first version is shorter
		r.Encode(wide)
		copy(b, wide)
	})
	e.roots[tree] = root
	return err
}

// newNode is a new block of a tree, still empty.
func (e *Editor) newNode(tree uint64, level int) (format.Node, error) {
	if e.Place == nil {
		return nil, errors.New("no place for a new block is known")
	}
	top, err := e.Node(e.RootTree())
	if err != nil {
		return nil, err
	}
	bytenr, err := e.Place(tree)
	if err != nil {
		return nil, err
	}
	n := make(format.Node, e.SB.NodeSize)
	n.InitHeader(e.SB.TreeFSID(), top.ChunkTreeUUID(), bytenr, e.SB.Generation, tree, level)
	return n, nil
}

// halves cuts items into leaves: one if they have room, two of about the same size, or as many as
// it takes.
func halves(nodeSize int, list []Item) (parts [][]Item) {
	if LeafRoom(nodeSize, list) == len(list) {
		return [][]Item{list}
	}
	total, half, at := 0, 0, 0
	for _, it := range list {
		total += format.ItemHeaderSize + len(it.Data)
	}
	for ; at < len(list)-1; at++ {
		size := format.ItemHeaderSize + len(list[at].Data)
		if half+size > total/2 {
			break
		}
		half += size
	}
	if at > 0 && LeafRoom(nodeSize, list[:at]) == at && LeafRoom(nodeSize, list[at:]) == len(list)-at {
		return [][]Item{list[:at], list[at:]}
	}
	for len(list) > 0 {
		n := LeafRoom(nodeSize, list)
		parts = append(parts, list[:n])
		list = list[n:]
	}
	return parts
}

// WriteBlock writes a tree block to each of its copies, with its checksum.
func (e *Editor) WriteBlock(n format.Node) error {
	n.SetWritten(true)
	n.UpdateCsum(e.SB.CsumType)
	return e.Write(n.Bytenr(), n)
}

// Read reads p at a logical address, from the first copy of each part on a device that can be read.
func (e *Editor) Read(logical uint64, p []byte) error {
	return e.pieces(logical, p, func(_ *Chunk, places []Stripe, p []byte) error {
		err := ErrMissing
		for _, at := range places {
			if err = at.Read(e.Task, p); err == nil {
				break
			}
		}
		return err
	})
}

// Write writes p at a logical address, to every copy, in a way that Rollback takes back.
func (e *Editor) Write(logical uint64, p []byte) error {
	return e.pieces(logical, p, func(c *Chunk, places []Stripe, p []byte) error {
		if c.Profile.Parity > 0 {
			return fmt.Errorf("logical %d: its parity cannot be written", logical)
		}
		for _, at := range places {
			if err := e.write(at, p); err != nil {
				return fmt.Errorf("logical %d: %w", logical, err)
			}
		}
		return nil
	})
}

// pieces calls f with the places of each part of p.
func (e *Editor) pieces(logical uint64, p []byte, f func(c *Chunk, places []Stripe, p []byte) error) error {
	for len(p) > 0 {
		c := e.Chunks.At(logical)
		if c == nil || !c.Sound() {
			return fmt.Errorf("logical %d is in no chunk", logical)
		}
		places, run := c.Places(logical)
		n := min(run, uint64(len(p)))
		if err := f(c, places, p[:n]); err != nil {
			return err
		}
		p, logical = p[n:], logical+n
	}
	return nil
}

// write writes to a place of a device.
func (e *Editor) write(at Stripe, p []byte) error {
	if at.Dev == nil {
		return ErrMissing
	}
	old := make([]byte, len(p))
	if err := at.Read(e.Task, old); err != nil {
		clear(old) // a bad sector, of which nothing is to be won
	}
	e.saved.writes = append(e.saved.writes, written{at, old})
	return blockdev.Write(e.Task, at.Dev, p, int64(at.Off))
}

// EditSupers changes the superblock, in every whole copy of the last commit.
func (e *Editor) EditSupers(change func(s *format.Super)) error {
	for _, d := range e.Devs {
		for _, s := range Supers(e.Task, d.Device) {
			if s.Err != nil || s.Generation != e.SB.Generation {
				continue
			}
			change(&s.Super)
			s.Super.Encode(s.Raw)
			if err := e.write(Stripe{d, d.ID, s.Bytenr}, s.Raw); err != nil {
				return err
			}
		}
	}
	change(&e.SB)
	return nil
}

// Keep makes the changes so far stay.
func (e *Editor) Keep() {
	e.saved = saved{sb: e.SB, roots: maps.Clone(e.roots)}
}

// Rollback takes back the changes since Keep.
func (e *Editor) Rollback() error {
	var err error
	for _, w := range slices.Backward(e.saved.writes) {
		err = errors.Join(err, blockdev.Write(e.Task, w.at.Dev, w.old, int64(w.at.Off)))
	}
	e.SB, e.roots = e.saved.sb, e.saved.roots
	e.Keep()
	return err
}

package image

import (
	"fmt"
	"slices"

	"btrlab/internal/format"
)

// Edits changes trees, item by item.
//
// An item is put where its key belongs. A leaf without room is split, an empty one goes, and the
// keys above follow. A block that gets a pointer to a new block becomes as new, and so do all
// blocks above it; other blocks are changed in place and keep their generation. What the extent
// tree says of the blocks is left to the caller.
type Edits struct{ Store }

// Store is where the trees of Edits are.
type Store interface {
	// RootOf is where a tree begins; SetRoot makes a block that place.
	RootOf(tree uint64) (Ref, error)
	SetRoot(tree uint64, n format.Node) error
	// Node reads a block, WriteBlock writes one and makes its checksum right.
	Node(r Ref) (format.Node, error)
	WriteBlock(n format.Node) error
	// NewNode is a block of a tree at a free place, still empty.
	NewNode(tree uint64, level int) (format.Node, error)
	// Own is called before the items of a tree change, with the path to their leaf. It copies the
	// blocks that other trees reach as well, and makes the path that of the copies.
	Own(tree uint64, path []Step) error
}

// All calls f with the items of a tree, in key order.
func (e Edits) All(tree uint64, f func(k format.Key, b []byte)) error {
	r, err := e.RootOf(tree)
	if err != nil {
		return err
	}
	return Items(r, e.Node, f)
}

// Path reads the blocks from the root of a tree to the leaf where the key is, or would be.
func (e Edits) Path(tree uint64, key format.Key) (path []Step, found bool, err error) {
	r, err := e.RootOf(tree)
	if err != nil {
		return nil, false, err
	}
	return Search(r, key, e.Node)
}

// Change changes the bytes of an item, which keeps its size. An error of f is Change's, and leaves
// the item as it was. Other trees that reach the item have the change, too.
func (e Edits) Change(tree uint64, key format.Key, f func(b []byte) error) error {
	path, found, err := e.Path(tree, key)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("tree %d has no item %v", int64(tree), key)
	}
	leaf := path[len(path)-1]
	if err := f(leaf.N.Item(leaf.Slot)); err != nil {
		return err
	}
	return e.WriteBlock(leaf.N)
}

// Insert adds an item to a tree that has none of the key.
func (e Edits) Insert(tree uint64, key format.Key, item []byte) error {
	return e.Put(tree, key, func(_ []byte, found bool) ([]byte, bool, error) {
		if found {
			return nil, false, fmt.Errorf("tree %d has the item %v", int64(tree), key)
		}
		return item, true, nil
	})
}

// Replace gives an item other bytes, of any number.
func (e Edits) Replace(tree uint64, key format.Key, item []byte) error {
	return e.Put(tree, key, func(_ []byte, found bool) ([]byte, bool, error) {
		if !found {
			return nil, false, fmt.Errorf("tree %d has no item %v", int64(tree), key)
		}
		return item, true, nil
	})
}

// Delete takes an item out of a tree.
func (e Edits) Delete(tree uint64, key format.Key) error {
	return e.Put(tree, key, func(_ []byte, found bool) ([]byte, bool, error) {
		if !found {
			return nil, false, fmt.Errorf("tree %d has no item %v", int64(tree), key)
		}
		return nil, false, nil
	})
}

// Put makes what the item of the key is into what change returns: the bytes, and whether there is
// an item at all.
func (e Edits) Put(tree uint64, key format.Key, change func(old []byte, found bool) (b []byte, keep bool, err error)) error {
	path, found, err := e.Path(tree, key)
	if err != nil {
		return err
	}
	leaf := path[len(path)-1]
	var old []byte
	if found {
		old = slices.Clone(leaf.N.Item(leaf.Slot))
	}
	b, keep, err := change(old, found)
	if err != nil || !keep && !found {
		return err
	}
	if most := format.MaxItemSize(len(leaf.N)); len(b) > most {
		return fmt.Errorf("item %v would have %d bytes, have room for %d", key, len(b), most)
	}
	if err := e.Own(tree, path); err != nil {
		return err
	}
	list := LeafItems(leaf.N)
	switch {
	case !keep:
		list = slices.Delete(list, leaf.Slot, leaf.Slot+1)
	case found:
		list[leaf.Slot].Data = b
	default:
		list = slices.Insert(list, leaf.Slot, Item{key, b})
	}
	return e.StoreLeaf(tree, path, list)
}

// StoreLeaf gives the last block of the path, a leaf, these items, and splits it if need be.
func (e Edits) StoreLeaf(tree uint64, path []Step, list []Item) error {
	if len(list) == 0 {
		return e.storeNone(tree, path)
	}
	parts := halves(len(path[len(path)-1].N), list)
	return e.store(tree, path, len(parts), func(n format.Node, i int) format.Key {
		FillLeaf(n, parts[i])
		return parts[i][0].Key
	})
}

// StoreNode gives the last block of the path, an inner node, these pointers, and splits it if need
// be.
func (e Edits) StoreNode(tree uint64, path []Step, ptrs []Ptr) error {
	if len(ptrs) == 0 {
		return e.storeNone(tree, path)
	}
	parts := [][]Ptr{ptrs}
	if half := (len(ptrs) + 1) / 2; len(ptrs) > format.PtrsPerNode(len(path[len(path)-1].N)) {
		parts = [][]Ptr{ptrs[:half], ptrs[half:]}
	}
	return e.store(tree, path, len(parts), func(n format.Node, i int) format.Key {
		FillNode(n, parts[i])
		return parts[i][0].Key
	})
}

// store lets fill have the last block of the path and so many new ones after it as make parts, and
// tells the block above.
func (e Edits) store(tree uint64, path []Step, parts int, fill func(n format.Node, part int) (first format.Key)) error {
	n := path[len(path)-1].N
	var ptrs []Ptr
	for i := range parts {
		if i > 0 {
			var err error
			if n, err = e.NewNode(tree, n.Level()); err != nil {
				return err
			}
		}
		first := fill(n, i)
		if err := e.WriteBlock(n); err != nil {
			return err
		}
		ptrs = append(ptrs, Ptr{first, n.Bytenr(), n.Generation()})
	}
	return e.SetPtrs(tree, path, ptrs)
}

// storeNone takes the last block of the path out of its tree: an empty root becomes a leaf.
func (e Edits) storeNone(tree uint64, path []Step) error {
	if len(path) > 1 {
		up := path[len(path)-2]
		return e.StoreNode(tree, path[:len(path)-1], slices.Delete(NodePtrs(up.N), up.Slot, up.Slot+1))
	}
	n := path[0].N
	clear(n[format.HeaderSize:])
	n.SetNritems(0)
	n.SetLevel(0)
	if err := e.WriteBlock(n); err != nil {
		return err
	}
	return e.SetRoot(tree, n)
}

// SetPtrs puts pointers in the place of the one to the last block of the path, which is the first
// of them. Above a root that is the root item, or a new root.
func (e Edits) SetPtrs(tree uint64, path []Step, ptrs []Ptr) error {
	if len(path) > 1 {
		up := path[len(path)-2]
		list := NodePtrs(up.N)
		if len(ptrs) == 1 && list[up.Slot] == ptrs[0] {
			return nil
		}
		return e.StoreNode(tree, path[:len(path)-1], slices.Replace(list, up.Slot, up.Slot+1, ptrs...))
	}
	n := path[0].N
	if len(ptrs) > 1 {
		root, err := e.NewNode(tree, n.Level()+1)
		if err != nil {
			return err
		}
		FillNode(root, ptrs)
		if err := e.WriteBlock(root); err != nil {
			return err
		}
		n = root
	}
	return e.SetRoot(tree, n)
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

package mkfs

import (
	"iter"

	"btrlab/internal/format"
)

// A tree is made from the bottom: its items come in key order and fill one leaf after another. A
// leaf that is full is written, and its first key and address are the next entry of the block
// above it, which fills up in the same way. So each block is written once, and all but the last of
// each level are full.

// treeBlock is a block of a tree that has its place.
type treeBlock struct {
	bytenr uint64
	owner  uint64
	level  uint8
}

// tree is a tree that is being made.
type tree struct {
	m      *maker
	owner  uint64
	levels []format.Node // the open block of each level
	end    int           // of the open leaf: where the data of its last item begins
	places []uint64      // of the next blocks; then takeBlock's

	planned bool   // its blocks are in m.blocks, and bytes is right
	bytes   uint64 // of its blocks
	root    uint64 // address and level of the root, when the tree is finished
	level   uint8
}

// newTree begins a tree whose first blocks are at places.
func (m *maker) newTree(owner uint64, places ...uint64) *tree {
	tr := &tree{m: m, owner: owner, places: places}
	tr.open(0)
	return tr
}

func (tr *tree) open(level int) {
	if level == len(tr.levels) {
		tr.levels = append(tr.levels, make(format.Node, tr.m.o.NodeSize))
	}
	n := tr.levels[level]
	clear(n)
	n.InitHeader(tr.m.o.FSID, tr.m.o.ChunkTreeUUID, 0, generation, tr.owner, level)
	n.SetWritten(true)
	if level == 0 {
		tr.end = format.LeafDataSize(tr.m.o.NodeSize)
	}
}

// fits reports whether an item of size bytes fits into a leaf with nr items whose data begins at
// end.
func fits(nr, end, size int) bool { return (nr+1)*format.ItemHeaderSize+size <= end }

// add makes an item of size bytes, which the caller fills before the next call. Its key is greater
// than those before.
func (tr *tree) add(k format.Key, size int) ([]byte, error) {
	n := tr.levels[0]
	if !fits(n.Nritems(), tr.end, size) {
		if err := tr.close(0); err != nil {
			return nil, err
		}
		tr.open(0)
	}
	nr := n.Nritems()
	tr.end -= size
	n.SetNritems(nr + 1)
	n.SetKey(nr, k)
	n.SetItemOffset(nr, tr.end)
	n.SetItemSize(nr, size)
	return n.Item(nr), nil
}

// close writes the open block of a level and enters it into the level above.
func (tr *tree) close(level int) error {
	n := tr.levels[level]
	if err := tr.write(n, level); err != nil {
		return err
	}
	if level+1 == len(tr.levels) {
		tr.open(level + 1)
	}
	up := tr.levels[level+1]
	if up.Nritems() == format.PtrsPerNode(tr.m.o.NodeSize) {
		if err := tr.close(level + 1); err != nil {
			return err
		}
		tr.open(level + 1)
	}
	nr := up.Nritems()
	up.SetNritems(nr + 1)
	up.SetKey(nr, n.Key(0))
	up.SetBlockptr(nr, n.Bytenr())
	up.SetPtrGeneration(nr, generation)
	return nil
}

// write gives a block its place, checks it and writes it.
func (tr *tree) write(n format.Node, level int) (err error) {
	var at uint64
	if len(tr.places) > 0 {
		at, tr.places = tr.places[0], tr.places[1:]
	} else if at, err = tr.m.takeBlock(); err != nil {
		return err
	}
	n.SetBytenr(at)
	n.UpdateCsum(tr.m.o.Csum)
	if !tr.planned {
		tr.bytes += tr.m.nodeSize()
		tr.m.blocks = append(tr.m.blocks, treeBlock{at, tr.owner, uint8(level)})
	}
	ctx := format.CheckContext{Root: tr.owner, SectorSize: format.SectorSize, NodeSize: uint32(tr.m.o.NodeSize), Generation: generation, Level: level, Csum: tr.m.o.Csum}
	checked := format.CheckLeaf
	if level > 0 {
		checked = format.CheckNode
	}
	if err := checked(n, ctx); err != nil {
		panic("mkfs: made a bad block: " + err.Error())
	}
	return tr.m.writeBlock(n)
}

// finish writes what is open, up to the root.
func (tr *tree) finish() error {
	for l := 0; l+1 < len(tr.levels); l++ {
		if err := tr.close(l); err != nil {
			return err
		}
	}
	top := len(tr.levels) - 1
	if err := tr.write(tr.levels[top], top); err != nil {
		return err
	}
	tr.root, tr.level = tr.levels[top].Bytenr(), uint8(top)
	return nil
}

// levelsOf lists the levels of a tree's blocks in the order in which they are written.
func (m *maker) levelsOf(items iter.Seq[item]) (list []uint8) {
	var entries [format.MaxLevel + 1]int // in the open block of each level above the leaves
	top := 0
	var closed func(level int)
	closed = func(level int) {
		list = append(list, uint8(level))
		if level == top {
			top++
		} else if entries[level+1] == format.PtrsPerNode(m.o.NodeSize) {
			closed(level + 1)
			entries[level+1] = 0
		}
		entries[level+1]++
	}
	nr, end := 0, format.LeafDataSize(m.o.NodeSize)
	for it := range items {
		if !fits(nr, end, it.size()) {
			closed(0)
			nr, end = 0, format.LeafDataSize(m.o.NodeSize)
		}
		nr++
		end -= it.size()
	}
	for l := 0; l < top; l++ {
		closed(l)
	}
	return append(list, uint8(top))
}

package mkfs

import (
	"iter"

	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// treeBlock is a block of a tree that has its place.
type treeBlock struct {
	bytenr uint64
	owner  uint64
	level  uint8
}

// tree is a tree that is being made.
type tree struct {
	*image.Packer
	m      *maker
	owner  uint64
	places []uint64 // of the next blocks; then takeBlock's

	planned bool   // its blocks are in m.blocks, and bytes is right
	bytes   uint64 // of its blocks
	root    uint64 // address and level of the root, when the tree is finished
	level   uint8
}

// newTree begins a tree whose first blocks are at places.
func (m *maker) newTree(owner uint64, places ...uint64) *tree {
	tr := &tree{m: m, owner: owner, places: places}
	tr.Packer = image.NewPacker(image.PackOptions{Owner: owner, FSID: m.o.FSID, ChunkTreeUUID: m.o.ChunkTreeUUID, Generation: generation,
		NodeSize: m.o.NodeSize, Csum: m.o.Csum, Place: tr.place, Write: tr.write})
	return tr
}

func (tr *tree) place(int) (uint64, error) {
	if len(tr.places) == 0 {
		return tr.m.takeBlock()
	}
	at := tr.places[0]
	tr.places = tr.places[1:]
	return at, nil
}

// write checks a block and writes it.
func (tr *tree) write(n format.Node) error {
	if !tr.planned {
		tr.bytes += tr.m.nodeSize()
		tr.m.blocks = append(tr.m.blocks, treeBlock{n.Bytenr(), tr.owner, uint8(n.Level())})
	}
	ctx := format.CheckContext{Root: tr.owner, SectorSize: format.SectorSize, NodeSize: uint32(tr.m.o.NodeSize), Generation: generation, Level: n.Level(), Csum: tr.m.o.Csum}
	checked := format.CheckLeaf
	if n.Level() > 0 {
		checked = format.CheckNode
	}
	if err := checked(n, ctx); err != nil {
		panic("mkfs: made a bad block: " + err.Error())
	}
	return tr.m.writeBlock(n)
}

// finish writes what is open, up to the root.
func (tr *tree) finish() (err error) {
	tr.root, tr.level, err = tr.Finish()
	return err
}

// levelsOf lists the levels of a tree's blocks in the order in which they are written.
func (m *maker) levelsOf(items iter.Seq[item]) []uint8 {
	return image.Levels(m.o.NodeSize, func(yield func(int) bool) {
		for it := range items {
			if !yield(it.size()) {
				return
			}
		}
	})
}

package rescue

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Block is a copy of a tree block on a device.
type Block struct {
	Bytenr, Generation, Owner uint64
	Level                     uint8
	Off                       int64
	First, Last               format.Key
}

// Blocks is every copy of every tree block on dev, in use or not.
func Blocks(t *sched.Task, dev blockdev.Device) (list []Block, im *Image, err error) {
	im, err = Open(t, []blockdev.Device{dev}, Options{})
	if err != nil {
		return nil, nil, err
	}
	size := int(im.SB.NodeSize)
	err = im.sweep(func(_ int, p []byte, off int64) int {
		if len(p) < size || format.Node(p).FSID() != im.SB.TreeFSID() || !im.SB.CsumType.BlockMatch(p[:size]) {
			return format.SectorSize
		}
		f := foundOf(format.Node(p[:size]), 0, off)
		list = append(list, Block{f.bytenr, f.generation, f.owner, f.level, off, f.first, f.last})
		return size
	})
	return list, im, err
}

// Super is the superblock that the image is read by.
func (im *Image) Super() format.Super { return im.SB }

// Root is where the tree begins.
func (im *Image) Root(id uint64) (bytenr, generation uint64) {
	switch id {
	case format.ROOT_TREE_OBJECTID:
		return im.SB.Root, im.SB.Generation
	case format.CHUNK_TREE_OBJECTID:
		return im.SB.ChunkRoot, im.SB.ChunkRootGeneration
	}
	r, _ := im.item(id)
	return r.Bytenr, r.Generation
}

// Leaf is the leaf of a tree with the key.
func (im *Image) Leaf(id uint64, k format.Key) (bytenr, generation uint64) {
	tr, err := im.tree(id)
	if err != nil {
		panic(err)
	}
	for _, l := range tr.leaves {
		if !k.Less(l.lo) && !l.hi.Less(k) {
			return l.bytenr, l.generation
		}
	}
	panic("no such leaf")
}

// Leaves is the number of leaves of a tree.
func (im *Image) Leaves(id uint64) int {
	tr, err := im.tree(id)
	if err != nil {
		panic(err)
	}
	return len(tr.leaves)
}

// DataAt is where the first data chunk lies on its device.
func (im *Image) DataAt() (off, length uint64) {
	for _, ch := range im.Chunks {
		if ch.Type&format.BlockGroupData != 0 {
			return ch.Stripes[0].Off, ch.Length
		}
	}
	panic("no data chunk")
}

package image

import (
	"iter"

	"btrlab/internal/format"
)

// Packer makes a tree from the bottom: its items come in key order and fill one leaf after another.
// A leaf that is full is written, and its first key and address are the next entry of the block
// above it, which fills up in the same way. So each block is written once, and all but the last of
// each level are full.
type Packer struct {
	o      PackOptions
	levels []format.Node // the open block of each level
	end    int           // of the open leaf: where the data of its last item begins
}

// PackOptions say what is in the header of each block of a tree, and where the blocks go.
type PackOptions struct {
	Owner         uint64
	FSID          format.UUID
	ChunkTreeUUID format.UUID
	Generation    uint64
	NodeSize      int
	Csum          format.CsumType
	// Place finds the address of the next block, which is of the level and complete but for it.
	Place func(level int) (uint64, error)
	// Write writes a block. Its memory is used again.
	Write func(n format.Node) error
}

// NewPacker begins a tree.
func NewPacker(o PackOptions) *Packer {
	p := &Packer{o: o}
	p.open(0)
	return p
}

func (p *Packer) open(level int) {
	if level == len(p.levels) {
		p.levels = append(p.levels, make(format.Node, p.o.NodeSize))
	}
	n := p.levels[level]
	clear(n)
	n.InitHeader(p.o.FSID, p.o.ChunkTreeUUID, 0, p.o.Generation, p.o.Owner, level)
	n.SetWritten(true)
	if level == 0 {
		p.end = format.LeafDataSize(p.o.NodeSize)
	}
}

// fits reports whether an item of size bytes fits into a leaf with nr items whose data begins at
// end.
func fits(nr, end, size int) bool { return (nr+1)*format.ItemHeaderSize+size <= end }

// appendItem adds an item of size bytes to a leaf whose data begins at end, and returns where it
// does then.
func appendItem(n format.Node, end int, k format.Key, size int) int {
	nr := n.Nritems()
	n.SetNritems(nr + 1)
	n.SetKey(nr, k)
	n.SetItemOffset(nr, end-size)
	n.SetItemSize(nr, size)
	return end - size
}

// appendPtr adds a pointer to an inner node.
func appendPtr(n format.Node, p Ptr) {
	nr := n.Nritems()
	n.SetNritems(nr + 1)
	n.SetKey(nr, p.Key)
	n.SetBlockptr(nr, p.Bytenr)
	n.SetPtrGeneration(nr, p.Generation)
}

// Add makes an item of size bytes, which the caller fills before the next call. Its key is greater
// than those before.
func (p *Packer) Add(k format.Key, size int) ([]byte, error) {
	n := p.levels[0]
	if !fits(n.Nritems(), p.end, size) {
		if err := p.close(0); err != nil {
			return nil, err
		}
		p.open(0)
	}
	p.end = appendItem(n, p.end, k, size)
	return n.Item(n.Nritems() - 1), nil
}

// close writes the open block of a level and enters it into the level above.
func (p *Packer) close(level int) error {
	n := p.levels[level]
	if err := p.write(level); err != nil {
		return err
	}
	if level+1 == len(p.levels) {
		p.open(level + 1)
	}
	up := p.levels[level+1]
	if up.Nritems() == format.PtrsPerNode(p.o.NodeSize) {
		if err := p.close(level + 1); err != nil {
			return err
		}
		p.open(level + 1)
	}
	appendPtr(up, Ptr{n.Key(0), n.Bytenr(), p.o.Generation})
	return nil
}

// write gives the open block of a level its place and writes it.
func (p *Packer) write(level int) error {
	at, err := p.o.Place(level)
	if err != nil {
		return err
	}
	p.levels[level].SetBytenr(at)
	p.levels[level].UpdateCsum(p.o.Csum)
	return p.o.Write(p.levels[level])
}

// Finish writes what is open, up to the root, of which it returns address and level.
func (p *Packer) Finish() (root uint64, level uint8, err error) {
	for l := 0; l+1 < len(p.levels); l++ {
		if err := p.close(l); err != nil {
			return 0, 0, err
		}
	}
	top := len(p.levels) - 1
	if err := p.write(top); err != nil {
		return 0, 0, err
	}
	return p.levels[top].Bytenr(), uint8(top), nil
}

// Levels lists the levels of the blocks of a tree with items of these sizes, in the order in which
// a Packer writes them. The root comes last.
func Levels(nodeSize int, sizes iter.Seq[int]) (list []uint8) {
	var entries [format.MaxLevel + 1]int // in the open block of each level above the leaves
	top := 0
	var closed func(level int)
	closed = func(level int) {
		list = append(list, uint8(level))
		if level == top {
			top++
		} else if entries[level+1] == format.PtrsPerNode(nodeSize) {
			closed(level + 1)
			entries[level+1] = 0
		}
		entries[level+1]++
	}
	nr, end := 0, format.LeafDataSize(nodeSize)
	for size := range sizes {
		if !fits(nr, end, size) {
			closed(0)
			nr, end = 0, format.LeafDataSize(nodeSize)
		}
		nr++
		end -= size
	}
	for l := 0; l < top; l++ {
		closed(l)
	}
	return append(list, uint8(top))
}

// Item is an item of a leaf.
type Item struct {
	Key  format.Key
	Data []byte
}

// Sizes are the sizes of items, in bytes.
func Sizes(items []Item) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, it := range items {
			if !yield(len(it.Data)) {
				return
			}
		}
	}
}

// Pack makes a tree of items, which are in key order.
func Pack(o PackOptions, items []Item) (root uint64, level uint8, err error) {
	p := NewPacker(o)
	for _, it := range items {
		b, err := p.Add(it.Key, len(it.Data))
		if err != nil {
			return 0, 0, err
		}
		copy(b, it.Data)
	}
	return p.Finish()
}

// LeafItems copies the items of a leaf.
func LeafItems(n format.Node) (list []Item) {
	for i := range n.Nritems() {
		list = append(list, Item{n.Key(i), append([]byte(nil), n.Item(i)...)})
	}
	return list
}

// FillLeaf gives a leaf these items, which have room in it.
func FillLeaf(n format.Node, list []Item) {
	clear(n[format.HeaderSize:])
	n.SetNritems(0)
	end := format.LeafDataSize(len(n))
	for i, it := range list {
		end = appendItem(n, end, it.Key, len(it.Data))
		copy(n.Item(i), it.Data)
	}
}

// LeafRoom says how many of the items have room in a leaf.
func LeafRoom(nodeSize int, list []Item) (n int) {
	end := format.LeafDataSize(nodeSize)
	for n < len(list) && fits(n, end, len(list[n].Data)) {
		end -= len(list[n].Data)
		n++
	}
	return n
}

// Ptr is a pointer of an inner node.
type Ptr struct {
	Key                format.Key
	Bytenr, Generation uint64
}

// NodePtrs are the pointers of an inner node.
func NodePtrs(n format.Node) (list []Ptr) {
	for i := range n.Nritems() {
		list = append(list, Ptr{n.Key(i), n.Blockptr(i), n.PtrGeneration(i)})
	}
	return list
}

// FillNode gives an inner node these pointers, which have room in it. It becomes as new as the
// newest block that it points at.
func FillNode(n format.Node, ptrs []Ptr) {
	clear(n[format.HeaderSize:])
	n.SetNritems(0)
	for _, p := range ptrs {
		appendPtr(n, p)
		n.SetGeneration(max(n.Generation(), p.Generation))
	}
}

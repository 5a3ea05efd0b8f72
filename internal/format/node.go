package format

// Node is a tree block, leaf or inner node, as it lies on disk: a header, then in a leaf item
// headers growing up and item data growing down from the end, in an inner node key pointers.
// Accessors do not check bounds beyond Go's own; run CheckBlock on foreign bytes first.
type Node []byte

// Header fields. Csum is the checksum of a file system with crc32c; CsumType.BlockMatch judges any.
func (n Node) Csum() uint32            { return le.Uint32(n) }
func (n Node) FSID() (u UUID)          { copy(u[:], n[32:48]); return }
func (n Node) Bytenr() uint64          { return le.Uint64(n[48:]) }
func (n Node) Flags() uint64           { return le.Uint64(n[56:]) }
func (n Node) ChunkTreeUUID() (u UUID) { copy(u[:], n[64:80]); return }
func (n Node) Generation() uint64      { return le.Uint64(n[80:]) }
func (n Node) Owner() uint64           { return le.Uint64(n[88:]) }
func (n Node) Nritems() int            { return int(le.Uint32(n[96:])) }
func (n Node) Level() int              { return int(n[100]) }
func (n Node) SetFSID(u UUID)          { copy(n[32:48], u[:]) }
func (n Node) SetBytenr(v uint64)      { le.PutUint64(n[48:], v) }
func (n Node) SetFlags(v uint64)       { le.PutUint64(n[56:], v) }
func (n Node) SetChunkTreeUUID(u UUID) { copy(n[64:80], u[:]) }
func (n Node) SetGeneration(v uint64)  { le.PutUint64(n[80:], v) }
func (n Node) SetOwner(v uint64)       { le.PutUint64(n[88:], v) }
func (n Node) SetNritems(v int)        { le.PutUint32(n[96:], uint32(v)) }
func (n Node) SetLevel(v int)          { n[100] = uint8(v) }

// Written reports whether the block has been given to the device: it may only be changed by COW.
func (n Node) Written() bool { return n.Flags()&HeaderFlagWritten != 0 }

// SetWritten sets or clears the flag.
func (n Node) SetWritten(on bool) {
	if on {
		n.SetFlags(n.Flags() | HeaderFlagWritten)
	} else {
		n.SetFlags(n.Flags() &^ HeaderFlagWritten)
	}
}

// InitHeader makes an empty block; all else is zero. Flags say MIXED_BACKREF revision, not written.
func (n Node) InitHeader(fsid, chunkTreeUUID UUID, bytenr, generation, owner uint64, level int) {
	clear(n)
	n.SetFSID(fsid)
	n.SetBytenr(bytenr)
	n.SetFlags(MixedBackrefRev << BackrefRevShift)
	n.SetChunkTreeUUID(chunkTreeUUID)
	n.SetGeneration(generation)
	n.SetOwner(owner)
	n.SetLevel(level)
}

// UpdateCsum computes and stores the block's checksum; do it last.
func (n Node) UpdateCsum(c CsumType) {
	sum := c.Sum(n[CsumField:])
	copy(n, sum[:])
}

// ComputeCsum returns the right value of Csum in a file system with crc32c.
func (n Node) ComputeCsum() uint32 { return CRC32C(n[CsumField:]) }

// Key is the key in slot of a leaf or inner node.
func (n Node) Key(slot int) Key {
	if n.Level() == 0 {
		return DecodeKey(n[HeaderSize+slot*ItemHeaderSize:])
	}
	return DecodeKey(n[HeaderSize+slot*KeyPtrSize:])
}

// SetKey replaces the key in slot.
func (n Node) SetKey(slot int, k Key) {
	if n.Level() == 0 {
		k.Encode(n[HeaderSize+slot*ItemHeaderSize:])
	} else {
		k.Encode(n[HeaderSize+slot*KeyPtrSize:])
	}
}

// Blockptr is the address of an inner node's child in slot.
func (n Node) Blockptr(slot int) uint64 { return le.Uint64(n[HeaderSize+slot*KeyPtrSize+17:]) }

// PtrGeneration is the generation the child must have.
func (n Node) PtrGeneration(slot int) uint64 { return le.Uint64(n[HeaderSize+slot*KeyPtrSize+25:]) }

// SetBlockptr replaces the pointer in slot.
func (n Node) SetBlockptr(slot int, v uint64) { le.PutUint64(n[HeaderSize+slot*KeyPtrSize+17:], v) }

// SetPtrGeneration replaces the generation in slot.
func (n Node) SetPtrGeneration(slot int, v uint64) {
	le.PutUint64(n[HeaderSize+slot*KeyPtrSize+25:], v)
}

// PtrsPerNode is how many key pointers an inner node of nodesize bytes has room for.
func PtrsPerNode(nodesize int) int { return (nodesize - HeaderSize) / KeyPtrSize }

// ItemOffset is where the data of the item in slot starts, counted from the end of the header.
func (n Node) ItemOffset(slot int) int {
	return int(le.Uint32(n[HeaderSize+slot*ItemHeaderSize+17:]))
}

// ItemSize is the size of the item's data in bytes.
func (n Node) ItemSize(slot int) int {
	return int(le.Uint32(n[HeaderSize+slot*ItemHeaderSize+21:]))
}

// SetItemOffset replaces the offset.
func (n Node) SetItemOffset(slot, v int) {
	le.PutUint32(n[HeaderSize+slot*ItemHeaderSize+17:], uint32(v))
}

// SetItemSize replaces the size.
func (n Node) SetItemSize(slot, v int) {
	le.PutUint32(n[HeaderSize+slot*ItemHeaderSize+21:], uint32(v))
}

// Item is the data of the item in slot: a window into the block.
func (n Node) Item(slot int) []byte {
	o := HeaderSize + n.ItemOffset(slot)
	s := n.ItemSize(slot)
	return n[o : o+s : o+s]
}

// LeafDataSize is the room for item headers and data in a leaf of nodesize bytes.
func LeafDataSize(nodesize int) int { return nodesize - HeaderSize }

// MaxItemSize is the largest item data that fits a leaf.
func MaxItemSize(nodesize int) int { return LeafDataSize(nodesize) - ItemHeaderSize }

// LeafDataEnd is the offset (from the end of the header) where item data begins; the leaf's size
// when empty.
func (n Node) LeafDataEnd() int {
	nr := n.Nritems()
	if nr == 0 {
		return LeafDataSize(len(n))
	}
	return n.ItemOffset(nr - 1)
}

// LeafFreeSpace is the room left in a leaf, in bytes, for item headers and data together.
func (n Node) LeafFreeSpace() int { return n.LeafDataEnd() - n.Nritems()*ItemHeaderSize }

// Search finds the first slot in [0, Nritems) whose key is not before k, and whether it is k.
func (n Node) Search(k Key) (slot int, found bool) {
	stride := ItemHeaderSize
	if n.Level() > 0 {
		stride = KeyPtrSize
	}
	lo, hi := 0, n.Nritems()
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		c := DecodeKey(n[HeaderSize+mid*stride:]).Compare(k)
		if c == 0 {
			return mid, true
		}
		if c < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, false
}

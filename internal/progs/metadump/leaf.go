package metadump

import (
	"btrlab/internal/format"
)

// strip takes out of a tree block what a dump does not have: the contents of inline extents, so
// also the targets of symbolic links, the checksums of data, and what old items have left in the
// room that is free. Names, if it is not nil, takes names and attributes out as well. The block
// gets the checksum of what is left.
//
// A block whose items do not lie in it keeps its header only. That is a difference to btrfs-image,
// which does not look: what is in such an item may be file data.
//
// Models copy_buffer() and zero_items() of btrfs-progs' image/image-create.c.
func strip(n format.Node, csum format.CsumType, names *namer) (whole bool) {
	defer n.UpdateCsum(csum)
	if n.Level() > 0 {
		used := format.HeaderSize + n.Nritems()*format.KeyPtrSize
		if n.Nritems() > format.PtrsPerNode(len(n)) {
			clear(n[format.HeaderSize:])
			return false
		}
		clear(n[used:])
		return true
	}
	if !itemsInside(n) {
		clear(n[format.HeaderSize:])
		return false
	}
	clear(n[format.HeaderSize+n.Nritems()*format.ItemHeaderSize : format.HeaderSize+n.LeafDataEnd()])
	end := format.LeafDataSize(len(n))
	for i := range n.Nritems() {
		stripItem(n.Key(i), n.Item(i), names)
		gap := n.ItemOffset(i) + n.ItemSize(i) // a sound leaf has none
		clear(n[format.HeaderSize+gap : format.HeaderSize+end])
		end = n.ItemOffset(i)
	}
	return true
}

// itemsInside reports whether the items of a leaf lie in it, each before the one of the slot
// before, after the item headers.
func itemsInside(n format.Node) bool {
	room := format.LeafDataSize(len(n))
	if n.Nritems() > room/format.ItemHeaderSize {
		return false
	}
	end := room
	for i := range n.Nritems() {
		off, size := n.ItemOffset(i), n.ItemSize(i)
		if off < n.Nritems()*format.ItemHeaderSize || size > room || off+size > end {
			return false
		}
		end = off
	}
	return true
}

func stripItem(k format.Key, b []byte, names *namer) {
	switch k.Type {
	case format.EXTENT_CSUM_KEY:
		clear(b)
	case format.EXTENT_DATA_KEY:
		if len(b) >= format.FileExtentInline && format.FileExtentView(b).Type() == format.FileExtentTypeInline {
			clear(format.FileExtentView(b).Inline())
		}
	default:
		if names != nil {
			names.item(k.Type, b)
		}
	}
}

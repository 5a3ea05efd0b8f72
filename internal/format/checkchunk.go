package format

import "fmt"

// Items about the device: chunks, device extents, devices.

// groupTypeErr judges the type of a chunk or block group.
func groupTypeErr(flags uint64) Breach {
	if p := flags & BlockGroupProfileMask; p&(p-1) != 0 {
		return Breach{"bad profile", hexa(p), "one bit at most"}
	}
	switch flags & BlockGroupTypeMask {
	case BlockGroupData, BlockGroupSystem, BlockGroupMetadata, BlockGroupData | BlockGroupMetadata:
	default:
		return Breach{"bad block group type", hexa(flags & BlockGroupTypeMask), ""}
	}
	if f := flags &^ uint64(BlockGroupTypeMask|BlockGroupProfileMask); f != 0 {
		return Breach{"unknown block group flags", hexa(f), ""}
	}
	return Breach{}
}

func (k *checker) devExtent(b []byte) error {
	if len(b) != DevExtentSize {
		return k.err("bad dev extent size", dec(len(b)), dec(DevExtentSize))
	}
	var d DevExtent
	d.Decode(b)
	if d.ChunkTree != CHUNK_TREE_OBJECTID || d.ChunkObjectid != FIRST_CHUNK_TREE_OBJECTID {
		return k.err("bad dev extent chunk", fmt.Sprintf("tree %d objectid %d", d.ChunkTree, d.ChunkObjectid),
			fmt.Sprintf("%d and %d", CHUNK_TREE_OBJECTID, FIRST_CHUNK_TREE_OBJECTID))
	}
	if (k.key.Offset|d.ChunkOffset|d.Length)&k.mask != 0 || d.Length == 0 || k.key.Offset+d.Length < d.Length {
		return k.err("bad dev extent range", fmt.Sprintf("physical %d logical %d length %d", k.key.Offset, d.ChunkOffset, d.Length), "")
	}
	if k.slot > 0 && k.prev.Type == DEV_EXTENT_KEY && k.prev.Objectid == k.key.Objectid {
		d.Decode(k.n.Item(k.slot - 1))
		if end := k.prev.Offset + d.Length; end > k.key.Offset {
			return k.err("dev extent overlaps the one before", dec(k.key.Offset), fmt.Sprintf("at least %d", end))
		}
	}
	return nil
}

func (k *checker) devItem(b []byte) error {
	if k.key.Objectid != DEV_ITEMS_OBJECTID {
		return k.err("bad dev item objectid", dec(k.key.Objectid), dec(DEV_ITEMS_OBJECTID))
	}
	if len(b) != DevItemSize {
		return k.err("bad dev item size", dec(len(b)), dec(DevItemSize))
	}
	var d DevItem
	d.Decode(b)
	if d.Devid != k.key.Offset {
		return k.err("bad devid", dec(d.Devid), dec(k.key.Offset))
	}
	if d.BytesUsed > d.TotalBytes {
		return k.err("bad device bytes_used", dec(d.BytesUsed), fmt.Sprintf("at most %d", d.TotalBytes))
	}
	return nil
}

func (k *checker) chunk(b []byte) error {
	if k.key.Objectid != FIRST_CHUNK_TREE_OBJECTID {
		return k.err("bad chunk objectid", dec(k.key.Objectid), dec(FIRST_CHUNK_TREE_OBJECTID))
	}
	if len(b) < ChunkSize(1) {
		return k.err("bad chunk item size", dec(len(b)), fmt.Sprintf("at least %d", ChunkSize(1)))
	}
	if n := ChunkStripes(b); ChunkSize(n) != len(b) {
		return k.err("bad chunk num_stripes", fmt.Sprintf("%d in an item of %d bytes", n, len(b)), "")
	}
	if s := chunkErr(b, k.key.Offset, k.mask); s != (Breach{}) {
		return k.broken(s)
	}
	return nil
}

// chunkErr says what is wrong with a chunk, which is long enough for its stripes, at logical; the
// zero Breach is nothing.
//
// Models fs/btrfs/tree-checker.c:btrfs_check_chunk_valid().
func chunkErr(c ChunkView, logical, mask uint64) Breach {
	length, typ, n := c.Length(), c.Type(), c.NumStripes()
	if n == 0 {
		return Breach{"bad chunk num_stripes", "0", ""}
	}
	if logical&mask != 0 {
		return Breach{"unaligned chunk logical", dec(logical), ""}
	}
	if ss := c.SectorSize(); uint64(ss) != mask+1 {
		return Breach{"bad chunk sectorsize", dec(ss), dec(mask + 1)}
	}
	if length == 0 || length&mask != 0 || logical+length < logical {
		return Breach{"bad chunk length", dec(length), ""}
	}
	if l := c.StripeLen(); l != StripeLen {
		return Breach{"bad chunk stripe_len", dec(l), dec(StripeLen)}
	}
	if s := groupTypeErr(typ); s != (Breach{}) {
		return s
	}
	p := ProfileOf(typ)
	if want := p.StripesWanted(n); want != "" {
		return Breach{"bad chunk num_stripes", dec(n), want}
	}
	if sub := c.SubStripes(); p.SubStripes > 1 && sub != p.SubStripes {
		return Breach{"bad chunk sub_stripes", dec(sub), dec(p.SubStripes)}
	}
	stripe := length
	if p.Striped() {
		data := uint64(p.DataStripes(n))
		if length%(data*StripeLen) != 0 {
			return Breach{"bad chunk length", dec(length), fmt.Sprintf("a multiple of %d", data*StripeLen)}
		}
		stripe = length / data
	}
	for i := range n {
		if off := c.StripeOffset(i); off&mask != 0 || off+stripe < off {
			return Breach{"bad chunk stripe offset", dec(off), ""}
		}
	}
	return Breach{}
}

package format

import "fmt"

// Items about the device: chunks, device extents, devices.

func groupTypeErr(flags uint64) string {
	if p := flags & BlockGroupProfileMask; p&(p-1) != 0 {
		return fmt.Sprintf("bad profile, have 0x%x want one bit at most", p)
	}
	switch flags & BlockGroupTypeMask {
	case BlockGroupData, BlockGroupSystem, BlockGroupMetadata, BlockGroupData | BlockGroupMetadata:
	default:
		return fmt.Sprintf("bad block group type, have 0x%x", flags&BlockGroupTypeMask)
	}
	if f := flags &^ uint64(BlockGroupTypeMask|BlockGroupProfileMask); f != 0 {
		return fmt.Sprintf("unknown block group flags, have 0x%x", f)
	}
	return ""
}

func (k *checker) devExtent(b []byte) error {
	if len(b) != DevExtentSize {
		return k.err("bad dev extent size, have %d want %d", len(b), DevExtentSize)
	}
	var d DevExtent
	d.Decode(b)
	if d.ChunkTree != CHUNK_TREE_OBJECTID || d.ChunkObjectid != FIRST_CHUNK_TREE_OBJECTID {
		return k.err("bad dev extent chunk, have tree %d objectid %d want %d and %d", d.ChunkTree, d.ChunkObjectid,
			CHUNK_TREE_OBJECTID, FIRST_CHUNK_TREE_OBJECTID)
	}
	if (k.key.Offset|d.ChunkOffset|d.Length)&k.mask != 0 || d.Length == 0 || k.key.Offset+d.Length < d.Length {
		return k.err("bad dev extent range, have physical %d logical %d length %d", k.key.Offset, d.ChunkOffset, d.Length)
	}
	if k.slot > 0 && k.prev.Type == DEV_EXTENT_KEY && k.prev.Objectid == k.key.Objectid {
		d.Decode(k.n.Item(k.slot - 1))
		if end := k.prev.Offset + d.Length; end > k.key.Offset {
			return k.err("dev extent overlaps the one before, have %d want at least %d", k.key.Offset, end)
		}
	}
	return nil
}

func (k *checker) devItem(b []byte) error {
	if k.key.Objectid != DEV_ITEMS_OBJECTID {
		return k.err("bad dev item objectid, have %d want %d", k.key.Objectid, DEV_ITEMS_OBJECTID)
	}
	if len(b) != DevItemSize {
		return k.err("bad dev item size, have %d want %d", len(b), DevItemSize)
	}
	var d DevItem
	d.Decode(b)
	if d.Devid != k.key.Offset {
		return k.err("bad devid, have %d want %d", d.Devid, k.key.Offset)
	}
	if d.BytesUsed > d.TotalBytes {
		return k.err("bad device bytes_used, have %d want at most %d", d.BytesUsed, d.TotalBytes)
	}
	return nil
}

func (k *checker) chunk(b []byte) error {
	if k.key.Objectid != FIRST_CHUNK_TREE_OBJECTID {
		return k.err("bad chunk objectid, have %d want %d", k.key.Objectid, FIRST_CHUNK_TREE_OBJECTID)
	}
	if len(b) < ChunkSize(1) {
		return k.err("bad chunk item size, have %d want at least %d", len(b), ChunkSize(1))
	}
	if n := ChunkStripes(b); ChunkSize(n) != len(b) {
		return k.err("bad chunk num_stripes, have %d in an item of %d bytes", n, len(b))
	}
	if s := chunkErr(b, k.key.Offset, k.mask); s != "" {
		return k.err("%s", s)
	}
	return nil
}

// chunkErr says what is wrong with a chunk, which is long enough for its stripes, at logical; "" is
// nothing.
//
// Models fs/btrfs/tree-checker.c:btrfs_check_chunk_valid().
func chunkErr(c ChunkView, logical, mask uint64) string {
	length, typ, n := c.Length(), c.Type(), c.NumStripes()
	if n == 0 {
		return "bad chunk num_stripes, have 0"
	}
	if logical&mask != 0 {
		return fmt.Sprintf("unaligned chunk logical, have %d", logical)
	}
	if ss := c.SectorSize(); uint64(ss) != mask+1 {
		return fmt.Sprintf("bad chunk sectorsize, have %d want %d", ss, mask+1)
	}
	if length == 0 || length&mask != 0 || logical+length < logical {
		return fmt.Sprintf("bad chunk length, have %d", length)
	}
	if l := c.StripeLen(); l != StripeLen {
		return fmt.Sprintf("bad chunk stripe_len, have %d want %d", l, StripeLen)
	}
	if s := groupTypeErr(typ); s != "" {
		return s
	}
	p := ProfileOf(typ)
	if want := p.StripesWanted(n); want != "" {
		return fmt.Sprintf("bad chunk num_stripes, have %d want %s", n, want)
	}
	if sub := c.SubStripes(); p.SubStripes > 1 && sub != p.SubStripes {
		return fmt.Sprintf("bad chunk sub_stripes, have %d want %d", sub, p.SubStripes)
	}
	stripe := length
	if p.Striped() {
		data := uint64(p.DataStripes(n))
		if length%(data*StripeLen) != 0 {
			return fmt.Sprintf("bad chunk length, have %d want a multiple of %d", length, data*StripeLen)
		}
		stripe = length / data
	}
	for i := range n {
		if off := c.StripeOffset(i); off&mask != 0 || off+stripe < off {
			return fmt.Sprintf("bad chunk stripe offset, have %d", off)
		}
	}
	return ""
}

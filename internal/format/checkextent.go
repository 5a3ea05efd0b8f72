package format

import "fmt"

// Items about space: extents with their references, block groups, free space.

func (k *checker) dataRef(d *ExtentDataRef) error {
	if !IsFSTree(d.Root) && d.Root != ROOT_TREE_OBJECTID && d.Root != DATA_RELOC_TREE_OBJECTID {
		return k.err("bad data ref root", dec(int64(d.Root)), "")
	}
	if ino := uint64(d.Ino); (ino < FIRST_FREE_OBJECTID || ino > LAST_FREE_OBJECTID) && ino != FREE_INO_OBJECTID {
		return k.err("bad data ref objectid", dec(int64(ino)), "")
	}
	// The offset may wrap below zero: a file extent may start inside its extent, as clones do.
	if uint64(d.Offset)&k.mask != 0 {
		return k.err("unaligned data ref offset", dec(d.Offset), "")
	}
	if d.Count == 0 {
		return k.err("bad data ref count", "0", "")
	}
	return nil
}

func (k *checker) extentItem(b []byte) error {
	if k.key.Objectid&k.mask != 0 {
		return k.err("unaligned extent address", dec(k.key.Objectid), "")
	}
	if len(b) < ExtentItemSize {
		return k.err("bad extent item size", dec(len(b)), fmt.Sprintf("at least %d", ExtentItemSize))
	}
	var it ExtentItem
	it.Decode(b)
	if it.Refs == 0 {
		return k.err("bad extent refs", "0", "")
	}
	if err := k.generation("extent generation", it.Generation); err != nil {
		return err
	}
	tree := it.Flags&(ExtentFlagData|ExtentFlagTreeBlock) == ExtentFlagTreeBlock
	p, length, err := k.extentKind(b, it.Flags)
	if err != nil {
		return err
	}
	if k.key.Objectid+length < k.key.Objectid {
		return k.err("extent end overflows", fmt.Sprintf("length %d", length), "")
	}
	total, err := k.inlineRefs(b, p, tree)
	if err != nil {
		return err
	}
	if total > it.Refs {
		return k.err("bad extent refs", dec(it.Refs), fmt.Sprintf("at least %d", total))
	}
	if k.slot > 0 && (k.prev.Type == EXTENT_ITEM_KEY || k.prev.Type == METADATA_ITEM_KEY) {
		end := k.prev.Objectid + k.prev.Offset
		if k.prev.Type == METADATA_ITEM_KEY {
			end = k.prev.Objectid + uint64(k.c.NodeSize)
		}
		if end > k.key.Objectid {
			return k.err("extent overlaps the one before", dec(k.key.Objectid), fmt.Sprintf("at least %d", end))
		}
	}
	return nil
}

// extentKind checks the part of an extent's item that only a tree block or only data has: refs is
// where in b the inline references begin, length is the extent's in bytes.
func (k *checker) extentKind(b []byte, flags uint64) (refs int, length uint64, err error) {
	refs, length = ExtentItemSize, k.key.Offset
	switch flags & (ExtentFlagData | ExtentFlagTreeBlock) {
	case ExtentFlagTreeBlock:
		if k.key.Type == METADATA_ITEM_KEY {
			if length >= MaxLevel {
				return 0, 0, k.err("bad tree block level", dec(length), fmt.Sprintf("at most %d", MaxLevel-1))
			}
			return refs, uint64(k.c.NodeSize), nil
		}
		if length != uint64(k.c.NodeSize) {
			return 0, 0, k.err("bad tree block length", dec(length), dec(k.c.NodeSize))
		}
		refs += TreeBlockInfoSize
		if len(b) < refs {
			return 0, 0, k.err("bad extent item size", dec(len(b)), fmt.Sprintf("at least %d", refs))
		}
		if l := b[refs-1]; l >= MaxLevel {
			return 0, 0, k.err("bad tree block level", dec(l), fmt.Sprintf("at most %d", MaxLevel-1))
		}
	case ExtentFlagData:
		if k.key.Type != EXTENT_ITEM_KEY {
			return 0, 0, k.err("bad key type of a data extent", dec(k.key.Type), dec(EXTENT_ITEM_KEY))
		}
		if length == 0 || length&k.mask != 0 {
			return 0, 0, k.err("bad extent length", dec(length), fmt.Sprintf("a nonzero multiple of %d", k.c.SectorSize))
		}
		if flags&BlockFlagFullBackref != 0 {
			return 0, 0, k.err("bad extent flags", fmt.Sprintf("0x%x: a data extent with FULL_BACKREF", flags), "")
		}
	default:
		return 0, 0, k.err("bad extent flags", hexa(flags), "DATA (0x1) or TREE_BLOCK (0x2)")
	}
	return refs, length, nil
}

// inlineRefs checks the references from p on in the item b of a tree block or of data, and counts
// them.
func (k *checker) inlineRefs(b []byte, p int, tree bool) (total uint64, err error) {
	lastType, lastSeq := uint8(0), uint64(0)
	for p < len(b) {
		typ := b[p]
		n := InlineRefSize(typ)
		if n == 0 {
			return 0, k.err("bad inline ref type", fmt.Sprintf("%d at %d of %d bytes", typ, p, len(b)), "")
		}
		if p+n > len(b) {
			return 0, k.err("inline ref exceeds item", fmt.Sprintf("%d bytes left", len(b)-p), dec(n))
		}
		var r InlineRef
		r.Decode(b[p:])
		if err := k.inlineRef(&r, typ, tree); err != nil {
			return 0, err
		}
		seq := r.Offset
		if typ == EXTENT_DATA_REF_KEY {
			seq = r.Data.Hash()
		}
		total += uint64(r.Count)
		if typ < lastType || typ == lastType && seq > lastSeq {
			return 0, k.err("inline refs out of order", fmt.Sprintf("type %d seq 0x%x after type %d seq 0x%x", typ, seq, lastType, lastSeq), "")
		}
		lastType, lastSeq = typ, seq
		p += n
	}
	return total, nil
}

// inlineRef checks one of them.
func (k *checker) inlineRef(r *InlineRef, typ uint8, tree bool) error {
	switch typ {
	case TREE_BLOCK_REF_KEY, SHARED_BLOCK_REF_KEY:
		if !tree {
			return k.err("bad inline ref type", fmt.Sprintf("%d on a data extent", typ), "")
		}
	default:
		if tree {
			return k.err("bad inline ref type", fmt.Sprintf("%d on a tree block", typ), "")
		}
	}
	switch typ {
	case SHARED_BLOCK_REF_KEY, SHARED_DATA_REF_KEY:
		if r.Offset&k.mask != 0 {
			return k.err("unaligned parent of a shared ref", dec(r.Offset), "")
		}
		if typ == SHARED_DATA_REF_KEY && r.Count == 0 {
			return k.err("bad shared data ref count", "0", "")
		}
	case EXTENT_DATA_REF_KEY:
		return k.dataRef(&r.Data)
	}
	return nil
}

func (k *checker) blockGroup(b []byte) error {
	if k.key.Offset == 0 || (k.key.Offset|k.key.Objectid)&k.mask != 0 {
		return k.err("bad block group range", fmt.Sprintf("start %d length %d", k.key.Objectid, k.key.Offset), "")
	}
	if len(b) != BlockGroupItemSize {
		return k.err("bad block group item size", dec(len(b)), dec(BlockGroupItemSize))
	}
	var g BlockGroupItem
	g.Decode(b)
	if g.ChunkObjectid != FIRST_CHUNK_TREE_OBJECTID {
		return k.err("bad block group chunk_objectid", dec(g.ChunkObjectid), dec(FIRST_CHUNK_TREE_OBJECTID))
	}
	if g.Used > k.key.Offset {
		return k.err("bad block group used", dec(g.Used), fmt.Sprintf("at most %d", k.key.Offset))
	}
	if s := groupTypeErr(g.Flags); s != (Breach{}) {
		return k.broken(s)
	}
	return nil
}

func (k *checker) freeSpace(b []byte) error {
	if (k.key.Objectid|k.key.Offset)&k.mask != 0 || k.key.Offset == 0 || k.key.Objectid+k.key.Offset < k.key.Objectid {
		return k.err("bad free space range", fmt.Sprintf("start %d length %d", k.key.Objectid, k.key.Offset), "")
	}
	want := 0
	switch k.key.Type {
	case FREE_SPACE_INFO_KEY:
		want = FreeSpaceInfoSize
	case FREE_SPACE_BITMAP_KEY:
		if k.key.Offset/(k.mask+1) > 8*uint64(len(k.n)) {
			return k.err("bad free space bitmap length", dec(k.key.Offset), "")
		}
		want = int((k.key.Offset/(k.mask+1) + 7) / 8)
	}
	if len(b) != want {
		return k.err("bad free space item size", dec(len(b)), dec(want))
	}
	if k.key.Type == FREE_SPACE_INFO_KEY {
		var info FreeSpaceInfo
		info.Decode(b)
		if info.Flags&^uint32(FreeSpaceUsingBitmaps) != 0 {
			return k.err("unknown free space flags", hexa(info.Flags), "")
		}
		return nil
	}
	// Extents and bitmaps of one group never overlap.
	if k.slot > 0 && (k.prev.Type == FREE_SPACE_EXTENT_KEY || k.prev.Type == FREE_SPACE_BITMAP_KEY) {
		if end := k.prev.Objectid + k.prev.Offset; end > k.key.Objectid {
			return k.err("free space overlaps the one before", dec(k.key.Objectid), fmt.Sprintf("at least %d", end))
		}
	}
	return nil
}

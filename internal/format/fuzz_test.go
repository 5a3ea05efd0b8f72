package format

import (
	"bytes"
	"testing"
)

// leafOf builds a leaf as a writer would; keys come in order.
func leafOf(owner uint64, items ...testItem) Node {
	n := make(Node, NodeSize)
	n.InitHeader(UUID{1}, UUID{2}, 1<<20, 7, owner, 0)
	n.SetWritten(true)
	end := LeafDataSize(len(n))
	for i, it := range items {
		end -= len(it.b)
		n.SetNritems(i + 1)
		n.SetKey(i, it.k)
		n.SetItemOffset(i, end)
		n.SetItemSize(i, len(it.b))
		copy(n.Item(i), it.b)
	}
	return n
}

type testItem struct {
	k Key
	b []byte
}

type encoder interface{ Encode([]byte) }

func enc(size int, e encoder) []byte {
	b := make([]byte, size)
	e.Encode(b)
	return b
}

func ctx() CheckContext {
	return CheckContext{Root: 5, SectorSize: SectorSize, NodeSize: NodeSize, Generation: 7}
}

// decodeAll decodes every item as its users do: what the checker passed must not panic nor fail.
func decodeAll(t *testing.T, n Node) {
	for i := range n.Nritems() {
		k, b := n.Key(i), n.Item(i)
		var err error
		switch k.Type {
		case INODE_ITEM_KEY:
			new(InodeItem).Decode(b)
		case INODE_REF_KEY:
			_, err = InodeRefs(b)
		case INODE_EXTREF_KEY:
			_, err = InodeExtrefs(b)
		case DIR_ITEM_KEY, DIR_INDEX_KEY, XATTR_ITEM_KEY:
			_, err = DirItems(b)
		case EXTENT_DATA_KEY:
			new(FileExtent).Decode(b)
		case ROOT_ITEM_KEY:
			new(RootItem).Decode(b)
		case ROOT_REF_KEY, ROOT_BACKREF_KEY:
			new(RootRef).Decode(b)
		case EXTENT_ITEM_KEY, METADATA_ITEM_KEY:
			var e ExtentItem
			e.Decode(b)
			start := ExtentItemSize
			if k.Type == EXTENT_ITEM_KEY && e.Flags&ExtentFlagTreeBlock != 0 {
				start += TreeBlockInfoSize
			}
			_, err = InlineRefs(b, start)
		case EXTENT_DATA_REF_KEY:
			new(ExtentDataRef).Decode(b)
		case BLOCK_GROUP_ITEM_KEY:
			new(BlockGroupItem).Decode(b)
		case FREE_SPACE_INFO_KEY:
			new(FreeSpaceInfo).Decode(b)
		case DEV_EXTENT_KEY:
			new(DevExtent).Decode(b)
		case DEV_ITEM_KEY:
			new(DevItem).Decode(b)
		case CHUNK_ITEM_KEY:
			new(Chunk).Decode(b)
		}
		if err != nil {
			t.Errorf("the checker passed slot %d %v, which does not decode: %v", i, k, err)
		}
	}
	if n.Nritems() > 0 {
		n.Search(n.Key(n.Nritems() - 1))
	}
	n.LeafFreeSpace()
}

// samples is a leaf with one good item of every type.
func samples() []testItem {
	in := InodeItem{Generation: 7, Transid: 7, Nlink: 1, Mode: S_IFREG | 0o644}
	ref := InodeRef{Index: 2, Name: "name"}
	ext := InodeExtref{Parent: 256, Index: 3, Name: "other"}
	dir := DirItem{Location: Key{257, INODE_ITEM_KEY, 0}, Transid: 7, Type: FtRegFile, Name: "name"}
	xattr := DirItem{Transid: 7, Type: FtXattr, Name: "user.a", Data: []byte("b")}
	inline := FileExtent{Generation: 7, RAMBytes: 5, Inline: []byte("hello")}
	reg := FileExtent{Generation: 7, RAMBytes: 8192, Type: FileExtentTypeReg, DiskBytenr: 1 << 24, DiskNumBytes: 8192, NumBytes: 8192}
	root := RootItem{Generation: 7, GenerationV2: 7, Bytenr: 1 << 20, Refs: 1}
	rref := RootRef{Dirid: 256, Sequence: 2, Name: "sub"}
	data := ExtentItem{Refs: 3, Generation: 7, Flags: ExtentFlagData}
	dref := ExtentDataRef{DataRef{Root: 5, Ino: 257, Offset: 0}, 2}
	iref := InlineRef{Type: EXTENT_DATA_REF_KEY, Data: dref}
	tree := ExtentItem{Refs: 1, Generation: 7, Flags: ExtentFlagTreeBlock}
	tref := InlineRef{Type: TREE_BLOCK_REF_KEY, Offset: 5}
	bg := BlockGroupItem{Used: 4096, ChunkObjectid: FIRST_CHUNK_TREE_OBJECTID, Flags: BlockGroupData}
	fsi := FreeSpaceInfo{ExtentCount: 1}
	de := DevExtent{ChunkTree: CHUNK_TREE_OBJECTID, ChunkObjectid: FIRST_CHUNK_TREE_OBJECTID, ChunkOffset: 1 << 24, Length: 1 << 20}
	di := DevItem{Devid: 1, TotalBytes: 1 << 30, BytesUsed: 1 << 20}
	ch := Chunk{Length: 1 << 23, Owner: 2, StripeLen: StripeLen, Type: BlockGroupData | BlockGroupDup, SectorSize: SectorSize,
		Stripes: []Stripe{{Devid: 1, Offset: 1 << 24}, {Devid: 1, Offset: 1 << 25}}}
	return []testItem{
		{Key{1, DEV_EXTENT_KEY, 1 << 24}, enc(DevExtentSize, &de)},
		{Key{1, DEV_ITEM_KEY, 1}, enc(DevItemSize, &di)},
		{Key{256, ROOT_ITEM_KEY, 0}, enc(RootItemSize, &root)},
		{Key{256, ROOT_BACKREF_KEY, 5}, enc(18+3, &rref)},
		{Key{256, CHUNK_ITEM_KEY, 1 << 24}, enc(ch.Size(), &ch)},
		{Key{257, INODE_ITEM_KEY, 0}, enc(InodeItemSize, &in)},
		{Key{257, INODE_REF_KEY, 256}, enc(ref.Size(), ref)},
		{Key{257, INODE_EXTREF_KEY, ExtrefHash(256, "other")}, enc(ext.Size(), ext)},
		{Key{257, XATTR_ITEM_KEY, NameHash("user.a")}, enc(xattr.Size(), &xattr)},
		{Key{257, DIR_ITEM_KEY, NameHash("name")}, enc(dir.Size(), &dir)},
		{Key{257, DIR_INDEX_KEY, 2}, enc(dir.Size(), &dir)},
		{Key{257, EXTENT_DATA_KEY, 0}, enc(inline.Size(), &inline)},
		{Key{257, EXTENT_DATA_KEY, 8192}, enc(reg.Size(), &reg)},
		{Key{1 << 24, EXTENT_ITEM_KEY, 8192}, append(enc(ExtentItemSize, &data), enc(InlineRefSize(iref.Type), &iref)...)},
		{Key{1 << 24, EXTENT_DATA_REF_KEY, dref.Hash()}, enc(ExtentDataRefSize, &dref)},
		{Key{1 << 24, SHARED_DATA_REF_KEY, 1 << 20}, []byte{1, 0, 0, 0}},
		{Key{1 << 24, BLOCK_GROUP_ITEM_KEY, 1 << 23}, enc(BlockGroupItemSize, &bg)},
		{Key{1 << 24, FREE_SPACE_INFO_KEY, 1 << 23}, enc(FreeSpaceInfoSize, &fsi)},
		{Key{1 << 24, FREE_SPACE_EXTENT_KEY, 1 << 20}, nil},
		{Key{1 << 25, FREE_SPACE_BITMAP_KEY, 1 << 20}, make([]byte, 32)},
		{Key{1 << 26, METADATA_ITEM_KEY, 1}, append(enc(ExtentItemSize, &tree), enc(InlineRefSize(tref.Type), &tref)...)},
		{Key{1 << 27, UUID_KEY_SUBVOL, 9}, make([]byte, 8)},
		{Key{EXTENT_CSUM_OBJECTID, EXTENT_CSUM_KEY, 1 << 24}, make([]byte, 8)},
		{Key{ORPHAN_OBJECTID, ORPHAN_ITEM_KEY, 300}, nil},
	}
}

// FuzzCheckLeaf: whatever the bytes, no panic; what passes decodes. The bytes are laid over a good
// block, and take the place of an item: few would get past the header otherwise.
func FuzzCheckLeaf(f *testing.F) {
	all := samples()
	for i, it := range all {
		f.Add(uint8(i), uint16(HeaderSize), it.b, uint8(0))
	}
	f.Add(uint8(len(all)), uint16(0), []byte("head"), uint8(0))
	f.Add(uint8(len(all)+1), uint16(HeaderSize+KeyPtrSize), make([]byte, KeyPtrSize), uint8(1))
	f.Fuzz(func(t *testing.T, which uint8, at uint16, b []byte, level uint8) {
		var blocks []Node
		switch {
		case int(which) < len(all):
			it := all[which]
			if len(b) <= MaxItemSize(NodeSize) {
				blocks = append(blocks, leafOf(CSUM_TREE_OBJECTID, testItem{it.k, b}))
				it.k.Offset = uint64(at) * SectorSize
				blocks = append(blocks, leafOf(FS_TREE_OBJECTID, testItem{it.k, b}))
			}
			blocks = append(blocks, leafOf(CSUM_TREE_OBJECTID, it))
		case int(which) == len(all):
			blocks = append(blocks, leafOf(CSUM_TREE_OBJECTID, all...))
		default:
			blocks = append(blocks, nodeOf(3))
		}
		copy(blocks[len(blocks)-1][min(int(at), NodeSize):], b)
		for _, n := range blocks {
			c := ctx()
			c.Level = int(level)
			if CheckLeaf(n, c) == nil {
				decodeAll(t, n)
			}
			if CheckNode(n, c) == nil {
				n.Search(n.Key(0))
			}
		}
		// A block of another size than agreed must not trip it either.
		CheckLeaf(Node(b), ctx())
		CheckNode(Node(b), ctx())
	})
}

// nodeOf is an inner node with nr pointers.
func nodeOf(nr int) Node {
	n := make(Node, NodeSize)
	n.InitHeader(UUID{1}, UUID{2}, 1<<20, 7, FS_TREE_OBJECTID, 1)
	n.SetWritten(true)
	n.SetNritems(nr)
	for i := range nr {
		n.SetKey(i, Key{uint64(256 + i), INODE_ITEM_KEY, 0})
		n.SetBlockptr(i, uint64(i+1)<<14)
		n.SetPtrGeneration(i, 7)
	}
	return n
}

// goodSuper is a superblock that passes.
func goodSuper() []byte {
	ch := Chunk{Length: 1 << 22, Owner: 2, StripeLen: StripeLen, Type: BlockGroupSystem, SectorSize: SectorSize, Stripes: []Stripe{{Devid: 1, Offset: 1 << 20}}}
	array := make([]byte, KeySize+ch.Size())
	Key{FIRST_CHUNK_TREE_OBJECTID, CHUNK_ITEM_KEY, 1 << 20}.Encode(array)
	ch.Encode(array[KeySize:])
	s := Super{FSID: UUID{1}, Bytenr: SuperOffset, Flags: HeaderFlagWritten, Generation: 7, Root: 1 << 21, ChunkRoot: 1 << 20, TotalBytes: 1 << 30,
		BytesUsed: 1 << 20, RootDirObjectid: ROOT_TREE_DIR_OBJECTID, NumDevices: 1, SectorSize: SectorSize, NodeSize: NodeSize, StripeSize: SectorSize,
		ChunkRootGeneration: 7, IncompatFlags: IncompatMixedBackref | IncompatSkinnyMetadata, SysChunkArray: array, Label: "label",
		DevItem: DevItem{Devid: 1, TotalBytes: 1 << 30, BytesUsed: 1 << 22, SectorSize: SectorSize, FSID: UUID{1}}}
	b := make([]byte, SuperSize)
	s.Encode(b)
	return b
}

// FuzzSuper: no panic, and a superblock that passes encodes to itself. The bytes are laid over a
// good one, and the checksum is made right, or nothing would get past it.
func FuzzSuper(f *testing.F) {
	f.Add(uint16(0x40), []byte("_BHRfS_M"))
	f.Add(uint16(0xa0), []byte{129, 0, 0, 0})
	f.Add(uint16(0xbc), []byte{0, 0x10})
	f.Add(uint16(0x32b), make([]byte, 129))
	f.Fuzz(func(t *testing.T, at uint16, b []byte) {
		CheckSuper(b, 1<<30)
		p := goodSuper()
		copy(p[min(int(at), len(p)):], b)
		le.PutUint32(p, CRC32C(p[32:]))
		var s Super
		s.Decode(p)
		if CheckSuper(p, 1<<30) != nil {
			return
		}
		q := make([]byte, SuperSize)
		s.Encode(q)
		var s2 Super
		s2.Decode(q)
		r := make([]byte, SuperSize)
		s2.Encode(r)
		if !bytes.Equal(q, r) {
			t.Error("decode and encode of a superblock changes it")
		}
	})
}

// coder is an on-disk type.
type coder interface {
	Decode([]byte)
	Encode([]byte)
}

// FuzzItems: every on-disk type keeps what it decodes.
func FuzzItems(f *testing.F) {
	for _, it := range samples() {
		f.Add(it.b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		round := func(name string, size int, x, y coder) {
			if len(b) < size {
				return
			}
			x.Decode(b[:size])
			p, q := make([]byte, size), make([]byte, size)
			x.Encode(p)
			y.Decode(p)
			y.Encode(q)
			if !bytes.Equal(p, q) {
				t.Errorf("%s: decode and encode changes it", name)
			}
		}
		round("DevItem", DevItemSize, new(DevItem), new(DevItem))
		round("DevExtent", DevExtentSize, new(DevExtent), new(DevExtent))
		round("BlockGroupItem", BlockGroupItemSize, new(BlockGroupItem), new(BlockGroupItem))
		round("ExtentItem", ExtentItemSize, new(ExtentItem), new(ExtentItem))
		round("ExtentDataRef", ExtentDataRefSize, new(ExtentDataRef), new(ExtentDataRef))
		round("InodeItem", InodeItemSize, new(InodeItem), new(InodeItem))
		round("RootItem", RootItemSize, new(RootItem), new(RootItem))
		round("FreeSpaceInfo", FreeSpaceInfoSize, new(FreeSpaceInfo), new(FreeSpaceInfo))
		round("FileExtent", FileExtentSize, new(FileExtent), new(FileExtent))
		round("QgroupStatus", QgroupStatusSize, new(QgroupStatus), new(QgroupStatus))
		round("QgroupStatus of old kernels", QgroupStatusSize-8, new(QgroupStatus), new(QgroupStatus))
		round("QgroupInfo", QgroupInfoSize, new(QgroupInfo), new(QgroupInfo))
		round("QgroupLimit", QgroupLimitSize, new(QgroupLimit), new(QgroupLimit))
		if len(b) >= KeySize {
			p := make([]byte, KeySize)
			DecodeKey(b).Encode(p)
			if !bytes.Equal(p, b[:KeySize]) {
				t.Error("Key: decode and encode changes it")
			}
		}
		if len(b) >= ChunkHeaderSize && ChunkSize(ChunkStripes(b)) <= len(b) {
			var c Chunk
			c.Decode(b)
			p := make([]byte, c.Size())
			c.Encode(p)
			if !bytes.Equal(p, b[:len(p)]) {
				t.Error("Chunk: decode and encode changes it")
			}
		}
		if l, err := InodeRefs(b); err == nil {
			p := make([]byte, 0, len(b))
			for _, r := range l {
				p = append(p, enc(r.Size(), r)...)
			}
			if !bytes.Equal(p, b) {
				t.Error("InodeRefs: decode and encode changes it")
			}
		}
		if l, err := InodeExtrefs(b); err == nil {
			p := make([]byte, 0, len(b))
			for _, r := range l {
				p = append(p, enc(r.Size(), r)...)
			}
			if !bytes.Equal(p, b) {
				t.Error("InodeExtrefs: decode and encode changes it")
			}
		}
		if l, err := DirItems(b); err == nil {
			p := make([]byte, 0, len(b))
			for i := range l {
				p = append(p, enc(l[i].Size(), &l[i])...)
			}
			if !bytes.Equal(p, b) {
				t.Error("DirItems: decode and encode changes it")
			}
		}
		if l, err := InlineRefs(b, 0); err == nil {
			p := make([]byte, 0, len(b))
			for i := range l {
				p = append(p, enc(l[i].Size, &l[i])...)
			}
			if !bytes.Equal(p, b) {
				t.Error("InlineRefs: decode and encode changes it")
			}
		}
	})
}

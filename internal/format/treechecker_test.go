package format

import (
	"errors"
	"hash/crc32"
	"strings"
	"syscall"
	"testing"
)

// TestHashes: the kernel's hashes of these, from images that Linux wrote.
func TestHashes(t *testing.T) {
	if h := NameHash("default"); h != 2378154706 {
		t.Errorf("NameHash: have %d", h)
	}
	if h := ExtrefHash(6003, "link-with-a-rather-long-name-to-overflow-the-item-314"); h != 69620233 {
		t.Errorf("ExtrefHash: have %d", h)
	}
	if h, want := CRC32C([]byte("123456789")), uint32(0xe3069283); h != want {
		t.Errorf("CRC32C: have 0x%x want 0x%x", h, want)
	}
	raw := func(b []byte) uint32 { return ^crc32.Update(0, castagnoli, b) }
	b := make([]byte, 24)
	le.PutUint64(b, 5)
	le.PutUint64(b[8:], 257)
	le.PutUint64(b[16:], 1<<40)
	if h, want := (DataRef{5, 257, 1 << 40}).Hash(), uint64(raw(b[:8]))<<31^uint64(raw(b[8:])); h != want {
		t.Errorf("DataRef.Hash: have %d want %d", h, want)
	}
	if n := testing.AllocsPerRun(10, func() { NameHash("name"); DataRef{5, 257, 0}.Hash() }); n != 0 {
		t.Errorf("%v allocations per hash", n)
	}
}

func TestCheckerPassesGoodBlocks(t *testing.T) {
	n := leafOf(EXTENT_CSUM_OBJECTID, samples()...)
	if err := CheckLeaf(n, ctx()); err != nil {
		t.Error(err)
	}
	decodeAll(t, n)
	if err := CheckLeaf(leafOf(CSUM_TREE_OBJECTID), ctx()); err != nil {
		t.Errorf("an empty csum tree: %v", err)
	}
	c := ctx()
	c.Level = 1
	if err := CheckNode(nodeOf(PtrsPerNode(NodeSize)), c); err != nil {
		t.Error(err)
	}
	if err := CheckSuper(goodSuper(), 1<<30); err != nil {
		t.Error(err)
	}
}

// TestCheckerGrammar: one grammar for corruption, and an errno.
func TestCheckerGrammar(t *testing.T) {
	n := leafOf(FS_TREE_OBJECTID, samples()[5], samples()[6])
	n.SetItemOffset(1, n.ItemOffset(1)-32)
	err := CheckLeaf(n, ctx())
	const want = "corrupt leaf: root=5 block=1048576 slot=1, bad item offset, have 16077 want 16109"
	if err == nil || err.Error() != want {
		t.Errorf("have %v want %s", err, want)
	}
	if !errors.Is(err, syscall.EUCLEAN) {
		t.Error("corruption is not EUCLEAN")
	}
}

// TestCheckerRefuses pokes one field of a good block at a time.
func TestCheckerRefuses(t *testing.T) {
	all := samples()
	byType := map[uint8]testItem{}
	for _, it := range all {
		if _, ok := byType[it.k.Type]; !ok {
			byType[it.k.Type] = it
		}
	}
	p64 := func(off int, v uint64) func(*testItem) { return func(it *testItem) { le.PutUint64(it.b[off:], v) } }
	p32 := func(off int, v uint32) func(*testItem) { return func(it *testItem) { le.PutUint32(it.b[off:], v) } }
	p8 := func(off int, v byte) func(*testItem) { return func(it *testItem) { it.b[off] = v } }
	cut := func(n int) func(*testItem) { return func(it *testItem) { it.b = it.b[:n] } }
	off := func(v uint64) func(*testItem) { return func(it *testItem) { it.k.Offset = v } }
	obj := func(v uint64) func(*testItem) { return func(it *testItem) { it.k.Objectid = v } }
	for _, c := range []struct {
		typ  uint8
		do   func(*testItem)
		want string
	}{
		{INODE_ITEM_KEY, cut(100), "bad inode item size"},
		{INODE_ITEM_KEY, obj(3), "bad inode number"},
		{INODE_ITEM_KEY, off(1), "bad inode key offset"},
		{INODE_ITEM_KEY, p64(0, 99), "bad inode generation, have 99 want at most 8"},
		{INODE_ITEM_KEY, p64(8, 99), "bad inode transid"},
		{INODE_ITEM_KEY, p32(52, 0), "bad inode mode"},
		{INODE_ITEM_KEY, p32(52, 0xffff0000|S_IFREG), "bad inode mode"},
		{INODE_ITEM_KEY, p64(64, 1<<20), "unknown inode flags, have 0x100000"},
		{INODE_ITEM_KEY, func(it *testItem) { le.PutUint32(it.b[52:], S_IFDIR); le.PutUint32(it.b[40:], 2) }, "bad directory nlink"},
		{INODE_REF_KEY, cut(0), "bad inode ref size"},
		{INODE_REF_KEY, cut(5), "bad inode ref size"},
		{INODE_REF_KEY, p8(8, 77), "bad inode ref name length"},
		{INODE_EXTREF_KEY, p8(16, 0), "bad inode ref name length"},
		{DIR_ITEM_KEY, off(1), "bad name hash"},
		{DIR_ITEM_KEY, p8(29, 9), "bad dir item type"},
		{DIR_ITEM_KEY, p8(29, FtXattr), "bad dir item type"},
		{DIR_ITEM_KEY, p8(8, 77), "bad dir item location type"},
		{DIR_ITEM_KEY, p64(0, 3), "bad dir item location"},
		{DIR_ITEM_KEY, p8(27, 200), "bad dir item lengths"},
		{DIR_ITEM_KEY, p8(25, 1), "bad dir item data length"},
		{DIR_ITEM_KEY, cut(20), "bad dir item size"},
		// of the second name
		{DIR_ITEM_KEY, func(it *testItem) { it.b = append(it.b, it.b...); it.b[len(it.b)-1]++ }, "bad name hash"},
		{DIR_INDEX_KEY, p8(27, 3), "bad dir index size"},
		{XATTR_ITEM_KEY, p8(29, FtRegFile), "bad dir item type"},
		{XATTR_ITEM_KEY, p64(0, 257), "bad dir item location"},
		{EXTENT_DATA_KEY, off(100), "unaligned file offset"},
		{EXTENT_DATA_KEY, off(4096), "bad offset of an inline extent"},
		{EXTENT_DATA_KEY, cut(10), "bad file extent size"},
		{EXTENT_DATA_KEY, p64(0, 99), "bad file extent generation"},
		{EXTENT_DATA_KEY, p64(0, 0), "bad file extent generation"},
		{EXTENT_DATA_KEY, p8(20, 3), "bad file extent type"},
		{EXTENT_DATA_KEY, p8(16, 4), "bad compression"},
		{EXTENT_DATA_KEY, p8(17, 1), "bad encryption"},
		{EXTENT_DATA_KEY, p64(8, 6), "bad ram_bytes of an inline extent"},
		{EXTENT_DATA_KEY, p8(20, 1), "bad file extent size"},
		{EXTENT_CSUM_KEY, obj(5), "bad csum objectid"},
		{EXTENT_CSUM_KEY, off(5), "unaligned csum offset"},
		{EXTENT_CSUM_KEY, cut(7), "bad csum item size"},
		{ROOT_ITEM_KEY, cut(200), "bad root item size"},
		{ROOT_ITEM_KEY, p64(160, 99), "bad root generation"},
		{ROOT_ITEM_KEY, p64(239, 99), "bad root generation_v2"},
		{ROOT_ITEM_KEY, p64(176, 5), "unaligned root bytenr"},
		{ROOT_ITEM_KEY, p8(238, 8), "bad root level"},
		{ROOT_ITEM_KEY, p8(237, 8), "bad root drop level"},
		{ROOT_ITEM_KEY, p64(208, 4), "unknown root flags"},
		{ROOT_BACKREF_KEY, cut(19), "bad root ref name length"},
		{ROOT_BACKREF_KEY, cut(10), "bad root ref size"},
		{EXTENT_ITEM_KEY, obj(5), "unaligned extent address"},
		{EXTENT_ITEM_KEY, off(5), "bad extent length"},
		{EXTENT_ITEM_KEY, cut(20), "bad extent item size"},
		{EXTENT_ITEM_KEY, p64(0, 0), "bad extent refs"},
		{EXTENT_ITEM_KEY, p64(0, 1), "bad extent refs, have 1 want at least 2"},
		{EXTENT_ITEM_KEY, p64(16, 3), "bad extent flags"},
		{EXTENT_ITEM_KEY, p64(16, ExtentFlagTreeBlock), "bad tree block length"},
		{EXTENT_ITEM_KEY, p8(24, 1), "bad inline ref type"},
		{EXTENT_ITEM_KEY, p8(24, TREE_BLOCK_REF_KEY), "bad inline ref type"},
		{EXTENT_ITEM_KEY, cut(40), "inline ref exceeds item"},
		{EXTENT_ITEM_KEY, p64(25, 3), "bad data ref root"},
		{EXTENT_ITEM_KEY, p64(33, 3), "bad data ref objectid"},
		{EXTENT_ITEM_KEY, p64(41, 3), "unaligned data ref offset"},
		{EXTENT_ITEM_KEY, p32(49, 0), "bad data ref count"},
		{METADATA_ITEM_KEY, off(8), "bad tree block level"},
		{METADATA_ITEM_KEY, p64(16, ExtentFlagData), "bad key type of a data extent"},
		{METADATA_ITEM_KEY, p8(24, EXTENT_DATA_REF_KEY), "inline ref exceeds item"},
		{EXTENT_DATA_REF_KEY, cut(27), "bad extent data ref size"},
		{SHARED_DATA_REF_KEY, off(3), "unaligned parent"},
		{SHARED_DATA_REF_KEY, p8(0, 0), "bad shared data ref count"},
		{SHARED_DATA_REF_KEY, cut(3), "bad extent ref size"},
		{BLOCK_GROUP_ITEM_KEY, off(0), "bad block group range"},
		{BLOCK_GROUP_ITEM_KEY, p64(0, 1<<40), "bad block group used"},
		{BLOCK_GROUP_ITEM_KEY, p64(8, 1), "bad block group chunk_objectid"},
		{BLOCK_GROUP_ITEM_KEY, p64(16, 0), "bad block group type"},
		{BLOCK_GROUP_ITEM_KEY, p64(16, BlockGroupData|BlockGroupDup|BlockGroupRAID1), "bad profile"},
		{FREE_SPACE_INFO_KEY, cut(4), "bad free space item size"},
		{FREE_SPACE_INFO_KEY, p32(4, 2), "unknown free space flags"},
		{FREE_SPACE_EXTENT_KEY, off(7), "bad free space range"},
		{FREE_SPACE_BITMAP_KEY, cut(31), "bad free space item size"},
		{FREE_SPACE_BITMAP_KEY, off(1 << 62), "bad free space bitmap length"},
		{DEV_EXTENT_KEY, p64(0, 2), "bad dev extent chunk"},
		{DEV_EXTENT_KEY, p64(24, 0), "bad dev extent range"},
		{DEV_ITEM_KEY, p64(0, 2), "bad devid"},
		{DEV_ITEM_KEY, p64(16, 1<<40), "bad device bytes_used"},
		{CHUNK_ITEM_KEY, cut(48), "bad chunk item size"},
		{CHUNK_ITEM_KEY, p8(44, 3), "bad chunk num_stripes"},
		{CHUNK_ITEM_KEY, p64(16, 4096), "bad chunk stripe_len"},
		{CHUNK_ITEM_KEY, p64(0, 0), "bad chunk length"},
		{CHUNK_ITEM_KEY, p64(24, BlockGroupData), "bad chunk num_stripes"},
		{CHUNK_ITEM_KEY, p64(56, 1), "bad chunk stripe offset"},
		{CHUNK_ITEM_KEY, off(77), "unaligned chunk logical"},
		{UUID_KEY_SUBVOL, cut(7), "bad uuid item size"},
		{ORPHAN_ITEM_KEY, func(it *testItem) { it.b = []byte{1} }, "bad orphan item size"},
	} {
		it := byType[c.typ]
		it.b = append([]byte(nil), it.b...)
		c.do(&it)
		err := CheckLeaf(leafOf(CSUM_TREE_OBJECTID, it), ctx())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("type %d: have %v want %q", c.typ, err, c.want)
		}
	}
}

// TestCheckerRefusesFileExtents pokes the fields of an extent on disk, which starts at 8192 of its
// file and is 8192 bytes long.
func TestCheckerRefusesFileExtents(t *testing.T) {
	const disk, diskNum, off, num, ram = 21, 29, 37, 45, 8
	minus := func(n uint64) uint64 { return -n }
	for _, c := range []struct {
		want string
		at   uint64 // of the file
		cut  int
		poke map[int]uint64
	}{
		{"", 8192, 0, nil},
		{"", 8192, 0, map[int]uint64{off: 4096, num: 4096}},
		// a hole may be a window of a longer one
		{"", 8192, 0, map[int]uint64{disk: 0, diskNum: 0, off: 4096}},
		{"", minus(8192 * 2), 0, nil},
		{"bad file extent size, have 52 want 53", 8192, 1, nil},
		{"unaligned file extent", 8192, 0, map[int]uint64{ram: 8193}},
		{"unaligned file extent", 8192, 0, map[int]uint64{disk: 1<<24 + 512}},
		{"unaligned file extent", 8192, 0, map[int]uint64{diskNum: 5}},
		{"unaligned file extent", 8192, 0, map[int]uint64{off: 4095}},
		{"unaligned file extent", 8192, 0, map[int]uint64{num: 4097}},
		{"bad num_bytes, have 0", 8192, 0, map[int]uint64{num: 0}},
		{"file extent end overflows, have num_bytes 8192", minus(4096), 0, nil},
		{"bad disk_num_bytes, have 0", 8192, 0, map[int]uint64{diskNum: 0}},
		{"bad disk_num_bytes, have 8192", 8192, 0, map[int]uint64{disk: minus(4096)}},
		{"bad ram_bytes, have 8192 want at least 12288", 8192, 0, map[int]uint64{off: 4096}},
		{"bad ram_bytes", 8192, 0, map[int]uint64{off: minus(4096)}},
		{"bad ram_bytes", 8192, 0, map[int]uint64{num: 12288}},
	} {
		it := samples()[12]
		it.k.Offset = c.at
		it.b = append([]byte(nil), it.b[:len(it.b)-c.cut]...)
		for at, v := range c.poke {
			le.PutUint64(it.b[at:], v)
		}
		err := CheckLeaf(leafOf(CSUM_TREE_OBJECTID, it), ctx())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: have %v", c, err)
		}
	}
}

// TestCheckerFullLeaf fills a leaf to the last byte: data may touch the item headers and not cover
// one.
func TestCheckerFullLeaf(t *testing.T) {
	full := MaxItemSize(NodeSize)
	for n := full; n <= full+2; n++ { // beyond, the data would say another size
		err := CheckLeaf(leafOf(FS_TREE_OBJECTID, testItem{Key{1, STRING_ITEM_KEY, 0}, make([]byte, n)}), ctx())
		if n == full && err != nil || n > full && (err == nil || !strings.Contains(err.Error(), "item overlaps item headers")) {
			t.Errorf("an item of %d bytes, with room for %d: %v", n, full, err)
		}
	}
}

// TestCheckerNeighbourCsums: the sectors of an item are counted by the size of the file system's
// checksums.
func TestCheckerNeighbourCsums(t *testing.T) {
	for typ := CsumCRC32C; typ.Known(); typ++ {
		c := ctx()
		c.Csum = typ
		for _, gap := range []uint64{1, 2, 3} {
			two := make([]byte, 2*typ.Size())
			first, second := Key{EXTENT_CSUM_OBJECTID, EXTENT_CSUM_KEY, 1 << 24}, Key{EXTENT_CSUM_OBJECTID, EXTENT_CSUM_KEY, 1<<24 + gap*SectorSize}
			if err := CheckLeaf(leafOf(CSUM_TREE_OBJECTID, testItem{first, two}, testItem{second, two}), c); (err == nil) != (gap >= 2) {
				t.Errorf("%v: checksums of 2 sectors, then of 2 from sector %d on: %v", typ, gap, err)
			}
		}
	}
}

// TestCheckerRefusesBetweenItems: rules about two neighbours.
func TestCheckerRefusesBetweenItems(t *testing.T) {
	byKey := func(o uint64, typ uint8) testItem {
		for _, it := range samples() {
			if it.k.Objectid == o && it.k.Type == typ {
				return it
			}
		}
		t.Fatalf("no sample %d %d", o, typ)
		return testItem{}
	}
	move := func(it testItem, by uint64) testItem { it.k.Offset += by; return it }
	moveObj := func(it testItem, by uint64) testItem { it.k.Objectid += by; return it }
	reg := samples()[12]
	csum := byKey(EXTENT_CSUM_OBJECTID, EXTENT_CSUM_KEY)
	data := byKey(1<<24, EXTENT_ITEM_KEY)
	free := byKey(1<<24, FREE_SPACE_EXTENT_KEY)
	dev := byKey(1, DEV_EXTENT_KEY)
	block := byKey(1<<26, METADATA_ITEM_KEY)
	other := move(byKey(257, INODE_REF_KEY), 0)
	other.k.Objectid = 258
	two := InlineRef{Type: EXTENT_DATA_REF_KEY, Data: ExtentDataRef{DataRef{Root: 5, Ino: 300}, 1}}
	a, b := enc(InlineRefSize(two.Type), &two), append([]byte(nil), data.b[ExtentItemSize:]...)
	if first := (DataRef{Root: 5, Ino: 257}); two.Data.Hash() > first.Hash() {
		a, b = b, a
	}
	unordered := data
	unordered.b = append(append(append([]byte(nil), data.b[:ExtentItemSize]...), a...), b...)
	for _, c := range []struct {
		want  string
		owner uint64
		items []testItem
	}{
		{"bad key order", CSUM_TREE_OBJECTID, []testItem{csum, csum}},
		{"csum range overlaps", CSUM_TREE_OBJECTID, []testItem{csum, move(csum, 4096)}},
		{"file extent overlaps", FS_TREE_OBJECTID, []testItem{reg, move(reg, 4096)}},
		{"extent overlaps", EXTENT_TREE_OBJECTID, []testItem{data, moveObj(data, 4096)}},
		{"extent overlaps", EXTENT_TREE_OBJECTID, []testItem{block, moveObj(block, 4096)}},
		{"extent overlaps", EXTENT_TREE_OBJECTID, []testItem{block, moveObj(block, NodeSize-4096)}},
		{"free space overlaps", FREE_SPACE_TREE_OBJECTID, []testItem{free, moveObj(free, 4096)}},
		{"dev extent overlaps", DEV_TREE_OBJECTID, []testItem{dev, move(dev, 4096)}},
		{"item without inode item", FS_TREE_OBJECTID, []testItem{byKey(257, INODE_ITEM_KEY), other}},
		{"inline refs out of order", EXTENT_TREE_OBJECTID, []testItem{unordered}},
	} {
		err := CheckLeaf(leafOf(c.owner, c.items...), ctx())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("have %v want %q", err, c.want)
		}
	}
	if err := CheckLeaf(leafOf(EXTENT_TREE_OBJECTID, block, moveObj(block, NodeSize)), ctx()); err != nil {
		t.Errorf("two tree blocks side by side: %v", err)
	}
	// Log trees keep what they need of an inode, which may be no inode item.
	if err := CheckLeaf(leafOf(TREE_LOG_OBJECTID, byKey(257, INODE_ITEM_KEY), other), ctx()); err != nil {
		t.Errorf("a log tree: %v", err)
	}
}

func TestCheckerRefusesHeaders(t *testing.T) {
	for _, c := range []struct {
		want string
		do   func(n Node)
	}{
		{"bad level, have 1 want 0", func(n Node) { n.SetLevel(1) }},
		{"bad header flags", func(n Node) { n.SetWritten(false) }},
		{"bad backref revision", func(n Node) { n.SetFlags(HeaderFlagWritten) }},
		{"unaligned bytenr", func(n Node) { n.SetBytenr(5) }},
		{"bad generation, have 8 want at most 7", func(n Node) { n.SetGeneration(8) }},
		{"bad nritems, have 0", func(n Node) { n.SetNritems(0) }},
		{"bad nritems", func(n Node) { n.SetNritems(1 << 30) }},
		{"bad item offset", func(n Node) { n.SetItemOffset(0, 5) }},
		{"bad item range", func(n Node) { n.SetItemSize(0, 1<<30) }},
		{"bad item range", func(n Node) { n.SetItemOffset(0, 1<<31) }},
	} {
		n := leafOf(FS_TREE_OBJECTID, samples()[5])
		c.do(n)
		if err := CheckLeaf(n, ctx()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("have %v want %q", err, c.want)
		}
	}
	for _, c := range []struct {
		want string
		do   func(n Node)
	}{
		{"bad nritems, have 0", func(n Node) { n.SetNritems(0) }},
		{"bad nritems", func(n Node) { n.SetNritems(494) }},
		{"bad key order", func(n Node) { n.SetKey(1, n.Key(0)) }},
		{"bad block pointer", func(n Node) { n.SetBlockptr(1, 0) }},
		{"bad block pointer", func(n Node) { n.SetBlockptr(1, 77) }},
		{"bad pointer generation, have 8 want at most 7", func(n Node) { n.SetPtrGeneration(2, 8) }},
	} {
		n := nodeOf(3)
		c.do(n)
		cx := ctx()
		cx.Level = 1
		if err := CheckNode(n, cx); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("have %v want %q", err, c.want)
		}
	}
	if CheckLeaf(nil, ctx()) == nil || CheckNode(make(Node, 50), ctx()) == nil {
		t.Error("a block of the wrong size passes")
	}
}

func TestCheckSuperRefuses(t *testing.T) {
	const size = 1 << 30
	for _, c := range []struct {
		want        string
		unsupported bool
		do          func(s *Super, b []byte)
	}{
		{"not a btrfs", false, func(s *Super, b []byte) { b[0x40]++ }},
		{"bad csum type, have 9", false, func(s *Super, b []byte) { b[0xc4] = 9 }},
		{"bad bytenr", false, func(s *Super, b []byte) { s.Bytenr = 4096 }},
		{"zoned (incompat 0x1000)", true, func(s *Super, b []byte) { s.IncompatFlags |= IncompatZoned }},
		{"raid-stripe-tree", true, func(s *Super, b []byte) { s.IncompatFlags |= 1 << 14 }},
		{"zoned", true, func(s *Super, b []byte) { s.IncompatFlags |= IncompatZoned }},
		{"bad dev_item fsid", false, func(s *Super, b []byte) { s.IncompatFlags |= IncompatMetadataUUID; s.MetadataUUID = UUID{9} }},
		{"unknown bit 40", true, func(s *Super, b []byte) { s.IncompatFlags |= 1 << 40 }},
		{"unknown bit 4 (compat_ro 0x10)", true, func(s *Super, b []byte) { s.CompatROFlags |= 1 << 4 }},
		{"block-group-tree without free-space-tree-valid or no-holes", false, func(s *Super, b []byte) {
			s.CompatROFlags = s.CompatROFlags&^CompatROFreeSpaceTreeValid | CompatROBlockGroupTree
		}},
		{"block-group-tree without free-space-tree-valid or no-holes", false, func(s *Super, b []byte) {
			s.CompatROFlags |= CompatROBlockGroupTree | CompatROFreeSpaceTreeValid
			s.IncompatFlags &^= IncompatNoHoles
		}},
		{"unknown bit 9", true, func(s *Super, b []byte) { s.CompatROFlags |= 1 << 9 }},
		{"seeding", true, func(s *Super, b []byte) { s.Flags |= SuperFlagSeeding }},
		{"bad num_devices", false, func(s *Super, b []byte) { s.NumDevices = 0 }},
		{"sectorsize 8192", true, func(s *Super, b []byte) { s.SectorSize = 8192; s.DevItem.SectorSize = 8192 }},
		{"bad sectorsize", false, func(s *Super, b []byte) { s.SectorSize = 5000 }},
		{"bad nodesize", false, func(s *Super, b []byte) { s.NodeSize = 1 << 17 }},
		{"bad nodesize with mixed block groups", false, func(s *Super, b []byte) { s.IncompatFlags |= IncompatMixedGroups }},
		{"bad leafsize", false, func(s *Super, b []byte) { le.PutUint32(b[0x98:], 4096) }},
		{"bad stripesize", false, func(s *Super, b []byte) { s.StripeSize = 0 }},
		{"bad root_level", false, func(s *Super, b []byte) { s.RootLevel = 8 }},
		{"bad chunk_root,", false, func(s *Super, b []byte) { s.ChunkRoot = 0 }},
		{"bad log_root", false, func(s *Super, b []byte) { s.LogRoot = 3 }},
		{"bad generation", false, func(s *Super, b []byte) { s.Generation = 0 }},
		{"bad chunk_root_generation", false, func(s *Super, b []byte) { s.ChunkRootGeneration = 8 }},
		{"bad dev_item fsid", false, func(s *Super, b []byte) { s.DevItem.FSID = UUID{9} }},
		{"bad bytes_used", false, func(s *Super, b []byte) { s.BytesUsed = 5 * NodeSize }},
		{"unaligned total_bytes", false, func(s *Super, b []byte) { s.TotalBytes++ }},
		{"device is too small, have 1073741824 bytes want 1073745920", false, func(s *Super, b []byte) { s.DevItem.TotalBytes += 4096 }},
		{"bad dev_item bytes_used", false, func(s *Super, b []byte) { s.DevItem.BytesUsed = 1 << 40 }},
		{"bad sys_chunk_array_size", false, func(s *Super, b []byte) { s.SysChunkArray = nil }},
		{"bad sys_chunk_array_size", false, func(s *Super, b []byte) { le.PutUint32(b[0xa0:], 9999) }},
		{"cut short", false, func(s *Super, b []byte) { s.SysChunkArray = append(s.SysChunkArray, 1, 2, 3) }},
		{"bad key in sys_chunk_array", false, func(s *Super, b []byte) { s.SysChunkArray[8] = 1 }},
		{"bad type, have 0x1 want SYSTEM", false, func(s *Super, b []byte) { s.SysChunkArray[KeySize+24] = BlockGroupData }},
		{"chunk_root is in no system chunk", false, func(s *Super, b []byte) { s.ChunkRoot = 1 << 29 }},
	} {
		// A change is made to the fields, or to the bytes: the one that stays.
		b := goodSuper()
		var s Super
		s.Decode(b)
		before := append([]byte(nil), b...)
		c.do(&s, b)
		if string(before) == string(b) {
			s.Encode(b)
		}
		le.PutUint32(b, CRC32C(b[32:SuperSize]))
		err := CheckSuper(b, size)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("have %v want %q", err, c.want)
			continue
		}
		var u *UnsupportedError
		if errors.As(err, &u) != c.unsupported {
			t.Errorf("%v: unsupported %v want %v", err, !c.unsupported, c.unsupported)
		}
	}
	b := goodSuper()
	b[0x500] ^= 1
	if err := CheckSuper(b, size); err == nil || !strings.Contains(err.Error(), "bad csum") {
		t.Errorf("a torn superblock: %v", err)
	}
	if CheckSuper(b[:100], size) == nil {
		t.Error("100 bytes pass for a superblock")
	}
}

// TestCheckerDoesNotAllocate: it runs on every metadata read and write.
func TestCheckerDoesNotAllocate(t *testing.T) {
	leaf, node := leafOf(CSUM_TREE_OBJECTID, samples()...), nodeOf(100)
	cn := ctx()
	cn.Level = 1
	if n := testing.AllocsPerRun(100, func() {
		if CheckLeaf(leaf, ctx()) != nil || CheckNode(node, cn) != nil {
			t.Fatal("not clean")
		}
	}); n != 0 {
		t.Errorf("%v allocations per check want 0", n)
	}
}

func BenchmarkCheckLeaf(b *testing.B) {
	var items []testItem
	for i := range uint64(30) { // a leaf of files, as an fs tree has them
		in := InodeItem{Generation: 7, Transid: 7, Nlink: 1, Mode: S_IFREG | 0o644}
		ref := InodeRef{Index: i, Name: "some-file-name"}
		reg := FileExtent{Generation: 7, RAMBytes: 8192, Type: FileExtentTypeReg, DiskBytenr: 1 << 24, DiskNumBytes: 8192, NumBytes: 8192}
		items = append(items, testItem{Key{300 + i, INODE_ITEM_KEY, 0}, enc(InodeItemSize, &in)},
			testItem{Key{300 + i, INODE_REF_KEY, 256}, enc(ref.Size(), ref)}, testItem{Key{300 + i, EXTENT_DATA_KEY, 0}, enc(reg.Size(), &reg)})
	}
	n := leafOf(FS_TREE_OBJECTID, items...)
	for b.Loop() {
		if err := CheckLeaf(n, ctx()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckNode(b *testing.B) {
	n := nodeOf(PtrsPerNode(NodeSize))
	c := ctx()
	c.Level = 1
	for b.Loop() {
		if err := CheckNode(n, c); err != nil {
			b.Fatal(err)
		}
	}
}

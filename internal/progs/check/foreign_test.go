package check

import (
	"slices"
	"strings"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
)

// Images that btrlab itself does not make, made here from the sample.

// TestMetadump: btrfs-image -r restores the metadata of an image, but neither its file data nor
// every superblock copy.
func TestMetadump(t *testing.T) {
	for _, flag := range []uint64{format.SuperFlagMetadump, format.SuperFlagMetadumpV2} {
		m := newImage(t)
		wipe := func() {
			m.write(m.copies(m.data0())[0], make([]byte, 4*blk))
			m.write(format.SuperMirror(1), make([]byte, format.SuperSize))
		}
		wipe()
		if r := m.check(); r.rules() != "[data.csum super.copy]" {
			t.Fatalf("without the flag, have %s want data.csum and super.copy\n%s", r.rules(), r.text())
		}
		m.sb.Flags |= flag
		m.super()
		wipe()
		r := m.check()
		if !r.Clean || r.Stats.DataBytes != 0 {
			t.Errorf("flag %#x, have %d bytes verified and:\n%s", flag, r.Stats.DataBytes, r.text())
		}
		for _, want := range []string{"without file data", "no superblock copy at 67108864"} {
			if !strings.Contains(r.text(), want) {
				t.Errorf("flag %#x, no note about %q in:\n%s", flag, want, r.text())
			}
		}
		// The flag excuses what is absent, not what is wrong.
		m.write(format.SuperMirror(1)+format.SuperSize-100, []byte("x"))
		m.write(format.SuperMirror(1), m.read(format.SuperOffset, 200))
		if r := m.check(); r.rules() != "[super.copy]" {
			t.Errorf("flag %#x, with half a copy, have:\n%s", flag, r.text())
		}
	}
}

// convert gives the image the checksums of another type.
func (m *image) convert(typ format.CsumType) {
	l := items(m.block(m.root(csumTree)))
	for i := range l {
		var sums []byte
		for j := range uint64(len(l[i].b) / format.CsumSize) {
			sum := typ.Sum(m.read(m.copies(l[i].k.Offset)[0]+j*blk, blk))
			sums = append(sums, sum[:typ.Size()]...)
		}
		l[i].b = sums
	}
	n := m.block(m.root(csumTree))
	fill(n, l)
	m.put(n)
	for _, bytenr := range m.trees() {
		n := m.block(bytenr)
		sum := typ.Sum(n[format.CsumField:])
		copy(n, sum[:])
		for _, off := range m.copies(bytenr) {
			m.write(off, n)
		}
	}
	m.sb.CsumType = typ
	m.super()
}

// TestChecksumTypes: checksums of every type are verified, in superblocks, tree blocks and data.
func TestChecksumTypes(t *testing.T) {
	for typ := format.CsumXXHash64; typ.Known(); typ++ {
		t.Run(typ.String(), func(t *testing.T) {
			m := newImage(t)
			m.convert(typ)
			if r := m.check(); !r.Clean || r.Stats.DataBytes != 4*blk {
				t.Fatalf("have %d bytes verified want %d\n%s", r.Stats.DataBytes, 4*blk, r.text())
			}
			// The last byte of the checksum counts, too.
			csum := uint64(typ.Size() - 1)
			for _, c := range []struct {
				rules string
				off   uint64
			}{
				{"[data.csum]", m.copies(m.data0())[0] + blk + 17},
				{"[tree.csum]", m.copies(m.root(devTree))[1] + 5000},
				{"[tree.csum]", m.copies(m.root(devTree))[1] + csum},
				{"[super.bad]", format.SuperOffset + csum},
				{"[super.copy]", format.SuperMirror(1) + csum},
			} {
				d := m.clone(t)
				d.write(c.off, []byte{d.read(c.off, 1)[0] ^ 1})
				if r := d.check(); r.rules() != c.rules {
					t.Errorf("byte %d flipped, have %s want %s\n%s", c.off, r.rules(), c.rules, r.text())
				}
			}
		})
	}
}

// TestMetadataUUID: btrfstune -m gives the superblock a new identifier; tree blocks and the device
// item keep the old one.
func TestMetadataUUID(t *testing.T) {
	m := newImage(t)
	m.sb.MetadataUUID, m.sb.FSID = m.sb.FSID, id(9)
	m.super()
	if r := m.check(); r.rules() != "[super.bad]" {
		t.Fatalf("without the flag, have:\n%s", r.text())
	}
	m.sb.IncompatFlags |= format.IncompatMetadataUUID
	m.super()
	if r := m.check(); !r.Clean {
		t.Fatalf("have:\n%s", r.text())
	}
	m.node(m.root(csumTree), func(n format.Node) { n.SetFSID(m.sb.FSID) })
	if r := m.check(); r.rules() != "[tree.header]" {
		t.Errorf("a block with the new identifier, have:\n%s", r.text())
	}
}

// TestSystemChunkAtZero: mkfs.btrfs before 2015 put the first system chunk at the start of the
// device, around the superblock.
func TestSystemChunkAtZero(t *testing.T) {
	m := newImage(t)
	sys, old := m.ch[0], m.ch[0].stripes[0].off
	if sys.typ&format.BlockGroupSystem == 0 || old != format.BlockReserved {
		t.Fatalf("the first chunk is %+v", sys)
	}
	for _, bytenr := range m.trees() {
		if bytenr >= sys.start && bytenr < sys.start+sys.length {
			if bytenr-sys.start+uint64(m.sb.NodeSize) > format.SuperOffset {
				t.Fatalf("the tree block at %d would lie on the superblock", bytenr)
			}
			m.write(bytenr-sys.start, m.block(bytenr))
		}
	}
	const stripe = format.ChunkHeaderSize + 8 // offset of the first stripe
	m.rekey(devTree, key(1, format.DEV_EXTENT_KEY, old), key(1, format.DEV_EXTENT_KEY, 0))
	m.ch[0].stripes[0].off = 0
	m.edit(chunkTree, key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, sys.start), set64(stripe, 0))
	le.PutUint64(m.sb.SysChunkArray[format.KeySize+stripe:], 0)
	m.super()
	if r := m.check(); !r.Clean || !strings.Contains(r.text(), "physical 0") {
		t.Errorf("have:\n%s", r.text())
	}
}

// TestNotSubvolumes: the quota tree's root item has no references, which does not say that the tree
// is being deleted.
func TestNotSubvolumes(t *testing.T) {
	m := newImage(t)
	m.rootItem(csumTree, func(r *format.RootItem) { r.Refs = 0 })
	if r := m.check(); !r.Clean || strings.Contains(r.text(), "being deleted") {
		t.Errorf("have:\n%s", r.text())
	}
}

// TestChecksumsOfALog: checksums of an extent that only a log tree names are no damage: a replay
// puts the extent there.
func TestChecksumsOfALog(t *testing.T) {
	m := newImage(t)
	at := m.data0() + 100*blk
	m.add(csumTree, key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, at), enc(format.CsumSize, crcOf(make([]byte, blk))))
	if r := m.check(); r.rules() != "[csum.extent]" {
		t.Fatalf("without a log, have:\n%s", r.text())
	}
	leaf := func(bytenr uint64, items ...item) {
		n := make(format.Node, m.sb.NodeSize)
		n.InitHeader(m.sb.FSID, id(3), bytenr, m.sb.Generation+1, logTree, 0)
		n.SetWritten(true)
		fill(n, items)
		m.put(n)
	}
	file := format.InodeItem{Generation: 1, Transid: m.sb.Generation + 1, Nlink: 1, Mode: format.S_IFREG | 0o644}
	for _, extent := range []uint64{at, at + blk} {
		fe := format.FileExtent{Generation: m.sb.Generation + 1, RAMBytes: blk, Type: format.FileExtentTypeReg, DiskBytenr: extent, DiskNumBytes: blk, NumBytes: blk}
		leaf(m.meta(51), item{key(fileIno, format.INODE_ITEM_KEY, 0), enc(format.InodeItemSize, &file)},
			item{key(fileIno, format.EXTENT_DATA_KEY, 0), enc(format.FileExtentSize, &fe)})
		r := format.RootItem{Bytenr: m.meta(51), Generation: m.sb.Generation + 1, GenerationV2: m.sb.Generation + 1, Refs: 1}
		leaf(m.meta(50), item{key(logTree, format.ROOT_ITEM_KEY, fsTree), enc(format.RootItemSize, &r)})
		m.sb.LogRoot = m.meta(50)
		m.super()
		want := "[]"
		if extent != at {
			want = "[csum.extent log.csum]"
		}
		if r := m.check(); r.rules() != want {
			t.Errorf("the log names %d, have %s want %s\n%s", extent, r.rules(), want, r.text())
		}
	}
}

// addQuota gives the image a quota tree with the qgroups of two levels, all right.
func (m *image) addQuota(flags, generation uint64) {
	const members = 1<<qgroupLevelShift | 100
	at := m.meta(40)
	r := format.RootItem{Bytenr: at, Generation: 1, GenerationV2: 1, BytesUsed: uint64(m.sb.NodeSize)}
	m.add(rootTree, key(format.QUOTA_TREE_OBJECTID, format.ROOT_ITEM_KEY, 0), enc(format.RootItemSize, &r))
	m.treeExtent(at, 0, format.QUOTA_TREE_OBJECTID)
	words := func(size int, w ...uint64) []byte {
		b := make([]byte, size)
		for i, v := range w {
			le.PutUint64(b[8*i:], v)
		}
		return b
	}
	// The root and two leaves of the fs tree; extents of 4, 4 and 2 blocks, used in part or not.
	bytes := 3*uint64(m.sb.NodeSize) + 10*blk
	n := make(format.Node, m.sb.NodeSize)
	n.InitHeader(m.sb.FSID, id(3), at, 1, format.QUOTA_TREE_OBJECTID, 0)
	n.SetWritten(true)
	info := words(qgroupInfoSize, 1, bytes, bytes, bytes, bytes)
	fill(n, []item{
		{key(0, format.QGROUP_STATUS_KEY, 0), words(qgroupStatusSize, 1, generation, flags)},
		{key(0, format.QGROUP_INFO_KEY, fsTree), info},
		// of a subvolume that is gone
		{key(0, format.QGROUP_INFO_KEY, 300), words(qgroupInfoSize, 1, 7, 7, 7, 7)},
		{key(0, format.QGROUP_INFO_KEY, members), info},
		{key(0, format.QGROUP_LIMIT_KEY, fsTree), words(40)},
		{key(0, format.QGROUP_LIMIT_KEY, 300), words(40)},
		{key(0, format.QGROUP_LIMIT_KEY, members), words(40)},
		{key(fsTree, format.QGROUP_RELATION_KEY, members), nil},
		{key(members, format.QGROUP_RELATION_KEY, fsTree), nil},
	})
	m.put(n)
	m.settle()
}

// TestQuota: counts that are not what the subvolumes reach are damage, in qgroups of every level,
// unless the quota tree says that they are out of date: then Linux counts again.
func TestQuota(t *testing.T) {
	for _, c := range []struct {
		name       string
		flags      uint64
		generation int // before the superblock's
		group      uint64
		off        int // of the field that is wrong; 0 is none
		rules      string
	}{
		{"right", 1, 0, fsTree, 0, "[]"},
		{"rfer", 1, 0, fsTree, 8, "[quota.count]"},
		{"excl", 1, 0, fsTree, 24, "[quota.count]"},
		{"excl of the upper level", 1, 0, 1<<qgroupLevelShift | 100, 24, "[quota.count]"},
		{"of no subvolume", 1, 0, 300, 8, "[]"},
		{"rescan", 1 | qgroupRescan, 0, fsTree, 8, "[]"},
		{"inconsistent", 1 | qgroupInconsistent, 0, fsTree, 8, "[]"},
		{"of an older commit, and wrong", 1, 1, fsTree, 8, "[quota.count]"},
		{"of an older commit, and right", 1, 1, fsTree, 0, "[]"},
	} {
		m := newImage(t)
		m.addQuota(c.flags, m.sb.Generation-uint64(c.generation))
		if c.off > 0 {
			m.edit(format.QUOTA_TREE_OBJECTID, key(0, format.QGROUP_INFO_KEY, c.group), func(b []byte) { b[c.off]++ })
		}
		r := m.check()
		if noted := strings.Contains(r.text(), "not judged"); r.rules() != c.rules || noted != (c.flags > 1) {
			t.Errorf("%s: have %s want %s\n%s", c.name, r.rules(), c.rules, r.text())
		}
	}
}

// TestQuotaShared: an extent that two subvolumes reach is exclusive to neither, but to the upper
// qgroup that has both; one that a subvolume reaches twice counts once.
func TestQuotaShared(t *testing.T) {
	const up, other = 1<<qgroupLevelShift | 1, 1<<qgroupLevelShift | 2
	reached := []reach{{100, 4, 5}, {100, 4, 5}, {200, 8, 300}, {200, 8, 5}, {300, 16, 300}, {400, 32, 301}}
	right := map[uint64]qgroup{5: {12, 4}, 300: {24, 16}, 301: {32, 32}, up: {28, 28}, other: {56, 48}}
	for id := range right {
		for _, wrong := range []qgroup{{0, 0}, {1, 0}, {0, 1}} {
			c := &checker{roots: map[uint64]rootInfo{}, quota: &quota{status: true, groups: map[uint64]*qgroup{}, reach: slices.Clone(reached),
				parents: map[uint64][]uint64{5: {up}, 300: {up, other}, 301: {other}}}}
			for _, root := range []uint64{5, 300, 301} {
				c.roots[root] = rootInfo{item: format.RootItem{Refs: 1}}
			}
			for id, g := range right {
				c.quota.groups[id] = &g
			}
			c.quota.groups[id].rfer += wrong.rfer
			c.quota.groups[id].excl += wrong.excl
			c.checkQuota()
			if n := len(c.findings); n != 1 && wrong != (qgroup{}) || n != 0 && wrong == (qgroup{}) {
				t.Errorf("%s off by %v: have %v", qgroupName(id), wrong, c.findings)
			}
		}
	}
}

// TestQuotaSimple: with simple quotas a group has what its subvolumes have allocated since they are
// on, also one whose subvolume is gone, and whatever the commit of the status.
func TestQuotaSimple(t *testing.T) {
	const up = 1<<qgroupLevelShift | 1
	right := map[uint64]qgroup{5: {48, 48}, 300: {64, 64}, up: {112, 112}}
	for id := range right {
		for _, wrong := range []qgroup{{0, 0}, {1, 0}, {0, 1}} {
			c := &checker{roots: map[uint64]rootInfo{5: {}, 8: {}}, quota: &quota{status: true, flags: 1 | qgroupSimple, enabled: 10, groups: map[uint64]*qgroup{},
				parents: map[uint64][]uint64{5: {up}, 300: {up}}}}
			for _, o := range []struct{ root, length, generation uint64 }{{5, 1, 9}, {5, 16, 10}, {5, 32, 11}, {300, 64, 12}, {7, 128, 12}} {
				c.owns(o.root, o.length, o.generation)
			}
			for id, g := range right {
				c.quota.groups[id] = &g
			}
			c.quota.groups[id].rfer += wrong.rfer
			c.quota.groups[id].excl += wrong.excl
			c.checkQuota()
			if n := len(c.findings); n != 1 && wrong != (qgroup{}) || n != 0 && wrong == (qgroup{}) || len(c.notes) != 0 {
				t.Errorf("%s off by %v: have %v, notes %v", qgroupName(id), wrong, c.findings, c.notes)
			}
		}
	}
}

// TestOrphanDirectory: a directory that was removed while a task had it open is no damage, as
// little as such a file is, nor is one whose orphan item has no inode any more.
func TestOrphanDirectory(t *testing.T) {
	m := newImage(t)
	m.editInode(orphan, func(i *format.InodeItem) { i.Mode = format.S_IFDIR | 0o755 })
	m.add(fsTree, key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, 999), nil)
	if r := m.check(); !r.Clean {
		t.Errorf("have:\n%s", r.text())
	}
}

// crcOf encodes as the crc32c of data.
type crcOf []byte

func (c crcOf) Encode(b []byte) { le.PutUint32(b, format.CRC32C(c)) }

// TestBlockGroupTree: block groups in a tree of their own are compared as those in the extent tree
// are, and one that lies in the wrong tree is none.
func TestBlockGroupTree(t *testing.T) {
	const tree = format.BLOCK_GROUP_TREE_OBJECTID
	base := newImageWith(t, func(o *mkfs.Options) { o.BlockGroupTree = true })
	if r := base.check(); !r.Clean || r.Stats.DataBytes == 0 {
		t.Fatalf("%d bytes verified\n%s", r.Stats.DataBytes, r.text())
	}
	group := key(base.ch[2].start, format.BLOCK_GROUP_ITEM_KEY, base.ch[2].length)
	for _, c := range []struct {
		name, rules string
		do          func(m *image)
	}{
		{"used", "[group.used super.bytes_used]", func(m *image) {
			m.edit(tree, group, func(b []byte) { le.PutUint64(b, le.Uint64(b)+blk) })
		}},
		{"flags", "[extent.group group.chunk]", func(m *image) {
			m.edit(tree, group, func(b []byte) { le.PutUint64(b[16:], format.BlockGroupMetadata) })
		}},
		{"a group is missing", "[extent.group group.chunk super.bytes_used]", func(m *image) { m.del(tree, group) }},
		{"in both trees", "[group.chunk]", func(m *image) {
			g := format.BlockGroupItem{ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: format.BlockGroupData}
			m.add(extentTree, group, enc(format.BlockGroupItemSize, &g))
		}},
		{"no tree", "[root.missing]", func(m *image) { m.del(rootTree, key(tree, format.ROOT_ITEM_KEY, 0)) }},
	} {
		m := base.clone(t)
		c.do(m)
		if r := m.check(); r.rules() != c.rules {
			t.Errorf("%s: have %s want %s\n%s", c.name, r.rules(), c.rules, r.text())
		}
	}
}

// TestDevItemOfSuper: Linux 5.10 leaves an old bytes_used in the device item of the superblock,
// which no kernel reads; btrfs check says nothing of it. Another size is damage.
func TestDevItemOfSuper(t *testing.T) {
	m := newImage(t)
	m.sb.DevItem.BytesUsed += blk
	m.super()
	if r := m.check(); !r.Clean || !strings.Contains(r.text(), "some kernels leave that") {
		t.Errorf("have\n%s\nwant a note", r.text())
	}
}

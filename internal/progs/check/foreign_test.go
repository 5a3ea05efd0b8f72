package check_test

import (
	"strings"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/testing/damaged"
)

// Images that btrlab itself does not make, made here from the sample.

// TestMetadump: btrfs-image -r restores the metadata of an image, but neither its file data nor
// every superblock copy.
func TestMetadump(t *testing.T) {
	for _, flag := range []uint64{format.SuperFlagMetadump, format.SuperFlagMetadumpV2} {
		m := damaged.NewImage(t)
		wipe := func() {
			m.Write(m.Copies(m.Data0())[0], make([]byte, 4*damaged.Sector))
			m.Write(format.SuperMirror(1), make([]byte, format.SuperSize))
		}
		wipe()
		if r := m.Check(); damaged.Rules(r) != "[data.csum super.copy]" {
			t.Fatalf("without the flag, have %s want data.csum and super.copy\n%s", damaged.Rules(r), damaged.Text(r))
		}
		m.Super.Flags |= flag
		m.PutSuper()
		wipe()
		r := m.Check()
		if !r.Clean || r.Stats.DataBytes != 0 {
			t.Errorf("flag %#x, have %d bytes verified and:\n%s", flag, r.Stats.DataBytes, damaged.Text(r))
		}
		for _, want := range []string{"without file data", "no superblock copy at 67108864"} {
			if !strings.Contains(damaged.Text(r), want) {
				t.Errorf("flag %#x, no note about %q in:\n%s", flag, want, damaged.Text(r))
			}
		}
		// The flag excuses what is absent, not what is wrong.
		m.Write(format.SuperMirror(1)+format.SuperSize-100, []byte("x"))
		m.Write(format.SuperMirror(1), m.Read(format.SuperOffset, 200))
		if r := m.Check(); damaged.Rules(r) != "[super.copy]" {
			t.Errorf("flag %#x, with half a copy, have:\n%s", flag, damaged.Text(r))
		}
	}
}

// TestChecksumTypes: checksums of every type are verified, in superblocks, tree blocks and data.
func TestChecksumTypes(t *testing.T) {
	for typ := format.CsumXXHash64; typ.Known(); typ++ {
		t.Run(typ.String(), func(t *testing.T) {
			m := damaged.NewImage(t)
			m.Convert(typ)
			if r := m.Check(); !r.Clean || r.Stats.DataBytes != 4*damaged.Sector {
				t.Fatalf("have %d bytes verified want %d\n%s", r.Stats.DataBytes, 4*damaged.Sector, damaged.Text(r))
			}
			// The last byte of the checksum counts, too.
			csum := uint64(typ.Size() - 1)
			for _, c := range []struct {
				rules string
				off   uint64
			}{
				{"[data.csum]", m.Copies(m.Data0())[0] + damaged.Sector + 17},
				{"[tree.csum]", m.Copies(m.Root(damaged.DevTree))[1] + 5000},
				{"[tree.csum]", m.Copies(m.Root(damaged.DevTree))[1] + csum},
				{"[super.bad]", format.SuperOffset + csum},
				{"[super.copy]", format.SuperMirror(1) + csum},
			} {
				d := m.Clone(t)
				d.Write(c.off, []byte{d.Read(c.off, 1)[0] ^ 1})
				if r := d.Check(); damaged.Rules(r) != c.rules {
					t.Errorf("byte %d flipped, have %s want %s\n%s", c.off, damaged.Rules(r), c.rules, damaged.Text(r))
				}
			}
		})
	}
}

// TestMetadataUUID: btrfstune -m gives the superblock a new identifier; tree blocks and the device
// item keep the old one.
func TestMetadataUUID(t *testing.T) {
	m := damaged.NewImage(t)
	m.Super.MetadataUUID, m.Super.FSID = m.Super.FSID, damaged.UUID(9)
	m.PutSuper()
	if r := m.Check(); damaged.Rules(r) != "[super.bad]" {
		t.Fatalf("without the flag, have:\n%s", damaged.Text(r))
	}
	m.Super.IncompatFlags |= format.IncompatMetadataUUID
	m.PutSuper()
	if r := m.Check(); !r.Clean {
		t.Fatalf("have:\n%s", damaged.Text(r))
	}
	m.Node(m.Root(damaged.CsumTree), func(n format.Node) { n.SetFSID(m.Super.FSID) })
	if r := m.Check(); damaged.Rules(r) != "[tree.header]" {
		t.Errorf("a block with the new identifier, have:\n%s", damaged.Text(r))
	}
}

// TestSystemChunkAtZero: mkfs.btrfs before 2015 put the first system chunk at the start of the
// device, around the superblock.
func TestSystemChunkAtZero(t *testing.T) {
	m := damaged.NewImage(t)
	sys, old := m.Chunks[0], m.Chunks[0].Stripes[0]
	if sys.Type&format.BlockGroupSystem == 0 || old != format.BlockReserved {
		t.Fatalf("the first chunk is %+v", sys)
	}
	for _, bytenr := range m.Trees() {
		if bytenr >= sys.Start && bytenr < sys.Start+sys.Length {
			if bytenr-sys.Start+uint64(m.Super.NodeSize) > format.SuperOffset {
				t.Fatalf("the tree block at %d would lie on the superblock", bytenr)
			}
			m.Write(bytenr-sys.Start, m.Block(bytenr))
		}
	}
	const stripe = format.ChunkHeaderSize + 8 // offset of the first stripe
	m.Rekey(damaged.DevTree, damaged.Key(1, format.DEV_EXTENT_KEY, old), damaged.Key(1, format.DEV_EXTENT_KEY, 0))
	m.Chunks[0].Stripes[0] = 0
	m.Edit(damaged.ChunkTree, damaged.Key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, sys.Start), damaged.Set64(stripe, 0))
	le.PutUint64(m.Super.SysChunkArray[format.KeySize+stripe:], 0)
	m.PutSuper()
	if r := m.Check(); !r.Clean || !strings.Contains(damaged.Text(r), "physical 0") {
		t.Errorf("have:\n%s", damaged.Text(r))
	}
}

// TestNotSubvolumes: the quota tree's root item has no references, which does not say that the tree
// is being deleted.
func TestNotSubvolumes(t *testing.T) {
	m := damaged.NewImage(t)
	m.RootItem(damaged.CsumTree, func(r *format.RootItem) { r.Refs = 0 })
	if r := m.Check(); !r.Clean || strings.Contains(damaged.Text(r), "being deleted") {
		t.Errorf("have:\n%s", damaged.Text(r))
	}
}

// TestChecksumsOfALog: checksums of an extent that only a log tree names are no damage: a replay
// puts the extent there.
func TestChecksumsOfALog(t *testing.T) {
	m := damaged.NewImage(t)
	at := m.Data0() + 100*damaged.Sector
	m.Add(damaged.CsumTree, damaged.Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, at), damaged.Enc(format.CsumSize, crcOf(make([]byte, damaged.Sector))))
	if r := m.Check(); damaged.Rules(r) != "[csum.extent]" {
		t.Fatalf("without a log, have:\n%s", damaged.Text(r))
	}
	leaf := func(bytenr uint64, items ...damaged.Item) {
		n := make(format.Node, m.Super.NodeSize)
		n.InitHeader(m.Super.FSID, damaged.UUID(3), bytenr, m.Super.Generation+1, format.TREE_LOG_OBJECTID, 0)
		n.SetWritten(true)
		damaged.Fill(n, items)
		m.Put(n)
	}
	file := format.InodeItem{Generation: 1, Transid: m.Super.Generation + 1, Nlink: 1, Mode: format.S_IFREG | 0o644}
	for _, extent := range []uint64{at, at + damaged.Sector} {
		fe := format.FileExtent{Generation: m.Super.Generation + 1, RAMBytes: damaged.Sector, Type: format.FileExtentTypeReg, DiskBytenr: extent, DiskNumBytes: damaged.Sector, NumBytes: damaged.Sector}
		leaf(m.Meta(51), damaged.Item{K: damaged.Key(damaged.FileIno, format.INODE_ITEM_KEY, 0), B: damaged.Enc(format.InodeItemSize, &file)},
			damaged.Item{K: damaged.Key(damaged.FileIno, format.EXTENT_DATA_KEY, 0), B: damaged.Enc(format.FileExtentSize, &fe)})
		r := format.RootItem{Bytenr: m.Meta(51), Generation: m.Super.Generation + 1, GenerationV2: m.Super.Generation + 1, Refs: 1}
		leaf(m.Meta(50), damaged.Item{K: damaged.Key(format.TREE_LOG_OBJECTID, format.ROOT_ITEM_KEY, damaged.FsTree), B: damaged.Enc(format.RootItemSize, &r)})
		m.Super.LogRoot = m.Meta(50)
		m.PutSuper()
		want := "[]"
		if extent != at {
			want = "[csum.extent log.csum]"
		}
		if r := m.Check(); damaged.Rules(r) != want {
			t.Errorf("the log names %d, have %s want %s\n%s", extent, damaged.Rules(r), want, damaged.Text(r))
		}
	}
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
		{"right", 1, 0, damaged.FsTree, 0, "[]"},
		{"rfer", 1, 0, damaged.FsTree, 8, "[quota.count]"},
		{"excl", 1, 0, damaged.FsTree, 24, "[quota.count]"},
		{"excl of the upper level", 1, 0, 1<<damaged.QgroupLevelShift | 100, 24, "[quota.count]"},
		{"of no subvolume", 1, 0, 300, 8, "[]"},
		{"rescan", 1 | 2, 0, damaged.FsTree, 8, "[]"},
		{"inconsistent", 1 | check.QgroupInconsistent, 0, damaged.FsTree, 8, "[]"},
		{"of an older commit, and wrong", 1, 1, damaged.FsTree, 8, "[quota.count]"},
		{"of an older commit, and right", 1, 1, damaged.FsTree, 0, "[]"},
	} {
		m := damaged.NewImage(t)
		m.AddQuota(c.flags, m.Super.Generation-uint64(c.generation))
		if c.off > 0 {
			m.Edit(format.QUOTA_TREE_OBJECTID, damaged.Key(0, format.QGROUP_INFO_KEY, c.group), func(b []byte) { b[c.off]++ })
		}
		r := m.Check()
		if noted := strings.Contains(damaged.Text(r), "not judged"); damaged.Rules(r) != c.rules || noted != (c.flags > 1) {
			t.Errorf("%s: have %s want %s\n%s", c.name, damaged.Rules(r), c.rules, damaged.Text(r))
		}
	}
}

// TestOrphanDirectory: a directory that was removed while a task had it open is no damage, as
// little as such a file is, nor is one whose orphan item has no inode any more.
func TestOrphanDirectory(t *testing.T) {
	m := damaged.NewImage(t)
	m.EditInode(damaged.Orphan, func(i *format.InodeItem) { i.Mode = format.S_IFDIR | 0o755 })
	m.Add(damaged.FsTree, damaged.Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, 999), nil)
	if r := m.Check(); !r.Clean {
		t.Errorf("have:\n%s", damaged.Text(r))
	}
}

// crcOf encodes as the crc32c of data.
type crcOf []byte

func (c crcOf) Encode(b []byte) { le.PutUint32(b, format.CRC32C(c)) }

// TestBlockGroupTree: block groups in a tree of their own are compared as those in the extent tree
// are, and one that lies in the wrong tree is none.
func TestBlockGroupTree(t *testing.T) {
	const tree = format.BLOCK_GROUP_TREE_OBJECTID
	base := damaged.NewImageWith(t, func(o *mkfs.Options) { o.BlockGroupTree = true })
	if r := base.Check(); !r.Clean || r.Stats.DataBytes == 0 {
		t.Fatalf("%d bytes verified\n%s", r.Stats.DataBytes, damaged.Text(r))
	}
	group := damaged.Key(base.Chunks[2].Start, format.BLOCK_GROUP_ITEM_KEY, base.Chunks[2].Length)
	for _, c := range []struct {
		name, rules string
		do          func(m *damaged.Image)
	}{
		{"used", "[group.used super.bytes_used]", func(m *damaged.Image) {
			m.Edit(tree, group, func(b []byte) { le.PutUint64(b, le.Uint64(b)+damaged.Sector) })
		}},
		{"flags", "[extent.group group.chunk]", func(m *damaged.Image) {
			m.Edit(tree, group, func(b []byte) { le.PutUint64(b[16:], format.BlockGroupMetadata) })
		}},
		{"a group is missing", "[extent.group group.chunk super.bytes_used]", func(m *damaged.Image) { m.Del(tree, group) }},
		{"in both trees", "[group.chunk]", func(m *damaged.Image) {
			g := format.BlockGroupItem{ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: format.BlockGroupData}
			m.Add(damaged.ExtentTree, group, damaged.Enc(format.BlockGroupItemSize, &g))
		}},
		{"no tree", "[root.missing]", func(m *damaged.Image) { m.Del(damaged.RootTree, damaged.Key(tree, format.ROOT_ITEM_KEY, 0)) }},
	} {
		m := base.Clone(t)
		c.do(m)
		if r := m.Check(); damaged.Rules(r) != c.rules {
			t.Errorf("%s: have %s want %s\n%s", c.name, damaged.Rules(r), c.rules, damaged.Text(r))
		}
	}
}

// TestDevItemOfSuper: Linux 5.10 leaves an old bytes_used in the device item of the superblock,
// which no kernel reads; btrfs check says nothing of it. Another size is damage.
func TestDevItemOfSuper(t *testing.T) {
	m := damaged.NewImage(t)
	m.Super.DevItem.BytesUsed += damaged.Sector
	m.PutSuper()
	if r := m.Check(); !r.Clean || !strings.Contains(damaged.Text(r), "some kernels leave that") {
		t.Errorf("have\n%s\nwant a note", damaged.Text(r))
	}
}

package damaged

import (
	"fmt"
	"slices"

	"btrlab/internal/format"
)

// Damages of the sample that a rule of the check finds. A repair mends most of them.

// Damage is something done to the sample.
type Damage struct {
	Name  string
	Rules string // that are broken then: sorted, with spaces between
	Do    func(m *Image)
}

// EachRule breaks each rule.
func EachRule(base *Image) []Damage {
	fsLeaf := func(m *Image, slot int) uint64 { return m.Block(m.Root(FsTree)).Blockptr(slot) }
	csumKey := Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, base.Data0())
	dataKey := Key(base.Data0(), format.EXTENT_ITEM_KEY, 4*Sector)
	group := func(m *Image, i int) format.Key {
		return Key(m.Chunks[i].Start, format.BLOCK_GROUP_ITEM_KEY, m.Chunks[i].Length)
	}
	return []Damage{
		{"primary superblock torn", "super.bad", func(m *Image) { m.Write(format.SuperOffset+0x400, []byte("torn")) }},
		{"unknown csum type", "super.bad", func(m *Image) { m.Super.CsumType = 77; m.PutSuper() }},
		{"copy is garbage", "super.copy", func(m *Image) { m.Write(format.SuperMirror(1), make([]byte, 100)) }},
		{"inode cache of an old kernel", "inode.cache", func(m *Image) {
			m.Add(FsTree, InodeKey(format.FREE_INO_OBJECTID), Enc(format.InodeItemSize, &format.InodeItem{Generation: 1, Mode: format.S_IFREG | 0o600}))
		}},
		{"entries of a directory that is no orphan", "dir.item dir.ref inode.orphan", func(m *Image) { m.OrphanDir(false) }},
		{"qgroup without limits", "quota.item", func(m *Image) {
			m.AddQuota(1, m.Super.Generation)
			m.Del(format.QUOTA_TREE_OBJECTID, Key(0, format.QGROUP_LIMIT_KEY, FsTree))
		}},
		{"relation of a qgroup that is not there", "quota.item", func(m *Image) {
			m.AddQuota(1, m.Super.Generation)
			m.Add(format.QUOTA_TREE_OBJECTID, Key(FsTree, format.QGROUP_RELATION_KEY, 2<<QgroupLevelShift|7), nil)
		}},
		{"subvolume that the UUID tree does not have", "uuid.item", func(m *Image) {
			m.RootItem(FsTree, func(r *format.RootItem) { r.UUID[0] ^= 1 })
		}},
		{"copy says other label", "super.copy", func(m *Image) {
			m.Super.Label, m.Super.Bytenr = "other", format.SuperMirror(1)
			p := make([]byte, format.SuperSize)
			m.Super.Encode(p)
			m.Write(m.Super.Bytenr, p)
		}},
		{"system array has another stripe offset", "super.sys_array tree.csum", func(m *Image) {
			le.PutUint64(m.Super.SysChunkArray[format.KeySize+format.ChunkHeaderSize+format.StripeSize+8:], 150<<20)
			m.PutSuper()
		}},
		{"super bytes_used", "super.bytes_used", func(m *Image) { m.Super.BytesUsed += Sector; m.PutSuper() }},
		{"super dev_item", "super.dev_item", func(m *Image) { m.Super.DevItem.TotalBytes -= Sector; m.PutSuper() }},

		{"both copies of a block bad", "tree.csum tree.read", func(m *Image) {
			for _, off := range m.Copies(fsLeaf(m, 1)) {
				m.Write(off+5000, []byte("rot"))
			}
		}},
		{"one copy of a block bad", "tree.csum", func(m *Image) { m.Write(m.Copies(m.Root(CsumTree))[1]+5000, []byte("rot")) }},
		{"copies differ, both whole", "tree.mirror", func(m *Image) {
			n := m.Block(m.Root(CsumTree))
			copy(n[2000:], "stale")
			n.UpdateCsum(format.CsumCRC32C)
			m.Write(m.Copies(m.Root(CsumTree))[1], n)
		}},
		{"keys out of order", "tree.block", func(m *Image) {
			m.Node(fsLeaf(m, 0), func(n format.Node) { a, b := n.Key(1), n.Key(2); n.SetKey(1, b); n.SetKey(2, a) })
		}},
		{"name hash", "tree.block", func(m *Image) {
			k := m.Find(FsTree, DirIno, format.DIR_ITEM_KEY)
			m.Edit(FsTree, k, func(b []byte) { b[format.DirItemSize] ^= 1 })
		}},
		{"written flag missing", "tree.block", func(m *Image) { m.Node(m.Root(CsumTree), func(n format.Node) { n.SetWritten(false) }) }},
		{"block of another place", "tree.header", func(m *Image) { m.Node(fsLeaf(m, 1), func(n format.Node) { n.SetBytenr(n.Bytenr() + 4*Sector) }) }},
		{"block of another file system", "tree.header", func(m *Image) { m.Node(fsLeaf(m, 1), func(n format.Node) { n.SetFSID(UUID(9)) }) }},
		{"level", "tree.level", func(m *Image) { m.Node(fsLeaf(m, 1), func(n format.Node) { n.SetLevel(1) }) }},
		{"root level", "tree.level", func(m *Image) { m.RootItem(CsumTree, func(r *format.RootItem) { r.Level = 1 }) }},
		{"generation", "tree.generation", func(m *Image) { m.Node(fsLeaf(m, 1), func(n format.Node) { n.SetGeneration(0) }) }},
		{"owner", "tree.owner", func(m *Image) { m.Node(m.Root(CsumTree), func(n format.Node) { n.SetOwner(DevTree) }) }},
		{"first key", "tree.first_key", func(m *Image) { m.Node(m.Root(FsTree), func(n format.Node) { n.SetKey(1, Key(InlineIn, 0, 0)) }) }},
		{"key range", "tree.key_range", func(m *Image) {
			m.Node(fsLeaf(m, 0), func(n format.Node) { n.SetKey(n.Nritems()-1, Key(SubIno, 36, 0)) })
		}},
		{"pointer loop", "tree.loop", func(m *Image) { m.Node(m.Root(FsTree), func(n format.Node) { n.SetBlockptr(1, n.Bytenr()) }) }},
		{"block twice in a tree", "tree.loop", func(m *Image) { m.Node(m.Root(FsTree), func(n format.Node) { n.SetBlockptr(1, n.Blockptr(0)) }) }},
		{"pointer out of every chunk", "tree.chunk", func(m *Image) { m.Node(m.Root(FsTree), func(n format.Node) { n.SetBlockptr(1, 1<<40) }) }},
		{"metadata in the data group", "extent.group tree.chunk", func(m *Image) { m.moveRoot(CsumTree, m.Data0()+64*Sector) }},

		{"no csum tree", "root.missing", func(m *Image) { m.Del(RootTree, Key(CsumTree, format.ROOT_ITEM_KEY, 0)) }},
		{"generation_v2", "root.item", func(m *Image) { m.RootItem(CsumTree, func(r *format.RootItem) { r.GenerationV2 = 0 }) }},
		{"half a subvolume link", "dir.index dir.item root.ref", func(m *Image) {
			r := format.RootRef{Dirid: 256, Sequence: 9, Name: "sub"}
			m.Add(RootTree, Key(FsTree, format.ROOT_REF_KEY, 300), Enc(21, &r))
		}},

		{"chunk overlaps", "chunk.item dev.extent group.chunk", func(m *Image) {
			k := Key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, m.Chunks[2].Start)
			m.Rekey(ChunkTree, k, Key(k.Objectid, k.Type, k.Offset-Sector))
		}},
		{"chunk of two types", "chunk.item", func(m *Image) {
			const both = format.BlockGroupData | format.BlockGroupMetadata
			ch := m.Chunks[2]
			m.Edit(ChunkTree, Key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, ch.Start), Set64(24, both))
			m.Edit(ExtentTree, group(m, 2), Set64(16, both))
		}},
		{"dev extent missing", "chunk.dev_extent dev.bytes_used", func(m *Image) {
			m.Del(DevTree, Key(1, format.DEV_EXTENT_KEY, m.Chunks[2].Stripes[0]))
		}},
		{"dev extent without chunk", "dev.bytes_used dev.extent", func(m *Image) {
			d := format.DevExtent{ChunkTree: 3, ChunkObjectid: 256, ChunkOffset: 1 << 40, Length: 1 << 20}
			m.Add(DevTree, Key(1, format.DEV_EXTENT_KEY, 190<<20), Enc(format.DevExtentSize, &d))
		}},
		{"dev extent below 1 MiB", "dev.bytes_used dev.extent dev.overlap", func(m *Image) {
			d := format.DevExtent{ChunkTree: 3, ChunkObjectid: 256, ChunkOffset: 1 << 40, Length: 64 << 10}
			m.Add(DevTree, Key(1, format.DEV_EXTENT_KEY, 512<<10), Enc(format.DevExtentSize, &d))
		}},
		{"dev bytes_used", "dev.bytes_used", func(m *Image) {
			m.Edit(ChunkTree, Key(1, format.DEV_ITEM_KEY, 1), func(b []byte) { le.PutUint64(b[16:], le.Uint64(b[16:])+Sector) })
			m.Super.DevItem.BytesUsed += Sector
			m.PutSuper()
		}},
		{"dev total_bytes", "dev.item super.dev_item", func(m *Image) {
			m.Edit(ChunkTree, Key(1, format.DEV_ITEM_KEY, 1), func(b []byte) { le.PutUint64(b[8:], le.Uint64(b[8:])-Sector) })
		}},

		{"block group missing", "extent.group group.chunk super.bytes_used", func(m *Image) { m.Del(ExtentTree, group(m, 2)) }},
		{"block group flags", "group.chunk", func(m *Image) {
			m.Change(ExtentTree, group(m, 1), fmt.Sprint("flags=", format.BlockGroupMetadata))
		}},
		{"block group used", "group.used super.bytes_used", func(m *Image) {
			m.Edit(ExtentTree, group(m, 2), func(b []byte) { le.PutUint64(b, le.Uint64(b)+Sector) })
		}},

		{"extent in two groups", "extent.group", func(m *Image) {
			at := m.Chunks[2].Start + m.Chunks[2].Length - Sector
			m.Del(ExtentTree, Key(m.Data0()+16*Sector, format.EXTENT_ITEM_KEY, 2*Sector))
			m.DataExtent(at, 2*Sector, PreIno, 0)
			m.FileExtentEdit(PreIno, 0, func(fe *format.FileExtent) { fe.DiskBytenr = at })
			m.Settle()
			// settle counts the whole of it, and lists no free space after it
			m.Edit(ExtentTree, group(m, 2), func(b []byte) { le.PutUint64(b, 8*Sector) })
			m.Super.BytesUsed -= 2 * Sector
			m.PutSuper()
		}},
		{"extent over a superblock copy", "extent.overlap", func(m *Image) {
			stripe := m.Chunks[1].Stripes[1]
			if stripe > format.SuperMirror(1) || stripe+m.Chunks[1].Length < format.SuperMirror(1)+format.StripeLen {
				m.T.Fatalf("the second metadata stripe at %d does not cover the superblock copy", stripe)
			}
			m.moveRoot(CsumTree, m.Chunks[1].Start+format.SuperMirror(1)-stripe+uint64(m.Super.NodeSize))
		}},
		{"no extent item of a block", "extent.missing", func(m *Image) {
			m.Del(ExtentTree, Key(m.Root(CsumTree), format.METADATA_ITEM_KEY, 0))
			m.Settle()
		}},
		{"no extent item of data", "csum.extent extent.missing", func(m *Image) { m.Del(ExtentTree, dataKey); m.Settle() }},
		{"reference of another root", "extent.ref_extra extent.ref_missing", func(m *Image) {
			m.Edit(ExtentTree, Key(m.Root(CsumTree), format.METADATA_ITEM_KEY, 0), Set64(25, DevTree))
		}},
		{"reference of another offset", "extent.ref_extra extent.ref_missing", func(m *Image) {
			m.Edit(ExtentTree, dataKey, Set64(25+16, 8*Sector))
		}},
		{"keyed reference of nothing", "extent.ref_extra", func(m *Image) {
			m.Add(ExtentTree, Key(m.Data0()+64*Sector, format.SHARED_DATA_REF_KEY, m.Meta(0)), []byte{1, 0, 0, 0})
		}},
		{"reference count too high", "extent.ref_extra extent.refs", func(m *Image) {
			m.Edit(ExtentTree, dataKey, func(b []byte) { le.PutUint64(b, 3); le.PutUint32(b[25+24:], 2) })
		}},
		{"refs", "extent.refs", func(m *Image) { m.Change(ExtentTree, dataKey, "refs=2") }},
		{"file extent of half an extent", "extent.length", func(m *Image) {
			m.FileExtentEdit(PreIno, 0, func(fe *format.FileExtent) { fe.DiskNumBytes, fe.RAMBytes, fe.NumBytes = Sector, Sector, Sector })
			m.EditInode(PreIno, func(i *format.InodeItem) { i.Nbytes = Sector })
		}},
		{"level of an extent item", "extent.type", func(m *Image) {
			b := m.Root(CsumTree)
			m.Rekey(ExtentTree, Key(b, format.METADATA_ITEM_KEY, 0), Key(b, format.METADATA_ITEM_KEY, 1))
		}},
		{"generation of an extent item", "extent.generation", func(m *Image) {
			m.Change(ExtentTree, Key(m.Root(CsumTree), format.METADATA_ITEM_KEY, 0), "generation=0")
		}},

		{"free space count", "free_space.info", func(m *Image) {
			m.Edit(FreeTree, Key(m.Chunks[1].Start, format.FREE_SPACE_INFO_KEY, m.Chunks[1].Length), func(b []byte) { b[0]++ })
		}},
		{"free space info missing", "free_space.info", func(m *Image) {
			m.Del(FreeTree, Key(m.Chunks[0].Start, format.FREE_SPACE_INFO_KEY, m.Chunks[0].Length))
		}},
		{"free space lost", "free_space.range", func(m *Image) {
			k := m.Find(FreeTree, m.Chunks[0].Start+uint64(m.Super.NodeSize), format.FREE_SPACE_EXTENT_KEY)
			m.Rekey(FreeTree, k, Key(k.Objectid, k.Type, k.Offset-Sector))
		}},
		{"free space over an extent", "free_space.range", func(m *Image) {
			k := m.Find(FreeTree, m.Chunks[0].Start+uint64(m.Super.NodeSize), format.FREE_SPACE_EXTENT_KEY)
			m.Rekey(FreeTree, k, Key(k.Objectid-Sector, k.Type, k.Offset+Sector))
		}},
		{"free space in two adjacent pieces", "free_space.range", func(m *Image) {
			k := m.Find(FreeTree, m.Chunks[0].Start+uint64(m.Super.NodeSize), format.FREE_SPACE_EXTENT_KEY)
			m.Rekey(FreeTree, k, Key(k.Objectid, k.Type, Sector))
			m.Add(FreeTree, Key(k.Objectid+Sector, k.Type, k.Offset-Sector), nil)
		}},

		{"checksums of free space", "csum.extent", func(m *Image) {
			m.Add(CsumTree, Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, m.Data0()+100*Sector), func() []byte {
				b := make([]byte, 4)
				le.PutUint32(b, format.CRC32C(make([]byte, Sector)))
				return b
			}())
		}},
		{"one checksum missing", "csum.missing", func(m *Image) {
			n := m.Block(m.Root(CsumTree))
			l := Items(n)
			l[0].B = l[0].B[:12]
			Fill(n, l)
			m.Put(n)
		}},
		{"data rotten", "data.csum", func(m *Image) { m.Write(m.Copies(m.Data0())[0]+Sector+17, []byte("rot")) }},
		{"checksum wrong", "data.csum", func(m *Image) { m.Edit(CsumTree, csumKey, func(b []byte) { b[5] ^= 1 }) }},

		{"inode item missing", "inode.missing", func(m *Image) {
			// The first of its leaf: in the middle of one the tree checker would say so.
			m.Del(FsTree, InodeKey(InlineIn))
			first := m.Block(fsLeaf(m, 1)).Key(0)
			m.Node(m.Root(FsTree), func(n format.Node) { n.SetKey(1, first) })
		}},
		{"nlink", "inode.nlink", func(m *Image) { m.EditInode(FileIno, func(i *format.InodeItem) { i.Nlink = 3 }) }},
		{"nlink of a directory with two names", "inode.nlink", func(m *Image) { m.Link(256, DirIno, "again", 9, format.FtDir) }},
		{"nlink of a directory", "inode.nlink inode.orphan", func(m *Image) { m.EditInode(DirIno, func(i *format.InodeItem) { i.Nlink = 0 }) }},
		{"orphan item missing", "inode.orphan", func(m *Image) { m.Del(FsTree, Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, Orphan)) }},
		{"nbytes", "inode.nbytes", func(m *Image) { m.EditInode(SubIno, func(i *format.InodeItem) { i.Nbytes += Sector }) }},
		{"symbolic link with odd flags", "inode.flags", func(m *Image) { m.EditInode(symIno, func(i *format.InodeItem) { i.Flags |= format.InodeAppend }) }},
		{"compressed extent without checksum", "csum.missing", func(m *Image) {
			// The checksums of a compressed extent are those of its bytes on the device, all of
			// them.
			m.FileExtentEdit(FileIno, 0, func(fe *format.FileExtent) { fe.Compression = format.CompressZlib })
			n := m.Block(m.Root(CsumTree))
			l := Items(n)
			l[0].B = l[0].B[:12]
			Fill(n, l)
			m.Put(n)
		}},
		{"compressed extent of a file without checksums", "file.extent", func(m *Image) {
			m.FileExtentEdit(SubIno, 2*Sector, func(fe *format.FileExtent) { fe.Compression = format.CompressLZO })
		}},
		{"compressed and preallocated", "file.extent", func(m *Image) {
			m.FileExtentEdit(PreIno, 0, func(fe *format.FileExtent) { fe.Compression = format.CompressZstd })
		}},
		{"compressed extent of more than 128 KiB", "file.extent", func(m *Image) {
			m.FileExtentEdit(FileIno, 0, func(fe *format.FileExtent) { fe.Compression, fe.RAMBytes = format.CompressZlib, 33*Sector })
		}},
		{"directory with data", "inode.kind", func(m *Image) {
			m.FileExtent(DeepIno, 0, format.FileExtent{RAMBytes: 1, Inline: []byte("x")})
		}},
		{"file extent too long for its extent", "file.extent", func(m *Image) {
			m.FileExtentEdit(SubIno, 2*Sector, func(fe *format.FileExtent) { fe.RAMBytes, fe.NumBytes = 8*Sector, 4*Sector })
			m.EditInode(SubIno, func(i *format.InodeItem) { i.Nbytes = 4 * Sector })
		}},
		{"symbolic link without target", "file.inline", func(m *Image) {
			m.Del(FsTree, Key(symIno, format.EXTENT_DATA_KEY, 0))
			m.EditInode(symIno, func(i *format.InodeItem) { i.Nbytes = 0 })
		}},
		{"symbolic link longer than its target, not by a NUL", "file.inline", func(m *Image) { m.LinkTarget("fileX") }},
		{"symbolic link longer by two NULs", "file.inline", func(m *Image) { m.LinkTarget("file\x00\x00") }},
		{"symbolic link shorter than its size", "file.inline", func(m *Image) { m.LinkTarget("fi\x00") }},
		{"holes must be explicit", "file.hole", func(m *Image) { m.Super.IncompatFlags &^= format.IncompatNoHoles; m.PutSuper() }},
		{"directory size", "dir.size", func(m *Image) { m.EditInode(DirIno, func(i *format.InodeItem) { i.Size++ }) }},
		{"DIR_ITEM missing", "dir.item", func(m *Image) {
			m.Del(FsTree, Key(DirIno, format.DIR_ITEM_KEY, format.NameHash("nocow")))
			m.EditInode(DirIno, func(i *format.InodeItem) { i.Size -= 5 })
		}},
		{"DIR_INDEX missing", "dir.index", func(m *Image) {
			m.Del(FsTree, Key(DirIno, format.DIR_INDEX_KEY, 4))
			m.EditInode(DirIno, func(i *format.InodeItem) { i.Size -= 5 })
		}},
		{"index differs from the reference", "dir.index", func(m *Image) {
			m.Change(FsTree, Key(SubIno, format.INODE_REF_KEY, DirIno), "index=44")
		}},
		{"INODE_REF missing", "dir.ref inode.nlink", func(m *Image) { m.Del(FsTree, Key(SubIno, format.INODE_REF_KEY, DirIno)) }},
		{"entry of no inode", "dir.ref", func(m *Image) {
			d := format.DirItem{Location: InodeKey(999), Transid: 1, Type: format.FtRegFile, Name: "ghost"}
			m.Add(FsTree, Key(DirIno, format.DIR_ITEM_KEY, format.NameHash("ghost")), Enc(d.Size(), &d))
			m.Add(FsTree, Key(DirIno, format.DIR_INDEX_KEY, 99), Enc(d.Size(), &d))
			m.EditInode(DirIno, func(i *format.InodeItem) { i.Size += 10 })
		}},
		{"DIR_ITEM of no inode, without an index", "dir.index dir.ref", func(m *Image) {
			d := format.DirItem{Location: InodeKey(999), Transid: 1, Type: format.FtRegFile, Name: "ghost"}
			m.Add(FsTree, Key(DeepIno, format.DIR_ITEM_KEY, format.NameHash("ghost")), Enc(d.Size(), &d))
			m.EditInode(DeepIno, func(i *format.InodeItem) { i.Size += 5 })
		}},
		{"DIR_INDEX of no inode, without an item", "dir.item dir.ref", func(m *Image) {
			d := format.DirItem{Location: InodeKey(999), Transid: 1, Type: format.FtRegFile, Name: "ghost"}
			m.Add(FsTree, Key(DeepIno, format.DIR_INDEX_KEY, 99), Enc(d.Size(), &d))
			m.EditInode(DeepIno, func(i *format.InodeItem) { i.Size += 5 })
		}},
		{"entry type", "dir.type", func(m *Image) {
			for _, k := range []format.Key{Key(DirIno, format.DIR_ITEM_KEY, format.NameHash("nocow")), Key(DirIno, format.DIR_INDEX_KEY, 4)} {
				m.Edit(FsTree, k, func(b []byte) { b[29] = format.FtFifo })
			}
		}},
		{"read-only flag that Linux ignores", "root.flags", func(m *Image) {
			m.RootItem(FsTree, func(r *format.RootItem) {
				r.Flags |= format.RootSubvolReadonly
				r.Inode.Flags &^= format.InodeRootItemInit
			})
		}},
		{"subvolume that nobody will delete", "root.orphan", func(m *Image) {
			m.Subvol(300, 70)
			m.RootItem(300, func(r *format.RootItem) { r.Refs = 0 })
		}},
		{"orphan item of another subvolume", "root.orphan", func(m *Image) {
			m.Subvol(300, 70)
			m.RootItem(300, func(r *format.RootItem) { r.Refs = 0 })
			m.OrphanRoot(301)
		}},
		{"tree with an offset in its key", "root.item", func(m *Image) {
			m.Rekey(RootTree, Key(CsumTree, format.ROOT_ITEM_KEY, 0), Key(CsumTree, format.ROOT_ITEM_KEY, 2))
		}},
		{"item of no type", "tree.key_type", func(m *Image) { m.Add(FsTree, Key(DeepIno, 77, 0), []byte{1}) }},
		{"item that is not of its tree", "tree.key_type", func(m *Image) { m.Add(FsTree, Key(DeepIno, format.UUID_KEY_SUBVOL, 0), make([]byte, 8)) }},
		{"item of no type in the root tree", "tree.key_type", func(m *Image) { m.Add(RootTree, Key(CsumTree, 133, 0), []byte{1}) }},
		{"two files of one name", "dir.name", func(m *Image) { m.Again("nocow", FileIno, format.FtRegFile) }},
		{"file and directory of one name", "dir.name", func(m *Image) { m.Again("deep", FileIno, format.FtRegFile) }},
		{"orphan with more extents than bytes", "inode.nbytes", func(m *Image) {
			m.HalfOrphan(2*Sector, Sector)
		}},
		{"directory below itself", "dir.cycle", func(m *Image) {
			// dir's entry in the root directory moves to deep, which is in dir.
			for _, k := range []format.Key{Key(256, format.DIR_ITEM_KEY, format.NameHash("dir")), Key(256, format.DIR_INDEX_KEY, 4), Key(DirIno, format.INODE_REF_KEY, 256)} {
				m.Del(FsTree, k)
			}
			m.EditInode(256, func(i *format.InodeItem) { i.Size -= 6 })
			m.Link(DeepIno, DirIno, "dir", 2, format.FtDir)
		}},
	}
}

// ByOne are damages of kinds that a rule must tell apart: a value that is wrong in one of two
// fields, on one side of a border, in the second leaf of a tree, or in an item that others repeat.
func ByOne(base *Image) []Damage {
	d := base.Data0()
	chunkKey := func(m *Image, i int) format.Key {
		return Key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, m.Chunks[i].Start)
	}
	group := func(m *Image, i int) format.Key {
		return Key(m.Chunks[i].Start, format.BLOCK_GROUP_ITEM_KEY, m.Chunks[i].Length)
	}
	info := func(m *Image, i int) format.Key {
		return Key(m.Chunks[i].Start, format.FREE_SPACE_INFO_KEY, m.Chunks[i].Length)
	}
	csums := func(m *Image, at uint64, n int) { // right ones, of what lies there
		b := make([]byte, 4*n)
		for i := range n {
			le.PutUint32(b[4*i:], format.CRC32C(m.Read(m.Copies(at)[0]+uint64(i)*Sector, Sector)))
		}
		m.Add(CsumTree, Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, at), b)
	}
	inodeMode := func(m *Image, ino uint64, mode uint32, ft uint8, name string, index uint64) {
		m.EditInode(ino, func(i *format.InodeItem) { i.Mode = mode })
		for _, k := range []format.Key{Key(DirIno, format.DIR_ITEM_KEY, format.NameHash(name)), Key(DirIno, format.DIR_INDEX_KEY, index)} {
			m.Edit(FsTree, k, func(b []byte) { b[29] = ft })
		}
	}
	movePre := func(m *Image, at, length uint64) {
		m.FileExtentEdit(PreIno, 0, func(fe *format.FileExtent) {
			fe.DiskBytenr, fe.DiskNumBytes, fe.RAMBytes, fe.NumBytes = at, length, length, length
		})
		m.EditInode(PreIno, func(i *format.InodeItem) { i.Nbytes = length })
	}
	return []Damage{
		{"system chunk in the array only", "chunk.dev_extent group.chunk super.sys_array", func(m *Image) {
			size := format.KeySize + format.ChunkSize(format.ChunkStripes(m.Super.SysChunkArray[format.KeySize:]))
			more := slices.Clone(m.Super.SysChunkArray[:size])
			le.PutUint64(more[9:], 1<<40) // the key's offset
			for i := range format.ChunkStripes(more[format.KeySize:]) {
				le.PutUint64(more[format.KeySize+format.ChunkHeaderSize+i*format.StripeSize+8:], uint64(150+8*i)<<20)
			}
			m.Super.SysChunkArray = append(m.Super.SysChunkArray, more...)
			m.PutSuper()
		}},
		{"system chunk in the tree only", "extent.group super.sys_array", func(m *Image) {
			m.Edit(ChunkTree, chunkKey(m, 2), Set64(24, format.BlockGroupSystem))
			m.Edit(ExtentTree, group(m, 2), Set64(16, format.BlockGroupSystem))
		}},
		{"stripe on a device of another uuid", "chunk.item", func(m *Image) {
			m.Edit(ChunkTree, chunkKey(m, 2), func(b []byte) { b[format.ChunkHeaderSize+16] ^= 1 })
		}},
		{"stripe on another devid", "chunk.item", func(m *Image) {
			m.Edit(ChunkTree, chunkKey(m, 2), Set64(format.ChunkHeaderSize, 2))
		}},
		{"dev extent of another chunk", "chunk.dev_extent", func(m *Image) {
			m.Edit(DevTree, Key(1, format.DEV_EXTENT_KEY, m.Chunks[2].Stripes[0]), Set64(16, m.Chunks[1].Start))
		}},
		{"dev extent of another length", "chunk.dev_extent dev.bytes_used", func(m *Image) {
			m.Edit(DevTree, Key(1, format.DEV_EXTENT_KEY, m.Chunks[2].Stripes[0]), Set64(24, m.Chunks[2].Length-1<<20))
		}},
		{"dev extents overlap in two leaves", "chunk.dev_extent dev.bytes_used dev.overlap", func(m *Image) {
			last := m.Chunks[2].Stripes[0]
			m.Leaf2(DevTree, Key(1, format.DEV_EXTENT_KEY, last), 60)
			m.Settle()
			before := m.Chunks[1].Stripes[1]
			if before+m.Chunks[1].Length != last {
				m.T.Fatalf("the data stripe at %d does not follow the metadata stripe at %d", last, before)
			}
			m.Edit(DevTree, Key(1, format.DEV_EXTENT_KEY, before), Set64(24, m.Chunks[1].Length+Sector))
		}},
		{"dev extent that ends beyond the device", "dev.bytes_used dev.extent dev.overlap", func(m *Image) {
			x := format.DevExtent{ChunkTree: 3, ChunkObjectid: 256, ChunkOffset: 1 << 40, Length: 1 << 20}
			m.Add(DevTree, Key(1, format.DEV_EXTENT_KEY, m.Super.TotalBytes-1<<20+Sector), Enc(format.DevExtentSize, &x))
		}},
		{"block group shorter than its chunk", "free_space.info free_space.range group.chunk", func(m *Image) {
			k := group(m, 2)
			m.Rekey(ExtentTree, k, Key(k.Objectid, k.Type, k.Offset-Sector))
		}},
		{"block group longer than its chunk", "free_space.info free_space.range group.chunk", func(m *Image) {
			k := group(m, 2)
			m.Rekey(ExtentTree, k, Key(k.Objectid, k.Type, k.Offset+Sector))
		}},
		{"extents overlap in two leaves", "extent.length extent.overlap free_space.info free_space.range group.used", func(m *Image) {
			m.Leaf2(ExtentTree, Key(d+8*Sector, 0, 0), 60)
			m.Settle()
			m.Rekey(ExtentTree, Key(d, format.EXTENT_ITEM_KEY, 4*Sector), Key(d, format.EXTENT_ITEM_KEY, 9*Sector))
		}},
		{"two windows and one reference", "extent.ref_missing", func(m *Image) {
			m.FileExtentEdit(FileIno, 0, func(fe *format.FileExtent) { fe.NumBytes = 2 * Sector })
			m.FileExtent(FileIno, 2*Sector, format.FileExtent{Type: format.FileExtentTypeReg, RAMBytes: 4 * Sector, DiskBytenr: d, DiskNumBytes: 4 * Sector, Offset: 2 * Sector, NumBytes: 2 * Sector})
		}},
		{"data in the metadata group", "extent.group", func(m *Image) {
			m.Del(ExtentTree, Key(d+16*Sector, format.EXTENT_ITEM_KEY, 2*Sector))
			m.DataExtent(m.Meta(70), 2*Sector, PreIno, 0)
			movePre(m, m.Meta(70), 2*Sector)
			m.Settle()
		}},
		{"file points at a tree block", "extent.ref_missing extent.type", func(m *Image) {
			m.Del(ExtentTree, Key(d+16*Sector, format.EXTENT_ITEM_KEY, 2*Sector))
			movePre(m, m.Root(CsumTree), uint64(m.Super.NodeSize))
			m.Settle()
		}},
		{"checksums of a tree block", "csum.extent", func(m *Image) { csums(m, m.Root(DevTree), 4) }},
		{"checksums over the end of the data", "csum.extent", func(m *Image) {
			m.Del(CsumTree, Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, d))
			csums(m, d, 5)
		}},
		{"checksums before the data", "csum.extent", func(m *Image) { csums(m, d+7*Sector, 5) }},
		{"no checksum of the last sector", "csum.missing", func(m *Image) {
			m.Del(CsumTree, Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, d))
			csums(m, d, 3)
		}},
		{"extents in a group of bitmaps", "free_space.info", func(m *Image) {
			m.Edit(FreeTree, info(m, 2), func(b []byte) { le.PutUint32(b[4:], format.FreeSpaceUsingBitmaps) })
		}},
		{"free space info of another length", "free_space.info", func(m *Image) {
			k := info(m, 2)
			m.Rekey(FreeTree, k, Key(k.Objectid, k.Type, k.Offset-Sector))
		}},
		{"free space one sector too long", "free_space.range", func(m *Image) {
			var last format.Key
			for _, k := range m.Keys(m.Root(FreeTree)) {
				if k.Type == format.FREE_SPACE_EXTENT_KEY && k.Objectid < m.Chunks[2].Start {
					last = k
				}
			}
			m.Rekey(FreeTree, last, Key(last.Objectid, last.Type, last.Offset+Sector))
		}},

		{"entries in a file", "inode.kind", func(m *Image) {
			m.Link(FileIno, InlineIn, "odd", 2, format.FtRegFile)
			m.EditInode(InlineIn, func(i *format.InodeItem) { i.Nlink = 2 })
		}},
		{"data in a pipe", "inode.kind", func(m *Image) { inodeMode(m, PreIno, format.S_IFIFO|0o644, format.FtFifo, "pre", 5) }},
		{"index 1", "dir.index", func(m *Image) {
			m.Rekey(FsTree, Key(DirIno, format.DIR_INDEX_KEY, 2), Key(DirIno, format.DIR_INDEX_KEY, 1))
			m.Edit(FsTree, Key(InlineIn, format.INODE_REF_KEY, DirIno), Set64(0, 1))
		}},
		{"index of the root's name for itself", "dir.ref", func(m *Image) {
			m.Edit(FsTree, Key(256, format.INODE_REF_KEY, 256), Set64(0, 1))
		}},
		{"name twice in its DIR_ITEM", "dir.item", func(m *Image) {
			k := Key(DirIno, format.DIR_ITEM_KEY, format.NameHash("nocow"))
			e := format.DirItem{Location: InodeKey(SubIno), Transid: 1, Type: format.FtRegFile, Name: "nocow"}
			m.Del(FsTree, k)
			m.Add(FsTree, k, append(Enc(e.Size(), &e), Enc(e.Size(), &e)...))
			m.EditInode(DirIno, func(i *format.InodeItem) { i.Size += 5 })
		}},
		{"name in two references", "dir.ref inode.nlink", func(m *Image) {
			k := Key(SubIno, format.INODE_REF_KEY, DirIno)
			r := format.InodeRef{Index: 4, Name: "nocow"}
			m.Del(FsTree, k)
			m.Add(FsTree, k, append(Enc(r.Size(), r), Enc(r.Size(), r)...))
		}},
		{"inline extent of more than a sector", "file.inline", func(m *Image) {
			k := Key(InlineIn, format.EXTENT_DATA_KEY, 0)
			m.Del(FsTree, k)
			m.FileExtent(InlineIn, 0, format.FileExtent{RAMBytes: Sector + 1, Inline: make([]byte, Sector+1)})
			m.EditInode(InlineIn, func(i *format.InodeItem) { i.Size, i.Nbytes = Sector+1, Sector+1 })
		}},
		{"inline extent of a sector", "", func(m *Image) {
			k := Key(InlineIn, format.EXTENT_DATA_KEY, 0)
			m.Del(FsTree, k)
			m.FileExtent(InlineIn, 0, format.FileExtent{RAMBytes: Sector, Inline: make([]byte, Sector)})
			m.EditInode(InlineIn, func(i *format.InodeItem) { i.Size, i.Nbytes = Sector, Sector })
		}},

		{"subvolume", "", func(m *Image) { m.Subvol(300, 70); m.LinkSubvol(300, "sub") }},
		{"two subvolumes, one without a name", "root.ref", func(m *Image) { m.Subvol(300, 70); m.LinkSubvol(300, "sub"); m.Subvol(301, 71) }},
		{"subvolume without a name", "root.ref", func(m *Image) { m.Subvol(300, 70) }},
		{"link to no subvolume", "root.ref", func(m *Image) { m.LinkSubvol(300, "sub") }},
		{"link in no subvolume", "root.ref", func(m *Image) {
			m.Subvol(300, 70)
			m.linkRoots(400, 300, format.RootRef{Dirid: 256, Sequence: 20, Name: "sub"})
		}},
		{"link in a subvolume that is being deleted", "root.ref", func(m *Image) {
			m.Subvol(300, 70)
			m.Subvol(400, 71)
			m.RootItem(400, func(r *format.RootItem) { r.Refs = 0 })
			m.OrphanRoot(400)
			m.linkRoots(400, 300, format.RootRef{Dirid: 256, Sequence: 20, Name: "sub"})
		}},
		{"link from one end only", "root.ref", func(m *Image) {
			m.Subvol(300, 70)
			m.LinkSubvol(300, "sub")
			m.Del(RootTree, Key(300, format.ROOT_BACKREF_KEY, FsTree))
		}},
		{"root directory of another number", "root.item", func(m *Image) { m.RootItem(FsTree, func(r *format.RootItem) { r.RootDirid = 6 }) }},
		{"root directory of a later number", "root.item", func(m *Image) { m.RootItem(FsTree, func(r *format.RootItem) { r.RootDirid = 257 }) }},
		{"root of the top level without references", "root.item", func(m *Image) { m.RootItem(FsTree, func(r *format.RootItem) { r.Refs = 0 }) }},
	}
}

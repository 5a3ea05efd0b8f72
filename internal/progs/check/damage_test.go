package check

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/need"
)

// set64 pokes a field of an item.
func set64(off int, v uint64) func([]byte) { return func(b []byte) { le.PutUint64(b[off:], v) } }

func inodeKey(ino uint64) format.Key { return key(ino, format.INODE_ITEM_KEY, 0) }

func (m *image) rootItem(tree uint64, f func(r *format.RootItem)) {
	m.edit(rootTree, key(tree, format.ROOT_ITEM_KEY, 0), func(b []byte) {
		var r format.RootItem
		r.Decode(b)
		f(&r)
		r.Encode(b)
	})
}

// node changes a block's header or pointers.
func (m *image) node(bytenr uint64, f func(n format.Node)) {
	n := m.block(bytenr)
	f(n)
	m.putAt(n, bytenr)
}

func (m *image) fileExtentEdit(ino, off uint64, f func(fe *format.FileExtent)) {
	m.edit(fsTree, key(ino, format.EXTENT_DATA_KEY, off), func(b []byte) {
		var fe format.FileExtent
		fe.Decode(b)
		f(&fe)
		fe.Encode(b)
	})
}

// rekey replaces an item's key, in place: order is the caller's care.
func (m *image) rekey(tree uint64, old, new format.Key) {
	n := m.block(m.leafOf(tree, old))
	slot, found := n.Search(old)
	if !found {
		m.t.Fatalf("no item %v in tree %d", old, int64(tree))
	}
	n.SetKey(slot, new)
	m.put(n)
}

// moveRoot puts the only block of a tree elsewhere, with all that knows of it.
func (m *image) moveRoot(tree, to uint64) {
	from := m.root(tree)
	n := m.block(from)
	n.SetBytenr(to)
	m.put(n)
	m.rootItem(tree, func(r *format.RootItem) { r.Bytenr = to })
	m.del(extentTree, key(from, format.METADATA_ITEM_KEY, 0))
	m.treeExtent(to, 0, tree)
	m.settle()
}

// TestEachRuleFires damages the sample in one place, with checksums made right again, and expects
// the rule, and no rule that only follows from it.
func TestEachRuleFires(t *testing.T) {
	base := newImage(t)
	fsLeaf := func(m *image, slot int) uint64 { return m.block(m.root(fsTree)).Blockptr(slot) }
	csumKey := key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, base.data0())
	dataKey := key(base.data0(), format.EXTENT_ITEM_KEY, 4*blk)
	group := func(m *image, i int) format.Key {
		return key(m.ch[i].start, format.BLOCK_GROUP_ITEM_KEY, m.ch[i].length)
	}
	fired := map[string]bool{}
	for _, c := range []struct {
		name  string
		rules string // space-separated, sorted
		do    func(m *image)
	}{
		{"primary superblock torn", "super.bad", func(m *image) { m.write(format.SuperOffset+0x400, []byte("torn")) }},
		{"unknown csum type", "super.bad", func(m *image) { m.sb.CsumType = 77; m.super() }},
		{"copy is garbage", "super.copy", func(m *image) { m.write(format.SuperMirror(1), make([]byte, 100)) }},
		{"inode cache of an old kernel", "inode.cache", func(m *image) {
			m.add(fsTree, inodeKey(format.FREE_INO_OBJECTID), enc(format.InodeItemSize, &format.InodeItem{Generation: 1, Mode: format.S_IFREG | 0o600}))
		}},
		{"entries of a directory that is no orphan", "dir.item dir.ref inode.orphan", func(m *image) { m.orphanDir(false) }},
		{"qgroup without limits", "quota.item", func(m *image) {
			m.addQuota(1, m.sb.Generation)
			m.del(format.QUOTA_TREE_OBJECTID, key(0, format.QGROUP_LIMIT_KEY, fsTree))
		}},
		{"relation of a qgroup that is not there", "quota.item", func(m *image) {
			m.addQuota(1, m.sb.Generation)
			m.add(format.QUOTA_TREE_OBJECTID, key(fsTree, format.QGROUP_RELATION_KEY, 2<<qgroupLevelShift|7), nil)
		}},
		{"subvolume that the UUID tree does not have", "uuid.item", func(m *image) {
			m.rootItem(fsTree, func(r *format.RootItem) { r.UUID[0] ^= 1 })
		}},
		{"copy says other label", "super.copy", func(m *image) {
			m.sb.Label, m.sb.Bytenr = "other", format.SuperMirror(1)
			p := make([]byte, format.SuperSize)
			m.sb.Encode(p)
			m.write(m.sb.Bytenr, p)
		}},
		{"system array has another stripe offset", "super.sys_array tree.csum", func(m *image) {
			le.PutUint64(m.sb.SysChunkArray[format.KeySize+format.ChunkHeaderSize+format.StripeSize+8:], 150<<20)
			m.super()
		}},
		{"super bytes_used", "super.bytes_used", func(m *image) { m.sb.BytesUsed += blk; m.super() }},
		{"super dev_item", "super.dev_item", func(m *image) { m.sb.DevItem.TotalBytes -= blk; m.super() }},

		{"both copies of a block bad", "tree.csum tree.read", func(m *image) {
			for _, off := range m.copies(fsLeaf(m, 1)) {
				m.write(off+5000, []byte("rot"))
			}
		}},
		{"one copy of a block bad", "tree.csum", func(m *image) { m.write(m.copies(m.root(csumTree))[1]+5000, []byte("rot")) }},
		{"copies differ, both whole", "tree.mirror", func(m *image) {
			n := m.block(m.root(csumTree))
			copy(n[2000:], "stale")
			n.UpdateCsum(format.CsumCRC32C)
			m.write(m.copies(m.root(csumTree))[1], n)
		}},
		{"keys out of order", "tree.block", func(m *image) {
			m.node(fsLeaf(m, 0), func(n format.Node) { a, b := n.Key(1), n.Key(2); n.SetKey(1, b); n.SetKey(2, a) })
		}},
		{"name hash", "tree.block", func(m *image) {
			k := m.find(fsTree, dirIno, format.DIR_ITEM_KEY)
			m.edit(fsTree, k, func(b []byte) { b[format.DirItemSize] ^= 1 })
		}},
		{"written flag missing", "tree.block", func(m *image) { m.node(m.root(csumTree), func(n format.Node) { n.SetWritten(false) }) }},
		{"block of another place", "tree.header", func(m *image) { m.node(fsLeaf(m, 1), func(n format.Node) { n.SetBytenr(n.Bytenr() + 4*blk) }) }},
		{"block of another file system", "tree.header", func(m *image) { m.node(fsLeaf(m, 1), func(n format.Node) { n.SetFSID(id(9)) }) }},
		{"level", "tree.level", func(m *image) { m.node(fsLeaf(m, 1), func(n format.Node) { n.SetLevel(1) }) }},
		{"root level", "tree.level", func(m *image) { m.rootItem(csumTree, func(r *format.RootItem) { r.Level = 1 }) }},
		{"generation", "tree.generation", func(m *image) { m.node(fsLeaf(m, 1), func(n format.Node) { n.SetGeneration(0) }) }},
		{"owner", "tree.owner", func(m *image) { m.node(m.root(csumTree), func(n format.Node) { n.SetOwner(devTree) }) }},
		{"first key", "tree.first_key", func(m *image) { m.node(m.root(fsTree), func(n format.Node) { n.SetKey(1, key(inlineIn, 0, 0)) }) }},
		{"key range", "tree.key_range", func(m *image) {
			m.node(fsLeaf(m, 0), func(n format.Node) { n.SetKey(n.Nritems()-1, key(subIno, 36, 0)) })
		}},
		{"pointer loop", "tree.loop", func(m *image) { m.node(m.root(fsTree), func(n format.Node) { n.SetBlockptr(1, n.Bytenr()) }) }},
		{"block twice in a tree", "tree.loop", func(m *image) { m.node(m.root(fsTree), func(n format.Node) { n.SetBlockptr(1, n.Blockptr(0)) }) }},
		{"pointer out of every chunk", "tree.chunk", func(m *image) { m.node(m.root(fsTree), func(n format.Node) { n.SetBlockptr(1, 1<<40) }) }},
		{"metadata in the data group", "extent.group tree.chunk", func(m *image) { m.moveRoot(csumTree, m.data0()+64*blk) }},

		{"no csum tree", "root.missing", func(m *image) { m.del(rootTree, key(csumTree, format.ROOT_ITEM_KEY, 0)) }},
		{"generation_v2", "root.item", func(m *image) { m.rootItem(csumTree, func(r *format.RootItem) { r.GenerationV2 = 0 }) }},
		{"half a subvolume link", "dir.index dir.item root.ref", func(m *image) {
			r := format.RootRef{Dirid: 256, Sequence: 9, Name: "sub"}
			m.add(rootTree, key(fsTree, format.ROOT_REF_KEY, 300), enc(21, &r))
		}},

		{"chunk overlaps", "chunk.item dev.extent group.chunk", func(m *image) {
			k := key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, m.ch[2].start)
			m.rekey(chunkTree, k, key(k.Objectid, k.Type, k.Offset-blk))
		}},
		{"chunk of two types", "chunk.item", func(m *image) {
			const both = format.BlockGroupData | format.BlockGroupMetadata
			ch := m.ch[2]
			m.edit(chunkTree, key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, ch.start), set64(24, both))
			m.edit(extentTree, group(m, 2), set64(16, both))
		}},
		{"dev extent missing", "chunk.dev_extent dev.bytes_used", func(m *image) {
			m.del(devTree, key(1, format.DEV_EXTENT_KEY, m.ch[2].stripes[0].off))
		}},
		{"dev extent without chunk", "dev.bytes_used dev.extent", func(m *image) {
			d := format.DevExtent{ChunkTree: 3, ChunkObjectid: 256, ChunkOffset: 1 << 40, Length: 1 << 20}
			m.add(devTree, key(1, format.DEV_EXTENT_KEY, 190<<20), enc(format.DevExtentSize, &d))
		}},
		{"dev extent below 1 MiB", "dev.bytes_used dev.extent dev.overlap", func(m *image) {
			d := format.DevExtent{ChunkTree: 3, ChunkObjectid: 256, ChunkOffset: 1 << 40, Length: 64 << 10}
			m.add(devTree, key(1, format.DEV_EXTENT_KEY, 512<<10), enc(format.DevExtentSize, &d))
		}},
		{"dev bytes_used", "dev.bytes_used", func(m *image) {
			m.edit(chunkTree, key(1, format.DEV_ITEM_KEY, 1), func(b []byte) { le.PutUint64(b[16:], le.Uint64(b[16:])+blk) })
			m.sb.DevItem.BytesUsed += blk
			m.super()
		}},
		{"dev total_bytes", "dev.item super.dev_item", func(m *image) {
			m.edit(chunkTree, key(1, format.DEV_ITEM_KEY, 1), func(b []byte) { le.PutUint64(b[8:], le.Uint64(b[8:])-blk) })
		}},

		{"block group missing", "extent.group group.chunk super.bytes_used", func(m *image) { m.del(extentTree, group(m, 2)) }},
		{"block group flags", "group.chunk", func(m *image) {
			m.edit(extentTree, group(m, 1), set64(16, format.BlockGroupMetadata))
		}},
		{"block group used", "group.used super.bytes_used", func(m *image) {
			m.edit(extentTree, group(m, 2), func(b []byte) { le.PutUint64(b, le.Uint64(b)+blk) })
		}},

		{"extent in two groups", "extent.group", func(m *image) {
			at := m.ch[2].start + m.ch[2].length - blk
			m.del(extentTree, key(m.data0()+16*blk, format.EXTENT_ITEM_KEY, 2*blk))
			m.dataExtent(at, 2*blk, preIno, 0)
			m.fileExtentEdit(preIno, 0, func(fe *format.FileExtent) { fe.DiskBytenr = at })
			m.settle()
			// settle counts the whole of it, and lists no free space after it
			m.edit(extentTree, group(m, 2), func(b []byte) { le.PutUint64(b, 8*blk) })
			m.sb.BytesUsed -= 2 * blk
			m.super()
		}},
		{"extent over a superblock copy", "extent.overlap", func(m *image) {
			stripe := m.ch[1].stripes[1].off
			if stripe > format.SuperMirror(1) || stripe+m.ch[1].length < format.SuperMirror(1)+format.StripeLen {
				m.t.Fatalf("the second metadata stripe at %d does not cover the superblock copy", stripe)
			}
			m.moveRoot(csumTree, m.ch[1].start+format.SuperMirror(1)-stripe+uint64(m.sb.NodeSize))
		}},
		{"no extent item of a block", "extent.missing", func(m *image) {
			m.del(extentTree, key(m.root(csumTree), format.METADATA_ITEM_KEY, 0))
			m.settle()
		}},
		{"no extent item of data", "csum.extent extent.missing", func(m *image) { m.del(extentTree, dataKey); m.settle() }},
		{"reference of another root", "extent.ref_extra extent.ref_missing", func(m *image) {
			m.edit(extentTree, key(m.root(csumTree), format.METADATA_ITEM_KEY, 0), set64(25, devTree))
		}},
		{"reference of another offset", "extent.ref_extra extent.ref_missing", func(m *image) {
			m.edit(extentTree, dataKey, set64(25+16, 8*blk))
		}},
		{"keyed reference of nothing", "extent.ref_extra", func(m *image) {
			m.add(extentTree, key(m.data0()+64*blk, format.SHARED_DATA_REF_KEY, m.meta(0)), []byte{1, 0, 0, 0})
		}},
		{"reference count too high", "extent.ref_extra extent.refs", func(m *image) {
			m.edit(extentTree, dataKey, func(b []byte) { le.PutUint64(b, 3); le.PutUint32(b[25+24:], 2) })
		}},
		{"refs", "extent.refs", func(m *image) { m.edit(extentTree, dataKey, set64(0, 2)) }},
		{"file extent of half an extent", "extent.length", func(m *image) {
			m.fileExtentEdit(preIno, 0, func(fe *format.FileExtent) { fe.DiskNumBytes, fe.RAMBytes, fe.NumBytes = blk, blk, blk })
			m.editInode(preIno, func(i *format.InodeItem) { i.Nbytes = blk })
		}},
		{"level of an extent item", "extent.type", func(m *image) {
			b := m.root(csumTree)
			m.rekey(extentTree, key(b, format.METADATA_ITEM_KEY, 0), key(b, format.METADATA_ITEM_KEY, 1))
		}},
		{"generation of an extent item", "extent.generation", func(m *image) {
			m.edit(extentTree, key(m.root(csumTree), format.METADATA_ITEM_KEY, 0), set64(8, 0))
		}},

		{"free space count", "free_space.info", func(m *image) {
			m.edit(freeTree, key(m.ch[1].start, format.FREE_SPACE_INFO_KEY, m.ch[1].length), func(b []byte) { b[0]++ })
		}},
		{"free space info missing", "free_space.info", func(m *image) {
			m.del(freeTree, key(m.ch[0].start, format.FREE_SPACE_INFO_KEY, m.ch[0].length))
		}},
		{"free space lost", "free_space.range", func(m *image) {
			k := m.find(freeTree, m.ch[0].start+uint64(m.sb.NodeSize), format.FREE_SPACE_EXTENT_KEY)
			m.rekey(freeTree, k, key(k.Objectid, k.Type, k.Offset-blk))
		}},
		{"free space over an extent", "free_space.range", func(m *image) {
			k := m.find(freeTree, m.ch[0].start+uint64(m.sb.NodeSize), format.FREE_SPACE_EXTENT_KEY)
			m.rekey(freeTree, k, key(k.Objectid-blk, k.Type, k.Offset+blk))
		}},
		{"free space in two adjacent pieces", "free_space.range", func(m *image) {
			k := m.find(freeTree, m.ch[0].start+uint64(m.sb.NodeSize), format.FREE_SPACE_EXTENT_KEY)
			m.rekey(freeTree, k, key(k.Objectid, k.Type, blk))
			m.add(freeTree, key(k.Objectid+blk, k.Type, k.Offset-blk), nil)
		}},

		{"checksums of free space", "csum.extent", func(m *image) {
			m.add(csumTree, key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, m.data0()+100*blk), func() []byte {
				b := make([]byte, 4)
				le.PutUint32(b, format.CRC32C(make([]byte, blk)))
				return b
			}())
		}},
		{"one checksum missing", "csum.missing", func(m *image) {
			n := m.block(m.root(csumTree))
			l := items(n)
			l[0].b = l[0].b[:12]
			fill(n, l)
			m.put(n)
		}},
		{"data rotten", "data.csum", func(m *image) { m.write(m.copies(m.data0())[0]+blk+17, []byte("rot")) }},
		{"checksum wrong", "data.csum", func(m *image) { m.edit(csumTree, csumKey, func(b []byte) { b[5] ^= 1 }) }},

		{"inode item missing", "inode.missing", func(m *image) {
			// The first of its leaf: in the middle of one the tree checker would say so.
			m.del(fsTree, inodeKey(inlineIn))
			first := m.block(fsLeaf(m, 1)).Key(0)
			m.node(m.root(fsTree), func(n format.Node) { n.SetKey(1, first) })
		}},
		{"nlink", "inode.nlink", func(m *image) { m.editInode(fileIno, func(i *format.InodeItem) { i.Nlink = 3 }) }},
		{"nlink of a directory with two names", "inode.nlink", func(m *image) { m.link(256, dirIno, "again", 9, format.FtDir) }},
		{"nlink of a directory", "inode.nlink inode.orphan", func(m *image) { m.editInode(dirIno, func(i *format.InodeItem) { i.Nlink = 0 }) }},
		{"orphan item missing", "inode.orphan", func(m *image) { m.del(fsTree, key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, orphan)) }},
		{"nbytes", "inode.nbytes", func(m *image) { m.editInode(subIno, func(i *format.InodeItem) { i.Nbytes += blk }) }},
		{"symbolic link with odd flags", "inode.flags", func(m *image) { m.editInode(symIno, func(i *format.InodeItem) { i.Flags |= format.InodeAppend }) }},
		{"compressed extent without checksum", "csum.missing", func(m *image) {
			// The checksums of a compressed extent are those of its bytes on the device, all of
			// them.
			m.fileExtentEdit(fileIno, 0, func(fe *format.FileExtent) { fe.Compression = format.CompressZlib })
			n := m.block(m.root(csumTree))
			l := items(n)
			l[0].b = l[0].b[:12]
			fill(n, l)
			m.put(n)
		}},
		{"compressed extent of a file without checksums", "file.extent", func(m *image) {
			m.fileExtentEdit(subIno, 2*blk, func(fe *format.FileExtent) { fe.Compression = format.CompressLZO })
		}},
		{"compressed and preallocated", "file.extent", func(m *image) {
			m.fileExtentEdit(preIno, 0, func(fe *format.FileExtent) { fe.Compression = format.CompressZstd })
		}},
		{"compressed extent of more than 128 KiB", "file.extent", func(m *image) {
			m.fileExtentEdit(fileIno, 0, func(fe *format.FileExtent) { fe.Compression, fe.RAMBytes = format.CompressZlib, 33*blk })
		}},
		{"directory with data", "inode.kind", func(m *image) {
			m.fileExtent(deepIno, 0, format.FileExtent{RAMBytes: 1, Inline: []byte("x")})
		}},
		{"file extent too long for its extent", "file.extent", func(m *image) {
			m.fileExtentEdit(subIno, 2*blk, func(fe *format.FileExtent) { fe.RAMBytes, fe.NumBytes = 8*blk, 4*blk })
			m.editInode(subIno, func(i *format.InodeItem) { i.Nbytes = 4 * blk })
		}},
		{"symbolic link without target", "file.inline", func(m *image) {
			m.del(fsTree, key(symIno, format.EXTENT_DATA_KEY, 0))
			m.editInode(symIno, func(i *format.InodeItem) { i.Nbytes = 0 })
		}},
		{"symbolic link longer than its target, not by a NUL", "file.inline", func(m *image) { m.link4("fileX") }},
		{"symbolic link longer by two NULs", "file.inline", func(m *image) { m.link4("file\x00\x00") }},
		{"symbolic link shorter than its size", "file.inline", func(m *image) { m.link4("fi\x00") }},
		{"holes must be explicit", "file.hole", func(m *image) { m.sb.IncompatFlags &^= format.IncompatNoHoles; m.super() }},
		{"directory size", "dir.size", func(m *image) { m.editInode(dirIno, func(i *format.InodeItem) { i.Size++ }) }},
		{"DIR_ITEM missing", "dir.item", func(m *image) {
			m.del(fsTree, key(dirIno, format.DIR_ITEM_KEY, format.NameHash("nocow")))
			m.editInode(dirIno, func(i *format.InodeItem) { i.Size -= 5 })
		}},
		{"DIR_INDEX missing", "dir.index", func(m *image) {
			m.del(fsTree, key(dirIno, format.DIR_INDEX_KEY, 4))
			m.editInode(dirIno, func(i *format.InodeItem) { i.Size -= 5 })
		}},
		{"index differs from the reference", "dir.index", func(m *image) {
			m.edit(fsTree, key(subIno, format.INODE_REF_KEY, dirIno), set64(0, 44))
		}},
		{"INODE_REF missing", "dir.ref inode.nlink", func(m *image) { m.del(fsTree, key(subIno, format.INODE_REF_KEY, dirIno)) }},
		{"entry of no inode", "dir.ref", func(m *image) {
			d := format.DirItem{Location: inodeKey(999), Transid: 1, Type: format.FtRegFile, Name: "ghost"}
			m.add(fsTree, key(dirIno, format.DIR_ITEM_KEY, format.NameHash("ghost")), enc(d.Size(), &d))
			m.add(fsTree, key(dirIno, format.DIR_INDEX_KEY, 99), enc(d.Size(), &d))
			m.editInode(dirIno, func(i *format.InodeItem) { i.Size += 10 })
		}},
		{"DIR_ITEM of no inode, without an index", "dir.index dir.ref", func(m *image) {
			d := format.DirItem{Location: inodeKey(999), Transid: 1, Type: format.FtRegFile, Name: "ghost"}
			m.add(fsTree, key(deepIno, format.DIR_ITEM_KEY, format.NameHash("ghost")), enc(d.Size(), &d))
			m.editInode(deepIno, func(i *format.InodeItem) { i.Size += 5 })
		}},
		{"DIR_INDEX of no inode, without an item", "dir.item dir.ref", func(m *image) {
			d := format.DirItem{Location: inodeKey(999), Transid: 1, Type: format.FtRegFile, Name: "ghost"}
			m.add(fsTree, key(deepIno, format.DIR_INDEX_KEY, 99), enc(d.Size(), &d))
			m.editInode(deepIno, func(i *format.InodeItem) { i.Size += 5 })
		}},
		{"entry type", "dir.type", func(m *image) {
			for _, k := range []format.Key{key(dirIno, format.DIR_ITEM_KEY, format.NameHash("nocow")), key(dirIno, format.DIR_INDEX_KEY, 4)} {
				m.edit(fsTree, k, func(b []byte) { b[29] = format.FtFifo })
			}
		}},
		{"read-only flag that Linux ignores", "root.flags", func(m *image) {
			m.rootItem(fsTree, func(r *format.RootItem) {
				r.Flags |= format.RootSubvolReadonly
				r.Inode.Flags &^= format.InodeRootItemInit
			})
		}},
		{"subvolume that nobody will delete", "root.orphan", func(m *image) {
			m.subvol(300, 70)
			m.rootItem(300, func(r *format.RootItem) { r.Refs = 0 })
		}},
		{"orphan item of another subvolume", "root.orphan", func(m *image) {
			m.subvol(300, 70)
			m.rootItem(300, func(r *format.RootItem) { r.Refs = 0 })
			m.orphanRoot(301)
		}},
		{"tree with an offset in its key", "root.item", func(m *image) {
			m.rekey(rootTree, key(csumTree, format.ROOT_ITEM_KEY, 0), key(csumTree, format.ROOT_ITEM_KEY, 2))
		}},
		{"item of no type", "tree.key_type", func(m *image) { m.add(fsTree, key(deepIno, 77, 0), []byte{1}) }},
		{"item of no type in the root tree", "tree.key_type", func(m *image) { m.add(rootTree, key(csumTree, 133, 0), []byte{1}) }},
		{"two files of one name", "dir.name", func(m *image) { m.again("nocow", fileIno, format.FtRegFile) }},
		{"file and directory of one name", "dir.name", func(m *image) { m.again("deep", fileIno, format.FtRegFile) }},
		{"orphan with more extents than bytes", "inode.nbytes", func(m *image) {
			m.halfOrphan(2*blk, blk)
		}},
		{"directory below itself", "dir.cycle", func(m *image) {
			// dir's entry in the root directory moves to deep, which is in dir.
			for _, k := range []format.Key{key(256, format.DIR_ITEM_KEY, format.NameHash("dir")), key(256, format.DIR_INDEX_KEY, 4), key(dirIno, format.INODE_REF_KEY, 256)} {
				m.del(fsTree, k)
			}
			m.editInode(256, func(i *format.InodeItem) { i.Size -= 6 })
			m.link(deepIno, dirIno, "dir", 2, format.FtDir)
		}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			m := base.clone(t)
			c.do(m)
			r := m.check()
			want := fmt.Sprint(strings.Fields(c.rules))
			if r.rules() != want {
				t.Errorf("have %s want %s\n%s", r.rules(), want, r.text())
			}
			for _, f := range r.Findings {
				fired[f.Rule] = true
				if f.Where() == "" || f.Have == nil {
					t.Errorf("a finding without place or value: %+v", f)
				}
			}
			repaired(t, m, c.name)
		})
	}
	// Rules that other tests of this package show.
	for _, name := range []string{"device.read", "data.read", "super.device", "data.parity", "quota.count", "log.root", "log.space", "log.item", "log.csum"} {
		fired[name] = true
	}
	for _, r := range Rules {
		if !fired[r.Name] {
			t.Errorf("no test makes %s fire: %s", r.Name, r.Doc)
		}
	}
	if r := base.check(); !r.Clean {
		t.Errorf("the sample itself was damaged:\n%s", r.text())
	}
}

// orphanRoot gives a subvolume its orphan item.
func (m *image) orphanRoot(id uint64) {
	m.add(rootTree, key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, id), nil)
}

// again gives ino a name in dir that another inode has there.
func (m *image) again(name string, ino uint64, ft uint8) {
	const index = 90
	ref := format.InodeRef{Index: index, Name: name}
	m.add(fsTree, key(ino, format.INODE_REF_KEY, dirIno), enc(ref.Size(), ref))
	d := format.DirItem{Location: inodeKey(ino), Transid: 1, Type: ft, Name: name}
	k := key(dirIno, format.DIR_ITEM_KEY, format.NameHash(name))
	n := m.block(m.leafOf(fsTree, k))
	slot, found := n.Search(k)
	if !found {
		m.t.Fatalf("no name %q", name)
	}
	both := append(slices.Clone(n.Item(slot)), enc(d.Size(), &d)...)
	m.del(fsTree, k)
	m.add(fsTree, k, both)
	m.add(fsTree, key(dirIno, format.DIR_INDEX_KEY, index), enc(d.Size(), &d))
	m.editInode(dirIno, func(i *format.InodeItem) { i.Size += 2 * uint64(len(name)) })
	m.editInode(ino, func(i *format.InodeItem) { i.Nlink++ })
}

// halfOrphan gives the orphan a file extent, and an inode item that says how many bytes it has.
func (m *image) halfOrphan(extent, nbytes uint64) {
	at := m.data0() + 24*blk
	m.fileExtent(orphan, 0, format.FileExtent{Type: format.FileExtentTypePrealloc, RAMBytes: extent, DiskBytenr: at, DiskNumBytes: extent, NumBytes: extent})
	m.dataExtent(at, extent, orphan, 0)
	m.editInode(orphan, func(i *format.InodeItem) { i.Size, i.Nbytes = 8*blk, nbytes })
	m.settle()
}

// orphanDir makes the orphan a directory that is being deleted: it has no size and no DIR_ITEM any
// more, and still the DIR_INDEX of a file that is gone. With item, the orphan item stays.
func (m *image) orphanDir(item bool) {
	m.editInode(orphan, func(i *format.InodeItem) { i.Mode, i.Size, i.Nbytes = format.S_IFDIR|0o755, 0, 0 })
	d := format.DirItem{Location: inodeKey(999), Transid: 1, Type: format.FtRegFile, Name: "bar"}
	m.add(fsTree, key(orphan, format.DIR_INDEX_KEY, 2), enc(d.Size(), &d))
	if !item {
		m.del(fsTree, key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, orphan))
	}
}

// TestRightAsItIs: what looks odd and that the kernel makes, or goes on with, is no damage.
func TestRightAsItIs(t *testing.T) {
	base := newImage(t)
	for _, c := range []struct {
		name string
		do   func(m *image)
	}{
		// btrfs-convert makes the tree for relocated data as a subvolume is made, with the
		// transaction in the key.
		{"converted from ext4", func(m *image) {
			m.rekey(rootTree, key(relocTree, format.ROOT_ITEM_KEY, 0), key(relocTree, format.ROOT_ITEM_KEY, 2))
		}},
		// Deleting an orphan takes transactions, and its inode item stays as it was until the last.
		{"an orphan whose last extents are gone", func(m *image) { m.halfOrphan(2*blk, 8*blk) }},
		{"an orphan whose extents are all gone", func(m *image) { m.editInode(orphan, func(i *format.InodeItem) { i.Size, i.Nbytes = 8*blk, 8*blk }) }},
		{"an orphan directory whose entries are half gone", func(m *image) { m.orphanDir(true) }},
		// The array is as long as it says; Linux leaves old bytes after its end.
		{"a superblock copy with bytes beyond the system chunk array", func(m *image) {
			p := m.read(format.SuperMirror(1), format.SuperSize)
			p[format.SysChunkArrayOffset+format.SysChunkArrayMax-1] = 1
			le.PutUint32(p, format.CRC32C(p[format.CsumField:]))
			m.write(format.SuperMirror(1), p)
		}},
		{"a superblock copy without the log's root", func(m *image) {
			p := m.read(format.SuperMirror(1), format.SuperSize)
			p[0x60], p[0x62], p[0x68], p[0xc8] = 0, 1, 1, 1
			le.PutUint32(p, format.CRC32C(p[format.CsumField:]))
			m.write(format.SuperMirror(1), p)
		}},
		{"an orphan item of an inode with a name", func(m *image) { m.add(fsTree, key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, fileIno), nil) }},
		{"an orphan item of an inode that is gone", func(m *image) { m.add(fsTree, key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, 999), nil) }},
		{"an orphan item of a subvolume that is gone", func(m *image) { m.orphanRoot(999) }},
		{"a subvolume that a mount will delete", func(m *image) {
			m.subvol(300, 70)
			m.rootItem(300, func(r *format.RootItem) { r.Refs = 0 })
			m.orphanRoot(300)
		}},
		{"one name in two directories", func(m *image) {
			m.link(deepIno, fileIno, "sym", 2, format.FtRegFile)
			m.editInode(fileIno, func(i *format.InodeItem) { i.Nlink++ })
		}},
		{"the head of an old free space cache", func(m *image) { m.add(rootTree, key(^uint64(0)-10, 0, 1<<20), make([]byte, 41)) }},
	} {
		m := base.clone(t)
		c.do(m)
		if r := m.check(); !r.Clean {
			t.Errorf("%s:\n%s", c.name, r.text())
		}
	}
}

// dupData gives the data chunk a second copy and returns the device offset of its stripe.
func (m *image) dupData() uint64 {
	m.t.Helper()
	ch := m.ch[2]
	second := m.ch[1].stripes[1].off + m.ch[1].length // after the last stripe of mkfs
	for _, c := range m.ch {
		for _, s := range c.stripes {
			second = max(second, s.off+c.length)
		}
	}
	if int64(second+ch.length) > m.dev.Size() {
		m.t.Fatalf("no room for a second data stripe at %d", second)
	}
	k := key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, ch.start)
	n := m.block(m.leafOf(chunkTree, k))
	slot, _ := n.Search(k)
	var c format.Chunk
	c.Decode(n.Item(slot))
	c.Type |= format.BlockGroupDup
	c.Stripes = append(c.Stripes, c.Stripes[0])
	c.Stripes[1].Offset = second
	m.del(chunkTree, k)
	m.add(chunkTree, k, enc(c.Size(), &c))
	d := format.DevExtent{ChunkTree: 3, ChunkObjectid: 256, ChunkOffset: ch.start, Length: ch.length}
	old := key(1, format.DEV_EXTENT_KEY, ch.stripes[0].off)
	m.edit(devTree, old, func(b []byte) {
		var first format.DevExtent
		first.Decode(b)
		d = first
	})
	m.add(devTree, key(1, format.DEV_EXTENT_KEY, second), enc(format.DevExtentSize, &d))
	m.edit(chunkTree, key(1, format.DEV_ITEM_KEY, 1), func(b []byte) { le.PutUint64(b[16:], le.Uint64(b[16:])+ch.length) })
	m.edit(extentTree, key(ch.start, format.BLOCK_GROUP_ITEM_KEY, ch.length), set64(16, format.BlockGroupData|format.BlockGroupDup))
	m.sb.DevItem.BytesUsed += ch.length
	m.super()
	m.write(second, m.read(ch.stripes[0].off, 32*blk))
	m.load()
	return second
}

// TestSecondCopies: a damage that only the second copy has is a damage. Of data whose first copy is
// whole every reader is content with that one, until the day on which it rots, too. The third
// superblock, at 256 GiB, is on large devices only.
func TestSecondCopies(t *testing.T) {
	m := newImage(t)
	second := m.dupData()
	if r := m.check(); !r.Clean {
		t.Fatalf("the sample with two copies of its data:\n%s", r.text())
	}
	for i, at := range []uint64{m.ch[2].stripes[0].off, second} {
		n := m.clone(t)
		n.write(at+2*blk+9, []byte("rot"))
		r := n.check()
		if want := fmt.Sprintf("mirror=%d device_offset=%d", i, at+2*blk); r.rules() != "[data.csum]" || len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Where(), want) {
			t.Errorf("copy %d is rotten: have %s want one data.csum at %s\n%s", i, r.rules(), want, r.text())
		}
		r, err := Check(m.tk, &faulty{m.dev, int64(at), int64(at) + 1}, Options{})
		if err != nil || r.rules() != "[data.read]" {
			t.Errorf("copy %d cannot be read: have %v %s want data.read\n%s", i, err, r.rules(), r.text())
		}
	}

	big := &image{t: t, tk: m.tk, dev: blockdev.NewMemory(257 << 30)}
	if err := mkfs.Make(big.tk, big.dev, mkfs.Options{FSID: id(1), DevUUID: id(2), ChunkTreeUUID: id(3), SubvolUUID: id(4)}); err != nil {
		t.Fatal(err)
	}
	if r := big.check(); !r.Clean {
		t.Fatalf("a device with three superblocks:\n%s", r.text())
	}
	for i := 1; i < format.SuperMirrorMax; i++ {
		n := &image{t: t, tk: big.tk, dev: big.dev.Snapshot()}
		n.write(format.SuperMirror(i)+0x12b, []byte("label"))
		r := n.check()
		if want := fmt.Sprintf("bytenr=%d", format.SuperMirror(i)); r.rules() != "[super.copy]" || !strings.Contains(r.Findings[0].Where(), want) {
			t.Errorf("copy %d of the superblock: have %s want super.copy at %s\n%s", i, r.rules(), want, r.text())
		}
	}
}

// TestExtentsAcrossLeaves: two file extents that overlap are found in one leaf by the tree checker,
// and in two leaves, where no block is wrong by itself, by the checker of files.
func TestExtentsAcrossLeaves(t *testing.T) {
	for _, c := range []struct {
		off   uint64
		rules string
	}{
		{4 * blk, "[]"}, // next to the one before
		{5 * blk, "[]"}, // after a hole
		{3 * blk, "[file.extent]"},
		{2*blk + 1<<12, "[file.extent]"},
	} {
		m := newImage(t)
		at := m.data0() + 20*blk
		m.fileExtent(subIno, c.off, format.FileExtent{Type: format.FileExtentTypeReg, RAMBytes: blk, DiskBytenr: at, DiskNumBytes: blk, NumBytes: blk})
		m.dataExtent(at, blk, subIno, c.off)
		m.editInode(subIno, func(i *format.InodeItem) { i.Size, i.Nbytes = 8*blk, 3*blk })
		// The leaves are cut between the two extents.
		root := m.block(m.root(fsTree))
		left, right := m.block(root.Blockptr(0)), m.block(root.Blockptr(1))
		l := append(items(left), items(right)...)
		cut := slices.IndexFunc(l, func(x item) bool { return x.k == key(subIno, format.EXTENT_DATA_KEY, c.off) })
		fill(left, l[:cut])
		fill(right, l[cut:])
		m.put(left)
		m.put(right)
		m.node(root.Bytenr(), func(n format.Node) { n.SetKey(1, l[cut].k) })
		m.settle()
		r := m.check()
		if r.rules() != c.rules {
			t.Errorf("an extent from %d on after one that ends at %d: have %s want %s\n%s", c.off, 4*blk, r.rules(), c.rules, r.text())
		}
	}
}

// faulty fails reads that touch a range.
type faulty struct {
	blockdev.Device
	start, end int64
}

func (f *faulty) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Off < f.end && b.Off+int64(b.Len()) > f.start {
		b.Err = errors.New("input/output error")
		b.EndIO(t, b)
		return
	}
	f.Device.Submit(t, b)
}

func TestUnreadablePlaces(t *testing.T) {
	m := newImage(t)
	for _, c := range []struct {
		at   uint64
		want string
	}{
		{m.copies(m.root(fsTree))[1], "[device.read]"},
		{m.copies(m.data0())[0], "[data.read]"},
		{format.SuperMirror(1), "[device.read]"},
	} {
		r, err := Check(m.tk, &faulty{m.dev, int64(c.at), int64(c.at) + 1}, Options{})
		if err != nil || r.rules() != c.want {
			t.Errorf("unreadable at %d: have %v %s want %s\n%s", c.at, err, r.rules(), c.want, r.text())
		}
	}
	if _, err := Check(m.tk, &faulty{m.dev, format.SuperOffset, format.SuperOffset + 1}, Options{}); err == nil {
		t.Error("unreadable superblock: no error")
	}
}

// TestTruncatedImage: an image cut short is said to be so, not taken apart into hundreds of
// findings.
func TestTruncatedImage(t *testing.T) {
	m := newImage(t)
	for _, size := range []int64{0, 4096, format.SuperOffset + 100, m.dev.Size() / 2, m.dev.Size() - 4096} {
		short := blockdev.NewMemory(size)
		for off := int64(0); off < size; off += 1 << 20 {
			p := m.read(uint64(off), int(min(1<<20, size-off)))
			if err := blockdev.Write(m.tk, short, p, off); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Check(m.tk, short, Options{})
		if err != nil || r.rules() != "[super.bad]" {
			t.Errorf("%d bytes: have %v %s", size, err, r.text())
		}
	}
}

func TestProgress(t *testing.T) {
	m := newImage(t)
	var phases []string
	var blocks, data uint64
	r, err := Check(m.tk, m.dev, Options{Progress: func(phase string, done, total uint64) {
		if len(phases) == 0 || phases[len(phases)-1] != phase {
			phases = append(phases, phase)
		}
		if phase == "data" {
			data = done
		} else {
			blocks = done
		}
		if total != 0 && done > total {
			t.Errorf("%s: %d of %d", phase, done, total)
		}
	}})
	if err != nil || !r.Clean {
		t.Fatal(err, r.text())
	}
	const want = "[superblock chunks roots extents free space checksums files references"
	if got := fmt.Sprint(phases); !strings.HasPrefix(got, want) {
		t.Errorf("phases: have %s want %s...", got, want)
	}
	if blocks != r.Stats.TreeBlocks || data != 0 && data != r.Stats.DataBytes {
		t.Errorf("last calls: %d blocks, %d bytes; want %+v", blocks, data, r.Stats)
	}
	if r, err := Check(m.tk, m.dev, Options{NoData: true}); err != nil || !r.Clean || r.Stats.DataBytes != 0 {
		t.Errorf("without data: %v %+v", err, r)
	}
}

func TestUnsupportedIsAnError(t *testing.T) {
	m := newImage(t)
	m.sb.IncompatFlags |= format.IncompatZoned
	m.super()
	_, err := Check(m.tk, m.dev, Options{})
	var u *format.UnsupportedError
	if !errors.As(err, &u) || !strings.Contains(err.Error(), "zoned") {
		t.Errorf("have %v want unsupported zoned", err)
	}
}

// TestFreeSpaceBitmaps: the same free space told by bitmaps is as good.
func TestFreeSpaceBitmaps(t *testing.T) {
	m := newImage(t)
	ch := m.ch[2]
	var l []item
	old := items(m.block(m.root(freeTree)))
	bitmap := make([]byte, ch.length/blk/8)
	count := uint32(0)
	for _, it := range old {
		if it.k.Objectid < ch.start {
			l = append(l, it)
			continue
		}
		if it.k.Type == format.FREE_SPACE_EXTENT_KEY {
			count++
			for a := it.k.Objectid; a < it.k.Objectid+it.k.Offset; a += blk {
				i := (a - ch.start) / blk
				bitmap[i/8] |= 1 << (i % 8)
			}
		}
	}
	info := format.FreeSpaceInfo{ExtentCount: count, Flags: format.FreeSpaceUsingBitmaps}
	l = append(l, item{key(ch.start, format.FREE_SPACE_INFO_KEY, ch.length), enc(8, &info)})
	l = append(l, item{key(ch.start, format.FREE_SPACE_BITMAP_KEY, ch.length), bitmap})
	if len(bitmap) != format.FreeSpaceBitmapSize {
		t.Fatalf("the data chunk needs %d bytes of bitmap", len(bitmap))
	}
	n := m.block(m.root(freeTree))
	fill(n, l)
	m.put(n)
	if r := m.check(); !r.Clean {
		t.Fatalf("bitmaps:\n%s", r.text())
	}
	m.edit(freeTree, key(ch.start, format.FREE_SPACE_BITMAP_KEY, ch.length), func(b []byte) { b[0] ^= 1 })
	if r := m.check(); r.rules() != "[free_space.range]" {
		t.Fatalf("a bit flipped:\n%s", r.text())
	}
}

// TestSampleAgainstBtrfsCheck: btrfs check agrees that the sample is clean, so the rules are tried
// on a real file system.
func TestSampleAgainstBtrfsCheck(t *testing.T) {
	need.All(t, "btrfs")
	m := newImage(t)
	path := filepath.Join(t.TempDir(), "image")
	d, err := blockdev.Create(path, m.dev.Size())
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(0); off < m.dev.Size(); off += 1 << 20 {
		p := m.read(uint64(off), 1<<20)
		if bytes.IndexFunc(p, func(r rune) bool { return r != 0 }) < 0 {
			continue
		}
		if err := blockdev.Write(m.tk, d, p, off); err != nil {
			t.Fatal(err)
		}
	}
	d.Close()
	out, err := exec.Command("btrfs", "check", "--check-data-csum", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "no error found") {
		t.Errorf("btrfs check: %v\n%s", err, out)
	}
}

// link4 gives the symbolic link, whose size is 4, another inline extent.
func (m *image) link4(inline string) {
	m.del(fsTree, key(symIno, format.EXTENT_DATA_KEY, 0))
	m.fileExtent(symIno, 0, format.FileExtent{RAMBytes: uint64(len(inline)), Inline: []byte(inline)})
	m.editInode(symIno, func(i *format.InodeItem) { i.Nbytes = uint64(len(inline)) })
}

// TestReadonly: a read-only subvolume whose flags count breaks no rule, nor does a writable one
// whose flags do not.
func TestReadonly(t *testing.T) {
	for _, c := range []struct{ flags, inode uint64 }{{format.RootSubvolReadonly, format.InodeRootItemInit}, {0, 0}, {0, format.InodeRootItemInit}} {
		m := newImage(t)
		m.rootItem(fsTree, func(r *format.RootItem) { r.Flags, r.Inode.Flags = c.flags, c.inode })
		if r := m.check(); !r.Clean {
			t.Errorf("flags %#x, inode flags %#x:\n%s", c.flags, c.inode, r.text())
		}
	}
}

// TestLinkNul: the NUL that mkfs.btrfs --rootdir stores after a target is beyond i_size and worth a
// note. Linux and btrfs check take it.
func TestLinkNul(t *testing.T) {
	m := newImage(t)
	m.link4("file\x00")
	r := m.check()
	if !r.Clean || !strings.Contains(r.text(), "has 1 symbolic links with a NUL") {
		t.Errorf("have\n%swant a note", r.text())
	}
}

package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/format"
)

// More damage, of kinds that a rule must tell apart: a value that is wrong in one of two fields, on
// one side of a border, in the second leaf of a tree, or in an item that others repeat.

// leaf2 cuts the only leaf of a tree in two under a new root, between the items before and from k
// on. at and at+1 are free metadata blocks, as m.meta counts them.
func (m *image) leaf2(tree uint64, k format.Key, at uint64) {
	m.t.Helper()
	left := m.block(m.root(tree))
	if left.Level() != 0 {
		m.t.Fatalf("tree %d has level %d", int64(tree), left.Level())
	}
	where := m.meta
	if tree == chunkTree {
		where = func(i uint64) uint64 { return m.ch[0].start + i*uint64(m.sb.NodeSize) }
	}
	right, root := make(format.Node, m.sb.NodeSize), make(format.Node, m.sb.NodeSize)
	for i, n := range []format.Node{right, root} {
		n.InitHeader(m.sb.FSID, left.ChunkTreeUUID(), where(at+uint64(i)), left.Generation(), tree, i)
		n.SetWritten(true)
		m.treeExtent(n.Bytenr(), uint64(i), tree)
	}
	left = m.block(m.root(tree)) // the extent tree has two items more
	l := items(left)
	cut := slices.IndexFunc(l, func(x item) bool { return !x.k.Less(k) })
	fill(right, l[cut:])
	fill(left, l[:cut])
	root.SetNritems(2)
	for i, n := range []format.Node{left, right} {
		root.SetKey(i, n.Key(0))
		root.SetBlockptr(i, n.Bytenr())
		root.SetPtrGeneration(i, n.Generation())
	}
	m.put(left)
	m.put(right)
	m.put(root)
	m.rootItem(tree, func(r *format.RootItem) { r.Bytenr, r.Level = root.Bytenr(), 1 })
}

// subvol makes an empty subvolume, without a link.
func (m *image) subvol(id, at uint64) {
	n := make(format.Node, m.sb.NodeSize)
	old := m.block(m.root(fsTree))
	n.InitHeader(m.sb.FSID, old.ChunkTreeUUID(), m.meta(at), 1, id, 0)
	n.SetWritten(true)
	dir := format.InodeItem{Generation: 1, Transid: 1, Nlink: 1, Mode: format.S_IFDIR | 0o755}
	dots := format.InodeRef{Name: ".."}
	fill(n, []item{{inodeKey(256), enc(format.InodeItemSize, &dir)}, {key(256, format.INODE_REF_KEY, 256), enc(dots.Size(), dots)}})
	m.put(n)
	m.treeExtent(n.Bytenr(), 0, id)
	r := format.RootItem{Generation: 1, GenerationV2: 1, Bytenr: n.Bytenr(), RootDirid: 256, Refs: 1, BytesUsed: uint64(m.sb.NodeSize)}
	m.add(rootTree, key(id, format.ROOT_ITEM_KEY, 0), enc(format.RootItemSize, &r))
	m.settle()
}

// linkSubvol gives a subvolume its link from the root directory.
func (m *image) linkSubvol(id uint64, name string) {
	ref := format.RootRef{Dirid: 256, Sequence: 20, Name: name}
	m.linkRoots(fsTree, id, ref)
	d := format.DirItem{Location: key(id, format.ROOT_ITEM_KEY, ^uint64(0)), Transid: 1, Type: format.FtDir, Name: name}
	m.add(fsTree, key(256, format.DIR_ITEM_KEY, format.NameHash(name)), enc(d.Size(), &d))
	m.add(fsTree, key(256, format.DIR_INDEX_KEY, 20), enc(d.Size(), &d))
	m.editInode(256, func(i *format.InodeItem) { i.Size += 2 * uint64(len(name)) })
}

// linkRoots gives a subvolume both ends of a link in the root tree.
func (m *image) linkRoots(parent, child uint64, ref format.RootRef) {
	p := enc(format.RootRefSize+len(ref.Name), &ref)
	m.add(rootTree, key(parent, format.ROOT_REF_KEY, child), p)
	m.add(rootTree, key(child, format.ROOT_BACKREF_KEY, parent), p)
}

func TestDamageByOne(t *testing.T) {
	base := newImage(t)
	d := base.data0()
	chunkKey := func(m *image, i int) format.Key {
		return key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, m.ch[i].start)
	}
	group := func(m *image, i int) format.Key {
		return key(m.ch[i].start, format.BLOCK_GROUP_ITEM_KEY, m.ch[i].length)
	}
	info := func(m *image, i int) format.Key {
		return key(m.ch[i].start, format.FREE_SPACE_INFO_KEY, m.ch[i].length)
	}
	csums := func(m *image, at uint64, n int) { // right ones, of what lies there
		b := make([]byte, 4*n)
		for i := range n {
			le.PutUint32(b[4*i:], format.CRC32C(m.read(m.copies(at)[0]+uint64(i)*blk, blk)))
		}
		m.add(csumTree, key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, at), b)
	}
	inodeMode := func(m *image, ino uint64, mode uint32, ft uint8, name string, index uint64) {
		m.editInode(ino, func(i *format.InodeItem) { i.Mode = mode })
		for _, k := range []format.Key{key(dirIno, format.DIR_ITEM_KEY, format.NameHash(name)), key(dirIno, format.DIR_INDEX_KEY, index)} {
			m.edit(fsTree, k, func(b []byte) { b[29] = ft })
		}
	}
	movePre := func(m *image, at, length uint64) {
		m.fileExtentEdit(preIno, 0, func(fe *format.FileExtent) {
			fe.DiskBytenr, fe.DiskNumBytes, fe.RAMBytes, fe.NumBytes = at, length, length, length
		})
		m.editInode(preIno, func(i *format.InodeItem) { i.Nbytes = length })
	}
	for _, c := range []struct {
		name  string
		rules string
		do    func(m *image)
	}{
		{"system chunk in the array only", "chunk.dev_extent group.chunk super.sys_array", func(m *image) {
			size := format.KeySize + format.ChunkSize(format.ChunkStripes(m.sb.SysChunkArray[format.KeySize:]))
			more := slices.Clone(m.sb.SysChunkArray[:size])
			le.PutUint64(more[9:], 1<<40) // the key's offset
			for i := range format.ChunkStripes(more[format.KeySize:]) {
				le.PutUint64(more[format.KeySize+format.ChunkHeaderSize+i*format.StripeSize+8:], uint64(150+8*i)<<20)
			}
			m.sb.SysChunkArray = append(m.sb.SysChunkArray, more...)
			m.super()
		}},
		{"system chunk in the tree only", "extent.group super.sys_array", func(m *image) {
			m.edit(chunkTree, chunkKey(m, 2), set64(24, format.BlockGroupSystem))
			m.edit(extentTree, group(m, 2), set64(16, format.BlockGroupSystem))
		}},
		{"stripe on a device of another uuid", "chunk.item", func(m *image) {
			m.edit(chunkTree, chunkKey(m, 2), func(b []byte) { b[format.ChunkHeaderSize+16] ^= 1 })
		}},
		{"stripe on another devid", "chunk.item", func(m *image) {
			m.edit(chunkTree, chunkKey(m, 2), set64(format.ChunkHeaderSize, 2))
		}},
		{"dev extent of another chunk", "chunk.dev_extent", func(m *image) {
			m.edit(devTree, key(1, format.DEV_EXTENT_KEY, m.ch[2].stripes[0].off), set64(16, m.ch[1].start))
		}},
		{"dev extent of another length", "chunk.dev_extent dev.bytes_used", func(m *image) {
			m.edit(devTree, key(1, format.DEV_EXTENT_KEY, m.ch[2].stripes[0].off), set64(24, m.ch[2].length-1<<20))
		}},
		{"dev extents overlap in two leaves", "chunk.dev_extent dev.bytes_used dev.overlap", func(m *image) {
			last := m.ch[2].stripes[0].off
			m.leaf2(devTree, key(1, format.DEV_EXTENT_KEY, last), 60)
			m.settle()
			before := m.ch[1].stripes[1].off
			if before+m.ch[1].length != last {
				m.t.Fatalf("the data stripe at %d does not follow the metadata stripe at %d", last, before)
			}
			m.edit(devTree, key(1, format.DEV_EXTENT_KEY, before), set64(24, m.ch[1].length+blk))
		}},
		{"dev extent that ends beyond the device", "dev.bytes_used dev.extent dev.overlap", func(m *image) {
			x := format.DevExtent{ChunkTree: 3, ChunkObjectid: 256, ChunkOffset: 1 << 40, Length: 1 << 20}
			m.add(devTree, key(1, format.DEV_EXTENT_KEY, m.sb.TotalBytes-1<<20+blk), enc(format.DevExtentSize, &x))
		}},
		{"block group shorter than its chunk", "free_space.info free_space.range group.chunk", func(m *image) {
			k := group(m, 2)
			m.rekey(extentTree, k, key(k.Objectid, k.Type, k.Offset-blk))
		}},
		{"block group longer than its chunk", "free_space.info free_space.range group.chunk", func(m *image) {
			k := group(m, 2)
			m.rekey(extentTree, k, key(k.Objectid, k.Type, k.Offset+blk))
		}},
		{"extents overlap in two leaves", "extent.length extent.overlap free_space.info free_space.range group.used", func(m *image) {
			m.leaf2(extentTree, key(d+8*blk, 0, 0), 60)
			m.settle()
			m.rekey(extentTree, key(d, format.EXTENT_ITEM_KEY, 4*blk), key(d, format.EXTENT_ITEM_KEY, 9*blk))
		}},
		{"two windows and one reference", "extent.ref_missing", func(m *image) {
			m.fileExtentEdit(fileIno, 0, func(fe *format.FileExtent) { fe.NumBytes = 2 * blk })
			m.fileExtent(fileIno, 2*blk, format.FileExtent{Type: format.FileExtentTypeReg, RAMBytes: 4 * blk, DiskBytenr: d, DiskNumBytes: 4 * blk, Offset: 2 * blk, NumBytes: 2 * blk})
		}},
		{"data in the metadata group", "extent.group", func(m *image) {
			m.del(extentTree, key(d+16*blk, format.EXTENT_ITEM_KEY, 2*blk))
			m.dataExtent(m.meta(70), 2*blk, preIno, 0)
			movePre(m, m.meta(70), 2*blk)
			m.settle()
		}},
		{"file points at a tree block", "extent.ref_missing extent.type", func(m *image) {
			m.del(extentTree, key(d+16*blk, format.EXTENT_ITEM_KEY, 2*blk))
			movePre(m, m.root(csumTree), uint64(m.sb.NodeSize))
			m.settle()
		}},
		{"checksums of a tree block", "csum.extent", func(m *image) { csums(m, m.root(devTree), 4) }},
		{"checksums over the end of the data", "csum.extent", func(m *image) {
			m.del(csumTree, key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, d))
			csums(m, d, 5)
		}},
		{"checksums before the data", "csum.extent", func(m *image) { csums(m, d+7*blk, 5) }},
		{"no checksum of the last sector", "csum.missing", func(m *image) {
			m.del(csumTree, key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, d))
			csums(m, d, 3)
		}},
		{"extents in a group of bitmaps", "free_space.info", func(m *image) {
			m.edit(freeTree, info(m, 2), func(b []byte) { le.PutUint32(b[4:], format.FreeSpaceUsingBitmaps) })
		}},
		{"free space info of another length", "free_space.info", func(m *image) {
			k := info(m, 2)
			m.rekey(freeTree, k, key(k.Objectid, k.Type, k.Offset-blk))
		}},
		{"free space one sector too long", "free_space.range", func(m *image) {
			var last format.Key
			for _, k := range m.keys(m.root(freeTree)) {
				if k.Type == format.FREE_SPACE_EXTENT_KEY && k.Objectid < m.ch[2].start {
					last = k
				}
			}
			m.rekey(freeTree, last, key(last.Objectid, last.Type, last.Offset+blk))
		}},

		{"entries in a file", "inode.kind", func(m *image) {
			m.link(fileIno, inlineIn, "odd", 2, format.FtRegFile)
			m.editInode(inlineIn, func(i *format.InodeItem) { i.Nlink = 2 })
		}},
		{"data in a pipe", "inode.kind", func(m *image) { inodeMode(m, preIno, format.S_IFIFO|0o644, format.FtFifo, "pre", 5) }},
		{"index 1", "dir.index", func(m *image) {
			m.rekey(fsTree, key(dirIno, format.DIR_INDEX_KEY, 2), key(dirIno, format.DIR_INDEX_KEY, 1))
			m.edit(fsTree, key(inlineIn, format.INODE_REF_KEY, dirIno), set64(0, 1))
		}},
		{"index of the root's name for itself", "dir.ref", func(m *image) {
			m.edit(fsTree, key(256, format.INODE_REF_KEY, 256), set64(0, 1))
		}},
		{"name twice in its DIR_ITEM", "dir.item", func(m *image) {
			k := key(dirIno, format.DIR_ITEM_KEY, format.NameHash("nocow"))
			e := format.DirItem{Location: inodeKey(subIno), Transid: 1, Type: format.FtRegFile, Name: "nocow"}
			m.del(fsTree, k)
			m.add(fsTree, k, append(enc(e.Size(), &e), enc(e.Size(), &e)...))
			m.editInode(dirIno, func(i *format.InodeItem) { i.Size += 5 })
		}},
		{"name in two references", "dir.ref inode.nlink", func(m *image) {
			k := key(subIno, format.INODE_REF_KEY, dirIno)
			r := format.InodeRef{Index: 4, Name: "nocow"}
			m.del(fsTree, k)
			m.add(fsTree, k, append(enc(r.Size(), r), enc(r.Size(), r)...))
		}},
		{"inline extent of more than a sector", "file.inline", func(m *image) {
			k := key(inlineIn, format.EXTENT_DATA_KEY, 0)
			m.del(fsTree, k)
			m.fileExtent(inlineIn, 0, format.FileExtent{RAMBytes: blk + 1, Inline: make([]byte, blk+1)})
			m.editInode(inlineIn, func(i *format.InodeItem) { i.Size, i.Nbytes = blk+1, blk+1 })
		}},
		{"inline extent of a sector", "", func(m *image) {
			k := key(inlineIn, format.EXTENT_DATA_KEY, 0)
			m.del(fsTree, k)
			m.fileExtent(inlineIn, 0, format.FileExtent{RAMBytes: blk, Inline: make([]byte, blk)})
			m.editInode(inlineIn, func(i *format.InodeItem) { i.Size, i.Nbytes = blk, blk })
		}},

		{"subvolume", "", func(m *image) { m.subvol(300, 70); m.linkSubvol(300, "sub") }},
		{"two subvolumes, one without a name", "root.ref", func(m *image) { m.subvol(300, 70); m.linkSubvol(300, "sub"); m.subvol(301, 71) }},
		{"subvolume without a name", "root.ref", func(m *image) { m.subvol(300, 70) }},
		{"link to no subvolume", "root.ref", func(m *image) { m.linkSubvol(300, "sub") }},
		{"link in no subvolume", "root.ref", func(m *image) {
			m.subvol(300, 70)
			m.linkRoots(400, 300, format.RootRef{Dirid: 256, Sequence: 20, Name: "sub"})
		}},
		{"link in a subvolume that is being deleted", "root.ref", func(m *image) {
			m.subvol(300, 70)
			m.subvol(400, 71)
			m.rootItem(400, func(r *format.RootItem) { r.Refs = 0 })
			m.orphanRoot(400)
			m.linkRoots(400, 300, format.RootRef{Dirid: 256, Sequence: 20, Name: "sub"})
		}},
		{"link from one end only", "root.ref", func(m *image) {
			m.subvol(300, 70)
			m.linkSubvol(300, "sub")
			m.del(rootTree, key(300, format.ROOT_BACKREF_KEY, fsTree))
		}},
		{"root directory of another number", "root.item", func(m *image) { m.rootItem(fsTree, func(r *format.RootItem) { r.RootDirid = 6 }) }},
		{"root directory of a later number", "root.item", func(m *image) { m.rootItem(fsTree, func(r *format.RootItem) { r.RootDirid = 257 }) }},
		{"root of the top level without references", "root.item", func(m *image) { m.rootItem(fsTree, func(r *format.RootItem) { r.Refs = 0 }) }},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			m := base.clone(t)
			c.do(m)
			r := m.check()
			if want := fmt.Sprint(strings.Fields(c.rules)); r.rules() != want {
				t.Errorf("have %s want %s\n%s", r.rules(), want, r.text())
			}
			repaired(t, m, c.name)
		})
	}
}

// TestExplicitHoles: without NO_HOLES every byte below i_size has an item: the start of a file, its
// end, and all of one without any.
func TestExplicitHoles(t *testing.T) {
	sample := func() *image {
		m := newImage(t)
		m.sb.IncompatFlags &^= format.IncompatNoHoles
		m.super()
		m.fileExtent(subIno, 0, format.FileExtent{Type: format.FileExtentTypeReg, RAMBytes: 2 * blk, NumBytes: 2 * blk})
		return m
	}
	if r := sample().check(); !r.Clean {
		t.Fatalf("with its hole in an item, have:\n%s", r.text())
	}
	for _, c := range []struct {
		want string
		do   func(m *image)
	}{
		{"no file extent for 0..8192", func(m *image) { m.del(fsTree, key(subIno, format.EXTENT_DATA_KEY, 0)) }},
		{"no file extent for 4096..8192", func(m *image) {
			m.fileExtentEdit(subIno, 0, func(fe *format.FileExtent) { fe.RAMBytes, fe.NumBytes = blk, blk })
		}},
		{"no file extent for 16384..16385", func(m *image) { m.editInode(subIno, func(i *format.InodeItem) { i.Size++ }) }},
		{"no file extent for 0..5", func(m *image) {
			m.del(fsTree, key(inlineIn, format.EXTENT_DATA_KEY, 0))
			m.editInode(inlineIn, func(i *format.InodeItem) { i.Nbytes = 0 })
		}},
	} {
		m := sample()
		c.do(m)
		if r := m.check(); r.rules() != "[file.hole]" || !strings.Contains(r.text(), c.want) {
			t.Errorf("have %s want file.hole, %s\n%s", r.rules(), c.want, r.text())
		}
	}
}

// TestRottenSectors: the report names the sectors that are rotten, those between them are sound,
// and where in which file they lie, also when the file has the extent at another offset, and a part
// of it only.
func TestRottenSectors(t *testing.T) {
	m := newImage(t)
	d := m.data0()
	rot := func(sectors ...uint64) {
		for _, s := range sectors {
			m.write(m.copies(d)[0]+s*blk+17, []byte("rot"))
		}
	}
	// The file has sectors 1 to 3 of the extent, from 8 on.
	m.rekey(fsTree, key(fileIno, format.EXTENT_DATA_KEY, 0), key(fileIno, format.EXTENT_DATA_KEY, 8*blk))
	m.fileExtentEdit(fileIno, 8*blk, func(fe *format.FileExtent) { fe.Offset, fe.NumBytes = blk, 3*blk })
	m.editInode(fileIno, func(i *format.InodeItem) { i.Size, i.Nbytes = 11*blk, 3*blk })
	m.edit(extentTree, key(d, format.EXTENT_ITEM_KEY, 4*blk), set64(25+16, 7*blk))
	if r := m.check(); !r.Clean {
		t.Fatalf("the sample:\n%s", r.text())
	}
	rot(0, 2, 3)
	var have []string
	for _, f := range m.check().Findings {
		have = append(have, f.Rule+" "+f.Where())
	}
	at := func(s uint64) uint64 { return m.copies(d)[0] + s*blk }
	want := []string{
		fmt.Sprintf("data.csum logical=%d length=4096 mirror=0 device_offset=%d root=5 ino=%d file_offset=%d", d, at(0), fileIno, 7*blk),
		fmt.Sprintf("data.csum logical=%d length=8192 mirror=0 device_offset=%d root=5 ino=%d file_offset=%d", d+2*blk, at(2), fileIno, 9*blk),
	}
	if !slices.Equal(have, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// TestHalfDeletedSubvolume: a delete that was interrupted has dropped the start of the tree, and
// says how far it came. A mount goes on from there; nothing is wrong.
func TestHalfDeletedSubvolume(t *testing.T) {
	const sub, at = 300, 70
	m := newImage(t)
	m.subvol(sub, at)
	leaf := m.block(m.meta(at))
	root := make(format.Node, m.sb.NodeSize)
	root.InitHeader(m.sb.FSID, leaf.ChunkTreeUUID(), m.meta(at+1), 1, sub, 1)
	root.SetWritten(true)
	root.SetNritems(2)
	// The first leaf is gone, its place perhaps in use by others; the second one has inodes from
	// 300 on.
	root.SetKey(0, inodeKey(256))
	root.SetBlockptr(0, m.meta(at+2))
	root.SetPtrGeneration(0, 1)
	root.SetKey(1, inodeKey(300))
	root.SetBlockptr(1, leaf.Bytenr())
	root.SetPtrGeneration(1, 1)
	file := format.InodeItem{Generation: 1, Transid: 1, Nlink: 1, Mode: format.S_IFREG | 0o644}
	fill(leaf, []item{{inodeKey(300), enc(format.InodeItemSize, &file)}})
	m.put(leaf)
	m.put(root)
	m.treeExtent(root.Bytenr(), 1, sub)
	m.rootItem(sub, func(r *format.RootItem) {
		r.Bytenr, r.Level, r.Refs, r.DropProgress, r.DropLevel = root.Bytenr(), 1, 0, inodeKey(300), 1
	})
	m.orphanRoot(sub)
	m.settle()
	if r := m.check(); !r.Clean || !strings.Contains(r.text(), "subvolume 300 is being deleted") {
		t.Errorf("have:\n%s", r.text())
	}
	// Up to where the delete came, no further: what comes after must be there.
	m.rootItem(sub, func(r *format.RootItem) { r.DropProgress = inodeKey(299) })
	if r := m.check(); r.Clean {
		t.Error("a pointer after the progress of the delete leads nowhere, and nothing is found")
	}
}

// TestNamelessInode: an inode whose item and name are both gone has data left. A repair that makes
// the item anew gives it a link, so that it comes to lost+found: with none, an orphan item would
// have followed, and the next mount would have deleted the data. A file that was being deleted
// stays so.
func TestNamelessInode(t *testing.T) {
	m := newImage(t)
	item := func(k format.Key) []byte {
		n := m.block(m.leafOf(fsTree, k))
		slot, found := n.Search(k)
		if !found {
			t.Fatalf("no item %v", k)
		}
		return n.Item(slot)
	}
	of := map[uint64]bool{fileIno: true, preIno: true}
	m.add(fsTree, key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, preIno), nil)
	for _, k := range m.keys(m.root(fsTree)) {
		gone := of[k.Objectid] && (k.Type == format.INODE_ITEM_KEY || k.Type == format.INODE_REF_KEY)
		entry := false
		if k.Type == format.DIR_ITEM_KEY || k.Type == format.DIR_INDEX_KEY {
			list, err := format.DirItems(item(k))
			if err != nil {
				t.Fatal(err)
			}
			entry = of[list[0].Location.Objectid]
		}
		if gone || entry {
			m.del(fsTree, k)
		}
	}
	r := proposed(t, m)
	if !r.After.Clean {
		t.Fatalf("left %q\n%s", r.Left, r.After.text())
	}
	for ino, want := range map[uint64]uint32{fileIno: 1, preIno: 0} {
		var i format.InodeItem
		i.Decode(item(inodeKey(ino)))
		if i.Nlink != want {
			t.Errorf("inode %d has %d links, want %d: %q", ino, i.Nlink, want, r.Done)
		}
	}
}

package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// An image under test is edited item by item, with checksums made right again: what is left wrong
// is what the test is about.
type image struct {
	t   *testing.T
	tk  *sched.Task
	dev *blockdev.Memory
	sb  format.Super
	ch  []chunk
}

// item is one item of a leaf.
type item struct {
	k format.Key
	b []byte
}

const (
	gib      = 1 << 30
	fileIno  = 257
	dirIno   = 258
	inlineIn = 259
	symIno   = 260
	subIno   = 261
	preIno   = 262
	orphan   = 263
	deepIno  = 264
)

// id is a tree's number.
const (
	rootTree   = format.ROOT_TREE_OBJECTID
	extentTree = format.EXTENT_TREE_OBJECTID
	chunkTree  = format.CHUNK_TREE_OBJECTID
	devTree    = format.DEV_TREE_OBJECTID
	fsTree     = format.FS_TREE_OBJECTID
	csumTree   = format.CSUM_TREE_OBJECTID
	freeTree   = format.FREE_SPACE_TREE_OBJECTID
	relocTree  = format.DATA_RELOC_TREE_OBJECTID
)

func id(c byte) (u format.UUID) {
	for i := range u {
		u[i] = c
	}
	return
}

// newImage is a small file system with one of everything: the fs tree has two leaves below its
// root.
func newImage(t *testing.T) *image { return newImageWith(t, func(*mkfs.Options) {}) }

// newImageWith is the sample with other options of mkfs.
func newImageWith(t *testing.T, set func(o *mkfs.Options)) *image {
	t.Helper()
	m := &image{t: t, tk: sched.NewTask("test"), dev: blockdev.NewMemory(200 << 20)}
	o := mkfs.Options{FSID: id(1), DevUUID: id(2), ChunkTreeUUID: id(3), SubvolUUID: id(4), Now: time.Unix(1700000000, 0)}
	set(&o)
	if err := mkfs.Make(m.tk, m.dev, o); err != nil {
		t.Fatal(err)
	}
	m.load()
	m.populate()
	return m
}

// clone is an image with the same bytes.
func (m *image) clone(t *testing.T) *image {
	n := &image{t: t, tk: m.tk, dev: m.dev.Snapshot(), ch: m.ch}
	n.sb = m.sb
	n.sb.SysChunkArray = slices.Clone(m.sb.SysChunkArray)
	return n
}

func (m *image) read(off uint64, n int) []byte {
	p := make([]byte, n)
	if err := blockdev.Read(m.tk, m.dev, p, int64(off)); err != nil {
		m.t.Fatal(err)
	}
	return p
}

func (m *image) write(off uint64, p []byte) {
	if err := blockdev.Write(m.tk, m.dev, p, int64(off)); err != nil {
		m.t.Fatal(err)
	}
}

// load reads the superblock and the chunk map.
func (m *image) load() {
	m.sb.Decode(m.read(format.SuperOffset, format.SuperSize))
	c := &checker{t: m.tk, devs: []*device{{Device: m.dev, sb: m.sb}}, sb: m.sb, visited: map[uint64]uint32{}, roots: map[uint64]rootInfo{}, scratch: make([]byte, m.sb.NodeSize)}
	if err := c.checkChunks(); err != nil {
		m.t.Fatal(err)
	}
	m.ch = c.chunks
}

// super writes all superblock copies from m.sb.
func (m *image) super() {
	p := make([]byte, format.SuperSize)
	for i := range format.SuperMirrorMax {
		if off := format.SuperMirror(i); off+format.SuperSize <= uint64(m.dev.Size()) {
			m.sb.Bytenr = off
			m.sb.Encode(p)
			m.write(off, p)
		}
	}
}

func (m *image) copies(bytenr uint64) []uint64 {
	c := &checker{chunks: m.ch}
	ch := c.chunkAt(bytenr)
	if ch == nil {
		m.t.Fatalf("logical %d is in no chunk", bytenr)
	}
	var at []uint64
	for _, s := range ch.stripes {
		at = append(at, s.off+bytenr-ch.start)
	}
	return at
}

func (m *image) block(bytenr uint64) format.Node {
	return m.read(m.copies(bytenr)[0], int(m.sb.NodeSize))
}

// put writes a block, checksummed, to every mirror.
func (m *image) put(n format.Node) { m.putAt(n, n.Bytenr()) }

func (m *image) putAt(n format.Node, bytenr uint64) {
	n.UpdateCsum(format.CsumCRC32C)
	for _, off := range m.copies(bytenr) {
		m.write(off, n)
	}
}

// root is the bytenr of a tree's root block.
func (m *image) root(tree uint64) uint64 {
	switch tree {
	case rootTree:
		return m.sb.Root
	case chunkTree:
		return m.sb.ChunkRoot
	}
	for _, it := range items(m.block(m.sb.Root)) {
		if it.k.Objectid == tree && it.k.Type == format.ROOT_ITEM_KEY {
			var r format.RootItem
			r.Decode(it.b)
			return r.Bytenr
		}
	}
	m.t.Fatalf("no tree %d", tree)
	return 0
}

// leafOf is the leaf of the tree that has, or would have, the key.
func (m *image) leafOf(tree uint64, k format.Key) uint64 {
	b := m.root(tree)
	for n := m.block(b); n.Level() > 0; n = m.block(b) {
		slot, found := n.Search(k)
		if !found && slot > 0 {
			slot--
		}
		b = n.Blockptr(slot)
	}
	return b
}

func items(n format.Node) []item {
	var l []item
	for i := range n.Nritems() {
		l = append(l, item{n.Key(i), slices.Clone(n.Item(i))})
	}
	return l
}

func fill(n format.Node, l []item) {
	end := format.LeafDataSize(len(n))
	clear(n[format.HeaderSize:])
	n.SetNritems(len(l))
	for i, it := range l {
		end -= len(it.b)
		n.SetKey(i, it.k)
		n.SetItemOffset(i, end)
		n.SetItemSize(i, len(it.b))
		copy(n.Item(i), it.b)
	}
}

// add puts an item into its leaf.
func (m *image) add(tree uint64, k format.Key, b []byte) {
	n := m.block(m.leafOf(tree, k))
	l := append(items(n), item{k, b})
	slices.SortFunc(l, func(x, y item) int { return x.k.Compare(y.k) })
	fill(n, l)
	m.put(n)
}

// del removes an item.
func (m *image) del(tree uint64, k format.Key) {
	n := m.block(m.leafOf(tree, k))
	l := items(n)
	i := slices.IndexFunc(l, func(x item) bool { return x.k == k })
	if i < 0 {
		m.t.Fatalf("no item %v in tree %d", k, int64(tree))
	}
	fill(n, slices.Delete(l, i, i+1))
	m.put(n)
}

// edit changes an item in place.
func (m *image) edit(tree uint64, k format.Key, f func(b []byte)) {
	n := m.block(m.leafOf(tree, k))
	slot, found := n.Search(k)
	if !found {
		m.t.Fatalf("no item %v in tree %d", k, int64(tree))
	}
	f(n.Item(slot))
	m.put(n)
}

func (m *image) find(tree uint64, objectid uint64, typ uint8) format.Key {
	for _, k := range m.keys(m.root(tree)) {
		if k.Objectid == objectid && k.Type == typ {
			return k
		}
	}
	m.t.Fatalf("no item %d of type %d in tree %d", objectid, typ, int64(tree))
	return format.Key{}
}

func (m *image) keys(bytenr uint64) []format.Key {
	n := m.block(bytenr)
	var l []format.Key
	for i := range n.Nritems() {
		if n.Level() > 0 {
			l = append(l, m.keys(n.Blockptr(i))...)
		} else {
			l = append(l, n.Key(i))
		}
	}
	return l
}

type encoder interface{ Encode([]byte) }

func enc(size int, e encoder) []byte {
	b := make([]byte, size)
	e.Encode(b)
	return b
}

func key(o uint64, t uint8, off uint64) format.Key {
	return format.Key{Objectid: o, Type: t, Offset: off}
}

func (m *image) inode(ino uint64, i format.InodeItem) {
	i.Generation, i.Transid = 1, 1
	m.add(fsTree, key(ino, format.INODE_ITEM_KEY, 0), enc(format.InodeItemSize, &i))
}

// link makes the three records of a name, and lengthens the directory.
func (m *image) link(dir, ino uint64, name string, index uint64, ft uint8) {
	r := format.InodeRef{Index: index, Name: name}
	k := key(ino, format.INODE_REF_KEY, dir)
	n := m.block(m.leafOf(fsTree, k))
	if slot, found := n.Search(k); found {
		old := slices.Clone(n.Item(slot))
		m.del(fsTree, k)
		m.add(fsTree, k, append(old, enc(r.Size(), r)...))
	} else {
		m.add(fsTree, k, enc(r.Size(), r))
	}
	d := format.DirItem{Location: key(ino, format.INODE_ITEM_KEY, 0), Transid: 1, Type: ft, Name: name}
	m.add(fsTree, key(dir, format.DIR_ITEM_KEY, format.NameHash(name)), enc(d.Size(), &d))
	m.add(fsTree, key(dir, format.DIR_INDEX_KEY, index), enc(d.Size(), &d))
	m.editInode(dir, func(i *format.InodeItem) { i.Size += 2 * uint64(len(name)) })
}

func (m *image) editInode(ino uint64, f func(i *format.InodeItem)) {
	m.edit(fsTree, key(ino, format.INODE_ITEM_KEY, 0), func(b []byte) {
		var i format.InodeItem
		i.Decode(b)
		f(&i)
		i.Encode(b)
	})
}

// dataExtent puts an extent item with one file reference into the extent tree.
func (m *image) dataExtent(bytenr, length, ino, start uint64) {
	b := make([]byte, format.ExtentItemSize+format.InlineRefSize(format.EXTENT_DATA_REF_KEY))
	e := format.ExtentItem{Refs: 1, Generation: 1, Flags: format.ExtentFlagData}
	e.Encode(b)
	r := format.InlineRef{Type: format.EXTENT_DATA_REF_KEY, Data: format.ExtentDataRef{DataRef: format.DataRef{Root: fsTree, Ino: format.Ino(ino), Offset: format.FileOff(start)}, Count: 1}}
	r.Encode(b[format.ExtentItemSize:])
	m.add(extentTree, key(bytenr, format.EXTENT_ITEM_KEY, length), b)
}

func (m *image) treeExtent(bytenr uint64, level uint64, root uint64) {
	b := make([]byte, format.ExtentItemSize+format.InlineRefSize(format.TREE_BLOCK_REF_KEY))
	e := format.ExtentItem{Refs: 1, Generation: 1, Flags: format.ExtentFlagTreeBlock}
	e.Encode(b)
	r := format.InlineRef{Type: format.TREE_BLOCK_REF_KEY, Offset: root}
	r.Encode(b[format.ExtentItemSize:])
	m.add(extentTree, key(bytenr, format.METADATA_ITEM_KEY, level), b)
}

func (m *image) fileExtent(ino, off uint64, fe format.FileExtent) {
	fe.Generation = 1
	m.add(fsTree, key(ino, format.EXTENT_DATA_KEY, off), enc(fe.Size(), &fe))
}

// data0 is where the data chunk starts, meta a metadata block that mkfs has left free.
func (m *image) data0() uint64 { return m.ch[2].start }

func (m *image) meta(i uint64) uint64 {
	made := uint64(8) // by mkfs
	if m.sb.CompatROFlags&format.CompatROBlockGroupTree != 0 {
		made++
	}
	return m.ch[1].start + (made+i)*uint64(m.sb.NodeSize)
}

const blk = format.SectorSize

// populate makes the files.
func (m *image) populate() {
	m.inode(fileIno, format.InodeItem{Size: 4 * blk, Nbytes: 4 * blk, Nlink: 2, Mode: format.S_IFREG | 0o644})
	m.link(256, fileIno, "file", 2, format.FtRegFile)
	m.link(256, fileIno, "hard", 3, format.FtRegFile)
	d := m.data0()
	m.fileExtent(fileIno, 0, format.FileExtent{Type: format.FileExtentTypeReg, RAMBytes: 4 * blk, DiskBytenr: d, DiskNumBytes: 4 * blk, NumBytes: 4 * blk})
	m.dataExtent(d, 4*blk, fileIno, 0)
	content := make([]byte, 4*blk)
	for i := range content {
		content[i] = byte(i * 7)
	}
	m.write(m.copies(d)[0], content)
	sums := make([]byte, 16)
	for i := range 4 {
		le.PutUint32(sums[4*i:], format.CRC32C(content[i*blk:(i+1)*blk]))
	}
	m.add(csumTree, key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, d), sums)

	m.inode(dirIno, format.InodeItem{Nlink: 1, Mode: format.S_IFDIR | 0o755})
	m.link(256, dirIno, "dir", 4, format.FtDir)

	m.inode(inlineIn, format.InodeItem{Size: 5, Nbytes: 5, Nlink: 1, Mode: format.S_IFREG | 0o644})
	m.link(dirIno, inlineIn, "inline", 2, format.FtRegFile)
	m.fileExtent(inlineIn, 0, format.FileExtent{RAMBytes: 5, Inline: []byte("hello")})

	m.inode(symIno, format.InodeItem{Size: 4, Nbytes: 4, Nlink: 1, Mode: format.S_IFLNK | 0o777})
	m.link(dirIno, symIno, "sym", 3, format.FtSymlink)
	m.fileExtent(symIno, 0, format.FileExtent{RAMBytes: 4, Inline: []byte("file")})

	// No checksums, an extent used in part, and a hole.
	m.inode(subIno, format.InodeItem{Size: 4 * blk, Nbytes: 2 * blk, Nlink: 1, Mode: format.S_IFREG | 0o644, Flags: format.InodeNoDataSum | format.InodeNoDataCow})
	m.link(dirIno, subIno, "nocow", 4, format.FtRegFile)
	m.fileExtent(subIno, 2*blk, format.FileExtent{Type: format.FileExtentTypeReg, RAMBytes: 4 * blk, DiskBytenr: d + 8*blk, DiskNumBytes: 4 * blk, Offset: blk, NumBytes: 2 * blk})
	m.dataExtent(d+8*blk, 4*blk, subIno, blk)

	m.inode(preIno, format.InodeItem{Size: 0, Nbytes: 2 * blk, Nlink: 1, Mode: format.S_IFREG | 0o644, Flags: format.InodePrealloc})
	m.link(dirIno, preIno, "pre", 5, format.FtRegFile)
	m.fileExtent(preIno, 0, format.FileExtent{Type: format.FileExtentTypePrealloc, RAMBytes: 2 * blk, DiskBytenr: d + 16*blk, DiskNumBytes: 2 * blk, NumBytes: 2 * blk})
	m.dataExtent(d+16*blk, 2*blk, preIno, 0)

	m.inode(orphan, format.InodeItem{Mode: format.S_IFREG | 0o644})
	m.add(fsTree, key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, orphan), nil)

	m.inode(deepIno, format.InodeItem{Nlink: 1, Mode: format.S_IFDIR | 0o755})
	m.link(dirIno, deepIno, "deep", 6, format.FtDir)

	m.splitFS()
	m.settle()
}

// splitFS cuts the fs tree's leaf in two under a new root.
func (m *image) splitFS() {
	left := m.block(m.root(fsTree))
	l := items(left)
	half := slices.IndexFunc(l, func(x item) bool { return x.k.Objectid == inlineIn })
	right, root := make(format.Node, m.sb.NodeSize), make(format.Node, m.sb.NodeSize)
	for i, n := range []format.Node{right, root} {
		n.InitHeader(m.sb.FSID, left.ChunkTreeUUID(), m.meta(uint64(i)), 1, fsTree, i)
		n.SetWritten(true)
		m.treeExtent(n.Bytenr(), uint64(i), fsTree)
	}
	fill(right, l[half:])
	fill(left, l[:half])
	root.SetNritems(2)
	for i, n := range []format.Node{left, right} {
		root.SetKey(i, n.Key(0))
		root.SetBlockptr(i, n.Bytenr())
		root.SetPtrGeneration(i, 1)
	}
	m.edit(rootTree, key(fsTree, format.ROOT_ITEM_KEY, 0), func(b []byte) {
		var r format.RootItem
		r.Decode(b)
		r.Bytenr, r.Level, r.BytesUsed = root.Bytenr(), 1, 3*uint64(m.sb.NodeSize)
		r.Encode(b)
	})
	m.put(left)
	m.put(right)
	m.put(root)
}

// settle makes the block groups, the superblock and the free space tree agree with the extent
// items.
func (m *image) settle() {
	var exts []span
	for _, k := range m.keys(m.root(extentTree)) {
		switch k.Type {
		case format.EXTENT_ITEM_KEY:
			exts = append(exts, span{k.Objectid, k.Objectid + k.Offset})
		case format.METADATA_ITEM_KEY:
			exts = append(exts, span{k.Objectid, k.Objectid + uint64(m.sb.NodeSize)})
		}
	}
	var free []item
	m.sb.BytesUsed = 0
	for _, ch := range m.ch {
		var used uint64
		at := ch.start
		count := uint32(0)
		var own []item
		gap := func(to uint64) {
			if at < to {
				own = append(own, item{key(at, format.FREE_SPACE_EXTENT_KEY, to-at), nil})
				count++
			}
		}
		for _, e := range exts {
			if e.start < ch.start || e.start >= ch.start+ch.length {
				continue
			}
			used += e.end - e.start
			gap(e.start)
			at = e.end
		}
		gap(ch.start + ch.length)
		info := format.FreeSpaceInfo{ExtentCount: count}
		free = append(free, item{key(ch.start, format.FREE_SPACE_INFO_KEY, ch.length), enc(8, &info)})
		free = append(free, own...)
		m.edit((&checker{sb: m.sb}).groupTree(), key(ch.start, format.BLOCK_GROUP_ITEM_KEY, ch.length), func(b []byte) { le.PutUint64(b, used) })
		m.sb.BytesUsed += used
	}
	f := m.block(m.root(freeTree))
	fill(f, free)
	m.put(f)
	m.super()
}

// check runs the checker, also with as little memory as can be, which must find the same.
func (m *image) check() Result {
	m.t.Helper()
	bounded(m.t, m)
	r, err := Check(m.tk, m.dev, Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

func (r Result) text() string {
	s := ""
	for _, f := range r.Findings {
		s += "  " + f.String() + "\n"
	}
	for _, n := range r.Notes {
		s += "  note: " + n + "\n"
	}
	return s
}

func (r Result) rules() string {
	var l []string
	for _, f := range r.Findings {
		l = append(l, f.Rule)
	}
	slices.Sort(l)
	return fmt.Sprint(slices.Compact(l))
}

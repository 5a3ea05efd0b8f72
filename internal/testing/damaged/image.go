// Package damaged makes images with a damage, for the tests of the check and of the repair: a
// sample with one of everything, edited item by item, with checksums made right again; and the
// tables of damages that both begin with.
package damaged

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
)

// Image is an image under test, edited item by item, with checksums made right again: what is left
// wrong is what the test is about.
type Image struct {
	T      *testing.T
	Task   *sched.Task
	Dev    *blockdev.Memory
	Super  format.Super
	Chunks []chunk // ascending
}

// chunk is a chunk whose stripes are copies.
type chunk struct {
	Start, Length, Type uint64
	Stripes             []uint64 // offsets on the device
}

// span is a range of addresses.
type span struct{ start, end uint64 }

// Item is one item of a leaf.
type Item struct {
	K format.Key
	B []byte
}

const (
	gib      = 1 << 30
	FileIno  = 257
	DirIno   = 258
	InlineIn = 259
	symIno   = 260
	SubIno   = 261
	PreIno   = 262
	Orphan   = 263
	DeepIno  = 264
)

// The trees of the sample.
const (
	RootTree   = format.ROOT_TREE_OBJECTID
	ExtentTree = format.EXTENT_TREE_OBJECTID
	ChunkTree  = format.CHUNK_TREE_OBJECTID
	DevTree    = format.DEV_TREE_OBJECTID
	FsTree     = format.FS_TREE_OBJECTID
	CsumTree   = format.CSUM_TREE_OBJECTID
	FreeTree   = format.FREE_SPACE_TREE_OBJECTID
	RelocTree  = format.DATA_RELOC_TREE_OBJECTID
)

// UUID is one of sixteen bytes c.
func UUID(c byte) (u format.UUID) {
	for i := range u {
		u[i] = c
	}
	return
}

// NewImage is a small file system with one of everything: the fs tree has two leaves below its
// root.
func NewImage(t *testing.T) *Image { return NewImageWith(t, func(*mkfs.Options) {}) }

// NewImageWith is the sample with other options of mkfs.
func NewImageWith(t *testing.T, set func(o *mkfs.Options)) *Image {
	t.Helper()
	m := &Image{T: t, Task: sched.NewTask("test"), Dev: blockdev.NewMemory(200 << 20)}
	o := mkfs.Options{FSID: UUID(1), DevUUID: UUID(2), ChunkTreeUUID: UUID(3), SubvolUUID: UUID(4), Now: time.Unix(1700000000, 0)}
	set(&o)
	if err := mkfs.Make(m.Task, m.Dev, o); err != nil {
		t.Fatal(err)
	}
	m.Load()
	m.populate()
	return m
}

// Clone is an image with the same bytes.
func (m *Image) Clone(t *testing.T) *Image {
	n := &Image{T: t, Task: m.Task, Dev: m.Dev.Snapshot(), Chunks: m.Chunks}
	n.Super = m.Super
	n.Super.SysChunkArray = slices.Clone(m.Super.SysChunkArray)
	return n
}

// Read reads from the device.
func (m *Image) Read(off uint64, n int) []byte {
	p := make([]byte, n)
	if err := blockdev.Read(m.Task, m.Dev, p, int64(off)); err != nil {
		m.T.Fatal(err)
	}
	return p
}

// Write writes to the device.
func (m *Image) Write(off uint64, p []byte) {
	if err := blockdev.Write(m.Task, m.Dev, p, int64(off)); err != nil {
		m.T.Fatal(err)
	}
}

// Load reads the superblock and the chunk map.
func (m *Image) Load() {
	m.Super.Decode(m.Read(format.SuperOffset, format.SuperSize))
	m.Chunks = nil
	for a := m.Super.SysChunkArray; len(a) > 0; {
		b := a[format.KeySize:]
		n := format.ChunkSize(format.ChunkStripes(b))
		m.chunk(format.DecodeKey(a).Offset, b[:n])
		a = b[n:]
	}
	m.each(m.Super.ChunkRoot, func(k format.Key, b []byte) {
		if k.Type == format.CHUNK_ITEM_KEY {
			m.chunk(k.Offset, b)
		}
	})
}

// chunk puts a chunk into the map, in the place of the one that is there.
func (m *Image) chunk(start uint64, b []byte) {
	var c format.Chunk
	c.Decode(b)
	ch := chunk{Start: start, Length: c.Length, Type: c.Type}
	for _, s := range c.Stripes {
		ch.Stripes = append(ch.Stripes, s.Offset)
	}
	i, found := slices.BinarySearchFunc(m.Chunks, start, func(c chunk, at uint64) int { return cmp.Compare(c.Start, at) })
	if found {
		m.Chunks[i] = ch
	} else {
		m.Chunks = slices.Insert(m.Chunks, i, ch)
	}
}

// each calls f with the items below a block.
func (m *Image) each(bytenr uint64, f func(k format.Key, b []byte)) {
	n := m.Block(bytenr)
	for i := range n.Nritems() {
		if n.Level() > 0 {
			m.each(n.Blockptr(i), f)
		} else {
			f(n.Key(i), n.Item(i))
		}
	}
}

// PutSuper writes all superblock copies from m.sb.
func (m *Image) PutSuper() {
	p := make([]byte, format.SuperSize)
	for i := range format.SuperMirrorMax {
		if off := format.SuperMirror(i); off+format.SuperSize <= uint64(m.Dev.Size()) {
			m.Super.Bytenr = off
			m.Super.Encode(p)
			m.Write(off, p)
		}
	}
}

// Copies lists the offsets on the device of the byte at a logical address.
func (m *Image) Copies(bytenr uint64) (at []uint64) {
	for _, ch := range m.Chunks {
		if ch.Start <= bytenr && bytenr-ch.Start < ch.Length {
			for _, off := range ch.Stripes {
				at = append(at, off+bytenr-ch.Start)
			}
			return at
		}
	}
	m.T.Fatalf("logical %d is in no chunk", bytenr)
	return nil
}

// Block reads the first copy of a tree block.
func (m *Image) Block(bytenr uint64) format.Node {
	return m.Read(m.Copies(bytenr)[0], int(m.Super.NodeSize))
}

// Put writes a block, checksummed, to every mirror.
func (m *Image) Put(n format.Node) { m.putAt(n, n.Bytenr()) }

func (m *Image) putAt(n format.Node, bytenr uint64) {
	n.UpdateCsum(format.CsumCRC32C)
	for _, off := range m.Copies(bytenr) {
		m.Write(off, n)
	}
}

// Root is the bytenr of a tree's root block.
func (m *Image) Root(tree uint64) uint64 {
	switch tree {
	case RootTree:
		return m.Super.Root
	case ChunkTree:
		return m.Super.ChunkRoot
	}
	for _, it := range Items(m.Block(m.Super.Root)) {
		if it.K.Objectid == tree && it.K.Type == format.ROOT_ITEM_KEY {
			var r format.RootItem
			r.Decode(it.B)
			return r.Bytenr
		}
	}
	m.T.Fatalf("no tree %d", tree)
	return 0
}

// LeafOf is the leaf of the tree that has, or would have, the key.
func (m *Image) LeafOf(tree uint64, k format.Key) uint64 {
	b := m.Root(tree)
	for n := m.Block(b); n.Level() > 0; n = m.Block(b) {
		slot, found := n.Search(k)
		if !found && slot > 0 {
			slot--
		}
		b = n.Blockptr(slot)
	}
	return b
}

// Items lists the items of a leaf.
func Items(n format.Node) []Item {
	var l []Item
	for i := range n.Nritems() {
		l = append(l, Item{n.Key(i), slices.Clone(n.Item(i))})
	}
	return l
}

// Fill gives a leaf these items.
func Fill(n format.Node, l []Item) {
	end := format.LeafDataSize(len(n))
	clear(n[format.HeaderSize:])
	n.SetNritems(len(l))
	for i, it := range l {
		end -= len(it.B)
		n.SetKey(i, it.K)
		n.SetItemOffset(i, end)
		n.SetItemSize(i, len(it.B))
		copy(n.Item(i), it.B)
	}
}

// Add puts an item into its leaf.
func (m *Image) Add(tree uint64, k format.Key, b []byte) {
	n := m.Block(m.LeafOf(tree, k))
	l := append(Items(n), Item{k, b})
	slices.SortFunc(l, func(x, y Item) int { return x.K.Compare(y.K) })
	Fill(n, l)
	m.Put(n)
}

// Del removes an item.
func (m *Image) Del(tree uint64, k format.Key) {
	n := m.Block(m.LeafOf(tree, k))
	l := Items(n)
	i := slices.IndexFunc(l, func(x Item) bool { return x.K == k })
	if i < 0 {
		m.T.Fatalf("no item %v in tree %d", k, int64(tree))
	}
	Fill(n, slices.Delete(l, i, i+1))
	m.Put(n)
}

// Edit changes an item in place.
func (m *Image) Edit(tree uint64, k format.Key, f func(b []byte)) {
	n := m.Block(m.LeafOf(tree, k))
	slot, found := n.Search(k)
	if !found {
		m.T.Fatalf("no item %v in tree %d", k, int64(tree))
	}
	f(n.Item(slot))
	m.Put(n)
}

// Find is the first key of the object and type in a tree.
func (m *Image) Find(tree uint64, objectid uint64, typ uint8) format.Key {
	for _, k := range m.Keys(m.Root(tree)) {
		if k.Objectid == objectid && k.Type == typ {
			return k
		}
	}
	m.T.Fatalf("no item %d of type %d in tree %d", objectid, typ, int64(tree))
	return format.Key{}
}

// Keys lists the keys of the leaves below a block.
func (m *Image) Keys(bytenr uint64) []format.Key {
	n := m.Block(bytenr)
	var l []format.Key
	for i := range n.Nritems() {
		if n.Level() > 0 {
			l = append(l, m.Keys(n.Blockptr(i))...)
		} else {
			l = append(l, n.Key(i))
		}
	}
	return l
}

type encoder interface{ Encode([]byte) }

// Enc encodes e into size bytes.
func Enc(size int, e encoder) []byte {
	b := make([]byte, size)
	e.Encode(b)
	return b
}

// Key makes a key.
func Key(o uint64, t uint8, off uint64) format.Key {
	return format.Key{Objectid: o, Type: t, Offset: off}
}

// Inode adds an inode item to the top level.
func (m *Image) Inode(ino uint64, i format.InodeItem) {
	i.Generation, i.Transid = 1, 1
	m.Add(FsTree, Key(ino, format.INODE_ITEM_KEY, 0), Enc(format.InodeItemSize, &i))
}

// Link makes the three records of a name, and lengthens the directory.
func (m *Image) Link(dir, ino uint64, name string, index uint64, ft uint8) {
	r := format.InodeRef{Index: index, Name: name}
	k := Key(ino, format.INODE_REF_KEY, dir)
	n := m.Block(m.LeafOf(FsTree, k))
	if slot, found := n.Search(k); found {
		old := slices.Clone(n.Item(slot))
		m.Del(FsTree, k)
		m.Add(FsTree, k, append(old, Enc(r.Size(), r)...))
	} else {
		m.Add(FsTree, k, Enc(r.Size(), r))
	}
	d := format.DirItem{Location: Key(ino, format.INODE_ITEM_KEY, 0), Transid: 1, Type: ft, Name: name}
	m.Add(FsTree, Key(dir, format.DIR_ITEM_KEY, format.NameHash(name)), Enc(d.Size(), &d))
	m.Add(FsTree, Key(dir, format.DIR_INDEX_KEY, index), Enc(d.Size(), &d))
	m.EditInode(dir, func(i *format.InodeItem) { i.Size += 2 * uint64(len(name)) })
}

// EditInode changes an inode item of the top level.
func (m *Image) EditInode(ino uint64, f func(i *format.InodeItem)) {
	m.Edit(FsTree, Key(ino, format.INODE_ITEM_KEY, 0), func(b []byte) {
		var i format.InodeItem
		i.Decode(b)
		f(&i)
		i.Encode(b)
	})
}

// DataExtent puts an extent item with one file reference into the extent tree.
func (m *Image) DataExtent(bytenr, length, ino, start uint64) {
	b := make([]byte, format.ExtentItemSize+format.InlineRefSize(format.EXTENT_DATA_REF_KEY))
	e := format.ExtentItem{Refs: 1, Generation: 1, Flags: format.ExtentFlagData}
	e.Encode(b)
	r := format.InlineRef{Type: format.EXTENT_DATA_REF_KEY, Data: format.ExtentDataRef{DataRef: format.DataRef{Root: FsTree, Ino: format.Ino(ino), Offset: format.FileOff(start)}, Count: 1}}
	r.Encode(b[format.ExtentItemSize:])
	m.Add(ExtentTree, Key(bytenr, format.EXTENT_ITEM_KEY, length), b)
}

// TreeExtent puts an extent item with one reference of a tree into the extent tree.
func (m *Image) TreeExtent(bytenr uint64, level uint64, root uint64) {
	b := make([]byte, format.ExtentItemSize+format.InlineRefSize(format.TREE_BLOCK_REF_KEY))
	e := format.ExtentItem{Refs: 1, Generation: 1, Flags: format.ExtentFlagTreeBlock}
	e.Encode(b)
	r := format.InlineRef{Type: format.TREE_BLOCK_REF_KEY, Offset: root}
	r.Encode(b[format.ExtentItemSize:])
	m.Add(ExtentTree, Key(bytenr, format.METADATA_ITEM_KEY, level), b)
}

// FileExtent adds a file extent to an inode of the top level.
func (m *Image) FileExtent(ino, off uint64, fe format.FileExtent) {
	fe.Generation = 1
	m.Add(FsTree, Key(ino, format.EXTENT_DATA_KEY, off), Enc(fe.Size(), &fe))
}

// Data0 is where the data chunk starts, meta a metadata block that mkfs has left free.
func (m *Image) Data0() uint64 { return m.Chunks[2].Start }

// Meta is the logical address of a metadata block that mkfs has left free, the one after i others.
func (m *Image) Meta(i uint64) uint64 {
	made := uint64(8) // by mkfs
	if m.Super.CompatROFlags&format.CompatROBlockGroupTree != 0 {
		made++
	}
	return m.Chunks[1].Start + (made+i)*uint64(m.Super.NodeSize)
}

const Sector = format.SectorSize

// QgroupLevelShift makes the level of a qgroup into the upper part of its id.
const QgroupLevelShift = 48

var le = binary.LittleEndian

// populate makes the files.
func (m *Image) populate() {
	m.Inode(FileIno, format.InodeItem{Size: 4 * Sector, Nbytes: 4 * Sector, Nlink: 2, Mode: format.S_IFREG | 0o644})
	m.Link(256, FileIno, "file", 2, format.FtRegFile)
	m.Link(256, FileIno, "hard", 3, format.FtRegFile)
	d := m.Data0()
	m.FileExtent(FileIno, 0, format.FileExtent{Type: format.FileExtentTypeReg, RAMBytes: 4 * Sector, DiskBytenr: d, DiskNumBytes: 4 * Sector, NumBytes: 4 * Sector})
	m.DataExtent(d, 4*Sector, FileIno, 0)
	content := make([]byte, 4*Sector)
	for i := range content {
		content[i] = byte(i * 7)
	}
	m.Write(m.Copies(d)[0], content)
	sums := make([]byte, 16)
	for i := range 4 {
		le.PutUint32(sums[4*i:], format.CRC32C(content[i*Sector:(i+1)*Sector]))
	}
	m.Add(CsumTree, Key(format.EXTENT_CSUM_OBJECTID, format.EXTENT_CSUM_KEY, d), sums)

	m.Inode(DirIno, format.InodeItem{Nlink: 1, Mode: format.S_IFDIR | 0o755})
	m.Link(256, DirIno, "dir", 4, format.FtDir)

	m.Inode(InlineIn, format.InodeItem{Size: 5, Nbytes: 5, Nlink: 1, Mode: format.S_IFREG | 0o644})
	m.Link(DirIno, InlineIn, "inline", 2, format.FtRegFile)
	m.FileExtent(InlineIn, 0, format.FileExtent{RAMBytes: 5, Inline: []byte("hello")})

	m.Inode(symIno, format.InodeItem{Size: 4, Nbytes: 4, Nlink: 1, Mode: format.S_IFLNK | 0o777})
	m.Link(DirIno, symIno, "sym", 3, format.FtSymlink)
	m.FileExtent(symIno, 0, format.FileExtent{RAMBytes: 4, Inline: []byte("file")})

	// No checksums, an extent used in part, and a hole.
	m.Inode(SubIno, format.InodeItem{Size: 4 * Sector, Nbytes: 2 * Sector, Nlink: 1, Mode: format.S_IFREG | 0o644, Flags: format.InodeNoDataSum | format.InodeNoDataCow})
	m.Link(DirIno, SubIno, "nocow", 4, format.FtRegFile)
	m.FileExtent(SubIno, 2*Sector, format.FileExtent{Type: format.FileExtentTypeReg, RAMBytes: 4 * Sector, DiskBytenr: d + 8*Sector, DiskNumBytes: 4 * Sector, Offset: Sector, NumBytes: 2 * Sector})
	m.DataExtent(d+8*Sector, 4*Sector, SubIno, Sector)

	m.Inode(PreIno, format.InodeItem{Size: 0, Nbytes: 2 * Sector, Nlink: 1, Mode: format.S_IFREG | 0o644, Flags: format.InodePrealloc})
	m.Link(DirIno, PreIno, "pre", 5, format.FtRegFile)
	m.FileExtent(PreIno, 0, format.FileExtent{Type: format.FileExtentTypePrealloc, RAMBytes: 2 * Sector, DiskBytenr: d + 16*Sector, DiskNumBytes: 2 * Sector, NumBytes: 2 * Sector})
	m.DataExtent(d+16*Sector, 2*Sector, PreIno, 0)

	m.Inode(Orphan, format.InodeItem{Mode: format.S_IFREG | 0o644})
	m.Add(FsTree, Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, Orphan), nil)

	m.Inode(DeepIno, format.InodeItem{Nlink: 1, Mode: format.S_IFDIR | 0o755})
	m.Link(DirIno, DeepIno, "deep", 6, format.FtDir)

	m.splitFS()
	m.Settle()
}

// splitFS cuts the fs tree's leaf in two under a new root.
func (m *Image) splitFS() {
	left := m.Block(m.Root(FsTree))
	l := Items(left)
	half := slices.IndexFunc(l, func(x Item) bool { return x.K.Objectid == InlineIn })
	right, root := make(format.Node, m.Super.NodeSize), make(format.Node, m.Super.NodeSize)
	for i, n := range []format.Node{right, root} {
		n.InitHeader(m.Super.FSID, left.ChunkTreeUUID(), m.Meta(uint64(i)), 1, FsTree, i)
		n.SetWritten(true)
		m.TreeExtent(n.Bytenr(), uint64(i), FsTree)
	}
	Fill(right, l[half:])
	Fill(left, l[:half])
	root.SetNritems(2)
	for i, n := range []format.Node{left, right} {
		root.SetKey(i, n.Key(0))
		root.SetBlockptr(i, n.Bytenr())
		root.SetPtrGeneration(i, 1)
	}
	m.Edit(RootTree, Key(FsTree, format.ROOT_ITEM_KEY, 0), func(b []byte) {
		var r format.RootItem
		r.Decode(b)
		r.Bytenr, r.Level, r.BytesUsed = root.Bytenr(), 1, 3*uint64(m.Super.NodeSize)
		r.Encode(b)
	})
	m.Put(left)
	m.Put(right)
	m.Put(root)
}

// Settle makes the block groups, the superblock and the free space tree agree with the extent
// items.
func (m *Image) Settle() {
	groups := uint64(ExtentTree)
	if m.Super.CompatROFlags&format.CompatROBlockGroupTree != 0 {
		groups = format.BLOCK_GROUP_TREE_OBJECTID
	}
	var exts []span
	for _, k := range m.Keys(m.Root(ExtentTree)) {
		switch k.Type {
		case format.EXTENT_ITEM_KEY:
			exts = append(exts, span{k.Objectid, k.Objectid + k.Offset})
		case format.METADATA_ITEM_KEY:
			exts = append(exts, span{k.Objectid, k.Objectid + uint64(m.Super.NodeSize)})
		}
	}
	var free []Item
	m.Super.BytesUsed = 0
	for _, ch := range m.Chunks {
		var used uint64
		at := ch.Start
		count := uint32(0)
		var own []Item
		gap := func(to uint64) {
			if at < to {
				own = append(own, Item{Key(at, format.FREE_SPACE_EXTENT_KEY, to-at), nil})
				count++
			}
		}
		for _, e := range exts {
			if e.start < ch.Start || e.start >= ch.Start+ch.Length {
				continue
			}
			used += e.end - e.start
			gap(e.start)
			at = e.end
		}
		gap(ch.Start + ch.Length)
		info := format.FreeSpaceInfo{ExtentCount: count}
		free = append(free, Item{Key(ch.Start, format.FREE_SPACE_INFO_KEY, ch.Length), Enc(8, &info)})
		free = append(free, own...)
		m.Edit(groups, Key(ch.Start, format.BLOCK_GROUP_ITEM_KEY, ch.Length), func(b []byte) { le.PutUint64(b, used) })
		m.Super.BytesUsed += used
	}
	f := m.Block(m.Root(FreeTree))
	Fill(f, free)
	m.Put(f)
	m.PutSuper()
}

// Check runs the checker, also with as little memory as can be, which must find the same.
func (m *Image) Check() check.Result {
	m.T.Helper()
	Bounded(m.T, m)
	r, err := check.Check(m.Task, m.Dev, check.Options{})
	if err != nil {
		m.T.Fatal(err)
	}
	return r
}

// Text is a result as lines, for a failure.
func Text(r check.Result) string {
	s := ""
	for _, f := range r.Findings {
		s += "  " + f.String() + "\n"
	}
	for _, n := range r.Notes {
		s += "  note: " + n + "\n"
	}
	return s
}

// Rules lists the rules that are broken, sorted, once each.
func Rules(r check.Result) string {
	var l []string
	for _, f := range r.Findings {
		l = append(l, f.Rule)
	}
	slices.Sort(l)
	return fmt.Sprint(slices.Compact(l))
}

// Bounded demands that a check with as little memory as can be finds the same.
func Bounded(t *testing.T, m *Image) {
	t.Helper()
	a, errA := check.Check(m.Task, m.Dev, check.Options{})
	b, errB := check.Check(m.Task, m.Dev, check.Options{MaxMemory: 1})
	for _, r := range []*check.Result{&a, &b} {
		slices.SortFunc(r.Findings, func(x, y check.Finding) int { return strings.Compare(x.String(), y.String()) })
		slices.Sort(r.Notes)
	}
	if !slices.Equal(a.Findings, b.Findings) || !slices.Equal(a.Notes, b.Notes) || a.Stats != b.Stats || fmt.Sprint(errA) != fmt.Sprint(errB) {
		t.Errorf("without a bound of memory %v %+v\n%swith one %v %+v\n%s", errA, a.Stats, Text(a), errB, b.Stats, Text(b))
	}
}

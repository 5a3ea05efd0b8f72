package damaged

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// leaf2 cuts the only leaf of a tree in two under a new root, between the items before and from k
// on. at and at+1 are free metadata blocks, as m.meta counts them.
func (m *Image) Leaf2(tree uint64, k format.Key, at uint64) {
	m.T.Helper()
	left := m.Block(m.Root(tree))
	if left.Level() != 0 {
		m.T.Fatalf("tree %d has level %d", int64(tree), left.Level())
	}
	where := m.Meta
	if tree == ChunkTree {
		where = func(i uint64) uint64 { return m.Chunks[0].Start + i*uint64(m.Super.NodeSize) }
	}
	right, root := make(format.Node, m.Super.NodeSize), make(format.Node, m.Super.NodeSize)
	for i, n := range []format.Node{right, root} {
		n.InitHeader(m.Super.FSID, left.ChunkTreeUUID(), where(at+uint64(i)), left.Generation(), tree, i)
		n.SetWritten(true)
		m.TreeExtent(n.Bytenr(), uint64(i), tree)
	}
	left = m.Block(m.Root(tree)) // the extent tree has two items more
	l := Items(left)
	cut := slices.IndexFunc(l, func(x Item) bool { return !x.K.Less(k) })
	Fill(right, l[cut:])
	Fill(left, l[:cut])
	root.SetNritems(2)
	for i, n := range []format.Node{left, right} {
		root.SetKey(i, n.Key(0))
		root.SetBlockptr(i, n.Bytenr())
		root.SetPtrGeneration(i, n.Generation())
	}
	m.Put(left)
	m.Put(right)
	m.Put(root)
	m.RootItem(tree, func(r *format.RootItem) { r.Bytenr, r.Level = root.Bytenr(), 1 })
}

// subvol makes an empty subvolume, without a link.
func (m *Image) Subvol(id, at uint64) {
	n := make(format.Node, m.Super.NodeSize)
	old := m.Block(m.Root(FsTree))
	n.InitHeader(m.Super.FSID, old.ChunkTreeUUID(), m.Meta(at), 1, id, 0)
	n.SetWritten(true)
	dir := format.InodeItem{Generation: 1, Transid: 1, Nlink: 1, Mode: format.S_IFDIR | 0o755}
	dots := format.InodeRef{Name: ".."}
	Fill(n, []Item{{InodeKey(256), Enc(format.InodeItemSize, &dir)}, {Key(256, format.INODE_REF_KEY, 256), Enc(dots.Size(), dots)}})
	m.Put(n)
	m.TreeExtent(n.Bytenr(), 0, id)
	r := format.RootItem{Generation: 1, GenerationV2: 1, Bytenr: n.Bytenr(), RootDirid: 256, Refs: 1, BytesUsed: uint64(m.Super.NodeSize)}
	m.Add(RootTree, Key(id, format.ROOT_ITEM_KEY, 0), Enc(format.RootItemSize, &r))
	m.Settle()
}

// linkSubvol gives a subvolume its link from the root directory.
func (m *Image) LinkSubvol(id uint64, name string) {
	ref := format.RootRef{Dirid: 256, Sequence: 20, Name: name}
	m.linkRoots(FsTree, id, ref)
	d := format.DirItem{Location: Key(id, format.ROOT_ITEM_KEY, ^uint64(0)), Transid: 1, Type: format.FtDir, Name: name}
	m.Add(FsTree, Key(256, format.DIR_ITEM_KEY, format.NameHash(name)), Enc(d.Size(), &d))
	m.Add(FsTree, Key(256, format.DIR_INDEX_KEY, 20), Enc(d.Size(), &d))
	m.EditInode(256, func(i *format.InodeItem) { i.Size += 2 * uint64(len(name)) })
}

// linkRoots gives a subvolume both ends of a link in the root tree.
func (m *Image) linkRoots(parent, child uint64, ref format.RootRef) {
	p := Enc(format.RootRefSize+len(ref.Name), &ref)
	m.Add(RootTree, Key(parent, format.ROOT_REF_KEY, child), p)
	m.Add(RootTree, Key(child, format.ROOT_BACKREF_KEY, parent), p)
}

// set64 pokes a field of an item.
func Set64(off int, v uint64) func([]byte) { return func(b []byte) { le.PutUint64(b[off:], v) } }

func InodeKey(ino uint64) format.Key { return Key(ino, format.INODE_ITEM_KEY, 0) }

func (m *Image) RootItem(tree uint64, f func(r *format.RootItem)) {
	m.Edit(RootTree, Key(tree, format.ROOT_ITEM_KEY, 0), func(b []byte) {
		var r format.RootItem
		r.Decode(b)
		f(&r)
		r.Encode(b)
	})
}

// node changes a block's header or pointers.
func (m *Image) Node(bytenr uint64, f func(n format.Node)) {
	n := m.Block(bytenr)
	f(n)
	m.putAt(n, bytenr)
}

func (m *Image) FileExtentEdit(ino, off uint64, f func(fe *format.FileExtent)) {
	m.Edit(FsTree, Key(ino, format.EXTENT_DATA_KEY, off), func(b []byte) {
		var fe format.FileExtent
		fe.Decode(b)
		f(&fe)
		fe.Encode(b)
	})
}

// rekey replaces an item's key, in place: order is the caller's care.
func (m *Image) Rekey(tree uint64, old, new format.Key) {
	n := m.Block(m.LeafOf(tree, old))
	slot, found := n.Search(old)
	if !found {
		m.T.Fatalf("no item %v in tree %d", old, int64(tree))
	}
	n.SetKey(slot, new)
	m.Put(n)
}

// moveRoot puts the only block of a tree elsewhere, with all that knows of it.
func (m *Image) moveRoot(tree, to uint64) {
	from := m.Root(tree)
	n := m.Block(from)
	n.SetBytenr(to)
	m.Put(n)
	m.RootItem(tree, func(r *format.RootItem) { r.Bytenr = to })
	m.Del(ExtentTree, Key(from, format.METADATA_ITEM_KEY, 0))
	m.TreeExtent(to, 0, tree)
	m.Settle()
}

// orphanRoot gives a subvolume its orphan item.
func (m *Image) OrphanRoot(id uint64) {
	m.Add(RootTree, Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, id), nil)
}

// again gives ino a name in dir that another inode has there.
func (m *Image) Again(name string, ino uint64, ft uint8) {
	const index = 90
	ref := format.InodeRef{Index: index, Name: name}
	m.Add(FsTree, Key(ino, format.INODE_REF_KEY, DirIno), Enc(ref.Size(), ref))
	d := format.DirItem{Location: InodeKey(ino), Transid: 1, Type: ft, Name: name}
	k := Key(DirIno, format.DIR_ITEM_KEY, format.NameHash(name))
	n := m.Block(m.LeafOf(FsTree, k))
	slot, found := n.Search(k)
	if !found {
		m.T.Fatalf("no name %q", name)
	}
	both := append(slices.Clone(n.Item(slot)), Enc(d.Size(), &d)...)
	m.Del(FsTree, k)
	m.Add(FsTree, k, both)
	m.Add(FsTree, Key(DirIno, format.DIR_INDEX_KEY, index), Enc(d.Size(), &d))
	m.EditInode(DirIno, func(i *format.InodeItem) { i.Size += 2 * uint64(len(name)) })
	m.EditInode(ino, func(i *format.InodeItem) { i.Nlink++ })
}

// halfOrphan gives the orphan a file extent, and an inode item that says how many bytes it has.
func (m *Image) HalfOrphan(extent, nbytes uint64) {
	at := m.Data0() + 24*Sector
	m.FileExtent(Orphan, 0, format.FileExtent{Type: format.FileExtentTypePrealloc, RAMBytes: extent, DiskBytenr: at, DiskNumBytes: extent, NumBytes: extent})
	m.DataExtent(at, extent, Orphan, 0)
	m.EditInode(Orphan, func(i *format.InodeItem) { i.Size, i.Nbytes = 8*Sector, nbytes })
	m.Settle()
}

// orphanDir makes the orphan a directory that is being deleted: it has no size and no DIR_ITEM any
// more, and still the DIR_INDEX of a file that is gone. With item, the orphan item stays.
func (m *Image) OrphanDir(item bool) {
	m.EditInode(Orphan, func(i *format.InodeItem) { i.Mode, i.Size, i.Nbytes = format.S_IFDIR|0o755, 0, 0 })
	d := format.DirItem{Location: InodeKey(999), Transid: 1, Type: format.FtRegFile, Name: "bar"}
	m.Add(FsTree, Key(Orphan, format.DIR_INDEX_KEY, 2), Enc(d.Size(), &d))
	if !item {
		m.Del(FsTree, Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, Orphan))
	}
}

// dupData gives the data chunk a second copy and returns the device offset of its stripe.
func (m *Image) DupData() uint64 {
	m.T.Helper()
	ch := m.Chunks[2]
	second := m.Chunks[1].Stripes[1] + m.Chunks[1].Length // after the last stripe of mkfs
	for _, c := range m.Chunks {
		for _, s := range c.Stripes {
			second = max(second, s+c.Length)
		}
	}
	if int64(second+ch.Length) > m.Dev.Size() {
		m.T.Fatalf("no room for a second data stripe at %d", second)
	}
	k := Key(format.FIRST_CHUNK_TREE_OBJECTID, format.CHUNK_ITEM_KEY, ch.Start)
	n := m.Block(m.LeafOf(ChunkTree, k))
	slot, _ := n.Search(k)
	var c format.Chunk
	c.Decode(n.Item(slot))
	c.Type |= format.BlockGroupDup
	c.Stripes = append(c.Stripes, c.Stripes[0])
	c.Stripes[1].Offset = second
	m.Del(ChunkTree, k)
	m.Add(ChunkTree, k, Enc(c.Size(), &c))
	d := format.DevExtent{ChunkTree: 3, ChunkObjectid: 256, ChunkOffset: ch.Start, Length: ch.Length}
	old := Key(1, format.DEV_EXTENT_KEY, ch.Stripes[0])
	m.Edit(DevTree, old, func(b []byte) {
		var first format.DevExtent
		first.Decode(b)
		d = first
	})
	m.Add(DevTree, Key(1, format.DEV_EXTENT_KEY, second), Enc(format.DevExtentSize, &d))
	m.Edit(ChunkTree, Key(1, format.DEV_ITEM_KEY, 1), func(b []byte) { le.PutUint64(b[16:], le.Uint64(b[16:])+ch.Length) })
	m.Edit(ExtentTree, Key(ch.Start, format.BLOCK_GROUP_ITEM_KEY, ch.Length), Set64(16, format.BlockGroupData|format.BlockGroupDup))
	m.Super.DevItem.BytesUsed += ch.Length
	m.PutSuper()
	m.Write(second, m.Read(ch.Stripes[0], 32*Sector))
	m.Load()
	return second
}

// faulty fails reads that touch a range.
type Faulty struct {
	blockdev.Device
	Start, End int64
}

func (f *Faulty) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Off < f.End && b.Off+int64(b.Len()) > f.Start {
		b.Err = errors.New("input/output error")
		b.EndIO(t, b)
		return
	}
	f.Device.Submit(t, b)
}

// link4 gives the symbolic link, whose size is 4, another inline extent.
func (m *Image) LinkTarget(inline string) {
	m.Del(FsTree, Key(symIno, format.EXTENT_DATA_KEY, 0))
	m.FileExtent(symIno, 0, format.FileExtent{RAMBytes: uint64(len(inline)), Inline: []byte(inline)})
	m.EditInode(symIno, func(i *format.InodeItem) { i.Nbytes = uint64(len(inline)) })
}

// linuxImage runs a script that makes an image in its first argument, mounted at the second, and
// reads it.
func LinuxImage(t *testing.T, script string) (m *Image, img, mnt string) {
	t.Helper()
	tmp := t.TempDir()
	img, mnt = filepath.Join(tmp, "image"), filepath.Join(tmp, "mnt")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("bash", "-c", script, "script", img, mnt).CombinedOutput(); err != nil {
		exec.Command("umount", mnt).Run()
		t.Fatalf("%v\n%s", err, out)
	}
	return fromFile(t, img), img, mnt
}

// fromFile reads an image into memory.
func fromFile(t *testing.T, path string) *Image {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &Image{T: t, Task: sched.NewTask("test"), Dev: blockdev.NewMemory(int64(len(b)))}
	for off := 0; off < len(b); off += 1 << 20 {
		if p := b[off:min(off+1<<20, len(b))]; !bytes.Equal(p, make([]byte, len(p))) {
			m.Write(uint64(off), p)
		}
	}
	m.Load()
	return m
}

// toFile writes an image, with holes where it has zeros.
func ToFile(t *testing.T, m *Image, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(m.Dev.Size()); err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < m.Dev.Size(); off += 1 << 20 {
		if p := m.Read(uint64(off), int(min(1<<20, m.Dev.Size()-off))); !bytes.Equal(p, zeros[:len(p)]) {
			if _, err := f.WriteAt(p, off); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// convert gives the image the checksums of another type.
func (m *Image) Convert(typ format.CsumType) {
	l := Items(m.Block(m.Root(CsumTree)))
	for i := range l {
		var sums []byte
		for j := range uint64(len(l[i].B) / format.CsumSize) {
			sum := typ.Sum(m.Read(m.Copies(l[i].K.Offset)[0]+j*Sector, Sector))
			sums = append(sums, sum[:typ.Size()]...)
		}
		l[i].B = sums
	}
	n := m.Block(m.Root(CsumTree))
	Fill(n, l)
	m.Put(n)
	for _, bytenr := range m.Trees() {
		n := m.Block(bytenr)
		sum := typ.Sum(n[format.CsumField:])
		copy(n, sum[:])
		for _, off := range m.Copies(bytenr) {
			m.Write(off, n)
		}
	}
	m.Super.CsumType = typ
	m.PutSuper()
}

// addQuota gives the image a quota tree with the qgroups of two levels, all right.
func (m *Image) AddQuota(flags, generation uint64) {
	const members = 1<<QgroupLevelShift | 100
	at := m.Meta(40)
	r := format.RootItem{Bytenr: at, Generation: 1, GenerationV2: 1, BytesUsed: uint64(m.Super.NodeSize)}
	m.Add(RootTree, Key(format.QUOTA_TREE_OBJECTID, format.ROOT_ITEM_KEY, 0), Enc(format.RootItemSize, &r))
	m.TreeExtent(at, 0, format.QUOTA_TREE_OBJECTID)
	words := func(size int, w ...uint64) []byte {
		b := make([]byte, size)
		for i, v := range w {
			le.PutUint64(b[8*i:], v)
		}
		return b
	}
	// The root and two leaves of the fs tree; extents of 4, 4 and 2 blocks, used in part or not.
	bytes := 3*uint64(m.Super.NodeSize) + 10*Sector
	n := make(format.Node, m.Super.NodeSize)
	n.InitHeader(m.Super.FSID, UUID(3), at, 1, format.QUOTA_TREE_OBJECTID, 0)
	n.SetWritten(true)
	info := words(check.QgroupInfoSize, 1, bytes, bytes, bytes, bytes)
	Fill(n, []Item{
		{Key(0, format.QGROUP_STATUS_KEY, 0), words(check.QgroupStatusSize, 1, generation, flags)},
		{Key(0, format.QGROUP_INFO_KEY, FsTree), info},
		// of a subvolume that is gone
		{Key(0, format.QGROUP_INFO_KEY, 300), words(check.QgroupInfoSize, 1, 7, 7, 7, 7)},
		{Key(0, format.QGROUP_INFO_KEY, members), info},
		{Key(0, format.QGROUP_LIMIT_KEY, FsTree), words(40)},
		{Key(0, format.QGROUP_LIMIT_KEY, 300), words(40)},
		{Key(0, format.QGROUP_LIMIT_KEY, members), words(40)},
		{Key(FsTree, format.QGROUP_RELATION_KEY, members), nil},
		{Key(members, format.QGROUP_RELATION_KEY, FsTree), nil},
	})
	m.Put(n)
	m.Settle()
}

// trees are the tree blocks of the image, in the order of a check.
func (m *Image) Trees() (list []uint64) {
	_, seen, err := check.Examine(m.Task, m.Dev, check.Options{NoData: true})
	if err != nil {
		m.T.Fatal(err)
	}
	for _, b := range seen.Blocks {
		list = append(list, b.Bytenr)
	}
	return list
}

// interesting is an offset in a block where bytes mean something: the header, the keys, or the
// data.
func Interesting(n format.Node, r uint64) int {
	switch r % 4 {
	case 0:
		return 32 + int(r>>8)%(format.HeaderSize-32)
	case 1:
		stride := format.ItemHeaderSize
		if n.Level() > 0 {
			stride = format.KeyPtrSize
		}
		return format.HeaderSize + int(r>>8)%max(1, n.Nritems()*stride)
	}
	end := format.HeaderSize + n.LeafDataEnd()
	if n.Level() > 0 || end >= len(n) || end < format.HeaderSize {
		return format.HeaderSize + int(r>>8)%(len(n)-format.HeaderSize)
	}
	return end + int(r>>8)%(len(n)-end)
}

// damage changes bytes of tree blocks, with checksums made right again.
func (m *Image) Damage(blocks []uint64, picks []uint64) {
	for _, p := range picks {
		bytenr := blocks[p%uint64(len(blocks))]
		n := m.Block(bytenr)
		at := format.HeaderSize - 1 // the block may be damaged already, its counts wild
		if n.Nritems() <= int(m.Super.NodeSize)/format.KeyPtrSize {
			at = Interesting(n, p>>8)
		}
		n[max(32, at%len(n))] ^= byte(p>>56) | 1
		m.putAt(n, bytenr)
	}
}

// An image under test is edited item by item, with checksums made right again: what is left wrong
// is what the test is about.
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
	Stripes            []uint64 // offsets on the device
}

// span is a range of addresses.
type span struct{ start, end uint64 }

// item is one item of a leaf.
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

// id is a tree's number.
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

func UUID(c byte) (u format.UUID) {
	for i := range u {
		u[i] = c
	}
	return
}

// newImage is a small file system with one of everything: the fs tree has two leaves below its
// root.
func NewImage(t *testing.T) *Image { return NewImageWith(t, func(*mkfs.Options) {}) }

// newImageWith is the sample with other options of mkfs.
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

// clone is an image with the same bytes.
func (m *Image) Clone(t *testing.T) *Image {
	n := &Image{T: t, Task: m.Task, Dev: m.Dev.Snapshot(), Chunks: m.Chunks}
	n.Super = m.Super
	n.Super.SysChunkArray = slices.Clone(m.Super.SysChunkArray)
	return n
}

func (m *Image) Read(off uint64, n int) []byte {
	p := make([]byte, n)
	if err := blockdev.Read(m.Task, m.Dev, p, int64(off)); err != nil {
		m.T.Fatal(err)
	}
	return p
}

func (m *Image) Write(off uint64, p []byte) {
	if err := blockdev.Write(m.Task, m.Dev, p, int64(off)); err != nil {
		m.T.Fatal(err)
	}
}

// load reads the superblock and the chunk map.
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

// super writes all superblock copies from m.sb.
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

func (m *Image) Block(bytenr uint64) format.Node {
	return m.Read(m.Copies(bytenr)[0], int(m.Super.NodeSize))
}

// put writes a block, checksummed, to every mirror.
func (m *Image) Put(n format.Node) { m.putAt(n, n.Bytenr()) }

func (m *Image) putAt(n format.Node, bytenr uint64) {
	n.UpdateCsum(format.CsumCRC32C)
	for _, off := range m.Copies(bytenr) {
		m.Write(off, n)
	}
}

// root is the bytenr of a tree's root block.
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

// leafOf is the leaf of the tree that has, or would have, the key.
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

func Items(n format.Node) []Item {
	var l []Item
	for i := range n.Nritems() {
		l = append(l, Item{n.Key(i), slices.Clone(n.Item(i))})
	}
	return l
}

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

// add puts an item into its leaf.
func (m *Image) Add(tree uint64, k format.Key, b []byte) {
	n := m.Block(m.LeafOf(tree, k))
	l := append(Items(n), Item{k, b})
	slices.SortFunc(l, func(x, y Item) int { return x.K.Compare(y.K) })
	Fill(n, l)
	m.Put(n)
}

// del removes an item.
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

// edit changes an item in place.
func (m *Image) Edit(tree uint64, k format.Key, f func(b []byte)) {
	n := m.Block(m.LeafOf(tree, k))
	slot, found := n.Search(k)
	if !found {
		m.T.Fatalf("no item %v in tree %d", k, int64(tree))
	}
	f(n.Item(slot))
	m.Put(n)
}

func (m *Image) Find(tree uint64, objectid uint64, typ uint8) format.Key {
	for _, k := range m.Keys(m.Root(tree)) {
		if k.Objectid == objectid && k.Type == typ {
			return k
		}
	}
	m.T.Fatalf("no item %d of type %d in tree %d", objectid, typ, int64(tree))
	return format.Key{}
}

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

func Enc(size int, e encoder) []byte {
	b := make([]byte, size)
	e.Encode(b)
	return b
}

func Key(o uint64, t uint8, off uint64) format.Key {
	return format.Key{Objectid: o, Type: t, Offset: off}
}

func (m *Image) Inode(ino uint64, i format.InodeItem) {
	i.Generation, i.Transid = 1, 1
	m.Add(FsTree, Key(ino, format.INODE_ITEM_KEY, 0), Enc(format.InodeItemSize, &i))
}

// link makes the three records of a name, and lengthens the directory.
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

func (m *Image) EditInode(ino uint64, f func(i *format.InodeItem)) {
	m.Edit(FsTree, Key(ino, format.INODE_ITEM_KEY, 0), func(b []byte) {
		var i format.InodeItem
		i.Decode(b)
		f(&i)
		i.Encode(b)
	})
}

// dataExtent puts an extent item with one file reference into the extent tree.
func (m *Image) DataExtent(bytenr, length, ino, start uint64) {
	b := make([]byte, format.ExtentItemSize+format.InlineRefSize(format.EXTENT_DATA_REF_KEY))
	e := format.ExtentItem{Refs: 1, Generation: 1, Flags: format.ExtentFlagData}
	e.Encode(b)
	r := format.InlineRef{Type: format.EXTENT_DATA_REF_KEY, Data: format.ExtentDataRef{DataRef: format.DataRef{Root: FsTree, Ino: format.Ino(ino), Offset: format.FileOff(start)}, Count: 1}}
	r.Encode(b[format.ExtentItemSize:])
	m.Add(ExtentTree, Key(bytenr, format.EXTENT_ITEM_KEY, length), b)
}

func (m *Image) TreeExtent(bytenr uint64, level uint64, root uint64) {
	b := make([]byte, format.ExtentItemSize+format.InlineRefSize(format.TREE_BLOCK_REF_KEY))
	e := format.ExtentItem{Refs: 1, Generation: 1, Flags: format.ExtentFlagTreeBlock}
	e.Encode(b)
	r := format.InlineRef{Type: format.TREE_BLOCK_REF_KEY, Offset: root}
	r.Encode(b[format.ExtentItemSize:])
	m.Add(ExtentTree, Key(bytenr, format.METADATA_ITEM_KEY, level), b)
}

func (m *Image) FileExtent(ino, off uint64, fe format.FileExtent) {
	fe.Generation = 1
	m.Add(FsTree, Key(ino, format.EXTENT_DATA_KEY, off), Enc(fe.Size(), &fe))
}

// data0 is where the data chunk starts, meta a metadata block that mkfs has left free.
func (m *Image) Data0() uint64 { return m.Chunks[2].Start }

func (m *Image) Meta(i uint64) uint64 {
	made := uint64(8) // by mkfs
	if m.Super.CompatROFlags&format.CompatROBlockGroupTree != 0 {
		made++
	}
	return m.Chunks[1].Start + (made+i)*uint64(m.Super.NodeSize)
}

const Sector = format.SectorSize

// qgroupLevelShift makes the level of a qgroup into the upper part of its id.
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

// settle makes the block groups, the superblock and the free space tree agree with the extent
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

// check runs the checker, also with as little memory as can be, which must find the same.
func (m *Image) Check() check.Result {
	m.T.Helper()
	Bounded(m.T, m)
	r, err := check.Check(m.Task, m.Dev, check.Options{})
	if err != nil {
		m.T.Fatal(err)
	}
	return r
}

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

func Rules(r check.Result) string {
	var l []string
	for _, f := range r.Findings {
		l = append(l, f.Rule)
	}
	slices.Sort(l)
	return fmt.Sprint(slices.Compact(l))
}

// unname takes the three records of a name away.
func (m *Image) Unname(ino, dir uint64, name string, index uint64) {
	m.Del(FsTree, Key(dir, format.DIR_ITEM_KEY, format.NameHash(name)))
	m.Del(FsTree, Key(dir, format.DIR_INDEX_KEY, index))
	m.Del(FsTree, Key(ino, format.INODE_REF_KEY, dir))
}

// stuff fills a leaf with an attribute of its last inode.
func (m *Image) Stuff(leaf uint64) {
	n := m.Block(leaf)
	l := Items(n)
	ino := l[len(l)-1].K.Objectid
	x := format.DirItem{Type: format.FtXattr, Name: "user.large", Data: make([]byte, n.LeafFreeSpace()-format.ItemHeaderSize-format.DirItemSize-10)}
	l = append(l, Item{Key(ino, format.XATTR_ITEM_KEY, format.NameHash(x.Name)), Enc(x.Size(), &x)})
	slices.SortFunc(l, func(a, b Item) int { return a.K.Compare(b.K) })
	Fill(n, l)
	m.Put(n)
}

// bounded demands that a check with as little memory as can be finds the same.
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

// QuotaScript makes an image with qgroups of two levels in $1, mounted at $2: subvolumes, snapshots
// that share and differ, a clone.
const QuotaScript = `
set -eu
img=$1; m=$2
truncate -s 160M $img; mkfs.btrfs -q $img >/dev/null
mount -o loop $img $m
trap 'umount $m 2>/dev/null || true' EXIT
btrfs quota enable $m; btrfs qgroup create 1/100 $m
btrfs -q subvolume create $m/sub
for i in $(seq 1 200); do echo "file $i of a subvolume, with a text that is long enough" > $m/sub/file-$i; done
dd if=/dev/urandom of=$m/sub/big bs=1M count=4 status=none; sync -f $m
cp --reflink=always $m/sub/big $m/clone
btrfs -q subvolume snapshot $m/sub $m/snap
dd if=/dev/urandom of=$m/snap/big bs=64k count=5 seek=7 conv=notrunc status=none
rm $m/snap/file-1*; sync -f $m
btrfs qgroup assign --no-rescan 0/257 1/100 $m; btrfs qgroup assign --no-rescan 0/256 1/100 $m
btrfs quota rescan -w $m >/dev/null; sync -f $m
umount $m
`

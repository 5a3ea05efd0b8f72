package damaged

import (
	"errors"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/edit"
	"btrlab/internal/sched"
)

// Leaf2 cuts the only leaf of a tree in two under a new root, between the items before and from k
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

// Subvol makes an empty subvolume, without a link.
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

// LinkSubvol gives a subvolume its link from the root directory.
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

// Change changes fields of an item, as FIELD=VALUE, in the way of btrlab edit.
func (m *Image) Change(tree uint64, k format.Key, words ...string) {
	m.T.Helper()
	x := edit.Open(m.Task, []blockdev.Device{m.Dev}, edit.Options{Copy: -1})
	var sets []edit.Set
	for _, w := range words {
		s, err := edit.ParseSet(w)
		if err != nil {
			m.T.Fatal(err)
		}
		sets = append(sets, s)
	}
	if err := x.Set(tree, k, sets); err != nil {
		m.T.Fatal(err)
	}
	if err := x.Commit(func(int, int64, []byte) error { return nil }, func() error { return nil }); err != nil {
		m.T.Fatal(err)
	}
}

// Set64 pokes a field of an item.
func Set64(off int, v uint64) func([]byte) { return func(b []byte) { le.PutUint64(b[off:], v) } }

// InodeKey is the key of an inode item.
func InodeKey(ino uint64) format.Key { return Key(ino, format.INODE_ITEM_KEY, 0) }

// RootItem changes the root item of a tree.
func (m *Image) RootItem(tree uint64, f func(r *format.RootItem)) {
	m.Edit(RootTree, Key(tree, format.ROOT_ITEM_KEY, 0), func(b []byte) {
		var r format.RootItem
		r.Decode(b)
		f(&r)
		r.Encode(b)
	})
}

// Node changes a block's header or pointers.
func (m *Image) Node(bytenr uint64, f func(n format.Node)) {
	n := m.Block(bytenr)
	f(n)
	m.putAt(n, bytenr)
}

// FileExtentEdit changes a file extent in place.
func (m *Image) FileExtentEdit(ino, off uint64, f func(fe *format.FileExtent)) {
	m.Edit(FsTree, Key(ino, format.EXTENT_DATA_KEY, off), func(b []byte) {
		var fe format.FileExtent
		fe.Decode(b)
		f(&fe)
		fe.Encode(b)
	})
}

// Rekey replaces an item's key, in place: order is the caller's care.
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

// OrphanRoot gives a subvolume its orphan item.
func (m *Image) OrphanRoot(id uint64) {
	m.Add(RootTree, Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, id), nil)
}

// Again gives ino a name in dir that another inode has there.
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

// HalfOrphan gives the orphan a file extent, and an inode item that says how many bytes it has.
func (m *Image) HalfOrphan(extent, nbytes uint64) {
	at := m.Data0() + 24*Sector
	m.FileExtent(Orphan, 0, format.FileExtent{Type: format.FileExtentTypePrealloc, RAMBytes: extent, DiskBytenr: at, DiskNumBytes: extent, NumBytes: extent})
	m.DataExtent(at, extent, Orphan, 0)
	m.EditInode(Orphan, func(i *format.InodeItem) { i.Size, i.Nbytes = 8*Sector, nbytes })
	m.Settle()
}

// OrphanDir makes the orphan a directory that is being deleted: it has no size and no DIR_ITEM any
// more, and still the DIR_INDEX of a file that is gone. With item, the orphan item stays.
func (m *Image) OrphanDir(item bool) {
	m.EditInode(Orphan, func(i *format.InodeItem) { i.Mode, i.Size, i.Nbytes = format.S_IFDIR|0o755, 0, 0 })
	d := format.DirItem{Location: InodeKey(999), Transid: 1, Type: format.FtRegFile, Name: "bar"}
	m.Add(FsTree, Key(Orphan, format.DIR_INDEX_KEY, 2), Enc(d.Size(), &d))
	if !item {
		m.Del(FsTree, Key(format.ORPHAN_OBJECTID, format.ORPHAN_ITEM_KEY, Orphan))
	}
}

// DupData gives the data chunk a second copy and returns the device offset of its stripe.
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

// Faulty fails reads that touch a range.
type Faulty struct {
	blockdev.Device
	Start, End int64
}

// Submit carries a bio out, or fails it.
func (f *Faulty) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Off < f.End && b.Off+int64(b.Len()) > f.Start {
		b.Err = errors.New("input/output error")
		b.EndIO(t, b)
		return
	}
	f.Device.Submit(t, b)
}

// LinkTarget gives the symbolic link, whose size is 4, another inline extent.
func (m *Image) LinkTarget(inline string) {
	m.Del(FsTree, Key(symIno, format.EXTENT_DATA_KEY, 0))
	m.FileExtent(symIno, 0, format.FileExtent{RAMBytes: uint64(len(inline)), Inline: []byte(inline)})
	m.EditInode(symIno, func(i *format.InodeItem) { i.Nbytes = uint64(len(inline)) })
}

// Convert gives the image the checksums of another type.
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

// AddQuota gives the image a quota tree with the qgroups of two levels, all right.
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

// Trees are the tree blocks of the image, in the order of a check.
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

// Interesting is an offset in a block where bytes mean something: the header, the keys, or the
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

// Damage changes bytes of tree blocks, with checksums made right again.
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

// Unname takes the three records of a name away.
func (m *Image) Unname(ino, dir uint64, name string, index uint64) {
	m.Del(FsTree, Key(dir, format.DIR_ITEM_KEY, format.NameHash(name)))
	m.Del(FsTree, Key(dir, format.DIR_INDEX_KEY, index))
	m.Del(FsTree, Key(ino, format.INODE_REF_KEY, dir))
}

// Stuff fills a leaf with an attribute of its last inode.
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

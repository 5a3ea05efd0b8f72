package mkfs

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"btrlab/internal/format"
)

// trees makes all trees and returns the superblock.
func (m *maker) trees() (*format.Super, error) {
	// The first leaf of each tree stands at the start of the first chunk, in this order.
	ids := []uint64{format.ROOT_TREE_OBJECTID, format.EXTENT_TREE_OBJECTID, format.DEV_TREE_OBJECTID, format.FS_TREE_OBJECTID,
		format.CSUM_TREE_OBJECTID, format.UUID_TREE_OBJECTID, format.FREE_SPACE_TREE_OBJECTID}
	features := uint64(compatRO)
	if m.o.BlockGroupTree {
		ids = append(ids, format.BLOCK_GROUP_TREE_OBJECTID)
		features |= format.CompatROBlockGroupTree
	}
	for _, id := range append(ids, format.DATA_RELOC_TREE_OBJECTID) {
		at, err := m.takeBlock()
		if err != nil {
			return nil, err
		}
		m.roots[id] = m.newTree(id, at)
	}
	if err := m.load(); err != nil {
		return nil, err
	}
	reloc := m.roots[format.DATA_RELOC_TREE_OBJECTID]
	if err := m.addAll(reloc, m.emptySubvol()); err != nil {
		return nil, err
	}
	if m.o.Shrink {
		m.trim()
	}
	if err := m.describe(); err != nil {
		return nil, err
	}
	root, chunk := m.roots[format.ROOT_TREE_OBJECTID], m.roots[format.CHUNK_TREE_OBJECTID]
	sb := &format.Super{FSID: m.o.FSID, CsumType: m.o.Csum, Flags: format.HeaderFlagWritten, Generation: generation, Root: root.root, RootLevel: root.level,
		ChunkRoot: chunk.root, ChunkRootLevel: chunk.level, TotalBytes: m.size(), BytesUsed: m.bytesUsed(),
		RootDirObjectid: format.ROOT_TREE_DIR_OBJECTID, NumDevices: uint64(len(m.devs)), SectorSize: format.SectorSize, NodeSize: uint32(m.o.NodeSize),
		StripeSize: format.SectorSize, ChunkRootGeneration: generation, CompatROFlags: features,
		IncompatFlags: m.o.incompat() | m.propIncompat, Label: m.o.Label, UUIDTreeGeneration: generation}
	for _, c := range m.chunks {
		sb.IncompatFlags |= format.ProfileOf(c.c.Type).Incompat()
	}
	if m.defaultSubvol != format.FS_TREE_OBJECTID {
		sb.IncompatFlags |= format.IncompatDefaultSubvol
	}
	sb.SysChunkArray = make([]byte, format.KeySize+m.system.c.Size())
	format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: m.system.logical}.Encode(sb.SysChunkArray)
	m.system.c.Encode(sb.SysChunkArray[format.KeySize:])
	b := &sb.Backups[0]
	*b = format.RootBackup{TotalBytes: sb.TotalBytes, BytesUsed: sb.BytesUsed, NumDevices: sb.NumDevices}
	for _, at := range []struct {
		id        uint64
		root, gen *uint64
		level     *uint8
	}{
		{format.ROOT_TREE_OBJECTID, &b.TreeRoot, &b.TreeRootGen, &b.TreeRootLevel},
		{format.CHUNK_TREE_OBJECTID, &b.ChunkRoot, &b.ChunkRootGen, &b.ChunkRootLevel},
		{format.EXTENT_TREE_OBJECTID, &b.ExtentRoot, &b.ExtentRootGen, &b.ExtentRootLevel},
		{format.FS_TREE_OBJECTID, &b.FSRoot, &b.FSRootGen, &b.FSRootLevel},
		{format.DEV_TREE_OBJECTID, &b.DevRoot, &b.DevRootGen, &b.DevRootLevel},
		{format.CSUM_TREE_OBJECTID, &b.CsumRoot, &b.CsumRootGen, &b.CsumRootLevel},
	} {
		*at.root, *at.gen, *at.level = m.roots[at.id].root, generation, m.roots[at.id].level
	}
	return sb, nil
}

// addAll makes a tree of items, which are in key order, and finishes it.
func (m *maker) addAll(tr *tree, items iter.Seq[item]) error {
	for it := range items {
		p, err := tr.Add(it.key(), it.size())
		if err != nil {
			return err
		}
		it.encode(p)
	}
	return tr.finish()
}

// item is an item of a tree that is made whole.
type item interface {
	key() format.Key
	size() int
	encode(p []byte)
}

// describer is a tree that describes chunks, blocks and trees, itself too.
type describer struct {
	tree   *tree
	items  func() iter.Seq[item]
	places []uint64 // of its blocks, in the order in which they are written
}

// describe makes the trees that describe chunks, blocks and trees. How many blocks they have hangs
// on the blocks and chunks that there are, their own as well, so they get as many places as they
// need with the places of the try before, until that changes nothing. A tree needs no fewer blocks
// when there are more items, so the number settles.
func (m *maker) describe() error {
	place, ok := m.system.take(m.nodeSize(), m.nodeSize())
	if !ok {
		panic("mkfs: no room in the system chunk")
	}
	m.roots[format.CHUNK_TREE_OBJECTID] = m.newTree(format.CHUNK_TREE_OBJECTID, place.Start)
	inExtentTree := !m.o.BlockGroupTree
	list := []*describer{
		{items: m.chunkTree, tree: m.roots[format.CHUNK_TREE_OBJECTID]},
		{items: func() iter.Seq[item] { return m.extentTree(inExtentTree) }, tree: m.roots[format.EXTENT_TREE_OBJECTID]},
		{items: m.devTree, tree: m.roots[format.DEV_TREE_OBJECTID]},
		{items: m.uuidTree, tree: m.roots[format.UUID_TREE_OBJECTID]},
		{items: m.freeSpaceTree, tree: m.roots[format.FREE_SPACE_TREE_OBJECTID]},
	}
	if m.o.BlockGroupTree {
		list = append(list, &describer{items: m.groupTree, tree: m.roots[format.BLOCK_GROUP_TREE_OBJECTID]})
	}
	// The root tree comes last, with the roots of the others.
	list = append(list, &describer{items: m.rootTree, tree: m.roots[format.ROOT_TREE_OBJECTID]})

	known := len(m.blocks)
	need := make([]int, len(list))
	for i := range need {
		need[i] = 1
	}
	for {
		mark := m.mark()
		for i, d := range list {
			d.places = slices.Clone(d.tree.places)
			for len(d.places) < need[i] {
				at, err := m.placeFor(d.tree.owner)
				if err != nil {
					return err
				}
				d.places = append(d.places, at)
			}
			for _, at := range d.places {
				m.blocks = append(m.blocks, treeBlock{bytenr: at, owner: d.tree.owner})
			}
		}
		slices.SortFunc(m.blocks[known:], byPlace)
		now := make([]int, len(list))
		level := map[uint64]uint8{}
		for i, d := range list {
			levels := m.levelsOf(d.items())
			now[i] = len(levels)
			for j, at := range d.places {
				level[at] = levels[min(j, len(levels)-1)]
			}
		}
		if slices.Equal(now, need) {
			for i := range m.blocks[known:] {
				b := &m.blocks[known+i]
				b.level = level[b.bytenr]
			}
			break
		}
		need = now
		m.blocks = m.blocks[:known]
		m.restore(mark)
	}
	slices.SortFunc(m.blocks, byPlace)
	if err := m.fix(); err != nil {
		return err
	}
	for _, d := range list {
		d.tree.places, d.tree.planned = d.places, true
		d.tree.bytes = uint64(len(d.places)) * m.nodeSize()
		if err := m.addAll(d.tree, d.items()); err != nil {
			return err
		}
	}
	return nil
}

func byPlace(a, b treeBlock) int { return cmp.Compare(a.bytenr, b.bytenr) }

// plain is an item of which everything is known.
type plain struct {
	k format.Key
	n int
	e interface{ Encode(b []byte) }
}

func (p plain) key() format.Key { return p.k }
func (p plain) size() int       { return p.n }
func (p plain) encode(b []byte) { p.e.Encode(b) }

// number is an item with a number.
type number uint64

func (n number) Encode(b []byte) { binary.LittleEndian.PutUint64(b, uint64(n)) }

// nothing is an item that is all key.
type nothing struct{}

func (nothing) Encode([]byte) {}

func (m *maker) chunkTree() iter.Seq[item] {
	return func(yield func(item) bool) {
		for _, dev := range m.devs {
			d := m.devItem(dev)
			if !yield(plain{format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: dev.id}, format.DevItemSize, &d}) {
				return
			}
		}
		for _, c := range m.chunks {
			k := format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: c.logical}
			n, _ := m.stripes(c.c.Type)
			if !yield(plain{k, format.ChunkSize(n), &c.c}) {
				return
			}
		}
	}
}

func (m *maker) rootTree() iter.Seq[item] {
	var list []item
	add := func(k format.Key, n int, e interface{ Encode(b []byte) }) { list = append(list, plain{k, n, e}) }
	// The directory of the root tree has one entry, "default": the subvolume a plain mount shows.
	const name = "default"
	dir := m.dirInode()
	add(format.Key{Objectid: format.ROOT_TREE_DIR_OBJECTID, Type: format.INODE_ITEM_KEY}, format.InodeItemSize, &dir)
	up := format.InodeRef{Name: ".."}
	add(format.Key{Objectid: format.ROOT_TREE_DIR_OBJECTID, Type: format.INODE_REF_KEY, Offset: format.ROOT_TREE_DIR_OBJECTID}, up.Size(), up)
	entry := &format.DirItem{Location: format.Key{Objectid: m.defaultSubvol, Type: format.ROOT_ITEM_KEY, Offset: ^uint64(0)},
		Type: format.FtDir, Name: name}
	add(format.Key{Objectid: format.ROOT_TREE_DIR_OBJECTID, Type: format.DIR_ITEM_KEY, Offset: format.NameHash(name)}, entry.Size(), entry)
	ref := format.InodeRef{Name: name}
	add(format.Key{Objectid: format.FS_TREE_OBJECTID, Type: format.INODE_REF_KEY, Offset: format.ROOT_TREE_DIR_OBJECTID}, ref.Size(), ref)

	root := func(tr *tree) *format.RootItem {
		// The inode in a root item is a relic; mkfs.btrfs fills it with these.
		return &format.RootItem{Inode: format.InodeItem{Generation: 1, Size: 3, Nlink: 1, Nbytes: m.nodeSize(), Mode: format.S_IFDIR | 0o755},
			Generation: generation, Bytenr: tr.root, Level: tr.level, BytesUsed: tr.bytes, Refs: 1, GenerationV2: generation}
	}
	for id, tr := range m.roots {
		if id == format.ROOT_TREE_OBJECTID || id == format.CHUNK_TREE_OBJECTID || m.subvols[id] != nil {
			continue
		}
		r := root(tr)
		if id == format.DATA_RELOC_TREE_OBJECTID {
			r.RootDirid = format.FIRST_FREE_OBJECTID
		}
		add(format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}, format.RootItemSize, r)
	}
	for id, s := range m.subvols {
		r := root(m.roots[id])
		r.RootDirid = format.FIRST_FREE_OBJECTID
		r.UUID, r.Ctime, r.Otime = s.uuid, m.now, m.now
		if s.dir != nil && s.dir.ReadOnly {
			r.Inode.Flags, r.Flags = format.InodeRootItemInit, format.RootSubvolReadonly
		}
		add(format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}, format.RootItemSize, r)
		if s.parent != 0 {
			r := &format.RootRef{Dirid: s.dir.parent.ino, Sequence: s.dir.index, Name: s.dir.Name}
			add(format.Key{Objectid: s.parent, Type: format.ROOT_REF_KEY, Offset: id}, format.RootRefSize+len(r.Name), r)
			add(format.Key{Objectid: id, Type: format.ROOT_BACKREF_KEY, Offset: s.parent}, format.RootRefSize+len(r.Name), r)
		}
	}
	slices.SortFunc(list, func(a, b item) int { return a.key().Compare(b.key()) })
	return slices.Values(list)
}

func (m *maker) dirInode() format.InodeItem {
	return format.InodeItem{Generation: generation, Transid: generation, Nbytes: m.nodeSize(), Nlink: 1, Mode: format.S_IFDIR | 0o755,
		Atime: m.now, Ctime: m.now, Mtime: m.now, Otime: m.now}
}

// emptySubvol is an empty root directory.
func (m *maker) emptySubvol() iter.Seq[item] {
	dir, up := m.dirInode(), format.InodeRef{Name: ".."}
	return slices.Values([]item{
		plain{format.Key{Objectid: format.FIRST_FREE_OBJECTID, Type: format.INODE_ITEM_KEY}, format.InodeItemSize, &dir},
		plain{format.Key{Objectid: format.FIRST_FREE_OBJECTID, Type: format.INODE_REF_KEY, Offset: format.FIRST_FREE_OBJECTID}, up.Size(), up},
	})
}

// A blockItem is the extent item of a tree block, a dataItem that of file data.
type (
	blockItem struct {
		treeBlock
		long uint64 // the block's bytes: an EXTENT_ITEM, whose TreeBlockInfo has no key
	}
	dataItem struct {
		bytenr, length uint64
		root, ino, off uint64 // the file extent
	}
)

func (b blockItem) key() format.Key {
	if b.long > 0 {
		return format.Key{Objectid: b.bytenr, Type: format.EXTENT_ITEM_KEY, Offset: b.long}
	}
	return format.Key{Objectid: b.bytenr, Type: format.METADATA_ITEM_KEY, Offset: uint64(b.level)}
}
func (b blockItem) size() int {
	n := format.ExtentItemSize + format.InlineRefSize(format.TREE_BLOCK_REF_KEY)
	if b.long > 0 {
		n += format.TreeBlockInfoSize
	}
	return n
}
func (b blockItem) encode(p []byte) {
	e := format.ExtentItem{Refs: 1, Generation: generation, Flags: format.ExtentFlagTreeBlock}
	e.Encode(p)
	p = p[format.ExtentItemSize:]
	if b.long > 0 {
		info := format.TreeBlockInfo{Level: b.level}
		info.Encode(p)
		p = p[format.TreeBlockInfoSize:]
	}
	r := format.InlineRef{Type: format.TREE_BLOCK_REF_KEY, Offset: b.owner}
	r.Encode(p)
}

func (d *dataItem) key() format.Key {
	return format.Key{Objectid: d.bytenr, Type: format.EXTENT_ITEM_KEY, Offset: d.length}
}
func (*dataItem) size() int {
	return format.ExtentItemSize + format.InlineRefSize(format.EXTENT_DATA_REF_KEY)
}
func (d *dataItem) encode(p []byte) {
	e := format.ExtentItem{Refs: 1, Generation: generation, Flags: format.ExtentFlagData}
	e.Encode(p)
	r := format.InlineRef{Type: format.EXTENT_DATA_REF_KEY, Data: format.ExtentDataRef{Count: 1,
		DataRef: format.DataRef{Root: d.root, Ino: format.Ino(d.ino), Offset: format.FileOff(d.off)}}}
	r.Encode(p[format.ExtentItemSize:])
}

// groupTree has the block group of each chunk.
func (m *maker) groupTree() iter.Seq[item] {
	return func(yield func(item) bool) {
		for _, c := range m.chunks {
			g := &format.BlockGroupItem{Used: c.used, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: c.c.Type}
			if !yield(plain{format.Key{Objectid: c.logical, Type: format.BLOCK_GROUP_ITEM_KEY, Offset: c.c.Length}, format.BlockGroupItemSize, g}) {
				return
			}
		}
	}
}

// extentTree has every tree block and every extent of file data, and the block groups if they have
// no tree of their own. m.blocks need not ascend as a whole.
func (m *maker) extentTree(groups bool) iter.Seq[item] {
	blocks := slices.Clone(m.blocks)
	long := uint64(0)
	if m.o.LongExtents {
		long = m.nodeSize()
	}
	slices.SortFunc(blocks, byPlace)
	return func(yield func(item) bool) {
		data := m.extents
		for _, c := range m.chunks {
			pending := groups
			group := func() bool {
				pending = false
				g := &format.BlockGroupItem{Used: c.used, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: c.c.Type}
				return yield(plain{format.Key{Objectid: c.logical, Type: format.BLOCK_GROUP_ITEM_KEY, Offset: c.c.Length}, format.BlockGroupItemSize, g})
			}
			// An extent's item sorts before the BLOCK_GROUP_ITEM of the same address.
			next := func(it item) bool {
				return (!pending || it.key().Objectid == c.logical || group()) && yield(it) && (!pending || group())
			}
			for {
				block, extent := c.end(), c.end()
				if len(blocks) > 0 {
					block = blocks[0].bytenr
				}
				if len(data) > 0 {
					extent = data[0].bytenr
				}
				if min(block, extent) >= c.end() {
					break
				}
				if block < extent {
					if !next(blockItem{blocks[0], long}) {
						return
					}
					blocks = blocks[1:]
					continue
				}
				if !next(&data[0]) {
					return
				}
				data = data[1:]
			}
			if pending && !group() {
				return
			}
		}
	}
}

func (m *maker) devTree() iter.Seq[item] {
	var list []item
	for _, c := range m.chunks {
		n, data := m.stripes(c.c.Type)
		d := &format.DevExtent{ChunkTree: format.CHUNK_TREE_OBJECTID, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID,
			ChunkOffset: c.logical, Length: c.c.Length / data, ChunkTreeUUID: m.o.ChunkTreeUUID}
		for i := range n {
			k := format.Key{Objectid: 1, Type: format.DEV_EXTENT_KEY, Offset: uint64(i)}
			if !c.floats {
				k.Objectid, k.Offset = c.c.Stripes[i].Devid, c.c.Stripes[i].Offset
			}
			list = append(list, plain{k, format.DevExtentSize, d})
		}
	}
	slices.SortFunc(list, func(a, b item) int { return a.key().Compare(b.key()) })
	return slices.Values(list)
}

func (m *maker) uuidTree() iter.Seq[item] {
	var list []item
	for id, s := range m.subvols {
		list = append(list, plain{s.uuid.Key(format.UUID_KEY_SUBVOL), 8, number(id)})
	}
	slices.SortFunc(list, func(a, b item) int { return a.key().Compare(b.key()) })
	return slices.Values(list)
}

// freeSpaceTree lists what no extent covers.
func (m *maker) freeSpaceTree() iter.Seq[item] {
	return func(yield func(item) bool) {
		for _, c := range m.chunks {
			free := c.free()
			k := format.Key{Objectid: c.logical, Type: format.FREE_SPACE_INFO_KEY, Offset: c.c.Length}
			if !yield(plain{k, format.FreeSpaceInfoSize, &format.FreeSpaceInfo{ExtentCount: uint32(len(free))}}) {
				return
			}
			for _, s := range free {
				if !yield(plain{format.Key{Objectid: s.Start, Type: format.FREE_SPACE_EXTENT_KEY, Offset: s.Len()}, 0, nothing{}}) {
					return
				}
			}
		}
	}
}

func (m *maker) devItem(dev *target) format.DevItem {
	d := format.DevItem{Devid: dev.id, TotalBytes: dev.size, IOAlign: format.SectorSize, IOWidth: format.SectorSize,
		SectorSize: format.SectorSize, UUID: dev.uuid, FSID: m.o.FSID}
	for _, c := range m.chunks {
		for _, s := range c.c.Stripes {
			if s.Devid == dev.id {
				d.BytesUsed += c.c.StripeBytes()
			}
		}
	}
	return d
}

func (m *maker) bytesUsed() (n uint64) {
	for _, c := range m.chunks {
		n += c.used
	}
	return n
}

// placeFor takes room for a block of the tree owner.
func (m *maker) placeFor(owner uint64) (uint64, error) {
	if owner != format.CHUNK_TREE_OBJECTID {
		return m.takeBlock()
	}
	s, ok := m.system.take(m.nodeSize(), m.nodeSize())
	if !ok {
		return 0, fmt.Errorf("%s: %d chunks are too many for one system chunk", m.devs[0].Name(), len(m.chunks))
	}
	return s.Start, nil
}

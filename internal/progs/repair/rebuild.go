package repair

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
)

// The extent tree, the block groups and the free space tree, made anew from what the other trees
// use.
//
// A survey walks all other trees: it meets each block and each file extent with the pointers to
// them. A block whose owner does not come to it any more holds its references by itself
// (FULL_BACKREF), as the kernel makes it when the owner copies a shared block or is deleted; all
// others name the owner. The new blocks lie in free space of the metadata groups, and describe
// themselves, so their number is found by iteration.

// survey is what the trees but those three use.
type survey struct {
	super *format.Super
	walk  *check.Walker
	owned map[uint64]bool // blocks that their owner comes to
	data  []check.Span    // of files that have checksums
}

// newItem is an item of a tree.
func newItem(k format.Key, b []byte) image.Item { return image.Item{Key: k, Data: b} }

// newBlock is a block of a tree that is made.
type newBlock struct {
	bytenr, owner uint64
	level         uint8
}

// madeTrees are the trees that a rebuild makes.
func (c *changes) madeTrees() (ids []uint64) {
	ids = append(ids, format.EXTENT_TREE_OBJECTID)
	if c.GroupTree() != format.EXTENT_TREE_OBJECTID {
		ids = append(ids, c.GroupTree())
	}
	if c.Super.CompatROFlags&format.CompatROFreeSpaceTree != 0 {
		ids = append(ids, format.FREE_SPACE_TREE_OBJECTID)
	}
	if _, ok := c.Roots[format.CSUM_TREE_OBJECTID]; ok && (!c.CsumsWhole || c.found("csum.missing", "csum.extent")) {
		ids = append(ids, format.CSUM_TREE_OBJECTID)
	}
	return ids
}

// surveyTrees walks all trees but those that are made.
func (c *changes) surveyTrees() (*survey, error) {
	s := &survey{super: &c.Super, walk: c.Walker(), owned: map[uint64]bool{}}
	made := c.madeTrees()
	one := func(id uint64, r format.RootItem, drop format.Key) error {
		leaf := func(format.Node, bool) {}
		if format.IsFSTree(id) {
			leaf = s.leafOf(map[uint64]uint64{})
		}
		whole := s.walk.Tree(id, r, drop, leaf, func(b format.Node) {
			if b.Owner() == id {
				s.owned[b.Bytenr()] = true
			}
		})
		if !whole {
			return fmt.Errorf("tree %d cannot be read whole, and what it uses is not known", int64(id))
		}
		return nil
	}
	sb := &c.Super
	if err := one(format.CHUNK_TREE_OBJECTID, format.RootItem{Bytenr: sb.ChunkRoot, Generation: sb.ChunkRootGeneration, Level: sb.ChunkRootLevel}, format.Key{}); err != nil {
		return nil, err
	}
	if err := one(format.ROOT_TREE_OBJECTID, format.RootItem{Bytenr: sb.Root, Generation: sb.Generation, Level: sb.RootLevel}, format.Key{}); err != nil {
		return nil, err
	}
	for _, id := range c.RootIDs {
		if slices.Contains(made, id) {
			continue
		}
		r := c.Roots[id].Item
		drop := format.Key{}
		if r.Refs == 0 && format.IsFSTree(id) && id != format.FS_TREE_OBJECTID {
			drop = r.DropProgress
		}
		if err := one(id, r, drop); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// use is an extent with the references to it.
type use struct {
	start, length, generation uint64
	level                     uint8
	tree, full                bool
	refs                      []ref
}

// uses lists the extents that the survey has met, ascending.
func (s *survey) uses() ([]use, error) {
	blocks, pointers, data := s.walk.Uses()
	nodeSize := uint64(s.super.NodeSize)
	all := map[uint64]*use{}
	for _, b := range blocks {
		all[b.Bytenr] = &use{start: b.Bytenr, length: nodeSize, generation: b.Generation, level: b.Level, tree: true, full: !s.owned[b.Bytenr]}
	}
	full := func(bytenr uint64) bool { return bytenr != 0 && all[bytenr] != nil && all[bytenr].full }
	for _, p := range pointers {
		r := ref{kind: refTree, a: p.Owner, count: 1}
		if full(p.Parent) {
			r.kind, r.a = refShared, p.Parent
		}
		u := all[p.Child]
		u.refs = append(u.refs, r)
	}
	for _, p := range data {
		u := all[p.Bytenr]
		if u == nil {
			u = &use{start: p.Bytenr, length: p.Length, generation: p.Generation}
			all[p.Bytenr] = u
		}
		if u.tree || u.length != p.Length {
			return nil, fmt.Errorf("extent %d: two lengths, %d and %d", p.Bytenr, u.length, p.Length)
		}
		u.generation = min(u.generation, p.Generation)
		r := ref{kind: refData, a: p.Owner, b: p.Ino, c: p.Start, count: 1}
		if full(p.Parent) {
			r = ref{kind: refSharedData, a: p.Parent, count: 1}
		}
		u.refs = append(u.refs, r)
	}
	list := make([]use, 0, len(all))
	for _, u := range all {
		slices.SortFunc(u.refs, compareRefs)
		n := 0
		for _, r := range u.refs { // one of each, with its count
			if n > 0 && compareRefs(u.refs[n-1], r) == 0 {
				u.refs[n-1].count++
			} else {
				u.refs[n] = r
				n++
			}
		}
		u.refs = u.refs[:n]
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b use) int { return cmp.Compare(a.start, b.start) })
	for i := 1; i < len(list); i++ {
		if list[i-1].start+list[i-1].length > list[i].start {
			return nil, fmt.Errorf("extents %d and %d overlap", list[i-1].start, list[i].start)
		}
	}
	return list, nil
}

// refKind says how a reference is listed.
type refKind uint8

const (
	refTree       refKind = iota // a: root
	refShared                    // a: parent block
	refData                      // a: root, b: inode, c: file offset - extent offset
	refSharedData                // a: parent block
)

// ref is a reference to an extent.
type ref struct {
	a, b, c uint64
	count   uint64
	kind    refKind
}

func compareRefs(x, y ref) int {
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b), cmp.Compare(x.c, y.c))
}

// seq orders inline references of a type, the largest first.
func (r *ref) seq() uint64 {
	if r.kind == refData {
		return r.data().Hash()
	}
	return r.a
}

func (r *ref) data() format.DataRef {
	return format.DataRef{Root: r.a, Ino: format.Ino(r.b), Offset: format.FileOff(r.c)}
}

// items are the items of one extent: its own with the references that have room in it, and one for
// each of the others.
func (c *changes) itemsOf(u *use) (list []image.Item) {
	e := format.ExtentItem{Generation: u.generation, Flags: format.ExtentFlagData}
	k := format.Key{Objectid: u.start, Type: format.EXTENT_ITEM_KEY, Offset: u.length}
	size := format.ExtentItemSize
	if u.tree {
		e.Flags = format.ExtentFlagTreeBlock
		if u.full {
			e.Flags |= format.BlockFlagFullBackref
		}
		if c.Super.IncompatFlags&format.IncompatSkinnyMetadata != 0 {
			k.Type, k.Offset = format.METADATA_ITEM_KEY, uint64(u.level)
		} else {
			size += format.TreeBlockInfoSize
		}
	}
	slices.SortStableFunc(u.refs, func(a, b ref) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(b.seq(), a.seq()))
	})
	// The kernel's BTRFS_MAX_EXTENT_ITEM_SIZE().
	most := format.LeafDataSize(int(c.Super.NodeSize))/16 - format.ItemHeaderSize
	var inline []byte
	keyed := map[format.Key]bool{}
	for i := range u.refs {
		r := &u.refs[i]
		e.Refs += r.count
		in := format.InlineRef{Type: format.TREE_BLOCK_REF_KEY, Offset: r.a, Count: uint32(r.count)}
		switch r.kind {
		case refShared:
			in.Type = format.SHARED_BLOCK_REF_KEY
		case refSharedData:
			in.Type = format.SHARED_DATA_REF_KEY
		case refData:
			in.Type = format.EXTENT_DATA_REF_KEY
			in.Data = format.ExtentDataRef{DataRef: r.data(), Count: uint32(r.count)}
		}
		n := format.InlineRefSize(in.Type)
		b := make([]byte, n)
		in.Encode(b)
		if len(list) == 0 && size+len(inline)+n <= most {
			inline = append(inline, b...)
			continue
		}
		at := format.Key{Objectid: u.start, Type: in.Type, Offset: r.seq()}
		for keyed[at] { // two hashes are the same
			at.Offset++
		}
		keyed[at] = true
		switch r.kind {
		case refTree, refShared:
			b = nil
		case refData:
			b = b[1:]
		case refSharedData:
			b = b[1+8:]
		}
		list = append(list, newItem(at, b))
	}
	b := make([]byte, size, size+len(inline))
	e.Encode(b)
	if size > format.ExtentItemSize {
		i := format.TreeBlockInfo{Level: u.level}
		if n := c.Peek(u.start, u.generation, int(u.level)); n != nil && n.Nritems() > 0 {
			i.First = n.Key(0)
		}
		i.Encode(b[format.ExtentItemSize:])
	}
	return append(list, newItem(k, append(b, inline...)))
}

// rebuild makes the trees anew, and points the root tree and the superblocks at them.
func (c *changes) rebuild() error {
	if c.Super.LogRoot != 0 {
		return errors.New("a log is there: replay it, or drop it with rescue zero-log")
	}
	if c.Super.IncompatFlags&format.IncompatSimpleQuota != 0 {
		return errors.New("simple quotas: only the extent tree says which subvolume has allocated an extent")
	}
	s, err := c.surveyTrees()
	if err != nil {
		return err
	}
	uses, err := s.uses()
	if err != nil {
		return err
	}
	ids := c.madeTrees()
	for _, id := range ids {
		if _, ok := c.Roots[id]; !ok {
			return fmt.Errorf("tree %d has no root item", id)
		}
	}
	var sums []image.Item
	if slices.Contains(ids, format.CSUM_TREE_OBJECTID) {
		if sums, err = c.sumItems(s); err != nil {
			return err
		}
	}
	counts := map[uint64][]uint8{} // levels of the blocks
	for range 30 {
		blocks, err := c.place(uses, ids, counts)
		if err != nil {
			return err
		}
		trees := c.contents(uses, ids, blocks)
		trees[format.CSUM_TREE_OBJECTID] = sums
		stable := true
		for _, id := range ids {
			if have := image.Levels(int(c.Super.NodeSize), image.Sizes(trees[id])); !slices.Equal(have, counts[id]) {
				counts[id], stable = have, false
			}
		}
		if stable {
			return c.writeTrees(uses, ids, blocks, trees)
		}
	}
	return errors.New("the size of the extent tree does not settle")
}

// place finds room for the blocks of the new trees.
func (c *changes) place(uses []use, ids []uint64, counts map[uint64][]uint8) (blocks []newBlock, err error) {
	size := uint64(c.Super.NodeSize)
	var free []uint64
	need := 0
	for _, id := range ids {
		need += len(counts[id])
	}
	for i := range c.Chunks {
		ch := &c.Chunks[i]
		if ch.Type&format.BlockGroupMetadata == 0 {
			continue
		}
		for at := format.AlignUp(ch.Start, size); at+size <= ch.Start+ch.Length && len(free) < need; at += size {
			j, _ := slices.BinarySearchFunc(uses, at, func(u use, at uint64) int {
				if u.start+u.length <= at {
					return -1
				}
				return 1
			})
			_, old := c.Visited[at]
			if old || j < len(uses) && uses[j].start < at+size || c.overSuper(ch, at, size) {
				continue
			}
			free = append(free, at)
		}
	}
	if len(free) < need {
		return nil, fmt.Errorf("%d free metadata blocks, want %d for the extent tree", len(free), need)
	}
	for _, id := range ids {
		for _, level := range counts[id] {
			blocks = append(blocks, newBlock{free[0], id, level})
			free = free[1:]
		}
	}
	return blocks, nil
}

// overSuper reports whether a block would lie over a superblock, or over the end of a stripe.
func (c *changes) overSuper(ch *check.Chunk, at, size uint64) bool {
	_, run := ch.Places(at)
	m := mapped(ch)
	return run < size || m.OverSuper(at, size)
}

// contents are the items of the new trees, each in the order of its keys.
func (c *changes) contents(uses []use, ids []uint64, blocks []newBlock) map[uint64][]image.Item {
	trees := map[uint64][]image.Item{}
	all := slices.Clone(uses)
	for _, b := range blocks {
		all = append(all, use{start: b.bytenr, length: uint64(c.Super.NodeSize), generation: c.Super.Generation, level: b.level, tree: true,
			refs: []ref{{kind: refTree, a: b.owner, count: 1}}})
	}
	slices.SortFunc(all, func(a, b use) int { return cmp.Compare(a.start, b.start) })
	for i := range all {
		trees[format.EXTENT_TREE_OBJECTID] = append(trees[format.EXTENT_TREE_OBJECTID], c.itemsOf(&all[i])...)
	}
	i := 0
	for _, ch := range c.Chunks {
		var used uint64
		at, runs := ch.Start, uint32(0)
		space := func(end uint64) {
			if at < end {
				trees[format.FREE_SPACE_TREE_OBJECTID] = append(trees[format.FREE_SPACE_TREE_OBJECTID],
					newItem(format.Key{Objectid: at, Type: format.FREE_SPACE_EXTENT_KEY, Offset: end - at}, nil))
				runs++
			}
		}
		for ; i < len(all) && all[i].start < ch.Start+ch.Length; i++ {
			space(all[i].start)
			used += all[i].length
			at = all[i].start + all[i].length
		}
		space(ch.Start + ch.Length)
		info := format.FreeSpaceInfo{ExtentCount: runs}
		trees[format.FREE_SPACE_TREE_OBJECTID] = append(trees[format.FREE_SPACE_TREE_OBJECTID],
			newItem(format.Key{Objectid: ch.Start, Type: format.FREE_SPACE_INFO_KEY, Offset: ch.Length}, encoded(8, &info)))
		g := format.BlockGroupItem{Used: used, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: ch.Type}
		trees[c.GroupTree()] = append(trees[c.GroupTree()],
			newItem(format.Key{Objectid: ch.Start, Type: format.BLOCK_GROUP_ITEM_KEY, Offset: ch.Length}, encoded(24, &g)))
	}
	for _, id := range ids {
		slices.SortFunc(trees[id], func(a, b image.Item) int { return a.Key.Compare(b.Key) })
	}
	return trees
}

func encoded(size int, e interface{ Encode(b []byte) }) []byte {
	b := make([]byte, size)
	e.Encode(b)
	return b
}

// writeTrees writes the blocks, the root items and the superblocks.
func (c *changes) writeTrees(uses []use, ids []uint64, blocks []newBlock, trees map[uint64][]image.Item) error {
	root := c.Peek(c.Super.Root, c.Super.Generation, int(c.Super.RootLevel))
	if root == nil {
		return errors.New("the root tree cannot be read")
	}
	used := uint64(len(blocks)) * uint64(c.Super.NodeSize)
	for _, u := range uses {
		used += u.length
	}
	for _, id := range ids {
		var mine []uint64
		for _, b := range blocks {
			if b.owner == id {
				mine = append(mine, b.bytenr)
			}
		}
		total := len(mine)
		top, level, err := image.Pack(image.PackOptions{Owner: id, FSID: c.Super.TreeFSID(), ChunkTreeUUID: root.ChunkTreeUUID(), Generation: c.Super.Generation,
			NodeSize: int(c.Super.NodeSize), Csum: c.Super.CsumType, Write: c.writeBlock,
			Place: func(int) (at uint64, err error) {
				at, mine = mine[0], mine[1:]
				return at, nil
			}}, trees[id])
		if err != nil {
			return err
		}
		err = c.editItem(format.ROOT_TREE_OBJECTID, format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}, func(b []byte) error {
			if len(b) < format.RootItemSize {
				return errors.New("a root item of the first version")
			}
			var r format.RootItem
			r.Decode(b)
			r.Bytenr, r.Level, r.Generation, r.GenerationV2 = top, level, c.Super.Generation, c.Super.Generation
			r.BytesUsed = uint64(total) * uint64(c.Super.NodeSize)
			r.Encode(b)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := c.staleCaches(); err != nil {
		return err
	}
	return c.editSupers(c.Devs, func(s *format.Super) {
		s.BytesUsed = used
		if s.CompatROFlags&format.CompatROFreeSpaceTree != 0 {
			s.CompatROFlags |= format.CompatROFreeSpaceTreeValid
		}
	})
}

// staleCaches makes the old free space caches those of no generation, so that Linux does not
// believe them: what they call free may have a block of the new trees.
//
// Models fs/btrfs/free-space-cache.c:__load_free_space_cache(), which compares the generation in
// the header with that of the cache's inode.
func (c *changes) staleCaches() error {
	var keys []format.Key
	c.Each(format.ROOT_TREE_OBJECTID, func(k format.Key, b []byte) {
		if k.Objectid == format.FREE_SPACE_OBJECTID && k.Type == 0 && len(b) >= format.KeySize+8 {
			keys = append(keys, k)
		}
	})
	for _, k := range keys {
		if err := c.editItem(format.ROOT_TREE_OBJECTID, k, func(b []byte) error { le.PutUint64(b[format.KeySize:], 0); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// writeBlock writes a tree block to each of its copies, with its checksum.
func (c *changes) writeBlock(n format.Node) error {
	n.SetWritten(true)
	n.UpdateCsum(c.Super.CsumType)
	if err := c.put(n.Bytenr(), n); err != nil {
		return fmt.Errorf("block %d: %w", n.Bytenr(), err)
	}
	return nil
}

// editSupers changes every whole superblock of the last commit.
func (c *changes) editSupers(devs []*check.Device, change func(s *format.Super)) error {
	for _, d := range devs {
		for i := range format.SuperMirrorMax {
			off := format.SuperMirror(i)
			if int64(off)+format.SuperSize > d.Size() {
				break
			}
			p := make([]byte, format.SuperSize)
			if err := blockdev.Read(c.Task, d, p, int64(off)); err != nil {
				return err
			}
			if s := format.DecodeSuper(p); format.CheckSuperAt(p, d.Size(), off) == nil && s.Generation == c.Super.Generation {
				change(&s)
				s.Encode(p)
				if err := c.write(d, p, int64(off)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

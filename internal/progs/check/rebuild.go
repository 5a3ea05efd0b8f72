package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
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
	c     *checker
	owned map[uint64]bool // blocks that their owner comes to
	data  []span          // of files that have checksums
}

// newItem is an item of a tree that is made.
type newItem struct {
	k format.Key
	b []byte
}

// newBlock is a block of a tree that is made.
type newBlock struct {
	bytenr, owner uint64
	level         uint8
}

// madeTrees are the trees that a rebuild makes.
func (c *checker) madeTrees() (ids []uint64) {
	ids = append(ids, format.EXTENT_TREE_OBJECTID)
	if c.groupTree() != format.EXTENT_TREE_OBJECTID {
		ids = append(ids, c.groupTree())
	}
	if c.sb.CompatROFlags&format.CompatROFreeSpaceTree != 0 {
		ids = append(ids, format.FREE_SPACE_TREE_OBJECTID)
	}
	if _, ok := c.roots[format.CSUM_TREE_OBJECTID]; ok && (!c.csumsWhole || c.found("csum.missing", "csum.extent")) {
		ids = append(ids, format.CSUM_TREE_OBJECTID)
	}
	return ids
}

// surveyTrees walks all trees but those that are made.
func (c *checker) surveyTrees() (*survey, error) {
	n := &checker{t: c.t, devs: c.devs, o: c.o, noData: true, sb: c.sb, chunks: c.chunks, roots: c.roots, rootIDs: c.rootIDs,
		visited: map[uint64]uint32{}, scratch: make([]byte, c.sb.NodeSize)}
	s := &survey{c: n, owned: map[uint64]bool{}}
	made := c.madeTrees()
	one := func(id uint64, r format.RootItem, drop format.Key) error {
		w := n.newWalk(id, func(format.Node, bool) {})
		if format.IsFSTree(id) {
			w.leaf = s.leafOf(map[uint64]uint64{})
		}
		w.drop = drop
		w.met = func(b format.Node) {
			if b.Owner() == id {
				s.owned[b.Bytenr()] = true
			}
		}
		w.from(r.Bytenr, r.Generation, r.Level)
		if w.cut {
			return fmt.Errorf("tree %d cannot be read whole, and what it uses is not known", int64(id))
		}
		return nil
	}
	sb := &c.sb
	if err := one(format.CHUNK_TREE_OBJECTID, format.RootItem{Bytenr: sb.ChunkRoot, Generation: sb.ChunkRootGeneration, Level: sb.ChunkRootLevel}, format.Key{}); err != nil {
		return nil, err
	}
	if err := one(format.ROOT_TREE_OBJECTID, format.RootItem{Bytenr: sb.Root, Generation: sb.Generation, Level: sb.RootLevel}, format.Key{}); err != nil {
		return nil, err
	}
	for _, id := range c.rootIDs {
		if slices.Contains(made, id) {
			continue
		}
		r := c.roots[id].item
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
	c := s.c
	nodeSize := uint64(c.sb.NodeSize)
	all := map[uint64]*use{}
	for _, b := range c.blocks {
		all[b.bytenr] = &use{start: b.bytenr, length: nodeSize, generation: b.generation, level: b.level, tree: true, full: !s.owned[b.bytenr]}
	}
	full := func(bytenr uint64) bool { return bytenr != 0 && all[bytenr] != nil && all[bytenr].full }
	for _, p := range c.ptrs {
		r := ref{kind: refTree, a: p.owner, count: 1}
		if full(p.parent) {
			r.kind, r.a = refShared, p.parent
		}
		u := all[p.child]
		u.refs = append(u.refs, r)
	}
	for _, p := range c.dataPtrs {
		u := all[p.bytenr]
		if u == nil {
			u = &use{start: p.bytenr, length: p.length, generation: p.generation}
			all[p.bytenr] = u
		}
		if u.tree || u.length != p.length {
			return nil, fmt.Errorf("extent %d: two lengths, %d and %d", p.bytenr, u.length, p.length)
		}
		u.generation = min(u.generation, p.generation)
		r := ref{kind: refData, a: p.owner, b: p.ino, c: p.start, count: 1}
		if full(p.parent) {
			r = ref{kind: refSharedData, a: p.parent, count: 1}
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
func (c *checker) itemsOf(u *use) (list []newItem) {
	e := format.ExtentItem{Generation: u.generation, Flags: format.ExtentFlagData}
	k := format.Key{Objectid: u.start, Type: format.EXTENT_ITEM_KEY, Offset: u.length}
	size := format.ExtentItemSize
	if u.tree {
		e.Flags = format.ExtentFlagTreeBlock
		if u.full {
			e.Flags |= format.BlockFlagFullBackref
		}
		if c.sb.IncompatFlags&format.IncompatSkinnyMetadata != 0 {
			k.Type, k.Offset = format.METADATA_ITEM_KEY, uint64(u.level)
		} else {
			size += format.TreeBlockInfoSize
		}
	}
	slices.SortStableFunc(u.refs, func(a, b ref) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(b.seq(), a.seq()))
	})
	// The kernel's BTRFS_MAX_EXTENT_ITEM_SIZE().
	most := format.LeafDataSize(int(c.sb.NodeSize))/16 - format.ItemHeaderSize
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
		list = append(list, newItem{at, b})
	}
	b := make([]byte, size, size+len(inline))
	e.Encode(b)
	if size > format.ExtentItemSize {
		i := format.TreeBlockInfo{Level: u.level}
		if n := c.peek(u.start, u.generation, int(u.level)); n != nil && n.Nritems() > 0 {
			i.First = n.Key(0)
		}
		i.Encode(b[format.ExtentItemSize:])
	}
	return append(list, newItem{k, append(b, inline...)})
}

// rebuild makes the trees anew, and points the root tree and the superblocks at them.
func (c *checker) rebuild() error {
	if c.sb.LogRoot != 0 {
		return errors.New("a log is there: replay it, or drop it with rescue zero-log")
	}
	if c.sb.IncompatFlags&format.IncompatSimpleQuota != 0 {
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
		if _, ok := c.roots[id]; !ok {
			return fmt.Errorf("tree %d has no root item", id)
		}
	}
	var sums []newItem
	if slices.Contains(ids, format.CSUM_TREE_OBJECTID) {
		if sums, err = c.sumItems(s); err != nil {
			return err
		}
	}
	counts := map[uint64][]int{} // blocks of each level
	for range 30 {
		blocks, err := c.place(uses, ids, counts)
		if err != nil {
			return err
		}
		trees := c.contents(uses, ids, blocks)
		trees[format.CSUM_TREE_OBJECTID] = sums
		stable := true
		for _, id := range ids {
			if have := c.levels(trees[id]); !slices.Equal(have, counts[id]) {
				counts[id], stable = have, false
			}
		}
		if stable {
			return c.writeTrees(uses, ids, counts, blocks, trees)
		}
	}
	return errors.New("the size of the extent tree does not settle")
}

// place finds room for the blocks of the new trees.
func (c *checker) place(uses []use, ids []uint64, counts map[uint64][]int) (blocks []newBlock, err error) {
	size := uint64(c.sb.NodeSize)
	var free []uint64
	need := 0
	for _, id := range ids {
		for _, n := range counts[id] {
			need += n
		}
	}
	for i := range c.chunks {
		ch := &c.chunks[i]
		if ch.typ&format.BlockGroupMetadata == 0 || ch.parity() > 0 {
			continue
		}
		for at := format.AlignUp(ch.start, size); at+size <= ch.start+ch.length && len(free) < need; at += size {
			j, _ := slices.BinarySearchFunc(uses, at, func(u use, at uint64) int {
				if u.start+u.length <= at {
					return -1
				}
				return 1
			})
			_, old := c.visited[at]
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
		for level, n := range counts[id] {
			for range n {
				blocks = append(blocks, newBlock{free[0], id, uint8(level)})
				free = free[1:]
			}
		}
	}
	return blocks, nil
}

// overSuper reports whether a block would lie over a superblock, or over the end of a stripe.
func (c *checker) overSuper(ch *chunk, at, size uint64) bool {
	places, run := ch.places(at)
	if run < size {
		return true
	}
	for _, p := range places {
		for i := range format.SuperMirrorMax {
			if s := format.SuperMirror(i); p.off < s+format.StripeLen && s < p.off+size {
				return true
			}
		}
	}
	return false
}

// contents are the items of the new trees, each in the order of its keys.
func (c *checker) contents(uses []use, ids []uint64, blocks []newBlock) map[uint64][]newItem {
	trees := map[uint64][]newItem{}
	all := slices.Clone(uses)
	for _, b := range blocks {
		all = append(all, use{start: b.bytenr, length: uint64(c.sb.NodeSize), generation: c.sb.Generation, level: b.level, tree: true,
			refs: []ref{{kind: refTree, a: b.owner, count: 1}}})
	}
	slices.SortFunc(all, func(a, b use) int { return cmp.Compare(a.start, b.start) })
	for i := range all {
		trees[format.EXTENT_TREE_OBJECTID] = append(trees[format.EXTENT_TREE_OBJECTID], c.itemsOf(&all[i])...)
	}
	i := 0
	for _, ch := range c.chunks {
		var used uint64
		at, runs := ch.start, uint32(0)
		space := func(end uint64) {
			if at < end {
				trees[format.FREE_SPACE_TREE_OBJECTID] = append(trees[format.FREE_SPACE_TREE_OBJECTID],
					newItem{format.Key{Objectid: at, Type: format.FREE_SPACE_EXTENT_KEY, Offset: end - at}, nil})
				runs++
			}
		}
		for ; i < len(all) && all[i].start < ch.start+ch.length; i++ {
			space(all[i].start)
			used += all[i].length
			at = all[i].start + all[i].length
		}
		space(ch.start + ch.length)
		info := format.FreeSpaceInfo{ExtentCount: runs}
		trees[format.FREE_SPACE_TREE_OBJECTID] = append(trees[format.FREE_SPACE_TREE_OBJECTID],
			newItem{format.Key{Objectid: ch.start, Type: format.FREE_SPACE_INFO_KEY, Offset: ch.length}, encoded(8, &info)})
		g := format.BlockGroupItem{Used: used, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, Flags: ch.typ}
		trees[c.groupTree()] = append(trees[c.groupTree()],
			newItem{format.Key{Objectid: ch.start, Type: format.BLOCK_GROUP_ITEM_KEY, Offset: ch.length}, encoded(24, &g)})
	}
	for _, id := range ids {
		slices.SortFunc(trees[id], func(a, b newItem) int { return a.k.Compare(b.k) })
	}
	return trees
}

func encoded(size int, e interface{ Encode(b []byte) }) []byte {
	b := make([]byte, size)
	e.Encode(b)
	return b
}

// leafRoom says how many of the items have room in a leaf.
func (c *checker) leafRoom(items []newItem) (n int) {
	room := format.LeafDataSize(int(c.sb.NodeSize))
	for n < len(items) && room >= format.ItemHeaderSize+len(items[n].b) {
		room -= format.ItemHeaderSize + len(items[n].b)
		n++
	}
	return n
}

// levels is the number of blocks of each level that the items need.
func (c *checker) levels(items []newItem) (counts []int) {
	n := 0
	for rest := items; len(rest) > 0 || n == 0; n++ {
		rest = rest[c.leafRoom(rest):]
	}
	counts = append(counts, n)
	per := format.PtrsPerNode(int(c.sb.NodeSize))
	for n > 1 {
		n = (n + per - 1) / per
		counts = append(counts, n)
	}
	return counts
}

// writeTrees writes the blocks, the root items and the superblocks.
func (c *checker) writeTrees(uses []use, ids []uint64, counts map[uint64][]int, blocks []newBlock, trees map[uint64][]newItem) error {
	root := c.peek(c.sb.Root, c.sb.Generation, int(c.sb.RootLevel))
	if root == nil {
		return errors.New("the root tree cannot be read")
	}
	used := uint64(len(blocks)) * uint64(c.sb.NodeSize)
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
		block := func(level int) format.Node {
			n := format.Node(make([]byte, c.sb.NodeSize))
			n.InitHeader(c.sb.TreeFSID(), root.ChunkTreeUUID(), mine[0], c.sb.Generation, id, level)
			mine = mine[1:]
			return n
		}
		type child struct {
			k      format.Key
			bytenr uint64
		}
		var below []child
		for rest := trees[id]; len(rest) > 0 || len(below) == 0; {
			n := block(0)
			k := c.leafRoom(rest)
			fillLeaf(n, rest[:k])
			if err := c.writeBlock(n); err != nil {
				return err
			}
			first := format.Key{}
			if k > 0 {
				first = rest[0].k
			}
			below = append(below, child{first, n.Bytenr()})
			rest = rest[k:]
		}
		per := format.PtrsPerNode(int(c.sb.NodeSize))
		level := 0
		for len(below) > 1 {
			level++
			var above []child
			for part := range slices.Chunk(below, per) {
				n := block(level)
				n.SetNritems(len(part))
				for i, x := range part {
					n.SetKey(i, x.k)
					n.SetBlockptr(i, x.bytenr)
					n.SetPtrGeneration(i, c.sb.Generation)
				}
				if err := c.writeBlock(n); err != nil {
					return err
				}
				above = append(above, child{part[0].k, n.Bytenr()})
			}
			below = above
		}
		err := c.editItem(format.ROOT_TREE_OBJECTID, format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}, func(b []byte) error {
			if len(b) < format.RootItemSize {
				return errors.New("a root item of the first version")
			}
			var r format.RootItem
			r.Decode(b)
			r.Bytenr, r.Level, r.Generation, r.GenerationV2 = below[0].bytenr, uint8(level), c.sb.Generation, c.sb.Generation
			r.BytesUsed = uint64(total) * uint64(c.sb.NodeSize)
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
	return c.editSupers(c.devs, func(s *format.Super) {
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
func (c *checker) staleCaches() error {
	var keys []format.Key
	c.searchAll(format.ROOT_TREE_OBJECTID, func(k format.Key, b []byte) {
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
func (c *checker) writeBlock(n format.Node) error {
	n.SetWritten(true)
	n.UpdateCsum(c.sb.CsumType)
	ch := c.chunkAt(n.Bytenr())
	if ch == nil || ch.parity() > 0 {
		return fmt.Errorf("block %d: its parity cannot be written", n.Bytenr())
	}
	places, _ := ch.places(n.Bytenr())
	for _, p := range places {
		if p.dev == nil {
			return fmt.Errorf("block %d: a device is missing", n.Bytenr())
		}
		if err := c.write(p.dev, n, int64(p.off)); err != nil {
			return err
		}
	}
	return nil
}

// editSupers changes every whole superblock of the last commit.
func (c *checker) editSupers(devs []*device, change func(s *format.Super)) error {
	for _, d := range devs {
		for i := range format.SuperMirrorMax {
			off := format.SuperMirror(i)
			if int64(off)+format.SuperSize > d.Size() {
				break
			}
			p := make([]byte, format.SuperSize)
			if err := blockdev.Read(c.t, d, p, int64(off)); err != nil {
				return err
			}
			if s := copyOf(p); format.CheckSuperAt(p, d.Size(), off) == nil && s.Generation == c.sb.Generation {
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

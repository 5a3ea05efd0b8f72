package repair

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
)

// Leaves that the tree checker refuses. Linux reads nothing of such a leaf, so each item that
// passes again is won: what follows from the rest of the leaf is put right, and an item that still
// breaks a rule is left out. The next check says what that leaves open.

// mended is a leaf in the making.
type mended struct {
	c     *changes
	r     check.Refused
	ctx   format.CheckContext
	items []image.Item
	said  []string
	lost  bool // something that is not to be left out
}

// slotted is what the tree checker has against an item; -1 says that it is not about one.
func slotted(err error) (slot int, text string) {
	var e *format.CorruptError
	if !errors.As(err, &e) {
		return -1, err.Error()
	}
	return e.Slot, e.Reason()
}

// mendLeaf puts a refused leaf right.
func (c *changes) mendLeaf(r check.Refused) ([]string, error) {
	raw := c.rawBlock(r.Bytenr)
	if raw == nil || raw.Generation() != r.Generation || raw.Level() != 0 {
		return nil, errors.New("it cannot be read")
	}
	m := &mended{c: c, r: r, ctx: format.CheckContext{Root: r.Tree, SectorSize: c.Super.SectorSize, NodeSize: c.Super.NodeSize, Generation: c.Super.Generation, Csum: c.Super.CsumType}}
	if err := m.take(raw); err != nil {
		return nil, err
	}
	if over, _ := m.find(r.Last); over < len(m.items) && !slices.ContainsFunc(m.items[over:], func(it image.Item) bool { return it.Key.Compare(r.Last) <= 0 }) {
		for _, it := range m.items[over:] {
			m.say("item %v left out: its place is in another leaf", it.Key)
		}
		m.items = m.items[:over]
	}
	size := int(c.Super.NodeSize)
	for range 4*len(m.items) + 16 {
		if m.lost {
			return nil, errors.New("a root item in it cannot be put right")
		}
		n := format.Node(make([]byte, size))
		copy(n, raw[:format.HeaderSize])
		n.SetFlags(format.HeaderFlagWritten | format.MixedBackrefRev<<format.BackrefRevShift)
		room := image.LeafRoom(int(c.Super.NodeSize), m.items)
		image.FillLeaf(n, m.items[:room])
		err := format.CheckLeaf(n, m.ctx)
		if err == nil && room < len(m.items) { // the rest goes to another leaf, which begins anew
			rest := format.Node(slices.Clone(n))
			image.FillLeaf(rest, m.items[room:])
			if image.LeafRoom(int(c.Super.NodeSize), m.items[room:]) < len(m.items)-room {
				return nil, errors.New("its items need three leaves")
			}
			err = format.CheckLeaf(rest, m.ctx)
			if err != nil {
				if slot, text := slotted(err); slot >= 0 {
					m.item(slot+room, text)
					continue
				}
			}
		}
		if err == nil && len(m.items) > 0 && r.First != nil && m.items[0].Key.Less(*r.First) {
			return nil, errors.New("its first key belongs to another leaf")
		}
		if err == nil {
			return m.said, m.store(n)
		}
		slot, text := slotted(err)
		if slot < 0 || slot >= len(m.items) {
			if len(m.items) == 0 {
				return append(m.said, "nothing is left of it"), m.store(n)
			}
			return nil, err
		}
		m.item(slot, text)
	}
	return nil, errors.New("it does not come right")
}

// rawBlock reads the first copy of a block whose checksum is right, if it says that it is this
// block of this file system.
func (c *changes) rawBlock(bytenr uint64) format.Node {
	if n := c.anyBlock(bytenr); n != nil && n.Bytenr() == bytenr && n.FSID() == c.Super.TreeFSID() {
		return n
	}
	return nil
}

// take reads the items. Where the offset and size of one do not end where the one before begins,
// its neighbours say which of the two is wrong.
func (m *mended) take(n format.Node) error {
	size, nr := format.LeafDataSize(len(n)), n.Nritems()
	if nr < 0 || nr > size/format.ItemHeaderSize {
		return fmt.Errorf("%d items", nr)
	}
	end := size
	for i := range nr {
		off, sz := n.ItemOffset(i), n.ItemSize(i)
		if off < 0 || sz < 0 || off+sz != end {
			below := -1 // where this item begins, by the next one
			if i+1 < nr {
				below = n.ItemOffset(i+1) + n.ItemSize(i+1)
			}
			was := fmt.Sprintf("item %d %v: offset %d size %d", i, n.Key(i), off, sz)
			switch {
			case sz >= 0 && sz <= end && (below == end-sz || i+1 == nr):
				off = end - sz
			case off >= 0 && off <= end && below == off:
				sz = end - off
			case off >= nr*format.ItemHeaderSize && sz >= 0 && off+sz <= size:
			default:
				m.say("%s: left out", was)
				continue
			}
			m.say("%s, made %d and %d", was, off, sz)
		}
		end = off
		if off < nr*format.ItemHeaderSize {
			m.say("item %d %v lies over the item headers: left out", i, n.Key(i))
			continue
		}
		m.items = append(m.items, newItem(n.Key(i), slices.Clone(n[format.HeaderSize+off:format.HeaderSize+off+sz])))
	}
	return nil
}

func (m *mended) say(text string, args ...any) { m.said = append(m.said, fmt.Sprintf(text, args...)) }

// passes reports whether an item passes by itself.
func (m *mended) passes(it image.Item) bool {
	n := format.Node(make([]byte, m.c.Super.NodeSize))
	n.InitHeader(m.c.Super.TreeFSID(), format.UUID{}, m.r.Bytenr, m.c.Super.Generation, m.r.Tree, 0)
	n.SetWritten(true)
	image.FillLeaf(n, []image.Item{it})
	return format.CheckLeaf(n, m.ctx) == nil
}

// item puts the item of the slot right, or leaves it out.
func (m *mended) item(slot int, text string) {
	it := &m.items[slot]
	if slot > 0 && !m.items[slot-1].Key.Less(it.Key) {
		m.order(slot)
		return
	}
	if slot > 0 && m.items[slot-1].Key.Objectid != it.Key.Objectid && format.IsFSTree(m.r.Tree) && it.Key.Type != format.INODE_ITEM_KEY && m.passes(*it) {
		m.inodeFor(slot)
		return
	}
	if fixed, ok := m.fixed(*it); ok && (fixed.Key != it.Key || !bytes.Equal(fixed.Data, it.Data)) && m.passes(fixed) {
		m.say("item %v, %s: put right", it.Key, text)
		if fixed.Key == it.Key {
			m.items[slot] = fixed
			return
		}
		m.items = slices.Delete(m.items, slot, slot+1)
		if at, found := m.find(fixed.Key); !found {
			m.items = slices.Insert(m.items, at, fixed)
		}
		return
	}
	if it.Key.Type == format.EXTENT_CSUM_KEY && slot > 0 && m.trim(slot) {
		m.say("item %v, %s: cut", it.Key, text)
		return
	}
	if m.lost = it.Key.Type == format.ROOT_ITEM_KEY; m.lost {
		return // a whole tree
	}
	m.say("item %v left out: %s", it.Key, text)
	m.items = slices.Delete(m.items, slot, slot+1)
}

func (m *mended) find(k format.Key) (int, bool) {
	return slices.BinarySearchFunc(m.items, k, func(it image.Item, k format.Key) int { return it.Key.Compare(k) })
}

// order puts a key right that is not greater than the one before: of the two, the one is wrong that
// its other neighbour contradicts. If one bit of it is wrong, and only one makes it fit, that is
// changed; else the item is left out.
func (m *mended) order(slot int) {
	odd := slot
	if (slot < 2 || m.items[slot-2].Key.Less(m.items[slot].Key)) && (slot+1 >= len(m.items) || m.items[slot].Key.Less(m.items[slot+1].Key)) {
		odd = slot - 1
	}
	if m.items[slot].Key == m.items[slot-1].Key {
		odd = slot
	}
	it := m.items[odd]
	lower, upper := format.Key{}, format.MaxKey
	if odd > 0 {
		lower = m.items[odd-1].Key
	}
	if odd+1 < len(m.items) {
		upper = m.items[odd+1].Key
	}
	var fits []format.Key
	raw := make([]byte, format.KeySize)
	for bit := range 8 * format.KeySize {
		it.Key.Encode(raw)
		raw[bit/8] ^= 1 << (bit % 8)
		k := format.DecodeKey(raw)
		if (lower.Less(k) || odd == 0 && k == lower) && k.Less(upper) && m.passes(newItem(k, it.Data)) {
			fits = append(fits, k)
		}
	}
	if len(fits) == 1 {
		m.say("key %v made %v: one bit was wrong", it.Key, fits[0])
		m.items[odd].Key = fits[0]
		return
	}
	m.say("item %v left out: its key is out of order", it.Key)
	m.items = slices.Delete(m.items, odd, odd+1)
}

// inodeFor makes an inode item for the items from slot on, or leaves them out if they do not say
// what the inode was.
func (m *mended) inodeFor(slot int) {
	ino := m.items[slot].Key.Objectid
	end := slot
	for end < len(m.items) && m.items[end].Key.Objectid == ino {
		end++
	}
	inode, ok := m.c.guessInode(m.r.Tree, ino, m.items[slot:end], m.items)
	if !ok {
		m.say("items of inode %d left out: nothing says what it was", ino)
		m.items = slices.Delete(m.items, slot, end)
		return
	}
	m.say("inode item of %d made from its other items: mode 0%o size %d, owner root", ino, inode.Mode, inode.Size)
	m.items = slices.Insert(m.items, slot, newItem(format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}, encoded(format.InodeItemSize, &inode)))
}

// fixed puts right what an item itself says about what it should be. The key may change.
func (m *mended) fixed(it image.Item) (image.Item, bool) {
	newest := m.c.Super.Generation
	b := slices.Clone(it.Data)
	switch k := it.Key; k.Type {
	case format.INODE_ITEM_KEY:
		if len(b) != format.InodeItemSize {
			return it, false
		}
		var i format.InodeItem
		i.Decode(b)
		i.Generation, i.Transid = min(i.Generation, newest), min(i.Transid, newest)
		if i.Mode &= format.S_IFMT | 0o7777; format.FtOf(i.Mode) == format.FtUnknown {
			j := slices.IndexFunc(m.items, func(o image.Item) bool { return o.Key == k })
			end := j
			for end < len(m.items) && m.items[end].Key.Objectid == k.Objectid {
				end++
			}
			g, ok := m.c.guessInode(m.r.Tree, k.Objectid, m.items[j+1:end], m.items)
			if !ok {
				return it, false
			}
			i.Mode = g.Mode&format.S_IFMT | i.Mode&0o7777
			if m.r.Tree == format.ROOT_TREE_OBJECTID {
				i.Mode = g.Mode // Linux and btrfs check want it exactly so
			}
		}
		if i.Mode&format.S_IFMT == format.S_IFDIR {
			i.Nlink = min(i.Nlink, 1)
		}
		i.Flags &= format.InodeFlagsKnown
		i.Encode(b)
	case format.EXTENT_DATA_KEY:
		if len(b) < format.FileExtentInline {
			return it, false
		}
		v := format.FileExtentView(b)
		v.SetGeneration(min(max(v.Generation(), 1), newest))
		if v.Type() == format.FileExtentTypeInline && v.Compression() == format.CompressNone {
			v.SetRAMBytes(uint64(len(b) - format.FileExtentInline))
		} else if len(b) == format.FileExtentSize && v.DiskBytenr() != 0 && v.Compression() == format.CompressNone && v.Offset()+v.NumBytes() > v.RAMBytes() {
			v.SetRAMBytes(max(v.DiskNumBytes(), v.Offset()+v.NumBytes()))
		}
	case format.ROOT_ITEM_KEY:
		if len(b) < format.RootItemSize {
			return it, false
		}
		var r format.RootItem
		r.Decode(b)
		// A header of the future is put right next.
		if n := m.c.rawBlock(r.Bytenr); n != nil && n.Owner() == k.Objectid {
			r.Generation, r.Level = min(n.Generation(), newest), uint8(n.Level())
		}
		r.GenerationV2 = r.Generation
		r.LastSnapshot = min(r.LastSnapshot, newest)
		r.Inode.Generation, r.Inode.Transid = min(r.Inode.Generation, newest), min(r.Inode.Transid, newest)
		r.Encode(b)
	case format.CHUNK_ITEM_KEY:
		it.Key.Objectid = format.FIRST_CHUNK_TREE_OBJECTID
	case format.DEV_ITEM_KEY:
		it.Key.Objectid = format.DEV_ITEMS_OBJECTID
	case format.DIR_ITEM_KEY, format.XATTR_ITEM_KEY:
		if list, err := format.DirItems(b); err == nil && len(list) == 1 {
			it.Key.Offset = format.NameHash(list[0].Name)
		}
	}
	it.Data = b
	return it, true
}

// trim cuts the start of a csum item that lies over the one before.
func (m *mended) trim(slot int) bool {
	p, it := m.items[slot-1], &m.items[slot]
	size, sector := m.c.Super.CsumType.Size(), uint64(m.c.Super.SectorSize)
	if p.Key.Type != it.Key.Type || p.Key.Objectid != it.Key.Objectid || len(it.Data)%size != 0 {
		return false
	}
	end := p.Key.Offset + uint64(len(p.Data)/size)*sector
	if end <= it.Key.Offset || end%sector != 0 {
		return false
	}
	if cut := (end - it.Key.Offset) / sector * uint64(size); cut < uint64(len(it.Data)) {
		it.Key.Offset, it.Data = end, it.Data[cut:]
		return true
	}
	return false
}

// store writes the leaf, n with what of the items has room in it.
func (m *mended) store(n format.Node) error {
	c, r := m.c, m.r
	if image.LeafRoom(int(c.Super.NodeSize), m.items) == len(m.items) && len(m.items) > 0 && (r.First == nil || *r.First == m.items[0].Key) {
		return c.writeBlock(n)
	}
	for _, o := range c.Refused {
		if o.Bytenr == r.Bytenr && o.Tree != r.Tree {
			return errors.New("several trees share it, and its first key changes")
		}
	}
	var key format.Key
	if r.First != nil {
		key = *r.First
	}
	path, err := c.pathTo(r.Tree, key, r.Bytenr)
	if err != nil {
		return err
	}
	if len(path) > 0 && path[len(path)-1].N.Blockptr(path[len(path)-1].Slot) != r.Bytenr {
		return errors.New("its parent is not found")
	}
	return c.edits().StoreLeaf(r.Tree, append(path, image.Step{N: n}), m.items)
}

// mendRefused mends all refused leaves of trees that are not made anew as a whole.
func (c *changes) mendRefused() {
	made := c.madeTrees()
	done := map[uint64]bool{}
	for _, r := range c.Refused {
		if done[r.Bytenr] || r.Tree != format.CSUM_TREE_OBJECTID && slices.Contains(made, r.Tree) {
			continue
		}
		done[r.Bytenr] = true
		if r.Level > 0 {
			c.try(fmt.Sprintf("node %d of tree %d: its pointers, from the blocks that they point at", r.Bytenr, int64(r.Tree)), c.mendNode(r))
			continue
		}
		what := fmt.Sprintf("leaf %d of tree %d", r.Bytenr, int64(r.Tree))
		said, err := c.mendLeaf(r)
		if err != nil {
			c.try(what, err)
			continue
		}
		for _, s := range said {
			c.try(what+": "+s, nil)
		}
		if len(said) == 0 {
			c.try(what+": its header", nil)
		}
	}
}

// mendNode makes the pointers of an inner node anew: each child says what its first key and its
// generation are. How many there are is what nritems says, or if that cannot be, as many as lead to
// blocks of the tree.
func (c *changes) mendNode(r check.Refused) error {
	n := c.rawBlock(r.Bytenr)
	if n == nil || n.Level() != r.Level || n.Generation() != r.Generation {
		return errors.New("it cannot be read")
	}
	per := format.PtrsPerNode(len(n))
	many := n.Nritems()
	sane := many > 0 && many <= per
	if !sane {
		many = per
	}
	var ptrs []image.Ptr
	for i := range many {
		child := c.rawBlock(n.Blockptr(i))
		if child == nil || child.Level() != r.Level-1 || !sameTree(child.Owner(), r.Tree) || child.Nritems() == 0 || child.Generation() > n.Generation() {
			if sane {
				return fmt.Errorf("at %d is no block of the tree", n.Blockptr(i))
			}
			break
		}
		p := image.Ptr{Key: child.Key(0), Bytenr: child.Bytenr(), Generation: child.Generation()}
		if len(ptrs) > 0 && !ptrs[len(ptrs)-1].Key.Less(p.Key) {
			return errors.New("what its pointers lead to is not in order")
		}
		ptrs = append(ptrs, p)
	}
	if len(ptrs) == 0 || r.First != nil && ptrs[0].Key != *r.First {
		return errors.New("its first pointer is lost")
	}
	image.FillNode(n, ptrs)
	n.SetFlags(format.HeaderFlagWritten | format.MixedBackrefRev<<format.BackrefRevShift)
	return c.writeBlock(n)
}

// sameTree reports whether a block of the owner may be in the tree: subvolumes share blocks.
func sameTree(owner, tree uint64) bool {
	return owner == tree || format.IsFSTree(owner) && format.IsFSTree(tree)
}

// strayBlock is a tree block that a scan finds.
type strayBlock struct {
	bytenr, owner, generation uint64
	level                     int
	first                     format.Key
}

// scan calls f with the header of each block of the file system that has a right checksum.
func (c *changes) scan(f func(n format.Node)) {
	size := uint64(c.Super.NodeSize)
	n := format.Node(make([]byte, size))
	for i := range c.Chunks {
		ch := &c.Chunks[i]
		if ch.Type&(format.BlockGroupMetadata|format.BlockGroupSystem) == 0 {
			continue
		}
		for at := format.AlignUp(ch.Start, size); at+size <= ch.Start+ch.Length; at += size {
			places, run := ch.Places(at)
			for _, p := range places {
				if run >= size && p.Dev != nil && blockdev.Read(c.Task, p.Dev, n, int64(p.Off)) == nil && n.Bytenr() == at && n.FSID() == c.Super.TreeFSID() &&
					n.Generation() <= c.Super.Generation && c.Super.CsumType.BlockMatch(n) {
					f(n)
					break
				}
			}
		}
	}
}

// mendMeant finds the block that a pointer means which leads to none of its tree: of all blocks it
// is the only one with the key, the level and the generation that the pointer has, and that no tree
// comes to.
func (c *changes) mendMeant() {
	var list []strayBlock
	for _, r := range c.Misfits {
		if r.First == nil || slices.Contains(c.madeTrees(), r.Tree) {
			continue
		}
		if n := c.rawBlock(r.Bytenr); n != nil && n.Level() == r.Level && sameTree(n.Owner(), r.Tree) && n.Nritems() > 0 && n.Key(0) == *r.First {
			continue // it means this one
		} else if c.ChunkAt(r.Bytenr) != nil && c.anyBlock(r.Bytenr) == nil {
			continue // which may be bad
		}
		if list == nil {
			list = []strayBlock{}
			c.scan(func(n format.Node) {
				if _, met := c.Visited[n.Bytenr()]; !met && n.Nritems() > 0 {
					list = append(list, strayBlock{n.Bytenr(), n.Owner(), n.Generation(), n.Level(), n.Key(0)})
				}
			})
		}
		var meant []uint64
		for _, b := range list {
			if sameTree(b.owner, r.Tree) && b.generation == r.Generation && b.level == r.Level && b.first == *r.First {
				meant = append(meant, b.bytenr)
			}
		}
		if len(meant) != 1 {
			continue
		}
		parent, slot := c.parentWith(r)
		if parent == nil {
			continue
		}
		parent.SetBlockptr(slot, meant[0])
		c.try(fmt.Sprintf("pointer to block %d of tree %d: block %d is meant", r.Bytenr, int64(r.Tree), meant[0]), c.writeBlock(parent))
	}
}

// parentWith finds the block with the pointer of a misfit.
func (c *changes) parentWith(r check.Refused) (format.Node, int) {
	path, err := c.pathTo(r.Tree, *r.First, r.Bytenr)
	if err != nil || len(path) == 0 {
		return nil, 0
	}
	up := path[len(path)-1]
	if up.N.Level() != r.Level+1 || up.N.Blockptr(up.Slot) != r.Bytenr || up.N.Key(up.Slot) != *r.First {
		return nil, 0
	}
	return up.N, up.Slot
}

// guessInode makes an inode item from the other items of the inode and the entry that names it. Its
// owner, times and permissions are lost: it belongs to root. False: nothing says what it was. Leaf
// has the other items of a leaf that cannot be read as it is.
func (c *changes) guessInode(tree, ino uint64, items, leaf []image.Item) (format.InodeItem, bool) {
	i := format.InodeItem{Generation: c.Super.Generation, Transid: c.Super.Generation}
	var extents, entries bool
	var kind uint8
	inline := uint64(0)
	for _, it := range items {
		switch it.Key.Type {
		case format.INODE_REF_KEY:
			refs, _ := format.InodeRefs(it.Data)
			i.Nlink += uint32(len(refs))
			for _, r := range refs {
				kind = cmp.Or(kind, c.entryType(tree, it.Key.Offset, ino, r.Name))
			}
		case format.INODE_EXTREF_KEY:
			refs, _ := format.InodeExtrefs(it.Data)
			i.Nlink += uint32(len(refs))
			for _, r := range refs {
				kind = cmp.Or(kind, c.entryType(tree, r.Parent, ino, r.Name))
			}
		case format.DIR_ITEM_KEY, format.DIR_INDEX_KEY:
			entries = true
			list, _ := format.DirItems(it.Data)
			for _, d := range list {
				i.Size += uint64(len(d.Name))
			}
		case format.EXTENT_DATA_KEY:
			extents = true
			if len(it.Data) < format.FileExtentInline {
				continue
			}
			var fe format.FileExtent
			switch fe.Decode(it.Data); {
			case fe.Type == format.FileExtentTypeInline:
				inline = fe.RAMBytes
				i.Size = max(i.Size, fe.RAMBytes)
				i.Nbytes += fe.RAMBytes
			default:
				i.Size = max(i.Size, it.Key.Offset+fe.NumBytes)
				if fe.DiskBytenr != 0 {
					i.Nbytes += fe.NumBytes
				}
			}
		}
	}
	switch {
	// A free space cache.
	case tree == format.ROOT_TREE_OBJECTID && ino != format.ROOT_TREE_DIR_OBJECTID:
		i.Mode, i.Nlink = format.S_IFREG|0o600, 1
		return i, true
	case ino == format.FIRST_FREE_OBJECTID || entries:
		kind = format.FtDir
	case extents && kind != format.FtSymlink:
		kind = format.FtRegFile
	case kind == format.FtSymlink && inline == 0 || kind == format.FtUnknown || kind == format.FtChrdev || kind == format.FtBlkdev:
		return i, false
	}
	i.Mode = map[uint8]uint32{format.FtDir: format.S_IFDIR | 0o700, format.FtRegFile: format.S_IFREG | 0o600, format.FtSymlink: format.S_IFLNK | 0o777,
		format.FtFifo: format.S_IFIFO | 0o600, format.FtSock: format.S_IFSOCK | 0o600}[kind]
	if ino == format.FIRST_FREE_OBJECTID {
		i.Mode, i.Nlink = format.S_IFDIR|0o755, 1
	}
	if kind == format.FtDir {
		i.Nlink = min(i.Nlink, 1)
	}
	// Without a link a mount deletes it. Only an orphan item says that this was meant.
	if i.Nlink == 0 && !c.isOrphan(tree, ino, leaf) {
		i.Nlink = 1
	}
	return i, i.Mode != 0
}

// isOrphan reports whether a tree, or a leaf of it that cannot be read, has an orphan item for the
// inode.
func (c *changes) isOrphan(tree, ino uint64, leaf []image.Item) bool {
	key := format.Key{Objectid: format.ORPHAN_OBJECTID, Type: format.ORPHAN_ITEM_KEY, Offset: ino}
	found := slices.ContainsFunc(leaf, func(it image.Item) bool { return it.Key == key })
	c.Search(tree, key, func(k format.Key, _ []byte) bool {
		found = found || k == key
		return false
	})
	return found
}

// entryType is the type that the entry of a directory has for the inode; FtUnknown if there is
// none.
func (c *changes) entryType(tree, dir, ino uint64, name string) (kind uint8) {
	c.Search(tree, format.Key{Objectid: dir, Type: format.DIR_ITEM_KEY}, func(k format.Key, b []byte) bool {
		if k.Type != format.DIR_ITEM_KEY && k.Type != format.DIR_INDEX_KEY {
			return false
		}
		list, _ := format.DirItems(b)
		for _, d := range list {
			if d.Name == name && d.Location == (format.Key{Objectid: ino, Type: format.INODE_ITEM_KEY}) {
				kind = d.Type &^ 0x80
			}
		}
		return kind == 0
	})
	return kind
}

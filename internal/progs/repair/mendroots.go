package repair

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
)

// The root tree, the device tree, the chunk tree and the fields of the superblock, put right.

// mendRoots puts right what the root tree says of trees and of links of subvolumes. A tree that a
// rebuild makes, and that has got its root item, is made.
func (c *changes) mendRoots() {
	rebuild := false
	for i := range c.Findings {
		f := &c.Findings[i]
		root, id := f.Place.Num(check.AtTree), f.Place.Num(check.AtRootItem)
		info, known := c.Roots[id]
		switch f.Rule {
		case "root.orphan":
			c.try(fmt.Sprintf("orphan item of subvolume %d, which a mount will delete", root),
				c.insertItem(format.ROOT_TREE_OBJECTID, format.Key{Objectid: format.ORPHAN_OBJECTID, Type: format.ORPHAN_ITEM_KEY, Offset: root}, nil))
		case "root.missing":
			made, err := c.makeTree(id)
			c.try(fmt.Sprintf("tree %d, which has no root item: a new one", int64(id)), err)
			rebuild = rebuild || made
		case "root.item", "root.flags":
			if !known || f.Flaw == check.SecondRootItem || info.V1 {
				continue
			}
			if f.Flaw == check.RootItemOffset {
				c.try(fmt.Sprintf("root item of tree %d: %s, made 0", int64(id), f.Have), c.rekey(info))
				continue
			}
			c.try(fmt.Sprintf("root item of tree %d: %s", int64(id), f.Have), c.editItem(format.ROOT_TREE_OBJECTID, info.Key, func(b []byte) error {
				var r format.RootItem
				r.Decode(b)
				was := r
				r.GenerationV2 = r.Generation
				if format.IsFSTree(id) {
					r.RootDirid = format.FIRST_FREE_OBJECTID
					if r.Flags&format.RootSubvolReadonly != 0 && r.Refs != 0 {
						r.Inode.Flags |= format.InodeRootItemInit
					}
				}
				if id == format.FS_TREE_OBJECTID && r.Refs == 0 {
					r.Refs = 1
				}
				if r.Encode(b); r == was {
					return errors.New("what it should be is not known")
				}
				return nil
			}))
		}
	}
	c.mendLinks()
	if rebuild {
		c.remake()
	}
}

// rekey gives a root item the key offset 0.
func (c *changes) rekey(info check.Root) error {
	k := info.Key
	k.Offset = 0
	b := encoded(format.RootItemSize, &info.Item)
	if err := errors.Join(c.deleteItem(format.ROOT_TREE_OBJECTID, info.Key), c.insertItem(format.ROOT_TREE_OBJECTID, k, b)); err != nil {
		return err
	}
	info.Key = k
	c.Roots[k.Objectid] = info
	return nil
}

// makeTree gives a tree that is gone a root item. Rebuild: the tree itself is to be made by a
// rebuild; else it is made here.
func (c *changes) makeTree(id uint64) (rebuild bool, err error) {
	k := format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}
	r := format.RootItem{Generation: c.Super.Generation, GenerationV2: c.Super.Generation, Refs: 1, BytesUsed: uint64(c.Super.NodeSize)}
	add := func() error {
		err := c.insertItem(format.ROOT_TREE_OBJECTID, k, encoded(format.RootItemSize, &r))
		if err == nil {
			c.Roots[id] = check.Root{Item: r, Key: k}
			c.RootIDs = append(c.RootIDs, id)
			slices.Sort(c.RootIDs)
		}
		return err
	}
	var items []image.Item
	switch id {
	case format.EXTENT_TREE_OBJECTID, format.CSUM_TREE_OBJECTID, format.FREE_SPACE_TREE_OBJECTID, format.BLOCK_GROUP_TREE_OBJECTID:
		return true, add()
	case format.DATA_RELOC_TREE_OBJECTID:
		r.RootDirid = format.FIRST_FREE_OBJECTID
		dir := format.InodeItem{Generation: 1, Transid: 1, Nlink: 1, Mode: format.S_IFDIR | 0o755}
		dots := format.InodeRef{Name: ".."}
		items = []image.Item{newItem(format.Key{Objectid: format.FIRST_FREE_OBJECTID, Type: format.INODE_ITEM_KEY}, encoded(format.InodeItemSize, &dir)),
			newItem(format.Key{Objectid: format.FIRST_FREE_OBJECTID, Type: format.INODE_REF_KEY, Offset: format.FIRST_FREE_OBJECTID}, encoded(dots.Size(), dots))}
	case format.DEV_TREE_OBJECTID:
		items = c.devItems()
	default:
		return false, c.findTree(id)
	}
	n, err := c.newNode(id, 0)
	if err != nil || len(items) == 0 {
		return false, errors.Join(err, errors.New("there is nothing to put in it"))
	}
	image.FillLeaf(n, items[:1])
	if err := c.writeBlock(n); err != nil {
		return false, err
	}
	r.Bytenr = n.Bytenr()
	if err := add(); err != nil {
		return false, err
	}
	for _, it := range items[1:] {
		if err := c.insertItem(id, it.Key, it.Data); err != nil {
			return false, err
		}
	}
	return false, nil
}

// findTree makes a root item for a subvolume that has none: of the blocks that say they are its,
// the newest, and of those the uppermost, is the root, if all below it is whole. It counts as
// shared: Linux then looks its references up before it writes to a block of it.
func (c *changes) findTree(id uint64) error {
	var best format.Node
	c.scan(func(n format.Node) {
		if n.Owner() == id && (best == nil || n.Generation() > best.Generation() || n.Generation() == best.Generation() && n.Level() > best.Level()) {
			best = slices.Clone(n)
		}
	})
	if best == nil {
		return errors.New("no block of it is left")
	}
	w := c.Walker()
	if best.Level() >= format.MaxLevel || !w.Tree(id, format.RootItem{Bytenr: best.Bytenr(), Generation: best.Generation(), Level: uint8(best.Level())}, format.Key{}, func(format.Node, bool) {}, nil) {
		return fmt.Errorf("its newest root, at %d, does not lead to all of it: rescue copy gets the files", best.Bytenr())
	}
	blocks, _, _ := w.Uses()
	r := format.RootItem{Generation: best.Generation(), GenerationV2: best.Generation(), Bytenr: best.Bytenr(), Level: uint8(best.Level()), RootDirid: format.FIRST_FREE_OBJECTID,
		Refs: 1, LastSnapshot: c.Super.Generation, BytesUsed: uint64(len(blocks)) * uint64(c.Super.NodeSize)}
	k := format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}
	if err := c.insertItem(format.ROOT_TREE_OBJECTID, k, encoded(format.RootItemSize, &r)); err != nil {
		return err
	}
	c.Roots[id] = check.Root{Item: r, Key: k}
	c.RootIDs = append(c.RootIDs, id)
	slices.Sort(c.RootIDs)
	return nil
}

// devItems are the device extents that the chunks have, ascending.
func (c *changes) devItems() (items []image.Item) {
	for i := range c.Chunks {
		for _, s := range c.Chunks[i].Stripes {
			if s.Dev != nil {
				items = append(items, c.devItem(&c.Chunks[i], s))
			}
		}
	}
	slices.SortFunc(items, func(a, b image.Item) int { return a.Key.Compare(b.Key) })
	return items
}

func (c *changes) devItem(ch *check.Chunk, s check.Stripe) image.Item {
	x := format.DevExtent{ChunkTree: format.CHUNK_TREE_OBJECTID, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, ChunkOffset: ch.Start, Length: ch.StripeLength()}
	if n := c.Peek(c.Super.Root, c.Super.Generation, int(c.Super.RootLevel)); n != nil {
		x.ChunkTreeUUID = n.ChunkTreeUUID()
	}
	return newItem(format.Key{Objectid: s.Dev.ID(), Type: format.DEV_EXTENT_KEY, Offset: s.Off}, encoded(format.DevExtentSize, &x))
}

// link is a link of a subvolume, which the root tree has from both ends.
type link struct {
	parent, child uint64
	ref           format.RootRef
}

// The two ends of a link, as bits.
const (
	endRef     = 1 << iota // ROOT_REF
	endBackref             // ROOT_BACKREF
	endBoth    = endRef | endBackref
)

// key is that of the item at one end.
func (l link) key(end int) format.Key {
	if end == endRef {
		return format.Key{Objectid: l.parent, Type: format.ROOT_REF_KEY, Offset: l.child}
	}
	return format.Key{Objectid: l.child, Type: format.ROOT_BACKREF_KEY, Offset: l.parent}
}

// item is the item at both ends.
func (l link) item() []byte { return encoded(format.RootRefSize+len(l.ref.Name), &l.ref) }

// mendLinks pairs the links of subvolumes, and links those that have none.
func (c *changes) mendLinks() {
	ends := map[link]int{}
	var order []link
	linked, tried := map[uint64]bool{}, map[uint64]bool{}
	for _, r := range c.RootRefs {
		l := link{r.Parent, r.Child, r.RootRef}
		if ends[l] == 0 {
			order = append(order, l)
		}
		if r.Back {
			ends[l] |= endBackref
		} else {
			ends[l] |= endRef
		}
	}
	settled := map[[2]uint64]bool{}
	for _, l := range order {
		if pair := [2]uint64{l.parent, l.child}; ends[l] != endBoth {
			if settled[pair] {
				continue
			}
			if right := c.entryOf(l.parent, l.child); right != nil && *right != l.ref {
				settled[pair], linked[l.child] = true, true
				c.try(l.String()+": both ends as its entry has them", c.putLink(l.parent, l.child, *right))
				continue
			}
		}
		if _, ok := c.Roots[l.child]; !ok && !tried[l.child] {
			tried[l.child] = true
			c.restoreRoot(l.child)
		}
		if c.mendLink(l, ends[l]) {
			linked[l.child] = true
		}
	}
	for _, f := range c.Findings {
		if id, ok := f.Place.Get(check.AtTree); f.Rule == "root.ref" && ok && id != format.ROOT_TREE_OBJECTID && !linked[id] {
			c.linkNameless(id)
		}
	}
}

func (l link) String() string {
	return fmt.Sprintf("link %q of subvolume %d in %d", l.ref.Name, l.child, l.parent)
}

// restoreRoot gives a subvolume that a link names its root item.
func (c *changes) restoreRoot(id uint64) {
	if err := c.findTree(id); err != nil {
		c.try(fmt.Sprintf("root item of subvolume %d", id), err)
		return
	}
	c.try(fmt.Sprintf("root item of subvolume %d: its newest root, at %d, is whole; its UUID and whether it was read-only are lost", id, c.Roots[id].Item.Bytenr), nil)
}

// mendLink gives a link, of which the root tree has these ends, the other, or drops it if one of
// its subvolumes is gone. It reports whether the child is linked.
func (c *changes) mendLink(l link, ends int) bool {
	child, ok := c.Roots[l.child]
	parent, up := c.Roots[l.parent]
	switch {
	case !ok || !up || child.Item.Refs > 0 && parent.Item.Refs == 0:
		var err error
		for _, end := range []int{endRef, endBackref} {
			if ends&end != 0 {
				err = errors.Join(err, c.deleteItem(format.ROOT_TREE_OBJECTID, l.key(end)))
			}
		}
		if up && parent.Item.Refs > 0 {
			m := &mender{c: c, f: &check.Files{Root: l.parent}}
			e := records{Name: check.Name{Dir: l.ref.Dirid, Target: l.child, Subvol: true}, text: l.ref.Name}
			err = errors.Join(err, m.delItem(e), m.delIndex(e, l.ref.Sequence))
		}
		c.try(l.String()+": dropped, one of the two is gone", err)
		return false
	case ends == endRef:
		c.try(l.String()+": its ROOT_BACKREF", c.insertItem(format.ROOT_TREE_OBJECTID, l.key(endBackref), l.item()))
	case ends == endBackref:
		c.try(l.String()+": its ROOT_REF", c.insertItem(format.ROOT_TREE_OBJECTID, l.key(endRef), l.item()))
	}
	return true
}

// linkNameless links a subvolume that has no name: as the entry that names it has it, or into
// lost+found of the top level.
func (c *changes) linkNameless(id uint64) {
	what := fmt.Sprintf("subvolume %d, which has no name", id)
	l, found := c.entryTo(id)
	if !found {
		m := c.menderOf(format.FS_TREE_OBJECTID)
		if m == nil {
			c.try(what, errors.New("the top level cannot be read whole"))
			return
		}
		dir, err := m.lostFound()
		if err != nil {
			c.try(what, err)
			return
		}
		l = link{format.FS_TREE_OBJECTID, id, format.RootRef{Dirid: dir, Sequence: m.freeIndex(dir), Name: fmt.Sprintf("subvolume-%d", id)}}
		e := records{Name: check.Name{Dir: dir, Target: id, Subvol: true}, text: l.ref.Name}
		if err := m.entry(e, l.ref.Sequence); err != nil {
			c.try(what, err)
			return
		}
	}
	c.try(fmt.Sprintf("%s: linked as %q in directory %d of subvolume %d", what, l.ref.Name, l.ref.Dirid, l.parent), errors.Join(
		c.insertItem(format.ROOT_TREE_OBJECTID, l.key(endRef), l.item()),
		c.insertItem(format.ROOT_TREE_OBJECTID, l.key(endBackref), l.item())))
}

// entryTo is the link of a subvolume by the first entry, in any subvolume, that names it.
func (c *changes) entryTo(id uint64) (l link, found bool) {
	for _, r := range c.RootIDs {
		if !format.IsFSTree(r) || found {
			continue
		}
		c.Each(r, func(k format.Key, b []byte) {
			if list, err := format.DirItems(b); k.Type == format.DIR_INDEX_KEY && err == nil && len(list) == 1 && !found &&
				list[0].Location.Type == format.ROOT_ITEM_KEY && list[0].Location.Objectid == id {
				l, found = link{r, id, format.RootRef{Dirid: k.Objectid, Sequence: k.Offset, Name: list[0].Name}}, true
			}
		})
	}
	return l, found
}

// entryOf is the link of a subvolume as the entry in its directory has it; nil unless there is one
// entry, of which the DIR_ITEM says the same.
func (c *changes) entryOf(parent, child uint64) (ref *format.RootRef) {
	var index []format.RootRef
	items := map[format.RootRef]bool{} // without the sequence
	c.Each(parent, func(k format.Key, b []byte) {
		if k.Type != format.DIR_INDEX_KEY && k.Type != format.DIR_ITEM_KEY {
			return
		}
		list, err := format.DirItems(b)
		if err != nil {
			return
		}
		for _, d := range list {
			switch {
			case d.Location.Type != format.ROOT_ITEM_KEY || d.Location.Objectid != child:
			case k.Type == format.DIR_INDEX_KEY:
				index = append(index, format.RootRef{Dirid: k.Objectid, Sequence: k.Offset, Name: d.Name})
			default:
				items[format.RootRef{Dirid: k.Objectid, Name: d.Name}] = true
			}
		}
	})
	if len(index) != 1 || !items[format.RootRef{Dirid: index[0].Dirid, Name: index[0].Name}] {
		return nil
	}
	return &index[0]
}

// putLink writes both items of a link, in the place of those that are there.
func (c *changes) putLink(parent, child uint64, ref format.RootRef) error {
	b := encoded(format.RootRefSize+len(ref.Name), &ref)
	put := func(k format.Key) error {
		return c.changeItem(format.ROOT_TREE_OBJECTID, k, func([]byte, bool) ([]byte, bool, error) { return b, true, nil })
	}
	return errors.Join(put(format.Key{Objectid: parent, Type: format.ROOT_REF_KEY, Offset: child}),
		put(format.Key{Objectid: child, Type: format.ROOT_BACKREF_KEY, Offset: parent}))
}

// mendKeys drops the items whose key has a type that btrfs does not have in their tree, and the
// caches of free inode numbers. An item that a feature could own is left: the superblock check has
// refused incompat and compat_ro features that this program does not know, so that is any compat
// feature.
func (c *changes) mendKeys() {
	for i := range c.Findings {
		f := &c.Findings[i]
		root := f.Place.Num(check.AtTree)
		switch f.Rule {
		case "tree.key_type":
			k, ok := f.Have.(format.Key)
			what := fmt.Sprintf("item %s of tree %d", f.Have, int64(root))
			switch {
			case !ok:
			case c.Super.CompatFlags != 0:
				c.try(what, fmt.Errorf("a feature may own it, compat 0x%x", c.Super.CompatFlags))
			case !format.IsFSTree(root) && root != format.ROOT_TREE_OBJECTID:
				if !slices.Contains(c.madeTrees(), root) {
					c.try(what, errors.New("it is in a tree where this repair drops nothing"))
				}
			default:
				c.try(what+": dropped, no version of btrfs has such a key in this tree", c.deleteItem(root, k))
			}
		case "inode.cache":
			var keys []format.Key
			c.Each(root, func(k format.Key, _ []byte) {
				if k.Objectid == format.FREE_INO_OBJECTID || k.Objectid == format.FREE_SPACE_OBJECTID {
					keys = append(keys, k)
				}
			})
			var err error
			// The inode item last: without it the leaf is refused.
			for _, k := range slices.Backward(keys) {
				err = errors.Join(err, c.deleteItem(root, k))
			}
			c.try(fmt.Sprintf("cache of free inode numbers of subvolume %d: dropped, Linux has none since 5.11", root), err)
		}
	}
}

// mendDevExtents makes the device extents those that the chunks have.
func (c *changes) mendDevExtents() {
	if _, ok := c.Roots[format.DEV_TREE_OBJECTID]; !ok {
		return
	}
	want := map[format.Key][]byte{}
	for _, it := range c.devItems() {
		want[it.Key] = it.Data
	}
	var gone []image.Item
	have := map[format.Key]bool{}
	c.Each(format.DEV_TREE_OBJECTID, func(k format.Key, b []byte) {
		if k.Type != format.DEV_EXTENT_KEY {
			return
		}
		w, ok := want[k]
		var x, y format.DevExtent
		x.Decode(b)
		if ok {
			y.Decode(w)
		}
		if !ok || x.ChunkOffset != y.ChunkOffset || x.Length != y.Length {
			gone = append(gone, newItem(k, slices.Clone(b)))
		} else {
			have[k] = true
		}
	})
	for _, it := range gone {
		var x format.DevExtent
		x.Decode(it.Data)
		c.try(fmt.Sprintf("device extent at %d of device %d: dropped, chunk %d has no such stripe", it.Key.Offset, it.Key.Objectid, x.ChunkOffset), c.deleteItem(format.DEV_TREE_OBJECTID, it.Key))
	}
	for _, it := range c.devItems() {
		if !have[it.Key] {
			var x format.DevExtent
			x.Decode(it.Data)
			c.try(fmt.Sprintf("device extent at %d of device %d: of chunk %d", it.Key.Offset, it.Key.Objectid, x.ChunkOffset), c.insertItem(format.DEV_TREE_OBJECTID, it.Key, it.Data))
		}
	}
}

// mendChunks makes the chunk items anew of block groups that have none, if the device extents say
// where each stripe is. In a profile with an order of its stripes they do not.
func (c *changes) mendChunks() {
	for _, g := range c.Groups {
		if c.ChunkAt(g.Start) != nil {
			continue
		}
		ch := format.Chunk{Length: g.Length, Owner: format.EXTENT_TREE_OBJECTID, StripeLen: format.StripeLen, Type: g.Flags, IOAlign: format.StripeLen, IOWidth: format.StripeLen,
			SectorSize: c.Super.SectorSize, SubStripes: 1}
		for _, d := range c.Devs {
			for _, x := range d.Extents {
				if x.Logical == g.Start && x.Length == g.Length {
					ch.Stripes = append(ch.Stripes, format.Stripe{Devid: d.ID(), Offset: x.Physical, DevUUID: d.Super.DevItem.UUID})
				}
			}
		}
		n := map[uint64]int{0: 1, format.BlockGroupDup: 2, format.BlockGroupRAID1: 2, format.BlockGroupRAID1C3: 3, format.BlockGroupRAID1C4: 4}[g.Flags&format.BlockGroupProfileMask]
		if len(ch.Stripes) == 0 {
			continue // a rebuild drops the block group
		}
		what := fmt.Sprintf("chunk %d", g.Start)
		if n != len(ch.Stripes) {
			c.try(what, fmt.Errorf("its device extents have no order, or are %d instead of %d", len(ch.Stripes), n))
			continue
		}
		err := c.insertItem(format.CHUNK_TREE_OBJECTID, format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: g.Start}, encoded(ch.Size(), &ch))
		c.try(what+": made anew from its block group and device extents", err)
	}
}

// mendStripes gives the stripes of chunks the device that is meant: by its number, or by its UUID;
// and one beyond the end of its device the place of the device extent that has no stripe.
// Chunks in whose place another is, and that have no block group, are dropped.
func (c *changes) mendStripes() {
	var list []image.Item
	c.Each(format.CHUNK_TREE_OBJECTID, func(k format.Key, b []byte) {
		if k.Type == format.CHUNK_ITEM_KEY {
			list = append(list, newItem(k, slices.Clone(b)))
		}
	})
	for _, it := range list {
		var ch format.Chunk
		ch.Decode(it.Data)
		what := fmt.Sprintf("chunk %d", it.Key.Offset)
		if at := c.ChunkAt(it.Key.Offset); (at == nil || at.Start != it.Key.Offset) && c.ExtentsWhole && !slices.ContainsFunc(c.Groups, func(g check.Group) bool { return g.Start == it.Key.Offset }) {
			c.try(what+": dropped, it lies over another and has no block group", c.deleteItem(format.CHUNK_TREE_OBJECTID, it.Key))
			continue
		}
		changed := false
		for i, s := range ch.Stripes {
			if d := c.DeviceOf(s); d != nil && s.Offset > uint64(d.Size())-min(uint64(d.Size()), ch.Length) {
				for _, x := range d.Extents {
					if x.Logical == it.Key.Offset && !slices.ContainsFunc(ch.Stripes, func(o format.Stripe) bool { return c.DeviceOf(o) == d && o.Offset == x.Physical }) {
						ch.Stripes[i].Offset = x.Physical
						changed = true
					}
				}
			}
			for _, d := range c.Devs {
				if c.DeviceOf(s) == nil && (d.ID() == s.Devid || d.Super.DevItem.UUID == s.DevUUID) {
					ch.Stripes[i].Devid, ch.Stripes[i].DevUUID = d.ID(), d.Super.DevItem.UUID
					changed = true
				}
			}
		}
		if changed {
			c.try(what+": its stripes where the devices have them", c.editItem(format.CHUNK_TREE_OBJECTID, it.Key, func(b []byte) error { ch.Encode(b); return nil }))
		}
	}
}

// mendArray makes the array of system chunks in the superblocks, after the chunk tree has got those
// that only the array has.
func (c *changes) mendArray() {
	for a := c.Super.SysChunkArray; len(a) > 0; {
		k, size := format.DecodeKey(a), format.KeySize+format.ChunkSize(format.ChunkStripes(a[format.KeySize:]))
		item := a[format.KeySize:size]
		a = a[size:]
		missing := true
		c.Search(format.CHUNK_TREE_OBJECTID, k, func(at format.Key, _ []byte) bool { missing = at != k; return false })
		// It is in use.
		if g := c.GroupAt(k.Offset); missing && g != nil && g.Start == k.Offset {
			c.try(fmt.Sprintf("chunk %d: from the array of the superblock", k.Offset), c.insertItem(format.CHUNK_TREE_OBJECTID, k, item))
		}
	}
	var array []byte
	c.Each(format.CHUNK_TREE_OBJECTID, func(k format.Key, b []byte) {
		if k.Type == format.CHUNK_ITEM_KEY && format.ChunkView(b).Type()&format.BlockGroupSystem != 0 {
			array = append(append(array, encoded(format.KeySize, k)...), b...)
		}
	})
	err := errors.New("the system chunks have no room in it, or there are none")
	if len(array) > 0 && len(array) <= format.SysChunkArrayMax {
		err = c.editSupers(c.Devs, func(s *format.Super) { s.SysChunkArray = array })
	}
	c.try("array of system chunks in the superblock: from the chunk tree", err)
}

// mendDevItem makes the device items that are missing, and the sizes that follow from them.
func (c *changes) mendDevItem() {
	for _, d := range c.Devs {
		k := format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: d.ID()}
		missing := true
		c.Search(format.CHUNK_TREE_OBJECTID, k, func(at format.Key, _ []byte) bool { missing = at != k; return false })
		if missing {
			c.try(fmt.Sprintf("device item %d: from the superblock", d.ID()), c.insertItem(format.CHUNK_TREE_OBJECTID, k, encoded(format.DevItemSize, &d.Super.DevItem)))
		}
	}
	var total uint64
	for _, d := range c.Devs {
		var item format.DevItem
		k := format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: d.ID()}
		odd := false
		c.Search(format.CHUNK_TREE_OBJECTID, k, func(at format.Key, b []byte) bool {
			if at == k {
				item.Decode(b)
				odd = item.TotalBytes%uint64(c.Super.SectorSize) != 0
			}
			return false
		})
		if odd { // Linux rounds it down
			item.TotalBytes -= item.TotalBytes % uint64(c.Super.SectorSize)
			err := c.editItem(format.CHUNK_TREE_OBJECTID, k, func(b []byte) error { item.Encode(b); return nil })
			c.try(fmt.Sprintf("size of device %d: %d, whole sectors", d.ID(), item.TotalBytes), errors.Join(err, c.editSupers([]*check.Device{d}, func(s *format.Super) { s.DevItem = item })))
		}
		total += item.TotalBytes
	}
	if total != c.Super.TotalBytes && total > 0 {
		c.try(fmt.Sprintf("total_bytes of the superblock: %d, was %d", total, c.Super.TotalBytes), c.editSupers(c.Devs, func(s *format.Super) { s.TotalBytes = total }))
	}

}

// menderOf reads a subvolume anew, for changes of its names; nil if it cannot be read whole.
func (c *changes) menderOf(id uint64) *mender {
	f := c.FilesOf(id)
	if f == nil {
		return nil
	}
	return &mender{c: c, f: f}
}

// mendHeaders puts a header right of which one field is wrong: all others, and the first key, are
// what the parent of the block says. Another generation may be that of a write that was lost, so it
// is taken for wrong only if it is of the future.
func (c *changes) mendHeaders() {
	done := map[uint64]bool{}
	for _, r := range c.Misfits {
		n := c.anyBlock(r.Bytenr)
		if n == nil || done[r.Bytenr] || r.Level >= format.MaxLevel || r.First != nil && (n.Nritems() == 0 || n.Key(0) != *r.First) {
			continue
		}
		done[r.Bytenr] = true
		wrong := 0
		for _, bad := range []bool{n.Bytenr() != r.Bytenr, n.FSID() != c.Super.TreeFSID(), n.Level() != r.Level, n.Generation() != r.Generation, !sameTree(n.Owner(), r.Tree)} {
			if bad {
				wrong++
			}
		}
		if wrong != 1 || n.Generation() != r.Generation && n.Generation() <= c.Super.Generation || r.Generation > c.Super.Generation {
			continue
		}
		n.SetBytenr(r.Bytenr)
		n.SetFSID(c.Super.TreeFSID())
		n.SetLevel(r.Level)
		n.SetGeneration(r.Generation)
		if !sameTree(n.Owner(), r.Tree) {
			n.SetOwner(r.Tree)
		}
		ctx := format.CheckContext{Root: r.Tree, SectorSize: c.Super.SectorSize, NodeSize: c.Super.NodeSize, Generation: c.Super.Generation, Level: r.Level, Csum: c.Super.CsumType}
		check := format.CheckNode
		if r.Level == 0 {
			check = format.CheckLeaf
		}
		if check(n, ctx) == nil {
			c.try(fmt.Sprintf("header of block %d of tree %d: the field that its parent contradicts", r.Bytenr, int64(r.Tree)), c.writeBlock(n))
		}
	}
}

// anyBlock reads the first copy of a block whose checksum is right.
func (c *changes) anyBlock(bytenr uint64) format.Node {
	ch := c.ChunkAt(bytenr)
	if ch == nil {
		return nil
	}
	places, run := ch.Places(bytenr)
	for _, p := range places {
		n := format.Node(make([]byte, c.Super.NodeSize))
		if p.Dev != nil && run >= uint64(len(n)) && blockdev.Read(c.Task, p.Dev, n, int64(p.Off)) == nil && c.Super.CsumType.BlockMatch(n) {
			return n
		}
	}
	return nil
}

// mendPointers puts the key or the generation right that a parent has for a block, where the block
// itself is whole.
func (c *changes) mendPointers() {
	made := c.madeTrees()
	for i := range c.Findings {
		f := &c.Findings[i]
		if f.Rule != "tree.first_key" && f.Rule != "tree.generation" && f.Rule != "tree.level" {
			continue
		}
		tree := f.Place.Num(check.AtTree)
		bytenr, ok := f.Place.Get(check.AtBlock)
		if !ok || slices.Contains(made, tree) {
			continue
		}
		n := c.rawBlock(bytenr)
		what := fmt.Sprintf("pointer to block %d of tree %d: %s, was %s", bytenr, int64(tree), f.Have, f.Want)
		if n == nil || !sameTree(n.Owner(), tree) || n.Generation() > c.Super.Generation {
			c.try(what, errors.New("the block is not of this tree"))
			continue
		}
		c.try(what, c.mendPointer(tree, f.Rule, n))
	}
}

func (c *changes) mendPointer(tree uint64, rule string, n format.Node) error {
	ctx := format.CheckContext{Root: tree, SectorSize: c.Super.SectorSize, NodeSize: c.Super.NodeSize, Generation: c.Super.Generation, Level: n.Level(), Csum: c.Super.CsumType}
	check := format.CheckNode
	if n.Level() == 0 {
		check = format.CheckLeaf
	}
	if n.Level() >= format.MaxLevel || check(n, ctx) != nil {
		return errors.New("the block is not whole")
	}
	if r, err := c.RootOf(tree); err != nil {
		return err
	} else if r.Bytenr == n.Bytenr() {
		return c.setRoot(tree, n)
	}
	if rule == "tree.level" {
		return errors.New("a level is missing between")
	}
	parent, slot := c.parentOf(tree, n.Bytenr())
	if parent == nil {
		return errors.New("its parent is not found")
	}
	ptrs := image.NodePtrs(parent)
	if n.Nritems() == 0 {
		return errors.New("it is empty")
	}
	k := n.Key(0)
	if rule == "tree.first_key" {
		if slot > 0 && !ptrs[slot-1].Key.Less(k) || slot+1 < len(ptrs) && !k.Less(ptrs[slot+1].Key) {
			return errors.New("its keys do not fit between those of its neighbours")
		}
		ptrs[slot].Key = k
	} else if ptrs[slot].Generation = n.Generation(); k != ptrs[slot].Key {
		return errors.New("its first key is another, too")
	}
	image.FillNode(parent, ptrs)
	return c.writeBlock(parent)
}

// parentOf finds the block that points at another, and the slot; nil if none that can be read does.
func (c *changes) parentOf(tree, bytenr uint64) (parent format.Node, slot int) {
	r, err := c.RootOf(tree)
	if err != nil {
		return nil, 0
	}
	var walk func(bytenr, generation uint64, level int)
	walk = func(at, generation uint64, level int) {
		n := c.Peek(at, generation, level)
		if n == nil || level == 0 || parent != nil {
			return
		}
		for i := range n.Nritems() {
			if n.Blockptr(i) == bytenr {
				parent, slot = n, i
				return
			}
			walk(n.Blockptr(i), n.PtrGeneration(i), level-1)
		}
	}
	walk(r.Bytenr, r.Generation, int(r.Level))
	return parent, slot
}

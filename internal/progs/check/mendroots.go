package check

import (
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

// The root tree, the device tree, the chunk tree and the fields of the superblock, put right.

// mendRoots puts right what the root tree says of trees and of links of subvolumes. It reports
// whether a tree that a rebuild makes has got its root item.
func (c *checker) mendRoots(try func(what string, err error)) (rebuild bool) {
	for i := range c.findings {
		f := &c.findings[i]
		root, id := f.Place.Num(AtTree), f.Place.Num(AtRootItem)
		info, known := c.roots[id]
		switch f.Rule {
		case "root.orphan":
			try(fmt.Sprintf("orphan item of subvolume %d, which a mount will delete", root),
				c.insertItem(format.ROOT_TREE_OBJECTID, format.Key{Objectid: format.ORPHAN_OBJECTID, Type: format.ORPHAN_ITEM_KEY, Offset: root}, nil))
		case "root.missing":
			made, err := c.makeTree(id)
			try(fmt.Sprintf("tree %d, which has no root item: a new one", int64(id)), err)
			rebuild = rebuild || made
		case "root.item", "root.flags":
			if !known || f.Flaw == SecondRootItem || info.v1 {
				continue
			}
			if f.Flaw == RootItemOffset {
				try(fmt.Sprintf("root item of tree %d: %s, made 0", int64(id), f.Have), c.rekey(info))
				continue
			}
			try(fmt.Sprintf("root item of tree %d: %s", int64(id), f.Have), c.editItem(format.ROOT_TREE_OBJECTID, info.key, func(b []byte) error {
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
	c.mendLinks(try)
	return rebuild
}

// rekey gives a root item the key offset 0.
func (c *checker) rekey(info rootInfo) error {
	k := info.key
	k.Offset = 0
	b := encoded(format.RootItemSize, &info.item)
	if err := errors.Join(c.deleteItem(format.ROOT_TREE_OBJECTID, info.key), c.insertItem(format.ROOT_TREE_OBJECTID, k, b)); err != nil {
		return err
	}
	info.key = k
	c.roots[k.Objectid] = info
	return nil
}

// makeTree gives a tree that is gone a root item. Rebuild: the tree itself is to be made by a
// rebuild; else it is made here.
func (c *checker) makeTree(id uint64) (rebuild bool, err error) {
	k := format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}
	r := format.RootItem{Generation: c.sb.Generation, GenerationV2: c.sb.Generation, Refs: 1, BytesUsed: uint64(c.sb.NodeSize)}
	add := func() error {
		err := c.insertItem(format.ROOT_TREE_OBJECTID, k, encoded(format.RootItemSize, &r))
		if err == nil {
			c.roots[id] = rootInfo{item: r, key: k}
			c.rootIDs = append(c.rootIDs, id)
			slices.Sort(c.rootIDs)
		}
		return err
	}
	var items []newItem
	switch id {
	case format.EXTENT_TREE_OBJECTID, format.CSUM_TREE_OBJECTID, format.FREE_SPACE_TREE_OBJECTID, format.BLOCK_GROUP_TREE_OBJECTID:
		return true, add()
	case format.DATA_RELOC_TREE_OBJECTID:
		r.RootDirid = format.FIRST_FREE_OBJECTID
		dir := format.InodeItem{Generation: 1, Transid: 1, Nlink: 1, Mode: format.S_IFDIR | 0o755}
		dots := format.InodeRef{Name: ".."}
		items = []newItem{{format.Key{Objectid: format.FIRST_FREE_OBJECTID, Type: format.INODE_ITEM_KEY}, encoded(format.InodeItemSize, &dir)},
			{format.Key{Objectid: format.FIRST_FREE_OBJECTID, Type: format.INODE_REF_KEY, Offset: format.FIRST_FREE_OBJECTID}, encoded(dots.Size(), dots)}}
	case format.DEV_TREE_OBJECTID:
		items = c.devItems()
	default:
		return false, c.findTree(id)
	}
	n, err := c.newNode(id, 0)
	if err != nil || len(items) == 0 {
		return false, errors.Join(err, errors.New("there is nothing to put in it"))
	}
	fillLeaf(n, items[:1])
	if err := c.writeBlock(n); err != nil {
		return false, err
	}
	r.Bytenr = n.Bytenr()
	if err := add(); err != nil {
		return false, err
	}
	for _, it := range items[1:] {
		if err := c.insertItem(id, it.k, it.b); err != nil {
			return false, err
		}
	}
	return false, nil
}

// findTree makes a root item for a subvolume that has none: of the blocks that say they are its,
// the newest, and of those the uppermost, is the root, if all below it is whole. It counts as
// shared: Linux then looks its references up before it writes to a block of it.
func (c *checker) findTree(id uint64) error {
	var best format.Node
	c.scan(func(n format.Node) {
		if n.Owner() == id && (best == nil || n.Generation() > best.Generation() || n.Generation() == best.Generation() && n.Level() > best.Level()) {
			best = slices.Clone(n)
		}
	})
	if best == nil {
		return errors.New("no block of it is left")
	}
	o := &checker{t: c.t, devs: c.devs, noData: true, sb: c.sb, chunks: c.chunks, visited: map[uint64]uint32{}, scratch: make([]byte, c.sb.NodeSize)}
	if best.Level() >= format.MaxLevel || !o.walkTree(id, best.Bytenr(), best.Generation(), uint8(best.Level()), func(format.Node, bool) {}) {
		return fmt.Errorf("its newest root, at %d, does not lead to all of it: rescue copy gets the files", best.Bytenr())
	}
	r := format.RootItem{Generation: best.Generation(), GenerationV2: best.Generation(), Bytenr: best.Bytenr(), Level: uint8(best.Level()), RootDirid: format.FIRST_FREE_OBJECTID,
		Refs: 1, LastSnapshot: c.sb.Generation, BytesUsed: uint64(len(o.blocks)) * uint64(c.sb.NodeSize)}
	k := format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY}
	if err := c.insertItem(format.ROOT_TREE_OBJECTID, k, encoded(format.RootItemSize, &r)); err != nil {
		return err
	}
	c.roots[id] = rootInfo{item: r, key: k}
	c.rootIDs = append(c.rootIDs, id)
	slices.Sort(c.rootIDs)
	return nil
}

// devItems are the device extents that the chunks have, ascending.
func (c *checker) devItems() (items []newItem) {
	for i := range c.chunks {
		for _, s := range c.chunks[i].stripes {
			if s.dev != nil {
				items = append(items, c.devItem(&c.chunks[i], s))
			}
		}
	}
	slices.SortFunc(items, func(a, b newItem) int { return a.k.Compare(b.k) })
	return items
}

func (c *checker) devItem(ch *chunk, s stripe) newItem {
	x := format.DevExtent{ChunkTree: format.CHUNK_TREE_OBJECTID, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, ChunkOffset: ch.start, Length: ch.stripeLength()}
	if n := c.peek(c.sb.Root, c.sb.Generation, int(c.sb.RootLevel)); n != nil {
		x.ChunkTreeUUID = n.ChunkTreeUUID()
	}
	return newItem{format.Key{Objectid: s.dev.id(), Type: format.DEV_EXTENT_KEY, Offset: s.off}, encoded(format.DevExtentSize, &x)}
}

// mendLinks pairs the links of subvolumes, which the root tree has from both ends.
func (c *checker) mendLinks(try func(what string, err error)) {
	type link struct {
		parent, child uint64
		ref           format.RootRef
	}
	ends := map[link]int{}
	var order []link
	linked, tried := map[uint64]bool{}, map[uint64]bool{}
	for _, r := range c.rootRefs {
		l := link{r.parent, r.child, r.RootRef}
		if ends[l] == 0 {
			order = append(order, l)
		}
		bit := 1
		if r.back {
			bit = 2
		}
		ends[l] |= bit
	}
	settled := map[[2]uint64]bool{}
	for _, l := range order {
		what := fmt.Sprintf("link %q of subvolume %d in %d", l.ref.Name, l.child, l.parent)
		if pair := [2]uint64{l.parent, l.child}; ends[l] != 3 {
			if settled[pair] {
				continue
			}
			if right := c.entryOf(l.parent, l.child); right != nil && *right != l.ref {
				settled[pair], linked[l.child] = true, true
				try(what+": both ends as its entry has them", c.putLink(l.parent, l.child, *right))
				continue
			}
		}
		ref := format.Key{Objectid: l.parent, Type: format.ROOT_REF_KEY, Offset: l.child}
		back := format.Key{Objectid: l.child, Type: format.ROOT_BACKREF_KEY, Offset: l.parent}
		b := encoded(format.RootRefSize+len(l.ref.Name), &l.ref)
		child, ok := c.roots[l.child]
		if !ok && !tried[l.child] {
			tried[l.child] = true
			if err := c.findTree(l.child); err != nil {
				try(fmt.Sprintf("root item of subvolume %d", l.child), err)
			} else {
				try(fmt.Sprintf("root item of subvolume %d: its newest root, at %d, is whole; its UUID and whether it was read-only are lost", l.child, c.roots[l.child].item.Bytenr), nil)
			}
			child, ok = c.roots[l.child]
		}
		parent, up := c.roots[l.parent]
		switch {
		case !ok || !up || child.item.Refs > 0 && parent.item.Refs == 0:
			var err error
			for bit, k := range map[int]format.Key{1: ref, 2: back} {
				if ends[l]&bit != 0 {
					err = errors.Join(err, c.deleteItem(format.ROOT_TREE_OBJECTID, k))
				}
			}
			if up && parent.item.Refs > 0 {
				m := &mender{c: c, f: &fileCheck{c: c, root: l.parent}, try: try}
				e := records{name: name{dir: l.ref.Dirid, target: l.child, subvol: true}, text: l.ref.Name}
				err = errors.Join(err, m.delItem(e), m.delIndex(e, l.ref.Sequence))
			}
			try(what+": dropped, one of the two is gone", err)
			continue
		case ends[l] == 1:
			try(what+": its ROOT_BACKREF", c.insertItem(format.ROOT_TREE_OBJECTID, back, b))
		case ends[l] == 2:
			try(what+": its ROOT_REF", c.insertItem(format.ROOT_TREE_OBJECTID, ref, b))
		}
		linked[l.child] = true
	}
	for _, f := range c.findings {
		id, ok := f.Place.Get(AtTree)
		if f.Rule != "root.ref" || !ok || id == format.ROOT_TREE_OBJECTID || linked[id] {
			continue
		}
		// An entry that names it, or lost+found of the top level.
		what := fmt.Sprintf("subvolume %d, which has no name", id)
		ref := format.RootRef{Dirid: 0}
		parent := uint64(0)
		for _, r := range c.rootIDs {
			if !format.IsFSTree(r) || parent != 0 {
				continue
			}
			c.searchAll(r, func(k format.Key, b []byte) {
				if list, err := format.DirItems(b); k.Type == format.DIR_INDEX_KEY && err == nil && len(list) == 1 && parent == 0 &&
					list[0].Location.Type == format.ROOT_ITEM_KEY && list[0].Location.Objectid == id {
					parent, ref = r, format.RootRef{Dirid: k.Objectid, Sequence: k.Offset, Name: list[0].Name}
				}
			})
		}
		if parent == 0 {
			m := c.menderOf(format.FS_TREE_OBJECTID, try)
			if m == nil {
				try(what, errors.New("the top level cannot be read whole"))
				continue
			}
			dir, err := m.lostFound()
			if err != nil {
				try(what, err)
				continue
			}
			parent, ref = format.FS_TREE_OBJECTID, format.RootRef{Dirid: dir, Sequence: m.freeIndex(dir), Name: fmt.Sprintf("subvolume-%d", id)}
			e := records{name: name{dir: dir, target: id, subvol: true}, text: ref.Name}
			if err := m.entry(e, ref.Sequence); err != nil {
				try(what, err)
				continue
			}
		}
		b := encoded(format.RootRefSize+len(ref.Name), &ref)
		try(fmt.Sprintf("%s: linked as %q in directory %d of subvolume %d", what, ref.Name, ref.Dirid, parent), errors.Join(
			c.insertItem(format.ROOT_TREE_OBJECTID, format.Key{Objectid: parent, Type: format.ROOT_REF_KEY, Offset: id}, b),
			c.insertItem(format.ROOT_TREE_OBJECTID, format.Key{Objectid: id, Type: format.ROOT_BACKREF_KEY, Offset: parent}, b)))
	}
}

// entryOf is the link of a subvolume as the entry in its directory has it; nil unless there is one
// entry, of which the DIR_ITEM says the same.
func (c *checker) entryOf(parent, child uint64) (ref *format.RootRef) {
	var index []format.RootRef
	items := map[format.RootRef]bool{} // without the sequence
	c.searchAll(parent, func(k format.Key, b []byte) {
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
func (c *checker) putLink(parent, child uint64, ref format.RootRef) error {
	b := encoded(format.RootRefSize+len(ref.Name), &ref)
	put := func(k format.Key) error {
		return c.changeItem(format.ROOT_TREE_OBJECTID, k, func([]byte, bool) ([]byte, bool, error) { return b, true, nil })
	}
	return errors.Join(put(format.Key{Objectid: parent, Type: format.ROOT_REF_KEY, Offset: child}),
		put(format.Key{Objectid: child, Type: format.ROOT_BACKREF_KEY, Offset: parent}))
}

// mendKeys drops the items whose key has a type that btrfs does not have, and the caches of free
// inode numbers. An item that a feature could own is left: the superblock check has refused
// incompat and compat_ro features that this program does not know, so that is any compat feature.
func (c *checker) mendKeys(try func(what string, err error)) {
	for i := range c.findings {
		f := &c.findings[i]
		root := f.Place.Num(AtTree)
		switch f.Rule {
		case "tree.key_type":
			k, ok := f.Have.(format.Key)
			what := fmt.Sprintf("item %s of tree %d", f.Have, int64(root))
			switch {
			case !ok:
			case c.sb.CompatFlags != 0:
				try(what, fmt.Errorf("a feature may own it, compat 0x%x", c.sb.CompatFlags))
			case !format.IsFSTree(root) && root != format.ROOT_TREE_OBJECTID:
				if !slices.Contains(c.madeTrees(), root) {
					try(what, errors.New("it is in a tree where this repair drops nothing"))
				}
			default:
				try(what+": dropped, no version of btrfs has such a key", c.deleteItem(root, k))
			}
		case "inode.cache":
			var keys []format.Key
			c.searchAll(root, func(k format.Key, _ []byte) {
				if k.Objectid == format.FREE_INO_OBJECTID || k.Objectid == format.FREE_SPACE_OBJECTID {
					keys = append(keys, k)
				}
			})
			var err error
			// The inode item last: without it the leaf is refused.
			for _, k := range slices.Backward(keys) {
				err = errors.Join(err, c.deleteItem(root, k))
			}
			try(fmt.Sprintf("cache of free inode numbers of subvolume %d: dropped, Linux has none since 5.11", root), err)
		}
	}
}

// mendDevExtents makes the device extents those that the chunks have.
func (c *checker) mendDevExtents(try func(what string, err error)) {
	if _, ok := c.roots[format.DEV_TREE_OBJECTID]; !ok {
		return
	}
	want := map[format.Key][]byte{}
	for _, it := range c.devItems() {
		want[it.k] = it.b
	}
	var gone []newItem
	have := map[format.Key]bool{}
	c.searchAll(format.DEV_TREE_OBJECTID, func(k format.Key, b []byte) {
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
			gone = append(gone, newItem{k, slices.Clone(b)})
		} else {
			have[k] = true
		}
	})
	for _, it := range gone {
		var x format.DevExtent
		x.Decode(it.b)
		try(fmt.Sprintf("device extent at %d of device %d: dropped, chunk %d has no such stripe", it.k.Offset, it.k.Objectid, x.ChunkOffset), c.deleteItem(format.DEV_TREE_OBJECTID, it.k))
	}
	for _, it := range c.devItems() {
		if !have[it.k] {
			var x format.DevExtent
			x.Decode(it.b)
			try(fmt.Sprintf("device extent at %d of device %d: of chunk %d", it.k.Offset, it.k.Objectid, x.ChunkOffset), c.insertItem(format.DEV_TREE_OBJECTID, it.k, it.b))
		}
	}
}

// mendChunks makes the chunk items anew of block groups that have none, if the device extents say
// where each stripe is. In a profile with an order of its stripes they do not.
func (c *checker) mendChunks(try func(what string, err error)) {
	for _, g := range c.groups {
		if c.chunkAt(g.start) != nil {
			continue
		}
		ch := format.Chunk{Length: g.length, Owner: format.EXTENT_TREE_OBJECTID, StripeLen: format.StripeLen, Type: g.flags, IOAlign: format.StripeLen, IOWidth: format.StripeLen,
			SectorSize: c.sb.SectorSize, SubStripes: 1}
		for _, d := range c.devs {
			for _, x := range d.exts {
				if x.logical == g.start && x.length == g.length {
					ch.Stripes = append(ch.Stripes, format.Stripe{Devid: d.id(), Offset: x.physical, DevUUID: d.sb.DevItem.UUID})
				}
			}
		}
		n := map[uint64]int{0: 1, format.BlockGroupDup: 2, format.BlockGroupRAID1: 2, format.BlockGroupRAID1C3: 3, format.BlockGroupRAID1C4: 4}[g.flags&format.BlockGroupProfileMask]
		if len(ch.Stripes) == 0 {
			continue // a rebuild drops the block group
		}
		what := fmt.Sprintf("chunk %d", g.start)
		if n != len(ch.Stripes) {
			try(what, fmt.Errorf("its device extents have no order, or are %d instead of %d", len(ch.Stripes), n))
			continue
		}
		err := c.insertItem(format.CHUNK_TREE_OBJECTID, format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: g.start}, encoded(ch.Size(), &ch))
		try(what+": made anew from its block group and device extents", err)
	}
}

// mendStripes gives the stripes of chunks the device that is meant: by its number, or by its UUID;
// and one beyond the end of its device the place of the device extent that has no stripe.
// Chunks in whose place another is, and that have no block group, are dropped.
func (c *checker) mendStripes(try func(what string, err error)) {
	var list []newItem
	c.searchAll(format.CHUNK_TREE_OBJECTID, func(k format.Key, b []byte) {
		if k.Type == format.CHUNK_ITEM_KEY {
			list = append(list, newItem{k, slices.Clone(b)})
		}
	})
	for _, it := range list {
		var ch format.Chunk
		ch.Decode(it.b)
		what := fmt.Sprintf("chunk %d", it.k.Offset)
		if at := c.chunkAt(it.k.Offset); (at == nil || at.start != it.k.Offset) && c.extentsWhole && !slices.ContainsFunc(c.groups, func(g group) bool { return g.start == it.k.Offset }) {
			try(what+": dropped, it lies over another and has no block group", c.deleteItem(format.CHUNK_TREE_OBJECTID, it.k))
			continue
		}
		changed := false
		for i, s := range ch.Stripes {
			if d := c.deviceOf(s); d != nil && s.Offset > uint64(d.Size())-min(uint64(d.Size()), ch.Length) {
				for _, x := range d.exts {
					if x.logical == it.k.Offset && !slices.ContainsFunc(ch.Stripes, func(o format.Stripe) bool { return c.deviceOf(o) == d && o.Offset == x.physical }) {
						ch.Stripes[i].Offset = x.physical
						changed = true
					}
				}
			}
			for _, d := range c.devs {
				if c.deviceOf(s) == nil && (d.id() == s.Devid || d.sb.DevItem.UUID == s.DevUUID) {
					ch.Stripes[i].Devid, ch.Stripes[i].DevUUID = d.id(), d.sb.DevItem.UUID
					changed = true
				}
			}
		}
		if changed {
			try(what+": its stripes where the devices have them", c.editItem(format.CHUNK_TREE_OBJECTID, it.k, func(b []byte) error { ch.Encode(b); return nil }))
		}
	}
}

// mendSupers makes the fields of the superblocks that follow from the trees: the array of system
// chunks, the size and the device item.
func (c *checker) mendSupers(rules map[string]bool, try func(what string, err error)) {
	if rules["super.sys_array"] {
		for a := c.sb.SysChunkArray; len(a) > 0; {
			k, size := format.DecodeKey(a), format.KeySize+format.ChunkSize(format.ChunkStripes(a[format.KeySize:]))
			item := a[format.KeySize:size]
			a = a[size:]
			missing := true
			c.search(format.CHUNK_TREE_OBJECTID, k, func(at format.Key, _ []byte) bool { missing = at != k; return false })
			// It is in use.
			if g := c.groupAt(k.Offset); missing && g != nil && g.start == k.Offset {
				try(fmt.Sprintf("chunk %d: from the array of the superblock", k.Offset), c.insertItem(format.CHUNK_TREE_OBJECTID, k, item))
			}
		}
		var array []byte
		c.searchAll(format.CHUNK_TREE_OBJECTID, func(k format.Key, b []byte) {
			if k.Type == format.CHUNK_ITEM_KEY && format.ChunkView(b).Type()&format.BlockGroupSystem != 0 {
				array = append(append(array, encoded(format.KeySize, k)...), b...)
			}
		})
		err := errors.New("the system chunks have no room in it, or there are none")
		if len(array) > 0 && len(array) <= format.SysChunkArrayMax {
			err = c.editSupers(c.devs, func(s *format.Super) { s.SysChunkArray = array })
		}
		try("array of system chunks in the superblock: from the chunk tree", err)
	}
	if rules["dev.item"] {
		for _, d := range c.devs {
			k := format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: d.id()}
			missing := true
			c.search(format.CHUNK_TREE_OBJECTID, k, func(at format.Key, _ []byte) bool { missing = at != k; return false })
			if missing {
				try(fmt.Sprintf("device item %d: from the superblock", d.id()), c.insertItem(format.CHUNK_TREE_OBJECTID, k, encoded(format.DevItemSize, &d.sb.DevItem)))
			}
		}
		var total uint64
		for _, d := range c.devs {
			var item format.DevItem
			k := format.Key{Objectid: format.DEV_ITEMS_OBJECTID, Type: format.DEV_ITEM_KEY, Offset: d.id()}
			odd := false
			c.search(format.CHUNK_TREE_OBJECTID, k, func(at format.Key, b []byte) bool {
				if at == k {
					item.Decode(b)
					odd = item.TotalBytes%uint64(c.sb.SectorSize) != 0
				}
				return false
			})
			if odd { // Linux rounds it down
				item.TotalBytes -= item.TotalBytes % uint64(c.sb.SectorSize)
				err := c.editItem(format.CHUNK_TREE_OBJECTID, k, func(b []byte) error { item.Encode(b); return nil })
				try(fmt.Sprintf("size of device %d: %d, whole sectors", d.id(), item.TotalBytes), errors.Join(err, c.editSupers([]*device{d}, func(s *format.Super) { s.DevItem = item })))
			}
			total += item.TotalBytes
		}
		if total != c.sb.TotalBytes && total > 0 {
			try(fmt.Sprintf("total_bytes of the superblock: %d, was %d", total, c.sb.TotalBytes), c.editSupers(c.devs, func(s *format.Super) { s.TotalBytes = total }))
		}
	}
}

// searchAll calls f with all items of a tree that can be read.
func (c *checker) searchAll(tree uint64, f func(k format.Key, b []byte)) {
	r, err := c.rootOf(tree)
	if err != nil {
		return
	}
	var walk func(bytenr, generation uint64, level int)
	walk = func(bytenr, generation uint64, level int) {
		n := c.peek(bytenr, generation, level)
		if n == nil {
			return
		}
		for i := range n.Nritems() {
			if level > 0 {
				walk(n.Blockptr(i), n.PtrGeneration(i), level-1)
			} else {
				f(n.Key(i), n.Item(i))
			}
		}
	}
	walk(r.Bytenr, r.Generation, int(r.Level))
}

// menderOf reads a subvolume anew, for changes of its names; nil if it cannot be read whole.
func (c *checker) menderOf(id uint64, try func(what string, err error)) *mender {
	r, ok := c.roots[id]
	if !ok {
		return nil
	}
	o := &checker{t: c.t, devs: c.devs, noData: true, sb: c.sb, chunks: c.chunks, roots: c.roots, rootRefs: c.rootRefs, visited: map[uint64]uint32{}, scratch: make([]byte, c.sb.NodeSize)}
	f := o.newFileCheck(id)
	if !o.walkTree(id, r.item.Bytenr, r.item.Generation, r.item.Level, f.leaf) {
		return nil
	}
	f.endInode()
	return &mender{c: c, f: f, try: try}
}

// mendHeaders puts a header right of which one field is wrong: all others, and the first key, are
// what the parent of the block says. Another generation may be that of a write that was lost, so it
// is taken for wrong only if it is of the future.
func (c *checker) mendHeaders(try func(what string, err error)) {
	done := map[uint64]bool{}
	for _, r := range c.misfits {
		n := c.anyBlock(r.bytenr)
		if n == nil || done[r.bytenr] || r.level >= format.MaxLevel || r.first != nil && (n.Nritems() == 0 || n.Key(0) != *r.first) {
			continue
		}
		done[r.bytenr] = true
		wrong := 0
		for _, bad := range []bool{n.Bytenr() != r.bytenr, n.FSID() != c.sb.TreeFSID(), n.Level() != r.level, n.Generation() != r.generation, !sameTree(n.Owner(), r.tree)} {
			if bad {
				wrong++
			}
		}
		if wrong != 1 || n.Generation() != r.generation && n.Generation() <= c.sb.Generation || r.generation > c.sb.Generation {
			continue
		}
		n.SetBytenr(r.bytenr)
		n.SetFSID(c.sb.TreeFSID())
		n.SetLevel(r.level)
		n.SetGeneration(r.generation)
		if !sameTree(n.Owner(), r.tree) {
			n.SetOwner(r.tree)
		}
		ctx := format.CheckContext{Root: r.tree, SectorSize: c.sb.SectorSize, NodeSize: c.sb.NodeSize, Generation: c.sb.Generation, Level: r.level, Csum: c.sb.CsumType}
		check := format.CheckNode
		if r.level == 0 {
			check = format.CheckLeaf
		}
		if check(n, ctx) == nil {
			try(fmt.Sprintf("header of block %d of tree %d: the field that its parent contradicts", r.bytenr, int64(r.tree)), c.writeBlock(n))
		}
	}
}

// anyBlock reads the first copy of a block whose checksum is right.
func (c *checker) anyBlock(bytenr uint64) format.Node {
	ch := c.chunkAt(bytenr)
	if ch == nil {
		return nil
	}
	places, run := ch.places(bytenr)
	for _, p := range places {
		n := format.Node(make([]byte, c.sb.NodeSize))
		if p.dev != nil && run >= uint64(len(n)) && blockdev.Read(c.t, p.dev, n, int64(p.off)) == nil && c.sb.CsumType.BlockMatch(n) {
			return n
		}
	}
	return nil
}

// mendPointers puts the key or the generation right that a parent has for a block, where the block
// itself is whole.
func (c *checker) mendPointers(try func(what string, err error)) {
	made := c.madeTrees()
	for i := range c.findings {
		f := &c.findings[i]
		if f.Rule != "tree.first_key" && f.Rule != "tree.generation" && f.Rule != "tree.level" {
			continue
		}
		tree := f.Place.Num(AtTree)
		bytenr, ok := f.Place.Get(AtBlock)
		if !ok || slices.Contains(made, tree) {
			continue
		}
		n := c.rawBlock(bytenr)
		what := fmt.Sprintf("pointer to block %d of tree %d: %s, was %s", bytenr, int64(tree), f.Have, f.Want)
		if n == nil || !sameTree(n.Owner(), tree) || n.Generation() > c.sb.Generation {
			try(what, errors.New("the block is not of this tree"))
			continue
		}
		try(what, c.mendPointer(tree, f.Rule, n))
	}
}

func (c *checker) mendPointer(tree uint64, rule string, n format.Node) error {
	ctx := format.CheckContext{Root: tree, SectorSize: c.sb.SectorSize, NodeSize: c.sb.NodeSize, Generation: c.sb.Generation, Level: n.Level(), Csum: c.sb.CsumType}
	check := format.CheckNode
	if n.Level() == 0 {
		check = format.CheckLeaf
	}
	if n.Level() >= format.MaxLevel || check(n, ctx) != nil {
		return errors.New("the block is not whole")
	}
	if r, err := c.rootOf(tree); err != nil {
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
	ptrs := ptrsOf(parent)
	if n.Nritems() == 0 {
		return errors.New("it is empty")
	}
	k := n.Key(0)
	if rule == "tree.first_key" {
		if slot > 0 && !ptrs[slot-1].k.Less(k) || slot+1 < len(ptrs) && !k.Less(ptrs[slot+1].k) {
			return errors.New("its keys do not fit between those of its neighbours")
		}
		ptrs[slot].k = k
	} else if ptrs[slot].generation = n.Generation(); k != ptrs[slot].k {
		return errors.New("its first key is another, too")
	}
	fillNode(parent, ptrs)
	return c.writeBlock(parent)
}

// parentOf finds the block that points at another, and the slot; nil if none that can be read does.
func (c *checker) parentOf(tree, bytenr uint64) (parent format.Node, slot int) {
	r, err := c.rootOf(tree)
	if err != nil {
		return nil, 0
	}
	var walk func(bytenr, generation uint64, level int)
	walk = func(at, generation uint64, level int) {
		n := c.peek(at, generation, level)
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

package check

import (
	"slices"

	"btrlab/internal/format"
)

// rootRules are about the root tree.
var rootRules = []Rule{
	{"root.missing", "the trees that a mount needs are there (10.3)", "Linux does not mount it; rescue copy gets the files"},
	{"root.item", "a root item agrees with itself: generation_v2, level, refs (1)", "the tree may be refused, or its newer fields be ignored"},
	{"root.flags", "a read-only subvolume has BTRFS_INODE_ROOT_ITEM_INIT, without which Linux ignores that it is read-only", "the subvolume can be written to"},
	{"root.orphan", "a subvolume without a name has an orphan item, by which a mount deletes it", "its space is never freed"},
	{"root.ref", "subvolume references and back references pair up", "the subvolume is listed wrongly, or cannot be deleted"},
}

// Root is a tree as the root tree has it.
type Root struct {
	Item format.RootItem
	Key  format.Key
	V1   bool // the item is of the first version: no generation_v2
}

// RootRef is a subvolume's link, seen from one end.
type RootRef struct {
	Parent, Child uint64
	Back          bool
	format.RootRef
}

// loadRoots reads the root tree.
func (c *checker) loadRoots() {
	s := &c.Super
	var dying []uint64               // subvolumes without a name
	orphans := map[uint64]struct{}{} // subvolumes that a mount goes on to delete
	whole := c.walkTree(format.ROOT_TREE_OBJECTID, s.Root, s.Generation, s.RootLevel, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			k, b := n.Key(i), n.Item(i)
			where := on(AtTree, format.ROOT_TREE_OBJECTID).with(AtBlock, n.Bytenr()).with(AtSlot, uint64(i)).with(AtRootItem, k.Objectid)
			switch k.Type {
			case format.ROOT_ITEM_KEY:
				if c.rootItem(k, b, where) {
					dying = append(dying, k.Objectid)
				}
			case format.ORPHAN_ITEM_KEY:
				if k.Objectid == format.ORPHAN_OBJECTID {
					orphans[k.Offset] = struct{}{}
				}
			case format.ROOT_REF_KEY, format.ROOT_BACKREF_KEY:
				r := RootRef{Parent: k.Objectid, Child: k.Offset}
				if k.Type == format.ROOT_BACKREF_KEY {
					r.Parent, r.Child, r.Back = k.Offset, k.Objectid, true
				}
				r.Decode(b)
				c.RootRefs = append(c.RootRefs, r)
			}
		}
	})
	slices.Sort(c.RootIDs)
	if !whole {
		return // a root that is not seen may be there
	}
	for _, id := range dying {
		if _, ok := orphans[id]; !ok { // btrfs_find_orphan_roots() follows the items, not the roots
			c.find("root.orphan", on(AtTree, id), Words("refs 0 without orphan item: nobody will delete it"), Words("one"))
		}
	}
	need := []uint64{format.EXTENT_TREE_OBJECTID, format.DEV_TREE_OBJECTID, format.FS_TREE_OBJECTID, format.CSUM_TREE_OBJECTID, format.DATA_RELOC_TREE_OBJECTID}
	if s.CompatROFlags&format.CompatROFreeSpaceTree != 0 {
		need = append(need, format.FREE_SPACE_TREE_OBJECTID)
	}
	if id := c.GroupTree(); id != format.EXTENT_TREE_OBJECTID {
		need = append(need, id)
	}
	for _, id := range need {
		if _, ok := c.Roots[id]; !ok {
			c.find("root.missing", on(AtTree, format.ROOT_TREE_OBJECTID).with(AtRootItem, id), Words("none"), Words("one"))
			c.Cut = true // its blocks have references, which cannot be met
		}
	}
	c.checkRootRefs()
}

// rootItem reads a root item and judges it by itself. It reports whether it is that of a subvolume
// without a name, which has to go.
func (c *checker) rootItem(k format.Key, b []byte, where Place) (dying bool) {
	if k.Objectid == treeReloc {
		c.note("a balance was under way: its relocation tree for root %d is not judged", k.Offset)
		c.Cut = true
		return false
	}
	// The kernel looks the tree for relocated data up by its last item, whatever the offset:
	// btrfs-convert gives it the transaction.
	if k.Offset != 0 && !format.IsFSTree(k.Objectid) && k.Objectid != format.DATA_RELOC_TREE_OBJECTID {
		c.add(Finding{Rule: "root.item", Flaw: RootItemOffset, Place: where, Have: words("key offset %d", k.Offset), Want: num(0)})
	}
	r := Root{Key: k}
	r.Item.Decode(b)
	r.V1 = len(b) < format.RootItemSize
	if _, ok := c.Roots[k.Objectid]; ok {
		c.add(Finding{Rule: "root.item", Flaw: SecondRootItem, Place: where, Have: Words("a second root item"), Want: Words("one")})
		return false
	}
	c.Roots[k.Objectid] = r
	c.RootIDs = append(c.RootIDs, k.Objectid)
	// The kernel takes a root whose generation_v2 differs for one that an old kernel wrote, and
	// zeroes the rest.
	if !r.V1 && r.Item.GenerationV2 != r.Item.Generation {
		c.find("root.item", where, words("generation_v2 %d", r.Item.GenerationV2), num(r.Item.Generation))
	}
	if format.IsFSTree(k.Objectid) && r.Item.RootDirid != format.FIRST_FREE_OBJECTID {
		c.find("root.item", where, words("root_dirid %d", r.Item.RootDirid), num(format.FIRST_FREE_OBJECTID))
	}
	ignored := r.Item.Inode.Flags&format.InodeRootItemInit == 0 && r.Item.Refs != 0
	if format.IsFSTree(k.Objectid) && r.Item.Flags&format.RootSubvolReadonly != 0 && ignored {
		c.find("root.flags", where, words("a read-only subvolume, inode flags %#x: Linux takes it for writable", r.Item.Inode.Flags),
			words("%#x", r.Item.Inode.Flags|format.InodeRootItemInit))
	}
	if r.Item.Bytenr == 0 {
		c.find("root.item", where, Words("bytenr 0"), nil)
	}
	// the kernel counts none of the quota tree
	if r.Item.Refs == 0 && format.IsFSTree(k.Objectid) {
		if k.Objectid == format.FS_TREE_OBJECTID {
			c.find("root.item", where, Words("refs 0"), num(1))
		} else {
			c.note("subvolume %d is being deleted", k.Objectid)
			return true
		}
	}
	return false
}

// treeReloc is the id of relocation trees.
const treeReloc = ^uint64(0) - 7 // -8

// checkRootRefs pairs ROOT_REF with ROOT_BACKREF.
func (c *checker) checkRootRefs() {
	type key struct {
		parent, child uint64
		ref           format.RootRef
	}
	pairs := map[key]int{}
	var order []key
	linked := map[uint64]bool{}
	for _, r := range c.RootRefs {
		bit := 1
		if r.Back {
			bit = 2
		}
		k := key{r.Parent, r.Child, r.RootRef}
		if pairs[k] == 0 {
			order = append(order, k)
		}
		pairs[k] |= bit
		linked[r.Child] = true
	}
	for _, k := range order {
		v := pairs[k]
		where := on(AtTree, format.ROOT_TREE_OBJECTID).with(AtParent, k.parent).with(AtChild, k.child).named(k.ref.Name)
		if v != 3 {
			have := "a ROOT_REF without its ROOT_BACKREF"
			if v == 2 {
				have = "a ROOT_BACKREF without its ROOT_REF"
			}
			c.find("root.ref", where, Words(have), Words("both, alike"))
		}
		switch child, ok := c.Roots[k.child]; {
		case !ok:
			c.find("root.ref", where, Words("a link to no subvolume"), nil)
		case child.Item.Refs > 0 && c.Roots[k.parent].Item.Refs == 0:
			// nobody can come to it any more
			c.find("root.ref", where, Words("a link in a subvolume that is gone or being deleted"), nil)
		}
	}
	for _, id := range c.RootIDs {
		if format.IsFSTree(id) && id != format.FS_TREE_OBJECTID && c.Roots[id].Item.Refs > 0 && !linked[id] {
			c.find("root.ref", on(AtTree, id), Words("a subvolume without a name"), Words("a ROOT_REF"))
		}
	}
}

// checkTrees walks every tree that nobody has walked yet, subvolumes as files.
func (c *checker) checkTrees() {
	if _, ok := c.Roots[format.QUOTA_TREE_OBJECTID]; ok {
		c.Quota = &Quota{Groups: map[uint64]*Counts{}, parents: map[uint64][]uint64{}, Limits: map[uint64]bool{}, Pairs: map[[2]uint64]bool{}}
	}
	for _, id := range c.RootIDs {
		r := c.Roots[id]
		switch id {
		case format.EXTENT_TREE_OBJECTID, format.DEV_TREE_OBJECTID, format.CSUM_TREE_OBJECTID, format.FREE_SPACE_TREE_OBJECTID,
			format.BLOCK_GROUP_TREE_OBJECTID:
			continue
		}
		w := c.newWalk(id, func(format.Node, bool) {})
		if id == format.QUOTA_TREE_OBJECTID {
			w.leaf = c.quotaLeaf
		}
		if id == format.UUID_TREE_OBJECTID {
			c.UUIDs = map[format.Key][]byte{}
			w.leaf = func(n format.Node, _ bool) {
				for i := range n.Nritems() {
					c.UUIDs[n.Key(i)] = slices.Clone(n.Item(i))
				}
			}
		}
		if !format.IsFSTree(id) && id != format.DATA_RELOC_TREE_OBJECTID {
			w.from(r.Item.Bytenr, r.Item.Generation, r.Item.Level)
			switch {
			case w.cut:
			case id == format.UUID_TREE_OBJECTID:
				c.checkUUIDs()
			case id == format.QUOTA_TREE_OBJECTID:
				c.checkQuotaItems()
			}
			continue
		}
		if r.Item.Refs == 0 && id != format.FS_TREE_OBJECTID {
			w.drop = r.Item.DropProgress
			w.from(r.Item.Bytenr, r.Item.Generation, r.Item.Level)
			continue
		}
		f := c.newFileCheck(id)
		w.leaf = f.leaf
		if w.counts = c.Quota != nil && format.IsFSTree(id); w.counts {
			w.leaf = func(n format.Node, fresh bool) {
				if !c.sliced {
					c.Quota.reaches(id, n)
				}
				f.leaf(n, fresh)
			}
		}
		w.from(r.Item.Bytenr, r.Item.Generation, r.Item.Level)
		f.finish(!w.cut)
	}
}

// uuidRules are about the UUID tree.
var uuidRules = []Rule{
	{"uuid.item", "the UUID tree has each subvolume's UUIDs", "send and receive do not find the subvolume"},
}

// UUIDItem is a UUID of a subvolume that the UUID tree has an item for.
type UUIDItem struct {
	Key  format.Key
	Root uint64
}

// WantUUIDs lists what the UUID tree has to have.
func (c *Seen) WantUUIDs() (list []UUIDItem) {
	for _, id := range c.RootIDs {
		r := c.Roots[id]
		if !format.IsFSTree(id) || r.Item.Refs == 0 || r.V1 || r.Item.GenerationV2 != r.Item.Generation {
			continue
		}
		if r.Item.UUID != (format.UUID{}) {
			list = append(list, UUIDItem{r.Item.UUID.Key(format.UUID_KEY_SUBVOL), id})
		}
		if r.Item.ReceivedUUID != (format.UUID{}) {
			list = append(list, UUIDItem{r.Item.ReceivedUUID.Key(format.UUID_KEY_RECEIVED_SUBVOL), id})
		}
	}
	return list
}

// HasUUID reports whether an item of the UUID tree lists a subvolume.
func HasUUID(b []byte, id uint64) bool {
	for ; len(b) >= 8; b = b[8:] {
		if le.Uint64(b) == id {
			return true
		}
	}
	return false
}

// checkUUIDs compares the UUID tree with the subvolumes. Linux makes it anew at a mount when the
// superblock has another generation for it (open_ctree(), btrfs_check_uuid_tree()).
func (c *checker) checkUUIDs() {
	if c.Super.UUIDTreeGeneration != c.Super.Generation {
		return
	}
	for _, u := range c.WantUUIDs() {
		if !HasUUID(c.UUIDs[u.Key], u.Root) {
			c.find("uuid.item", on(AtTree, u.Root), words("no item %v in the UUID tree", u.Key), Words("one"))
		}
	}
}

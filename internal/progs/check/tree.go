package check

import (
	"bytes"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

// treeRules are about tree blocks.
var treeRules = []Rule{
	{"tree.read", "a tree block has a readable copy with a good checksum", "what was in the block is lost; rescue copy gets the rest"},
	{"tree.csum", "every copy of a tree block has a good checksum", "one copy is bad: scrub mends it from another; without one the block is lost"},
	{"tree.mirror", "all copies of a tree block are the same", "which copy is read is chance: scrub makes them the same"},
	{"tree.block", "a tree block passes the tree checker", "Linux refuses the block: what is in it is out of reach"},
	{"tree.header", "a tree block's bytenr, fsid and chunk tree uuid are those of the file system", "Linux refuses the block: what is in it is out of reach"},
	{"tree.level", "a child is one level below its parent; a root has its root item's level (1)", "Linux refuses the block: what is below it is out of reach"},
	{"tree.generation", "a block's generation is what its parent says (1)", "a write was lost: what is below the block is out of reach"},
	{"tree.owner", "a block is owned by its tree, or in a snapshot by another subvolume", "Linux refuses the block: what is in it is out of reach"},
	{"tree.first_key", "a child's first key is its parent's key for it (1)", "Linux refuses the block: what is in it is out of reach"},
	{"tree.key_range", "a child's keys are below its parent's next key", "items are where no search finds them"},
	{"tree.key_type", "the type of a key is one that btrfs has, and has in this tree", "Linux leaves the item alone; something has damaged it"},
	{"tree.loop", "a tree reaches each block once", "two places share a block, and the next write to one damages the other"},
	{"tree.chunk", "tree blocks lie in METADATA block groups, the chunk tree's in SYSTEM ones (4)", "the block is where none may be; the next write may damage it"},
}

// Block holds the fields of a tree block that the check of references needs.
type Block struct {
	Bytenr, Generation uint64
	Level              uint8
}

// Pointer is one reference to a tree block: from a block, or (parent 0) from a root item or the
// superblock.
type Pointer struct {
	Child  uint64
	Parent uint64
	Owner  uint64 // of the parent, or the tree
}

// DataPointer is one EXTENT_DATA item that points at an extent.
type DataPointer struct {
	Bytenr, Length    uint64
	Parent            uint64
	Owner, Ino, Start uint64 // start: file offset minus extent offset
	Generation        uint64
}

// Refused is a block that is refused, and what its parent says of it.
type Refused struct {
	Tree, Bytenr, Generation uint64
	Level                    int
	First                    *format.Key // its parent's key for it, nil for a root
	Last                     format.Key  // the greatest key that belongs into it
}

// walk is one pass over one tree.
type walk struct {
	c    *checker
	root uint64
	num  uint32
	// leaf is called for each leaf, in key order. fresh: no walk met this block before.
	leaf func(n format.Node, fresh bool)
	met  func(n format.Node) // if set, is called for each block
	log  bool                // a log tree: newer than the superblock, unknown to the extent tree
	// counts: a subvolume, whose blocks count in qgroups.
	counts bool
	drop   format.Key // of a subvolume that is being deleted: what lies before it is gone
	cut    bool       // a part of the tree could not be visited
	// first is the key that its parent has for the block at hand, last the greatest that may be in
	// it.
	first *format.Key
	last  format.Key
	bufs  [format.MaxLevel][]byte
}

// walkTree visits a tree from its root block, and reports whether it could visit all of it.
func (c *checker) walkTree(root, bytenr, generation uint64, level uint8, leaf func(n format.Node, fresh bool)) bool {
	w := c.newWalk(root, leaf)
	w.from(bytenr, generation, level)
	return !w.cut
}

func (c *checker) newWalk(root uint64, leaf func(n format.Node, fresh bool)) *walk {
	c.walks++
	return &walk{c: c, root: root, num: c.walks, leaf: leaf}
}

func (w *walk) from(bytenr, generation uint64, level uint8) {
	if level >= format.MaxLevel {
		w.c.find("tree.level", on(AtTree, w.root), num(uint64(level)), words("at most %d", format.MaxLevel-1))
		w.cut = true
		return
	}
	if w.visit(bytenr, generation, int(level), nil, format.MaxKey) && !w.log {
		w.c.Pointers = append(w.c.Pointers, Pointer{bytenr, 0, w.root})
	}
}

// visit is block, and notes a failure.
func (w *walk) visit(bytenr, generation uint64, level int, first *format.Key, last format.Key) bool {
	ok := w.block(bytenr, generation, level, first, last)
	if !ok {
		w.cut, w.c.Cut = true, true
	}
	return ok
}

// block visits one block. first is the key its parent has for it, nil for a root; every key in it
// is at most last. False: it could not be used.
func (w *walk) block(bytenr, generation uint64, level int, first *format.Key, last format.Key) bool {
	c := w.c
	where := on(AtTree, w.root).with(AtBlock, bytenr)
	seen, old := c.Visited[bytenr]
	if old && seen == w.num {
		c.find("tree.loop", where, Words("reached a second time"), Words("once"))
		c.Misfits = append(c.Misfits, Refused{w.root, bytenr, generation, level, first, last})
		return false
	}
	if w.log {
		if old {
			c.find("log.space", where, Words("a block of another tree"), Words("one of its own"))
			return false
		}
		size := uint64(c.Super.NodeSize)
		if e := c.extentOver(Span{bytenr, bytenr + size}); e != nil {
			c.find("log.space", where, words("a block over extent %d..%d", e.Start, e.Start+e.Length), Words("free space"))
			return false
		}
	}
	w.first, w.last = first, last
	n, ok := w.read(bytenr, generation, level, where, !old)
	if !ok {
		if !w.log {
			c.Misfits = append(c.Misfits, Refused{w.root, bytenr, generation, level, first, last})
		}
		return false
	}
	c.Visited[bytenr] = w.num
	if w.met != nil {
		w.met(n)
	}
	if w.counts {
		c.Quota.reach = append(c.Quota.reach, reach{bytenr, uint64(c.Super.NodeSize), w.root})
	}
	if !old {
		c.stats.TreeBlocks++
		if !w.log && c.Super.IncompatFlags&format.IncompatSimpleQuota != 0 {
			c.owns(n.Owner(), uint64(c.Super.NodeSize), n.Generation())
		}
		if !w.log {
			c.Blocks = append(c.Blocks, Block{bytenr, n.Generation(), uint8(level)})
		}
		c.step()
	}
	nr := n.Nritems()
	if nr > 0 {
		if k := n.Key(0); first != nil && k != *first {
			c.find("tree.first_key", where, k, *first)
			return false
		}
		if k := n.Key(nr - 1); last.Less(k) {
			c.find("tree.key_range", where, k, words("at most %v", last))
			if level == 0 && !w.log {
				c.Refused = append(c.Refused, Refused{w.root, bytenr, generation, level, first, last})
			}
			return false
		}
	} else if first != nil {
		c.find("tree.first_key", where, Words("an empty block"), *first)
		return false
	}
	if level == 0 {
		if !old && !w.log {
			w.dataPointers(n)
		}
		w.leaf(n, !old)
		return true
	}
	for i := range nr {
		upper := last
		if i+1 < nr {
			upper = n.Key(i + 1)
			if w.drop != (format.Key{}) && !w.drop.Less(upper) {
				continue
			}
			upper = before(upper)
		}
		child, k := n.Blockptr(i), n.Key(i)
		// The reference of a pointer that cannot be followed is nobody's business: the pointer is
		// the problem.
		if w.visit(child, n.PtrGeneration(i), level-1, &k, upper) && !old && !w.log {
			c.Pointers = append(c.Pointers, Pointer{child, bytenr, n.Owner()})
		}
	}
	return true
}

// before is the largest key less than k, which is not the smallest of all: a key follows another in
// its block.
func before(k format.Key) format.Key {
	if k.Offset--; k.Offset == ^uint64(0) {
		if k.Type--; k.Type == 0xff {
			k.Objectid--
		}
	}
	return k
}

// dataPointers records the file extents in a leaf, whatever the tree: old free space caches are in
// the root tree.
func (w *walk) dataPointers(n format.Node) {
	if w.c.sliced {
		return
	}
	for i := range n.Nritems() {
		k := n.Key(i)
		if k.Type != format.EXTENT_DATA_KEY {
			continue
		}
		var fe format.FileExtent
		fe.Decode(n.Item(i))
		if fe.Type == format.FileExtentTypeInline || fe.DiskBytenr == 0 {
			continue
		}
		w.c.Data = append(w.c.Data, DataPointer{fe.DiskBytenr, fe.DiskNumBytes, n.Bytenr(), n.Owner(), k.Objectid, k.Offset - fe.Offset, fe.Generation})
	}
}

// read gets a block from its chunk; a fresh one is judged, on every mirror.
func (w *walk) read(bytenr, generation uint64, level int, where Place, fresh bool) (format.Node, bool) {
	c := w.c
	size := uint64(c.Super.NodeSize)
	ch := c.ChunkAt(bytenr)
	if ch == nil || bytenr+size > ch.Start+ch.Length || bytenr%uint64(c.Super.SectorSize) != 0 {
		c.find("tree.chunk", where, Words("a block in no chunk"), nil)
		return nil, false
	}
	typ := uint64(format.BlockGroupMetadata)
	if w.root == format.CHUNK_TREE_OBJECTID {
		typ = format.BlockGroupSystem
	}
	if ch.Type&typ == 0 {
		c.find("tree.chunk", where, words("a block in a chunk of type 0x%x", ch.Type), hex(typ))
	}
	if w.bufs[level] == nil {
		w.bufs[level] = make([]byte, size)
	}
	places, run := ch.Places(bytenr)
	if run < size {
		c.find("tree.chunk", where, Words("a block over the end of a stripe"), Words("one inside it"))
		return nil, false
	}
	r := copyRead{walk: w, where: where, fresh: fresh, bad: Bad{Logical: bytenr, Length: size, Tree: true, Generation: generation, Level: level}}
	for i, place := range places {
		if r.meant && !fresh {
			break
		}
		if place.Dev != nil { // else chunk.item
			r.take(i, place)
		}
	}
	best := r.best
	if best == nil {
		c.find("tree.read", where, Words("no good copy"), nil)
		return nil, false
	}
	return best, w.judge(best, bytenr, generation, level, where, fresh)
}

// copyRead is the reading of a block, copy by copy.
type copyRead struct {
	*walk
	where Place
	fresh bool
	bad   Bad // what a copy that is bad has in common with others

	best       format.Node // the first that is meant, or the first with a good checksum
	bestMirror Place
	meant      bool // best is
}

// take reads copy i, and judges it by the others.
func (r *copyRead) take(i int, place Stripe) {
	c, level := r.c, r.bad.Level
	buf := r.bufs[level]
	if r.best != nil {
		buf = c.scratch
	}
	b := r.bad
	b.Mirror, b.At, b.Where = i, place, r.where.with(AtMirror, uint64(i)).joined(c.at(place))
	if r.fresh {
		c.scanned(place.Dev, ofTree, b.Length)
	}
	if err := blockdev.Read(c.Task, place.Dev, buf, int64(place.Off)); err != nil {
		c.find("device.read", b.Where, words("%v", err), nil)
		b.Unread = true
		c.addBadCopy(b)
		return
	}
	n := format.Node(buf)
	meant := c.Meant(n, b.Logical, b.Generation, level)
	if r.fresh && (!meant || r.meant && !bytes.Equal(r.best, n)) {
		c.addBadCopy(b)
	}
	switch csum := c.Super.CsumType; {
	case !csum.BlockMatch(n):
		if r.fresh {
			have, want := csum.BlockText(n)
			c.find("tree.csum", b.Where, Words(have), Words(want))
		}
	case r.best == nil:
		r.best, r.bestMirror, r.meant = n, b.Where, meant
	case bytes.Equal(r.best, n):
	case meant && !r.meant: // the one before is of another time or place
		if r.fresh {
			r.differs(r.bestMirror, r.best, n)
		}
		r.bufs[level], c.scratch = c.scratch, r.bufs[level]
		r.best, r.bestMirror, r.meant = n, b.Where, true
	case r.fresh:
		r.differs(b.Where, n, r.best)
	}
}

// differs finds a copy with other bytes than the one that is used.
func (r *copyRead) differs(mirror Place, n, used format.Node) {
	r.c.find("tree.mirror", mirror, words("generation %d, other bytes than the copy that is used", n.Generation()), words("generation %d", used.Generation()))
}

// judge checks a block against its parent, and when it is new by itself.
func (w *walk) judge(n format.Node, bytenr, generation uint64, level int, where Place, fresh bool) bool {
	c := w.c
	if h := n.Bytenr(); h != bytenr {
		c.find("tree.header", where, words("bytenr %d", h), num(bytenr))
		return false
	}
	if f, want := n.FSID(), c.Super.TreeFSID(); f != want {
		c.find("tree.header", where, words("fsid %v", f), words("%v", want))
		return false
	}
	if n.Level() != level {
		c.find("tree.level", where, num(uint64(n.Level())), num(uint64(level)))
		return false
	}
	if g := n.Generation(); g != generation {
		c.find("tree.generation", where, num(g), num(generation))
		return false
	}
	if o := n.Owner(); o != w.root && !(format.IsFSTree(w.root) && format.IsFSTree(o)) {
		c.find("tree.owner", where, num(o), num(w.root))
		return false
	}
	if !fresh {
		return true
	}
	newest := c.Super.Generation
	if w.log {
		newest++
	}
	ctx := format.CheckContext{Root: w.root, SectorSize: c.Super.SectorSize, NodeSize: c.Super.NodeSize, Generation: newest, Level: level,
		Csum: c.Super.CsumType}
	check := format.CheckNode
	if level == 0 {
		check = format.CheckLeaf
	}
	if err := check(n, ctx); err != nil {
		c.findErr("tree.block", where, err)
		if !w.log {
			c.Refused = append(c.Refused, w.refusal(bytenr, generation, level))
		}
		return false
	}
	if level == 0 {
		w.keyTypes(n, where)
	}
	return true
}

func (w *walk) refusal(bytenr, generation uint64, level int) Refused {
	return Refused{w.root, bytenr, generation, level, w.first, w.last}
}

// keyTypes finds the types that no version of btrfs has given to a key, and items in a tree that
// has none such: the tree checker leaves them alone, as the kernel does, and nobody finds what they
// were.
func (w *walk) keyTypes(n format.Node, where Place) {
	home := format.HomeOf(w.root)
	for i := range n.Nritems() {
		k := n.Key(i)
		if it, ok := format.ItemTypeOf(k.Type); !ok {
			w.c.find("tree.key_type", where.with(AtSlot, uint64(i)), k, Words("a type that btrfs has"))
		} else if it.Home&home == 0 && home != format.InOther {
			w.c.find("tree.key_type", where.with(AtSlot, uint64(i)), k, words("an item of this tree, where %s has no place", it.Name))
		}
	}
}

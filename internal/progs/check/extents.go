package check

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"btrlab/internal/format"
)

// extentRules are about block groups and extents.
var extentRules = []Rule{
	{"group.chunk", "block groups and chunks pair up, with the same length and flags (4)", "space is lost, or Linux does not mount it"},
	{"group.used", "a block group's used is the sum of its extents (4)", "free space is counted wrongly: writes may fail early, or too late"},
	{"extent.group", "an extent lies in one block group of its type (4)", "the space may be given away twice"},
	{"extent.overlap", "extents do not overlap, nor cover a superblock copy (2)", "two extents share space, and one damages the other"},
	{"extent.missing", "what is referenced has an extent item (3)", "the space passes for free: the next write may go over it"},
	{"extent.ref_missing", "each reference from a tree is listed in the extent tree (3)", "a deletion elsewhere frees it too early; Linux turns read-only then"},
	{"extent.ref_extra", "each reference listed in the extent tree exists (3)", "its space is never freed"},
	{"extent.refs", "an extent's refs is the sum of its listed references (3)", "it is freed too early or never"},
	{"extent.length", "a file extent names its extent's whole length (3)", "it cannot be freed; Linux turns read-only then"},
	{"extent.type", "tree blocks and data are not mixed up, levels agree (3)", "data and metadata may be written over each other"},
	{"extent.generation", "a tree block's extent item has the block's generation", "send and incremental backups may miss it"},
}

// Extent is an EXTENT_ITEM or METADATA_ITEM.
type Extent struct {
	Start, Length uint64
	refs          uint64
	generation    uint64
	tree, full    bool // tree block; FULL_BACKREF
	level         uint8
}

// refKind says how a reference is listed.
type refKind uint8

const (
	refTree       refKind = iota // a: root
	refShared                    // a: parent block
	refData                      // a: root, b: inode, c: file offset - extent offset
	refSharedData                // a: parent block
)

// ref is a listed reference, or what a tree says should be listed.
type ref struct {
	extent  uint64
	a, b, c uint64
	count   uint64
	length  uint64 // what file extents say; 0 when nobody says
	kind    refKind
}

func compareRefs(x, y ref) int {
	return cmp.Or(cmp.Compare(x.extent, y.extent), cmp.Compare(x.kind, y.kind), cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b), cmp.Compare(x.c, y.c))
}

func (r ref) String() string {
	switch r.kind {
	case refTree:
		return fmt.Sprintf("a tree block reference from root %d", int64(r.a))
	case refShared:
		return fmt.Sprintf("a shared block reference from block %d", r.a)
	case refData:
		return fmt.Sprintf("a data reference from root %d ino %d offset %d, count %d", int64(r.a), r.b, int64(r.c), r.count)
	}
	return fmt.Sprintf("a shared data reference from block %d, count %d", r.a, r.count)
}

// Group is a block group.
type Group struct {
	Start, Length uint64
	Flags, Used   uint64
	sum           uint64 // of extents seen
	free          []Span // of the free space tree, merged
	info          *format.FreeSpaceInfo
	runs          uint32 // of the free space tree as it is
}

func (g *Group) end() uint64 { return g.Start + g.Length }

// GroupAt is the block group that has the logical address, nil if none has.
func (c *Seen) GroupAt(logical uint64) *Group {
	i := sort.Search(len(c.Groups), func(i int) bool { return c.Groups[i].Start > logical }) - 1
	if i < 0 || logical >= c.Groups[i].end() {
		return nil
	}
	return &c.Groups[i]
}

func (c *checker) extentAt(start uint64) *Extent {
	i := sort.Search(len(c.Extents), func(i int) bool { return c.Extents[i].Start >= start })
	if i == len(c.Extents) || c.Extents[i].Start != start {
		return nil
	}
	return &c.Extents[i]
}

// full reports whether a tree block holds the references of its pointers itself.
func (c *checker) full(bytenr uint64) bool {
	if c.sliced {
		return c.fulls[bytenr]
	}
	x := c.extentAt(bytenr)
	return x != nil && x.full
}

func (c *checker) groupItem(k format.Key, b []byte) {
	var g format.BlockGroupItem
	g.Decode(b)
	c.Groups = append(c.Groups, Group{Start: k.Objectid, Length: k.Offset, Flags: g.Flags, Used: g.Used})
}

// loadGroups reads the tree of block groups, where there is one.
func (c *checker) loadGroups() {
	id := c.GroupTree()
	r, ok := c.Roots[id]
	if id == format.EXTENT_TREE_OBJECTID || !ok {
		c.ExtentsWhole = c.ExtentsWhole && ok
		return
	}
	whole := c.walkTree(id, r.Item.Bytenr, r.Item.Generation, r.Item.Level, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			if k := n.Key(i); k.Type == format.BLOCK_GROUP_ITEM_KEY {
				c.groupItem(k, n.Item(i))
			}
		}
	})
	c.ExtentsWhole = c.ExtentsWhole && whole
}

// loadExtents reads the extent tree.
func (c *checker) loadExtents() {
	r, ok := c.Roots[format.EXTENT_TREE_OBJECTID]
	if !ok {
		return
	}
	c.ExtentsWhole = c.walkTree(format.EXTENT_TREE_OBJECTID, r.Item.Bytenr, r.Item.Generation, r.Item.Level, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			k, b := n.Key(i), n.Item(i)
			switch {
			case k.Type == format.BLOCK_GROUP_ITEM_KEY && c.GroupTree() != format.EXTENT_TREE_OBJECTID:
				c.find("group.chunk", on(AtBlockGroup, k.Objectid), Words("in the extent tree"), Words("in the tree of block groups"))
			case k.Type == format.BLOCK_GROUP_ITEM_KEY:
				c.groupItem(k, b)
			case c.sliced:
				c.countItem(k, b)
			default:
				c.refItem(k, b)
			}
		}
	})
}

// refItem takes an extent item, or a reference with an item of its own.
func (c *checker) refItem(k format.Key, b []byte) {
	switch k.Type {
	case format.EXTENT_ITEM_KEY, format.METADATA_ITEM_KEY:
		c.extentItem(k, b)
	case format.TREE_BLOCK_REF_KEY:
		c.haveRefs = append(c.haveRefs, ref{extent: k.Objectid, kind: refTree, a: k.Offset, count: 1})
	case format.SHARED_BLOCK_REF_KEY:
		c.haveRefs = append(c.haveRefs, ref{extent: k.Objectid, kind: refShared, a: k.Offset, count: 1})
	case format.SHARED_DATA_REF_KEY:
		c.haveRefs = append(c.haveRefs, ref{extent: k.Objectid, kind: refSharedData, a: k.Offset, count: uint64(le.Uint32(b))})
	case format.EXTENT_DATA_REF_KEY:
		for ; len(b) > 0; b = b[format.ExtentDataRefSize:] {
			var d format.ExtentDataRef
			d.Decode(b)
			c.haveRefs = append(c.haveRefs, ref{extent: k.Objectid, kind: refData, a: d.Root, b: uint64(d.Ino), c: uint64(d.Offset), count: uint64(d.Count)})
		}
	}
}

func (c *checker) extentItem(k format.Key, b []byte) {
	var e format.ExtentItem
	e.Decode(b)
	x := Extent{Start: k.Objectid, Length: k.Offset, refs: e.Refs, generation: e.Generation,
		tree: e.Flags&format.ExtentFlagTreeBlock != 0, full: e.Flags&format.BlockFlagFullBackref != 0}
	at := format.ExtentItemSize
	if x.tree {
		if k.Type == format.METADATA_ITEM_KEY {
			x.level, x.Length = uint8(k.Offset), uint64(c.Super.NodeSize)
		} else {
			at += format.KeySize + 1
			x.level = b[at-1]
		}
	}
	if x.tree && !c.sliced {
		c.treeBlocks++
	}
	c.Extents = append(c.Extents, x)
	for at < len(b) {
		r := ref{extent: x.Start, count: 1, a: le.Uint64(b[at+1:])}
		switch b[at] {
		case format.TREE_BLOCK_REF_KEY:
			r.kind = refTree
		case format.EXTENT_OWNER_REF_KEY: // refers to nothing: for quotas
			c.owns(r.a, x.Length, x.generation)
			at += format.InlineRefSize(b[at])
			continue
		case format.SHARED_BLOCK_REF_KEY:
			r.kind = refShared
		case format.SHARED_DATA_REF_KEY:
			r.kind, r.count = refSharedData, uint64(le.Uint32(b[at+9:]))
		default:
			var d format.ExtentDataRef
			d.Decode(b[at+1:])
			r.kind, r.a, r.b, r.c, r.count = refData, d.Root, uint64(d.Ino), uint64(d.Offset), uint64(d.Count)
		}
		c.haveRefs = append(c.haveRefs, r)
		at += format.InlineRefSize(b[at])
	}
}

// checkGroups compares block groups with chunks.
func (c *checker) checkGroups() {
	i := 0
	for j := range c.Groups {
		g := &c.Groups[j]
		where := on(AtBlockGroup, g.Start)
		for ; i < len(c.Chunks) && c.Chunks[i].Start < g.Start; i++ {
			c.find("group.chunk", on(AtLogical, c.Chunks[i].Start), Words("a chunk without block group"), Words("one"))
		}
		if i == len(c.Chunks) || c.Chunks[i].Start != g.Start {
			c.find("group.chunk", where, Words("a block group without chunk"), Words("one"))
			continue
		}
		ch := &c.Chunks[i]
		i++
		if ch.Length != g.Length {
			c.find("group.chunk", where, words("length %d", g.Length), num(ch.Length))
		}
		if ch.Type != g.Flags {
			c.find("group.chunk", where, words("flags 0x%x", g.Flags), hex(ch.Type))
		}
	}
	for ; i < len(c.Chunks); i++ {
		c.find("group.chunk", on(AtLogical, c.Chunks[i].Start), Words("a chunk without block group"), Words("one"))
	}
}

// checkExtents judges the extents by themselves and by their block groups. They begin after those
// that end at end; it returns where they end.
func (c *checker) checkExtents(end uint64) uint64 {
	for j := range c.Extents {
		x := &c.Extents[j]
		where := on(AtExtent, x.Start).with(AtLength, x.Length)
		if x.Start < end {
			c.find("extent.overlap", where, words("start %d", x.Start), words("at least %d, the end of the one before", end))
		}
		end = max(end, x.Start+x.Length)
		if !x.tree {
			c.stats.DataExtents++
		}
		g := c.GroupAt(x.Start)
		if g == nil || x.Start+x.Length > g.end() {
			c.find("extent.group", where, Words("an extent that is in no block group, or in two"), Words("one"))
			continue
		}
		g.sum += x.Length
		if x.tree && g.Flags&(format.BlockGroupMetadata|format.BlockGroupSystem) == 0 || !x.tree && g.Flags&format.BlockGroupData == 0 {
			c.find("extent.group", where, words("in a block group of type 0x%x", g.Flags&format.BlockGroupTypeMask), Words("data in DATA, tree blocks in METADATA or SYSTEM"))
		}
		c.superStripe(x, where)
	}
	return end
}

// checkUsed compares what the block groups say with the sums of their extents.
func (c *checker) checkUsed() {
	var used uint64
	for j := range c.Groups {
		g := &c.Groups[j]
		used += g.Used
		if g.sum != g.Used {
			c.find("group.used", on(AtBlockGroup, g.Start), num(g.Used), num(g.sum))
		}
	}
	if used != c.Super.BytesUsed {
		c.find("super.bytes_used", on(AtSuperblock, 0), num(c.Super.BytesUsed), num(used))
	}
}

// superStripe: nothing may be allocated in the 64 KiB stripe of a superblock copy.
func (c *checker) superStripe(x *Extent, where Place) {
	ch := c.ChunkAt(x.Start)
	if ch == nil {
		return
	}
	for at, end := x.Start, min(x.Start+x.Length, ch.Start+ch.Length); at < end; {
		places, run := ch.Places(at)
		run = min(run, end-at)
		if ch.Parity() > 0 { // neither may anything be in the row of a unit that has one
			places = ch.row(at)
		}
		for _, p := range places {
			for i := range format.SuperMirrorMax {
				if s := format.SuperMirror(i); p.Off < s+format.StripeLen && s < p.Off+run {
					c.find("extent.overlap", where, words("%s, over the superblock copy at %d", c.at(p), s), Words("nothing allocated there"))
				}
			}
		}
		at += run
	}
}

// checkRefs compares what trees reference with what the extent tree lists, of extents that begin in
// the range.
func (c *checker) checkRefs(in Span) {
	if !c.ExtentsWhole {
		return
	}
	want := c.wantedRefs(in)
	slices.SortFunc(want, compareRefs)
	slices.SortFunc(c.haveRefs, compareRefs)
	have := c.haveRefs
	for i := range c.Extents {
		x := &c.Extents[i]
		where := on(AtExtent, x.Start).with(AtLength, x.Length)
		have = c.unlisted(have, x.Start)
		want = c.missing(want, x.Start)
		var sum uint64
		for _, r := range have {
			if r.extent != x.Start {
				break
			}
			sum += r.count
		}
		if sum != x.refs {
			c.find("extent.refs", where, num(x.refs), num(sum))
		}
		have, want = c.compareAt(x, have, want)
	}
	c.unlisted(have, ^uint64(0))
	c.missing(want, ^uint64(0))
	c.compareBlocks(in)
}

// wantedRefs lists the references of trees to extents that begin in a span.
func (c *checker) wantedRefs(in Span) (want []ref) {
	for _, p := range c.Pointers {
		if p.Child < in.Start || p.Child >= in.End {
			continue
		}
		r := ref{extent: p.Child, kind: refTree, a: p.Owner, count: 1, length: uint64(c.Super.NodeSize)}
		if p.Parent != 0 {
			if c.full(p.Parent) {
				r.kind, r.a = refShared, p.Parent
			}
		}
		want = append(want, r)
	}
	for _, p := range c.Data {
		r := ref{extent: p.Bytenr, kind: refData, a: p.Owner, b: p.Ino, c: p.Start, count: 1, length: p.Length}
		if c.full(p.Parent) {
			r.kind, r.a, r.b, r.c = refSharedData, p.Parent, 0, 0
		}
		want = append(want, r)
	}
	return want
}

// compareAt compares the references that the extent tree has to an extent with those of trees. Both
// lists are in order and begin with the extent's, if it has any; the rest of each is returned.
func (c *checker) compareAt(x *Extent, have, want []ref) (restHave, restWant []ref) {
	where := on(AtExtent, x.Start).with(AtLength, x.Length)
	for len(have) > 0 && have[0].extent == x.Start || len(want) > 0 && want[0].extent == x.Start {
		haveHere := len(have) > 0 && have[0].extent == x.Start
		wantHere := len(want) > 0 && want[0].extent == x.Start
		var h, w ref
		if haveHere {
			h = have[0]
		}
		nw := 0
		if wantHere {
			w = want[0]
			for nw = 1; nw < len(want) && compareRefs(want[nw], w) == 0; nw++ {
				w.count++
			}
			for _, v := range want[:nw] {
				if v.length != x.Length {
					c.find("extent.length", where, words("length %d in %v", v.length, w), num(x.Length))
				}
			}
			if tree := w.kind == refTree || w.kind == refShared; tree != x.tree {
				c.find("extent.type", where, words("%v", w), Words(map[bool]string{true: "a tree block", false: "data"}[x.tree]))
			}
		}
		order := 0
		if haveHere && wantHere {
			order = compareRefs(h, w)
		}
		switch {
		case !wantHere || haveHere && order < 0:
			if !c.Cut { // else it may be in what was not visited
				c.find("extent.ref_extra", where, words("%v", h), nil)
			}
			have = have[1:]
		case !haveHere || order > 0:
			c.find("extent.ref_missing", where, Words("no such reference in the extent tree"), words("%v", w))
			want = want[nw:]
		default:
			if h.count < w.count || h.count > w.count && !c.Cut {
				rule := "extent.ref_extra"
				if h.count < w.count {
					rule = "extent.ref_missing"
				}
				c.find(rule, where, words("%v", h), words("count %d", w.count))
			}
			have, want = have[1:], want[nw:]
		}
	}
	return have, want
}

// compareBlocks compares what the extent tree says of the tree blocks in a span with their headers.
func (c *checker) compareBlocks(in Span) {
	for _, b := range c.Blocks {
		if b.Bytenr < in.Start || b.Bytenr >= in.End {
			continue
		}
		x := c.extentAt(b.Bytenr)
		if x == nil || !x.tree {
			continue
		}
		where := on(AtExtent, x.Start).with(AtLength, x.Length)
		if x.level != b.Level {
			c.find("extent.type", where, words("level %d", x.level), num(uint64(b.Level)))
		}
		if x.generation != b.Generation {
			c.find("extent.generation", where, num(x.generation), num(b.Generation))
		}
	}
}

// unlisted takes the keyed references before start from have: they belong to no extent.
func (c *checker) unlisted(have []ref, start uint64) []ref {
	for len(have) > 0 && have[0].extent < start {
		c.find("extent.ref_extra", on(AtExtent, have[0].extent), words("%v, of an extent that is not there", have[0]), nil)
		have = have[1:]
	}
	return have
}

// missing takes the references before start from want: what they reference has no extent item.
func (c *checker) missing(want []ref, start uint64) []ref {
	for len(want) > 0 && want[0].extent < start {
		w := want[0]
		c.find("extent.missing", on(AtExtent, w.extent).with(AtLength, w.length), Words("no extent item"), words("%v", w))
		want = want[1:]
	}
	return want
}

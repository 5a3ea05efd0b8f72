package check

import (
	"btrlab/internal/format"
)

// freeSpaceRules are about the free space tree.
var freeSpaceRules = []Rule{
	{"free_space.info", "each block group has its free space info, with the right count (8)", "Linux searches the space anew, or uses less of it"},
	{"free_space.range", "the free space tree is the exact complement of the extents (8)", "space in use passes for free, or free space is not used"},
}

// checkFreeSpace compares the free space tree with the complement of the extents. A stripe under a
// superblock copy counts as free, as in the kernel, which keeps it from allocation in memory only.
//
// Adjacent free ranges must be one: the kernel's remove_from_free_space_extent() looks for one that
// holds the whole allocation.
func (c *checker) checkFreeSpace() {
	if c.Super.CompatROFlags&format.CompatROFreeSpaceTree == 0 {
		return
	}
	r, ok := c.Roots[format.FREE_SPACE_TREE_OBJECTID]
	if !ok {
		return
	}
	valid := c.Super.CompatROFlags&format.CompatROFreeSpaceTreeValid != 0
	foreign := 0
	whole := c.walkTree(format.FREE_SPACE_TREE_OBJECTID, r.Item.Bytenr, r.Item.Generation, r.Item.Level, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			k := n.Key(i)
			if k.Type < format.FREE_SPACE_INFO_KEY || k.Type > format.FREE_SPACE_BITMAP_KEY {
				continue
			}
			g := c.GroupAt(k.Objectid)
			if g == nil {
				foreign++
				continue
			}
			if valid && !c.sliced {
				c.freeItem(g, k, n.Item(i))
			}
		}
	})
	if foreign > 0 {
		// mkfs.btrfs 6.2 does this with its temporary groups, and Linux leaves them there.
		c.note("the free space tree has %d items of block groups that are no more", foreign)
	}
	if !valid {
		c.note("the free space tree is not marked valid: a mount will make it anew")
		return
	}
	c.freeWhole = whole && c.ExtentsWhole
	if c.freeWhole && !c.sliced {
		c.compareGroups(Span{0, ^uint64(0)})
	}
}

// compareGroups compares the free space of the block groups that begin in the range with what their
// extents leave.
func (c *checker) compareGroups(in Span) {
	x := 0
	for i := range c.Groups {
		g := &c.Groups[i]
		if g.Start < in.Start || g.Start >= in.End {
			continue
		}
		where := on(AtBlockGroup, g.Start)
		for x < len(c.Extents) && c.Extents[x].Start < g.Start {
			x++
		}
		var want []Span
		at := g.Start
		for ; x < len(c.Extents) && c.Extents[x].Start < g.end(); x++ {
			if s := c.Extents[x].Start; s > at {
				want = append(want, Span{at, s})
			}
			at = max(at, c.Extents[x].Start+c.Extents[x].Length)
		}
		if at < g.end() {
			want = append(want, Span{at, g.end()})
		}
		if g.info == nil {
			c.find("free_space.info", where, Words("no free space info"), Words("one"))
		} else if g.info.ExtentCount != uint32(len(want)) {
			c.find("free_space.info", where, words("extent count %d", g.info.ExtentCount), num(uint64(len(want))))
		}
		if g.info != nil && g.info.Flags&format.FreeSpaceUsingBitmaps == 0 && g.runs != uint32(len(g.free)) {
			c.find("free_space.range", where, words("%d free space extents, some adjacent", g.runs), num(uint64(len(g.free))))
		}
		c.compareFree(where, g.free, want)
	}
}

// freeItem takes one item of the free space tree into its group; items come in key order.
func (c *checker) freeItem(g *Group, k format.Key, b []byte) {
	where := on(AtBlockGroup, g.Start)
	if k.Type == format.FREE_SPACE_INFO_KEY {
		if k.Objectid != g.Start || k.Offset != g.Length {
			c.find("free_space.info", where, words("info of start %d length %d", k.Objectid, k.Offset), words("start %d length %d", g.Start, g.Length))
			return
		}
		g.info = &format.FreeSpaceInfo{}
		g.info.Decode(b)
		return
	}
	if k.Objectid+k.Offset > g.end() {
		c.find("free_space.range", where, words("a range %d..%d", k.Objectid, k.Objectid+k.Offset), Words("one inside the block group"))
		return
	}
	if g.info == nil {
		c.find("free_space.info", where, Words("a free space range before its info"), nil)
		g.info = &format.FreeSpaceInfo{}
	}
	bitmap := k.Type == format.FREE_SPACE_BITMAP_KEY
	if using := g.info.Flags&format.FreeSpaceUsingBitmaps != 0; bitmap != using {
		c.find("free_space.info", where, words("flags 0x%x, but key type %d", g.info.Flags, k.Type), nil)
	}
	if !bitmap {
		g.runs++
		g.addFree(k.Objectid, k.Objectid+k.Offset)
		return
	}
	sector := uint64(c.Super.SectorSize)
	for i := uint64(0); i < k.Offset/sector; i++ {
		if b[i/8]>>(i%8)&1 != 0 {
			g.addFree(k.Objectid+i*sector, k.Objectid+(i+1)*sector)
		}
	}
}

func (g *Group) addFree(start, end uint64) {
	if n := len(g.free); n > 0 && g.free[n-1].End == start {
		g.free[n-1].End = end
		return
	}
	g.free = append(g.free, Span{start, end})
}

// compareFree reports where two ascending lists of ranges differ.
func (c *checker) compareFree(where Place, have, want []Span) {
	free := func(s []Span, at uint64) (bool, uint64) { // at's state, and where it ends
		for len(s) > 0 && s[0].End <= at {
			s = s[1:]
		}
		if len(s) == 0 {
			return false, ^uint64(0)
		}
		if at < s[0].Start {
			return false, s[0].Start
		}
		return true, s[0].End
	}
	state := map[bool]string{true: "free", false: "used"}
	for at := uint64(0); at != ^uint64(0); {
		for len(have) > 0 && have[0].End <= at {
			have = have[1:]
		}
		for len(want) > 0 && want[0].End <= at {
			want = want[1:]
		}
		h, hEnd := free(have, at)
		w, wEnd := free(want, at)
		end := min(hEnd, wEnd)
		if h != w {
			c.find("free_space.range", where.with(AtStart, at).with(AtLength, end-at), Words(state[h]), Words(state[w]))
		}
		at = end
	}
}

package check

import (
	"btrlab/internal/format"
)

// A check with bounded memory. The trees are walked once as always, but of the extent tree only the
// number of items by address is kept. Then the block groups are taken in ranges that have few
// enough: for each range its part of the extent tree, the free space tree and the checksum tree is
// read again, and all trees of files, for their extents there. What is compared within the range is
// what a check without a bound compares, by the same functions.
//
// Model: btrfs-progs check --mode=lowmem, which searches the trees for each reference instead.

const (
	// sliceItem is what an item of the extent tree takes in a range, in bytes: the extent, the
	// reference listed and wanted, the file extent, its checksums and its reach in quotas, with
	// room for slices to grow.
	sliceItem = 600
	// countShift makes addresses into those that items are counted by: 64 MiB.
	countShift = 26
)

// countItem counts an item of the extent tree.
func (c *checker) countItem(k format.Key, b []byte) {
	n := uint64(1)
	switch k.Type {
	case format.EXTENT_ITEM_KEY, format.METADATA_ITEM_KEY:
		var e format.ExtentItem
		e.Decode(b)
		if e.Flags&format.ExtentFlagTreeBlock != 0 {
			c.treeBlocks++
			if e.Flags&format.BlockFlagFullBackref != 0 {
				c.fulls[k.Objectid] = true
			}
		} else {
			n = max(1, min(e.Refs, uint64(len(b))))
		}
	case format.EXTENT_DATA_REF_KEY:
		n = uint64(len(b) / format.ExtentDataRefSize)
	}
	c.items[k.Objectid>>countShift] += n
}

// ranges cuts all addresses into ranges that begin with a block group and have at most so many
// items, or one block group.
func (c *checker) ranges(most uint64) (list []Span) {
	start, have := uint64(0), uint64(0)
	for i := range c.Groups {
		g := &c.Groups[i]
		var n uint64
		for at := g.Start >> countShift; at <= (g.end()-1)>>countShift; at++ {
			n += c.items[at]
		}
		if have > 0 && have+n > most {
			list = append(list, Span{start, g.Start})
			start, have = g.Start, 0
		}
		have += n
	}
	return append(list, Span{start, ^uint64(0)})
}

// checkSlices judges the extents, range by range.
func (c *checker) checkSlices() {
	o := c.Image.scratch()
	o.Visited, o.walks = c.Visited, c.walks
	end := uint64(0)
	for _, in := range c.ranges(max(1, c.o.MaxMemory/2/sliceItem)) {
		c.Extents, c.haveRefs, c.Data, c.csums = c.Extents[:0], c.haveRefs[:0], c.Data[:0], c.csums[:0]
		c.inRange(format.EXTENT_TREE_OBJECTID, format.Key{Objectid: in.Start}, format.Key{Objectid: in.End}, func(n format.Node, i int) { c.refItem(n.Key(i), n.Item(i)) })
		if c.ExtentsWhole {
			end = c.checkExtents(end)
		}
		if c.freeWhole {
			c.inRange(format.FREE_SPACE_TREE_OBJECTID, format.Key{Objectid: in.Start}, format.Key{Objectid: in.End}, func(n format.Node, i int) {
				if k := n.Key(i); k.Type >= format.FREE_SPACE_INFO_KEY && k.Type <= format.FREE_SPACE_BITMAP_KEY {
					if g := c.GroupAt(k.Objectid); g != nil {
						c.freeItem(g, k, n.Item(i))
					}
				}
			})
			c.compareGroups(in)
			for i := range c.Groups {
				c.Groups[i].free = nil
			}
		}
		data := c.startData()
		x := 0
		sum := format.Key{Objectid: format.EXTENT_CSUM_OBJECTID, Type: format.EXTENT_CSUM_KEY}
		from, to := sum, sum
		from.Offset, to.Offset = in.Start-min(in.Start, c.sumReach()), in.End
		c.inRange(format.CSUM_TREE_OBJECTID, from, to, func(n format.Node, i int) { x = c.csumItem(data, n, i, x, in) })
		c.gather(o, in)
		c.checkRefs(in)
		if c.Quota != nil {
			// Tree blocks, which are all there, count after the last range.
			all := c.Quota.reach
			c.Quota.reach = c.sliceReach
			c.Quota.count()
			c.Quota.reach, c.sliceReach = all, c.sliceReach[:0]
		}
		data.wait()
		c.blameData(data)
		if !c.noData {
			c.checkParity(in)
		}
	}
	c.walks = o.walks // both number their walks in visited
	c.Extents, c.haveRefs, c.Data, c.csums, c.sliceReach = nil, nil, nil, nil, nil
	if c.ExtentsWhole {
		c.checkUsed()
	}
}

// sumReach is how many bytes of data an item of the checksum tree covers at most.
func (c *checker) sumReach() uint64 {
	return uint64(c.Super.NodeSize) / uint64(c.Super.CsumType.Size()) * uint64(c.Super.SectorSize)
}

// gather reads the trees again for the file extents in the range: what their references are,
// whether they have checksums, and which subvolumes reach them.
func (c *checker) gather(o *checker, in Span) {
	seen := map[uint64]bool{}
	walk := func(id uint64, r format.RootItem, drop format.Key) {
		files := format.IsFSTree(id) && (r.Refs > 0 || id == format.FS_TREE_OBJECTID) || id == format.DATA_RELOC_TREE_OBJECTID
		reached := c.Quota != nil && format.IsFSTree(id) && (r.Refs > 0 || id == format.FS_TREE_OBJECTID)
		var ino, flags uint64
		w := o.newWalk(id, func(n format.Node, _ bool) {
			fresh := !seen[n.Bytenr()]
			seen[n.Bytenr()] = true
			for i := range n.Nritems() {
				k := n.Key(i)
				switch k.Type {
				case format.INODE_ITEM_KEY:
					var it format.InodeItem
					it.Decode(n.Item(i))
					ino, flags = k.Objectid, it.Flags
				case format.EXTENT_DATA_KEY:
					b := n.Item(i)
					v := format.FileExtentView(b)
					if v.Type() == format.FileExtentTypeInline || v.DiskBytenr() == 0 || v.DiskBytenr() < in.Start || v.DiskBytenr() >= in.End {
						continue
					}
					var fe format.FileExtent
					fe.Decode(b)
					if fresh {
						c.Data = append(c.Data, DataPointer{fe.DiskBytenr, fe.DiskNumBytes, n.Bytenr(), n.Owner(), k.Objectid, k.Offset - fe.Offset, fe.Generation})
					}
					if reached {
						c.sliceReach = append(c.sliceReach, reach{fe.DiskBytenr, fe.DiskNumBytes, id})
					}
					if files && ino == k.Objectid && fe.Type == format.FileExtentTypeReg && flags&format.InodeNoDataSum == 0 && c.CsumsWhole {
						c.covered(&fe, func() Place { return PlaceOf(id, k.Objectid).with(AtFileOffset, k.Offset) })
					}
				}
			}
		})
		w.drop = drop
		w.from(r.Bytenr, r.Generation, r.Level)
		o.Pointers = o.Pointers[:0]
	}
	walk(format.ROOT_TREE_OBJECTID, format.RootItem{Bytenr: c.Super.Root, Generation: c.Super.Generation, Level: c.Super.RootLevel}, format.Key{})
	for _, id := range c.RootIDs {
		switch id {
		case format.EXTENT_TREE_OBJECTID, format.DEV_TREE_OBJECTID, format.CSUM_TREE_OBJECTID, format.FREE_SPACE_TREE_OBJECTID, format.BLOCK_GROUP_TREE_OBJECTID:
			continue
		}
		r := c.Roots[id].Item
		var drop format.Key
		if format.IsFSTree(id) && r.Refs == 0 && id != format.FS_TREE_OBJECTID {
			drop = r.DropProgress
		}
		walk(id, r, drop)
	}
}

// inRange calls f with the items of a tree from the key from on and before to, of blocks that can
// be read: the walk has found the others.
func (c *checker) inRange(tree uint64, from, to format.Key, f func(n format.Node, slot int)) {
	r, err := c.RootOf(tree)
	if err != nil {
		return
	}
	var visit func(bytenr, generation uint64, level int, first *format.Key, last format.Key)
	visit = func(bytenr, generation uint64, level int, first *format.Key, last format.Key) {
		if _, met := c.Visited[bytenr]; !met {
			return
		}
		n := c.Peek(bytenr, generation, level)
		if n == nil || first != nil && (n.Nritems() == 0 || n.Key(0) != *first) || n.Nritems() > 0 && last.Less(n.Key(n.Nritems()-1)) {
			return
		}
		for i := range n.Nritems() {
			k, upper := n.Key(i), last
			if i+1 < n.Nritems() {
				upper = before(n.Key(i + 1))
			}
			switch {
			case to.Compare(k) <= 0:
				return
			case level == 0:
				if from.Compare(k) <= 0 {
					f(n, i)
				}
			case i+1 == n.Nritems() || from.Less(n.Key(i+1)):
				visit(n.Blockptr(i), n.PtrGeneration(i), level-1, &k, upper)
			}
		}
	}
	visit(r.Bytenr, r.Generation, int(r.Level), nil, format.MaxKey)
}

// lookUp is extentOver by a search in the extent tree: the extent that begins last before the
// range, or the first in it.
func (c *checker) lookUp(s Span) (over *Extent) {
	o := &checker{Seen: Seen{Image: Image{Super: c.Super}}, sliced: true}
	const back = 1 << 30 // no extent is longer
	c.inRange(format.EXTENT_TREE_OBJECTID, format.Key{Objectid: s.Start - min(s.Start, uint64(back))}, format.Key{Objectid: s.End}, func(n format.Node, i int) {
		if k := n.Key(i); k.Type == format.EXTENT_ITEM_KEY || k.Type == format.METADATA_ITEM_KEY {
			o.Extents = o.Extents[:0]
			o.extentItem(k, n.Item(i))
			if e := o.Extents[0]; over == nil && e.Start+e.Length > s.Start {
				over = &e
			}
			o.haveRefs = o.haveRefs[:0]
		}
	})
	return over
}

// sumsOf lists the ranges around s that have checksums, ascending.
func (c *checker) sumsOf(s Span) (list []Span) {
	if !c.sliced {
		return c.csums
	}
	k := format.Key{Objectid: format.EXTENT_CSUM_OBJECTID, Type: format.EXTENT_CSUM_KEY}
	from, to := k, k
	from.Offset, to.Offset = s.Start-min(s.Start, c.sumReach()), s.End
	c.inRange(format.CSUM_TREE_OBJECTID, from, to, func(n format.Node, i int) {
		start := n.Key(i).Offset
		list = append(list, Span{start, start + uint64(len(n.Item(i))/c.Super.CsumType.Size())*uint64(c.Super.SectorSize)})
	})
	return Merged(list)
}

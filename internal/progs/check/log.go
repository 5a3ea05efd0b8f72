package check

import (
	"cmp"
	"slices"

	"btrlab/internal/format"
)

// Logs: what fsync wrote after the last commit. The next mount or open for writing replays them, so
// they are judged by what a replay relies on: their blocks and new data extents lie in space that
// is free in the last commit, their items belong to inodes that they have, and the data is there
// with its checksums.

// logRules are about what fsync wrote.
var logRules = []Rule{
	{"log.root", "the tree of logs has one root item for each log (6.1)", "what was fsynced last may be lost; rescue zero-log gives it up"},
	{"log.space", "a log's blocks, and the data extents that the last commit does not have, lie in space that is free in it (6.1)", "a mount may damage data: rescue zero-log gives the log up"},
	{"log.item", "the items of a log follow the item of their inode (6.3)", "a mount fails: rescue zero-log gives up what was fsynced last"},
	{"log.csum", "logged data has checksums, in order, in its log or in the checksum tree (6.3)", "what was fsynced last may be unreadable"},
}

const logTree = format.TREE_LOG_OBJECTID

// logs holds the items of all logs.
type logs struct {
	c       *checker
	data    *dataCheck
	extents []Span // data extents that a log names
	fresh   []Span // those of them that the last commit does not have
}

// checkLog walks the tree of logs and every log.
func (c *checker) checkLog(data *dataCheck) {
	s := &c.Super
	l := &logs{c: c, data: data}
	defer l.strayCsums()
	if s.LogRoot == 0 {
		return
	}
	c.note("a log tree is present at %d: fsync wrote it after the last commit, and a mount will replay it", s.LogRoot)
	w := c.newWalk(logTree, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			k := n.Key(i)
			if k.Objectid != logTree || k.Type != format.ROOT_ITEM_KEY {
				c.find("log.root", on(AtTree, logTree).with(AtBlock, n.Bytenr()).with(AtSlot, uint64(i)), k, Words("(TREE_LOG ROOT_ITEM subvolume)"))
				continue
			}
			if r, ok := c.Roots[k.Offset]; !format.IsFSTree(k.Offset) || !ok && !c.Cut {
				c.note("the log of subvolume %d belongs to none: a replay leaves it out", k.Offset)
			} else if ok && r.Item.Refs == 0 {
				c.note("the log of subvolume %d, which is being deleted: a replay leaves it out", k.Offset)
			}
			var r format.RootItem
			r.Decode(n.Item(i))
			l.one(k.Offset, &r)
		}
	})
	w.log = true
	w.from(s.LogRoot, s.Generation+1, s.LogRootLevel)
	l.overlaps()
}

// strayCsums blames the checksums in the checksum tree that belong neither to an extent nor to a
// log.
func (l *logs) strayCsums() {
	logged := Merged(l.extents)
	for _, x := range l.c.stray {
		if at, bad := uncovered(x.Start, x.End, logged); bad {
			l.c.find("csum.extent", x.where, words("csums of %d..%d", at, x.End), Words("data allocated there"))
		}
	}
}

// overlaps judges the extents that are new against each other: an extent that two logs or two files
// name is the same in both.
func (l *logs) overlaps() {
	slices.SortFunc(l.fresh, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	for i := 1; i < len(l.fresh); i++ {
		if a, b := l.fresh[i-1], l.fresh[i]; a != b && b.Start < a.End {
			l.c.find("log.space", on(AtTree, logTree), words("data extents %d..%d and %d..%d", a.Start, a.End, b.Start, b.End), Words("no overlap"))
		}
	}
}

// oneLog is the log of one subvolume on its walk.
type oneLog struct {
	*logs
	subvol uint64
	sums   []Span       // that it has checksums for, ascending
	needs  []loggedData // that must have some
	ino    uint64       // the inode whose item came last
	flags  uint64       // its
	gone   bool         // it has no name: a replay takes nothing of it
}

type loggedData struct {
	Span
	where Place
}

func (l *logs) one(subvol uint64, r *format.RootItem) {
	o := &oneLog{logs: l, subvol: subvol}
	w := l.c.newWalk(logTree, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			o.item(n, i)
		}
	})
	w.log = true
	w.from(r.Bytenr, r.Generation, r.Level)
	if w.cut {
		return
	}
	if !l.c.CsumsWhole {
		return
	}
	// A replay adds the checksums of the log to those of the checksum tree. An extent that was
	// preallocated and written piece by piece has some in each, in any order.
	for _, d := range o.needs {
		if off, missing := uncovered(d.Start, d.End, o.sums, l.c.sumsOf(d.Span)); missing {
			l.c.find("log.csum", d.where, words("no csum of logical %d", off), Words("one, in the log or in tree 7"))
		}
	}
}

func (o *oneLog) item(n format.Node, slot int) {
	c, k, b := o.c, n.Key(slot), n.Item(slot)
	where := on(AtLog, o.subvol).with(AtBlock, n.Bytenr()).with(AtSlot, uint64(slot))
	switch k.Type {
	case format.INODE_ITEM_KEY:
		var it format.InodeItem
		it.Decode(b)
		o.ino, o.flags, o.gone = k.Objectid, it.Flags, it.Nlink == 0
	case format.INODE_REF_KEY, format.INODE_EXTREF_KEY, format.XATTR_ITEM_KEY, format.DIR_INDEX_KEY, format.DIR_LOG_INDEX_KEY, format.EXTENT_DATA_KEY:
		if o.ino != k.Objectid {
			c.find("log.item", where, k, Words("its inode item before it"))
			return
		}
		switch k.Type {
		case format.DIR_LOG_INDEX_KEY:
			if end, err := format.DirLogEnd(b); err != nil {
				c.findErr("log.item", where, err)
			} else if end < k.Offset {
				c.find("log.item", where, words("indices %d to %d", k.Offset, end), Words("a range that does not end before its start"))
			}
		case format.EXTENT_DATA_KEY:
			o.extent(n, k, b, where)
		}
	case format.EXTENT_CSUM_KEY:
		s := Span{k.Offset, k.Offset + uint64(len(b)/c.Super.CsumType.Size())*uint64(c.Super.SectorSize)}
		if m := len(o.sums); m > 0 && o.sums[m-1].End > s.Start {
			c.find("log.csum", where, words("csums from %d on", s.Start), words("at least %d, the end of those before", o.sums[m-1].End))
			return
		}
		o.sums = append(o.sums, s)
		o.data.queue(s.Start, b)
	}
}

// extent judges a file extent. The tree checker has passed it.
func (o *oneLog) extent(n format.Node, k format.Key, b []byte, where Place) {
	c := o.c
	var fe format.FileExtent
	fe.Decode(b)
	where = where.with(AtIno, k.Objectid).with(AtFileOffset, k.Offset)
	if fe.DiskBytenr == 0 || o.gone { // zero are holes, and what Decode makes of inline extents
		return
	}
	s := Span{fe.DiskBytenr, fe.DiskBytenr + fe.DiskNumBytes}
	o.extents = append(o.extents, s)
	c.Data = append(c.Data, DataPointer{fe.DiskBytenr, fe.DiskNumBytes, n.Bytenr(), o.subvol, k.Objectid, k.Offset - fe.Offset, fe.Generation})
	if e := c.extentOver(s); e != nil {
		if e.tree || e.Start != s.Start || e.Length != fe.DiskNumBytes {
			c.find("log.space", where, words("data extent %d..%d over extent %d..%d", s.Start, s.End, e.Start, e.Start+e.Length), Words("free space, or that extent"))
			return
		}
	} else if ch := c.ChunkAt(s.Start); ch == nil || ch.Type&format.BlockGroupData == 0 || s.End > ch.Start+ch.Length {
		c.find("log.space", where, words("data extent %d..%d", s.Start, s.End), Words("one in a data block group"))
		return
	} else {
		o.fresh = append(o.fresh, s)
	}
	if fe.Type == format.FileExtentTypePrealloc || o.flags&format.InodeNoDataSum != 0 {
		return
	}
	at := Span{fe.DiskBytenr + fe.Offset, fe.DiskBytenr + fe.Offset + fe.NumBytes}
	if fe.Compression != format.CompressNone {
		at = s
	}
	o.needs = append(o.needs, loggedData{at, where})
}

// extentOver is an extent of the last commit that has bytes of s, nil if there is none.
func (c *checker) extentOver(s Span) *Extent {
	if c.sliced {
		return c.lookUp(s)
	}
	i, _ := slices.BinarySearchFunc(c.Extents, s.Start, func(e Extent, at uint64) int {
		if e.Start+e.Length <= at {
			return -1
		}
		return 1
	})
	if i < len(c.Extents) && c.Extents[i].Start < s.End {
		return &c.Extents[i]
	}
	return nil
}

package check

import (
	"sort"

	"btrlab/internal/format"
)

// Copies: what is read to scrub an image, and the places that do not hold what they should. Every
// check notes them; with Options.Copies nothing else is judged, and data without checksums is read
// as well.
//
// Model: fs/btrfs/scrub.c. A place counts as it does there: sectors of data by their checksums,
// tree blocks by checksum, address, file system and generation. Difference: log trees are read,
// too.

// Bad is a copy of a tree block, or of a run of sectors of data, that is not what is meant to be
// there.
type Bad struct {
	Logical, Length uint64
	Mirror          int
	At              Stripe
	Unread          bool // the device does not read it
	Tree            bool // a tree block, of this generation and level
	Generation      uint64
	Level           int
	Sums            []byte // of data: the checksum of each sector; none if it has no checksums
	Where           Place  // of the finding
}

// BadRow is a place in a row of a RAID5 or RAID6 chunk whose parity is not that of its data: In is
// the offset of a sector in each unit.
type BadRow struct {
	Chunk   *Chunk
	Row, In uint64
}

// Scanned counts what was read of a device, in bytes: NoCsum is the part of Data without checksums.
type Scanned struct{ Data, Tree, NoCsum uint64 }

// badMax bounds the places that are kept.
const badMax = 1 << 17

// mostBad bounds the places of data.
func (c *checker) mostBad() int {
	if c.o.Copies {
		return badMax
	}
	return findingsMax
}

// addBadCopy keeps a place, once: a block that cannot be read at all is met by each walk.
func (c *checker) addBadCopy(b Bad) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.Tree && c.badBlocks[b.At] {
		return
	}
	if len(c.BadCopies) == badMax {
		c.MoreBad = true
		return
	}
	c.BadCopies = append(c.BadCopies, b)
	if b.Tree {
		if c.badBlocks == nil {
			c.badBlocks = map[Stripe]bool{}
		}
		c.badBlocks[b.At] = true
	}
}

// scanned counts bytes of one kind that were read of a device.
func (c *checker) scanned(d *Device, kind func(s *Scanned) *uint64, n uint64) {
	c.mu.Lock()
	*kind(&d.Scanned) += n
	c.mu.Unlock()
}

func ofTree(s *Scanned) *uint64 { return &s.Tree }

// Meant reports whether n is the block that a pointer means: by checksum, address, file system,
// level and generation.
func (m *Image) Meant(n format.Node, bytenr, generation uint64, level int) bool {
	return m.Super.CsumType.BlockMatch(n) && n.Bytenr() == bytenr && n.FSID() == m.Super.TreeFSID() && n.Level() == level &&
		n.Generation() == generation
}

// runCopies is the rest of run with Options.Copies.
func (c *checker) runCopies(everything Span) {
	data := c.startData()
	c.phase("checksums")
	c.loadCsums(data)
	c.phase("trees")
	c.readCopies(data)
	c.phase("logs")
	c.checkLog(data)
	c.phase("data")
	data.wait()
	c.blameData(data)
	if !c.noData {
		c.checkParity(everything)
	}
}

// readCopies reads what is left to be read of all copies: trees that nobody has walked, and data
// without checksums.
func (c *checker) readCopies(data *dataCheck) {
	for _, id := range c.RootIDs {
		switch id {
		case format.EXTENT_TREE_OBJECTID, format.CSUM_TREE_OBJECTID:
			continue
		}
		r := c.Roots[id]
		w := c.newWalk(id, func(format.Node, bool) {})
		if r.Item.Refs == 0 && format.IsFSTree(id) && id != format.FS_TREE_OBJECTID {
			w.drop = r.Item.DropProgress
		}
		w.from(r.Item.Bytenr, r.Item.Generation, r.Item.Level)
	}
	for i := range c.Extents {
		if e := &c.Extents[i]; !e.tree {
			c.withoutSums(data, e.Start, e.Start+e.Length)
		}
	}
}

// withoutSums has the parts of an extent read that have no checksums.
func (c *checker) withoutSums(data *dataCheck, start, end uint64) {
	for start < end {
		i := sort.Search(len(c.csums), func(i int) bool { return c.csums[i].End > start })
		to := end
		if i < len(c.csums) {
			to = min(end, c.csums[i].Start)
		}
		if start < to {
			data.cut(dataJob{start, to - start, nil})
		}
		if i == len(c.csums) {
			return
		}
		start = max(to, c.csums[i].End)
	}
}

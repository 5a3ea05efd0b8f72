package fstree

import (
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// Data checksums are EXTENT_CSUM items keyed by disk address: one checksum for each sector, packed.
// A checksum has 4, 8 or 32 bytes, as its type says. A run of data written one piece after the
// other becomes one item that grows until it nearly fills a leaf.

// Csums reads and changes the checksum items of one tree. A Store has that of the checksum tree;
// CsumsIn gives another tree's: a log tree carries the checksums of the extents it logs.
type Csums struct {
	forest     *ctree.Forest
	root       *ctree.Root
	sectorSize uint64
	paths      *pathList
}

// CsumsIn is the checksum items of tree r.
func (s *Store) CsumsIn(r *ctree.Root) *Csums {
	return &Csums{forest: s.Forest, root: r, sectorSize: s.SectorSize, paths: s.paths}
}

func csumKey(bytenr uint64) format.Key {
	return format.Key{Objectid: format.EXTENT_CSUM_OBJECTID, Type: format.EXTENT_CSUM_KEY, Offset: bytenr}
}

// maxCsums is the number of checksums in a full item. The kernel leaves room for two item headers
// and one checksum, and so do we, so that its items and ours look alike.
//
// Models fs/btrfs/file-item.c:MAX_CSUM_ITEMS().
func (c *Csums) maxCsums() int {
	return (format.LeafDataSize(c.forest.NodeSize())-2*format.ItemHeaderSize)/c.size() - 1
}

// isCsum reports whether the item in slot holds checksums, and the disk range they are for.
func (c *Csums) isCsum(leaf format.Node, slot int) (start, end uint64, ok bool) {
	k := leaf.Key(slot)
	if k.Objectid != format.EXTENT_CSUM_OBJECTID || k.Type != format.EXTENT_CSUM_KEY {
		return 0, 0, false
	}
	return k.Offset, k.Offset + uint64(leaf.ItemSize(slot)/c.size())*c.sectorSize, true
}

// CsumType is the algorithm of the checksums.
func (c *Csums) CsumType() format.CsumType { return c.forest.CsumType() }

// size is the size of a checksum in bytes.
func (c *Csums) size() int { return c.forest.CsumType().Size() }

// InsertCsums stores the checksums of the sectors from disk address bytenr on, packed as in an
// item. They extend the item that ends there, while there is room, or make a new one.
//
// Preconditions:
//   - the tree has no checksum of the range, or one item has all of them, which are replaced: the
//     range is the caller's, who deletes others first (DelCsums). In a log, whatever is there is
//     replaced.
//
// Models fs/btrfs/file-item.c:btrfs_csum_file_blocks().
func (c *Csums) InsertCsums(t *sched.Task, tr *ctree.Trans, bytenr uint64, sums []byte) error {
	p := c.paths.get(t)
	defer c.paths.put(t, p)
	for len(sums) > 0 {
		n, err := c.insertCsumsStep(t, tr, bytenr, sums, p)
		if err != nil {
			return err
		}
		bytenr += uint64(n) * c.sectorSize
		sums = sums[n*c.size():]
		p.Release(t)
	}
	return nil
}

// insertCsumsStep stores the first n checksums of sums, in one item.
func (c *Csums) insertCsumsStep(t *sched.Task, tr *ctree.Trans, bytenr uint64, sums []byte, p *ctree.Path) (n int, err error) {
	f, size := c.forest, c.size()
	start, end, ok, err := c.searchCsum(t, tr, p, bytenr, 0)
	if err != nil {
		return 0, err
	}
	switch {
	case ok && bytenr < end:
		// In the item: the data was written again at the same place.
		n = copy(p.Item()[int((bytenr-start)/c.sectorSize)*size:], sums) / size
		f.DirtyLeaf(t, tr, p)
		return n, nil
	case !ok || bytenr > end:
		// Where does the next item begin? The answer stays true: the caller alone writes here.
		if n, err = c.csumsBefore(t, p, bytenr, len(sums)/size); err != nil {
			return 0, err
		}
		return c.insertNew(t, tr, p, bytenr, sums[:min(n, c.maxCsums())*size])
	case len(p.Item())/size >= c.maxCsums():
		return c.insertNew(t, tr, p, bytenr, sums[:size])
	}
	if p.Leaf().LeafFreeSpace() < size {
		// Let the search make room in the leaf, or split it: the item may then end a leaf.
		p.Release(t)
		p.ForExtension = true
		_, end, ok, err = c.searchCsum(t, tr, p, bytenr, size)
		p.ForExtension = false
		if err != nil {
			return 0, err
		}
		if !ok || bytenr != end || len(p.Item())/size >= c.maxCsums() {
			return c.insertNew(t, tr, p, bytenr, sums[:size])
		}
	}
	n = len(sums) / size
	if c.root.ID == format.TREE_LOG_OBJECTID {
		// Checksums of a part may be in the log from an fsync before, so that the item must not
		// grow over the next one. At the end of a leaf it is not worth a look into the next leaf
		// and a search back.
		last := p.Slot()+1 >= p.Leaf().Nritems()
		if n, err = c.csumsBefore(t, p, bytenr, n); err != nil {
			return 0, err
		}
		if last {
			return c.insertNew(t, tr, p, bytenr, sums[:min(n, c.maxCsums())*size])
		}
	}
	have := len(p.Item()) / size
	n = min(n, c.maxCsums()-have, p.Leaf().LeafFreeSpace()/size)
	f.ExtendItem(t, p, n*size)
	copy(p.Item()[have*size:], sums[:n*size])
	f.DirtyLeaf(t, tr, p)
	return n, nil
}

// searchCsum points p, for a change, at the last checksum item that begins at bytenr or before it
// in the leaf where one of bytenr would be; ok is false if there is none. The search makes room for
// as many bytes in the leaf.
//
// Models fs/btrfs/file-item.c:btrfs_lookup_csum().
func (c *Csums) searchCsum(t *sched.Task, tr *ctree.Trans, p *ctree.Path, bytenr uint64, room int) (start, end uint64, ok bool, err error) {
	found, err := c.forest.SearchSlot(t, tr, c.root, csumKey(bytenr), p, room, true)
	if err != nil {
		return 0, 0, false, err
	}
	if !found {
		if p.Slot() == 0 {
			return 0, 0, false, nil
		}
		if start, end, ok = c.isCsum(p.Leaf(), p.Slot()-1); !ok {
			return 0, 0, false, nil
		}
		p.Slots[0]--
		return start, end, true, nil
	}
	start, end, ok = c.isCsum(p.Leaf(), p.Slot())
	return start, end, ok, nil
}

// insertNew makes an item of sums, which end before those of the next item and fit in one.
func (c *Csums) insertNew(t *sched.Task, tr *ctree.Trans, p *ctree.Path, bytenr uint64, sums []byte) (n int, err error) {
	p.Release(t)
	if err := c.forest.InsertEmptyItem(t, tr, c.root, p, csumKey(bytenr), len(sums)); err != nil {
		return 0, fmt.Errorf("insert of %d checksums at %d: %w", len(sums)/c.size(), bytenr, err)
	}
	copy(p.Item(), sums)
	c.forest.DirtyLeaf(t, tr, p)
	return len(sums) / c.size(), nil
}

// csumsBefore is how many of n sectors from bytenr on lie before the checksum item that comes after
// the path's place, at least 1. When that is in the next leaf, p is at it, and read-locked.
//
// Models fs/btrfs/file-item.c:find_next_csum_offset().
func (c *Csums) csumsBefore(t *sched.Task, p *ctree.Path, bytenr uint64, n int) (int, error) {
	slot := p.Slot()
	if nr := p.Leaf().Nritems(); slot < nr && !csumKey(bytenr).Less(p.Leaf().Key(slot)) {
		slot++
	}
	if slot >= p.Leaf().Nritems() {
		more, err := c.forest.NextLeaf(t, c.root, p)
		if err != nil || !more {
			return n, err
		}
		slot = p.Slot()
	}
	start, _, ok := c.isCsum(p.Leaf(), slot)
	if !ok || start <= bytenr {
		return n, nil
	}
	return int(min(uint64(n), max(1, (start-bytenr)/c.sectorSize))), nil
}

// seekCsum points p, for reading, at the first checksum item that ends after bytenr.
func (c *Csums) seekCsum(t *sched.Task, p *ctree.Path, bytenr uint64) (start, end uint64, ok bool, err error) {
	found, err := c.forest.SearchSlot(t, nil, c.root, csumKey(bytenr), p, 0, false)
	if err != nil {
		return 0, 0, false, err
	}
	// The item before the slot may reach over bytenr.
	if !found && p.Slot() > 0 {
		p.Slots[0]--
	}
	for {
		if p.Slot() >= p.Leaf().Nritems() {
			// On the way from leaf to leaf nothing is locked: an item that came in meanwhile may
			// lie before bytenr.
			more, err := c.forest.NextLeaf(t, c.root, p)
			if err != nil || !more {
				return 0, 0, false, err
			}
		}
		if start, end, ok = c.isCsum(p.Leaf(), p.Slot()); ok && end > bytenr {
			return start, end, true, nil
		} else if !ok && csumKey(bytenr).Less(p.Leaf().Key(p.Slot())) {
			return 0, 0, false, nil
		}
		p.Slots[0]++
	}
}

// LookupCsums reads the checksums of [bytenr, bytenr+length) into out, which has room for one of
// each sector. have[i] says whether that of sector i was found.
//
// Models fs/btrfs/file-item.c:btrfs_lookup_bio_sums().
func (c *Csums) LookupCsums(t *sched.Task, bytenr, length uint64, out []byte, have []bool) error {
	return c.lookupCsums(t, bytenr, length, out, have, false)
}

// TryLookupCsums is LookupCsums that answers EAGAIN rather than wait or read.
func (c *Csums) TryLookupCsums(t *sched.Task, bytenr, length uint64, out []byte, have []bool) error {
	return c.lookupCsums(t, bytenr, length, out, have, true)
}

func (c *Csums) lookupCsums(t *sched.Task, bytenr, length uint64, out []byte, have []bool, nowait bool) error {
	n := int(length / c.sectorSize)
	size := c.size()
	out, have = out[:n*size], have[:n]
	clear(have)
	p := c.paths.get(t)
	defer c.paths.put(t, p)
	p.Nowait = nowait
	start, end, ok, err := c.seekCsum(t, p, bytenr)
	for {
		if err != nil {
			return err
		}
		if !ok || start >= bytenr+length {
			return nil
		}
		from, to := max(start, bytenr), min(end, bytenr+length)
		at, sectors := int((from-bytenr)/c.sectorSize), int((to-from)/c.sectorSize)
		copy(out[at*size:][:sectors*size], p.Item()[int((from-start)/c.sectorSize)*size:])
		for i := range sectors {
			have[at+i] = true
		}
		if end >= bytenr+length {
			return nil
		}
		if ok, err = c.forest.NextItem(t, c.root, p); ok {
			start, end, ok = c.isCsum(p.Leaf(), p.Slot())
		}
	}
}

// CsumExists reports whether any sector of [bytenr, bytenr+length) has a checksum.
func (c *Csums) CsumExists(t *sched.Task, bytenr, length uint64) (bool, error) {
	p := c.paths.get(t)
	defer c.paths.put(t, p)
	return c.csumExists(t, p, bytenr, length)
}

// csumExists is CsumExists on the caller's path; Nowait of the path counts.
func (c *Csums) csumExists(t *sched.Task, p *ctree.Path, bytenr, length uint64) (bool, error) {
	start, _, ok, err := c.seekCsum(t, p, bytenr)
	return ok && start < bytenr+length, err
}

// DelCsums removes the checksums of [bytenr, bytenr+length): the data extent is gone.
//
// Models fs/btrfs/file-item.c:btrfs_del_csums().
func (c *Csums) DelCsums(t *sched.Task, tr *ctree.Trans, bytenr, length uint64) error {
	p := c.paths.get(t)
	defer c.paths.put(t, p)
	for end := bytenr + length; ; p.Release(t) {
		done, err := c.delCsumsStep(t, tr, bytenr, end, p)
		if err != nil || done {
			return err
		}
	}
}

// delCsumsStep removes what it can in the last leaf that has checksums of the range.
func (c *Csums) delCsumsStep(t *sched.Task, tr *ctree.Trans, bytenr, end uint64, p *ctree.Path) (done bool, err error) {
	f, r := c.forest, c.root
	if _, err := f.SearchSlot(t, tr, r, csumKey(end-c.sectorSize).Next(), p, -1, true); err != nil {
		return false, err
	}
	leaf := p.Leaf()
	slot := p.Slot() - 1 // the last item that starts before end
	delSlot, delNr, trimmed := 0, 0, false
	for ; slot >= 0; slot-- {
		itemStart, itemEnd, ok := c.isCsum(leaf, slot)
		if !ok || itemEnd <= bytenr {
			done = true
			break
		}
		if itemStart >= bytenr && itemEnd <= end {
			delSlot, delNr = slot, delNr+1
			if itemStart == bytenr {
				done = true
				break
			}
			continue
		}
		p.Slots[0], trimmed = slot, true
		switch {
		case itemStart < bytenr && itemEnd > end:
			// The range is in the middle: both ends stay, the tail as an item of its own.
			return true, c.cutCsums(t, tr, itemStart, bytenr, end, p)
		case itemEnd > end:
			f.TruncateItem(t, p, int((itemEnd-end)/c.sectorSize)*c.size(), false)
			f.SetItemKeySafe(t, p, csumKey(end))
			f.DirtyLeaf(t, tr, p)
			done = itemStart == bytenr
		default:
			f.TruncateItem(t, p, int((bytenr-itemStart)/c.sectorSize)*c.size(), true)
			f.DirtyLeaf(t, tr, p)
			done = true
		}
		if done {
			break
		}
	}
	if slot < 0 && delNr == 0 && !trimmed {
		done = true // nothing is before this leaf
	}
	if delNr > 0 {
		return done, f.DelItems(t, tr, r, p, delSlot, delNr)
	}
	return done, nil
}

// cutCsums takes [bytenr, end) out of the middle of the item that starts at itemStart.
func (c *Csums) cutCsums(t *sched.Task, tr *ctree.Trans, itemStart, bytenr, end uint64, p *ctree.Path) error {
	f, r := c.forest, c.root
	p.Release(t)
	if err := f.SplitItem(t, tr, r, p, csumKey(itemStart), csumKey(end), int((end-itemStart)/c.sectorSize)*c.size()); err != nil {
		return err
	}
	// The path is at the second part; the first loses its end.
	p.Slots[0]--
	f.TruncateItem(t, p, int((bytenr-itemStart)/c.sectorSize)*c.size(), true)
	f.DirtyLeaf(t, tr, p)
	return nil
}

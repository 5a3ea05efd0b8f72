package fstree

import (
	"fmt"
	"math"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// Data checksums are EXTENT_CSUM items keyed by disk address: one CRC-32C for each sector, packed.
// A run of data written one piece after the other becomes one item that grows until it nearly fills
// a leaf.

func csumKey(bytenr uint64) format.Key {
	return format.Key{Objectid: format.EXTENT_CSUM_OBJECTID, Type: format.EXTENT_CSUM_KEY, Offset: bytenr}
}

// maxCsums is the number of checksums in a full item. The kernel leaves room for two item headers
// and one checksum, and so do we, so that its items and ours look alike.
//
// Models fs/btrfs/file-item.c:MAX_CSUM_ITEMS().
func (s *Store) maxCsums() int {
	return (format.LeafDataSize(s.Forest.NodeSize())-2*format.ItemHeaderSize)/format.CsumSize - 1
}

// isCsum reports whether the item in slot holds checksums, and the disk range they are for.
func (s *Store) isCsum(leaf format.Node, slot int) (start, end uint64, ok bool) {
	k := leaf.Key(slot)
	if k.Objectid != format.EXTENT_CSUM_OBJECTID || k.Type != format.EXTENT_CSUM_KEY {
		return 0, 0, false
	}
	return k.Offset, k.Offset + uint64(leaf.ItemSize(slot)/format.CsumSize)*s.SectorSize, true
}

// InsertCsums stores the checksums of the sectors from disk address bytenr on. They extend the item
// that ends there, while there is room, or make a new one; checksums that are there are replaced.
//
// Models fs/btrfs/file-item.c:btrfs_csum_file_blocks().
func (s *Store) InsertCsums(t *sched.Task, tr *ctree.Trans, bytenr uint64, sums []uint32) error {
	p := s.path(t)
	defer s.putPath(t, p)
	for len(sums) > 0 {
		n, err := s.insertCsumsStep(t, tr, bytenr, sums, p)
		if err != nil {
			return err
		}
		bytenr += uint64(n) * s.SectorSize
		sums = sums[n:]
		p.Release(t)
	}
	return nil
}

// insertCsumsStep stores the first n of sums, in one item.
func (s *Store) insertCsumsStep(t *sched.Task, tr *ctree.Trans, bytenr uint64, sums []uint32, p *ctree.Path) (n int, err error) {
	f, r := s.Forest, s.CsumRoot
	limit := uint64(0) // no more sums than this: then the next item begins; 0 is not known
	room := 0          // bytes the search makes room for in the leaf
	for {
		p.ForExtension = room > 0
		found, err := f.SearchSlot(t, tr, r, csumKey(bytenr), p, room, true)
		p.ForExtension = false
		if err != nil {
			return 0, err
		}
		leaf, slot := p.Leaf(), p.Slot()
		if !found {
			slot--
		}
		start, end, ok := uint64(0), uint64(0), false
		if slot >= 0 {
			start, end, ok = s.isCsum(leaf, slot)
		}
		if ok && bytenr < end {
			// In the item: the data was written again at the same place.
			b := leaf.Item(slot)[(bytenr-start)/s.SectorSize*format.CsumSize:]
			n = min(len(sums), len(b)/format.CsumSize)
			putSums(b, sums[:n])
			f.DirtyLeaf(t, tr, p)
			return n, nil
		}
		if limit == 0 {
			// Where does the next item begin? The answer stays true: the caller alone writes this range.
			if slot+1 < leaf.Nritems() {
				limit = s.csumsBefore(bytenr, leaf.Key(slot+1))
			} else {
				p.Release(t)
				next, ok, err := s.nextKey(t, r, csumKey(bytenr), p)
				if err != nil {
					return 0, err
				}
				limit = math.MaxUint64
				if ok {
					limit = s.csumsBefore(bytenr, next)
				}
				continue
			}
		}
		n = int(min(uint64(len(sums)), limit))
		have := 0
		if ok && bytenr == end {
			have = leaf.ItemSize(slot) / format.CsumSize
		}
		if have > 0 && have < s.maxCsums() {
			n = min(n, s.maxCsums()-have)
			if free := leaf.LeafFreeSpace() / format.CsumSize; free > 0 {
				n = min(n, free)
				p.Slots[0] = slot
				f.ExtendItem(t, p, n*format.CsumSize)
				putSums(leaf.Item(slot)[have*format.CsumSize:], sums[:n])
				f.DirtyLeaf(t, tr, p)
				return n, nil
			}
			if room == 0 {
				// Let the search split the leaf; the item may then end a leaf of its own.
				room = n * format.CsumSize
				p.Release(t)
				continue
			}
		}
		p.Release(t)
		n = min(n, s.maxCsums())
		if err := f.InsertEmptyItem(t, tr, r, p, csumKey(bytenr), n*format.CsumSize); err != nil {
			return 0, fmt.Errorf("insert of %d checksums at %d: %w", n, bytenr, err)
		}
		putSums(p.Item(), sums[:n])
		f.DirtyLeaf(t, tr, p)
		return n, nil
	}
}

// csumsBefore is the number of sectors from bytenr to where the item at next begins.
func (s *Store) csumsBefore(bytenr uint64, next format.Key) uint64 {
	if next.Objectid != format.EXTENT_CSUM_OBJECTID || next.Type != format.EXTENT_CSUM_KEY {
		return math.MaxUint64
	}
	return max(1, (next.Offset-bytenr)/s.SectorSize)
}

func putSums(b []byte, sums []uint32) {
	for i, v := range sums {
		le.PutUint32(b[i*format.CsumSize:], v)
	}
}

// seekCsum points p, for reading, at the first checksum item that ends after bytenr.
func (s *Store) seekCsum(t *sched.Task, p *ctree.Path, bytenr uint64) (start, end uint64, ok bool, err error) {
	found, err := s.Forest.SearchSlot(t, nil, s.CsumRoot, csumKey(bytenr), p, 0, false)
	if err != nil {
		return 0, 0, false, err
	}
	if slot := p.Slot(); !found && slot > 0 {
		if start, end, ok = s.isCsum(p.Leaf(), slot-1); ok && end > bytenr {
			p.Slots[0]--
			return start, end, true, nil
		}
	}
	if p.Slot() >= p.Leaf().Nritems() {
		more, err := s.Forest.NextLeaf(t, s.CsumRoot, p)
		if err != nil || !more {
			return 0, 0, false, err
		}
	}
	start, end, ok = s.isCsum(p.Leaf(), p.Slot())
	return start, end, ok, nil
}

// LookupCsums reads the checksums of [bytenr, bytenr+length): out and have have one element for each
// sector, have[i] says whether out[i] was found.
//
// Models fs/btrfs/file-item.c:btrfs_lookup_bio_sums().
func (s *Store) LookupCsums(t *sched.Task, bytenr, length uint64, out []uint32, have []bool) error {
	n := int(length / s.SectorSize)
	out, have = out[:n], have[:n]
	clear(have)
	p := s.path(t)
	defer s.putPath(t, p)
	start, end, ok, err := s.seekCsum(t, p, bytenr)
	for {
		if err != nil {
			return err
		}
		if !ok || start >= bytenr+length {
			return nil
		}
		from, to := max(start, bytenr), min(end, bytenr+length)
		b := p.Item()[(from-start)/s.SectorSize*format.CsumSize:]
		at := int((from - bytenr) / s.SectorSize)
		for i := range int((to - from) / s.SectorSize) {
			out[at+i] = le.Uint32(b[i*format.CsumSize:])
			have[at+i] = true
		}
		if end >= bytenr+length {
			return nil
		}
		if ok, err = s.Forest.NextItem(t, s.CsumRoot, p); ok {
			start, end, ok = s.isCsum(p.Leaf(), p.Slot())
		}
	}
}

// CsumExists reports whether any sector of [bytenr, bytenr+length) has a checksum.
func (s *Store) CsumExists(t *sched.Task, bytenr, length uint64) (bool, error) {
	p := s.path(t)
	defer s.putPath(t, p)
	return s.csumExists(t, p, bytenr, length)
}

// csumExists is CsumExists on the caller's path; Nowait of the path counts.
func (s *Store) csumExists(t *sched.Task, p *ctree.Path, bytenr, length uint64) (bool, error) {
	start, _, ok, err := s.seekCsum(t, p, bytenr)
	return ok && start < bytenr+length, err
}

// DelCsums removes the checksums of [bytenr, bytenr+length): the data extent is gone.
//
// Models fs/btrfs/file-item.c:btrfs_del_csums().
func (s *Store) DelCsums(t *sched.Task, tr *ctree.Trans, bytenr, length uint64) error {
	p := s.path(t)
	defer s.putPath(t, p)
	for end := bytenr + length; ; p.Release(t) {
		done, err := s.delCsumsStep(t, tr, bytenr, end, p)
		if err != nil || done {
			return err
		}
	}
}

// delCsumsStep removes what it can in the last leaf that has checksums of the range.
func (s *Store) delCsumsStep(t *sched.Task, tr *ctree.Trans, bytenr, end uint64, p *ctree.Path) (done bool, err error) {
	f, r := s.Forest, s.CsumRoot
	if _, err := f.SearchSlot(t, tr, r, csumKey(end-s.SectorSize).Next(), p, -1, true); err != nil {
		return false, err
	}
	leaf := p.Leaf()
	slot := p.Slot() - 1 // the last item that starts before end
	delSlot, delNr, trimmed := 0, 0, false
	for ; slot >= 0; slot-- {
		itemStart, itemEnd, ok := s.isCsum(leaf, slot)
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
			return true, s.cutCsums(t, tr, itemStart, bytenr, end, p)
		case itemEnd > end:
			f.TruncateItem(t, p, int((itemEnd-end)/s.SectorSize)*format.CsumSize, false)
			f.SetItemKeySafe(t, p, csumKey(end))
			f.DirtyLeaf(t, tr, p)
			done = itemStart == bytenr
		default:
			f.TruncateItem(t, p, int((bytenr-itemStart)/s.SectorSize)*format.CsumSize, true)
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
func (s *Store) cutCsums(t *sched.Task, tr *ctree.Trans, itemStart, bytenr, end uint64, p *ctree.Path) error {
	f, r := s.Forest, s.CsumRoot
	p.Release(t)
	if err := f.SplitItem(t, tr, r, p, csumKey(itemStart), csumKey(end), int((end-itemStart)/s.SectorSize)*format.CsumSize); err != nil {
		return err
	}
	// The path is at the second part; the first loses its end.
	p.Slots[0]--
	f.TruncateItem(t, p, int((bytenr-itemStart)/s.SectorSize)*format.CsumSize, true)
	f.DirtyLeaf(t, tr, p)
	return nil
}

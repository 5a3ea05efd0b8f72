package fstree

import (
	"errors"
	"fmt"
	"math"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// The extents of a file are EXTENT_DATA items keyed by file offset. An item is a window of NumBytes
// at Offset into a data extent of DiskNumBytes at DiskBytenr; several windows, of one file or of
// many, may look at one extent. A COW write drops the windows under its range and inserts a new
// one:
//
//	ordered completion -> DropExtents        trims, splits and deletes items, FreeExtent for each deleted one
//	                   -> InsertFileExtent   the new window
//	                   -> AllocReservedFileExtent (by the caller)
//
// A write into preallocated space turns PREALLOC into REG in place (MarkExtentWritten), which
// splits the window at the edges of what was written and merges it with written neighbours; each
// split is one reference more of the same extent, each merge one less.

func extentKey(ino format.Ino, off uint64) format.Key {
	return format.Key{Objectid: uint64(ino), Type: format.EXTENT_DATA_KEY, Offset: off}
}

// isExtentOf reports whether the item in slot is a file extent of ino, and where it starts.
func isExtentOf(leaf format.Node, slot int, ino format.Ino) (off uint64, ok bool) {
	k := leaf.Key(slot)
	return k.Offset, k.Objectid == uint64(ino) && k.Type == format.EXTENT_DATA_KEY
}

// extentAt is the file extent item in slot.
func extentAt(leaf format.Node, slot int) format.FileExtentView { return leaf.Item(slot) }

// decodeExtent reads the file extent in slot; Inline is a window into the leaf.
func decodeExtent(r *ctree.Root, leaf format.Node, slot int, fe *format.FileExtent) error {
	b := extentAt(leaf, slot)
	if len(b) < format.FileExtentInline || b.Type() != format.FileExtentTypeInline && len(b) != format.FileExtentSize {
		return fmt.Errorf("corrupt leaf: root=%d block=%d slot=%d, bad file extent item size, have %d want %d",
			r.ID, leaf.Bytenr(), slot, len(b), format.FileExtentSize)
	}
	fe.Decode(b)
	return nil
}

// extentEnd is the file offset after the extent that starts at off. An inline extent ends where its
// data does, inside the file's first sector.
func extentEnd(off uint64, fe *format.FileExtent) uint64 {
	if fe.Type == format.FileExtentTypeInline {
		return off + fe.RAMBytes
	}
	return off + fe.NumBytes
}

// onDisk reports whether the item refers to a data extent.
func onDisk(fe *format.FileExtent) bool {
	return fe.Type != format.FileExtentTypeInline && fe.DiskBytenr != 0
}

// seek points p, for reading, at the first extent of ino that ends after off. An inline extent
// counts as its whole sector. ok is false when there is none.
func (s *Store) seek(t *sched.Task, r *ctree.Root, ino format.Ino, off uint64, p *ctree.Path, fe *format.FileExtent) (start uint64, ok bool, err error) {
	found, err := s.Forest.SearchSlot(t, nil, r, extentKey(ino, off), p, 0, false)
	if err != nil {
		return 0, false, err
	}
	// The extent before the slot may reach over off.
	if !found && p.Slot() > 0 {
		p.Slots[0]--
	}
	for {
		if p.Slot() >= p.Leaf().Nritems() {
			// On the way from leaf to leaf nothing is locked: an extent that came in meanwhile may
			// lie before off.
			more, err := s.Forest.NextLeaf(t, r, p)
			if err != nil || !more {
				return 0, false, err
			}
		}
		leaf := p.Leaf()
		if start, ok = isExtentOf(leaf, p.Slot(), ino); ok {
			if err := decodeExtent(r, leaf, p.Slot(), fe); err != nil {
				return 0, false, err
			}
			if format.AlignUp(extentEnd(start, fe), s.SectorSize) > off {
				return start, true, nil
			}
		} else if extentKey(ino, off).Less(leaf.Key(p.Slot())) {
			return 0, false, nil
		}
		p.Slots[0]++
	}
}

// LookupFileExtent finds the item that covers off (ok is true, start <= off), explicit holes
// included, or else the next one: then ok is false, [off, start) is a hole, and start is MaxUint64
// when no item follows. Inline data is copied; an inline extent covers its whole sector.
func (s *Store) LookupFileExtent(t *sched.Task, r *ctree.Root, ino format.Ino, off uint64) (start uint64, fe format.FileExtent, ok bool, err error) {
	return s.lookupFileExtent(t, r, ino, off, false)
}

// TryLookupFileExtent is LookupFileExtent that answers EAGAIN rather than wait or read.
func (s *Store) TryLookupFileExtent(t *sched.Task, r *ctree.Root, ino format.Ino, off uint64) (start uint64, fe format.FileExtent, ok bool, err error) {
	return s.lookupFileExtent(t, r, ino, off, true)
}

func (s *Store) lookupFileExtent(t *sched.Task, r *ctree.Root, ino format.Ino, off uint64, nowait bool) (start uint64, fe format.FileExtent, ok bool, err error) {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	p.Nowait = nowait
	start, ok, err = s.seek(t, r, ino, off, p, &fe)
	if err != nil || !ok {
		return math.MaxUint64, format.FileExtent{}, false, err
	}
	if fe.Type == format.FileExtentTypeInline {
		fe.Inline = append([]byte(nil), fe.Inline...)
	}
	return start, fe, start <= off, nil
}

// InsertFileExtent adds an item at off; the range must be free (DropExtents). Generation 0 stands
// for the running transaction. The reference of the data extent is the caller's. EEXIST when there
// is an item at off.
func (s *Store) InsertFileExtent(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, off uint64, fe *format.FileExtent) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	if err := s.Forest.InsertEmptyItem(t, tr, r, p, extentKey(ino, off), fe.Size()); err != nil {
		return err
	}
	b := p.Item()
	fe.Encode(b)
	if fe.Generation == 0 {
		format.FileExtentView(b).SetGeneration(tr.ID)
	}
	s.Forest.DirtyLeaf(t, tr, p)
	return nil
}

// DropOptions says how DropExtents works. The zero value drops all.
type DropOptions struct {
	// MaxItems bounds the items that one call deletes or changes, as its transaction reserved room
	// for; 0 is no bound.
	MaxItems int
	// follow leaves the path, after the last step, in the leaf where an item at start has its
	// place.
	follow bool
}

// DropResult says what DropExtents did.
type DropResult struct {
	BytesFound uint64 // file bytes, of those that count in nbytes, that were dropped
	Items      int    // deleted or changed
	NextStart  uint64 // [start, NextStart) is empty now; it is end when all is done
}

// DropExtents empties [start, end) of a file: items inside are deleted, items across an edge
// trimmed, an item across both edges split. References of data extents follow. Both edges are
// multiples of the sector size; EOPNOTSUPP when that would cut an inline extent.
//
// Models fs/btrfs/file.c:btrfs_drop_extents(). Differences: the caller inserts the replacement; the
// search goes on by key after a leaf has been changed.
//
// Preconditions:
//   - the caller has the range's extent lock, so no other task changes its items.
func (s *Store) DropExtents(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64, opt DropOptions) (res DropResult, err error) {
	if start >= end || start%s.SectorSize != 0 {
		panic(fmt.Sprintf("fstree: drop of [%d, %d) in inode %d", start, end, ino))
	}
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	res.NextStart = start
	for res.NextStart < end && (opt.MaxItems == 0 || res.Items < opt.MaxItems) {
		if err := s.dropStep(t, tr, r, ino, end, opt, p, &res); err != nil {
			return res, err
		}
		p.Release(t)
	}
	return res, nil
}

// dropMiddle empties [start, end) in the middle of the item fe at the path's slot, whose bytes
// begin at off in the file: the item becomes two, and its extent has one reference more. With again
// nothing has happened, but the leaf had to be let go and has changed.
func (s *Store) dropMiddle(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, p *ctree.Path, off, start, end uint64, fe *format.FileExtent) (again bool, err error) {
	if err := s.Forest.DuplicateItem(t, tr, r, p, extentKey(ino, end)); err != nil {
		if errors.Is(err, errno.EAGAIN) {
			return true, nil
		}
		return false, err
	}
	leaf, slot := p.Leaf(), p.Slot()
	extentAt(leaf, slot-1).SetNumBytes(start - off)
	b := extentAt(leaf, slot)
	b.SetOffset(fe.Offset + end - off)
	b.SetNumBytes(extentEnd(off, fe) - end)
	s.Forest.DirtyLeaf(t, tr, p)
	if onDisk(fe) {
		return false, s.ExtentTree.IncExtentRef(t, tr, refOf(r, ino, off-fe.Offset), format.Logical(fe.DiskBytenr), fe.DiskNumBytes)
	}
	return false, nil
}

// dropNext goes on to the inode's next item after a leaf that has nothing of the range; the next
// leaf may.
func (s *Store) dropNext(t *sched.Task, r *ctree.Root, ino format.Ino, end uint64, p *ctree.Path, res *DropResult) error {
	from := extentKey(ino, res.NextStart)
	more, err := s.Forest.NextLeaf(t, r, p)
	// On the way nothing is locked: an item that came in meanwhile may lie before the range.
	for more && p.Key().Less(from) {
		more, err = s.Forest.NextItem(t, r, p)
	}
	if err != nil {
		return err
	}
	res.NextStart = end
	if !more {
		return nil
	}
	if off, ok := isExtentOf(p.Leaf(), p.Slot(), ino); ok && off < end {
		res.NextStart = off
	}
	return nil
}

// dropStep empties [res.NextStart, end) as far as one leaf goes, and advances NextStart.
func (s *Store) dropStep(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, end uint64, opt DropOptions, p *ctree.Path, res *DropResult) error {
	start := res.NextStart
	found, err := s.Forest.SearchSlot(t, tr, r, extentKey(ino, start), p, -1, true)
	if err != nil {
		return err
	}
	leaf, slot := p.Leaf(), p.Slot()
	if !found && slot > 0 {
		if _, ok := isExtentOf(leaf, slot-1, ino); ok {
			slot--
		}
	}
	var fe format.FileExtent
	delSlot, delNr := 0, 0 // a run of items to delete
	progress := false      // NextStart has advanced
	for ; slot < leaf.Nritems(); slot++ {
		off, ok := isExtentOf(leaf, slot, ino)
		if !ok || off >= end {
			res.NextStart, progress = end, true
			break
		}
		if err := decodeExtent(r, leaf, slot, &fe); err != nil {
			return err
		}
		extEnd := extentEnd(off, &fe)
		if off < start && extEnd <= start {
			continue
		}
		if opt.MaxItems > 0 && res.Items >= opt.MaxItems {
			res.NextStart, progress = max(off, start), true
			break
		}
		inline := fe.Type == format.FileExtentTypeInline
		if inline && (off < start || extEnd > end) {
			return fmt.Errorf("drop of [%d, %d) in inode %d cuts its inline extent of %d bytes: %w", start, end, ino, fe.RAMBytes, errno.EOPNOTSUPP)
		}
		res.Items++
		counts := inline || onDisk(&fe)
		if counts {
			res.BytesFound += min(extEnd, end) - max(off, start)
		}
		switch {
		case off < start && extEnd > end:
			p.Slots[0] = slot
			again, err := s.dropMiddle(t, tr, r, ino, p, off, start, end, &fe)
			switch {
			case again: // the leaf changed under us: search again
				res.Items--
				if counts {
					res.BytesFound -= end - start
				}
			case err == nil:
				res.Items++
				res.NextStart = end
			}
			return err
		case off < start:
			extentAt(leaf, slot).SetNumBytes(start - off)
			s.Forest.DirtyLeaf(t, tr, p)
		case extEnd > end:
			b := extentAt(leaf, slot)
			b.SetOffset(fe.Offset + end - off)
			b.SetNumBytes(extEnd - end)
			p.Slots[0] = slot
			s.Forest.SetItemKeySafe(t, p, extentKey(ino, end))
			s.Forest.DirtyLeaf(t, tr, p)
		default:
			if onDisk(&fe) {
				if err := s.ExtentTree.FreeExtent(t, tr, refOf(r, ino, off-fe.Offset), format.Logical(fe.DiskBytenr), fe.DiskNumBytes); err != nil {
					return err
				}
			}
			if delNr == 0 {
				delSlot = slot
			}
			delNr++
		}
		res.NextStart, progress = min(end, max(start, format.AlignUp(extEnd, s.SectorSize))), true
		if res.NextStart == end {
			break
		}
	}
	if delNr > 0 {
		if opt.follow {
			p.Slots[0] = delSlot // the path goes with the items around it
		}
		return s.Forest.DelItems(t, tr, r, p, delSlot, delNr)
	}
	if progress {
		return nil
	}
	return s.dropNext(t, r, ino, end, p, res)
}

// CompressedInlineError says that NewSize cuts the compressed inline extent of a file, which must
// be read and written again, and is as it was. It is EOPNOTSUPP to errors.Is. Models
// BTRFS_NEED_TRUNCATE_BLOCK.
type CompressedInlineError struct {
	Ino     format.Ino
	NewSize uint64 // in bytes
}

func (e *CompressedInlineError) Error() string {
	return fmt.Sprintf("truncate of inode %d to %d cuts its compressed inline extent: %v", e.Ino, e.NewSize, errno.EOPNOTSUPP)
}

// Is makes the error an EOPNOTSUPP.
func (e *CompressedInlineError) Is(target error) bool { return target == error(errno.EOPNOTSUPP) }

// TruncateItems deletes the extents of a file from newSize on, last first, and trims the one that
// crosses it to the sector; an inline extent to the byte. At most maxItems items are changed (0 is
// no bound): nothing is left from size on, which is newSize once there are no others. bytesFreed is
// what nbytes loses. With a CompressedInlineError it has all the same dropped what it could.
//
// Models fs/btrfs/inode-item.c:btrfs_truncate_inode_items().
func (s *Store) TruncateItems(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, newSize uint64, maxItems int) (bytesFreed, size uint64, err error) {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	for items := 0; ; {
		n, freed, last, done, err := s.truncateStep(t, tr, r, ino, newSize, maxItems-items, p)
		bytesFreed += freed
		if err != nil || done {
			return bytesFreed, newSize, err
		}
		if items += n; maxItems > 0 && items >= maxItems {
			return bytesFreed, last, nil
		}
		p.Release(t)
	}
}

// truncateStep truncates in one leaf, the last that has extents of ino; the last one that it has
// deleted began at last. budget <= 0 is no bound.
func (s *Store) truncateStep(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, newSize uint64, budget int, p *ctree.Path) (items int, freed, last uint64, done bool, err error) {
	found, err := s.Forest.SearchSlot(t, tr, r, extentKey(ino, math.MaxUint64), p, -1, true)
	if err != nil {
		return 0, 0, 0, false, err
	}
	leaf, slot := p.Leaf(), p.Slot()
	if !found {
		slot--
	}
	var fe format.FileExtent
	edge := format.AlignUp(newSize, s.SectorSize)
	delSlot, delNr := slot+1, 0
	var stopped error
	done = true // until this leaf was all ours: then the one before it may have more
	for {
		if slot < 0 {
			done = delNr == 0
			break
		}
		off, ok := isExtentOf(leaf, slot, ino)
		if !ok {
			break
		}
		if err := decodeExtent(r, leaf, slot, &fe); err != nil {
			return items, freed, last, false, err
		}
		extEnd := extentEnd(off, &fe)
		if off >= newSize {
			if onDisk(&fe) {
				if err := s.ExtentTree.FreeExtent(t, tr, refOf(r, ino, off-fe.Offset), format.Logical(fe.DiskBytenr), fe.DiskNumBytes); err != nil {
					return items, freed, last, false, err
				}
			}
			if onDisk(&fe) || fe.Type == format.FileExtentTypeInline {
				freed += extEnd - off
			}
			delSlot, last = slot, off
			delNr++
			slot--
			if items++; items == budget {
				done = false
				break
			}
			continue
		}
		switch {
		case fe.Type != format.FileExtentTypeInline && extEnd > edge:
			extentAt(leaf, slot).SetNumBytes(edge - off)
			s.Forest.DirtyLeaf(t, tr, p)
			if onDisk(&fe) {
				freed += extEnd - edge
			}
			items++
		case fe.Type == format.FileExtentTypeInline && extEnd > newSize:
			if fe.Compression != format.CompressNone {
				stopped = &CompressedInlineError{ino, newSize}
				break
			}
			extentAt(leaf, slot).SetRAMBytes(newSize - off)
			p.Slots[0] = slot
			s.Forest.TruncateItem(t, p, format.FileExtentInline+int(newSize-off), true)
			s.Forest.DirtyLeaf(t, tr, p)
			freed += extEnd - newSize
			items++
		}
		break
	}
	if delNr > 0 {
		if err := s.Forest.DelItems(t, tr, r, p, delSlot, delNr); err != nil {
			return items, freed, last, false, err
		}
	}
	return items, freed, last, done, stopped
}

// MarkExtentWritten turns [start, end) of a preallocated extent into a written one. It splits the
// item at the edges of the range and merges with written neighbours of the same extent.
//
// Models fs/btrfs/file.c:btrfs_mark_extent_written().
//
// Preconditions:
//   - [start, end) lies in one PREALLOC item, not empty; the caller has its extent lock.
func (s *Store) MarkExtentWritten(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	for {
		err := s.markWritten(t, tr, r, ino, start, end, p)
		if !errors.Is(err, errno.EAGAIN) {
			return err
		}
		p.Release(t)
	}
}

// mergeable reports whether the item in slot is a written window of the extent at bytenr whose
// first byte would be at file offset base, and where it lies.
//
// Models fs/btrfs/file.c:extent_mergeable().
func mergeable(r *ctree.Root, leaf format.Node, slot int, ino format.Ino, bytenr, base uint64) (start, end uint64, ok bool) {
	if slot < 0 || slot >= leaf.Nritems() {
		return 0, 0, false
	}
	var fe format.FileExtent
	start, ok = isExtentOf(leaf, slot, ino)
	if !ok || decodeExtent(r, leaf, slot, &fe) != nil {
		return 0, 0, false
	}
	ok = fe.Type == format.FileExtentTypeReg && fe.DiskBytenr == bytenr && start-fe.Offset == base &&
		fe.Compression == 0 && fe.Encryption == 0 && fe.OtherEncoding == 0
	return start, start + fe.NumBytes, ok
}

// growNeighbour marks [start, end) of the reserved item fe at the path's slot, [off, extEnd) in the
// file, written by moving its border with the written item beside it: no item comes or goes. It
// reports whether there is such an item.
func (s *Store) growNeighbour(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, p *ctree.Path, off, extEnd, start, end uint64, fe *format.FileExtent) bool {
	leaf, slot, base := p.Leaf(), p.Slot(), off-fe.Offset
	switch {
	case start == off && end < extEnd: // the one before the range
		prev, prevEnd, ok := mergeable(r, leaf, slot-1, ino, fe.DiskBytenr, base)
		if !ok || prevEnd != start {
			return false
		}
		b := extentAt(leaf, slot)
		b.SetGeneration(tr.ID)
		b.SetOffset(end - base)
		b.SetNumBytes(extEnd - end)
		b = extentAt(leaf, slot-1)
		b.SetGeneration(tr.ID)
		b.SetNumBytes(end - prev)
		s.Forest.SetItemKeySafe(t, p, extentKey(ino, end))
	case start > off && end == extEnd: // the one after it
		next, nextEnd, ok := mergeable(r, leaf, slot+1, ino, fe.DiskBytenr, base)
		if !ok || next != end {
			return false
		}
		b := extentAt(leaf, slot)
		b.SetGeneration(tr.ID)
		b.SetNumBytes(start - off)
		b = extentAt(leaf, slot+1)
		b.SetGeneration(tr.ID)
		b.SetOffset(start - base)
		b.SetNumBytes(nextEnd - start)
		p.Slots[0] = slot + 1
		s.Forest.SetItemKeySafe(t, p, extentKey(ino, start))
	default:
		return false
	}
	s.Forest.DirtyLeaf(t, tr, p)
	return true
}

func (s *Store) markWritten(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64, p *ctree.Path) error {
	found, err := s.Forest.SearchSlot(t, tr, r, extentKey(ino, start), p, -1, true)
	if err != nil {
		return err
	}
	leaf, slot := p.Leaf(), p.Slot()
	if !found {
		slot--
	}
	var fe format.FileExtent
	off, ok := uint64(0), false
	if slot >= 0 {
		off, ok = isExtentOf(leaf, slot, ino)
	}
	if !ok {
		return fmt.Errorf("corrupt tree: root=%d, no file extent at [%d, %d) of inode %d", r.ID, start, end, ino)
	}
	if err := decodeExtent(r, leaf, slot, &fe); err != nil {
		return err
	}
	extEnd := extentEnd(off, &fe)
	if fe.Type != format.FileExtentTypePrealloc || start < off || end > extEnd || start >= end {
		return fmt.Errorf("corrupt tree: root=%d, bad file extent for write at [%d, %d) of inode %d, have type %d at [%d, %d) want type %d",
			r.ID, start, end, ino, fe.Type, off, extEnd, format.FileExtentTypePrealloc)
	}
	p.Slots[0] = slot
	base := off - fe.Offset // where in the file the extent's first byte would be; wraps below zero
	bytenr := fe.DiskBytenr

	if s.growNeighbour(t, tr, r, ino, p, off, extEnd, start, end, &fe) {
		return nil
	}
	// Cut the item at the edges of the range. After each cut the tree is as good as before, so an
	// EAGAIN from DuplicateItem may start over.
	split := false
	if start > off {
		if err := s.splitExtent(t, tr, r, ino, p, off, start, extEnd, base, &fe); err != nil {
			return err
		}
		off, split = start, true
	}
	if end < extEnd {
		if err := s.splitExtent(t, tr, r, ino, p, off, end, extEnd, base, &fe); err != nil {
			return err
		}
		p.Slots[0]--
		extEnd, split = end, true
	}
	leaf, slot = p.Leaf(), p.Slot()
	from, to := slot, slot // items that become one
	if !split {
		if _, nextEnd, ok := mergeable(r, leaf, slot+1, ino, bytenr, base); ok && leaf.Key(slot+1).Offset == end {
			to, extEnd = slot+1, nextEnd
		}
		if prev, prevEnd, ok := mergeable(r, leaf, slot-1, ino, bytenr, base); ok && prevEnd == start {
			from, off = slot-1, prev
		}
	}
	b := extentAt(leaf, from)
	b.SetType(format.FileExtentTypeReg)
	b.SetGeneration(tr.ID)
	b.SetNumBytes(extEnd - off)
	s.Forest.DirtyLeaf(t, tr, p)
	for range to - from {
		if err := s.ExtentTree.FreeExtent(t, tr, refOf(r, ino, base), format.Logical(bytenr), fe.DiskNumBytes); err != nil {
			return err
		}
	}
	if to > from {
		return s.Forest.DelItems(t, tr, r, p, from+1, to-from)
	}
	return nil
}

// refOf is the reference of an item whose extent would begin at file offset base.
func refOf(r *ctree.Root, ino format.Ino, base uint64) format.DataRef {
	return format.DataRef{Root: r.ID, Ino: ino, Offset: format.FileOff(base)}
}

// splitExtent cuts the item at p, [off, extEnd), in two at file offset cut, and points p at the
// second. EAGAIN when the leaf had to be let go and has changed.
func (s *Store) splitExtent(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, p *ctree.Path, off, cut, extEnd, base uint64, fe *format.FileExtent) error {
	if err := s.Forest.DuplicateItem(t, tr, r, p, extentKey(ino, cut)); err != nil {
		return err
	}
	leaf, slot := p.Leaf(), p.Slot()
	b := extentAt(leaf, slot-1)
	b.SetGeneration(tr.ID)
	b.SetNumBytes(cut - off)
	b = extentAt(leaf, slot)
	b.SetGeneration(tr.ID)
	b.SetOffset(cut - base)
	b.SetNumBytes(extEnd - cut)
	s.Forest.DirtyLeaf(t, tr, p)
	return s.ExtentTree.IncExtentRef(t, tr, refOf(r, ino, base), format.Logical(fe.DiskBytenr), fe.DiskNumBytes)
}

// NocowExtent is a file extent that may be written in place.
type NocowExtent struct {
	Start        uint64 // file offset of the item
	NumBytes     uint64 // length of the item
	Type         uint8  // format.FileExtentTypeReg or FileExtentTypePrealloc
	DiskBytenr   uint64 // the data extent
	DiskNumBytes uint64
	RAMBytes     uint64
	Offset       uint64 // of the item inside the data extent
	Generation   uint64
	WriteBytenr  uint64 // disk address of the offset asked for
}

// NocowCheck says how the question is asked whether a write may go in place. The zero value asks in
// the cheapest way and may sleep. The fields from OwnPath on are what kernels did before 5.19;
// labs/reference 3.6.
type NocowCheck struct {
	Nodatacow bool // the inode is NODATACOW, not only preallocated
	Nowait    bool // EAGAIN where the question would sleep
	// Delalloc, if set, is the io tree of a COW inode: delalloc in a preallocated extent means no,
	// because its writeback converts it.
	Delalloc *extentio.Tree

	OwnPath  bool // the search for other references takes a path of its own
	KeepPath bool // the search for checksums takes a path of its own while the first one is kept
	KeepLeaf bool // the block group and the io tree are asked with the leaf of the item locked
	Spin     bool // a busy delayed reference is tried again for ever

	WaitCsums bool // the search for checksums waits, whatever Nowait says
}

// CanNocow is CheckNocow in the cheapest way, without the io tree.
func (s *Store) CanNocow(t *sched.Task, r *ctree.Root, ino format.Ino, off, length uint64, nodatacow, nowait bool) (n uint64, ext NocowExtent, err error) {
	return s.CheckNocow(t, r, ino, off, length, NocowCheck{Nodatacow: nodatacow, Nowait: nowait})
}

// CheckNocow says whether a write at off may go in place, and how much of length: n bytes, up to
// the end of the extent. n = 0 means that the write must COW. With c.Nowait it does not sleep:
// EAGAIN when it would have to.
//
// The order of the checks is labs/reference 3.4: the item, then references by others, then
// checksums, then the block group and delalloc. A pending snapshot is the caller's.
//
// Models fs/btrfs/inode.c:can_nocow_extent() and can_nocow_file_extent().
func (s *Store) CheckNocow(t *sched.Task, r *ctree.Root, ino format.Ino, off, length uint64, c NocowCheck) (n uint64, ext NocowExtent, err error) {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	p.Nowait = c.Nowait
	found, err := s.Forest.SearchSlot(t, nil, r, extentKey(ino, off), p, 0, false)
	if err != nil {
		return 0, ext, err
	}
	leaf, slot := p.Leaf(), p.Slot()
	if !found {
		slot--
	}
	if slot < 0 {
		return 0, ext, nil
	}
	start, ok := isExtentOf(leaf, slot, ino)
	if !ok {
		return 0, ext, nil
	}
	var fe format.FileExtent
	if err := decodeExtent(r, leaf, slot, &fe); err != nil {
		return 0, ext, err
	}
	switch {
	case fe.Type == format.FileExtentTypeInline,
		!c.Nodatacow && fe.Type == format.FileExtentTypeReg,
		off >= start+fe.NumBytes,
		fe.Generation <= r.LastSnapshot(), // it may be shared with that snapshot
		fe.DiskBytenr == 0,
		fe.Compression != 0 || fe.Encryption != 0 || fe.OtherEncoding != 0:
		return 0, ext, nil
	}
	n = min(length, start+fe.NumBytes-off)
	if c.KeepLeaf && !s.mayOverwrite(t, &c, &fe, off, n, true) {
		return 0, ext, nil
	}
	// Nothing more is read from the leaf, and the rest is expensive.
	p.Release(t)
	shared, err := s.crossRefExist(t, refOf(r, ino, start-fe.Offset), format.Logical(fe.DiskBytenr), p, &c)
	if err != nil || shared {
		return 0, ext, err
	}
	write := fe.DiskBytenr + fe.Offset + (off - start)
	if c.KeepPath {
		t.Count(sched.CountKeptPath)
		q := s.paths.get(t)
		defer s.paths.put(t, q)
		p, q.Nowait = q, c.Nowait
	}
	// An extent has checksums for all of its data or for none: NOCOW data written over checksummed
	// data would not match them.
	p.Nowait = c.Nowait && !c.WaitCsums
	sums, err := s.csumExists(t, p, write, n)
	if err != nil || sums {
		return 0, ext, err
	}
	if !c.KeepLeaf && !s.mayOverwrite(t, &c, &fe, off, n, false) {
		return 0, ext, nil
	}
	return n, NocowExtent{Start: start, NumBytes: fe.NumBytes, Type: fe.Type, DiskBytenr: fe.DiskBytenr, DiskNumBytes: fe.DiskNumBytes,
		RAMBytes: fe.RAMBytes, Offset: fe.Offset, Generation: fe.Generation, WriteBytenr: write}, nil
}

// ShareFileExtent adds the item fe, which another item refers to the same data extent with, at off,
// and the reference of the data extent. The range must be free. The item keeps its generation: it
// says when the data was written.
//
// Models fs/btrfs/file.c:btrfs_insert_replace_extent() of a clone.
func (s *Store) ShareFileExtent(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, off uint64, fe *format.FileExtent) error {
	if err := s.InsertFileExtent(t, tr, r, ino, off, fe); err != nil {
		return err
	}
	return s.ExtentTree.IncExtentRef(t, tr, refOf(r, ino, off-fe.Offset), format.Logical(fe.DiskBytenr), fe.DiskNumBytes)
}

// mayOverwrite asks the block group, and the io tree if c has one. held says that the leaf of the
// item is locked, which neither needs.
func (s *Store) mayOverwrite(t *sched.Task, c *NocowCheck, fe *format.FileExtent, off, n uint64, held bool) bool {
	if held {
		t.Count(sched.CountLeafHeld)
	}
	if !s.ExtentTree.MayWrite(t, format.Logical(fe.DiskBytenr)) {
		return false
	}
	if c.Delalloc == nil || c.Nodatacow || fe.Type != format.FileExtentTypePrealloc {
		return true
	}
	if held {
		t.Count(sched.CountLeafHeld)
	}
	return !c.Delalloc.Any(t, off, off+n, extentio.Delalloc)
}

// crossRefExist asks for other references with p, or with a path of its own.
func (s *Store) crossRefExist(t *sched.Task, own format.DataRef, bytenr format.Logical, p *ctree.Path, c *NocowCheck) (shared bool, err error) {
	if c.OwnPath {
		t.Count(sched.CountOwnPath)
		p = s.paths.get(t)
		defer s.paths.put(t, p)
		p.Nowait = c.Nowait
	}
	for {
		shared, err = s.ExtentTree.CrossRefExist(t, own, bytenr, p)
		if !c.Spin || !errors.Is(err, kiocb.AgainRefs) {
			return shared, err
		}
	}
}

package fstree

import (
	"errors"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// Without the feature no-holes a file has an item for each hole: a file extent at address 0. The
// items of a file then follow one another without a gap, from 0 to the end of its last sector.

// ErrNoGap says that a hole was to be made where an item begins.
var ErrNoGap = errors.New("an item is in the place of a hole")

// FillHole makes [start, end), which has no items, a hole with an item: a hole that ends or begins
// there grows, or there is a new one. Models fs/btrfs/file.c:fill_holes().
//
// Preconditions:
//   - the caller has the range's extent lock.
func (s *Store) FillHole(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64) error {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	found, err := s.Forest.SearchSlot(t, tr, r, extentKey(ino, start), p, 0, true)
	if err != nil {
		return err
	}
	if found {
		return ErrNoGap
	}
	leaf, slot := p.Leaf(), p.Slot()
	if from, to, ok := holeAt(r, leaf, slot-1, ino); ok && to == start {
		setHole(extentAt(leaf, slot-1), end-from, tr.ID)
		s.Forest.DirtyLeaf(t, tr, p)
		return nil
	}
	if from, to, ok := holeAt(r, leaf, slot, ino); ok && from == end {
		s.Forest.SetItemKeySafe(t, p, extentKey(ino, start))
		setHole(extentAt(leaf, slot), to-start, tr.ID)
		s.Forest.DirtyLeaf(t, tr, p)
		return nil
	}
	p.Release(t)
	return s.InsertHole(t, tr, r, ino, start, end)
}

// InsertHole adds an item for the hole [start, end); the range must be free. Models
// btrfs_insert_hole_extent().
func (s *Store) InsertHole(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64) error {
	return s.InsertFileExtent(t, tr, r, ino, start, &format.FileExtent{RAMBytes: end - start, NumBytes: end - start, Type: format.FileExtentTypeReg})
}

// holeAt reports whether the item in slot is a hole that can grow, and where it lies. Models
// hole_mergeable().
func holeAt(r *ctree.Root, leaf format.Node, slot int, ino format.Ino) (start, end uint64, ok bool) {
	if slot < 0 || slot >= leaf.Nritems() {
		return 0, 0, false
	}
	var fe format.FileExtent
	start, ok = isExtentOf(leaf, slot, ino)
	if !ok || decodeExtent(r, leaf, slot, &fe) != nil {
		return 0, 0, false
	}
	ok = fe.Type == format.FileExtentTypeReg && fe.DiskBytenr == 0 && fe.Compression == 0 && fe.Encryption == 0 && fe.OtherEncoding == 0
	return start, start + fe.NumBytes, ok
}

// setHole gives a hole another length.
func setHole(b format.FileExtentView, n, transid uint64) {
	fe := format.FileExtent{Generation: transid, RAMBytes: n, NumBytes: n, Type: format.FileExtentTypeReg}
	fe.Encode(b)
}

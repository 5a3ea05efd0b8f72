package fstree

import (
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Replace is how ReplaceFileExtent works. The zero value is what the kernel does since 5.18;
// labs/reference 6.6.
type Replace struct {
	// Drop empties the range first: the tree may have items of it.
	Drop bool
	// OneLeaf searches again for the place of the item when its range had items in more than one
	// leaf. Without it the item goes to the last of these leaves.
	OneLeaf bool
	// FieldByField writes the item with its leaf locked, one field after the other. Without it the
	// item is made before the search, and copied.
	FieldByField bool
}

// ReplaceFileExtent puts the item fe in the place of all that [start, end) has. It uses the empty
// path p, and leaves it held. Generation 0 stands for the running transaction. References of what
// is dropped follow; that of fe's data extent is the caller's.
//
// found is how many bytes that count in nbytes were dropped.
//
// Models fs/btrfs/tree-log.c:log_one_extent() from btrfs_drop_extents() on, and the insertion at
// the end of that.
//
// Preconditions: as DropExtents.
func (s *Store) ReplaceFileExtent(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64, fe *format.FileExtent, how Replace, p *ctree.Path) (found uint64, err error) {
	x := s.Replacement(tr, r, ino, start, end, fe, p)
	early := !how.FieldByField && x.fe.Size() <= len(x.made)
	if early {
		x.Prepare(t)
	}
	placed := false
	if how.Drop {
		if placed, err = x.Drop(t, how.OneLeaf); err != nil {
			return x.found, err
		}
	}
	if !placed {
		if err := x.Insert(t); err != nil {
			return x.found, err
		}
	}
	if early {
		x.Copy(t)
	} else {
		x.Fill(t)
	}
	return x.found, nil
}

// SetFileExtent is ReplaceFileExtent of a range that may have items, with a path of its own.
//
// Models fs/btrfs/inode.c:insert_reserved_file_extent() up to the reference of the extent.
func (s *Store) SetFileExtent(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64, fe *format.FileExtent) (found uint64, err error) {
	p := s.paths.get(t)
	defer s.paths.put(t, p)
	return s.ReplaceFileExtent(t, tr, r, ino, start, end, fe, Replace{Drop: true}, p)
}

// Replacement is a file extent on its way into the place of all that its range has, step by step:
// ReplaceFileExtent is an order of its steps. After an error the path may be held.
type Replacement struct {
	s          *Store
	tr         *ctree.Trans
	root       *ctree.Root
	ino        format.Ino
	start, end uint64
	fe         format.FileExtent
	path       *ctree.Path
	found      uint64 // bytes dropped that count in nbytes
	made       [format.FileExtentSize]byte
}

// Replacement begins with the empty path p. Generation 0 of fe stands for the running transaction.
//
// Preconditions: as DropExtents, for all steps.
func (s *Store) Replacement(tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64, fe *format.FileExtent, p *ctree.Path) Replacement {
	x := Replacement{s: s, tr: tr, root: r, ino: ino, start: start, end: end, fe: *fe, path: p}
	if x.fe.Generation == 0 {
		x.fe.Generation = tr.ID
	}
	return x
}

// Prepare makes the item in memory. It has no inline data.
func (x *Replacement) Prepare(t *sched.Task) {
	t.Spend(cost.Field, extentFields)
	x.fe.Encode(x.made[:x.fe.Size()])
}

// Drop empties the range and leaves the path held. placed says that it points at an empty item for
// the extent: there was room in the last leaf, and, with oneLeaf, all of the range was in it.
func (x *Replacement) Drop(t *sched.Task, oneLeaf bool) (placed bool, err error) {
	res, leaves := DropResult{NextStart: x.start}, 0
	for res.NextStart < x.end {
		x.path.Release(t)
		if err := x.s.dropStep(t, x.tr, x.root, x.ino, x.end, DropOptions{follow: true}, x.path, &res); err != nil {
			return false, err
		}
		leaves++
	}
	x.found = res.BytesFound
	return (leaves == 1 || !oneLeaf) && x.s.Forest.InsertHere(t, x.path, extentKey(x.ino, x.start), x.fe.Size()), nil
}

// Insert searches the place of the extent, lets the path point at an empty item there, and leaves
// it held. EEXIST when there is an item.
func (x *Replacement) Insert(t *sched.Task) error {
	x.path.Release(t)
	return x.s.Forest.InsertEmptyItem(t, x.tr, x.root, x.path, extentKey(x.ino, x.start), x.fe.Size())
}

// Copy copies the item that was prepared to the empty one.
func (x *Replacement) Copy(t *sched.Task) {
	x.path.Touch(t, 1)
	copy(x.path.Item(), x.made[:x.fe.Size()])
	x.s.Forest.DirtyLeaf(t, x.tr, x.path)
}

// Fill writes the empty item field by field.
func (x *Replacement) Fill(t *sched.Task) {
	x.path.Touch(t, extentFields)
	x.fe.Encode(x.path.Item())
	x.s.Forest.DirtyLeaf(t, x.tr, x.path)
}

// extentFields is how many fields a file extent item has.
const extentFields = 10

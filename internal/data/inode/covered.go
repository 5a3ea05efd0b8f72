package inode

import (
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/sched"
)

// holes reports whether holes of the file have items.
func (ip *Inode) holes() bool {
	return ip.FS.Holes != nil && ip.item.Mode&format.S_IFMT == format.S_IFREG
}

// Cover says that [start, end) has file extent items now. Models
// btrfs_inode_set_file_extent_range().
func (ip *Inode) Cover(t *sched.Task, start, end uint64) {
	if !ip.holes() {
		return
	}
	ip.mu.Lock(t)
	ip.covered = AddRange(ip.covered, Range{Start: start, End: end})
	ip.mu.Unlock(t)
}

// Uncover says that [start, end) has no file extent items any more. Models
// btrfs_inode_clear_file_extent_range().
func (ip *Inode) Uncover(t *sched.Task, start, end uint64) {
	if !ip.holes() {
		return
	}
	ip.mu.Lock(t)
	defer ip.mu.Unlock(t)
	var left []Range
	for _, r := range ip.covered {
		if r.Start < start {
			left = append(left, Range{Start: r.Start, End: min(r.End, start)})
		}
		if r.End > end {
			left = append(left, Range{Start: max(r.Start, end), End: r.End})
		}
	}
	ip.covered = left
}

// Emptied tells of [start, end), whose file extents are gone: where holes have items, it becomes a
// hole, unless it lies beyond i_size. Models the part of btrfs_replace_file_extents() that calls
// fill_holes().
//
// Preconditions:
//   - the caller has the range's extent lock.
func (ip *Inode) Emptied(t *sched.Task, tr *ctree.Trans, s *fstree.Store, start, end uint64) error {
	switch {
	case !ip.holes() || start >= end:
		return nil
	case start >= format.AlignUp(ip.Size(t), format.SectorSize):
		ip.Uncover(t, start, end)
		return nil
	}
	return s.FillHole(t, tr, ip.Root, ip.Ino, start, end)
}

// safeSize is what the inode item may say when i_size is size. Inode.mu is held, but in the museum.
func (ip *Inode) safeSize(size uint64) uint64 {
	switch {
	case !ip.holes():
		return size
	case len(ip.covered) == 0 || ip.covered[0].Start > 0:
		return 0
	}
	return min(size, ip.covered[0].End)
}

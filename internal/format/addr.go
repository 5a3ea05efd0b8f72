package format

import (
	"cmp"
	"math"
	"slices"
)

// Addresses. A btrfs file system counts bytes in three spaces; a type for each keeps an argument
// from landing in the parameter of another space.
type (
	// Logical is an address in the file system's own space, where block groups and extents lie.
	Logical uint64
	// Physical is an offset on a device. A chunk maps logical addresses to physical ones.
	Physical uint64
	// FileOff is an offset in a file.
	FileOff uint64
	// Ino is an inode number. It names a file inside one subvolume only.
	Ino uint64
)

// Range is the half-open range [Start, End) of one address space.
type Range[A ~uint64] struct{ Start, End A }

// Between is the range from start up to end.
func Between[A ~uint64](start, end A) Range[A] { return Range[A]{start, end} }

// RangeOf is the range of length bytes from start.
func RangeOf[A ~uint64](start A, length uint64) Range[A] { return Range[A]{start, start + A(length)} }

// Len is the length in bytes.
func (r Range[A]) Len() uint64 { return uint64(r.End - r.Start) }

// Empty reports whether the range holds no byte.
func (r Range[A]) Empty() bool { return r.Start >= r.End }

// Contains reports whether the byte at a is in the range.
func (r Range[A]) Contains(a A) bool { return r.Start <= a && a < r.End }

// Intersect is the part that r and o have in common. It is Empty when there is none.
func (r Range[A]) Intersect(o Range[A]) Range[A] {
	return Range[A]{max(r.Start, o.Start), min(r.End, o.End)}
}

// Merge makes the ranges ascending and disjoint: those that overlap or meet become one. The slice
// is the caller's no longer.
func Merge[A ~uint64](list []Range[A]) []Range[A] {
	slices.SortFunc(list, func(a, b Range[A]) int { return cmp.Compare(a.Start, b.Start) })
	n := 0
	for _, r := range list {
		if n > 0 && r.Start <= list[n-1].End {
			list[n-1].End = max(list[n-1].End, r.End)
			continue
		}
		list[n] = r
		n++
	}
	return list[:n]
}

// DataRef names one user of a data extent: inode Ino of the subvolume tree Root. Offset is the file
// offset at which the extent's first byte would lie: the offset of an EXTENT_DATA item minus the
// item's offset inside the extent. The items that a split or a trim leaves therefore name the same
// reference. The difference may wrap below zero, as it may in the kernel.
type DataRef struct {
	Root   uint64
	Ino    Ino
	Offset FileOff
}

// Hash is the EXTENT_DATA_REF key offset of a reference, and orders inline ones.
// Models fs/btrfs/extent-tree.c:hash_extent_data_ref().
func (r DataRef) Hash() uint64 {
	high := rawCRC32C64(math.MaxUint32, r.Root)
	low := rawCRC32C64(rawCRC32C64(math.MaxUint32, uint64(r.Ino)), uint64(r.Offset))
	return uint64(high)<<31 ^ uint64(low)
}

// Package place answers where a range of a file is on disk, and where a write of it may go. It
// knows no pages: buffered writeback asks it, and direct I/O and the log tree can.
//
// The questions, and what an answer costs when the inode's extent maps (inode.Extents) do not have
// it:
//
//	At         what is at this offset?              one lookup in the file's tree
//	CanNocow   up to where may a write go in place? extent lock of the range, CanNocow of the tree
//	Next       where does this write go?
//	  Overwrite  the piece may be overwritten: its own place               CanNocow of the tree, each time
//	  Allocate   else, up to the next piece that may: new space
//	    backData   data reservation for bytes dirtied without one          data may_use up, NORESERVE off
//	    ReserveExtent                                                      data may_use -> reserved; hint
//
// The caller of Next turns the answer into an ordered extent (inode.AddOrdered) before it lets the
// range, or its pages, go.
//
// An answer is remembered in the extent maps unless something was dropped from them while it was on
// its way (extentmap.Cache.Gen), so that a lookup without a lock never leaves an old answer in the
// cache.
//
// Lock order:
//
//	extent                         CanNocow; the caller of Next holds it
//	  tree_fs, tree_extent         lookups
//	    space_info, block_group    Allocate
//	    extent_map                 leaf
//
// Invariants:
//   - a piece that Next returns begins where it was asked, is not empty, and no longer than
//     inode.MaxExtent;
//   - of its error only the range is valid, and it covers what cannot get a place.
//
// Model: fs/btrfs/inode.c (btrfs_get_extent, can_nocow_extent, the allocating half of
// cow_file_range and run_delalloc_nocow). Differences: backData can fail where the kernel
// overbooks.
package place

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/data/extentmap"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

// Items is the part of the file items that place needs; *fstree.Store is one.
type Items interface {
	LookupFileExtent(t *sched.Task, r *ctree.Root, ino format.Ino, off uint64) (start uint64, fe format.FileExtent, ok bool, err error)
	TryLookupFileExtent(t *sched.Task, r *ctree.Root, ino format.Ino, off uint64) (start uint64, fe format.FileExtent, ok bool, err error)
	CheckNocow(t *sched.Task, r *ctree.Root, ino format.Ino, off, length uint64, c fstree.NocowCheck) (uint64, fstree.NocowExtent, error)
	CanNocow(t *sched.Task, r *ctree.Root, ino format.Ino, off, length uint64, nodatacow bool, nowait bool) (uint64, fstree.NocowExtent, error)
}

// Extents is the part of the extent allocator that place needs; *extenttree.ExtentTree is one.
type Extents interface {
	ReserveExtent(t *sched.Task, numBytes, minBytes uint64, hint format.Logical) (start format.Logical, length uint64, err error)
}

// Finder finds places for the inodes of one file system.
type Finder struct {
	items   Items
	extents Extents
	hint    atomic.Uint64 // where the last data extent ended
}

// New makes a Finder.
func New(items Items, extents Extents) *Finder {
	return &Finder{items: items, extents: extents}
}

// At tells what the file has at off: from the cache, or from the tree.
//
// Preconditions: the extent range of off is locked, and nothing ordered is in it; or a wrong answer
// does no harm.
func (f *Finder) At(t *sched.Task, ip *inode.Inode, off uint64) (extentmap.Map, error) {
	return f.at(t, ip, off, f.items.LookupFileExtent)
}

// TryAt is At that answers EAGAIN rather than wait for a tree block or read one.
func (f *Finder) TryAt(t *sched.Task, ip *inode.Inode, off uint64) (extentmap.Map, error) {
	return f.at(t, ip, off, f.items.TryLookupFileExtent)
}

// lookup is LookupFileExtent or TryLookupFileExtent of Items.
type lookup = func(t *sched.Task, r *ctree.Root, ino format.Ino, off uint64) (start uint64, fe format.FileExtent, ok bool, err error)

func (f *Finder) at(t *sched.Task, ip *inode.Inode, off uint64, lookup lookup) (extentmap.Map, error) {
	m, err := f.find(t, ip, off, lookup)
	if err == nil && t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_get_extent", Start: m.Start, Len: m.End - m.Start})
	}
	return m, err
}

func (f *Finder) find(t *sched.Task, ip *inode.Inode, off uint64, lookup lookup) (extentmap.Map, error) {
	if m, ok := ip.Extents.Lookup(t, off); ok {
		return m, nil
	}
	gen := ip.Extents.Gen()
	start, fe, ok, err := lookup(t, ip.Root, ip.Ino, off)
	if err != nil {
		return extentmap.Map{}, err
	}
	if !ok {
		m := extentmap.Map{Start: off, End: start, Kind: extentmap.Hole}
		ip.Extents.Insert(t, m, gen)
		return m, nil
	}
	m := extentmap.Map{Start: start, End: start + fe.NumBytes, Compression: fe.Compression, Generation: fe.Generation}
	switch {
	case fe.Type == format.FileExtentTypeInline:
		m.Kind = extentmap.Inline
		m.End = format.AlignUp(start+max(fe.RAMBytes, 1), format.SectorSize)
	case fe.DiskBytenr == 0:
		m.Kind = extentmap.Hole
	default:
		m.Kind = extentmap.Regular
		if fe.Type == format.FileExtentTypePrealloc {
			m.Kind = extentmap.Prealloc
		}
		m.DiskBytenr = fe.DiskBytenr
		if fe.Compression == format.CompressNone {
			m.DiskBytenr += fe.Offset
		}
		m.ExtentBytenr, m.ExtentLen, m.ExtentOffset = fe.DiskBytenr, fe.DiskNumBytes, fe.Offset
	}
	if fe.Encryption != 0 || fe.OtherEncoding != 0 {
		return m, NotSupported(ip, off, fmt.Sprintf("encryption %d, encoding %d", fe.Encryption, fe.OtherEncoding))
	}
	ip.Extents.Insert(t, m, gen)
	return m, nil
}

// Extent is a piece of a file's range and its place on disk.
type Extent struct {
	Start, Len uint64
	Type       ordered.Type
	DiskBytenr format.Logical // of Start
}

// Next finds the place of the first piece of [start, end), which is to be written: space that is
// there already where the inode may write in place, and newly reserved space elsewhere. On an error
// the piece has a range and no place.
//
// Models one round of run_delalloc_nocow() and cow_file_range().
//
// Preconditions:
//   - the extent range is locked, or the pages of it, which are dirty; nothing ordered is in it.
func (f *Finder) Next(t *sched.Task, ip *inode.Inode, start, end uint64) (Extent, error) {
	if !ip.MayNocow() {
		return f.Allocate(t, ip, start, min(end, start+inode.MaxExtent))
	}
	cur := start
	for cur < end {
		m, ok, err := f.nocowAt(t, ip, cur, end)
		if err == nil && !ok {
			// Go on where the extent that cannot be overwritten, or the hole, ends.
			if m, err = f.At(t, ip, cur); err == nil {
				cur = min(m.End, end)
				continue
			}
		}
		if err != nil {
			return Extent{Start: start, Len: end - start}, err
		}
		if cur > start {
			break
		}
		return inPlace(m, cur, end), nil
	}
	return f.Allocate(t, ip, start, min(cur, start+inode.MaxExtent))
}

// Overwrite finds the first piece of [start, end) if it may be written in place; ok is false when
// it may not.
//
// Preconditions: as Next; the caller keeps snapshots out until the extent is ordered.
func (f *Finder) Overwrite(t *sched.Task, ip *inode.Inode, start, end uint64) (x Extent, ok bool, err error) {
	ip.IOTree.AssertLocked(t, start, end)
	return f.Guess(t, ip, start, end)
}

// Guess is Overwrite for a caller to whom a wrong answer does no harm: it need not lock the range.
func (f *Finder) Guess(t *sched.Task, ip *inode.Inode, start, end uint64) (x Extent, ok bool, err error) {
	if !ip.MayNocow() {
		return x, false, nil
	}
	m, ok, err := f.nocowAt(t, ip, start, end)
	if err != nil || !ok {
		return x, false, err
	}
	return inPlace(m, start, end), true, nil
}

// OverwriteNowait is Overwrite for a NOWAIT request, which asks as c says; with always set the
// trees are asked although the answer is known, as kernels do. The piece ends where the extent
// ends.
//
// Models the part of btrfs_get_blocks_direct_write() that asks can_nocow_extent().
//
// Preconditions: as Overwrite.
func (f *Finder) OverwriteNowait(t *sched.Task, ip *inode.Inode, start, end uint64, c fstree.NocowCheck, always bool) (x Extent, ok bool, err error) {
	ip.IOTree.AssertLocked(t, start, end)
	if ip.Root.DataCOWForced(t) {
		return x, false, nil
	}
	if !always {
		if m, known := ip.Extents.Lookup(t, start); known && m.Nocow && m.Generation > ip.Root.LastSnapshot() {
			return inPlace(m, start, end), true, nil
		}
	}
	gen := ip.Extents.Gen()
	c = checkOf(ip, c)
	n, found, err := f.items.CheckNocow(t, ip.Root, ip.Ino, start, end-start, c)
	if err != nil || n == 0 {
		return x, false, err
	}
	m := nocowMap(start, n, &found)
	if !always {
		// As nocowAt: the next request most likely lies in the same extent.
		if all, y, err := f.items.CheckNocow(t, ip.Root, ip.Ino, found.Start, found.NumBytes, c); err == nil && all == found.NumBytes && y.DiskBytenr == found.DiskBytenr {
			m = nocowMap(y.Start, all, &y)
		}
		ip.Extents.Insert(t, m, gen)
	}
	return inPlace(m, start, end), true, nil
}

// checkOf is c for an inode.
func checkOf(ip *inode.Inode, c fstree.NocowCheck) fstree.NocowCheck {
	c.Nodatacow = ip.Nocow()
	if !c.Nodatacow {
		c.Delalloc = &ip.IOTree
	}
	return c
}

// CheckNocow reports up to which byte of [start, end), which are sectors, a write goes in place, as
// CanNocow does, but asks as c says, and about the first extent only. With try the range is tried:
// EAGAIN.
//
// Models check_can_nocow() of 4.13 and btrfs_check_nocow_nolock() of 5.8, as btrfs_write_check()
// calls them for NOWAIT.
func (f *Finder) CheckNocow(t *sched.Task, ip *inode.Inode, start, end uint64, c fstree.NocowCheck, try bool) (uint64, error) {
	if err := lockForCheck(t, ip, start, end, try); err != nil {
		return start, err
	}
	defer ip.IOTree.Unlock(t, start, end)
	n, _, err := f.items.CheckNocow(t, ip.Root, ip.Ino, start, end-start, checkOf(ip, c))
	if err != nil {
		return start, err
	}
	return start + n, nil
}

// inPlace is the part of [start, end) in m, which may be overwritten.
func inPlace(m extentmap.Map, start, end uint64) Extent {
	x := Extent{Start: start, Len: min(m.End, end, start+inode.MaxExtent) - start, Type: ordered.Nocow, DiskBytenr: format.Logical(m.Bytenr(start))}
	if m.Kind == extentmap.Prealloc {
		x.Type = ordered.Prealloc
	}
	return x
}

// Allocate reserves new space for the first piece of [start, end), as long as one piece of free
// space allows. The data space was reserved before.
//
// Preconditions: as Next; end - start is at most inode.MaxExtent.
func (f *Finder) Allocate(t *sched.Task, ip *inode.Inode, start, end uint64) (Extent, error) {
	x := Extent{Start: start, Len: end - start}
	if err := f.backData(t, ip, start, end); err != nil {
		return x, err
	}
	bytenr, n, err := f.extents.ReserveExtent(t, x.Len, format.SectorSize, format.Logical(f.hint.Load()))
	if err != nil {
		return x, fmt.Errorf("write ino=%d off=%d len=%d: allocate data extent: %w", ip.Ino, start, x.Len, err)
	}
	f.hint.Store(uint64(bytenr) + n)
	x.Len, x.DiskBytenr = n, bytenr
	return x, nil
}

// Whole reserves n bytes of new space in one piece, for a write at start that takes less space than
// was reserved for it: n bytes of that are used. ENOSPC when no piece is long enough.
func (f *Finder) Whole(t *sched.Task, ip *inode.Inode, start, n uint64) (format.Logical, error) {
	bytenr, _, err := f.extents.ReserveExtent(t, n, n, format.Logical(f.hint.Load()))
	if err != nil {
		return 0, fmt.Errorf("write ino=%d off=%d: allocate data extent of %d bytes: %w", ip.Ino, start, n, err)
	}
	f.hint.Store(uint64(bytenr) + n)
	return bytenr, nil
}

// backData reserves the data space of those bytes of [start, end) that were dirtied in NOCOW mode
// and must be COWed after all. Models the NORESERVE part of fallback_to_cow(). Difference: it can
// fail, the kernel overbooks.
func (f *Finder) backData(t *sched.Task, ip *inode.Inode, start, end uint64) error {
	if !ip.MayNocow() {
		return nil
	}
	// Of what is delalloc: the bit stays when a range has been written.
	n := ip.IOTree.Count(t, start, end, extentio.Delalloc|extentio.NoReserve)
	if n == 0 {
		return nil
	}
	if err := ip.FS.Space.Data().Reserve(t, n, spaceinfo.NoFlush); err != nil {
		return fmt.Errorf("write ino=%d off=%d len=%d: no space for a copy of what was to be overwritten: %w", ip.Ino, start, end-start, err)
	}
	ip.IOTree.Change(t, start, end, extentio.NoReserve, 0)
	return nil
}

// nocowAt finds out whether the bytes from off on may be overwritten in place; the map says up to
// where (at most the extent and end) and where they are on disk. The trees are asked each time,
// unless the file is known to have nothing there: can_nocow_extent(). With inode.FS.Remember an
// answer is kept, for the whole extent, until the file's extents change there.
//
// Preconditions: the extent range of off is locked, or its pages are, or a wrong answer does no
// harm.
func (f *Finder) nocowAt(t *sched.Task, ip *inode.Inode, off, end uint64) (extentmap.Map, bool, error) {
	if ip.Root.DataCOWForced(t) {
		return extentmap.Map{}, false, nil
	}
	remember := ip.FS.Remember.Load()
	if m, ok := ip.Extents.Lookup(t, off); ok {
		if remember && m.Nocow && m.Generation > ip.Root.LastSnapshot() {
			return m, true, nil
		}
		if m.Kind == extentmap.Hole || m.Kind == extentmap.Inline {
			return m, false, nil
		}
	}
	gen := ip.Extents.Gen()
	n, x, err := f.items.CanNocow(t, ip.Root, ip.Ino, off, end-off, ip.Nocow(), false)
	if err != nil || n == 0 {
		return extentmap.Map{}, false, err
	}
	m := nocowMap(off, n, &x)
	if !remember {
		return m, true, nil
	}
	if x.NumBytes > n { // the next random block most likely lies in the same extent
		all, y, err := f.items.CanNocow(t, ip.Root, ip.Ino, x.Start, x.NumBytes, ip.Nocow(), false)
		if err != nil {
			return extentmap.Map{}, false, err
		}
		if all == x.NumBytes && y.DiskBytenr == x.DiskBytenr && y.Start == x.Start {
			m = nocowMap(y.Start, all, &y)
		}
	}
	ip.Extents.Insert(t, m, gen)
	return m, true, nil
}

func nocowMap(off, n uint64, x *fstree.NocowExtent) extentmap.Map {
	m := extentmap.Map{Start: off, End: off + n, Kind: extentmap.Regular, Nocow: true, DiskBytenr: x.WriteBytenr, ExtentBytenr: x.DiskBytenr,
		ExtentLen: x.DiskNumBytes, ExtentOffset: x.Offset + off - x.Start, Generation: x.Generation}
	if x.Type == format.FileExtentTypePrealloc {
		m.Kind = extentmap.Prealloc
	}
	return m
}

// CanNocow reports up to which byte of [start, end) a write goes in place; start means not at all.
// With nowait it does not sleep: EAGAIN. Without, it waits for ordered extents in the range (drop,
// wait, retry).
// Models btrfs_check_nocow_lock(); labs/reference 3.4.
func (f *Finder) CanNocow(t *sched.Task, ip *inode.Inode, start, end uint64, nowait bool) (uint64, error) {
	start, end = format.AlignDown(start, format.SectorSize), format.AlignUp(end, format.SectorSize)
	if !ip.MayNocow() {
		return start, nil
	}
	if err := lockForCheck(t, ip, start, end, nowait); err != nil {
		return start, err
	}
	defer ip.IOTree.Unlock(t, start, end)
	cur := start
	for cur < end {
		n, _, err := f.items.CanNocow(t, ip.Root, ip.Ino, cur, end-cur, ip.Nocow(), nowait)
		if err != nil {
			return start, err
		}
		if n == 0 {
			break
		}
		cur += n
	}
	// A preallocated extent of a COW inode that has delalloc already will be converted by that
	// writeback.
	if !ip.Nocow() && cur > start && ip.IOTree.Any(t, start, cur, extentio.Delalloc) {
		return start, nil
	}
	return cur, nil
}

// lockForCheck locks a range of which the trees will be asked, with no ordered extent in it.
func lockForCheck(t *sched.Task, ip *inode.Inode, start, end uint64, try bool) error {
	if !try {
		ip.LockAndFlushOrdered(t, start, end)
	} else if !ip.TryLockUnlessOrdered(t, start, end) {
		return kiocb.AgainNocow
	}
	return nil
}

// NotSupported is for what btrfs can store and this program cannot read.
func NotSupported(ip *inode.Inode, off uint64, what string) error {
	return fmt.Errorf("read ino=%d off=%d: %s: %w", ip.Ino, off, what, errno.EOPNOTSUPP)
}

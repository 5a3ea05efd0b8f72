// Package reflink makes a range of one file share the extents of a range of another, or of another
// place in the same file: cp --reflink, FICLONERANGE.
//
// The normal case, for each file extent of the source:
//
//	Clone -> i_rwsem of both inodes; writers that hold none are waited for
//	      -> all dirty pages of the source get their places
//	      -> writeback and ordered extents of both ranges waited for
//	      -> shareSome     metadata reserved with nothing locked
//	                       pages of the destination dropped, extent range of the destination, then of the source, locked
//	                       DropExtents, InsertFileExtent, IncExtentRef, i_size: one transaction
//	                       what the source knew of its extents forgotten: they may not be overwritten in place any more
//
// An inline extent has no place on disk to share. It is copied: as an item to the start of a file
// that has no more data than it, else as a dirty block.
//
// Model: fs/btrfs/reflink.c:btrfs_remap_file_range() and btrfs_clone_files(). Differences: the
// range of the source is locked as well, as btrfs_double_extent_lock() did; ranges are locked
// extent by extent, so a reader may see the destination with some extents shared and some not yet;
// no deduplication.
//
// Lock order:
//
//	i_rwsem                        two inodes: lower ino first
//	  range_lock                   of the destination, then of the source, with policy range-lock
//	    dio_wait
//	    ordered_extent, space_ticket
//	      page                     dropping pages; the copy of an inline extent
//	      extent                   of the destination; then of the source, which is only tried
//	        transaction
package reflink

import (
	"errors"
	"fmt"

	"btrlab/internal/data/delalloc"
	"btrlab/internal/data/fileread"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/zero"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

const block = format.SectorSize

const (
	// unitsShare is a transaction's reservation in inserted items: the items that are dropped or
	// cut, the new one, the inode.
	unitsShare = 4
	// itemsPerTransaction bounds the file extents that one transaction drops.
	itemsPerTransaction = 4096
)

// clone is the state of one Clone.
type clone struct {
	env      *iopath.Env
	src, dst *inode.Inode
	off, to  uint64 // where the ranges start
	n        uint64 // bytes, as asked for
	blocks   uint64 // n up to the next block: the end of the source may lie in a block
}

// Clone makes [to, to+n) of dst share the extents of [off, off+n) of src; n = 0 is up to the end of
// src. off and to are multiples of the block size, and n is one unless the range ends at the end of
// src, and not before the end of dst. Bytes that dst had there are gone, and it grows if need be.
// Errors: EINVAL, EFBIG; ENOSPC, EIO, after which a part may be shared.
//
// Models btrfs_remap_file_range().
func Clone(t *sched.Task, env *iopath.Env, src, dst *inode.Inode, off, n, to uint64) error {
	inode.LockTwo(t, src, dst)
	defer inode.UnlockTwo(t, src, dst)
	c := clone{env: env, src: src, dst: dst, off: off, to: to, n: n}
	if err := c.check(t); err != nil || c.n == 0 {
		return err
	}
	plan := policy.ForAlloc(policy.Facts{Start: to, End: to + c.blocks, ISize: dst.Size(t)}, env.Policy())
	if plan.Lock.Range() {
		from := format.AlignDown(plan.RangeFrom, block)
		if src == dst {
			from = min(from, off)
		}
		dst.Range.Lock(t, from, pagecache.MaxFileEnd)
		defer dst.Range.Unlock(t, from, pagecache.MaxFileEnd)
		// its writers hold nothing else: of one in the middle a half would be cloned
		if src != dst {
			src.Range.LockNested(t, off, off+c.blocks)
			defer src.Range.Unlock(t, off, off+c.blocks)
		}
	}
	return c.run(t)
}

// Check is EINVAL for two files that can share no data, whatever the range.
func Check(src, dst *inode.Inode) error {
	if src.Sums() != dst.Sums() {
		return fmt.Errorf("one file has checksums and the other has none: %w", errno.EINVAL)
	}
	return nil
}

// check models generic_remap_checks() and generic_remap_check_len(), and what
// btrfs_remap_file_range_prep() adds.
func (c *clone) check(t *sched.Task) error {
	size := c.src.Size(t)
	if err := Check(c.src, c.dst); err != nil {
		return err
	}
	if c.n == 0 {
		if c.off > size {
			return errno.EINVAL
		}
		if c.n = size - c.off; c.n == 0 {
			return nil
		}
	}
	switch {
	case c.off%block != 0 || c.to%block != 0:
		return fmt.Errorf("offsets %d and %d, want multiples of %d: %w", c.off, c.to, uint64(block), errno.EINVAL)
	case c.off >= size || c.n > size-c.off:
		return fmt.Errorf("range [%d, +%d) does not lie in the source of %d bytes: %w", c.off, c.n, size, errno.EINVAL)
	case c.to > format.MaxFileSize || c.n > format.MaxFileSize-c.to:
		return errno.EFBIG
	}
	c.blocks = format.AlignUp(c.n, block)
	if c.n != c.blocks && (c.off+c.n != size || c.to+c.n < c.dst.Size(t)) {
		return fmt.Errorf("length %d ends in the middle of a block, which only the end of both files may: %w", c.n, errno.EINVAL)
	}
	if c.src == c.dst && c.to+c.blocks > c.off && c.to < c.off+c.blocks {
		return fmt.Errorf("ranges [%d, +%d) and [%d, +%d) of one file overlap: %w", c.off, c.n, c.to, c.n, errno.EINVAL)
	}
	return nil
}

// run models btrfs_clone_files() and btrfs_clone().
func (c *clone) run(t *sched.Task) error {
	// Writers that count in i_dio_count hold no i_rwsem.
	c.src.DIOWait(t)
	c.dst.DIOWait(t)
	wb := c.env.Writeback
	// All of the source: a write in place may have no data space, and once any part of its extent
	// is shared it would need some. Models filemap_flush() in btrfs_remap_file_range_prep()
	// (a94d1d0cb3bf).
	if err := wb.WritePages(t, c.src, 0, pagecache.MaxFileEnd, true); err != nil {
		return err
	}
	if err := wb.WaitOrderedRange(t, c.src, c.off, c.off+c.blocks); err != nil {
		return err
	}
	if err := wb.WaitOrderedRange(t, c.dst, c.to, c.to+c.blocks); err != nil {
		return err
	}
	if err := c.env.RemovePrivs(t, c.dst, false); err != nil {
		return err
	}
	c.dst.Touch(t, c.env.Now())
	if size := c.dst.Size(t); c.to > size {
		if err := zero.Expand(t, c.env.Read, c.dst, size, c.to); err != nil {
			return err
		}
	}
	for pos := c.off; pos < c.off+c.blocks; {
		next, err := c.piece(t, pos)
		if err != nil {
			return err
		}
		pos = next
	}
	return nil
}

// piece clones the file extent of the source at pos, or the hole, and says where the next one
// begins.
func (c *clone) piece(t *sched.Task, pos uint64) (next uint64, err error) {
	end := c.off + c.blocks
	start, fe, ok, err := c.env.Store.LookupFileExtent(t, c.src.Root, c.src.Ino, pos)
	switch {
	case err != nil:
		return pos, err
	case !ok:
		return c.share(t, pos, min(start, end), nil)
	case fe.Type == format.FileExtentTypeInline:
		return min(pos+block, end), c.inline(t, pos, &fe)
	case fe.DiskBytenr == 0:
		return c.share(t, pos, min(start+fe.NumBytes, end), nil)
	}
	fe.Offset += pos - start
	fe.NumBytes = min(start+fe.NumBytes, end) - pos
	return c.share(t, pos, pos+fe.NumBytes, &fe)
}

// share clones [pos, end) of the source, which is in fe, or a hole when fe is nil.
func (c *clone) share(t *sched.Task, pos, end uint64, fe *format.FileExtent) (uint64, error) {
	for lo := pos; lo < end; {
		next, err := c.shareSome(t, lo, pos, end, fe)
		if err != nil {
			return lo, err
		}
		lo = next
	}
	return end, nil
}

// shareSome empties the front of the destination's part of [lo, end) in one transaction, and when
// that is all, gives it fe, which begins at pos. It says where to go on.
func (c *clone) shareSome(t *sched.Task, lo, pos, end uint64, fe *format.FileExtent) (next uint64, err error) {
	src, dst := c.src, c.dst
	space := c.env.Trans.Space.Metadata()
	meta := c.env.Trans.Space.CalcInsert(unitsShare)
	if err := space.Reserve(t, meta, spaceinfo.FlushAll); err != nil {
		return lo, err
	}
	shift := c.to - c.off // may be below zero: offsets wrap
	if err := c.lockRanges(t, lo+shift, end+shift, pos, end); err != nil {
		space.Release(t, meta)
		return lo, err
	}
	defer dst.IOTree.Unlock(t, lo+shift, end+shift)
	defer src.IOTree.Unlock(t, pos, end)
	h, err := c.env.Trans.JoinReserved(t, meta)
	if err != nil {
		return lo, err
	}
	r, err := c.env.Store.DropExtents(t, h.Trans(), dst.Root, dst.Ino, lo+shift, end+shift, fstree.DropOptions{MaxItems: itemsPerTransaction})
	delta := -int64(r.BytesFound)
	if err == nil && lo > pos && fe != nil && c.env.Store.Holes {
		// what was emptied before became a hole
		_, err = c.env.Store.DropExtents(t, h.Trans(), dst.Root, dst.Ino, pos+shift, lo+shift, fstree.DropOptions{})
	}
	if err == nil && fe != nil && r.NextStart == end+shift {
		err = c.env.Store.ShareFileExtent(t, h.Trans(), dst.Root, dst.Ino, pos+shift, fe)
		src.Extents.Drop(t, pos, end)
		delta += int64(fe.NumBytes)
		dst.Cover(t, pos+shift, end+shift)
	}
	if err == nil && c.env.Store.Holes && (fe == nil || r.NextStart < end+shift) {
		err = c.env.Store.FillHole(t, h.Trans(), dst.Root, dst.Ino, lo+shift, r.NextStart)
		dst.Cover(t, lo+shift, r.NextStart)
	}
	// After the last change: a reader before the range, which locks its own block, may have found
	// the hole in between and remembers all of it.
	dst.ExtentsChanged(t, h.Transid(), lo+shift, end+shift)
	if err != nil {
		h.Abort(t, err)
		return lo, errors.Join(err, h.End(t))
	}
	dst.AddBytes(t, delta)
	if r.NextStart == end+shift {
		c.grow(t, min(end+shift, c.to+c.n))
	}
	dst.LastTransid.Store(h.Transid())
	// the checksums of its extents may be in the log already, or come twice at once
	dst.BarLog(h.Transid())
	dst.MarkDirty(t)
	return r.NextStart - shift, h.End(t)
}

// grow makes i_size at least size. Models clone_finish_inode_update().
func (c *clone) grow(t *sched.Task, size uint64) {
	if size > c.dst.Size(t) {
		c.dst.SetSize(t, size)
		c.dst.SetDiskSize(t, size)
	}
}

// lockRanges locks [lo, hi) of the destination, with no page in it, and [from, end) of the source,
// both with nothing ordered. Two ranges of two files have no order, so the second one is only
// tried. Models btrfs_double_extent_lock().
func (c *clone) lockRanges(t *sched.Task, lo, hi, from, end uint64) error {
	for {
		c.dst.Pages.Truncate(t, lo, hi)
		c.dst.LockAndFlushOrdered(t, lo, hi)
		_, page := c.dst.Pages.NextPage(lo>>pagecache.PageShift, hi>>pagecache.PageShift)
		if !page && c.src.TryLockUnlessOrdered(t, from, end) {
			return nil
		}
		c.dst.IOTree.Unlock(t, lo, hi)
		if !page {
			c.src.LockAndFlushOrdered(t, from, end)
			c.src.IOTree.Unlock(t, from, end)
			continue
		}
		if err := c.env.Writeback.WaitOrderedRange(t, c.dst, lo, hi); err != nil {
			return err
		}
	}
}

// inline copies the inline extent fe, which is the block of the source at pos. Models
// clone_copy_inline_extent().
func (c *clone) inline(t *sched.Task, pos uint64, fe *format.FileExtent) error {
	to := c.to + pos - c.off
	if to == 0 && c.dst.Size(t) <= fe.RAMBytes {
		return c.inlineItem(t, fe)
	}
	data, err := fileread.InlineData(c.src, fe)
	if err != nil {
		return err
	}
	return c.inlineToPage(t, to, data)
}

// inlineItem gives the destination, which has no more bytes than it, the inline extent fe.
func (c *clone) inlineItem(t *sched.Task, fe *format.FileExtent) error {
	dst := c.dst
	meta := c.env.Trans.Space.CalcInsert(unitsShare)
	if err := c.env.Trans.Space.Metadata().Reserve(t, meta, spaceinfo.FlushAll); err != nil {
		return err
	}
	if err := c.lockRanges(t, 0, block, c.off, c.off+block); err != nil {
		c.env.Trans.Space.Metadata().Release(t, meta)
		return err
	}
	defer dst.IOTree.Unlock(t, 0, block)
	defer c.src.IOTree.Unlock(t, c.off, c.off+block)
	h, err := c.env.Trans.JoinReserved(t, meta)
	if err != nil {
		return err
	}
	r, err := c.env.Store.DropExtents(t, h.Trans(), dst.Root, dst.Ino, 0, block, fstree.DropOptions{})
	if err == nil {
		err = c.env.Store.InsertFileExtent(t, h.Trans(), dst.Root, dst.Ino, 0, fe)
		dst.Cover(t, 0, block)
	}
	dst.ExtentsChanged(t, h.Transid(), 0, block)
	if err != nil {
		h.Abort(t, err)
		return errors.Join(err, h.End(t))
	}
	dst.AddBytes(t, int64(fe.RAMBytes)-int64(r.BytesFound))
	c.grow(t, min(c.n, fe.RAMBytes))
	dst.LastTransid.Store(h.Transid())
	// the checksums of its extents may be in the log already, or come twice at once
	dst.BarLog(h.Transid())
	dst.MarkDirty(t)
	return h.End(t)
}

// inlineToPage makes data, with zeroes up to the end of the block, the destination's block at to.
// Models copy_inline_to_page().
func (c *clone) inlineToPage(t *sched.Task, to uint64, data []byte) error {
	ip := c.dst
	var r delalloc.Reservation
	if err := r.ReserveData(t, ip, to, to+block, spaceinfo.FlushData); err != nil {
		return err
	}
	if err := r.ReserveMetadata(t, ip, spaceinfo.FlushAll); err != nil {
		r.Release(t, ip)
		return err
	}
	for {
		p := ip.Pages.Grab(t, to>>pagecache.PageShift)
		p.WaitWriteback(t)
		if oe := ip.LockUnlessOrdered(t, to, to+block); oe != nil {
			p.UnlockPut(t)
			oe.WaitPut(t)
			continue
		}
		b := p.Edit(t)
		clear(b[copy(b, data):])
		p.SetUptodate()
		r.SetDelalloc(t, ip, true)
		ip.Pages.SetDirty(t, p)
		if end := min(to+block, c.to+c.n); end > ip.Size(t) {
			// before the page can be written back: writeback drops what lies beyond it
			ip.SetSize(t, end)
		}
		r.Finish(t, ip, true)
		p.UnlockPut(t)
		return nil
	}
}

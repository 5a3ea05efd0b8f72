package direct

import (
	"errors"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/place"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// Direct writes of sectors that are not whole blocks, which btrfs sends through the page cache and
// ext4 and XFS do not.
//
// A block that has been written takes the sectors as they are. One that is allocated and not
// written (prealloc) gets zeros around them, as bios of their own, and is marked written when all
// have ended. Two such writes of one block at a time zero each other's sectors; so they take
// i_rwsem alone and wait for those in flight. What differs is how a write finds out which kind it
// is:
//
//	UNALIGNED_EXCLUSIVE     it does not: always alone (ext4 until 6.4)
//	UNALIGNED_CHECK_FIRST   it looks the block up under the shared lock, and starts again with the exclusive one (ext4 since 6.5)
//	UNALIGNED_ZEROING       it looks up the blocks at its ends, which it writes in part (ext4 since 7.3)
//	UNALIGNED_RETRY         it begins, and is sent back where it maps the block (XFS, IOMAP_DIO_OVERWRITE_ONLY)
//
// A write under the shared lock may be queued: unlockFile comes while the device is busy, as for
// whole blocks. No ordered extent guards it, because two such writes of one block would be in each
// other's way. What keeps others away until its end:
//
//	i_dio_count      truncate, punch, fallocate, clone and, with Plan.DrainDirect, writes through the page cache wait for zero, with i_rwsem:
//	                 a page that was read before the end has the old sectors, and would be written back over the new ones
//	SnapshotLock     a snapshot waits: it would share the block
//
// A direct write of whole blocks may overtake it in place. If it needs a new extent it goes through
// the page cache, so that the old one is not freed with sectors on their way to it.
//
// Model: labs/reference 7.1; fs/ext4/file.c:ext4_dio_write_checks(),
// fs/xfs/xfs_file.c:xfs_file_dio_write_unaligned(). Differences: ext4 and XFS let a write through
// the page cache meet one in flight; the look that decides locks the range of the blocks; holes,
// shared extents and writes beyond EOF go through the page cache; the ordered extent that marks a
// block written is made after the bios; a NOWAIT write goes through the page cache.

// sector is the unit of a device, in bytes.
const sector = 512

// subBlock reports whether the write is of whole sectors, not of whole blocks, and of a file that
// takes them in place.
func (w *write) subBlock() bool {
	return misaligned(w.pos, len(w.src)) && (w.pos|uint64(len(w.src)))&(sector-1) == 0 && !w.ip.Sums() && w.ip.Nocow() && w.faults == nil && !w.nowait
}

// unaligned is transfer for sectors.
func (w *write) unaligned(t *sched.Task) error {
	if w.env.Lab.Sectors != nil {
		return w.byLab(t)
	}
	err := w.sectors(t)
	if !errors.Is(err, errno.EAGAIN) {
		return err
	}
	// Once more with the exclusive lock: what was found out under the shared one is not so any
	// more.
	w.io = nil
	w.unlockFile(t)
	w.ip.Lock(t)
	w.planLocked(t)
	if err := w.checkWrite(t); err != nil {
		return err
	}
	return w.sectors(t)
}

// sectors writes the request, which lies inside EOF. EAGAIN says that it needs the exclusive lock,
// EIOCBQUEUED that the device has it.
func (w *write) sectors(t *sched.Task) error {
	from, to := w.blocks()
	alone := w.pl.Lock == policy.LockInode
	if alone && w.pl.Drain {
		w.drain(t)
	}
	defer w.rsv.Release(t, w.ip)
	if w.pl.Unaligned == policy.UnalignedParts && !alone && w.pl.CheckUnwritten {
		return w.parts(t)
	}
	if err := w.ready(t, alone || !w.pl.CheckUnwritten); err != nil {
		return err
	}
	if w.pl.Unaligned == policy.UnalignedChecked && !alone {
		// Without the lock of the range, which ext4 has none of: submit looks again.
		x, ok, err := w.env.Read.Place.Guess(t, w.ip, from, to)
		if err = w.allows(x, ok, err); err != nil {
			return err
		}
	}
	x, err := w.submit(t)
	return w.end(t, x, err)
}

// parts is sectors under the shared lock with UNALIGNED_ZEROING: the blocks at the ends of the
// request, which it writes in part, must be written; what lies between them is a direct write of
// whole blocks, whatever it is now. EAGAIN, before anything has begun, says that a part of a block
// would have to be zeroed.
//
// Models ext4_dio_write_checks() and iomap_dio_rw() of 7.3.
func (w *write) parts(t *sched.Task) error {
	if err := w.ready(t, false); err != nil {
		return err
	}
	if _, _, err := w.ends(t, w.env.Read.Place.Guess); err != nil {
		return err
	}
	from, to := w.blocks()
	if err := w.clean(t, from, to); err != nil {
		return err
	}
	w.beginIO(t)
	w.ip.IOTree.Lock(t, from, to)
	head, tail, err := w.ends(t, w.env.Read.Place.Overwrite)
	w.ip.IOTree.Unlock(t, from, to)
	if err == nil {
		w.io.sectors = true
		w.rsv.HandSnapshot(t, w.ip)
		err = w.submitParts(t, head, tail)
	}
	return w.endIO(t, from, to, err)
}

// submitParts starts the bios of parts: of the sectors in the first block, which is in head, of the
// whole blocks, extent by extent, and of the sectors in the last one, which is in tail.
func (w *write) submitParts(t *sched.Task, head, tail place.Extent) error {
	sectors := func(x *place.Extent, n uint64) {
		w.io.submitSectors(t, w.pos, int64(x.DiskBytenr)+int64(w.pos-x.Start), w.src[w.done:w.done+int(n)])
		w.pos, w.done = w.pos+n, w.done+int(n)
	}
	from, _ := w.blocks()
	end := w.pos + uint64(len(w.src))
	if w.pos > from {
		sectors(&head, min(end, from+format.SectorSize)-w.pos)
	}
	if whole := format.AlignDown(end, format.SectorSize); w.pos < whole {
		all := w.src
		w.src = all[:len(all)-int(end-whole)]
		var err error
		for err == nil && w.done < len(w.src) {
			err = w.extent(t)
		}
		if w.src = all; err != nil {
			return err
		}
	}
	if w.pos < end {
		sectors(&tail, end-w.pos)
	}
	return nil
}

// ends looks up the first block of the write and the last, if it writes them in part; what it
// writes whole is not asked. EAGAIN says that one is not written, or may not be overwritten. Models
// ext4_dio_needs_zeroing().
func (w *write) ends(t *sched.Task, look func(*sched.Task, *inode.Inode, uint64, uint64) (place.Extent, bool, error)) (head, tail place.Extent, err error) {
	from, to := w.blocks()
	ask := func(start uint64) (x place.Extent, err error) {
		x, ok, err := look(t, w.ip, start, to)
		if err == nil && (!ok || x.Type == ordered.Prealloc) {
			err = errno.EAGAIN
		}
		return x, err
	}
	if w.pos > from {
		if head, err = ask(from); err != nil || head.Start+head.Len == to {
			return head, head, err
		}
	}
	if w.pos+uint64(len(w.src)) < to {
		tail, err = ask(to - format.SectorSize)
	}
	return head, tail, err
}

// blocks are the bytes of the blocks that the write touches.
func (w *write) blocks() (from, to uint64) {
	return format.AlignDown(w.pos, format.SectorSize), format.AlignUp(w.pos+uint64(len(w.src)), format.SectorSize)
}

// drain waits for the direct writes in flight, and until those of the blocks have marked them
// written. i_rwsem is held exclusive.
func (w *write) drain(t *sched.Task) {
	from, to := w.blocks()
	w.ip.DIOWait(t)
	_ = w.ip.Ordered.WaitRange(t, from, to) // an error is fsync's
}

// ready keeps snapshots out and, with marks set, promises the metadata of a block that will be
// marked written.
func (w *write) ready(t *sched.Task, marks bool) error {
	if !w.rsv.NoSnapshot(t, w.ip) {
		return errno.ENOTBLK
	}
	if !marks {
		return nil
	}
	from, to := w.blocks()
	w.rsv.Nocow(from, to)
	return w.rsv.ReserveMetadata(t, w.ip, spaceinfo.FlushAll)
}

// submit takes the pages of the blocks out of memory, looks the blocks up and starts the bios. What
// it returns is for end.
func (w *write) submit(t *sched.Task) (x place.Extent, err error) {
	from, to := w.blocks()
	start, end := w.pos, w.pos+uint64(len(w.src))
	if err := w.clean(t, from, to); err != nil {
		return x, err
	}
	w.beginIO(t)
	x, err = w.block(t, from, to)
	if err == nil {
		if x.Type != ordered.Prealloc {
			w.io.sectors = true
			w.rsv.HandSnapshot(t, w.ip)
		}
		at := int64(x.DiskBytenr) + int64(start-from)
		if x.Type == ordered.Prealloc && start > from {
			w.io.submitSectors(t, from, int64(x.DiskBytenr), make([]byte, start-from))
		}
		w.io.submitSectors(t, start, at, w.src)
		if x.Type == ordered.Prealloc && end < to {
			w.io.submitSectors(t, end, at+int64(len(w.src)), make([]byte, to-end))
		}
	}
	return x, err
}

// clean takes the pages of the blocks [from, to) out of memory.
func (w *write) clean(t *sched.Task, from, to uint64) error {
	if err := flushCached(t, w.env, w.ip, from, to); err != nil {
		return err
	}
	if !w.ip.Pages.Invalidate(t, from>>pagecache.PageShift, to>>pagecache.PageShift) {
		return errno.ENOTBLK
	}
	return nil
}

// end waits for the bios that submit started, unless the caller is told of their end, and marks the
// blocks written.
func (w *write) end(t *sched.Task, x place.Extent, err error) error {
	if w.io == nil {
		return err
	}
	from, to := w.blocks()
	n := 0
	if err == nil {
		n = len(w.src)
	}
	if w.done, err = w.io.submitted(t, from, to, n, err); err != nil {
		return err
	}
	w.pos += uint64(n)
	if x.Type == ordered.Prealloc {
		w.markWritten(t, from, to)
		if !w.pl.Wrong(policy.WrongUnalignedPagesFirst) {
			// A reader that came before took the blocks for zeros. Models the order of
			// iomap_dio_complete(): end_io, then the pages.
			w.ip.Pages.Invalidate(t, from>>pagecache.PageShift, to>>pagecache.PageShift)
		}
	}
	return w.syncHeld(t)
}

// block looks up where the blocks [from, to) are, which must be in one extent that may be
// overwritten. EAGAIN says that the exclusive lock is needed, ENOTBLK that the page cache is.
// Models ext4_overwrite_io().
//
// A write that is alone zeroes what is not written, so it waits for writeback that has yet to mark
// it: flushCached waited for the pages only. Difference: in ext4 and XFS the writeback of a page
// ends after its block is marked, and filemap_write_and_wait_range() is enough.
func (w *write) block(t *sched.Task, from, to uint64) (place.Extent, error) {
	if w.pl.Lock == policy.LockInode {
		w.ip.LockAndFlushOrdered(t, from, to)
	} else {
		w.ip.IOTree.Lock(t, from, to)
	}
	x, ok, err := w.env.Read.Place.Overwrite(t, w.ip, from, to)
	w.ip.IOTree.Unlock(t, from, to)
	return x, w.allows(x, ok, err)
}

// allows says what the answer (x, ok, err) to a look at the blocks means for the write: the errors
// of block.
func (w *write) allows(x place.Extent, ok bool, err error) error {
	from, to := w.blocks()
	alone := w.pl.Lock == policy.LockInode
	switch {
	case err != nil:
		return err
	case !ok || x.Len < to-from:
		if alone {
			return errno.ENOTBLK
		}
		return errno.EAGAIN
	case x.Type == ordered.Prealloc && !alone && w.pl.CheckUnwritten:
		return errno.EAGAIN
	}
	return nil
}

// markWritten marks blocks written whose sectors, and the zeros around them, are on the device,
// unless another write has. Models ext4_convert_unwritten_extents().
func (w *write) markWritten(t *sched.Task, from, to uint64) {
	lockRange(t, w.ip, &w.pl, from, to)
	x, ok, err := w.env.Read.Place.Overwrite(t, w.ip, from, to)
	if err != nil || !ok || x.Type != ordered.Prealloc {
		w.unlockExtent(t, from, to)
		return
	}
	oe := w.ip.AddOrdered(t, ordered.Prealloc, from, to-from, x.DiskBytenr)
	w.rsv.Ordered(t, w.ip, to-from, ordered.Prealloc)
	w.unlockExtent(t, from, to)
	t.Discharge(oe)
	if oe.Done(t, to-from, nil) {
		w.env.Finish.Complete(t, oe)
	}
	_ = w.ip.Ordered.WaitRange(t, from, to)
}

// submitSectors starts the write of data to the address at. No ordered extent knows of it.
func (rq *request) submitSectors(t *sched.Task, off uint64, at int64, data []byte) {
	b := rq.bio()
	b.oe, b.off, b.n, b.vecs = nil, off, uint64(len(data)), append(b.vecs[:0], data)
	b.start(t, blockdev.OpWrite, at, endWrite)
}

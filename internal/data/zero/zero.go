// Package zero makes parts of files read as zero through the page cache: the rest of a block after
// a new end of file, the edges of a hole, and what lies between an old end of file and a write
// beyond it.
//
// Model: fs/btrfs/inode.c:btrfs_truncate_block() and btrfs_cont_expand(), labs/reference 2.4 and
// 2.5.
//
// Lock order:
//
//	i_rwsem                  the caller's
//	  space_ticket           as a buffered write of one block
//	    ordered_extent       wait, with no page and no range locked
//	      page
//	        extent
package zero

import (
	"btrlab/internal/data/delalloc"
	"btrlab/internal/data/fileread"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

const block = format.SectorSize

// Side says which part of the block a position belongs to.
type Side uint8

// The sides.
const (
	After  Side = iota // zero from the position to the end of its block
	Before             // zero from the start of the block to the position
)

// Block zeroes the part of the block of pos that lies on one side of it, in the page cache, and
// makes the block dirty; nothing when pos is aligned. Errors: ENOSPC, EIO.
//
// Models btrfs_truncate_block().
func Block(t *sched.Task, rd *fileread.Reader, ip *inode.Inode, pos uint64, side Side) error {
	start := format.AlignDown(pos, block)
	switch {
	case start == pos:
		return nil
	case side == Before:
		return Range(t, rd, ip, start, pos)
	}
	return Range(t, rd, ip, pos, start+block)
}

// Range zeroes [from, to), which lies in one block. Models btrfs_truncate_block() with a length.
func Range(t *sched.Task, rd *fileread.Reader, ip *inode.Inode, from, to uint64) error {
	var r delalloc.Reservation
	if err := reserve(t, rd, ip, &r, from, to); err != nil {
		return err
	}
	start := format.AlignDown(from, block)
	for {
		done, err := zeroOnce(t, rd, ip, &r, start, from, to)
		if err != nil {
			r.Release(t, ip)
			return err
		}
		if done {
			return nil
		}
	}
}

// reserve promises the space before any page is locked: a flush could need that page.
func reserve(t *sched.Task, rd *fileread.Reader, ip *inode.Inode, r *delalloc.Reservation, from, to uint64) error {
	err := r.ReserveData(t, ip, from, to, spaceinfo.FlushData)
	if err != nil {
		if !ip.MayNocow() || !r.NoSnapshot(t, ip) {
			return err
		}
		end, nerr := rd.Place.CanNocow(t, ip, format.AlignDown(from, block), format.AlignUp(to, block), false)
		if nerr == nil && end < to {
			nerr = err
		}
		if nerr != nil {
			r.Release(t, ip)
			return nerr
		}
		r.Nocow(from, to)
	}
	if err := r.ReserveMetadata(t, ip, spaceinfo.FlushAll); err != nil {
		r.Release(t, ip)
		return err
	}
	return nil
}

func zeroOnce(t *sched.Task, rd *fileread.Reader, ip *inode.Inode, r *delalloc.Reservation, start, from, to uint64) (done bool, err error) {
	p := ip.Pages.Grab(t, start>>pagecache.PageShift)
	if !p.Uptodate() {
		busy, err := rd.FillPage(t, ip, p)
		if busy != nil || err != nil {
			p.UnlockPut(t)
		}
		if err != nil {
			return false, err
		}
		if busy != nil {
			busy.WaitPut(t)
			return false, nil
		}
	}
	p.WaitWriteback(t)
	if oe := ip.LockUnlessOrdered(t, start, start+block); oe != nil {
		p.UnlockPut(t)
		oe.WaitPut(t)
		return false, nil
	}
	clear(p.Edit(t)[from-start : to-start])
	r.SetDelalloc(t, ip, true)
	ip.Pages.SetDirty(t, p)
	r.Finish(t, ip, true)
	p.UnlockPut(t)
	return true, nil
}

// TryExpand is Expand that does not sleep: EAGAIN where it would, with nothing done.
//
// Preconditions: as Expand.
func TryExpand(t *sched.Task, ip *inode.Inode, oldSize, newSize uint64) error {
	ip.AssertLocked(t)
	if oldSize%block != 0 || ip.FS.Holes != nil {
		return kiocb.AgainExpand
	}
	end := format.AlignUp(newSize, block)
	if !ip.TryLockUnlessOrdered(t, oldSize, end) {
		return kiocb.AgainGrow
	}
	ip.Extents.Drop(t, oldSize, end)
	ip.IOTree.Unlock(t, oldSize, end)
	return nil
}

// Expand makes [oldSize, newSize) of a file read as zero before i_size grows over it: the rest of
// the last block in the page cache, and no extent map that says otherwise beyond. Models
// btrfs_cont_expand().
//
// Preconditions:
//   - ip is locked for writing; oldSize is i_size; no page lies beyond it.
func Expand(t *sched.Task, rd *fileread.Reader, ip *inode.Inode, oldSize, newSize uint64) error {
	ip.AssertLocked(t)
	if err := Block(t, rd, ip, oldSize, After); err != nil {
		return err
	}
	holeStart, end := format.AlignUp(oldSize, block), format.AlignUp(newSize, block)
	if newSize <= holeStart {
		return nil
	}
	if ip.FS.Holes != nil {
		return ip.FS.Holes(t, ip, holeStart, end)
	}
	ip.LockAndFlushOrdered(t, holeStart, end)
	ip.Extents.Drop(t, holeStart, end)
	ip.IOTree.Unlock(t, holeStart, end)
	return nil
}

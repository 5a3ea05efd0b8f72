// Package setsize changes the size of a file: truncate and ftruncate.
//
// The normal case of a shrink:
//
//	Truncate -> i_rwsem, and with range locks [new size, end)
//	         -> SetSize -> in the order of the plan:
//	                         truncateSetsize   i_size, then the pages beyond it
//	                         dioWait           i_dio_count is zero; before i_size, unlocked direct reads are held
//	                         waitOrdered       ordered extents beyond i_size have finished
//	                         truncateItems     file extents, nbytes, size on disk
//
// The order of the first two is what the thread of seed 002 is about: a writer that counts in
// i_dio_count and holds no i_rwsem must be waited for before i_size changes, or it puts i_size back
// (labs/reference 1.3 and 1.4). Then a direct read that holds none either must not begin in
// between: nobody would wait for it, and its blocks would be freed under it (Plan.HoldReads).
//
// Model: fs/btrfs/inode.c:btrfs_setsize() and btrfs_truncate(); labs/reference 2.1, 2.2 and 2.4.
// Differences: no orphan item; the extent lock is taken before the transaction is joined, as
// completions do it, where the kernel takes it inside; direct reads are held only where the wait
// comes before i_size; until 5.10 the kernel held them also during a wait after it, so that it
// ended.
//
// Lock order:
//
//	i_rwsem
//	  range_lock
//	    dio_wait
//	    ordered_extent, space_ticket
//	      page                     truncateSetsize
//	      extent                   dropItems
//	        transaction
package setsize

import (
	"errors"

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

// itemsPerTransaction bounds the file extents that one transaction drops, so that others can commit
// in between.
const itemsPerTransaction = 4096

// unitsTruncate is the reservation of one such transaction, in inserted items: the item that is
// cut, the inode.
const unitsTruncate = 2

// Truncate sets the size of the file by the policy in force.
// Models do_truncate() down to btrfs_setattr().
func Truncate(t *sched.Task, env *iopath.Env, ip *inode.Inode, newSize uint64) error {
	if newSize > format.MaxFileSize {
		return errno.EFBIG
	}
	if lab := iopath.LabOf(ip); lab != nil {
		return byLab(t, env, ip, newSize, lab)
	}
	ip.Lock(t)
	plan := policy.ForSetsize(policy.Facts{ISize: ip.Size(t), NewSize: newSize}, env.Policy())
	var held iopath.Held
	held.Alone(t, ip, &plan.Guard)
	defer held.Unlock(t, ip, plan.Lock)
	if err := env.RemovePrivs(t, ip, false); err != nil {
		return err
	}
	ip.Touch(t, env.Now())
	return SetSize(t, env, ip, newSize, plan)
}

// SetSize changes i_size and drops what lies beyond it. To the size that the file has it takes the
// steps of a shrink, so that preallocated extents beyond it go and the size on disk follows.
//
// Models btrfs_setsize(). The order of the steps comes from plan.Steps.
//
// Preconditions:
//   - ip is locked for writing, and the range when the plan says so.
//   - newSize <= format.MaxFileSize.
func SetSize(t *sched.Task, env *iopath.Env, ip *inode.Inode, newSize uint64, plan policy.SetsizePlan) error {
	ip.AssertLocked(t)
	if old := ip.Size(t); newSize > old {
		return grow(t, env, ip, old, newSize, plan)
	}
	for _, step := range plan.Steps {
		if err := takeStep(t, env, ip, newSize, step, plan); err != nil {
			// What is left of the file is what the tree says. Models the end of btrfs_setsize().
			_ = ip.Ordered.WaitRange(t, 0, pagecache.MaxFileEnd)
			ip.SetSize(t, ip.DiskSize(t))
			holdReads(t, ip, plan, false)
			return err
		}
	}
	return nil
}

func takeStep(t *sched.Task, env *iopath.Env, ip *inode.Inode, newSize uint64, step policy.SetsizeStep, plan policy.SetsizePlan) error {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "plan_step", What: "setsize " + step.String()})
	}
	switch step {
	case policy.TruncateSetsize:
		truncateSetsize(t, ip, newSize, plan.StableWait)
		holdReads(t, ip, plan, false)
	case policy.DIOWait:
		holdReads(t, ip, plan, true)
		dioWait(t, ip)
	case policy.SetISize:
		setISize(t, ip, newSize)
		holdReads(t, ip, plan, false)
	case policy.TruncatePages:
		truncatePages(t, ip, newSize, plan.StableWait)
	case policy.WaitOrdered:
		return waitOrdered(t, env, ip)
	case policy.TruncateItems:
		return truncateItems(t, env, ip, plan.Same)
	}
	return nil
}

// grow models the first half of btrfs_setsize().
func grow(t *sched.Task, env *iopath.Env, ip *inode.Inode, old, newSize uint64, plan policy.SetsizePlan) error {
	if plan.DrainDirect {
		dioWait(t, ip) // zeros go into the block of the old end
	}
	if err := zero.Expand(t, env.Read, ip, old, newSize); err != nil {
		return err
	}
	return setDiskSize(t, env, ip, newSize, !plan.Wrong(policy.WrongDiskISizeUnlocked))
}

// setDiskSize makes newSize i_size and the size on disk, in a transaction.
func setDiskSize(t *sched.Task, env *iopath.Env, ip *inode.Inode, newSize uint64, locking bool) error {
	h, err := env.Trans.StartIn(t, ip.Root, 1)
	if err != nil {
		return err
	}
	ip.SetSize(t, newSize)
	ip.SetDiskSizeLocking(t, newSize, locking)
	ip.MarkDirty(t)
	return h.End(t)
}

// truncateSetsize makes the new size visible and then drops the pages beyond it: a task that finds
// a page locked and inside i_size can rely on both. Models mm/truncate.c:truncate_setsize().
func truncateSetsize(t *sched.Task, ip *inode.Inode, newSize uint64, stable bool) {
	ip.SetSize(t, newSize)
	truncatePages(t, ip, newSize, stable)
}

// setISize and truncatePages are the halves of truncateSetsize, for orders that have something
// between them. Timelines name the steps of lab 4 by them.
func setISize(t *sched.Task, ip *inode.Inode, newSize uint64) { ip.SetSize(t, newSize) }

// truncatePages drops the idle pages, zeroes the rest of the page of newSize, and drops those that
// it must wait for. Models truncate_inode_pages_range().
func truncatePages(t *sched.Task, ip *inode.Inode, newSize uint64, stable bool) {
	from := format.AlignUp(newSize, pagecache.PageSize)
	ip.Pages.TruncateIdle(t, from, pagecache.MaxFileEnd)
	zeroTail(t, ip, newSize, stable)
	ip.Pages.TruncateBusy(t, from, pagecache.MaxFileEnd)
}

// zeroTail zeroes the rest of the page of newSize, if it is in memory; stable says whether it waits
// until the device does not read the page. Models the partial page of truncate_inode_pages_range(),
// which always waits.
func zeroTail(t *sched.Task, ip *inode.Inode, newSize uint64, stable bool) {
	in := newSize % pagecache.PageSize
	if in == 0 {
		return
	}
	p := ip.Pages.Lock(t, newSize>>pagecache.PageShift)
	if p == nil {
		return
	}
	if stable {
		p.WaitWriteback(t)
	}
	if p.Uptodate() {
		clear(p.Edit(t)[in:])
	}
	if stable {
		ip.Pages.ReleasePart(t, p)
	}
	p.UnlockPut(t)
}

func holdReads(t *sched.Task, ip *inode.Inode, plan policy.SetsizePlan, yes bool) {
	if plan.HoldReads {
		ip.HoldReads(t, yes)
	}
}

// dioWait waits until no direct and no unlocked buffered I/O is in flight; i_rwsem keeps new ones
// out. Models inode_dio_wait().
func dioWait(t *sched.Task, ip *inode.Inode) { ip.DIOWait(t) }

// waitOrdered waits until what was being written beyond i_size has its file extents, so that they
// can be dropped.
func waitOrdered(t *sched.Task, env *iopath.Env, ip *inode.Inode) error {
	return env.Writeback.WaitOrderedRange(t, ip, format.AlignDown(ip.Size(t), format.SectorSize), pagecache.MaxFileEnd)
}

// truncateItems drops the file extents beyond i_size. It asks for i_size again, as the kernel does:
// a writer that has put it back makes it drop the wrong ones or none (labs/reference 1.3, step 6).
// A compressed inline extent that i_size cuts stays, and the page with what is left of it becomes
// dirty. Models btrfs_truncate() after its wait.
func truncateItems(t *sched.Task, env *iopath.Env, ip *inode.Inode, same bool) error {
	for {
		more, err := dropItems(t, env, ip, same)
		var whole *fstree.CompressedInlineError
		if errors.As(err, &whole) {
			if err = zero.Block(t, env.Read, ip, whole.NewSize, zero.After); err != nil {
				return err
			}
			return setDiskSize(t, env, ip, whole.NewSize, true)
		}
		if err != nil || !more {
			return err
		}
	}
}

// dropItems is one transaction of truncateItems: last items first, so that the size on disk is
// right after each. With a CompressedInlineError all is done but that extent and the size on disk.
// When metadata is full, it uses the global reserve, as evict_refill_and_join() does. Difference:
// btrfs_truncate() does not, and gets ENOSPC.
//
// A file that keeps its size keeps the extent map of its last block, which may be that of an
// ordered extent that nobody waited for. Difference: the kernel drops it, and a read before the
// ordered extent finishes takes the block for a hole; since 7.3 it waits.
func dropItems(t *sched.Task, env *iopath.Env, ip *inode.Inode, same bool) (more bool, err error) {
	space := env.Trans.Space
	bytes := space.CalcInsert(unitsTruncate)
	if err := space.Metadata().Reserve(t, bytes, spaceinfo.FlushAllSteal); err != nil {
		return false, err
	}
	size := ip.Size(t)
	start := format.AlignDown(size, format.SectorSize)
	ip.IOTree.Lock(t, start, pagecache.MaxFileEnd)
	defer ip.IOTree.Unlock(t, start, pagecache.MaxFileEnd)
	h, err := env.Trans.JoinReserved(t, bytes)
	if err != nil {
		return false, err
	}
	freed, left, err := env.Store.TruncateItems(t, h.Trans(), ip.Root, ip.Ino, size, itemsPerTransaction)
	var whole *fstree.CompressedInlineError
	if err != nil && !errors.As(err, &whole) {
		h.Abort(t, err)
		_ = h.End(t)
		return false, err
	}
	if same {
		start = format.AlignUp(size, format.SectorSize)
	}
	ip.ExtentsChanged(t, h.Transid(), start, pagecache.MaxFileEnd)
	ip.AddBytes(t, -int64(freed))
	if whole != nil { // so the size on disk stays
		ip.MarkDirty(t)
		if end := h.End(t); end != nil {
			return false, end
		}
		return false, err
	}
	// Not size while there is more: after a crash, extents beyond EOF would come back when the file
	// grows. But what is dropped first may be preallocated beyond the old EOF. Models last_size of
	// btrfs_truncate().
	ip.Uncover(t, format.AlignUp(left, format.SectorSize), pagecache.MaxFileEnd)
	ip.SetDiskSize(t, min(left, max(size, ip.DiskSize(t))))
	ip.MarkDirty(t)
	return left > size, h.End(t)
}

// Evict drops everything of a file that nobody can reach any more: pages, ordered extents, file
// extents. Models btrfs_evict_inode() up to the inode item. Difference: completions may still be on
// their way, and are waited for.
func Evict(t *sched.Task, env *iopath.Env, ip *inode.Inode) error {
	ip.EvictPages(t)
	_ = ip.Ordered.WaitRange(t, 0, pagecache.MaxFileEnd)
	ip.SetSizes(t, 0)
	for {
		more, err := evictItems(t, env, ip)
		if err != nil || !more {
			return err
		}
	}
}

// evictItems is one transaction of Evict: last items first. The extent range is not locked, because
// no other task has the inode.
func evictItems(t *sched.Task, env *iopath.Env, ip *inode.Inode) (more bool, err error) {
	bytes := env.Trans.Space.CalcInsert(unitsTruncate)
	if err := env.Trans.Space.Metadata().Reserve(t, bytes, spaceinfo.FlushAllSteal); err != nil {
		return false, err
	}
	h, err := env.Trans.JoinReserved(t, bytes)
	if err != nil {
		return false, err
	}
	freed, left, err := env.Store.TruncateItems(t, h.Trans(), ip.Root, ip.Ino, 0, itemsPerTransaction)
	if err != nil {
		h.Abort(t, err)
		_ = h.End(t)
		return false, err
	}
	ip.ExtentsChanged(t, h.Transid(), 0, pagecache.MaxFileEnd)
	ip.AddBytes(t, -int64(freed))
	ip.Uncover(t, 0, pagecache.MaxFileEnd)
	ip.MarkDirty(t)
	return left > 0, h.End(t)
}

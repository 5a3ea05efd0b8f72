// Package finish brings ordered extents whose data is on the device into the trees: file extent
// items, checksums, sizes. Its input is the ordered extent alone, so that writes without pages end
// here as well.
//
// The end of a write into new space, with the counter that each step moves:
//
//	Complete          queued: the last bio's end has called, and may not sleep
//	finish            on a worker
//	  LendOrdered     the metadata reserved for the extent is ours meanwhile
//	  finishItems     extent lock, transaction joined with these bytes
//	    SetFileExtent, AllocReservedFileExtent                     nbytes +len; data reserved -> used
//	    InsertCsums
//	    extent maps dropped, disk_i_size follows i_size            the inode is dirty
//	  ReturnOrdered   outstanding -1, csum_bytes -len; what was not used is released
//	  Ordered.Remove  in flight -1, waiters woken
//
// Preallocated space is marked written instead (MarkExtentWritten). An overwrite in place inserts
// nothing and joins no transaction. On an error nothing is inserted, new space is free again, and
// the error stays with the inode for fsync.
//
// A file of at most max_inline bytes has no ordered extent: Inline puts its bytes into the tree
// before writeback goes on.
//
// Lock order:
//
//	extent                   finishItems; the caller of Inline holds it
//	  transaction            Config.Join
//	    tree_fs, tree_csum   items
//	      delayed_refs
//
// Invariants:
//   - an ordered extent is finished exactly once, after all its bios;
//   - a task that waited for an ordered extent finds its items in the tree, or its error.
//
// Model: fs/btrfs/inode.c (btrfs_finish_one_ordered, cow_file_range_inline). Difference: the inode
// item is written at commit.
package finish

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/extenttree"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Items is the part of the file items that finish needs; *fstree.Store is one. A test has
// another.
type Items interface {
	SetFileExtent(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64, fe *format.FileExtent) (found uint64, err error)
	MarkExtentWritten(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, start, end uint64) error
	InsertCsums(t *sched.Task, tr *ctree.Trans, bytenr uint64, sums []byte) error
}

// Config has the parts that a Finisher works with.
type Config struct {
	FS      *inode.FS
	Items   Items
	Extents *extenttree.ExtentTree
	// Join joins the running transaction with metadata bytes that were reserved before:
	// transaction.Manager.JoinReserved.
	Join func(t *sched.Task, bytes uint64) (*transaction.Handle, error)
	// Workers is how many tasks finish ordered extents; at least 1.
	Workers int
	// Newest is workqueue.Config.Newest of their queue.
	Newest bool
}

// Finisher finishes the ordered extents of one file system.
type Finisher struct {
	cfg   Config
	fs    *inode.FS
	queue *workqueue.Queue[*ordered.Extent]

	// the first request of a stage makes its workers; protects changes of deferred
	mu       lock.Mutex
	deferred [stages]atomic.Pointer[workqueue.Queue[Deferred]]
}

var classPrepare = lockdep.NewClass("dio_workers")

// New starts the workers, which are tasks of t's runtime.
func New(t *sched.Task, cfg Config) *Finisher {
	cfg.Workers = max(cfg.Workers, 1)
	f := &Finisher{cfg: cfg, fs: cfg.FS}
	f.mu.Init(classPrepare)
	f.Restart(t)
	return f
}

// Restart starts the workers of a Finisher that has none: a new one, or one that was closed.
func (f *Finisher) Restart(t *sched.Task) {
	f.queue = workqueue.New(t, "endio", workqueue.Config{Workers: f.cfg.Workers, Batch: batch, Wake: wake, Newest: f.cfg.Newest}, f.finish)
}

// Close ends the workers. Nothing is ordered any more.
func (f *Finisher) Close(t *sched.Task) {
	f.closeDeferred(t)
	f.queue.Close(t)
}

const (
	batch = 64 // extents that a worker takes from the queue at once
	wake  = 32 // extents waiting per running worker, above which one more starts
)

// Complete queues an ordered extent whose data is on the device for a worker. It never sleeps.
func (f *Finisher) Complete(t *sched.Task, oe *ordered.Extent) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_ordered_extent_mark_finished", Start: oe.Start, Len: oe.Len, What: oe.Type.String()})
	}
	f.queue.Queue(t, &oe.Completion)
}

// finish brings an ordered extent into the trees and takes it off its inode, which wakes those who
// wait for it. On an error nothing is inserted, a new extent goes back to free space, and the error
// stays on the mapping for fsync.
//
// Models btrfs_finish_one_ordered(). Differences: an overwrite in place joins no transaction,
// because the inode item is written at commit; an aborted transaction takes the extent with it.
func (f *Finisher) finish(t *sched.Task, oe *ordered.Extent) {
	t.Spend(cost.Ordered, 1)
	ip := inode.OfOrdered(oe)
	rsv := ip.LendOrdered(t, oe)
	err := oe.Err()
	switch {
	case err == nil && oe.Type != ordered.Nocow:
		if rsv, err = f.finishItems(t, ip, oe, rsv); err != nil {
			ip.SetError(t, err)
			oe.Fail(err)
		}
	case err == nil:
		ip.FollowSize(t)
		// Also when the size is the same: the data is in the device's cache, and only a commit
		// flushes that. Without a dirty inode fsync would not see a reason for one. Models
		// btrfs_update_inode_fallback() in btrfs_finish_one_ordered().
		ip.MarkDirty(t)
	case oe.Type == ordered.Regular:
		f.cfg.Extents.FreeReservedExtent(t, oe.DiskBytenr, oe.DiskLen)
	}
	ip.ReturnOrdered(t, oe, rsv)
	ip.DropQuota(t, oe) // what no transaction has
	ip.Ordered.Remove(t, oe)
	oe.Put(t)
}

// finishItems is the tree part of finish. It owns rsv bytes of metadata and returns what it has not
// used.
func (f *Finisher) finishItems(t *sched.Task, ip *inode.Inode, oe *ordered.Extent, rsv uint64) (rest uint64, err error) {
	start, end := oe.Start, oe.End()
	// Joining may wait for a commit; the extent range ranks above it, so it is locked before (9.1,
	// level 11).
	ip.IOTree.LockBits(t, start, end, extentio.Locked|extentio.FinishingOrdered)
	h, err := f.cfg.Join(t, rsv)
	if err != nil {
		ip.IOTree.Clear(t, start, end, extentio.Locked|extentio.FinishingOrdered)
		if oe.Type == ordered.Regular {
			f.cfg.Extents.FreeReservedExtent(t, oe.DiskBytenr, oe.DiskLen)
		}
		return 0, fmt.Errorf("finish ino=%d off=%d len=%d: %w", ip.Ino, start, oe.Len, err)
	}
	ip.CommitQuota(t, oe)
	err = f.insertItems(t, ip, oe, h.Trans())
	extentsChanged(t, ip, oe, h.Trans().ID)
	if err != nil {
		err = fmt.Errorf("finish ino=%d off=%d len=%d: %w", ip.Ino, start, oe.Len, err)
		h.Abort(t, err)
	} else {
		ip.Cover(t, start, end)
		ip.FollowSize(t) // with NO_HOLES, whatever is missing in between reads as zero
		ip.LastTransid.Store(h.Trans().ID)
		ip.MarkDirty(t)
	}
	ip.IOTree.Clear(t, start, end, extentio.Locked|extentio.FinishingOrdered)
	rest = h.TakeReserve(t)
	if eerr := h.End(t); err == nil {
		err = eerr
	}
	return rest, err
}

// extentsChanged tells the inode that its extents of the range are others now, which the log of the
// transaction may know.
func extentsChanged(t *sched.Task, ip *inode.Inode, oe *ordered.Extent, transid uint64) {
	if oe.LoggedIn == transid {
		ip.Extents.Drop(t, oe.Start, oe.End())
	} else {
		ip.ExtentsChanged(t, transid, oe.Start, oe.End())
	}
}

func (f *Finisher) insertItems(t *sched.Task, ip *inode.Inode, oe *ordered.Extent, tr *ctree.Trans) error {
	it := f.cfg.Items
	if oe.Type == ordered.Prealloc {
		if err := it.MarkExtentWritten(t, tr, ip.Root, ip.Ino, oe.Start, oe.End()); err != nil {
			return err
		}
	} else {
		fe := format.FileExtent{Generation: tr.ID, RAMBytes: oe.Len, Type: format.FileExtentTypeReg, Compression: oe.Compression,
			DiskBytenr: uint64(oe.DiskBytenr), DiskNumBytes: oe.DiskLen, NumBytes: oe.Len}
		found, err := it.SetFileExtent(t, tr, ip.Root, ip.Ino, oe.Start, oe.End(), &fe)
		if err != nil {
			return err
		}
		ref := format.DataRef{Root: ip.Root.ID, Ino: ip.Ino, Offset: format.FileOff(oe.Start)}
		if err := f.cfg.Extents.AllocReservedFileExtent(t, tr, ref, oe.DiskBytenr, oe.DiskLen); err != nil {
			return err
		}
		ip.AddBytes(t, int64(oe.Len)-int64(found))
	}
	if sums := oe.Checksums(t); len(sums) > 0 {
		return it.InsertCsums(t, tr, uint64(oe.DiskBytenr), sums)
	}
	return nil
}

// Inline puts data, which is all of the file, size bytes, into the tree, compressed as kind says.
// rsv metadata bytes are its own; the extent range of the first block is locked.
func (f *Finisher) Inline(t *sched.Task, ip *inode.Inode, data []byte, size uint64, kind uint8, rsv uint64) error {
	ip.IOTree.AssertLocked(t, 0, format.SectorSize)
	quota := ip.TakeQuota(t)
	h, err := f.cfg.Join(t, rsv)
	if err != nil {
		f.fs.Quota.Free(t, ip.Root.ID, quota, qgroup.MetaPrealloc)
		return fmt.Errorf("write ino=%d inline: %w", ip.Ino, err)
	}
	f.fs.Quota.Convert(t, ip.Root.ID, quota)
	tr := h.Trans()
	fe := format.FileExtent{Generation: tr.ID, RAMBytes: size, Compression: kind, Type: format.FileExtentTypeInline, Inline: data}
	found, err := f.cfg.Items.SetFileExtent(t, tr, ip.Root, ip.Ino, 0, format.SectorSize, &fe)
	ip.ExtentsChanged(t, tr.ID, 0, format.SectorSize)
	if err != nil {
		err = fmt.Errorf("write ino=%d inline: %w", ip.Ino, err)
		h.Abort(t, err)
	} else {
		ip.AddBytes(t, int64(size)-int64(found))
		ip.Cover(t, 0, format.SectorSize)
		// not size: a truncate may have made the file longer since, beyond the zeros of this page
		ip.FollowSize(t)
		ip.LastTransid.Store(tr.ID)
		ip.MarkDirty(t)
	}
	if eerr := h.End(t); err == nil {
		err = eerr
	}
	return err
}

package writeback

import (
	"fmt"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

const (
	finishBatch = 64 // extents that a worker takes from the list at once
	finishMore  = 32 // extents waiting per running worker, above which one more starts
)

// complete queues an ordered extent whose data is on the device for a worker. It never sleeps.
// The list is first in, first out; a running worker takes several, so most calls wake nobody.
func (e *Engine) complete(t *sched.Task, oe *ordered.Extent) {
	e.mu.Lock(t)
	oe.Next = nil
	if e.tail == nil {
		e.head = oe
	} else {
		e.tail.Next = oe
	}
	e.tail = oe
	e.ndone++
	t.Delegate(oe, e.queue)
	var w *workqueue.Work
	if n := len(e.idle); n > 0 && e.ndone > (e.nwork-n)*finishMore {
		w, e.idle = e.idle[n-1], e.idle[:n-1]
	}
	e.mu.Unlock(t)
	if w != nil {
		e.queue.Queue(t, w)
	}
}

// finishSome is a worker's work: it finishes ordered extents until none is left.
func (e *Engine) finishSome(t *sched.Task, w *workqueue.Work) {
	for {
		e.mu.Lock(t)
		first := e.head
		if first == nil {
			e.idle = append(e.idle, w)
			e.mu.Unlock(t)
			return
		}
		last, n := first, 1
		for ; n < finishBatch && last.Next != nil; n++ {
			last = last.Next
		}
		e.head, last.Next = last.Next, nil
		if e.head == nil {
			e.tail = nil
		}
		e.ndone -= n
		for oe := first; oe != nil && t.Stepper() != nil; oe = oe.Next { // this worker owes them now, not all that serve the queue
			t.Discharge(oe)
			t.Owe(oe)
		}
		e.mu.Unlock(t)
		for oe := first; oe != nil; {
			next := oe.Next
			e.finish(t, oe)
			oe = next
		}
	}
}

// finish brings an ordered extent into the trees and takes it off its inode, which wakes those who wait for it. On an error
// nothing is inserted, a new extent goes back to free space, and the error stays on the mapping for fsync.
//
// Models btrfs_finish_one_ordered(). Differences: an overwrite in place joins no transaction, because the inode item
// is written at commit; an aborted transaction takes the extent with it.
func (e *Engine) finish(t *sched.Task, oe *ordered.Extent) {
	t.Spend(cost.Ordered, 1)
	ip := oe.Owner.(*inode.Inode)
	sums := uint64(0)
	if ip.Sums() {
		sums = oe.Len
	}
	rsv := ip.TakeOrdered(t, oe.Type == ordered.Nocow, sums)
	err := oe.Err()
	if err == nil && oe.Type != ordered.Nocow {
		err = e.finishItems(t, ip, oe, rsv)
		rsv = 0
		if err != nil {
			ip.Pages.SetError(t, err)
			oe.Fail(err)
		}
	} else if err != nil && oe.Type == ordered.Regular {
		e.cfg.Extents.FreeReservedExtent(t, oe.DiskBytenr, oe.Len)
	}
	if rsv > 0 {
		e.fs.Space.Metadata().Release(t, rsv)
	}
	if err == nil && oe.Type == ordered.Nocow {
		e.moveDiskSize(t, ip)
	}
	ip.Ordered.Remove(t, oe)
	oe.Put(t)
}

// moveDiskSize lets the inode item's size follow i_size: with NO_HOLES, whatever is missing in between reads as zero.
func (e *Engine) moveDiskSize(t *sched.Task, ip *inode.Inode) {
	if ip.FollowSize(t) {
		ip.MarkDirty(t)
	}
}

// finishItems is the tree part of finish. It owns rsv bytes of metadata.
func (e *Engine) finishItems(t *sched.Task, ip *inode.Inode, oe *ordered.Extent, rsv uint64) error {
	start, end := oe.Start, oe.End()
	// Joining may wait for a commit; the extent range ranks above it, so it is locked before (9.1, level 11).
	ip.IOTree.LockBits(t, start, end, extentio.Locked|extentio.FinishingOrdered)
	defer ip.IOTree.Unlock(t, start, end)
	h, err := e.cfg.Join(t, rsv)
	if err != nil {
		if oe.Type == ordered.Regular {
			e.cfg.Extents.FreeReservedExtent(t, oe.DiskBytenr, oe.Len)
		}
		return fmt.Errorf("finish ino=%d off=%d len=%d: %w", ip.Ino, start, oe.Len, err)
	}
	err = e.insertItems(t, ip, oe, h.Trans())
	ip.Extents.Drop(t, start, end)
	if err != nil {
		err = fmt.Errorf("finish ino=%d off=%d len=%d: %w", ip.Ino, start, oe.Len, err)
		h.Abort(t, err)
	} else {
		e.moveDiskSize(t, ip)
		ip.LastTransid.Store(h.Trans().ID)
		ip.MarkDirty(t)
	}
	if eerr := h.End(t); err == nil {
		err = eerr
	}
	return err
}

func (e *Engine) insertItems(t *sched.Task, ip *inode.Inode, oe *ordered.Extent, tr *ctree.Trans) error {
	it := e.cfg.Items
	if oe.Type == ordered.Prealloc {
		if err := it.MarkExtentWritten(t, tr, ip.Root, ip.Ino, oe.Start, oe.End()); err != nil {
			return err
		}
	} else {
		res, err := it.DropExtents(t, tr, ip.Root, ip.Ino, oe.Start, oe.End(), fstree.DropOptions{ReadFirst: oe.Start >= ip.DiskSize(t)})
		if err != nil {
			return err
		}
		fe := format.FileExtent{Generation: tr.ID, RAMBytes: oe.Len, Type: format.FileExtentTypeReg, DiskBytenr: oe.DiskBytenr, DiskNumBytes: oe.Len, NumBytes: oe.Len}
		if err := it.InsertFileExtent(t, tr, ip.Root, ip.Ino, oe.Start, &fe); err != nil {
			return err
		}
		if err := e.cfg.Extents.AllocReservedFileExtent(t, tr, ip.Root.ID, ip.Ino, oe.Start, oe.DiskBytenr, oe.Len); err != nil {
			return err
		}
		ip.AddBytes(t, int64(oe.Len)-int64(res.BytesFound))
	}
	if sums := oe.Checksums(t); len(sums) > 0 {
		return it.InsertCsums(t, tr, oe.DiskBytenr, sums)
	}
	return nil
}

// writeInline puts the whole of a small file, which is one page, into the tree. The page and its extent range are locked; the
// range is unlocked. Models cow_file_range_inline().
func (e *Engine) writeInline(t *sched.Task, ip *inode.Inode, w *run, size uint64) error {
	const end = pageSize
	p := w.pages[0]
	data := append([]byte(nil), p.View(t)[:size]...)
	ip.IOTree.Change(t, 0, end, inode.DelallocBits|extentio.DoAccounting, 0)
	rsv := ip.TakeSurplus(t)
	err := e.insertInline(t, ip, data, rsv)
	ip.IOTree.Unlock(t, 0, end)
	t.Discharge(p)
	ip.Pages.EndWriteback(t, p)
	return err
}

func (e *Engine) insertInline(t *sched.Task, ip *inode.Inode, data []byte, rsv uint64) error {
	h, err := e.cfg.Join(t, rsv)
	if err != nil {
		return fmt.Errorf("write ino=%d inline: %w", ip.Ino, err)
	}
	tr := h.Trans()
	size := uint64(len(data))
	res, err := e.cfg.Items.DropExtents(t, tr, ip.Root, ip.Ino, 0, pageSize, fstree.DropOptions{ReadFirst: ip.DiskSize(t) == 0})
	if err == nil {
		fe := format.FileExtent{Generation: tr.ID, RAMBytes: size, Type: format.FileExtentTypeInline, Inline: data}
		err = e.cfg.Items.InsertFileExtent(t, tr, ip.Root, ip.Ino, 0, &fe)
	}
	ip.Extents.Drop(t, 0, pageSize)
	if err != nil {
		err = fmt.Errorf("write ino=%d inline: %w", ip.Ino, err)
		h.Abort(t, err)
	} else {
		ip.AddBytes(t, int64(size)-int64(res.BytesFound))
		ip.FollowSize(t) // not size: a truncate may have made the file longer since, behind the zeros of this page
		ip.LastTransid.Store(tr.ID)
		ip.MarkDirty(t)
	}
	if eerr := h.End(t); err == nil {
		err = eerr
	}
	return err
}

// errNotSupported is for what btrfs can store and this program cannot read.
func errNotSupported(ip *inode.Inode, off uint64, what string) error {
	return fmt.Errorf("read ino=%d off=%d: %s: %w", ip.Ino, off, what, errno.EOPNOTSUPP)
}

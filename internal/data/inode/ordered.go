package inode

import (
	"btrlab/internal/data/ordered"
	"btrlab/internal/sched"
)

// OfOrdered is the inode that oe is a write of.
func OfOrdered(oe *ordered.Extent) *Inode { return oe.Owner.(*Inode) }

// The extent lock of a range is wanted with no ordered extent in the range: the trees do not know
// yet what the extent will put there. Its completion takes the same lock, so a task that meets one
// lets the lock go, and every page of the range, before it waits (labs/reference 9.1, level 10).

// LockUnlessOrdered locks [start, end) of the io tree and returns nil. If an ordered extent is in
// the range it locks nothing and returns the extent, referenced: let go what its completion may
// need, call WaitPut and try again.
func (ip *Inode) LockUnlessOrdered(t *sched.Task, start, end uint64) (busy *ordered.Extent) {
	ip.IOTree.Lock(t, start, end)
	if busy = ip.Ordered.First(t, start, end); busy != nil {
		ip.IOTree.Unlock(t, start, end)
	}
	return busy
}

// TryLockUnlessOrdered locks [start, end) of the io tree if it can do so without a wait: nobody
// holds a byte of it and no ordered extent is in it. Models btrfs_try_lock_ordered_range().
func (ip *Inode) TryLockUnlessOrdered(t *sched.Task, start, end uint64) bool {
	if !ip.IOTree.TryLock(t, start, end) {
		return false
	}
	if oe := ip.Ordered.First(t, start, end); oe != nil {
		ip.IOTree.Unlock(t, start, end)
		oe.Put(t)
		return false
	}
	return true
}

// LockAndFlushOrdered locks [start, end) of the io tree with no ordered extent in it; while there
// is one, it waits with the range unlocked. Models btrfs_lock_and_flush_ordered_range().
//
// Preconditions:
//   - no page and no other range that the completion of an ordered extent in [start, end) needs is
//     locked by t.
func (ip *Inode) LockAndFlushOrdered(t *sched.Task, start, end uint64) {
	for {
		oe := ip.LockUnlessOrdered(t, start, end)
		if oe == nil {
			return
		}
		oe.WaitPut(t)
	}
}

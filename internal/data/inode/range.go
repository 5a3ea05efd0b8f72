package inode

import (
	"btrlab/internal/lock/extentio"
	"btrlab/internal/sched"
)

// RangeLocker is a lock on byte ranges: Lock returns when nobody else holds a byte of [start, end),
// Unlock is called by the same task with the same range. It has no readers.
type RangeLocker interface {
	Lock(t *sched.Task, start, end uint64)
	Unlock(t *sched.Task, start, end uint64)
}

// RangeLock is the lock on the byte ranges of whole writes: an extent tree, or what
// FS.NewRangeLocker made.
type RangeLock struct {
	tree  extentio.Tree
	other RangeLocker
}

func (r *RangeLock) init(f *FS) {
	if f.NewRangeLocker != nil {
		r.other = f.NewRangeLocker()
		return
	}
	r.tree.InitClass(RangeClass)
}

// Lock takes [start, end); it may sleep.
func (r *RangeLock) Lock(t *sched.Task, start, end uint64) {
	if r.other != nil {
		r.other.Lock(t, start, end)
		return
	}
	r.tree.Lock(t, start, end)
}

// TryLock takes [start, end) if no other task has a byte of it, without a wait. Of a lock that
// FS.NewRangeLocker made it is false: such a lock has no try.
func (r *RangeLock) TryLock(t *sched.Task, start, end uint64) bool {
	return r.other == nil && r.tree.TryLock(t, start, end)
}

// LockNested is Lock for a task that has locked bytes of another inode, and holds i_rwsem of both.
func (r *RangeLock) LockNested(t *sched.Task, start, end uint64) {
	if r.other != nil {
		r.other.Lock(t, start, end)
		return
	}
	r.tree.LockNested(t, start, end)
}

// Unlock ends Lock, TryLock or LockNested.
func (r *RangeLock) Unlock(t *sched.Task, start, end uint64) {
	if r.other != nil {
		r.other.Unlock(t, start, end)
		return
	}
	r.tree.Unlock(t, start, end)
}

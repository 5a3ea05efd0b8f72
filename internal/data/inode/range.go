package inode

import (
	"btrlab/internal/lock/extentio"
	"btrlab/internal/sched"
)

// RangeLocker is a lock on byte ranges: Lock returns when nobody else holds a byte of [start, end), Unlock is called by the same
// task with the same range. It has no readers.
type RangeLocker interface {
	Lock(t *sched.Task, start, end uint64)
	Unlock(t *sched.Task, start, end uint64)
}

// NewRangeLocker, when set before the first inode is made, makes the range locks of all inodes. It is the door through which a
// lab puts another lock into the write path; programs leave it nil.
var NewRangeLocker func() RangeLocker

// RangeLock is the lock on the byte ranges of whole writes: an extent tree, or what NewRangeLocker made.
type RangeLock struct {
	tree  extentio.Tree
	other RangeLocker
}

func (r *RangeLock) init() {
	if NewRangeLocker != nil {
		r.other = NewRangeLocker()
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

// Unlock ends Lock.
func (r *RangeLock) Unlock(t *sched.Task, start, end uint64) {
	if r.other != nil {
		r.other.Unlock(t, start, end)
		return
	}
	r.tree.Unlock(t, start, end)
}

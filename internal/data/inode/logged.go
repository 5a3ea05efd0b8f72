package inode

import (
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

var classLog = lockdep.NewClass("log_inode")

// Range is bytes of a file.
type Range = format.Range[uint64]

// logged is fsync's memory of an inode, from one log of it to the next. Models the log fields
// of struct btrfs_inode: log_mutex, logged_trans, last_sub_trans, last_log_commit,
// BTRFS_INODE_COPY_EVERYTHING and the modified extents.
type logged struct {
	mu   lock.Mutex // log_mutex; protects last
	last Logged

	namesIn, namesFrom uint64 // of a directory: NameAdded; protected by i_rwsem

	modified   []Range // protected by Inode.mu, as the one below
	modifiedIn uint64  // the transaction in which they changed
}

// modifiedMax bounds the list of modified ranges: a longer one becomes one range around all.
const modifiedMax = 1024

// LockLog begins to copy the inode to a log, for one task at a time. Models inode->log_mutex.
func (ip *Inode) LockLog(t *sched.Task) { ip.log.mu.Lock(t) }

// UnlockLog ends LockLog.
func (ip *Inode) UnlockLog(t *sched.Task) { ip.log.mu.Unlock(t) }

// Logged says when an inode was logged, and how.
type Logged struct {
	Transid uint64 // the transaction whose log has the inode; 0 is none
	Sync    uint64 // the number of the sync of that log
	Size    uint64 // the logged size in bytes
}

// Logged returns the value of the last SetLogged. LockLog is held.
func (ip *Inode) Logged(t *sched.Task) Logged {
	ip.log.mu.AssertHeld(t)
	return ip.log.last
}

// SetLogged says that a log has the inode as it is now. LockLog is held.
func (ip *Inode) SetLogged(t *sched.Task, l Logged) {
	ip.log.mu.AssertHeld(t)
	ip.log.last = l
}

// TakeUnlogged reports whether anything of the inode has changed since the call before, and begins
// again: a change that comes later shows in the next answer, whether or not the caller's look at
// the inode finds it.
func (ip *Inode) TakeUnlogged() bool { return ip.unlogged.Swap(false) }

// ItemsChanged says that transaction transid changes the inode's names or attributes: the next log
// of the inode has all of them. Models BTRFS_INODE_COPY_EVERYTHING.
func (ip *Inode) ItemsChanged(transid uint64) { ip.itemsIn.Store(transid) }

// TakeItemsChanged reports whether names or attributes have changed in transid and are not in its
// log. i_rwsem is held.
func (ip *Inode) TakeItemsChanged(transid uint64) bool { return ip.itemsIn.CompareAndSwap(transid, 0) }

// Relog undoes TakeUnlogged, and with items TakeItemsChanged of transid: what they took did not get
// into a log. i_rwsem is held.
func (ip *Inode) Relog(transid uint64, items bool) {
	if items {
		ip.ItemsChanged(transid)
	}
	ip.unlogged.Store(true)
}

// NameAdded says that transaction transid gives the directory a name with an index, which is larger
// than those before. i_rwsem is held.
func (ip *Inode) NameAdded(transid, index uint64) {
	if l := &ip.log; l.namesIn != transid {
		l.namesIn, l.namesFrom = transid, index
	}
}

// NamesAdded is the index of the first name that transaction transid has given the directory; all
// later ones have larger ones. i_rwsem is held.
func (ip *Inode) NamesAdded(transid uint64) (from uint64, ok bool) {
	return ip.log.namesFrom, ip.log.namesIn == transid
}

// ExtentsChanged says that transaction transid changes the file extents of [start, end), and
// forgets the extent maps there. Models the list of modified extents in struct extent_map_tree.
// Difference: ranges, and what is in them is looked up in the tree.
//
// Preconditions: the extent lock of the range is held, and a handle of the transaction is open.
func (ip *Inode) ExtentsChanged(t *sched.Task, transid, start, end uint64) {
	ip.Extents.Drop(t, start, end)
	if !ip.FS.Logging.Load() {
		ip.allIn.Store(transid) // which ranges is not worth remembering
		return
	}
	ip.mu.Lock(t)
	defer ip.mu.Unlock(t)
	l := &ip.log
	if l.modifiedIn != transid {
		l.modified, l.modifiedIn = l.modified[:0], transid
	}
	if n := len(l.modified); n > 0 {
		if last := &l.modified[n-1]; start <= last.End && end >= last.Start {
			last.Start, last.End = min(last.Start, start), max(last.End, end)
			return
		}
	}
	l.modified = append(l.modified, Range{Start: start, End: end})
	if len(l.modified) > modifiedMax {
		for _, r := range l.modified {
			l.modified[0].Start = min(l.modified[0].Start, r.Start)
			l.modified[0].End = max(l.modified[0].End, r.End)
		}
		l.modified = l.modified[:1]
	}
}

// BarLog says that no log of transaction transid can say what it did to the inode.
func (ip *Inode) BarLog(transid uint64) { ip.barredIn.Store(transid) }

// Barred reports whether BarLog was called for transid.
func (ip *Inode) Barred(transid uint64) bool { return ip.barredIn.Load() == transid }

// TakeModified moves the ranges whose file extents have changed in transid since the last log to
// into, ascending and disjoint.
//
// Preconditions: the extent lock of the whole file is held.
func (ip *Inode) TakeModified(t *sched.Task, transid uint64, into []Range) []Range {
	into = into[:0]
	ip.mu.Lock(t)
	if ip.log.modifiedIn == transid {
		into = append(into, ip.log.modified...)
		ip.log.modified = ip.log.modified[:0]
	}
	ip.mu.Unlock(t)
	if ip.allIn.CompareAndSwap(transid, 0) {
		return append(into[:0], Range{End: ^uint64(0)})
	}
	return format.Merge(into)
}

// AddRange adds r to ranges that ascend and are disjoint.
func AddRange(list []Range, r Range) []Range { return format.Merge(append(list, r)) }

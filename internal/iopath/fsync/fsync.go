// Package fsync makes files durable.
//
// Sync writes the file's data back, waits for its ordered extents and commits the transaction that knows about them. The
// kernel writes a log tree instead of committing where it can; what is durable afterwards is the same, at a higher price.
//
// Model: fs/btrfs/file.c:btrfs_sync_file() where it falls back to a full commit; kernel-semantics 6.2.
package fsync

import (
	"sync/atomic"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/writeback"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Sync writes back all data of the file and commits what it needs. seen is the open file's mark of the data errors that it has
// been told: an error of a write in the background since then is returned, once, and nothing is committed for it.
func Sync(t *sched.Task, e *writeback.Engine, m *transaction.Manager, ip *inode.Inode, seen *atomic.Uint64) error {
	err := startOrderedOps(t, e, ip)
	if err == nil {
		ip.Lock(t)
		err = flushAndWait(t, e, ip)
		ip.Unlock(t)
	}
	if werr := ip.Pages.CheckError(t, seen); err == nil {
		err = werr
	}
	if err != nil {
		return err
	}
	return commitFor(t, m, ip)
}

// startOrderedOps starts writeback before the lock, so that less is left to do under it.
// Models start_ordered_ops().
func startOrderedOps(t *sched.Task, e *writeback.Engine, ip *inode.Inode) error {
	return e.WritePages(t, ip, 0, pagecache.MaxFileEnd, true)
}

// flushAndWait writes back what was dirtied meanwhile and waits for every ordered extent.
// Models the second flush and btrfs_wait_ordered_range() of btrfs_sync_file().
func flushAndWait(t *sched.Task, e *writeback.Engine, ip *inode.Inode) error {
	return e.WaitOrderedRange(t, ip, 0, pagecache.MaxFileEnd)
}

// commitFor commits the transaction that last changed the inode, unless it is durable already. An inode whose item
// only waits for the next commit needs a transaction to take it.
func commitFor(t *sched.Task, m *transaction.Manager, ip *inode.Inode) error {
	if !ip.Dirty() && ip.LastTransid.Load() <= m.Generation(t) {
		return m.Aborted(t)
	}
	if ip.Dirty() && m.Running(t) == 0 {
		h, err := m.Join(t)
		if err != nil {
			return err
		}
		if err := h.End(t); err != nil {
			return err
		}
	}
	return m.Commit(t)
}

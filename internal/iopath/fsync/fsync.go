// Package fsync makes files durable.
//
// Sync writes the file's data back, waits for its ordered extents and commits the transaction that knows about them. The
// kernel writes a log tree instead of committing where it can; what is durable afterwards is the same, at a higher price.
//
// Model: fs/btrfs/file.c:btrfs_sync_file() where it falls back to a full commit; labs/reference 6.2.
package fsync

import (
	"sync/atomic"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
)

// Sync writes back all data of the file and commits what it needs. seen is the open file's mark of the data errors that it has
// been told: an error of a write in the background since then is returned, once, and nothing is committed for it.
//
// A direct write calls it with i_rwsem held and says so in t.Journal; then the lock is not taken again.
func Sync(t *sched.Task, env *iopath.Env, ip *inode.Inode, seen *atomic.Uint64) error {
	held := false
	if _, held = t.Journal.(iopath.DirectSync); held {
		t.Journal = nil // the task may open a transaction from here on
	}
	err := startOrderedOps(t, env, ip)
	if err == nil {
		if held {
			ip.AssertRLocked(t)
		} else {
			ip.Lock(t)
		}
		err = flushAndWait(t, env, ip)
		if !held {
			ip.Unlock(t)
		}
	}
	if werr := ip.Pages.CheckError(t, seen); err == nil {
		err = werr
	}
	if err != nil {
		return err
	}
	return commitFor(t, env, ip)
}

// startOrderedOps starts writeback before the lock, so that less is left to do under it.
// Models start_ordered_ops().
func startOrderedOps(t *sched.Task, env *iopath.Env, ip *inode.Inode) error {
	return env.Writeback.WritePages(t, ip, 0, pagecache.MaxFileEnd, true)
}

// flushAndWait writes back what was dirtied meanwhile and waits for every ordered extent.
// Models the second flush and btrfs_wait_ordered_range() of btrfs_sync_file().
func flushAndWait(t *sched.Task, env *iopath.Env, ip *inode.Inode) error {
	return env.Writeback.WaitOrderedRange(t, ip, 0, pagecache.MaxFileEnd)
}

// commitFor commits the transaction that last changed the inode, unless it is durable already. An inode whose item waits for a commit
// needs one that has not taken the items yet: the running transaction may have, while it commits. A handle tells, because a
// commit takes them once more after it has let no more handles in.
func commitFor(t *sched.Task, env *iopath.Env, ip *inode.Inode) error {
	if !ip.Dirty() && ip.LastTransid.Load() <= env.Trans.Generation(t) {
		return env.Trans.Aborted(t)
	}
	if ip.Dirty() {
		h, err := env.Trans.Join(t)
		if err != nil {
			return err
		}
		if err := h.End(t); err != nil {
			return err
		}
	}
	return env.Trans.Commit(t)
}

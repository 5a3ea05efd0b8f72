// Package fsync makes files durable.
//
// Sync writes the file's data back and waits for its ordered extents. Under a policy with FSYNC_LOG it copies what has changed of the file to a
// log tree, which the superblock then names; where a log cannot tell all (package treelog), and under every other policy, it commits the
// transaction. What is durable afterwards is the same, at a higher price.
//
// Lock order:
//
//	i_rwsem
//	  ordered_extent
//	    extent                 all of the file, while it is logged
//	      transaction          the handle stays open until the log is durable, when nothing else is held any more
//	        log_inode, log_mutex, log_root_mutex, log_super_mutex      package treelog
//
// Model: fs/btrfs/file.c:btrfs_sync_file(); labs/reference 6.2.
package fsync

import (
	"sync/atomic"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/treelog"
	"btrlab/internal/iopath"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Sync writes back all data of the file and makes it durable: in the log of its subvolume, or with a commit. seen is the open file's mark of the
// data errors that it has been told: an error of a write in the background since then is returned, once, and nothing is logged
// or committed for it.
//
// A direct write calls it with i_rwsem held and says so in t.Journal; then the lock is not taken again.
func Sync(t *sched.Task, env *iopath.Env, ip *inode.Inode, seen *atomic.Uint64) error {
	held := false
	if _, held = t.Journal.(iopath.DirectSync); held {
		t.Journal = nil // the task may open a transaction from here on
	}
	if p := env.Policy(); p.Wrong.Log.BeforeData && p.FsyncLog && !held {
		return logFirst(t, env, ip)
	} else if p.Wrong.Log.PunchUnmarked && durable(t, env, ip) {
		return startOrderedOps(t, env, ip)
	}
	var h *transaction.Handle
	var ticket treelog.Ticket
	err := startOrderedOps(t, env, ip)
	if err == nil {
		if held {
			ip.AssertRLocked(t)
		} else {
			ip.Lock(t)
		}
		err = flushAndWait(t, env, ip)
		if err == nil && env.Policy().FsyncLog {
			if err = ip.Pages.CheckError(t, seen); err == nil {
				h, ticket = log(t, env, ip)
			}
		}
		if !held {
			ip.Unlock(t)
		}
	}
	logged := h != nil && env.Logs.Sync(t, h, ticket) == nil
	if h != nil {
		if eerr := h.End(t); err == nil {
			err = eerr
		}
	}
	if werr := ip.Pages.CheckError(t, seen); err == nil {
		err = werr
	}
	if err != nil || logged {
		return err
	}
	return commitFor(t, env, ip)
}

// logFirst is Sync in the wrong order WRONG_LOG_BEFORE_DATA.
func logFirst(t *sched.Task, env *iopath.Env, ip *inode.Inode) error {
	ip.Lock(t)
	defer ip.Unlock(t)
	ip.IOTree.Lock(t, 0, pagecache.MaxFileEnd)
	h, err := env.Trans.Start(t, 0)
	if err == nil {
		var k treelog.Ticket
		if k, err = env.Logs.Log(t, h, ip); err == nil {
			err = env.Logs.Sync(t, h, k)
		}
		_ = h.End(t)
	}
	ip.IOTree.Unlock(t, 0, pagecache.MaxFileEnd)
	if werr := flushAndWait(t, env, ip); err == nil || werr != nil {
		return werr
	}
	return env.Trans.Commit(t)
}

// log copies what has changed to the log, and returns the handle that keeps the transaction open until the log is durable; nil says that a commit is
// needed, or nothing. The extent range of the whole file is locked meanwhile: its items in the tree are all there is of it, and stay
// as they are.
//
// Models the middle of btrfs_sync_file(). Difference: it neither locks extents nor needs to, because no ordered extent is waited
// for, and what is logged are extent maps.
func log(t *sched.Task, env *iopath.Env, ip *inode.Inode) (*transaction.Handle, treelog.Ticket) {
	if durable(t, env, ip) {
		return nil, treelog.Ticket{}
	}
	ip.LockAndFlushOrdered(t, 0, pagecache.MaxFileEnd)
	defer ip.IOTree.Unlock(t, 0, pagecache.MaxFileEnd)
	h, err := env.Trans.Start(t, 0)
	if err != nil {
		return nil, treelog.Ticket{}
	}
	k, err := env.Logs.Log(t, h, ip)
	if err != nil {
		_ = h.End(t) // the commit says what is wrong
		return nil, k
	}
	return h, k
}

// durable reports whether the last commit has all of the inode.
func durable(t *sched.Task, env *iopath.Env, ip *inode.Inode) bool {
	return !ip.Dirty() && ip.LastTransid.Load() <= env.Trans.Generation(t)
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
	if durable(t, env, ip) {
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

// Package fsync makes files durable.
//
// Sync writes the file's data back and waits for its ordered extents. Under a policy with FSYNC_LOG
// it waits until the data is written, not until the trees have it, and copies what has changed of
// the file to a log tree, which the superblock then names; a commit waits for the ordered extents
// that a log has. Where a log cannot tell all (package treelog), and under every other policy, it
// commits the transaction. What is durable afterwards is the same, at a higher price.
//
// Lock order:
//
//	i_rwsem
//	  ordered_extent
//	    extent                 all of the file, while it is logged
//	      transaction          the handle stays open until the log is durable, when nothing else is held any more
//	        log_inode, log_pin, log_mutex, log_root_mutex, log_super_mutex      package treelog
//
// Model: fs/btrfs/file.c:btrfs_sync_file(); labs/reference 6.2.
package fsync

import (
	"slices"
	"sync/atomic"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/treelog"
	"btrlab/internal/iopath"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Sync writes back all data of the file and makes it durable: in the log of its subvolume, or with
// a commit. seen is the open file's mark of the data errors that it has been told: an error of a
// write in the background since then is returned, once, and nothing is logged or committed for it.
//
// A direct write calls it with i_rwsem held and says so in t.Journal; then the lock is not taken
// again.
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
	if own := iopath.Own(ip); own != nil && !held {
		return syncBy(t, env, ip, seen, own)
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
		if env.Policy().FsyncLog {
			if err = env.Writeback.FlushPages(t, ip, 0, pagecache.MaxFileEnd); err == nil {
				h, ticket, err = log(t, env, ip, seen)
			}
		} else {
			err = flushAndWait(t, env, ip)
		}
		if !held {
			ip.Unlock(t)
		}
	}
	logged := h != nil && env.Logs.Sync(t, h, ticket) == nil
	if h != nil {
		if h.End(t) != nil && err == nil {
			err = env.Trans.Aborted(t) // says why, to every task that shared the sync
		}
	}
	if !logged && env.Policy().FsyncLog {
		// Those that a log had, without the handle that their completion may need to get at.
		if werr := ip.Ordered.WaitRange(t, 0, pagecache.MaxFileEnd); err == nil {
			err = werr
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
		if k, err = env.Logs.Log(t, h, ip, nil); err == nil {
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

// log copies what has changed to the log, and returns the handle that keeps the transaction open
// until the log is durable; without one a commit is needed, or nothing. The extent range of the
// whole file is locked meanwhile: its items in the tree, and its ordered extents, are all there is
// of it, and stay as they are.
//
// Models the middle of btrfs_sync_file(). Differences: it does not lock extents, because what it
// logs are extent maps; an ordered extent whose data is on its way to the device, a direct write's,
// is waited for.
func log(t *sched.Task, env *iopath.Env, ip *inode.Inode, seen *atomic.Uint64) (*transaction.Handle, treelog.Ticket, error) {
	if ip.Ordered.Len() == 0 && durable(t, env, ip) {
		return nil, treelog.Ticket{}, nil
	}
	h, list := begin(t, env, ip)
	defer ip.IOTree.Unlock(t, 0, pagecache.MaxFileEnd)
	defer putAll(t, list)
	if h == nil {
		return nil, treelog.Ticket{}, nil
	}
	err := ip.Pages.CheckError(t, seen)
	if err == nil {
		var k treelog.Ticket
		k, err = env.Logs.Log(t, h, ip, list)
		if err == nil && !env.Policy().Wrong.LogUnattached {
			err = env.Logs.AttachOrdered(t, h, ip, list)
		}
		if err == nil {
			return h, k, nil
		}
		err = nil // the commit says what is wrong
	}
	if eerr := h.End(t); err == nil {
		err = eerr
	}
	return nil, treelog.Ticket{}, err
}

// begin locks the extent range of the file and opens a handle. Ordered extents in it, which are
// written, are returned. If one of them is not, or a commit keeps handles out, they are waited for:
// a commit may wait for them, too, and they for the range.
func begin(t *sched.Task, env *iopath.Env, ip *inode.Inode) (*transaction.Handle, []*ordered.Extent) {
	ip.IOTree.Lock(t, 0, pagecache.MaxFileEnd)
	list := ip.Ordered.All(t, nil)
	onItsWay := func(e *ordered.Extent) bool { return !ip.Ordered.Written(t, e) }
	if env.Policy().Wrong.LogUnwritten || !slices.ContainsFunc(list, onItsWay) {
		if h := env.Trans.TryStart(t); h != nil {
			return h, list
		}
	}
	ip.IOTree.Unlock(t, 0, pagecache.MaxFileEnd)
	putAll(t, list)
	ip.LockAndFlushOrdered(t, 0, pagecache.MaxFileEnd)
	h, err := env.Trans.Start(t, 0)
	if err != nil {
		return nil, nil // the commit says why
	}
	return h, nil
}

func putAll(t *sched.Task, list []*ordered.Extent) {
	for _, e := range list {
		e.Put(t)
	}
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

// commitFor commits the transaction that last changed the inode, unless it is durable already. An
// inode whose item waits for a commit needs one that has not taken the items yet: the running
// transaction may have, while it commits. A handle tells, because a commit takes them once more
// after it has let no more handles in.
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

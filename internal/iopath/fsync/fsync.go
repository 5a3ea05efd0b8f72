// Package fsync makes files durable.
//
// Sync writes the file's data back and waits for its ordered extents. Under a policy with FSYNC_LOG
// it waits until the data is written, not until the trees have it (unless FSYNC_WAIT_ORDERED says
// so), and copies what has changed of the file to a log tree, which the superblock then names; a
// commit waits for the ordered extents that a log has. Where a log cannot tell all (package
// treelog), and under every other policy, it commits the transaction. What is durable afterwards is
// the same, at a higher price.
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
	"cmp"
	"slices"
	"sync/atomic"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/treelog"
	"btrlab/internal/iopath"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// Sync writes back all data of the file and makes it durable: in the log of its subvolume, or with
// a commit. seen is the open file's mark of the data errors that it has been told: an error of a
// write in the background since then is returned, once, and nothing is logged or committed for it.
//
// A direct write calls it with i_rwsem held and says so in t.Journal; then the lock is not taken
// again.
func Sync(t *sched.Task, env *iopath.Env, ip *inode.Inode, seen *atomic.Uint64) (err error) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_sync_file"})
	}
	s := fsync{env: env, ip: ip, seen: seen, pl: policy.ForFsync(env.Policy())}
	if _, s.held = t.Journal.(iopath.DirectSync); s.held {
		t.Journal = nil // the task may open a transaction from here on
	}
	lab := iopath.LabOf(ip)
	logged := false
	switch {
	case s.pl.LogFirst && !s.held:
		return logFirst(t, env, ip)
	case s.pl.Wrong(policy.WrongLogPunchUnmarked) && durable(t, env, ip):
		return startOrderedOps(t, env, ip)
	case lab != nil && !s.held:
		return byLab(t, env, ip, seen, lab)
	case s.pl.Log:
		logged, err = s.byLog(t)
	default:
		err = s.writeBack(t)
	}
	if err = cmp.Or(err, ip.Pages.CheckError(t, seen)); err != nil || logged {
		return err
	}
	return commitFor(t, env, ip)
}

// fsync is the state of one fsync.
type fsync struct {
	env  *iopath.Env
	ip   *inode.Inode
	seen *atomic.Uint64
	pl   policy.FsyncPlan
	held bool // i_rwsem is the caller's
}

func (s *fsync) lock(t *sched.Task) {
	if s.held {
		s.ip.AssertRLocked(t)
		return
	}
	s.ip.Lock(t)
}

func (s *fsync) unlock(t *sched.Task) {
	if !s.held {
		s.ip.Unlock(t)
	}
}

// writeBack writes the data back and waits until the trees have it.
func (s *fsync) writeBack(t *sched.Task) error {
	if err := startOrderedOps(t, s.env, s.ip); err != nil {
		return err
	}
	s.lock(t)
	defer s.unlock(t)
	return flushAndWait(t, s.env, s.ip)
}

// byLog writes the data back and makes the inode durable in a log. Where it did not, and without an
// error, a commit is needed.
func (s *fsync) byLog(t *sched.Task) (logged bool, err error) {
	h, ticket, err := s.writeLog(t)
	if h != nil {
		logged = s.env.Logs.Sync(t, h, ticket) == nil
		if h.End(t) != nil && err == nil {
			err = s.env.Trans.Aborted(t) // says why, to every task that shared the sync
		}
	}
	if !logged {
		// Those that a log had, without the handle that their completion may need to get at.
		err = cmp.Or(err, s.ip.Ordered.WaitRange(t, 0, pagecache.MaxFileEnd))
	}
	return logged, err
}

// writeLog writes the data back and copies the inode to the log: see log.
func (s *fsync) writeLog(t *sched.Task) (*transaction.Handle, treelog.Ticket, error) {
	if err := startOrderedOps(t, s.env, s.ip); err != nil {
		return nil, treelog.Ticket{}, err
	}
	s.lock(t)
	defer s.unlock(t)
	flush := s.env.Writeback.FlushPages
	if s.pl.Has(policy.FsyncWaitOrdered) {
		flush = s.env.Writeback.WaitOrderedRange
	}
	if err := flush(t, s.ip, 0, pagecache.MaxFileEnd); err != nil {
		return nil, treelog.Ticket{}, err
	}
	return s.log(t)
}

// log copies what has changed to the log, and returns the handle that keeps the transaction open
// until the log is durable; without one a commit is needed, or nothing. The extent range of the
// whole file is locked meanwhile: its items in the tree, and its ordered extents, are all there is
// of it, and stay as they are.
//
// Models the middle of btrfs_sync_file(). Differences: it does not lock extents, because what it
// logs are extent maps; an ordered extent whose data is on its way to the device, a direct write's,
// is waited for.
func (s *fsync) log(t *sched.Task) (*transaction.Handle, treelog.Ticket, error) {
	env, ip := s.env, s.ip
	if ip.Ordered.Len() == 0 && durable(t, env, ip) {
		return nil, treelog.Ticket{}, nil
	}
	h, list := s.begin(t)
	defer ip.IOTree.Unlock(t, 0, pagecache.MaxFileEnd)
	defer putAll(t, list)
	if h == nil {
		return nil, treelog.Ticket{}, nil
	}
	err := ip.Pages.CheckError(t, s.seen)
	if err == nil {
		var k treelog.Ticket
		k, err = env.Logs.Log(t, h, ip, list)
		if err == nil && !s.pl.Wrong(policy.WrongLogUnattached) {
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
func (s *fsync) begin(t *sched.Task) (*transaction.Handle, []*ordered.Extent) {
	env, ip := s.env, s.ip
	ip.IOTree.Lock(t, 0, pagecache.MaxFileEnd)
	list := ip.Ordered.All(t, nil)
	onItsWay := func(e *ordered.Extent) bool { return !ip.Ordered.Written(t, e) }
	if s.pl.Wrong(policy.WrongLogUnwritten) || !slices.ContainsFunc(list, onItsWay) {
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

// Package transaction groups changes of the trees and makes each group durable as a whole.
//
// One invariant makes the rest easy: the superblock points only at trees of transactions that are
// whole, and no block that it leads to is written again before a newer superblock is durable. So a
// crash at any moment finds the last commit, and nobody else need think of crashes.
//
//	h, err := Start(items)       reserves metadata; may wait for a commit
//	... change trees with h.Trans()
//	h.Abort(err)                 if a change stopped half way: the file system is read-only from
//	                             here on
//	h.End()                      durable with the next Commit
//
// Start and Join open a handle on the running transaction, which they begin if there is none; End
// closes it. Commit takes the transaction off: while its own handle is open it turns delayed
// references into items, then keeps new handles out, waits for the open ones, runs the rest to a
// fixpoint, and seals every block. From here on the next transaction may run: it must copy what is
// sealed. The blocks are written, then a flush, the superblock copies and a flush, and only then is
// the space that the transaction freed allocatable again.
//
//	Start -> handle -> tree changes -> End
//	Commit: hooks, delayed refs | block Start, wait for its handles and attached ordered extents | block Join, wait writers | hooks, snapshots, delayed refs, groups, root items, until quiet |
//	        seal | unblock | write blocks | flush, supers, flush | unpin
//
// Lock order:
//
//	transaction                Start, Join: wait for a commit that is in its critical section
//	  commit                   commitMu: one commit at a time, from start to durable
//	    transaction_writers    the committer waits for open handles
//	      inode_hook           the items of dirty inodes (OnCommit)
//	        tree_*
//	          trans_lock       Manager.mu, a leaf
//	    qgroup_ioctl_lock      quotaMu: quotas are turned on or off, with a handle open
//	    log_super_mutex        logMu: from where a commit lets handles in again until its superblock is written; WriteLogSuper
//	      super_mutex          superMu: a superblock is written, by a commit or alone
//
// A log may have the data of an ordered extent that the trees do not have yet (Attach). The commit
// of its transaction waits for the extent, with Start kept out and Join, which the extent's
// completion needs, let in.
//
// A task of the Manager commits transactions that are old, if it is told to (committer.go).
//
// Model: fs/btrfs/transaction.c. Differences: three stages of blocking instead of six states; the
// committer is the calling task.
package transaction

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/extenttree"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

var (
	classWait    = lockdep.NewClass("transaction")
	classCommit  = lockdep.NewClass("commit")
	classWriters = lockdep.NewClass("transaction_writers")
	classSuper   = lockdep.NewClass("super_mutex")
	classLog     = lockdep.NewClass("log_super_mutex")
	classMu      = lockdep.NewClass("trans_lock")
)

// nameState is the name of a Manager's fields, and of its transactions', in reports of data races.
const nameState = sched.Label("state of the transactions")

// Transaction is one group of changes. Its fields are protected by Manager.mu.
type Transaction struct {
	id      uint64
	dirty   *ctree.DirtySet
	roots   map[uint64]*ctree.Root // trees whose root moved since their item was written
	pending []*NewSubvol           // subvolumes and snapshots that the commit makes
	writers int                    // open handles
	starts  int                    // of these, the ones that Start opened
	// ordered extents that a log has and the trees do not yet: Attach
	ordered []sched.Event
	whole   bool // no more of them: a task that finishes ordered extents commits
	done    bool
	err     error
	began   int64 // Task.Now; only with a committer
}

// The waits of a transaction, as events of sched.WaitGraph. The committer owes the first two; every
// task with an open handle owes the third once, but the committer, who does not wait for its own.
type (
	unblocking struct{ tx *Transaction } // new handles are let in again
	durable    struct{ tx *Transaction }
	handles    struct{ tx *Transaction } // the handles but the committer's have ended
)

func (e unblocking) Event() (name, verb string) {
	return fmt.Sprintf("the commit of transaction %d", e.tx.id), "get through"
}

func (e durable) Event() (name, verb string) {
	return fmt.Sprintf("the commit of transaction %d", e.tx.id), "finish"
}

func (e handles) Event() (name, verb string) {
	return fmt.Sprintf("the open handles of transaction %d", e.tx.id), "end"
}

// Handle is a task's part in a transaction. It belongs to one task.
type Handle struct {
	m     *Manager
	tx    *Transaction
	tr    ctree.Trans
	rsv   spaceinfo.BlockRsv
	refs  int
	start bool // Start opened it, not Join
	// reserved is the bytes that it began with, for a tracer.
	reserved uint64
}

// Manager runs the transactions of one file system and holds its metadata parts.
type Manager struct {
	Forest  *ctree.Forest
	Volumes *volumes.Volumes
	Space   *spaceinfo.Space
	Extents *extenttree.ExtentTree
	Quota   *qgroup.Quota

	readOnly   bool
	dirtyLimit int64         // bytes; 0 is none
	super      *format.Super // of the last commit; replaced, never changed

	// features that the next superblock has besides
	incompat atomic.Uint64
	label    atomic.Pointer[string] // nil: as it is
	skip     uint64                 // generations that the first transaction leaves out
	grown    atomic.Int64           // bytes of total_bytes that the next commit adds
	devices  atomic.Int64           // and devices

	quotaMu lock.Mutex // one change of the configuration of quotas at a time

	commitMu lock.Mutex
	hooks    []func(t *sched.Task, h *Handle) error
	settled  []func(t *sched.Task)

	// logMu keeps the superblock of a log from the device until that of the commit before its
	// transaction is there: the log changes what that commit wrote. Models fs_info->tree_log_mutex.
	logMu lock.Mutex

	superMu  lock.Mutex // one superblock write at a time; protects the two below
	superGen uint64     // generation of the superblock on the devices
	guarded  []guarded  // the devices that other programs can get at

	mu         lock.Mutex // leaf; protects the fields below, super and those of Transaction
	state      sched.Shared
	waiters    lock.Cond // handles wait for blocked to end
	writers    lock.Cond // the committer waits for handles to end, and for attached ordered extents
	ended      lock.Cond // Commit waits for somebody else's commit
	running    *Transaction
	committing *Transaction
	closing    bool // Start waits
	blocked    bool // and Join, too
	aborted    error
	broken     atomic.Bool // aborted is set; read without mu
	roots      map[uint64]*ctree.Root

	committer *sched.Task // nil without one
	interval  int64       // nanoseconds after which it commits; 0 without one
	idle      lock.WaitQueue
	begun     atomic.Bool // a transaction has begun since the committer found none
	stop      atomic.Bool

	// the highest id that a subvolume has or had since the open; 0 is not known yet. The
	// committer's
	lastSubvol uint64
}

// OnCommit adds a hook that every commit runs with a handle open, first while other handles are
// open and again when none is: it brings into the trees what is kept outside (inode items). Call it
// before the first transaction.
func (m *Manager) OnCommit(f func(t *sched.Task, h *Handle) error) { m.hooks = append(m.hooks, f) }

// OnSettled adds a function that every commit calls when nothing of its transaction can change any
// more and no other handle is open: what the commit makes needless is freed there. Call it before
// the first transaction.
func (m *Manager) OnSettled(f func(t *sched.Task)) { m.settled = append(m.settled, f) }

// Start opens a handle that can insert the given number of items: CalcInsert(items) bytes of
// metadata are reserved first, which may sleep for a flush. A task with an open handle gets the
// same one again, without a new reservation. Errors: ENOSPC, EROFS. Models
// btrfs_start_transaction().
//
// Preconditions: no page and no extent range of the task's own is needed by a flush; see
// spaceinfo.Info.Reserve.
func (m *Manager) Start(t *sched.Task, items int) (*Handle, error) {
	return m.start(t, nil, items, spaceinfo.FlushAll)
}

// StartIn is Start for items of subvolume r, in whose qgroup a tree block for each is reserved
// first. Errors: EDQUOT as well. Models btrfs_start_transaction() with the root of a subvolume.
func (m *Manager) StartIn(t *sched.Task, r *ctree.Root, items int) (*Handle, error) {
	return m.start(t, r, items, spaceinfo.FlushAll)
}

// StartDelete is Start for a change that makes room: when metadata is full, its reservation comes
// out of the global reserve, or nothing could ever be deleted, and no quota is in its way. Models
// btrfs_start_transaction_fallback_global_rsv(). Difference: it reserves nothing in a qgroup; there
// it reserves over any limit.
func (m *Manager) StartDelete(t *sched.Task, items int) (*Handle, error) {
	return m.start(t, nil, items, spaceinfo.FlushAllSteal)
}

func (m *Manager) start(t *sched.Task, r *ctree.Root, items int, mode spaceinfo.FlushMode) (*Handle, error) {
	if h := current(t); h != nil {
		h.refs++
		return h, nil
	}
	if m.readOnly {
		return nil, errno.EROFS
	}
	m.relieve(t)
	if r != nil && m.Quota.On() {
		return m.startQuota(t, r.ID, items, mode)
	}
	return m.reserveJoin(t, items, mode)
}

// reserveJoin reserves the space and opens a handle.
func (m *Manager) reserveJoin(t *sched.Task, items int, mode spaceinfo.FlushMode) (*Handle, error) {
	bytes := m.Space.CalcInsert(items)
	if bytes > 0 {
		if err := m.Space.Metadata().Reserve(t, bytes, mode); err != nil {
			return nil, err
		}
		m.tracedReserve(t, int64(bytes))
	}
	return m.join(t, bytes, true)
}

// tracedReserve tells a tracer of bytes that a handle reserves or gives back.
func (m *Manager) tracedReserve(t *sched.Task, bytes int64) {
	if t.Tracing() && bytes != 0 {
		t.Trace(sched.TraceEvent{Name: "btrfs_space_reservation", What: "transaction", Val: bytes})
	}
}

// StartReserved is Start with bytes that the caller has reserved in the metadata account: a task
// that has an extent range locked must not wait for space.
func (m *Manager) StartReserved(t *sched.Task, bytes uint64) (*Handle, error) {
	return m.openReserved(t, bytes, true)
}

// TryStart is Start without items for a task that has ranges of ordered extents locked, which a
// commit may wait for: nil when a commit keeps new handles out. Difference: the kernel locks no
// extents while it logs.
func (m *Manager) TryStart(t *sched.Task) *Handle {
	m.lockWrite(t)
	if m.closing || m.blocked || m.aborted != nil {
		m.mu.Unlock(t)
		return nil
	}
	return m.enter(t, 0, true)
}

// startQuota is start with a reservation in a subvolume's qgroup, which is the transaction's once
// there is a handle: before, the commit of a transaction that this task is not in would give it
// back. Models the two steps of start_transaction().
func (m *Manager) startQuota(t *sched.Task, root uint64, items int, mode spaceinfo.FlushMode) (*Handle, error) {
	n, err := m.Quota.ReserveMeta(t, root, uint64(items)*m.Space.NodeSize(), true, false)
	if err != nil {
		return nil, err
	}
	h, err := m.reserveJoin(t, items, mode)
	if err != nil {
		m.Quota.Free(t, root, n, qgroup.MetaPrealloc)
		return nil, err
	}
	m.Quota.Convert(t, root, n)
	return h, nil
}

// Join opens a handle without a reservation: its blocks come from the global reserve. Models
// btrfs_join_transaction().
func (m *Manager) Join(t *sched.Task) (*Handle, error) { return m.JoinReserved(t, 0) }

// JoinReserved opens a handle that owns bytes which the caller has reserved in the metadata
// account: what the handle does not use goes back to the account at End, also when JoinReserved
// fails. Its caller may be the completion of an ordered extent: a commit lets it in while it waits
// for those.
func (m *Manager) JoinReserved(t *sched.Task, bytes uint64) (*Handle, error) {
	return m.openReserved(t, bytes, false)
}

// openReserved is StartReserved, or JoinReserved without start.
func (m *Manager) openReserved(t *sched.Task, bytes uint64, start bool) (*Handle, error) {
	if h := current(t); h != nil {
		h.refs++
		h.rsv.Add(t, bytes)
		return h, nil
	}
	if m.readOnly {
		m.Space.Metadata().Release(t, bytes)
		return nil, errno.EROFS
	}
	if start {
		m.relieve(t)
		m.tracedReserve(t, int64(bytes))
	} else {
		m.relieveJoin(t)
	}
	return m.join(t, bytes, start)
}

// relieveJoin is relieve for a task that may be finishing ordered extents: the commit must not wait
// for one that this task has in hand or would finish next. So there is none, and from here on none
// is attached.
func (m *Manager) relieveJoin(t *sched.Task) {
	if m.dirtyLimit == 0 || !m.overLimit(t) {
		return
	}
	m.lockWrite(t)
	tx := m.running
	if tx == nil || len(tx.ordered) > 0 {
		m.mu.Unlock(t)
		return
	}
	tx.whole = true
	m.mu.Unlock(t)
	_ = m.commitOne(t, tx) // as in relieve
}

// queuedRefBytes is the memory of a queued reference, rounded up.
const queuedRefBytes = 256

// relieve commits when the running transaction keeps more in memory than it may: what it has
// changed is clean only then. The task that is about to open a handle does it, and those that come
// meanwhile wait for it. The task may hold inodes and extents, which no commit needs. Models
// btrfs_btree_balance_dirty() and btrfs_should_end_transaction(). Difference: the kernel writes the
// blocks back and goes on with the transaction.
func (m *Manager) relieve(t *sched.Task) {
	if m.dirtyLimit != 0 && m.overLimit(t) {
		_ = m.Commit(t) // a failed one aborts, and join says so
	}
}

func (m *Manager) overLimit(t *sched.Task) bool {
	return m.DirtyBytes(t)+m.Extents.QueuedRefs()*queuedRefBytes > m.dirtyLimit
}

// DirtyBytes is the bytes of tree blocks that the running transaction has changed.
func (m *Manager) DirtyBytes(t *sched.Task) int64 {
	m.lockRead(t)
	defer m.mu.Unlock(t)
	if m.running == nil {
		return 0
	}
	return m.running.dirty.Count() * int64(m.Space.NodeSize())
}

// current is the task's open handle, or nil.
func current(t *sched.Task) *Handle {
	h, _ := t.Journal.(*Handle)
	return h
}

// lockWrite takes mu for a change of what it protects, and tells the race detector of an explorer.
func (m *Manager) lockWrite(t *sched.Task) {
	m.mu.Lock(t)
	m.state.Write(t, nameState)
}

// lockRead takes mu for a look.
func (m *Manager) lockRead(t *sched.Task) {
	m.mu.Lock(t)
	m.state.Read(t, nameState)
}

// join opens a handle, for Start if start is set, once no commit keeps it out.
func (m *Manager) join(t *sched.Task, bytes uint64, start bool) (*Handle, error) {
	lockdep.MightWait(t, classWait)
	m.mu.Lock(t)
	for (m.blocked || m.closing && start) && m.aborted == nil {
		m.waiters.WaitFor(t, unblocking{m.running})
	}
	m.state.Write(t, nameState)
	if m.aborted != nil {
		m.mu.Unlock(t)
		m.Space.Metadata().Release(t, bytes)
		return nil, errno.EROFS
	}
	return m.enter(t, bytes, start), nil
}

// enter opens a handle of the running transaction, which it begins if there is none. It is called
// with mu and lets it go.
func (m *Manager) enter(t *sched.Task, bytes uint64, start bool) *Handle {
	m.mu.AssertHeld(t)
	wake := false
	if m.running == nil {
		m.running = &Transaction{id: m.super.Generation + 1 + m.skip, dirty: ctree.NewDirtySet(), roots: make(map[uint64]*ctree.Root)}
		if c := m.committing; c != nil {
			m.running.id = c.id + 1
		}
		if m.interval > 0 {
			m.running.began = t.Now()
			wake = m.begun.CompareAndSwap(false, true)
		}
	}
	tx := m.running
	tx.writers++
	if start {
		tx.starts++
	}
	t.Owe(handles{tx})
	m.mu.Unlock(t)
	if wake {
		m.idle.Wake(t)
	}
	h := m.open(t, tx, bytes)
	h.start = start
	return h
}

// open makes the handle of a task that counts among tx's writers.
func (m *Manager) open(t *sched.Task, tx *Transaction, bytes uint64) *Handle {
	h := &Handle{m: m, tx: tx, refs: 1}
	m.Space.InitRsv(&h.rsv, bytes)
	h.reserved = bytes
	h.tr = ctree.Trans{ID: tx.id, Dirty: tx.dirty, Priv: &h.rsv, RootDirtied: func(r *ctree.Root) {
		m.lockWrite(t)
		tx.roots[r.ID] = r
		m.mu.Unlock(t)
	}}
	t.Journal = h
	return h
}

// Trans returns the argument of tree operations.
func (h *Handle) Trans() *ctree.Trans { return &h.tr }

// Transid is the generation of what the handle changes.
func (h *Handle) Transid() uint64 { return h.tr.ID }

// End closes the handle and returns what it did not use. Errors: EROFS when the transaction was
// aborted. Models btrfs_end_transaction().
func (h *Handle) End(t *sched.Task) error {
	if h.refs--; h.refs > 0 {
		return nil
	}
	m := h.m
	t.Journal = nil
	if h.start {
		m.tracedReserve(t, -int64(h.reserved))
	}
	h.rsv.ReleaseAll(t)
	if m.Extents.GlobalShort(t) {
		m.Extents.FillGlobalReserve(t)
	}
	m.lockWrite(t)
	defer m.mu.Unlock(t)
	t.Discharge(handles{h.tx})
	if h.start {
		h.tx.starts--
	}
	if h.tx.writers--; m.closing {
		m.writers.Broadcast(t)
	}
	if m.aborted != nil {
		return errno.EROFS
	}
	return nil
}

// TakeReserve takes what the handle has not used of its reservation, for the caller, who lent it.
// It comes right before End.
func (h *Handle) TakeReserve(t *sched.Task) uint64 { return h.rsv.TakeAll(t) }

// Attach makes the commit of h's transaction wait for the ordered extent e, whose data a log of the
// transaction has: a commit that frees the log before the trees have the data loses it. OrderedDone
// ends it. It is false when the commit must not wait for any. Models pending_ordered in
// btrfs_log_changed_extents().
//
// Preconditions: h is of Start or TryStart.
func (h *Handle) Attach(t *sched.Task, e sched.Event) bool {
	m := h.m
	m.lockWrite(t)
	defer m.mu.Unlock(t)
	if h.tx.whole {
		return false
	}
	h.tx.ordered = append(h.tx.ordered, e)
	return true
}

// OrderedDone ends Attach: the trees have e, or its transaction is aborted. Models the end of
// btrfs_remove_ordered_extent().
func (m *Manager) OrderedDone(t *sched.Task, e sched.Event) {
	m.lockWrite(t)
	defer m.mu.Unlock(t)
	for _, tx := range []*Transaction{m.running, m.committing} {
		if tx == nil {
			continue
		}
		if i := slices.Index(tx.ordered, e); i >= 0 {
			tx.ordered = slices.Delete(tx.ordered, i, i+1)
			m.writers.Broadcast(t)
			return
		}
	}
}

// Abort gives up the running transaction because of err: nothing of it becomes durable, and the
// file system is read-only from here on. The last commit on the device is untouched. Models
// btrfs_abort_transaction().
func (h *Handle) Abort(t *sched.Task, err error) { h.m.abort(t, err) }

// Shutdown is Abort without a handle: whatever is under way ends with an error.
func (m *Manager) Shutdown(t *sched.Task, err error) { m.abort(t, err) }

func (m *Manager) abort(t *sched.Task, err error) {
	m.lockWrite(t)
	if m.aborted == nil {
		m.broken.Store(true)
		m.aborted = fmt.Errorf("transaction aborted, file system is read-only now: %w", err)
	}
	m.waiters.Broadcast(t)
	m.writers.Broadcast(t)
	m.ended.Broadcast(t)
	m.mu.Unlock(t)
}

// Aborted is why the file system turned read-only, or nil.
func (m *Manager) Aborted(t *sched.Task) error {
	m.lockRead(t)
	defer m.mu.Unlock(t)
	return m.aborted
}

// Broken reports whether Aborted is not nil; it takes no lock.
func (m *Manager) Broken() bool { return m.broken.Load() }

// Generation is the transid of the last durable commit.
func (m *Manager) Generation(t *sched.Task) uint64 { return m.Super(t).Generation }

// Super is the superblock of the last durable commit; the caller does not change it.
func (m *Manager) Super(t *sched.Task) *format.Super {
	m.lockRead(t)
	defer m.mu.Unlock(t)
	return m.super
}

// SetLabel sets the label that the next commit writes; the caller has a handle open.
func (m *Manager) SetLabel(label string) { m.label.Store(&label) }

// AddTotalBytes changes the size of the file system in the superblock by n bytes, from the next
// commit on.
func (m *Manager) AddTotalBytes(n int64) { m.grown.Add(n) }

// AddIncompat sets incompatible features that the next commit writes; the caller has a handle open.
func (m *Manager) AddIncompat(features uint64) { m.incompat.Or(features) }

// Running is the transid of the running transaction, 0 when there is none.
func (m *Manager) Running(t *sched.Task) uint64 {
	m.lockRead(t)
	defer m.mu.Unlock(t)
	if m.running == nil {
		return 0
	}
	return m.running.id
}

// Commit makes the running transaction durable; without one it waits for a commit that is under
// way. Any data extents in the trees must have been written before (their ordered extents have
// finished). Errors: those of the device and of the trees; the file system is read-only then.
// Models btrfs_commit_transaction().
//
// Preconditions: the task has no open handle.
func (m *Manager) Commit(t *sched.Task) error {
	if current(t) != nil {
		panic("transaction: Commit with an open handle")
	}
	lockdep.MightWait(t, classCommit)
	m.lockRead(t)
	tx := m.running
	if tx == nil {
		c := m.committing
		for c != nil && !c.done && m.aborted == nil {
			m.ended.WaitFor(t, durable{c})
		}
		err := m.aborted
		m.mu.Unlock(t)
		return err
	}
	m.mu.Unlock(t)
	return m.commitOne(t, tx)
}

// commitOne is Commit of tx, which another task may commit first.
func (m *Manager) commitOne(t *sched.Task, tx *Transaction) error {
	m.commitMu.Lock(t)
	defer m.commitMu.Unlock(t)
	m.lockRead(t)
	done, err := tx.done, m.aborted
	m.mu.Unlock(t)
	if done {
		return tx.err
	}
	if err != nil {
		return err
	}
	if err := m.commit(t, tx); err != nil {
		m.abort(t, err)
		return m.Aborted(t)
	}
	return nil
}

// commit is Commit under commitMu.
func (m *Manager) commit(t *sched.Task, tx *Transaction) error {
	m.lockWrite(t)
	tx.writers++
	m.mu.Unlock(t)
	t.Owe(durable{tx})
	defer t.Discharge(durable{tx})
	h := m.open(t, tx, 0)
	defer func() {
		if t.Journal == h { // a step failed
			t.Owe(handles{tx}) // for End, which would discharge another task's else
			_ = h.End(t)
		}
	}()

	// Most of the work, beside other writers.
	if err := m.settle(t, h, false); err != nil {
		return err
	}

	m.lockWrite(t)
	m.closing = true
	t.Owe(unblocking{tx})
	defer t.Discharge(unblocking{tx})
	for tx.starts > 0 && m.aborted == nil {
		m.writers.WaitFor(t, handles{tx})
	}
	// Nothing is attached any more. What is, needs handles to finish, and Join gives them.
	for len(tx.ordered) > 0 && m.aborted == nil {
		m.writers.WaitFor(t, tx.ordered[0])
	}
	m.blocked = true
	for tx.writers > 1 && m.aborted == nil {
		m.writers.WaitFor(t, handles{tx})
	}
	err := m.aborted
	m.mu.Unlock(t)
	if err != nil {
		return err
	}
	if err := m.settle(t, h, true); err != nil {
		return err
	}
	m.Forest.Seal(t, tx.dirty)
	for _, s := range tx.pending {
		if s.Source != nil {
			s.Source.EndSnapshot()
		}
	}
	m.Extents.GroupsSettled(t)
	for _, f := range m.settled {
		f(t)
	}
	pinned := m.Extents.TakePinned()
	sb := m.nextSuper(t, tx)

	t.Journal = nil
	h.rsv.ReleaseAll(t)
	m.logMu.Lock(t)
	m.lockWrite(t)
	tx.writers--
	m.running, m.committing = nil, tx
	m.closing, m.blocked = false, false
	m.waiters.Broadcast(t)
	m.mu.Unlock(t)

	err = m.writeOut(t, tx, sb)
	m.logMu.Unlock(t)
	if err != nil {
		return fmt.Errorf("commit %d: %w", tx.id, err)
	}
	m.Extents.Unpin(t, pinned)
	m.Extents.FillGlobalReserve(t)
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_transaction_commit"})
	}

	m.lockWrite(t)
	m.committing = nil
	tx.done = true
	m.ended.Broadcast(t)
	m.mu.Unlock(t)
	return nil
}

// writeOut brings a sealed transaction to the device: then sb is the file system's superblock.
func (m *Manager) writeOut(t *sched.Task, tx *Transaction, sb *format.Super) error {
	m.logMu.AssertHeld(t)
	if err := m.checkOurs(t); err != nil {
		return err
	}
	if err := m.Forest.WriteOut(t, tx.dirty, m.Volumes); err != nil {
		return fmt.Errorf("write tree blocks: %w", err)
	}
	if err := m.WriteSuper(t, sb, format.SuperMirrorMax); err != nil {
		return err
	}
	m.lockWrite(t)
	m.super = sb
	m.mu.Unlock(t)
	return nil
}

func (m *Manager) runHooks(t *sched.Task, h *Handle) error {
	for _, f := range m.hooks {
		if err := f(t, h); err != nil {
			return err
		}
	}
	return nil
}

// settle runs what is queued into the trees. With final set no other handle is open, and it goes on
// until nothing is queued and every root item is right. Models commit_cowonly_roots().
func (m *Manager) settle(t *sched.Task, h *Handle, final bool) error {
	if err := m.runHooks(t, h); err != nil {
		return err
	}
	if final {
		if err := m.makeSubvols(t, h); err != nil {
			return err
		}
	}
	for counted := false; ; {
		if err := m.Extents.RunDelayedRefs(t, &h.tr, final); err != nil {
			return err
		}
		if !final {
			return nil
		}
		if err := m.Extents.WriteDirtyGroups(t, &h.tr); err != nil {
			return err
		}
		wrote, err := m.writeRootItems(t, h)
		if err != nil {
			return err
		}
		if !wrote && m.Extents.Quiet(t) {
			if !counted && m.Quota.On() {
				counted = true
				if err := m.settleQuota(t, h); err != nil {
					return err
				}
				continue
			}
			if cowed, err := m.cowRootTree(t, h); err != nil || !cowed {
				return err
			}
		}
	}
}

// cowRootTree makes the root of the root tree a block of this transaction: the superblock's
// generation must be that block's, or the image cannot be opened. A transaction that somebody
// joined and nobody used has not touched it. Models the btrfs_cow_block() of
// commit_cowonly_roots().
func (m *Manager) cowRootTree(t *sched.Task, h *Handle) (cowed bool, err error) {
	root := m.Root(format.ROOT_TREE_OBJECTID)
	_, level, gen := root.Pointer()
	if gen == h.tr.ID {
		return false, nil
	}
	p := ctree.Path{LowestLevel: level}
	defer p.Release(t)
	_, err = m.Forest.SearchSlot(t, &h.tr, root, format.Key{}, &p, 0, true)
	return true, err
}

// writeRootItems updates the ROOT_ITEM of every tree whose root moved. The root tree and the chunk
// tree have none: the superblock points at them. Models update_cowonly_root().
func (m *Manager) writeRootItems(t *sched.Task, h *Handle) (wrote bool, err error) {
	for {
		m.lockWrite(t)
		var r *ctree.Root
		for id, x := range h.tx.roots {
			if r == nil || id < r.ID {
				r = x
			}
		}
		if r != nil {
			delete(h.tx.roots, r.ID)
		}
		m.mu.Unlock(t)
		if r == nil {
			return wrote, nil
		}
		if r.ID == format.ROOT_TREE_OBJECTID || r.ID == format.CHUNK_TREE_OBJECTID {
			continue
		}
		if err := m.writeRootItem(t, h, r); err != nil {
			return wrote, fmt.Errorf("root item of tree %d: %w", int64(r.ID), err)
		}
		wrote = true
	}
}

func (m *Manager) writeRootItem(t *sched.Task, h *Handle, r *ctree.Root) error {
	var p ctree.Path
	defer p.Release(t)
	root := m.Root(format.ROOT_TREE_OBJECTID)
	key, err := m.findRootItem(t, r.ID, &p)
	if err != nil {
		return err
	}
	p.Release(t)
	if _, err := m.Forest.SearchSlot(t, &h.tr, root, key, &p, 0, true); err != nil {
		return err
	}
	if len(p.Item()) < format.RootItemSize {
		return fmt.Errorf("root item of %d bytes (an old kernel's) cannot be updated, want %d: %w", len(p.Item()),
			format.RootItemSize, errno.EOPNOTSUPP)
	}
	var it format.RootItem
	it.Decode(p.Item())
	bytenr, level, _ := r.Pointer()
	it.Bytenr, it.Level = bytenr, uint8(level)
	it.Generation, it.GenerationV2 = h.tr.ID, h.tr.ID
	it.LastSnapshot = r.LastSnapshot()
	if r.ID == format.FS_TREE_OBJECTID || r.ID >= format.FIRST_FREE_OBJECTID && r.ID < format.LAST_FREE_OBJECTID {
		it.Ctransid = h.tr.ID
	}
	it.Encode(p.Item())
	m.Forest.DirtyLeaf(t, &h.tr, &p)
	return nil
}

// Root is the tree with the id, one of those that every file system has; a subvolume's belongs to
// its opener (OpenSubvol).
func (m *Manager) Root(id uint64) *ctree.Root { return m.roots[id] }

// Tree finds the tree with the id, which is no subvolume, and opens one that nobody here uses: the
// caller keeps that for as long as the transaction runs.
func (m *Manager) Tree(t *sched.Task, id uint64) (*ctree.Root, error) {
	if r := m.Root(id); r != nil {
		return r, nil
	}
	if r := m.Quota.Tree(); r != nil && r.ID == id {
		return r, nil
	}
	r, _, err := m.OpenSubvol(t, id)
	return r, err
}

// Roots lists the trees that Root knows by id.
func (m *Manager) Roots() []*ctree.Root {
	list := make([]*ctree.Root, 0, len(m.roots))
	for _, r := range m.roots {
		list = append(list, r)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list
}

// ErrNoRoot says that a tree has no ROOT_ITEM.
var ErrNoRoot = errors.New("no root item")

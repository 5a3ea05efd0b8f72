package treelog

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"btrlab/internal/policy"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// How an fsync is logged:
//
//	Log     start      the log trees are made if need be; the task is a writer of the subvolume's log       log_mutex
//	        copy       items of the inode go from the subvolume's tree to the log (copy.go)               log_inode, log_pin
//	        end        one writer less
//	Sync    the subvolume's log     wait for writers, seal its new blocks, number the next sync          log_mutex
//	                                begin to write them
//	        the tree of logs        its ROOT_ITEM for this log; seal, number, write                       log_root_mutex
//	                                wait for its blocks, and for those of all logs that it names
//	        the superblock          flush, primary copy, flush                                           log_super_mutex
//
// The tasks that have logged when the blocks are sealed share one sync (group commit). Two syncs of
// a log may be under way: one that goes to the device, and one that tasks still write for; each
// waits for the one before it.
//
// What is in a log at any time, whatever is logged after it, can be replayed: names that were
// removed in its transaction are known (removed.go), and what depends on them is logged together
// (plan.go). Where anything is in doubt the answer is ErrCommit.

var (
	classMutex     = lockdep.NewClass("log_mutex")
	classRootMutex = lockdep.NewClass("log_root_mutex")
	classWait      = lockdep.NewClass("log_wait")
)

// ErrCommit says that the inode, or the log, needs a commit of the transaction. Models
// BTRFS_LOG_FORCE_COMMIT.
var ErrCommit = errors.New("only a commit can make it durable")

// Logs is the logs of one file system. Models the tree-log fields of struct btrfs_fs_info.
type Logs struct {
	cfg LogConfig

	// unusable is the transaction whose logs must not be synced any more: one of them has half of
	// something. Models fs_info->last_trans_log_full_commit.
	unusable atomic.Uint64

	// orders are those of the policy in force.
	orders atomic.Pointer[orders]

	top tree // of the logs
	// of the logs that top names since it was sealed last; protected by top.mu
	named []*ctree.Flight
	mu    lock.Mutex
	subs  []*tree // of all subvolumes that were opened; protected by mu
}

// orders is the part of a policy that is about logs: its set, and the steps by which they are
// written.
type orders struct {
	set   policy.Set
	steps steps
}

// off reports whether no inode is logged: then nothing is remembered of names.
func (o *orders) off() bool { return !o.set.Has(policy.FsyncLog) }

// leaves is how items are put into the leaves of logs: the patches L1 to L3 of seed 003;
// labs/reference 6.6.
func (o *orders) leaves() ctree.Leaves {
	return ctree.Leaves{Recheck: !o.set.Has(policy.LogNoRecheck), PushByte: !o.set.Has(policy.LogPushMin), SumAlways: !o.set.Has(policy.LogLazySum)}
}

// LogConfig has the parts that Logs works with.
type LogConfig struct {
	Trans *transaction.Manager
	Store *fstree.Store
	// InMemory is the item of an inode of the subvolume as it is in memory, if it is there: the
	// tree gets it with the commit.
	InMemory func(t *sched.Task, subvol uint64, ino format.Ino) (it format.InodeItem, ok bool)
	// Item, if set, puts each file extent into a log: a lab's order of the steps.
	Item func(t *sched.Task, s ItemSteps) error
	// Forget lets a memory device drop the versions of blocks that no log has any more, before the
	// commit: nobody looks at a device that keeps no data after a power cut.
	Forget bool
	// SmallLeaf is ctree.Leaves.Small for the trees of logs.
	SmallLeaf int
}

// tree is the log of one subvolume, or the tree of logs. Models the log fields of struct
// btrfs_root.
type tree struct {
	subvol uint64 // never changes

	// Read without a lock.
	in    atomic.Uint64 // the transaction that root is of; written under mu
	batch atomic.Uint64 // counts the tasks that come to write: log_batch

	// Written under mu. A writer (active) and the committer, which waits for the writers, read root
	// and store without it: they change when there is no writer.
	root  *ctree.Root // nil in a transaction that has logged nothing
	store *fstree.Store

	mu     lock.Mutex        // log_mutex; protects the fields below
	wait   lock.Cond         // for writers to end, and for syncs
	data   sched.Shared      // those fields, to an explorer
	active int               // tasks that write: log_writers
	first  *sched.Task       // that logged in this transaction: log_start_pid
	many   bool              // it is not the only one: BTRFS_ROOT_MULTI_LOG_TASKS
	next   uint64            // the number of the sync that takes what is written now: log_transid
	synced uint64            // the last one that is durable: log_transid_committed
	busy   [2]bool           // a sync with this number modulo 2 is under way: log_commit
	dirty  *ctree.DirtySet   // the blocks that no sync has sealed
	failed []*ctree.DirtySet // blocks of syncs that failed: some may be dirty for ever

	removed removed    // has a lock of its own
	pin     lock.RWSem // shared by changes of names, alone to log names; protects named
	named   named
}

// nameLog is the name of a tree's fields in reports of data races.
const nameLog = sched.Label("state of a log")

func (l *tree) init(subvol uint64, mutex *lockdep.Class) {
	l.subvol, l.next = subvol, 1
	l.mu.Init(mutex)
	l.wait.Init(&l.mu, classWait)
	l.removed.mu.Init(classNames)
	l.pin.Init(classPin)
}

// NewLogs makes the logs of a file system. Configure comes before the first Log.
func NewLogs() *Logs {
	l := &Logs{}
	l.Follow(policy.Set{})
	l.mu.Init(classNames)
	l.top.init(format.ROOT_TREE_OBJECTID, classRootMutex)
	return l
}

// Configure says what the logs work with. Every commit must call Free when its transaction is
// settled.
func (l *Logs) Configure(c LogConfig) { l.cfg = c }

// Follow makes the logs follow a policy. The caller has no operation in flight.
func (l *Logs) Follow(set policy.Set) { l.orders.Store(&orders{set, stepsOf(&set)}) }

// Attach gives a subvolume that was opened its log.
func (l *Logs) Attach(t *sched.Task, r *ctree.Root) {
	s := new(tree)
	s.init(r.ID, classMutex)
	r.Priv = s
	l.mu.Lock(t)
	l.subs = append(l.subs, s)
	l.mu.Unlock(t)
}

// of is the log of the inode's subvolume.
func of(r *ctree.Root) *tree { return r.Priv.(*tree) }

// Ticket is a task's part in a log: the sync that makes it durable.
type Ticket struct {
	log  *tree
	sync uint64
}

// Log copies what the transaction of h did to a regular file or a directory to the log of its
// subvolume. After it Sync makes that durable, with h still open. The ordered extents are logged
// from what they say; the caller attaches them (AttachOrdered). Any error means that the caller
// ends h, waits for them and commits; ErrCommit is the usual one. Models btrfs_log_dentry_safe().
//
// Preconditions: ip is locked (i_rwsem), and so is its whole extent range; list is its ordered
// extents, ascending, all of them written; h is of Start or TryStart.
func (l *Logs) Log(t *sched.Task, h *transaction.Handle, ip *inode.Inode, list []*ordered.Extent) (Ticket, error) {
	log := of(ip.Root)
	log.batch.Add(1)
	dir, err := l.mayLog(t, h, ip)
	if err != nil {
		return Ticket{}, err
	}
	k, err := l.start(t, h, log)
	if err != nil {
		return k, err
	}
	defer log.end(t)
	ip.LockLog(t)
	defer ip.UnlockLog(t)
	last := ip.Logged(t)
	var ends uint64
	if n := len(list); n > 0 {
		ends = list[n-1].End()
	}
	more := slices.ContainsFunc(list, func(e *ordered.Extent) bool { return e.LoggedIn != h.Transid() })
	if changed := ip.TakeUnlogged(); !changed && !more && last.Transid == h.Transid() {
		return Ticket{log, last.Sync}, nil
	}
	c := l.copier(t, h, log, ip, dir, last)
	c.ordered, c.ends = list, ends
	items := ip.TakeItemsChanged(h.Transid())
	size, changed, err := c.copy(items)
	switch {
	case err != nil && changed:
		l.spoil(h)
		return k, err
	case err != nil:
		// The log is as it was. An fsync that comes before the caller's commit must find that there
		// is something to log.
		ip.Relog(h.Transid(), items)
		return k, err
	}
	t.CountLog(sched.LogFsyncs, 1)
	for _, e := range list {
		e.LoggedIn = h.Transid()
	}
	ip.SetLogged(t, inode.Logged{Transid: h.Transid(), Sync: k.sync, Size: size})
	return k, nil
}

// AttachOrdered makes the commit of h's transaction wait for the ordered extents of list, which Log
// has logged. ErrCommit: it must not.
//
// Preconditions: those of Log, still.
func (l *Logs) AttachOrdered(t *sched.Task, h *transaction.Handle, ip *inode.Inode, list []*ordered.Extent) error {
	for _, e := range list {
		if !h.Attach(t, e) {
			return ErrCommit
		}
		if !ip.Ordered.Attach(t, e) {
			l.cfg.Trans.OrderedDone(t, e) // the trees have it, or it is attached already
		}
	}
	return nil
}

// CommitNext makes every later fsync of transaction transid commit: it changes what no log can say.
// Models btrfs_set_log_full_commit().
//
// Preconditions: a handle of the transaction is open.
func (l *Logs) CommitNext(transid uint64) { l.unusable.Store(transid) }

// spoil is CommitNext of h's transaction, whose log has half of something.
func (l *Logs) spoil(h *transaction.Handle) { l.unusable.Store(h.Transid()) }

// usable reports whether the logs of h's transaction can be replayed after a crash. Models
// !btrfs_need_log_full_commit().
func (l *Logs) usable(h *transaction.Handle) bool {
	return l.unusable.Load() != h.Transid() && !l.cfg.Trans.Extents.NewGroups()
}

// trans is the transaction as the trees of logs see it: their blocks belong to a set of their own,
// and no root item waits for the commit.
func (l *tree) trans(h *transaction.Handle) ctree.Trans {
	return ctree.Trans{ID: h.Transid(), Dirty: l.dirty}
}

// make makes the tree if the transaction has none. The lock is held.
func (l *Logs) make(t *sched.Task, h *transaction.Handle, log *tree) error {
	log.mu.AssertHeld(t)
	if log.root != nil {
		return nil
	}
	log.dirty = ctree.NewDirtySet()
	tr := log.trans(h)
	root, err := l.cfg.Trans.Forest.NewRoot(t, &tr, format.TREE_LOG_OBJECTID)
	if err != nil {
		return err
	}
	log.root, log.named = root, newNamed()
	log.first, log.many = t, false
	s := *l.cfg.Store
	s.ExtentTree, s.Csums = noRefs{}, l.cfg.Store.CsumsIn(root)
	log.store = &s
	log.in.Store(h.Transid())
	return nil
}

// start makes the task a writer of the log. Models start_log_trans().
func (l *Logs) start(t *sched.Task, h *transaction.Handle, log *tree) (Ticket, error) {
	if l.top.in.Load() != h.Transid() {
		l.top.mu.Lock(t)
		l.top.data.Write(t, nameLog)
		err := l.make(t, h, &l.top)
		l.top.mu.Unlock(t)
		if err != nil {
			return Ticket{}, err
		}
	}
	log.mu.Lock(t)
	defer log.mu.Unlock(t)
	log.data.Write(t, nameLog)
	if !l.usable(h) {
		return Ticket{}, ErrCommit
	}
	if err := l.make(t, h, log); err != nil {
		return Ticket{}, err
	}
	log.active++
	log.many = log.many || log.first != t
	return Ticket{log, log.next}, nil
}

// end ends start. Models btrfs_end_log_trans().
func (l *tree) end(t *sched.Task) {
	l.mu.Lock(t)
	l.data.Write(t, nameLog)
	if l.active--; l.active == 0 {
		l.wait.Broadcast(t)
	}
	l.mu.Unlock(t)
}

// enter waits until sync number n of the log is durable, or the caller's to do: then it is under
// way. The lock is held, and let go meanwhile. Models the first part of btrfs_sync_log() with
// wait_log_commit().
func (l *Logs) enter(t *sched.Task, h *transaction.Handle, log *tree, n uint64) (done bool, err error) {
	log.mu.AssertHeld(t)
	for log.synced < n && log.busy[n%2] {
		log.wait.Wait(t)
	}
	switch {
	case log.synced >= n:
		return true, nil
	case !l.usable(h) || log.next > n: // the sync of that number failed
		return false, ErrCommit
	}
	log.busy[n%2] = true
	for log.busy[(n+1)%2] {
		log.wait.Wait(t)
	}
	return false, nil
}

// tick is one of a kernel with 250 a second.
const tick = 4 * time.Millisecond

// leave ends sync number n, which has sealed the blocks, or none.
func (l *tree) leave(t *sched.Task, n uint64, blocks *ctree.DirtySet, err error) {
	l.mu.Lock(t)
	l.data.Write(t, nameLog)
	l.busy[n%2] = false
	switch {
	case err == nil:
		l.synced = n
	case blocks != nil:
		l.failed = append(l.failed, blocks)
	}
	l.wait.Broadcast(t)
	l.mu.Unlock(t)
}

// seal ends the writing of sync number n: from here on its blocks are copied before a change.
// Returned are the blocks, and where the tree is. The lock is held, and no task writes.
func (l *Logs) seal(t *sched.Task, log *tree, n uint64) (blocks *ctree.DirtySet, bytenr uint64, level int) {
	log.mu.AssertHeld(t)
	if log.next != n || log.active != 0 {
		panic(fmt.Sprintf("treelog: log of tree %d: sync %d with %d writers, the next is %d", log.subvol, n, log.active, log.next))
	}
	blocks, log.dirty = log.dirty, ctree.NewDirtySet()
	l.cfg.Trans.Forest.Seal(t, blocks)
	bytenr, level, _ = log.root.Pointer()
	log.next++
	return blocks, bytenr, level
}

// Sync makes durable what Log gave the ticket for. On error the caller must End h; unless that
// reports an abort, it must commit.
//
// Models btrfs_sync_log(). Differences: who writes the superblock waits for the blocks of every log
// that the tree of logs names, where the kernel's task waits for those of its own log; no sleep for
// more tasks on a disk that turns, but in the real runtime a task that is not the only one lets
// others run first.
//
// Preconditions: h is the handle of Log; the task holds neither an inode's log mutex nor a tree
// block.
func (l *Logs) Sync(t *sched.Task, h *transaction.Handle, k Ticket) error {
	log := k.log
	log.mu.Lock(t)
	log.data.Write(t, nameLog)
	done, err := l.orders.Load().steps.enter(l, t, h, log, k.sync)
	if done || err != nil {
		log.mu.Unlock(t)
		return err
	}
	for {
		batch := log.batch.Load()
		if log.many && t.Runtime() == nil {
			// A goroutine that does not sleep keeps its processor: on a device in memory it would
			// log and sync alone, again and again, while the others are ready to log. One sync for
			// all of them costs hardly more. The kernel sleeps here on a disk that turns only.
			log.mu.Unlock(t)
			t.Yield()
			log.mu.Lock(t)
		}
		if log.many && l.orders.Load().set.Has(policy.LogTick) {
			log.mu.Unlock(t)
			t.Sleep(tick)
			log.mu.Lock(t)
			log.data.Write(t, nameLog)
		}
		for log.active > 0 {
			log.wait.Wait(t)
		}
		if batch == log.batch.Load() || l.orders.Load().set.Has(policy.LogOneWait) {
			break
		}
	}
	if !l.usable(h) {
		log.mu.Unlock(t)
		log.leave(t, k.sync, nil, ErrCommit)
		return ErrCommit
	}
	blocks, bytenr, level := l.seal(t, log, k.sync)
	log.mu.Unlock(t)

	fl, err := l.write(t, blocks)
	if err == nil {
		err = l.syncTop(t, h, log.subvol, bytenr, level, fl)
		err = errors.Join(err, fl.End(t))
	}
	if err != nil {
		l.spoil(h)
	} else {
		l.forget(blocks)
	}
	log.leave(t, k.sync, blocks, err)
	return err
}

// forget is called when the superblock leads to a tree whose newest blocks are those of the set.
func (l *Logs) forget(blocks *ctree.DirtySet) {
	if l.cfg.Forget {
		for _, b := range blocks.Left {
			l.cfg.Trans.Volumes.Forget(b, l.cfg.Trans.Space.NodeSize())
		}
	}
}

// write starts to write blocks that were sealed.
func (l *Logs) write(t *sched.Task, blocks *ctree.DirtySet) (*ctree.Flight, error) {
	n := blocks.Len(t)
	t.CountLog(sched.LogBlocks, n)
	t.CountLog(sched.LogBytes, n*l.cfg.Trans.Forest.NodeSize())
	return l.cfg.Trans.Forest.StartOut(t, blocks, l.cfg.Trans.Volumes)
}

// syncTop makes the tree of logs name the log of subvol at bytenr, whose blocks fl has, and makes
// that durable.
func (l *Logs) syncTop(t *sched.Task, h *transaction.Handle, subvol, bytenr uint64, level int, fl *ctree.Flight) error {
	top := &l.top
	top.mu.Lock(t)
	top.data.Write(t, nameLog)
	if err := l.putRoot(t, h, subvol, bytenr, level); err != nil {
		top.mu.Unlock(t)
		return err
	}
	l.named = append(l.named, fl)
	n := top.next
	steps := &l.orders.Load().steps
	done, err := steps.enter(l, t, h, top, n)
	if done || err != nil {
		top.mu.Unlock(t)
		return err
	}
	blocks, bytenr, level := l.seal(t, top, n)
	named := l.named
	l.named = nil
	top.mu.Unlock(t)

	err = steps.writeTop(l, t, h, blocks, named, bytenr, level)
	if err == nil && !l.usable(h) {
		err = ErrCommit
	}
	if err == nil {
		t.CountLog(sched.LogSupers, 1)
		t.CountLog(sched.LogBytes, format.SuperSize)
		err = steps.super(l, t, h, bytenr, level)
	}
	if err != nil {
		l.spoil(h)
	} else {
		l.forget(blocks)
	}
	top.leave(t, n, blocks, err)
	return err
}

// writeSuper makes the superblock name the tree of logs at bytenr, after a flush.
func (l *Logs) writeSuper(t *sched.Task, h *transaction.Handle, bytenr uint64, level int) error {
	return l.cfg.Trans.WriteLogSuper(t, h, bytenr, level, true)
}

// writeTop writes the blocks of the tree of logs, and waits for those of the logs that it names:
// the syncs of other subvolumes may still have theirs on the way.
func (l *Logs) writeTop(t *sched.Task, _ *transaction.Handle, blocks *ctree.DirtySet, named []*ctree.Flight, _ uint64, _ int) error {
	fl, err := l.write(t, blocks)
	if err != nil {
		return err
	}
	err = fl.End(t)
	for _, fl := range named {
		err = errors.Join(err, fl.Wait(t))
	}
	return err
}

// putRoot makes the tree of logs name the log of subvol at bytenr. Models update_log_root() and the
// root item of alloc_log_tree().
func (l *Logs) putRoot(t *sched.Task, h *transaction.Handle, subvol, bytenr uint64, level int) error {
	l.top.mu.AssertHeld(t)
	it := format.RootItem{
		Inode:  format.InodeItem{Generation: 1, Size: 3, Nbytes: l.cfg.Trans.Space.NodeSize(), Nlink: 1, Mode: format.S_IFDIR | 0o755},
		Bytenr: bytenr, Level: uint8(level), Generation: h.Transid(), GenerationV2: h.Transid(),
	}
	var b [format.RootItemSize]byte
	it.Encode(b[:])
	tr := l.top.trans(h)
	key := format.Key{Objectid: format.TREE_LOG_OBJECTID, Type: format.ROOT_ITEM_KEY, Offset: subvol}
	var p ctree.Path
	defer p.Release(t)
	found, err := l.cfg.Trans.Forest.SearchSlot(t, &tr, l.top.root, key, &p, 0, true)
	if err != nil {
		return err
	}
	if !found {
		p.Release(t)
		return l.cfg.Trans.Forest.InsertItem(t, &tr, l.top.root, key, b[:])
	}
	copy(p.Item(), b[:])
	return nil
}

// Free frees the logs of the transaction that is committed: the commit has all that they have.
// Models btrfs_free_log() and btrfs_free_log_root_tree().
//
// Preconditions: no handle of the transaction is open but the committer's.
func (l *Logs) Free(t *sched.Task) {
	l.mu.Lock(t)
	subs := l.subs
	l.mu.Unlock(t)
	for _, log := range subs {
		l.freeOne(t, log)
	}
	l.freeOne(t, &l.top)
	l.named = nil
	f := l.cfg.Trans.Forest
	l.cfg.Trans.Extents.FreeLogs(t, func(bytenr uint64) { f.DropBuffer(t, bytenr) })
}

func (l *Logs) freeOne(t *sched.Task, log *tree) {
	log.mu.Lock(t)
	defer log.mu.Unlock(t)
	log.data.Write(t, nameLog)
	if log.active > 0 || log.busy != [2]bool{} {
		panic(fmt.Sprintf("treelog: log of tree %d is freed with %d writers, syncs under way %v", log.subvol, log.active, log.busy))
	}
	if log.root == nil {
		return
	}
	log.root.Close()
	l.cfg.Trans.Forest.Discard(t, log.dirty)
	for _, blocks := range log.failed { // other blocks will lie there
		l.cfg.Trans.Forest.Discard(t, blocks)
	}
	log.root, log.dirty, log.failed, log.named = nil, nil, nil, named{}
}

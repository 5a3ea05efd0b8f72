package fs

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"btrlab/internal/policy"

	"btrlab/internal/data/inode"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath/setsize"
	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// The inode cache. An inode is in memory once. While somebody has a reference it stays; without one
// it stays as long as there is room, or something of it waits for writeback or for a commit. The
// last reference to an inode without a name deletes it.

var (
	classShard     = lockdep.NewClass("inode_cache")
	classNew       = lockdep.NewClass("inode_new")
	classHook      = lockdep.NewClass("inode_hook")
	classShrink    = lockdep.NewClass("inode_shrink")
	classSubvol    = lockdep.NewClass("subvol_open")
	classSubvolSem = lockdep.NewClass("subvol_sem")
	classRename    = lockdep.NewClass("s_vfs_rename_mutex")
)

const cacheShards = 64

// node states.
const (
	nodeNew      uint32 = iota // being read
	nodeLive                   //
	nodeFailed                 // could not be read; not in the cache any more
	nodeEvicting               // being deleted
)

// nodeKey is the identity of an inode: inode numbers are unique in one subvolume only.
type nodeKey struct {
	root uint64
	ino  format.Ino
}

func (n *Node) key() nodeKey { return nodeKey{n.vol.root.ID, n.ip.Ino} }

type shard struct {
	mu    lock.Mutex // leaf; protects nodes and the refs of each
	nodes map[nodeKey]*Node
	_     [32]byte
}

// put and drop change the map, which the caller has locked: a task that looks at it at the same
// time would crash the program.
func (s *shard) put(t *sched.Task, k nodeKey, n *Node) {
	s.mu.AssertHeld(t)
	s.nodes[k] = n
}

func (s *shard) drop(t *sched.Task, k nodeKey) {
	s.mu.AssertHeld(t)
	delete(s.nodes, k)
}

type icache struct {
	shards [cacheShards]shard
	count  atomic.Int64
	limit  int64          // count above which unused inodes are dropped
	next   atomic.Int64   // count above which prune looks again; at least limit
	wait   lock.WaitQueue // for a node to be read or deleted, or a subvolume to be opened

	// hookMu keeps pruning out while the items of dirty inodes are written: in between an inode
	// looks clean and is not in the tree yet.
	hookMu lock.Mutex

	shrinkMu lock.Mutex            // one task writes for want of memory
	failed   atomic.Pointer[error] // of data that shrink could not write; the next Sync returns it
}

func (c *icache) init(limit int) {
	c.limit = int64(limit)
	c.next.Store(c.limit)
	for i := range c.shards {
		c.shards[i].mu.Init(classShard)
		c.shards[i].nodes = make(map[nodeKey]*Node)
	}
	c.wait.Init(classNew)
	c.hookMu.Init(classHook)
	c.shrinkMu.Init(classShrink)
}

func (c *icache) shard(k nodeKey) *shard { return &c.shards[(k.root+uint64(k.ino))%cacheShards] }

// get takes one more reference of a node that the caller has one of.
func (f *FS) get(t *sched.Task, n *Node) *Node {
	s := f.inodes.shard(n.key())
	s.mu.Lock(t)
	n.refs++
	s.mu.Unlock(t)
	return n
}

// igetEntry finds the inode that an entry of dir leads to: of dir's subvolume, or the top directory
// of another. The task has no lock.
func (f *FS) igetEntry(t *sched.Task, dir *Node, it format.DirItem) (*Node, error) {
	if it.Location.Type == format.ROOT_ITEM_KEY {
		return f.enter(t, dir, it)
	}
	return f.igetHere(t, dir, it)
}

// igetHere finds the inode that an entry of dir leads to in dir's subvolume; dir may be locked.
//
// Preconditions: it is no entry of a subvolume.
func (f *FS) igetHere(t *sched.Task, dir *Node, it format.DirItem) (*Node, error) {
	return f.iget(t, dir.vol, format.Ino(it.Location.Objectid))
}

// iget finds an inode in memory or reads it. Models btrfs_iget().
func (f *FS) iget(t *sched.Task, vol *subvol, ino format.Ino) (*Node, error) {
	k := nodeKey{vol.root.ID, ino}
	s := f.inodes.shard(k)
	s.mu.Lock(t)
	if vol.dead.Load() {
		s.mu.Unlock(t)
		return nil, errno.ENOENT
	}
	n := s.nodes[k]
	if n != nil {
		n.refs++
		s.mu.Unlock(t)
		return f.ready(t, n)
	}
	n = &Node{fs: f, ip: &inode.Inode{Ino: ino}, vol: vol, refs: 1}
	s.put(t, k, n)
	s.mu.Unlock(t)
	f.inodes.count.Add(1)
	item, bare, err := f.store.LoadInode(t, vol.root, ino)
	if err == nil {
		f.setUp(n, &item)
		err = n.loadProperties(t, bare)
	}
	if err != nil {
		n.err = err
		s.mu.Lock(t)
		s.drop(t, k)
		s.mu.Unlock(t)
		f.inodes.count.Add(-1)
		n.state.Store(nodeFailed)
		f.inodes.wait.Wake(t)
		return nil, err
	}
	tracedInode(t, "btrfs_inode_request")
	n.ip.SetNoSec(bare)
	// What the running transaction has written into the tree is not durable: fsync must commit it.
	n.ip.LastTransid.Store(item.Transid)
	n.ip.BarLog(item.Transid) // ... and what it has changed is not remembered
	n.state.Store(nodeLive)
	f.inodes.wait.Wake(t)
	return n, nil
}

// tracedInode tells a tracer that an inode is read, made or deleted.
func tracedInode(t *sched.Task, name string) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: name})
	}
}

// inMemory is the item of an inode that is in memory, as it is there.
func (f *FS) inMemory(t *sched.Task, subvol uint64, ino format.Ino) (it format.InodeItem, ok bool) {
	k := nodeKey{subvol, ino}
	s := f.inodes.shard(k)
	s.mu.Lock(t)
	defer s.mu.Unlock(t)
	if n := s.nodes[k]; n != nil && n.state.Load() == nodeLive {
		return n.ip.Item(t), true
	}
	return it, false
}

// ready waits until a node found in the cache has been read.
func (f *FS) ready(t *sched.Task, n *Node) (*Node, error) {
	if n.state.Load() == nodeNew {
		f.inodes.wait.Wait(t, func() bool { return n.state.Load() != nodeNew })
	}
	switch n.state.Load() {
	case nodeFailed:
		return nil, n.err
	case nodeEvicting:
		s := f.inodes.shard(n.key())
		s.mu.Lock(t)
		n.refs--
		s.mu.Unlock(t)
		return nil, errno.ENOENT
	}
	return n, nil
}

func (f *FS) setUp(n *Node, item *format.InodeItem) {
	n.ip = f.data.New(n.vol.root, n.ip.Ino, item)
	n.typ = item.Mode & format.S_IFMT
	f.setLockMode(n)
}

// setLockMode makes the inode's i_rwsem and extent locks behave as the policy says.
func (f *FS) setLockMode(n *Node) {
	p := f.env.Policy()
	mode := extentio.HoldAndWait
	if p.Has(policy.ExtentLockBackOff) {
		mode = extentio.BackOff
	}
	n.ip.IOTree.SetLockMode(mode)
	n.ip.SetHandoff(p.Has(policy.RwsemHandoff))
	n.ip.IOTree.SetNovalidate(p.Novalidate())
}

// insertNew puts an inode that has just been created into the cache, with one reference.
func (f *FS) insertNew(t *sched.Task, vol *subvol, ino format.Ino, item *format.InodeItem) *Node {
	n := &Node{fs: f, ip: &inode.Inode{Ino: ino}, vol: vol, refs: 1, nextIndex: 2}
	f.setUp(n, item)
	tracedInode(t, "btrfs_inode_new")
	n.ip.SetNoSec(true) // it has no attributes yet
	n.state.Store(nodeLive)
	k := n.key()
	s := f.inodes.shard(k)
	s.mu.Lock(t)
	if s.nodes[k] != nil {
		s.mu.Unlock(t)
		panic(fmt.Sprintf("fs: new inode %d of tree %d is in memory already", ino, k.root))
	}
	s.put(t, k, n)
	s.mu.Unlock(t)
	f.inodes.count.Add(1)
	return n
}

// put gives a reference back. The last one deletes an inode without names; an error of that leaves
// the orphan item for the next open. No lock is held.
func (f *FS) put(t *sched.Task, n *Node) { _ = f.putRefs(t, n, 1) }

// putRefs gives count references back and returns the error of the deletion, if there was one.
// Models iput().
func (f *FS) putRefs(t *sched.Task, n *Node, count int) error {
	s := f.inodes.shard(n.key())
	s.mu.Lock(t)
	if n.refs -= count; n.refs < 0 {
		s.mu.Unlock(t)
		panic(fmt.Sprintf("fs: inode %d of tree %d has %d references", n.ip.Ino, n.vol.root.ID, n.refs))
	}
	if n.refs > 0 || f.opt.ReadOnly || n.vol.frozen != nil || n.nlink(t) > 0 || !n.state.CompareAndSwap(nodeLive, nodeEvicting) {
		last := n.refs == 0
		s.mu.Unlock(t)
		if last && f.inodes.count.Load() > f.inodes.next.Load() {
			return f.shrink(t)
		}
		return nil
	}
	n.vol.evicting.Add(1)
	s.mu.Unlock(t)
	err := f.evict(t, n)
	// else nobody waits yet, and who does later looks first
	if n.vol.evicting.Add(-1); n.vol.dead.Load() {
		f.inodes.wait.Wake(t)
	}
	return err
}

// evict deletes an inode without names and references: its data, its items, and its orphan item in
// the same transaction. Models btrfs_evict_inode().
func (f *FS) evict(t *sched.Task, n *Node) error {
	tracedInode(t, "btrfs_inode_evict")
	err := setsize.Evict(t, &f.env, n.ip)
	if err == nil {
		err = f.deleteItems(t, n)
	}
	s := f.inodes.shard(n.key())
	s.mu.Lock(t)
	s.drop(t, n.key())
	s.mu.Unlock(t)
	f.inodes.count.Add(-1)
	return err
}

func (f *FS) deleteItems(t *sched.Task, n *Node) error {
	h, err := f.trans.StartDelete(t, unitsEvict)
	if err != nil {
		return err // the item is still on the dirty list and will say that there are no links
	}
	// before the item goes: a commit that meets the inode then knows why there is none
	n.ip.Forget(t)
	if err := f.store.DeleteInode(t, h.Trans(), n.vol.root, n.ip.Ino); err != nil {
		return f.abort(t, h, err)
	}
	if err := f.store.DelOrphan(t, h.Trans(), n.vol.root, n.ip.Ino); err != nil {
		return f.abort(t, h, err)
	}
	return f.end(t, h, nil)
}

// shrink makes room in the inode cache. Under a bound on memory it does not stop at what is clean:
// it writes data back and commits, so that inodes and tree blocks become clean. No lock is held and
// no transaction is open. The error of a commit is returned; one of data comes with the next Sync.
func (f *FS) shrink(t *sched.Task) error {
	f.prune(t)
	if f.opt.Memory <= 0 || f.opt.ReadOnly || f.inodes.count.Load() <= f.inodes.limit {
		return nil
	}
	if !f.inodes.shrinkMu.TryLock(t) {
		return nil // another task is at it
	}
	defer f.inodes.shrinkMu.Unlock(t)
	if err := f.engine.SyncAll(t); err != nil {
		f.inodes.failed.CompareAndSwap(nil, &err)
	}
	err := f.commit(t)
	f.prune(t)
	return err
}

// prune drops unused inodes that have nothing to write. Models prune_icache_sb().
func (f *FS) prune(t *sched.Task) {
	c := &f.inodes
	if !c.hookMu.TryLock(t) {
		return
	}
	var victims []*Node
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock(t)
		for k, n := range s.nodes {
			if n.refs == 0 && n.state.Load() == nodeLive && clean(t, n) {
				s.drop(t, k)
				victims = append(victims, n)
			}
		}
		s.mu.Unlock(t)
	}
	c.hookMu.Unlock(t)
	// When most of what is left is dirty, the next look waits until there is a quarter more.
	left := c.count.Add(-int64(len(victims)))
	c.next.Store(max(c.limit, left+left/4))
	byIno(victims)
	for _, n := range victims {
		n.ip.EvictPages(t)
	}
}

// clean reports whether n has nothing to write. Data on its way is delayed allocation, then a page
// under writeback or an ordered extent, and in the end a dirty item, and each is there before the
// one before it goes. So they are asked for in that order, or data that moves on meanwhile is in
// none of the answers.
func clean(t *sched.Task, n *Node) bool {
	ip := n.ip
	return ip.DelallocBytes() == 0 && ip.Ordered.Len() == 0 && ip.Pages.DirtyPages(t) == 0 && ip.Pages.WritebackPages(t) == 0 && !ip.Dirty()
}

// busy reports whether somebody has a reference to an inode of vol.
func (f *FS) busy(t *sched.Task, vol *subvol) bool {
	for i := range f.inodes.shards {
		s := &f.inodes.shards[i]
		s.mu.Lock(t)
		for _, n := range s.nodes {
			if n.vol == vol && n.refs > 0 {
				s.mu.Unlock(t)
				return true
			}
		}
		s.mu.Unlock(t)
	}
	return false
}

// discard drops the inodes of vol, which is deleted: nothing of them is written any more. Nobody
// has a reference.
func (f *FS) discard(t *sched.Task, vol *subvol) {
	f.inodes.hookMu.Lock(t)
	var victims []*Node
	for i := range f.inodes.shards {
		s := &f.inodes.shards[i]
		s.mu.Lock(t)
		for k, n := range s.nodes {
			if n.vol == vol {
				s.drop(t, k)
				victims = append(victims, n)
			}
		}
		s.mu.Unlock(t)
	}
	byIno(victims)
	for _, n := range victims {
		n.ip.Forget(t)
	}
	f.inodes.hookMu.Unlock(t)
	f.inodes.count.Add(-int64(len(victims)))
	for _, n := range victims {
		n.ip.EvictPages(t)
	}
}

// writeInodes is the first step of every commit (transaction.OnCommit): the items of changed inodes
// go into the trees.
func (f *FS) writeInodes(t *sched.Task, h *transaction.Handle) error {
	f.inodes.hookMu.Lock(t)
	defer f.inodes.hookMu.Unlock(t)
	return f.data.WriteDirty(t, h.Trans(), f.store)
}

// nodes lists every inode in memory.
func (f *FS) nodes(t *sched.Task) []*Node {
	var all []*Node
	for i := range f.inodes.shards {
		s := &f.inodes.shards[i]
		s.mu.Lock(t)
		for _, n := range s.nodes {
			all = append(all, n)
		}
		s.mu.Unlock(t)
	}
	byIno(all)
	return all
}

// byIno puts inodes in the one order that does not change from run to run.
func byIno(list []*Node) {
	slices.SortFunc(list, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.vol.root.ID, b.vol.root.ID), cmp.Compare(a.ip.Ino, b.ip.Ino))
	})
}

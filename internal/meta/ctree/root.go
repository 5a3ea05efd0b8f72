package ctree

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Root is one tree. The root node changes under the write lock of the old root node, so whoever
// locks a node and then still finds it here has the root.
//
// Models struct btrfs_root, as far as ctree.c looks at it.
type Root struct {
	ID   uint64
	Priv any // the owner's: package treelog keeps a subvolume's log here

	node atomic.Pointer[Buffer] // holds a reference
	// lastSnapshot is the generation of the newest snapshot: a block that is not newer may be
	// shared.
	lastSnapshot atomic.Uint64
	// forceCOW makes even a block of this transaction be copied before a change: a snapshot that
	// the transaction has made may share it. Models BTRFS_ROOT_FORCE_COW.
	forceCOW atomic.Bool

	// SnapshotLock keeps a snapshot of the subvolume and writes of data in place apart: a write
	// holds it from the question whether its range may be overwritten until the range is dirty, or
	// in an ordered extent.
	SnapshotLock lock.DREW
	forceData    atomic.Int32
	forceDataObj sched.Obj // forceData, to an explorer
}

// ForceDataCOW says that a snapshot of the subvolume is being made and all that was dirty before is
// on its way: until by is taken back no data is written in place. Models root->snapshot_force_cow.
func (r *Root) ForceDataCOW(t *sched.Task, by int32) {
	t.Touch(&r.forceDataObj, sched.Writes)
	r.forceData.Add(by)
}

// DataCOWForced reports whether ForceDataCOW is in force.
func (r *Root) DataCOWForced(t *sched.Task) bool {
	t.Touch(&r.forceDataObj, sched.Reads)
	return r.forceData.Load() > 0
}

// BareRoot is a root without a tree: an id, and locks.
func BareRoot(id uint64) *Root {
	r := &Root{ID: id}
	r.SnapshotLock.Init(classSnapshot)
	return r
}

// OpenRoot reads the root node of a tree.
func (f *Forest) OpenRoot(t *sched.Task, id, bytenr uint64, level int, generation, lastSnapshot uint64) (*Root, error) {
	return f.openRoot(t, id, id, bytenr, level, generation, lastSnapshot)
}

// openRoot is OpenRoot of a tree whose blocks have another owner.
func (f *Forest) openRoot(t *sched.Task, id, owner, bytenr uint64, level int, generation, lastSnapshot uint64) (*Root, error) {
	if level < 0 || level >= format.MaxLevel {
		return nil, corruptf(Check{Level: level, Owner: owner}, bytenr, "bad root level, have %d want 0..%d", level, format.MaxLevel-1)
	}
	b, err := f.ReadBlock(t, bytenr, Check{Level: level, Generation: generation, Owner: owner})
	if err != nil {
		return nil, err
	}
	r := BareRoot(id)
	r.lastSnapshot.Store(lastSnapshot)
	r.node.Store(b)
	return r, nil
}

// OpenReloc is OpenRoot of a relocation tree, whose blocks say that they belong to a subvolume.
func (f *Forest) OpenReloc(t *sched.Task, bytenr uint64, level int, generation uint64) (*Root, error) {
	return f.openRoot(t, format.TREE_RELOC_OBJECTID, 0, bytenr, level, generation, 0)
}

// Close ends the use of a root that nobody searches any more: its node may leave the cache.
func (r *Root) Close() {
	if b := r.node.Swap(nil); b != nil {
		b.Put()
	}
}

// FreeRoot gives back the only block of an empty tree, which nobody searches any more.
func (f *Forest) FreeRoot(t *sched.Task, tr *Trans, r *Root) error {
	b := r.node.Swap(nil)
	if b.Node.Nritems() > 0 {
		panic(fmt.Sprintf("ctree: free of tree %d, which has %d items", int64(r.ID), b.Node.Nritems()))
	}
	b.Lock(t)
	return f.freeBlock(t, tr, r, b, true)
}

// Snapshot makes tree id a snapshot of r: a root node of its own that points at all that r's points
// at. From now on every block of r is copied before it is changed, those that this transaction has
// made included, until EndSnapshot.
//
// Models the part of fs/btrfs/transaction.c:create_pending_snapshot() from btrfs_cow_block() to
// BTRFS_ROOT_FORCE_COW, and ctree.c:btrfs_copy_root().
//
// Preconditions: no other handle of the transaction is open; after an error it is aborted.
func (f *Forest) Snapshot(t *sched.Task, tr *Trans, r *Root, id uint64) (*Root, error) {
	_, level, _ := r.Pointer()
	p := Path{LowestLevel: level}
	defer p.Release(t)
	if _, err := f.SearchSlot(t, tr, r, format.Key{}, &p, 0, true); err != nil {
		return nil, err
	}
	old := p.Nodes[level]
	snap := BareRoot(id)
	c, err := f.newBlock(t, tr, snap, level, old.Bytenr, old.firstKey())
	if err != nil {
		return nil, err
	}
	c.Node.SetNritems(old.Node.Nritems())
	copy(c.Node[format.HeaderSize:], old.Node[format.HeaderSize:])
	err = f.alloc.IncRefs(t, tr, snap, c)
	c.Unlock(t)
	if err != nil {
		c.Put()
		return nil, err
	}
	snap.node.Store(c)
	snap.lastSnapshot.Store(tr.ID)
	r.lastSnapshot.Store(tr.ID)
	r.forceCOW.Store(true)
	if tr.RootDirtied != nil {
		tr.RootDirtied(r)
	}
	return snap, nil
}

// EndSnapshot ends what Snapshot began: the transaction changes no tree any more.
func (r *Root) EndSnapshot() { r.forceCOW.Store(false) }

// NewRoot makes an empty tree: one leaf.
func (f *Forest) NewRoot(t *sched.Task, tr *Trans, id uint64) (*Root, error) {
	r := BareRoot(id)
	b, err := f.newBlock(t, tr, r, 0, 0, format.Key{})
	if err != nil {
		return nil, err
	}
	b.Unlock(t)
	r.node.Store(b)
	if tr.RootDirtied != nil {
		tr.RootDirtied(r)
	}
	return r, nil
}

// Pointer returns the fields of the ROOT_ITEM that point at the root node.
func (r *Root) Pointer() (bytenr uint64, level int, generation uint64) {
	b := r.node.Load()
	return b.Bytenr, b.level, b.generation
}

// Dirty reports whether transaction transid has changed the tree.
func (r *Root) Dirty(transid uint64) bool { return r.node.Load().generation == transid }

// LastSnapshot is the generation of the newest snapshot of the tree; a block that is not newer may
// be shared with it.
func (r *Root) LastSnapshot() uint64 { return r.lastSnapshot.Load() }

// lockRoot puts the root node into the empty path, locked: for writing when its level is at most
// writeLevel.
//
// Models fs/btrfs/ctree.c:btrfs_search_slot_get_root() and locking.c:btrfs_lock_root_node().
// Difference: a buffer's level never changes, so the right lock is taken at once.
func (r *Root) lockRoot(t *sched.Task, p *Path, writeLevel int) error {
	for {
		b := r.node.Load()
		if !b.tryGet() {
			// The node was replaced and has left the cache since we looked.
			continue
		}
		kind := lockRead
		switch {
		case b.level <= writeLevel:
			kind = lockWrite
			b.Lock(t)
		case p.Nowait:
			if !b.tryRLock(t) {
				b.Put()
				return kiocb.AgainTree
			}
		default:
			b.rlock(t)
		}
		if b == r.node.Load() {
			p.Nodes[b.level], p.locks[b.level], p.top = b, kind, b.level
			if kind == lockWrite {
				p.holds(t, b.level)
			}
			return nil
		}
		b.unlock(t, kind)
		b.Put()
	}
}

// setRoot makes b, which is write-locked, the root node. The old root node is write-locked as well.
func (r *Root) setRoot(tr *Trans, b *Buffer) {
	if !b.tryGet() {
		panic(fmt.Sprintf("ctree: new root %d of tree %d has left the cache", b.Bytenr, r.ID))
	}
	if old := r.node.Swap(b); old != nil {
		old.Put()
	}
	if tr.RootDirtied != nil {
		tr.RootDirtied(r)
	}
}

// newBlock allocates a block of this transaction, empty, dirty, write-locked and with a reference.
// first is the key that it will begin with.
//
// Models fs/btrfs/extent-tree.c:btrfs_alloc_tree_block() and btrfs_init_new_buffer().
func (f *Forest) newBlock(t *sched.Task, tr *Trans, r *Root, level int, hint uint64, first format.Key) (*Buffer, error) {
	bytenr, err := f.alloc.AllocTreeBlock(t, tr, r, hint)
	if err != nil {
		return nil, err
	}
	b := &Buffer{Bytenr: bytenr, Node: f.newNode(), class: classOf(r.ID),
		owner: r.ID, generation: tr.ID, level: level, ringIdx: -1, dirtyAt: -1}
	b.Node.InitHeader(f.cfg.FSID, f.cfg.ChunkTreeUUID, bytenr, tr.ID, r.ID, level)
	b.refs.Store(1)
	b.state.Store(stateUptodate)
	b.lock.Init(b.class)
	if !b.lock.TryLock(t) {
		panic(fmt.Sprintf("ctree: new block %d is locked", bytenr))
	}
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_tree_lock"}) // its header names no tree yet, in Linux
	}
	f.cache.setDirty(b, true)
	f.cache.add(t, b, true)
	tr.Dirty.add(t, b)
	f.alloc.RefTreeBlock(t, r, bytenr, level, first)
	return b, nil
}

// firstKey is the key that b begins with, zero when it is empty.
func (b *Buffer) firstKey() format.Key {
	if b.Node.Nritems() == 0 {
		return format.Key{}
	}
	return b.Node.Key(0)
}

// freeBlock gives back b, which the tree no longer points at; b is write-locked and is unlocked and
// put. Unless last is set, another tree has it.
//
// Models fs/btrfs/extent-tree.c:btrfs_free_tree_block().
func (f *Forest) freeBlock(t *sched.Task, tr *Trans, r *Root, b *Buffer, last bool) error {
	err := f.freeLocked(t, tr, r, b, last)
	b.Unlock(t)
	b.Put()
	return err
}

// freeLocked is freeBlock that leaves b locked.
func (f *Forest) freeLocked(t *sched.Task, tr *Trans, r *Root, b *Buffer, last bool) error {
	b.lock.AssertHeld(t)
	if last {
		if b.generation == tr.ID && !b.Node.Written() {
			// It never existed on disk, so it need not be written. From FreeTreeBlock on, another
			// task may get the same address: forget the block first.
			tr.Dirty.Remove(t, b)
			f.cache.setDirty(b, false)
		}
		f.cache.drop(t, b)
	}
	return f.alloc.FreeTreeBlock(t, tr, r, b, last)
}

// madeBy reports whether b is a block of the running transaction, which has not been written.
func (b *Buffer) madeBy(tr *Trans) bool {
	return b.generation == tr.ID && b.Node.Flags()&(format.HeaderFlagWritten|format.HeaderFlagReloc) == 0
}

// shouldCOW reports whether b must be copied before it is changed.
//
// Models fs/btrfs/ctree.c:should_cow_block().
func shouldCOW(tr *Trans, r *Root, b *Buffer) bool { return !b.madeBy(tr) || r.forceCOW.Load() }

// mayBeShared reports whether another tree may have b, a node of r's whose parent is parent. A root
// node is its tree's alone.
//
// Models fs/btrfs/ctree.c:btrfs_block_can_be_shared().
func (r *Root) mayBeShared(b, parent *Buffer) bool {
	return parent != nil && (b.generation <= r.lastSnapshot.Load() || b.Node.Flags()&format.HeaderFlagReloc != 0)
}

// cow copies b, the child of parent in slot or the root when parent is nil, to a new block of this
// transaction, and returns the copy. Both blocks are write-locked; b is unlocked and put, and freed
// if no other tree has it. On an error b is as it was, unless only the freeing failed: then the
// copy is in place and returned. An error that is not of the allocation aborts the transaction.
//
// Models fs/btrfs/ctree.c:btrfs_force_cow_block().
func (f *Forest) cow(t *sched.Task, tr *Trans, r *Root, b, parent *Buffer, slot int) (*Buffer, error) {
	c, err := f.newBlock(t, tr, r, b.level, b.Bytenr, b.firstKey())
	if err != nil {
		return nil, err
	}
	// The header is the new block's own, but for the item count. What lies before the fsid is left
	// alone: WriteOut may be storing b's checksum.
	c.Node.SetNritems(b.Node.Nritems())
	copy(c.Node[format.HeaderSize:], b.Node[format.HeaderSize:])
	t.Spend(cost.CopyBlock, 1)
	if b.level == 0 {
		b.count(t, sched.LogCOWed, 1)
	}
	last := true
	if r.mayBeShared(b, parent) {
		if last, err = f.alloc.UpdateRefForCow(t, tr, r, b, c); err != nil {
			_ = f.freeBlock(t, tr, r, c, true)
			return nil, err
		}
	}
	if parent == nil {
		r.setRoot(tr, c)
	} else {
		parent.Node.SetBlockptr(slot, c.Bytenr)
		parent.Node.SetPtrGeneration(slot, tr.ID)
	}
	err = f.freeLocked(t, tr, r, b, last)
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_cow_block", Root: r.ID, Val: int64(b.level)})
	}
	b.Unlock(t)
	b.Put()
	return c, err
}

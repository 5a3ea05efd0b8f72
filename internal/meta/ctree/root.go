package ctree

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/sched"
)

// Root is one tree. The root node changes under the write lock of the old root node, so whoever locks a node and then
// still finds it here has the root.
//
// Models struct btrfs_root, as far as ctree.c looks at it.
type Root struct {
	ID   uint64
	Priv any // the owner's: package transaction keeps the ROOT_ITEM here

	node atomic.Pointer[Buffer] // holds a reference
	// lastSnapshot is the generation of the newest snapshot: a block that is not newer may be shared.
	lastSnapshot uint64
}

// OpenRoot reads the root node of a tree.
func (f *Forest) OpenRoot(t *sched.Task, id, bytenr uint64, level int, generation, lastSnapshot uint64) (*Root, error) {
	if level < 0 || level >= format.MaxLevel {
		return nil, corruptf(Check{Level: level, Owner: id}, bytenr, "bad root level, have %d want 0..%d", level, format.MaxLevel-1)
	}
	b, err := f.ReadBlock(t, bytenr, Check{Level: level, Generation: generation, Owner: id})
	if err != nil {
		return nil, err
	}
	r := &Root{ID: id, lastSnapshot: lastSnapshot}
	r.node.Store(b)
	return r, nil
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
	b.lock.LockNested(t, lockSub(b.level, nestNormal))
	return f.freeBlock(t, tr, r, b)
}

// NewRoot makes an empty tree: one leaf.
func (f *Forest) NewRoot(t *sched.Task, tr *Trans, id uint64) (*Root, error) {
	r := &Root{ID: id}
	b, err := f.newBlock(t, tr, r, 0, 0)
	if err != nil {
		return nil, err
	}
	b.lock.Unlock(t)
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

// LastSnapshot is the generation of the newest snapshot of the tree; a block that is not newer may be shared with it.
func (r *Root) LastSnapshot() uint64 { return r.lastSnapshot }

// lockRoot puts the root node into the empty path, locked: for writing when its level is at most writeLevel.
//
// Models fs/btrfs/ctree.c:btrfs_search_slot_get_root() and locking.c:btrfs_lock_root_node(). Difference: a buffer's level never
// changes, so the right lock is taken at once.
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
			b.lock.LockNested(t, lockSub(b.level, nestNormal))
		case p.Nowait:
			if !b.lock.TryRLock(t) {
				b.Put()
				return kiocb.AgainTree
			}
		default:
			b.lock.RLockNested(t, lockSub(b.level, nestNormal))
		}
		if b == r.node.Load() {
			p.Nodes[b.level], p.locks[b.level], p.top = b, kind, b.level
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
//
// Models fs/btrfs/extent-tree.c:btrfs_alloc_tree_block() and btrfs_init_new_buffer().
func (f *Forest) newBlock(t *sched.Task, tr *Trans, r *Root, level int, hint uint64) (*Buffer, error) {
	bytenr, err := f.alloc.AllocTreeBlock(t, tr, r, level, hint)
	if err != nil {
		return nil, err
	}
	b := &Buffer{Bytenr: bytenr, Node: make(format.Node, f.cfg.NodeSize), class: classOf(r.ID),
		owner: r.ID, generation: tr.ID, level: level, ringIdx: -1, dirtyAt: -1}
	b.Node.InitHeader(f.cfg.FSID, f.cfg.ChunkTreeUUID, bytenr, tr.ID, r.ID, level)
	b.refs.Store(1)
	b.state.Store(stateUptodate)
	b.lock.Init(b.class)
	if !b.lock.TryLock(t) {
		panic(fmt.Sprintf("ctree: new block %d is locked", bytenr))
	}
	f.cache.setDirty(b, true)
	f.cache.add(t, b, true)
	tr.Dirty.add(t, b)
	return b, nil
}

// freeBlock gives back b, which the tree no longer points at; b is write-locked and is unlocked and put.
//
// Models fs/btrfs/extent-tree.c:btrfs_free_tree_block().
func (f *Forest) freeBlock(t *sched.Task, tr *Trans, r *Root, b *Buffer) error {
	if b.generation == tr.ID && !b.Node.Written() {
		// It never existed on disk, so it need not be written. From FreeTreeBlock on, another task may
		// get the same address: forget the block first.
		tr.Dirty.Remove(t, b)
		f.cache.setDirty(b, false)
	}
	f.cache.drop(t, b)
	err := f.alloc.FreeTreeBlock(t, tr, r, b)
	b.lock.Unlock(t)
	b.Put()
	return err
}

// shouldCOW reports whether b must be copied before it is changed.
//
// Models fs/btrfs/ctree.c:should_cow_block().
func shouldCOW(tr *Trans, b *Buffer) bool {
	return b.generation != tr.ID || b.Node.Flags()&(format.HeaderFlagWritten|format.HeaderFlagReloc) != 0
}

// cow copies b, the child of parent in slot or the root when parent is nil, to a new block of this transaction, and
// returns the copy. Both blocks are write-locked; b is freed, unlocked and put. On an error b is as it was, unless
// only the freeing failed: then the copy is in place and returned, and the transaction must be aborted.
//
// Models fs/btrfs/ctree.c:btrfs_force_cow_block().
func (f *Forest) cow(t *sched.Task, tr *Trans, r *Root, b, parent *Buffer, slot int) (*Buffer, error) {
	if parent != nil && (b.generation <= r.lastSnapshot || b.Node.Flags()&format.HeaderFlagReloc != 0) {
		shared, err := f.alloc.SharedBlock(t, tr, r, b)
		if err != nil {
			return nil, err
		}
		if shared {
			return nil, fmt.Errorf("tree block %d of tree %d is shared by a snapshot: %w", b.Bytenr, int64(r.ID), errno.EOPNOTSUPP)
		}
	}
	c, err := f.newBlock(t, tr, r, b.level, b.Bytenr)
	if err != nil {
		return nil, err
	}
	// The header is the new block's own, but for the item count. What lies before the fsid is left alone: WriteOut
	// may be storing b's checksum.
	c.Node.SetNritems(b.Node.Nritems())
	copy(c.Node[format.HeaderSize:], b.Node[format.HeaderSize:])
	if parent == nil {
		r.setRoot(tr, c)
	} else {
		parent.Node.SetBlockptr(slot, c.Bytenr)
		parent.Node.SetPtrGeneration(slot, tr.ID)
	}
	return c, f.freeBlock(t, tr, r, b)
}

package extenttree

import (
	"fmt"
	"slices"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

// The blocks of a log tree lie in metadata space and have no extent item: they are gone with the
// commit of their transaction. Until then none is used again once the device has it, because the
// superblock may name it: it counts as reserved.
//
//	allocLogBlock    free -> reserved    never a new chunk, never the global reserve: the caller can commit instead
//	freeLogBlock     a block that was never written is free again; any other stays
//	FreeLogs         reserved -> pinned  all of them, in the commit; free once the superblock names no log
//
// Models btrfs_alloc_tree_block() and btrfs_free_tree_block() of a log, and free_log_tree().
// Difference: FreeLogs has a list of the blocks and does not walk the trees.

var classLogBlocks = lockdep.NewClass("log_blocks")

// logBlocks is the blocks of the running transaction's logs.
type logBlocks struct {
	mu  lock.Mutex // leaf; protects all, and DirtySet.Left of the trees
	all map[format.Logical]struct{}
}

func (l *logBlocks) init() {
	l.mu.Init(classLogBlocks)
	l.all = make(map[format.Logical]struct{})
}

// allocLogBlock finds room for a block of a log. ENOSPC where it would take more than lies there.
func (e *ExtentTree) allocLogBlock(t *sched.Task) (uint64, error) {
	info := e.space.Metadata()
	if err := info.Reserve(t, e.nodeSize, spaceinfo.NoFlush); err != nil {
		return 0, &errno.OpError{Op: "allocate log block", Err: err}
	}
	start, ok := e.findInGroups(t, format.BlockGroupMetadata, e.nodeSize, e.nodeSize, 0)
	if !ok {
		info.Release(t, e.nodeSize)
		return 0, &errno.OpError{Op: "allocate log block", Err: errno.ENOSPC}
	}
	info.Allocated(t, e.nodeSize)
	tracedReserve(t, format.BlockGroupMetadata, e.nodeSize)
	e.logs.mu.Lock(t)
	e.logs.all[start] = struct{}{}
	e.logs.mu.Unlock(t)
	return uint64(start), nil
}

// freeLogBlock says that no log points at b, which is locked for writing.
func (e *ExtentTree) freeLogBlock(t *sched.Task, tr *ctree.Trans, b *ctree.Buffer) {
	if b.Node.Written() {
		e.logs.mu.Lock(t)
		tr.Dirty.Left = append(tr.Dirty.Left, b.Bytenr)
		e.logs.mu.Unlock(t)
		return
	}
	bytenr := format.Logical(b.Bytenr)
	e.logs.mu.Lock(t)
	_, ok := e.logs.all[bytenr]
	delete(e.logs.all, bytenr)
	e.logs.mu.Unlock(t)
	if !ok {
		panic(fmt.Sprintf("extenttree: free of log block %d, which is none", bytenr))
	}
	e.giveBack(t, spanOf(bytenr, e.nodeSize))
	e.space.Metadata().Unallocated(t, e.nodeSize, false)
	tracedFree(t, e.nodeSize)
}

// FreeLogs pins every block of the transaction's logs: the commit at work makes the superblock name
// none of them. It calls gone for each.
//
// Preconditions: no other handle of the transaction is open.
func (e *ExtentTree) FreeLogs(t *sched.Task, gone func(bytenr uint64)) {
	e.enter(t)
	defer e.leave()
	e.logs.mu.Lock(t)
	all := e.logs.all
	if len(all) > 0 {
		e.logs.all = make(map[format.Logical]struct{})
	}
	e.logs.mu.Unlock(t)
	info := e.space.Metadata()
	list := make([]format.Logical, 0, len(all))
	for b := range all {
		list = append(list, b)
	}
	slices.Sort(list)
	for _, b := range list {
		info.Recorded(t, e.nodeSize)
		info.Freed(t, e.nodeSize)
		e.pinned = append(e.pinned, spanOf(b, e.nodeSize))
		gone(uint64(b))
	}
}

// NewGroups reports whether there is a block group that no commit has made durable. What lies in it
// must not be named by a log: after a crash there is no such group. Models the
// btrfs_set_log_full_commit() of btrfs_make_block_group().
func (e *ExtentTree) NewGroups() bool { return e.newGroups.Load() > 0 }

// GroupsSettled is told by a commit that the items of all new groups but those in the queue are in
// the trees that it writes.
//
// Preconditions: no other handle of the transaction is open.
func (e *ExtentTree) GroupsSettled(t *sched.Task) {
	e.refsMu.Lock(t)
	e.newGroups.Store(int64(len(e.pendingGroups)))
	e.refsMu.Unlock(t)
}

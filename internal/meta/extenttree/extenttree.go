// Package extenttree allocates space and keeps the books about it: block groups with their free
// spans, the extent tree with its back references, the free space tree, and the delayed references
// in between.
//
// An allocation takes bytes from a group's free spans at once and queues a delayed reference; a
// free queues one too. RunDelayedRefs turns the queue into extent items, group accounting and
// free-space-tree changes. Those change trees, which allocates and frees tree blocks, which queues
// more: the commit runs the queue until it is empty (a fixpoint, because a block is COWed once per
// transaction). Space that a run frees is pinned: it is not allocated again before the commit that
// freed it is durable.
//
// Lock order:
//
//	tree_*                    package ctree
//	  chunk_mutex             AllocChunk
//	    delayed_refs          the queue of delayed references
//	      block_group, space_info   leaves
//
// Model: fs/btrfs/extent-tree.c, delayed-ref.c, block-group.c, free-space-tree.c. Differences:
// delayed references run only at commit; the free space of a group is built from the extent tree at
// open, so a wrong free space tree cannot lead to a wrong allocation.
package extenttree

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// CsumDeleter is the door to the checksum tree: the checksums of a data extent go with its last
// reference.
type CsumDeleter interface {
	DelCsums(t *sched.Task, tr *ctree.Trans, bytenr, length uint64) error
}

// Config has the rooms and trees that an ExtentTree works with.
type Config struct {
	Forest  *ctree.Forest
	Volumes *volumes.Volumes
	Space   *spaceinfo.Space
	// Extent, Chunk and Dev are the trees with those names; FreeSpace is nil when the image keeps
	// none, and Groups, the tree of block groups, when they lie in the extent tree.
	Extent, Chunk, Dev, FreeSpace, Groups *ctree.Root
	Csums                                 CsumDeleter
	NodeSize                              uint32
	ChunkTreeUUID                         format.UUID
	Skinny                                bool // tree blocks get METADATA_ITEMs, else EXTENT_ITEMs
}

// ExtentTree is the allocator of one file system. It fills ctree's Allocator door.
type ExtentTree struct {
	forest   *ctree.Forest
	vols     *volumes.Volumes
	space    *spaceinfo.Space
	root     *ctree.Root
	chunk    *ctree.Root
	dev      *ctree.Root
	fst      *ctree.Root
	groupsIn *ctree.Root // the tree with the BLOCK_GROUP_ITEMs
	csums    CsumDeleter
	nodeSize uint64
	skinny   bool        // as Config.Skinny
	devSize  uint64      // of all devices
	uuid     format.UUID // of the chunk tree

	groups    atomic.Pointer[groupList] // read by list, published by insertGroup
	groupsObj sched.Obj                 // what an explorer knows the list by
	lastGroup [8]atomic.Uint64          // by type: where the last allocation was
	discard   atomic.Bool               // SetDiscard
	firstFit  bool
	targets   [8]target  // by type: SetProfile
	chunkMu   lock.Mutex // one chunk allocation at a time

	refsMu lock.Mutex // protects the five below
	heads  map[format.Logical]*head
	// running is the heads that the committer is turning into items: an item may be as it was
	// before or as it will be.
	running       map[format.Logical]*head
	freeHeads     []*head
	pendingGroups []*BlockGroup
	traced        map[format.Logical]Traced
	nheads        atomic.Int64 // len(heads), for hints
	newGroups     atomic.Int64 // groups that no commit has, for a look without refsMu

	logs   logBlocks
	logged map[format.Logical]uint64 // of the task that replays a log: ExcludeLogged

	tracing    atomic.Bool   // quotas are on: SetTracing
	ownedSince atomic.Uint64 // simple quotas are on: SetOwned

	// commitBlocks counts the blocks of the trees that a commit itself changes, for the size of the
	// global reserve.
	commitBlocks atomic.Int64

	// The fields below belong to the committer, the one task between enter and leave, and are not
	// locked.
	committer   atomic.Pointer[sched.Task]
	pinned      []span
	dirtyGroups []*BlockGroup
	fstOp       fstOp
	bytesUsed   uint64
	owned       map[uint64]int64 // for TakeOwned
	deviceUsed  []uint64         // physical bytes of the chunks that have their items, by device
	path        ctree.Path       // of the item at work
	path2       ctree.Path       // of a look elsewhere while path is held, and of the FST
}

// enter makes t the committer until leave. A transaction has one at a time; a second one would
// share its paths.
func (e *ExtentTree) enter(t *sched.Task) {
	if !e.committer.CompareAndSwap(nil, t) {
		panic(fmt.Sprintf("extenttree: %s runs references while %s does", t.Name, e.committer.Load().Name))
	}
}

func (e *ExtentTree) leave() { e.committer.Store(nil) }

// New makes the allocator. Load must come before the first allocation.
func New(c Config) *ExtentTree {
	e := &ExtentTree{forest: c.Forest, vols: c.Volumes, space: c.Space, root: c.Extent, chunk: c.Chunk, dev: c.Dev,
		fst: c.FreeSpace, csums: c.Csums, nodeSize: uint64(c.NodeSize), skinny: c.Skinny, devSize: c.Volumes.Size(),
		uuid: c.ChunkTreeUUID, heads: make(map[format.Logical]*head), running: make(map[format.Logical]*head), traced: make(map[format.Logical]Traced),
		owned: make(map[uint64]int64)}
	if e.groupsIn = c.Groups; e.groupsIn == nil {
		e.groupsIn = c.Extent
	}
	e.chunkMu.Init(classChunkMutex)
	e.refsMu.Init(classRefs)
	e.logs.init()
	e.groups.Store(&groupList{})
	return e
}

// SetCsums opens the door to the checksum tree.
func (e *ExtentTree) SetCsums(c CsumDeleter) { e.csums = c }

// SetFirstFit makes every search for free space begin at the lowest group of its type, and at the
// group's start, instead of where the last allocation ended. Space that was just freed is then the
// first to be used again, so a test sees at once when it was freed too early. Call it before other
// tasks use the allocator.
func (e *ExtentTree) SetFirstFit(on bool) { e.firstFit = on }

// BytesUsed is the superblock's bytes_used. The committer calls it.
func (e *ExtentTree) BytesUsed() uint64 { return e.bytesUsed }

// DeviceBytesUsed is the use of each device by its DEV_ITEM: the chunks whose items are in the
// trees. The committer calls it; it must not change the slice.
func (e *ExtentTree) DeviceBytesUsed() []uint64 { return e.deviceUsed }

// ReserveExtent allocates between minBytes and numBytes of data near hint (0: anywhere) for a
// caller that holds numBytes in the data account's may_use; length bytes of them become reserved.
// ENOSPC when there is no such piece, in spite of the promise: free space is fragmented. Models
// btrfs_reserve_extent().
func (e *ExtentTree) ReserveExtent(t *sched.Task, numBytes, minBytes uint64, hint format.Logical) (start format.Logical, length uint64, err error) {
	start, length, err = e.findFree(t, format.BlockGroupData, numBytes, minBytes, format.SectorSize, hint)
	if err != nil {
		return 0, 0, err
	}
	e.space.Data().Allocated(t, length)
	tracedReserve(t, format.BlockGroupData, length)
	return start, length, nil
}

// tracedReserve tells a tracer of an allocation from free space.
func tracedReserve(t *sched.Task, typ, length uint64) {
	if !t.Tracing() {
		return
	}
	what := "METADATA"
	switch typ {
	case format.BlockGroupData:
		what = "DATA"
	case format.BlockGroupSystem:
		what = "SYSTEM"
	}
	t.Trace(sched.TraceEvent{Name: "btrfs_reserve_extent", Len: length, What: what})
}

func tracedFree(t *sched.Task, length uint64) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_reserved_extent_free", Len: length})
	}
}

// FreeReservedExtent undoes ReserveExtent for an extent that was never given to
// AllocReservedFileExtent: the bytes are free again, and no promise is left of them. Models
// btrfs_free_reserved_extent().
func (e *ExtentTree) FreeReservedExtent(t *sched.Task, start format.Logical, length uint64) {
	e.giveBack(t, spanOf(start, length))
	e.space.Data().Unallocated(t, length, false)
	tracedFree(t, length)
}

// infoOf is the account that pays for blocks of the tree.
func (e *ExtentTree) infoOf(root uint64) (*spaceinfo.Info, uint64) {
	if root == format.CHUNK_TREE_OBJECTID {
		return e.space.System(), format.BlockGroupSystem
	}
	return e.space.Metadata(), format.BlockGroupMetadata
}

// rsvOf is the bucket of the handle that tr belongs to.
func rsvOf(tr *ctree.Trans) *spaceinfo.BlockRsv {
	rsv, _ := tr.Priv.(*spaceinfo.BlockRsv)
	return rsv
}

// AllocTreeBlock finds room for a block of r, paid by the handle's bucket, the global reserve, what
// is left, or at last with a promise too many: an error would abort the transaction, and most
// promises are not used. It is called with tree nodes locked. Models btrfs_alloc_tree_block() and
// btrfs_use_block_rsv().
func (e *ExtentTree) AllocTreeBlock(t *sched.Task, tr *ctree.Trans, r *ctree.Root, hint uint64) (uint64, error) {
	if r.ID == format.TREE_LOG_OBJECTID {
		return e.allocLogBlock(t)
	}
	info, typ := e.infoOf(r.ID)
	rsv := rsvOf(tr)
	system := typ == format.BlockGroupSystem
	switch {
	case !system && rsv != nil && rsv.Use(t, e.nodeSize):
	case !system && e.space.Global.Use(t, e.nodeSize):
		rsv = &e.space.Global
	default:
		err := info.Reserve(t, e.nodeSize, spaceinfo.FlushLimit)
		if err != nil {
			err = info.Reserve(t, e.nodeSize, spaceinfo.FlushEmergency)
		}
		if err != nil {
			return 0, &errno.OpError{Op: "allocate tree block", Err: err}
		}
		rsv = nil
	}
	bytenr, _, err := e.findFree(t, typ, e.nodeSize, e.nodeSize, e.nodeSize, 0)
	if err != nil {
		if rsv != nil {
			rsv.Add(t, e.nodeSize)
		} else {
			info.Release(t, e.nodeSize)
		}
		return 0, &errno.OpError{Op: "allocate tree block", Err: err}
	}
	info.Allocated(t, e.nodeSize)
	tracedReserve(t, typ, e.nodeSize)
	return uint64(bytenr), nil
}

// RefTreeBlock queues the first reference to a block from AllocTreeBlock. A log's have none. Models
// the end of btrfs_alloc_tree_block().
func (e *ExtentTree) RefTreeBlock(t *sched.Task, r *ctree.Root, bytenr uint64, level int, first format.Key) {
	if r.ID != format.TREE_LOG_OBJECTID {
		e.addRef(t, head{bytenr: format.Logical(bytenr), num: e.nodeSize, level: uint8(level), first: first, owner: r.ID, mustInsert: true},
			byTree(r.ID), 1)
	}
}

// FreeTreeBlock says that r no longer points at b. With last nothing else does: a block that this
// transaction made and no extent item records yet is free at once; any other is pinned when its
// reference is run. Models btrfs_free_tree_block().
func (e *ExtentTree) FreeTreeBlock(t *sched.Task, tr *ctree.Trans, r *ctree.Root, b *ctree.Buffer, last bool) error {
	if r.ID == format.TREE_LOG_OBJECTID {
		e.freeLogBlock(t, tr, b)
		return nil
	}
	level := b.Node.Level()
	young := b.Node.Generation() == tr.ID
	bytenr := format.Logical(b.Bytenr)
	e.addRef(t, head{bytenr: bytenr, num: e.nodeSize, level: uint8(level), owner: b.Owner()}, byTree(r.ID), -1)
	if last && young && e.cancelHead(t, bytenr) {
		info, typ := e.infoOf(r.ID)
		e.giveBack(t, spanOf(bytenr, e.nodeSize))
		rsv := rsvOf(tr)
		promise := rsv != nil && typ != format.BlockGroupSystem
		info.Unallocated(t, e.nodeSize, promise)
		if promise {
			rsv.Add(t, e.nodeSize)
		}
		tracedFree(t, e.nodeSize)
	}
	return nil
}

// globalTarget is the size the global reserve should have: the trees a commit may have to COW
// whole, and the growth that the queued references bring. Models btrfs_update_global_block_rsv()
// with exact tree sizes.
func (e *ExtentTree) globalTarget() uint64 {
	blocks := globalMinBlocks + uint64(e.commitBlocks.Load())
	return blocks*e.nodeSize + uint64(e.nheads.Load())*headGrowth
}

// globalMinBlocks leaves room for new levels and splits in every tree, and for one unlink that the
// reserve must pay for when metadata is full: four and six items at their worst case. Models
// min_items of btrfs_update_global_block_rsv().
const globalMinBlocks = (4 + 6) * 2 * format.MaxLevel

// countTreeBlock follows the size of the trees that a commit itself changes.
func (e *ExtentTree) countTreeBlock(root uint64, n int64) {
	switch root {
	case format.ROOT_TREE_OBJECTID, format.EXTENT_TREE_OBJECTID, format.CSUM_TREE_OBJECTID,
		format.FREE_SPACE_TREE_OBJECTID, format.DEV_TREE_OBJECTID, format.BLOCK_GROUP_TREE_OBJECTID:
		e.commitBlocks.Add(n)
	}
}

// headGrowth is the most that a queued reference adds to the extent and free space trees: two items
// and half-full leaves.
const headGrowth = 512

// QueuedRefs is how many extents have references that are queued.
func (e *ExtentTree) QueuedRefs() int64 { return e.nheads.Load() }

// GlobalShort reports that the global reserve holds less than it should.
func (e *ExtentTree) GlobalShort(t *sched.Task) bool {
	return e.space.Global.Reserved(t) < e.globalTarget()
}

// FillGlobalReserve sizes the global reserve for the queue as it is. The transaction calls it where
// promises are returned.
func (e *ExtentTree) FillGlobalReserve(t *sched.Task) { e.space.Global.Resize(t, e.globalTarget()) }

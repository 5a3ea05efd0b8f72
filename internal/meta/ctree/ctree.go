// Package ctree keeps the copy-on-write b-trees of one file system: a cache of tree blocks, the
// search that locks its way down, and the operations that insert, delete, split, merge and balance.
//
// A block that the running transaction has not written is changed in place; every other block is
// copied to a new place first, and so is its parent, up to the root (COW). A transaction's blocks
// are therefore all new, and the trees of the last commit stay whole on disk until the superblock
// points elsewhere.
//
// The normal case of an insert:
//
//	InsertEmptyItem -> SearchSlot -> lockRoot          read lock, or write lock when the root is low
//	                              -> cow               block not of this transaction: copy, free the old one
//	                              -> setupNode         split (insert) or balance (delete) on the way down
//	                              -> searchLeaf        pushLeafRight, pushLeafLeft, splitLeaf
//	                -> setupItems                      make room, fixLowKeys upward
//
// SearchSlot begins with as few write locks as the operation usually needs and starts again with
// more when it meets a block that has to be copied, split or balanced above them (labs/reference
// 6.4).
//
// Lock order:
//
//	tree_*                               root to leaf: SearchSlot locks a child before it lets its parent go
//	  tree_*                             left, right neighbour under the write-locked parent (pushLeaf*, balanceLevel)
//	    tree_*                           new block: no other task can reach it yet, so it is a try-lock
//	      chunk_mutex, delayed_refs      the Allocator is called with tree blocks locked
//	        tree_cache                   a shard of the cache
//	          tree_read, tree_write      wait for a read, a shard of the dirty set
//
// Invariants:
//
//   - A block is dirty from the moment it is made until WriteOut has written it; only dirty blocks
//     that are not sealed are changed, and only under their write lock.
//   - Bytenr, level, generation and owner of a Buffer never change: a COW makes a new Buffer.
//   - A block that two trees share is never changed: both are subvolumes whose lastSnapshot is at
//     least its generation.
//   - A pointer's key is its child's first key, its generation the child's generation.
//   - No block but the root of an empty tree has no items.
//
// Models fs/btrfs/ctree.c, extent_io.c (extent buffers) and locking.c. Differences: no commit-root
// search, no tree modification log, no relocation
// trees (move.go).
package ctree

import (
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Reader reads tree blocks; *volumes.Volumes is one.
type Reader interface {
	// Read fills p from the logical address, copy number mirror.
	Read(t *sched.Task, p []byte, logical uint64, mirror int) error
	// Mirrors is how many copies there are.
	Mirrors(logical uint64) int
}

// Allocator hands out and takes back the space of tree blocks: the door that the extent tree fills.
// Its methods are called with tree blocks locked. Only UpdateRefForCow may search a tree, the
// extent tree: it is asked about blocks of subvolumes alone, and the locks of a subvolume tree come
// before those of the extent tree.
type Allocator interface {
	// AllocTreeBlock reserves a block for a tree; hint is the address of a block it should be near.
	AllocTreeBlock(t *sched.Task, tr *Trans, r *Root, hint uint64) (bytenr uint64, err error)
	// RefTreeBlock is told that a block from AllocTreeBlock is made, and locked for writing: r has
	// the first reference to it. first is the key that it will begin with, zero for an empty tree.
	RefTreeBlock(t *sched.Task, r *Root, bytenr uint64, level int, first format.Key)
	// FreeTreeBlock is told that the tree no longer points at b, which is locked for writing. With
	// last nothing points at it and it is out of the cache: a block of this transaction that was
	// never written may be used again at once.
	FreeTreeBlock(t *sched.Task, tr *Trans, r *Root, b *Buffer, last bool) error
	// UpdateRefForCow is told of the copy c of b, which is as old as the tree's newest snapshot or
	// older, before the tree points at c: it accounts the references of what both point at. last
	// says that no other tree points at b.
	UpdateRefForCow(t *sched.Task, tr *Trans, r *Root, b, c *Buffer) (last bool, err error)
	// IncRefs is told that r has one more block b, whose pointers it shares with another tree.
	IncRefs(t *sched.Task, tr *Trans, r *Root, b *Buffer) error
}

// Trans is the trees' view of the running transaction.
type Trans struct {
	ID    uint64    // transid: the generation of every block made
	Dirty *DirtySet // shared by all handles of the transaction
	// called when a root's node changes, with the new node locked; may be nil
	RootDirtied func(r *Root)
	Priv        any // the handle, for the Allocator
	Leaves      Leaves
}

// Leaves is how the leaves of a tree are pushed and joined. The zero value is what kernels do since
// 5.18, each field what they did before: the first three patches of seed 003; labs/reference 6.6.
type Leaves struct {
	// Recheck asks a neighbour for its free space once more after it was copied, which changes
	// nothing.
	Recheck bool
	// PushByte pushes the items of a leaf that has become small to a neighbour that has room for a
	// byte, and copies it before it is known whether one item fits.
	PushByte bool
	// SumAlways adds up the sizes of the items that are deleted when no data has to move for them,
	// too.
	SumAlways bool
	// Small is the share of its room below which a leaf with items deleted is small, in percent; 0
	// is the third of the kernel. Another one is an experiment's, and no kernel's.
	Small int
}

// Config describes the file system.
type Config struct {
	NodeSize      int // bytes
	SectorSize    int // bytes; 0 is format.SectorSize
	Csum          format.CsumType
	FSID          format.UUID
	ChunkTreeUUID format.UUID
	Reader        Reader
	CacheBlocks   int // clean blocks kept; 0 is 16384
	// NewNode makes the memory of a tree block, size bytes that are 0; nil takes it from the heap.
	NewNode func(size int) format.Node
	// BadCopy, if set, is told of a block that was bad on one mirror, and was read from another.
	// Many tasks call it at once.
	BadCopy func(err error)
}

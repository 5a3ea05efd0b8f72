package ctree

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// The lock classes of tree blocks, by owner. Subvolumes come before the trees that are changed on
// their behalf.
var (
	classFS     = lockdep.NewClass("tree_fs")
	classCsum   = lockdep.NewClass("tree_csum")
	classExtent = lockdep.NewClass("tree_extent")
	classFST    = lockdep.NewClass("tree_fst")
	classRoot   = lockdep.NewClass("tree_root")
	classChunk  = lockdep.NewClass("tree_chunk")
	classLog    = lockdep.NewClass("tree_log")

	classSnapshot = lockdep.NewClass("snapshot_lock")

	classCache = lockdep.NewClass("tree_cache")
	classRead  = lockdep.NewClass("tree_read")
	classWrite = lockdep.NewClass("tree_write")
)

// Models fs/btrfs/locking.c:btrfs_set_buffer_lockdep_class().
func classOf(owner uint64) *lockdep.Class {
	switch owner {
	case format.CSUM_TREE_OBJECTID:
		return classCsum
	case format.EXTENT_TREE_OBJECTID:
		return classExtent
	case format.FREE_SPACE_TREE_OBJECTID, format.BLOCK_GROUP_TREE_OBJECTID:
		return classFST
	case format.ROOT_TREE_OBJECTID, format.UUID_TREE_OBJECTID, format.QUOTA_TREE_OBJECTID:
		return classRoot
	case format.CHUNK_TREE_OBJECTID, format.DEV_TREE_OBJECTID:
		return classChunk
	case format.TREE_LOG_OBJECTID:
		return classLog
	}
	return classFS
}

// The order of locks inside one tree: by depth, then by the block's place beside the path
// (BTRFS_NESTING_*).
const (
	nestNormal = iota
	nestLeft
	nestRight
	nestLevels = 8
)

func lockSub(level, nest int) uint64 { return uint64((format.MaxLevel-level)*nestLevels + nest) }

// States of a Buffer.
const (
	stateReading = iota
	stateUptodate
	stateFailed // the read failed; the buffer is no longer in the cache
)

// refsDead is added to the count of a buffer that is leaving the cache, so that nobody finds it any
// more.
const refsDead = -1 << 30

// Buffer is a tree block in memory: an extent buffer. Whoever has a *Buffer from ReadBlock or in a
// Path holds a reference, which keeps the block in the cache.
//
// Models struct extent_buffer.
type Buffer struct {
	Bytenr uint64
	// Node is the block. It changes only while the block is dirty and not sealed, under lock.
	Node format.Node

	lock       lock.RWSem
	class      *lockdep.Class
	owner      uint64
	generation uint64
	level      int

	refs     atomic.Int32
	state    atomic.Uint32
	dirty    atomic.Bool // in a DirtySet and not yet written
	accessed atomic.Bool // used since the clock hand passed
	err      error       // why the read failed; set before stateFailed

	next atomic.Pointer[Buffer] // hash chain; written under the shard's lock
	// place in the shard's ring, -1 when not in the cache; under the shard's lock
	ringIdx int
	dirtyAt int // place in the dirty set's shard; under that shard's lock
}

// Level is the height above the leaves.
func (b *Buffer) Level() int { return b.level }

// Generation is the transaction that made the block.
func (b *Buffer) Generation() uint64 { return b.generation }

// Owner is the tree that the block's header names.
func (b *Buffer) Owner() uint64 { return b.owner }

// Lock locks the block for writing; a task that locks its way down holds the parent. A deleted tree
// is walked so, whose blocks no search locks.
func (b *Buffer) Lock(t *sched.Task) { b.lockBeside(t, nestNormal) }

// lockBeside is Lock of a block at a place beside the path.
func (b *Buffer) lockBeside(t *sched.Task, nest int) {
	b.lock.LockNested(t, lockSub(b.level, nest))
	if t.Tracing() {
		b.traced(t, "btrfs_tree_lock")
	}
}

// Unlock ends Lock.
func (b *Buffer) Unlock(t *sched.Task) {
	if t.Tracing() {
		b.traced(t, "btrfs_tree_unlock")
	}
	b.lock.Unlock(t)
}

// rlock locks the block for reading.
func (b *Buffer) rlock(t *sched.Task) {
	b.lock.RLockNested(t, lockSub(b.level, nestNormal))
	if t.Tracing() {
		b.traced(t, "btrfs_tree_read_lock")
	}
}

// tryRLock is rlock that gives up instead of sleeping.
func (b *Buffer) tryRLock(t *sched.Task) bool {
	ok := b.lock.TryRLock(t)
	if ok {
		if t.Tracing() {
			b.traced(t, "btrfs_try_tree_read_lock")
		}
	}
	return ok
}

func (b *Buffer) runlock(t *sched.Task) {
	if t.Tracing() {
		b.traced(t, "btrfs_tree_read_unlock")
	}
	b.lock.RUnlock(t)
}

// traced tells the tracer of a step with the block.
func (b *Buffer) traced(t *sched.Task, name string) {
	t.Trace(sched.TraceEvent{Name: name, Root: b.owner, Val: int64(b.level)})
}

// Put ends the use of a buffer.
func (b *Buffer) Put() {
	if b.refs.Add(-1) == -1 {
		panic(fmt.Sprintf("ctree: block %d put more often than got", b.Bytenr))
	}
}

// tryGet takes a reference unless the buffer is leaving the cache.
func (b *Buffer) tryGet() bool {
	if b.refs.Add(1) < 0 {
		b.refs.Add(-1)
		return false
	}
	return true
}

// cacheShards is the number of locks of the buffer cache; a power of two.
const cacheShards = 64

// cache finds buffers by address. Lookups walk a hash chain without a lock; a change takes the
// shard's lock. Eviction is a clock over each shard's clean, unreferenced buffers.
type cache struct {
	buckets []atomic.Pointer[Buffer]
	shift   uint // hash >> shift is the bucket
	shards  [cacheShards]cacheShard
}

type cacheShard struct {
	mu    lock.Mutex // leaf; protects the chains of the shard's buckets, ring and hand
	ring  []*Buffer
	hand  int
	limit int          // clean buffers kept
	dirty atomic.Int32 // of the ring
	_     [64]byte
}

func (c *cache) init(blocks int) {
	n := 1 << bits.Len(uint(max(2*blocks, cacheShards)-1))
	c.buckets = make([]atomic.Pointer[Buffer], n)
	c.shift = uint(64 - bits.Len(uint(n-1)))
	for i := range c.shards {
		c.shards[i].mu.Init(classCache)
		c.shards[i].limit = max(1, blocks/cacheShards)
	}
}

func (c *cache) bucket(bytenr uint64) (*atomic.Pointer[Buffer], *cacheShard) {
	// Fibonacci hashing of the sector number.
	i := (bytenr >> 12) * 0x9e3779b97f4a7c15 >> c.shift
	return &c.buckets[i], &c.shards[i&(cacheShards-1)]
}

// find returns the buffer at bytenr with a reference, or nil. It may miss a buffer that is just
// being added.
func (c *cache) find(bytenr uint64) *Buffer {
	i := (bytenr >> 12) * 0x9e3779b97f4a7c15 >> c.shift
	for b := c.buckets[i].Load(); b != nil; b = b.next.Load() {
		if b.Bytenr == bytenr {
			if !b.tryGet() {
				return nil
			}
			if !b.accessed.Load() {
				b.accessed.Store(true)
			}
			return b
		}
	}
	return nil
}

// add puts b, which has a reference, into the cache. When there is a buffer at its address already,
// that one is returned, unless replace is set: then it is forgotten.
func (c *cache) add(t *sched.Task, b *Buffer, replace bool) *Buffer {
	head, s := c.bucket(b.Bytenr)
	s.mu.Lock(t)
	for o := head.Load(); o != nil; o = o.next.Load() {
		if o.Bytenr != b.Bytenr {
			continue
		}
		if !replace && o.tryGet() {
			s.mu.Unlock(t)
			return o
		}
		if o.dirty.Load() {
			panic(fmt.Sprintf("ctree: block %d is allocated or read again while it is dirty", b.Bytenr))
		}
		s.unlink(head, o)
		break
	}
	b.next.Store(head.Load())
	b.ringIdx = len(s.ring)
	s.ring = append(s.ring, b)
	head.Store(b)
	c.evictLocked(t, s, 2)
	s.mu.Unlock(t)
	return b
}

// unlink takes b out of its chain and ring. The shard is locked.
func (s *cacheShard) unlink(head *atomic.Pointer[Buffer], b *Buffer) {
	for p := head; ; {
		n := p.Load()
		if n == b {
			// b.next stays: a lookup may be standing on b.
			p.Store(b.next.Load())
			break
		}
		p = &n.next
	}
	last := len(s.ring) - 1
	s.ring[b.ringIdx] = s.ring[last]
	s.ring[b.ringIdx].ringIdx = b.ringIdx
	s.ring[last] = nil
	s.ring = s.ring[:last]
	b.ringIdx = -1
}

// drop forgets b if it is in the cache.
func (c *cache) drop(t *sched.Task, b *Buffer) {
	head, s := c.bucket(b.Bytenr)
	s.mu.Lock(t)
	if b.ringIdx >= 0 {
		s.unlink(head, b)
	}
	s.mu.Unlock(t)
}

// evictLocked drops up to most clean buffers that nobody uses while there are more than the limit.
func (c *cache) evictLocked(t *sched.Task, s *cacheShard, most int) {
	s.mu.AssertHeld(t)
	for steps := 2 * len(s.ring); steps > 0 && most > 0 && len(s.ring)-int(s.dirty.Load()) > s.limit; steps-- {
		if s.hand >= len(s.ring) {
			s.hand = 0
		}
		b := s.ring[s.hand]
		if b.refs.Load() != 0 || b.dirty.Load() {
			s.hand++
			continue
		}
		if b.accessed.Load() {
			b.accessed.Store(false)
			s.hand++
			continue
		}
		if !b.refs.CompareAndSwap(0, refsDead) {
			s.hand++
			continue
		}
		// A buffer becomes dirty only when it is made, so it is still clean.
		head, _ := c.bucket(b.Bytenr)
		s.unlink(head, b)
		most--
	}
}

// trim brings the cache down to its bound, after dirty buffers became clean.
func (c *cache) trim(t *sched.Task) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock(t)
		c.evictLocked(t, s, len(s.ring))
		s.mu.Unlock(t)
	}
}

// setDirty changes b's dirty bit and the shard's count.
func (c *cache) setDirty(b *Buffer, on bool) {
	_, s := c.bucket(b.Bytenr)
	if b.dirty.CompareAndSwap(!on, on) {
		if on {
			s.dirty.Add(1)
		} else {
			s.dirty.Add(-1)
		}
	}
}

// Forest is all trees of one file system: the buffer cache, the codec checks and the tree
// operations.
type Forest struct {
	cfg     Config
	ptrsMax int // key pointers in an inner node
	dataMax int // bytes for items in a leaf
	reader  Reader
	alloc   Allocator
	cache   cache
	reads   [16]lock.WaitQueue // tasks that wait for another's read, by address

	nReads atomic.Uint64 // blocks read from the device
}

// NewForest makes the trees of a file system known; no I/O happens yet.
func NewForest(cfg Config) *Forest {
	if cfg.SectorSize == 0 {
		cfg.SectorSize = format.SectorSize
	}
	if cfg.CacheBlocks == 0 {
		cfg.CacheBlocks = 16384
	}
	if cfg.NodeSize < 4096 || cfg.NodeSize > 65536 || cfg.NodeSize&(cfg.NodeSize-1) != 0 {
		panic(fmt.Sprintf("ctree: node size %d", cfg.NodeSize))
	}
	f := &Forest{cfg: cfg, reader: cfg.Reader, ptrsMax: format.PtrsPerNode(cfg.NodeSize), dataMax: format.LeafDataSize(cfg.NodeSize)}
	f.cache.init(cfg.CacheBlocks)
	for i := range f.reads {
		f.reads[i].Init(classRead)
	}
	return f
}

// newNode is the memory of a tree block.
func (f *Forest) newNode() format.Node {
	if f.cfg.NewNode != nil {
		return f.cfg.NewNode(f.cfg.NodeSize)
	}
	return make(format.Node, f.cfg.NodeSize)
}

// NodeSize is the size of every tree block in bytes.
func (f *Forest) NodeSize() int { return f.cfg.NodeSize }

// CsumType is the algorithm of the file system's checksums.
func (f *Forest) CsumType() format.CsumType { return f.cfg.Csum }

// MaxItemSize is the largest item in bytes.
func (f *Forest) MaxItemSize() int { return format.MaxItemSize(f.cfg.NodeSize) }

// SetAllocator fills the door; it is needed before the first change.
func (f *Forest) SetAllocator(a Allocator) { f.alloc = a }

// Stats counts what the cache holds and did.
type Stats struct {
	Cached int    // blocks in the cache
	Dirty  int    // of them, made and not yet written
	Reads  uint64 // blocks read from the device
}

// Stats looks at the cache; it is not a snapshot.
func (f *Forest) Stats(t *sched.Task) (st Stats) {
	for i := range f.cache.shards {
		s := &f.cache.shards[i]
		s.mu.Lock(t)
		st.Cached += len(s.ring)
		st.Dirty += int(s.dirty.Load())
		s.mu.Unlock(t)
	}
	st.Reads = f.nReads.Load()
	return st
}

// DropBuffer forgets the block at bytenr, whose space has been freed. A dirty block stays.
func (f *Forest) DropBuffer(t *sched.Task, bytenr uint64) {
	if b := f.cache.find(bytenr); b != nil {
		if !b.dirty.Load() {
			f.cache.drop(t, b)
		}
		b.Put()
	}
}

// Check is a reader's knowledge of a block from the pointer that led to it.
type Check struct {
	Level      int
	Generation uint64      // 0 is not checked
	Owner      uint64      // the tree; 0 is not checked
	FirstKey   *format.Key // nil is not checked
}

// corrupt is a broken rule that only the way to a block can show. It is EUCLEAN to errors.Is.
type corrupt struct{ text string }

func (e *corrupt) Error() string        { return e.text }
func (e *corrupt) Is(target error) bool { return target == error(errno.EUCLEAN) }

func corruptf(want Check, bytenr uint64, text string, args ...any) error {
	what := "node"
	if want.Level == 0 {
		what = "leaf"
	}
	return &corrupt{fmt.Sprintf("corrupt %s: root=%d block=%d, ", what, int64(want.Owner), bytenr) + fmt.Sprintf(text, args...)}
}

// ReadBlock returns the block at bytenr with a reference, from the cache or from the device; it is
// not locked. A block is verified when it is read: checksum (every copy is tried), address, file
// system, owner, level, generation and first key, and the tree checker's rules.
//
// Models fs/btrfs/disk-io.c:read_tree_block() and btrfs_validate_extent_buffer().
func (f *Forest) ReadBlock(t *sched.Task, bytenr uint64, want Check) (*Buffer, error) {
	b := f.cache.find(bytenr)
	if b == nil {
		if bytenr == 0 || bytenr%uint64(f.cfg.SectorSize) != 0 {
			return nil, corruptf(want, bytenr, "bad block pointer, want a nonzero multiple of %d", f.cfg.SectorSize)
		}
		n := &Buffer{Bytenr: bytenr, ringIdx: -1}
		n.refs.Store(1)
		if b = f.cache.add(t, n, false); b == n {
			f.fill(t, b, want)
		}
	}
	if b.state.Load() == stateReading {
		f.waitRead(t, b)
	}
	if b.state.Load() == stateFailed {
		err := b.err
		b.Put()
		return nil, err
	}
	if err := f.checkFound(b, want); err != nil {
		b.Put()
		return nil, err
	}
	return b, nil
}

// waitRead waits until the task that reads b is done.
func (f *Forest) waitRead(t *sched.Task, b *Buffer) {
	f.readQueue(b).Wait(t, func() bool { return b.state.Load() != stateReading })
}

func (f *Forest) readQueue(b *Buffer) *lock.WaitQueue {
	return &f.reads[b.Bytenr>>14%uint64(len(f.reads))]
}

// checkFound compares a cached block, unlocked, with what its pointer says.
func (f *Forest) checkFound(b *Buffer, want Check) error {
	if b.level != want.Level {
		return corruptf(want, b.Bytenr, "bad level, have %d want %d", b.level, want.Level)
	}
	if want.Generation != 0 && b.generation != want.Generation {
		return corruptf(want, b.Bytenr, "bad generation, have %d want %d", b.generation, want.Generation)
	}
	return nil
}

// fill reads the block into b, which this task has just added to the cache, and wakes the tasks
// that wait for it.
func (f *Forest) fill(t *sched.Task, b *Buffer, want Check) {
	f.nReads.Add(1)
	n := f.newNode()
	var err, bad error
	mirrors := max(1, f.reader.Mirrors(b.Bytenr))
	for m := range mirrors {
		e := f.reader.Read(t, n, b.Bytenr, m)
		if e == nil {
			if e = f.verify(n, b.Bytenr, want); e != nil && bad == nil {
				bad = fmt.Errorf("mirror %d: %w", m, e)
			}
		}
		if e == nil {
			err = nil
			break
		}
		if err == nil {
			err = e
		} else if err.Error() != e.Error() {
			err = fmt.Errorf("%w; mirror %d: %w", err, m, e)
		}
	}
	if err == nil && bad != nil && f.cfg.BadCopy != nil {
		f.cfg.BadCopy(bad)
	}
	if err != nil {
		b.err = err
		f.cache.drop(t, b)
		b.state.Store(stateFailed)
	} else {
		b.Node = n
		b.level, b.generation, b.owner = n.Level(), n.Generation(), n.Owner()
		b.class = classOf(b.owner)
		b.lock.Init(b.class)
		b.state.Store(stateUptodate)
	}
	f.readQueue(b).Wake(t)
}

// verify judges a block that was read.
func (f *Forest) verify(n format.Node, bytenr uint64, want Check) error {
	if !f.cfg.Csum.BlockMatch(n) {
		have, should := f.cfg.Csum.BlockText(n)
		return corruptf(want, bytenr, "bad checksum, have %s want %s", have, should)
	}
	if n.Bytenr() != bytenr {
		return corruptf(want, bytenr, "bad bytenr, have %d want %d", n.Bytenr(), bytenr)
	}
	if n.FSID() != f.cfg.FSID {
		return corruptf(want, bytenr, "bad fsid, have %v want %v", n.FSID(), f.cfg.FSID)
	}
	if n.Level() != want.Level {
		return corruptf(want, bytenr, "bad level, have %d want %d", n.Level(), want.Level)
	}
	if want.Generation != 0 && n.Generation() != want.Generation {
		return corruptf(want, bytenr, "bad generation, have %d want %d", n.Generation(), want.Generation)
	}
	// A subvolume may share blocks that another subvolume owns
	// (tree-checker.c:btrfs_check_eb_owner()).
	if o := n.Owner(); want.Owner != 0 && o != want.Owner && !(format.IsFSTree(o) && format.IsFSTree(want.Owner)) {
		return corruptf(want, bytenr, "bad owner, have %d want %d", int64(o), int64(want.Owner))
	}
	if err := f.checkNode(n, want.Owner, want.Generation, want.Level); err != nil {
		return err
	}
	if want.FirstKey != nil {
		if n.Nritems() == 0 {
			return corruptf(want, bytenr, "bad nritems, have 0 in a block that is not a root")
		}
		if k := n.Key(0); k != *want.FirstKey {
			return corruptf(want, bytenr, "bad first key, have %v want %v", k, *want.FirstKey)
		}
	}
	return nil
}

func (f *Forest) checkNode(n format.Node, root, generation uint64, level int) error {
	c := format.CheckContext{Root: root, SectorSize: uint32(f.cfg.SectorSize), NodeSize: uint32(f.cfg.NodeSize),
		Generation: generation, Level: level, Csum: f.cfg.Csum}
	if level == 0 {
		return format.CheckLeaf(n, c)
	}
	return format.CheckNode(n, c)
}

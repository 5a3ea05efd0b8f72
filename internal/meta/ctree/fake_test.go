package ctree

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// store is a device and an extent allocator in memory. It keeps the rule of a real one: space that
// the last commit uses is not handed out before the next commit.
type store struct {
	t    testing.TB
	size int

	mu     sync.Mutex
	blocks map[uint64][]byte // written
	used   map[uint64]bool   // allocated to a live tree block
	free   []uint64          // may be used at once
	pinned []uint64          // free after the commit
	next   uint64
	left   int               // allocations until ENOSPC; negative is no limit
	shares map[uint64]int    // pointers at a block besides the first
	bad    map[uint64]int    // mirrors of a block that read badly
	stale  map[uint64][]byte // what the first mirror of a block has instead
	failW  int               // fail the n-th bio from now on; 0 is never
	bios   int
	met    int  // reads that were bad
	two    bool // two mirrors
}

func newStore(t testing.TB, size int) *store {
	return &store{t: t, size: size, blocks: map[uint64][]byte{}, used: map[uint64]bool{}, next: 1 << 20, left: -1,
		shares: map[uint64]int{}, bad: map[uint64]int{}, stale: map[uint64][]byte{}}
}

func (s *store) Read(t *sched.Task, p []byte, logical uint64, mirror int) error {
	t.Enter(sched.PointDevice, blockdev.WaitClass.ID, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.blocks[logical]
	if !ok {
		return fmt.Errorf("read logical %d: never written", logical)
	}
	if old := s.stale[logical]; old != nil && mirror == 0 {
		b = old
	}
	copy(p, b)
	if mirror < s.bad[logical] {
		s.met++
		p[200] ^= 1
	}
	return nil
}

func (s *store) Mirrors(uint64) int {
	if s.two {
		return 2
	}
	return 1
}

func (s *store) Submit(t *sched.Task, b *blockdev.Bio) {
	s.mu.Lock()
	s.bios++
	if s.failW > 0 {
		if s.failW--; s.failW == 0 {
			b.Err = errno.EIO
		}
	}
	if b.Err == nil {
		off := uint64(b.Off)
		for _, v := range b.Vecs {
			s.blocks[off] = append([]byte(nil), v...)
			off += uint64(len(v))
		}
	}
	s.mu.Unlock()
	b.EndIO(t, b)
}

func (s *store) AllocTreeBlock(t *sched.Task, tr *Trans, r *Root, hint uint64) (uint64, error) {
	t.Enter(sched.PointYield, 0, nil) // a real one takes locks
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		return 0, errno.ENOSPC
	}
	if s.left > 0 {
		s.left--
	}
	var b uint64
	if n := len(s.free); n > 0 {
		b, s.free = s.free[n-1], s.free[:n-1]
	} else {
		b = s.next
		s.next += uint64(s.size)
	}
	s.used[b] = true
	return b, nil
}

func (s *store) RefTreeBlock(*sched.Task, *Root, uint64, int, format.Key) {}

func (s *store) FreeTreeBlock(t *sched.Task, tr *Trans, r *Root, b *Buffer, last bool) error {
	b.lock.AssertHeld(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.used[b.Bytenr] {
		panic(fmt.Sprintf("free of block %d, which is not allocated", b.Bytenr))
	}
	if last != (s.shares[b.Bytenr] == 0) {
		panic(fmt.Sprintf("free of block %d, last %v, has %d other pointers", b.Bytenr, last, s.shares[b.Bytenr]))
	}
	if !last {
		s.shares[b.Bytenr]--
		return nil
	}
	delete(s.used, b.Bytenr)
	if b.Generation() == tr.ID && !b.Node.Written() {
		s.free = append(s.free, b.Bytenr)
	} else {
		s.pinned = append(s.pinned, b.Bytenr)
	}
	return nil
}

// UpdateRefForCow counts pointers, not trees: the copy of a block that stays points at its children
// as well.
func (s *store) UpdateRefForCow(t *sched.Task, tr *Trans, r *Root, b, c *Buffer) (last bool, err error) {
	b.lock.AssertHeld(t)
	s.mu.Lock()
	last = s.shares[b.Bytenr] == 0
	s.mu.Unlock()
	if !last {
		err = s.IncRefs(t, tr, r, c)
	}
	return last, err
}

func (s *store) IncRefs(t *sched.Task, tr *Trans, r *Root, b *Buffer) error {
	b.lock.AssertHeld(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range b.Node.Nritems() {
		if b.level > 0 {
			s.shares[b.Node.Blockptr(i)]++
		}
	}
	return nil
}

var testFSID = format.UUID{1, 2, 3}

// bed is a forest over a store, with a running transaction and one tree.
type bed struct {
	*store
	f    *Forest
	tr   *Trans
	root *Root
	task *sched.Task
	ptrs int // key pointers in an inner node, when not all that fit
}

func (b *bed) limitPtrs() {
	if b.ptrs > 0 {
		b.f.ptrsMax = b.ptrs
	}
}

const testTree = 300

func newBed(t testing.TB, nodeSize, cacheBlocks int) *bed {
	s := newStore(t, nodeSize)
	b := &bed{store: s, task: sched.NewTask(t.Name())}
	b.f = b.forest(cacheBlocks)
	b.tr = &Trans{ID: 2, Dirty: NewDirtySet()}
	r, err := b.f.NewRoot(b.task, b.tr, testTree)
	if err != nil {
		t.Fatal(err)
	}
	b.root = r
	return b
}

func (b *bed) forest(cacheBlocks int) *Forest {
	f := NewForest(Config{NodeSize: b.size, FSID: testFSID, ChunkTreeUUID: format.UUID{9}, Reader: b.store, CacheBlocks: cacheBlocks})
	f.SetAllocator(b.store)
	return f
}

// commit ends the transaction and begins the next one. during, if any, runs between Seal and
// WriteOut with the next transaction.
func (b *bed) commit(during func()) {
	b.t.Helper()
	old := b.tr
	b.dirtySet()
	b.f.Seal(b.task, old.Dirty)
	b.store.mu.Lock()
	pinned := b.pinned
	b.pinned = nil
	b.store.mu.Unlock()
	b.tr = &Trans{ID: old.ID + 1, Dirty: NewDirtySet()}
	if during != nil {
		during()
	}
	if err := b.f.WriteOut(b.task, old.Dirty, b.store); err != nil {
		b.t.Fatal(err)
	}
	b.store.mu.Lock()
	b.free = append(b.free, pinned...)
	b.store.mu.Unlock()
}

// dirtySet checks that the running transaction writes the blocks that it has made, those it has not
// freed again, each once.
func (b *bed) dirtySet() {
	b.t.Helper()
	last := uint64(0)
	for _, buf := range b.tr.Dirty.Buffers(b.task) {
		if !b.used[buf.Bytenr] || buf.generation != b.tr.ID || !buf.dirty.Load() || buf.Bytenr == last {
			b.t.Fatalf("the dirty set has block %d generation %d, allocated %v, dirty %v, after block %d", buf.Bytenr, buf.generation, b.used[buf.Bytenr], buf.dirty.Load(), last)
		}
		last = buf.Bytenr
	}
}

// reopen forgets everything in memory; the transaction must just have been committed.
func (b *bed) reopen(cacheBlocks int) {
	b.t.Helper()
	bytenr, level, gen := b.root.Pointer()
	b.f = b.forest(cacheBlocks)
	b.limitPtrs()
	r, err := b.f.OpenRoot(b.task, testTree, bytenr, level, gen, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	b.root = r
}

func k(i uint64) format.Key {
	return format.Key{Objectid: 256 + i>>8, Type: format.STRING_ITEM_KEY, Offset: i & 255}
}

// item is one item of a tree.
type item struct {
	key  format.Key
	data string
}

// walk is walkTree of the one tree there is.
func (b *bed) walk() (items []item) {
	b.t.Helper()
	seen := map[uint64]int{}
	items = b.walkTree(b.root, seen)
	b.allSeen(seen)
	return items
}

// allSeen checks that the trees that were walked have every allocated block, and the pointers at
// each that the allocator counts.
func (b *bed) allSeen(seen map[uint64]int) {
	b.t.Helper()
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if len(seen) != len(b.used) {
		b.t.Fatalf("the trees have %d blocks, %d are allocated", len(seen), len(b.used))
	}
	for at, n := range seen {
		if n != b.shares[at]+1 {
			b.t.Fatalf("block %d has %d pointers, the allocator counts %d", at, n, b.shares[at]+1)
		}
	}
}

// walkTree checks every rule that a tree must keep and returns its items; it looks at the buffers,
// not through Search. It counts in seen the pointers at each block.
func (b *bed) walkTree(root *Root, seen map[uint64]int) (items []item) {
	b.t.Helper()
	b.store.mu.Lock()
	used := map[uint64]bool{}
	for u := range b.used {
		used[u] = true
	}
	b.store.mu.Unlock()
	bytenr, level, gen := root.Pointer()
	var rec func(bytenr uint64, level int, gen uint64, first *format.Key, counts bool)
	rec = func(bytenr uint64, level int, gen uint64, first *format.Key, counts bool) {
		b.t.Helper()
		if counts {
			seen[bytenr]++
			counts = seen[bytenr] == 1
		}
		buf, err := b.f.ReadBlock(b.task, bytenr, Check{Level: level, Generation: gen, Owner: root.ID, FirstKey: first})
		if err != nil {
			b.t.Fatalf("walk: %v", err)
		}
		defer buf.Put()
		if !used[bytenr] {
			b.t.Fatalf("block %d is in the tree but not allocated", bytenr)
		}
		n := buf.Node
		if n.Bytenr() != bytenr || n.Level() != level || n.Generation() != gen || n.Owner() != root.ID && gen > root.LastSnapshot() {
			b.t.Fatalf("block %d level %d generation %d: header says %d %d %d owner %d", bytenr, level, gen, n.Bytenr(), n.Level(), n.Generation(), n.Owner())
		}
		if gen == b.tr.ID != buf.dirty.Load() && gen == b.tr.ID {
			b.t.Fatalf("block %d of generation %d: dirty is %v", bytenr, gen, buf.dirty.Load())
		}
		if first != nil && n.Key(0) != *first {
			b.t.Fatalf("block %d: first key %v, parent says %v", bytenr, n.Key(0), *first)
		}
		if first != nil && n.Nritems() == 0 {
			b.t.Fatalf("block %d at level %d is empty and not the root", bytenr, level)
		}
		if level > 0 {
			if n.Nritems() == 0 {
				b.t.Fatalf("inner node %d is empty", bytenr)
			}
			for i := range n.Nritems() {
				if n.PtrGeneration(i) > gen {
					b.t.Fatalf("block %d generation %d points at generation %d", bytenr, gen, n.PtrGeneration(i))
				}
				key := n.Key(i)
				rec(n.Blockptr(i), level-1, n.PtrGeneration(i), &key, counts)
			}
			return
		}
		end := format.LeafDataSize(len(n))
		for i := range n.Nritems() {
			if n.ItemOffset(i)+n.ItemSize(i) != end {
				b.t.Fatalf("leaf %d slot %d: data ends at %d, want %d", bytenr, i, n.ItemOffset(i)+n.ItemSize(i), end)
			}
			end = n.ItemOffset(i)
			if len(items) > 0 && !items[len(items)-1].key.Less(n.Key(i)) {
				b.t.Fatalf("leaf %d slot %d: key %v after %v", bytenr, i, n.Key(i), items[len(items)-1].key)
			}
			items = append(items, item{n.Key(i), string(n.Item(i))})
		}
		if end < n.Nritems()*format.ItemHeaderSize {
			b.t.Fatalf("leaf %d: data at %d overlaps %d headers", bytenr, end, n.Nritems())
		}
	}
	rec(bytenr, level, gen, nil, true)
	if h := b.task.HeldLocks; len(h) != 0 {
		b.t.Fatalf("locks held after the operation: %v", h)
	}
	return items
}

// noRefs checks that nothing but the root is referenced, and the counts of dirty blocks.
func (b *bed) noRefs() {
	b.t.Helper()
	for i := range b.f.cache.shards {
		dirty := int32(0)
		for _, buf := range b.f.cache.shards[i].ring {
			if buf.dirty.Load() {
				dirty++
			}
		}
		if n := b.f.cache.shards[i].dirty.Load(); n != dirty {
			b.t.Fatalf("shard %d counts %d dirty blocks, want %d", i, n, dirty)
		}
		for _, buf := range b.f.cache.shards[i].ring {
			want := int32(0)
			if buf == b.root.node.Load() {
				want = 1
			}
			if n := buf.refs.Load(); n != want {
				b.t.Fatalf("block %d level %d has %d references, want %d", buf.Bytenr, buf.level, n, want)
			}
		}
	}
}

package ctree

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// diskBed has a committed tree of two levels and nothing in memory.
func diskBed(t *testing.T, cacheBlocks int) *bed {
	b := newBed(t, 4096, cacheBlocks)
	for i := range uint64(200) {
		must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 100)))
	}
	b.commit(nil)
	b.reopen(cacheBlocks)
	return b
}

// leafOf is the address of the leaf with key i.
func (b *bed) leafOf(i uint64) uint64 {
	b.t.Helper()
	var p Path
	if _, err := b.f.SearchSlot(b.task, nil, b.root, k(i), &p, 0, false); err != nil {
		b.t.Fatal(err)
	}
	defer p.Release(b.task)
	return p.Nodes[0].Bytenr
}

// change edits a block on disk and gives it a right checksum.
func (b *bed) change(bytenr uint64, f func(n format.Node)) {
	n := format.Node(b.blocks[bytenr])
	f(n)
	n.UpdateCsum(format.CsumCRC32C)
}

func TestReadChecks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(b *bed, leaf uint64)
		want   string
	}{
		{"checksum", func(b *bed, leaf uint64) { b.blocks[leaf][300] ^= 1 }, "bad checksum, have 0x"},
		{"bytenr", func(b *bed, leaf uint64) { b.change(leaf, func(n format.Node) { n.SetBytenr(4096) }) }, "bad bytenr, have 4096 want "},
		{"fsid", func(b *bed, leaf uint64) { b.change(leaf, func(n format.Node) { n.SetFSID(format.UUID{7}) }) }, "bad fsid, have 07"},
		{"level", func(b *bed, leaf uint64) { b.change(leaf, func(n format.Node) { n.SetLevel(1) }) }, "bad level, have 1 want 0"},
		{"generation", func(b *bed, leaf uint64) { b.change(leaf, func(n format.Node) { n.SetGeneration(77) }) }, "bad generation, have 77 want 2"},
		{"generation of the block before", func(b *bed, leaf uint64) { b.change(leaf, func(n format.Node) { n.SetGeneration(1) }) }, "bad generation, have 1 want 2"},
		{"owner", func(b *bed, leaf uint64) {
			b.change(leaf, func(n format.Node) { n.SetOwner(format.CSUM_TREE_OBJECTID) })
		}, "bad owner, have 7 want 300"},
		{"not written", func(b *bed, leaf uint64) { b.change(leaf, func(n format.Node) { n.SetWritten(false) }) }, "WRITTEN"},
		{"first key", func(b *bed, leaf uint64) {
			b.change(leaf, func(n format.Node) { key := n.Key(0); key.Offset--; n.SetKey(0, key) })
		}, "bad first key, have (256 253 "},
		{"key order", func(b *bed, leaf uint64) {
			b.change(leaf, func(n format.Node) { n.SetKey(1, n.Key(0)) })
		}, "bad key order"},
		{"pointer loop", func(b *bed, leaf uint64) {
			// The root points at itself: the level says so.
			top, _, _ := b.root.Pointer()
			b.change(top, func(n format.Node) {
				slot, _ := n.Search(k(100).Next())
				n.SetBlockptr(slot-1, top)
			})
			b.reopen(100)
		}, "bad level, have 1 want 0"},
		{"unaligned", func(b *bed, leaf uint64) {
			top, level, gen := b.root.Pointer()
			b.change(top, func(n format.Node) {
				slot, _ := n.Search(k(100).Next())
				n.SetBlockptr(slot-1, leaf+1)
			})
			b.f = b.forest(100)
			_, err := b.f.OpenRoot(b.task, testTree, top, level, gen, 0)
			if err == nil || !strings.Contains(err.Error(), "bad block pointer") {
				b.t.Fatalf("open root: %v", err)
			}
			b.change(top, func(n format.Node) {
				slot, _ := n.Search(k(100).Next())
				n.SetBlockptr(slot-1, leaf)
			})
			b.reopen(100)
			b.blocks[leaf][300] ^= 1
		}, "bad checksum"},
		{"read error", func(b *bed, leaf uint64) { delete(b.blocks, leaf) }, "never written"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := diskBed(t, 100)
			leaf := b.leafOf(100)
			b.reopen(100)
			tc.change(b, leaf)
			var p Path
			_, err := b.f.SearchSlot(b.task, nil, b.root, k(100), &p, 0, false)
			if err == nil {
				t.Fatal("search succeeds")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %q, want %q in it", err, tc.want)
			}
			if tc.name != "read error" && (!errors.Is(err, errno.EUCLEAN) || !strings.HasPrefix(err.Error(), "corrupt leaf: root=300 block=")) {
				t.Fatalf("error %q", err)
			}
			if p.Nodes[0] != nil || len(b.task.HeldLocks) > 0 {
				t.Fatal("the path is held after an error")
			}
			b.noRefs()
			// The rest of the tree is as good as ever.
			if found, err := b.f.SearchSlot(b.task, nil, b.root, k(0), &p, 0, false); !found || err != nil {
				t.Fatal(found, err)
			}
			p.Release(b.task)
		})
	}
}

func TestSecondMirror(t *testing.T) {
	b := diskBed(t, 100)
	leaf := b.leafOf(100)
	b.reopen(100)
	b.two = true
	b.bad[leaf] = 1
	var p Path
	if found, err := b.f.SearchSlot(b.task, nil, b.root, k(100), &p, 0, false); !found || err != nil {
		t.Fatal(found, err)
	}
	p.Release(b.task)
	b.reopen(100)
	b.bad[leaf] = 2
	_, err := b.f.SearchSlot(b.task, nil, b.root, k(100), &p, 0, false)
	if err == nil || !strings.Contains(err.Error(), "bad checksum") {
		t.Fatal(err)
	}
	// The device recovers: nobody remembers the failure.
	b.bad[leaf] = 0
	if found, err := b.f.SearchSlot(b.task, nil, b.root, k(100), &p, 0, false); !found || err != nil {
		t.Fatalf("after the device has recovered: %v, %v", found, err)
	}
	p.Release(b.task)
	// The first mirror lost a write: it has the whole block of an older transaction.
	b.reopen(100)
	old := format.Node(bytes.Clone(b.blocks[leaf]))
	old.SetGeneration(1)
	old.UpdateCsum(format.CsumCRC32C)
	b.stale[leaf] = old
	if found, err := b.f.SearchSlot(b.task, nil, b.root, k(100), &p, 0, false); !found || err != nil {
		t.Fatalf("with a lost write on the first mirror: %v, %v", found, err)
	}
	p.Release(b.task)
	b.noRefs()
}

// The cache keeps to its bound for clean blocks, and never lets a dirty or referenced one go.
func TestCacheBound(t *testing.T) {
	b := newBed(t, 4096, cacheShards) // one clean block for each shard
	for i := range uint64(5000) {
		must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 400)))
	}
	dirty := b.tr.Dirty.Len(b.task)
	if st := b.f.Stats(b.task); st.Dirty != dirty || st.Cached != dirty || dirty < 500 {
		t.Fatalf("%+v with %d dirty", st, dirty)
	}
	if n := b.walk(); len(n) != 5000 || b.f.Stats(b.task).Reads != 0 {
		t.Fatalf("%d items, %d reads", len(n), b.f.Stats(b.task).Reads)
	}
	b.commit(nil)
	var held Path
	_, err := b.f.SearchSlot(b.task, nil, b.root, k(2500), &held, 0, false)
	must(t, err)
	leaf := held.Nodes[0]
	reader := sched.NewTask("reader")
	for range 3 {
		var p Path
		more, err := b.f.SearchForward(reader, b.root, format.Key{}, &p)
		for more && err == nil {
			more, err = b.f.NextItem(reader, b.root, &p)
		}
		must(t, err)
		p.Release(reader)
	}
	st := b.f.Stats(b.task)
	if st.Dirty != 0 || st.Cached > 2*cacheShards {
		t.Fatalf("%+v, want at most %d cached", st, 2*cacheShards)
	}
	if c := b.f.cache.find(leaf.Bytenr); c != leaf {
		t.Fatal("a referenced block left the cache")
	} else {
		c.Put()
	}
	held.Release(b.task)
	b.noRefs()

	// Beside many clean blocks a few dirty ones stay, however often the clock hand comes by.
	for i := uint64(0); i < 5000; i += 100 {
		var p Path
		_, err := b.f.SearchSlot(b.task, b.tr, b.root, k(i), &p, 0, true)
		must(t, err)
		p.Release(b.task)
	}
	for range 3 {
		var p Path
		more, err := b.f.SearchForward(reader, b.root, format.Key{}, &p)
		for more && err == nil {
			more, err = b.f.NextItem(reader, b.root, &p)
		}
		must(t, err)
		p.Release(reader)
	}
	for _, d := range b.tr.Dirty.Buffers(b.task) {
		if c := b.f.cache.find(d.Bytenr); c != d {
			t.Fatalf("dirty block %d left the cache", d.Bytenr)
		} else {
			c.Put()
		}
	}
	b.noRefs()
}

// A block that is written in the middle of its transaction, as an fsync writes its log, is what a
// crash finds. The transaction goes on and changes the tree again: it copies, and what was written
// stays as it is.
func TestWrittenBlockIsCopied(t *testing.T) {
	b := newBed(t, 4096, 100)
	for i := range uint64(100) {
		must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 100)))
	}
	old := b.tr
	b.f.Seal(b.task, old.Dirty)
	must(t, b.f.WriteOut(b.task, old.Dirty, b.store))
	disk := map[uint64]string{}
	for at, d := range b.blocks {
		disk[at] = string(d)
	}
	b.tr = &Trans{ID: old.ID, Dirty: NewDirtySet()}
	for i := range uint64(100) {
		var p Path
		_, err := b.f.SearchSlot(b.task, b.tr, b.root, k(i), &p, 0, true)
		must(t, err)
		if _, ok := disk[p.Nodes[0].Bytenr]; ok {
			t.Fatalf("the leaf of key %d is changed at %d, where it was written", i, p.Nodes[0].Bytenr)
		}
		p.Item()[0] ^= 0xff
		p.Release(b.task)
	}
	b.f.Seal(b.task, b.tr.Dirty)
	must(t, b.f.WriteOut(b.task, b.tr.Dirty, b.store))
	for at, d := range disk {
		if string(b.blocks[at]) != d {
			t.Fatalf("block %d, which was written, is written again", at)
		}
	}
	b.noRefs()
}

// A failed write leaves every block dirty: what memory holds is all there is of it.
func TestWriteOutError(t *testing.T) {
	b := newBed(t, 4096, cacheShards)
	for i := range uint64(1000) {
		must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 400)))
	}
	b.f.Seal(b.task, b.tr.Dirty)
	b.failW = 2
	err := b.f.WriteOut(b.task, b.tr.Dirty, b.store)
	if !errors.Is(err, errno.EIO) || !strings.Contains(err.Error(), "write tree blocks at ") {
		t.Fatal(err)
	}
	if st := b.f.Stats(b.task); st.Dirty != b.tr.Dirty.Len(b.task) {
		t.Fatalf("%+v", st)
	}
	must(t, b.f.WriteOut(b.task, b.tr.Dirty, b.store))
	if st := b.f.Stats(b.task); st.Dirty != 0 {
		t.Fatalf("%+v", st)
	}
	b.tr = &Trans{ID: b.tr.ID + 1, Dirty: NewDirtySet()}
	b.reopen(100)
	if n := len(b.walk()); n != 1000 {
		t.Fatalf("%d items", n)
	}
}

// A block that breaks a rule is not written, nor is any other of its transaction.
func TestWriteOutChecks(t *testing.T) {
	b := newBed(t, 4096, 100)
	for i := range uint64(100) {
		must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 100)))
	}
	var p Path
	_, err := b.f.SearchSlot(b.task, b.tr, b.root, k(50), &p, 0, true)
	must(t, err)
	p.Leaf().SetKey(p.Slot(), format.MaxKey)
	p.Release(b.task)
	b.f.Seal(b.task, b.tr.Dirty)
	err = b.f.WriteOut(b.task, b.tr.Dirty, b.store)
	if err == nil || !strings.Contains(err.Error(), "not written: corrupt leaf: root=300 block=") || !strings.Contains(err.Error(), "bad key order") {
		t.Fatal(err)
	}
	if len(b.blocks) != 0 {
		t.Fatalf("%d blocks were written", len(b.blocks))
	}
}

// chunked is a Submitter that knows its chunks and checks that no bio crosses one.
type chunked struct {
	*store
	chunk uint64
	lens  []int
}

func (c *chunked) ChunkEnd(logical uint64) uint64 { return logical/c.chunk*c.chunk + c.chunk }

func (c *chunked) Submit(t *sched.Task, b *blockdev.Bio) {
	if uint64(b.Off)/c.chunk != (uint64(b.Off)+uint64(b.Len())-1)/c.chunk {
		c.t.Errorf("bio of %d bytes at %d crosses a chunk of %d", b.Len(), b.Off, c.chunk)
	}
	c.lens = append(c.lens, b.Len())
	c.store.Submit(t, b)
}

func TestWriteOutMerges(t *testing.T) {
	b := newBed(t, 4096, 100)
	for i := range uint64(3000) {
		must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 400)))
	}
	blocks := b.tr.Dirty.Len(b.task)
	b.f.Seal(b.task, b.tr.Dirty)
	c := &chunked{store: b.store, chunk: 320 << 10}
	must(t, b.f.WriteOut(b.task, b.tr.Dirty, c))
	total, most := 0, 0
	for _, n := range c.lens {
		total += n
		most = max(most, n)
	}
	if total != blocks*4096 || most != 320<<10 {
		t.Fatalf("%d blocks in bios of %v", blocks, c.lens)
	}
	c = &chunked{store: b.store, chunk: 1 << 30}
	b.f.cache = cache{}
	b.f.cache.init(100)
	must(t, b.f.WriteOut(b.task, b.tr.Dirty, c))
	for _, n := range c.lens {
		if n > 512<<10 {
			t.Fatalf("bio of %d bytes", n)
		}
	}
}

// A NOWAIT search takes no lock that is held and reads nothing.
func TestNowait(t *testing.T) {
	b := diskBed(t, 100)
	p := Path{Nowait: true}
	reads := b.f.Stats(b.task).Reads
	if _, err := b.f.SearchSlot(b.task, nil, b.root, k(100), &p, 0, false); err != error(kiocb.AgainTreeRead) {
		t.Fatalf("not in memory: %v", err)
	}
	if n := b.f.Stats(b.task).Reads; n != reads || p.Nodes[0] != nil || len(b.task.HeldLocks) > 0 {
		t.Fatal("it read, or holds something")
	}
	b.walk()
	if found, err := b.f.SearchSlot(b.task, nil, b.root, k(100), &p, 0, false); !found || err != nil {
		t.Fatal(found, err)
	}
	p.Release(b.task)
	// Another task changes the leaf.
	other := sched.NewTask("other")
	var q Path
	if _, err := b.f.SearchSlot(other, b.tr, b.root, k(100), &q, 0, true); err != nil {
		t.Fatal(err)
	}
	if _, err := b.f.SearchSlot(b.task, nil, b.root, k(100), &p, 0, false); err != error(kiocb.AgainTree) {
		t.Fatalf("leaf locked: %v", err)
	}
	if found, err := b.f.SearchSlot(b.task, nil, b.root, k(0), &p, 0, false); !found || err != nil {
		t.Fatal(found, err)
	}
	// The next leaf is the locked one, sooner or later: it must not wait for it.
	var err error
	for more := true; more && err == nil; {
		more, err = b.f.NextItem(b.task, b.root, &p)
	}
	if !errors.Is(err, errno.EAGAIN) {
		t.Fatalf("next leaf locked: %v", err)
	}
	q.Release(other)
	lockdep.AssertNone(b.task)
	b.noRefs()
}

// Many tasks that miss the same block read it once.
func TestReadOnce(t *testing.T) {
	b := diskBed(t, 100)
	var tasks []*sched.Task
	for range 8 {
		tasks = append(tasks, b.task.Go("reader", func(task *sched.Task) {
			var p Path
			if found, err := b.f.SearchSlot(task, nil, b.root, k(100), &p, 0, false); !found || err != nil {
				t.Error(found, err)
			}
			p.Release(task)
		}))
	}
	for _, task := range tasks {
		b.task.Join(task)
	}
	if n := b.f.Stats(b.task).Reads; n != 2 { // root and leaf
		t.Fatalf("%d reads, want 2", n)
	}
}

// swapper frees and reuses a block's place while a search, which holds no lock then, reads it.
type swapper struct {
	*store
	swap func(bytenr uint64)
}

func (s *swapper) Read(t *sched.Task, p []byte, logical uint64, mirror int) error {
	if f := s.swap; f != nil {
		s.swap = nil
		f(logical)
	}
	return s.store.Read(t, p, logical, mirror)
}

// A search that reads a block without its locks may find that the block was freed and its place
// used again meanwhile. That is not corruption: it searches again.
func TestReadRace(t *testing.T) {
	b := diskBed(t, 100)
	s := &swapper{store: b.store}
	b.f.reader = s
	raced := false
	s.swap = func(bytenr uint64) {
		raced = true
		// Another task copies the leaf, commits, and the old place becomes something else.
		other := sched.NewTask("other")
		var p Path
		b.f.DropBuffer(other, bytenr)
		if found, err := b.f.SearchSlot(other, b.tr, b.root, k(100), &p, 0, true); !found || err != nil {
			t.Fatal(found, err)
		}
		p.Item()[0] ^= 0xff
		p.Release(other)
		b.commit(nil)
		b.blocks[bytenr] = make([]byte, 4096)
	}
	var p Path
	found, err := b.f.SearchSlot(b.task, nil, b.root, k(100), &p, 0, false)
	if !found || err != nil || !raced {
		t.Fatal(found, err, raced)
	}
	if p.Item()[0] != fill(100, 100)[0]^0xff {
		t.Fatal("the old item was found")
	}
	p.Release(b.task)
	b.noRefs()
}

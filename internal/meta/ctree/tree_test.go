package ctree

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
)

// model is the right content of the tree.
type model map[format.Key]string

func (m model) sorted() []item {
	var items []item
	for k, v := range m {
		items = append(items, item{k, v})
	}
	slices.SortFunc(items, func(a, b item) int { return a.key.Compare(b.key) })
	return items
}

func (b *bed) compare(m model) {
	b.t.Helper()
	sameItems(b.t, b.walk(), m)
}

func sameItems(t testing.TB, have []item, m model) {
	t.Helper()
	want := m.sorted()
	if len(have) != len(want) {
		t.Fatalf("tree has %d items, want %d", len(have), len(want))
	}
	for i := range have {
		if have[i] != want[i] {
			t.Fatalf("item %d is %v with %d bytes, want %v with %d", i, have[i].key, len(have[i].data), want[i].key, len(want[i].data))
		}
	}
}

func fill(i uint64, n int) []byte {
	d := make([]byte, n)
	for j := range d {
		d[j] = byte(i + uint64(j)*7)
	}
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// op does one random operation on tree and model.
func (b *bed) op(rng *rand.Rand, m model, keys uint64, sizeMax int) {
	t := b.t
	t.Helper()
	key := k(rng.Uint64N(keys))
	old, have := m[key]
	if rng.IntN(2) == 0 {
		sizeMax = min(sizeMax, 60)
	}
	var p Path
	switch what := rng.IntN(21); {
	case what < 8: // insert
		d := fill(rng.Uint64(), rng.IntN(sizeMax))
		err := b.f.InsertItem(b.task, b.tr, b.root, key, d)
		if have != (err == errno.EEXIST) || !have && err != nil {
			t.Fatalf("insert %v: %v, exists %v", key, err, have)
		}
		if !have {
			m[key] = string(d)
		}
	case what < 14: // delete, sometimes several
		found, err := b.f.SearchSlot(b.task, b.tr, b.root, key, &p, -1, true)
		must(t, err)
		if found != have {
			t.Fatalf("search %v to delete: found %v, want %v", key, found, have)
		}
		if found {
			nr := 1
			if rng.IntN(4) == 0 {
				nr = min(1+rng.IntN(3), p.Leaf().Nritems()-p.Slot())
			}
			for i := range nr {
				delete(m, p.Leaf().Key(p.Slot()+i))
			}
			must(t, b.f.DelItems(b.task, b.tr, b.root, &p, p.Slot(), nr))
		}
		p.Release(b.task)
	case what < 15: // change in place
		found, err := b.f.SearchSlot(b.task, b.tr, b.root, key, &p, 0, true)
		must(t, err)
		if found && len(old) > 0 {
			b.f.DirtyLeaf(b.task, b.tr, &p)
			d := fill(rng.Uint64(), len(old))
			copy(p.Item(), d)
			m[key] = string(d)
		}
		p.Release(b.task)
	case what < 16: // grow
		by := 1 + rng.IntN(sizeMax)
		if !have || len(old)+by > b.f.MaxItemSize() {
			return
		}
		p.ForExtension = true
		found, err := b.f.SearchSlot(b.task, b.tr, b.root, key, &p, by, true)
		must(t, err)
		if !found {
			t.Fatalf("search %v to extend: not found", key)
		}
		b.f.ExtendItem(b.task, &p, by)
		d := fill(rng.Uint64(), by)
		copy(p.Item()[len(old):], d)
		m[key] = old + string(d)
		p.Release(b.task)
	case what < 17: // shrink
		found, err := b.f.SearchSlot(b.task, b.tr, b.root, key, &p, 0, true)
		must(t, err)
		if found {
			n := rng.IntN(len(old) + 1)
			if rng.IntN(2) == 0 {
				b.f.TruncateItem(b.task, &p, n, true)
				m[key] = old[:n]
			} else {
				b.f.TruncateItem(b.task, &p, n, false)
				m[key] = old[len(old)-n:]
			}
		}
		p.Release(b.task)
	case what < 18: // duplicate under the next key
		next := k(256) // any
		next = key
		next.Offset++
		if _, taken := m[next]; !have || taken || len(old)*2+2*format.ItemHeaderSize > format.LeafDataSize(b.size) {
			return
		}
		found, err := b.f.SearchSlot(b.task, b.tr, b.root, key, &p, 0, true)
		must(t, err)
		if !found {
			t.Fatalf("search %v to duplicate: not found", key)
		}
		must(t, b.f.DuplicateItem(b.task, b.tr, b.root, &p, next))
		if p.Key() != next || string(p.Item()) != old {
			t.Fatalf("the copy is %v %x", p.Key(), p.Item())
		}
		m[next] = old
		p.Release(b.task)
	case what < 19: // new key
		next := key
		next.Offset++
		if _, taken := m[next]; !have || taken {
			return
		}
		found, err := b.f.SearchSlot(b.task, b.tr, b.root, key, &p, -1, true)
		must(t, err)
		if !found {
			t.Fatalf("search %v to rename: not found", key)
		}
		b.f.SetItemKeySafe(b.task, &p, next)
		delete(m, key)
		m[next] = old
		p.Release(b.task)
	case what < 20: // split in two
		next := key
		next.Offset++
		if _, taken := m[next]; !have || taken || len(old) < 2 || len(old)+2*format.ItemHeaderSize > format.LeafDataSize(b.size) {
			return
		}
		at := 1 + rng.IntN(len(old)-1)
		must(t, b.f.SplitItem(b.task, b.tr, b.root, &p, key, next, at))
		if p.Key() != next {
			t.Fatalf("the path is at %v", p.Key())
		}
		m[key], m[next] = old[:at], old[at:]
		p.Release(b.task)
	default: // batch at the end of an object, where no other key lies between
		obj := key.Objectid
		var batch Batch
		var datas [][]byte
		last := format.Key{Objectid: obj, Type: format.STRING_ITEM_KEY, Offset: 1000}
		room := b.f.dataMax
		for i := range uint64(1 + rng.IntN(5)) {
			last.Offset += i + 1
			if _, taken := m[last]; taken {
				return
			}
			d := fill(i, rng.IntN(sizeMax/2+1))
			if room -= len(d) + format.ItemHeaderSize; room < 0 {
				return
			}
			batch.Keys, batch.Sizes, datas = append(batch.Keys, last), append(batch.Sizes, len(d)), append(datas, d)
		}
		for key := range m {
			if batch.Keys[0].Less(key) && key.Less(last) {
				return
			}
		}
		must(t, b.f.InsertEmptyItems(b.task, b.tr, b.root, &p, batch))
		for i, d := range datas {
			copy(p.Leaf().Item(p.Slot()+i), d)
			m[batch.Keys[i]] = string(d)
		}
		p.Release(b.task)
	}
}

// TestRandom runs random operations, commits and reopens against a map, with trees of up to four
// levels.
func TestRandom(t *testing.T) {
	for _, tc := range []struct {
		name    string
		node    int
		keys    uint64
		sizeMax int
		ops     int
		cache   int
		ptrs    int // key pointers in an inner node, for tall trees; 0 is all that fit
	}{
		{"small items", 4096, 20000, 40, 40000, 1000, 0},
		{"large items", 4096, 3000, 1500, 12000, 64, 0},
		{"largest items", 4096, 300, 3970, 6000, 64, 0},
		{"mixed items, one transaction", 4096, 600, 3900, 40000, 64, 0},
		{"16k nodes", 16384, 20000, 300, 20000, 100, 0},
		{"tall", 4096, 6000, 1000, 20000, 3000, 12},
		{"tall, small items", 4096, 40000, 100, 40000, 3000, 16},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			b := newBed(t, tc.node, tc.cache)
			b.ptrs = tc.ptrs
			b.limitPtrs()
			m := model{}
			ops := tc.ops
			if testing.Short() {
				ops /= 5
			}
			for i := range ops {
				b.op(rng, m, tc.keys, tc.sizeMax)
				switch {
				case i%997 == 996:
					b.compare(m)
				case tc.name == "mixed items, one transaction":
				case i%499 == 498:
					b.commit(func() {
						for range 20 {
							b.op(rng, m, tc.keys, tc.sizeMax)
						}
					})
				case i%2003 == 2002:
					b.commit(nil)
					b.reopen(tc.cache)
				}
			}
			b.compare(m)
			b.noRefs()
			_, level, _ := b.root.Pointer()
			if tc.ptrs > 0 && level < 3 && !testing.Short() {
				t.Errorf("height %d, want at least 4", level+1)
			}
			t.Logf("%d items, height %d, %d blocks", len(m), level+1, len(b.used))
			// Empty it again: the tree shrinks to one leaf.
			for _, it := range m.sorted() {
				var p Path
				found, err := b.f.SearchSlot(b.task, b.tr, b.root, it.key, &p, -1, true)
				must(t, err)
				if !found {
					t.Fatalf("%v not found", it.key)
				}
				must(t, b.f.DelItems(b.task, b.tr, b.root, &p, p.Slot(), 1))
				p.Release(b.task)
			}
			b.compare(model{})
			b.noRefs()
			if _, level, _ := b.root.Pointer(); level > 1 || len(b.used) > 2 {
				t.Fatalf("empty tree has %d levels and %d blocks", level+1, len(b.used))
			}
		})
	}
}

// TestHeight builds a tree of four levels in three orders, walks it forwards and backwards and
// takes it down.
func TestHeight(t *testing.T) {
	n := 40000
	if testing.Short() {
		n = 10000
	}
	for _, order := range []string{"ascending", "descending", "shuffled"} {
		t.Run(order, func(t *testing.T) {
			b := newBed(t, 4096, 20000)
			keys := make([]uint64, n)
			for i := range keys {
				keys[i] = uint64(i)
			}
			switch order {
			case "descending":
				slices.Reverse(keys)
			case "shuffled":
				rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			}
			for _, i := range keys {
				must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 200)))
			}
			if _, level, _ := b.root.Pointer(); level < 2 {
				t.Fatalf("height %d, want at least 3", level+1)
			}
			if items := b.walk(); len(items) != n {
				t.Fatalf("%d items, want %d", len(items), n)
			}
			b.commit(nil)
			b.reopen(500)
			var p Path
			more, err := b.f.SearchForward(b.task, b.root, format.Key{}, &p)
			for i := range uint64(n) {
				must(t, err)
				if !more || p.Key() != k(i) || string(p.Item()) != string(fill(i, 200)) {
					t.Fatalf("forwards: item %d: more %v", i, more)
				}
				more, err = b.f.NextItem(b.task, b.root, &p)
			}
			if more || err != nil {
				t.Fatalf("forwards: more after the last item, %v", err)
			}
			p.Release(b.task)
			more, err = b.f.SearchBackward(b.task, b.root, format.MaxKey, &p)
			for i := uint64(n); i > 0; i-- {
				must(t, err)
				if !more || p.Key() != k(i-1) {
					t.Fatalf("backwards: item %d: more %v", i-1, more)
				}
				more, err = b.f.PrevItem(b.task, b.root, &p)
			}
			if more || err != nil || p.Nodes[0] != nil {
				t.Fatalf("backwards: more before the first item, %v", err)
			}
			for _, i := range keys {
				found, err := b.f.SearchSlot(b.task, b.tr, b.root, k(i), &p, -1, true)
				must(t, err)
				if !found {
					t.Fatalf("key %d not found", i)
				}
				must(t, b.f.DelItems(b.task, b.tr, b.root, &p, p.Slot(), 1))
				p.Release(b.task)
			}
			b.compare(model{})
		})
	}
}

func TestSearchNeighbours(t *testing.T) {
	b := newBed(t, 4096, 1000)
	var p Path
	for _, f := range []func() (bool, error){
		func() (bool, error) { return b.f.SearchForward(b.task, b.root, k(0), &p) },
		func() (bool, error) { return b.f.SearchBackward(b.task, b.root, k(0), &p) },
	} {
		if more, err := f(); more || err != nil || p.Nodes[0] != nil {
			t.Fatalf("empty tree: %v %v", more, err)
		}
	}
	for i := uint64(10); i <= 2000; i += 10 {
		must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 100)))
	}
	for i := uint64(0); i <= 2010; i++ {
		more, err := b.f.SearchForward(b.task, b.root, k(i), &p)
		must(t, err)
		if want := max(10, (i+9)/10*10); more != (i <= 2000) || more && p.Key() != k(want) {
			t.Fatalf("forward from %d: %v", i, more)
		}
		p.Release(b.task)
		more, err = b.f.SearchBackward(b.task, b.root, k(i), &p)
		must(t, err)
		if want := min(i/10*10, 2000); more != (i >= 10) || more && p.Key() != k(want) {
			t.Fatalf("backward from %d: %v", i, more)
		}
		p.Release(b.task)
	}
}

// A block that the last commit wrote is never changed, whatever the next transaction does.
func TestCommittedTreeStays(t *testing.T) {
	b := newBed(t, 4096, 1000)
	rng := rand.New(rand.NewPCG(7, 7))
	m := model{}
	for range 3000 {
		b.op(rng, m, 3000, 100)
	}
	b.commit(nil)
	b.compare(m)
	bytenr, level, gen := b.root.Pointer()
	disk := map[uint64]string{}
	for at, d := range b.blocks {
		disk[at] = string(d)
	}
	want := b.walk()
	used := map[uint64]bool{}
	for u := range b.used {
		used[u] = true
	}
	for range 3000 {
		b.op(rng, m, 3000, 100)
	}
	b.compare(m)
	for at, d := range b.blocks {
		if disk[at] != string(d) {
			t.Fatalf("block %d was changed on disk without a commit", at)
		}
	}
	// As after a crash.
	old := &bed{store: newStore(t, 4096), tr: &Trans{ID: 99}, task: b.task}
	old.blocks, old.used = b.blocks, used
	old.f = old.forest(100)
	r, err := old.f.OpenRoot(b.task, testTree, bytenr, level, gen, 0)
	must(t, err)
	old.root = r
	if have := old.walk(); !slices.Equal(have, want) {
		t.Fatalf("the committed tree has %d items, want %d", len(have), len(want))
	}
}

// No space in the middle of an operation: the error comes back, and the tree is whole and holds
// what it held.
func TestNoSpace(t *testing.T) {
	b := newBed(t, 4096, 1000)
	rng := rand.New(rand.NewPCG(3, 4))
	m := model{}
	for range 6000 {
		b.op(rng, m, 6000, 200)
	}
	b.commit(nil)
	fails := 0
	for i := range 3000 {
		key := k(rng.Uint64N(6000))
		_, have := m[key]
		b.left = rng.IntN(5)
		if i%2 == 0 {
			d := fill(uint64(i), rng.IntN(900))
			err := b.f.InsertItem(b.task, b.tr, b.root, key, d)
			switch {
			case err == nil:
				m[key] = string(d)
			case errors.Is(err, errno.ENOSPC):
				fails++
			case !have || err != errno.EEXIST:
				t.Fatal(err)
			}
		} else {
			var p Path
			found, err := b.f.SearchSlot(b.task, b.tr, b.root, key, &p, -1, true)
			switch {
			case err == nil && found:
				must(t, b.f.DelItems(b.task, b.tr, b.root, &p, p.Slot(), 1))
				delete(m, key)
			case err != nil && !errors.Is(err, errno.ENOSPC):
				t.Fatal(err)
			case err != nil:
				fails++
			}
			p.Release(b.task)
		}
		b.left = -1
		if i%100 == 0 {
			b.compare(m)
			b.noRefs()
			b.commit(nil)
		}
	}
	b.compare(m)
	if fails < 100 {
		t.Fatalf("only %d operations ran out of space", fails)
	}
}

// A node of any number of pointers, and an insert below it that makes two leaves at once, because
// the item fits neither half: the node makes room on the way down, where the search cannot come
// back to it.
func TestTwoLeavesUnderAFullNode(t *testing.T) {
	const ptrs = 12
	for leaves := uint64(1); leaves <= 3*ptrs; leaves++ {
		for at := range leaves {
			b := newBed(t, 4096, 1000)
			b.ptrs = ptrs
			b.limitPtrs()
			m := model{}
			for i := range 2 * leaves { // two to a leaf
				must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i*2), fill(i, 1950)))
				m[k(i*2)] = string(fill(i, 1950))
			}
			key := k(at*4 + 1) // between the two
			must(t, b.f.InsertItem(b.task, b.tr, b.root, key, fill(9, 3000)))
			m[key] = string(fill(9, 3000))
			b.compare(m)
		}
	}
}

func TestItemTooLarge(t *testing.T) {
	b := newBed(t, 4096, 100)
	for i := range uint64(5) {
		must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, b.f.MaxItemSize())))
	}
	if err := b.f.InsertItem(b.task, b.tr, b.root, k(9), make([]byte, b.f.MaxItemSize()+1)); !errors.Is(err, errno.EOVERFLOW) {
		t.Fatalf("insert: %v", err)
	}
	p := Path{ForExtension: true}
	if _, err := b.f.SearchSlot(b.task, b.tr, b.root, k(2), &p, 1, true); !errors.Is(err, errno.EOVERFLOW) {
		t.Fatalf("extend: %v", err)
	}
	if n := len(b.walk()); n != 5 {
		t.Fatalf("%d items", n)
	}
}

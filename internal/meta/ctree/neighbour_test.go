package ctree

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"btrlab/internal/errno"
)

// A search for a change reads the neighbours of the nodes on its way, to move items and pointers. A
// neighbour that cannot be read is a corrupt tree: an insert or a delete that meets one must say
// so. If it goes on with a split instead, nobody learns of the damage until the bytes in that leaf
// are asked for.
func TestBadNeighbour(t *testing.T) {
	b := newBed(t, 4096, 1000)
	b.ptrs = 12
	b.limitPtrs()
	const keys = 100
	for i := range uint64(keys) { // two to a leaf
		must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i*2), fill(i, 1300+int(i%3)*300)))
	}
	b.commit(nil)
	bytenr, level, gen := b.root.Pointer()
	if level < 2 {
		t.Fatalf("level %d, want nodes that have neighbours", level)
	}
	used := maps.Clone(b.used)
	again := func() {
		b.f = b.forest(1000)
		b.limitPtrs()
		r, err := b.f.OpenRoot(b.task, testTree, bytenr, level, gen, 0)
		must(t, err)
		b.root, b.used, b.pinned, b.met = r, maps.Clone(used), nil, 0
		b.tr = &Trans{ID: b.tr.ID, Dirty: NewDirtySet()}
	}
	del := func(i uint64) error {
		var p Path
		defer p.Release(b.task)
		found, err := b.f.SearchSlot(b.task, b.tr, b.root, k(i*2), &p, -1, true)
		if err != nil || !found {
			return err
		}
		return b.f.DelItems(b.task, b.tr, b.root, &p, p.Slot(), 1)
	}
	ops := []struct {
		name string
		run  func(i uint64) error
	}{
		{"insert", func(i uint64) error {
			return b.f.InsertItem(b.task, b.tr, b.root, k(i*2+1), fill(i, 700))
		}},
		{"insert a large item", func(i uint64) error {
			return b.f.InsertItem(b.task, b.tr, b.root, k(i*2+1), fill(i, 2900))
		}},
		{"delete", del},
		{"delete three", func(i uint64) error {
			for j := i; j < min(i+3, keys); j++ {
				if err := del(j); err != nil {
					return err
				}
			}
			return nil
		}},
	}
	for _, op := range ops {
		met := 0
		for i := range uint64(keys) {
			for block := range used {
				if block == bytenr {
					continue
				}
				again()
				b.bad[block] = 1
				err := op.run(i)
				delete(b.bad, block)
				if b.met > 0 {
					met++
					if err == nil || !errors.Is(err, errno.EUCLEAN) || !strings.Contains(err.Error(), "bad checksum") {
						t.Fatalf("%s at key %d read the damaged block %d and returned %v", op.name, i, block, err)
					}
				} else if err != nil {
					t.Fatalf("%s at key %d: %v", op.name, i, err)
				}
				if len(b.task.HeldLocks) > 0 {
					t.Fatalf("%s at key %d holds %v", op.name, i, b.task.HeldLocks)
				}
			}
		}
		t.Logf("%s: %d times a damaged block", op.name, met)
	}
}

// A tree whose items go from the end on: the last node gives its pointers to its left neighbour,
// its only one, and goes. If it took some back the two would never join, and the tree would keep
// the height that it once had.
func TestLastNodeJoins(t *testing.T) {
	const ptrs = 12
	for leaves := uint64(ptrs); leaves <= 3*ptrs; leaves++ {
		b := newBed(t, 4096, 1000)
		b.ptrs = ptrs
		b.limitPtrs()
		m := model{}
		for i := range leaves { // one to a leaf
			must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 3000)))
			m[k(i)] = string(fill(i, 3000))
		}
		for left := leaves - 1; left > 0; left-- {
			var p Path
			found, err := b.f.SearchSlot(b.task, b.tr, b.root, k(left), &p, -1, true)
			if err != nil || !found {
				t.Fatal(found, err)
			}
			must(t, b.f.DelItems(b.task, b.tr, b.root, &p, p.Slot(), 1))
			p.Release(b.task)
			delete(m, k(left))
			b.compare(m)
			if _, level, _ := b.root.Pointer(); level > 1 && left <= ptrs/4+1 {
				t.Fatalf("of %d leaves %d are left, and the root is at level %d", leaves, left, level)
			}
		}
	}
}

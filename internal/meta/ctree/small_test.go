package ctree

import (
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// TestSmallLeaf: patch 2 of seed 003. A delete leaves a leaf less than a third full between two
// neighbours that have room for some bytes, but for no item. Since 5.18 they are left alone;
// before, both were copied, nothing moved, and the copies were written. Patches 1 and 3 change no
// block: with and without them the tree is the same, and only what is counted differs. Neighbours
// with room for all of its items get them, and the leaf goes.
func TestSmallLeaf(t *testing.T) {
	for _, c := range []struct {
		name          string
		leaves        Leaves
		roomy         bool  // the neighbours have room for all
		copied        int64 // leaves
		rechecks, sum int64
		emptied       int64 // leaves
	}{
		{"5.18", Leaves{}, false, 1, 0, 0, 0},
		{"a byte is enough", Leaves{PushByte: true}, false, 3, 0, 0, 0},
		{"a byte is enough, asked twice", Leaves{PushByte: true, Recheck: true}, false, 3, 2, 0, 0},
		{"sums", Leaves{SumAlways: true}, false, 1, 0, 100, 0},
		{"emptied", Leaves{}, true, 2, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, 16384, 1024)
			must(t, b.f.FreeRoot(b.task, b.tr, b.root))
			r, err := b.f.NewRoot(b.task, b.tr, format.TREE_LOG_OBJECTID)
			must(t, err)
			b.root = r
			const size = 60 // so that full leaves have some bytes left
			m := model{}
			insert := func(i uint64) {
				m[k(i)] = string(fill(i, size))
				must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, size)))
			}
			for i := range uint64(400) {
				insert(4 * i)
			}
			var p Path
			more := uint64(1200) // as many as fit
			if c.roomy {
				more = 0
			}
			for i := range more {
				i += i/3 + 1
				_, err := b.f.SearchSlot(b.task, nil, b.root, k(i), &p, 0, false)
				must(t, err)
				room := p.Leaf().LeafFreeSpace() >= size+25
				p.Release(b.task)
				if room {
					insert(i)
				}
			}
			b.commit(nil)
			// The second leaf keeps its first items.
			var counts sched.Counts
			b.task.Counts = &counts
			defer func() { b.task.Counts = nil }()
			b.tr.Leaves = c.leaves
			second := Path{LowestLevel: 1}
			_, err = b.f.SearchSlot(b.task, nil, b.root, k(0), &second, 0, false)
			must(t, err)
			key := second.Nodes[1].Node.Key(1)
			second.Release(b.task)
			_, err = b.f.SearchSlot(b.task, b.tr, b.root, key, &p, -1, true)
			must(t, err)
			nr := p.Leaf().Nritems()
			for i := nr / 4; i < nr; i++ {
				delete(m, p.Leaf().Key(i))
			}
			must(t, b.f.DelItems(b.task, b.tr, b.root, &p, nr/4, nr-nr/4))
			p.Release(b.task)
			b.compare(m)
			n := &counts.Log.N
			if n[sched.LogCOWed] != c.copied || n[sched.LogRechecks] != c.rechecks || (n[sched.LogSums] > 0) != (c.sum > 0) {
				t.Errorf("have %d leaves copied, %d free spaces asked again, %d sizes added up want %d, %d, %d", n[sched.LogCOWed], n[sched.LogRechecks], n[sched.LogSums], c.copied, c.rechecks, c.sum)
			}
			if n[sched.LogSmall] != 1 || n[sched.LogEmptied] != c.emptied {
				t.Errorf("have %d small leaves, %d of them emptied, want 1 and %d", n[sched.LogSmall], n[sched.LogEmptied], c.emptied)
			}
			if counts.Log.Steps[0] == 0 || counts.Log.HeldNs[0] == 0 || counts.Log.Steps[1] == 0 {
				t.Errorf("have steps %v and times %v want some on levels 0 and 1", counts.Log.Steps, counts.Log.HeldNs)
			}
		})
	}
}

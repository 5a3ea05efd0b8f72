package ctree

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A tree and its snapshots, and snapshots of those, change at once; each keeps its own items, and
// every block is allocated exactly while some tree points at it. A snapshot is also taken of a tree
// that its transaction has changed, and the tree changes on in the same transaction, as it does
// when the snapshot's name goes into it: what both have by then must not change.
func TestSnapshots(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			b := newBed(t, 4096, 200)
			b.ptrs = 12 // several levels
			b.limitPtrs()
			rng := rand.New(rand.NewPCG(seed, 1))
			roots := []*Root{b.root}
			models := []model{{}}
			for round := range 12 {
				for range 250 {
					i := rng.IntN(len(roots))
					b.root = roots[i]
					b.op(rng, models[i], 1500, 120)
				}
				if len(roots) < 5 && round > 0 {
					i := rng.IntN(len(roots))
					b.root = roots[i]
					snap, err := b.f.Snapshot(b.task, b.tr, b.root, testTree+uint64(len(roots)))
					must(t, err)
					m := model{}
					for k, v := range models[i] {
						m[k] = v
					}
					for range 3 {
						b.op(rng, models[i], 1500, 120)
					}
					roots[i].EndSnapshot()
					roots, models = append(roots, snap), append(models, m)
				}
				seen := map[uint64]int{}
				for i, r := range roots {
					sameItems(t, b.walkTree(r, seen), models[i])
				}
				b.allSeen(seen)
				b.commit(nil)
			}
		})
	}
}

// A snapshot shares the blocks of its tree, so the tree copies even those that this transaction has
// made, until the snapshot is done. After that a block is copied once in a transaction again, or
// each change of each item would cost a path of new blocks.
func TestSnapshotEnds(t *testing.T) {
	b := newBed(t, 4096, 200)
	for i := range uint64(200) {
		must(t, b.f.InsertItem(b.task, b.tr, b.root, k(i), fill(i, 100)))
	}
	path := func() string {
		var p Path
		defer p.Release(b.task)
		found, err := b.f.SearchSlot(b.task, b.tr, b.root, k(100), &p, 0, true)
		if err != nil || !found {
			t.Fatal(found, err)
		}
		return fmt.Sprint(p.Nodes[0].Bytenr, " in ", p.Nodes[1].Bytenr)
	}
	old := path()
	if again := path(); again != old {
		t.Errorf("the second change in a transaction copies %s to %s", old, again)
	}
	_, err := b.f.Snapshot(b.task, b.tr, b.root, testTree+1)
	must(t, err)
	shared := path()
	if shared == old {
		t.Errorf("a change of %s, which a snapshot has as well, copies nothing", old)
	}
	b.root.EndSnapshot()
	if again := path(); again != shared {
		t.Errorf("after the snapshot a change copies %s to %s", shared, again)
	}
}

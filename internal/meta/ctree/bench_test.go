package ctree

import (
	"math/rand/v2"
	"testing"

	"btrlab/internal/sched"
)

func benchBed(b *testing.B, n uint64) *bed {
	sched.SetChecked(false)
	b.Cleanup(func() { sched.SetChecked(true) })
	bb := newBed(b, 16384, 1<<16)
	for i := range n {
		must(b, bb.f.InsertItem(bb.task, bb.tr, bb.root, k(i), fill(i, 160)))
	}
	_, level, _ := bb.root.Pointer()
	b.Logf("height %d", level+1)
	b.ReportAllocs()
	return bb
}

// BenchmarkSearch is a search of a cached tree of three levels.
func BenchmarkSearch(b *testing.B) {
	bb := benchBed(b, 60000)
	rng := rand.New(rand.NewPCG(1, 1))
	var keys [4096]uint64
	for i := range keys {
		keys[i] = rng.Uint64N(60000)
	}
	var p Path
	for i := 0; b.Loop(); i++ {
		if found, err := bb.f.SearchSlot(bb.task, nil, bb.root, k(keys[i%len(keys)]), &p, 0, false); !found || err != nil {
			b.Fatal(found, err)
		}
		p.Release(bb.task)
	}
}

// BenchmarkSearchSame is BenchmarkSearch with everything in the processor's cache.
func BenchmarkSearchSame(b *testing.B) {
	bb := benchBed(b, 60000)
	var p Path
	for b.Loop() {
		if found, err := bb.f.SearchSlot(bb.task, nil, bb.root, k(30000), &p, 0, false); !found || err != nil {
			b.Fatal(found, err)
		}
		p.Release(bb.task)
	}
}

// BenchmarkUpdate is a search that write-locks the leaf.
func BenchmarkUpdate(b *testing.B) {
	bb := benchBed(b, 60000)
	rng := rand.New(rand.NewPCG(1, 1))
	var keys [4096]uint64
	for i := range keys {
		keys[i] = rng.Uint64N(60000)
	}
	var p Path
	for i := 0; b.Loop(); i++ {
		if found, err := bb.f.SearchSlot(bb.task, bb.tr, bb.root, k(keys[i%len(keys)]), &p, 0, true); !found || err != nil {
			b.Fatal(found, err)
		}
		p.Release(bb.task)
	}
}

// BenchmarkInsertDelete inserts an item and deletes it.
func BenchmarkInsertDelete(b *testing.B) {
	bb := benchBed(b, 60000)
	rng := rand.New(rand.NewPCG(1, 1))
	var keys [4096]uint64
	for i := range keys {
		keys[i] = rng.Uint64N(60000)
	}
	data := fill(1, 53)
	for i := 0; b.Loop(); i++ {
		key := k(keys[i%len(keys)])
		key.Type++
		must(b, bb.f.InsertItem(bb.task, bb.tr, bb.root, key, data))
		var p Path
		if _, err := bb.f.SearchSlot(bb.task, bb.tr, bb.root, key, &p, -1, true); err != nil {
			b.Fatal(err)
		}
		must(b, bb.f.DelItems(bb.task, bb.tr, bb.root, &p, p.Slot(), 1))
		p.Release(bb.task)
	}
}

// BenchmarkSearchParallel has every task search its own part of one tree.
func BenchmarkSearchParallel(b *testing.B) {
	bb := benchBed(b, 60000)
	b.RunParallel(func(pb *testing.PB) {
		t := sched.NewTask("searcher")
		var p Path
		i := uint64(0)
		for pb.Next() {
			if found, err := bb.f.SearchSlot(t, nil, bb.root, k(i%60000), &p, 0, false); !found || err != nil {
				b.Fatal(found, err)
			}
			p.Release(t)
			i += 97
		}
	})
}

package extentmap

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"btrlab/internal/sched"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

// Random inserts and drops against a model that knows each block.
func TestModel(tt *testing.T) {
	t := sched.NewTask("test")
	const blocks, bs = 200, 4096
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var c Cache
		c.Init()
		var model [blocks]uint64 // disk address, 0 unknown
		for range 300 {
			a := rng.IntN(blocks)
			b := a + 1 + rng.IntN(min(20, blocks-a))
			if rng.IntN(3) == 0 {
				c.Drop(t, uint64(a)*bs, uint64(b)*bs)
				clear(model[a:b])
			} else {
				disk := uint64(1+rng.IntN(1000)) << 30
				if rng.IntN(2) == 0 {
					disk = 1<<40 + uint64(a)*bs // what joins its neighbours
				}
				m := Map{Start: uint64(a) * bs, End: uint64(b) * bs, Kind: Regular, DiskBytenr: disk, ExtentBytenr: disk - 8*bs, ExtentOffset: 8 * bs}
				if disk >= 1<<40 {
					m.ExtentBytenr, m.ExtentOffset = 1<<40-8*bs, uint64(a+8)*bs
				}
				if !c.Insert(t, m, c.Gen()) {
					tt.Fatal("insert refused")
				}
				for i := a; i < b; i++ {
					model[i] = disk + uint64(i-a)*bs
				}
			}
			for i, want := range model {
				for _, in := range []uint64{0, bs - 1} { // a map's first byte, and its last
					off := uint64(i)*bs + in
					m, ok := c.Lookup(t, off)
					if ok != (want != 0) {
						tt.Fatalf("seed %d: block %d known=%v, want %v", seed, i, ok, want != 0)
					}
					if ok && (m.Bytenr(off) != want+in || m.ExtentBytenr+m.ExtentOffset+(off-m.Start) != want+in) {
						tt.Fatalf("seed %d: block %d at %d, want %d: %+v", seed, i, m.Bytenr(off), want+in, m)
					}
				}
			}
		}
		c.DropAll(t)
		if c.Len() != 0 {
			tt.Fatalf("%d maps after DropAll", c.Len())
		}
	}
}

// What was read from the tree before a change must not enter the cache after it.
func TestStaleInsert(tt *testing.T) {
	t := sched.NewTask("test")
	var c Cache
	c.Init()
	gen := c.Gen()
	c.Drop(t, 0, 4096)
	if c.Insert(t, Map{Start: 0, End: 4096, Kind: Hole}, gen) {
		tt.Fatal("a stale map was inserted")
	}
	if _, ok := c.Lookup(t, 0); ok {
		tt.Fatal("a stale map was found")
	}
	if !c.Insert(t, Map{Start: 0, End: math.MaxUint64, Kind: Hole}, c.Gen()) {
		tt.Fatal("a fresh map was refused")
	}
}

// Maps that go on in each other are one, and others are not: in whatever order they come, and a
// drop takes them apart again.
func TestJoin(tt *testing.T) {
	t := sched.NewTask("test")
	const bs = 4096
	block := func(i uint64) Map { // of one extent of the disk
		return Map{Start: i * bs, End: (i + 1) * bs, Kind: Regular, Nocow: true, DiskBytenr: 1<<30 + i*bs, ExtentBytenr: 1 << 30, ExtentLen: 1 << 20,
			ExtentOffset: i * bs, Generation: 9}
	}
	whole := func(tt *testing.T, c *Cache, want Map, maps int) {
		tt.Helper()
		for off := want.Start; off < want.End; off += bs {
			if m, ok := c.Lookup(t, off); !ok || m != want {
				tt.Errorf("at %d have %+v, %v want %+v", off, m, ok, want)
			}
		}
		if c.Len() != maps {
			tt.Errorf("have %d maps want %d", c.Len(), maps)
		}
	}
	for _, order := range [][]uint64{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}} {
		var c Cache
		c.Init()
		for _, i := range order {
			m := block(i)
			m.Generation += i
			c.Insert(t, m, c.Gen())
		}
		want := block(0)
		want.End = 3 * bs // of the oldest generation
		whole(tt, &c, want, 1)

		c.Drop(t, bs, 2*bs)
		want.End = bs
		whole(tt, &c, want, 2)
		want = block(2)
		whole(tt, &c, want, 2)
	}
	for name, other := range map[string]func(m *Map){
		"another kind":       func(m *Map) { m.Kind = Prealloc },
		"another verdict":    func(m *Map) { m.Nocow = false },
		"compressed":         func(m *Map) { m.Compression = 1 },
		"another extent":     func(m *Map) { m.ExtentBytenr += 1 << 20 },
		"elsewhere in it":    func(m *Map) { m.ExtentOffset += bs; m.DiskBytenr += bs },
		"a block in between": func(m *Map) { *m = block(2) },
	} {
		tt.Run(name, func(tt *testing.T) {
			for _, first := range []int{0, 1} {
				var c Cache
				c.Init()
				maps := [2]Map{block(0), block(1)}
				other(&maps[1])
				c.Insert(t, maps[first], c.Gen())
				c.Insert(t, maps[1-first], c.Gen())
				whole(tt, &c, maps[0], 2)
				whole(tt, &c, maps[1], 2)
			}
		})
	}
	for _, kind := range []Kind{Hole, Inline} {
		var c Cache
		c.Init()
		c.Insert(t, Map{Start: 0, End: bs, Kind: kind}, c.Gen())
		c.Insert(t, Map{Start: bs, End: 2 * bs, Kind: kind}, c.Gen())
		if c.Len() != 2 {
			tt.Errorf("%v: have %d maps want 2", kind, c.Len())
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	sched.SetChecked(false)
	defer sched.SetChecked(true)
	t := sched.NewTask("bench")
	var c Cache
	c.Init()
	const n = 10000
	for i := range uint64(n) {
		c.Insert(t, Map{Start: i << 16, End: (i + 1) << 16, Kind: Regular, DiskBytenr: 1 << 40}, c.Gen())
	}
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		c.Lookup(t, rng.Uint64N(n<<16))
	}
}

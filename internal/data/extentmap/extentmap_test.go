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
				m := Map{Start: uint64(a) * bs, End: uint64(b) * bs, Kind: Regular, DiskBytenr: disk, ExtentBytenr: disk - 8*bs, ExtentOffset: 8 * bs}
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

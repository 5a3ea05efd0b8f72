package dm_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/sched"
)

// TestOverlay: an overlay reads as a copy of its base with the layer over it would, after the same
// writes, and base and layer stay as they are.
func TestOverlay(t *testing.T) {
	tk := sched.NewTask("overlay")
	const size = 1 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	bytesOf := func(n int) []byte {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		return p
	}
	base := blockdev.NewMemory(size)
	want := bytesOf(size)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(blockdev.Write(tk, base, want, 0))
	under := bytes.Clone(want)
	layer := map[int64][]byte{3: bytesOf(4096), 9: bytesOf(4096), 10: bytesOf(4096)}
	for b, p := range layer {
		copy(want[b*4096:], p)
	}
	nine := bytes.Clone(layer[9])
	o := dm.NewOverlay(base, func(b int64) []byte { return layer[b] })
	for i := range 300 {
		p, off := bytesOf(1+rng.IntN(20000)), rng.IntN(size-20000)
		switch i % 3 {
		case 0:
			must(blockdev.Write(tk, o, p, int64(off)))
		case 1:
			must(o.Cover(tk, bytes.Clone(p), int64(off)))
		case 2: // what covers whole blocks is shared, and a write must not change it
			off, p = off&^4095, bytesOf(8192)
			shared := bytes.Clone(p)
			must(o.Cover(tk, shared, int64(off)))
			must(blockdev.Write(tk, o, []byte{1, 2, 3}, int64(off)+5))
			if !bytes.Equal(shared, p) {
				t.Fatal("a write has changed what covers the block")
			}
			copy(p[5:], []byte{1, 2, 3})
		}
		copy(want[off:], p)
		have := make([]byte, 1+rng.IntN(30000))
		at := rng.IntN(size - 30000)
		must(blockdev.Read(tk, o, have, int64(at)))
		if !bytes.Equal(have, want[at:at+len(have)]) {
			t.Fatalf("after %d writes: %d bytes at %d differ", i, len(have), at)
		}
	}
	have := make([]byte, size)
	must(blockdev.Read(tk, base, have, 0))
	if !bytes.Equal(have, under) || !bytes.Equal(layer[9], nine) {
		t.Error("the base or the layer has changed")
	}
	if n := o.Writes(tk); n != 200 {
		t.Errorf("%d writes by bio, want 200", n)
	}
	if err := blockdev.Read(tk, o, make([]byte, 10), size-5); err == nil {
		t.Error("a read beyond the end is no error")
	}
}

package rescue

import (
	"slices"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// What damage puts into a name must not lead out of the directory, nor fail the copy of the rest.
func TestBadNames(t *testing.T) {
	for name, want := range map[string]bool{"": true, ".": true, "..": true, "a/b": true, "/": true, "a\x00": true, "...": false, ".a": false, "a.": false, "a b": false, "ä": false} {
		if bad(name) != want {
			t.Errorf("%q: have %v want %v", name, !want, want)
		}
	}
}

// Of chunks out of a damaged tree only those are taken that could be: each of these has one thing
// wrong, which would divide by zero, or send a read anywhere.
func TestAddChunkTable(t *testing.T) {
	chunk := func(typ, length uint64, stripes int) *format.Chunk {
		return &format.Chunk{Type: format.BlockGroupData | typ, Length: length, StripeLen: 65536, Stripes: make([]format.Stripe, stripes)}
	}
	for _, k := range []struct {
		name    string
		logical uint64
		c       *format.Chunk
		ok      bool
	}{
		{"single", 1 << 30, chunk(0, 1<<20, 1), true},
		{"DUP", 1 << 30, chunk(format.BlockGroupDup, 1<<20, 2), true},
		{"RAID0 of three", 1 << 30, chunk(format.BlockGroupRAID0, 3<<20, 3), true},
		{"RAID5 of three", 1 << 30, chunk(format.BlockGroupRAID5, 2<<20, 3), true},
		{"at the end of all addresses", ^uint64(0) - 1<<20, chunk(0, 1<<20, 1), true},
		{"two profiles", 1 << 30, chunk(format.BlockGroupDup|format.BlockGroupRAID0, 1<<20, 2), false},
		{"no bytes", 1 << 30, chunk(0, 0, 1), false},
		{"beyond the end of all addresses", ^uint64(0) - 1<<20, chunk(0, 1<<21, 1), false},
		{"no stripes", 1 << 30, chunk(0, 1<<20, 0), false},
		{"DUP of one", 1 << 30, chunk(format.BlockGroupDup, 1<<20, 1), false},
		{"DUP of three", 1 << 30, chunk(format.BlockGroupDup, 1<<20, 3), false},
		{"RAID5 of one", 1 << 30, chunk(format.BlockGroupRAID5, 1<<20, 1), false},
	} {
		im := &Image{Image: &image.Image{}}
		im.addChunk(k.logical, k.c)
		if have := len(im.Chunks) == 1; have != k.ok {
			t.Errorf("%s: taken %v, want %v", k.name, have, k.ok)
			continue
		}
		if k.ok && (im.Chunks[0].Start != k.logical || im.Chunks[0].Length != k.c.Length || im.Chunks[0].Type != k.c.Type || len(im.Chunks[0].Stripes) != len(k.c.Stripes)) {
			t.Errorf("%s: %+v", k.name, im.Chunks[0])
		}
	}
	// One that overlaps another is not taken, one beside it is; both in the order of addresses.
	im := &Image{Image: &image.Image{}}
	for _, at := range []uint64{2 << 20, 4 << 20, 2<<20 + 4096, 1<<20 + 4096, 1 << 20, 3 << 20} {
		im.addChunk(at, chunk(0, 1<<20, 1))
	}
	var have []uint64
	for _, c := range im.Chunks {
		have = append(have, c.Start>>20)
	}
	if want := []uint64{1, 2, 3, 4}; !slices.Equal(have, want) {
		t.Errorf("chunks at %v MiB, want %v", have, want)
	}
}

package format

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// TestKeyNeighbours: Prev and Next of a key are its neighbours in the order of keys, over the
// borders of its parts.
func TestKeyNeighbours(t *testing.T) {
	const most = math.MaxUint64
	list := []Key{{}, {0, 0, 1}, {0, 0, most}, {0, 1, 0}, {0, 255, most}, {1, 0, 0}, {256, 84, 7}, {256, 255, most}, {257, 0, 0}, MaxKey}
	for i, k := range list {
		if p := k.Prev(); i > 0 && (!p.Less(k) || p.Next() != k) || i == 0 && p != k {
			t.Errorf("%v: before it is %v", k, p)
		}
		if n := k.Next(); k != MaxKey && (!k.Less(n) || n.Prev() != k) {
			t.Errorf("%v: after it is %v", k, n)
		}
	}
}

// TestSysChunks: the chunks of the array come with their keys, up to one that is cut short.
func TestSysChunks(t *testing.T) {
	var array []byte
	for i, stripes := range []int{1, 2, 1} {
		c := Chunk{Length: uint64(i + 1), Stripes: make([]Stripe, stripes)}
		b := make([]byte, KeySize+c.Size())
		Key{FIRST_CHUNK_TREE_OBJECTID, CHUNK_ITEM_KEY, uint64(i) << 20}.Encode(b)
		c.Encode(b[KeySize:])
		array = append(array, b...)
	}
	for cut := range len(array) + 1 {
		var lengths []uint64
		short := false
		for k, b := range (&Super{SysChunkArray: array[:len(array)-cut]}).SysChunks() {
			if short = b == nil; short {
				continue
			}
			var c Chunk
			c.Decode(b)
			if lengths = append(lengths, c.Length); k.Offset != (c.Length-1)<<20 || !bytes.Equal(b, array[bytes.Index(array, b):][:len(b)]) {
				t.Fatalf("cut by %d: chunk %d at %d", cut, c.Length, k.Offset)
			}
		}
		one, two := KeySize+ChunkSize(1), KeySize+ChunkSize(2)
		want := []uint64{1, 2, 3}
		switch left := len(array) - cut; {
		case left < one:
			want = nil
		case left < one+two:
			want = want[:1]
		case left < one+two+one:
			want = want[:2]
		}
		// What is shorter than the least chunk is no chunk that is cut short.
		if wantShort := len(array)-cut >= 2*one && len(array)-cut < one+two; !slices.Equal(lengths, want) || short != wantShort {
			t.Errorf("cut by %d: chunks %v, want %v; cut short %v, want %v", cut, lengths, want, short, wantShort)
		}
	}
}

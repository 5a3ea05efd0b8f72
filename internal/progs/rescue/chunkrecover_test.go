package rescue_test

import (
	"bytes"
	"slices"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/rescue"
)

// TestChunkRecover: the chunk tree is gone, or a part of it. It is made anew, the image is clean
// then, and the undo makes it as it was.
func TestChunkRecover(t *testing.T) {
	x := sample(t)
	base := x.Dev.(*blockdev.Memory)
	if r, err := rescue.ChunkRecover(x.T, []blockdev.Device{base.Snapshot()}, rescue.Options{}); r != nil || err != nil {
		t.Fatalf("a whole tree: %v, %v", r, err)
	}
	if r, err := check.Check(x.T, base, check.Options{}); err != nil || !r.Clean {
		t.Fatal(err, r.Findings)
	}
	ofChunks := func(b rescue.Block) bool { return b.Owner == format.CHUNK_TREE_OBJECTID }
	for _, c := range []struct {
		name string
		do   func(v *victim)
		made int // at least
	}{
		{"every block of the chunk tree", func(v *victim) { v.wipe(ofChunks) }, 2},
		{"a bit of each copy of the chunk tree", func(v *victim) {
			s := v.im.Super()
			v.rot(s.ChunkRoot, s.ChunkRootGeneration, 300)
		}, 2},
		{"the item of the chunk with all trees", func(v *victim) {
			for _, b := range v.blocks {
				if ofChunks(b) {
					v.dropChunk(b, format.BlockGroupMetadata)
				}
			}
		}, 1},
		{"the item of a data chunk", func(v *victim) {
			for _, b := range v.blocks {
				if ofChunks(b) {
					v.dropChunk(b, format.BlockGroupData)
				}
			}
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := base.Snapshot()
			c.do(newVictim(t, x.T, dev))
			before := dev.Snapshot()
			r, err := rescue.ChunkRecover(x.T, []blockdev.Device{dev}, rescue.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Made < c.made {
				t.Errorf("%d chunks made, want at least %d: %q", r.Made, c.made, r.Notes)
			}
			same := func(what string) {
				t.Helper()
				p, q := make([]byte, dev.Size()), make([]byte, dev.Size())
				x.Must(blockdev.Read(x.T, dev, p, 0))
				x.Must(blockdev.Read(x.T, before, q, 0))
				if !bytes.Equal(p, q) {
					t.Error(what)
				}
			}
			var undo bytes.Buffer
			w := rescue.NewUndoWriter(&undo)
			err = r.Commit(x.T, w.Add, func() error {
				same("the device was written before the undo was kept")
				return w.Close()
			})
			if err != nil {
				t.Fatal(err)
			}
			if res, err := check.Check(x.T, dev, check.Options{}); err != nil || !res.Clean {
				t.Errorf("check: %v %v", err, res.Findings)
			}
			if again, err := rescue.ChunkRecover(x.T, []blockdev.Device{dev}, rescue.Options{}); again != nil || err != nil {
				t.Errorf("a second time: %v, %v", again, err)
			}
			if _, err := rescue.Undo(x.T, []blockdev.Device{dev}, bytes.NewReader(undo.Bytes())); err != nil {
				t.Fatal(err)
			}
			same("the undo does not make it as it was")
		})
	}
}

// dropChunk takes the items of chunks of a type out of a block.
func (v *victim) dropChunk(b rescue.Block, typ uint64) {
	n := format.Node(v.read(int(v.im.Super().NodeSize), b.Off))
	type item struct {
		k format.Key
		b []byte
	}
	var l []item
	for i := range n.Nritems() {
		if k := n.Key(i); k.Type != format.CHUNK_ITEM_KEY || format.ChunkView(n.Item(i)).Type()&typ == 0 {
			l = append(l, item{k, slices.Clone(n.Item(i))})
		}
	}
	n.SetNritems(len(l))
	end := format.LeafDataSize(len(n))
	for i, it := range l {
		end -= len(it.b)
		n.SetKey(i, it.k)
		n.SetItemOffset(i, end)
		n.SetItemSize(i, len(it.b))
		copy(n.Item(i), it.b)
	}
	n.UpdateCsum(v.im.Super().CsumType)
	v.write(n, b.Off)
}

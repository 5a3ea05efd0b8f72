package image_test

import (
	"fmt"
	"slices"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/progs/image"
)

// TestPack: a tree of any number of items comes out as it went in, its blocks are full but for the
// last of each level, and Levels knows their order beforehand.
func TestPack(t *testing.T) {
	const nodeSize = 4096
	for _, count := range []int{0, 1, 13, 14, 15, 500, 1600, 1700, 30000} {
		var items []image.Item
		for i := range count {
			items = append(items, image.Item{Key: format.Key{Objectid: uint64(i), Type: format.TEMPORARY_ITEM_KEY}, Data: fmt.Appendf(nil, "%0*d", i%500, i)})
		}
		written := map[uint64]format.Node{}
		var levels []uint8
		at := uint64(1 << 20)
		root, level, err := image.Pack(image.PackOptions{Owner: uuidTree, FSID: format.UUID{1}, ChunkTreeUUID: format.UUID{2}, Generation: 7, NodeSize: nodeSize,
			Place: func(level int) (uint64, error) {
				levels = append(levels, uint8(level))
				at += nodeSize
				return at, nil
			},
			Write: func(n format.Node) error {
				written[n.Bytenr()] = slices.Clone(n)
				return nil
			}}, items)
		if err != nil {
			t.Fatal(err)
		}
		if want := image.Levels(nodeSize, image.Sizes(items)); !slices.Equal(levels, want) {
			t.Errorf("%d items: blocks of levels %v, want %v", count, levels, want)
		}
		if root != at || level != levels[len(levels)-1] || int(level) != slices.Max(toInts(levels)) {
			t.Errorf("%d items: the root is at %d of level %d, the last block at %d of level %d", count, root, level, at, levels[len(levels)-1])
		}
		read := func(r image.Ref) (format.Node, error) {
			n := written[r.Bytenr]
			ctx := format.CheckContext{Root: uuidTree, SectorSize: 4096, NodeSize: nodeSize, Generation: 7, Level: r.Level}
			if r.Level > 0 {
				return n, format.CheckNode(n, ctx)
			}
			return n, format.CheckLeaf(n, ctx)
		}
		top := image.Ref{Tree: uuidTree, Bytenr: root, Generation: 7, Level: int(level)}
		var have []image.Item
		open := map[int]bool{} // levels with a block that has room
		image.Nodes(top, read, func(n format.Node) {
			if n.Level() == 0 {
				have = append(have, image.LeafItems(n)...)
			}
		}, func(err error) { t.Errorf("%d items: %v", count, err) })
		if !slices.EqualFunc(have, items, same) {
			t.Errorf("%d items: %d come back", count, len(have))
		}
		for i, it := range have {
			path, found, err := image.Search(top, it.Key, read)
			if leaf := path[len(path)-1]; err != nil || !found || leaf.N.Key(leaf.Slot) != it.Key {
				t.Fatalf("%d items: item %d is not found: %v", count, i, err)
			}
		}
		for at := uint64(1<<20) + nodeSize; at <= root; at += nodeSize {
			n := written[at]
			if l := n.Level(); l > 0 {
				if open[l] {
					t.Errorf("%d items: block %d of level %d comes after one with room", count, at, l)
				}
				open[l] = n.Nritems() < format.PtrsPerNode(nodeSize)
			}
		}
	}
}

func toInts(list []uint8) (out []int) {
	for _, v := range list {
		out = append(out, int(v))
	}
	return out
}

package image

import (
	"fmt"

	"btrlab/internal/format"
)

// Copies says how many copies of the block at logical lie on devices, here or missing, and how many
// more ways parity gives to make it.
func (im *Image) Copies(logical uint64) (mirrors, rebuilds int) {
	c := im.Chunks.At(logical)
	if c == nil || c.Profile == nil || logical-c.Start+uint64(im.SB.NodeSize) > c.Length {
		return 0, 0
	}
	places, run := c.Places(logical)
	if run < uint64(im.SB.NodeSize) {
		return 0, 0
	}
	return len(places), c.Rebuilds()
}

// Block reads copy i of the tree block at logical, of the sum of Copies. Nothing of it is checked.
func (im *Image) Block(logical uint64, i int) (format.Node, error) {
	mirrors, rebuilds := im.Copies(logical)
	if i >= mirrors+rebuilds {
		return nil, fmt.Errorf("block=%d has %d copies", logical, mirrors+rebuilds)
	}
	c := im.Chunks.At(logical)
	n := make(format.Node, im.SB.NodeSize)
	if i >= mirrors {
		if !c.Rebuild(im.Task, n, logical, i-mirrors) {
			return nil, fmt.Errorf("block=%d: too many units of its row are bad", logical)
		}
		return n, nil
	}
	places, _ := c.Places(logical)
	return n, places[i].Read(im.Task, n)
}

// Node reads a tree block from its first copy on a device that is whole: of a right checksum, at
// its address, of the level.
func (im *Image) Node(r Ref) (format.Node, error) {
	return im.node(r, func(n format.Node) error {
		if n.Level() != r.Level {
			return fmt.Errorf("root=%d block=%d, bad level, have %d want %d", int64(r.Tree), r.Bytenr, n.Level(), r.Level)
		}
		return nil
	})
}

// Checked is Node of a block that the tree checker passes, too.
func (im *Image) Checked(r Ref) (format.Node, error) {
	return im.node(r, func(n format.Node) error {
		ctx := format.CheckContext{Root: r.Tree, SectorSize: im.SB.SectorSize, NodeSize: im.SB.NodeSize, Level: r.Level, Csum: im.SB.CsumType}
		if r.Level == 0 {
			return format.CheckLeaf(n, ctx)
		}
		return format.CheckNode(n, ctx)
	})
}

// node reads a block from its first copy on a device that is whole, and that ok passes. The error
// is that of the last copy.
func (im *Image) node(r Ref, ok func(n format.Node) error) (format.Node, error) {
	where := fmt.Sprintf("root=%d block=%d", int64(r.Tree), r.Bytenr)
	c := im.Chunks.At(r.Bytenr)
	if c == nil || r.Bytenr-c.Start+uint64(im.SB.NodeSize) > c.Length {
		return nil, fmt.Errorf("%s is in no chunk", where)
	}
	if !c.Sound() {
		return nil, fmt.Errorf("%s is in a chunk of type 0x%x with %d stripes", where, c.Type, len(c.Stripes))
	}
	places, _ := c.Places(r.Bytenr)
	last := fmt.Errorf("%s has no copy on the devices at hand", where)
	for m, s := range places {
		if s.Dev == nil {
			continue
		}
		n, err := im.Block(r.Bytenr, m)
		switch {
		case err != nil:
			last = fmt.Errorf("%s mirror=%d: %w", where, m, err)
		case !im.SB.CsumType.BlockMatch(n):
			have, want := im.SB.CsumType.BlockText(n)
			last = fmt.Errorf("%s mirror=%d, bad csum, have %s want %s", where, m, have, want)
		case n.Bytenr() != r.Bytenr:
			last = fmt.Errorf("%s mirror=%d, bad bytenr, have %d", where, m, n.Bytenr())
		default:
			if last = ok(n); last == nil {
				return n, nil
			}
		}
	}
	return nil, last
}

// Span is a range of keys, with both ends.
type Span struct{ Lo, Hi format.Key }

// Whole is all keys.
var Whole = Span{Hi: format.MaxKey}

// Walk goes through a tree from r on, parents first. Visit reads the block that a pointer leads to
// and returns it, or nil to stay above it; an error ends the walk. Keys are those that the pointer
// leaves to the block. A pointer that leaves none, in a block whose keys do not ascend, is left
// out.
func Walk(r Ref, keys Span, visit func(r Ref, keys Span) (format.Node, error)) error {
	n, err := visit(r, keys)
	if err != nil || n == nil || r.Level == 0 {
		return err
	}
	for i := range n.Nritems() {
		below := Span{n.Key(i), keys.Hi}
		if i == 0 {
			below.Lo = keys.Lo
		}
		if i+1 < n.Nritems() {
			below.Hi = n.Key(i + 1).Prev()
		}
		if below.Hi.Less(below.Lo) {
			continue
		}
		if err := Walk(Child(r, n, i), below, visit); err != nil {
			return err
		}
	}
	return nil
}

// Child is where slot i of an inner node leads, which r has led to.
func Child(r Ref, n format.Node, i int) Ref {
	return Ref{r.Tree, n.Blockptr(i), n.PtrGeneration(i), r.Level - 1}
}

// Reader reads the block that a pointer leads to: Image.Node, Image.Checked.
type Reader func(r Ref) (format.Node, error)

// Nodes visits the blocks of a tree, parents first; bad gets what cannot be read. A block that is
// reached a second time is bad, so a damaged tree ends, too.
func Nodes(r Ref, read Reader, visit func(n format.Node), bad func(error)) {
	if r.Level >= format.MaxLevel {
		bad(fmt.Errorf("root=%d has level %d", int64(r.Tree), r.Level))
		return
	}
	seen := map[uint64]bool{}
	_ = Walk(r, Whole, func(r Ref, _ Span) (format.Node, error) { // it returns none
		if seen[r.Bytenr] {
			bad(fmt.Errorf("root=%d block=%d is reached a second time", int64(r.Tree), r.Bytenr))
			return nil, nil
		}
		seen[r.Bytenr] = true
		n, err := read(r)
		if err != nil {
			bad(err)
			return nil, nil
		}
		visit(n)
		return n, nil
	})
}

// Items calls f with the items of a tree, in key order. What can be read is; the error is the first
// that was met. The bytes are f's.
func Items(r Ref, read Reader, f func(k format.Key, b []byte)) error {
	var first error
	Nodes(r, read, func(n format.Node) {
		for i := 0; n.Level() == 0 && i < n.Nritems(); i++ {
			f(n.Key(i), n.Item(i))
		}
	}, func(err error) {
		if first == nil {
			first = err
		}
	})
	return first
}

// Each is Items of blocks that the tree checker passes.
func (im *Image) Each(r Ref, f func(k format.Key, b []byte)) error {
	return Items(r, im.Checked, f)
}

// Step is a block on the way from a root to an item, and the slot there.
type Step struct {
	N    format.Node
	Slot int
}

// Search reads the blocks from a root to the leaf where the key is, or would be. Found says that
// its slot has the key.
func Search(r Ref, key format.Key, read Reader) (path []Step, found bool, err error) {
	for {
		n, err := read(r)
		if err != nil {
			return nil, false, err
		}
		slot, ok := n.Search(key)
		if r.Level > 0 && !ok {
			slot = max(slot-1, 0)
		}
		path = append(path, Step{n, slot})
		if r.Level == 0 {
			return path, ok, nil
		}
		r = Child(r, n, slot)
	}
}

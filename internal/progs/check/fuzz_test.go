package check

import (
	"math/rand/v2"
	"testing"

	"btrlab/internal/format"
)

// trees are the sample's tree blocks.
func (m *image) trees() []uint64 {
	c := &checker{t: m.tk, devs: []*device{{Device: m.dev, sb: m.sb}}, sb: m.sb, visited: map[uint64]uint32{}, roots: map[uint64]rootInfo{}, scratch: make([]byte, m.sb.NodeSize)}
	if err := c.checkChunks(); err != nil {
		m.t.Fatal(err)
	}
	c.loadRoots()
	c.checkDevices()
	c.loadExtents()
	c.checkFreeSpace()
	c.loadCsums(&dataCheck{c: c})
	c.checkTrees()
	var l []uint64
	for _, b := range c.blocks {
		l = append(l, b.bytenr)
	}
	return l
}

// interesting is an offset in a block where bytes mean something: the header, the keys, or the
// data.
func interesting(n format.Node, r uint64) int {
	switch r % 4 {
	case 0:
		return 32 + int(r>>8)%(format.HeaderSize-32)
	case 1:
		stride := format.ItemHeaderSize
		if n.Level() > 0 {
			stride = format.KeyPtrSize
		}
		return format.HeaderSize + int(r>>8)%max(1, n.Nritems()*stride)
	}
	end := format.HeaderSize + n.LeafDataEnd()
	if n.Level() > 0 || end >= len(n) || end < format.HeaderSize {
		return format.HeaderSize + int(r>>8)%(len(n)-format.HeaderSize)
	}
	return end + int(r>>8)%(len(n)-end)
}

// damage changes bytes of tree blocks, with checksums made right again.
func (m *image) damage(blocks []uint64, picks []uint64) {
	for _, p := range picks {
		bytenr := blocks[p%uint64(len(blocks))]
		n := m.block(bytenr)
		at := format.HeaderSize - 1 // the block may be damaged already, its counts wild
		if n.Nritems() <= int(m.sb.NodeSize)/format.KeyPtrSize {
			at = interesting(n, p>>8)
		}
		n[max(32, at%len(n))] ^= byte(p>>56) | 1
		m.putAt(n, bytenr)
	}
}

// TestRandomDamage: whatever a tree block says under a good checksum, the check ends, without
// panic, and finds most of it. What it may not find are the fields that nothing else repeats:
// times, transids, owners, permissions.
func TestRandomDamage(t *testing.T) {
	base := newImage(t)
	blocks := base.trees()
	if len(blocks) != 11 {
		t.Fatalf("the sample has %d tree blocks", len(blocks))
	}
	const seed, rounds = 1, 400
	rng := rand.New(rand.NewPCG(seed, 0))
	found := 0
	for range rounds {
		m := base.clone(t)
		picks := []uint64{rng.Uint64(), rng.Uint64()}[:1+rng.IntN(2)]
		m.damage(blocks, picks)
		r, err := Check(m.tk, m.dev, Options{})
		if err != nil || !r.Clean {
			found++
		}
	}
	if found < rounds/2 {
		t.Errorf("seed %d: found something in %d of %d damaged images", seed, found, rounds)
	}
	t.Logf("found something in %d of %d", found, rounds)
}

// FuzzCheck looks for damage that makes the check panic or run on.
func FuzzCheck(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint64(3))
	f.Add(uint64(0x0100000000000000), uint64(0x7f00000000012305), uint64(0x8000000000000a01))
	var base *image
	var blocks []uint64
	f.Fuzz(func(t *testing.T, a, b, c uint64) {
		if base == nil {
			base = newImage(t)
			blocks = base.trees()
		}
		m := base.clone(t)
		m.damage(blocks, []uint64{a, b, c})
		Check(m.tk, m.dev, Options{})
	})
}

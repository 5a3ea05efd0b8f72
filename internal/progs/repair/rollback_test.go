package repair

import (
	"bytes"
	"testing"

	"btrlab/internal/progs/check"
	"btrlab/internal/testing/damaged"
)

// A repair that fails half way has often written a block more than once: its leaf is split, and
// then its neighbour's items come. Taking it back leaves what was there before the first write, not
// one of the states between; what was kept before stays; references and the superblock go back
// with the blocks.
func TestRollback(t *testing.T) {
	m := damaged.NewImage(t)
	c := &changes{Seen: &check.Seen{Image: check.Image{Task: m.Task, Devs: []*check.Device{{Device: m.Dev, Super: m.Super}}, Super: m.Super, Roots: map[uint64]check.Root{}}}}
	d := c.Devs[0]
	off := int64(m.Copies(m.Root(damaged.CsumTree))[0])
	other := off + int64(m.Super.NodeSize)
	fill := func(at int64, b byte) {
		t.Helper()
		if err := c.write(d, bytes.Repeat([]byte{b}, int(m.Super.NodeSize)), at); err != nil {
			t.Fatal(err)
		}
	}
	has := func(what string, at int64, want []byte) {
		t.Helper()
		if have := m.Read(uint64(at), len(want)); !bytes.Equal(have, want) {
			t.Errorf("%s: the block at %d begins %x, want %x", what, at, have[:4], want[:4])
		}
	}
	size := int(m.Super.NodeSize)
	c.keep()
	fill(other, 'k')
	kept := bytes.Repeat([]byte{'k'}, size)
	c.nrefs = map[uint64]int{1: 1}
	c.addRefs(1, 1)
	c.keep()
	before, root := m.Read(uint64(off), size), c.Super.Root
	for _, b := range []byte("123") {
		fill(off, b)
		fill(other, b)
		c.addRefs(1, 1)
		c.addRefs(2, 5)
	}
	c.Super.Root++
	c.Roots[99] = check.Root{}
	c.RootIDs = append(c.RootIDs, 99)
	has("before rollback", off, bytes.Repeat([]byte{'3'}, size))
	for range 2 { // the second has nothing to take back
		if err := c.rollback(); err != nil {
			t.Fatal(err)
		}
		has("written three times", off, before)
		has("written and kept before", other, kept)
		if _, ok := c.Roots[99]; ok || c.Super.Root != root || len(c.RootIDs) != 0 || c.nrefs[1] != 2 || c.nrefs[2] != 0 {
			t.Errorf("root %d want %d, trees %v %v, references %v", c.Super.Root, root, c.Roots, c.RootIDs, c.nrefs)
		}
	}
}

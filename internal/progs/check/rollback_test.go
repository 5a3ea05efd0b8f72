package check

import (
	"bytes"
	"testing"
)

// A repair that fails half way has often written a block more than once: its leaf is split, and
// then its neighbour's items come. Taking it back leaves what was there before the first write, not
// one of the states between; what was kept before stays; references and the superblock go back
// with the blocks.
func TestRollback(t *testing.T) {
	m := newImage(t)
	c := &checker{t: m.tk, devs: []*device{{Device: m.dev, sb: m.sb}}, sb: m.sb, roots: map[uint64]rootInfo{}}
	d := c.devs[0]
	off := int64(m.copies(m.root(csumTree))[0])
	other := off + int64(m.sb.NodeSize)
	fill := func(at int64, b byte) {
		t.Helper()
		if err := c.write(d, bytes.Repeat([]byte{b}, int(m.sb.NodeSize)), at); err != nil {
			t.Fatal(err)
		}
	}
	has := func(what string, at int64, want []byte) {
		t.Helper()
		if have := m.read(uint64(at), len(want)); !bytes.Equal(have, want) {
			t.Errorf("%s: the block at %d begins %x, want %x", what, at, have[:4], want[:4])
		}
	}
	size := int(m.sb.NodeSize)
	c.keep()
	fill(other, 'k')
	kept := bytes.Repeat([]byte{'k'}, size)
	c.nrefs = map[uint64]int{1: 1}
	c.addRefs(1, 1)
	c.keep()
	before, root := m.read(uint64(off), size), c.sb.Root
	for _, b := range []byte("123") {
		fill(off, b)
		fill(other, b)
		c.addRefs(1, 1)
		c.addRefs(2, 5)
	}
	c.sb.Root++
	c.roots[99] = rootInfo{}
	c.rootIDs = append(c.rootIDs, 99)
	has("before rollback", off, bytes.Repeat([]byte{'3'}, size))
	for range 2 { // the second has nothing to take back
		if err := c.rollback(); err != nil {
			t.Fatal(err)
		}
		has("written three times", off, before)
		has("written and kept before", other, kept)
		if _, ok := c.roots[99]; ok || c.sb.Root != root || len(c.rootIDs) != 0 || c.nrefs[1] != 2 || c.nrefs[2] != 0 {
			t.Errorf("root %d want %d, trees %v %v, references %v", c.sb.Root, root, c.roots, c.rootIDs, c.nrefs)
		}
	}
}

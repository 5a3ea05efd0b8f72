package mkfs

import (
	"slices"

	"btrlab/internal/format"
)

// mark is how much of each chunk is taken.
type mark struct {
	meta  *chunk
	state []chunk
}

func (m *maker) mark() mark {
	k := mark{meta: m.meta}
	for _, c := range m.chunks {
		s := *c
		s.taken = slices.Clone(c.taken)
		k.state = append(k.state, s)
	}
	return k
}

// restore gives back what was taken since k. Chunks that were made since stay, empty.
func (m *maker) restore(k mark) {
	m.use(&m.meta, k.meta)
	for i, c := range m.chunks {
		if i < len(k.state) {
			c.taken, c.cursor, c.used = k.state[i].taken, k.state[i].cursor, k.state[i].used
			continue
		}
		c.taken, c.cursor, c.used = nil, c.logical, 0
	}
}

// float gives the metadata a chunk without a place: where it can lie is known when all data has its
// place. Its addresses come after any that data can have.
func (m *maker) float(profile uint64) {
	logical := m.nextLogical
	m.nextLogical = format.AlignUp(logical+m.size(), 1<<30)
	m.meta = m.newChunk(format.BlockGroupMetadata|profile, 1<<50, true)
	m.nextLogical = logical
}

// The room that Shrink leaves, in bytes. With less Linux can do nothing but read: even a file
// that goes into the tree needs a promise of data space first.
func metadataSlack(used uint64) uint64 { return max(12<<20, used/4) }

const dataSlack = 1 << 20

// trim ends the data where it ends, so that the metadata can come next.
func (m *maker) trim() {
	c := m.data
	c.c.Length = min(c.c.Length, format.AlignUp(c.cursor-c.logical+dataSlack, format.StripeLen))
	m.devs[0].next = c.c.Stripes[0].Offset + c.c.Length
}

// fix gives the floating chunk its length and its place, and the file system its size.
func (m *maker) fix() error {
	c := m.meta
	if !c.floats {
		return nil
	}
	n := c.cursor - c.logical
	c.c.Length = format.AlignUp(n+metadataSlack(n), format.StripeLen)
	d := m.devs[0]
	// Addresses are given, so no copy of the superblock may lie in it.
	for i := range format.SuperMirrorMax {
		super := format.RangeOf(format.SuperMirror(i), format.StripeLen)
		if all := format.RangeOf(d.next, c.c.Length*uint64(format.ProfileOf(c.c.Type).Copies)); !all.Intersect(super).Empty() {
			d.next = super.End
		}
	}
	c.floats = false
	m.placeChunk(c)
	if d.next > d.size {
		return &NoSpaceError{d.size}
	}
	d.size = d.next
	return nil
}

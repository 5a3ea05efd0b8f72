package mkfs

import (
	"fmt"
	"slices"
	"sort"

	"btrlab/internal/format"
)

// Sizes of the first chunks, in bytes, as mkfs.btrfs makes them, and of those that a full file
// system adds, as Linux does.
const (
	dupThreshold   = 109 << 20 // smallest device on which mkfs.btrfs makes DUP metadata
	dataChunk      = 8 << 20
	systemSingle   = 4 << 20
	systemDup      = 8 << 20
	metadataSingle = 8 << 20
	metadataDupMin = 32 << 20
	metadataMax    = 256 << 20
	metadataMaxBig = 1 << 30 // from bigDevice on
	dataMax        = 1 << 30
	bigDevice      = 50 << 30
	smallestChunk  = 1 << 20
)

type span = format.Range[uint64]

// chunk is a chunk with its place. Space is taken from its start on.
type chunk struct {
	logical uint64
	c       format.Chunk
	supers  []span // logical, ascending: on a copy of the superblock, never taken
	taken   []span // logical, ascending
	cursor  uint64 // logical: nothing is taken from here on
	used    uint64 // bytes taken

	// A chunk that floats has no place on the device yet: its blocks wait in memory (see shrink).
	floats bool
}

func (c *chunk) end() uint64 { return c.logical + c.c.Length }

// take takes at most n and at least least bytes that lie together; false when there is no such
// room.
func (c *chunk) take(n, least uint64) (span, bool) {
	for c.cursor < c.end() {
		end, next := c.end(), c.end()
		for _, s := range c.supers {
			if s.Start <= c.cursor && c.cursor < s.End {
				end, next = c.cursor, s.End
				break
			}
			if c.cursor < s.Start {
				end, next = s.Start, s.End
				break
			}
		}
		if end-c.cursor < least {
			c.cursor = next
			continue
		}
		s := format.RangeOf(c.cursor, min(n, end-c.cursor))
		c.cursor = s.End
		c.used += s.Len()
		if k := len(c.taken) - 1; k >= 0 && c.taken[k].End == s.Start {
			c.taken[k].End = s.End
		} else {
			c.taken = append(c.taken, s)
		}
		return s, true
	}
	return span{}, false
}

// free lists what is not taken. The room on a superblock copy counts as free, as in the kernel: it
// is kept from allocation in memory only (block-group.c:exclude_super_stripes()).
func (c *chunk) free() (list []span) {
	at := c.logical
	for _, s := range c.taken {
		if at < s.Start {
			list = append(list, format.Between(at, s.Start))
		}
		at = s.End
	}
	if at < c.end() {
		list = append(list, format.Between(at, c.end()))
	}
	return list
}

// copies is the number of stripes of a chunk of the type, which all hold the same.
func copies(typ uint64) uint64 {
	if typ&format.BlockGroupDup != 0 {
		return 2
	}
	return 1
}

// newChunk makes a chunk of the type after all others, on the device as well unless it floats.
func (m *maker) newChunk(typ, length uint64, floats bool) *chunk {
	c := &chunk{logical: m.nextLogical, cursor: m.nextLogical, floats: floats, c: format.Chunk{Length: length,
		Owner: format.EXTENT_TREE_OBJECTID, StripeLen: format.StripeLen, Type: typ, IOAlign: format.StripeLen,
		IOWidth: format.StripeLen, SectorSize: format.SectorSize, SubStripes: 1}}
	m.nextLogical += length
	i := sort.Search(len(m.chunks), func(i int) bool { return m.chunks[i].logical > c.logical })
	m.chunks = slices.Insert(m.chunks, i, c)
	if !floats {
		m.placeChunk(c)
	}
	return c
}

// placeChunk gives a chunk its stripes, after all others on the device.
func (m *maker) placeChunk(c *chunk) {
	for range copies(c.c.Type) {
		c.c.Stripes = append(c.c.Stripes, format.Stripe{Devid: 1, Offset: m.nextPhysical, DevUUID: m.o.DevUUID})
		m.nextPhysical += c.c.Length
	}
	for i := range format.SuperMirrorMax {
		super := format.RangeOf(format.SuperMirror(i), format.StripeLen)
		for _, s := range c.c.Stripes {
			if both := super.Intersect(format.RangeOf(s.Offset, c.c.Length)); !both.Empty() {
				c.supers = append(c.supers, format.RangeOf(c.logical+both.Start-s.Offset, both.Len()))
			}
		}
	}
	sort.Slice(c.supers, func(i, j int) bool { return c.supers[i].Start < c.supers[j].Start })
}

// layout makes the first three chunks, from 1 MiB on.
func (m *maker) layout() {
	sys, meta := uint64(systemSingle), uint64(metadataSingle)
	if m.o.MetadataProfile == "dup" {
		m.profile = format.BlockGroupDup
		if m.size >= dupThreshold && !m.o.Shrink {
			sys, meta = systemDup, max(metadataDupMin, m.metadataLength())
		}
	}
	m.nextLogical, m.nextPhysical = format.BlockReserved, format.BlockReserved
	m.system = m.newChunk(format.BlockGroupSystem|m.profile, sys, false)
	if m.o.Shrink {
		m.float()
	} else {
		m.meta = m.newChunk(format.BlockGroupMetadata|m.profile, meta, false)
	}
	m.data = m.newChunk(format.BlockGroupData, dataChunk, false)
	if m.nextPhysical > m.size {
		panic(fmt.Sprintf("mkfs: chunks end at %d on a device of %d", m.nextPhysical, m.size))
	}
}

// metadataLength is the length of a metadata chunk on a large enough device.
func (m *maker) metadataLength() uint64 {
	limit := uint64(metadataMax)
	if m.size > bigDevice {
		limit = metadataMaxBig
	}
	return min(format.AlignDown(m.size/10/2, format.StripeLen), limit)
}

// NoSpaceError says that the tree does not fit on the device.
type NoSpaceError struct {
	Device string
	Size   uint64 // bytes that the file system has
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("%s: no space left: the tree does not fit into %d bytes", e.Device, e.Size)
}

// more makes one more chunk of the type of c, which is full.
func (m *maker) more(c *chunk) (*chunk, error) {
	want := m.metadataLength()
	if c.c.Type&format.BlockGroupData != 0 {
		want = min(format.AlignDown(m.size/10, format.StripeLen), dataMax)
	}
	left := format.AlignDown((m.size-min(m.size, m.nextPhysical))/copies(c.c.Type), format.StripeLen)
	if left < smallestChunk {
		return nil, &NoSpaceError{m.dev.Name(), m.size}
	}
	return m.newChunk(c.c.Type, min(max(want, smallestChunk), left), false), nil
}

// takeData takes at most n and at least least bytes for file data, both whole sectors.
func (m *maker) takeData(n, least uint64) (span, error) {
	for {
		if s, ok := m.data.take(n, least); ok {
			return s, nil
		}
		c, err := m.more(m.data)
		if err != nil {
			return span{}, err
		}
		m.data = c
	}
}

// takeBlock takes room for a tree block.
func (m *maker) takeBlock() (uint64, error) {
	for {
		if s, ok := m.meta.take(format.NodeSize, format.NodeSize); ok {
			return s.Start, nil
		}
		// One may be left over from a try of describe.
		i := slices.IndexFunc(m.chunks, func(c *chunk) bool { return c.c.Type == m.meta.c.Type && c.used == 0 })
		if i >= 0 {
			m.meta = m.chunks[i]
			continue
		}
		c, err := m.more(m.meta)
		if err != nil {
			return 0, err
		}
		m.meta = c
	}
}

// chunkOf finds the chunk of a logical address.
func (m *maker) chunkOf(logical uint64) *chunk {
	i := sort.Search(len(m.chunks), func(i int) bool { return m.chunks[i].end() > logical })
	return m.chunks[i]
}

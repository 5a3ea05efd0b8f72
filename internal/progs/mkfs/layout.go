package mkfs

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"btrlab/internal/blockdev"
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

// Profiles are the names of the profiles that Build makes chunks of.
func Profiles() (names []string) {
	for _, p := range format.Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// CheckProfile says why a profile cannot be had on that many devices; nil if it can.
func CheckProfile(name string, devices int) error {
	p := profileOf(name)
	switch {
	case p == nil:
		return fmt.Errorf("have %q want one of: %s", name, strings.Join(Profiles(), ", "))
	case devices < p.DevsMin:
		return fmt.Errorf("%s wants %d devices, have %d", name, p.DevsMin, devices)
	}
	return nil
}

// profileOf is the profile of that name that Build knows; nil if there is none.
func profileOf(name string) *format.Profile {
	for _, p := range format.Profiles() {
		if p.Name == name {
			return &p
		}
	}
	return nil
}

// devices is how many devices a chunk of the profile lies on.
func (m *maker) devices(p *format.Profile) int {
	if p.DevsMax > 0 {
		return p.DevsMax
	}
	return len(m.devs) - len(m.devs)%p.Increment
}

// stripes is the number of stripes of a chunk of the type, and how many of them have bytes of their
// own.
func (m *maker) stripes(typ uint64) (all int, data uint64) {
	p := format.ProfileOf(typ)
	all = m.devices(p) * p.DevStripes
	return all, uint64(p.DataStripes(all))
}

// newChunk makes a chunk of the type after all others, on the devices as well unless it floats. One
// that is striped may get a little shorter.
func (m *maker) newChunk(typ, length uint64, floats bool) *chunk {
	_, data := m.stripes(typ)
	length = length / data / format.StripeLen * format.StripeLen * data
	c := &chunk{logical: m.nextLogical, cursor: m.nextLogical, floats: floats, c: format.Chunk{Length: length,
		Owner: format.EXTENT_TREE_OBJECTID, StripeLen: format.StripeLen, Type: typ, IOAlign: format.StripeLen,
		IOWidth: format.StripeLen, SectorSize: format.SectorSize, SubStripes: uint16(format.ProfileOf(typ).SubStripes)}}
	m.nextLogical += length
	i := sort.Search(len(m.chunks), func(i int) bool { return m.chunks[i].logical > c.logical })
	m.chunks = slices.Insert(m.chunks, i, c)
	if !floats {
		m.placeChunk(c)
	}
	return c
}

// byRoom lists the devices, the one with most room first.
func (m *maker) byRoom() []*target {
	list := slices.Clone(m.devs)
	slices.SortStableFunc(list, func(a, b *target) int { return cmp.Compare(b.room(), a.room()) })
	return list
}

// placeChunk gives a chunk its stripes, after all others on the devices with most room.
func (m *maker) placeChunk(c *chunk) {
	p := format.ProfileOf(c.c.Type)
	_, data := m.stripes(c.c.Type)
	n := c.c.Length / data
	for _, d := range m.byRoom()[:m.devices(p)] {
		for range p.DevStripes {
			c.c.Stripes = append(c.c.Stripes, format.Stripe{Devid: d.id, Offset: d.next, DevUUID: d.uuid})
			d.next += n
		}
	}
	for i := range format.SuperMirrorMax {
		super := format.RangeOf(format.SuperMirror(i), format.StripeLen)
		for k, s := range c.c.Stripes {
			if both := super.Intersect(format.RangeOf(s.Offset, n)); !both.Empty() {
				for _, r := range c.c.Covers(k, format.RangeOf(both.Start-s.Offset, both.Len())) {
					c.supers = append(c.supers, format.RangeOf(c.logical+r.Start, r.Len()))
				}
			}
		}
	}
	sort.Slice(c.supers, func(i, j int) bool { return c.supers[i].Start < c.supers[j].Start })
}

// layout makes the first three chunks, from 1 MiB on.
func (m *maker) layout() error {
	sys, meta := uint64(systemSingle), uint64(metadataSingle)
	profile := profileOf(m.o.MetadataProfile).Flag
	smallest := m.devs[0].size
	for _, d := range m.devs {
		smallest, d.next = min(smallest, d.size), format.BlockReserved
	}
	if profile != 0 && smallest >= dupThreshold && !m.o.Shrink {
		sys, meta = systemDup, max(metadataDupMin, m.metadataLength())
	}
	m.nextLogical = format.BlockReserved
	m.system = m.newChunk(format.BlockGroupSystem|profile, sys, false)
	switch {
	case m.o.Mixed:
		m.meta = m.newChunk(format.BlockGroupData|format.BlockGroupMetadata|profile, dataChunk, false)
	case m.o.Shrink:
		m.float(profile)
	default:
		m.meta = m.newChunk(format.BlockGroupMetadata|profile, meta, false)
	}
	if m.data = m.meta; !m.o.Mixed {
		m.data = m.newChunk(format.BlockGroupData|profileOf(m.o.DataProfile).Flag, dataChunk, false)
	}
	for _, d := range m.devs {
		if d.next > d.size {
			return blockdev.Errorf(d, "too small for the first chunks, have %d bytes want %d", d.size, d.next)
		}
	}
	return nil
}

// size is the bytes of the file system on all devices.
func (m *maker) size() (n uint64) {
	for _, d := range m.devs {
		n += d.size
	}
	return n
}

// metadataLength is the length of a metadata chunk on a large enough device.
func (m *maker) metadataLength() uint64 {
	limit := uint64(metadataMax)
	if m.size() > bigDevice {
		limit = metadataMaxBig
	}
	return min(format.AlignDown(m.size()/10/2, format.StripeLen), limit)
}

// NoSpaceError says that the tree does not fit into the file system.
type NoSpaceError struct{ Size uint64 } // in bytes

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("no space left: the tree does not fit into %d bytes", e.Size)
}

// more makes one more chunk of the type of c, which is full.
func (m *maker) more(c *chunk) (*chunk, error) {
	want := m.metadataLength()
	if c.c.Type&format.BlockGroupData != 0 {
		want = min(format.AlignDown(m.size()/10, format.StripeLen), dataMax)
	}
	p := format.ProfileOf(c.c.Type)
	_, data := m.stripes(c.c.Type)
	last := m.byRoom()[m.devices(p)-1] // of the devices that the chunk will lie on
	left := format.AlignDown(last.room()/uint64(p.DevStripes), format.StripeLen) * data
	if left < smallestChunk {
		return nil, &NoSpaceError{m.size()}
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
		m.use(&m.data, c)
	}
}

// use makes c the chunk from which data or metadata is taken, or both where they are mixed.
func (m *maker) use(which **chunk, c *chunk) {
	if *which = c; m.o.Mixed {
		m.data, m.meta = c, c
	}
}

// takeBlock takes room for a tree block.
func (m *maker) takeBlock() (uint64, error) {
	for {
		if s, ok := m.meta.take(m.nodeSize(), m.nodeSize()); ok {
			return s.Start, nil
		}
		// One may be left over from a try of describe.
		i := slices.IndexFunc(m.chunks, func(c *chunk) bool { return c.c.Type == m.meta.c.Type && c.used == 0 })
		if i >= 0 {
			m.use(&m.meta, m.chunks[i])
			continue
		}
		c, err := m.more(m.meta)
		if err != nil {
			return 0, err
		}
		m.use(&m.meta, c)
	}
}

// chunkOf finds the chunk of a logical address.
func (m *maker) chunkOf(logical uint64) *chunk {
	i := sort.Search(len(m.chunks), func(i int) bool { return m.chunks[i].end() > logical })
	return m.chunks[i]
}

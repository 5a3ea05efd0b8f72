package check

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"btrlab/internal/format"
)

// chunkRules are about chunks and devices.
var chunkRules = []Rule{
	{"chunk.item", "chunks do not overlap, and this program knows their profile", "what lies in the chunk may be read from the wrong place"},
	{"chunk.dev_extent", "each chunk stripe has its dev extent (6)", "the space may be given away twice; Linux does not mount it"},
	{"dev.extent", "each dev extent belongs to a chunk stripe (6)", "Linux does not mount it, or the space is lost"},
	{"dev.overlap", "dev extents do not overlap, and none is below 1 MiB or beyond the device (2, 6)", "two chunks share space, and one damages the other"},
	{"dev.bytes_used", "the dev item's bytes_used is the sum of its dev extents (6)", "the device seems fuller or emptier than it is"},
	{"dev.item", "each device at hand has one dev item, and no other has", "Linux does not mount it, or wants a device that is not there"},
}

// DevExtent is one DEV_EXTENT with its place.
type DevExtent struct {
	Physical, Length, Logical uint64
}

// addChunk takes a chunk into the map; false says that it cannot be there.
func (c *checker) addChunk(logical uint64, ch *format.Chunk) bool {
	n := Chunk{Start: logical, Length: ch.Length, Type: ch.Type}
	for _, s := range ch.Stripes {
		d := c.DeviceOf(s)
		if d == nil && len(c.Devs) == 1 {
			d = c.Devs[0] // where else; chunk.item says it
		}
		n.Stripes = append(n.Stripes, Stripe{d, s.Offset})
	}
	i := sort.Search(len(c.Chunks), func(i int) bool { return c.Chunks[i].Start >= logical })
	if i < len(c.Chunks) && c.Chunks[i].Start == logical {
		c.Chunks[i] = n // the chunk tree's word counts
		return true
	}
	if i > 0 && c.Chunks[i-1].Start+c.Chunks[i-1].Length > logical || i < len(c.Chunks) && logical+ch.Length > c.Chunks[i].Start {
		return false
	}
	c.Chunks = append(c.Chunks, Chunk{})
	copy(c.Chunks[i+1:], c.Chunks[i:])
	c.Chunks[i] = n
	return true
}

// checkChunks makes the chunk map, from the system array and then the chunk tree.
func (c *checker) checkChunks() error {
	sys := map[uint64][]byte{}
	for a := c.Super.SysChunkArray; len(a) > 0; { // CheckSuper has checked its shape
		key := format.DecodeKey(a)
		a = a[format.KeySize:]
		size := format.ChunkSize(format.ChunkStripes(a))
		var ch format.Chunk
		ch.Decode(a[:size])
		sys[key.Offset] = a[:size]
		if !c.addChunk(key.Offset, &ch) {
			c.find("chunk.item", on(AtSysArray, 0).with(AtLogical, key.Offset), Words("a range that overlaps another chunk"), nil)
		}
		a = a[size:]
	}
	var devItems []format.DevItem
	inTree := map[uint64]bool{}
	whole := c.walkTree(format.CHUNK_TREE_OBJECTID, c.Super.ChunkRoot, c.Super.ChunkRootGeneration, c.Super.ChunkRootLevel, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			k, b := n.Key(i), n.Item(i)
			where := on(AtTree, format.CHUNK_TREE_OBJECTID).with(AtBlock, n.Bytenr()).with(AtSlot, uint64(i)).with(AtLogical, k.Offset)
			switch k.Type {
			case format.DEV_ITEM_KEY:
				var d format.DevItem
				d.Decode(b)
				devItems = append(devItems, d)
			case format.CHUNK_ITEM_KEY:
				var ch format.Chunk
				ch.Decode(b)
				if !c.addChunk(k.Offset, &ch) {
					c.find("chunk.item", where, Words("a range that overlaps another chunk"), nil)
				}
				if typ := ch.Type & format.BlockGroupTypeMask; typ&(typ-1) != 0 && c.Super.IncompatFlags&format.IncompatMixedGroups == 0 {
					c.find("chunk.item", where, words("type 0x%x", typ), Words("one bit without the mixed-bg feature"))
				}
				for j, s := range ch.Stripes {
					if c.DeviceOf(s) == nil {
						c.find("chunk.item", where.with(AtStripe, uint64(j)), words("device %d %v", s.Devid, s.DevUUID), Words(c.knownDevices()))
					}
				}
				if ch.Type&format.BlockGroupSystem == 0 {
					break
				}
				inTree[k.Offset] = true
				if a, ok := sys[k.Offset]; !ok {
					c.find("super.sys_array", where, Words("no copy in the array"), Words("one"))
				} else if !bytes.Equal(a, b) && !sameChunk(a, &ch) {
					c.find("super.sys_array", where, Words("another chunk in the array"), Words("a copy of the chunk tree's"))
				}
			}
		}
	})
	if !whole {
		return errStop // without the whole map all else would be said to be missing
	}
	for _, logical := range slices.Sorted(maps.Keys(sys)) {
		if !inTree[logical] {
			c.find("super.sys_array", on(AtLogical, logical), Words("a chunk that is not in the chunk tree"), nil)
		}
	}
	c.checkDevItems(devItems)
	return nil
}

// sameChunk compares what matters: the kernel and mkfs differ in io_align and io_width between the
// two places.
func sameChunk(a []byte, ch *format.Chunk) bool {
	var s format.Chunk
	s.Decode(a)
	if s.Length != ch.Length || s.Type != ch.Type || len(s.Stripes) != len(ch.Stripes) {
		return false
	}
	for i := range s.Stripes {
		if s.Stripes[i] != ch.Stripes[i] {
			return false
		}
	}
	return true
}

// knownDevices lists the devices at hand.
func (c *checker) knownDevices() string {
	var s []string
	for _, d := range c.Devs {
		s = append(s, fmt.Sprintf("%d %v", d.ID(), d.Super.DevItem.UUID))
	}
	return strings.Join(s, " or ")
}

// checkDevItems compares the chunk tree's items of devices with the devices.
func (c *checker) checkDevItems(items []format.DevItem) {
	if len(items) != len(c.Devs) {
		c.find("dev.item", on(AtTree, format.CHUNK_TREE_OBJECTID), words("%d dev items", len(items)), num(uint64(len(c.Devs))))
	}
	var total uint64
	for _, it := range items {
		total += it.TotalBytes
		d := c.DeviceOf(format.Stripe{Devid: it.Devid, DevUUID: it.UUID})
		if d == nil || it.FSID != d.Super.DevItem.FSID {
			c.find("dev.item", on(AtTree, format.CHUNK_TREE_OBJECTID).with(AtDevid, it.Devid), words("%d %v of %v", it.Devid, it.UUID, it.FSID),
				words("%s of %v", c.knownDevices(), c.Super.DevItem.FSID))
			continue
		}
		c.checkDevItem(d, it)
	}
	if total != c.Super.TotalBytes {
		c.find("dev.item", on(AtTree, format.CHUNK_TREE_OBJECTID), words("total_bytes %d", total), words("the superblock's %d", c.Super.TotalBytes))
	}
}

func (c *checker) checkDevItem(d *Device, it format.DevItem) {
	where, s := on(AtTree, format.CHUNK_TREE_OBJECTID).with(AtDevid, it.Devid), &d.Super.DevItem
	if d.Super.Generation == c.Super.Generation {
		switch {
		case it.TotalBytes != s.TotalBytes:
			c.find("super.dev_item", where, words("total_bytes %d", s.TotalBytes), num(it.TotalBytes))
		case it.BytesUsed != s.BytesUsed:
			// Linux reads it from the chunk tree only, and 5.10 leaves an old value in the
			// superblock.
			c.note("the superblock of device %d says bytes_used %d, its item %d: some kernels leave that", it.Devid, s.BytesUsed, it.BytesUsed)
		}
	}
	if it.TotalBytes > uint64(d.Size()) {
		c.find("dev.item", where, words("total_bytes %d", it.TotalBytes), words("at most %d", d.Size()))
	}
	// the truth from here on
	d.Used, d.Total = it.BytesUsed, it.TotalBytes
}

// checkDevices compares dev extents with chunk stripes.
func (c *checker) checkDevices() {
	r, ok := c.Roots[format.DEV_TREE_OBJECTID]
	if !ok {
		return
	}
	complete := c.walkTree(format.DEV_TREE_OBJECTID, r.Item.Bytenr, r.Item.Generation, r.Item.Level, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			if k := n.Key(i); k.Type == format.DEV_EXTENT_KEY {
				c.devExtent(on(AtTree, format.DEV_TREE_OBJECTID).with(AtBlock, n.Bytenr()).with(AtSlot, uint64(i)), k, n.Item(i))
			}
		}
	})
	listed := map[*Device]map[uint64]DevExtent{}
	for _, d := range c.Devs {
		listed[d] = c.checkDevExtents(d, complete)
	}
	for i := range c.Chunks {
		ch := &c.Chunks[i]
		for j, s := range ch.Stripes {
			d, ok := listed[s.Dev][s.Off]
			at := on(AtLogical, ch.Start).with(AtStripe, uint64(j)).with(AtPhysical, s.Off)
			if ok {
				delete(listed[s.Dev], s.Off)
				if d.Length != ch.StripeLength() || d.Logical != ch.Start {
					c.find("chunk.dev_extent", at, words("length %d of chunk %d", d.Length, d.Logical), words("length %d of chunk %d", ch.StripeLength(), ch.Start))
				}
			} else if complete && s.Dev != nil {
				c.find("chunk.dev_extent", at, Words("no dev extent"), Words("one"))
			}
		}
	}
	for _, d := range c.Devs {
		for _, e := range d.Extents {
			if _, ok := listed[d][e.Physical]; ok {
				c.find("dev.extent", c.whereExtent(d, e), words("a dev extent of chunk %d, which has no such stripe", e.Logical), nil)
			}
		}
	}
}

// devExtent gives a DEV_EXTENT to its device.
func (c *checker) devExtent(where Place, k format.Key, b []byte) {
	var it format.DevExtent
	it.Decode(b)
	for _, d := range c.Devs {
		if d.ID() == k.Objectid {
			d.Extents = append(d.Extents, DevExtent{k.Offset, it.Length, it.ChunkOffset})
			return
		}
	}
	var known []string
	for _, d := range c.Devs {
		known = append(known, fmt.Sprint(d.ID()))
	}
	c.find("dev.extent", where, words("device %d", k.Objectid), Words(strings.Join(known, " or ")))
}

// whereExtent names a dev extent.
func (c *checker) whereExtent(d *Device, e DevExtent) Place {
	p := on(AtTree, format.DEV_TREE_OBJECTID)
	if len(c.Devs) > 1 {
		p = p.with(AtDevid, d.ID())
	}
	return p.with(AtPhysical, e.Physical)
}

// checkDevExtents judges the dev extents of one device, which it returns by their start.
func (c *checker) checkDevExtents(dev *Device, complete bool) map[uint64]DevExtent {
	var sum, end uint64
	byPhys := map[uint64]DevExtent{}
	for _, d := range dev.Extents {
		where := c.whereExtent(dev, d)
		sum += d.Length
		if d.Physical < end {
			c.find("dev.overlap", where, num(d.Physical), words("at least %d, the end of the one before", end))
		}
		end = d.Physical + d.Length
		if ch := c.ChunkAt(d.Logical); d.Physical == 0 && ch != nil && ch.Type&format.BlockGroupSystem != 0 {
			// superStripe judges its extents
			c.note("a system chunk lies at physical 0, where old mkfs.btrfs put it")
		} else if d.Physical < format.BlockReserved {
			c.find("dev.overlap", where, num(d.Physical), words("at least %d", format.BlockReserved))
		}
		if end > dev.Total {
			c.find("dev.overlap", where, words("end %d", end), words("at most %d", dev.Total))
		}
		byPhys[d.Physical] = d
	}
	if complete && sum != dev.Used {
		c.find("dev.bytes_used", on(AtDevid, dev.ID()), num(dev.Used), num(sum))
	}
	return byPhys
}

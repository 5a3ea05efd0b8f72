package check

import (
	"bytes"
	"fmt"
	"sort"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

// devExtent is one DEV_EXTENT with its place.
type devExtent struct {
	physical, length, logical uint64
}

// addChunk takes a chunk into the map; false says that it cannot be there.
func (c *checker) addChunk(logical uint64, ch *format.Chunk) (bool, error) {
	prof := ch.Type & format.BlockGroupProfileMask
	if prof != 0 && prof != format.BlockGroupDup {
		return false, blockdev.Errorf(c.dev, "%w", &format.UnsupportedError{Feature: fmt.Sprintf("chunk %d of profile 0x%x", logical, prof)})
	}
	n := chunk{start: logical, length: ch.Length, typ: ch.Type}
	for _, s := range ch.Stripes {
		n.copies = append(n.copies, s.Offset)
	}
	i := sort.Search(len(c.chunks), func(i int) bool { return c.chunks[i].start >= logical })
	if i < len(c.chunks) && c.chunks[i].start == logical {
		c.chunks[i] = n // the chunk tree's word counts
		return true, nil
	}
	if i > 0 && c.chunks[i-1].start+c.chunks[i-1].length > logical || i < len(c.chunks) && logical+ch.Length > c.chunks[i].start {
		return false, nil
	}
	c.chunks = append(c.chunks, chunk{})
	copy(c.chunks[i+1:], c.chunks[i:])
	c.chunks[i] = n
	return true, nil
}

// checkChunks makes the chunk map, from the system array and then the chunk tree.
func (c *checker) checkChunks() error {
	sys := map[uint64][]byte{}
	for a := c.sb.SysChunkArray; len(a) > 0; { // CheckSuper has checked its shape
		key := format.DecodeKey(a)
		a = a[format.KeySize:]
		size := format.ChunkSize(format.ChunkStripes(a))
		var ch format.Chunk
		ch.Decode(a[:size])
		sys[key.Offset] = a[:size]
		ok, err := c.addChunk(key.Offset, &ch)
		if err != nil {
			return err
		}
		if !ok {
			c.find("chunk.item", fmt.Sprintf("sys_chunk_array logical=%d", key.Offset), "a range that overlaps another chunk", "")
		}
		a = a[size:]
	}
	var fail error
	var devItems []format.DevItem
	inTree := map[uint64]bool{}
	whole := c.walkTree(format.CHUNK_TREE_OBJECTID, c.sb.ChunkRoot, c.sb.ChunkRootGeneration, c.sb.ChunkRootLevel, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			k, b := n.Key(i), n.Item(i)
			where := fmt.Sprintf("root=3 block=%d slot=%d logical=%d", n.Bytenr(), i, k.Offset)
			switch k.Type {
			case format.DEV_ITEM_KEY:
				var d format.DevItem
				d.Decode(b)
				devItems = append(devItems, d)
			case format.CHUNK_ITEM_KEY:
				var ch format.Chunk
				ch.Decode(b)
				ok, err := c.addChunk(k.Offset, &ch)
				if err != nil {
					fail = err
					return
				}
				if !ok {
					c.find("chunk.item", where, "a range that overlaps another chunk", "")
				}
				if typ := ch.Type & format.BlockGroupTypeMask; typ&(typ-1) != 0 && c.sb.IncompatFlags&format.IncompatMixedGroups == 0 {
					c.find("chunk.item", where, "type "+hex(typ), "one bit without the mixed-bg feature")
				}
				for j, s := range ch.Stripes {
					if s.Devid != c.sb.DevItem.Devid || s.DevUUID != c.sb.DevItem.UUID {
						c.find("chunk.item", fmt.Sprintf("%s stripe=%d", where, j), fmt.Sprintf("device %d %v", s.Devid, s.DevUUID),
							fmt.Sprintf("%d %v", c.sb.DevItem.Devid, c.sb.DevItem.UUID))
					}
				}
				if ch.Type&format.BlockGroupSystem == 0 {
					break
				}
				inTree[k.Offset] = true
				if a, ok := sys[k.Offset]; !ok {
					c.find("super.sys_array", where, "no copy in the array", "one")
				} else if !bytes.Equal(a, b) && !sameChunk(a, &ch) {
					c.find("super.sys_array", where, "another chunk in the array", "a copy of the chunk tree's")
				}
			}
		}
	})
	if fail != nil {
		return fail
	}
	if !whole {
		return errStop // without the whole map all else would be said to be missing
	}
	for logical := range sys {
		if !inTree[logical] {
			c.find("super.sys_array", fmt.Sprintf("logical=%d", logical), "a chunk that is not in the chunk tree", "")
		}
	}
	c.checkDevItem(devItems)
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

func (c *checker) checkDevItem(items []format.DevItem) {
	s := c.sb.DevItem
	if len(items) != 1 {
		c.find("dev.item", "root=3", fmt.Sprintf("%d dev items", len(items)), "1")
	}
	for _, d := range items {
		where := fmt.Sprintf("root=3 devid=%d", d.Devid)
		if d.Devid != s.Devid || d.UUID != s.UUID || d.FSID != s.FSID {
			c.find("dev.item", where, fmt.Sprintf("%d %v of %v", d.Devid, d.UUID, d.FSID), fmt.Sprintf("%d %v of %v", s.Devid, s.UUID, s.FSID))
			continue
		}
		if d.BytesUsed != s.BytesUsed || d.TotalBytes != s.TotalBytes {
			c.find("super.dev_item", where, fmt.Sprintf("bytes_used %d total_bytes %d", s.BytesUsed, s.TotalBytes),
				fmt.Sprintf("bytes_used %d total_bytes %d", d.BytesUsed, d.TotalBytes))
		}
		if d.TotalBytes > uint64(c.dev.Size()) {
			c.find("dev.item", where, fmt.Sprintf("total_bytes %d", d.TotalBytes), fmt.Sprintf("at most %d", c.dev.Size()))
		}
		if d.TotalBytes != c.sb.TotalBytes {
			c.find("dev.item", where, fmt.Sprintf("total_bytes %d", d.TotalBytes), fmt.Sprintf("the superblock's %d", c.sb.TotalBytes))
		}
		// the truth from here on
		c.sb.DevItem.BytesUsed, c.sb.DevItem.TotalBytes = d.BytesUsed, d.TotalBytes
	}
}

// checkDevices compares dev extents with chunk stripes.
func (c *checker) checkDevices() {
	r, ok := c.roots[format.DEV_TREE_OBJECTID]
	if !ok {
		return
	}
	var exts []devExtent
	complete := c.walkTree(format.DEV_TREE_OBJECTID, r.item.Bytenr, r.item.Generation, r.item.Level, func(n format.Node, _ bool) {
		for i := range n.Nritems() {
			k := n.Key(i)
			if k.Type != format.DEV_EXTENT_KEY {
				continue
			}
			var d format.DevExtent
			d.Decode(n.Item(i))
			if k.Objectid != c.sb.DevItem.Devid {
				c.find("dev.extent", fmt.Sprintf("root=4 block=%d slot=%d", n.Bytenr(), i), fmt.Sprintf("device %d", k.Objectid), num(c.sb.DevItem.Devid))
				continue
			}
			exts = append(exts, devExtent{k.Offset, d.Length, d.ChunkOffset})
		}
	})
	where := func(d devExtent) string { return fmt.Sprintf("root=4 physical=%d", d.physical) }
	var sum, end uint64
	byPhys := map[uint64]devExtent{}
	for _, d := range exts {
		sum += d.length
		if d.physical < end {
			c.find("dev.overlap", where(d), num(d.physical), fmt.Sprintf("at least %d, the end of the one before", end))
		}
		end = d.physical + d.length
		if ch := c.chunkAt(d.logical); d.physical == 0 && ch != nil && ch.typ&format.BlockGroupSystem != 0 {
			// superStripe judges its extents
			c.note("a system chunk lies at physical 0, where old mkfs.btrfs put it")
		} else if d.physical < format.BlockReserved {
			c.find("dev.overlap", where(d), num(d.physical), fmt.Sprintf("at least %d", format.BlockReserved))
		}
		if end > c.sb.DevItem.TotalBytes {
			c.find("dev.overlap", where(d), "end "+num(end), fmt.Sprintf("at most %d", c.sb.DevItem.TotalBytes))
		}
		byPhys[d.physical] = d
	}
	if complete && sum != c.sb.DevItem.BytesUsed {
		c.find("dev.bytes_used", fmt.Sprintf("devid=%d", c.sb.DevItem.Devid), num(c.sb.DevItem.BytesUsed), num(sum))
	}
	for i := range c.chunks {
		ch := &c.chunks[i]
		for j, phys := range ch.copies {
			d, ok := byPhys[phys]
			at := fmt.Sprintf("logical=%d stripe=%d physical=%d", ch.start, j, phys)
			if ok {
				delete(byPhys, phys)
				if d.length != ch.length || d.logical != ch.start {
					c.find("chunk.dev_extent", at, fmt.Sprintf("length %d of chunk %d", d.length, d.logical), fmt.Sprintf("length %d of chunk %d", ch.length, ch.start))
				}
			} else if complete {
				c.find("chunk.dev_extent", at, "no dev extent", "one")
			}
		}
	}
	for _, d := range exts {
		if _, ok := byPhys[d.physical]; ok {
			c.find("dev.extent", where(d), fmt.Sprintf("a dev extent of chunk %d, which has no such stripe", d.logical), "")
		}
	}
}

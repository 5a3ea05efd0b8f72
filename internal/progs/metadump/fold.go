package metadump

import (
	"cmp"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// place finds the places of the chunks on one device. A chunk stays at the offset of its first
// stripe, of DUP of its first two, if nothing else is there; the others come after all that stay. A
// chunk that was striped gets longer: it may not come to lie over a superblock, because its extents
// do not make room for one.
//
// Models remap_overlapping_chunks() of btrfs-progs' image/image-restore.c.
func (d *Dump) place() {
	type claim struct {
		format.Range[uint64]
		of *chunk
	}
	var claims []claim
	moves := map[*chunk]bool{}
	for i := range d.chunks {
		c := &d.chunks[i]
		c.at = nil
		for _, s := range c.Stripes[:c.copies()] {
			r := format.RangeOf(s.Offset, c.Length)
			claims = append(claims, claim{r, c})
			moves[c] = moves[c] || c.StripeBytes() != c.Length && overSuper(r)
			c.at = append(c.at, s.Offset)
		}
	}
	slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Compare(a.Start, b.Start) })
	end := uint64(format.BlockReserved)
	for _, c := range claims {
		switch {
		case moves[c.of]:
		case c.Start < end:
			moves[c.of] = true
		default:
			end = c.End
		}
	}
	for i := range d.chunks {
		c := &d.chunks[i]
		if !moves[c] {
			continue
		}
		for n := range c.at {
			r := afterSupers(end, c.Length)
			c.at[n], end = r.Start, r.End
		}
	}
	d.one = d.device()
}

// overSuper reports whether a range of a device has a superblock.
func overSuper(r format.Range[uint64]) bool {
	for i := range format.SuperMirrorMax {
		if !r.Intersect(format.RangeOf(format.SuperMirror(i), format.StripeLen)).Empty() {
			return true
		}
	}
	return false
}

// afterSupers is the first range of n bytes from an offset on that has no superblock.
func afterSupers(from, n uint64) format.Range[uint64] {
	const step = 1 << 20
	r := format.RangeOf(format.AlignUp(from, step), n)
	for i := range format.SuperMirrorMax {
		if at := format.SuperMirror(i); !r.Intersect(format.RangeOf(at, format.StripeLen)).Empty() {
			r = format.RangeOf(format.AlignUp(at+format.StripeLen, step), n)
		}
	}
	return r
}

// placedEnd is the size of the one device.
func (d *Dump) placedEnd() (end uint64) {
	for _, c := range d.chunks {
		end = max(end, slices.Max(c.at)+c.Length)
	}
	return max(end, format.SuperOffset+format.SuperSize)
}

// device is the one device that is left: the first of the chunk tree, whose key so stays the first.
func (d *Dump) device() format.DevItem {
	v := d.Super.DevItem
	if len(d.items) > 0 {
		v = d.items[0]
	}
	v.TotalBytes, v.BytesUsed = d.placedEnd(), 0
	for _, c := range d.chunks {
		v.BytesUsed += c.Length * uint64(len(c.at))
	}
	return v
}

// folded is a chunk on the one device.
func (d *Dump) folded(c *chunk) format.Chunk {
	v, dev := c.Chunk, d.one
	v.Type &= format.BlockGroupTypeMask | format.BlockGroupDup
	v.SubStripes, v.Stripes = 0, nil
	for _, at := range c.at {
		v.Stripes = append(v.Stripes, format.Stripe{Devid: dev.Devid, Offset: at, DevUUID: dev.UUID})
	}
	return v
}

// fold makes a leaf of the chunk tree that of one device. Devices that fill a leaf by themselves
// stay, so that it is not empty.
//
// Models fixup_chunk_tree_block() and fixup_device_size().
func (d *Dump) fold(n format.Node) {
	dev := d.one
	var list []image.Item
	for _, it := range image.LeafItems(n) {
		switch it.Key.Type {
		case format.CHUNK_ITEM_KEY:
			c := chunkAt(d.chunks, it.Key.Offset)
			if c == nil {
				continue // Open has read another dump
			}
			v := d.folded(c)
			it.Data = make([]byte, v.Size())
			v.Encode(it.Data)
		case format.DEV_ITEM_KEY:
			if it.Key.Offset != dev.Devid {
				continue
			}
			it.Data = make([]byte, format.DevItemSize)
			dev.Encode(it.Data)
		}
		list = append(list, it)
	}
	if len(list) > 0 {
		image.FillLeaf(n, list)
	}
}

// foldSuper makes a superblock that of one device. A cache of free space that left room for a
// superblock in a chunk that has moved is not used any more.
//
// Models update_super().
func (d *Dump) foldSuper(s *format.Super) {
	s.NumDevices, s.DevItem = 1, d.one
	s.TotalBytes = s.DevItem.TotalBytes
	var array []byte
	for k := range s.SysChunks() {
		v := d.folded(chunkAt(d.chunks, k.Offset))
		array = append(array, sysChunk(k.Offset, &v)...)
	}
	s.SysChunkArray = array
	for i := range d.chunks {
		c := &d.chunks[i]
		for n, at := range c.at {
			if n < len(c.Stripes) && at != c.Stripes[n].Offset && overSuper(format.RangeOf(c.Stripes[n].Offset, c.Length)) {
				s.CacheGeneration = 0
			}
		}
	}
}

// careful reads blocks that the tree checker passes.
type careful struct{ *image.Editor }

func (c careful) Node(r image.Ref) (format.Node, error) { return c.Checked(r) }

// retell changes the items of devices and block groups for the chunks that are folded.
//
// Models fixup_chunks_and_devices(). Difference: items change in place, so the trees keep their
// blocks.
func (r *restorer) retell() error {
	im, err := image.Open(r.t, r.devs[0])
	if err != nil {
		return err
	}
	ed, err := image.NewEditor(im)
	if err != nil {
		return err
	}
	e := image.Edits{Store: careful{ed}}
	groups := uint64(format.EXTENT_TREE_OBJECTID)
	if im.SB.CompatROFlags&format.CompatROBlockGroupTree != 0 {
		groups = format.BLOCK_GROUP_TREE_OBJECTID
	}
	for i := range r.chunks {
		c := &r.chunks[i]
		v := r.folded(c)
		k := format.Key{Objectid: c.start, Type: format.BLOCK_GROUP_ITEM_KEY, Offset: c.Length}
		_, found, err := e.Path(groups, k)
		if err == nil && found {
			err = e.Change(groups, k, func(b []byte) error {
				var g format.BlockGroupItem
				g.Decode(b)
				g.Flags = v.Type
				g.Encode(b)
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("block group %d: %w", c.start, err)
		}
	}
	if err := r.devTree(e); err != nil {
		return fmt.Errorf("tree of devices: %w", err)
	}
	return nil
}

// devTree makes the items of the device tree anew, in the leaves that it has: none gets empty and
// none is needed, since a chunk has no more places than before.
func (r *restorer) devTree(e image.Edits) error {
	root, err := e.RootOf(format.DEV_TREE_OBJECTID)
	if err != nil {
		return err
	}
	dev := r.one
	var list []image.Item
	var top format.Node
	leaves := 0
	image.Nodes(root, e.Node, func(n format.Node) {
		if top == nil {
			top = n
		}
		if n.Level() > 0 {
			return
		}
		leaves++
		for _, it := range image.LeafItems(n) {
			other := it.Key.Type == format.PERSISTENT_ITEM_KEY && it.Key.Objectid == format.DEV_STATS_OBJECTID && it.Key.Offset != dev.Devid
			if it.Key.Type != format.DEV_EXTENT_KEY && !other {
				list = append(list, it)
			}
		}
	}, func(bad error) { err = bad })
	if err != nil {
		return err
	}
	for i := range r.chunks {
		c := &r.chunks[i]
		v := format.DevExtent{ChunkTree: format.CHUNK_TREE_OBJECTID, ChunkObjectid: format.FIRST_CHUNK_TREE_OBJECTID, ChunkOffset: c.start,
			Length: c.Length, ChunkTreeUUID: top.ChunkTreeUUID()}
		for _, at := range c.at {
			b := make([]byte, format.DevExtentSize)
			v.Encode(b)
			list = append(list, image.Item{Key: format.Key{Objectid: dev.Devid, Type: format.DEV_EXTENT_KEY, Offset: at}, Data: b})
		}
	}
	slices.SortFunc(list, func(a, b image.Item) int { return a.Key.Compare(b.Key) })
	if len(list) < leaves {
		return fmt.Errorf("%d leaves for %d items", leaves, len(list))
	}
	_, err = refill(e, root, &list, &leaves)
	return err
}

// refill gives each of the leaves that are left its share of the items that are left, and the
// blocks above their first keys. It returns the first key.
func refill(e image.Edits, r image.Ref, list *[]image.Item, leaves *int) (first format.Key, err error) {
	n, err := e.Node(r)
	if err != nil {
		return first, err
	}
	if r.Level > 0 {
		for i := range n.Nritems() {
			k, err := refill(e, image.Child(r, n, i), list, leaves)
			if err != nil {
				return first, err
			}
			n.SetKey(i, k)
		}
		return n.Key(0), e.WriteBlock(n)
	}
	share := (*list)[:(len(*list)+*leaves-1) / *leaves]
	if image.LeafRoom(len(n), share) < len(share) {
		return first, fmt.Errorf("block %d has no room for %d items", n.Bytenr(), len(share))
	}
	image.FillLeaf(n, share)
	*list, *leaves = (*list)[len(share):], *leaves-1
	return share[0].Key, e.WriteBlock(n)
}

// spread is the chunks on the devices that they had.
func (d *Dump) spread(t *sched.Task, devs []blockdev.Device) *image.Image {
	im := &image.Image{Task: t, SB: d.Super}
	for i, dev := range devs {
		im.Devs = append(im.Devs, &image.Device{Device: dev, ID: d.items[i].Devid, UUID: d.items[i].UUID, Known: true})
	}
	for i := range d.chunks {
		c := &d.chunks[i]
		im.Chunks.Replace(image.NewChunk(c.start, &c.Chunk, func(s format.Stripe) *image.Device { return im.Device(s.Devid) }))
	}
	return im
}

// stripes writes bytes of a logical address to all their copies, with parity. A device that a chunk
// names and the file system does not have is left out.
func (r *restorer) stripes(logical uint64, p []byte) error {
	return r.im.Pieces(logical, p, func(c *image.Chunk, _ []image.Stripe, p []byte) error {
		at := logical
		logical += uint64(len(p))
		return c.Put(r.t, at, p, func(s image.Stripe, p []byte) error {
			if s.Dev == nil {
				return nil
			}
			return r.write(s.Dev, p, s.Off)
		})
	})
}

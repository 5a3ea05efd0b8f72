package metadump

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
	"btrlab/internal/sched"
)

// Way is where a dump is restored to.
type Way uint8

// The ways.
const (
	// OneDevice puts the file system on one device. If it had several, the chunks get one stripe
	// there, or the two of DUP, and the trees of chunks and devices and the block groups say so:
	// btrfs-image -r.
	OneDevice Way = iota
	// SameDevices puts it on as many devices as it had: btrfs-image -m.
	SameDevices
	// Logical puts each block at its logical address and leaves all trees as they are. Nothing can
	// mount it: btrfs-image -r -o.
	Logical
)

// Dump is a dump that can be restored.
//
// Not safe for concurrent use.
type Dump struct {
	source
	// Super is the superblock in the dump.
	Super format.Super
	raw   []byte // Super's bytes
	// items are the devices in the chunk tree, ascending.
	items []format.DevItem
	// chunks are those of the superblock and of the chunk tree, ascending.
	chunks []chunk
	nodes  map[uint64]bool // leaves of the chunk tree, by their addresses
	one    format.DevItem  // that of the one device, by place
}

// chunk is a chunk of a dump, and where it lies after it is restored to one device.
type chunk struct {
	start uint64
	format.Chunk
	at []uint64 // of each copy, in bytes
}

func (c *chunk) end() uint64 { return c.start + c.Length }

// Open reads the superblock of a dump of size bytes, and its chunks.
//
// Models build_chunk_tree() of btrfs-progs' image/image-restore.c.
func Open(r io.ReaderAt, size int64) (*Dump, error) {
	d := &Dump{source: source{r, size}, nodes: map[uint64]bool{}}
	err := d.each(func(it item) error {
		if it.bytenr == format.SuperOffset {
			return d.super(it)
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errFound):
		return nil, err
	case d.raw == nil:
		return nil, errors.New("dump has no superblock")
	}
	for k, b := range d.Super.SysChunks() {
		if b == nil {
			return nil, errors.New("sys_chunk_array of the dump is cut short")
		}
		if err := d.chunk(k.Offset, b); err != nil {
			return nil, err
		}
	}
	if err := d.sortChunks(); err != nil {
		return nil, err
	}
	system := slices.Clone(d.chunks)
	err = d.each(func(it item) error { return d.chunkLeaves(it, system) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(d.items, func(a, b format.DevItem) int { return cmp.Compare(a.Devid, b.Devid) })
	d.items = slices.CompactFunc(d.items, func(a, b format.DevItem) bool { return a.Devid == b.Devid })
	return d, d.sortChunks()
}

// errFound ends a walk over items early, and is no error.
var errFound = errors.New("found")

// super reads the superblock.
func (d *Dump) super(it item) error {
	err := d.pieces(it, make([]byte, format.SuperSize), func(at uint64, p []byte) error {
		if at == 0 && len(p) == format.SuperSize {
			d.raw = p
		}
		return nil
	})
	if err != nil {
		return err
	}
	if d.raw == nil {
		return fmt.Errorf("superblock of the dump has less than %d bytes", format.SuperSize)
	}
	d.raw = bytes.Clone(d.raw)
	d.Super.Decode(d.raw)
	switch n := d.Super.NodeSize; {
	case format.SuperMagic(d.raw) != format.Magic:
		return fmt.Errorf("superblock of the dump, bad magic, have 0x%x", format.SuperMagic(d.raw))
	case !d.Super.CsumType.Known():
		return fmt.Errorf("superblock of the dump, bad csum type, have %d", d.Super.CsumType)
	case n < format.SectorSize || n > 64<<10 || n&(n-1) != 0:
		return fmt.Errorf("superblock of the dump, bad nodesize, have %d", n)
	case d.Super.DevItem.TotalBytes > format.MaxFileSize:
		return fmt.Errorf("superblock of the dump, bad size of the device, have %d", d.Super.DevItem.TotalBytes)
	}
	return errFound
}

// chunk takes a chunk item, in the place of one that begins at the same address.
func (d *Dump) chunk(start uint64, b []byte) error {
	if len(b) < format.ChunkSize(1) || len(b) != format.ChunkSize(format.ChunkStripes(b)) || format.ChunkStripes(b) == 0 {
		return fmt.Errorf("chunk at %d of the dump has %d bytes", start, len(b))
	}
	c := chunk{start: start}
	if c.Decode(b); c.Length == 0 || c.end() < start {
		return fmt.Errorf("chunk at %d of the dump, bad length, have %d", start, c.Length)
	}
	for _, s := range c.Stripes {
		if s.Offset > format.MaxFileSize-min(c.Length, format.MaxFileSize) {
			return fmt.Errorf("chunk at %d of the dump, bad place on device %d, have %d", start, s.Devid, s.Offset)
		}
	}
	if len(d.chunks) == chunksMax {
		return fmt.Errorf("dump has more than %d chunks", chunksMax)
	}
	d.chunks = append(d.chunks, c)
	return nil
}

// chunksMax bounds the chunks of a dump. Linux makes them of some GiB.
const chunksMax = 1 << 20

// sortChunks sorts the chunks; of two that begin at the same address the later one counts. It is an
// error if others have an address in common, or if all together have more than a file can.
func (d *Dump) sortChunks() error {
	slices.Reverse(d.chunks)
	slices.SortStableFunc(d.chunks, func(a, b chunk) int { return cmp.Compare(a.start, b.start) })
	d.chunks = slices.CompactFunc(d.chunks, func(a, b chunk) bool { return a.start == b.start })
	total := uint64(0)
	for i := range d.chunks {
		c := &d.chunks[i]
		if c.Length > bytesMax || total+2*c.Length > bytesMax {
			return fmt.Errorf("chunk at %d of the dump, bad length, have %d", c.start, c.Length)
		}
		total += 2 * c.Length
		if i > 0 && d.chunks[i-1].end() > c.start {
			return fmt.Errorf("chunks of the dump overlap: %d+%d and %d", d.chunks[i-1].start, d.chunks[i-1].Length, c.start)
		}
	}
	return nil
}

// bytesMax bounds the bytes of all chunks of a dump.
const bytesMax = format.MaxFileSize / 4

// chunkLeaves takes chunks and devices of the leaves of the chunk tree in an item, which lie in the
// system chunks.
func (d *Dump) chunkLeaves(it item, system []chunk) error {
	// An item is at most so long; one that is longer is no block of a tree.
	if chunkAt(system, it.bytenr) == nil && chunkAt(system, it.bytenr+itemMax-1) == nil {
		return nil
	}
	return d.pieces(it, make([]byte, d.Super.NodeSize), func(at uint64, p []byte) error {
		n := format.Node(p)
		if !d.isNode(it.bytenr+at, p) || n.Owner() != format.CHUNK_TREE_OBJECTID || n.Level() > 0 || !itemsInside(n) {
			return nil
		}
		d.nodes[n.Bytenr()] = true
		for i := range n.Nritems() {
			switch k, b := n.Key(i), n.Item(i); {
			case k.Type == format.CHUNK_ITEM_KEY:
				if err := d.chunk(k.Offset, b); err != nil {
					return err
				}
			case k.Type == format.DEV_ITEM_KEY && len(b) >= format.DevItemSize:
				var v format.DevItem
				v.Decode(b)
				d.items = append(d.items, v)
			}
		}
		return nil
	})
}

// isNode reports whether p is a block of a tree of the file system, at a logical address.
func (d *Dump) isNode(bytenr uint64, p []byte) bool {
	n := format.Node(p)
	return len(p) == int(d.Super.NodeSize) && n.Bytenr() == bytenr && n.FSID() == d.Super.TreeFSID()
}

// chunkAt is the chunk with the address; nil if there is none.
func chunkAt(list []chunk, logical uint64) *chunk {
	i, found := slices.BinarySearchFunc(list, logical, func(c chunk, logical uint64) int {
		switch {
		case c.start > logical:
			return 1
		case c.end() <= logical:
			return -1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &list[i]
}

// Sizes are the bytes that each device needs.
func (d *Dump) Sizes(way Way) (list []int64, err error) {
	switch way {
	case SameDevices:
		if n := d.Super.NumDevices; uint64(len(d.items)) != n {
			return nil, fmt.Errorf("chunk tree of the dump has %d devices, have %d in the superblock", len(d.items), n)
		}
		for _, v := range d.items {
			if v.TotalBytes > format.MaxFileSize {
				return nil, fmt.Errorf("device %d of the dump, bad size, have %d", v.Devid, v.TotalBytes)
			}
			list = append(list, int64(v.TotalBytes))
		}
		return list, nil
	case OneDevice:
		if d.Super.NumDevices != 1 {
			d.place()
			if end := d.placedEnd(); end > format.MaxFileSize {
				return nil, fmt.Errorf("chunks of the dump end at %d, want at most %d", end, uint64(format.MaxFileSize))
			}
			return []int64{int64(d.placedEnd())}, nil
		}
		for i := range d.chunks {
			c := &d.chunks[i]
			c.at = nil
			for _, s := range c.Stripes[:c.copies()] {
				c.at = append(c.at, s.Offset)
			}
		}
	}
	// An item may lie beyond the end that a damaged file system claims.
	end := d.Super.DevItem.TotalBytes
	err = d.each(func(it item) error {
		at := it.bytenr + max(itemMax, uint64(it.size))
		if c := chunkAt(d.chunks, it.bytenr); c != nil && way == OneDevice {
			at = slices.Max(c.at) + c.Length
		}
		if it.bytenr >= bytesMax || at > format.MaxFileSize {
			return fmt.Errorf("bad address of a block, have %d", it.bytenr)
		}
		end = max(end, at)
		return nil
	})
	return []int64{int64(end)}, err
}

// copies is on how many places of one device a chunk lies there.
func (c *chunk) copies() int {
	if c.Type&format.BlockGroupDup != 0 {
		return min(2, len(c.Stripes))
	}
	return 1
}

// restorer is one run of Restore.
type restorer struct {
	*Dump
	t    *sched.Task
	way  Way
	devs []blockdev.Device
	im   *image.Image // SameDevices: the chunks on the devices
}

// bufferSize is how many bytes of an item are restored at a time: a multiple of any nodesize.
const bufferSize = 512 << 10

// Restore writes the dump to devices of the Sizes of the way, in the order of their numbers. What
// the dump does not have is left as it is there. The superblocks come last and are flagged as those
// of a file system without data: METADUMP_V2, or METADUMP of Logical. Progress, if it is set, is
// called with the bytes of the dump that are done, and ends the work by an error.
//
// Models restore_metadump() of btrfs-progs' image/image-restore.c. Differences: the chunks of one
// device do not overlap superblocks that they did not before; trees are changed in place, so no
// generation changes, and a log can still be replayed; SameDevices has the flag, too.
func (d *Dump) Restore(t *sched.Task, way Way, devs []blockdev.Device, progress func(done, total uint64) error) error {
	r := &restorer{Dump: d, t: t, way: way, devs: devs}
	if way == SameDevices {
		r.im = d.spread(t, devs)
	}
	buf := make([]byte, bufferSize)
	err := d.each(func(it item) error {
		if progress != nil {
			if err := progress(uint64(it.off), uint64(d.size)); err != nil {
				return err
			}
		}
		if it.bytenr == format.SuperOffset {
			return nil
		}
		return d.pieces(it, buf, func(at uint64, p []byte) error { return r.put(it.bytenr+at, p) })
	})
	if err != nil {
		return err
	}
	if err := r.supers(); err != nil {
		return err
	}
	if way == OneDevice && d.Super.NumDevices != 1 {
		if err := r.retell(); err != nil {
			return err
		}
	}
	for _, dev := range devs {
		if err := blockdev.Flush(t, dev); err != nil {
			return err
		}
	}
	return nil
}

// put writes bytes of a logical address.
func (r *restorer) put(logical uint64, p []byte) error {
	for n := p; len(n) >= int(r.Super.NodeSize); n = n[r.Super.NodeSize:] {
		r.mend(logical+uint64(len(p)-len(n)), n[:r.Super.NodeSize])
	}
	switch r.way {
	case SameDevices:
		return r.stripes(logical, p)
	case Logical:
		return r.write(r.devs[0], p, logical)
	}
	for len(p) > 0 {
		c := chunkAt(r.chunks, logical)
		if c == nil { // as btrfs-image does it
			return r.write(r.devs[0], p, logical)
		}
		n := min(uint64(len(p)), c.end()-logical)
		for _, at := range c.at {
			if err := r.write(r.devs[0], p[:n], at+logical-c.start); err != nil {
				return err
			}
		}
		p, logical = p[n:], logical+n
	}
	return nil
}

// mend makes a block what the devices need: of the chunk tree for another number of devices, and
// with the checksum of the file system where btrfs-image has made it a crc32c.
func (r *restorer) mend(bytenr uint64, p []byte) {
	n := format.Node(p)
	if !r.isNode(bytenr, p) {
		return
	}
	if sum := r.Super.CsumType; sum != format.CsumCRC32C && !sum.BlockMatch(p) && n.Csum() == n.ComputeCsum() {
		n.UpdateCsum(sum)
	}
	if r.way == OneDevice && r.Super.NumDevices != 1 && r.nodes[bytenr] {
		r.fold(n)
		n.UpdateCsum(r.Super.CsumType)
	}
}

func (r *restorer) write(dev blockdev.Device, p []byte, off uint64) error {
	if off > uint64(dev.Size()) || uint64(len(p)) > uint64(dev.Size())-off {
		return blockdev.Errorf(dev, "a block of the dump lies at %d, have %d bytes", off, dev.Size())
	}
	return blockdev.Write(r.t, dev, p, int64(off))
}

// supers writes the superblocks.
func (r *restorer) supers() error {
	for i, dev := range r.devs {
		b := bytes.Clone(r.raw)
		format.ChangeSuper(b, func(s *format.Super) { r.superOf(i, s) })
		size := format.DecodeSuper(b).DevItem.TotalBytes
		for m := range format.SuperMirrorMax {
			if at := format.SuperMirror(m); m == 0 || at+format.SuperSize <= min(uint64(dev.Size()), size) {
				format.SetBytenr(b, at)
				if err := r.write(dev, b, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// superOf makes the superblock of the dump that of a device.
func (r *restorer) superOf(dev int, s *format.Super) {
	switch {
	case r.way == Logical:
		s.Flags |= format.SuperFlagMetadump
		s.SysChunkArray = wholeAddress(s)
		return
	case r.way == SameDevices:
		s.DevItem = r.items[dev]
	case s.NumDevices != 1:
		r.foldSuper(s)
	}
	s.Flags |= format.SuperFlagMetadumpV2
}

// wholeAddress is a chunk by which logical addresses are those of the device.
//
// Models update_super_old().
func wholeAddress(s *format.Super) []byte {
	c := format.Chunk{
		Length: ^uint64(0), Owner: format.EXTENT_TREE_OBJECTID, StripeLen: format.StripeLen, Type: format.BlockGroupSystem,
		IOAlign: s.SectorSize, IOWidth: s.SectorSize, SectorSize: s.SectorSize,
		Stripes: []format.Stripe{{Devid: s.DevItem.Devid, DevUUID: s.DevItem.UUID}},
	}
	return sysChunk(0, &c)
}

// sysChunk is an entry of sys_chunk_array.
func sysChunk(start uint64, c *format.Chunk) []byte {
	b := make([]byte, format.KeySize+c.Size())
	format.Key{Objectid: format.FIRST_CHUNK_TREE_OBJECTID, Type: format.CHUNK_ITEM_KEY, Offset: start}.Encode(b)
	c.Encode(b[format.KeySize:])
	return b
}

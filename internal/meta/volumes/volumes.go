// Package volumes maps logical addresses to devices: the chunk map, the mirrors of a chunk, the
// superblock copies, and the making of new chunks out of unallocated device space.
//
// A chunk of a profile whose stripes all have the whole chunk (single, DUP, RAID1 to RAID1C4) is
// one range on each of its devices. Of the others (RAID0, RAID10, RAID5, RAID6) a bio is cut at the
// ends of the units of format.StripeLen bytes.
//
// What is lost of RAID5 and RAID6 is made from the parity. A write of a part of a row reads the
// rest of its columns first, to make the parity; a row has one write at a time, that owns its
// stripe lock (raid56.go). The write hole is that of Linux: data and parity are written at once,
// and a crash between them leaves a parity that is not its data's. Nothing notes which rows these
// are. While all devices are there nothing is lost; but when a device fails, what is made from such
// a parity is wrong, also of sectors that nobody has written for long. A scrub, or check --repair,
// makes the parity anew.
//
// Lock order:
//
//	chunk_map                 the map is changed (Add, AllocChunk, Remove); leaf
//	bio_list                  the free list of requests (Submit, end of a bio); leaf
//	stripe_hash               the rows that are locked (Submit, end of a row's write); leaf
//
// Invariants:
//   - The map is never changed in place: readers load a pointer and see one state of it.
//   - Chunks ascend by logical address and overlap neither there nor on a device.
//   - The list of devices is complete after Settle and does not change any more.
//
// Models fs/btrfs/volumes.c, bio.c and raid56.c.
package volumes

import (
	"fmt"
	"sort"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

var (
	mapClass = lockdep.NewClass("chunk_map")
	bioClass = lockdep.NewClass("bio_list")
)

// ChunkInfo is a chunk with the logical address of its first byte.
type ChunkInfo struct {
	Logical uint64
	Chunk   format.Chunk

	// Of a chunk in the map.
	profile *format.Profile
	striped bool      // profile.Striped()
	devs    []*Device // of each stripe
	stripes *stripeTable
}

// End is the first logical address after the chunk.
func (c *ChunkInfo) End() uint64 { return c.Logical + c.Chunk.Length }

// DeviceBytes is the physical bytes that the chunk takes of each of n devices, in the order of
// Volumes.Devices.
func (c *ChunkInfo) DeviceBytes(n int) []uint64 {
	list := make([]uint64, n)
	for _, d := range c.devs {
		list[d.index] += c.Chunk.StripeBytes()
	}
	return list
}

// locate finds the piece of the chunk that begins delta bytes after its start. One of a chunk that
// is not cut has no end: mapping has compared the range with the chunk's.
func (c *ChunkInfo) locate(delta uint64) format.Piece {
	if !c.striped {
		return format.Piece{Copies: len(c.devs), Off: delta, Len: ^uint64(0)}
	}
	return c.profile.Locate(len(c.devs), c.Chunk.Length, delta)
}

// chunkMap is one state of the map; it does not change.
type chunkMap struct {
	chunks    []ChunkInfo // ascending
	used      []uint64    // physical bytes in chunks, of each device
	freeBytes uint64      // physical bytes that chunks could still take
	incompat  uint64      // features of the profiles
}

func (m *chunkMap) find(logical uint64) *ChunkInfo {
	lo, hi := 0, len(m.chunks)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m.chunks[mid].End() <= logical {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(m.chunks) || m.chunks[lo].Logical > logical {
		return nil
	}
	return &m.chunks[lo]
}

// Volumes is the devices of a file system and its chunk map.
type Volumes struct {
	devices    []*Device
	degraded   bool // devices may be missing
	sectorSize uint64

	// LostCopy, if set, is told of a spare superblock that could not be written: the primary one is
	// on the device, and the commit succeeds. It is called in the commit and must not sleep.
	LostCopy func(err error)

	m  atomic.Pointer[chunkMap]
	mu lock.Mutex // class chunk_map: one change of m at a time

	freeMu lock.Mutex // class bio_list; protects free
	free   *request

	stripes stripeTable
}

// Open makes the map from the system chunks in the newest superblock of the members. The rest comes
// from the chunk tree, by AddDevice and Add; Settle ends it. With degraded a device may be missing:
// nothing may be written then. Errors name the device that is wrong.
func Open(members []Member, degraded bool) (*Volumes, error) {
	sb := Newest(members)
	dev := members[0].Dev
	v := &Volumes{degraded: degraded, sectorSize: uint64(sb.SectorSize)}
	v.mu.Init(mapClass)
	v.freeMu.Init(bioClass)
	v.stripes.init()
	v.m.Store(&chunkMap{})
	if v.sectorSize == 0 || v.sectorSize&(v.sectorSize-1) != 0 {
		return nil, blockdev.Errorf(dev, "corrupt superblock: bad sectorsize, have %d want a power of two", sb.SectorSize)
	}
	if err := v.join(members, sb); err != nil {
		return nil, err
	}
	v.publish(nil)
	for a := sb.SysChunkArray; len(a) > 0; {
		if len(a) < format.KeySize+format.ChunkSize(1) {
			return nil, blockdev.Errorf(dev, "corrupt superblock: bad sys_chunk_array, %d bytes left over", len(a))
		}
		key := format.DecodeKey(a)
		a = a[format.KeySize:]
		n := format.ChunkStripes(a)
		if key.Type != format.CHUNK_ITEM_KEY || n < 1 || len(a) < format.ChunkSize(n) {
			return nil, blockdev.Errorf(dev, "corrupt superblock: bad sys_chunk_array, key %v with %d stripes in %d bytes", key, n, len(a))
		}
		var c format.Chunk
		c.Decode(a)
		a = a[c.Size():]
		if c.Type&format.BlockGroupSystem == 0 {
			return nil, blockdev.Errorf(dev, "corrupt superblock: bad sys_chunk_array, chunk %d has type %#x want system", key.Offset, c.Type)
		}
		if err := v.Add(key.Offset, c); err != nil {
			return nil, blockdev.Errorf(dev, "%w", err)
		}
	}
	return v, nil
}

// Add puts a chunk of the chunk tree into the map. A chunk that is there already, equal, is fine.
// Add is for the time before the file system is in use by other tasks.
func (v *Volumes) Add(logical uint64, k format.Chunk) error {
	c := ChunkInfo{Logical: logical, Chunk: k}
	if err := v.check(&c); err != nil {
		return err
	}
	m := v.m.Load()
	for i := range m.chunks {
		o := &m.chunks[i]
		if o.Logical == c.Logical && equalMapping(&o.Chunk, &c.Chunk) {
			return nil
		}
		if o.Logical < c.End() && c.Logical < o.End() {
			return fmt.Errorf("corrupt chunk: logical=%d, overlap, have end %d want at most %d or start %d", o.Logical, o.End(), c.Logical, c.End())
		}
		for n, b := range c.Chunk.Stripes {
			if a, ok := o.over(c.devs[n], b.Offset, c.Chunk.StripeBytes()); ok {
				return fmt.Errorf("corrupt chunk: logical=%d, stripe at %d overlaps stripe at %d of chunk %d", c.Logical, b.Offset, a, o.Logical)
			}
		}
	}
	v.store(m, c)
	return nil
}

// over finds a stripe of the chunk that has bytes of [off, off+n) of d.
func (c *ChunkInfo) over(d *Device, off, n uint64) (at uint64, ok bool) {
	for i, s := range c.Chunk.Stripes {
		if c.devs[i] == d && s.Offset < off+n && off < s.Offset+c.Chunk.StripeBytes() {
			return s.Offset, true
		}
	}
	return 0, false
}

// equalMapping leaves out the fields that mkfs writes into the superblock's copy and nobody reads.
func equalMapping(a, b *format.Chunk) bool {
	if a.Length != b.Length || a.Type != b.Type || len(a.Stripes) != len(b.Stripes) {
		return false
	}
	for i := range a.Stripes {
		if a.Stripes[i] != b.Stripes[i] {
			return false
		}
	}
	return true
}

// check checks one chunk by itself, and finds its devices.
//
// Models fs/btrfs/tree-checker.c:btrfs_check_chunk_valid().
func (v *Volumes) check(c *ChunkInfo) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("corrupt chunk: logical=%d, %s", c.Logical, fmt.Sprintf(format, a...))
	}
	k := &c.Chunk
	p := format.ProfileOf(k.Type)
	switch {
	case p == nil:
		return bad("bad profile, have type %#x want one profile", k.Type)
	case k.Type&format.BlockGroupTypeMask == 0:
		return bad("bad type, have %#x", k.Type)
	case k.Type&^uint64(format.BlockGroupTypeMask|format.BlockGroupProfileMask) != 0:
		return bad("unknown type bits, have %#x", k.Type)
	case p.StripesWanted(len(k.Stripes)) != "":
		return bad("bad stripe count, have %d want %s", len(k.Stripes), p.StripesWanted(len(k.Stripes)))
	case k.StripeLen != format.StripeLen:
		return bad("bad stripe length, have %d want %d", k.StripeLen, format.StripeLen)
	case k.Length == 0 || k.Length%v.sectorSize != 0:
		return bad("bad length, have %d want a multiple of %d", k.Length, v.sectorSize)
	case p.Striped() && k.Length%(uint64(p.DataStripes(len(k.Stripes)))*format.StripeLen) != 0:
		return bad("bad length, have %d want a multiple of %d units of %d", k.Length, p.DataStripes(len(k.Stripes)), format.StripeLen)
	case c.Logical%v.sectorSize != 0:
		return bad("bad start, want a multiple of %d", v.sectorSize)
	case c.Logical+k.Length < c.Logical:
		return bad("bad length, have %d which wraps", k.Length)
	}
	v.bind(c)
	n := k.StripeBytes()
	for i, s := range k.Stripes {
		d := c.devs[i]
		if d == nil {
			return bad("stripe %d on another device, have devid %d %v", i, s.Devid, s.DevUUID)
		}
		if total := d.item.TotalBytes; s.Offset%v.sectorSize != 0 || s.Offset > total || n > total-s.Offset {
			return bad("stripe %d out of device, have %d+%d want at most %d", i, s.Offset, n, total)
		}
		for j, o := range k.Stripes[:i] {
			if c.devs[j] == d && o.Offset < s.Offset+n && s.Offset < o.Offset+n {
				return bad("stripes overlap, have %d and %d", o.Offset, s.Offset)
			}
		}
	}
	return nil
}

// bind fills the fields that a chunk has in the map; a device that is not known is nil.
func (v *Volumes) bind(c *ChunkInfo) {
	c.profile = format.ProfileOf(c.Chunk.Type)
	c.striped = c.profile.Striped()
	c.stripes = &v.stripes
	c.devs = make([]*Device, len(c.Chunk.Stripes))
	for i, s := range c.Chunk.Stripes {
		c.devs[i] = v.device(s.Devid, s.DevUUID)
	}
}

// store publishes m with c added.
func (v *Volumes) store(m *chunkMap, c ChunkInfo) {
	i := sort.Search(len(m.chunks), func(i int) bool { return m.chunks[i].Logical > c.Logical })
	chunks := make([]ChunkInfo, 0, len(m.chunks)+1)
	chunks = append(chunks, m.chunks[:i]...)
	chunks = append(chunks, c)
	chunks = append(chunks, m.chunks[i:]...)
	v.publish(chunks)
}

func (v *Volumes) publish(chunks []ChunkInfo) {
	m := &chunkMap{chunks: chunks, used: make([]uint64, len(v.devices))}
	for i := range chunks {
		m.incompat |= chunks[i].profile.Incompat()
		n := chunks[i].Chunk.StripeBytes()
		for _, d := range chunks[i].devs {
			m.used[d.index] += n
		}
	}
	for _, d := range v.devices {
		m.freeBytes += d.freeIn(chunks)
	}
	v.m.Store(m)
}

// Remove takes a chunk that AllocChunk made out of the map again: its items could not be inserted.
func (v *Volumes) Remove(t *sched.Task, logical uint64) {
	v.mu.Lock(t)
	defer v.mu.Unlock(t)
	m := v.m.Load()
	chunks := make([]ChunkInfo, 0, len(m.chunks))
	for _, c := range m.chunks {
		if c.Logical != logical {
			chunks = append(chunks, c)
		}
	}
	if len(chunks) == len(m.chunks) {
		panic(fmt.Sprintf("volumes: remove of unknown chunk %d", logical))
	}
	v.publish(chunks)
}

// Chunks lists the chunks, ascending. The caller must not change the slice.
func (v *Volumes) Chunks() []ChunkInfo { return v.m.Load().chunks }

// Profiles is the profiles of the chunks of a type (format.BlockGroupData, ...), as flags.
func (v *Volumes) Profiles(typ uint64) (flags uint64) {
	for _, c := range v.Chunks() {
		if c.Chunk.Type&typ != 0 {
			flags |= c.Chunk.Type & format.BlockGroupProfileMask
		}
	}
	return flags
}

// Incompat is the features of the superblock that the profiles of the chunks ask for, of
// format.ProfileIncompat.
func (v *Volumes) Incompat() uint64 { return v.m.Load().incompat }

// Lookup finds the chunk that holds the logical address.
func (v *Volumes) Lookup(logical uint64) (ChunkInfo, bool) {
	c := v.m.Load().find(logical)
	if c == nil {
		return ChunkInfo{}, false
	}
	return *c, true
}

// Mirrors is the number of ways to read the byte at logical (format.Profile.Mirrors); 0 when no
// chunk has it.
func (v *Volumes) Mirrors(logical uint64) int {
	c := v.m.Load().find(logical)
	if c == nil {
		return 0
	}
	return c.profile.Mirrors(len(c.devs))
}

// Single finds where the byte at logical lies if no other copy of it is anywhere: the device, the
// offset on it, and how many bytes lie there in one piece.
func (v *Volumes) Single(logical uint64) (d *Device, off int64, n uint64, ok bool) {
	c := v.m.Load().find(logical)
	if c == nil || c.profile.Mirrors(len(c.devs)) != 1 {
		return nil, 0, 0, false
	}
	at := c.locate(logical - c.Logical)
	return c.devs[at.First], c.offset(at, 0), at.Len, true
}

// ChunkEnd is the end of the chunk that holds logical, or logical itself when no chunk has it: a
// bio that starts at logical must end there.
func (v *Volumes) ChunkEnd(logical uint64) uint64 {
	c := v.m.Load().find(logical)
	if c == nil {
		return logical
	}
	return c.End()
}

// mapping finds the chunk that has all of [logical, logical+n).
func (v *Volumes) mapping(logical, n uint64) (*ChunkInfo, error) {
	c := v.m.Load().find(logical)
	if c == nil {
		return nil, fmt.Errorf("no chunk: %w", errno.EIO)
	}
	if n > c.End()-logical {
		return nil, fmt.Errorf("crosses the end of its chunk at %d: %w", c.End(), errno.EIO)
	}
	return c, nil
}

// BytesUsed is the physical bytes in chunks of each device, in the order of Devices.
func (v *Volumes) BytesUsed() []uint64 { return v.m.Load().used }

// FreeDeviceBytes is the physical bytes that new chunks could take.
func (v *Volumes) FreeDeviceBytes() uint64 { return v.m.Load().freeBytes }

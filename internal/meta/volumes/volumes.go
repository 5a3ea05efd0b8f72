// Package volumes maps logical addresses to the device: the chunk map, the mirrors of a chunk, the
// superblock copies, and the making of new chunks out of unallocated device space.
//
// One device; profiles single and DUP. Everything else is refused when its chunk is added, so the
// paths above never meet it.
//
// Lock order:
//
//	chunk_map                 the map is changed (Add, AllocChunk, Remove); leaf
//	bio_list                  the free list of requests (Submit, end of a bio); leaf
//
// Invariants:
//   - The map is never changed in place: readers load a pointer and see one state of it.
//   - Chunks ascend by logical address and overlap neither there nor on the device.
//
// Models fs/btrfs/volumes.c for one device.
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
}

// End is the first logical address after the chunk.
func (c *ChunkInfo) End() uint64 { return c.Logical + c.Chunk.Length }

// chunkMap is one state of the map; it does not change.
type chunkMap struct {
	chunks    []ChunkInfo // ascending
	used      uint64      // physical bytes in chunks
	freeBytes uint64      // physical bytes that chunks could still take
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

// Volumes is the one device of a file system and its chunk map.
type Volumes struct {
	dev        blockdev.Device
	devid      uint64
	devUUID    format.UUID
	total      uint64 // bytes of the device that the file system owns
	sectorSize uint64

	m  atomic.Pointer[chunkMap]
	mu lock.Mutex // class chunk_map: one change of m at a time

	freeMu lock.Mutex // class bio_list; protects free
	free   *request
}

// Open makes the map from the superblock's array of system chunks. The rest comes from the chunk
// tree, by Add.
func Open(dev blockdev.Device, sb *format.Super) (*Volumes, error) {
	v := &Volumes{
		dev: dev, devid: sb.DevItem.Devid, devUUID: sb.DevItem.UUID,
		total: sb.DevItem.TotalBytes, sectorSize: uint64(sb.SectorSize),
	}
	v.mu.Init(mapClass)
	v.freeMu.Init(bioClass)
	v.m.Store(&chunkMap{})
	if sb.NumDevices != 1 {
		return nil, fmt.Errorf("%s: file system has %d devices, only one is supported", dev.Name(), sb.NumDevices)
	}
	if v.sectorSize == 0 || v.sectorSize&(v.sectorSize-1) != 0 {
		return nil, fmt.Errorf("%s: corrupt superblock: bad sectorsize, have %d want a power of two", dev.Name(), sb.SectorSize)
	}
	if v.total > uint64(dev.Size()) {
		return nil, fmt.Errorf("%s: device is shorter than its file system, have %d bytes want %d", dev.Name(), dev.Size(), v.total)
	}
	v.m.Store(&chunkMap{freeBytes: v.freeIn(nil)})
	for a := sb.SysChunkArray; len(a) > 0; {
		if len(a) < format.KeySize+format.ChunkSize(1) {
			return nil, fmt.Errorf("%s: corrupt superblock: bad sys_chunk_array, %d bytes left over", dev.Name(), len(a))
		}
		key := format.DecodeKey(a)
		a = a[format.KeySize:]
		n := format.ChunkStripes(a)
		if key.Type != format.CHUNK_ITEM_KEY || n < 1 || len(a) < format.ChunkSize(n) {
			return nil, fmt.Errorf("%s: corrupt superblock: bad sys_chunk_array, key %v with %d stripes in %d bytes", dev.Name(), key, n, len(a))
		}
		var c format.Chunk
		c.Decode(a)
		a = a[c.Size():]
		if c.Type&format.BlockGroupSystem == 0 {
			return nil, fmt.Errorf("%s: corrupt superblock: bad sys_chunk_array, chunk %d has type %#x want system", dev.Name(), key.Offset, c.Type)
		}
		if err := v.add(ChunkInfo{key.Offset, c}); err != nil {
			return nil, fmt.Errorf("%s: %w", dev.Name(), err)
		}
	}
	return v, nil
}

// Device is the device under the map.
func (v *Volumes) Device() blockdev.Device { return v.dev }

// Devid is the device's number in this file system.
func (v *Volumes) Devid() uint64 { return v.devid }

// TotalBytes is the part of the device that belongs to the file system.
func (v *Volumes) TotalBytes() uint64 { return v.total }

// Add puts a chunk of the chunk tree into the map. A chunk that is there already, equal, is fine.
// Add is for the time before the file system is in use by other tasks.
func (v *Volumes) Add(logical uint64, c format.Chunk) error { return v.add(ChunkInfo{logical, c}) }

func (v *Volumes) add(c ChunkInfo) error {
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
		for _, a := range o.Chunk.Stripes {
			for _, b := range c.Chunk.Stripes {
				if a.Offset < b.Offset+c.Chunk.Length && b.Offset < a.Offset+o.Chunk.Length {
					return fmt.Errorf("corrupt chunk: logical=%d, stripe at %d overlaps stripe at %d of chunk %d", c.Logical, b.Offset, a.Offset, o.Logical)
				}
			}
		}
	}
	v.store(m, c)
	return nil
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

// check checks one chunk by itself.
//
// Models fs/btrfs/tree-checker.c:btrfs_check_chunk_valid().
func (v *Volumes) check(c *ChunkInfo) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("corrupt chunk: logical=%d, %s", c.Logical, fmt.Sprintf(format, a...))
	}
	k := &c.Chunk
	want := 1
	switch k.Type & format.BlockGroupProfileMask {
	case 0:
	case format.BlockGroupDup:
		want = 2
	default:
		return bad("unsupported profile, have type %#x want single or dup", k.Type)
	}
	switch {
	case k.Type&format.BlockGroupTypeMask == 0:
		return bad("bad type, have %#x", k.Type)
	case k.Type&^uint64(format.BlockGroupTypeMask|format.BlockGroupProfileMask) != 0:
		return bad("unknown type bits, have %#x", k.Type)
	case len(k.Stripes) != want:
		return bad("bad stripe count, have %d want %d", len(k.Stripes), want)
	case k.StripeLen != format.StripeLen:
		return bad("bad stripe length, have %d want %d", k.StripeLen, format.StripeLen)
	case k.Length == 0 || k.Length%v.sectorSize != 0:
		return bad("bad length, have %d want a multiple of %d", k.Length, v.sectorSize)
	case c.Logical%v.sectorSize != 0:
		return bad("bad start, want a multiple of %d", v.sectorSize)
	case c.Logical+k.Length < c.Logical:
		return bad("bad length, have %d which wraps", k.Length)
	}
	for i, s := range k.Stripes {
		if s.Devid != v.devid || s.DevUUID != v.devUUID {
			return bad("stripe %d on another device, have devid %d want %d", i, s.Devid, v.devid)
		}
		if s.Offset%v.sectorSize != 0 || s.Offset > v.total || k.Length > v.total-s.Offset {
			return bad("stripe %d out of device, have %d+%d want at most %d", i, s.Offset, k.Length, v.total)
		}
	}
	if want == 2 && k.Stripes[0].Offset < k.Stripes[1].Offset+k.Length && k.Stripes[1].Offset < k.Stripes[0].Offset+k.Length {
		return bad("stripes overlap, have %d and %d", k.Stripes[0].Offset, k.Stripes[1].Offset)
	}
	return nil
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
	m := &chunkMap{chunks: chunks, freeBytes: v.freeIn(chunks)}
	for i := range chunks {
		m.used += chunks[i].Chunk.Length * uint64(len(chunks[i].Chunk.Stripes))
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

// Lookup finds the chunk that holds the logical address.
func (v *Volumes) Lookup(logical uint64) (ChunkInfo, bool) {
	c := v.m.Load().find(logical)
	if c == nil {
		return ChunkInfo{}, false
	}
	return *c, true
}

// Mirrors is the number of copies of the byte at logical: 1 single, 2 DUP, 0 when no chunk has it.
func (v *Volumes) Mirrors(logical uint64) int {
	c := v.m.Load().find(logical)
	if c == nil {
		return 0
	}
	return len(c.Chunk.Stripes)
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

// BytesUsed is the physical bytes in chunks, as DEV_ITEM counts them.
func (v *Volumes) BytesUsed() uint64 { return v.m.Load().used }

// FreeDeviceBytes is the physical bytes that new chunks could take.
func (v *Volumes) FreeDeviceBytes() uint64 { return v.m.Load().freeBytes }

package volumes

import (
	"fmt"
	"sort"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// minChunk is the smallest chunk that AllocChunk makes when the device is nearly full, in bytes.
const minChunk = 1 << 20

// hole is free space of the device.
type hole = format.Range[format.Physical]

// holes lists the device ranges that a chunk may take: free, not below format.BlockReserved, starts
// aligned to format.StripeLen; ascending.
func (v *Volumes) holes(chunks []ChunkInfo) []hole {
	var used []hole
	for i := range chunks {
		for _, s := range chunks[i].Chunk.Stripes {
			used = append(used, format.RangeOf(format.Physical(s.Offset), chunks[i].Chunk.Length))
		}
	}
	sort.Slice(used, func(i, j int) bool { return used[i].Start < used[j].Start })
	var holes []hole
	pos := format.Physical(format.BlockReserved)
	upTo := func(end format.Physical) {
		if h := format.Between(format.AlignUp(pos, format.StripeLen), end); !h.Empty() {
			holes = append(holes, h)
		}
	}
	for _, u := range used {
		upTo(u.Start)
		pos = max(pos, u.End)
	}
	upTo(format.Physical(v.total))
	return holes
}

func (v *Volumes) freeIn(chunks []ChunkInfo) uint64 {
	var n uint64
	for _, h := range v.holes(chunks) {
		n += format.AlignDown(h.Len(), format.StripeLen)
	}
	return n
}

// AllocChunk makes a chunk of type and profile typ, size bytes of logical space, and adds it to the
// map; its items in the chunk, device and extent trees are the caller's. When the device has no
// hole of that size the chunk gets smaller, down to 1 MiB; then it is ENOSPC.
//
// Models fs/btrfs/volumes.c:btrfs_create_chunk(): logical addresses are never used twice, the new
// chunk starts where the last one ends.
func (v *Volumes) AllocChunk(t *sched.Task, typ uint64, size uint64) (ChunkInfo, error) {
	n := 1
	switch typ & format.BlockGroupProfileMask {
	case 0:
	case format.BlockGroupDup:
		n = 2
	default:
		panic(fmt.Sprintf("volumes: chunk of unsupported type %#x", typ))
	}
	v.mu.Lock(t)
	defer v.mu.Unlock(t)
	m := v.m.Load()
	holes := v.holes(m.chunks)
	size = min(format.AlignDown(size, format.StripeLen), largestStripe(holes, n))
	if size < minChunk {
		return ChunkInfo{}, errno.ENOSPC
	}
	c := ChunkInfo{Chunk: format.Chunk{
		Length: size, Owner: format.EXTENT_TREE_OBJECTID, StripeLen: format.StripeLen, Type: typ,
		IOAlign: format.StripeLen, IOWidth: format.StripeLen, SectorSize: uint32(v.sectorSize), SubStripes: 1,
	}}
	if k := len(m.chunks); k > 0 {
		c.Logical = format.AlignUp(m.chunks[k-1].End(), format.StripeLen)
	} else {
		c.Logical = format.BlockReserved
	}
	for _, h := range holes {
		for ; len(c.Chunk.Stripes) < n && h.Len() >= size; h.Start += format.Physical(size) {
			c.Chunk.Stripes = append(c.Chunk.Stripes, format.Stripe{Devid: v.devid, Offset: uint64(h.Start), DevUUID: v.devUUID})
		}
	}
	if len(c.Chunk.Stripes) != n {
		panic(fmt.Sprintf("volumes: %d stripes of %d bytes, want %d", len(c.Chunk.Stripes), size, n))
	}
	v.store(m, c)
	return c, nil
}

// largestStripe is the largest size, a multiple of format.StripeLen, of which n (1 or 2) stripes
// fit the holes: both in the largest one, or the second in the second largest.
func largestStripe(holes []hole, n int) uint64 {
	var first, second uint64
	for _, h := range holes {
		if n := h.Len(); n > first {
			first, second = n, first
		} else {
			second = max(second, n)
		}
	}
	if n == 2 {
		first = max(first/2, second)
	}
	return format.AlignDown(first, format.StripeLen)
}

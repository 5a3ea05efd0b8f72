package volumes

import (
	"fmt"
	"sort"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// maxStripe is the longest stripe that AllocChunk makes, in bytes.
const maxStripe = 1 << 30

// minChunk is the smallest chunk that AllocChunk makes when the devices are nearly full, in bytes.
const minChunk = 1 << 20

// hole is free space of the device.
type hole = format.Range[format.Physical]

// holes lists the ranges of the device that a chunk may take: free, not below format.BlockReserved,
// starts aligned to format.StripeLen; ascending.
func (d *Device) holes(chunks []ChunkInfo) []hole {
	if d.missing || d.retired {
		return nil
	}
	var used []hole
	for i := range chunks {
		for n, s := range chunks[i].Chunk.Stripes {
			if chunks[i].devs[n] == d {
				used = append(used, format.RangeOf(format.Physical(s.Offset), chunks[i].Chunk.StripeBytes()))
			}
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
	upTo(format.Physical(d.item.TotalBytes))
	return holes
}

func (d *Device) freeIn(chunks []ChunkInfo) uint64 { return freeOf(d.holes(chunks)) }

func freeOf(holes []hole) (n uint64) {
	for _, h := range holes {
		n += format.AlignDown(h.Len(), format.StripeLen)
	}
	return n
}

// room is what a device has for the stripes of a new chunk. Models struct btrfs_device_info.
type room struct {
	d     *Device
	holes []hole
	most  uint64 // the longest that each of its stripes can be
	free  uint64
}

// rooms lists what each device has, the device with most room first: by the stripe that fits, then
// by all its free space.
//
// Models gather_device_info() and btrfs_cmp_device_info().
func (v *Volumes) rooms(chunks []ChunkInfo, p *format.Profile) []room {
	var list []room
	for _, d := range v.devices {
		r := room{d: d, holes: d.holes(chunks)}
		r.most, r.free = min(largestStripe(r.holes, p.DevStripes), maxStripe), freeOf(r.holes)
		if r.most > 0 {
			list = append(list, r)
		}
	}
	sort.SliceStable(list, func(i, j int) bool {
		if list[i].most != list[j].most {
			return list[i].most > list[j].most
		}
		return list[i].free > list[j].free
	})
	return list
}

// MaxChunk is the length of the longest chunk of a profile, given as flags, that has the longest
// stripes on all devices.
func (v *Volumes) MaxChunk(flags uint64) uint64 {
	p := format.ProfileOf(flags)
	n := len(v.devices) - len(v.devices)%p.Increment
	if p.DevsMax > 0 {
		n = p.DevsMax
	}
	return uint64(p.DataStripes(n*p.DevStripes)) * maxStripe
}

// AllocChunk makes a chunk of type and profile typ, size bytes of logical space, on the devices
// with most room, and adds it to the map; its items in the chunk, device and extent trees are the
// caller's. It has as many stripes as the profile allows, and as long ones as the last device has
// room for, so it may get smaller than size, down to 1 MiB; then it is ENOSPC.
//
// Models fs/btrfs/volumes.c:btrfs_create_chunk() and decide_stripe_size_regular(): logical
// addresses are never used twice, the new chunk starts where the last one ends. Differences: no
// stripe is rounded up to 16 MiB; DUP takes two holes if they have more room than the largest.
func (v *Volumes) AllocChunk(t *sched.Task, typ uint64, size uint64) (ChunkInfo, error) {
	p := format.ProfileOf(typ)
	if p == nil {
		panic(fmt.Sprintf("volumes: chunk of unsupported type %#x", typ))
	}
	v.mu.Lock(t)
	defer v.mu.Unlock(t)
	m := v.m.Load()
	rooms := v.rooms(m.chunks, p)
	n := len(rooms) - len(rooms)%p.Increment
	if p.DevsMax > 0 {
		n = min(n, p.DevsMax)
	}
	if n < p.DevsMin {
		return ChunkInfo{}, errno.ENOSPC
	}
	rooms = rooms[:n]
	data := uint64(p.DataStripes(n * p.DevStripes))
	stripe := min(format.AlignDown(size/data, format.StripeLen), rooms[n-1].most)
	if stripe*data < minChunk {
		return ChunkInfo{}, errno.ENOSPC
	}
	c := ChunkInfo{Chunk: format.Chunk{
		Length: stripe * data, Owner: format.EXTENT_TREE_OBJECTID, StripeLen: format.StripeLen, Type: typ,
		IOAlign: format.StripeLen, IOWidth: format.StripeLen, SectorSize: uint32(v.sectorSize), SubStripes: uint16(p.SubStripes),
	}}
	if k := len(m.chunks); k > 0 {
		c.Logical = format.AlignUp(m.chunks[k-1].End(), format.StripeLen)
	} else {
		c.Logical = format.BlockReserved
	}
	for _, r := range rooms {
		c.Chunk.Stripes = append(c.Chunk.Stripes, r.stripes(p.DevStripes, stripe)...)
	}
	v.bind(&c)
	v.store(m, c)
	return c, nil
}

// stripes is n stripes of size bytes, in the first holes that have room.
func (r *room) stripes(n int, size uint64) (list []format.Stripe) {
	for _, h := range r.holes {
		for ; len(list) < n && h.Len() >= size; h.Start += format.Physical(size) {
			list = append(list, format.Stripe{Devid: r.d.item.Devid, Offset: uint64(h.Start), DevUUID: r.d.item.UUID})
		}
	}
	if len(list) != n {
		panic(fmt.Sprintf("volumes: %d stripes of %d bytes on device %d, want %d", len(list), size, r.d.item.Devid, n))
	}
	return list
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

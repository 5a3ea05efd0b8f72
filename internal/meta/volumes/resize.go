package volumes

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// A device gets another size. What lies beyond the new end is moved, stripe by stripe, into holes
// before it: logical addresses stay, so no tree block and no file extent changes. The kernel moves
// extents instead (relocate_block_group()), which also empties chunks that are partly free; here
// such a chunk is cut (Split), and its parts move.

// Move is a stripe of a chunk that has moved on its device.
type Move struct {
	Logical  uint64 // of the chunk
	Stripe   int
	From, To format.Stripe
}

// Beyond lists the stripes on d that end after size, the last one first.
func (v *Volumes) Beyond(d *Device, size uint64) (list []Move) {
	for _, c := range v.Chunks() {
		for i, s := range c.Chunk.Stripes {
			if c.devs[i] == d && s.Offset+c.Chunk.StripeBytes() > size {
				list = append(list, Move{Logical: c.Logical, Stripe: i, From: s})
			}
		}
	}
	slices.SortFunc(list, func(a, b Move) int { return cmp.Compare(b.From.Offset, a.From.Offset) })
	return list
}

// MoveStripe copies a stripe into the smallest hole before size that has room for it and no copy of
// the superblock, and changes the map; the items are the caller's. Until they are committed nothing
// may be written to the old place, which is what a crash leaves. ENOSPC when there is no such hole.
//
// Preconditions: nothing is dirty, and no other task uses the file system.
func (v *Volumes) MoveStripe(t *sched.Task, m *Move, size uint64) error {
	chunks := slices.Clone(v.Chunks())
	i := slices.IndexFunc(chunks, func(c ChunkInfo) bool { return c.Logical == m.Logical })
	c := chunks[i]
	d, n := c.devs[m.Stripe], c.Chunk.StripeBytes()
	var best hole
	for _, h := range d.holes(chunks) {
		h.End = min(h.End, format.Physical(size))
		for _, part := range clearOfSupers(h) {
			if part.Len() >= n && (best.Empty() || part.Len() < best.Len()) {
				best = part
			}
		}
	}
	if best.Empty() {
		return fmt.Errorf("no hole of %d bytes before %d for the chunk at %d: %w", n, size, m.Logical, errno.ENOSPC)
	}
	m.To = m.From
	m.To.Offset = uint64(best.Start)
	if err := copyDevice(t, d, m.From.Offset, m.To.Offset, n); err != nil {
		return err
	}
	c.Chunk.Stripes = slices.Clone(c.Chunk.Stripes)
	c.Chunk.Stripes[m.Stripe] = m.To
	chunks[i] = c
	v.mu.Lock(t)
	v.publish(chunks)
	v.mu.Unlock(t)
	return nil
}

// Split puts a chunk for each of the ranges in the place of the chunk at logical, whose every
// stripe has all its bytes; the items are the caller's.
//
// Preconditions: no other task uses the file system, and nothing refers to what lies outside the
// ranges, which are ascending.
func (v *Volumes) Split(t *sched.Task, logical uint64, ranges []format.Range[format.Logical]) {
	chunks := slices.Clone(v.Chunks())
	i := slices.IndexFunc(chunks, func(c ChunkInfo) bool { return c.Logical == logical })
	var parts []ChunkInfo
	for _, r := range ranges {
		c := chunks[i]
		c.Logical, c.Chunk.Length = uint64(r.Start), r.Len()
		c.Chunk.Stripes = slices.Clone(c.Chunk.Stripes)
		for k := range c.Chunk.Stripes {
			c.Chunk.Stripes[k].Offset += c.Logical - logical
		}
		parts = append(parts, c)
	}
	v.mu.Lock(t)
	v.publish(slices.Replace(chunks, i, i+1, parts...))
	v.mu.Unlock(t)
}

// clearOfSupers cuts the copies of the superblock out of a hole: what moves may have something
// where one lies.
func clearOfSupers(h hole) []hole {
	list := []hole{h}
	for i := range format.SuperMirrorMax {
		super := format.RangeOf(format.Physical(format.SuperMirror(i)), format.StripeLen)
		last := list[len(list)-1]
		if last.Intersect(super).Empty() {
			continue
		}
		list = append(list[:len(list)-1], format.Between(last.Start, super.Start), format.Between(super.End, last.End))
	}
	return slices.DeleteFunc(list, func(h hole) bool { return h.Start >= h.End })
}

// copyDevice copies n bytes on a device. Zeros are not written where zeros are, so a sparse file
// stays sparse.
func copyDevice(t *sched.Task, d *Device, from, to, n uint64) error {
	p, old := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := uint64(0); off < n; off += uint64(len(p)) {
		p, old = p[:min(uint64(len(p)), n-off)], old[:min(uint64(len(p)), n-off)]
		if err := blockdev.Read(t, d.Device, p, int64(from+off)); err != nil {
			return blockdev.Errorf(d, "read of %d bytes at %d: %w", len(p), from+off, err)
		}
		if err := blockdev.Read(t, d.Device, old, int64(to+off)); err != nil {
			return blockdev.Errorf(d, "read of %d bytes at %d: %w", len(p), to+off, err)
		}
		if bytes.Equal(p, old) {
			continue
		}
		if err := blockdev.Write(t, d.Device, p, int64(to+off)); err != nil {
			return blockdev.Errorf(d, "write of %d bytes at %d: %w", len(p), to+off, err)
		}
	}
	return nil
}

// WipeSupers zeroes the copies of the superblock that lie beyond the device's part of the file
// system.
func (d *Device) WipeSupers(t *sched.Task) error {
	for i := 1; i < format.SuperMirrorMax; i++ {
		off := format.SuperMirror(i)
		if off+format.SuperSize < d.item.TotalBytes || off+format.SuperSize > uint64(d.Size()) {
			continue
		}
		if err := blockdev.Write(t, d.Device, make([]byte, format.SuperSize), int64(off)); err != nil {
			return blockdev.Errorf(d, "write of %d bytes at %d: %w", format.SuperSize, off, err)
		}
	}
	return blockdev.Flush(t, d.Device)
}

// SetSize gives the device a size in bytes, a multiple of the sector size; the item is the
// caller's. Chunks may not lie beyond it.
func (v *Volumes) SetSize(t *sched.Task, d *Device, size uint64) {
	v.mu.Lock(t)
	defer v.mu.Unlock(t)
	d.item.TotalBytes = size
	v.publish(v.Chunks())
}

package dm

import (
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

var overlayClass = lockdep.NewClass("device_overlay")

// overlayBlock is the unit of an overlay in bytes.
const overlayBlock = 4096

// Overlay is a device over one that nobody writes. What is written stays in memory, in blocks of 4
// KiB, so that many overlays share a base without a copy of it. It has no device under it in the
// sense of Under: what another program writes to the base is not what was written here. Between the
// two may lie a layer that many overlays share as well.
type Overlay struct {
	base blockdev.Device
	// layer, if set, gives the bytes of a block that cover those of base, or nil.
	layer func(block int64) []byte

	mu     lock.Mutex // leaf; protects what follows
	blocks map[int64]coverBlock
	writes int
}

type coverBlock struct {
	data []byte
	own  bool // by this overlay alone: may be changed
}

// NewOverlay covers base, and the layer over it, with nothing yet. Layer may be nil; it is called
// with the number of a 4 KiB block and must always give the same.
func NewOverlay(base blockdev.Device, layer func(block int64) []byte) *Overlay {
	o := &Overlay{base: base, layer: layer, blocks: map[int64]coverBlock{}}
	o.mu.Init(overlayClass)
	return o
}

// Cover puts p over the bytes from off on, as a write would, without a bio. Whole blocks are not
// copied: p must not change any more.
func (o *Overlay) Cover(t *sched.Task, p []byte, off int64) error {
	for len(p) > 0 {
		in := int(off % overlayBlock)
		n := min(len(p), overlayBlock-in)
		if n == overlayBlock {
			o.mu.Lock(t)
			o.blocks[off/overlayBlock] = coverBlock{data: p[:n:n]}
			o.mu.Unlock(t)
		} else if err := o.write(t, p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// Writes is the number of writes that came by bio.
func (o *Overlay) Writes(t *sched.Task) int {
	o.mu.Lock(t)
	defer o.mu.Unlock(t)
	return o.writes
}

// Written lists the offsets of the blocks of 4 KiB that cover the base, in bytes, ascending.
func (o *Overlay) Written(t *sched.Task) (offs []int64) {
	o.mu.Lock(t)
	for b := range o.blocks {
		offs = append(offs, b*overlayBlock)
	}
	o.mu.Unlock(t)
	slices.Sort(offs)
	return offs
}

// Name is the base's.
func (o *Overlay) Name() string { return o.base.Name() }

// Size is in bytes.
func (o *Overlay) Size() int64 { return o.base.Size() }

// Close leaves the base open: it is not the overlay's.
func (o *Overlay) Close() error { return nil }

// Submit does b and ends it. A read waits for the base.
func (o *Overlay) Submit(t *sched.Task, b *blockdev.Bio) {
	t.Enter(sched.PointDevice, blockdev.WaitClass.ID, o)
	b.Err = o.do(t, b)
	b.EndIO(t, b)
}

func (o *Overlay) do(t *sched.Task, b *blockdev.Bio) error {
	if err := blockdev.CheckRange(o, b); err != nil {
		return err
	}
	off := b.Off
	for _, v := range b.Vecs {
		var err error
		switch b.Op {
		case blockdev.OpRead:
			err = o.read(t, v, off)
		case blockdev.OpWrite:
			err = o.write(t, v, off)
		}
		if err != nil {
			return err
		}
		off += int64(len(v))
	}
	if b.Op == blockdev.OpWrite {
		o.mu.Lock(t)
		o.writes++
		o.mu.Unlock(t)
	}
	return nil
}

// covering is the block that covers the base, or nil. Copied under the lock into p, from the byte
// in on.
func (o *Overlay) covering(t *sched.Task, block int64, p []byte, in int) bool {
	o.mu.Lock(t)
	c, ok := o.blocks[block]
	if ok {
		copy(p, c.data[in:])
	}
	o.mu.Unlock(t)
	if !ok && o.layer != nil {
		if l := o.layer(block); l != nil {
			copy(p, l[in:])
			ok = true
		}
	}
	return ok
}

func (o *Overlay) read(t *sched.Task, p []byte, off int64) error {
	miss := 0 // bytes before p[at] that the base has
	for at := 0; ; {
		n, ok := 0, true
		if at < len(p) {
			in := int((off + int64(at)) % overlayBlock)
			n = min(len(p)-at, overlayBlock-in)
			ok = o.covering(t, (off+int64(at))/overlayBlock, p[at:at+n], in)
		}
		if ok && miss > 0 {
			if err := blockdev.Read(t, o.base, p[at-miss:at], off+int64(at-miss)); err != nil {
				return err
			}
			miss = 0
		}
		if at == len(p) {
			return nil
		}
		if !ok {
			miss += n
		}
		at += n
	}
}

func (o *Overlay) write(t *sched.Task, p []byte, off int64) error {
	for len(p) > 0 {
		block, in := off/overlayBlock, int(off%overlayBlock)
		n := min(len(p), overlayBlock-in)
		o.mu.Lock(t)
		c, ok := o.blocks[block]
		if ok && c.own {
			copy(c.data[in:], p[:n])
		}
		o.mu.Unlock(t)
		if !ok || !c.own {
			b := make([]byte, overlayBlock)
			if n < overlayBlock {
				if err := o.read(t, b[:min(overlayBlock, int(o.Size()-block*overlayBlock))], block*overlayBlock); err != nil {
					return err
				}
			}
			copy(b[in:], p[:n])
			o.mu.Lock(t)
			o.blocks[block] = coverBlock{b, true}
			o.mu.Unlock(t)
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// NextData makes an Overlay Sparse as far as its base is.
func (o *Overlay) NextData(off int64) int64 {
	next := blockdev.NextData(o.base, off)
	if o.layer != nil || next == off {
		return off
	}
	t := sched.NewTask("overlay")
	for _, at := range o.Written(t) {
		if at+overlayBlock > off {
			return min(next, max(at, off))
		}
	}
	return next
}

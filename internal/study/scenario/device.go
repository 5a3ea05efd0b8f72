package scenario

import (
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/sched"
)

// overlay is a device over a memory device that nobody writes: what an execution writes is kept
// beside it in sectors, and forgotten by reset. It has a write cache that a power cut empties: only
// a flush makes durable what was written before it.
type overlay struct {
	base *blockdev.Memory
	m    map[int64]*[sector]byte
	// old are the sectors written since the last flush, as that flush left them; nil is the base's.
	old  map[int64]*[sector]byte
	free []*[sector]byte
	hold []*[sector]byte // all in m and old
	// later are the tasks whose writes are transferred by a task of their own each, some time after
	// Submit.
	later map[*sched.Task]bool
}

const sector = 4096

func newOverlay(base *blockdev.Memory) *overlay {
	return &overlay{base: base, m: map[int64]*[sector]byte{}, old: map[int64]*[sector]byte{}}
}

func (d *overlay) reset() {
	d.later = nil
	if len(d.hold) == 0 {
		return
	}
	clear(d.m)
	clear(d.old)
	d.free = append(d.free, d.hold...)
	d.hold = d.hold[:0]
}

// flatten is a base that has what was written so far.
func (d *overlay) flatten() *blockdev.Memory {
	if len(d.m) == 0 {
		return d.base
	}
	b := d.base.Snapshot()
	for at, s := range d.m {
		if err := blockdev.Write(quiet, b, s[:], at); err != nil {
			panic(err)
		}
	}
	return b
}

// crashed is the device as a power cut right now leaves it: what no flush has covered is gone. It
// is good until d is reset: the sectors are d's, which writes to none of them again.
func (d *overlay) crashed() *overlay {
	c := newOverlay(d.base)
	for at, s := range d.m {
		if old, lost := d.old[at]; lost {
			s = old
		}
		if s != nil {
			c.m[at] = s
		}
	}
	return c
}

// clone is a device of its own with the same bytes.
func (d *overlay) clone() *overlay {
	c := newOverlay(d.base)
	for at, s := range d.m {
		b := *s
		c.m[at] = &b
	}
	return c
}

// equal reports whether the devices, which have one base, have been written alike.
func (d *overlay) equal(other *overlay) bool {
	if len(d.m) != len(other.m) {
		return false
	}
	for at, s := range d.m {
		if o := other.m[at]; o == nil || o != s && *o != *s {
			return false
		}
	}
	return true
}

// flush makes durable what was written. A transfer is one step, so every write that has begun has
// ended.
func (d *overlay) flush() { clear(d.old) }

func (d *overlay) Name() string { return "memory" }
func (d *overlay) Size() int64  { return d.base.Size() }
func (d *overlay) Close() error { return nil }

// defers lets t's writes be transferred later, or not any more.
func (d *overlay) defers(t *sched.Task, yes bool) {
	if d.later == nil {
		d.later = map[*sched.Task]bool{}
	}
	d.later[t] = yes
}

// Submit does b and ends it, now or by another task. Models what a disk does: the transfer is one
// step.
func (d *overlay) Submit(t *sched.Task, b *blockdev.Bio) {
	if b.Op == blockdev.OpWrite && d.later[t] {
		t.Go("disk", func(t *sched.Task) { d.transfer(t, b) })
		return
	}
	d.transfer(t, b)
}

func (d *overlay) transfer(t *sched.Task, b *blockdev.Bio) {
	t.Enter(sched.PointDevice, blockdev.WaitClass.ID, d)
	if b.Err = blockdev.CheckRange(d, b); b.Err == nil {
		off := b.Off
		for _, v := range b.Vecs {
			switch b.Op {
			case blockdev.OpRead:
				d.read(v, off)
			case blockdev.OpWrite:
				d.write(v, off)
			}
			off += int64(len(v))
		}
		if b.Op == blockdev.OpFlush {
			d.flush()
		}
	}
	b.EndIO(t, b)
}

func (d *overlay) read(p []byte, off int64) {
	for len(p) > 0 {
		at := off &^ (sector - 1)
		n := min(len(p), int(at+sector-off))
		if s := d.m[at]; s != nil {
			copy(p[:n], s[off-at:])
		} else {
			d.under(p[:n], off)
		}
		p, off = p[n:], off+int64(n)
	}
}

// under reads from the base, whose transfers are no scheduling point here.
func (d *overlay) under(p []byte, off int64) {
	if err := blockdev.Read(quiet, d.base, p, off); err != nil {
		panic(err)
	}
}

var quiet = sched.NewTask("overlay")

func (d *overlay) write(p []byte, off int64) {
	for len(p) > 0 {
		at := off &^ (sector - 1)
		n := min(len(p), int(at+sector-off))
		s := d.m[at]
		if _, again := d.old[at]; !again {
			// The first write since the flush goes to a sector of its own.
			d.old[at] = s
			was := s
			s = d.sector()
			switch {
			case was != nil:
				*s = *was
			case n < sector:
				d.under(s[:], at)
			}
			d.m[at] = s
		}
		copy(s[off-at:], p[:n])
		p, off = p[n:], off+int64(n)
	}
}

// sector is a sector of memory with any content.
func (d *overlay) sector() (s *[sector]byte) {
	if k := len(d.free); k > 0 {
		s, d.free = d.free[k-1], d.free[:k-1]
	} else {
		s = new([sector]byte)
	}
	d.hold = append(d.hold, s)
	return s
}

// disks are the devices of a file system, in the order of their numbers.
type disks []*overlay

// over are disks over what nobody writes.
func over(base []*blockdev.Memory) (l disks) {
	for _, b := range base {
		l = append(l, newOverlay(b))
	}
	return l
}

// devices are the disks but for those whose bits are set in lost: bit 0 is the first.
func (l disks) devices(lost uint) (devs []blockdev.Device) {
	for i, d := range l {
		if lost>>i&1 == 0 {
			devs = append(devs, d)
		}
	}
	return devs
}

func (l disks) reset() {
	for _, d := range l {
		d.reset()
	}
}

// settle makes what was written so far the base of each.
func (l disks) settle() {
	for _, d := range l {
		d.base = d.flatten()
	}
}

func (l disks) defers(t *sched.Task, yes bool) {
	for _, d := range l {
		d.defers(t, yes)
	}
}

// each makes other disks, one of each.
func (l disks) each(f func(*overlay) *overlay) disks {
	n := make(disks, len(l))
	for i, d := range l {
		n[i] = f(d)
	}
	return n
}

func (l disks) equal(other disks) bool {
	return slices.EqualFunc(l, other, (*overlay).equal)
}

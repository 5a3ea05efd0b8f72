package volumes

import (
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Flush makes every completed write durable, on every device.
func (v *Volumes) Flush(t *sched.Task) error {
	for _, d := range v.devices {
		if d.missing {
			continue
		}
		if t.Tracing() {
			tracedBio(t, blockdev.OpFlush, 0)
		}
		if err := blockdev.Flush(t, d.Device); err != nil {
			return fmt.Errorf("flush %s: %w", d.Name(), err)
		}
	}
	return nil
}

// WriteSupers makes sb the state of the file system: all that was written before becomes durable,
// then the first n copies that are in range are written on every device, each with the device's own
// item, the primaries first, and made durable. n is format.SuperMirrorMax for a commit; 1, the
// primary only, is enough for what a mount of the primary must find at once.
//
// An error is of a primary, or of a flush. It leaves no copy that is newer than the primaries; of
// several devices those before the one that failed may have the new state, and the newest counts.
//
// Models fs/btrfs/disk-io.c:write_all_supers(): a copy that cannot be written is no error, since
// only the primary makes the state. Difference: a primary that cannot be written is one, also when
// other devices have theirs.
func (v *Volumes) WriteSupers(t *sched.Task, sb *format.Super, n int) error {
	if err := v.Flush(t); err != nil {
		return err
	}
	return v.PutSupers(t, sb, n)
}

// PutSupers is WriteSupers without the flush before: the superblock may become durable before what
// it names.
func (v *Volumes) PutSupers(t *sched.Task, sb *format.Super, n int) error {
	b := make([]byte, format.SuperSize)
	for i := range n {
		for _, d := range v.devices {
			if d.missing {
				continue
			}
			err := d.putSuper(t, sb, i, b)
			if err == nil {
				continue
			}
			err = fmt.Errorf("write superblock copy %d of %s: %w", i, d.Name(), err)
			if i == 0 {
				return err
			}
			if v.LostCopy != nil {
				v.LostCopy(err)
			}
		}
	}
	return v.Flush(t)
}

// Introduce writes sb, the superblock of the last commit, to dev, which is about to be d: from here
// on it can be opened as that. All is durable then.
func (d *Device) Introduce(t *sched.Task, dev blockdev.Device, sb *format.Super) error {
	as := &Device{Device: dev, item: d.item}
	as.used.Store(d.used.Load())
	b := make([]byte, format.SuperSize)
	for i := range format.SuperMirrorMax {
		if err := as.putSuper(t, sb, i, b); err != nil {
			return blockdev.Errorf(dev, "write superblock copy %d: %w", i, err)
		}
	}
	return blockdev.Flush(t, dev)
}

// putSuper writes copy i of the superblock, if the device has room for it. b is memory for it.
func (d *Device) putSuper(t *sched.Task, sb *format.Super, i int, b []byte) error {
	off := format.SuperMirror(i)
	if i > 0 && off+format.SuperSize >= d.item.TotalBytes {
		return nil
	}
	s := *sb
	s.DevItem, s.Bytenr = d.Item(), off
	s.Encode(b)
	if t.Tracing() {
		tracedBio(t, blockdev.OpWrite, len(b))
	}
	return blockdev.Write(t, d.Device, b, int64(off))
}

// SuperLogical lists the logical ranges of c that lie on a superblock copy: the 64 KiB at each
// copy, in every stripe, and of a profile with parity the whole row. They are never allocated.
// Ascending, not overlapping.
//
// Models fs/btrfs/block-group.c:exclude_super_stripes() and btrfs_rmap_block().
func (v *Volumes) SuperLogical(c ChunkInfo) []format.Range[format.Logical] {
	var out []format.Range[format.Logical]
	for i := range format.SuperMirrorMax {
		super := format.RangeOf(format.Physical(format.SuperMirror(i)), format.StripeLen)
		for n, s := range c.Chunk.Stripes {
			stripe := format.RangeOf(format.Physical(s.Offset), c.Chunk.StripeBytes())
			if both := super.Intersect(stripe); !both.Empty() {
				for _, r := range c.Chunk.Covers(n, format.RangeOf(uint64(both.Start-stripe.Start), both.Len())) {
					out = append(out, format.RangeOf(format.Logical(c.Logical+r.Start), r.Len()))
				}
			}
		}
	}
	return format.Merge(out)
}

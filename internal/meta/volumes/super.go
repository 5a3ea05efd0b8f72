package volumes

import (
	"fmt"
	"sort"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Flush makes every completed write durable.
func (v *Volumes) Flush(t *sched.Task) error {
	if t.Tracing() {
		tracedBio(t, blockdev.OpFlush, 0)
	}
	if err := blockdev.Flush(t, v.dev); err != nil {
		return fmt.Errorf("flush %s: %w", v.dev.Name(), err)
	}
	return nil
}

// WriteSupers makes sb the state of the file system: all that was written before becomes durable,
// then the first n copies that are in range are written, the primary last, and made durable. n is
// format.SuperMirrorMax for a commit; 1, the primary only, is enough for what a mount of the
// primary must find at once.
//
// Models fs/btrfs/disk-io.c:write_all_supers(). Difference: the primary comes last, so that a crash
// among the copies leaves the old state.
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
	sb.Encode(b)
	for i := n - 1; i >= 0; i-- {
		off := format.SuperMirror(i)
		if i > 0 && off+format.SuperSize >= v.total {
			continue
		}
		format.SetBytenr(b, off)
		if t.Tracing() {
			tracedBio(t, blockdev.OpWrite, len(b))
		}
		if err := blockdev.Write(t, v.dev, b, int64(off)); err != nil {
			return fmt.Errorf("write superblock copy %d of %s: %w", i, v.dev.Name(), err)
		}
	}
	return v.Flush(t)
}

// SuperLogical lists the logical ranges of c that lie on a superblock copy: the 64 KiB at each
// copy, in every stripe. They are never allocated. Ascending, not overlapping.
//
// Models fs/btrfs/block-group.c:exclude_super_stripes().
func (v *Volumes) SuperLogical(c ChunkInfo) []format.Range[format.Logical] {
	var out []format.Range[format.Logical]
	for i := range format.SuperMirrorMax {
		super := format.RangeOf(format.Physical(format.SuperMirror(i)), format.StripeLen)
		for _, s := range c.Chunk.Stripes {
			stripe := format.RangeOf(format.Physical(s.Offset), c.Chunk.Length)
			if both := super.Intersect(stripe); !both.Empty() {
				in := uint64(both.Start - stripe.Start)
				out = append(out, format.RangeOf(format.Logical(c.Logical+in), both.Len()))
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Start < out[j].Start })
	merged := out[:0]
	for _, r := range out {
		if k := len(merged) - 1; k >= 0 && r.Start <= merged[k].End {
			merged[k].End = max(merged[k].End, r.End)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

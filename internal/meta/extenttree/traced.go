package extenttree

import (
	"cmp"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// Traced is an extent of subvolumes whose references the transaction has changed, for quota groups.
// Models struct btrfs_qgroup_extent_record.
type Traced struct {
	Bytenr format.Logical
	Bytes  uint64
	Fresh  bool // no extent item had it in the last commit
}

// SetTracing begins or ends the notes for TakeTraced.
func (e *ExtentTree) SetTracing(on bool) { e.tracing.Store(on) }

// trace notes a head that is about to be run. The committer calls it.
func (e *ExtentTree) trace(t *sched.Task, h *head) {
	if !h.data && !slices.ContainsFunc(h.mods, func(m refMod) bool { return m.parent != 0 || format.IsFSTree(m.Root) }) {
		return // no subvolume's
	}
	e.refsMu.Lock(t)
	e.traceLocked(t, Traced{h.bytenr, h.num, h.mustInsert})
	e.refsMu.Unlock(t)
}

// traceLocked notes x. The first note of an extent in a transaction says whether it is new.
func (e *ExtentTree) traceLocked(t *sched.Task, x Traced) {
	e.refsMu.AssertHeld(t)
	if _, ok := e.traced[x.Bytenr]; !ok {
		e.traced[x.Bytenr] = x
	}
}

// TakeTraced hands over, in order of address, what was noted since the last call. Of tree blocks
// only those of subvolumes are noted. The committer calls it when the references of subvolumes have
// been run.
func (e *ExtentTree) TakeTraced(t *sched.Task) []Traced {
	e.refsMu.Lock(t)
	defer e.refsMu.Unlock(t)
	list := make([]Traced, 0, len(e.traced))
	for _, x := range e.traced {
		list = append(list, x)
	}
	clear(e.traced)
	slices.SortFunc(list, func(a, b Traced) int { return cmp.Compare(a.Bytenr, b.Bytenr) })
	return list
}

// traceBelow notes the blocks and the data below b, a block that a deleted tree shares with others:
// the tree reaches them no longer, and no reference of theirs says so. Models
// btrfs_qgroup_trace_subtree() as do_walk_down() calls it.
func (d *drop) traceBelow(b *ctree.Buffer) error {
	if d.e.tracing.Load() {
		return d.traceItems(b)
	}
	return nil
}

func (d *drop) traceItems(b *ctree.Buffer) error {
	d.budget -= b.Node.Nritems()
	d.e.refsMu.Lock(d.t)
	for i := range b.Node.Nritems() {
		if x, ok := d.pointsAt(b, i); ok {
			d.e.traceLocked(d.t, x)
		}
	}
	d.e.refsMu.Unlock(d.t)
	for i := 0; b.Level() > 0 && i < b.Node.Nritems(); i++ {
		c, err := d.child(b, i)
		if err != nil {
			return err
		}
		err = d.traceItems(c)
		c.Unlock(d.t)
		c.Put()
		if err != nil {
			return err
		}
	}
	return nil
}

// pointsAt is the block or the data extent that slot i of b points at, if there is one.
func (d *drop) pointsAt(b *ctree.Buffer, i int) (x Traced, ok bool) {
	if b.Level() > 0 {
		return Traced{Bytenr: format.Logical(b.Node.Blockptr(i)), Bytes: d.e.nodeSize}, true
	}
	if b.Node.Key(i).Type != format.EXTENT_DATA_KEY {
		return x, false
	}
	fe := format.FileExtentView(b.Node.Item(i))
	if fe.Type() == format.FileExtentTypeInline || fe.DiskBytenr() == 0 {
		return x, false
	}
	return Traced{Bytenr: format.Logical(fe.DiskBytenr()), Bytes: fe.DiskNumBytes()}, true
}

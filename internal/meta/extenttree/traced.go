package extenttree

import (
	"cmp"
	"slices"

	"btrlab/internal/format"
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

// trace notes a head that is about to be run. The first of an extent in a transaction says whether it is new. The committer calls it.
func (e *ExtentTree) trace(h *head) {
	if !h.data && !slices.ContainsFunc(h.mods, func(m refMod) bool { return m.parent != 0 || format.IsFSTree(m.Root) }) {
		return // no subvolume's
	}
	if _, ok := e.traced[h.bytenr]; !ok {
		e.traced[h.bytenr] = Traced{h.bytenr, h.num, h.mustInsert}
	}
}

// TakeTraced hands over, in order of address, what was noted since the last call. Of tree blocks only those of subvolumes are noted.
// The committer calls it when the references of subvolumes have been run.
func (e *ExtentTree) TakeTraced() []Traced {
	list := make([]Traced, 0, len(e.traced))
	for _, x := range e.traced {
		list = append(list, x)
	}
	clear(e.traced)
	slices.SortFunc(list, func(a, b Traced) int { return cmp.Compare(a.Bytenr, b.Bytenr) })
	return list
}

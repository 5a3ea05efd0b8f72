package extenttree

import (
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// Trim gives the device back what is free in the block group at logical: the group is cut, and what
// lies between the cuts goes, in ranges of at least least bytes, or all of it, and of at most
// budget bytes, the last ones first. Addresses stay, so no tree block and no file extent changes.
// It returns how many bytes of the address space have gone; none of a system group, and none of one
// that is striped.
//
// The kernel has nothing like it: it empties a group and removes it (btrfs_relocate_chunk()). What
// comes out is what allocation makes too, chunks with their items, only smaller ones.
//
// Preconditions: the transaction is new, nothing is queued or pinned, and no other task uses the
// file system.
func (e *ExtentTree) Trim(t *sched.Task, tr *ctree.Trans, logical, least, budget uint64) (gone uint64, err error) {
	e.enter(t)
	defer e.leave()
	old := e.group(format.Logical(logical))
	p := format.ProfileOf(old.Flags)
	if old.Flags&format.BlockGroupSystem != 0 || p == nil || p.Striped() {
		return 0, nil
	}
	chunk, _ := e.vols.Lookup(logical)
	free := e.freeOf(t, old, e.vols.SuperLogical(chunk))
	kept, gone := cut(old.span(), free, least, budget)
	if gone == 0 {
		return 0, nil
	}
	return gone, e.recut(t, tr, old, chunk, kept, free)
}

// freeOf is what is free in a group at rest, the copies of the superblock among it, as the free
// space tree counts it.
func (e *ExtentTree) freeOf(t *sched.Task, g *BlockGroup, supers []span) []span {
	list := slices.Clone(supers)
	g.mu.Lock(t)
	g.free.Scan(func(s span) bool { list = append(list, s); return true })
	g.mu.Unlock(t)
	return format.Merge(list)
}

// cut is what is left of whole without the free ranges of at least least bytes, or all of it, in
// units of StripeLen, and how much that takes away, which is at most budget.
func cut(whole span, free []span, least, budget uint64) (kept []span, gone uint64) {
	end := whole.End
	for i := len(free) - 1; i >= 0; i-- {
		s := span{Start: free[i].Start, End: format.Logical(format.AlignDown(uint64(free[i].End-whole.Start), format.StripeLen)) + whole.Start}
		if free[i].End == whole.End {
			s.End = whole.End
		}
		s.Start = format.Logical(format.AlignUp(uint64(s.Start-whole.Start), format.StripeLen)) + whole.Start
		if s.End <= s.Start || s.Len() < least && s != whole {
			continue
		}
		if s.Len() > budget-gone {
			s.Start = s.End - format.Logical(format.AlignDown(budget-gone, format.StripeLen))
			if s.Len() < least {
				break
			}
		}
		if s.End < end {
			kept = append(kept, span{Start: s.End, End: end})
		}
		end, gone = s.Start, gone+s.Len()
	}
	if whole.Start < end {
		kept = append(kept, span{Start: whole.Start, End: end})
	}
	slices.Reverse(kept)
	return kept, gone
}

// within is the parts of list that lie in s.
func within(list []span, s span) (in []span) {
	for _, x := range list {
		if both := x.Intersect(s); !both.Empty() {
			in = append(in, both)
		}
	}
	return in
}

// replace puts groups for the ranges kept in the place of old, and accounts what is gone.
func (e *ExtentTree) replace(t *sched.Task, old *BlockGroup, kept, free []span) (groups []*BlockGroup) {
	info := e.space.Of(old.Flags)
	total, supers := old.Length, old.superBytes
	for _, k := range kept {
		g := newGroup(k.Start, k.Len(), old.Flags)
		c, _ := e.vols.Lookup(uint64(k.Start))
		g.used = g.Length
		for _, s := range within(free, k) {
			g.used -= s.Len()
		}
		var spans []span
		spans, g.superBytes = e.excludeSupers(c, within(free, k))
		g.mu.Lock(t)
		for _, s := range spans {
			g.addFreeLocked(t, s)
		}
		g.mu.Unlock(t)
		total, supers = total-g.Length, supers-g.superBytes
		groups = append(groups, g)
	}
	if old.readonly.Load() {
		supers += old.freeBytes.Load()
	}
	info.RemoveTotal(t, total, supers)
	e.chunkMu.Lock(t)
	defer e.chunkMu.Unlock(t)
	list := slices.Clone(*e.groups.Load())
	i := slices.Index(list, old)
	list = slices.Replace(list, i, i+1, groups...)
	e.groups.Store(&list)
	return groups
}

// fstForget deletes all items of the free space tree that begin in s.
func (e *ExtentTree) fstForget(t *sched.Task, tr *ctree.Trans, s span) error {
	for e.fst != nil {
		var p ctree.Path
		more, err := e.forest.SearchForward(t, e.fst, format.Key{Objectid: uint64(s.Start)}, &p)
		if err != nil || !more || !s.Contains(format.Logical(p.Key().Objectid)) {
			p.Release(t)
			return err
		}
		key := p.Key()
		p.Release(t)
		if _, err := e.remove(t, tr, e.fst, key); err != nil {
			return err
		}
	}
	return nil
}

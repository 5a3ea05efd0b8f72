package extenttree

import (
	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// delayedCrossRef looks at the heads for the extent, queued and being run: other means that another
// reference than want comes or goes; fresh means that the extent had no item when its head was
// queued, so that the heads know all its references. With nowait it answers EAGAIN while another
// task has the queue. Models check_delayed_ref(), which tries the head's mutex there.
func (e *ExtentTree) delayedCrossRef(t *sched.Task, want format.DataRef, bytenr format.Logical, nowait bool) (other, fresh bool, err error) {
	if !nowait {
		e.refsMu.Lock(t)
	} else if !e.refsMu.TryLock(t) {
		return false, false, kiocb.AgainRefs
	}
	defer e.refsMu.Unlock(t)
	for _, h := range [2]*head{e.running[bytenr], e.heads[bytenr]} {
		if h == nil {
			continue
		}
		fresh = fresh || h.mustInsert
		for i := range h.mods { // not a copy: the committer changes done of a head that it runs
			other = other || h.mods[i].backRef != byFile(want)
		}
	}
	return other, fresh, nil
}

// CrossRefExist reports whether anything but own refers to the data extent at bytenr: then it may
// not be overwritten in place. It searches with p, which is empty, and answers EAGAIN rather than
// wait or read if p is Nowait. Models btrfs_cross_ref_exist(): check_delayed_ref(), then
// check_committed_ref().
func (e *ExtentTree) CrossRefExist(t *sched.Task, own format.DataRef, bytenr format.Logical, p *ctree.Path) (bool, error) {
	if other, fresh, err := e.delayedCrossRef(t, own, bytenr, p.Nowait); err != nil || other || fresh {
		return other, err
	}
	defer p.Release(t)
	// Only the length is missing from the key; an extent's items are contiguous from (bytenr,
	// EXTENT_ITEM) on.
	key := format.Key{Objectid: uint64(bytenr), Type: format.EXTENT_ITEM_KEY}
	if _, err := e.forest.SearchSlot(t, nil, e.root, key, p, 0, false); err != nil {
		return true, err
	}
	if p.Slot() >= p.Leaf().Nritems() {
		if more, err := e.forest.NextLeaf(t, e.root, p); err != nil || !more {
			return true, err
		}
	}
	if k := p.Key(); k.Objectid != key.Objectid || k.Type != format.EXTENT_ITEM_KEY {
		return true, nil
	}
	item := p.Item()
	var it format.ExtentItem
	it.Decode(item)
	// An item with one inline reference, of that type, has this length. No allocation: a NOWAIT
	// write asks each time.
	refs := item[format.ExtentItemSize:]
	if n := format.InlineRefSize(format.EXTENT_OWNER_REF_KEY); len(refs) > n && refs[0] == format.EXTENT_OWNER_REF_KEY {
		refs = refs[n:]
	}
	if len(refs) != 1+format.ExtentDataRefSize || refs[0] != format.EXTENT_DATA_REF_KEY {
		return true, nil
	}
	var ref format.ExtentDataRef
	ref.Decode(refs[1:])
	return uint64(ref.Count) != it.Refs || ref.DataRef != own, nil
}

// MayWrite reports whether the block group of the data extent takes writes: a balance makes one
// read-only for a while. Models btrfs_extent_readonly().
func (e *ExtentTree) MayWrite(t *sched.Task, bytenr format.Logical) bool {
	g := e.groups.Load().find(bytenr)
	return g != nil && !g.readonly.Load()
}

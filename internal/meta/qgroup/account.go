package qgroup

import (
	"cmp"
	"fmt"
	"slices"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/extenttree"
	"btrlab/internal/sched"
)

// TreeAt is where a tree of roots is.
type TreeAt struct {
	Bytenr     uint64
	Level      int
	Generation uint64
}

// delta is how the counts of groups change.
type delta map[*group]*struct{ rfer, excl int64 }

func (d delta) of(g *group) *struct{ rfer, excl int64 } {
	x := d[g]
	if x == nil {
		x = new(struct{ rfer, excl int64 })
		d[g] = x
	}
	return x
}

// Settle makes the counts those of the trees that the commit leaves, gives back what the
// transaction had reserved, and brings the quota tree up to date. last is the tree of roots of the
// last commit, now that of the trees as they are: no subvolume changes any more, and the references
// of their extents are items. What it cannot find out leaves the status inconsistent. Models
// btrfs_qgroup_account_extents() and btrfs_run_qgroups().
//
// Preconditions: the committer's; no other handle is open.
func (q *Quota) Settle(t *sched.Task, tr *ctree.Trans, last, now TreeAt) error {
	if !q.On() {
		return nil
	}
	traced, owned := q.extents.TakeTraced(t), q.extents.TakeOwned(t)
	d := delta{}
	q.own(t, d, owned)
	if err := q.changes(t, d, traced, last, now); err != nil {
		q.status.Flags |= format.QgroupStatusInconsistent
	}
	q.apply(t, d)
	if err := q.removeGone(t, tr); err != nil {
		return err
	}
	return q.write(t, tr)
}

// changes fills d.
func (q *Quota) changes(t *sched.Task, d delta, traced []extenttree.Traced, last, now TreeAt) error {
	if len(traced) == 0 && !q.recount {
		return nil
	}
	after, err := newView(t, q.forest, now.Bytenr, now.Level, now.Generation)
	if err != nil {
		return err
	}
	defer after.close()
	if q.recount {
		return q.countAll(t, d, after)
	}
	before, err := newView(t, q.forest, last.Bytenr, last.Level, last.Generation)
	if err != nil {
		return err
	}
	defer before.close()
	for _, x := range traced {
		var was, is []uint64
		if !x.Fresh {
			if was, err = before.roots(t, uint64(x.Bytenr)); err != nil {
				return err
			}
		}
		if is, err = after.roots(t, uint64(x.Bytenr)); err != nil {
			return err
		}
		if !slices.Equal(was, is) {
			q.account(t, d, x.Bytes, was, is)
		}
	}
	return nil
}

// own adds what subvolumes have allocated and lost: with simple quotas all of it is theirs alone.
// Models the counting in btrfs_record_squota_delta().
func (q *Quota) own(t *sched.Task, d delta, owned map[uint64]int64) {
	q.mu.Lock(t)
	defer q.mu.Unlock(t)
	q.state.Read(t, nameState)
	for id, n := range owned {
		g := q.find(t, id)
		if g == nil {
			continue
		}
		for _, a := range g.up {
			x := d.of(a)
			x.rfer, x.excl = x.rfer+n, x.excl+n
		}
	}
}

// account adds what it means that an extent of n bytes, which the subvolumes was reached, is
// reached by is. Models btrfs_qgroup_account_extent() with qgroup_update_counters().
func (q *Quota) account(t *sched.Task, d delta, n uint64, was, is []uint64) {
	q.mu.Lock(t)
	defer q.mu.Unlock(t)
	q.state.Read(t, nameState)
	type reach struct{ was, is int }
	groups := map[*group]reach{}
	for i, list := range [2][]uint64{was, is} {
		for _, id := range list {
			g := q.find(t, id)
			if g == nil {
				continue
			}
			for _, a := range g.up {
				r := groups[a]
				if i == 0 {
					r.was++
				} else {
					r.is++
				}
				groups[a] = r
			}
		}
	}
	for g, r := range groups {
		x := d.of(g)
		x.rfer += int64(n) * (one(r.is > 0) - one(r.was > 0))
		x.excl += int64(n) * (one(r.is > 0 && r.is == len(is)) - one(r.was > 0 && r.was == len(was)))
	}
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// countAll counts every extent from the start; every subvolume has a group afterwards, which is all
// that simple quotas want. Models a
// rescan from btrfs_qgroup_rescan() to the end of btrfs_qgroup_rescan_worker().
func (q *Quota) countAll(t *sched.Task, d delta, v *view) error {
	ids, err := v.subvolIDs(t)
	if err != nil {
		return err
	}
	q.lock(t)
	for _, id := range ids {
		q.addGroup(id)
	}
	if q.simple() {
		q.mu.Unlock(t)
		q.recount = false
		return nil
	}
	for _, g := range q.groups {
		*d.of(g) = struct{ rfer, excl int64 }{-int64(g.rfer), -int64(g.excl)}
	}
	q.mu.Unlock(t)
	p := new(ctree.Path)
	defer p.Release(t)
	for key := (format.Key{}); ; key = key.Next() {
		more, err := q.forest.SearchForward(t, v.extent, key, p)
		if err != nil || !more {
			q.status.Flags &^= format.QgroupStatusRescan | format.QgroupStatusInconsistent
			q.status.Rescan, q.recount = ^uint64(0), err != nil
			return err
		}
		key = p.Key()
		p.Release(t)
		if key.Type != format.EXTENT_ITEM_KEY && key.Type != format.METADATA_ITEM_KEY {
			continue
		}
		b, err := v.read(t, key.Objectid)
		if err != nil {
			return err
		}
		roots, err := v.rootsOf(t, key.Objectid, &b)
		if err != nil {
			return err
		}
		q.account(t, d, b.Length, nil, roots)
	}
}

// subvolIDs lists the subvolumes.
func (v *view) subvolIDs(t *sched.Task) (ids []uint64, err error) {
	p := new(ctree.Path)
	defer p.Release(t)
	key := format.Key{Objectid: format.FS_TREE_OBJECTID}
	more, err := v.f.SearchForward(t, v.tree, key, p)
	for ; more && err == nil; more, err = v.f.NextItem(t, v.tree, p) {
		k := p.Key()
		if k.Type != format.ROOT_ITEM_KEY || !format.IsFSTree(k.Objectid) {
			continue
		}
		var it format.RootItem
		if it.Decode(p.Item()); it.Refs > 0 {
			ids = append(ids, k.Objectid)
		}
	}
	return ids, err
}

// apply changes the counts and, in the same step, ends the reservations of the transaction.
func (q *Quota) apply(t *sched.Task, d delta) {
	q.lock(t)
	defer q.mu.Unlock(t)
	for _, g := range q.groups {
		if g.commitData > 0 {
			q.take(g, g.commitData, Data)
		}
		if g.pertrans > 0 {
			q.take(g, g.pertrans, MetaPertrans)
		}
		g.commitData, g.pertrans = 0, 0
	}
	for g, x := range d {
		if x.rfer == 0 && x.excl == 0 {
			continue
		}
		g.rfer, g.excl, g.dirty = q.sum(g.rfer, x.rfer), q.sum(g.excl, x.excl), true
	}
}

// removeGone removes the groups of the subvolumes that are dropped. What one still counts now was
// wrong, and so is what those above it count. Models btrfs_qgroup_cleanup_dropped_subvolume()
// (839d6ea4f86d, Linux 6.11) with btrfs_remove_qgroup(). Difference: the commit that drops the last
// of the subvolume removes the group, not a later one.
func (q *Quota) removeGone(t *sched.Task, tr *ctree.Trans) error {
	var list []*group
	q.lock(t)
	for id, g := range q.groups {
		if g.gone && q.simple() && g.rfer != 0 {
			g.gone = false // others refer to what it allocated, so the group stays, as in Linux
		}
		if g.gone {
			delete(q.groups, id)
			list = append(list, g)
		}
	}
	q.mu.Unlock(t)
	slices.SortFunc(list, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	for _, g := range list {
		if g.rfer != 0 || g.excl != 0 {
			q.status.Flags |= format.QgroupStatusInconsistent
		}
		keys := []format.Key{{Type: format.QGROUP_INFO_KEY, Offset: g.id}, {Type: format.QGROUP_LIMIT_KEY, Offset: g.id}}
		for _, p := range g.parents {
			keys = append(keys, format.Key{Objectid: g.id, Type: format.QGROUP_RELATION_KEY, Offset: p.id},
				format.Key{Objectid: p.id, Type: format.QGROUP_RELATION_KEY, Offset: g.id})
		}
		for _, k := range keys {
			if err := q.remove(t, tr, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove deletes an item of the quota tree, if it is there.
func (q *Quota) remove(t *sched.Task, tr *ctree.Trans, k format.Key) error {
	var p ctree.Path
	defer p.Release(t)
	found, err := q.forest.SearchSlot(t, tr, q.tree, k, &p, -1, true)
	if err != nil || !found {
		return err
	}
	return q.forest.DelItems(t, tr, q.tree, &p, p.Slot(), 1)
}

// sum is have+by. A count that would go below zero was wrong before, which only inconsistent ones
// are.
func (q *Quota) sum(have uint64, by int64) uint64 {
	if by < 0 && uint64(-by) > have {
		if !q.simple() {
			q.status.Flags |= format.QgroupStatusInconsistent
		}
		return 0
	}
	return have + uint64(by)
}

// write brings the items up to date: counts and limits that changed, and the status, whose
// generation has to be the commit's.
func (q *Quota) write(t *sched.Task, tr *ctree.Trans) error {
	type todo struct {
		id    uint64
		info  *format.QgroupInfo
		limit *format.QgroupLimit
		up    []uint64
	}
	var list []todo
	q.lock(t)
	for _, g := range q.groups {
		x := todo{id: g.id}
		if g.dirty {
			x.info = &format.QgroupInfo{Generation: tr.ID, Rfer: g.rfer, RferCmpr: g.rfer, Excl: g.excl, ExclCmpr: g.excl}
			if q.simple() {
				x.info.RferCmpr, x.info.ExclCmpr = g.cmpr[0], g.cmpr[1]
			}
		}
		if g.limitDirty {
			l := g.limit
			x.limit = &l
		}
		if g.upDirty {
			for _, p := range g.parents {
				x.up = append(x.up, p.id)
			}
		}
		if g.dirty, g.limitDirty, g.upDirty = false, false, false; x.info != nil || x.limit != nil || x.up != nil {
			list = append(list, x)
		}
	}
	q.mu.Unlock(t)
	slices.SortFunc(list, func(a, b todo) int { return cmp.Compare(a.id, b.id) })
	for _, x := range list {
		var b [format.QgroupInfoSize]byte
		if x.info != nil {
			x.info.Encode(b[:])
			if err := q.put(t, tr, format.Key{Type: format.QGROUP_INFO_KEY, Offset: x.id}, b[:]); err != nil {
				return err
			}
		}
		if x.limit != nil {
			x.limit.Encode(b[:])
			if err := q.put(t, tr, format.Key{Type: format.QGROUP_LIMIT_KEY, Offset: x.id}, b[:]); err != nil {
				return err
			}
		}
		for _, up := range x.up {
			for _, k := range [2]format.Key{{Objectid: x.id, Offset: up}, {Objectid: up, Offset: x.id}} {
				k.Type = format.QGROUP_RELATION_KEY
				if err := q.put(t, tr, k, nil); err != nil {
					return err
				}
			}
		}
	}
	q.status.Version, q.status.Generation = format.QgroupStatusVersion, tr.ID
	q.flags.Store(q.status.Flags)
	var b [format.QgroupStatusSize]byte
	q.status.Encode(b[:])
	return q.put(t, tr, format.Key{Type: format.QGROUP_STATUS_KEY}, b[:])
}

// put makes b an item of the quota tree, or the front of b that an item which is there has room
// for.
func (q *Quota) put(t *sched.Task, tr *ctree.Trans, k format.Key, b []byte) error {
	var p ctree.Path
	defer p.Release(t)
	found, err := q.forest.SearchSlot(t, tr, q.tree, k, &p, 0, true)
	if err != nil {
		return err
	}
	if !found {
		p.Release(t)
		return q.forest.InsertItem(t, tr, q.tree, k, b)
	}
	if n := len(p.Item()); n < len(b)-8 {
		return fmt.Errorf("corrupt quota tree: item %v, bad size, have %d want %d: %w", k, n, len(b), errno.EUCLEAN)
	}
	copy(p.Item(), b)
	q.forest.DirtyLeaf(t, tr, &p)
	return nil
}

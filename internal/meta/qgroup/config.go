package qgroup

import (
	"fmt"
	"slices"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// Load reads the quota tree of an image that has one, as of its commit generation. Counts that are
// not of that commit are inconsistent; a rescan that was under way is done again by the next
// commit. Models btrfs_read_qgroup_config().
func (q *Quota) Load(t *sched.Task, tree *ctree.Root, generation uint64) error {
	q.tree = tree
	var p ctree.Path
	defer p.Release(t)
	relations := map[uint64][]uint64{}
	var status bool
	q.lock(t)
	defer q.mu.Unlock(t)
	for key := (format.Key{}); ; key = key.Next() {
		q.mu.Unlock(t)
		more, err := q.forest.SearchForward(t, tree, key, &p)
		q.mu.Lock(t)
		if err != nil {
			return fmt.Errorf("read quota tree: %w", err)
		}
		if !more {
			break
		}
		key = p.Key()
		ok := q.loadItem(key, p.Item(), relations)
		status = status || key.Type == format.QGROUP_STATUS_KEY
		p.Release(t)
		if !ok {
			return fmt.Errorf("corrupt quota tree: item %v, bad size: %w", key, errno.EUCLEAN)
		}
	}
	switch {
	case !status || q.status.Flags&format.QgroupStatusOn == 0:
		return nil
	case q.status.Version != format.QgroupStatusVersion:
		return fmt.Errorf("corrupt quota tree: bad version of the status, have %d want %d: %w", q.status.Version, format.QgroupStatusVersion, errno.EUCLEAN)
	}
	for id, up := range relations {
		for _, to := range up {
			if a, b := q.groups[id], q.groups[to]; a != nil && b != nil {
				a.parents = append(a.parents, b)
			}
		}
	}
	for _, g := range q.groups {
		g.linkUp()
	}
	if q.status.Generation != generation && !q.simple() {
		q.status.Flags |= format.QgroupStatusInconsistent
	}
	q.flags.Store(q.status.Flags)
	q.turnOn(q.status.Flags&format.QgroupStatusRescan != 0)
	return nil
}

// simple reports whether what counts is who has allocated an extent.
func (q *Quota) simple() bool { return q.status.Flags&format.QgroupStatusSimple != 0 }

// turnOn makes q.groups count, from the start with recount set.
func (q *Quota) turnOn(recount bool) {
	q.recount = recount
	switch {
	case q.extents == nil:
	case q.simple():
		q.extents.SetOwned(q.status.EnableGen)
	default:
		q.extents.SetTracing(true)
	}
	q.on.Store(true)
}

// loadItem takes an item of the quota tree; false says that it is too short.
func (q *Quota) loadItem(k format.Key, b []byte, relations map[uint64][]uint64) bool {
	switch k.Type {
	case format.QGROUP_STATUS_KEY:
		if len(b) < format.QgroupStatusSize-8 {
			return false
		}
		q.status.Decode(b)
	case format.QGROUP_INFO_KEY:
		if len(b) < format.QgroupInfoSize {
			return false
		}
		var x format.QgroupInfo
		x.Decode(b)
		g := q.addGroup(k.Offset)
		g.rfer, g.excl, g.cmpr = x.Rfer, x.Excl, [2]uint64{x.RferCmpr, x.ExclCmpr}
		g.dirty, g.limitDirty = false, false
	case format.QGROUP_LIMIT_KEY:
		if len(b) < format.QgroupLimitSize {
			return false
		}
		if g := q.groups[k.Offset]; g != nil { // the counts of all come first
			g.limit.Decode(b)
		}
	case format.QGROUP_RELATION_KEY:
		if k.Objectid < k.Offset { // the other of each pair says the same
			relations[k.Objectid] = append(relations[k.Objectid], k.Offset)
		}
	}
	return true
}

// addGroup gives the group with the id, a new one if there is none.
func (q *Quota) addGroup(id uint64) *group {
	g := q.groups[id]
	if g == nil {
		g = &group{id: id, dirty: true, limitDirty: true}
		g.up = []*group{g}
		q.groups[id] = g
	}
	return g
}

// linkUp fills up.
func (g *group) linkUp() {
	g.up = append(g.up[:0], g)
	seen := map[*group]bool{g: true}
	for i := 0; i < len(g.up); i++ {
		for _, a := range g.up[i].parents {
			if !seen[a] {
				seen[a] = true
				g.up = append(g.up, a)
			}
		}
	}
}

// Create makes an empty quota tree and turns quotas on: the commit of the transaction makes a group
// for each subvolume and counts. With simple nothing is counted that is there: a subvolume has what
// it allocates from the next transaction on. The caller enters the tree into the tree of roots.
// Models btrfs_quota_enable().
//
// Preconditions: a handle is open; quotas are off, and nobody else turns them on; no write is in
// flight.
func (q *Quota) Create(t *sched.Task, tr *ctree.Trans, simple bool) (*ctree.Root, error) {
	r, err := q.forest.NewRoot(t, tr, format.QUOTA_TREE_OBJECTID)
	if err != nil {
		return nil, err
	}
	q.tree = r
	q.status = format.QgroupStatus{Version: format.QgroupStatusVersion, Generation: tr.ID, Rescan: 0,
		Flags: format.QgroupStatusOn | format.QgroupStatusRescan | format.QgroupStatusInconsistent}
	if simple {
		q.status.Flags, q.status.EnableGen = format.QgroupStatusOn|format.QgroupStatusSimple, tr.ID+1
	}
	q.lock(t)
	q.addGroup(format.FS_TREE_OBJECTID)
	q.turnOn(true)
	q.mu.Unlock(t)
	return r, nil
}

// Clear turns quotas off and empties the quota tree, which is returned for the caller to free.
// Models btrfs_quota_disable().
//
// Preconditions: as Create, with quotas on.
func (q *Quota) Clear(t *sched.Task, tr *ctree.Trans) (*ctree.Root, error) {
	q.on.Store(false)
	q.extents.SetTracing(false)
	q.extents.SetOwned(0)
	var p ctree.Path
	defer p.Release(t)
	for {
		if _, err := q.forest.SearchSlot(t, tr, q.tree, format.Key{}, &p, -1, true); err != nil {
			return nil, err
		}
		n := p.Leaf().Nritems()
		if n == 0 {
			break
		}
		if err := q.forest.DelItems(t, tr, q.tree, &p, 0, n); err != nil {
			return nil, err
		}
		p.Release(t)
	}
	r := q.tree
	q.tree, q.status, q.recount = nil, format.QgroupStatus{}, false
	q.flags.Store(0)
	q.lock(t)
	clear(q.groups)
	q.mu.Unlock(t)
	return r, nil
}

// Rescan makes the next commit count from the start. EINVAL with simple quotas, which cannot.
// Models btrfs_qgroup_rescan().
//
// Preconditions: a handle is open.
func (q *Quota) Rescan() error {
	if q.simple() {
		return fmt.Errorf("simple quotas cannot be counted again: %w", errno.EINVAL)
	}
	q.recount = true
	return nil
}

// Created says that the running transaction makes subvolume id, named in the subvolume in. Its
// commit counts from the start, as what was one subvolume's alone may be shared now. With simple
// quotas it gets a group that belongs to those that in's belongs to. Nothing when quotas are off.
// Models btrfs_qgroup_inherit() with qgroup_auto_inherit().
//
// Preconditions: a handle is open.
func (q *Quota) Created(t *sched.Task, id, in uint64) {
	switch {
	case !q.On():
	case !q.simple():
		q.recount = true
	default:
		q.lock(t)
		g := q.addGroup(id)
		if from := q.groups[in]; from != nil {
			g.parents, g.upDirty = slices.Clone(from.parents), true
			g.linkUp()
		}
		q.mu.Unlock(t)
	}
}

// Dropped says that the running transaction drops the last of a subvolume: its commit removes the
// qgroup.
//
// Preconditions: a handle is open.
func (q *Quota) Dropped(t *sched.Task, id uint64) {
	q.lock(t)
	if g := q.groups[id]; g != nil {
		g.gone = true
	}
	q.mu.Unlock(t)
}

// Limit sets a limit of a qgroup in bytes, or with none set takes it away; excl says which. The
// commit writes it. ENOENT when there is no such qgroup. Models btrfs_limit_qgroup().
//
// Preconditions: a handle is open.
func (q *Quota) Limit(t *sched.Task, id, bytes uint64, excl, none bool) error {
	q.lock(t)
	defer q.mu.Unlock(t)
	g := q.groups[id]
	if g == nil {
		return errno.ENOENT
	}
	l, bit, max := &g.limit, uint64(format.QgroupLimitMaxRfer), &g.limit.MaxRfer
	if excl {
		bit, max = format.QgroupLimitMaxExcl, &g.limit.MaxExcl
	}
	if l.Flags |= bit; none {
		l.Flags, bytes = l.Flags&^bit, 0
	}
	*max, g.limitDirty = bytes, true
	return nil
}

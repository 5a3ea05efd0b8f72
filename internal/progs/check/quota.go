package check

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"btrlab/internal/format"
)

// quota holds the quota tree's items, and the counts that the walks of the subvolumes add up. A
// qgroup counts the extents, data and tree blocks, each once and whole, that its subvolumes reach
// (rfer), and those that no other subvolume reaches (excl).
//
// With simple quotas it counts what its subvolumes have allocated since they were turned on.
//
// Model: btrfs-progs check/qgroup-verify.c. Difference: it asks the extent tree which roots an
// extent has, this walks the subvolumes.
type quota struct {
	status  bool
	flags   uint64
	enabled uint64             // generation since which simple quotas count
	groups  map[uint64]*qgroup // by id: level<<48 | subvolume or number
	parents map[uint64][]uint64
	limits  map[uint64]bool
	pairs   map[[2]uint64]bool // of qgroups, as items relate them
	reach   []reach
	want    map[uint64]qgroup
	aboves  map[uint64][]uint64 // above, of subvolumes
}

type qgroup struct{ rfer, excl uint64 }

// reach says that the subvolume root reaches an extent.
type reach struct{ start, length, root uint64 }

// owned is what a tree has allocated in a transaction.
type owned struct{ root, generation uint64 }

// owns notes for simple quotas that root has allocated an extent.
func (c *checker) owns(root, length, generation uint64) {
	if format.IsFSTree(root) {
		if c.owned == nil {
			c.owned = map[owned]uint64{}
		}
		c.owned[owned{root, generation}] += length
	}
}

const (
	qgroupRescan       = 1 << 1
	qgroupInconsistent = 1 << 2
	qgroupSimple       = 1 << 3
	qgroupStatusSize   = 32
	qgroupInfoSize     = 40
	qgroupLevelShift   = 48
)

func qgroupName(id uint64) string {
	return fmt.Sprintf("qgroup=%d/%d", id>>qgroupLevelShift, id&(1<<qgroupLevelShift-1))
}

// quotaLeaf takes the items of a leaf of the quota tree.
func (c *checker) quotaLeaf(n format.Node, _ bool) {
	q := c.quota
	for i := range n.Nritems() {
		k, b := n.Key(i), n.Item(i)
		switch {
		case k.Type == format.QGROUP_STATUS_KEY && len(b) >= qgroupStatusSize:
			q.status, q.flags = true, le.Uint64(b[16:])
			if len(b) >= qgroupStatusSize+8 {
				q.enabled = le.Uint64(b[32:])
			}
		case k.Type == format.QGROUP_INFO_KEY && len(b) >= qgroupInfoSize:
			q.groups[k.Offset] = &qgroup{rfer: le.Uint64(b[8:]), excl: le.Uint64(b[24:])}
		case k.Type == format.QGROUP_LIMIT_KEY:
			q.limits[k.Offset] = true
		case k.Type == format.QGROUP_RELATION_KEY:
			q.pairs[[2]uint64{k.Objectid, k.Offset}] = true
			if k.Objectid < k.Offset { // the other of each pair says the same
				q.parents[k.Objectid] = append(q.parents[k.Objectid], k.Offset)
			}
		}
	}
}

// count adds what was reached to the counts that the qgroups should have. All that reaches an
// extent is there at once.
func (q *quota) count() {
	if q.want == nil {
		q.want, q.aboves = map[uint64]qgroup{}, map[uint64][]uint64{}
	}
	above, want := q.aboves, q.want
	slices.SortFunc(q.reach, func(x, y reach) int { return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.root, y.root)) })
	q.reach = slices.CompactFunc(q.reach, func(x, y reach) bool { return x.start == y.start && x.root == y.root })
	roots := map[uint64]int{} // of the extent at hand, how many lead to a qgroup
	for l := q.reach; len(l) > 0; {
		n := 1
		for n < len(l) && l[n].start == l[0].start {
			n++
		}
		clear(roots)
		for _, r := range l[:n] {
			if above[r.root] == nil {
				above[r.root] = q.above(r.root)
			}
			for _, id := range above[r.root] {
				roots[id]++
			}
		}
		for id, k := range roots {
			w := want[id]
			w.rfer += l[0].length
			if k == n {
				w.excl += l[0].length
			}
			want[id] = w
		}
		l = l[n:]
	}
	q.reach = nil
}

// reaches notes that the subvolume root has a leaf's file extents.
func (q *quota) reaches(root uint64, n format.Node) {
	for i := range n.Nritems() {
		if n.Key(i).Type != format.EXTENT_DATA_KEY {
			continue
		}
		var fe format.FileExtent
		if fe.Decode(n.Item(i)); fe.Type != format.FileExtentTypeInline && fe.DiskBytenr != 0 {
			q.reach = append(q.reach, reach{fe.DiskBytenr, fe.DiskNumBytes, root})
		}
	}
}

// above lists the qgroups that a subvolume counts in.
func (q *quota) above(root uint64) []uint64 {
	list := []uint64{root}
	for i := 0; i < len(list); i++ {
		for _, p := range q.parents[list[i]] {
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	return list
}

// checkQuotaItems judges the items by each other: Linux writes a qgroup's two items together, and
// both of a relation.
func (c *checker) checkQuotaItems() {
	q := c.quota
	if !q.status {
		c.find("quota.item", on(AtTree, format.QUOTA_TREE_OBJECTID), Words("no status"), Words("one"))
	}
	for _, id := range slices.Sorted(maps.Keys(q.groups)) {
		if !q.limits[id] {
			c.find("quota.item", on(AtQgroup, id), Words("no limit item"), Words("one"))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(q.limits)) {
		if q.groups[id] == nil {
			c.find("quota.item", on(AtQgroup, id), Words("no info item"), Words("one"))
		}
	}
	for _, p := range q.sortedPairs() {
		if !q.has(p[0]) || !q.has(p[1]) {
			c.find("quota.item", on(AtQgroup, p[0]), words("a relation to %s", qgroupName(p[1])), Words("one of qgroups that are there"))
		} else if !q.pairs[[2]uint64{p[1], p[0]}] {
			c.find("quota.item", on(AtQgroup, p[1]), words("no relation to %s", qgroupName(p[0])), Words("one"))
		}
	}
}

// has reports whether an item says that there is such a qgroup.
func (q *quota) has(id uint64) bool { return q.groups[id] != nil || q.limits[id] }

func (q *quota) sortedPairs() [][2]uint64 {
	return slices.SortedFunc(maps.Keys(q.pairs), func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
}

// mendQuotaItems writes the items that are missing: no limit, counts that the next check corrects,
// and a status by which Linux counts anew.
func (c *checker) mendQuotaItems(try func(what string, err error)) {
	q := c.quota
	if q == nil {
		return
	}
	put := func(what string, k format.Key, b []byte) {
		try(what, c.insertItem(format.QUOTA_TREE_OBJECTID, k, b))
	}
	if !q.status && c.sb.IncompatFlags&format.IncompatSimpleQuota != 0 {
		try("status of quotas", errors.New("since when simple quotas count is lost"))
	} else if !q.status {
		b := make([]byte, qgroupStatusSize)
		// Version, generation, on.
		for i, v := range []uint64{1, c.sb.Generation, 1 | qgroupInconsistent} {
			le.PutUint64(b[8*i:], v)
		}
		put("status of quotas, by which a rescan is due", format.Key{Type: format.QGROUP_STATUS_KEY}, b)
	}
	for _, id := range slices.Sorted(maps.Keys(q.groups)) {
		if !q.limits[id] {
			put(qgroupName(id)+": an item without limits; those it had are lost", format.Key{Type: format.QGROUP_LIMIT_KEY, Offset: id}, make([]byte, qgroupInfoSize))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(q.limits)) {
		if q.groups[id] == nil {
			b := make([]byte, qgroupInfoSize)
			le.PutUint64(b, c.sb.Generation)
			put(qgroupName(id)+": an item with counts", format.Key{Type: format.QGROUP_INFO_KEY, Offset: id}, b)
		}
	}
	for _, p := range q.sortedPairs() {
		if !q.has(p[0]) || !q.has(p[1]) {
			try(fmt.Sprintf("relation of %s to %s, of which one is not there: dropped", qgroupName(p[0]), qgroupName(p[1])),
				c.deleteItem(format.QUOTA_TREE_OBJECTID, format.Key{Objectid: p[0], Type: format.QGROUP_RELATION_KEY, Offset: p[1]}))
		} else if !q.pairs[[2]uint64{p[1], p[0]}] {
			put(fmt.Sprintf("%s: its relation to %s", qgroupName(p[1]), qgroupName(p[0])), format.Key{Objectid: p[1], Type: format.QGROUP_RELATION_KEY, Offset: p[0]}, nil)
		}
	}
}

// checkQuota compares the counts with what the subvolumes reach or have allocated, unless the quota
// tree itself says that they are out of date. A status that is older than the superblock says
// nothing of the kind: every offline tool of btrfs-progs leaves one, and Linux counts anew then,
// but counts that are right stay right.
func (c *checker) checkQuota() {
	q := c.quota
	if q == nil {
		return
	}
	simple := q.flags&qgroupSimple != 0
	switch {
	case c.cut:
		return // what was not visited may be counted
	case !q.status || q.flags&(qgroupRescan|qgroupInconsistent) != 0:
		c.note("quotas are on and their counts out of date: they are not judged")
		return
	}
	for id, r := range c.roots {
		if !simple && format.IsFSTree(id) && r.item.Refs == 0 {
			c.note("a subvolume is being deleted: quotas are not judged")
			return
		}
	}
	if simple {
		c.compareQuota(q.allocated(c.owned), simple)
	} else {
		c.compareQuota(q.reached(), simple)
	}
}

// compareQuota wants the counts of the groups. Those of a subvolume that is gone are judged with
// simple quotas only: it may have allocated what others refer to.
func (c *checker) compareQuota(counts map[uint64]qgroup, simple bool) {
	q := c.quota
	for _, id := range slices.Sorted(maps.Keys(q.groups)) {
		if _, ok := c.roots[id]; !ok && !simple && id>>qgroupLevelShift == 0 {
			continue
		}
		if have, want := *q.groups[id], counts[id]; have != want {
			c.find("quota.count", on(AtQgroup, id), Counts{have.rfer, have.excl}, Counts{want.rfer, want.excl})
		}
	}
}

// allocated counts what the groups have by simple quotas.
func (q *quota) allocated(list map[owned]uint64) map[uint64]qgroup {
	want := map[uint64]qgroup{}
	for o, n := range list {
		if o.generation < q.enabled {
			continue
		}
		for _, id := range q.above(o.root) {
			want[id] = qgroup{want[id].rfer + n, want[id].excl + n}
		}
	}
	return want
}

// reached counts what the groups have by the extents that their subvolumes reach.
func (q *quota) reached() map[uint64]qgroup {
	q.count()
	return q.want
}

package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"btrlab/internal/format"
)

// quotaRules are about the quota tree.
var quotaRules = []Rule{
	{"quota.count", "a qgroup's bytes are those of the extents that its subvolumes reach, with simple quotas have allocated", "limits of quotas hold too early or too late: rescan"},
	{"quota.item", "qgroups have a status, and each its counts and limits; relations are there from both sides", "a limit or a qgroup does not count, or quotas go off"},
}

// Quota holds the quota tree's items, and the counts that the walks of the subvolumes add up. A
// qgroup counts the extents, data and tree blocks, each once and whole, that its subvolumes reach
// (rfer), and those that no other subvolume reaches (excl).
//
// With simple quotas it counts what its subvolumes have allocated since they were turned on.
//
// Model: btrfs-progs check/qgroup-verify.c. Difference: it asks the extent tree which roots an
// extent has, this walks the subvolumes.
type Quota struct {
	Status  bool
	flags   uint64
	enabled uint64             // generation since which simple quotas count
	Groups  map[uint64]*Counts // by id: level<<48 | subvolume or number
	parents map[uint64][]uint64
	Limits  map[uint64]bool
	Pairs   map[[2]uint64]bool // of qgroups, as items relate them
	reach   []reach
	want    map[uint64]Counts
	aboves  map[uint64][]uint64 // above, of subvolumes
}

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

// Flags of the status of quotas, and the sizes of items in bytes: QgroupStatusSize is that without
// the generation since which simple quotas count.
const (
	qgroupRescan       = 1 << 1
	QgroupInconsistent = 1 << 2
	qgroupSimple       = 1 << 3
	QgroupStatusSize   = 32
	QgroupInfoSize     = 40
	qgroupLevelShift   = 48 // of the level, in an id
)

// QgroupName is the id of a qgroup as btrfs shows it: qgroup=LEVEL/NUMBER.
func QgroupName(id uint64) string {
	return fmt.Sprintf("qgroup=%d/%d", id>>qgroupLevelShift, id&(1<<qgroupLevelShift-1))
}

// quotaLeaf takes the items of a leaf of the quota tree.
func (c *checker) quotaLeaf(n format.Node, _ bool) {
	q := c.Quota
	for i := range n.Nritems() {
		k, b := n.Key(i), n.Item(i)
		switch {
		case k.Type == format.QGROUP_STATUS_KEY && len(b) >= QgroupStatusSize:
			q.Status, q.flags = true, le.Uint64(b[16:])
			if len(b) >= QgroupStatusSize+8 {
				q.enabled = le.Uint64(b[32:])
			}
		case k.Type == format.QGROUP_INFO_KEY && len(b) >= QgroupInfoSize:
			q.Groups[k.Offset] = &Counts{Rfer: le.Uint64(b[8:]), Excl: le.Uint64(b[24:])}
		case k.Type == format.QGROUP_LIMIT_KEY:
			q.Limits[k.Offset] = true
		case k.Type == format.QGROUP_RELATION_KEY:
			q.Pairs[[2]uint64{k.Objectid, k.Offset}] = true
			if k.Objectid < k.Offset { // the other of each pair says the same
				q.parents[k.Objectid] = append(q.parents[k.Objectid], k.Offset)
			}
		}
	}
}

// count adds what was reached to the counts that the qgroups should have. All that reaches an
// extent is there at once.
func (q *Quota) count() {
	if q.want == nil {
		q.want, q.aboves = map[uint64]Counts{}, map[uint64][]uint64{}
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
			w.Rfer += l[0].length
			if k == n {
				w.Excl += l[0].length
			}
			want[id] = w
		}
		l = l[n:]
	}
	q.reach = nil
}

// reaches notes that the subvolume root has a leaf's file extents.
func (q *Quota) reaches(root uint64, n format.Node) {
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
func (q *Quota) above(root uint64) []uint64 {
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
	q := c.Quota
	if !q.Status {
		c.find("quota.item", on(AtTree, format.QUOTA_TREE_OBJECTID), Words("no status"), Words("one"))
	}
	for _, id := range slices.Sorted(maps.Keys(q.Groups)) {
		if !q.Limits[id] {
			c.find("quota.item", on(AtQgroup, id), Words("no limit item"), Words("one"))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(q.Limits)) {
		if q.Groups[id] == nil {
			c.find("quota.item", on(AtQgroup, id), Words("no info item"), Words("one"))
		}
	}
	for _, p := range q.SortedPairs() {
		if !q.Has(p[0]) || !q.Has(p[1]) {
			c.find("quota.item", on(AtQgroup, p[0]), words("a relation to %s", QgroupName(p[1])), Words("one of qgroups that are there"))
		} else if !q.Pairs[[2]uint64{p[1], p[0]}] {
			c.find("quota.item", on(AtQgroup, p[1]), words("no relation to %s", QgroupName(p[0])), Words("one"))
		}
	}
}

// Has reports whether an item says that there is such a qgroup.
func (q *Quota) Has(id uint64) bool { return q.Groups[id] != nil || q.Limits[id] }

// SortedPairs lists the pairs, ascending.
func (q *Quota) SortedPairs() [][2]uint64 {
	return slices.SortedFunc(maps.Keys(q.Pairs), func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
}

// checkQuota compares the counts with what the subvolumes reach or have allocated, unless the quota
// tree itself says that they are out of date. A status that is older than the superblock says
// nothing of the kind: every offline tool of btrfs-progs leaves one, and Linux counts anew then,
// but counts that are right stay right.
func (c *checker) checkQuota() {
	q := c.Quota
	if q == nil {
		return
	}
	simple := q.flags&qgroupSimple != 0
	switch {
	case c.Cut:
		return // what was not visited may be counted
	case !q.Status || q.flags&(qgroupRescan|QgroupInconsistent) != 0:
		c.note("quotas are on and their counts out of date: they are not judged")
		return
	}
	for id, r := range c.Roots {
		if !simple && format.IsFSTree(id) && r.Item.Refs == 0 {
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
func (c *checker) compareQuota(counts map[uint64]Counts, simple bool) {
	q := c.Quota
	for _, id := range slices.Sorted(maps.Keys(q.Groups)) {
		if _, ok := c.Roots[id]; !ok && !simple && id>>qgroupLevelShift == 0 {
			continue
		}
		if have, want := *q.Groups[id], counts[id]; have != want {
			c.find("quota.count", on(AtQgroup, id), Counts{have.Rfer, have.Excl}, Counts{want.Rfer, want.Excl})
		}
	}
}

// allocated counts what the groups have by simple quotas.
func (q *Quota) allocated(list map[owned]uint64) map[uint64]Counts {
	want := map[uint64]Counts{}
	for o, n := range list {
		if o.generation < q.enabled {
			continue
		}
		for _, id := range q.above(o.root) {
			want[id] = Counts{want[id].Rfer + n, want[id].Excl + n}
		}
	}
	return want
}

// reached counts what the groups have by the extents that their subvolumes reach.
func (q *Quota) reached() map[uint64]Counts {
	q.count()
	return q.want
}

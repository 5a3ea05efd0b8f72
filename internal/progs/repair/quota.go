package repair

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/progs/check"
)

// mendQuotaItems writes the items that are missing: no limit, counts that the next check corrects,
// and a status by which Linux counts anew.
func (c *changes) mendQuotaItems() {
	q := c.Quota
	if q == nil {
		return
	}
	put := func(what string, k format.Key, b []byte) {
		c.try(what, c.insertItem(format.QUOTA_TREE_OBJECTID, k, b))
	}
	if !q.Status && c.Super.IncompatFlags&format.IncompatSimpleQuota != 0 {
		c.try("status of quotas", errors.New("since when simple quotas count is lost"))
	} else if !q.Status {
		b := make([]byte, check.QgroupStatusSize)
		// Version, generation, on.
		for i, v := range []uint64{1, c.Super.Generation, 1 | check.QgroupInconsistent} {
			le.PutUint64(b[8*i:], v)
		}
		put("status of quotas, by which a rescan is due", format.Key{Type: format.QGROUP_STATUS_KEY}, b)
	}
	for _, id := range slices.Sorted(maps.Keys(q.Groups)) {
		if !q.Limits[id] {
			put(check.QgroupName(id)+": an item without limits; those it had are lost", format.Key{Type: format.QGROUP_LIMIT_KEY, Offset: id}, make([]byte, check.QgroupInfoSize))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(q.Limits)) {
		if q.Groups[id] == nil {
			b := make([]byte, check.QgroupInfoSize)
			le.PutUint64(b, c.Super.Generation)
			put(check.QgroupName(id)+": an item with counts", format.Key{Type: format.QGROUP_INFO_KEY, Offset: id}, b)
		}
	}
	for _, p := range q.SortedPairs() {
		if !q.Has(p[0]) || !q.Has(p[1]) {
			c.try(fmt.Sprintf("relation of %s to %s, of which one is not there: dropped", check.QgroupName(p[0]), check.QgroupName(p[1])),
				c.deleteItem(format.QUOTA_TREE_OBJECTID, format.Key{Objectid: p[0], Type: format.QGROUP_RELATION_KEY, Offset: p[1]}))
		} else if !q.Pairs[[2]uint64{p[1], p[0]}] {
			put(fmt.Sprintf("%s: its relation to %s", check.QgroupName(p[1]), check.QgroupName(p[0])), format.Key{Objectid: p[1], Type: format.QGROUP_RELATION_KEY, Offset: p[0]}, nil)
		}
	}
}

// mendUUIDs adds what the UUID tree lacks.
func (c *changes) mendUUIDs() {
	for _, u := range c.WantUUIDs() {
		if check.HasUUID(c.UUIDs[u.Key], u.Root) {
			continue
		}
		c.try(fmt.Sprintf("item of the UUID tree for subvolume %d", u.Root), c.changeItem(format.UUID_TREE_OBJECTID, u.Key, func(old []byte, _ bool) ([]byte, bool, error) {
			return le.AppendUint64(old, u.Root), true, nil
		}))
	}
}

package check

import (
	"slices"
	"testing"

	"btrlab/internal/format"
)

// TestQuotaShared: an extent that two subvolumes reach is exclusive to neither, but to the upper
// qgroup that has both; one that a subvolume reaches twice counts once.
func TestQuotaShared(t *testing.T) {
	const up, other = 1<<qgroupLevelShift | 1, 1<<qgroupLevelShift | 2
	reached := []reach{{100, 4, 5}, {100, 4, 5}, {200, 8, 300}, {200, 8, 5}, {300, 16, 300}, {400, 32, 301}}
	right := map[uint64]Counts{5: {12, 4}, 300: {24, 16}, 301: {32, 32}, up: {28, 28}, other: {56, 48}}
	for id := range right {
		for _, wrong := range []Counts{{0, 0}, {1, 0}, {0, 1}} {
			c := &checker{Seen: Seen{Image: Image{Roots: map[uint64]Root{}}, Broken: map[string]bool{}, Quota: &Quota{Status: true, Groups: map[uint64]*Counts{}, reach: slices.Clone(reached),
				parents: map[uint64][]uint64{5: {up}, 300: {up, other}, 301: {other}}}}}
			for _, root := range []uint64{5, 300, 301} {
				c.Roots[root] = Root{Item: format.RootItem{Refs: 1}}
			}
			for id, g := range right {
				c.Quota.Groups[id] = &g
			}
			c.Quota.Groups[id].Rfer += wrong.Rfer
			c.Quota.Groups[id].Excl += wrong.Excl
			c.checkQuota()
			if n := len(c.Findings); n != 1 && wrong != (Counts{}) || n != 0 && wrong == (Counts{}) {
				t.Errorf("%s off by %v: have %v", QgroupName(id), wrong, c.Findings)
			}
		}
	}
}

// TestQuotaSimple: with simple quotas a group has what its subvolumes have allocated since they are
// on, also one whose subvolume is gone, and whatever the commit of the status.
func TestQuotaSimple(t *testing.T) {
	const up = 1<<qgroupLevelShift | 1
	right := map[uint64]Counts{5: {48, 48}, 300: {64, 64}, up: {112, 112}}
	for id := range right {
		for _, wrong := range []Counts{{0, 0}, {1, 0}, {0, 1}} {
			c := &checker{Seen: Seen{Image: Image{Roots: map[uint64]Root{5: {}, 8: {}}}, Broken: map[string]bool{}, Quota: &Quota{Status: true, flags: 1 | qgroupSimple, enabled: 10, Groups: map[uint64]*Counts{},
				parents: map[uint64][]uint64{5: {up}, 300: {up}}}}}
			for _, o := range []struct{ root, length, generation uint64 }{{5, 1, 9}, {5, 16, 10}, {5, 32, 11}, {300, 64, 12}, {7, 128, 12}} {
				c.owns(o.root, o.length, o.generation)
			}
			for id, g := range right {
				c.Quota.Groups[id] = &g
			}
			c.Quota.Groups[id].Rfer += wrong.Rfer
			c.Quota.Groups[id].Excl += wrong.Excl
			c.checkQuota()
			if n := len(c.Findings); n != 1 && wrong != (Counts{}) || n != 0 && wrong == (Counts{}) || len(c.notes) != 0 {
				t.Errorf("%s off by %v: have %v, notes %v", QgroupName(id), wrong, c.Findings, c.notes)
			}
		}
	}
}

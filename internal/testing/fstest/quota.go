package fstest

// Quota groups, and space that is short.

import (
	"slices"
	"strings"

	"btrlab/internal/format"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
)

// JudgedQuota fails unless the checker has compared the counts of the image, and found no fault.
func JudgedQuota(x *Fixture) {
	x.Helper()
	r, err := check.Check(x.T, x.Dev, check.Options{})
	if err != nil {
		x.Fatal(err)
	}
	if !r.Clean || slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "quota") }) {
		x.Fatalf("findings %v, notes %q", r.Findings, r.Notes)
	}
}

// Counts gives what qgroup id has.
func Counts(x *Fixture, id uint64) (rfer, excl uint64) {
	x.Helper()
	q, err := x.FS.Quotas(x.T)
	x.Must(err)
	for _, g := range q.Groups {
		if g.ID == id {
			return g.Rfer, g.Excl
		}
	}
	x.Fatalf("no qgroup %d in %v", id, q)
	return 0, 0
}

// WantWithin fails when the subvolume has more than its limit, or something is still reserved after
// a sync.
func WantWithin(x *Fixture) {
	x.Helper()
	x.Must(x.FS.Sync(x.T))
	q, err := x.FS.Quotas(x.T)
	x.Must(err)
	for _, g := range q.Groups {
		if g.LimitFlags&format.QgroupLimitMaxRfer != 0 && g.Rfer > g.MaxRfer || g.Reserved != 0 {
			x.Errorf("qgroup %s: %d of %d bytes, %d reserved", format.QgroupName(g.ID), g.Rfer, g.MaxRfer, g.Reserved)
		}
	}
	JudgedQuota(x)
}

// Leave takes all space of a kind but so many bytes, until end gives it back.
func Leave(t *sched.Task, m *spaceinfo.Info, bytes uint64) (end func()) {
	taken := uint64(0)
	for n := uint64(1) << 40; n >= format.SectorSize; n /= 2 {
		for m.Reserve(t, n, spaceinfo.NoFlush) == nil {
			taken += n
		}
	}
	m.Release(t, min(bytes, taken))
	taken -= min(bytes, taken)
	return func() { m.Release(t, taken) }
}

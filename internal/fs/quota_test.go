package fs_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs/fstest"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/progs/check"
)

// judgedQuota fails unless the checker has compared the counts of the image, and found no fault.
func judgedQuota(x *fstest.Fixture) {
	x.Helper()
	r, err := check.Check(x.T, x.Dev, check.Options{})
	if err != nil {
		x.Fatal(err)
	}
	if !r.Clean || slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "quota") }) {
		x.Fatalf("findings %v, notes %q", r.Findings, r.Notes)
	}
}

// counts gives what qgroup id has.
func counts(x *fstest.Fixture, id uint64) (rfer, excl uint64) {
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

// The counts follow what is written, overwritten, punched, truncated and deleted, over commits and mounts, and are those that the
// checker makes.
func TestQuotaCounts(t *testing.T) {
	x := fstest.New(t)
	tk := x.T
	old := x.Create("/before")
	x.WriteAt(old, make([]byte, 100<<10), 0)
	x.Must(old.Close(tk))
	if q, err := x.FS.Quotas(tk); err != nil || q.On || len(q.Groups) != 0 {
		t.Fatalf("without quotas: %v, %v", q, err)
	}
	x.Must(x.FS.EnableQuota(tk))
	const node = 16 << 10
	if rfer, excl := counts(x, format.FS_TREE_OBJECTID); rfer != node+100<<10 || excl != rfer {
		t.Errorf("one file of 100 KiB: rfer %d excl %d", rfer, excl)
	}
	x.Reopen()
	judgedQuota(x)
	w := &workload{tb: t, t: tk, f: x.FS, model: tree{}, rng: rand.New(rand.NewPCG(3, 4))}
	for range 8 {
		for range 30 {
			w.step()
		}
		x.Must(x.FS.Sync(tk))
		judgedQuota(x)
	}
	x.Reopen()
	w.f = x.FS
	for name := range w.model {
		x.Must(x.FS.Unlink(tk, "/"+name))
	}
	x.Must(x.FS.Unlink(tk, "/before"))
	x.Must(x.FS.Sync(tk))
	judgedQuota(x)
	if rfer, excl := counts(x, format.FS_TREE_OBJECTID); rfer != node || excl != node {
		t.Errorf("with nothing left: rfer %d excl %d, want %d", rfer, excl, node)
	}
}

// Quotas go off with all that they had, and on again.
func TestQuotaOnOff(t *testing.T) {
	x := fstest.New(t)
	for range 2 {
		x.Must(x.FS.EnableQuota(x.T))
		x.Must(x.FS.EnableQuota(x.T))
		x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 1<<20, false, false))
		if err := x.FS.LimitQuota(x.T, 300, 1<<20, false, false); !errors.Is(err, errno.ENOENT) {
			t.Errorf("limit of a qgroup that is not there: %v", err)
		}
		x.Reopen()
		judgedQuota(x)
		q, err := x.FS.Quotas(x.T)
		x.Must(err)
		if g := q.Groups[0]; !q.On || len(q.Groups) != 1 || g.Path != "/" || g.MaxRfer != 1<<20 || g.LimitFlags != format.QgroupLimitMaxRfer {
			t.Errorf("after the limit: %+v", q)
		}
		x.Must(x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 0, false, true))
		x.Must(x.FS.DisableQuota(x.T))
		x.Must(x.FS.DisableQuota(x.T))
		x.Reopen()
		if q, err := x.FS.Quotas(x.T); err != nil || q.On || len(q.Groups) != 0 {
			t.Errorf("after disable: %+v, %v", q, err)
		}
		if err := x.FS.LimitQuota(x.T, format.FS_TREE_OBJECTID, 1<<20, false, false); !errors.Is(err, qgroup.ErrOff) {
			t.Errorf("limit with quotas off: %v", err)
		}
		if err := x.FS.RescanQuota(x.T); !errors.Is(err, qgroup.ErrOff) {
			t.Errorf("rescan with quotas off: %v", err)
		}
	}
}

// Subvolumes that share extents with snapshots: what only one reaches is exclusive, and what is written or freed in one changes the
// others' counts as well.
func TestQuotaShared(t *testing.T) {
	x := fstest.New(t, fstest.Image(nested))
	tk := x.T
	x.Must(x.FS.EnableQuota(tk))
	judgedQuota(x)
	q, err := x.FS.Quotas(tk)
	x.Must(err)
	var paths []string
	for _, g := range q.Groups {
		paths = append(paths, g.Path)
	}
	if have := strings.Join(paths, " "); have != "/ /sub /sub/d/deep /dir/src /snap /ro" {
		t.Errorf("paths %q", have)
	}
	for _, dir := range []string{"/", "/sub/d/deep"} {
		for _, name := range []string{"a", "b", "c"} {
			f := x.Create(dir + "/" + name)
			x.WriteAt(f, make([]byte, 70000), 0)
			x.Must(f.Close(tk))
		}
	}
	x.Must(x.FS.Sync(tk))
	judgedQuota(x)
	x.Must(x.FS.Unlink(tk, "/sub/d/deep/b"))
	x.Reopen()
	judgedQuota(x)
}

// Counts that are not of the last commit, as when a kernel without quotas has written, are inconsistent until a rescan, and those of
// a rescan that was broken off are made again by the next commit.
func TestQuotaRescan(t *testing.T) {
	for _, flags := range []uint64{format.QgroupStatusInconsistent, format.QgroupStatusRescan} {
		x := fstest.New(t)
		x.Must(x.FS.EnableQuota(x.T))
		x.FS.SpoilQuota(x.T, flags)
		x.Reopen()
		q, err := x.FS.Quotas(x.T)
		if x.Must(err); q.Inconsistent != (flags == format.QgroupStatusInconsistent) {
			t.Errorf("flags %#x: after the open: %+v", flags, q)
		}
		f := x.Create("/f")
		x.WriteAt(f, make([]byte, 100<<10), 0)
		x.Must(f.Close(x.T))
		x.Must(x.FS.Sync(x.T))
		if flags == format.QgroupStatusInconsistent {
			x.Must(x.FS.RescanQuota(x.T))
		}
		judgedQuota(x)
		if q, err = x.FS.Quotas(x.T); err != nil || q.Inconsistent || q.Rescan {
			t.Errorf("flags %#x: in the end: %+v, %v", flags, q, err)
		}
	}
}

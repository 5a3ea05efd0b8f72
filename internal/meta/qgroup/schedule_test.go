package qgroup_test

import (
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/ordered"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/fstest"
)

// TestQuotaSchedules: two writers come to a limit at once. What is counted and promised together is
// never over it. When there is room for all that they write, with a node for each extent that is
// not on disk yet, no write fails: a flush finds it.
func TestQuotaSchedules(t *testing.T) {
	const node, n = 16 << 10, 8 << 10
	image := blockdev.NewMemory(128 << 20)
	if err := mkfs.Make(sched.NewTask("mkfs"), image, mkfs.Options{Now: fstest.Epoch}); err != nil {
		t.Fatal(err)
	}
	o := fstest.Explored("locked")
	for _, c := range []struct {
		name string
		room uint64 // beyond what is there
		full bool   // a write may fail
	}{
		{"room", 4*n + 3*node, false}, {"no room", 3*n + node, true},
	} {
		classes := lockdep.IDs("qgroup_lock", "qgroup_flush", "transaction", "commit")
		classes = append(classes, ordered.WaitClass.ID)
		stopped, flushed := 0, 0
		r := explore.Run(explore.Config{Preemptions: 2, Schedules: fstest.Schedules(250), NoShrink: true, Switch: classes}, func(w *explore.World) {
			x, err := fs.Open(w.Task(), []blockdev.Device{image.Snapshot()}, o)
			fstest.NoError(err)
			var files [2]*fs.File
			for i := range files {
				files[i], err = x.Create(w.Task(), fmt.Sprintf("/f%d", i), 0o644)
				fstest.NoError(err)
			}
			fstest.NoError(x.EnableQuota(w.Task()))
			limits := func(t *sched.Task) (rfer, most uint64) {
				q, err := x.Quotas(t)
				fstest.NoError(err)
				g := q.Groups[0]
				if g.Rfer+g.Reserved > g.MaxRfer && g.LimitFlags != 0 {
					panic(fmt.Sprintf("over the limit: %d and %d reserved, want at most %d", g.Rfer, g.Reserved, g.MaxRfer))
				}
				return g.Rfer, g.MaxRfer
			}
			rfer, _ := limits(w.Task())
			fstest.NoError(x.LimitQuota(w.Task(), format.FS_TREE_OBJECTID, rfer+c.room, false, false))
			before := x.Super(w.Task()).Generation
			for i, f := range files {
				w.Go(fmt.Sprint("writer", i), func(t *sched.Task) {
					for k := range int64(2) {
						_, err := f.WriteAt(t, make([]byte, n), 4*n*k)
						if errors.Is(err, errno.EDQUOT) && c.full {
							stopped++
							err = nil
						}
						fstest.NoError(err)
						limits(t)
					}
				})
			}
			w.Check(func() error {
				x.Pause(w.Task())
				x.Resume(w.Task())
				if x.Super(w.Task()).Generation > before {
					flushed++
				}
				fstest.NoError(x.Sync(w.Task()))
				x.CheckQuiescent(w.Task())
				limits(w.Task())
				return nil
			})
		})
		t.Logf("%s: %v after %d schedules, %d writes stopped, %d executions flushed", c.name, r.Verdict, r.Schedules, stopped, flushed)
		if r.Verdict == explore.Violated || r.Schedules < fstest.Schedules(50) || flushed == 0 || c.full != (stopped > 0) {
			t.Errorf("%s: %v after %d schedules, %d stopped, %d flushed: %s; schedule %q", c.name, r.Verdict, r.Schedules, stopped, flushed, r.Violation, r.Schedule)
		}
	}
}

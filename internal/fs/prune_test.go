package fs_test

import (
	"fmt"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/datatest"
	"btrlab/internal/testing/fstest"
)

// TestPruneSchedules: inodes leave memory while one of them is written back and committed. In
// between it has neither dirty pages nor an item to write, or no pages in hand and an item that
// nobody has written yet. Whenever somebody looks, the file is as long as it was made: from memory,
// or else from the tree.
func TestPruneSchedules(t *testing.T) {
	tk := sched.NewTask("mkfs")
	image := blockdev.NewMemory(128 << 20)
	datatest.Must(t, mkfs.Make(tk, image, mkfs.Options{Now: time.Unix(1e9, 0)}))
	for _, size := range []int{1000, 8192} { // inline, and with an extent
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			cfg := explore.Config{Preemptions: 2, MaxSteps: 50_000, Schedules: fstest.Schedules(300), Switch: lockdep.IDs("page_state", "trans_lock", "inode_hook", "workqueue_idle")}
			r := explore.Run(cfg, func(w *explore.World) {
				o := fstest.Explored("locked!FSYNC_LOG")
				o.CacheInodes = 2
				x, err := fs.Open(w.Task(), []blockdev.Device{image.Snapshot()}, o)
				fstest.NoError(err)
				file := func(name string) *fs.File {
					f, err := x.Create(w.Task(), name, 0o644)
					fstest.NoError(err)
					return f
				}
				f, other := file("/f"), file("/other")
				_, err = f.WriteAt(w.Task(), make([]byte, size), 0)
				fstest.NoError(err)
				fstest.NoError(f.Close(w.Task()))
				// which commits: the item of f is in the tree, its data is not
				fstest.NoError(other.Fsync(w.Task()))
				var open []*fs.File
				for i := range 6 {
					open = append(open, file(fmt.Sprintf("/g%d", i)))
				}
				var bad error
				w.Go("sync", func(t *sched.Task) { fstest.NoError(x.Sync(t)) })
				w.Go("prune", func(t *sched.Task) {
					for _, f := range open {
						fstest.NoError(f.Close(t))
					}
					a, err := x.Stat(t, "/f")
					fstest.NoError(err)
					if a.Size != uint64(size) {
						bad = fmt.Errorf("the file has %d bytes, want %d", a.Size, size)
					}
				})
				w.Check(func() error { return bad })
			})
			if r.Verdict == explore.Violated || r.Schedules < 10 {
				t.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
			}
			t.Logf("%v after %d schedules, %.1f s", r.Verdict, r.Schedules, r.Seconds)
		})
	}
}

package writeback_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/datatest"
)

// Somebody else has a page in hand: it is not dirty any more, not under writeback any more, or has
// no ordered extent yet. A wait for the file, and a sync of all files, end when the data is where
// the trees say, whatever the page's state was when they looked.
func TestInHand(t *testing.T) {
	mem := blockdev.NewMemory(128 << 20)
	datatest.Must(t, mkfs.Make(sched.NewTask("mkfs"), mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	i := slices.IndexFunc(lockdep.Classes(), func(c *lockdep.Class) bool { return c.Name == "extent" })
	extent := lockdep.Classes()[i].ID // writeback has the page and goes on to its range
	for _, c := range []struct {
		name string
		wait func(t *sched.Task, w *datatest.World, ip *inode.Inode) error
	}{
		{"range", func(t *sched.Task, w *datatest.World, ip *inode.Inode) error {
			return w.Engine.WaitOrderedRange(t, ip, 0, pageSize)
		}},
		{"sync", func(t *sched.Task, w *datatest.World, ip *inode.Inode) error { return w.Engine.SyncAll(t) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			// NoCache: the list of busy files is made of counts that are no objects of the
			// explorer.
			cfg := explore.Config{Preemptions: 2, MaxSteps: 20_000, Schedules: 2000, NoCache: true, Switch: []sched.ClassID{pagecache.StateClass.ID, inode.Class.ID, extent}}
			r := explore.Run(cfg, func(x *explore.World) {
				dev := mem.Snapshot()
				w := datatest.Mount(panicTB{t}, x.Task(), dev, dev)
				ip := w.Create(datatest.Nocow)
				datatest.Must(panicTB{t}, w.Write(x.Task(), ip, make([]byte, pageSize), 0))
				var bad error
				x.Go("writeback", func(t *sched.Task) {
					if err := w.Engine.WritePages(t, ip, 0, pagecache.MaxFileEnd, true); err != nil {
						panic(err)
					}
				})
				x.Go(c.name, func(t *sched.Task) {
					x.Call(t) // may begin at any time
					bad = c.wait(t, w, ip)
					if s := ip.Pages.Describe(0); bad == nil && (s != "c" || ip.Ordered.Len() != 0) {
						bad = fmt.Errorf("the wait is over with page state %s and %d ordered extents, want c and 0", s, ip.Ordered.Len())
					}
				})
				x.Check(func() error { return bad })
			})
			if r.Verdict == explore.Violated || r.Schedules < 10 {
				t.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
			}
			t.Logf("%d schedules", r.Schedules)
		})
	}
}

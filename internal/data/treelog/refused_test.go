package treelog_test

import (
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/fstest"
)

// TestFsyncLogRefused: two fsyncs of one file whose names only a commit can make durable: it has
// taken the name of a directory that moved. The first one finds that out, lets the file go and
// commits; the second one comes before the commit. The power goes when one of them has returned:
// the file has its name.
func TestFsyncLogRefused(t *testing.T) {
	image, search := loggedImage(t)
	search.Switch = lockdep.IDs("i_rwsem", "trans_lock")
	search.Schedules = fstest.Schedules(60)
	o := loggedOptions("locked")
	// the file, in the transaction before it got the name
	for _, logged := range []bool{false, true} {
		t.Run(fmt.Sprint(logged), func(t *testing.T) {
			r := explore.Run(search, func(w *explore.World) {
				must := func(err error) {
					if err != nil {
						panic(err)
					}
				}
				dev := image.Snapshot()
				tk := w.Task()
				x, err := fs.Open(tk, []blockdev.Device{dev}, o)
				must(err)
				must(x.Mkdir(tk, "/d", 0o755))
				must(x.Sync(tk))
				f, err := x.Create(tk, "/f", 0o644)
				must(err)
				if logged {
					must(f.Fsync(tk))
				}
				must(x.Rename(tk, "/d", "/e"))
				must(x.Rename(tk, "/f", "/d"))
				var crash [2]*blockdev.Memory
				for i := range crash {
					w.Go(fmt.Sprint("fsync ", i), func(t *sched.Task) {
						must(f.Fsync(t))
						crash[i] = dev.Snapshot()
					})
				}
				w.Check(func() error {
					must(f.Close(tk))
					must(x.Close(tk))
					for i := range crash {
						y, err := fs.Open(tk, []blockdev.Device{crash[i]}, o)
						must(err)
						at, err := y.Lstat(tk, "/d")
						must(y.Close(tk))
						if err != nil || !at.IsRegular() {
							return fmt.Errorf("fsync %d has returned, and the file has lost its name: %v, mode %o", i, err, at.Mode)
						}
					}
					return nil
				})
			})
			t.Logf("%v after %d schedules", r.Verdict, r.Schedules)
			if r.Kind != "" {
				t.Errorf("%s: %s; schedule %q", r.Kind, r.Violation, r.Schedule)
			}
		})
	}
}

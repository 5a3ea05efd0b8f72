package transaction_test

import (
	"fmt"
	"strings"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

var outerClass = lockdep.NewTestClass("outer", "")

// A transaction is a lock depending on its state: one that commits lets no handle in and waits for
// those that are open. A task that takes a lock and then starts a handle waits for the commit, the
// commit for an open handle, and its owner for the lock (labs/reference 9.1, level 11). With the
// handle first, everywhere, nobody does.
func TestCommitDeadlock(tt *testing.T) {
	image := newImage(tt, sched.NewTask("mkfs"), 64<<20).(*blockdev.Memory)
	var id uint64
	prog := func(right bool) func(w *explore.World) {
		return func(w *explore.World) {
			m := open(tt, w.Task(), image.Snapshot())
			id = m.Generation(w.Task()) + 1
			var mu lock.Mutex
			mu.Init(outerClass)
			w.Name(&mu, "mu")
			must := func(err error) {
				if err != nil {
					panic(err)
				}
			}
			start := func(t *sched.Task) *transaction.Handle {
				h, err := m.Start(t, 1)
				must(err)
				return h
			}
			under := func(t *sched.Task) { // the order that everybody should have
				h := start(t)
				mu.Lock(t)
				mu.Unlock(t)
				must(h.End(t))
			}
			w.Go("writer", under)
			w.Go("other", func(t *sched.Task) {
				if right {
					under(t)
					return
				}
				mu.Lock(t)
				must(start(t).End(t))
				mu.Unlock(t)
			})
			w.Go("sync", func(t *sched.Task) { must(m.Commit(t)) })
		}
	}
	cfg := explore.Config{Preemptions: 2, Switch: lockdep.IDs(outerClass.Name, "transaction_writers", "commit")}
	r := explore.Run(cfg, prog(false))
	want := fmt.Sprintf("deadlock: task 0 writer waits for mu, which task 1 other holds; task 1 other waits for the commit of transaction %[1]d, which task 2 sync must get through; "+
		"task 2 sync waits for the open handles of transaction %[1]d, which task 0 writer must end\n", id)
	if r.Kind != explore.KindDeadlock {
		tt.Fatalf("%s, %s: %s", r.Bound, r.Kind, r.Violation)
	}
	if x := explore.Replay(cfg, r.Schedule, prog(false)); !strings.HasPrefix(x.Violation.String(), want) {
		tt.Errorf("schedule %q\nhave %s\nwant %s", r.Schedule, x.Violation, want)
	}
	if r := explore.Run(cfg, prog(true)); r.Verdict != explore.Exhausted {
		tt.Errorf("the right order: %s, %s, schedule %q: %s", r.Bound, r.Kind, r.Schedule, r.Violation)
	}
}

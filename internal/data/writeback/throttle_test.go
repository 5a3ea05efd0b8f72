package writeback_test

import (
	"runtime"
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

// A writer waits at the hard limit, and the flusher has given up or gone to sleep: what keeps the
// writer there is busy, or has become dirty since. Whatever the order, the flusher hears of it and
// the writer goes on.
func TestThrottleSchedules(t *testing.T) {
	const background, hard = 4, 16 // pages
	mem := blockdev.NewMemory(128 << 20)
	datatest.Must(t, mkfs.Make(sched.NewTask("mkfs"), mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	ids := lockdep.IDs("page", "balance_dirty", "flusher_idle")
	write := func(t *sched.Task, w *datatest.World, ip *inode.Inode, from, to uint64) {
		for i := from; i < to; i++ {
			if err := w.WritePage(t, ip, make([]byte, pageSize), i*pageSize); err != nil {
				panic(err)
			}
		}
	}
	throttled := func(t *sched.Task, w *datatest.World) {
		t.Dirty.Pages = 32 // as after a batch
		w.FS.Cache.BDI.BalanceDirty(t)
	}
	for _, c := range []struct {
		name string
		prog func(x *explore.World, w *datatest.World, ip, other *inode.Inode)
	}{
		{"pages are locked", func(x *explore.World, w *datatest.World, ip, other *inode.Inode) {
			write(x.Task(), w, ip, 0, hard+1)
			x.Go("locker", func(t *sched.Task) {
				var pages []*pagecache.Page
				for i := range uint64(hard + 1) {
					if p := ip.Pages.Lock(t, i); p != nil {
						pages = append(pages, p)
					}
				}
				for _, p := range pages {
					p.UnlockPut(t)
				}
			})
			x.Go("writer", func(t *sched.Task) { throttled(t, w) })
		}},
		{"pages become dirty", func(x *explore.World, w *datatest.World, ip, other *inode.Inode) {
			var device []*pagecache.Page // pages that a slow device has
			for i := range uint64(hard - background + 1) {
				p := other.Pages.Grab(x.Task(), i)
				p.SetUptodate()
				other.Pages.StartWriteback(x.Task(), p)
				x.Task().Discharge(p)
				p.UnlockPut(x.Task())
				device = append(device, p)
			}
			write(x.Task(), w, ip, 0, background-1)
			x.Go("writer", func(t *sched.Task) { throttled(t, w) })
			x.Go("other", func(t *sched.Task) {
				write(t, w, ip, background-1, hard+1)
				for _, p := range device {
					other.Pages.EndWriteback(t, p)
				}
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := explore.Run(explore.Config{Preemptions: 2, MaxSteps: 20_000, Schedules: 400, Switch: ids}, func(x *explore.World) {
				dev := mem.Snapshot()
				w := datatest.Mount(panicTB{t}, x.Task(), dev, dev)
				w.FS.Cache.BDI.SetLimits(1<<30, 1<<31)
				ip, other := w.Create(datatest.Nocow), w.Create(0)
				c.prog(x, w, ip, other)
				w.FS.Cache.BDI.SetLimits(background*pageSize, hard*pageSize)
			})
			if r.Verdict == explore.Violated || r.Schedules < 10 {
				t.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
			}
			t.Logf("%v after %d schedules, %.1f s", r.Verdict, r.Schedules, r.Seconds)
		})
	}
}

// Where metadata is short the flusher writes back before a writer has to wait for it, far below the
// background limit of dirty pages.
func TestPreempt(t *testing.T) {
	w := datatest.New(t, 128<<20)
	defer w.Close()
	ip := w.Create(datatest.Nocow)
	meta := w.Manager.Space.Metadata()
	n := uint64(0)
	for ; !meta.Tight(w.T); n++ {
		if err := w.WritePage(w.T, ip, make([]byte, pageSize), 2*n*pageSize); err != nil {
			t.Fatal(err)
		}
	}
	if w.FS.Cache.BDI.OverBackground() {
		t.Fatalf("%d pages are more than the background limit", n)
	}
	for i := 0; meta.Tight(w.T); i++ {
		if i == 1e7 {
			t.Fatal("the flusher has not been kicked, or has given up")
		}
		runtime.Gosched()
	}
}

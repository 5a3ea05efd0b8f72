package writeback_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/fileread"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/datatest"
)

// panicTB makes a failure the panic of the task that noticed it, which ends the run with its
// schedule.
type panicTB struct{ testing.TB }

func (p panicTB) Helper()                   {}
func (p panicTB) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (p panicTB) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (p panicTB) Error(a ...any)            { panic(fmt.Sprint(a...)) }

// Writers of the same pages, a reader, writeback, waits for ordered extents, evictions and commits,
// one step at a time with a switch at every scheduling point: each page ends with the bytes of one
// of the last writes to it, on disk too, nothing stays reserved or locked, and the image is clean.
func TestSchedules(t *testing.T) {
	mem := blockdev.NewMemory(128 << 20)
	datatest.Must(t, mkfs.Make(sched.NewTask("mkfs"), mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	runs := uint64(100)
	if testing.Short() {
		runs = 4
	}
	first := rand.Uint64N(1 << 32)
	for seed := first; seed < first+runs; seed++ {
		flags := []uint64{0, datatest.Nocow}[seed&1]
		dev := mem.Snapshot()
		r := explore.Once(explore.OnceConfig{Strategy: explore.RandomWalk(seed), MaxSteps: 5_000_000},
			func(task *sched.Task) { scheduleRun(panicTB{t}, task, dev, seed, flags) })
		if r.Verdict != explore.OK {
			t.Fatalf("seed %d: %v after %d steps: %s", seed, r.Verdict, len(r.Steps), r.Violation)
		}
		if seed%50 == 0 {
			t.Logf("seed %d: %d steps", seed, len(r.Steps))
		}
		if datatest.CheckImage(t, sched.NewTask("check"), dev); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func scheduleRun(tb testing.TB, t *sched.Task, dev *blockdev.Memory, seed, flags uint64) {
	const pages, writers, ops = 8, 3, 12
	w := datatest.Mount(tb, t, dev, dev)
	w.FS.Cache.BDI.SetLimits(4*pageSize, 16*pageSize)
	ip := w.Create(flags)
	datatest.Must(tb, w.Write(t, ip, make([]byte, pages*pageSize), 0))
	if seed&2 == 0 {
		w.Sync()
	}
	// stamp says who wrote the page: every byte of it the same.
	var last [writers][pages]byte
	var tasks []*sched.Task
	for i := range writers {
		tasks = append(tasks, t.Go(fmt.Sprint("writer", i), func(t *sched.Task) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for n := range ops {
				p := rng.IntN(pages)
				stamp := byte(1 + i*ops + n)
				// No i_rwsem: the locks below it must do, as for an unlocked write inside EOF.
				if err := w.WritePage(t, ip, bytes.Repeat([]byte{stamp}, pageSize), uint64(p)*pageSize); err != nil {
					panic(err)
				}
				last[i][p] = stamp
			}
			lockdep.AssertNone(t)
		}))
	}
	tasks = append(tasks, t.Go("reader", func(t *sched.Task) {
		var ra fileread.State
		for n := range 10 {
			p, err := w.Reader.ReadPage(t, ip, uint64(n%pages), 2, &ra)
			if err != nil {
				panic(err)
			}
			p.Put(t)
			w.FS.Cache.DropClean(t)
		}
	}))
	for i := range 2 {
		tasks = append(tasks, t.Go(fmt.Sprint("syncer", i), func(t *sched.Task) {
			rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
			for range 12 {
				var err error
				switch rng.IntN(6) {
				case 0:
					err = w.Engine.WaitOrderedRange(t, ip, pageSize, 5*pageSize)
				case 1:
					w.Engine.FlushDelalloc(t, 2*pageSize, true)
				case 2:
					err = w.Manager.Commit(t)
				default:
					err = w.Engine.WritePages(t, ip, 0, pagecache.MaxFileEnd, rng.IntN(2) == 0)
				}
				if err != nil {
					panic(err)
				}
			}
		}))
	}
	for _, c := range tasks {
		t.Join(c)
	}
	w.Sync()
	w.FS.Cache.DropClean(t)
	for p := range pages {
		got := w.Read(t, ip, uint64(p)*pageSize, pageSize)
		ok := false
		written := false
		for i := range writers {
			written = written || last[i][p] != 0
			ok = ok || last[i][p] != 0 && got[0] == last[i][p]
		}
		if !written {
			ok = got[0] == 0
		}
		if !ok || !bytes.Equal(got, bytes.Repeat(got[:1], pageSize)) {
			tb.Fatalf("page %d has byte %d, the last writes were %v", p, got[0], last)
		}
	}
	w.Stop()
}

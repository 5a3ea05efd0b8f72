package zero_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/zero"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/datatest"
)

func TestMain(m *testing.M) {
	sched.SetChecked(true)
	os.Exit(m.Run())
}

const block = 4096

// panicTB makes a failure the panic of the task that noticed it, which ends the run with its
// schedule.
type panicTB struct{ testing.TB }

func (p panicTB) Helper()                   {}
func (p panicTB) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (p panicTB) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// The block on one side of a position becomes zeros, in memory and on disk, and nothing else of it;
// an aligned position has no such block.
func TestBlock(t *testing.T) {
	w := datatest.New(t, 256<<20)
	old := bytes.Repeat([]byte{0xff}, 3*block)
	for _, c := range []struct {
		pos    uint64
		side   zero.Side
		lo, hi int
	}{
		{block + 100, zero.After, block + 100, 2 * block}, {block + 100, zero.Before, block, block + 100},
		{block, zero.After, 0, 0}, {2 * block, zero.Before, 0, 0}, {block - 1, zero.After, block - 1, block}, {1, zero.Before, 0, 1},
	} {
		ip := w.Create(0)
		datatest.Must(t, w.Write(w.T, ip, old, 0))
		w.Sync()
		w.FS.Cache.DropClean(w.T)
		datatest.Must(t, zero.Block(w.T, w.Reader, ip, c.pos, c.side))
		w.Sync()
		want := bytes.Clone(old)
		clear(want[c.lo:c.hi])
		w.Expect(ip, want)
	}
	w.Close()
}

// The end of a block is zeroed while the block is being written back: the device gets a page that
// nobody changes, two completions of one block never run at once, and what is on disk in the end is
// what was zeroed.
func TestZeroWaits(t *testing.T) {
	mem := blockdev.NewMemory(128 << 20)
	datatest.Must(t, mkfs.Make(sched.NewTask("mkfs"), mem, mkfs.Options{Now: time.Unix(1e9, 0)}))
	cfg := explore.Config{Preemptions: 2, MaxSteps: 20_000, Schedules: 4000,
		Switch: []sched.ClassID{inode.Class.ID, pagecache.PageClass.ID, pagecache.StableClass.ID, pagecache.StateClass.ID, ordered.WaitClass.ID}}
	r := explore.Run(cfg, func(x *explore.World) {
		dev := mem.Snapshot()
		w := datatest.Mount(panicTB{t}, x.Task(), dev, dev)
		ip := w.Create(0)
		datatest.Must(panicTB{t}, w.Write(x.Task(), ip, bytes.Repeat([]byte{0xff}, block), 0))
		flush := func(t *sched.Task) {
			if err := w.Engine.WritePages(t, ip, 0, pagecache.MaxFileEnd, true); err != nil {
				panic(err)
			}
		}
		x.Go("writeback", flush)
		x.Go("zero", func(t *sched.Task) {
			ip.Lock(t)
			if err := zero.Block(t, w.Reader, ip, 2000, zero.After); err != nil {
				panic(err)
			}
			ip.Unlock(t)
			flush(t)
		})
		x.Finally(func(t *sched.Task) error {
			if err := w.Engine.SyncAll(t); err != nil {
				return err
			}
			w.FS.Cache.DropClean(t)
			have := w.Read(t, ip, 0, block)
			if want := append(bytes.Repeat([]byte{0xff}, 2000), make([]byte, block-2000)...); !bytes.Equal(have, want) {
				return fmt.Errorf("the block ends with %#x, want zeros from 2000 on", have[1990:2010])
			}
			return nil
		})
	})
	if r.Verdict == explore.Violated || r.Schedules < 10 {
		t.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
	}
	t.Logf("%d schedules", r.Schedules)
}

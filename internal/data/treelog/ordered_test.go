package treelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// TestFsyncLogOrdered: an fsync by log does not wait until the trees have what it wrote. A commit
// that comes then frees the log, so it waits for that instead: the power goes when both are over,
// and what was synced is there. A commit that does not wait loses it. With FSYNC_WAIT_ORDERED the
// trees have it before the log, and there is nothing to wait for.
func TestFsyncLogOrdered(t *testing.T) {
	need.Long(t)
	image, search := loggedImage(t)
	page := bytes.Repeat([]byte{7}, 4096)
	for _, c := range []struct {
		policy string
		flight bool
		kind   explore.Kind
	}{
		{"locked", true, ""}, {"locked+WRONG_LOG_UNATTACHED", true, explore.KindOracle},
		{"locked+FSYNC_WAIT_ORDERED+WRONG_LOG_UNATTACHED", false, ""},
	} {
		t.Run(c.policy, func(t *testing.T) {
			o := loggedOptions(c.policy)
			inFlight, both := 0, 0
			search.Schedules = fstest.Schedules(1500)
			r := explore.Run(search, func(w *explore.World) {
				dev := image.Snapshot()
				x := fstest.Must(fs.Open(w.Task(), []blockdev.Device{dev}, o))
				f := fstest.Must(x.Create(w.Task(), "/f", 0o644))
				fstest.NoError(x.Sync(w.Task()))
				synced, committed := false, false
				var crash *blockdev.Memory
				ended := func(done *bool) {
					if *done = true; synced && committed {
						crash = dev.Snapshot()
						both++
					}
				}
				w.Go("fsync", func(t *sched.Task) {
					fstest.Must(f.WriteAt(t, page, 0))
					fstest.NoError(f.Fsync(t))
					if f.Inode().Ordered.Len() > 0 {
						inFlight++
					}
					ended(&synced)
				})
				w.Go("commit", func(t *sched.Task) {
					fstest.NoError(x.Commit(t))
					ended(&committed)
				})
				w.Check(func() error {
					fstest.NoError(f.Close(w.Task()))
					fstest.NoError(x.Close(w.Task()))
					return holdsAfterPowerCut(w.Task(), crash, o, page)
				})
			})
			t.Logf("%v after %d schedules, %d fsyncs returned with an ordered extent in flight", r.Verdict, r.Schedules, inFlight)
			if (inFlight > 0) != c.flight || both == 0 {
				t.Errorf("%d fsyncs returned before their ordered extent was finished; with both over: %d", inFlight, both)
			}
			if r.Kind != c.kind {
				t.Errorf("have %q want %q: %s; schedule %q", r.Kind, c.kind, r.Violation, r.Schedule)
			}
		})
	}
}

// TestFsyncLogPreallocated: two fsyncs by log, each after a write of a preallocated block, with the
// ordered extents of both in flight: the tree has one preallocated extent for all. The second log
// copies that, and with it again what the first one had of the ordered extent. The power goes at
// its end.
func TestFsyncLogPreallocated(t *testing.T) {
	image, search := loggedImage(t)
	o := loggedOptions("fsync-5.17")
	want := append(bytes.Repeat([]byte{7}, 4096), bytes.Repeat([]byte{8}, 4096)...)
	inFlight := 0
	search.Schedules = fstest.Schedules(100)
	r := explore.Run(search, func(w *explore.World) {
		dev := image.Snapshot()
		x := fstest.Must(fs.Open(w.Task(), []blockdev.Device{dev}, o))
		f := fstest.Must(x.Create(w.Task(), "/f", 0o644))
		fstest.NoError(f.Fallocate(w.Task(), fs.FALLOC_FL_KEEP_SIZE, 0, 64<<10))
		fstest.NoError(x.Sync(w.Task()))
		var crash *blockdev.Memory
		w.Go("fsync", func(t *sched.Task) {
			for off := 0; off < len(want); off += 4096 {
				fstest.Must(f.WriteAt(t, want[off:off+4096], int64(off)))
				fstest.NoError(f.Fsync(t))
			}
			if f.Inode().Ordered.Len() > 1 {
				inFlight++
			}
			crash = dev.Snapshot()
		})
		w.Check(func() error {
			fstest.NoError(f.Close(w.Task()))
			fstest.NoError(x.Close(w.Task()))
			return holdsAfterPowerCut(w.Task(), crash, o, want)
		})
	})
	t.Logf("%v after %d schedules, %d ended with both ordered extents in flight", r.Verdict, r.Schedules, inFlight)
	if inFlight == 0 {
		t.Error("no second fsync has returned before the first ordered extent was finished")
	}
	if r.Kind != "" {
		t.Errorf("%s: %s; schedule %q", r.Kind, r.Violation, r.Schedule)
	}
}

// loggedImage makes an image, and a search that switches tasks where an fsync by log, a commit and
// the end of an ordered extent meet.
func loggedImage(tb testing.TB) (*blockdev.Memory, explore.Config) {
	tb.Helper()
	image := blockdev.NewMemory(128 << 20)
	if err := mkfs.Make(sched.NewTask("mkfs"), image, mkfs.Options{Now: fstest.Epoch}); err != nil {
		tb.Fatal(err)
	}
	search := explore.Config{Preemptions: 2, NoShrink: true}
	search.Switch = lockdep.IDs("extent", "trans_lock", "log_mutex", "tree_fs")
	return image, search
}

func loggedOptions(spec string) fs.Options {
	o := fstest.Explored(spec)
	o.FirstFit = true
	return o
}

// holdsAfterPowerCut opens the image as the power cut has left it, with replay, and compares /f.
func holdsAfterPowerCut(t *sched.Task, crash *blockdev.Memory, o fs.Options, want []byte) error {
	x, err := fs.Open(t, []blockdev.Device{crash}, o)
	if err != nil {
		return err
	}
	have, err := fstest.ReadTree(t, x)
	if err := errors.Join(err, x.Close(t)); err != nil {
		return err
	}
	if !bytes.Equal(have["f"], want) {
		return fmt.Errorf("bad file after the power cut, have %d bytes want %d, first other byte %d", len(have["f"]), len(want), fstest.Differs(have["f"], want))
	}
	return nil
}

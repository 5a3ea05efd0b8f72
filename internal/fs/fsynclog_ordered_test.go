package fs_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/fs/fstest"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// TestFsyncLogOrdered: an fsync by log does not wait until the trees have what it wrote. A commit that comes then frees the log, so it waits for
// that instead: the power goes when both are over, and what was synced is there. A commit that does not wait loses it.
func TestFsyncLogOrdered(t *testing.T) {
	image := blockdev.NewMemory(128 << 20)
	page := bytes.Repeat([]byte{7}, 4096)
	task := sched.NewTask("mkfs")
	if err := mkfs.Make(task, image, mkfs.Options{Now: fstest.Epoch}); err != nil {
		t.Fatal(err)
	}
	var classes []sched.ClassID
	for _, name := range []string{"extent", "trans_lock", "log_mutex", "tree_fs"} {
		classes = append(classes, classNamed(name))
	}
	for _, c := range []struct {
		policy string
		kind   explore.Kind
	}{
		{"locked", ""}, {"locked+WRONG_LOG_UNATTACHED", explore.KindOracle},
	} {
		t.Run(c.policy, func(t *testing.T) {
			o := fs.Options{EndioWorkers: 1, CacheBlocks: 64, Memory: fs.NoLimit, FirstFit: true, Policy: policy.MustParse(c.policy),
				Now: func() time.Time { return fstest.Epoch }}
			inFlight, both := 0, 0
			r := explore.Run(explore.Config{Preemptions: 2, Schedules: fstest.Schedules(1500), NoShrink: true, Switch: classes}, func(w *explore.World) {
				must := func(err error) {
					if err != nil {
						panic(err)
					}
				}
				dev := image.Snapshot()
				x, err := fs.Open(w.Task(), dev, o)
				must(err)
				f, err := x.Create(w.Task(), "/f", 0o644)
				must(err)
				must(x.Sync(w.Task()))
				synced, committed := false, false
				var crash *blockdev.Memory
				ended := func(done *bool) {
					if *done = true; synced && committed {
						crash = dev.Snapshot()
						both++
					}
				}
				w.Go("fsync", func(t *sched.Task) {
					_, err := f.WriteAt(t, page, 0)
					must(err)
					must(f.Fsync(t))
					if f.Inode().Ordered.Len() > 0 {
						inFlight++
					}
					ended(&synced)
				})
				w.Go("commit", func(t *sched.Task) {
					must(x.CommitOnly(t))
					ended(&committed)
				})
				w.Check(func() error {
					must(f.Close(w.Task()))
					must(x.Close(w.Task()))
					y, err := fs.Open(w.Task(), crash, o)
					must(err)
					have, err := readTree(w.Task(), y)
					must(errors.Join(err, y.Close(w.Task())))
					if !bytes.Equal(have["f"], page) {
						return fmt.Errorf("bad file after the commit, have %d bytes want the %d that were synced", len(have["f"]), len(page))
					}
					return nil
				})
			})
			t.Logf("%v after %d schedules, %d fsyncs returned with an ordered extent in flight", r.Verdict, r.Schedules, inFlight)
			if inFlight == 0 || both == 0 {
				t.Error("no fsync returned before its ordered extent was finished")
			}
			if r.Kind != c.kind {
				t.Errorf("have %q want %q: %s; schedule %q", r.Kind, c.kind, r.Violation, r.Schedule)
			}
		})
	}
}

// TestFsyncLogPreallocated: two fsyncs by log, each after a write of a preallocated block, with the ordered extents of both in flight: the tree has one
// preallocated extent for all. The second log copies that, and with it again what the first one had of the ordered extent. The power
// goes at its end.
func TestFsyncLogPreallocated(t *testing.T) {
	image := blockdev.NewMemory(128 << 20)
	task := sched.NewTask("mkfs")
	if err := mkfs.Make(task, image, mkfs.Options{Now: fstest.Epoch}); err != nil {
		t.Fatal(err)
	}
	var classes []sched.ClassID
	for _, name := range []string{"extent", "trans_lock", "log_mutex", "tree_fs"} {
		classes = append(classes, classNamed(name))
	}
	o := fs.Options{EndioWorkers: 1, CacheBlocks: 64, Memory: fs.NoLimit, FirstFit: true, Policy: policy.MustParse("fsync-5.17"),
		Now: func() time.Time { return fstest.Epoch }}
	want := append(bytes.Repeat([]byte{7}, 4096), bytes.Repeat([]byte{8}, 4096)...)
	inFlight := 0
	r := explore.Run(explore.Config{Preemptions: 2, Schedules: fstest.Schedules(100), NoShrink: true, Switch: classes}, func(w *explore.World) {
		must := func(err error) {
			if err != nil {
				panic(err)
			}
		}
		dev := image.Snapshot()
		x, err := fs.Open(w.Task(), dev, o)
		must(err)
		f, err := x.Create(w.Task(), "/f", 0o644)
		must(err)
		must(f.Fallocate(w.Task(), fs.FALLOC_FL_KEEP_SIZE, 0, 64<<10))
		must(x.Sync(w.Task()))
		var crash *blockdev.Memory
		w.Go("fsync", func(t *sched.Task) {
			for off := 0; off < len(want); off += 4096 {
				_, err := f.WriteAt(t, want[off:off+4096], int64(off))
				must(err)
				must(f.Fsync(t))
			}
			if f.Inode().Ordered.Len() > 1 {
				inFlight++
			}
			crash = dev.Snapshot()
		})
		w.Check(func() error {
			must(f.Close(w.Task()))
			must(x.Close(w.Task()))
			y, err := fs.Open(w.Task(), crash, o)
			must(err)
			have, err := readTree(w.Task(), y)
			must(errors.Join(err, y.Close(w.Task())))
			if !bytes.Equal(have["f"], want) {
				return fmt.Errorf("bad file after the power cut, have %d bytes want %d, first other byte %d", len(have["f"]), len(want), differs(have["f"], want))
			}
			return nil
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

package fs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// A crash at any flush, with the writes since the flush before it lost, all there, torn, or any
// part of them there, leaves an image that checks clean and holds exactly what the last commit, or
// the one under way, made durable.
func TestCrash(t *testing.T) {
	need.LongRaced(t)
	const commits = 12
	base := blockdev.NewMemory(128 << 20)
	var log *dm.LogWrites
	x := fstest.New(t, fstest.Size(base.Size()), fstest.Wrap(func(dev blockdev.Device) blockdev.Device {
		log = dm.NewLogWrites(dev, dev.(*blockdev.Memory).Snapshot())
		return log
	}))
	w := &fstest.Workload{Tb: t, T: x.T, F: x.FS, Model: fstest.Tree{}, Rng: rand.New(rand.NewPCG(7, 8))}
	snaps := []fstest.Tree{{}}
	log.Mark(x.T, "0")
	for i := 1; i <= commits; i++ {
		for range 25 {
			w.Step()
		}
		if err := x.FS.Sync(x.T); err != nil {
			t.Fatal(err)
		}
		snaps = append(snaps, w.Model.Clone())
		log.Mark(x.T, strconv.Itoa(i))
	}
	images := 0
	// A superblock is 4 KiB and btrfs trusts the device to write it whole, as the kernel does
	// (labs/reference 10.1).
	opt := dm.ImageOptions{SectorBytes: format.SectorSize, Subsets: 3, Seed: 9}
	err := log.Images(x.T, opt, func(t *sched.Task, m dm.Image) error {
		images++
		return checkCrash(t, m, snaps)
	})
	if err != nil {
		t.Fatal(err)
	}
	if images < 4*commits {
		t.Errorf("only %d crash images of %d commits", images, commits)
	}
	t.Logf("%d crash images checked", images)
}

func checkCrash(t *sched.Task, m dm.Image, snaps []fstest.Tree) error {
	r, err := check.Check(t, m.Dev, check.Options{})
	if err != nil {
		return fmt.Errorf("%s: check: %w", m.Name, err)
	}
	if !r.Clean {
		return fmt.Errorf("%s after commit %s: %d findings, first %v", m.Name, m.Mark, len(r.Findings), r.Findings[0])
	}
	f, err := fs.Open(t, []blockdev.Device{m.Dev}, fs.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	have, err := fstest.ReadTree(t, f)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	if err := f.Close(t); err != nil {
		return err
	}
	k, _ := strconv.Atoi(m.Mark)
	d := fstest.Diff(have, snaps[k], m.Pending > 0)
	if d != "" && k+1 < len(snaps) {
		if fstest.Diff(have, snaps[k+1], m.Pending > 0) == "" {
			return nil
		}
	}
	if d != "" {
		return fmt.Errorf("%s: holds neither commit %d (%s) nor the one after", m.Name, k, d)
	}
	return nil
}

// The device fails in the middle of a commit, at every write and flush of it in turn: the commit
// reports EIO, the file system turns read-only, and the image is the last commit, clean.
func TestCommitEIO(t *testing.T) {
	for _, op := range []blockdev.Op{blockdev.OpWrite, blockdev.OpFlush} {
		for nth := int64(1); ; nth++ {
			if !commitWithFault(t, op, nth) {
				if nth == 1 {
					t.Errorf("a commit made no %v", op)
				}
				break
			}
			if nth > 200 {
				t.Fatalf("commit makes more than %d %vs", nth, op)
			}
		}
	}
}

// commitWithFault fails the nth bio of a commit, and reports whether the commit had that many.
func commitWithFault(t *testing.T, op blockdev.Op, nth int64) bool {
	var flakey *dm.Flakey
	x := fstest.New(t, fstest.Size(64<<20), fstest.NoCheck(), fstest.Faults(&flakey))
	w := &fstest.Workload{Tb: t, T: x.T, F: x.FS, Model: fstest.Tree{}, Rng: rand.New(rand.NewPCG(1, uint64(nth)))}
	for range 10 {
		w.Step()
	}
	if err := x.FS.Sync(x.T); err != nil {
		t.Fatal(err)
	}
	committed := w.Model.Clone()
	for range 10 {
		w.Step()
	}
	flakey.Set(dm.Fault{Op: op, Nth: flakey.Count(op) + nth, On: true})
	err := x.FS.Sync(x.T)
	if flakey.Failed() == 0 {
		if err != nil {
			t.Fatalf("sync without a fault: %v", err)
		}
		return false
	}
	if !errors.Is(err, errno.EIO) {
		t.Errorf("%v %d fails, sync says %v, want EIO", op, nth, err)
	}
	if _, err := x.FS.Create(x.T, "/late", 0o644); !errors.Is(err, errno.EROFS) {
		// A data write that fails leaves the trees as they were: only a failed commit aborts.
		if err != nil {
			t.Errorf("create after a failed commit says %v, want EROFS", err)
		}
	}
	flakey.Set()
	x.Close()
	r, err := check.Check(x.T, x.Dev, check.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Clean {
		t.Fatalf("%v %d fails: %d findings, first %v", op, nth, len(r.Findings), r.Findings[0])
	}
	f, err := fs.Open(x.T, []blockdev.Device{x.Dev}, fs.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	have, err := fstest.ReadTree(x.T, f)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close(x.T)
	// A superblock that failed to flush may have reached the device whole.
	if d := fstest.Diff(have, committed, true); d != "" && fstest.Diff(have, w.Model, true) != "" {
		t.Errorf("%v %d fails: image holds neither the last commit (%s) nor the failed one", op, nth, d)
	}
	return true
}

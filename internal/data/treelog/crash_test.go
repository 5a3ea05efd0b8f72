package treelog_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/progs/check"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// TestFsyncLogCrash: as TestCrash, with fsyncs that write logs in the place of commits: the power
// may go at any flush, with any part of the writes since the flush before it. What an fsync that
// has returned promised is there, or what the next one promises, and the image is clean after
// replay.
func TestFsyncLogCrash(t *testing.T) {
	need.Long(t)
	fstest.OneTask(t)
	t.Run("default", func(t *testing.T) { fsyncCrash(t, 40) })
	for _, v := range fstest.Variants() {
		t.Run(v.Name, func(t *testing.T) { fsyncCrash(t, 12, v.Option) })
	}
}

func fsyncCrash(t *testing.T, fsyncs int, more ...fstest.Option) {
	base := blockdev.NewMemory(128 << 20)
	var log *dm.LogWrites
	x := fstest.New(t, fstest.Logging(append(more, fstest.Size(base.Size()), fstest.Wrap(func(dev blockdev.Device) blockdev.Device {
		log = dm.NewLogWrites(dev, dev.(*blockdev.Memory).Snapshot())
		return log
	}), fstest.FSOptions(func(o *fs.Options) { o.FirstFit = true }))...)...)
	w := &fstest.Workload{Tb: t, T: x.T, F: x.FS, Model: fstest.Tree{}, Rng: rand.New(rand.NewPCG(5, 6))}
	snaps := []fstest.Tree{{}} // what is promised after each fsync
	synced := fstest.Tree{}
	log.Mark(x.T, "0")
	for i := 1; i <= fsyncs; i++ {
		before := w.Model.Clone()
		if i%6 == 0 {
			w.Must(x.FS.Sync(x.T))
			synced = w.Model.Clone()
		}
		for range 1 + w.Rng.IntN(4) {
			w.Step()
		}
		for name, b := range before {
			if now, ok := w.Model[name]; !ok || !bytes.Equal(now, b) {
				delete(synced, name)
			}
		}
		if name := w.Pick(); name != "" {
			f := w.Open(name)
			w.Must(f.Fsync(x.T))
			w.Must(f.Close(x.T))
			synced[name] = bytes.Clone(w.Model[name])
		}
		snaps = append(snaps, synced.Clone())
		log.Mark(x.T, strconv.Itoa(i))
	}
	images := 0
	err := log.Images(x.T, dm.ImageOptions{SectorBytes: format.SectorSize, Subsets: 2, Seed: 3}, func(t *sched.Task, m dm.Image) error {
		images++
		f, err := fs.Open(t, []blockdev.Device{m.Dev}, fs.Options{FirstFit: true})
		if err != nil {
			return err
		}
		have, err := fstest.ReadTree(t, f)
		if err != nil {
			return err
		}
		if err := f.Close(t); err != nil {
			return err
		}
		if r, err := check.Check(t, m.Dev, check.Options{}); err != nil || !r.Clean {
			return fmt.Errorf("check: %v %v", r.Findings, err)
		}
		k, _ := strconv.Atoi(m.Mark)
		next := snaps[min(k+1, len(snaps)-1)]
		for _, name := range slices.Sorted(maps.Keys(snaps[k])) {
			b, ok := have[name]
			if ok && bytes.Equal(b, snaps[k][name]) {
				continue
			}
			if n, same := next[name]; !same || ok && bytes.Equal(b, n) || fstest.IsNocow(name) && m.Pending > 0 {
				continue // it was changed meanwhile, and may be as it is after the next fsync
			}
			return fmt.Errorf("after fsync %d: %s", k, fstest.Diff(fstest.Tree{name: b}, fstest.Tree{name: snaps[k][name]}, false))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d crash images of %d fsyncs", images, fsyncs)
	if images < 4*fsyncs {
		t.Errorf("only %d crash images of %d fsyncs", images, fsyncs)
	}
}

// TestFsyncLogTasks: tasks write files of their own and of all, fsync them and create new ones,
// beside a task that commits: the syncs of the log are shared, and a commit frees a log that nobody
// writes. In the end the power goes: every file is as its last fsync left it. So it is when the one
// worker that finishes ordered extents must commit, for want of memory, while logs have some that
// it has not finished.
func TestFsyncLogTasks(t *testing.T) {
	t.Run("plain", func(t *testing.T) { fsyncTasks(t, 0) })
	t.Run("commits by the worker", func(t *testing.T) { fsyncTasks(t, 96<<10) })
}

func fsyncTasks(t *testing.T, dirtyMetadata int64) {
	const tasks, rounds = 6, 12
	var mem *blockdev.Memory
	x := fstest.New(t, fstest.Logging(fstest.Size(128<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
		mem = d.(*blockdev.Memory)
		return d
	}), fstest.FSOptions(func(o *fs.Options) { o.EndioWorkers, o.DirtyMetadata = 1, dirtyMetadata }))...)
	shared := x.Create("/shared")
	page := func(i, n int) []byte { return bytes.Repeat([]byte{byte(i*rounds + n + 1)}, 4096) }
	fstest.Parallel(x.T, tasks+1, func(t *sched.Task, i int) {
		if i == tasks {
			for range rounds / 2 {
				if err := x.FS.Sync(t); err != nil {
					x.Error(err)
				}
			}
			return
		}
		for n := range rounds {
			f, err := x.FS.Create(t, fmt.Sprintf("/f%d-%d", i, n/3), 0o644)
			if err != nil {
				x.Error(err)
				return
			}
			for _, g := range []*fs.File{f, shared} {
				if _, err := g.WriteAt(t, page(i, n), int64(4096*i)); err != nil {
					x.Error(err)
				}
				if err := g.Fsync(t); err != nil {
					x.Error(err)
				}
			}
			if err := f.Close(t); err != nil {
				x.Error(err)
			}
		}
	})
	have := fstest.Recovered(t, x.T, mem.Snapshot())
	for i := range tasks {
		for n := range rounds / 3 {
			name := fmt.Sprintf("f%d-%d", i, n)
			if b := have[name]; len(b) != 4096*(i+1) || !bytes.Equal(b[4096*i:], page(i, 3*n+2)) {
				t.Errorf("%s has %d bytes, or other ones than its last fsync left", name, len(b))
			}
		}
		if b := have["shared"]; !bytes.Equal(b[4096*i:4096*(i+1)], page(i, rounds-1)) {
			t.Errorf("page %d of the shared file begins with %d", i, b[4096*i])
		}
	}
	x.Must(shared.Close(x.T))
}

package treelog_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
)

// TestReplayCrash: the power goes a second time, while a log is replayed: at any flush, with any
// part of the writes since the flush before it. The next replay gives the same files, from the same
// log or from the commit of the first. A replay that does not pin the blocks of the log writes over
// them.
func TestReplayCrash(t *testing.T) {
	var mem *blockdev.Memory
	x := fstest.New(t, fstest.Logging(fstest.Size(128<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
		mem = d.(*blockdev.Memory)
		return d
	}), fstest.FSOptions(func(o *fs.Options) { o.FirstFit = true }))...)
	w := &fstest.Workload{Tb: t, T: x.T, F: x.FS, Model: fstest.Tree{}, Rng: rand.New(rand.NewPCG(7, 8))}
	var logged *blockdev.Memory
	for range 60 {
		w.Step()
	}
	// The log is the first that comes after a commit: its blocks are where a replay would allocate.
	for logged == nil {
		w.Must(x.FS.Sync(x.T))
		w.Step()
		name := w.Pick()
		f := w.Open(name)
		w.Must(f.Fsync(x.T))
		w.Must(f.Close(x.T))
		if fstest.SuperOn(t, x.T, mem).LogRoot != 0 {
			logged = mem.Snapshot()
		}
	}
	want := fstest.Recovered(t, x.T, logged.Snapshot())
	for _, wrong := range []string{"", "+WRONG_LOG_UNPINNED"} {
		dev := logged.Snapshot()
		log := dm.NewLogWrites(dev, dev.Snapshot())
		f, err := fs.Open(x.T, []blockdev.Device{log}, fs.Options{FirstFit: true, Policy: policy.MustParse("locked" + wrong)})
		if err == nil {
			err = f.Close(x.T)
		}
		if err != nil {
			t.Fatal(err)
		}
		images, lost := 0, 0
		err = log.Images(x.T, dm.ImageOptions{SectorBytes: format.SectorSize, Subsets: 8, Seed: 4}, func(t *sched.Task, m dm.Image) error {
			images++
			f, err := fs.Open(t, []blockdev.Device{m.Dev}, fs.Options{FirstFit: true})
			if err == nil {
				var have fstest.Tree
				if have, err = fstest.ReadTree(t, f); err == nil {
					if d := fstest.Diff(have, want, false); d != "" {
						err = fmt.Errorf("%s: %w", d, errno.EIO)
					}
				}
				if cerr := f.Close(t); err == nil {
					err = cerr
				}
			}
			if err != nil && wrong != "" {
				lost++
				return nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%q: %d crash images, %d lost", wrong, images, lost)
		if images < 8 || wrong != "" && lost == 0 {
			t.Errorf("%q: %d crash images, %d lost", wrong, images, lost)
		}
	}
}

package treelog_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/sched"
	"btrlab/internal/testing/fstest"
	"btrlab/internal/testing/need"
)

// TestFsyncLogModel: operations at random; right after each fsync the power goes. Every file that
// was not changed since its fsync, or since a sync, has what it had then, and the image is clean.
func TestFsyncLogModel(t *testing.T) {
	need.Long(t)
	seeds, steps := uint64(4), 400
	// a file system of one task: the detector sees in a part what it sees in all
	if sched.UnderRace {
		seeds, steps = 2, 150
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { fsyncModel(t, seed, steps) })
	}
	for _, v := range fstest.Variants() {
		t.Run(v.Name, func(t *testing.T) { fsyncModel(t, 0, steps/2, v.Option) })
	}
}

func fsyncModel(t *testing.T, seed uint64, steps int, more ...fstest.Option) {
	var mem *blockdev.Memory
	x := fstest.New(t, fstest.Logging(append(more, fstest.Size(128<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
		mem = d.(*blockdev.Memory)
		return d
	}))...)...)
	rng := rand.New(rand.NewPCG(21, seed))
	w := &fstest.Workload{Tb: t, T: x.T, F: x.FS, Model: fstest.Tree{}, Rng: rng}
	synced := fstest.Tree{}
	logs, commits := 0, 0
	for i := range steps {
		before := w.Model.Clone()
		if rng.IntN(40) == 0 {
			w.Must(x.FS.Sync(x.T))
			synced = w.Model.Clone()
		} else {
			w.Step()
		}
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if b, ok := w.Model[name]; !ok || !bytes.Equal(b, before[name]) {
				delete(synced, name)
			}
		}
		name := w.Pick()
		if name == "" || rng.IntN(2) == 0 {
			continue
		}
		gen := x.FS.Super(x.T).Generation
		f := w.Open(name)
		w.Must(f.Fsync(x.T))
		w.Must(f.Close(x.T))
		synced[name] = bytes.Clone(w.Model[name])
		if fstest.SuperOn(t, x.T, mem).LogRoot != 0 {
			logs++
		} else if x.FS.Super(x.T).Generation != gen {
			commits++
		}
		have := fstest.Recovered(t, x.T, mem.Snapshot())
		for _, name := range slices.Sorted(maps.Keys(synced)) {
			if b, ok := have[name]; !ok || !bytes.Equal(b, synced[name]) {
				t.Fatalf("step %d, after fsync of %s: %s", i, name, fstest.Diff(fstest.Tree{name: b}, fstest.Tree{name: synced[name]}, false))
			}
		}
	}
	t.Logf("%d logs, %d commits", logs, commits)
	if logs < steps/10 {
		t.Errorf("only %d of the fsyncs wrote a log", logs)
	}
}

// TestFsyncLogStories: what went wrong, or would without a rule of package treelog. In each a file
// is committed, things happen in one transaction, and the power goes after the last fsync.
func TestFsyncLogStories(t *testing.T) {
	const k = 1024
	fill := func(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }
	for _, c := range []struct {
		name   string
		log    bool                                // the last fsync writes a log
		do     func(x *fstest.Fixture, f *fs.File) // f is /f with 256 KiB of 1, committed
		want   fstest.Tree
		absent []string
	}{
		{"overwrite", true, func(x *fstest.Fixture, f *fs.File) {
			x.WriteAt(f, fill(2, 8*k), 64*k)
			x.Must(f.Fsync(x.T))
		}, fstest.Tree{"f": slices.Concat(fill(1, 64*k), fill(2, 8*k), fill(1, 184*k))}, nil},
		// What the trees have is logged from there, and what is in flight from the ordered extent:
		// TestFsyncLogOrdered.
		{"two overwrites, finished", true, func(x *fstest.Fixture, f *fs.File) {
			for _, at := range []int64{64 * k, 128 * k} {
				x.WriteAt(f, fill(2, 8*k), at)
				x.Must(x.FS.Flush(x.T, f))
				x.Must(f.Inode().Ordered.WaitRange(x.T, 0, 256*k))
			}
			x.Must(f.Fsync(x.T))
		}, fstest.Tree{"f": slices.Concat(fill(1, 64*k), fill(2, 8*k), fill(1, 56*k), fill(2, 8*k), fill(1, 120*k))}, nil},
		// The log does not say what lies beyond the size; the next one must, when the size grows
		// over it.
		{"truncate, fsync, grow", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(f.Truncate(x.T, 16*k))
			x.Must(f.Fsync(x.T))
			x.Must(f.Truncate(x.T, 128*k))
			x.Must(f.Fsync(x.T))
		}, fstest.Tree{"f": append(fill(1, 16*k), make([]byte, 112*k)...)}, nil},
		{"grow, fsync, truncate, fsync, grow", true, func(x *fstest.Fixture, f *fs.File) {
			x.WriteAt(f, fill(2, 64*k), 256*k)
			x.Must(f.Fsync(x.T))
			x.Must(f.Truncate(x.T, 100))
			x.Must(f.Fsync(x.T))
			x.WriteAt(f, fill(3, k), 300*k)
			x.Must(f.Fsync(x.T))
		}, fstest.Tree{"f": slices.Concat(fill(1, 100), make([]byte, 300*k-100), fill(3, k))}, nil},
		{"punch", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(f.Fallocate(x.T, fs.FALLOC_FL_PUNCH_HOLE|fs.FALLOC_FL_KEEP_SIZE, 32*k, 64*k))
			x.Must(f.Fsync(x.T))
		}, fstest.Tree{"f": slices.Concat(fill(1, 32*k), make([]byte, 64*k), fill(1, 160*k))}, nil},
		{"nothing changed", true, func(x *fstest.Fixture, f *fs.File) {
			x.WriteAt(f, fill(2, k), 0)
			x.Must(f.Fsync(x.T))
			x.Must(f.Fsync(x.T))
		}, fstest.Tree{"f": append(fill(2, k), fill(1, 255*k)...)}, nil},
		{"new file in a new directory", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			x.Must(x.FS.Mkdir(x.T, "/d/e", 0o755))
			g := x.Create("/d/e/g")
			x.WriteAt(g, fill(5, 3*k), 0)
			x.Must(g.Fsync(x.T))
			x.Must(g.Close(x.T))
		}, fstest.Tree{"d/e/g": fill(5, 3*k)}, nil},
		{"second name", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Link(x.T, "/f", "/g"))
			x.Must(f.Fsync(x.T))
		}, fstest.Tree{"f": fill(1, 256*k), "g": fill(1, 256*k)}, nil},
		// Replay takes the name from the inode that has it in the last commit; the log must have
		// that inode's other one.
		{"name of a file that was renamed", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Rename(x.T, "/f", "/old"))
			g := x.Create("/f")
			x.WriteAt(g, fill(6, k), 0)
			x.Must(g.Fsync(x.T))
			x.Must(g.Close(x.T))
		}, fstest.Tree{"f": fill(6, k), "old": fill(1, 256*k)}, nil},
		{"renamed file", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Rename(x.T, "/f", "/g"))
			x.Must(f.Fsync(x.T))
		}, fstest.Tree{"g": fill(1, 256*k)}, []string{"f"}},
		// The directory comes with its new name.
		{"file in a new directory that was renamed", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			x.Must(x.FS.Rename(x.T, "/d", "/e"))
			g := x.Create("/e/g")
			x.Must(g.Fsync(x.T))
			x.Must(g.Close(x.T))
		}, fstest.Tree{"e/g": {}}, []string{"d"}},
		{"new names in a directory", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			x.Must(x.FS.Sync(x.T))
			x.Must(x.Create("/d/g").Close(x.T))
			x.Must(x.FS.Fsync(x.T, "/d"))
			x.Must(x.Create("/d/h").Close(x.T))
			x.Must(x.Create("/i").Close(x.T))
			x.Must(x.FS.Fsync(x.T, "/d"))
		}, fstest.Tree{"d/g": {}, "d/h": {}}, []string{"i"}},
		{"names that a directory lost", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			x.Must(x.FS.Link(x.T, "/f", "/d/f"))
			x.Must(x.Create("/d/g").Close(x.T))
			x.Must(x.FS.Sync(x.T))
			x.Must(x.FS.Unlink(x.T, "/d/f"))
			x.Must(x.FS.Rename(x.T, "/d/g", "/g"))
			x.Must(x.FS.Fsync(x.T, "/d"))
		}, fstest.Tree{"f": fill(1, 256*k), "g": {}}, []string{"d/f", "d/g"}},
		// The log has the entry, and another sync takes it out again.
		{"entry of a logged directory that moves on", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			x.Must(x.FS.Sync(x.T))
			g := x.Create("/d/g")
			x.Must(x.FS.Fsync(x.T, "/d"))
			x.Must(x.FS.Rename(x.T, "/d/g", "/g"))
			x.Must(g.Fsync(x.T))
			x.Must(g.Close(x.T))
		}, fstest.Tree{"g": {}}, []string{"d/g"}},
		{"file that is gone from a logged directory", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			x.Must(x.FS.Sync(x.T))
			x.Must(x.Create("/d/g").Close(x.T))
			x.Must(x.FS.Fsync(x.T, "/d"))
			x.Must(x.FS.Unlink(x.T, "/d/g"))
			x.Must(x.FS.Fsync(x.T, "/d"))
		}, fstest.Tree{"f": fill(1, 256*k)}, []string{"d/g"}},
		{"new directories below a directory", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			x.Must(x.FS.Mkdir(x.T, "/d/e", 0o755))
			x.Must(x.Create("/d/e/g").Close(x.T))
			x.Must(x.FS.Fsync(x.T, "/"))
		}, fstest.Tree{"d/e/g": {}}, nil},
		// The directory is deleted with what the last commit has in it: the file has another name
		// by now.
		{"directory that is removed after its file moved out", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			x.Must(x.FS.Mkdir(x.T, "/e", 0o755))
			x.Must(x.FS.Rename(x.T, "/f", "/d/f"))
			x.Must(x.FS.Sync(x.T))
			x.Must(x.FS.Rename(x.T, "/d/f", "/e/g"))
			x.Must(x.FS.Rmdir(x.T, "/d"))
			x.Must(x.FS.Fsync(x.T, "/"))
		}, fstest.Tree{"e/g": fill(1, 256*k)}, []string{"d/f", "d"}},
		// The name is never away: the file that has it now is logged with the one that had it.
		{"name that another file takes over", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			x.Must(x.FS.Link(x.T, "/f", "/d/f"))
			x.Must(x.Create("/g").Close(x.T))
			x.Must(x.FS.Sync(x.T))
			x.Must(x.FS.Rename(x.T, "/g", "/f"))
			x.Must(f.Fsync(x.T))
		}, fstest.Tree{"f": {}, "d/f": fill(1, 256*k)}, []string{"g"}},
		// The first log has g under the name, which takes it from f; the second one must still say
		// that f has lost it.
		{"name of a deleted file that is taken and let go", true, func(x *fstest.Fixture, f *fs.File) {
			g := x.Create("/g")
			x.Must(x.FS.Rename(x.T, "/g", "/f"))
			x.Must(g.Fsync(x.T))
			x.Must(x.FS.Rename(x.T, "/f", "/h"))
			x.Must(g.Fsync(x.T))
			x.Must(g.Close(x.T))
		}, fstest.Tree{"h": {}}, []string{"f", "g"}},
		{"directory that moved", false, func(x *fstest.Fixture, f *fs.File) {
			x.Must(x.FS.Mkdir(x.T, "/d", 0o755))
			x.Must(x.Create("/d/g").Close(x.T))
			x.Must(x.FS.Sync(x.T))
			x.Must(x.FS.Rename(x.T, "/d", "/e"))
			x.Must(x.FS.Fsync(x.T, "/"))
		}, fstest.Tree{"e/g": {}}, []string{"d"}},
		{"reflink", false, func(x *fstest.Fixture, f *fs.File) {
			g := x.Create("/g")
			x.Must(g.Reflink(x.T, f, 0, 0, 0))
			x.Must(g.Fsync(x.T))
			x.Must(g.Close(x.T))
		}, fstest.Tree{"g": fill(1, 256*k)}, nil},
		{"preallocated beyond EOF, then written", true, func(x *fstest.Fixture, f *fs.File) {
			x.Must(f.Fallocate(x.T, fs.FALLOC_FL_KEEP_SIZE, 256*k, 64*k))
			x.Must(f.Fsync(x.T))
			x.WriteAt(f, fill(2, 4*k), 260*k)
			x.Must(f.Fsync(x.T))
		}, fstest.Tree{"f": slices.Concat(fill(1, 256*k), make([]byte, 4*k), fill(2, 4*k))}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mem *blockdev.Memory
			x := fstest.New(t, fstest.Logging(fstest.Size(128<<20), fstest.Wrap(func(d blockdev.Device) blockdev.Device {
				mem = d.(*blockdev.Memory)
				return d
			}))...)
			f := x.Create("/f")
			x.WriteAt(f, fill(1, 256*k), 0)
			x.Must(x.FS.Sync(x.T))
			c.do(x, f)
			if have := fstest.SuperOn(t, x.T, mem).LogRoot != 0; have != c.log {
				t.Errorf("a log is written: have %v want %v", have, c.log)
			}
			y := fstest.New(t, fstest.Wrap(func(blockdev.Device) blockdev.Device { return mem.Snapshot() }))
			for name, want := range c.want {
				if have := y.ReadFile("/" + name); !bytes.Equal(have, want) {
					t.Error(fstest.Diff(fstest.Tree{name: have}, fstest.Tree{name: want}, false))
				}
			}
			for _, name := range c.absent {
				if _, err := y.FS.Lstat(y.T, "/"+name); err == nil {
					t.Errorf("%s is there", name)
				}
			}
			x.Must(f.Close(x.T))
		})
	}
}

package reflink_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/fs"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/testing/fstest"
)

const block = 4096

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// readAt reads the block at off, as much of it as the file has.
func readAt(t *sched.Task, f *fs.File, off int64) []byte {
	p := make([]byte, block)
	n, err := f.ReadAt(t, p, off)
	if err != io.EOF {
		must(err)
	}
	return p[:n]
}

// searched explores a clone of /src, which has its first bytes, into /dst, of size bytes, both on
// disk, beside what prog starts.
func searched(t *testing.T, spec string, first []byte, size int64, locks []string, prog func(w *explore.World, src, dst *fs.File)) {
	t.Helper()
	image := blockdev.NewMemory(128 << 20)
	must(mkfs.Make(sched.NewTask("mkfs"), image, mkfs.Options{Now: fstest.Epoch}))
	cfg := explore.Config{Preemptions: 2, Schedules: fstest.Schedules(400), NoShrink: true, Switch: lockdep.IDs(locks...)}
	r := explore.Run(cfg, func(w *explore.World) {
		x, err := fs.Open(w.Task(), []blockdev.Device{image.Snapshot()}, fstest.Explored(spec))
		must(err)
		src, err := x.Create(w.Task(), "/src", 0o644)
		must(err)
		dst, err := x.Create(w.Task(), "/dst", 0o644)
		must(err)
		_, err = src.WriteAt(w.Task(), first, 0)
		must(err)
		must(dst.Truncate(w.Task(), size))
		must(x.Sync(w.Task()))
		prog(w, src, dst)
	})
	t.Logf("%v after %d schedules", r.Verdict, r.Schedules)
	if r.Verdict == explore.Violated || r.Schedules < 5 {
		t.Errorf("%v after %d schedules: %s; schedule %q", r.Verdict, r.Schedules, r.Violation, r.Schedule)
	}
}

// TestReader: a clone into a hole of a file meets a reader of that file. When the clone has
// returned, every task reads what it has cloned, whatever the reader has left in memory.
func TestReader(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   int64 // of the destination: a hole
		cut    int64 // it is cut to that before the clone
		to, at int64 // where the clone goes, and what is read
		locks  []string
	}{
		// The reader locks its block alone, and remembers the hole as far as it goes.
		{"the hole before it", 4 * block, 4 * block, 2 * block, block, []string{"i_rwsem", "extent", "tree_fs"}},
		// The reader has seen the size of before the cut, and finds its block beyond the end.
		{"the block beyond the end", 2 * block, block, block, block, []string{"i_rwsem", "page", "extent"}},
	} {
		for _, name := range []string{"locked", "modern"} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				ones := bytes.Repeat([]byte{1}, block)
				searched(t, name, ones, c.size, c.locks, func(w *explore.World, src, dst *fs.File) {
					w.Go("clone", func(t *sched.Task) {
						w.Call(t)
						must(dst.Truncate(t, c.cut))
						must(dst.Reflink(t, src, 0, block, c.to))
					})
					w.Go("reader", func(t *sched.Task) { w.Call(t); readAt(t, dst, c.at) })
					w.Check(func() error {
						if p := readAt(w.Task(), dst, c.to); !bytes.Equal(p, ones) {
							return fmt.Errorf("the block at %d has %d bytes that begin with %d, want %d of 1", c.to, len(p), p[0], block)
						}
						return nil
					})
				})
			})
		}
	}
}

// TestSourceWriter: a clone of a range that is being written has all of the write, or nothing of
// it.
func TestSourceWriter(t *testing.T) {
	const size = 9 * block // two batches
	for _, name := range []string{"locked", "range-lock", "unlocked-drain", "modern"} {
		t.Run(name, func(t *testing.T) {
			locks := []string{"i_rwsem", "dio_wait", "range_lock", "extent"}
			searched(t, name, bytes.Repeat([]byte{1}, size), 0, locks, func(w *explore.World, src, dst *fs.File) {
				w.Go("clone", func(t *sched.Task) { must(dst.Reflink(t, src, 0, size, 0)) })
				w.Go("writer", func(t *sched.Task) {
					t.Dirty = sched.DirtyState{Pause: policy.BatchMinPages}
					_, err := src.WriteAt(t, bytes.Repeat([]byte{2}, size), 0)
					must(err)
				})
				w.Check(func() error {
					first, last := readAt(w.Task(), dst, 0), readAt(w.Task(), dst, size-block)
					if first[0] != last[0] {
						return fmt.Errorf("the clone begins with %d and ends with %d", first[0], last[0])
					}
					return nil
				})
			})
		})
	}
}

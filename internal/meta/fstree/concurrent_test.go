package fstree

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// TestConcurrentFiles lets tasks change files of their own whose items share leaves, and checksums
// in interleaved disk ranges. Each task's file must be as if it had been alone; lockdep watches.
func TestConcurrentFiles(t *testing.T) {
	const tasks = 4
	e := newEnv(t, 4096)
	var files []*modelFile
	for i := range uint64(tasks) {
		files = append(files, &modelFile{ino: format.Ino(257 + i)})
		e.inode(format.Ino(257+i), format.S_IFREG|0o644)
	}
	ops := 400
	if testing.Short() {
		ops = 100
	}
	errs := make([]error, tasks)
	var list []*sched.Task
	for i, m := range files {
		list = append(list, e.t.Go(fmt.Sprintf("writer-%d", i), func(tk *sched.Task) {
			errs[i] = e.randomWrites(tk, m, uint64(i), tasks, ops)
		}))
	}
	for _, c := range list {
		e.t.Join(c)
	}
	for i, err := range errs {
		if err != nil {
			t.Fatalf("task %d: %v", i, err)
		}
	}
	e.verify(files)
	out, have := make([]uint32, ops*tasks), make([]bool, ops*tasks)
	e.ok(lookupCRCs(e.t, e.s.Csums, 1<<50, uint64(len(out))*sector, out, have))
	for i := range out {
		// Every third checksum of a task was deleted again.
		op := i / tasks
		if want := op%3 != 0; have[i] != want || want && out[i] != uint32(i) {
			t.Fatalf("checksum %d: have %v %d want %v %d", i, have[i], out[i], want, i)
		}
	}
	e.commit()
}

func (e *env) randomWrites(t *sched.Task, m *modelFile, id, tasks uint64, ops int) error {
	rnd := rand.New(rand.NewPCG(id, 9))
	disk := 1<<40 + id<<36
	for op := range uint64(ops) {
		from := uint64(rnd.IntN(cells))
		to := from + 1 + uint64(rnd.IntN(min(cells-int(from), 30)))
		n := (to - from) * sector
		if _, err := e.s.DropExtents(t, e.tr, e.fs, m.ino, from*sector, to*sector, DropOptions{}); err != nil {
			return err
		}
		clear(m.cells[from:to])
		if rnd.IntN(4) > 0 {
			fe := format.FileExtent{Type: format.FileExtentTypePrealloc, DiskBytenr: disk, DiskNumBytes: n, NumBytes: n, RAMBytes: n}
			if err := e.s.InsertFileExtent(t, e.tr, e.fs, m.ino, from*sector, &fe); err != nil {
				return err
			}
			if err := e.refs.AllocReservedFileExtent(t, e.tr, refOf(e.fs, m.ino, from*sector), format.Logical(disk), n); err != nil {
				return err
			}
			a := from + uint64(rnd.IntN(int(to-from)))
			b := a + 1 + uint64(rnd.IntN(int(to-a)))
			if err := e.s.MarkExtentWritten(t, e.tr, e.fs, m.ino, a*sector, b*sector); err != nil {
				return err
			}
			for i := from; i < to; i++ {
				m.cells[i] = cell{disk + (i-from)*sector, i < a || i >= b}
			}
			disk += n
		}
		item := format.InodeItem{Mode: format.S_IFREG | 0o644, Nbytes: m.nbytes()}
		if err := e.s.UpdateInode(t, e.tr, e.fs, m.ino, &item); err != nil {
			return err
		}
		k := op*tasks + id
		if err := e.s.InsertCsums(t, e.tr, 1<<50+k*sector, crcs(uint32(k))); err != nil {
			return err
		}
		if op%3 == 0 {
			if err := e.s.DelCsums(t, e.tr, 1<<50+k*sector, sector); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestLookupBesideInsert: while a look-up goes from one leaf to the next, an extent before the
// offset may come in. It is not the extent at the offset.
func TestLookupBesideInsert(t *testing.T) {
	const files, off = 300, 8 * sector
	e := newEnv(t, 4096)
	hole := func(n uint64) *format.FileExtent {
		return &format.FileExtent{Type: format.FileExtentTypeReg, NumBytes: n, RAMBytes: n}
	}
	for i := range format.Ino(files) {
		e.inode(257+i, format.S_IFREG|0o644)
		e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257+i, 0, hole(sector)))
		e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257+i, 16*sector, hole(sector)))
	}
	rounds := 30
	if testing.Short() {
		rounds = 10
	}
	var stop atomic.Bool
	var failed error
	writer := e.t.Go("writer", func(tk *sched.Task) {
		defer stop.Store(true)
		for r := range rounds {
			for i := range format.Ino(files) {
				if failed = e.s.InsertFileExtent(tk, e.tr, e.fs, 257+i, 4*sector, hole(sector)); failed != nil {
					return
				}
				if r%2 == 0 {
					continue // the next round finds it
				}
				if _, failed = e.s.DropExtents(tk, e.tr, e.fs, 257+i, 4*sector, 5*sector, DropOptions{}); failed != nil {
					return
				}
			}
			if r%2 == 0 {
				for i := range format.Ino(files) {
					if _, failed = e.s.DropExtents(tk, e.tr, e.fs, 257+i, 4*sector, 5*sector, DropOptions{}); failed != nil {
						return
					}
				}
			}
		}
	})
	var wrong string
	reader := e.t.Go("reader", func(tk *sched.Task) {
		for i := format.Ino(0); !stop.Load() && wrong == ""; i = (i + 1) % files {
			start, fe, ok, err := e.s.LookupFileExtent(tk, e.fs, 257+i, off)
			if err != nil || ok || start <= off {
				wrong = fmt.Sprintf("file %d at %d: have [%d, %d), covers %v, %v, want a hole", 257+i, off, start, start+fe.NumBytes, ok, err)
			}
		}
	})
	e.t.Join(writer)
	e.t.Join(reader)
	e.ok(failed)
	if wrong != "" {
		t.Error(wrong)
	}
}

// TestDropBesideInsert: while a drop goes from one leaf to the next, an extent before its range may
// come in. It is not the first one of the range.
func TestDropBesideInsert(t *testing.T) {
	const files, at, early = 40, 16 * sector, 4 * sector
	e := newEnv(t, 4096)
	hole := &format.FileExtent{Type: format.FileExtentTypeReg, NumBytes: sector, RAMBytes: sector}
	var ino format.Ino // its inode is the last item of a leaf, its extent the first one of the next
	for i := range format.Ino(files) {
		e.inode(257+i, format.S_IFREG|0o644)
		for n := range 1 + uint64(i)%4 { // the ends of leaves come at other items
			e.ok(e.s.InsertFileExtent(e.t, e.tr, e.fs, 257+i, at+n*sector, hole))
		}
	}
	for i := format.Ino(257); ino == 0 && i < 257+files; i++ {
		var p ctree.Path
		_, err := e.f.SearchSlot(e.t, nil, e.fs, extentKey(i, 0), &p, 0, false)
		e.ok(err)
		if p.Slot() == p.Leaf().Nritems() {
			ino = i
		}
		p.Release(e.t)
	}
	if ino == 0 {
		t.Fatalf("of %d files, none has its extent in the leaf after its inode", files)
	}
	for seed := range uint64(20) {
		r := explore.Once(explore.OnceConfig{Strategy: explore.RandomWalk(seed)}, func(tk *sched.Task) {
			tk.Go("writer", func(tk *sched.Task) {
				for i := range 10 {
					e.ok(e.s.InsertFileExtent(tk, e.tr, e.fs, ino, early, hole))
					res, err := e.s.DropExtents(tk, e.tr, e.fs, ino, early, early+sector, DropOptions{})
					e.ok(err)
					if res.Items != 1 {
						t.Errorf("seed %d, round %d: the extent before the range went away", seed, i)
					}
				}
			})
			tk.Go("dropper", func(tk *sched.Task) {
				for range 20 {
					res, err := e.s.DropExtents(tk, e.tr, e.fs, ino, 8*sector, 10*sector, DropOptions{})
					e.ok(err)
					if res.Items != 0 {
						t.Errorf("seed %d: %d items dropped of a range that has none", seed, res.Items)
					}
				}
			})
		})
		if r.Verdict != explore.OK || t.Failed() {
			t.Fatalf("seed %d: %v: %s", seed, r.Verdict, r.Violation)
		}
	}
}

// TestCsumsBesideInsert is TestLookupBesideInsert for checksums.
func TestCsumsBesideInsert(t *testing.T) {
	const groups, stride, base = 600, 32 * sector, 1 << 40
	e := newEnv(t, 4096)
	c := e.s.Csums
	for i := range uint64(groups) {
		e.ok(c.InsertCsums(e.t, e.tr, base+i*stride, crcs(1)))
		e.ok(c.InsertCsums(e.t, e.tr, base+i*stride+16*sector, crcs(1)))
	}
	rounds := 30
	if testing.Short() {
		rounds = 10
	}
	var stop atomic.Bool
	var failed error
	writer := e.t.Go("writer", func(tk *sched.Task) {
		defer stop.Store(true)
		for range rounds {
			for i := range uint64(groups) {
				if failed = c.InsertCsums(tk, e.tr, base+i*stride+4*sector, crcs(2)); failed != nil {
					return
				}
			}
			for i := range uint64(groups) {
				at := base + i*stride + 4*sector
				if failed = c.DelCsums(tk, e.tr, at, sector); failed != nil {
					return
				}
			}
		}
	})
	var wrong string
	reader := e.t.Go("reader", func(tk *sched.Task) {
		out, have := make([]uint32, 4), make([]bool, 4)
		for i := uint64(0); !stop.Load() && wrong == ""; i = (i + 1) % groups {
			at := base + i*stride + 8*sector
			if err := lookupCRCs(tk, c, at, 4*sector, out, have); err != nil || have[0] || have[3] {
				wrong = fmt.Sprintf("group %d: have %v, %v, want none", i, have, err)
			}
		}
	})
	e.t.Join(writer)
	e.t.Join(reader)
	e.ok(failed)
	if wrong != "" {
		t.Error(wrong)
	}
}

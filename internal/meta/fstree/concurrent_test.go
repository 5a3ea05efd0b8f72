package fstree

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// TestConcurrentFiles lets tasks change files of their own whose items share leaves, and checksums in
// interleaved disk ranges. Each task's file must be as if it had been alone; lockdep watches.
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
		if _, err := e.s.DropExtents(t, e.tr, e.fs, m.ino, from*sector, to*sector, DropOptions{ReadFirst: op%2 == 0}); err != nil {
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
		if err := e.s.InsertCsums(t, e.tr, 1<<50+k*sector, []uint32{uint32(k)}); err != nil {
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

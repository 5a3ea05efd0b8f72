package grade

import (
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/data/inode"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/vtime"
)

// The measurement of lab 5.
const (
	ratioTasks  = 8  // and CPUs
	ratioWrites = 64 // of each
	ratioBytes  = 64 << 10
	minRatio    = 3
)

// disjointRatio measures how much faster disjoint writes are with the student's lock than under i_rwsem, in virtual time.
func disjointRatio(s *Student) (bool, string, error) {
	base, err := disjoint("locked", nil)
	if err != nil {
		return false, "", err
	}
	mine, err := disjoint("range-lock", s.NewRangeLock)
	if err != nil {
		return false, "", err
	}
	x := float64(base) / float64(mine)
	return x >= minRatio, fmt.Sprintf("%.2f times locked: %.1f ms against %.1f ms of virtual time, want %d", x, float64(mine)/1e6, float64(base)/1e6, minRatio), nil
}

// disjoint is the virtual time that the writers take, in nanoseconds.
func disjoint(pol string, rangeLocks func() inode.RangeLocker) (int64, error) {
	dog.again()
	const size = ratioTasks * ratioWrites * ratioBytes
	var out error
	var took int64
	_, err := vtime.Run(vtime.Machine{CPUs: ratioTasks}, func(t *sched.Task) {
		fail := func(err error) bool {
			if err != nil && out == nil {
				out = err
			}
			return err != nil
		}
		dev := blockdev.NewMemory(1 << 30)
		if fail(mkfs.Make(t, dev, mkfs.Options{})) {
			return
		}
		x, err := fs.Open(t, dev, fs.Options{Policy: policy.MustParse(pol), DirtyLimit: 2 * size, DirtyBackground: 2 * size, NewRangeLocker: rangeLocks})
		if fail(err) {
			return
		}
		f, err := x.Create(t, "/file", 0o644)
		if fail(err) || fail(f.SetFlags(t, format.InodeNoDataCow)) || fail(f.Fallocate(t, 0, 0, size)) {
			return
		}
		begin := t.Now()
		var writers []*sched.Task
		for i := range ratioTasks {
			writers = append(writers, t.Go(fmt.Sprint("writer ", i), func(t *sched.Task) {
				p := make([]byte, ratioBytes)
				for n := range ratioWrites {
					// Neighbours in the file belong to different writers.
					if _, err := f.WriteAt(t, p, int64(n*ratioTasks+i)*ratioBytes); fail(err) {
						return
					}
				}
			}))
		}
		for _, w := range writers {
			t.Join(w)
		}
		took = t.Now() - begin
		if fail(f.Close(t)) {
			return
		}
		fail(x.Close(t))
	})
	if out == nil {
		out = err
	}
	return took, out
}

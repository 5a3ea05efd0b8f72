package judges

import (
	"errors"
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/policy"
	"btrlab/internal/progs/mkfs"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/vtime"
	"btrlab/internal/study/sandbox"
)

// The measurement of lab 5.
const (
	ratioTasks  = 8  // and CPUs
	ratioWrites = 64 // of each
	ratioBytes  = 64 << 10

	measuredBytes = ratioTasks * ratioWrites * ratioBytes // of the file
)

// disjoint is the virtual time that writers of different pages inside EOF take under a policy, in
// nanoseconds. With judged set what it has written is judged, and
// requests meet in the file afterwards.
func disjoint(pol string, lab iopath.Lab, judged *meeting) (took int64, err error) {
	const size = measuredBytes
	r := rig{cpus: ratioTasks, flags: format.InodeNoDataCow, opt: fs.Options{Policy: policy.MustParse(pol), DirtyLimit: 2 * size, DirtyBackground: 2 * size, Lab: lab}}
	err = r.run(func(t *sched.Task, _ *fs.FS, f *fs.File) error {
		if err := f.Fallocate(t, 0, 0, size); err != nil {
			return err
		}
		w := newRecorder(t, f)
		if took, err = inTasks(t, ratioTasks, func(t *sched.Task, i int) error {
			p := make([]byte, ratioBytes)
			// Neighbours in the file belong to different writers.
			return times(ratioWrites, func(n int) error { return w.write(t, int64(n*ratioTasks+i)*ratioBytes, p, 0) })
		}); err != nil || judged == nil {
			return err
		}
		if err := w.judge(t, 0, size, judged.rule, "in what was measured"); err != nil {
			return err
		}
		return judged.meet(t, f)
	})
	return took, err
}

// speedup reports whether mine takes a least-th of base or less, both in nanoseconds of virtual
// time, and says so; name is what base is.
func speedup(name string, least float64, base, mine func() (int64, error)) (bool, string, error) {
	b, err := base()
	if err != nil {
		return false, "", err
	}
	m, err := mine()
	if err != nil {
		return false, "", err
	}
	x := float64(b) / float64(m)
	return x >= least, fmt.Sprintf("%.2f times %s: %.1f ms against %.1f ms of virtual time, want %v", x, name, float64(m)/1e6, float64(b)/1e6, least), nil
}

// rig is what a measurement runs on: a simulated machine, and a file of a new file system on a
// device in memory.
type rig struct {
	cpus  int
	flags uint64 // of the file
	model string // of the device; "" has none
	opt   fs.Options
	costs *cost.Table // nil is the default
	late  *lateDevice // if set, is put over the memory
}

// run runs body in virtual time and returns its error, or what went wrong around it.
func (r rig) run(body func(t *sched.Task, x *fs.FS, f *fs.File) error) error {
	sandbox.Again()
	var err error
	_, wrong := vtime.Run(vtime.Machine{CPUs: r.cpus, Costs: r.costs}, func(t *sched.Task) { err = r.open(t, body) })
	return errors.Join(err, wrong)
}

func (r rig) open(t *sched.Task, body func(t *sched.Task, x *fs.FS, f *fs.File) error) (err error) {
	var dev blockdev.Device = blockdev.NewMemory(1 << 30)
	if r.late != nil {
		r.late.Memory = blockdev.NewMemory(1 << 30)
		dev = r.late
	}
	if r.model != "" {
		p, err := dm.Parse(r.model)
		if err != nil {
			return err
		}
		dev = dm.New(t, dev, p)
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if err = mkfs.Make(t, dev, mkfs.Options{}); err != nil {
		return err
	}
	x, err := fs.Open(t, []blockdev.Device{dev}, r.opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close(t)) }()
	f, err := x.Create(t, "/file", 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(t)) }()
	if err = f.SetFlags(t, r.flags); err != nil {
		return err
	}
	return body(t, x, f)
}

// inTasks runs body in n tasks and returns the virtual time until the last of them has ended, in
// nanoseconds.
func inTasks(t *sched.Task, n int, body func(t *sched.Task, i int) error) (int64, error) {
	errs := make([]error, n)
	begin := t.Now()
	var writers []*sched.Task
	for i := range n {
		writers = append(writers, t.Go(fmt.Sprint("writer ", i), func(t *sched.Task) { errs[i] = body(t, i) }))
	}
	for _, w := range writers {
		t.Join(w)
	}
	return t.Now() - begin, errors.Join(errs...)
}

// times calls do with 0 to n-1, until it fails.
func times(n int, do func(i int) error) error {
	for i := range n {
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

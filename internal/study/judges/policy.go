package judges

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/module"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/internal/trace"
	"btrlab/labs/kit"
)

// Policy is lab 12: a policy of one's own.
type Policy struct {
	New func() kit.Policy
	// Profile, if set, gets the waits of what is measured.
	Profile LockProfile
}

// About says what the lab is.
func (Policy) About() *About {
	return &About{N: 12, Folder: "12-capstone", Title: "A policy of one's own", Minutes: 240, File: "policy.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath, "cmp", "fmt", "math", "slices", "sort"}, Entry: "New", Shared: true,
			Want: "func New() *Policy, which has Write, Read, Truncate, Fallocate and Fsync (t *kit.Task, and a pointer to the kit's type of the operation)"},
			"judges.Policy{New: func() kit.Policy { return student.New() }, Profile: profile.NewLocks()}",
			sandbox.KitPath, module.Path+"/internal/measure/profile"),
		Essay: &Essay{File: "REPORT.md", Points: 10, least: 200,
			Sections: []string{"Idea", "Invariants", "What it is good for", "What it costs", "What I could not show"}}}
}

// lab is the student's policy as the file system takes it. watch, if set, is put between its
// operations and their locks.
func (l Policy) lab(watch func(iopath.FileSteps) iopath.FileSteps) iopath.Lab {
	return iopath.Lab{File: func() iopath.FilePolicy { return kit.PolicyRunner{Policy: l.New(), Watch: watch} }}
}

// labBase is the policy of a file system with a policy of the student's: what does not go by the
// steps of the kit follows it. Dirty throttling is the student's, and so is not in a batch.
const labBase = "locked+BALANCE_OUTSIDE" + commits

// labSchedules bounds each pass of each search of lab 12, so that all of them together take less
// than a minute.
const labSchedules = 200

// families are the rows of lab 12's scenarios. Every scenario of the matrix whose operations go by
// the steps of the kit is in one.
var families = []struct {
	family
	scenarios []string
	// far are those of scenarios that are tried a second time, far from the start of a large file.
	far []string
}{
	{family{"truncate", "writers, readers and writeback with a truncate: what was cut is gone, and i_size stays", 10}, []string{
		"truncate-race", "truncate-into", "truncate-above", "truncate-grow", "two-writers-truncate", "truncate-rewrite",
		"long-write-truncate", "three-truncate", "three-inside",
		"truncate-writeback", "grow-writeback", "truncate-fsync"}, []string{"truncate-race", "two-writers-truncate"}},
	{family{"writers", "two writers or three: no write is mixed into another, and none gets lost at the end of the file", 10}, []string{
		"two-writers-same", "two-writers-nested", "two-writers-overlap", "two-writers-disjoint", "two-writers-page", "two-writers-eof",
		"writer-eof-inside", "two-writers-extend", "three-overlap", "two-appends", "page-and-extent"}, []string{"two-writers-same", "two-appends"}},
	{family{"direct", "direct reads and writes, which keep the rules of Linux 4.17, beside yours", 6}, []string{
		"direct-reader", "direct-buffered", "direct-readahead", "direct-truncate", "direct-read-truncate", "direct-punch", "direct-grow", "direct-fsync",
		"direct-dsync"}, []string{"direct-truncate", "direct-buffered"}},
	{family{"holes", "holes and allocations beside writers and writeback", 6}, []string{
		"writer-punch", "long-write-punch", "writer-fallocate", "punch-writeback", "prealloc-punch"}, []string{"long-write-punch"}},
	{family{"readers", "a reader sees each page as it was before a write or after it", 4}, []string{
		"writer-reader", "reader-writeback", "mmap-source", "short-copy"}, []string{"writer-reader"}},
	{family{"writeback", "writeback of what is being overwritten: the device gets stable pages", 6}, []string{
		"stable-pages", "ordered-retry", "page-state-wait", "nocow-rewrite", "append-writeback", "nocow-snapshot", "snapshot-writeback"}, []string{"stable-pages"}},
	{family{"fsync", "what fsync has promised is there after a power cut", 4}, []string{
		"fsync-writer", "fsync-writeback", "page-state-fsync", "nocow-fsync"}, []string{"fsync-writer"}},
	{family{"space", "space and dirty pages run short: nobody waits for ever, nothing leaks", 4}, []string{
		"enospc", "balance-dirty", "range-and-space"}, []string{"range-and-space"}},
}

// Workloads are every scenario of the matrix that goes by the steps of the kit,
// then what the policy costs.
func (l Policy) Workloads() []Workload {
	var rows []Workload
	n := 0 // of those elsewhere
	for i := range families {
		f := &families[i]
		for _, name := range f.scenarios {
			s := withLocks(name)
			rows = append(rows, Workload{name: name, asks: s.About, family: &f.family, policy: labBase, scenario: s, limit: labSchedules})
		}
		for k, name := range f.far {
			i := slices.IndexFunc(rows, func(w Workload) bool { return w.name == name })
			w := rows[i]
			p := places[(n+k)%len(places)]
			n++
			for _, x := range []*scenario.Scenario{w.scenario.Far("far-"+name, jobs[(i+k)%2].size-w.scenario.File.Size), w.scenario.Wide(name+p.name, p.at, p.times)} {
				w.name, w.asks, w.scenario = x.Name, x.About, x
				rows = append(rows, w)
			}
		}
	}
	for i := range jobs {
		j := &jobs[i]
		rows = append(rows, Workload{name: j.name, asks: j.asks(), points: j.points, measure: func(clean bool, r *grade.Row) error { return j.measure(l, clean, r) }})
	}
	return with(l.lab(nil), rows)
}

// job is one measurement of lab 12: tasks on one file of a simulated machine.
type job struct {
	name, about string
	points      float64
	least       float64 // times policy locked
	cpus        int
	size        int64   // of the file
	flags       uint64  // of the file
	model       string  // of the device
	dirty       int64   // the hard limit on dirty bytes; 0 is twice the file
	pieces      []int64 // the sizes of the requests
	tasks       []jobTask
}

// jobTask is what tasks of a job do, some of them alike.
type jobTask struct {
	name string
	n    int // tasks
	do   jobFunc
}

// jobFunc is what one of the tasks does.
type jobFunc func(t *sched.Task, w *recorder, task int) error

// jobs are what policies are compared by.
var jobs = []job{
	{name: "time-overwrite", about: "8 writers of different pages of a file in memory, 8 CPUs", points: 10, least: 3,
		cpus: 8, size: 8 << 20, flags: format.InodeNoDataCow, pieces: []int64{16 << 10}, tasks: []jobTask{{"writer", 8, stripes(64, 16<<10, 8)}}},
	{name: "time-writeback", about: "8 writers of random pages while the file is being written back to a device of 1 ms, 8 CPUs", points: 10, least: 1.4,
		cpus: 8, size: 4 << 20, flags: format.InodeNoDataCow, model: "delay", dirty: 2 << 20, pieces: []int64{4096}, tasks: []jobTask{{"writer", 8, scattered(512, 4096)}}},
	{name: "time-append", about: "one task appends and 7 overwrite different pages, 8 CPUs", points: 10, least: 1.8,
		cpus: 8, size: 4 << 20, flags: format.InodeNoDataCow, pieces: []int64{64 << 10, 16 << 10}, tasks: []jobTask{{"append", 1, appends(64, 64<<10)}, {"writer", 7, stripes(64, 16<<10, 7)}}},
	{name: "time-mixed", about: "4 writers, 3 readers, a task that truncates and one that syncs, a device of 1 ms, 8 CPUs", points: 5, least: 0.95,
		cpus: 8, size: 4 << 20, flags: format.InodeNoDataCow, model: "delay", pieces: []int64{16 << 10},
		tasks: []jobTask{{"writer", 4, scattered(64, 16<<10)}, {"reader", 3, reads(64, 16<<10)}, {"truncate", 1, resizes(8, 4<<20)}, {"fsync", 1, syncs(4)}}},
	{name: "time-alone", about: "one writer on one CPU, with nobody to wait for", points: 5, least: 0.75,
		cpus: 1, size: 4 << 20, flags: format.InodeNoDataCow, pieces: []int64{4096}, tasks: []jobTask{{"writer", 1, scattered(512, 4096)}}},
}

// asks says what the row of the job wants.
func (j *job) asks() string {
	return fmt.Sprintf("%s: at least %v times policy locked, in virtual time", j.about, j.least)
}

// LockProfile is a profile of waits: profile.Locks, which this package does not know.
type LockProfile interface {
	trace.Sink
	WriteLocks(w io.Writer) error
}

func (l Policy) writeProfile(path string) error {
	if l.Profile == nil {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(l.Profile.WriteLocks(f), f.Close())
}

// measure fills the row with the times of the presets, and with the student's if clean.
func (j *job) measure(l Policy, clean bool, r *grade.Row) error {
	for _, name := range policy.Names() {
		n, err := j.run(name+commits, iopath.Lab{})
		if err != nil {
			return err
		}
		r.Times = append(r.Times, grade.Time{Policy: name, Nanos: n})
	}
	base := r.Times[slices.IndexFunc(r.Times, func(x grade.Time) bool { return x.Policy == grade.Baseline })].Nanos
	if !clean {
		r.Result = "not measured: a workload is violated"
		return nil
	}
	w, h := &waits{}, &waits{}
	n, err := j.runWith(labBase, l.lab(h.watch), w, l.Profile)
	if err != nil {
		return err
	}
	r.Times = append([]grade.Time{{Policy: grade.Yours, Nanos: n}}, r.Times...)
	r.Locks, r.Holds = w.list(), h.list()
	x := float64(base) / float64(n)
	r.Pass = x >= j.least
	r.Result = fmt.Sprintf("%.2f times %s: %.2f ms against %.2f ms of virtual time, want %v", x, grade.Baseline, float64(n)/1e6, float64(base)/1e6, j.least)
	return nil
}

// commits is what a preset is measured with: the steps of the kit have a commit for an fsync, and
// no log.
const commits = "!FSYNC_LOG"

// waits adds up waits, or holds, by lock. Tasks in virtual time run one at a time.
type waits struct{ sums []grade.Wait }

func (w *waits) add(lock string, count, nanos int64) {
	i := slices.IndexFunc(w.sums, func(s grade.Wait) bool { return s.Lock == lock })
	if i < 0 {
		i = len(w.sums)
		w.sums = append(w.sums, grade.Wait{Policy: grade.Yours, Lock: lock})
	}
	w.sums[i].Count += count
	w.sums[i].Nanos += nanos
}

// list is the waits, longest first.
func (w *waits) list() []grade.Wait {
	slices.SortFunc(w.sums, func(a, b grade.Wait) int { return cmp.Or(cmp.Compare(b.Nanos, a.Nanos), cmp.Compare(a.Lock, b.Lock)) })
	return w.sums
}

// watch notes how long an operation holds its locks.
func (w *waits) watch(side iopath.FileSteps) iopath.FileSteps {
	return &holding{FileSteps: side, to: w}
}

// holding is an operation's locks with the time that it got them.
type holding struct {
	iopath.FileSteps
	to           *waits
	inode, bytes int64 // since when
	name         string
}

func (h *holding) Share(t *sched.Task) {
	h.FileSteps.Share(t)
	h.inode, h.name = t.Now(), "i_rwsem shared"
}

func (h *holding) Alone(t *sched.Task) {
	h.FileSteps.Alone(t)
	h.inode, h.name = t.Now(), "i_rwsem for writing"
}

func (h *holding) TryShare(t *sched.Task) bool {
	ok := h.FileSteps.TryShare(t)
	if ok {
		h.inode, h.name = t.Now(), "i_rwsem shared"
	}
	return ok
}

func (h *holding) TryAlone(t *sched.Task) bool {
	ok := h.FileSteps.TryAlone(t)
	if ok {
		h.inode, h.name = t.Now(), "i_rwsem for writing"
	}
	return ok
}

func (h *holding) Unlock(t *sched.Task) {
	if t.Op != "" { // else the preparation of the file
		h.to.add(h.name, 1, t.Now()-h.inode)
	}
	h.FileSteps.Unlock(t)
}

func (h *holding) LockRange(t *sched.Task, start, end uint64) {
	h.FileSteps.LockRange(t, start, end)
	h.bytes = t.Now()
}

func (h *holding) TryLockRange(t *sched.Task, start, end uint64) bool {
	ok := h.FileSteps.TryLockRange(t, start, end)
	if ok {
		h.bytes = t.Now()
	}
	return ok
}

func (h *holding) UnlockRange(t *sched.Task) {
	if t.Op != "" {
		h.to.add("range", 1, t.Now()-h.bytes)
	}
	h.FileSteps.UnlockRange(t)
}

// stripes writes n pieces; neighbours in the file are of different tasks.
func stripes(n int, bytes int64, tasks int) jobFunc {
	return func(t *sched.Task, w *recorder, task int) error {
		p := make([]byte, bytes)
		return times(n, func(i int) error { return w.write(t, int64(i*tasks+task%tasks)*bytes%(4<<20), p, 0) })
	}
}

// spot is the i-th of a task's places in a file of 4 MiB, in pieces of bytes: the same in every
// run.
func spot(task, i int, bytes int64) int64 {
	x := uint64(task*7919+i+1) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	return int64(x%(4<<20/uint64(bytes))) * bytes
}

func scattered(n int, bytes int64) jobFunc {
	return func(t *sched.Task, w *recorder, task int) error {
		p := make([]byte, bytes)
		return times(n, func(i int) error { return w.write(t, spot(task, i, bytes), p, 0) })
	}
}

func reads(n int, bytes int64) jobFunc {
	return func(t *sched.Task, w *recorder, task int) error {
		p := make([]byte, bytes)
		return times(n, func(i int) error { return w.read(t, spot(task, i, bytes), p) })
	}
}

func appends(n int, bytes int64) jobFunc {
	return func(t *sched.Task, w *recorder, _ int) error {
		p := make([]byte, bytes)
		return times(n, func(_ int) error { return w.write(t, int64(w.f.Size(t)), p, 0) })
	}
}

func resizes(n int, size int64) jobFunc {
	return func(t *sched.Task, w *recorder, _ int) error {
		return times(n, func(i int) error { return w.truncate(t, size+int64(n-i)*64<<10) })
	}
}

func syncs(n int) jobFunc {
	return func(t *sched.Task, w *recorder, _ int) error {
		return times(n, func(_ int) error { return w.f.Fsync(t) })
	}
}

// run is the virtual time that the job takes, in nanoseconds.
func (j *job) run(pol string, lab iopath.Lab) (took int64, err error) {
	return j.runWith(pol, lab, &waits{}, nil)
}

// runWith is run with the waits of the job's tasks added to w, and those of all tasks meanwhile
// handed to profile, if it is not nil.
func (j *job) runWith(pol string, lab iopath.Lab, w *waits, profile LockProfile) (took int64, err error) {
	name := ""
	if lab.File != nil {
		name = grade.Yours
	}
	dirty := j.dirty
	if dirty == 0 {
		dirty = 4 * j.size
	}
	r := rig{cpus: j.cpus, flags: j.flags, model: j.model,
		opt: fs.Options{Policy: policy.MustParse(pol), DirtyLimit: dirty, DirtyBackground: dirty / 2, Lab: lab}}
	err = r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error {
		p := make([]byte, 1<<20)
		for at := int64(0); at < j.size; at += int64(len(p)) {
			if _, err := f.WriteAt(t, p, at); err != nil {
				return err
			}
		}
		if err := x.Sync(t); err != nil {
			return err
		}
		seen := newRecorder(t, f)
		var all []func(t *sched.Task) error
		for _, k := range j.tasks {
			for range k.n {
				i := len(all)
				all = append(all, func(t *sched.Task) error {
					t.Op, t.Policy = k.name, cmp.Or(name, pol)
					return k.do(t, seen, i)
				})
			}
		}
		if took, err = timed(t, all, w, profile); err != nil || lab.File == nil {
			return err
		}
		if err := seen.judge(t, 0, j.size, calls, "in what was measured"); err != nil {
			return err
		}
		// the requests that meet now come from no device's queue
		x.SetDirtyLimits(8*j.size, 8*j.size)
		if err := f.Truncate(t, j.size); err != nil {
			return err
		}
		for _, piece := range j.pieces {
			if err := (meeting{rule: calls, holes: true, piece: piece}).meet(t, f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%s under %s: %w", j.name, cmp.Or(name, pol), err)
	}
	return took, err
}

// timed is the virtual time of the tasks; their waits are added to w, and all waits meanwhile
// handed to profile, if it is not nil.
func timed(t *sched.Task, all []func(t *sched.Task) error, w *waits, profile LockProfile) (int64, error) {
	if profile != nil {
		defer trace.SetSink(trace.SetSink(profile))
	}
	return inTasks(t, len(all), func(t *sched.Task, i int) error {
		err := all[i](t)
		for _, x := range t.Waits {
			w.add(sched.ClassByID(x.Class).Name, x.Count, x.Nanos)
		}
		return err
	})
}

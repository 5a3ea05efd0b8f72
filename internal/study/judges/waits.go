package judges

import (
	"errors"
	"fmt"
	"time"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/labs/kit"
)

// waitPolicy is what the file system of lab 6 does beside the student's writes: direct writes of
// sectors hold no i_rwsem while they are in flight.
const waitPolicy = "locked+UNALIGNED_CHECK_FIRST"

// Waits is lab 6: a write whose waits come before i_rwsem.
type Waits struct {
	Write kit.WaitPath
	*Second

	plant func(w iopath.WriteSteps) iopath.WriteSteps // a fault, if there is one
}

// About says what the lab is.
func (Waits) About() *About {
	return &About{N: 6, Folder: "06-move-the-waits", Title: "Move the waits out", Minutes: 90, Narrow: true, File: "write.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath}, Entry: "Write", Want: "func Write(t *kit.Task, w *kit.WaitedWrite) error and func Answers() map[string]string"},
			"judges.Waits{Write: student.Write, Second: &judges.Second{Answers: student.Answers}}")}
}

// lab is the student's write as the file system takes it.
func (l Waits) lab() iopath.Lab {
	return iopath.Lab{Write: func(t *sched.Task, w iopath.WriteSteps) error {
		if l.plant != nil {
			w = l.plant(w)
		}
		return kit.RunWaits(l.Write, t, w)
	}}
}

// Workloads are those of the code, then the questions.
func (l Waits) Workloads() []Workload { return append(l.rows(), l.second()...) }

func (l Waits) read() (name string, wrong []string) { return l.ask(l.second()) }

// second are the questions.
func (l Waits) second() []Workload {
	rows := questions(l.Second, waitFaults, func(plant func(iopath.WriteSteps) iopath.WriteSteps) []Workload {
		x := l
		x.plant = plant
		return x.rows()
	})
	return append(rows, estimated(l.Second, l.estimates()...)...)
}

func (l Waits) estimates() []*estimate {
	return []*estimate{{name: "first-look", points: 4, within: 10, measure: l.firstLook,
		asks: "the job of hold-stable, in which WaitWriteback and WaitOrdered do nothing while i_rwsem is free: µs for which a write holds i_rwsem"}}
}

// firstLook measures how long a write holds i_rwsem that waits under it only.
func (l Waits) firstLook() (float64, error) {
	x := l
	x.plant = func(w iopath.WriteSteps) iopath.WriteSteps { return &faultyWaits{WriteSteps: w, outside: true} }
	c, err := hotJob("locked", x.lab())
	return float64(c.InodeNs) / (holdTasks * holdWrites) / 1e3, err
}

// waitFaults are mistakes of others in the steps of lab 6.
var waitFaults = []fault[iopath.WriteSteps]{
	{"writeback-unlocked", "WaitWriteback does nothing while the pages are locked", 4, func(w iopath.WriteSteps) iopath.WriteSteps { return &faultyWaits{WriteSteps: w, writeback: true} }},
	{"ordered-no", "Ordered always says no", 4, func(w iopath.WriteSteps) iopath.WriteSteps { return &faultyWaits{WriteSteps: w, ordered: true} }},
	{"drain-unlocked", "Drain does nothing while i_rwsem is held", 4, func(w iopath.WriteSteps) iopath.WriteSteps { return &faultyWaits{WriteSteps: w, drain: true} }},
	{"ordered-twice", "no fault, but a run: Ordered says yes to a write, and yes again", 4, func(w iopath.WriteSteps) iopath.WriteSteps { return &orderedAgain{WriteSteps: w} }},
}

// faultyWaits are steps of which one does nothing.
type faultyWaits struct {
	iopath.WriteSteps
	writeback, ordered, drain bool // what is broken
	outside                   bool // the waits are, while i_rwsem is free
	pages, locked             bool // what is held
}

// orderedAgain is a run in which Ordered says yes twice to one write.
type orderedAgain struct {
	iopath.WriteSteps
	yes int
}

func (w *orderedAgain) Ordered(t *sched.Task) bool {
	is := w.WriteSteps.Ordered(t)
	if is {
		w.yes++
	}
	if w.yes > 1 {
		breaks(seen, "Ordered has said yes, and yes again")
	}
	return is
}

func (w *faultyWaits) Alone(t *sched.Task)  { w.WriteSteps.Alone(t); w.locked = true }
func (w *faultyWaits) Unlock(t *sched.Task) { w.locked = false; w.WriteSteps.Unlock(t) }

func (w *faultyWaits) LockPages(t *sched.Task) error {
	err := w.WriteSteps.LockPages(t)
	w.pages = err == nil
	return err
}

func (w *faultyWaits) UnlockPages(t *sched.Task) { w.pages = false; w.WriteSteps.UnlockPages(t) }

func (w *faultyWaits) WaitWriteback(t *sched.Task, start, end uint64) {
	if (!w.writeback || !w.pages) && (!w.outside || w.locked) {
		w.WriteSteps.WaitWriteback(t, start, end)
	}
}

func (w *faultyWaits) WaitOrdered(t *sched.Task, start, end uint64) {
	if !w.outside || w.locked {
		w.WriteSteps.WaitOrdered(t, start, end)
	}
}

func (w *faultyWaits) Ordered(t *sched.Task) bool { return !w.ordered && w.WriteSteps.Ordered(t) }

func (w *faultyWaits) Drain(t *sched.Task) {
	if !w.drain || !w.locked {
		w.WriteSteps.Drain(t)
	}
}

// rows are writes on the real write path that meet writeback, ordered extents,
// direct writes, a truncate and a full file system, one with a file whose pages are never at rest,
// then how long they hold i_rwsem.
func (l Waits) rows() []Workload {
	dirty := func(size int64, l ...oracle.Range) scenario.File {
		return scenario.File{Size: size, Cached: all(size), Dirty: l}
	}
	data := []string{"i_rwsem", "page", "stable_page", "extent", "ordered_extent", "device"}
	ordered := []string{"i_rwsem", "extent", "ordered_extent", "workqueue_idle"}
	w := func(name, asks string, points float64, classes []string, f scenario.File, tasks ...scenario.Task) Workload {
		return searched(name, asks, points, waitPolicy, 400, scenario.Scenario{File: f, Tasks: tasks, Switch: classes, Rule: calls, MaxSteps: 2_000})
	}
	direct := w("wait-direct", "a direct write of a sector is in flight: its block is not read before its end", 10, []string{"i_rwsem", "dio_wait", "extent", "ordered_extent", "device"},
		scenario.File{Size: 4 * kib, Nocow: true}, task("direct", scenario.QueuedWrite(0, 512)), task("writer", scenario.Write(512, 512)))
	direct.scenario.Rule = oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesOff}
	space := w("wait-space", "low data space: a write that gets none leaves nothing promised and nothing locked", 6, []string{"i_rwsem", "space_ticket", "extent"},
		scenario.File{Size: 4 * kib}, task("writer A", mayFail(scenario.Write(8*kib, 16*kib))), task("writer B", mayFail(scenario.Write(64*kib, 16*kib))))
	space.scenario.FillTo = 24 * kib
	// the second extent needs two preemptions
	again := func(w Workload) Workload { w.limit = 2_000; return w }
	return with(l.lab(), []Workload{
		w("wait-stable", "a rewrite of a page while the device reads it: checksum and bytes fit", 8, data, dirty(4*kib, oracle.Range{Lo: 0, Hi: 4 * kib}),
			task("writer", scenario.Write(0, 4*kib)), task("writeback", scenario.Flush())),
		w("wait-second", "the same, and the device reads the second page of the write only", 6, data, dirty(8*kib, oracle.Range{Lo: 4 * kib, Hi: 8 * kib}),
			task("writer", scenario.Write(0, 8*kib)), task("writeback", scenario.Flush())),
		w("wait-eof", "the same by a write that ends beyond EOF", 8, data, dirty(6*kib, oracle.Range{Lo: 4 * kib, Hi: 6 * kib}),
			task("writer", scenario.Write(4*kib, 4*kib)), task("writeback", scenario.Flush())),
		again(w("wait-ordered", "an ordered extent, of which the end is awaited", 6, ordered, dirty(8*kib, oracle.Range{Lo: 0, Hi: 4 * kib}),
			task("writer", scenario.Write(0, 8*kib)), task("other", scenario.Flush(), scenario.Write(4*kib, 4*kib), scenario.Flush()))),
		w("wait-next", "an ordered extent, and while it is awaited the next one: writeback needs no i_rwsem for pages that are dirty already", 6, []string{"page", "workqueue_idle"},
			scenario.File{Size: 12 * kib, Cached: all(12 * kib), Dirty: []oracle.Range{{Lo: 0, Hi: 4 * kib}, {Lo: 8 * kib, Hi: 12 * kib}}},
			task("writer", scenario.Write(0, 12*kib)), task("writeback", scenario.Flush())),
		direct,
		w("wait-truncate", "a truncate below the write: it is not lost", 8, []string{"i_rwsem", "page", "extent"}, scenario.File{Size: 16 * kib, Cached: all(16 * kib)},
			task("writer", scenario.Write(8*kib, 4*kib)), task("truncate", scenario.Truncate(4*kib))),
		space,
		{name: "wait-again", asks: "whenever i_rwsem is free others begin with the pages again: the write comes to an end", points: 6, program: l.hotFile,
			stuck: "the write waits for what does not come"},
		{name: "hold-stable", points: 8, ratio: holds(l.lab(), "prewait", hotJob),
			asks: fmt.Sprintf("%d writers of blocks that are being written back: i_rwsem is held no longer than under policy prewait", holdTasks)},
		{name: "hold-throttle", points: 8, ratio: holds(l.lab(), "prewait", dirtyJob),
			asks: fmt.Sprintf("%d writers over the dirty limit: they do not sleep for it with i_rwsem held", holdTasks)},
	})
}

func mayFail(o scenario.Op) scenario.Op { o.Fails = true; return o }

// hot is a write to a file whose pages are never at rest: each time that i_rwsem is free, others
// make them dirty and writeback begins with them. A wait ends; it lasts for as long as i_rwsem, or
// the pages, stay locked.
type hot struct {
	iopath.WriteSteps // what is not here is not called

	state  explore.Atomic[int] // bits of busy*
	locked bool
	pages  bool
}

// What is under way.
const (
	busyPages = 1 << iota
	busyOrdered
	busyDirect
)

func (h *hot) set(t *sched.Task, set, clear int) {
	h.state.Update(t, func(old int) int { return old&^clear | set })
}

// free is what others do when nothing keeps them out.
func (h *hot) free(t *sched.Task) {
	if !h.locked {
		h.set(t, busyPages|busyOrdered|busyDirect, 0)
	}
}

func (h *hot) Range(*sched.Task) (start, end uint64) { return 0, 8 * kib }
func (h *hot) Size(*sched.Task) uint64               { return 8 * kib }
func (h *hot) Alone(t *sched.Task)                   { h.free(t); h.locked = true }
func (h *hot) Unlock(t *sched.Task)                  { h.locked = false; h.free(t) }
func (h *hot) Place(*sched.Task) uint64              { return 0 }
func (h *hot) Begin(*sched.Task) error               { return nil }
func (h *hot) Drain(t *sched.Task)                   { h.set(t, 0, busyDirect); h.free(t) }
func (h *hot) Reserve(*sched.Task) error             { return nil }
func (h *hot) LockPages(*sched.Task) error           { h.pages = true; return nil }
func (h *hot) UnlockPages(*sched.Task)               { h.pages = false }
func (h *hot) LockExtent(*sched.Task)                {}
func (h *hot) UnlockExtent(*sched.Task)              {}
func (h *hot) Balance(*sched.Task)                   {}

func (h *hot) WaitWriteback(t *sched.Task, start, end uint64) {
	h.set(t, 0, busyPages)
	h.free(t)
}

func (h *hot) WaitOrdered(t *sched.Task, start, end uint64) {
	if h.pages {
		panic("WaitOrdered with pages locked: the end of an ordered extent may need one")
	}
	h.set(t, 0, busyOrdered|busyPages) // an ordered extent outlives the writeback of its pages
	h.free(t)
}

func (h *hot) Ordered(t *sched.Task) bool { return h.state.Load(t)&busyOrdered != 0 }

func (h *hot) Copy(t *sched.Task) {
	switch b := h.state.Load(t); {
	case !h.locked:
		panic("Copy without i_rwsem")
	case b&busyPages != 0:
		panic("Copy while the device reads the pages")
	case b&busyOrdered != 0:
		panic("Copy over an ordered extent")
	case b&busyDirect != 0:
		panic("Copy while a direct write is in flight")
	}
}

func (l Waits) hotFile(w *explore.World) {
	h := new(hot)
	h.state.Class = studentClass.ID
	w.Name(&h.state, "what is busy")
	w.Go("writer", func(t *sched.Task) {
		if err := kit.RunWaits(l.Write, t, h); err != nil {
			panic(fmt.Sprintf("Write has returned %v, and nothing had failed", err))
		}
	})
}

// The measurement of lab 6.
const (
	holdTasks  = 4
	holdWrites = 64 // of each
	holdBlocks = 16
)

// holdMost is how long, in per cent of a preset's, a write of a student may hold i_rwsem.
const holdMost = 115

// holds compares how long a write of job holds i_rwsem: the student's, one under policy locked, and
// one under a preset, of which it may take holdMost.
func holds(lab iopath.Lab, preset string, job func(pol string, lab iopath.Lab) (sched.Counts, error)) func() (bool, string, error) {
	return func() (bool, string, error) {
		var each [3]float64
		for i, x := range []struct {
			pol string
			lab iopath.Lab
		}{{"locked", iopath.Lab{}}, {preset, iopath.Lab{}}, {"locked", lab}} {
			c, err := job(x.pol, x.lab)
			if err != nil {
				return false, "", err
			}
			if c.Inodes == 0 {
				return false, "", errors.New("no write has taken i_rwsem")
			}
			each[i] = float64(c.InodeNs) / (holdTasks * holdWrites) / 1e3
		}
		limit := each[1] * holdMost / 100
		return each[2] <= limit, fmt.Sprintf("%.1f µs of virtual time with i_rwsem held for each write, want at most %.1f (policy locked %.1f, %s %.1f)",
			each[2], limit, each[0], preset, each[1]), nil
	}
}

// hotJob is writers of a few blocks of one file, which a task writes back again and again
// meanwhile.
func hotJob(pol string, lab iopath.Lab) (sched.Counts, error) {
	return holdJob{background: 1 << 30, hard: 1 << 30, think: 50_000, flush: 200_000,
		block: func(i, n int) int64 { return int64((n*holdTasks + i) * 7 % holdBlocks) }}.run(pol, lab)
}

// dirtyJob is writers of blocks of their own, faster than the device takes them.
func dirtyJob(pol string, lab iopath.Lab) (sched.Counts, error) {
	return holdJob{background: 16 << 10, hard: 64 << 10, block: func(i, n int) int64 { return int64(n*holdTasks + i) }}.run(pol, lab)
}

// holdJob is writers of blocks of one file.
type holdJob struct {
	background, hard int64         // limits on dirty bytes
	think            time.Duration // ns between two writes of a task
	flush            time.Duration // ns between two rounds of writeback by another task; 0 is none
	block            func(task, n int) int64
}

// run lets the tasks write, in virtual time, and counts how long they hold i_rwsem. The bytes are
// compared afterwards.
func (j holdJob) run(pol string, lab iopath.Lab) (sched.Counts, error) {
	const size = format.SectorSize
	var sum sched.Counts
	r := rig{cpus: holdTasks, model: "delay", opt: fs.Options{Policy: policy.MustParse(pol)}}
	err := r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error {
		if _, err := f.WriteAt(t, make([]byte, holdTasks*holdWrites*size), 0); err != nil {
			return err
		}
		if err := x.Sync(t); err != nil {
			return err
		}
		x.SetDirtyLimits(j.background, j.hard)
		x.SetLab(t, lab)
		var counts [holdTasks]sched.Counts
		writing := holdTasks
		if _, err := inTasks(t, holdTasks+1, func(t *sched.Task, i int) error {
			if i == holdTasks {
				for j.flush > 0 && writing > 0 {
					if err := x.Flush(t, f); err != nil {
						return err
					}
					t.Sleep(j.flush)
				}
				return nil
			}
			defer func() { writing-- }()
			t.Counts = &counts[i]
			t.Counts.TimeInodes = true
			p := make([]byte, size)
			for n := range holdWrites {
				at := j.block(i, n)
				for k := range p {
					p[k] = stampOf(int(at))
				}
				if _, err := f.WriteAt(t, p, at*size); err != nil {
					return err
				}
				t.Sleep(j.think)
			}
			return nil
		}); err != nil {
			return err
		}
		for i := range counts {
			sum.Add(&counts[i])
		}
		if err := x.Sync(t); err != nil {
			return err
		}
		x.SetLab(t, iopath.Lab{})
		x.DropCaches(t)
		p := make([]byte, size)
		for i := range holdTasks {
			for n := range holdWrites {
				at := j.block(i, n)
				if _, err := f.ReadAt(t, p, at*size); err != nil {
					return err
				}
				if p[0] != stampOf(int(at)) || p[size-1] != p[0] {
					return fmt.Errorf("block %d has %d and %d, want %d: a write was told that it is whole", at, p[0], p[size-1], stampOf(int(at)))
				}
			}
		}
		return nil
	})
	return sum, err
}

package judges

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/labs/kit"
)

// Nowait is lab 7: what becomes of an extent of a NOWAIT direct write.
type Nowait struct {
	Extent kit.NowaitPath
	*Second

	plant func(x iopath.NowaitSteps) iopath.NowaitSteps // a fault, if there is one
}

// About says what the lab is.
func (Nowait) About() *About {
	return &About{N: 7, Folder: "07-nowait-direct", Title: "NOWAIT direct IO", Minutes: 75, Blind: "an extent has no place: the steps tell errors", Narrow: true, File: "extent.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath, "errors"}, Entry: "Extent", Want: "func Extent(t *kit.Task, x *kit.NowaitExtent) error and func Answers() map[string]string"},
			"judges.Nowait{Extent: student.Extent, Second: &judges.Second{Answers: student.Answers}}"),
		Basis: "nowait-free"}
}

// extent is the student's function as the write path takes it.
func (l Nowait) extent(t *sched.Task, x iopath.NowaitSteps) error {
	if l.plant != nil {
		x = l.plant(x)
	}
	return l.Extent.Run(t, x)
}

// labFlush is what a flush of a shortFile waits for: it stands where the write path waits for a
// space ticket.
var labFlush = lockdep.NewClass("lab_flush")

// shortFile is one extent of a file on which something is short or broken. A flusher has flush
// until it has won space.
type shortFile struct {
	rng   lock.RWSem // the range
	flush lock.RWSem
	mem   sched.Shared

	reserve, place error // the answers of the first round: what the flusher has not mended
	held           bool  // the range
	reserved       int
	started        int
}

func newShortFile() *shortFile {
	f := &shortFile{}
	f.rng.Init(labFile)
	f.flush.Init(labFlush)
	return f
}

func (f *shortFile) String() string { return "the file" }

func (f *shortFile) LockRange(t *sched.Task) { f.rng.Lock(t); f.held = true }

func (f *shortFile) UnlockRange(t *sched.Task) { f.held = false; f.rng.Unlock(t) }

func (f *shortFile) TryRange(t *sched.Task) bool {
	f.held = f.rng.TryLock(t)
	return f.held
}

func (f *shortFile) Reserve(t *sched.Task, flush bool) error {
	if flush {
		f.flush.Lock(t)
		defer f.flush.Unlock(t)
	}
	f.mem.Write(t, f)
	if f.reserve != nil && !flush {
		return f.reserve
	}
	f.reserved++
	return nil
}

func (f *shortFile) Release(t *sched.Task) {
	f.mem.Write(t, f)
	f.reserved--
}

func (f *shortFile) Place(t *sched.Task) error {
	f.mem.Write(t, f)
	return f.place
}

func (f *shortFile) Start(t *sched.Task) {
	f.mem.Write(t, f)
	f.reserved--
	f.started++
}

// undone is the kind of violation in which a NOWAIT write leaves something, or tells its caller
// what is not so.
const undone explore.Kind = "undo"

// shortWork is a workload of one write of a shortFile. want is what the ring is told.
type shortWork struct{ reserve, place, want error }

func (x shortWork) program(extent kit.NowaitPath) func(w *explore.World) {
	return func(w *explore.World) {
		f := newShortFile()
		f.reserve, f.place = x.reserve, x.place
		w.Go("ring", func(t *sched.Task) {
			t.BeginNowait()
			err := extent.Run(t, f)
			t.EndNowait()
			f.mem.Write(t, f)
			switch {
			case !errors.Is(err, x.want):
				breaks(undone, "the caller is told %s, want %s", told(err), told(x.want))
			case f.held:
				breaks(undone, "the range is still locked after %s: a worker that does the write again would wait for ever", told(err))
			case f.reserved != 0:
				breaks(undone, "%d reservations are left after %s, want 0", f.reserved, told(err))
			case err != nil && f.started > 0:
				breaks(undone, "the extent was started, and the caller is told %s", told(err))
			}
		})
		w.Go("flusher", func(t *sched.Task) {
			f.flush.Lock(t)
			f.flush.Unlock(t)
		})
	}
}

func told(err error) string {
	if err == nil {
		return "that it is written"
	}
	var no errno.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	if errors.Is(err, errno.EAGAIN) {
		return errno.EAGAIN.Error()
	}
	return err.Error()
}

// Workloads are those of the code, then the questions.
func (l Nowait) Workloads() []Workload { return append(l.rows(), l.second()...) }

func (l Nowait) read() (name string, wrong []string) { return l.ask(l.second()) }

// second are the questions.
func (l Nowait) second() []Workload {
	rows := questions(l.Second, nowaitFaults, func(plant func(iopath.NowaitSteps) iopath.NowaitSteps) []Workload {
		x := l
		x.plant = plant
		return x.rows()
	})
	return append(rows, estimated(l.Second, l.estimates()...)...)
}

// rewriteEvery: of the estimate's file every so many-th block is written again after the snapshot.
const rewriteEvery = 4

func (l Nowait) estimates() []*estimate {
	return []*estimate{{name: "shared", points: 5, within: 1, measure: l.shared,
		asks: fmt.Sprintf("a snapshot was made of the file, and block 0 and every %d-th one after it was written again since: of %d NOWAIT overwrites, one of each block, how many are told EAGAIN", rewriteEvery, nowaitWrites)}}
}

// shared counts the overwrites that are told EAGAIN in a file of which a snapshot has most blocks.
func (l Nowait) shared() (float64, error) {
	const block = format.SectorSize
	again := 0
	r := rig{cpus: 2, flags: format.InodeNoDataCow | format.InodeNoDataSum, opt: fs.Options{Policy: policy.MustParse(nowaitPolicy), Lab: iopath.Lab{Nowait: l.extent}}}
	err := r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error {
		p := make([]byte, nowaitWrites*block)
		for i := range nowaitWrites { // an extent for each block
			if _, err := f.WriteDirect(t, p[:block], int64(i)*block); err != nil {
				return err
			}
		}
		if err := errors.Join(x.Sync(t), x.Snapshot(t, "/", "/snapshot", true), x.Sync(t)); err != nil {
			return err
		}
		for i := 0; i < nowaitWrites; i += rewriteEvery {
			if _, err := f.WriteDirect(t, p[:block], int64(i)*block); err != nil {
				return err
			}
		}
		if err := x.Sync(t); err != nil {
			return err
		}
		for i := range nowaitWrites {
			_, err := f.WriteIter(t, kiocb.Request{Pos: uint64(i) * block, Flags: kiocb.Direct | kiocb.Nowait}, iopath.Source{Buf: p[:block]})
			switch {
			case errors.Is(err, errno.EAGAIN):
				again++
			case err != nil:
				return err
			}
		}
		return x.Sync(t)
	})
	return float64(again), err
}

// nowaitFaults are mistakes of others in the steps of lab 7.
var nowaitFaults = []fault[iopath.NowaitSteps]{
	{"try-waits", "TryRange waits for a range that somebody has", 5, func(x iopath.NowaitSteps) iopath.NowaitSteps { return &faultyNowait{NowaitSteps: x, waits: true} }},
	{"keeps-range", "UnlockRange does nothing once Place has said no", 5, func(x iopath.NowaitSteps) iopath.NowaitSteps { return &faultyNowait{NowaitSteps: x, keeps: true} }},
	{"reserve-flushes", "Reserve flushes, whatever it is told", 5, func(x iopath.NowaitSteps) iopath.NowaitSteps { return &faultyNowait{NowaitSteps: x, flushes: true} }},
}

// faultyNowait are steps of which one is wrong.
type faultyNowait struct {
	iopath.NowaitSteps
	waits, keeps, flushes bool // what is broken
	refused               bool
}

func (x *faultyNowait) TryRange(t *sched.Task) bool {
	if x.waits {
		x.LockRange(t)
		return true
	}
	return x.NowaitSteps.TryRange(t)
}

func (x *faultyNowait) Reserve(t *sched.Task, flush bool) error {
	return x.NowaitSteps.Reserve(t, flush || x.flushes)
}

func (x *faultyNowait) Place(t *sched.Task) error {
	err := x.NowaitSteps.Place(t)
	x.refused = err != nil
	return err
}

func (x *faultyNowait) UnlockRange(t *sched.Task) {
	if !x.keeps || !x.refused {
		x.NowaitSteps.UnlockRange(t)
	}
}

// rows are one extent on which something is short or broken, then the real write path beside
// others, then what a request costs.
func (l Nowait) rows() []Workload {
	const again = errno.EAGAIN
	short := func(name, asks string, points float64, work shortWork) Workload {
		return Workload{name: name, asks: asks, points: points, program: work.program(l.Extent)}
	}
	whole := func(name, asks string, points float64, tasks ...scenario.Task) Workload {
		return searched(name, asks, points, nowaitPolicy, 5_000, scenario.Scenario{File: scenario.File{Size: 8 * kib, Nocow: true}, Tasks: tasks,
			Switch: []string{"i_rwsem", "dio_wait", "extent"}, Rule: calls})
	}
	ring := func(ops ...scenario.Op) scenario.Task { return task("ring", ops...) }
	snapshot := searched("nowait-snapshot", "a NOWAIT direct write while a snapshot is made of its file", 10, nowaitPolicy, 5_000, scenario.Scenario{
		File: scenario.File{Size: 4 * kib, Nocow: true}, Tasks: []scenario.Task{ring(scenario.NowaitDirect(0, 4*kib)), task("snapshot", scenario.Snapshot())},
		Switch: []string{"snapshot_lock", "extent"}, Rule: calls, Preemptions: 2})
	snapshot.asks = "a snapshot is made: no write changes it afterwards"
	return with(iopath.Lab{Nowait: l.extent}, []Workload{
		short("nowait-free", "nothing is short: the extent is started", 6, shortWork{}),
		short("nowait-space", "no metadata space: EAGAIN at once, and nothing is left", 10, shortWork{reserve: errno.ENOSPC, want: again}),
		short("nowait-quota", "the quota is used up: EAGAIN, because a flush may help", 8, shortWork{reserve: errno.EDQUOT, want: again}),
		short("nowait-cow", "the blocks cannot be overwritten in place: all is given back", 10, shortWork{place: errno.EAGAIN, want: again}),
		short("nowait-broken", "a tree cannot be read: the caller is told, and all is given back", 8, shortWork{place: errno.EIO, want: errno.EIO}),
		whole("nowait-fiemap", "another task has the range: nobody sleeps, and the blocking write after it is done", 8,
			ring(scenario.NowaitDirect(0, 8*kib), scenario.DirectWrite(0, 8*kib)), task("fiemap", scenario.Map(4*kib, 4*kib))),
		whole("nowait-writers", "two writes of one block: each is whole", 8,
			ring(scenario.NowaitDirect(0, 4*kib)), task("ring B", scenario.NowaitDirect(0, 4*kib))),
		snapshot,
		{name: "costs", points: 12, ratio: l.costs,
			asks: fmt.Sprintf("%d overwrites of the real write path: none goes to a worker, and each asks the trees once", nowaitWrites)},
	})
}

// The measurement of lab 7.
const (
	nowaitPolicy = "nowait-6.1"
	nowaitWrites = 64
	// nowaitSearches is what one question costs: file extent, references, checksums.
	nowaitSearches = 3
)

// costs writes each block of a file once, with NOWAIT, in virtual time, and counts.
func (l Nowait) costs() (ok bool, text string, err error) {
	var c sched.Counts
	r := rig{cpus: 2, flags: format.InodeNoDataCow | format.InodeNoDataSum, opt: fs.Options{Policy: policy.MustParse(nowaitPolicy), Lab: iopath.Lab{Nowait: l.extent}}}
	if err := r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error { return nowaitJob(t, x, f, &c) }); err != nil {
		return false, "", err
	}
	each := float64(c.N[sched.CountSearches]) / nowaitWrites
	return c.Punts() == 0 && each <= nowaitSearches,
		fmt.Sprintf("%d of %d answered EAGAIN, want 0; %.2f tree searches of each, want at most %d", c.Punts(), nowaitWrites, each, nowaitSearches), nil
}

func nowaitJob(t *sched.Task, x *fs.FS, f *fs.File, c *sched.Counts) error {
	const block = format.SectorSize
	p := make([]byte, nowaitWrites*block)
	if _, err := f.WriteAt(t, p, 0); err != nil {
		return err
	}
	if err := x.Sync(t); err != nil {
		return err
	}
	x.DropCaches(t)
	// The first write reads the tree blocks, which a NOWAIT one does not, and its ordered extent
	// finishes.
	if _, err := f.WriteDirect(t, p[:block], 0); err != nil {
		return err
	}
	if err := f.Fsync(t); err != nil {
		return err
	}
	for i := range nowaitWrites {
		for k := range block {
			p[k] = stampOf(i)
		}
		t.Counts = c
		_, err := f.WriteIter(t, kiocb.Request{Pos: uint64(i) * block, Flags: kiocb.Direct | kiocb.Nowait}, iopath.Source{Buf: p[:block]})
		t.Counts = nil
		switch {
		case errors.Is(err, errno.EAGAIN):
			_, err = f.WriteDirect(t, p[:block], int64(i)*block) // a worker does it again
		case err == nil:
			err = f.Fsync(t) // its ordered extent has finished
		}
		if err != nil {
			return err
		}
	}
	return stamped(t, f, nowaitWrites)
}

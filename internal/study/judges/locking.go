package judges

import (
	"fmt"
	"math"

	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/kiocb"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/labs/kit"
)

// Locking is lab 3: what a student writes.
type Locking struct {
	CanUnlock func(pos, n, isize uint64) bool
	Write     func(t *kit.Task, w *kit.LockedWrite)
	*Second

	plant func(w iopath.WriteSteps) iopath.WriteSteps // a fault, if there is one
}

// About says what the lab is.
func (Locking) About() *About {
	return &About{N: 3, Folder: "03-unlocked", Title: "Unlocked inside EOF", Minutes: 75, Narrow: true, File: "unlock.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath}, Entry: "Write",
			Want: "func CanUnlock(pos, n, isize uint64) bool, func Write(t *kit.Task, w *kit.LockedWrite) and func Answers() map[string]string"},
			"judges.Locking{CanUnlock: student.CanUnlock, Write: student.Write, Second: &judges.Second{Answers: student.Answers}}")}
}

// write carries out a write by the student's order.
func (l Locking) write(t *sched.Task, w iopath.WriteSteps) error {
	if l.plant != nil {
		w = l.plant(w)
	}
	return kit.RunLocked(l.Write, t, w)
}

// drained is the policy of lab 3: its truncate waits for the writes in flight before it changes
// i_size.
const drained = "unlocked-drain"

// Workloads are those of the code, then the questions.
func (l Locking) Workloads() []Workload { return append(l.rows(), l.second()...) }

func (l Locking) read() (name string, wrong []string) { return l.ask(l.second()) }

// second are the questions.
func (l Locking) second() []Workload {
	rows := questions(l.Second, lockFaults, func(plant func(iopath.WriteSteps) iopath.WriteSteps) []Workload {
		x := l
		x.plant = plant
		return x.rows()
	})
	return append(rows, estimated(l.Second, l.estimates()...)...)
}

// appendEvery is how many writes of a task in the job of the estimate have one append among them.
const appendEvery = 8

func (l Locking) estimates() []*estimate {
	return []*estimate{{name: "appends-too", points: 4, within: 15, measure: l.appendsToo,
		asks: fmt.Sprintf("the job of virtual-time, in which one write of %d is an append of %d KiB: how many times as fast as policy locked", appendEvery, ratioBytes/kib)}}
}

// appendsToo measures writers inside EOF who append now and then.
func (l Locking) appendsToo() (float64, error) {
	const size = measuredBytes
	time := func(pol string, lab iopath.Lab) (took int64, err error) {
		r := rig{cpus: ratioTasks, flags: format.InodeNoDataCow, opt: fs.Options{Policy: policy.MustParse(pol), DirtyLimit: 4 * size, DirtyBackground: 4 * size, Lab: lab}}
		err = r.run(func(t *sched.Task, _ *fs.FS, f *fs.File) error {
			if err := f.Fallocate(t, 0, 0, size); err != nil {
				return err
			}
			took, err = inTasks(t, ratioTasks, func(t *sched.Task, i int) error {
				p := make([]byte, ratioBytes)
				return times(ratioWrites, func(n int) error {
					rq := kiocb.Request{Pos: uint64(n*ratioTasks+i) * ratioBytes}
					if n%appendEvery == i%appendEvery {
						rq = kiocb.Request{Flags: kiocb.Append}
					}
					k, err := f.WriteIter(t, rq, iopath.Source{Buf: p})
					return whole(k, len(p), err)
				})
			})
			return err
		})
		return took, err
	}
	base, err := time("locked", iopath.Lab{})
	if err != nil {
		return 0, err
	}
	mine, err := time(drained, iopath.Lab{Write: l.write})
	return float64(base) / float64(mine), err
}

// lockFaults are mistakes of others in the steps of lab 3.
var lockFaults = []fault[iopath.WriteSteps]{
	{"count-late", "Begin counts the write when its first bytes are there", 4, func(w iopath.WriteSteps) iopath.WriteSteps { return &countsLate{WriteSteps: w} }},
	{"place-once", "Place tells again what it told first", 4, func(w iopath.WriteSteps) iopath.WriteSteps { return &placesOnce{WriteSteps: w} }},
	{"share-alone", "Share takes i_rwsem exclusive", 4, func(w iopath.WriteSteps) iopath.WriteSteps { return sharesAlone{w} }},
	{"place-moves", "no fault, but a run: Place tells one write two places, and the second one is before the first", 4, func(w iopath.WriteSteps) iopath.WriteSteps { return &movedPlace{WriteSteps: w} }},
}

// movedPlace is a run in which Place tells two places, the second one further ahead.
type movedPlace struct {
	iopath.WriteSteps
	asked bool
	first uint64
}

func (w *movedPlace) Place(t *sched.Task) uint64 {
	at := w.WriteSteps.Place(t)
	if w.asked && at < w.first {
		breaks(seen, "Place told %d, then %d", w.first, at)
	}
	w.asked, w.first = true, at
	return at
}

// countsLate counts a write when its first batch is done.
type countsLate struct {
	iopath.WriteSteps
	late, counted bool
}

func (w *countsLate) Count(*sched.Task) { w.late = true }

func (w *countsLate) Batch(t *sched.Task, pages int) (more bool, err error) {
	more, err = w.WriteSteps.Batch(t, pages)
	if w.late && !w.counted {
		w.WriteSteps.Count(t)
		w.counted = true
	}
	return more, err
}

func (w *countsLate) Uncount(t *sched.Task) {
	if w.counted {
		w.WriteSteps.Uncount(t)
	}
	w.late, w.counted = false, false
}

// placesOnce keeps the first answer of Place.
type placesOnce struct {
	iopath.WriteSteps
	asked bool
	at    uint64
}

func (w *placesOnce) Place(t *sched.Task) uint64 {
	if !w.asked {
		w.asked, w.at = true, w.WriteSteps.Place(t)
	}
	return w.at
}

// sharesAlone takes i_rwsem for writing always.
type sharesAlone struct{ iopath.WriteSteps }

func (w sharesAlone) Share(t *sched.Task) { w.Alone(t) }

// rows are the decision alone, a write beside what changes the size of the file, then how many
// writes go without i_rwsem and what that is worth.
func (l Locking) rows() []Workload {
	classes := []string{"i_rwsem", "dio_wait", "page"}
	app := func(n int64) scenario.Op { return scenario.Op{Kind: scenario.OpWrite, N: n, Append: true} }
	w := func(name, asks string, points float64, size int64, tasks ...scenario.Task) Workload {
		return searched(name, asks, points, drained, 4_000, scenario.Scenario{File: scenario.File{Size: size, Cached: all(size)}, Tasks: tasks, Switch: classes, Rule: calls})
	}
	return with(iopath.Lab{Write: l.write}, []Workload{
		{name: "decide", asks: "CanUnlock says yes inside EOF, and nowhere else", points: 6, ratio: l.decide},
		w("inside-truncate", "a write inside EOF, and a truncate below it: the truncate is not lost", 15, 16*kib,
			task("writer", scenario.Write(8*kib, 4*kib)), task("truncate", scenario.Truncate(4*kib))),
		w("one-byte-beyond", "a write that ends a byte beyond EOF, and one that makes the file longer: the longer one counts", 10, 8*kib-1,
			task("writer", scenario.Write(4*kib, 4*kib)), task("extend", scenario.Write(8*kib, 4*kib))),
		w("appends", "two appends: both are in the file", 10, 4*kib,
			task("append A", app(4*kib)), task("append B", app(4*kib))),
		w("gap", "a write beyond EOF, and one that makes the file longer: no zeros over its bytes", 5, 2*kib,
			task("extend", scenario.Write(2*kib, 1*kib)), task("beyond", scenario.Write(6*kib, 2*kib))),
		w("append-truncate", "an append, and a truncate: the append is at the end that it finds", 10, 12*kib,
			task("append", app(2*kib)), task("truncate", scenario.Truncate(4*kib))),
		{name: "fast-path", points: 12, ratio: l.fastPath, asks: "writes inside EOF copy without i_rwsem, all of them and no others"},
		{name: "virtual-time", points: 12, ratio: l.speed,
			asks: fmt.Sprintf("%d writers inside EOF on %d CPUs: at least %v times policy locked", ratioTasks, ratioTasks, minUnlocked)},
	})
}

// batches is what policy unlocked-drain promises: two writes inside EOF may mix batch by batch.
var batches = oracle.Rule{Write: oracle.Batch, Read: oracle.Page, Sizes: oracle.SizesWith}

// decisions are the cases of the row decide.
var decisions = []struct {
	pos, n, isize uint64
	want          bool
}{
	{0, 4096, 8192, true},
	{4096, 4096, 8192, true}, // ends at EOF: i_size stays
	{4096, 4097, 8192, false},
	{4096, 4096, 8191, false},
	{0, 1, 0, false},
	{8191, 1, 8192, true},
	{8192, 1, 8192, false},
	{12288, 4096, 8192, false},
	{0, 8192, 8192, true},
	{0, 8193, 8192, false},
	{math.MaxUint64 - 4095, 8192, 1 << 40, false}, // pos+n is 4096
	{4096, math.MaxUint64 - 4095, 1 << 40, false}, // pos+n is 0
	{1<<40 - 4096, 4096, 1 << 40, true},
}

func (l Locking) decide() (bool, string, error) {
	for _, d := range decisions {
		if have := l.CanUnlock(d.pos, d.n, d.isize); have != d.want {
			return false, fmt.Sprintf("CanUnlock(%d, %d, %d) is %v, want %v", d.pos, d.n, d.isize, have, d.want), nil
		}
	}
	return true, fmt.Sprintf("%d cases", len(decisions)), nil
}

// fastPath counts, of writes inside EOF and of others, which copy without i_rwsem. One task makes
// them, so that it knows the end of the file.
func (l Locking) fastPath() (ok bool, text string, err error) {
	var total, unlocked [2]int // of those beyond EOF, and of those inside
	kind := 0
	look := func(t *sched.Task, w iopath.WriteSteps) error {
		x := &held{WriteSteps: w}
		err := l.write(t, x)
		total[kind]++
		if !x.copied {
			unlocked[kind]++
		}
		return err
	}
	r := rig{cpus: 2, opt: fs.Options{Policy: policy.MustParse(drained), Lab: iopath.Lab{Write: look}}}
	err = r.run(func(t *sched.Task, _ *fs.FS, f *fs.File) error {
		size := uint64(0)
		for i := range uint64(fastWrites) {
			rq, n := kiocb.Request{}, 1+i*977%9000
			switch at := i * 7919; i % 8 {
			case 0: // beyond EOF
				rq.Pos = size + at%5000
			case 1: // across it, or from it on
				rq.Pos = size - min(size, at%n)
			case 2:
				rq.Pos, rq.Flags = size, kiocb.Append
			case 3: // up to it
				n = min(n, size)
				rq.Pos = size - n
			default:
				n = min(n, size)
				rq.Pos = at % (size - n + 1)
			}
			if kind = 0; rq.Pos+n <= size {
				kind = 1
			}
			if _, err := f.WriteIter(t, rq, iopath.Source{Buf: make([]byte, n)}); err != nil {
				return err
			}
			size = max(size, rq.Pos+n)
		}
		return nil
	})
	return unlocked[1] == total[1] && unlocked[0] == 0,
		fmt.Sprintf("%d of %d writes inside EOF copied without i_rwsem, want all; %d of %d others, want none", unlocked[1], total[1], unlocked[0], total[0]), err
}

const fastWrites = 64

// held is a write that notes whether it has i_rwsem when its bytes are copied.
type held struct {
	iopath.WriteSteps
	now, copied bool
}

func (h *held) Share(t *sched.Task)  { h.WriteSteps.Share(t); h.now = true }
func (h *held) Alone(t *sched.Task)  { h.WriteSteps.Alone(t); h.now = true }
func (h *held) Unlock(t *sched.Task) { h.WriteSteps.Unlock(t); h.now = false }

func (h *held) Begin(t *sched.Task) error {
	h.copied = h.now
	return h.WriteSteps.Begin(t)
}

// minUnlocked is what the row virtual-time asks for.
const minUnlocked = 3

// speed measures how much faster writers inside EOF are with the student's order than under
// i_rwsem.
func (l Locking) speed() (bool, string, error) {
	return speedup("locked", minUnlocked,
		func() (int64, error) { return disjoint("locked", iopath.Lab{}, nil) },
		func() (int64, error) {
			return disjoint(drained, iopath.Lab{Write: l.write}, &meeting{rule: batches, piece: ratioBytes})
		})
}

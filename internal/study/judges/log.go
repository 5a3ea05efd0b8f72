package judges

import (
	"errors"
	"fmt"

	"btrlab/internal/data/treelog"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/fs"
	"btrlab/internal/iopath"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/scenario"
	"btrlab/labs/kit"
)

// LogItem is lab 9: how a file extent gets into a log.
type LogItem struct {
	Put kit.LogPath
	*Second

	plant func(x treelog.ItemSteps) treelog.ItemSteps // a fault, if there is one
}

// About says what the lab is.
func (LogItem) About() *About {
	return &About{N: 9, Folder: "09-prepare-first", Title: "Prepare before the path lock", Minutes: 75, Blind: "an item has no place: the steps tell errors", Narrow: true, File: "item.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath}, Entry: "Put", Want: "func Put(t *kit.Task, x *kit.LogItem) error and func Answers() map[string]string"},
			"judges.LogItem{Put: student.Put, Second: &judges.Second{Answers: student.Answers}}"),
		Basis: "log-new"}
}

// item is the student's order as the file system takes it.
func (l LogItem) item(t *sched.Task, x treelog.ItemSteps) error {
	if l.plant != nil {
		x = l.plant(x)
	}
	return l.Put.Run(t, x)
}

// Workloads are those of the code, then the questions.
func (l LogItem) Workloads() []Workload { return append(l.rows(), l.second()...) }

func (l LogItem) read() (name string, wrong []string) { return l.ask(l.second()) }

// planted is l with a fault.
func (l LogItem) planted(plant func(treelog.ItemSteps) treelog.ItemSteps) LogItem {
	l.plant = plant
	return l
}

// second are the questions.
func (l LogItem) second() []Workload {
	rows := questions(l.Second, logFaults, func(plant func(treelog.ItemSteps) treelog.ItemSteps) []Workload { return l.planted(plant).rows() })
	return append(rows, estimated(l.Second, l.estimates()...)...)
}

func (l LogItem) estimates() []*estimate {
	return []*estimate{{name: "searches-always", points: 6, within: 3,
		asks:    fmt.Sprintf("Again always says yes: searches of the log by each of %d fsyncs of a file that the log does not have, of one block and without anybody beside it", logFsyncs),
		measure: func() (float64, error) { return newInLog(l.planted(logFaults[1].plant)) }}}
}

// logFaults are mistakes of others in the steps of lab 9.
var logFaults = []fault[treelog.ItemSteps]{
	{"again-no", "Again always says no", 7, func(x treelog.ItemSteps) treelog.ItemSteps { return saysAgain{x, false} }},
	{"again-yes", "Again always says yes", 7, func(x treelog.ItemSteps) treelog.ItemSteps { return saysAgain{x, true} }},
}

// saysAgain has an answer of its own for Again.
type saysAgain struct {
	treelog.ItemSteps
	again bool
}

func (x saysAgain) Again() bool { return x.again }

// newInLog counts the searches of the log by an fsync of a file that the log does not have.
func newInLog(l LogItem) (float64, error) {
	var c sched.Counts
	r := rig{cpus: 2, opt: fs.Options{Policy: policy.MustParse(logPolicy), Lab: iopath.Lab{Item: l.item}}}
	err := r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error {
		p := make([]byte, format.SectorSize)
		for i := range logFsyncs {
			if _, err := f.WriteAt(t, p, int64(i)*format.SectorSize); err != nil {
				return err
			}
			if err := x.Sync(t); err != nil { // a commit: the log is gone
				return err
			}
			if _, err := f.WriteAt(t, p, int64(i)*format.SectorSize); err != nil {
				return err
			}
			t.Counts = &c
			err := f.Fsync(t)
			if t.Counts = nil; err != nil {
				return err
			}
		}
		return nil
	})
	return float64(c.Log.N[sched.LogSearches]) / logFsyncs, err
}

// rows are fsyncs on the real write path, each followed by a power cut and a replay of the log,
// then what they cost.
func (l LogItem) rows() []Workload {
	byLog := func(w Workload) Workload {
		w.scenario.ByLog = true
		return w
	}
	w := func(name, asks string, points float64, f scenario.File, tasks ...scenario.Task) Workload {
		return searched(name, asks, points, logPolicy, 100, scenario.Scenario{File: f, Tasks: tasks, Switch: []string{"i_rwsem", "log_mutex", "tree_log"}, Rule: calls})
	}
	return with(iopath.Lab{Item: l.item}, []Workload{
		byLog(w("log-new", "a file that the log does not have: bytes and checksums are there after a power cut", 10, scenario.File{Size: 8 * kib},
			task("writer", scenario.Write(0, 4*kib), scenario.Fsync()))),
		byLog(w("log-again", "the same bytes, logged a second time in one transaction", 8, scenario.File{Size: 8 * kib},
			task("writer", scenario.Write(0, 8*kib), scenario.Fsync(), scenario.Write(0, 8*kib), scenario.Fsync()))),
		byLog(w("log-around", "an extent around one that the log has: nothing old comes back", 11, scenario.File{Size: 16 * kib},
			task("writer", scenario.Write(8*kib, 4*kib), scenario.Fsync(), scenario.Write(4*kib, 12*kib), scenario.Fsync()))),
		byLog(w("log-inside", "an extent inside one that the log has: the rest of that one stays", 8, scenario.File{Size: 16 * kib},
			task("writer", scenario.Write(0, 12*kib), scenario.Fsync(), scenario.Write(4*kib, 4*kib), scenario.Fsync()))),
		w("log-writers", "two writers of one file, each with its fsync", 11, scenario.File{Size: 8 * kib},
			task("writer A", scenario.Write(0, 4*kib), scenario.Fsync()), task("writer B", scenario.Write(4*kib, 4*kib), scenario.Fsync())),
		w("log-commit", "an fsync, and a commit beside it that takes the log away", 10, scenario.File{Size: 8 * kib},
			task("writer", scenario.Write(0, 4*kib), scenario.Fsync()), task("sync", scenario.Sync())),
		{name: "log-full", asks: "the leaf has no room for the item: another search finds a place", points: 5, program: narrowLeaf{}.program(l.Put)},
		{name: "log-broken", asks: "a block of the log cannot be read: the fsync must hear of it, and commit", points: 5, program: narrowLeaf{insert: errno.EIO}.program(l.Put)},
		{name: "costs", points: 12, ratio: l.costs,
			asks: fmt.Sprintf("%d fsyncs of a file that the log has: the leaf is locked for few steps, and for no longer than the kernel has it", logFsyncs)},
	})
}

// narrowLeaf is a log whose leaves never have room in the place of what was dropped, and that fails
// to insert if insert is set.
type narrowLeaf struct{ insert error }

func (l narrowLeaf) program(put kit.LogPath) func(w *explore.World) {
	return func(w *explore.World) {
		w.Go("fsync", func(t *sched.Task) {
			if err := put.Run(t, l); !errors.Is(err, l.insert) {
				panic(fmt.Sprintf("Put has returned %v, and Insert had returned %v", err, l.insert))
			}
		})
	}
}

func (narrowLeaf) Again() bool                    { return true }
func (narrowLeaf) Prepare(*sched.Task)            {}
func (narrowLeaf) Sums(*sched.Task) error         { return nil }
func (narrowLeaf) Drop(*sched.Task) (bool, error) { return false, nil }
func (l narrowLeaf) Insert(*sched.Task) error     { return l.insert }
func (narrowLeaf) Fill(*sched.Task)               {}
func (narrowLeaf) Copy(*sched.Task)               {}
func (narrowLeaf) Release(*sched.Task)            {}

// The measurement of lab 9.
const (
	logPolicy = "fsync-5.18"
	logFsyncs = 64
	// maxLogSteps is for one fsync, and maxLogHold for how long it has the leaf, in per cent of
	// what the kernel's order has it.
	maxLogSteps = 9
	maxLogHold  = 102
)

// costs counts what fsyncs cost in the log, by the student's order and by those of the kernel
// before and after seed 003.
func (l LogItem) costs() (ok bool, text string, err error) {
	old, err := logJob("fsync-5.17", iopath.Lab{})
	if err != nil {
		return false, "", err
	}
	best, err := logJob(logPolicy, iopath.Lab{})
	if err != nil {
		return false, "", err
	}
	c, err := logJob(logPolicy, iopath.Lab{Item: l.item})
	if err != nil {
		return false, "", err
	}
	n := func(x int64) float64 { return float64(x) / logFsyncs }
	return c.N[sched.LogFsyncs] == logFsyncs && n(c.Steps[0]) <= maxLogSteps && c.HeldNs[0]*100 <= best.HeldNs[0]*maxLogHold,
		fmt.Sprintf("%d of %d fsyncs went to the log, want all; each with %.1f steps with the leaf locked, want at most %d (the kernel had %.1f before seed 003), "+
			"and %.0f ns of virtual time, want %.0f (%.0f before); %.1f searches",
			c.N[sched.LogFsyncs], logFsyncs, n(c.Steps[0]), maxLogSteps, n(old.Steps[0]), n(c.HeldNs[0]), n(best.HeldNs[0])*maxLogHold/100, n(old.HeldNs[0]),
			n(c.N[sched.LogSearches])), nil
}

// logJob overwrites blocks of a file that the log has, each with an fsync, in virtual time, and
// reads them after a power cut.
func logJob(pol string, lab iopath.Lab) (sched.LogCounts, error) {
	const block = format.SectorSize
	var c sched.Counts
	// Every order has the copy of the leaf in its time, which would hide the rest.
	free := cost.Default()
	free.Entries[cost.CopyBlock].Nano = 0
	r := rig{cpus: 2, opt: fs.Options{Policy: policy.MustParse(pol), Lab: lab}, costs: &free}
	err := r.run(func(t *sched.Task, x *fs.FS, f *fs.File) error {
		p := make([]byte, logFsyncs*block)
		if _, err := f.WriteAt(t, p, 0); err != nil {
			return err
		}
		if err := x.Sync(t); err != nil { // an inode with a new name is logged with it
			return err
		}
		if _, err := f.WriteAt(t, p, 0); err != nil {
			return err
		}
		if err := f.Fsync(t); err != nil {
			return err
		}
		var sum error
		for i := range logFsyncs {
			if _, err := f.WriteAt(t, p[:block], int64(i*7%logFsyncs)*block); err != nil {
				return err
			}
			t.Counts = &c
			sum = errors.Join(sum, f.Fsync(t))
			t.Counts = nil
		}
		return sum
	})
	return c.Log, err
}

package judges

import (
	"fmt"
	"strings"
	"time"

	"btrlab/internal/data/inode"
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/sched/vtime"
	"btrlab/internal/study/sandbox"
	"btrlab/labs/kit"
)

// RangeLock is lab 5: a lock on byte ranges.
type RangeLock struct {
	New func() kit.RangeLocker

	judge *kit.Judge // plants mistakes, if there is one
}

// About says what the lab is.
func (RangeLock) About() *About {
	return &About{N: 5, Folder: "05-range-lock", Title: "A range lock", Minutes: 120, File: "rangelock.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath, "cmp", "fmt", "math", "slices", "sort"}, Entry: "New", Shared: true,
			Want: "func New() *RangeLock, which has Lock and Unlock (t *kit.Task, start, end uint64)"},
			"judges.RangeLock{New: func() kit.RangeLocker { return student.New() }}", sandbox.KitPath),
		Promise: "the lock does not exclude", Broken: []explore.Kind{overlaps, explore.KindOracle},
		Given: []string{"lock-identical", "lock-nested", "lock-overlap", "lock-waiters", "two-writers-same", "two-writers-nested",
			"two-writers-overlap", "two-writers-disjoint", "two-writers-eof", "truncate-race", "truncate-into", "lock-stress"}}
}

// make makes a lock as the write path takes it.
func (l RangeLock) make() inode.RangeLocker { return kit.Locker{RangeLocker: l.New(), Judge: l.judge} }

// overlaps is the kind of violation in which two tasks hold one byte.
const overlaps explore.Kind = "exclusion"

// gotHeld says that a task got a span while another one holds bytes of it.
func gotHeld(task int, got span, other int, held span) {
	breaks(overlaps, "task %d got %v while task %d holds %v", task, got, other, held)
}

// span is one hold of a lock-level workload.
type span struct{ start, end uint64 }

func (x span) String() string { return fmt.Sprintf("[%d, %d)", x.start, x.end) }

// holder is the name of a task of a lock-level workload.
func holder(spans ...span) string {
	var l []string
	for _, x := range spans {
		l = append(l, x.String())
	}
	return strings.Join(l, ", ")
}

// watchHeld adds a column to traces: what each task holds.
func watchHeld(w *explore.World, held []span) {
	w.Watch("held", func() string {
		var l []string
		for i, x := range held {
			if x != (span{}) {
				l = append(l, fmt.Sprintf("%d:%v", i, x))
			}
		}
		if l == nil {
			return "-"
		}
		return strings.Join(l, " ")
	})
}

// holders is a program without a file system: each task locks its spans, one after the other, stays
// for a step, and unlocks. Nobody may hold a byte that another holds. Coming and going are steps on
// one object, so that the explorer tries both orders of any two.
func (l RangeLock) holders(tasks ...[]span) func(w *explore.World) {
	return holdersOf(func(*explore.World) inode.RangeLocker { return l.make() }, tasks)
}

// holdersOf is holders of the locks that newLock makes.
func holdersOf(newLock func(w *explore.World) inode.RangeLocker, tasks [][]span) func(w *explore.World) {
	return func(w *explore.World) {
		lock := newLock(w)
		held := make([]span, len(tasks))
		watchHeld(w, held)
		var at explore.Atomic[int]
		at.Class = studentClass.ID
		w.Name(&at, "what is held")
		for i, spans := range tasks {
			w.Go(holder(spans...), func(t *sched.Task) {
				for _, x := range spans {
					lock.Lock(t, x.start, x.end)
					at.Store(t, i)
					for j, h := range held {
						if h.start < x.end && x.start < h.end {
							gotHeld(i, x, j, h)
						}
					}
					held[i] = x
					at.Store(t, -1)
					held[i] = span{}
					lock.Unlock(t, x.start, x.end)
				}
			})
		}
	}
}

// together is a program in which two disjoint ranges must be held at one time: each holder waits
// for the other before it unlocks. Then both take a range over the two, of another lock, and
// exclude each other: a lock that locks nothing holds anything at one time.
func (l RangeLock) together(a, b span) func(w *explore.World) {
	return func(w *explore.World) {
		lock, other := l.make(), l.make()
		held := make([]span, 2)
		watchHeld(w, held)
		var in explore.Atomic[int]
		in.Class = studentClass.ID
		w.Name(&in, "the number of holders")
		both := span{min(a.start, b.start), max(a.end, b.end)}
		var at explore.Atomic[int]
		at.Class = studentClass.ID
		w.Name(&at, "who holds both")
		for i, x := range []span{a, b} {
			w.Go(holder(x), func(t *sched.Task) {
				lock.Lock(t, x.start, x.end)
				in.Update(t, func(n int) int { return n + 1 })
				held[i] = x
				in.Await(t, func(n int) bool { return n == 2 })
				held[i] = span{}
				lock.Unlock(t, x.start, x.end)
				other.Lock(t, both.start, both.end)
				at.Store(t, i)
				if held[1-i] == both {
					gotHeld(i, both, 1-i, both)
				}
				held[i] = both
				at.Store(t, -1)
				held[i] = span{}
				other.Unlock(t, both.start, both.end)
			})
		}
	}
}

// Workloads are the lock alone, then whole writes of the real write path under policy
// range-lock, then the ratio.
func (l RangeLock) Workloads() []Workload {
	writes := func(name, asks string, points float64) Workload {
		return Workload{name: name, asks: asks, points: points, policy: "range-lock", scenario: withLocks(name)}
	}
	return with(iopath.Lab{RangeLock: l.make}, []Workload{
		{name: "lock-identical", asks: "two holders of one range exclude each other", points: 6, program: l.holders([]span{{0, 8}}, []span{{0, 8}})},
		{name: "lock-nested", asks: "so do a range and one inside it, in both orders", points: 7, program: l.holders([]span{{0, 16}}, []span{{4, 8}, {0, 16}})},
		{name: "lock-overlap", asks: "three ranges of which neighbours overlap, everybody gets his turn", points: 7, program: l.holders([]span{{0, 8}}, []span{{4, 12}}, []span{{8, 16}})},
		{name: "lock-touching", asks: "ranges that touch have no byte in common: both are held at one time, and a range over both by one task only", points: 8, program: l.together(span{0, 8}, span{8, 16}),
			stuck: "[0, 8) and [8, 16) are wanted at one time, and they have no byte in common: whoever comes second may not wait for the first"},
		{name: "lock-waiters", asks: "two waiters for different parts of a range both go on", points: 7, program: l.holders([]span{{0, 16}}, []span{{0, 4}}, []span{{8, 12}})},
		writes("two-writers-same", "two writes to the same range do not mix", 8),
		writes("two-writers-nested", "a write around another", 7),
		writes("two-writers-overlap", "writes that overlap in part", 8),
		writes("two-writers-disjoint", "writes of different pages", 4),
		writes("two-writers-eof", "writes across the end of the file", 4),
		writes("truncate-race", "a write and a truncate below it", 5),
		writes("truncate-into", "a truncate into the middle of a write", 4),
		{name: "lock-stress", asks: "thousands of wake-ups that are for others, and ranges of every size on 8 CPUs: no byte is held twice", points: 5, ratio: l.by(stress), judges: true},
		{name: "virtual-time", points: 20, ratio: l.by(race),
			asks: fmt.Sprintf("%d writers of different pages on %d CPUs: at least %d times policy locked", ratioTasks, ratioTasks, minRatio)},
	})
}

// minRatio is what the row virtual-time asks for.
const minRatio = 3

// by is run with the student's locks.
func (l RangeLock) by(run lockRun) func() (bool, string, error) {
	return func() (bool, string, error) { return excluding(l.make, run) }
}

// lockRun is a measurement of the locks that newLock makes.
type lockRun func(newLock func() inode.RangeLocker) (bool, string, error)

// race measures how much faster disjoint writes are with newLock's locks than under i_rwsem.
func race(newLock func() inode.RangeLocker) (bool, string, error) {
	return speedup("locked", minRatio,
		func() (int64, error) { return disjoint("locked", iopath.Lab{}, nil) },
		func() (int64, error) {
			return disjoint("range-lock", iopath.Lab{RangeLock: newLock}, &meeting{rule: calls, piece: ratioBytes})
		})
}

// exclusion makes range locks of newLock's and notes the first time that a task is told that it
// holds a byte which another task holds. It is for virtual time, where one task runs at a time.
type exclusion struct {
	newLock func() inode.RangeLocker
	wrong   error
}

func (x *exclusion) make() inode.RangeLocker { return &judgedLock{judge: x, of: x.newLock()} }

// judgedLock is a range lock with a list of who holds what.
type judgedLock struct {
	judge *exclusion
	of    inode.RangeLocker
	held  []lockedSpan
}

type lockedSpan struct {
	span
	task *sched.Task
}

// Lock locks [start, end).
func (l *judgedLock) Lock(t *sched.Task, start, end uint64) {
	l.of.Lock(t, start, end)
	for _, h := range l.held {
		if h.start < end && start < h.end && l.judge.wrong == nil {
			l.judge.wrong = violation{overlaps, fmt.Sprintf("%s got %v while %s holds %v", t.Name, span{start, end}, h.task.Name, h.span)}
		}
	}
	l.held = append(l.held, lockedSpan{span{start, end}, t})
}

// Unlock lets it go.
func (l *judgedLock) Unlock(t *sched.Task, start, end uint64) {
	for i, h := range l.held {
		if h.span == (span{start, end}) && h.task == t {
			l.held[i] = l.held[len(l.held)-1]
			l.held = l.held[:len(l.held)-1]
			break
		}
	}
	l.of.Unlock(t, start, end)
}

// The measures of the stress of a range lock.
const (
	stressTasks  = 8     // and CPUs
	stressTurns  = 2_000 // of each task that wakes the others
	stressHeld   = 40 * time.Millisecond
	stressRandom = 400 // ranges of each task in the second part
	stressCrowd  = 100 // tasks in the third
)

// stress asks newLock's locks three times in virtual time. First one task holds a range and others
// wait for it while the rest take and leave ranges of their own, thousands of times: each of those
// wake-ups is for nobody. Then all take ranges of every size and place, and last comes a crowd.
func stress(newLock func() inode.RangeLocker) (bool, string, error) {
	sandbox.Again()
	turns := 0
	_, err := vtime.Run(vtime.Machine{CPUs: stressTasks}, func(t *sched.Task) {
		lock := newLock()
		_, _ = inTasks(t, stressTasks, func(t *sched.Task, i int) error {
			switch i {
			case 0:
				lock.Lock(t, 0, 64<<10)
				t.Sleep(stressHeld)
				lock.Unlock(t, 0, 64<<10)
			case 1, 2, 3: // they wait for task 0, and for each other
				t.Sleep(time.Microsecond)
				at := uint64(i) * 12 << 10
				lock.Lock(t, at, at+32<<10)
				t.Sleep(time.Microsecond)
				lock.Unlock(t, at, at+32<<10)
			default:
				at := uint64(i) << 20
				for range stressTurns {
					lock.Lock(t, at, at+4096)
					t.Sleep(2 * time.Microsecond)
					lock.Unlock(t, at, at+4096)
					t.Sleep(time.Microsecond)
					turns++
				}
			}
			return nil
		})
		lock = newLock()
		_, _ = inTasks(t, stressTasks, func(t *sched.Task, i int) error {
			for n := range stressRandom {
				start, end := anyRange(i, n)
				lock.Lock(t, start, end)
				t.Sleep(time.Duration(n%7) * 500 * time.Nanosecond)
				lock.Unlock(t, start, end)
				turns++
			}
			return nil
		})
		lock = newLock()
		_, _ = inTasks(t, stressCrowd, func(t *sched.Task, i int) error {
			// a block of each, all held at one time, and then all blocks by each in turn
			for _, x := range []struct {
				span
				held time.Duration
			}{{span{uint64(i) << 12, uint64(i+1) << 12}, 500 * time.Microsecond}, {span{0, stressCrowd << 12}, time.Microsecond}} {
				lock.Lock(t, x.start, x.end)
				t.Sleep(x.held)
				lock.Unlock(t, x.start, x.end)
				turns++
			}
			return nil
		})
	})
	if err != nil {
		return false, "", err
	}
	return true, fmt.Sprintf("%d turns of up to %d tasks, no byte held twice", turns, stressCrowd), nil
}

// anyRange is the n-th range of a task: of a byte to gigabytes, at the beginning of a file or far
// into it. The same in every run.
func anyRange(task, n int) (start, end uint64) {
	x := uint64(task*7919+n+1) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	near := (x >> 8) % (256 << 10)
	size := uint64(1) << (x % 18)
	if n%5 == 0 {
		near += measuredBytes - 128<<10
	}
	if n%50 == 0 {
		return near, near + 1<<40
	}
	return near, near + size
}

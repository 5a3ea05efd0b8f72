package grade

import (
	"fmt"
	"strings"

	"btrlab/internal/iopath/policy"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/labs/kit"
)

// workload is one row: something that is run under the student's code.
type workload struct {
	name   string
	asks   string
	points float64
	// One of these.
	scenario *scenario.Scenario
	program  func(s *Student) func(w *explore.World)
	ratio    func(s *Student) (ok bool, text string, err error)
	// ratio compares nothing: it says whether the code is right, and what comes after it is not
	// measured if not
	judges bool
	// measure fills a row with what a policy costs; clean says that nothing is violated.
	measure func(s *Student, clean bool, r *Row) error
	family  *family                             // whose row it is in, if it has none of its own
	policy  string                              // of the scenario
	order   func(s *Student) []policy.WriteStep // of a batch; nil is the policy's
	// order is not the student's, who answers by a schedule, or never
	question bool
	// a question of lab 4: the first of the two steps, from 1, that are swapped
	swap  int
	limit int // schedules of each pass; 0 is maxSchedules
	// what it means that a task waits in a Cond for ever; empty is what the explorer says
	stuck   string
	anyWait bool // stuck says it of every wait
}

// family is a row of several workloads.
type family struct {
	name, asks string
	points     float64
}

// points are what the grader gives for all rows of lab n: the tasks of labs 0 and 1, the workloads
// of the others. A teacher may give more.
func points(n int) float64 {
	sum := 0.0
	for _, k := range askedIn(n, nil) {
		sum += k.points
	}
	var last *family
	for _, w := range workloads(n) {
		sum += w.points
		if w.family != nil && w.family != last {
			sum += w.family.points
		}
		last = w.family
	}
	return sum
}

// Workloads are the names of lab n's workloads that have schedules.
func Workloads(n int) []string {
	var l []string
	for _, w := range workloads(n) {
		if w.ratio == nil && w.measure == nil {
			l = append(l, w.name)
		}
	}
	return l
}

const kib = 1024

// far is a workload on a file that is as big as that of disjoint when the tasks begin.
func far(w workload) workload {
	w.scenario = w.scenario.Far(w.name, measuredBytes-w.scenario.File.Size)
	return w
}

// calls is POSIX as far as Linux has it: writes whole, the size with them, reads page by page.
var calls = oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesWith}

func all(n int64) []oracle.Range { return []oracle.Range{{Lo: 0, Hi: n}} }

// workloads are the rows of a lab, in the order of the report.
func workloads(n int) []workload {
	switch n {
	case 2:
		return baselineWorkloads()
	case 3:
		return lockingWorkloads()
	case 4:
		return append(setsizeWorkloads(), swapWorkloads()...)
	case 5:
		return rangeWorkloads()
	case 6:
		return waitWorkloads()
	case 7:
		return nowaitWorkloads()
	case 8:
		return ringWorkloads()
	case 9:
		return logWorkloads()
	case 10:
		return sectorWorkloads()
	case 12:
		return policyWorkloads()
	case own.N:
		return ownWorkloads()
	case 11:
		return orderWorkloads()
	}
	return nil
}

func must(name string) *scenario.Scenario {
	s, err := scenario.Lookup(name)
	if err != nil {
		panic("grade: " + err.Error())
	}
	return s
}

// setsizeWorkloads are lab 4's. Request is too much to ask of writers that hold no lock, but with
// one writer there is nothing to mix.
func setsizeWorkloads() []workload {
	grow := []scenario.Op{scenario.Truncate(4 * kib), scenario.Truncate(16 * kib), scenario.Read(0, 16*kib)}
	cached := scenario.File{Size: 16 * kib, Cached: all(16 * kib)}
	dirty := scenario.File{Size: 16 * kib, Dirty: all(16 * kib)}
	locks := []string{"i_rwsem", "dio_wait", "page", "extent"}
	return []workload{
		{name: "truncate-race", asks: "a writer and a truncate below it: the truncate is not lost", points: 10, policy: "unlocked", scenario: must("truncate-race")},
		{name: "truncate-into", asks: "a truncate into the middle of a write, inside a page", points: 10, policy: "unlocked", scenario: must("truncate-into")},
		{name: "two-writers-truncate", asks: "two writers and a truncate below both", points: 10, policy: "unlocked", scenario: must("two-writers-truncate")},
		{name: "shrink-grow", asks: "what was cut does not come back when the file grows", points: 10, policy: "unlocked", scenario: &scenario.Scenario{
			Name: "shrink-grow", About: "a truncate below the end, one above it, and a look at what is in between",
			File: cached, Tasks: []scenario.Task{{Name: "truncate", Ops: grow}}, Switch: locks, Rule: calls, Deep: true}},
		{name: "shrink-grow-reader", asks: "nor when a reader comes in between", points: 10, policy: "unlocked", scenario: &scenario.Scenario{
			Name: "shrink-grow-reader", About: "a truncate below the end, one above it, and a reader that brings pages back",
			File:   scenario.File{Size: 16 * kib},
			Tasks:  []scenario.Task{{Name: "truncate", Ops: []scenario.Op{grow[0], grow[1], scenario.Read(8*kib, 4*kib)}}, {Name: "reader", Ops: []scenario.Op{scenario.Read(8*kib, 4*kib)}}},
			Switch: locks, Rule: calls, Deep: true}},
		{name: "shrink-writeback", asks: "nor when what is cut is on its way to the disk", points: 10, policy: "unlocked", limit: 5_000, scenario: &scenario.Scenario{
			Name: "shrink-writeback", About: "a truncate while dirty pages beyond the new end are written back",
			File:   dirty,
			Tasks:  []scenario.Task{{Name: "truncate", Ops: grow}, {Name: "writeback", Ops: []scenario.Op{scenario.Flush()}}},
			Switch: []string{"i_rwsem", "page", "extent", "ordered_extent", "workqueue_idle"},
			Rule:   calls, Deep: true}},
	}
}

// studentClass is where a lock-level workload looks: between the lock and the unlock, another task
// may run.
var studentClass = lockdep.NewClass("lab_bytes")

// overlaps is the kind of violation in which two tasks hold one byte.
const overlaps explore.Kind = "exclusion"

// span is one hold of a lock-level workload.
type span struct{ start, end uint64 }

func (x span) String() string { return fmt.Sprintf("[%d, %d)", x.start, x.end) }

// overlap is the panic of a task that got a span while another one holds bytes of it.
type overlap struct {
	task, other int
	got, held   span
}

func (o overlap) String() string {
	return fmt.Sprintf("task %d got %v while task %d holds %v", o.task, o.got, o.other, o.held)
}

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
func holders(tasks ...[]span) func(s *Student) func(w *explore.World) {
	return func(s *Student) func(w *explore.World) {
		return func(w *explore.World) {
			l := s.NewRangeLock()
			held := make([]span, len(tasks))
			watchHeld(w, held)
			var at explore.Atomic[int]
			at.Class = studentClass.ID
			w.Name(&at, "what is held")
			for i, spans := range tasks {
				w.Go(holder(spans...), func(t *sched.Task) {
					for _, x := range spans {
						l.Lock(t, x.start, x.end)
						at.Store(t, i)
						for j, h := range held {
							if h.start < x.end && x.start < h.end {
								panic(overlap{i, j, x, h})
							}
						}
						held[i] = x
						at.Store(t, -1)
						held[i] = span{}
						l.Unlock(t, x.start, x.end)
					}
				})
			}
		}
	}
}

// together is a program in which two disjoint ranges must be held at one time: each holder waits
// for the other before it unlocks. Then both take a range over the two, of another lock, and
// exclude each other: a lock that locks nothing holds anything at one time.
func together(a, b span) func(s *Student) func(w *explore.World) {
	return func(s *Student) func(w *explore.World) {
		return func(w *explore.World) {
			l, other := s.NewRangeLock(), s.NewRangeLock()
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
					l.Lock(t, x.start, x.end)
					in.Update(t, func(n int) int { return n + 1 })
					held[i] = x
					in.Await(t, func(n int) bool { return n == 2 })
					held[i] = span{}
					l.Unlock(t, x.start, x.end)
					other.Lock(t, both.start, both.end)
					at.Store(t, i)
					if held[1-i] == both {
						panic(overlap{i, 1 - i, both, both})
					}
					held[i] = both
					at.Store(t, -1)
					held[i] = span{}
					other.Unlock(t, both.start, both.end)
				})
			}
		}
	}
}

// rangeWorkloads are lab 5's: the lock alone, then whole writes of the real write path under policy
// range-lock, then the ratio.
func rangeWorkloads() []workload {
	l := []workload{
		{name: "lock-identical", asks: "two holders of one range exclude each other", points: 6, program: holders([]span{{0, 8}}, []span{{0, 8}})},
		{name: "lock-nested", asks: "so do a range and one inside it, in both orders", points: 7, program: holders([]span{{0, 16}}, []span{{4, 8}, {0, 16}})},
		{name: "lock-overlap", asks: "three ranges of which neighbours overlap, everybody gets his turn", points: 7, program: holders([]span{{0, 8}}, []span{{4, 12}}, []span{{8, 16}})},
		{name: "lock-touching", asks: "ranges that touch have no byte in common: both are held at one time, and a range over both by one task only", points: 8, program: together(span{0, 8}, span{8, 16}),
			stuck: "[0, 8) and [8, 16) are wanted at one time, and they have no byte in common: whoever comes second may not wait for the first"},
		{name: "lock-waiters", asks: "two waiters for different parts of a range both go on", points: 7, program: holders([]span{{0, 16}}, []span{{0, 4}}, []span{{8, 12}})},
	}
	for _, x := range []struct {
		name string
		pts  float64
		asks string
	}{
		{"two-writers-same", 6, "two writes to the same range do not mix"},
		{"two-writers-nested", 6, "a write around another"},
		{"two-writers-overlap", 6, "writes that overlap in part"},
		{"two-writers-disjoint", 4, "writes of different pages"},
		{"two-writers-eof", 4, "writes across the end of the file"},
		{"truncate-race", 5, "a write and a truncate below it"},
		{"truncate-into", 4, "a truncate into the middle of a write"},
	} {
		s := *must(x.name)
		s.Switch = append(append([]string(nil), s.Switch...), kit.Classes()...)
		l = append(l, workload{name: x.name, asks: x.asks, points: x.pts, policy: "range-lock", scenario: &s})
	}
	const at = measuredBytes
	same := *must("two-writers-same")
	same.Switch = append(append([]string(nil), same.Switch...), kit.Classes()...)
	same.Name = "far-writers"
	l = append(l,
		workload{name: "lock-far", asks: "ranges that overlap at the end of the measured file", points: 2, program: holders([]span{{at - 16, at}}, []span{{at - 8, at + 8}, {0, 1 << 40}})},
		workload{name: "lock-stress", asks: "thousands of wake-ups that are for others, and ranges of every size on 8 CPUs: no byte is held twice", points: 3, ratio: lockStress, judges: true},
		far(workload{name: "far-writers", asks: "two writes to one range do not mix in a file as big as the measured one", points: 5, policy: "range-lock", scenario: &same}))
	return append(l, workload{name: "virtual-time", points: 20, ratio: disjointRatio,
		asks: fmt.Sprintf("%d writers of different pages on %d CPUs: at least %d times policy locked", ratioTasks, ratioTasks, minRatio)})
}

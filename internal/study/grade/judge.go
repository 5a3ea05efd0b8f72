package grade

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"btrlab/internal/data/inode"
	"btrlab/internal/iopath/policy"
	"btrlab/internal/judge/oracle"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/scenario"
	"btrlab/internal/study/timeline"
	"btrlab/labs/kit"
)

// Student is what a solution gives the grader.
type Student struct {
	Steps        func() []policy.SetsizeStep // lab 4
	NewRangeLock func() inode.RangeLocker    // lab 5
}

// The bounds of the search of one workload. They are numbers, not times, so that a grade is the same everywhere.
const (
	maxPreemptions = 2      // of the first pass, which finds the shortest schedule
	maxSchedules   = 40_000 // of each pass
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
	policy   string // of the scenario
	limit    int    // schedules of each pass; 0 is maxSchedules
	stuck    string // what it means that a task waits in a Cond for ever; empty is what the explorer says
}

// points are what lab n gives for all its rows: the tasks of lab 1, the workloads of the others.
func points(n int) float64 {
	sum := 0.0
	if n == 1 {
		for _, k := range lab1 {
			sum += k.points
		}
	}
	for _, w := range workloads(n) {
		sum += w.points
	}
	return sum
}

// Workloads are the names of lab n's workloads that have schedules.
func Workloads(n int) []string {
	var l []string
	for _, w := range workloads(n) {
		if w.ratio == nil {
			l = append(l, w.name)
		}
	}
	return l
}

// Main is the grading program's: args are the file for the rows, the lab, and to run one schedule only, workload and schedule.
func Main(s Student, args []string) int {
	if len(args) != 2 && len(args) != 4 {
		return 2
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return 2
	}
	only, schedule := "", ""
	if len(args) == 4 {
		only, schedule = args[2], args[3]
	}
	var ending sync.Mutex
	write := func(rows []Row) int {
		ending.Lock() // for good: who comes second has nothing to say any more
		b, err := json.Marshal(rows)
		if err != nil || os.WriteFile(args[0], b, 0o644) != nil {
			return 1
		}
		return 0
	}
	dog.start(func(wrong string) { os.Exit(write(refused("run", points(n), []string{wrong}))) })
	return write(Judge(n, &s, only, schedule))
}

// Judge runs the workloads of lab n under the student's code; with only set, one schedule of that workload.
func Judge(n int, s *Student, only, schedule string) []Row {
	inode.NewRangeLocker = s.NewRangeLock
	if s.Steps != nil {
		dog.begin("Steps", cpuOfSteps)
		order := s.Steps()
		if err := policy.CheckSetsizeOrder(order); err != nil {
			return refused("steps", points(n), []string{err.Error()})
		}
		s.Steps = func() []policy.SetsizeStep { return order }
	}
	var rows []Row
	clean, shown := true, false
	for _, w := range workloads(n) {
		if only != "" && w.name != only {
			continue
		}
		r := Row{Name: w.name, Asks: w.asks, Max: w.points}
		var err error
		dog.begin(w.name, cpuOfExecution)
		switch {
		case only != "" && w.ratio == nil:
			err = w.replay(s, schedule, &r)
		case w.ratio == nil:
			err = w.search(s, &r)
			if shown {
				r.Trace = "" // the first is enough to read
			}
			shown = shown || r.Trace != ""
		case !clean:
			r.Result = "not measured: a workload is violated"
		default:
			r.Pass, r.Result, err = w.ratio(s)
		}
		if err != nil {
			r.Pass, r.Result = false, err.Error()
		}
		if r.Pass {
			r.Score = r.Max
		}
		clean = clean && r.Pass
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return refused(only, 0, []string{"no such workload"})
	}
	return rows
}

// search is explore and, for a violation, the words and the steps of one execution more: a search keeps neither.
func (w *workload) search(s *Student, r *Row) error {
	if err := w.explore(s, r); err != nil || !r.Violated {
		return err
	}
	x := *r
	if err := w.replay(s, r.Schedule, &x); err != nil {
		return err
	}
	if !x.Pass {
		r.Kind, r.Result, r.Trace = x.Kind, x.Result, x.Trace
	}
	return nil
}

// pol is the policy that the workload runs under.
func (w *workload) pol(s *Student) *policy.Policy {
	p := policy.MustParse(w.policy)
	if s.Steps != nil {
		copy(p.SetsizeSteps[:], s.Steps())
		p.Name += " with your order"
	}
	return p
}

func (w *workload) config() (explore.Config, error) {
	c := explore.Config{MaxSteps: 5_000}
	if w.scenario != nil {
		var err error
		if c, err = w.scenario.Config(); err != nil {
			return c, err
		}
	}
	c.Schedules = maxSchedules
	if w.limit > 0 {
		c.Schedules = w.limit
	}
	return c, nil
}

func (w *workload) prog(s *Student) (func(w *explore.World), error) {
	if w.scenario == nil {
		p := w.program(s)
		return func(x *explore.World) { dog.again(); p(x) }, nil
	}
	p, err := w.scenario.Program(w.pol(s), false)
	return func(x *explore.World) { dog.again(); p(x) }, err
}

// explore searches the workload and fills the row: first by number of preemptions, so that a violation comes with its shortest
// schedule, then with partial-order reduction, which comes to an end where the first cannot.
func (w *workload) explore(s *Student, r *Row) error {
	cfg, err := w.config()
	if err != nil {
		return err
	}
	prog, err := w.prog(s)
	if err != nil {
		return err
	}
	cfg.Preemptions = maxPreemptions
	first := explore.Run(cfg, prog)
	r.Schedules, r.Result, r.Switch = first.Schedules, bound(first.Bound), first.Switch
	x := first
	if x.Verdict == explore.Bounded {
		cfg.Method, cfg.Preemptions = explore.DPOR, 0
		x = explore.Run(cfg, prog)
		r.Schedules, r.Result = x.Schedules, bound(x.Bound)
		if x.Verdict == explore.Bounded {
			r.Schedules, r.Result = first.Schedules+x.Schedules, bound(first.Bound)+"; "+bound(x.Bound)
		}
	}
	r.Pass = x.Verdict != explore.Violated
	if !r.Pass {
		r.Schedule = x.Schedule
		r.violated(w.words(x.Violation))
	}
	return nil
}

// bound is what a search came to without the classes that it switches at: the report names them once.
func bound(c explore.Coverage) string {
	c.At = nil
	return c.String()
}

// replay runs one schedule and leaves the steps in the row.
func (w *workload) replay(s *Student, schedule string, r *Row) error {
	r.Schedule = schedule
	cfg, err := w.config()
	if err != nil {
		return err
	}
	prog, err := w.prog(s)
	if err != nil {
		return err
	}
	x := explore.Replay(cfg, schedule, prog)
	if x.Verdict == explore.KindMisfit {
		r.Misfit, r.Result = true, misfit(x.Violation)
		return nil
	}
	tr := w.traceOf(s, &x)
	if tr.Kind == explore.OK {
		r.Pass, r.Result = true, "this schedule keeps the contract"
	} else {
		tr.Violation = w.words(tr.Violation)
		tr.Kind = tr.Violation.Kind
		r.violated(tr.Violation)
	}
	var b strings.Builder
	if err := timeline.WriteText(&b, tr, timeline.Layout{}); err != nil {
		return err
	}
	r.Trace = b.String()
	return nil
}

// traceOf is the trace of an execution of the workload; steps in the student's code say where.
func (w *workload) traceOf(s *Student, x *explore.Execution) *scenario.Trace {
	own := len(x.Tasks)
	if w.scenario != nil {
		own = len(w.scenario.Tasks)
	}
	tr := scenario.TraceOf(x, own)
	tr.Scenario, tr.About = w.name, w.asks
	if w.scenario != nil {
		tr.About, tr.Policy = w.scenario.About, w.pol(s).Name
	}
	for i := range tr.Steps {
		if at, ok := studentFrame(tr.Steps[i].Stack); ok {
			tr.Steps[i].Where = fmt.Sprintf("%s:%d", function(at), at.Line)
		}
	}
	return tr
}

// studentFrame is the innermost call of a stack that is in a lab's package.
func studentFrame(s explore.Stack) (explore.Frame, bool) {
	i := slices.IndexFunc(s, inLab)
	if i < 0 {
		return explore.Frame{}, false
	}
	return s[i], true
}

// inLab says that a call is in a lab's package and not in package kit.
func inLab(f explore.Frame) bool {
	return strings.HasPrefix(f.Func, "btrlab/labs/") && !strings.HasPrefix(f.Func, kitPath+".")
}

// function is the name of a call's function without its package and type.
func function(f explore.Frame) string { return f.Func[strings.LastIndexByte(f.Func, '.')+1:] }

// raceLines explain a race to the student: the lines of both sides that are in the student's code.
func raceLines(sides []explore.Side) string {
	var l []string
	for _, s := range sides {
		l = append(l, s.String())
		for _, f := range s.Stack {
			if inLab(f) {
				l = append(l, fmt.Sprintf("  %s:%d, in %s", f.File, f.Line, function(f)))
			}
		}
	}
	l = append(l, "a Load of a slice, map or pointer counts as a write, too: what it leads to can be changed in place")
	return strings.Join(l, "\n")
}

// words are a violation in words for the student. The kind, which the report names first, is not in them.
func (w *workload) words(v explore.Violation) explore.Violation {
	s := explore.Violation{Kind: v.Kind, What: v.Line(), More: v.More}
	switch v.Kind {
	case explore.KindRace:
		s.More = raceLines(v.Sides)
	case explore.KindDeadlock, explore.KindLost, explore.KindGone:
		if w.stuck != "" && slices.Contains(v.Waits, kit.CondClass()) {
			s.What, s.More = w.stuck, s.What+"\n"+s.More
		}
	case explore.KindPanic:
		if o, ok := v.Panic.(overlap); ok {
			return explore.Violation{Kind: exclusion, What: o.String()}
		}
		s.What, s.More = fmt.Sprintf("%s (task %s)", v.What, v.Task), ""
		if at := studentLine([]byte(v.More)); at != "" {
			s.What = at + ": " + s.What
		}
	}
	return s
}

// violated enters what was violated into the row: the kind and one line.
func (r *Row) violated(v explore.Violation) {
	r.Violated, r.Kind, r.Result = true, v.Kind, shortly(v)
}

// shortly is the kind and the first line of a violation. The colon in front of an explanation goes with it.
func shortly(v explore.Violation) string {
	return explore.Violation{Kind: v.Kind, What: strings.TrimSuffix(v.Line(), ":")}.Violated()
}

const kib = 1024

// calls is POSIX as far as Linux has it: writes whole, the size with them, reads page by page.
var calls = oracle.Rule{Write: oracle.Request, Read: oracle.Page, Sizes: oracle.SizesWith}

func all(n int64) []oracle.Range { return []oracle.Range{{Lo: 0, Hi: n}} }

// workloads are the rows of a lab, in the order of the report.
func workloads(n int) []workload {
	switch n {
	case 4:
		return setsizeWorkloads()
	case 5:
		return rangeWorkloads()
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

// setsizeWorkloads are lab 4's. Request is too much to ask of writers that hold no lock, but with one writer there is nothing to mix.
func setsizeWorkloads() []workload {
	grow := []scenario.Op{scenario.Truncate(4 * kib), scenario.Truncate(16 * kib), scenario.Read(0, 16*kib)}
	cached := scenario.File{Size: 16 * kib, Cached: all(16 * kib)}
	dirty := scenario.File{Size: 16 * kib, Dirty: all(16 * kib)}
	locks := []string{"i_rwsem", "dio_wait", "page", "extent"}
	return []workload{
		{name: "truncate-race", asks: "a writer and a truncate below it: the truncate is not lost", points: 25, policy: "unlocked", scenario: must("truncate-race")},
		{name: "truncate-into", asks: "a truncate into the middle of a write, inside a page", points: 15, policy: "unlocked", scenario: must("truncate-into")},
		{name: "two-writers-truncate", asks: "two writers and a truncate below both", points: 15, policy: "unlocked", scenario: must("two-writers-truncate")},
		{name: "shrink-grow", asks: "what was cut does not come back when the file grows", points: 15, policy: "unlocked", scenario: &scenario.Scenario{
			Name: "shrink-grow", About: "a truncate below the end, one above it, and a look at what is in between",
			File: cached, Tasks: []scenario.Task{{Name: "truncate", Ops: grow}}, Switch: locks, Rule: calls, Deep: true}},
		{name: "shrink-grow-reader", asks: "nor when a reader comes in between", points: 15, policy: "unlocked", scenario: &scenario.Scenario{
			Name: "shrink-grow-reader", About: "a truncate below the end, one above it, and a reader that brings pages back",
			File:   scenario.File{Size: 16 * kib},
			Tasks:  []scenario.Task{{Name: "truncate", Ops: grow}, {Name: "reader", Ops: []scenario.Op{scenario.Read(8*kib, 4*kib)}}},
			Switch: locks, Rule: calls, Deep: true}},
		{name: "shrink-writeback", asks: "nor when what is cut is on its way to the disk", points: 15, policy: "unlocked", limit: 5_000, scenario: &scenario.Scenario{
			Name: "shrink-writeback", About: "a truncate while dirty pages behind the new end are written back",
			File:   dirty,
			Tasks:  []scenario.Task{{Name: "truncate", Ops: grow}, {Name: "writeback", Ops: []scenario.Op{scenario.Flush()}}},
			Switch: []string{"i_rwsem", "page", "extent", "ordered_extent", "workqueue_idle"},
			Rule:   calls, Deep: true}},
	}
}

// studentClass is where a lock-level workload looks: between the lock and the unlock, somebody else may run.
var studentClass = lockdep.NewClass("lab_bytes")

// exclusion is the kind of violation in which two tasks hold one byte.
const exclusion explore.Kind = "exclusion"

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

// holders is a program without a file system: each task locks its spans, one after the other, stays for a step, and unlocks.
// Nobody may hold a byte that another holds. Coming and going are steps on one object, so that the explorer tries both orders of any two.
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

// together is a program in which two disjoint ranges must be held at one time: each holder waits for the other before it unlocks.
func together(a, b span) func(s *Student) func(w *explore.World) {
	return func(s *Student) func(w *explore.World) {
		return func(w *explore.World) {
			l := s.NewRangeLock()
			held := make([]span, 2)
			watchHeld(w, held)
			var in explore.Atomic[int]
			in.Class = studentClass.ID
			w.Name(&in, "the number of holders")
			for i, x := range []span{a, b} {
				w.Go(holder(x), func(t *sched.Task) {
					l.Lock(t, x.start, x.end)
					in.Update(t, func(n int) int { return n + 1 })
					held[i] = x
					in.Await(t, func(n int) bool { return n == 2 })
					held[i] = span{}
					l.Unlock(t, x.start, x.end)
				})
			}
		}
	}
}

// rangeWorkloads are lab 5's: the lock alone, then whole writes of the real write path under policy range-lock, then the ratio.
func rangeWorkloads() []workload {
	l := []workload{
		{name: "lock-identical", asks: "two holders of one range exclude each other", points: 8, program: holders([]span{{0, 8}}, []span{{0, 8}})},
		{name: "lock-nested", asks: "so do a range and one inside it, in both orders", points: 8, program: holders([]span{{0, 16}}, []span{{4, 8}, {0, 16}})},
		{name: "lock-overlap", asks: "three ranges of which neighbours overlap, everybody gets his turn", points: 8, program: holders([]span{{0, 8}}, []span{{4, 12}}, []span{{8, 16}})},
		{name: "lock-touching", asks: "ranges that touch have no byte in common: both are held at one time", points: 8, program: together(span{0, 8}, span{8, 16}),
			stuck: "[0, 8) and [8, 16) are wanted at one time, and they have no byte in common: whoever comes second may not wait for the first"},
		{name: "lock-waiters", asks: "two waiters for different parts of a range both go on", points: 8, program: holders([]span{{0, 16}}, []span{{0, 4}}, []span{{8, 12}})},
	}
	for _, x := range []struct {
		name string
		pts  float64
		asks string
	}{
		{"two-writers-same", 7, "two writes to the same range do not mix"},
		{"two-writers-nested", 6, "a write around another"},
		{"two-writers-overlap", 7, "writes that overlap in part"},
		{"two-writers-disjoint", 5, "writes of different pages"},
		{"two-writers-eof", 5, "writes across the end of the file"},
		{"truncate-race", 5, "a write and a truncate below it"},
		{"truncate-into", 5, "a truncate into the middle of a write"},
	} {
		s := *must(x.name)
		s.Switch = append(append([]string(nil), s.Switch...), kit.Classes()...)
		l = append(l, workload{name: x.name, asks: x.asks, points: x.pts, policy: "range-lock", scenario: &s})
	}
	return append(l, workload{name: "virtual-time", points: 20, ratio: disjointRatio,
		asks: fmt.Sprintf("%d writers of different pages on %d CPUs: at least %d times policy locked", ratioTasks, ratioTasks, minRatio)})
}

// Package explore is a runtime that runs tasks one at a time and decides at every scheduling point who goes on,
// so that the real file-system code can be run by a given schedule, step by step, the same way each time.
//
// A run is a sequence of steps. Before each step every task that can run stands in front of one operation (a
// lock, a wait, an atomic, a device transfer: sched.Point); the strategy picks one, and it does that
// operation and everything up to its next scheduling point. The default is to let the task go on that ran last, and when
// it cannot, the enabled task with the lowest number; a schedule names only the deviations from that: "4:1,9:0" lets
// task 1 go on at step 4 and task 0 at step 9. The empty schedule is the run without preemptions.
//
// Invariants:
//   - one task runs at any time; it gives up only inside Point, Park and Sleep, or by ending
//   - the same program and the same schedule give the same steps; anything else is reported as a Mismatch
//   - when no task can run and one has not ended, the run is a Deadlock
//
// Model: memory is sequentially consistent, and plain fields are not scheduling points, so an interleaving inside the
// code between two points is not seen. Time stands still but for Sleep: when nobody else can run, the clock moves
// to the first sleeper.
package explore

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"btrlab/internal/sched"
)

// Verdict is how a run ended.
type Verdict uint8

// The verdicts.
const (
	OK       Verdict = iota // every task has ended
	Deadlock                // nobody can run and somebody has not ended
	Panicked                // a task panicked
	Mismatch                // the schedule or the recorded run does not fit the program
	TooLong                 // MaxSteps were not enough
)

var verdictNames = [...]string{"ok", "deadlock", "panic", "mismatch", "too long"}

func (v Verdict) String() string { return verdictNames[v] }

// Config says how to run. The zero value runs without preemptions.
type Config struct {
	// Schedule names deviations, "step:task,step:task", steps ascending.
	Schedule string
	// Strategy picks where Schedule does not; nil is the default order.
	Strategy Strategy
	// Expect is an earlier run's steps: the first difference is a Mismatch.
	Expect []Step
	// MaxSteps ends a run that does not; 0 is 1,000,000.
	MaxSteps int
	// ClassName names lock classes in steps; nil prints numbers. (The names are package lockdep's.)
	ClassName func(sched.ClassID) string
}

// Strategy decides who goes on. It must be deterministic.
type Strategy interface {
	// Pick returns one of d.Enabled.
	Pick(d Decision) int
}

// Decision is the state in which a strategy picks. It is valid during Pick only.
type Decision struct {
	Step    int
	Last    int    // the task that ran last
	Default int    // whom the default order would pick
	Enabled []int  // ascending task numbers
	Next    []Step // for each of Enabled, the step it would do
}

// StepKind is what a step begins with: a scheduling point, or one of the runtime's own.
type StepKind uint8

// The kinds behind the scheduling points.
const (
	stepStart  StepKind = 32 + iota // a task's first step
	stepResume                      // behind Park
	stepAwake                       // behind Sleep
)

func (k StepKind) String() string {
	switch k {
	case stepStart:
		return "start"
	case stepResume:
		return "resume" // of a wait
	case stepAwake:
		return "awake"
	}
	return sched.PointKind(k).String()
}

// Step is one step of a run.
type Step struct {
	Task  int
	Kind  StepKind
	Class sched.ClassID
	// Obj numbers the object by first use in the run, from 1; 0 is none.
	Obj int
	// Enabled are the tasks that could run, as bits.
	Enabled uint64
}

// Result is a finished run.
type Result struct {
	Verdict Verdict
	// Schedule replays the run: the deviations from the default order.
	Schedule string
	Steps    []Step
	// Tasks are the names by number; 0 is the program.
	Tasks []string
	// Message says what went wrong: who waits for what, the panic and its stack, the mismatch.
	Message string

	className func(sched.ClassID) string
}

// Trace prints the run, one step a line: number, task, operation, object.
func (r *Result) Trace() string {
	var b strings.Builder
	for i, s := range r.Steps {
		fmt.Fprintf(&b, "%4d  %d %-12s %s\n", i, s.Task, r.Tasks[s.Task], describe(s, r.className))
	}
	return b.String()
}

func describe(s Step, name func(sched.ClassID) string) string {
	if s.Kind == stepStart || s.Kind == stepAwake {
		return s.Kind.String()
	}
	c := fmt.Sprintf("class %d", s.Class)
	if name != nil {
		c = name(s.Class)
	}
	if s.Obj == 0 {
		return fmt.Sprintf("%v %s", s.Kind, c)
	}
	return fmt.Sprintf("%v %s #%d", s.Kind, c, s.Obj)
}

type taskState uint8

const (
	ready taskState = iota
	parked
	sleeping
	ended
)

// task is a coroutine with what it will do next.
type task struct {
	t     *sched.Task
	num   int
	state taskState
	token bool // an Unpark came while it was not parked
	due   int64
	pend  Step
	yield func(struct{}) bool
	next  func() (struct{}, bool)
	stop  func()
}

// World is one run; it is the sched.Runtime of its tasks.
type World struct {
	cfg      Config
	devs     map[int]int // step -> task
	tasks    []*task
	byTask   map[*sched.Task]*task
	objs     map[any]int
	cur      *task // whom the scheduler resumes
	clock    int64
	steps    []Step
	taken    []string // deviations
	aborting bool
	verdict  Verdict
	message  string
	enabled  []int
	nexts    []Step
}

// abort unwinds a coroutine whose run is over.
type abort struct{}

// Run runs prog as task 0 by cfg and returns when every task has ended or the run is stuck. The program must be
// deterministic, must wait through its tasks only, and must end what it started.
func Run(cfg Config, prog func(t *sched.Task)) Result {
	w := &World{cfg: cfg, byTask: map[*sched.Task]*task{}, objs: map[any]int{}}
	if w.cfg.MaxSteps == 0 {
		w.cfg.MaxSteps = 1_000_000
	}
	var err error
	if w.devs, err = parseSchedule(cfg.Schedule); err != nil {
		return Result{Verdict: Mismatch, Message: err.Error()}
	}
	w.add(sched.NewTaskOn(w, "main"), prog)
	w.decide(w.tasks[0])
	for w.cur != nil {
		w.cur.next()
	}
	w.aborting = true
	for _, k := range w.tasks {
		k.stop()
	}
	if w.verdict == OK {
		for step := range w.devs {
			if step >= len(w.steps) {
				w.verdict, w.message = Mismatch, fmt.Sprintf("the schedule names step %d, the run has %d", step, len(w.steps))
			}
		}
		if e := len(cfg.Expect); e > len(w.steps) {
			w.verdict, w.message = Mismatch, fmt.Sprintf("nondeterminism: the run ended after %d steps, the recorded one has %d", len(w.steps), e)
		}
	}
	r := Result{Verdict: w.verdict, Schedule: strings.Join(w.taken, ","), Steps: w.steps, Message: w.message, className: cfg.ClassName}
	for _, k := range w.tasks {
		r.Tasks = append(r.Tasks, k.t.Name)
	}
	return r
}

func parseSchedule(s string) (map[int]int, error) {
	devs := map[int]int{}
	last := -1
	for d := range strings.SplitSeq(s, ",") {
		if d == "" && s == "" {
			continue
		}
		a, b, ok := strings.Cut(d, ":")
		step, err1 := strconv.Atoi(a)
		num, err2 := strconv.Atoi(b)
		if !ok || err1 != nil || err2 != nil || num < 0 || step <= last {
			return nil, fmt.Errorf("schedule %q: %q is not step:task with an ascending step", s, d)
		}
		devs[step], last = num, step
	}
	return devs, nil
}

// maxTasks is the number of bits in Step.Enabled.
const maxTasks = 64

func (w *World) add(t *sched.Task, f func(t *sched.Task)) {
	if len(w.tasks) == maxTasks {
		panic(fmt.Sprintf("explore: more than %d tasks, at %q", maxTasks, t.Name))
	}
	k := &task{t: t, num: len(w.tasks)}
	k.pend = Step{Task: k.num, Kind: stepStart}
	k.next, k.stop = iter.Pull(func(yield func(struct{}) bool) {
		k.yield = yield
		defer w.ended(k)
		f(t)
	})
	w.tasks = append(w.tasks, k)
	w.byTask[t] = k
}

// ended is deferred by every coroutine: it turns a panic into the verdict and hands over.
func (w *World) ended(k *task) {
	r := recover()
	k.state = ended
	if w.aborting {
		return // what deferred calls did while unwinding does not count
	}
	if r != nil {
		w.fail(Panicked, fmt.Sprintf("task %d %s: panic: %v\n%s", k.num, k.t.Name, r, debug.Stack()))
		return
	}
	w.decide(k)
}

// fail ends the run: nobody is resumed any more.
func (w *World) fail(v Verdict, message string) {
	w.verdict, w.message = v, message
	w.cur = nil
}

// decide picks who goes on after last and records the step. It leaves w.cur nil when the run is over.
func (w *World) decide(last *task) {
	w.enabled, w.nexts = w.enabled[:0], w.nexts[:0]
	var mask uint64
	for _, k := range w.tasks {
		if k.state == ready {
			w.enabled, w.nexts = append(w.enabled, k.num), append(w.nexts, k.pend)
			mask |= 1 << k.num
		}
	}
	if mask == 0 {
		if w.wakeSleeper() {
			w.decide(last)
			return
		}
		w.cur = nil
		if stuck := w.stuck(); stuck != "" {
			w.fail(Deadlock, stuck)
		}
		return
	}
	step := len(w.steps)
	if step >= w.cfg.MaxSteps {
		w.fail(TooLong, fmt.Sprintf("%d steps and no end", step))
		return
	}
	def := w.enabled[0]
	if last.state == ready {
		def = last.num
	}
	pick := def
	if d, ok := w.devs[step]; ok {
		pick = d
	} else if w.cfg.Strategy != nil {
		pick = w.cfg.Strategy.Pick(Decision{step, last.num, def, w.enabled, w.nexts})
	}
	if pick < 0 || pick >= len(w.tasks) || mask&(1<<pick) == 0 {
		w.fail(Mismatch, fmt.Sprintf("step %d: task %d cannot run, enabled are %v%s", step, pick, w.enabled, w.whereIs(pick)))
		return
	}
	k := w.tasks[pick]
	s := k.pend
	s.Enabled = mask
	if e := w.cfg.Expect; e != nil && (step >= len(e) || e[step] != s) {
		was := "the end"
		if step < len(e) {
			was = fmt.Sprintf("task %d %s, enabled %b", e[step].Task, describe(e[step], w.cfg.ClassName), e[step].Enabled)
		}
		w.fail(Mismatch, fmt.Sprintf("nondeterminism at step %d: task %d %s, enabled %b; recorded was %s", step, s.Task, describe(s, w.cfg.ClassName), s.Enabled, was))
		return
	}
	if pick != def {
		w.taken = append(w.taken, fmt.Sprintf("%d:%d", step, pick))
	}
	w.steps = append(w.steps, s)
	w.cur = k
}

func (w *World) whereIs(num int) string {
	if num < 0 || num >= len(w.tasks) {
		return fmt.Sprintf("; there are %d tasks", len(w.tasks))
	}
	return "; it " + w.waits(w.tasks[num])
}

func (w *World) waits(k *task) string {
	switch k.state {
	case ended:
		return "has ended"
	case sleeping:
		return "sleeps"
	case parked:
		return "waits: " + describe(k.pend, w.cfg.ClassName)
	}
	return "can run"
}

// stuck lists the tasks that have not ended.
func (w *World) stuck() string {
	var b strings.Builder
	for _, k := range w.tasks {
		if k.state != ended {
			fmt.Fprintf(&b, "task %d %s %s", k.num, k.t.Name, w.waits(k))
			for i, h := range k.t.HeldLocks {
				sep := ", "
				if i == 0 {
					sep = "; holds "
				}
				b.WriteString(sep + describe(Step{Kind: StepKind(sched.PointLock), Class: h.Class, Obj: w.objs[h.Obj]}, w.cfg.ClassName)[len("lock "):])
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// wakeSleeper moves the clock to the first sleeper and makes it ready.
func (w *World) wakeSleeper() bool {
	var first *task
	for _, k := range w.tasks {
		if k.state == sleeping && (first == nil || k.due < first.due) {
			first = k
		}
	}
	if first == nil {
		return false
	}
	w.clock = max(w.clock, first.due)
	first.state = ready
	return true
}

// handOver lets the others run until k is picked again.
func (w *World) handOver(k *task) {
	w.decide(k)
	if w.cur == k {
		return
	}
	if !k.yield(struct{}{}) {
		panic(abort{})
	}
}

func (w *World) of(t *sched.Task) *task {
	k := w.byTask[t]
	if k == nil {
		panic(fmt.Sprintf("explore: task %v is not of this run", t))
	}
	return k
}

func (w *World) objNum(o any) int {
	if o == nil {
		return 0
	}
	n, ok := w.objs[o]
	if !ok {
		n = len(w.objs) + 1
		w.objs[o] = n
	}
	return n
}

// Go starts a task. It is enabled from here on.
func (w *World) Go(_, child *sched.Task, f func(t *sched.Task)) {
	if w.aborting {
		return
	}
	w.add(child, f)
}

// Point is a decision.
func (w *World) Point(t *sched.Task, p sched.Point) {
	if w.aborting {
		return
	}
	k := w.of(t)
	k.pend = Step{Task: k.num, Kind: StepKind(p.Kind), Class: p.Class, Obj: w.objNum(p.Obj)}
	w.handOver(k)
}

// Park takes t out of the enabled tasks until Unpark.
func (w *World) Park(t *sched.Task, class sched.ClassID) {
	if w.aborting {
		panic(abort{})
	}
	k := w.of(t)
	if k.token {
		k.token = false
		return
	}
	k.pend = Step{Task: k.num, Kind: stepResume, Class: class, Obj: k.pend.Obj}
	if class == 0 { // Join: no object
		k.pend.Obj = 0
	}
	k.state = parked
	w.handOver(k)
}

// Unpark enables t, or lets its next Park go on.
func (w *World) Unpark(t *sched.Task) {
	if w.aborting {
		return
	}
	switch k := w.of(t); {
	case k.state == parked:
		k.state = ready
	case k.token:
		panic(fmt.Sprintf("explore: second Unpark of task %v", t))
	default:
		k.token = true
	}
}

// Now is the run's clock.
func (w *World) Now() int64 { return w.clock }

// Sleep passes d of the run's time: others go first.
func (w *World) Sleep(t *sched.Task, d time.Duration) {
	if w.aborting {
		panic(abort{})
	}
	k := w.of(t)
	k.pend = Step{Task: k.num, Kind: stepAwake}
	k.state, k.due = sleeping, w.clock+int64(d)
	w.handOver(k)
}

// Charge passes no time: this runtime has no CPUs.
func (w *World) Charge(*sched.Task, time.Duration) {}

// Random is a strategy that picks evenly among the enabled tasks. The same seed gives the same run.
func Random(seed uint64) Strategy { return &random{rand.New(rand.NewPCG(seed, 0x6578706c6f7265))} }

type random struct{ r *rand.Rand }

func (s *random) Pick(d Decision) int { return d.Enabled[s.r.IntN(len(d.Enabled))] }

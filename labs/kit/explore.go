package kit

import (
	"fmt"

	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
)

// World is one execution of a program of one's own: its tasks, and what must hold when they have
// ended.
type World struct{ w *explore.World }

// Go adds a task, numbered from 0. It starts when the program has returned, and must end.
func (w *World) Go(name string, f func(t *Task)) { w.w.Go(name, func(t *sched.Task) { f(On(t)) }) }

// Check adds a rule that is asked when all tasks have ended; an error is a violation.
func (w *World) Check(rule func() error) { w.w.Check(rule) }

// Name gives a *Word or a *Mutex a name for reports.
func (w *World) Name(x any, name string) {
	switch x := x.(type) {
	case *Word:
		w.w.Name(&x.v, name)
		w.w.Watch(name, func() string { return fmt.Sprint(x.Value()) })
	case *Mutex:
		w.w.Name(&x.mu, name)
	default:
		panic(fmt.Sprintf("kit.World.Name of a %T, want a *kit.Word or a *kit.Mutex", x))
	}
}

var wordClass = lockdep.NewClass("student_word")

// Word is a number that tasks share without a lock. Each use is a step, between any two of which
// another task may run. The zero value is ready and 0.
type Word struct{ v explore.Atomic[int] }

func (x *Word) use(t *Task, what string) {
	use(t, true, what)
	x.v.Class = wordClass.ID
}

// Load reads the word.
func (x *Word) Load(t *Task) int { x.use(t, "Word.Load"); return x.v.Load(t.t) }

// Store writes it.
func (x *Word) Store(t *Task, n int) { x.use(t, "Word.Store"); x.v.Store(t.t, n) }

// Add adds n in one step and returns the sum.
func (x *Word) Add(t *Task, n int) int {
	x.use(t, "Word.Add")
	return x.v.Update(t.t, func(old int) int { return old + n })
}

// Value is the word outside of any step, for a Check.
func (x *Word) Value() int { return x.v.Peek() }

// Value is the field outside of any step, for a Check.
func (v *Var[T]) Value() T { return v.v.Peek() }

// Result is what Explore found.
type Result struct {
	// Proved says that every schedule was tried and keeps every rule. Schedules is how many it
	// took, where those that differ only in the order of steps that do not touch the same thing
	// count once.
	Proved    bool
	Schedules int
	// Spurious is how many more schedules were tried in which Cond.Wait may return without a
	// Broadcast, once for each task; 0 if no task waits. Proved is of these, too.
	Spurious int
	// Broken is the violation in words, empty when none was found, and Schedule the one that shows
	// it with the fewest preemptions.
	Broken, Schedule string
}

func (r Result) String() string {
	switch {
	case r.Broken != "":
		return fmt.Sprintf("broken by schedule %q: %s", r.Schedule, r.Broken)
	case r.Proved:
		return fmt.Sprintf("proved: exhausted after %d schedules", r.Schedules) + r.andSpurious()
	}
	return fmt.Sprintf("no violation in %d schedules%s, which is no proof", r.Schedules, r.andSpurious())
}

func (r Result) andSpurious() string {
	if r.Spurious == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d with a spurious wake-up of each task", r.Spurious)
}

// maxSchedules and maxSteps bound Explore.
const (
	maxSchedules = 200_000
	maxSteps     = 2_000
)

func config() explore.Config { return explore.Config{Schedules: maxSchedules, MaxSteps: maxSteps} }

// Runs is program for package explore, for the grader.
func Runs(program func(w *World)) func(w *explore.World) {
	return func(w *explore.World) { program(&World{w}) }
}

// Explore runs program by every schedule, as far as 200,000 of them go, fewest preemptions first,
// until one breaks a rule: a Check fails, tasks wait for each other, two accesses of a Var race, a
// task panics, or an execution does not end. The violation is shrunk: no part of its schedule can
// be left out. If nothing breaks and a task waits in a Cond, it runs as many schedules again in
// which the wait may end without a Broadcast, once for each task; the schedule of what that breaks
// begins with "spurious". The program must do the same each time it is called.
func Explore(program func(w *World)) Result {
	r, more := explore.RunSpurious(config(), Runs(program))
	x := Result{Proved: r.Verdict == explore.Exhausted, Schedules: r.Schedules, Schedule: r.Schedule}
	if more != nil {
		x.Proved = x.Proved && more.Verdict == explore.Exhausted
		x.Spurious = more.Schedules
		r, x.Schedule = *more, more.Schedule
	}
	if r.Verdict == explore.Violated {
		x.Broken = r.Violation.Line()
	}
	return x
}

// Draw runs program once by schedule and returns the steps as text, one a line; a preemption is
// marked with >. A schedule that does not fit is said after the steps that did.
func Draw(program func(w *World), schedule string) string {
	x := explore.Replay(config(), schedule, Runs(program))
	text := x.Trace()
	if x.Verdict != explore.OK {
		text += fmt.Sprintf("%s\n", x.Violation.Violated())
	}
	return text
}

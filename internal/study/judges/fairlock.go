package judges

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"btrlab/internal/data/inode"
	"btrlab/internal/iopath"
	"btrlab/internal/sched"
	"btrlab/internal/sched/explore"
	"btrlab/internal/sched/vtime"
	"btrlab/internal/study/sandbox"
	"btrlab/labs/kit"
)

// FairLock is lab 13: a lock on byte ranges under which nobody waits for ever.
type FairLock struct {
	RangeLock
	*Second

	look sight // what a question asks to see
}

// sight is a run that may be seen though nothing is wrong with it.
type sight uint8

const (
	passes    sight = iota + 1 // a later request is granted before one that waits
	allAsleep                  // a task sleeps, and all that it could wait for sleep, too
)

// maxPassed is how many requests for a common byte that were made after a task had begun to wait
// may be granted before it.
const maxPassed = 2

// About says what the lab is.
func (FairLock) About() *About {
	return &About{N: 13, Folder: "13-fair-lock", Title: "Make your lock fair", Minutes: 120, File: "fairlock.go",
		Code: judged(sandbox.Rules{Allowed: []string{sandbox.KitPath, "cmp", "fmt", "math", "slices", "sort"}, Entry: "New", Shared: true,
			Want: "func New() *RangeLock, which has Lock and Unlock (t *kit.Task, start, end uint64), and func Answers() map[string]string"},
			"judges.FairLock{RangeLock: judges.RangeLock{New: func() kit.RangeLocker { return student.New() }}, Second: &judges.Second{Answers: student.Answers}}", sandbox.KitPath),
		Promise: "the lock does not exclude", Broken: []explore.Kind{overlaps, explore.KindOracle},
		Given: []string{"lock-identical", "lock-nested", "lock-overlap", "lock-waiters", "two-writers-overlap", "truncate-race"}}
}

// unfair is the kind of violation in which a task waits for others again and again.
const unfair explore.Kind = "fairness"

// waitLine is the requests of one lock that are not granted yet. Under the explorer a request and
// the begin of a wait are steps on one object, so that it tries both orders of any two.
type waitLine struct {
	pending []*request
	asked   explore.Atomic[int] // how many requests were made
	wrong   *error              // gets the first one passed too often; nil breaks off
	look    sight
	held    []span // that were granted and not given back
}

// request is one call of Lock.
type request struct {
	span   span
	number int // in the order of the calls
	// waits says that the task has begun to sleep in a Cond; since is how many requests had been
	// made by then.
	waits  bool
	since  int
	passed int  // how many of the later ones were granted before it
	asleep bool // in a Cond
}

func (x span) overlaps(y span) bool { return x.start < y.end && y.start < x.end }

// begin notes that t asks for x.
func (l *waitLine) begin(t *sched.Task, x span) *request {
	r := &request{span: x}
	r.number = l.asked.Update(t, func(n int) int { return n + 1 })
	l.pending = append(l.pending, r)
	return r
}

// sleeps notes that r's task waits.
func (l *waitLine) sleeps(t *sched.Task, r *request) {
	if !r.waits || l.look == allAsleep {
		since := l.step(t)
		if !r.waits {
			r.waits, r.since = true, since
		}
	}
	r.asleep = true
	if l.look == allAsleep && l.allAsleep(r) {
		breaks(seen, "the task that wants %v sleeps, and so do all others that want a byte of it; none holds one", r.span)
	}
}

// step is a step on the line that changes no number.
func (l *waitLine) step(t *sched.Task) int {
	return l.asked.Update(t, func(n int) int { return n })
}

// allAsleep reports whether everybody sleeps who has asked for a byte of r's and has not given it
// back, and whether there is anybody.
func (l *waitLine) allAsleep(r *request) (found bool) {
	for _, x := range l.pending {
		if x != r && x.span.overlaps(r.span) {
			if found = true; !x.asleep {
				return false
			}
		}
	}
	return found && !slices.ContainsFunc(l.held, r.span.overlaps)
}

// grant notes that r has what it asked for, and breaks off when somebody is passed too often.
func (l *waitLine) grant(r *request) {
	l.pending = slices.DeleteFunc(l.pending, func(x *request) bool { return x == r })
	l.held = append(l.held, r.span)
	for _, w := range l.pending {
		if !w.waits || r.number <= w.since || !w.span.overlaps(r.span) {
			continue
		}
		if l.look == passes {
			breaks(seen, "a task waits for %v, and a later request for %v is granted", w.span, r.span)
		}
		if w.passed++; w.passed != maxPassed+1 {
			continue
		}
		what := fmt.Sprintf("a task waits for %v, and %d later requests have passed it, want at most %d: the last is for %v", w.span, w.passed, maxPassed, r.span)
		if l.wrong == nil {
			breaks(unfair, "%s", what)
		}
		*l.wrong = cmp.Or(*l.wrong, error(violation{unfair, what}))
	}
}

// queued is a student's lock with the line of its requests.
type queued struct {
	of    kit.RangeLocker
	judge kit.Judge // of every task
	line  waitLine
}

func (l FairLock) queued(wrong *error) *queued {
	q := &queued{of: l.New(), line: waitLine{wrong: wrong, look: l.look}}
	if l.judge != nil {
		q.judge = *l.judge
	}
	q.line.asked.Class = studentClass.ID
	return q
}

// Lock locks [start, end).
func (q *queued) Lock(t *sched.Task, start, end uint64) {
	r := q.line.begin(t, span{start, end})
	j := q.judge
	j.Sleeps, j.Wakes = func() { q.line.sleeps(t, r) }, func() { r.asleep = false }
	q.of.Lock(j.On(t), start, end)
	q.granting(t)
	q.line.grant(r)
}

// granting is a step on the line where a question asks who holds what.
func (q *queued) granting(t *sched.Task) {
	if q.line.look == allAsleep {
		q.line.step(t)
	}
}

// Unlock lets it go.
func (q *queued) Unlock(t *sched.Task, start, end uint64) {
	q.granting(t)
	i := slices.Index(q.line.held, span{start, end})
	q.line.held = slices.Delete(q.line.held, i, i+1)
	q.of.Unlock(q.judge.On(t), start, end)
}

// inLine is holders of a lock whose grants are counted.
func (l FairLock) inLine(tasks ...[]span) func(w *explore.World) {
	return holdersOf(func(w *explore.World) inode.RangeLocker {
		q := l.queued(nil)
		w.Name(&q.line.asked, "who asks, and who waits")
		return q
	}, tasks)
}

// counted is by with locks whose grants are counted.
func (l FairLock) counted(run lockRun) func() (bool, string, error) {
	return func() (ok bool, text string, err error) {
		var wrong error
		ok, text, err = excluding(func() inode.RangeLocker { return l.queued(&wrong) }, run)
		return ok, text, cmp.Or(err, wrong)
	}
}

// meanwhile is a program in which task 0 holds a range until each of the others has had its own,
// which shares no byte with the held one. Tasks for the ranges in waits do share bytes with it,
// wait for it, and are not counted.
func (l FairLock) meanwhile(held span, waits []span, others ...span) func(w *explore.World) {
	return func(w *explore.World) {
		lock := l.make()
		all := append(append([]span{held}, waits...), others...)
		holds := make([]span, len(all))
		watchHeld(w, holds)
		var had explore.Atomic[int]
		had.Class = studentClass.ID
		w.Name(&had, "who had a turn")
		for i, x := range all {
			w.Go(holder(x), func(t *sched.Task) {
				lock.Lock(t, x.start, x.end)
				for j, h := range holds {
					if h.start < x.end && x.start < h.end {
						gotHeld(i, x, j, h)
					}
				}
				holds[i] = x
				switch {
				case i == 0:
					had.Await(t, func(n int) bool { return n == len(others) })
				case i > len(waits):
					had.Update(t, func(n int) int { return n + 1 })
				}
				holds[i] = span{}
				lock.Unlock(t, x.start, x.end)
			})
		}
	}
}

// Workloads are those of the lock, then the questions.
func (l FairLock) Workloads() []Workload { return append(l.rows(), l.second()...) }

func (l FairLock) read() (name string, wrong []string) { return l.ask(l.second()) }

// second are the questions. The file system's rows are none of their workloads.
func (l FairLock) second() []Workload {
	return questions(l.Second, fairFaults, func(plant func(FairLock) FairLock) []Workload {
		return slices.DeleteFunc(plant(l).rows(), func(w Workload) bool { return !w.asked })
	})
}

// fairFaults are mistakes of others in package kit, and runs.
var fairFaults = []fault[FairLock]{
	{"wakes-one", "Broadcast wakes only the task that has waited the longest", 4, func(l FairLock) FairLock { l.judge = &kit.Judge{WakesOne: true}; return l }},
	{"wait-late", "Wait lets the Mutex go and begins to wait then: a Broadcast between the two does not wake it", 4, func(l FairLock) FairLock { l.judge = &kit.Judge{WaitsLate: true}; return l }},
	{"passed", "no fault, but a run: a later request for a byte that a task waits for is granted before it", 4, func(l FairLock) FairLock { l.look = passes; return l }},
	{"all-asleep", "no fault, but a run: a task goes to sleep, and whoever else wants a byte of its range sleeps, too, and nobody holds one", 4, func(l FairLock) FairLock { l.look = allAsleep; return l }},
}

// rows are what a range lock must be, in short; then who passes whom, in every schedule and in
// virtual time; then the ratios.
func (l FairLock) rows() []Workload {
	writes := func(name, asks string, points float64) Workload {
		return Workload{name: name, asks: asks, points: points, policy: "range-lock", scenario: withLocks(name)}
	}
	few := fmt.Sprintf("at most %d later requests pass a waiter", maxPassed)
	again := func(n int, x ...span) (l []span) {
		for range n {
			l = append(l, x...)
		}
		return l
	}
	all := with(iopath.Lab{RangeLock: l.make}, []Workload{
		{name: "lock-identical", asks: "two holders of one range exclude each other", points: 2, program: l.holders([]span{{0, 8}}, []span{{0, 8}})},
		{name: "lock-nested", asks: "so do a range and one inside it, in both orders", points: 3, program: l.holders([]span{{0, 16}}, []span{{4, 8}, {0, 16}})},
		{name: "lock-overlap", asks: "three ranges of which neighbours overlap, everybody gets his turn", points: 3, program: l.holders([]span{{0, 8}}, []span{{4, 12}}, []span{{8, 16}})},
		{name: "lock-waiters", asks: "two waiters for different parts of a range both go on", points: 3, program: l.holders([]span{{0, 16}}, []span{{0, 4}}, []span{{8, 12}})},
		{name: "lock-touching", asks: "ranges that touch have no byte in common: both are held at one time, and a range over both by one task only", points: 5, program: l.together(span{0, 8}, span{8, 16}),
			stuck: "[0, 8) and [8, 16) are wanted at one time, and they have no byte in common: whoever comes second may not wait for the first"},
		writes("two-writers-overlap", "writes of the real write path that overlap in part", 4),
		writes("truncate-race", "a write and a truncate below it", 4),
		{name: "fair-one", asks: "one range, which a task takes again and again: " + few, points: 8, program: l.inLine([]span{{0, 8}}, again(maxPassed+2, span{0, 8}))},
		{name: "fair-wide", asks: "a wide range, of which two others take halves by turns: " + few, points: 8, program: l.inLine([]span{{0, 16}}, again(maxPassed, span{0, 8}), again(maxPassed, span{8, 16}))},
		{name: "fair-inner", asks: "a small range inside wide ones that come again and again: " + few, points: 8, program: l.inLine([]span{{4, 8}}, again(maxPassed+2, span{0, 16}))},
		{name: "fair-apart", asks: "whoever has no byte in common with holders and waiters does not wait", points: 10, program: l.meanwhile(span{0, 8}, []span{{4, 16}}, span{16, 24}),
			stuck: "[16, 24) is wanted, and neither what is held, [0, 8), nor what is waited for, [4, 16), has a byte of it: it may not wait"},
		{name: "fair-handed", asks: "a range that is let go is the next waiter's at once, whatever else is held", points: 6, program: l.meanwhile(span{0, 8}, nil, span{8, 16}, span{8, 16}),
			stuck: "[8, 16) was let go, and the task that waits for it does not get it while [0, 8) is held"},
		{name: "fair-stress", asks: "thousands of requests in virtual time, ranges of every size, also far into a file: no byte is held twice; " + few, points: 8, ratio: l.counted(stress), judges: true},
		{name: "tail", points: 6, ratio: l.by(tail), judges: true,
			asks: fmt.Sprintf("%d tasks take parts of a range, by turns and without end: a task that wants all of it waits %d µs of virtual time at most", tailTasks-1, tailMost.Microseconds())},
		{name: "virtual-time", points: 6, ratio: l.counted(race),
			asks: fmt.Sprintf("%d writers of different pages on %d CPUs: at least %d times policy locked", ratioTasks, ratioTasks, minRatio)},
	})
	for i := range all {
		all[i].asked = all[i].program != nil
	}
	return all
}

// The measurement of the longest wait.
const (
	tailTasks = 8 // and CPUs
	tailTurns = 400
	tailWide  = 40 // turns of the task that wants all
	tailHeld  = 20 * time.Microsecond
	// what is held, those that may pass, and as much for what the lock itself costs
	tailMost = (maxPassed + 2) * tailHeld
)

// tail measures how long a task waits, at the most, for a range of which others always hold a part.
// The parts are let go one after the other, so that all of it is never free by itself.
func tail(newLock func() inode.RangeLocker) (bool, string, error) {
	sandbox.Again()
	var worst int64
	const part = 4096
	_, err := vtime.Run(vtime.Machine{CPUs: tailTasks}, func(t *sched.Task) {
		lock := newLock()
		_, _ = inTasks(t, tailTasks, func(t *sched.Task, i int) error {
			t.Sleep(time.Duration(i+1) * tailHeld / tailTasks)
			if i == tailTasks-1 {
				for range tailWide {
					begin := t.Now()
					lock.Lock(t, 0, (tailTasks-1)*part)
					worst = max(worst, t.Now()-begin)
					t.Sleep(time.Microsecond)
					lock.Unlock(t, 0, (tailTasks-1)*part)
					t.Sleep(tailHeld)
				}
				return nil
			}
			for range tailTurns {
				lock.Lock(t, uint64(i)*part, uint64(i+1)*part)
				t.Sleep(tailHeld)
				lock.Unlock(t, uint64(i)*part, uint64(i+1)*part)
				t.Sleep(tailHeld / 20)
			}
			return nil
		})
	})
	if err != nil {
		return false, "", err
	}
	return worst <= tailMost.Nanoseconds(), fmt.Sprintf("the longest wait for all of it: %.1f µs of virtual time, want at most %d", float64(worst)/1e3, tailMost.Microseconds()), nil
}

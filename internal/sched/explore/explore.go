// Package explore runs the real code one step at a time and decides at every scheduling point which
// task goes on: by a given schedule, by every schedule, or by many.
//
// An execution is a sequence of steps. Before each step every task that can run stands before one
// operation (a lock, an unlock, a wait, a wake-up, an atomic, a device transfer: sched.Op); a
// driver picks one, and it does that operation and everything up to its next scheduling point. The
// default is to let the task go on that ran last, and when it cannot, the enabled task with the
// lowest number; a schedule names only the deviations from that: "4:1,9:0" lets task 1 go on at
// step 4 and task 0 at step 9, "7=1" takes value 1 of the choice that step 7 makes. The empty
// schedule is the execution without preemptions. A task that would have to wait is not enabled, so
// waiting is not a step.
//
// Run searches. By default it goes through the schedules by number of preemptions, so that the
// first violation has the fewest, and takes two schedules with the same happens-before order for
// one (bound.go). DPOR proves with fewest schedules (dpor.go), State takes two histories that lead
// to the same state for one, and samplers try what is too big (sample.go).
//
// Invariants:
//   - one task runs at any time; it gives up only inside Enter, Park and Sleep, or by ending
//   - the same program and the same schedule give the same steps; anything else is a violation of
//     kind nondeterminism, which names both operations
//   - when no task can run and one that must end has not ended, the execution is stuck; the
//     wait-for graph (waitfor.go) of locks held and events owed tells a deadlock from a wake-up
//     that was lost and from a wait for a task that has ended
//
// Model: memory is sequentially consistent. Plain data is no scheduling point; what is in a
// sched.Var or announced by a sched.Shared is checked for races by vector clocks, and as long as
// there is none, an interleaving inside a step would show nothing new. A lock orders what a task
// did before it let go, not what it did after that in the same step. Two steps depend on each other
// when they use one object and one of them writes it; a field that is in no object, Var or lock is
// not seen, and a search that takes schedules for equal may then skip one that differs. Device
// transfers order their tasks as locks do. Time stands still but for Sleep: when no task can run,
// the clock moves to the time at which the first sleeper is due. Sleepers that are due at one time
// go on in every order. A task that can run is never overtaken by the clock, so a timeout comes
// only when everything else waits: schedules in which it comes earlier are not explored.
package explore

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"btrlab/internal/sched"
)

// Checks are bits: what not to look for.
type Checks uint8

// The checks that can be turned off.
const (
	CheckRaces Checks = 1 << iota
	CheckLockOrder
	CheckNowait
	CheckLeftovers
)

// Method is how Run searches.
type Method string

// The methods.
const (
	Bound Method = "bound" // by preemptions, equal happens-before orders once; the default
	// source sets and sleep sets; falls back on Bound when a task yields
	DPOR      Method = "dpor"
	State     Method = "state"     // equal states once
	Naive     Method = "naive"     // every schedule
	Prove     Method = "prove"     // DPOR and State side by side, on two cores; they must agree
	Random    Method = "random"    // an even random walk
	PCT       Method = "pct"       // random priorities, Depth-1 changes
	POS       Method = "pos"       // partial-order sampling
	Portfolio Method = "portfolio" // PCT 1 to 3, POS and Random in turn
)

// Config says what to search. The zero value searches everything by number of preemptions.
type Config struct {
	Method Method
	// Preemptions bounds Bound: at most so many. 0 is no bound, -1 none at all.
	Preemptions int
	// Schedules and Time end the search; 0 is no limit.
	Schedules int
	Time      time.Duration
	// Stop, if set, is called after every execution; the search ends once it returns true. With
	// Jobs > 1 it is called concurrently.
	Stop func() bool
	// MaxSteps ends an execution as a livelock; 0 is 100,000.
	MaxSteps int
	// Seed and Depth are the samplers'. Depth is PCT's, 0 is 3.
	Seed  uint64
	Depth int
	// Jobs is the number of executions at a time; 0 is 1. The counts of a search by several may
	// differ from run to run.
	Jobs int
	// Shard of Shards: this search is the given part, from 0, of one that is divided.
	Shard, Shards int
	// Switch are the classes whose operations are scheduling points; the others run on unless they
	// must wait. Empty: all.
	Switch []sched.ClassID
	// Commute are the classes whose operations never make steps depend on each other: counters,
	// statistics.
	Commute []sched.ClassID
	// Spurious is how often a condition may wake each task without a reason, as a choice of the
	// search; 0 is never. See RunSpurious.
	Spurious int
	// Asleep, if set, becomes true once a task is about to sleep in such a condition.
	Asleep *atomic.Bool
	// Off are checks not made.
	Off Checks
	// Plain says that the tasks share data under locks that is in no Var, Atomic or HashData, so
	// that the hash of the state does not have it. State then takes for equal only histories with
	// one happens-before order, which is what Bound does.
	Plain bool
	// All goes on after a violation, which is then only counted; the first one is reported.
	All bool
	// NoShrink reports the schedule as found.
	NoShrink bool
	// Settle ends an execution only when the daemons have nothing to do either.
	Settle bool
	// Progress, if set, is called about ten times a second with how far the search is, or with
	// ProgressEvery set after every so many executions. With Jobs > 1 and by Prove it is called
	// concurrently.
	Progress      func(Progress)
	ProgressEvery int
	// Done is called at the end of each execution that was not cut off, with its number from 1.
	// With Jobs > 1 it is called concurrently.
	Done func(n int, x *End)

	// NoCache makes Bound try schedules that are equal as far as locks, queues and atomics tell.
	NoCache bool

	switches, commutes sched.ClassSet
}

// End is the end of an execution as Config.Done sees it.
type End struct {
	// Order is the hash of the happens-before order: equal for equivalent schedules.
	Order uint64
	Steps int
	// Violation is nil when the execution kept everything.
	Violation *Violation

	w *world
}

// Schedule is the execution's schedule.
func (x *End) Schedule() string { return x.w.schedule().String() }

func (c *Config) checks(k Checks) bool { return c.Off&k == 0 }

func (c Config) filled() *Config {
	if c.Method == "" {
		c.Method = Bound
	}
	if c.MaxSteps == 0 {
		c.MaxSteps = 100_000
	}
	if c.Jobs < 1 {
		c.Jobs = 1
	}
	if c.Shards < 1 {
		c.Shards = 1
	}
	if c.Depth == 0 {
		c.Depth = 3
	}
	c.switches = sched.AllClasses
	if len(c.Switch) > 0 {
		c.switches = sched.ClassSet{}
		for _, id := range c.Switch {
			c.switches.Add(id)
		}
	}
	for _, id := range c.Commute {
		c.commutes.Add(id)
	}
	return &c
}

// Result is the outcome of a search.
type Result struct {
	Verdict Verdict `json:"verdict"`
	Method  Method  `json:"method"`
	// executions, those that were cut off as repetitions included
	Schedules  int `json:"schedules"`
	Cut        int `json:"cut"` // executions cut off as repetitions
	Violations int `json:"violations"`
	// of the schedule when violated; else the number up to which all was tried, -1 for none
	Preemptions int     `json:"preemptions"`
	Steps       int64   `json:"steps"`
	Seconds     float64 `json:"seconds"`
	// Kind is the violation's, which its text form does not keep.
	Kind      Kind      `json:"kind,omitempty"`
	Violation Violation `json:"violation,omitzero"`
	Schedule  string    `json:"schedule"`
	// Found is the number of the execution that first violated something, before shrinking.
	Found int `json:"found,omitempty"`
	// Bound says what the verdict is worth.
	Bound Coverage `json:"bound"`
	// Stopped says that Config.Stop ended the search.
	Stopped bool `json:"stopped,omitempty"`
	// Switch are the classes that are scheduling points when not all are.
	Switch Switches `json:"switch,omitempty"`
	Shard  int      `json:"shard"`
	Shards int      `json:"shards"`
}

// Run searches the executions of prog and reports the first violation, with a schedule that shows
// it.
func Run(cfg Config, prog func(w *World)) Result {
	r := run(cfg, prog)
	if r.Verdict == Violated {
		r.Schedule = cfg.mark() + r.Schedule
	}
	return r
}

func run(cfg Config, prog func(w *World)) Result {
	c := cfg.filled()
	start := time.Now()
	s := &search{cfg: c, prog: prog, start: start, pre: -1}
	defer s.close()
	if c.Time > 0 {
		s.until = start.Add(c.Time)
	}
	switch c.Method {
	case Bound, State, Naive:
		s.byQueue()
	case DPOR:
		s.byDPOR()
		// shards must all search alike, and the others may not have met a yield
		if s.refused && c.Shards == 1 {
			b := s.part(Bound)
			defer b.close()
			b.byQueue()
			b.refused = true
			return b.result()
		}
	case Prove:
		return s.prove()
	case Random, PCT, POS, Portfolio:
		s.bySampling()
	default:
		panic(fmt.Sprintf("explore: no method %q", c.Method))
	}
	return s.result()
}

// gcPercent is the collector's target during a search of more than gcSteps steps: each execution
// leaves its objects as garbage, and little else is alive, so that at the usual rate the collector
// takes most of the time. Where more is alive, as the queue of a search by preemption bound, the
// target falls, looked at every gcEvery executions, so that the heap keeps to gcRoom as long as it
// can.
const (
	gcPercent = 800
	gcLeast   = 50
	gcSteps   = 2000
	gcEvery   = 1 << 13
	gcRoom    = 128 << 20
)

// schedule is a list of deviations, steps ascending.
type schedule []deviation

// deviation names the task that goes on at a step, or the value that its choice takes; -1 is the
// default.
type deviation struct {
	step int32
	task int8
	val  int16
}

func (s schedule) String() string {
	var b []byte
	for i, d := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(d.step), 10)
		if d.task >= 0 {
			b = strconv.AppendInt(append(b, ':'), int64(d.task), 10)
		}
		if d.val >= 0 {
			b = strconv.AppendInt(append(b, '='), int64(d.val), 10)
		}
	}
	return string(b)
}

// within is a part of a text, and the text where it has more.
func within(part, text string) string {
	if part == text {
		return strconv.Quote(part)
	}
	return fmt.Sprintf("%q in %q", part, text)
}

func parseSchedule(text string) (schedule, error) {
	var s schedule
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	last := int64(-1)
	for f := range strings.SplitSeq(text, ",") {
		f = strings.TrimSpace(f)
		d := deviation{task: -1, val: -1}
		rest, val, hasVal := strings.Cut(f, "=")
		at, num, hasTask := strings.Cut(rest, ":")
		step, err := strconv.ParseInt(at, 10, 32)
		ok := err == nil && step >= 0 && (hasVal || hasTask)
		d.step = int32(step)
		if hasTask {
			n, err := strconv.ParseInt(num, 10, 8)
			ok = ok && err == nil && n >= 0 && n < maxTasks
			d.task = int8(n)
		}
		if hasVal {
			n, err := strconv.ParseInt(val, 10, 16)
			ok = ok && err == nil && n >= 0 && n < 256
			d.val = int16(n)
		}
		switch {
		case !ok:
			return nil, fmt.Errorf("not a schedule: %s; want step:task,step:task,... or step=value for a choice", within(f, text))
		case step == last:
			return nil, fmt.Errorf("not a schedule: step %d comes twice in %q", step, text)
		case step < last:
			return nil, fmt.Errorf("not a schedule: step %d comes after step %d in %q; steps ascend", step, last, text)
		}
		last = step
		s = append(s, d)
	}
	return s, nil
}

// orderHash is the hash of the happens-before order so far.
func (w *world) orderHash() uint64 {
	h := uint64(w.clock)
	for _, k := range w.tasks {
		if k.last >= 0 {
			h += sched.Mix(w.ev[k.last].hash, 1)
		} else {
			h += sched.Mix(k.seed, 2)
		}
	}
	return h
}

// pendingHash is the hash of what each task stands at. It follows from the happens-before order
// unless a task has read shared data that is in no object; then it keeps the two apart. Whether a
// task that yields must still let others go first does not follow: a step of another one after the
// yield or before it is the same order.
func (w *world) pendingHash() uint64 {
	var h uint64
	for _, k := range w.tasks {
		x := uint64(k.state)<<16 | uint64(k.opKind)<<8 | uint64(k.op.Class)
		if o := k.op.Obj; o != nil && o.Run == w.run && int(o.Num) < w.nSetup {
			x |= uint64(o.Num+1) << 32
		}
		if k.yielded {
			x |= 1 << 24
		}
		h += sched.Mix(k.seed, x)
	}
	return h
}

// decision is the state in which a driver picks.
type decision struct {
	step int
	// the task that ran last, -1 for none; the one that the default order would pick
	last, def int
	mask      uint64 // the tasks that can run
	closed    uint64 // those that stand at a closed gate
}

// driver decides.
type driver interface {
	// pick returns a task of d.mask, or -1 to cut the execution off.
	pick(w *world, d *decision) int
	// value returns what the choice of step takes, of n.
	value(w *world, step, n int) int
	// end is called when no task will be picked any more.
	end(w *world)
}

func lowest(mask uint64) int { return bits.TrailingZeros64(mask) }

func bitList(mask uint64) []int {
	l := []int{}
	for ; mask != 0; mask &= mask - 1 {
		l = append(l, lowest(mask))
	}
	return l
}

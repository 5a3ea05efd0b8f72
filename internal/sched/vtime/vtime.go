// Package vtime is a runtime with a simulated machine: N CPUs, a clock that moves from event to
// event, and the prices of package cost. The real file-system code runs in it one task at a time,
// so the same program and seed give the same times on every computer.
//
// A task that runs has a CPU. Charge and Spend add to its debt, the time it has used and the clock
// has not seen; at the next scheduling point the debt is settled: when nothing is due before, the
// clock just moves, else the task waits for its turn among the events. A task that parks or sleeps
// gives its CPU to the first in the run queue. A task that wakes gets an idle CPU, after the time
// that takes, or queues.
//
// Invariants:
//   - one heap orders everything by (time, sequence), so ties are broken the same way each time
//   - the clock never goes back; a task's own time is the clock plus its debt
//   - nothing here depends on addresses, map order, goroutines or the host's clock; what is random
//     (noise.go) has a seed
//
// Model: locks wait as their kind does in Linux (lock.go). Differences: no priorities, a wakee
// never preempts a running task but only a spinner; a debt of up to debtMax is settled late, so two
// tasks may meet a plain atomic out of order by as much.
package vtime

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Machine describes what is simulated. The zero value is 8 CPUs of the reference machine.
type Machine struct {
	CPUs int
	// Costs is the price list; nil is cost.Default.
	Costs *cost.Table
	// Slice is how long a task keeps its CPU while others wait for one; 0 is DefaultSlice.
	Slice time.Duration
	// Cores is the number of cores when each has two of the CPUs (hyper-threads), which slow each
	// other down by the factor of SMT; 0 is CPUs.
	Cores int
	SMT   float64
	// PerCPU gives every CPU a run queue of its own; an idle CPU takes from the longest.
	PerCPU bool
	// Handoff is how long the first waiter of a lock is passed over before the lock is handed to
	// it; 0 is DefaultHandoff, negative is never: Linux before 5.3.
	Handoff time.Duration
	// NoSpin lets every waiter of a sleeping lock sleep at once: Linux before 3.16.
	NoSpin bool
	// GoLocks lets all locks wait as Go's do, which are the real runtime's.
	GoLocks bool
	// Noise is the other load of the machine.
	Noise Noise
	// Checked lets lockdep watch; it costs half of the speed.
	Checked bool
	// Watch, if set, is told what the tasks do. It changes nothing of the run.
	Watch Watcher
}

// Defaults of Machine.
const (
	DefaultCPUs    = 8
	DefaultSlice   = 3 * time.Millisecond
	DefaultHandoff = 4 * time.Millisecond // RWSEM_WAIT_TIMEOUT
)

// debtMax is the most CPU time, in nanoseconds, that a task uses between two looks at the clock.
const debtMax = 1000

// Stats counts the work of a run.
type Stats struct {
	Now      int64 // the clock at the end, in nanoseconds
	CPUBusy  int64 // nanoseconds of all CPUs
	Spun     int64 // of these, spinning
	Switches int64
	Wakeups  int64
	Stolen   int64 // acquisitions that passed queued waiters
	Handoffs int64
	Preempts int64
	Hits     int64 // times that noise took a task's CPU
	Events   int64
	// Units is how much of each cost was spent, by its number in package cost.
	Units [cost.Count]int64 `json:"-"`
}

type state uint8

const (
	running   state = iota // has a CPU and an event, or is the current task
	spinning               // has a CPU
	preempted              // has an event, and a CPU that noise uses
	ready                  // in the run queue
	parked
	sleeping
	queued // waits for a lock
	ended
)

type task struct {
	t        *sched.Task
	state    state
	cpu      int // that it has or had last
	debt     int64
	since    int64 // on its CPU since
	slice    int64 // end of its time slice
	token    bool
	leaf     int   // spinlocks held
	quiet    int64 // its own time until noise takes its CPU
	nap      int32 // counts sleeps, and wraps around
	class    sched.ClassID
	wait     waiter
	next     func() (struct{}, bool)
	yield    func(struct{}) bool
	panicked any
}

// event has no pointers: the heap moves them around all the time.
type event struct {
	at, seq int64
	k       int32 // the task, in World.tasks
	// of a timer: task.nap when it was set, another one says that k is up already; else goesOn
	nap int32
}

// goesOn is an event's nap when its task goes on on the CPU that it has.
const goesOn = -1

// World is one run.
type World struct {
	m       Machine
	costs   cost.Table
	handoff int64
	now     int64
	seq     int64
	heap    []event
	tasks   []*task
	live    int
	cur     *task
	cpus    []*task
	idle    int
	runq    []fifo // one, or one per CPU
	waiting int    // tasks in them
	locks   int32  // that the Watcher knows
	// contended are the locks that somebody spins on.
	contended []*rwsem
	stats     Stats
	rng       *rand.Rand
	fail      error
}

// Run runs prog on machine m until it and every task it started have ended, or nothing can go on.
func Run(m Machine, prog func(t *sched.Task)) (Stats, error) {
	if m.CPUs <= 0 {
		m.CPUs = DefaultCPUs
	}
	if m.Slice <= 0 {
		m.Slice = DefaultSlice
	}
	w := &World{m: m, costs: cost.Default(), cpus: make([]*task, m.CPUs), idle: m.CPUs, runq: make([]fifo, 1)}
	if m.Costs != nil {
		w.costs = *m.Costs
	}
	if m.PerCPU {
		w.runq = make([]fifo, m.CPUs)
	}
	w.rng = rand.New(rand.NewPCG(m.Noise.Seed, 0x6e6f697365)) // "noise"
	switch {
	case m.Handoff > 0:
		w.handoff = int64(m.Handoff)
	case m.Handoff == 0:
		w.handoff = int64(DefaultHandoff)
	}
	w.add(sched.NewTaskOn(w, "main"), prog)
	w.loop()
	w.stats.Now = w.now
	return w.stats, w.fail
}

func (w *World) loop() {
	for w.live > 0 && w.fail == nil {
		if len(w.heap) == 0 {
			w.fail = fmt.Errorf("virtual time: nothing can go on at %v: %s", time.Duration(w.now), w.stuck())
			return
		}
		e := w.pop()
		w.now = e.at
		w.stats.Events++
		k := w.tasks[e.k]
		if e.nap != goesOn {
			switch {
			case k.nap != e.nap:
			case k.state == spinning:
				k.wait.on.spunOut()
			default:
				k.up()
				w.ready(k, w.now)
			}
			continue
		}
		w.cur = k
		_, more := k.next()
		w.cur = nil
		if !more {
			if k.panicked != nil {
				panic(k.panicked)
			}
			// Nothing that the task held stays for the rest of the run.
			*k = task{state: ended, nap: k.nap, token: k.token}
		}
	}
}

func (w *World) stuck() string {
	var b strings.Builder
	for _, k := range w.tasks {
		if k.state == ended {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%v waits for %s", k.t, sched.ClassByID(k.class).Name)
	}
	return b.String()
}

func (w *World) add(t *sched.Task, f func(t *sched.Task)) {
	t.Slot = int32(len(w.tasks))
	t.ID = uint64(t.Slot)
	k := &task{t: t, state: parked, quiet: w.nextQuiet()}
	k.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		k.yield = yield
		defer func() {
			if r := recover(); r != nil {
				k.panicked = fmt.Sprintf("task %v: %v\n%s", t, r, debug.Stack())
				return
			}
			w.settle(k)
			k.state = ended
			w.live--
			w.leaveCPU(k)
		}()
		f(t)
	})
	w.tasks = append(w.tasks, k)
	w.live++
	at := w.now
	if w.cur != nil {
		at += w.cur.debt
	}
	w.ready(k, at)
}

// up cancels the timers that are set for k.
func (k *task) up() { k.nap = (k.nap + 1) & math.MaxInt32 }

func (w *World) of(t *sched.Task) *task { return w.tasks[t.Slot] }

// settle lets the clock catch up with k, the current task; others may run meanwhile.
func (w *World) settle(k *task) {
	if k.debt == 0 {
		return
	}
	at := w.now + k.debt
	k.quiet -= k.debt
	k.debt = 0
	if len(w.heap) == 0 || w.heap[0].at > at {
		w.now = at
	} else {
		w.push(at, k, false)
		k.yield(struct{}{})
	}
	if k.quiet <= 0 {
		w.hit(k)
	}
	if w.now >= k.slice {
		w.endSlice(k)
	}
}

// endSlice ends the time slice of k: its CPU goes to the next task in the run queue, if there is
// one.
func (w *World) endSlice(k *task) {
	if w.waiting == 0 {
		k.slice = w.now + int64(w.m.Slice)
		return
	}
	w.stats.Preempts++
	cpu := k.cpu
	w.leaveCPU(k)
	k.state = ready
	w.enqueue(k, cpu)
	k.yield(struct{}{})
}

// leaveCPU takes k off its CPU and gives the CPU to the first task in the run queue.
func (w *World) leaveCPU(k *task) {
	w.cpus[k.cpu] = nil
	w.idle++
	w.stats.CPUBusy += w.now - k.since
	if w.m.Watch != nil {
		w.m.Watch.Ran(k.t, k.cpu, k.since, w.now)
	}
	w.offCPU(k)
	w.dispatch(k.cpu)
}

// offCPU puts the tasks to sleep that spin for a lock which k owns.
func (w *World) offCPU(k *task) {
	for i := 0; i < len(w.contended); {
		if l := w.contended[i]; l.owner == k {
			l.ownerLeft()
			i = 0
			continue
		}
		i++
	}
}

// dispatch gives an idle CPU work, if there is any.
func (w *World) dispatch(cpu int) {
	if w.waiting == 0 || w.cpus[cpu] != nil {
		return
	}
	q := 0
	if w.m.PerCPU {
		if q = cpu; w.runq[q].n == 0 {
			for i := range w.runq {
				if w.runq[i].n > w.runq[q].n {
					q = i
				}
			}
		}
	}
	k := w.runq[q].pop()
	w.waiting--
	w.start(k, cpu, w.now+w.price(cost.Switch, 1))
}

// start puts k on an idle CPU, where it goes on at time at.
func (w *World) start(k *task, cpu int, at int64) {
	w.cpus[cpu] = k
	w.idle--
	w.stats.Switches++
	k.state, k.cpu = running, cpu
	k.since, k.slice = w.now, at+int64(w.m.Slice)
	w.push(at, k, false)
}

func (w *World) enqueue(k *task, cpu int) {
	q := 0
	if w.m.PerCPU {
		q = cpu
	}
	w.runq[q].push(k)
	w.waiting++
}

// ready makes k, which has waited, runnable at time at.
func (w *World) ready(k *task, at int64) {
	w.stats.Wakeups++
	if w.idle > 0 {
		w.start(k, w.idleCPU(k.cpu), at+w.idleExit())
		return
	}
	k.state = ready
	w.enqueue(k, k.cpu)
	if len(w.contended) > 0 { // a spinner asks need_resched()
		w.contended[0].stopSpin()
	}
}

// sibling is the other CPU of cpu's core, or -1 if it has the core to itself.
func (w *World) sibling(cpu int) int {
	switch n := w.m.Cores; {
	case n == 0:
		return -1
	case cpu >= n:
		return cpu - n
	case cpu+n < w.m.CPUs:
		return cpu + n
	}
	return -1
}

// idleCPU chooses an idle CPU for a task that ran on last: that one if it is idle, although its
// sibling may be busy; else one of a core that is all idle; else any. Models select_idle_sibling()
// with select_idle_core(). Difference: the CPU of the waker is not tried.
//
// Preconditions: w.idle > 0.
func (w *World) idleCPU(last int) int {
	if w.cpus[last] == nil {
		return last
	}
	some := -1
	for cpu, k := range w.cpus {
		if k != nil {
			continue
		}
		s := w.sibling(cpu)
		if s < 0 || w.cpus[s] == nil {
			return cpu
		}
		if some < 0 {
			some = cpu
		}
	}
	return some
}

// wake is ready from the current task, which pays for it.
func (w *World) wake(k *task) {
	at := w.now
	if w.cur != nil {
		w.cur.debt += w.price(cost.Wakeup, 1)
		if w.idle > 0 {
			w.cur.debt += w.price(cost.Kick, 1)
		}
		at += w.cur.debt
	}
	w.ready(k, at)
}

// Go starts a task.
func (w *World) Go(_, child *sched.Task, f func(t *sched.Task)) { w.add(child, f) }

// Enter settles, but not under a spinlock.
func (w *World) Enter(t *sched.Task) {
	if k := w.of(t); k.leaf == 0 {
		w.settle(k)
	}
}

// Park blocks t until Unpark.
func (w *World) Park(t *sched.Task, class sched.ClassID) {
	k := w.of(t)
	t.Unplug()
	w.settle(k)
	if k.token {
		k.token = false
		return
	}
	k.state, k.class = parked, class
	w.leaveCPU(k)
	k.yield(struct{}{})
}

// ParkFor is Park that ends after d at the latest.
func (w *World) ParkFor(t *sched.Task, class sched.ClassID, d time.Duration) {
	k := w.of(t)
	t.Unplug()
	w.settle(k)
	if !k.token {
		k.state, k.class = parked, class
		w.push(w.now+max(int64(d), 0), k, true)
		w.leaveCPU(k)
		k.yield(struct{}{})
	}
	k.token = false
}

// Unpark makes t runnable, or lets its next Park go on.
func (w *World) Unpark(t *sched.Task) {
	switch k := w.of(t); {
	case k.state == parked:
		k.up()
		w.wake(k)
	case k.token:
		panic(fmt.Sprintf("vtime: second Unpark of task %v", t))
	default:
		k.token = true
	}
}

// Now is the clock as the current task sees it.
func (w *World) Now() int64 {
	if w.cur != nil {
		return w.now + w.cur.debt
	}
	return w.now
}

// Sleep passes d without a CPU.
func (w *World) Sleep(t *sched.Task, d time.Duration) {
	k := w.of(t)
	t.Unplug()
	w.settle(k)
	k.state = sleeping
	w.push(w.now+max(int64(d), 0), k, true)
	w.leaveCPU(k)
	k.yield(struct{}{})
}

// Charge passes d of CPU time, which is not negative: nobody gets time back.
func (w *World) Charge(t *sched.Task, d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("vtime: task %s is charged %v", t.Name, d))
	}
	k := w.of(t)
	if s := w.sibling(k.cpu); s >= 0 && w.cpus[s] != nil {
		d = time.Duration(float64(d) * w.m.SMT)
	}
	k.debt += int64(d)
	if k.debt >= debtMax && k.leaf == 0 {
		w.settle(k)
	}
}

// Spend charges n units of c.
func (w *World) Spend(t *sched.Task, c sched.Cost, n int) {
	if d := w.price(c, n); d > 0 {
		w.Charge(t, time.Duration(d))
	}
}

// CPUs is how many the machine has.
func (w *World) CPUs() int { return w.m.CPUs }

// price returns the cost of n units of c, and counts them.
func (w *World) price(c sched.Cost, n int) int64 {
	w.stats.Units[c] += int64(n)
	return w.costs.Nanos(c, n)
}

// Checked reports whether lockdep watches.
func (w *World) Checked() bool { return w.m.Checked }

// The heap: four children a node, by time and then sequence.

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (w *World) push(at int64, k *task, wake bool) {
	w.seq++
	nap := int32(goesOn)
	if wake {
		nap = k.nap
	}
	w.heap = append(w.heap, event{at, w.seq, k.t.Slot, nap})
	h := w.heap
	i := len(h) - 1
	e := h[i]
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
}

func (w *World) pop() event {
	h := w.heap
	top := h[0]
	n := len(h) - 1
	e := h[n]
	w.heap = h[:n]
	h = w.heap
	i := 0
	for {
		c := 4*i + 1
		if c >= n {
			break
		}
		best := c
		for j := c + 1; j < min(c+4, n); j++ {
			if h[j].before(&h[best]) {
				best = j
			}
		}
		if !h[best].before(&e) {
			break
		}
		h[i] = h[best]
		i = best
	}
	if n > 0 {
		h[i] = e
	}
	return top
}

// fifo is a queue of tasks.
type fifo struct {
	ring []*task
	head int
	n    int
}

func (f *fifo) push(k *task) {
	if f.n == len(f.ring) {
		ring := make([]*task, max(16, 2*f.n))
		for i := range f.n {
			ring[i] = f.ring[(f.head+i)%len(f.ring)]
		}
		f.ring, f.head = ring, 0
	}
	f.ring[(f.head+f.n)%len(f.ring)] = k
	f.n++
}

func (f *fifo) first() *task { return f.ring[f.head] }

func (f *fifo) pop() *task {
	k := f.ring[f.head]
	f.ring[f.head] = nil
	f.head = (f.head + 1) % len(f.ring)
	f.n--
	return k
}

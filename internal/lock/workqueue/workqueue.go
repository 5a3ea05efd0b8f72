// Package workqueue runs small works on a fixed set of worker tasks: a task that may not sleep (a
// bio's end) queues what may.
//
// The life of a work, with the counters that it moves:
//
//	Queue    mu: linked at the tail             queued 1  unfinished 1   an idle worker woken if the others have enough to do
//	run      mu: a worker takes up to Batch     queued 0
//	         do, one work after the other                                the queue has forgotten the work
//	         mu                                           unfinished 0   Drain woken
//
// Works start in the order they were queued, unless Config.Newest; with one worker they also end in
// it. A work is a field of the object that it is about, linked into the queue, so queueing
// allocates nothing.
//
// A worker serves its queue (sched.WaitGraph). When the object is an event (sched.Event), queueing
// it delegates it to the queue, and a worker that takes it owes it from then on.
//
// Model: fs/btrfs/async-thread.c with its thresholds (Wake), without its ordered-completion lists.
package workqueue

import (
	"fmt"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

var (
	muClass = lockdep.NewClass("workqueue")
	// idleClass is a worker's wait for work. It holds nothing then.
	idleClass = lockdep.NewClass("workqueue_idle")
	// drainClass is the wait for works to end. It ranks with ordered extents, because works take
	// what their completion takes.
	drainClass = lockdep.NewClass("workqueue_drain")
)

// Work links an object into a queue. Keep it in the object.
type Work[T any] struct {
	// Of is the object.
	Of T

	next   *Work[T]
	queued bool
}

// Config says how a queue uses its workers.
type Config struct {
	// Workers is the number of worker tasks, at least 1.
	Workers int
	// Batch is how many works a worker takes at once; 0 is one.
	Batch int
	// Newest takes the work that was queued last first: no FIFO, for a study of what the order of
	// completions is worth.
	Newest bool
	// Wake is how many works may wait for each worker that runs before an idle one is woken: a
	// wake-up costs more than a small work. 0 wakes an idle worker for every work.
	Wake int
}

// Queue is a FIFO of works and the tasks that do them.
type Queue[T any] struct {
	name   string
	cfg    Config
	do     func(t *sched.Task, x T)
	events bool // T is a sched.Event

	mu      lock.Mutex // leaf; protects the fields below
	more    lock.Cond  // there is work, or the queue closes
	drained lock.Cond  // unfinished fell to zero

	fifo       sched.Shared // head and tail, and the works between
	head, tail *Work[T]
	queued     int // linked from head
	unfinished int // queued or running
	idle       int // workers that wait for more and were not woken
	closing    bool
	workers    []*sched.Task
}

// New makes a queue with its workers, which are tasks of t's runtime. do does one work on a worker
// task, and may sleep. The queue has forgotten the work by then: do may free the object or queue it
// again.
func New[T any](t *sched.Task, name string, cfg Config, do func(t *sched.Task, x T)) *Queue[T] {
	if cfg.Workers < 1 {
		panic(fmt.Sprintf("workqueue: %s with %d workers", name, cfg.Workers))
	}
	cfg.Batch = max(cfg.Batch, 1)
	q := &Queue[T]{name: name, cfg: cfg, do: do}
	_, q.events = any(*new(T)).(sched.Event)
	q.mu.Init(muClass)
	q.more.Init(&q.mu, idleClass)
	q.drained.Init(&q.mu, drainClass)
	for i := range cfg.Workers {
		q.workers = append(q.workers, t.Go(fmt.Sprintf("%s/%d", name, i), q.run))
	}
	return q
}

// Queue adds w. It does not sleep for long: a bio's end may call it.
//
// Preconditions:
//   - w is not queued anywhere.
//   - the queue is not closed.
func (q *Queue[T]) Queue(t *sched.Task, w *Work[T]) {
	q.mu.Lock(t)
	if w.queued || q.closing {
		panic(fmt.Sprintf("workqueue: %s: work queued twice (%v) or after close (%v)", q.name, w.queued, q.closing))
	}
	w.queued = true
	q.fifo.Write(t, q)
	switch {
	case q.tail == nil:
		q.head, q.tail = w, w
	case q.cfg.Newest:
		w.next, q.head = q.head, w
	default:
		q.tail.next, q.tail = w, w
	}
	q.queued++
	q.unfinished++
	if q.events {
		t.Delegate(w.Of, q)
	}
	if q.shortLocked(t) && !t.AddTaskWork(q) {
		q.wakeLocked(t)
	}
	q.mu.Unlock(t)
}

// shortLocked reports whether the workers that run have too much to do and another one is idle.
func (q *Queue[T]) shortLocked(t *sched.Task) bool {
	q.mu.AssertHeld(t)
	return q.idle > 0 && q.queued > (q.cfg.Workers-q.idle)*q.cfg.Wake
}

func (q *Queue[T]) wakeLocked(t *sched.Task) {
	q.mu.AssertHeld(t)
	q.idle--
	q.more.Signal(t)
}

// Wake wakes a worker for what a task that queued it was to do itself.
func (q *Queue[T]) Wake(t *sched.Task) {
	q.mu.Lock(t)
	if q.shortLocked(t) {
		q.wakeLocked(t)
	}
	q.mu.Unlock(t)
}

// Do does works on t, which has queued one and holds nothing: as a worker does, until the others
// have no more than they can do.
func (q *Queue[T]) Do(t *sched.Task) {
	q.mu.Lock(t)
	for q.shortLocked(t) {
		q.batchLocked(t)
	}
	q.mu.Unlock(t)
}

func (q *Queue[T]) run(t *sched.Task) {
	t.Doing(q.name)
	t.Serve(q)
	q.mu.Lock(t)
	for {
		for q.head == nil && !q.closing {
			q.idle++
			q.more.Wait(t)
		}
		if q.head == nil {
			break
		}
		q.batchLocked(t)
	}
	t.Discharge(q)
	q.mu.Unlock(t)
}

// batchLocked takes a batch and does it, without q.mu meanwhile.
func (q *Queue[T]) batchLocked(t *sched.Task) {
	q.mu.AssertHeld(t)
	first, n := q.takeLocked(t)
	q.mu.Unlock(t)
	q.doAll(t, first)
	q.mu.Lock(t)
	q.unfinished -= n
	if q.unfinished == 0 {
		q.drained.Broadcast(t)
	}
}

// takeLocked takes the first works off the queue, linked, at most a batch.
func (q *Queue[T]) takeLocked(t *sched.Task) (first *Work[T], n int) {
	q.mu.AssertHeld(t)
	q.fifo.Write(t, q)
	first = q.head
	last := first
	for n = 1; n < q.cfg.Batch && last.next != nil; n++ {
		last = last.next
	}
	q.head, last.next = last.next, nil
	if q.head == nil {
		q.tail = nil
	}
	q.queued -= n
	for w := first; w != nil && q.events; w = w.next {
		// This worker owes them now, and not all that serve the queue.
		t.Discharge(w.Of)
		t.Owe(w.Of)
	}
	return first, n
}

func (q *Queue[T]) doAll(t *sched.Task, first *Work[T]) {
	for w := first; w != nil; {
		next := w.next
		w.next, w.queued = nil, false
		q.do(t, w.Of)
		if t.Checked() {
			lockdep.AssertNone(t)
		}
		w = next
	}
}

func (q *Queue[T]) String() string { return "the list of workqueue " + q.name }

// Event is for reports of a task that waits for the queue to drain.
func (q *Queue[T]) Event() (name, verb string) { return "workqueue " + q.name, "drain" }

// Drain waits until every work queued before has ended, and those that they queued.
func (q *Queue[T]) Drain(t *sched.Task) {
	q.mu.Lock(t)
	for q.unfinished > 0 {
		q.drained.WaitFor(t, q)
	}
	q.mu.Unlock(t)
}

// Close drains the queue and ends its workers. No work may be queued any more.
func (q *Queue[T]) Close(t *sched.Task) {
	q.Drain(t)
	q.mu.Lock(t)
	q.closing = true
	q.more.Broadcast(t)
	q.mu.Unlock(t)
	for _, w := range q.workers {
		t.Join(w)
	}
}

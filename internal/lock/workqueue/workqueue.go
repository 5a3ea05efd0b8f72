// Package workqueue runs small works on a fixed set of worker tasks: what may sleep, for those who may
// not (a bio's end). Works start in the order they were queued; with one worker they also end in it.
// A work is a struct of its owner's, linked into the queue, so queueing allocates nothing.
// A worker serves its queue (sched.WaitGraph): who queues a work delegates to the queue what the work will bring about.
//
// Model: fs/btrfs/async-thread.c, without its ordered-completion lists and its thresholds.
package workqueue

import (
	"fmt"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

var (
	muClass = lockdep.NewClass("workqueue", lockdep.RankLeaf3)
	// idleClass is a worker's wait for work. It holds nothing then.
	idleClass = lockdep.NewClass("workqueue_idle", lockdep.RankLeaf3)
	// drainClass is the wait for works to end. It ranks with ordered extents, because works take
	// what their completion takes.
	drainClass = lockdep.NewClass("workqueue_drain", lockdep.RankOrdered)
)

// Work is one thing to do. Embed it or keep it in the object it works on.
type Work struct {
	// Fn does the work on a worker task, which may sleep. The queue has forgotten w when Fn starts:
	// Fn may free it or queue it again.
	Fn func(t *sched.Task, w *Work)
	// Private is the owner's.
	Private any

	next   *Work
	queued bool
}

// Queue is a FIFO of works and the tasks that do them.
type Queue struct {
	name string
	mu   lock.Mutex // leaf; protects the fields below
	more lock.Cond  // there is work, or the queue closes
	idle lock.Cond  // unfinished fell to zero

	head, tail *Work
	unfinished int // queued or running
	closing    bool
	workers    []*sched.Task
}

// New makes a queue with its workers, which are tasks of t's runtime.
func New(t *sched.Task, name string, workers int) *Queue {
	if workers < 1 {
		panic(fmt.Sprintf("workqueue: %s with %d workers", name, workers))
	}
	q := &Queue{name: name}
	q.mu.Init(muClass)
	q.more.Init(&q.mu, idleClass)
	q.idle.Init(&q.mu, drainClass)
	for i := range workers {
		q.workers = append(q.workers, t.Go(fmt.Sprintf("%s/%d", name, i), q.run))
	}
	return q
}

// Queue adds w. It does not sleep for long: a bio's end may call it.
//
// Preconditions:
//   - w is not queued anywhere.
//   - the queue is not closed.
func (q *Queue) Queue(t *sched.Task, w *Work) {
	q.mu.Lock(t)
	if w.queued || q.closing {
		panic(fmt.Sprintf("workqueue: %s: work queued twice (%v) or after close (%v)", q.name, w.queued, q.closing))
	}
	w.queued = true
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.unfinished++
	q.more.Signal(t)
	q.mu.Unlock(t)
}

func (q *Queue) run(t *sched.Task) {
	t.Op = q.name
	t.Serve(q)
	q.mu.Lock(t)
	for {
		for q.head == nil && !q.closing {
			q.more.Wait(t)
		}
		w := q.head
		if w == nil {
			break
		}
		q.head = w.next
		if q.head == nil {
			q.tail = nil
		}
		w.next, w.queued = nil, false
		q.mu.Unlock(t)
		w.Fn(t, w)
		if t.Checked() {
			lockdep.AssertNone(t)
		}
		q.mu.Lock(t)
		q.unfinished--
		if q.unfinished == 0 {
			q.idle.Broadcast(t)
		}
	}
	t.Discharge(q)
	q.mu.Unlock(t)
}

// Event is for reports of who waits for the queue to drain.
func (q *Queue) Event() (name, verb string) { return "workqueue " + q.name, "drain" }

// Drain waits until every work queued before has ended, and those that they queued.
func (q *Queue) Drain(t *sched.Task) {
	q.mu.Lock(t)
	for q.unfinished > 0 {
		q.idle.WaitFor(t, q)
	}
	q.mu.Unlock(t)
}

// Close drains the queue and ends its workers. Nobody may queue any more.
func (q *Queue) Close(t *sched.Task) {
	q.Drain(t)
	q.mu.Lock(t)
	q.closing = true
	q.more.Broadcast(t)
	q.mu.Unlock(t)
	for _, w := range q.workers {
		t.Join(w)
	}
}

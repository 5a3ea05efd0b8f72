package uring

import (
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// buckets is the number of sets of inodes whose writes wait for each other. Models
// IO_WQ_HASH_ORDER.
const buckets = 64

// list is a queue of requests by their next.
type list struct{ head, tail *request }

func (l *list) push(q *request) {
	if l.tail == nil {
		l.head = q
	} else {
		l.tail.next = q
	}
	l.tail = q
}

func (l *list) pop() *request {
	q := l.head
	if q != nil {
		l.head, q.next = q.next, nil
		if l.head == nil {
			l.tail = nil
		}
	}
	return q
}

// remove takes the first request out that has the user data, or returns nil.
func (l *list) remove(userData uint64) *request {
	var prev *request
	for q := l.head; q != nil; prev, q = q, q.next {
		if q.UserData != userData {
			continue
		}
		if prev == nil {
			l.head = q.next
		} else {
			prev.next = q.next
		}
		if l.tail == q {
			l.tail = prev
		}
		q.next = nil
		return q
	}
	return nil
}

// bucket is the works of some inodes of which one at a time may run.
type bucket struct {
	busy  bool // one of them is in wq.runnable or with a worker
	stall list // the others, in the order they came
}

// wq is the works of a ring and the tasks that do them. Models struct io_wq with its bounded
// workers.
type wq struct {
	ring  *Ring
	max   int           // workers
	tasks []*sched.Task // protected by uring_lock

	mu       lock.Mutex // io_wq; protects the fields below
	more     lock.Cond
	mem      sched.Shared
	runnable list
	bucket   [buckets]bucket
	running  []work // by worker
	idle     int    // workers that wait and were not woken
	closing  bool
}

func (w *wq) init(r *Ring, workers int) {
	w.ring, w.max = r, workers
	w.mu.Init(wqClass)
	w.more.Init(&w.mu, idleClass)
}

func (w *wq) String() string { return "the workers of a ring" }

// work is one item of a worker's list. It has a copy of the user data, because the request is free
// again before the worker knows.
type work struct {
	busy     bool
	userData uint64
	cancel   bool // Cancel or Close has asked for the end
}

// reason is why a request goes to a worker.
type reason uint8

const (
	reasonAsked reason = iota
	reasonAgain
	reasonShort
)

// punt gives q to the workers. Writes of one inode that go through the page cache, and direct ones
// unless the file takes several at a time, are done one after the other in the order they came.
//
// Models io_queue_iowq() with io_prep_async_work(), and io_wq_enqueue().
//
// Preconditions:
//   - uring_lock is held.
func (r *Ring) punt(t *sched.Task, q *request, why reason) {
	r.mu.AssertHeld(t)
	q.way = punted
	q.hashed = q.Op == Write && (q.Flags&kiocb.Direct == 0 || q.File.Modes()&kiocb.ModeDIOParallelWrite == 0)
	t.Spend(cost.Punt, 1)
	r.completion.Lock(t)
	r.mem.Write(t, r)
	if !q.counted {
		r.count(q)
	}
	r.stats.Punted++
	switch why {
	case reasonAgain:
		r.stats.Again++
	case reasonShort:
		r.stats.Short++
	}
	r.completion.Unlock(t)

	w := &r.wq
	w.mu.Lock(t)
	w.mem.Write(t, w)
	t.Delegate(r, w)
	grow := false
	if b := w.bucketOf(q); b != nil && b.busy {
		b.stall.push(q)
	} else {
		if b != nil {
			b.busy = true
		}
		w.runnable.push(q)
		if w.idle > 0 {
			w.idle--
			w.more.Signal(t)
		} else if grow = len(w.running) < w.max; grow {
			w.running = append(w.running, work{})
		}
	}
	n := len(w.running)
	w.mu.Unlock(t)
	if grow {
		w.tasks = append(w.tasks, t.Go(fmt.Sprintf("iou-wrk-%d", n-1), func(t *sched.Task) { w.run(t, n-1) }))
	}
}

// bucketOf is where q waits for others, or nil.
func (w *wq) bucketOf(q *request) *bucket {
	if !q.hashed {
		return nil
	}
	return &w.bucket[uint64(q.File.Ino())%buckets]
}

// run is the life of a worker. Models io_wq_worker() and io_worker_handle_work().
func (w *wq) run(t *sched.Task, num int) {
	t.OwnThread()
	t.Doing("io-wq")
	t.Serve(w)
	w.mu.Lock(t)
	w.mem.Write(t, w)
	for {
		for w.runnable.head == nil && !w.closing {
			w.idle++
			w.more.Wait(t)
			w.mem.Write(t, w)
		}
		q := w.runnable.pop()
		if q == nil {
			break
		}
		w.running[num] = work{busy: true, userData: q.UserData}
		b := w.bucketOf(q)
		t.Discharge(w.ring) // of all that serve w; this worker owes it now
		t.Owe(w.ring)
		w.mu.Unlock(t)
		q.mem.Write(t, q)
		w.ring.work(t, q, num)
		w.mu.Lock(t)
		w.mem.Write(t, w)
		t.Discharge(w.ring)
		w.running[num] = work{}
		w.next(b)
	}
	t.Discharge(w)
	w.mu.Unlock(t)
}

// next lets the next work of a bucket run, after one has ended. The worker that calls it takes a
// work right after. Under mu.
func (w *wq) next(b *bucket) {
	if b == nil {
		return
	}
	if q := b.stall.pop(); q != nil {
		w.runnable.push(q)
	} else {
		b.busy = false
	}
}

// cancelled says whether the work of a worker was asked to end.
func (w *wq) cancelled(t *sched.Task, num int) bool {
	w.mu.Lock(t)
	defer w.mu.Unlock(t)
	w.mem.Read(t, w)
	return w.running[num].cancel
}

// cancelTarget ends the request with the user data if no worker has begun it, and answers Cancel.
//
// Models io_try_cancel() and io_wq_cancel_cb(). Difference: a worker that sleeps in a file system
// is not woken by a signal; it looks after each part.
func (r *Ring) cancelTarget(t *sched.Task, userData uint64) error {
	w := &r.wq
	w.mu.Lock(t)
	w.mem.Write(t, w)
	q := w.runnable.remove(userData)
	if q != nil {
		w.next(w.bucketOf(q)) // the worker that was woken for q takes it
	}
	for i := 0; q == nil && i < buckets; i++ {
		q = w.bucket[i].stall.remove(userData)
	}
	err := error(errno.ENOENT)
	for i := 0; q == nil && i < len(w.running); i++ {
		if k := &w.running[i]; k.busy && k.userData == userData {
			k.cancel = true
			err = errno.EALREADY
		}
	}
	if q != nil {
		t.Discharge(r)
	}
	w.mu.Unlock(t)
	if q == nil {
		return err
	}
	r.end(t, q, errno.ECANCELED)
	return nil
}

// takeAll takes out the requests that no worker has begun, linked, and asks the others to end.
func (w *wq) takeAll(t *sched.Task) *request {
	var all list
	w.mu.Lock(t)
	w.mem.Write(t, w)
	for q := w.runnable.pop(); q != nil; q = w.runnable.pop() {
		if b := w.bucketOf(q); b != nil {
			b.busy = false
		}
		all.push(q)
	}
	for i := range w.bucket {
		for q := w.bucket[i].stall.pop(); q != nil; q = w.bucket[i].stall.pop() {
			all.push(q)
		}
	}
	for i := range w.running {
		w.running[i].cancel = w.running[i].busy
	}
	for q := all.head; q != nil; q = q.next {
		t.Discharge(w.ring)
	}
	w.mu.Unlock(t)
	return all.head
}

// close ends the workers. There is no work any more.
func (w *wq) close(t *sched.Task) {
	w.mu.Lock(t)
	w.mem.Write(t, w)
	w.closing = true
	w.more.Broadcast(t)
	w.mu.Unlock(t)
	for _, k := range w.tasks {
		t.Join(k)
	}
}

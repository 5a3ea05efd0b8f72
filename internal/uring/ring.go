package uring

import (
	"errors"
	"fmt"
	"math/bits"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/iopath"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

var (
	ringClass       = lockdep.NewClass("uring_lock")
	completionClass = lockdep.NewClass("uring_completion")
	// cqeClass is the wait for completions. Nothing is held then.
	cqeClass  = lockdep.NewClass("uring_cqe")
	wqClass   = lockdep.NewClass("io_wq")
	idleClass = lockdep.NewClass("io_wq_idle")
)

// File is a file that requests read and write; fs.File is one. Its methods are called by many
// tasks.
type File interface {
	ReadIter(t *sched.Task, rq kiocb.Request, p []byte) (int, error)
	WriteIter(t *sched.Task, rq kiocb.Request, src iopath.Source) (int, error)
	Fsync(t *sched.Task) error
	// Modes says which requests are tried before they go to a worker.
	Modes() kiocb.Modes
	// Ino tells files apart for the workers: writes of one inode are done one after the other.
	Ino() format.Ino
}

// Op is the operation of a request.
type Op uint8

// The operations.
const (
	Nop   Op = iota // completes with 0
	Read            // Buf from Pos on
	Write           // Buf at Pos
	Fsync           // always by a worker, as io_fsync()
	// the request with UserData Target: 0, ENOENT, or EALREADY for one that a worker has begun
	Cancel
)

var opNames = [...]string{"nop", "read", "write", "fsync", "cancel"}

func (o Op) String() string { return opNames[o] }

// SQE is an entry of the submission queue.
type SQE struct {
	Op Op
	// Async gives the request to a worker without an attempt. Models IOSQE_ASYNC.
	Async bool
	// Flags are the caller's. With Nowait the request ends with EAGAIN where it would sleep: no
	// worker gets it.
	Flags kiocb.Flags
	File  File
	Pos   uint64
	// Buf is the ring's until the request has completed.
	Buf      []byte
	UserData uint64
	Target   uint64 // of Cancel
}

// CQE is a completion.
type CQE struct {
	UserData uint64
	// Res is the bytes that were moved, or the negative number of the error.
	Res int
	// Err is the error if Res is negative.
	Err error
}

// Config sizes a ring.
type Config struct {
	// Entries of the submission queue, 1 to MaxEntries; it is rounded up to a power of two.
	Entries int
	// CQEntries of the completion queue, rounded up likewise; 0 is twice Entries.
	CQEntries int
	// Workers is the most workers; 0 is the smaller of Entries and DefaultWorkers.
	Workers int
	// Path, if set, decides instead of the ring what becomes of reads and writes: a lab's.
	Path *Path
}

// Limits of Config.
const (
	MaxEntries = 32768
	// DefaultWorkers is four for each of eight processors, as io_init_wq_offload() has it.
	DefaultWorkers = 32
)

// Stats says which way requests went. An attempt that failed counts under Again and under Punted.
type Stats struct {
	Submitted int64 `json:"submitted"`
	Inline    int64 `json:"inline"`    // ended by the submitting task
	Queued    int64 `json:"queued"`    // direct requests that the device ended
	Punted    int64 `json:"punted"`    // given to a worker
	Again     int64 `json:"again"`     // attempts that would have slept
	Short     int64 `json:"short"`     // attempts that did a part
	Cancelled int64 `json:"cancelled"` // requests that ended with ECANCELED
	Overflows int64 `json:"overflows"` // completions that found the queue full
}

// request is a submitted entry until its completion is in the queue.
type request struct {
	ring *Ring
	SQE
	way     way
	counted bool // in inFlight: it may outlive its Submit
	done    int  // bytes of the parts that have ended
	hashed  bool // waits for other writes of its inode
	res     int
	err     error
	next    *request
	mem     sched.Shared
}

// way is how a request gets to its end.
type way uint8

const (
	free way = iota // it has none
	inline
	queued // by the device
	punted
)

func (q *request) String() string { return fmt.Sprintf("request %d of a ring", q.UserData) }

// Ring is a submission queue, a completion queue and the workers between. One task at a time fills
// entries and submits; any task may take completions.
type Ring struct {
	mu lock.Mutex // uring_lock; protects the submission queue, what follows, and wq.tasks

	sq             []SQE
	sqHead, sqTail uint32
	spare          *request // free ones for the next Submit
	over           list     // those that this Submit has ended
	closed         bool

	completion lock.Mutex // protects the fields below
	mem        sched.Shared
	cq         []CQE
	cqHead     uint32
	cqTail     uint32
	overflow   list // completed requests for which the queue has no room
	overflowN  int
	free       *request // that ended after their Submit
	inFlight   int      // counted requests without a completion
	waiting    int      // tasks in Wait and Close
	want       int      // the least number of completions that one of them waits for
	more       lock.Cond
	stats      Stats

	wq   wq
	path *Path
}

// New makes a ring for tasks of t's runtime. Close ends it.
//
// Models io_uring_setup(2).
func New(t *sched.Task, cfg Config) (*Ring, error) {
	if cfg.Entries < 1 || cfg.Entries > MaxEntries {
		return nil, fmt.Errorf("bad ring, have %d entries want 1 to %d: %w", cfg.Entries, MaxEntries, errno.EINVAL)
	}
	entries := roundUp(cfg.Entries)
	if cfg.CQEntries == 0 {
		cfg.CQEntries = 2 * entries
	}
	if cfg.CQEntries < cfg.Entries || cfg.CQEntries > 2*MaxEntries {
		return nil, fmt.Errorf("bad ring, have %d completions want %d to %d: %w", cfg.CQEntries, cfg.Entries, 2*MaxEntries, errno.EINVAL)
	}
	if cfg.Workers == 0 {
		cfg.Workers = min(entries, DefaultWorkers)
	}
	r := &Ring{sq: make([]SQE, entries), cq: make([]CQE, roundUp(cfg.CQEntries)), path: cfg.Path}
	r.mu.Init(ringClass)
	r.completion.Init(completionClass)
	r.more.Init(&r.completion, cqeClass)
	r.wq.init(r, cfg.Workers)
	return r, nil
}

func roundUp(n int) int { return 1 << bits.Len(uint(n-1)) }

func (r *Ring) String() string { return "the completion queue of a ring" }

// Event is for reports of a task that waits for completions.
func (r *Ring) Event() (name, verb string) { return "a completion of the ring", "post" }

// Entries is the size of the submission queue.
func (r *Ring) Entries() int { return len(r.sq) }

// GetSQE returns the next free entry, or nil when the submission queue is full: then Submit makes
// room. The entry is zero.
//
// Models io_uring_get_sqe(3).
func (r *Ring) GetSQE() *SQE {
	if int(r.sqTail-r.sqHead) == len(r.sq) {
		return nil
	}
	e := &r.sq[r.sqTail%uint32(len(r.sq))] // Submit left it zero
	r.sqTail++
	return e
}

// Submit hands in all filled entries and returns how many. Requests that need no wait have
// completed by then. It sleeps only for the ring's own lock, and where a File sleeps in spite of
// Nowait.
//
// Models io_uring_enter(2) and io_submit_sqes().
func (r *Ring) Submit(t *sched.Task) (int, error) {
	n := int(r.sqTail - r.sqHead)
	if n == 0 {
		return 0, nil
	}
	if t.BeginTaskWork() {
		defer t.EndTaskWork()
	}
	r.mu.Lock(t)
	defer r.mu.Unlock(t)
	if r.closed {
		return 0, errno.EBADF
	}
	for range n {
		q := r.request(t)
		e := &r.sq[r.sqHead%uint32(len(r.sq))]
		q.SQE = *e
		*e = SQE{}
		r.sqHead++
		t.Spend(cost.Ring, 1)
		r.issue(t, q)
	}
	r.flush(t)
	return n, nil
}

// request gives a free request. Models io_alloc_req().
//
// Preconditions:
//   - uring_lock is held.
func (r *Ring) request(t *sched.Task) *request {
	if r.spare == nil {
		r.completion.Lock(t)
		r.mem.Write(t, r)
		r.spare, r.free = r.free, nil
		r.completion.Unlock(t)
	}
	q := r.spare
	if q == nil {
		q = &request{ring: r}
	}
	r.spare, q.next = q.next, nil
	q.mem.Write(t, q)
	if q.way != free {
		panic("uring: a request is used twice")
	}
	q.way = inline
	return q
}

// mayOutlive is called before another task may end q.
func (r *Ring) mayOutlive(t *sched.Task, q *request) {
	if !q.counted {
		r.completion.Lock(t)
		r.mem.Write(t, r)
		r.count(q)
		r.completion.Unlock(t)
	}
}

// count makes q one that may outlive its Submit. Under completion.
func (r *Ring) count(q *request) {
	q.counted = true
	r.inFlight++
	r.stats.Submitted++
}

// flush posts the completions of the requests that this Submit has ended, under one hold of the
// lock. Models io_submit_flush_completions().
//
// Preconditions:
//   - uring_lock is held.
func (r *Ring) flush(t *sched.Task) {
	if r.over.head == nil {
		return
	}
	r.completion.Lock(t)
	r.mem.Write(t, r)
	for q := r.over.pop(); q != nil; q = r.over.pop() {
		r.stats.Submitted++
		if r.fill(q) {
			q.next, r.spare = r.spare, q
		}
	}
	r.wake(t)
	r.completion.Unlock(t)
}

// complete ends q: its completion is in the queue, or waits for room there, at once or when the
// Submit that has ended it returns. It never sleeps. q is free afterwards.
//
// Models io_req_complete_defer() and io_req_complete_post().
func (r *Ring) complete(t *sched.Task, q *request, res int, err error) {
	q.mem.Write(t, q)
	q.res, q.err = res, err
	if !q.counted {
		r.over.push(q)
		return
	}
	r.completion.Lock(t)
	r.mem.Write(t, r)
	r.inFlight--
	if r.fill(q) {
		q.next, r.free = r.free, q
	}
	r.wake(t)
	r.completion.Unlock(t)
}

// fill posts q's completion and reports true, or lets it wait for room. Under completion. Models
// io_fill_cqe_req().
func (r *Ring) fill(q *request) bool {
	switch {
	case errors.Is(q.err, errno.ECANCELED):
		r.stats.Cancelled++
	case q.way == inline:
		r.stats.Inline++
	case q.way == queued:
		r.stats.Queued++
	}
	if int(r.cqTail-r.cqHead) < len(r.cq) {
		r.post(q)
		return true
	}
	// Reap fills the queue from this list at once: while a completion waits for room there is none,
	// and they stay in order.
	r.overflow.push(q)
	r.overflowN++
	r.stats.Overflows++
	return false
}

// wake wakes the tasks in Wait and Close when they have enough. Under completion.
func (r *Ring) wake(t *sched.Task) {
	if r.waiting > 0 && (r.available() >= r.want || r.inFlight == 0) {
		r.want = len(r.cq) + MaxEntries // those that wait on set it again
		r.more.Broadcast(t)
	}
}

// post writes q's completion: q is free.
func (r *Ring) post(q *request) {
	r.cq[r.cqTail%uint32(len(r.cq))] = CQE{UserData: q.UserData, Res: q.res, Err: q.err}
	r.cqTail++
	q.SQE, q.err, q.way, q.counted, q.done, q.hashed = SQE{}, nil, free, false, 0, false
}

func (r *Ring) available() int { return int(r.cqTail-r.cqHead) + r.overflowN }

// Reap moves completions to dst and returns how many. It does not wait.
//
// Models io_uring_peek_batch_cqe(3), which enters the kernel for completions that found the queue
// full.
func (r *Ring) Reap(t *sched.Task, dst []CQE) int {
	t.Spend(cost.RingReap, 1)
	r.completion.Lock(t)
	r.mem.Write(t, r)
	n := 0
	for n < len(dst) {
		if r.cqHead == r.cqTail {
			break
		}
		e := &r.cq[r.cqHead%uint32(len(r.cq))]
		dst[n] = *e
		*e = CQE{}
		r.cqHead++
		n++
		if q := r.overflow.pop(); q != nil {
			r.overflowN--
			q.mem.Write(t, q)
			r.post(q)
			q.next, r.free = r.free, q
		}
	}
	r.completion.Unlock(t)
	return n
}

// Wait sleeps until n completions can be taken, or as many as there still will be: those of a
// Submit that has not returned may be left out.
//
// Models io_uring_enter(2) with IORING_ENTER_GETEVENTS. Difference: there a task that waits for
// more than is in flight waits on.
func (r *Ring) Wait(t *sched.Task, n int) {
	t.Spend(cost.Events, 1)
	if t.BeginTaskWork() {
		defer t.EndTaskWork()
	}
	r.completion.Lock(t)
	r.mem.Read(t, r)
	for r.available() < n && r.inFlight > 0 {
		r.wait(t, n)
	}
	r.completion.Unlock(t)
}

// wait sleeps until there may be n completions. Under completion.
func (r *Ring) wait(t *sched.Task, n int) {
	if r.waiting == 0 || n < r.want {
		r.want = n
	}
	r.waiting++
	r.more.WaitFor(t, r)
	r.waiting--
	r.mem.Read(t, r)
}

// Pending is the number of requests without a completion. A Submit that has not returned may have
// more.
func (r *Ring) Pending(t *sched.Task) int {
	r.completion.Lock(t)
	defer r.completion.Unlock(t)
	r.mem.Read(t, r)
	return r.inFlight
}

// Stats counts the ring's work so far.
func (r *Ring) Stats(t *sched.Task) Stats {
	r.completion.Lock(t)
	defer r.completion.Unlock(t)
	r.mem.Read(t, r)
	return r.stats
}

// Workers is how many workers the ring has made.
func (r *Ring) Workers(t *sched.Task) int {
	r.wq.mu.Lock(t)
	defer r.wq.mu.Unlock(t)
	r.wq.mem.Read(t, &r.wq)
	return len(r.wq.running)
}

// Close ends the ring: it takes no more requests, those that no worker has begun end with
// ECANCELED, and it waits for the others. All their completions can still be taken. Entries that
// were not submitted are dropped.
//
// Models io_ring_exit_work(). Difference: there the completions are lost with the ring.
func (r *Ring) Close(t *sched.Task) {
	r.mu.Lock(t)
	r.sqHead = r.sqTail
	r.closed = true
	for q := r.wq.takeAll(t); q != nil; {
		next := q.next
		q.next = nil
		r.end(t, q, errno.ECANCELED)
		q = next
	}
	r.mu.Unlock(t)
	r.completion.Lock(t)
	for r.inFlight > 0 {
		r.wait(t, len(r.cq)+MaxEntries)
	}
	r.completion.Unlock(t)
	r.wq.close(t)
}

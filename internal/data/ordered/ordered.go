// Package ordered holds the ordered extents of an inode: data writes in flight, from the choice of
// their place on disk until the trees know them.
//
// Writeback makes an extent (Add). Each finished bio is accounted (Done); the end of the last one
// hands the extent to a completion worker, which removes it (Remove) when the file extent items and
// checksums are in the trees. A task that wants to change or read the range meanwhile finds the
// extent (First) and waits for it (WaitPut).
//
// Model: fs/btrfs/ordered-data.c. Difference: an extent's bios are always submitted right after it
// is made, so there is nothing to start (btrfs_start_ordered_extent) and invalidation never has to
// finish one.
//
// Lock order:
//
//	ordered_extent         Wait: never with a page or range of the same bytes locked (labs/reference 9.1, level 10)
//	  page
//	    extent
//	      ordered_tree     Tree.mu, a leaf
//	        ordered_pool   a free list
package ordered

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/sched"
)

// WaitClass is the wait for an ordered extent to be finished.
var WaitClass = lockdep.NewClass("ordered_extent")

var (
	classTree = lockdep.NewClass("ordered_tree")
	classPool = lockdep.NewClass("ordered_pool")
)

// The names of what tasks share in reports of data races.
const (
	nameSums = sched.Label("checksums of an ordered extent")
	nameTree = sched.Label("tree of ordered extents")
	namePool = sched.Label("list of ordered extents")
)

// Type is the kind of space that an ordered extent writes to. Models BTRFS_ORDERED_REGULAR, _NOCOW
// and _PREALLOC.
type Type uint8

// The types.
const (
	Regular  Type = iota // a new extent: completion inserts a file extent item
	Nocow                // an existing extent in place: nothing to insert
	Prealloc             // preallocated space: completion marks it written
)

var typeNames = [...]string{"regular", "nocow", "prealloc"}

func (t Type) String() string { return typeNames[t] }

// Extent is one data write in flight: [Start, Start+Len) of the file. Models struct
// btrfs_ordered_extent.
type Extent struct {
	// Of the 64 bytes of a cache line, first what a walk of the tree looks at, and what a new
	// extent is given: with many in flight each node of the walk is a cache miss, which may as well
	// be the only one.
	Start, Len uint64  // file range, bytes
	left_      *Extent // children in the tree
	right_     *Extent
	prio       uint32
	refs       atomic.Int32
	done       atomic.Bool
	Type       Type
	inTree     bool // and attached: protected by Tree.mu
	attached   bool
	DiskBytenr format.Logical // of the first byte written
	nextFree   *Extent
	// DiskLen is the bytes at DiskBytenr: Len, or less when they are compressed, as Compression
	// says.
	DiskLen     uint64
	Compression uint8 // format.CompressNone and so on

	left   atomic.Int64 // bytes whose bios have not ended
	failed atomic.Pointer[error]
	older  *Extent // neighbours in Pool.oldest..newest
	newer  *Extent
	seq    uint64
	wait   *lock.WaitQueue
	pool   *Pool
	tree   *Tree

	// Owner is the inode: see inode.OfOrdered.
	Owner any
	// Completion links the extent into the queue of those that wait to be finished.
	Completion workqueue.Work[*Extent]
	// QuotaData is the data bytes that are reserved for it in the subvolume's qgroup, QuotaMeta the
	// bytes of tree blocks: LendOrdered leaves them to the completion.
	QuotaData, QuotaMeta uint64
	// LoggedIn is the transaction whose log has what the extent writes; 0 is none. The extent lock
	// of the range is held.
	LoggedIn uint64

	sums        []byte // of each sector; see SetSums
	sumsStorage []byte
	sumsData    sched.Shared // sums, to an explorer
	refsObj     sched.Obj    // refs, to an explorer
}

// End is the first byte after the file range.
func (e *Extent) End() uint64 { return e.Start + e.Len }

func (e *Extent) overlaps(o *Extent) bool { return e.Start < o.End() && o.Start < e.End() }

func (e *Extent) String() string {
	return fmt.Sprintf("ordered extent [%d, %d) %v at %d, %d bytes left, done=%v", e.Start, e.End(), e.Type, e.DiskBytenr, e.left.Load(), e.done.Load())
}

// Done accounts bytes whose bio has ended, with err or nil. It reports true exactly once: to the
// caller that ended the last byte, who queues the extent for completion. It never sleeps. Models
// btrfs_mark_ordered_io_finished().
func (e *Extent) Done(t *sched.Task, bytes uint64, err error) (last bool) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_finish_ordered_extent", Len: bytes})
	}
	if err != nil {
		e.Fail(err)
	}
	n := e.left.Add(-int64(bytes))
	if n < 0 {
		panic(fmt.Sprintf("ordered: %v: %d bytes too many", e, -n))
	}
	return n == 0
}

// Fail records an error: completion inserts nothing then. Models BTRFS_ORDERED_IOERR.
func (e *Extent) Fail(err error) { e.failed.CompareAndSwap(nil, &err) }

// Err is the first error of the data write.
func (e *Extent) Err() error {
	if p := e.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Finished reports whether completion is over.
func (e *Extent) Finished() bool { return e.done.Load() }

// traced tells the tracer of a step with the extent.
func (e *Extent) traced(t *sched.Task, name string) {
	t.Trace(sched.TraceEvent{Name: name, Start: e.Start, Len: e.Len, What: e.Type.String()})
}

// Wait waits until completion is over. No page and no range of the extent may be locked by t.
// Models btrfs_start_ordered_extent().
func (e *Extent) Wait(t *sched.Task) {
	if t.Tracing() {
		e.traced(t, "btrfs_ordered_extent_start")
	}
	e.wait.WaitFor(t, e, e.done.Load)
}

// WaitPut is Wait, and gives the caller's reference back: the end of a look at First.
func (e *Extent) WaitPut(t *sched.Task) {
	e.Wait(t)
	e.Put(t)
}

// Event and Range name the extent in reports of who waits for it.
func (e *Extent) Event() (name, verb string) { return "ordered extent", "finish" }
func (e *Extent) Range() (start, end uint64) { return e.Start, e.End() }

// Put gives a reference back. The last one comes after all that the others did with the extent:
// only then may another write have it.
func (e *Extent) Put(t *sched.Task) {
	t.Touch(&e.refsObj, sched.Writes)
	if n := e.refs.Add(-1); n > 0 {
		return
	} else if n < 0 {
		panic(fmt.Sprintf("ordered: %v has %d references", e, n))
	}
	e.pool.put(t, e)
}

// Pool is a free list of extents, one per file system, and the count of those in flight.
type Pool struct {
	bytes atomic.Int64 // in flight
	n     atomic.Int64
	waits [64]lock.WaitQueue

	attachedDone func(t *sched.Task, e sched.Event) // OnAttachedDone

	mu             lock.Mutex // leaf; protects the fields below
	data           sched.Shared
	free           *Extent
	oldest, newest *Extent // all in flight, in the order they were made
	seq            uint64
}

// Init makes an empty pool.
func (p *Pool) Init() {
	p.mu.Init(classPool)
	for i := range p.waits {
		p.waits[i].Init(WaitClass)
	}
}

// OnAttachedDone sets the function that is told the end of each attached extent: see Tree.Attach.
// Call it before the first Add.
func (p *Pool) OnAttachedDone(f func(t *sched.Task, e sched.Event)) { p.attachedDone = f }

// InFlight counts the extents that are not finished, and their bytes.
func (p *Pool) InFlight() (n, bytes int64) { return p.n.Load(), p.bytes.Load() }

// get gives an extent that is linked as the newest in flight.
func (p *Pool) get(t *sched.Task, start, length uint64) *Extent {
	p.mu.Lock(t)
	p.data.Write(t, namePool)
	e := p.free
	if e != nil {
		p.free = e.nextFree
		e.nextFree = nil
	} else {
		e = &Extent{pool: p}
		e.Completion.Of = e
	}
	// All that a waiter looks at is set before anybody can find the extent.
	e.Start, e.Len = start, length
	e.done.Store(false)
	e.LoggedIn, e.attached = 0, false
	e.wait = &p.waits[(start>>12*0x9e3779b97f4a7c15)>>58]
	e.refs.Store(2)
	p.seq++
	e.seq, e.older, e.newer = p.seq, p.newest, nil
	if p.newest != nil {
		p.newest.newer = e
	} else {
		p.oldest = e
	}
	p.newest = e
	p.n.Add(1)
	p.bytes.Add(int64(length))
	p.mu.Unlock(t)
	return e
}

func (p *Pool) unlink(t *sched.Task, e *Extent) {
	p.mu.Lock(t)
	p.data.Write(t, namePool)
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		p.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		p.newest = e.older
	}
	e.older, e.newer = nil, nil
	// Under the lock: a task that finds the list empty in WaitAll finds the counts at rest.
	p.n.Add(-1)
	p.bytes.Add(-int64(e.Len))
	p.mu.Unlock(t)
}

// WaitAll waits for every extent that is in flight now. Models btrfs_wait_ordered_roots().
func (p *Pool) WaitAll(t *sched.Task) {
	p.mu.Lock(t)
	last := p.seq
	for {
		p.data.Read(t, namePool)
		e := p.oldest
		if e == nil || e.seq > last {
			p.mu.Unlock(t)
			return
		}
		e.refs.Add(1)
		p.mu.Unlock(t)
		e.WaitPut(t)
		p.mu.Lock(t)
	}
}

// keepSums bounds the checksum storage that a free extent keeps, in bytes.
const keepSums = 8192

func (p *Pool) put(t *sched.Task, e *Extent) {
	if cap(e.sums) <= keepSums {
		e.sumsStorage = e.sums[:0]
	} else {
		e.sumsStorage = nil
	}
	e.sums, e.Owner, e.tree = nil, nil, nil
	p.mu.Lock(t)
	p.data.Write(t, namePool)
	e.nextFree = p.free
	p.free = e
	p.mu.Unlock(t)
}

// SumsBuffer gives an empty slice to append the checksums to, for SetSums.
func (e *Extent) SumsBuffer() []byte { return e.sumsStorage[:0] }

// SetSums sets the checksums of the sectors, one after the other. The task that submits the extent
// calls it before the first bio; an extent of an inode without checksums has none.
func (e *Extent) SetSums(t *sched.Task, sums []byte) {
	e.tree.mu.Lock(t) // for Tree.Written
	e.sumsData.Write(t, nameSums)
	e.sums = sums
	e.tree.mu.Unlock(t)
}

// Checksums returns the sums of SetSums, for completion, or after Tree.Written.
func (e *Extent) Checksums(t *sched.Task) []byte {
	e.sumsData.Read(t, nameSums)
	return e.sums
}

package pagecache

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// PageSize is the size of a page in bytes; it is also the sector size.
const (
	PageShift = 12
	PageSize  = 1 << PageShift
)

var (
	// PageClass is the lock of one page.
	PageClass = lockdep.NewClass("page")
	// StableClass is the wait for the writeback of a page that somebody wants to change.
	StableClass = lockdep.NewClass("stable_page")

	// StateClass is the flags, tags and counts of pages, which are atomics and no lock. It is a
	// scheduling point for a study that names it.
	StateClass = lockdep.NewClass("page_state")
	// TableClass is the table that a mapping finds its pages in, atomics as well.
	TableClass = lockdep.NewClass("page_table")

	classMapping = lockdep.NewClass("mapping")
	classCache   = lockdep.NewClass("page_cache")
)

// Page flags.
const (
	flagUptodate uint32 = 1 << iota
	flagDirty
	flagWriteback
	flagReferenced // used since the eviction hand came by last
)

// Page is one page of a file in memory. A caller that may use it holds a reference (Put) or its
// lock.
//
// Models struct page with PG_locked, PG_uptodate, PG_dirty and PG_writeback. Difference: page
// structs are never freed, only used again, so that looking at one that is gone is harmless.
type Page struct {
	mu    lock.Mutex // class "page", ordered by index
	flags atomic.Uint32
	// refs counts users; the mapping is one. Zero means free.
	refs atomic.Int32
	m    atomic.Pointer[Mapping] // nil once removed from its mapping; changes under mu
	// index is the page's place in the file, fixed while refs > 0.
	index uint64
	id    uint32
	data  *[PageSize]byte
	cache *Cache
	next  *Page // free list

	content sched.Shared // data, to an explorer
	wbObj   sched.Obj    // flagWriteback, to an explorer
	refsObj sched.Obj    // refs
}

// Index is the page's offset in the file, in pages.
func (p *Page) Index() uint64 { return p.index }

// Offset is the page's offset in the file, in bytes.
func (p *Page) Offset() uint64 { return p.index << PageShift }

// Data is the page's bytes, for whoever looks at them without a task or hands them to a device.
func (p *Page) Data() []byte { return p.data[:] }

// View is the page's bytes for reading: the page is locked, or under writeback by the caller.
func (p *Page) View(t *sched.Task) []byte {
	p.content.Read(t, p)
	return p.data[:]
}

// Edit is the page's bytes for writing. The caller holds the lock and has waited for writeback.
func (p *Page) Edit(t *sched.Task) []byte {
	p.mu.AssertHeld(t)
	p.content.Write(t, p)
	return p.data[:]
}

// String names the page in reports.
func (p *Page) String() string {
	if m := p.m.Load(); m != nil && m.owner != nil {
		return fmt.Sprintf("page %d of %v", p.index, m.owner)
	}
	return fmt.Sprintf("page %d", p.index)
}

// Mapping is the file that the page belongs to; nil when it was truncated away. Stable under the
// lock.
func (p *Page) Mapping() *Mapping { return p.m.Load() }

// Read copies the page's bytes from off on to dst, as many as there are, without the lock: a write
// at the same time may be seen in part, as in the kernel (labs/reference 1.5), and is no data race.
// The page is referenced and uptodate.
func (p *Page) Read(t *sched.Task, dst []byte, off uint64) int {
	if raceEnabled {
		p.Lock(t)
		defer p.Unlock(t)
	}
	p.mu.Look(t)
	return copy(dst, p.data[off:])
}

// Lock takes the page lock; ascending index when several are held.
func (p *Page) Lock(t *sched.Task) { p.mu.LockNested(t, p.index) }

// TryLock takes the page lock if nobody has it.
func (p *Page) TryLock(t *sched.Task) bool { return p.mu.TryLockNested(t, p.index) }

// Unlock lets the page lock go.
func (p *Page) Unlock(t *sched.Task) {
	if p.m.Load() != nil {
		p.traced(t, "folio_unlock")
	}
	p.mu.Unlock(t)
}

// traced tells a step of the page, by the kernel's function.
func (p *Page) traced(t *sched.Task, name string) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: name, Val: int64(p.index)})
	}
}

// Uptodate reports whether the bytes are the file's.
func (p *Page) Uptodate() bool { return p.flags.Load()&flagUptodate != 0 }

// SetUptodate says that the bytes are the file's. The page is locked.
func (p *Page) SetUptodate() {
	if p.flags.Load()&flagUptodate == 0 {
		p.flags.Or(flagUptodate)
	}
}

// Dirty reports whether the page must be written back. Stable under the lock.
func (p *Page) Dirty() bool { return p.flags.Load()&flagDirty != 0 }

// Writeback reports whether the device is reading the page now.
func (p *Page) Writeback() bool { return p.flags.Load()&flagWriteback != 0 }

// UnderWriteback is Writeback for a task that acts on the answer: what the device did before the
// end comes before what the task does next.
func (p *Page) UnderWriteback(t *sched.Task) bool {
	if m := p.m.Load(); m != nil {
		m.look(t)
	}
	t.Touch(&p.wbObj, sched.Reads)
	return p.Writeback()
}

// get takes a reference unless the page is free.
func (p *Page) get(t *sched.Task) bool {
	t.Touch(&p.refsObj, sched.Adds)
	for {
		n := p.refs.Load()
		if n == 0 {
			return false
		}
		if p.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// unused says that nobody but the mapping has a reference.
func (p *Page) unused(t *sched.Task) bool {
	t.Touch(&p.refsObj, sched.Reads)
	return p.refs.Load() == 1
}

// take takes the mapping's reference away, if it is the only one.
func (p *Page) take(t *sched.Task) bool {
	t.Touch(&p.refsObj, sched.Writes)
	return p.refs.CompareAndSwap(1, 0)
}

// Put gives a reference back.
func (p *Page) Put(t *sched.Task) {
	t.Touch(&p.refsObj, sched.Adds)
	if n := p.refs.Add(-1); n > 0 {
		return
	} else if n < 0 {
		panic(fmt.Sprintf("pagecache: page %d has %d references", p.index, n))
	}
	p.free(t)
}

func (p *Page) free(t *sched.Task) {
	if f := p.flags.Load(); f&(flagDirty|flagWriteback) != 0 || p.m.Load() != nil {
		panic(fmt.Sprintf("pagecache: free page %d with flags %#x, mapping %p", p.index, f, p.m.Load()))
	}
	p.cache.put(t, p)
}

// UnlockPut is Unlock and Put.
func (p *Page) UnlockPut(t *sched.Task) {
	p.Unlock(t)
	p.Put(t)
}

// WaitWriteback waits until the device no longer reads the page: a stable page may not change while
// it is checksummed and written. The page is locked or referenced. Models wait_on_page_writeback().
func (p *Page) WaitWriteback(t *sched.Task) {
	p.traced(t, "folio_wait_writeback")
	if !p.UnderWriteback(t) {
		return
	}
	p.queue().WaitFor(t, p, func() bool { return !p.Writeback() })
	t.Touch(&p.wbObj, sched.Reads)
}

// Event is for reports of who waits for the page: what is awaited is the end of its writeback.
func (p *Page) Event() (name, verb string) {
	return fmt.Sprintf("writeback of page %d", p.index), "end"
}

// waitTable is the wait queues that the pages of a cache share, as the kernel's page wait table.
type waitTable [1 << queueBits]lock.WaitQueue

const queueBits = 8

func (w *waitTable) init() {
	for i := range w {
		w[i].Init(StableClass)
	}
}

func (p *Page) queue() *lock.WaitQueue {
	h := uint64(p.id) * 0x9e3779b97f4a7c15
	return &p.cache.queues[h>>(64-queueBits)]
}

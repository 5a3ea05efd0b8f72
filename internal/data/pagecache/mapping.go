package pagecache

import (
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Owner is the file of a mapping, package inode's Inode. The cache calls it when it is about to
// drop a page.
type Owner interface {
	// Invalidate drops what the owner keeps for the bytes [from, to) of a page that is locked and
	// not under writeback: delayed allocation and its reservation. Models btrfs_invalidate_folio().
	Invalidate(t *sched.Task, from, to uint64)
	// Release drops what a page that is clean, locked and not under writeback may have left in
	// [from, to). It never sleeps. Models btrfs_release_folio().
	Release(t *sched.Task, from, to uint64)
	// String names the file in reports.
	String() string
}

const (
	chunkBits  = 6
	chunkPages = 1 << chunkBits
	topBits    = 9
	topChunks  = 1 << topBits
	groupBits  = 6
	groups     = topChunks >> groupBits
)

// tag is a mark of pages that can be searched for. Models XA_MARK_0 and its kin.
type tag int

const (
	tagDirty tag = iota
	tagWriteback
	tagPresent
	tags
)

// chunk is 64 consecutive page slots and their tags, one bit per page.
type chunk struct {
	base  uint64 // index of the first page
	group *group // nil of a mapping's first chunk
	tags  [tags]atomic.Uint64
	pages [chunkPages]atomic.Pointer[Page]
}

// group counts the tags of 64 chunks, so that a search passes over 16 MiB of file at a time. A page
// is counted before it has its tag and until it has it no more: where the count is 0, no task has
// come back from setting one.
type group [tags]atomic.Int32

// top is 512 chunks: 128 MiB of file.
type top struct {
	base   uint64
	groups [groups]group
	chunks [topChunks]atomic.Pointer[chunk]
}

// set marks page index of the chunk.
func (c *chunk) set(g tag, index uint64) {
	if c.group != nil {
		c.group[g].Add(1)
	}
	c.tags[g].Or(1 << (index & (chunkPages - 1)))
}

// clear takes the mark off page index of the chunk, which has it.
func (c *chunk) clear(g tag, index uint64) {
	c.tags[g].And(^(uint64(1) << (index & (chunkPages - 1))))
	if c.group != nil {
		c.group[g].Add(-1)
	}
}

// Mapping is the pages of one file. Models struct address_space.
//
// The table is read without a lock. It grows only: an emptied chunk stays until the mapping goes.
type Mapping struct {
	cache *Cache
	owner Owner

	first atomic.Pointer[chunk]  // pages 0..63: a small file needs no more
	tops  atomic.Pointer[[]*top] // ascending; replaced, never changed
	table sched.Obj              // both, to an explorer
	state sched.Obj              // flags, tags and counts of the pages, to an explorer

	pages     atomic.Int64
	dirty     atomic.Int64
	writeback atomic.Int64
	onDirty   atomic.Bool // on BDI.list

	// Cursor is where cyclic writeback goes on, in pages. Models mapping->writeback_index.
	Cursor atomic.Uint64

	mu     lock.Mutex // leaf; protects growth and err
	err    error      // the last error of a data write
	errors atomic.Uint64
}

// Init makes m an empty mapping of the cache. A mapping without an owner, nil, has no delayed
// allocation.
func (m *Mapping) Init(c *Cache, owner Owner) {
	m.cache, m.owner = c, owner
	m.mu.Init(classMapping)
}

// Owner is the file.
func (m *Mapping) Owner() Owner { return m.owner }

// Cache is the cache that m is part of.
func (m *Mapping) Cache() *Cache { return m.cache }

// Pages is the number of pages.
func (m *Mapping) Pages() int64 { return m.pages.Load() }

// DirtyPages and WritebackPages count pages, for a task that acts on the answer.
func (m *Mapping) DirtyPages(t *sched.Task) int64 {
	m.look(t)
	return m.dirty.Load()
}

// WritebackPages: see DirtyPages.
func (m *Mapping) WritebackPages(t *sched.Task) int64 {
	m.look(t)
	return m.writeback.Load()
}

// look and change are the scheduling points of page state: a change is several atomics, a flag of
// the page, a tag of its chunk and a count of its mapping, and another task may look between two of
// them.
func (m *Mapping) look(t *sched.Task) {
	if st := t.Stepper(); st != nil {
		point(t, st, sched.Op{Kind: sched.PointLoad, Class: StateClass.ID, Use: sched.Reads, Obj: &m.state, ID: &m.state})
	}
}

func (m *Mapping) change(t *sched.Task) {
	if st := t.Stepper(); st != nil {
		point(t, st, sched.Op{Kind: sched.PointAtomic, Class: StateClass.ID, Use: sched.Writes, Obj: &m.state, ID: &m.state})
	}
}

// changeTable is the scheduling point before a change of the table: a page has a slot and a bit,
// and another task may look between.
func (m *Mapping) changeTable(t *sched.Task) {
	if st := t.Stepper(); st != nil {
		point(t, st, sched.Op{Kind: sched.PointAtomic, Class: TableClass.ID, Use: sched.Writes, Obj: &m.table, ID: &m.table})
	}
}

//go:noinline
func point(t *sched.Task, st sched.Stepper, op sched.Op) {
	if st.Aborting() {
		return
	}
	t.Next = op
	st.Enter(t)
}

// chunk finds the chunk of page index, or nil.
func (m *Mapping) chunk(index uint64) *chunk {
	if index < chunkPages {
		return m.first.Load()
	}
	tops := m.tops.Load()
	if tops == nil {
		return nil
	}
	base := index >> (chunkBits + topBits)
	l := *tops
	var tp *top
	if base < uint64(len(l)) && l[base].base == base {
		tp = l[base] // no holes before it: the usual file
	} else {
		lo, hi := 0, len(l)
		for lo < hi {
			mid := (lo + hi) / 2
			if l[mid].base < base {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if lo == len(l) || l[lo].base != base {
			return nil
		}
		tp = l[lo]
	}
	return tp.chunks[index>>chunkBits&(topChunks-1)].Load()
}

// makeChunk is chunk, made when missing.
func (m *Mapping) makeChunk(t *sched.Task, index uint64) *chunk {
	if c := m.chunk(index); c != nil {
		return c
	}
	m.mu.Lock(t)
	defer m.mu.Unlock(t)
	if c := m.chunk(index); c != nil {
		return c
	}
	c := &chunk{base: index &^ (chunkPages - 1)}
	if index < chunkPages {
		m.first.Store(c)
		return c
	}
	base := index >> (chunkBits + topBits)
	var old []*top
	if l := m.tops.Load(); l != nil {
		old = *l
	}
	at := len(old)
	for i, tp := range old {
		if tp.base >= base {
			at = i
			break
		}
	}
	if at == len(old) || old[at].base != base {
		l := make([]*top, 0, len(old)+1)
		l = append(l, old[:at]...)
		l = append(l, &top{base: base})
		l = append(l, old[at:]...)
		m.tops.Store(&l)
		old = l
	}
	i := index >> chunkBits & (topChunks - 1)
	c.group = &old[at].groups[i>>groupBits]
	old[at].chunks[i].Store(c)
	return c
}

// Get finds a page and takes a reference; nil when there is none. It takes no lock.
func (m *Mapping) Get(t *sched.Task, index uint64) *Page {
	t.Spend(cost.Page, 1)
	t.Touch(&m.table, sched.Reads)
	c := m.chunk(index)
	if c == nil {
		return nil
	}
	slot := &c.pages[index&(chunkPages-1)]
	for {
		p := slot.Load()
		if p == nil {
			return nil
		}
		if !p.get(t) {
			t.Enter(sched.PointYield, 0, nil) // being freed; the slot is about to change
			continue
		}
		if slot.Load() == p {
			if p.flags.Load()&flagReferenced == 0 {
				p.flags.Or(flagReferenced)
			}
			return p
		}
		p.Put(t)
	}
}

// Lock finds a page and returns it locked and referenced (UnlockPut); nil when there is none.
// Models find_lock_page().
func (m *Mapping) Lock(t *sched.Task, index uint64) *Page {
	for {
		p := m.Get(t, index)
		if p == nil {
			return nil
		}
		p.Lock(t)
		if p.m.Load() == m {
			return p
		}
		// Truncated while we waited.
		p.UnlockPut(t)
	}
}

// TryLock is Lock that gives up when somebody else has the page locked: busy is true then.
func (m *Mapping) TryLock(t *sched.Task, index uint64) (p *Page, busy bool) {
	for {
		p := m.Get(t, index)
		if p == nil {
			return nil, false
		}
		if !p.TryLock(t) {
			p.Put(t)
			return nil, true
		}
		if p.m.Load() == m {
			return p, false
		}
		p.UnlockPut(t)
	}
}

// Grab finds or makes the page and returns it locked and referenced. A page it made is not
// Uptodate, and its bytes are stale: fill them before SetUptodate. Models find_or_create_page().
func (m *Mapping) Grab(t *sched.Task, index uint64) *Page {
	for {
		if p := m.Lock(t, index); p != nil {
			return p
		}
		if p := m.add(t, index); p != nil {
			return p
		}
	}
}

// TryGrab is Grab that gives up, with nil, when another task has the page locked. Models
// find_or_create_page() with FGP_NOWAIT.
func (m *Mapping) TryGrab(t *sched.Task, index uint64) *Page {
	for {
		p, busy := m.TryLock(t, index)
		if busy {
			return nil
		}
		if p == nil {
			p = m.add(t, index)
		}
		if p != nil {
			return p
		}
	}
}

// Add makes the page, if there is none, and returns it locked and referenced; nil when there is one
// already. Readahead uses it, which has no business with pages that are there.
func (m *Mapping) Add(t *sched.Task, index uint64) *Page {
	if p := m.Get(t, index); p != nil {
		p.Put(t)
		return nil
	}
	return m.add(t, index)
}

func (m *Mapping) add(t *sched.Task, index uint64) *Page {
	t.Spend(cost.PageAlloc, 1)
	p := m.cache.alloc(t)
	p.index = index
	// Nobody knows the page, so this waits for nothing but the eviction's try-lock.
	p.mu.LockNested(t, index)
	p.m.Store(m)
	p.refs.Store(2)
	c := m.makeChunk(t, index)
	i := index & (chunkPages - 1)
	if !c.pages[i].CompareAndSwap(nil, p) {
		p.m.Store(nil)
		p.Unlock(t)
		p.refs.Add(-1)
		p.Put(t)
		return nil
	}
	t.Touch(&m.table, sched.Writes)
	m.pages.Add(1) // before the page is present: NextPage relies on it
	m.changeTable(t)
	c.set(tagPresent, index)
	p.traced(t, "mm_filemap_add_to_page_cache")
	return p
}

// forget takes the page out of the table. The page is locked; the mapping's reference is the
// caller's now.
func (m *Mapping) forget(t *sched.Task, p *Page) {
	p.mu.AssertHeld(t)
	p.traced(t, "mm_filemap_delete_from_page_cache")
	c := m.chunk(p.index)
	i := p.index & (chunkPages - 1)
	// The slot is emptied last: from then on another task may put a page there, and its bit must
	// stay.
	m.pages.Add(-1)
	m.changeTable(t)
	c.clear(tagPresent, p.index)
	m.changeTable(t)
	if !c.pages[i].CompareAndSwap(p, nil) {
		panic(fmt.Sprintf("pagecache: page %d is not in its mapping", p.index))
	}
	p.m.Store(nil)
}

// SetDirty marks a locked, uptodate page dirty; it reports whether it was clean.
// Models __set_page_dirty_nobuffers().
func (m *Mapping) SetDirty(t *sched.Task, p *Page) bool {
	p.mu.AssertHeld(t)
	f := p.flags.Load()
	if f&flagDirty != 0 {
		return false
	}
	if f&flagUptodate == 0 || p.m.Load() != m {
		panic(fmt.Sprintf("pagecache: set dirty page %d with flags %#x, mapping %p, have %p", p.index, f, p.m.Load(), m))
	}
	m.change(t)
	p.flags.Or(flagDirty)
	m.change(t)
	m.chunk(p.index).set(tagDirty, p.index)
	m.change(t)
	m.dirty.Add(1)
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "writeback_dirty_folio", Val: int64(p.index)})
	}
	m.cache.BDI.dirtied(t, m)
	return true
}

// ClearDirty takes the dirty mark off a locked page and reports whether it was there: the caller
// writes the page or drops it. Models clear_page_dirty_for_io() and cancel_dirty_page().
func (m *Mapping) ClearDirty(t *sched.Task, p *Page) bool {
	p.mu.AssertHeld(t)
	if p.flags.Load()&flagDirty == 0 {
		return false
	}
	m.change(t)
	p.flags.And(^flagDirty)
	m.change(t)
	m.chunk(p.index).clear(tagDirty, p.index)
	m.change(t)
	m.dirty.Add(-1)
	m.cache.BDI.Dirty.Add(-1)
	m.cache.BDI.undirtied(t)
	return true
}

// StartWriteback says that the device is going to read the locked page. t owes its end
// (sched.WaitGraph) until it has submitted the page to the device or is about to call EndWriteback
// itself, and then calls Discharge. Models set_page_writeback().
func (m *Mapping) StartWriteback(t *sched.Task, p *Page) {
	p.mu.AssertHeld(t)
	m.change(t)
	if p.flags.Or(flagWriteback)&flagWriteback != 0 {
		panic(fmt.Sprintf("pagecache: page %d is under writeback already", p.index))
	}
	t.Touch(&p.wbObj, sched.Writes)
	p.traced(t, "folio_start_writeback")
	m.change(t)
	m.chunk(p.index).set(tagWriteback, p.index)
	m.change(t)
	m.writeback.Add(1)
	m.cache.BDI.Writeback.Add(1)
	t.Owe(p)
}

// EndWriteback says that the device has done with the page, and wakes who waits for it. It never
// sleeps. The page is not locked; writeback holds it in the mapping. Models end_page_writeback().
func (m *Mapping) EndWriteback(t *sched.Task, p *Page) {
	p.traced(t, "folio_end_writeback")
	q := p.queue()
	m.change(t)
	m.chunk(p.index).clear(tagWriteback, p.index)
	m.change(t)
	m.writeback.Add(-1)
	m.change(t)
	p.flags.And(^flagWriteback)
	t.Touch(&p.wbObj, sched.Writes)
	m.cache.BDI.written(t, 1)
	q.Wake(t)
}

// NextDirty is the first dirty page in [from, to), in pages.
func (m *Mapping) NextDirty(t *sched.Task, from, to uint64) (uint64, bool) {
	m.look(t)
	return m.nextTag(from, to, tagDirty)
}

// NextWriteback is the first page in [from, to) under writeback.
func (m *Mapping) NextWriteback(t *sched.Task, from, to uint64) (uint64, bool) {
	m.look(t)
	return m.nextTag(from, to, tagWriteback)
}

// NextPage is the first page in [from, to) that is in memory.
func (m *Mapping) NextPage(from, to uint64) (uint64, bool) {
	if m.pages.Load() == 0 {
		return 0, false
	}
	return m.nextTag(from, to, tagPresent)
}

// nextTag is the first page in [from, to) that has the tag.
func (m *Mapping) nextTag(from, to uint64, g tag) (uint64, bool) {
	if from < min(chunkPages, to) {
		if c := m.first.Load(); c != nil {
			if i, ok := c.next(from, g); ok {
				return i, i < to
			}
		}
	}
	l := m.tops.Load()
	if l == nil {
		return 0, false
	}
	for _, tp := range *l {
		base := tp.base << (chunkBits + topBits)
		if base >= to {
			break
		}
		i := uint64(0)
		if from > base {
			i = (from - base) >> chunkBits
		}
		for i < topChunks && base+i<<chunkBits < to {
			if tp.groups[i>>groupBits][g].Load() == 0 {
				i = (i>>groupBits + 1) << groupBits
				continue
			}
			if c := tp.chunks[i].Load(); c != nil {
				if j, ok := c.next(from, g); ok {
					return j, j < to
				}
			}
			i++
		}
	}
	return 0, false
}

// next is the first page of the chunk, from page from on, that has the tag.
func (c *chunk) next(from uint64, g tag) (uint64, bool) {
	w := c.tags[g].Load()
	if c.base < from {
		w &= ^uint64(0) << (from - c.base)
	}
	return c.base + uint64(bits.TrailingZeros64(w)), w != 0
}

// Describe is the state of a page in one letter, for who watches from outside: - not in memory, c
// clean, D dirty, W under writeback, B both, n not uptodate.
func (m *Mapping) Describe(index uint64) string {
	c := m.chunk(index)
	if c == nil {
		return "-"
	}
	p := c.pages[index&(chunkPages-1)].Load()
	switch {
	case p == nil:
		return "-"
	case p.Dirty() && p.Writeback():
		return "B"
	case p.Dirty():
		return "D"
	case p.Writeback():
		return "W"
	case p.Uptodate():
		return "c"
	}
	return "n"
}

// WaitWriteback waits for the writeback of the pages in [from, to) that are under writeback now.
// No page is locked. Models filemap_fdatawait_range().
func (m *Mapping) WaitWriteback(t *sched.Task, from, to uint64) {
	for from < to {
		i, ok := m.NextWriteback(t, from, to)
		if !ok {
			return
		}
		if p := m.Get(t, i); p != nil {
			p.WaitWriteback(t)
			p.Put(t)
		}
		from = i + 1
	}
}

// Truncate drops the pages of [from, to), in bytes; MaxFileEnd as to is the whole rest. Pages that
// are idle go in batches: the owner is told of each (Owner.Invalidate), then they leave the table
// together. What is locked or under writeback at that moment is waited for afterwards, page by
// page. Models the whole pages of truncate_inode_pages_range(), whose
// look at the parts of pages comes between the two halves.
//
// Preconditions:
//   - from and to are page-aligned: what becomes of a part of a page is the caller's plan.
func (m *Mapping) Truncate(t *sched.Task, from, to uint64) {
	m.TruncateIdle(t, from, to)
	m.TruncateBusy(t, from, to)
}

// batchPages is how many pages leave the table together. Models PAGEVEC_SIZE, which was 15 until
// 6.8.
const batchPages = 31

// TruncateIdle is the first half of Truncate: it drops the pages of [from, to) that are neither
// locked nor under writeback, without waiting for one.
//
// Preconditions: as Truncate.
func (m *Mapping) TruncateIdle(t *sched.Task, from, to uint64) {
	if (from|to)&(PageSize-1) != 0 {
		panic(fmt.Sprintf("pagecache: truncate of [%d, %d), want pages", from, to))
	}
	var batch [batchPages]*Page
	for i, last := from>>PageShift, to>>PageShift; i < last; {
		n := m.lockIdle(t, &batch, &i, last)
		for _, p := range batch[:n] {
			m.cleanUp(t, p)
		}
		for _, p := range batch[:n] {
			m.forget(t, p)
		}
		for _, p := range batch[:n] {
			p.Put(t) // the mapping's; this task has one more
			p.UnlockPut(t)
		}
		clear(batch[:n])
	}
}

// lockIdle locks the next idle pages of [*i, last) and moves *i beyond them. Models
// find_lock_entries().
func (m *Mapping) lockIdle(t *sched.Task, batch *[batchPages]*Page, i *uint64, last uint64) (n int) {
	for ; n < len(batch) && *i < last; *i++ {
		var ok bool
		if *i, ok = m.NextPage(*i, last); !ok {
			*i = last
			break
		}
		p, _ := m.TryLock(t, *i)
		switch {
		case p == nil:
		case p.UnderWriteback(t):
			p.UnlockPut(t)
		default:
			batch[n] = p
			n++
		}
	}
	return n
}

// TruncateBusy is the second half of Truncate: it drops the pages that are left in [from, to), each
// when its lock is free and its writeback has ended.
//
// Preconditions: as Truncate.
func (m *Mapping) TruncateBusy(t *sched.Task, from, to uint64) {
	for i, last := from>>PageShift, to>>PageShift; i < last; i++ {
		var ok bool
		if i, ok = m.NextPage(i, last); !ok {
			return
		}
		if p := m.Lock(t, i); p != nil {
			m.cleanUp(t, p)
			m.forget(t, p)
			p.Put(t) // the mapping's; this task has one more
			p.UnlockPut(t)
		}
	}
}

// ReleasePart tells the owner that a part of a page that stays is zeroed or gone. A page that is
// dirty keeps all that it has. Models the end of truncate_inode_partial_folio(), and what
// btrfs_invalidate_folio() does with a part.
//
// Preconditions: p is locked and not under writeback.
func (m *Mapping) ReleasePart(t *sched.Task, p *Page) {
	p.WaitWriteback(t)
	if m.owner != nil && !p.Dirty() {
		m.owner.Release(t, p.Offset(), p.Offset()+PageSize)
	}
}

// MaxFileEnd is an end beyond every page.
const MaxFileEnd = 1 << 63

// cleanUp ends what the owner keeps for a locked page that is about to go, and its dirty mark.
// Models truncate_cleanup_folio() with the wait of btrfs_invalidate_folio().
func (m *Mapping) cleanUp(t *sched.Task, p *Page) {
	p.WaitWriteback(t)
	if m.owner != nil {
		m.owner.Invalidate(t, p.Offset(), p.Offset()+PageSize)
	}
	m.ClearDirty(t, p)
}

// SetError records that writing the mapping's data failed. Models mapping_set_error().
func (m *Mapping) SetError(t *sched.Task, err error) {
	m.mu.Lock(t) // to the end: CheckError tells of it, and forgets it in the cache, or does neither
	defer m.mu.Unlock(t)
	m.err = err
	m.errors.Add(1)
	c := m.cache
	c.mu.Lock(t)
	if !slices.ContainsFunc(c.untold, func(e dataError) bool { return e.m == m }) {
		c.untold = append(c.untold, dataError{m, err})
	}
	c.mu.Unlock(t)
}

// ErrorSeq is a mark for CheckError: an open file takes it once.
func (m *Mapping) ErrorSeq() uint64 { return m.errors.Load() }

// CheckError returns the last error since the mark and moves the mark, so that each open file
// reports an error once. Models file_check_and_advance_wb_err().
func (m *Mapping) CheckError(t *sched.Task, since *atomic.Uint64) error {
	if m.errors.Load() == since.Load() {
		return nil
	}
	m.mu.Lock(t)
	defer m.mu.Unlock(t)
	if n := m.errors.Load(); since.Swap(n) == n {
		return nil // another task of the open file has told
	}
	m.cache.told(t, m)
	return m.err
}

// ErrorSince returns the last error since the mark and tells nobody: open files still report it.
// Models filemap_check_errors(), which has flags of its own for those that wait for writeback.
func (m *Mapping) ErrorSince(t *sched.Task, mark uint64) error {
	if m.errors.Load() == mark {
		return nil
	}
	m.mu.Lock(t)
	defer m.mu.Unlock(t)
	return m.err
}

// CheckEmpty panics unless the mapping holds no page: its inode goes.
func (m *Mapping) CheckEmpty() {
	if m.pages.Load() != 0 || m.dirty.Load() != 0 || m.writeback.Load() != 0 {
		panic(fmt.Sprintf("pagecache: mapping goes with %d pages, %d dirty, %d under writeback", m.pages.Load(), m.dirty.Load(), m.writeback.Load()))
	}
}

// Package pagecache keeps file contents in memory: pages with their own locks, per-file mappings
// that find them without a lock, stable pages under writeback, and the dirty limits that slow
// writers down.
//
// A page is found by Get (no lock, one reference) and used under its lock. A writer that finds one
// under writeback waits for it (WaitWriteback) before it changes a byte. Dirty pages are tagged in
// a bitmap per 64 pages, so that writeback finds them in index order without looking at the pages.
//
// Model: mm/filemap.c, mm/truncate.c and mm/page-writeback.c, as btrfs sees them. Differences: no
// large folios; a page is read by the task that wants it, which keeps the page lock until the bytes
// are there.
//
// Lock order:
//
//	page                     Page.mu, ascending index (buffered.preparePages, writeback, Truncate)
//	  stable_page            wait for writeback (WaitWriteback)
//	    mapping, bdi         leaves
//	      page_cache         Cache.mu, a leaf
//
// Invariants, all of them stable under the page lock:
//   - a page in a mapping has one reference for it;
//   - the dirty and writeback bitmaps of a mapping say what the flags of its pages say;
//   - BDI.Dirty and BDI.Writeback are the sums over the mappings.
package pagecache

import (
	"slices"
	"sync/atomic"

	"btrlab/internal/lock"
	"btrlab/internal/sched"
)

// slabPages is the number of pages allocated together: few objects for the garbage collector to
// visit.
const slabPages = 256

// fillPages is the number of pages whose bytes are allocated together, when the first of them is
// needed: a cache that lives for one short run does not pay for a whole slab.
const fillPages = 16

type slab struct {
	pages []Page
}

// Cache is the page cache of one file system.
type Cache struct {
	// BDI is the dirty accounting.
	BDI BDI

	queues waitTable

	limit atomic.Int64 // pages; 0 is none
	used  atomic.Int64 // pages that are not free
	again atomic.Int64 // used at which eviction is tried again after it found nothing

	mu    lock.Mutex // leaf; protects the fields below
	list  *Page      // free pages
	slabs []*slab
	blank *[PageSize]byte // what all pages share, when set
	hand  int             // next page the eviction looks at
	// untold are the data errors that no caller has been told of, first one first. A mapping may be
	// gone by now.
	untold []dataError
}

type dataError struct {
	m   *Mapping
	err error
}

// TakeError returns the first data error of any file that no caller has been told of, and forgets
// all of them. Models errseq_check_and_advance() of sb->s_wb_err in syncfs(). Difference: what
// fsync has reported is not reported again.
func (c *Cache) TakeError(t *sched.Task) error {
	c.mu.Lock(t)
	defer c.mu.Unlock(t)
	if len(c.untold) == 0 {
		return nil
	}
	err := c.untold[0].err
	c.untold = nil
	return err
}

// told forgets the errors of one file: a caller has heard of them.
func (c *Cache) told(t *sched.Task, m *Mapping) {
	c.mu.Lock(t)
	c.untold = slices.DeleteFunc(c.untold, func(e dataError) bool { return e.m == m })
	c.mu.Unlock(t)
}

// NewCache makes an empty cache that evicts clean pages when it holds more than limitBytes; 0 is no
// limit.
func NewCache(limitBytes int64, background, hard int64) *Cache {
	c := &Cache{}
	c.mu.Init(classCache)
	c.queues.init()
	c.SetLimit(limitBytes)
	c.BDI.init(background, hard)
	return c
}

// ShareData lets all pages have their bytes at p, which then mean nothing: an experiment that only
// counts and times needs no memory for data. For a cache that is still empty, under a runtime that
// runs one task at a time.
func (c *Cache) ShareData(p *[PageSize]byte) { c.blank = p }

// SetLimit changes the limit; pages beyond it go as new ones come.
func (c *Cache) SetLimit(limitBytes int64) { c.limit.Store((limitBytes + PageSize - 1) >> PageShift) }

// LimitPages is the limit in pages; 0 is none.
func (c *Cache) LimitPages() uint64 { return uint64(c.limit.Load()) }

// Bytes is the memory in use by pages.
func (c *Cache) Bytes() int64 { return c.used.Load() << PageShift }

// alloc gives a page with two references, the caller's and the mapping's, and stale bytes.
func (c *Cache) alloc(t *sched.Task) *Page {
	if lim := c.limit.Load(); lim > 0 {
		if used := c.used.Load(); used >= lim && used >= c.again.Load() {
			c.shrink(t, used)
		}
	}
	c.mu.Lock(t)
	if c.list == nil {
		c.grow(t)
	}
	p := c.list
	c.list = p.next
	if p.data == nil {
		c.fill(t, p)
	}
	c.mu.Unlock(t)
	c.used.Add(1)
	p.next = nil
	p.flags.Store(0)
	return p
}

// grow adds a slab of free pages. The caller holds c.mu.
func (c *Cache) grow(t *sched.Task) {
	c.mu.AssertHeld(t)
	s := &slab{pages: make([]Page, slabPages)}
	base := uint32(len(c.slabs) * slabPages)
	for i := slabPages - 1; i >= 0; i-- {
		p := &s.pages[i]
		p.mu.Init(PageClass)
		p.id = base + uint32(i)
		p.cache = c
		p.next = c.list
		c.list = p
	}
	c.slabs = append(c.slabs, s)
}

// fill gives p and those of its chunk their bytes. The caller holds c.mu.
func (c *Cache) fill(t *sched.Task, p *Page) {
	c.mu.AssertHeld(t)
	pages := c.slabs[p.id/slabPages].pages
	first := int(p.id % slabPages &^ (fillPages - 1))
	var data []byte // no pointers inside: never scanned
	if c.blank == nil {
		data = make([]byte, fillPages*PageSize)
	}
	for i := range fillPages {
		if q := &pages[first+i]; c.blank != nil {
			q.data = c.blank
		} else {
			q.data = (*[PageSize]byte)(data[i*PageSize:])
		}
	}
}

func (c *Cache) put(t *sched.Task, p *Page) {
	c.used.Add(-1)
	c.mu.Lock(t)
	p.next = c.list
	c.list = p
	c.mu.Unlock(t)
}

// shrink makes room for some pages. When every page is dirty or in use, the next look waits until
// there are some more: a look at all pages for each new one would take the writers' time.
func (c *Cache) shrink(t *sched.Task, used int64) {
	next := int64(0)
	if c.evict(t, 32) == 0 {
		next = used + max(used/16, 1)
	}
	c.again.Store(next)
}

// evict frees up to n clean pages that nobody uses or has used lately. It never sleeps on a page.
// Models shrink_inactive_list() as far as a second-chance clock can.
func (c *Cache) evict(t *sched.Task, n int) int {
	c.mu.Lock(t)
	slabs := c.slabs // grows only; the pages stay
	hand := c.hand
	c.mu.Unlock(t)
	total := len(slabs) * slabPages
	freed := 0
	for seen := 0; seen < 2*total && freed < n; seen++ {
		if hand >= total {
			hand = 0
		}
		p := &slabs[hand/slabPages].pages[hand%slabPages]
		hand++
		if !p.unused(t) {
			continue
		}
		f := p.flags.Load()
		if f&(flagDirty|flagWriteback) != 0 {
			continue
		}
		if f&flagReferenced != 0 {
			p.flags.And(^flagReferenced)
			continue
		}
		if c.drop(t, p) {
			freed++
		}
	}
	c.mu.Lock(t)
	c.hand = hand
	c.mu.Unlock(t)
	return freed
}

// drop frees p if it is clean and nobody but its mapping refers to it. Difference: Linux asks the
// file to release the page (Owner.Release), which clears bits that do no harm where they are.
func (c *Cache) drop(t *sched.Task, p *Page) bool {
	// Without a reference the index may not be looked at, and no other page is locked under this
	// one.
	if !p.mu.TryLock(t) {
		return false
	}
	m := p.m.Load()
	if m == nil || p.Dirty() || p.UnderWriteback(t) || !p.take(t) {
		p.Unlock(t)
		return false
	}
	m.forget(t, p)
	p.Unlock(t)
	c.put(t, p)
	return true
}

// DropClean frees every clean page that nobody uses, as drop_caches does; it returns how many.
func (c *Cache) DropClean(t *sched.Task) int {
	c.mu.Lock(t)
	slabs := c.slabs
	c.mu.Unlock(t)
	n := 0
	for _, s := range slabs {
		for i := range s.pages {
			p := &s.pages[i]
			if p.unused(t) && c.drop(t, p) {
				n++
			}
		}
	}
	return n
}

// Invalidate removes the pages of [from, to), in pages: each is locked, and its writeback waited
// for. It reports whether none is left: a dirty one stays. A task that has a reference goes on with
// a page that is no file's any more. Models invalidate_inode_pages2_range().
func (m *Mapping) Invalidate(t *sched.Task, from, to uint64) bool {
	all := true
	for ; from < to; from++ {
		var ok bool
		if from, ok = m.NextPage(from, to); !ok {
			break
		}
		p := m.Lock(t, from)
		if p == nil {
			continue
		}
		p.WaitWriteback(t)
		if p.Dirty() {
			all = false
		} else {
			if m.owner != nil {
				m.owner.Release(t, p.Offset(), p.Offset()+PageSize)
			}
			m.forget(t, p)
			p.Put(t) // the mapping's reference
		}
		p.UnlockPut(t)
	}
	return all
}

// DropClean frees the clean pages of [from, to), in pages, that nobody uses; it returns how many.
// Models mapping_try_invalidate().
func (m *Mapping) DropClean(t *sched.Task, from, to uint64) int {
	n := 0
	for ; from < to; from++ {
		var ok bool
		if from, ok = m.NextPage(from, to); !ok {
			break
		}
		// The page may be gone and be another file's by now: that it is dropped there is as well.
		if p := m.chunk(from).pages[from&(chunkPages-1)].Load(); p != nil && p.unused(t) && m.cache.drop(t, p) {
			n++
		}
	}
	return n
}

// Package writeback moves file data between the page cache and the device: it turns delayed
// allocation into ordered extents and bios, and flushes dirty data in the background.
//
// The way of a run of dirty pages, with the counter that each step moves:
//
//	writeRange       from WritePages, the flusher or FlushDelalloc
//	  lockRun        consecutive dirty pages locked; what lies beyond i_size zeroed or dropped
//	  writeRun       extent lock, for a look; then piece by piece:
//	    finish.Inline      a small file; done
//	    runDelalloc
//	      place.Next       in place, preallocated, or new space
//	                       extent lock of the piece
//	      AddOrdered       an ordered extent                        outstanding +1
//	      IOTree.Change    DELALLOC and the lock off in one step    delalloc -len, outstanding -1
//	      begin            page tags: dirty -> writeback            BDI Dirty -n, Writeback +n
//	                 pages unlocked but for the last: writeback keeps them as they are
//	    submit       checksums, bios of contiguous pages
//	                 the last page unlocked
//	endWrite         page writeback ends                            BDI Writeback -n
//	  finish.Complete      after the last bio of the ordered extent
//
// A piece without a place (no space, a tree error) loses its data: dropRange gives its reservations
// back and ends its writeback, and the error is recorded for fsync.
//
// Model: fs/btrfs/inode.c (run_delalloc_range, cow_file_range, run_delalloc_nocow), extent_io.c
// (extent_write_cache_pages). Difference: all pages of a run but the last are unlocked when the
// ordered extents exist, because writeback protects them from then on. Compression is compress.go.
//
// Lock order:
//
//	page                     lockRun, ascending; only the first is waited for
//	  stable_page            lockRun, of the first page
//	  extent                 writeRun
//	    transaction          finish.Inline
//	      tree_fs            place.Next
//
// Invariants:
//   - data in flight has a page that is dirty and locked or under writeback, an ordered extent, or
//     both, at every moment: a task that looks for the pages first and for the ordered extents next
//     misses nothing;
//   - a dirty page has DELALLOC on all its bytes.
package writeback

import (
	"math"
	"slices"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/compress"
	"btrlab/internal/data/finish"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/data/place"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

// Config has the parts that an Engine works with.
type Config struct {
	FS     *inode.FS
	Place  *place.Finder
	Finish *finish.Finisher
	// Store is the logical address space: *volumes.Volumes.
	Store blockdev.Submitter
	// Tight, if set, reports that metadata reserved for dirty data is short, which writeback gives
	// back: spaceinfo.Info.Tight.
	Tight func(t *sched.Task) bool
	// MaxInline is the largest file, in bytes, whose data goes into the tree; the default is 2048.
	MaxInline uint64
}

// DefaultMaxInline is the max_inline mount option's default.
const DefaultMaxInline = 2048

// Engine is the writeback of one file system.
type Engine struct {
	cfg    Config
	fs     *inode.FS
	closed atomic.Bool
	how    atomic.Pointer[compress.Method] // SetCompress
	bounce atomic.Bool                     // SetBounce
	lab    atomic.Pointer[func(t *sched.Task, r RunSteps)]

	// The flusher sleeps on flush until kicked or closed.
	flush   lock.WaitQueue
	kicked  atomic.Bool
	flusher *sched.Task

	mu   lock.Mutex // leaf; protects the free lists
	runs *run
	bios *wbio
}

var (
	classMu    = lockdep.NewClass("writeback")
	classFlush = lockdep.NewClass("flusher_idle")
)

// New starts the engine: its flusher is a task of t's runtime.
func New(t *sched.Task, cfg Config) *Engine {
	if cfg.MaxInline == 0 {
		cfg.MaxInline = DefaultMaxInline
	}
	e := &Engine{cfg: cfg, fs: cfg.FS}
	e.mu.Init(classMu)
	e.flush.Init(classFlush)
	e.fs.Cache.BDI.SetWake(e.Kick)
	e.Restart(t)
	return e
}

// SetBounce says whether the device is given copies of the pages: then a page under writeback may
// change, and writers do not wait for ordered extents, so that writeback must. No writeback is in
// flight.
func (e *Engine) SetBounce(on bool) { e.bounce.Store(on) }

// SetLab lets lab order what is done with each run of pages once it has its ordered extents; nil
// ends that. Pages under writeback may change then, as with SetBounce. No writeback is in flight.
func (e *Engine) SetLab(lab func(t *sched.Task, r RunSteps)) {
	if lab == nil {
		e.lab.Store(nil)
		return
	}
	e.lab.Store(&lab)
}

// changes reports whether a page under writeback may change.
func (e *Engine) changes() bool { return e.bounce.Load() || e.lab.Load() != nil }

// Restart starts the flusher of an engine that has none: a new one, or one that was closed.
func (e *Engine) Restart(t *sched.Task) {
	e.closed.Store(false)
	e.kicked.Store(false)
	e.flusher = t.Go("flusher", e.flushLoop)
}

// Close stops the flusher. Everything has been written back, or is dropped by the caller.
func (e *Engine) Close(t *sched.Task) {
	e.closed.Store(true)
	e.flush.Wake(t)
	t.Join(e.flusher)
}

// SetCompress sets how data that is written back from now on is compressed, where that saves a
// sector: of files with checksums that are not NOCOMPRESS and may not be overwritten in place, but
// for those whose property names another kind.
func (e *Engine) SetCompress(m compress.Method) { e.how.Store(&m) }

// CompressName is the kind of compression that SetCompress has set, zlib without one.
func (e *Engine) CompressName() string {
	if m := e.how.Load(); m != nil && m.Kind != format.CompressNone {
		return compress.Name(m.Kind)
	}
	return compress.Name(format.CompressZlib)
}

// Kick wakes the flusher. It never sleeps.
func (e *Engine) Kick(t *sched.Task) {
	if !e.kicked.Load() && e.kicked.CompareAndSwap(false, true) {
		e.flush.Wake(t)
	}
}

// tight reports whether the flusher goes on below the background limit. Only the real runtime kicks
// it for that (spaceinfo.Flushers.Preempt).
func (e *Engine) tight(t *sched.Task) bool {
	return t.Runtime() == nil && e.cfg.Tight != nil && e.cfg.Tight(t)
}

// flushLoop writes dirty pages while there are more than the background limit, or metadata is
// short. Models wb_workfn(), and btrfs_preempt_reclaim_metadata_space() with FLUSH_DELALLOC.
// Difference: no page is written because of its age alone; what stays below the limit is written by
// fsync, sync and close.
func (e *Engine) flushLoop(t *sched.Task) {
	t.Doing("flush")
	bdi := &e.fs.Cache.BDI
	t.Serve(bdi) // throttled writers wait for it
	defer t.Discharge(bdi)
	var list []*pagecache.Mapping
	for {
		e.flush.Wait(t, func() bool { return e.kicked.Load() || e.closed.Load() })
		if e.closed.Load() {
			return
		}
		e.kicked.Store(false)
		t.StartPlug()
		sync := false
		for (bdi.OverBackground() || sync || e.tight(t)) && !e.closed.Load() {
			list = bdi.DirtyMappings(t, list[:0])
			wrote := 0
			for _, m := range list {
				wrote += e.flushSome(t, m, bdi.ChunkPages(), sync)
				bdi.Measure(t)
			}
			clear(list)
			if wrote == 0 && (sync || !bdi.Waiting()) {
				break // all busy; the next writer that is over the limit kicks again
			}
			// A task throttled at the hard limit will not kick us again, so do not give up: wait
			// for the busy pages.
			sync = wrote == 0
		}
		t.FinishPlug()
	}
}

// flushSome writes up to n dirty pages of the file, from where it stopped last time, and returns
// how many.
func (e *Engine) flushSome(t *sched.Task, m *pagecache.Mapping, n int, sync bool) int {
	ip := inode.OfMapping(m)
	cur := m.Cursor.Load()
	// Errors are recorded on the mapping; fsync reports them.
	next, wrote, _ := e.writeRange(t, ip, cur, allPages, sync, n)
	if wrote < n && cur > 0 {
		var more int
		next, more, _ = e.writeRange(t, ip, 0, cur, sync, n-wrote)
		wrote += more
	}
	m.Cursor.Store(next)
	return wrote
}

// allPages is an end beyond every page index.
const allPages = pagecache.MaxFileEnd >> pagecache.PageShift

// WritePages writes back the dirty pages of the bytes [start, end). With sync it waits for pages
// that are locked or under writeback already and takes every page that was dirty at the call;
// without, it skips them. It starts the I/O and does not wait for its end. The error is of starting
// (no space, a tree error) and is also recorded on the mapping.
// Models btrfs_fdatawrite_range() (sync) and background writeback.
func (e *Engine) WritePages(t *sched.Task, ip *inode.Inode, start, end uint64, sync bool) error {
	if ip.Pages.DirtyPages(t) == 0 {
		return nil
	}
	end = min(end, pagecache.MaxFileEnd)
	_, _, err := e.writeRange(t, ip, start>>pagecache.PageShift, (end+pagecache.PageSize-1)>>pagecache.PageShift, sync, math.MaxInt)
	return err
}

// WaitOrderedRange writes back [start, end) and waits until every ordered extent in it is finished.
// No page and no range may be locked. The error is of starting, or of data of the file that failed
// meanwhile; fsync asks Pages.CheckError for what failed before, and still has this one to tell.
// Models btrfs_wait_ordered_range().
func (e *Engine) WaitOrderedRange(t *sched.Task, ip *inode.Inode, start, end uint64) error {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_wait_ordered_range", Start: start, Len: end - start})
	}
	mark := ip.Pages.ErrorSeq()
	err := e.FlushPages(t, ip, start, end)
	if err2 := ip.Ordered.WaitRange(t, start, end); err == nil {
		err = err2
	}
	if err == nil {
		// of an extent that could not be finished, and was gone when WaitRange looked
		err = ip.Pages.ErrorSince(t, mark)
	}
	return err
}

// FlushPages writes back the dirty pages of the bytes [start, end) and waits until the device has
// them; their ordered extents may not be finished. The error is of starting, or of data of the file
// that failed meanwhile. Models filemap_write_and_wait_range().
func (e *Engine) FlushPages(t *sched.Task, ip *inode.Inode, start, end uint64) error {
	mark := ip.Pages.ErrorSeq()
	err := e.WritePages(t, ip, start, end, true)
	e.waitPages(t, ip, start, end)
	if err == nil {
		err = ip.Pages.ErrorSince(t, mark)
	}
	return err
}

// waitPages waits for the pages that somebody else is writing back: between taking a page and
// making its ordered extent the flusher has data in hand that is neither dirty nor ordered. When it
// returns, the extents are there or finished.
// Models filemap_fdatawait_range() in btrfs_wait_ordered_range().
func (e *Engine) waitPages(t *sched.Task, ip *inode.Inode, start, end uint64) {
	if ip.Pages.WritebackPages(t) > 0 {
		ip.Pages.WaitWriteback(t, start>>pagecache.PageShift, (min(end, pagecache.MaxFileEnd)+pagecache.PageSize-1)>>pagecache.PageShift)
	}
}

// FlushDelalloc starts writeback of at least n bytes of dirty data of any inode and, with wait,
// waits for the ordered extents in flight. It is the space flusher's door. Models
// shrink_delalloc().
func (e *Engine) FlushDelalloc(t *sched.Task, n uint64, wait bool) {
	left := int(min(n/pagecache.PageSize+1, math.MaxInt32)) // n may be all ones: everything
	for _, m := range e.fs.Cache.BDI.DirtyMappings(t, nil) {
		if left <= 0 {
			break
		}
		left -= e.flushSome(t, m, left, false)
	}
	if wait {
		e.fs.Pool.WaitAll(t)
	}
}

// SyncRoot writes back every page of subvolume root's inodes that is dirty, waits for those that
// others write back, and for every ordered extent of the file system. The first error of starting
// is returned; those of the device are recorded for fsync. What was under writeback at the call has
// its ordered extents finished afterwards, and nothing of it is on its way to a place chosen
// before. Models btrfs_start_delalloc_snapshot() and btrfs_wait_ordered_extents().
func (e *Engine) SyncRoot(t *sched.Task, root uint64) error {
	err := e.syncPages(t, func(ip *inode.Inode) bool { return ip.Root.ID == root })
	e.fs.Pool.WaitAll(t)
	return err
}

// SyncAll writes back every page that is dirty, waits for those that others write back, and for
// every ordered extent; the first error is returned. Models sync_inodes_sb().
func (e *Engine) SyncAll(t *sched.Task) error {
	first := e.syncPages(t, func(*inode.Inode) bool { return true })
	e.fs.Pool.WaitAll(t)
	// The device's errors come with the end of a bio, and those of earlier writeback may never have
	// been told.
	if err := e.fs.Cache.TakeError(t); first == nil {
		first = err
	}
	return first
}

// syncPages writes back the dirty pages of the inodes that of accepts, and waits for those that
// others write back.
func (e *Engine) syncPages(t *sched.Task, of func(ip *inode.Inode) bool) error {
	var first error
	busy := e.fs.Cache.BDI.BusyMappings(t, nil)
	busy = slices.DeleteFunc(busy, func(m *pagecache.Mapping) bool { return !of(inode.OfMapping(m)) })
	for _, m := range busy {
		if err := e.WritePages(t, inode.OfMapping(m), 0, pagecache.MaxFileEnd, true); err != nil && first == nil {
			first = err
		}
	}
	for _, m := range busy {
		e.waitPages(t, inode.OfMapping(m), 0, pagecache.MaxFileEnd)
	}
	return first
}

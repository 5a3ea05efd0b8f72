// Package writeback moves file data between the page cache and the device: it turns delayed allocation into ordered extents and
// bios, finishes ordered extents into the trees, reads pages, and flushes dirty data in the background.
//
// The way of a dirty page:
//
//	WritePages     lock a run of dirty pages, clear dirty, set writeback
//	  run          lock the extent range; inline, NOCOW/PREALLOC in place, or COW into new extents
//	               ordered.Add per extent; DELALLOC off; range and pages unlocked
//	  submit       checksums, bios of contiguous pages
//	endBio         end page writeback; the last bio hands the ordered extent to the workers
//	finish         extent lock, join the transaction, file extent items, checksums, nbytes, sizes; waiters woken
//
// Model: fs/btrfs/inode.c (run_delalloc_range, cow_file_range, run_delalloc_nocow, btrfs_finish_ordered_io), extent_io.c
// (extent_write_cache_pages, readpage). Differences: pages are unlocked when their ordered extents exist, because writeback
// protects them from then on; no compression; an inode item is written at commit, not by finish.
//
// Lock order:
//
//	page (ascending)         WritePages
//	  extent range           run; finish without pages
//	    transaction          finish, inline extents
//	      tree nodes         CanNocow, finish
//	        leaves
package writeback

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/data/inode"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/workqueue"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/sched"
)

// Items is what writeback needs of the file items in the trees; *fstree.Store is one.
type Items interface {
	LookupFileExtent(t *sched.Task, r *ctree.Root, ino, off uint64) (start uint64, fe format.FileExtent, ok bool, err error)
	InsertFileExtent(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino, off uint64, fe *format.FileExtent) error
	DropExtents(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino, start, end uint64, opt fstree.DropOptions) (fstree.DropResult, error)
	MarkExtentWritten(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino, start, end uint64) error
	CanNocow(t *sched.Task, r *ctree.Root, ino, off, length uint64, nodatacow bool, nowait bool) (uint64, fstree.NocowExtent, error)
	InsertCsums(t *sched.Task, tr *ctree.Trans, bytenr uint64, sums []uint32) error
	LookupCsums(t *sched.Task, bytenr, length uint64, out []uint32, have []bool) error
}

// Extents is what writeback needs of the extent allocator; *extenttree.ExtentTree is one.
type Extents interface {
	ReserveExtent(t *sched.Task, numBytes, minBytes, hint uint64) (start, length uint64, err error)
	FreeReservedExtent(t *sched.Task, start, length uint64)
	AllocReservedFileExtent(t *sched.Task, tr *ctree.Trans, root, ino, offset, bytenr, numBytes uint64) error
}

// Store is the logical address space; *volumes.Volumes is one.
type Store interface {
	Submit(t *sched.Task, b *blockdev.Bio)
	Read(t *sched.Task, p []byte, logical uint64, mirror int) error
	Mirrors(logical uint64) int
}

// Handle is an open transaction; *transaction.Handle is one.
type Handle interface {
	Trans() *ctree.Trans
	End(t *sched.Task) error
	Abort(t *sched.Task, err error)
}

// Config is what an Engine works with.
type Config struct {
	FS      *inode.FS
	Items   Items
	Extents Extents
	Store   Store
	// Join joins the running transaction without a reservation: transaction.Manager.Join behind the interface.
	Join func(t *sched.Task) (Handle, error)
	// Workers is how many tasks finish ordered extents; at least 1.
	Workers int
	// MaxInline is the largest file, in bytes, whose data goes into the tree; the default is 2048.
	MaxInline uint64
}

// Engine is the writeback of one file system.
type Engine struct {
	cfg   Config
	fs    *inode.FS
	queue *workqueue.Queue

	mu lock.Mutex // leaf
}

// New starts the engine: its workers and its flusher are tasks of t's runtime.
func New(t *sched.Task, cfg Config) *Engine { panic("writeback: not there yet") }

// Close stops the tasks; everything has been written back.
func (e *Engine) Close(t *sched.Task) { panic("writeback: not there yet") }

// WritePages writes back the dirty pages of the bytes [start, end). With sync it waits for pages that are locked or under writeback
// already and takes every page that was dirty at the call; without, it skips them. It starts the I/O and does not wait for its end.
// The error is of starting (no space, a tree error) and is also recorded on the mapping.
// Models btrfs_fdatawrite_range() (sync) and background writeback.
func (e *Engine) WritePages(t *sched.Task, ip *inode.Inode, start, end uint64, sync bool) error {
	panic("writeback: not there yet")
}

// WaitOrderedRange writes back [start, end) and waits until every ordered extent in it is finished. No page and no range may be
// locked. The error is that of this range's data. Models btrfs_wait_ordered_range().
func (e *Engine) WaitOrderedRange(t *sched.Task, ip *inode.Inode, start, end uint64) error {
	panic("writeback: not there yet")
}

// FillPage makes a locked page uptodate from the disk: what a write of a part of a page does first. It keeps the page locked.
// errno.EAGAIN means that an ordered extent was in the way: the page is unlocked and put, the extent waited for, look the
// page up again. Models btrfs_read_folio() as prepare_uptodate_page() calls it.
func (e *Engine) FillPage(t *sched.Task, ip *inode.Inode, p *pagecache.Page) error {
	panic("writeback: not there yet")
}

// ReadState is the readahead state of an open file. The zero value is ready; races on it are harmless.
type ReadState struct{ next, ahead lock.Counter }

// ReadPage finds the page and returns it referenced and uptodate, not locked. want is how many pages the caller will read from here on,
// at least 1; sequential reads read ahead. The caller copies and calls Put. Models filemap_read()'s filemap_get_pages().
func (e *Engine) ReadPage(t *sched.Task, ip *inode.Inode, index uint64, want int, ra *ReadState) (*pagecache.Page, error) {
	panic("writeback: not there yet")
}

// CanNocow reports up to which byte of [start, end) a write goes in place; start means not at all. EAGAIN with nowait.
// It locks the extent range and waits for ordered extents in it (drop, wait, retry), unless nowait.
// Models btrfs_check_nocow_lock(); kernel-semantics 3.4.
func (e *Engine) CanNocow(t *sched.Task, ip *inode.Inode, start, end uint64, nowait bool) (uint64, error) {
	panic("writeback: not there yet")
}

// FlushDelalloc starts writeback of at least n bytes of dirty data of any inode and, with wait, waits for their ordered extents.
// It is the space flusher's door. Models shrink_delalloc().
func (e *Engine) FlushDelalloc(t *sched.Task, n uint64, wait bool) { panic("writeback: not there yet") }

// SyncAll writes back every dirty page and waits for every ordered extent; the first error is returned.
func (e *Engine) SyncAll(t *sched.Task) error { panic("writeback: not there yet") }

package park

import (
	"slices"
	"strings"

	"btrlab/internal/study/scenario"
)

// point is the place of an engine's step in Linux: the entry of a function, before which the step
// has not been done.
type point struct {
	op scenario.OpKind // of which operations
	// step is the engine's step, as a timeline prints it, up to where it may differ: the function
	// and what it does, "lockExtent: lock extent".
	step string
	// functions are their names in Linux from 5.10 to 7.3: the first that a kernel has is taken.
	functions []string
	// first says that of such steps of an operation, one after the other or not, the first alone
	// has the place.
	first bool
}

// Names that have moved. A page is found by one function for all kinds of callers; a byte range is
// locked by another.
var (
	findPage  = []string{"__filemap_get_folio_mpol", "__filemap_get_folio", "pagecache_get_page"}
	lockRange = []string{"btrfs_lock_extent_bits", "__lock_extent", "lock_extent", "lock_extent_bits"}
	lockInode = []string{"btrfs_inode_lock", "btrfs_file_write_iter"} // 5.10 has it in the other
)

// points is the map between the engine's steps and the functions of Linux. Steps that are not here
// are done with the one before. The first that fits is taken.
//
// Models fs/btrfs/file.c:btrfs_buffered_write, btrfs_sync_file, btrfs_fallocate,
// fs/btrfs/direct-io.c:btrfs_direct_write and fs/btrfs/inode.c:btrfs_setsize in what they call.
var points = []point{
	{scenario.OpWrite, "lockFile: queue", lockInode, true},
	{scenario.OpWrite, "planLocked: read", []string{"generic_write_checks"}, true},
	{scenario.OpWrite, "preparePages: lock", findPage, false},
	{scenario.OpWrite, "lockExtent: lock", []string{"lock_and_cleanup_extent_if_need", "btrfs_lock_extent_bits"}, false},
	{scenario.OpWrite, "iSizeWrite: read", []string{"btrfs_dirty_folio", "btrfs_dirty_pages"}, false},
	{scenario.OpWrite, "unlockFile: unlock", []string{"btrfs_inode_unlock"}, true},
	// A direct write: its steps are in no function that a timeline names.
	{scenario.OpWrite, "lock i_rwsem", lockInode, true},
	{scenario.OpWrite, "change i_dio_count", []string{"__iomap_dio_rw"}, true},
	{scenario.OpWrite, "lock extent", []string{"btrfs_dio_iomap_begin", "btrfs_lock_extent_bits"}, true},
	{scenario.OpWrite, "transfer to", []string{"btrfs_dio_submit_io", "btrfs_submit_direct"}, true},

	{scenario.OpTruncate, "Truncate: queue", []string{"do_truncate"}, true},
	{scenario.OpTruncate, "Truncate: read", []string{"btrfs_setattr"}, true},
	{scenario.OpTruncate, "truncateSetsize: change", []string{"truncate_setsize"}, true},
	{scenario.OpTruncate, "truncatePages: lock extent", []string{"btrfs_invalidate_folio", "btrfs_invalidatepage"}, false},
	{scenario.OpTruncate, "dioWait: wait", []string{"inode_dio_wait"}, true},
	{scenario.OpTruncate, "dropItems: read", []string{"btrfs_start_transaction"}, true},
	{scenario.OpTruncate, "dropItems: lock extent", lockRange, true},

	{scenario.OpPunch, "Fallocate: queue", []string{"btrfs_fallocate"}, true},
	{scenario.OpPunch, "lockRun: lock page", []string{"btrfs_wait_ordered_range"}, true},
	{scenario.OpPunch, "punchLockRange: trylock page", []string{"btrfs_punch_hole_lock_range"}, true},
	{scenario.OpFallocate, "Fallocate: queue", []string{"btrfs_fallocate"}, true},
	{scenario.OpFallocate, "lockRun: lock page", []string{"btrfs_wait_ordered_range"}, true},
	{scenario.OpFallocate, "lockGap: lock extent", lockRange, true},

	{scenario.OpFsync, "lock: queue", []string{"btrfs_inode_lock", "btrfs_sync_file"}, true},
	{scenario.OpFsync, "begin: lock extent", []string{"btrfs_log_dentry_safe"}, true},
	{scenario.OpFsync, "unlock: unlock", []string{"btrfs_inode_unlock"}, true},
	{scenario.OpFsync, "byLog: transfer", []string{"btrfs_sync_log"}, true},

	{scenario.OpRead, "read: read", []string{"btrfs_file_read_iter"}, true},
	{scenario.OpMap, "lock extent", []string{"extent_fiemap", "btrfs_fiemap"}, true},
	{scenario.OpMap, "unlock extent", []string{"btrfs_get_extent_fiemap", "fiemap_search_slot", "fiemap_process_hole", "emit_last_fiemap_cache"}, true},
	{scenario.OpFlush, "lockRun: lock page", []string{"extent_write_cache_pages", "btrfs_writepages"}, true},
	{scenario.OpFlush, "findDelalloc: lock extent", []string{"find_lock_delalloc_range"}, true},
	{scenario.OpFlush, "runDelalloc: lock extent", []string{"btrfs_run_delalloc_range"}, true},
}

// Sleepers are functions that a NOWAIT request must not come to: each may sleep.
var Sleepers = []string{"btrfs_start_transaction", "btrfs_start_delalloc_snapshot", "btrfs_wait_ordered_extents"}

// find is the point of an engine's step and the function that a kernel has there, of those that has
// says are there; "" is none.
func find(kind scenario.OpKind, step string, has func(function string) bool) (p *point, function string) {
	for i := range points {
		if p = &points[i]; p.op != kind || !strings.HasPrefix(step, p.step) {
			continue
		}
		for _, f := range p.functions {
			if has(f) {
				return p, f
			}
		}
		return p, ""
	}
	return nil, ""
}

// after is the next point of the same operation that a kernel has; its place is "" if there is
// none.
func after(p *point, has func(function string) bool) anchor {
	for i := slices.IndexFunc(points, func(q point) bool { return q.op == p.op && q.step == p.step }) + 1; i < len(points) && points[i].op == p.op; i++ {
		for _, f := range points[i].functions {
			if has(f) {
				return anchor{place: f, names: points[i].functions}
			}
		}
	}
	return anchor{}
}

// Functions are all functions of the map.
func Functions() []string {
	var list []string
	for _, p := range points {
		list = append(list, p.functions...)
	}
	list = append(list, Sleepers...)
	slices.Sort(list)
	return slices.Compact(list)
}

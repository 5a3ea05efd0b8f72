package park

import (
	"slices"
	"strings"

	"btrlab/internal/study/scenario"
)

// point is the place of an engine's step in Linux: the entry of a function, before which the step
// has not been done.
type point struct {
	ops []scenario.OpKind // of which operations; none is all
	// step is the engine's step, as a timeline prints it, up to where it may differ: the function
	// and what it does, "lockExtent: lock extent".
	step string
	// functions are their names in Linux from 5.10 to 7.3: the first that a kernel has is taken.
	functions []string
}

var (
	writes = []scenario.OpKind{scenario.OpWrite}
	setize = []scenario.OpKind{scenario.OpTruncate}
	ranges = []scenario.OpKind{scenario.OpPunch, scenario.OpFallocate}
	fsyncs = []scenario.OpKind{scenario.OpFsync}
	reads  = []scenario.OpKind{scenario.OpRead}
	flush  = []scenario.OpKind{scenario.OpFlush}
)

// Names that have moved. A page is found by one function for all kinds of callers; a byte range is
// locked by another. Until 6.11 pages were folios of one page, and had their old names until 5.16.
var (
	findPage  = []string{"__filemap_get_folio_mpol", "__filemap_get_folio", "pagecache_get_page"}
	lockRange = []string{"btrfs_lock_extent_bits", "__lock_extent", "lock_extent", "lock_extent_bits"}
	lockInode = []string{"btrfs_inode_lock", "btrfs_file_write_iter"} // 5.10 has it inside the other
)

// points is the map between the engine's steps and the functions of Linux. Steps that are not here
// are done with the one before. The first that fits is taken.
//
// Models fs/btrfs/file.c:btrfs_buffered_write, btrfs_sync_file, btrfs_fallocate,
// fs/btrfs/direct-io.c:btrfs_direct_write and fs/btrfs/inode.c:btrfs_setsize in what they call.
var points = []point{
	{writes, "lockFile: queue", lockInode},
	{writes, "planLocked: read", []string{"generic_write_checks"}},
	{writes, "preparePages: lock", findPage},
	{writes, "lockExtent: lock", []string{"lock_and_cleanup_extent_if_need", "btrfs_lock_extent_bits"}},
	{writes, "iSizeWrite: read", []string{"btrfs_dirty_folio", "btrfs_dirty_pages"}},
	{writes, "unlockFile: unlock", []string{"btrfs_inode_unlock"}},

	{setize, "Truncate: queue", []string{"do_truncate"}},
	{setize, "Truncate: read", []string{"btrfs_setattr"}},
	{setize, "truncateSetsize: change", []string{"truncate_setsize"}},
	{setize, "truncateSetsize: lock extent", []string{"btrfs_invalidate_folio", "btrfs_invalidatepage"}},
	{setize, "dioWait: wait", []string{"inode_dio_wait"}},
	{setize, "zeroTail: lock page", []string{"btrfs_truncate_block"}},
	{setize, "dropItems: read", []string{"btrfs_start_transaction"}},
	{setize, "dropItems: lock extent", lockRange},

	{ranges, "Fallocate: queue", []string{"btrfs_fallocate"}},
	{ranges, "lockRun: lock page", []string{"btrfs_wait_ordered_range"}},
	{ranges, "punchLockRange: lock page", []string{"btrfs_punch_hole_lock_range"}},
	{ranges, "lockGap: lock extent", lockRange},

	{fsyncs, "lock: queue", []string{"btrfs_inode_lock", "btrfs_sync_file"}},
	{fsyncs, "begin: lock extent", []string{"btrfs_log_dentry_safe"}},
	{fsyncs, "unlock: unlock", []string{"btrfs_inode_unlock"}},
	{fsyncs, "byLog: transfer", []string{"btrfs_sync_log"}},

	{reads, "read: read", []string{"btrfs_file_read_iter"}},
	{flush, "lockRun: lock page", []string{"extent_write_cache_pages", "btrfs_writepages"}},
	{flush, "writeRun: lock extent", []string{"btrfs_run_delalloc_range"}},
}

// find is the function of Linux before an engine's step, of those that has says are there; "" is
// none.
func find(kind scenario.OpKind, step string, has func(function string) bool) string {
	for _, p := range points {
		if (p.ops == nil || slices.Contains(p.ops, kind)) && strings.HasPrefix(step, p.step) {
			for _, f := range p.functions {
				if has(f) {
					return f
				}
			}
			return ""
		}
	}
	return ""
}

// Functions are all functions of the map.
func Functions() []string {
	var list []string
	for _, p := range points {
		list = append(list, p.functions...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

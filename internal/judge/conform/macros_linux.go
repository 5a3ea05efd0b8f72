//go:build !portable

package conform

import "btrlab/internal/hostio"

// formerly are tracepoints that other kernels have, with those of the table that say the same.
//
// Sources: include/trace/events/writeback.h, "writeback_dirty_page" until 5.17;
// include/trace/events/btrfs.h, "__extent_writepage" until 6.11; fs/btrfs/locking.c of 5.10, where
// a read lock that had become blocking is unlocked by a function and with an event of its own.
var formerly = map[string]string{
	"writeback:writeback_dirty_page":        "writeback:writeback_dirty_folio",
	"btrfs:__extent_writepage":              "btrfs:extent_writepage",
	"btrfs:btrfs_sync_file_enter":           "btrfs:btrfs_sync_file", // since 7.3 at the latest
	"btrfs:btrfs_tree_read_unlock_blocking": "btrfs:btrfs_tree_read_unlock",
}

// renamed gives the records the names of the table.
func renamed(records []hostio.TraceRecord) []hostio.TraceRecord {
	for i := range records {
		if now := formerly[records[i].Name]; now != "" {
			records[i].Name = now
		}
	}
	return records
}

// withoutFormer leaves out of the missing tracepoints the former names, and those whose former name
// is there.
func withoutFormer(missing []string) (list []string) {
	lacks := map[string]bool{}
	for _, name := range missing {
		lacks[name] = true
	}
	has := map[string]bool{}
	for before, now := range formerly {
		if !lacks[before] {
			has[now] = true
		}
	}
	for _, name := range missing {
		if formerly[name] == "" && !has[name] {
			list = append(list, name)
		}
	}
	return list
}

// bits16 are the bits of io trees while they were macros.
//
// Source: fs/btrfs/extent-io-tree.h of 5.10 and of 6.1, "Bits for the extent state". 5.10 has
// DAMAGED (10) as well, and neither ADD_INODE_BYTES nor CLEAR_ALL_BITS.
var bits16 = []string{"DIRTY", "UPTODATE", "LOCKED", "NEW", "DELALLOC", "DEFRAG", "BOUNDARY", "NODATASUM", "CLEAR_META_RESV", "NEED_WAIT", "DAMAGED", "NORESERVE",
	"QGROUP_RESERVED", "CLEAR_DATA_RESV", "DELALLOC_NEW", "ADD_INODE_BYTES", "CLEAR_ALL_BITS"}

// enums510 are the enumerations of 5.10, whose modules have no type information.
//
// Sources: fs/btrfs/extent-io-tree.h (IO_TREE), fs/btrfs/ordered-data.h (ORDERED; numbers of bits),
// fs/btrfs/ctree.h, enum btrfs_flush_state.
var enums510 = map[string]int64{
	"IO_TREE_INODE_IO":       3,
	"BTRFS_ORDERED_NOCOW":    2,
	"BTRFS_ORDERED_PREALLOC": 4,
	"BTRFS_ORDERED_REGULAR":  8,
	"FLUSH_DELAYED_ITEMS_NR": 1, "FLUSH_DELAYED_ITEMS": 2, "FLUSH_DELAYED_REFS_NR": 3, "FLUSH_DELAYED_REFS": 4, "FLUSH_DELALLOC": 5, "FLUSH_DELALLOC_WAIT": 6,
	"ALLOC_CHUNK": 7, "ALLOC_CHUNK_FORCE": 8, "RUN_DELAYED_IPUTS": 9, "COMMIT_TRANS": 10,
}

// macros are the numbers that the type information of a kernel lacks, because they were macros; nil
// of a kernel whose header was not read.
func macros(release string) map[string]int64 {
	m := map[string]int64{}
	switch version(release) {
	case "5.10":
		for name, n := range enums510 {
			m[name] = n
		}
	case "6.1":
	default:
		return nil
	}
	for i, name := range bits16 {
		m["EXTENT_"+name] = 1 << i
	}
	return m
}

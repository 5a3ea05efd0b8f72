package conform

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"btrlab/internal/sched"
)

// Lane says which tasks made a step.
type Lane uint8

// The lanes.
const (
	Caller    Lane = iota // the task that does the operation
	Elsewhere             // workers, the end of I/O, the flusher
	lanes

	Second = lanes // of a Pair: the other task
)

func (l Lane) String() string { return [...]string{"task", "elsewhere", "second"}[l] }

// Group is a part of the file system, by which differences are counted.
type Group uint8

// The groups.
const (
	Bits Group = iota
	Ordered
	Space
	Locks
	Cow
	Refs
	Places
	Sync
	Inodes
	InodeLocks
	Sizes
	Pages
	Block
	Answers
	Groups
)

// abbreviation is the group in a table.
func (g Group) abbreviation() string {
	return [...]string{"bit", "ord", "spc", "lck", "cow", "ref", "plc", "syn", "ino", "ilk", "siz", "pag", "blk", "ans"}[g]
}

func (g Group) String() string {
	return [...]string{"extent bits", "ordered extents", "space", "tree locks", "cow", "delayed refs", "places", "sync", "inodes", "inode locks", "sizes", "pages", "block", "answers"}[g]
}

// Event is one step of an operation, without addresses.
type Event struct {
	Lane  Lane
	Group Group
	Name  string // of the tracepoint, without "btrfs_"
	About string // what it says
}

func (e Event) String() string { return strings.TrimSpace(e.Name + " " + e.About) }

// tracepoint is a tracepoint whose events are compared.
type tracepoint struct {
	name  string // "btrfs:btrfs_cow_block"
	group Group
	about func(e *sched.TraceEvent) string
}

// short is the name of the event without its system.
func short(name string) string {
	_, name, _ = strings.Cut(name, ":")
	return name
}

// tracepoints is what is compared.
var tracepoints = []tracepoint{
	{"btrfs:btrfs_set_extent_bit", Bits, bitsAbout},
	{"btrfs:btrfs_clear_extent_bit", Bits, bitsAbout},
	{"btrfs:btrfs_convert_extent_bit", Bits, bitsAbout},
	{"btrfs:btrfs_ordered_extent_add", Ordered, whatRange},
	{"btrfs:btrfs_ordered_extent_split", Ordered, whatRange},
	{"btrfs:btrfs_ordered_extent_start", Ordered, whatRange},
	{"btrfs:btrfs_finish_ordered_extent", Ordered, size},
	{"btrfs:btrfs_ordered_extent_mark_finished", Ordered, whatRange},
	{"btrfs:btrfs_ordered_extent_remove", Ordered, whatRange},
	{"btrfs:update_bytes_may_use", Space, change},
	{"btrfs:btrfs_space_reservation", Space, change},
	{"btrfs:btrfs_reserve_ticket", Space, func(e *sched.TraceEvent) string { return e.What + " " + amount(e.Len) }},
	{"btrfs:btrfs_flush_space", Space, what},
	{"btrfs:btrfs_inode_mod_outstanding_extents", Space, func(e *sched.TraceEvent) string { return fmt.Sprintf("%+d", e.Val) }},
	{"btrfs:btrfs_tree_lock", Locks, owner},
	{"btrfs:btrfs_tree_unlock", Locks, owner},
	{"btrfs:btrfs_tree_read_lock", Locks, owner},
	{"btrfs:btrfs_tree_read_unlock", Locks, owner},
	{"btrfs:btrfs_try_tree_read_lock", Locks, owner},
	{"btrfs:btrfs_cow_block", Cow, level},
	{"btrfs:add_delayed_ref_head", Refs, func(e *sched.TraceEvent) string { return e.What + " " + amount(e.Len) }},
	{"btrfs:add_delayed_tree_ref", Refs, func(e *sched.TraceEvent) string { return e.What + " " + level(e) }},
	{"btrfs:add_delayed_data_ref", Refs, dataRef},
	{"btrfs:run_delayed_tree_ref", Refs, func(e *sched.TraceEvent) string { return e.What + " " + level(e) }},
	{"btrfs:run_delayed_data_ref", Refs, dataRef},
	{"btrfs:btrfs_get_extent", Places, span},
	{"btrfs:btrfs_reserve_extent", Places, func(e *sched.TraceEvent) string { return e.What + " " + amount(e.Len) }},
	{"btrfs:btrfs_reserved_extent_alloc", Places, size},
	{"btrfs:btrfs_reserved_extent_free", Places, size},
	{"btrfs:btrfs_sync_file", Sync, nothing},
	{"btrfs:btrfs_sync_fs", Sync, nothing},
	{"btrfs:btrfs_transaction_commit", Sync, nothing},
	{"btrfs:btrfs_inode_new", Inodes, nothing},
	{"btrfs:btrfs_inode_request", Inodes, nothing},
	{"btrfs:btrfs_inode_evict", Inodes, nothing},
	{"btrfs:extent_writepage", Pages, page},
	{"writeback:writeback_dirty_folio", Pages, page},
	{"filemap:mm_filemap_add_to_page_cache", Pages, page},
	{"filemap:mm_filemap_delete_from_page_cache", Pages, page},
	{"block:block_bio_queue", Block, func(e *sched.TraceEvent) string { return e.What + " " + amount(e.Len) }},
	{answered, Answers, what},

	{functions + "inode_lock", InodeLocks, what},
	{functions + "inode_unlock", InodeLocks, what},
	{functions + "inode_lock_shared", InodeLocks, what},
	{functions + "inode_unlock_shared", InodeLocks, what},
	{functions + "inode_dio_wait", InodeLocks, nothing},
	{functions + "btrfs_drew_try_write_lock", InodeLocks, nothing},
	{functions + "btrfs_drew_write_lock", InodeLocks, nothing},
	{functions + "btrfs_drew_write_unlock", InodeLocks, nothing},
	{functions + "btrfs_drew_read_lock", InodeLocks, nothing},
	{functions + "btrfs_drew_read_unlock", InodeLocks, nothing},
	{functions + "i_size_write", Sizes, size},
	{functions + "btrfs_inode_safe_disk_i_size_write", Sizes, size},
	{functions + "btrfs_wait_ordered_range", Ordered, span},
	{functions + "folio_unlock", Pages, page},
	{functions + "folio_wait_writeback", Pages, page},
	{functions + "folio_start_writeback", Pages, page},
	{functions + "folio_end_writeback", Pages, page},
}

// answered is no tracepoint: both sides tell it of a call that may fail, after its last step.
const answered = "conform:answer"

// functions is the system of those rows that are no tracepoints but functions: a kernel shows their
// steps where events may be put at the entry of functions.
const functions = "btrlab:"

// isFunction reports whether a step is one of them.
func isFunction(e *Event) bool { return byStep(e.Name).function() }

func (tp *tracepoint) function() bool { return strings.HasPrefix(tp.name, functions) }

// byStep finds the row of Event.Name, or nil.
func byStep(name string) *tracepoint { return cmp.Or(byName[name], byName["btrfs_"+name]) }

// sights are the functions that show i_size, since each has the inode: a write to it, which is
// inline, shows at the next of them on its task. Of both sides it is put there.
var sights = map[string]bool{"inode_lock": true, "inode_unlock": true, "inode_lock_shared": true, "inode_unlock_shared": true, "inode_dio_wait": true,
	"btrfs_wait_ordered_range": true, "btrfs_inode_safe_disk_i_size_write": true,
	"folio_unlock": true, "folio_wait_writeback": true, "folio_start_writeback": true, "folio_end_writeback": true}

// byName finds the row of an event that either side reports.
var byName = func() map[string]*tracepoint {
	m := map[string]*tracepoint{}
	for i := range tracepoints {
		m[short(tracepoints[i].name)] = &tracepoints[i]
	}
	return m
}()

// Left is a tracepoint, or a part of one, that is not compared.
type Left struct{ Name, Why string }

// LeftOut is what is not compared.
func LeftOut() []Left { return leftOut }

var leftOut = []Left{
	{"btrfs_alloc_extent_state, btrfs_free_extent_state", "memory of the kernel's io trees; ours are arrays"},
	{"btrfs_work_queued, _sched, btrfs_all_work_done, btrfs_ordered_sched", "the kernel's work queues: how a worker gets its work is no step of the file system"},
	{"btrfs_ordered_extent_put, _lookup, _lookup_first, _lookup_range, _lookup_for_logging, _dec_test_pending", "references and looks; ours look under the same lock"},
	{"btrfs_find_free_extent, _have_block_group, _search_loop, btrfs_find_cluster, btrfs_setup_cluster, btrfs_reserve_extent_cluster",
		"how free space is searched: the engine has one search and no clusters; what is found is compared (btrfs_reserve_extent)"},
	{"btrfs_space_reservation of space_info", "repeats update_bytes_may_use, or the ticket that failed"},
	{"btrfs_set_extent_bit and _clear of other io trees (PINNED_EXTENTS, TRANS_DIRTY_PAGES, ROOT_DIRTY_LOG_PAGES, LOG_CSUM_RANGE, DEVICE_ALLOC_STATE, BTREE_INODE_IO)",
		"the engine keeps these sets in lists"},
	{"bits DEFRAG, DELALLOC_NEW, ADD_INODE_BYTES, NOWAIT", "the engine has no defrag, counts i_bytes at completion, and needs no flags for memory"},
	{"bit QGROUP_RESERVED", "quotas are off: Linux clears the bit all the same, the engine does not ask"},
	{"flag DIRECT of ordered extents, IO_DONE, COMPLETE, LOGGED", "the engine's extent does not know by which call it came; the others are its state, which the events' names say"},
	{"run_delayed_ref_head", "repeats the references that it runs"},
	{"btrfs_tree_read_lock and _unlock of a block that the thread then locks for writing at once",
		"Linux learns the level of a root so (btrfs_search_slot_get_root); a buffer's level never changes here, and the right lock is taken at once"},
	{"btrfs_sync_fs with wait=0", "the VFS calls it once before it waits; btrfs then only starts writeback of tree blocks"},
	{"update_bytes_pinned, update_bytes_zone_unusable", "the engine counts pinned bytes in the commit, and has no zones"},
	{"i_rwsem, i_size, i_dio_count, snapshot_lock, folio locks, stable pages and btrfs_wait_ordered_range, where functions have no events",
		"they have no tracepoint: a kernel without CONFIG_FPROBE_EVENTS, or one that is locked down, does not show them; the recorded run has them"},
	{"who locks a folio, begins direct I/O (i_dio_count) or tries for i_rwsem", "inline in Linux; that a folio is unlocked, and that direct I/O is waited for, is compared"},
	{"folio_unlock of a folio that has left its mapping", "its inode is no longer known"},
	{"i_mmap_lock, invalidate_lock", "the engine maps no files, and has no such locks"},
	{"i_size between two functions that show it", "a write to i_size is inline: of both sides it is seen at the next such function on its task"},
	{"btrfs_inode_evict of an inode that has links", "memory: Linux drops a closed file's inode when it likes"},
	{"writeback_dirty_folio of tree blocks", "the engine's tree blocks are no pages"},
	{"btrfs_qgroup_*, btrfs_raid_extent_*, raid56_*, btrfs_prelim_ref_*, btrfs_extent_map_shrinker_*", "quotas, RAID and memory are not in the table of operations"},
	{"writeback_*, balance_dirty_pages but for writeback_dirty_folio", "the flusher of the VFS: the engine models when it starts, not its queues"},
	{"block_* but for block_bio_queue", "what the block layer does with a bio is the device model's"},
}

// maskedBits are the bits that are not compared: see leftOut.
var maskedBits = map[string]bool{"DEFRAG": true, "DELALLOC_NEW": true, "ADD_INODE_BYTES": true, "NOWAIT": true,
	"QGROUP_RESERVED": true}

// abstract makes an Event of what a side reported; false leaves it out.
func abstract(lane Lane, e sched.TraceEvent) (Event, bool) {
	tp := byName[e.Name]
	if tp == nil {
		return Event{}, false
	}
	if tp.group == Bits {
		if e.What = masked(e.What); e.What == "" {
			return Event{}, false
		}
	}
	return Event{lane, tp.group, stepName(e.Name), tp.about(&e)}, true
}

// stepName is the name that a step has by that of its tracepoint.
func stepName(tracepoint string) string { return strings.TrimPrefix(tracepoint, "btrfs_") }

// bitOrder is the order in which bits are told, whatever their numbers are; others come last.
var bitOrder = []string{"LOCKED", "DIO_LOCKED", "FINISHING_ORDERED", "DELALLOC", "NORESERVE"}

// masked drops the bits that are not compared, and puts the others into one order. The two that
// give reservations back are DO_ACCOUNTING together, as in Linux.
func masked(bits string) string {
	var keep []string
	for _, b := range strings.Split(bits, "|") {
		if b == "CLEAR_ALL" {
			return "ALL"
		}
		if b != "" && !maskedBits[b] {
			keep = append(keep, b)
		}
	}
	place := func(b string) int {
		if i := slices.Index(bitOrder, b); i >= 0 {
			return i
		}
		return len(bitOrder)
	}
	slices.SortFunc(keep, func(a, b string) int { return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b)) })
	return strings.Replace(strings.Join(keep, "|"), "CLEAR_DATA_RESV|CLEAR_META_RESV", "DO_ACCOUNTING", 1)
}

func nothing(*sched.TraceEvent) string     { return "" }
func what(e *sched.TraceEvent) string      { return e.What }
func size(e *sched.TraceEvent) string      { return amount(e.Len) }
func page(e *sched.TraceEvent) string      { return fmt.Sprint("page ", e.Val) }
func bitsAbout(e *sched.TraceEvent) string { return e.What + " " + span(e) }
func whatRange(e *sched.TraceEvent) string { return strings.ToUpper(e.What) + " " + span(e) }
func level(e *sched.TraceEvent) string     { return fmt.Sprint(treeName(e.Root), " level ", e.Val) }
func owner(e *sched.TraceEvent) string     { return treeName(e.Root) }
func span(e *sched.TraceEvent) string {
	end := e.Start + e.Len
	if end < e.Start {
		end = ^uint64(0)
	}
	return fmt.Sprintf("[%s,%s)", amount(e.Start), amount(end))
}

func dataRef(e *sched.TraceEvent) string {
	return fmt.Sprintf("%s %s of %s at %s", e.What, amount(e.Len), treeName(e.Root), amount(e.Start))
}

func change(e *sched.TraceEvent) string {
	if e.Val < 0 {
		return e.What + " -" + amount(uint64(-e.Val))
	}
	return e.What + " +" + amount(uint64(e.Val))
}

// amount gives "4k", or "end" for what stands for the end of every file.
func amount(n uint64) string {
	switch {
	case n == 0:
		return "0"
	case n >= 1<<62-1<<20:
		return "end"
	case n%1024 == 0:
		return fmt.Sprint(n/1024, "k")
	}
	return fmt.Sprint(n)
}

// treeName names a tree, or says that a block has just been made.
func treeName(root uint64) string {
	names := map[uint64]string{0: "new", 1: "root", 2: "extent", 3: "chunk", 4: "dev", 5: "fs", 7: "csum", 9: "uuid", 10: "free-space", 11: "block-group"}
	const log, reloc = ^uint64(5), ^uint64(7)
	switch n, ok := names[root]; {
	case ok:
		return n
	case root == log:
		return "log"
	case root == reloc:
		return "reloc"
	case root == ^uint64(8):
		return "data-reloc"
	}
	return "subvolume"
}

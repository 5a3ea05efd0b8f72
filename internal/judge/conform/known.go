package conform

import (
	"regexp"
	"slices"
)

// Known is a difference that has a name: why the engine is as it is, and which rows may have the name.
// Which do is not for a pattern to say: each of them stands in the text of the expected differences.
type Known struct {
	Name string
	Why  string
	// Step matches both sides of a row, as far as there are.
	Step *regexp.Regexp
	// Marks are those of the rows; none is all.
	Marks []Mark
	// Ops matches the names of the operations; nil is all.
	Ops *regexp.Regexp
}

func (k *Known) covers(op *Op, r *Row) bool {
	if k.Ops != nil && !k.Ops.MatchString(op.Name) || len(k.Marks) > 0 && !slices.Contains(k.Marks, r.Mark) {
		return false
	}
	for _, e := range []*Event{r.Kernel, r.Engine} {
		if e != nil && !k.Step.MatchString(e.String()) {
			return false
		}
	}
	return true
}

// KnownRelease is the version of the kernel whose differences Differences names.
const KnownRelease = "6.18"

// Differences lists the differences that have a name.
func Differences() []Known { return known }

// proposal is the first name whose difference may cover a row, or "" of a row that none covers. A
// name holds only for the rows of the expected differences.
func proposal(op *Op, r *Row) string {
	for i := range known {
		if known[i].covers(op, r) {
			return known[i].Name
		}
	}
	return ""
}

// byDifference is the difference of a name, or nil.
func byDifference(name string) *Known {
	for i := range known {
		if known[i].Name == name {
			return &known[i]
		}
	}
	return nil
}

func step(s string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + s + `)`) }

// ops matches whole names.
func ops(s string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + s + `)$`) }

// commits are the operations that commit a transaction, and withWriteback those that write data
// back: their steps in the trees come with those of others.
const (
	commits       = `commit|sync-dirty|snapshot`
	withWriteback = `writeback.*|fsync-.*|write-fsync|sync-dirty|dwrite.*`
)

var known = []Known{
	{Name: "delayed-items", Step: step(`space_reservation delayed_(inode|item) `), Marks: []Mark{Missing},
		Why: "Linux puts off changes of inode items and of the index entries of directories (delayed-inode.c), and reserves for them. " +
			"The engine writes index entries at once, and inode items at the commit from the global reserve."},
	{Name: "delayed-refs-reserve", Step: step(`space_reservation ((local_)?delayed_refs_rsv|pinned) `), Marks: []Mark{Missing},
		Why: "Linux reserves for delayed references as they are queued. The engine sizes the global reserve by the queue instead."},
	{Name: "count-before-space", Step: step(`update_bytes_may_use METADATA \+`), Marks: []Mark{Order}, Ops: ops(`write-.*|dwrite.*`),
		Why: "The engine counts the outstanding extents before it reserves their metadata, so that a completion that gives surplus back meanwhile leaves theirs."},
	{Name: "exact-metadata", Step: step(`(update_bytes_may_use METADATA|space_reservation delalloc) `), Ops: ops(`write-again|write-nocow|.*-nocow|write-new-file`),
		Why: "The engine reserves what the counters of the inode ask for together. It knows that a NOCOW block stays in place, and then reserves no insert."},
	{Name: "reserve-goes-along", Step: step(`space_reservation delalloc |inode_mod_outstanding_extents -`), Marks: []Mark{Missing, Extra, Order, Count},
		Why: "A completion of the engine takes the inode's reservation along into its transaction, and counts the extent off, before the items. Linux lends the inode's reserve " +
			"to the handle and releases after them."},
	{Name: "metadata-promises", Step: step(`update_bytes_may_use METADATA `),
		Why: "Follows from delayed-items, delayed-refs-reserve and reserve-goes-along. Besides, the engine tops the global reserve up at the end of a handle, not in the commit alone."},
	{Name: "units", Step: step(`space_reservation transaction `),
		Why: "A handle of the engine reserves for the items that the engine changes, which are not the kernel's: see delayed-items. Changes of an inode alone (chmod) are a transaction here, " +
			"and truncate, punch and reflink reserve beside their handle."},
	{Name: "noreserve-with-delalloc", Step: step(`clear_extent_bit (LOCKED\|)?DELALLOC`), Marks: []Mark{Value},
		Why: "The engine clears NORESERVE together with DELALLOC, of which it says something. Linux leaves it until the range is written."},
	{Name: "page-release", Step: step(`clear_extent_bit (ANY|ALL) `), Marks: []Mark{Missing},
		Why: "When a page goes, Linux clears all bits that its range may have left. The engine's io tree has none left then."},
	{Name: "truncate-by-page", Step: step(`(set|clear)_extent_bit (LOCKED|ALL|ANY|DELALLOC)`), Ops: ops(`truncate-.*|punch.*|zero|unlink|rename-over`),
		Why: "Linux invalidates page by page, and clears the rest of the range's bits with each. The engine drops the pages, and ends with the range as a whole; " +
			"an unlinked file it truncates once more, with the same function."},
	{Name: "range-locked-once", Step: step(`(set|clear)_extent_bit LOCKED `), Marks: []Mark{Missing, Count, Order}, Ops: ops(withWriteback),
		Why: "Writeback of Linux locks a range to find what is delalloc, unlocks it, and locks each extent again once it has its place. The engine holds the range from the first to the last."},
	{Name: "one-change", Step: step(`clear_extent_bit LOCKED `), Marks: []Mark{Order}, Ops: ops(`write-new-file`),
		Why: "A batch of the engine sets delalloc and unlocks its range in one change of the tree, in which the range is merged with the one before. Linux merges them when it unlocks."},
	{Name: "full-fsync-waits", Step: step(`ordered_extent_start `), Marks: []Mark{Missing}, Ops: ops(`fsync-.*|write-fsync|sync-dirty`),
		Why: "An fsync of Linux that logs all of an inode (a new one, or one whose extent maps are gone) waits for its ordered extents, if they are still unfinished. " +
			"The engine logs from the ordered extents."},
	{Name: "fsync-locks-range", Step: step(`(set|clear)_extent_bit LOCKED \[0,end\)`), Marks: []Mark{Extra},
		Why: "The engine locks the extent range of the whole file while it logs, because what it logs are items and ordered extents. Linux logs extent maps, which have a lock of their own."},
	{Name: "place-in-hand", Step: step(`get_extent `), Marks: []Mark{Missing, Count},
		Why: "Linux asks for the extent map once more: to tell new delalloc bytes from old (DELALLOC_NEW), which the engine counts at completion, and for each bio of writeback, " +
			"where the engine has the place in hand."},
	{Name: "dirty-then-delalloc", Step: step(`writeback_dirty_folio `), Marks: []Mark{Order},
		Why: "The engine marks the pages dirty, then the range delalloc; Linux the other way round. Both hold the page locks meanwhile."},
	{Name: "csum-neighbours", Step: step(`tree_(read_)?(lock|unlock) csum`), Marks: []Mark{Extra, Count, Order},
		Why: "Before checksums extend an item, the engine looks where the next item begins, and searches again. Linux extends the item in the leaf that it has."},
	{Name: "nocow-remembered", Step: step(`tree_read_(lock|unlock) (fs|extent|csum)`), Ops: ops(`.*nocow|.*prealloc`),
		Why: "Whether an extent may be overwritten in place the engine asks at the write, once for each extent, and remembers it. Linux asks at writeback, and of a direct write each time."},
	{Name: "map-dropped-at-completion", Step: step(`tree_read_(lock|unlock) fs`), Marks: []Mark{Extra}, Ops: ops(`write-half-page-cold|read-.*|dread|fault`),
		Why: "A completion of the engine drops the extent maps of its range, so the next look goes to the tree. Linux keeps the map that the write has made."},
	{Name: "holes-looked-up", Step: step(`tree_read_(lock|unlock) fs|get_extent `), Marks: []Mark{Missing}, Ops: ops(`write-beyond|truncate-up`),
		Why: "A write beyond EOF and a truncate upwards look for the holes that they make (btrfs_cont_expand), though with NO_HOLES no item comes of it. The engine has NO_HOLES only."},
	{Name: "names-looked-up", Step: step(`tree_read_(lock|unlock) fs`), Ops: ops(`create|mkdir|rmdir|link|unlink|rename.*|symlink|chmod|setxattr`),
		Why: "Names and attributes are looked up by other searches: the engine has no dentry cache, and Linux searches the index entries that it puts off."},
	{Name: "extents-looked-up", Step: step(`tree_read_(lock|unlock) fs`), Ops: ops(`falloc.*|punch.*|zero|reflink|writeback-inline|dwrite-extending`),
		Why: "The engine searches for the first extent before it changes the range, and for inline data before it clones. Linux drops extents with one path."},
	{Name: "log-lookups", Step: step(`tree_read_(lock|unlock) (fs|log|csum)`), Ops: ops(`fsync-.*|write-fsync`),
		Why: "What fsync looks up: the engine logs the names of an inode by its references, all of them, and does not copy the items of whole leaves."},
	{Name: "items-one-by-one", Step: step(`tree_(lock|unlock) (fs|csum)`), Marks: []Mark{Count, Extra, Order, Missing},
		Why: "The engine drops a file extent and inserts the next with a search each, inserts checksums after the search for those before, and writes index entries at once. " +
			"Linux replaces in one path, and puts index entries off."},
	{Name: "log-items", Step: step(`tree_(lock|unlock) (log|subvolume)`),
		Why: "What is written into a log, and how often it is searched: the engine logs an inode's names with its items, and locks the log's blocks once more to seal them."},
	{Name: "flush-after-super", Step: step(`block_bio_queue F `), Marks: []Mark{Extra, Count},
		Why: "Linux writes the superblock with FUA. The engine's devices have no such flag, so a flush follows."},
	{Name: "commit-bios", Step: step(`block_bio_queue W `), Ops: ops(commits + `|fsync-.*|write-fsync`),
		Why: "The engine writes tree blocks that lie side by side with one bio; Linux one block at a time. Superblocks go out in another order: the primary last."},
	{Name: "refs-in-order", Step: step(`run_delayed_|reserved_extent_|tree_(read_)?(lock|unlock) extent|add_delayed_|cow_block |reserve_extent METADATA |tree_lock new`), Marks: []Mark{Order, Count}, Ops: ops(commits),
		Why: "A commit of Linux runs delayed references in several rounds, by its own order, and copies the blocks that come of them when it meets them. The engine runs rounds to a fixpoint, ascending by address. " +
			"The references and the copies are the same ones."},
	{Name: "free-space-looks", Step: step(`tree_read_(lock|unlock) free-space`), Marks: []Mark{Extra, Count}, Ops: ops(commits),
		Why: "Before a change of the free space tree, the engine reads the block group's item and finds the free extent with searches that lock for reading. Linux searches for what it will change."},
	{Name: "free-space-runs", Step: step(`tree_(lock|unlock) free-space`), Marks: []Mark{Missing, Count, Order}, Ops: ops(commits),
		Why: "The engine changes the free space tree once for each run of neighbours, and gives an item another key. Linux does it for each reference, and deletes an item and inserts another."},
	{Name: "extent-looked-up", Step: step(`tree_read_(lock|unlock) extent`), Marks: []Mark{Extra}, Ops: ops(commits),
		Why: "Whether references to an extent have items of their own, the engine asks with a search. Linux looks at the next item of the leaf that it has locked for the change."},
	{Name: "roots-looked-up", Step: step(`tree_(read_)?(lock|unlock) (root|subvolume|fs)`), Marks: []Mark{Missing, Extra, Count, Order}, Ops: ops(commits),
		Why: "Before it changes a root's item or enters a snapshot's name, the engine searches for it once more. Linux updates the item where the search ended."},
	{Name: "flush-states", Step: step(`flush_space `), Ops: ops(`enospc`),
		Why: "The engine flushes on the first task that waits, by its own list of states, and tries each twice. Linux has a worker for it and a list by kind of space."},
	{Name: "moment-of-inode", Step: step(`inode_(new|evict|request)`),
		Why: "Linux says so when the inode is in memory, before its items; and it reads a directory's parent or a snapshot's root at other times. The engine puts a new inode into its cache with the items in the tree."},
	{Name: "flusher-of-sync", Step: step(`sync_fs|extent_writepage |update_bytes_may_use DATA |reserve_extent DATA |inode_mod_|ordered_extent_|clear_extent_bit |set_extent_bit |block_bio_queue W `), Ops: ops(`sync-dirty`),
		Why: "syncfs of Linux hands dirty data to the flusher's worker and waits. The task that syncs writes it back here."},
	{Name: "read-window", Step: step(`(set|clear)_extent_bit LOCKED |block_bio_queue R |get_extent `), Ops: ops(`read-.*|dread|fault|write-half-page-cold`),
		Why: "How much is read ahead, and how much of a hole one look tells, differ; and a direct read of the engine unlocks at the end of its bio."},
	{Name: "allocate-under-lock", Step: step(`(set|clear)_extent_bit LOCKED |update_bytes_may_use DATA |reserve_extent DATA `), Ops: ops(`falloc.*|zero|reflink|write-again`),
		Why: "The order of lock and reservation: Linux reserves space for an allocation with the range locked; the engine before. And the surplus of a block that is dirty already goes back after the range is unlocked."},
	{Name: "inline-first", Step: step(`(set|clear)_extent_bit |update_bytes_may_use DATA `), Ops: ops(`writeback-inline`),
		Why: "The engine gives the reservation of an inline file back before the item is inserted, Linux after."},
	{Name: "direct-lock", Step: step(`(set|clear)_extent_bit (LOCKED\|)?(DIO_LOCKED|LOCKED)|get_extent `), Ops: ops(`dwrite.*`),
		Why: "A direct write of Linux takes the two locks of its range before it asks whether the range may be overwritten in place, and lets both go in one step."},
	{Name: "completions-in-turn", Step: step(`finish_ordered_extent |ordered_extent_|tree_|add_delayed_|cow_block |space_reservation |(set|clear)_extent_bit |reserve_extent METADATA `), Ops: ops(`writeback-many`),
		Why: "Eight bios end at once: in which order, and how the workers take turns, is the machine's."},
}

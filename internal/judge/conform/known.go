package conform

import (
	"regexp"
	"slices"
	"sync"
)

// Known is a difference that has a name: why the engine is as it is, and which rows may have the
// name. Which do is not for a pattern to say: each of them stands in the text of the expected
// differences.
type Known struct {
	Name string
	Why  string
	// Step matches both sides of a row, as far as there are.
	Step *regexp.Regexp
	// Marks are those of the rows; none is all.
	Marks []Mark
	// Ops matches the names of the operations; nil is all.
	Ops *regexp.Regexp
	// Since and Until are the first and the last version of Linux, of those recorded, that differs
	// so; "" is no bound.
	Since, Until string
}

// Of words the kernels of a difference: "" is all.
func (k *Known) Of() string {
	switch {
	case k.Since == "" && k.Until == "":
		return ""
	case k.Since == "":
		return "to " + k.Until
	case k.Until == "":
		return "from " + k.Since
	case k.Since == k.Until:
		return k.Since
	}
	return k.Since + " to " + k.Until
}

// covers reports whether the rows of an operation, of a version of Linux, may have the name.
func (k *Known) covers(version string, op *Op, r *Row) bool {
	if k.Since != "" && compareVersions(version, k.Since) < 0 || k.Until != "" && compareVersions(version, k.Until) > 0 {
		return false
	}
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
func Differences() []Known { return known() }

// proposal is the first name whose difference may cover a row, or "" of a row that none covers. A
// name holds only for the rows of the expected differences.
func proposal(version string, op *Op, r *Row) string {
	list := known()
	for i := range list {
		if list[i].covers(version, op, r) {
			return list[i].Name
		}
	}
	return ""
}

// byDifference is the difference of a name, or nil.
func byDifference(name string) *Known {
	list := known()
	for i := range list {
		if list[i].Name == name {
			return &list[i]
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
	withWriteback = `writeback.*|fsync-.*|write-fsync|write-dsync|sync-dirty|dwrite.*`
)

// known is made when it is asked for: its patterns take 1 MiB and 2 ms, and no other verb has any
// use for them.
var known = sync.OnceValue(func() []Known {
	return []Known{
		// Eras: how an older or a newer kernel differs from the one that policy modern models.
		{Name: "direct-with-checksums", Step: step(`.`), Ops: ops(`dwrite|dwrite-extending|dwrite-prealloc`), Until: "6.1",
			Why: "Linux wrote directly with checksums, until 968f19c5b1b7 (6.15, and its stable kernels) let such a write go through the cache, as policy modern does."},
		{Name: "pages-prepared-together", Step: step(`.`), Ops: ops(`write-new-file`), Until: "6.12",
			Why: "A buffered write locked all pages of a batch, reserved for them together and made them dirty together, until c87c299776e4 (6.13). Policy modern goes folio by folio."},
		{Name: "commit-not-log", Step: step(`.`), Ops: ops(`fsync-renamed|fsync-linked`), Until: "5.10",
			Why: "Where names of the inode have changed in the transaction (last_unlink_trans), fsync of 5.10 commits it. Later kernels log the names, and so does the engine."},
		{Name: "inode-item-first", Step: step(`cow_block fs|add_delayed_|tree_(lock|unlock) (new|fs)|reserve_extent METADATA|update_bytes_may_use METADATA -`), Ops: ops(`fsync-nocow`), Until: "5.10",
			Why: "Before it logs, fsync of 5.10 writes the delayed inode item into its tree (btrfs_commit_inode_delayed_inode), and copies the leaf for that. Later kernels log the inode from memory."},
		{Name: "names-logged-at-once", Step: step(`tree_(read_)?(lock|unlock) (log|new|fs)|update_bytes_may_use METADATA|reserve_extent METADATA`), Ops: ops(`link|rename|rename-over`), Until: "5.10",
			Why: "A new name, and one that is given up, 5.10 logs at once (btrfs_log_new_name), although the inode is in no log of this transaction. Later kernels do only where it is, and so does the engine."},
		{Name: "uptodate-bit", Step: step(`(set|clear)_extent_bit (DELALLOC|DELALLOC\|UPTODATE|UPTODATE|LOCKED|LOCKED\|DELALLOC\|DO_ACCOUNTING|DELALLOC\|DO_ACCOUNTING) `),
			Ops: ops(`write-.*|read-.*|fault|store|dwrite.*|truncate-into|punch-part|unlink|rename-over`), Until: "6.1",
			Why: "A range has a bit that says that its pages are up to date: in 5.10 set with DELALLOC and after a read, and cleared when the inode goes; in 6.1 for holes that are read. Later kernels ask the page."},
		{Name: "ordered-first", Step: step(`ordered_extent_add `), Marks: []Mark{Order}, Until: "6.1",
			Why: "An ordered extent was in its tree before the outstanding extent was counted. Later kernels, and the engine, count first."},
		{Name: "regular-unmarked", Step: step(`ordered_extent_`), Until: "5.10",
			Why: "In 5.10 the ordered extent of a buffered write has no type REGULAR."},
		{Name: "commit-for-space", Step: step(`.`), Ops: ops(`enospc`), Since: "6.1", Until: "6.1",
			Why: "Before it gives up for want of space, 6.1 commits the transaction, and the engine does not. 5.10 and 6.12 did not in this operation either."},
		{Name: "bio-by-worker", Step: step(`block_bio_queue W `), Ops: ops(withWriteback + `|enospc`), Until: "6.1",
			Why: "In 5.10 and 6.1 a worker computes the checksums of a bio of data and submits it. Later kernels do so on the task where the checksum is a fast one, and so does the engine."},
		{Name: "csums-reserved-always", Step: step(`(space_reservation delalloc|update_bytes_may_use METADATA) `), Marks: []Mark{Value}, Ops: ops(`dwrite-nosum.*|dwrite-nowait-prealloc|write-nocow`), Until: "5.10",
			Why: "5.10 reserves for checksums of files that have none as well. Later kernels and the engine do not."},
		{Name: "leaf-kept", Step: step(`tree_read_unlock fs`), Marks: []Mark{Order}, Ops: ops(`writeback-.*|fsync-nocow|dwrite.*`), Until: "5.10",
			Why: "5.10 keeps the leaf of a file extent locked while it asks whether the extent may be overwritten in place. Later kernels, and the engine, let it go first."},
		{Name: "nowait-data-reserved", Step: step(`update_bytes_may_use DATA `), Marks: []Mark{Missing}, Ops: ops(`dwrite-nowait.*`), Until: "5.10",
			Why: "5.10 reserves data space for a direct NOWAIT write that goes in place, and gives it back (btrfs_direct_IO()). Later kernels ask first; the policy of the era does not have it: see number 28 of 9.2."},
		{Name: "direct-read-lock", Step: step(`(set|clear)_extent_bit (LOCKED|DIO_LOCKED)`), Ops: ops(`dread.*`), Until: "6.12",
			Why: "A direct read locked its range with the bit of all others. DIO_LOCKED is newer."},
		{Name: "folio-cut-written", Step: step(`.`), Ops: ops(`truncate-dirty`), Since: "7.3",
			Why: "A large folio (7.2) that the new size cuts stays dirty, and the wait for ordered extents writes it: what lies beyond i_size gets an ordered extent that ends without a bio. " +
				"The engine has pages, and drops those."},
		{Name: "large-folio-at-once", Step: step(`.`), Ops: ops(`write-new-file|dwrite-extending|dwrite-prealloc`), Since: "7.3",
			Why: "A write into one large folio (7.2) is one batch, with one reservation and one i_size. The engine goes page by page."},
		{Name: "folio-made-writable", Step: step(`(set|clear)_extent_bit |update_bytes_may_use DATA `), Marks: []Mark{Value}, Ops: ops(`store`), Since: "7.3",
			Why: "A store makes all of a large folio (7.2) writable, and with that delalloc and dirty: one byte costs the 64 KiB of the file. The engine has pages."},
		{Name: "large-folios", Step: step(`folio_|writeback_dirty_folio |extent_writepage |block_bio_queue W |mm_filemap_|clear_extent_bit (ALL|ANY) |set_extent_bit LOCKED `), Since: "7.3",
			Why: "The 16 pages of the file are one large folio (7.2): its events have the index 0 and its range, and there is one where the engine has one for each page."},
		{Name: "commit-by-states", Step: step(`transaction_commit`), Marks: []Mark{Missing, Count}, Since: "7.3",
			Why: "7.3 tells of a commit six times, as often as a transaction changes its state. Older kernels and the engine tell of its start."},
		{Name: "finishing-bit", Step: step(`(set|clear)_extent_bit LOCKED(\|FINISHING_ORDERED)? `), Marks: []Mark{Value}, Until: "6.12",
			Why: "The range of an ordered extent that ends was locked by the bit LOCKED, without FINISHING_ORDERED beside it."},
		{Name: "delayed-items", Step: step(`space_reservation delayed_(inode|item) `), Marks: []Mark{Missing},
			Why: "Linux puts off changes of inode items and of the index entries of directories (delayed-inode.c), and reserves for them. " +
				"The engine writes index entries at once, and inode items at the commit from the global reserve."},
		{Name: "delayed-refs-reserve", Step: step(`space_reservation ((local_)?delayed_refs_rsv|pinned) `), Marks: []Mark{Missing},
			Why: "Linux reserves for delayed references as they are queued. The engine sizes the global reserve by the queue instead."},
		{Name: "metadata-promises", Step: step(`update_bytes_may_use METADATA |space_reservation delalloc -`),
			Why: "Follows from delayed-items and delayed-refs-reserve. Besides, the engine tops the global reserve up at the end of a handle, not in the commit alone."},
		{Name: "units", Step: step(`space_reservation transaction `),
			Why: "A handle of the engine reserves for the items that the engine changes, which are not the kernel's: see delayed-items. Changes of an inode alone (chmod) are a transaction here, " +
				"and truncate, punch and reflink reserve beside their handle."},
		{Name: "page-release", Step: step(`clear_extent_bit (ANY|ALL|LOCKED\|DELALLOC\|DO_ACCOUNTING) `), Until: "5.10",
			Why: "When a page goes, 5.10 clears the bits of its range by name, and then all that it may have left. Later kernels, and the engine, do it the other way round."},
		{Name: "items-lock-range", Step: step(`(set|clear)_extent_bit LOCKED `), Marks: []Mark{Missing, Order}, Ops: ops(`truncate-.*|rmdir|unlink|rename-over`), Until: "5.10",
			Why: "In 5.10 btrfs_truncate_inode_items() locks the extent range itself: also that of an inode that goes, and it lets the range go before the leaf. Later kernels, and the engine, lock it in btrfs_truncate()."},
		{Name: "range-locked-once", Step: step(`(set|clear)_extent_bit LOCKED `), Ops: ops(withWriteback), Until: "6.1",
			Why: "Until 6.1 writeback locks a range to find what is delalloc and keeps it locked until it has its ordered extents. Later kernels, and the engine, unlock it, and lock each extent again once it has its place."},
		{Name: "full-fsync-waits", Step: step(`ordered_extent_start |wait_ordered_range \[0,end\)`), Marks: []Mark{Missing}, Ops: ops(`fsync-.*|write-fsync|write-dsync|sync-dirty|dwrite-nosum-cached`),
			Why: "An fsync of Linux that logs all of an inode (a new one, one whose extent maps are gone, or a directory) waits for its ordered extents, if there are any and they are still unfinished. " +
				"The engine logs from the ordered extents. A direct write over dirty pages waits on both sides, if there is still something to wait for."},
		{Name: "fsync-locks-range", Step: step(`(set|clear)_extent_bit LOCKED \[0,end\)`), Marks: []Mark{Extra},
			Why: "The engine locks the extent range of the whole file while it logs, because what it logs are items and ordered extents. Linux logs extent maps, which have a lock of their own."},
		{Name: "place-in-hand", Step: step(`get_extent `), Marks: []Mark{Missing, Count},
			Why: "Linux asks for the extent map once more: to tell new delalloc bytes from old (DELALLOC_NEW), which the engine counts at completion, and for each bio of writeback, " +
				"where the engine has the place in hand."},
		{Name: "nowait-waits-for-trees", Step: step(`(try_)?tree_read_(lock|unlock) (fs|extent|csum)`), Marks: []Mark{Missing, Extra, Count}, Ops: ops(`dwrite-nowait.*|dread-nowait`),
			Why: "A direct NOWAIT request of Linux takes the locks of tree blocks with a wait when it looks for its extent or asks whether its blocks may be overwritten. " +
				"Policy modern tries them (NOWAIT_TRY_TREE) and says EAGAIN; those of the eras wait as well, but for the checksums of a read."},
		{Name: "nowait-read-waits", Step: step(`inode_lock_shared file`), Marks: []Mark{Missing}, Ops: ops(`dread-nowait`), Since: "6.12",
			Why: "A direct NOWAIT read of Linux takes i_rwsem shared, with a wait (btrfs_direct_read()). The engine tries it, which is not compared, and says EAGAIN."},
		{Name: "map-dropped-at-completion", Step: step(`tree_read_(lock|unlock) fs`), Marks: []Mark{Extra, Count}, Ops: ops(`write-half-page-cold|read-.*|dread|fault|dwrite(-nocow|-nosum.*)?`),
			Why: "A completion of the engine drops the extent maps of its range, so the next look goes to the tree. Linux keeps the map that the write has made."},
		{Name: "holes-looked-up", Step: step(`tree_read_(lock|unlock) fs|get_extent `), Marks: []Mark{Missing}, Ops: ops(`write-beyond|truncate-up`),
			Why: "A write beyond EOF and a truncate upwards look for the holes that they make (btrfs_cont_expand), though with NO_HOLES no item comes of it. The engine has NO_HOLES only."},
		{Name: "names-looked-up", Step: step(`tree_read_(lock|unlock) fs`), Ops: ops(`create|mkdir|rmdir|link|unlink|rename.*|symlink|chmod|setxattr`),
			Why: "Names and attributes are looked up by other searches: the engine has no dentry cache, and Linux searches the index entries that it puts off."},
		{Name: "extents-looked-up", Step: step(`tree_read_(lock|unlock) fs`), Ops: ops(`falloc.*|punch.*|zero|reflink|writeback-inline|dwrite-extending|dwrite-nosum.*`),
			Why: "The engine searches for the first extent before it changes the range, and for inline data before it clones. Linux drops extents with one path."},
		{Name: "log-lookups", Step: step(`tree_read_(lock|unlock) (fs|log|csum)`), Ops: ops(`fsync-.*|write-fsync|write-dsync`),
			Why: "What fsync looks up: the engine logs the names of an inode by its references, all of them, and does not copy the items of whole leaves."},
		{Name: "items-one-by-one", Step: step(`tree_(lock|unlock) (fs|csum)`), Marks: []Mark{Count, Extra, Order, Missing},
			Why: "The engine writes the index entries of directories at once, with a search each. Linux puts them off. In some runs of Linux, completions come later, or in another order."},
		{Name: "log-items", Step: step(`tree_(lock|unlock) (log|subvolume)`),
			Why: "What is written into a log, and how often it is searched: the engine logs an inode's names with its items, and locks the log's blocks once more to seal them."},
		{Name: "flush-after-super", Step: step(`block_bio_queue F `), Marks: []Mark{Extra, Count},
			Why: "Linux writes the superblock with FUA. The engine's devices have no such flag, so a flush follows."},
		{Name: "commit-bios", Step: step(`block_bio_queue W `), Ops: ops(commits + `|fsync-.*|write-fsync|write-dsync`),
			Why: "The engine writes tree blocks that lie side by side with one bio; Linux one block at a time."},
		{Name: "refs-in-order", Step: step(`run_delayed_|reserved_extent_|tree_(read_)?(lock|unlock) extent|add_delayed_|cow_block |reserve_extent METADATA |tree_lock new`), Marks: []Mark{Order, Count, Value, Missing}, Ops: ops(commits),
			Why: "A commit of Linux runs delayed references in several rounds, by its own order, and copies the blocks that come of them when it meets them. The engine runs rounds to a fixpoint, ascending by address. " +
				"The references and the copies are the same ones."},
		{Name: "free-space-looks", Step: step(`tree_read_(lock|unlock) free-space`), Ops: ops(commits),
			Why: "Before a change of the free space tree, the engine reads the block group's item and finds the free extent with searches that lock for reading. Linux searches for what it will change."},
		{Name: "free-space-runs", Step: step(`tree_(lock|unlock) free-space`), Marks: []Mark{Missing, Count, Order}, Ops: ops(commits),
			Why: "The engine changes the free space tree once for each run of neighbours, and gives an item another key. Linux does it for each reference, and deletes an item and inserts another."},
		{Name: "extent-looked-up", Step: step(`tree_read_(lock|unlock) extent`), Marks: []Mark{Extra}, Ops: ops(commits),
			Why: "Whether references to an extent have items of their own, the engine asks with a search. Linux looks at the next item of the leaf that it has locked for the change."},
		{Name: "roots-looked-up", Step: step(`tree_(read_)?(lock|unlock) (root|subvolume|fs|uuid)`), Marks: []Mark{Missing, Extra, Count, Order}, Ops: ops(commits),
			Why: "Before it changes a root's item or enters a snapshot's name, the engine searches for it once more. Linux updates the item where the search ended."},
		{Name: "leaf-copied-again", Step: step(`cow_block fs |add_delayed_tree_ref .* fs `), Marks: []Mark{Missing, Count}, Ops: ops(`sync-dirty`),
			Why: "In some runs of sync Linux copies the leaf of the file's items once more in the commit, as it does with a block that has been written since it was copied. That the first pass of sync wrote it is a guess."},
		{Name: "flush-states", Step: step(`flush_space |reserve_ticket |tree_read_(lock|unlock) fs`), Ops: ops(`enospc`),
			Why: "The engine flushes on the first task that waits, by its own list of states, and tries each twice. Linux has a worker for it and a list by kind of space."},
		{Name: "moment-of-inode", Step: step(`inode_(new|evict|request)`),
			Why: "Linux says so when the inode is in memory, before its items; and it reads a directory's parent or a snapshot's root at other times. The engine puts a new inode into its cache with the items in the tree."},
		{Name: "flusher-of-sync", Step: step(`sync_fs|extent_writepage |folio_|space_reservation delalloc |update_bytes_may_use DATA |reserve_extent DATA |inode_mod_|ordered_extent_|clear_extent_bit |set_extent_bit |block_bio_queue W `), Ops: ops(`sync-dirty`),
			Why: "syncfs of Linux hands dirty data to the flusher's worker and waits. The task that syncs writes it back here."},
		{Name: "store-is-write", Step: step(`inode_(un)?lock file|folio_unlock `), Ops: ops(`store`),
			Why: "The engine maps no files, and does a store as a buffered write of a byte, with i_rwsem. A fault of Linux takes none; it unlocks the folio that it has found, and locks it again to make it writable (btrfs_page_mkwrite())."},
		{Name: "read-window", Step: step(`(set|clear)_extent_bit LOCKED |block_bio_queue R |get_extent |mm_filemap_add_to_page_cache `), Ops: ops(`read-.*|dread.*|fault|write-half-page-cold`),
			Why: "How much is read ahead, and how much of a hole one look tells, differ; and a direct read of the engine unlocks at the end of its bio."},
		{Name: "allocate-under-lock", Step: step(`(set|clear)_extent_bit LOCKED |update_bytes_may_use DATA |reserve_extent DATA `), Ops: ops(`falloc.*|zero|reflink|write-again`),
			Why: "The order of lock and reservation: Linux reserves space for an allocation with the range locked; the engine before. And the surplus of a block that is dirty already goes back after the range is unlocked."},
		{Name: "inline-first", Step: step(`(set|clear)_extent_bit |update_bytes_may_use DATA |inode_mod_outstanding_extents -|space_reservation delalloc -`), Ops: ops(`writeback-inline`),
			Why: "The engine gives the reservation of an inline file back before the item is inserted, Linux after."},
		{Name: "direct-lock", Step: step(`(set|clear)_extent_bit (LOCKED\|)?(DIO_LOCKED|LOCKED)|get_extent |update_bytes_may_use METADATA \+|space_reservation delalloc \+|inode_mod_outstanding_extents `), Ops: ops(`dwrite.*`),
			Why: "A direct write of Linux takes the two locks of its range before it asks whether the range may be overwritten in place and reserves metadata, and lets both go in one step. The engine reserves before it locks: a flush for space may wait for what needs the range."},
		{Name: "looks-under-lock", Step: step(`inode_(un)?lock_shared dir`), Marks: []Mark{Extra}, Ops: ops(`create|mkdir|rmdir|link|unlink|rename.*|symlink|chmod|setxattr|fsync-.*|snapshot`),
			Why: "The engine has no dentry cache: it looks a name up in the directory, with i_rwsem shared. Linux has the name in memory."},
		{Name: "directory-opened", Step: step(`inode_(un)?lock dir`), Marks: []Mark{Missing, Count}, Ops: ops(`fsync-dir|snapshot`),
			Why: "As Linux opens a directory, it takes i_rwsem for the number of its last index entry. The engine opens none for this."},
		{Name: "directory-held", Step: step(`inode_unlock dir`), Marks: []Mark{Order}, Ops: ops(`rmdir|unlink|rename-over|snapshot`),
			Why: "When the last name of an inode goes, Linux drops its items before the directory is unlocked, and the engine after. Of a snapshot the engine unlocks the directory before the lock of snapshots ends."},
		{Name: "direct-exclusive", Step: step(`inode_(un)?lock(_shared)? file`), Ops: ops(`dwrite.*`),
			Why: "Inside EOF, a direct write shares i_rwsem if the inode is known to have no capabilities. The engine knows it from the first look on. Linux would remember it in S_NOSEC, but only where the superblock has SB_NOSEC, " +
				"and that of btrfs has not in 6.18: it takes i_rwsem exclusively each time."},
		{Name: "nocow-not-asked", Step: step(`drew_(try_)?write_(un)?lock`), Marks: []Mark{Extra}, Ops: ops(`write-nocow|write-nowait-nocow|writeback-nocow|dwrite-nocow|dwrite-nosum.*|dwrite-nowait.*|fsync-nocow`),
			Why: "The engine keeps snapshots out from the question whether a block may be overwritten in place until it is dirty or written. Linux takes the snapshot lock for that in a buffered write that finds no space, and never in a direct one."},
		{Name: "grow-against-snapshot", Step: step(`drew_write_(un)?lock`), Marks: []Mark{Missing}, Ops: ops(`truncate-up`),
			Why: "Linux lets no snapshot begin while it makes a file longer (btrfs_setsize). The engine does not ask."},
		{Name: "disk-size-each-time", Step: step(`inode_safe_disk_i_size_write `), Ops: ops(withWriteback + `|truncate-.*|punch.*|zero|falloc.*|reflink`),
			Why: "When the size on disk is set: Linux does so at each completion, before the inode's item, and of a direct write as well. The engine does where the size may have changed."},
		{Name: "size-after-items", Step: step(`(i_size_write|inode_safe_disk_i_size_write) `), Marks: []Mark{Order}, Ops: ops(`falloc.*|reflink`),
			Why: "The engine sets the new size after the handle of the last extent, Linux with it, before the range is unlocked."},
		{Name: "writeback-ends-first", Step: step(`folio_end_writeback `), Marks: []Mark{Order, Value, Count, Missing, Extra}, Ops: ops(withWriteback),
			Why: "At the end of a bio the engine ends the writeback of its pages, and then tells the ordered extent. Linux tells it first."},
		{Name: "stable-asked", Step: step(`folio_wait_writeback `), Marks: []Mark{Extra, Count}, Ops: ops(`write-.*|` + withWriteback + `|truncate-into|punch-part|zero`),
			Why: "The engine asks each page that it is going to change or to write whether the device still reads it. Linux does not ask one that it has just put into the cache, and looks at the bit, inline, before it writes one."},
		{Name: "read-ends-on-task", Step: step(`folio_unlock `), Ops: ops(`read-.*|fault|write-half-page-cold`),
			Why: "The end of the bio unlocks the pages of a read in Linux. The engine's task does, after it has looked at the checksums; and it reads more ahead: see read-window."},
		{Name: "waits-by-blocks", Step: step(`wait_ordered_range `), Marks: []Mark{Value, Extra, Count}, Ops: ops(`punch-part|zero`),
			Why: "The engine waits for the ordered extents of whole blocks, and once more before it zeroes some; Linux hands on the bytes, and rounds when it waits."},
		{Name: "reflink-waits", Step: step(`wait_ordered_range |inode_(un)?lock file`), Ops: ops(`reflink`),
			Why: "The engine takes the capabilities of the destination away under a lock of its own, and waits for ordered extents with i_rwsem; Linux waits before as well, and once more at the end."},
		{Name: "beyond-eof-unlocked", Step: step(`(set|clear)_extent_bit LOCKED |inode_mod_outstanding_extents -1`), Marks: []Mark{Extra, Count, Order}, Ops: ops(`write-extending|write-beyond|write-new-file|write-dsync|dwrite-extending`),
			Why: "Linux 6.18.44 locks the extent range of a folio beyond EOF, and so does the engine. 6.18.15, which shows functions, does not yet."},
		{Name: "completions-in-turn", Step: step(`finish_ordered_extent |ordered_extent_|inode_mod_outstanding_extents -|tree_|add_delayed_|cow_block |space_reservation |(set|clear)_extent_bit |reserve_extent METADATA `), Ops: ops(`writeback-many`),
			Why: "Eight bios end at once: in which order, and how the workers take turns, is the machine's."},
		{Name: "page-in-use", Step: step(`folio_unlock |folio_start_writeback |block_bio_queue W |mm_filemap_delete_from_page_cache |clear_extent_bit (ANY|DELALLOC|LOCKED\|DELALLOC)|set_extent_bit DELALLOC|inode_mod_|writeback_dirty_folio |extent_writepage `), Ops: ops(`dwrite.*`),
			Why: "A page whose writeback ends at this moment is still in use, and Linux does not get it out of the cache: it stays, and a direct write goes through the cache. " +
				"The engine waits until it has the page."},
	}
})

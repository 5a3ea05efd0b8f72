package scenario

import "btrlab/internal/sched/explore"

// Exhibit is a bug that the kernel had, or nearly had: a scenario that it breaks, the policy with
// the wrong order of steps, and one with the right order. Number is its row in labs/reference 9.2,
// which ends with 30; higher numbers are ours.
type Exhibit struct {
	Number   int    `json:"number"`
	Title    string `json:"title"`
	Source   string `json:"source"`
	Story    string `json:"story"`
	Rule     string `json:"rule"` // the fix, as a rule
	Scenario string `json:"scenario"`
	Broken   string `json:"broken"` // policies
	Fixed    string `json:"fixed"`
	// Script, if it is not empty, is a workload in the language of btrlab sh, a line each
	// operation: a power cut shows the bug, too. It is in testdata/crash, where its comment says
	// what it is. The museum of package cli runs it.
	Script string `json:"script,omitempty"`
	// Kinds are the names that the explorer may give the violation.
	Kinds []explore.Kind `json:"kinds"`
}

var deadlock = []explore.Kind{explore.KindDeadlock}

// Museum is the exhibits.
var Museum = []Exhibit{
	{
		Number: 1, Title: "the lost truncate", Source: "seed 002, 2018, never merged",
		Story: `A buffered write inside EOF lets i_rwsem go and counts itself in i_dio_count instead. A truncate sets i_size, drops the
pages beyond it, and only then waits for the count. The writer, stopped in between, makes its pages again, finds that
it ends beyond i_size and puts i_size back. The truncate goes on with the wrong size, drops nothing, and reports success.`,
		Rule: "wait for those without the lock before i_size changes", Scenario: "truncate-race",
		Broken: "unlocked", Fixed: "unlocked-drain", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 2, Title: "a write from a mapping of its own page", Source: "914ee295af41, 2011",
		Story: `The source of a write is a mapping of the very page that it overwrites. The copy touches the source with the page
locked; the page is not mapped yet, and the fault wants the same page lock.`,
		Rule: "fault the source in first, copy with faults disabled", Scenario: "mmap-source",
		Broken: "locked+WRONG_FAULT_UNDER_PAGE_LOCK", Fixed: "locked", Kinds: []explore.Kind{explore.KindOrder},
	},
	{
		Number: 3, Title: "the short copy that never ends", Source: "2a0f7f576999, 2011",
		Story: `A write covers a page that is not in memory, so nothing is read. The source gives only a part; what was copied cannot be
shown, because the rest of the page is not the file's, so nothing counts as copied. The next round does the same, for ever.`,
		Rule: "after a copy of nothing read the page first", Scenario: "short-copy",
		Broken: "locked+WRONG_NO_FORCED_READ", Fixed: "locked", Kinds: []explore.Kind{explore.KindLivelock},
	},
	{
		Number: 4, Title: "bits of another writer", Source: "376cc685cb3b, 3.14",
		Story: `A direct write of a range of the file has let i_rwsem go. A buffered write dirties a page of the range and marks the range delalloc,
with space reserved for it. The direct write finds the page, gives the range up to the page cache, and clears from it whatever a
direct write could have set: the other's delalloc as well. The space was to go with those bits; nobody gives it back.`,
		Rule: "clear the bits that you have set", Scenario: "direct-buffered",
		Broken: "locked+WRONG_DIRECT_CLEARS_DELALLOC", Fixed: "locked", Kinds: []explore.Kind{explore.KindPanic},
	},
	{
		Number: 5, Title: "a snapshot that waits for nobody", Source: "\"btrfs: fix hang on snapshot creation after RWF_NOWAIT write\", 5.8",
		Story: `The check before a NOWAIT direct write keeps snapshots out while it asks whether the write may go in place. It may, and the check
lets nobody in again. The write ends well; the next snapshot of the subvolume waits for a writer that has gone.`,
		Rule: "let go on every way out", Scenario: "nowait-dio-snapshot",
		Broken: "nowait-5.8+WRONG_NOWAIT_SNAPSHOT_KEPT", Fixed: "nowait-5.8", Kinds: []explore.Kind{explore.KindGone},
	},
	{
		Number: 6, Title: "EAGAIN with nothing to wait for", Source: "4b1946284dd6, 5.8",
		Story: `A NOWAIT direct write that ends beyond EOF is EAGAIN, because a write beyond EOF allocates. This one does not: the space is
preallocated. Whoever asks with NOWAIT again asks for ever.`,
		Rule: "ask for extents, not for EOF", Scenario: "nowait-dio-eof",
		Broken: "nowait-5.8!NOWAIT_PAST_EOF", Fixed: "nowait-5.8", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 7, Title: "a check of the first extent", Source: "260a63395f90, 5.8",
		Story: `The check before a NOWAIT direct write asks whether the write can go in place, and is content when its first extent can. The second
part of the request is a hole: the write reserves data space for it, and waits for a flush to make some.`,
		Rule: "the answer must cover the whole request", Scenario: "nowait-dio-cow",
		Broken: "nowait-5.8!NOWAIT_CHECK_WHOLE", Fixed: "nowait-5.8", Kinds: []explore.Kind{explore.KindNowait},
	},
	{
		Number: 8, Title: "the check that waits", Source: "\"btrfs: fix RWF_NOWAIT writes blocking on extent locks and waiting for IO\", 5.8",
		Story: `Before a NOWAIT direct write begins, a check asks whether all of it can be written in place, because only then it does not have to
wait for space. The check locks the range to ask, and waits for it, and for the ordered extents in it.`,
		Rule: "the question whether a request would sleep must not sleep", Scenario: "nowait-dio-range",
		Broken: "nowait-4.13+D1_TRYLOCK", Fixed: "nowait-4.13+D1_TRYLOCK+NOWAIT_CHECK_TRY", Kinds: []explore.Kind{explore.KindNowait},
	},
	{
		Number: 9, Title: "i_size published outside the lock", Source: "c3473e830074, 3.8; its second half, shown with a buffered write",
		Story: `A write beyond EOF makes its pages dirty, lets them go, and only then moves i_size. Writeback comes in between, finds dirty pages
beyond the end of the file and drops them, as it must after a truncate. The write returns success; its bytes are zeros.`,
		Rule: "i_size moves under the lock of the range it uncovers", Scenario: "append-writeback",
		Broken: "locked+WRONG_ISIZE_AFTER_UNLOCK", Fixed: "locked", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 9, Title: "a stale page under direct I/O", Source: "c3473e830074, 3.8; its first half",
		Story: `A direct write removes the pages of its range, then locks the range. In between a reader brings a page back. The write
puts its bytes on the disk; the page keeps the old ones until the write's end removes it. A task that has read the new bytes past the cache
reads the old ones through it.`,
		Rule: "look for pages again once the range is locked", Scenario: "direct-reader",
		Broken: "modern+WRONG_DIRECT_NO_RECHECK", Fixed: "modern", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 10, Title: "an extent in the log, and not on the device", Source: "de0ee0edb21f, 4.6; there the mapping came before the ordered extent, so that fsync did not see what to wait for",
		Story: `A direct write has an ordered extent, and its data is on the way to the device; i_rwsem is free. An fsync copies what is new of the
file to a log: the extent and its checksums as well. The log is durable, and the power goes. Replay puts the extent into the file;
its bytes are whatever the device had there.`,
		Rule: "fsync logs an extent when the device has its data", Scenario: "direct-log",
		Broken: "fsync-5.17+WRONG_LOG_UNWRITTEN", Fixed: "fsync-5.17", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 11, Title: "waiting for space with a range locked, as it was", Source: "f5585f4f0ef5, 5.19, CVE-2022-49547",
		Story: `A direct write locks its range and then waits for data space. The flush that makes room needs the range of a dirty page, or waits
for an ordered extent whose completion does. A third task holds that range, and waits for the range of the first.`,
		Rule: "reserve data space before a range is locked", Scenario: "direct-and-space",
		Broken: "locked+WRONG_DIRECT_RESERVE_LATE", Fixed: "locked", Kinds: deadlock,
	},
	{
		Number: 12, Title: "the write that was dropped with its rest", Source: "6.4, found after 51bd9563b678",
		Story: `A direct write maps 8 KiB of new space and makes an ordered extent of it. Of its source only the first 4 KiB are there. They are
written; the other half is given up with an error, which is the whole ordered extent's, and nothing gets into the trees. The second pass
writes the second half. The write reports 8 KiB, and the first half is a hole.`,
		Rule: "split the ordered extent where the bio ends", Scenario: "direct-fault",
		Broken: "modern+WRONG_ORDERED_WHOLE", Fixed: "modern", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 13, Title: "an append that moves itself", Source: "8184620ae212, 6.1, fixed in 6.11",
		Story: `A direct append moves i_size when it has mapped its first extent. Its source is not there; it lets i_rwsem go, faults the source
in, and does its checks again. An append begins at i_size, which it has moved itself: the file is too long and begins with a hole.`,
		Rule: "check once, and keep i_rwsem while the source is faulted in", Scenario: "direct-append-fault",
		Broken: "modern+WRONG_CHECKS_AGAIN", Fixed: "modern", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 14, Title: "zeros read ahead", Source: "from ac325fc2aad5, 6.12, to 6.14; there the page comes before the write ends, and cannot be removed while the completion has the range",
		Story: `A direct write into preallocated space has returned; its completion, which says in the tree that the space is written, is still
to come. Readahead asks what the file has there, without the range locked: space that is not written. It fills the page with zeros,
and the page stays.`,
		Rule: "lock the range, with nothing ordered in it, before a mapping is used", Scenario: "direct-readahead",
		Broken: "modern+WRONG_READAHEAD_UNLOCKED", Fixed: "modern", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 15, Title: "a direct write from a mapping of its own range", Source: "51bd9563b678, 5.16",
		Story: `The source of a direct write is a mapping of the block that it writes. The write has made its ordered extent when it touches the
source; the page is not in memory, and to read it the fault waits for the ordered extent of its own task.`,
		Rule: "no faults with an ordered extent in hand; without progress, through the page cache", Scenario: "direct-mapped",
		Broken: "modern!DIO_NOFAULT", Fixed: "modern", Kinds: deadlock,
	},
	{
		Number: 16, Title: "the first extent of several", Source: "ca93e44bfb5f, 5.17; there the caller saw a short or a wrong result",
		Story: `A NOWAIT direct write covers two extents. Each is locked, written and let go by itself, so the request is half done in between, and
where the second extent is busy it ends there. Another such write comes in: one extent is of the one, the other of the other.`,
		Rule: "a NOWAIT request of several extents is EAGAIN before its first byte", Scenario: "nowait-dio-extents",
		Broken: "nowait-5.19!NOWAIT_ONE_EXTENT", Fixed: "nowait-5.19", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 17, Title: "an fsync under a lock of its own task", Source: "0eb79294dbe3, 5.10",
		Story: `The end of a durable direct write syncs the file with i_rwsem held. fsync takes i_rwsem.`,
		Rule:  "leave word that the lock is held", Scenario: "direct-dsync",
		Broken: "modern+WRONG_SYNC_UNMARKED", Fixed: "modern", Kinds: []explore.Kind{explore.KindOrder, explore.KindDeadlock},
	},
	{
		Number: 17, Title: "a mark on the wrong thing", Source: "8184620ae212, fixed in 6.11",
		Story: `The durable direct write leaves word with the open file that i_rwsem is held. Another task calls fsync with the same open file,
believes it, and goes on without the lock.`,
		Rule: "the mark is the task's", Scenario: "direct-dsync",
		Broken: "modern+WRONG_SYNC_MARK_ON_FILE", Fixed: "modern", Kinds: []explore.Kind{explore.KindOrder},
	},
	{
		Number: 30, Title: "zeros over another's sector", Source: "e9e3bcecf44c, ext4, 2011",
		Story: `A direct write of a whole block that is allocated and not written has let i_rwsem go, and the device has its bytes. A direct write
of one sector takes i_rwsem, finds the block not written, and puts zeros around its sector: over the bytes of the first.`,
		Rule: "a write that zeroes a part of a block waits for those in flight", Scenario: "unaligned-drain",
		Broken: "locked+UNALIGNED_EXCLUSIVE+WRONG_UNALIGNED_NO_DRAIN", Fixed: "locked+UNALIGNED_EXCLUSIVE", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 30, Title: "zeros over another's sector, together", Source: "what the check of seed 004 is for: 310ee0902b8d, 6.5",
		Story: `Two direct writes of one sector each share i_rwsem. Both find their block allocated and not written, and each puts zeros around
its sector. The zeros of one come after the bytes of the other.`,
		Rule: "together only in blocks that are written", Scenario: "unaligned-writers",
		Broken: "unaligned-check-first+WRONG_UNALIGNED_UNWRITTEN", Fixed: "unaligned-check-first", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 33, Title: "a sector under an old page", Source: "ext4 and XFS, which document it: direct and buffered writes of one page do not go together",
		Story: `A direct write of a sector is on its way to the device, and holds no lock. A write of the next sector through the page cache reads
the block, as it was. The direct write ends. The page is written back: with the old bytes in the place of its sector.`,
		Rule: "what reads a block to write it back waits for the sectors in flight", Scenario: "unaligned-and-buffered",
		Broken: "unaligned-check-first+WRONG_UNALIGNED_NO_WAIT", Fixed: "unaligned-check-first", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 55, Title: "zeros that stay", Source: "c771c14baa33, iomap, 2017; generic/418 of xfstests. This tool had it as well",
		Story: `A direct write of a sector of a block that is allocated and not written is on the device. It takes the page of the block out of memory,
then marks the block written. A reader comes in between: a block that is not written is zeros, whatever the device has. Its page stays.`,
		Rule: "mark the block, then remove its page", Scenario: "unaligned-zeros",
		Broken: "unaligned-check-first+WRONG_UNALIGNED_PAGES_FIRST", Fixed: "unaligned-check-first", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 28, Title: "no space for what needs none", Source: "f0bfa76a11e9, ~5.18",
		Story: `A direct write of a NOCOW file reserves data space before it knows that it goes in place. The file system is full.`,
		Rule:  "fail when a new extent is needed, not before", Scenario: "direct-full",
		Broken: "modern+WRONG_DIRECT_NEEDS_SPACE", Fixed: "modern", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 11, Title: "waiting for space with a range locked", Source: "f5585f4f0ef5, 5.19, CVE-2022-49547; shown with fallocate in the place of direct IO",
		Story: `Somebody holds an extent range and waits for data space. The flush that makes room waits for an ordered extent. Its completion
waits for its range, which a third task holds, and that task waits for the range of the first. (The flusher is the first one itself
here; the kernel has a worker for it, and so a circle of four.)`,
		Rule: "reserve data space before a range is locked", Scenario: "range-and-space",
		Broken: "locked+WRONG_RESERVE_UNDER_RANGE", Fixed: "locked", Kinds: deadlock,
	},
	{
		Number: 18, Title: "a range lock that holds and waits", Source: "9e769bd7e5db, 6.1; shown with a flush in the place of a transaction commit",
		Story: `A fiemap locks a long range and comes to a part of it that a fallocate has locked. It keeps the front while it waits for the
rest. The completion of an ordered extent at the front waits for the fiemap. The fallocate waits for that ordered extent: in
the kernel by way of a transaction, whose commit waits for it, and here by way of a flush for space.
It is the circle of number 11, broken at another place: the fallocate waits with its range locked as before, but the fiemap
has nothing that the completion needs.`,
		Rule: "a task that waits for a range holds nothing of it: back off", Scenario: "range-and-space",
		Broken: "locked+WRONG_RESERVE_UNDER_RANGE", Fixed: "locked+WRONG_RESERVE_UNDER_RANGE+EXTENT_LOCK_BACK_OFF", Kinds: deadlock,
	},
	{
		Number: 20, Title: "a NOWAIT write that shows ENOSPC", Source: "a348c8d4f6cf, 6.1; its second half, eb81b682b131, is number 40",
		Story: `A NOWAIT write may not flush, so it asks for space in the mode that gives up at once, and gets ENOSPC when what is left
is promised to others. It hands that to the caller, who takes it for a full disk. A blocking write would have flushed and succeeded.`,
		Rule: "no space without a flush is EAGAIN", Scenario: "nowait-space",
		Broken: "nowait-strict+WRONG_NOWAIT_ENOSPC", Fixed: "nowait-strict", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 21, Title: "one step that is not told", Source: "\"btrfs: fix assertion failure and blocking during nowait buffered write\", 6.1; shown with a direct write",
		Story: `A NOWAIT write may go in place only if its blocks have no checksums. The searches before that one try the tree blocks; in the kernel the
step to the next leaf of the checksum tree waits, here the search of that tree does. A completion is inserting checksums.`,
		Rule: "every step of a search honours NOWAIT", Scenario: "nowait-dio-csums",
		Broken: "nowait-6.1+WRONG_NOWAIT_CSUM_SEARCH", Fixed: "nowait-6.1", Kinds: []explore.Kind{explore.KindNowait},
	},
	{
		Number: 22, Title: "a NOWAIT request that spins", Source: "ed67f2a913a4, 6.13",
		Story: `The question for other references of an extent begins again as long as a delayed reference is busy. A blocking request waits
for it in the loop; a NOWAIT request only tries, so it uses its processor up until another task is done.`,
		Rule: "a NOWAIT request leaves a loop that waits", Scenario: "nowait-dio-refs",
		Broken: "nowait-6.1+WRONG_NOWAIT_SPIN", Fixed: "nowait-6.1", Kinds: []explore.Kind{explore.KindLivelock},
	},
	{
		Number: 23, Title: "zeroing from an old end of file", Source: "efa11fd269c1, 6.14",
		Story: `A write beyond EOF zeroes the rest of the old last block. It asks for the old end of file before it has i_rwsem, and waits.
Meanwhile another write has moved the end of file into that block; its bytes are zeroed.`,
		Rule: "sample i_size under the lock that keeps it", Scenario: "two-appends",
		Broken: "locked+WRONG_STALE_ISIZE", Fixed: "locked", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 24, Title: "a write in place, and a snapshot of the place", Source: "8257b2dc3c1a, e9894fd3e3b3, 2014",
		Story: `No data space is left, but a NOCOW file may be overwritten where it lies: the write is taken without a reservation. Before its
pages are dirty a snapshot is made, and the extent belongs to two files. Writeback must copy now, and there is no space: data
whose write has succeeded is lost.`,
		Rule: "writers in place and the snapshot keep each other out, from the question to the dirty pages", Scenario: "nocow-snapshot",
		Broken: "locked+WRONG_SNAPSHOT_UNLOCKED", Fixed: "locked", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 25, Title: "page and range, range and page", Source: "321592427c01",
		Story: `Writeback locks a page, then its extent range. A writer locks the range first, then the page. Each has what the other wants.
lockdep names it in the first schedule; here it is not told, to see the deadlock itself.`,
		Rule: "one order for everybody: pages, then ranges", Scenario: "page-and-extent",
		Broken: "locked+WRONG_EXTENT_BEFORE_PAGE", Fixed: "locked", Kinds: deadlock,
	},
	{
		Number: 31, Title: "a page that changes while the device reads it", Source: "never in a kernel: what stable pages are for",
		Story: `A truncate into the middle of a page zeroes the rest of it. The page is under writeback, and the truncate holds its lock, but
writeback has let the lock go: the page is checksummed and read by the device without it. What reaches the disk is the page
before, after or in between, and the checksum fits one of them.
A data race is found in every schedule in which nothing puts the two in order, also when they do not meet.`,
		Rule: "wait for writeback before a page changes; the lock alone is not enough", Scenario: "grow-writeback",
		Broken: "locked+WRONG_ZERO_UNDER_WRITEBACK", Fixed: "locked", Kinds: []explore.Kind{explore.KindRace},
	},
	{
		Number: 32, Title: "disk_i_size without its lock", Source: "as before 5324c4e10e9c, 6.14, where a reader without the lock did no harm; shown with a writer, as this tool once had it",
		Story: `A truncate that makes the file longer sets i_size and then disk_i_size, which the inode item will say. Writeback comes to the
end of an extent at the same time and lets disk_i_size follow i_size: under inode->lock it reads the one and sets the other. A
truncate without the lock can come in between, and the old size lasts: after the next mount the file is as long as before.
The oracles see nothing here, because between the two there is no scheduling point; what finds it is that nothing orders
the two writes.`,
		Rule: "one lock around reading i_size and setting disk_i_size, for everybody", Scenario: "grow-writeback",
		Broken: "locked+WRONG_DISK_ISIZE_UNLOCKED", Fixed: "locked", Kinds: []explore.Kind{explore.KindRace},
	},
	{
		Number: 40, Title: "a NOWAIT write that keeps what it reserved", Source: "eb81b682b131, 6.1; the second half of number 20",
		Story: `Dirty throttling moved to the place after the reservation. There a NOWAIT write is told EAGAIN instead of being put to sleep, and the
loop ends without giving the space of the batch back. Each throttled request leaks some, until the file system is full of promises.`,
		Rule: "every early EAGAIN releases what the steps before it took", Scenario: "nowait-throttle",
		Broken: "nowait-strict+WRONG_NOWAIT_THROTTLE_LEAK", Fixed: "nowait-strict", Kinds: []explore.Kind{explore.KindPanic},
	},
	{
		Number: 41, Title: "the folios of a NOWAIT write", Source: "Linux 6.1 to 6.19: no fix is known, nor one among the commits of 7.3",
		Story: `A NOWAIT buffered write prepares its folios as a blocking one does: the function has a parameter for NOWAIT, and the only
caller passes false. So the submitter of a ring sleeps for a folio that writeback has locked, for the end of its writeback, or for a
read from the device.`,
		Rule: "every step that can sleep is told that it must not", Scenario: "nowait-stable",
		Broken: "nowait-6.1+NOWAIT_TRY_ORDERED", Fixed: "nowait-6.1+NOWAIT_TRY_ORDERED+NOWAIT_TRY_PAGES", Kinds: []explore.Kind{explore.KindNowait},
	},
	{
		Number: 42, Title: "EAGAIN after the wait", Source: "Linux 6.1 to 6.19: no fix is known, nor one among the commits of 7.3",
		Story: `A NOWAIT buffered write finds an ordered extent in its range. It lets everything go and waits for the extent, as a blocking
write does before it tries again, and only then answers EAGAIN.`,
		Rule: "with NOWAIT the answer comes in the place of the wait", Scenario: "nowait-ordered",
		Broken: "nowait-6.1+NOWAIT_TRY_PAGES", Fixed: "nowait-6.1+NOWAIT_TRY_PAGES+NOWAIT_TRY_ORDERED", Kinds: []explore.Kind{explore.KindNowait},
	},
	{
		Number: 43, Title: "a NOWAIT write that grows the file", Source: "Linux 6.1 to 6.19: no fix is known, nor one among the commits of 7.3",
		Story: `A NOWAIT write begins beyond EOF, and EOF is in the middle of a block. The rest of that block is zeroed first, by a function that
reserves space with a flush, locks the folio, reads it and waits for its writeback.`,
		Rule: "what comes before the first byte is a step as well", Scenario: "nowait-grow",
		Broken: "nowait-6.1+NOWAIT_TRY_PAGES+NOWAIT_TRY_ORDERED", Fixed: "nowait-strict", Kinds: []explore.Kind{explore.KindNowait},
	},
	{
		Number: 44, Title: "a NOWAIT direct write that waits for its range", Source: "seed 000, 590944034440, 5.19",
		Story: `A NOWAIT direct write has asked whether it may go in place, with its range tried, and let the range go. Then it locks the range
for the write itself, as any other write does: a fiemap, or a write through a mapping, has come in between.`,
		Rule: "each lock of a NOWAIT request is tried, the second time as well", Scenario: "nowait-dio-range",
		Broken: "nowait-5.8", Fixed: "nowait-5.8+D1_TRYLOCK", Kinds: []explore.Kind{explore.KindNowait},
	},
	{
		Number: 45, Title: "a part that is written twice", Source: "never in a kernel: what io_uring counts bytes_done for",
		Story: `A ring tries a write and gets a part of it done; a worker goes on. It begins with the first byte again. Meanwhile another task has
read the part and written over it, and its write has returned; the worker puts the old bytes back.`,
		Rule: "a worker goes on where the attempt has stopped", Scenario: "ring-short",
		Broken: "nowait-6.1+WRONG_RING_RETRY_WHOLE", Fixed: "nowait-6.1", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 46, Title: "workers side by side", Source: "never in a kernel: what io-wq hashes works for",
		Story: `Two buffered writes of a ring are for workers. Nothing keeps the works of one inode in their order, so each gets a worker, and the
second may take i_rwsem first: the bytes that stay are those of the write that was submitted first.`,
		Rule: "the workers carry out the buffered writes of an inode one after the other", Scenario: "ring-order",
		Broken: "nowait-6.1+WRONG_RING_UNHASHED", Fixed: "nowait-6.1", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 47, Title: "the hole that was not logged", Source: "\"Btrfs: fix missing hole after hole punching and fsync when using NO_HOLES\"",
		Story: `A file system without explicit holes has no item for a hole. A part of a file is punched, and an fsync logs what has changed: the
file extents, and there is none in the hole. The power goes. Replay puts the extents of the log into the file, and leaves the
ones that the last commit has in the place of the hole: what was punched is back.`,
		Rule: "a log has items for holes, because replay must hear of them", Scenario: "log-punch",
		Broken: "fsync-5.17+WRONG_LOG_NO_HOLES", Fixed: "fsync-5.17", Kinds: []explore.Kind{explore.KindOracle},
		Script: `touch /foo
write --data a --length 65536 /foo
sync
fallocate --punch-hole --offset 16384 --length 16384 /foo
fsync /foo`,
	},
	{
		Number: 48, Title: "an fsync with nothing to do", Source: "\"Btrfs: add missing inode update when punching hole\"; generic/059 of xfstests",
		Story: `A punch inside one block drops no extent: it zeroes a part of a page, which is dirty then. The inode is not marked as changed by the
transaction. An fsync writes the page back, sees that the last commit has the inode as it is, and returns. The power goes, and the file
has the old bytes.`,
		Rule: "what changes data marks the inode, also where no item changes", Scenario: "log-punch-block",
		Broken: "fsync-5.17+WRONG_LOG_PUNCH_UNMARKED", Fixed: "fsync-5.17", Kinds: []explore.Kind{explore.KindOracle},
		Script: `touch /foo
write --data a --length 65536 /foo
sync
fallocate --punch-hole --offset 24000 --length 100 /foo
fsync /foo`,
	},
	{
		Number: 49, Title: "a NOWAIT write that makes room in a quota", Source: "Linux 6.1 to 6.19: no fix is known, nor one among the commits of 7.3",
		Story: `The data of a NOWAIT buffered write does not fit the limit of its subvolume. The space of a file system is asked for in the mode that
gives up; a quota has one mode only. So the submitter of a ring writes the dirty data of the subvolume back, waits for it and commits.`,
		Rule: "a quota is space as well: with NOWAIT no flush", Scenario: "nowait-quota",
		Broken: "nowait-6.1", Fixed: "nowait-6.1+NOWAIT_TRY_QUOTA+NOWAIT_EDQUOT", Kinds: []explore.Kind{explore.KindNowait},
	},
	{
		Number: 50, Title: "a NOWAIT write that shows EDQUOT", Source: "Linux 6.1 to 6.19: no fix is known, nor one among the commits of 7.3; number 20 for a quota",
		Story: `The metadata of a NOWAIT buffered write does not fit the limit, and it may not flush. It turns ENOSPC into EAGAIN, but not EDQUOT: the
caller of the ring hears that its quota is used up. A worker would have flushed, and had its room.`,
		Rule: "no quota without a flush is EAGAIN", Scenario: "nowait-quota",
		Broken: "nowait-6.1+NOWAIT_TRY_QUOTA", Fixed: "nowait-6.1+NOWAIT_TRY_QUOTA+NOWAIT_EDQUOT", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 51, Title: "a NOWAIT write that takes capabilities away", Source: "Linux 6.1 to 6.19: no fix is known, nor one among the commits of 7.3; ext4 mended its own by 59a9d0814d9f (7.3)",
		Story: `A write to a program takes its capabilities away, whoever writes. They are an extended attribute: its removal searches the tree and begins
a transaction, and both sleep. The way that answers EAGAIN instead is in Linux, for other file systems; btrfs calls the older one, which
knows nothing of NOWAIT.`,
		Rule: "what a request does before its first byte is of the request, too", Scenario: "nowait-privs",
		Broken: "nowait-6.1", Fixed: "nowait-6.1+NOWAIT_TRY_PRIVS", Kinds: []explore.Kind{explore.KindNowait},
	},
	{
		Number: 52, Title: "the file that another one's fsync took", Source: "\"Btrfs: fix file loss caused by fsync after rename and new inode\"; generic/342 of xfstests",
		Story: `A file is renamed, and another one takes its name and is synced. The log has that one under the name, and nothing of the
first. The power goes. Replay makes room for the logged name: it takes it from the first file, whose new name the last commit does
not have. A file without a name is deleted.`,
		Rule: "who takes a name in a transaction is logged together with the one that had it", Scenario: "log-rename-chain",
		Broken: "fsync-5.17+WRONG_LOG_TAKEN_NAMES", Fixed: "fsync-5.17", Kinds: []explore.Kind{explore.KindOracle},
		Script: `touch /foo
write --data a --length 16384 /foo
fsync /foo
mv /foo /bar
touch /foo
write --data b --length 8192 /foo
fsync /foo`,
	},
	{
		Number: 53, Title: "a log that nobody can replay", Source: "\"Btrfs: fix log replay failure after unlink and link combination\", 1f250e929a9c; a test of CrashMonkey",
		Story: `A file goes, and another one gets its name in the same directory and is synced. The log has the name, and nothing of the file that
had it. The power goes. Replay adds the name to the directory, where the last commit has it already, and fails: the image cannot be
opened for writing any more.`,
		Rule: "replay asks who has a name before it gives it to another", Scenario: "log-rename",
		Broken: "fsync-5.17+WRONG_LOG_TAKEN_NAMES+WRONG_LOG_NO_CONFLICTS", Fixed: "fsync-5.17", Kinds: []explore.Kind{explore.KindOracle},
		Script: `touch /foo
ln /foo /bar
sync
rm /bar
touch /bar
fsync /bar`,
	},
	{
		Number: 54, Title: "logged in the middle of a rename", Source: "as before \"Btrfs: pin log earlier when renaming\", 2016, for all of a rename",
		Story: `A file has taken the name of another one, and is synced, so the other is logged as well. That one is being renamed: its old name
is out of the tree, and its new one is not in yet. The log has it without a name. The power goes; replay gives its last committed
name to the file that was synced, and deletes it.`,
		Rule: "a change of names keeps the log out from its first step to its last", Scenario: "log-pin",
		Broken: "fsync-5.17+WRONG_LOG_NAMES_UNPINNED", Fixed: "fsync-5.17", Kinds: []explore.Kind{explore.KindOracle},
	},
	{
		Number: 56, Title: "a NOWAIT direct write that waits for compression", Source: "seed 000, b023e67512ac, 5.19",
		Story: `A direct write looks at the page cache twice. Of a file that was compressed the first writeback of a page may only have handed it to a
worker, which has the page locked; so the mapping of each extent starts writeback of its range once more. A write through a mapping has
dirtied a page in between (here a buffered write that has let i_rwsem go), and the NOWAIT write writes it back and waits.`,
		Rule: "a NOWAIT request asks whether a page is busy, and starts nothing", Scenario: "nowait-dio-async",
		Broken: "nowait-5.19+BUF_UNLOCK_IN_EOF!D0_ASYNC_EXT", Fixed: "nowait-5.19+BUF_UNLOCK_IN_EOF", Kinds: []explore.Kind{explore.KindNowait},
	},
	{
		Number: 57, Title: "a parity of old data", Source: "never in a kernel: what lock_stripe_add() of raid56.c is for",
		Story: `Two writes go to one full stripe of RAID5, each to a block of another device. Each reads the other's block, makes the parity of it
and of its own, and writes both. If both read before either has written, the parity that is written last is of the old block of the
other. While all devices are there every read is right. Then one fails, and its block is made from the parity. The other's block is
the old one again, although its write had returned; the block of the write whose parity it is has bytes that no task has ever written.`,
		Rule: "one read-modify-write of a full stripe at a time: the next one reads when the parity is written", Scenario: "stripe-writers",
		Broken: "locked+WRONG_STRIPE_UNLOCKED", Fixed: "locked", Kinds: []explore.Kind{explore.KindOracle},
	},
}

// Shown is an exhibit with what the explorer made of it.
type Shown struct {
	Exhibit
	Found Result `json:"found"` // under Broken
	Proof Result `json:"proof"` // under Fixed
	// OK says that it proves itself twice: broken by the wrong order in the way it says, kept by
	// the right one.
	OK    bool   `json:"ok"`
	Trace *Trace `json:"-"`
}

// Show explores an exhibit under both policies.
func (e *Exhibit) Show(o Options) (*Shown, error) {
	s, err := Lookup(e.Scenario)
	if err != nil {
		return nil, err
	}
	broken, err := parsePolicy(e.Broken)
	if err != nil {
		return nil, err
	}
	fixed, err := parsePolicy(e.Fixed)
	if err != nil {
		return nil, err
	}
	x := &Shown{Exhibit: *e}
	if x.Found, err = Run(s, broken, o); err != nil {
		return nil, err
	}
	if x.Proof, err = Run(s, fixed, o); err != nil {
		return nil, err
	}
	for _, k := range e.Kinds {
		x.OK = x.OK || x.Found.Verdict == explore.Violated && x.Found.Kind == k
	}
	x.OK = x.OK && x.Proof.Verdict != explore.Violated
	if x.Found.Verdict == explore.Violated {
		if x.Trace, err = Replay(s, broken, x.Found.Schedule, false); err != nil {
			return nil, err
		}
	}
	return x, nil
}

package policy

// Switch is the number of a toggle or of a wrong order.
type Switch uint8

// Wrong is the number of a wrong order: a bug, of which a kernel once had some (Toggle.Source). It
// is off in every preset, and there for the museum.
type Wrong Switch

// The toggles. The table below says what each does.
const (
	BufUnlockInEOF Switch = iota
	SetsizeDrainFirst
	PrewaitOutside
	BalanceOutside
	BalanceBeforeFolio
	WriteRangeLock
	CopyByFolio
	StableSkipNodatasum
	WritebackBounce
	PunchRecheckOE
	ExtentLockBackOff
	SetsizeWaitOrdered
	RwsemHandoff
	DIOShared
	DIOLocked
	DIOCsumBuffered
	NowaitBuffered
	NowaitTryPages
	NowaitTryOrdered
	NowaitEDQUOT
	NowaitTryQuota
	NowaitTryPrivs
	NowaitTryExpand
	NowaitTryFault
	NowaitCOW
	DIONofault
	DIOSyncHeld
	UnalignedExclusive
	UnalignedCheckFirst
	UnalignedRetry
	UnalignedZeroing
	NowaitCheckTry
	NowaitCheckWhole
	NowaitPastEOF
	NowaitOneExtent
	NowaitCsumCopy
	NowaitAsyncExt
	NowaitTryRange
	NowaitCheckOnce
	NocowPathReuse
	NocowPathFree
	NocowEarlyRelease
	NowaitContext
	NowaitNoFlush
	NowaitTryTree
	NocowAskAlways
	NocowRemembered
	FsyncLog
	FsyncWaitOrdered
	LogNoRecheck
	LogPushMin
	LogLazySum
	LogReplaceMulti
	LogNoExtraRelease
	LogPrepareFirst
	LogOneWait
	LogTick

	firstWrong // the wrong orders follow
)

// The wrong orders.
const (
	WrongFaultUnderPageLock Wrong = Wrong(firstWrong) + iota
	WrongNoForcedRead
	WrongISizeAfterUnlock
	WrongReserveUnderRange
	WrongStaleISize
	WrongExtentBeforePage
	WrongZeroUnderWriteback
	WrongDiskISizeUnlocked
	WrongSnapshotUnlocked
	WrongSnapshotInPlace
	WrongNowaitENOSPC
	WrongNowaitThrottleLeak
	WrongDirectNoRecheck
	WrongDirectClearsDelalloc
	WrongReadAheadUnlocked
	WrongDirectReserveLate
	WrongDirectNeedsSpace
	WrongUnalignedNoDrain
	WrongUnalignedUnwritten
	WrongUnalignedNoWait
	WrongUnalignedPagesFirst
	WrongOrderedWhole
	WrongChecksAgain
	WrongSyncUnmarked
	WrongSyncMarkOnFile
	WrongNowaitSnapshotKept
	WrongNowaitCsumSearch
	WrongNowaitSpin
	WrongLogUnwritten
	WrongLogUnattached
	WrongRingRetryWhole
	WrongRingUnhashed
	WrongLogSuperFirst
	WrongLogNoFlush
	WrongLogNoSums
	WrongLogBeforeData
	WrongLogUnpinned
	WrongLogChangedXattrs
	WrongLogNoHoles
	WrongLogLostNames
	WrongLogTakenNames
	WrongLogKeepXattrs
	WrongLogKeepSize
	WrongLogNoConflicts
	WrongLogPunchUnmarked
	WrongLogOldNumbers
	WrongLogNamesUnpinned
	WrongLogShareEarly
	WrongStripeUnlocked

	endWrong
)

// Group is what switches have to do with.
type Group uint8

// The groups, in the order in which lists show them.
const (
	GroupBuffered Group = iota
	GroupDirect
	GroupUnaligned
	GroupNowait
	GroupNowaitDirect
	GroupFsync
	GroupWrong
)

var groupNames = [...]string{"buffered writes, setsize, punch", "direct reads and writes", "direct writes of sectors",
	"NOWAIT, buffered", "NOWAIT, direct", "fsync", "wrong orders"}

func (g Group) String() string { return groupNames[g] }

// Group is what x has to do with.
func (x Switch) Group() Group {
	switch {
	case x.Wrong():
		return GroupWrong
	case x >= FsyncLog:
		return GroupFsync
	case x >= NowaitCheckTry:
		return GroupNowaitDirect
	case x >= UnalignedExclusive:
		return GroupUnaligned
	case x >= DIONofault:
		return GroupDirect
	case x >= NowaitBuffered:
		return GroupNowait
	case x >= DIOShared:
		return GroupDirect
	}
	return GroupBuffered
}

// switches counts both.
const switches = Switch(endWrong)

// Toggle describes one switch.
type Toggle struct {
	Name string // as written in specifications and reports: BUF_UNLOCK_IN_EOF
	Does string // what is done with the switch on
	// Effect is what the switch prevents or allows when it is on; it begins with that word.
	Effect string
	Source string // seed or kernel commit
	Kernel string // the function that changes
	// Shows is what is to be seen of it, and where: in words.
	Shows string
	// Scenario, if it is not empty, is what shows the effect: a scenario of the catalogue, or a
	// file of testdata/crash. A switch without one says in Shows why there is none.
	Scenario string
	// Base is the policy with which Scenario shows it, beside the same one with the switch turned.
	Base string
	// Course marks the ten that the course is about.
	Course bool
}

// toggles is the table of the switches.
var toggles = [switches]Toggle{
	BufUnlockInEOF: {
		Name:     "BUF_UNLOCK_IN_EOF",
		Does:     "a buffered write counts itself in i_dio_count, and if it ends inside i_size it drops i_rwsem for the copy loop; a NOWAIT write does neither",
		Effect:   "allows writers inside i_size to wait and copy at the same time; two writes of more than one batch may then interleave batch by batch",
		Source:   "seed 002 (Robbie Ko, 2018-05-16)",
		Kernel:   "fs/btrfs/file.c:__btrfs_buffered_write()",
		Shows:    "two writers of one page each overlap their waits; two writers of two batches each may interleave",
		Scenario: "two-writers-overlap", Base: "locked",
		Course: true,
	},
	SetsizeDrainFirst: {
		Name:     "SETSIZE_DRAIN_FIRST",
		Does:     "a setsize that makes the file shorter waits until i_dio_count is zero before it changes i_size, not after",
		Effect:   "prevents the lost truncate: without it the truncate sets i_size and then waits for an unlocked writer, and that writer puts the old i_size back",
		Source:   "seed 002 (Omar Sandoval, 2018-05-22; accepted by Robbie Ko)",
		Kernel:   "fs/btrfs/inode.c:btrfs_setsize()",
		Shows:    "without it a truncate sets i_size, waits for an unlocked writer, which puts i_size back: the truncate is lost",
		Scenario: "truncate-race", Base: "unlocked",
		Course: true,
	},
	PrewaitOutside: {
		Name:     "PREWAIT_OUTSIDE",
		Does:     "a write inside i_size waits for writeback and ordered extents of its range before it takes i_rwsem; for those that begin later it still waits under the lock",
		Effect:   "prevents a write from holding i_rwsem while it waits for writeback that began before the write: without it the writers of all other pages wait as well",
		Source:   "seed 002 (Chris Mason, 2018-05-24)",
		Kernel:   "fs/btrfs/file.c:btrfs_file_write_iter()",
		Shows:    "without it one writer waits for writeback of its page under i_rwsem while another, of an idle page, waits for the lock",
		Scenario: "stable-pages", Base: "locked",
		Course: true,
	},
	BalanceOutside: {
		Name:     "BALANCE_OUTSIDE",
		Does:     "a write is throttled for dirty pages once, after it has released i_rwsem, not after each batch under it, however long it is: Mason wants it for small writes, and a long one passes the limit by its own length",
		Effect:   "prevents a throttled writer from sleeping with i_rwsem held: without it every other writer of the file waits until it wakes up",
		Source:   "seed 002 (Chris Mason, 2018-05-24)",
		Kernel:   "fs/btrfs/file.c:btrfs_file_write_iter()",
		Shows:    "without it a throttled writer sleeps under i_rwsem and all others of the file with it",
		Scenario: "balance-dirty", Base: "locked",
		Course: true,
	},
	BalanceBeforeFolio: {
		Name:   "BALANCE_BEFORE_FOLIO",
		Does:   "a write is throttled for dirty pages before it locks the pages of a batch, not after the batch; i_rwsem is held both times",
		Effect: "prevents a writer over the dirty limit from dirtying one more batch before it sleeps; it sleeps with i_rwsem held and the space of the batch reserved. A NOWAIT write is throttled at this place under every policy",
		Source: "965f47aeb5de (6.1)",
		Kernel: "fs/btrfs/file.c:btrfs_buffered_write()",
		Shows:  "a throttled writer holds no page, but still i_rwsem; no scenario: in the catalogue no other task wants the page of a throttled writer",
	},
	WriteRangeLock: {
		Name:     "WRITE_RANGE_LOCK",
		Does:     "a write inside i_size locks its byte range instead of i_rwsem; other writes, setsize, punch and fallocate lock both; a NOWAIT write is EAGAIN",
		Effect:   "allows writers of disjoint ranges to run together, and keeps each write one piece: overlapping writes do not mix",
		Source:   "seed 002 (Christoph Hellwig, 2018-05-23: \"some sort of range lock\")",
		Kernel:   "none: never written",
		Shows:    "two writers of two batches each: disjoint ones run together, overlapping ones do not mix",
		Scenario: "two-writers-disjoint", Base: "locked",
		Course: true,
	},
	CopyByFolio: {
		Name:     "COPY_BY_FOLIO",
		Does:     "the copy loop takes one folio (a page) at a time, not a batch of up to 512 pages, and locks its extent range beyond EOF as well",
		Effect:   "prevents a writer from holding more than one page at a time; with BUF_UNLOCK_IN_EOF two writes may then interleave page by page",
		Source:   "c87c299776e4 (6.13)",
		Kernel:   "fs/btrfs/file.c:btrfs_buffered_write(), later copy_one_range()",
		Shows:    "a write of two pages becomes two steps; the atoms of an unlocked write are pages",
		Scenario: "two-writers-overlap", Base: "unlocked",
	},
	StableSkipNodatasum: {
		Name:     "STABLE_SKIP_NODATASUM",
		Does:     "a write to a file without checksums does not wait for writeback of the pages that it overwrites",
		Effect:   "prevents such a write from waiting for writeback with its pages locked; it still waits for the ordered extent of that writeback, with its pages released",
		Source:   "ecde48a1a6b3 (6.15)",
		Kernel:   "fs/btrfs/btrfs_inode.h:btrfs_update_inode_mapping_flags()",
		Shows:    "a rewrite of a page under writeback waits for the ordered extent alone, with no page locked",
		Scenario: "nocow-rewrite", Base: "locked",
	},
	WritebackBounce: {
		Name:     "WRITEBACK_BOUNCE",
		Does:     "writeback copies its pages while it has them locked and writes the copies; writeback, not a write, waits for the ordered extents of the range, and a write does not wait for writeback either",
		Effect:   "allows a rewrite to go on while the device reads the page: the device reads a copy, so checksum and bytes match",
		Source:   "an answer to seed 002 (Robbie Ko, 2018-05-23: can stable pages be avoided altogether?); block/bounce.c did it for some devices until 6.16",
		Kernel:   "fs/btrfs/extent_io.c:extent_writepage_io(), as it could be",
		Shows:    "a rewrite of a page under writeback goes on, and the device gets what was written before it",
		Scenario: "stable-pages", Base: "locked",
		Course: true,
	},
	PunchRecheckOE: {
		Name:     "PUNCH_RECHECK_OE",
		Does:     "a punch accepts its locked range only when it has neither pages nor ordered extents, and else flushes it again; without it only pages count",
		Effect:   "prevents a punch from going on while an ordered extent of its range is unfinished: an unlocked writer may have dirtied the range after the flush",
		Source:   "removed by 55961c8abfdc, ffa8fc603d27 (5.19)",
		Kernel:   "fs/btrfs/file.c:btrfs_punch_hole_lock_range()",
		Shows:    "an unlocked writer dirties the punched range after the flush; with the check the punch flushes again",
		Scenario: "writer-punch", Base: "unlocked",
	},
	ExtentLockBackOff: {
		Name:     "EXTENT_LOCK_BACK_OFF",
		Does:     "a task that waits for an extent range keeps no part of it locked",
		Effect:   "prevents a task that waits for a large range from holding up an ordered extent in the part of it that was free",
		Source:   "9e769bd7e5db (6.1)",
		Kernel:   "fs/btrfs/extent-io-tree.c:lock_extent()",
		Shows:    "without it a waiter for a large range that keeps its first half stops an ordered extent from finishing there",
		Scenario: "range-and-space", Base: "locked+WRONG_RESERVE_UNDER_RANGE",
	},
	SetsizeWaitOrdered: {
		Name:   "SETSIZE_WAIT_ORDERED",
		Does:   "a setsize to the size that the file has waits for the ordered extents at its end, as one that makes the file shorter does",
		Effect: "prevents a race with the ordered extent of the last block, whose map the setsize drops; without it a file that ends inside a block gets its size on disk while the block is still on its way",
		Source: "no kernel: it was read from the subject of ec78575dde99 (7.3), and 7.3.4 does not wait (labs/reference 13.4)",
		Kernel: "fs/btrfs/inode.c:btrfs_truncate()",
		Shows:  "a write that ends inside a block, a truncate to the size that it gave the file, a commit and a power cut: zeros or the data; no scenario: nobody has synced the write, so no oracle wants its data",
	},
	RwsemHandoff: {
		Name:   "RWSEM_HANDOFF",
		Does:   "i_rwsem is promised to the first of its waiters once that has been passed over for 4 ms: tasks that come later do not get it before",
		Effect: "prevents waiters from sleeping for as long as others come back for the lock in time: without it the mean wait is about the same, and the longest ones are several times as long",
		Source: "4f23dbc1e657 (5.3)",
		Kernel: "kernel/locking/rwsem.c:rwsem_down_write_slowpath()",
		Shows:  "the p99 of seed 002's locked row in virtual time, where the lock is the only change; no scenario: it is about time, which the explorer does not have: a waiter may be passed over any number of times, or never",
	},
	DIOShared: {
		Name:     "DIO_SHARED",
		Does:     "a direct write inside i_size and every direct read take i_rwsem shared; without it the write takes it exclusive and drops it for the I/O, and the read does not take it",
		Effect:   "allows direct writers inside i_size to run together: without it each holds i_rwsem alone until its I/O begins",
		Source:   "e9adabb9712e (5.11)",
		Kernel:   "fs/btrfs/file.c:btrfs_direct_write()",
		Shows:    "two direct writers inside EOF run together; without it each has i_rwsem until its checks are done",
		Scenario: "direct-writers", Base: "locked",
	},
	DIOLocked: {
		Name:     "DIO_LOCKED",
		Does:     "a direct request locks its range with a bit of its own before it takes the extent lock; a read keeps only that bit while the device reads",
		Effect:   "prevents a direct read from keeping the extent lock while the device reads: other tasks, and in the kernel a page fault of the read's own buffer, can take that lock",
		Source:   "7e2a59508472, ac325fc2aad5 (6.12)",
		Kernel:   "fs/btrfs/direct-io.c:lock_extent_direct()",
		Shows:    "a direct read keeps the extent lock no longer while the device reads: the page fault of its buffer can take it",
		Scenario: "direct-reader", Base: "modern",
	},
	DIOCsumBuffered: {
		Name:     "DIO_CSUM_BUFFERED",
		Does:     "a direct write to a file with checksums goes through the page cache; without it a copy of its bytes goes to the device",
		Effect:   "prevents a wrong checksum on disk where the kernel made no copy: a program could change the bytes of a direct write between the checksum and the transfer. Linux before 6.15 has neither; here there is always the copy",
		Source:   "968f19c5b1b7 (6.15) until e9b7b9d9e78e (7.3), which writes the copy",
		Kernel:   "fs/btrfs/direct-io.c:btrfs_direct_write()",
		Shows:    "without it a direct write makes ordered extents of its own, and its pages do not come into memory",
		Scenario: "direct-append", Base: "modern",
	},
	NowaitBuffered: {
		Name:     "NOWAIT_BUFFERED",
		Does:     "a buffered NOWAIT write is tried, and a NOWAIT direct write that needs the page cache is EAGAIN; without it the first is EOPNOTSUPP, and the second goes through the page cache and may sleep",
		Effect:   "allows a ring to carry out a buffered write inline: without it each goes to a worker",
		Source:   "seed 001 (Stefan Roesch, 6.1)",
		Kernel:   "fs/btrfs/file.c:btrfs_do_write_iter()",
		Shows:    "a ring writes inline, where each buffered write went to a worker before",
		Scenario: "ring-nowait", Base: "nowait-5.19",
		Course: true,
	},
	NowaitTryPages: {
		Name:     "NOWAIT_TRY_PAGES",
		Does:     "a buffered NOWAIT write tries the locks of its pages, and is EAGAIN if one is locked, is under writeback or must be read",
		Effect:   "prevents a buffered NOWAIT write from sleeping for the lock, the writeback or the read of a page",
		Source:   "none: Linux up to 6.19 prepares the folios of a NOWAIT write as those of any other",
		Kernel:   "fs/btrfs/file.c:prepare_one_folio()",
		Shows:    "a NOWAIT write of a page under writeback",
		Scenario: "nowait-stable", Base: "nowait-strict",
	},
	NowaitTryOrdered: {
		Name:     "NOWAIT_TRY_ORDERED",
		Does:     "a buffered NOWAIT write that finds an ordered extent in its range is EAGAIN at once",
		Effect:   "prevents a buffered NOWAIT write from sleeping until an ordered extent has finished, only to be EAGAIN after that",
		Source:   "none: Linux up to 6.19 waits for the ordered extent, then says EAGAIN",
		Kernel:   "fs/btrfs/file.c:lock_and_cleanup_extent_if_need()",
		Shows:    "a NOWAIT write of a range with an ordered extent",
		Scenario: "nowait-ordered", Base: "nowait-6.1",
	},
	NowaitEDQUOT: {
		Name:     "NOWAIT_EDQUOT",
		Does:     "a buffered NOWAIT write is EAGAIN, not EDQUOT, when its metadata does not fit its quota",
		Effect:   "prevents a caller from hearing that its quota is used up where a blocking write might make room and succeed",
		Source:   "none: Linux up to 6.19 shows EDQUOT to the caller",
		Kernel:   "fs/btrfs/file.c:btrfs_buffered_write()",
		Shows:    "the metadata of a NOWAIT write does not fit the quota, and a flush would help",
		Scenario: "nowait-quota", Base: "nowait-6.1+NOWAIT_TRY_QUOTA",
	},
	NowaitTryQuota: {
		Name:     "NOWAIT_TRY_QUOTA",
		Does:     "a buffered NOWAIT write reserves data space in its quota without a flush, and is EAGAIN if it neither fits nor can go in place",
		Effect:   "prevents a buffered NOWAIT write from writing data back and committing to make room in a quota",
		Source:   "none: Linux up to 6.19 flushes for a quota's data space, and commits",
		Kernel:   "fs/btrfs/qgroup.c:btrfs_qgroup_reserve_data()",
		Shows:    "the data of a NOWAIT write does not fit the quota, and a flush would help",
		Scenario: "nowait-quota", Base: "nowait-6.1",
	},
	NowaitTryPrivs: {
		Name:     "NOWAIT_TRY_PRIVS",
		Does:     "a NOWAIT write to a file that may have capabilities is EAGAIN instead of removing them",
		Effect:   "prevents a NOWAIT write from sleeping in the transaction and the tree search that remove capabilities",
		Source:   "none: Linux up to 6.19 takes the capabilities of a NOWAIT write's file away",
		Kernel:   "fs/btrfs/file.c:btrfs_write_check()",
		Shows:    "a NOWAIT write of a program with capabilities, while another task commits",
		Scenario: "nowait-privs", Base: "nowait-6.1",
	},
	NowaitTryExpand: {
		Name:     "NOWAIT_TRY_EXPAND",
		Does:     "a NOWAIT write that begins beyond EOF is EAGAIN if it must zero the rest of a block or insert a hole first, or if the range beyond EOF is busy",
		Effect:   "prevents a NOWAIT write beyond EOF from sleeping before its first byte: for the space, the lock, the read or the writeback of the page that it zeroes, or for the range",
		Source:   "none: Linux up to 6.19 zeroes the old last block of a NOWAIT write beyond EOF",
		Kernel:   "fs/btrfs/file.c:btrfs_write_check()",
		Shows:    "a NOWAIT write beyond an EOF in the middle of a block",
		Scenario: "nowait-grow", Base: "nowait-6.1",
	},
	NowaitTryFault: {
		Name:   "NOWAIT_TRY_FAULT",
		Does:   "a NOWAIT write whose source is not in memory is EAGAIN instead of taking the page fault",
		Effect: "prevents a NOWAIT write from sleeping in a page fault of its source",
		Source: "none: Linux up to 6.19 takes the page faults of a NOWAIT write's source",
		Kernel: "fs/btrfs/file.c:btrfs_buffered_write()",
		Shows:  "a NOWAIT write from memory that is not there; no scenario: what is in memory stays there while the explorer runs",
	},
	NowaitCOW: {
		Name:   "NOWAIT_COW",
		Does:   "a buffered NOWAIT write is tried on every inode, not only on one that is NODATACOW or preallocated",
		Effect: "allows buffered NOWAIT writes of plain files, which get new extents: without it such a write is EAGAIN",
		Source: "none: Linux up to 6.19 refuses a NOWAIT write of an inode that is neither NODATACOW nor preallocated",
		Kernel: "fs/btrfs/file.c:btrfs_write_check()",
		Shows:  "a NOWAIT write of a plain file; no scenario: the files of the catalogue that NOWAIT writes go to are NOCOW",
	},
	DIONofault: {
		Name:     "DIO_NOFAULT",
		Does:     "a direct write that has made an ordered extent takes no page fault of its source: it writes the part that is in memory, gives up the rest of the extent, faults the source in and goes on",
		Effect:   "prevents a deadlock: where the source is a mapping of the written range, its page fault waits for the ordered extent of its own task",
		Source:   "51bd9563b678 (5.16)",
		Kernel:   "fs/btrfs/direct-io.c:btrfs_direct_write()",
		Shows:    "without it a direct write whose source is a mapping of the range that it writes waits for its own ordered extent",
		Scenario: "direct-mapped", Base: "modern",
	},
	DIOSyncHeld: {
		Name:     "DIO_SYNC_HELD",
		Does:     "a durable direct write that is waited for syncs the file before it releases i_rwsem",
		Effect:   "prevents an operation that needs i_rwsem exclusive from coming between a durable write and its sync; the fsync has to know that its own task holds i_rwsem",
		Source:   "\"btrfs: fix race between direct IO write and fsync when using same fd\" (6.11)",
		Kernel:   "fs/btrfs/direct-io.c:btrfs_direct_write()",
		Shows:    "a durable direct write syncs under its own i_rwsem, and an fsync of the same open file takes the lock all the same",
		Scenario: "direct-dsync", Base: "modern",
	},
	UnalignedExclusive: {
		Name:     "UNALIGNED_EXCLUSIVE",
		Does:     "a direct write of sectors that are not whole blocks, in a NODATACOW file, goes to the device with i_rwsem exclusive, not through the page cache",
		Effect:   "allows direct writes of sectors to go past the page cache; they run one after the other, also in different blocks",
		Source:   "seed 004: ext4 until 310ee0902b8d (6.5)",
		Kernel:   "fs/ext4/file.c:ext4_dio_write_checks()",
		Shows:    "two sub-block writers, one after the other whatever their blocks are",
		Scenario: "unaligned-writers", Base: "modern",
	},
	UnalignedCheckFirst: {
		Name:     "UNALIGNED_CHECK_FIRST",
		Does:     "a direct write of sectors in a NODATACOW file looks up its block with i_rwsem shared; if the block is written, it goes to the device, and else it starts again with i_rwsem exclusive",
		Effect:   "allows direct writes of sectors to run together in written blocks; a write to a block that is not written runs alone",
		Source:   "seed 004: 310ee0902b8d (ext4, 6.5)",
		Kernel:   "fs/ext4/file.c:ext4_dio_write_checks()",
		Shows:    "two sub-block writers of a written block run together",
		Scenario: "unaligned-writers", Base: "modern",
		Course: true,
	},
	UnalignedRetry: {
		Name:     "UNALIGNED_RETRY",
		Does:     "a direct write of sectors in a NODATACOW file begins with i_rwsem shared; if it then finds that the block is not written, it starts again with i_rwsem exclusive",
		Effect:   "allows direct writes of sectors to run together in written blocks without a look at the block before; a block that is not written costs a second attempt",
		Source:   "seed 004: XFS, IOMAP_DIO_OVERWRITE_ONLY",
		Kernel:   "fs/xfs/xfs_file.c:xfs_file_dio_write_unaligned()",
		Shows:    "a sub-block writer begins, and is sent back by a block that is not written",
		Scenario: "unaligned-writers", Base: "modern",
	},
	UnalignedZeroing: {
		Name:     "UNALIGNED_ZEROING",
		Does:     "a direct write of sectors in a NODATACOW file looks up the blocks that it writes in part with i_rwsem shared; if they are written, it goes to the device, and else it starts again with i_rwsem exclusive",
		Effect:   "allows direct writes of sectors to run together wherever no part of a block must be zeroed, also over several extents, and over whole blocks that are not written",
		Source:   "07961ebb09c9 (ext4, 7.3)",
		Kernel:   "fs/ext4/file.c:ext4_dio_needs_zeroing()",
		Shows:    "two sub-block writers run together, one of which ends in another extent than it begins in",
		Scenario: "unaligned-extents", Base: "unaligned-check-first",
	},
	NowaitCheckTry: {
		Name:     "NOWAIT_CHECK_TRY",
		Does:     "the check before a NOWAIT direct write tries to lock the range of the request instead of waiting for it; D2_SINGLE_CHECK removes this check",
		Effect:   "prevents a NOWAIT direct write from sleeping for its range in the check that asks whether it would sleep",
		Source:   `"btrfs: fix RWF_NOWAIT writes blocking on extent locks and waiting for IO" (5.8)`,
		Kernel:   "fs/btrfs/inode.c:can_nocow_extent()",
		Shows:    "without it the check before a NOWAIT direct write waits for a range",
		Scenario: "nowait-dio-range", Base: "nowait-4.13+D1_TRYLOCK",
	},
	NowaitCheckWhole: {
		Name:     "NOWAIT_CHECK_WHOLE",
		Does:     "the check before a NOWAIT direct write, which asks about its first extent, wants this extent to have all of the request",
		Effect:   "prevents a NOWAIT direct write whose first extent can go in place from waiting for space for a later one",
		Source:   "260a63395f90 (5.8)",
		Kernel:   "fs/btrfs/file.c:check_can_nocow()",
		Shows:    "a NOWAIT direct write over a written extent and a hole",
		Scenario: "nowait-dio-cow", Base: "nowait-5.8",
	},
	NowaitPastEOF: {
		Name:     "NOWAIT_PAST_EOF",
		Does:     "a NOWAIT direct write may end beyond EOF, if the extents are there",
		Effect:   "allows a NOWAIT direct write into preallocated space beyond EOF: without it the answer is EAGAIN each time",
		Source:   "4b1946284dd6 (5.8)",
		Kernel:   "fs/btrfs/inode.c:btrfs_direct_IO()",
		Shows:    "a NOWAIT direct write into preallocated space beyond EOF",
		Scenario: "nowait-dio-eof", Base: "nowait-5.8",
	},
	NowaitOneExtent: {
		Name:     "NOWAIT_ONE_EXTENT",
		Does:     "a NOWAIT direct request of several extents is EAGAIN before its first one is started",
		Effect:   "prevents a NOWAIT direct request from ending half done, with its first extent written and its second one refused",
		Source:   "ca93e44bfb5f (5.17)",
		Kernel:   "fs/btrfs/inode.c:btrfs_dio_iomap_begin()",
		Shows:    "without it a NOWAIT direct write of two extents is half done in between, or ends there",
		Scenario: "nowait-dio-extents", Base: "nowait-5.19",
	},
	NowaitCsumCopy: {
		Name:   "NOWAIT_CSUM_COPY",
		Does:   "a NOWAIT direct write to a file with checksums, which goes to the device by a copy, is EAGAIN",
		Effect: "prevents a NOWAIT direct write from waiting for the memory of the copy",
		Source: "e9b7b9d9e78e (7.3)",
		Kernel: "fs/btrfs/direct-io.c:btrfs_dio_write()",
		Shows:  "a NOWAIT direct write into preallocated space with checksums; no scenario: the copy is never short of memory here",
	},
	NowaitAsyncExt: {
		Name:     "D0_ASYNC_EXT",
		Does:     "a NOWAIT direct write to a file that had compressed data looks for dirty pages in its range once more before each extent, and is EAGAIN if there are any; without it, it writes them back",
		Effect:   "prevents a NOWAIT direct write from starting writeback and waiting for it",
		Source:   "seed 000, b023e67512ac (5.19)",
		Kernel:   "fs/btrfs/inode.c:btrfs_dio_iomap_begin()",
		Shows:    "with BUF_UNLOCK_IN_EOF, a page of the range becomes dirty after the first look at the cache",
		Scenario: "nowait-dio-async", Base: "nowait-5.19+BUF_UNLOCK_IN_EOF",
	},
	NowaitTryRange: {
		Name:     "D1_TRYLOCK",
		Does:     "a NOWAIT direct request is EAGAIN if its range is locked or has an ordered extent, and a write is EAGAIN if a page has come into the range",
		Effect:   "prevents a NOWAIT direct request from sleeping for its range, which another task may have locked since the check, and (without NOWAIT_BUFFERED) a write from going through the page cache",
		Source:   "seed 000, 590944034440 (5.19)",
		Kernel:   "fs/btrfs/inode.c:lock_extent_direct()",
		Shows:    "a NOWAIT direct write of a range that a fiemap holds",
		Scenario: "nowait-dio-range", Base: "modern",
		Course: true,
	},
	NowaitCheckOnce: {
		Name:     "D2_SINGLE_CHECK",
		Does:     "a NOWAIT direct write asks only once whether it may go in place, with its range locked",
		Effect:   "prevents a second round of the same tree searches: an overwrite needs three, not six",
		Source:   "seed 000, d7a8ab4e9b88 (5.19)",
		Kernel:   "fs/btrfs/file.c:btrfs_write_check()",
		Shows:    "six tree searches of a NOWAIT direct overwrite become three",
		Scenario: "nowait-dio-range", Base: "nowait-5.19",
	},
	NocowPathReuse: {
		Name:   "D3_PATH_REUSE",
		Does:   "a NOWAIT direct write that asks whether it may go in place searches for other references with the path that it has",
		Effect: "prevents the allocation of a second path for the search for other references",
		Source: "seed 000, 1a89f1738684 (5.19)",
		Kernel: "fs/btrfs/extent-tree.c:btrfs_cross_ref_exist()",
		Shows:  "a path less for each question; no scenario: the steps are the same, and btrlab compare 000 --ablation counts the work",
	},
	NocowPathFree: {
		Name:   "D4_PATH_FREE",
		Does:   "a NOWAIT direct write that asks whether it may go in place searches for checksums with the path that it has",
		Effect: "prevents the allocation of another path for the search for checksums",
		Source: "seed 000, c1a548db25c3 (5.19)",
		Kernel: "fs/btrfs/inode.c:can_nocow_extent()",
		Shows:  "a path less for each question; no scenario: the steps are the same, and btrlab compare 000 --ablation counts the work",
	},
	NocowEarlyRelease: {
		Name:     "D5_EARLY_RELEASE",
		Does:     "a NOWAIT direct write that asks whether it may go in place releases the leaf after its last read from it, before it asks the block group and the io tree",
		Effect:   "prevents a writer of the leaf from waiting while the block group and the io tree are asked",
		Source:   "seed 000, 59d35c5171e6 (5.19)",
		Kernel:   "fs/btrfs/inode.c:can_nocow_extent()",
		Shows:    "without it a writer of the leaf waits for a look at the block group",
		Scenario: "nowait-dio-csums", Base: "nowait-6.1",
	},
	NowaitContext: {
		Name:   "D6_GFP_NOWAIT",
		Does:   "a NOWAIT direct write that needs memory is EAGAIN instead of waiting for reclaim",
		Effect: "prevents a NOWAIT direct write from sleeping in reclaim when memory is short",
		Source: "seed 000, 4f208dcc6bf5 (5.19)",
		Kernel: "fs/btrfs/inode.c:btrfs_dio_iomap_begin()",
		Shows:  "memory is short; no scenario: in the explorer memory is never short",
	},
	NowaitNoFlush: {
		Name:   "D7_NOFLUSH",
		Does:   "a NOWAIT direct write reserves metadata space without a flush, and is EAGAIN if there is too little",
		Effect: "prevents a NOWAIT direct write from sleeping in the flush that makes room for metadata",
		Source: "seed 000, d4135134ab8f (5.19)",
		Kernel: "fs/btrfs/delalloc-space.c:btrfs_delalloc_reserve_metadata()",
		Shows:  "a NOWAIT direct write with metadata space promised to others; no scenario: none fills the space for metadata",
	},
	NowaitTryTree: {
		Name:     "NOWAIT_TRY_TREE",
		Does:     "a NOWAIT direct request that looks for its extent tries tree blocks and delayed references, and reads no block",
		Effect:   "prevents a NOWAIT direct request from sleeping for the lock or the read of a tree block, or for a delayed reference, while it looks for its extent; a read may still sleep for its checksums",
		Source:   "26ce91144631 (6.1), which is of buffered writes; direct requests wait up to 7.3 (labs/reference 13.4)",
		Kernel:   "fs/btrfs/ctree.c:btrfs_search_slot()",
		Shows:    "a NOWAIT direct write while another task has the delayed references",
		Scenario: "nowait-dio-refs", Base: "nowait-6.1",
	},
	NocowAskAlways: {
		Name:     "NOCOW_ASK_ALWAYS",
		Does:     "a NOWAIT direct write asks the trees although the answer for its extent is known",
		Effect:   "allows each NOWAIT direct write to search the trees again, as every kernel does: without it the answer is kept with the extent, and the second write of the extent searches none",
		Source:   "every kernel; without it an answer is kept with the extent",
		Kernel:   "fs/btrfs/inode.c:can_nocow_extent()",
		Shows:    "the second NOWAIT direct write of an extent searches no tree",
		Scenario: "nowait-dio-csums", Base: "nowait-5.19",
	},
	NocowRemembered: {
		Name:   "NOCOW_REMEMBERED",
		Does:   "whether an extent may be overwritten in place is asked of the trees once, and kept with its map until the file's extents change there",
		Effect: "prevents a write in place from searching the trees: ext4 and XFS, which share no blocks or know in memory which, look a block up there",
		Source: "no btrfs: ext4's extent status tree and XFS's extent list",
		Kernel: "fs/ext4/extents_status.c:ext4_es_lookup_extent()",
		Shows:  "the second direct write of an extent searches no tree; no scenario: what is kept changes nothing that a file or a reader shows",
	},
	FsyncLog: {
		Name:     "FSYNC_LOG",
		Does:     "fsync writes a log tree where it can, and does not commit",
		Effect:   "prevents an fsync from committing the whole transaction: it writes a few blocks and waits for no writer of another file",
		Source:   "Linux 2.6.29; without it every fsync commits, as under the mount option notreelog",
		Kernel:   "fs/btrfs/file.c:btrfs_sync_file()",
		Shows:    "an fsync of one file writes three tree blocks, and waits for no writer of another file",
		Scenario: "fsync-writer", Base: "fsync-5.17",
		Course: true,
	},
	FsyncWaitOrdered: {
		Name:     "FSYNC_WAIT_ORDERED",
		Does:     "an fsync by log waits for the ordered extents of the file as well, not for writeback alone, and logs what the trees have",
		Effect:   "prevents a commit from having to wait for what a log has; each fsync waits until completion workers have put its extents and checksums into the trees",
		Source:   "kernels of 2020 and older; seed 005 takes it away",
		Kernel:   "fs/btrfs/file.c:btrfs_sync_file()",
		Shows:    "without it a log has an extent before the trees have it, and a commit that does not wait for it loses the fsync",
		Scenario: "log-commit-files", Base: "fsync-wait+WRONG_LOG_UNATTACHED",
	},
	LogNoRecheck: {
		Name:   "L1_NO_RECHECK",
		Does:   "a push of items to a neighbour leaf checks the neighbour's free space once, before it copies the neighbour",
		Effect: "prevents a second look at the free space of a neighbour, which is locked and cannot have changed",
		Source: "seed 003, b4e098a97f17 (5.18): \"btrfs: remove unnecessary leaf free space checks when pushing items\"",
		Kernel: "fs/btrfs/ctree.c:push_leaf_left(), push_leaf_right()",
		Shows:  "a leaf pushes items to its neighbour: the neighbour is locked, so its copy has the room that it had; no scenario: no log of the catalogue is large enough, and btrlab reproduce 003 counts the work",
	},
	LogPushMin: {
		Name:   "L2_PUSH_MIN",
		Does:   "after a delete, a small leaf copies its left neighbour only if that has room for its first item, and its right one only if that has room for all of its items",
		Effect: "prevents the copy of a neighbour that takes no item, and its write at the next fsync",
		Source: "seed 003, 7c4063d19efc (5.18): \"btrfs: avoid unnecessary COW of leaves when deleting items from a leaf\"",
		Kernel: "fs/btrfs/ctree.c:btrfs_del_items()",
		Shows:  "without it a delete leaves less than a third of a leaf, and neither neighbour takes what is left: they are copied, and written by the next fsync, for nothing; no scenario: no log of the catalogue is large enough, and btrlab reproduce 003 counts the work",
	},
	LogLazySum: {
		Name:   "L3_LAZY_SUM",
		Does:   "a delete adds up the sizes of the deleted items only when it moves data into their place",
		Effect: "prevents a sum of item sizes that nobody uses where no data moves",
		Source: "seed 003, 0cae23b66a5f (5.18): \"btrfs: avoid unnecessary computation when deleting items from a leaf\"",
		Kernel: "fs/btrfs/ctree.c:btrfs_del_items()",
		Shows:  "without it a delete of the last items of a leaf moves no data, and adds up their sizes all the same; no scenario: no log of the catalogue is large enough, and btrlab reproduce 003 counts the work",
	},
	LogReplaceMulti: {
		Name:   "L4_REPLACE_MULTI",
		Does:   "a file extent that replaces others in a log is inserted in the last leaf that had one of them, if that has room",
		Effect: "prevents a second search of the log tree where the replaced extents lie in two leaves",
		Source: "seed 003, 7ecb4c31e773 (5.18): \"btrfs: remove constraint on number of visited leaves when replacing extents\"",
		Kernel: "fs/btrfs/file.c:btrfs_drop_extents()",
		Shows:  "without it an fsync of a large write over many small extents, whose items are in two leaves of the log: the path is let go and its place searched again; no scenario: no log of the catalogue is large enough, and btrlab reproduce 003 counts the work",
	},
	LogNoExtraRelease: {
		Name:   "L5_NO_EXTRA_RELEASE",
		Does:   "an fsync does not release its path after the last file extent, which has released it already",
		Effect: "prevents one more release of an empty path at the end of each fsync",
		Source: "seed 003, d84575317078 (5.18): \"btrfs: remove useless path release in the fast fsync path\"",
		Kernel: "fs/btrfs/tree-log.c:btrfs_log_changed_extents()",
		Shows:  "without it an empty path is released once more at the end of each fsync; no scenario: no log of the catalogue is large enough, and btrlab reproduce 003 counts the work",
	},
	LogPrepareFirst: {
		Name:   "L6_PREPARE_FIRST",
		Does:   "a file extent item is made in memory before its place in the log is searched, and copied there in one piece",
		Effect: "prevents another fsync from waiting for the leaf while the fields of an item are filled in",
		Source: "seed 003, e1f53ed874e2 (5.18): \"btrfs: prepare extents to be logged before locking a log tree path\"",
		Kernel: "fs/btrfs/tree-log.c:log_one_extent()",
		Shows:  "without it two fsyncs of different files: the second waits for the leaf while the first fills the ten fields of an item there; no scenario: no log of the catalogue is large enough, and btrlab reproduce 003 counts the work",
	},
	LogOneWait: {
		Name:   "LOG_ONE_WAIT",
		Does:   "an fsync that writes a log waits once until no task copies into it, and not again for those that have come and gone meanwhile",
		Effect: "prevents an fsync from waiting for one more round of tasks that copy into the log; what they copy is in the log all the same, and is written with it",
		Source: "4bdec1b14b1f (7.3)",
		Kernel: "fs/btrfs/tree-log.c:btrfs_sync_log()",
		Shows:  "an fsync that waits for another one's copy, and a third one that copies meanwhile; no scenario: those of the catalogue have two fsyncs of a log, and the job of seed 003 in virtual time has eight",
	},
	LogTick: {
		Name:   "LOG_TICK",
		Does:   "where several tasks log in a subvolume, the one that writes the log sleeps a tick of 4 ms first, without the log's mutex",
		Effect: "allows an fsync to take more of the others along, and makes each wait a tick for it: what kernels did on a disk that turns (mount option nossd), until 7.3",
		Source: "kernels before 7.3, mounted with nossd; gone with the loop that LOG_ONE_WAIT replaces",
		Kernel: "fs/btrfs/tree-log.c:btrfs_sync_log()",
		Shows:  "eight tasks that fsync files of their own: more of them in a log, and each later; no scenario: the explorer's clock stands while a task can run, and btrlab reproduce 005 has the job in virtual time",
	},
	WrongFaultUnderPageLock: {
		Name:     "WRONG_FAULT_UNDER_PAGE_LOCK",
		Does:     "a write takes the page faults of its source after it has locked its pages, not before",
		Effect:   "allows a deadlock: where the source is a mapping of the written page, its fault waits for the page that its own task has locked",
		Source:   "before 914ee295af41 (2011)",
		Kernel:   "fs/btrfs/file.c:btrfs_copy_from_user()",
		Scenario: "mmap-source", Base: "locked",
	},
	WrongNoForcedRead: {
		Name:     "WRONG_NO_FORCED_READ",
		Does:     "after a copy that got nothing, a write does not read its first page, which then never becomes uptodate",
		Effect:   "allows a write that never ends: bytes in a page that is not uptodate do not count as copied, so every round copies them again",
		Source:   "before 2a0f7f576999 (2011)",
		Kernel:   "fs/btrfs/file.c:prepare_pages()",
		Scenario: "short-copy", Base: "locked",
	},
	WrongISizeAfterUnlock: {
		Name:     "WRONG_ISIZE_AFTER_UNLOCK",
		Does:     "a write moves i_size after it has released its pages and its extent range",
		Effect:   "allows lost data: writeback finds the dirty pages beyond EOF and drops them, and the write reports success",
		Source:   "before c3473e830074 (3.8), its second half, in a buffered write",
		Kernel:   "fs/btrfs/inode.c:btrfs_get_blocks_direct()",
		Scenario: "append-writeback", Base: "locked",
	},
	WrongReserveUnderRange: {
		Name:     "WRONG_RESERVE_UNDER_RANGE",
		Does:     "fallocate waits for space with its extent range locked",
		Effect:   "allows a deadlock: fallocate waits for a flush, the flush for a completion, the completion for a range that another task has locked, and that task for the range of the fallocate",
		Source:   "before f5585f4f0ef5 (5.19, CVE-2022-49547), in fallocate",
		Kernel:   "fs/btrfs/inode.c:btrfs_dio_iomap_begin()",
		Scenario: "range-and-space", Base: "locked",
	},
	WrongStaleISize: {
		Name:     "WRONG_STALE_ISIZE",
		Does:     "a write beyond EOF zeroes from the end of file that it saw before it had i_rwsem",
		Effect:   "allows zeros over the bytes of another write, which has moved the end of file meanwhile",
		Source:   "before efa11fd269c1 (6.14)",
		Kernel:   "fs/btrfs/file.c:btrfs_buffered_write()",
		Scenario: "two-appends", Base: "locked",
	},
	WrongExtentBeforePage: {
		Name:     "WRONG_EXTENT_BEFORE_PAGE",
		Does:     "a write locks its extent range before its pages",
		Effect:   "allows a deadlock with writeback, which locks the page first and the range after it",
		Source:   "before 321592427c01, in a buffered write",
		Kernel:   "fs/btrfs/file.c:prepare_pages()",
		Scenario: "page-and-extent", Base: "locked",
	},
	WrongZeroUnderWriteback: {
		Name:     "WRONG_ZERO_UNDER_WRITEBACK",
		Does:     "a truncate zeroes the rest of the last page although the device may be reading it",
		Effect:   "allows a wrong checksum on disk: the page changes between its checksum and its transfer",
		Source:   "never in a kernel: what stable pages are for",
		Kernel:   "mm/truncate.c:truncate_inode_pages_range()",
		Scenario: "grow-writeback", Base: "locked",
	},
	WrongDiskISizeUnlocked: {
		Name:     "WRONG_DISK_ISIZE_UNLOCKED",
		Does:     "a setsize that makes the file longer sets disk_i_size without inode->lock",
		Effect:   "allows the old size to stay on disk: writeback that ends at the same time may put it back",
		Source:   "as before 5324c4e10e9c (6.14), but in a writer of the field",
		Kernel:   "fs/btrfs/file-item.c:btrfs_inode_safe_disk_i_size_write()",
		Scenario: "grow-writeback", Base: "locked",
	},
	WrongSnapshotUnlocked: {
		Name:     "WRONG_SNAPSHOT_UNLOCKED",
		Does:     "a write that has found that it may overwrite in place does not keep snapshots out until its pages are dirty",
		Effect:   "allows lost data: after the snapshot the write needs a new extent, for which nothing is reserved",
		Source:   "before 8257b2dc3c1a (2014)",
		Kernel:   "fs/btrfs/file.c:btrfs_check_nocow_lock()",
		Scenario: "nocow-snapshot", Base: "locked",
	},
	WrongSnapshotInPlace: {
		Name:     "WRONG_SNAPSHOT_IN_PLACE",
		Does:     "data is written in place while a snapshot is being made of it",
		Effect:   "allows a snapshot whose bytes change: the write in place goes to the extent that both share",
		Source:   "before snapshot_force_cow (4.19)",
		Kernel:   "fs/btrfs/inode.c:run_delalloc_nocow()",
		Scenario: "snapshot-writeback", Base: "locked",
	},
	WrongNowaitENOSPC: {
		Name:     "WRONG_NOWAIT_ENOSPC",
		Does:     "a NOWAIT write says ENOSPC where a blocking one would flush",
		Effect:   "allows a program to take the disk for full where a blocking write would flush and succeed",
		Source:   "before a348c8d4f6cf (6.1)",
		Kernel:   "fs/btrfs/file.c:btrfs_buffered_write()",
		Scenario: "nowait-space", Base: "nowait-strict",
	},
	WrongNowaitThrottleLeak: {
		Name:     "WRONG_NOWAIT_THROTTLE_LEAK",
		Does:     "a NOWAIT write that is throttled keeps what it has reserved",
		Effect:   "allows reserved space to leak with each throttled request, until all space is promised",
		Source:   "before eb81b682b131 (6.1)",
		Kernel:   "fs/btrfs/file.c:btrfs_buffered_write()",
		Scenario: "nowait-throttle", Base: "nowait-strict",
	},
	WrongDirectNoRecheck: {
		Name:     "WRONG_DIRECT_NO_RECHECK",
		Does:     "a direct write does not look for pages again once it has its range locked",
		Effect:   "allows a reader to see old bytes through the page cache after a direct read has returned the new ones",
		Source:   "before c3473e830074 (3.8)",
		Kernel:   "fs/btrfs/inode.c:lock_extent_direct()",
		Scenario: "direct-reader", Base: "modern",
	},
	WrongDirectClearsDelalloc: {
		Name:     "WRONG_DIRECT_CLEARS_DELALLOC",
		Does:     "a direct write that finds a page in its locked range, and leaves the range to the page cache, clears the delalloc bits there, which are a buffered writer's",
		Effect:   "allows the reserved space of a buffered write to leak: it was to be given back with the bits that are cleared",
		Source:   "before 376cc685cb3b (3.14)",
		Kernel:   "fs/btrfs/inode.c:btrfs_get_blocks_direct()",
		Scenario: "direct-buffered", Base: "locked",
	},
	WrongReadAheadUnlocked: {
		Name:     "WRONG_READAHEAD_UNLOCKED",
		Does:     "readahead looks up the extents of its pages without the lock of their range, and does not wait for ordered extents there",
		Effect:   "allows zeros in the page cache: readahead takes space that was just written for space that is not written",
		Source:   "from ac325fc2aad5 (6.12) to 6.14",
		Kernel:   "fs/btrfs/extent_io.c:get_extent_map()",
		Scenario: "direct-readahead", Base: "modern",
	},
	WrongDirectReserveLate: {
		Name:     "WRONG_DIRECT_RESERVE_LATE",
		Does:     "a direct write waits for data space with its range locked",
		Effect:   "allows a deadlock: the flush that makes room needs the range, or a completion that needs it",
		Source:   "before f5585f4f0ef5 (5.19, CVE-2022-49547)",
		Kernel:   "fs/btrfs/inode.c:btrfs_dio_iomap_begin()",
		Scenario: "direct-and-space", Base: "locked",
	},
	WrongDirectNeedsSpace: {
		Name:     "WRONG_DIRECT_NEEDS_SPACE",
		Does:     "a direct write is ENOSPC without data space, before it knows whether it needs any",
		Effect:   "allows ENOSPC for a write in place, which needs no space for data",
		Source:   "before f0bfa76a11e9 (5.18)",
		Kernel:   "fs/btrfs/inode.c:btrfs_get_blocks_direct_write()",
		Scenario: "direct-full", Base: "modern",
	},
	WrongUnalignedNoDrain: {
		Name:     "WRONG_UNALIGNED_NO_DRAIN",
		Does:     "a direct write of sectors that has i_rwsem alone does not wait for direct writes that have let it go",
		Effect:   "allows zeros over the bytes of a direct write of the same block that is still in flight",
		Source:   "before e9e3bcecf44c (ext4, 2011)",
		Kernel:   "fs/ext4/file.c:ext4_file_write()",
		Scenario: "unaligned-drain", Base: "locked+UNALIGNED_EXCLUSIVE",
	},
	WrongUnalignedUnwritten: {
		Name:     "WRONG_UNALIGNED_UNWRITTEN",
		Does:     "a direct write of sectors under the shared lock zeroes the rest of a block that is not written",
		Effect:   "allows the zeros of one write over the sector of another: both find the block not written",
		Source:   "never in a kernel: what the check of 310ee0902b8d is for",
		Kernel:   "fs/ext4/file.c:ext4_dio_write_checks()",
		Scenario: "unaligned-writers", Base: "unaligned-check-first",
	},
	WrongUnalignedNoWait: {
		Name:     "WRONG_UNALIGNED_NO_WAIT",
		Does:     "writes through the page cache, and operations that zero part of a block, do not wait for direct writes of sectors in flight",
		Effect:   "allows a lost sector: the page was read before the direct write ended, and is written back after it",
		Source:   "ext4 and XFS, where direct and buffered writes of one page do not go together",
		Kernel:   "fs/ext4/file.c:ext4_buffered_write_iter()",
		Scenario: "unaligned-and-buffered", Base: "unaligned-check-first",
	},
	WrongUnalignedPagesFirst: {
		Name:     "WRONG_UNALIGNED_PAGES_FIRST",
		Does:     "a direct write of sectors takes the page of its block out of memory before it marks the block written",
		Effect:   "allows zeros in the page cache: a reader between the two steps finds a block that is not written",
		Source:   "before c771c14baa33 (iomap, 2017)",
		Kernel:   "fs/iomap/direct-io.c:iomap_dio_complete()",
		Scenario: "unaligned-zeros", Base: "unaligned-check-first",
	},
	WrongOrderedWhole: {
		Name:     "WRONG_ORDERED_WHOLE",
		Does:     "a direct write whose source is in memory only in part gives up the whole ordered extent, not only the rest of it",
		Effect:   "allows a hole in a write that has reported success: the part that was written does not get into the trees",
		Source:   `before "btrfs: split partial dio bios before submit" (6.4)`,
		Kernel:   "fs/btrfs/direct-io.c:btrfs_dio_submit_io()",
		Scenario: "direct-fault", Base: "modern",
	},
	WrongChecksAgain: {
		Name:     "WRONG_CHECKS_AGAIN",
		Does:     "a direct write drops i_rwsem while it faults its source in, and then does its checks again, which take the position of an append from i_size",
		Effect:   "allows an append to begin at an i_size that it has moved itself: the file is too long and begins with a hole",
		Source:   `before "btrfs: fix corruption after buffer fault in during direct IO append write" (6.11)`,
		Kernel:   "fs/btrfs/direct-io.c:btrfs_direct_write()",
		Scenario: "direct-append-fault", Base: "modern",
	},
	WrongSyncUnmarked: {
		Name:     "WRONG_SYNC_UNMARKED",
		Does:     "the fsync of a durable direct write is not told that its own task holds i_rwsem",
		Effect:   "allows a deadlock of a task with itself: fsync takes i_rwsem, which its own write holds",
		Source:   "before 0eb79294dbe3 (5.10)",
		Kernel:   "fs/btrfs/file.c:btrfs_sync_file()",
		Scenario: "direct-dsync", Base: "modern",
	},
	WrongSyncMarkOnFile: {
		Name:     "WRONG_SYNC_MARK_ON_FILE",
		Does:     "the fsync of a durable direct write learns from the open file, and not from its task, that i_rwsem is held",
		Effect:   "allows an fsync of another task by the same open file to go on without i_rwsem",
		Source:   `that fix, before "btrfs: fix race between direct IO write and fsync when using same fd" (both 6.11)`,
		Kernel:   "fs/btrfs/file.c:btrfs_sync_file()",
		Scenario: "direct-dsync", Base: "modern",
	},
	WrongNowaitSnapshotKept: {
		Name:     "WRONG_NOWAIT_SNAPSHOT_KEPT",
		Does:     "the check before a NOWAIT direct write, which D2_SINGLE_CHECK removes, keeps snapshots out and does not let them in again",
		Effect:   "allows the next snapshot to wait for ever: the task that kept it out has gone",
		Source:   `before "btrfs: fix hang on snapshot creation after RWF_NOWAIT write" (5.8)`,
		Kernel:   "fs/btrfs/file.c:btrfs_file_write_iter()",
		Scenario: "nowait-dio-snapshot", Base: "nowait-5.8",
	},
	WrongNowaitCsumSearch: {
		Name:     "WRONG_NOWAIT_CSUM_SEARCH",
		Does:     "a NOWAIT direct write that asks whether it may go in place waits for tree blocks in its search for checksums",
		Effect:   "allows a NOWAIT write to sleep for a tree block that a completion has locked",
		Source:   `before "btrfs: fix assertion failure and blocking during nowait buffered write" (6.1), in a direct write and one step earlier`,
		Kernel:   "fs/btrfs/file-item.c:btrfs_lookup_csums_list()",
		Scenario: "nowait-dio-csums", Base: "nowait-6.1",
	},
	WrongNowaitSpin: {
		Name:     "WRONG_NOWAIT_SPIN",
		Does:     "a NOWAIT request tries a busy delayed reference again until it is free",
		Effect:   "allows a NOWAIT request to use its processor up until another task is done",
		Source:   "before ed67f2a913a4 (6.13)",
		Kernel:   "fs/btrfs/extent-tree.c:btrfs_cross_ref_exist()",
		Scenario: "nowait-dio-refs", Base: "nowait-6.1",
	},
	WrongLogUnwritten: {
		Name:     "WRONG_LOG_UNWRITTEN",
		Does:     "fsync logs an ordered extent whose data is on its way to the device",
		Effect:   "allows a file with whatever the device had, after a loss of power: the log names the extent, and the data is not there",
		Source:   "before de0ee0edb21f (4.6), which mended the order that hid the extent",
		Kernel:   "fs/btrfs/inode.c:btrfs_new_extent_direct()",
		Scenario: "direct-log", Base: "fsync-5.17",
	},
	WrongLogUnattached: {
		Name:     "WRONG_LOG_UNATTACHED",
		Does:     "a commit does not wait for the ordered extents that only a log has so far",
		Effect:   "allows the loss of what an fsync has promised: the commit frees the log, and the trees do not have the extent",
		Source:   "never in a kernel: what pending_ordered is for",
		Kernel:   "fs/btrfs/tree-log.c:btrfs_log_changed_extents()",
		Shows:    "a commit frees a log before the trees have the data of its ordered extents",
		Scenario: "log-commit-files", Base: "locked",
	},
	WrongRingRetryWhole: {
		Name:     "WRONG_RING_RETRY_WHOLE",
		Does:     "the worker that goes on after a short attempt begins with the first byte again",
		Effect:   "allows a worker to put old bytes over those of a write that came after the attempt",
		Source:   "never in a kernel: what bytes_done is for",
		Kernel:   "io_uring/rw.c:io_write()",
		Scenario: "ring-short", Base: "nowait-6.1",
	},
	WrongRingUnhashed: {
		Name:     "WRONG_RING_UNHASHED",
		Does:     "workers carry out buffered writes of one inode side by side",
		Effect:   "allows the first of two submitted writes to be carried out last: its bytes stay",
		Source:   "never in a kernel: what IO_WQ_WORK_HASHED is for",
		Kernel:   "io_uring/io_uring.c:io_prep_async_work()",
		Scenario: "ring-order", Base: "nowait-6.1",
	},
	WrongLogSuperFirst: {
		Name:     "WRONG_LOG_SUPER_FIRST",
		Does:     "the superblock names the tree of logs before its blocks are on the device",
		Effect:   "allows a superblock that points to blocks which are not there after a loss of power",
		Source:   "never in a kernel: what the wait for log blocks in btrfs_sync_log() is for",
		Kernel:   "fs/btrfs/tree-log.c:btrfs_sync_log()",
		Scenario: "testdata/crash/generic-056.ops", Base: "fsync-5.17",
	},
	WrongLogNoFlush: {
		Name:     "WRONG_LOG_NO_FLUSH",
		Does:     "no flush comes between the blocks of a log and the superblock",
		Effect:   "allows the device to write the superblock before the log that it names",
		Source:   "never in a kernel: what the flush before a superblock is for",
		Kernel:   "fs/btrfs/disk-io.c:write_all_supers()",
		Scenario: "testdata/crash/generic-056.ops", Base: "fsync-5.17",
	},
	WrongLogNoSums: {
		Name:     "WRONG_LOG_NO_SUMS",
		Does:     "a log has file extents without their checksums",
		Effect:   "allows a replayed file that cannot be read: its data has no checksums",
		Source:   "never in a kernel: what log_extent_csums() is for",
		Kernel:   "fs/btrfs/tree-log.c:log_extent_csums()",
		Scenario: "testdata/crash/generic-056.ops", Base: "fsync-5.17",
	},
	WrongLogBeforeData: {
		Name:     "WRONG_LOG_BEFORE_DATA",
		Does:     "an fsync copies the inode to the log first, and waits for its data and its ordered extents after that",
		Effect:   "allows the loss of data that was synced: the log has the inode as it was before its data was ordered",
		Source:   "never in a kernel: what the wait for ordered extents in fsync is for",
		Kernel:   "fs/btrfs/file.c:btrfs_sync_file()",
		Scenario: "testdata/crash/generic-056.ops", Base: "fsync-5.17",
	},
	WrongLogUnpinned: {
		Name:     "WRONG_LOG_UNPINNED",
		Does:     "a replay does not reserve the blocks of the logs, so that it may allocate them",
		Effect:   "allows a replay to overwrite the logs that it reads",
		Source:   "never in a kernel: what the first pass of a replay is for",
		Kernel:   "fs/btrfs/tree-log.c:btrfs_recover_log_trees()",
		Scenario: "testdata/crash/generic-056.ops", Base: "fsync-5.17",
	},
	WrongLogChangedXattrs: {
		Name:     "WRONG_LOG_CHANGED_XATTRS",
		Does:     "a log has the attributes of an inode only if the transaction has changed its names or attributes",
		Effect:   "allows the loss of an attribute that an earlier transaction has set: the log has the inode without it, so the replay removes it",
		Source:   "before 36283bf777d9",
		Kernel:   "fs/btrfs/tree-log.c:btrfs_log_inode()",
		Scenario: "testdata/crash/xattr-loss.ops", Base: "fsync-5.17",
	},
	WrongLogNoHoles: {
		Name:     "WRONG_LOG_NO_HOLES",
		Does:     "a log has no items for holes",
		Effect:   "allows punched bytes to come back after a loss of power: the replay leaves the extents of the last commit in the hole",
		Source:   `before "Btrfs: fix missing hole after hole punching and fsync when using NO_HOLES", for all holes`,
		Kernel:   "fs/btrfs/tree-log.c:btrfs_log_holes()",
		Scenario: "testdata/crash/missing-hole.ops", Base: "fsync-5.17",
	},
	WrongLogLostNames: {
		Name:     "WRONG_LOG_LOST_NAMES",
		Does:     "the loss of a name does not mark an inode as changed, and an fsync does not look at the names that the transaction has removed from the inode",
		Effect:   "allows a removed name to be there after a replay, or an inode with the wrong number of names",
		Source:   "as before 12fcfd22fe5b, for the names of the inode",
		Kernel:   "fs/btrfs/tree-log.c:btrfs_record_unlink_dir()",
		Scenario: "testdata/crash/generic-039.ops", Base: "fsync-5.17",
	},
	WrongLogTakenNames: {
		Name:     "WRONG_LOG_TAKEN_NAMES",
		Does:     "an fsync logs an inode under a name that the transaction has taken from another inode, and does not log that one",
		Effect:   "allows a lost file: a replay takes the name from the file that had it, whose new name was not logged",
		Source:   `before "Btrfs: fix file loss caused by fsync after rename and new inode"`,
		Kernel:   "fs/btrfs/tree-log.c:btrfs_check_ref_name_override()",
		Scenario: "testdata/crash/generic-342.ops", Base: "fsync-5.17",
	},
	WrongLogKeepXattrs: {
		Name:     "WRONG_LOG_KEEP_XATTRS",
		Does:     "a replay does not remove the attributes of an inode that its log lacks",
		Effect:   "allows a removed attribute to be there after a replay",
		Source:   "before 4f764e515361",
		Kernel:   "fs/btrfs/tree-log.c:replay_xattr_deletes()",
		Scenario: "testdata/crash/generic-066.ops", Base: "fsync-5.17",
	},
	WrongLogKeepSize: {
		Name:     "WRONG_LOG_KEEP_SIZE",
		Does:     "a replay that takes a name out of a directory leaves the directory's size as it was",
		Effect:   "allows a directory that cannot be removed: its size counts a name that is gone",
		Source:   `before "Btrfs: fix directory inconsistency after fsync log replay"`,
		Kernel:   "fs/btrfs/tree-log.c:drop_one_dir_item()",
		Scenario: "testdata/crash/link-unlink.ops", Base: "fsync-5.17",
	},
	WrongLogNoConflicts: {
		Name:     "WRONG_LOG_NO_CONFLICTS",
		Does:     "a replay gives an inode its name without taking it from an inode that has it",
		Effect:   "allows a replay to fail because the name is there already, so that the image cannot be opened for writing; shown with WRONG_LOG_TAKEN_NAMES, which leaves the inode that had the name out of the log",
		Source:   "before 34f3e4f23ca3 and 1f250e929a9c, which mend two cases of it",
		Kernel:   "fs/btrfs/tree-log.c:add_inode_ref()",
		Scenario: "testdata/crash/link-unlink.ops", Base: "fsync-5.17+WRONG_LOG_TAKEN_NAMES",
	},
	WrongLogPunchUnmarked: {
		Name:     "WRONG_LOG_PUNCH_UNMARKED",
		Does:     "a punch inside one block does not mark the inode, and an fsync that finds it unmarked has nothing to do",
		Effect:   "allows the old bytes to be there after a loss of power, though the fsync after the punch has returned",
		Source:   `before "Btrfs: add missing inode update when punching hole"`,
		Kernel:   "fs/btrfs/file.c:btrfs_punch_hole()",
		Scenario: "testdata/crash/generic-059.ops", Base: "fsync-5.17",
	},
	WrongLogOldNumbers: {
		Name:     "WRONG_LOG_OLD_NUMBERS",
		Does:     "after a replay new inode numbers go on from the largest of the last commit, whatever the replay has made",
		Effect:   "allows EEXIST for a new file: its number is that of a file that the replay has made",
		Source:   `before "Btrfs: fix unexpected -EEXIST when creating new inode"; from 4.4 on`,
		Kernel:   "fs/btrfs/tree-log.c:btrfs_recover_log_trees()",
		Scenario: "testdata/crash/inode-eexist.ops", Base: "fsync-5.17",
	},
	WrongLogNamesUnpinned: {
		Name:     "WRONG_LOG_NAMES_UNPINNED",
		Does:     "an inode is logged in the middle of a change of its names",
		Effect:   "allows a lost file: the log has it in the middle of its rename, without a name",
		Source:   `as before "Btrfs: pin log earlier when renaming" (2016), for all of a rename`,
		Kernel:   "fs/btrfs/inode.c:btrfs_rename()",
		Scenario: "log-pin", Base: "fsync-5.17",
	},
	WrongLogShareEarly: {
		Name:     "WRONG_LOG_SHARE_EARLY",
		Does:     "an fsync whose part of the log another task is writing does not wait until it is written",
		Effect:   "allows an fsync to return before the log with its file is on the device",
		Source:   "never in a kernel: what wait_log_commit() is for",
		Kernel:   "fs/btrfs/tree-log.c:btrfs_sync_log()",
		Scenario: "log-group", Base: "fsync-5.17",
	},
	WrongStripeUnlocked: {
		Name:     "WRONG_STRIPE_UNLOCKED",
		Does:     "a write of RAID5 or RAID6 reads the rest of its full stripe and writes the parity without the stripe lock",
		Effect:   "allows two writers of one full stripe to make the parity of old data of each other: with the next device that fails, bytes come back that no task has written",
		Source:   "never in a kernel: what the stripe hash table is for",
		Kernel:   "fs/btrfs/raid56.c:lock_stripe_add()",
		Scenario: "stripe-writers", Base: "locked",
	},
}

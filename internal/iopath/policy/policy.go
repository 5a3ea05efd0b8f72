// Package policy says, as data, which locks an operation on a file takes and in which order it takes
// its steps. It is pure: an operation, facts about the inode and a Policy go in, a Plan comes out;
// the packages that carry out system calls ask for a plan and follow it.
//
// A Policy is a set of toggles. Each toggle is one published change, kept or refused, and carries its
// source, the kernel function it changes and the scenario that shows its effect (Toggles). A preset is
// a set of toggles with a name (Presets): an era of the kernel, or a proposal of the thread of seed 002.
//
// Model: labs/reference 1, 2 and 11. The eras differ in much that a buffered write of one
// file cannot show (direct I/O, the log tree); this package has only the toggles that the paths use. Not among them: CLEAN_DIRTY
// at the lock step, where kernels before 4.19 took a page's dirty mark off before the copy that may come short.
package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Policy is a named set of toggles. The zero value is the kernel of 2018 before seed 002 with no name.
type Policy struct {
	Name string
	// About is one line for people.
	About string

	// BufUnlockInEOF: a buffered write that ends inside i_size lets i_rwsem go for the copy loop and
	// counts itself in i_dio_count instead.
	BufUnlockInEOF bool
	// SetsizeDrainFirst: setsize waits for i_dio_count before it changes i_size, not after.
	SetsizeDrainFirst bool
	// PrewaitOutside: a write inside i_size waits for writeback and ordered extents of its range
	// before it takes i_rwsem. It only shortens the waits under the lock; those stay.
	PrewaitOutside bool
	// BalanceOutside: dirty throttling after i_rwsem is let go, not between batches under it.
	BalanceOutside bool
	// BalanceBeforeFolio: dirty throttling before the pages of a batch are locked, still under i_rwsem.
	BalanceBeforeFolio bool
	// WriteRangeLock: a write inside i_size holds its whole byte range instead of i_rwsem.
	WriteRangeLock bool
	// CopyByFolio: the copy loop takes one folio (a page) at a time, not a batch of 8 to 512 pages.
	CopyByFolio bool
	// StableSkipNodatasum: files without checksums do not wait for writeback of a page they overwrite.
	StableSkipNodatasum bool
	// PunchRecheckOE: punch hole accepts its range only when it has neither pages nor ordered extents.
	PunchRecheckOE bool
	// ExtentLockBackOff: a wait for an extent range keeps nothing of it meanwhile.
	ExtentLockBackOff bool
	// DIOShared: a direct write inside i_size takes i_rwsem shared, not exclusive to let it go for the I/O.
	DIOShared bool
	// DIOLocked: a direct I/O takes a range bit of its own before the extent lock, and keeps it while it waits.
	DIOLocked bool
	// DIOCsumBuffered: a direct write of a file with checksums goes through the page cache.
	DIOCsumBuffered bool
	// NowaitBuffered: a buffered write with NOWAIT is tried; without it the answer is EOPNOTSUPP.
	NowaitBuffered bool
	// NowaitTryPages: a NOWAIT write tries the locks of its pages, and waits neither for their writeback nor for a read.
	NowaitTryPages bool
	// NowaitTryOrdered: a NOWAIT write that finds an ordered extent in its range answers without a wait for it.
	NowaitTryOrdered bool
	// NowaitEDQUOT: a NOWAIT write says EAGAIN where a quota lacks metadata space that a flush might win.
	NowaitEDQUOT bool
	// NowaitTryExpand: a NOWAIT write that begins beyond EOF answers instead of zeroing a block.
	NowaitTryExpand bool
	// NowaitTryFault: a NOWAIT write answers instead of taking a page fault of its source.
	NowaitTryFault bool
	// NowaitCOW: a NOWAIT write is tried on every inode, not only on one that is NODATACOW or preallocated.
	NowaitCOW bool
	// DIONofault: a direct write touches no page of its source that is not there, with an ordered extent in its hands: it ends what it
	// has, faults the rest in, and goes on.
	DIONofault bool
	// DIOSyncHeld: a durable direct write that is waited for syncs the file before it lets i_rwsem go.
	DIOSyncHeld bool
	// NowaitCheckTry: the check before a NOWAIT direct write tries the range of the request; without it, it waits there.
	NowaitCheckTry bool
	// NowaitCheckWhole: the check before a NOWAIT direct write asks about all of the request, not about its first extent.
	NowaitCheckWhole bool
	// NowaitPastEOF: a NOWAIT direct write may end beyond EOF, if the extents are there.
	NowaitPastEOF bool
	// NowaitOneExtent: a NOWAIT direct request of several extents is EAGAIN before its first one is started.
	NowaitOneExtent bool
	// NowaitAsyncExt: a NOWAIT direct request that finds dirty pages in its range once more answers instead of writing them back.
	NowaitAsyncExt bool
	// NowaitTryRange: a NOWAIT direct request tries its range, and does not go through the page cache if a page came into it.
	NowaitTryRange bool
	// NowaitCheckOnce: the question whether a NOWAIT direct write may go in place is asked once, under the range's lock.
	NowaitCheckOnce bool
	// NocowPathReuse: the search for other references uses the path of the question.
	NocowPathReuse bool
	// NocowPathFree: the path of the question is free when the checksums are searched.
	NocowPathFree bool
	// NocowEarlyRelease: the leaf is let go after the last read from it, before block group and io tree are asked.
	NocowEarlyRelease bool
	// NowaitContext: a NOWAIT direct request that needs memory answers instead of waiting for reclaim.
	NowaitContext bool
	// NowaitNoFlush: a NOWAIT direct write reserves metadata without a flush.
	NowaitNoFlush bool
	// NowaitTryTree: a NOWAIT request tries tree blocks and delayed references, and reads no block.
	NowaitTryTree bool
	// NocowAskAlways: a NOWAIT direct write asks the trees although the answer for its extent is known.
	NocowAskAlways bool
	// UnalignedExclusive, UnalignedCheckFirst and UnalignedRetry: a direct write of sectors that are not whole blocks goes to the device,
	// with i_rwsem exclusive, with the lock that the state of its block asks for, or with the shared one until it is sent back. Without any it
	// goes through the page cache.
	UnalignedExclusive, UnalignedCheckFirst, UnalignedRetry bool
	// Wrong are orders that were bugs; see Wrongs.
	Wrong Wrong

	// SetsizeSteps, unless it is zero, is the order of the steps of a shrinking setsize, whatever SetsizeDrainFirst says. It has
	// no toggle: labs/04-truncate-race fills it.
	SetsizeSteps SetsizeOrder
	// WriteSteps, unless it is zero, is the order of the steps of a write's batch, whatever the toggles of dirty throttling say.
	// It has no toggle: it is for labs.
	WriteSteps WriteOrder
}

// Toggle describes one switch of a Policy.
type Toggle struct {
	Name     string // as written in specifications and reports: BUF_UNLOCK_IN_EOF
	Source   string // seed or kernel commit
	Kernel   string // the function that changes
	Scenario string // the schedule that shows the effect
	Field    func(p *Policy) *bool
}

// Toggles lists every toggle, in the order of labs/reference 11.
var Toggles = []Toggle{
	{
		Name:     "BUF_UNLOCK_IN_EOF",
		Source:   "seed 002 (Robbie Ko, 2018-05-16)",
		Kernel:   "fs/btrfs/file.c:__btrfs_buffered_write()",
		Scenario: "two writers of one page each overlap their waits; two writers of two batches each may interleave",
		Field:    func(p *Policy) *bool { return &p.BufUnlockInEOF },
	},
	{
		Name:     "SETSIZE_DRAIN_FIRST",
		Source:   "seed 002 (Omar Sandoval, 2018-05-22; accepted by Robbie Ko)",
		Kernel:   "fs/btrfs/inode.c:btrfs_setsize()",
		Scenario: "truncate sets i_size, waits for an unlocked writer, which puts i_size back: the truncate is lost",
		Field:    func(p *Policy) *bool { return &p.SetsizeDrainFirst },
	},
	{
		Name:     "PREWAIT_OUTSIDE",
		Source:   "seed 002 (Chris Mason, 2018-05-24)",
		Kernel:   "fs/btrfs/file.c:btrfs_file_write_iter()",
		Scenario: "one writer waits for writeback of its page under i_rwsem while another, of an idle page, waits for the lock",
		Field:    func(p *Policy) *bool { return &p.PrewaitOutside },
	},
	{
		Name:     "BALANCE_OUTSIDE",
		Source:   "seed 002 (Chris Mason, 2018-05-24)",
		Kernel:   "fs/btrfs/file.c:btrfs_file_write_iter()",
		Scenario: "a throttled writer sleeps under i_rwsem and all others of the file with it",
		Field:    func(p *Policy) *bool { return &p.BalanceOutside },
	},
	{
		Name:     "BALANCE_BEFORE_FOLIO",
		Source:   "965f47aeb5de (6.1)",
		Kernel:   "fs/btrfs/file.c:btrfs_buffered_write()",
		Scenario: "a throttled writer holds no page, but still i_rwsem",
		Field:    func(p *Policy) *bool { return &p.BalanceBeforeFolio },
	},
	{
		Name:     "WRITE_RANGE_LOCK",
		Source:   "seed 002 (Christoph Hellwig, 2018-05-23: \"some sort of range lock\")",
		Kernel:   "none: never written",
		Scenario: "two writers of two batches each: disjoint ones run together, overlapping ones do not mix",
		Field:    func(p *Policy) *bool { return &p.WriteRangeLock },
	},
	{
		Name:     "COPY_BY_FOLIO",
		Source:   "c87c299776e4 (6.13)",
		Kernel:   "fs/btrfs/file.c:btrfs_buffered_write(), later copy_one_range()",
		Scenario: "a write of two pages becomes two steps; the atoms of an unlocked write are pages",
		Field:    func(p *Policy) *bool { return &p.CopyByFolio },
	},
	{
		Name:     "STABLE_SKIP_NODATASUM",
		Source:   "ecde48a1a6b3 (6.15)",
		Kernel:   "fs/btrfs/btrfs_inode.h:btrfs_update_inode_mapping_flags()",
		Scenario: "a rewrite of a page under writeback in a NOCOW file does not wait",
		Field:    func(p *Policy) *bool { return &p.StableSkipNodatasum },
	},
	{
		Name:     "PUNCH_RECHECK_OE",
		Source:   "removed by 55961c8abfdc, ffa8fc603d27 (5.19)",
		Kernel:   "fs/btrfs/file.c:btrfs_punch_hole_lock_range()",
		Scenario: "an unlocked writer dirties the punched range after the flush; with the check the punch flushes again",
		Field:    func(p *Policy) *bool { return &p.PunchRecheckOE },
	},
	{
		Name:     "EXTENT_LOCK_BACK_OFF",
		Source:   "9e769bd7e5db (6.1)",
		Kernel:   "fs/btrfs/extent-io-tree.c:lock_extent()",
		Scenario: "a waiter for a large range that keeps its first half stops an ordered extent from finishing there",
		Field:    func(p *Policy) *bool { return &p.ExtentLockBackOff },
	},
	{
		Name:     "DIO_SHARED",
		Source:   "e9adabb9712e (5.11)",
		Kernel:   "fs/btrfs/file.c:btrfs_direct_write()",
		Scenario: "two direct writers inside EOF run together; without it each has i_rwsem until its checks are done",
		Field:    func(p *Policy) *bool { return &p.DIOShared },
	},
	{
		Name:     "DIO_LOCKED",
		Source:   "7e2a59508472, ac325fc2aad5 (6.12)",
		Kernel:   "fs/btrfs/direct-io.c:lock_extent_direct()",
		Scenario: "a direct read keeps the extent lock no longer while the device reads: the page fault of its buffer can take it",
		Field:    func(p *Policy) *bool { return &p.DIOLocked },
	},
	{
		Name:     "DIO_CSUM_BUFFERED",
		Source:   "968f19c5b1b7 (6.15)",
		Kernel:   "fs/btrfs/direct-io.c:btrfs_direct_write()",
		Scenario: "the memory of a direct write changes while it is checksummed",
		Field:    func(p *Policy) *bool { return &p.DIOCsumBuffered },
	},
	{
		Name:     "NOWAIT_BUFFERED",
		Source:   "seed 001 (Stefan Roesch, 6.1)",
		Kernel:   "fs/btrfs/file.c:btrfs_do_write_iter()",
		Scenario: "a ring writes inline, where each buffered write went to a worker before",
		Field:    func(p *Policy) *bool { return &p.NowaitBuffered },
	},
	{
		Name:     "NOWAIT_TRY_PAGES",
		Source:   "none: Linux up to 6.19 prepares the folios of a NOWAIT write as those of any other",
		Kernel:   "fs/btrfs/file.c:prepare_one_folio()",
		Scenario: "nowait-stable: a NOWAIT write of a page under writeback",
		Field:    func(p *Policy) *bool { return &p.NowaitTryPages },
	},
	{
		Name:     "NOWAIT_TRY_ORDERED",
		Source:   "none: Linux up to 6.19 waits for the ordered extent, then says EAGAIN",
		Kernel:   "fs/btrfs/file.c:lock_and_cleanup_extent_if_need()",
		Scenario: "nowait-ordered: a NOWAIT write of a range with an ordered extent",
		Field:    func(p *Policy) *bool { return &p.NowaitTryOrdered },
	},
	{
		Name:     "NOWAIT_EDQUOT",
		Source:   "none: Linux up to 6.19 shows EDQUOT to the caller",
		Kernel:   "fs/btrfs/file.c:btrfs_buffered_write()",
		Scenario: "the metadata of a NOWAIT write does not fit the quota, and a flush would help",
		Field:    func(p *Policy) *bool { return &p.NowaitEDQUOT },
	},
	{
		Name:     "NOWAIT_TRY_EXPAND",
		Source:   "none: Linux up to 6.19 zeroes the old last block of a NOWAIT write beyond EOF",
		Kernel:   "fs/btrfs/file.c:btrfs_write_check()",
		Scenario: "nowait-grow: a NOWAIT write beyond an EOF in the middle of a block",
		Field:    func(p *Policy) *bool { return &p.NowaitTryExpand },
	},
	{
		Name:     "NOWAIT_TRY_FAULT",
		Source:   "none: Linux up to 6.19 takes the page faults of a NOWAIT write's source",
		Kernel:   "fs/btrfs/file.c:btrfs_buffered_write()",
		Scenario: "a NOWAIT write from memory that is not there",
		Field:    func(p *Policy) *bool { return &p.NowaitTryFault },
	},
	{
		Name:     "NOWAIT_COW",
		Source:   "none: Linux up to 6.19 refuses a NOWAIT write of an inode that is neither NODATACOW nor preallocated",
		Kernel:   "fs/btrfs/file.c:btrfs_write_check()",
		Scenario: "a NOWAIT write of a plain file",
		Field:    func(p *Policy) *bool { return &p.NowaitCOW },
	},
	{
		Name:     "DIO_NOFAULT",
		Source:   "51bd9563b678 (5.16)",
		Kernel:   "fs/btrfs/direct-io.c:btrfs_direct_write()",
		Scenario: "a direct write whose source is a mapping of the range that it writes waits for its own ordered extent",
		Field:    func(p *Policy) *bool { return &p.DIONofault },
	},
	{
		Name:     "DIO_SYNC_HELD",
		Source:   "\"btrfs: fix race between direct IO write and fsync when using same fd\" (6.11)",
		Kernel:   "fs/btrfs/direct-io.c:btrfs_direct_write()",
		Scenario: "a durable direct write syncs under its own i_rwsem, and an fsync of the same open file takes the lock all the same",
		Field:    func(p *Policy) *bool { return &p.DIOSyncHeld },
	},
	{
		Name:     "UNALIGNED_EXCLUSIVE",
		Source:   "seed 004: ext4 until 310ee0902b8d (6.5)",
		Kernel:   "fs/ext4/file.c:ext4_dio_write_checks()",
		Scenario: "unaligned-writers: two sub-block writers, one after the other whatever their blocks are",
		Field:    func(p *Policy) *bool { return &p.UnalignedExclusive },
	},
	{
		Name:     "UNALIGNED_CHECK_FIRST",
		Source:   "seed 004: 310ee0902b8d (ext4, 6.5)",
		Kernel:   "fs/ext4/file.c:ext4_dio_write_checks()",
		Scenario: "unaligned-writers: two sub-block writers of a written block run together",
		Field:    func(p *Policy) *bool { return &p.UnalignedCheckFirst },
	},
	{
		Name:     "UNALIGNED_RETRY",
		Source:   "seed 004: XFS, IOMAP_DIO_OVERWRITE_ONLY",
		Kernel:   "fs/xfs/xfs_file.c:xfs_file_dio_write_unaligned()",
		Scenario: "unaligned-writers: a sub-block writer begins, and is sent back by a block that is not written",
		Field:    func(p *Policy) *bool { return &p.UnalignedRetry },
	},
	{
		Name:     "NOWAIT_CHECK_TRY",
		Source:   `"btrfs: fix RWF_NOWAIT writes blocking on extent locks and waiting for IO" (5.8)`,
		Kernel:   "fs/btrfs/inode.c:can_nocow_extent()",
		Scenario: "nowait-dio-range: the check before a NOWAIT direct write waits for a range",
		Field:    func(p *Policy) *bool { return &p.NowaitCheckTry },
	},
	{
		Name:     "NOWAIT_CHECK_WHOLE",
		Source:   "260a63395f90 (5.8)",
		Kernel:   "fs/btrfs/file.c:check_can_nocow()",
		Scenario: "a NOWAIT direct write over a written extent and a hole",
		Field:    func(p *Policy) *bool { return &p.NowaitCheckWhole },
	},
	{
		Name:     "NOWAIT_PAST_EOF",
		Source:   "4b1946284dd6 (5.8)",
		Kernel:   "fs/btrfs/inode.c:btrfs_direct_IO()",
		Scenario: "a NOWAIT direct write into preallocated space beyond EOF",
		Field:    func(p *Policy) *bool { return &p.NowaitPastEOF },
	},
	{
		Name:     "NOWAIT_ONE_EXTENT",
		Source:   "ca93e44bfb5f (5.17)",
		Kernel:   "fs/btrfs/inode.c:btrfs_dio_iomap_begin()",
		Scenario: "a NOWAIT direct write of two extents ends after the first",
		Field:    func(p *Policy) *bool { return &p.NowaitOneExtent },
	},
	{
		Name:     "D0_ASYNC_EXT",
		Source:   "seed 000, b023e67512ac (5.19)",
		Kernel:   "fs/btrfs/inode.c:btrfs_dio_iomap_begin()",
		Scenario: "a page of the range becomes dirty after the first look at the cache",
		Field:    func(p *Policy) *bool { return &p.NowaitAsyncExt },
	},
	{
		Name:     "D1_TRYLOCK",
		Source:   "seed 000, 590944034440 (5.19)",
		Kernel:   "fs/btrfs/inode.c:lock_extent_direct()",
		Scenario: "nowait-dio-range: a NOWAIT direct write of a range that a fiemap holds",
		Field:    func(p *Policy) *bool { return &p.NowaitTryRange },
	},
	{
		Name:     "D2_SINGLE_CHECK",
		Source:   "seed 000, d7a8ab4e9b88 (5.19)",
		Kernel:   "fs/btrfs/file.c:btrfs_write_check()",
		Scenario: "six tree searches of a NOWAIT direct overwrite become three",
		Field:    func(p *Policy) *bool { return &p.NowaitCheckOnce },
	},
	{
		Name:     "D3_PATH_REUSE",
		Source:   "seed 000, 1a89f1738684 (5.19)",
		Kernel:   "fs/btrfs/extent-tree.c:btrfs_cross_ref_exist()",
		Scenario: "a path less for each question",
		Field:    func(p *Policy) *bool { return &p.NocowPathReuse },
	},
	{
		Name:     "D4_PATH_FREE",
		Source:   "seed 000, c1a548db25c3 (5.19)",
		Kernel:   "fs/btrfs/inode.c:can_nocow_extent()",
		Scenario: "a path less for each question",
		Field:    func(p *Policy) *bool { return &p.NocowPathFree },
	},
	{
		Name:     "D5_EARLY_RELEASE",
		Source:   "seed 000, 59d35c5171e6 (5.19)",
		Kernel:   "fs/btrfs/inode.c:can_nocow_extent()",
		Scenario: "a writer of the leaf waits for a look at the block group",
		Field:    func(p *Policy) *bool { return &p.NocowEarlyRelease },
	},
	{
		Name:     "D6_GFP_NOWAIT",
		Source:   "seed 000, 4f208dcc6bf5 (5.19)",
		Kernel:   "fs/btrfs/inode.c:btrfs_dio_iomap_begin()",
		Scenario: "memory is short",
		Field:    func(p *Policy) *bool { return &p.NowaitContext },
	},
	{
		Name:     "D7_NOFLUSH",
		Source:   "seed 000, d4135134ab8f (5.19)",
		Kernel:   "fs/btrfs/delalloc-space.c:btrfs_delalloc_reserve_metadata()",
		Scenario: "a NOWAIT direct write with metadata space promised to others",
		Field:    func(p *Policy) *bool { return &p.NowaitNoFlush },
	},
	{
		Name:     "NOWAIT_TRY_TREE",
		Source:   "26ce91144631 (6.1)",
		Kernel:   "fs/btrfs/ctree.c:btrfs_search_slot()",
		Scenario: "nowait-dio-refs: a NOWAIT direct write while another task has the delayed references",
		Field:    func(p *Policy) *bool { return &p.NowaitTryTree },
	},
	{
		Name:     "NOCOW_ASK_ALWAYS",
		Source:   "every kernel; without it an answer is kept with the extent",
		Kernel:   "fs/btrfs/inode.c:can_nocow_extent()",
		Scenario: "the second NOWAIT direct write of an extent searches no tree",
		Field:    func(p *Policy) *bool { return &p.NocowAskAlways },
	},
}

// Presets are the eras and proposals of buffered writes, in the order in which reports show them.
var Presets = []Policy{
	{
		Name: "locked", About: "Linux 4.17: the whole write under i_rwsem",
		PunchRecheckOE: true,
	},
	{
		Name: "unlocked", About: "seed 002 as posted: writes inside EOF drop i_rwsem",
		BufUnlockInEOF: true, PunchRecheckOE: true,
	},
	{
		Name: "unlocked-drain", About: "seed 002 with the fix of the thread: setsize waits for writers first",
		BufUnlockInEOF: true, SetsizeDrainFirst: true, PunchRecheckOE: true,
	},
	{
		Name: "prewait", About: "Mason: stable-page waits before, throttling after i_rwsem",
		PrewaitOutside: true, BalanceOutside: true, PunchRecheckOE: true,
	},
	{
		Name: "range-lock", About: "Hellwig: the byte range of the write is locked instead of the inode",
		WriteRangeLock: true, PunchRecheckOE: true, ExtentLockBackOff: true,
	},
	{
		Name: "modern", About: "Linux 6.18: one folio at a time under i_rwsem",
		BalanceBeforeFolio: true, CopyByFolio: true, StableSkipNodatasum: true,
		ExtentLockBackOff: true,
		DIOShared:         true, DIOLocked: true, DIOCsumBuffered: true, DIONofault: true, DIOSyncHeld: true,
		NowaitCheckTry: true, NowaitCheckWhole: true, NowaitPastEOF: true, NowaitOneExtent: true,
		NowaitAsyncExt: true, NowaitTryRange: true, NowaitCheckOnce: true, NocowPathReuse: true, NocowPathFree: true,
		NocowEarlyRelease: true, NowaitContext: true, NowaitNoFlush: true, NowaitTryTree: true,
		NowaitBuffered: true,
	},
}

// NowaitPresets are the eras of NOWAIT, oldest first. Names does not list them: for other requests they are the kernels of Presets.
var NowaitPresets = []Policy{
	{
		Name: "nowait-4.13", About: "Linux 4.13 to 5.7: direct writes with NOWAIT, which check first and wait all the same",
		PunchRecheckOE: true,
		NocowAskAlways: true,
	},
	{
		Name: "nowait-5.8", About: "Linux 5.11 to 5.18, with the fixes of 5.8: the kernel before seed 000",
		PunchRecheckOE: true, DIOShared: true, DIONofault: true,
		NowaitCheckTry: true, NowaitCheckWhole: true, NowaitPastEOF: true, NowaitOneExtent: true,
		NocowAskAlways: true,
	},
	{
		Name: "nowait-5.19", About: "the same kernel with the eight patches of seed 000",
		PunchRecheckOE: true, DIOShared: true, DIONofault: true,
		NowaitCheckTry: true, NowaitCheckWhole: true, NowaitPastEOF: true, NowaitOneExtent: true,
		NowaitAsyncExt: true, NowaitTryRange: true, NowaitCheckOnce: true, NocowPathReuse: true, NocowPathFree: true,
		NocowEarlyRelease: true, NowaitContext: true, NowaitNoFlush: true,
		NocowAskAlways: true,
	},
	{
		Name: "nowait-6.1", About: "Linux 6.1: buffered writes with NOWAIT, which sleep at some places",
		BalanceBeforeFolio: true, ExtentLockBackOff: true, DIOShared: true, DIONofault: true,
		NowaitCheckTry: true, NowaitCheckWhole: true, NowaitPastEOF: true, NowaitOneExtent: true,
		NowaitAsyncExt: true, NowaitTryRange: true, NowaitCheckOnce: true, NocowPathReuse: true, NocowPathFree: true,
		NocowEarlyRelease: true, NowaitContext: true, NowaitNoFlush: true, NowaitTryTree: true,
		NocowAskAlways: true, NowaitBuffered: true,
	},
	{
		Name: "nowait-strict", About: "no kernel: a NOWAIT write never sleeps, and may be of any file",
		BalanceBeforeFolio: true, ExtentLockBackOff: true, DIOShared: true, DIONofault: true,
		NowaitCheckTry: true, NowaitCheckWhole: true, NowaitPastEOF: true, NowaitOneExtent: true,
		NowaitAsyncExt: true, NowaitTryRange: true, NowaitCheckOnce: true, NocowPathReuse: true, NocowPathFree: true,
		NocowEarlyRelease: true, NowaitContext: true, NowaitNoFlush: true, NowaitTryTree: true,
		NowaitBuffered: true, NowaitTryPages: true, NowaitTryOrdered: true, NowaitEDQUOT: true, NowaitTryExpand: true, NowaitTryFault: true, NowaitCOW: true,
	},
}

// Names lists the presets.
func Names() []string {
	names := make([]string, len(Presets))
	for i := range Presets {
		names[i] = Presets[i].Name
	}
	return names
}

// NowaitNames lists the presets of NOWAIT.
func NowaitNames() []string {
	names := make([]string, len(NowaitPresets))
	for i := range NowaitPresets {
		names[i] = NowaitPresets[i].Name
	}
	return names
}

// Parse reads a specification: the name of a preset, of Presets or NowaitPresets, then any number of "+TOGGLE" and "!TOGGLE", which
// switch a toggle on and off: "unlocked+SETSIZE_DRAIN_FIRST". The result's Name is spec.
func Parse(spec string) (Policy, error) {
	name, rest := cutToggle(spec)
	all := slices.Concat(Presets, NowaitPresets)
	i := slices.IndexFunc(all, func(p Policy) bool { return p.Name == name })
	if i < 0 {
		return Policy{}, fmt.Errorf("unknown policy %q, want one of %s", name, strings.Join(slices.Concat(Names(), NowaitNames()), ", "))
	}
	p := all[i]
	for rest != "" {
		on := rest[0] == '+'
		name, rest = cutToggle(rest[1:])
		t := findToggle(name)
		if t == nil {
			return p, fmt.Errorf("unknown toggle %q in policy %q", name, spec)
		}
		*t.Field(&p) = on
	}
	p.Name = spec
	return p, nil
}

// cutToggle cuts s before its first + or !.
func cutToggle(s string) (name, rest string) {
	if i := strings.IndexAny(s, "+!"); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

func findToggle(name string) *Toggle {
	for i := range Toggles {
		if Toggles[i].Name == name {
			return &Toggles[i]
		}
	}
	for i := range Wrongs {
		if Wrongs[i].Name == name {
			return &Wrongs[i]
		}
	}
	return nil
}

// MustParse is Parse for specifications in code.
func MustParse(spec string) *Policy {
	p, err := Parse(spec)
	if err != nil {
		panic("policy: " + err.Error())
	}
	return &p
}

// On lists the names of the toggles that are on.
func (p *Policy) On() []string {
	var on []string
	for i := range Toggles {
		if *Toggles[i].Field(p) {
			on = append(on, Toggles[i].Name)
		}
	}
	for i := range Wrongs {
		if *Wrongs[i].Field(p) {
			on = append(on, Wrongs[i].Name)
		}
	}
	return on
}

// Op is what a plan is for.
type Op uint8

// The operations.
const (
	Write Op = iota
	SetSize
	Fallocate
	PunchHole
	DirectWrite
	DirectRead
)

// Facts is what a plan may depend on. ISize is only as good as the lock under which it was read: a room that takes the locks of a
// plan asks for the plan again under them.
type Facts struct {
	Start, End uint64 // bytes of the write, punch or allocation: [Start, End)
	ISize      uint64
	NewSize    uint64 // setsize only
	NoDataSum  bool
	InodeHeld  bool // the caller has taken i_rwsem: a plan without it comes too late
	Nowait     bool // the request is NOWAIT
	MayNocow   bool // the inode is NODATACOW or preallocated
	SubBlock   bool // a direct write of sectors that are not whole blocks, of a file that takes them in place
}

// InEOF reports whether the range ends inside the file.
func (f *Facts) InEOF() bool { return f.End <= f.ISize }

// Lock is what guards the operation against others on the same file.
type Lock uint8

// The locks.
const (
	LockInode     Lock = iota // i_rwsem exclusive, from begin to end
	LockInodeDrop             // i_rwsem exclusive, let go for the copy loop or the I/O (i_dio_count stands in)
	LockShared                // i_rwsem shared
	LockNone                  // nothing but the extent ranges
	LockRange                 // the byte range, without i_rwsem
	LockBoth                  // i_rwsem exclusive and the byte range
)

var lockNames = [...]string{"inode", "inode-drop", "shared", "none", "range", "both"}

func (l Lock) String() string { return lockNames[l] }

// Inode reports whether i_rwsem is taken exclusive at the start.
func (l Lock) Inode() bool { return l <= LockInodeDrop || l == LockBoth }

// Range reports whether the byte range is locked.
func (l Lock) Range() bool { return l >= LockRange }

// Batch bounds: pages per round of the copy loop.
const (
	BatchMinPages = 8
	BatchMaxPages = 512
)

// Plan is how to carry out one operation.
type Plan struct {
	Lock Lock
	// RangeFrom is where the locked range begins when Lock.Range(); it ends at the end of the write, and
	// at the end of all files for the other operations.
	RangeFrom uint64
	// DIOBegin: the operation counts itself in i_dio_count while it runs.
	DIOBegin bool
	// Prewait: wait for writeback and ordered extents of the range before Lock.
	Prewait bool
	// WriteSteps is the order of the steps of a write's batch.
	WriteSteps WriteOrder
	// BalanceOutside: balance_dirty_pages is called once, after all locks are let go; it is not among WriteSteps.
	BalanceOutside bool
	// BatchPages bounds the pages of one round of the copy loop.
	BatchPages int
	// StableWait: wait for writeback of each page before it is changed.
	StableWait bool
	// ISizeUnderLock: a write takes the end of file, from which it zeroes, under the lock that keeps it.
	ISizeUnderLock bool
	// ForceRead: after a copy that got nothing the first page is read even if all of it will be overwritten.
	ForceRead bool
	// NoSnapshot: a write in place keeps snapshots out from the question whether it may to its dirty pages.
	NoSnapshot bool
	// SetsizeSteps is the order of the steps of a shrinking setsize.
	SetsizeSteps SetsizeOrder
	// LockDiskISize: a setsize that makes the file longer sets disk_i_size under inode->lock.
	LockDiskISize bool
	// AllocSteps is the order of the steps of a fallocate for each gap.
	AllocSteps AllocOrder
	// DIOLocked: the range of a direct I/O is locked for direct I/O before its extent lock is taken.
	DIOLocked bool
	// CsumBuffered: a direct write of a file with checksums goes through the page cache.
	CsumBuffered bool
	// ForceWait: a direct write is waited for, also when its caller wants to be told of its end later.
	ForceWait bool
	// Nowait is how a NOWAIT write is carried out; nothing of it is set for other requests.
	Nowait NowaitPlan
	// Unaligned is how a direct write of sectors goes to the device; with UnalignedBuffered it does not.
	Unaligned Unaligned
	// Drain: such a write that has i_rwsem alone waits for those in flight.
	Drain bool
	// CheckUnwritten: such a write under the shared lock leaves a block alone that is not written.
	CheckUnwritten bool
	// RecheckPages: a direct write that has its range locked looks for pages once more.
	RecheckPages bool
	// ReserveLate: a direct write reserves with its range locked.
	ReserveLate bool
	// NeedsSpace: a direct write without data space is ENOSPC, also where it would go in place.
	NeedsSpace bool
	// Nofault: a direct write faults its source in between two passes, with no ordered extent in its hands.
	Nofault bool
	// SplitOrdered: of an extent of which a direct write got a part of the source only, the rest is given up, and no more.
	SplitOrdered bool
	// ChecksAgain: a direct write lets i_rwsem go to fault its source in, and asks for its position again.
	ChecksAgain bool
	// SyncHeld: a durable direct write syncs the file before it lets i_rwsem go, if it has it.
	SyncHeld bool
	// SyncMark is how the fsync of SyncHeld knows that i_rwsem is held.
	SyncMark Mark
	// RecheckOrdered: punch hole starts again when an ordered extent appeared in its range after the flush.
	RecheckOrdered bool
}

// NowaitPlan says for the steps of a NOWAIT write whether they answer EAGAIN where others wait. What is not named here does in every
// policy: i_rwsem, space, throttling, the extent lock.
type NowaitPlan struct {
	Unsupported bool // the write is EOPNOTSUPP
	MustCOW     bool // the write is EAGAIN before its first step, for the sake of the inode's flags
	TryPages    bool
	TryOrdered  bool
	TryExpand   bool
	TryFault    bool
	// ReleaseThrottled: a batch that is throttled gives back what it has reserved.
	ReleaseThrottled bool

	// Of direct requests; the same words as the toggles.
	CheckTry, CheckWhole, CheckOnce, PastEOF, OneExtent, AskAlways bool
	TryDirty, TryRange, TryContext, TryMetadata, TryTree           bool
	OwnPath, KeepPath, KeepLeaf, Spin                              bool
	// NoFallback: a request that must go through the page cache is EAGAIN.
	NoFallback bool
}

// Mark is where a durable direct write leaves word that it holds i_rwsem.
type Mark uint8

// The marks.
const (
	MarkTask Mark = iota // with the task, as an open transaction is
	MarkNone             // nowhere
	MarkFile             // with the open file, which other tasks have open as well
)

var markNames = [...]string{"task", "none", "file"}

func (m Mark) String() string { return markNames[m] }

// For is the plan of an operation. It allocates nothing.
func For(op Op, f Facts, p *Policy) Plan {
	switch op {
	case Write:
		return forWrite(&f, p)
	case SetSize:
		return forSetSize(&f, p)
	case DirectWrite, DirectRead:
		return forDirect(op, &f, p)
	}
	pl := Plan{Lock: LockInode, BatchPages: 1, StableWait: true, AllocSteps: allocOrder(p), RecheckOrdered: p.PunchRecheckOE}
	// The range-locked writers hold no i_rwsem; the unlocked ones none either, and they are only
	// kept out by the recheck under the extent lock, as the thread said: no wait is added for them.
	if p.WriteRangeLock {
		pl.Lock, pl.RangeFrom = LockBoth, min(f.Start, f.ISize)
	}
	return pl
}

func forWrite(f *Facts, p *Policy) Plan {
	pl := Plan{
		WriteSteps:     writeOrder(p),
		BalanceOutside: p.BalanceOutside && p.WriteSteps[0] == NoStep,
		BatchPages:     BatchMaxPages,
		StableWait:     !(p.StableSkipNodatasum && f.NoDataSum),
		ISizeUnderLock: !p.Wrong.StaleISize,
		ForceRead:      !p.Wrong.NoForcedRead,
		NoSnapshot:     !p.Wrong.SnapshotUnlocked,
		// Seed 002 counts every buffered write in i_dio_count, also those that keep the lock.
		DIOBegin: p.BufUnlockInEOF,
	}
	if p.CopyByFolio {
		pl.BatchPages = 1
	}
	switch {
	case p.WriteRangeLock && f.InEOF() && !f.InodeHeld:
		pl.Lock, pl.RangeFrom = LockRange, f.Start
	case p.WriteRangeLock:
		pl.Lock, pl.RangeFrom = LockBoth, min(f.Start, f.ISize)
	case p.BufUnlockInEOF && f.InEOF():
		pl.Lock = LockInodeDrop
	}
	pl.Prewait = p.PrewaitOutside && f.InEOF()
	if f.Nowait {
		forNowait(&pl, f, p)
	}
	return pl
}

// forNowait changes the plan of a write into one that tries. The inode lock is not let go, because to take it again would be a wait; nothing is
// awaited before it; and throttling comes before the batch, so that EAGAIN finds nothing done. Models the loop of
// btrfs_buffered_write() since 6.1; labs/reference 4.1.
func forNowait(pl *Plan, f *Facts, p *Policy) {
	if pl.Lock == LockInodeDrop {
		pl.Lock = LockInode
	}
	pl.DIOBegin, pl.Prewait, pl.BalanceOutside = false, false, false
	if p.WriteSteps[0] == NoStep {
		pl.WriteSteps = nowaitOrder
	}
	pl.Nowait = NowaitPlan{
		Unsupported: !p.NowaitBuffered,
		MustCOW:     !p.NowaitCOW && !f.MayNocow,
		TryPages:    p.NowaitTryPages,
		TryOrdered:  p.NowaitTryOrdered,
		TryExpand:   p.NowaitTryExpand,
		TryFault:    p.NowaitTryFault,

		ReleaseThrottled: !p.Wrong.NowaitThrottleLeak,
	}
}

func forSetSize(f *Facts, p *Policy) Plan {
	pl := Plan{Lock: LockInode, BatchPages: 1, StableWait: !p.Wrong.ZeroUnderWriteback, SetsizeSteps: setsizeOrder(p), LockDiskISize: !p.Wrong.DiskISizeUnlocked}
	if p.WriteRangeLock {
		pl.Lock, pl.RangeFrom = LockBoth, min(f.NewSize, f.ISize)
	}
	return pl
}

// forDirect is the plan of a direct read or write. Models btrfs_direct_write() and btrfs_direct_read(); labs/reference 3.2, 3.3.
func forDirect(op Op, f *Facts, p *Policy) Plan {
	pl := Plan{DIOBegin: true, DIOLocked: p.DIOLocked, CsumBuffered: p.DIOCsumBuffered, ISizeUnderLock: true}
	// Before iomap no write beyond EOF was asynchronous. Models do_blockdev_direct_IO().
	pl.RecheckPages, pl.ReserveLate, pl.NeedsSpace = !p.Wrong.DirectNoRecheck, p.Wrong.DirectReserveLate, p.Wrong.DirectNeedsSpace
	pl.Nofault, pl.SplitOrdered, pl.ChecksAgain = p.DIONofault, !p.Wrong.OrderedWhole, p.Wrong.ChecksAgain
	switch {
	case p.Wrong.SyncUnmarked:
		pl.SyncMark = MarkNone
	case p.Wrong.SyncMarkOnFile:
		pl.SyncMark = MarkFile
	}
	pl.ForceWait = op == DirectWrite && !p.DIOShared && !f.InEOF()
	switch {
	case op == DirectRead && p.DIOShared:
		pl.Lock = LockShared
	case op == DirectRead:
		pl.Lock = LockNone
	case p.WriteRangeLock && f.InEOF() && !f.InodeHeld:
		pl.Lock, pl.RangeFrom = LockRange, f.Start
	case p.WriteRangeLock:
		pl.Lock, pl.RangeFrom = LockBoth, min(f.Start, f.ISize)
	case p.DIOShared && f.InEOF() && !f.InodeHeld:
		pl.Lock = LockShared
	case !p.DIOShared && f.InEOF():
		pl.Lock = LockInodeDrop
	}
	if f.SubBlock {
		forUnaligned(&pl, f, p)
	}
	pl.SyncHeld = p.DIOSyncHeld && (pl.Lock == LockInode || pl.Lock == LockShared || pl.Lock == LockBoth)
	if f.Nowait {
		pl.Nowait = nowaitDirect(f, p)
	}
	return pl
}

// Unaligned is a design of direct writes of sectors; labs/reference 7.1.
type Unaligned uint8

// The designs.
const (
	UnalignedBuffered Unaligned = iota
	UnalignedExclusive
	UnalignedCheckFirst
	UnalignedRetry
)

var unalignedNames = [...]string{"buffered", "exclusive", "check-first", "retry"}

func (u Unaligned) String() string { return unalignedNames[u] }

// forUnaligned makes pl the plan of a direct write of sectors. Where buffered writers do without i_rwsem it goes through the page cache,
// because nothing else keeps them away.
func forUnaligned(pl *Plan, f *Facts, p *Policy) {
	switch {
	case p.WriteRangeLock || p.BufUnlockInEOF:
		return
	case p.UnalignedExclusive:
		pl.Unaligned = UnalignedExclusive
	case p.UnalignedCheckFirst:
		pl.Unaligned = UnalignedCheckFirst
	case p.UnalignedRetry:
		pl.Unaligned = UnalignedRetry
	default:
		return
	}
	pl.ForceWait, pl.Drain, pl.CheckUnwritten = true, !p.Wrong.UnalignedNoDrain, !p.Wrong.UnalignedUnwritten
	pl.Lock = LockShared
	if pl.Unaligned == UnalignedExclusive || f.InodeHeld || !f.InEOF() {
		pl.Lock = LockInode
	}
}

// nowaitDirect is how a direct NOWAIT request is carried out. Models btrfs_direct_write() and btrfs_dio_iomap_begin(); labs/reference 3.5,
// 3.6.
func nowaitDirect(f *Facts, p *Policy) NowaitPlan {
	return NowaitPlan{
		MustCOW:   !f.MayNocow,
		TryExpand: p.NowaitTryExpand, TryFault: p.NowaitTryFault,
		CheckTry: p.NowaitCheckTry, CheckWhole: p.NowaitCheckWhole, CheckOnce: p.NowaitCheckOnce,
		PastEOF: p.NowaitPastEOF, OneExtent: p.NowaitOneExtent, AskAlways: p.NocowAskAlways,
		TryDirty: p.NowaitAsyncExt, TryRange: p.NowaitTryRange, TryContext: p.NowaitContext, TryMetadata: p.NowaitNoFlush,
		TryTree: p.NowaitTryTree,
		OwnPath: !p.NocowPathReuse, KeepPath: !p.NocowPathFree, KeepLeaf: !p.NocowEarlyRelease, Spin: p.Wrong.NowaitSpin,
		NoFallback: p.NowaitBuffered,
	}
}

// Atom is the largest piece of a write that no other write can be mixed into.
type Atom uint8

// The contracts on concurrent overlapping writes, weakest first.
const (
	AtomByte    Atom = iota
	AtomPage         // pages, also after a short copy
	AtomBatch        // a batch of the copy loop; a byte after a short copy
	AtomRequest      // the whole write: the results are those of a serial order
)

var atomNames = [...]string{"byte", "page", "batch", "request"}

func (a Atom) String() string { return atomNames[a] }

// Contract is what a policy keeps, whatever the schedule.
type Contract struct {
	WriteAtom Atom
	// TruncateHolds: after a truncate returned, i_size is what it set until a later operation.
	TruncateHolds bool
}

// Contract is what p promises by its design; the explorer proves it or shows the schedule that breaks it.
func (p *Policy) Contract() Contract {
	c := Contract{WriteAtom: AtomRequest, TruncateHolds: true}
	if p.BufUnlockInEOF && !p.WriteRangeLock {
		c.WriteAtom = AtomBatch
		if p.CopyByFolio {
			c.WriteAtom = AtomPage
		}
		c.TruncateHolds = p.SetsizeDrainFirst
	}
	return c
}

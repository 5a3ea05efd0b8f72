package policy

// Wrong is a set of bugs; Toggle.Source says which of them a kernel once had. All are off in every
// preset; a specification switches one on by name, "modern+WRONG_STALE_ISIZE", for the museum. In a
// plan three of them are orders of WriteSteps, one is an order of AllocSteps, two are not in it,
// and each of the others turns a field off.
type Wrong struct {
	// FaultUnderPageLock: a write takes the page faults of its source while it copies, with its
	// pages locked.
	FaultUnderPageLock bool
	// NoForcedRead: after a copy that got nothing the first page is not read, so that it never
	// becomes uptodate.
	NoForcedRead bool
	// ISizeAfterUnlock: a write makes i_size visible after it has let its pages and its extent
	// range go.
	ISizeAfterUnlock bool
	// ReserveUnderRange: fallocate waits for space with its extent range locked.
	ReserveUnderRange bool
	// StaleISize: a write beyond EOF zeroes from the end of file that it saw before it had i_rwsem.
	StaleISize bool
	// ExtentBeforePage: a write locks its extent range before its pages.
	ExtentBeforePage bool
	// ZeroUnderWriteback: a truncate zeroes the rest of the last page although the device may be
	// reading it.
	ZeroUnderWriteback bool
	// NowaitENOSPC: a NOWAIT write says ENOSPC where a blocking one would flush.
	NowaitENOSPC bool
	// SnapshotUnlocked: a write asks whether it may overwrite in place, and does not keep snapshots
	// out until it is dirty.
	SnapshotUnlocked bool
	// SnapshotInPlace: data is written in place while a snapshot is being made of it.
	SnapshotInPlace bool
	// NowaitThrottleLeak: a NOWAIT write that is throttled keeps what it has reserved.
	NowaitThrottleLeak bool
	// NowaitSnapshotKept: the check before a NOWAIT direct write keeps snapshots out, and they stay
	// out.
	NowaitSnapshotKept bool
	// NowaitCsumSearch: the search for checksums, of those of a NOWAIT write, waits for tree
	// blocks.
	NowaitCsumSearch bool
	// NowaitSpin: a NOWAIT request tries a busy delayed reference again until it is free.
	NowaitSpin bool
	// DiskISizeUnlocked: a setsize that makes the file longer sets disk_i_size without inode->lock.
	DiskISizeUnlocked bool
	// DirectNoRecheck: a direct write does not look for pages again once it has its range locked.
	DirectNoRecheck bool
	// DirectClearsDelalloc: a direct write that gives its range up clears delayed allocation there,
	// which is a buffered writer's.
	DirectClearsDelalloc bool
	// ReadAheadUnlocked: readahead asks where its pages are without their range locked, and does
	// not wait for what is ordered there. No plan has it: the reader of the file system is told.
	ReadAheadUnlocked bool
	// DirectReserveLate: a direct write waits for data space with its range locked.
	DirectReserveLate bool
	// DirectNeedsSpace: a direct write fails for want of data space before it knows whether it
	// needs any.
	DirectNeedsSpace bool
	// UnalignedNoDrain: a direct write of sectors that has i_rwsem alone does not wait for direct
	// writes that have let it go.
	UnalignedNoDrain bool
	// UnalignedUnwritten: a direct write of sectors under the shared lock zeroes the rest of a
	// block that is not written.
	UnalignedUnwritten bool
	// UnalignedNoWait: writes through the page cache, and zeros, do not wait for direct writes of
	// sectors in flight.
	UnalignedNoWait bool
	// UnalignedPagesFirst: a direct write of sectors takes the page of its block out of memory
	// before it marks the block written.
	UnalignedPagesFirst bool
	// OrderedWhole: a direct write that gets a part of its source gives up the ordered extent of
	// all that it had mapped.
	OrderedWhole bool
	// ChecksAgain: a direct write lets i_rwsem go while it faults its source in, and asks for its
	// position again.
	ChecksAgain bool
	// SyncUnmarked: the fsync of a durable direct write does not know that i_rwsem is its own
	// task's.
	SyncUnmarked bool
	// SyncMarkOnFile: it learns that from the open file.
	SyncMarkOnFile bool
	// LogUnwritten: fsync logs an ordered extent whose data is on its way to the device. It and the
	// next one are in no plan: fsync asks.
	LogUnwritten bool
	// LogUnattached: a commit does not wait for an ordered extent that a log has.
	LogUnattached bool
	// RingRetryWhole: the worker that goes on after a short attempt begins with the first byte
	// again. It and the next one are of the ring, which the scenarios make: no plan has them.
	RingRetryWhole bool
	// RingUnhashed: workers carry out buffered writes of one inode side by side.
	RingUnhashed bool
	// Log are wrong orders of fsync's log and of its replay. They need FsyncLog. No plan has them.
	Log WrongLog
}

// WrongLog is the mistakes of fsync with a log tree, and of a replay, that only a power cut shows.
// Package treelog has the same fields.
type WrongLog struct {
	// SuperFirst: the superblock names the tree of logs before its blocks are on the device.
	SuperFirst bool
	// NoFlush: no flush comes between the blocks of a log and the superblock.
	NoFlush bool
	// NoSums: a log has file extents without their checksums.
	NoSums bool
	// BeforeData: an fsync copies the inode to the log, and waits for its data and ordered extents
	// after it.
	BeforeData bool
	// Unpinned: a replay allocates from what looks free: there lie the logs.
	Unpinned bool
	// ChangedXattrs: a log has the attributes of an inode only if the transaction has changed its
	// names or attributes.
	ChangedXattrs bool
	// NoHoles: a log has no holes.
	NoHoles bool
	// LostNames: an inode is logged although the transaction has removed one of its names.
	LostNames bool
	// TakenNames: an inode is logged under a name that the transaction has taken from another.
	TakenNames bool
	// KeepXattrs: a replay leaves the attributes that the log does not have.
	KeepXattrs bool
	// KeepSize: a replay that takes a name out of a directory leaves the directory's size.
	KeepSize bool
	// NoConflicts: a replay does not ask whether another inode has a name.
	NoConflicts bool
	// PunchUnmarked: a punch inside one block does not mark the inode, and an fsync that finds it
	// unmarked has nothing to do.
	PunchUnmarked bool
	// OldNumbers: the first inode number after a replay is the one after the last commit's largest.
	OldNumbers bool
	// NamesUnpinned: an inode is logged in the middle of a change of its names.
	NamesUnpinned bool
	// ShareEarly: an fsync whose part of the log another task is writing does not wait for that.
	ShareEarly bool
}

// Novalidate reports whether lockdep names an order of p in its first schedule. The file system
// takes extent ranges out of lockdep's checks then, so that the explorer can show the deadlock
// itself.
func (p *Policy) Novalidate() bool {
	return p.Wrong.ReserveUnderRange || p.Wrong.ExtentBeforePage || p.Wrong.DirectReserveLate
}

// Wrongs lists every wrong order.
var Wrongs = []Toggle{
	{
		Name: "WRONG_FAULT_UNDER_PAGE_LOCK", Source: "before 914ee295af41 (2011)", Kernel: "fs/btrfs/file.c:btrfs_copy_from_user()",
		Scenario: "mmap-source",
		Field:    func(p *Policy) *bool { return &p.Wrong.FaultUnderPageLock },
	},
	{
		Name: "WRONG_NO_FORCED_READ", Source: "before 2a0f7f576999 (2011)", Kernel: "fs/btrfs/file.c:prepare_pages()",
		Scenario: "short-copy",
		Field:    func(p *Policy) *bool { return &p.Wrong.NoForcedRead },
	},
	{
		Name: "WRONG_ISIZE_AFTER_UNLOCK", Source: "before c3473e830074 (3.8), its second half, in a buffered write", Kernel: "fs/btrfs/inode.c:btrfs_get_blocks_direct()",
		Scenario: "append-writeback",
		Field:    func(p *Policy) *bool { return &p.Wrong.ISizeAfterUnlock },
	},
	{
		Name: "WRONG_RESERVE_UNDER_RANGE", Source: "before f5585f4f0ef5 (5.19, CVE-2022-49547), in fallocate", Kernel: "fs/btrfs/inode.c:btrfs_dio_iomap_begin()",
		Scenario: "range-and-space",
		Field:    func(p *Policy) *bool { return &p.Wrong.ReserveUnderRange },
	},
	{
		Name: "WRONG_STALE_ISIZE", Source: "before efa11fd269c1 (6.14)",
		Kernel: "fs/btrfs/file.c:btrfs_buffered_write()", Scenario: "two-appends",
		Field: func(p *Policy) *bool { return &p.Wrong.StaleISize },
	},
	{
		Name: "WRONG_EXTENT_BEFORE_PAGE", Source: "before 321592427c01, in a buffered write", Kernel: "fs/btrfs/file.c:prepare_pages()",
		Scenario: "page-and-extent",
		Field:    func(p *Policy) *bool { return &p.Wrong.ExtentBeforePage },
	},
	{
		Name: "WRONG_ZERO_UNDER_WRITEBACK", Source: "never in a kernel: what stable pages are for", Kernel: "mm/truncate.c:truncate_inode_pages_range()",
		Scenario: "grow-writeback",
		Field:    func(p *Policy) *bool { return &p.Wrong.ZeroUnderWriteback },
	},
	{
		Name: "WRONG_DISK_ISIZE_UNLOCKED", Source: "as before 5324c4e10e9c (6.14), but in a writer of the field", Kernel: "fs/btrfs/file-item.c:btrfs_inode_safe_disk_i_size_write()",
		Scenario: "grow-writeback",
		Field:    func(p *Policy) *bool { return &p.Wrong.DiskISizeUnlocked },
	},
	{
		Name: "WRONG_SNAPSHOT_UNLOCKED", Source: "before 8257b2dc3c1a (2014)", Kernel: "fs/btrfs/file.c:btrfs_check_nocow_lock()",
		Scenario: "nocow-snapshot",
		Field:    func(p *Policy) *bool { return &p.Wrong.SnapshotUnlocked },
	},
	{
		Name: "WRONG_SNAPSHOT_IN_PLACE", Source: "before snapshot_force_cow (4.19)", Kernel: "fs/btrfs/inode.c:run_delalloc_nocow()",
		Scenario: "snapshot-writeback",
		Field:    func(p *Policy) *bool { return &p.Wrong.SnapshotInPlace },
	},
	{
		Name: "WRONG_NOWAIT_ENOSPC", Source: "before a348c8d4f6cf (6.1)", Kernel: "fs/btrfs/file.c:btrfs_buffered_write()",
		Scenario: "nowait-space",
		Field:    func(p *Policy) *bool { return &p.Wrong.NowaitENOSPC },
	},
	{
		Name: "WRONG_NOWAIT_THROTTLE_LEAK", Source: "before eb81b682b131 (6.1)", Kernel: "fs/btrfs/file.c:btrfs_buffered_write()",
		Scenario: "nowait-throttle",
		Field:    func(p *Policy) *bool { return &p.Wrong.NowaitThrottleLeak },
	},
	{
		Name: "WRONG_DIRECT_NO_RECHECK", Source: "before c3473e830074 (3.8)", Kernel: "fs/btrfs/inode.c:lock_extent_direct()",
		Scenario: "direct-reader",
		Field:    func(p *Policy) *bool { return &p.Wrong.DirectNoRecheck },
	},
	{
		Name: "WRONG_DIRECT_CLEARS_DELALLOC", Source: "before 376cc685cb3b (3.14)", Kernel: "fs/btrfs/inode.c:btrfs_get_blocks_direct()",
		Scenario: "direct-buffered",
		Field:    func(p *Policy) *bool { return &p.Wrong.DirectClearsDelalloc },
	},
	{
		Name: "WRONG_READAHEAD_UNLOCKED", Source: "from ac325fc2aad5 (6.12) to 6.14", Kernel: "fs/btrfs/extent_io.c:get_extent_map()",
		Scenario: "direct-readahead",
		Field:    func(p *Policy) *bool { return &p.Wrong.ReadAheadUnlocked },
	},
	{
		Name: "WRONG_DIRECT_RESERVE_LATE", Source: "before f5585f4f0ef5 (5.19, CVE-2022-49547)", Kernel: "fs/btrfs/inode.c:btrfs_dio_iomap_begin()",
		Scenario: "direct-and-space",
		Field:    func(p *Policy) *bool { return &p.Wrong.DirectReserveLate },
	},
	{
		Name: "WRONG_DIRECT_NEEDS_SPACE", Source: "before f0bfa76a11e9 (5.18)", Kernel: "fs/btrfs/inode.c:btrfs_get_blocks_direct_write()",
		Scenario: "direct-full",
		Field:    func(p *Policy) *bool { return &p.Wrong.DirectNeedsSpace },
	},
	{
		Name: "WRONG_UNALIGNED_NO_DRAIN", Source: "before e9e3bcecf44c (ext4, 2011)", Kernel: "fs/ext4/file.c:ext4_file_write()",
		Scenario: "unaligned-drain",
		Field:    func(p *Policy) *bool { return &p.Wrong.UnalignedNoDrain },
	},
	{
		Name: "WRONG_UNALIGNED_UNWRITTEN", Source: "never in a kernel: what the check of 310ee0902b8d is for", Kernel: "fs/ext4/file.c:ext4_dio_write_checks()",
		Scenario: "unaligned-writers",
		Field:    func(p *Policy) *bool { return &p.Wrong.UnalignedUnwritten },
	},
	{
		Name: "WRONG_UNALIGNED_NO_WAIT", Source: "ext4 and XFS, where direct and buffered writes of one page do not go together", Kernel: "fs/ext4/file.c:ext4_buffered_write_iter()",
		Scenario: "unaligned-and-buffered",
		Field:    func(p *Policy) *bool { return &p.Wrong.UnalignedNoWait },
	},
	{
		Name: "WRONG_UNALIGNED_PAGES_FIRST", Source: "before c771c14baa33 (iomap, 2017)", Kernel: "fs/iomap/direct-io.c:iomap_dio_complete()",
		Scenario: "unaligned-zeros",
		Field:    func(p *Policy) *bool { return &p.Wrong.UnalignedPagesFirst },
	},
	{
		Name: "WRONG_ORDERED_WHOLE", Source: `before "btrfs: split partial dio bios before submit" (6.4)`, Kernel: "fs/btrfs/direct-io.c:btrfs_dio_submit_io()",
		Scenario: "direct-fault",
		Field:    func(p *Policy) *bool { return &p.Wrong.OrderedWhole },
	},
	{
		Name: "WRONG_CHECKS_AGAIN", Source: `before "btrfs: fix corruption after buffer fault in during direct IO append write" (6.11)`, Kernel: "fs/btrfs/direct-io.c:btrfs_direct_write()",
		Scenario: "direct-append-fault",
		Field:    func(p *Policy) *bool { return &p.Wrong.ChecksAgain },
	},
	{
		Name: "WRONG_SYNC_UNMARKED", Source: "before 0eb79294dbe3 (5.10)", Kernel: "fs/btrfs/file.c:btrfs_sync_file()",
		Scenario: "direct-dsync",
		Field:    func(p *Policy) *bool { return &p.Wrong.SyncUnmarked },
	},
	{
		Name: "WRONG_SYNC_MARK_ON_FILE", Source: `that fix, before "btrfs: fix race between direct IO write and fsync when using same fd" (both 6.11)`, Kernel: "fs/btrfs/file.c:btrfs_sync_file()",
		Scenario: "direct-dsync",
		Field:    func(p *Policy) *bool { return &p.Wrong.SyncMarkOnFile },
	},
	{
		Name: "WRONG_NOWAIT_SNAPSHOT_KEPT", Source: `before "btrfs: fix hang on snapshot creation after RWF_NOWAIT write" (5.8)`, Kernel: "fs/btrfs/file.c:btrfs_file_write_iter()",
		Scenario: "nowait-dio-snapshot",
		Field:    func(p *Policy) *bool { return &p.Wrong.NowaitSnapshotKept },
	},
	{
		Name: "WRONG_NOWAIT_CSUM_SEARCH", Source: `before "btrfs: fix assertion failure and blocking during nowait buffered write" (6.1), in a direct write and one step earlier`, Kernel: "fs/btrfs/file-item.c:btrfs_lookup_csums_list()",
		Scenario: "nowait-dio-csums",
		Field:    func(p *Policy) *bool { return &p.Wrong.NowaitCsumSearch },
	},
	{
		Name: "WRONG_NOWAIT_SPIN", Source: "before ed67f2a913a4 (6.13)", Kernel: "fs/btrfs/extent-tree.c:btrfs_cross_ref_exist()",
		Scenario: "nowait-dio-refs",
		Field:    func(p *Policy) *bool { return &p.Wrong.NowaitSpin },
	},
	{
		Name: "WRONG_LOG_UNWRITTEN", Source: "before de0ee0edb21f (4.6), which mended the order that hid the extent", Kernel: "fs/btrfs/inode.c:btrfs_new_extent_direct()",
		Scenario: "direct-log",
		Field:    func(p *Policy) *bool { return &p.Wrong.LogUnwritten },
	},
	{
		Name: "WRONG_LOG_UNATTACHED", Source: "never in a kernel: what pending_ordered is for", Kernel: "fs/btrfs/tree-log.c:btrfs_log_changed_extents()",
		Scenario: "a commit frees a log before the trees have the data of its ordered extents",
		Field:    func(p *Policy) *bool { return &p.Wrong.LogUnattached },
	},
	{
		Name: "WRONG_RING_RETRY_WHOLE", Source: "never in a kernel: what bytes_done is for", Kernel: "io_uring/rw.c:io_write()",
		Scenario: "ring-short",
		Field:    func(p *Policy) *bool { return &p.Wrong.RingRetryWhole },
	},
	{
		Name: "WRONG_RING_UNHASHED", Source: "never in a kernel: what IO_WQ_WORK_HASHED is for", Kernel: "io_uring/io_uring.c:io_prep_async_work()",
		Scenario: "ring-order",
		Field:    func(p *Policy) *bool { return &p.Wrong.RingUnhashed },
	},
	{
		Name: "WRONG_LOG_SUPER_FIRST", Source: "never in a kernel: what the wait for log blocks in btrfs_sync_log() is for", Kernel: "fs/btrfs/tree-log.c:btrfs_sync_log()",
		Scenario: "testdata/crash/generic-056.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.SuperFirst },
	},
	{
		Name: "WRONG_LOG_NO_FLUSH", Source: "never in a kernel: what the flush before a superblock is for", Kernel: "fs/btrfs/disk-io.c:write_all_supers()",
		Scenario: "testdata/crash/generic-056.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.NoFlush },
	},
	{
		Name: "WRONG_LOG_NO_SUMS", Source: "never in a kernel: what log_extent_csums() is for", Kernel: "fs/btrfs/tree-log.c:log_extent_csums()",
		Scenario: "testdata/crash/generic-056.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.NoSums },
	},
	{
		Name: "WRONG_LOG_BEFORE_DATA", Source: "never in a kernel: what the wait for ordered extents in fsync is for", Kernel: "fs/btrfs/file.c:btrfs_sync_file()",
		Scenario: "testdata/crash/generic-056.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.BeforeData },
	},
	{
		Name: "WRONG_LOG_UNPINNED", Source: "never in a kernel: what the first pass of a replay is for", Kernel: "fs/btrfs/tree-log.c:btrfs_recover_log_trees()",
		Scenario: "testdata/crash/generic-056.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.Unpinned },
	},
	{
		Name: "WRONG_LOG_CHANGED_XATTRS", Source: "before 36283bf777d9", Kernel: "fs/btrfs/tree-log.c:btrfs_log_inode()",
		Scenario: "testdata/crash/xattr-loss.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.ChangedXattrs },
	},
	{
		Name: "WRONG_LOG_NO_HOLES", Source: `before "Btrfs: fix missing hole after hole punching and fsync when using NO_HOLES", for all holes`, Kernel: "fs/btrfs/tree-log.c:btrfs_log_holes()",
		Scenario: "testdata/crash/missing-hole.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.NoHoles },
	},
	{
		Name: "WRONG_LOG_LOST_NAMES", Source: "as before 12fcfd22fe5b, for the names of the inode", Kernel: "fs/btrfs/tree-log.c:btrfs_record_unlink_dir()",
		Scenario: "testdata/crash/generic-039.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.LostNames },
	},
	{
		Name: "WRONG_LOG_TAKEN_NAMES", Source: `before "Btrfs: fix file loss caused by fsync after rename and new inode"`, Kernel: "fs/btrfs/tree-log.c:btrfs_check_ref_name_override()",
		Scenario: "testdata/crash/generic-342.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.TakenNames },
	},
	{
		Name: "WRONG_LOG_KEEP_XATTRS", Source: "before 4f764e515361", Kernel: "fs/btrfs/tree-log.c:replay_xattr_deletes()",
		Scenario: "testdata/crash/generic-066.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.KeepXattrs },
	},
	{
		Name: "WRONG_LOG_KEEP_SIZE", Source: `before "Btrfs: fix directory inconsistency after fsync log replay"`, Kernel: "fs/btrfs/tree-log.c:drop_one_dir_item()",
		Scenario: "testdata/crash/link-unlink.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.KeepSize },
	},
	{
		Name: "WRONG_LOG_NO_CONFLICTS", Source: "before 34f3e4f23ca3 and 1f250e929a9c, which mend two cases of it", Kernel: "fs/btrfs/tree-log.c:add_inode_ref()",
		Scenario: "testdata/crash/link-unlink.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.NoConflicts },
	},
	{
		Name: "WRONG_LOG_PUNCH_UNMARKED", Source: `before "Btrfs: add missing inode update when punching hole"`, Kernel: "fs/btrfs/file.c:btrfs_punch_hole()",
		Scenario: "testdata/crash/generic-059.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.PunchUnmarked },
	},
	{
		Name: "WRONG_LOG_OLD_NUMBERS", Source: `before "Btrfs: fix unexpected -EEXIST when creating new inode"; from 4.4 on`, Kernel: "fs/btrfs/tree-log.c:btrfs_recover_log_trees()",
		Scenario: "testdata/crash/inode-eexist.ops",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.OldNumbers },
	},
	{
		Name: "WRONG_LOG_NAMES_UNPINNED", Source: `as before "Btrfs: pin log earlier when renaming" (2016), for all of a rename`, Kernel: "fs/btrfs/inode.c:btrfs_rename()",
		Scenario: "log-pin",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.NamesUnpinned },
	},
	{
		Name: "WRONG_LOG_SHARE_EARLY", Source: "never in a kernel: what wait_log_commit() is for", Kernel: "fs/btrfs/tree-log.c:btrfs_sync_log()",
		Scenario: "log-group",
		Field:    func(p *Policy) *bool { return &p.Wrong.Log.ShareEarly },
	},
}

package policy

import "slices"

// Presets are the eras and proposals of buffered writes, in the order in which reports show them.
var Presets = []Policy{
	{
		Name: "locked", About: "Linux 4.17: the whole write under i_rwsem",
		FsyncLog:       true,
		PunchRecheckOE: true,
	},
	{
		Name: "unlocked", About: "seed 002 as posted: writes inside EOF drop i_rwsem",
		FsyncLog:       true,
		BufUnlockInEOF: true, PunchRecheckOE: true,
	},
	{
		Name: "unlocked-drain", About: "seed 002 with the fix of the thread: setsize waits for writers first",
		FsyncLog:       true,
		BufUnlockInEOF: true, SetsizeDrainFirst: true, PunchRecheckOE: true,
	},
	{
		Name: "prewait", About: "Mason: stable-page waits before, throttling after i_rwsem",
		FsyncLog:       true,
		PrewaitOutside: true, BalanceOutside: true, PunchRecheckOE: true,
	},
	{
		Name: "range-lock", About: "Hellwig: the byte range of the write is locked instead of the inode",
		FsyncLog:       true,
		WriteRangeLock: true, PunchRecheckOE: true, ExtentLockBackOff: true,
	},
	{
		Name: "modern", About: "Linux 6.18: one folio at a time under i_rwsem",
		FsyncLog:           true,
		BalanceBeforeFolio: true, CopyByFolio: true, StableSkipNodatasum: true,
		ExtentLockBackOff: true,
		DIOShared:         true, DIOLocked: true, DIOCsumBuffered: true, DIONofault: true, DIOSyncHeld: true,
		NowaitCheckTry: true, NowaitCheckWhole: true, NowaitPastEOF: true, NowaitOneExtent: true,
		NowaitAsyncExt: true, NowaitTryRange: true, NowaitCheckOnce: true, NocowPathReuse: true, NocowPathFree: true,
		NocowEarlyRelease: true, NowaitContext: true, NowaitNoFlush: true, NowaitTryTree: true,
		NowaitBuffered: true,
		LogNoRecheck:   true, LogPushMin: true, LogLazySum: true, LogReplaceMulti: true, LogNoExtraRelease: true, LogPrepareFirst: true,
	},
}

// NowaitPresets are the eras of NOWAIT, oldest first. Names does not list them: for other requests
// they are the kernels of Presets.
var NowaitPresets = []Policy{
	{
		Name: "nowait-4.13", About: "Linux 4.13 to 5.7: direct writes with NOWAIT, which check first and wait all the same",
		FsyncLog:       true,
		PunchRecheckOE: true,
		NocowAskAlways: true,
	},
	{
		Name: "nowait-5.8", About: "Linux 5.11 to 5.18, with the fixes of 5.8: the kernel before seed 000",
		FsyncLog:       true,
		PunchRecheckOE: true, DIOShared: true, DIONofault: true,
		NowaitCheckTry: true, NowaitCheckWhole: true, NowaitPastEOF: true, NowaitOneExtent: true,
		NocowAskAlways: true,
	},
	{
		Name: "nowait-5.19", About: "the same kernel with the eight patches of seed 000",
		FsyncLog:       true,
		PunchRecheckOE: true, DIOShared: true, DIONofault: true,
		NowaitCheckTry: true, NowaitCheckWhole: true, NowaitPastEOF: true, NowaitOneExtent: true,
		NowaitAsyncExt: true, NowaitTryRange: true, NowaitCheckOnce: true, NocowPathReuse: true, NocowPathFree: true,
		NocowEarlyRelease: true, NowaitContext: true, NowaitNoFlush: true,
		NocowAskAlways: true,
	},
	{
		Name: "nowait-6.1", About: "Linux 6.1: buffered writes with NOWAIT, which sleep at some places",
		FsyncLog:           true,
		BalanceBeforeFolio: true, ExtentLockBackOff: true, DIOShared: true, DIONofault: true,
		NowaitCheckTry: true, NowaitCheckWhole: true, NowaitPastEOF: true, NowaitOneExtent: true,
		NowaitAsyncExt: true, NowaitTryRange: true, NowaitCheckOnce: true, NocowPathReuse: true, NocowPathFree: true,
		NocowEarlyRelease: true, NowaitContext: true, NowaitNoFlush: true, NowaitTryTree: true,
		NocowAskAlways: true, NowaitBuffered: true,
	},
	{
		Name: "nowait-strict", About: "no kernel: a NOWAIT write never sleeps, and may be of any file",
		FsyncLog:           true,
		BalanceBeforeFolio: true, ExtentLockBackOff: true, DIOShared: true, DIONofault: true,
		NowaitCheckTry: true, NowaitCheckWhole: true, NowaitPastEOF: true, NowaitOneExtent: true,
		NowaitAsyncExt: true, NowaitTryRange: true, NowaitCheckOnce: true, NocowPathReuse: true, NocowPathFree: true,
		NocowEarlyRelease: true, NowaitContext: true, NowaitNoFlush: true, NowaitTryTree: true,
		NowaitBuffered: true, NowaitTryPages: true, NowaitTryOrdered: true, NowaitEDQUOT: true, NowaitTryQuota: true, NowaitTryPrivs: true, NowaitTryExpand: true, NowaitTryFault: true, NowaitCOW: true,
	},
}

// UnalignedPresets are the designs of direct writes of sectors, oldest first, each in the place of
// the page cache of modern. Names does not list them: for other requests they are modern.
var UnalignedPresets = []Policy{
	unaligned("unaligned-exclusive", "ext4 of Linux 6.2: a direct write of sectors is alone", func(p *Policy) *bool { return &p.UnalignedExclusive }),
	unaligned("unaligned-check-first", "seed 004, ext4 since 6.5: together in blocks that are written, after a look", func(p *Policy) *bool { return &p.UnalignedCheckFirst }),
	unaligned("unaligned-retry", "XFS: together until a block is not written, then once more and alone", func(p *Policy) *bool { return &p.UnalignedRetry }),
}

// unaligned is modern with one more toggle.
func unaligned(name, about string, field func(p *Policy) *bool) Policy {
	return like(Presets, "modern", name, about, func(p *Policy) { *field(p) = true })
}

// FsyncPresets are the ways of an fsync, oldest first: the kernel of nowait-5.8 with each. Names
// does not list them.
var FsyncPresets = []Policy{
	like(NowaitPresets, "nowait-5.8", "fsync-commit", "Linux 5.17 with notreelog: every fsync commits the transaction", func(p *Policy) { p.FsyncLog = false }),
	like(NowaitPresets, "nowait-5.8", "fsync-5.17", "Linux 5.17: an fsync writes a log tree; the kernel before seed 003", func(*Policy) {}),
	like(NowaitPresets, "nowait-5.8", "fsync-5.18", "Linux 5.18: the same kernel with the six patches of seed 003", func(p *Policy) {
		p.LogNoRecheck, p.LogPushMin, p.LogLazySum, p.LogReplaceMulti, p.LogNoExtraRelease, p.LogPrepareFirst = true, true, true, true, true, true
	}),
}

// like is a preset of the list with another name and a change.
func like(list []Policy, of, name, about string, change func(p *Policy)) Policy {
	p := list[slices.IndexFunc(list, func(p Policy) bool { return p.Name == of })]
	p.Name, p.About = name, about
	change(&p)
	return p
}

// All is every policy that has a name: those of buffered writes, NOWAIT, sectors and fsync.
func All() []Policy { return slices.Concat(Presets, NowaitPresets, UnalignedPresets, FsyncPresets) }

// Names lists the presets.
func Names() []string { return namesOf(Presets) }

// NowaitNames lists the presets of NOWAIT.
func NowaitNames() []string { return namesOf(NowaitPresets) }

// UnalignedNames lists the presets of direct writes of sectors.
func UnalignedNames() []string { return namesOf(UnalignedPresets) }

// FsyncNames lists the presets of fsync.
func FsyncNames() []string { return namesOf(FsyncPresets) }

func namesOf(list []Policy) []string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	return names
}

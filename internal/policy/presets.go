package policy

import "slices"

// Presets are the eras and proposals of buffered writes, in the order in which reports show them.
var Presets = []Policy{
	{
		Name: "locked", About: "Linux 4.17: the whole write under i_rwsem",
		Set: Of(FsyncLog, PunchRecheckOE),
	},
	{
		Name: "unlocked", About: "seed 002 as posted: writes inside EOF drop i_rwsem",
		Set: Of(FsyncLog, BufUnlockInEOF, PunchRecheckOE),
	},
	{
		Name: "unlocked-drain", About: "seed 002 with the fix of the thread: setsize waits for writers first",
		Set: Of(FsyncLog, BufUnlockInEOF, SetsizeDrainFirst, PunchRecheckOE),
	},
	{
		Name: "prewait", About: "Mason: stable-page waits before, throttling after i_rwsem",
		Set: Of(FsyncLog, PrewaitOutside, BalanceOutside, PunchRecheckOE),
	},
	{
		Name: "range-lock", About: "Hellwig: the byte range of the write is locked instead of the inode",
		Set: Of(FsyncLog, WriteRangeLock, PunchRecheckOE, ExtentLockBackOff),
	},
	{
		Name: "modern", About: "Linux 6.18: one folio at a time under i_rwsem",
		Set: Of(FsyncLog, RwsemHandoff, BalanceBeforeFolio, CopyByFolio, StableSkipNodatasum, ExtentLockBackOff,
			DIOShared, DIOLocked, DIOCsumBuffered, DIONofault, DIOSyncHeld, NowaitCheckTry,
			NowaitCheckWhole, NowaitPastEOF, NowaitOneExtent, NowaitAsyncExt, NowaitTryRange,
			NowaitCheckOnce, NocowPathReuse, NocowPathFree, NocowEarlyRelease, NowaitContext,
			NowaitNoFlush, NowaitTryTree, NowaitBuffered, LogNoRecheck, LogPushMin, LogLazySum,
			LogReplaceMulti, LogNoExtraRelease, LogPrepareFirst),
	},
}

// BouncePresets are the policies without stable pages. Names does not list them.
var BouncePresets = []Policy{
	like(Presets, "prewait", "bounce", "Ko's third question: no stable pages; writeback copies, throttling comes after i_rwsem", func(p *Policy) {
		p.Put(PrewaitOutside, false)
		p.Put(WritebackBounce, true)
	}),
}

// NowaitPresets are the eras of NOWAIT, oldest first. Names does not list them: for other requests
// they are the kernels of Presets.
var NowaitPresets = []Policy{
	{
		Name: "nowait-4.13", About: "Linux 4.13 to 5.7: direct writes with NOWAIT, which check first and wait all the same",
		Set: Of(FsyncLog, PunchRecheckOE, NocowAskAlways),
	},
	{
		Name: "nowait-5.8", About: "Linux 5.11 to 5.18, with the fixes of 5.8: the kernel before seed 000",
		Set: Of(FsyncLog, RwsemHandoff, PunchRecheckOE, DIOShared, DIONofault, NowaitCheckTry, NowaitCheckWhole,
			NowaitPastEOF, NowaitOneExtent, NocowAskAlways),
	},
	{
		Name: "nowait-5.19", About: "the same kernel with the eight patches of seed 000",
		Set: Of(FsyncLog, RwsemHandoff, PunchRecheckOE, DIOShared, DIONofault, NowaitCheckTry, NowaitCheckWhole,
			NowaitPastEOF, NowaitOneExtent, NowaitAsyncExt, NowaitTryRange, NowaitCheckOnce,
			NocowPathReuse, NocowPathFree, NocowEarlyRelease, NowaitContext, NowaitNoFlush,
			NocowAskAlways),
	},
	{
		Name: "nowait-6.1", About: "Linux 6.1: buffered writes with NOWAIT, which sleep at some places",
		Set: Of(FsyncLog, RwsemHandoff, BalanceBeforeFolio, ExtentLockBackOff, DIOShared, DIONofault,
			NowaitCheckTry, NowaitCheckWhole, NowaitPastEOF, NowaitOneExtent, NowaitAsyncExt,
			NowaitTryRange, NowaitCheckOnce, NocowPathReuse, NocowPathFree, NocowEarlyRelease,
			NowaitContext, NowaitNoFlush, NowaitTryTree, NocowAskAlways, NowaitBuffered),
	},
	{
		Name: "nowait-strict", About: "no kernel: a NOWAIT write never sleeps, and may be of any file",
		Set: Of(FsyncLog, RwsemHandoff, BalanceBeforeFolio, ExtentLockBackOff, DIOShared, DIONofault,
			NowaitCheckTry, NowaitCheckWhole, NowaitPastEOF, NowaitOneExtent, NowaitAsyncExt,
			NowaitTryRange, NowaitCheckOnce, NocowPathReuse, NocowPathFree, NocowEarlyRelease,
			NowaitContext, NowaitNoFlush, NowaitTryTree, NowaitBuffered, NowaitTryPages,
			NowaitTryOrdered, NowaitEDQUOT, NowaitTryQuota, NowaitTryPrivs, NowaitTryExpand,
			NowaitTryFault, NowaitCOW),
	},
}

// UnalignedPresets are the designs of direct writes of sectors, oldest first, each in the place of
// the page cache of modern. Names does not list them: for other requests they are modern.
var UnalignedPresets = []Policy{
	unaligned("unaligned-exclusive", "ext4 of Linux 6.2: a direct write of sectors is alone", UnalignedExclusive),
	unaligned("unaligned-check-first", "seed 004, ext4 since 6.5: together in blocks that are written, after a look", UnalignedCheckFirst),
	unaligned("unaligned-zeroing", "ext4 of Linux 7.3: together unless a part of a block must be zeroed", UnalignedZeroing),
	unaligned("unaligned-retry", "XFS: together until a block is not written, then once more and alone", UnalignedRetry),
}

// unaligned is modern with one more toggle, and with maps in memory as ext4 and XFS have them.
func unaligned(name, about string, on Switch) Policy {
	return like(Presets, "modern", name, about, func(p *Policy) {
		p.Put(on, true)
		p.Put(NocowRemembered, true)
	})
}

// FsyncPresets are the ways of an fsync, oldest first: the kernel of nowait-5.8 with each. Names
// does not list them.
var FsyncPresets = []Policy{
	like(NowaitPresets, "nowait-5.8", "fsync-commit", "Linux 5.17 with notreelog: every fsync commits the transaction", func(p *Policy) { p.Put(FsyncLog, false) }),
	like(NowaitPresets, "nowait-5.8", "fsync-wait", "Linux before seed 005: an fsync by log waits for completions, too", func(p *Policy) { p.Put(FsyncWaitOrdered, true) }),
	like(NowaitPresets, "nowait-5.8", "fsync-5.17", "Linux 5.17: an fsync writes a log tree; the kernel before seed 003", func(*Policy) {}),
	like(NowaitPresets, "nowait-5.8", "fsync-5.18", "Linux 5.18: the same kernel with the six patches of seed 003", func(p *Policy) {
		p.Set = p.Or(logPatches)
	}),
}

// KernelPresets are kernels as they were released, oldest first: those that the model is held
// against (package judge/conform). Names does not list them; a seed's presets are kernels around
// its patches. NowaitTryTree is in none: the traces of all of them wait.
var KernelPresets = []Policy{
	{
		Name: "linux-5.10", About: "Linux 5.10: before seeds 000, 001 and 003",
		Set: Of(FsyncLog, RwsemHandoff, PunchRecheckOE, NowaitCheckTry, NowaitCheckWhole, NowaitPastEOF, NocowAskAlways),
	},
	like(NowaitPresets, "nowait-6.1", "linux-6.1", "Linux 6.1: with seeds 000, 001 and 003", func(p *Policy) {
		p.Set = p.Or(logPatches)
		p.Put(NowaitTryTree, false)
	}),
	like(Presets, "modern", "linux-6.12", "Linux 6.12.111: direct ranges have a bit of their own; direct writes with checksums go through the page cache", func(p *Policy) {
		p.Put(NocowAskAlways, true)
		for _, not := range []Switch{CopyByFolio, StableSkipNodatasum, NowaitTryTree} {
			p.Put(not, false)
		}
	}),
	like(Presets, "modern", "linux-6.18", "Linux 6.18: a folio at a time; direct writes with checksums go through the page cache", func(p *Policy) {
		p.Put(NocowAskAlways, true)
		p.Put(NowaitTryTree, false)
	}),
	like(Presets, "modern", "linux-7.3", "Linux 7.3: direct writes with checksums go to the device by a copy, an fsync waits once", func(p *Policy) {
		p.Put(LogOneWait, true)
		p.Put(NocowAskAlways, true)
		p.Put(DIOCsumBuffered, false)
		p.Put(NowaitCsumCopy, true)
		p.Put(NowaitTryTree, false)
	}),
}

// logPatches are the six of seed 003.
var logPatches = Of(LogNoRecheck, LogPushMin, LogLazySum, LogReplaceMulti, LogNoExtraRelease, LogPrepareFirst)

// like is a preset of the list with another name and a change.
func like(list []Policy, of, name, about string, change func(p *Policy)) Policy {
	p := list[slices.IndexFunc(list, func(p Policy) bool { return p.Name == of })]
	p.Name, p.About = name, about
	change(&p)
	return p
}

// All is every policy that has a name: those of buffered writes, of somebody's own, of NOWAIT,
// sectors and fsync, and the kernels.
func All() []Policy {
	return slices.Concat(Presets, BouncePresets, added, NowaitPresets, UnalignedPresets, FsyncPresets, KernelPresets)
}

// Names lists the presets, and after them the policies that were added.
func Names() []string { return append(namesOf(Presets), namesOf(added)...) }

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

package policy

// Facts are the facts that a plan may depend on. ISize is only as good as the lock under which it
// was read: a room that takes the locks of a plan asks for the plan again under them.
type Facts struct {
	Start, End uint64 // bytes of the write, punch or allocation: [Start, End)
	ISize      uint64
	NewSize    uint64 // setsize only
	NoDataSum  bool
	InodeHeld  bool // the caller has taken i_rwsem: a plan without it comes too late
	Nowait     bool // the request is NOWAIT
	MayNocow   bool // the inode is NODATACOW or preallocated
	MayPrivs   bool // the file may have capabilities, which a write takes away
	// a direct write of sectors that are not whole blocks, of a file that takes them in place
	SubBlock bool
}

// InEOF reports whether the range ends inside the file.
func (f *Facts) InEOF() bool { return f.End <= f.ISize }

// Inside reports whether a write changes bytes of the file and nothing else, so that it may do
// without i_rwsem for itself alone. Models the condition of BTRFS_ILOCK_SHARED in
// btrfs_direct_write().
func (f *Facts) Inside() bool { return f.InEOF() && !f.MayPrivs }

// Lock is the lock that guards an operation against others on the same file.
type Lock uint8

// The locks.
const (
	LockInode Lock = iota // i_rwsem exclusive, from begin to end
	// i_rwsem exclusive, let go for the copy loop or the I/O (i_dio_count stands in)
	LockInodeDrop
	LockShared // i_rwsem shared
	LockNone   // nothing but the extent ranges
	LockRange  // the byte range, without i_rwsem
	LockBoth   // i_rwsem exclusive and the byte range
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

// Guard says what keeps other operations from the file.
type Guard struct {
	Lock Lock
	// RangeFrom is where the locked range begins when Lock.Range(); it ends at the end of the
	// write, and at the end of all files for the other operations.
	RangeFrom uint64
	// DrainDirect: an operation with i_rwsem alone that changes pages, extents or the end of the
	// file waits for direct writes in flight, of which some may be of sectors. A direct write of
	// whole blocks goes through the page cache where it needs a new extent.
	DrainDirect bool
}

// WritePlan is how to carry out a buffered write. Its set has the policy's switches; those of
// NOWAIT are in it for a NOWAIT write only.
type WritePlan struct {
	Guard
	Set
	// Steps is the order of the steps of a batch.
	Steps WriteOrder
	// DIOBegin: the operation counts itself in i_dio_count while it runs.
	DIOBegin bool
	// Prewait: wait for writeback and ordered extents of the range before Lock.
	Prewait bool
	// BalanceLast: balance_dirty_pages is called once, after all locks are let go; it is not among
	// Steps.
	BalanceLast bool
	// BatchPages bounds the pages of one round of the copy loop.
	BatchPages int
	// StableWait: wait for writeback of each page before it is changed.
	StableWait bool
	// Unsupported: the answer to a NOWAIT write is EOPNOTSUPP.
	Unsupported bool
	// MustCOW: a NOWAIT write is EAGAIN before its first step, for the sake of the inode's flags.
	MustCOW bool
}

// SetsizePlan is how to carry out a setsize.
type SetsizePlan struct {
	Guard
	Set
	// Steps is the order of the steps when the file does not grow.
	Steps SetsizeOrder
	// Same: the file keeps its size.
	Same bool
	// StableWait: wait for writeback of the last page before its rest is zeroed.
	StableWait bool
	// HoldReads: direct reads without i_rwsem take it from before a shrinking setsize waits for
	// i_dio_count until it has set i_size.
	HoldReads bool
}

// AllocPlan is how to carry out a fallocate or a punch.
type AllocPlan struct {
	Guard
	Set
	// Steps is the order of the steps of a fallocate for each gap.
	Steps AllocOrder
}

// FsyncPlan is how to carry out an fsync.
type FsyncPlan struct {
	Set
	// Log: a log tree is written where that is enough; else the transaction is committed.
	Log bool
	// LogFirst: the inode is copied to the log, and its data and ordered extents are waited for
	// after it.
	LogFirst bool
}

// DirectPlan is how to carry out a direct read or write. Its set has the policy's switches; those
// of NOWAIT are in it for a NOWAIT request only.
type DirectPlan struct {
	Guard
	Set
	// HoldReads: see SetsizePlan.
	HoldReads bool
	// ForceWait: a direct write is waited for, also when its caller wants to be told of its end
	// later.
	ForceWait bool
	// Unaligned is how a direct write of sectors goes to the device; with UnalignedBuffered it does
	// not.
	Unaligned Unaligned
	// Drain: such a write that has i_rwsem alone waits for those in flight.
	Drain bool
	// CheckUnwritten: such a write under the shared lock leaves a block alone that is not written.
	CheckUnwritten bool
	// SyncHeld: a durable direct write syncs the file before it lets i_rwsem go, if it has it.
	SyncHeld bool
	// SyncMark is how the fsync of SyncHeld knows that i_rwsem is held.
	SyncMark Mark
	// MustCOW: a NOWAIT request is EAGAIN before its first step, for the sake of the inode's flags.
	MustCOW bool
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

// ofNowait are the switches of NOWAIT requests.
var ofNowait = Of(NowaitBuffered, NowaitTryPages, NowaitTryOrdered, NowaitEDQUOT, NowaitTryQuota, NowaitTryPrivs, NowaitTryExpand,
	NowaitTryFault, NowaitCOW, NowaitCheckTry, NowaitCheckWhole, NowaitPastEOF, NowaitOneExtent, NowaitCsumCopy, NowaitAsyncExt, NowaitTryRange,
	NowaitCheckOnce, NocowPathReuse, NocowPathFree, NocowEarlyRelease, NowaitContext, NowaitNoFlush, NowaitTryTree, NocowAskAlways)

// of returns the switches of p that a request follows.
func (f *Facts) of(p *Policy) Set {
	if f.Nowait {
		return p.Set
	}
	return p.Without(ofNowait)
}

// ForWrite is the plan of a buffered write.
func ForWrite(f Facts, p *Policy) (pl WritePlan) {
	pl.Make(&f, p)
	return pl
}

// Make makes pl the plan of a buffered write, in the place where it stays. It allocates nothing.
func (pl *WritePlan) Make(f *Facts, p *Policy) {
	*pl = WritePlan{
		Guard:       Guard{DrainDirect: queuesSectors(p)},
		Set:         f.of(p),
		Steps:       writeOrder(p),
		BalanceLast: p.Has(BalanceOutside) && p.WriteSteps[0] == NoStep,
		BatchPages:  BatchMaxPages,
		StableWait:  !(p.Has(StableSkipNodatasum) && f.NoDataSum) && !p.Has(WritebackBounce),
		// Seed 002 counts every buffered write in i_dio_count, also those that keep the lock.
		DIOBegin: p.Has(BufUnlockInEOF),
		Prewait:  p.Has(PrewaitOutside) && f.InEOF(),
	}
	if p.Has(CopyByFolio) {
		pl.BatchPages = 1
	}
	switch {
	case p.Has(WriteRangeLock):
		pl.lockRange(f)
	case p.Has(BufUnlockInEOF) && f.InEOF():
		pl.Lock = LockInodeDrop
	}
	if f.Nowait {
		pl.forNowait(f, p)
	}
}

// lockRange makes the range of a write its lock, inside EOF without i_rwsem.
func (g *Guard) lockRange(f *Facts) {
	g.Lock, g.RangeFrom = LockBoth, min(f.Start, f.ISize)
	if f.Inside() && !f.InodeHeld {
		g.Lock, g.RangeFrom = LockRange, f.Start
	}
}

// forNowait changes the plan of a write into one that tries. The inode lock is not let go, because
// to take it again would be a wait; nothing is awaited before it; and throttling comes before the
// batch, so that EAGAIN finds nothing done. Models the loop of btrfs_buffered_write() since 6.1;
// labs/reference 4.1.
func (pl *WritePlan) forNowait(f *Facts, p *Policy) {
	if pl.Lock == LockInodeDrop {
		pl.Lock = LockInode
	}
	pl.DIOBegin, pl.Prewait, pl.BalanceLast = false, false, false
	if p.WriteSteps[0] == NoStep {
		pl.Steps = nowaitOrder
	}
	pl.Unsupported, pl.MustCOW = !p.Has(NowaitBuffered), !p.Has(NowaitCOW) && !f.MayNocow
}

// ForSetsize is the plan of a setsize.
func ForSetsize(f Facts, p *Policy) SetsizePlan {
	pl := SetsizePlan{
		Guard:      Guard{DrainDirect: queuesSectors(p)},
		Set:        p.Set,
		Steps:      setsizeOrder(p),
		StableWait: !p.Wrong(WrongZeroUnderWriteback) && !p.Has(WritebackBounce),
		HoldReads:  holdsReads(p),
	}
	if pl.Same = f.NewSize == f.ISize; pl.Same && !p.Has(SetsizeWaitOrdered) {
		pl.Steps = pl.Steps.without(WaitOrdered)
	}
	if p.Has(WriteRangeLock) {
		pl.Lock, pl.RangeFrom = LockBoth, min(f.NewSize, f.ISize)
	}
	return pl
}

// ForAlloc is the plan of a fallocate, and of a punch.
func ForAlloc(f Facts, p *Policy) AllocPlan {
	pl := AllocPlan{Guard: Guard{DrainDirect: queuesSectors(p)}, Set: f.of(p), Steps: allocOrder(p)}
	// The range-locked writers hold no i_rwsem; the unlocked ones none either, and they are only
	// kept out by the recheck under the extent lock, as the thread said: no wait is added for them.
	if p.Has(WriteRangeLock) {
		pl.Lock, pl.RangeFrom = LockBoth, min(f.Start, f.ISize)
	}
	return pl
}

// ForFsync is the plan of an fsync.
func ForFsync(p *Policy) FsyncPlan {
	return FsyncPlan{
		Set:      p.Set,
		Log:      p.Has(FsyncLog),
		LogFirst: p.Has(FsyncLog) && p.Wrong(WrongLogBeforeData),
	}
}

// ForRead makes pl the plan of a direct read. Models btrfs_direct_read(); labs/reference 3.3.
func (pl *DirectPlan) ForRead(f *Facts, p *Policy) {
	pl.forDirect(f, p)
	pl.Lock, pl.HoldReads = LockNone, holdsReads(p)
	if p.Has(DIOShared) {
		pl.Lock, pl.HoldReads = LockShared, false
	}
}

// ForWrite makes pl the plan of a direct write. Models btrfs_direct_write(); labs/reference 3.2.
func (pl *DirectPlan) ForWrite(f *Facts, p *Policy) {
	pl.forDirect(f, p)
	// Before iomap no write beyond EOF was asynchronous. Models do_blockdev_direct_IO().
	pl.ForceWait = !p.Has(DIOShared) && !f.InEOF()
	switch {
	case p.Has(WriteRangeLock):
		pl.lockRange(f)
	case p.Has(DIOShared) && f.Inside() && !f.InodeHeld:
		pl.Lock = LockShared
	case !p.Has(DIOShared) && f.InEOF():
		pl.Lock = LockInodeDrop
	}
	if f.SubBlock {
		pl.forUnaligned(f, p)
	}
	pl.SyncHeld = p.Has(DIOSyncHeld) && (pl.Lock == LockInode || pl.Lock == LockShared || pl.Lock == LockBoth)
}

// forDirect makes pl what direct reads and writes have in common.
func (pl *DirectPlan) forDirect(f *Facts, p *Policy) {
	*pl = DirectPlan{
		Guard: Guard{DrainDirect: queuesSectors(p)},
		Set:   f.of(p),
	}
	switch {
	case p.Wrong(WrongSyncUnmarked):
		pl.SyncMark = MarkNone
	case p.Wrong(WrongSyncMarkOnFile):
		pl.SyncMark = MarkFile
	}
	if f.Nowait {
		pl.MustCOW = !f.MayNocow
	}
}

// Unaligned is a design of direct writes of sectors; labs/reference 7.1.
type Unaligned uint8

// The designs.
const (
	UnalignedBuffered Unaligned = iota
	UnalignedAlone              // of the toggle UnalignedExclusive
	UnalignedChecked            // of UnalignedCheckFirst
	UnalignedRetried            // of UnalignedRetry
	UnalignedParts              // of UnalignedZeroing
)

var unalignedNames = [...]string{"buffered", "exclusive", "check-first", "retry", "zeroing"}

func (u Unaligned) String() string { return unalignedNames[u] }

// forUnaligned makes pl the plan of a direct write of sectors. Where buffered writers do without
// i_rwsem it goes through the page cache, because nothing else keeps them away.
func (pl *DirectPlan) forUnaligned(f *Facts, p *Policy) {
	switch {
	case p.Has(WriteRangeLock) || p.Has(BufUnlockInEOF):
		return
	case p.Has(UnalignedExclusive):
		pl.Unaligned = UnalignedAlone
	case p.Has(UnalignedZeroing):
		pl.Unaligned = UnalignedParts
	case p.Has(UnalignedCheckFirst):
		pl.Unaligned = UnalignedChecked
	case p.Has(UnalignedRetry):
		pl.Unaligned = UnalignedRetried
	default:
		return
	}
	pl.Drain, pl.CheckUnwritten = !p.Wrong(WrongUnalignedNoDrain), !p.Wrong(WrongUnalignedUnwritten)
	// its zeros are its own task's, and its mark comes after them
	pl.Lock, pl.ForceWait = LockShared, p.Wrong(WrongUnalignedUnwritten)
	if pl.Unaligned == UnalignedAlone || f.InodeHeld || !f.Inside() {
		pl.Lock, pl.ForceWait = LockInode, true
	}
}

// queuesSectors reports whether direct writes of sectors may be in flight when no task holds
// i_rwsem for them.
func queuesSectors(p *Policy) bool {
	return (p.Has(UnalignedCheckFirst) || p.Has(UnalignedRetry) || p.Has(UnalignedZeroing)) && !p.Has(UnalignedExclusive) && !p.Has(WriteRangeLock) &&
		!p.Has(BufUnlockInEOF) && !p.Wrong(WrongUnalignedNoWait)
}

package policy

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

// Facts is what a plan may depend on. ISize is only as good as the lock under which it was read: a
// room that takes the locks of a plan asks for the plan again under them.
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

// Lock is what guards the operation against others on the same file.
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

// Plan is how to carry out one operation.
type Plan struct {
	Lock Lock
	// RangeFrom is where the locked range begins when Lock.Range(); it ends at the end of the
	// write, and at the end of all files for the other operations.
	RangeFrom uint64
	// DIOBegin: the operation counts itself in i_dio_count while it runs.
	DIOBegin bool
	// Prewait: wait for writeback and ordered extents of the range before Lock.
	Prewait bool
	// WriteSteps is the order of the steps of a write's batch.
	WriteSteps WriteOrder
	// BalanceOutside: balance_dirty_pages is called once, after all locks are let go; it is not
	// among WriteSteps.
	BalanceOutside bool
	// BatchPages bounds the pages of one round of the copy loop.
	BatchPages int
	// StableWait: wait for writeback of each page before it is changed.
	StableWait bool
	// ISizeUnderLock: a write takes the end of file, from which it zeroes, under the lock that
	// keeps it.
	ISizeUnderLock bool
	// ForceRead: after a copy that got nothing the first page is read even if all of it will be
	// overwritten.
	ForceRead bool
	// NoSnapshot: a write in place keeps snapshots out from the question whether it may to its
	// dirty pages.
	NoSnapshot bool
	// SetsizeSteps is the order of the steps of a shrinking setsize.
	SetsizeSteps SetsizeOrder
	// HoldReads: direct reads without i_rwsem take it from before a shrinking setsize waits for
	// i_dio_count until it has set i_size.
	HoldReads bool
	// LockDiskISize: a setsize that makes the file longer sets disk_i_size under inode->lock.
	LockDiskISize bool
	// AllocSteps is the order of the steps of a fallocate for each gap.
	AllocSteps AllocOrder
	// DIOLocked: the range of a direct I/O is locked for direct I/O before its extent lock is
	// taken.
	DIOLocked bool
	// CsumBuffered: a direct write of a file with checksums goes through the page cache.
	CsumBuffered bool
	// ForceWait: a direct write is waited for, also when its caller wants to be told of its end
	// later.
	ForceWait bool
	// Nowait is how a NOWAIT write is carried out; nothing of it is set for other requests.
	Nowait NowaitPlan
	// Unaligned is how a direct write of sectors goes to the device; with UnalignedBuffered it does
	// not.
	Unaligned Unaligned
	// Drain: such a write that has i_rwsem alone waits for those in flight.
	Drain bool
	// DrainDirect: an operation with i_rwsem alone that changes pages, extents or the end of the
	// file waits for direct writes in flight, of which some may be of sectors. A direct write of
	// whole blocks goes through the page cache where it needs a new extent.
	DrainDirect bool
	// CheckUnwritten: such a write under the shared lock leaves a block alone that is not written.
	CheckUnwritten bool
	// PagesLast: such a write that marks a block written takes its page out of memory after that.
	PagesLast bool
	// RecheckPages: a direct write that has its range locked looks for pages once more.
	RecheckPages bool
	// OwnBits: a direct write that gives its range up takes its own bits from it, and no others.
	OwnBits bool
	// ReserveLate: a direct write reserves with its range locked.
	ReserveLate bool
	// NeedsSpace: a direct write without data space is ENOSPC, also where it would go in place.
	NeedsSpace bool
	// Nofault: a direct write faults its source in between two passes, with no ordered extent in
	// its hands.
	Nofault bool
	// SplitOrdered: of an extent of which a direct write got a part of the source only, the rest is
	// given up, and no more.
	SplitOrdered bool
	// ChecksAgain: a direct write lets i_rwsem go to fault its source in, and asks for its position
	// again.
	ChecksAgain bool
	// SyncHeld: a durable direct write syncs the file before it lets i_rwsem go, if it has it.
	SyncHeld bool
	// SyncMark is how the fsync of SyncHeld knows that i_rwsem is held.
	SyncMark Mark
	// RecheckOrdered: punch hole starts again when an ordered extent appeared in its range after
	// the flush.
	RecheckOrdered bool
}

// NowaitPlan says for the steps of a NOWAIT write whether they answer EAGAIN where others wait.
// What is not named here does in every policy: i_rwsem, space, throttling, the extent lock.
type NowaitPlan struct {
	Unsupported bool // the write is EOPNOTSUPP
	MustCOW     bool // the write is EAGAIN before its first step, for the sake of the inode's flags
	TryPages    bool
	TryOrdered  bool
	TryPrivs    bool
	TryExpand   bool
	TryFault    bool
	TryQuota    bool
	// ReleaseThrottled: a batch that is throttled gives back what it has reserved.
	ReleaseThrottled bool

	// Of direct requests; the same words as the toggles.
	CheckTry, CheckWhole, CheckOnce, PastEOF, OneExtent, AskAlways bool
	TryDirty, TryRange, TryContext, TryMetadata, TryTree           bool
	OwnPath, KeepPath, KeepLeaf, Spin                              bool
	// KeepSnapshot: the check keeps snapshots out and nobody lets them in again. WaitCsums: the
	// search for checksums waits.
	KeepSnapshot, WaitCsums bool
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
func For(op Op, f Facts, p *Policy) (pl Plan) {
	pl.Make(op, &f, p)
	return pl
}

// Make makes pl the plan of an operation, as For does, in the place where the plan stays: its many
// single bytes are dear to copy right after they were written.
func (pl *Plan) Make(op Op, f *Facts, p *Policy) {
	*pl = Plan{}
	switch op {
	case Write:
		pl.forWrite(f, p)
		return
	case SetSize:
		*pl = forSetSize(f, p)
		return
	case DirectWrite, DirectRead:
		pl.forDirect(op, f, p)
		return
	}
	pl.Lock, pl.BatchPages, pl.StableWait = LockInode, 1, true
	pl.AllocSteps, pl.RecheckOrdered, pl.DrainDirect = allocOrder(p), p.PunchRecheckOE, queuesSectors(p)
	// The range-locked writers hold no i_rwsem; the unlocked ones none either, and they are only
	// kept out by the recheck under the extent lock, as the thread said: no wait is added for them.
	if p.WriteRangeLock {
		pl.Lock, pl.RangeFrom = LockBoth, min(f.Start, f.ISize)
	}
}

func (pl *Plan) forWrite(f *Facts, p *Policy) {
	pl.WriteSteps = writeOrder(p)
	pl.BalanceOutside = p.BalanceOutside && p.WriteSteps[0] == NoStep
	pl.BatchPages = BatchMaxPages
	pl.StableWait = !(p.StableSkipNodatasum && f.NoDataSum)
	pl.ISizeUnderLock = !p.Wrong.StaleISize
	pl.ForceRead = !p.Wrong.NoForcedRead
	pl.NoSnapshot = !p.Wrong.SnapshotUnlocked
	// Seed 002 counts every buffered write in i_dio_count, also those that keep the lock.
	pl.DIOBegin = p.BufUnlockInEOF
	pl.DrainDirect = queuesSectors(p)
	if p.CopyByFolio {
		pl.BatchPages = 1
	}
	switch {
	case p.WriteRangeLock && f.Inside() && !f.InodeHeld:
		pl.Lock, pl.RangeFrom = LockRange, f.Start
	case p.WriteRangeLock:
		pl.Lock, pl.RangeFrom = LockBoth, min(f.Start, f.ISize)
	case p.BufUnlockInEOF && f.InEOF():
		pl.Lock = LockInodeDrop
	}
	pl.Prewait = p.PrewaitOutside && f.InEOF()
	if f.Nowait {
		pl.forNowait(f, p)
	}
}

// forNowait changes the plan of a write into one that tries. The inode lock is not let go, because
// to take it again would be a wait; nothing is awaited before it; and throttling comes before the
// batch, so that EAGAIN finds nothing done. Models the loop of btrfs_buffered_write() since 6.1;
// labs/reference 4.1.
func (pl *Plan) forNowait(f *Facts, p *Policy) {
	if pl.Lock == LockInodeDrop {
		pl.Lock = LockInode
	}
	pl.DIOBegin, pl.Prewait, pl.BalanceOutside = false, false, false
	if p.WriteSteps[0] == NoStep {
		pl.WriteSteps = nowaitOrder
	}
	n := &pl.Nowait // see Make
	n.Unsupported, n.MustCOW = !p.NowaitBuffered, !p.NowaitCOW && !f.MayNocow
	n.TryPages, n.TryOrdered, n.TryPrivs = p.NowaitTryPages, p.NowaitTryOrdered, p.NowaitTryPrivs
	n.TryExpand, n.TryFault, n.TryQuota = p.NowaitTryExpand, p.NowaitTryFault, p.NowaitTryQuota
	n.ReleaseThrottled = !p.Wrong.NowaitThrottleLeak
}

func forSetSize(f *Facts, p *Policy) Plan {
	pl := Plan{Lock: LockInode, BatchPages: 1, StableWait: !p.Wrong.ZeroUnderWriteback, SetsizeSteps: setsizeOrder(p), LockDiskISize: !p.Wrong.DiskISizeUnlocked,
		HoldReads: holdsReads(p), DrainDirect: queuesSectors(p)}
	if p.WriteRangeLock {
		pl.Lock, pl.RangeFrom = LockBoth, min(f.NewSize, f.ISize)
	}
	return pl
}

// forDirect is the plan of a direct read or write. Models btrfs_direct_write() and
// btrfs_direct_read(); labs/reference 3.2, 3.3.
func (pl *Plan) forDirect(op Op, f *Facts, p *Policy) {
	pl.DIOBegin, pl.DIOLocked, pl.CsumBuffered, pl.ISizeUnderLock, pl.DrainDirect = true, p.DIOLocked, p.DIOCsumBuffered, true, queuesSectors(p)
	// Before iomap no write beyond EOF was asynchronous. Models do_blockdev_direct_IO().
	pl.RecheckPages, pl.ReserveLate, pl.NeedsSpace = !p.Wrong.DirectNoRecheck, p.Wrong.DirectReserveLate, p.Wrong.DirectNeedsSpace
	pl.OwnBits = !p.Wrong.DirectClearsDelalloc
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
		pl.Lock, pl.HoldReads = LockNone, holdsReads(p)
	case p.WriteRangeLock && f.Inside() && !f.InodeHeld:
		pl.Lock, pl.RangeFrom = LockRange, f.Start
	case p.WriteRangeLock:
		pl.Lock, pl.RangeFrom = LockBoth, min(f.Start, f.ISize)
	case p.DIOShared && f.Inside() && !f.InodeHeld:
		pl.Lock = LockShared
	case !p.DIOShared && f.InEOF():
		pl.Lock = LockInodeDrop
	}
	if f.SubBlock {
		pl.forUnaligned(f, p)
	}
	pl.SyncHeld = p.DIOSyncHeld && (pl.Lock == LockInode || pl.Lock == LockShared || pl.Lock == LockBoth)
	if f.Nowait {
		pl.Nowait.forDirect(f, p)
	}
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

// forUnaligned makes pl the plan of a direct write of sectors. Where buffered writers do without
// i_rwsem it goes through the page cache, because nothing else keeps them away.
func (pl *Plan) forUnaligned(f *Facts, p *Policy) {
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
	pl.Drain, pl.CheckUnwritten, pl.PagesLast = !p.Wrong.UnalignedNoDrain, !p.Wrong.UnalignedUnwritten, !p.Wrong.UnalignedPagesFirst
	// its zeros are its own task's, and its mark comes after them
	pl.Lock, pl.ForceWait = LockShared, p.Wrong.UnalignedUnwritten
	if pl.Unaligned == UnalignedExclusive || f.InodeHeld || !f.Inside() {
		pl.Lock, pl.ForceWait = LockInode, true
	}
}

// queuesSectors reports whether direct writes of sectors may be in flight when no task holds
// i_rwsem for them.
func queuesSectors(p *Policy) bool {
	return (p.UnalignedCheckFirst || p.UnalignedRetry) && !p.UnalignedExclusive && !p.WriteRangeLock && !p.BufUnlockInEOF && !p.Wrong.UnalignedNoWait
}

// forDirect is how a direct NOWAIT request is carried out. Models btrfs_direct_write() and
// btrfs_dio_iomap_begin(); labs/reference 3.5, 3.6.
func (n *NowaitPlan) forDirect(f *Facts, p *Policy) {
	n.MustCOW = !f.MayNocow
	n.TryPrivs, n.TryExpand, n.TryFault = p.NowaitTryPrivs, p.NowaitTryExpand, p.NowaitTryFault
	n.CheckTry, n.CheckWhole, n.CheckOnce = p.NowaitCheckTry, p.NowaitCheckWhole, p.NowaitCheckOnce
	n.PastEOF, n.OneExtent, n.AskAlways = p.NowaitPastEOF, p.NowaitOneExtent, p.NocowAskAlways
	n.TryDirty, n.TryRange, n.TryContext = p.NowaitAsyncExt, p.NowaitTryRange, p.NowaitContext
	n.TryMetadata, n.TryTree = p.NowaitNoFlush, p.NowaitTryTree
	n.OwnPath, n.KeepPath, n.KeepLeaf = !p.NocowPathReuse, !p.NocowPathFree, !p.NocowEarlyRelease
	n.Spin, n.KeepSnapshot, n.WaitCsums = p.Wrong.NowaitSpin, p.Wrong.NowaitSnapshotKept, p.Wrong.NowaitCsumSearch
	n.NoFallback = p.NowaitBuffered
}

package iopath

import (
	"cmp"

	"btrlab/internal/data/inode"
	"btrlab/internal/data/treelog"
	"btrlab/internal/data/writeback"
	"btrlab/internal/format"
	"btrlab/internal/policy"
	"btrlab/internal/sched"
)

// Lab has the functions of a lab in the write path, each in the place of what a policy orders; nil
// leaves it to the policy. Direct requests but for Nowait and Sectors, clones, NOWAIT requests and
// the end of a file that is deleted follow the policy always.
//
// Difference: Linux has no such hooks.
type Lab struct {
	// Write carries out a buffered write by its steps and returns its error. Space that it has
	// reserved and not used goes back, and pages and blocks that are still locked are let go.
	Write func(t *sched.Task, w WriteSteps) error
	// File makes what carries out all operations of one file, writes as well.
	File func() FilePolicy
	// RangeLock makes the byte-range lock of one file, for the policies that have one.
	RangeLock func() inode.RangeLocker
	// Nowait carries out an extent of a NOWAIT direct write: nil says that it has started it.
	Nowait func(t *sched.Task, x NowaitSteps) error
	// Sectors carries out a direct write of sectors that a policy sends to the device.
	Sectors func(t *sched.Task, w SectorSteps)
	// Item puts a file extent of an fsync into the log.
	Item func(t *sched.Task, x treelog.ItemSteps) error
	// Writeback does what is done with a run of dirty pages once it has its ordered extents.
	Writeback func(t *sched.Task, r writeback.RunSteps)
	// SmallLeaf is ctree.Leaves.Small, percent, for the trees of logs; 0 is the kernel's.
	SmallLeaf int
}

// Under is l with the functions of policy p, where p is somebody's own and has some, in the place
// of l's.
func (l Lab) Under(p *policy.Policy) Lab {
	if p.Own == nil {
		return l
	}
	own, ok := p.Own.Lab.(Lab)
	if !ok {
		return l
	}
	own.SmallLeaf = cmp.Or(own.SmallLeaf, l.SmallLeaf)
	return own
}

// FilePolicy carries out the operations on one file by their steps.
type FilePolicy interface {
	Write(t *sched.Task, w WriteSteps) error
	Read(t *sched.Task, r ReadSteps)
	Truncate(t *sched.Task, x TruncateSteps)
	Fallocate(t *sched.Task, x FallocateSteps)
	Fsync(t *sched.Task, x FsyncSteps)
}

// LabWrite is the function of a lab that carries out the writes of the file, nil for none.
func (e *Env) LabWrite(ip *inode.Inode) func(t *sched.Task, w WriteSteps) error {
	if p := LabOf(ip); p != nil {
		return p.Write
	}
	return e.Lab.Write
}

// LabOf is the policy of a lab for the file, nil for none.
func LabOf(ip *inode.Inode) FilePolicy {
	p, _ := ip.Lab.(FilePolicy)
	return p
}

// Bare removes the file's capabilities before a lab's policy changes data. It takes i_rwsem itself,
// because that policy need not. Difference: Linux does so under the locks of the operation; here an
// attribute that is set in between stays.
func (e *Env) Bare(t *sched.Task, ip *inode.Inode) error {
	if ip.NoSec() {
		return nil
	}
	ip.Lock(t)
	defer ip.Unlock(t)
	return e.RemovePrivs(t, ip, false)
}

// WriteSteps are the steps of one buffered write; *buffered.labWrite is one. Its bytes are copied
// by Batch, or in one batch by the steps from WaitWriteback on, of which each wait is one.
type WriteSteps interface {
	FileSteps
	// Len is how many bytes are to be written.
	Len() uint64
	// Range is the bytes of the write; before Place those of an append are where the end of file is
	// now.
	Range(t *sched.Task) (start, end uint64)
	// Appends reports whether the write begins at the end of file, wherever that is at Place.
	Appends() bool
	// Place takes i_size and returns where the write begins. The last Place before Begin counts.
	// Models generic_write_checks().
	Place(t *sched.Task) uint64
	// Prewait waits for writeback and ordered extents of the range. It promises nothing.
	Prewait(t *sched.Task)
	// Begin sets the time stamps, and writes zeros between the i_size of Place and the write. It
	// comes before the first byte. Direct writes in flight are the policy's to wait for: Drain.
	Begin(t *sched.Task) error
	// Batch does one round of the copy loop with at most so many pages, and reports whether bytes
	// are left. After an error none are.
	Batch(t *sched.Task, pages int) (more bool, err error)
	// Balance throttles the writer while too much is dirty.
	Balance(t *sched.Task)

	// WaitWriteback waits for the end of writeback of the pages of [start, end), one after the
	// other. With the pages locked none of them can begin again.
	WaitWriteback(t *sched.Task, start, end uint64)
	// WaitOrdered waits for the ordered extents of [start, end). Their ends may need a page.
	WaitOrdered(t *sched.Task, start, end uint64)
	// Reserve promises data and metadata space for the whole write, or nothing.
	Reserve(t *sched.Task) error
	// LockPages locks the pages in ascending order and reads those that are overwritten in part, or
	// locks none. It does not wait for writeback.
	LockPages(t *sched.Task) error
	UnlockPages(t *sched.Task)
	// LockExtent locks the blocks of the write in the inode's io tree.
	LockExtent(t *sched.Task)
	// Ordered reports whether an ordered extent is in them. The answer holds as long as they are
	// locked.
	Ordered(t *sched.Task) bool
	UnlockExtent(t *sched.Task)
	// Copy copies the source to the pages, makes them dirty, lets i_size follow and hands the
	// reservation to the blocks, whose lock goes with it. Space is reserved, pages and blocks are
	// locked.
	Copy(t *sched.Task)
}

// ReadSteps are the steps of one buffered read; *buffered.labRead is one.
type ReadSteps interface {
	FileSteps
	Range(t *sched.Task) (start, end uint64)
	// Copy copies the bytes page by page.
	Copy(t *sched.Task)
}

// TruncateSteps are the steps of one change of a file's size; *setsize.labTruncate is one.
type TruncateSteps interface {
	FileSteps
	NewSize() uint64
	// SetSize makes the new size visible: a file that becomes shorter loses the pages beyond it,
	// one that becomes longer gets zeros. False says that no extents are to be dropped: the file
	// was not longer, or an error.
	SetSize(t *sched.Task) bool
	// DropExtents waits for ordered extents beyond i_size and drops the file extents there.
	DropExtents(t *sched.Task)
}

// FallocateSteps are the steps of one allocation, punch or zeroing of a range; *fallocate.labChange
// is one.
type FallocateSteps interface {
	FileSteps
	Range(t *sched.Task) (start, end uint64)
	// Punches reports whether the bytes of the range are dropped.
	Punches() bool
	// Change does all of it.
	Change(t *sched.Task)
}

// FsyncSteps are the steps of one fsync; *fsync.labSync is one.
type FsyncSteps interface {
	FileSteps
	// Start starts writeback of what is dirty. It promises nothing.
	Start(t *sched.Task)
	// Flush writes back what is dirty and waits until the trees have it.
	Flush(t *sched.Task)
	// Commit makes durable what the trees have.
	Commit(t *sched.Task)
}

// FileSteps are the steps that every operation has: with the locks of the file, and with its count
// of I/O in flight. *iopath.FileLocks is one.
type FileSteps interface {
	Share(t *sched.Task)
	Alone(t *sched.Task)
	TryShare(t *sched.Task) bool
	TryAlone(t *sched.Task) bool
	Unlock(t *sched.Task)
	LockRange(t *sched.Task, start, end uint64)
	TryLockRange(t *sched.Task, start, end uint64) bool
	UnlockRange(t *sched.Task)
	Count(t *sched.Task)
	Uncount(t *sched.Task)
	Drain(t *sched.Task)
	Size(t *sched.Task) uint64
}

// FileLocks makes an operation a FileSteps.
type FileLocks struct {
	ip     *inode.Inode
	shared bool
	lo, hi uint64 // of the range that is locked
}

// LocksOf are the locks of ip for an operation that holds none.
func LocksOf(ip *inode.Inode) FileLocks { return FileLocks{ip: ip} }

// Share takes i_rwsem for reading.
func (l *FileLocks) Share(t *sched.Task) { l.ip.RLock(t); l.shared = true }

// Alone takes i_rwsem for writing.
func (l *FileLocks) Alone(t *sched.Task) { l.ip.Lock(t); l.shared = false }

// TryShare is Share where that need not wait; else it takes nothing and is false. Models
// inode_trylock_shared().
func (l *FileLocks) TryShare(t *sched.Task) bool {
	ok := l.ip.TryRLock(t)
	l.shared = l.shared || ok
	return ok
}

// TryAlone is Alone where that need not wait; else it takes nothing and is false. Models
// inode_trylock().
func (l *FileLocks) TryAlone(t *sched.Task) bool {
	ok := l.ip.TryLock(t)
	l.shared = l.shared && !ok
	return ok
}

// Unlock lets i_rwsem go.
func (l *FileLocks) Unlock(t *sched.Task) {
	if l.shared {
		l.ip.RUnlock(t)
		return
	}
	l.ip.Unlock(t)
}

// LockRange locks the blocks that have a byte of [start, end).
func (l *FileLocks) LockRange(t *sched.Task, start, end uint64) {
	l.lo, l.hi = format.AlignDown(start, format.SectorSize), format.AlignUp(end, format.SectorSize)
	l.ip.Range.Lock(t, l.lo, l.hi)
}

// TryLockRange is LockRange where that need not wait; else it takes nothing and is false.
func (l *FileLocks) TryLockRange(t *sched.Task, start, end uint64) bool {
	lo, hi := format.AlignDown(start, format.SectorSize), format.AlignUp(end, format.SectorSize)
	ok := l.ip.Range.TryLock(t, lo, hi)
	if ok {
		l.lo, l.hi = lo, hi
	}
	return ok
}

// UnlockRange ends LockRange or TryLockRange.
func (l *FileLocks) UnlockRange(t *sched.Task) { l.ip.Range.Unlock(t, l.lo, l.hi) }

// Count counts the operation in i_dio_count.
func (l *FileLocks) Count(t *sched.Task) { l.ip.DIO.Inc(t) }

// Uncount ends Count.
func (l *FileLocks) Uncount(t *sched.Task) { l.ip.DIO.Dec(t) }

// Drain waits until i_dio_count is zero.
func (l *FileLocks) Drain(t *sched.Task) { l.ip.DIOWait(t) }

// Size is i_size now.
func (l *FileLocks) Size(t *sched.Task) uint64 { return l.ip.Size(t) }

// NowaitSteps are the steps of one extent of a NOWAIT direct write; *direct.labExtent is one.
type NowaitSteps interface {
	// TryRange locks the range if nobody has it and neither an ordered extent nor a page is in it.
	// LockRange waits for it.
	TryRange(t *sched.Task) bool
	LockRange(t *sched.Task)
	UnlockRange(t *sched.Task)
	// Reserve promises metadata, and keeps snapshots out until Release, or until Start has used it.
	// ENOSPC, EDQUOT and EAGAIN promise nothing.
	Reserve(t *sched.Task, flush bool) error
	Release(t *sched.Task)
	// Place asks whether the blocks may be overwritten in place; EAGAIN says no.
	Place(t *sched.Task) error
	// Start makes the ordered extent, at the place that was found last.
	Start(t *sched.Task)
}

// Blocks is the state of the blocks that a direct write of sectors touches.
type Blocks uint8

// The kinds. Only written ones, and unwritten ones with zeros around the sectors, may be written in
// place.
const (
	// a hole, shared, or of several extents: the write goes through the page cache
	BlocksElsewhere Blocks = iota
	BlocksUnwritten        // allocated and not written
	BlocksWritten
)

// SectorSteps are the steps of a direct write of sectors; *direct.labSectors is one, and says what
// each does.
type SectorSteps interface {
	Share(t *sched.Task)
	Alone(t *sched.Task)
	Unlock(t *sched.Task)
	Inside() bool
	Look(t *sched.Task) Blocks
	Drain(t *sched.Task)
	Submit(t *sched.Task) bool
	Wait(t *sched.Task)
	Cache()
}

package iopath

import (
	"btrlab/internal/data/inode"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// WritePolicy carries out the buffered writes of one file by their steps, in the place of the plans
// of package policy. It is for labs: fs.FS.SetFilePolicy gives each inode one. Write returns the
// write's error. Space that it has reserved and not used goes back, and pages and blocks that are
// still locked are let go.
//
// What does not come here follows the policy of the file system: direct requests, clones, NOWAIT
// requests, the end of a file that is deleted, and all operations but writes unless the policy is a
// FilePolicy.
//
// Difference: Linux has no such door.
type WritePolicy interface {
	Write(t *sched.Task, w WriteSteps) error
}

// FilePolicy is a WritePolicy that carries out the other operations of the file as well.
type FilePolicy interface {
	WritePolicy
	Read(t *sched.Task, r ReadSteps)
	Truncate(t *sched.Task, x TruncateSteps)
	Fallocate(t *sched.Task, x FallocateSteps)
	Fsync(t *sched.Task, x FsyncSteps)
}

// OwnWrite is the policy of the file's own for its writes, nil for none.
func OwnWrite(ip *inode.Inode) WritePolicy {
	p, _ := ip.Own.(WritePolicy)
	return p
}

// Own is the policy of the file's own for all operations, nil for none.
func Own(ip *inode.Inode) FilePolicy {
	p, _ := ip.Own.(FilePolicy)
	return p
}

// Bare takes the file's capabilities away before a policy of the file's own has an operation that
// changes bytes: under i_rwsem, which that policy need not take. Difference: Linux does so under
// the locks of the operation; here an attribute that is set in between stays.
func (e *Env) Bare(t *sched.Task, ip *inode.Inode) error {
	if ip.NoSec() {
		return nil
	}
	ip.Lock(t)
	defer ip.Unlock(t)
	return e.RemovePrivs(t, ip, false)
}

// WriteSteps are the steps of one buffered write. Its bytes are copied by Batch, or by BatchSteps.
type WriteSteps interface {
	FileSteps
	BatchSteps
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
}

// BatchSteps are the steps of a Batch that has all bytes of the write, but for the waits: they are
// steps of their own.
type BatchSteps interface {
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

// ReadSteps are the steps of one buffered read.
type ReadSteps interface {
	FileSteps
	Range(t *sched.Task) (start, end uint64)
	// Copy copies the bytes page by page.
	Copy(t *sched.Task)
}

// TruncateSteps are the steps of one change of a file's size.
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

// FallocateSteps are the steps of one allocation, punch or zeroing of a range.
type FallocateSteps interface {
	FileSteps
	Range(t *sched.Task) (start, end uint64)
	// Punches reports whether the bytes of the range are dropped.
	Punches() bool
	// Change does all of it.
	Change(t *sched.Task)
}

// FsyncSteps are the steps of one fsync.
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
// of I/O in flight.
type FileSteps interface {
	Share(t *sched.Task)
	Alone(t *sched.Task)
	Unlock(t *sched.Task)
	LockRange(t *sched.Task, start, end uint64)
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

// UnlockRange ends LockRange.
func (l *FileLocks) UnlockRange(t *sched.Task) { l.ip.Range.Unlock(t, l.lo, l.hi) }

// Count counts the operation in i_dio_count.
func (l *FileLocks) Count(t *sched.Task) { l.ip.DIO.Inc(t) }

// Uncount ends Count.
func (l *FileLocks) Uncount(t *sched.Task) { l.ip.DIO.Dec(t) }

// Drain waits until i_dio_count is zero.
func (l *FileLocks) Drain(t *sched.Task) { l.ip.DIO.WaitZero(t) }

// Size is i_size now.
func (l *FileLocks) Size(t *sched.Task) uint64 { return l.ip.Size(t) }

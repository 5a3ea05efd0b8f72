// Package inode is the inode in memory: its locks, sizes, pages, extent state and reservation
// accounting, and the list of those whose item must be written at the next commit.
//
// Lock order:
//
//	i_rwsem_dir                      Inode.rwsem of a directory: parents, then children (LockDir)
//	i_rwsem                          Inode.rwsem of a file; two inodes: lower ino first
//	  range_lock                     policy range-lock: byte range of the whole write
//	    space_ticket, balance_dirty, ordered_extent   waits
//	      page                       of Inode.Pages, ascending index
//	        extent                   of Inode.IOTree, ascending start
//	          io_tree                the tree's own mutex; its hooks touch atomics only
//	          inode_mu               Inode.mu, a leaf
//
// Invariants, when nothing is in flight (CheckQuiescent):
//   - no byte of IOTree has a bit, no extent is ordered, no page is dirty or under writeback;
//   - outstanding extents, checksum bytes and the metadata reservation are zero.
//
// Model: struct btrfs_inode with struct inode in it. Difference: the inode item is written at
// commit for every inode that changed (as the delayed inode code does), never by the completion of
// an ordered extent.
package inode

import (
	"errors"
	"fmt"
	"sync/atomic"

	"btrlab/internal/data/extentmap"
	"btrlab/internal/data/ordered"
	"btrlab/internal/data/pagecache"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/extentio"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

// The classes of an inode's locks and waits.
var (
	Class      = lockdep.NewClass("i_rwsem")
	DirClass   = lockdep.NewClass("i_rwsem_dir")
	RangeClass = lockdep.NewClass("range_lock")
	DIOClass   = lockdep.NewClass("dio_wait")
	muClass    = lockdep.NewClass("inode_mu")
	listClass  = lockdep.NewClass("dirty_inodes")
)

// FS holds the state that the inodes of one file system share.
type FS struct {
	Space *spaceinfo.Space
	Quota *qgroup.Quota // nil has quotas off
	Cache *pagecache.Cache
	Pool  ordered.Pool
	Csum  format.CsumType // of data
	// NewRangeLocker, if set before the first inode is made, makes the range locks of all inodes:
	// a lab's.
	NewRangeLocker func() RangeLocker
	// NewLab, if set, makes Inode.Lab of each inode.
	NewLab func() any
	// Holes, if set before the first inode is made, gives a part of a file beyond i_size items for
	// its holes (zero.Holes), and the size on disk waits for the items before it: an image without
	// no-holes. nil is one with.
	Holes func(t *sched.Task, ip *Inode, start, end uint64) error
	// Logging says that fsync writes a log, so that an inode remembers which file extents have
	// changed.
	Logging atomic.Bool
	// Remember says that the answer whether an extent may be overwritten in place is kept with its
	// map. Btrfs asks the trees each time; ext4 and XFS have the map in memory.
	Remember atomic.Bool

	// delalloc is the bytes of all inodes that are dirty and have no place on disk yet.
	delalloc atomic.Int64

	mu    lock.Mutex // leaf; protects dirty
	dirty []*Inode
}

// NewFS makes the shared part.
func NewFS(space *spaceinfo.Space, cache *pagecache.Cache) *FS {
	f := &FS{Space: space, Cache: cache}
	f.Pool.Init()
	f.mu.Init(listClass)
	return f
}

// DelallocBytes is the bytes of dirty data that wait for an extent. Models fs_info->delalloc_bytes.
func (f *FS) DelallocBytes() uint64 { return uint64(max(f.delalloc.Load(), 0)) }

// Inode is a file, directory or symbolic link in memory. Models struct btrfs_inode.
type Inode struct {
	Ino  format.Ino
	Root *ctree.Root
	FS   *FS

	rwsem lock.RWSem // class "i_rwsem"
	dir   bool       // it is a directory, for traces
	// DIO counts direct and unlocked I/Os in flight; setsize waits for zero. Models i_dio_count.
	DIO lock.Counter
	// Range locks byte ranges of whole writes, for the policy range-lock.
	Range RangeLock
	// Lab is a lab's policy for this file, nil for none: package iopath knows its type.
	Lab any

	// Each of these has its own lock.
	IOTree  extentio.Tree
	Pages   pagecache.Mapping
	Ordered ordered.Tree
	Extents extentmap.Cache

	// size is i_size, written under rwsem and read without a lock. An unlocked writer that a
	// truncate overtakes writes it without rwsem: the lost truncate of seed 002.
	size    atomic.Uint64
	sizeObj sched.Obj   // size, to an explorer
	held    atomic.Bool // HoldReads; written under rwsem
	heldObj sched.Obj   // held, to an explorer

	// Flags that are read without a lock.
	flags   atomic.Uint64 // format.Inode*; written under rwsem
	dirty   atomic.Bool   // on FS.dirty: MarkDirty, WriteDirty
	deleted atomic.Bool   // the item is about to go, or is gone: Forget
	noSec   atomic.Bool   // known to have no security attribute; written under rwsem: NoSec
	// atimeGood is the second until which a read under relatime leaves the access time alone, 0
	// when that is not known; written under mu: NeedsAtime
	atimeGood atomic.Int64
	// EvictPages has begun: pages leave the io tree to it
	evicting atomic.Bool
	// compress is the kind of compression that the property says, format.CompressNone without one;
	// written under rwsem. Models prop_compress.
	compress atomic.Uint32
	async    atomic.Bool // HasAsyncExtent

	// For fsync: written with a handle of the transaction open, read without a lock. An fsync that
	// reads too early finds the transaction that is running, and so logs or commits.

	// LastTransid is the last transaction that changed the inode's items, or is about to: an inode
	// that is not dirty is durable when that one is. Models last_trans.
	LastTransid atomic.Uint64
	unlogged    atomic.Bool   // changed since TakeUnlogged
	itemsIn     atomic.Uint64 // names or attributes have changed in this transaction: ItemsChanged
	allIn       atomic.Uint64 // any file extent may have changed in this transaction
	barredIn    atomic.Uint64 // only a commit can say what this transaction did: BarLog
	log         logged        // under its mutex: LockLog

	acct account

	mu       lock.Mutex // leaf; protects the fields below and those of acct that are not atomic
	item     format.InodeItem
	itemData sched.Shared
	// diskSize is disk_i_size: what the inode item says. It follows i_size as data reaches the
	// disk.
	diskSize sched.Var[uint64]
	// covered is the ranges that have file extent items, of a regular file where holes have some.
	// Models btrfs_inode.file_extent_tree.
	covered []Range
}

// String names the inode in reports.
func (ip *Inode) String() string { return fmt.Sprintf("inode %d", ip.Ino) }

// The names of an inode's fields in reports of data races.
const (
	nameItem     = sched.Label("inode item (times, nbytes)")
	nameReserved = sched.Label("inode's metadata reservation")
)

// New makes the inode in memory from its item.
func (f *FS) New(root *ctree.Root, ino format.Ino, item *format.InodeItem) *Inode {
	ip := &Inode{Ino: ino, Root: root, FS: f, item: *item}
	ip.rwsem.InitHandoff(Class)
	if item.Mode&format.S_IFMT == format.S_IFDIR {
		ip.rwsem.SetClass(DirClass)
		ip.dir = true
	}
	ip.DIO.Init(DIOClass)
	ip.Range.init(f)
	ip.SetLab()
	ip.mu.Init(muClass)
	ip.log.mu.Init(classLog)
	ip.IOTree.Init(hooks{ip})
	ip.Pages.Init(f.Cache, ip)
	ip.Ordered.Init(&f.Pool)
	ip.Extents.Init()
	ip.size.Store(item.Size)
	ip.diskSize.Init(item.Size)
	ip.diskSize.Name = "disk_i_size"
	ip.flags.Store(item.Flags)
	if ip.holes() && item.Size > 0 {
		ip.covered = []Range{{End: format.AlignUp(item.Size, format.SectorSize)}}
	}
	return ip
}

// SetLab makes Lab again, as FS.NewLab says now. No operation on the inode is in flight.
func (ip *Inode) SetLab() {
	ip.Lab = nil
	if ip.FS.NewLab != nil {
		ip.Lab = ip.FS.NewLab()
	}
}

// SetHandoff says whether i_rwsem is handed to a waiter that has been passed over for long
// (lock.RWSem.SetHandoff); a new inode begins with true. No task holds i_rwsem or waits for it.
func (ip *Inode) SetHandoff(on bool) { ip.rwsem.SetHandoff(on) }

// Lock takes i_rwsem for writing.
func (ip *Inode) Lock(t *sched.Task) {
	ip.rwsem.LockNested(t, uint64(ip.Ino))
	t.CountInode(true)
	ip.traced(t, "inode_lock")
}

// LockDir is Lock of a directory, which may be locked while others are: sub is its place among
// them, ascending. Models inode_lock_nested() with I_MUTEX_PARENT, I_MUTEX_PARENT2 and
// I_MUTEX_CHILD.
func (ip *Inode) LockDir(t *sched.Task, sub uint64) {
	ip.rwsem.LockNested(t, sub)
	t.CountInode(true)
	ip.traced(t, "inode_lock")
}

// TryLock takes i_rwsem for writing if it is free.
func (ip *Inode) TryLock(t *sched.Task) bool {
	ok := ip.rwsem.TryLockNested(t, uint64(ip.Ino))
	if ok {
		t.CountInode(true)
		ip.traced(t, "inode_trylock")
	}
	return ok
}

// Unlock ends Lock or TryLock.
func (ip *Inode) Unlock(t *sched.Task) {
	ip.traced(t, "inode_unlock")
	t.CountInode(false)
	ip.rwsem.Unlock(t)
}

// RLock takes i_rwsem for reading.
func (ip *Inode) RLock(t *sched.Task) {
	ip.rwsem.RLockNested(t, uint64(ip.Ino))
	ip.traced(t, "inode_lock_shared")
}

// TryRLock takes i_rwsem for reading if no task has it, or waits for it, for writing.
func (ip *Inode) TryRLock(t *sched.Task) bool {
	ok := ip.rwsem.TryRLockNested(t, uint64(ip.Ino))
	if ok {
		ip.traced(t, "inode_trylock_shared")
	}
	return ok
}

// RUnlock ends RLock or TryRLock.
func (ip *Inode) RUnlock(t *sched.Task) {
	ip.traced(t, "inode_unlock_shared")
	ip.rwsem.RUnlock(t)
}

// traced tells a step with i_rwsem, by the name of the kernel's inline function.
func (ip *Inode) traced(t *sched.Task, name string) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: name, What: kindOf(ip)})
	}
}

// kindOf says what the inode is, for traces.
func kindOf(ip *Inode) string {
	if ip.dir {
		return "dir"
	}
	return "file"
}

// LockTwo takes i_rwsem of two inodes for writing, of the lower number first; they may be the same.
// Models lock_two_nondirectories(). Difference: the kernel goes by the address.
func LockTwo(t *sched.Task, a, b *Inode) {
	switch {
	case a == b:
		a.Lock(t)
		return
	case b.Ino < a.Ino || b.Ino == a.Ino && b.Root.ID < a.Root.ID:
		a, b = b, a
	}
	a.Lock(t)
	// Inodes of two subvolumes may have one number.
	b.rwsem.LockNested(t, max(uint64(b.Ino), uint64(a.Ino)+1))
	b.traced(t, "inode_lock")
}

// UnlockTwo ends LockTwo.
func UnlockTwo(t *sched.Task, a, b *Inode) {
	a.Unlock(t)
	if a != b {
		b.Unlock(t)
	}
}

// AssertLocked panics when a checked task does not hold i_rwsem for writing.
func (ip *Inode) AssertLocked(t *sched.Task) { ip.rwsem.AssertHeld(t) }

// AssertRLocked panics when a checked task holds i_rwsem neither for writing nor for reading.
func (ip *Inode) AssertRLocked(t *sched.Task) { ip.rwsem.AssertRHeld(t) }

// Size is i_size in bytes. It changes under i_rwsem, but unlocked writers and readers look without
// it.
func (ip *Inode) Size(t *sched.Task) uint64 {
	ip.sizePoint(t, sched.PointLoad, sched.Reads)
	return ip.loadSize(t)
}

// sizePoint is the scheduling point of an access to i_size.
func (ip *Inode) sizePoint(t *sched.Task, kind sched.PointKind, use sched.Use) {
	if rt := t.Runtime(); rt != nil {
		t.Next = sched.Op{Kind: kind, Class: Class.ID, Use: use, Obj: &ip.sizeObj, ID: &ip.size}
		rt.Enter(t)
	}
}

func (ip *Inode) loadSize(t *sched.Task) uint64 {
	size := ip.size.Load()
	if st := t.Stepper(); st != nil {
		st.See(t, size)
	}
	return size
}

// Objects names what a schedule sees of the inode, by its kernel name.
func (ip *Inode) Objects(name func(id any, name string)) {
	name(&ip.rwsem, "i_rwsem")
	name(&ip.size, "i_size")
	name(&ip.held, "READDIO_NEED_LOCK")
	name(&ip.DIO, "i_dio_count")
	name(&ip.IOTree, "extent range")
	name(&ip.Range, "byte range")
}

// DebugSize is i_size for who watches from outside: no scheduling point.
func (ip *Inode) DebugSize() uint64 { return ip.size.Load() }

// SetSize sets i_size in memory. Models i_size_write().
func (ip *Inode) SetSize(t *sched.Task, size uint64) {
	ip.sizePoint(t, sched.PointAtomic, sched.Writes)
	if old := ip.size.Swap(size); old != size && t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "i_size_write", Len: size})
	}
}

// SetSizes sets i_size and the size that the inode item says, of an inode that no other task has.
// Models btrfs_i_size_write().
func (ip *Inode) SetSizes(t *sched.Task, size uint64) {
	ip.SetSize(t, size)
	ip.mu.Lock(t)
	ip.diskSize.Store(t, size)
	ip.mu.Unlock(t)
}

// DIOWait waits until no direct and no unlocked I/O is in flight. Models inode_dio_wait().
func (ip *Inode) DIOWait(t *sched.Task) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "inode_dio_wait"})
	}
	ip.DIO.WaitZero(t)
}

// HoldReads says whether direct reads that would go without i_rwsem take it: a shrinking setsize
// waits for i_dio_count and has not set i_size yet, and a read that began in between would see the
// old one. ip is locked for writing.
//
// Models BTRFS_INODE_READDIO_NEED_LOCK.
func (ip *Inode) HoldReads(t *sched.Task, yes bool) {
	ip.heldPoint(t, sched.PointAtomic, sched.Writes)
	ip.held.Store(yes)
}

// ReadsHeld reports what HoldReads said last. A read asks after it has counted in DIO.
func (ip *Inode) ReadsHeld(t *sched.Task) bool {
	ip.heldPoint(t, sched.PointLoad, sched.Reads)
	held := ip.held.Load()
	if st := t.Stepper(); st != nil {
		st.See(t, sched.HashOf(held))
	}
	return held
}

// heldPoint is the scheduling point of an access to held, for searches that switch at direct I/O:
// to others it is no step.
func (ip *Inode) heldPoint(t *sched.Task, kind sched.PointKind, use sched.Use) {
	if rt := t.Runtime(); rt != nil {
		t.Next = sched.Op{Kind: kind, Class: extentio.DIOClass.ID, Use: use, Obj: &ip.heldObj, ID: &ip.held}
		rt.Enter(t)
	}
}

// DiskSize is the size in the inode item.
func (ip *Inode) DiskSize(t *sched.Task) uint64 {
	ip.mu.Lock(t)
	defer ip.mu.Unlock(t)
	return ip.diskSize.Load(t)
}

// SetDiskSize says what the inode item shall say; MarkDirty makes it durable.
// Models btrfs_inode_safe_disk_i_size_write() with a size.
func (ip *Inode) SetDiskSize(t *sched.Task, size uint64) { ip.SetDiskSizeLocking(t, size, true) }

// SetDiskSizeLocking is SetDiskSize for a plan that says whether Inode.mu is taken; the museum has
// one that does not.
func (ip *Inode) SetDiskSizeLocking(t *sched.Task, size uint64, locking bool) {
	if locking {
		ip.mu.Lock(t)
		defer ip.mu.Unlock(t)
	}
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_inode_safe_disk_i_size_write", Len: size})
	}
	ip.diskSize.Store(t, ip.safeSize(size))
}

// FollowSize makes the size in the inode item i_size and reports whether it was another; MarkDirty
// makes it durable. i_size is looked at under the lock: a truncate sets i_size before it calls
// SetDiskSize, so whoever of the two comes last here leaves the new size. Models
// btrfs_inode_safe_disk_i_size_write(): with NO_HOLES the disk size is i_size once any data is
// there, else no more than what has items from the start of the file on.
func (ip *Inode) FollowSize(t *sched.Task) bool {
	ip.sizePoint(t, sched.PointLoad, sched.Reads)
	ip.mu.Lock(t)
	defer ip.mu.Unlock(t)
	t.Touch(&ip.sizeObj, sched.Reads)
	size := ip.safeSize(ip.loadSize(t))
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_inode_safe_disk_i_size_write", Len: size})
	}
	if size == ip.diskSize.Load(t) {
		return false
	}
	ip.diskSize.Store(t, size)
	return true
}

// Flags are the inode flags, format.InodeNoDataCow and so on.
func (ip *Inode) Flags() uint64 { return ip.flags.Load() }

// SetFlags replaces the inode flags; MarkDirty makes it durable.
func (ip *Inode) SetFlags(f uint64) { ip.flags.Store(f) }

// AddFlags sets flags; MarkDirty makes it durable.
func (ip *Inode) AddFlags(f uint64) { ip.flags.Or(f) }

// Sums reports whether data of the inode has checksums.
func (ip *Inode) Sums() bool { return ip.flags.Load()&format.InodeNoDataSum == 0 }

// Nocow reports whether data of the inode is overwritten in place where possible.
func (ip *Inode) Nocow() bool { return ip.flags.Load()&format.InodeNoDataCow != 0 }

// MayNocow reports whether some write of the inode may go in place: NODATACOW or preallocated.
func (ip *Inode) MayNocow() bool {
	return ip.flags.Load()&(format.InodeNoDataCow|format.InodePrealloc) != 0
}

// CompressProp is the kind of compression that the inode's property btrfs.compression says, or
// format.CompressNone. Models prop_compress.
func (ip *Inode) CompressProp() uint8 { return uint8(ip.compress.Load()) }

// SetCompressProp changes CompressProp. ip is locked for writing, or nobody else has it yet.
func (ip *Inode) SetCompressProp(kind uint8) { ip.compress.Store(uint32(kind)) }

// HasAsyncExtent reports whether some range of the inode has been handed to compression since it
// came into memory. Models BTRFS_INODE_HAS_ASYNC_EXTENT, which is never cleared either.
func (ip *Inode) HasAsyncExtent() bool { return ip.async.Load() }

// SetAsyncExtent makes HasAsyncExtent true.
func (ip *Inode) SetAsyncExtent() { ip.async.Store(true) }

// Item is a copy of the inode item as the next commit would write it.
func (ip *Inode) Item(t *sched.Task) format.InodeItem {
	ip.mu.Lock(t)
	ip.itemData.Read(t, nameItem)
	it := ip.item
	if it.Mode&format.S_IFMT == format.S_IFREG {
		it.Size = ip.diskSize.Load(t)
	}
	ip.mu.Unlock(t)
	it.Flags = ip.flags.Load()
	return it
}

// Change edits the inode item under Inode.mu and marks the inode dirty. Size (of regular files) and
// Flags of the item are not looked at: use SetSize, SetDiskSize and SetFlags.
func (ip *Inode) Change(t *sched.Task, f func(it *format.InodeItem)) {
	ip.mu.Lock(t)
	ip.itemData.Write(t, nameItem)
	f(&ip.item)
	ip.atimeGood.Store(0)
	ip.mu.Unlock(t)
	ip.MarkDirty(t)
}

// NoSec reports whether the inode is known to have no attribute that a change of its bytes takes
// away. It changes with the inode locked for writing. Models IS_NOSEC(). Difference: an inode that
// comes into memory without attributes is known to have none; in Linux the first writer asks.
func (ip *Inode) NoSec() bool { return ip.noSec.Load() }

// SetNoSec changes NoSec.
func (ip *Inode) SetNoSec(yes bool) { ip.noSec.Store(yes) }

// Touch sets mtime and ctime and counts a change. Models file_update_time().
func (ip *Inode) Touch(t *sched.Task, now format.Timespec) {
	ip.mu.Lock(t)
	ip.itemData.Write(t, nameItem)
	ip.item.Mtime, ip.item.Ctime = now, now
	ip.item.Sequence++
	ip.atimeGood.Store(0)
	ip.mu.Unlock(t)
	ip.MarkDirty(t)
}

// AddBytes changes the bytes allocated to the file. The item of a damaged image may say less than
// its extents have: the count stops at zero then. Models inode_add_bytes() and inode_sub_bytes().
func (ip *Inode) AddBytes(t *sched.Task, delta int64) {
	ip.mu.Lock(t)
	ip.itemData.Write(t, nameItem)
	if delta < 0 {
		ip.item.Nbytes -= min(ip.item.Nbytes, uint64(-delta))
	} else {
		ip.item.Nbytes += uint64(delta)
	}
	ip.mu.Unlock(t)
	ip.MarkDirty(t)
}

// MarkDirty lets the next commit write the inode item, and the next fsync log it.
func (ip *Inode) MarkDirty(t *sched.Task) {
	if !ip.unlogged.Load() {
		ip.unlogged.Store(true)
	}
	if ip.dirty.Load() || !ip.dirty.CompareAndSwap(false, true) {
		return
	}
	ip.FS.mu.Lock(t)
	ip.FS.dirty = append(ip.FS.dirty, ip)
	ip.FS.mu.Unlock(t)
}

// Dirty reports whether the inode item waits for a commit.
func (ip *Inode) Dirty() bool { return ip.dirty.Load() }

// Forget takes an inode off the dirty list because the caller's transaction deletes its item next.
func (ip *Inode) Forget(t *sched.Task) {
	ip.deleted.Store(true)
	ip.FS.mu.Lock(t)
	defer ip.FS.mu.Unlock(t)
	for i, d := range ip.FS.dirty {
		if d == ip {
			ip.FS.dirty = append(ip.FS.dirty[:i], ip.FS.dirty[i+1:]...)
			break
		}
	}
	ip.dirty.Store(false)
}

// Updater writes an inode item; *fstree.Store is one. ENOENT when there is no item.
type Updater interface {
	UpdateInode(t *sched.Task, tr *ctree.Trans, r *ctree.Root, ino format.Ino, it *format.InodeItem) error
}

// WriteDirty writes the items of all dirty inodes into the transaction; every commit calls it first
// while other handles are open, and again when none is. So an inode may be deleted, its item with
// it, after WriteDirty took the list that has it: the missing item is no error then. Models
// btrfs_run_delayed_items() for inode items.
func (f *FS) WriteDirty(t *sched.Task, tr *ctree.Trans, u Updater) error {
	f.mu.Lock(t)
	list := f.dirty
	f.dirty = nil
	f.mu.Unlock(t)
	for i, ip := range list {
		// An fsync that finds no mark waits for this transaction, so that comes first: the item is
		// in the tree only later, and durable later still.
		ip.LastTransid.Store(tr.ID)
		// The mark goes before the item is read: a change that comes later marks the inode again.
		ip.dirty.Store(false)
		it := ip.Item(t)
		it.Transid = tr.ID
		err := u.UpdateInode(t, tr, ip.Root, ip.Ino, &it)
		if errors.Is(err, errno.ENOENT) && ip.deleted.Load() {
			continue
		}
		if err != nil {
			for _, ip := range list[i:] {
				ip.dirty.Store(false)
				ip.MarkDirty(t)
			}
			return fmt.Errorf("update inode root=%d ino=%d: %w", ip.Root.ID, ip.Ino, err)
		}
	}
	return nil
}

// DirtyCount is the number of inodes that wait for a commit.
func (f *FS) DirtyCount(t *sched.Task) int {
	f.mu.Lock(t)
	defer f.mu.Unlock(t)
	return len(f.dirty)
}

// OfMapping is the inode whose pages m has.
func OfMapping(m *pagecache.Mapping) *Inode { return m.Owner().(*Inode) }

// SetError records that writing the inode's data failed, for fsync. Models mapping_set_error().
func (ip *Inode) SetError(t *sched.Task, err error) { ip.Pages.SetError(t, err) }

// Invalidate drops delayed allocation of the bytes [from, to), whose pages are locked or gone, with
// its reservation.
//
// Models btrfs_invalidate_folio(). Difference: an ordered extent over the page has all its bios
// submitted, so it ends by itself and is left alone.
func (ip *Inode) Invalidate(t *sched.Task, from, to uint64) {
	if ip.evicting.Load() {
		return // EvictPages ends with the whole tree
	}
	ip.clearAll(t, from, to)
	ip.Release(t, from, to)
}

// clearAll takes every bit of [from, to) away and gives back what is reserved for it. It may wait
// for the extent lock.
func (ip *Inode) clearAll(t *sched.Task, from, to uint64) {
	ip.IOTree.Lock(t, from, to)
	ip.FreeQuota(t, from, to)
	ip.IOTree.Change(t, from, to, extentio.Locked|extentio.Delalloc|extentio.DoAccounting|extentio.ClearAll, 0)
	ip.SettleCleared(t)
}

// Release takes away what [from, to) has in the io tree besides locks: the clean page of it goes,
// or a part of it. Models __btrfs_release_folio().
func (ip *Inode) Release(t *sched.Task, from, to uint64) {
	ip.IOTree.Clear(t, from, to, extentio.AnyBits)
}

// EvictPages drops the pages of an inode that goes, and then whatever its io tree still has. Models
// evict_inode_truncate_pages().
//
// Preconditions:
//   - no task but this one, and completions, uses the inode.
func (ip *Inode) EvictPages(t *sched.Task) {
	ip.evicting.Store(true)
	ip.Pages.Truncate(t, 0, pagecache.MaxFileEnd)
	for {
		start, end, ok := ip.IOTree.FirstSet(t, 0, ^extentio.Bits(0))
		if !ok {
			return
		}
		ip.clearAll(t, start, end)
	}
}

// CheckQuiescent panics unless the inode is at rest: no delayed allocation, no locked range,
// nothing ordered, dirty or under writeback, and nothing reserved.
func (ip *Inode) CheckQuiescent(t *sched.Task) {
	ip.Ordered.CheckEmpty(t)
	// NORESERVE says nothing of a range that is not delalloc, and stays until its pages go.
	if _, _, any := ip.IOTree.FirstSet(t, 0, ^extentio.NoReserve); any {
		panic(fmt.Sprintf("inode: ino=%d at rest has io tree states:\n%s", ip.Ino, ip.IOTree.Dump(t)))
	}
	if d, w := ip.Pages.DirtyPages(t), ip.Pages.WritebackPages(t); d != 0 || w != 0 {
		panic(fmt.Sprintf("inode: ino=%d at rest has %d dirty pages, %d under writeback", ip.Ino, d, w))
	}
	ip.checkAccount(t)
	if n := ip.DIO.Load(); n != 0 {
		panic(fmt.Sprintf("inode: ino=%d at rest has dio count %d", ip.Ino, n))
	}
	if ip.held.Load() {
		panic(fmt.Sprintf("inode: ino=%d at rest holds direct reads", ip.Ino))
	}
}

// CheckQuiescent panics unless the file system's data side is at rest.
func (f *FS) CheckQuiescent(t *sched.Task) {
	n, b := f.Pool.InFlight()
	if d := f.delalloc.Load(); d != 0 || n != 0 || b != 0 {
		panic(fmt.Sprintf("inode: file system at rest has %d delalloc bytes, %d ordered extents of %d bytes", d, n, b))
	}
	if d, w := f.Cache.BDI.Dirty.Load(), f.Cache.BDI.Writeback.Load(); d != 0 || w != 0 {
		panic(fmt.Sprintf("inode: file system at rest has %d dirty pages, %d under writeback", d, w))
	}
}

// Package spaceinfo keeps the promises: how many bytes of data, metadata and system space exist,
// are used, and have been promised to somebody who has not allocated yet.
//
// The normal life of a byte is Reserve (may_use up), allocation (may_use down, reserved up), the
// run of its delayed reference (reserved down, used up); on the way back used down, pinned up, and
// at commit pinned down. A reservation that does not fit becomes a ticket, unless its mode says
// that it fails at once: tickets are served in order, and the first task without a flusher becomes
// the flusher, which writes back delalloc, allocates chunks and commits until its ticket is granted
// or nothing more can be won.
//
// Model: fs/btrfs/space-info.c. Difference: the flusher is a waiting task, not a worker; what a
// waiter may hold is bounded by the rank of space_ticket, so it holds nothing that flushing needs.
// In the real runtime writeback begins before there is a ticket (Flushers.Preempt).
//
// Invariant: used + pinned + reserved + may_use + readonly <= total, but for metadata overcommit
// and FlushEmergency.
package spaceinfo

import (
	"fmt"
	"strings"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
)

var (
	classInfo   = lockdep.NewClass("space_info")
	classTicket = lockdep.NewClass("space_ticket")
)

// FlushMode says what a reservation may do when space is short. Models enum
// btrfs_reserve_flush_enum; labs/reference 5.3.
type FlushMode uint8

// The modes.
const (
	NoFlush FlushMode = iota // ENOSPC at once, never sleeps: NOWAIT
	// what would abort the transaction: at once, and more than is promised if blocks are free
	FlushEmergency
	FlushLimit // a transaction is open: only chunk allocation, never commits
	FlushEvict // inode eviction: as FlushAllSteal
	FlushData  // data: chunks, delalloc, commit
	FlushAll   // metadata: delalloc, chunks, commit
	// metadata of a delete: as FlushAll, and then the global reserve
	FlushAllSteal
)

var modeNames = [...]string{"NO_FLUSH", "FLUSH_EMERGENCY", "FLUSH_LIMIT", "FLUSH_EVICT", "FLUSH_DATA", "FLUSH_ALL", "FLUSH_ALL_STEAL"}

// steals reports whether the global reserve may help when flushing has won nothing. Models
// can_steal().
func (m FlushMode) steals() bool { return m == FlushEvict || m == FlushAllSteal }

func (m FlushMode) String() string { return modeNames[m] }

// Flushers is the door upward: what can win space. The file system fills it.
type Flushers interface {
	// FlushDelalloc starts writeback of at least bytes of dirty data, and waits for the ordered
	// extents if wait is set.
	FlushDelalloc(t *sched.Task, bytes uint64, wait bool)
	// CommitTransaction commits the running transaction and so frees what it pinned.
	CommitTransaction(t *sched.Task) error
	// AllocChunk adds a chunk of the type; false when the device has no room.
	AllocChunk(t *sched.Task, typ uint64) (bool, error)
	// Preempt starts writeback until metadata is not Tight any more, and does not wait for it. It
	// is called in the real runtime only: under the others a task that flushes ahead would be one
	// more choice in every search, and Linux's worker is not known well enough to price. Models
	// btrfs_preempt_reclaim_metadata_space().
	Preempt(t *sched.Task)
	// DirtyDelalloc is how many bytes of dirty data wait for an extent.
	DirtyDelalloc() uint64
	// FreeDeviceBytes is the device space in no chunk.
	FreeDeviceBytes() uint64
}

// Usage is a snapshot of one type's counters, in bytes.
type Usage struct {
	Total, Used, Pinned, Reserved, MayUse, Readonly uint64
}

func (u Usage) sum() uint64 { return u.Used + u.Pinned + u.Reserved + u.MayUse + u.Readonly }

type ticket struct {
	bytes   uint64
	granted bool
}

// Info is the account of one block-group type. Models struct btrfs_space_info.
type Info struct {
	Type uint64 // format.BlockGroupData, ...; with mixed block groups data and metadata in one

	space *Space
	mu    lock.Mutex   // leaf; protects all below
	data  sched.Shared // all below, to an explorer
	u     Usage
	cond  lock.Cond

	tickets  []*ticket
	flushing bool
	grants   uint64 // how many tickets were granted: the flusher's sign of progress
}

// String names the account in reports.
func (i *Info) String() string { return "space_info of " + i.Kind() }

// Kind is the type of the block groups: data, metadata, system, or data and metadata.
func (i *Info) Kind() string {
	switch i.Type {
	case format.BlockGroupData:
		return "data"
	case format.BlockGroupSystem:
		return "system"
	case mixed:
		return "data and metadata"
	}
	return "metadata"
}

// mixed is the type of block groups that have both.
const mixed = format.BlockGroupData | format.BlockGroupMetadata

// ofMetadata reports whether the account promises for tree blocks.
func (i *Info) ofMetadata() bool { return i.Type&format.BlockGroupMetadata != 0 }

// Space is the accounts of one file system.
type Space struct {
	nodeSize uint64
	factor   uint64 // copies of a metadata byte on the device
	mixed    bool
	flushers Flushers
	data     Info
	metadata Info
	system   Info
	// Global is the reserve that commits draw on.
	Global BlockRsv
}

// New makes empty accounts. metadataCopies is 2 for DUP.
func New(nodeSize uint32, metadataCopies int) *Space {
	return newSpace(nodeSize, metadataCopies, false)
}

// NewMixed is New for a file system with mixed block groups, where data and metadata are one
// account. Models btrfs_init_space_info().
func NewMixed(nodeSize uint32, copies int) *Space { return newSpace(nodeSize, copies, true) }

func newSpace(nodeSize uint32, metadataCopies int, one bool) *Space {
	s := &Space{nodeSize: uint64(nodeSize), factor: uint64(metadataCopies)}
	for typ, i := range map[uint64]*Info{format.BlockGroupData: &s.data, format.BlockGroupMetadata: &s.metadata,
		format.BlockGroupSystem: &s.system} {
		i.Type = typ
		i.space = s
		i.mu.Init(classInfo)
		i.cond.Init(&i.mu, classTicket)
	}
	if s.mixed = one; one {
		s.data.Type = mixed
	}
	s.Global.init(s.Metadata())
	return s
}

// Mixed reports whether Data and Metadata are one account.
func (s *Space) Mixed() bool { return s.mixed }

// SetFlushers opens the door. Without it a short reservation fails.
func (s *Space) SetFlushers(f Flushers) { s.flushers = f }

// NodeSize is the size of a tree block.
func (s *Space) NodeSize() uint64 { return s.nodeSize }

// Data, Metadata and System are the accounts.
func (s *Space) Data() *Info { return &s.data }

// Metadata is the account of tree blocks.
func (s *Space) Metadata() *Info {
	if s.mixed {
		return &s.data
	}
	return &s.metadata
}

// System is the account of the chunk tree's blocks.
func (s *Space) System() *Info { return &s.system }

// Of is the account for block-group flags.
func (s *Space) Of(flags uint64) *Info {
	switch {
	case flags&format.BlockGroupData != 0:
		return &s.data
	case flags&format.BlockGroupSystem != 0:
		return &s.system
	}
	return s.Metadata()
}

// CalcInsert is the worst case in bytes of inserting items into trees: every level COWed and split.
// Models btrfs_calc_insert_metadata_size().
func (s *Space) CalcInsert(items int) uint64 {
	return uint64(items) * s.nodeSize * 2 * format.MaxLevel
}

// CalcUpdate is the worst case in bytes of changing items in place. Models
// btrfs_calc_metadata_size().
func (s *Space) CalcUpdate(items int) uint64 {
	return uint64(items) * s.nodeSize * format.MaxLevel
}

// overcommit is how far beyond its chunks metadata may promise: a part of what the device has left.
// Models calc_available_free_space(). Data never overcommits.
func (i *Info) overcommit(mode FlushMode) uint64 {
	if i.Type != format.BlockGroupMetadata || i.space.flushers == nil {
		return 0
	}
	avail := i.space.flushers.FreeDeviceBytes() / i.space.factor
	if mode == FlushAll {
		return avail / 8
	}
	return avail / 2
}

// fitsLocked reports whether bytes can be promised. It counts as a write: the caller promises them
// if they fit.
func (i *Info) fitsLocked(t *sched.Task, bytes uint64, mode FlushMode) bool {
	i.mu.AssertHeld(t)
	i.data.Write(t, i)
	need := i.u.sum() + bytes
	return need <= i.u.Total || (i.Type == format.BlockGroupMetadata && need <= i.u.Total+i.overcommit(mode))
}

// tightLocked reports whether seven eighths of the metadata that may be promised are, unless most
// of the room is taken by what writeback does not give back.
func (i *Info) tightLocked(t *sched.Task) bool {
	i.mu.AssertHeld(t)
	if !i.ofMetadata() || i.space.flushers == nil {
		return false
	}
	i.data.Read(t, i)
	limit, kept := i.u.Total+i.overcommit(FlushAll), i.u.sum()-i.u.MayUse
	return kept < limit/10*9 && i.u.MayUse > (limit-kept)/8*7
}

// Tight reports whether the next promises of metadata may have to wait for writeback. It never
// sleeps. Models need_preemptive_reclaim(). Difference: there the part that may be promised becomes
// less while tickets wait, and delayed references and pinned space are counted as well.
func (i *Info) Tight(t *sched.Task) bool {
	i.mu.Lock(t)
	defer i.mu.Unlock(t)
	return i.tightLocked(t)
}

// freeLocked is the bytes of the chunks that nothing is in, promised or not.
func (i *Info) freeLocked(t *sched.Task) uint64 {
	i.mu.AssertHeld(t)
	i.data.Read(t, i)
	return i.u.Total - min(i.u.Total, i.u.sum()-i.u.MayUse)
}

// Reserve promises bytes: may_use grows, or ENOSPC. With a mode other than NoFlush and
// FlushEmergency it may sleep, so no page and no extent range may be locked (labs/reference 9.1,
// level 6), and with a mode beyond FlushLimit no transaction may be open. Models
// btrfs_reserve_metadata_bytes() and btrfs_reserve_data_bytes().
func (i *Info) Reserve(t *sched.Task, bytes uint64, mode FlushMode) error {
	if mode > FlushLimit {
		lockdep.MightWait(t, classTicket)
	}
	i.mu.Lock(t)
	// A task with a transaction open may not wait in the line, or the tasks in it would wait for
	// its commit.
	inLine := mode != FlushLimit && mode != FlushEmergency
	if (len(i.tickets) == 0 || !inLine) && i.fitsLocked(t, bytes, mode) || mode == FlushEmergency && i.freeLocked(t) >= bytes {
		i.promiseLocked(t, bytes)
		tight := mode == FlushAll && t.Runtime() == nil && i.tightLocked(t)
		i.mu.Unlock(t)
		if tight {
			i.space.flushers.Preempt(t)
		}
		return nil
	}
	if mode < FlushLimit {
		i.mu.Unlock(t)
		return errno.ENOSPC
	}
	return i.reserveTicketLocked(t, bytes, mode)
}

// reserveTicketLocked queues and waits; i.mu is held and let go.
func (i *Info) reserveTicketLocked(t *sched.Task, bytes uint64, mode FlushMode) error {
	i.mu.AssertHeld(t)
	defer i.mu.Unlock(t)
	if mode == FlushLimit {
		// A priority ticket: whoever has a transaction open goes first, or nobody would get on.
		i.mu.Unlock(t)
		i.allocChunk(t)
		i.mu.Lock(t)
		if i.fitsLocked(t, bytes, mode) {
			i.promiseLocked(t, bytes)
			return nil
		}
		return errno.ENOSPC
	}
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_reserve_ticket", What: strings.ToUpper(i.Kind()), Len: bytes})
	}
	tk := &ticket{bytes: bytes}
	i.tickets = append(i.tickets, tk)
	for !tk.granted {
		if i.flushing {
			i.cond.WaitFor(t, i)
			continue
		}
		i.flushing = true
		t.Owe(i)
		exhausted := i.flushLocked(t, tk, mode)
		t.Discharge(i)
		i.flushing = false
		i.cond.Broadcast(t)
		if exhausted && !tk.granted {
			i.removeLocked(t, tk)
			i.grantLocked(t) // a smaller one after it may fit
			return i.stealLocked(t, bytes, mode)
		}
	}
	return nil
}

// stealLocked takes a promise that flushing could not win out of the global reserve, if the mode
// may: a delete makes room, so what it borrows comes back. Whoever has it counts in may_use
// already. It drops and retakes i.mu. Models maybe_fail_all_tickets().
func (i *Info) stealLocked(t *sched.Task, bytes uint64, mode FlushMode) error {
	i.mu.AssertHeld(t)
	if !mode.steals() || !i.ofMetadata() {
		return errno.ENOSPC
	}
	i.mu.Unlock(t)
	ok := i.space.Global.steal(t, bytes)
	i.mu.Lock(t)
	if !ok {
		return errno.ENOSPC
	}
	return nil
}

// Event names the wait for a ticket in reports. The flusher serves all tickets.
func (i *Info) Event() (name, verb string) {
	return "a ticket for " + i.Kind() + " space", "flush for"
}

func (i *Info) removeLocked(t *sched.Task, tk *ticket) {
	i.mu.AssertHeld(t)
	for n, o := range i.tickets {
		if o == tk {
			i.tickets = append(i.tickets[:n], i.tickets[n+1:]...)
			return
		}
	}
}

// flushLocked runs the flush states until tk is granted, and reports that they are exhausted: two
// rounds of all of them granted nobody anything. It drops and retakes i.mu. Models
// btrfs_async_reclaim_metadata_space() and btrfs_async_reclaim_data_space(); labs/reference 5.3.
func (i *Info) flushLocked(t *sched.Task, tk *ticket, mode FlushMode) (exhausted bool) {
	i.mu.AssertHeld(t)
	idle := 0
	states := []func(){
		// A large promise may take many chunks: data flushing begins only when the device has no
		// more.
		func() {
			for i.allocChunk(t) && !i.granted(t, tk) {
			}
		},
		func() { i.flush(t, tk.bytes*2, false) },
		func() { i.flush(t, ^uint64(0), true) },
		func() { i.commit(t) },
		func() { i.allocChunk(t) },
	}
	if i.ofMetadata() {
		// Metadata promises are mostly unused: writing delalloc back and a commit return them, a
		// chunk costs data space. Unless the chunks are nearly full, only a round that won nothing
		// else makes one (ALLOC_CHUNK and ALLOC_CHUNK_FORCE).
		states[0], states[1] = states[1], states[2]
		states[2] = func() {
			if i.nearlyFull(t) {
				i.allocChunk(t)
			}
		}
		states[4] = func() {
			if idle > 0 || i.nearlyFull(t) {
				i.allocChunk(t)
			}
		}
	}
	for idle < 2 {
		before := i.grants
		for _, run := range states {
			i.mu.Unlock(t)
			run()
			i.mu.Lock(t)
			i.grantLocked(t)
			if tk.granted {
				return false
			}
		}
		if i.grants == before {
			idle++
		} else {
			idle = 0
		}
	}
	return true
}

// nearlyFull reports whether four fifths of the chunks are used; promises do not count.
// Models should_alloc_chunk().
func (i *Info) nearlyFull(t *sched.Task) bool {
	i.mu.Lock(t)
	defer i.mu.Unlock(t)
	i.data.Read(t, i)
	used := i.u.sum() - i.u.MayUse
	return used+2<<20 >= i.u.Total/5*4
}

// allocChunk reports whether a chunk was added.
func (i *Info) allocChunk(t *sched.Task) bool {
	f := i.space.flushers
	if f == nil {
		return false
	}
	i.tracedFlush(t, "ALLOC_CHUNK")
	// No room is no error here: the caller looks at the account again.
	added, err := f.AllocChunk(t, i.Type)
	return added && err == nil
}

func (i *Info) granted(t *sched.Task, tk *ticket) bool {
	i.mu.Lock(t)
	defer i.mu.Unlock(t)
	i.grantLocked(t)
	return tk.granted
}

func (i *Info) flush(t *sched.Task, bytes uint64, wait bool) {
	if f := i.space.flushers; f != nil && (wait || f.DirtyDelalloc() > 0) {
		if wait {
			i.tracedFlush(t, "FLUSH_DELALLOC_WAIT")
		} else {
			i.tracedFlush(t, "FLUSH_DELALLOC")
		}
		f.FlushDelalloc(t, bytes, wait)
	}
}

func (i *Info) commit(t *sched.Task) {
	if f := i.space.flushers; f != nil {
		i.tracedFlush(t, "COMMIT_TRANS")
		// A failed commit aborts the file system; the ticket then fails for want of space.
		_ = f.CommitTransaction(t)
	}
}

// grantLocked serves tickets in order while they fit. Models btrfs_try_granting_tickets().
func (i *Info) grantLocked(t *sched.Task) {
	i.mu.AssertHeld(t)
	i.data.Write(t, i)
	n := 0
	for _, tk := range i.tickets {
		if !i.fitsLocked(t, tk.bytes, FlushAll) {
			break
		}
		i.promiseLocked(t, tk.bytes)
		tk.granted = true
		i.grants++
		n++
	}
	if n > 0 {
		i.tickets = append(i.tickets[:0], i.tickets[n:]...)
		i.cond.Broadcast(t)
	}
}

// Release takes a promise back: may_use shrinks and tickets may be granted.
func (i *Info) Release(t *sched.Task, bytes uint64) {
	if bytes == 0 {
		return
	}
	i.mu.Lock(t)
	i.unpromiseLocked(t, bytes)
	if len(i.tickets) > 0 {
		i.grantLocked(t)
	}
	i.mu.Unlock(t)
}

// promiseLocked adds to may_use. Models btrfs_space_info_update_bytes_may_use().
func (i *Info) promiseLocked(t *sched.Task, bytes uint64) {
	i.mu.AssertHeld(t)
	i.u.MayUse += bytes
	if t.Tracing() {
		i.traced(t, int64(bytes))
	}
}

func (i *Info) unpromiseLocked(t *sched.Task, bytes uint64) {
	i.mu.AssertHeld(t)
	i.subLocked(t, &i.u.MayUse, bytes, "may_use")
	if t.Tracing() {
		i.traced(t, -int64(bytes))
	}
}

// traced tells the tracer of a change of may_use.
func (i *Info) traced(t *sched.Task, diff int64) {
	if diff != 0 {
		t.Trace(sched.TraceEvent{Name: "update_bytes_may_use", What: strings.ToUpper(i.Kind()), Val: diff})
	}
}

// tracedFlush tells a tracer of a step of flushing.
func (i *Info) tracedFlush(t *sched.Task, state string) {
	if t.Tracing() {
		t.Trace(sched.TraceEvent{Name: "btrfs_flush_space", What: state + " " + strings.ToUpper(i.Kind())})
	}
}

func (i *Info) subLocked(t *sched.Task, v *uint64, bytes uint64, what string) {
	i.mu.AssertHeld(t)
	i.data.Write(t, i)
	if *v < bytes {
		panic(fmt.Sprintf("spaceinfo: %s of type %#x is %d, cannot take %d away", what, i.Type, *v, bytes))
	}
	*v -= bytes
}

// AddTotal adds the room of a new block group, its readonly part included.
func (i *Info) AddTotal(t *sched.Task, total, used, readonly uint64) {
	i.mu.Lock(t)
	i.data.Write(t, i)
	i.u.Total += total
	i.u.Used += used
	i.u.Readonly += readonly
	i.grantLocked(t)
	i.mu.Unlock(t)
}

// RemoveTotal takes away room of a block group that is free, its readonly part included.
//
// Preconditions: nothing else of it is promised than what the rest can hold.
func (i *Info) RemoveTotal(t *sched.Task, total, readonly uint64) {
	i.mu.Lock(t)
	i.data.Write(t, i)
	i.subLocked(t, &i.u.Total, total, "total")
	i.subLocked(t, &i.u.Readonly, readonly, "readonly")
	i.mu.Unlock(t)
}

// Allocated turns a promise into an allocation that no extent item records yet: may_use down,
// reserved up.
func (i *Info) Allocated(t *sched.Task, bytes uint64) {
	i.mu.Lock(t)
	i.unpromiseLocked(t, bytes)
	i.u.Reserved += bytes
	i.mu.Unlock(t)
}

// Unallocated undoes an allocation that was never recorded: reserved down. With promise the bytes
// go back to may_use.
func (i *Info) Unallocated(t *sched.Task, bytes uint64, promise bool) {
	i.mu.Lock(t)
	i.subLocked(t, &i.u.Reserved, bytes, "reserved")
	if promise {
		i.promiseLocked(t, bytes)
	}
	i.grantLocked(t)
	i.mu.Unlock(t)
}

// Recorded says that an allocation has its extent item: reserved down, used up.
func (i *Info) Recorded(t *sched.Task, bytes uint64) {
	i.mu.Lock(t)
	i.subLocked(t, &i.u.Reserved, bytes, "reserved")
	i.u.Used += bytes
	i.mu.Unlock(t)
}

// Freed says that an extent item is gone: used down, pinned up until the commit.
func (i *Info) Freed(t *sched.Task, bytes uint64) {
	i.mu.Lock(t)
	i.subLocked(t, &i.u.Used, bytes, "used")
	i.u.Pinned += bytes
	i.mu.Unlock(t)
}

// Unpinned says that the commit that freed bytes is durable.
func (i *Info) Unpinned(t *sched.Task, bytes uint64) {
	i.mu.Lock(t)
	i.subLocked(t, &i.u.Pinned, bytes, "pinned")
	i.grantLocked(t)
	i.mu.Unlock(t)
}

// Usage is a snapshot.
func (i *Info) Usage(t *sched.Task) Usage {
	i.mu.Lock(t)
	defer i.mu.Unlock(t)
	i.data.Read(t, i)
	return i.u
}

// BlockRsv is a bucket of promised bytes that a transaction handle, or the whole file system, draws
// tree blocks from. Models struct btrfs_block_rsv.
type BlockRsv struct {
	info *Info
	mu   lock.Mutex // leaf
	// size is the target, reserved what is in the bucket.
	size     uint64
	reserved uint64
}

var classRsv = lockdep.NewClass("block_rsv")

func (b *BlockRsv) init(i *Info) {
	b.info = i
	b.mu.Init(classRsv)
}

// InitRsv makes b a bucket for one owner that already holds bytes of metadata promises.
func (s *Space) InitRsv(b *BlockRsv, bytes uint64) {
	b.init(s.Metadata())
	b.reserved, b.size = bytes, bytes
}

// Use takes bytes for an allocation, if the bucket has them; the promise becomes the caller's.
func (b *BlockRsv) Use(t *sched.Task, bytes uint64) bool {
	b.mu.Lock(t)
	defer b.mu.Unlock(t)
	if b.reserved < bytes {
		return false
	}
	b.reserved -= bytes
	return true
}

// steal is Use for a task that is no committer: it leaves a tenth of the target for commits. Models
// steal_from_global_rsv().
func (b *BlockRsv) steal(t *sched.Task, bytes uint64) bool {
	b.mu.Lock(t)
	defer b.mu.Unlock(t)
	if b.reserved < b.size/10+bytes {
		return false
	}
	b.reserved -= bytes
	return true
}

// Add puts promised bytes into the bucket.
func (b *BlockRsv) Add(t *sched.Task, bytes uint64) {
	b.mu.Lock(t)
	b.reserved += bytes
	b.mu.Unlock(t)
}

// ReleaseAll gives what is left back to the account.
func (b *BlockRsv) ReleaseAll(t *sched.Task) { b.info.Release(t, b.TakeAll(t)) }

// TakeAll empties the bucket; the promise becomes the caller's.
func (b *BlockRsv) TakeAll(t *sched.Task) uint64 {
	b.mu.Lock(t)
	defer b.mu.Unlock(t)
	n := b.reserved
	b.reserved = 0
	return n
}

// Reserved is the number of bytes that the bucket holds.
func (b *BlockRsv) Reserved(t *sched.Task) uint64 {
	b.mu.Lock(t)
	defer b.mu.Unlock(t)
	return b.reserved
}

// Resize sets the target and fills the bucket up to it as far as the account allows without
// flushing, or gives the surplus back. Models btrfs_update_global_block_rsv().
func (b *BlockRsv) Resize(t *sched.Task, size uint64) {
	b.mu.Lock(t)
	b.size = size
	have := b.reserved
	b.mu.Unlock(t)
	switch {
	case have > size:
		if b.Use(t, have-size) {
			b.info.Release(t, have-size)
		}
	case have < size:
		b.info.mu.Lock(t)
		b.info.data.Write(t, b.info)
		u := b.info.u
		want := size - have
		if room := u.Total - min(u.Total, u.sum()); want > room {
			want = room
		}
		b.info.promiseLocked(t, want)
		b.info.mu.Unlock(t)
		b.Add(t, want)
	}
}

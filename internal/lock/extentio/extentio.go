// Package extentio is the extent_io_tree: bits on byte ranges of a file, two of which are range
// locks. It says which bytes are locked, which are delalloc (dirty, with a reservation but no place
// on disk yet), and a few more things that the write path must know about a range.
//
// Lock order:
//
//	dio_locked                       DIOLocked ranges, ascending start
//	  extent                         Locked ranges, ascending start
//	    io_tree                      the tree's own mutex, a leaf; held while Hooks run
//	      inode_mu                   a higher leaf, which Hooks may take
//
// Invariants (CheckInvariants):
//   - states are sorted, disjoint and not empty; a range without a state has no bits
//   - no state has zero bits or a control bit
//   - no two adjacent states have equal bits, unless one is locked: those are not merged
//
// Model: fs/btrfs/extent-io-tree.c. Differences: ranges are half-open; a lock that backs off is
// refused before it sets a bit instead of setting and clearing some; states live in sorted arrays
// (a directory of chunks), not in a red-black tree, so there is no cached_state to keep valid;
// waiters are on one list of the tree, each with the range it waits for.
package extentio

import (
	"fmt"
	"strings"

	"btrlab/internal/lock"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Bits are the states that a range may have. Models EXTENT_* of fs/btrfs/extent-io-tree.h.
type Bits uint32

// The bits, and at the end those that steer ClearDelalloc and are never stored.
const (
	Locked           Bits = 1 << iota // the range lock
	DIOLocked                         // range of a direct I/O mapping; taken before Locked
	Delalloc                          // dirty and reserved, no extent allocated
	NoReserve                         // dirtied in NOCOW mode without a data reservation
	FinishingOrdered                  // with Locked: an ordered extent's completion holds the range
	QgroupReserved                    // its data bytes are reserved in the subvolume's qgroup
	ClearMetaResv                     // control: give the metadata reservation back
	// control: give the data reservation back (kernel: CLEAR_DATA_RESV)
	ClearDataResv
	// control: all bits go but locks that are not named with it (kernel: CLEAR_ALL_BITS)
	ClearAll

	LockBits     = Locked | DIOLocked
	ControlBits  = ClearMetaResv | ClearDataResv | ClearAll
	DoAccounting = ClearMetaResv | ClearDataResv
	// AnyBits are whatever a page that goes may have left in its range: all but locks, and what is
	// reserved in a qgroup. Models the bits of try_release_extent_state().
	AnyBits = ^(LockBits | ControlBits | FinishingOrdered | QgroupReserved)
)

var bitNames = [...]string{"LOCKED", "DIO_LOCKED", "DELALLOC", "NORESERVE", "FINISHING_ORDERED", "QGROUP_RESERVED", "CLEAR_META_RESV", "CLEAR_DATA_RESV", "CLEAR_ALL"}

// String gives "LOCKED|DELALLOC", and "ANY" for what is in AnyBits beyond the bits that there are.
func (b Bits) String() string {
	if b == 0 {
		return "0"
	}
	if b>>len(bitNames) != 0 {
		return "ANY"
	}
	var s []string
	for i, n := range bitNames {
		if b&(1<<i) != 0 {
			s = append(s, n)
		}
	}
	return strings.Join(s, "|")
}

// The classes of the locks here. A range lock's order inside its class is its start.
var (
	ExtentClass = lockdep.NewClass("extent")
	DIOClass    = lockdep.NewClass("dio_locked")
	treeClass   = lockdep.NewClass("io_tree")
)

// Hooks keep an inode's delalloc accounting. They run under the tree's mutex, so they may take only
// leaf locks that rank above it, and they may not call the tree. A set or clear that covers several
// states calls once for each piece.
//
// Models btrfs_set_delalloc_extent() and its three siblings in fs/btrfs/inode.c.
type Hooks interface {
	// SetDelalloc says that the piece [start, end), which has the bits old, gets set. Delalloc is
	// in set and not in old.
	SetDelalloc(t *sched.Task, start, end uint64, set, old Bits)
	// ClearDelalloc says that the piece [start, end), which has the bits old, loses those in clear.
	// Delalloc is in both; clear may have control bits.
	ClearDelalloc(t *sched.Task, start, end uint64, clear, old Bits)
	// SplitDelalloc says that the delalloc state [start, end), which has bits, becomes two at at.
	SplitDelalloc(t *sched.Task, start, at, end uint64, bits Bits)
	// MergeDelalloc says that the delalloc states [start, at) and [at, end), both with bits, become
	// one.
	MergeDelalloc(t *sched.Task, start, at, end uint64, bits Bits)
}

// Mode is how a range lock waits (labs/reference 8.3).
type Mode uint8

const (
	// BackOff waits with nothing locked and tries the whole range again; it may starve (6.1 on).
	BackOff Mode = iota
	// HoldAndWait keeps the part before the conflict locked while it waits (until 6.0).
	HoldAndWait
)

// Tree is the io tree of one inode. Init before use.
type Tree struct {
	mu      lock.Mutex // leaf; protects the fields below
	hooks   Hooks
	mode    Mode
	class   *lockdep.Class // of Locked ranges; nil is ExtentClass
	hushed  bool           // SetNovalidate
	states  store
	waiters []*waiter
	spare   []*waiter
	scratch []state
	kept    sched.Obj // by which a Stepper keeps Hash
}

// waiter is a task that waits for an unlock of something in [start, end).
type waiter struct {
	t          *sched.Task
	start, end uint64
	bits       Bits // the lock bits it waits for
}

// heldRange is a range lock in lockdep's list.
type heldRange struct {
	x          *Tree
	start, end uint64
}

// Range is for reports that name what a task holds or waits for.
func (r heldRange) Range() (start, end uint64) { return r.start, r.end }

// Overlaps is for the wait-for graph: other is a range of the same tree with bytes in common.
func (r heldRange) Overlaps(other any) bool {
	o, ok := other.(heldRange)
	return ok && o.x == r.x && o.start < r.end && r.start < o.end
}

// Init sets the tree up; h may be nil.
func (x *Tree) Init(h Hooks) {
	x.hooks = h
	x.mu.Init(treeClass)
}

// InitClass sets up a tree without hooks whose Locked ranges are of class c: a range lock of its
// own, with its own place in the order.
func (x *Tree) InitClass(c *lockdep.Class) {
	x.class = c
	x.mu.Init(treeClass)
}

// SetLockMode chooses how locks wait. Call it before the first lock.
func (x *Tree) SetLockMode(m Mode) { x.mode = m }

// SetNovalidate takes the tree's ranges out of lockdep's checks: a task that holds one may take
// what it likes. It is for code that takes a wrong order on purpose, to show the deadlock itself.
// Models lockdep_set_novalidate_class().
func (x *Tree) SetNovalidate(on bool) { x.hushed = on }

func (x *Tree) classOf(bits Bits) *lockdep.Class {
	if bits&Locked == 0 {
		return DIOClass
	}
	if x.class != nil {
		return x.class
	}
	return ExtentClass
}

// Lock locks [start, end); it may sleep. Models lock_extent().
func (x *Tree) Lock(t *sched.Task, start, end uint64) { x.LockBits(t, start, end, Locked) }

// LockDIO takes the direct I/O lock of [start, end). Models btrfs_lock_dio_extent().
func (x *Tree) LockDIO(t *sched.Task, start, end uint64) { x.LockBits(t, start, end, DIOLocked) }

// LockBits is Lock that sets more bits: Locked|FinishingOrdered, or DIOLocked.
// Exactly one lock bit is among bits.
func (x *Tree) LockBits(t *sched.Task, start, end uint64, bits Bits) {
	x.lockBits(t, start, end, bits, start)
}

// LockNested is Lock for a task that has a range of another tree of the class. What it holds beside
// them, a lock of both trees' owners, orders those that do so. Models down_write_nested() with
// SINGLE_DEPTH_NESTING.
func (x *Tree) LockNested(t *sched.Task, start, end uint64) {
	x.lockBits(t, start, end, Locked, start+1<<63)
}

// lockBits is LockBits; sub is the range's place among those of its class.
func (x *Tree) lockBits(t *sched.Task, start, end uint64, bits Bits, sub uint64) {
	lb := lockBitOf(bits)
	if t.Checked() {
		x.acquiredAs(t, x.classOf(lb), start, end, sub, lockdep.Write)
	}
	x.point(t, sched.PointLock, lb)
	x.lockStates(t)
	p := x.states.find(start)
	f, ok := x.conflict(p, end, lb)
	if !ok {
		if t.Tracing() {
			x.traced(t, "btrfs_set_extent_bit", start, end, bits)
		}
		x.changeAt(t, p, start, end, 0, bits)
		x.mu.Unlock(t)
		return
	}
	c := x.classOf(lb)
	began := t.Now()
	from := start
	for ok {
		f = max(f, start)
		if x.mode == HoldAndWait && f > start {
			x.changeAt(t, p, start, f, 0, bits)
			start = f
		}
		w := x.newWaiter(t, f, end, lb)
		x.mu.Unlock(t)
		x.park(t, c, from, start, f, end)
		x.lockStates(t)
		x.spare = append(x.spare, w)
		p = x.states.find(start)
		f, ok = x.conflict(p, end, lb)
	}
	if t.Tracing() {
		x.traced(t, "btrfs_set_extent_bit", from, end, bits)
	}
	x.changeAt(t, p, start, end, 0, bits)
	x.mu.Unlock(t)
	t.Waited(c.ID, c.Name, began)
}

// park sleeps until something of [f, end) is unlocked. The task's newest held lock is [from, end),
// as lockdep was told before it is locked. So far the task has [from, start) of it, and the
// wait-for graph sees no more than that meanwhile.
func (x *Tree) park(t *sched.Task, c *lockdep.Class, from, start, f, end uint64) {
	if t.Stepper() == nil && !t.Checked() {
		t.Park(c.ID)
		return
	}
	hold := func(to uint64) {
		if t.Checked() {
			lockdep.Rename(t, heldRange{x, from, to})
		}
	}
	hold(start)
	t.BlockedOn(heldRange{x, f, end})
	t.Park(c.ID)
	hold(end)
}

// lockStates locks the states. A Stepper is told that they are state: a task that only looks at
// bits, or changes them, takes no range lock.
func (x *Tree) lockStates(t *sched.Task) {
	if st := t.Stepper(); st != nil {
		st.Keep(&x.kept, x)
	}
	x.mu.Lock(t)
}

// point is the scheduling point of a range lock: the explorer sees the ranges of a tree as one
// object.
func (x *Tree) point(t *sched.Task, kind sched.PointKind, lb Bits) {
	if st := t.Stepper(); st != nil {
		st.Keep(&x.kept, x)
		t.Enter(kind, x.classOf(lb).ID, x)
	}
}

// see tells a Stepper what t has read in the tree.
func (x *Tree) see(t *sched.Task, v uint64) {
	if st := t.Stepper(); st != nil {
		st.See(t, v)
	}
}

func (x *Tree) seeIf(t *sched.Task, yes bool) {
	if yes {
		x.see(t, 1)
	} else {
		x.see(t, 2)
	}
}

// Hash is the hash of the states and of the tasks that wait, for state matching. All waiters of a
// range are woken at once, so their order is left out.
func (x *Tree) Hash() uint64 {
	var h uint64
	for _, c := range x.states.chunks {
		for _, s := range c {
			h = sched.Mix(sched.Mix(sched.Mix(h, s.start), s.end), uint64(s.bits))
		}
	}
	for _, w := range x.waiters {
		h += sched.Mix(sched.Mix(sched.Mix(w.t.Mark, w.start), w.end), uint64(w.bits))
	}
	return h
}

func lockBitOf(bits Bits) Bits {
	lb := bits & LockBits
	if lb != Locked && lb != DIOLocked || bits&ControlBits != 0 {
		panic(fmt.Sprintf("extentio: lock with bits %v", bits))
	}
	return lb
}

// TryLock is Lock that gives up instead of sleeping. Models try_lock_extent().
func (x *Tree) TryLock(t *sched.Task, start, end uint64) bool {
	return x.TryLockBits(t, start, end, Locked)
}

// TryLockBits is LockBits that gives up instead of sleeping.
func (x *Tree) TryLockBits(t *sched.Task, start, end uint64, bits Bits) bool {
	lb := lockBitOf(bits)
	x.point(t, sched.PointTryLock, lb)
	x.lockStates(t)
	p := x.states.find(start)
	_, busy := x.conflict(p, end, lb)
	x.seeIf(t, busy)
	if !busy {
		if t.Tracing() {
			x.traced(t, "btrfs_set_extent_bit", start, end, bits)
		}
		x.changeAt(t, p, start, end, 0, bits)
	}
	x.mu.Unlock(t)
	if !busy && t.Checked() {
		x.acquired(t, x.classOf(lb), start, end, lockdep.Write|lockdep.Try)
	}
	return !busy
}

// Unlock unlocks [start, end), which may be a part of what was locked. Models unlock_extent().
func (x *Tree) Unlock(t *sched.Task, start, end uint64) { x.Change(t, start, end, Locked, 0) }

// UnlockDIO ends LockDIO for [start, end).
func (x *Tree) UnlockDIO(t *sched.Task, start, end uint64) { x.Change(t, start, end, DIOLocked, 0) }

// Set adds bits, no lock among them, to every byte of [start, end). Models set_extent_bit().
func (x *Tree) Set(t *sched.Task, start, end uint64, bits Bits) { x.Change(t, start, end, 0, bits) }

// Clear takes bits away from every byte of [start, end); with a lock bit it unlocks.
// Models clear_extent_bit().
func (x *Tree) Clear(t *sched.Task, start, end uint64, bits Bits) { x.Change(t, start, end, bits, 0) }

// UnlockAndSet unlocks [start, end), takes clear away and adds set, all in one walk of the tree.
func (x *Tree) UnlockAndSet(t *sched.Task, start, end uint64, clear, set Bits) {
	x.Change(t, start, end, clear|Locked, set)
}

// Change takes clear away from every byte of [start, end), then adds set. The hooks hear of both
// when a bit is in both, so that accounting done for the old state is undone and done again for the
// new.
//
// Preconditions:
//   - a lock bit in clear is set on the whole range; no lock bit is in set.
func (x *Tree) Change(t *sched.Task, start, end uint64, clear, set Bits) {
	if set&(LockBits|ControlBits) != 0 {
		panic(fmt.Sprintf("extentio: set of bits %v", set))
	}
	if t.Checked() && clear&LockBits != 0 {
		for _, b := range [...]Bits{Locked, DIOLocked} {
			if clear&b != 0 {
				x.released(t, x.classOf(b), start, end)
			}
		}
	}
	asked := clear
	if clear&Locked != 0 {
		clear |= FinishingOrdered
	}
	if clear&ClearAll != 0 {
		clear |= ^(LockBits | ControlBits)
	}
	if clear&LockBits != 0 {
		x.point(t, sched.PointUnlock, clear&LockBits)
	}
	x.lockStates(t)
	// Where Linux clears, sets and unlocks with the range locked, this is one step.
	last := Bits(0)
	if t.Tracing() {
		if set != 0 {
			last = asked & LockBits
		}
		x.traced(t, "btrfs_clear_extent_bit", start, end, asked&^last)
		x.traced(t, "btrfs_set_extent_bit", start, end, set)
	}
	x.changeAt(t, x.states.find(start), start, end, clear, set)
	if last != 0 {
		x.traced(t, "btrfs_clear_extent_bit", start, end, last)
	}
	if clear&LockBits != 0 && len(x.waiters) > 0 {
		x.wake(start, end, clear)
	}
	x.mu.Unlock(t)
}

// SetMissing adds bit, no lock, to the first run of bytes at or after start that do not have it,
// and returns the run; ok is false when every byte of [start, end) has it. Models
// set_record_extent_bits(), run by run.
func (x *Tree) SetMissing(t *sched.Task, start, end uint64, bit Bits) (from, to uint64, ok bool) {
	x.lockStates(t)
	defer x.mu.Unlock(t)
	p := x.states.find(start)
	s := x.states.at(p)
	for s != nil && s.start <= start && s.bits&bit != 0 {
		start = s.end
		p = x.states.next(p)
		s = x.states.at(p)
	}
	for s != nil && s.bits&bit == 0 {
		p = x.states.next(p)
		s = x.states.at(p)
	}
	if s != nil {
		end = min(end, s.start)
	}
	if start < end {
		x.changeAt(t, x.states.find(start), start, end, 0, bit)
	}
	x.see(t, sched.Mix(start, end))
	return start, end, start < end
}

// ClearCount takes bit away from every byte of [start, end) and returns how many had it. Models
// clear_record_extent_bits().
func (x *Tree) ClearCount(t *sched.Task, start, end uint64, bit Bits) (n uint64) {
	x.lockStates(t)
	defer x.mu.Unlock(t)
	if n = x.count(start, end, bit); n > 0 {
		x.changeAt(t, x.states.find(start), start, end, bit, 0)
	}
	x.see(t, n)
	return n
}

// acquired tells lockdep that t has, or will have, [start, end).
func (x *Tree) acquired(t *sched.Task, c *lockdep.Class, start, end uint64, mode lockdep.Mode) {
	x.acquiredAs(t, c, start, end, start, mode)
}

func (x *Tree) acquiredAs(t *sched.Task, c *lockdep.Class, start, end, sub uint64, mode lockdep.Mode) {
	r := heldRange{x, start, end}
	lockdep.Acquire(t, c, sub, r, mode)
	if x.hushed {
		lockdep.Novalidate(t, c, r, true)
	}
}

// released takes [start, end) off what lockdep knows t holds; the rest of a range stays.
func (x *Tree) released(t *sched.Task, c *lockdep.Class, start, end uint64) {
	for start < end {
		r, ok := x.heldAt(t, c, start)
		if !ok {
			panic(fmt.Sprintf("extentio: task %v unlocks %s [%d,%d), which it does not hold", t, c.Name, start, end))
		}
		lockdep.Release(t, c, r)
		if r.start < start {
			x.acquired(t, c, r.start, start, lockdep.Write|lockdep.Try)
		}
		if end < r.end {
			x.acquired(t, c, end, r.end, lockdep.Write|lockdep.Try)
		}
		start = min(end, r.end)
	}
}

// heldAt finds the range lock of class c that t holds at byte off.
func (x *Tree) heldAt(t *sched.Task, c *lockdep.Class, off uint64) (r heldRange, ok bool) {
	for obj := range lockdep.Held(t, c) {
		if r, ok = obj.(heldRange); ok && r.x == x && r.start <= off && off < r.end {
			return r, true
		}
	}
	return heldRange{}, false
}

// Disown takes a range lock off t's held list without unlocking: another task will unlock after
// Adopt. The bit is Locked or DIOLocked.
func (x *Tree) Disown(t *sched.Task, start, end uint64, bit Bits) {
	if t.Checked() {
		x.released(t, x.classOf(bit), start, end)
	}
}

// Adopt puts a range lock that another task disowned on t's held list.
func (x *Tree) Adopt(t *sched.Task, start, end uint64, bit Bits) {
	if t.Checked() {
		x.acquired(t, x.classOf(bit), start, end, lockdep.Write|lockdep.Try)
	}
}

// AssertLocked panics unless a checked task t holds Lock on every byte of [start, end). Elsewhere
// it costs one load.
func (x *Tree) AssertLocked(t *sched.Task, start, end uint64) {
	if t.Checked() {
		x.assertLocked(t, start, end)
	}
}

func (x *Tree) assertLocked(t *sched.Task, start, end uint64) {
	c := x.classOf(Locked)
	for off := start; off < end; {
		r, ok := x.heldAt(t, c, off)
		if !ok {
			panic(sched.OrderViolation(fmt.Sprintf("lockdep: task %v relies on %s [%d,%d), which it does not hold from %d on", t, c.Name, start, end, off)))
		}
		off = r.end
	}
}

func (x *Tree) newWaiter(t *sched.Task, start, end uint64, bits Bits) *waiter {
	var w *waiter
	if n := len(x.spare); n > 0 {
		w, x.spare = x.spare[n-1], x.spare[:n-1]
	} else {
		w = new(waiter)
	}
	*w = waiter{t, start, end, bits}
	x.waiters = append(x.waiters, w)
	return w
}

// wake wakes the tasks that wait for a lock bit of bits in [start, end).
func (x *Tree) wake(start, end uint64, bits Bits) {
	keep := x.waiters[:0]
	for _, w := range x.waiters {
		if w.bits&bits != 0 && w.start < end && start < w.end {
			w.t.Unpark()
		} else {
			keep = append(keep, w)
		}
	}
	clear(x.waiters[len(keep):])
	x.waiters = keep
}

// conflict finds the first byte before end that has the lock bit lb, from p on.
func (x *Tree) conflict(p pos, end uint64, lb Bits) (uint64, bool) {
	for s := x.states.at(p); s != nil && s.start < end; s = x.states.at(p) {
		if s.bits&lb != 0 {
			return s.start, true
		}
		p = x.states.next(p)
	}
	return 0, false
}

// traced tells the tracer of a change of bits, if the tree is an inode's.
func (x *Tree) traced(t *sched.Task, name string, start, end uint64, bits Bits) {
	if bits != 0 && x.hooks != nil {
		t.Trace(sched.TraceEvent{Name: name, Start: start, Len: end - start, What: bits.String()})
	}
}

// priceOf is the price of a change. A task that changes the bits of a range that it has locked has
// the state at hand, as Linux has by cached_state: it walks no tree.
func priceOf(atHand bool) sched.Cost {
	if atHand {
		return cost.RangeState
	}
	return cost.RangeTree
}

// changeAt is Change with x.mu held and p = find(start). It rewrites the states that touch [start,
// end), with the neighbours they may merge with, as one run.
func (x *Tree) changeAt(t *sched.Task, p pos, start, end uint64, clear, set Bits) {
	if start >= end {
		panic(fmt.Sprintf("extentio: empty range [%d,%d)", start, end))
	}
	s := x.states.at(p)
	same := s != nil && s.start == start && s.end == end
	t.Spend(priceOf(same && (clear|set)&LockBits == 0), 1)
	if same && s.changeBits(clear, set) {
		return
	}
	first, n := p, 0
	out := x.scratch[:0]
	if l, ok := x.states.prev(p); ok {
		if s := x.states.at(l); s.end == start && s.bits&LockBits == 0 {
			out = append(out, *s)
			first, n = l, 1
		}
	}
	for cur := start; cur < end; {
		s := x.states.at(p)
		if s == nil || s.start > cur {
			e := end
			if s != nil {
				e = min(e, s.start)
			}
			if clear&LockBits != 0 {
				panic(fmt.Sprintf("extentio: unlock of [%d,%d), which is not locked from %d on", start, end, cur))
			}
			out = x.fill(t, out, cur, e, set)
			cur = e
			continue
		}
		old := *s
		if old.start < cur {
			out = x.emit(t, out, state{old.start, cur, old.bits})
			if x.hooks != nil && old.bits&Delalloc != 0 {
				x.hooks.SplitDelalloc(t, old.start, cur, old.end, old.bits)
			}
		}
		e := min(old.end, end)
		if e < old.end && x.hooks != nil && old.bits&Delalloc != 0 {
			x.hooks.SplitDelalloc(t, cur, e, old.end, old.bits)
		}
		if clear&LockBits&^old.bits != 0 {
			panic(fmt.Sprintf("extentio: unlock of [%d,%d), which is %v from %d on", start, end, old.bits, cur))
		}
		left := old.bits &^ clear
		if x.hooks != nil {
			if clear&old.bits&Delalloc != 0 {
				x.hooks.ClearDelalloc(t, cur, e, clear, old.bits)
			}
			if set&^left&Delalloc != 0 {
				x.hooks.SetDelalloc(t, cur, e, set, left)
			}
		}
		if left|set != 0 {
			out = x.emit(t, out, state{cur, e, left | set})
		}
		if e < old.end {
			out = x.emit(t, out, state{e, old.end, old.bits})
		}
		n++
		p = x.states.next(p)
		cur = e
	}
	if s := x.states.at(p); s != nil && s.bits&LockBits == 0 && len(out) > 0 && out[len(out)-1].end == s.start {
		if l := &out[len(out)-1]; l.bits == s.bits {
			out = x.emit(t, out, *s)
			n++
		}
	}
	x.states.splice(first, n, out)
	if cap(out) <= 4*chunkMax {
		x.scratch = out[:0]
	}
}

// fill appends the bits that [start, end), which has none, gets.
func (x *Tree) fill(t *sched.Task, out []state, start, end uint64, set Bits) []state {
	if set == 0 {
		return out
	}
	if x.hooks != nil && set&Delalloc != 0 {
		x.hooks.SetDelalloc(t, start, end, set, 0)
	}
	return x.emit(t, out, state{start, end, set})
}

// changeBits is changeAt of all of s where that changes s alone: no hook hears of it, and a lock
// bit keeps s apart from its neighbours. So it is with the second lock of a direct I/O and the
// first unlock.
func (s *state) changeBits(clear, set Bits) bool {
	bits := s.bits&^clear | set
	if (clear|set)&Delalloc != 0 || clear&LockBits&^s.bits != 0 || bits&LockBits == 0 {
		return false
	}
	s.bits = bits
	return true
}

// emit appends s to out, or merges it with the last one. Models merge_state().
func (x *Tree) emit(t *sched.Task, out []state, s state) []state {
	if n := len(out); n > 0 {
		l := &out[n-1]
		if l.end == s.start && l.bits == s.bits && s.bits&LockBits == 0 {
			if x.hooks != nil && s.bits&Delalloc != 0 {
				x.hooks.MergeDelalloc(t, l.start, s.start, s.end, s.bits)
			}
			l.end = s.end
			return out
		}
	}
	return append(out, s)
}

// Any reports whether some byte of [start, end) has one of bits.
func (x *Tree) Any(t *sched.Task, start, end uint64, bits Bits) bool {
	x.lockStates(t)
	defer x.mu.Unlock(t)
	_, ok := x.conflict(x.states.find(start), end, bits)
	x.seeIf(t, ok)
	return ok
}

// All reports whether every byte of [start, end) has all of bits. Models test_range_bit().
func (x *Tree) All(t *sched.Task, start, end uint64, bits Bits) bool {
	x.lockStates(t)
	defer x.mu.Unlock(t)
	all := x.all(start, end, bits)
	x.seeIf(t, all)
	return all
}

func (x *Tree) all(start, end uint64, bits Bits) bool {
	p := x.states.find(start)
	for cur := start; cur < end; p = x.states.next(p) {
		s := x.states.at(p)
		if s == nil || s.start > cur || s.bits&bits != bits {
			return false
		}
		cur = s.end
	}
	return true
}

// FirstSet finds the first run of bytes at or after from that have one of bits. Models
// find_first_extent_bit().
func (x *Tree) FirstSet(t *sched.Task, from uint64, bits Bits) (start, end uint64, ok bool) {
	x.lockStates(t)
	defer x.mu.Unlock(t)
	return x.run(t, from, bits, ^uint64(0))
}

// FindDelalloc finds the first run of delalloc bytes at or after from, at most maxBytes of it.
// Models btrfs_find_delalloc_range().
func (x *Tree) FindDelalloc(t *sched.Task, from, maxBytes uint64) (start, end uint64, ok bool) {
	x.lockStates(t)
	defer x.mu.Unlock(t)
	return x.run(t, from, Delalloc, maxBytes)
}

func (x *Tree) run(t *sched.Task, from uint64, bits Bits, maxBytes uint64) (start, end uint64, ok bool) {
	start, end, ok = x.firstRun(from, bits, maxBytes)
	x.seeIf(t, ok)
	x.see(t, sched.Mix(start, end))
	return start, end, ok
}

func (x *Tree) firstRun(from uint64, bits Bits, maxBytes uint64) (start, end uint64, ok bool) {
	for p := x.states.find(from); ; p = x.states.next(p) {
		s := x.states.at(p)
		switch {
		case s == nil:
			return start, end, ok
		case s.bits&bits == 0:
			if ok {
				return start, end, true
			}
			continue
		case !ok:
			start, ok = max(from, s.start), true
		case s.start != end:
			return start, end, true
		}
		end = s.end
		if end-start >= maxBytes {
			return start, start + maxBytes, true
		}
	}
}

// Count is the number of bytes in [start, end) that have all of bits. Models count_range_bits().
func (x *Tree) Count(t *sched.Task, start, end uint64, bits Bits) uint64 {
	x.lockStates(t)
	defer x.mu.Unlock(t)
	n := x.count(start, end, bits)
	x.see(t, n)
	return n
}

func (x *Tree) count(start, end uint64, bits Bits) (n uint64) {
	p := x.states.find(start)
	for s := x.states.at(p); s != nil && s.start < end; s = x.states.at(p) {
		if s.bits&bits == bits {
			n += min(s.end, end) - max(s.start, start)
		}
		p = x.states.next(p)
	}
	return n
}

// Len is the number of states.
func (x *Tree) Len(t *sched.Task) int {
	x.lockStates(t)
	defer x.mu.Unlock(t)
	return x.states.len()
}

// Dump prints the states, one a line: "[0,4096) LOCKED|DELALLOC".
func (x *Tree) Dump(t *sched.Task) string {
	x.lockStates(t)
	defer x.mu.Unlock(t)
	var b strings.Builder
	for _, c := range x.states.chunks {
		for _, s := range c {
			fmt.Fprintf(&b, "[%d,%d) %v\n", s.start, s.end, s.bits)
		}
	}
	return b.String()
}

// CheckInvariants returns the first broken invariant of the package comment.
func (x *Tree) CheckInvariants(t *sched.Task) error {
	x.lockStates(t)
	defer x.mu.Unlock(t)
	if err := x.states.check(); err != nil {
		return err
	}
	var last state
	for _, c := range x.states.chunks {
		for _, s := range c {
			switch {
			case s.start >= s.end:
				return fmt.Errorf("io tree: empty state [%d,%d) %v", s.start, s.end, s.bits)
			case s.start < last.end:
				return fmt.Errorf("io tree: state [%d,%d) %v overlaps [%d,%d) %v", s.start, s.end, s.bits, last.start, last.end, last.bits)
			case s.bits == 0 || s.bits&ControlBits != 0:
				return fmt.Errorf("io tree: state [%d,%d) has bits %v", s.start, s.end, s.bits)
			case last.bits != 0 && s.start == last.end && s.bits == last.bits && s.bits&LockBits == 0:
				return fmt.Errorf("io tree: states [%d,%d) and [%d,%d) both %v and not merged", last.start, last.end, s.start, s.end, s.bits)
			}
			last = s
		}
	}
	return nil
}

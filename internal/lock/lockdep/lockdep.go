// Package lockdep checks, on every acquire of a checked task, that locks are taken in the one
// order, and names the two that were not.
//
// A class has a rank (Order); a task may only acquire a higher rank than all it holds. Inside one
// rank the order is the sub value (a page's index, a range's start, a tree node's depth),
// ascending; a try-lock cannot deadlock and is never checked. A wait that behaves like a lock (an
// ordered extent, a space ticket, stable pages) is a class of its own with a rank, checked by
// MightWait.
//
// Lock order: the table in order.go. A test of package arch holds the program's classes and the
// trees in package comments against it.
//
// Models kernel/locking/lockdep.c. Differences: the order is written down, not learned (package
// explore learns that of classes without a rank); read locks are checked as write locks.
package lockdep

import (
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"btrlab/internal/sched"
)

// Class is a kind of lock or wait. Make them at package level.
type Class struct {
	ID   sched.ClassID
	Name string // as printed: "i_rwsem", "page", ...
	Rank int    // 0 is not checked
	Kind sched.LockKind
}

var (
	classMu  sync.Mutex // registration only; the check reads table without it
	nClasses int
	table    [sched.MaxClasses]atomic.Pointer[Class]
)

// NewClass registers the class of a row of Order.
func NewClass(name string) *Class {
	r := rowOf(name)
	if r == nil {
		panic(fmt.Sprintf("lockdep: class %q has no row in the lock order", name))
	}
	return register(name, r)
}

// NewTestClass registers a class for a test, in the place of class like; without one its order is
// not checked.
func NewTestClass(name, like string) *Class {
	r := &Row{Kind: sched.LockSleep}
	if like != "" {
		if r = rowOf(like); r == nil {
			panic(fmt.Sprintf("lockdep: class %q like %q, which has no row in the lock order", name, like))
		}
	}
	return register(name, r)
}

func rowOf(name string) *Row {
	if i := slices.IndexFunc(Order, func(r Row) bool { return r.Name == name }); i >= 0 {
		return &Order[i]
	}
	return nil
}

func register(name string, r *Row) *Class {
	classMu.Lock()
	defer classMu.Unlock()
	if nClasses == sched.MaxClasses {
		panic(fmt.Sprintf("lockdep: more than %d classes, at %q", sched.MaxClasses, name))
	}
	for i := range nClasses {
		if table[i].Load().Name == name {
			panic(fmt.Sprintf("lockdep: class %q is registered twice", name))
		}
	}
	c := &Class{ID: sched.ClassID(nClasses), Name: name, Rank: r.Rank, Kind: r.Kind}
	table[nClasses].Store(c)
	sched.NameClass(c.ID, sched.ClassInfo{Name: name, Rank: r.Rank, Leaf: r.Rank >= rankLeaf})
	if slices.Contains(deviceWaits, name) {
		sched.WaitsForDevice(c.ID)
	}
	nClasses++
	return c
}

// Unclassed is the class of a lock that no code gave one: a leaf. Its ID is 0.
var Unclassed = NewClass("unclassed")

// Classes lists the classes by ID.
func Classes() []*Class {
	classMu.Lock()
	defer classMu.Unlock()
	all := make([]*Class, nClasses)
	for i := range all {
		all[i] = table[i].Load()
	}
	return all
}

// ByID finds a registered class.
func ByID(id sched.ClassID) *Class { return table[id].Load() }

// ByName finds a registered class; nil is none.
func ByName(name string) *Class {
	for _, c := range Classes() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// IDs are the ids of the classes of these names, for the switch points of a search. It panics at a
// name that nobody has registered.
func IDs(names ...string) []sched.ClassID {
	ids := make([]sched.ClassID, len(names))
	for i, name := range names {
		c := ByName(name)
		if c == nil {
			panic(fmt.Sprintf("lockdep: there is no class %q", name))
		}
		ids[i] = c.ID
	}
	return ids
}

// Mode is how a lock is taken: Write or Read, and Try.
type Mode uint8

// The modes.
const (
	Write Mode = 0         // alone
	Read  Mode = 1 << iota // with other readers
	Try                    // without a wait, so that the order is not checked
)

// Acquire records that t takes obj of class c and panics when that breaks the order.
func Acquire(t *sched.Task, c *Class, sub uint64, obj any, mode Mode) {
	if t.Checked() {
		acquire(t, c, sub, obj, mode)
	}
}

func acquire(t *sched.Task, c *Class, sub uint64, obj any, mode Mode) {
	if len(t.HeldLocks) > 0 && mode&Try == 0 {
		check(t, c, sub, obj, "acquires")
	}
	n := len(t.HeldLocks)
	if n == cap(t.HeldLocks) {
		t.HeldLocks = slices.Grow(t.HeldLocks, 8)
	}
	t.HeldLocks = t.HeldLocks[:n+1]
	h := &t.HeldLocks[n] // in place: a copy costs several times as much here
	h.Class, h.Sub, h.Obj, h.Read = c.ID, sub, obj, mode&Read != 0
}

// MightWait checks that t may wait for class c now: nothing it holds ranks at or above c.
func MightWait(t *sched.Task, c *Class) {
	if t.Checked() {
		check(t, c, 0, nil, "waits for")
	}
}

func check(t *sched.Task, c *Class, sub uint64, obj any, verb string) {
	for i := range t.HeldLocks {
		h := &t.HeldLocks[i]
		hc := ByID(h.Class)
		if hc.Rank < c.Rank || c.Rank == 0 || h.Novalidate {
			continue
		}
		if hc.Rank == c.Rank && obj != nil && h.Obj != obj && h.Sub < sub {
			continue
		}
		violated("task %v %s %s (rank %d, sub %d) while it holds %s (rank %d, sub %d)",
			t, verb, c.Name, c.Rank, sub, hc.Name, hc.Rank, h.Sub)
	}
}

func violated(format string, args ...any) {
	panic(sched.OrderViolation("lockdep: " + fmt.Sprintf(format, args...)))
}

// Release records that t lets go of obj.
func Release(t *sched.Task, c *Class, obj any) {
	if t.Checked() {
		release(t, c, obj)
	}
}

func release(t *sched.Task, c *Class, obj any) {
	last := len(t.HeldLocks) - 1
	i := find(t, obj, func(h *sched.Held) bool { return h.Class == c.ID })
	if i < 0 {
		violated("task %v releases %s that it does not hold", t, c.Name)
	}
	if i < last { // mostly it is the last
		copy(t.HeldLocks[i:], t.HeldLocks[i+1:])
	}
	t.HeldLocks = t.HeldLocks[:last]
}

// find is where in t's locks obj is, as fits says, or -1. It looks at the place where the last
// search ended and the one after it first, because a task that has hundreds of pages goes through
// them in their order.
func find(t *sched.Task, obj any, fits func(*sched.Held) bool) int {
	n := len(t.HeldLocks)
	for i := int(t.HeldAt); i < min(int(t.HeldAt)+2, n); i++ {
		if h := &t.HeldLocks[i]; h.Obj == obj && fits(h) {
			t.HeldAt = int32(i)
			return i
		}
	}
	for i := n - 1; i >= 0; i-- {
		if h := &t.HeldLocks[i]; h.Obj == obj && fits(h) {
			t.HeldAt = int32(i)
			return i
		}
	}
	return -1
}

// Novalidate takes obj, which t holds, out of the checks or, with on unset, back in: for code that
// takes a wrong order on purpose, to show the deadlock itself. The task still holds it. Models
// lockdep_set_novalidate_class().
func Novalidate(t *sched.Task, c *Class, obj any, on bool) {
	for i := range t.HeldLocks {
		if h := &t.HeldLocks[i]; h.Class == c.ID && h.Obj == obj {
			h.Novalidate = on
		}
	}
}

// Resub changes sub of obj, which t holds: its place among the locks of its class is another now.
// Models lock_set_subclass().
func Resub(t *sched.Task, obj any, sub uint64) {
	for i := range t.HeldLocks {
		if h := &t.HeldLocks[i]; h.Obj == obj {
			h.Sub = sub
		}
	}
}

// Rename changes what t's newest lock is: a range of which the task has only a part so far.
func Rename(t *sched.Task, obj any) {
	if n := len(t.HeldLocks); n > 0 {
		t.HeldLocks[n-1].Obj = obj
	}
}

// Held returns what t holds of class c, oldest first.
func Held(t *sched.Task, c *Class) iter.Seq[any] {
	return func(yield func(any) bool) {
		for i := range t.HeldLocks {
			if h := &t.HeldLocks[i]; h.Class == c.ID && !yield(h.Obj) {
				return
			}
		}
	}
}

// Holds reports whether t holds obj; with mode Write, for writing. Without checking it says true:
// it is for assertions, and what goes on must not depend on it. Models lockdep_is_held().
func Holds(t *sched.Task, obj any, mode Mode) bool {
	if !t.Checked() {
		return true
	}
	return find(t, obj, func(h *sched.Held) bool { return mode == Read || !h.Read }) >= 0
}

// AssertHeld panics unless t holds obj of class c in mode. Models lockdep_assert_held() and
// lockdep_assert_held_read().
func AssertHeld(t *sched.Task, c *Class, obj any, mode Mode) {
	if !Holds(t, obj, mode) {
		violated("task %v relies on %s, which it does not hold", t, c.Name)
	}
}

// AssertNone panics when t still holds something: call it where a task ends or returns to its user.
func AssertNone(t *sched.Task) {
	if len(t.HeldLocks) > 0 {
		h := t.HeldLocks[len(t.HeldLocks)-1]
		violated("task %v returns holding %s (%d locks)", t, ByID(h.Class).Name, len(t.HeldLocks))
	}
}

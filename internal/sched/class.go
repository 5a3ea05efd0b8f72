package sched

import (
	"math/bits"
	"sync/atomic"
)

// ClassID numbers a lock or wait class; package lockdep hands the numbers out and knows the names.
type ClassID uint8

// MaxClasses is the number of values that a ClassID has.
const MaxClasses = 256

// ClassSet is a set of classes. The zero value is the empty set.
type ClassSet [MaxClasses / 64]uint64

// AllClasses is the set that every class is in.
var AllClasses = ClassSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}

// Has reports whether c is in the set.
func (s *ClassSet) Has(c ClassID) bool { return s[c>>6]>>(c&63)&1 != 0 }

// Add puts c into the set.
func (s *ClassSet) Add(c ClassID) { s[c>>6] |= 1 << (c & 63) }

// All calls yield with each class in the set, in ascending order.
func (s *ClassSet) All(yield func(ClassID) bool) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			if !yield(ClassID(i<<6 | bits.TrailingZeros64(w))) {
				return
			}
		}
	}
}

// ClassInfo is the name of a class and its place in the lock order; rank 0 is none.
type ClassInfo struct {
	Name string
	Rank int
	// Leaf says that the kernel has a spinlock there: a task that waits for it does not sleep.
	Leaf bool
}

// OrderViolation is the value that package lockdep panics with: a sentence that names the task and
// the locks.
type OrderViolation string

func (v OrderViolation) Error() string { return string(v) }

var classInfo [MaxClasses]atomic.Pointer[ClassInfo]

// NameClass records a class; package lockdep calls it.
func NameClass(id ClassID, info ClassInfo) { classInfo[id].Store(&info) }

// ClassByID returns the info that NameClass recorded.
func ClassByID(id ClassID) ClassInfo {
	if c := classInfo[id].Load(); c != nil {
		return *c
	}
	return ClassInfo{Name: "unclassed"}
}

// WaitStat is the time and number of a task's waits for one class.
type WaitStat struct {
	Nanos int64
	Count int64
}

// Waits are the waits of a task by class: a short list, in the order of the first waits, because a
// task waits for few classes.
type Waits []ClassWait

// ClassWait is one class of a Waits.
type ClassWait struct {
	Class ClassID
	WaitStat
}

// Of returns the waits for class c.
func (w Waits) Of(c ClassID) WaitStat {
	for i := range w {
		if w[i].Class == c {
			return w[i].WaitStat
		}
	}
	return WaitStat{}
}

// Add adds s to class c.
func (w *Waits) Add(c ClassID, s WaitStat) {
	for i := range *w {
		if x := &(*w)[i]; x.Class == c {
			x.Nanos += s.Nanos
			x.Count += s.Count
			return
		}
	}
	*w = append(*w, ClassWait{c, s})
}

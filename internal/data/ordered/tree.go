package ordered

import (
	"fmt"
	"sync/atomic"

	"btrlab/internal/format"
	"btrlab/internal/lock"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Tree is the ordered extents of one inode, disjoint, by file offset. It is a treap linked through
// the extents, so that adding one allocates nothing.
type Tree struct {
	pool *Pool
	n    atomic.Int64

	mu   lock.Mutex // leaf; protects the fields below
	data sched.Shared
	root *Extent
	rng  uint32
}

// Init makes an empty tree.
func (tr *Tree) Init(p *Pool) {
	tr.pool = p
	tr.rng = 2463534242
	tr.mu.Init(classTree)
}

// Len is the number of extents.
func (tr *Tree) Len() int { return int(tr.n.Load()) }

// Add makes an extent with two references, the tree's and the caller's, who owes its submission.
// Overlap with another is a bug.
//
// Preconditions: the extent lock of the range is held, and First found nothing under it.
func (tr *Tree) Add(t *sched.Task, owner any, typ Type, start, length uint64, diskBytenr format.Logical) *Extent {
	return tr.add(t, owner, typ, start, length, diskBytenr, length, format.CompressNone)
}

// AddCompressed is Add of a Regular extent whose length bytes are diskLen bytes on disk, compressed
// as kind says. Models BTRFS_ORDERED_COMPRESSED.
func (tr *Tree) AddCompressed(t *sched.Task, owner any, start, length uint64, diskBytenr format.Logical, diskLen uint64, kind uint8) *Extent {
	return tr.add(t, owner, Regular, start, length, diskBytenr, diskLen, kind)
}

func (tr *Tree) add(t *sched.Task, owner any, typ Type, start, length uint64, diskBytenr format.Logical, diskLen uint64, kind uint8) *Extent {
	t.Spend(cost.Ordered, 1)
	e := tr.pool.get(t, start, length)
	e.Type, e.DiskBytenr, e.Owner, e.DiskLen, e.Compression = typ, diskBytenr, owner, diskLen, kind
	e.left.Store(int64(length))
	e.failed.Store(nil)
	e.tree = tr
	e.left_, e.right_ = nil, nil
	tr.mu.Lock(t)
	tr.data.Write(t, nameTree)
	e.prio = tr.nextPrio()
	e.inTree = true
	o := tr.insertLocked(t, e)
	tr.n.Add(1)
	tr.mu.Unlock(t)
	if o != nil {
		panic(fmt.Sprintf("ordered: add [%d, %d) over %v", start, start+length, o))
	}
	if t.Tracing() {
		e.traced(t, "btrfs_ordered_extent_add")
	}
	t.Owe(e)
	return e
}

// Split cuts e after its first n bytes, and returns the rest as an extent of its own with two
// references, as Add: the caller owes its submission as well. Models btrfs_split_ordered_extent().
//
// Preconditions: no bio of e has been submitted, and no checksums are set.
func (tr *Tree) Split(t *sched.Task, e *Extent, n uint64) *Extent {
	t.Spend(cost.Ordered, 1)
	if n == 0 || n >= e.Len || e.Compression != format.CompressNone {
		panic(fmt.Sprintf("ordered: split of %v after %d bytes", e, n))
	}
	r := tr.pool.get(t, e.Start+n, e.Len-n)
	r.Type, r.DiskBytenr, r.Owner, r.DiskLen, r.Compression = e.Type, e.DiskBytenr+format.Logical(n), e.Owner, e.Len-n, e.Compression
	r.left.Store(int64(r.Len))
	r.failed.Store(nil)
	r.tree = tr
	r.left_, r.right_ = nil, nil
	tr.pool.bytes.Add(-int64(r.Len)) // they were e's
	tr.mu.Lock(t)
	tr.data.Write(t, nameTree)
	e.Len, e.DiskLen = n, n
	e.left.Store(int64(n))
	r.prio = tr.nextPrio()
	r.inTree = true
	tr.insertLocked(t, r)
	tr.n.Add(1)
	tr.mu.Unlock(t)
	if t.Tracing() {
		r.traced(t, "btrfs_ordered_extent_split")
	}
	t.Owe(r)
	return r
}

// nextPrio is a random number. mu is held.
func (tr *Tree) nextPrio() uint32 {
	tr.rng ^= tr.rng << 13
	tr.rng ^= tr.rng >> 17
	tr.rng ^= tr.rng << 5
	return tr.rng
}

// insertLocked puts e at its place: down to the first node of lower priority, whose subtree is
// split at e. On its way it passes both neighbours of e, and reports one that overlaps with e.
func (tr *Tree) insertLocked(t *sched.Task, e *Extent) (over *Extent) {
	tr.mu.AssertHeld(t)
	link := &tr.root
	for n := *link; n != nil && n.prio >= e.prio; n = *link {
		if e.overlaps(n) {
			over = n
		}
		if e.Start < n.Start {
			link = &n.left_
		} else {
			link = &n.right_
		}
	}
	n := *link
	*link = e
	l, r := &e.left_, &e.right_
	for n != nil {
		if e.overlaps(n) {
			over = n
		}
		if n.Start < e.Start {
			*l = n
			l = &n.right_
			n = n.right_
		} else {
			*r = n
			r = &n.left_
			n = n.left_
		}
	}
	*l, *r = nil, nil
	return over
}

// Remove takes a finished extent out, wakes those who wait for it and drops the tree's reference.
// Models btrfs_remove_ordered_extent().
func (tr *Tree) Remove(t *sched.Task, e *Extent) {
	tr.mu.Lock(t)
	tr.data.Write(t, nameTree)
	link := &tr.root
	for *link != e {
		if *link == nil {
			tr.mu.Unlock(t)
			panic(fmt.Sprintf("ordered: remove %v that is not there", e))
		}
		if e.Start < (*link).Start {
			link = &(*link).left_
		} else {
			link = &(*link).right_
		}
	}
	l, r := e.left_, e.right_
	for {
		if l == nil {
			*link = r
			break
		}
		if r == nil {
			*link = l
			break
		}
		if l.prio >= r.prio {
			*link = l
			link = &l.right_
			l = l.right_
		} else {
			*link = r
			link = &r.left_
			r = r.left_
		}
	}
	e.left_, e.right_, e.inTree = nil, nil, false
	attached := e.attached
	tr.n.Add(-1)
	if t.Tracing() {
		e.traced(t, "btrfs_ordered_extent_remove")
	}
	tr.mu.Unlock(t)
	tr.pool.unlink(t, e)
	e.done.Store(true)
	t.Discharge(e)
	e.wait.Wake(t)
	if attached {
		tr.pool.attachedDone(t, e)
	}
	e.Put(t)
}

// Attach makes Remove tell the pool's OnAttachedDone, once, that e is finished. It is false when
// that is too late, or is arranged for already. Models BTRFS_ORDERED_PENDING.
func (tr *Tree) Attach(t *sched.Task, e *Extent) bool {
	tr.mu.Lock(t)
	defer tr.mu.Unlock(t)
	tr.data.Write(t, nameTree)
	if !e.inTree || e.attached {
		return false
	}
	e.attached = true
	return true
}

// All appends every extent to list, ascending, with a reference for each. Models
// btrfs_get_ordered_extents_for_logging().
func (tr *Tree) All(t *sched.Task, list []*Extent) []*Extent {
	for at := uint64(0); ; {
		e := tr.First(t, at, ^uint64(0))
		if e == nil {
			return list
		}
		list, at = append(list, e), e.End()
	}
}

// Written reports whether the device has all bytes of e, in its cache at least, without an error.
// Under the lock, so that the checksums, which were set before, can be read.
func (tr *Tree) Written(t *sched.Task, e *Extent) bool {
	tr.mu.Lock(t)
	defer tr.mu.Unlock(t)
	return e.left.Load() == 0 && e.Err() == nil
}

// First finds the first extent that overlaps [start, end) and takes a reference; nil when there is
// none. With no extent in flight it costs one load. Models btrfs_lookup_ordered_range().
func (tr *Tree) First(t *sched.Task, start, end uint64) *Extent {
	if tr.n.Load() == 0 {
		return nil
	}
	tr.mu.Lock(t)
	e := tr.firstLocked(t, start, end)
	if e != nil {
		e.refs.Add(1)
	}
	tr.mu.Unlock(t)
	return e
}

func (tr *Tree) firstLocked(t *sched.Task, start, end uint64) *Extent {
	tr.mu.AssertHeld(t)
	tr.data.Read(t, nameTree)
	var best *Extent
	for n := tr.root; n != nil; {
		if n.Start+n.Len <= start {
			n = n.right_
			continue
		}
		best = n
		n = n.left_
	}
	if best != nil && best.Start < end {
		return best
	}
	return nil
}

// WaitRange waits for every extent that overlaps [start, end) now or comes before the last of them
// is finished, and reports the first error. No page and no range may be locked.
func (tr *Tree) WaitRange(t *sched.Task, start, end uint64) error {
	var first error
	for {
		e := tr.First(t, start, end)
		if e == nil {
			return first
		}
		e.Wait(t)
		if err := e.Err(); err != nil && first == nil {
			first = err
		}
		start = e.End()
		e.Put(t)
	}
}

// CheckEmpty panics unless no extent is in flight.
func (tr *Tree) CheckEmpty(t *sched.Task) {
	if e := tr.First(t, 0, ^uint64(0)); e != nil {
		panic(fmt.Sprintf("ordered: at rest there is still %v", e))
	}
}

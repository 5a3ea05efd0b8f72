package extenttree

import (
	"fmt"
	"sort"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// backRef names one back reference. With a parent it is by the block that points at the extent, and
// has nothing else; else it is by tree: a tree's reference to a block has only a Root.
type backRef struct {
	format.DataRef
	parent format.Logical
}

// byTree is the reference of a tree to one of its blocks.
func byTree(root uint64) backRef { return backRef{DataRef: format.DataRef{Root: root}} }

// byFile is the reference of a file extent.
func byFile(r format.DataRef) backRef { return backRef{DataRef: r} }

// refMod is a change of mod in the count of one back reference.
type refMod struct {
	backRef
	mod int
	// done says that the extent item counts it already. Changed under refsMu and the lock of the
	// item's leaf.
	done bool
}

// head collects what a transaction did to the references of one extent. Models struct
// btrfs_delayed_ref_head.
type head struct {
	bytenr format.Logical
	num    uint64
	data   bool
	level  uint8
	first  format.Key // that a new tree block begins with; models btrfs_delayed_extent_op.key
	// owner is the tree that allocates a new extent, and the one in a tree block's header from the
	// first drop on. Models btrfs_delayed_ref_head.owning_root.
	owner uint64
	// mustInsert says that the extent is allocated but has no extent item: the first added
	// reference makes it.
	mustInsert bool
	// full says that the tree block gets FULL_BACKREF. Models btrfs_delayed_extent_op.flags_to_set.
	full bool
	mods []refMod
}

func (h *head) span() span { return spanOf(h.bytenr, h.num) }

func (h *head) total() int {
	n := 0
	for _, m := range h.mods {
		n += m.mod
	}
	return n
}

func (h *head) add(r backRef, mod int) {
	for i := range h.mods {
		if h.mods[i].backRef == r {
			if h.mods[i].mod += mod; h.mods[i].mod == 0 {
				h.mods = append(h.mods[:i], h.mods[i+1:]...)
			}
			return
		}
	}
	h.mods = append(h.mods, refMod{backRef: r, mod: mod})
}

// addRef queues mod references. h describes the extent when the queue has no head for it.
func (e *ExtentTree) addRef(t *sched.Task, h head, r backRef, mod int) {
	e.refsMu.Lock(t)
	defer e.refsMu.Unlock(t)
	e.headLocked(t, h).add(r, mod)
	if t.Tracing() {
		h.tracedRef(t, "add", r, mod)
	}
}

// tracedHead tells a tracer of a step, add or run, with the extent's queue.
func (h *head) tracedHead(t *sched.Task, step, action string) {
	t.Trace(sched.TraceEvent{Name: step + "_delayed_ref_head", Len: h.num, What: action + " " + h.kind()})
}

func (h *head) kind() string {
	if h.data {
		return "DATA"
	}
	return "TREE"
}

// tracedRef tells a tracer of a step with one of its references.
func (h *head) tracedRef(t *sched.Task, step string, r backRef, mod int) {
	action := "ADD_DELAYED_REF"
	if mod < 0 {
		action = "DROP_DELAYED_REF"
	}
	if step == "add" {
		if h.mustInsert {
			h.tracedHead(t, step, "ADD_DELAYED_EXTENT")
		} else {
			h.tracedHead(t, step, action)
		}
	}
	if h.data {
		t.Trace(sched.TraceEvent{Name: step + "_delayed_data_ref", Root: r.Root, Start: uint64(r.Offset), Len: h.num, What: action})
		return
	}
	t.Trace(sched.TraceEvent{Name: step + "_delayed_tree_ref", Root: r.Root, Val: int64(h.level), What: action})
}

// headLocked is the queue's head for the extent that h describes, a new one if there is none.
func (e *ExtentTree) headLocked(t *sched.Task, h head) *head {
	e.refsMu.AssertHeld(t)
	p := e.heads[h.bytenr]
	if p == nil {
		if n := len(e.freeHeads); n > 0 {
			p, e.freeHeads = e.freeHeads[n-1], e.freeHeads[:n-1]
		} else {
			p = new(head)
		}
		mods := p.mods[:0]
		*p = h
		p.mods = mods
		e.heads[h.bytenr] = p
		e.nheads.Store(int64(len(e.heads)))
	} else if p.num != h.num || p.data != h.data || h.mustInsert {
		panic(fmt.Sprintf("extenttree: references to extent %d of %d and of %d bytes in one transaction (insert %v)",
			h.bytenr, p.num, h.num, h.mustInsert))
	}
	if h.owner != 0 {
		p.owner = h.owner
	}
	return p
}

// cancelHead drops the head of an extent that was never recorded and has no reference left.
// Models check_ref_cleanup().
func (e *ExtentTree) cancelHead(t *sched.Task, bytenr format.Logical) bool {
	e.refsMu.Lock(t)
	defer e.refsMu.Unlock(t)
	p := e.heads[bytenr]
	if p == nil || !p.mustInsert || len(p.mods) != 0 {
		return false
	}
	e.dropHeadLocked(t, p)
	return true
}

func (e *ExtentTree) dropHeadLocked(t *sched.Task, p *head) {
	e.refsMu.AssertHeld(t)
	delete(e.heads, p.bytenr)
	e.nheads.Store(int64(len(e.heads)))
	e.freeHeads = append(e.freeHeads, p)
}

// takeHeads empties the queue, in order of address.
func (e *ExtentTree) takeHeads(t *sched.Task) []*head {
	e.refsMu.Lock(t)
	defer e.refsMu.Unlock(t)
	list := make([]*head, 0, len(e.heads))
	for _, h := range e.heads {
		list = append(list, h)
	}
	e.running, e.heads = e.heads, e.running
	e.nheads.Store(0)
	sort.Slice(list, func(i, j int) bool { return list[i].bytenr < list[j].bytenr })
	return list
}

func (e *ExtentTree) recycleHeads(t *sched.Task, list []*head) {
	e.refsMu.Lock(t)
	clear(e.running)
	e.freeHeads = append(e.freeHeads, list...)
	e.refsMu.Unlock(t)
}

// AllocReservedFileExtent queues the first reference to an extent from ReserveExtent.
// Models btrfs_alloc_reserved_file_extent().
func (e *ExtentTree) AllocReservedFileExtent(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error {
	e.addRef(t, head{bytenr: bytenr, num: numBytes, data: true, owner: ref.Root, mustInsert: true}, byFile(ref), 1)
	return nil
}

// checkExtent refuses what a damaged file extent item may say: the extent must lie in one data
// block group.
func (e *ExtentTree) checkExtent(ref format.DataRef, bytenr format.Logical, numBytes uint64) error {
	g := e.groups.Load().find(bytenr)
	if g == nil || g.Flags&format.BlockGroupData == 0 || numBytes > uint64(g.end()-bytenr) {
		return fmt.Errorf("corrupt file extent: root=%d ino=%d, data extent at %d of %d bytes lies in no data block group: %w",
			int64(ref.Root), ref.Ino, bytenr, numBytes, errno.EUCLEAN)
	}
	return nil
}

// IncExtentRef queues one more reference to a data extent. Models btrfs_inc_extent_ref().
func (e *ExtentTree) IncExtentRef(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error {
	if err := e.checkExtent(ref, bytenr, numBytes); err != nil {
		return err
	}
	e.addRef(t, head{bytenr: bytenr, num: numBytes, data: true}, byFile(ref), 1)
	return nil
}

// FreeExtent queues the end of one reference to a data extent; with the last the space is pinned
// and its checksums go. Models btrfs_free_extent().
func (e *ExtentTree) FreeExtent(t *sched.Task, tr *ctree.Trans, ref format.DataRef, bytenr format.Logical, numBytes uint64) error {
	if err := e.checkExtent(ref, bytenr, numBytes); err != nil {
		return err
	}
	e.addRef(t, head{bytenr: bytenr, num: numBytes, data: true}, byFile(ref), -1)
	return nil
}

package ctree

import (
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Inner nodes: insert and delete pointers, split, push to neighbours, merge. The path's node at the
// level, and its parent, are write-locked and of this transaction; a neighbour is locked and copied
// here.

// searchNode is Node.Search: the first slot whose key is not before k, and whether it is k.
func searchNode(n format.Node, k format.Key) (slot int, found bool) {
	return n.Search(k)
}

// ptrs is the key pointers [from, to) of an inner node.
func ptrs(n format.Node, from, to int) []byte {
	return n[format.HeaderSize+from*format.KeyPtrSize : format.HeaderSize+to*format.KeyPtrSize]
}

// mustHold panics unless the path's node at level may be changed.
func (p *Path) mustHold(level int, why string) *Buffer {
	b := p.Nodes[level]
	if b == nil || p.locks[level] != lockWrite {
		panic(fmt.Sprintf("ctree: %s needs level %d of the path write-locked (slots %v, locks %v)", why, level, p.Slots, p.locks))
	}
	return b
}

// fixLowKeys tells the parents, from level on, that the first key below them is key now.
//
// Models fs/btrfs/ctree.c:fixup_low_keys().
func (p *Path) fixLowKeys(key format.Key, level int) {
	for i := level; i <= p.top && p.Nodes[i] != nil; i++ {
		b := p.mustHold(i, "a new first key")
		b.Node.SetKey(p.Slots[i], key)
		if p.Slots[i] != 0 {
			return
		}
	}
}

// insertPtr puts a pointer to b into the path's node at level, before slot.
//
// Models fs/btrfs/ctree.c:insert_ptr().
func (f *Forest) insertPtr(p *Path, key format.Key, b *Buffer, slot, level int) {
	n := p.mustHold(level, "a new pointer").Node
	nr := n.Nritems()
	if slot > nr || nr >= f.ptrsMax {
		panic(fmt.Sprintf("ctree: insert pointer to %d at slot %d of block %d, which has %d of %d", b.Bytenr, slot, n.Bytenr(), nr, f.ptrsMax))
	}
	copy(ptrs(n, slot+1, nr+1), ptrs(n, slot, nr))
	n.SetNritems(nr + 1)
	n.SetKey(slot, key)
	n.SetBlockptr(slot, b.Bytenr)
	n.SetPtrGeneration(slot, b.generation)
}

// delPtr takes the pointer in slot out of the path's node at level.
//
// Models fs/btrfs/ctree.c:btrfs_del_ptr().
func (p *Path) delPtr(level, slot int) {
	n := p.mustHold(level, "deleting a pointer").Node
	nr := n.Nritems()
	if nr < 2 {
		// The way down balances: a root with one child gives its place to it, others are joined.
		panic(fmt.Sprintf("ctree: delete the last pointer of block %d level %d", n.Bytenr(), level))
	}
	copy(ptrs(n, slot, nr-1), ptrs(n, slot+1, nr))
	n.SetNritems(nr - 1)
	if slot == 0 {
		p.fixLowKeys(n.Key(0), level+1)
	}
}

// growRoot puts a new root above the path's top node.
//
// Models fs/btrfs/ctree.c:insert_new_root().
func (f *Forest) growRoot(t *sched.Task, tr *Trans, r *Root, p *Path) error {
	old := p.mustHold(p.top, "a new root")
	if p.top+1 == format.MaxLevel {
		return fmt.Errorf("tree %d has %d levels: %w", int64(r.ID), format.MaxLevel, errno.EOVERFLOW)
	}
	b, err := f.newBlock(t, tr, r, p.top+1, old.Bytenr, old.firstKey())
	if err != nil {
		return err
	}
	b.Node.SetNritems(1)
	b.Node.SetKey(0, old.Node.Key(0))
	b.Node.SetBlockptr(0, old.Bytenr)
	b.Node.SetPtrGeneration(0, old.generation)
	r.setRoot(tr, b)
	p.top++
	p.Nodes[p.top], p.Slots[p.top] = b, 0
	p.holds(t, p.top)
	return nil
}

// lockNeighbour returns the child of the path's node at level in slot, write-locked, of this
// transaction and with a reference. fits, if not nil, is asked of the locked block before it is
// copied: when it says no, the result is nil.
func (f *Forest) lockNeighbour(t *sched.Task, tr *Trans, r *Root, p *Path, level, slot, nest int, fits func(n format.Node) bool) (*Buffer, error) {
	parent := p.mustHold(level, "work on a neighbour")
	b, err := f.neighbour(t, r, parent, slot)
	if err != nil {
		return nil, err
	}
	b.lockBeside(t, nest)
	if fits != nil && !fits(b.Node) {
		b.Unlock(t)
		b.Put()
		return nil, nil
	}
	if !shouldCOW(tr, r, b) {
		return b, nil
	}
	c, err := f.cow(t, tr, r, b, parent, slot)
	if err != nil {
		if c == nil {
			c = b
		}
		c.Unlock(t)
		c.Put()
		return nil, err
	}
	return c, nil
}

func drop(t *sched.Task, b *Buffer) {
	if b != nil {
		b.Unlock(t)
		b.Put()
	}
}

// pushPtrsLeft moves pointers from src to its left neighbour dst, as many as fit; unless empty is
// set, src keeps 8. It reports whether any moved.
//
// Models fs/btrfs/ctree.c:push_node_left().
func (f *Forest) pushPtrsLeft(dst, src format.Node, empty bool) bool {
	sn, dn := src.Nritems(), dst.Nritems()
	push := f.ptrsMax - dn
	if !empty && sn <= 8 || push <= 0 {
		return false
	}
	if empty {
		push = min(sn, push)
		if push < sn && sn-push < 8 {
			// Leave at least 8 if src is not going to be empty.
			if push <= 8 {
				return false
			}
			push -= 8
		}
	} else {
		push = min(sn-8, push)
	}
	copy(ptrs(dst, dn, dn+push), ptrs(src, 0, push))
	copy(ptrs(src, 0, sn-push), ptrs(src, push, sn))
	src.SetNritems(sn - push)
	dst.SetNritems(dn + push)
	return true
}

// pushPtrsRight moves up to half of src's pointers to its right neighbour dst and reports whether
// any moved.
//
// Models fs/btrfs/ctree.c:balance_node_right().
func (f *Forest) pushPtrsRight(dst, src format.Node) bool {
	sn, dn := src.Nritems(), dst.Nritems()
	push := f.ptrsMax - dn
	if push <= 0 || sn < 4 {
		return false
	}
	most := sn/2 + 1
	if most >= sn {
		return false
	}
	push = min(push, most)
	copy(ptrs(dst, push, dn+push), ptrs(dst, 0, dn))
	copy(ptrs(dst, 0, push), ptrs(src, sn-push, sn))
	src.SetNritems(sn - push)
	dst.SetNritems(dn + push)
	return true
}

// splitNode makes room in the path's node at level, which is nearly full: by moving pointers to a
// neighbour or by splitting it. The path follows the pointer it is at.
//
// Models fs/btrfs/ctree.c:split_node().
func (f *Forest) splitNode(t *sched.Task, tr *Trans, r *Root, p *Path, level int) error {
	if level == p.top {
		if err := f.growRoot(t, tr, r, p); err != nil {
			return err
		}
	} else {
		pushed, err := f.pushForInsert(t, tr, r, p, level)
		if err != nil {
			return err
		}
		if pushed && p.Nodes[level].Node.Nritems() < f.ptrsMax-3 {
			return nil
		}
	}
	c := p.mustHold(level, "a split")
	nr := c.Node.Nritems()
	mid := (nr + 1) / 2
	s, err := f.newBlock(t, tr, r, level, c.Bytenr, c.Node.Key(mid))
	if err != nil {
		return err
	}
	copy(ptrs(s.Node, 0, nr-mid), ptrs(c.Node, mid, nr))
	s.Node.SetNritems(nr - mid)
	c.Node.SetNritems(mid)
	f.insertPtr(p, s.Node.Key(0), s, p.Slots[level+1]+1, level+1)
	if p.Slots[level] >= mid {
		p.replace(t, s, p.Slots[level]-mid)
		p.Slots[level+1]++
	} else {
		drop(t, s)
	}
	return nil
}

// pushForInsert moves pointers from the path's node at level to its left or right neighbour and
// reports whether it could.
//
// Models fs/btrfs/ctree.c:push_nodes_for_insert().
func (f *Forest) pushForInsert(t *sched.Task, tr *Trans, r *Root, p *Path, level int) (bool, error) {
	mid := p.mustHold(level, "a push")
	parent := p.mustHold(level+1, "a push")
	pslot, slot := p.Slots[level+1], p.Slots[level]
	fits := func(n format.Node) bool { return n.Nritems() < f.ptrsMax-1 }
	if pslot > 0 {
		left, err := f.lockNeighbour(t, tr, r, p, level+1, pslot-1, nestLeft, fits)
		if err != nil {
			return false, err
		}
		if left != nil {
			leftNr := left.Node.Nritems()
			if f.pushPtrsLeft(left.Node, mid.Node, false) {
				parent.Node.SetKey(pslot, mid.Node.Key(0))
				slot += leftNr
				if left.Node.Nritems() > slot {
					p.replace(t, left, slot)
					p.Slots[level+1]--
				} else {
					p.Slots[level] = slot - left.Node.Nritems()
					drop(t, left)
				}
				return true, nil
			}
			drop(t, left)
		}
	}
	if pslot+1 < parent.Node.Nritems() {
		right, err := f.lockNeighbour(t, tr, r, p, level+1, pslot+1, nestRight, fits)
		if err != nil {
			return false, err
		}
		if right != nil {
			if f.pushPtrsRight(right.Node, mid.Node) {
				parent.Node.SetKey(pslot+1, right.Node.Key(0))
				if n := mid.Node.Nritems(); n <= slot {
					p.replace(t, right, slot-n)
					p.Slots[level+1]++
				} else {
					drop(t, right)
				}
				return true, nil
			}
			drop(t, right)
		}
	}
	return false, nil
}

// balanceLevel joins the path's node at level, which is less than half full, with its neighbours; a
// root with one child gives its place to the child, and then the path has no node at level. The
// path follows the pointer it is at.
//
// Models fs/btrfs/ctree.c:balance_level().
func (f *Forest) balanceLevel(t *sched.Task, tr *Trans, r *Root, p *Path, level int) error {
	mid := p.mustHold(level, "a balance")
	if level == p.top {
		if mid.Node.Nritems() != 1 {
			return nil
		}
		child, err := f.lockNeighbour(t, tr, r, p, level, 0, nestNormal, nil)
		if err != nil {
			return err
		}
		r.setRoot(tr, child)
		drop(t, child)
		p.letGo(t, level)
		p.Nodes[level] = nil
		return f.freeBlock(t, tr, r, mid, true)
	}
	if mid.Node.Nritems() > f.ptrsMax/4 {
		return nil
	}
	parent := p.mustHold(level+1, "a balance")
	pslot, slot := p.Slots[level+1], p.Slots[level]
	at := mid.Node.Blockptr(slot)
	var left, right *Buffer
	var err error
	if pslot > 0 {
		if left, err = f.lockNeighbour(t, tr, r, p, level+1, pslot-1, nestLeft, nil); err != nil {
			return err
		}
	}
	if pslot+1 < parent.Node.Nritems() {
		if right, err = f.lockNeighbour(t, tr, r, p, level+1, pslot+1, nestRight, nil); err != nil {
			drop(t, left)
			return err
		}
	}
	// First make some room in the middle, then try to empty the right one into it.
	if left != nil {
		slot += left.Node.Nritems()
		f.pushPtrsLeft(left.Node, mid.Node, true)
	}
	if right != nil {
		f.pushPtrsLeft(mid.Node, right.Node, true)
		if right.Node.Nritems() == 0 {
			p.delPtr(level+1, pslot+1)
			err = f.freeBlock(t, tr, r, right, true)
			right = nil
		} else {
			parent.Node.SetKey(pslot+1, right.Node.Key(0))
		}
	}
	if left != nil && mid.Node.Nritems() == 1 {
		// A node must not keep one pointer: a delete further down could take that away.
		if !f.pushPtrsRight(mid.Node, left.Node) {
			f.pushPtrsLeft(left.Node, mid.Node, true)
		}
	}
	midGone := mid.Node.Nritems() == 0
	if midGone {
		p.delPtr(level+1, pslot)
	} else {
		// Only a left neighbour changes the first key, so pslot is not 0 then.
		parent.Node.SetKey(pslot, mid.Node.Key(0))
	}
	drop(t, right)
	// Leave the path at the pointer it was at.
	if left != nil && slot < left.Node.Nritems() {
		p.Nodes[level], p.Slots[level] = left, slot
		p.Slots[level+1]--
		if !midGone {
			drop(t, mid)
		}
	} else {
		if left != nil {
			slot -= left.Node.Nritems()
		}
		p.Slots[level] = slot
		drop(t, left)
		if midGone {
			panic(fmt.Sprintf("ctree: balance level %d of tree %d: slot %d is in the node that was emptied", level, int64(r.ID), slot))
		}
	}
	if have := p.Nodes[level].Node.Blockptr(p.Slots[level]); have != at {
		panic(fmt.Sprintf("ctree: balance level %d of tree %d lost its pointer, have %d want %d", level, int64(r.ID), have, at))
	}
	if midGone {
		if e := f.freeBlock(t, tr, r, mid, true); err == nil {
			err = e
		}
	}
	return err
}

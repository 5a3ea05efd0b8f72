package ctree

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// Leaves: item headers grow up from the header, item data grows down from the end, without gaps.
// Offsets of data are counted from the end of the header.

// heads is the item headers [from, to) of a leaf.
func heads(n format.Node, from, to int) []byte {
	return n[format.HeaderSize+from*format.ItemHeaderSize : format.HeaderSize+to*format.ItemHeaderSize]
}

// data is the bytes [from, to) of a leaf's data area.
func data(n format.Node, from, to int) []byte {
	return n[format.HeaderSize+from : format.HeaderSize+to]
}

// itemEnd is where the data of the item in slot ends.
func itemEnd(n format.Node, slot int) int { return n.ItemOffset(slot) + n.ItemSize(slot) }

// spaceUsed is the bytes that nr items from start on take, headers included.
//
// Models fs/btrfs/ctree.c:leaf_space_used().
func spaceUsed(n format.Node, start, nr int) int {
	if nr == 0 {
		return 0
	}
	return itemEnd(n, start) - n.ItemOffset(start+nr-1) + nr*format.ItemHeaderSize
}

// shiftOffsets adds by to the data offsets of the items [from, to).
func shiftOffsets(n format.Node, from, to, by int) {
	for i := from; i < to; i++ {
		n.SetItemOffset(i, n.ItemOffset(i)+by)
	}
}

// moveRight moves the last nr items of left to the front of right, which has room.
func moveRight(left, right format.Node, nr int) {
	ln, rn := left.Nritems(), right.Nritems()
	first := ln - nr
	size := itemEnd(left, first) - left.LeafDataEnd()
	end := right.LeafDataEnd()
	full := format.LeafDataSize(len(right))
	copy(data(right, end-size, full-size), data(right, end, full))
	copy(data(right, full-size, full), data(left, left.LeafDataEnd(), itemEnd(left, first)))
	copy(heads(right, nr, nr+rn), heads(right, 0, rn))
	by := full - itemEnd(left, first)
	copy(heads(right, 0, nr), heads(left, first, ln))
	right.SetNritems(nr + rn)
	shiftOffsets(right, 0, nr, by)
	shiftOffsets(right, nr, nr+rn, -size)
	left.SetNritems(first)
}

// moveLeft moves the first nr items of right to the end of left, which has room.
func moveLeft(left, right format.Node, nr int) {
	ln, rn := left.Nritems(), right.Nritems()
	full := format.LeafDataSize(len(right))
	from := right.ItemOffset(nr - 1)
	size := full - from
	end := left.LeafDataEnd()
	copy(data(left, end-size, end), data(right, from, full))
	copy(heads(left, ln, ln+nr), heads(right, 0, nr))
	left.SetNritems(ln + nr)
	shiftOffsets(left, ln, ln+nr, end-full)
	if nr < rn {
		last := right.LeafDataEnd()
		copy(data(right, last+size, full), data(right, last, from))
		copy(heads(right, 0, rn-nr), heads(right, nr, rn))
		shiftOffsets(right, 0, rn-nr, size)
	}
	right.SetNritems(rn - nr)
}

// pushLeafRight moves items from the end of the path's leaf to its right neighbour, when that has
// room for need bytes. It moves as many as fit, with room left for minSize bytes at the path's
// slot, but none before minSlot. With empty it may move all; else the leaf keeps one. The path
// follows its slot. It reports whether anything moved.
//
// Models fs/btrfs/ctree.c:push_leaf_right() and __push_leaf_right().
func (f *Forest) pushLeafRight(t *sched.Task, tr *Trans, r *Root, p *Path, minSize, need int, empty bool, minSlot int) (bool, error) {
	if p.top == 0 {
		return false, nil
	}
	upper := p.mustHold(1, "a push to the right")
	left := p.mustHold(0, "a push to the right")
	uslot := p.Slots[1]
	if uslot >= upper.Node.Nritems()-1 {
		return false, nil
	}
	right, err := f.lockNeighbour(t, tr, r, p, 1, uslot+1, nestRight, func(n format.Node) bool { return n.LeafFreeSpace() >= need })
	if err != nil || right == nil {
		return false, err
	}
	if tr.Leaves.Recheck && !p.recheck(t, right, need) {
		drop(t, right)
		return false, nil
	}
	free := right.Node.LeafFreeSpace()
	n := left.Node
	nr := n.Nritems()
	slot := p.Slots[0]
	if nr == 0 {
		drop(t, right)
		return false, nil
	}
	if slot == nr && !empty {
		// The new item comes after all of the leaf's and fits the neighbour: put it there, move
		// nothing.
		p.replace(t, right, 0)
		p.Slots[1]++
		return true, nil
	}
	lowest := 0
	if !empty {
		lowest = max(1, minSlot)
	}
	items, space := 0, 0
	if slot >= nr {
		space = minSize
	}
	for i := nr - 1; i >= lowest; i-- {
		if !empty && items > 0 {
			if slot > i {
				break
			}
			if slot == i && n.LeafFreeSpace()+space*2 > free {
				break
			}
		}
		if slot == i {
			space += minSize
		}
		size := n.ItemSize(i) + format.ItemHeaderSize
		if size+space > free {
			break
		}
		items++
		space += size
	}
	if items == 0 {
		drop(t, right)
		return false, nil
	}
	right.count(t, sched.LogShifted, spaceUsed(n, nr-items, items))
	moveRight(n, right.Node, items)
	upper.Node.SetKey(uslot+1, right.Node.Key(0))
	if keep := nr - items; slot >= keep {
		// A leaf that is empty now is freed by the caller, who has a reference of its own.
		p.replace(t, right, slot-keep)
		p.Slots[1]++
	} else {
		drop(t, right)
	}
	return true, nil
}

// recheck asks b, a neighbour that was copied, once more whether it has room for need bytes. A copy
// has what its source has, and the source was asked under its lock: the answer is yes. Models
// push_leaf_left() and push_leaf_right() before b4e098a97f17.
func (p *Path) recheck(t *sched.Task, b *Buffer, need int) bool {
	p.Touch(t, 4) // item count, offset of the last item, and both ends of the sum
	b.count(t, sched.LogRechecks, 1)
	return b.Node.LeafFreeSpace() >= need
}

// pushLeafLeft moves items from the front of the path's leaf to its left neighbour, when that has
// room for need bytes: as many as fit, with room left for minSize bytes at the path's slot, but not
// maxSlot or after. With empty it may move all; else the leaf keeps one. The path follows its slot.
// It reports whether anything moved.
//
// Models fs/btrfs/ctree.c:push_leaf_left() and __push_leaf_left().
func (f *Forest) pushLeafLeft(t *sched.Task, tr *Trans, r *Root, p *Path, minSize, need int, empty bool, maxSlot int) (bool, error) {
	if p.top == 0 || p.Slots[1] == 0 {
		return false, nil
	}
	right := p.mustHold(0, "a push to the left")
	n := right.Node
	nr := n.Nritems()
	if nr == 0 {
		return false, nil
	}
	left, err := f.lockNeighbour(t, tr, r, p, 1, p.Slots[1]-1, nestLeft, func(n format.Node) bool { return n.LeafFreeSpace() >= need })
	if err != nil || left == nil {
		return false, err
	}
	if tr.Leaves.Recheck && !p.recheck(t, left, need) {
		drop(t, left)
		return false, nil
	}
	free := left.Node.LeafFreeSpace()
	slot := p.Slots[0]
	most := nr
	if !empty {
		most--
	}
	most = min(most, maxSlot)
	items, space := 0, 0
	for i := range most {
		if !empty && items > 0 {
			if slot < i {
				break
			}
			if slot == i && n.LeafFreeSpace()+space*2 > free {
				break
			}
		}
		if slot == i {
			space += minSize
		}
		size := n.ItemSize(i) + format.ItemHeaderSize
		if size+space > free {
			break
		}
		items++
		space += size
	}
	if items == 0 {
		drop(t, left)
		return false, nil
	}
	leftNr := left.Node.Nritems()
	left.count(t, sched.LogShifted, spaceUsed(n, 0, items))
	moveLeft(left.Node, n, items)
	if items < nr {
		p.fixLowKeys(n.Key(0), 1)
	}
	if slot < items {
		p.replace(t, left, slot+leftNr)
		p.Slots[1]--
	} else {
		p.Slots[0] = slot - items
		drop(t, left)
	}
	return true, nil
}

// pushForSplit moves items to the neighbours, to make room for size bytes at the path's slot. At an
// end of the leaf the slot itself may go to the neighbour, which needs room for all of the bytes;
// elsewhere the leaf's free space counts.
func (f *Forest) pushForSplit(t *sched.Task, tr *Trans, r *Root, p *Path, size int) error {
	n := p.Nodes[0].Node
	need := size
	if p.Slots[0] < n.Nritems() {
		need -= n.LeafFreeSpace()
	}
	pushed, err := f.pushLeafRight(t, tr, r, p, need, need, false, 0)
	if err != nil || pushed {
		return err
	}
	need = size
	if p.Slots[0] > 0 {
		need -= n.LeafFreeSpace()
	}
	_, err = f.pushLeafLeft(t, tr, r, p, need, need, false, math.MaxInt)
	return err
}

// leaves says how many leaves a split makes of the items of one.
type leaves int

const (
	alone  leaves = iota // the new item gets a leaf of its own
	single               // two, of which one has the new item
	double               // two, and then again two: the new item does not fit beside either half
)

// splitPoint says where the items of n part for size bytes at slot: those from mid on go to the new
// leaf.
func (f *Forest) splitPoint(n format.Node, slot, size int, extend bool) (mid int, split leaves) {
	nr := n.Nritems()
	mid = (nr + 1) / 2
	fits := func(start, count int) bool { return spaceUsed(n, start, count)+size <= f.dataMax }
	switch {
	case mid <= slot:
		if nr > 1 && fits(mid, nr-mid) {
			return mid, single
		}
		if slot >= nr {
			return mid, alone
		}
	case fits(0, mid):
		return mid, single
	case slot == 0 && !extend:
		return mid, alone
	case slot == 0:
		return 1, single
	}
	if mid = slot; mid != nr && !fits(mid, nr-mid) {
		return mid, double
	}
	return mid, single
}

// splitLeaf makes room for size bytes at the path's slot, which is where key is or would be: by
// pushing items to the neighbours, or with one or two new leaves. With extend the bytes are for the
// item at the slot.
//
// Models fs/btrfs/ctree.c:split_leaf().
func (f *Forest) splitLeaf(t *sched.Task, tr *Trans, r *Root, key format.Key, p *Path, size int, extend bool) error {
	n := p.mustHold(0, "a split").Node
	if extend && size+n.ItemSize(p.Slots[0])+format.ItemHeaderSize > f.dataMax {
		return fmt.Errorf("item %v of tree %d with %d bytes more: %w", key, int64(r.ID), size, errno.EOVERFLOW)
	}
	if size > f.dataMax {
		return fmt.Errorf("item %v of tree %d with %d bytes: %w", key, int64(r.ID), size, errno.EOVERFLOW)
	}
	if p.top == 0 {
		if err := f.growRoot(t, tr, r, p); err != nil {
			return err
		}
	} else if err := f.pushForSplit(t, tr, r, p, size); err != nil || p.Nodes[0].Node.LeafFreeSpace() >= size {
		return err
	}
	triedDouble := false
	for {
		l := p.Nodes[0]
		n, slot := l.Node, p.Slots[0]
		nr := n.Nritems()
		mid, split := f.splitPoint(n, slot, size, extend)
		if split == double && !triedDouble {
			triedDouble = true
			if err := f.pushForDouble(t, tr, r, p, size); err != nil {
				return err
			}
			if p.Nodes[0].Node.LeafFreeSpace() >= size {
				return nil
			}
			continue
		}
		first := key
		if split != alone {
			first = n.Key(mid)
		}
		right, err := f.newBlock(t, tr, r, 0, l.Bytenr, first)
		if err != nil {
			return err
		}
		if split == alone {
			if mid <= slot {
				f.insertPtr(p, key, right, p.Slots[1]+1, 1)
				p.Slots[1]++
			} else {
				f.insertPtr(p, key, right, p.Slots[1], 1)
				if p.Slots[1] == 0 {
					p.fixLowKeys(key, 1)
				}
			}
			p.replace(t, right, 0)
			return nil
		}
		right.count(t, sched.LogShifted, spaceUsed(n, mid, nr-mid))
		moveRight(n, right.Node, nr-mid)
		f.insertPtr(p, right.Node.Key(0), right, p.Slots[1]+1, 1)
		if mid <= slot {
			p.replace(t, right, slot-mid)
			p.Slots[1]++
		} else {
			drop(t, right)
		}
		if split == single {
			return nil
		}
		// The item before which the room is wanted begins the leaf now; split again after it.
	}
}

// pushForDouble tries to get the path's slot to an end of its leaf, so that one new leaf is enough.
//
// Models fs/btrfs/ctree.c:push_for_double_split().
func (f *Forest) pushForDouble(t *sched.Task, tr *Trans, r *Root, p *Path, size int) error {
	n := p.Nodes[0].Node
	need := size
	if p.Slots[0] < n.Nritems() {
		need -= n.LeafFreeSpace()
	}
	if _, err := f.pushLeafRight(t, tr, r, p, 1, need, false, p.Slots[0]); err != nil {
		return err
	}
	n = p.Nodes[0].Node
	if p.Slots[0] == 0 || p.Slots[0] == n.Nritems() || n.LeafFreeSpace() >= size {
		return nil
	}
	need = size
	if p.Slots[0] > 0 {
		need -= n.LeafFreeSpace()
	}
	_, err := f.pushLeafLeft(t, tr, r, p, 1, need, false, p.Slots[0])
	return err
}

// Batch is items that follow each other: Keys ascend, and no key of the tree lies between them.
type Batch struct {
	Keys  []format.Key
	Sizes []int // bytes of data
}

// setupItems makes headers and zeroed data for new items at the path's slot, where there is room.
//
// Models fs/btrfs/ctree.c:setup_items_for_insert().
func (f *Forest) setupItems(t *sched.Task, p *Path, keys []format.Key, sizes []int) {
	n := p.mustHold(0, "an insert").Node
	slot, nr := p.Slots[0], n.Nritems()
	total := 0
	for _, s := range sizes {
		total += s
	}
	if free, need := n.LeafFreeSpace(), total+len(keys)*format.ItemHeaderSize; free < need || slot > nr {
		panic(fmt.Sprintf("ctree: insert %v at slot %d of %d into block %d: free %d, need %d", keys[0], slot, nr, n.Bytenr(), free, need))
	}
	if slot > 0 && !n.Key(slot-1).Less(keys[0]) || slot < nr && !keys[len(keys)-1].Less(n.Key(slot)) {
		panic(fmt.Sprintf("ctree: insert %v..%v at slot %d of block %d breaks the order", keys[0], keys[len(keys)-1], slot, n.Bytenr()))
	}
	end := f.dataMax
	if slot > 0 {
		end = n.ItemOffset(slot - 1)
	}
	low := n.LeafDataEnd()
	p.step(t, len(keys))
	p.Nodes[0].count(t, sched.LogShifted, end-low+(nr-slot)*format.ItemHeaderSize)
	copy(data(n, low-total, end-total), data(n, low, end))
	clear(data(n, end-total, end))
	copy(heads(n, slot+len(keys), nr+len(keys)), heads(n, slot, nr))
	n.SetNritems(nr + len(keys))
	shiftOffsets(n, slot+len(keys), nr+len(keys), -total)
	for i, k := range keys {
		end -= sizes[i]
		n.SetKey(slot+i, k)
		n.SetItemOffset(slot+i, end)
		n.SetItemSize(slot+i, sizes[i])
	}
	if slot == 0 {
		p.fixLowKeys(keys[0], 1)
	}
	p.unlockSafe(t, 1)
}

// InsertEmptyItem inserts an item of size zeroed bytes; p, which must be empty, points at it,
// write-locked. EEXIST when the key exists; the path is empty after an error.
func (f *Forest) InsertEmptyItem(t *sched.Task, tr *Trans, r *Root, p *Path, key format.Key, size int) error {
	if err := f.searchNew(t, tr, r, key, p, size+format.ItemHeaderSize); err != nil {
		return err
	}
	keys, sizes := [1]format.Key{key}, [1]int{size}
	t.Spend(cost.Item, 1)
	f.setupItems(t, p, keys[:], sizes[:])
	return nil
}

// InsertHere inserts an item of size zeroed bytes into the path's leaf, without a search of its
// own: ok says that the leaf is write-locked and has room. The path points at the item then, and
// only the leaf is locked.
//
// Models the insertion at the end of fs/btrfs/file.c:btrfs_drop_extents().
//
// Preconditions:
//   - The place of key is in the path's leaf, and the path comes from a search with insLen < 0: in
//     slot 0 the parents' keys change as well.
func (f *Forest) InsertHere(t *sched.Task, p *Path, key format.Key, size int) (ok bool) {
	if p.Nodes[0] == nil || p.locks[0] != lockWrite || p.Leaf().LeafFreeSpace() < size+format.ItemHeaderSize {
		return false
	}
	p.Slots[0], _ = searchNode(p.Leaf(), key)
	t.Spend(cost.Item, 1)
	keys, sizes := [1]format.Key{key}, [1]int{size}
	f.setupItems(t, p, keys[:], sizes[:])
	return true
}

// searchNew makes room at the place of a key that does not exist.
func (f *Forest) searchNew(t *sched.Task, tr *Trans, r *Root, key format.Key, p *Path, insLen int) error {
	p.newOnly = true
	found, err := f.SearchSlot(t, tr, r, key, p, insLen, true)
	p.newOnly = false
	if err == nil && found {
		p.Release(t)
		err = errno.EEXIST
	}
	return err
}

// InsertItem inserts an item. EEXIST when the key exists.
func (f *Forest) InsertItem(t *sched.Task, tr *Trans, r *Root, key format.Key, data []byte) error {
	var p Path
	if err := f.InsertEmptyItem(t, tr, r, &p, key, len(data)); err != nil {
		return err
	}
	copy(p.Item(), data)
	p.Release(t)
	return nil
}

// InsertEmptyItems inserts a batch that fits one leaf; p points at the first item, and the others
// follow in the same leaf. EEXIST when the first key exists; the path is empty after an error.
//
// Models fs/btrfs/ctree.c:btrfs_insert_empty_items().
func (f *Forest) InsertEmptyItems(t *sched.Task, tr *Trans, r *Root, p *Path, batch Batch) error {
	if len(batch.Keys) == 0 || len(batch.Keys) != len(batch.Sizes) {
		panic(fmt.Sprintf("ctree: batch of %d keys and %d sizes", len(batch.Keys), len(batch.Sizes)))
	}
	need := 0
	for i, s := range batch.Sizes {
		need += s + format.ItemHeaderSize
		if i > 0 && !batch.Keys[i-1].Less(batch.Keys[i]) {
			panic(fmt.Sprintf("ctree: batch has %v before %v", batch.Keys[i-1], batch.Keys[i]))
		}
	}
	if err := f.searchNew(t, tr, r, batch.Keys[0], p, need); err != nil {
		return err
	}
	t.Spend(cost.Item, len(batch.Keys))
	f.setupItems(t, p, batch.Keys, batch.Sizes)
	return nil
}

// DelItems deletes nr items from slot on of the path's leaf. A leaf that becomes empty is freed,
// one that becomes small gives its items to its neighbours if they take them all. Afterwards the
// path is empty when the leaf is gone; otherwise it is held, but points at what happens to be at
// its slot now.
//
// Models fs/btrfs/ctree.c:btrfs_del_items().
//
// Preconditions:
//   - The path comes from a search with insLen < 0, or one that keeps its locks.
func (f *Forest) DelItems(t *sched.Task, tr *Trans, r *Root, p *Path, slot, nr int) error {
	t.Spend(cost.Item, nr)
	leaf := p.mustHold(0, "a delete")
	n := leaf.Node
	have := n.Nritems()
	if slot < 0 || nr <= 0 || slot+nr > have {
		panic(fmt.Sprintf("ctree: delete %d items from slot %d of block %d, which has %d", nr, slot, n.Bytenr(), have))
	}
	if !leaf.madeBy(tr) {
		panic(fmt.Sprintf("ctree: delete from block %d generation %d in transaction %d", n.Bytenr(), leaf.generation, tr.ID))
	}
	p.step(t, nr)
	rest, size := have-slot-nr, 0
	if rest > 0 || tr.Leaves.SumAlways {
		size = p.sizes(t, tr, slot, nr)
	}
	if rest > 0 {
		low := n.LeafDataEnd()
		leaf.count(t, sched.LogShifted, n.ItemOffset(slot+nr-1)-low+rest*format.ItemHeaderSize)
		copy(data(n, low+size, itemEnd(n, slot)), data(n, low, n.ItemOffset(slot+nr-1)))
		copy(heads(n, slot, have-nr), heads(n, slot+nr, have))
		shiftOffsets(n, slot, have-nr, size)
	}
	n.SetNritems(have - nr)
	if have == nr {
		if p.top == 0 {
			return nil
		}
		leaf.refs.Add(1)
		return f.delLeaf(t, tr, r, p, leaf, p.Slots[1])
	}
	if slot == 0 {
		p.fixLowKeys(n.Key(0), 1)
	}
	used := spaceUsed(n, 0, have-nr)
	small := f.dataMax / 3
	if tr.Leaves.Small > 0 {
		small = f.dataMax * tr.Leaves.Small / 100
	}
	if used >= small || p.top == 0 {
		return nil
	}
	leaf.count(t, sched.LogSmall, 1)
	// Nearly empty: try to get rid of the leaf. The pushes may move the path to a neighbour and let
	// the leaf go: keep a reference, and lock it again then.
	leaf.refs.Add(1)
	uslot := p.Slots[1]
	least, need := 0, format.ItemHeaderSize+n.ItemSize(0)
	if tr.Leaves.PushByte {
		least, need = 1, 1
	}
	_, err := f.pushLeafLeft(t, tr, r, p, least, need, true, math.MaxInt)
	if err == nil && p.Nodes[0] == leaf && n.Nritems() > 0 {
		// All or nothing: there is no use in a leaf with still fewer items.
		if need = spaceUsed(n, 0, n.Nritems()); tr.Leaves.PushByte {
			need = 1
		}
		_, err = f.pushLeafRight(t, tr, r, p, least, need, true, 0)
	}
	if errors.Is(err, errno.ENOSPC) {
		// No room for the copy of a neighbour. The leaf stays as it is.
		err = nil
	}
	if n.Nritems() > 0 {
		leaf.Put()
		return err
	}
	leaf.count(t, sched.LogEmptied, 1)
	if e := f.delLeaf(t, tr, r, p, leaf, uslot); err == nil {
		err = e
	}
	return err
}

// sizes adds up the data of nr items from slot on, one after the other as the kernel does. Models
// btrfs_del_items(), before and since 0cae23b66a5f.
func (p *Path) sizes(t *sched.Task, tr *Trans, slot, nr int) (sum int) {
	for i := range nr {
		sum += p.Leaf().ItemSize(slot + i)
	}
	if c := p.Nodes[0].logCounts(t); c != nil {
		c.N[sched.LogSums] += int64(nr)
		p.Touch(t, nr)
	}
	return sum
}

// delLeaf frees an empty leaf, to which uslot of the path's level-1 node points, and releases the
// path. leaf has a reference besides the path's, which is put.
//
// Models fs/btrfs/ctree.c:btrfs_del_leaf().
func (f *Forest) delLeaf(t *sched.Task, tr *Trans, r *Root, p *Path, leaf *Buffer, uslot int) error {
	p.Slots[1] = uslot
	p.delPtr(1, uslot)
	if p.Nodes[0] == leaf {
		// The path's lock and the extra reference go to freeBlock.
		p.letGo(t, 0)
		p.Release(t)
	} else {
		p.Release(t)
		// Nobody can reach the leaf any more; a task that still waits for its lock finds it empty.
		leaf.Lock(t)
	}
	return f.freeBlock(t, tr, r, leaf, true)
}

// ExtendItem adds zeroed bytes at the end of the item the path points at. The search made room:
// insLen with ForExtension.
//
// Models fs/btrfs/ctree.c:btrfs_extend_item().
func (f *Forest) ExtendItem(t *sched.Task, p *Path, by int) {
	n := p.mustHold(0, "extending an item").Node
	slot, nr := p.Slots[0], n.Nritems()
	if free := n.LeafFreeSpace(); free < by || slot >= nr {
		panic(fmt.Sprintf("ctree: extend slot %d of %d in block %d by %d bytes: free %d", slot, nr, n.Bytenr(), by, free))
	}
	low, end := n.LeafDataEnd(), itemEnd(n, slot)
	copy(data(n, low-by, end-by), data(n, low, end))
	clear(data(n, end-by, end))
	shiftOffsets(n, slot, nr, -by)
	n.SetItemSize(slot, n.ItemSize(slot)+by)
}

// TruncateItem makes the item the path points at newSize bytes: it drops bytes from the end, or
// with !fromEnd from the front. The key stays.
//
// Models fs/btrfs/ctree.c:btrfs_truncate_item(). Difference: with !fromEnd the caller sets the new
// key (SetItemKeySafe).
func (f *Forest) TruncateItem(t *sched.Task, p *Path, newSize int, fromEnd bool) {
	n := p.mustHold(0, "truncating an item").Node
	slot, nr := p.Slots[0], n.Nritems()
	size := n.ItemSize(slot)
	if newSize > size || newSize < 0 {
		panic(fmt.Sprintf("ctree: truncate item %v of %d bytes to %d", n.Key(slot), size, newSize))
	}
	by := size - newSize
	low, start := n.LeafDataEnd(), n.ItemOffset(slot)
	keep := start
	if fromEnd {
		keep += newSize
	}
	copy(data(n, low+by, keep+by), data(n, low, keep))
	shiftOffsets(n, slot, nr, by)
	n.SetItemSize(slot, newSize)
}

// SetItemKeySafe changes the key of the item the path points at; the new key has its place between
// the neighbours'.
//
// Models fs/btrfs/ctree.c:btrfs_set_item_key_safe().
//
// Preconditions:
//   - The path comes from a search with insLen != 0: in slot 0 the parents' keys change as well.
func (f *Forest) SetItemKeySafe(t *sched.Task, p *Path, newKey format.Key) {
	n := p.mustHold(0, "a new key").Node
	slot, nr := p.Slots[0], n.Nritems()
	if slot > 0 && !n.Key(slot-1).Less(newKey) || slot+1 < nr && !newKey.Less(n.Key(slot+1)) {
		panic(fmt.Sprintf("ctree: new key %v for slot %d of block %d, now %v, breaks the order", newKey, slot, n.Bytenr(), n.Key(slot)))
	}
	n.SetKey(slot, newKey)
	if slot == 0 {
		p.fixLowKeys(newKey, 1)
	}
}

// DuplicateItem inserts a copy of the item the path points at under newKey, right after it; the
// path points at the copy. EAGAIN when the item changed while the path was let go to make room: the
// caller releases and searches again.
//
// Models fs/btrfs/file-item.c and ctree.c:btrfs_duplicate_item(), setup_leaf_for_split().
//
// Preconditions:
//   - The leaf is write-locked and of this transaction.
func (f *Forest) DuplicateItem(t *sched.Task, tr *Trans, r *Root, p *Path, newKey format.Key) error {
	n := p.mustHold(0, "duplicating an item").Node
	size := n.ItemSize(p.Slots[0])
	need := size + format.ItemHeaderSize
	if n.LeafFreeSpace() < need {
		key := p.Key()
		var room [64]byte
		old := append(room[:0], p.Item()...)
		keep, ext := p.KeepLocks, p.ForExtension
		p.Release(t)
		p.KeepLocks, p.forSplit = true, true
		found, err := f.SearchSlot(t, tr, r, key, p, 0, true)
		p.KeepLocks, p.forSplit, p.ForExtension = keep, false, ext
		if err != nil {
			return err
		}
		if !found || !bytes.Equal(p.Item(), old) {
			return errno.EAGAIN
		}
		if p.Leaf().LeafFreeSpace() < need {
			if err := f.splitLeaf(t, tr, r, key, p, need, true); err != nil {
				p.Release(t)
				return err
			}
		}
		p.unlockSafe(t, 1)
		n = p.Leaf()
	}
	if key := p.Key(); !key.Less(newKey) {
		panic(fmt.Sprintf("ctree: duplicate item %v as %v", key, newKey))
	}
	p.Slots[0]++
	keys, sizes := [1]format.Key{newKey}, [1]int{size}
	f.setupItems(t, p, keys[:], sizes[:])
	copy(n.Item(p.Slots[0]), n.Item(p.Slots[0]-1))
	return nil
}

// DirtyLeaf panics unless the path's leaf may be changed in place. There is nothing else to do: a
// block is dirty from the moment it is made.
func (f *Forest) DirtyLeaf(t *sched.Task, tr *Trans, p *Path) {
	if b := p.mustHold(0, "a change"); !b.madeBy(tr) {
		panic(fmt.Sprintf("ctree: change of block %d generation %d in transaction %d", b.Bytenr, b.generation, tr.ID))
	}
}

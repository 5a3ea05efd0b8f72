package ctree

import (
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/kiocb"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/sched"
	"btrlab/internal/sched/cost"
)

// How a path holds a node.
const (
	lockNone uint8 = iota
	lockRead
	lockWrite
)

func (b *Buffer) unlock(t *sched.Task, kind uint8) {
	switch kind {
	case lockRead:
		b.runlock(t)
	case lockWrite:
		b.Unlock(t)
	}
}

// Path is a way from the root to a slot of a leaf: the nodes with a reference each, and locks on
// some of them, the leaf's always. The zero value is ready; a path can be used again after Release.
//
// Models struct btrfs_path.
type Path struct {
	Nodes [format.MaxLevel]*Buffer
	Slots [format.MaxLevel]int

	// LowestLevel ends the search at that level instead of at a leaf.
	LowestLevel int
	// KeepLocks keeps a parent locked where the path goes through its first or last slot.
	KeepLocks bool
	// Nowait makes a read search return EAGAIN (kiocb.AgainTree, AgainTreeRead) instead of sleeping
	// for a lock or the device.
	Nowait bool
	// ForExtension says that insLen has no item header in it: an item that exists is to grow.
	ForExtension bool

	locks    [format.MaxLevel]uint8
	top      int     // highest level in use
	forSplit bool    // keep the whole path locked and full nodes split, for DuplicateItem
	newOnly  bool    // the key must not exist: make no room beside it
	readHeld bool    // read with the path locked: a read without the locks failed
	pin      *Buffer // keeps what was just read in the cache until the search has come to it again
}

// Leaf is the leaf the path points into.
func (p *Path) Leaf() format.Node { return p.Nodes[0].Node }

// Slot is the leaf's slot; it may be the number of items, one after the last.
func (p *Path) Slot() int { return p.Slots[0] }

// Key is the key of the item the path points at.
func (p *Path) Key() format.Key { return p.Nodes[0].Node.Key(p.Slots[0]) }

// Item is the data of the item the path points at: a window into the leaf, good while the path is
// held.
func (p *Path) Item() []byte { return p.Nodes[0].Node.Item(p.Slots[0]) }

// Valid reports whether the path points at an item: it is held, and its slot is not past the leaf's
// end.
func (p *Path) Valid() bool {
	return p.Nodes[0] != nil && p.Slots[0] < p.Nodes[0].Node.Nritems()
}

// Release lets all locks and nodes go. It may be called on an empty path.
func (p *Path) Release(t *sched.Task) {
	for i := 0; i <= p.top; i++ {
		b := p.Nodes[i]
		p.Slots[i] = 0
		if b == nil {
			continue
		}
		if k := p.locks[i]; k != lockNone {
			p.letGo(t, i)
			b.unlock(t, k)
		}
		p.Nodes[i] = nil
		b.Put()
	}
	p.top = 0
}

// unlockAt lets the lock of a level go; the node stays.
func (p *Path) unlockAt(t *sched.Task, level int) {
	if k := p.locks[level]; k != lockNone {
		p.letGo(t, level)
		p.Nodes[level].unlock(t, k)
	}
}

// unlockSafe lets the locks from level on upward go.
//
// Models fs/btrfs/ctree.c:btrfs_unlock_up_safe().
func (p *Path) unlockSafe(t *sched.Task, level int) {
	for i := level; i <= p.top; i++ {
		if p.Nodes[i] != nil {
			p.unlockAt(t, i)
		}
	}
}

// replace makes b, which is write-locked and has a reference, the path's node at its level; the old
// one is unlocked and put.
func (p *Path) replace(t *sched.Task, b *Buffer, slot int) {
	old := p.Nodes[b.level]
	old.Unlock(t)
	old.Put()
	p.Nodes[b.level], p.Slots[b.level] = b, slot
	// It was locked as a neighbour; now it may have neighbours of its own locked beside it.
	lockdep.Resub(t, &b.lock, lockSub(b.level, nestNormal))
}

// unlockUp lets go the locks above level that the path no longer needs: not below lowestUnlock, and
// not the parent of a node that the path enters by slot 0, whose key may change. Returns the write
// level, lower when write-locked nodes above minLevel were let go.
//
// Models fs/btrfs/ctree.c:unlock_up().
func (p *Path) unlockUp(t *sched.Task, level, lowestUnlock, minLevel, writeLevel int) int {
	skip, check := level, true
	for i := level; i <= p.top && p.Nodes[i] != nil && p.locks[i] != lockNone; i++ {
		if check {
			if p.Slots[i] == 0 {
				skip = i + 1
				continue
			}
			if p.KeepLocks && p.Slots[i] >= p.Nodes[i].Node.Nritems()-1 {
				skip = i + 1
				continue
			}
		}
		if i >= lowestUnlock && i > skip {
			check = false
			p.unlockAt(t, i)
			if i > minLevel && i <= writeLevel {
				writeLevel = i - 1
			}
		}
	}
	return writeLevel
}

// SearchSlot looks for key in the tree and points p, which must be empty, at it, or at where it
// would be: found is false then, and the slot may be one after the leaf's last item.
//
// With cow every node of the path that this transaction has not made is copied, and the leaf is
// write-locked. insLen says what for: 0 changes an item in place; above 0 makes room for that many
// bytes, item headers included, at the slot, splitting what is full on the way; below 0 is for
// deleting, and joins what is nearly empty on the way. On an error the path is empty.
//
// Models fs/btrfs/ctree.c:btrfs_search_slot(); write locks by level as in labs/reference 6.4.
//
// Preconditions:
//   - The task holds no node of a tree of the same class.
//   - insLen != 0 only with cow; Nowait and LowestLevel only without insLen.
func (f *Forest) SearchSlot(t *sched.Task, tr *Trans, r *Root, key format.Key, p *Path, insLen int, cow bool) (found bool, err error) {
	if p.Nodes[0] != nil || !cow && insLen != 0 || p.LowestLevel > 0 && insLen > 0 || cow && p.Nowait {
		panic(fmt.Sprintf("ctree: search tree %d: path in use %v, insLen %d, cow %v, lowest level %d, nowait %v",
			int64(r.ID), p.Nodes[0] != nil, insLen, cow, p.LowestLevel, p.Nowait))
	}
	found, err = f.search(t, tr, r, key, p, insLen, cow)
	if p.pin != nil {
		p.pin.Put()
		p.pin = nil
	}
	p.readHeld = false
	if err != nil {
		p.Release(t)
	}
	return found, err
}

// writeLevel is the level up to which a search locks nodes for writing at first; -1 is none.
func (p *Path) writeLevel(insLen int, cow bool) int {
	switch {
	case !cow:
		return -1
	case p.KeepLocks || p.LowestLevel > 0:
		return format.MaxLevel
	case insLen < 0:
		// Removing an item may take pointers out two levels up.
		return 2
	case insLen > 0:
		// The parent's keys may change.
		return 1
	}
	return 0
}

// cowAt puts a copy of the path's block of a level in its place. The block is locked for writing,
// and so is its parent.
func (f *Forest) cowAt(t *sched.Task, tr *Trans, r *Root, p *Path, level int) error {
	var parent *Buffer
	slot := 0
	if level < p.top {
		parent, slot = p.Nodes[level+1], p.Slots[level+1]
	}
	c, err := f.cow(t, tr, r, p.Nodes[level], parent, slot)
	if c != nil {
		p.Nodes[level] = c
	}
	return err
}

func (f *Forest) search(t *sched.Task, tr *Trans, r *Root, key format.Key, p *Path, insLen int, cow bool) (bool, error) {
	t.Count(sched.CountSearches)
	if r.ID == format.TREE_LOG_OBJECTID {
		t.CountLog(sched.LogSearches, 1)
	}
	lowestUnlock := 1
	if insLen < 0 {
		lowestUnlock = 2
	}
	minLevel := p.writeLevel(insLen, cow)
	writeLevel := minLevel

again:
	if err := r.lockRoot(t, p, writeLevel); err != nil {
		return false, err
	}
	level := p.top
	for {
		t.Spend(cost.Search, 1)
		p.step(t, 1)
		b := p.Nodes[level]
		if cow && shouldCOW(tr, r, b) {
			// A copy needs the write lock of the block and of its parent.
			if level > writeLevel || level < p.top && level+1 > writeLevel {
				writeLevel = level + 1
				p.Release(t)
				goto again
			}
			if err := f.cowAt(t, tr, r, p, level); err != nil {
				return false, err
			}
			b = p.Nodes[level]
		}
		// While b is locked, nothing in it changes, so the parent can go before the search in b. An
		// insert or delete may change slot 0 and the parent's key with it: then the parent stays
		// until the slot is known.
		if insLen == 0 && !p.KeepLocks && level < p.top {
			p.unlockAt(t, level+1)
		}
		if level == 0 {
			found, err := f.searchLeaf(t, tr, r, key, p, insLen)
			if err == nil && !p.forSplit {
				p.unlockUp(t, 0, lowestUnlock, minLevel, -1)
			}
			return found, err
		}
		slot, found := searchNode(b.Node, key)
		before := false // the key lies before the pointer in slot
		if !found && slot > 0 {
			slot--
			before = true
		}
		p.Slots[level] = slot
		if insLen != 0 || p.forSplit {
			retry, err := f.setupNode(t, tr, r, p, level, insLen, &writeLevel)
			if err != nil {
				return false, err
			}
			if retry {
				p.Release(t)
				goto again
			}
			b, slot = p.Nodes[level], p.Slots[level]
			// Slot 0 is special: when its key changes, so does the parent's.
			if slot == 0 && insLen != 0 && writeLevel < level+1 && level < p.top {
				writeLevel = level + 1
				p.Release(t)
				goto again
			}
		}
		writeLevel = p.unlockUp(t, level, lowestUnlock, minLevel, writeLevel)
		if level == p.LowestLevel {
			if before {
				p.Slots[level]++
			}
			return found, nil
		}
		c, err := f.childOf(t, r, p, b, slot)
		if err != nil {
			return false, err
		}
		if c == nil {
			goto again
		}
		level--
		p.Nodes[level] = c
		if level <= writeLevel {
			c.Lock(t)
			p.holds(t, level)
		} else if err := p.readLock(t, c); err != nil {
			return false, err
		}
	}
}

// readLock locks c, the path's node at its level, for reading.
func (p *Path) readLock(t *sched.Task, c *Buffer) error {
	if p.Nowait {
		if !c.tryRLock(t) {
			return kiocb.AgainTree
		}
	} else {
		c.rlock(t)
	}
	p.locks[c.level] = lockRead
	return nil
}

// childOf returns the child of b in slot with a reference, not locked. When it is not in memory the
// path is released, the child is read and (nil, nil) says: search again.
//
// Models fs/btrfs/ctree.c:read_block_for_search().
func (f *Forest) childOf(t *sched.Task, r *Root, p *Path, b *Buffer, slot int) (*Buffer, error) {
	c := f.cache.find(b.Node.Blockptr(slot))
	if c != nil && c.state.Load() == stateUptodate && c.level == b.level-1 && c.generation == b.Node.PtrGeneration(slot) {
		return c, nil
	}
	if c != nil {
		c.Put()
	}
	return f.readChild(t, r, p, b, slot)
}

func (f *Forest) readChild(t *sched.Task, r *Root, p *Path, b *Buffer, slot int) (*Buffer, error) {
	if p.Nowait {
		return nil, kiocb.AgainTreeRead
	}
	bytenr := b.Node.Blockptr(slot)
	key := b.Node.Key(slot)
	want := Check{Level: b.level - 1, Generation: b.Node.PtrGeneration(slot), Owner: r.ID, FirstKey: &key}
	if p.readHeld {
		return f.ReadBlock(t, bytenr, want)
	}
	// Without the locks the block may be freed and its place used again while we read it: the error
	// says nothing then. Search again and, if it is still needed, read it with the path locked.
	p.Release(t)
	c, err := f.ReadBlock(t, bytenr, want)
	if err != nil {
		p.readHeld = true
		return nil, nil
	}
	if p.pin != nil {
		p.pin.Put()
	}
	p.pin = c
	return nil, nil
}

// neighbour returns the child of parent in slot, read if need be; the path stays locked.
//
// Models fs/btrfs/ctree.c:btrfs_read_node_slot().
func (f *Forest) neighbour(t *sched.Task, r *Root, parent *Buffer, slot int) (*Buffer, error) {
	c := f.cache.find(parent.Node.Blockptr(slot))
	if c != nil {
		if c.state.Load() == stateUptodate && c.level == parent.level-1 && c.generation == parent.Node.PtrGeneration(slot) {
			return c, nil
		}
		c.Put()
	}
	key := parent.Node.Key(slot)
	return f.ReadBlock(t, parent.Node.Blockptr(slot),
		Check{Level: parent.level - 1, Generation: parent.Node.PtrGeneration(slot), Owner: r.ID, FirstKey: &key})
}

// setupNode splits or balances the path's node at level before the search goes below it. retry says
// that the path must be released and the search begun again, with the write level that was raised
// if it was too low.
//
// Models fs/btrfs/ctree.c:setup_nodes_for_search().
func (f *Forest) setupNode(t *sched.Task, tr *Trans, r *Root, p *Path, level, insLen int, writeLevel *int) (retry bool, err error) {
	nr := p.Nodes[level].Node.Nritems()
	switch {
	case (p.forSplit || insLen > 0) && nr >= f.ptrsMax-3:
		if *writeLevel < level+1 {
			*writeLevel = level + 1
			return true, nil
		}
		return false, f.splitNode(t, tr, r, p, level)
	case insLen < 0 && nr < f.ptrsMax/2:
		if *writeLevel < level+1 {
			*writeLevel = level + 1
			return true, nil
		}
		if err := f.balanceLevel(t, tr, r, p, level); err != nil {
			return false, err
		}
		// nil: the root had one child, which is the root now.
		return p.Nodes[level] == nil, nil
	}
	return false, nil
}

// searchLeaf finds the key's slot in the leaf and makes room for insLen bytes there.
//
// Models fs/btrfs/ctree.c:search_leaf().
func (f *Forest) searchLeaf(t *sched.Task, tr *Trans, r *Root, key format.Key, p *Path, insLen int) (bool, error) {
	n := p.Nodes[0].Node
	free := 0
	if insLen > 0 {
		free = n.LeafFreeSpace()
		// There is room and the slot is not the first: the parents are not needed, let others have
		// them.
		if p.top > 0 && p.locks[1] != lockNone && free >= insLen && !p.KeepLocks && n.Nritems() > 0 && n.Key(0).Less(key) {
			p.unlockSafe(t, 1)
		}
	}
	slot, found := searchNode(n, key)
	p.Slots[0] = slot
	if insLen > 0 {
		if found && p.newOnly {
			return true, nil
		}
		if found && !p.ForExtension {
			// The item grows; it has its header.
			insLen -= format.ItemHeaderSize
		}
		if free < insLen {
			return found, f.splitLeaf(t, tr, r, key, p, insLen, found)
		}
	}
	return found, nil
}

// SearchForward points p at the first item that is not before key; more is false when there is
// none, and the path is empty then. The path is read-locked.
//
// Models fs/btrfs/ctree.c:btrfs_search_slot_for_read(), find_higher.
func (f *Forest) SearchForward(t *sched.Task, r *Root, key format.Key, p *Path) (more bool, err error) {
	if _, err = f.SearchSlot(t, nil, r, key, p, 0, false); err != nil {
		return false, err
	}
	if p.Slots[0] < p.Nodes[0].Node.Nritems() {
		return true, nil
	}
	// On the way to the next leaf nothing is locked: an item that came in meanwhile may lie before
	// key.
	for more, err = f.NextLeaf(t, r, p); more && p.Key().Less(key); {
		more, err = f.NextItem(t, r, p)
	}
	if !more {
		p.Release(t)
	}
	return more, err
}

// SearchBackward points p at the last item that is not after key; more is false when there is none,
// and the path is empty then. The path is read-locked.
func (f *Forest) SearchBackward(t *sched.Task, r *Root, key format.Key, p *Path) (more bool, err error) {
	found, err := f.SearchSlot(t, nil, r, key, p, 0, false)
	if err != nil || found {
		return found, err
	}
	// Every item before the slot is before key, and a search comes to slot 0 in the leftmost leaf
	// only.
	if p.Slots[0] > 0 {
		p.Slots[0]--
		return true, nil
	}
	p.Release(t)
	return false, nil
}

// NextLeaf points p at the first item after the leaf's last one. However the path was locked
// before, it is read-locked after: a caller that wants to change the item takes its key, releases
// and searches again. When there is no such item, more is false and the path is at the end of the
// last leaf. On an error the path is empty.
//
// Models fs/btrfs/ctree.c:btrfs_next_leaf().
func (f *Forest) NextLeaf(t *sched.Task, r *Root, p *Path) (more bool, err error) {
	nr := p.Nodes[0].Node.Nritems()
	if nr == 0 {
		return false, nil
	}
	key := p.Nodes[0].Node.Key(nr - 1)
	keep, lowest := p.KeepLocks, p.LowestLevel
	p.KeepLocks, p.LowestLevel = true, 0
	more, err = f.nextLeaf(t, r, key, p)
	p.KeepLocks, p.LowestLevel = keep, lowest
	if p.pin != nil {
		p.pin.Put()
		p.pin = nil
	}
	p.readHeld = false
	if err != nil {
		p.Release(t)
		return false, err
	}
	p.unlockSafe(t, 1)
	return more, nil
}

func (f *Forest) nextLeaf(t *sched.Task, r *Root, key format.Key, p *Path) (bool, error) {
again:
	p.Release(t)
	found, err := f.search(t, nil, r, key, p, 0, false)
	if err != nil {
		return false, err
	}
	// While nothing was locked, items may have been added after the key, or the key's item deleted
	// and its place taken by one with a greater key.
	nr := p.Nodes[0].Node.Nritems()
	if nr > 0 && p.Slots[0] < nr-1 {
		if found {
			p.Slots[0]++
		}
		return true, nil
	}
	if nr > 0 && !found && p.Slots[0] == nr-1 {
		return true, nil
	}
	level := 1
	for ; level <= p.top; level++ {
		if p.Slots[level]+1 < p.Nodes[level].Node.Nritems() {
			break
		}
	}
	if level > p.top {
		p.Slots[0] = nr
		return false, nil
	}
	// Children are locked after their parent: let the nodes below go before the next ones are
	// locked.
	for i := range level {
		p.unlockAt(t, i)
		p.Nodes[i].Put()
		p.Nodes[i] = nil
	}
	p.Slots[level]++
	for ; level > 0; level-- {
		c, err := f.childOf(t, r, p, p.Nodes[level], p.Slots[level])
		if err != nil {
			return false, err
		}
		if c == nil {
			goto again
		}
		p.Nodes[level-1], p.Slots[level-1] = c, 0
		if err := p.readLock(t, c); err != nil {
			return false, err
		}
	}
	return true, nil
}

// PrevLeaf points p at the last item before the leaf's first one, read-locked. When there is no
// such item, more is false and the path is empty, as after an error.
//
// Models fs/btrfs/ctree.c:btrfs_prev_leaf(). Difference: the path comes to the item itself, not to
// its leaf.
func (f *Forest) PrevLeaf(t *sched.Task, r *Root, p *Path) (more bool, err error) {
	if p.Nodes[0].Node.Nritems() == 0 {
		p.Release(t)
		return false, nil
	}
	key := p.Nodes[0].Node.Key(0)
	p.Release(t)
	if key == (format.Key{}) {
		return false, nil
	}
	return f.SearchBackward(t, r, prevKey(key), p)
}

// prevKey is the greatest key before k.
func prevKey(k format.Key) format.Key {
	if k.Offset--; k.Offset == ^uint64(0) {
		if k.Type--; k.Type == 0xff {
			k.Objectid--
		}
	}
	return k
}

// NextItem points p at the item after the one it points at. Within the leaf the path keeps its
// locks; else as NextLeaf.
func (f *Forest) NextItem(t *sched.Task, r *Root, p *Path) (more bool, err error) {
	if p.Slots[0]+1 < p.Nodes[0].Node.Nritems() {
		p.Slots[0]++
		return true, nil
	}
	return f.NextLeaf(t, r, p)
}

// PrevItem points p at the item before the one it points at. Within the leaf the path keeps its
// locks; else as PrevLeaf.
func (f *Forest) PrevItem(t *sched.Task, r *Root, p *Path) (more bool, err error) {
	if p.Slots[0] > 0 {
		p.Slots[0]--
		return true, nil
	}
	return f.PrevLeaf(t, r, p)
}

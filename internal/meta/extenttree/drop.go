package extenttree

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// DropProgress says how far a tree is dropped: at Level all that comes before Key is. The zero
// value is the start. Models drop_progress and drop_level of struct btrfs_root_item.
type DropProgress struct {
	Key   format.Key
	Level int
}

// errMore ends a walk that has used up its budget.
var errMore = errors.New("more to drop")

// drop is the walk of DropTree.
type drop struct {
	e      *ExtentTree
	t      *sched.Task
	r      *ctree.Root
	at     DropProgress
	budget int // references that may still be dropped
}

// DropTree drops the references of the deleted subvolume tree, or relocation tree, r to its blocks
// and data, from progress at on and at most about budget of them. What no other tree has is freed;
// no block of r changes. Done says that nothing of r is left; else it returns where to go on. After
// an error the transaction must be aborted.
//
// What r shares with another tree stays, but if r is its owner then everything it points at has
// references by r, a tree that will be gone: they become references by parent, down to where
// another tree is the owner.
//
// Models btrfs_drop_snapshot() with update_ref. Difference: what is shared becomes references by
// parent in one transaction.
func (e *ExtentTree) DropTree(t *sched.Task, tr *ctree.Trans, r *ctree.Root, at DropProgress, budget int) (next DropProgress, done bool, err error) {
	d := &drop{e: e, t: t, r: r, at: at, budget: budget}
	bytenr, level, gen := r.Pointer()
	b, err := e.forest.ReadBlock(t, bytenr, ctree.Check{Level: level, Generation: gen, Owner: d.owner()})
	if err != nil {
		return at, false, err
	}
	defer b.Put()
	b.Lock(t)
	defer b.Unlock(t)
	_, full, err := e.lookupBlock(t, format.Logical(bytenr), level)
	if err != nil {
		return at, false, err
	}
	err = d.node(b, full, at != DropProgress{})
	if errors.Is(err, errMore) {
		return d.at, false, nil
	}
	if err != nil {
		return at, false, err
	}
	root := byTree(r.ID)
	if r.ID == format.TREE_RELOC_OBJECTID {
		root = byParent(b) // it is its own
	}
	d.free(b, root)
	return DropProgress{}, true, nil
}

// owner is the tree that the blocks of r are checked for: the blocks of a relocation tree say that
// they belong to the subvolume that it is of.
func (d *drop) owner() uint64 {
	if d.r.ID == format.TREE_RELOC_OBJECTID {
		return 0
	}
	return d.r.ID
}

// refsOf is the kind of reference that b has to what it points at: by the tree in its header, which
// is r but in a relocation tree.
func (d *drop) refsOf(b *ctree.Buffer, full bool) backRef {
	if full {
		return byParent(b)
	}
	return byTree(b.Owner())
}

// free queues the drop of a reference to b.
func (d *drop) free(b *ctree.Buffer, ref backRef) {
	d.e.addRef(d.t, head{bytenr: format.Logical(b.Bytenr), num: d.e.nodeSize, level: uint8(b.Level()), owner: b.Owner()}, ref, -1)
	d.budget--
}

// child reads and locks what the slot of b points at.
func (d *drop) child(b *ctree.Buffer, slot int) (*ctree.Buffer, error) {
	key := b.Node.Key(slot)
	c, err := d.e.forest.ReadBlock(d.t, b.Node.Blockptr(slot), ctree.Check{Level: b.Level() - 1, Generation: b.Node.PtrGeneration(slot),
		Owner: d.owner(), FirstKey: &key})
	if err != nil {
		return nil, err
	}
	c.Lock(d.t)
	return c, nil
}

// node drops what b, which is r's alone, points at; resume says that the walk begins in it. Models
// walk_down_tree() and walk_up_proc().
func (d *drop) node(b *ctree.Buffer, full, resume bool) error {
	ref := d.refsOf(b, full)
	level := b.Level()
	if level == 0 {
		d.budget -= b.Node.Nritems()
		return d.e.modRefs(d.t, b, ref, -1)
	}
	first := 0
	if resume {
		slot, found := b.Node.Search(d.at.Key)
		if !found && slot > 0 {
			slot--
		}
		first = slot
	}
	for i := first; i < b.Node.Nritems(); i++ {
		inside := resume && i == first && level > d.at.Level
		if d.budget <= 0 && !inside {
			d.at = DropProgress{Key: b.Node.Key(i), Level: level}
			return errMore
		}
		if err := d.slot(b, i, ref, inside); err != nil {
			return err
		}
	}
	return nil
}

// slot drops the reference to the block in a slot of b, and if it is the last one, what the block
// points at.
func (d *drop) slot(b *ctree.Buffer, i int, ref backRef, resume bool) error {
	c, err := d.child(b, i)
	if err != nil {
		return err
	}
	defer c.Put()
	defer c.Unlock(d.t)
	refs, full, err := d.e.lookupBlock(d.t, format.Logical(c.Bytenr), c.Level())
	switch {
	case err != nil:
		return err
	case refs < 1 || resume && refs != 1:
		return fmt.Errorf("corrupt extent tree: tree block %d of deleted tree %d, bad refs, have %d want %s: %w", c.Bytenr,
			d.r.ID, refs, map[bool]string{false: "at least 1", true: "1"}[resume], errno.EUCLEAN)
	case refs > 1:
		if err = d.traceBelow(c); err == nil {
			err = d.byParents(c, full)
		}
	default:
		err = d.node(c, full, resume)
	}
	if err != nil {
		return err
	}
	d.free(c, ref)
	return nil
}

// byParents turns the references by tree r of what b and the blocks below it point at, as far as r
// is their owner, into references by parent. Models the UPDATE_BACKREF stage of walk_down_proc().
func (d *drop) byParents(b *ctree.Buffer, full bool) error {
	if b.Owner() != d.r.ID || full {
		return nil
	}
	if err := d.e.modRefs(d.t, b, byParent(b), 1); err != nil {
		return err
	}
	if err := d.e.modRefs(d.t, b, byTree(d.r.ID), -1); err != nil {
		return err
	}
	d.e.setFull(d.t, b)
	d.budget -= b.Node.Nritems()
	if b.Level() == 0 {
		return nil
	}
	for i := range b.Node.Nritems() {
		c, err := d.child(b, i)
		if err != nil {
			return err
		}
		_, full, err := d.e.lookupBlock(d.t, format.Logical(c.Bytenr), c.Level())
		if err == nil {
			err = d.byParents(c, full)
		}
		c.Unlock(d.t)
		c.Put()
		if err != nil {
			return err
		}
	}
	return nil
}

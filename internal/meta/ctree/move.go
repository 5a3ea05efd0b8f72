package ctree

import (
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// What a relocation does with the blocks of subvolumes: all parents of a block are moved with it,
// in one transaction, so what they share they share after it, too (package relocation).

// MoveBlock makes a copy of b, which no transaction that is running has made, at a new place of
// this transaction, with its items, level and owner, and gives it with a reference. It has the
// first reference that each new block has, by its owner; all others, and what becomes of b, are the
// caller's.
//
// With shared the copy says that it was relocated: though it is newer than the newest snapshot
// other trees may have it, and it has FULL_BACKREF, which the caller sees to.
//
// Models the copy of btrfs_force_cow_block() in a relocation tree.
//
// Preconditions: no other task uses the file system; after an error the transaction is aborted.
func (f *Forest) MoveBlock(t *sched.Task, tr *Trans, b *Buffer, shared bool) (*Buffer, error) {
	b.Lock(t)
	defer b.Unlock(t)
	c, err := f.newBlock(t, tr, &Root{ID: b.owner}, b.level, b.Bytenr, b.firstKey())
	if err != nil {
		return nil, err
	}
	c.Node.SetNritems(b.Node.Nritems())
	copy(c.Node[format.HeaderSize:], b.Node[format.HeaderSize:])
	if shared {
		c.Node.SetFlags(c.Node.Flags() | format.HeaderFlagReloc)
	}
	c.Unlock(t)
	return c, nil
}

// MovedRoot makes c, a copy by MoveBlock of the root node of r, the root node. Models
// btrfs_update_reloc_root().
func (f *Forest) MovedRoot(t *sched.Task, tr *Trans, r *Root, c *Buffer) {
	old := r.node.Load()
	old.tryGet()
	old.Lock(t)
	c.lockBeside(t, nestRight)
	r.setRoot(tr, c)
	c.Unlock(t)
	old.Unlock(t)
	old.Put()
}

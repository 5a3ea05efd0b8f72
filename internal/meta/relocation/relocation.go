// Package relocation empties block groups: every extent in a group is copied elsewhere, and what
// points at it points at the copy. A group that is empty is removed, and its place on the devices
// is free. Balance, the removal of a device, and a change of profile are made of that.
//
//	Group   the group becomes read-only; room for what is in it is made in others
//	  batch, until nothing is left, each one transaction:
//	    plan       reads some extents of the group, and by their back references what must change with
//	               them: leaves with file extents in moved data, and of a block of a subvolume all blocks
//	               above it, in every subvolume that has it, up to the roots
//	    copyData   copies data, by its checksums, to new extents
//	    moveBlocks copies the blocks of subvolumes, and changes the pointers in the copies
//	    rewrite    copies blocks of all other trees as any change does (SearchSlot)
//	    commit
//	  RemoveGroup
//
// What several trees share they share afterwards, too: a block is copied once, and every block that
// points at it is copied in the same transaction and points at the copy. So references move one to
// one: by a tree they stay by that tree, by a parent they become by the parent's copy.
//
// Models fs/btrfs/relocation.c: labs/reference 14. Difference: the kernel relocates while others
// change the trees. It makes a relocation tree, a snapshot of a subvolume, changes the pointers in
// that over many transactions, and then swaps its subtrees with the subvolume's, down to where they
// differ (merge_reloc_root()). Here nobody else is at work, so a batch needs no tree of its own:
// each commit is a whole state, and a crash leaves nothing to be merged or dropped.
package relocation

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/fstree"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/sched"
)

// Config is the file system, and what a Mover asks.
type Config struct {
	Trans *transaction.Manager
	Sums  *fstree.Csums // of the checksum tree
	// Subvol opens the tree of a subvolume; it stays open.
	Subvol func(t *sched.Task, id uint64) (*ctree.Root, error)
	// Forget, if set, is told that data lies elsewhere than inodes in memory may know.
	Forget func(t *sched.Task)
	// Stop, if set, is asked before each batch; when it is true Group ends with ErrStopped.
	Stop func() bool
}

// Mover empties block groups of one file system.
type Mover struct{ Config }

// ErrStopped is the end of a relocation that was told to stop.
var ErrStopped = errors.New("stopped")

// The most that a batch moves.
const (
	batchData   = 256 << 20 // bytes of data extents
	batchItems  = 4096      // data extents, or tree blocks, by their items
	batchBlocks = 8192      // tree blocks of subvolumes, those above them included, about
)

// Group empties the block group at logical and removes it. bytes is how much of it was moved.
//
// Errors: ENOSPC when there is no room for what is in it; of the device, and a bad checksum of data
// that no copy has right, with its address. The file system is at the last commit then, which may
// have moved a part, and the group takes allocations again.
//
// Models btrfs_relocate_chunk().
//
// Preconditions: nothing is dirty, no handle is open, and no other task uses the file system.
func (m *Mover) Group(t *sched.Task, logical format.Logical) (bytes uint64, err error) {
	e := m.Trans.Extents
	g := e.GroupAt(logical)
	span, typ, used := format.RangeOf(g.Start, g.Length), g.Flags&format.BlockGroupTypeMask, g.Used()
	if err := e.MakeRoom(t, typ, used, g.Start); err != nil {
		return 0, fmt.Errorf("move block group %d: %w", logical, err)
	}
	if err := m.commitNew(t); err != nil {
		return 0, err
	}
	e.SetReadonly(t, logical, true)
	defer func() {
		if err != nil && m.Trans.Aborted(t) == nil {
			e.SetReadonly(t, logical, false)
		}
	}()
	for last := format.Logical(0); ; {
		if m.Stop != nil && m.Stop() {
			return bytes, ErrStopped
		}
		first, n, err := m.batch(t, span)
		if err != nil {
			return bytes, fmt.Errorf("move block group %d: %w", logical, err)
		}
		if n == 0 {
			break
		}
		if first == last {
			return bytes, fmt.Errorf("move block group %d: the extent at %d stays: %w", logical, first, errno.EUCLEAN)
		}
		last = first
		bytes += n
	}
	err = m.change(t, func(h *transaction.Handle) error {
		if err := m.Trans.DropSpaceCache(t, h, uint64(logical)); err != nil {
			return err
		}
		return e.RemoveGroup(t, h.Trans(), logical)
	})
	return bytes, err
}

// commitNew commits chunks that were made, so that what comes finds nothing queued.
func (m *Mover) commitNew(t *sched.Task) error {
	return m.change(t, func(*transaction.Handle) error { return nil })
}

// change does something in a transaction of its own, and commits it.
func (m *Mover) change(t *sched.Task, do func(h *transaction.Handle) error) error {
	h, err := m.Trans.Start(t, 4)
	if err != nil {
		return err
	}
	if err := do(h); err != nil {
		h.Abort(t, err)
		return errors.Join(err, h.End(t))
	}
	if err := h.End(t); err != nil {
		return err
	}
	return m.Trans.Commit(t)
}

// batch moves the first extents of a group; first is the first of them and n their bytes, 0 when
// the group is empty.
func (m *Mover) batch(t *sched.Task, group format.Range[format.Logical]) (first format.Logical, n uint64, err error) {
	p := newPlan(m)
	defer p.close()
	if err := p.read(t, group); err != nil || p.bytes == 0 {
		return 0, 0, err
	}
	e := m.Trans.Extents
	room := uint64(len(p.blocks)+len(p.plain)+len(p.files)) * uint64(m.Trans.Forest.NodeSize())
	if err := e.MakeRoom(t, format.BlockGroupMetadata, 2*room, group.Start); err != nil {
		return 0, 0, err
	}
	if err := p.copyData(t); err != nil {
		p.giveBack(t)
		return 0, 0, err
	}
	if err := m.change(t, func(h *transaction.Handle) error { return p.carryOut(t, h) }); err != nil {
		return 0, 0, err
	}
	p.forget(t)
	return p.first, p.bytes, nil
}

package transaction

import (
	"errors"
	"fmt"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/extenttree"
	"btrlab/internal/sched"
)

// DropRelocTrees drops the relocation trees that Linux has left, and says how many there were. Each
// is a snapshot that nobody sees, in which a part of what points at a block group points elsewhere
// already; what the subvolume has taken over from it stays. Models the end of
// merge_reloc_roots() for a tree that is not merged.
//
// Preconditions: no other task uses the file system, and no handle is open.
func (m *Manager) DropRelocTrees(t *sched.Task) (n int, err error) {
	for {
		key, it, ok, err := m.relocTree(t)
		if err != nil || !ok {
			return n, err
		}
		if err := m.dropRelocTree(t, key, &it); err != nil {
			return n, fmt.Errorf("drop relocation tree of %d: %w", key.Offset, err)
		}
		n++
	}
}

// relocTree finds the first relocation tree.
func (m *Manager) relocTree(t *sched.Task) (key format.Key, it format.RootItem, ok bool, err error) {
	var p ctree.Path
	defer p.Release(t)
	key = format.Key{Objectid: format.TREE_RELOC_OBJECTID, Type: format.ROOT_ITEM_KEY}
	more, err := m.Forest.SearchForward(t, m.Root(format.ROOT_TREE_OBJECTID), key, &p)
	if err != nil || !more || p.Key().Objectid != key.Objectid || p.Key().Type != key.Type {
		return key, it, false, err
	}
	it.Decode(p.Item())
	return p.Key(), it, true, nil
}

// dropRelocTree drops one, transaction by transaction. Until it is dropped whole its item says how
// far it is, with no references, as Linux leaves one.
func (m *Manager) dropRelocTree(t *sched.Task, key format.Key, it *format.RootItem) error {
	r, err := m.Forest.OpenReloc(t, it.Bytenr, int(it.Level), it.Generation)
	if err != nil {
		return err
	}
	defer r.Close()
	at := extenttree.DropProgress{}
	if it.Refs == 0 {
		at = extenttree.DropProgress{Key: it.DropProgress, Level: int(it.DropLevel)}
	}
	for done := false; !done; {
		h, err := m.StartDelete(t, 2)
		if err != nil {
			return err
		}
		if at, done, err = m.Extents.DropTree(t, &h.tr, r, at, dropBudget); err == nil {
			err = m.noteDropped(t, h, key, at, done)
		}
		if err != nil {
			h.Abort(t, err)
			return errors.Join(err, h.End(t))
		}
		if err := h.End(t); err != nil {
			return err
		}
		if err := m.Commit(t); err != nil {
			return err
		}
	}
	return nil
}

// noteDropped enters how far a relocation tree is dropped, or deletes its item.
func (m *Manager) noteDropped(t *sched.Task, h *Handle, key format.Key, at extenttree.DropProgress, done bool) error {
	tree := m.Root(format.ROOT_TREE_OBJECTID)
	if done {
		return m.DeleteItem(t, h, tree, key)
	}
	var p ctree.Path
	defer p.Release(t)
	found, err := m.Forest.SearchSlot(t, &h.tr, tree, key, &p, 0, true)
	if err == nil && !found {
		err = ErrNoRoot
	}
	if err != nil {
		return err
	}
	var it format.RootItem
	it.Decode(p.Item())
	it.Refs, it.DropProgress, it.DropLevel = 0, at.Key, uint8(at.Level)
	it.Encode(p.Item())
	m.Forest.DirtyLeaf(t, &h.tr, &p)
	return nil
}

package transaction

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/extenttree"
	"btrlab/internal/meta/spaceinfo"
	"btrlab/internal/sched"
)

// NewSubvol is a subvolume that a commit makes: a snapshot, or an empty one.
//
// Models struct btrfs_pending_snapshot. Difference: an empty subvolume is made by the commit as
// well (create_subvol() needs none).
type NewSubvol struct {
	Source   *ctree.Root // nil makes an empty subvolume
	ReadOnly bool
	UUID     format.UUID // of the new subvolume
	Now      format.Timespec
	Dir      format.InodeItem // the top directory of an empty subvolume

	// Parent is the subvolume with the directory that gets the name, Ref the directory, the index
	// and the name.
	Parent uint64
	Ref    format.RootRef
	// Link enters the name of tree id into the directory: its items, and the directory's inode.
	Link func(t *sched.Task, h *Handle, id uint64) error

	ID uint64 // the new tree; the commit sets it

	bytes uint64 // metadata that the commit may use for it
}

// unitsSubvol is the reservation for a subvolume in inserted items: root item, root ref and back
// ref, uuid, directory item and index, the directory's inode, the two root nodes and what the copy
// of the source's path needs, and the uuid of what was received. Models create_subvol_num_items() +
// 4.
const unitsSubvol = 13

// Make makes subvolumes in one commit and is back when they are durable. It makes the first made of
// the list: all, or those whose reservations have place at the same time, but one at least. Data
// that a source has in memory only is not in a snapshot: the caller has written it back. Models the
// end of create_snapshot(). Difference: there each caller has one, and those of several callers
// share a commit.
//
// Preconditions: the names stay free; the task has no open handle.
func (m *Manager) Make(t *sched.Task, list ...*NewSubvol) (made int, err error) {
	bytes, meta := m.Space.CalcInsert(unitsSubvol), m.Space.Metadata()
	for mode := spaceinfo.FlushAll; made < len(list); mode = spaceinfo.NoFlush {
		if err = meta.Reserve(t, bytes, mode); err != nil {
			break
		}
		list[made].bytes = bytes
		made++
	}
	if made == 0 {
		return 0, err
	}
	list = list[:made]
	h, err := m.Join(t)
	if err != nil {
		meta.Release(t, uint64(made)*bytes)
		return 0, err
	}
	m.lockWrite(t)
	h.tx.pending = append(h.tx.pending, list...)
	m.mu.Unlock(t)
	if err := h.End(t); err != nil {
		return 0, err
	}
	if err := m.Commit(t); err != nil {
		return 0, err
	}
	for _, s := range list {
		if s.ID == 0 {
			panic("transaction: a commit has left out a subvolume")
		}
	}
	return made, nil
}

// makeSubvols makes what is pending. No other handle is open, and the inode items are in the trees.
// Models create_pending_snapshots().
func (m *Manager) makeSubvols(t *sched.Task, h *Handle) error {
	m.lockRead(t)
	pending := h.tx.pending
	m.mu.Unlock(t)
	for i, s := range pending {
		// A snapshot of a directory that has got the last one's name has its size, too:
		// btrfs_run_delayed_items() of create_pending_snapshot().
		if i > 0 {
			if err := m.runHooks(t, h); err != nil {
				return err
			}
		}
		h.rsv.Add(t, s.bytes)
		if err := m.makeSubvol(t, h, s); err != nil {
			return fmt.Errorf("make subvolume %q: %w", s.Ref.Name, err)
		}
	}
	if len(pending) == 0 {
		return nil
	}
	return m.runHooks(t, h) // the directories with the names
}

// makeSubvol models create_pending_snapshot(), and of an empty subvolume create_subvol().
func (m *Manager) makeSubvol(t *sched.Task, h *Handle, s *NewSubvol) error {
	id, err := m.nextSubvol(t)
	if err != nil {
		return err
	}
	r, it, err := m.subvolTree(t, h, s, id)
	if err != nil {
		return err
	}
	defer r.Close()
	bytenr, level, _ := r.Pointer()
	it.Bytenr, it.Level, it.Refs = bytenr, uint8(level), 1
	it.Generation, it.GenerationV2, it.LastSnapshot = h.tr.ID, h.tr.ID, r.LastSnapshot()
	it.UUID, it.Otime, it.Otransid = s.UUID, s.Now, h.tr.ID
	it.Inode.Flags |= format.InodeRootItemInit

	m.lockWrite(t)
	delete(h.tx.roots, id) // the item below is right
	m.mu.Unlock(t)
	var item [format.RootItemSize]byte
	it.Encode(item[:])
	tree := m.Root(format.ROOT_TREE_OBJECTID)
	if err := m.Forest.InsertItem(t, &h.tr, tree, format.Key{Objectid: id, Type: format.ROOT_ITEM_KEY, Offset: s.keyOffset(h)}, item[:]); err != nil {
		return err
	}
	m.Quota.Created(t, id, s.Parent)
	if err := m.insertLinks(t, h, s.Parent, id, s.Ref); err != nil {
		return err
	}
	if err := s.Link(t, h, id); err != nil {
		return err
	}
	if err := m.addUUID(t, h, format.UUID_KEY_SUBVOL, s.UUID, id); err != nil {
		return err
	}
	if err := m.addUUID(t, h, format.UUID_KEY_RECEIVED_SUBVOL, it.ReceivedUUID, id); err != nil {
		return err
	}
	s.ID = id
	return nil
}

// keyOffset is the offset of the root item's key: a snapshot's is when it was made.
func (s *NewSubvol) keyOffset(h *Handle) uint64 {
	if s.Source == nil {
		return 0
	}
	return h.tr.ID
}

// subvolTree makes the tree, and the root item as far as it does not depend on its place.
func (m *Manager) subvolTree(t *sched.Task, h *Handle, s *NewSubvol, id uint64) (*ctree.Root, format.RootItem, error) {
	if s.Source == nil {
		return m.emptyTree(t, h, s, id)
	}
	it, err := m.RootItem(t, s.Source.ID)
	if err != nil {
		return nil, it, err
	}
	r, err := m.Forest.Snapshot(t, &h.tr, s.Source, id)
	if err != nil {
		return nil, it, err
	}
	it.ParentUUID = it.UUID
	it.Flags &^= format.RootSubvolReadonly
	if s.ReadOnly {
		it.Flags |= format.RootSubvolReadonly
	} else {
		it.ReceivedUUID = format.UUID{}
		it.Stime, it.Rtime, it.Stransid, it.Rtransid = format.Timespec{}, format.Timespec{}, 0, 0
	}
	it.DropProgress, it.DropLevel = format.Key{}, 0
	return r, it, nil
}

// emptyTree makes a tree with a top directory. Models btrfs_create_subvol_root().
func (m *Manager) emptyTree(t *sched.Task, h *Handle, s *NewSubvol, id uint64) (*ctree.Root, format.RootItem, error) {
	it := format.RootItem{RootDirid: format.FIRST_FREE_OBJECTID, Ctransid: h.tr.ID, Ctime: s.Now}
	it.Inode = format.InodeItem{Generation: 1, Size: 3, Nlink: 1, Nbytes: uint64(m.Forest.NodeSize()), Mode: format.S_IFDIR | 0o755}
	if s.ReadOnly {
		it.Flags = format.RootSubvolReadonly
	}
	r, err := m.Forest.NewRoot(t, &h.tr, id)
	if err != nil {
		return nil, it, err
	}
	dir := s.Dir
	dir.Generation, dir.Transid = h.tr.ID, h.tr.ID
	var item [format.InodeItemSize]byte
	dir.Encode(item[:])
	top := uint64(format.FIRST_FREE_OBJECTID)
	err = m.Forest.InsertItem(t, &h.tr, r, format.Key{Objectid: top, Type: format.INODE_ITEM_KEY}, item[:])
	if err == nil {
		up := format.InodeRef{Name: ".."}
		b := make([]byte, up.Size())
		up.Encode(b)
		err = m.Forest.InsertItem(t, &h.tr, r, format.Key{Objectid: top, Type: format.INODE_REF_KEY, Offset: top}, b)
	}
	return r, it, err
}

// nextSubvol is the id for a new subvolume: higher than all that are there or were since the open.
// Models btrfs_get_free_objectid() of the root tree.
func (m *Manager) nextSubvol(t *sched.Task) (uint64, error) {
	if m.lastSubvol == 0 {
		m.lastSubvol = format.FIRST_FREE_OBJECTID - 1
		var p ctree.Path
		defer p.Release(t)
		more, err := m.Forest.SearchBackward(t, m.Root(format.ROOT_TREE_OBJECTID), format.Key{Objectid: format.LAST_FREE_OBJECTID, Type: 255, Offset: ^uint64(0)}, &p)
		if err != nil {
			return 0, err
		}
		if more {
			m.lastSubvol = max(m.lastSubvol, p.Key().Objectid)
		}
	}
	if m.lastSubvol >= format.LAST_FREE_OBJECTID {
		return 0, errno.ENOSPC
	}
	m.lastSubvol++
	return m.lastSubvol, nil
}

// HasSubvols reports whether a subvolume has others in it, which keep it from being deleted. Models
// the ROOT_REF search of may_destroy_subvol().
func (m *Manager) HasSubvols(t *sched.Task, id uint64) (bool, error) {
	_, _, err := m.rootRef(t, format.Key{Objectid: id, Type: format.ROOT_REF_KEY}, func(format.Key) bool { return true })
	if errors.Is(err, ErrNoRoot) {
		return false, nil
	}
	return err == nil, err
}

// UnitsUnlinkSubvol is the reservation for UnlinkSubvol and the name in the directory, in inserted
// items: directory item and index, the directory's inode, root ref and back ref, root item, orphan
// item, uuid, uuid of what was received.
const UnitsUnlinkSubvol = 9

// UnlinkSubvol takes subvolume id, which is linked in subvolume parent, out of the root tree's
// links: its root item has no references any more, and an orphan item says that its tree waits to
// be dropped. After an error the transaction must be aborted. Models the root tree's part of
// btrfs_delete_subvolume().
func (m *Manager) UnlinkSubvol(t *sched.Task, h *Handle, id, parent uint64) error {
	tree := m.Root(format.ROOT_TREE_OBJECTID)
	for _, k := range linkKeys(parent, id) {
		if err := m.DeleteItem(t, h, tree, k); err != nil {
			return err
		}
	}
	var uuid, received format.UUID
	if err := m.changeRootItem(t, h, id, func(it *format.RootItem) {
		it.Refs, it.DropProgress, it.DropLevel, uuid, received = 0, format.Key{}, 0, it.UUID, it.ReceivedUUID
	}); err != nil {
		return err
	}
	if err := m.Forest.InsertItem(t, &h.tr, tree, orphanKey(id), nil); err != nil {
		return err
	}
	if err := m.delUUID(t, h, format.UUID_KEY_SUBVOL, uuid, id); err != nil {
		return err
	}
	return m.delUUID(t, h, format.UUID_KEY_RECEIVED_SUBVOL, received, id)
}

// UnitsMoveSubvol is the reservation for MoveSubvol in inserted items: root ref and back ref, of
// the old place and of the new one.
const UnitsMoveSubvol = 4

// MoveSubvol makes ref in subvolume to the place of subvolume id, which was linked in subvolume
// from. After an error the transaction must be aborted. Models btrfs_del_root_ref() and
// btrfs_add_root_ref() in btrfs_rename().
func (m *Manager) MoveSubvol(t *sched.Task, h *Handle, id, from, to uint64, ref format.RootRef) error {
	tree := m.Root(format.ROOT_TREE_OBJECTID)
	for _, k := range linkKeys(from, id) {
		if err := m.DeleteItem(t, h, tree, k); err != nil {
			return err
		}
	}
	return m.insertLinks(t, h, to, id, ref)
}

// linkKeys are the keys of the two items that link subvolume id in subvolume parent.
func linkKeys(parent, id uint64) []format.Key {
	return []format.Key{{Objectid: parent, Type: format.ROOT_REF_KEY, Offset: id}, {Objectid: id, Type: format.ROOT_BACKREF_KEY, Offset: parent}}
}

// insertLinks links subvolume id in subvolume parent.
func (m *Manager) insertLinks(t *sched.Task, h *Handle, parent, id uint64, ref format.RootRef) error {
	b := make([]byte, format.RootRefSize+len(ref.Name))
	ref.Encode(b)
	for _, k := range linkKeys(parent, id) {
		if err := m.Forest.InsertItem(t, &h.tr, m.Root(format.ROOT_TREE_OBJECTID), k, b); err != nil {
			return err
		}
	}
	return nil
}

func orphanKey(id uint64) format.Key {
	return format.Key{Objectid: format.ORPHAN_OBJECTID, Type: format.ORPHAN_ITEM_KEY, Offset: id}
}

// DeleteItem deletes one item. ENOENT when it is not there; then, and after any error, the
// transaction must be aborted if it has changed anything.
func (m *Manager) DeleteItem(t *sched.Task, h *Handle, r *ctree.Root, k format.Key) error {
	var p ctree.Path
	defer p.Release(t)
	found, err := m.Forest.SearchSlot(t, &h.tr, r, k, &p, -1, true)
	if err == nil && !found {
		err = fmt.Errorf("delete item %v of tree %d: %w", k, int64(r.ID), errno.ENOENT)
	}
	if err != nil {
		return err
	}
	return m.Forest.DelItems(t, &h.tr, r, &p, p.Slot(), 1)
}

// changeRootItem edits the root item of a subvolume that no task changes.
func (m *Manager) changeRootItem(t *sched.Task, h *Handle, id uint64, f func(it *format.RootItem)) error {
	var p ctree.Path
	defer p.Release(t)
	key, err := m.findRootItem(t, id, &p)
	if err != nil {
		return err
	}
	p.Release(t)
	if _, err := m.Forest.SearchSlot(t, &h.tr, m.Root(format.ROOT_TREE_OBJECTID), key, &p, 0, true); err != nil {
		return err
	}
	if len(p.Item()) < format.RootItemSize {
		return fmt.Errorf("root item of %d bytes (an old kernel's) cannot be updated, want %d: %w", len(p.Item()), format.RootItemSize, errno.EOPNOTSUPP)
	}
	var it format.RootItem
	it.Decode(p.Item())
	f(&it)
	it.Encode(p.Item())
	m.Forest.DirtyLeaf(t, &h.tr, &p)
	return nil
}

// SetReadOnly says in the root item of subvolume id whether it can be changed; it is durable with
// the next commit. Models btrfs_ioctl_subvol_setflags().
//
// Preconditions: as SetReceived.
func (m *Manager) SetReadOnly(t *sched.Task, id uint64, yes bool) error {
	h, err := m.Start(t, 1)
	if err != nil {
		return err
	}
	err = m.changeRootItem(t, h, id, func(it *format.RootItem) {
		it.Flags &^= format.RootSubvolReadonly
		if yes {
			it.Flags |= format.RootSubvolReadonly
		}
	})
	if err != nil {
		h.Abort(t, err)
		_ = h.End(t)
		return fmt.Errorf("subvolume %d: %w", id, err)
	}
	return h.End(t)
}

// DeadSubvols lists the trees that wait to be dropped. Models btrfs_find_orphan_roots().
func (m *Manager) DeadSubvols(t *sched.Task) (ids []uint64, err error) {
	var p ctree.Path
	defer p.Release(t)
	root := m.Root(format.ROOT_TREE_OBJECTID)
	more, err := m.Forest.SearchForward(t, root, orphanKey(0), &p)
	for ; more && err == nil && p.Key().Objectid == format.ORPHAN_OBJECTID; more, err = m.Forest.NextItem(t, root, &p) {
		if p.Key().Type == format.ORPHAN_ITEM_KEY {
			ids = append(ids, p.Key().Offset)
		}
	}
	return ids, err
}

// dropBudget is the references that one transaction of DropSubvol drops, about.
const dropBudget = 4096

// DropSubvol drops the tree of subvolume id, which UnlinkSubvol has unlinked, transaction by
// transaction, and is back when the last one is durable. No task uses the subvolume. stop, if any,
// is asked before each; when it is true the rest is left to a later call. Models
// btrfs_clean_one_deleted_snapshot().
func (m *Manager) DropSubvol(t *sched.Task, id uint64, stop func() bool) error {
	for done := false; !done; {
		if stop != nil && stop() {
			return nil
		}
		h, err := m.StartDelete(t, 2)
		if err != nil {
			return err
		}
		if done, err = m.dropSome(t, h, id); err != nil {
			h.Abort(t, err)
			return errors.Join(fmt.Errorf("drop subvolume %d: %w", id, err), h.End(t))
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

// dropSome does one transaction of DropSubvol.
func (m *Manager) dropSome(t *sched.Task, h *Handle, id uint64) (done bool, err error) {
	r, it, err := m.OpenSubvol(t, id)
	if errors.Is(err, ErrNoRoot) {
		return true, m.DeleteItem(t, h, m.Root(format.ROOT_TREE_OBJECTID), orphanKey(id))
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	if it.Refs > 0 {
		// it was deleted, and is not
		return true, m.DeleteItem(t, h, m.Root(format.ROOT_TREE_OBJECTID), orphanKey(id))
	}
	next, done, err := m.Extents.DropTree(t, &h.tr, r, extenttree.DropProgress{Key: it.DropProgress, Level: int(it.DropLevel)}, dropBudget)
	switch {
	case err != nil:
		return false, err
	case !done:
		return false, m.changeRootItem(t, h, id, func(it *format.RootItem) {
			it.DropProgress, it.DropLevel = next.Key, uint8(next.Level)
		})
	}
	var p ctree.Path
	key, err := m.findRootItem(t, id, &p)
	p.Release(t)
	if err == nil {
		err = m.DeleteItem(t, h, m.Root(format.ROOT_TREE_OBJECTID), key)
	}
	if err == nil {
		err = m.DeleteItem(t, h, m.Root(format.ROOT_TREE_OBJECTID), orphanKey(id))
	}
	if err == nil {
		m.Quota.Dropped(t, id)
	}
	return true, err
}

// Subvols lists the subvolumes by id but the top-level one, without those that are deleted.
func (m *Manager) Subvols(t *sched.Task) (ids []uint64, items []format.RootItem, err error) {
	var p ctree.Path
	defer p.Release(t)
	root := m.Root(format.ROOT_TREE_OBJECTID)
	more, err := m.Forest.SearchForward(t, root, format.Key{Objectid: format.FIRST_FREE_OBJECTID}, &p)
	for ; more && err == nil && p.Key().Objectid <= format.LAST_FREE_OBJECTID; more, err = m.Forest.NextItem(t, root, &p) {
		if p.Key().Type != format.ROOT_ITEM_KEY {
			continue
		}
		var it format.RootItem
		if it.Decode(p.Item()); it.Refs > 0 {
			ids, items = append(ids, p.Key().Objectid), append(items, it)
		}
	}
	return ids, items, err
}

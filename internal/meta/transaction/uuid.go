package transaction

import (
	"encoding/binary"
	"fmt"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/sched"
)

// The uuid tree leads from the uuid of a subvolume, or from that under which it was received, to
// the ids of the subvolumes with it: of the latter there may be several, because a read-only
// snapshot keeps it. Its changes take turns: a commit makes them, or a task that has fs's
// subvol_sem. An image without the tree needs none, and a zero uuid is in none.

// addUUID enters subvolume id. Models btrfs_uuid_tree_add().
func (m *Manager) addUUID(t *sched.Task, h *Handle, typ uint8, u format.UUID, id uint64) error {
	return m.changeUUID(t, h, typ, u, func(ids []uint64) []uint64 {
		if slices.Contains(ids, id) {
			return ids
		}
		return append(ids, id)
	})
}

// delUUID takes subvolume id out, if it is there. Models btrfs_uuid_tree_remove().
func (m *Manager) delUUID(t *sched.Task, h *Handle, typ uint8, u format.UUID, id uint64) error {
	return m.changeUUID(t, h, typ, u, func(ids []uint64) []uint64 {
		return slices.DeleteFunc(ids, func(x uint64) bool { return x == id })
	})
}

// changeUUID replaces the ids that the tree has for a uuid.
func (m *Manager) changeUUID(t *sched.Task, h *Handle, typ uint8, u format.UUID, change func(ids []uint64) []uint64) error {
	r := m.Root(format.UUID_TREE_OBJECTID)
	if r == nil || u.IsZero() {
		return nil
	}
	key := u.Key(typ)
	old, err := m.uuidIDs(t, r, key)
	if err != nil {
		return err
	}
	ids := change(slices.Clone(old))
	if slices.Equal(old, ids) {
		return nil
	}
	if len(old) > 0 {
		if err := m.DeleteItem(t, h, r, key); err != nil {
			return err
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var b []byte
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint64(b, id)
	}
	return m.Forest.InsertItem(t, &h.tr, r, key, b)
}

// uuidIDs reads the item at key.
func (m *Manager) uuidIDs(t *sched.Task, r *ctree.Root, key format.Key) (ids []uint64, err error) {
	var p ctree.Path
	defer p.Release(t)
	found, err := m.Forest.SearchSlot(t, nil, r, key, &p, 0, false)
	if err != nil || !found {
		return nil, err
	}
	for b := p.Item(); len(b) >= 8; b = b[8:] {
		ids = append(ids, binary.LittleEndian.Uint64(b))
	}
	return ids, nil
}

// unitsReceived is the reservation for SetReceived in inserted items: root item, the uuid under
// which it was received before, the new one.
const unitsReceived = 3

// Received says where a subvolume comes from that was received.
type Received struct {
	UUID     format.UUID // of the subvolume that was sent
	Stransid uint64      // the last change of that
	Rtime    format.Timespec
}

// SetReceived notes in the root item of subvolume id that it was received, and makes it read-only;
// it is durable with the next commit. What has been changed in the subvolume is in the tree: the
// caller has committed. With a zero UUID it was not received from then on, and can be changed.
//
// Models _btrfs_ioctl_set_received_subvol(), and btrfs_ioctl_subvol_setflags() as btrfs receive
// calls it after that. Difference: one transaction for both.
//
// Preconditions: the task has fs's subvol_sem; nobody changes the subvolume.
func (m *Manager) SetReceived(t *sched.Task, id uint64, rc Received) error {
	h, err := m.Start(t, unitsReceived)
	if err != nil {
		return err
	}
	var old format.UUID
	err = m.changeRootItem(t, h, id, func(it *format.RootItem) {
		old = it.ReceivedUUID
		it.ReceivedUUID, it.Stransid, it.Rtransid = rc.UUID, rc.Stransid, h.tr.ID
		it.Stime, it.Rtime = format.Timespec{}, rc.Rtime
		it.Flags &^= format.RootSubvolReadonly
		if !rc.UUID.IsZero() {
			it.Flags |= format.RootSubvolReadonly
		}
	})
	if err == nil && old != rc.UUID {
		err = m.delUUID(t, h, format.UUID_KEY_RECEIVED_SUBVOL, old, id)
	}
	if err == nil {
		err = m.addUUID(t, h, format.UUID_KEY_RECEIVED_SUBVOL, rc.UUID, id)
	}
	if err != nil {
		h.Abort(t, err)
		_ = h.End(t)
		return fmt.Errorf("received subvolume %d: %w", id, err)
	}
	return h.End(t)
}

package transaction

import (
	"errors"
	"fmt"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/lock/lockdep"
	"btrlab/internal/meta/ctree"
	"btrlab/internal/meta/qgroup"
	"btrlab/internal/sched"
)

var classQuota = lockdep.NewClass("qgroup_ioctl_lock")

// unitsQuota is the reservation of a change of the configuration, in inserted items: the tree's
// root item, a status and some more.
const unitsQuota = 6

// openQuota reads the quota tree, if there is one.
func (m *Manager) openQuota(t *sched.Task) error {
	m.Quota = qgroup.New(m.Forest, m.Extents)
	r, _, err := m.OpenSubvol(t, format.QUOTA_TREE_OBJECTID)
	if errors.Is(err, ErrNoRoot) {
		return nil
	}
	if err != nil {
		return err
	}
	return m.Quota.Load(t, r, m.super.Generation)
}

// settleQuota brings the qgroups up to the trees as they are. Everything queued has been run, and
// the root items are right. Models the place of btrfs_qgroup_account_extents() in
// btrfs_commit_transaction().
func (m *Manager) settleQuota(t *sched.Task, h *Handle) error {
	if !m.Quota.On() {
		return nil
	}
	sb := m.Super(t)
	now := m.Root(format.ROOT_TREE_OBJECTID)
	bytenr, level, generation := now.Pointer()
	err := m.Quota.Settle(t, &h.tr, qgroup.TreeAt{Bytenr: sb.Root, Level: int(sb.RootLevel), Generation: sb.Generation},
		qgroup.TreeAt{Bytenr: bytenr, Level: level, Generation: generation})
	if err != nil {
		return fmt.Errorf("quota tree: %w", err)
	}
	return nil
}

// configure runs f with a handle and the lock for changes of the configuration, and commits.
func (m *Manager) configure(t *sched.Task, f func(h *Handle) error) error {
	h, err := m.StartDelete(t, unitsQuota)
	if err != nil {
		return err
	}
	m.quotaMu.Lock(t)
	err = f(h)
	m.quotaMu.Unlock(t)
	if e := h.End(t); err == nil {
		err = e
	}
	if err == nil {
		err = m.Commit(t)
	}
	return err
}

// EnableQuota makes the quota tree with a qgroup for each subvolume and counts what they have, or
// with simple what they allocate from now on; nothing when quotas of the kind are on, EINVAL when
// those of the other are. Models btrfs_quota_enable() with the rescan that follows.
//
// Preconditions: no other task writes, and no data is dirty: what was not reserved could not be
// given back.
func (m *Manager) EnableQuota(t *sched.Task, simple bool) error {
	return m.configure(t, func(h *Handle) error {
		if m.Quota.On() {
			if is := m.Quota.StatusFlags()&format.QgroupStatusSimple != 0; is != simple {
				return fmt.Errorf("quotas of the other kind are on: %w", errno.EINVAL)
			}
			return nil
		}
		if simple {
			m.AddIncompat(format.IncompatSimpleQuota)
		}
		r, err := m.Quota.Create(t, &h.tr, simple)
		if err == nil {
			err = m.insertQuotaRoot(t, h, r)
		}
		if err != nil {
			h.Abort(t, err)
		}
		return err
	})
}

func (m *Manager) insertQuotaRoot(t *sched.Task, h *Handle, r *ctree.Root) error {
	bytenr, level, generation := r.Pointer()
	it := format.RootItem{Generation: generation, GenerationV2: generation, Bytenr: bytenr, Level: uint8(level), Refs: 1,
		BytesUsed: uint64(m.Forest.NodeSize())}
	var b [format.RootItemSize]byte
	it.Encode(b[:])
	return m.Forest.InsertItem(t, &h.tr, m.Root(format.ROOT_TREE_OBJECTID), format.Key{Objectid: r.ID, Type: format.ROOT_ITEM_KEY}, b[:])
}

// DisableQuota deletes the quota tree; nothing when quotas are off. Models btrfs_quota_disable().
//
// Preconditions: as EnableQuota.
func (m *Manager) DisableQuota(t *sched.Task) error {
	return m.configure(t, func(h *Handle) error {
		if !m.Quota.On() {
			return nil
		}
		r, err := m.Quota.Clear(t, &h.tr)
		if err == nil {
			err = m.deleteQuotaRoot(t, h, r)
		}
		if err != nil {
			h.Abort(t, err)
		}
		return err
	})
}

func (m *Manager) deleteQuotaRoot(t *sched.Task, h *Handle, r *ctree.Root) error {
	if err := m.Forest.FreeRoot(t, &h.tr, r); err != nil {
		return err
	}
	m.lockWrite(t)
	delete(h.tx.roots, r.ID)
	m.mu.Unlock(t)
	var p ctree.Path
	defer p.Release(t)
	tree := m.Root(format.ROOT_TREE_OBJECTID)
	found, err := m.Forest.SearchSlot(t, &h.tr, tree, format.Key{Objectid: r.ID, Type: format.ROOT_ITEM_KEY}, &p, -1, true)
	if err == nil && !found {
		err = ErrNoRoot
	}
	if err != nil {
		return err
	}
	return m.Forest.DelItems(t, &h.tr, tree, &p, p.Slot(), 1)
}

// RescanQuota counts again from the start. qgroup.ErrOff when they are off, EINVAL when they are
// simple. Models btrfs_qgroup_rescan() and its worker.
func (m *Manager) RescanQuota(t *sched.Task) error {
	return m.configure(t, func(*Handle) error {
		if !m.Quota.On() {
			return qgroup.ErrOff
		}
		return m.Quota.Rescan()
	})
}

// LimitQuota sets how many bytes qgroup id may have, or with none takes the limit away: of what it
// reaches, or with excl of what is its alone. qgroup.ErrOff when they are off, ENOENT without such
// a qgroup. Models btrfs_limit_qgroup().
func (m *Manager) LimitQuota(t *sched.Task, id, bytes uint64, excl, none bool) error {
	return m.configure(t, func(*Handle) error {
		if !m.Quota.On() {
			return qgroup.ErrOff
		}
		return m.Quota.Limit(t, id, bytes, excl, none)
	})
}

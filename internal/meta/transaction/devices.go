package transaction

import (
	"errors"

	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// AddDevice enters a device that volumes.Volumes.Join has taken in: its item, and the superblock's
// count and size. After an error the transaction must be aborted. Models the transaction of
// btrfs_init_new_device().
//
// Preconditions: no other task uses the file system.
func (m *Manager) AddDevice(t *sched.Task, h *Handle, d *volumes.Device) error {
	it := d.Item()
	if err := m.Extents.AddDevice(t, &h.tr, it); err != nil {
		return err
	}
	m.devices.Add(1)
	m.AddTotalBytes(int64(it.TotalBytes))
	return m.guard(t)
}

// RemoveDevice takes a device, on which nothing lies, out of the trees and of the volumes: the
// commit writes its superblock no more. After an error the transaction must be aborted. Models
// btrfs_rm_dev_item() and btrfs_rm_device().
//
// Preconditions: no other task uses the file system.
func (m *Manager) RemoveDevice(t *sched.Task, h *Handle, d *volumes.Device) error {
	devid, size := d.Devid(), d.Item().TotalBytes
	stats := format.Key{Objectid: format.DEV_STATS_OBJECTID, Type: format.PERSISTENT_ITEM_KEY, Offset: devid}
	if err := m.DeleteItem(t, h, m.Root(format.DEV_TREE_OBJECTID), stats); err != nil && !errors.Is(err, errno.ENOENT) {
		return err
	}
	if err := m.Extents.RemoveDevice(t, &h.tr, d); err != nil {
		return err
	}
	m.Volumes.Leave(t, d)
	m.devices.Add(-1)
	m.AddTotalBytes(-int64(size))
	return m.guard(t)
}

// DeviceReplaced says that another device has taken the place of one, with its superblock.
//
// Preconditions: no other task uses the file system.
func (m *Manager) DeviceReplaced(t *sched.Task) error { return m.guard(t) }

// LeaveBehind commits before anything is written without the devices that are missing: from then on
// they are more generations behind than a crash leaves a device, and are refused when they come
// back. It does nothing when all are there. Difference: the kernel takes such a device, and trusts
// checksums and generations.
//
// Preconditions: no other task uses the file system.
func (m *Manager) LeaveBehind(t *sched.Task) error {
	if m.skip == 0 {
		return nil
	}
	h, err := m.Join(t)
	if err == nil {
		err = h.End(t)
	}
	if err == nil {
		err = m.Commit(t)
	}
	m.skip = 0
	return err
}

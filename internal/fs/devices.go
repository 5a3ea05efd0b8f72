package fs

import (
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/meta/relocation"
	"btrlab/internal/meta/transaction"
	"btrlab/internal/meta/volumes"
	"btrlab/internal/sched"
)

// minAdded is the smallest device that can be added, in bytes: a chunk of metadata and what lies
// before it.
const minAdded = 16 << 20

// AddDevice makes dev, all of it, one more device of the file system, with an UUID of its own, and
// gives it its number. What is on it is lost. New chunks take it from now on; a balance moves those
// that are there.
//
// Errors: EINVAL for a device below 16 MiB.
//
// Models fs/btrfs/volumes.c:btrfs_init_new_device().
//
// Preconditions: no other task uses the file system.
func (f *FS) AddDevice(t *sched.Task, dev blockdev.Device) (devid uint64, err error) {
	if err := f.writable(); err != nil {
		return 0, err
	}
	if dev.Size() < minAdded {
		return 0, blockdev.Errorf(dev, "%d bytes, want at least %d: %w", dev.Size(), minAdded, errno.EINVAL)
	}
	if err := f.Sync(t); err != nil {
		return 0, err
	}
	sb := f.trans.Super(t)
	devid = f.vols.NextDevid()
	uuid := format.MadeUUID(fmt.Sprintf("device %v %d %d", sb.FSID, devid, sb.Generation))
	it := format.DevItem{Devid: devid, TotalBytes: format.AlignDown(uint64(dev.Size()), uint64(sb.SectorSize)),
		IOAlign: sb.SectorSize, IOWidth: sb.SectorSize, SectorSize: sb.SectorSize, UUID: uuid, FSID: sb.TreeFSID()}
	if err := wipeSupers(t, dev); err != nil {
		return 0, err
	}
	d := f.vols.Join(t, dev, it)
	// The commit writes one superblock after the other: the first one says that there is this
	// device, and a crash then must find it.
	if err := d.Introduce(t, dev, sb); err != nil {
		return 0, err
	}
	return devid, f.change(t, func(h *transaction.Handle) error { return f.trans.AddDevice(t, h, d) })
}

// wipeSupers zeroes the superblocks of whatever a device was a part of.
func wipeSupers(t *sched.Task, dev blockdev.Device) error {
	for i := range format.SuperMirrorMax {
		off := format.SuperMirror(i)
		if off+format.SuperSize > uint64(dev.Size()) {
			break
		}
		if err := blockdev.Write(t, dev, make([]byte, format.SuperSize), int64(off)); err != nil {
			return blockdev.Errorf(dev, "write of %d bytes at %d: %w", format.SuperSize, off, err)
		}
	}
	return blockdev.Flush(t, dev)
}

// device finds device devid: EINVAL when there is none.
func (f *FS) device(devid uint64) (*volumes.Device, error) {
	for _, d := range f.vols.Devices() {
		if d.Devid() == devid {
			return d, nil
		}
	}
	return nil, fmt.Errorf("no device %d: %w", devid, errno.EINVAL)
}

// Devids lists the numbers of the devices, those that were given first, in their order.
func (f *FS) Devids() (list []uint64) {
	for _, d := range f.vols.Devices() {
		list = append(list, d.Devid())
	}
	return list
}

// Missing lists the devices that are missing, by their numbers.
func (f *FS) Missing() (list []uint64) {
	for _, d := range f.vols.Devices() {
		if d.Missing() {
			list = append(list, d.Devid())
		}
	}
	return list
}

// RemoveDevice moves what lies on device devid to the others, and takes it out of the file system;
// its superblocks are zeroed. A device that is missing is removed, too, if what was on it is on
// others. stop, if set, is asked now and then; when it is true the device stays, with
// relocation.ErrStopped, and what was moved stays moved.
//
// Errors: EINVAL when there is no such device, it is the last one, or a profile wants as many
// devices as there are; those of relocation.Mover.Group.
//
// Models fs/btrfs/volumes.c:btrfs_rm_device().
//
// Preconditions: no other task uses the file system.
func (f *FS) RemoveDevice(t *sched.Task, devid uint64, stop func() bool, each func(relocation.Progress)) error {
	m, err := f.mover(t, stop)
	if err != nil {
		return err
	}
	d, err := f.device(devid)
	if err != nil {
		return err
	}
	left := len(f.vols.Devices()) - 1
	if left == 0 {
		return fmt.Errorf("device %d is the only one: %w", devid, errno.EINVAL)
	}
	for _, c := range f.vols.Chunks() {
		if p := format.ProfileOf(c.Chunk.Type); p.DevsMin > left {
			return fmt.Errorf("profile %s wants %d devices, %d would be left: %w", p.Name, p.DevsMin, left, errno.EINVAL)
		}
	}
	f.vols.Retire(t, d, true)
	if err := m.LeaveDevice(t, devid, each); err != nil {
		f.vols.Retire(t, d, false)
		return err
	}
	if err := f.change(t, func(h *transaction.Handle) error { return f.trans.RemoveDevice(t, h, d) }); err != nil {
		return err
	}
	if d.Missing() {
		return nil
	}
	return wipeSupers(t, d.Device)
}

// ReplaceDevice copies what lies on device devid to dev, at the same places, and makes it that
// device: number and UUID stay, and so does the size that the file system has of it. What cannot be
// read, or all when the device is missing, is made from the others. The superblocks of the old
// device are zeroed. each, if set, is told of the bytes copied and of all, and ends it with an
// error: then the file system has the old device, whole.
//
// Errors: EINVAL when there is no such device or dev is smaller than what the file system has of
// it; EIO for what no device has.
//
// Models fs/btrfs/dev-replace.c:btrfs_dev_replace_start() and btrfs_dev_replace_finishing().
// Difference: no checksum is looked at; a scrub comes after.
//
// Preconditions: no other task uses the file system.
func (f *FS) ReplaceDevice(t *sched.Task, devid uint64, dev blockdev.Device, each func(done, all uint64) error) error {
	if err := f.writable(); err != nil {
		return err
	}
	d, err := f.device(devid)
	if err != nil {
		return err
	}
	if have, want := uint64(dev.Size()), d.Item().TotalBytes; have < want {
		return blockdev.Errorf(dev, "%d bytes, device %d has %d: %w", have, devid, want, errno.EINVAL)
	}
	if err := f.Sync(t); err != nil {
		return err
	}
	if err := wipeSupers(t, dev); err != nil {
		return err
	}
	if err := f.vols.CopyStripes(t, d, dev, each); err != nil {
		return err
	}
	// No tree changes: both are the device until the old one's superblock goes.
	if err := d.Introduce(t, dev, f.trans.Super(t)); err != nil {
		return err
	}
	if !d.Missing() {
		if err := wipeSupers(t, d.Device); err != nil {
			return err
		}
	}
	f.vols.Replace(t, d, dev)
	return f.trans.DeviceReplaced(t)
}

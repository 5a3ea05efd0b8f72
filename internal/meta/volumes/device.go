package volumes

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Member is a device and the primary superblock that was read from it.
type Member struct {
	Dev   blockdev.Device
	Super *format.Super
}

// Newest is the superblock with the highest generation, the first of equals.
func Newest(members []Member) *format.Super {
	best := members[0].Super
	for _, m := range members {
		if m.Super.Generation > best.Generation {
			best = m.Super
		}
	}
	return best
}

// Device is one device of a file system. Models struct btrfs_device.
type Device struct {
	blockdev.Device
	index   int // in Volumes.Devices
	missing bool
	retired bool           // takes no new chunks
	item    format.DevItem // but for bytes_used
	listed  bool           // the chunk tree has its item
	// used is bytes_used as of the last commit, for the superblock.
	used atomic.Uint64
}

// Devid is the device's number in this file system.
func (d *Device) Devid() uint64 { return d.item.Devid }

// Missing reports whether the device was not given.
func (d *Device) Missing() bool { return d.missing }

// Item is the device's item, with bytes_used as of the last commit.
func (d *Device) Item() format.DevItem {
	it := d.item
	it.BytesUsed = d.used.Load()
	return it
}

// SetBytesUsed sets bytes_used for the superblocks from now on. The committer calls it, when no
// superblock is being written.
func (d *Device) SetBytesUsed(n uint64) { d.used.Store(n) }

// absent stands for a device that was not given: what is read from it or written to it fails.
type absent struct{ devid uint64 }

func (a absent) Name() string { return fmt.Sprintf("device %d", a.devid) }
func (a absent) Size() int64  { return 0 }
func (a absent) Close() error { return nil }

func (a absent) Submit(t *sched.Task, b *blockdev.Bio) {
	b.Err = fmt.Errorf("device %d is missing: %w", a.devid, errno.EIO)
	b.EndIO(t, b)
}

// Devices lists the devices, those that are missing too. The caller must not change the slice.
func (v *Volumes) Devices() []*Device { return v.devices }

// Size is the sum of the devices' sizes, in bytes.
func (v *Volumes) Size() (n uint64) {
	for _, d := range v.devices {
		n += uint64(d.Size())
	}
	return n
}

// LagMax is how far, in generations, the superblock of one device may be older than that of
// another: a crash in the middle of a commit's superblocks leaves one.
const LagMax = 1

// join takes the members in, all of which must be devices of the file system of sb.
//
// Models device_list_add(). Difference: the kernel takes a stale device and trusts checksums and
// generations to tell what it has missed.
func (v *Volumes) join(members []Member, sb *format.Super) error {
	newest := members[slices.IndexFunc(members, func(m Member) bool { return m.Super == sb })].Dev
	first := members[0]
	for _, m := range members {
		s := m.Super
		if s.FSID != first.Super.FSID {
			return blockdev.Errorf(m.Dev, "device of another file system, have fsid %v want %v, that of %s", s.FSID, first.Super.FSID, first.Dev.Name())
		}
		for _, d := range v.devices {
			if d.item.Devid == s.DevItem.Devid || d.item.UUID == s.DevItem.UUID {
				return blockdev.Errorf(m.Dev, "is device %d of the file system, as %s is", s.DevItem.Devid, d.Name())
			}
		}
		switch {
		case s.Generation+LagMax < sb.Generation:
			return blockdev.Errorf(m.Dev, "stale device %d, have generation %d want %d, that of %s", s.DevItem.Devid, s.Generation, sb.Generation, newest.Name())
		case s.DevItem.TotalBytes > uint64(m.Dev.Size()):
			return blockdev.Errorf(m.Dev, "device is shorter than its file system, have %d bytes want %d", m.Dev.Size(), s.DevItem.TotalBytes)
		}
		v.addDevice(&Device{Device: m.Dev, item: s.DevItem})
	}
	n := len(members)
	if uint64(n) < sb.NumDevices && !v.degraded {
		return blockdev.Errorf(newest, "file system of %d devices, have %d (devid %s): name the others with --device, or go on without them: --degraded", sb.NumDevices, n, v.devids())
	}
	if uint64(n) > sb.NumDevices {
		return blockdev.Errorf(newest, "file system of %d devices, have %d (devid %s)", sb.NumDevices, n, v.devids())
	}
	return nil
}

func (v *Volumes) addDevice(d *Device) {
	d.index = len(v.devices)
	d.used.Store(d.item.BytesUsed)
	v.devices = append(v.devices, d)
}

// devids lists the numbers of the devices.
func (v *Volumes) devids() string {
	var s []string
	for _, d := range v.devices {
		s = append(s, fmt.Sprint(d.item.Devid))
	}
	return strings.Join(s, ", ")
}

// device finds a device, or makes one that is missing if that is allowed; else nil.
//
// Models btrfs_find_device() and add_missing_dev().
func (v *Volumes) device(devid uint64, uuid format.UUID) *Device {
	for _, d := range v.devices {
		if d.item.Devid == devid && d.item.UUID == uuid {
			return d
		}
	}
	if !v.degraded {
		return nil
	}
	d := &Device{Device: absent{devid}, missing: true, item: format.DevItem{Devid: devid, UUID: uuid, TotalBytes: ^uint64(0)}}
	v.addDevice(d)
	return d
}

// AddDevice takes a DEV_ITEM of the chunk tree, which comes before its chunks.
//
// Models read_one_dev().
func (v *Volumes) AddDevice(it format.DevItem) error {
	d := v.device(it.Devid, it.UUID)
	if d == nil {
		return fmt.Errorf("device %d %v is missing, have devid %s", it.Devid, it.UUID, v.devids())
	}
	if !d.missing && it.TotalBytes > uint64(d.Size()) {
		return blockdev.Errorf(d, "device is shorter than its file system, have %d bytes want %d", d.Size(), it.TotalBytes)
	}
	if d.missing {
		d.item = it
	}
	d.item.TotalBytes = it.TotalBytes
	d.listed = true
	return nil
}

// Settle ends the reading of the chunk tree: every device has its item there.
func (v *Volumes) Settle() error {
	for _, d := range v.devices {
		if !d.listed {
			return blockdev.Errorf(d, "device %d %v is none of the file system's, which the chunk tree lists", d.item.Devid, d.item.UUID)
		}
	}
	v.publish(v.m.Load().chunks) // with the devices' sizes
	return nil
}

// CheckWritable says why the devices may be read only; nil if they may be written. Models
// btrfs_check_rw_degradable().
func (v *Volumes) CheckWritable() error {
	for _, c := range v.Chunks() {
		missing := 0
		for _, d := range c.devs {
			if d.missing {
				missing++
			}
		}
		if missing > c.profile.Tolerated {
			return fmt.Errorf("chunk %d of profile %s: %d of its devices missing, it bears %d: open read-only", c.Logical, c.profile.Name, missing, c.profile.Tolerated)
		}
	}
	return nil
}

// Writable is how many devices can be written.
func (v *Volumes) Writable() (n int) {
	for _, d := range v.devices {
		if !d.missing {
			n++
		}
	}
	return n
}

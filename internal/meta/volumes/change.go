package volumes

import (
	"bytes"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// The set of devices changes. All of it is for one task, alone with the file system.

// Retire says whether new chunks may take the device: one that is about to leave has none. Models
// the part of btrfs_rm_device() that takes it off alloc_list.
func (v *Volumes) Retire(t *sched.Task, d *Device, yes bool) {
	v.mu.Lock(t)
	d.retired = yes
	v.publish(v.m.Load().chunks)
	v.mu.Unlock(t)
}

// Join adds a device with the item; the item in the chunk tree is the caller's. Models a step of
// btrfs_init_new_device().
func (v *Volumes) Join(t *sched.Task, dev blockdev.Device, it format.DevItem) *Device {
	v.mu.Lock(t)
	defer v.mu.Unlock(t)
	d := &Device{Device: dev, item: it, listed: true}
	v.addDevice(d)
	v.publish(v.m.Load().chunks)
	return d
}

// Leave takes a device out, on which no chunk lies; the item in the chunk tree is the caller's. The
// indices of the devices after it change. Models a step of btrfs_rm_device().
func (v *Volumes) Leave(t *sched.Task, d *Device) {
	v.mu.Lock(t)
	defer v.mu.Unlock(t)
	for _, c := range v.m.Load().chunks {
		if slices.Contains(c.devs, d) {
			panic(fmt.Sprintf("volumes: chunk %d lies on device %d, which leaves", c.Logical, d.Devid()))
		}
	}
	v.devices = slices.Delete(slices.Clone(v.devices), d.index, d.index+1)
	for i, d := range v.devices {
		d.index = i
	}
	v.publish(v.m.Load().chunks)
}

// Replace puts dev, which has all that lies on d, in its place; it is d from now on, with its
// number and its UUID. Models btrfs_dev_replace_finishing().
func (v *Volumes) Replace(t *sched.Task, d *Device, dev blockdev.Device) {
	v.mu.Lock(t)
	defer v.mu.Unlock(t)
	d.Device, d.missing = dev, false
	v.publish(v.m.Load().chunks)
}

// NextDevid is the number of the next device. Models find_next_devid().
func (v *Volumes) NextDevid() uint64 {
	next := uint64(1)
	for _, d := range v.devices {
		next = max(next, d.Devid()+1)
	}
	return next
}

// copyUnit is how many bytes of a stripe are copied at once.
const copyUnit = 1 << 20

// CopyStripes writes what lies on d, stripe by stripe, to the same places of dev, which is to take
// its place. What cannot be read from d, or all if d is missing, is made from the other stripes; no
// checksum is looked at. Zeros are not written where zeros are. each, if set, is told of the bytes
// that were copied and of all, and ends it with an error.
//
// Errors: EIO for what no stripe has, with its chunk. Models scrub_enumerate_chunks() for a
// dev-replace. Difference: the kernel looks at checksums at once; here a scrub comes after.
func (v *Volumes) CopyStripes(t *sched.Task, d *Device, dev blockdev.Device, each func(done, all uint64) error) error {
	var done, all uint64
	for _, c := range v.Chunks() {
		all += c.DeviceBytes(len(v.devices))[d.index]
	}
	for _, c := range v.Chunks() {
		for i, s := range c.Chunk.Stripes {
			for off := uint64(0); c.devs[i] == d && off < c.Chunk.StripeBytes(); off += copyUnit {
				n := min(copyUnit, c.Chunk.StripeBytes()-off)
				if err := v.copyPart(t, &c, i, off, n, dev); err != nil {
					return fmt.Errorf("chunk %d, stripe at %d: %w", c.Logical, s.Offset, err)
				}
				if done += n; each != nil {
					if err := each(done, all); err != nil {
						return err
					}
				}
			}
		}
	}
	return blockdev.Flush(t, dev)
}

// copyPart copies n bytes of a stripe of c, at an offset in it.
func (v *Volumes) copyPart(t *sched.Task, c *ChunkInfo, i int, off, n uint64, dev blockdev.Device) error {
	at := int64(c.Chunk.Stripes[i].Offset + off)
	p, old := make([]byte, n), make([]byte, n)
	if c.devs[i].missing || blockdev.Read(t, c.devs[i].Device, p, at) != nil {
		if err := v.remakeStripe(t, p, c, i, off); err != nil {
			return err
		}
	}
	if err := blockdev.Read(t, dev, old, at); err != nil {
		return err
	}
	if bytes.Equal(p, old) {
		return nil
	}
	return blockdev.Write(t, dev, p, at)
}

// remakeStripe fills p with bytes of a stripe of c, at an offset in it, from what makes them.
func (v *Volumes) remakeStripe(t *sched.Task, p []byte, c *ChunkInfo, i int, off uint64) error {
	for len(p) > 0 {
		n := min(uint64(len(p)), format.StripeLen-off%format.StripeLen)
		delta, data := c.Chunk.DataAt(i, off)
		var err error
		if data {
			err = v.readOthers(t, p[:n], c, i, delta)
		} else {
			err = c.remakeParity(t, p[:n], i, off)
		}
		if err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// readOthers fills p with the bytes of c from delta on, from another stripe than i.
func (v *Volumes) readOthers(t *sched.Task, p []byte, c *ChunkInfo, i int, delta uint64) error {
	at := c.locate(delta)
	err := error(errno.EIO)
	for m := range c.profile.Mirrors(len(c.devs)) {
		if m < at.Copies && at.First+m == i {
			continue
		}
		if err = v.readPiece(t, p, c, at, m); err == nil {
			return nil
		}
	}
	return fmt.Errorf("logical %d len %d: %w", c.Logical+delta, len(p), err)
}

// remakeParity fills p with the parity that stripe i of c has at the offset. A data unit that is
// bad as well is made from the rest of the row.
func (c *ChunkInfo) remakeParity(t *sched.Task, p []byte, i int, off uint64) error {
	n, row := len(c.devs), off/format.StripeLen
	data := make([][]byte, n-c.profile.Parity)
	for k := range data {
		data[k] = make([]byte, len(p))
		s := format.RowStripe(n, row, k)
		if blockdev.Read(t, c.devs[s].Device, data[k], int64(c.Chunk.Stripes[s].Offset+off)) == nil {
			continue
		}
		if err := c.rebuild(t, data[k:k+1], format.Piece{Row: row, Data: k, Off: off}, 1); err != nil {
			return err
		}
	}
	units := format.MakeParity(data, c.profile.Parity)
	if i == format.RowStripe(n, row, n-1) { // the last unit of a row: P of RAID5, Q of RAID6
		copy(p, units[len(units)-1])
	} else {
		copy(p, units[0])
	}
	return nil
}

package check

import (
	"bytes"
	"errors"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

// superRules are about superblocks, and places that cannot be read.
var superRules = []Rule{
	{"device.read", "every place that is used can be read", "what lies there can be read from another copy, if there is one"},
	{"super.bad", "the primary superblock passes format.CheckSuper (10.1)", "nothing mounts it; rescue fix-super, or rescue copy"},
	{"super.copy", "every copy in range is a whole superblock, and equal to the primary if of the same generation", "the image works; the spare is bad: scrub, or rescue fix-super"},
	{"super.sys_array", "the system chunk array is an exact copy of all SYSTEM chunks (7)", "a mount may not find the chunk tree"},
	{"super.bytes_used", "bytes_used is the sum of the block groups' used (5)", "df is wrong"},
	{"super.dev_item", "the superblock's dev item is the chunk tree's (6)", "the device's sizes are wrong until the next commit"},
	{"super.device", "every device of the file system is there, with the superblock of the last commit", "the device has missed commits: what it has is old"},
}

// checkSuper reads the primary superblocks into c.devs, the newest into c.sb, and judges their
// copies.
func (c *checker) checkSuper() error {
	for _, d := range c.Devs {
		if err := c.checkSuperOf(d); err != nil {
			return err
		}
		if d.Super.Generation > c.Super.Generation {
			c.Super = d.Super
		}
	}
	if c.Super.Metadump() {
		c.noData = true
		c.note("btrfs-image restored this image without file data: data checksums are not verified")
	}
	return c.checkMembers()
}

// checkMembers judges the devices as a whole. Devices that do not belong together, or not all, are
// an error.
func (c *checker) checkMembers() error {
	first := c.Devs[0]
	for i, d := range c.Devs {
		if d.Super.FSID != first.Super.FSID {
			return blockdev.Errorf(d, "device of another file system, have fsid %v want %v, that of %s", d.Super.FSID, first.Super.FSID, first.Name())
		}
		for _, o := range c.Devs[:i] {
			if o.ID() == d.ID() {
				return blockdev.Errorf(d, "is device %d of the file system, as %s is", d.ID(), o.Name())
			}
		}
		// A commit writes the devices' superblocks one by one.
		switch where := on(AtDevid, d.ID()).ofDevice(d.Name()); {
		case d.Super.Generation+1 == c.Super.Generation:
			c.note("the superblock of device %d has generation %d, another %d", d.ID(), d.Super.Generation, c.Super.Generation)
		case d.Super.Generation < c.Super.Generation:
			c.find("super.device", where, words("generation %d", d.Super.Generation), num(c.Super.Generation))
		case d.Super.Root != c.Super.Root || d.Super.ChunkRoot != c.Super.ChunkRoot || d.Super.NumDevices != c.Super.NumDevices || d.Super.TotalBytes != c.Super.TotalBytes:
			c.find("super.device", where, Words("other contents than that of another device of the same generation"), nil)
		}
	}
	if uint64(len(c.Devs)) != c.Super.NumDevices {
		return blockdev.Errorf(first, "file system of %d devices, have %d: name the others with --device", c.Super.NumDevices, len(c.Devs))
	}
	return nil
}

// checkSuperOf reads the primary superblock of one device and judges its copies.
func (c *checker) checkSuperOf(d *Device) error {
	size := d.Size()
	var place Place // which device
	if len(c.Devs) > 1 {
		place = place.ofDevice(d.Name())
	}
	if size < format.SuperOffset+format.SuperSize {
		c.find("super.bad", Place{}.ofDevice(d.Name()), words("%d bytes", size), words("at least %d", format.SuperOffset+format.SuperSize))
		return errStop
	}
	p := make([]byte, format.SuperSize)
	if err := blockdev.Read(c.Task, d, p, format.SuperOffset); err != nil {
		return blockdev.Errorf(d, "read of the superblock at %d: %w", format.SuperOffset, err)
	}
	err := format.CheckSuper(p, size)
	var unsupported *format.UnsupportedError
	if errors.As(err, &unsupported) {
		return blockdev.Errorf(d, "%w", err)
	}
	if err != nil {
		c.findErr("super.bad", place.with(AtBytenr, format.SuperOffset), err)
		c.wholeCopies(d)
		return errStop
	}
	d.Super.Decode(p)
	limit := min(size, int64(d.Super.DevItem.TotalBytes))
	q := make([]byte, format.SuperSize)
	for i := 1; i < format.SuperMirrorMax; i++ {
		if off := format.SuperMirror(i); int64(off)+format.SuperSize <= limit {
			c.checkCopy(d, place.with(AtCopy, uint64(i)).with(AtBytenr, off), off, p, q)
		}
	}
	return nil
}

// checkCopy judges the superblock copy at off, which is read into q, by the primary p.
func (c *checker) checkCopy(d *Device, where Place, off uint64, p, q []byte) {
	if err := blockdev.Read(c.Task, d, q, int64(off)); err != nil {
		c.find("device.read", where, words("%v", err), nil)
		return
	}
	if d.Super.Metadump() && format.SuperMagic(q) == 0 {
		c.note("no superblock copy at %d: btrfs-image does not restore it", off)
		return
	}
	if err := format.CheckSuperAt(q, d.Size(), off); err != nil {
		c.findErr("super.copy", where, err)
		return
	}
	// A commit writes the copies one by one, and a log commit only the primary.
	if s := format.DecodeSuper(q); s.Generation != d.Super.Generation {
		c.note("the superblock copy at %d has generation %d, the primary %d", off, s.Generation, d.Super.Generation)
	} else if !SameSuper(p, q) {
		c.find("super.copy", where, Words("other contents than the primary of the same generation"), nil)
	}
}

// wholeCopies notes the copies that are whole, of a device whose primary superblock is not.
func (c *checker) wholeCopies(d *Device) {
	q := make([]byte, format.SuperSize)
	for i := 1; i < format.SuperMirrorMax; i++ {
		off := format.SuperMirror(i)
		if int64(off)+format.SuperSize > d.Size() {
			continue
		}
		if err := blockdev.Read(c.Task, d, q, int64(off)); err != nil {
			c.find("device.read", on(AtCopy, uint64(i)).with(AtBytenr, off), words("%v", err), nil)
		} else if format.CheckSuperAt(q, d.Size(), off) == nil {
			c.note("the superblock copy at %d is whole: generation %d", off, format.DecodeSuper(q).Generation)
		}
	}
}

// SameSuper compares two superblocks but for checksum, place, and the log root. Bytes beyond the
// end of the system chunk array mean nothing: Linux leaves old ones there.
func SameSuper(p, q []byte) bool {
	strip := func(p []byte) []byte {
		p = bytes.Clone(p)
		clear(p[:0x20])
		clear(p[0x30:0x38])
		clear(p[0x60:0x70])
		p[0xc8] = 0
		end := format.SysChunkArrayOffset + min(int(le.Uint32(p[0xa0:])), format.SysChunkArrayMax)
		clear(p[end : format.SysChunkArrayOffset+format.SysChunkArrayMax])
		return p
	}
	return bytes.Equal(strip(p), strip(q))
}

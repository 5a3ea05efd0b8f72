package image

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// SuperCopy is one superblock of a device.
type SuperCopy struct {
	Device     string
	Copy       int
	Bytenr     uint64
	Generation uint64
	Err        error // why it is not whole, or nil
	Super      format.Super
	Raw        []byte // nil: it cannot be read
	Dev        blockdev.Device
}

// HasSuper reports whether a device has room for the superblock copy i; 0 is the primary.
func HasSuper(dev blockdev.Device, i int) bool {
	return i < format.SuperMirrorMax && int64(format.SuperMirror(i))+format.SuperSize <= dev.Size()
}

// ReadSuper reads the superblock copy i of a device; 0 is the primary.
func ReadSuper(t *sched.Task, dev blockdev.Device, i int) SuperCopy {
	off := format.SuperMirror(i)
	s := SuperCopy{Device: dev.Name(), Copy: i, Bytenr: off, Dev: dev}
	if !HasSuper(dev, i) {
		s.Err = blockdev.Errorf(dev, "no superblock, the device has %d bytes", dev.Size())
		return s
	}
	b := make([]byte, format.SuperSize)
	if s.Err = blockdev.Read(t, dev, b, int64(off)); s.Err != nil {
		return s
	}
	s.Raw = b
	if s.Err = format.CheckSuperAt(b, dev.Size(), off); s.Err == nil {
		s.Super.Decode(b)
		s.Generation = s.Super.Generation
	}
	return s
}

// Unread is the error of a superblock that cannot be read, with its place.
func (s *SuperCopy) Unread() error {
	if !HasSuper(s.Dev, s.Copy) {
		return s.Err
	}
	return blockdev.Errorf(s.Dev, "read of the superblock at %d: %w", s.Bytenr, s.Err)
}

// Supers reads every superblock that has room on the devices.
func Supers(t *sched.Task, devs ...blockdev.Device) (list []SuperCopy) {
	for _, d := range devs {
		for i := 0; HasSuper(d, i); i++ {
			list = append(list, ReadSuper(t, d, i))
		}
	}
	return list
}

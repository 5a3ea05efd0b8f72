// Package rescue copies the files that are left of a damaged image (Open, Image.Copy), and changes
// an image superblock by superblock: one that cannot be opened, or its identifier. It reads and
// writes through the format and blockdev packages only: what it is called for, the engine refuses.
package rescue

import (
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// ZeroLog makes the superblocks of a file system's devices and their copies point at no log. The
// file system is then as at its last commit: what was fsynced after it is gone. It returns the
// place and the level of the log that was there, 0 and 0 if there was none, and then nothing is
// written. Copies of another generation, and those that are no superblock, stay as they are.
//
// Models btrfs-progs: rescue zero-log. Difference: a primary superblock that is bad is an error,
// and no copy is used.
func ZeroLog(t *sched.Task, devs ...blockdev.Device) (bytenr uint64, level uint8, err error) {
	for _, dev := range devs {
		at, l, err := zeroLog(t, dev)
		if err != nil {
			return 0, 0, err
		}
		if bytenr == 0 {
			bytenr, level = at, l
		}
	}
	return bytenr, level, nil
}

// zeroLog is ZeroLog of one device.
func zeroLog(t *sched.Task, dev blockdev.Device) (bytenr uint64, level uint8, err error) {
	err = edit(t, dev, func(s *format.Super, b []byte) bool {
		if s.LogRoot == 0 {
			return false
		}
		if bytenr == 0 {
			bytenr, level = s.LogRoot, s.LogRootLevel
		}
		format.ClearLog(b)
		return true
	})
	return bytenr, level, err
}

// SetFSID gives a file system another identifier, in the superblocks of all its devices: tree
// blocks keep the old one. Linux reads that since 5.0.
//
// Models btrfs-progs: btrfstune -M.
func SetFSID(t *sched.Task, id format.UUID, devs ...blockdev.Device) error {
	for _, dev := range devs {
		err := edit(t, dev, func(_ *format.Super, b []byte) bool {
			format.SetFSID(b, id)
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// edit lets change have the primary superblock and the copies of the same generation, decoded and
// as bytes, and writes those for which it is true. When it is not of the primary, it is not asked
// again.
func edit(t *sched.Task, dev blockdev.Device, change func(s *format.Super, b []byte) bool) error {
	size := dev.Size()
	if size < format.SuperOffset+format.SuperSize {
		return blockdev.Errorf(dev, "no superblock, the device has %d bytes", size)
	}
	generation := uint64(0)
	for i := range format.SuperMirrorMax {
		off := format.SuperMirror(i)
		if int64(off)+format.SuperSize > size {
			break
		}
		b := make([]byte, format.SuperSize)
		if err := blockdev.Read(t, dev, b, int64(off)); err != nil {
			return blockdev.Errorf(dev, "read of the superblock at %d: %w", off, err)
		}
		if err := format.CheckSuperAt(b, size, off); err != nil {
			if i == 0 {
				return blockdev.Errorf(dev, "%w", err)
			}
			continue
		}
		var s format.Super
		s.Decode(b)
		if i == 0 {
			generation = s.Generation
		}
		if s.Generation != generation {
			continue
		}
		if !change(&s, b) {
			if i == 0 {
				return nil
			}
			continue
		}
		if err := blockdev.Write(t, dev, b, int64(off)); err != nil {
			return blockdev.Errorf(dev, "write of the superblock at %d: %w", off, err)
		}
	}
	if err := blockdev.Flush(t, dev); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// Package rescue changes an image that cannot be opened, superblock by superblock. It reads and
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
	size := dev.Size()
	if size < format.SuperOffset+format.SuperSize {
		return 0, 0, blockdev.Errorf(dev, "no superblock, the device has %d bytes", size)
	}
	var s format.Super
	for i := range format.SuperMirrorMax {
		off := format.SuperMirror(i)
		if int64(off)+format.SuperSize > size {
			break
		}
		b := make([]byte, format.SuperSize)
		if err := blockdev.Read(t, dev, b, int64(off)); err != nil {
			return 0, 0, blockdev.Errorf(dev, "read of the superblock at %d: %w", off, err)
		}
		if err := format.CheckSuperAt(b, size, off); err != nil {
			if i == 0 {
				return 0, 0, blockdev.Errorf(dev, "%w", err)
			}
			continue
		}
		var c format.Super
		c.Decode(b)
		if i == 0 {
			if s = c; s.LogRoot == 0 {
				return 0, 0, nil
			}
		}
		if c.Generation != s.Generation || c.LogRoot == 0 {
			continue
		}
		format.ClearLog(b)
		if err := blockdev.Write(t, dev, b, int64(off)); err != nil {
			return 0, 0, blockdev.Errorf(dev, "write of the superblock at %d: %w", off, err)
		}
	}
	if err := blockdev.Flush(t, dev); err != nil {
		return 0, 0, fmt.Errorf("flush: %w", err)
	}
	return s.LogRoot, s.LogRootLevel, nil
}

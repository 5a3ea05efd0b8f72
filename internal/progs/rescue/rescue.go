// Package rescue copies the files that are left of a damaged image (Open, Image.Copy), and changes
// an image superblock by superblock: one that cannot be opened, or its identifier. It reads and
// writes through the format and blockdev packages only: what it is called for, the engine refuses.
package rescue

import (
	"bytes"
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/image"
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
	err = edit(t, devs, func(s *format.Super, b []byte) bool {
		if s.LogRoot == 0 {
			return false
		}
		if bytenr == 0 {
			bytenr, level = s.LogRoot, s.LogRootLevel
		}
		format.ClearLog(b)
		return true
	})
	if err != nil {
		return 0, 0, err
	}
	return bytenr, level, nil
}

// SetFSID gives a file system another identifier, in the superblocks of all its devices: tree
// blocks keep the old one. Linux reads that since 5.0.
//
// Models btrfs-progs: btrfstune -M.
func SetFSID(t *sched.Task, id format.UUID, devs ...blockdev.Device) error {
	return edit(t, devs, func(_ *format.Super, b []byte) bool {
		format.SetFSID(b, id)
		return true
	})
}

// edited is a superblock that changes.
type edited struct {
	dev      blockdev.Device
	off      int64
	old, new []byte
}

// edit lets change have the primary superblock of each device and the copies of the same
// generation, decoded and as bytes, and writes those for which it is true: the primaries first.
// When it is not of a primary, it is not asked for the copies of that device. Nothing is written
// before all are read; after a write that fails, what was written is put back as far as that goes,
// so that the devices stay those of one file system.
func edit(t *sched.Task, devs []blockdev.Device, change func(s *format.Super, b []byte) bool) error {
	var primaries, copies []edited
	for _, dev := range devs {
		list, err := editsOf(t, dev, change)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			primaries, copies = append(primaries, list[0]), append(copies, list[1:]...)
		}
	}
	all := append(primaries, copies...)
	err := write(t, all)
	for i := 0; i < len(devs) && err == nil && len(all) > 0; i++ {
		if err = blockdev.Flush(t, devs[i]); err != nil {
			err = fmt.Errorf("flush: %w", err)
			for _, e := range all {
				_ = blockdev.Write(t, e.dev, e.old, e.off) // err says what is wrong
			}
		}
	}
	return err
}

// write writes the superblocks, or none of them.
func write(t *sched.Task, list []edited) error {
	for i, e := range list {
		if err := blockdev.Write(t, e.dev, e.new, e.off); err != nil {
			for _, e := range list[:i+1] {
				_ = blockdev.Write(t, e.dev, e.old, e.off)
			}
			return blockdev.Errorf(e.dev, "write of the superblock at %d: %w", e.off, err)
		}
	}
	return nil
}

// editsOf lists the superblocks of a device that change, the primary first.
func editsOf(t *sched.Task, dev blockdev.Device, change func(s *format.Super, b []byte) bool) (list []edited, err error) {
	generation := uint64(0)
	for i := 0; i == 0 || image.HasSuper(dev, i); i++ {
		s := image.ReadSuper(t, dev, i)
		if s.Err != nil {
			switch {
			case i > 0:
				continue
			case s.Raw == nil:
				return nil, s.Unread()
			}
			return nil, blockdev.Errorf(dev, "%w", s.Err)
		}
		if i == 0 {
			generation = s.Generation
		}
		if s.Generation != generation {
			continue
		}
		old := bytes.Clone(s.Raw)
		if change(&s.Super, s.Raw) {
			list = append(list, edited{dev, int64(s.Bytenr), old, s.Raw})
		} else if i == 0 {
			return nil, nil
		}
	}
	return list, nil
}

package mkfs

import (
	"encoding/binary"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// target is a device of the file system to be.
type target struct {
	blockdev.Device
	t    *sched.Task
	id   uint64
	uuid format.UUID
	size uint64 // bytes that the file system has
	next uint64 // the end of the chunks that have their place
}

// room is the bytes after the chunks.
func (d *target) room() uint64 { return d.size - min(d.size, d.next) }

// probe is an error if the device holds something, unless force is set.
func (d *target) probe(force bool) error {
	if force {
		return nil
	}
	found, err := Probe(d.t, d.Device)
	if err == nil && found != "" {
		err = &ExistsError{d.Name(), found}
	}
	return err
}

func (d *target) put(p []byte, off uint64) error {
	if err := blockdev.Write(d.t, d.Device, p, int64(off)); err != nil {
		return blockdev.Errorf(d, "write of %d bytes at %d: %w", len(p), off, err)
	}
	return nil
}

func (d *target) flush() error {
	if err := blockdev.Flush(d.t, d.Device); err != nil {
		return blockdev.Errorf(d, "flush: %w", err)
	}
	return nil
}

// putSuper writes the superblock copy at off, if the file system reaches so far.
func (d *target) putSuper(sb *format.Super, off uint64) error {
	if off+format.SuperSize > d.size {
		return nil
	}
	p := make([]byte, format.SuperSize)
	sb.Bytenr = off
	sb.Encode(p)
	if err := format.CheckSuperAt(p, int64(d.size), off); err != nil {
		panic("mkfs: made a bad superblock: " + err.Error())
	}
	return d.put(p, off)
}

// wipe zeroes both ends of the device, where other file systems keep their signatures, and every
// place of a superblock copy, those beyond the new file system too. What is zero already is not
// written, so a sparse file stays sparse.
func (d *target) wipe() error {
	const step = 256 << 10
	zero, buf := make([]byte, step), make([]byte, step)
	clean := func(from, to uint64) error {
		for off := from; off < to; off += step {
			p := buf[:min(step, to-off)]
			if err := blockdev.Read(d.t, d, p, int64(off)); err != nil {
				return blockdev.Errorf(d, "read of %d bytes at %d: %w", len(p), off, err)
			}
			if !isZero(p) {
				if err := d.put(zero[:len(p)], off); err != nil {
					return err
				}
			}
		}
		return nil
	}
	dev := format.AlignDown(uint64(d.Size()), format.SectorSize)
	// Only the primary counts at a mount; with it gone first, nothing old is left to mistake for
	// whole.
	if err := clean(format.SuperOffset, format.SuperOffset+format.SuperSize); err != nil {
		return err
	}
	if err := d.flush(); err != nil {
		return err
	}
	for i := 1; i < format.SuperMirrorMax; i++ {
		if off := format.SuperMirror(i); off+format.SuperSize <= dev {
			if err := clean(off, off+format.SuperSize); err != nil {
				return err
			}
		}
	}
	if err := clean(0, wipeBytes); err != nil {
		return err
	}
	return clean(dev-wipeBytes, dev)
}

func isZero(p []byte) bool {
	for len(p) >= 8 {
		if binary.LittleEndian.Uint64(p) != 0 {
			return false
		}
		p = p[8:]
	}
	for _, c := range p {
		if c != 0 {
			return false
		}
	}
	return true
}

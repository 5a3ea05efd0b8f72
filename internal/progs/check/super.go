package check

import (
	"bytes"
	"errors"
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

// checkSuper reads the primary superblock into c.sb and judges its copies.
func (c *checker) checkSuper() error {
	size := c.dev.Size()
	if size < format.SuperOffset+format.SuperSize {
		c.find("super.bad", "device="+c.dev.Name(), fmt.Sprintf("%d bytes", size), fmt.Sprintf("at least %d", format.SuperOffset+format.SuperSize))
		return errStop
	}
	p := make([]byte, format.SuperSize)
	if err := blockdev.Read(c.t, c.dev, p, format.SuperOffset); err != nil {
		return blockdev.Errorf(c.dev, "read of the superblock at %d: %w", format.SuperOffset, err)
	}
	err := format.CheckSuper(p, size)
	var unsupported *format.UnsupportedError
	if errors.As(err, &unsupported) {
		return blockdev.Errorf(c.dev, "%w", err)
	}
	if err != nil {
		c.findErr("super.bad", "bytenr=65536", err)
	} else {
		c.sb.Decode(p)
	}
	if err == nil && c.sb.Metadump() {
		c.noData = true
		c.note("btrfs-image restored this image without file data: data checksums are not verified")
	}
	limit := size
	if err == nil {
		limit = min(size, int64(c.sb.TotalBytes))
	}
	q := make([]byte, format.SuperSize)
	for i := 1; i < format.SuperMirrorMax; i++ {
		off := format.SuperMirror(i)
		if int64(off)+format.SuperSize > limit {
			continue
		}
		where := fmt.Sprintf("copy=%d bytenr=%d", i, off)
		if rerr := blockdev.Read(c.t, c.dev, q, int64(off)); rerr != nil {
			c.find("device.read", where, rerr.Error(), "")
			continue
		}
		if err == nil && c.sb.Metadump() && format.SuperMagic(q) == 0 {
			c.note("no superblock copy at %d: btrfs-image does not restore it", off)
			continue
		}
		cerr := format.CheckSuperAt(q, size, off)
		if err != nil {
			if cerr == nil {
				c.note("the superblock copy at %d is whole: generation %d", off, copyOf(q).Generation)
			}
			continue
		}
		if cerr != nil {
			c.findErr("super.copy", where, cerr)
			continue
		}
		// A commit writes the copies one by one, and a log commit only the primary.
		if s := copyOf(q); s.Generation != c.sb.Generation {
			c.note("the superblock copy at %d has generation %d, the primary %d", off, s.Generation, c.sb.Generation)
		} else if !sameSuper(p, q) {
			c.find("super.copy", where, "other contents than the primary of the same generation", "")
		}
	}
	if err != nil {
		return errStop
	}
	return nil
}

func copyOf(p []byte) (s format.Super) {
	s.Decode(p)
	return s
}

// sameSuper compares two superblocks but for checksum, place, and the log root.
func sameSuper(p, q []byte) bool {
	strip := func(p []byte) []byte {
		p = bytes.Clone(p)
		clear(p[:0x20])
		clear(p[0x30:0x38])
		clear(p[0x60:0x70])
		p[0xc8] = 0
		return p
	}
	return bytes.Equal(strip(p), strip(q))
}

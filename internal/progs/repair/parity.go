package repair

import (
	"errors"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
)

// What a rebuild writes into chunks of RAID5 and RAID6 goes with its parity. What is there is
// mended by copies.go.

// mapped is a chunk with which package image finds places and makes parity.
func mapped(ch *check.Chunk) image.Chunk {
	c := image.Chunk{Start: ch.Start, Length: ch.Length, Type: ch.Type, Profile: format.ProfileOf(ch.Type)}
	for _, s := range ch.Stripes {
		at := image.Stripe{Off: s.Off}
		if s.Dev != nil {
			at.Devid, at.Dev = s.Dev.ID(), &image.Device{Device: s.Dev, ID: s.Dev.ID()}
		}
		c.Stripes = append(c.Stripes, at)
	}
	return c
}

// put writes p, the bytes at a logical address in one unit, to every copy, with parity, in a way
// that rollback takes back.
func (c *changes) put(logical uint64, p []byte) error {
	ch := c.ChunkAt(logical)
	if ch == nil {
		return errors.New("its place is not known")
	}
	m := mapped(ch)
	return m.Put(c.Task, logical, p, c.writeAt)
}

// writeAt is write to a place.
func (c *changes) writeAt(at image.Stripe, p []byte) error {
	i := slices.IndexFunc(c.Devs, func(d *check.Device) bool { return d.ID() == at.Devid })
	if at.Dev == nil || i < 0 {
		return errors.New("a device is missing")
	}
	return c.write(c.Devs[i], p, int64(at.Off))
}

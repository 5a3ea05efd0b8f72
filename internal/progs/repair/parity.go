package repair

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
)

// RAID5 and RAID6. What breaks its checksum is made from the rest of its row, in each way there is,
// until the checksum is right; then parity is made anew where it is not its data's, unless some of
// that data is still bad.

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

// fromParity writes n bytes at logical, in one unit, as the rest of the row makes them, in the
// first way that is right. The parity stays: another unit may be bad that only it makes.
func (c *changes) fromParity(ch *check.Chunk, logical, n uint64, right func(p []byte) bool) error {
	m := mapped(ch)
	for way := range m.Rebuilds() {
		p := make([]byte, n)
		if m.Rebuild(c.Task, p, logical, way) && right(p) {
			places, _ := m.Places(logical)
			return c.writeAt(places[0], p)
		}
	}
	return errors.New("the rest of its row does not make it")
}

// sums are the checksums of n bytes of data at logical; nil if the checksum tree has not all.
func (c *changes) sums(logical, n uint64) (sums []byte) {
	size, sector := uint64(c.Super.CsumType.Size()), uint64(c.Super.SectorSize)
	for at := logical; at < logical+n; at += sector {
		key := format.Key{Objectid: format.EXTENT_CSUM_OBJECTID, Type: format.EXTENT_CSUM_KEY, Offset: at}
		leaf, err := c.leafFor(format.CSUM_TREE_OBJECTID, key)
		if err != nil {
			return nil
		}
		slot, found := leaf.Search(key)
		if !found {
			slot--
		}
		if slot < 0 {
			return nil
		}
		k, b := leaf.Key(slot), leaf.Item(slot)
		i := (at - k.Offset) / sector * size
		if k.Type != key.Type || at < k.Offset || i+size > uint64(len(b)) {
			return nil
		}
		sums = append(sums, b[i:i+size]...)
	}
	return sums
}

// dataFromParity makes data that breaks its checksums from the rest of its row.
func (c *changes) dataFromParity(ch *check.Chunk, logical, n uint64) error {
	sums := c.sums(logical, n)
	if sums == nil {
		return errors.New("its checksums cannot be read")
	}
	size, sector := c.Super.CsumType.Size(), int(c.Super.SectorSize)
	for i := range len(sums) / size {
		err := c.fromParity(ch, logical+uint64(i*sector), uint64(sector), func(p []byte) bool {
			sum := c.Super.CsumType.Sum(p)
			return bytes.Equal(sum[:size], sums[i*size:(i+1)*size])
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mendParity makes parity anew that is not its data's.
func (c *changes) mendParity() {
	for i := range c.Findings {
		if f := &c.Findings[i]; f.Rule == "data.parity" {
			c.try(c.fixParity(f))
		}
	}
}

// fixParity makes the parity of one column of a row anew.
func (c *changes) fixParity(f *check.Finding) (string, error) {
	start, row := f.Place.Num(check.AtLogical), f.Place.Num(check.AtRow)
	what := fmt.Sprintf("parity of row %d of chunk %d", row, start)
	ch := c.ChunkAt(start)
	if ch == nil || ch.Parity() == 0 {
		return what, errors.New("its place is not known")
	}
	m := mapped(ch)
	units := uint64(m.Profile.DataStripes(len(m.Stripes)))
	i := slices.IndexFunc(ch.Stripes, func(s check.Stripe) bool { return s.Dev != nil && s.Dev.ID() == f.Place.Num(check.AtDevid) })
	if i < 0 {
		return what, errors.New("its device is not known")
	}
	in := (f.Place.Num(check.AtDeviceOffset) - ch.Stripes[i].Off) % format.StripeLen
	at := func(unit uint64) uint64 { return start + (row*units+unit)*format.StripeLen + in }
	for unit := range units {
		if rule := c.badAt(at(unit), format.SectorSize); rule != "" {
			return what, fmt.Errorf("data at %d breaks %s", at(unit), rule)
		}
	}
	what += fmt.Sprintf(", %d bytes on each device at %d of its stripe", format.SectorSize, row*format.StripeLen+in)
	places, _ := m.Places(at(0))
	p := make([]byte, format.SectorSize)
	if err := places[0].Read(c.Task, p); err != nil {
		return what, err
	}
	return what + " made from the data", c.put(at(0), p)
}

// badAt is a rule that says that something of n bytes at logical is bad; "" if nothing is.
func (c *changes) badAt(logical, n uint64) string {
	for i := range c.Findings {
		f := &c.Findings[i]
		at, long := f.Place.Num(check.AtLogical), f.Place.Num(check.AtLength)
		switch f.Rule {
		case "tree.csum", "tree.block", "tree.read":
			at, long = f.Place.Num(check.AtBlock), uint64(c.Super.NodeSize)
		case "data.csum", "data.read":
		default:
			continue
		}
		if at < logical+n && logical < at+long {
			return f.Rule
		}
	}
	return ""
}

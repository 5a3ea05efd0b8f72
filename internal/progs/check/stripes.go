package check

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

// Where the bytes of a chunk lie, in this walker's own arithmetic.

// device is one device of the file system.
type device struct {
	blockdev.Device
	sb    format.Super // its own
	total uint64       // its size as the chunk tree says
	used  uint64
	exts  []devExtent // ascending
}

func (d *device) id() uint64 { return d.sb.DevItem.Devid }

// stripe is one stripe of a chunk.
type stripe struct {
	dev *device // nil: none that is known
	off uint64
}

// chunk is a logical range and its stripes.
type chunk struct {
	start, length uint64
	typ           uint64
	stripes       []stripe
}

// parity is the number of parity units in a row.
func (ch *chunk) parity() int {
	switch ch.typ & format.BlockGroupProfileMask {
	case format.BlockGroupRAID5:
		return 1
	case format.BlockGroupRAID6:
		return 2
	}
	return 0
}

// width is the number of units in a row that have bytes of their own; 0 if each stripe has all.
func (ch *chunk) width() uint64 {
	n := uint64(len(ch.stripes))
	switch ch.typ & format.BlockGroupProfileMask {
	case format.BlockGroupRAID0:
		return n
	case format.BlockGroupRAID10:
		return n / 2
	case format.BlockGroupRAID5, format.BlockGroupRAID6:
		return n - uint64(ch.parity())
	}
	return 0
}

// stripeLength is the length of each device extent of the chunk.
func (ch *chunk) stripeLength() uint64 {
	if w := ch.width(); w > 0 {
		return ch.length / w
	}
	return ch.length
}

// places lists where the byte at logical lies, each copy once, and how many bytes from it on lie
// there, too.
func (ch *chunk) places(logical uint64) (list []stripe, run uint64) {
	in := logical - ch.start
	w := ch.width()
	if w == 0 {
		for _, s := range ch.stripes {
			list = append(list, stripe{s.dev, s.off + in})
		}
		return list, ch.length - in
	}
	unit, rest := in/format.StripeLen, in%format.StripeLen
	row, column := unit/w, unit%w
	first, copies := column, uint64(1)
	switch {
	case ch.parity() > 0: // each row begins one stripe later
		first = (column + row) % uint64(len(ch.stripes))
	case ch.typ&format.BlockGroupRAID10 != 0:
		first, copies = 2*column, 2
	}
	for _, s := range ch.stripes[first : first+copies] {
		list = append(list, stripe{s.dev, s.off + row*format.StripeLen + rest})
	}
	return list, format.StripeLen - rest
}

// row is the place in each stripe that belongs to that of the byte at logical.
func (ch *chunk) row(logical uint64) (list []stripe) {
	unit, rest := (logical-ch.start)/format.StripeLen, (logical-ch.start)%format.StripeLen
	for _, s := range ch.stripes {
		list = append(list, stripe{s.dev, s.off + unit/ch.width()*format.StripeLen + rest})
	}
	return list
}

// at names a place on a device: by its offset, and if there are several devices by the number, too.
func (c *checker) at(s stripe) Place {
	if len(c.devs) == 1 {
		return on(AtDeviceOffset, s.off)
	}
	if s.dev == nil {
		return on(AtNoDevice, 0)
	}
	return on(AtDevid, s.dev.id()).with(AtDeviceOffset, s.off)
}

// deviceOf is the device with the number and the uuid; nil if none has them.
func (c *checker) deviceOf(s format.Stripe) *device {
	for _, d := range c.devs {
		if d.id() == s.Devid && d.sb.DevItem.UUID == s.DevUUID {
			return d
		}
	}
	return nil
}

// checkParity compares the parity of RAID5 and RAID6 with the data of its row, where tree blocks
// and data with checksums are. What nobody has written, such as preallocated space, may have any.
func (c *checker) checkParity(in span) {
	for i := range c.chunks {
		if ch := &c.chunks[i]; ch.parity() > 0 && ch.start >= in.start && ch.start < in.end {
			c.parityOf(ch)
		}
	}
}

func (c *checker) parityOf(ch *chunk) {
	rowBytes := ch.width() * format.StripeLen
	// of each row the sectors of a unit that are in use in one of its units
	used := make([][format.StripeLen / format.SectorSize]bool, ch.length/rowBytes)
	mark := func(start, end uint64) {
		for at := max(start, ch.start); at < min(end, ch.start+ch.length); at += format.SectorSize {
			in := at - ch.start
			used[in/rowBytes][in%format.StripeLen/format.SectorSize] = true
		}
	}
	for _, s := range c.csums {
		mark(s.start, s.end)
	}
	for _, b := range c.blocks {
		mark(b.bytenr, b.bytenr+uint64(c.sb.NodeSize))
	}
	row := make([][]byte, len(ch.stripes))
	for i := range row {
		row[i] = make([]byte, format.SectorSize)
	}
	for r := range used {
		for k, ok := range used[r] {
			if ok {
				c.paritySector(ch, row, uint64(r), uint64(k)*format.SectorSize)
			}
		}
	}
}

// paritySector checks the sector at the offset in of each unit of row r. The memory is a sector for
// each stripe.
func (c *checker) paritySector(ch *chunk, memory [][]byte, r, in uint64) {
	n, w := uint64(len(ch.stripes)), ch.width()
	places := make([]stripe, n) // data, P, Q
	for i := range places {
		s := ch.stripes[(uint64(i)+r)%n]
		places[i] = stripe{s.dev, s.off + r*format.StripeLen + in}
		if s.dev == nil || blockdev.Read(c.t, s.dev, memory[i], int64(places[i].off)) != nil {
			return // said elsewhere
		}
	}
	for i := range format.SectorSize {
		var p, q byte
		for k := int(w) - 1; k >= 0; k-- { // q = d0 + 2 (d1 + 2 (d2 + ...))
			double := q << 1
			if q >= 0x80 {
				double ^= 0x1d
			}
			q = double ^ memory[k][i]
			p ^= memory[k][i]
		}
		for k, want := range []byte{p, q}[:ch.parity()] {
			if have := memory[int(w)+k][i]; have != want {
				c.find("data.parity", on(AtLogical, ch.start).with(AtRow, r).with(AtParity, uint64("PQ"[k])).joined(c.at(places[int(w)+k])), words("0x%02x at byte %d", have, i), words("0x%02x", want))
				return
			}
		}
	}
}

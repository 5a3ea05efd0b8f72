package check

import (
	"btrlab/internal/blockdev"
	"btrlab/internal/format"
)

// Where the bytes of a chunk lie, in this walker's own arithmetic.

// parityRules are about RAID5 and RAID6.
var parityRules = []Rule{
	{"data.parity", "the parity of a row is that of its data", "a device that fails takes this data with it"},
}

// Device is one device of the file system.
type Device struct {
	blockdev.Device
	Super   format.Super // its own
	Total   uint64       // its size as the chunk tree says
	Used    uint64
	Extents []DevExtent // ascending
	Scanned Scanned
}

// ID is the number that the device has in the file system.
func (d *Device) ID() uint64 { return d.Super.DevItem.Devid }

// Stripe is one stripe of a chunk.
type Stripe struct {
	Dev *Device // nil: none that is known
	Off uint64
}

// Chunk is a logical range and its stripes.
type Chunk struct {
	Start, Length uint64
	Type          uint64
	Stripes       []Stripe
}

// Parity is the number of parity units in a row.
func (ch *Chunk) Parity() int {
	switch ch.Type & format.BlockGroupProfileMask {
	case format.BlockGroupRAID5:
		return 1
	case format.BlockGroupRAID6:
		return 2
	}
	return 0
}

// width is the number of units in a row that have bytes of their own; 0 if each stripe has all.
func (ch *Chunk) width() uint64 {
	n := uint64(len(ch.Stripes))
	switch ch.Type & format.BlockGroupProfileMask {
	case format.BlockGroupRAID0:
		return n
	case format.BlockGroupRAID10:
		return n / 2
	case format.BlockGroupRAID5, format.BlockGroupRAID6:
		return n - uint64(ch.Parity())
	}
	return 0
}

// StripeLength is the length of each device extent of the chunk.
func (ch *Chunk) StripeLength() uint64 {
	if w := ch.width(); w > 0 {
		return ch.Length / w
	}
	return ch.Length
}

// Places lists where the byte at logical lies, each copy once, and how many bytes from it on lie
// there, too.
func (ch *Chunk) Places(logical uint64) (list []Stripe, run uint64) {
	in := logical - ch.Start
	w := ch.width()
	if w == 0 {
		for _, s := range ch.Stripes {
			list = append(list, Stripe{s.Dev, s.Off + in})
		}
		return list, ch.Length - in
	}
	unit, rest := in/format.StripeLen, in%format.StripeLen
	row, column := unit/w, unit%w
	first, copies := column, uint64(1)
	switch {
	case ch.Parity() > 0: // each row begins one stripe later
		first = (column + row) % uint64(len(ch.Stripes))
	case ch.Type&format.BlockGroupRAID10 != 0:
		first, copies = 2*column, 2
	}
	for _, s := range ch.Stripes[first : first+copies] {
		list = append(list, Stripe{s.Dev, s.Off + row*format.StripeLen + rest})
	}
	return list, format.StripeLen - rest
}

// row is the place in each stripe that belongs to that of the byte at logical.
func (ch *Chunk) row(logical uint64) (list []Stripe) {
	unit, rest := (logical-ch.Start)/format.StripeLen, (logical-ch.Start)%format.StripeLen
	for _, s := range ch.Stripes {
		list = append(list, Stripe{s.Dev, s.Off + unit/ch.width()*format.StripeLen + rest})
	}
	return list
}

// at names a place on a device: by its offset, and if there are several devices by the number, too.
func (c *checker) at(s Stripe) Place {
	if len(c.Devs) == 1 {
		return on(AtDeviceOffset, s.Off)
	}
	if s.Dev == nil {
		return on(AtNoDevice, 0)
	}
	return on(AtDevid, s.Dev.ID()).with(AtDeviceOffset, s.Off)
}

// checkParity compares the parity of RAID5 and RAID6 with the data of its row, where tree blocks
// and data with checksums are. What nobody has written, such as preallocated space, may have any.
func (c *checker) checkParity(in Span) {
	for i := range c.Chunks {
		if ch := &c.Chunks[i]; ch.Parity() > 0 && ch.Start >= in.Start && ch.Start < in.End {
			c.parityOf(ch)
		}
	}
}

func (c *checker) parityOf(ch *Chunk) {
	rowBytes := ch.width() * format.StripeLen
	// of each row the sectors of a unit that are in use in one of its units
	used := make([][format.StripeLen / format.SectorSize]bool, ch.Length/rowBytes)
	mark := func(start, end uint64) {
		for at := max(start, ch.Start); at < min(end, ch.Start+ch.Length); at += format.SectorSize {
			in := at - ch.Start
			used[in/rowBytes][in%format.StripeLen/format.SectorSize] = true
		}
	}
	for _, s := range c.csums {
		mark(s.Start, s.End)
	}
	for _, b := range c.Blocks {
		mark(b.Bytenr, b.Bytenr+uint64(c.Super.NodeSize))
	}
	row := make([][]byte, len(ch.Stripes))
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
func (c *checker) paritySector(ch *Chunk, memory [][]byte, r, in uint64) {
	n, w := uint64(len(ch.Stripes)), ch.width()
	places := make([]Stripe, n) // data, P, Q
	for i := range places {
		s := ch.Stripes[(uint64(i)+r)%n]
		places[i] = Stripe{s.Dev, s.Off + r*format.StripeLen + in}
		if s.Dev == nil || blockdev.Read(c.Task, s.Dev, memory[i], int64(places[i].Off)) != nil {
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
		for k, want := range []byte{p, q}[:ch.Parity()] {
			if have := memory[int(w)+k][i]; have != want {
				if len(c.BadRows) < c.mostBad() {
					c.BadRows = append(c.BadRows, BadRow{ch, r, in})
				} else {
					c.MoreBad = true
				}
				c.find("data.parity", on(AtLogical, ch.Start).with(AtRow, r).with(AtParity, uint64("PQ"[k])).joined(c.at(places[int(w)+k])), words("0x%02x at byte %d", have, i), words("0x%02x", want))
				return
			}
		}
	}
}

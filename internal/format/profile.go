package format

import (
	"fmt"
	"math/bits"
)

// Profile is how a chunk's bytes lie on its stripes: a row of the table of RAID profiles.
//
// Models struct btrfs_raid_attr.
type Profile struct {
	Name       string // as mkfs.btrfs spells it
	Flag       uint64 // BlockGroupRAID0, ...; 0 is single
	SubStripes int    // neighbouring stripes with the same bytes, of several: RAID10
	DevStripes int    // stripes on one device
	DevsMin    int    // devices of a chunk
	DevsMax    int    // the same, 0 is no limit
	Increment  int    // the devices of a chunk are a multiple of it
	Copies     int    // of each byte
	Parity     int    // stripes of parity in each row
	Tolerated  int    // devices that may be missing
}

var profiles = [...]Profile{
	{Name: "single", Flag: 0, SubStripes: 1, DevStripes: 1, DevsMin: 1, DevsMax: 1, Increment: 1, Copies: 1},
	{Name: "raid0", Flag: BlockGroupRAID0, SubStripes: 1, DevStripes: 1, DevsMin: 1, Increment: 1, Copies: 1},
	{Name: "raid1", Flag: BlockGroupRAID1, SubStripes: 1, DevStripes: 1, DevsMin: 2, DevsMax: 2, Increment: 2, Copies: 2, Tolerated: 1},
	{Name: "dup", Flag: BlockGroupDup, SubStripes: 1, DevStripes: 2, DevsMin: 1, DevsMax: 1, Increment: 1, Copies: 2},
	{Name: "raid10", Flag: BlockGroupRAID10, SubStripes: 2, DevStripes: 1, DevsMin: 2, Increment: 2, Copies: 2, Tolerated: 1},
	{Name: "raid5", Flag: BlockGroupRAID5, SubStripes: 1, DevStripes: 1, DevsMin: 2, Increment: 1, Copies: 1, Parity: 1, Tolerated: 1},
	{Name: "raid6", Flag: BlockGroupRAID6, SubStripes: 1, DevStripes: 1, DevsMin: 3, Increment: 1, Copies: 1, Parity: 2, Tolerated: 2},
	{Name: "raid1c3", Flag: BlockGroupRAID1C3, SubStripes: 1, DevStripes: 1, DevsMin: 3, DevsMax: 3, Increment: 3, Copies: 3, Tolerated: 2},
	{Name: "raid1c4", Flag: BlockGroupRAID1C4, SubStripes: 1, DevStripes: 1, DevsMin: 4, DevsMax: 4, Increment: 4, Copies: 4, Tolerated: 3},
}

// Profiles lists all profiles.
func Profiles() []Profile { return profiles[:] }

// ProfileOf is the profile in the flags of a block group or chunk; nil if they name more than one.
func ProfileOf(flags uint64) *Profile {
	flag := flags & BlockGroupProfileMask
	if flag == 0 {
		return &profiles[0]
	}
	// The bits of the profiles are neighbours, and the rows are in their order.
	if bits.OnesCount64(flag) != 1 {
		return nil
	}
	return &profiles[1+bits.TrailingZeros64(flag)-bits.TrailingZeros64(BlockGroupRAID0)]
}

// ProfileIncompat are the features of the superblock that profiles ask for.
const ProfileIncompat = IncompatRAID56 | IncompatRAID1C34

// Incompat is the feature of the superblock that a file system with a chunk of the profile has; 0
// is none. Models btrfs_check_raid56_incompat_flag() and check_raid1c34_incompat_flag().
func (p *Profile) Incompat() uint64 {
	switch {
	case p.Parity > 0:
		return IncompatRAID56
	case p.Copies > 2:
		return IncompatRAID1C34
	}
	return 0
}

// Striped reports whether the profile puts neighbouring units of StripeLen bytes on different
// stripes. In all others each stripe has the whole chunk.
func (p *Profile) Striped() bool { return p.DevsMax == 0 }

// DataStripes is how many of n stripes would hold a chunk without its copies and its parity.
func (p *Profile) DataStripes(n int) int { return (n - p.Parity) / p.Copies }

// Mirrors is the number of ways to read a byte of a chunk with n stripes: its copies; or its stripe
// and one from the parity of the others; or of RAID6 its stripe and one for each other stripe that
// may be bad, too.
//
// Models fs/btrfs/volumes.c:btrfs_num_copies().
func (p *Profile) Mirrors(n int) int {
	switch p.Parity {
	case 1:
		return 2
	case 2:
		return n
	}
	return p.Copies
}

// Piece is where the bytes from one of a chunk on lie: Len bytes at the offset Off of each of the
// stripes First to First+Copies.
type Piece struct {
	First, Copies int
	Off, Len      uint64
	// Of a profile with parity: the row of units that they are a part of, and the place among the
	// data units in it.
	Row  uint64
	Data int
}

// Locate finds the piece of a chunk of n stripes and length bytes that begins at delta, which is
// less than length.
//
// Models fs/btrfs/volumes.c:btrfs_map_block().
func (p *Profile) Locate(n int, length, delta uint64) Piece {
	if !p.Striped() {
		return Piece{Copies: n, Off: delta, Len: length - delta}
	}
	unit, in := delta/StripeLen, delta%StripeLen
	data := uint64(p.DataStripes(n))
	row, i := unit/data, int(unit%data)
	at := Piece{First: i, Copies: 1, Off: row*StripeLen + in, Len: StripeLen - in, Row: row, Data: i}
	switch {
	case p.SubStripes > 1:
		at.First, at.Copies = i*p.SubStripes, p.SubStripes
	case p.Parity > 0:
		at.First = RowStripe(n, row, i)
	}
	return at
}

// RowStripe is the stripe that has the unit i of a row, in a chunk with parity of n stripes: the
// data units come first, then P, then Q. Each row begins one stripe further on.
func RowStripe(n int, row uint64, i int) int { return int((row + uint64(i)) % uint64(n)) }

// StripeBytes is the length of each stripe of the chunk, as its device extents have it; 0 if the
// chunk has fewer stripes than its profile needs.
//
// Models fs/btrfs/volumes.c:btrfs_calc_stripe_length().
func (c *Chunk) StripeBytes() uint64 {
	p := ProfileOf(c.Type)
	if p == nil || !p.Striped() {
		return c.Length
	}
	data := p.DataStripes(len(c.Stripes))
	if data < 1 {
		return 0
	}
	return c.Length / uint64(data)
}

// Covers lists the parts of a chunk, from its start on, that lie on a range of stripe n; of a
// profile with parity the whole rows. Ascending.
//
// Models fs/btrfs/block-group.c:btrfs_rmap_block().
func (c *Chunk) Covers(n int, in Range[uint64]) (out []Range[uint64]) {
	p := ProfileOf(c.Type)
	if !p.Striped() {
		return append(out, in)
	}
	units := uint64(p.DataStripes(len(c.Stripes))) // in a row
	for row := in.Start / StripeLen; row*StripeLen < in.End; row++ {
		r := RangeOf(row*units*StripeLen, units*StripeLen)
		if p.Parity == 0 {
			part := in.Intersect(RangeOf(row*StripeLen, StripeLen))
			r = RangeOf(r.Start+uint64(n/p.SubStripes)*StripeLen+part.Start%StripeLen, part.Len())
		}
		out = append(out, r)
	}
	return out
}

// DataAt is which byte of the chunk, from its start on, lies at the offset of stripe i; data is
// false for parity.
func (c *Chunk) DataAt(i int, off uint64) (delta uint64, data bool) {
	p, n := ProfileOf(c.Type), len(c.Stripes)
	if !p.Striped() {
		return off, true
	}
	row, in := off/StripeLen, off%StripeLen
	units, unit := p.DataStripes(n), i/p.SubStripes
	if p.Parity > 0 {
		unit = (i + n - int(row%uint64(n))) % n
	}
	return (row*uint64(units)+uint64(unit))*StripeLen + in, unit < units
}

// StripesWanted is the number of stripes that a chunk of the profile needs, as text, if it may not
// have n; else "".
func (p *Profile) StripesWanted(n int) string {
	switch {
	case p.DevsMax > 0 && n != p.DevsMax*p.DevStripes:
		return fmt.Sprint(p.DevsMax * p.DevStripes)
	case n < p.DevsMin:
		return fmt.Sprintf("at least %d", p.DevsMin)
	case n%p.Increment != 0:
		return fmt.Sprintf("a multiple of %d", p.Increment)
	}
	return ""
}

// BestProfile is the one among the profiles in flags that a new chunk takes on that many devices:
// the one with the most redundancy of those that have enough devices; 0, single, if none has.
// Devices that are missing do not count: what is written to one device of a RAID1 is single, in
// Linux too.
//
// Models fs/btrfs/block-group.c:btrfs_reduce_alloc_profile().
func BestProfile(flags uint64, devices int) uint64 {
	for _, best := range [...]uint64{BlockGroupRAID1C4, BlockGroupRAID6, BlockGroupRAID1C3, BlockGroupRAID5, BlockGroupRAID10, BlockGroupRAID1,
		BlockGroupDup, BlockGroupRAID0} {
		if flags&best != 0 && devices >= ProfileOf(best).DevsMin {
			return best
		}
	}
	return 0
}

package volumes

import (
	"fmt"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Parity: a row of a RAID5 or RAID6 chunk has one unit on each stripe, the data units, then P, and
// Q of RAID6. P is the sum of the data units in GF(2^8), where a sum is an exclusive or; Q is the
// sum of 2^i times data unit i.

// rebuild makes the bytes of a piece, whose own stripe is bad, from the others of its row. The
// mirror says which one other stripe is not to be used, for a caller to which the result of the
// mirrors before was wrong: 1 none; 2 P; from 3 on the data stripes, the last one first. A stripe
// that cannot be read is bad, too.
//
// Models fs/btrfs/raid56.c:raid56_parity_recover() and set_rbio_raid6_extra_error().
func (c *ChunkInfo) rebuild(t *sched.Task, vecs [][]byte, at format.Piece, mirror int) error {
	n := len(c.devs)
	size := 0
	for _, p := range vecs {
		size += len(p)
	}
	row := make([][]byte, n) // nil: bad
	skip := n
	if mirror > 1 {
		if skip = n - mirror; skip <= at.Data {
			skip--
		}
	}
	bad := 0
	for i := range row {
		s := format.RowStripe(n, at.Row, i)
		p := make([]byte, size)
		if i == at.Data || i == skip || blockdev.Read(t, c.devs[s].Device, p, int64(c.Chunk.Stripes[s].Offset+at.Off)) != nil {
			bad++
			continue
		}
		row[i] = p
	}
	if bad > c.profile.Parity {
		return fmt.Errorf("%d of %d stripes are bad, %s makes %d: %w", bad, n, c.profile.Name, c.profile.Parity, errno.EIO)
	}
	p := recoverUnit(row, c.profile.Parity, at.Data)
	for _, v := range vecs {
		p = p[copy(v, p):]
	}
	return nil
}

// recoverUnit makes the data unit x of a row, in which bad units are nil: x, and not more than
// there is parity. It may use the units' memory.
func recoverUnit(row [][]byte, parity, x int) []byte {
	data := len(row) - parity
	y := -1 // the other bad data unit
	for i, p := range row[:data] {
		if p == nil && i != x {
			y = i
		}
	}
	if p := row[data]; p != nil && y < 0 {
		for i, d := range row[:data] {
			if i != x {
				addTo(p, d, 1)
			}
		}
		return p
	}
	q := row[data+1]
	for i, d := range row[:data] {
		if d != nil {
			addTo(q, d, power(i))
		}
	}
	if y < 0 { // q is 2^x times the unit
		return times(q, inverse(power(x)))
	}
	p := row[data]
	for _, d := range row[:data] {
		if d != nil {
			addTo(p, d, 1)
		}
	}
	// p = x+y and q = 2^x x + 2^y y, so q + 2^y p = (2^x + 2^y) x.
	addTo(q, p, power(y))
	return times(q, inverse(power(x)^power(y)))
}

// addTo adds f times each byte of b to a.
func addTo(a, b []byte, f byte) {
	var table [256]byte
	for i := range table {
		table[i] = multiply(byte(i), f)
	}
	for i, v := range b {
		a[i] ^= table[v]
	}
}

// times multiplies each byte of a by f.
func times(a []byte, f byte) []byte {
	for i, v := range a {
		a[i] = multiply(v, f)
	}
	return a
}

// multiply multiplies in GF(2^8) modulo x^8+x^4+x^3+x^2+1, as the RAID6 of Linux has it.
func multiply(a, b byte) (m byte) {
	for ; b != 0; b >>= 1 {
		if b&1 != 0 {
			m ^= a
		}
		carry := a&0x80 != 0
		a <<= 1
		if carry {
			a ^= 0x1d
		}
	}
	return m
}

// power is 2^i.
func power(i int) byte {
	p := byte(1)
	for range i % 255 {
		p = multiply(p, 2)
	}
	return p
}

// inverse is 1/a = a^254.
func inverse(a byte) byte {
	p := byte(1)
	for range 254 {
		p = multiply(p, a)
	}
	return p
}

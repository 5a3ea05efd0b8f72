package format

import (
	"crypto/subtle"
	"encoding/binary"
)

// Parity: a row of a RAID5 or RAID6 chunk has one unit on each stripe, the data units, then P, and
// Q of RAID6. P is the sum of the data units in GF(2^8), where a sum is an exclusive or; Q is the
// sum of 2^i times data unit i.
//
// Bytes are multiplied eight at a time, in a 64-bit word: lib/raid6/int.uc does so.

// RecoverUnit makes the data unit x of a row, in which bad units are nil: x, and not more than
// there is parity. It may use the units' memory.
func RecoverUnit(row [][]byte, parity, x int) []byte {
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

// MakeParity makes P, and Q if parity is 2, of the data units of a row.
func MakeParity(data [][]byte, parity int) [][]byte {
	units := make([][]byte, parity)
	for k := range units {
		units[k] = make([]byte, len(data[0]))
	}
	FillParity(data, units)
	return units
}

// FillParity fills the parity units, P or P and Q, from the data units of a row. All have one
// length.
func FillParity(data, parity [][]byte) {
	for k, unit := range parity {
		clear(unit)
		for i := len(data) - 1; i >= 0; i-- { // q = d0 + 2 (d1 + 2 (d2 + ...))
			if k == 0 {
				addTo(unit, data[i], 1)
			} else {
				doubleAndAdd(unit, data[i])
			}
		}
	}
}

// doubleAndAdd multiplies each byte of a by 2 and adds that of b, which is as long.
func doubleAndAdd(a, b []byte) {
	n := len(b) &^ 7
	for i := 0; i < n; i += 8 {
		x, y := a[i:i+8], b[i:i+8]
		binary.LittleEndian.PutUint64(x, doubleWord(binary.LittleEndian.Uint64(x))^binary.LittleEndian.Uint64(y))
	}
	for i, v := range b[n:] {
		a[n+i] = Multiply(a[n+i], 2) ^ v
	}
}

// addTo adds f times each byte of b to a.
func addTo(a, b []byte, f byte) {
	if f == 1 {
		subtle.XORBytes(a[:len(b)], a[:len(b)], b)
		return
	}
	n := len(b) &^ 7
	for i := 0; i < n; i += 8 {
		w := multiplyWord(binary.LittleEndian.Uint64(b[i:]), f)
		binary.LittleEndian.PutUint64(a[i:], binary.LittleEndian.Uint64(a[i:])^w)
	}
	for i, v := range b[n:] {
		a[n+i] ^= Multiply(v, f)
	}
}

// times multiplies each byte of a by f.
func times(a []byte, f byte) []byte {
	n := len(a) &^ 7
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(a[i:], multiplyWord(binary.LittleEndian.Uint64(a[i:]), f))
	}
	for i, v := range a[n:] {
		a[n+i] = Multiply(v, f)
	}
	return a
}

// multiplyWord multiplies each byte of w by f.
func multiplyWord(w uint64, f byte) (m uint64) {
	for ; f != 0; f >>= 1 {
		if f&1 != 0 {
			m ^= w
		}
		w = doubleWord(w)
	}
	return m
}

// doubleWord multiplies each byte of w by 2.
func doubleWord(w uint64) uint64 {
	const high = 0x8080808080808080
	return w&^high<<1 ^ w&high>>7*0x1d
}

// Multiply multiplies in GF(2^8) modulo x^8+x^4+x^3+x^2+1, as the RAID6 of Linux has it.
func Multiply(a, b byte) (m byte) {
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
		p = Multiply(p, 2)
	}
	return p
}

// inverse is 1/a = a^254.
func inverse(a byte) byte {
	p := byte(1)
	for range 254 {
		p = Multiply(p, a)
	}
	return p
}

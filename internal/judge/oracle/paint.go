package oracle

// A painted byte says who wrote it: 0 is Zero, 1 to MaxPaint an operation, PaintInitial the initial
// content, anything else Foreign. So a scenario that fills every buffer with Paint can read the
// history back from the bytes.
const (
	MaxPaint     ID   = 239
	PaintInitial byte = 0xff
)

// Paint fills p with the name of an operation (1 to MaxPaint), with PaintInitial for Initial, and
// with 0 for Zero.
func Paint(p []byte, id ID) {
	b := byte(id)
	switch {
	case id == Initial:
		b = PaintInitial
	case id == Zero:
		b = 0
	case id <= 0 || id > MaxPaint:
		panic("oracle: no paint for operation " + id.String())
	}
	if len(p) == 0 {
		return
	}
	p[0] = b
	for n := 1; n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}

// Unpaint appends to dst where the bytes of p came from, which were at off in the file, as few
// ranges. Operations after last are Foreign.
func Unpaint(dst []Seen, p []byte, off int64, last ID) []Seen {
	for i := 0; i < len(p); {
		b, j := p[i], i+1
		for j < len(p) && p[j] == b {
			j++
		}
		id := ID(b)
		switch {
		case b == PaintInitial:
			id = Initial
		case b == 0:
			id = Zero
		case id > last || id > MaxPaint:
			id = Foreign
		}
		if n := len(dst); id == Foreign && n > 0 && dst[n-1].From == Foreign && dst[n-1].Hi == off+int64(i) {
			dst[n-1].Hi = off + int64(j)
		} else {
			dst = append(dst, Seen{off + int64(i), off + int64(j), id})
		}
		i = j
	}
	return dst
}

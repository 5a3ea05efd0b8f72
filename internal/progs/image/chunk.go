package image

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/sched"
)

// Chunk is a logical range and where it lies on the devices.
type Chunk struct {
	Start, Length uint64
	Type          uint64
	Profile       *format.Profile // nil: the type has the bits of none
	Stripes       []Stripe
}

// Stripe is a stripe of a chunk, or a place in one.
type Stripe struct {
	Dev   *Device // nil: missing
	Devid uint64
	Off   uint64 // on the device, in bytes
}

// ErrMissing is the error of a place on a device that is not here.
var ErrMissing = errors.New("the device is missing")

// Read reads len(p) bytes there.
func (s Stripe) Read(t *sched.Task, p []byte) error {
	if s.Dev == nil {
		return ErrMissing
	}
	return blockdev.Read(t, s.Dev, p, int64(s.Off))
}

// NewChunk is the chunk of an item at a logical address. Device finds the device of a stripe.
func NewChunk(logical uint64, it *format.Chunk, device func(s format.Stripe) *Device) Chunk {
	c := Chunk{Start: logical, Length: it.Length, Type: it.Type, Profile: format.ProfileOf(it.Type)}
	for _, s := range it.Stripes {
		c.Stripes = append(c.Stripes, Stripe{device(s), s.Devid, s.Offset})
	}
	return c
}

// End is the address after the last of the chunk.
func (c *Chunk) End() uint64 { return c.Start + c.Length }

// Sound reports whether the chunk has as many stripes as its profile needs, so that Places has an
// answer.
func (c *Chunk) Sound() bool {
	return c.Profile != nil && c.Profile.StripesWanted(len(c.Stripes)) == ""
}

// StripeBytes is the length of each stripe; 0 if there are fewer than the profile needs.
func (c *Chunk) StripeBytes() uint64 {
	if c.Profile == nil || !c.Profile.Striped() {
		return c.Length
	}
	data := c.Profile.DataStripes(len(c.Stripes))
	if data < 1 {
		return 0
	}
	return c.Length / uint64(data)
}

// Places lists where the byte at logical lies, each copy once, and how many bytes from it on lie
// there, too.
func (c *Chunk) Places(logical uint64) (list []Stripe, run uint64) {
	p := c.Profile.Locate(len(c.Stripes), c.Length, logical-c.Start)
	for _, s := range c.Stripes[p.First : p.First+p.Copies] {
		list = append(list, Stripe{s.Dev, s.Devid, s.Off + p.Off})
	}
	return list, p.Len
}

// Rebuilds is how many ways there are to rebuild a unit: from all others, and in RAID6 also without
// each of them, which may be bad.
func (c *Chunk) Rebuilds() int {
	switch c.Profile.Parity {
	case 0:
		return 0
	case 1:
		return 1
	}
	return 1 + len(c.Stripes)
}

// Rebuild makes p, the bytes at logical in one unit of a row with parity, from the other units. Way
// is one of Rebuilds, from 0 on. False: too many units are bad.
func (c *Chunk) Rebuild(t *sched.Task, p []byte, logical uint64, way int) bool {
	skip := way - 1 // by its place in the row: data units, P, Q; -1 is none
	n, parity := len(c.Stripes), c.Profile.Parity
	at := c.Profile.Locate(n, c.Length, logical-c.Start)
	row := make([][]byte, n)
	bad := 0
	for i := range row {
		s := c.Stripes[format.RowStripe(n, at.Row, i)]
		s.Off += at.Off
		q := make([]byte, len(p))
		if i == at.Data || i == skip || s.Read(t, q) != nil {
			bad++
			continue
		}
		row[i] = q
	}
	if bad > parity {
		return false
	}
	copy(p, format.RecoverUnit(row, parity, at.Data))
	return true
}

// Put writes p, the bytes at a logical address in one unit, to every copy, by write. In a row with
// parity it writes the parity anew in the columns of p; data units that are bad are made from the
// rest of the row first. Write decides about places without a device.
func (c *Chunk) Put(t *sched.Task, logical uint64, p []byte, write func(at Stripe, p []byte) error) error {
	places, _ := c.Places(logical)
	var parity [][]byte
	if c.Profile.Parity > 0 {
		var err error
		if places, parity, err = c.parity(t, logical, p); err != nil {
			return err
		}
	}
	for i, at := range places {
		q := p
		if k := i - (len(places) - len(parity)); k >= 0 {
			q = parity[k]
		}
		if err := write(at, q); err != nil {
			return err
		}
	}
	return nil
}

// parity is the places of p, P and Q, and the parity that the row has with p.
func (c *Chunk) parity(t *sched.Task, logical uint64, p []byte) (places []Stripe, parity [][]byte, err error) {
	n := len(c.Stripes)
	at := c.Profile.Locate(n, c.Length, logical-c.Start)
	data := make([][]byte, c.Profile.DataStripes(n))
	for i := range n {
		s := c.Stripes[format.RowStripe(n, at.Row, i)]
		s.Off += at.Off
		if i == at.Data || i >= len(data) {
			places = append(places, s)
		}
		if i >= len(data) {
			continue
		}
		if data[i] = p; i == at.Data {
			continue
		}
		data[i] = make([]byte, len(p))
		unit := c.Start + (at.Row*uint64(len(data))+uint64(i))*format.StripeLen + at.Off%format.StripeLen
		if s.Read(t, data[i]) != nil && !c.Rebuild(t, data[i], unit, 0) {
			return nil, nil, fmt.Errorf("logical %d: the row of its parity cannot be read", logical)
		}
	}
	return places, format.MakeParity(data, c.Profile.Parity), nil
}

// OverSuper reports whether a copy of the size bytes at logical, or with parity a unit of its row,
// lies over a superblock or its neighbourhood, of one stripe unit, which no extent has.
func (c *Chunk) OverSuper(logical, size uint64) bool {
	places, _ := c.Places(logical)
	if c.Profile.Parity > 0 { // all of the row
		at := c.Profile.Locate(len(c.Stripes), c.Length, logical-c.Start)
		places = slices.Clone(c.Stripes)
		for i := range places {
			places[i].Off += at.Off
		}
	}
	return slices.ContainsFunc(places, func(s Stripe) bool {
		for i := range format.SuperMirrorMax {
			if at := format.SuperMirror(i); s.Off < at+format.StripeLen && at < s.Off+size {
				return true
			}
		}
		return false
	})
}

// Map is the chunks of a file system, ascending.
type Map []Chunk

// At is the chunk with the address; nil if there is none.
func (m Map) At(logical uint64) *Chunk {
	i := sort.Search(len(m), func(i int) bool { return m[i].Start > logical }) - 1
	if i < 0 || logical-m[i].Start >= m[i].Length {
		return nil
	}
	return &m[i]
}

func (m Map) search(start uint64) int {
	return sort.Search(len(m), func(i int) bool { return m[i].Start >= start })
}

// Insert takes a chunk into the map, unless it overlaps one that is there.
func (m *Map) Insert(c Chunk) bool {
	i := m.search(c.Start)
	if i < len(*m) && c.End() > (*m)[i].Start || i > 0 && (*m)[i-1].End() > c.Start {
		return false
	}
	*m = slices.Insert(*m, i, c)
	return true
}

// Replace takes a chunk into the map, in the place of one with the same start.
func (m *Map) Replace(c Chunk) {
	i := m.search(c.Start)
	if i < len(*m) && (*m)[i].Start == c.Start {
		(*m)[i] = c
		return
	}
	*m = slices.Insert(*m, i, c)
}

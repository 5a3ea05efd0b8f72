package repair

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"btrlab/internal/blockdev"
	"btrlab/internal/format"
	"btrlab/internal/progs/check"
	"btrlab/internal/progs/image"
)

// What is bad on one copy is made from another, or from the parity of its row. A tree block counts
// as whole if it is the one that its pointer means, data if it has its checksum: so what is made is
// right, or nothing is.

// made makes what belongs to a bad place, and says of each sector whether it is known, and what it
// was made from: "copy 1", or "parity".
func made(s *check.Seen, b *check.Bad) (p []byte, known []bool, from string) {
	p, known = make([]byte, b.Length), make([]bool, b.Length/uint64(s.Super.SectorSize))
	ch := s.ChunkAt(b.Logical)
	if ch == nil {
		return p, known, ""
	}
	if b.Tree {
		from = madeTree(s, ch, b, p)
		for i := range known {
			known[i] = from != ""
		}
		return p, known, from
	}
	return p, known, madeData(s, ch, b, p, known)
}

func madeTree(s *check.Seen, ch *check.Chunk, b *check.Bad, p []byte) string {
	meant := func() bool { return s.Meant(p, b.Logical, b.Generation, b.Level) }
	places, _ := ch.Places(b.Logical)
	for i, place := range places {
		if i != b.Mirror && place.Dev != nil && blockdev.Read(s.Task, place.Dev, p, int64(place.Off)) == nil && meant() {
			return fmt.Sprintf("copy %d", i)
		}
	}
	units := unitsOf(ch)
	for way := range units.Rebuilds() {
		if units.Rebuild(s.Task, p, b.Logical, way) && meant() {
			return "parity"
		}
	}
	return ""
}

// madeData fills the sectors of p that can be made. Data without checksums is taken as it is read.
func madeData(s *check.Seen, ch *check.Chunk, b *check.Bad, p []byte, known []bool) (from string) {
	sector, size := int(s.Super.SectorSize), s.Super.CsumType.Size()
	q := make([]byte, sector)
	fill := func(what string, read func(i int) bool) {
		for i := range known {
			if known[i] || !read(i) || len(b.Sums) > 0 && !s.Super.CsumType.Match(b.Sums[i*size:], q) {
				continue
			}
			copy(p[i*sector:], q)
			known[i] = true
			if from == "" {
				from = what
			}
		}
	}
	places, _ := ch.Places(b.Logical)
	for m, place := range places {
		if m != b.Mirror && place.Dev != nil {
			fill(fmt.Sprintf("copy %d", m), func(i int) bool {
				return blockdev.Read(s.Task, place.Dev, q, int64(place.Off)+int64(i*sector)) == nil
			})
		}
	}
	units := unitsOf(ch)
	for way := range units.Rebuilds() {
		fill("parity", func(i int) bool { return units.Rebuild(s.Task, q, b.Logical+uint64(i*sector), way) })
	}
	return from
}

// unitsOf is a chunk as the programs for images know it.
func unitsOf(ch *check.Chunk) *image.Chunk {
	u := &image.Chunk{Start: ch.Start, Length: ch.Length, Type: ch.Type, Profile: format.ProfileOf(ch.Type)}
	for _, s := range ch.Stripes {
		at := image.Stripe{Off: s.Off}
		if s.Dev != nil {
			at.Dev, at.Devid = &image.Device{Device: s.Dev, ID: s.Dev.ID(), Known: true}, s.Dev.ID()
		}
		u.Stripes = append(u.Stripes, at)
	}
	return u
}

// runs calls f with the runs of sectors that are known, in bytes.
func runs(known []bool, sector int, f func(start, end int) error) error {
	for i := 0; i < len(known); i++ {
		from := i
		for i < len(known) && known[i] {
			i++
		}
		if i > from {
			if err := f(from*sector, i*sector); err != nil {
				return err
			}
		}
	}
	return nil
}

// fixCopies writes what is whole over copies of blocks and of data that are bad. What the device
// does not read is left.
func (c *changes) fixCopies() {
	for i := range c.BadCopies {
		b := &c.BadCopies[i]
		if b.Unread {
			continue
		}
		what := fmt.Sprintf("copy %d of %d bytes of data at %d", b.Mirror, b.Length, b.Logical)
		if b.Tree {
			what = fmt.Sprintf("copy %d of tree block %d", b.Mirror, b.Logical)
		}
		p, known, from := made(c.Seen, b)
		if from == "" {
			if b.Tree {
				c.try(what, errors.New("no other copy is whole"))
			}
			continue
		}
		if slices.Contains(known, false) {
			what += ", the part of it that another has,"
		}
		c.try(what+" written from "+from, runs(known, int(c.Super.SectorSize), func(start, end int) error {
			return c.write(b.At.Dev, p[start:end], int64(b.At.Off)+int64(start))
		}))
	}
}

// parityUnit is a sector of the parity of a row: what is there, and what belongs there.
type parityUnit struct {
	at         check.Stripe
	have, want []byte
}

// parityOf makes the parity of a row; nil if a unit of it is bad, or cannot be read.
func parityOf(s *check.Seen, r check.BadRow, bad func(at check.Stripe) bool) (units []parityUnit) {
	ch := r.Chunk
	n, parity := len(ch.Stripes), ch.Parity()
	var data [][]byte
	for i := range n {
		at := ch.Stripes[format.RowStripe(n, r.Row, i)]
		at.Off += r.Row*format.StripeLen + r.In
		p := make([]byte, s.Super.SectorSize)
		unread := at.Dev == nil || blockdev.Read(s.Task, at.Dev, p, int64(at.Off)) != nil
		if i < n-parity {
			if unread || bad(at) {
				return nil
			}
			data = append(data, p)
			continue
		}
		units = append(units, parityUnit{at: at, have: p})
	}
	for i, want := range format.MakeParity(data, parity) {
		units[i].want = want
	}
	return slices.DeleteFunc(units, func(u parityUnit) bool { return u.at.Dev == nil || slices.Equal(u.have, u.want) })
}

// spansOf are the bytes of a device that are bad, merged.
func spansOf(list []check.Bad, dev *check.Device) (l []check.Span) {
	for i := range list {
		if b := &list[i]; b.At.Dev == dev {
			l = append(l, check.Span{Start: b.At.Off, End: b.At.Off + b.Length})
		}
	}
	return check.Merged(l)
}

// badPlaces tells whether a byte of a device is in one of the places.
func badPlaces(s *check.Seen) func(at check.Stripe) bool {
	m := map[*check.Device][]check.Span{}
	for _, d := range s.Devs {
		m[d] = spansOf(s.BadCopies, d)
	}
	return func(at check.Stripe) bool { return within(m[at.Dev], at.Off) }
}

// joined adds a span to some that are merged.
func joined(l []check.Span, s check.Span) []check.Span {
	i, _ := slices.BinarySearchFunc(l, s.Start, func(x check.Span, at uint64) int { return cmp.Compare(x.End, at) })
	j := i // the spans from i to j touch it
	for ; j < len(l) && l[j].Start <= s.End; j++ {
		s.Start, s.End = min(s.Start, l[j].Start), max(s.End, l[j].End)
	}
	return slices.Replace(l, i, j, s)
}

// within reports whether a byte is in one of the spans, which are merged.
func within(l []check.Span, off uint64) bool {
	_, found := slices.BinarySearchFunc(l, off, func(x check.Span, off uint64) int {
		switch {
		case x.End <= off:
			return -1
		case x.Start > off:
			return 1
		}
		return 0
	})
	return found
}

// fixParity makes parity of the data of its row, where that is whole.
func (c *changes) fixParity() {
	bad, n := badPlaces(c.Seen), 0
	for _, r := range c.BadRows {
		for _, u := range parityOf(c.Seen, r, bad) {
			if err := c.write(u.at.Dev, u.want, int64(u.at.Off)); err != nil {
				c.try("parity", err)
				return
			}
			n++
		}
	}
	if n > 0 {
		c.try(fmt.Sprintf("%d bytes of parity made from the data of their rows", n*int(c.Super.SectorSize)), nil)
	}
}

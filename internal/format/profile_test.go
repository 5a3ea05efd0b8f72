package format

import "testing"

func TestProfileOf(t *testing.T) {
	for i := range profiles {
		p := &profiles[i]
		if got := ProfileOf(BlockGroupData | p.Flag); got != p {
			t.Errorf("%s: have %v", p.Name, got)
		}
	}
	if p := ProfileOf(BlockGroupRAID1 | BlockGroupDup); p != nil {
		t.Errorf("two profiles: have %v want none", p)
	}
}

// TestLocate: units of 64 KiB in the order of their addresses, as stripe and row.
func TestLocate(t *testing.T) {
	type at struct {
		first, copies int
		row           uint64
	}
	for _, c := range []struct {
		flag    uint64
		n       int
		mirrors int
		want    []at
	}{
		{0, 1, 1, []at{{0, 1, 0}, {0, 1, 1}, {0, 1, 2}}},
		{BlockGroupDup, 2, 2, []at{{0, 2, 0}, {0, 2, 1}}},
		{BlockGroupRAID1C3, 3, 3, []at{{0, 3, 0}, {0, 3, 1}}},
		{BlockGroupRAID0, 3, 1, []at{{0, 1, 0}, {1, 1, 0}, {2, 1, 0}, {0, 1, 1}, {1, 1, 1}}},
		{BlockGroupRAID10, 4, 2, []at{{0, 2, 0}, {2, 2, 0}, {0, 2, 1}, {2, 2, 1}}},
		// a b P / d P c / P e f, the stripes from left to right
		{BlockGroupRAID5, 3, 2, []at{{0, 1, 0}, {1, 1, 0}, {1, 1, 1}, {2, 1, 1}, {2, 1, 2}, {0, 1, 2}, {0, 1, 3}}},
		{BlockGroupRAID6, 4, 4, []at{{0, 1, 0}, {1, 1, 0}, {1, 1, 1}, {2, 1, 1}, {2, 1, 2}, {3, 1, 2}, {3, 1, 3}, {0, 1, 3}}},
	} {
		p := ProfileOf(c.flag)
		if m := p.Mirrors(c.n); m != c.mirrors {
			t.Errorf("%s: have %d mirrors want %d", p.Name, m, c.mirrors)
		}
		length := uint64(12 * StripeLen)
		for i, w := range c.want {
			for _, in := range []uint64{0, 5, StripeLen - 1} {
				g := p.Locate(c.n, length, uint64(i)*StripeLen+in)
				if g.First != w.first || g.Copies != w.copies || g.Off != w.row*StripeLen+in {
					t.Errorf("%s: unit %d: have %+v want %+v", p.Name, i, g, w)
				}
				if left := uint64(StripeLen) - in; p.Striped() && g.Len != left || !p.Striped() && g.Len != length-uint64(i)*StripeLen-in {
					t.Errorf("%s: unit %d+%d: have length %d", p.Name, i, in, g.Len)
				}
			}
		}
	}
}

// TestLocateOnce: the units of a chunk with all their copies and parities fill its stripes, each
// place once.
func TestLocateOnce(t *testing.T) {
	const rows = 12
	for i := range profiles {
		p := &profiles[i]
		for n := max(p.DevsMin, 1) * p.DevStripes; n <= 8 && p.StripesWanted(n) == ""; n += p.Increment {
			data := p.DataStripes(n)
			if !p.Striped() {
				data = 1
			}
			length := uint64(rows * data * StripeLen)
			c := Chunk{Type: p.Flag, Length: length, Stripes: make([]Stripe, n)}
			if s := c.StripeBytes(); s != rows*StripeLen {
				t.Errorf("%s of %d: stripe of %d bytes want %d", p.Name, n, s, rows*StripeLen)
			}
			seen := map[[2]uint64]bool{}
			put := func(stripe int, off uint64) {
				at := [2]uint64{uint64(stripe), off}
				if seen[at] || stripe >= n || off >= rows*StripeLen {
					t.Errorf("%s of %d: stripe %d at %d is taken or out of bounds", p.Name, n, stripe, off)
				}
				seen[at] = true
			}
			for delta := uint64(0); delta < length; delta += StripeLen {
				g := p.Locate(n, length, delta)
				for k := range g.Copies {
					put(g.First+k, g.Off)
				}
				for k := range p.Parity {
					if g.Data == 0 {
						put(RowStripe(n, g.Row, data+k), g.Off)
					}
				}
			}
			if len(seen) != n*rows {
				t.Errorf("%s of %d: %d places of %d", p.Name, n, len(seen), n*rows)
			}
		}
	}
}

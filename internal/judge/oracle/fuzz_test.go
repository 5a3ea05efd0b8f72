package oracle

import "testing"

// reader takes small numbers from the fuzzer's bytes; at their end everything is 0.
type reader []byte

func (r *reader) n(limit int) int {
	if len(*r) == 0 {
		return 0
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return int(b) % limit
}

// decode makes a valid history and a rule of any bytes.
func decode(data []byte) (*History, Rule) {
	in := reader(data)
	r := Rule{Write: Contract(in.n(int(numContracts))), Read: Contract(in.n(int(numContracts))), Sizes: Sizes(in.n(3)), PageSize: int64(1 + in.n(4))}
	h := &History{Size: int64(in.n(world + 1)), FinalSize: NoSize}
	if lo := in.n(2 * world); lo < world {
		h.Holes = []Range{{int64(lo), int64(lo + in.n(world-lo+1))}}
	}
	ops := 1 + in.n(5)
	seen := func(lo, hi int64) []Seen {
		s := []Seen{}
		for lo < hi {
			end := lo + 1 + int64(in.n(int(hi-lo)))
			if id := ID(in.n(ops+5)) - 3; id != unseen {
				if id == ID(ops)+1 {
					id = MaxID
				}
				s = append(s, Seen{lo, end, id})
			}
			lo = end
		}
		return s
	}
	for i := range ops {
		o := Op{ID: ID(i + 1), Kind: Kind(in.n(int(numKinds)))}
		o.Lo = int64(in.n(world))
		o.Hi = o.Lo + int64(in.n(world-int(o.Lo)+1))
		o.Start = int64(in.n(16))
		o.End = o.Start + int64(in.n(16))
		o.Commit = int64(in.n(8))
		for x, cuts := o.Lo+1, in.n(256); x < o.Hi; x++ {
			if cuts>>(x%4)&1 != 0 {
				o.Batches = append(o.Batches, x)
			}
			if cuts>>(4+x%4)&1 != 0 {
				o.Extents = append(o.Extents, x)
			}
		}
		switch o.Kind {
		case Read:
			o.Got = int64(in.n(int(o.Hi-o.Lo) + 1))
			o.See = seen(o.Lo, o.Lo+o.Got)
		case Stat:
			o.Size = int64(in.n(world + 2))
		}
		h.Ops = append(h.Ops, o)
	}
	if in.n(4) != 0 {
		h.Final = seen(0, world)
		h.FinalSize = int64(in.n(world+2)) - 1
	}
	return h, r
}

// FuzzCheck compares every verdict with trying all orders, and asks for its witness or its order.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{})
	// Two writers torn at a page; a truncate and a writer; an append and a stat; readers that
	// disagree.
	f.Add([]byte{4, 4, 0, 3, 8, 15, 1, 0, 0, 8, 1, 9, 0, 0, 0, 0, 8, 2, 8, 0, 0, 1, 3, 4, 3, 5, 0})
	f.Add([]byte{4, 1, 2, 1, 8, 15, 1, 0, 2, 6, 1, 9, 0, 0, 3, 4, 0, 2, 8, 0, 0, 1, 7, 2, 8})
	f.Add([]byte{4, 4, 2, 1, 3, 15, 2, 1, 3, 2, 1, 9, 0, 0, 1, 3, 4, 1, 9, 0, 0, 6, 0, 0, 5, 6, 0, 0, 5, 0})
	f.Add([]byte{4, 4, 0, 3, 8, 15, 3, 0, 0, 4, 1, 15, 0, 0, 0, 4, 4, 1, 15, 0, 0, 2, 0, 8, 2, 6, 0, 0, 8, 3, 4, 3, 3, 2, 0, 8, 2, 6, 0, 0, 8, 3, 3, 3, 5, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		h, r := decode(data)
		if err := h.Validate(); err != nil {
			t.Fatalf("%v\n%s", err, dump(h))
		}
		b := newBrute(h, r)
		if len(b.pieces) > 12 {
			return
		}
		want := Broken
		if b.try(0) {
			want = Kept
		}
		var c Checker
		v := c.Check(h, r)
		if v.Outcome != want {
			t.Fatalf("have %v (tier %d) want %v\n%v\n%s", v.Outcome, v.Tier, want, r, dump(h))
		}
		if want == Kept {
			if err := replay(h, r, c.Order(), v.Tier == 0); err != nil {
				t.Fatalf("%v\n%v\n%s%v", err, r, dump(h), c.Order())
			}
		}
		if w := c.Explain(h, r); (w != nil) != (want == Broken) || w != nil && len(w.Lines()) < 2 {
			t.Fatalf("witness of %v: %v\n%s", want, w, dump(h))
		}
		CheckEOF(h)
		CheckStale(h)
	})
}
